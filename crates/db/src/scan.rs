//! Walks over the documents of a container in the order of their places.
//!
//! A scan reads fixed versions of the ranges in chunks, so that it can stop anywhere and never holds
//! more than a little. Documents that have expired or were purged are passed over.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use storage::{Direction, RangeId, RangeStore, Snapshot, Visit};
use value::{EpkRange, PartitionKey};

use crate::clock::Clock;
use crate::container::{Container, Range};
use crate::database::Db;
use crate::index::entry::Component;
use crate::index::own::OwnKeys;
use crate::key::{self, PartitionPrefix};
use crate::ration::{Effort, Ration, Rationed};
use crate::routing::KeyRange;
use crate::row::{self, Item, ItemHeader, Own, PartitionCounters, RangeHeader, corrupt};
use crate::session::{Position, Session};
use crate::{Error, Kind, Result};

/// Which documents of a container a request is about. What is given is intersected.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// One logical partition, or the beginning of a hierarchical key.
    pub key: Option<PartitionKey>,
    /// One range, as clients name it.
    pub range: Option<String>,
    /// A slice of the hash space.
    pub epk: Option<EpkRange>,
    /// Whether the request may look at several partitions without saying which.
    pub cross_partition: bool,
}

impl Scope {
    /// Whether nothing confines the request although it may not cross partitions.
    pub(crate) fn is_everything(&self) -> bool {
        !self.cross_partition && self.is_unconfined()
    }

    /// Whether nothing confines the request.
    pub(crate) fn is_unconfined(&self) -> bool {
        self.key.is_none() && self.range.is_none() && self.epk.is_none()
    }
}

/// Where a scan starts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start<'a> {
    Beginning,
    /// With the document at this place, if it is still there.
    At(&'a [u8]),
    After(&'a [u8]),
}

/// A part of a range that is to be read, at one version.
pub(crate) struct Slice<P> {
    pub(crate) snapshot: P,
    pub(crate) range: Arc<Range>,
    /// Where in the hash space it lies.
    pub(crate) epk: EpkRange,
    /// The places of the slice: from the first bound up to, but without, the second.
    pub(crate) from: Vec<u8>,
    pub(crate) to: Vec<u8>,
    /// The one logical partition that the slice is, if it is one.
    pub(crate) partition: Option<PartitionPrefix>,
    /// Only documents whose key begins so: equal hashes alone do not prove it.
    prefix: Option<PartitionKey>,
    /// Purged partitions, with the lsn up to which their documents are gone.
    purged: Arc<HashMap<Vec<u8>, u64>>,
    /// The header of the range, once somebody has asked.
    header: OnceCell<RangeHeader>,
    /// What the range and the slice hold, once somebody has asked.
    counts: OnceCell<Counts>,
}

/// How much is stored in a slice and in its range.
#[derive(Clone, Copy)]
struct Counts {
    range_documents: u64,
    /// At most so many and so much, where no counter says it of the slice.
    documents: u64,
    bytes: u64,
    /// Whether the slice is a partition with index entries of its own.
    has_own: bool,
}

/// A scope of a container at fixed versions of its ranges, in the order of the hash space.
pub(crate) struct Reading<P> {
    pub(crate) container: Arc<Container>,
    pub(crate) slices: Vec<Slice<P>>,
    /// The versions that are read.
    pub(crate) at: Vec<Position>,
    now_s: u64,
    clock: Arc<dyn Clock>,
    deadline_ms: u64,
}

/// How long a request may read: longer than a page that can be cut takes.
pub(crate) const READING_MS: u64 = 10_000;

/// The documents of a scope, one after the other.
pub(crate) struct Scan<'r, P> {
    reading: &'r Reading<P>,
    /// The slices that are not read to their end, and where the first of them goes on.
    slices: std::ops::Range<usize>,
    from: Bound<Vec<u8>>,
    chunk: VecDeque<Visited>,
    /// At most so many rows are read for the next chunk.
    chunk_rows: usize,
}

