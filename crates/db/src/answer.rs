//! Answers a query over documents, a page at a time.
//!
//! [`Asked`] is what one page is about. How documents are found is `access`; what they become is the
//! query's own; here both meet, and the page is filled and cut.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use query::{Condition, OrderBy, Prepared, RowKey, RunError, Touched};
use storage::Snapshot;
use value::DocumentRid;

use crate::access::choose::{Choice, Chooser, ENTRIES_PER_DOCUMENT, Extent, LOOKUP_COST};
use crate::access::composite::Paths;
use crate::access::extreme::{Extreme, extreme};
use crate::access::lookup::{Lookup, single_branch};
use crate::access::ordered::{Along, Floor, Lowest, Merged, Rank, Ranked, Terms, sort_keys, tied};
use crate::charge::Charge;
use crate::continuation::{self, Cursor, Progress, Tie};
use crate::documents::{FeedPage, PAGE_BYTES};
use crate::explain::{self, Explanation, IndexUse, Way};
use crate::plan::ResumeFilter;
use crate::read::refused;
use crate::row::Item;
use crate::scan::Reading;
use crate::walk::{Candidate, Ended, Origin, Walk};
use crate::{Error, Result};

/// One page of one query.
pub(crate) struct Asked<'q, P> {
    pub(crate) prepared: &'q Prepared,
    pub(crate) reading: &'q Reading<P>,
    pub(crate) condition: Condition,
    /// Whether the client merges the answers of several ranges and relies on the order of resource
    /// ids among equal sort keys.
    pub(crate) is_for_merging: bool,
    pub(crate) items_max: usize,
    /// Whether a full page says that there may be more without a look at whether there is.
    pub(crate) ends_open: bool,
    pub(crate) cursor: Option<&'q Cursor>,
    /// Whether an index is taken wherever one serves.
    pub(crate) insists: bool,
    /// Where the client itself says that the answer goes on.
    pub(crate) resume: Option<&'q ResumeFilter>,
}

/// A page, and where the next one goes on.
pub(crate) struct Answered {
    pub(crate) feed: FeedPage,
    pub(crate) next: Option<Cursor>,
}

/// A page that cannot be cut may be so large.
const WHOLE_BYTES: usize = 32 * 1024 * 1024;
/// How much memory sorting may use.
const SORT_BYTES: usize = 64 * 1024 * 1024;
/// A page is cut only behind sort keys that are this short, so that continuations stay short.
const CUT_KEYS_MAX: usize = 512;
/// So few documents are sorted rather than walked along an index.
const SORT_ALWAYS: u64 = 256;
/// How many documents are read ahead along an index.
const AHEAD: usize = 64;

