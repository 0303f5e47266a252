//! What a container's policies ask of the index, made ready for documents and for queries.

use std::fmt;

use query::{Indexed, PathSegment};
use value::{Object, SYSTEM_PROPERTIES, Value};

use super::entry::{Class, Component, IndexId, Spelling};
use super::known::KnownPaths;
use crate::policy::{
    CompositePath, Geospatial, IndexingMode, IndexingPolicy, Order, Policies, Segment,
    SpatialIndex, Step,
};
use crate::{Error, Result, policy};

/// The members of a container's definition that decide about its index.
const SOURCES: [&str; 5] = [
    "indexingPolicy",
    "computedProperties",
    "geospatialConfig",
    "vectorEmbeddingPolicy",
    "fullTextPolicy",
];

/// A definition of a container's index. A container has one, and while its documents are being
/// re-indexed a few; they are numbered, and a number always means the same.
pub(crate) struct Definition {
    /// Zero is the definition of containers that were stored before there was an index: nothing.
    pub(crate) number: u32,
    /// What it was made from; stored with the container.
    source: Object,
    /// `None` where nothing is indexed at all.
    policy: Option<IndexingPolicy>,
    geospatial: Geospatial,
    computed: Vec<Computed>,
    composites: Vec<Composite>,
    /// The indexes that every container has.
    pub(super) id: IndexId,
    pub(super) ts: IndexId,
    pub(super) known: KnownPaths,
}

/// A computed property that some index needs.
pub(super) struct Computed {
    name: String,
    query: String,
    /// Its own index, if it has one.
    pub(super) index: Option<IndexId>,
    pub(super) value: query::Computed,
}

/// A composite index. Those with array elements in their paths are not kept: no query can use them.
#[derive(Debug)]
pub(crate) struct Composite {
    /// Its name.
    pub(crate) id: IndexId,
    /// What it is over.
    pub(crate) paths: Vec<Indexed>,
    /// In which order each path is kept.
    pub(crate) components: Vec<Component>,
    pub(super) parts: Vec<Part>,
    /// Whether some part is known only when the document is stored.
    pub(super) is_late: bool,
}

/// Where a value of a composite index comes from.
#[derive(Debug)]
pub(super) enum Part {
    Path(Vec<String>),
    /// The offset of the computed property.
    Computed(usize),
}

impl Definition {
    /// The definition by which nothing is indexed.
    pub(crate) fn empty() -> Definition {
        Definition {
            number: 0,
            source: Object::new(),
            policy: None,
            geospatial: Geospatial::Geography,
            computed: Vec::new(),
            composites: Vec::new(),
            id: top_level("id"),
            ts: top_level("_ts"),
            known: KnownPaths::default(),
        }
    }

    /// Makes policies ready. `container` is the container's definition, which the policies were read
    /// from.
    pub(crate) fn new(number: u32, policies: &Policies, container: &Object) -> Result<Definition> {
        let source = SOURCES.iter().filter_map(|name| Some((*name, container.get(name)?.clone())));
        let mut definition = Definition {
            number,
            source: source.collect(),
            geospatial: policies.geospatial,
            ..Definition::empty()
        };
        if policies.indexing.mode == IndexingMode::None {
            return Ok(definition);
        }
        let indexing = &policies.indexing;
        definition.computed = computed(policies)?;
        definition.composites = indexing
            .composite
            .iter()
            .filter_map(|paths| composite(paths, &definition.computed))
            .collect();
        definition.policy = Some(indexing.clone());
        Ok(definition)
    }

    /// Reads what [`Definition::source`] gave.
    pub(crate) fn load(number: u32, source: &Object) -> Result<Definition> {
        if number == 0 {
            return Ok(Definition::empty());
        }
        Definition::new(number, &policy::load(source)?, source)
    }

    /// What it was made from.
    pub(crate) fn source(&self) -> &Object {
        &self.source
    }

    /// Whether nothing is indexed, so that there are no shapes either.
    pub(crate) fn is_empty(&self) -> bool {
        self.policy.is_none()
    }

    /// Whether both ask for the same entries.
    pub(crate) fn is_same_index(&self, other: &Definition) -> bool {
        let same_policy = match (&self.policy, &other.policy) {
            (Some(policy), Some(other)) => policy.is_same_index(other),
            (None, None) => return true,
            _ => false,
        };
        let names = |definition: &Definition| {
            let computed = definition.computed.iter();
            computed.map(|one| (one.name.clone(), one.query.clone(), one.index)).collect::<Vec<_>>()
        };
        same_policy && self.geospatial == other.geospatial && names(self) == names(other)
    }

