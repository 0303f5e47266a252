//! Documents in the order that a query asks for.
//!
//! A [`Rank`] is the position of a document in that order: its sort keys as bytes that ascend as the
//! answer does, then what decides between equal keys. Every source gives documents by ascending
//! rank, so that the slices of a container are merged and a page can go on after any rank, whichever
//! source the page before had.
//!
//! An index over one path has the scalars only. Documents that lack the path, or that have an array
//! or an object there, are known by their shapes and come before or after the scalars.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Bound;

use query::{Indexed, OrderBy, Prepared};
use storage::{Direction, Snapshot};
use value::{Value, order};

use super::cover::Cover;
use super::entries::Entries;
use super::lookup::{ENTRIES_BETWEEN_CHECKS, Run};
use crate::continuation::Tie;
use crate::index::entry::{self, Component, IndexId, Listed};
use crate::index::shape::{self, NodeKind, ShapeId};
use crate::row::{Item, corrupt};
use crate::scan::{Reading, Slice};
use crate::{Error, Result};

/// The position of a document in the order of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rank {
    pub(crate) keys: Vec<u8>,
    pub(crate) tied: Vec<u8>,
}

impl Rank {
    pub(crate) fn compare(&self, other: &Rank, tie: Tie) -> Ordering {
        self.keys.cmp(&other.keys).then_with(|| compare_tied(&self.tied, &other.tied, tie))
    }
}

fn compare_tied(left: &[u8], right: &[u8], tie: Tie) -> Ordering {
    if tie.is_descending() { right.cmp(left) } else { left.cmp(right) }
}

/// Where an answer begins.
#[derive(Clone, Debug)]
pub(crate) struct Floor {
    pub(crate) keys: Vec<u8>,
    /// Among equal keys; all of them when there is nothing.
    pub(crate) tied: Option<Vec<u8>>,
    /// Whether what lies exactly there belongs to the answer.
    pub(crate) inclusive: bool,
}

impl Floor {
    pub(crate) fn admits(&self, rank: &Rank, tie: Tie) -> bool {
        match rank.keys.cmp(&self.keys) {
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal => match &self.tied {
                None => self.inclusive,
                Some(tied) => match compare_tied(&rank.tied, tied, tie) {
                    Ordering::Greater => true,
                    Ordering::Less => false,
                    Ordering::Equal => self.inclusive,
                },
            },
        }
    }
}

/// A document with its rank.
#[derive(Debug)]
pub(crate) struct Ranked {
    pub(crate) rank: Rank,
    pub(crate) slice: usize,
    pub(crate) place: Vec<u8>,
    /// The document, where it had to be read to know the rank.
    pub(crate) item: Option<Item>,
    /// The parts of it that the query looks at, where its entry tells them.
    pub(crate) parts: Option<Value>,
}

impl Ranked {
    /// A document that is still to be read.
    pub(crate) fn unread(rank: Rank, slice: usize, place: Vec<u8>) -> Ranked {
        Ranked { rank, slice, place, item: None, parts: None }
    }
}

/// The sort keys of a document as bytes that ascend as the answer does.
pub(crate) fn sort_keys(values: &[Option<Value>], order: &[OrderBy]) -> Vec<u8> {
    let mut keys = Vec::new();
    for (value, by) in values.iter().zip(order) {
        let start = keys.len();
        value::encode(value.as_ref(), &mut keys);
        if by.descending {
            invert(&mut keys[start..]);
        }
    }
    keys
}

