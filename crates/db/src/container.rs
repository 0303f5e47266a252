//! A container: where its documents live and which rules they follow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use storage::RangeId;
use value::{
    Component, ContainerRid, DatabaseRid, Epk, EpkRange, Object, PartitionKey, PartitionKind,
};

use crate::gate::Gate;
use crate::index::versions::Index;
use crate::meter::Meter;
use crate::policy::Policies;
use crate::recut::Changes;
use crate::resource::Resource;
use crate::row::ItemHeader;
use crate::scripts::Scripts;
use crate::session::Position;
use crate::{Error, Kind, Result};

/// A container as requests use it. Replaced as a whole when its definition changes.
#[derive(Debug)]
pub struct Container {
    /// The resource id.
    pub rid: ContainerRid,
    /// The name.
    pub id: String,
    /// The name of its database.
    pub database_id: String,
    /// The resource id of its database.
    pub database_rid: DatabaseRid,
    /// What clients see.
    pub resource: Resource,
    /// What its definition says, checked.
    pub policies: Policies,
    pub(crate) self_link: String,
    pub(crate) ranges: Vec<Arc<Range>>,
    pub(crate) index: Index,
    pub(crate) scripts: Arc<Scripts>,
    /// What is written while ranges are cut anew.
    pub(crate) changes: Arc<Changes>,
}

/// A part of the container's hash space with its own storage and its own versions.
#[derive(Debug)]
pub(crate) struct Range {
    /// What clients call it.
    pub(crate) id: String,
    pub(crate) number: u64,
    pub(crate) storage: RangeId,
    pub(crate) epk: EpkRange,
    pub(crate) parents: Vec<String>,
    pub(crate) gate: Gate,
    pub(crate) meter: Meter,
    pub(crate) purges: Purges,
    pub(crate) script_numbers: ScriptNumbers,
    pub(crate) apart: SetApart,
}

/// The numbers by which scripts know what they write.
///
/// A script is told the resource ids and etags of its documents before it commits, so every write
/// takes a number here, whether it is committed or not. The range stores the greatest one that was,
/// and after a restart numbers go on from there: none is ever stored twice.
#[derive(Debug, Default)]
pub(crate) struct ScriptNumbers(AtomicU64);

impl ScriptNumbers {
    /// Numbers go on from here, if they have not come further.
    pub(crate) fn go_on_from(&self, next: u64) {
        self.0.fetch_max(next, Ordering::SeqCst);
    }

