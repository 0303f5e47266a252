//! When two values are equal, which comes first, and when a comparison has no answer.
//!
//! There are three relations, and mixing them up is the classic mistake. The operator `=` is
//! [`equal`]; `<` and its like are [`relate`], which answers only within one type; sorting and
//! `MIN`/`MAX` use the total order of all values, [`value::compare`]. `DISTINCT`, `GROUP BY` and
//! sets hash [`identity`], which is the same for two values exactly when they are [`equal`].

use crate::Error;
use crate::evaluate::Context;
use std::cmp::Ordering;
use value::{Number, Object, Value};

/// So many members are looked for one by one; more are looked up.
const FEW: usize = 16;

/// Equality of the language: types apart, numbers by value, the order of names irrelevant.
/// Values can be large and compared often, so the deadline is looked at on the way.
pub(crate) fn equal(left: &Value, right: &Value, context: &Context<'_>) -> Result<bool, Error> {
    Ok(match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::String(left), Value::String(right)) if left.len() == right.len() => {
            context.step_bytes(left.len())?;
            left == right
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            all_equal(left.iter().zip(right), context)?
        }
        // No name occurs twice: who has as many members and all those of the other has no more.
        (Value::Object(left), Value::Object(right)) if left.len() == right.len() => {
            has_members(right, left, context)?
        }
        _ => false,
    })
}

fn all_equal<'v>(
    pairs: impl Iterator<Item = (&'v Value, &'v Value)>,
    context: &Context<'_>,
) -> Result<bool, Error> {
    for (left, right) in pairs {
        context.step()?;
        if !equal(left, right, context)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether an object has every member of another, with an equal value. Names are mostly written in
/// the same order; else many are sorted once, so that the time is not the product of both counts.
pub(crate) fn has_members(
    object: &Object,
    wanted: &Object,
    context: &Context<'_>,
) -> Result<bool, Error> {
    if wanted.len() > object.len() {
        return Ok(false);
    }
    context.step_by(object.len())?;
    if object.keys().eq(wanted.keys()) {
        let pairs = object.iter().zip(wanted.iter());
        return all_equal(pairs.map(|((_, value), (_, wanted))| (value, wanted)), context);
    }
    let mut sorted: Vec<(&str, &Value)> = Vec::new();
    if wanted.len() > FEW {
        sorted.extend(object.iter());
        sorted.sort_unstable_by_key(|(name, _)| *name);
    }
    for (name, wanted) in wanted {
        context.step()?;
        let value = match sorted.is_empty() {
            true => object.get(name),
            false => look_up(&sorted, name),
        };
        let Some(value) = value else { return Ok(false) };
        if !equal(value, wanted, context)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn look_up<'v>(sorted: &[(&str, &'v Value)], name: &str) -> Option<&'v Value> {
    let at = sorted.binary_search_by_key(&name, |(name, _)| name).ok()?;
    Some(sorted[at].1)
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
    use crate::{Limits, Options};
    use std::sync::atomic::AtomicU64;

    fn value(text: &str) -> Value {
        Value::parse(text.as_bytes()).unwrap()
    }

    fn with_context(test: impl Fn(&Context<'_>) -> Result<bool, Error>) -> bool {
        let options = Options::new(0, 0, Limits::memory(1 << 20));
        let random = AtomicU64::new(0);
        test(&Context::new(&options, &random)).expect("there is no deadline")
    }

    #[track_caller]
    fn check(left: &str, right: &str, expected: bool) {
        let (left, right) = (value(left), value(right));
        assert_eq!(with_context(|context| equal(&left, &right, context)), expected);
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

    fn object(names: impl Iterator<Item = usize>) -> Object {
        names.map(|number| (format!("name{number}"), Value::from(number))).collect()
    }

    /// Few members are looked for and many are looked up; the answers are the same.
    #[test]
    fn any_number_of_members_is_compared() {
        for count in [1, FEW, FEW + 1, 5_000] {
            let ascending = object(0..count);
            let descending = object((0..count).rev());
            let others = object((1..=count).rev());
            let mut changed = descending.clone();
            changed.insert("name0", "another");
            let has = |object: &Object, wanted: &Object| {
                with_context(|context| has_members(object, wanted, context))
            };
            assert!(has(&ascending, &ascending), "{count}");
            assert!(has(&ascending, &descending), "{count}");
            assert!(!has(&ascending, &others), "{count}");
            assert!(!has(&ascending, &changed), "{count}");
            assert!(has(&object(0..count + 1), &descending), "{count}");
            assert!(!has(&ascending, &object(0..count + 1)), "{count}");
            let (left, right) = (Value::Object(ascending), Value::Object(descending));
            assert!(with_context(|context| equal(&left, &right, context)), "{count}");
            let right = Value::Object(changed);
            assert!(!with_context(|context| equal(&left, &right, context)), "{count}");
        }
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
