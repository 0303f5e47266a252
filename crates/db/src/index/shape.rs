//! The shapes of documents: which paths they have, and of which kind what lies there is.
//!
//! An entry says that a document holds a value; nothing says that it holds none. Documents that lack a
//! path, or have an array or object there, are found by their shape: documents of a container mostly
//! look alike, so there are few shapes and one entry for each document, whatever its size.
//!
//! A shape is the set of all paths of a document outside of arrays, each with the kind of its value.
//! System properties are left out, because all documents have them. How many documents have a shape is
//! counted, so that the definition of the shape goes with the last of them; searching for another one
//! would walk over everything that was deleted before.

use std::ops::{Bound, ControlFlow};

use bytes::Bytes;
use query::PathSegment;
use ring::digest;
use storage::{Direction, Snapshot};
use value::Value;

use super::entry::IndexId;
use crate::Result;
use crate::key::{Kind, keyed};
use crate::row::corrupt;

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum NodeKind {
    Scalar = 1,
    Array = 2,
    Object = 3,
}

impl NodeKind {
    pub(crate) fn of(value: &Value) -> NodeKind {
        match value {
            Value::Array(_) => NodeKind::Array,
            Value::Object(_) => NodeKind::Object,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => NodeKind::Scalar,
        }
    }

    fn from_byte(byte: u8) -> Option<NodeKind> {
        [NodeKind::Scalar, NodeKind::Array, NodeKind::Object]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// Names a shape: a hash of its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ShapeId(pub(crate) [u8; ShapeId::BYTES]);

impl ShapeId {
    pub(crate) const BYTES: usize = 16;
}

/// One path in the set of a shape: its id and the kind.
const NODE: usize = IndexId::BYTES + 1;

/// The paths of a shape, sorted by their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShapeSet(Bytes);

impl ShapeSet {
    /// Reads a row that was stored.
    pub(crate) fn decode(row: &Bytes) -> Result<ShapeSet> {
        let is_sound = row.len().is_multiple_of(NODE)
            && row.chunks_exact(NODE).all(|node| NodeKind::from_byte(node[NODE - 1]).is_some());
        if is_sound { Ok(ShapeSet(row.clone())) } else { Err(corrupt("shape")) }
    }

    pub(crate) fn encoded(&self) -> &Bytes {
        &self.0
    }

    /// What lies at a path; `None` when documents of this shape have nothing there.
    pub(crate) fn kind_of(&self, path: &[String]) -> Option<NodeKind> {
        let path: Vec<_> = path.iter().cloned().map(PathSegment::Property).collect();
        self.kind_at(&IndexId::of_path(&path))
    }

    /// The same for the id of a path, for those who ask many shapes.
    pub(crate) fn kind_at(&self, path: &IndexId) -> Option<NodeKind> {
        let nodes = self.0.len() / NODE;
        let node = |at: usize| &self.0[at * NODE..(at + 1) * NODE];
        let (mut low, mut high) = (0, nodes);
        while low < high {
            let middle = (low + high) / 2;
            if node(middle)[..IndexId::BYTES] < path.0[..] {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let found = (low < nodes).then(|| node(low))?;
        (found[..IndexId::BYTES] == path.0).then(|| NodeKind::from_byte(found[NODE - 1]))?
    }
}

/// The shape of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) id: ShapeId,
    pub(crate) set: ShapeSet,
}

/// Collects the paths of a document.
#[derive(Debug, Default)]
pub(super) struct ShapeBuilder(Vec<[u8; NODE]>);

impl ShapeBuilder {
    pub(super) fn push(&mut self, path: &IndexId, kind: NodeKind) {
        let mut node = [kind as u8; NODE];
        node[..IndexId::BYTES].copy_from_slice(&path.0);
        self.0.push(node);
    }

    pub(super) fn finish(mut self) -> Shape {
        self.0.sort_unstable();
        let set = Bytes::from(self.0.concat());
        let hash = digest::digest(&digest::SHA256, &set);
        let id = ShapeId(*hash.as_ref().first_chunk().expect("SHA-256 has 32 bytes"));
        Shape { id, set: ShapeSet(set) }
    }
}

/// The entry of a document under its shape; with an empty place, what all entries of the shape begin
/// with.
pub(crate) fn entry(shape: ShapeId, place: &[u8]) -> Vec<u8> {
    keyed(Kind::Shape, &[&shape.0, place])
}

/// Where the place of the document starts in the key of a shape's entry.
pub(crate) const PLACE_AT: usize = 1 + ShapeId::BYTES;

pub(crate) fn definition_row(shape: ShapeId) -> Vec<u8> {
    keyed(Kind::ShapeDefinition, &[&shape.0])
}

pub(crate) fn count_row(shape: ShapeId) -> Vec<u8> {
    keyed(Kind::ShapeCount, &[&shape.0])
}

/// More shapes than this are not worth knowing: reading the documents is cheaper.
const SHAPES_MAX: usize = 4_096;
const SHAPES_BYTES_MAX: usize = 16 * 1024 * 1024;

/// All shapes of a range; `None` when there are so many that they say nothing.
pub(crate) fn shapes<P: Snapshot>(snapshot: &P) -> Result<Option<Vec<(ShapeId, ShapeSet)>>> {
    let (from, to) = crate::key::all_of(Kind::ShapeDefinition);
    let mut rows = Vec::new();
    let mut bytes = 0;
    snapshot.scan(
        Bound::Included(&from[..]),
        Bound::Excluded(&to[..]),
        Direction::Forward,
        &mut |key, row| {
            rows.push((key.to_vec(), row.clone()));
            bytes += row.len();
            let go_on = rows.len() <= SHAPES_MAX && bytes <= SHAPES_BYTES_MAX;
            if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        },
    )?;
    if rows.len() > SHAPES_MAX || bytes > SHAPES_BYTES_MAX {
        return Ok(None);
    }
    let shapes = rows.iter().map(|(key, row)| {
        let id = key[1..].try_into().map_err(|_| corrupt("shape"))?;
        Ok((ShapeId(id), ShapeSet::decode(row)?))
    });
    shapes.collect::<Result<Vec<_>>>().map(Some)
}
