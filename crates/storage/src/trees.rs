//! The two trees of the embedded engine, and which row lies in which.
//!
//! Most rows of a range are entries of indexes ([`WALKED`](crate::WALKED)): small, many to a document, walked in order
//! and never looked up one by one. Documents and what belongs to them are large, few, and looked up
//! all the time. In one tree every lookup of a document would pass the levels and the filters that
//! the entries fill. So each kind has a tree of its own, made for what is done with it; a batch still
//! changes both or none, and a snapshot shows one moment of both.

use std::{cmp::Ordering, ops::Bound};

use fjall::{
    AbstractTree, Database, Iter, Keyspace, KeyspaceCreateOptions, Readable, Snapshot,
    config::{FilterPolicy, PinningPolicy},
};

use crate::{
    Error,
    compactor::never,
    embedded::{Options, error},
    ordered::{Direction, Visit},
    row,
};

/// The trees of a store.
#[derive(Clone)]
pub(crate) struct Trees {
    /// Everything that is looked up.
    rows: Keyspace,
    /// The keys that are only walked.
    walked: Keyspace,
}

impl Trees {
    /// Opens the trees, making them if they are not there.
    pub(crate) fn open(database: &Database, options: Options) -> Result<Self, Error> {
        // What leads to a block stays in memory, whatever level it is on: as a block of the cache it
        // would be a large one, and reading it again costs more than the block it leads to. From
        // some gigabytes on the store divides it, and then keeps only the top of it.
        let create = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(options.memtable_bytes)
                .index_block_pinning_policy(PinningPolicy::all(true))
                .filter_block_pinning_policy(PinningPolicy::all(true))
                .compaction_strategy(never())
                .manual_journal_persist(true)
        };
        let walked = || create().filter_policy(FilterPolicy::disabled());
        Ok(Self {
            rows: database.keyspace("rows", create).map_err(error)?,
            walked: database.keyspace("walked", walked).map_err(error)?,
        })
    }

    /// Both trees.
    pub(crate) fn all(&self) -> [&Keyspace; 2] {
        [&self.rows, &self.walked]
    }

    /// The tree that a row lies in.
    pub(crate) fn of(&self, key: &[u8]) -> &Keyspace {
        if row::is_walked(key) { &self.walked } else { &self.rows }
    }

    /// Memory tables that wait to be written, in the tree that has more of them.
    pub(crate) fn sealed_memtables(&self) -> usize {
        self.most(|tree| tree.sealed_memtable_count())
    }

    /// Runs in the newest level, in the tree that has more of them.
    pub(crate) fn level0_runs(&self) -> usize {
        self.most(|tree| tree.l0_run_count())
    }

    fn most(&self, count: impl Fn(&fjall::AnyTree) -> usize) -> usize {
        self.all().into_iter().map(|keyspace| count(&keyspace.tree)).max().unwrap_or(0)
    }

    /// Visits the rows between the bounds, of which the first is not above the second.
    pub(crate) fn scan(
        &self,
        snapshot: &Snapshot,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), Error> {
        let range = |tree| snapshot.range::<&[u8], _>(tree, (from, to));
        match row::are_walked(from, to) {
            Some(true) => Rows::new(range(&self.walked), direction).visit(visit),
            Some(false) => Rows::new(range(&self.rows), direction).visit(visit),
            None => {
                let (rows, walked) = (range(&self.rows), range(&self.walked));
                merge(Rows::new(rows, direction), Rows::new(walked, direction), visit)
            }
        }
    }
}

/// A row as the store gives it.
type Row = (fjall::UserKey, fjall::UserValue);

/// The rows of one tree, in one direction.
struct Rows {
    rows: Iter,
    direction: Direction,
}

impl Rows {
    fn new(rows: Iter, direction: Direction) -> Self {
        Self { rows, direction }
    }

    fn next(&mut self) -> Result<Option<Row>, Error> {
        let row = match self.direction {
            Direction::Forward => self.rows.next(),
            Direction::Backward => self.rows.next_back(),
        };
        row.map(|row| row.into_inner().map_err(error)).transpose()
    }

    fn visit(mut self, visit: Visit<'_>) -> Result<(), Error> {
        while let Some((key, value)) = self.next()? {
            if visit(&key, &value.into()).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Visits the rows of both trees, which share no key.
fn merge(mut left: Rows, mut right: Rows, visit: Visit<'_>) -> Result<(), Error> {
    let nearer = match left.direction {
        Direction::Forward => Ordering::Less,
        Direction::Backward => Ordering::Greater,
    };
    let (mut of_left, mut of_right) = (left.next()?, right.next()?);
    loop {
        let takes_left = match (&of_left, &of_right) {
            (None, None) => return Ok(()),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((left, _)), Some((right, _))) => left.cmp(right) == nearer,
        };
        let taken = if takes_left {
            std::mem::replace(&mut of_left, left.next()?)
        } else {
            std::mem::replace(&mut of_right, right.next()?)
        };
        if let Some((key, value)) = taken
            && visit(&key, &value.into()).is_break()
        {
            return Ok(());
        }
    }
}
