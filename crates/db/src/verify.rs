//! Checks that everything stored fits together; behind `orrery verify`.
//!
//! Every document must be readable and stand where its key says, with exactly one feed pointer, one
//! entry by resource id, its unique keys, its index entries and its place in the expiry queue; no such
//! row may stand alone; and the counters must agree with what is there. Where events are recorded,
//! the event of every document's last write must be there and hold the document.
//!
//! Index entries are many and lie in the order of their values, so they are not looked up document by
//! document: those that documents should have and those that are there are summed up and the sums
//! compared. Only where they differ are documents looked at once more, to name those that lack one.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use storage::{Direction, RangeStore, Snapshot};
use value::{EpkRange, Value, murmur3_x64_128};

use crate::change_feed::event::Event;
use crate::change_feed::recorded::Recorded;
use crate::container::Container;
use crate::database::Db;
use crate::index::entry;
use crate::index::own::{self, OwnKeys};
use crate::index::shape::{self, ShapeId, ShapeSet};
use crate::index::state::{self, InForce};
use crate::key::{self, Kind, PartitionPrefix};
use crate::row::{self, Item, Own, PartitionCounters, RangeHeader};
use crate::transaction::expiry_row;
use crate::{Result, unique};

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Containers looked at.
    pub containers: u64,
    /// Ranges looked at.
    pub ranges: u64,
    /// Documents looked at.
    pub documents: u64,
    /// What is wrong, in words; empty if all is well.
    pub problems: Vec<String>,
}

/// Beyond this many problems the rest is not listed.
const PROBLEMS_MAX: usize = 1_000;

impl<S: RangeStore> Db<S> {
    /// Checks all containers; tells the caller after each range how many documents it has seen.
    pub fn verify(&self, mut progress: impl FnMut(&Verified)) -> Result<Verified> {
        let mut verified = Verified::default();
        let containers: Vec<_> = self.catalog.load().containers().cloned().collect();
        for container in containers {
            verified.containers += 1;
            for range in &container.ranges {
                let name = format!("{} range {}", container.name_path(), range.id);
                let snapshot = self.store.snapshot(range.storage)?;
                let mut check = Check {
                    container: &container,
                    snapshot: &snapshot,
                    name,
                    verified: &mut verified,
                    counts: Counts::default(),
                    partitions: BTreeMap::new(),
                    in_force: None,
                    recorded: None,
                    epk: range.epk.clone(),
                    shapes: BTreeMap::new(),
                };
                check.range()?;
                verified.ranges += 1;
                progress(&verified);
            }
        }
        Ok(verified)
    }
}

#[derive(Default)]
struct Counts {
    items: u64,
    bytes: u64,
    unqueued: u64,
    queued: u64,
    unique: u64,
    entries: Sum,
    own_entries: Sum,
    shaped: Sum,
}

/// What many keys come to, in whatever order they are added.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    of_hashes: u128,
}

impl Sum {
    fn add(&mut self, key: &[u8], row: &[u8]) {
        self.count += 1;
        // Rows are a byte at most, so this is one number for each key and row.
        let seed = row.iter().fold(row.len() as u32, |seed, byte| seed << 8 | u32::from(*byte));
        let hash = u128::from_le_bytes(murmur3_x64_128(key, seed));
        self.of_hashes = self.of_hashes.wrapping_add(hash);
    }
}

struct Check<'a, P> {
    container: &'a Arc<Container>,
    snapshot: &'a P,
    name: String,
    verified: &'a mut Verified,
    counts: Counts,
    partitions: BTreeMap<PartitionPrefix, PartitionCounters>,
    /// Which definition of the index holds for which document.
    in_force: Option<InForce>,
    /// The commit since which all events are recorded.
    recorded: Option<Recorded>,
    /// Where the documents of the range lie.
    epk: EpkRange,
    /// How many documents were found of each shape.
    shapes: BTreeMap<ShapeId, u64>,
}

