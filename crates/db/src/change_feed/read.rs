//! Reads a page of the change feed.
//!
//! A page goes over the parts of its scope one after the other, each from where its reader has come
//! to. It ends between two commits, when it is full or has taken its time, or where there is nothing
//! more. A page that has found nothing goes on for as long as a request may take: clients take an
//! empty page for the end. A small partition is looked through by itself, so that its reader does not
//! pay for everybody else's writes.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use storage::{Direction, RangeStore, Snapshot};
use value::{EpkRange, PartitionKey};

use super::continuation::{Continuation, Slices};
use super::event::{ChangeKind, Event};
use super::recorded::Recorded;
use super::search;
use crate::charge::Charge;
use crate::container::Container;
use crate::database::Db;
use crate::documents::{Failure, PAGE_BYTES, PAGE_ITEMS};
use crate::key::{self, Kind, PartitionPrefix};
use crate::ration::Effort;
use crate::row::{ItemHeader, PartitionCounters, corrupt};
use crate::scan::{Reading, Scope, Slice};
use crate::session::{Position, Session};
use crate::{Error, Result};

/// Which changes a client wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeMode {
    /// Every document once, as it is now.
    LatestVersion,
    /// Everything that happened, deletes included.
    AllVersions,
}

/// Where a client wants to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeStart {
    /// With the oldest change.
    Beginning,
    /// With what happens from now on.
    Now,
    /// Where an earlier page ended: its continuation.
    After(String),
}

/// Which page of the change feed a client wants.
#[derive(Clone, Debug)]
pub struct ChangeRequest {
    /// Which changes.
    pub mode: ChangeMode,
    /// Where to begin.
    pub start: ChangeStart,
    /// Only what was written after this second.
    pub after_s: Option<u64>,
    /// At most so many changes, unless one commit made more; the server decides if there is no number.
    pub items_max: Option<usize>,
}

/// A page of the change feed.
#[derive(Clone, Debug)]
pub struct ChangePage {
    /// The changes, those of a range in the order of commits.
    pub changes: Vec<Change>,
    /// Where the next page begins; there is always one.
    pub continuation: String,
    /// Whether there is nothing more at present.
    pub is_end: bool,
    /// The versions that were read.
    pub at: Vec<Position>,
    /// What it cost.
    pub charge: Charge,
}

/// A change of a document.
#[derive(Clone, Debug)]
pub struct Change {
    /// The commit that made it.
    pub lsn: u64,
    /// The second of that commit.
    pub ts: u64,
    /// The JSON text of the document; nothing if it is gone.
    pub current: Option<Bytes>,
    /// What is known of a change where all versions are recorded.
    pub version: Option<ChangeVersion>,
}

/// What is known of a change where all versions are recorded.
#[derive(Clone, Debug)]
pub struct ChangeVersion {
    /// What happened.
    pub kind: ChangeKind,
    /// The document before, if there was one.
    pub previous: Option<PreviousVersion>,
    /// The id of the document.
    pub id: String,
    /// The partition key of the document.
    pub key: PartitionKey,
}

/// A document before a change.
#[derive(Clone, Debug)]
pub struct PreviousVersion {
    /// The commit that wrote it.
    pub lsn: u64,
    /// Its JSON text, where the container's policy keeps it.
    pub image: Option<Bytes>,
}

impl<S: RangeStore> Db<S> {
    /// Reads a page of the change feed. This works for as long as it takes, up to a few seconds: call
    /// it where that holds nobody up.
    pub fn changes(
        &self,
        container: &Arc<Container>,
        scope: &Scope,
        request: &ChangeRequest,
        session: Option<&Session>,
    ) -> Result<ChangePage, Failure> {
        if request.mode == ChangeMode::AllVersions {
            check_all_versions(container, request)?;
        }
        let reading = self.reading(container, scope, None, session, Effort::Whole)?;
        let mut reader = Reader {
            parts: parts(&reading, request)?,
            now_s: self.clock.now_s(),
            reading: &reading,
            request,
            changes: Vec::new(),
            bytes: 0,
            charge: Charge::MINIMUM,
        };
        Ok(reader.page()?)
    }

