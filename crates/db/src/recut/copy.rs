//! Copies the documents of ranges into the ranges that take over from them.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use storage::{Direction, Operation, RangeStore, Snapshot, Stop, View};

use crate::change_feed::event::Event;
use crate::change_feed::recorded::Recorded;
use crate::container::{Container, Range};
use crate::database::Db;
use crate::index::update::{self, Stored};
use crate::key::{self, PartitionPrefix};
use crate::row::{Item, RangeHeader, corrupt};
use crate::sweep::{rows_between, settled};
use crate::transaction::Transaction;
use crate::{Error, Result, unique};

/// How many documents, and bytes of them, one commit brings. It works on the thread that commits for
/// everybody.
const CHUNK_ITEMS: usize = 32;
const CHUNK_BYTES: usize = 256 * 1024;

/// With so few documents left to copy again, the ranges are closed for them.
const REST: usize = 64;
/// If there are always more, they are closed all the same after so many rounds.
const ROUNDS: usize = 20;

/// A copy that is being made. When it is dropped, nothing is noted any more.
pub(super) struct Copying<'a, S: RangeStore> {
    db: &'a Db<S>,
    container: &'a Container,
    /// The container for the commits of the copy, which are neither noted nor recorded as events.
    quiet: Arc<Container>,
    old: &'a [Arc<Range>],
    new: &'a [Arc<Range>],
    /// Up to which lsn the events of each old range have been copied.
    events_copied: Vec<u64>,
}

/// Which changes are copied again.
#[derive(Clone, Copy)]
enum Notes {
    /// Those that the newest version shows; the others may still come.
    Durable,
    /// Once nothing is on its way any more, all: the last note of a place may be that of an operation
    /// which was refused, whose lsn never came, and hide an earlier one.
    All,
}

/// Ranges that take no writes. When it is dropped, they are open again.
pub(super) struct Closed<'a>(&'a [Arc<Range>]);

impl Closed<'_> {
    /// The ranges have been replaced.
    pub(super) fn end(&self) {
        for range in self.0 {
            range.gate.end();
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        for range in self.0.iter().filter(|range| !range.gate.is_ended()) {
            range.gate.open();
        }
    }
}

impl<S: RangeStore> Drop for Copying<'_, S> {
    fn drop(&mut self) {
        self.container.changes.end();
    }
}

impl<'a, S: RangeStore> Copying<'a, S> {
    pub(super) fn start(
        db: &'a Db<S>,
        container: &'a Container,
        old: &'a [Arc<Range>],
        new: &'a [Arc<Range>],
    ) -> Self {
        container.changes.begin();
        let mut quiet = Container { changes: Arc::default(), ..container.same() };
        quiet.policies.change_feed_retention_minutes = None;
        let events_copied = vec![0; old.len()];
        Self { db, container, quiet: Arc::new(quiet), old, new, events_copied }
    }