impl<P: Snapshot> Asked<'_, P> {
    pub(crate) fn answer(&self) -> Result<Answered> {
        let prepared = self.prepared;
        if !prepared.reads_documents() {
            return self.keyed(&Choice::Nothing);
        }
        let chooser = self.chooser()?;
        if let Some(count) = self.counted(&chooser)? {
            let mut page = PageBuilder::new(self);
            for row in prepared.answer_count(count).map_err(refused)? {
                page.offer(|| Bytes::from(row.to_text()));
            }
            return Ok(page.finish(None));
        }
        if let Some(ends) = self.extremes(&chooser)? {
            let mut page = PageBuilder::new(self);
            let documents = ends.into_iter().map(|candidate| {
                page.loaded(candidate.item.as_ref());
                Ok(candidate.document)
            });
            let rows = prepared.run(documents).map_err(query_error)?;
            for row in rows {
                page.offer(|| Bytes::from(row.to_text()));
            }
            return Ok(page.finish(None));
        }
        // Documents that an aggregate makes one row of have no order left to be answered in.
        let is_ordered = !prepared.order().is_empty() && !prepared.is_grouped();
        match (prepared.is_row_wise(), is_ordered) {
            (true, false) => self.as_found(&chooser),
            (true, true) => self.ordered(&chooser),
            (false, true) => self.distinct_ordered(&chooser),
            (false, false) => self.keyed(&chooser.choose(&self.condition, Extent::Whole)?),
        }
    }

    fn chooser(&self) -> Result<Chooser<'_, P>> {
        let touched = if self.needs_documents()? { None } else { Some(self.prepared.touched()) };
        Chooser::new(self.reading, self.insists, self.prepared, touched)
    }

    /// Whether more of a document is needed than what the query looks at: its text, or its number.
    fn needs_documents(&self) -> Result<bool> {
        let tie = match self.cursor.map(|cursor| &cursor.progress) {
            Some(Progress::Sorted { tie, .. }) => Some(tie),
            _ => None,
        };
        Ok(self.prepared.returns_documents()
            || self.is_for_merging
            || tie.is_some_and(|tie| tie.is_rid())
            || self.are_few()?)
    }

    /// How the query is answered, without answering it.
    pub(crate) fn explain(&self) -> Result<Explanation> {
        let chooser = self.chooser()?;
        let order = self.prepared.order();
        let (along, choice) = if self.prepared.is_row_wise() && !order.is_empty() {
            self.way(&order, &chooser, &PageBuilder::new(self))?
        } else {
            (None, Some(chooser.choose(&self.condition, self.extent(None))?))
        };
        let is_counted = self.counted(&chooser)?.is_some();
        let ends = self.extreme_alongs(&chooser)?;
        let mut counted = Vec::new();
        explain::paths_of(self.prepared.condition(), &mut counted);
        let way = match (&along, choice) {
            _ if !self.prepared.reads_documents() => Way::Nothing,
            _ if is_counted && counted.is_empty() => Way::Counter,
            _ if is_counted => Way::CountedEntries(counted),
            _ if ends.is_some() => {
                Way::Ends(ends.iter().flatten().map(explain::along_text).collect())
            }
            (Some(along), _) => {
                Way::Along { index: explain::along_text(along), is_covered: along.cover.is_some() }
            }
            (None, Some(Choice::Nothing)) => Way::Nothing,
            (None, Some(Choice::Scan) | None) => Way::Scan,
            (None, Some(Choice::Lookup { branches, also, entries, cover, sieve, .. })) => {
                let indexes = branches.iter().map(|branch| branch.directed_paths()).collect();
                match sieve {
                    Some(_) => Way::Sieve(indexes),
                    None => Way::Lookup {
                        indexes,
                        entries,
                        also: also.len(),
                        is_covered: cover.is_some(),
                    },
                }
            }
        };
        let is_sorted_in_memory = along.is_none();
        Ok(Explanation {
            condition: self.condition.clone(),
            way,
            documents: chooser.scanned()?,
            is_own: chooser.is_own(),
            ranges: self.reading.at.len(),
            is_streamed: self.prepared.is_row_wise() && (order.is_empty() || along.is_some()),
            order,
            is_sorted_in_memory,
            index_use: self.index_use()?,
            advice: self.prepared.advice(),
        })
    }

    /// The indexes that the query's filter and order have, or lack.
    pub(crate) fn index_use(&self) -> Result<IndexUse> {
        let chooser = self.chooser()?;
        let mut index_use = IndexUse::default();
        let order = self.prepared.order();
        let mut paths = Vec::new();
        explain::paths_of(self.prepared.condition(), &mut paths);
        if let [only] = &order[..] {
            paths.extend(only.key.clone().filter(|key| !paths.contains(key)));
        }
        let (used, potential) = chooser.composite_use(&order, &self.condition);
        let specs = |composites: Vec<Paths>| {
            composites.iter().map(|paths| explain::composite_spec(paths)).collect()
        };
        index_use.used_composites = specs(used);
        index_use.potential_composites = specs(potential);
        for path in paths {
            let list = match chooser.serves(&path) {
                Some(_) => &mut index_use.used,
                None => &mut index_use.potential,
            };
            list.push(explain::spec(&path));
        }
        // The key of the scope leads to its documents, whether its paths are indexed or not.
        let mut with_key = Vec::new();
        explain::paths_of(&self.condition, &mut with_key);
        let by_key = with_key.iter().map(explain::spec);
        let known: Vec<&String> = index_use.used.iter().chain(&index_use.potential).collect();
        let by_key: Vec<String> = by_key.filter(|spec| !known.contains(&spec)).collect();
        index_use.used.extend(by_key);
        Ok(index_use)
    }

    /// The number of documents, where it is known without looking at them.
    fn counted(&self, chooser: &Chooser<'_, P>) -> Result<Option<u64>> {
        let Some(shape) = self.prepared.count() else { return Ok(None) };
        if !self.reading.is_plain() {
            return Ok(None);
        }
        let slices = &self.reading.slices;
        if !shape.is_filtered {
            if !slices.iter().all(|slice| slice.is_counted()) {
                return Ok(None);
            }
            return slices.iter().map(|slice| slice.documents()).sum::<Result<u64>>().map(Some);
        }
        if !self.prepared.is_condition_exact() {
            return Ok(None);
        }
        let Some((what, spans)) = single_branch(self.prepared.condition()) else { return Ok(None) };
        let Some(branch) = chooser.counting(what, spans) else { return Ok(None) };
        let counts = (0..slices.len()).map(|slice| branch.documents(self.reading, slice));
        counts.sum::<Result<u64>>().map(Some)
    }

    /// The documents at the ends of indexes, where the query looks for nothing else.
    fn extremes(&self, chooser: &Chooser<'_, P>) -> Result<Option<Vec<Candidate>>> {
        let Some(alongs) = self.extreme_alongs(chooser)? else { return Ok(None) };
        let mut found = Vec::new();
        for along in alongs {
            match extreme(self.reading, &along, self.prepared.touched())? {
                Extreme::Known(candidate) => found.extend(candidate.map(|boxed| *boxed)),
                Extreme::Unknown => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    /// The indexes whose ends tell the answer.
    fn extreme_alongs(&self, chooser: &Chooser<'_, P>) -> Result<Option<Vec<Along>>> {
        let Some(wanted) = self.prepared.extremes() else { return Ok(None) };
        // Entries of documents that are not there for everybody lead nowhere.
        if !self.reading.is_plain() || !self.prepared.is_condition_exact() {
            return Ok(None);
        }
        let alongs = wanted.iter().map(|by| chooser.along_extreme(by, &self.condition));
        alongs.collect::<Result<Option<Vec<Along>>>>()
    }

    /// Rows in the order in which documents are found.
    fn as_found(&self, chooser: &Chooser<'_, P>) -> Result<Answered> {
        let mut page = PageBuilder::new(self);
        if page.is_satisfied() {
            return Ok(page.finish(None));
        }
        let inclusive = self.cursor.is_some_and(|cursor| cursor.rows_taken.is_some());
        let touched = self.touched_rows();
        let mut walk = match self.cursor.map(|cursor| &cursor.progress) {
            Some(Progress::Entry(entry)) => {
                let (branches, sieve) = match chooser.sieved_again(entry) {
                    Some((branch, sieve)) => (vec![branch], Some(sieve)),
                    None => (chooser.again(&self.condition, entry)?, None),
                };
                let cover = chooser.cover(&branches);
                let lookup =
                    Lookup::new(self.reading, branches, Vec::new(), Some(entry), inclusive);
                Walk::along(lookup.covered(cover).sifted(sieve), touched)
            }
            at => {
                let ended = at.map(|at| Ended { at, inclusive });
                let choose = || chooser.choose(&self.condition, Extent::Page);
                Walk::unordered(self.reading, touched, self.are_few()?, ended, choose)?
            }
        };
        // The first document may be the one that the page before ended in.
        let mut resumed = self.cursor.filter(|_| inclusive).map(|cursor| &cursor.progress);
        let mut open_end = None;
        while let Some(candidate) = walk.next()? {
            page.loaded(candidate.item.as_ref());
            let rows = self.rows_of(&candidate)?;
            let skipped = match resumed.take() {
                Some(resumed) if walk.progress(&candidate) == *resumed => self.rows_taken(),
                _ => 0,
            };
            for (number, row) in rows.into_iter().enumerate().skip(skipped) {
                match page.offer(|| row.clone()) {
                    Offered::Taken => {}
                    Offered::Full => {
                        let progress = walk.progress(&candidate);
                        let next = page.cursor(progress, Some(number));
                        return Ok(page.finish(Some(next)));
                    }
                }
                if page.is_satisfied() {
                    return Ok(page.finish(None));
                }
            }
            if self.reading.is_overdue() {
                let next = page.cursor(walk.progress(&candidate), None);
                return Ok(page.finish(Some(next)));
            }
            if self.ends_open && page.wanted() == 0 {
                open_end = Some(page.cursor(walk.progress(&candidate), None));
            }
        }
        Ok(page.finish(open_end))
    }

    /// Whether documents that no order is asked for come as they were created.
    fn are_few(&self) -> Result<bool> {
        Ok(!self.insists && self.reading.is_few()?)
    }

    /// Documents that no order is asked for.
    fn walk<'w>(&'w self, choice: &Choice<'w>, touched: &'w Touched) -> Result<Walk<'w, P>> {
        let walk = Walk::new(self.reading, choice, touched);
        if self.are_few()? { walk.in_creation_order() } else { Ok(walk) }
    }

    fn rows_taken(&self) -> usize {
        let rows = self.cursor.and_then(|cursor| cursor.rows_taken).unwrap_or(0);
        usize::try_from(rows).unwrap_or(usize::MAX)
    }

    /// What a document must contain so that its rows can be told.
    fn touched_rows(&self) -> &Touched {
        if self.prepared.returns_documents() {
            self.prepared.filter_touched()
        } else {
            self.prepared.touched()
        }
    }

    /// The rows that a document gives; where they are the document itself, its stored text.
    fn rows_of(&self, candidate: &Candidate) -> Result<Vec<Bytes>> {
        if self.prepared.returns_documents() {
            let kept = self.prepared.keeps(&candidate.document).map_err(refused)?;
            return Ok(if kept { vec![candidate.stored().document.text()] } else { Vec::new() });
        }
        let mut rows = Vec::new();
        self.prepared.rows_of(&candidate.document, &mut rows).map_err(refused)?;
        Ok(rows.iter().map(|row| Bytes::from(row.to_text())).collect())
    }

    /// Rows in the order that the query asks for.
    fn ordered(&self, chooser: &Chooser<'_, P>) -> Result<Answered> {
        let mut page = PageBuilder::new(self);
        if page.is_satisfied() {
            return Ok(page.finish(None));
        }
        let order = self.prepared.order();
        let (along, choice) = self.way(&order, chooser, &page)?;
        let terms = self.terms(along.as_ref())?;
        let tie = terms.tie;
        // A page goes on in the order of the page before, also among equals.
        let along = along.filter(|along| tie.is_rid() || along.natural_tie() == tie);
        match &along {
            Some(along) => {
                let mut merged = Merged::new(self.reading, along, &terms);
                self.emit(page, &terms, &mut |_| merged.next(tie))
            }
            None => {
                let choice = match choice {
                    Some(choice) => choice,
                    None => chooser.choose(&self.condition, Extent::Whole)?,
                };
                let mut sorted = self.sorted(&choice, &terms, &mut page)?;
                self.emit(page, &terms, &mut |_| Ok(sorted.pop_front()))
            }
        }
    }

    /// What decides between equal keys, and where the page starts.
    fn terms(&self, along: Option<&Along>) -> Result<Terms<'_>> {
        let order = self.prepared.order();
        let is_descending = order.first().is_some_and(|by| by.descending);
        let mut floors = Vec::new();
        let tie = match self.cursor {
            None => match (self.is_for_merging || self.are_few()?, along) {
                (true, _) if is_descending => Tie::RidDescending,
                (true, _) => Tie::Rid,
                (false, Some(along)) => along.natural_tie(),
                (false, None) if is_descending => Tie::PlaceDescending,
                (false, None) => Tie::Place,
            },
            Some(Cursor { progress: Progress::Sorted { keys, tie, tied }, rows_taken, .. }) => {
                let (keys, tied) = (keys.clone(), Some(tied.clone()));
                floors.push(Floor { keys, tied, inclusive: rows_taken.is_some() });
                *tie
            }
            Some(_) => return Err(continuation::invalid()),
        };
        if let Some(resume) = self.resume {
            floors.push(resumed(resume, &order)?);
        }
        let memory_bytes_max = SORT_BYTES;
        Ok(Terms { prepared: self.prepared, order, tie, floors, memory_bytes_max })
    }

    /// The index to walk along, if that pays, and how to find documents if it does not. Where the
    /// walk leads to nothing but the answer there is no question.
    fn way<'c>(
        &self,
        order: &[OrderBy],
        chooser: &Chooser<'c, P>,
        page: &PageBuilder,
    ) -> Result<(Option<Along>, Option<Choice<'c>>)> {
        let is_few = chooser.scanned()? <= SORT_ALWAYS && !chooser.insists();
        let along = match is_few {
            true => chooser.along_composite(order, &self.condition),
            false => chooser.along(order, &self.condition)?,
        };
        let is_direct = |along: &Along| {
            along.is_covered && along.is_straight && self.prepared.is_condition_exact()
        };
        if let Some(direct) = along.as_ref().filter(|along| is_direct(along))
            && self.pays_along(direct, None, chooser, page)?
        {
            return Ok((along, None));
        }
        let along = along.filter(|_| !is_few);
        let choice = chooser.choose(&self.condition, self.extent(along.as_ref()))?;
        match along {
            None => Ok((None, Some(choice))),
            Some(along) if self.pays_along(&along, Some(&choice), chooser, page)? => {
                Ok((Some(along), Some(choice)))
            }
            // What finds a page soon need not find all documents soon.
            Some(_) => Ok((None, Some(chooser.choose(&self.condition, Extent::Whole)?))),
        }
    }

    /// How many documents have to be found; where an index has them in order, the first will do.
    fn extent(&self, along: Option<&Along>) -> Extent {
        let is_ordered = !self.prepared.order().is_empty();
        match along {
            None if is_ordered || !self.prepared.is_row_wise() => Extent::Whole,
            _ => Extent::Page,
        }
    }

    /// Whether walking along an index is likely to cost less than finding and sorting.
    fn pays_along(
        &self,
        along: &Along,
        choice: Option<&Choice<'_>>,
        chooser: &Chooser<'_, P>,
        page: &PageBuilder,
    ) -> Result<bool> {
        if chooser.insists() {
            return Ok(true);
        }
        let scanned = chooser.scanned()?;
        let wanted = page.wanted() as u64;
        let (sorting, walked) = match choice {
            Some(Choice::Nothing) => return Ok(false),
            Some(Choice::Lookup { entries: Some(entries), .. }) => {
                let entries = *entries as u64;
                if entries <= SORT_ALWAYS {
                    return Ok(false);
                }
                // What the filter leaves is spread over what the walk goes through.
                let passed = if along.is_covered { 1 } else { scanned / entries };
                (entries.saturating_mul(LOOKUP_COST), wanted.saturating_mul(passed.max(1)))
            }
            Some(Choice::Lookup { entries: None, .. } | Choice::Scan) | None => (scanned, wanted),
        };
        // The index holds the documents of whole ranges; those outside the slices are passed over.
        let entries = if along.is_straight {
            walked
        } else {
            let in_ranges = self.reading.slices.iter().map(|slice| slice.range_documents());
            let in_ranges = in_ranges.sum::<Result<u64>>()?;
            walked.saturating_mul(in_ranges) / scanned.max(1)
        };
        let lookup_cost = if along.cover.is_some() { 0 } else { LOOKUP_COST };
        let walking =
            (entries / ENTRIES_PER_DOCUMENT).saturating_add(walked.saturating_mul(lookup_cost));
        Ok(walking < sorting)
    }

    /// Finds all documents and keeps those of the page, in order.
    fn sorted(
        &self,
        choice: &Choice<'_>,
        terms: &Terms<'_>,
        page: &mut PageBuilder,
    ) -> Result<VecDeque<Ranked>> {
        let wanted = page.wanted().saturating_add(1);
        let mut lowest = Lowest::new(terms.tie, wanted, CUT_KEYS_MAX, SORT_BYTES);
        let mut walk = Walk::new(self.reading, choice, self.prepared.touched());
        while let Some(candidate) = walk.next()? {
            page.loaded(candidate.item.as_ref());
            let rank = self.rank(&candidate, terms)?;
            let is_wanted = terms.admits(&rank);
            if is_wanted && lowest.takes(&rank) && !self.rows_of(&candidate)?.is_empty() {
                let (slice, place) = candidate.origin.whereabouts(self.reading);
                lowest.push(Ranked::unread(rank, slice, place))?;
            }
        }
        Ok(lowest.into_sorted())
    }

    fn rank(&self, candidate: &Candidate, terms: &Terms<'_>) -> Result<Rank> {
        let values = self.prepared.sort_keys_of(&candidate.document).map_err(refused)?;
        let tied = tied(terms.tie, candidate.origin.place(), || candidate.number());
        Ok(Rank { keys: sort_keys(&values, &terms.order), tied })
    }

    /// Fills the page with documents that come by ascending rank.
    fn emit(
        &self,
        mut page: PageBuilder,
        terms: &Terms<'_>,
        next: &mut dyn FnMut(&Terms<'_>) -> Result<Option<Ranked>>,
    ) -> Result<Answered> {
        let mut previous: Option<Rank> = None;
        let mut ahead = page.wanted().saturating_add(1).min(AHEAD);
        loop {
            let mut batch = Vec::new();
            while batch.len() < ahead {
                match next(terms)? {
                    Some(ranked) => batch.push(ranked),
                    None => break,
                }
            }
            if batch.is_empty() {
                return Ok(page.finish(None));
            }
            ahead = AHEAD;
            self.read(&mut batch)?;
            for ranked in batch {
                let origin = Origin::Place(ranked.place.into());
                let candidate = match (ranked.item, ranked.parts) {
                    (Some(item), _) => Candidate::new(origin, item, self.touched_rows()),
                    (None, Some(parts)) => Candidate::told(origin, parts),
                    (None, None) => continue,
                };
                page.loaded(candidate.item.as_ref());
                let rows = self.rows_of(&candidate)?;
                let is_resumed = match self.cursor.map(|cursor| &cursor.progress) {
                    Some(Progress::Sorted { keys, tied, .. }) => {
                        *keys == ranked.rank.keys && *tied == ranked.rank.tied
                    }
                    _ => false,
                };
                let skipped = if is_resumed { self.rows_taken() } else { 0 };
                let is_short = ranked.rank.keys.len() <= CUT_KEYS_MAX;
                for (number, row) in rows.into_iter().enumerate().skip(skipped) {
                    if let Offered::Full = page.offer(|| row.clone()) {
                        let cut = match &previous {
                            _ if is_short => Some((&ranked.rank, Some(number))),
                            Some(previous) if number == 0 => Some((previous, None)),
                            _ => None,
                        };
                        if let Some((rank, rows_taken)) = cut {
                            let next = page.cursor(terms.progress(rank), rows_taken);
                            return Ok(page.finish(Some(next)));
                        }
                        page.push_anyway(row)?;
                    }
                    if page.is_satisfied() {
                        return Ok(page.finish(None));
                    }
                }
                previous = is_short.then_some(ranked.rank);
            }
            if self.reading.is_overdue()
                && let Some(previous) = &previous
            {
                let next = page.cursor(terms.progress(previous), None);
                return Ok(page.finish(Some(next)));
            }
        }
    }

    /// Reads the documents of a batch.
    fn read(&self, batch: &mut [Ranked]) -> Result<()> {
        for (number, slice) in self.reading.slices.iter().enumerate() {
            let missing = |ranked: &&mut Ranked| {
                ranked.slice == number && ranked.item.is_none() && ranked.parts.is_none()
            };
            let mut wanted: Vec<&mut Ranked> = batch.iter_mut().filter(missing).collect();
            if wanted.is_empty() {
                continue;
            }
            let places: Vec<Vec<u8>> = wanted.iter().map(|ranked| ranked.place.clone()).collect();
            let places: Vec<&[u8]> = places.iter().map(Vec::as_slice).collect();
            for (ranked, item) in wanted.iter_mut().zip(self.reading.load(slice, &places)?) {
                ranked.item = item;
            }
        }
        Ok(())
    }

    /// Distinct rows in the order that the query asks for: the first of equal rows stays. Which one
    /// that is, only a look at all of them tells.
    fn distinct_ordered(&self, chooser: &Chooser<'_, P>) -> Result<Answered> {
        let mut page = PageBuilder::new(self);
        if page.is_satisfied() {
            return Ok(page.finish(None));
        }
        let terms = self.terms(None)?;
        let tie = terms.tie;
        let mut firsts: HashMap<RowKey, (Rank, Bytes)> = HashMap::new();
        let mut bytes = 0;
        let choice = chooser.choose(&self.condition, Extent::Whole)?;
        let mut walk = Walk::new(self.reading, &choice, self.prepared.touched());
        while let Some(candidate) = walk.next()? {
            page.loaded(candidate.item.as_ref());
            let rank = self.rank(&candidate, &terms)?;
            let rows = self.prepared.distinct_rows_of(&candidate.document).map_err(refused)?;
            for (number, (key, row)) in rows.into_iter().enumerate() {
                // Rows of one document have the same keys; their number keeps them apart.
                let mut rank = rank.clone();
                rank.tied.extend((number as u32).to_be_bytes());
                let first = firsts.entry(key);
                if let std::collections::hash_map::Entry::Occupied(mut known) = first {
                    if rank.compare(&known.get().0, tie).is_lt() {
                        known.insert((rank, Bytes::from(row.to_text())));
                    }
                    continue;
                }
                let text = Bytes::from(row.to_text());
                bytes += rank.keys.len() + rank.tied.len() + text.len() + 96;
                if bytes > SORT_BYTES {
                    return Err(too_large());
                }
                firsts.insert(key, (rank, text));
            }
        }
        let mut rows: Vec<(Rank, Bytes)> = firsts.into_values().collect();
        rows.sort_by(|(left, _), (right, _)| left.compare(right, tie));
        let mut previous: Option<Rank> = None;
        for (rank, row) in rows.into_iter().filter(|(rank, _)| terms.admits(rank)) {
            if let Offered::Full = page.offer(|| row.clone()) {
                if let Some(previous) = &previous {
                    let next = page.cursor(terms.progress(previous), None);
                    return Ok(page.finish(Some(next)));
                }
                page.push_anyway(row)?;
            }
            if page.is_satisfied() {
                break;
            }
            previous = (rank.keys.len() <= CUT_KEYS_MAX).then_some(rank);
        }
        Ok(page.finish(None))
    }

    /// Groups, distinct rows, and whatever else is known only when all documents were seen.
    fn keyed(&self, choice: &Choice<'_>) -> Result<Answered> {
        let mut page = PageBuilder::new(self);
        let after = match self.cursor {
            None => None,
            Some(Cursor { progress: Progress::Row(key), .. }) => Some(*key),
            Some(_) => return Err(continuation::invalid()),
        };
        if page.is_satisfied() {
            return Ok(page.finish(None));
        }
        let mut walk = self.walk(choice, self.prepared.touched())?;
        let documents = std::iter::from_fn(|| {
            let candidate = walk.next().transpose()?;
            Some(candidate.map(|candidate| {
                page.loaded(candidate.item.as_ref());
                candidate.document
            }))
        });
        let rows = self.prepared.run_keyed(documents).map_err(query_error)?;
        let mut rows: Vec<(RowKey, Bytes)> =
            rows.iter().map(|(key, row)| (*key, Bytes::from(row.to_text()))).collect();
        let bytes: usize = rows.iter().map(|(_, row)| row.len()).sum();
        // An answer of one page comes as its rows were first seen; one of many needs an order in
        // which every page can go on.
        if after.is_some() || rows.len() > page.wanted() || bytes > PAGE_BYTES {
            rows.sort_by_key(|(key, _)| *key);
        }
        let mut last = None;
        for (key, row) in rows {
            if after.is_some_and(|after| key.0 <= after) {
                continue;
            }
            if let Offered::Full = page.offer(|| row.clone()) {
                let last = last.expect("a page takes one row at least");
                let next = page.cursor(Progress::Row(last), None);
                return Ok(page.finish(Some(next)));
            }
            if page.is_satisfied() {
                break;
            }
            last = Some(key.0);
        }
        Ok(page.finish(None))
    }
}

