//! Cells of the globe, by which shapes are found.
//!
//! The globe is seen from its centre through the faces of a cube. Each face is a square, which is cut
//! into four again and again: a cell of level 24 is less than a metre wide. There are no poles here and
//! no date line, and edges of shapes are straight on every face. A cell has a number, and so that the
//! numbers of all cells inside a cell are one run, it has the number in their middle.
//!
//! A point stands under the smallest cell that it is in; other shapes under a few cells that contain
//! them together. A lookup asks for the cells that come near enough to its shape: for all cells inside
//! them, and for the larger ones around them.
//!
//! - C1: no shape is missed. Distances are a little longer than asked for, and what is found is asked
//!   again.
//! - C2: a shape always has the same cells, on every machine: what is removed from the index is worked
//!   out anew. Hence only sums, products, quotients and square roots are used, which are exact to the
//!   last bit everywhere; sines are not.

mod outline;

use std::collections::VecDeque;

use query::{Geospatial, Shape, Span};
use value::Value;

use outline::{Angle, Near, Outline, Patch, Vector};

/// How often a face is cut.
const LEVEL_MAX: u32 = 24;
/// The number of what has no cells of its own because it may reach everywhere.
const WORLD: u64 = 0;
/// A shape stands under at most so many cells.
const COVER_MAX: usize = 16;
/// A lookup asks for at most so many.
const LOOKUP_MAX: usize = 24;

/// The cells that a value stands under, sorted; none when it is no shape, for which all spatial
/// functions are undefined.
pub(crate) fn covering(value: &Value) -> Vec<u64> {
    if !matches!(value, Value::Object(_)) {
        return Vec::new();
    }
    let Some(shape) = Shape::read(value, Geospatial::Geography) else { return Vec::new() };
    if let Shape::Point(position) = shape {
        return vec![Cell::around(outline::direction(position)).number()];
    }
    let Some(outline) = Outline::new(&shape) else { return vec![WORLD] };
    let mut cells: Vec<u64> =
        cover(&outline, Angle::SLACK, COVER_MAX).iter().map(|cell| cell.number()).collect();
    cells.sort_unstable();
    cells
}

/// The numbers of the cells under which every shape stands that lies within a distance, in metres, of
/// a shape, or meets it. `None` when nothing can be ruled out.
pub(crate) fn lookup(shape: &Value, distance_m: f64) -> Option<Vec<Span>> {
    let shape = Shape::read(shape, Geospatial::Geography)?;
    let outline = Outline::new(&shape)?;
    let reach = Angle::of_metres(distance_m)?.plus(Angle::SLACK);
    let mut runs = vec![(WORLD, WORLD)];
    for cell in cover(&outline, reach, LOOKUP_MAX) {
        runs.push(cell.inside());
        let mut around = cell;
        while let Some(parent) = around.parent() {
            runs.push((parent.number(), parent.number()));
            around = parent;
        }
    }
    Some(merge(runs).into_iter().map(span).collect())
}

/// Runs that have no number of a cell between them, but for one around both, become one.
fn merge(mut runs: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    runs.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (first, last) in runs {
        match merged.last_mut() {
            Some((_, end)) if first <= *end + 2 => *end = last.max(*end),
            _ => merged.push((first, last)),
        }
    }
    merged
}

/// Numbers of cells are less than 2^52, so that they are numbers of JSON as well.
fn span((first, last): (u64, u64)) -> Span {
    use std::ops::Bound::Included;
    if first == last {
        Span::Exactly(Value::from(first))
    } else {
        Span::Between { low: Included(Value::from(first)), high: Included(Value::from(last)) }
    }
}

/// A square on a face of the cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    /// The first three look along the axes, the others against them.
    face: u64,
    level: u32,
    /// The column and the row, of `2^level`.
    at: [u64; 2],
}

impl Cell {
    /// The smallest cell that a direction is in.
    fn around(direction: Vector) -> Cell {
        let mut axis = 0;
        for other in 1..3 {
            if direction[other].abs() > direction[axis].abs() {
                axis = other;
            }
        }
        let depth = direction[axis].abs();
        let face = if direction[axis] < 0.0 { axis + 3 } else { axis };
        let count = (1u64 << LEVEL_MAX) as f64;
        let at = [1, 2].map(|turn| {
            let across = direction[(axis + turn) % 3] / depth;
            // On the far edge of a face there is no further cell.
            ((across + 1.0) / 2.0 * count).clamp(0.0, count - 1.0) as u64
        });
        Cell { face: face as u64, level: LEVEL_MAX, at }
    }

