//! Removes in the background what nobody sees any more: expired documents, purged partitions, and
//! events that were kept for as long as their container's policy says. Then does what changed indexing
//! policies and grown partitions have left to do.
//!
//! Readers never wait for this: what is stale is invisible from the moment it became so. The sweep
//! only gives the space back. It works in small commits, so that other writes get their turn.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use storage::{Direction, Operation, RangeStore, Snapshot, Stop, SubmitError, View};

use crate::change_feed::event::Event;
use crate::change_feed::recorded::Recorded;
use crate::container::{Container, Range};
use crate::database::Db;
use crate::index::Pace;
use crate::key::{self, ExpiryClass, PartitionPrefix};
use crate::row::{self, Item, corrupt};
use crate::transaction::{Found, Transaction, expiry_row};
use crate::{Error, Result};

/// What a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Documents past their time to live.
    pub expired: u64,
    /// Documents of purged partitions.
    pub purged: u64,
    /// Events that were kept long enough.
    pub events: u64,
}

/// How many documents one commit of the sweep touches.
const CHUNK: usize = 256;
/// And how much it may record about them: events hold the documents that are gone.
const CHUNK_EVENT_BYTES: usize = 8 * 1024 * 1024;
/// How many events it forgets.
const CHUNK_EVENTS: usize = 1_024;

impl<S: RangeStore> Db<S> {
    /// Goes over all containers until everything is done that waited.
    pub async fn sweep(&self) -> Result<Swept> {
        let mut swept = Swept::default();
        self.erase_retired().await?;
        loop {
            self.sweep_containers(&mut swept).await?;
            let is_indexing = self.reindex(Pace::ORDINARY).await?;
            if !self.index_apart(Pace::ORDINARY).await? && !is_indexing {
                return Ok(swept);
            }
        }
    }

    async fn sweep_containers(&self, swept: &mut Swept) -> Result<()> {
        let containers: Vec<_> = self.catalog.load().containers().cloned().collect();
        for container in containers {
            for range in &container.ranges {
                match self.sweep_range(&container, range, swept).await {
                    // The container was deleted meanwhile, or its ranges cut anew.
                    Err(error) if error.kind == crate::Kind::NotFound => break,
                    other => other?,
                }
            }
        }
        Ok(())
    }

    async fn sweep_range(
        &self,
        container: &Arc<Container>,
        range: &Range,
        swept: &mut Swept,
    ) -> Result<()> {
        let container = &self.as_defined_now(container)?;
        self.sweep_events(container, range, swept).await?;
        if range.purges.are_waiting() {
            self.sweep_purges(container, range, swept).await?;
        }
        let Some(default) = container.policies.default_ttl else { return Ok(()) };
        if self.range_header(range)?.unqueued > 0 {
            self.queue_missing(container, range).await?;
        }
        let now_s = self.clock.now_s();
        self.sweep_queue(container, range, ExpiryClass::Own, now_s, swept).await?;
        if let Ok(default) = u64::try_from(default) {
            let written_until = now_s.saturating_sub(default);
            self.sweep_queue(container, range, ExpiryClass::Default, written_until, swept).await?;
        }
        Ok(())
    }

    /// Removes what the queue holds up to a time.
    async fn sweep_queue(
        &self,
        container: &Arc<Container>,
        range: &Range,
        class: ExpiryClass,
        until_s: u64,
        swept: &mut Swept,
    ) -> Result<()> {
        let from = key::expiry(class, 0, &[]);
        let to = key::expiry(class, until_s.saturating_add(1), &[]);
        loop {
            let snapshot = self.store.snapshot(range.storage)?;
            let places = rows_between(&snapshot, &from, &to, CHUNK)?
                .into_iter()
                .map(|(key, _)| key::place_of_expiry(&key).unwrap_or_default().to_vec())
                .collect::<Vec<_>>();
            if places.is_empty() {
                return Ok(());
            }
            let removed = self.remove(container, range, places, None).await?;
            swept.expired += removed;
            if removed == 0 {
                // The clock of the range is behind; the next sweep will find them.
                return Ok(());
            }
        }
    }

    /// Forgets events that were kept long enough, and all that are of no use to anybody.
    async fn sweep_events(
        &self,
        container: &Arc<Container>,
        range: &Range,
        swept: &mut Swept,
    ) -> Result<()> {
        loop {
            let snapshot = self.store.snapshot(range.storage)?;
            let events = forgettable(&snapshot, container, self.clock.now_s())?;
            if events.is_empty() {
                return Ok(());
            }
            let now_s = self.clock.now_s();
            swept.events += events.len() as u64;
            let forget = Forget { container: container.clone(), events, now_s };
            settled(self.submit_to_range(range, forget).await)?;
        }
    }

