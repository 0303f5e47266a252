//! Segments and rings of the plane.
//!
//! Coordinates are decimals that were rounded to binary, so that a point of a slanted edge is off it
//! by a rounding error; what is no farther away than such errors explain lies on the edge. Which way
//! a ring is drawn does not matter.

use super::geometry::{Edge, Side, edges};
use super::shape::Position;

/// The straight way between two points.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    start: Position,
    end: Position,
}

/// How many rounding errors a result may be off.
const ROUNDINGS: f64 = 8.0 * f64::EPSILON;

fn minus(left: Position, right: Position) -> Position {
    [left[0] - right[0], left[1] - right[1]]
}

fn length(way: Position) -> f64 {
    way[0].hypot(way[1])
}

fn magnitude(points: &[Position]) -> f64 {
    points.iter().flatten().fold(0.0, |most, coordinate| coordinate.abs().max(most))
}

/// Positive when the way over three points turns left, negative when it turns right, zero when it
/// is straight, as far as can be told.
fn turn(first: Position, second: Position, third: Position) -> f64 {
    let (ahead, aside) = (minus(second, first), minus(third, first));
    let turn = ahead[0] * aside[1] - ahead[1] * aside[0];
    let slack = ROUNDINGS * magnitude(&[first, second, third]) * (length(ahead) + length(aside));
    if turn.abs() <= slack { 0.0 } else { turn }
}

impl Edge for Segment {
    type Place = Position;

    fn place(position: Position) -> Position {
        position
    }

    fn between(start: Position, end: Position) -> f64 {
        length(minus(end, start))
    }

    fn new(start: Position, end: Position) -> Segment {
        Segment { start, end }
    }

    fn ends(self) -> [Position; 2] {
        [self.start, self.end]
    }

    fn at(self, fraction: f64) -> Position {
        let way = minus(self.end, self.start);
        [self.start[0] + way[0] * fraction, self.start[1] + way[1] * fraction]
    }

    fn nearness(self, place: Position) -> f64 {
        self.distance(place)
    }

    fn distance(self, place: Position) -> f64 {
        let way = minus(self.end, self.start);
        let aside = minus(place, self.start);
        let squared = way[0] * way[0] + way[1] * way[1];
        if squared == 0.0 {
            return length(aside);
        }
        let fraction = (way[0] * aside[0] + way[1] * aside[1]) / squared;
        if fraction <= 0.0 {
            length(aside)
        } else if fraction >= 1.0 {
            length(minus(place, self.end))
        } else {
            (way[0] * aside[1] - way[1] * aside[0]).abs() / squared.sqrt()
        }
    }

    fn touches(self, place: Position) -> bool {
        self.distance(place) <= ROUNDINGS * magnitude(&[self.start, self.end, place])
    }

    fn crosses(self, other: Segment) -> bool {
        let Segment { start: a, end: b } = self;
        let Segment { start: c, end: d } = other;
        let turns = [-turn(a, b, c), turn(a, b, d), -turn(c, d, b), turn(c, d, a)];
        turns.iter().all(|turn| *turn > 0.0) || turns.iter().all(|turn| *turn < 0.0)
    }

    /// A ray to the right of the place crosses the ring an odd number of times when the place is
    /// inside. An edge has its lower end and not its upper one, so that corners count once.
    fn side(ring: &[Position], place: Position) -> Side {
        let mut inside = false;
        for edge in edges::<Segment>(ring) {
            if edge.touches(place) {
                return Side::Boundary;
            }
            let Segment { start, end } = edge;
            let is_level = (start[1] <= place[1]) != (end[1] <= place[1]);
            if is_level {
                let (low, high) = if start[1] <= end[1] { (start, end) } else { (end, start) };
                let (ahead, aside) = (minus(high, low), minus(place, low));
                inside ^= ahead[0] * aside[1] - ahead[1] * aside[0] > 0.0;
            }
        }
        if inside { Side::Inside } else { Side::Outside }
    }

    fn area(ring: &[Position]) -> f64 {
        let Some(origin) = ring.first().copied() else { return 0.0 };
        let doubled = |edge: Segment| {
            let (start, end) = (minus(edge.start, origin), minus(edge.end, origin));
            start[0] * end[1] - start[1] * end[0]
        };
        (edges::<Segment>(ring).map(doubled).sum::<f64>() / 2.0).abs()
    }
}
