//! How ranges lie in the ordered store.
//!
//! Two kinds of rows, told apart by the first byte; integers are big-endian so that a range is one
//! contiguous interval and ranges come in the order of their ids.
//!
//! | key | value |
//! | --- | --- |
//! | `00` range | state, LSN: one byte and eight |
//! | `01` range key | the value, as it was put |
//!
//! The first kind also remembers erased ranges, so that their ids are never used again.

use std::ops::Bound;

use bytes::Bytes;

use crate::{Error, KEY_BYTES_MAX, Lsn, RangeId, WALKED};

const HEADER: u8 = 0;
const CONTENT: u8 = 1;
const AFTER_CONTENT: u8 = 2;

/// The bytes in front of the key of the range.
pub(crate) const PREFIX_BYTES: usize = 9;

/// What may be done with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Open = 1,
    Sealed = 2,
    /// Gone for everybody, but some rows are still there.
    Erasing = 3,
    /// Gone, and so are its rows. Stays for ever.
    Erased = 4,
}

/// The row that describes a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) state: State,
    pub(crate) lsn: Lsn,
}

impl Header {
    pub(crate) fn encode(self) -> Bytes {
        let mut row = Vec::with_capacity(9);
        row.push(self.state as u8);
        row.extend_from_slice(&self.lsn.to_be_bytes());
        Bytes::from(row)
    }

    pub(crate) fn decode(range: RangeId, row: &[u8]) -> Result<Header, Error> {
        let damaged = || Error::Corrupt(format!("header of range {}: {row:02x?}", range.0));
        let (state, lsn) = row.split_first().ok_or_else(damaged)?;
        let state = match state {
            1 => State::Open,
            2 => State::Sealed,
            3 => State::Erasing,
            4 => State::Erased,
            _ => return Err(damaged()),
        };
        let lsn = Lsn::from_be_bytes(lsn.try_into().map_err(|_| damaged())?);
        Ok(Header { state, lsn })
    }
}

pub(crate) fn header_key(range: RangeId) -> Bytes {
    Bytes::copy_from_slice(&prefix(HEADER, range))
}

/// The interval of all headers.
pub(crate) const HEADERS: (Bound<&[u8]>, Bound<&[u8]>) =
    (Bound::Included(&[HEADER]), Bound::Excluded(&[CONTENT]));

pub(crate) fn header_range(key: &[u8]) -> Result<RangeId, Error> {
    match key.split_first() {
        Some((&HEADER, range)) if range.len() == 8 => {
            let range = range.try_into().expect("the length was just checked");
            Ok(RangeId(u64::from_be_bytes(range)))
        }
        _ => Err(Error::Corrupt(format!("key of a range header: {key:02x?}"))),
    }
}

fn prefix(kind: u8, range: RangeId) -> [u8; PREFIX_BYTES] {
    let mut prefix = [kind; PREFIX_BYTES];
    prefix[1..].copy_from_slice(&range.0.to_be_bytes());
    prefix
}

/// What the stored keys of a range begin with.
pub(crate) fn content_prefix(range: RangeId) -> [u8; PREFIX_BYTES] {
    prefix(CONTENT, range)
}

/// The stored key of a key of a range.
pub(crate) fn content_key(range: RangeId, key: &[u8]) -> Bytes {
    let mut full = Vec::with_capacity(PREFIX_BYTES + key.len());
    full.extend_from_slice(&content_prefix(range));
    full.extend_from_slice(key);
    Bytes::from(full)
}

/// Whether a stored key is that of a key of this range.
pub(crate) fn is_content_of(range: RangeId, stored: &[u8]) -> bool {
    stored.starts_with(&content_prefix(range))
}

/// Whether a stored key is one of those that are only walked.
pub(crate) fn is_walked(stored: &[u8]) -> bool {
    stored.first() == Some(&CONTENT)
        && stored.get(PREFIX_BYTES).is_some_and(|first| WALKED.contains(first))
}

/// Whether the keys between two bounds can only be walked ones, or only others; nothing if both can
/// lie there. Bounds that are not within one range hold both.
pub(crate) fn are_walked(from: Bound<&[u8]>, to: Bound<&[u8]>) -> Option<bool> {
    let (Bound::Included(from) | Bound::Excluded(from)) = from else { return None };
    let prefix = from.get(..PREFIX_BYTES).filter(|prefix| prefix[0] == CONTENT)?;
    let is_below = |end: u8| match to {
        // A key that is longer than its bound sorts after it.
        Bound::Excluded(to) => match to.strip_prefix(prefix) {
            None => false,
            Some(to) => *to <= [end][..],
        },
        Bound::Included(to) => to.strip_prefix(prefix).is_some_and(|to| *to < [end][..]),
        Bound::Unbounded => false,
    };
    let is_above = |start: u8| from[PREFIX_BYTES..] >= [start][..];
    if is_below(WALKED.start) || (is_above(WALKED.end) && is_below(u8::MAX)) {
        return Some(false);
    }
    (is_above(WALKED.start) && is_below(WALKED.end)).then_some(true)
}

