//! The rows of a container's range: which keys exist, and in which order their parts come.
//!
//! A key starts with one byte for its kind. The *place* of a document is its effective partition
//! key, its partition key and its id, in this order, so that a logical partition is one contiguous
//! run and a slice of the hash space is another. The effective partition key is escaped (a zero byte
//! is followed by 0xFF) and ends with two zero bytes; the partition key delimits itself; the id is
//! whatever is left. Integers are big-endian. Index entries and shapes have the kinds that storage keeps
//! apart ([`storage::WALKED`]), because documents are found through them and they are never looked up.
//!
//! | kind | key | row |
//! | --- | --- | --- |
//! | header | – | counters of the range (`RangeHeader`) |
//! | item | place | `ItemHeader`, then the document |
//! | partition | effective partition key, partition key | `PartitionCounters` |
//! | rid | ordinal of the document | place |
//! | feed | lsn, ordinal in the commit | place; exactly one for each document |
//! | unique | constraint, partition, hash of the values | id |
//! | expiry | class, time, place | – |
//! | purge | partition | documents up to this lsn are deleted |
//! | event | lsn, ordinal in the commit | what happened to a document (`Event`) |
//! | events since | – | after which lsn all events are there, by part (`Recorded`) |
//! | own | partition, index id, values, id | the same as the row of the entry that it repeats |
//! | index | index id, values, place | –, or a byte where a number is written otherwise than its value tells |
//! | shape | shape id, place | –; exactly one for each document that is indexed |
//! | shape definition | shape id | the paths of the shape (`index::shape::ShapeSet`) |
//! | shape count | shape id | how many documents have the shape |
//! | index state | – | how far the range has been re-indexed (`IndexState`) |
//! | own state | partition | up to which id its documents have entries of their own; while these are being made |

use value::{Epk, PartitionKey};

/// The kinds of rows. The numbers are part of the format on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Header = 0x01,
    Item = 0x10,
    Partition = 0x11,
    Rid = 0x12,
    Feed = 0x13,
    Unique = 0x14,
    Expiry = 0x15,
    Purge = 0x16,
    Event = 0x17,
    EventsSince = 0x18,
    Own = 0x1F,
    Index = 0x20,
    Shape = 0x21,
    ShapeDefinition = 0x22,
    IndexState = 0x23,
    ShapeCount = 0x24,
    OwnState = 0x25,
}

/// The logical partition that a document lives in, as bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PartitionPrefix(Vec<u8>);

impl PartitionPrefix {
    pub(crate) fn new(epk: &Epk, key: &PartitionKey) -> Self {
        let mut bytes = Vec::with_capacity(64);
        escape(epk.as_bytes(), &mut bytes);
        bytes.extend_from_slice(&[0, 0]);
        key.encode(&mut bytes);
        Self(bytes)
    }

    /// The prefix of a place that was read from disk.
    pub(crate) fn of(place: &[u8]) -> Option<(Self, &[u8])> {
        let at = end_of_epk(place)?;
        let used = PartitionKey::decode(&place[at..]).ok()?.1;
        let (prefix, id) = place.split_at(at + used);
        Some((Self(prefix.to_vec()), id))
    }

    /// The partition key itself.
    pub(crate) fn partition_key(&self) -> Option<PartitionKey> {
        let at = end_of_epk(&self.0)?;
        Some(PartitionKey::decode(&self.0[at..]).ok()?.0)
    }

    pub(crate) fn place(&self, id: &str) -> Vec<u8> {
        [&self.0[..], id.as_bytes()].concat()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn row(&self, kind: Kind) -> Vec<u8> {
        keyed(kind, &[&self.0])
    }

    pub(crate) fn unique_row(&self, constraint: u8, hash: &[u8]) -> Vec<u8> {
        keyed(Kind::Unique, &[&[constraint], &self.0, hash])
    }
}

pub(crate) fn header() -> Vec<u8> {
    vec![Kind::Header as u8]
}

pub(crate) fn item(place: &[u8]) -> Vec<u8> {
    keyed(Kind::Item, &[place])
}

pub(crate) fn rid(ordinal: u64) -> Vec<u8> {
    keyed(Kind::Rid, &[&ordinal.to_be_bytes()])
}

pub(crate) fn feed(lsn: u64, ordinal: u32) -> Vec<u8> {
    keyed(Kind::Feed, &[&lsn.to_be_bytes(), &ordinal.to_be_bytes()])
}

pub(crate) fn event(lsn: u64, ordinal: u32) -> Vec<u8> {
    keyed(Kind::Event, &[&lsn.to_be_bytes(), &ordinal.to_be_bytes()])
}

/// The lsn in the key of an event or of a feed pointer.
pub(crate) fn lsn_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(1..9)?.try_into().ok()?))
}

/// The lsn and ordinal of an event.
pub(crate) fn event_number(key: &[u8]) -> Option<(u64, u32)> {
    Some((lsn_of(key)?, u32::from_be_bytes(key.get(9..13)?.try_into().ok()?)))
}

