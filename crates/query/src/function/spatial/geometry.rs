//! Shapes as lines and areas of a surface: the globe or the plane.
//!
//! What an edge is, and on which side of a ring a place lies, is a matter of the surface; how a
//! polygon is made of rings and what meets what is not.

use super::shape::{Position, Shape};

/// On which side of a boundary a place lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Inside,
    Boundary,
    Outside,
}

/// The straight way between two places of a surface.
///
/// Rings are lists of places, the first one again at the end.
pub(super) trait Edge: Copy {
    /// A place of the surface.
    type Place: Copy + PartialEq;

    /// The place at a position.
    fn place(position: Position) -> Self::Place;

    /// How far apart two places are.
    fn between(start: Self::Place, end: Self::Place) -> f64;

    fn new(start: Self::Place, end: Self::Place) -> Self;

    fn ends(self) -> [Self::Place; 2];

    /// The place at a fraction of the way.
    fn at(self, fraction: f64) -> Self::Place;

    /// Roughly how far a place is from the nearest of the edge: to three percent, in any unit.
    fn nearness(self, place: Self::Place) -> f64;

    /// How far a place is from the nearest of the edge.
    fn distance(self, place: Self::Place) -> f64;

    /// Whether a place lies on the edge.
    fn touches(self, place: Self::Place) -> bool;

    /// Whether two edges cross in a point that is no end of either.
    fn crosses(self, other: Self) -> bool;

    /// On which side of a ring a place lies.
    fn side(ring: &[Self::Place], place: Self::Place) -> Side;

    /// The area that a ring encloses.
    fn area(ring: &[Self::Place]) -> f64;

    /// A ring turned so that what it encloses is the hole that is meant.
    fn hole(ring: Vec<Self::Place>) -> Vec<Self::Place> {
        ring
    }

    /// Whether two edges have a point in common.
    fn meets(self, other: Self) -> bool {
        self.crosses(other)
            || other.ends().into_iter().any(|end| self.touches(end))
            || self.ends().into_iter().any(|end| other.touches(end))
    }
}

/// The edges of a line or ring.
pub(super) fn edges<E: Edge>(places: &[E::Place]) -> impl Iterator<Item = E> {
    places.windows(2).map(|ends| E::new(ends[0], ends[1]))
}

/// A shape on a surface.
#[derive(Clone, Debug)]
pub(super) enum Geometry<E: Edge> {
    Point(E::Place),
    Line(Vec<E::Place>),
    /// One polygon, or several.
    Polygons(Vec<Polygon<E>>),
}

/// A polygon: what lies inside one ring and outside others.
#[derive(Clone, Debug)]
pub(super) struct Polygon<E: Edge> {
    exterior: Vec<E::Place>,
    holes: Vec<Vec<E::Place>>,
}

impl<E: Edge> Polygon<E> {
    fn new(rings: &[Vec<Position>]) -> Polygon<E> {
        let mut rings = rings.iter().map(|ring| places::<E>(ring));
        let exterior = rings.next().expect("a shape has no polygons without rings");
        Polygon { exterior, holes: rings.map(E::hole).collect() }
    }

    fn rings(&self) -> impl Iterator<Item = &Vec<E::Place>> {
        std::iter::once(&self.exterior).chain(&self.holes)
    }

    fn side(&self, place: E::Place) -> Side {
        let side = E::side(&self.exterior, place);
        if side != Side::Inside {
            return side;
        }
        for hole in &self.holes {
            match E::side(hole, place) {
                Side::Inside => return Side::Outside,
                Side::Boundary => return Side::Boundary,
                Side::Outside => {}
            }
        }
        Side::Inside
    }

    fn area(&self) -> f64 {
        let holes: f64 = self.holes.iter().map(|hole| E::area(hole)).sum();
        E::area(&self.exterior) - holes
    }
}

fn places<E: Edge>(positions: &[Position]) -> Vec<E::Place> {
    positions.iter().map(|position| E::place(*position)).collect()
}

impl<E: Edge> Geometry<E> {
    pub(super) fn new(shape: &Shape) -> Geometry<E> {
        match shape {
            Shape::Point(position) => Geometry::Point(E::place(*position)),
            Shape::Line(positions) => Geometry::Line(places::<E>(positions)),
            Shape::Polygons(polygons) => {
                Geometry::Polygons(polygons.iter().map(|rings| Polygon::new(rings)).collect())
            }
        }
    }

    /// The edges; a point has none.
    pub(super) fn edges(&self) -> Vec<E> {
        match self {
            Geometry::Point(_) => Vec::new(),
            Geometry::Line(places) => edges(places).collect(),
            Geometry::Polygons(polygons) => {
                polygons.iter().flat_map(Polygon::rings).flat_map(|ring| edges(ring)).collect()
            }
        }
    }

    /// The positions that it is drawn through.
    pub(super) fn places(&self) -> Vec<E::Place> {
        match self {
            Geometry::Point(place) => vec![*place],
            Geometry::Line(places) => places.clone(),
            Geometry::Polygons(polygons) => {
                polygons.iter().flat_map(Polygon::rings).flatten().copied().collect()
            }
        }
    }

    /// Where a place lies; all of a point and of a line is boundary.
    pub(super) fn side(&self, place: E::Place) -> Side {
        let is_boundary = match self {
            Geometry::Point(point) => E::new(*point, *point).touches(place),
            Geometry::Line(places) => edges::<E>(places).any(|edge| edge.touches(place)),
            Geometry::Polygons(polygons) => {
                let sides: Vec<Side> = polygons.iter().map(|polygon| polygon.side(place)).collect();
                if sides.contains(&Side::Inside) {
                    return Side::Inside;
                }
                sides.contains(&Side::Boundary)
            }
        };
        if is_boundary { Side::Boundary } else { Side::Outside }
    }

    /// The area in square metres, or units of the plane.
    pub(super) fn area(&self) -> f64 {
        match self {
            Geometry::Point(_) | Geometry::Line(_) => 0.0,
            Geometry::Polygons(polygons) => polygons.iter().map(Polygon::area).sum(),
        }
    }
}
