//! Gives large partitions entries of their own, in the background.
//!
//! The write that makes a partition large says so in the partition's counters and leaves a row with a
//! cursor. From here the cursor is moved over a few documents with every commit, as when documents are
//! brought to another definition; when it comes to the end, the row goes and the entries may be used. All that is
//! known about the progress is in the range, so it goes on where it was after a crash.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use storage::{Direction, Operation, RangeStore, Snapshot, Stop, SubmitError, View, Visit};
use value::PartitionKey;

use super::Pace;
use super::own;
use super::rows::Rows;
use super::state::InForce;
use super::terms::Terms;
use super::update::{At, list};
use crate::container::{Container, Range};
use crate::database::Db;
use crate::key::{self, Kind, PartitionPrefix};
use crate::row::{Item, ItemHeader, Own, RangeHeader, corrupt};
use crate::sweep::{rows_between, settled};
use crate::transaction::Transaction;
use crate::{Error, Result};

/// How many documents one commit lists at most, and how large they may be together.
const CHUNK: usize = 64;
const CHUNK_BYTES: usize = 256 * 1024;

impl<S: RangeStore> Db<S> {
    /// Does a part of the work that grown partitions have left. Says whether there is more.
    pub async fn index_apart(&self, pace: Pace) -> Result<bool> {
        let mut left = pace.commits;
        let containers: Vec<_> = self.catalog.load().containers().cloned().collect();
        for container in &containers {
            match self.index_apart_in(container, pace.documents, &mut left).await {
                // The container was deleted meanwhile, or its ranges cut anew.
                Err(error) if error.kind.status() == 404 => {}
                other => other?,
            }
            if left == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn index_apart_in(
        &self,
        container: &Arc<Container>,
        documents: usize,
        left: &mut usize,
    ) -> Result<()> {
        for range in &container.ranges {
            while *left > 0 {
                let snapshot = self.store.snapshot(range.storage)?;
                if range.apart.is_done_at(snapshot.lsn()) {
                    break;
                }
                let (from, to) = key::all_of(Kind::OwnState);
                let Some((row, _)) = rows_between(&snapshot, &from, &to, 1)?.pop() else {
                    range.apart.done_at(snapshot.lsn());
                    break;
                };
                let partition =
                    PartitionPrefix::of(&row[1..]).ok_or_else(|| corrupt("partition"))?.0;
                let container = &self.as_defined_now(container)?;
                let count = documents.clamp(1, CHUNK);
                // Together documents may be too much for one commit, but one by one they are not.
                if !self.list_some(container, range, &partition, count).await? {
                    self.list_some(container, range, &partition, 1).await?;
                }
                *left -= 1;
            }
        }
        Ok(())
    }

    /// One commit that moves the cursor of a partition over some documents, unless they are too large.
    async fn list_some(
        &self,
        container: &Arc<Container>,
        range: &Range,
        partition: &PartitionPrefix,
        count_max: usize,
    ) -> Result<bool> {
        let snapshot = self.store.snapshot(range.storage)?;
        let now_s = self.clock.now_s();
        let advance = Advance::prepare(container, &snapshot, partition, count_max, now_s)?;
        let Some(advance) = advance else { return Ok(true) };
        match self.submit_to_range(range, advance).await {
            Err(SubmitError::Storage(storage::Error::TooLarge)) if count_max > 1 => Ok(false),
            other => settled(other).map(|()| true),
        }
    }

    /// Begins to give a partition entries of its own, however large it is. They are made by
    /// [`Db::index_apart`].
    pub async fn set_apart(&self, container: &Arc<Container>, key: &PartitionKey) -> Result<()> {
        let epk = container.epk(key);
        let partition = PartitionPrefix::new(&epk, key);
        let begin = Begin { container: container.clone(), partition, now_s: self.clock.now_s() };
        let submitted = self.submit_to_range(container.range_of(&epk), begin).await;
        settled(submitted)
    }
}

/// Says that a partition is to have entries of its own.
struct Begin {
    container: Arc<Container>,
    partition: PartitionPrefix,
    now_s: u64,
}

impl Operation for Begin {
    type Output = ();
    type Refusal = Error;

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Error>> {
        self.begin(view).map_err(Stop::Refused)
    }
}

impl Begin {
    fn begin(&self, view: &mut dyn View) -> Result<()> {
        let mut txn = Transaction::open(view, &self.container, self.now_s)?;
        let counters = *txn.counters(&self.partition)?;
        if counters.items > 0 && counters.own == Own::None {
            txn.set_apart(&self.partition)?;
            txn.finish();
        }
        Ok(())
    }
}

/// Moves the cursor over some documents.
struct Advance {
    container: Arc<Container>,
    partition: PartitionPrefix,
    /// Where the cursor must stand.
    cursor: Bytes,
    /// The last document of this step; nothing if they are the last of the partition.
    until: Option<Vec<u8>>,
    /// What was worked out beforehand, by place.
    ready: BTreeMap<Vec<u8>, Ready>,
    now_s: u64,
}

/// The terms of a version of a document.
struct Ready {
    lsn: u64,
    definition: u32,
    terms: [Terms; 2],
}

impl Ready {
    fn new(in_force: &InForce, place: &[u8], item: &Item) -> Result<Ready> {
        let definition = in_force.at(place);
        let (lsn, number) = (item.header.lsn, definition.number);
        Ok(Ready { lsn, definition: number, terms: definition.terms_of(item)? })
    }
}

impl Advance {
    /// Works out the next step; `None` when there is nothing to do any more.
    fn prepare<P: Snapshot>(
        container: &Arc<Container>,
        snapshot: &P,
        partition: &PartitionPrefix,
        count_max: usize,
        now_s: u64,
    ) -> Result<Option<Advance>> {
        let Some(cursor) = snapshot.get(&own::state_row(partition))? else { return Ok(None) };
        let header = snapshot.get(&key::header())?.ok_or_else(|| corrupt("range header"))?;
        let header = RangeHeader::decode(&header)?;
        let in_force = InForce::load(&container.index, &header, |key| snapshot.get(key))?;
        let in_force = in_force.ok_or_else(|| corrupt("definition of the index is missing"))?;
        let rows = rows_behind(partition, &cursor, None, count_max, |from, to, visit| {
            snapshot.scan(from, to, Direction::Forward, visit)
        })?;
        let mut ready = BTreeMap::new();
        for (place, row) in &rows.rows {
            ready.insert(place.clone(), Ready::new(&in_force, place, &Item::decode(row)?)?);
        }
        let last = rows.rows.last().map(|(place, _)| place.clone());
        let until = last.filter(|_| !rows.is_end);
        let (container, partition) = (container.clone(), partition.clone());
        Ok(Some(Advance { container, partition, cursor, until, ready, now_s }))
    }

    fn advance(&self, view: &mut dyn View) -> Result<()> {
        let mut txn = Transaction::open(view, &self.container, self.now_s)?;
        if txn.counters(&self.partition)?.own != Own::Building
            || txn.own_cursor(&self.partition)? != self.cursor
        {
            return Ok(());
        }
        let until = self.until.as_deref();
        let count_max = self.ready.len() + CHUNK;
        let view = &*txn.view;
        let rows =
            rows_behind(&self.partition, &self.cursor, until, count_max, |from, to, visit| {
                view.scan(from, to, Direction::Forward, visit)
            })?;
        for (place, row) in &rows.rows {
            let lsn = ItemHeader::decode(row)?.lsn;
            let definition = txn.in_force.at(place).number;
            let made;
            let ready = match self.ready.get(place) {
                Some(ready) if ready.lsn == lsn && ready.definition == definition => ready,
                // Written, or indexed by another definition, since it was looked at.
                _ => {
                    made = Ready::new(&txn.in_force, place, &Item::decode(row)?)?;
                    &made
                }
            };
            let at = At { place, terms: ready.terms.each_ref() };
            list(&mut txn, &self.partition, at)?;
        }
        let state = own::state_row(&self.partition);
        if rows.is_end && self.until.is_none() {
            txn.counters(&self.partition)?.own = Own::Ready;
            txn.view.delete(&state);
        } else {
            let last = rows.rows.last().map(|(place, _)| place.as_slice()).or(until);
            let id = last.and_then(|place| place.strip_prefix(self.partition.as_bytes()));
            let cursor = id.map_or_else(|| self.cursor.clone(), Bytes::copy_from_slice);
            txn.view.put(&state, cursor);
        }
        txn.touch();
        txn.finish();
        Ok(())
    }
}

impl Operation for Advance {
    type Output = ();
    type Refusal = Error;

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Error>> {
        self.advance(view).map_err(Stop::Refused)
    }

    fn size_bytes(&self) -> usize {
        self.ready.values().flat_map(|ready| &ready.terms).map(Terms::size_bytes).sum()
    }
}

/// Documents of a partition behind an id.
fn rows_behind(
    partition: &PartitionPrefix,
    after: &[u8],
    until: Option<&[u8]>,
    count_max: usize,
    scan: impl FnOnce(Bound<&[u8]>, Bound<&[u8]>, Visit<'_>) -> Result<(), storage::Error>,
) -> Result<Rows> {
    let (first, end) = key::items_of(partition);
    let from = [&first[..], after].concat();
    let to = until.map_or(Bound::Excluded(end), |until| Bound::Included(key::item(until)));
    let to = to.as_ref().map(Vec::as_slice);
    Rows::collect(count_max, CHUNK_BYTES, |visit| scan(Bound::Excluded(&from[..]), to, visit))
}
