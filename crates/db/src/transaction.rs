//! One commit's view of a range: reads, and the rows it will write.
//!
//! Counters are kept here while the writes of a commit are applied and stored once at the end. What
//! is expired or purged but still on disk is *stale*: nobody sees it, and a write that needs its id
//! or unique key removes it first.

use std::collections::BTreeMap;

use bytes::Bytes;
use storage::View;

use crate::change_feed::event::{ChangeKind, Event};
use crate::change_feed::recorded::Recorded;
use crate::charge::Charge;
use crate::container::Container;
use crate::index::own;
use crate::index::shape::{self, Shape, ShapeId};
use crate::index::state::InForce;
use crate::index::update::{self, Stored};
use crate::key::{self, ExpiryClass, PartitionPrefix};
use crate::row::{self, Item, ItemHeader, Own, PartitionCounters, RangeHeader, corrupt};
use crate::{Result, unique};

pub(crate) struct Transaction<'a> {
    pub(crate) view: &'a mut dyn View,
    pub(crate) container: &'a Container,
    pub(crate) header: RangeHeader,
    /// `_ts` of everything that this commit writes.
    pub(crate) ts: u64,
    /// The clock, for expiry; never later than `ts`.
    pub(crate) now_s: u64,
    /// The number of the write that a script makes; see [`Transaction::next_rid_ordinal`].
    pub(crate) script_number: Option<u64>,
    /// Which definition of the index holds for which document.
    pub(crate) in_force: InForce,
    partitions: BTreeMap<PartitionPrefix, Partition>,
    shapes: BTreeMap<ShapeId, ShapeCounter>,
    next_commit_ordinal: u32,
    next_event_ordinal: u32,
    /// The size of the events that were recorded.
    event_bytes: usize,
    changed: bool,
}

/// What a partition says of itself.
struct Partition {
    /// Before this commit.
    stored: PartitionCounters,
    counters: PartitionCounters,
}

/// How many documents have a shape.
struct ShapeCounter {
    shape: Shape,
    /// Before this commit.
    stored: u64,
    count: u64,
}

/// A script that takes longer than this to commit is run anew, so that what it writes is at most so
/// many seconds older than what was written before it.
pub(crate) const SCRIPT_LAG_S: u64 = 300;

/// When a script runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScriptMoment {
    /// The clock, for expiry.
    pub(crate) now_s: u64,
    /// `_ts` of everything that it writes.
    pub(crate) ts: u64,
}

/// What is stored at a place.
pub(crate) enum Found {
    Nothing,
    /// Expired or purged, not yet removed.
    Stale(Box<Item>),
    Live(Box<Item>),
}

impl<'a> Transaction<'a> {
    pub(crate) fn open(
        view: &'a mut dyn View,
        container: &'a Container,
        now_s: u64,
    ) -> Result<Self> {
        let row = view.get(&key::header())?.ok_or_else(|| corrupt("range header is missing"))?;
        let header = RangeHeader::decode(&row)?;
        if header.container != container.rid {
            return Err(corrupt("range of another container"));
        }
        let ts = now_s.max(header.last_ts);
        let in_force = InForce::for_commit(&container.index, &header, view)?;
        Ok(Self {
            view,
            container,
            header,
            ts,
            now_s,
            script_number: None,
            in_force,
            partitions: BTreeMap::new(),
            shapes: BTreeMap::new(),
            next_commit_ordinal: 0,
            next_event_ordinal: 0,
            event_bytes: 0,
            changed: false,
        })
    }

    /// The same for the writes of a script, which have their `_ts` from when it started. It is no
    /// earlier than that of any document that the script could see.
    pub(crate) fn open_for_script(
        view: &'a mut dyn View,
        container: &'a Container,
        moment: ScriptMoment,
    ) -> Result<Self> {
        let txn = Self::open(view, container, moment.now_s)?;
        Ok(Self { ts: moment.ts, ..txn })
    }

    pub(crate) fn lsn(&self) -> u64 {
        self.view.lsn()
    }

    /// What is stored under an id.
    pub(crate) fn find(&self, partition: &PartitionPrefix, id: &str) -> Result<Found> {
        self.find_at(partition, &partition.place(id))
    }

    pub(crate) fn find_at(&self, partition: &PartitionPrefix, place: &[u8]) -> Result<Found> {
        let Some(row) = self.view.get(&key::item(place))? else { return Ok(Found::Nothing) };
        let item = Box::new(Item::decode(&row)?);
        let stale = self.container.is_expired(&item.header, self.now_s)
            || self.purged_up_to(partition)?.is_some_and(|lsn| item.header.lsn <= lsn);
        Ok(if stale { Found::Stale(item) } else { Found::Live(item) })
    }