    /// Copies everything. In the end the old ranges are closed, and the new ones are equal to them.
    pub(super) async fn copy(&mut self) -> Result<Closed<'a>> {
        // What began before it could be noted is durable, and so in the versions that are copied.
        self.settle().await?;
        for range in self.old {
            self.copy_all(range).await?;
        }
        for _ in 0..ROUNDS {
            if self.copy_changes(Notes::Durable).await? + self.copy_events().await? <= REST {
                break;
            }
        }
        for range in self.old {
            range.gate.close();
        }
        let closed = Closed(self.old);
        self.settle().await?;
        self.copy_changes(Notes::All).await?;
        self.copy_events().await?;
        self.copy_headers().await?;
        let lsn = self.db.lsn_of(self.old)?;
        for range in self.new {
            self.db.store.advance(range.storage, lsn).await?;
        }
        Ok(closed)
    }

    /// Waits until everything is durable that has been submitted to the old ranges.
    async fn settle(&self) -> Result<()> {
        for range in self.old {
            settled(self.db.store.submit(range.storage, Nothing).await)?;
        }
        Ok(())
    }

    /// Copies a version of a range whole.
    async fn copy_all(&self, range: &Range) -> Result<()> {
        let snapshot = self.db.store.snapshot(range.storage)?;
        let (first, end) = key::all_of(key::Kind::Item);
        let mut from = Bound::Included(first);
        loop {
            let mut arrivals = Vec::new();
            let mut bytes = 0;
            let bounds = (from.as_ref().map(Vec::as_slice), Bound::Excluded(&end[..]));
            snapshot.scan(bounds.0, bounds.1, Direction::Forward, &mut |key, row| {
                bytes += row.len();
                arrivals.push(Arrival { place: key[1..].to_vec(), row: Some(row.clone()) });
                let is_full = arrivals.len() >= CHUNK_ITEMS || bytes >= CHUNK_BYTES;
                if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            let Some(last) = arrivals.last() else { return Ok(()) };
            from = Bound::Excluded(key::item(&last.place));
            self.bring(arrivals).await?;
        }
    }

    /// Copies again what has been written since; says how much that was.
    async fn copy_changes(&self, notes: Notes) -> Result<usize> {
        let mut snapshots = Vec::new();
        for range in self.old {
            snapshots.push((range, self.db.store.snapshot(range.storage)?));
        }
        let of = |place: &[u8]| {
            let epk = key::epk_of(place)?;
            snapshots.iter().find(|(range, _)| range.epk.contains(&epk)).map(|(_, at)| at)
        };
        let places = self.container.changes.take(|place| match notes {
            Notes::Durable => of(place).map(Snapshot::lsn),
            Notes::All => of(place).map(|_| u64::MAX),
        });
        for chunk in places.chunks(CHUNK_ITEMS) {
            let mut arrivals = Vec::with_capacity(chunk.len());
            for place in chunk {
                let snapshot = of(place).ok_or_else(|| corrupt("place"))?;
                let row = snapshot.get(&key::item(place))?;
                arrivals.push(Arrival { place: place.clone(), row });
            }
            self.bring(arrivals).await?;
        }
        Ok(places.len())
    }

    /// Copies the events that have been recorded since; says how many those were.
    async fn copy_events(&mut self) -> Result<usize> {
        let mut count = 0;
        for at in 0..self.old.len() {
            let snapshot = self.db.store.snapshot(self.old[at].storage)?;
            let mut from = Bound::Included(key::event(self.events_copied[at] + 1, 0));
            let (_, end) = key::all_of(key::Kind::Event);
            loop {
                let mut events = Vec::new();
                let mut bytes = 0;
                let bounds = (from.as_ref().map(Vec::as_slice), Bound::Excluded(&end[..]));
                snapshot.scan(bounds.0, bounds.1, Direction::Forward, &mut |key, row| {
                    bytes += row.len();
                    events.push((key.to_vec(), row.clone()));
                    let is_full = bytes >= CHUNK_BYTES;
                    if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                let Some((last, _)) = events.last() else { break };
                from = Bound::Excluded(last.clone());
                count += events.len();
                self.bring_events(events).await?;
            }
            self.events_copied[at] = snapshot.lsn();
        }
        Ok(count)
    }

    async fn bring_events(&self, events: Vec<(Vec<u8>, Bytes)>) -> Result<()> {
        let parts = self.parted(events, |(_, row)| Event::place_of(row))?;
        for (range, events) in self.new.iter().zip(parts) {
            if !events.is_empty() {
                settled(self.db.store.submit(range.storage, Events(events)).await)?;
            }
        }
        Ok(())
    }

    /// Parts what has a place among the new ranges.
    fn parted<T>(
        &self,
        things: Vec<T>,
        place_of: impl Fn(&T) -> Result<&[u8]>,
    ) -> Result<Vec<Vec<T>>> {
        let mut parts: Vec<Vec<T>> = self.new.iter().map(|_| Vec::new()).collect();
        for thing in things {
            let epk = key::epk_of(place_of(&thing)?).ok_or_else(|| corrupt("place"))?;
            let at = self.new.iter().position(|range| range.epk.contains(&epk));
            parts[at.ok_or_else(|| corrupt("place outside of its range"))?].push(thing);
        }
        Ok(parts)
    }

    /// Brings documents to the new ranges that they belong to.
    async fn bring(&self, arrivals: Vec<Arrival>) -> Result<()> {
        let parts = self.parted(arrivals, |arrival| Ok(&arrival.place))?;
        let now_s = self.db.clock.now_s();
        for (range, arrivals) in self.new.iter().zip(parts) {
            if arrivals.is_empty() {
                continue;
            }
            let import = Import { container: self.quiet.clone(), arrivals, now_s };
            settled(self.db.store.submit(range.storage, import).await)?;
        }
        Ok(())
    }

    /// Gives the new ranges what belongs to no single document: purges that are under way, how far
    /// time has come, since when all events are there.
    async fn copy_headers(&self) -> Result<()> {
        let mut inherited = Inherited::default();
        let lsn = self.db.lsn_of(self.old)?;
        let (mut purges, mut recorded) = (Vec::new(), Vec::new());
        for range in self.old {
            let header = self.db.range_header(range)?;
            let snapshot = self.db.store.snapshot(range.storage)?;
            inherited.last_ts = inherited.last_ts.max(header.last_ts);
            inherited.merged_lsn = inherited.merged_lsn.max(header.merged_lsn);
            // Where nothing was written since the policy is there, nothing is missing from now on.
            let since = Recorded::of(&snapshot)?;
            recorded.push(since.unwrap_or_else(|| Recorded::since_commit(snapshot.lsn())));
            let (from, to) = key::all_of(key::Kind::Purge);
            purges.extend(rows_between(&snapshot, &from, &to, usize::MAX)?);
        }
        if self.old.len() > 1 {
            inherited.merged_lsn = lsn;
        }
        let parts = self.parted(purges, |(key, _)| Ok(&key[1..]))?;
        for (range, purges) in self.new.iter().zip(parts) {
            if !purges.is_empty() {
                range.purges.began(lsn);
            }
            let old = self.old.iter().map(|old| &old.epk).zip(&recorded);
            let records_events = self.container.records_events();
            let recorded = records_events.then(|| Recorded::joined(&range.epk, old));
            let inherited = Inherited { purges, recorded, ..inherited.clone() };
            settled(self.db.store.submit(range.storage, inherited).await)?;
        }
        Ok(())
    }
}

/// Writes nothing; when it is answered, everything before it is durable.
struct Nothing;

impl Operation for Nothing {
    type Output = ();
    type Refusal = Error;

    fn run(&mut self, _: &mut dyn View) -> Result<(), Stop<Error>> {
        Ok(())
    }
}

/// What is stored at a place of an old range, if anything is.
struct Arrival {
    place: Vec<u8>,
    row: Option<Bytes>,
}

/// Makes places of a new range what they are in the old one.
struct Import {
    container: Arc<Container>,
    arrivals: Vec<Arrival>,
    now_s: u64,
}

impl Operation for Import {
    type Output = ();
    type Refusal = Error;

    fn size_bytes(&self) -> usize {
        self.arrivals.iter().map(|arrival| arrival.row.as_ref().map_or(0, Bytes::len)).sum()
    }

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Error>> {
        self.import(view).map_err(Stop::Refused)
    }
}

impl Import {
    fn import(&self, view: &mut dyn View) -> Result<()> {
        let mut txn = Transaction::open(view, &self.container, self.now_s)?;
        for arrival in &self.arrivals {
            arrive(&mut txn, arrival)?;
        }
        txn.finish();
        Ok(())
    }
}

fn arrive(txn: &mut Transaction<'_>, arrival: &Arrival) -> Result<()> {
    let place = &arrival.place;
    let (partition, id) = PartitionPrefix::of(place).ok_or_else(|| corrupt("place"))?;
    let id = std::str::from_utf8(id).map_err(|_| corrupt("id"))?;
    if let Some(row) = txn.view.get(&key::item(place))? {
        let item = Item::decode(&row)?;
        unique::give_up(txn, &partition, id, &item)?;
        update::remove(txn, Stored { place, item: &item })?;
        txn.unstore(&partition, id, &item)?;
    }
    if let Some(row) = &arrival.row {
        let mut item = Item::decode(row)?;
        find_position(txn.view, place, &mut item)?;
        unique::take_over(txn, &partition, id, &item)?;
        update::insert(txn, Stored { place, item: &item })?;
        txn.store(&partition, id, &item)?;
    }
    Ok(())
}

/// The position of a document in the feed. Two ranges that are merged may both have one of an lsn and
/// ordinal; then one of them moves behind the others of its lsn.
fn find_position(view: &dyn View, place: &[u8], item: &mut Item) -> Result<()> {
    let header = &mut item.header;
    while view.get(&key::feed(header.lsn, header.commit_ordinal))?.is_some_and(|at| at != *place) {
        header.commit_ordinal += 1;
        header.keeps_etag = true;
    }
    Ok(())
}

/// Events for a new range. Those of two ranges that are merged may have the same number; then one
/// stands behind the other, as their documents do.
struct Events(Vec<(Vec<u8>, Bytes)>);

impl Operation for Events {
    type Output = ();
    type Refusal = Error;

    fn size_bytes(&self) -> usize {
        self.0.iter().map(|(key, row)| key.len() + row.len()).sum()
    }

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Error>> {
        for (key, row) in &self.0 {
            let number = key::event_number(key).ok_or_else(|| Stop::Refused(corrupt("event")))?;
            let (lsn, mut ordinal) = number;
            while view.get(&key::event(lsn, ordinal))?.is_some() {
                ordinal += 1;
            }
            view.put(&key::event(lsn, ordinal), row.clone());
        }
        Ok(())
    }
}

/// What new ranges have from the old ones.
#[derive(Clone, Default)]
struct Inherited {
    last_ts: u64,
    merged_lsn: u64,
    purges: Vec<(Vec<u8>, Bytes)>,
    /// Since when all events are there, if they are recorded.
    recorded: Option<Recorded>,
}

impl Operation for Inherited {
    type Output = ();
    type Refusal = Error;

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Error>> {
        let header = view.get(&key::header())?.ok_or_else(|| corrupt("range without header"));
        let header = header.and_then(|row| RangeHeader::decode(&row)).map_err(Stop::Refused)?;
        for (key, cutoff) in &self.purges {
            view.put(key, cutoff.clone());
        }
        if let Some(recorded) = &self.recorded {
            view.put(&key::events_since(), recorded.encode());
        }
        let header = RangeHeader {
            last_ts: header.last_ts.max(self.last_ts),
            merged_lsn: self.merged_lsn,
            purges: self.purges.len() as u64,
            records_events: self.recorded.is_some(),
            ..header
        };
        view.put(&key::header(), header.encode());
        Ok(())
    }
}
