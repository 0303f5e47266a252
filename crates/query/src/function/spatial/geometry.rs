//! GeoJSON values as geometries on the earth.

use super::ellipsoid::{area, area_of_earth, direction};
use super::sphere::{Arc, Ring, Side, Vector};
use value::Value;

/// How many positions a polygon may have, as documented by the service.
const POSITIONS_MAX: usize = 4096;

/// The service's words for a latitude out of range.
const LATITUDE: &str = "Latitude values must be between -90 and 90 degrees.";
const LONGITUDE: &str = "Longitude values must be between -180 and 180 degrees.";

/// A geometry that the functions understand.
#[derive(Clone, Debug)]
pub(super) enum Geometry {
    Point(Vector),
    Line(Vec<Vector>),
    /// One polygon, or several.
    Polygons(Vec<Polygon>),
}

/// A polygon: what lies inside one ring and outside others.
#[derive(Clone, Debug)]
pub(super) struct Polygon {
    exterior: Ring,
    /// Turned so that their inside is the hole.
    holes: Vec<Ring>,
}

/// Why a value is no valid geometry.
pub(super) type Reason = &'static str;

/// Reads a GeoJSON value.
pub(super) fn read(value: &Value) -> Result<Geometry, Reason> {
    let coordinates = value.get("coordinates").ok_or("The value has no coordinates.")?;
    match value.get("type").and_then(Value::as_str) {
        Some("Point") => Ok(Geometry::Point(position(coordinates)?)),
        Some("LineString") => line(coordinates).map(Geometry::Line),
        Some("Polygon") => Ok(Geometry::Polygons(vec![polygon(coordinates)?])),
        Some("MultiPolygon") => {
            let polygons = list(coordinates)?.iter().map(polygon).collect::<Result<Vec<_>, _>>()?;
            match polygons.is_empty() {
                true => Err("A MultiPolygon must have at least one polygon."),
                false => Ok(Geometry::Polygons(polygons)),
            }
        }
        _ => Err("The type must be Point, LineString, Polygon or MultiPolygon."),
    }
}

fn list(value: &Value) -> Result<&[Value], Reason> {
    value.as_array().ok_or("Coordinates must be arrays.")
}

fn position(value: &Value) -> Result<Vector, Reason> {
    let numbers: Option<Vec<f64>> = list(value)?.iter().map(Value::as_f64).collect();
    let numbers = numbers.ok_or("A position must consist of numbers.")?;
    let [longitude, latitude, ..] = numbers[..] else {
        return Err("A position must have a longitude and a latitude.");
    };
    if !(-90.0..=90.0).contains(&latitude) {
        return Err(LATITUDE);
    }
    if !(-180.0..=180.0).contains(&longitude) {
        return Err(LONGITUDE);
    }
    Ok(direction(longitude, latitude))
}

fn line(value: &Value) -> Result<Vec<Vector>, Reason> {
    let places = list(value)?.iter().map(position).collect::<Result<Vec<_>, _>>()?;
    if places.len() < 2 {
        Err("A LineString must have at least two positions.")
    } else {
        Ok(places)
    }
}

fn ring(value: &Value) -> Result<Ring, Reason> {
    let positions = list(value)?;
    let places = positions.iter().map(position).collect::<Result<Vec<_>, _>>()?;
    if places.len() < 4 {
        return Err("A ring of a polygon must have at least four positions.");
    }
    if places.first() != places.last() {
        return Err("A ring of a polygon must end where it starts.");
    }
    Ok(Ring { places })
}

fn polygon(value: &Value) -> Result<Polygon, Reason> {
    let rings = list(value)?.iter().map(ring).collect::<Result<Vec<_>, _>>()?;
    if rings.iter().map(|ring| ring.places.len()).sum::<usize>() > POSITIONS_MAX {
        return Err("A polygon may have at most 4096 positions.");
    }
    let mut rings = rings.into_iter();
    let exterior = rings.next().ok_or("A polygon must have at least one ring.")?;
    // A hole is the smaller side, whichever way it was drawn.
    let is_large = |hole: &Ring| area(hole) > area_of_earth() / 2.0;
    let holes = rings.map(|hole| if is_large(&hole) { hole.reversed() } else { hole }).collect();
    Ok(Polygon { exterior, holes })
}

impl Polygon {
    fn rings(&self) -> impl Iterator<Item = &Ring> {
        std::iter::once(&self.exterior).chain(&self.holes)
    }

    fn side(&self, place: Vector) -> Side {
        let side = self.exterior.side(place);
        if side != Side::Inside {
            return side;
        }
        for hole in &self.holes {
            match hole.side(place) {
                Side::Inside => return Side::Outside,
                Side::Boundary => return Side::Boundary,
                Side::Outside => {}
            }
        }
        Side::Inside
    }

    fn area(&self) -> f64 {
        area(&self.exterior) - self.holes.iter().map(area).sum::<f64>()
    }
}

impl Geometry {
    /// The edges; a point has none.
    pub(super) fn arcs(&self) -> Vec<Arc> {
        match self {
            Geometry::Point(_) => Vec::new(),
            Geometry::Line(places) => {
                places.windows(2).map(|ends| Arc { start: ends[0], end: ends[1] }).collect()
            }
            Geometry::Polygons(polygons) => {
                polygons.iter().flat_map(Polygon::rings).flat_map(Ring::arcs).collect()
            }
        }
    }

    /// The positions that it is drawn through.
    pub(super) fn places(&self) -> Vec<Vector> {
        match self {
            Geometry::Point(place) => vec![*place],
            Geometry::Line(places) => places.clone(),
            Geometry::Polygons(polygons) => polygons
                .iter()
                .flat_map(Polygon::rings)
                .flat_map(|ring| ring.places.iter().copied())
                .collect(),
        }
    }

    /// Where a place lies; all of a point and of a line is boundary.
    pub(super) fn side(&self, place: Vector) -> Side {
        match self {
            Geometry::Point(point) if point.angle(place) < super::sphere::TOLERANCE => {
                Side::Boundary
            }
            Geometry::Point(_) => Side::Outside,
            Geometry::Line(_) => match self.arcs().iter().any(|arc| arc.touches(place)) {
                true => Side::Boundary,
                false => Side::Outside,
            },
            Geometry::Polygons(polygons) => {
                let sides: Vec<Side> = polygons.iter().map(|polygon| polygon.side(place)).collect();
                let has = |side| sides.contains(&side);
                match (has(Side::Inside), has(Side::Boundary)) {
                    (true, _) => Side::Inside,
                    (false, true) => Side::Boundary,
                    (false, false) => Side::Outside,
                }
            }
        }
    }

    /// The area in square metres.
    pub(super) fn area(&self) -> f64 {
        match self {
            Geometry::Point(_) | Geometry::Line(_) => 0.0,
            Geometry::Polygons(polygons) => polygons.iter().map(Polygon::area).sum(),
        }
    }
}
