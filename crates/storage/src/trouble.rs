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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Engine, META_RANGE, Memory, RangeId, RangeStore, Snapshot, Stop, SubmitError, View,
        contract::{Run, block_on},
        row,
    };
    use std::ops::ControlFlow;

    const PAIRS: RangeId = RangeId(1);
    const DOOMED: RangeId = RangeId(2);
    const DOOMED_ROWS: usize = 5000;
    /// Ranges that are written to together only.
    const LEFT: RangeId = RangeId(3);
    const RIGHT: RangeId = RangeId(4);

    /// What the callers of the work were told.
    #[derive(Debug, Default)]
    struct Told {
        created: bool,
        pairs_attempted: u64,
        pairs: u64,
        twins_attempted: u64,
        twins: u64,
        filled: bool,
        erase_attempted: bool,
        erased: bool,
    }

    fn read_count(view: &dyn View) -> Result<u64, Error> {
        let count = view.get(b"count")?;
        Ok(count.map_or(0, |count| u64::from_be_bytes(count.as_ref().try_into().unwrap())))
    }

    /// Writes two rows and a counter, which must always agree.
    fn add_pair(view: &mut dyn View) -> Result<(), Error> {
        let count = read_count(view)? + 1;
        view.put(format!("a{count:04}").as_bytes(), Bytes::from_static(b"1"));
        view.put(format!("b{count:04}").as_bytes(), Bytes::from_static(b"1"));
        view.put(b"count", Bytes::copy_from_slice(&count.to_be_bytes()));
        Ok(())
    }

    fn work<O: OrderedStore>(store: &Engine<O>) -> Told {
        let mut told = Told {
            created: block_on(store.create_ranges(&[PAIRS, DOOMED, LEFT, RIGHT])).is_ok(),
            ..Told::default()
        };
        for _ in 0..4 {
            let pair = || Run(|view: &mut dyn View| Ok::<(), Stop<()>>(add_pair(view)?));
            let group = [(); 3].map(|()| store.submit(PAIRS, pair()));
            told.pairs_attempted += 3;
            told.pairs +=
                group.into_iter().map(|pair| u64::from(block_on(pair).is_ok())).sum::<u64>();
            if let Ok(mut txn) = store.begin(PAIRS)
                && add_pair(&mut txn).is_ok()
            {
                told.pairs_attempted += 1;
                told.pairs += u64::from(block_on(store.commit(txn)).is_ok());
            }
            let twins = [(); 2].map(|()| store.submit_all(vec![(RIGHT, pair()), (LEFT, pair())]));
            told.twins_attempted += 2;
            told.twins +=
                twins.into_iter().map(|twin| u64::from(block_on(twin).is_ok())).sum::<u64>();
        }
        let fill = Run(|view: &mut dyn View| {
            for number in 0..DOOMED_ROWS {
                view.put(&number.to_be_bytes(), Bytes::new());
            }
            Ok::<(), Stop<()>>(())
        });
        told.filled = block_on(store.submit(DOOMED, fill)).is_ok();
        told.erase_attempted = true;
        told.erased = block_on(store.erase(DOOMED)).is_ok();
        while store.pressure().erasing > 0 && store.snapshot(META_RANGE).is_ok() {
            std::thread::yield_now();
        }
        // Whether closing succeeds changes nothing about what was told before.
        let _ = block_on(store.close());
        told
    }

    fn rows_of(store: &Memory, range: RangeId) -> Vec<Vec<u8>> {
        let (from, to) = row::content_bounds(range, Bound::Unbounded, Bound::Unbounded);
        let (from, to) = (from.as_ref().map(Bytes::as_ref), to.as_ref().map(Bytes::as_ref));
        let mut rows = Vec::new();
        let snapshot = store.snapshot().unwrap();
        snapshot
            .scan(from, to, Direction::Forward, &mut |key, _| {
                rows.push(key[row::PREFIX_BYTES..].to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
        rows
    }

    /// Opens what is left and compares it with what the callers were told.
    fn check_survivor(survivor: Memory, told: &Told) {
        let store = Engine::with_store(survivor.clone()).unwrap();
        let Ok(snapshot) = store.snapshot(PAIRS) else {
            assert!(!told.created, "{told:?}");
            assert_eq!(store.ranges(), [(META_RANGE, 0)], "ranges are created together");
            return;
        };
        let pairs = snapshot.lsn();
        assert!(told.pairs <= pairs && pairs <= told.pairs_attempted, "{pairs} {told:?}");
        let mut expected: Vec<Vec<u8>> = Vec::new();
        expected.extend((1..=pairs).map(|pair| format!("a{pair:04}").into_bytes()));
        expected.extend((1..=pairs).map(|pair| format!("b{pair:04}").into_bytes()));
        expected.extend((pairs > 0).then(|| b"count".to_vec()));
        assert_eq!(rows_of(&survivor, PAIRS), expected);
        let twins = [LEFT, RIGHT].map(|range| store.snapshot(range).unwrap().lsn());
        assert_eq!(twins[0], twins[1], "both or none: {told:?}");
        assert!(told.twins <= twins[0] && twins[0] <= told.twins_attempted, "{twins:?} {told:?}");
        assert_eq!(rows_of(&survivor, LEFT), rows_of(&survivor, RIGHT));
        match store.snapshot(DOOMED) {
            Ok(snapshot) => {
                assert!(!told.erased, "{told:?}");
                assert!(snapshot.lsn() == 1 || !told.filled, "{told:?}");
                let expected = if snapshot.lsn() == 1 { DOOMED_ROWS } else { 0 };
                assert_eq!(rows_of(&survivor, DOOMED).len(), expected);
            }
            Err(Error::NoRange(_)) => {
                assert!(told.erase_attempted, "{told:?}");
                while store.pressure().erasing > 0 {
                    std::thread::yield_now();
                }
                assert_eq!(rows_of(&survivor, DOOMED).len(), 0, "erasing goes on after a restart");
                let again = block_on(store.create_ranges(&[DOOMED]));
                assert!(matches!(again, Err(Error::RangeExists(DOOMED))));
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn every_call_may_fail() {
        let mut met = 0;
        for fail_at in 1.. {
            let memory = Memory::new();
            let faulty = Faulty::new(memory.clone(), fail_at);
            let calls = faulty.calls();
            let told = match Engine::with_store(faulty) {
                Ok(store) => work(&store),
                Err(_) => Told::default(),
            };
            check_survivor(memory, &told);
            if calls() < fail_at {
                break;
            }
            met += 1;
        }
        assert!(met > 30, "the work meets too few faults: {met}");
    }

    #[test]
    fn every_call_may_be_the_last() {
        for torn in [Torn::Kept, Torn::Lost] {
            let mut met = 0;
            for crash_at in 1.. {
                let crashing = Crashing::new(Memory::new(), crash_at, torn);
                let (survivor, calls) = (crashing.survivor(), crashing.calls());
                let told = match Engine::with_store(crashing) {
                    Ok(store) => work(&store),
                    Err(_) => Told::default(),
                };
                check_survivor(survivor, &told);
                if calls() < crash_at {
                    break;
                }
                met += 1;
            }
            assert!(met > 30, "the work meets too few crashes: {met}");
        }
    }

    #[test]
    fn a_failed_write_closes_the_engine() {
        // Opening takes four calls: a snapshot, a scan of it, a write of the meta range, a snapshot.
        for (fail_at, survives) in [(5, false), (6, true)] {
            let memory = Memory::new();
            let store = Engine::with_store(Faulty::new(memory.clone(), fail_at)).unwrap();
            let waiting = store.wait(META_RANGE, 0);
            let put = || {
                Run(|view: &mut dyn View| {
                    view.put(b"a", Bytes::new());
                    Ok::<(), Stop<()>>(())
                })
            };
            let failed = block_on(store.submit(META_RANGE, put()));
            assert!(matches!(failed, Err(SubmitError::Storage(Error::Io(_)))), "{failed:?}");
            let refused = block_on(store.submit(META_RANGE, put()));
            assert!(matches!(refused, Err(SubmitError::Storage(Error::Closed))), "{refused:?}");
            assert!(matches!(store.snapshot(META_RANGE), Err(Error::Closed)));
            assert!(matches!(block_on(waiting), Err(Error::Closed)));
            assert!(block_on(store.close()).is_err());
            drop(store);
            let store = Engine::with_store(memory).unwrap();
            let found = store.snapshot(META_RANGE).unwrap().get(b"a").unwrap();
            assert_eq!(found.is_some(), survives, "a write that failed changed nothing");
        }
    }

    #[test]
    fn a_failed_read_hurts_only_its_reader() {
        let store = Engine::with_store(Faulty::new(Memory::new(), 5)).unwrap();
        let pair = || Run(|view: &mut dyn View| Ok::<(), Stop<()>>(add_pair(view)?));
        let failed = block_on(store.submit(META_RANGE, pair()));
        assert!(matches!(failed, Err(SubmitError::Storage(Error::Io(_)))), "{failed:?}");
        assert_eq!(block_on(store.submit(META_RANGE, pair())).unwrap().lsn, 1);
    }
}
