//! Continuation tokens: where a feed or query goes on.
//!
//! A token holds the place of the last document that was looked at, so it means the same on every
//! engine, after a restart and after a split. It is signed: a token that was changed, or that
//! belongs to another container or query, is refused instead of giving a wrong page.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::{digest, hmac};
use value::ContainerRid;

use crate::{Error, Result};

/// Where to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) progress: Progress,
    /// How many rows of the document at the position the client already has; all of them when
    /// nothing is left of it.
    pub(crate) rows_taken: Option<u32>,
    /// How many rows `OFFSET` has passed over so far.
    pub(crate) passed: u64,
    /// How many rows the client was given so far.
    pub(crate) given: u64,
}

/// A position in one of the orders in which a query can go through documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// In the order of places: the last document that was looked at.
    Place(Vec<u8>),
    /// In the order of creation: the number of the last document. With a place: in the order of places
    /// among the documents that were created after that one.
    Created { last: u64, place: Vec<u8> },
    /// In the order of index entries.
    Entry(EntryProgress),
    /// In the order that the query asks for: the keys of the last document, and what comes behind
    /// them where they are equal.
    Sorted { keys: Vec<u8>, tie: Tie, tied: Vec<u8> },
    /// Among the results of a query that groups or removes duplicates, ordered by their keys.
    Row([u8; 16]),
}

/// A position among the entries of one or several indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryProgress {
    /// Which parts of the query's condition are looked up, one after the other.
    pub(crate) branches: Vec<u16>,
    /// A hash of the indexes that they are looked up in.
    pub(crate) indexes: [u8; 8],
    /// Which of them is being looked up.
    pub(crate) branch: u16,
    /// The slice that is being read: what lies below is done, what lies above is not begun.
    pub(crate) from: Vec<u8>,
    pub(crate) to: Vec<u8>,
    /// The entry of the last document.
    pub(crate) value: Vec<u8>,
    pub(crate) place: Vec<u8>,
}

/// What decides the order of documents whose sort keys are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tie {
    Place,
    PlaceDescending,
    /// The number in the resource id: clients that merge ranges rely on it.
    Rid,
    RidDescending,
}

impl Tie {
    const ALL: [Tie; 4] = [Tie::Place, Tie::PlaceDescending, Tie::Rid, Tie::RidDescending];

    pub(crate) fn is_descending(self) -> bool {
        matches!(self, Tie::PlaceDescending | Tie::RidDescending)
    }

    pub(crate) fn is_rid(self) -> bool {
        matches!(self, Tie::Rid | Tie::RidDescending)
    }
}

impl Cursor {
    /// A cursor for feeds and queries without limits.
    pub(crate) fn after(progress: Progress) -> Cursor {
        Cursor { progress, rows_taken: None, passed: 0, given: 0 }
    }

    /// A cursor in front of everything.
    pub(crate) fn at_beginning() -> Cursor {
        Cursor::after(Progress::Place(Vec::new()))
    }

    pub(crate) fn is_at_beginning(&self) -> bool {
        *self == Cursor::at_beginning()
    }
}

/// What a token belongs to.
pub(crate) struct Subject<'a> {
    pub(crate) container: ContainerRid,
    /// The query text and parameters; empty for a feed.
    pub(crate) query: &'a str,
}

const VERSION: u8 = 3;
const TAG: usize = 16;

impl Cursor {
    pub(crate) fn sign(&self, key: &hmac::Key, subject: &Subject<'_>) -> String {
        let mut token = vec![0; TAG];
        token.push(VERSION);
        self.encode(&mut token);
        let tag = tag(key, subject, &token[TAG..]);
        token[..TAG].copy_from_slice(&tag.as_ref()[..TAG]);
        BASE64.encode(token)
    }

    pub(crate) fn verify(text: &str, key: &hmac::Key, subject: &Subject<'_>) -> Result<Self> {
        let token = BASE64.decode(text).map_err(|_| invalid())?;
        if token.len() <= TAG || token[TAG] != VERSION {
            return Err(invalid());
        }
        let expected = tag(key, subject, &token[TAG..]);
        if !constant_time_eq(&expected.as_ref()[..TAG], &token[..TAG]) {
            return Err(invalid());
        }
        Cursor::decode(&token[TAG + 1..]).ok_or_else(invalid)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_number(u64::from(self.rows_taken.map_or(0, |rows| rows.saturating_add(1))), out);
        put_number(self.passed, out);
        put_number(self.given, out);
        match &self.progress {
            Progress::Place(place) => {
                out.push(0);
                out.extend_from_slice(place);
            }
            Progress::Entry(entry) => {
                out.push(1);
                put_number(entry.branches.len() as u64, out);
                entry.branches.iter().for_each(|branch| put_number(u64::from(*branch), out));
                out.extend_from_slice(&entry.indexes);
                put_number(u64::from(entry.branch), out);
                put_bytes(&entry.from, out);
                put_bytes(&entry.to, out);
                put_bytes(&entry.value, out);
                out.extend_from_slice(&entry.place);
            }
            Progress::Sorted { keys, tie, tied } => {
                out.push(2);
                out.push(*tie as u8);
                put_bytes(keys, out);
                out.extend_from_slice(tied);
            }
            Progress::Row(key) => {
                out.push(3);
                out.extend_from_slice(key);
            }
            Progress::Created { last, place } => {
                out.push(4);
                put_number(*last, out);
                out.extend_from_slice(place);
            }
        }
    }

