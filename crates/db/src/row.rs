//! What the rows of a range hold.
//!
//! Fixed little structures in front of documents and for counters, with a version byte first, read
//! with checks: a row that cannot be read is corruption and is reported, never guessed at.

use bytes::{BufMut, Bytes, BytesMut};
use value::{ContainerRid, Document};

use crate::{Error, Kind, Result};

/// What is known of a document without looking into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ItemHeader {
    /// The commit that wrote this version.
    pub(crate) lsn: u64,
    /// Its place among the documents of that commit.
    pub(crate) commit_ordinal: u32,
    /// `_ts`.
    pub(crate) ts: u64,
    /// The document's number in its container, which makes its `_rid`; stays for its whole life.
    pub(crate) rid_ordinal: u64,
    /// Its own time to live in seconds, -1 for never, 0 where it has none.
    pub(crate) ttl: i32,
    /// How many terms the indexing policy takes from it; for the charge.
    pub(crate) terms: u32,
    /// Whether it stands in the expiry queue.
    pub(crate) queued: bool,
    /// Whether its etag is the one that the document holds, not one made of the numbers here. So it
    /// is where a script wrote it, which saw the etag before the commit had a number; and where its
    /// place in the feed was taken when two ranges were merged.
    pub(crate) keeps_etag: bool,
}

const ITEM_VERSION: u8 = 1;
const ITEM_HEADER: usize = 40;
const QUEUED: u8 = 1;
const KEEPS_ETAG: u8 = 2;

/// A stored document with its header.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) header: ItemHeader,
    pub(crate) document: Document,
}

impl Item {
    pub(crate) fn encode(&self) -> Bytes {
        let header = &self.header;
        let document = self.document.encoded();
        let mut row = BytesMut::with_capacity(ITEM_HEADER + document.len());
        row.put_u8(ITEM_VERSION);
        let keeps_etag = if header.keeps_etag { KEEPS_ETAG } else { 0 };
        row.put_u8(keeps_etag | if header.queued { QUEUED } else { 0 });
        row.put_u16(0);
        row.put_i32(header.ttl);
        row.put_u64(header.lsn);
        row.put_u64(header.ts);
        row.put_u64(header.rid_ordinal);
        row.put_u32(header.commit_ordinal);
        row.put_u32(header.terms);
        row.extend_from_slice(document);
        row.freeze()
    }

    pub(crate) fn decode(row: &Bytes) -> Result<Self> {
        Self::decode_behind(ItemHeader::decode(row)?, row)
    }

    /// Reads what lies behind the header of a row, which has been read already.
    pub(crate) fn decode_behind(header: ItemHeader, row: &Bytes) -> Result<Self> {
        let document = Document::decode(row.slice(ITEM_HEADER..))
            .map_err(|error| corrupt(&format!("document: {error}")))?;
        Ok(Self { header, document })
    }
}

impl ItemHeader {
    pub(crate) fn decode(row: &[u8]) -> Result<Self> {
        let mut fields = Fields::new(row, ITEM_VERSION, ITEM_HEADER, "item")?;
        let flags = fields.u8();
        fields.u16();
        Ok(Self {
            queued: flags & QUEUED != 0,
            keeps_etag: flags & KEEPS_ETAG != 0,
            ttl: fields.u32() as i32,
            lsn: fields.u64(),
            ts: fields.u64(),
            rid_ordinal: fields.u64(),
            commit_ordinal: fields.u32(),
            terms: fields.u32(),
        })
    }
}

/// The counters of a range, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeHeader {
    /// The container that the range belongs to: rows of two containers can never be mixed up.
    pub(crate) container: ContainerRid,
    /// How many documents are stored, expired and purged ones that still wait included.
    pub(crate) items: u64,
    /// The sum of their texts.
    pub(crate) bytes: u64,
    /// The number of the next new document.
    pub(crate) next_rid_ordinal: u64,
    /// The number of the next new document of a script. Scripts number theirs before they commit,
    /// so those numbers are kept apart from the others.
    pub(crate) next_script_ordinal: u64,
    /// The last `_ts` given out. Time never goes backwards within a range, but for scripts, which
    /// take their time: what one writes is no older than anything that it could have seen.
    pub(crate) last_ts: u64,
    /// How many documents are not in the expiry queue although they could expire.
    pub(crate) unqueued: u64,
    /// How many partitions wait to be purged.
    pub(crate) purges: u64,
    /// The definition that documents are indexed by.
    pub(crate) indexed: Indexed,
    /// Whether the last commit recorded its events. Then a row says since when all are there.
    pub(crate) records_events: bool,
    /// Documents up to this lsn come from several ranges that were merged: among them a greater lsn
    /// does not mean a later time. 0 where there are none.
    pub(crate) merged_lsn: u64,
}

/// By which definition of the container's index the documents of a range are indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Indexed {
    /// The definition that the documents behind the cursor of [`IndexState`] still have.
    pub(crate) from: u32,
    /// The definition that the others have. The same number where nothing is being re-indexed.
    pub(crate) to: u32,
}

