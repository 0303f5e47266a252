//! A shape as directions from the centre of the earth: arcs, and the areas that they enclose.
//!
//! Only what is beyond doubt counts as an area: a ring that turns left, nowhere comes near itself and
//! fits into less than half of the globe. Everything else (the far side of a ring, rings that cross
//! themselves, half of the earth) is said to reach everywhere. The spatial functions decide on which
//! side of a ring a place lies by walking there from some edge of it, and for a ring that crosses itself
//! the answer depends on the edge.

use query::{Position, Shape};

/// A vector; a direction when its length is one.
pub(super) type Vector = [f64; 3];

fn minus(left: Vector, right: Vector) -> Vector {
    [left[0] - right[0], left[1] - right[1], left[2] - right[2]]
}

fn dot(left: Vector, right: Vector) -> f64 {
    left[0] * right[0] + left[1] * right[1] + left[2] * right[2]
}

fn cross(left: Vector, right: Vector) -> Vector {
    [
        left[1] * right[2] - left[2] * right[1],
        left[2] * right[0] - left[0] * right[2],
        left[0] * right[1] - left[1] * right[0],
    ]
}

/// The direction of a vector that is not zero.
pub(super) fn unit(vector: Vector) -> Vector {
    let length = dot(vector, vector).sqrt();
    vector.map(|coordinate| coordinate / length)
}

/// The direction of a longitude and latitude on the ellipsoid of WGS 84.
pub(super) fn direction([longitude, latitude]: Position) -> Vector {
    const FLATTENING: f64 = 1.0 / 298.257_223_563;
    let (sine, cosine) = of_degrees(latitude);
    let (east, front) = of_degrees(longitude);
    unit([cosine * front, cosine * east, (1.0 - FLATTENING) * (1.0 - FLATTENING) * sine])
}