fn invert(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

/// The values that sort keys were made of.
fn values_of(keys: &[u8], order: &[OrderBy]) -> Option<Vec<Option<Value>>> {
    let mut rest = keys;
    let mut values = Vec::with_capacity(order.len());
    for by in order {
        let mut bytes = rest.to_vec();
        if by.descending {
            invert(&mut bytes);
        }
        let (value, length) = value::decode(&bytes).ok()?;
        values.push(value);
        rest = &rest[length..];
    }
    rest.is_empty().then_some(values)
}

/// What decides between equal keys for a document: its place or, where that is asked for, its number.
pub(crate) fn tied(tie: Tie, place: &[u8], number: impl FnOnce() -> u64) -> Vec<u8> {
    if tie.is_rid() { number().to_be_bytes().to_vec() } else { place.to_vec() }
}

/// An index that has documents in the order of a query.
#[derive(Debug)]
pub(crate) struct Along {
    pub(crate) id: IndexId,
    /// What the index is over, and whether it has the greatest first.
    pub(crate) paths: Vec<(Indexed, bool)>,
    pub(crate) direction: Direction,
    /// How the values of an entry are laid out.
    pub(crate) layout: Vec<Component>,
    /// How many leading values the filter fixes. They are not part of the sort keys.
    pub(crate) fixed_count: usize,
    /// The entries of each slice.
    pub(crate) stretches: Vec<Stretch>,
    /// Documents that have no entry because there is no scalar at the path, where they are part of
    /// the answer.
    pub(crate) others: Option<Others>,
    /// Whether all documents that the walk leads to meet the condition of the query.
    pub(crate) is_covered: bool,
    /// Whether it leads to documents of the scope only.
    pub(crate) is_straight: bool,
    /// Makes documents of entries, where these tell enough.
    pub(crate) cover: Option<Cover>,
}

/// The part of an index that a walk over one slice goes along.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    /// What the entries begin with, behind the id: the values that are fixed.
    pub(crate) fixed: Vec<u8>,
    /// Which entries, in ascending order.
    pub(crate) runs: Vec<Run>,
}

/// For every slice the shapes without a scalar at a path, with what they have there.
#[derive(Debug, Default)]
pub(crate) struct Others(pub(crate) Vec<Vec<(ShapeId, Option<NodeKind>)>>);

impl Along {
    /// What the walk itself gives equal keys in.
    pub(crate) fn natural_tie(&self) -> Tie {
        match self.direction {
            Direction::Forward => Tie::Place,
            Direction::Backward => Tie::PlaceDescending,
        }
    }
}

/// What all parts of an ordered walk share.
pub(crate) struct Terms<'r> {
    pub(crate) prepared: &'r Prepared,
    pub(crate) order: Vec<OrderBy>,
    pub(crate) tie: Tie,
    /// Where the answer begins; where there are two, at the one that lies further on.
    pub(crate) floors: Vec<Floor>,
    /// How many bytes of ranks may be held at once.
    pub(crate) memory_bytes_max: usize,
}

impl Terms<'_> {
    /// Whether a document of this rank is part of the answer.
    pub(crate) fn admits(&self, rank: &Rank) -> bool {
        self.floors.iter().all(|floor| floor.admits(rank, self.tie))
    }

    /// The floor that lies furthest on, as far as keys tell.
    fn floor(&self) -> Option<&Floor> {
        self.floors.iter().max_by(|left, right| left.keys.cmp(&right.keys))
    }

    fn rank(&self, place: &[u8], item: &Item) -> Result<Rank> {
        let document = item.document.to_value();
        let values = self.prepared.sort_keys_of(&document).map_err(crate::read::refused)?;
        let tied = tied(self.tie, place, || item.header.rid_ordinal);
        Ok(Rank { keys: sort_keys(&values, &self.order), tied })
    }

    fn check_memory(&self, bytes: usize) -> Result<()> {
        if bytes > self.memory_bytes_max {
            return Err(too_much_to_sort());
        }
        Ok(())
    }
}

fn too_much_to_sort() -> Error {
    Error::bad_request(
        "the query needs more memory than it may use to sort documents; narrow it with a filter, \
         or add an index that has the documents in this order",
    )
}

/// Documents of all slices by ascending rank, along an index.
pub(crate) struct Merged<'r, P> {
    slices: Vec<SliceWalk<'r, P>>,
    heads: Vec<Option<Ranked>>,
    is_started: bool,
}

