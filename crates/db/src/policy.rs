//! What a client may define about a container: checked, completed, stored and echoed.
//!
//! A container arrives as JSON with up to a dozen policies. Each policy has a file below this one,
//! with one function that refuses what the service refuses, fills in what the service fills in,
//! and returns two things: the typed form the rest of the database works with, and the JSON that
//! is stored and shown to clients.
//!
//! - P1: the stored form is a fixed point. Checking it again succeeds and changes nothing, so
//!   [`load`] is the same check once more and there is no second reader to keep in step.
//! - P2: a feature that is not served is refused by name. Members nobody knows are ignored and not
//!   stored.
//! - P3: `null` means absent, for every optional member; some SDKs send every property they have.

mod computed;
mod computed_query;
mod conflict;
mod encryption;
mod full_text;
mod geospatial;
mod index_path;
mod indexing;
mod member;
mod partition_key;
mod previous_image;
mod rules;
mod spatial;
mod unique_key;
mod vector;

use std::fmt;

use value::{Object, PartitionKeyDefinition, Value};

pub use computed::ComputedProperty;
pub use conflict::{ConflictResolution, Resolution};
pub use full_text::{FullTextPath, FullTextPolicy, Language};
pub use index_path::{IndexPath, Segment, Terminator};
pub use indexing::{CompositePath, IndexingMode, IndexingPolicy, Order};
pub use previous_image::PreviousImages;
pub use query::Geospatial;
pub use rules::Step;
pub(crate) use rules::Walk;
pub use spatial::{BoundingBox, SpatialIndex, SpatialType};
pub use unique_key::UniqueKey;
pub use vector::{
    DistanceFunction, Quantizer, VectorDataType, VectorEmbedding, VectorIndex, VectorIndexKind,
};

/// The policies of one container in the form the database works with.
#[derive(Clone, Debug, PartialEq)]
pub struct Policies {
    /// Where documents carry their partition key.
    pub partition_key: PartitionKeyDefinition,
    /// Which paths are indexed, and how.
    pub indexing: IndexingPolicy,
    /// Seconds after the last write at which a document without its own `ttl` expires; -1 means
    /// never. `None` means that nothing in the container expires, whatever its documents say.
    pub default_ttl: Option<i64>,
    /// Combinations of values that may occur once in a logical partition.
    pub unique_keys: Vec<UniqueKey>,
    /// Properties that queries see and documents do not contain.
    pub computed: Vec<ComputedProperty>,
    /// How conflicting writes of several regions would be settled.
    pub conflict: ConflictResolution,
    /// Whether coordinates lie on the globe or in a plane.
    pub geospatial: Geospatial,
    /// Paths that hold vectors.
    pub vector: Vec<VectorEmbedding>,
    /// Paths that hold text to be searched by words.
    pub full_text: Option<FullTextPolicy>,
    /// Minutes for which every version of a document can be read from the change feed. `None`
    /// means that only latest versions can.
    pub change_feed_retention_minutes: Option<i64>,
    /// Of which changes the change feed shows the document before.
    pub previous_images: PreviousImages,
    /// The time to live in the analytical store; kept for clients, has no effect here.
    pub analytical_ttl: Option<i64>,
    /// What clients encrypt before they send it; kept for clients, has no effect here.
    pub client_encryption: Option<Value>,
}

/// Why a container definition is refused. Always the client's mistake, a bad request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// The text for the client.
    pub message: String,
}

impl PolicyError {
    fn new(message: impl Into<String>) -> PolicyError {
        PolicyError { message: message.into() }
    }

