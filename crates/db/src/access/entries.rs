//! Walks over the entries of an index in one slice.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};

use bytes::Bytes;
use storage::{Direction, Snapshot};

use crate::Result;
use crate::index::entry::{Component, Listed};
use crate::scan::Slice;

/// The entries between two bounds, in one direction, read in chunks that grow: most walks end
/// early.
pub(super) struct Entries<'r, P> {
    slice: &'r Slice<P>,
    /// How the values of an entry are laid out; empty for the entries of shapes.
    layout: Vec<Component>,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    direction: Direction,
    chunk: VecDeque<Listed>,
    chunk_size: usize,
    is_drained: bool,
}

/// Starting again costs more than reading so many.
const CHUNK_MIN: usize = 64;
const CHUNK_MAX: usize = 1_024;

impl<'r, P: Snapshot> Entries<'r, P> {
    pub(super) fn new(
        slice: &'r Slice<P>,
        layout: &[Component],
        from: Bound<Vec<u8>>,
        to: Bound<Vec<u8>>,
        direction: Direction,
    ) -> Self {
        Entries {
            slice,
            layout: layout.to_vec(),
            from,
            to,
            direction,
            chunk: VecDeque::new(),
            chunk_size: CHUNK_MIN,
            is_drained: false,
        }
    }

    /// Entries that were read before, and no more.
    pub(super) fn known(slice: &'r Slice<P>, entries: &[Listed]) -> Self {
        Entries {
            chunk: entries.iter().cloned().collect(),
            is_drained: true,
            ..Self::new(slice, &[], Bound::Unbounded, Bound::Unbounded, Direction::Forward)
        }
    }

    /// The next key, which stays the next.
    pub(super) fn peek(&mut self) -> Result<Option<&[u8]>> {
        if self.chunk.is_empty() {
            self.fill()?;
        }
        Ok(self.chunk.front().map(|listed| &listed.key[..]))
    }

    /// The next entry.
    pub(super) fn next(&mut self) -> Result<Option<Listed>> {
        if self.chunk.is_empty() {
            self.fill()?;
        }
        Ok(self.chunk.pop_front())
    }

    /// Goes on at a key that lies further ahead.
    pub(super) fn jump(&mut self, key: Vec<u8>) {
        while self.chunk.front().is_some_and(|front| front.key < key) {
            self.chunk.pop_front();
        }
        if self.chunk.is_empty() && !self.is_drained {
            self.from = Bound::Included(key);
            self.chunk_size = CHUNK_MIN;
        }
    }

    fn fill(&mut self) -> Result<()> {
        if self.is_drained {
            return Ok(());
        }
        let (chunk, size) = (&mut self.chunk, self.chunk_size);
        let (from, to) = (as_slice(&self.from), as_slice(&self.to));
        let mut visit = |key: &[u8], row: &Bytes| {
            chunk.push_back(Listed::new(key, row));
            if chunk.len() >= size { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        if self.layout.is_empty() {
            self.slice.snapshot.scan(from, to, self.direction, &mut visit)?;
        } else {
            self.slice.scan_entries(&self.layout, from, to, self.direction, &mut visit)?;
        }
        self.is_drained = self.chunk.len() < self.chunk_size;
        self.chunk_size = (self.chunk_size * 2).min(CHUNK_MAX);
        if let Some(last) = self.chunk.back() {
            match self.direction {
                Direction::Forward => self.from = Bound::Excluded(last.key.clone()),
                Direction::Backward => self.to = Bound::Excluded(last.key.clone()),
            }
        }
        Ok(())
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}
