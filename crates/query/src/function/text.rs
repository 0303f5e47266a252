//! String functions.
//!
//! Positions and lengths count UTF-16 units, as clients do. A cut through the middle of a
//! character outside the basic plane would leave half of it, which no string can hold: such a
//! result is undefined. Case is mapped character by character, the same in every culture.

use super::Found;
use crate::Error;
use crate::evaluate::Context;
use std::borrow::Cow;
use value::Value;

/// The longest result of `REPLICATE`, in characters.
const REPLICATE_MAX: usize = 10_000;

fn two<'v>(arguments: &[&'v Value]) -> Option<(&'v str, &'v str)> {
    Some((arguments[0].as_str()?, arguments[1].as_str()?))
}

// ---- positions ----

fn units(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.encode_utf16().count() }
}

/// The byte at which the unit with that number starts; the end of the text for its length.
fn byte_of_unit(text: &str, unit: usize) -> Option<usize> {
    if text.is_ascii() {
        return (unit <= text.len()).then_some(unit);
    }
    let mut at = 0;
    for (byte, character) in text.char_indices() {
        if at >= unit {
            return (at == unit).then_some(byte);
        }
        at += character.len_utf16();
    }
    (at == unit).then_some(text.len())
}

fn cut(text: &str, start: usize, end: usize) -> Option<Value> {
    let (start, end) = (byte_of_unit(text, start)?, byte_of_unit(text, end)?);
    text.get(start..end).map(Value::from)
}

pub(super) fn length(arguments: &[&Value]) -> Option<Value> {
    arguments[0].as_str().map(|text| Value::from(units(text)))
}

pub(super) fn left(arguments: &[&Value]) -> Option<Value> {
    let text = arguments[0].as_str()?;
    let count = usize::try_from(arguments[1].as_i64()?.max(0)).ok()?;
    cut(text, 0, count.min(units(text)))
}

pub(super) fn right(arguments: &[&Value]) -> Option<Value> {
    let text = arguments[0].as_str()?;
    let count = usize::try_from(arguments[1].as_i64()?.max(0)).ok()?;
    let length = units(text);
    cut(text, length - count.min(length), length)
}

pub(super) fn substring(arguments: &[&Value]) -> Option<Value> {
    let text = arguments[0].as_str()?;
    let (start, count) = (arguments[1].as_i64()?, arguments[2].as_i64()?);
    let length = units(text);
    let (Ok(start), Ok(count)) = (usize::try_from(start), usize::try_from(count)) else {
        return Some(Value::from(""));
    };
    if start >= length {
        return Some(Value::from(""));
    }
    cut(text, start, start.saturating_add(count).min(length))
}

pub(super) fn index_of(arguments: &[&Value]) -> Option<Value> {
    let (text, wanted) = two(arguments)?;
    let start = match arguments.get(2) {
        Some(start) => start.as_i64()?,
        None => 0,
    };
    let start = usize::try_from(start).ok().and_then(|start| byte_of_unit(text, start));
    let found = start.and_then(|start| Some(start + text[start..].find(wanted)?));
    Some(found.map_or(Value::from(-1), |byte| Value::from(units(&text[..byte]))))
}

/// With a start, the whole match must lie at or before it.
pub(super) fn last_index_of(arguments: &[&Value]) -> Option<Value> {
    let (text, wanted) = two(arguments)?;
    let end = match arguments.get(2) {
        Some(start) => match usize::try_from(start.as_i64()?) {
            Ok(start) => byte_of_unit(text, start.saturating_add(1)).unwrap_or(text.len()),
            Err(_) => return Some(Value::from(-1)),
        },
        None => text.len(),
    };
    let found = text[..end].rfind(wanted);
    Some(found.map_or(Value::from(-1), |byte| Value::from(units(&text[..byte]))))
}

// ---- tests ----

fn fold(text: &str) -> String {
    text.chars().map(lower_character).collect()
}

/// Applies a test of two strings, ignoring case when the third argument says so.
fn test(arguments: &[&Value], apply: fn(&str, &str) -> bool) -> Option<Value> {
    let (text, wanted) = two(arguments)?;
    let ignore_case = match arguments.get(2) {
        Some(ignore_case) => ignore_case.as_bool()?,
        None => false,
    };
    Some(Value::Bool(match ignore_case {
        true => apply(&fold(text), &fold(wanted)),
        false => apply(text, wanted),
    }))
}

pub(super) fn contains(arguments: &[&Value]) -> Option<Value> {
    test(arguments, |text, wanted| text.contains(wanted))
}