impl<'r, P: Snapshot> Merged<'r, P> {
    pub(crate) fn new(reading: &'r Reading<P>, along: &'r Along, terms: &'r Terms<'r>) -> Self {
        let slices = (0..reading.slices.len())
            .map(|slice| SliceWalk::new(reading, slice, along, terms))
            .collect();
        Merged { slices, heads: Vec::new(), is_started: false }
    }

    pub(crate) fn next(&mut self, tie: Tie) -> Result<Option<Ranked>> {
        if !self.is_started {
            self.is_started = true;
            for walk in &mut self.slices {
                self.heads.push(walk.next()?);
            }
        }
        let heads = self.heads.iter().enumerate();
        let heads = heads.filter_map(|(at, head)| head.as_ref().map(|head| (at, head)));
        let first = heads.min_by(|(_, left), (_, right)| left.rank.compare(&right.rank, tie));
        let Some(at) = first.map(|(at, _)| at) else { return Ok(None) };
        let next = self.slices[at].next()?;
        Ok(std::mem::replace(&mut self.heads[at], next))
    }
}

/// The parts of an ordered walk over one slice.
enum Phase {
    /// Documents that lack the path.
    Missing,
    /// A run of entries.
    Entries(usize),
    /// Documents that have an array or an object at the path.
    Nodes(NodeKind),
}

struct SliceWalk<'r, P> {
    reading: &'r Reading<P>,
    slice: usize,
    along: &'r Along,
    terms: &'r Terms<'r>,
    phases: VecDeque<Phase>,
    entries: Option<Entries<'r, P>>,
    missing: Option<Places<'r, P>>,
    pending: VecDeque<Ranked>,
    visited: u64,
}

impl<'r, P: Snapshot> SliceWalk<'r, P> {
    fn new(reading: &'r Reading<P>, slice: usize, along: &'r Along, terms: &'r Terms<'r>) -> Self {
        let runs = along.stretches[slice].runs.len();
        let mut phases: VecDeque<Phase> = (0..runs).map(Phase::Entries).collect();
        if along.others.is_some() {
            phases.push_front(Phase::Missing);
            phases.push_back(Phase::Nodes(NodeKind::Array));
            phases.push_back(Phase::Nodes(NodeKind::Object));
        }
        if along.direction == Direction::Backward {
            phases = phases.into_iter().rev().collect();
        }
        SliceWalk {
            reading,
            slice,
            along,
            terms,
            phases,
            entries: None,
            missing: None,
            pending: VecDeque::new(),
            visited: 0,
        }
    }

