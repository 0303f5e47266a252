//! The ordered stores that a server on one machine chooses from when it starts.
//!
//! Everything above the seam is generic over its store and compiled once for each that a program names.
//! A server decides only at run time whether it keeps what it is given, so it names this one type:
//! compiled for each store, it was a tenth larger and the last step of its build took a quarter longer.

use std::{ops::Bound, path::Path};

use bytes::Bytes;

use crate::{
    Batch, Direction, Engine, Error, Fjall, FjallSnapshot, Load, Memory, MemorySnapshot, Options,
    OrderedSnapshot, OrderedStore, Visit,
};

/// A range store on this machine: in a directory, or in memory.
pub type Embedded = Engine<Local>;

impl Engine<Local> {
    /// Opens a range store in a directory, creating both if need be.
    pub fn open(directory: &Path, options: Options) -> Result<Self, Error> {
        Self::with_store(Local::Kept(Fjall::open(directory, options)?))
    }

    /// An empty range store in memory, which forgets everything.
    pub fn in_memory() -> Self {
        Self::with_store(Local::Forgotten(Memory::new()))
            .expect("an empty store is not corrupt, and threads can start")
    }
}

/// An ordered store on this machine.
#[derive(Debug, Clone)]
pub enum Local {
    /// In a directory.
    Kept(Fjall),
    /// In memory, until the server stops.
    Forgotten(Memory),
}

impl OrderedStore for Local {
    type Snapshot = LocalSnapshot;

    fn snapshot(&self) -> Result<LocalSnapshot, Error> {
        Ok(match self {
            Self::Kept(store) => LocalSnapshot::Kept(store.snapshot()?),
            Self::Forgotten(store) => LocalSnapshot::Forgotten(store.snapshot()?),
        })
    }

    fn write(&self, batch: Batch) -> Result<(), Error> {
        match self {
            Self::Kept(store) => store.write(batch),
            Self::Forgotten(store) => store.write(batch),
        }
    }

    fn load(&self) -> Load {
        match self {
            Self::Kept(store) => store.load(),
            Self::Forgotten(store) => store.load(),
        }
    }

    fn close(&self) -> Result<(), Error> {
        match self {
            Self::Kept(store) => store.close(),
            Self::Forgotten(store) => store.close(),
        }
    }
}

/// A version of a [`Local`].
#[derive(Debug)]
pub enum LocalSnapshot {
    /// Of a directory.
    Kept(FjallSnapshot),
    /// Of what is in memory.
    Forgotten(MemorySnapshot),
}

impl OrderedSnapshot for LocalSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        match self {
            Self::Kept(snapshot) => snapshot.get(key),
            Self::Forgotten(snapshot) => snapshot.get(key),
        }
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), Error> {
        match self {
            Self::Kept(snapshot) => snapshot.scan(from, to, direction, visit),
            Self::Forgotten(snapshot) => snapshot.scan(from, to, direction, visit),
        }
    }
}