impl Terms<'_> {
    fn progress(&self, rank: &Rank) -> Progress {
        Progress::Sorted { keys: rank.keys.clone(), tie: self.tie, tied: rank.tied.clone() }
    }
}

fn query_error(error: RunError<Error>) -> Error {
    match error {
        RunError::Query(error) => refused(error),
        RunError::Source(error) => error,
    }
}

/// Where an answer goes on that a client resumes in its own words.
fn resumed(resume: &ResumeFilter, order: &[OrderBy]) -> Result<Floor> {
    if resume.values.len() != order.len() {
        return Err(Error::bad_request(format!(
            "the resume filter has {} values, and the query orders by {}",
            resume.values.len(),
            order.len()
        )));
    }
    let rid = match &resume.rid {
        None => None,
        Some(text) => {
            let rid = DocumentRid::parse(text);
            Some(rid.map_err(|_| Error::bad_request("the resume filter names no document"))?)
        }
    };
    let tied = rid.map(|rid| rid.ordinal.to_be_bytes().to_vec());
    let keys = sort_keys(&resume.values, order);
    Ok(Floor { keys, tied, inclusive: !resume.exclude })
}

fn too_large() -> Error {
    Error::bad_request(
        "the result of the query is too large to be sorted and made distinct; narrow the query",
    )
}