    fn slice(&self) -> &'r Slice<P> {
        &self.reading.slices[self.slice]
    }

    fn stretch(&self) -> &'r Stretch {
        &self.along.stretches[self.slice]
    }

    /// The next document at or beyond the floor.
    fn next(&mut self) -> Result<Option<Ranked>> {
        loop {
            if let Some(ranked) = self.pending.pop_front() {
                if self.terms.admits(&ranked.rank) {
                    return Ok(Some(ranked));
                }
                continue;
            }
            if self.entries.is_some() {
                self.step_entries()?;
            } else if self.missing.is_some() {
                self.step_missing()?;
            } else if !self.open()? {
                return Ok(None);
            }
        }
    }

    /// Begins the next part; says whether there is one.
    fn open(&mut self) -> Result<bool> {
        let Some(phase) = self.phases.pop_front() else { return Ok(false) };
        match phase {
            Phase::Entries(run) => self.open_run(run),
            Phase::Missing => self.open_missing()?,
            Phase::Nodes(kind) => self.gather_nodes(kind)?,
        }
        Ok(true)
    }

    /// The bounds of a run, narrowed to what can lie at or beyond the floor.
    fn open_run(&mut self, run: usize) {
        let slice = self.slice();
        let (from, to) = self.stretch().runs[run].bounds(slice);
        let (mut from, mut to) = (Bound::Included(from), Bound::Excluded(to));
        if let Some(key) = self.floor_key() {
            match self.along.direction {
                Direction::Forward => {
                    if matches!(&from, Bound::Included(from) if *from < key) {
                        from = Bound::Included(key);
                    }
                }
                Direction::Backward => {
                    // Everything that begins with the key lies before this bound.
                    let end = entry::successor(key);
                    if matches!(&to, Bound::Excluded(to) if end < *to) {
                        to = Bound::Excluded(end);
                    }
                }
            }
        }
        let direction = self.along.direction;
        self.entries = Some(Entries::new(slice, &self.along.layout, from, to, direction));
    }

    /// The key at which the entries of the floor lie: of its values, and where entries are in the
    /// order of the answer also of its place.
    fn floor_key(&self) -> Option<Vec<u8>> {
        let floor = self.terms.floor()?;
        let values = values_of(&floor.keys, &self.terms.order)?;
        let mut key = entry::prefix(&self.along.id);
        key.extend_from_slice(&self.stretch().fixed);
        let mut is_exact = true;
        for (value, component) in values.iter().zip(&self.along.layout[self.along.fixed_count..]) {
            is_exact &= encode_exactly(value.as_ref(), *component, &mut key);
            if !is_exact {
                break;
            }
        }
        if is_exact
            && !self.terms.tie.is_rid()
            && let Some(place) = &floor.tied
        {
            key.extend_from_slice(place);
        }
        Some(key)
    }

    /// Takes the next entry, or all entries whose order the index does not know.
    fn step_entries(&mut self) -> Result<()> {
        let slice = self.slice();
        let entries = self.entries.as_mut().expect("is called while there are entries");
        let Some(listed) = entries.next()? else {
            self.entries = None;
            return Ok(());
        };
        self.visited += 1;
        if self.visited.is_multiple_of(ENTRIES_BETWEEN_CHECKS) {
            self.reading.check_deadline()?;
        }
        let parsed =
            entry::parse(&listed.key, &self.along.layout).ok_or_else(|| corrupt("index entry"))?;
        if parsed.exact && !self.terms.tie.is_rid() {
            if is_inside(parsed.place, slice) {
                let skipped = self.along.stretches[self.slice].fixed.len();
                let mut keys = parsed.value[skipped..].to_vec();
                if self.along.direction == Direction::Backward {
                    invert(&mut keys);
                }
                let place = parsed.place.to_vec();
                let rank = Rank { keys, tied: place.clone() };
                let parts = match &self.along.cover {
                    Some(cover) => cover.document(&listed)?,
                    None => None,
                };
                let ranked = Ranked { parts, ..Ranked::unread(rank, self.slice, place) };
                self.pending.push_back(ranked);
            }
            return Ok(());
        }
        let shared = listed.key[..sure_length(&listed.key, &self.along.layout)].to_vec();
        let mut places = Vec::new();
        let mut bytes = 0;
        let mut next = Some(listed);
        while let Some(Listed { key: current, .. }) = next {
            let parsed =
                entry::parse(&current, &self.along.layout).ok_or_else(|| corrupt("index entry"))?;
            if is_inside(parsed.place, slice) {
                bytes += parsed.place.len() + size_of::<Ranked>();
                self.terms.check_memory(bytes)?;
                places.push(parsed.place.to_vec());
            }
            let is_shared = entries.peek()?.is_some_and(|next| next.starts_with(&shared));
            next = if is_shared { entries.next()? } else { None };
        }
        self.gather(places)
    }

    /// Reads documents and sorts them.
    fn gather(&mut self, places: Vec<Vec<u8>>) -> Result<()> {
        let mut ranked = Vec::with_capacity(places.len());
        let mut bytes = 0;
        // Documents of a long list are read again when their turn comes.
        let is_short = places.len() <= HELD_MAX;
        for chunk in places.chunks(256) {
            let borrowed: Vec<&[u8]> = chunk.iter().map(Vec::as_slice).collect();
            let items = self.reading.load(self.slice(), &borrowed)?;
            self.reading.check_deadline()?;
            for (place, item) in chunk.iter().zip(items) {
                let Some(item) = item else { continue };
                let rank = self.terms.rank(place, &item)?;
                if !self.terms.admits(&rank) {
                    continue;
                }
                bytes += rank.keys.len() + 2 * place.len() + size_of::<Ranked>();
                self.terms.check_memory(bytes)?;
                let (place, item) = (place.clone(), Some(item).filter(|_| is_short));
                ranked.push(Ranked { item, ..Ranked::unread(rank, self.slice, place) });
            }
        }
        ranked.sort_by(|left, right| left.rank.compare(&right.rank, self.terms.tie));
        self.pending.extend(ranked);
        Ok(())
    }

    /// The shapes that have a kind of node, or nothing, at the path.
    fn shapes(&self, kind: Option<NodeKind>) -> Vec<ShapeId> {
        let others = self.along.others.as_ref().map_or(&[][..], |others| &others.0[self.slice]);
        others.iter().filter(|(_, other)| *other == kind).map(|(id, _)| *id).collect()
    }

    fn open_missing(&mut self) -> Result<()> {
        // All of them have the same keys, so a floor may rule out the whole part.
        let mut keys = Vec::new();
        value::encode(None, &mut keys);
        if self.along.direction == Direction::Backward {
            invert(&mut keys);
        }
        if self.terms.floor().is_some_and(|floor| floor.keys > keys) {
            return Ok(());
        }
        let shapes = self.shapes(None);
        let slice = self.slice();
        if self.terms.tie.is_rid() {
            let mut places = Places::new(slice, &shapes, Direction::Forward, None);
            let mut found = Vec::new();
            let mut bytes = 0;
            while let Some(place) = places.next()? {
                bytes += place.len() + size_of::<Ranked>();
                self.terms.check_memory(bytes)?;
                found.push(place);
            }
            return self.gather(found);
        }
        let floor = self.terms.floor().filter(|floor| floor.keys == keys);
        let place = floor.and_then(|floor| floor.tied.as_deref());
        self.missing = Some(Places::new(slice, &shapes, self.along.direction, place));
        Ok(())
    }

    fn step_missing(&mut self) -> Result<()> {
        let places = self.missing.as_mut().expect("is called while there are places");
        let Some(place) = places.next()? else {
            self.missing = None;
            return Ok(());
        };
        let mut keys = Vec::new();
        value::encode(None, &mut keys);
        if self.along.direction == Direction::Backward {
            invert(&mut keys);
        }
        let rank = Rank { keys, tied: place.clone() };
        self.pending.push_back(Ranked::unread(rank, self.slice, place));
        Ok(())
    }

    fn gather_nodes(&mut self, kind: NodeKind) -> Result<()> {
        let shapes = self.shapes(Some(kind));
        let mut places = Places::new(self.slice(), &shapes, Direction::Forward, None);
        let mut found = Vec::new();
        let mut bytes = 0;
        while let Some(place) = places.next()? {
            bytes += place.len() + size_of::<Ranked>();
            self.terms.check_memory(bytes)?;
            found.push(place);
        }
        self.gather(found)
    }
}

