//! Tells how a query is answered: for people, and for the index metrics of the protocol.

use query::{Condition, Indexed, OrderBy, PathSegment};
use value::{Object, Value};

use crate::access::ordered::Along;

/// Which indexes a query uses, and which would help it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexUse {
    /// Paths whose index serves the query, as indexing policies spell them.
    pub used: Vec<String>,
    /// Paths that an index would help with, and that are not indexed.
    pub potential: Vec<String>,
    /// Composite indexes that serve the query: their paths and directions.
    pub used_composites: Vec<Vec<String>>,
    /// Composite indexes that would serve the query better than what there is.
    pub potential_composites: Vec<Vec<String>>,
}

/// How documents are found and brought into order.
#[derive(Debug)]
pub(crate) enum Way {
    /// Nothing is read.
    Nothing,
    /// A counter has the answer.
    Counter,
    /// Entries are counted in place of documents.
    CountedEntries(Vec<Indexed>),
    /// Only what lies at the ends of these indexes is looked at.
    Ends(Vec<String>),
    Scan,
    /// All entries of these indexes are asked whether their documents pass the filter.
    Sieve(Vec<Vec<(Indexed, bool)>>),
    Lookup {
        /// What each index is over, and whether it has the greatest first.
        indexes: Vec<Vec<(Indexed, bool)>>,
        entries: Option<usize>,
        also: usize,
        /// Whether the entries tell all that the query looks at.
        is_covered: bool,
    },
    Along {
        index: String,
        is_covered: bool,
    },
}

/// How a query is answered.
#[derive(Debug)]
pub(crate) struct Explanation {
    pub(crate) condition: Condition,
    pub(crate) way: Way,
    /// Documents that are stored in the scope of the request.
    pub(crate) documents: u64,
    pub(crate) ranges: usize,
    pub(crate) order: Vec<OrderBy>,
    /// Whether the entries are those of one partition alone.
    pub(crate) is_own: bool,
    /// Whether documents are sorted after they were found.
    pub(crate) is_sorted_in_memory: bool,
    /// Whether a page needs no look at what other pages have.
    pub(crate) is_streamed: bool,
    pub(crate) index_use: IndexUse,
    pub(crate) advice: Vec<&'static str>,
}

impl Explanation {
    /// As JSON, for people to read.
    pub(crate) fn to_value(&self) -> Value {
        let texts = |texts: &[String]| {
            Value::Array(texts.iter().map(|text| Value::from(text.as_str())).collect())
        };
        let composites = |composites: &[Vec<String>]| {
            Value::Array(composites.iter().map(|paths| Value::from(paths.join(", "))).collect())
        };
        let advice = self.advice.iter().map(|id| Value::from(*id)).collect();
        Value::Object(Object::from([
            ("access", Value::from(self.access())),
            ("condition", Value::from(self.condition.to_string())),
            ("order", Value::from(self.order_text())),
            ("pages", Value::from(self.pages_text())),
            ("storedDocuments", Value::from(self.documents)),
            ("ranges", Value::from(self.ranges as u64)),
            ("usedIndexes", texts(&self.index_use.used)),
            ("usedCompositeIndexes", composites(&self.index_use.used_composites)),
            ("potentialIndexes", texts(&self.index_use.potential)),
            ("potentialCompositeIndexes", composites(&self.index_use.potential_composites)),
            ("advice", Value::Array(advice)),
        ]))
    }

    fn access(&self) -> String {
        let has_entries = !matches!(self.way, Way::Nothing | Way::Counter | Way::Scan);
        let own =
            if self.is_own && has_entries { "; the partition has entries of its own" } else { "" };
        format!("{}{own}", self.found())
    }

