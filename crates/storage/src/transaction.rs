//! Transactions that take their time: they pin a version, remember what they read, and commit only
//! if none of it has changed.
//!
//! Scripts need this, because they run too long for the thread that commits. Reads are remembered as
//! keys and intervals; a scan that its visitor ended early counts only up to where it came.

use std::{
    cell::RefCell,
    ops::{Bound, RangeBounds},
};

use bytes::Bytes;

use crate::{
    Direction, Error, KEY_BYTES_MAX, Lsn, RangeId, Snapshot, VALUE_BYTES_MAX, View, Visit,
    overlay::{Pending, scan_merged},
};

/// A transaction on one range. It is a [`View`], so the code of operations works on it unchanged.
#[derive(Debug)]
pub struct Transaction<S> {
    range: RangeId,
    snapshot: S,
    reads: RefCell<Reads>,
    writes: Pending,
}

/// What a transaction has read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    keys: Vec<Bytes>,
    intervals: Vec<(Bound<Bytes>, Bound<Bytes>)>,
    /// Somebody asked for the LSN, which any commit changes.
    whole_range: bool,
}

impl Reads {
    /// Whether a commit that changed these keys, in ascending order, changed something read.
    pub(crate) fn touch(&self, changed: &[Bytes]) -> bool {
        self.whole_range
            || self.keys.iter().any(|key| changed.binary_search(key).is_ok())
            || self.intervals.iter().any(|interval| {
                changed.iter().any(|key| RangeBounds::<Bytes>::contains(interval, key))
            })
    }

    /// Whether nothing was read, so that no commit can be in the way.
    pub(crate) fn is_empty(&self) -> bool {
        !self.whole_range && self.keys.is_empty() && self.intervals.is_empty()
    }
}

impl<S: Snapshot> Transaction<S> {
    pub(crate) fn new(range: RangeId, snapshot: S) -> Self {
        Self { range, snapshot, reads: RefCell::default(), writes: Pending::new() }
    }

    /// The range that it works on.
    pub fn range(&self) -> RangeId {
        self.range
    }

    /// The version that it reads, without its own writes. Reads made here are not remembered.
    pub fn snapshot(&self) -> &S {
        &self.snapshot
    }

    /// Whether it has written anything.
    pub fn is_read_only(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn into_parts(self) -> (RangeId, Lsn, Reads, Pending) {
        (self.range, self.snapshot.lsn(), self.reads.into_inner(), self.writes)
    }
}

impl<S: Snapshot> View for Transaction<S> {
    fn lsn(&self) -> Lsn {
        self.reads.borrow_mut().whole_range = true;
        self.snapshot.lsn() + 1
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        // Its own writes cannot change under it.
        if let Some(value) = self.writes.get(key) {
            return Ok(value.clone());
        }
        self.reads.borrow_mut().keys.push(Bytes::copy_from_slice(key));
        self.snapshot.get(key)
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), Error> {
        let mut last = None;
        let result = scan_merged(
            &self.writes,
            from,
            to,
            direction,
            &mut |key, value| {
                let flow = visit(key, value);
                if flow.is_break() {
                    last = Some(Bytes::copy_from_slice(key));
                }
                flow
            },
            |visit| self.snapshot.scan(from, to, direction, visit),
        );
        let owned = |bound: Bound<&[u8]>| bound.map(Bytes::copy_from_slice);
        let interval = match (last, direction) {
            (None, _) => (owned(from), owned(to)),
            (Some(last), Direction::Forward) => (owned(from), Bound::Included(last)),
            (Some(last), Direction::Backward) => (Bound::Included(last), owned(to)),
        };
        self.reads.borrow_mut().intervals.push(interval);
        result
    }

    fn put(&mut self, key: &[u8], value: Bytes) {
        self.writes.insert(Bytes::copy_from_slice(key), Some(value));
    }

    fn delete(&mut self, key: &[u8]) {
        self.writes.insert(Bytes::copy_from_slice(key), None);
    }
}

/// Whether a row fits into a range.
pub(crate) fn fits(key_bytes: usize, value_bytes: usize) -> bool {
    key_bytes <= KEY_BYTES_MAX && value_bytes <= VALUE_BYTES_MAX
}