    /// Resolves when something was committed to a container beyond the positions of a page.
    pub fn changed_beyond(
        &self,
        container: &Container,
        at: &[Position],
    ) -> impl Future<Output = Result<()>> + Send + use<S> {
        let waiting: Result<Vec<_>> = at
            .iter()
            .map(|position| {
                let range = container.range(&position.range)?;
                Ok(Box::pin(self.store.wait(range.storage, position.lsn)))
            })
            .collect();
        async move {
            let mut waiting = waiting?;
            std::future::poll_fn(move |context| {
                for change in &mut waiting {
                    if let std::task::Poll::Ready(result) = change.as_mut().poll(context) {
                        return std::task::Poll::Ready(result.map(|_| ()).map_err(Error::from));
                    }
                }
                std::task::Poll::Pending
            })
            .await
        }
    }
}

/// All versions can be read where they are recorded, and from where they are.
fn check_all_versions(container: &Container, request: &ChangeRequest) -> Result<()> {
    if !container.records_events() {
        return Err(Error::bad_request(
            "Change Feed 'All Versions and Deletes' mode must be enabled: give the container a \
             changeFeedPolicy with a retentionDuration",
        ));
    }
    if request.start == ChangeStart::Beginning {
        return Err(Error::bad_request(
            "FullFidelity Change Feed must have valid If-None-Match header: all versions can be \
             read from now on or from a continuation",
        ));
    }
    Ok(())
}

/// A part of what is read, and how far its reader has come.
struct Part {
    /// Which slice of the reading it belongs to.
    slice: usize,
    epk: EpkRange,
    /// The places of the part: from the first bound up to, but without, the second.
    from: Vec<u8>,
    to: Vec<u8>,
    lsn: u64,
}

impl Part {
    fn new<P>(reading: &Reading<P>, slice: usize, epk: EpkRange, lsn: u64) -> Part {
        let whole = &reading.slices[slice];
        let (from, to) = key::items_between(&epk.min, &epk.max);
        let from = whole.from.clone().max(from[1..].to_vec());
        let to = whole.to.clone().min(to[1..].to_vec());
        Part { slice, epk, from, to, lsn }
    }
}

/// What is to be read, the first part in front.
fn parts<P: Snapshot>(reading: &Reading<P>, request: &ChangeRequest) -> Result<VecDeque<Part>> {
    let whole = |at: usize, lsn: u64| Part::new(reading, at, reading.slices[at].epk.clone(), lsn);
    let slices = reading.slices.iter().enumerate();
    let mut first = None;
    let parts: Result<Vec<Part>> = match &request.start {
        ChangeStart::Now => slices.map(|(at, slice)| Ok(whole(at, slice.snapshot.lsn()))).collect(),
        ChangeStart::Beginning => slices
            .map(|(at, slice)| match request.after_s {
                None => Ok(whole(at, 0)),
                Some(second) => Ok(whole(at, search::before_time(&slice.snapshot, second)?)),
            })
            .collect(),
        ChangeStart::After(text) => match Continuation::parse(text)? {
            Continuation::Everywhere(lsn) => {
                check_common_ancestor(reading)?;
                Ok(slices.map(|(at, _)| whole(at, lsn)).collect())
            }
            Continuation::Slices(told) => {
                first = Some(told.first().clone());
                let mut parts = Vec::new();
                for (at, slice) in slices {
                    if !told.cover(&slice.epk) {
                        return Err(elsewhere());
                    }
                    let within = told.within(&slice.epk).into_iter();
                    parts.extend(within.map(|(epk, lsn)| Part::new(reading, at, epk, lsn)));
                }
                Ok(parts)
            }
        },
    };
    let mut parts = VecDeque::from(parts?);
    for part in &parts {
        if part.lsn > reading.slices[part.slice].snapshot.lsn() {
            return Err(Error::bad_request(
                "the continuation of the change feed is ahead of the container: it belongs to \
                 another container or to an earlier one of the same name",
            ));
        }
    }
    let first =
        parts.iter().position(|part| first.as_ref().is_some_and(|epk| part.epk.min >= *epk));
    parts.rotate_left(first.unwrap_or(0));
    Ok(parts)
}

/// A single lsn says where to go on in several ranges only if they were one when it was given.
fn check_common_ancestor<P>(reading: &Reading<P>) -> Result<()> {
    let [first, others @ ..] = &reading.slices[..] else { return Ok(()) };
    let is_common = |id: &String| {
        others.iter().all(|other| other.range.id == *id || other.range.parents.contains(id))
    };
    let mut lineage = first.range.parents.iter().chain([&first.range.id]);
    if others.is_empty() || lineage.any(is_common) { Ok(()) } else { Err(elsewhere()) }
}

