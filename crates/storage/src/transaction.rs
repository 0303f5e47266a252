//! Transactions that take their time: they pin a version, remember what they read, and commit only
//! if none of it has changed.
//!
//! Scripts need this, because they run too long for the thread that commits. Reads are remembered as
//! keys and intervals; a scan that its visitor ended early counts only up to where it came.

use std::{
    ops::Bound,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use crate::{
    Direction, Error, KEY_BYTES_MAX, Lsn, RangeId, Snapshot, VALUE_BYTES_MAX, View, Visit,
    overlay::{Overlay, Pending, scan_merged},
};

/// A transaction on one range. It is a [`View`], so the code of operations works on it unchanged.
#[derive(Debug)]
pub struct Transaction<S> {
    range: RangeId,
    snapshot: S,
    reads: Mutex<Reads>,
    writes: Overlay,
}

/// What a transaction has read.
///
/// The check runs on the thread that commits for everybody, over all keys that were changed since, so
/// it has to be quick: every read is an interval from its first key up to, not including, its end, and
/// before the check they are sorted and joined.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    intervals: Vec<Interval>,
    /// With which bytes the keys in the intervals begin, once they are joined. Most changed keys are
    /// of kinds that were not read at all, and are told apart by this.
    firsts: Firsts,
    /// Somebody asked for the LSN, which any commit changes.
    whole_range: bool,
}

/// A set of bytes.
#[derive(Debug, Default)]
struct Firsts([u64; 4]);

impl Firsts {
    fn add(&mut self, first: u8) {
        self.0[usize::from(first / 64)] |= 1 << (first % 64);
    }

    fn contains(&self, first: u8) -> bool {
        self.0[usize::from(first / 64)] & (1 << (first % 64)) != 0
    }
}

/// Keys from `start` up to, not including, `end`; without an end, all that follow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Interval {
    start: Bytes,
    end: Option<Bytes>,
}

impl Reads {
    fn add_key(&mut self, key: &[u8]) {
        let end = successor(key);
        self.intervals.push(Interval { start: end.slice(..key.len()), end: Some(end) });
    }

    fn add_interval(&mut self, from: Bound<&[u8]>, to: Bound<&[u8]>) {
        let start = match from {
            Bound::Included(key) => Bytes::copy_from_slice(key),
            Bound::Excluded(key) => successor(key),
            Bound::Unbounded => Bytes::new(),
        };
        let end = match to {
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(Bytes::copy_from_slice(key)),
            Bound::Unbounded => None,
        };
        if end.as_ref().is_none_or(|end| start < *end) {
            self.intervals.push(Interval { start, end });
        }
    }

    /// Sorts the intervals and joins those that meet.
    fn join(&mut self) {
        self.intervals.sort_unstable();
        self.intervals.dedup_by(|next, joined| {
            let meets = joined.end.as_ref().is_none_or(|end| next.start <= *end);
            if meets && (next.end.is_none() || next.end > joined.end) && joined.end.is_some() {
                joined.end = next.end.take();
            }
            meets
        });
        for Interval { start, end } in &self.intervals {
            let first = start.first().copied().unwrap_or(u8::MIN);
            let last = end.as_ref().map_or(u8::MAX, |end| end.first().copied().unwrap_or(u8::MIN));
            (first..=last).for_each(|byte| self.firsts.add(byte));
        }
    }

    /// Whether a commit that changed these keys changed something that was read.
    pub(crate) fn touch(&self, changed: &[Bytes]) -> bool {
        self.whole_range || changed.iter().any(|key| self.contain(key))
    }

    fn contain(&self, key: &Bytes) -> bool {
        if key.first().is_some_and(|first| !self.firsts.contains(*first)) {
            return false;
        }
        let after = self.intervals.partition_point(|interval| interval.start <= *key);
        let Some(interval) = after.checked_sub(1).and_then(|last| self.intervals.get(last)) else {
            return false;
        };
        interval.end.as_ref().is_none_or(|end| key < end)
    }

    /// Whether nothing was read, so that no commit can be in the way.
    pub(crate) fn is_empty(&self) -> bool {
        !self.whole_range && self.intervals.is_empty()
    }
}

/// The key that follows immediately.
fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    Bytes::from(next)
}