impl Indexed {
    /// All documents have the same definition.
    pub(crate) const fn settled(number: u32) -> Self {
        Self { from: number, to: number }
    }

    pub(crate) fn is_settled(self) -> bool {
        self.from == self.to
    }
}

/// Ranges of the first version held documents without any index, those of the second none of
/// scripts, and those of the third were never merged.
const RANGE_VERSION_UNINDEXED: u8 = 1;
const RANGE_HEADER_UNINDEXED: usize = 60;
const RANGE_VERSION_UNSCRIPTED: u8 = 2;
const RANGE_HEADER_UNSCRIPTED: usize = 68;
const RANGE_VERSION_UNMERGED: u8 = 3;
const RANGE_HEADER_UNMERGED: usize = 76;
const RANGE_VERSION: u8 = 4;
const RANGE_HEADER: usize = 84;
const RECORDS_EVENTS: u8 = 1;

impl RangeHeader {
    pub(crate) fn new(container: ContainerRid, first_rid_ordinal: u64, index: u32) -> Self {
        Self {
            indexed: Indexed::settled(index),
            container,
            items: 0,
            bytes: 0,
            next_rid_ordinal: first_rid_ordinal,
            next_script_ordinal: 0,
            last_ts: 0,
            unqueued: 0,
            purges: 0,
            records_events: false,
            merged_lsn: 0,
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut row = BytesMut::with_capacity(RANGE_HEADER);
        row.put_u8(RANGE_VERSION);
        row.put_u8(if self.records_events { RECORDS_EVENTS } else { 0 });
        row.put_u16(0);
        row.extend_from_slice(&self.container.to_bytes());
        row.put_u64(self.items);
        row.put_u64(self.bytes);
        row.put_u64(self.next_rid_ordinal);
        row.put_u64(self.last_ts);
        row.put_u64(self.unqueued);
        row.put_u64(self.purges);
        row.put_u32(self.indexed.from);
        row.put_u32(self.indexed.to);
        row.put_u64(self.next_script_ordinal);
        row.put_u64(self.merged_lsn);
        row.freeze()
    }

    pub(crate) fn decode(row: &[u8]) -> Result<Self> {
        let (version, length) = match row.first() {
            Some(&RANGE_VERSION_UNINDEXED) => (RANGE_VERSION_UNINDEXED, RANGE_HEADER_UNINDEXED),
            Some(&RANGE_VERSION_UNSCRIPTED) => (RANGE_VERSION_UNSCRIPTED, RANGE_HEADER_UNSCRIPTED),
            Some(&RANGE_VERSION_UNMERGED) => (RANGE_VERSION_UNMERGED, RANGE_HEADER_UNMERGED),
            _ => (RANGE_VERSION, RANGE_HEADER),
        };
        let mut fields = Fields::new(row, version, length, "range header")?;
        let flags = fields.u8();
        fields.u16();
        let container = ContainerRid::from_bytes(&fields.take::<8>())
            .ok_or_else(|| corrupt("range header: container"))?;
        Ok(Self {
            container,
            items: fields.u64(),
            bytes: fields.u64(),
            next_rid_ordinal: fields.u64(),
            last_ts: fields.u64(),
            unqueued: fields.u64(),
            purges: fields.u64(),
            indexed: match version {
                RANGE_VERSION_UNINDEXED => Indexed::settled(0),
                _ => Indexed { from: fields.u32(), to: fields.u32() },
            },
            records_events: flags & RECORDS_EVENTS != 0,
            next_script_ordinal: if version >= RANGE_VERSION_UNMERGED { fields.u64() } else { 0 },
            merged_lsn: if version >= RANGE_VERSION { fields.u64() } else { 0 },
        })
    }
}

/// How far a range has come on its way from one definition of the index to the next. There is such a
/// row exactly while it is on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexState {
    /// How many documents have been done; for the progress that clients see.
    pub(crate) done: u64,
    /// Documents up to this place have the new definition, those behind it the old one.
    pub(crate) cursor: Vec<u8>,
}

const INDEX_STATE_VERSION: u8 = 1;
const INDEX_STATE: usize = 9;

impl IndexState {
    pub(crate) fn encode(&self) -> Bytes {
        let mut row = BytesMut::with_capacity(INDEX_STATE + self.cursor.len());
        row.put_u8(INDEX_STATE_VERSION);
        row.put_u64(self.done);
        row.extend_from_slice(&self.cursor);
        row.freeze()
    }

    pub(crate) fn decode(row: &[u8]) -> Result<Self> {
        let mut fields = Fields::new(row, INDEX_STATE_VERSION, INDEX_STATE, "index state")?;
        Ok(Self { done: fields.u64(), cursor: row[INDEX_STATE..].to_vec() })
    }
}

