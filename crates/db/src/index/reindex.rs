//! Brings documents from one definition of the index to the next, in the background.
//!
//! A range starts by saying where it goes, then moves its cursor over a few documents with every
//! commit, and is done when it comes to the end. The work for the documents is done beforehand on the
//! thread of whoever asks for it; the commit looks again and does only what has changed meanwhile. All
//! that is known about the progress is in the range, so it goes on where it was after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use storage::{Direction, Operation, RangeStore, Snapshot, Stop, SubmitError, View, Visit};

use super::definition::Definition;
use super::rows::Rows;
use super::state::{self, InForce};
use super::terms::Terms;
use super::update::{At, difference};
use crate::container::{Container, Range};
use crate::database::Db;
use crate::key::{self, Kind};
use crate::row::{IndexState, Indexed, Item, ItemHeader, RangeHeader, corrupt};
use crate::transaction::Transaction;
use crate::{Error, Result};

/// How many documents one commit brings over at most, and how large they may be together.
const CHUNK: usize = 200;
const CHUNK_BYTES: usize = 512 * 1024;

/// How much of the work is done at once.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// So many commits, then the caller decides whether to go on.
    pub commits: usize,
    /// At most so many documents with each of them.
    pub documents: usize,
}

impl Pace {
    /// What leaves others their turn and is still done soon.
    pub const ORDINARY: Pace = Pace { commits: 64, documents: CHUNK };
}

/// How a range stands.
enum Step {
    /// It has the newest definition.
    Done,
    /// It came a step nearer.
    Moved,
    /// It cannot go on now.
    Stuck,
}

