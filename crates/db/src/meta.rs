//! The meta range: the rows behind the catalog.
//!
//! One row for each resource, keyed by its kind and its resource id, holding JSON; one row of
//! settings (counters that make resource ids, the signing secret); and one row for each range that
//! must be erased because its container is gone. A change of the catalog is one commit. Beside it are
//! the tokens of transactions across partitions.

use bytes::Bytes;
use storage::{Operation, Snapshot, Stop, View};
use value::{Object, Value};

use crate::Result;
use crate::row::corrupt;

/// The kinds of rows. The numbers are part of the format on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum MetaKind {
    Settings = 0x01,
    Database = 0x02,
    Container = 0x03,
    User = 0x04,
    Permission = 0x05,
    EncryptionKey = 0x06,
    Offer = 0x07,
    /// A range that must be erased.
    Erase = 0x08,
    /// A procedure, trigger or function.
    Script = 0x09,
    /// What became of a transaction across partitions, by its token.
    Transaction = 0x0A,
    /// The same tokens in the order of time.
    TransactionTime = 0x0B,
}

pub(crate) fn key(kind: MetaKind, name: &str) -> Vec<u8> {
    let mut key = vec![kind as u8];
    key.extend_from_slice(name.as_bytes());
    key
}

/// What the catalog needs beyond its resources. Every change stores it anew.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Counts the changes of the catalog; makes the etags of its resources.
    pub(crate) version: u64,
    /// The last number given to any resource but offers and ranges.
    pub(crate) last_number: u32,
    pub(crate) last_offer: u32,
    pub(crate) last_range: u64,
    /// Signs continuation and resource tokens.
    pub(crate) secret: Vec<u8>,
}

impl Settings {
    pub(crate) fn encode(&self) -> Bytes {
        let secret: String = self.secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let object = Object::from([
            ("version", Value::from(self.version)),
            ("lastNumber", Value::from(self.last_number)),
            ("lastOffer", Value::from(self.last_offer)),
            ("lastRange", Value::from(self.last_range)),
            ("secret", Value::from(secret)),
        ]);
        Bytes::from(Value::Object(object).to_text())
    }

    pub(crate) fn decode(row: &[u8]) -> Result<Self> {
        let object = object(row)?;
        let number = |name: &str| {
            let number = object.get(name).and_then(Value::as_i64);
            number.and_then(|n| u64::try_from(n).ok()).ok_or_else(|| corrupt("settings"))
        };
        let secret = object.get("secret").and_then(Value::as_str).unwrap_or_default();
        let secret: Option<Vec<u8>> = (0..secret.len() / 2)
            .map(|at| u8::from_str_radix(secret.get(2 * at..2 * at + 2)?, 16).ok())
            .collect();
        let secret = secret.filter(|secret| secret.len() >= 32);
        let narrow = |n: u64| u32::try_from(n).map_err(|_| corrupt("settings"));
        Ok(Self {
            version: number("version")?,
            last_number: narrow(number("lastNumber")?)?,
            last_offer: narrow(number("lastOffer")?)?,
            last_range: number("lastRange")?,
            secret: secret.ok_or_else(|| corrupt("settings"))?,
        })
    }
}

/// Reads a row that holds a JSON object.
pub(crate) fn object(row: &[u8]) -> Result<Object> {
    match Value::parse(row) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(corrupt("meta row")),
    }
}

/// All rows of a kind, in the order of their keys.
pub(crate) fn rows(
    snapshot: &impl Snapshot,
    kind: MetaKind,
) -> Result<Vec<(String, Bytes)>, storage::Error> {
    use std::ops::{Bound, ControlFlow};
    let (from, to) = ([kind as u8], [kind as u8 + 1]);
    let mut rows = Vec::new();
    snapshot.scan(
        Bound::Included(&from[..]),
        Bound::Excluded(&to[..]),
        storage::Direction::Forward,
        &mut |key, value| {
            rows.push((String::from_utf8_lossy(&key[1..]).into_owned(), value.clone()));
            ControlFlow::Continue(())
        },
    )?;
    Ok(rows)
}

/// Rows that are put and deleted in one commit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    puts: Vec<(Vec<u8>, Bytes)>,
    deletes: Vec<Vec<u8>>,
}

impl Change {
    pub(crate) fn put(&mut self, kind: MetaKind, name: &str, value: Bytes) {
        self.puts.push((key(kind, name), value));
    }

    pub(crate) fn put_object(&mut self, kind: MetaKind, name: &str, object: &Object) {
        self.put(kind, name, Bytes::from(Value::Object(object.clone()).to_text()));
    }

    pub(crate) fn delete(&mut self, kind: MetaKind, name: &str) {
        self.deletes.push(key(kind, name));
    }
}

impl Operation for Change {
    type Output = ();
    type Refusal = std::convert::Infallible;

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Self::Refusal>> {
        for (key, value) in &self.puts {
            view.put(key, value.clone());
        }
        for key in &self.deletes {
            view.delete(key);
        }
        Ok(())
    }
}
