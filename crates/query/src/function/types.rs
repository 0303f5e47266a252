//! Type checks. They never answer undefined: an undefined argument has no type.

use super::datetime::parse;
use value::Value;

fn answer(argument: &[Option<&Value>], check: fn(&Value) -> bool) -> Option<Value> {
    Some(Value::Bool(argument[0].is_some_and(check)))
}

pub(super) fn is_array(argument: &[Option<&Value>]) -> Option<Value> {
    answer(argument, |value| matches!(value, Value::Array(_)))
}

pub(super) fn is_bool(argument: &[Option<&Value>]) -> Option<Value> {
    answer(argument, |value| matches!(value, Value::Bool(_)))
}

pub(super) fn is_datetime(argument: &[Option<&Value>]) -> Option<Value> {
    answer(argument, |value| value.as_str().is_some_and(|text| parse(text).is_some()))
}

pub(super) fn is_defined(argument: &[Option<&Value>]) -> Option<Value> {
    answer(argument, |_| true)
}

pub(super) fn is_finite_number(argument: &[Option<&Value>]) -> Option<Value> {
    answer(argument, |value| value.as_f64().is_some_and(f64::is_finite))
}

pub(super) fn is_integer(argument: &[Option<&Value>]) -> Option<Value> {
    answer(argument, |value| value.as_i64().is_some())
}

pub(super) fn is_null(argument: &[Option<&Value>]) -> Option<Value> {
    answer(argument, Value::is_null)
}

pub(super) fn is_number(argument: &[Option<&Value>]) -> Option<Value> {
    answer(argument, |value| matches!(value, Value::Number(_)))
}

pub(super) fn is_object(argument: &[Option<&Value>]) -> Option<Value> {
    answer(argument, |value| matches!(value, Value::Object(_)))
}

pub(super) fn is_primitive(argument: &[Option<&Value>]) -> Option<Value> {
    answer(argument, |value| !matches!(value, Value::Array(_) | Value::Object(_)))
}

pub(super) fn is_string(argument: &[Option<&Value>]) -> Option<Value> {
    answer(argument, |value| matches!(value, Value::String(_)))
}
