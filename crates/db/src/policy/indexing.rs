//! The indexing policy: which paths are indexed, and which special indexes there are.
//!
//! A policy that says little is completed the way the service does it: everything is included, the
//! etag is excluded. The root path must be in one of the two lists, so that for every path some
//! rule decides.

use std::collections::HashSet;

use query::Geospatial;
use value::{Object, Value};

use super::full_text::{self, FullTextPolicy};
use super::index_path::{self, IndexPath, Segment};
use super::rules::{Rules, Step, Walk};
use super::spatial::{self, SpatialIndex};
use super::vector::{self, VectorEmbedding, VectorIndex};
use super::{PolicyError, member};

/// Paths in the included list, and as many in the excluded one.
const PATHS_MAX: usize = 1_500;
/// Paths of one composite index.
const COMPOSITE_MIN: usize = 2;
const COMPOSITE_MAX: usize = 8;
/// Paths of all composite indexes of a container together.
const COMPOSITE_PATHS_MAX: usize = 100;
/// How the service writes the exclusion it adds to every policy.
const ETAG_PATH: &str = "/\"_etag\"/?";

/// When documents are indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexingMode {
    /// In the transaction of the write.
    Consistent,
    /// The same here; the service used to index such containers later.
    Lazy,
    /// Never.
    None,
}

/// The direction of one path in a composite index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Smallest first.
    Ascending,
    /// Largest first.
    Descending,
}

/// One path of a composite index.
#[derive(Clone, Debug, PartialEq)]
pub struct CompositePath {
    /// The steps to the scalar that is indexed.
    pub segments: Vec<Segment>,
    /// In which direction the index is kept.
    pub order: Order,
}

/// The indexing policy of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexingPolicy {
    /// When documents are indexed.
    pub mode: IndexingMode,
    /// Whether a write indexes its document unless it says otherwise.
    pub automatic: bool,
    /// Paths to index.
    pub included: Vec<IndexPath>,
    /// Paths not to index.
    pub excluded: Vec<IndexPath>,
    /// Indexes over several paths, each with at least two.
    pub composite: Vec<Vec<CompositePath>>,
    /// Indexes over shapes.
    pub spatial: Vec<SpatialIndex>,
    /// Indexes over vectors.
    pub vector: Vec<VectorIndex>,
    /// Paths with an index over words.
    pub full_text: Vec<value::Path>,
    rules: Rules,
}

impl IndexingPolicy {
    /// Whether a scalar at this path is indexed. The longest matching path decides; at equal length
    /// `/?` beats `/*`. `id` and `_ts` are indexed whatever the paths say.
    pub fn decides(&self, path: &[Step<'_>]) -> bool {
        if self.mode == IndexingMode::None {
            return false;
        }
        if let [Step::Property("id" | "_ts")] = path {
            return true;
        }
        self.rules.decide(path).unwrap_or_else(|| self.rules.root_includes())
    }

    /// Whether a computed property is indexed. Only a path of its own includes it: the root does
    /// not cover what documents do not contain.
    pub fn decides_computed(&self, name: &str) -> bool {
        self.mode != IndexingMode::None
            && self.rules.decide(&[Step::Property(name)]).unwrap_or(false)
    }

    /// A walk over a document that asks the paths on its way; `id` and `_ts` are the caller's to know.
    pub(crate) fn walk(&self) -> Walk<'_> {
        self.rules.walk()
    }

    /// Whether both ask for the same index entries, however they are written.
    pub(crate) fn is_same_index(&self, other: &IndexingPolicy) -> bool {
        let is_none = |policy: &IndexingPolicy| policy.mode == IndexingMode::None;
        is_none(self) == is_none(other)
            && self.rules == other.rules
            && self.composite == other.composite
            && self.spatial == other.spatial
    }

    /// How many scalars of the document are indexed; the request charge grows with it.
    pub fn indexed_term_count(&self, document: &Object) -> usize {
        match self.mode {
            IndexingMode::None => 0,
            IndexingMode::Consistent | IndexingMode::Lazy => self.rules.count(document),
        }
    }
}

/// The other policies that an indexing policy must agree with.
pub(super) struct Context<'a> {
    pub(super) geospatial: Geospatial,
    pub(super) embeddings: &'a [VectorEmbedding],
    pub(super) full_text: Option<&'a FullTextPolicy>,
    pub(super) default_ttl: Option<i64>,
}

