//! The client encryption policy: which properties clients encrypt before they send them.
//!
//! The server never sees a key and never decrypts; it keeps the policy so that all clients of a
//! container follow the same one.

use std::collections::HashSet;

use value::{Object, PartitionKeyDefinition, Path, Value};

use super::{PolicyError, member};

const ALGORITHM: &str = "AEAD_AES_256_CBC_HMAC_SHA256";

/// Checks `clientEncryptionPolicy`, which is stored as it was sent.
pub(super) fn check(
    body: &Object,
    partition_key: &PartitionKeyDefinition,
) -> Result<Option<Value>, PolicyError> {
    let Some(policy) = member::object(body, "clientEncryptionPolicy")? else { return Ok(None) };
    let version = match member::number(policy, "policyFormatVersion")? {
        None => 1,
        Some(number) => {
            number.as_i64().filter(|version| matches!(version, 1 | 2)).ok_or_else(|| {
                refusal(format!("policy format version {} is unknown", number.text()))
            })?
        }
    };
    let mut seen = HashSet::new();
    for element in member::array(policy, "includedPaths")?.unwrap_or_default() {
        let entry = member::element(element, "includedPaths")?;
        let path = check_path(entry, version, partition_key)?;
        if !seen.insert(path) {
            return Err(refusal(format!(
                "path '{}' is specified more than once",
                member::required_string(entry, "path")?
            )));
        }
    }
    Ok(Some(policy.clone().into()))
}

/// Refuses a replace with another policy, or without it.
pub(super) fn check_unchanged(old: Option<&Value>, new: Option<&Value>) -> Result<(), PolicyError> {
    if old != new {
        return Err(PolicyError::new("The client encryption policy cannot be changed."));
    }
    Ok(())
}

fn check_path(
    entry: &Object,
    version: i64,
    partition_key: &PartitionKeyDefinition,
) -> Result<Path, PolicyError> {
    let text = member::required_string(entry, "path")?;
    let path = Path::parse(text).map_err(|error| {
        refusal(format!("path '{text}' fails near position {}", error.position))
    })?;
    let [name] = path.segments() else {
        return Err(refusal(format!("path '{text}' is not a top-level property")));
    };
    member::required_string(entry, "clientEncryptionKeyId")?;
    let algorithm = member::required_string(entry, "encryptionAlgorithm")?;
    if algorithm != ALGORITHM {
        return Err(refusal(format!("encryption algorithm '{algorithm}' is unknown")));
    }
    let kind = member::required_string(entry, "encryptionType")?;
    if !matches!(kind, "Deterministic" | "Randomized") {
        return Err(refusal(format!("encryption type '{kind}' is unknown")));
    }
    // An encrypted id or key must encrypt to the same text each time, or nobody finds the document.
    let is_key = partition_key.paths.iter().any(|key| key.segments().first() == Some(name));
    if (is_key || name == "id") && (version != 2 || kind != "Deterministic") {
        return Err(refusal(format!(
            "path '{text}' is the id or part of the partition key, which needs policy format \
             version 2 and deterministic encryption"
        )));
    }
    Ok(path)
}

fn refusal(detail: String) -> PolicyError {
    PolicyError::new(format!("The client encryption policy is invalid: {detail}."))
}
