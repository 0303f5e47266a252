//! What a query says about the documents it can return, in terms that an index understands.
//!
//! A [`Condition`] is *necessary*: every document that contributes a row satisfies it. Whoever reads
//! documents may leave out all others and must still run the query over what is left, so an index
//! can make a query faster and never change its answer. [`Touched`] is the same idea for the inside
//! of documents: what lies elsewhere cannot change the answer.

mod claim;
mod condition;
mod display;
mod order;
mod span;
mod touched;

use std::ops::Bound;

use crate::Geospatial;
use crate::plan::{Plan, Scalar};
use value::Value;

/// Which parts of a document a query looks at.
pub use value::Parts as Touched;

/// One step from a document down to an indexed value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathSegment {
    /// Into the property of an object.
    Property(String),
    /// Into any element of an array.
    Element,
}

/// What an index is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Indexed {
    /// The scalars at a path of the document.
    Path(Vec<PathSegment>),
    /// A computed property of the container.
    Computed(String),
    /// The shapes on the globe at a path of the document.
    Shapes(Vec<PathSegment>),
}

/// A kind of scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ScalarKind {
    Null,
    Boolean,
    Number,
    String,
}

/// A set of scalars that lie together in the order of values.
#[derive(Clone, Debug, PartialEq)]
pub enum Span {
    /// One scalar.
    Exactly(Value),
    /// The scalars of one type between two bounds. At least one side is bounded, by a scalar; an
    /// unbounded side ends with the type.
    Between {
        /// The lower bound.
        low: Bound<Value>,
        /// The upper bound.
        high: Bound<Value>,
    },
    /// The strings that begin so.
    Prefix(String),
    /// All scalars of a kind.
    Kind(ScalarKind),
}

/// What must hold of a document so that it can contribute to the answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Nothing is known: any document may.
    Anything,
    /// No document does.
    Nothing,
    /// Some scalar at the path lies in one of the spans. Spans may overlap.
    Holds {
        /// Where the scalar is.
        path: Indexed,
        /// Where its value lies.
        spans: Vec<Span>,
    },
    /// There is a value of any type at the path, which has no element steps.
    Defined(Vec<String>),
    /// There is nothing at the path, which has no element steps.
    Undefined(Vec<String>),
    /// The shape at the path lies near a shape, or meets it.
    Near {
        /// Where the shape is, as GeoJSON.
        path: Vec<PathSegment>,
        /// The other shape, as GeoJSON.
        shape: Value,
        /// How far apart they may be, in metres; zero when they must meet.
        distance: f64,
    },
    /// All of these.
    All(Vec<Condition>),
    /// At least one of these.
    Any(Vec<Condition>),
}

/// One key of `ORDER BY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBy {
    /// What the rows are ordered by, where an index can be over it: a path of properties or a
    /// computed property.
    pub key: Option<Indexed>,
    /// Whether the greatest comes first.
    pub descending: bool,
}

/// All that a plan says about documents.
pub(crate) struct Access {
    pub(crate) condition: Condition,
    /// Whether the condition is also sufficient.
    pub(crate) is_exact: bool,
    pub(crate) touched: Touched,
    /// What the filter alone touches.
    pub(crate) filter_touched: Touched,
    pub(crate) order: Vec<OrderBy>,
    /// The keys of `ORDER BY` over one frame, which is the value of the first source.
    pub(crate) sort_keys: Vec<Scalar>,
    /// What the query wants the least or the greatest of, if it wants nothing else.
    pub(crate) extremes: Option<Vec<OrderBy>>,
}

impl Access {
    pub(crate) fn of(plan: &Plan, geospatial: Geospatial) -> Access {
        let (condition, is_exact) = condition::condition(plan, geospatial);
        Access {
            condition,
            is_exact,
            touched: touched::touched(plan),
            filter_touched: touched::filter_touched(plan),
            order: order::order(plan),
            sort_keys: order::sort_keys(plan),
            extremes: order::extremes(plan),
        }
    }
}
