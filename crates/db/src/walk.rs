//! Documents that may contribute to an answer, in no order that the request asks for.
//!
//! Nothing is promised about that order, and still people see one: the service goes through
//! documents as they were created, and a test with a handful of them leans on it before anybody
//! notices. So few documents come in the order of their creation here, too. Many come as they are
//! found, by place or by index entry, because sorting them would cost more than it is worth.

use std::collections::VecDeque;

use bytes::Bytes;
use query::Touched;
use storage::Snapshot;
use value::Value;

use crate::access::choose::Choice;
use crate::access::lookup::{Content, Found, Lookup};
use crate::continuation::{self, Progress};
use crate::row::Item;
use crate::scan::{Reading, Scan, Start};
use crate::{Error, Result};

/// A walk over documents, each once.
pub(crate) struct Walk<'r, P> {
    /// What is looked at of each document.
    touched: &'r Touched,
    source: Source<'r, P>,
}

enum Source<'r, P> {
    Nothing,
    /// All that are left, in the order of their creation.
    Created(VecDeque<Candidate>),
    /// Documents that were created after one of them, by place. A walk in the order of creation goes
    /// on so when the documents have become too many: what came before it was given already.
    Later {
        last: u64,
        /// That one itself, if something of it is still to be given.
        first: Option<Candidate>,
        scan: Scan<'r, P>,
    },
    Scan(Scan<'r, P>),
    Lookup(Box<Lookup<'r, P>>),
}

/// A document that may contribute to the answer.
pub(crate) struct Candidate {
    pub(crate) origin: Origin,
    /// Nothing where an index entry tells enough of the document.
    pub(crate) item: Option<Item>,
    /// The parts of the document that the query looks at.
    pub(crate) document: Value,
}

/// How a document was found.
pub(crate) enum Origin {
    Place(Bytes),
    Entry(Found),
}

impl Origin {
    pub(crate) fn place(&self) -> &[u8] {
        match self {
            Origin::Place(place) => place,
            Origin::Entry(found) => &found.place,
        }
    }
}

impl Candidate {
    pub(crate) fn new(origin: Origin, item: Item, touched: &Touched) -> Candidate {
        let document = item.document.select(touched);
        Candidate { origin, item: Some(item), document }
    }

    /// A document of which only its entry was read.
    pub(crate) fn told(origin: Origin, document: Value) -> Candidate {
        Candidate { origin, item: None, document }
    }

    /// The document as it is stored.
    ///
    /// # Panics
    ///
    /// If it was not read: whoever may ask for it lets no entry stand for it.
    pub(crate) fn stored(&self) -> &Item {
        self.item.as_ref().expect("is asked only where documents are read")
    }

    /// Documents that were created later have a greater number.
    pub(crate) fn number(&self) -> u64 {
        self.stored().header.rid_ordinal
    }
}

/// Where an earlier page has ended.
#[derive(Clone, Copy)]
pub(crate) struct Ended<'a> {
    pub(crate) at: &'a Progress,
    /// Whether the document there is to be given again.
    pub(crate) inclusive: bool,
}

impl<'r, P: Snapshot> Walk<'r, P> {
    /// Documents that no order is asked for, from the beginning or where an earlier page has ended: if
    /// they are few, as they were created, and else as they are found.
    pub(crate) fn unordered(
        reading: &'r Reading<P>,
        touched: &'r Touched,
        are_few: bool,
        ended: Option<Ended<'_>>,
        choose: impl FnOnce() -> Result<Choice<'r>>,
    ) -> Result<Self> {
        let begin = || Ok::<_, Error>(Self::new(reading, &choose()?, touched));
        let Some(Ended { at, inclusive }) = ended else {
            return if are_few { begin()?.in_creation_order() } else { begin() };
        };
        match at {
            Progress::Created { last, place } if place.is_empty() && are_few => {
                Ok(begin()?.in_creation_order()?.behind_number(*last, inclusive))
            }
            Progress::Created { last, place } => {
                Self::later(reading, *last, place, inclusive, touched)
            }
            Progress::Place(place) => Ok(Self::behind(reading, place, inclusive, touched)),
            _ => Err(continuation::invalid()),
        }
    }

    /// Documents as they are found.
    pub(crate) fn new(reading: &'r Reading<P>, choice: &Choice<'r>, touched: &'r Touched) -> Self {
        let source = match choice {
            Choice::Nothing => Source::Nothing,
            Choice::Scan => Source::Scan(reading.scan(Start::Beginning)),
            Choice::Lookup { branches, also, counted, cover, sieve, .. } => {
                let lookup = Lookup::new(reading, branches.clone(), also.clone(), None, false);
                let lookup = lookup.knowing(counted.as_deref());
                let lookup = lookup.covered(cover.clone()).sifted(sieve.clone());
                Source::Lookup(Box::new(lookup))
            }
        };
        Self { touched, source }
    }