/// A document that the scan came by.
pub(crate) struct Visited {
    pub(crate) place: Bytes,
    pub(crate) item: Item,
}

/// A range at the version that is read.
#[derive(Clone)]
struct Opened<P> {
    snapshot: P,
    purged: Arc<HashMap<Vec<u8>, u64>>,
}

/// So few documents are held in memory to be given in the order of their creation.
const FEW_ITEMS: u64 = 256;
const FEW_BYTES: u64 = 4 * 1024 * 1024;

/// Many a scan ends early, so the first chunk is small; a long one pays for few starts.
const CHUNK_ROWS_FIRST: usize = 64;
const CHUNK_ROWS_MAX: usize = 1_024;
const CHUNK_BYTES: usize = 1024 * 1024;

impl<S: RangeStore> Db<S> {
    /// Fixes what a request reads. Of the scope only the parts that can contribute are read.
    pub(crate) fn reading(
        &self,
        container: &Arc<Container>,
        scope: &Scope,
        parts: Option<&[KeyRange]>,
        session: Option<&Session>,
        effort: Effort,
    ) -> Result<Reading<Rationed<S::Snapshot>>> {
        let ration = Ration::of(effort);
        let mut opened: HashMap<RangeId, Opened<Rationed<S::Snapshot>>> = HashMap::new();
        let mut slices = Vec::new();
        let mut at = Vec::new();
        for interval in intervals(container, scope, parts)? {
            let Interval { range, epk, from, to, partition, prefix } = interval;
            let Opened { snapshot, purged } = match opened.entry(range.storage) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(unknown) => {
                    let snapshot = self.store.snapshot(range.storage)?;
                    let snapshot = Rationed { snapshot, ration: ration.clone() };
                    let position = container.position(&range, snapshot.lsn());
                    if let Some(session) = session {
                        session.check(&position)?;
                    }
                    at.push(position);
                    let may_be_purged = range.purges.may_concern(snapshot.lsn());
                    let purged = if may_be_purged { purged(&snapshot)? } else { HashMap::new() };
                    unknown.insert(Opened { snapshot, purged: Arc::new(purged) }).clone()
                }
            };
            slices.push(Slice {
                snapshot,
                range,
                epk,
                from,
                to,
                partition,
                prefix,
                purged,
                header: OnceCell::new(),
                counts: OnceCell::new(),
            });
        }
        if at.is_empty() {
            // Nothing is read, and still the client learns at which version nothing was found.
            let named = scope.range.as_deref().map(|id| container.range(id)).transpose()?;
            let range = named.unwrap_or(&container.ranges[0]);
            let position = container.position(range, self.store.snapshot(range.storage)?.lsn());
            if let Some(session) = session {
                session.check(&position)?;
            }
            at.push(position);
        }
        let now_s = self.clock.now_s();
        let clock = self.clock.clone();
        let deadline_ms = clock.now_ms().saturating_add(READING_MS);
        let container = container.clone();
        Ok(Reading { container, slices, at, now_s, clock, deadline_ms })
    }
}

impl<P: Snapshot> Slice<P> {
    /// Whether a counter says how many documents are stored in the slice.
    pub(crate) fn is_counted(&self) -> bool {
        let (from, to) = places(key::items_between(&self.range.epk.min, &self.range.epk.max));
        self.partition.is_some() || (&self.from, &self.to) == (&from, &to)
    }

    /// Whether a place has the beginning of the key that the slice is about, where it is about one.
    pub(crate) fn has_prefix(&self, place: &[u8]) -> Result<bool> {
        if self.prefix.is_none() {
            return Ok(true);
        }
        let (partition, _) =
            PartitionPrefix::of(place).ok_or_else(|| corrupt("place of a document"))?;
        Ok(begins_with(&partition, self.prefix.as_ref()))
    }

