//! Entries of their own for large partitions.
//!
//! Entries lie in the order of their values, and among the same value in the order of places. So a range
//! of values inside one logical partition is spread over the entries of all partitions. A small
//! partition is scanned instead; for a large one all its entries are kept once more, with the
//! partition before the index:
//!
//! - O1: a document has entries of its own partition exactly where its partition is [`Own::Ready`], or
//!   [`Own::Building`] and the document's id not behind the cursor; unless it has too many values, and then
//!   it counts as unlisted.
//! - O2: they are those of I1, in another order of the parts of their keys.
//!
//! A query that reads one partition does not know which of the two it walks: bounds are put, and keys are
//! told, as those of entries ([`OwnKeys`]).

use std::ops::Bound;

use super::entry::{self, Component};
use super::terms::Terms;
use crate::key::{Kind, PartitionPrefix, keyed};
use crate::row::{Own, PartitionCounters};

/// A partition with fewer documents is scanned as fast as it is looked up.
const LARGE: u64 = 1_000;
/// Of a partition that is a greater part of its range than one in so many, a query passes over fewer than so
/// many entries for each of its own.
const SHARE: u64 = 8;
/// Documents with more bytes of entries than these have none of their own partition: a commit has to
/// hold both kinds, before and after a change.
const LISTED_BYTES_MAX: usize = 6 * 1024 * 1024;

/// Whether a partition is to have entries of its own, in a range with so many documents.
pub(crate) fn is_due(counters: &PartitionCounters, range_items: u64) -> bool {
    counters.own == Own::None
        && counters.items >= LARGE
        && counters.items.saturating_mul(SHARE) <= range_items
}

/// Whether a document with these terms is listed among the entries of its partition. Keeps O1.
pub(crate) fn is_listed(place: &[u8], terms: &[&Terms]) -> bool {
    terms.iter().map(|terms| terms.entry_bytes(place)).sum::<usize>() <= LISTED_BYTES_MAX
}

/// The keys of a partition's own entries.
#[derive(Clone, Debug)]
pub(crate) struct OwnKeys {
    /// What they all begin with.
    start: Vec<u8>,
}

impl OwnKeys {
    pub(crate) fn of(partition: &PartitionPrefix) -> OwnKeys {
        OwnKeys { start: partition.row(Kind::Own) }
    }

    fn partition(&self) -> &[u8] {
        &self.start[1..]
    }

    /// The key for a term of the document at a place of the partition.
    pub(crate) fn key(&self, term: &[u8], place: &[u8]) -> Vec<u8> {
        let id = place.strip_prefix(self.partition()).unwrap_or_default();
        [&self.start, term, id].concat()
    }

    /// The bound between own entries that corresponds to one between entries.
    pub(crate) fn bound(&self, bound: Bound<&[u8]>, layout: &[Component]) -> Bound<Vec<u8>> {
        bound.map(|key| self.translated(key, layout))
    }

    /// What lies among own entries where a key lies among entries. No term is the beginning of another,
    /// so what is not a whole term is before or behind it whatever follows.
    fn translated(&self, key: &[u8], layout: &[Component]) -> Vec<u8> {
        let Some(parsed) = entry::parse(key, layout) else {
            return [&self.start, &key[1..]].concat();
        };
        let (term, place) = key[1..].split_at(key.len() - 1 - parsed.place.len());
        let mut own = [&self.start, term].concat();
        match place.strip_prefix(self.partition()) {
            Some(id) => own.extend_from_slice(id),
            // Behind all ids, which are UTF-8.
            None if place > self.partition() => own.push(0xFF),
            None => {}
        }
        own
    }

    /// Writes the key of the entry that an own entry repeats; says whether it is one.
    pub(crate) fn tell(&self, own: &[u8], layout: &[Component], out: &mut Vec<u8>) -> bool {
        let Some(rest) = own.strip_prefix(&self.start[..]) else { return false };
        out.clear();
        out.push(Kind::Index as u8);
        out.extend_from_slice(rest);
        let Some(id) = entry::parse(out, layout).map(|parsed| parsed.place.len()) else {
            return false;
        };
        let at = out.len() - id;
        out.splice(at..at, self.partition().iter().copied());
        true
    }
}

/// The row that says how far a partition has come.
pub(crate) fn state_row(partition: &PartitionPrefix) -> Vec<u8> {
    keyed(Kind::OwnState, &[partition.as_bytes()])
}

#[cfg(test)]
mod tests;
