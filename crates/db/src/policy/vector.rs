//! Vectors: which paths hold them, and which of those have an index.
//!
//! Both lists are shown exactly as they were sent. An entry cannot be edited later, only added or
//! removed.

use std::collections::{HashMap, HashSet};

use value::{Object, Path, Value};

use super::{PolicyError, member};

/// Dimensions of a vector, and of one that a flat index holds.
const DIMENSIONS_MAX: i64 = 4_096;
const DIMENSIONS_FLAT_MAX: u32 = 505;
const DIMENSIONS_DEFAULT: i64 = 1_536;
const QUANTIZATION_BYTES_MAX: u32 = 512;
/// The documentation says 10; the service's own message says 25.
const SEARCH_LIST_MIN: i64 = 25;
const SEARCH_LIST_MAX: i64 = 500;
const SHARD_PATHS_MAX: usize = 1;

/// The type of the numbers in a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorDataType {
    /// Four bytes.
    Float32,
    /// Two bytes.
    Float16,
    /// A signed byte.
    Int8,
    /// An unsigned byte.
    Uint8,
}

/// How the distance of two vectors is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DistanceFunction {
    /// The angle between them.
    Cosine,
    /// Their product.
    DotProduct,
    /// The length of the straight line.
    Euclidean,
}

/// A path that holds vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorEmbedding {
    /// Where the vector is.
    pub path: Path,
    /// The type of its numbers.
    pub data_type: VectorDataType,
    /// How many there are.
    pub dimensions: u32,
    /// How distances are measured.
    pub distance: DistanceFunction,
}

/// The structure of a vector index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorIndexKind {
    /// The vectors themselves.
    Flat,
    /// Shortened vectors.
    QuantizedFlat,
    /// Shortened vectors in a graph.
    DiskAnn,
}

/// How vectors are shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantizer {
    /// In parts, each by a table.
    Product,
    /// By rotation.
    Spherical,
}

/// An index over the vectors at a path.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorIndex {
    /// The path, which is also the path of an embedding.
    pub path: Path,
    /// The structure of the index.
    pub kind: VectorIndexKind,
    /// The size of a shortened vector.
    pub quantization_bytes: Option<u32>,
    /// How wide the graph is searched when a vector is added.
    pub search_list_size: Option<u32>,
    /// The property by which the index is split.
    pub shard_key: Option<Path>,
    /// How vectors are shortened.
    pub quantizer: Quantizer,
}

/// Checks `vectorEmbeddingPolicy`.
pub(super) fn check_embeddings(
    body: &Object,
) -> Result<(Vec<VectorEmbedding>, Option<Value>), PolicyError> {
    let Some(policy) = member::object(body, "vectorEmbeddingPolicy")? else {
        return Ok((Vec::new(), None));
    };
    let mut embeddings = Vec::new();
    let mut seen = HashSet::new();
    for element in member::array(policy, "vectorEmbeddings")?.unwrap_or_default() {
        let embedding = embedding(member::element(element, "vectorEmbeddings")?)?;
        if !seen.insert(embedding.path.clone()) {
            return Err(PolicyError::new(format!(
                "The Vector Embedding Policy has the Path:{} more than once.",
                embedding.path
            )));
        }
        embeddings.push(embedding);
    }
    Ok((embeddings, Some(policy.clone().into())))
}

/// Checks `vectorIndexes` of the indexing policy.
pub(super) fn check_indexes(
    policy: &Object,
    embeddings: &[VectorEmbedding],
) -> Result<(Vec<VectorIndex>, Option<Value>), PolicyError> {
    let Some(elements) = member::array(policy, "vectorIndexes")? else {
        return Ok((Vec::new(), None));
    };
    let embeddings = by_path(embeddings, |embedding| &embedding.path);
    let mut indexes = Vec::new();
    let mut seen = HashSet::new();
    for element in elements {
        let index = index(member::element(element, "vectorIndexes")?, &embeddings)?;
        if !seen.insert(index.path.clone()) {
            return Err(PolicyError::new(format!(
                "The Vector Indexing Policy has the path::{} more than once.",
                index.path
            )));
        }
        indexes.push(index);
    }
    Ok((indexes, Some(elements.to_vec().into())))
}

/// Refuses a replace that edits an embedding.
pub(super) fn check_embeddings_unchanged(
    old: &[VectorEmbedding],
    new: &[VectorEmbedding],
) -> Result<(), PolicyError> {
    if is_edited(old, new, |embedding| &embedding.path) {
        return Err(PolicyError::new(
            "Paths in existing embedding policy cannot be modified in Collection Replace",
        ));
    }
    Ok(())
}

