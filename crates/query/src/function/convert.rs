//! Conversion between strings and other values.

use value::{Number, Value};

/// The JSON value that a string spells, when it passes `accept`.
fn parsed(argument: &Value, accept: fn(&Value) -> bool) -> Option<Value> {
    Value::parse(argument.as_str()?.as_bytes()).ok().filter(accept)
}

pub(super) fn string_to_array(arguments: &[&Value]) -> Option<Value> {
    parsed(arguments[0], |value| matches!(value, Value::Array(_)))
}

pub(super) fn string_to_boolean(arguments: &[&Value]) -> Option<Value> {
    parsed(arguments[0], |value| matches!(value, Value::Bool(_)))
}

pub(super) fn string_to_null(arguments: &[&Value]) -> Option<Value> {
    parsed(arguments[0], Value::is_null)
}

pub(super) fn string_to_number(arguments: &[&Value]) -> Option<Value> {
    parsed(arguments[0], |value| matches!(value, Value::Number(_)))
}

pub(super) fn string_to_object(arguments: &[&Value]) -> Option<Value> {
    parsed(arguments[0], |value| matches!(value, Value::Object(_)))
}

pub(super) fn to_string(arguments: &[&Value]) -> Option<Value> {
    Some(match arguments[0] {
        Value::String(text) => Value::String(text.clone()),
        Value::Number(number) => Value::String(number_text(number)),
        value => {
            let mut value = value.clone();
            respell(&mut value);
            Value::String(value.to_text())
        }
    })
}

fn number_text(number: &Number) -> String {
    let double = number.as_f64();
    if double.is_nan() {
        "NaN".to_owned()
    } else if double.is_infinite() {
        if double > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() }
    } else if let Some(integer) = number.as_i64() {
        // An integer beyond the precision of a double keeps its digits; others lose nothing.
        if integer.unsigned_abs() < 1 << 53 { integer.to_string() } else { number_spelling(number) }
    } else {
        Number::from(double).text().into_owned()
    }
}

fn number_spelling(number: &Number) -> String {
    let canonical = Number::from(number.as_f64());
    match number.as_i64() {
        Some(integer) if canonical.as_i64() != Some(integer) => integer.to_string(),
        _ => canonical.text().into_owned(),
    }
}

/// Gives every number its shortest spelling.
fn respell(value: &mut Value) {
    match value {
        Value::Number(number) => *number = Number::from(number.as_f64()),
        Value::Array(items) => items.iter_mut().for_each(respell),
        Value::Object(object) => object.iter_mut().for_each(|(_, value)| respell(value)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
