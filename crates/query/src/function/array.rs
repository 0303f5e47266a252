//! Functions of arrays, sets and objects. Elements are compared with the equality of the language.

use super::Found;
use crate::Error;
use crate::compare::{equal, has_members, identity, size_bytes};
use crate::evaluate::Context;
use std::cmp::Ordering;
use std::collections::HashSet;
use value::{DocumentRid, Object, Value};

pub(super) fn length(arguments: &[&Value]) -> Option<Value> {
    arguments[0].as_array().map(|items| Value::from(items.len()))
}

pub(super) fn concat(context: &Context<'_>, arguments: &[&Value]) -> Result<Option<Value>, Error> {
    let mut out = Vec::new();
    for argument in arguments {
        let Value::Array(items) = argument else { return Ok(None) };
        context.charge(size_bytes(argument))?;
        out.extend(items.iter().cloned());
    }
    Ok(Some(Value::Array(out)))
}

pub(super) fn contains(context: &Context<'_>, arguments: &[Option<&Value>]) -> Found {
    let (Some(Value::Array(items)), Some(wanted)) = (arguments[0], arguments[1]) else {
        return Ok(None);
    };
    let partial = match arguments.get(2) {
        Some(Some(Value::Bool(partial))) => *partial,
        Some(Some(_)) => return Ok(None),
        Some(None) | None => false,
    };
    for item in items {
        context.step()?;
        let found = match (item, wanted) {
            (Value::Object(item), Value::Object(wanted)) if partial => {
                has_members(item, wanted, context)?
            }
            _ => equal(item, wanted, context)?,
        };
        if found {
            return Ok(Some(Value::Bool(true)));
        }
    }
    Ok(Some(Value::Bool(false)))
}

pub(super) fn contains_any(context: &Context<'_>, arguments: &[Option<&Value>]) -> Found {
    decide(context, arguments, true)
}

pub(super) fn contains_all(context: &Context<'_>, arguments: &[Option<&Value>]) -> Found {
    decide(context, arguments, false)
}

/// So many values are compared with each other rather than looked up.
const FEW: usize = 16;

/// Looks for each value; finding, or missing, one decides. Else an undefined value leaves the
/// answer undefined. Nothing is in an empty array, and that is known without looking.
fn decide(context: &Context<'_>, arguments: &[Option<&Value>], decisive: bool) -> Found {
    let Some(Value::Array(items)) = arguments[0] else { return Ok(None) };
    if items.is_empty() {
        return Ok(Some(Value::Bool(false)));
    }
    let wanted = &arguments[1..];
    // Many in many: each is looked up, or a query would compare for hours.
    let mut known: HashSet<Vec<u8>> = HashSet::new();
    if items.len().min(wanted.len()) > FEW {
        for item in items {
            context.step()?;
            known.insert(known_by(item));
        }
    }
    let mut all_defined = true;
    for wanted in wanted {
        context.step()?;
        let Some(wanted) = wanted else {
            all_defined = false;
            continue;
        };
        let found = match known.is_empty() {
            true => has_element(items, wanted, context)?,
            false => known.contains(&known_by(wanted)),
        };
        if found == decisive {
            return Ok(Some(Value::Bool(decisive)));
        }
    }
    Ok(all_defined.then_some(Value::Bool(!decisive)))
}

fn has_element(items: &[Value], wanted: &Value, context: &Context<'_>) -> Result<bool, Error> {
    for item in items {
        context.step()?;
        if equal(item, wanted, context)? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn slice(arguments: &[&Value]) -> Option<Value> {
    let items = arguments[0].as_array()?;
    let length = i64::try_from(items.len()).ok()?;
    let start = arguments[1].as_i64()?;
    let start = if start < 0 { (length.saturating_add(start)).max(0) } else { start.min(length) };
    let count = match arguments.get(2) {
        Some(count) => count.as_i64()?.clamp(0, length - start),
        None => length - start,
    };
    let start = usize::try_from(start).ok()?;
    let count = usize::try_from(count).ok()?;
    Some(Value::Array(items[start..start + count].to_vec()))
}

/// The numbers of an array; `None` when anything else is among them.
fn numbers(argument: &Value) -> Option<Vec<f64>> {
    argument.as_array()?.iter().map(Value::as_f64).collect()
}

pub(super) fn sum(arguments: &[&Value]) -> Option<Value> {
    Some(Value::from(numbers(arguments[0])?.iter().fold(0.0, |sum, number| sum + number)))
}

pub(super) fn average(arguments: &[&Value]) -> Option<Value> {
    let numbers = numbers(arguments[0])?;
    let sum = numbers.iter().fold(0.0, |sum, number| sum + number);
    (!numbers.is_empty()).then(|| Value::from(sum / numbers.len() as f64))
}

pub(super) fn median(arguments: &[&Value]) -> Option<Value> {
    let mut numbers = numbers(arguments[0])?;
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let upper = *numbers.get(middle)?;
    let even = numbers.len().is_multiple_of(2);
    Some(Value::from(if even { (numbers[middle - 1] + upper) / 2.0 } else { upper }))
}

pub(super) fn min(arguments: &[&Value]) -> Option<Value> {
    extreme(arguments[0], Ordering::Less)
}

pub(super) fn max(arguments: &[&Value]) -> Option<Value> {
    extreme(arguments[0], Ordering::Greater)
}

fn extreme(argument: &Value, keep: Ordering) -> Option<Value> {
    let mut best: Option<&Value> = None;
    for item in argument.as_array()? {
        if matches!(item, Value::Array(_) | Value::Object(_)) {
            return None;
        }
        if best.is_none_or(|best| value::compare(Some(item), Some(best)) == keep) {
            best = Some(item);
        }
    }
    best.cloned()
}

/// The distinct elements, and what they are known by.
#[derive(Default)]
struct Set {
    known: HashSet<Vec<u8>>,
    items: Vec<Value>,
}

impl Set {
    fn of<'v>(items: impl IntoIterator<Item = &'v Value>) -> Set {
        let mut set = Set::default();
        items.into_iter().for_each(|item| set.add(item));
        set
    }

    fn add(&mut self, item: &Value) {
        if self.known.insert(known_by(item)) {
            self.items.push(item.clone());
        }
    }

    fn has(&self, item: &Value) -> bool {
        self.known.contains(&known_by(item))
    }
}

fn known_by(item: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    identity(Some(item), &mut bytes);
    bytes
}

fn two_arrays<'v>(arguments: &[&'v Value]) -> Option<(&'v [Value], &'v [Value])> {
    Some((arguments[0].as_array()?, arguments[1].as_array()?))
}

