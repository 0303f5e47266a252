//! What index entries tell of documents, so that these need not be read.
//!
//! An entry holds the values of its index, the partition key of the document and its id. Where a
//! query looks at nothing else, it is run over a document that has just these: it cannot tell the
//! difference. Not every entry tells enough. A long string is cut in it, a number may be written
//! otherwise (`1.0`), and of a partition key only strings, booleans and null are sure to come back as
//! they were written. Then the document itself is read.

use query::{Indexed, PathSegment, Prepared, Touched};
use storage::Snapshot;
use value::{Object, Value, order};

use crate::Result;
use crate::container::Container;
use crate::index::entry::{self, Component, Listed};
use crate::key::PartitionPrefix;
use crate::read::refused;
use crate::row::corrupt;
use crate::scan::Reading;

/// Makes documents of the entries of one index.
#[derive(Clone, Debug)]
pub(crate) struct Cover {
    /// How the values of an entry are laid out.
    layout: Vec<Component>,
    /// What the query looks at, and where in an entry it is.
    wanted: Vec<(Vec<String>, Source)>,
}

/// Asks entries whether their documents pass a filter, so that only those that do are read.
#[derive(Clone)]
pub(crate) struct Sieve<'q> {
    pub(super) cover: Cover,
    pub(super) prepared: &'q Prepared,
}

impl std::fmt::Debug for Sieve<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sieve").field("cover", &self.cover).finish_non_exhaustive()
    }
}

impl Sieve<'_> {
    /// Whether the document of an entry may pass: it does, or the entry does not tell enough.
    pub(super) fn passes(&self, listed: &Listed) -> Result<bool> {
        match self.cover.document(listed)? {
            Some(document) => self.prepared.passes(&document).map_err(refused),
            None => Ok(true),
        }
    }
}

/// Where in an entry something is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// This one of the values.
    Value(usize),
    /// This level of the partition key.
    Key(usize),
    Id,
}

impl Cover {
    /// What the entries of an index tell, if that is all that is looked at.
    pub(super) fn of<P: Snapshot>(
        reading: &Reading<P>,
        paths: &[Indexed],
        layout: &[Component],
        touched: &Touched,
    ) -> Option<Cover> {
        // Whether a document has expired, or was deleted with its partition, only itself can tell.
        if !reading.is_plain() {
            return None;
        }
        let told = told(&reading.container, paths);
        let mut cover = Cover { layout: layout.to_vec(), wanted: Vec::new() };
        cover.take(touched, &mut Vec::new(), &told).then_some(cover)
    }

    /// Adds what is looked at below some names; says whether all of it is told.
    fn take(
        &mut self,
        touched: &Touched,
        names: &mut Vec<String>,
        told: &[(Vec<String>, Source)],
    ) -> bool {
        // There is a scalar, or nothing, and so nothing else below it.
        if let Some(found) = told.iter().find(|(path, _)| path == names) {
            self.wanted.push(found.clone());
            return true;
        }
        let Touched::Members(members) = touched else { return false };
        members.iter().all(|(name, below)| {
            names.push(name.clone());
            let is_told = self.take(below, names, told);
            names.pop();
            is_told
        })
    }

    /// The parts of a document that the query looks at, if its entry tells them.
    pub(super) fn document(&self, listed: &Listed) -> Result<Option<Value>> {
        let parsed = entry::parse(&listed.key, &self.layout);
        let parsed = parsed.ok_or_else(|| corrupt("index entry"))?;
        if listed.is_respelled || !parsed.exact {
            return Ok(None);
        }
        let mut document = Object::default();
        for (names, source) in &self.wanted {
            let value = match *source {
                Source::Value(at) => self.value(parsed.value, at)?,
                Source::Key(_) | Source::Id => match of_place(parsed.place, *source)? {
                    None => return Ok(None),
                    value => value,
                },
            };
            if let Some(value) = value {
                insert(&mut document, names, value);
            }
        }
        Ok(Some(Value::Object(document)))
    }

    /// Whether the entry of a document tells enough of it.
    pub(super) fn tells(&self, document: &Value) -> bool {
        self.wanted.iter().all(|(names, source)| {
            let value = names.iter().try_fold(document, |value, name| value.get(name));
            let is_exact = order::encode_term(value, &mut Vec::new());
            let is_number = matches!(value, Some(Value::Number(_)));
            match source {
                Source::Value(_) => is_exact && !entry::is_respelled(value),
                Source::Key(_) => value.is_some() && is_exact && !is_number,
                Source::Id => true,
            }
        })
    }

    /// One of the values of an entry; `None` is undefined.
    fn value(&self, values: &[u8], at: usize) -> Result<Option<Value>> {
        let mut rest = values;
        for component in &self.layout[..at] {
            let is_inverted = *component == Component::Descending;
            let term =
                order::measure_term(rest, is_inverted).map_err(|_| corrupt("index entry"))?;
            rest = &rest[term.length..];
        }
        let inverted: Vec<u8>;
        if self.layout[at] == Component::Descending {
            inverted = rest.iter().map(|byte| !byte).collect();
            rest = &inverted;
        }
        let (value, _) = value::decode(rest).map_err(|_| corrupt("index entry"))?;
        Ok(value)
    }
}

/// Where the entries of an index tell what lies at some paths.
fn told(container: &Container, paths: &[Indexed]) -> Vec<(Vec<String>, Source)> {
    let name = |segment: &PathSegment| match segment {
        PathSegment::Property(name) => Some(name.clone()),
        PathSegment::Element => None,
    };
    let mut told: Vec<(Vec<String>, Source)> = Vec::new();
    for (at, what) in paths.iter().enumerate() {
        if let Indexed::Path(path) = what {
            let names: Option<Vec<String>> = path.iter().map(name).collect();
            told.extend(names.map(|names| (names, Source::Value(at))));
        }
    }
    told.push((vec!["id".to_owned()], Source::Id));
    let key = &container.policies.partition_key;
    if !key.system_key {
        let levels = key.paths.iter().enumerate();
        told.extend(levels.map(|(at, path)| (path.segments().to_vec(), Source::Key(at))));
    }
    told
}

/// What the place of a document tells; `None` where it does not.
fn of_place(place: &[u8], source: Source) -> Result<Option<Value>> {
    let (partition, id) =
        PartitionPrefix::of(place).ok_or_else(|| corrupt("place of a document"))?;
    let Source::Key(at) = source else {
        let id = std::str::from_utf8(id).map_err(|_| corrupt("id of a document"))?;
        return Ok(Some(Value::from(id)));
    };
    let key = partition.partition_key().ok_or_else(|| corrupt("place of a document"))?;
    Ok(match key.0.get(at) {
        // A number may have been written in several ways, and an array or object counts as undefined.
        None | Some(value::Component::Number(_) | value::Component::Undefined) => None,
        Some(component) => component.to_value(),
    })
}

fn insert(object: &mut Object, names: &[String], value: Value) {
    let Some((name, rest)) = names.split_first() else { return };
    if rest.is_empty() {
        object.insert(name.clone(), value);
        return;
    }
    if !object.contains(name) {
        object.insert(name.clone(), Value::Object(Object::default()));
    }
    if let Some(below) = object.get_mut(name).and_then(Value::as_object_mut) {
        insert(below, rest, value);
    }
}
