//! Arcs and rings on the unit sphere.
//!
//! The edges of the service's geometries are great elliptic arcs: where a plane through the centre
//! of the earth cuts the ellipsoid. Seen from the centre these are great circles, so with every
//! position as a direction from the centre, containment and intersection on the ellipsoid are
//! exactly those on the sphere. Only lengths and areas need the ellipsoid itself.

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

/// The shorter way between two directions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arc {
    pub(super) start: Vector,
    pub(super) end: Vector,
}

impl Arc {
    /// The direction at a fraction of the straight line between the ends.
    pub(super) fn at(self, fraction: f64) -> Vector {
        (self.start + (self.end - self.start) * fraction).unit()
    }

    /// The angle from a direction to the nearest of the arc.
    pub(super) fn angle_to(self, place: Vector) -> f64 {
        let normal = self.start.cross(self.end);
        let ends = place.angle(self.start).min(place.angle(self.end));
        if normal.length() < TOLERANCE {
            return ends;
        }
        let normal = normal.unit();
        let foot = place - normal * place.dot(normal);
        let is_between = normal.cross(self.start).dot(foot) >= 0.0
            && self.end.cross(normal).dot(foot) >= 0.0
            && foot.length() > TOLERANCE;
        if is_between { place.dot(normal).abs().min(1.0).asin().min(ends) } else { ends }
    }

    pub(super) fn touches(self, place: Vector) -> bool {
        self.angle_to(place) < TOLERANCE
    }

    /// Whether two arcs cross in a point that is no end of either.
    pub(super) fn crosses(self, other: Arc) -> bool {
        let (a, b, c, d) = (self.start, self.end, other.start, other.end);
        let plane = a.cross(b);
        let across = c.cross(d);
        let signs = [-plane.dot(c), plane.dot(d), -across.dot(b), across.dot(a)];
        signs.iter().all(|sign| *sign > 0.0) || signs.iter().all(|sign| *sign < 0.0)
    }

    /// Whether two arcs have a point in common.
    pub(super) fn meets(self, other: Arc) -> bool {
        self.crosses(other)
            || self.touches(other.start)
            || self.touches(other.end)
            || other.touches(self.start)
            || other.touches(self.end)
    }
}

/// On which side of a boundary a place lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Inside,
    Boundary,
    Outside,
}

/// A closed line; its inside is on the left of who walks along it.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// The positions, the first one again at the end.
    pub(super) places: Vec<Vector>,
}

impl Ring {
    pub(super) fn arcs(&self) -> impl Iterator<Item = Arc> {
        self.places.windows(2).map(|ends| Arc { start: ends[0], end: ends[1] })
    }

    /// The same line, walked the other way.
    pub(super) fn reversed(&self) -> Ring {
        Ring { places: self.places.iter().rev().copied().collect() }
    }

    /// Where a place lies.
    ///
    /// Walk from a point of one edge straight to the place. The side on which the walk leaves the
    /// edge tells whether it starts inside, and every other edge that it crosses changes that. A
    /// walk through a corner, or along an edge, tells nothing, so another one is tried.
    pub(super) fn side(&self, place: Vector) -> Side {
        if self.arcs().any(|arc| arc.touches(place)) {
            return Side::Boundary;
        }
        let mut inside = false;
        for fraction in [0.5, 0.381_966, 0.618_034, 0.271_828, 0.73] {
            for (position, arc) in self.arcs().enumerate() {
                let (found, is_certain) = self.walk(position, arc, fraction, place);
                inside = found;
                if is_certain {
                    return if inside { Side::Inside } else { Side::Outside };
                }
            }
        }
        // Every walk went through a corner; the last one is as good as any.
        if inside { Side::Inside } else { Side::Outside }
    }

    /// Whether the walk from a point of one edge ends inside, and whether that is certain.
    fn walk(&self, position: usize, edge: Arc, fraction: f64, place: Vector) -> (bool, bool) {
        let walk = Arc { start: edge.at(fraction), end: place };
        let leaves = edge.start.cross(edge.end).dot(place);
        let plane = walk.start.cross(walk.end);
        let mut inside = leaves > 0.0;
        let mut is_certain = leaves.abs() > TOLERANCE && plane.length() > 1e-9;
        for (other, arc) in self.arcs().enumerate() {
            if other == position {
                continue;
            }
            is_certain &= !walk.touches(arc.start) && !walk.touches(arc.end);
            inside ^= walk.crosses(arc);
        }
        (inside, is_certain)
    }
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