/// How much a logical partition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionCounters {
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    /// Whether the partition has index entries of its own.
    pub(crate) own: Own,
    /// How many documents should have such entries and have too many values for it.
    pub(crate) unlisted: u64,
}

/// How a partition stands that is to have index entries of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Own {
    /// It has none.
    #[default]
    None = 0,
    /// Documents up to a cursor have them.
    Building = 1,
    /// All documents have them.
    Ready = 2,
}

const PARTITION_VERSION: u8 = 2;
const PARTITION_COUNTERS: usize = 26;
/// Partitions that were stored before any had entries of its own.
const PARTITION_VERSION_PLAIN: u8 = 1;
const PARTITION_COUNTERS_PLAIN: usize = 17;

impl PartitionCounters {
    pub(crate) fn encode(&self) -> Bytes {
        let mut row = BytesMut::with_capacity(PARTITION_COUNTERS);
        row.put_u8(PARTITION_VERSION);
        row.put_u64(self.items);
        row.put_u64(self.bytes);
        row.put_u8(self.own as u8);
        row.put_u64(self.unlisted);
        row.freeze()
    }

    pub(crate) fn decode(row: &[u8]) -> Result<Self> {
        if row.first() == Some(&PARTITION_VERSION_PLAIN) {
            let length = PARTITION_COUNTERS_PLAIN;
            let mut fields = Fields::new(row, PARTITION_VERSION_PLAIN, length, "partition")?;
            return Ok(Self { items: fields.u64(), bytes: fields.u64(), ..Self::default() });
        }
        let mut fields = Fields::new(row, PARTITION_VERSION, PARTITION_COUNTERS, "partition")?;
        let (items, bytes) = (fields.u64(), fields.u64());
        let own = match fields.u8() {
            0 => Own::None,
            1 => Own::Building,
            2 => Own::Ready,
            _ => return Err(corrupt("partition")),
        };
        Ok(Self { items, bytes, own, unlisted: fields.u64() })
    }
}

/// Reads an eight-byte number, such as the lsn of a purge.
pub(crate) fn decode_u64(row: &[u8]) -> Result<u64> {
    Ok(u64::from_be_bytes(row.try_into().map_err(|_| corrupt("number"))?))
}

pub(crate) fn corrupt(what: &str) -> Error {
    tracing::error!(what, "a stored row cannot be read");
    Error::new(Kind::Internal, format!("stored data is damaged ({what}); run `orrery verify`"))
}

/// Reads fixed fields; the length was checked at the start.
pub(crate) struct Fields<'a> {
    row: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(row: &'a [u8], version: u8, length: usize, what: &str) -> Result<Self> {
        if row.len() < length || row[0] != version {
            return Err(corrupt(what));
        }
        Ok(Self { row: &row[..length], at: 1 })
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let bytes = &self.row[self.at..self.at + N];
        self.at += N;
        bytes.try_into().expect("the slice has N bytes")
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_they_were() {
        let header = RangeHeader {
            container: ContainerRid::new(value::DatabaseRid(7), 9),
            items: 1,
            bytes: 2,
            next_rid_ordinal: 3,
            next_script_ordinal: 9,
            last_ts: 4,
            unqueued: 5,
            purges: 6,
            indexed: Indexed { from: 7, to: 8 },
            records_events: true,
            merged_lsn: 10,
        };
        assert_eq!(RangeHeader::decode(&header.encode()).unwrap(), header);
        let state = IndexState { done: 3, cursor: vec![1, 0, 2] };
        assert_eq!(IndexState::decode(&state.encode()).unwrap(), state);
        for own in [Own::None, Own::Building, Own::Ready] {
            let counters = PartitionCounters { items: 8, bytes: 9, own, unlisted: 3 };
            assert_eq!(PartitionCounters::decode(&counters.encode()).unwrap(), counters);
        }
    }

    /// Ranges that were stored before there was an index, a script, or a merge, say nothing of them.
    #[test]
    fn ranges_of_earlier_versions_are_read() {
        for (version, length, index) in [
            (RANGE_VERSION_UNINDEXED, RANGE_HEADER_UNINDEXED, 0),
            (RANGE_VERSION_UNSCRIPTED, RANGE_HEADER_UNSCRIPTED, 7),
            (RANGE_VERSION_UNMERGED, RANGE_HEADER_UNMERGED, 7),
        ] {
            let header = RangeHeader::new(ContainerRid::new(value::DatabaseRid(7), 9), 1, index);
            let mut row = header.encode().to_vec();
            row[0] = version;
            row.truncate(length);
            assert_eq!(RangeHeader::decode(&row).unwrap(), header);
        }
    }

    #[test]
    fn damaged_rows_are_refused() {
        for row in [&b""[..], b"\x02", &[1; 10]] {
            assert!(RangeHeader::decode(row).is_err());
            assert!(ItemHeader::decode(row).is_err());
            assert!(PartitionCounters::decode(row).is_err());
        }
    }
}
