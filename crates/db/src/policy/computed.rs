//! Computed properties: names that queries may use as if documents contained them.

use std::collections::HashSet;

use value::{Object, PartitionKeyDefinition, Path, SYSTEM_PROPERTIES, Value};

use super::spatial::SpatialIndex;
use super::unique_key::UniqueKey;
use super::vector::VectorEmbedding;
use super::{PolicyError, computed_query, member};

const COUNT_MAX: usize = 20;

/// A property that is computed when a query asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputedProperty {
    /// The name, at the top level of documents.
    pub name: String,
    /// `SELECT VALUE … FROM …`, evaluated over one document.
    pub query: String,
}

/// The other policies, none of which may be about a computed property: keys, vectors and shapes
/// are of what documents contain.
pub(super) struct Context<'a> {
    pub(super) partition_key: &'a PartitionKeyDefinition,
    pub(super) unique_keys: &'a [UniqueKey],
    pub(super) vector: &'a [VectorEmbedding],
    pub(super) spatial: &'a [SpatialIndex],
}

/// Checks `computedProperties`.
pub(super) fn check(
    body: &Object,
    context: &Context<'_>,
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
        check_name(name, offset, context)?;
        if !seen.insert(name) {
            return Err(PolicyError::new(format!(
                "Computed property name '{name}' cannot be used in multiple definitions."
            )));
        }
        properties.push(ComputedProperty { name: name.to_owned(), query: query.to_owned() });
        stored.push(Value::from(Object::from([("name", name), ("query", query)])));
    }
    for (offset, property) in properties.iter().enumerate() {
        let mut others = seen.clone();
        others.remove(property.name.as_str());
        computed_query::check(&property.query, offset, &others)?;
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

fn check_name(name: &str, offset: usize, context: &Context<'_>) -> Result<(), PolicyError> {
    if name == "id" || SYSTEM_PROPERTIES.contains(&name) {
        return Err(PolicyError::new(format!(
            "The system property name '{name}' cannot be used as a computed property name."
        )));
    }
    if context.spatial.iter().any(|index| index.is_on(name)) {
        return Err(PolicyError::new(format!(
            "Computed property '{name}' at index ({offset}) has a spatial index. Remove the \
             spatial index on this path."
        )));
    }
    let starts_here = |path: &Path| path.segments().first().is_some_and(|first| first == name);
    let role = if context.partition_key.paths.iter().any(starts_here) {
        "partition key"
    } else if context.unique_keys.iter().flat_map(|key| &key.paths).any(starts_here) {
        "unique key"
    } else if context.vector.iter().map(|embedding| &embedding.path).any(starts_here) {
        "vector"
    } else {
        return Ok(());
    };
    Err(PolicyError::new(format!(
        "Computed property '{name}' at index ({offset}) cannot be used as a {role} path."
    )))
}
