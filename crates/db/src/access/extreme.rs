//! The document at one end of an index.
//!
//! `MIN` and `MAX` look at all documents and keep one value. Where an index has them in order, the
//! first entry leads to a document with that value, and the query is run over this one alone.

use std::cmp::Ordering;
use std::ops::Bound;

use query::Touched;
use storage::{Direction, Snapshot};

use super::entries::Entries;
use super::ordered::{Along, is_inside};
use crate::Result;
use crate::index::entry::{self, Listed};
use crate::row::corrupt;
use crate::scan::{Reading, Slice};
use crate::walk::{Candidate, Origin};

/// What lies at the end of an index.
pub(crate) enum Extreme {
    /// A document, or nothing where there is none.
    Known(Option<Box<Candidate>>),
    /// The entries there do not tell which one it is.
    Unknown,
}

/// The document that comes first along an index whose entries all lead to documents of the answer.
pub(crate) fn extreme<P: Snapshot>(
    reading: &Reading<P>,
    along: &Along,
    touched: &Touched,
) -> Result<Extreme> {
    let mut best: Option<(&Slice<P>, Listed)> = None;
    for (number, slice) in reading.slices.iter().enumerate() {
        let Some(listed) = first(slice, number, along)? else { continue };
        let parsed =
            entry::parse(&listed.key, &along.layout).ok_or_else(|| corrupt("index entry"))?;
        if !parsed.exact {
            return Ok(Extreme::Unknown);
        }
        // Values that the filter fixes are the same in all slices, or not part of the order.
        let value = &parsed.value[along.stretches[number].fixed.len()..];
        let is_better = match &best {
            None => true,
            Some((_, best)) => {
                let fixed = along.stretches[number].fixed.len();
                let best = entry::parse(&best.key, &along.layout);
                let best = best.ok_or_else(|| corrupt("index entry"))?;
                value.cmp(&best.value[fixed..]) == nearer(along.direction)
            }
        };
        if is_better {
            best = Some((slice, listed));
        }
    }
    let Some((slice, listed)) = best else { return Ok(Extreme::Known(None)) };
    let place = entry::parse(&listed.key, &along.layout).map(|entry| entry.place.to_vec());
    let place = place.ok_or_else(|| corrupt("index entry"))?;
    let told = match &along.cover {
        Some(cover) => cover.document(&listed)?,
        None => None,
    };
    let candidate = match told {
        Some(parts) => Some(Candidate::told(Origin::Place(place.into()), parts)),
        None => {
            let item = reading.load(slice, &[&place])?.pop().flatten();
            item.map(|item| Candidate::new(Origin::Place(place.into()), item, touched))
        }
    };
    Ok(Extreme::Known(candidate.map(Box::new)))
}

/// How the first of two values in a direction compares with the other.
fn nearer(direction: Direction) -> Ordering {
    match direction {
        Direction::Forward => Ordering::Less,
        Direction::Backward => Ordering::Greater,
    }
}

/// The first entry of a slice.
fn first<P: Snapshot>(slice: &Slice<P>, number: usize, along: &Along) -> Result<Option<Listed>> {
    let mut runs: Vec<_> = along.stretches[number].runs.iter().collect();
    if along.direction == Direction::Backward {
        runs.reverse();
    }
    for run in runs {
        let (from, to) = run.bounds(slice);
        let (from, to) = (Bound::Included(from), Bound::Excluded(to));
        let mut entries = Entries::new(slice, &along.layout, from, to, along.direction);
        while let Some(listed) = entries.next()? {
            let parsed =
                entry::parse(&listed.key, &along.layout).ok_or_else(|| corrupt("index entry"))?;
            if is_inside(parsed.place, slice) {
                return Ok(Some(listed));
            }
        }
    }
    Ok(None)
}