/// So many documents are held while they wait for their turn.
const HELD_MAX: usize = 16;

pub(super) fn is_inside<P>(place: &[u8], slice: &Slice<P>) -> bool {
    *place >= slice.from[..] && *place < slice.to[..]
}

/// Appends what an entry holds for a value; says whether the value can be read from it.
pub(super) fn encode_exactly(
    value: Option<&Value>,
    component: Component,
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    let is_exact = order::encode_term(value, out);
    if component == Component::Descending {
        invert(&mut out[start..]);
    }
    is_exact
}

/// How much of the key of an entry says something about the order: up to the first value that the
/// entry does not hold whole, and that one, too.
fn sure_length(key: &[u8], layout: &[Component]) -> usize {
    let mut length = entry::VALUE_AT;
    for component in layout {
        let is_inverted = *component == Component::Descending;
        let Ok(term) = order::measure_term(&key[length..], is_inverted) else { break };
        length += term.length;
        if !term.is_exact {
            break;
        }
    }
    length
}

/// The places of the documents of some shapes, in one order.
struct Places<'r, P> {
    runs: Vec<Entries<'r, P>>,
    direction: Direction,
}

impl<'r, P: Snapshot> Places<'r, P> {
    fn new(
        slice: &'r Slice<P>,
        shapes: &[ShapeId],
        direction: Direction,
        start: Option<&[u8]>,
    ) -> Self {
        let run = |id: &ShapeId| {
            let prefix = shape::entry(*id, &[]);
            let (mut from, mut to) = (&slice.from[..], &slice.to[..]);
            let after;
            match (start, direction) {
                (Some(start), Direction::Forward) => from = from.max(start),
                (Some(start), Direction::Backward) => {
                    // The place itself is still inside.
                    after = [start, &[0]].concat();
                    to = to.min(&after);
                }
                (None, _) => {}
            }
            let from = Bound::Included([&prefix[..], from].concat());
            let to = Bound::Excluded([&prefix[..], to].concat());
            Entries::new(slice, &[], from, to, direction)
        };
        Places { runs: shapes.iter().map(run).collect(), direction }
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let mut best: Option<(usize, Vec<u8>)> = None;
        for (at, run) in self.runs.iter_mut().enumerate() {
            let Some(key) = run.peek()? else { continue };
            let place = key.get(shape::PLACE_AT..).ok_or_else(|| corrupt("shape entry"))?;
            let is_better = best.as_ref().is_none_or(|(_, best)| match self.direction {
                Direction::Forward => *place < best[..],
                Direction::Backward => *place > best[..],
            });
            if is_better {
                best = Some((at, place.to_vec()));
            }
        }
        let Some((at, place)) = best else { return Ok(None) };
        self.runs[at].next()?;
        Ok(Some(place))
    }
}

