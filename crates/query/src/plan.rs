//! A bound query: names are slots, parameters are values, functions are known.
//!
//! Evaluation walks a chain of frames, the innermost first; a name that was resolved is the number
//! of frames to hop over. Every source of a `FROM` pushes one frame, `LET` pushes one, and what
//! follows grouping sees one frame with the group in place of the frames of the rows. Everything
//! that can be wrong about a query, except the cardinality of a scalar subquery and what limits
//! say, is found before such a plan exists.

use crate::aggregate::AggregateKind;
use crate::function::Function;
use crate::function::regex::RegexFunction;
use crate::like::Pattern;
use fancy_regex::Regex;
use sql::{BinaryOperator, SubqueryKind, UnaryOperator};
use std::collections::HashSet;
use std::sync::Arc;
use value::Value;

/// A query or subquery, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The sources in order; without any there is exactly one row.
    pub(crate) sources: Vec<Source>,
    /// The condition that keeps a row.
    pub(crate) filter: Option<Scalar>,
    /// Grouping and aggregates, when there are any.
    pub(crate) grouping: Option<Grouping>,
    /// What a row, or a group, becomes.
    pub(crate) projection: Scalar,
    /// Whether equal results are returned once.
    pub(crate) distinct: bool,
    /// The keys that rows are ordered by before projection.
    pub(crate) order_by: Vec<OrderKey>,
    /// How many results are skipped.
    pub(crate) skip: u64,
    /// How many results are returned at most.
    pub(crate) take: Option<u64>,
}

/// One source of rows.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) origin: Origin,
    /// Whether the elements of an array become the rows, instead of the value itself.
    pub(crate) iterates: bool,
}

/// Where the value of a source comes from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// The documents of the container, or what lies at a path in each.
    Container(Vec<PathStep>),
    /// An expression over the frames so far.
    Scalar(Scalar),
    /// The results of a subquery, one by one.
    Subquery(Box<Plan>),
}

/// One step into a document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PathStep {
    /// A member of an object.
    Name(String),
    /// An element of an array.
    Offset(u64),
}

/// `GROUP BY` and the aggregates of `SELECT`.
#[derive(Clone, Debug)]
pub(crate) struct Grouping {
    /// The keys; none when the whole input is one group.
    pub(crate) keys: Vec<Scalar>,
    pub(crate) aggregates: Vec<Aggregate>,
}

/// One aggregate and what it is fed with.
#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    pub(crate) kind: AggregateKind,
    pub(crate) argument: Scalar,
}

/// One key of `ORDER BY`.
#[derive(Clone, Debug)]
pub(crate) struct OrderKey {
    pub(crate) scalar: Scalar,
    pub(crate) descending: bool,
}