    /// The place of a document that is addressed by its resource id.
    pub(crate) fn place_of_rid(&self, ordinal: u64) -> Result<Option<Bytes>> {
        Ok(self.view.get(&key::rid(ordinal))?)
    }

    fn purged_up_to(&self, partition: &PartitionPrefix) -> Result<Option<u64>> {
        if self.header.purges == 0 {
            return Ok(None);
        }
        let row = self.view.get(&partition.row(key::Kind::Purge))?;
        row.map(|row| row::decode_u64(&row)).transpose()
    }

    /// The place of the next document in this commit's order.
    pub(crate) fn next_commit_ordinal(&mut self) -> u32 {
        self.next_commit_ordinal += 1;
        self.next_commit_ordinal - 1
    }

    /// The number of a new document. Those of scripts have it from the write, which took it when
    /// the script made it.
    pub(crate) fn next_rid_ordinal(&mut self) -> u64 {
        if let Some(number) = self.script_number {
            return number;
        }
        self.header.next_rid_ordinal += 1;
        self.header.next_rid_ordinal - 1
    }

    pub(crate) fn counters(
        &mut self,
        partition: &PartitionPrefix,
    ) -> Result<&mut PartitionCounters> {
        if !self.partitions.contains_key(partition) {
            let row = self.view.get(&partition.row(key::Kind::Partition))?;
            let stored = row
                .map_or(Ok(PartitionCounters::default()), |row| PartitionCounters::decode(&row))?;
            self.partitions.insert(partition.clone(), Partition { stored, counters: stored });
        }
        Ok(&mut self.partitions.get_mut(partition).expect("was inserted above").counters)
    }

    /// Whether a document has entries of its own partition, or counts as one that should.
    pub(crate) fn has_own(&mut self, partition: &PartitionPrefix, id: &[u8]) -> Result<bool> {
        Ok(match self.counters(partition)?.own {
            Own::None => false,
            Own::Ready => true,
            Own::Building => *id <= self.own_cursor(partition)?[..],
        })
    }

    /// Up to which id the documents of a partition have entries of their own; for one that is being
    /// given them.
    pub(crate) fn own_cursor(&self, partition: &PartitionPrefix) -> Result<Bytes> {
        let row = self.view.get(&own::state_row(partition))?;
        row.ok_or_else(|| corrupt("state of a partition is missing"))
    }

    /// Begins to give a partition entries of its own.
    pub(crate) fn set_apart(&mut self, partition: &PartitionPrefix) -> Result<()> {
        self.counters(partition)?.own = Own::Building;
        self.view.put(&own::state_row(partition), Bytes::new());
        self.changed = true;
        Ok(())
    }

    /// How many documents have a shape, to be changed.
    pub(crate) fn shape_count(&mut self, shape: &Shape) -> Result<&mut u64> {
        if !self.shapes.contains_key(&shape.id) {
            let row = self.view.get(&shape::count_row(shape.id))?;
            let stored = row.map_or(Ok(0), |row| row::decode_u64(&row))?;
            let counter = ShapeCounter { shape: shape.clone(), stored, count: stored };
            self.shapes.insert(shape.id, counter);
        }
        Ok(&mut self.shapes.get_mut(&shape.id).expect("was inserted above").count)
    }

    /// Stores a document with everything that hangs on it but its unique keys and index entries.
    pub(crate) fn store(
        &mut self,
        partition: &PartitionPrefix,
        id: &str,
        item: &Item,
    ) -> Result<()> {
        let place = partition.place(id);
        self.note_change(&place);
        let header = &item.header;
        self.view.put(&key::item(&place), item.encode());
        self.view.put(&key::rid(header.rid_ordinal), Bytes::copy_from_slice(&place));
        self.view
            .put(&key::feed(header.lsn, header.commit_ordinal), Bytes::copy_from_slice(&place));
        if header.queued {
            self.view.put(&expiry_row(header, &place), Bytes::new());
        } else if header.ttl >= 0 {
            self.header.unqueued += 1;
        }
        let size = item.document.text().len() as u64;
        let counters = self.counters(partition)?;
        counters.items += 1;
        counters.bytes += size;
        let counters = *counters;
        self.header.items += 1;
        self.header.bytes += size;
        self.changed = true;
        if own::is_due(&counters, self.header.items) && !self.in_force.at(&place).is_empty() {
            self.set_apart(partition)?;
        }
        Ok(())
    }