/// The documents with the lowest ranks of those that it is shown.
///
/// A page can be cut behind short sort keys only, so only documents with short keys count towards
/// the number that is wanted: those with long ones in between are kept on top of it.
pub(crate) struct Lowest {
    heap: BinaryHeap<Held>,
    tie: Tie,
    /// How many documents with short keys are kept.
    count_max: usize,
    count: usize,
    keys_max: usize,
    bytes: usize,
    bytes_max: usize,
}

struct Held {
    ranked: Ranked,
    tie: Tie,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> Ordering {
        self.ranked.rank.compare(&other.ranked.rank, self.tie)
    }
}

impl Lowest {
    pub(crate) fn new(tie: Tie, count_max: usize, keys_max: usize, bytes_max: usize) -> Self {
        let heap = BinaryHeap::new();
        Lowest { heap, tie, count_max, count: 0, keys_max, bytes: 0, bytes_max }
    }

    /// Whether a document of this rank would be among them.
    pub(crate) fn takes(&self, rank: &Rank) -> bool {
        let highest = self.heap.peek().filter(|_| self.count >= self.count_max);
        highest.is_none_or(|highest| rank.compare(&highest.ranked.rank, self.tie).is_lt())
    }

    pub(crate) fn push(&mut self, ranked: Ranked) -> Result<()> {
        self.bytes += weight(&ranked);
        self.count += usize::from(self.is_short(&ranked));
        self.heap.push(Held { ranked, tie: self.tie });
        while self.count > self.count_max
            && let Some(highest) = self.heap.pop()
        {
            self.bytes -= weight(&highest.ranked);
            self.count -= usize::from(self.is_short(&highest.ranked));
        }
        if self.bytes > self.bytes_max { Err(too_much_to_sort()) } else { Ok(()) }
    }

    fn is_short(&self, ranked: &Ranked) -> bool {
        ranked.rank.keys.len() <= self.keys_max
    }

    /// By ascending rank.
    pub(crate) fn into_sorted(self) -> VecDeque<Ranked> {
        self.heap.into_sorted_vec().into_iter().map(|held| held.ranked).collect()
    }
}

fn weight(ranked: &Ranked) -> usize {
    size_of::<Ranked>() + ranked.rank.keys.len() + ranked.rank.tied.len() + ranked.place.len()
}