    /// A member has the wrong JSON type or a value outside its list. The service answers with the
    /// first sentence alone; the rest helps the reader find the member.
    fn invalid_input(detail: impl fmt::Display) -> PolicyError {
        PolicyError { message: format!("One of the specified inputs is invalid: {detail}") }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PolicyError {}

/// Checks the definition of a new container and completes it.
///
/// `body` is the client's JSON; its `id` is checked elsewhere. The returned members are in the
/// order in which the service shows them, without `id` and system properties. A body without a
/// partition key is accepted only with `allow_missing_key`, for clients of old API versions.
pub fn check_new(
    body: &Object,
    allow_missing_key: bool,
) -> Result<(Policies, Object), PolicyError> {
    member::refuse_unserved(body)?;
    let (partition_key, partition_key_json) = partition_key::check(body, allow_missing_key)?;
    let (geospatial, geospatial_json) = geospatial::check(body)?;
    let (vector, vector_json) = vector::check_embeddings(body)?;
    let (full_text, full_text_json) = full_text::check(body)?;
    let context = indexing::Context {
        geospatial,
        embeddings: &vector,
        full_text: full_text.as_ref(),
        default_ttl: default_ttl(body)?,
    };
    let (indexing, indexing_json) = indexing::check(body, &context)?;
    let default_ttl = context.default_ttl;
    let (unique_keys, unique_keys_json) = unique_key::check(body)?;
    let context = computed::Context {
        partition_key: &partition_key,
        unique_keys: &unique_keys,
        vector: &vector,
        spatial: &indexing.spatial,
    };
    let (computed, computed_json) = computed::check(body, &context)?;
    let (conflict, conflict_json) = conflict::check(body)?;
    let (change_feed_retention_minutes, change_feed_json) = change_feed(body)?;
    let (previous_images, previous_images_json) = previous_image::check(body)?;
    let (analytical_ttl, analytical_json) = analytical_ttl(body)?;
    let client_encryption = encryption::check(body, &partition_key)?;

    let mut stored = Object::new();
    stored.insert("indexingPolicy", indexing_json);
    stored.insert("partitionKey", partition_key_json);
    let optional = [
        ("defaultTtl", default_ttl.map(Value::from)),
        ("uniqueKeyPolicy", unique_keys_json),
        ("conflictResolutionPolicy", Some(conflict_json)),
        ("geospatialConfig", Some(geospatial_json)),
        ("computedProperties", computed_json),
        ("vectorEmbeddingPolicy", vector_json),
        ("fullTextPolicy", full_text_json),
        ("changeFeedPolicy", change_feed_json),
        ("previousImageRetentionPolicy", previous_images_json),
        ("analyticalStorageTtl", analytical_json),
        ("clientEncryptionPolicy", client_encryption.clone()),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            stored.insert(name, value);
        }
    }
    let policies = Policies {
        partition_key,
        indexing,
        default_ttl,
        unique_keys,
        computed,
        conflict,
        geospatial,
        vector,
        full_text,
        change_feed_retention_minutes,
        previous_images,
        analytical_ttl,
        client_encryption,
    };
    Ok((policies, stored))
}

/// Checks the definition that is to replace `stored`, which one of the functions here returned.
///
/// A replace is whole: an optional member that is left out is removed. What was fixed at creation
/// must be sent again and be equal. A partition key may leave out its kind and version, and a
/// container that was created without one needs none.
pub fn check_replace(body: &Object, stored: &Object) -> Result<(Policies, Object), PolicyError> {
    let old = load(stored)?;
    let body = partition_key::complete_from(body, stored)?;
    let (new, completed) = check_new(&body, false)?;
    partition_key::check_unchanged(&old.partition_key, &new.partition_key)?;
    unique_key::check_unchanged(&old.unique_keys, &new.unique_keys)?;
    conflict::check_unchanged(&old.conflict, &new.conflict)?;
    encryption::check_unchanged(old.client_encryption.as_ref(), new.client_encryption.as_ref())?;
    vector::check_embeddings_unchanged(&old.vector, &new.vector)?;
    vector::check_indexes_unchanged(&old.indexing.vector, &new.indexing.vector)?;
    Ok((new, completed))
}

/// Reads back what [`check_new`] or [`check_replace`] returned. Members of other kinds (`id`,
/// system properties) may stand beside the policies.
pub fn load(stored: &Object) -> Result<Policies, PolicyError> {
    // By P1 the check is also the reader.
    check_new(stored, true).map(|(policies, _)| policies)
}

/// The largest time to live, in seconds.
const TTL_MAX: i64 = 2_147_483_647;

fn default_ttl(body: &Object) -> Result<Option<i64>, PolicyError> {
    let Some(value) = member::number(body, "defaultTtl")? else { return Ok(None) };
    match value.as_i64() {
        Some(seconds) if seconds == -1 || (1..=TTL_MAX).contains(&seconds) => Ok(Some(seconds)),
        _ => Err(PolicyError::new(format!(
            "The input ttl '{}' is invalid. Ensure to provide a nonzero positive integer less \
             than or equal to '{TTL_MAX}', or '-1' which means never expire.",
            value.text()
        ))),
    }
}

fn change_feed(body: &Object) -> Result<(Option<i64>, Option<Value>), PolicyError> {
    let Some(policy) = member::object(body, "changeFeedPolicy")? else { return Ok((None, None)) };
    let Some(duration) = member::number(policy, "retentionDuration")? else {
        return Ok((None, Some(Object::new().into())));
    };
    let minutes = duration.as_i64().filter(|minutes| (0..=TTL_MAX).contains(minutes));
    let minutes = minutes.ok_or_else(|| {
        PolicyError::invalid_input(format!(
            "'retentionDuration' must be a whole number of minutes, not {}",
            duration.text()
        ))
    })?;
    let stored = Object::from([("retentionDuration", Value::from(minutes))]);
    Ok((Some(minutes).filter(|minutes| *minutes > 0), Some(stored.into())))
}

fn analytical_ttl(body: &Object) -> Result<(Option<i64>, Option<Value>), PolicyError> {
    let Some(value) = member::number(body, "analyticalStorageTtl")? else {
        return Ok((None, None));
    };
    let seconds = value.as_i64().filter(|seconds| (-1..=TTL_MAX).contains(seconds));
    let seconds = seconds.ok_or_else(|| {
        PolicyError::invalid_input(format!(
            "'analyticalStorageTtl' must be -1, 0 or a number of seconds, not {}",
            value.text()
        ))
    })?;
    Ok((Some(seconds).filter(|seconds| *seconds != 0), Some(seconds.into())))
}

#[cfg(test)]
mod tests;
