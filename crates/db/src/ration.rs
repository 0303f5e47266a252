//! Reads that may only go so far.
//!
//! Most queries are over in less time than it takes to hand them to another thread; some take
//! seconds, and nobody can tell from a query which kind it is. So a query is first run where it
//! arrived, with a ration of what it may read and no time to ask for more. If that is not enough it
//! fails, whatever it would have come to, and is run again where it holds nobody up.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use storage::{Direction, Lsn, Snapshot, Visit};

/// How much may be done for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// What takes a moment. Whatever takes longer fails, and the error says nothing about the request:
    /// only success counts.
    Moment,
    /// Whatever it takes, up to the limits that every request has.
    #[default]
    Whole,
}

/// What may be read in a moment, by [`cost`]: about a hundred documents of 1 KiB, or some thousands of
/// index entries. A third of a millisecond, three times what handing the work over costs.
const MOMENT: u64 = 4_096;
/// What it costs to find a row.
const FIND: u64 = 8;
/// What it costs to go on to the next row, beside its bytes.
const NEXT: u64 = 1;
const BYTES_PER_UNIT: usize = 64;

fn cost(row: &[u8]) -> u64 {
    (row.len() / BYTES_PER_UNIT) as u64
}

/// What is left to read, for all that is read for one request.
#[derive(Clone, Debug)]
pub(crate) struct Ration(Option<Arc<AtomicU64>>);

impl Ration {
    pub(crate) fn of(effort: Effort) -> Self {
        Self(match effort {
            Effort::Moment => Some(Arc::new(AtomicU64::new(MOMENT))),
            Effort::Whole => None,
        })
    }

    /// Takes some of it; says whether there was so much.
    fn take(&self, units: u64) -> bool {
        let Some(left) = &self.0 else { return true };
        let taken =
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(units));
        taken.is_ok()
    }
}

/// A version of a range of which only so much is read.
#[derive(Clone, Debug)]
pub(crate) struct Rationed<P> {
    pub(crate) snapshot: P,
    pub(crate) ration: Ration,
}

/// Nobody sees it: see [`Effort::Moment`].
fn used_up() -> storage::Error {
    storage::Error::Busy
}

impl<P: Snapshot> Snapshot for Rationed<P> {
    fn lsn(&self) -> Lsn {
        self.snapshot.lsn()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, storage::Error> {
        let row = self.snapshot.get(key)?;
        let units = FIND + row.as_deref().map_or(0, cost);
        if self.ration.take(units) { Ok(row) } else { Err(used_up()) }
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), storage::Error> {
        if self.ration.0.is_none() {
            return self.snapshot.scan(from, to, direction, visit);
        }
        let mut is_used_up = !self.ration.take(FIND);
        self.snapshot.scan(from, to, direction, &mut |key, row| {
            is_used_up = is_used_up || !self.ration.take(NEXT + cost(row));
            if is_used_up { ControlFlow::Break(()) } else { visit(key, row) }
        })?;
        if is_used_up { Err(used_up()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of 640 bytes, without end.
    #[derive(Clone)]
    struct Endless;

    impl Snapshot for Endless {
        fn lsn(&self) -> Lsn {
            1
        }

        fn get(&self, _: &[u8]) -> Result<Option<Bytes>, storage::Error> {
            Ok(Some(Bytes::from_static(&[0; 640])))
        }

        fn scan(
            &self,
            _: Bound<&[u8]>,
            _: Bound<&[u8]>,
            _: Direction,
            visit: Visit<'_>,
        ) -> Result<(), storage::Error> {
            while visit(b"key", &Bytes::from_static(&[0; 640])).is_continue() {}
            Ok(())
        }
    }

    fn rationed(effort: Effort) -> Rationed<Endless> {
        Rationed { snapshot: Endless, ration: Ration::of(effort) }
    }

    /// Scans until so many rows were seen; says how many that was and whether it failed.
    fn scan(snapshot: &Rationed<Endless>, rows_max: u64) -> (u64, bool) {
        let mut rows = 0;
        let all = (Bound::Unbounded, Bound::Unbounded);
        let scanned = snapshot.scan(all.0, all.1, Direction::Forward, &mut |_, _| {
            rows += 1;
            if rows < rows_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        (rows, scanned.is_err())
    }

    #[test]
    fn a_moment_is_enough_for_some_rows_and_no_more() {
        let snapshot = rationed(Effort::Moment);
        assert_eq!(scan(&snapshot, 100), (100, false));
        assert!(snapshot.get(b"key").is_ok());
        // What is left is shared by everything that is read for the request.
        let (rows, is_over) = scan(&snapshot.clone(), 1_000);
        assert!(is_over && rows < 300, "{rows}");
        assert!(snapshot.get(b"key").is_err());
    }

    #[test]
    fn without_a_ration_everything_is_read() {
        let snapshot = rationed(Effort::Whole);
        assert_eq!(scan(&snapshot, 100_000), (100_000, false));
        assert!(snapshot.get(b"key").is_ok());
    }
}
