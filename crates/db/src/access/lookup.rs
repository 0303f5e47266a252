//! Looks up the documents that satisfy a condition, by the entries of indexes.
//!
//! A lookup has branches, one for each part of the condition that is looked up; together they cover
//! it. It goes through the slices, in each through the branches, in each through the runs of
//! entries. A document that several entries lead to is given at the first of them only: which that
//! is can be told from the document itself, so nothing has to be remembered between pages.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};

use query::{Condition, Indexed, PathSegment, Span};
use ring::digest;
use storage::{Direction, Snapshot};
use value::{Value, order};

use super::cover::{Cover, Sieve};
use super::entries::Entries;
use crate::Result;
use crate::continuation::EntryProgress;
use crate::index::cells;
use crate::index::definition::Composite;
use crate::index::entry::{self, Component, IndexId, Listed, SINGLE};
use crate::row::{Item, corrupt};
use crate::scan::{Reading, Slice};

/// A part of the condition that is looked up.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    /// Its number in the condition, for continuations.
    pub(crate) node: u16,
    pub(crate) id: IndexId,
    /// What the index is over: one thing, or the paths of a composite index.
    pub(crate) paths: Vec<Indexed>,
    /// How the values of its entries are laid out.
    pub(crate) layout: Vec<Component>,
    /// Of how many leading paths the runs speak.
    leading: usize,
    runs: Runs,
}

/// Which entries are looked up. Runs are disjoint and ascending.
#[derive(Clone, Debug)]
enum Runs {
    /// The same in every slice.
    Everywhere(Vec<Run>),
    /// In each slice those of its partition.
    BySlice(Vec<Confined>),
}

/// The entries of a composite index to look up in one slice.
#[derive(Clone, Debug)]
pub(crate) struct Confined {
    pub(crate) runs: Vec<Run>,
    /// For each leading path the value that the partition of the slice says.
    pub(crate) key: Vec<Option<Value>>,
}

/// Entries that lie together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// All entries of one value, which are in the order of places.
    Value(Vec<u8>),
    /// From the first key up to, but without, the second.
    Span(Vec<u8>, Vec<u8>),
}

impl Run {
    /// The keys of the run that can lie in a slice.
    pub(super) fn bounds<P>(&self, slice: &Slice<P>) -> (Vec<u8>, Vec<u8>) {
        match self {
            Run::Value(prefix) => {
                ([&prefix[..], &slice.from].concat(), [&prefix[..], &slice.to].concat())
            }
            Run::Span(from, to) => (from.clone(), to.clone()),
        }
    }

