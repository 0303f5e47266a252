//! Chooses how a query gets at its documents.
//!
//! There are no statistics to go stale: where several indexes could serve, the entries that each
//! would have to look at are counted, side by side and only until the shortest list has ended. Known
//! exactly are the documents of a range and of a logical partition, which is what a scan costs.

use query::{Condition, Indexed, OrderBy, PathSegment, Prepared, Span, Touched};
use storage::{Direction, Snapshot};
use value::{PartitionKey, Value};

use super::composite::{self, Filter, Paths};
use super::cover::{Cover, Sieve};
use super::lookup::{Branch, Run, fingerprint};
use super::ordered::{Along, Others, Stretch};
use crate::container::Container;
use crate::continuation::EntryProgress;
use crate::index::cells;
use crate::index::definition::Composite;
use crate::index::entry::{self, IndexId, Listed, SINGLE};
use crate::index::shape::{self, NodeKind};
use crate::index::state::{self, Usable};
use crate::key::PartitionPrefix;
use crate::scan::{Reading, Slice};
use crate::{Error, Result};

/// How documents are found, where no order is asked for.
#[derive(Debug)]
pub(crate) enum Choice<'q> {
    /// No document can satisfy the query.
    Nothing,
    Scan,
    Lookup {
        branches: Vec<Branch>,
        /// Single values that documents must have as well, each by its entries.
        also: Vec<Vec<u8>>,
        /// How many entries that is, if it was counted to the end.
        entries: Option<usize>,
        /// The entries themselves, where counting has found them all.
        counted: Option<Vec<Listed>>,
        /// Makes documents of entries, where these tell enough.
        cover: Option<Cover>,
        /// Asks entries whether their documents pass the filter.
        sieve: Option<Sieve<'q>>,
    },
}

/// What can be used for a query, and how much there is.
pub(crate) struct Chooser<'r, P> {
    pub(super) reading: &'r Reading<P>,
    usable: Vec<Usable>,
    /// For each slice what its partition says about documents.
    keys: Vec<Vec<(Indexed, Value)>>,
    /// For each slice whether its entries are those of its documents alone: it is a whole range, or a
    /// partition with entries of its own.
    are_own: Vec<bool>,
    /// Whether an index is taken wherever one serves, at any cost.
    pub(super) insists: bool,
    /// What is looked at of each document, where entries may stand for it.
    pub(super) touched: Option<&'r Touched>,
    pub(super) prepared: &'r Prepared,
}

/// How much of the answer a query needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// A page, after which it may stop.
    Page,
    /// All documents that satisfy it.
    Whole,
}

/// Looking up one document costs about as much as passing over so many in a scan.
pub(crate) const LOOKUP_COST: u64 = 4;
/// Passing over so many entries costs about as much as passing over one document in a scan.
pub(crate) const ENTRIES_PER_DOCUMENT: u64 = 6;
/// So few documents are not worth a look at their index.
const SCAN_ALWAYS: u64 = 64;
/// Counting starts with so many entries and goes on in steps.
const COUNT_FIRST: usize = 64;
const COUNT_STEP: usize = 8;
/// So many entries are always counted before a list is taken for a long one.
pub(super) const COUNT_ALWAYS: u64 = 512;
/// Of so many documents a page is looked up without counting.
pub(super) const PAGE_ALWAYS: u64 = COUNT_ALWAYS * LOOKUP_COST;
/// In a narrow scope not more than so many.
const COUNT_NARROW: u64 = 32_768;
/// A lookup has at most so many branches, because a continuation names them.
const BRANCHES_MAX: usize = 32;

impl<'r, P: Snapshot> Chooser<'r, P> {
    pub(crate) fn new(
        reading: &'r Reading<P>,
        insists: bool,
        prepared: &'r Prepared,
        touched: Option<&'r Touched>,
    ) -> Result<Self> {
        let usable = reading
            .slices
            .iter()
            .map(|slice| state::usable(&reading.container, slice.header()?, &slice.snapshot))
            .collect::<Result<_>>()?;
        let key_of = |slice: &Slice<P>| {
            let key = slice.partition.as_ref().and_then(PartitionPrefix::partition_key);
            key.map_or(Vec::new(), |key| composite::key_values(&reading.container, &key))
        };
        let keys = reading.slices.iter().map(key_of).collect();
        let is_own = |slice: &Slice<P>| Ok(slice.partition.is_none() || slice.has_own()?);
        let are_own = reading.slices.iter().map(is_own).collect::<Result<_>>()?;
        Ok(Chooser { reading, usable, keys, are_own, insists, touched, prepared })
    }