pub(super) fn starts_with(arguments: &[&Value]) -> Option<Value> {
    test(arguments, |text, wanted| text.starts_with(wanted))
}

pub(super) fn ends_with(arguments: &[&Value]) -> Option<Value> {
    test(arguments, |text, wanted| text.ends_with(wanted))
}

pub(super) fn string_equals(arguments: &[&Value]) -> Option<Value> {
    test(arguments, |text, wanted| text == wanted)
}

pub(super) fn contains_all(context: &Context<'_>, arguments: &[Option<&Value>]) -> Found {
    decide(context, arguments, false, false)
}

pub(super) fn contains_all_ignoring_case(
    context: &Context<'_>,
    arguments: &[Option<&Value>],
) -> Found {
    decide(context, arguments, false, true)
}

pub(super) fn contains_any(context: &Context<'_>, arguments: &[Option<&Value>]) -> Found {
    decide(context, arguments, true, false)
}

pub(super) fn contains_any_ignoring_case(
    context: &Context<'_>,
    arguments: &[Option<&Value>],
) -> Found {
    decide(context, arguments, true, true)
}

/// `CONTAINS` of each further argument, joined by `OR` or by `AND`, with their three values.
/// Each of them goes through the whole text, which is counted.
fn decide(
    context: &Context<'_>,
    arguments: &[Option<&Value>],
    decisive: bool,
    ignore_case: bool,
) -> Found {
    let Some(Value::String(text)) = arguments[0] else { return Ok(None) };
    let text = if ignore_case { Cow::Owned(fold(text)) } else { Cow::Borrowed(text) };
    let mut all_defined = true;
    for wanted in &arguments[1..] {
        let Some(wanted) = wanted.and_then(Value::as_str) else {
            all_defined = false;
            continue;
        };
        context.step()?;
        context.step_bytes(text.len())?;
        let found = if ignore_case { text.contains(&fold(wanted)) } else { text.contains(wanted) };
        if found == decisive {
            return Ok(Some(Value::Bool(decisive)));
        }
    }
    Ok(all_defined.then_some(Value::Bool(!decisive)))
}

// ---- new strings ----

/// The single character that a character maps to; those that would become several stay.
fn lower_character(character: char) -> char {
    let mut mapped = character.to_lowercase();
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        _ => character,
    }
}

fn upper_character(character: char) -> char {
    let mut mapped = character.to_uppercase();
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        _ => character,
    }
}

pub(super) fn lower(arguments: &[&Value]) -> Option<Value> {
    arguments[0].as_str().map(|text| Value::String(fold(text)))
}

pub(super) fn upper(arguments: &[&Value]) -> Option<Value> {
    let text = arguments[0].as_str()?;
    Some(Value::String(text.chars().map(upper_character).collect()))
}

pub(super) fn reverse(arguments: &[&Value]) -> Option<Value> {
    arguments[0].as_str().map(|text| Value::String(text.chars().rev().collect()))
}

/// The characters that a trim takes off: those of a given set, else white space.
fn trimmed(arguments: &[&Value]) -> Option<impl Fn(char) -> bool> {
    let set = match arguments.get(1) {
        Some(set) => Some(sorted(set.as_str()?)),
        None => None,
    };
    Some(move |character: char| match &set {
        Some(set) => set.binary_search(&character).is_ok(),
        None => character.is_whitespace(),
    })
}

fn sorted(set: &str) -> Vec<char> {
    let mut characters: Vec<char> = set.chars().collect();
    characters.sort_unstable();
    characters
}

pub(super) fn trim(arguments: &[&Value]) -> Option<Value> {
    let takes = trimmed(arguments)?;
    let text = arguments[0].as_str()?;
    Some(Value::from(text.trim_start_matches(&takes).trim_end_matches(&takes)))
}

pub(super) fn trim_start(arguments: &[&Value]) -> Option<Value> {
    let takes = trimmed(arguments)?;
    Some(Value::from(arguments[0].as_str()?.trim_start_matches(takes)))
}

pub(super) fn trim_end(arguments: &[&Value]) -> Option<Value> {
    let takes = trimmed(arguments)?;
    Some(Value::from(arguments[0].as_str()?.trim_end_matches(takes)))
}

pub(super) fn concat(context: &Context<'_>, arguments: &[&Value]) -> Result<Option<Value>, Error> {
    let mut out = String::new();
    for argument in arguments {
        let Value::String(text) = argument else { return Ok(None) };
        context.charge(text.len())?;
        out.push_str(text);
    }
    Ok(Some(Value::String(out)))
}