    /// How many entries the run has in a slice, no further than to a limit, and the entries where
    /// they are few.
    pub(super) fn entries<P: Snapshot>(
        &self,
        slice: &Slice<P>,
        layout: &[Component],
        limit: usize,
    ) -> Result<(usize, Option<Vec<Listed>>)> {
        let (mut count, mut entries) = (0, Vec::new());
        let (from, to) = self.bounds(slice);
        let (from, to) = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        slice.scan_entries(layout, from, to, Direction::Forward, &mut |key, row| {
            count += 1;
            if count <= COUNTED_MAX {
                entries.push(Listed::new(key, row));
            }
            if count >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok((count, (count == entries.len() && count < limit).then_some(entries)))
    }

    fn contains(&self, key: &[u8]) -> bool {
        match self {
            Run::Value(prefix) => key == prefix,
            Run::Span(from, to) => **from <= *key && *key < **to,
        }
    }

    fn start(&self) -> &[u8] {
        match self {
            Run::Value(prefix) => prefix,
            Run::Span(from, _) => from,
        }
    }
}

impl Branch {
    /// The branch for spans of the index over one thing.
    pub(crate) fn new(node: u16, what: &Indexed, id: IndexId, spans: &[Span]) -> Branch {
        Branch {
            node,
            id,
            paths: vec![what.clone()],
            layout: SINGLE.to_vec(),
            leading: 1,
            runs: Runs::Everywhere(merged(spans.iter().map(|span| run(&id, span)).collect())),
        }
    }

    /// The branch for all entries of an index.
    pub(super) fn whole(
        node: u16,
        id: IndexId,
        paths: Vec<Indexed>,
        layout: Vec<Component>,
    ) -> Branch {
        let (from, to) = entry::all(&id);
        let runs = Runs::Everywhere(vec![Run::Span(from, to)]);
        Branch { node, id, paths, layout, leading: 0, runs }
    }

    /// The branch for some entries of a composite index, in each slice.
    pub(super) fn composite(
        node: u16,
        composite: &Composite,
        leading: usize,
        slices: Vec<Confined>,
    ) -> Branch {
        Branch {
            node,
            id: composite.id,
            paths: composite.paths.clone(),
            layout: composite.components.clone(),
            leading,
            runs: Runs::BySlice(slices),
        }
    }

    /// The entries to look up in a slice.
    pub(super) fn runs(&self, slice: usize) -> &[Run] {
        match &self.runs {
            Runs::Everywhere(runs) => runs,
            Runs::BySlice(slices) => slices.get(slice).map_or(&[], |slice| &slice.runs),
        }
    }

    /// What the index is over, and whether it has the greatest first.
    pub(crate) fn directed_paths(&self) -> Vec<(Indexed, bool)> {
        let is_descending = |component: &Component| *component == Component::Descending;
        self.paths.iter().cloned().zip(self.layout.iter().map(is_descending)).collect()
    }

    /// The paths that the runs speak of.
    pub(super) fn used(&self) -> &[Indexed] {
        &self.paths[..self.leading]
    }

    /// Whether it is about a computed property.
    pub(super) fn is_computed(&self) -> bool {
        self.paths.iter().any(|what| matches!(what, Indexed::Computed(_)))
    }

    /// The one value that is looked up, if it is one: then entries come in the order of places.
    pub(crate) fn single_value(&self) -> Option<&[u8]> {
        match &self.runs {
            Runs::Everywhere(runs) => match &runs[..] {
                [Run::Value(prefix)] => Some(prefix),
                _ => None,
            },
            Runs::BySlice(_) => None,
        }
    }

    /// Whether the entries of these spans are those of the values in them, and of no others.
    pub(crate) fn is_exact(&self, spans: &[Span]) -> bool {
        let is_short = |value: &Value| order::encode_term(Some(value), &mut Vec::new());
        let is_short_bound = |bound: &Bound<Value>| match bound {
            Bound::Included(value) | Bound::Excluded(value) => is_short(value),
            Bound::Unbounded => true,
        };
        spans.iter().all(|span| match span {
            Span::Exactly(value) => is_short(value),
            Span::Between { low, high } => is_short_bound(low) && is_short_bound(high),
            Span::Prefix(text) => text.len() <= order::TERM_STRING_BYTES,
            Span::Kind(_) => true,
        })
    }

    /// Whether several entries of the branch can lead to one document.
    pub(super) fn repeats(&self) -> bool {
        match &self.paths[..] {
            [Indexed::Path(path)] => path.contains(&PathSegment::Element) && self.is_wide(),
            // A shape stands under several cells.
            [Indexed::Shapes(_)] => self.is_wide(),
            // Every document has one value, or one entry for all values.
            _ => false,
        }
    }

    fn is_wide(&self) -> bool {
        self.single_value().is_none()
    }

    /// The first entry of the branch that leads to a document of a slice.
    fn first_key(&self, slice: usize, document: &Value) -> Option<Vec<u8>> {
        let confined = match &self.runs {
            Runs::Everywhere(_) => None,
            Runs::BySlice(slices) => slices.get(slice),
        };
        let is_inside = |key: &[u8]| self.runs(slice).iter().any(|run| run.contains(key));
        if let Some(Confined { key: known, .. }) = confined {
            return Some(self.composite_key(known, document)).filter(|key| is_inside(key));
        }
        let mut first: Option<Vec<u8>> = None;
        let mut offer = |value: &Value| {
            let mut key = entry::prefix(&self.id);
            entry::encode_component(Some(value), false, &mut key);
            if is_inside(&key) && first.as_ref().is_none_or(|first| key < *first) {
                first = Some(key);
            }
        };
        match &self.paths[0] {
            Indexed::Path(path) => values(document, path, &mut |value| {
                if !matches!(value, Value::Array(_) | Value::Object(_)) {
                    offer(value);
                }
            }),
            Indexed::Shapes(path) => values(document, path, &mut |value| {
                cells::covering(value).into_iter().for_each(|cell| offer(&Value::from(cell)));
            }),
            Indexed::Computed(_) => {}
        }
        first
    }

    /// What the entry of a document begins with. The partition of a slice is known; the document may
    /// have been read without it.
    fn composite_key(&self, known: &[Option<Value>], document: &Value) -> Vec<u8> {
        let mut key = entry::prefix(&self.id);
        for ((what, component), known) in self.used().iter().zip(&self.layout).zip(known) {
            let mut found = known.as_ref();
            if let (None, Indexed::Path(path)) = (found, what) {
                values(document, path, &mut |value| found = Some(value));
            }
            entry::encode_component(found, *component == Component::Descending, &mut key);
        }
        key
    }

    /// Counts the entries to look at in a slice, but no further than to a limit.
    pub(crate) fn count<P: Snapshot>(
        &self,
        reading: &Reading<P>,
        slice: usize,
        limit: usize,
    ) -> Result<usize> {
        let mut count = 0;
        for run in self.runs(slice) {
            let slice = &reading.slices[slice];
            let (from, to) = run.bounds(slice);
            let (from, to) = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
            slice.scan_entries(&self.layout, from, to, Direction::Forward, &mut |_, _| {
                count += 1;
                if count >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if count >= limit {
                break;
            }
        }
        Ok(count)
    }

    /// How many documents of a slice have an entry: every one has at most one.
    pub(crate) fn documents<P: Snapshot>(&self, reading: &Reading<P>, slice: usize) -> Result<u64> {
        let mut count = 0;
        for run in self.runs(slice) {
            let slice = &reading.slices[slice];
            let (from, to) = run.bounds(slice);
            let (from, to) = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
            slice.scan_entries(&self.layout, from, to, Direction::Forward, &mut |key, _| {
                let place = entry::parse(key, &self.layout).map(|entry| entry.place);
                let is_inside = place.is_some_and(|p| *p >= slice.from[..] && *p < slice.to[..]);
                count += u64::from(is_inside);
                ControlFlow::Continue(())
            })?;
        }
        Ok(count)
    }
}

/// Runs in ascending order; those that meet become one.
pub(super) fn merged(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_by(|left, right| left.start().cmp(right.start()));
    let mut merged: Vec<Run> = Vec::new();
    for run in runs {
        match (merged.last_mut(), run) {
            (Some(last), Run::Value(prefix)) if last.contains(&prefix) => {}
            (Some(Run::Span(_, end)), Run::Span(from, to)) if from <= *end => {
                *end = std::mem::take(end).max(to);
            }
            (Some(last @ Run::Value(_)), run @ Run::Span(..)) if run.contains(last.start()) => {
                *last = run;
            }
            (_, run) => merged.push(run),
        }
    }
    merged
}

fn run(id: &IndexId, span: &Span) -> Run {
    match span {
        Span::Exactly(value) => {
            let mut prefix = entry::prefix(id);
            entry::encode_component(Some(value), false, &mut prefix);
            Run::Value(prefix)
        }
        span => {
            let (from, to) = entry::bounds(&entry::prefix(id), Component::Ascending, span);
            Run::Span(from, to)
        }
    }
}

/// Visits the values of a document at a path.
fn values<'v>(value: &'v Value, path: &[PathSegment], visit: &mut dyn FnMut(&'v Value)) {
    match path.split_first() {
        None => visit(value),
        Some((PathSegment::Property(name), rest)) => {
            if let Some(member) = value.get(name) {
                values(member, rest, visit);
            }
        }
        Some((PathSegment::Element, rest)) => {
            for element in value.as_array().unwrap_or_default() {
                values(element, rest, visit);
            }
        }
    }
}

/// A document that may satisfy the query.
pub(crate) struct Found {
    pub(crate) slice: usize,
    pub(crate) branch: usize,
    /// The whole key of the entry up to its place.
    pub(crate) key: Vec<u8>,
    pub(crate) place: Vec<u8>,
}

/// What is known of a document that was found.
pub(crate) enum Content {
    /// All: it was read.
    Item(Item),
    /// The parts that the query looks at, from its entry.
    Parts(Value),
}

/// The documents of all branches, one after the other.
pub(crate) struct Lookup<'r, P> {
    reading: &'r Reading<P>,
    branches: Vec<Branch>,
    /// Single values that a document must have as well.
    also: Vec<Vec<u8>>,
    /// Makes documents of entries, where these tell enough.
    cover: Option<Cover>,
    sieve: Option<Sieve<'r>>,
    resume: Option<&'r EntryProgress>,
    /// Whether the document at the resumed position is to be given again.
    inclusive: bool,
    at: (usize, usize, usize),
    entries: Option<Entries<'r, P>>,
    followers: Vec<Follower<'r, P>>,
    /// How many entries in a row lacked another value.
    misses: usize,
    found: VecDeque<(Found, Content)>,
    batch: usize,
    /// How many entries were looked at.
    pub(crate) visited: u64,
}

/// How many entries are looked at between two looks at the clock.
pub(super) const ENTRIES_BETWEEN_CHECKS: u64 = 1_024;
/// So many entries that were counted are kept for the lookup.
const COUNTED_MAX: usize = 1_024;
const BATCH_MIN: usize = 16;
const BATCH_MAX: usize = 256;

impl<'r, P: Snapshot> Lookup<'r, P> {
    pub(crate) fn new(
        reading: &'r Reading<P>,
        branches: Vec<Branch>,
        also: Vec<Vec<u8>>,
        resume: Option<&'r EntryProgress>,
        inclusive: bool,
    ) -> Self {
        Lookup {
            reading,
            branches,
            also,
            cover: None,
            sieve: None,
            resume,
            inclusive,
            at: (0, 0, 0),
            entries: None,
            followers: Vec::new(),
            misses: 0,
            found: VecDeque::new(),
            batch: BATCH_MIN,
            visited: 0,
        }
    }

    /// The same from the beginning, with the entries of its only run where they are known.
    pub(crate) fn knowing(mut self, entries: Option<&[Listed]>) -> Self {
        if let (Some(entries), Some(slice)) = (entries, self.reading.slices.first()) {
            self.entries = Some(Entries::known(slice, entries));
        }
        self
    }

    /// The same without reading the documents that entries tell enough of.
    pub(crate) fn covered(mut self, cover: Option<Cover>) -> Self {
        self.cover = cover;
        self
    }

    /// The same without reading the documents that do not pass the filter by what their entries tell.
    pub(crate) fn sifted(mut self, sieve: Option<Sieve<'r>>) -> Self {
        self.sieve = sieve;
        self
    }

    /// The next document, which may be one that another entry leads to as well.
    pub(crate) fn next(&mut self) -> Result<Option<(Found, Content)>> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Ok(Some(found));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Whether this entry is the one at which the document is given.
    pub(crate) fn is_first(&self, found: &Found, document: &Value) -> bool {
        let branch = &self.branches[found.branch];
        let earlier = &self.branches[..found.branch];
        let first_key = |branch: &Branch| branch.first_key(found.slice, document);
        earlier.iter().all(|earlier| first_key(earlier).is_none())
            && (!branch.repeats() || first_key(branch).as_ref() == Some(&found.key))
    }

    /// Whether `is_first` looks at documents at all.
    pub(crate) fn may_repeat(&self) -> bool {
        self.branches.len() > 1 || self.branches.iter().any(Branch::repeats)
    }

    /// The position of a document, to go on from.
    pub(crate) fn progress(&self, found: &Found) -> EntryProgress {
        let slice = &self.reading.slices[found.slice];
        EntryProgress {
            branches: self.branches.iter().map(|branch| branch.node).collect(),
            indexes: fingerprint(&self.branches),
            branch: found.branch as u16,
            from: slice.from.clone(),
            to: slice.to.clone(),
            value: found.key.clone(),
            place: found.place.clone(),
        }
    }

    /// Reads the next documents; says whether there may be more.
    fn fill(&mut self) -> Result<bool> {
        let Some(slice) = self.reading.slices.get(self.at.0) else { return Ok(false) };
        if self.entries.is_none() && !self.open()? {
            return Ok(true);
        }
        let entries = self.entries.as_mut().expect("was opened above");
        let layout = &self.branches[self.at.1].layout;
        let mut listed: Vec<(Listed, usize)> = Vec::new();
        let mut is_drained = false;
        while listed.len() < self.batch {
            let Some(next) = entries.next()? else {
                is_drained = true;
                break;
            };
            self.visited += 1;
            if self.visited.is_multiple_of(ENTRIES_BETWEEN_CHECKS) {
                self.reading.check_deadline()?;
            }
            let key = &next.key;
            let parsed = entry::parse(key, layout).ok_or_else(|| corrupt("index entry"))?;
            let place = parsed.place;
            if *place < slice.from[..] || *place >= slice.to[..] {
                continue;
            }
            // When the time of a page is up, whoever fills it has to be asked whether to go on.
            if let Some(sieve) = &self.sieve
                && !sieve.passes(&next)?
                && !(self.visited.is_multiple_of(ENTRIES_BETWEEN_CHECKS)
                    && self.reading.is_overdue())
            {
                continue;
            }
            let mut missing = None;
            for follower in &mut self.followers {
                if missing.is_none() {
                    missing = follower.lacks(place)?;
                }
            }
            match missing {
                None => {
                    let split = key.len() - place.len();
                    listed.push((next, split));
                    self.misses = 0;
                }
                Some(Next::End) => {
                    is_drained = true;
                    break;
                }
                Some(Next::At(ahead)) => {
                    self.misses += 1;
                    if self.misses > MISSES_MAX {
                        // The other value's documents lie far ahead: nothing before them counts.
                        self.misses = 0;
                        let prefix = &key[..key.len() - place.len()];
                        entries.jump([prefix, &ahead].concat());
                    }
                }
            }
        }
        let at = self.at;
        if is_drained {
            self.entries = None;
            self.at.2 += 1;
        }
        self.batch = (self.batch * 2).min(BATCH_MAX);
        let contents = self.contents(slice, &listed)?;
        for ((Listed { mut key, .. }, split), content) in listed.into_iter().zip(contents) {
            if let Some(content) = content {
                let place = key.split_off(split);
                let found = Found { slice: at.0, branch: at.1, key, place };
                self.found.push_back((found, content));
            }
        }
        Ok(true)
    }

    /// What there is at some entries, each with where its place begins; nothing where the document
    /// is gone.
    fn contents(
        &self,
        slice: &Slice<P>,
        listed: &[(Listed, usize)],
    ) -> Result<Vec<Option<Content>>> {
        let told = |(entry, _): &(Listed, usize)| match &self.cover {
            Some(cover) => cover.document(entry),
            None => Ok(None),
        };
        let told = listed.iter().map(told).collect::<Result<Vec<Option<Value>>>>()?;
        let untold = told.iter().zip(listed).filter(|(told, _)| told.is_none());
        let places: Vec<&[u8]> = untold.map(|(_, (entry, split))| &entry.key[*split..]).collect();
        let mut items = self.reading.load(slice, &places)?.into_iter();
        let content = |told: Option<Value>| match told {
            Some(document) => Some(Content::Parts(document)),
            None => items.next().flatten().map(Content::Item),
        };
        Ok(told.into_iter().map(content).collect())
    }

    /// Opens the run that is next; says whether there was one in this slice.
    fn open(&mut self) -> Result<bool> {
        let reading = self.reading;
        let slice = &reading.slices[self.at.0];
        let resume = self.resume.filter(|resume| slice.from < resume.to);
        // What lies below the slice that was being read is done.
        let is_done = resume.is_some_and(|resume| slice.to <= resume.from);
        if is_done || self.at.1 >= self.branches.len() {
            self.at = (self.at.0 + 1, 0, 0);
            return Ok(false);
        }
        let branch = &self.branches[self.at.1];
        let Some(run) = branch.runs(self.at.0).get(self.at.2) else {
            self.at = (self.at.0, self.at.1 + 1, 0);
            return Ok(false);
        };
        let (from, to) = run.bounds(slice);
        let mut from = Bound::Included(from);
        if let Some(resume) = resume {
            match self.at.1.cmp(&usize::from(resume.branch)) {
                std::cmp::Ordering::Less => {
                    self.at = (self.at.0, self.at.1 + 1, 0);
                    return Ok(false);
                }
                std::cmp::Ordering::Equal => {
                    let last = [&resume.value[..], &resume.place].concat();
                    if last >= to {
                        self.at.2 += 1;
                        return Ok(false);
                    }
                    if matches!(&from, Bound::Included(from) if last >= *from) {
                        from = if self.inclusive {
                            Bound::Included(last)
                        } else {
                            Bound::Excluded(last)
                        };
                    }
                }
                std::cmp::Ordering::Greater => {}
            }
        }
        let is_followed = matches!(run, Run::Value(_)) && branch.single_value().is_some();
        self.followers = if is_followed {
            self.also.iter().map(|prefix| Follower::new(slice, prefix)).collect()
        } else {
            Vec::new()
        };
        let direction = Direction::Forward;
        let to = Bound::Excluded(to);
        self.entries = Some(Entries::new(slice, &branch.layout, from, to, direction));
        Ok(true)
    }
}

/// Tells whether a continuation still means the same indexes.
pub(crate) fn fingerprint(branches: &[Branch]) -> [u8; 8] {
    let mut ids = digest::Context::new(&digest::SHA256);
    branches.iter().for_each(|branch| ids.update(&branch.id.0));
    *ids.finish().as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

/// Where another value's entries go on.
enum Next {
    At(Vec<u8>),
    End,
}

/// Follows the places of one value, beside those of another.
struct Follower<'r, P> {
    slice: &'r Slice<P>,
    prefix: Vec<u8>,
    entries: Option<Entries<'r, P>>,
    misses: usize,
}

/// After so many entries without a hit it is faster to jump.
const MISSES_MAX: usize = 64;

impl<'r, P: Snapshot> Follower<'r, P> {
    fn new(slice: &'r Slice<P>, prefix: &[u8]) -> Self {
        Follower { slice, prefix: prefix.to_vec(), entries: None, misses: 0 }
    }

    /// Where the next entry is, if there is none at the place; places must be asked for in
    /// ascending order.
    fn lacks(&mut self, place: &[u8]) -> Result<Option<Next>> {
        let wanted = [&self.prefix[..], place].concat();
        loop {
            if self.entries.is_none() || self.misses > MISSES_MAX {
                self.misses = 0;
                let to = [&self.prefix[..], &self.slice.to].concat();
                self.entries = Some(Entries::new(
                    self.slice,
                    &SINGLE,
                    Bound::Included(wanted.clone()),
                    Bound::Excluded(to),
                    Direction::Forward,
                ));
            }
            let entries = self.entries.as_mut().expect("was opened above");
            match entries.peek()? {
                None => return Ok(Some(Next::End)),
                Some(key) if *key < wanted[..] => {
                    entries.next()?;
                    self.misses += 1;
                }
                Some(key) => {
                    self.misses = 0;
                    let next = || Next::At(key[self.prefix.len()..].to_vec());
                    return Ok((*key != wanted[..]).then(next));
                }
            }
        }
    }
}

/// Whether a document can be told to satisfy a condition by its entries alone: used for counting.
pub(crate) fn single_branch(condition: &Condition) -> Option<(&Indexed, &[Span])> {
    match condition {
        Condition::Holds { path, spans } => Some((path, spans)),
        Condition::All(parts) if parts.len() == 1 => single_branch(&parts[0]),
        _ => None,
    }
}
