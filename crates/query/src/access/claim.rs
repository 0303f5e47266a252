//! Conditions while they are put together.
//!
//! A [`Claim`] is a [`Condition`] that still knows *which* element of an array it speaks of: the one
//! of a row, or the one at an offset. Two claims about one place are about one scalar, so that
//! `t.a > 1 AND t.a < 5` is one span; of two different elements of one array nothing of the kind
//! can be said. The finished condition has forgotten that.

use crate::access::span::{intersect, sort};
use crate::access::{Condition, Indexed, PathSegment, Span};
use std::collections::HashMap;
use value::Value;

/// One step to a place in a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Property(String),
    /// The element that a row is about; rows are numbered.
    Row(usize),
    /// The element at an offset.
    Offset(u64),
}

/// A place in the document, or a value computed from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Path(Vec<Step>),
    Computed(String),
}

/// What must hold so that an expression is true.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Claim {
    Anything,
    Nothing,
    Holds(Place, Vec<Span>),
    Defined(Vec<String>),
    Undefined(Vec<String>),
    Near(Vec<Step>, Value, f64),
    All(Vec<Claim>),
    Any(Vec<Claim>),
}

/// A claim, and whether it is sufficient too.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    pub(super) claim: Claim,
    pub(super) is_exact: bool,
}

impl Place {
    /// The property of an object that lies here.
    pub(super) fn property(self, name: &str) -> Option<Place> {
        self.below(Step::Property(name.to_owned()))
    }

    /// What lies one step below. Inside of computed values no index looks.
    pub(super) fn below(self, step: Step) -> Option<Place> {
        match self {
            Place::Path(mut steps) => {
                steps.push(step);
                Some(Place::Path(steps))
            }
            Place::Computed(_) => None,
        }
    }

    /// The names on the way, when there are only names.
    pub(super) fn names(self) -> Option<Vec<String>> {
        let Place::Path(steps) = self else { return None };
        let name = |step| match step {
            Step::Property(name) => Some(name),
            Step::Row(_) | Step::Offset(_) => None,
        };
        steps.into_iter().map(name).collect()
    }

    /// Whether the place is in the element that a row is about.
    pub(super) fn is_in_row(&self, row: usize) -> bool {
        matches!(self, Place::Path(steps) if steps.contains(&Step::Row(row)))
    }

    /// Whether the place is in an element that some row is about.
    pub(super) fn is_in_any_row(&self) -> bool {
        matches!(self, Place::Path(steps)
            if steps.iter().any(|step| matches!(step, Step::Row(_))))
    }

    /// Whether an index knows the place as it is, and not only as one of several. What is computed
    /// may be no number at all, which stored values never are.
    fn is_exact(&self) -> bool {
        match self {
            Place::Path(steps) => !steps.iter().any(|step| matches!(step, Step::Offset(_))),
            Place::Computed(_) => false,
        }
    }

    fn finish(self) -> Indexed {
        match self {
            Place::Path(steps) => Indexed::Path(segments(steps)),
            Place::Computed(name) => Indexed::Computed(name),
        }
    }
}

fn segments(steps: Vec<Step>) -> Vec<PathSegment> {
    let segment = |step| match step {
        Step::Property(name) => PathSegment::Property(name),
        Step::Row(_) | Step::Offset(_) => PathSegment::Element,
    };
    steps.into_iter().map(segment).collect()
}

impl Known {
    /// Nothing is known.
    pub(super) fn unknown() -> Known {
        Known { claim: Claim::Anything, is_exact: false }
    }

    /// Every document is right.
    pub(super) fn always() -> Known {
        Known { claim: Claim::Anything, is_exact: true }
    }

    /// No document is right.
    pub(super) fn never() -> Known {
        Known { claim: Claim::Nothing, is_exact: true }
    }

    /// The claim is necessary and no more.
    pub(super) fn necessary(claim: Claim) -> Known {
        Known { is_exact: claim == Claim::Nothing, claim }
    }

    /// The claim is necessary and sufficient.
    pub(super) fn exact(claim: Claim) -> Known {
        Known { claim, is_exact: true }
    }

    /// A scalar at a place lies in one of the spans. There are no scalars where documents are.
    pub(super) fn holds(place: Place, spans: Vec<Span>) -> Known {
        if spans.is_empty() || place == Place::Path(Vec::new()) {
            return Known::never();
        }
        let is_exact = place.is_exact();
        Known { claim: Claim::Holds(place, spans), is_exact }
    }

    /// The same, not claimed to be sufficient.
    pub(super) fn only_necessary(self) -> Known {
        Known::necessary(self.claim)
    }

    /// What must hold when all do. In rows, several claims can be met by different rows, none of
    /// which meets all: then the whole is not sufficient.
    pub(super) fn all(terms: impl IntoIterator<Item = Known>, in_rows: bool) -> Known {
        let mut claims = Conjunction::default();
        let mut is_exact = true;
        for term in terms {
            is_exact &= term.is_exact;
            claims.add(term.claim);
        }
        if claims.is_impossible {
            return Known::never();
        }
        let mut claims = claims.claims;
        is_exact &= !in_rows || claims.len() <= 1;
        let claim = match claims.len() {
            0 => Claim::Anything,
            1 => claims.swap_remove(0),
            _ => Claim::All(claims),
        };
        Known { claim, is_exact }
    }

