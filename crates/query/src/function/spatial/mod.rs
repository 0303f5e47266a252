//! Spatial functions over GeoJSON, on the ellipsoid of WGS 84 or in the plane.
//!
//! On the ellipsoid, edges are great elliptic arcs and distances are geodesics, which is what the
//! service's published figures agree with. What is no valid shape makes the result undefined.

mod ellipsoid;
mod geometry;
mod plane;
mod shape;
mod sphere;

use crate::evaluate::Context;
use crate::{Error, Geospatial};
use geometry::{Edge, Geometry, Side};
use plane::Segment;
use sphere::Arc;
use value::{Object, Value};

pub use shape::{Position, Shape};

/// How much longer, at most, one way can be than another that looks as long from the centre of the
/// earth. The ellipsoid deviates from a sphere by less than two percent in any direction.
const DEVIATION: f64 = 1.03;

type Answer = Result<Option<Value>, Error>;

/// Two shapes, on the surface where they lie.
enum Pair {
    Globe(Geometry<Arc>, Geometry<Arc>),
    Plane(Geometry<Segment>, Geometry<Segment>),
}

fn pair(context: &Context<'_>, arguments: &[&Value]) -> Option<Pair> {
    let geospatial = context.geospatial();
    let left = Shape::read(arguments[0], geospatial)?;
    let right = Shape::read(arguments[1], geospatial)?;
    Some(match geospatial {
        Geospatial::Geography => Pair::Globe(Geometry::new(&left), Geometry::new(&right)),
        Geospatial::Geometry => Pair::Plane(Geometry::new(&left), Geometry::new(&right)),
    })
}

pub(super) fn is_valid(context: &Context<'_>, arguments: &[&Value]) -> Answer {
    let is_valid = shape::read(arguments[0], context.geospatial()).is_ok();
    Ok(Some(Value::Bool(is_valid)))
}

pub(super) fn is_valid_detailed(context: &Context<'_>, arguments: &[&Value]) -> Answer {
    let mut answer = Object::new();
    match shape::read(arguments[0], context.geospatial()) {
        Ok(_) => {
            answer.insert("valid", true);
        }
        Err(reason) => {
            answer.insert("valid", false);
            answer.insert("reason", reason);
        }
    }
    Ok(Some(Value::Object(answer)))
}

pub(super) fn area(context: &Context<'_>, arguments: &[&Value]) -> Answer {
    let geospatial = context.geospatial();
    let area = Shape::read(arguments[0], geospatial).map(|shape| match geospatial {
        Geospatial::Geography => Geometry::<Arc>::new(&shape).area(),
        Geospatial::Geometry => Geometry::<Segment>::new(&shape).area(),
    });
    Ok(area.map(Value::from))
}

pub(super) fn intersects(context: &Context<'_>, arguments: &[&Value]) -> Answer {
    let is_met = match pair(context, arguments) {
        None => return Ok(None),
        Some(Pair::Globe(left, right)) => meet(&left, &right, context)?,
        Some(Pair::Plane(left, right)) => meet(&left, &right, context)?,
    };
    Ok(Some(Value::Bool(is_met)))
}

/// Whether two shapes have a point in common; touching counts.
fn meet<E: Edge>(
    left: &Geometry<E>,
    right: &Geometry<E>,
    context: &Context<'_>,
) -> Result<bool, Error> {
    let (left_edges, right_edges) = (left.edges(), right.edges());
    for edge in &left_edges {
        for other in &right_edges {
            context.step()?;
            if edge.meets(*other) {
                return Ok(true);
            }
        }
    }
    // No edges meet: then one lies in the other as a whole, or they are apart. Each part of a
    // shape must be asked, because the parts are apart, too.
    Ok(some_place_in(left, right, context)? || some_place_in(right, left, context)?)
}

