//! GeoJSON, read: positions as they were written, and nothing yet about where they lie.

use crate::Geospatial;
use value::Value;

/// How many positions a polygon may have, as documented by the service.
const POSITIONS_MAX: usize = 4096;

/// The service's words for a latitude out of range.
const LATITUDE: &str = "Latitude values must be between -90 and 90 degrees.";
const LONGITUDE: &str = "Longitude values must be between -180 and 180 degrees.";

/// A longitude and a latitude in degrees, or the coordinates of a point of the plane.
pub type Position = [f64; 2];

/// A shape that the spatial functions understand; they are undefined for all others.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A point.
    Point(Position),
    /// A line through at least two positions.
    Line(Vec<Position>),
    /// One polygon or several, each a list of rings: the exterior, then the holes. A ring ends
    /// where it starts and has at least four positions.
    Polygons(Vec<Vec<Vec<Position>>>),
}

/// Why a value is no valid shape.
pub(super) type Reason = &'static str;

impl Shape {
    /// Reads a GeoJSON value; `None` when it is no valid shape.
    pub fn read(value: &Value, geospatial: Geospatial) -> Option<Shape> {
        read(value, geospatial).ok()
    }
}

/// Reads a GeoJSON value, or says what is wrong with it.
pub(super) fn read(value: &Value, geospatial: Geospatial) -> Result<Shape, Reason> {
    let coordinates = value.get("coordinates").ok_or("The value has no coordinates.")?;
    let reader = Reader { geospatial };
    match value.get("type").and_then(Value::as_str) {
        Some("Point") => reader.position(coordinates).map(Shape::Point),
        Some("LineString") => reader.line(coordinates).map(Shape::Line),
        Some("Polygon") => Ok(Shape::Polygons(vec![reader.polygon(coordinates)?])),
        Some("MultiPolygon") => {
            let polygons = list(coordinates)?.iter().map(|polygon| reader.polygon(polygon));
            let polygons = polygons.collect::<Result<Vec<_>, _>>()?;
            match polygons.is_empty() {
                true => Err("A MultiPolygon must have at least one polygon."),
                false => Ok(Shape::Polygons(polygons)),
            }
        }
        _ => Err("The type must be Point, LineString, Polygon or MultiPolygon."),
    }
}

fn list(value: &Value) -> Result<&[Value], Reason> {
    value.as_array().ok_or("Coordinates must be arrays.")
}

#[derive(Clone, Copy)]
struct Reader {
    geospatial: Geospatial,
}

impl Reader {
    fn position(self, value: &Value) -> Result<Position, Reason> {
        let numbers: Option<Vec<f64>> = list(value)?.iter().map(Value::as_f64).collect();
        let numbers = numbers.ok_or("A position must consist of numbers.")?;
        let [first, second, ..] = numbers[..] else {
            return Err(match self.geospatial {
                Geospatial::Geography => "A position must have a longitude and a latitude.",
                Geospatial::Geometry => "A position must have two coordinates.",
            });
        };
        match self.geospatial {
            Geospatial::Geography if !(-90.0..=90.0).contains(&second) => Err(LATITUDE),
            Geospatial::Geography if !(-180.0..=180.0).contains(&first) => Err(LONGITUDE),
            Geospatial::Geometry if !(first.is_finite() && second.is_finite()) => {
                Err("A position must consist of numbers.")
            }
            _ => Ok([first, second]),
        }
    }

    fn positions(self, value: &Value) -> Result<Vec<Position>, Reason> {
        list(value)?.iter().map(|value| self.position(value)).collect()
    }

    fn line(self, value: &Value) -> Result<Vec<Position>, Reason> {
        let positions = self.positions(value)?;
        if positions.len() < 2 {
            return Err("A LineString must have at least two positions.");
        }
        Ok(positions)
    }

    fn ring(self, value: &Value) -> Result<Vec<Position>, Reason> {
        let positions = self.positions(value)?;
        if positions.len() < 4 {
            return Err("A ring of a polygon must have at least four positions.");
        }
        if positions.first() != positions.last() {
            return Err("A ring of a polygon must end where it starts.");
        }
        Ok(positions)
    }

    fn polygon(self, value: &Value) -> Result<Vec<Vec<Position>>, Reason> {
        let rings = list(value)?.iter().map(|value| self.ring(value));
        let rings = rings.collect::<Result<Vec<_>, _>>()?;
        if rings.iter().map(Vec::len).sum::<usize>() > POSITIONS_MAX {
            return Err("A polygon may have at most 4096 positions.");
        }
        if rings.is_empty() {
            return Err("A polygon must have at least one ring.");
        }
        Ok(rings)
    }
}
