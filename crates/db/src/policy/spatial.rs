//! Spatial indexes. They make functions over shapes fast and change no answer.

use std::collections::HashSet;

use query::{Geospatial, PathSegment};
use value::{Object, Value};

use super::index_path::{IndexPath, Segment, Terminator};
use super::{PolicyError, member};

/// A kind of shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpatialType {
    /// One position.
    Point,
    /// Connected positions.
    LineString,
    /// An area with possible holes.
    Polygon,
    /// Several areas.
    MultiPolygon,
}

const TYPES: [(&str, SpatialType); 4] = [
    ("Point", SpatialType::Point),
    ("LineString", SpatialType::LineString),
    ("Polygon", SpatialType::Polygon),
    ("MultiPolygon", SpatialType::MultiPolygon),
];

/// The part of the plane that an index covers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundingBox {
    /// The left edge.
    pub xmin: f64,
    /// The lower edge.
    pub ymin: f64,
    /// The right edge.
    pub xmax: f64,
    /// The upper edge.
    pub ymax: f64,
}

/// An index over the shapes at a path.
#[derive(Clone, Debug, PartialEq)]
pub struct SpatialIndex {
    /// Where the shapes are.
    pub path: IndexPath,
    /// Which kinds are indexed.
    pub types: Vec<SpatialType>,
    /// Present exactly in containers of plane geometry.
    pub bounding_box: Option<BoundingBox>,
}

impl SpatialIndex {
    /// Whether the shapes at a path are indexed. All are, whichever types were named: a lookup that
    /// cannot find the others could not be used.
    pub(crate) fn covers(&self, path: &[PathSegment]) -> bool {
        let is_same = |(segment, step): (&Segment, &PathSegment)| match (segment, step) {
            (Segment::Property(name), PathSegment::Property(other)) => name == other,
            (Segment::AnyElement, PathSegment::Element) => true,
            _ => false,
        };
        let segments = &self.path.segments;
        let is_long_enough = match self.path.terminator {
            Terminator::Scalar => path.len() == segments.len(),
            Terminator::Subtree => path.len() >= segments.len(),
        };
        is_long_enough && segments.iter().zip(path).all(is_same)
    }

    /// Whether the index is about a top-level property of this name.
    pub(super) fn is_on(&self, name: &str) -> bool {
        matches!(self.path.segments.as_slice(), [Segment::Property(first)] if first == name)
    }
}

/// Checks `spatialIndexes`.
pub(super) fn check(
    policy: &Object,
    geospatial: Geospatial,
) -> Result<(Vec<SpatialIndex>, Option<Value>), PolicyError> {
    let Some(elements) = member::array(policy, "spatialIndexes")? else {
        return Ok((Vec::new(), None));
    };
    let mut indexes = Vec::new();
    let mut stored = Vec::new();
    let mut seen = HashSet::new();
    for element in elements {
        let entry = member::element(element, "spatialIndexes")?;
        let (index, json) = check_index(entry, geospatial)?;
        if !seen.insert(index.path.clone()) {
            let text = member::required_string(entry, "path")?;
            return Err(PolicyError::new(format!(
                "The spatial index path '{text}' is specified more than once."
            )));
        }
        indexes.push(index);
        stored.push(Value::from(json));
    }
    Ok((indexes, Some(stored.into())))
}

fn check_index(
    entry: &Object,
    geospatial: Geospatial,
) -> Result<(SpatialIndex, Object), PolicyError> {
    let text = member::required_string(entry, "path")?;
    let path = IndexPath::parse(text)?;
    if path.is_root() || !path.tuple.is_empty() {
        return Err(PolicyError::new(format!(
            "The path '{text}' cannot have a spatial index: it names no property."
        )));
    }
    let (types, names) = types(entry, text)?;
    let bounding_box = bounding_box(entry, text, geospatial)?;
    let mut stored = Object::from([("path", Value::from(text)), ("types", names.into())]);
    if let Some(sides) = bounding_box {
        let sides = [
            ("xmin", sides.xmin),
            ("ymin", sides.ymin),
            ("xmax", sides.xmax),
            ("ymax", sides.ymax),
        ];
        stored.insert("boundingBox", Object::from(sides));
    }
    Ok((SpatialIndex { path, types, bounding_box }, stored))
}

fn types(entry: &Object, path: &str) -> Result<(Vec<SpatialType>, Vec<Value>), PolicyError> {
    let elements = member::array(entry, "types")?.unwrap_or_default();
    if elements.is_empty() {
        return Err(PolicyError::new(format!(
            "The spatial data types array cannot be empty. Assign at least one spatial type for \
             the 'types' array for the path '{path}'."
        )));
    }
    let mut types = Vec::new();
    let mut names = Vec::new();
    for element in elements {
        let text = member::text_element(element, "types")?;
        let known = TYPES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        let (name, kind) = known.ok_or_else(|| {
            PolicyError::invalid_input(format!("unknown spatial type '{text}' at path '{path}'"))
        })?;
        if !types.contains(kind) {
            types.push(*kind);
            names.push(Value::from(*name));
        }
    }
    Ok((types, names))
}

fn bounding_box(
    entry: &Object,
    path: &str,
    geospatial: Geospatial,
) -> Result<Option<BoundingBox>, PolicyError> {
    let sides = match (member::object(entry, "boundingBox")?, geospatial) {
        (None, Geospatial::Geography) => return Ok(None),
        (None, Geospatial::Geometry) => {
            return Err(PolicyError::new(format!(
                "Required parameter 'boundingBox' for 'Geometry' collection is missing in spatial \
                 path '{path}'"
            )));
        }
        (Some(_), Geospatial::Geography) => {
            return Err(PolicyError::new(
                "Incorrect parameter 'boundingBox' specified for 'Geography' collection",
            ));
        }
        (Some(sides), Geospatial::Geometry) => sides,
    };
    let bounding_box = BoundingBox {
        xmin: side(sides, "xmin", path)?,
        ymin: side(sides, "ymin", path)?,
        xmax: side(sides, "xmax", path)?,
        ymax: side(sides, "ymax", path)?,
    };
    let ranges =
        [("x", bounding_box.xmin, bounding_box.xmax), ("y", bounding_box.ymin, bounding_box.ymax)];
    for (axis, min, max) in ranges {
        if max <= min {
            return Err(PolicyError::new(format!(
                "The value of parameter '{axis}max' must be greater than the value of parameter \
                 '{axis}min' in 'boundingBox' for spatial path '{path}'"
            )));
        }
    }
    Ok(Some(bounding_box))
}

fn side(sides: &Object, name: &str, path: &str) -> Result<f64, PolicyError> {
    let number = member::number(sides, name)?.ok_or_else(|| {
        PolicyError::new(format!(
            "Required parameter '{name}' in 'boundingBox' is missing for spatial path '{path}'"
        ))
    })?;
    Ok(number.as_f64())
}
