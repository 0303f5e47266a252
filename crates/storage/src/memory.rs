//! An ordered store in memory, for tests and for servers that keep nothing.
//!
//! One sorted map holds, for each key, its newest value and the older ones that some snapshot can
//! still see. Every batch has a number; a snapshot is a number too, entered in a register so that
//! writers know which old values are still needed.
//!
//! - M1: a version is dropped only when a newer version is visible to the oldest snapshot alive.
//! - M2: a key whose deletion is visible to all snapshots leaves the map.
//!
//! Scans copy rows out in small chunks and call the visitor without holding the lock: a visitor that
//! reads again could otherwise wait for a writer that waits for it.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::{Bound, ControlFlow},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use bytes::Bytes;

use crate::{
    Error,
    ordered::{Batch, Direction, OrderedSnapshot, OrderedStore, Visit, is_empty_interval},
};

/// The first chunk of a scan is small because many scans want one row; later ones double.
const SCAN_ROWS_FIRST: usize = 8;
const SCAN_ROWS_MAX: usize = 512;

/// An ordered store that forgets everything when the last handle is dropped.
///
/// Handles share the rows, so a test can open an engine, drop it, and open another on what is left.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    rows: RwLock<Rows>,
    register: Mutex<Register>,
}

#[derive(Debug, Default)]
struct Rows {
    map: BTreeMap<Bytes, Row>,
    /// Keys that hold versions which may be dropped once all snapshots have reached the number.
    garbage: VecDeque<(u64, Bytes)>,
}

#[derive(Debug)]
struct Row {
    newest: Version,
    /// Ascending by number, all below the newest.
    older: Vec<Version>,
}

#[derive(Debug)]
struct Version {
    number: u64,
    value: Option<Bytes>,
}

/// The number of the newest batch, and how many snapshots are alive at which number.
#[derive(Debug, Default)]
struct Register {
    newest: u64,
    alive: BTreeMap<u64, usize>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        self.shared.register()
    }
}

impl Shared {
    fn register(&self) -> MutexGuard<'_, Register> {
        // Nothing panics while the register is held, so a poisoned one is still whole.
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OrderedStore for Memory {
    type Snapshot = MemorySnapshot;

    fn snapshot(&self) -> Result<MemorySnapshot, Error> {
        let mut register = self.register();
        let number = register.newest;
        *register.alive.entry(number).or_insert(0) += 1;
        drop(register);
        Ok(MemorySnapshot { shared: Arc::clone(&self.shared), number })
    }

    fn write(&self, batch: Batch) -> Result<(), Error> {
        let mut rows = self.shared.rows.write().unwrap_or_else(PoisonError::into_inner);
        let register = self.register();
        // Snapshots taken from here on see at least the present batch, so none is older than this.
        let oldest = register.alive.keys().next().copied().unwrap_or(register.newest);
        let number = register.newest + 1;
        drop(register);
        for (key, value) in batch {
            rows.put(key, Version { number, value });
        }
        rows.collect_garbage(oldest);
        self.register().newest = number;
        Ok(())
    }
}

impl Rows {
    fn put(&mut self, key: Bytes, version: Version) {
        let number = version.number;
        match self.map.get_mut(&key) {
            Some(row) => {
                let previous = std::mem::replace(&mut row.newest, version);
                row.older.push(previous);
            }
            // Deleting what never was leaves no trace.
            None if version.value.is_none() => return,
            None => {
                self.map.insert(key, Row { newest: version, older: Vec::new() });
                return;
            }
        }
        self.garbage.push_back((number, key));
    }

    fn collect_garbage(&mut self, oldest: u64) {
        while self.garbage.front().is_some_and(|(number, _)| *number <= oldest) {
            let Some((_, key)) = self.garbage.pop_front() else { return };
            if let Some(row) = self.map.get_mut(&key) {
                row.prune(oldest);
                if row.older.is_empty() && row.newest.value.is_none() && row.newest.number <= oldest
                {
                    self.map.remove(&key);
                }
            }
        }
    }
}

impl Row {
    fn at(&self, number: u64) -> Option<&Bytes> {
        if self.newest.number <= number {
            return self.newest.value.as_ref();
        }
        self.older.iter().rev().find(|version| version.number <= number)?.value.as_ref()
    }