impl<P: Snapshot> Check<'_, P> {
    fn range(&mut self) -> Result<()> {
        let Some(header) = self.snapshot.get(&key::header())? else {
            self.problem("has no header");
            return Ok(());
        };
        let Ok(header) = RangeHeader::decode(&header) else {
            self.problem("has a header that cannot be read");
            return Ok(());
        };
        self.in_force(&header)?;
        self.recorded = Recorded::of(self.snapshot)?;
        self.each(Kind::Event, |check, key, row| {
            check.event(key, row);
            Ok(())
        })?;
        self.each(Kind::Item, |check, key, row| check.item(key, row))?;
        self.header(&header);
        self.partitions()?;
        self.shapes()?;
        self.found_by()?;
        let counts = &self.counts;
        let shapes = self.shapes.len() as u64;
        let is_building = |counters: &&PartitionCounters| counters.own == Own::Building;
        let building = self.partitions.values().filter(is_building).count() as u64;
        for (kind, what, expected) in [
            (Kind::Rid, "entries by resource id", counts.items),
            (Kind::Feed, "feed pointers", counts.items),
            (Kind::Expiry, "entries in the expiry queue", counts.queued),
            (Kind::Unique, "unique keys", counts.unique),
            (Kind::Purge, "purges", header.purges),
            (Kind::EventsSince, "starts of recorded events", u64::from(header.records_events)),
            (Kind::ShapeDefinition, "definitions of shapes", shapes),
            (Kind::IndexState, "index states", u64::from(!header.indexed.is_settled())),
            (Kind::OwnState, "partitions that are given entries of their own", building),
        ] {
            let mut found = 0;
            self.each(kind, |_, _, _| {
                found += 1;
                Ok(())
            })?;
            if found != expected {
                self.problem(&format!("has {found} {what}, expected {expected}"));
            }
        }
        Ok(())
    }

    fn each(
        &mut self,
        kind: Kind,
        mut visit: impl FnMut(&mut Self, &[u8], &Bytes) -> Result<()>,
    ) -> Result<()> {
        let (from, to) = key::all_of(kind);
        let snapshot = self.snapshot;
        let mut result = Ok(());
        snapshot.scan(
            Bound::Included(&from[..]),
            Bound::Excluded(&to[..]),
            Direction::Forward,
            &mut |key, row| {
                result = visit(self, key, row);
                if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            },
        )?;
        result
    }

    fn item(&mut self, key: &[u8], row: &Bytes) -> Result<()> {
        let place = &key[1..];
        self.verified.documents += 1;
        let Some((partition, id)) = PartitionPrefix::of(place) else {
            self.problem(&format!("has a document at a place that cannot be read: {place:?}"));
            return Ok(());
        };
        let id = String::from_utf8_lossy(id).into_owned();
        let Ok(item) = Item::decode(row) else {
            self.problem(&format!("has a document that cannot be read: '{id}'"));
            return Ok(());
        };
        let size = item.document.text().len() as u64;
        self.counts.items += 1;
        self.counts.bytes += size;
        if !self.partitions.contains_key(&partition) {
            // Which partitions have entries of their own only they themselves can say.
            let row = self.snapshot.get(&partition.row(Kind::Partition))?;
            let own = row.and_then(|row| PartitionCounters::decode(&row).ok()).map(|row| row.own);
            let own = own.unwrap_or_default();
            let counters = PartitionCounters { own, ..PartitionCounters::default() };
            self.partitions.insert(partition.clone(), counters);
        }
        let counters = self.partitions.entry(partition.clone()).or_default();
        counters.items += 1;
        counters.bytes += size;
        self.document(&partition, &id, &item);
        self.pointer(&key::rid(item.header.rid_ordinal), place, &id, "entry by resource id")?;
        let feed = key::feed(item.header.lsn, item.header.commit_ordinal);
        self.pointer(&feed, place, &id, "feed pointer")?;
        if item.header.lsn > self.snapshot.lsn() {
            self.problem(&format!("document '{id}' is newer than its range"));
        }
        if item.header.queued {
            self.counts.queued += 1;
            if self.snapshot.get(&expiry_row(&item.header, place))?.is_none() {
                self.problem(&format!("document '{id}' is not in the expiry queue"));
            }
        } else if item.header.ttl >= 0 {
            self.counts.unqueued += 1;
        }
        if self.recorded.as_ref().is_some_and(|since| item.header.lsn > since.at(place)) {
            self.has_event(place, &id, &item)?;
        }
        self.entries(&partition, place, &id, &item)
    }

    /// The last write of the document is among the events of its commit.
    fn has_event(&mut self, place: &[u8], id: &str, item: &Item) -> Result<()> {
        let (from, to) = (key::event(item.header.lsn, 0), key::event(item.header.lsn + 1, 0));
        let mut found = false;
        self.snapshot.scan(
            Bound::Included(&from[..]),
            Bound::Excluded(&to[..]),
            Direction::Forward,
            &mut |_, row| {
                found = Event::decode(row).is_ok_and(|event| {
                    let current = event.current.map(|document| document.text());
                    event.place == place && current == Some(item.document.text())
                });
                if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        )?;
        if !found {
            self.problem(&format!("the last write of document '{id}' is not among the events"));
        }
        Ok(())
    }

    fn event(&mut self, key: &[u8], row: &Bytes) {
        let Some(lsn) = key::lsn_of(key) else {
            self.problem("has an event whose key cannot be read");
            return;
        };
        let (from, to) = key::items_between(&self.epk.min, &self.epk.max);
        match Event::decode(row) {
            Err(_) => self.problem(&format!("has an event of commit {lsn} that cannot be read")),
            Ok(event) if event.place[..] < from[1..] || event.place[..] >= to[1..] => {
                self.problem(&format!("has an event of commit {lsn} that is not of its documents"));
            }
            Ok(_) if lsn > self.snapshot.lsn() => {
                self.problem(&format!("has an event of commit {lsn}, which is yet to come"));
            }
            Ok(_) => {}
        }
    }

    /// The document says itself where it belongs, and owns its unique keys.
    fn document(&mut self, partition: &PartitionPrefix, id: &str, item: &Item) {
        let Ok(Value::Object(document)) = Value::parse(&item.document.text()) else {
            self.problem(&format!("document '{id}' is not JSON"));
            return;
        };
        if document.get("id").and_then(Value::as_str) != Some(id) {
            self.problem(&format!("document '{id}' has another id inside"));
        }
        let key = self.container.extract_key(&document);
        if PartitionPrefix::new(&self.container.epk(&key), &key) != *partition {
            self.problem(&format!("document '{id}' is in the wrong partition"));
        }
        for row in unique::rows_for(self.container, partition, &document) {
            self.counts.unique += 1;
            match self.snapshot.get(&row) {
                Ok(Some(owner)) if owner == id.as_bytes() => {}
                _ => self.problem(&format!("document '{id}' does not own its unique key")),
            }
        }
    }

    /// Finds out by which definitions the documents of the range are indexed.
    fn in_force(&mut self, header: &RangeHeader) -> Result<()> {
        let snapshot = self.snapshot;
        match InForce::load(&self.container.index, header, |key| snapshot.get(key)) {
            Ok(Some(in_force)) => self.in_force = Some(in_force),
            Ok(None) => self.problem("is indexed by a definition that its container does not have"),
            Err(_) if snapshot.get(&state::row())?.is_none() => {
                self.problem("does not say how far it has been indexed");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Adds up the entries that the definition asks for.
    fn entries(
        &mut self,
        partition: &PartitionPrefix,
        place: &[u8],
        id: &str,
        item: &Item,
    ) -> Result<()> {
        let Some(in_force) = &self.in_force else { return Ok(()) };
        let Ok(terms) = in_force.at(place).clone().terms_of(item) else {
            self.problem(&format!("document '{id}' cannot be indexed"));
            return Ok(());
        };
        for term in terms.iter().flat_map(|terms| terms.iter()) {
            let row = entry::row(term.is_respelled);
            self.counts.entries.add(&key::keyed(Kind::Index, &[term.key, place]), &row);
        }
        if self.has_own(partition, id)? {
            let is_listed = own::is_listed(place, &terms.each_ref());
            if !is_listed {
                self.partitions.entry(partition.clone()).or_default().unlisted += 1;
            }
            let own = OwnKeys::of(partition);
            for term in terms.iter().flat_map(|terms| terms.iter()).filter(|_| is_listed) {
                let row = entry::row(term.is_respelled);
                self.counts.own_entries.add(&own.key(term.key, place), &row);
            }
        }
        for shape in terms.iter().filter_map(|terms| terms.shape.as_ref()) {
            self.counts.shaped.add(&shape::entry(shape.id, place), &[]);
            *self.shapes.entry(shape.id).or_default() += 1;
            let set = self.snapshot.get(&shape::definition_row(shape.id))?;
            let set = set.and_then(|row| ShapeSet::decode(&row).ok());
            if set.as_ref() != Some(&shape.set) {
                self.problem(&format!("the shape of document '{id}' is not defined"));
            }
        }
        Ok(())
    }

    /// Whether a document has entries of its own partition, or counts as one that should.
    fn has_own(&self, partition: &PartitionPrefix, id: &str) -> Result<bool> {
        let own = self.partitions.get(partition).map_or(Own::None, |counters| counters.own);
        Ok(match own {
            Own::None => false,
            Own::Ready => true,
            Own::Building => {
                let cursor = self.snapshot.get(&own::state_row(partition))?;
                cursor.is_some_and(|cursor| *id.as_bytes() <= cursor[..])
            }
        })
    }

    /// The entries and shapes that are there are those that the documents should have.
    fn found_by(&mut self) -> Result<()> {
        let mut is_wrong = false;
        for (kind, what, expected) in [
            (Kind::Index, "index entries", self.counts.entries),
            (Kind::Own, "index entries of single partitions", self.counts.own_entries),
            (Kind::Shape, "documents under their shapes", self.counts.shaped),
        ] {
            let mut found = Sum::default();
            self.each(kind, |_, key, row| {
                found.add(key, row);
                Ok(())
            })?;
            is_wrong |= found != expected;
            if found.count != expected.count {
                let (found, expected) = (found.count, expected.count);
                self.problem(&format!("has {found} {what}, expected {expected}"));
            }
        }
        if is_wrong {
            self.each(Kind::Item, |check, key, row| check.lacking(&key[1..], row))?;
        }
        Ok(())
    }

    /// Tells what a document lacks to be found by.
    fn lacking(&mut self, place: &[u8], row: &Bytes) -> Result<()> {
        let (Some(in_force), Ok(item)) = (&self.in_force, Item::decode(row)) else { return Ok(()) };
        let Ok(terms) = in_force.at(place).clone().terms_of(&item) else { return Ok(()) };
        let mut missing = 0;
        for term in terms.iter().flat_map(|terms| terms.iter()) {
            let key = key::keyed(Kind::Index, &[term.key, place]);
            let row = entry::row(term.is_respelled);
            missing += u64::from(self.snapshot.get(&key)? != Some(row));
        }
        let mut missing_own = 0;
        if let Some((partition, id)) = PartitionPrefix::of(place)
            && own::is_listed(place, &terms.each_ref())
            && self.has_own(&partition, &String::from_utf8_lossy(id))?
        {
            let own = OwnKeys::of(&partition);
            for term in terms.iter().flat_map(|terms| terms.iter()) {
                let row = entry::row(term.is_respelled);
                missing_own +=
                    u64::from(self.snapshot.get(&own.key(term.key, place))? != Some(row));
            }
        }
        let mut is_under_shape = true;
        for shape in terms.iter().filter_map(|terms| terms.shape.as_ref()) {
            is_under_shape &= self.snapshot.get(&shape::entry(shape.id, place))?.is_some();
        }
        let id = PartitionPrefix::of(place).map(|(_, id)| String::from_utf8_lossy(id).into_owned());
        let id = id.unwrap_or_default();
        if missing > 0 {
            self.problem(&format!("document '{id}' lacks {missing} of its index entries"));
        }
        if missing_own > 0 {
            let lacks = format!("lacks {missing_own} of the index entries of its partition");
            self.problem(&format!("document '{id}' {lacks}"));
        }
        if !is_under_shape {
            self.problem(&format!("document '{id}' is not under its shape"));
        }
        Ok(())
    }

    fn shapes(&mut self) -> Result<()> {
        let mut stored = BTreeMap::new();
        self.each(Kind::ShapeCount, |check, key, row| {
            match (key[1..].try_into(), row::decode_u64(row)) {
                (Ok(shape), Ok(count)) => {
                    stored.insert(ShapeId(shape), count);
                }
                _ => check.problem("has a count of a shape that cannot be read"),
            }
            Ok(())
        })?;
        if stored != self.shapes {
            self.problem("has counts of shapes that differ from its documents");
        }
        Ok(())
    }

    fn pointer(&mut self, row: &[u8], place: &[u8], id: &str, what: &str) -> Result<()> {
        if self.snapshot.get(row)?.is_none_or(|found| found != place) {
            self.problem(&format!("document '{id}' has no {what}"));
        }
        Ok(())
    }

    fn header(&mut self, header: &RangeHeader) {
        let counts = &self.counts;
        let mut wrong = Vec::new();
        for (what, stored, found) in [
            ("documents", header.items, counts.items),
            ("bytes", header.bytes, counts.bytes),
            ("documents outside the expiry queue", header.unqueued, counts.unqueued),
        ] {
            if stored != found {
                wrong.push(format!("counts {stored} {what}, but there are {found}"));
            }
        }
        if header.container != self.container.rid {
            wrong.push("belongs to another container".to_owned());
        }
        for problem in wrong {
            self.problem(&problem);
        }
    }

    fn partitions(&mut self) -> Result<()> {
        let mut stored = BTreeMap::new();
        self.each(Kind::Partition, |check, key, row| {
            match (PartitionPrefix::of(&key[1..]), PartitionCounters::decode(row)) {
                (Some((partition, _)), Ok(counters)) => {
                    stored.insert(partition, counters);
                }
                _ => check.problem("has partition counters that cannot be read"),
            }
            Ok(())
        })?;
        if stored != self.partitions {
            self.problem("has partition counters that differ from its documents");
        }
        Ok(())
    }

    fn problem(&mut self, what: &str) {
        if self.verified.problems.len() < PROBLEMS_MAX {
            self.verified.problems.push(format!("{} {what}", self.name));
        }
    }
}