    /// Removes a document with everything that hangs on it but its unique keys and index entries.
    pub(crate) fn unstore(
        &mut self,
        partition: &PartitionPrefix,
        id: &str,
        item: &Item,
    ) -> Result<()> {
        let place = partition.place(id);
        self.note_change(&place);
        let header = &item.header;
        self.view.delete(&key::item(&place));
        self.view.delete(&key::rid(header.rid_ordinal));
        self.view.delete(&key::feed(header.lsn, header.commit_ordinal));
        if header.queued {
            self.view.delete(&expiry_row(header, &place));
        } else if header.ttl >= 0 {
            self.header.unqueued = self.header.unqueued.saturating_sub(1);
        }
        let size = item.document.text().len() as u64;
        let counters = self.counters(partition)?;
        counters.items = counters.items.saturating_sub(1);
        counters.bytes = counters.bytes.saturating_sub(size);
        self.header.items = self.header.items.saturating_sub(1);
        self.header.bytes = self.header.bytes.saturating_sub(size);
        self.changed = true;
        Ok(())
    }

    /// Removes a stale document whole, so that its id and unique keys are free.
    pub(crate) fn remove_stale(
        &mut self,
        partition: &PartitionPrefix,
        id: &str,
        item: &Item,
    ) -> Result<()> {
        let place = partition.place(id);
        unique::release(self, partition, item)?;
        update::remove(self, Stored { place: &place, item })?;
        self.unstore(partition, id, item)?;
        let is_purged = self.purged_up_to(partition)?.is_some_and(|lsn| item.header.lsn <= lsn);
        let kind = if is_purged { ChangeKind::Delete } else { ChangeKind::Expire };
        self.record(|ts| Event::removed(kind, ts, place, item));
        Ok(())
    }

    /// Records what happened to a document, where the container's policy asks for it.
    pub(crate) fn record(&mut self, event: impl FnOnce(u64) -> Event) {
        if !self.container.records_events() {
            return;
        }
        let row = event(self.ts).keeping(self.container.policies.previous_images).encode();
        self.event_bytes += row.len();
        self.view.put(&key::event(self.view.lsn(), self.next_event_ordinal), row);
        self.next_event_ordinal += 1;
    }

    /// How much the events of this commit take.
    pub(crate) fn event_bytes(&self) -> usize {
        self.event_bytes
    }

    /// Says since when events are recorded, as soon as that changes.
    fn note_recording(&mut self) {
        let records = self.container.records_events();
        if records == self.header.records_events {
            return;
        }
        self.header.records_events = records;
        if records {
            let recorded = Recorded::since_commit(self.view.lsn() - 1);
            self.view.put(&key::events_since(), recorded.encode());
        } else {
            self.view.delete(&key::events_since());
        }
    }

    /// Says that what is stored at a place changes, for whoever copies the range meanwhile.
    pub(crate) fn note_change(&self, place: &[u8]) {
        if self.container.changes.are_noted() {
            self.container.changes.note(place, self.lsn());
        }
    }

    /// Says that rows were written directly.
    pub(crate) fn touch(&mut self) {
        self.changed = true;
    }

    /// Stores the counters. Call once, after everything else went well.
    pub(crate) fn finish(mut self) {
        if !self.changed {
            return;
        }
        self.note_recording();
        self.header.last_ts = self.header.last_ts.max(self.ts);
        self.view.put(&key::header(), self.header.encode());
        for (partition, Partition { stored, counters }) in &self.partitions {
            let row = partition.row(key::Kind::Partition);
            if counters == stored {
                continue;
            }
            if counters.items == 0 {
                self.view.delete(&row);
                if counters.own == Own::Building {
                    self.view.delete(&own::state_row(partition));
                }
            } else {
                self.view.put(&row, counters.encode());
            }
        }
        for ShapeCounter { shape, stored, count } in self.shapes.values() {
            let row = shape::count_row(shape.id);
            match (*stored, *count) {
                (stored, count) if stored == count => {}
                (_, 0) => {
                    self.view.delete(&row);
                    self.view.delete(&shape::definition_row(shape.id));
                }
                (stored, count) => {
                    self.view.put(&row, Bytes::copy_from_slice(&count.to_be_bytes()));
                    if stored == 0 {
                        let definition = shape::definition_row(shape.id);
                        self.view.put(&definition, shape.set.encoded().clone());
                    }
                }
            }
        }
    }
}

/// The row of the expiry queue for a document that is queued.
pub(crate) fn expiry_row(header: &ItemHeader, place: &[u8]) -> Vec<u8> {
    match u64::try_from(header.ttl) {
        Ok(own) if own > 0 => key::expiry(ExpiryClass::Own, header.ts + own, place),
        _ => key::expiry(ExpiryClass::Default, header.ts, place),
    }
}

/// What one write did.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) status: u16,
    pub(crate) document: Option<value::Document>,
    pub(crate) etag: Option<String>,
    pub(crate) document_lsn: Option<u64>,
    pub(crate) charge: Charge,
}