    /// Goes on with a lookup.
    pub(crate) fn along(lookup: Lookup<'r, P>, touched: &'r Touched) -> Self {
        Self { touched, source: Source::Lookup(Box::new(lookup)) }
    }

    /// Goes on behind a place, or with it.
    fn behind(
        reading: &'r Reading<P>,
        place: &[u8],
        inclusive: bool,
        touched: &'r Touched,
    ) -> Self {
        let start = if inclusive { Start::At(place) } else { Start::After(place) };
        Self { touched, source: Source::Scan(reading.scan(start)) }
    }

    /// Goes on behind a document, or with it, among those that were created after it; by place,
    /// from a place on.
    fn later(
        reading: &'r Reading<P>,
        last: u64,
        place: &[u8],
        inclusive: bool,
        touched: &'r Touched,
    ) -> Result<Self> {
        let mut first = None;
        let start = match (place, inclusive) {
            ([], true) => {
                first = reading.numbered(last)?.map(|visited| {
                    Candidate::new(Origin::Place(visited.place), visited.item, touched)
                });
                Start::Beginning
            }
            ([], false) => Start::Beginning,
            (place, true) => Start::At(place),
            (place, false) => Start::After(place),
        };
        let scan = reading.scan(start);
        Ok(Self { touched, source: Source::Later { last, first, scan } })
    }

    /// The same documents in the order of their creation: call it only where they are few.
    pub(crate) fn in_creation_order(mut self) -> Result<Self> {
        let mut candidates = Vec::new();
        while let Some(candidate) = self.next()? {
            candidates.push(candidate);
        }
        candidates.sort_by_key(Candidate::number);
        Ok(Self { touched: self.touched, source: Source::Created(candidates.into()) })
    }

    /// What is left of a walk in the order of creation behind a document, or with it.
    fn behind_number(mut self, last: u64, inclusive: bool) -> Self {
        if let Source::Created(candidates) = &mut self.source {
            let is_left = |number| number > last || (inclusive && number == last);
            candidates.retain(|candidate| is_left(candidate.number()));
        }
        self
    }

    /// The next document.
    pub(crate) fn next(&mut self) -> Result<Option<Candidate>> {
        let touched = self.touched;
        match &mut self.source {
            Source::Nothing => Ok(None),
            Source::Created(candidates) => Ok(candidates.pop_front()),
            Source::Later { last, first, scan } => {
                if let Some(first) = first.take() {
                    return Ok(Some(first));
                }
                while let Some(candidate) = scanned(scan, touched)? {
                    if candidate.number() > *last {
                        return Ok(Some(candidate));
                    }
                }
                Ok(None)
            }
            Source::Scan(scan) => scanned(scan, touched),
            Source::Lookup(lookup) => {
                while let Some((found, content)) = lookup.next()? {
                    let origin = Origin::Entry(found);
                    let candidate = match content {
                        Content::Item(item) => Candidate::new(origin, item, touched),
                        Content::Parts(parts) => Candidate::told(origin, parts),
                    };
                    let Origin::Entry(found) = &candidate.origin else { continue };
                    if !lookup.may_repeat() || lookup.is_first(found, &candidate.document) {
                        return Ok(Some(candidate));
                    }
                }
                Ok(None)
            }
        }
    }

    /// The position behind a document of this walk.
    pub(crate) fn progress(&self, candidate: &Candidate) -> Progress {
        let place = candidate.origin.place();
        match (&self.source, &candidate.origin) {
            (Source::Created(_), _) => {
                Progress::Created { last: candidate.number(), place: Vec::new() }
            }
            (Source::Later { last, .. }, _) if *last == candidate.number() => {
                Progress::Created { last: *last, place: Vec::new() }
            }
            (Source::Later { last, .. }, _) => {
                Progress::Created { last: *last, place: place.to_vec() }
            }
            (Source::Lookup(lookup), Origin::Entry(found)) => {
                Progress::Entry(lookup.progress(found))
            }
            _ => Progress::Place(place.to_vec()),
        }
    }
}

impl Origin {
    /// In which slice a document lies, and where.
    pub(crate) fn whereabouts<P>(&self, reading: &Reading<P>) -> (usize, Vec<u8>) {
        match self {
            Origin::Entry(found) => (found.slice, found.place.clone()),
            Origin::Place(place) => {
                let slice = reading.slices.partition_point(|slice| slice.to <= *place);
                (slice, place.to_vec())
            }
        }
    }
}

fn scanned<P: Snapshot>(scan: &mut Scan<'_, P>, touched: &Touched) -> Result<Option<Candidate>> {
    Ok(scan
        .next()?
        .map(|visited| Candidate::new(Origin::Place(visited.place), visited.item, touched)))
}