fn elsewhere() -> Error {
    Error::bad_request(
        "the continuation of the change feed does not fit: it was given for another part of the \
         container",
    )
}

/// A page while it is read.
struct Reader<'r, P> {
    reading: &'r Reading<P>,
    request: &'r ChangeRequest,
    now_s: u64,
    parts: VecDeque<Part>,
    changes: Vec<Change>,
    bytes: usize,
    charge: Charge,
}

/// How the reading of a part ended.
enum Ended {
    /// There is nothing more.
    AtTheEnd,
    /// Everything up to this lsn has been given, and there is more.
    After(u64),
}

/// How many rows of the feed are looked at before it is asked for the time.
const LOOKED_AT: usize = 4_096;
/// How many documents are loaded at once.
const LOADED: usize = 32;
const LOADED_BYTES: usize = 1024 * 1024;

impl<P: Snapshot> Reader<'_, P> {
    fn page(&mut self) -> Result<ChangePage> {
        let mut is_end = true;
        for _ in 0..self.parts.len() {
            if self.is_full() {
                is_end = false;
                break;
            }
            let Some(mut part) = self.parts.pop_front() else { break };
            let slice = &self.reading.slices[part.slice];
            let ended = self.part(slice, &part)?;
            part.lsn = match ended {
                Ended::AtTheEnd => slice.snapshot.lsn(),
                Ended::After(lsn) => lsn,
            };
            // What is not done comes last, so that other ranges get their turn.
            self.parts.push_back(part);
            if matches!(ended, Ended::After(_)) {
                is_end = false;
                break;
            }
        }
        Ok(ChangePage {
            changes: std::mem::take(&mut self.changes),
            continuation: self.continuation().to_string(),
            is_end,
            at: self.reading.at.clone(),
            charge: self.charge,
        })
    }

    fn is_full(&self) -> bool {
        let items_max = self.request.items_max.unwrap_or(PAGE_ITEMS).max(1);
        self.changes.len() >= items_max || self.bytes >= PAGE_BYTES
    }

    /// Gives what one part has, from where its reader has come to.
    fn part(&mut self, slice: &Slice<P>, part: &Part) -> Result<Ended> {
        if self.request.mode == ChangeMode::AllVersions {
            self.check_recorded(slice, part)?;
        }
        let mut walk = Walk::new(slice, part, self.request.mode)?;
        let mut done = part.lsn;
        loop {
            let rows = walk.next(self.room())?;
            if rows.is_empty() {
                return Ok(Ended::AtTheEnd);
            }
            let is_overdue = self.reading.is_overdue();
            let mut given = self.load(slice, &rows)?.into_iter();
            for row in rows {
                if row.lsn > done {
                    // Keeps F2: a page ends between two commits.
                    if (self.is_full() || is_overdue) && done > part.lsn {
                        return Ok(Ended::After(done));
                    }
                    done = row.lsn;
                }
                if row.found.is_some()
                    && let Some(change) = given.next().flatten()
                {
                    self.give(change);
                }
            }
        }
    }

    /// How many more documents the page takes; never none, since a commit may not be done.
    fn room(&self) -> usize {
        let items_max = self.request.items_max.unwrap_or(PAGE_ITEMS);
        items_max.saturating_sub(self.changes.len()).clamp(1, LOADED)
    }

    fn give(&mut self, change: Change) {
        let previous = change.version.as_ref().and_then(|version| version.previous.as_ref());
        let image = previous.and_then(|previous| previous.image.as_ref());
        let size = change.current.as_ref().map_or(0, Bytes::len) + image.map_or(0, Bytes::len);
        self.bytes += size;
        self.charge += Charge::load(size) + Charge::output(size);
        self.changes.push(change);
    }

    /// The changes of some rows that were found; nothing where there is nothing to see any more.
    fn load(&self, slice: &Slice<P>, rows: &[Row]) -> Result<Vec<Option<Change>>> {
        let found = rows.iter().filter_map(|row| Some((row.lsn, row.found.as_ref()?)));
        match self.request.mode {
            ChangeMode::AllVersions => found.map(|(lsn, row)| self.version(lsn, row)).collect(),
            ChangeMode::LatestVersion => {
                let (lsns, places): (Vec<u64>, Vec<&[u8]>) =
                    found.map(|(lsn, place)| (lsn, &place[..])).unzip();
                let items = self.reading.load(slice, &places)?.into_iter().zip(lsns);
                let change = |(item, lsn): (Option<crate::row::Item>, u64)| {
                    let item = item.filter(|item| self.is_wanted(item.header.ts))?;
                    let current = Some(item.document.text());
                    Some(Change { lsn, ts: item.header.ts, current, version: None })
                };
                Ok(items.map(change).collect())
            }
        }
    }

    fn version(&self, lsn: u64, row: &Bytes) -> Result<Option<Change>> {
        let event = Event::decode(row)?;
        if !self.is_wanted(event.ts) {
            return Ok(None);
        }
        let (partition, id) =
            PartitionPrefix::of(&event.place).ok_or_else(|| corrupt("place of an event"))?;
        let id = String::from_utf8(id.to_vec()).map_err(|_| corrupt("id of an event"))?;
        let key = partition.partition_key().ok_or_else(|| corrupt("key of an event"))?;
        let previous = event.previous.map(|previous| PreviousVersion {
            lsn: previous.lsn,
            image: previous.image.map(|document| document.text()),
        });
        let current = event.current.map(|document| document.text());
        let version = Some(ChangeVersion { kind: event.kind, previous, id, key });
        Ok(Some(Change { lsn, ts: event.ts, current, version }))
    }

    fn is_wanted(&self, ts: u64) -> bool {
        self.request.after_s.is_none_or(|second| ts > second)
    }

    /// Whether every event of a part is there to be read, from where its reader has come to.
    fn check_recorded(&self, slice: &Slice<P>, part: &Part) -> Result<()> {
        let after = part.lsn;
        if after == slice.snapshot.lsn() {
            return Ok(());
        }
        let recorded = Recorded::of(&slice.snapshot)?;
        let mut is_recorded = recorded.is_some_and(|since| after >= since.within(&part.epk));
        let (from, to) = (key::event(after + 1, 0), key::all_of(Kind::Event).1);
        slice.snapshot.scan(
            Bound::Included(&from[..]),
            Bound::Excluded(&to[..]),
            Direction::Forward,
            &mut |_, row| {
                let is_inside = |place: &[u8]| part.from[..] <= *place && *place < part.to[..];
                if Event::place_of(row).is_ok_and(|place| !is_inside(place)) {
                    return ControlFlow::Continue(());
                }
                // What is not swept yet is forgotten all the same.
                is_recorded &= Event::ts_of(row)
                    .is_ok_and(|ts| !self.reading.container.is_past_retention(ts, self.now_s));
                ControlFlow::Break(())
            },
        )?;
        if is_recorded {
            return Ok(());
        }
        Err(Error::bad_request(
            "the continuation of the change feed is older than its retention: what happened since \
             then is no longer recorded; begin again from now",
        ))
    }

    fn continuation(&self) -> Continuation {
        let first = self.parts.front().map(|part| part.epk.min.clone());
        let mut parts: Vec<&Part> = self.parts.iter().collect();
        parts.sort_by(|left, right| left.epk.min.cmp(&right.epk.min));
        let mut slices: Vec<(usize, EpkRange, u64)> = Vec::new();
        for part in parts {
            match slices.last_mut() {
                Some((slice, epk, lsn)) if (*slice, *lsn) == (part.slice, part.lsn) => {
                    epk.max = part.epk.max.clone();
                }
                _ => slices.push((part.slice, part.epk.clone(), part.lsn)),
            }
        }
        if let [(_, _, lsn)] = slices[..] {
            return Continuation::Everywhere(lsn);
        }
        let offset = slices.iter().rposition(|(_, epk, _)| first.as_ref() >= Some(&epk.min));
        let slices: Vec<(EpkRange, u64)> =
            slices.into_iter().map(|(_, epk, lsn)| (epk, lsn)).collect();
        match Slices::new(&slices, offset.unwrap_or(0)) {
            Some(slices) => Continuation::Slices(slices),
            // Nothing is in the scope; still the client learns at which version that was so.
            None => Continuation::Everywhere(self.reading.at.first().map_or(0, |at| at.lsn)),
        }
    }
}

