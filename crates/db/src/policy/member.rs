//! Reads the members of a policy, with one answer for a wrong JSON type.

use value::{Number, Object, Value};

use super::PolicyError;

/// Members that ask for a feature which changes what the container does and which is not served.
/// Ignoring one would be a silent lie, so each is refused.
const UNSERVED: [&str; 4] = [
    "ttlPropertyPath",
    "materializedViewDefinition",
    "globalSecondaryIndexDefinition",
    "dataMaskingPolicy",
];

/// Refuses a definition that asks for a feature which is not served.
pub(super) fn refuse_unserved(body: &Object) -> Result<(), PolicyError> {
    for name in UNSERVED {
        if present(body, name).is_some() {
            return Err(PolicyError::new(format!("'{name}' is not served yet")));
        }
    }
    Ok(())
}

/// The member, unless it is absent or null (P3).
pub(super) fn present<'a>(owner: &'a Object, name: &str) -> Option<&'a Value> {
    owner.get(name).filter(|value| !value.is_null())
}

/// The member as an object.
pub(super) fn object<'a>(owner: &'a Object, name: &str) -> Result<Option<&'a Object>, PolicyError> {
    typed(owner, name, "an object", Value::as_object)
}

/// The member as an array.
pub(super) fn array<'a>(owner: &'a Object, name: &str) -> Result<Option<&'a [Value]>, PolicyError> {
    typed(owner, name, "an array", |value| match value {
        Value::Array(elements) => Some(elements.as_slice()),
        _ => None,
    })
}

/// The member as a string.
pub(super) fn string<'a>(owner: &'a Object, name: &str) -> Result<Option<&'a str>, PolicyError> {
    typed(owner, name, "a string", Value::as_str)
}

/// The member as a boolean.
pub(super) fn boolean(owner: &Object, name: &str) -> Result<Option<bool>, PolicyError> {
    typed(owner, name, "true or false", Value::as_bool)
}

/// The member as a number.
pub(super) fn number<'a>(owner: &'a Object, name: &str) -> Result<Option<&'a Number>, PolicyError> {
    typed(owner, name, "a number", |value| match value {
        Value::Number(number) => Some(number),
        _ => None,
    })
}

/// The member as a string that must be there and not be empty.
pub(super) fn required_string<'a>(owner: &'a Object, name: &str) -> Result<&'a str, PolicyError> {
    match string(owner, name)? {
        Some(text) if !text.is_empty() => Ok(text),
        _ => Err(PolicyError::invalid_input(format!("'{name}' is missing or empty"))),
    }
}

/// An element of the array `name` as an object.
pub(super) fn element<'a>(value: &'a Value, name: &str) -> Result<&'a Object, PolicyError> {
    value.as_object().ok_or_else(|| {
        PolicyError::invalid_input(format!("each element of '{name}' must be an object"))
    })
}

/// An element of the array `name` as a string.
pub(super) fn text_element<'a>(value: &'a Value, name: &str) -> Result<&'a str, PolicyError> {
    value.as_str().ok_or_else(|| {
        PolicyError::invalid_input(format!("each element of '{name}' must be a string"))
    })
}

fn typed<'a, T>(
    owner: &'a Object,
    name: &str,
    expected: &str,
    read: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, PolicyError> {
    let Some(value) = present(owner, name) else { return Ok(None) };
    match read(value) {
        Some(read) => Ok(Some(read)),
        None => Err(PolicyError::invalid_input(format!("'{name}' must be {expected}"))),
    }
}
