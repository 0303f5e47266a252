//! When two values are equal, which comes first, and when a comparison has no answer.
//!
//! There are three relations, and mixing them up is the classic mistake. The operator `=` is
//! [`equal`]; `<` and its like are [`relate`], which answers only within one type; sorting and
//! `MIN`/`MAX` use the total order of all values, [`value::compare`]. `DISTINCT`, `GROUP BY` and
//! sets hash [`identity`], which is the same for two values exactly when they are [`equal`].

use std::cmp::Ordering;
use value::{Number, Value};

/// Equality of the language: types apart, numbers by value, the order of names irrelevant.
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::String(left), Value::String(right)) => left == right,
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(name, left)| right.get(name).is_some_and(|right| equal(left, right)))
        }
        _ => false,
    }
}

/// How two values of one type compare; `None` where `<` and its like are undefined.
pub(crate) fn relate(left: &Value, right: &Value) -> Option<Relation> {
    match (left, right) {
        (Value::Null, Value::Null) => Some(Relation::Ordered(Ordering::Equal)),
        (Value::Bool(left), Value::Bool(right)) => Some(Relation::Ordered(left.cmp(right))),
        (Value::Number(left), Value::Number(right)) => {
            let order = left.as_f64().partial_cmp(&right.as_f64());
            Some(order.map_or(Relation::Unordered, Relation::Ordered))
        }
        (Value::String(left), Value::String(right)) => Some(Relation::Ordered(left.cmp(right))),
        _ => None,
    }
}

/// The outcome of a comparison within one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// One comes first, or they are equal.
    Ordered(Ordering),
    /// One of two numbers is not a number: every comparison is false.
    Unordered,
}

/// Appends bytes that are the same for two values exactly when the values are equal.
pub(crate) fn identity(value: Option<&Value>, out: &mut Vec<u8>) {
    match value {
        None => out.push(b'u'),
        Some(Value::Null) => out.push(b'0'),
        Some(Value::Bool(truth)) => out.push(if *truth { b't' } else { b'f' }),
        Some(Value::Number(number)) => {
            out.push(b'n');
            out.extend(identity_of(number).to_be_bytes());
        }
        Some(Value::String(text)) => {
            out.push(b's');
            identity_text(text, out);
        }
        Some(Value::Array(items)) => {
            out.push(b'[');
            out.extend((items.len() as u64).to_be_bytes());
            items.iter().for_each(|item| identity(Some(item), out));
        }
        Some(Value::Object(object)) => {
            out.push(b'{');
            out.extend((object.len() as u64).to_be_bytes());
            let mut members: Vec<(&str, &Value)> = object.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            for (name, value) in members {
                identity_text(name, out);
                identity(Some(value), out);
            }
        }
    }
}

fn identity_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_be_bytes());
    out.extend(text.as_bytes());
}

/// The bits of a number, the two zeros made one, and all that is not a number made one.
fn identity_of(number: &Number) -> u64 {
    let number = number.as_f64();
    if number == 0.0 {
        0
    } else if number.is_nan() {
        f64::NAN.to_bits()
    } else {
        number.to_bits()
    }
}

/// Roughly how many bytes of memory a value holds.
pub(crate) fn size_bytes(value: &Value) -> usize {
    const CELL: usize = size_of::<Value>();
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => CELL,
        Value::String(text) => CELL + text.len(),
        Value::Array(items) => CELL + items.iter().map(size_bytes).sum::<usize>(),
        Value::Object(object) => {
            let member = |(name, value): (&str, &Value)| 24 + name.len() + size_bytes(value);
            CELL + object.iter().map(member).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        Value::parse(text.as_bytes()).unwrap()
    }

    #[track_caller]
    fn check(left: &str, right: &str, expected: bool) {
        let (left, right) = (value(left), value(right));
        assert_eq!(equal(&left, &right), expected);
        let bytes = |value| {
            let mut out = Vec::new();
            identity(Some(value), &mut out);
            out
        };
        assert_eq!(bytes(&left) == bytes(&right), expected, "identity must agree with equality");
    }

    #[test]
    fn equality_and_identity_agree() {
        check("1", "1.0", true);
        check("0", "-0", true);
        check("1", "\"1\"", false);
        check("null", "false", false);
        check("[1,2]", "[2,1]", false);
        check("[1,[2]]", "[1,[2.0]]", true);
        check(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, true);
        check(r#"{"a":1}"#, r#"{"a":1,"b":2}"#, false);
        check(r#"["ab","c"]"#, r#"["a","bc"]"#, false);
    }

    #[test]
    fn comparison_stays_within_a_type() {
        let relation = |left, right| relate(&value(left), &value(right));
        assert_eq!(relation("1", "2"), Some(Relation::Ordered(Ordering::Less)));
        assert_eq!(relation("\"Z\"", "\"a\""), Some(Relation::Ordered(Ordering::Less)));
        assert_eq!(relation("null", "null"), Some(Relation::Ordered(Ordering::Equal)));
        assert_eq!(relation("1", "\"2\""), None);
        assert_eq!(relation("[1]", "[2]"), None);
    }
}