/// A row of the feed: the commit, and the place or event if it is of the part that is read.
struct Row {
    lsn: u64,
    found: Option<Bytes>,
}

/// Goes over the rows of the feed in one slice.
struct Walk<'w, P> {
    slice: &'w Slice<P>,
    part: &'w Part,
    mode: ChangeMode,
    /// The row that it has come to.
    from: Option<Vec<u8>>,
    /// What is left of the rows, where they are known without a look at the feed.
    known: Option<VecDeque<Row>>,
}

/// A logical partition of no more than this is looked through whole, where the feed would be longer.
const PARTITION_ITEMS: u64 = 1_000;
const PARTITION_BYTES: u64 = 16 * 1024 * 1024;

impl<'w, P: Snapshot> Walk<'w, P> {
    fn new(slice: &'w Slice<P>, part: &'w Part, mode: ChangeMode) -> Result<Self> {
        let mut walk = Walk { slice, part, mode, from: None, known: None };
        if let Some(partition) = &slice.partition
            && mode == ChangeMode::LatestVersion
            && walk.is_short(partition)?
        {
            walk.known = Some(walk.rows_of_partition()?);
        }
        Ok(walk)
    }

    /// Whether a partition holds far less than was committed since its reader last looked.
    fn is_short(&self, partition: &PartitionPrefix) -> Result<bool> {
        let row = self.slice.snapshot.get(&partition.row(Kind::Partition))?;
        let counters =
            row.map_or(Ok(PartitionCounters::default()), |row| PartitionCounters::decode(&row))?;
        let commits = self.slice.snapshot.lsn() - self.part.lsn;
        Ok(counters.items <= PARTITION_ITEMS
            && counters.bytes <= PARTITION_BYTES
            && counters.items.saturating_mul(8) < commits)
    }

