//! Queries over several ranges that are answered a range at a time.
//!
//! So the service's gateway does it with rows that need no merging: every range has pages of its own,
//! be they empty. Where merging is left to clients, Orrery does so, too. A continuation names the part
//! of the hash space whose turn it is, not the range, so it goes on when ranges have split or merged.

use std::sync::Arc;

use storage::RangeStore;
use value::{Epk, EpkRange};

use crate::Result;
use crate::container::Container;
use crate::continuation::{self, Cursor, Subject};
use crate::database::Db;
use crate::documents::{Failure, FeedPage, Page};
use crate::read::QueryText;
use crate::scan::{Reading, Scope};
use crate::session::Session;

/// The part of the hash space whose turn it is.
pub(crate) struct Turn {
    part: EpkRange,
    /// Where its next page starts.
    continuation: Option<String>,
    /// The ranges that can contribute, in order.
    ranges: Vec<EpkRange>,
}

/// Between the part and the position in it; no position holds one.
const SEPARATOR: char = ':';

/// The ranges that are read.
pub(crate) fn ranges_of<P>(reading: &Reading<P>) -> Vec<EpkRange> {
    let mut ranges: Vec<EpkRange> =
        reading.slices.iter().map(|slice| slice.range.epk.clone()).collect();
    ranges.dedup();
    ranges
}

impl Turn {
    /// The turn that a page belongs to; nothing where the query is not answered in turns.
    pub(crate) fn of(ranges: Vec<EpkRange>, page: &Page) -> Result<Option<Turn>> {
        let Some(text) = &page.continuation else {
            let first = (ranges.len() > 1).then(|| ranges[0].clone());
            return Ok(first.map(|part| Turn { part, continuation: None, ranges }));
        };
        // A query that began when there was one range goes on as it began.
        let Some((part, position)) = text.split_once(SEPARATOR) else { return Ok(None) };
        let part = parse(part).ok_or_else(continuation::invalid)?;
        Ok(Some(Turn { part, continuation: Some(position.to_owned()), ranges }))
    }

    /// What is left of the next range behind the part.
    fn next(&self) -> Option<EpkRange> {
        let behind = EpkRange { min: self.part.max.clone(), max: EpkRange::full().max };
        self.ranges.iter().find_map(|range| range.intersect(&behind))
    }
}

fn text(part: &EpkRange) -> String {
    format!("{}-{}", part.min, part.max)
}

fn parse(text: &str) -> Option<EpkRange> {
    let (min, max) = text.split_once('-')?;
    Some(EpkRange { min: Epk::parse(min).ok()?, max: Epk::parse(max).ok()? })
}

impl<S: RangeStore> Db<S> {
    pub(crate) fn query_in_turns(
        &self,
        container: &Arc<Container>,
        query: &QueryText,
        scope: &Scope,
        page: &Page,
        session: Option<&Session>,
        turn: &Turn,
    ) -> Result<FeedPage, Failure> {
        let identity = |part: &str| format!("{}\0in turns\0{part}", query.identity());
        let part = text(&turn.part);
        let scope = Scope { epk: Some(turn.part.clone()), ..scope.clone() };
        let page = Page { continuation: turn.continuation.clone(), ..page.clone() };
        let feed = self.query_page(container, query, &identity(&part), &scope, &page, session)?;
        let continuation = match (&feed.continuation, turn.next()) {
            (Some(position), _) => Some(format!("{part}{SEPARATOR}{position}")),
            (None, None) => None,
            (None, Some(next)) => {
                let part = text(&next);
                let identity = identity(&part);
                let subject = Subject { container: container.rid, query: &identity };
                let start = Cursor::at_beginning().sign(&self.signing, &subject);
                Some(format!("{part}{SEPARATOR}{start}"))
            }
        };
        Ok(FeedPage { continuation, ..feed })
    }
}
