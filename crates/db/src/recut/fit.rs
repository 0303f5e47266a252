//! Decides which ranges to split, and where.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use storage::{Direction, RangeStore, Snapshot};
use value::Epk;

use crate::container::{Container, Range};
use crate::database::Db;
use crate::key;
use crate::row::{PartitionCounters, corrupt};
use crate::{Error, Result};

/// What a range may hold before it is split: as much as the service puts into one.
const RANGE_BYTES_MAX: u64 = 50 * 1024 * 1024 * 1024;
/// With fewer documents, where they lie says nothing of where others will.
const TELLING_ITEMS: u64 = 1_000;

impl<S: RangeStore> Db<S> {
    /// Splits ranges until every container has as many as its throughput asks for, and none is too
    /// large.
    pub async fn fit_ranges(self: &Arc<Self>) -> Result<()> {
        let containers: Vec<_> = self.catalog.load().containers().cloned().collect();
        for container in containers {
            match self.fit_container(&container).await {
                // It was deleted meanwhile.
                Err(error) if error.kind == crate::Kind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }

    async fn fit_container(self: &Arc<Self>, container: &Container) -> Result<()> {
        loop {
            let container = self.container_now(container.rid).ok_or_else(Error::not_found)?;
            let Some(range) = self.unfit_range(&container)? else { return Ok(()) };
            self.split_range(&container, &range.id, None).await?;
        }
    }

    /// Whether ranges of the container have still to be split for its throughput.
    pub fn is_scaling(&self, container: &Container) -> bool {
        container.ranges.len() < self.wanted_ranges(container)
    }

    fn wanted_ranges(&self, container: &Container) -> usize {
        let catalog = self.catalog.load();
        let offer = catalog.offer_of(&container.self_link);
        offer
            .and_then(|(_, offer)| crate::offer::throughput_of(offer))
            .map_or(1, |throughput| throughput.range_count(self.range_throughput))
    }

    /// The range that should be split next, if any should and can be.
    fn unfit_range(&self, container: &Container) -> Result<Option<Arc<Range>>> {
        let is_scaling = self.is_scaling(container);
        let mut unfit: Option<(u64, u128, &Arc<Range>)> = None;
        for range in &container.ranges {
            let size = self.range_header(range)?.bytes;
            let can_be_cut = match (is_scaling, size > RANGE_BYTES_MAX) {
                (true, _) => self.middle(range)?.is_some(),
                // Cutting off nothing would not make it smaller.
                (false, true) => self.middle_of_data(range)?.is_some(),
                (false, false) => false,
            };
            let (size, width) = (size, range.epk.width());
            if can_be_cut && unfit.is_none_or(|(most, widest, _)| (size, width) > (most, widest)) {
                unfit = Some((size, width, range));
            }
        }
        Ok(unfit.map(|(_, _, range)| range.clone()))
    }

    /// Where to cut a range: where its data is halved, or, with too little of it to say, the hashes.
    pub(super) fn middle(&self, range: &Range) -> Result<Option<Epk>> {
        let by_hash = range.epk.middle();
        if by_hash.is_some() && self.range_header(range)?.items < TELLING_ITEMS {
            return Ok(by_hash);
        }
        Ok(self.middle_of_data(range)?.or(by_hash))
    }

    /// The key that halves the data of a range; nothing where all is of one hash.
    fn middle_of_data(&self, range: &Range) -> Result<Option<Epk>> {
        let snapshot = self.store.snapshot(range.storage)?;
        let half = self.range_header(range)?.bytes / 2;
        let (from, to) = key::all_of(key::Kind::Partition);
        let (mut before, mut first, mut middle, mut trouble) = (0, None, None, None);
        let bounds = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        snapshot.scan(bounds.0, bounds.1, Direction::Forward, &mut |key, row| {
            match (key::epk_of(&key[1..]), PartitionCounters::decode(row)) {
                (Some(epk), Ok(counters)) => {
                    before += counters.bytes;
                    match &first {
                        None => first = Some(epk),
                        Some(first) if epk > *first => middle = Some(epk),
                        // Partitions of the same hash stay together.
                        Some(_) => {}
                    }
                }
                (_, Err(error)) => trouble = Some(error),
                (None, _) => trouble = Some(corrupt("partition")),
            }
            let is_found = before >= half && middle.is_some();
            let is_over = is_found || trouble.is_some();
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        trouble.map_or(Ok(middle), Err)
    }
}