/// Refuses a replace that edits a vector index.
pub(super) fn check_indexes_unchanged(
    old: &[VectorIndex],
    new: &[VectorIndex],
) -> Result<(), PolicyError> {
    if is_edited(old, new, |index| &index.path) {
        return Err(PolicyError::new(
            "Paths in existing vector indexing policy cannot be modified in Collection Replace",
        ));
    }
    Ok(())
}

/// Definitions may have as many entries as a request holds, so they are looked up, not searched.
fn by_path<T>(entries: &[T], path: impl Fn(&T) -> &Path) -> HashMap<&Path, &T> {
    entries.iter().map(|entry| (path(entry), entry)).collect()
}

fn is_edited<T: PartialEq>(old: &[T], new: &[T], path: impl Fn(&T) -> &Path) -> bool {
    let new = by_path(new, &path);
    old.iter().any(|old| new.get(path(old)).is_some_and(|new| *new != old))
}

fn embedding(entry: &Object) -> Result<VectorEmbedding, PolicyError> {
    if member::present(entry, "embeddingSource").is_some() {
        return Err(PolicyError::new("'embeddingSource' is not served yet"));
    }
    let text = member::string(entry, "path")?.unwrap_or_default();
    let path = Path::parse(text).map_err(|_| {
        PolicyError::new(format!("The Vector Embedding Policy has an invalid Path:{text}."))
    })?;
    let data_type = data_type(member::string(entry, "dataType")?.unwrap_or("float32"))?;
    let distance = distance(member::string(entry, "distanceFunction")?.unwrap_or("cosine"))?;
    let dimensions = dimensions(entry)?;
    Ok(VectorEmbedding { path, data_type, dimensions, distance })
}

fn data_type(text: &str) -> Result<VectorDataType, PolicyError> {
    match text.to_ascii_lowercase().as_str() {
        "float32" => Ok(VectorDataType::Float32),
        "float16" => Ok(VectorDataType::Float16),
        "int8" => Ok(VectorDataType::Int8),
        "uint8" => Ok(VectorDataType::Uint8),
        _ => Err(PolicyError::new(format!(
            "The Vector Embedding Policy has an invalid DataType:{text}. The allowed types are \
             float32, float16, int8 and uint8."
        ))),
    }
}

fn distance(text: &str) -> Result<DistanceFunction, PolicyError> {
    match text.to_ascii_lowercase().as_str() {
        "cosine" => Ok(DistanceFunction::Cosine),
        "dotproduct" => Ok(DistanceFunction::DotProduct),
        "euclidean" => Ok(DistanceFunction::Euclidean),
        _ => Err(PolicyError::new(format!(
            "The Vector Embedding Policy has an invalid DistanceFunction:{text}. The allowed \
             functions are cosine, dotproduct and euclidean."
        ))),
    }
}

fn dimensions(entry: &Object) -> Result<u32, PolicyError> {
    let dimensions = integer(entry, "dimensions")?.unwrap_or(DIMENSIONS_DEFAULT);
    if dimensions > DIMENSIONS_MAX {
        return Err(PolicyError::new(format!(
            "The Vector Embedding Policy has Dimensions:{dimensions} which is more than the \
             maximum supported value of {DIMENSIONS_MAX}."
        )));
    }
    u32::try_from(dimensions).ok().filter(|dimensions| *dimensions > 0).ok_or_else(|| {
        PolicyError::new(format!(
            "The Vector Embedding Policy has Dimensions:{dimensions} which is less than the \
             minimum supported value of 1."
        ))
    })
}

fn index(
    entry: &Object,
    embeddings: &HashMap<&Path, &VectorEmbedding>,
) -> Result<VectorIndex, PolicyError> {
    let text = member::string(entry, "path")?.unwrap_or_default();
    let path = Path::parse(text).map_err(|_| {
        PolicyError::new(format!("The Vector Indexing Policy has an invalid path::{text}."))
    })?;
    let kind = index_kind(member::string(entry, "type")?.unwrap_or_default())?;
    let embedding = embeddings.get(&path).ok_or_else(|| {
        PolicyError::new(format!(
            "The Vector Indexing Policy's path::{text} not matching in Embedding's path."
        ))
    })?;
    if kind == VectorIndexKind::Flat && embedding.dimensions > DIMENSIONS_FLAT_MAX {
        return Err(PolicyError::new(format!(
            "The Vector Indexing Policy has Index Type::flat for path::{text}, whose Dimensions:{} \
             are more than the maximum of {DIMENSIONS_FLAT_MAX} for this type.",
            embedding.dimensions
        )));
    }
    refuse_foreign_parameters(entry, kind, text)?;
    Ok(VectorIndex {
        path,
        kind,
        quantization_bytes: quantization_bytes(entry, embedding.dimensions)?,
        search_list_size: search_list_size(entry)?,
        shard_key: shard_key(entry)?,
        quantizer: quantizer(entry)?,
    })
}

