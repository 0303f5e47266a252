//! What a document has in the index: a term for each scalar that the policy takes, one for each
//! composite index, a few for each shape on the globe, and the shape of the document itself.
//!
//! Most of it is known before the write is committed and is worked out on the thread of the request.
//! What depends on system properties (`_ts`, and computed properties, which may look at any of them) is
//! *late*: it is worked out in the commit.

use std::cmp::Ordering;

use value::{Object, Value};

use super::cells;
use super::definition::{Computed, Definition, is_system};
use super::entry::{self, Class, Component, IndexId, Spelling};
use super::known::Lookup;
use super::shape::{NodeKind, Shape, ShapeBuilder};
use crate::Result;
use crate::policy::{Segment, Step, Terminator, Walk};
use crate::row::{Item, corrupt};

/// The terms of a document: the keys of its entries without kind and place. Sorted, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    bytes: Vec<u8>,
    parts: Vec<Part>,
    /// What the document looks like; nothing where there is no index.
    pub(crate) shape: Option<Shape>,
}

/// Where a term starts and ends, and what its row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    start: u32,
    end: u32,
    is_respelled: bool,
}

impl Part {
    fn of(self, bytes: &[u8]) -> Term<'_> {
        let Part { start, end, is_respelled } = self;
        Term { key: &bytes[start as usize..end as usize], is_respelled }
    }
}

/// What an entry is made of, beside the place of the document. Sorts by key; of two that share one,
/// the one that is written otherwise comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term<'a> {
    /// The index and the value.
    pub(crate) key: &'a [u8],
    /// Whether a number in it is written otherwise than its value alone tells.
    pub(crate) is_respelled: bool,
}

impl Ord for Term<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(other.key).then(other.is_respelled.cmp(&self.is_respelled))
    }
}

impl PartialOrd for Term<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Terms {
    /// The terms, in order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Term<'_>> {
        self.parts.iter().map(|part| part.of(&self.bytes))
    }

    pub(crate) fn contains(&self, term: Term<'_>) -> bool {
        self.parts.binary_search_by(|part| part.of(&self.bytes).cmp(&term)).is_ok()
    }

    /// How many terms there are.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The length of all terms together.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The length of all keys of entries together, for the document at a place.
    pub(crate) fn entry_bytes(&self, place: &[u8]) -> usize {
        self.size_bytes() + self.len() * (1 + place.len())
    }

    fn push(&mut self, id: &IndexId, value: &Value) {
        self.push_all(id, [(Some(value), Component::Ascending)]);
    }

    fn push_all<'v>(
        &mut self,
        id: &IndexId,
        values: impl IntoIterator<Item = (Option<&'v Value>, Component)>,
    ) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&id.0);
        let mut is_respelled = false;
        for (value, component) in values {
            entry::encode_component(value, component == Component::Descending, &mut self.bytes);
            is_respelled |= entry::is_respelled(value);
        }
        // A document has at most 2 MB, and a term is not much longer than what it is made from.
        let (start, end) = (start as u32, self.bytes.len() as u32);
        self.parts.push(Part { start, end, is_respelled });
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.parts.sort_unstable_by(|left, right| left.of(bytes).cmp(&right.of(bytes)));
        self.parts.dedup_by(|left, right| left.of(bytes).key == right.of(bytes).key);
    }
}

impl Definition {
    /// The terms that a document has whatever the server adds to it.
    pub(crate) fn early_terms(&self, document: &Object) -> Terms {
        let Some(policy) = self.policy() else { return Terms::default() };
        let mut reader = Reader {
            id: &self.id,
            path: Spelling::new(Class::Path),
            ids: self.known.lookup(),
            terms: Terms::default(),
            shape: Default::default(),
        };
        reader.document(document, policy.walk());
        let Reader { ids, mut terms, shape, .. } = reader;
        self.known.learn(ids.into_new());
        terms.shape = Some(shape.finish());
        self.add_composites(document, &[], false, &mut terms);
        self.add_cells(document, &mut terms);
        terms.sort();
        terms
    }

    /// The terms that depend on what the server adds. `early` has all others.
    pub(crate) fn late_terms(&self, item: &Item) -> Result<Terms> {
        let mut terms = Terms::default();
        if self.is_empty() {
            return Ok(terms);
        }
        let ts = Value::from(item.header.ts);
        terms.push(&self.ts, &ts);
        let has_late = !self.computed().is_empty()
            || self.composites().iter().any(|composite| composite.is_late);
        if has_late {
            let document = item.document.to_value();
            let computed: Vec<_> =
                self.computed().iter().map(|property| property.value.value(&document)).collect();
            let document = document.as_object().ok_or_else(|| corrupt("document"))?;
            for (property, value) in self.computed().iter().zip(&computed) {
                add_computed(property, value.as_ref(), &mut terms);
            }
            self.add_composites(document, &computed, true, &mut terms);
        }
        terms.sort();
        Ok(terms)
    }

    /// All terms of a stored document, early and late.
    pub(crate) fn terms_of(&self, item: &Item) -> Result<[Terms; 2]> {
        if self.is_empty() {
            return Ok(Default::default());
        }
        let document = item.document.to_value();
        let document = document.as_object().ok_or_else(|| corrupt("document"))?;
        Ok([self.early_terms(document), self.late_terms(item)?])
    }