/// A bound expression.
#[derive(Clone, Debug)]
pub(crate) enum Scalar {
    Undefined,
    /// A literal or a parameter; a large parameter may stand in many places.
    Constant(Arc<Value>),
    /// The value of a frame.
    Slot(usize),
    /// A key of the group in a frame.
    Key(usize, usize),
    /// An aggregate of the group in a frame.
    Aggregate(usize, usize),
    Member(Box<Scalar>, String),
    Index(Box<Scalar>, Box<Scalar>),
    Array(Vec<Scalar>),
    Object(Vec<(String, Scalar)>),
    Unary(UnaryOperator, Box<Scalar>),
    Binary(BinaryOperator, Box<Scalar>, Box<Scalar>),
    And(Vec<Scalar>),
    Or(Vec<Scalar>),
    Coalesce(Box<Scalar>, Box<Scalar>),
    Conditional(Box<[Scalar; 3]>),
    /// The value, the lower and the upper bound.
    Between(Box<[Scalar; 3]>),
    In(Box<Scalar>, Vec<Scalar>),
    /// `IN` a long list of constants.
    InSet(Box<Scalar>, Box<ConstantSet>),
    Like(Box<Like>),
    Call(&'static Function, Vec<Scalar>),
    Regex(Box<RegexCall>),
    Udf(String, Vec<Scalar>),
    Subquery(SubqueryKind, Box<Plan>),
    /// The value, and the body that sees it as its innermost frame.
    Let(Box<Scalar>, Box<Scalar>),
    /// A document, and a computed property of it.
    Computed(Box<Scalar>, Arc<ComputedScalar>),
}

/// A computed property, shared by all places that name it.
#[derive(Debug)]
pub(crate) struct ComputedScalar {
    pub(crate) name: String,
    /// Its value; the innermost frame is the document.
    pub(crate) body: Scalar,
}

/// Constants that are looked up instead of being compared one by one.
#[derive(Clone, Debug)]
pub(crate) struct ConstantSet {
    pub(crate) identities: HashSet<Vec<u8>>,
    pub(crate) values: Vec<Arc<Value>>,
}

/// A call of a function with a pattern.
#[derive(Clone, Debug)]
pub(crate) struct RegexCall {
    pub(crate) function: RegexFunction,
    pub(crate) arguments: Vec<Scalar>,
    pub(crate) pattern: RegexPattern,
}

/// The pattern of such a call.
#[derive(Clone, Debug)]
pub(crate) enum RegexPattern {
    Constant(Regex),
    /// Not a constant, or not valid: compiled, or found to be undefined, for each row.
    Computed,
}

/// A `LIKE`; a constant pattern is read once.
#[derive(Clone, Debug)]
pub(crate) struct Like {
    pub(crate) value: Scalar,
    pub(crate) pattern: LikePattern,
    pub(crate) escape: Option<char>,
}

/// The pattern of a `LIKE`.
#[derive(Clone, Debug)]
pub(crate) enum LikePattern {
    Constant(Pattern),
    Computed(Scalar),
}

impl Scalar {
    /// A constant expression.
    pub(crate) fn constant(value: impl Into<Value>) -> Scalar {
        Scalar::Constant(Arc::new(value.into()))
    }

    /// The value of a constant expression.
    pub(crate) fn as_constant(&self) -> Option<&Value> {
        match self {
            Scalar::Constant(value) => Some(value),
            _ => None,
        }
    }
}

impl Scalar {
    /// The expressions directly below this one that see the same frames: not those of a subquery,
    /// and not the body of a `LET` or of a computed property.
    pub(crate) fn children(&self) -> Vec<&Scalar> {
        match self {
            Scalar::Undefined
            | Scalar::Constant(_)
            | Scalar::Slot(_)
            | Scalar::Key(..)
            | Scalar::Aggregate(..)
            | Scalar::Subquery(..) => Vec::new(),
            Scalar::Member(child, _)
            | Scalar::Unary(_, child)
            | Scalar::InSet(child, _)
            | Scalar::Let(child, _)
            | Scalar::Computed(child, _) => vec![child],
            Scalar::Index(left, right)
            | Scalar::Binary(_, left, right)
            | Scalar::Coalesce(left, right) => vec![left, right],
            Scalar::Array(list)
            | Scalar::And(list)
            | Scalar::Or(list)
            | Scalar::Call(_, list)
            | Scalar::Udf(_, list) => list.iter().collect(),
            Scalar::Object(members) => members.iter().map(|(_, child)| child).collect(),
            Scalar::Conditional(parts) | Scalar::Between(parts) => parts.iter().collect(),
            Scalar::In(value, list) => std::iter::once(&**value).chain(list).collect(),
            Scalar::Like(like) => match &like.pattern {
                LikePattern::Constant(_) => vec![&like.value],
                LikePattern::Computed(pattern) => vec![&like.value, pattern],
            },
            Scalar::Regex(call) => call.arguments.iter().collect(),
        }
    }
}

impl Plan {
    /// Whether the rows come from the container's documents at all.
    pub(crate) fn reads_container(&self) -> bool {
        match self.sources.first().map(|source| &source.origin) {
            Some(Origin::Container(_)) => true,
            Some(Origin::Subquery(plan)) => plan.reads_container(),
            Some(Origin::Scalar(_)) | None => false,
        }
    }

    /// Whether each document's rows depend on that document alone, before they are ordered and
    /// paged. A subquery has neither order nor page.
    pub(crate) fn is_row_wise(&self) -> bool {
        self.grouping.is_none()
            && !self.distinct
            && match self.sources.first().map(|source| &source.origin) {
                Some(Origin::Container(_)) => true,
                Some(Origin::Subquery(plan)) => plan.is_row_wise(),
                Some(Origin::Scalar(_)) | None => false,
            }
    }
}