    pub(crate) fn insists(&self) -> bool {
        self.insists
    }

    /// The index over something, if every slice has it.
    pub(crate) fn serves(&self, what: &Indexed) -> Option<IndexId> {
        // A document is no scalar, so an index over documents as a whole would be empty.
        if matches!(what, Indexed::Path(path) if path.is_empty()) {
            return None;
        }
        let mut ids = self.usable.iter().map(|usable| usable.serves(what));
        let first = ids.next()??;
        ids.all(|id| id.is_some()).then_some(first)
    }

    /// The composite indexes that every slice has.
    pub(super) fn composites(&self) -> Vec<&Composite> {
        let Some((first, others)) = self.usable.split_first() else { return Vec::new() };
        let mut composites = first.composites();
        composites.retain(|composite| {
            let has =
                |usable: &Usable| usable.composites().iter().any(|one| one.id == composite.id);
            others.iter().all(has)
        });
        composites
    }

    /// For each slice what is known of the documents that can contribute.
    fn filters<'c>(&'c self, parts: &'c [Condition]) -> Vec<Filter<'c>> {
        self.keys.iter().map(|key| Filter { parts, key }).collect()
    }

    /// The index that has documents in the order of a query, if there is one.
    pub(crate) fn along(&self, order: &[OrderBy], condition: &Condition) -> Result<Option<Along>> {
        match (self.along_composite(order, condition), order) {
            (Some(along), _) => Ok(Some(along)),
            (None, [OrderBy { key: Some(what), descending }]) => {
                self.along_path(what, *descending, &self.filters(parts_of(condition)))
            }
            (None, _) => Ok(None),
        }
    }

    /// The composite index that has documents in the order of a query, if there is one.
    pub(crate) fn along_composite(
        &self,
        order: &[OrderBy],
        condition: &Condition,
    ) -> Option<Along> {
        let filters = self.filters(parts_of(condition));
        let composites = self.composites();
        let along = composites.iter().filter_map(|one| composite::along(one, order, &filters));
        // The more values are fixed, the fewer entries are passed over.
        let along = along.map(|along| self.covering(along));
        let mut along = along.max_by_key(|along| (along.fixed_count, along.cover.is_some()))?;
        let fixed: Vec<&Indexed> =
            along.paths[..along.fixed_count].iter().map(|(what, _)| what).collect();
        let is_fixed = |(path, _): &(Indexed, Value)| fixed.contains(&path);
        along.is_straight = self.is_everywhere(|key| key.iter().all(is_fixed));
        Some(along)
    }

    /// Whether entries of an index lead to documents of the scope only: those of whole ranges do,
    /// and in a slice that is one partition its own, and those that hold its key.
    pub(super) fn is_everywhere(&self, holds: impl Fn(&[(Indexed, Value)]) -> bool) -> bool {
        let mut slices = self.are_own.iter().zip(&self.keys);
        slices.all(|(is_own, key)| *is_own || !key.is_empty() && holds(key))
    }

    /// The composite indexes that serve a query, and those that would.
    pub(crate) fn composite_use(
        &self,
        order: &[OrderBy],
        condition: &Condition,
    ) -> (Vec<Paths>, Vec<Paths>) {
        let filters = self.filters(parts_of(condition));
        let composites = self.composites();
        let branches = composites.iter().filter_map(|one| self.composite(0, one, &filters));
        let mut found = branches.map(Resolved::of).collect();
        drop_dominated(&mut found);
        let mut used = Vec::new();
        // What serves, as far as the query speaks of it.
        let mut served: Vec<Vec<Indexed>> = Vec::new();
        for branch in found.iter().flat_map(|found| &found.branches) {
            used.push(branch.directed_paths());
            served.push(branch.used().to_vec());
        }
        let along = self.along_composite(order, condition);
        if let Some(along) = along.filter(|_| !order.is_empty()) {
            served = vec![along.paths.iter().map(|(path, _)| path.clone()).collect()];
            if !used.contains(&along.paths) {
                used.push(along.paths);
            }
        } else if !order.is_empty() {
            // What finds documents does not bring them into order.
            served.clear();
        }
        let first = filters.first();
        let mut potential = first.map_or(Vec::new(), |one| composite::recommended(*one, order));
        potential.retain(|paths: &Paths| {
            let is_served_by = |by: &Vec<Indexed>| paths.iter().all(|(path, _)| by.contains(path));
            !served.iter().any(is_served_by)
        });
        // Entries of its own are to a partition what an index of its key and one path would be.
        if self.is_own() {
            let is_other = |(path, _): &&(Indexed, bool)| !self.is_key(path);
            potential.retain(|paths| paths.iter().filter(is_other).count() > 1);
        }
        (used, potential)
    }