impl<S: Snapshot> Transaction<S> {
    pub(crate) fn new(range: RangeId, snapshot: S) -> Self {
        Self { range, snapshot, reads: Mutex::default(), writes: Overlay::default() }
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
        self.writes.pending().is_empty()
    }

    /// The value of a key, with its own writes. The read is not remembered.
    pub fn peek(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        match self.writes.pending().get(key) {
            Some(value) => Ok(value.clone()),
            None => self.snapshot.get(key),
        }
    }

    /// Visits the rows between the bounds, with its own writes. The read is not remembered.
    pub fn peek_scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), Error> {
        scan_merged(self.writes.pending(), from, to, direction, visit, |visit| {
            self.snapshot.scan(from, to, direction, visit)
        })
    }

    /// Remembers the rows between the bounds as read: what was made of reads that are not remembered
    /// depends on these rows alone.
    pub fn remember(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) {
        self.reads().add_interval(from, to);
    }

    fn reads(&self) -> MutexGuard<'_, Reads> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a step: what has been written stays, whatever comes later.
    pub fn keep(&mut self) {
        self.writes.keep();
    }

    /// Takes back what was written since the last step ended. What was read stays remembered.
    pub fn take_back(&mut self) {
        self.writes.take_back();
    }

    /// Roughly the bytes that it has written.
    pub fn written_bytes(&self) -> usize {
        self.writes.kept_bytes() + self.writes.operation_bytes()
    }

    /// Takes back everything that was written. What was read stays remembered, so that an operation
    /// can be committed that depends on it.
    pub fn forget_writes(&mut self) {
        self.writes = Overlay::default();
    }

    pub(crate) fn into_parts(self) -> (RangeId, Lsn, Reads, Pending) {
        let mut reads = self.reads.into_inner().unwrap_or_else(PoisonError::into_inner);
        reads.join();
        (self.range, self.snapshot.lsn(), reads, self.writes.into_pending())
    }
}

impl<S: Snapshot> View for Transaction<S> {
    fn lsn(&self) -> Lsn {
        self.reads().whole_range = true;
        self.snapshot.lsn() + 1
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        // Its own writes cannot change under it.
        if let Some(value) = self.writes.pending().get(key) {
            return Ok(value.clone());
        }
        self.reads().add_key(key);
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
        let result = self.peek_scan(from, to, direction, &mut |key, value| {
            let flow = visit(key, value);
            if flow.is_break() {
                last = Some(Bytes::copy_from_slice(key));
            }
            flow
        });
        let (from, to) = match (&last, direction) {
            (None, _) => (from, to),
            (Some(last), Direction::Forward) => (from, Bound::Included(last.as_ref())),
            (Some(last), Direction::Backward) => (Bound::Included(last.as_ref()), to),
        };
        self.reads().add_interval(from, to);
        result
    }

    fn put(&mut self, key: &[u8], value: Bytes) {
        self.writes.set_copied(b"", key, Some(value));
    }

    fn delete(&mut self, key: &[u8]) {
        self.writes.set_copied(b"", key, None);
    }
}

/// Whether a row fits into a range.
pub(crate) fn fits(key_bytes: usize, value_bytes: usize) -> bool {
    key_bytes <= KEY_BYTES_MAX && value_bytes <= VALUE_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ops::RangeBounds;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0..3u8, 0..4)
    }

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        prop_oneof![
            Just(Bound::Unbounded),
            key().prop_map(Bound::Included),
            key().prop_map(Bound::Excluded),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn joined_reads_contain_what_each_did(
            keys in prop::collection::vec(key(), 0..4),
            intervals in prop::collection::vec((bound(), bound()), 0..4),
            changed in prop::collection::vec(key(), 1..20),
        ) {
            let mut reads = Reads::default();
            for key in &keys {
                reads.add_key(key);
            }
            for (from, to) in &intervals {
                reads.add_interval(
                    from.as_ref().map(Vec::as_slice),
                    to.as_ref().map(Vec::as_slice),
                );
            }
            reads.join();
            prop_assert!(reads.intervals.windows(2).all(|pair| pair[0].end < Some(pair[1].start.clone())));
            for key in changed {
                let expected = keys.contains(&key)
                    || intervals.iter().any(|interval| RangeBounds::contains(interval, &key));
                prop_assert_eq!(reads.touch(&[Bytes::from(key.clone())]), expected, "{:?}", key);
            }
        }
    }
}