    /// The direction of a place on the cell, given as fractions of its sides.
    fn direction(self, fractions: [f64; 2]) -> Vector {
        let across = [0, 1].map(|side| self.across(side, fractions[side]));
        outline::unit(self.vector([1.0, across[0], across[1]]))
    }

    /// How far across the face a fraction of a side is, from -1 to 1.
    fn across(self, side: usize, fraction: f64) -> f64 {
        let count = (1u64 << self.level) as f64;
        (self.at[side] as f64 + fraction) / count * 2.0 - 1.0
    }

    /// A vector that is given by what lies ahead of who looks at the face, and across both ways.
    fn vector(self, [ahead, first, second]: [f64; 3]) -> Vector {
        let axis = (self.face % 3) as usize;
        let mut vector = [0.0; 3];
        vector[axis] = if self.face < 3 { ahead } else { -ahead };
        vector[(axis + 1) % 3] = first;
        vector[(axis + 2) % 3] = second;
        vector
    }

    /// What the cell is on the globe.
    fn patch(self) -> Patch {
        let centre = self.direction([0.5, 0.5]);
        let corners = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]];
        let radius = corners
            .into_iter()
            .map(|corner| Angle::between(centre, self.direction(corner)))
            .fold(Angle::ZERO, Angle::max);
        let sides = [
            [-self.across(0, 0.0), 1.0, 0.0],
            [self.across(0, 1.0), -1.0, 0.0],
            [-self.across(1, 0.0), 0.0, 1.0],
            [self.across(1, 1.0), 0.0, -1.0],
        ];
        Patch { centre, radius, sides: sides.map(|side| outline::unit(self.vector(side))) }
    }

    fn children(self) -> [Cell; 4] {
        [[0, 0], [0, 1], [1, 0], [1, 1]].map(|[column, row]| Cell {
            face: self.face,
            level: self.level + 1,
            at: [self.at[0] * 2 + column, self.at[1] * 2 + row],
        })
    }

    fn parent(self) -> Option<Cell> {
        let level = self.level.checked_sub(1)?;
        Some(Cell { face: self.face, level, at: [self.at[0] / 2, self.at[1] / 2] })
    }

    /// The face, the quarters from the largest to the smallest, then a one and zeros. Part of the
    /// format on disk.
    fn number(self) -> u64 {
        let mut quarters = self.face;
        for level in (0..self.level).rev() {
            let bit = |side: usize| (self.at[side] >> level) & 1;
            quarters = quarters << 2 | bit(0) << 1 | bit(1);
        }
        (quarters << 1 | 1) << (2 * (LEVEL_MAX - self.level))
    }

    /// The first and the last number of the cells inside, of which this is one.
    fn inside(self) -> (u64, u64) {
        let number = self.number();
        let half = (1 << (2 * (LEVEL_MAX - self.level))) - 1;
        (number - half, number + half)
    }
}

/// A cell that is not decided yet, with the parts of the outline that are near it.
struct Open {
    cell: Cell,
    near: Near,
}

/// A few cells that contain all that lies within an angle of an outline. The largest are cut first,
/// for as long as there are not too many.
fn cover(outline: &Outline, reach: Angle, cells_max: usize) -> Vec<Cell> {
    let mut done = Vec::new();
    let mut open = VecDeque::new();
    for face in 0..6 {
        let cell = Cell { face, level: 0, at: [0, 0] };
        sort_out(cell, outline, &outline.all(), reach, &mut done, &mut open);
    }
    while let Some(Open { cell, near }) = open.pop_front() {
        if cell.level == LEVEL_MAX {
            done.push(cell);
            continue;
        }
        let (mut inside, mut cut) = (Vec::new(), VecDeque::new());
        for child in cell.children() {
            sort_out(child, outline, &near, reach, &mut inside, &mut cut);
        }
        if done.len() + open.len() + inside.len() + cut.len() > cells_max {
            done.push(cell);
        } else {
            done.extend(inside);
            open.extend(cut);
        }
    }
    done
}

/// Puts a cell where it belongs: wholly inside, to be looked at more closely, or nowhere.
fn sort_out(
    cell: Cell,
    outline: &Outline,
    near: &Near,
    reach: Angle,
    inside: &mut Vec<Cell>,
    open: &mut VecDeque<Open>,
) {
    let near = outline.near(near, &cell.patch(), reach);
    if near.is_inside {
        inside.push(cell);
    } else if !near.is_nothing() {
        open.push_back(Open { cell, near });
    }
}

#[cfg(test)]
mod tests;