/// Whether a row went into the page.
enum Offered {
    /// It did, or `OFFSET` passed over it.
    Taken,
    /// The page has no room for it.
    Full,
}

/// A page that is being filled.
struct PageBuilder {
    feed: FeedPage,
    items_max: usize,
    bytes: usize,
    skip_left: u64,
    take_left: Option<u64>,
    passed: u64,
    given: u64,
}

impl PageBuilder {
    fn new<P>(asked: &Asked<'_, P>) -> PageBuilder {
        let (passed, given) = asked.cursor.map_or((0, 0), |cursor| (cursor.passed, cursor.given));
        let at = asked.reading.at.clone();
        // A query whose filter rules out every range costs as much as one that visits a range.
        let charge = (0..at.len().max(1)).map(|_| Charge::QUERY_BASE).sum();
        PageBuilder {
            feed: FeedPage { at, charge, ..FeedPage::default() },
            items_max: asked.items_max,
            bytes: 0,
            skip_left: asked.prepared.skip().saturating_sub(passed),
            take_left: asked.prepared.take().map(|take| take.saturating_sub(given)),
            passed,
            given,
        }
    }

    /// Counts a document that was read, or its entry.
    fn loaded(&mut self, item: Option<&Item>) {
        let Some(item) = item else {
            self.feed.charge += Charge::ENTRY;
            return;
        };
        let bytes = item.document.text().len();
        self.feed.charge += Charge::load(bytes);
        self.feed.loaded_documents += 1;
        self.feed.loaded_bytes += bytes as u64;
    }