/// Checks and completes `indexingPolicy`.
pub(super) fn check(
    body: &Object,
    context: &Context<'_>,
) -> Result<(IndexingPolicy, Value), PolicyError> {
    let empty = Object::new();
    let policy = member::object(body, "indexingPolicy")?.unwrap_or(&empty);
    let mode = mode(policy)?;
    let automatic = member::boolean(policy, "automatic")?;
    let lists = PathLists::read(policy)?;
    let (composite, composite_json) = composite(policy)?;
    let (spatial, spatial_json) = spatial::check(policy, context.geospatial)?;
    let (vector, vector_json) = vector::check_indexes(policy, context.embeddings)?;
    let (full_text, full_text_json) = full_text::check_indexes(policy, context.full_text)?;

    let special = [
        ("compositeIndexes", composite_json),
        ("spatialIndexes", spatial_json),
        ("vectorIndexes", vector_json),
        ("fullTextIndexes", full_text_json),
    ];
    let has_special =
        !(composite.is_empty() && spatial.is_empty() && vector.is_empty() && full_text.is_empty());
    let (automatic, lists) = if mode == IndexingMode::None {
        check_none(automatic, has_special, context.default_ttl)?;
        (false, PathLists::default())
    } else {
        // A consistent index is automatic whatever was asked for, and shown so: the Rust SDK
        // sends `false` where it means nothing.
        let automatic = mode == IndexingMode::Consistent || automatic.unwrap_or(true);
        (automatic, lists.complete()?)
    };

    let mut stored = Object::new();
    stored.insert("indexingMode", mode_text(mode));
    stored.insert("automatic", automatic);
    stored.insert("includedPaths", lists.included.json());
    stored.insert("excludedPaths", lists.excluded.json());
    for (name, json) in special {
        if let Some(json) = json {
            stored.insert(name, json);
        }
    }
    let (included, excluded) = (lists.included.paths, lists.excluded.paths);
    let rules = Rules::new(&included, &excluded);
    let policy = IndexingPolicy {
        mode,
        automatic,
        included,
        excluded,
        composite,
        spatial,
        vector,
        full_text,
        rules,
    };
    Ok((policy, stored.into()))
}

fn mode(policy: &Object) -> Result<IndexingMode, PolicyError> {
    let Some(text) = member::string(policy, "indexingMode")? else {
        return Ok(IndexingMode::Consistent);
    };
    match text.to_ascii_lowercase().as_str() {
        "consistent" => Ok(IndexingMode::Consistent),
        "lazy" => Ok(IndexingMode::Lazy),
        "none" => Ok(IndexingMode::None),
        _ => Err(PolicyError::invalid_input(format!("unknown indexing mode '{text}'"))),
    }
}

fn mode_text(mode: IndexingMode) -> &'static str {
    match mode {
        IndexingMode::Consistent => "consistent",
        IndexingMode::Lazy => "lazy",
        IndexingMode::None => "none",
    }
}

/// What mode `none` excludes. Included and excluded paths may be sent; they have no effect and are
/// not kept, as the service shows empty lists.
fn check_none(
    automatic: Option<bool>,
    has_special: bool,
    default_ttl: Option<i64>,
) -> Result<(), PolicyError> {
    if default_ttl.is_some() {
        return Err(PolicyError::new(
            "Indexing mode value cannot be 'none' when 'defaultTtl' is specified in the collection",
        ));
    }
    if automatic == Some(true) {
        return Err(PolicyError::new(
            "'automatic' cannot be true when the indexing mode is 'none'.",
        ));
    }
    if has_special {
        return Err(PolicyError::new(
            "The indexing mode cannot be 'none' when composite, spatial, vector or full-text \
             indexes are specified.",
        ));
    }
    Ok(())
}

/// One list of paths: as understood, and as the client wrote them.
#[derive(Default)]
struct PathList {
    texts: Vec<String>,
    paths: Vec<IndexPath>,
}

impl PathList {
    fn push(&mut self, text: &str, path: IndexPath) {
        // The root of old definitions is shown in today's spelling.
        let text = if path.is_root() { "/*" } else { text };
        self.texts.push(text.to_owned());
        self.paths.push(path);
    }

    fn has_root(&self) -> bool {
        self.paths.iter().any(IndexPath::is_root)
    }

    fn names_etag(&self) -> bool {
        let etag = [Segment::Property("_etag".to_owned())];
        self.paths.iter().any(|path| path.segments == etag && path.tuple.is_empty())
    }

    fn json(&self) -> Value {
        let entry = |text: &String| Value::from(Object::from([("path", text.as_str())]));
        self.texts.iter().map(entry).collect::<Vec<_>>().into()
    }
}

#[derive(Default)]
struct PathLists {
    included: PathList,
    excluded: PathList,
    /// The client sent a list of included paths, be it empty.
    is_included_given: bool,
}

impl PathLists {
    fn read(policy: &Object) -> Result<PathLists, PolicyError> {
        let mut seen = HashSet::new();
        let included = read_list(policy, "includedPaths", &mut seen)?;
        let excluded = read_list(policy, "excludedPaths", &mut seen)?;
        if let Some(offset) = excluded.paths.iter().position(|path| !path.tuple.is_empty()) {
            return Err(PolicyError::new(format!(
                "The tuple path '{}' cannot be excluded from indexing.",
                excluded.texts[offset]
            )));
        }
        let is_included_given = member::present(policy, "includedPaths").is_some();
        Ok(PathLists { included, excluded, is_included_given })
    }