    async fn sweep_purges(
        &self,
        container: &Arc<Container>,
        range: &Range,
        swept: &mut Swept,
    ) -> Result<()> {
        let (from, to) = key::all_of(key::Kind::Purge);
        loop {
            let snapshot = self.store.snapshot(range.storage)?;
            let Some((purge, cutoff)) = rows_between(&snapshot, &from, &to, 1)?.pop() else {
                range.purges.ended(snapshot.lsn());
                return Ok(());
            };
            let cutoff = row::decode_u64(&cutoff)?;
            let (partition, _) =
                PartitionPrefix::of(&purge[1..]).ok_or_else(|| corrupt("purged partition"))?;
            let places = purged_places(&snapshot, &partition, cutoff)?;
            swept.purged +=
                self.remove(container, range, places, Some((partition, cutoff))).await?;
        }
    }

    /// The container as it is defined now: a sweep takes its time, and a time to live that has
    /// changed meanwhile holds at once.
    pub(crate) fn as_defined_now(&self, container: &Container) -> Result<Arc<Container>> {
        self.container_now(container.rid).ok_or_else(Error::not_found)
    }

    async fn remove(
        &self,
        container: &Arc<Container>,
        range: &Range,
        places: Vec<Vec<u8>>,
        purge: Option<(PartitionPrefix, u64)>,
    ) -> Result<u64> {
        let now_s = self.clock.now_s();
        let container = self.as_defined_now(container)?;
        let remove = Remove { container, places, purge, now_s };
        settled(self.submit_to_range(range, remove).await)
    }

    /// Puts documents into the expiry queue that were written while the container had no time to
    /// live.
    async fn queue_missing(&self, container: &Arc<Container>, range: &Range) -> Result<()> {
        let (mut from, to) = key::all_of(key::Kind::Item);
        let snapshot = self.store.snapshot(range.storage)?;
        loop {
            let rows = rows_between(&snapshot, &from, &to, CHUNK)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            from = [&last[..], &[0]].concat();
            let mut places = Vec::new();
            for (key, row) in &rows {
                let header = row::ItemHeader::decode(row)?;
                if !header.queued && header.ttl >= 0 {
                    places.push(key[1..].to_vec());
                }
            }
            if !places.is_empty() {
                let now_s = self.clock.now_s();
                let queue = Queue { container: container.clone(), places, now_s };
                settled(self.submit_to_range(range, queue).await)?;
            }
        }
    }
}

/// What became of work in the background, which nobody waits for but who does it.
pub(crate) fn settled<T>(result: Result<storage::Committed<T>, SubmitError<Error>>) -> Result<T> {
    match result {
        Ok(committed) => Ok(committed.output),
        Err(SubmitError::Refused(error, _)) => Err(error),
        Err(SubmitError::Storage(error)) => Err(error.into()),
    }
}

/// The first rows of an interval.
pub(crate) fn rows_between(
    snapshot: &impl Snapshot,
    from: &[u8],
    to: &[u8],
    count_max: usize,
) -> Result<Vec<(Vec<u8>, Bytes)>> {
    let mut rows = Vec::new();
    snapshot.scan(
        Bound::Included(from),
        Bound::Excluded(to),
        Direction::Forward,
        &mut |key, value| {
            rows.push((key.to_vec(), value.clone()));
            if rows.len() < count_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        },
    )?;
    Ok(rows)
}

/// Some of the documents that a purge covers.
fn purged_places(
    snapshot: &impl Snapshot,
    partition: &PartitionPrefix,
    cutoff: u64,
) -> Result<Vec<Vec<u8>>> {
    let (from, to) = key::items_of(partition);
    let mut places = Vec::new();
    let mut trouble = None;
    snapshot.scan(
        Bound::Included(&from[..]),
        Bound::Excluded(&to[..]),
        Direction::Forward,
        &mut |key, row| {
            match row::ItemHeader::decode(row) {
                Ok(header) if header.lsn <= cutoff => places.push(key[1..].to_vec()),
                Ok(_) => {}
                Err(error) => trouble = Some(error),
            }
            let go_on = places.len() < CHUNK && trouble.is_none();
            if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        },
    )?;
    trouble.map_or(Ok(places), Err)
}

