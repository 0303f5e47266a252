//! Writes that lie over a version and are not yet part of it.
//!
//! The committer collects the writes of a whole group in one overlay, keyed by stored keys; a
//! transaction has one of its own, keyed by the keys of its range. Each operation works between two
//! savepoints: the overlay remembers what every put and delete
//! replaced, so that a refused operation can be taken back without copying anything for the others.

use std::{
    collections::{BTreeMap, btree_map},
    iter::Peekable,
    ops::{Bound, ControlFlow},
};

use bytes::{Bytes, BytesMut};

use crate::{Batch, Direction, Error, Visit, ordered::is_empty_interval};

/// A value, or `None` for a key that was deleted.
pub(crate) type Pending = BTreeMap<Bytes, Option<Bytes>>;

/// The pending writes of a group.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    pending: Pending,
    /// What the present operation replaced, oldest first; `None` means that nothing was pending.
    undo: Vec<(Bytes, Option<Option<Bytes>>)>,
    /// Bytes written by the present operation, and by those that were kept.
    operation_bytes: usize,
    kept_bytes: usize,
    keys: Keys,
}

/// Makes keys that lie one behind the other, many in one allocation. Keys that are written together
/// are also forgotten together, when the store has moved them from its memory to a table.
#[derive(Debug, Default)]
struct Keys {
    room: BytesMut,
}

/// How much room is made for keys at a time: that of a few documents with their index entries.
const KEYS_BYTES: usize = 16 * 1024;

impl Keys {
    fn make(&mut self, prefix: &[u8], key: &[u8]) -> Bytes {
        let length = prefix.len() + key.len();
        if self.room.capacity() < length {
            self.room = BytesMut::with_capacity(KEYS_BYTES.max(length));
        }
        self.room.extend_from_slice(prefix);
        self.room.extend_from_slice(key);
        self.room.split().freeze()
    }
}

impl Overlay {
    pub(crate) fn pending(&self) -> &Pending {
        &self.pending
    }

    /// All writes, whether kept or not.
    pub(crate) fn into_pending(self) -> Pending {
        self.pending
    }

    /// Sets the value of the key that consists of a prefix and the rest.
    pub(crate) fn set_copied(&mut self, prefix: &[u8], key: &[u8], value: Option<Bytes>) {
        let key = self.keys.make(prefix, key);
        self.set(key, value);
    }

    pub(crate) fn set(&mut self, key: Bytes, value: Option<Bytes>) {
        self.operation_bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
        let replaced = self.pending.insert(key.clone(), value);
        self.undo.push((key, replaced));
    }

    /// Bytes that the present operation has written so far.
    pub(crate) fn operation_bytes(&self) -> usize {
        self.operation_bytes
    }

    /// Bytes of all operations that were kept.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Ends the present operation and keeps what it wrote. Returns the keys, possibly repeated.
    pub(crate) fn keep(&mut self) -> Vec<Bytes> {
        self.kept_bytes += std::mem::take(&mut self.operation_bytes);
        self.undo.drain(..).map(|(key, _)| key).collect()
    }

    /// Ends the present operation and takes back what it wrote.
    pub(crate) fn take_back(&mut self) {
        self.operation_bytes = 0;
        while let Some((key, replaced)) = self.undo.pop() {
            match replaced {
                Some(value) => self.pending.insert(key, value),
                None => self.pending.remove(&key),
            };
        }
    }

    /// Empties the overlay into a batch.
    pub(crate) fn take_batch(&mut self) -> Batch {
        debug_assert!(self.undo.is_empty(), "an operation is still open");
        self.kept_bytes = 0;
        std::mem::take(&mut self.pending).into_iter().collect()
    }
}

/// Scans a version with pending writes on top: `base` is called once with a visitor for its rows.
pub(crate) fn scan_merged(
    pending: &Pending,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    direction: Direction,
    visit: Visit<'_>,
    base: impl FnOnce(Visit<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    if is_empty_interval(from, to) {
        return Ok(());
    }
    let mut above = Above { rows: pending.range::<[u8], _>((from, to)), direction }.peekable();
    let mut stopped = false;
    base(&mut |key, value| {
        let flow = visit_up_to(&mut above, key, direction, visit);
        let flow = match flow {
            Flow::Stop => ControlFlow::Break(()),
            Flow::Replaced => ControlFlow::Continue(()),
            Flow::Reached => visit(key, value),
        };
        stopped = flow.is_break();
        flow
    })?;
    if stopped {
        return Ok(());
    }
    for (key, value) in above {
        if let Some(value) = value
            && visit(key, value).is_break()
        {
            break;
        }
    }
    Ok(())
}

enum Flow {
    /// The visitor has seen enough.
    Stop,
    /// A pending write stands in for the row of the version.
    Replaced,
    /// The row of the version is next.
    Reached,
}

/// Visits the pending rows that come before `key` or replace it.
fn visit_up_to(
    above: &mut Peekable<Above<'_>>,
    key: &[u8],
    direction: Direction,
    visit: Visit<'_>,
) -> Flow {
    loop {
        let Some((next, value)) = above.next_if(|(next, _)| match direction {
            Direction::Forward => next.as_ref() <= key,
            Direction::Backward => next.as_ref() >= key,
        }) else {
            return Flow::Reached;
        };
        if let Some(value) = value
            && visit(next, value).is_break()
        {
            return Flow::Stop;
        }
        if next.as_ref() == key {
            return Flow::Replaced;
        }
    }
}

/// The pending rows of an interval in the direction of the scan.
struct Above<'a> {
    rows: btree_map::Range<'a, Bytes, Option<Bytes>>,
    direction: Direction,
}

impl<'a> Iterator for Above<'a> {
    type Item = (&'a Bytes, &'a Option<Bytes>);

    fn next(&mut self) -> Option<Self::Item> {
        match self.direction {
            Direction::Forward => self.rows.next(),
            Direction::Backward => self.rows.next_back(),
        }
    }
}