fn index_kind(text: &str) -> Result<VectorIndexKind, PolicyError> {
    match text.to_ascii_lowercase().as_str() {
        "flat" => Ok(VectorIndexKind::Flat),
        "quantizedflat" => Ok(VectorIndexKind::QuantizedFlat),
        "diskann" => Ok(VectorIndexKind::DiskAnn),
        _ => Err(PolicyError::new(format!(
            "The Vector Indexing Policy's Index Type::{text} is invalid."
        ))),
    }
}

/// A parameter that the structure does not have would be without effect.
fn refuse_foreign_parameters(
    entry: &Object,
    kind: VectorIndexKind,
    path: &str,
) -> Result<(), PolicyError> {
    let foreign: &[&str] = match kind {
        VectorIndexKind::Flat => &[
            "quantizationByteSize",
            "quantizerType",
            "indexingSearchListSize",
            "vectorIndexShardKey",
        ],
        VectorIndexKind::QuantizedFlat => &["indexingSearchListSize"],
        VectorIndexKind::DiskAnn => &[],
    };
    for name in foreign {
        let empty = Value::Array(Vec::new());
        if member::present(entry, name).is_some_and(|value| *value != empty) {
            return Err(PolicyError::new(format!(
                "The Vector Indexing Policy parameter {name} is not supported by the Index Type of \
                 path::{path}."
            )));
        }
    }
    Ok(())
}

fn quantization_bytes(entry: &Object, dimensions: u32) -> Result<Option<u32>, PolicyError> {
    let max = i64::from(dimensions.min(QUANTIZATION_BYTES_MAX));
    ranged(entry, "quantizationByteSize", "QuantizationByteSize", (1, max))
}

fn search_list_size(entry: &Object) -> Result<Option<u32>, PolicyError> {
    let range = (SEARCH_LIST_MIN, SEARCH_LIST_MAX);
    ranged(entry, "indexingSearchListSize", "IndexingSearchListSize", range)
}

fn ranged(
    entry: &Object,
    name: &str,
    shown_as: &str,
    (min, max): (i64, i64),
) -> Result<Option<u32>, PolicyError> {
    let Some(number) = integer(entry, name)? else { return Ok(None) };
    match u32::try_from(number) {
        Ok(size) if (min..=max).contains(&number) => Ok(Some(size)),
        _ => Err(PolicyError::new(format!(
            "The Vector Indexing Policy parameter {shown_as} value :: {number} is out of range. \
             The allowed range is between {min} and {max}."
        ))),
    }
}

fn shard_key(entry: &Object) -> Result<Option<Path>, PolicyError> {
    let elements = member::array(entry, "vectorIndexShardKey")?.unwrap_or_default();
    if elements.len() > SHARD_PATHS_MAX {
        return Err(PolicyError::new(format!(
            "The number of shard paths defined in the Vector Indexing Policy: {} exceeds the \
             maximum: {SHARD_PATHS_MAX}.",
            elements.len()
        )));
    }
    let Some(element) = elements.first() else { return Ok(None) };
    let text = member::text_element(element, "vectorIndexShardKey")?;
    Path::parse(text).map(Some).map_err(|_| {
        PolicyError::new(format!("The Vector Indexing Policy has an invalid Shard Path: {text}."))
    })
}

fn quantizer(entry: &Object) -> Result<Quantizer, PolicyError> {
    match member::string(entry, "quantizerType")? {
        None => Ok(Quantizer::Product),
        Some(text) if text.eq_ignore_ascii_case("product") => Ok(Quantizer::Product),
        Some(text) if text.eq_ignore_ascii_case("spherical") => Ok(Quantizer::Spherical),
        Some(text) => Err(PolicyError::new(format!(
            "The Vector Indexing Policy's Quantizer Type::{text} is invalid."
        ))),
    }
}

fn integer(entry: &Object, name: &str) -> Result<Option<i64>, PolicyError> {
    let Some(number) = member::number(entry, name)? else { return Ok(None) };
    let integer = number.as_i64().ok_or_else(|| {
        PolicyError::invalid_input(format!("'{name}' must be an integer, not {}", number.text()))
    })?;
    Ok(Some(integer))
}
