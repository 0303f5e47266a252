//! Whether a document satisfies a condition, found out the slow way.

use query::{Computed, ComputedProperty, Condition, Indexed, PathSegment, ScalarKind, Span};
use std::ops::Bound;
use value::Value;

/// The scalars at a path.
fn scalars<'v>(value: &'v Value, path: &[PathSegment], out: &mut Vec<&'v Value>) {
    match (path.split_first(), value) {
        (None, Value::Array(_) | Value::Object(_)) => {}
        (None, scalar) => out.push(scalar),
        (Some((PathSegment::Property(name), rest)), value) => {
            value.get(name).into_iter().for_each(|value| scalars(value, rest, out));
        }
        (Some((PathSegment::Element, rest)), Value::Array(items)) => {
            items.iter().for_each(|item| scalars(item, rest, out));
        }
        (Some((PathSegment::Element, _)), _) => {}
    }
}

fn lies_in(value: &Value, span: &Span) -> bool {
    let same_type = |other: &Value| std::mem::discriminant(value) == std::mem::discriminant(other);
    let order = |other: &Value| value::compare(Some(value), Some(other));
    match span {
        Span::Exactly(other) => value == other,
        Span::Prefix(prefix) => value.as_str().is_some_and(|text| text.starts_with(prefix)),
        Span::Kind(ScalarKind::Null) => value.is_null(),
        Span::Kind(ScalarKind::Boolean) => value.as_bool().is_some(),
        Span::Kind(ScalarKind::Number) => value.as_f64().is_some(),
        Span::Kind(ScalarKind::String) => value.as_str().is_some(),
        Span::Between { low, high } => {
            assert!(!matches!((low, high), (Bound::Unbounded, Bound::Unbounded)));
            let above = match low {
                Bound::Included(low) => same_type(low) && order(low).is_ge(),
                Bound::Excluded(low) => same_type(low) && order(low).is_gt(),
                Bound::Unbounded => true,
            };
            let below = match high {
                Bound::Included(high) => same_type(high) && order(high).is_le(),
                Bound::Excluded(high) => same_type(high) && order(high).is_lt(),
                Bound::Unbounded => true,
            };
            above && below
        }
    }
}

/// Whether a document satisfies a condition, found by looking at all of it.
pub(crate) fn satisfies(
    document: &Value,
    condition: &Condition,
    computed: &[ComputedProperty],
) -> bool {
    let at = |names: &[String]| names.iter().try_fold(document, |value, name| value.get(name));
    match condition {
        Condition::Anything => true,
        Condition::Nothing => false,
        Condition::Holds { path, spans } => {
            let computed_value;
            let mut found = Vec::new();
            match path {
                Indexed::Path(path) => scalars(document, path, &mut found),
                Indexed::Shapes(_) => unreachable!("a shape holds no scalar"),
                Indexed::Computed(name) => {
                    let property = computed.iter().find(|property| property.name == *name);
                    let property = property.expect("the property is there");
                    let property = Computed::new(&property.query).expect("the property is right");
                    computed_value = property.value(document);
                    computed_value.iter().for_each(|value| scalars(value, &[], &mut found));
                }
            }
            found.iter().any(|value| spans.iter().any(|span| lies_in(value, span)))
        }
        Condition::Defined(names) => at(names).is_some(),
        Condition::Undefined(names) => at(names).is_none(),
        Condition::Near { .. } => true,
        Condition::All(conditions) => {
            conditions.iter().all(|part| satisfies(document, part, computed))
        }
        Condition::Any(conditions) => {
            conditions.iter().any(|part| satisfies(document, part, computed))
        }
    }
}
