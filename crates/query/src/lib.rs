//! Binds queries and runs them over any source of documents.
//!
//! [`prepare`] reads a query, resolves its names and refuses what is wrong or not supported;
//! nothing is guessed at run time. A [`Prepared`] query either streams, document by document, or
//! runs over a whole source. The semantics are those of the language: a value of the wrong type
//! makes an expression undefined, and only the clauses decide what undefined means.
//!
//! Binding and evaluation are apart on purpose: a plan that chooses indexes takes the bound query
//! and changes where documents come from, never what the expressions mean.

mod access;
mod advice;
mod aggregate;
mod bind;
mod compare;
mod distribute;
mod error;
mod evaluate;
mod execute;
mod fold;
mod function;
mod like;
mod options;
mod plan;
mod prepared;
mod same;

pub use access::{Condition, Indexed, OrderBy, PathSegment, ScalarKind, Span, Touched};
pub use distribute::{
    Distinct, Feature, Features, Merge, MergeKey, PlanOptions, QueryPlan, Reach, plan_for_clients,
    reach,
};
pub use error::{Error, ErrorKind, RunError};
pub use function::spatial::{Position, Shape};
pub use options::{CompositeKey, ComputedProperty, Functions, Geospatial, Limits, Options};
pub use prepared::{Computed, CountShape, Predicate, Prepared, RowKey, condition, prepare};