    /// The documents of a partition in the order of the feed.
    fn rows_of_partition(&self) -> Result<VecDeque<Row>> {
        let (from, to) = (key::item(&self.part.from), key::item(&self.part.to));
        let mut found = Vec::new();
        let mut trouble = None;
        self.slice.snapshot.scan(
            Bound::Included(&from[..]),
            Bound::Excluded(&to[..]),
            Direction::Forward,
            &mut |key, row| {
                match ItemHeader::decode(row) {
                    Ok(header) if header.lsn > self.part.lsn => {
                        let place = Bytes::copy_from_slice(&key[1..]);
                        found.push((header.lsn, header.commit_ordinal, place));
                    }
                    Ok(_) => {}
                    Err(error) => trouble = Some(error),
                }
                if trouble.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            },
        )?;
        found.sort();
        let row = |(lsn, _, place)| Row { lsn, found: Some(place) };
        trouble.map_or_else(|| Ok(found.into_iter().map(row).collect()), Err)
    }

    /// The next rows, in which at most so many were found; none at the end.
    fn next(&mut self, found_max: usize) -> Result<Vec<Row>> {
        if let Some(known) = &mut self.known {
            return Ok(known.drain(..found_max.min(known.len())).collect());
        }
        let (kind, first) = match self.mode {
            ChangeMode::LatestVersion => (Kind::Feed, key::feed(self.part.lsn + 1, 0)),
            ChangeMode::AllVersions => (Kind::Event, key::event(self.part.lsn + 1, 0)),
        };
        let end = key::all_of(kind).1;
        let from = match &self.from {
            None => Bound::Included(&first[..]),
            Some(last) => Bound::Excluded(&last[..]),
        };
        let (mut rows, mut last) = (Vec::new(), None);
        let (mut found, mut bytes) = (0, 0);
        let mut trouble = None;
        let mut take = |key: &[u8], value: &Bytes| -> Result<bool> {
            let lsn = key::lsn_of(key).ok_or_else(|| corrupt("feed pointer"))?;
            let place = match kind {
                Kind::Event => Event::place_of(value)?,
                _ => &value[..],
            };
            let is_inside = self.part.from[..] <= *place
                && *place < self.part.to[..]
                && self.slice.has_prefix(place)?;
            if is_inside {
                found += 1;
                bytes += value.len();
            }
            rows.push(Row { lsn, found: is_inside.then(|| value.clone()) });
            last = Some(key.to_vec());
            Ok(found < found_max && bytes < LOADED_BYTES && rows.len() < LOOKED_AT)
        };
        self.slice.snapshot.scan(
            from,
            Bound::Excluded(&end[..]),
            Direction::Forward,
            &mut |key, value| match take(key, value) {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(()),
                Err(error) => {
                    trouble = Some(error);
                    ControlFlow::Break(())
                }
            },
        )?;
        if let Some(error) = trouble {
            return Err(error);
        }
        self.from = last.or(self.from.take());
        Ok(rows)
    }
}