    /// Whether the answer is complete.
    fn is_satisfied(&self) -> bool {
        self.take_left == Some(0)
    }

    /// How many more rows are of use to this page, with those that are passed over.
    fn wanted(&self) -> usize {
        let room = (self.items_max - self.feed.rows.len().min(self.items_max)) as u64;
        let room = self.take_left.map_or(room, |take| take.min(room));
        usize::try_from(room.saturating_add(self.skip_left)).unwrap_or(usize::MAX)
    }

    fn offer(&mut self, row: impl FnOnce() -> Bytes) -> Offered {
        if self.skip_left > 0 {
            self.skip_left -= 1;
            self.passed += 1;
            return Offered::Taken;
        }
        if self.feed.rows.len() >= self.items_max {
            return Offered::Full;
        }
        let row = row();
        if !self.feed.rows.is_empty() && self.bytes + row.len() > PAGE_BYTES {
            return Offered::Full;
        }
        self.push(row);
        Offered::Taken
    }

    /// Adds a row to a page that is full and cannot be cut here.
    fn push_anyway(&mut self, row: Bytes) -> Result<()> {
        if self.bytes + row.len() > WHOLE_BYTES {
            return Err(too_large());
        }
        self.push(row);
        Ok(())
    }

    fn push(&mut self, row: Bytes) {
        self.bytes += row.len();
        self.given += 1;
        if let Some(take) = &mut self.take_left {
            *take = take.saturating_sub(1);
        }
        self.feed.charge += Charge::output(row.len());
        self.feed.rows.push(row);
    }

    fn cursor(&self, progress: Progress, rows_taken: Option<usize>) -> Cursor {
        let rows_taken = rows_taken.map(|rows| u32::try_from(rows).unwrap_or(u32::MAX - 1));
        Cursor { progress, rows_taken, passed: self.passed, given: self.given }
    }

    fn finish(self, next: Option<Cursor>) -> Answered {
        Answered { feed: self.feed, next }
    }
}