    pub(crate) fn take(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// The newest version of a range in which no partition was waiting for entries of its own.
#[derive(Debug, Default)]
pub(crate) struct SetApart(AtomicU64);

impl SetApart {
    pub(crate) fn is_done_at(&self, lsn: u64) -> bool {
        self.0.load(Ordering::Relaxed) == lsn
    }

    pub(crate) fn done_at(&self, lsn: u64) {
        self.0.store(lsn, Ordering::Relaxed);
    }
}

/// Which versions of a range may hold documents that were purged and not yet removed.
///
/// Readers are many and purges are few, so a reader looks for purged partitions only where there can
/// be some. Both numbers only grow: a purge and a sweep at the same time cannot undo each other's
/// word, and a reader that holds an older version still looks.
#[derive(Debug, Default)]
pub(crate) struct Purges {
    /// The newest commit that purged a partition.
    newest: AtomicU64,
    /// The newest version that was seen without any purge left.
    cleared: AtomicU64,
}

impl Purges {
    /// A partition was purged by the commit of this lsn.
    pub(crate) fn began(&self, lsn: u64) {
        self.newest.fetch_max(lsn, Ordering::SeqCst);
    }

    /// At this lsn all purges were done.
    pub(crate) fn ended(&self, lsn: u64) {
        self.cleared.fetch_max(lsn, Ordering::SeqCst);
    }

    /// Whether there is anything to remove.
    pub(crate) fn are_waiting(&self) -> bool {
        let cleared = self.cleared.load(Ordering::SeqCst);
        self.newest.load(Ordering::SeqCst) > cleared
    }

    /// Whether this version may hold purged documents.
    pub(crate) fn may_concern(&self, lsn: u64) -> bool {
        self.are_waiting() || lsn < self.cleared.load(Ordering::SeqCst)
    }
}

/// How many documents a range can number: 20 bits of a document's ordinal are the range's.
const RID_ORDINAL_BITS: u32 = 40;

impl Range {
    pub(crate) fn new(number: u64, storage: RangeId, epk: EpkRange, parents: Vec<String>) -> Self {
        Self {
            id: number.to_string(),
            number,
            storage,
            epk,
            parents,
            gate: Gate::default(),
            meter: Meter::default(),
            purges: Purges::default(),
            script_numbers: ScriptNumbers::default(),
            apart: SetApart::default(),
        }
    }

    /// Documents of different ranges are numbered apart, so that numbers never meet.
    pub(crate) fn first_rid_ordinal(&self) -> u64 {
        (self.number << RID_ORDINAL_BITS) | 1
    }

    /// A number for a write of a script, which no other write has.
    pub(crate) fn take_script_number(&self) -> u64 {
        self.script_numbers.go_on_from(self.first_script_ordinal());
        self.script_numbers.take()
    }

    /// Documents of scripts are numbered apart from the others: theirs are the upper half.
    fn first_script_ordinal(&self) -> u64 {
        (self.number << RID_ORDINAL_BITS) | 1 << (RID_ORDINAL_BITS - 1)
    }
}

/// The limit for a partition key value.
const KEY_BYTES_MAX: usize = 2_048;

impl Container {
    /// The path by names, as clients file session tokens.
    pub fn name_path(&self) -> String {
        format!("dbs/{}/colls/{}", self.database_id, self.id)
    }

    /// The path by resource ids, with its slash at the end.
    pub fn self_link(&self) -> &str {
        &self.self_link
    }

    /// How many ranges the container is cut into.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// The same container with another index.
    pub(crate) fn with_index(&self, index: Index) -> Container {
        Container {
            rid: self.rid,
            id: self.id.clone(),
            database_id: self.database_id.clone(),
            database_rid: self.database_rid,
            resource: self.resource.clone(),
            policies: self.policies.clone(),
            self_link: self.self_link.clone(),
            ranges: self.ranges.clone(),
            index,
            scripts: self.scripts.clone(),
            changes: self.changes.clone(),
        }
    }

    /// The same container, to be changed.
    pub(crate) fn same(&self) -> Container {
        self.with_index(self.index.unchanged())
    }

    /// Where a request is served: a range of this container, at a version.
    pub(crate) fn position(&self, range: &Range, lsn: u64) -> Position {
        let version = self.rid.number;
        Position { range: range.id.clone(), version, lsn, document_lsn: None }
    }

    pub(crate) fn epk(&self, key: &PartitionKey) -> Epk {
        self.policies.partition_key.epk(key)
    }

    /// The range that holds an effective partition key.
    pub(crate) fn range_of(&self, epk: &Epk) -> &Arc<Range> {
        let after = self.ranges.partition_point(|range| range.epk.min <= *epk);
        &self.ranges[after.saturating_sub(1)]
    }

    /// The range that a client names.
    pub(crate) fn range(&self, id: &str) -> Result<&Arc<Range>> {
        self.ranges.iter().find(|range| range.id == id).ok_or_else(|| {
            Error::new(
                Kind::RangeGone,
                format!("The partition key range '{id}' of the container does not exist."),
            )
        })
    }

    /// A key with as many components as the container has paths.
    ///
    /// `[]` stands for the undefined key of a container without partition key.
    pub(crate) fn full_key(&self, key: Option<&PartitionKey>) -> Result<Option<PartitionKey>> {
        let definition = &self.policies.partition_key;
        match key {
            None => Ok(None),
            Some(key) if key.0.is_empty() && definition.system_key => {
                Ok(Some(self.undefined_key()))
            }
            Some(key) if key.0.len() == definition.paths.len() => Ok(Some(key.clone())),
            Some(_) => Err(Error::new(
                Kind::PartitionKeyMismatch,
                "Partition key provided either doesn't correspond to definition in the collection \
                 or doesn't match partition key field values specified in the document.",
            )),
        }
    }

    /// The key of documents that have no value at any path.
    pub(crate) fn undefined_key(&self) -> PartitionKey {
        let components = self.policies.partition_key.paths.iter().map(|_| Component::Undefined);
        PartitionKey(components.collect())
    }

    /// The key that a document has.
    pub(crate) fn extract_key(&self, body: &Object) -> PartitionKey {
        self.policies.partition_key.extract(body)
    }

    pub(crate) fn check_key_size(&self, key: &PartitionKey) -> Result<()> {
        for component in &key.0 {
            if let Component::String(text) = component
                && text.len() > KEY_BYTES_MAX
            {
                return Err(Error::bad_request(format!(
                    "Partition key value is too long: {} bytes, the limit is {KEY_BYTES_MAX}",
                    text.len()
                )));
            }
        }
        Ok(())
    }

    /// Whether the key is a prefix of a hierarchical key.
    pub(crate) fn is_prefix(&self, key: &PartitionKey) -> bool {
        let definition = &self.policies.partition_key;
        definition.kind == PartitionKind::MultiHash
            && !key.0.is_empty()
            && key.0.len() < definition.paths.len()
    }

    /// Whether every change of a document is to be recorded.
    pub(crate) fn records_events(&self) -> bool {
        self.policies.change_feed_retention_minutes.is_some()
    }

    /// Whether an event of this second has been kept for as long as the policy says.
    pub(crate) fn is_past_retention(&self, ts: u64, now_s: u64) -> bool {
        let minutes = self.policies.change_feed_retention_minutes;
        let seconds = minutes.and_then(|minutes| u64::try_from(minutes).ok()).unwrap_or(0) * 60;
        ts.saturating_add(seconds) <= now_s
    }

    /// Whether a document is past its time to live.
    pub(crate) fn is_expired(&self, header: &ItemHeader, now_s: u64) -> bool {
        let Some(default) = self.policies.default_ttl else { return false };
        let seconds = if header.ttl == 0 { default } else { i64::from(header.ttl) };
        u64::try_from(seconds).is_ok_and(|seconds| header.ts + seconds <= now_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_look_for_purges_where_there_may_be_some() {
        let purges = Purges::default();
        assert!(!purges.are_waiting() && !purges.may_concern(5));
        purges.began(10);
        assert!(purges.are_waiting() && purges.may_concern(9) && purges.may_concern(10));
        // The sweep saw version 12 without a purge, while another one was committed as 14.
        purges.began(14);
        purges.ended(12);
        assert!(purges.are_waiting() && purges.may_concern(14));
        purges.ended(15);
        assert!(!purges.are_waiting());
        // Whoever read version 14 before the sweep was done still has the documents before him.
        assert!(purges.may_concern(14) && !purges.may_concern(15));
        // Word of an old purge or sweep that comes late changes nothing.
        purges.began(13);
        purges.ended(11);
        assert!(!purges.are_waiting() && !purges.may_concern(15));
    }
}