    fn composite(&self, node: u16, one: &Composite, filters: &[Filter<'_>]) -> Option<Branch> {
        composite::lookup(node, one, filters, |what| self.serves(what).is_some())
    }

    /// The shapes of documents that have no scalar at a path; `Ok(None)` when that is not known.
    pub(super) fn others(&self, path: &[String]) -> Result<Option<Others>> {
        let mut others = Others::default();
        for (slice, usable) in self.reading.slices.iter().zip(&self.usable) {
            if !usable.has_shapes() {
                return Ok(None);
            }
            let Some(shapes) = shape::shapes(&slice.snapshot)? else { return Ok(None) };
            let kinds = shapes.iter().map(|(id, set)| (*id, set.kind_of(path)));
            let kinds = kinds.filter(|(_, kind)| *kind != Some(NodeKind::Scalar)).collect();
            others.0.push(kinds);
        }
        Ok(Some(others))
    }

    fn along_path(
        &self,
        what: &Indexed,
        descending: bool,
        filters: &[Filter<'_>],
    ) -> Result<Option<Along>> {
        let Some(id) = self.serves(what) else { return Ok(None) };
        // A filter on the same path leaves scalars only.
        let parts = filters.first().map_or(&[][..], |filter| filter.parts);
        let spans = parts.iter().find_map(|part| match part {
            Condition::Holds { path, spans } if path == what => Some(spans),
            _ => None,
        });
        let (runs, others) = match (spans, what) {
            (Some(spans), _) => (Branch::new(0, what, id, spans).runs(0).to_vec(), None),
            (None, Indexed::Computed(_) | Indexed::Shapes(_)) => return Ok(None),
            (None, Indexed::Path(path)) => {
                let (from, to) = entry::all(&id);
                let Some(names) = property_names(path) else { return Ok(None) };
                // Every document has it, although no client wrote it.
                if names == ["_ts"] {
                    (vec![Run::Span(from, to)], None)
                } else {
                    let Some(others) = self.others(&names)? else { return Ok(None) };
                    (vec![Run::Span(from, to)], Some(others))
                }
            }
        };
        let used = std::slice::from_ref(what);
        let stretch = Stretch { fixed: Vec::new(), runs };
        Ok(Some(self.covering(Along {
            id,
            paths: vec![(what.clone(), false)],
            direction: if descending { Direction::Backward } else { Direction::Forward },
            layout: SINGLE.to_vec(),
            fixed_count: 0,
            stretches: vec![stretch; filters.len()],
            others,
            is_covered: filters.iter().all(|filter| filter.is_covered_by(used)),
            is_straight: self.is_everywhere(|_| false),
            cover: None,
        })))
    }

    /// The entries that can be counted in place of documents: those of a path on which a document
    /// has one value at most.
    pub(crate) fn counting(&self, what: &Indexed, spans: &[Span]) -> Option<Branch> {
        if let Indexed::Path(path) = what {
            property_names(path)?;
        }
        let branch = Branch::new(0, what, self.serves(what)?, spans);
        branch.is_exact(spans).then_some(branch)
    }

    /// How many documents a scan would look at.
    pub(crate) fn scanned(&self) -> Result<u64> {
        self.reading.slices.iter().map(|slice| slice.documents()).sum()
    }

    /// Chooses how to find the documents that satisfy a condition.
    pub(crate) fn choose(&self, condition: &Condition, extent: Extent) -> Result<Choice<'r>> {
        if *condition == Condition::Nothing || self.reading.slices.is_empty() {
            return Ok(Choice::Nothing);
        }
        let scanned = self.scanned()?;
        if scanned <= SCAN_ALWAYS && !self.insists {
            return Ok(Choice::Scan);
        }
        // Counting must stay cheap beside what it decides on.
        let budget = match extent {
            Extent::Page if self.is_narrow() => scanned.clamp(COUNT_ALWAYS, COUNT_NARROW),
            Extent::Page => COUNT_ALWAYS,
            Extent::Whole => (scanned / LOOKUP_COST).max(COUNT_ALWAYS),
        };
        let budget = usize::try_from(budget).unwrap_or(usize::MAX);
        let found = self.resolve(condition, &mut 0, &Seeking::Shortest { budget })?;
        let found = match found {
            None if extent == Extent::Whole => self.all_covered()?.map(Resolved::of),
            found => found,
        };
        let Some(mut found) = found else { return self.scan(extent) };
        let mut cover = self.cover(&found.branches);
        if extent == Extent::Whole && !self.insists && !self.is_told(cover.as_ref(), &found)? {
            cover = None;
        }
        // The only way there is needs no counting where it leads straight to a page, or past all
        // documents.
        let is_plain = self.is_straight(&found)
            && (cover.is_some() || extent == Extent::Page && scanned > PAGE_ALWAYS);
        if found.entries.is_none() && !is_plain {
            self.count(&mut found, budget)?;
        }
        let lookup_cost = if cover.is_some() { 0 } else { LOOKUP_COST };
        if !self.insists && self.is_scan_cheaper(&found, lookup_cost, scanned, extent)? {
            return self.scan(extent);
        }
        let is_long = found.entries.is_none() || self.insists;
        let also =
            if is_long && cover.is_none() { self.also(condition, &found) } else { Vec::new() };
        let Resolved { branches, entries, counted } = found;
        Ok(Choice::Lookup { branches, also, entries, counted, cover, sieve: None })
    }

    /// Whether all entries are those of partitions alone.
    pub(crate) fn is_own(&self) -> bool {
        self.is_narrow() && self.are_own.iter().all(|is_own| *is_own)
    }

    /// Whether every slice is one logical partition.
    fn is_narrow(&self) -> bool {
        self.reading.slices.iter().all(|slice| slice.partition.is_some())
    }

    /// Whether a lookup leads to documents of the scope only.
    fn is_straight(&self, found: &Resolved) -> bool {
        let is_inside = |branch: &Branch| {
            let is_used = |(path, _): &(Indexed, Value)| branch.used().contains(path);
            branch.single_value().is_some() || self.is_everywhere(|key| key.iter().all(is_used))
        };
        found.branches.iter().all(is_inside)
    }

    fn is_scan_cheaper(
        &self,
        found: &Resolved,
        lookup_cost: u64,
        scanned: u64,
        extent: Extent,
    ) -> Result<bool> {
        let Some(entries) = found.entries else {
            // The list is long. That does not matter, if it leads to documents of the scope only,
            // for a page, and where they are not looked up.
            let is_longer = lookup_cost > 0 && (extent == Extent::Whole || scanned <= PAGE_ALWAYS);
            return Ok(is_longer || !self.is_straight(found));
        };
        let entries = entries as u64;
        let in_scope = if self.is_straight(found) {
            entries
        } else {
            let in_ranges = self.reading.slices.iter().map(|slice| slice.range_documents());
            let in_ranges = in_ranges.sum::<Result<u64>>()?;
            entries.saturating_mul(scanned) / in_ranges.max(1)
        };
        Ok(entries / ENTRIES_PER_DOCUMENT + in_scope * lookup_cost > scanned)
    }

    /// The branches that an earlier page has chosen.
    pub(crate) fn again(
        &self,
        condition: &Condition,
        entry: &EntryProgress,
    ) -> Result<Vec<Branch>> {
        let found = self.resolve(condition, &mut 0, &Seeking::Again(&entry.branches))?;
        let found = found.filter(|found| {
            let nodes = found.branches.iter().map(|branch| branch.node);
            nodes.eq(entry.branches.iter().copied())
                && fingerprint(&found.branches) == entry.indexes
        });
        found.map(|found| found.branches).ok_or_else(|| {
            Error::bad_request(
                "the indexes of the container have changed since this continuation was given; \
                 please run the query again from its beginning",
            )
        })
    }

    fn resolve(
        &self,
        condition: &Condition,
        node: &mut u16,
        seeking: &Seeking<'_>,
    ) -> Result<Option<Resolved>> {
        match condition {
            Condition::Holds { .. } => {
                self.resolve_all(std::slice::from_ref(condition), node, seeking)
            }
            Condition::Near { path, shape, distance } => {
                let number = *node;
                *node = node.saturating_add(1);
                if matches!(seeking, Seeking::Again(branches) if !branches.contains(&number)) {
                    return Ok(None);
                }
                let shapes = Indexed::Shapes(path.clone());
                let Some(id) = self.serves(&shapes) else { return Ok(None) };
                let Some(spans) = cells::lookup(shape, *distance) else { return Ok(None) };
                Ok(Some(Resolved::of(Branch::new(number, &shapes, id, &spans))))
            }
            Condition::All(parts) => self.resolve_all(parts, node, seeking),
            Condition::Any(parts) => {
                let mut branches = Vec::new();
                let mut is_served = true;
                for part in parts {
                    match self.resolve(part, node, seeking)? {
                        Some(found) => branches.extend(found.branches),
                        None => is_served = false,
                    }
                }
                // What a computed property is, a document alone does not tell, and then not either
                // whether another branch has given it.
                let is_served = is_served
                    && branches.len() <= BRANCHES_MAX
                    && (branches.len() == 1 || !branches.iter().any(Branch::is_computed));
                Ok(is_served.then_some(Resolved { branches, entries: None, counted: None }))
            }
            Condition::Anything
            | Condition::Nothing
            | Condition::Defined(_)
            | Condition::Undefined(_) => Ok(None),
        }
    }

    /// Finds the documents that satisfy all of some conditions: by one of them, or by several of them
    /// in a composite index.
    fn resolve_all(
        &self,
        parts: &[Condition],
        node: &mut u16,
        seeking: &Seeking<'_>,
    ) -> Result<Option<Resolved>> {
        let mut served = Vec::new();
        for part in parts {
            served.extend(match part {
                Condition::Holds { path, spans } => self.resolve_one(path, spans, node, seeking),
                part => self.resolve(part, node, seeking)?,
            });
        }
        let filters = self.filters(parts);
        for one in self.composites() {
            let number = *node;
            *node = node.saturating_add(1);
            if !matches!(seeking, Seeking::Again(branches) if !branches.contains(&number)) {
                served.extend(self.composite(number, one, &filters).map(Resolved::of));
            }
        }
        match seeking {
            Seeking::Again(_) => Ok(served.into_iter().next()),
            Seeking::Shortest { budget } => {
                // Of those that are as good as each other the first is taken.
                served.sort_by_key(|found| self.cover(&found.branches).is_none());
                drop_dominated(&mut served);
                self.shortest(served, *budget)
            }
        }
    }

    fn resolve_one(
        &self,
        path: &Indexed,
        spans: &[Span],
        node: &mut u16,
        seeking: &Seeking<'_>,
    ) -> Option<Resolved> {
        let number = *node;
        *node = node.saturating_add(1);
        let is_sought = match seeking {
            Seeking::Again(branches) => branches.contains(&number),
            Seeking::Shortest { .. } => !self.is_common(path),
        };
        let id = self.serves(path).filter(|_| is_sought)?;
        Some(Resolved::of(Branch::new(number, path, id, spans)))
    }

    /// Whether all documents of the scope have the same value at a path, so that its entries lead to
    /// all of them.
    fn is_common(&self, what: &Indexed) -> bool {
        self.is_narrow() && self.is_key(what)
    }

    /// Whether a path is one of the partition key's.
    fn is_key(&self, what: &Indexed) -> bool {
        let Indexed::Path(path) = what else { return false };
        let Some(names) = property_names(path) else { return false };
        let paths = &self.reading.container.policies.partition_key.paths;
        paths.iter().any(|path| path.segments() == names)
    }

    /// Of several ways to look up the same documents, the one with the fewest entries.
    fn shortest(&self, mut candidates: Vec<Resolved>, budget: usize) -> Result<Option<Resolved>> {
        if candidates.len() < 2 {
            return Ok(candidates.pop());
        }
        let mut limit = COUNT_FIRST.min(budget);
        while !candidates.is_empty() {
            let mut best: Option<(usize, usize)> = None;
            for (at, candidate) in candidates.iter_mut().enumerate() {
                if candidate.entries.is_none() {
                    self.count(candidate, limit)?;
                }
                let is_best = |count: &usize| best.is_none_or(|(_, least)| *count < least);
                if let Some(count) = candidate.entries.filter(is_best) {
                    best = Some((at, count));
                }
            }
            if let Some((at, _)) = best {
                return Ok(Some(candidates.swap_remove(at)));
            }
            if limit >= budget {
                break;
            }
            limit = limit.saturating_mul(COUNT_STEP).min(budget);
        }
        // All lists are long: a list of one value can be walked together with others.
        let single = candidates.iter().position(|candidate| candidate.single_value().is_some());
        Ok((!candidates.is_empty()).then(|| candidates.swap_remove(single.unwrap_or(0))))
    }

    /// Counts the entries of a lookup if they are fewer than a limit, and keeps them where they are
    /// one run: looking for its start again would cost more than the entries.
    fn count(&self, found: &mut Resolved, limit: usize) -> Result<()> {
        if let ([slice], [branch]) = (&self.reading.slices[..], &found.branches[..])
            && let [run] = branch.runs(0)
        {
            let (count, entries) = run.entries(slice, &branch.layout, limit)?;
            found.entries = Some(count).filter(|count| *count < limit);
            found.counted = entries;
            return Ok(());
        }
        let mut count = 0;
        for slice in 0..self.reading.slices.len() {
            for branch in &found.branches {
                if count < limit {
                    count += branch.count(self.reading, slice, limit - count)?;
                }
            }
        }
        found.entries = Some(count).filter(|count| *count < limit);
        Ok(())
    }

    /// Other single values that must hold together with the one that is looked up.
    fn also(&self, condition: &Condition, found: &Resolved) -> Vec<Vec<u8>> {
        let (Some(chosen), Condition::All(parts)) = (found.single_value(), condition) else {
            return Vec::new();
        };
        let chosen = chosen.to_vec();
        let single = |part: &Condition| {
            let Condition::Holds { path, spans } = part else { return None };
            let [span @ Span::Exactly(_)] = &spans[..] else { return None };
            if self.is_common(path) {
                return None;
            }
            let branch = Branch::new(0, path, self.serves(path)?, std::slice::from_ref(span));
            branch.single_value().map(<[u8]>::to_vec)
        };
        parts.iter().filter_map(single).filter(|value| *value != chosen).collect()
    }
}

/// The conditions that all hold.
pub(super) fn parts_of(condition: &Condition) -> &[Condition] {
    match condition {
        Condition::All(parts) => parts,
        other => std::slice::from_ref(other),
    }
}

/// Leaves out what cannot be shorter than something else: a lookup in a composite index goes over
/// some of the entries that the lookups of its paths go over.
fn drop_dominated(served: &mut Vec<Resolved>) {
    let used = |found: &Resolved| match &found.branches[..] {
        [branch] => Some(branch.used().to_vec()),
        _ => None,
    };
    let all: Vec<Option<Vec<Indexed>>> = served.iter().map(used).collect();
    let is_dominated = |at: usize| {
        let Some(used) = &all[at] else { return false };
        all.iter().enumerate().filter(|(other, _)| *other != at).any(|(other, more)| {
            let Some(more) = more else { return false };
            let is_longer = more.len() > used.len() || more.len() == used.len() && other < at;
            more.len() > 1 && is_longer && used.iter().all(|path| more.contains(path))
        })
    };
    let mut at = 0..;
    served.retain(|_| !is_dominated(at.next().expect("there is no last number")));
}

/// The names of a path without element steps.
pub(super) fn property_names(path: &[PathSegment]) -> Option<Vec<String>> {
    let name = |segment: &PathSegment| match segment {
        PathSegment::Property(name) => Some(name.clone()),
        PathSegment::Element => None,
    };
    path.iter().map(name).collect()
}

/// Which branches are wanted.
enum Seeking<'a> {
    /// Those with the fewest entries, of which so many may be counted.
    Shortest { budget: usize },
    /// Those that an earlier page has chosen.
    Again(&'a [u16]),
}

/// Branches that cover a condition.
pub(super) struct Resolved {
    branches: Vec<Branch>,
    /// How many entries that is, if it was counted to the end.
    pub(super) entries: Option<usize>,
    counted: Option<Vec<Listed>>,
}

impl Resolved {
    fn of(branch: Branch) -> Resolved {
        Resolved { branches: vec![branch], entries: None, counted: None }
    }

    fn single_value(&self) -> Option<&[u8]> {
        match &self.branches[..] {
            [branch] => branch.single_value(),
            _ => None,
        }
    }
}

/// Adds to a condition what the partition key of the scope says, so that an index that begins with
/// the key's paths can serve.
pub(crate) fn with_key(
    condition: &Condition,
    container: &Container,
    key: Option<&PartitionKey>,
) -> Condition {
    let Some(key) = key else { return condition.clone() };
    let mut parts = match condition {
        Condition::All(parts) => parts.clone(),
        Condition::Anything => Vec::new(),
        other => vec![other.clone()],
    };
    for (path, value) in composite::key_values(container, key) {
        let part = Condition::Holds { path, spans: vec![Span::Exactly(value)] };
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    Condition::All(parts)
}
