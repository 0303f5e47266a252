//! Constant expressions are evaluated once, when a query is bound.
//!
//! `{type: 'Point', coordinates: [1, 2]}` or `DateTimeAdd('dd', -7, GetCurrentDateTime())` need not
//! be made anew for each document, and only a constant can be looked up in an index. One query sees
//! one time, so that functions of time are constants, too; chance is not. Both the work and the
//! memory are bounded: what is large stays as it was written and is charged to the query that runs.

use crate::Options;
use crate::compare::size_bytes;
use crate::evaluate::{Context, evaluate};
use crate::plan::Scalar;
use std::sync::atomic::AtomicU64;
use value::Value;

/// How many bytes of constants one query may be given this way.
const BYTES_MAX: usize = 1 << 20;

/// How much of a constant is looked at to see whether it is small: elements, members, and runs of
/// characters.
const PARTS_MAX: usize = 1024;

/// Evaluates constant expressions, as far as its means go.
pub(crate) struct Folder {
    bytes_left: usize,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder { bytes_left: BYTES_MAX }
    }

    /// The expression, or the constant that it always is.
    pub(crate) fn fold(&mut self, scalar: Scalar, options: &Options) -> Scalar {
        if !has_constant_parts(&scalar) {
            return scalar;
        }
        let random = AtomicU64::new(0);
        let context = Context::new(options, &random);
        // What fails stays, and fails when the query runs.
        let Ok(value) = evaluate(&scalar, None, &context) else { return scalar };
        let Some(value) = value else { return Scalar::Undefined };
        let bytes = size_bytes(&value);
        if bytes > self.bytes_left {
            return scalar;
        }
        self.bytes_left -= bytes;
        Scalar::constant(value.into_owned())
    }
}

/// Whether an expression is made of small constants only, in a way that always gives the same.
fn has_constant_parts(scalar: &Scalar) -> bool {
    let is_repeatable = match scalar {
        Scalar::Undefined
        | Scalar::Constant(_)
        | Scalar::Slot(_)
        | Scalar::Key(..)
        | Scalar::Aggregate(..)
        | Scalar::Udf(..)
        | Scalar::Subquery(..)
        | Scalar::Let(..)
        | Scalar::Computed(..) => false,
        Scalar::Call(function, _) => function.name != "RAND",
        _ => true,
    };
    is_repeatable && scalar.children().into_iter().all(is_small_constant)
}

/// Whether an expression gives the same for the same document however often it is asked, and is made of
/// nothing that would be dear to ask twice.
pub(crate) fn is_steady(scalar: &Scalar) -> bool {
    let is_repeatable = match scalar {
        Scalar::Udf(..) | Scalar::Subquery(..) | Scalar::Let(..) | Scalar::Computed(..) => false,
        Scalar::Call(function, _) => function.name != "RAND",
        _ => true,
    };
    is_repeatable && scalar.children().into_iter().all(is_steady)
}

fn is_small_constant(scalar: &Scalar) -> bool {
    match scalar {
        Scalar::Undefined => true,
        Scalar::Constant(value) => count_parts(value, PARTS_MAX).is_some(),
        _ => false,
    }
}

/// How many parts are left when those of a value are taken off; nothing when there are not enough.
fn count_parts(value: &Value, left: usize) -> Option<usize> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => left.checked_sub(1),
        Value::String(text) => left.checked_sub(1 + text.len() / 64),
        Value::Array(items) => {
            items.iter().try_fold(left.checked_sub(1)?, |left, item| count_parts(item, left))
        }
        Value::Object(object) => object
            .iter()
            .try_fold(left.checked_sub(1)?, |left, (_, value)| count_parts(value, left)),
    }
}