    /// How many documents are stored in the whole range.
    pub(crate) fn range_documents(&self) -> Result<u64> {
        Ok(self.counts()?.range_documents)
    }

    /// How many documents are stored in the slice; at most so many, where no counter says it.
    pub(crate) fn documents(&self) -> Result<u64> {
        Ok(self.counts()?.documents)
    }

    /// What the range says of itself.
    pub(crate) fn header(&self) -> Result<&RangeHeader> {
        if let Some(header) = self.header.get() {
            return Ok(header);
        }
        let row = self.snapshot.get(&key::header())?;
        let header = RangeHeader::decode(&row.ok_or_else(|| corrupt("range header is missing"))?)?;
        Ok(self.header.get_or_init(|| header))
    }

    fn counts(&self) -> Result<Counts> {
        if let Some(counts) = self.counts.get() {
            return Ok(*counts);
        }
        let in_range = self.header()?;
        let range_documents = in_range.items;
        let counts = match &self.partition {
            None => {
                let (documents, bytes) = (in_range.items, in_range.bytes);
                Counts { range_documents, documents, bytes, has_own: false }
            }
            Some(partition) => {
                let row = self.snapshot.get(&partition.row(key::Kind::Partition))?;
                let counters = row.map(|row| PartitionCounters::decode(&row)).transpose()?;
                let PartitionCounters { items, bytes, own, unlisted } =
                    counters.unwrap_or_default();
                let has_own = own == Own::Ready && unlisted == 0;
                Counts { range_documents, documents: items, bytes, has_own }
            }
        };
        Ok(*self.counts.get_or_init(|| counts))
    }

    /// Whether the slice is a partition with index entries of its own.
    pub(crate) fn has_own(&self) -> Result<bool> {
        Ok(self.partition.is_some() && self.counts()?.has_own)
    }

    /// Walks over the index entries between two bounds, of which those outside of the slice may be left
    /// out: of its own entries where it has such.
    pub(crate) fn scan_entries(
        &self,
        layout: &[Component],
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<()> {
        let own = match &self.partition {
            Some(partition) if self.has_own()? => OwnKeys::of(partition),
            _ => return Ok(self.snapshot.scan(from, to, direction, visit)?),
        };
        let (from, to) = (own.bound(from, layout), own.bound(to, layout));
        let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        let mut told = Vec::new();
        let mut is_damaged = false;
        self.snapshot.scan(from, to, direction, &mut |key, row| {
            if own.tell(key, layout, &mut told) {
                return visit(&told, row);
            }
            is_damaged = true;
            ControlFlow::Break(())
        })?;
        if is_damaged { Err(corrupt("index entry")) } else { Ok(()) }
    }
}

/// One logical partition of a range, in a version that somebody else has fixed.
pub(crate) struct OnePartition<P> {
    pub(crate) range: Arc<Range>,
    pub(crate) key: PartitionKey,
    pub(crate) partition: PartitionPrefix,
    pub(crate) snapshot: P,
    /// Documents up to this lsn were deleted with their partition.
    pub(crate) purged_up_to: Option<u64>,
    pub(crate) now_s: u64,
}

impl<P: Snapshot> Reading<P> {
    /// Reads one logical partition of a container.
    pub(crate) fn of_partition(
        container: &Arc<Container>,
        one: OnePartition<P>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let OnePartition { range, key, partition, snapshot, purged_up_to, now_s } = one;
        let at = vec![container.position(&range, snapshot.lsn())];
        let (from, to) = places(key::items_of(&partition));
        let purged = purged_up_to.map(|lsn| (partition.row(key::Kind::Purge)[1..].to_vec(), lsn));
        let epk = container.epk(&key);
        let slice = Slice {
            snapshot,
            epk: EpkRange { max: epk.after_prefix(), min: epk },
            range,
            from,
            to,
            partition: Some(partition),
            prefix: None,
            purged: Arc::new(purged.into_iter().collect()),
            header: OnceCell::new(),
            counts: OnceCell::new(),
        };
        let deadline_ms = clock.now_ms().saturating_add(READING_MS);
        let (container, clock) = (container.clone(), clock.clone());
        Reading { container, slices: vec![slice], at, now_s, clock, deadline_ms }
    }