    fn add_composites(
        &self,
        document: &Object,
        computed: &[Option<Value>],
        is_late: bool,
        terms: &mut Terms,
    ) {
        for composite in self.composites().iter().filter(|one| one.is_late == is_late) {
            let values = composite.parts.iter().map(|part| part.of(document, computed));
            terms.push_all(&composite.id, values.zip(composite.components.iter().copied()));
        }
    }
}

impl Definition {
    fn add_cells(&self, document: &Object, terms: &mut Terms) {
        for index in self.spatial() {
            let Some((Segment::Property(name), rest)) = index.path.segments.split_first() else {
                continue;
            };
            let Some(value) = document.get(name).filter(|_| !is_system(name)) else { continue };
            let mut path = Spelling::new(Class::Spatial);
            path.property(name);
            let below = index.path.terminator == Terminator::Subtree;
            ShapeReader { path, below, terms }.descend(value, rest);
        }
    }
}

/// Walks to the shapes at one path of the policy. Recursion is as deep as the document.
struct ShapeReader<'a> {
    path: Spelling,
    /// Whether shapes below the path are meant as well.
    below: bool,
    terms: &'a mut Terms,
}

impl ShapeReader<'_> {
    fn descend(&mut self, value: &Value, segments: &[Segment]) {
        match segments.split_first() {
            None => self.shapes(value),
            Some((Segment::Property(name), rest)) => {
                if let Some(member) = value.get(name) {
                    self.step(Step::Property(name), |reader| reader.descend(member, rest));
                }
            }
            Some((Segment::AnyElement | Segment::Element(_), rest)) => {
                self.step(Step::Element, |reader| {
                    for element in value.as_array().unwrap_or_default() {
                        reader.descend(element, rest);
                    }
                });
            }
        }
    }

    fn step(&mut self, step: Step<'_>, then: impl FnOnce(&mut Self)) {
        let length = self.path.length();
        match step {
            Step::Property(name) => self.path.property(name),
            Step::Element => self.path.element(),
        }
        then(self);
        self.path.truncate(length);
    }

    /// The shape that a value is, and those that lie below it.
    fn shapes(&mut self, value: &Value) {
        let cells = cells::covering(value);
        if !cells.is_empty() {
            let id = self.path.id();
            cells.into_iter().for_each(|cell| self.terms.push(&id, &Value::from(cell)));
        }
        match value {
            Value::Object(object) if self.below => {
                for (name, value) in object.iter() {
                    self.step(Step::Property(name), |reader| reader.shapes(value));
                }
            }
            Value::Array(elements) if self.below => {
                self.step(Step::Element, |reader| {
                    elements.iter().for_each(|element| reader.shapes(element));
                });
            }
            _ => {}
        }
    }
}

/// A computed property is indexed as a member would be, its elements and members excepted.
fn add_computed(property: &Computed, value: Option<&Value>, terms: &mut Terms) {
    if let (Some(id), Some(value)) = (&property.index, value)
        && is_scalar(value)
    {
        terms.push(id, value);
    }
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}

/// Walks once over a document and the rules of its policy. Recursion is as deep as the document.
struct Reader<'a> {
    /// The index of ids, which are indexed whatever the policy says.
    id: &'a IndexId,
    path: Spelling,
    ids: Lookup<'a>,
    terms: Terms,
    shape: ShapeBuilder,
}

/// Where in the document the walk is.
#[derive(Clone, Copy)]
struct At<'a> {
    walk: Walk<'a>,
    /// Inside an array there are no shapes.
    is_in_array: bool,
}

impl Reader<'_> {
    fn document(&mut self, document: &Object, walk: Walk<'_>) {
        for (name, value) in document.iter() {
            if is_system(name) {
                continue;
            }
            if name == "id" && is_scalar(value) {
                self.terms.push(self.id, value);
                self.shape.push(self.id, NodeKind::Scalar);
                continue;
            }
            self.member(name, value, At { walk, is_in_array: false });
        }
    }

    fn member(&mut self, name: &str, value: &Value, at: At<'_>) {
        let walk = at.walk.step(Step::Property(name));
        if at.is_in_array && walk.is_over() {
            return;
        }
        let length = self.path.length();
        self.path.property(name);
        self.value(value, At { walk, ..at }, &mut None);
        self.path.truncate(length);
    }

    /// `id` is that of the path, once it has been worked out: all elements of an array share theirs.
    fn value(&mut self, value: &Value, at: At<'_>, id: &mut Option<IndexId>) {
        if !at.is_in_array {
            let id = id.get_or_insert_with(|| self.ids.id(&self.path));
            self.shape.push(id, NodeKind::of(value));
        }
        match value {
            Value::Object(object) => {
                for (name, value) in object.iter() {
                    self.member(name, value, at);
                }
            }
            Value::Array(elements) => {
                let below = At { walk: at.walk.step(Step::Element), is_in_array: true };
                if below.walk.is_over() {
                    return;
                }
                let length = self.path.length();
                self.path.element();
                let mut id = None;
                for element in elements {
                    self.value(element, below, &mut id);
                }
                self.path.truncate(length);
            }
            _ if at.walk.takes_scalar() => {
                let id = id.get_or_insert_with(|| self.ids.id(&self.path));
                self.terms.push(id, value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
