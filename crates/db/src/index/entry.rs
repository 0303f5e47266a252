//! The key of an index entry: which index, which values, which document.
//!
//! The values are terms ([`value::order`]), one for an ordinary index and several, one behind the
//! other, for a composite one; those of descending paths have all their bytes inverted. The place of
//! the document follows the values, so that an equality inside one logical partition is one run of
//! keys. The row is empty, unless a number was written otherwise than its value alone tells: `1.0`
//! and `1` have one key, and the row says that only the document knows which of them it is.

use std::ops::Bound;

use bytes::Bytes;
use query::{PathSegment, ScalarKind, Span};
use ring::digest;
use value::{Value, order};

use crate::key::Kind;

/// Names an index of a container: a hash of what it is over. Two policies that index the same path
/// share its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct IndexId(pub(crate) [u8; IndexId::BYTES]);

/// What an index is over, the first byte of what is hashed. Part of the format on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Class {
    /// The scalars at a path.
    Path = 1,
    /// A computed property.
    Computed = 2,
    /// Several paths.
    Composite = 3,
    /// The shapes on the map at a path.
    Spatial = 4,
}

impl IndexId {
    pub(crate) const BYTES: usize = 12;

    /// The index of the scalars at a path.
    pub(crate) fn of_path(path: &[PathSegment]) -> IndexId {
        Spelling::of(Class::Path, path).id()
    }

    /// The index of a computed property. What it computes is part of its name: with another query it
    /// is another index.
    pub(crate) fn of_computed(name: &str, query: &str) -> IndexId {
        let mut spelling = Spelling::new(Class::Computed);
        spelling.property(name);
        spelling.property(query);
        spelling.id()
    }

    /// The index of the shapes on the map at a path.
    pub(crate) fn of_spatial(path: &[PathSegment]) -> IndexId {
        Spelling::of(Class::Spatial, path).id()
    }
}

/// A text without ambiguity of what an index is over. Part of the format on disk.
#[derive(Clone, Debug)]
pub(crate) struct Spelling(Vec<u8>);

const PROPERTY: u8 = 1;
const ELEMENT: u8 = 2;

impl Spelling {
    pub(crate) fn new(class: Class) -> Spelling {
        let mut bytes = Vec::with_capacity(64);
        bytes.push(class as u8);
        Spelling(bytes)
    }

    pub(crate) fn of(class: Class, path: &[PathSegment]) -> Spelling {
        let mut spelling = Spelling::new(class);
        for segment in path {
            match segment {
                PathSegment::Property(name) => spelling.property(name),
                PathSegment::Element => spelling.element(),
            }
        }
        spelling
    }

    pub(crate) fn property(&mut self, name: &str) {
        self.0.push(PROPERTY);
        self.0.extend_from_slice(&(name.len() as u32).to_be_bytes());
        self.0.extend_from_slice(name.as_bytes());
    }

    pub(crate) fn element(&mut self) {
        self.0.push(ELEMENT);
    }

    /// The spelling of a part, such as one path of a composite index, with its order.
    pub(crate) fn part(&mut self, part: &Spelling, is_descending: bool) {
        self.0.push(u8::from(is_descending));
        self.0.extend_from_slice(&(part.0.len() as u32).to_be_bytes());
        self.0.extend_from_slice(&part.0);
    }

    /// How long it is, to come back here after a step down.
    pub(crate) fn length(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn id(&self) -> IndexId {
        let hash = digest::digest(&digest::SHA256, &self.0);
        IndexId(*hash.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
    }
}

/// Appends what an entry holds for a value; `None` is undefined.
pub(crate) fn encode_component(value: Option<&Value>, descending: bool, out: &mut Vec<u8>) {
    let start = out.len();
    order::encode_term(value, out);
    if descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Whether an entry cannot tell how a value is written.
pub(crate) fn is_respelled(value: Option<&Value>) -> bool {
    matches!(value, Some(Value::Number(number)) if !number.is_plain())
}

/// The row of an entry.
pub(crate) fn row(is_respelled: bool) -> Bytes {
    Bytes::from_static(if is_respelled { &[1] } else { &[] })
}

/// The key of an entry with what its row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) key: Vec<u8>,
    /// Whether a number is written otherwise in the document than its value alone tells.
    pub(crate) is_respelled: bool,
}

impl Listed {
    pub(crate) fn new(key: &[u8], row: &[u8]) -> Listed {
        Listed { key: key.to_vec(), is_respelled: !row.is_empty() }
    }
}

/// One of the values of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component {
    Ascending,
    Descending,
}

/// The one value of an ordinary index.
pub(crate) const SINGLE: [Component; 1] = [Component::Ascending];

/// An entry, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The values as they are encoded, all components.
    pub(crate) value: &'a [u8],
    /// The place of the document.
    pub(crate) place: &'a [u8],
    /// Whether the values can be read from the entry; if not, others may have the same entry.
    pub(crate) exact: bool,
}

/// Where the values start: behind the kind and the id of the index.
pub(crate) const VALUE_AT: usize = 1 + IndexId::BYTES;

/// Takes the key of an entry apart. `None` means that it is damaged.
pub(crate) fn parse<'a>(key: &'a [u8], components: &[Component]) -> Option<Entry<'a>> {
    let rest = key.get(VALUE_AT..)?;
    let mut length = 0;
    let mut exact = true;
    for component in components {
        let is_inverted = *component == Component::Descending;
        let term = order::measure_term(rest.get(length..)?, is_inverted).ok()?;
        length += term.length;
        exact &= term.is_exact;
    }
    let (value, place) = rest.split_at(length);
    Some(Entry { value, place, exact })
}

