//! Arcs and rings on the unit sphere.
//!
//! The edges of the service's geometries are great elliptic arcs: where a plane through the centre
//! of the earth cuts the ellipsoid. Seen from the centre these are great circles, so with every
//! position as a direction from the centre, containment and intersection on the ellipsoid are
//! exactly those on the sphere. Only lengths and areas need the ellipsoid itself.

use super::ellipsoid;
use super::geometry::{Edge, Side, edges};
use super::shape::Position;
use std::f64::consts::PI;
use std::ops::{Add, Mul, Neg, Sub};

/// Directions closer than this, in radians, are the same place: about six micrometres.
pub(super) const TOLERANCE: f64 = 1e-12;

/// A vector; a direction when its length is one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Vector {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) z: f64,
}

impl Vector {
    pub(super) fn dot(self, other: Vector) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    pub(super) fn cross(self, other: Vector) -> Vector {
        Vector {
            x: self.y * other.z - self.z * other.y,
            y: self.z * other.x - self.x * other.z,
            z: self.x * other.y - self.y * other.x,
        }
    }

    pub(super) fn length(self) -> f64 {
        self.dot(self).sqrt()
    }

    /// The direction of a vector that is not zero.
    pub(super) fn unit(self) -> Vector {
        self * (1.0 / self.length())
    }

    /// The angle to another direction.
    pub(super) fn angle(self, other: Vector) -> f64 {
        self.cross(other).length().atan2(self.dot(other))
    }

    /// A direction at a right angle.
    pub(super) fn any_normal(self) -> Vector {
        let axis = match self.x.abs() < 0.5 {
            true => Vector { x: 1.0, y: 0.0, z: 0.0 },
            false => Vector { x: 0.0, y: 1.0, z: 0.0 },
        };
        self.cross(axis).unit()
    }
}

impl Add for Vector {
    type Output = Vector;

    fn add(self, other: Vector) -> Vector {
        Vector { x: self.x + other.x, y: self.y + other.y, z: self.z + other.z }
    }
}

impl Sub for Vector {
    type Output = Vector;

    fn sub(self, other: Vector) -> Vector {
        self + -other
    }
}

impl Neg for Vector {
    type Output = Vector;

    fn neg(self) -> Vector {
        self * -1.0
    }
}

impl Mul<f64> for Vector {
    type Output = Vector;

    fn mul(self, factor: f64) -> Vector {
        Vector { x: self.x * factor, y: self.y * factor, z: self.z * factor }
    }
}

/// Positive when a place lies on the left of the way from one direction to another, negative when on
/// the right, zero when it lies on their great circle, as far as can be told: directions are rounded,
/// and on a common meridian nothing but rounding would decide.
///
/// This is the volume that the three directions span, from differences, so that it is as exact for
/// short ways as it is for long ones.
fn turn(start: Vector, end: Vector, place: Vector) -> f64 {
    let (ahead, aside) = (end - start, place - start);
    let turn = start.cross(ahead).dot(aside);
    let slack = 1e-15 * (ahead.length() + aside.length());
    if turn.abs() <= slack { 0.0 } else { turn }
}

/// The shorter way between two directions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arc {
    pub(super) start: Vector,
    pub(super) end: Vector,
}

impl Arc {
    /// The angle from a direction to the nearest of the arc.
    fn angle_to(self, place: Vector) -> f64 {
        let Arc { start, end } = self;
        let normal = start.cross(end - start);
        let ends = place.angle(start).min(place.angle(end));
        if normal.length() < TOLERANCE {
            return ends;
        }
        let normal = normal.unit();
        let is_between = normal.cross(start).dot(place - start) >= 0.0
            && end.cross(normal).dot(place - end) >= 0.0;
        let aside = (place - start).dot(normal).abs().min(1.0).asin();
        if is_between { aside.min(ends) } else { ends }
    }
}

impl Edge for Arc {
    type Place = Vector;

    fn place([longitude, latitude]: Position) -> Vector {
        ellipsoid::direction(longitude, latitude)
    }

    fn between(start: Vector, end: Vector) -> f64 {
        ellipsoid::distance(start, end)
    }

    fn new(start: Vector, end: Vector) -> Arc {
        Arc { start, end }
    }

    fn ends(self) -> [Vector; 2] {
        [self.start, self.end]
    }

    /// The direction at a fraction of the straight line between the ends.
    fn at(self, fraction: f64) -> Vector {
        (self.start + (self.end - self.start) * fraction).unit()
    }

    fn nearness(self, place: Vector) -> f64 {
        self.angle_to(place)
    }

    fn distance(self, place: Vector) -> f64 {
        ellipsoid::distance_to_arc(place, self)
    }

    fn touches(self, place: Vector) -> bool {
        self.angle_to(place) < TOLERANCE
    }

    fn crosses(self, other: Arc) -> bool {
        let (a, b, c, d) = (self.start, self.end, other.start, other.end);
        let turns = [-turn(a, b, c), turn(a, b, d), -turn(c, d, b), turn(c, d, a)];
        turns.iter().all(|turn| *turn > 0.0) || turns.iter().all(|turn| *turn < 0.0)
    }

    /// The inside of a ring is on the left of who walks along it.
    ///
    /// Walk from a point of one edge straight to the place. The side on which the walk leaves the
    /// edge tells whether it starts inside, and every other edge that it crosses changes that. A
    /// walk through a corner, or along an edge, tells nothing, so another one is tried.
    fn side(ring: &[Vector], place: Vector) -> Side {
        if edges::<Arc>(ring).any(|arc| arc.touches(place)) {
            return Side::Boundary;
        }
        let mut inside = false;
        'walks: for fraction in [0.5, 0.381_966, 0.618_034, 0.271_828, 0.73] {
            for position in 0..ring.len().saturating_sub(1) {
                let (found, is_certain) = walk(ring, position, fraction, place);
                inside = found;
                if is_certain {
                    break 'walks;
                }
            }
        }
        // When every walk went through a corner, the last one is as good as any.
        if inside { Side::Inside } else { Side::Outside }
    }

    fn area(ring: &[Vector]) -> f64 {
        ellipsoid::area(ring)
    }

    /// A hole is the smaller side, whichever way it was drawn.
    fn hole(mut ring: Vec<Vector>) -> Vec<Vector> {
        if ellipsoid::area(&ring) > ellipsoid::area_of_earth() / 2.0 {
            ring.reverse();
        }
        ring
    }
}

/// Whether the walk from a point of one edge ends inside, and whether that is certain.
fn walk(ring: &[Vector], position: usize, fraction: f64, place: Vector) -> (bool, bool) {
    let edge = Arc { start: ring[position], end: ring[position + 1] };
    let walk = Arc { start: edge.at(fraction), end: place };
    let leaves = turn(edge.start, edge.end, place);
    let mut inside = leaves > 0.0;
    // Between opposite places there is no one straight way.
    let mut is_certain = leaves != 0.0 && walk.start.cross(walk.end).length() > 1e-9;
    for (other, arc) in edges::<Arc>(ring).enumerate() {
        if other == position {
            continue;
        }
        is_certain &= !walk.touches(arc.start) && !walk.touches(arc.end);
        inside ^= walk.crosses(arc);
    }
    (inside, is_certain)
}

/// An angle brought into `(-π, π]`.
pub(super) fn turned(angle: f64) -> f64 {
    if angle > PI {
        angle - 2.0 * PI
    } else if angle <= -PI {
        angle + 2.0 * PI
    } else {
        angle
    }
}