    /// Adds what the service adds: the root to a policy that does not speak of it, and the
    /// exclusion of the etag to one that does not include it.
    fn complete(mut self) -> Result<PathLists, PolicyError> {
        if !self.included.has_root() && !self.excluded.has_root() {
            let says_nothing = self.included.paths.is_empty() && self.excluded.paths.is_empty();
            if self.is_included_given && !says_nothing {
                return Err(PolicyError::new(
                    "The special mandatory indexing path \"/\" is not provided in any of the path \
                     type sets. Please provide this path in one of the sets.",
                ));
            }
            self.included.push("/*", IndexPath::parse("/*")?);
        }
        if !self.included.names_etag() && !self.excluded.names_etag() {
            self.excluded.push(ETAG_PATH, IndexPath::parse(ETAG_PATH)?);
        }
        Ok(self)
    }
}

fn read_list(
    policy: &Object,
    name: &str,
    seen: &mut HashSet<IndexPath>,
) -> Result<PathList, PolicyError> {
    let elements = member::array(policy, name)?.unwrap_or_default();
    if elements.len() > PATHS_MAX {
        return Err(PolicyError::new(format!(
            "The indexing policy has {} paths in '{name}', more than the maximum of {PATHS_MAX}.",
            elements.len()
        )));
    }
    let mut list = PathList::default();
    for element in elements {
        let entry = member::element(element, name)?;
        let text = member::required_string(entry, "path")?;
        // Index kinds per path are a matter of old API versions: accepted, without effect.
        member::array(entry, "indexes")?;
        let path = IndexPath::parse(text)?;
        if !seen.insert(path.clone()) {
            return Err(PolicyError::new(format!(
                "The indexing path '{text}' is specified more than once. Please provide each path \
                 once, in one of the sets."
            )));
        }
        list.push(text, path);
    }
    Ok(list)
}

type Composite = Vec<Vec<CompositePath>>;

fn composite(policy: &Object) -> Result<(Composite, Option<Value>), PolicyError> {
    let Some(indexes) = member::array(policy, "compositeIndexes")? else {
        return Ok((Vec::new(), None));
    };
    let mut parsed = Vec::new();
    let mut stored = Vec::new();
    let mut path_count = 0;
    for index in indexes {
        let entries = index.as_array().ok_or_else(|| {
            PolicyError::invalid_input("each element of 'compositeIndexes' must be an array")
        })?;
        path_count += entries.len();
        if !(COMPOSITE_MIN..=COMPOSITE_MAX).contains(&entries.len()) {
            return Err(PolicyError::new(format!(
                "A composite index must have between {COMPOSITE_MIN} and {COMPOSITE_MAX} paths, \
                 not {}.",
                entries.len()
            )));
        }
        if path_count > COMPOSITE_PATHS_MAX {
            return Err(PolicyError::new(format!(
                "The composite indexes have more than the maximum of {COMPOSITE_PATHS_MAX} paths."
            )));
        }
        let (paths, json) = composite_index(entries)?;
        if parsed.contains(&paths) {
            return Err(PolicyError::new("A composite index is specified more than once."));
        }
        parsed.push(paths);
        stored.push(json);
    }
    Ok((parsed, Some(stored.into())))
}

fn composite_index(entries: &[Value]) -> Result<(Vec<CompositePath>, Value), PolicyError> {
    let mut paths: Vec<CompositePath> = Vec::new();
    let mut stored = Vec::new();
    for entry in entries {
        let entry = member::element(entry, "compositeIndexes")?;
        let text = member::required_string(entry, "path")?;
        let segments = index_path::parse_unterminated(text)?;
        if paths.iter().any(|path| path.segments == segments) {
            return Err(PolicyError::new(format!(
                "The path '{text}' is specified more than once in a composite index."
            )));
        }
        let (order, order_text) = order(entry)?;
        paths.push(CompositePath { segments, order });
        stored.push(Value::from(Object::from([("path", text), ("order", order_text)])));
    }
    Ok((paths, stored.into()))
}

fn order(entry: &Object) -> Result<(Order, &'static str), PolicyError> {
    let Some(text) = member::string(entry, "order")? else {
        return Ok((Order::Ascending, "ascending"));
    };
    match text.to_ascii_lowercase().as_str() {
        "ascending" => Ok((Order::Ascending, "ascending")),
        "descending" => Ok((Order::Descending, "descending")),
        _ => Err(PolicyError::invalid_input(format!("unknown order '{text}'"))),
    }
}