impl<S: RangeStore> Db<S> {
    /// Does a part of the work that changed indexing policies have left. Says whether there is more.
    pub async fn reindex(&self, pace: Pace) -> Result<bool> {
        let mut left = pace.commits;
        let documents = pace.documents.clamp(1, CHUNK);
        let containers: Vec<_> = self.catalog.load().containers().cloned().collect();
        for container in containers.iter().filter(|container| !container.index.is_settled()) {
            match self.reindex_container(container, documents, &mut left).await {
                // The container was deleted meanwhile, perhaps with its database, or its ranges cut anew.
                Err(error) if error.kind.status() == 404 => {}
                other => other?,
            }
            if left == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn reindex_container(
        &self,
        container: &Arc<Container>,
        documents: usize,
        left: &mut usize,
    ) -> Result<()> {
        let version = self.version_of(container)?;
        if container.index.is_stuck_at(version) {
            return Ok(());
        }
        let mut is_stuck = false;
        for range in &container.ranges {
            loop {
                if *left == 0 {
                    return Ok(());
                }
                match self.reindex_step(container, range, documents).await? {
                    Step::Done => break,
                    Step::Moved => *left -= 1,
                    Step::Stuck => {
                        // Queries do without the new index until the document or the policy changes.
                        let container = container.name_path();
                        tracing::warn!(container, "a document has too many values to be indexed");
                        is_stuck = true;
                        break;
                    }
                }
            }
        }
        if is_stuck {
            container.index.stick_at(self.version_of(container)?);
        } else {
            self.tidy_index(container).await?;
            container.index.settle();
        }
        Ok(())
    }

    /// A number that grows with every commit to a container.
    fn version_of(&self, container: &Container) -> Result<u64> {
        let mut version = 0;
        for range in &container.ranges {
            version += self.store.snapshot(range.storage)?.lsn();
        }
        Ok(version)
    }

    /// One commit that brings a range nearer to the newest definition.
    async fn reindex_step(
        &self,
        container: &Arc<Container>,
        range: &Range,
        documents: usize,
    ) -> Result<Step> {
        let header = self.range_header(range)?;
        let newest = container.index.newest.number;
        if header.indexed.is_settled() {
            // A request may hold a container that is no longer the newest; the newest goes on.
            if header.indexed.to >= newest || !container.index.start() {
                return Ok(Step::Done);
            }
            let begin =
                Begin { container: container.clone(), to: newest, now_s: self.clock.now_s() };
            return settled(self.submit_to_range(range, begin).await);
        }
        let step = self.advance(container, range, documents).await?;
        // Together they may be too much for one commit, but one by one they are not.
        if matches!(step, Step::Stuck) { self.advance(container, range, 1).await } else { Ok(step) }
    }

    async fn advance(
        &self,
        container: &Arc<Container>,
        range: &Range,
        count_max: usize,
    ) -> Result<Step> {
        let snapshot = self.store.snapshot(range.storage)?;
        let now_s = self.clock.now_s();
        let Some(advance) = Advance::prepare(container, &snapshot, count_max, now_s)? else {
            return Ok(Step::Moved);
        };
        settled(self.submit_to_range(range, advance).await)
    }

    /// Forgets definitions that no range needs any more.
    async fn tidy_index(&self, container: &Container) -> Result<()> {
        let mut edit = self.edit(&container.database_id).await?;
        let current = edit.owner.container(&container.id).cloned();
        let Some(current) = current.filter(|current| current.rid == container.rid) else {
            return Ok(());
        };
        let in_use = self.definitions_in_use(&current)?;
        let Some(index) = current.index.tidied(&in_use) else { return Ok(()) };
        if current.index.newest.number == container.index.newest.number {
            index.settle();
        }
        self.change_container(&mut edit, current.with_index(index));
        self.save(edit).await
    }

    /// The numbers of the definitions that the ranges of a container name.
    pub(crate) fn definitions_in_use(&self, container: &Container) -> Result<BTreeSet<u32>> {
        let mut in_use = BTreeSet::new();
        for range in &container.ranges {
            let indexed = self.range_header(range)?.indexed;
            in_use.extend([indexed.from, indexed.to]);
        }
        Ok(in_use)
    }

    /// How much of a container has the index that its policy asks for, from 0 to 100.
    pub fn index_progress(&self, container: &Container) -> Result<u32> {
        let newest = container.index.newest.number;
        let (mut documents, mut done, mut is_done) = (0, 0, true);
        for range in &container.ranges {
            let snapshot = self.store.snapshot(range.storage)?;
            let header = snapshot.get(&key::header())?;
            let header =
                RangeHeader::decode(&header.ok_or_else(|| corrupt("range without header"))?)?;
            documents += header.items;
            if header.indexed == Indexed::settled(newest) {
                done += header.items;
                continue;
            }
            is_done = false;
            if header.indexed.to == newest
                && let Some(state) = snapshot.get(&state::row())?
            {
                done += IndexState::decode(&state)?.done.min(header.items);
            }
        }
        if is_done || documents == 0 {
            return Ok(100);
        }
        Ok(u32::try_from(done * 100 / documents).unwrap_or(0).min(99))
    }
}

fn settled(result: Result<storage::Committed<Step>, SubmitError<Error>>) -> Result<Step> {
    match result {
        Ok(committed) => Ok(committed.output),
        Err(SubmitError::Refused(error, _)) => Err(error),
        Err(SubmitError::Storage(storage::Error::TooLarge)) => Ok(Step::Stuck),
        Err(SubmitError::Storage(error)) => Err(error.into()),
    }
}

/// Says where the range goes.
struct Begin {
    container: Arc<Container>,
    to: u32,
    now_s: u64,
}

impl Operation for Begin {
    type Output = Step;
    type Refusal = Error;

    fn run(&mut self, view: &mut dyn View) -> Result<Step, Stop<Error>> {
        self.begin(view).map_err(Stop::Refused)
    }
}

impl Begin {
    fn begin(&self, view: &mut dyn View) -> Result<Step> {
        let mut txn = Transaction::open(view, &self.container, self.now_s)?;
        let indexed = txn.header.indexed;
        if !indexed.is_settled() || indexed.to >= self.to {
            return Ok(Step::Moved);
        }
        txn.header.indexed = if txn.header.items == 0 {
            Indexed::settled(self.to)
        } else {
            txn.view.put(&state::row(), IndexState::default().encode());
            Indexed { from: indexed.to, to: self.to }
        };
        txn.touch();
        txn.finish();
        Ok(Step::Moved)
    }
}

/// Moves the cursor over some documents.
struct Advance {
    container: Arc<Container>,
    /// Where the cursor must stand.
    indexed: Indexed,
    cursor: Vec<u8>,
    /// The last document of this step; nothing if they are the last of the range.
    until: Option<Vec<u8>>,
    /// What was worked out beforehand, by place.
    ready: BTreeMap<Vec<u8>, Ready>,
    now_s: u64,
}

/// The terms of a version of a document, before and after.
struct Ready {
    lsn: u64,
    old: [Terms; 2],
    new: [Terms; 2],
}

impl Ready {
    fn new(from: &Definition, to: &Definition, item: &Item) -> Result<Ready> {
        Ok(Ready { lsn: item.header.lsn, old: from.terms_of(item)?, new: to.terms_of(item)? })
    }

    fn size_bytes(&self) -> usize {
        self.old.iter().chain(&self.new).map(Terms::size_bytes).sum()
    }
}

impl Advance {
    /// Works out the next step; `None` when there is nothing to do any more.
    fn prepare<P: Snapshot>(
        container: &Arc<Container>,
        snapshot: &P,
        count_max: usize,
        now_s: u64,
    ) -> Result<Option<Advance>> {
        let header = snapshot.get(&key::header())?.ok_or_else(|| corrupt("range header"))?;
        let header = RangeHeader::decode(&header)?;
        let in_force = InForce::load(&container.index, &header, |key| snapshot.get(key))?;
        let Some(InForce::Moving { from, to, state }) = in_force else { return Ok(None) };
        let rows = rows_behind(&state.cursor, None, count_max, |from, to, visit| {
            snapshot.scan(from, to, Direction::Forward, visit)
        })?;
        let mut ready = BTreeMap::new();
        for (place, row) in &rows.rows {
            ready.insert(place.clone(), Ready::new(&from, &to, &Item::decode(row)?)?);
        }
        let until =
            if rows.is_end { None } else { rows.rows.last().map(|(place, _)| place.clone()) };
        Ok(Some(Advance {
            container: container.clone(),
            indexed: header.indexed,
            cursor: state.cursor,
            until,
            ready,
            now_s,
        }))
    }

    fn advance(&self, view: &mut dyn View) -> Result<Step> {
        let mut txn = Transaction::open(view, &self.container, self.now_s)?;
        let InForce::Moving { from, to, state } = txn.in_force.clone() else {
            return Ok(Step::Moved);
        };
        if txn.header.indexed != self.indexed || state.cursor != self.cursor {
            return Ok(Step::Moved);
        }
        let view = &*txn.view;
        let rows = rows_behind(&self.cursor, self.until.as_deref(), CHUNK, |from, to, visit| {
            view.scan(from, to, Direction::Forward, visit)
        })?;
        for (place, row) in &rows.rows {
            let lsn = ItemHeader::decode(row)?.lsn;
            let made;
            let terms = match self.ready.get(place) {
                Some(ready) if ready.lsn == lsn => ready,
                // Written since it was looked at.
                _ => {
                    made = Ready::new(&from, &to, &Item::decode(row)?)?;
                    &made
                }
            };
            let old = At { place, terms: terms.old.each_ref() };
            let new = At { place, terms: terms.new.each_ref() };
            difference(&mut txn, Some(old), Some(new))?;
        }
        if rows.is_end && self.until.is_none() {
            txn.header.indexed = Indexed::settled(self.indexed.to);
            txn.view.delete(&state::row());
        } else {
            let last = rows.rows.last().map(|(place, _)| place.clone());
            let state = IndexState {
                done: state.done + rows.rows.len() as u64,
                // All that was there may have been deleted meanwhile.
                cursor: last.or_else(|| self.until.clone()).unwrap_or(state.cursor),
            };
            txn.view.put(&state::row(), state.encode());
        }
        txn.touch();
        txn.finish();
        Ok(Step::Moved)
    }
}

impl Operation for Advance {
    type Output = Step;
    type Refusal = Error;

    fn run(&mut self, view: &mut dyn View) -> Result<Step, Stop<Error>> {
        self.advance(view).map_err(Stop::Refused)
    }

    fn size_bytes(&self) -> usize {
        self.ready.values().map(Ready::size_bytes).sum()
    }
}

/// Documents behind a place.
fn rows_behind(
    after: &[u8],
    until: Option<&[u8]>,
    count_max: usize,
    scan: impl FnOnce(Bound<&[u8]>, Bound<&[u8]>, Visit<'_>) -> Result<(), storage::Error>,
) -> Result<Rows> {
    let from = key::item(after);
    let to = until.map_or(Bound::Excluded(key::all_of(Kind::Item).1), |until| {
        Bound::Included(key::item(until))
    });
    let to = to.as_ref().map(Vec::as_slice);
    Rows::collect(count_max, CHUNK_BYTES, |visit| scan(Bound::Excluded(&from[..]), to, visit))
}