/// The keys and places of the oldest events, as far as they need not be kept.
fn forgettable(
    snapshot: &impl Snapshot,
    container: &Container,
    now_s: u64,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    // Without a policy, or from before a gap, no event can be read any more.
    let recorded = Recorded::of(snapshot)?.filter(|_| container.records_events());
    let (from, to) = key::all_of(key::Kind::Event);
    let mut events = Vec::new();
    let mut trouble = None;
    snapshot.scan(
        Bound::Included(&from[..]),
        Bound::Excluded(&to[..]),
        Direction::Forward,
        &mut |key, row| {
            let at = key::lsn_of(key).unwrap_or(0);
            let is_lost =
                |place: &[u8]| recorded.as_ref().is_none_or(|since| at <= since.at(place));
            match (Event::place_of(row), Event::ts_of(row)) {
                (Ok(place), Ok(ts)) if is_lost(place) || container.is_past_retention(ts, now_s) => {
                    events.push((key.to_vec(), place.to_vec()));
                }
                (Ok(_), Ok(_)) => return ControlFlow::Break(()),
                (Err(error), _) | (_, Err(error)) => trouble = Some(error),
            }
            let go_on = events.len() < CHUNK_EVENTS && trouble.is_none();
            if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        },
    )?;
    trouble.map_or(Ok(events), Err)
}

/// Forgets events. They never change, so nothing has to be looked at again.
struct Forget {
    container: Arc<Container>,
    /// Their keys, and the places of their documents.
    events: Vec<(Vec<u8>, Vec<u8>)>,
    now_s: u64,
}

impl Operation for Forget {
    type Output = ();
    type Refusal = Error;

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Error>> {
        let mut txn =
            Transaction::open(view, &self.container, self.now_s).map_err(Stop::Refused)?;
        let recorded = txn.view.get(&key::events_since())?;
        let recorded = recorded.map(|row| Recorded::decode(&row)).transpose();
        let mut recorded = recorded.map_err(Stop::Refused)?;
        for (key, place) in &self.events {
            txn.view.delete(key);
            if let (Some(recorded), Some(lsn)) = (&mut recorded, key::lsn_of(key)) {
                recorded.forget(place, lsn);
            }
        }
        if let Some(recorded) = recorded {
            txn.view.put(&key::events_since(), recorded.encode());
        }
        txn.touch();
        txn.finish();
        Ok(())
    }
}

/// Removes documents that are stale; looks again, since they may have changed.
struct Remove {
    container: Arc<Container>,
    places: Vec<Vec<u8>>,
    /// The purge that these belong to. With nothing left to remove, it is done.
    purge: Option<(PartitionPrefix, u64)>,
    now_s: u64,
}

impl Operation for Remove {
    type Output = u64;
    type Refusal = Error;

    fn run(&mut self, view: &mut dyn View) -> Result<u64, Stop<Error>> {
        self.remove(view).map_err(Stop::Refused)
    }
}

impl Remove {
    fn remove(&self, view: &mut dyn View) -> Result<u64> {
        let mut txn = Transaction::open(view, &self.container, self.now_s)?;
        let mut removed = 0;
        for place in &self.places {
            let (partition, id) = split(place)?;
            if let Found::Stale(item) = txn.find(&partition, &id)? {
                txn.remove_stale(&partition, &id, &item)?;
                removed += 1;
            }
            if txn.event_bytes() > CHUNK_EVENT_BYTES {
                break;
            }
        }
        if let Some((partition, cutoff)) = &self.purge
            && self.places.is_empty()
        {
            let row = partition.row(key::Kind::Purge);
            // A later purge of the same partition has work of its own.
            if let Some(current) = txn.view.get(&row)?
                && row::decode_u64(&current)? == *cutoff
            {
                txn.view.delete(&row);
                txn.header.purges = txn.header.purges.saturating_sub(1);
                txn.touch();
            }
        }
        txn.finish();
        Ok(removed)
    }
}

/// Puts documents into the expiry queue; looks again, since they may have changed.
struct Queue {
    container: Arc<Container>,
    places: Vec<Vec<u8>>,
    now_s: u64,
}

impl Operation for Queue {
    type Output = ();
    type Refusal = Error;

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Error>> {
        self.queue(view).map_err(Stop::Refused)
    }
}

impl Queue {
    fn queue(&self, view: &mut dyn View) -> Result<()> {
        let mut txn = Transaction::open(view, &self.container, self.now_s)?;
        for place in &self.places {
            let Some(row) = txn.view.get(&key::item(place))? else { continue };
            let mut item = Item::decode(&row)?;
            if item.header.queued || item.header.ttl < 0 {
                continue;
            }
            item.header.queued = true;
            txn.note_change(place);
            txn.view.put(&expiry_row(&item.header, place), Bytes::new());
            txn.view.put(&key::item(place), item.encode());
            txn.header.unqueued = txn.header.unqueued.saturating_sub(1);
            txn.touch();
        }
        txn.finish();
        Ok(())
    }
}

fn split(place: &[u8]) -> Result<(PartitionPrefix, String)> {
    let (partition, id) = PartitionPrefix::of(place).ok_or_else(|| corrupt("place"))?;
    let id = String::from_utf8(id.to_vec()).map_err(|_| corrupt("id"))?;
    Ok((partition, id))
}