    /// Starts a walk over all documents, in the order of their places.
    pub(crate) fn scan(&self, start: Start<'_>) -> Scan<'_, P> {
        let (place, from) = match start {
            Start::Beginning => (None, Bound::Unbounded),
            Start::At(place) => (Some(place), Bound::Included(key::item(place))),
            Start::After(place) => (Some(place), Bound::Excluded(key::item(place))),
        };
        let first = self.slices.iter().position(|slice| place.is_none_or(|p| *p < slice.to[..]));
        let first = first.unwrap_or(self.slices.len());
        let from = match self.slices.get(first) {
            Some(slice) if place.is_some_and(|place| *place >= slice.from[..]) => from,
            _ => Bound::Unbounded,
        };
        Scan {
            reading: self,
            slices: first..self.slices.len(),
            from,
            chunk: VecDeque::new(),
            chunk_rows: CHUNK_ROWS_FIRST,
        }
    }

    /// Whether the documents are so few that all of them can be held in memory.
    pub(crate) fn is_few(&self) -> Result<bool> {
        let (mut documents, mut bytes) = (0, 0);
        for slice in &self.slices {
            let counts = slice.counts()?;
            documents += counts.documents;
            bytes += counts.bytes;
            if documents > FEW_ITEMS || bytes > FEW_BYTES {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The document of a number, if it is of the scope and still there.
    pub(crate) fn numbered(&self, number: u64) -> Result<Option<Visited>> {
        for slice in &self.slices {
            let Some(place) = slice.snapshot.get(&key::rid(number))? else { continue };
            if place < slice.from || place >= slice.to {
                continue;
            }
            let item = self.load(slice, &[&place])?.pop().flatten();
            return Ok(item.map(|item| Visited { place, item }));
        }
        Ok(None)
    }

    /// Whether the document of a row is there for everybody: not expired, not purged, and of the
    /// scope, as far as the place alone does not say so.
    fn admits(&self, slice: &Slice<P>, place: &[u8], header: &ItemHeader) -> Result<bool> {
        if self.container.is_expired(header, self.now_s) {
            return Ok(false);
        }
        if slice.purged.is_empty() && slice.prefix.is_none() {
            return Ok(true);
        }
        let (partition, _) =
            PartitionPrefix::of(place).ok_or_else(|| corrupt("place of a document"))?;
        let cutoff = slice.purged.get(&partition.row(key::Kind::Purge)[1..]);
        Ok(cutoff.is_none_or(|lsn| header.lsn > *lsn)
            && begins_with(&partition, slice.prefix.as_ref()))
    }

    /// The document of a row, if it is there for everybody.
    fn visit(&self, slice: &Slice<P>, place: &[u8], row: &Bytes) -> Result<Option<Visited>> {
        let header = ItemHeader::decode(row)?;
        if !self.admits(slice, place, &header)? {
            return Ok(None);
        }
        let item = Item::decode_behind(header, row)?;
        Ok(Some(Visited { place: Bytes::copy_from_slice(place), item }))
    }

    /// The documents at some places of a slice, as many as are still there, in the same order.
    pub(crate) fn load(&self, slice: &Slice<P>, places: &[&[u8]]) -> Result<Vec<Option<Item>>> {
        let keys: Vec<Vec<u8>> = places.iter().map(|place| key::item(place)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut rows = vec![None; keys.len()];
        slice.snapshot.get_many(&keys, &mut |offset, row| {
            rows[offset] = row;
            ControlFlow::Continue(())
        })?;
        let load = |(row, place): (Option<Bytes>, &&[u8])| {
            let Some(row) = row else { return Ok(None) };
            let header = ItemHeader::decode(&row)?;
            if !self.admits(slice, place, &header)? {
                return Ok(None);
            }
            Item::decode_behind(header, &row).map(Some)
        };
        rows.into_iter().zip(places).map(load).collect()
    }

    /// Whether the request has taken so long that it should give what it has.
    pub(crate) fn is_overdue(&self) -> bool {
        self.clock.now_ms().saturating_add(READING_MS / 2) > self.deadline_ms
    }

    /// Ends a request that has taken too long.
    pub(crate) fn check_deadline(&self) -> Result<()> {
        if self.clock.now_ms() > self.deadline_ms {
            return Err(Error::new(
                Kind::Timeout,
                "the query took longer than it may; narrow it with a filter that an index serves",
            ));
        }
        Ok(())
    }

    /// Whether every document that is stored in a slice is there for everybody, so that counters
    /// and index entries tell the number of documents.
    pub(crate) fn is_plain(&self) -> bool {
        self.container.policies.default_ttl.is_none()
            && self.slices.iter().all(|slice| slice.purged.is_empty() && slice.prefix.is_none())
    }
}

/// A slice before it is read.
struct Interval {
    range: Arc<Range>,
    epk: EpkRange,
    from: Vec<u8>,
    to: Vec<u8>,
    partition: Option<PartitionPrefix>,
    prefix: Option<PartitionKey>,
}

/// The ranges that a scope touches.
pub(crate) fn ranges_of(container: &Container, scope: &Scope) -> Result<Vec<Arc<Range>>> {
    let mut ranges: Vec<_> =
        intervals(container, scope, None)?.into_iter().map(|interval| interval.range).collect();
    ranges.dedup_by_key(|range| range.storage);
    Ok(ranges)
}

/// The intervals of a scope, in order and apart from each other.
fn intervals(
    container: &Container,
    scope: &Scope,
    parts: Option<&[KeyRange]>,
) -> Result<Vec<Interval>> {
    let named = scope.range.as_deref().map(|id| container.range(id)).transpose()?;
    let within = scope.epk.clone().unwrap_or_else(EpkRange::full);
    let key = scope.key.as_ref().filter(|key| !key.0.is_empty() || is_system(container));
    let keys: Vec<Option<&PartitionKey>> = match (key, parts) {
        (None, Some(parts)) => parts.iter().map(|part| part.key.as_ref()).collect(),
        (key, _) => vec![key],
    };
    let mut intervals = Vec::new();
    for key in keys {
        interval_of(container, key, named, &within, &mut intervals)?;
    }
    intervals.sort_by(|left, right| left.from.cmp(&right.from));
    Ok(intervals)
}

/// Adds the intervals of one key, of the beginning of one, or of everything.
fn interval_of(
    container: &Container,
    key: Option<&PartitionKey>,
    named: Option<&Arc<Range>>,
    within: &EpkRange,
    out: &mut Vec<Interval>,
) -> Result<()> {
    let mut within = within.clone();
    let mut prefix = None;
    match key {
        Some(key) if container.is_prefix(key) => {
            let (min, max) = container.policies.partition_key.prefix_range(key);
            let Some(both) = within.intersect(&EpkRange { min, max }) else { return Ok(()) };
            within = both;
            prefix = Some(key.clone());
        }
        Some(key) => {
            let key = container.full_key(Some(key))?.expect("a key was given");
            let epk = container.epk(&key);
            let range = container.range_of(&epk);
            let is_outside = named.is_some_and(|named| named.id != range.id);
            if !is_outside && within.contains(&epk) {
                let partition = PartitionPrefix::new(&epk, &key);
                let (from, to) = places(key::items_of(&partition));
                let (range, partition) = (range.clone(), Some(partition));
                let epk = EpkRange { max: epk.after_prefix(), min: epk };
                out.push(Interval { range, epk, from, to, partition, prefix });
            }
            return Ok(());
        }
        None => {}
    }
    let ranges = container.ranges.iter();
    for range in ranges.filter(|range| named.is_none_or(|named| named.id == range.id)) {
        if let Some(part) = range.epk.intersect(&within) {
            let (from, to) = places(key::items_between(&part.min, &part.max));
            let (range, prefix) = (range.clone(), prefix.clone());
            out.push(Interval { range, epk: part, from, to, partition: None, prefix });
        }
    }
    Ok(())
}

/// The places in an interval of document keys.
fn places((from, to): (Vec<u8>, Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    (from[1..].to_vec(), to[1..].to_vec())
}

fn is_system(container: &Container) -> bool {
    container.policies.partition_key.system_key
}

/// All purged partitions of a range.
fn purged(snapshot: &impl Snapshot) -> Result<HashMap<Vec<u8>, u64>> {
    let (from, to) = key::all_of(key::Kind::Purge);
    let mut rows = Vec::new();
    snapshot.scan(
        Bound::Included(&from[..]),
        Bound::Excluded(&to[..]),
        Direction::Forward,
        &mut |key, value| {
            rows.push((key[1..].to_vec(), value.clone()));
            ControlFlow::Continue(())
        },
    )?;
    rows.into_iter().map(|(key, row)| Ok((key, row::decode_u64(&row)?))).collect()
}

impl<P: Snapshot> Scan<'_, P> {
    /// The next document, or the end.
    pub(crate) fn next(&mut self) -> Result<Option<Visited>> {
        loop {
            if let Some(visited) = self.chunk.pop_front() {
                return Ok(Some(visited));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Reads the next chunk; says whether there may be more.
    fn fill(&mut self) -> Result<bool> {
        if self.slices.is_empty() {
            return Ok(false);
        }
        let slice = &self.reading.slices[self.slices.start];
        let (start, end) = (key::item(&slice.from), key::item(&slice.to));
        let from = match &self.from {
            Bound::Included(key) => Bound::Included(&key[..]),
            Bound::Excluded(key) => Bound::Excluded(&key[..]),
            Bound::Unbounded => Bound::Included(&start[..]),
        };
        let chunk = &mut self.chunk;
        let (mut rows, mut bytes) = (0, 0);
        let (mut last, mut error) = (None, None);
        let (rows_max, bytes_max) = (self.chunk_rows, CHUNK_BYTES);
        slice.snapshot.scan(
            from,
            Bound::Excluded(&end[..]),
            Direction::Forward,
            &mut |key, row| {
                match self.reading.visit(slice, &key[1..], row) {
                    Ok(visited) => chunk.extend(visited),
                    Err(failed) => error = Some(failed),
                }
                rows += 1;
                bytes += row.len();
                if error.is_none() && rows < rows_max && bytes < bytes_max {
                    return ControlFlow::Continue(());
                }
                last = Some(key.to_vec());
                ControlFlow::Break(())
            },
        )?;
        if let Some(error) = error {
            return Err(error);
        }
        self.chunk_rows = (rows_max * 2).min(CHUNK_ROWS_MAX);
        match last {
            Some(last) => self.from = Bound::Excluded(last),
            // The slice ended before the chunk did.
            None => {
                self.slices.start += 1;
                self.from = Bound::Unbounded;
            }
        }
        Ok(true)
    }
}

/// Whether the key of a partition begins with a prefix: equal hashes alone do not prove it.
fn begins_with(partition: &PartitionPrefix, prefix: Option<&PartitionKey>) -> bool {
    let Some(prefix) = prefix else { return true };
    partition.partition_key().is_some_and(|key| key.0.starts_with(&prefix.0))
}

impl<P> std::fmt::Debug for Slice<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slice").field("range", &self.range.id).finish_non_exhaustive()
    }
}