pub(crate) fn events_since() -> Vec<u8> {
    vec![Kind::EventsSince as u8]
}

/// Why a document is in the expiry queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ExpiryClass {
    /// It has a time to live of its own: the time is when it expires.
    Own = 0,
    /// The container's default applies, which may change: the time is when it was written.
    Default = 1,
}

pub(crate) fn expiry(class: ExpiryClass, time_s: u64, place: &[u8]) -> Vec<u8> {
    keyed(Kind::Expiry, &[&[class as u8], &time_s.to_be_bytes(), place])
}

/// The place in an expiry key.
pub(crate) fn place_of_expiry(key: &[u8]) -> Option<&[u8]> {
    key.get(1 + 1 + 8..)
}

/// All rows of a kind: from the first key to the first key that is not of the kind.
pub(crate) fn all_of(kind: Kind) -> (Vec<u8>, Vec<u8>) {
    (vec![kind as u8], vec![kind as u8 + 1])
}

/// The documents whose effective partition key lies in `[min, max)`.
///
/// A bound is the escaped text without its end: every key at or after the bound sorts after it,
/// every key before it sorts before.
pub(crate) fn items_between(min: &Epk, max: &Epk) -> (Vec<u8>, Vec<u8>) {
    let bound = |epk: &Epk| {
        let mut key = vec![Kind::Item as u8];
        escape(epk.as_bytes(), &mut key);
        key
    };
    (bound(min), bound(max))
}

/// The documents of one logical partition.
pub(crate) fn items_of(partition: &PartitionPrefix) -> (Vec<u8>, Vec<u8>) {
    let from = partition.row(Kind::Item);
    // Ids are UTF-8, which never holds 0xFF.
    let mut to = from.clone();
    to.push(0xFF);
    (from, to)
}

pub(crate) fn keyed(kind: Kind, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + parts.iter().map(|part| part.len()).sum::<usize>());
    key.push(kind as u8);
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
}

/// The effective partition key of a place.
pub(crate) fn epk_of(place: &[u8]) -> Option<Epk> {
    let escaped = &place[..end_of_epk(place)? - 2];
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.iter();
    while let Some(&byte) = rest.next() {
        bytes.push(byte);
        if byte == 0 {
            // The mark that escapes it.
            rest.next();
        }
    }
    Some(Epk::from_bytes(bytes))
}

/// Where the partition key starts: after the two zero bytes that end the effective partition key.
fn end_of_epk(place: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match (place.get(at)?, place.get(at + 1)) {
            (0, Some(0)) => return Some(at + 2),
            (0, Some(0xFF)) => at += 2,
            (0, _) => return None,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use value::Component;

    use super::*;

    fn prefix(epk: &[u8], key: &str) -> PartitionPrefix {
        let key = PartitionKey(vec![Component::String(key.to_owned())]);
        PartitionPrefix::new(&Epk::from_bytes(epk.to_vec()), &key)
    }

    proptest! {
        #[test]
        fn a_place_comes_apart_again(
            epk in proptest::collection::vec(any::<u8>(), 0..20), key in ".{0,8}", id in ".{0,8}"
        ) {
            let partition = prefix(&epk, &key);
            let place = partition.place(&id);
            prop_assert_eq!(epk_of(&place).unwrap(), Epk::from_bytes(epk));
            let (found, rest) = PartitionPrefix::of(&place).unwrap();
            prop_assert_eq!(&found, &partition);
            prop_assert_eq!(rest, id.as_bytes());
            prop_assert_eq!(
                found.partition_key().unwrap(), PartitionKey(vec![Component::String(key)])
            );
        }

        #[test]
        fn bounds_hold_exactly_the_interval(
            epk in proptest::collection::vec(0u8..4, 0..6),
            min in proptest::collection::vec(0u8..4, 0..6),
            max in proptest::collection::vec(0u8..4, 0..6),
        ) {
            let key = item(&prefix(&epk, "k").place("id"));
            let (from, to) = items_between(
                &Epk::from_bytes(min.clone()), &Epk::from_bytes(max.clone())
            );
            prop_assert_eq!(from <= key && key < to, min <= epk && epk < max);
        }

        #[test]
        fn broken_places_are_refused_without_panic(
            place in proptest::collection::vec(any::<u8>(), 0..40)
        ) {
            let _ = PartitionPrefix::of(&place);
        }
    }

    #[test]
    fn storage_keeps_apart_what_documents_are_found_by() {
        let walked = [Kind::Own, Kind::Index, Kind::Shape].map(|kind| kind as u8);
        assert_eq!(storage::WALKED.collect::<Vec<u8>>(), walked);
    }

    #[test]
    fn a_partition_holds_its_documents_only() {
        let partition = prefix(&[1, 0, 2], "a");
        let (from, to) = items_of(&partition);
        for id in ["", "a", "\u{10FFFF}"] {
            let key = item(&partition.place(id));
            assert!(from <= key && key < to, "{id:?}");
        }
        let other = item(&prefix(&[1, 0, 2], "aa").place(""));
        assert!(other < from || other >= to);
    }
}