    /// What must hold when at least one does.
    pub(super) fn any(terms: impl IntoIterator<Item = Known>) -> Known {
        let mut claims = Vec::new();
        let mut places: HashMap<Place, usize> = HashMap::new();
        let mut is_exact = true;
        let mut is_open = false;
        for term in terms {
            match term.claim {
                Claim::Anything if term.is_exact => return Known::always(),
                Claim::Anything => is_open = true,
                claim => {
                    is_exact &= term.is_exact;
                    add_alternative(claim, &mut claims, &mut places);
                }
            }
        }
        if is_open {
            return Known::unknown();
        }
        let claim = match claims.len() {
            0 => return Known::never(),
            1 => claims.swap_remove(0),
            _ => Claim::Any(claims),
        };
        Known { claim, is_exact }
    }
}

/// Claims that all hold; those about one scalar become one.
#[derive(Default)]
struct Conjunction {
    claims: Vec<Claim>,
    places: HashMap<Place, usize>,
    is_impossible: bool,
}

impl Conjunction {
    fn add(&mut self, claim: Claim) {
        match claim {
            Claim::Anything => {}
            Claim::Nothing => self.is_impossible = true,
            Claim::All(claims) => claims.into_iter().for_each(|claim| self.add(claim)),
            Claim::Holds(place, spans) => self.add_holds(place, spans),
            claim => self.claims.push(claim),
        }
    }

    fn add_holds(&mut self, place: Place, spans: Vec<Span>) {
        if let Some(at) = self.places.get(&place)
            && let Claim::Holds(_, known) = &mut self.claims[*at]
            && let Some(merged) = intersect(known, &spans)
        {
            self.is_impossible |= merged.is_empty();
            *known = merged;
            return;
        }
        self.places.insert(place.clone(), self.claims.len());
        self.claims.push(Claim::Holds(place, spans));
    }
}

fn add_alternative(claim: Claim, claims: &mut Vec<Claim>, places: &mut HashMap<Place, usize>) {
    match claim {
        Claim::Nothing => {}
        Claim::Any(inner) => {
            inner.into_iter().for_each(|claim| add_alternative(claim, claims, places));
        }
        Claim::Holds(place, spans) => {
            if let Some(at) = places.get(&place)
                && let Claim::Holds(_, known) = &mut claims[*at]
            {
                known.extend(spans);
                return;
            }
            places.insert(place.clone(), claims.len());
            claims.push(Claim::Holds(place, spans));
        }
        claim => claims.push(claim),
    }
}

impl Claim {
    /// Whether the claim, in all its alternatives, is about the element of a row.
    pub(super) fn is_about_row(&self, row: usize) -> bool {
        match self {
            Claim::Holds(place, _) => place.is_in_row(row),
            Claim::All(claims) | Claim::Any(claims) => {
                claims.iter().all(|claim| claim.is_about_row(row))
            }
            Claim::Near(steps, ..) => steps.contains(&Step::Row(row)),
            Claim::Anything | Claim::Nothing | Claim::Defined(_) | Claim::Undefined(_) => false,
        }
    }

    /// The claim as others see it.
    pub(super) fn finish(self) -> Condition {
        match self {
            Claim::Anything => Condition::Anything,
            Claim::Nothing => Condition::Nothing,
            Claim::Holds(place, mut spans) => {
                sort(&mut spans);
                Condition::Holds { path: place.finish(), spans }
            }
            Claim::Defined(names) => Condition::Defined(names),
            Claim::Undefined(names) => Condition::Undefined(names),
            Claim::Near(steps, shape, distance) => {
                Condition::Near { path: segments(steps), shape, distance }
            }
            Claim::All(claims) => Condition::All(claims.into_iter().map(Claim::finish).collect()),
            Claim::Any(claims) => finish_any(claims),
        }
    }
}

/// Alternatives about different elements of one array are about one path of the index.
fn finish_any(claims: Vec<Claim>) -> Condition {
    let mut conditions: Vec<Condition> = Vec::new();
    let mut paths: HashMap<Indexed, usize> = HashMap::new();
    for claim in claims {
        let condition = claim.finish();
        if let Condition::Holds { path, spans } = &condition {
            if let Some(at) = paths.get(path)
                && let Condition::Holds { spans: known, .. } = &mut conditions[*at]
            {
                known.extend(spans.iter().cloned());
                continue;
            }
            paths.insert(path.clone(), conditions.len());
        }
        conditions.push(condition);
    }
    for condition in &mut conditions {
        if let Condition::Holds { spans, .. } = condition {
            sort(spans);
        }
    }
    match conditions.len() {
        1 => conditions.swap_remove(0),
        _ => Condition::Any(conditions),
    }
}