/// Sine and cosine of an angle in degrees.
fn of_degrees(degrees: f64) -> (f64, f64) {
    let quarters = (degrees / 90.0).round();
    let (sine, cosine) = of_radians((degrees - quarters * 90.0) * (std::f64::consts::PI / 180.0));
    match (quarters as i64).rem_euclid(4) {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}

/// Sine and cosine of an angle of at most an eighth of a circle, by their series: see C2.
fn of_radians(angle: f64) -> (f64, f64) {
    let square = angle * angle;
    let series = |first: u32| {
        let steps = (0..8).rev().map(|step| first + 2 * step);
        steps.fold(1.0, |sum, step| 1.0 - sum * square / f64::from(step * (step + 1)))
    };
    (angle * series(2), series(1))
}

/// An angle between nothing and half a circle, as sine and cosine of its half.
#[derive(Clone, Copy, Debug)]
pub(super) struct Angle {
    sine: f64,
    cosine: f64,
}

impl Angle {
    pub(super) const ZERO: Angle = Angle { sine: 0.0, cosine: 1.0 };

    /// What rounding, and the tolerance of the spatial functions, can make of nothing: millimetres.
    pub(super) const SLACK: Angle = Angle { sine: 5e-10, cosine: 1.0 };

    const HALF_CIRCLE: Angle = Angle { sine: 1.0, cosine: 0.0 };

    /// A circle of this radius is well short of half of the globe: 80 degrees.
    const AREA_MAX: Angle = Angle { sine: 0.642_787_609_686_539_3, cosine: 0.766_044_443_118_978 };

    /// An arc of more than this has no certain direction: 170 degrees.
    const ARC_MAX: Angle = Angle { sine: 0.996_194_698_091_745_5, cosine: 0.087_155_742_747_658_2 };

    pub(super) fn between(left: Vector, right: Vector) -> Angle {
        let chord = minus(left, right);
        let sine = (dot(chord, chord).sqrt() / 2.0).min(1.0);
        Angle { sine, cosine: (1.0 - sine * sine).sqrt() }
    }

    /// The most that a way of this length can be, seen from the centre of the earth; `None` when that
    /// is more than a quarter of a circle.
    pub(super) fn of_metres(metres: f64) -> Option<Angle> {
        /// The pole is the place nearest to the centre.
        const NEAREST: f64 = 6_356_752.0;
        let angle = metres / NEAREST;
        if !(0.0..=std::f64::consts::FRAC_PI_2).contains(&angle) {
            return None;
        }
        let (sine, cosine) = of_radians(angle / 2.0);
        Some(Angle { sine, cosine })
    }

    /// The sum, but no more than half a circle.
    pub(super) fn plus(self, other: Angle) -> Angle {
        let cosine = self.cosine * other.cosine - self.sine * other.sine;
        if cosine <= 0.0 {
            return Angle::HALF_CIRCLE;
        }
        let sine = self.sine * other.cosine + self.cosine * other.sine;
        Angle { sine: sine.min(1.0), cosine }
    }

    pub(super) fn max(self, other: Angle) -> Angle {
        if self.sine < other.sine { other } else { self }
    }

    fn is_more_than(self, other: Angle) -> bool {
        self.sine > other.sine
    }

    /// The sine of the whole angle; `None` when it is a right angle or more.
    fn whole_sine(self) -> Option<f64> {
        (self.sine < self.cosine).then_some(2.0 * self.sine * self.cosine)
    }

    /// Whether two directions are no farther apart.
    fn covers(self, left: Vector, right: Vector) -> bool {
        let chord = minus(left, right);
        dot(chord, chord) <= 4.0 * self.sine * self.sine
    }
}

/// A part of the globe with straight sides.
#[derive(Debug)]
pub(super) struct Patch {
    pub(super) centre: Vector,
    /// That of the circle around it.
    pub(super) radius: Angle,
    /// For each side a direction at right angles to it, on which side of it the patch lies.
    pub(super) sides: [Vector; 4],
}

/// The shorter way between two directions.
#[derive(Debug)]
struct Arc {
    start: Vector,
    end: Vector,
    /// At right angles to both; zero where they are the same.
    normal: Vector,
    /// The area that it is a part of the boundary of.
    area: Option<u32>,
}

impl Arc {
    /// `None` when the directions are nearly opposite.
    fn new(start: Vector, end: Vector, area: Option<u32>) -> Option<Arc> {
        if Angle::between(start, end).is_more_than(Angle::ARC_MAX) {
            return None;
        }
        // From the difference, which is exact where the arc is short.
        let normal = cross(start, minus(end, start));
        let normal = if normal == [0.0; 3] { normal } else { unit(normal) };
        Some(Arc { start, end, normal, area })
    }

    /// Whether the arc may come within an angle of a patch.
    fn comes_near(&self, patch: &Patch, reach: Angle) -> bool {
        self.comes_within(patch.radius.plus(reach), patch.centre)
            && !reach.whole_sine().is_some_and(|sine| {
                // What lies beyond one side, far enough, is a circle, which an arc does not leave
                // between two of its places.
                patch
                    .sides
                    .iter()
                    .any(|side| dot(self.start, *side) < -sine && dot(self.end, *side) < -sine)
            })
    }

    /// Whether the arc comes within an angle of a direction.
    fn comes_within(&self, angle: Angle, centre: Vector) -> bool {
        if angle.covers(self.start, centre) || angle.covers(self.end, centre) {
            return true;
        }
        let Some(sine) = angle.whole_sine() else { return true };
        if self.normal == [0.0; 3] {
            return false;
        }
        let from_start = minus(centre, self.start);
        dot(from_start, self.normal).abs() <= sine
            && dot(cross(self.normal, self.start), from_start) >= 0.0
            && dot(cross(self.end, self.normal), minus(centre, self.end)) >= 0.0
    }
}

/// An area, and the plane that touches the globe in its middle: seen from the centre of the earth, arcs
/// are straight there.
#[derive(Debug)]
struct Area {
    centre: Vector,
    radius: Angle,
    east: Vector,
    north: Vector,
    corners: Vec<Position>,
}

impl Area {
    /// `None` when the ring does not certainly enclose a part of the globe that fits into a circle.
    fn new(ring: &[Vector]) -> Option<Area> {
        let sum = ring
            .iter()
            .fold([0.0; 3], |sum, place| [sum[0] + place[0], sum[1] + place[1], sum[2] + place[2]]);
        // The middle of places that lie all around is nowhere.
        if dot(sum, sum).sqrt() < ring.len() as f64 / 100.0 {
            return None;
        }
        let centre = unit(sum);
        let radius =
            ring.iter().map(|place| Angle::between(centre, *place)).fold(Angle::ZERO, Angle::max);
        if radius.is_more_than(Angle::AREA_MAX) {
            return None;
        }
        let axis = if centre[2].abs() < 0.9 { [0.0, 0.0, 1.0] } else { [1.0, 0.0, 0.0] };
        let east = unit(cross(axis, centre));
        let north = cross(centre, east);
        let mut area = Area { centre, radius, east, north, corners: Vec::new() };
        area.corners = ring.iter().map(|place| area.project(*place)).collect();
        area.corners.dedup();
        (ring::turns_left(&area.corners) && ring::is_simple(&area.corners)).then_some(area)
    }

    fn project(&self, place: Vector) -> Position {
        let depth = dot(place, self.centre);
        [dot(place, self.east) / depth, dot(place, self.north) / depth]
    }

    /// Whether a place lies inside, which is not on the boundary.
    fn contains(&self, place: Vector) -> bool {
        self.radius.covers(place, self.centre) && ring::contains(&self.corners, self.project(place))
    }
}

/// What a shape is drawn of.
#[derive(Debug)]
pub(super) struct Outline {
    arcs: Vec<Arc>,
    areas: Vec<Area>,
}

/// The parts of an outline that are near some place.
#[derive(Debug)]
pub(super) struct Near {
    arcs: Vec<u32>,
    areas: Vec<u32>,
    /// Whether all that is near lies inside an area.
    pub(super) is_inside: bool,
}

impl Near {
    pub(super) fn is_nothing(&self) -> bool {
        self.arcs.is_empty() && !self.is_inside
    }
}

impl Outline {
    /// `None` when the shape may reach everywhere.
    pub(super) fn new(shape: &Shape) -> Option<Outline> {
        let mut outline = Outline { arcs: Vec::new(), areas: Vec::new() };
        match shape {
            Shape::Point(position) => outline.line(&[*position, *position], None)?,
            Shape::Line(positions) => outline.line(positions, None)?,
            Shape::Polygons(polygons) => {
                for rings in polygons {
                    let area = u32::try_from(outline.areas.len()).ok()?;
                    // Holes count as filled, but they may be drawn outside of what they are holes of.
                    for ring in rings {
                        outline.line(ring, Some(area))?;
                    }
                    let exterior: Vec<_> = rings[0].iter().copied().map(direction).collect();
                    outline.areas.push(Area::new(&exterior)?);
                }
            }
        }
        Some(outline)
    }

    fn line(&mut self, positions: &[Position], area: Option<u32>) -> Option<()> {
        let directions: Vec<_> = positions.iter().copied().map(direction).collect();
        for ends in directions.windows(2) {
            self.arcs.push(Arc::new(ends[0], ends[1], area)?);
        }
        Some(())
    }

    /// All parts.
    pub(super) fn all(&self) -> Near {
        Near {
            arcs: (0..self.arcs.len() as u32).collect(),
            areas: (0..self.areas.len() as u32).collect(),
            is_inside: false,
        }
    }

    /// Those of some parts that come within an angle of a patch.
    pub(super) fn near(&self, parts: &Near, patch: &Patch, reach: Angle) -> Near {
        let comes_near = |arc: &u32| self.arcs[*arc as usize].comes_near(patch, reach);
        let arcs: Vec<u32> = parts.arcs.iter().copied().filter(comes_near).collect();
        let is_close = |area: &u32| {
            let area = &self.areas[*area as usize];
            area.radius.plus(patch.radius).plus(reach).covers(area.centre, patch.centre)
        };
        let areas: Vec<u32> = parts.areas.iter().copied().filter(is_close).collect();
        // Where no boundary is near, all places lie on the same side of it.
        let mut bounding: Vec<u32> =
            arcs.iter().filter_map(|arc| self.arcs[*arc as usize].area).collect();
        bounding.dedup();
        let is_inside = areas.iter().any(|area| {
            bounding.binary_search(area).is_err()
                && self.areas[*area as usize].contains(patch.centre)
        });
        Near { arcs, areas, is_inside }
    }
}

/// Rings of a plane.
mod ring {
    use query::Position;

    /// Edges that come closer than this may meet: less than a millimetre, on the globe.
    const APART_MIN: f64 = 1e-10;
    /// More pairs of edges are not compared.
    const PAIRS_MAX: usize = 1 << 18;

    fn minus(left: Position, right: Position) -> Position {
        [left[0] - right[0], left[1] - right[1]]
    }

    fn cross(left: Position, right: Position) -> f64 {
        left[0] * right[1] - left[1] * right[0]
    }

    fn dot(left: Position, right: Position) -> f64 {
        left[0] * right[0] + left[1] * right[1]
    }

    fn edges(ring: &[Position]) -> impl Iterator<Item = [Position; 2]> {
        ring.windows(2).map(|ends| [ends[0], ends[1]])
    }

    /// Whether what a ring encloses is on the left of who walks along it.
    pub(super) fn turns_left(ring: &[Position]) -> bool {
        let Some(origin) = ring.first().copied() else { return false };
        let doubled =
            edges(ring).map(|[start, end]| cross(minus(start, origin), minus(end, origin)));
        doubled.sum::<f64>() > 0.0
    }

    /// Whether a ray from a place crosses a ring an odd number of times.
    pub(super) fn contains(ring: &[Position], place: Position) -> bool {
        let mut inside = false;
        for [start, end] in edges(ring) {
            if (start[1] <= place[1]) != (end[1] <= place[1]) {
                let is_left = cross(minus(end, start), minus(place, start)) > 0.0;
                inside ^= is_left == (end[1] > start[1]);
            }
        }
        inside
    }

    /// Whether no two edges of a ring meet, but for the corners between them.
    pub(super) fn is_simple(ring: &[Position]) -> bool {
        let edges: Vec<[Position; 2]> = edges(ring).collect();
        let count = edges.len();
        if count < 3 {
            return false;
        }
        let west = |edge: &usize| edges[*edge][0][0].min(edges[*edge][1][0]);
        let east = |edge: &usize| edges[*edge][0][0].max(edges[*edge][1][0]);
        let mut by_west: Vec<usize> = (0..count).collect();
        by_west.sort_by(|left, right| west(left).total_cmp(&west(right)));
        let mut pairs = 0;
        for (position, edge) in by_west.iter().enumerate() {
            for other in &by_west[position + 1..] {
                if west(other) > east(edge) + APART_MIN {
                    break;
                }
                pairs += 1;
                let are_apart = if (edge + 1) % count == *other {
                    is_corner(edges[*edge], edges[*other])
                } else if (other + 1) % count == *edge {
                    is_corner(edges[*other], edges[*edge])
                } else {
                    are_apart(edges[*edge], edges[*other])
                };
                if !are_apart || pairs > PAIRS_MAX {
                    return false;
                }
            }
        }
        true
    }

    /// Whether an edge goes on into another and does not turn back onto itself.
    fn is_corner(edge: [Position; 2], next: [Position; 2]) -> bool {
        distance(next[1], edge) > APART_MIN && distance(edge[0], next) > APART_MIN
    }

    fn are_apart(edge: [Position; 2], other: [Position; 2]) -> bool {
        let side =
            |[start, end]: [Position; 2], place| cross(minus(end, start), minus(place, start));
        let is_cut = |edge, [start, end]: [Position; 2]| {
            (side(edge, start) > 0.0) != (side(edge, end) > 0.0)
        };
        !(is_cut(edge, other) && is_cut(other, edge))
            && edge.iter().all(|end| distance(*end, other) > APART_MIN)
            && other.iter().all(|end| distance(*end, edge) > APART_MIN)
    }

    fn distance(place: Position, [start, end]: [Position; 2]) -> f64 {
        let (way, aside) = (minus(end, start), minus(place, start));
        let square = dot(way, way);
        let fraction = if square > 0.0 { (dot(way, aside) / square).clamp(0.0, 1.0) } else { 0.0 };
        let foot = [way[0] * fraction, way[1] * fraction];
        let apart = minus(aside, foot);
        dot(apart, apart).sqrt()
    }
}