    fn decode(bytes: &[u8]) -> Option<Cursor> {
        let mut reader = Reader(bytes);
        let rows_taken = u32::try_from(reader.number()?).ok()?.checked_sub(1);
        let (passed, given) = (reader.number()?, reader.number()?);
        let progress = match reader.byte()? {
            0 => Progress::Place(reader.0.to_vec()),
            1 => {
                let count = usize::try_from(reader.number()?).ok()?;
                let branch = |reader: &mut Reader<'_>| u16::try_from(reader.number()?).ok();
                let mut branches = Vec::new();
                for _ in 0..count {
                    branches.push(branch(&mut reader)?);
                }
                Progress::Entry(EntryProgress {
                    branches,
                    indexes: reader.array()?,
                    branch: branch(&mut reader)?,
                    from: reader.bytes()?,
                    to: reader.bytes()?,
                    value: reader.bytes()?,
                    place: reader.0.to_vec(),
                })
            }
            2 => {
                let tie = *Tie::ALL.get(usize::from(reader.byte()?))?;
                Progress::Sorted { keys: reader.bytes()?, tie, tied: reader.0.to_vec() }
            }
            3 => Progress::Row(reader.0.try_into().ok()?),
            4 => Progress::Created { last: reader.number()?, place: reader.0.to_vec() },
            _ => return None,
        };
        Some(Cursor { progress, rows_taken, passed, given })
    }
}

pub(crate) fn invalid() -> Error {
    Error::bad_request(
        "the continuation token is invalid: it was changed, or it belongs to another container or \
         query",
    )
}

/// Seven bits a byte, the lowest first.
fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }
}

fn tag(key: &hmac::Key, subject: &Subject<'_>, payload: &[u8]) -> hmac::Tag {
    let query = digest::digest(&digest::SHA256, subject.query.as_bytes());
    let mut context = hmac::Context::with_key(key);
    context.update(b"continuation");
    context.update(subject.container.to_string().as_bytes());
    context.update(query.as_ref());
    context.update(payload);
    context.sign()
}

/// Compares without telling by its time where two texts differ.
fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use value::DatabaseRid;

    use super::*;

    #[test]
    fn cursors_come_back_as_they_were() {
        let entry = EntryProgress {
            branches: vec![0, 300],
            indexes: [9; 8],
            branch: 1,
            from: vec![],
            to: vec![0xFF],
            value: vec![6, 0, 0],
            place: b"place".to_vec(),
        };
        for progress in [
            Progress::Place(Vec::new()),
            Progress::Entry(entry),
            Progress::Sorted { keys: vec![1, 2], tie: Tie::RidDescending, tied: vec![0; 8] },
            Progress::Row([7; 16]),
            Progress::Created { last: u64::MAX, place: b"place".to_vec() },
        ] {
            let cursor = Cursor { progress, rows_taken: None, passed: u64::MAX, given: 200 };
            let mut bytes = Vec::new();
            cursor.encode(&mut bytes);
            assert_eq!(Cursor::decode(&bytes), Some(cursor));
            for length in 0..bytes.len() {
                let _ = Cursor::decode(&bytes[..length]);
            }
        }
    }

    #[test]
    fn tokens_are_bound_to_their_container_and_query() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
        let container = ContainerRid::new(DatabaseRid(1), 2);
        let subject = Subject { container, query: "SELECT * FROM c" };
        let cursor =
            Cursor { rows_taken: Some(3), ..Cursor::after(Progress::Place(b"place".to_vec())) };
        let token = cursor.sign(&key, &subject);
        assert_eq!(Cursor::verify(&token, &key, &subject), Ok(cursor));

        let other_query = Subject { container, query: "SELECT 1" };
        assert!(Cursor::verify(&token, &key, &other_query).is_err());
        let container = ContainerRid::new(DatabaseRid(1), 3);
        let other_container = Subject { container, query: "SELECT * FROM c" };
        assert!(Cursor::verify(&token, &key, &other_container).is_err());
        for at in 0..token.len() {
            let mut tampered = token.clone().into_bytes();
            tampered[at] = if tampered[at] == b'A' { b'B' } else { b'A' };
            let tampered = String::from_utf8(tampered).unwrap();
            assert!(Cursor::verify(&tampered, &key, &subject).is_err(), "byte {at}");
        }
        for junk in ["", "x", "!!!!", "AAAA", "{\"token\":1}"] {
            assert!(Cursor::verify(junk, &key, &subject).is_err(), "{junk}");
        }
    }
}