    /// Drops what no snapshot can see. Keeps M1.
    fn prune(&mut self, oldest: u64) {
        if self.newest.number <= oldest {
            self.older = Vec::new();
            return;
        }
        if let Some(visible) = self.older.iter().rposition(|version| version.number <= oldest) {
            self.older.drain(..visible);
        }
    }
}

/// A version of a [`Memory`].
#[derive(Debug)]
pub struct MemorySnapshot {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for MemorySnapshot {
    fn drop(&mut self) {
        let mut register = self.shared.register();
        if let Some(count) = register.alive.get_mut(&self.number) {
            *count -= 1;
            if *count == 0 {
                register.alive.remove(&self.number);
            }
        }
    }
}

impl MemorySnapshot {
    /// Copies up to `limit` rows; tells whether the interval is exhausted and where it stopped.
    fn chunk(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        limit: usize,
    ) -> (Vec<(Bytes, Bytes)>, Option<Bytes>) {
        if is_empty_interval(from, to) {
            return (Vec::new(), None);
        }
        let rows = self.shared.rows.read().unwrap_or_else(PoisonError::into_inner);
        let mut interval = rows.map.range::<[u8], _>((from, to));
        let mut chunk = Vec::new();
        // Rows that this snapshot does not see count too, so that the lock is held briefly.
        for _ in 0..limit {
            let next = match direction {
                Direction::Forward => interval.next(),
                Direction::Backward => interval.next_back(),
            };
            let Some((key, row)) = next else { return (chunk, None) };
            if let Some(value) = row.at(self.number) {
                chunk.push((key.clone(), value.clone()));
            }
        }
        let last = match direction {
            Direction::Forward => interval.next(),
            Direction::Backward => interval.next_back(),
        };
        let resume = last.map(|(key, _)| key.clone());
        (chunk, resume)
    }
}

impl OrderedSnapshot for MemorySnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let rows = self.shared.rows.read().unwrap_or_else(PoisonError::into_inner);
        Ok(rows.map.get(key).and_then(|row| row.at(self.number)).cloned())
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), Error> {
        let mut limit = SCAN_ROWS_FIRST;
        let (mut chunk, mut resume) = self.chunk(from, to, direction, limit);
        loop {
            for (key, value) in &chunk {
                if let ControlFlow::Break(()) = visit(key, value) {
                    return Ok(());
                }
            }
            let Some(key) = resume else { return Ok(()) };
            limit = SCAN_ROWS_MAX.min(limit * 2);
            let at = Bound::Included(key.as_ref());
            (chunk, resume) = match direction {
                Direction::Forward => self.chunk(at, to, direction, limit),
                Direction::Backward => self.chunk(from, at, direction, limit),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &Memory, key: &str, value: Option<&str>) {
        let value = value.map(|value| Bytes::copy_from_slice(value.as_bytes()));
        store.write(vec![(Bytes::copy_from_slice(key.as_bytes()), value)]).unwrap();
    }

    #[test]
    fn old_versions_live_as_long_as_their_snapshots() {
        let store = Memory::new();
        put(&store, "a", Some("1"));
        let first = store.snapshot().unwrap();
        put(&store, "a", Some("2"));
        let second = store.snapshot().unwrap();
        put(&store, "a", None);
        assert_eq!(first.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(second.get(b"a").unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(store.snapshot().unwrap().get(b"a").unwrap(), None);
    }

    #[test]
    fn nothing_remains_of_deleted_keys() {
        let store = Memory::new();
        for round in 0..10 {
            put(&store, "a", Some(&round.to_string()));
        }
        put(&store, "a", None);
        put(&store, "b", Some("1"));
        put(&store, "c", Some("1"));
        let rows = store.shared.rows.read().unwrap();
        assert_eq!(rows.map.len(), 2, "{:?}", rows.map);
        assert!(rows.garbage.is_empty(), "{:?}", rows.garbage);
    }
}
