//! Walks over the documents of a container in the order of their places.
//!
//! A scan reads fixed versions of the ranges in chunks, so that it can stop anywhere and never holds
//! more than a little. Documents that have expired or were purged are passed over.

use std::collections::{HashMap, VecDeque};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use storage::{Direction, RangeStore, Snapshot};
use value::{Epk, EpkRange, PartitionKey};

use crate::container::{Container, Range};
use crate::database::Db;
use crate::key::{self, PartitionPrefix};
use crate::row::{self, Item, ItemHeader, corrupt};
use crate::session::{Position, Session};
use crate::{Error, Result};

/// Which documents of a container a request is about. What is given is intersected.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// One logical partition, or the beginning of a hierarchical key.
    pub key: Option<PartitionKey>,
    /// One range, as clients name it.
    pub range: Option<String>,
    /// A slice of the hash space.
    pub epk: Option<EpkRange>,
    /// Whether the request may look at several partitions without saying which.
    pub cross_partition: bool,
}

impl Scope {
    /// Whether nothing confines the request although it may not cross partitions.
    pub(crate) fn is_everything(&self) -> bool {
        !self.cross_partition && self.key.is_none() && self.range.is_none() && self.epk.is_none()
    }
}

/// Where a scan starts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start<'a> {
    Beginning,
    /// With the document at this place, if it is still there.
    At(&'a [u8]),
    After(&'a [u8]),
}

/// A part of a range that is to be read.
struct Slice<P> {
    snapshot: P,
    range: Arc<Range>,
    from: Bound<Vec<u8>>,
    to: Vec<u8>,
    /// Purged partitions, with the lsn up to which their documents are gone.
    purged: HashMap<Vec<u8>, u64>,
}

/// The documents of a scope, one after the other.
pub(crate) struct Scan<P> {
    container: Arc<Container>,
    slices: VecDeque<Slice<P>>,
    chunk: VecDeque<Visited>,
    now_s: u64,
    /// Only documents whose key begins so.
    prefix: Option<PartitionKey>,
    /// The versions that are read.
    pub(crate) at: Vec<Position>,
}

/// A document that the scan came by.
pub(crate) struct Visited {
    pub(crate) place: Bytes,
    pub(crate) item: Item,
}

const CHUNK_ITEMS: usize = 256;
const CHUNK_BYTES: usize = 1024 * 1024;

impl<S: RangeStore> Db<S> {
    /// Starts a scan.
    pub(crate) fn scan(
        &self,
        container: &Arc<Container>,
        scope: &Scope,
        start: Start<'_>,
        session: Option<&Session>,
    ) -> Result<Scan<S::Snapshot>> {
        let now_s = self.clock.now_s();
        let (intervals, prefix) = intervals(container, scope)?;
        let start = match start {
            Start::Beginning => None,
            Start::At(place) => Some((Bound::Included(key::item(place)), epk_of(place)?)),
            Start::After(place) => Some((Bound::Excluded(key::item(place)), epk_of(place)?)),
        };
        let mut slices = VecDeque::new();
        let mut at = Vec::new();
        for (range, from, to) in intervals {
            let snapshot = self.store.snapshot(range.storage)?;
            let lsn = snapshot.lsn();
            let position = container.position(&range, lsn);
            if let Some(session) = session {
                session.check(&position)?;
            }
            at.push(position);
            let from = match &start {
                Some((_, epk)) if *epk >= range.epk.max => continue,
                Some((Bound::Included(place) | Bound::Excluded(place), _)) if *place >= to => {
                    continue;
                }
                Some((bound @ (Bound::Included(place) | Bound::Excluded(place)), _))
                    if *place >= from =>
                {
                    bound.clone()
                }
                _ => Bound::Included(from),
            };
            let purged =
                if range.purges.may_concern(lsn) { purged(&snapshot)? } else { HashMap::new() };
            slices.push_back(Slice { snapshot, range, from, to, purged });
        }
        let container = container.clone();
        Ok(Scan { container, slices, chunk: VecDeque::new(), now_s, prefix, at })
    }
}

type Interval = (Arc<Range>, Vec<u8>, Vec<u8>);

/// The key intervals of a scope, in order, and the key prefix that must be checked on top.
fn intervals(
    container: &Container,
    scope: &Scope,
) -> Result<(Vec<Interval>, Option<PartitionKey>)> {
    let named = scope.range.as_deref().map(|id| container.range(id)).transpose()?;
    let key = scope.key.as_ref().filter(|key| !key.0.is_empty() || is_system(container));
    let mut within = scope.epk.clone().unwrap_or_else(EpkRange::full);
    let mut prefix = None;
    if let Some(key) = key {
        if container.is_prefix(key) {
            let (min, max) = container.policies.partition_key.prefix_range(key);
            let Some(both) = within.intersect(&EpkRange { min, max }) else {
                return Ok((Vec::new(), None));
            };
            within = both;
            prefix = Some(key.clone());
        } else {
            let key = container.full_key(Some(key))?.expect("a key was given");
            let epk = container.epk(&key);
            let range = container.range_of(&epk);
            let outside = named.is_some_and(|named| named.id != range.id);
            if outside || !within.contains(&epk) {
                return Ok((Vec::new(), None));
            }
            let (from, to) = key::items_of(&PartitionPrefix::new(&epk, &key));
            return Ok((vec![(range.clone(), from, to)], None));
        }
    }
    let ranges = container.ranges.iter();
    let ranges = ranges.filter(|range| named.is_none_or(|named| named.id == range.id));
    let intervals = ranges.filter_map(|range| {
        let part = range.epk.intersect(&within)?;
        let (from, to) = key::items_between(&part.min, &part.max);
        Some((range.clone(), from, to))
    });
    Ok((intervals.collect(), prefix))
}

fn is_system(container: &Container) -> bool {
    container.policies.partition_key.system_key
}

fn epk_of(place: &[u8]) -> Result<Epk> {
    let partition = PartitionPrefix::of(place).map(|(partition, _)| partition);
    partition.and_then(|partition| partition.epk()).ok_or_else(|| {
        Error::bad_request("the continuation token is invalid: it does not name a document")
    })
}

/// All purged partitions of a range.
fn purged(snapshot: &impl Snapshot) -> Result<HashMap<Vec<u8>, u64>> {
    let (from, to) = key::all_of(key::Kind::Purge);
    let mut rows = Vec::new();
    snapshot.scan(
        Bound::Included(&from[..]),
        Bound::Excluded(&to[..]),
        Direction::Forward,
        &mut |key, value| {
            rows.push((key[1..].to_vec(), value.clone()));
            ControlFlow::Continue(())
        },
    )?;
    rows.into_iter().map(|(key, row)| Ok((key, row::decode_u64(&row)?))).collect()
}

impl<P: Snapshot> Scan<P> {
    /// The next document, or the end.
    pub(crate) fn next(&mut self) -> Result<Option<Visited>> {
        loop {
            if let Some(visited) = self.chunk.pop_front() {
                return Ok(Some(visited));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Reads the next chunk; says whether there may be more.
    fn fill(&mut self) -> Result<bool> {
        let Some(slice) = self.slices.front_mut() else { return Ok(false) };
        let mut rows: Vec<(Vec<u8>, Bytes)> = Vec::new();
        let mut bytes = 0;
        let from = match &slice.from {
            Bound::Included(key) => Bound::Included(&key[..]),
            Bound::Excluded(key) => Bound::Excluded(&key[..]),
            Bound::Unbounded => Bound::Unbounded,
        };
        slice.snapshot.scan(
            from,
            Bound::Excluded(&slice.to),
            Direction::Forward,
            &mut |key, value| {
                rows.push((key.to_vec(), value.clone()));
                bytes += value.len();
                if rows.len() >= CHUNK_ITEMS || bytes >= CHUNK_BYTES {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        )?;
        match rows.last() {
            Some((last, _)) => slice.from = Bound::Excluded(last.clone()),
            None => {
                self.slices.pop_front();
                return Ok(true);
            }
        }
        for (key, row) in rows {
            let place = Bytes::from(key).slice(1..);
            let header = ItemHeader::decode(&row)?;
            if self.container.is_expired(&header, self.now_s) {
                continue;
            }
            if !slice.purged.is_empty() || self.prefix.is_some() {
                let (partition, _) =
                    PartitionPrefix::of(&place).ok_or_else(|| corrupt("place of a document"))?;
                let cutoff = slice.purged.get(&partition.row(key::Kind::Purge)[1..]);
                if cutoff.is_some_and(|lsn| header.lsn <= *lsn)
                    || !begins_with(&partition, self.prefix.as_ref())
                {
                    continue;
                }
            }
            self.chunk.push_back(Visited { place, item: Item::decode(&row)? });
        }
        Ok(true)
    }
}

/// Whether the key of a partition begins with a prefix: equal hashes alone do not prove it.
fn begins_with(partition: &PartitionPrefix, prefix: Option<&PartitionKey>) -> bool {
    let Some(prefix) = prefix else { return true };
    partition.partition_key().is_some_and(|key| key.0.starts_with(&prefix.0))
}

impl<P> std::fmt::Debug for Slice<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slice").field("range", &self.range.id).finish_non_exhaustive()
    }
}
