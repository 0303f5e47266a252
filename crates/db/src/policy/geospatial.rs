//! Whether the coordinates of a container lie on the globe or in a plane.

use query::Geospatial;
use value::{Object, Value};

use super::{PolicyError, member};

/// Checks and completes `geospatialConfig`.
pub(super) fn check(body: &Object) -> Result<(Geospatial, Value), PolicyError> {
    let text = match member::object(body, "geospatialConfig")? {
        Some(config) => member::string(config, "type")?.unwrap_or("Geography"),
        None => "Geography",
    };
    let (geospatial, text) = match text.to_ascii_lowercase().as_str() {
        "geography" => (Geospatial::Geography, "Geography"),
        "geometry" => (Geospatial::Geometry, "Geometry"),
        _ => {
            return Err(PolicyError::invalid_input(format!("unknown geospatial type '{text}'")));
        }
    };
    Ok((geospatial, Object::from([("type", text)]).into()))
}