const STACK_BYTES: usize = 256;

/// Looks a key of a range up by its stored key, without allocating for keys of usual length. Keys
/// that are too long to be stored are not there.
pub(crate) fn look_up(
    range: RangeId,
    key: &[u8],
    body: impl FnOnce(&[u8]) -> Result<Option<Bytes>, Error>,
) -> Result<Option<Bytes>, Error> {
    if key.len() > KEY_BYTES_MAX {
        return Ok(None);
    }
    let length = PREFIX_BYTES + key.len();
    if length > STACK_BYTES {
        return body(&content_key(range, key));
    }
    let mut buffer = [0; STACK_BYTES];
    buffer[..PREFIX_BYTES].copy_from_slice(&content_prefix(range));
    buffer[PREFIX_BYTES..length].copy_from_slice(key);
    body(&buffer[..length])
}

/// A key to compare with, cut where no stored key can tell the difference: all are shorter.
fn comparable(key: &[u8]) -> &[u8] {
    &key[..key.len().min(KEY_BYTES_MAX + 1)]
}

/// The stored bounds of an interval of a range.
pub(crate) fn content_bounds(
    range: RangeId,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
) -> (Bound<Bytes>, Bound<Bytes>) {
    let from = match from {
        Bound::Included(key) => Bound::Included(content_key(range, comparable(key))),
        Bound::Excluded(key) => Bound::Excluded(content_key(range, comparable(key))),
        Bound::Unbounded => Bound::Included(content_key(range, b"")),
    };
    let to = match to {
        Bound::Included(key) => Bound::Included(content_key(range, comparable(key))),
        Bound::Excluded(key) => Bound::Excluded(content_key(range, comparable(key))),
        Bound::Unbounded => Bound::Excluded(match range.0.checked_add(1) {
            Some(next) => content_key(RangeId(next), b""),
            None => Bytes::from_static(&[AFTER_CONTENT]),
        }),
    };
    (from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_damage_is_noticed() {
        for state in [State::Open, State::Sealed, State::Erasing, State::Erased] {
            let header = Header { state, lsn: 0x0102_0304_0506_0708 };
            assert_eq!(Header::decode(RangeId(7), &header.encode()).unwrap(), header);
        }
        for damaged in [&b""[..], b"\x01", b"\x05\0\0\0\0\0\0\0\0", b"\x01\0\0\0\0\0\0\0\0\0"] {
            assert!(matches!(Header::decode(RangeId(7), damaged), Err(Error::Corrupt(_))));
        }
        assert_eq!(header_range(&header_key(RangeId(9))).unwrap(), RangeId(9));
        assert!(header_range(b"\x00\x01").is_err());
        assert!(header_range(&content_key(RangeId(9), b"")).is_err());
    }

    #[test]
    fn bounds_tell_which_keys_can_lie_between() {
        use Bound::{Excluded, Included, Unbounded};
        let (walked, behind) = (WALKED.start, WALKED.end);
        let check = |from: Bound<&[u8]>, to: Bound<&[u8]>, expected: Option<bool>| {
            let (from, to) = content_bounds(RangeId(7), from, to);
            let (from, to) = (from.as_ref().map(Bytes::as_ref), to.as_ref().map(Bytes::as_ref));
            assert_eq!(are_walked(from, to), expected, "{from:02x?} {to:02x?}");
        };
        check(Included(&[walked]), Excluded(&[behind]), Some(true));
        check(Excluded(&[walked, 9]), Included(&[behind - 1, 255]), Some(true));
        check(Included(&[walked]), Included(&[behind]), None);
        check(Included(&[walked - 1]), Excluded(&[walked]), Some(false));
        check(Unbounded, Included(&[walked - 1, 255]), Some(false));
        check(Included(&[walked - 1]), Included(&[walked]), None);
        check(Included(&[behind]), Excluded(&[behind, 3]), Some(false));
        check(Included(&[walked, 3]), Excluded(&[behind, 3]), None);
        check(Unbounded, Unbounded, None);
        assert_eq!(are_walked(HEADERS.0, HEADERS.1), None);
        assert!(is_walked(&content_key(RangeId(7), &[walked])));
        for other in [&[walked - 1, walked][..], &[behind], &[]] {
            assert!(!is_walked(&content_key(RangeId(7), other)));
        }
        // The number of a range is not the beginning of a key.
        assert!(!is_walked(&header_key(RangeId(u64::from(walked)))));
    }

    #[test]
    fn a_range_is_one_interval() {
        for range in [0, 1, 255, u64::MAX - 1, u64::MAX].map(RangeId) {
            let (from, to) = content_bounds(range, Bound::Unbounded, Bound::Unbounded);
            let (Bound::Included(from), Bound::Excluded(to)) = (from, to) else { unreachable!() };
            for key in [&b""[..], b"\0", b"\xff", &[0xff; 300]] {
                let full = content_key(range, key);
                assert!(from <= full && full < to);
                look_up(range, key, |lent| {
                    assert_eq!(lent, full);
                    Ok(None)
                })
                .unwrap();
            }
        }
    }
}