    fn found(&self) -> String {
        match &self.way {
            Way::Nothing => "nothing is read: no document can satisfy the query".to_owned(),
            Way::Counter => "the number is kept; no document is read".to_owned(),
            Way::CountedEntries(indexes) => {
                format!("entries of {} are counted; no document is read", specs(indexes))
            }
            Way::Ends(indexes) => {
                format!("only what lies at the end of {} is read", indexes.join(" and "))
            }
            Way::Scan => format!("all {} documents of the scope are read", self.documents),
            Way::Sieve(indexes) => {
                let names: Vec<String> = indexes.iter().map(|paths| lookup_text(paths)).collect();
                format!(
                    "all entries of {} are asked; only documents that pass are read",
                    names.join(" and ")
                )
            }
            Way::Lookup { indexes, entries, also, is_covered } => {
                let count = match entries {
                    Some(1) => "1 entry".to_owned(),
                    Some(count) => format!("{count} entries"),
                    None => "many entries".to_owned(),
                };
                let also = match also {
                    0 => String::new(),
                    also => format!(", together with {also} more"),
                };
                let names: Vec<String> = indexes.iter().map(|paths| lookup_text(paths)).collect();
                let covered = covered_text(*is_covered);
                format!("{count} of {} are looked up{also}{covered}", names.join(" and "))
            }
            Way::Along { index, is_covered } => {
                format!("documents come along {index}{}", covered_text(*is_covered))
            }
        }
    }

    fn order_text(&self) -> &'static str {
        match (self.order.is_empty(), self.is_sorted_in_memory) {
            (true, _) => "none asked for",
            (false, true) => "found documents are sorted in memory",
            (false, false) => "as the index has it",
        }
    }

    fn pages_text(&self) -> &'static str {
        if self.is_streamed {
            "each page reads on where the last one ended"
        } else {
            "each page finds all documents again"
        }
    }
}

/// Documents whose entries do not tell enough are still read: long strings, numbers written otherwise.
fn covered_text(is_covered: bool) -> &'static str {
    if is_covered { "; the entries tell all that is asked for" } else { "" }
}

fn specs(indexes: &[Indexed]) -> String {
    let specs: Vec<String> = indexes.iter().map(spec).collect();
    specs.join(" and ")
}

/// An index as a policy spells its path: `/a/"b c"/[]/?`.
pub(crate) fn spec(what: &Indexed) -> String {
    match what {
        Indexed::Computed(name) => format!("/{}/?", segment(name)),
        Indexed::Path(path) | Indexed::Shapes(path) => {
            let mut text = String::new();
            for step in path {
                text.push('/');
                match step {
                    PathSegment::Property(name) => text.push_str(&segment(name)),
                    PathSegment::Element => text.push_str("[]"),
                }
            }
            text + "/?"
        }
    }
}

/// Names that are no identifiers are quoted.
fn segment(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain && !name.is_empty() { name.to_owned() } else { Value::from(name).to_text() }
}

/// The paths of a composite index with their directions.
pub(crate) fn composite_spec(paths: &[(Indexed, bool)]) -> Vec<String> {
    let path = |(what, descending): &(Indexed, bool)| {
        let path = spec(what);
        let path = path.strip_suffix("/?").unwrap_or(&path);
        format!("{path} {}", if *descending { "DESC" } else { "ASC" })
    };
    paths.iter().map(path).collect()
}

/// What an index that is walked along is called.
pub(crate) fn along_text(along: &Along) -> String {
    match &along.paths[..] {
        [(what, _)] => format!("the index over {}", spec(what)),
        paths => composite_text(paths),
    }
}

fn lookup_text(paths: &[(Indexed, bool)]) -> String {
    match paths {
        [(what, _)] => spec(what),
        paths => composite_text(paths),
    }
}

fn composite_text(paths: &[(Indexed, bool)]) -> String {
    format!("the composite index over {}", composite_spec(paths).join(", "))
}

/// The paths that a condition speaks of, each once.
pub(crate) fn paths_of(condition: &Condition, out: &mut Vec<Indexed>) {
    let what = match condition {
        Condition::Holds { path, .. } => path.clone(),
        Condition::Near { path, .. } => Indexed::Shapes(path.clone()),
        Condition::All(parts) | Condition::Any(parts) => {
            return parts.iter().for_each(|part| paths_of(part, out));
        }
        _ => return,
    };
    if !out.contains(&what) {
        out.push(what);
    }
}
