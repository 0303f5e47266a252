//! Ordered stores that fail on purpose, for tests.
//!
//! Both count every call that reaches the store or one of its snapshots. [`Faulty`] fails a single one,
//! as a disk may; [`Crashing`] fails one and all that follow, as a crash does, and hands out what was
//! durable by then. A test runs the same work again and again and lets the trouble come one call later
//! each time, until the work passes without meeting it.

use std::{
    io,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

use crate::{Batch, Direction, Error, Load, OrderedSnapshot, OrderedStore, Visit};

/// Counts calls and says which of them fail.
#[derive(Debug)]
struct Calls {
    made: AtomicU64,
    fail_at: u64,
    fail_after: bool,
}

impl Calls {
    /// Counts a call; an error if it is to fail.
    fn count(&self) -> Result<(), Error> {
        let call = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        if call == self.fail_at || (self.fail_after && call > self.fail_at) {
            return Err(Error::from(io::Error::other(format!("call {call} fails on purpose"))));
        }
        Ok(())
    }

    /// Whether the next call is the first to fail.
    fn is_next_to_fail(&self) -> bool {
        self.made.load(Ordering::Relaxed) + 1 == self.fail_at
    }
}

/// A store of which one call fails; a failing write changes nothing.
#[derive(Debug)]
pub struct Faulty<O> {
    store: O,
    calls: Arc<Calls>,
}

impl<O> Faulty<O> {
    /// A store of which the call with this number fails, counting from one.
    pub fn new(store: O, fail_at: u64) -> Self {
        let calls = Calls { made: AtomicU64::new(0), fail_at, fail_after: false };
        Self { store, calls: Arc::new(calls) }
    }

    /// Tells how many calls were made so far, also when the store has been moved away.
    pub fn calls(&self) -> impl Fn() -> u64 + Send + use<O> {
        let calls = Arc::clone(&self.calls);
        move || calls.made.load(Ordering::Relaxed)
    }
}

impl<O: OrderedStore> OrderedStore for Faulty<O> {
    type Snapshot = TroubledSnapshot<O::Snapshot>;

    fn snapshot(&self) -> Result<Self::Snapshot, Error> {
        self.calls.count()?;
        Ok(TroubledSnapshot { snapshot: self.store.snapshot()?, calls: Arc::clone(&self.calls) })
    }

    fn write(&self, batch: Batch) -> Result<(), Error> {
        self.calls.count()?;
        self.store.write(batch)
    }

    fn load(&self) -> Load {
        self.store.load()
    }

    fn close(&self) -> Result<(), Error> {
        self.calls.count()?;
        self.store.close()
    }
}

/// What became of the write during which the crash came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Torn {
    /// It is wholly there, although nobody was told.
    Kept,
    /// It is wholly absent.
    Lost,
}

/// A store that crashes.
#[derive(Debug)]
pub struct Crashing<O> {
    store: O,
    calls: Arc<Calls>,
    torn: Torn,
}

impl<O: Clone> Crashing<O> {
    /// A store of which the call with this number and all later ones fail, counting from one.
    pub fn new(store: O, crash_at: u64, torn: Torn) -> Self {
        let calls = Calls { made: AtomicU64::new(0), fail_at: crash_at, fail_after: true };
        Self { store, calls: Arc::new(calls), torn }
    }

    /// What is found after the crash. Needs a store of which a clone holds the same rows, and in which
    /// a write that returned is durable.
    pub fn survivor(&self) -> O {
        self.store.clone()
    }

    /// Tells how many calls were made so far, also when the store has been moved away.
    pub fn calls(&self) -> impl Fn() -> u64 + Send + use<O> {
        let calls = Arc::clone(&self.calls);
        move || calls.made.load(Ordering::Relaxed)
    }
}

impl<O: OrderedStore> OrderedStore for Crashing<O> {
    type Snapshot = TroubledSnapshot<O::Snapshot>;

    fn snapshot(&self) -> Result<Self::Snapshot, Error> {
        self.calls.count()?;
        Ok(TroubledSnapshot { snapshot: self.store.snapshot()?, calls: Arc::clone(&self.calls) })
    }

    fn write(&self, batch: Batch) -> Result<(), Error> {
        if self.torn == Torn::Kept && self.calls.is_next_to_fail() {
            self.store.write(batch)?;
            return self.calls.count();
        }
        self.calls.count()?;
        self.store.write(batch)
    }

    fn load(&self) -> Load {
        self.store.load()
    }

    fn close(&self) -> Result<(), Error> {
        self.calls.count()?;
        self.store.close()
    }
}

/// A version of a store that fails on purpose.
#[derive(Debug)]
pub struct TroubledSnapshot<S> {
    snapshot: S,
    calls: Arc<Calls>,
}

impl<S: OrderedSnapshot> OrderedSnapshot for TroubledSnapshot<S> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.calls.count()?;
        self.snapshot.get(key)
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), Error> {
        self.calls.count()?;
        self.snapshot.scan(from, to, direction, visit)
    }
}