fn some_place_in<E: Edge>(
    inner: &Geometry<E>,
    outer: &Geometry<E>,
    context: &Context<'_>,
) -> Result<bool, Error> {
    for place in inner.places() {
        context.check_deadline()?;
        if outer.side(place) != Side::Outside {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn within(context: &Context<'_>, arguments: &[&Value]) -> Answer {
    let lies_within = match pair(context, arguments) {
        None => return Ok(None),
        Some(Pair::Globe(inner, outer)) => lies_within(&inner, &outer, context)?,
        Some(Pair::Plane(inner, outer)) => lies_within(&inner, &outer, context)?,
    };
    Ok(Some(Value::Bool(lies_within)))
}

/// Whether all of a shape lies in a polygon, and not all of it on the boundary.
fn lies_within<E: Edge>(
    inner: &Geometry<E>,
    outer: &Geometry<E>,
    context: &Context<'_>,
) -> Result<bool, Error> {
    if !matches!(outer, Geometry::Polygons(_)) {
        return Err(Error::refused("ST_WITHIN is only supported with a polygon to be within"));
    }
    if let Geometry::Point(place) = inner {
        return Ok(outer.side(*place) == Side::Inside);
    }
    let boundary = outer.edges();
    let corners = outer.places();
    let mut has_inside = matches!(inner, Geometry::Polygons(_));
    for edge in inner.edges() {
        for other in &boundary {
            context.step()?;
            if edge.crosses(*other) {
                return Ok(false);
            }
        }
        for place in pieces(edge, &corners) {
            context.check_deadline()?;
            match outer.side(place) {
                Side::Outside => return Ok(false),
                Side::Inside => has_inside = true,
                Side::Boundary => {}
            }
        }
    }
    // The boundary of the outer one must not come into the inner one, as that of a hole would.
    for corner in corners {
        context.check_deadline()?;
        if inner.side(corner) == Side::Inside {
            return Ok(false);
        }
    }
    Ok(has_inside)
}

/// The ends of an edge, and the middle of each piece that corners cut it into.
fn pieces<E: Edge>(edge: E, corners: &[E::Place]) -> Vec<E::Place> {
    let [start, end] = edge.ends();
    let mut cuts: Vec<E::Place> =
        corners.iter().copied().filter(|corner| edge.touches(*corner)).collect();
    cuts.extend([start, end]);
    let from_start = |place: &E::Place| E::new(start, start).nearness(*place);
    cuts.sort_by(|left, right| from_start(left).total_cmp(&from_start(right)));
    let middles = cuts.windows(2).map(|ends| E::new(ends[0], ends[1]).at(0.5));
    [start, end].into_iter().chain(middles).collect()
}

pub(super) fn distance(context: &Context<'_>, arguments: &[&Value]) -> Answer {
    let distance = match pair(context, arguments) {
        None => return Ok(None),
        Some(Pair::Globe(left, right)) => distance_between(&left, &right, context)?,
        Some(Pair::Plane(left, right)) => distance_between(&left, &right, context)?,
    };
    Ok(Some(Value::from(distance)))
}

fn distance_between<E: Edge>(
    left: &Geometry<E>,
    right: &Geometry<E>,
    context: &Context<'_>,
) -> Result<f64, Error> {
    if let (Geometry::Point(left), Geometry::Point(right)) = (left, right) {
        return Ok(E::between(*left, *right));
    }
    if meet(left, right, context)? {
        return Ok(0.0);
    }
    let known = apart(left, right, f64::INFINITY, context)?;
    apart(right, left, known, context)
}

/// The least of `known` and the distances from the positions of one shape to the edges of another.
/// Two shapes that do not meet are nearest at a position of one of them.
fn apart<E: Edge>(
    from: &Geometry<E>,
    to: &Geometry<E>,
    known: f64,
    context: &Context<'_>,
) -> Result<f64, Error> {
    let edges = match to {
        Geometry::Point(place) => vec![E::new(*place, *place)],
        _ => to.edges(),
    };
    // What is cheap to know tells which pairs can be the nearest at all.
    let places = from.places();
    let mut nearest = f64::INFINITY;
    for place in &places {
        for edge in &edges {
            context.step()?;
            nearest = nearest.min(edge.nearness(*place));
        }
    }
    let mut distance = known;
    for place in &places {
        for edge in &edges {
            context.step()?;
            if edge.nearness(*place) <= nearest * DEVIATION {
                context.check_deadline()?;
                distance = distance.min(edge.distance(*place));
            }
        }
    }
    Ok(distance)
}