/// What all entries of an index begin with.
pub(crate) fn prefix(id: &IndexId) -> Vec<u8> {
    let mut key = Vec::with_capacity(64);
    key.push(Kind::Index as u8);
    key.extend_from_slice(&id.0);
    key
}

/// The keys of all entries of an index: inclusive from, exclusive to.
pub(crate) fn all(id: &IndexId) -> (Vec<u8>, Vec<u8>) {
    let from = prefix(id);
    let to = successor(from.clone());
    (from, to)
}

/// The keys that begin with some bytes and go on with a value in the span: inclusive from, exclusive
/// to. No match is missed; where strings were cut there may be others among them.
pub(crate) fn bounds(start: &[u8], component: Component, span: &Span) -> (Vec<u8>, Vec<u8>) {
    let Some((from, to)) = term_bounds(span) else { return (start.to_vec(), start.to_vec()) };
    match component {
        Component::Ascending => ([start, &from].concat(), [start, &to].concat()),
        Component::Descending => {
            // Terms turn round with their bytes. Both bounds are beginnings of terms, so what lay
            // before one now lies behind everything that begins with it.
            let turned = |mut bytes: Vec<u8>| {
                bytes.iter_mut().for_each(|byte| *byte = !*byte);
                successor([start, &bytes].concat())
            };
            (turned(to), turned(from))
        }
    }
}

/// The same for terms alone; `None` when no scalar can lie in the span.
fn term_bounds(span: &Span) -> Option<(Vec<u8>, Vec<u8>)> {
    let all_from = |from: Vec<u8>| {
        let to = successor(from.clone());
        (from, to)
    };
    match span {
        Span::Exactly(value) => type_bytes(value).map(|_| all_from(term(value).0)),
        Span::Between { low, high } => {
            let (low_type, high_type) = (type_of(low).ok()?, type_of(high).ok()?);
            let Some((first, end)) = low_type.or(high_type) else {
                return Some((vec![order::NULL], vec![order::ARRAY]));
            };
            if high_type.is_some_and(|kind| kind != (first, end)) {
                return None;
            }
            Some((lower(low, first), upper(high, end)))
        }
        Span::Prefix(text) => {
            let is_cut = text.len() > order::TERM_STRING_BYTES;
            let from = if is_cut {
                term(&Value::from(text.as_str())).0
            } else {
                let mut bytes = Vec::new();
                order::encode_str_start(text.as_bytes(), &mut bytes);
                bytes
            };
            Some(all_from(from))
        }
        Span::Kind(kind) => {
            let (first, end) = kind_bytes(*kind);
            Some((vec![first], vec![end]))
        }
    }
}

fn lower(low: &Bound<Value>, first: u8) -> Vec<u8> {
    match low {
        Bound::Unbounded => vec![first],
        Bound::Included(value) => term(value).0,
        Bound::Excluded(value) => match term(value) {
            (term, true) => successor(term),
            // Greater ones may have the same term.
            (term, false) => term,
        },
    }
}

fn upper(high: &Bound<Value>, end: u8) -> Vec<u8> {
    match high {
        Bound::Unbounded => vec![end],
        Bound::Included(value) => successor(term(value).0),
        Bound::Excluded(value) => match term(value) {
            (term, true) => term,
            // Smaller ones may have the same term.
            (term, false) => successor(term),
        },
    }
}

fn term(value: &Value) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let is_exact = order::encode_term(Some(value), &mut bytes);
    (bytes, is_exact)
}

type TypeBytes = (u8, u8);

/// The type that a bound is of; `Err` when it is no scalar, which no index can be asked for.
fn type_of(bound: &Bound<Value>) -> Result<Option<TypeBytes>, ()> {
    match bound {
        Bound::Unbounded => Ok(None),
        Bound::Included(value) | Bound::Excluded(value) => type_bytes(value).map(Some).ok_or(()),
    }
}

fn type_bytes(value: &Value) -> Option<TypeBytes> {
    let kind = match value {
        Value::Null => ScalarKind::Null,
        Value::Bool(_) => ScalarKind::Boolean,
        Value::Number(_) => ScalarKind::Number,
        Value::String(_) => ScalarKind::String,
        Value::Array(_) | Value::Object(_) => return None,
    };
    Some(kind_bytes(kind))
}

/// The first type byte of a kind, and the first behind it.
fn kind_bytes(kind: ScalarKind) -> TypeBytes {
    match kind {
        ScalarKind::Null => (order::NULL, order::FALSE),
        ScalarKind::Boolean => (order::FALSE, order::NUMBER),
        ScalarKind::Number => (order::NUMBER, order::STRING),
        ScalarKind::String => (order::STRING, order::ARRAY),
    }
}

/// The first key behind all that begin with these bytes.
pub(crate) fn successor(mut bytes: Vec<u8>) -> Vec<u8> {
    while bytes.last() == Some(&0xFF) {
        bytes.pop();
    }
    let last = bytes
        .last_mut()
        .expect("a key begins with its kind, a term with its type: neither is 0xFF");
    *last += 1;
    bytes
}

#[cfg(test)]
mod tests;