/// Nothing can be looked for: the result is undefined.
pub(super) fn replace(context: &Context<'_>, arguments: &[&Value]) -> Result<Option<Value>, Error> {
    let (Some((text, wanted)), Some(replacement)) = (two(arguments), arguments[2].as_str()) else {
        return Ok(None);
    };
    if wanted.is_empty() {
        return Ok(None);
    }
    let count = text.matches(wanted).count();
    context.charge(count.saturating_mul(replacement.len()).saturating_add(text.len()))?;
    Ok(Some(Value::String(text.replace(wanted, replacement))))
}

pub(super) fn replicate(arguments: &[&Value]) -> Option<Value> {
    let text = arguments[0].as_str()?;
    let count = usize::try_from(arguments[1].as_i64()?).ok()?;
    if units(text).saturating_mul(count) > REPLICATE_MAX {
        return None;
    }
    if text.is_empty() {
        return Some(Value::from(""));
    }
    Some(Value::String(text.repeat(count)))
}

pub(super) fn string_join(
    context: &Context<'_>,
    arguments: &[&Value],
) -> Result<Option<Value>, Error> {
    let (Some(items), Some(separator)) = (arguments[0].as_array(), arguments[1].as_str()) else {
        return Ok(None);
    };
    let Some(items) = items.iter().map(Value::as_str).collect::<Option<Vec<&str>>>() else {
        return Ok(None);
    };
    let text = items.iter().map(|item| item.len()).sum::<usize>();
    context.charge(items.len().saturating_mul(separator.len()).saturating_add(text))?;
    Ok(Some(Value::String(items.join(separator))))
}

pub(super) fn string_split(arguments: &[&Value]) -> Option<Value> {
    let (text, delimiter) = two(arguments)?;
    let parts: Vec<Value> = match delimiter {
        "" => vec![Value::from(text)],
        _ => text.split(delimiter).map(Value::from).collect(),
    };
    Some(Value::Array(parts))
}

pub(super) fn substring_after(arguments: &[&Value]) -> Option<Value> {
    let (text, delimiter) = two(arguments)?;
    text.split_once(delimiter).map(|(_, after)| Value::from(after))
}

pub(super) fn substring_before(arguments: &[&Value]) -> Option<Value> {
    let (text, delimiter) = two(arguments)?;
    text.split_once(delimiter).map(|(before, _)| Value::from(before))
}

pub(super) fn last_substring_after(arguments: &[&Value]) -> Option<Value> {
    let (text, delimiter) = two(arguments)?;
    text.rsplit_once(delimiter).map(|(_, after)| Value::from(after))
}

pub(super) fn last_substring_before(arguments: &[&Value]) -> Option<Value> {
    let (text, delimiter) = two(arguments)?;
    text.rsplit_once(delimiter).map(|(before, _)| Value::from(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(function: fn(&[&Value]) -> Option<Value>, arguments: &str, expected: &str) {
        let arguments = Value::parse(arguments.as_bytes()).unwrap();
        let arguments: Vec<&Value> = arguments.as_array().unwrap().iter().collect();
        let answer = function(&arguments).map(|value| value.to_text());
        assert_eq!(answer.as_deref().unwrap_or("undefined"), expected);
    }

    #[test]
    fn positions_count_utf16_units() {
        check(length, r#"["a😀b"]"#, "4");
        check(index_of, r#"["a😀b", "b"]"#, "3");
        check(substring, r#"["a😀b", 1, 2]"#, "\"😀\"");
        check(substring, r#"["a😀b", 2, 2]"#, "undefined");
        check(left, r#"["été", 2]"#, "\"ét\"");
        check(right, r#"["été", 9]"#, "\"été\"");
    }

    #[test]
    fn the_last_match_may_be_bounded() {
        check(last_index_of, r#"["abcdeabc", "abc", 6]"#, "0");
        check(last_index_of, r#"["abcdeabc", "abc", 7]"#, "5");
        check(last_index_of, r#"["abcdeabc", "abc", 99]"#, "5");
        check(last_index_of, r#"["abc", "x"]"#, "-1");
    }

    #[test]
    fn case_is_mapped_without_a_culture() {
        check(lower, r#"["ΑΣ İ"]"#, "\"ασ İ\"");
        check(upper, r#"["straße"]"#, "\"STRAßE\"");
    }

    #[test]
    fn a_set_of_characters_is_trimmed() {
        check(trim, r#"["zébaéz", "éz"]"#, "\"ba\"");
        check(trim_start, r#"["zébaéz", "zéz"]"#, "\"baéz\"");
        check(trim_end, r#"["zébaéz", ""]"#, "\"zébaéz\"");
    }
}
