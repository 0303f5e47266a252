//! The partition key of a container: chosen once, at creation, for good.

use value::{Object, PartitionKeyDefinition, PartitionKind, Path, Value};

use super::{PolicyError, member};

/// Levels of a hierarchical key.
const LEVELS_MAX: usize = 3;
/// Where the documents of a container without a key would carry one.
const SYSTEM_KEY_PATH: &str = "/_partitionKey";

/// Checks and completes `partitionKey`.
pub(super) fn check(
    body: &Object,
    allow_missing: bool,
) -> Result<(PartitionKeyDefinition, Value), PolicyError> {
    let definition = match member::object(body, "partitionKey")? {
        Some(definition) => definition,
        None if allow_missing => return parse(&system_key()),
        None => {
            return Err(PolicyError::new(
                "The partition key definition is missing: a container needs 'partitionKey'.",
            ));
        }
    };
    parse(definition)
}

/// The body of a replace, where a partition key that leaves out its kind or version means the
/// stored one, and one that is missing means that there still is none.
pub(super) fn complete_from(body: &Object, stored: &Object) -> Result<Object, PolicyError> {
    let mut body = body.clone();
    let Some(old) = member::object(stored, "partitionKey")? else { return Ok(body) };
    if member::present(&body, "partitionKey").is_none() {
        let paths = member::array(old, "paths")?.unwrap_or_default();
        if paths == [Value::from(SYSTEM_KEY_PATH)] {
            body.insert("partitionKey", old.clone());
        }
        return Ok(body);
    }
    let new = body.get_mut("partitionKey").and_then(Value::as_object_mut);
    if let Some(new) = new.filter(|new| new.get("paths") == old.get("paths")) {
        for name in ["kind", "version", "systemKey"] {
            if let (None, Some(value)) = (member::present(new, name), old.get(name)) {
                new.insert(name, value.clone());
            }
        }
    }
    Ok(body)
}

/// Refuses a replace with another key.
pub(super) fn check_unchanged(
    old: &PartitionKeyDefinition,
    new: &PartitionKeyDefinition,
) -> Result<(), PolicyError> {
    if old != new {
        return Err(PolicyError::new("Document collection partition key cannot be changed."));
    }
    Ok(())
}

fn system_key() -> Object {
    Object::from([
        ("paths", Value::from(vec![Value::from(SYSTEM_KEY_PATH)])),
        ("kind", Value::from("Hash")),
        ("version", Value::from(2)),
        ("systemKey", Value::from(true)),
    ])
}

fn parse(definition: &Object) -> Result<(PartitionKeyDefinition, Value), PolicyError> {
    let kind = kind(definition)?;
    let version = version(definition, kind)?;
    let texts = paths(definition, kind)?;
    let paths = texts.iter().map(|text| path(text)).collect::<Result<Vec<_>, _>>()?;
    for (offset, path) in paths.iter().enumerate() {
        if paths[..offset].contains(path) {
            return Err(PolicyError::new(format!(
                "The partition key path '{}' is defined more than once.",
                texts[offset]
            )));
        }
    }
    let system_key = member::boolean(definition, "systemKey")?.unwrap_or(false);
    if system_key && (kind != PartitionKind::Hash || texts != [SYSTEM_KEY_PATH]) {
        return Err(PolicyError::invalid_input(format!(
            "'systemKey' is only for the path '{SYSTEM_KEY_PATH}'"
        )));
    }

    let mut stored = Object::new();
    stored.insert("paths", texts.into_iter().map(Value::from).collect::<Vec<_>>());
    stored.insert("kind", if kind == PartitionKind::Hash { "Hash" } else { "MultiHash" });
    // Clients hash keys themselves and take an absent version for 1. Like the service we show the
    // version to who has named one; a test of the Rust SDK insists on that.
    if member::present(definition, "version").is_some() {
        stored.insert("version", i64::from(version));
    }
    if system_key {
        stored.insert("systemKey", true);
    }
    Ok((PartitionKeyDefinition { paths, kind, version, system_key }, stored.into()))
}

fn kind(definition: &Object) -> Result<PartitionKind, PolicyError> {
    match member::string(definition, "kind")? {
        None | Some("Hash") => Ok(PartitionKind::Hash),
        Some("MultiHash") => Ok(PartitionKind::MultiHash),
        // The service has not created such containers for years.
        Some("Range") => Err(PolicyError::new("The partition kind 'Range' is not served.")),
        Some(other) => Err(PolicyError::invalid_input(format!("unknown partition kind '{other}'"))),
    }
}

fn version(definition: &Object, kind: PartitionKind) -> Result<u8, PolicyError> {
    let version = match definition.get("version") {
        None | Some(Value::Null) => 1,
        Some(Value::Number(number)) if number.as_i64() == Some(1) => 1,
        Some(Value::Number(number)) if number.as_i64() == Some(2) => 2,
        // Java writes the version as the name of its constant.
        Some(Value::String(name)) if name == "V1" => 1,
        Some(Value::String(name)) if name == "V2" => 2,
        Some(other) => {
            return Err(PolicyError::invalid_input(format!(
                "the partition key version must be 1 or 2, not {other}"
            )));
        }
    };
    if kind == PartitionKind::MultiHash && version != 2 {
        return Err(PolicyError::new("A partition key of kind 'MultiHash' must have version 2."));
    }
    Ok(version)
}

fn paths(definition: &Object, kind: PartitionKind) -> Result<Vec<String>, PolicyError> {
    let elements = member::array(definition, "paths")?.unwrap_or_default();
    if elements.is_empty() {
        return Err(PolicyError::new("The partition key definition has no paths."));
    }
    let count_max = if kind == PartitionKind::Hash { 1 } else { LEVELS_MAX };
    if elements.len() > count_max {
        return Err(PolicyError::new(format!(
            "Too many partition key paths: {} are specified, the kind of this key allows \
             {count_max}.",
            elements.len()
        )));
    }
    elements
        .iter()
        .map(|element| member::text_element(element, "paths").map(str::to_owned))
        .collect()
}

fn path(text: &str) -> Result<Path, PolicyError> {
    Path::parse(text).map_err(|error| {
        PolicyError::new(format!(
            "The partition key component definition path '{text}' could not be accepted, failed \
             near position '{}'. Partition key paths must contain only valid characters and not \
             contain a trailing slash or wildcard character.",
            error.position
        ))
    })
}