    /// The index that knows these values, if there is one.
    pub(crate) fn serves(&self, indexed: &Indexed) -> Option<IndexId> {
        let policy = self.policy.as_ref()?;
        match indexed {
            Indexed::Computed(name) => {
                self.computed.iter().find(|computed| computed.name == *name)?.index
            }
            Indexed::Path(path) => {
                if let Some(PathSegment::Property(name)) = path.first()
                    && is_system(name)
                    && !(name == "_ts" && path.len() == 1)
                {
                    return None;
                }
                let steps = path.iter().map(|segment| match segment {
                    PathSegment::Property(name) => Step::Property(name),
                    PathSegment::Element => Step::Element,
                });
                let is_indexed = policy.decides(&steps.collect::<Vec<_>>());
                is_indexed.then(|| IndexId::of_path(path))
            }
            Indexed::Shapes(path) => {
                let is_indexed = self.spatial().iter().any(|index| index.covers(path));
                is_indexed.then(|| IndexId::of_spatial(path))
            }
        }
    }

    /// The indexes over shapes on the globe. In a plane there are none: its cells would have to end
    /// somewhere, and shapes need not.
    pub(super) fn spatial(&self) -> &[SpatialIndex] {
        match (&self.policy, self.geospatial) {
            (Some(policy), Geospatial::Geography) => &policy.spatial,
            _ => &[],
        }
    }

    /// The composite indexes.
    pub(crate) fn composites(&self) -> &[Composite] {
        &self.composites
    }

    pub(super) fn policy(&self) -> Option<&IndexingPolicy> {
        self.policy.as_ref()
    }

    pub(super) fn computed(&self) -> &[Computed] {
        &self.computed
    }
}

/// Whether the server sets this top-level property. The index leaves them out, but for `_ts`.
pub(super) fn is_system(name: &str) -> bool {
    name.starts_with('_') && SYSTEM_PROPERTIES.contains(&name)
}

fn top_level(name: &str) -> IndexId {
    IndexId::of_path(&[PathSegment::Property(name.to_owned())])
}

/// The computed properties that have an index of their own or a part in a composite one.
fn computed(policies: &Policies) -> Result<Vec<Computed>> {
    let mut computed = Vec::new();
    for property in &policies.computed {
        let (name, query) = (property.name.clone(), property.query.clone());
        let has_index = policies.indexing.decides_computed(&name);
        let mut paths = policies.indexing.composite.iter().flatten();
        let is_part = paths
            .any(|path| matches!(&path.segments[..], [Segment::Property(first)] if *first == name));
        if has_index || is_part {
            let value = query::Computed::new(&query)
                .map_err(|error| Error::bad_request(error.message()))?;
            let index = has_index.then(|| IndexId::of_computed(&name, &query));
            computed.push(Computed { name, query, index, value });
        }
    }
    Ok(computed)
}

/// A composite index made ready; `None` when no query can use it.
fn composite(paths: &[CompositePath], computed: &[Computed]) -> Option<Composite> {
    let mut spelling = Spelling::new(Class::Composite);
    let mut composite = Composite {
        id: IndexId([0; IndexId::BYTES]),
        paths: Vec::new(),
        components: Vec::new(),
        parts: Vec::new(),
        is_late: false,
    };
    for path in paths {
        let names = path.segments.iter().map(|segment| match segment {
            Segment::Property(name) => Some(name.clone()),
            Segment::AnyElement | Segment::Element(_) => None,
        });
        let names = names.collect::<Option<Vec<String>>>()?;
        let is_descending = path.order == Order::Descending;
        let shadow = computed.iter().position(|property| property.name == names[0]);
        composite.is_late |= shadow.is_some() || is_system(&names[0]);
        let (indexed, part_spelling, part) = match shadow {
            Some(at) if names.len() == 1 => {
                let mut spelling = Spelling::new(Class::Computed);
                spelling.property(&computed[at].name);
                spelling.property(&computed[at].query);
                (Indexed::Computed(names[0].clone()), spelling, Part::Computed(at))
            }
            // Below a computed property there is no path that a query could name.
            Some(_) => return None,
            None => {
                let segments: Vec<_> = names.iter().cloned().map(PathSegment::Property).collect();
                let spelling = Spelling::of(Class::Path, &segments);
                (Indexed::Path(segments), spelling, Part::Path(names))
            }
        };
        spelling.part(&part_spelling, is_descending);
        composite.paths.push(indexed);
        composite.components.push(if is_descending {
            Component::Descending
        } else {
            Component::Ascending
        });
        composite.parts.push(part);
    }
    composite.id = spelling.id();
    Some(composite)
}

impl Part {
    /// The value of this part in a document.
    pub(super) fn of<'a>(
        &self,
        document: &'a Object,
        computed: &'a [Option<Value>],
    ) -> Option<&'a Value> {
        match self {
            Part::Computed(at) => computed.get(*at)?.as_ref(),
            Part::Path(names) => {
                let (first, rest) = names.split_first()?;
                rest.iter().try_fold(document.get(first)?, |value, name| value.get(name))
            }
        }
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("number", &self.number).finish_non_exhaustive()
    }
}
