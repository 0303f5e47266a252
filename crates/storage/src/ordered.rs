//! The inner seam: a plain ordered byte store with snapshots and atomic, durable batches.
//!
//! Engines know nothing of ranges, versions or operations; [`Engine`](crate::Engine) builds those on
//! top. An engine promises three things:
//!
//! - O1: when `write` returns `Ok`, the whole batch survives a crash; when it does not return, or
//!   returns an error, the batch is found wholly or not at all after reopening.
//! - O2: a snapshot shows every batch written before it was taken, wholly, and never changes.
//! - O3: batches come from one writer at a time; reads may come from any thread.

use std::ops::{Bound, ControlFlow};

use bytes::Bytes;

use crate::Error;

/// The order in which a scan visits keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the lowest key to the highest.
    Forward,
    /// From the highest key to the lowest.
    Backward,
}

/// Rows of one atomic write, in ascending order of distinct keys: a value, or `None` to delete.
pub type Batch = Vec<(Bytes, Option<Bytes>)>;

/// What a scan calls for each row; breaking ends the scan.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &Bytes) -> ControlFlow<()>;

/// A store of ordered bytes.
pub trait OrderedStore: Send + Sync + 'static {
    /// A version of the store that does not change.
    type Snapshot: OrderedSnapshot;

    /// The newest version. What it shows is durable (see O1 and O2).
    fn snapshot(&self) -> Result<Self::Snapshot, Error>;

    /// Applies the batch atomically and returns when it is durable.
    fn write(&self, batch: Batch) -> Result<(), Error>;

    /// How much unfinished work the store carries.
    fn load(&self) -> Load {
        Load::default()
    }

    /// Prepares for an orderly stop, so that opening again is fast. Nothing is written afterwards.
    fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// One version of an [`OrderedStore`].
pub trait OrderedSnapshot: Send + Sync + 'static {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error>;

    /// Visits the rows between the bounds. An interval that contains no key, also one whose bounds
    /// are the wrong way round, visits nothing. The visitor may read from the same snapshot.
    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), Error>;
}

/// Unfinished background work of a store, as far as it tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Memory tables that wait to be written to disk.
    pub outstanding_flushes: usize,
    /// Journal files that are still needed.
    pub journals: usize,
    /// Tables of the newest level, which every read has to look into.
    pub level0_tables: usize,
    /// Bytes held in memory tables.
    pub write_buffer_bytes: u64,
    /// Whether the store would soon stop its writers to catch up.
    pub is_overloaded: bool,
}

/// Whether no key can lie between the bounds. The standard map panics on some of these.
pub(crate) fn is_empty_interval(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, Bound::Excluded(to)) => to.is_empty(),
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
        | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_intervals_are_recognised() {
        use Bound::{Excluded, Included, Unbounded};
        let check = |from: Bound<&str>, to: Bound<&str>, expected: bool| {
            let (from, to) = (from.map(str::as_bytes), to.map(str::as_bytes));
            assert_eq!(is_empty_interval(from, to), expected, "{from:?} {to:?}");
        };
        check(Unbounded, Unbounded, false);
        check(Unbounded, Excluded(""), true);
        check(Unbounded, Included(""), false);
        check(Included("a"), Included("a"), false);
        check(Included("a"), Excluded("a"), true);
        check(Excluded("a"), Included("a"), true);
        check(Excluded("a"), Excluded("a"), true);
        check(Included("b"), Included("a"), true);
        check(Included("b"), Unbounded, false);
        check(Excluded("a"), Excluded("b"), false);
    }
}
