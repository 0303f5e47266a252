//! Decides which scalars of a document are indexed.
//!
//! Included and excluded paths are rules, and the longest one that matches decides; at equal length
//! `/?` beats `/*`. The rules are kept as a tree over their segments, so that a walk over a document
//! goes down both at once and asks each rule at most once, however many there are.
//!
//! - R1: the tree is no deeper than a document may be, because paths are not ([`super::index_path`]).

use std::collections::HashMap;

use value::{Object, Value};

use super::index_path::{IndexPath, Segment, Terminator};

/// One step from a document down to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Into the property of an object.
    Property(&'a str),
    /// Into any element of an array.
    Element,
}

/// The rules that share a beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rules {
    /// What the rule that ends here with `/?` says.
    scalar: Option<bool>,
    /// What the rule that ends here with `/*` says.
    subtree: Option<bool>,
    properties: HashMap<String, Rules>,
    elements: Option<Box<Rules>>,
}

impl Rules {
    /// Builds the tree. A tuple is an index beside the ordinary one and decides nothing here.
    pub(super) fn new(included: &[IndexPath], excluded: &[IndexPath]) -> Rules {
        let mut root = Rules::default();
        for (paths, includes) in [(included, true), (excluded, false)] {
            for path in paths.iter().filter(|path| path.tuple.is_empty()) {
                let node = root.node(&path.segments);
                match path.terminator {
                    Terminator::Scalar => node.scalar = Some(includes),
                    Terminator::Subtree => node.subtree = Some(includes),
                }
            }
        }
        root
    }

    fn node(&mut self, segments: &[Segment]) -> &mut Rules {
        let mut node = self;
        for segment in segments {
            node = match segment {
                Segment::Property(name) => node.properties.entry(name.clone()).or_default(),
                // Elements at fixed offsets occur in tuples only.
                Segment::AnyElement | Segment::Element(_) => node.elements.get_or_insert_default(),
            };
        }
        node
    }

    fn below(&self, step: Step<'_>) -> Option<&Rules> {
        match step {
            Step::Property(name) => self.properties.get(name),
            Step::Element => self.elements.as_deref(),
        }
    }

    /// Whether the rules index the scalar at this path; `None` when no rule but the root speaks.
    pub(super) fn decide(&self, path: &[Step<'_>]) -> Option<bool> {
        let mut node = self;
        let mut inherited = None;
        for step in path {
            match node.below(*step) {
                Some(below) => node = below,
                None => return inherited,
            }
            inherited = node.subtree.or(inherited);
        }
        node.scalar.or(inherited)
    }

    /// What `/*` says. Definitions always have it in one of the two lists.
    pub(super) fn root_includes(&self) -> bool {
        self.subtree.unwrap_or(false)
    }

    /// Where a walk over a document and the rules starts.
    pub(super) fn walk(&self) -> Walk<'_> {
        Walk { rules: Some(self), includes: self.root_includes() }
    }

    /// Counts the scalars of a document that are indexed.
    pub(super) fn count(&self, document: &Object) -> usize {
        let walk = self.walk();
        document
            .iter()
            .map(|(name, value)| match name {
                // Both are always indexed, whatever the policy says.
                "id" | "_ts" if is_scalar(value) => 1,
                _ => walk.step(Step::Property(name)).count(value),
            })
            .sum()
    }
}

/// A place in a document and in the rules at once. Recursion is as deep as the document.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'a> {
    /// The rules that go on below this place.
    rules: Option<&'a Rules>,
    /// What the longest `/*` down to here says.
    includes: bool,
}

impl<'a> Walk<'a> {
    /// One step down, in both.
    pub(crate) fn step(self, step: Step<'_>) -> Walk<'a> {
        let rules = self.rules.and_then(|rules| rules.below(step));
        let includes = rules.and_then(|rules| rules.subtree).unwrap_or(self.includes);
        Walk { rules, includes }
    }

    /// Whether nothing here and below is indexed.
    pub(crate) fn is_over(self) -> bool {
        self.rules.is_none() && !self.includes
    }

    /// Whether a scalar here is indexed.
    pub(crate) fn takes_scalar(self) -> bool {
        self.rules.and_then(|rules| rules.scalar).unwrap_or(self.includes)
    }

    fn count(self, value: &Value) -> usize {
        if self.is_over() {
            return 0;
        }
        match value {
            Value::Array(elements) => {
                let below = self.step(Step::Element);
                elements.iter().map(|element| below.count(element)).sum()
            }
            Value::Object(object) => object
                .iter()
                .map(|(name, value)| self.step(Step::Property(name)).count(value))
                .sum(),
            _ => usize::from(self.takes_scalar()),
        }
    }
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}
