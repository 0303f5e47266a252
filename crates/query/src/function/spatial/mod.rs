//! Spatial functions over GeoJSON, on the ellipsoid of WGS 84.
//!
//! Edges are great elliptic arcs and distances are geodesics, which is what the service's published
//! figures agree with. What is no valid geometry makes the result undefined.

mod ellipsoid;
mod geometry;
mod sphere;

use crate::Error;
use crate::evaluate::Context;
use geometry::{Geometry, read};
use sphere::{Arc, Side, Vector};
use value::{Object, Value};

/// How much longer, at most, one way can be than another that looks as long from the centre of the
/// earth. The ellipsoid deviates from a sphere by less than two percent in any direction.
const DEVIATION: f64 = 1.03;

type Answer = Result<Option<Value>, Error>;

fn two(arguments: &[&Value]) -> Option<(Geometry, Geometry)> {
    Some((read(arguments[0]).ok()?, read(arguments[1]).ok()?))
}

pub(super) fn is_geometry(value: &Value) -> bool {
    read(value).is_ok()
}

pub(super) fn is_valid(arguments: &[&Value]) -> Option<Value> {
    Some(Value::Bool(is_geometry(arguments[0])))
}

pub(super) fn is_valid_detailed(arguments: &[&Value]) -> Option<Value> {
    let mut answer = Object::new();
    match read(arguments[0]) {
        Ok(_) => {
            answer.insert("valid", true);
        }
        Err(reason) => {
            answer.insert("valid", false);
            answer.insert("reason", reason);
        }
    }
    Some(Value::Object(answer))
}

pub(super) fn area(arguments: &[&Value]) -> Option<Value> {
    read(arguments[0]).ok().map(|geometry| Value::from(geometry.area()))
}

pub(super) fn intersects(context: &Context<'_>, arguments: &[&Value]) -> Answer {
    let Some((left, right)) = two(arguments) else { return Ok(None) };
    Ok(Some(Value::Bool(meet(&left, &right, context)?)))
}

/// Whether two geometries have a point in common; touching counts.
fn meet(left: &Geometry, right: &Geometry, context: &Context<'_>) -> Result<bool, Error> {
    let (left_arcs, right_arcs) = (left.arcs(), right.arcs());
    for arc in &left_arcs {
        for other in &right_arcs {
            context.step()?;
            if arc.meets(*other) {
                return Ok(true);
            }
        }
    }
    // No edges meet: then one lies in the other as a whole, or they are apart. Each part of a
    // geometry must be asked, because the parts are apart, too.
    Ok(some_place_in(left, right, context)? || some_place_in(right, left, context)?)
}

fn some_place_in(inner: &Geometry, outer: &Geometry, context: &Context<'_>) -> Result<bool, Error> {
    for place in inner.places() {
        context.check_deadline()?;
        if outer.side(place) != Side::Outside {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn within(context: &Context<'_>, arguments: &[&Value]) -> Answer {
    let Some((inner, outer)) = two(arguments) else { return Ok(None) };
    if !matches!(outer, Geometry::Polygons(_)) {
        return Err(Error::refused("ST_WITHIN is only supported with a polygon to be within"));
    }
    Ok(Some(Value::Bool(lies_within(&inner, &outer, context)?)))
}

/// Whether all of a geometry lies in a polygon, and not all of it on the boundary.
fn lies_within(inner: &Geometry, outer: &Geometry, context: &Context<'_>) -> Result<bool, Error> {
    if let Geometry::Point(place) = inner {
        return Ok(outer.side(*place) == Side::Inside);
    }
    let boundary = outer.arcs();
    let corners = outer.places();
    let mut has_inside = matches!(inner, Geometry::Polygons(_));
    for arc in inner.arcs() {
        for other in &boundary {
            context.step()?;
            if arc.crosses(*other) {
                return Ok(false);
            }
        }
        for place in pieces(arc, &corners) {
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

/// The ends of an arc, and the middle of each piece that corners cut it into.
fn pieces(arc: Arc, corners: &[Vector]) -> Vec<Vector> {
    let mut cuts: Vec<Vector> =
        corners.iter().copied().filter(|corner| arc.touches(*corner)).collect();
    cuts.extend([arc.start, arc.end]);
    cuts.sort_by(|left, right| arc.start.angle(*left).total_cmp(&arc.start.angle(*right)));
    let middles: Vec<Vector> =
        cuts.windows(2).map(|ends| Arc { start: ends[0], end: ends[1] }.at(0.5)).collect();
    [vec![arc.start, arc.end], middles].concat()
}

pub(super) fn distance(context: &Context<'_>, arguments: &[&Value]) -> Answer {
    let Some((left, right)) = two(arguments) else { return Ok(None) };
    if let (Geometry::Point(left), Geometry::Point(right)) = (&left, &right) {
        return Ok(Some(Value::from(ellipsoid::distance(*left, *right))));
    }
    if meet(&left, &right, context)? {
        return Ok(Some(Value::from(0)));
    }
    let metres = apart(&left, &right, f64::INFINITY, context)?;
    Ok(Some(Value::from(apart(&right, &left, metres, context)?)))
}

/// The least of `known` and the distances from the positions of one geometry to the edges of
/// another. Two geometries that do not meet are nearest at a position of one of them.
fn apart(from: &Geometry, to: &Geometry, known: f64, context: &Context<'_>) -> Result<f64, Error> {
    let arcs = match to {
        Geometry::Point(place) => vec![Arc { start: *place, end: *place }],
        _ => to.arcs(),
    };
    // The angle seen from the centre is cheap and tells which pairs can be the nearest at all.
    let places = from.places();
    let mut nearest = f64::INFINITY;
    for place in &places {
        for arc in &arcs {
            context.step()?;
            nearest = nearest.min(arc.angle_to(*place));
        }
    }
    let mut metres = known;
    for place in &places {
        for arc in &arcs {
            context.step()?;
            if arc.angle_to(*place) <= nearest * DEVIATION {
                context.check_deadline()?;
                metres = metres.min(ellipsoid::distance_to_arc(*place, *arc));
            }
        }
    }
    Ok(metres)
}