pub(super) fn set_union(arguments: &[&Value]) -> Option<Value> {
    let (left, right) = two_arrays(arguments)?;
    Some(Value::Array(Set::of(left.iter().chain(right)).items))
}

/// In the order of the second array, as the service has it.
pub(super) fn set_intersect(arguments: &[&Value]) -> Option<Value> {
    let (left, right) = two_arrays(arguments)?;
    let left = Set::of(left);
    Some(Value::Array(Set::of(right.iter().filter(|item| left.has(item))).items))
}

pub(super) fn set_difference(arguments: &[&Value]) -> Option<Value> {
    let (left, right) = two_arrays(arguments)?;
    let right = Set::of(right);
    Some(Value::Array(Set::of(left.iter().filter(|item| !right.has(item))).items))
}

pub(super) fn set_equal(arguments: &[&Value]) -> Option<Value> {
    let (left, right) = two_arrays(arguments)?;
    Some(Value::Bool(Set::of(left).known == Set::of(right).known))
}

pub(super) fn object_to_array(arguments: &[&Value]) -> Option<Value> {
    let object = arguments[0].as_object()?;
    let name_of = |at: usize, default| match arguments.get(at) {
        Some(name) => name.as_str(),
        None => Some(default),
    };
    let (key, value) = (name_of(1, "k")?, name_of(2, "v")?);
    let pair = |(name, member): (&str, &Value)| {
        let mut pair = Object::new();
        pair.insert(key, name);
        pair.insert(value, member.clone());
        Value::Object(pair)
    };
    Some(Value::Array(object.iter().map(pair).collect()))
}

/// The part of a document's resource id that tells it from the others of its container.
pub(super) fn document_id(arguments: &[&Value]) -> Option<Value> {
    let rid = arguments[0].get("_rid")?.as_str()?;
    rid.parse::<DocumentRid>().ok().map(|rid| Value::from(rid.ordinal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Options};
    use std::sync::atomic::AtomicU64;

    fn numbers(count: usize, first: usize) -> Vec<Value> {
        (first..first + count).map(Value::from).collect()
    }

    fn answer(
        function: fn(&Context<'_>, &[Option<&Value>]) -> Found,
        items: &Value,
        wanted: &[Value],
    ) -> Option<bool> {
        let arguments: Vec<_> = [items].into_iter().chain(wanted).map(Some).collect();
        let options = Options::new(0, 0, Limits::memory(1 << 20));
        let random = AtomicU64::new(0);
        let answer = function(&Context::new(&options, &random), &arguments);
        answer.expect("there is no deadline").and_then(|answer| answer.as_bool())
    }

    /// Few are compared and many are looked up; the answers are the same.
    #[test]
    fn any_number_of_values_is_looked_for() {
        for count in [1, FEW, FEW + 1, 10 * FEW] {
            let items = Value::Array(numbers(count, 0));
            let (inside, outside) = (numbers(count, 0), numbers(count, count));
            let both = [&outside[..], &inside[..1]].concat();
            assert_eq!(answer(contains_all, &items, &inside), Some(true), "{count}");
            assert_eq!(answer(contains_all, &items, &both), Some(false), "{count}");
            assert_eq!(answer(contains_any, &items, &both), Some(true), "{count}");
            assert_eq!(answer(contains_any, &items, &outside), Some(false), "{count}");
        }
    }

    #[test]
    fn values_are_looked_up_by_the_equality_of_the_language() {
        let text = r#"[0, 1.0, "1", null, [1, {"a": 1, "b": 2}], {"b": 2, "a": [0]}, false]"#;
        let mut items = Value::parse(text.as_bytes()).expect("the text is JSON");
        let text = r#"[-0, 1, "1", null, [1.0, {"b": 2, "a": 1}], {"a": [-0], "b": 2.0}, false]"#;
        let wanted = Value::parse(text.as_bytes()).expect("the text is JSON");
        let wanted = [wanted.as_array().expect("a list"), &numbers(FEW, 10)[..]].concat();
        if let Value::Array(items) = &mut items {
            items.extend(numbers(FEW, 10));
        }
        assert_eq!(answer(contains_all, &items, &wanted), Some(true));
        assert_eq!(answer(contains_all, &items, &numbers(FEW + 1, 10)), Some(false));
    }

    /// A query once compared each of the values with each element, for minutes.
    #[test]
    fn many_values_in_many_elements_take_no_time() {
        let (items, wanted) = (Value::Array(numbers(50_000, 0)), numbers(50_000, 50_000));
        assert_eq!(answer(contains_any, &items, &wanted), Some(false));
    }
}
