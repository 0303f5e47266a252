//! Unique keys: combinations of values that occur once in a logical partition.
//!
//! They are fixed at creation. What counts as equal, and when, is decided where documents are
//! written; here are only the definitions.

use std::collections::BTreeSet;

use value::{Object, Path, SYSTEM_PROPERTIES, Value};

use super::{PolicyError, member};

const KEYS_MAX: usize = 10;
const PATHS_MAX: usize = 16;

/// One constraint: the values at these paths, taken together, are unique.
#[derive(Clone, Debug, PartialEq)]
pub struct UniqueKey {
    /// At least one path, in the order the client gave.
    pub paths: Vec<Path>,
}

/// Checks `uniqueKeyPolicy`.
pub(super) fn check(body: &Object) -> Result<(Vec<UniqueKey>, Option<Value>), PolicyError> {
    let Some(policy) = member::object(body, "uniqueKeyPolicy")? else {
        return Ok((Vec::new(), None));
    };
    let definitions = member::array(policy, "uniqueKeys")?.unwrap_or_default();
    if definitions.len() > KEYS_MAX {
        return Err(PolicyError::new(format!(
            "The unique key policy has {} unique keys, more than the maximum of {KEYS_MAX}.",
            definitions.len()
        )));
    }
    let mut keys = Vec::new();
    let mut stored = Vec::new();
    let mut seen = BTreeSet::new();
    for definition in definitions {
        let texts = paths(member::element(definition, "uniqueKeys")?)?;
        let paths = texts.iter().map(|text| path(text)).collect::<Result<Vec<_>, _>>()?;
        let distinct: BTreeSet<Vec<String>> =
            paths.iter().map(|path| path.segments().to_vec()).collect();
        if distinct.len() < paths.len() {
            return Err(PolicyError::new(format!(
                "A unique key names the same path more than once: {}.",
                texts.join(", ")
            )));
        }
        if !seen.insert(distinct) {
            return Err(PolicyError::new(format!(
                "The unique key on {} is defined more than once.",
                texts.join(", ")
            )));
        }
        let texts: Vec<Value> = texts.into_iter().map(Value::from).collect();
        stored.push(Value::from(Object::from([("paths", Value::from(texts))])));
        keys.push(UniqueKey { paths });
    }
    Ok((keys, Some(Object::from([("uniqueKeys", Value::from(stored))]).into())))
}

/// Refuses a replace that changes the keys or leaves them out.
pub(super) fn check_unchanged(old: &[UniqueKey], new: &[UniqueKey]) -> Result<(), PolicyError> {
    if old != new {
        return Err(PolicyError::new(
            "The unique index cannot be modified. To change the unique index, remove the \
             collection and re-create a new one.",
        ));
    }
    Ok(())
}

fn paths(definition: &Object) -> Result<Vec<&str>, PolicyError> {
    let elements = member::array(definition, "paths")?.unwrap_or_default();
    if elements.is_empty() {
        return Err(PolicyError::new("A unique key must have at least one path."));
    }
    if elements.len() > PATHS_MAX {
        return Err(PolicyError::new(format!(
            "A unique key has {} paths, more than the maximum of {PATHS_MAX}.",
            elements.len()
        )));
    }
    elements.iter().map(|element| member::text_element(element, "paths")).collect()
}

fn path(text: &str) -> Result<Path, PolicyError> {
    let path = Path::parse(text).map_err(|error| {
        PolicyError::new(format!(
            "The unique key path '{text}' could not be accepted, failed near position '{}'. \
             Unique key paths must contain only valid characters and not contain a trailing slash \
             or wildcard character.",
            error.position
        ))
    })?;
    let root = path.segments().first().map(String::as_str);
    if root.is_some_and(|name| SYSTEM_PROPERTIES.contains(&name)) {
        return Err(PolicyError::new(format!(
            "The unique key path '{text}' is a system property."
        )));
    }
    Ok(path)
}
