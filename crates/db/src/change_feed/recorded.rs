//! Since when all events of a range are there.
//!
//! One lsn says it, or several where ranges were merged: each has forgotten events of its own, and a
//! reader of a part that forgot nothing must not be refused for what the other part forgot.

use bytes::{BufMut, Bytes, BytesMut};
use storage::Snapshot;
use value::{Epk, EpkRange};

use crate::row::corrupt;
use crate::{Result, key};

/// For each part of a range, the commit since which all of its events are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// Where each part begins, in order; the first holds everything below it as well.
    parts: Vec<(Epk, u64)>,
}

impl Recorded {
    /// In the whole range since the same commit.
    pub(crate) fn since_commit(lsn: u64) -> Self {
        Self { parts: vec![(Epk::MIN, lsn)] }
    }

    /// What a range says; nothing where no events are recorded.
    pub(crate) fn of(snapshot: &impl Snapshot) -> Result<Option<Self>> {
        snapshot.get(&key::events_since())?.map(|row| Self::decode(&row)).transpose()
    }

    /// The commit since which all events of a slice of the hash space are there.
    pub(crate) fn within(&self, slice: &EpkRange) -> u64 {
        let parts = self.slices().filter(|(part, _)| part.intersects(slice));
        parts.map(|(_, lsn)| lsn).max().unwrap_or(0)
    }

    /// The commit since which all events of a place are there.
    pub(crate) fn at(&self, place: &[u8]) -> u64 {
        key::epk_of(place).map_or(0, |epk| self.parts[self.part_of(&epk)].1)
    }

    /// The event of a commit at this place is forgotten.
    pub(crate) fn forget(&mut self, place: &[u8], lsn: u64) {
        if let Some(epk) = key::epk_of(place) {
            let at = self.part_of(&epk);
            self.parts[at].1 = self.parts[at].1.max(lsn);
        }
    }

    /// What holds in a range that is made of slices of others.
    pub(crate) fn joined<'a>(
        range: &EpkRange,
        others: impl Iterator<Item = (&'a EpkRange, &'a Recorded)>,
    ) -> Self {
        let mut parts: Vec<(Epk, u64)> = Vec::new();
        for (whole, recorded) in others {
            let slices = recorded.slices().filter_map(|(part, lsn)| {
                Some((part.intersect(whole)?.intersect(range)?.min, lsn))
            });
            parts.extend(slices);
        }
        parts.sort();
        parts.dedup_by(|next, part| next.1 == part.1);
        if parts.is_empty() { Self::since_commit(0) } else { Self { parts } }
    }

    fn slices(&self) -> impl Iterator<Item = (EpkRange, u64)> {
        let starts = self.parts.iter().enumerate();
        starts.map(|(at, (start, lsn))| {
            let min = if at == 0 { Epk::MIN } else { start.clone() };
            let max = self.parts.get(at + 1).map_or_else(Epk::max, |(next, _)| next.clone());
            (EpkRange { min, max }, *lsn)
        })
    }

    fn part_of(&self, epk: &Epk) -> usize {
        self.parts.partition_point(|(start, _)| start <= epk).saturating_sub(1)
    }

    /// One part is an lsn, as it was before there were several.
    pub(crate) fn encode(&self) -> Bytes {
        let mut row = BytesMut::new();
        if let [(_, lsn)] = self.parts[..] {
            row.put_u64(lsn);
            return row.freeze();
        }
        for (start, lsn) in &self.parts {
            let start = start.as_bytes();
            row.put_u64(*lsn);
            row.put_u16(u16::try_from(start.len()).expect("keys of hashes are short"));
            row.extend_from_slice(start);
        }
        row.freeze()
    }

    pub(crate) fn decode(row: &[u8]) -> Result<Self> {
        let lsn = |bytes: [u8; 8]| u64::from_be_bytes(bytes);
        if let Ok(bytes) = row.try_into() {
            return Ok(Self::since_commit(lsn(bytes)));
        }
        let mut parts = Vec::new();
        let mut rest = row;
        while let Some((bytes, after)) = rest.split_first_chunk::<8>() {
            let start = after.split_first_chunk::<2>().and_then(|(length, after)| {
                after.split_at_checked(usize::from(u16::from_be_bytes(*length)))
            });
            let (start, after) = start.ok_or_else(|| corrupt("start of recorded events"))?;
            parts.push((Epk::from_bytes(start), lsn(*bytes)));
            rest = after;
        }
        let is_sorted = parts.is_sorted_by(|left, right| left.0 < right.0);
        if parts.is_empty() || !rest.is_empty() || !is_sorted {
            return Err(corrupt("start of recorded events"));
        }
        Ok(Self { parts })
    }
}

#[cfg(test)]
mod tests {
    use value::{Component, PartitionKey};

    use super::*;
    use crate::key::PartitionPrefix;

    fn range(min: &str, max: &str) -> EpkRange {
        EpkRange { min: Epk::parse(min).unwrap(), max: Epk::parse(max).unwrap() }
    }

    fn place(epk: &str) -> Vec<u8> {
        let key = PartitionKey(vec![Component::Null]);
        PartitionPrefix::new(&Epk::parse(epk).unwrap(), &key).place("a")
    }

    #[test]
    fn parts_keep_what_they_forgot_apart() {
        let (left, right) = (range("", "10"), range("10", "FF"));
        let (idle, busy) = (Recorded::since_commit(3), Recorded::since_commit(90));
        let mut both =
            Recorded::joined(&range("", "FF"), [(&left, &idle), (&right, &busy)].into_iter());
        assert_eq!((both.within(&left), both.within(&right)), (3, 90));
        assert_eq!(both.within(&range("0F", "11")), 90);
        both.forget(&place("20"), 95);
        both.forget(&place("05"), 2);
        assert_eq!((both.at(&place("05")), both.at(&place("10"))), (3, 95));
        assert_eq!(Recorded::decode(&both.encode()).unwrap(), both);
        // A split takes its share, and parts that agree are one again.
        let whole = range("", "FF");
        let third = Recorded::joined(&range("10", "30"), [(&whole, &both)].into_iter());
        assert_eq!(third.encode(), Recorded::since_commit(95).encode());
    }

    #[test]
    fn broken_rows_are_refused() {
        let row = Recorded::joined(
            &range("", "FF"),
            [
                (&range("", "10"), &Recorded::since_commit(3)),
                (&range("10", "FF"), &Recorded::since_commit(9)),
            ]
            .into_iter(),
        );
        let row = row.encode();
        for length in (0..row.len()).filter(|length| *length != 8) {
            let _ = Recorded::decode(&row[..length]);
        }
        for row in [&b""[..], b"1234567", b"123456789"] {
            assert!(Recorded::decode(row).is_err(), "{row:?}");
        }
    }
}
