//! Cuts the ranges of a container anew: one range becomes two, or two become one.
//!
//! The new ranges are filled while the old ones are in use. What is written meanwhile is noted and
//! copied after it; in the end the old ranges are closed for the moment that it takes to copy the
//! rest, and one commit of the catalog puts the new ones in their place. Before that commit the old
//! ranges are the truth and a crash leaves nothing but leftovers, which the next opening erases; after
//! it, the new ones are.
//!
//! - S1: a document keeps its lsn, so a feed goes on in the new range where it was in the old one.
//! - S2: the lsn of a new range is not below that of any range it comes from, so session tokens keep
//!   their meaning.
//! - S3: requests that found the old ranges in the catalog may read them to the end: they are erased
//!   when nobody has them any more.

mod changes;
mod copy;
mod fit;

use std::sync::Arc;

use storage::{RangeId, RangeStore, Snapshot};
use value::{Epk, EpkRange};

pub(crate) use changes::Changes;
use copy::Copying;

use crate::container::{Container, Range};
use crate::database::Db;
use crate::{Error, Kind, Result};

/// What a split or merge has left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recut {
    /// The ranges that are gone, as clients name them.
    pub old: Vec<String>,
    /// The ranges that took over, in order.
    pub new: Vec<String>,
}

/// Which ranges are to be replaced, and where the new ones lie.
struct Plan {
    old: Vec<Arc<Range>>,
    slices: Vec<EpkRange>,
}

/// How often a new attempt is made when the definition of the container changes meanwhile.
const ATTEMPTS: usize = 3;

impl<S: RangeStore> Db<S> {
    /// Splits a range in two, at a key, or where its data is halved.
    pub async fn split_range(
        self: &Arc<Self>,
        container: &Container,
        range: &str,
        at: Option<Epk>,
    ) -> Result<Recut> {
        let id = range.to_owned();
        self.recut(container, move |db, container| {
            let range = container.range(&id)?.clone();
            let at = match &at {
                Some(at) => at.clone(),
                None => db.middle(&range)?.ok_or_else(|| too_narrow(&id))?,
            };
            if at <= range.epk.min || at >= range.epk.max {
                return Err(Error::bad_request(format!(
                    "the range '{id}' lies between '{}' and '{}': it cannot be split at '{at}'",
                    range.epk.min, range.epk.max
                )));
            }
            let left = EpkRange { min: range.epk.min.clone(), max: at.clone() };
            let right = EpkRange { min: at, max: range.epk.max.clone() };
            Ok(Plan { old: vec![range], slices: vec![left, right] })
        })
        .await
    }

    /// Makes one range of two that lie side by side.
    pub async fn merge_ranges(
        self: &Arc<Self>,
        container: &Container,
        one: &str,
        other: &str,
    ) -> Result<Recut> {
        let (one, other) = (one.to_owned(), other.to_owned());
        self.recut(container, move |_, container| {
            let mut old = [container.range(&one)?.clone(), container.range(&other)?.clone()];
            old.sort_by(|left, right| left.epk.min.cmp(&right.epk.min));
            let [left, right] = &old;
            if left.epk.max != right.epk.min {
                return Err(Error::bad_request(format!(
                    "the ranges '{one}' and '{other}' do not lie side by side: they cannot be merged"
                )));
            }
            let slice = EpkRange { min: left.epk.min.clone(), max: right.epk.max.clone() };
            Ok(Plan { old: old.to_vec(), slices: vec![slice] })
        })
        .await
    }

    /// Cuts ranges anew, to the end, also when the client leaves.
    async fn recut(
        self: &Arc<Self>,
        container: &Container,
        plan: impl Fn(&Self, &Container) -> Result<Plan> + Send + Sync + 'static,
    ) -> Result<Recut> {
        let (db, rid) = (self.clone(), container.rid);
        let recutting = tokio::spawn(async move {
            let _turn = db.recutting.lock().await;
            for _ in 0..ATTEMPTS {
                let container = db.container_now(rid).ok_or_else(Error::not_found)?;
                let plan = plan(&db, &container)?;
                if let Some(recut) = db.recut_once(&container, plan).await? {
                    db.erase_retired().await?;
                    return Ok(recut);
                }
            }
            Err(Error::new(
                Kind::Unavailable,
                "the definition of the container keeps changing; try again when it does not",
            ))
        });
        recutting.await.map_err(crate::database::stopping)?
    }

    /// One attempt; nothing when it has to be made again.
    async fn recut_once(&self, container: &Arc<Container>, plan: Plan) -> Result<Option<Recut>> {
        let new = self.new_ranges(container, &plan).await?;
        let mut copying = Copying::start(self, container, &plan.old, &new);
        let recut = Recut { old: ids(&plan.old), new: ids(&new) };
        tracing::info!(container = container.name_path(), old = ?recut.old, new = ?recut.new,
            "cutting ranges anew");
        let published = match copying.copy().await {
            Ok(closed) => self.take_over(container, &plan.old, &new).await.inspect(|is_done| {
                if *is_done {
                    closed.end();
                }
            }),
            Err(error) => Err(error),
        };
        if !matches!(published, Ok(true)) {
            for range in &new {
                self.store.erase(range.storage).await?;
            }
        }
        Ok(published?.then_some(recut))
    }

    /// Makes empty ranges that nobody sees yet.
    async fn new_ranges(&self, container: &Container, plan: &Plan) -> Result<Vec<Arc<Range>>> {
        // The numbers are taken in a commit of their own: a crash may waste them, but never lets
        // two ranges have the same one.
        let settings = self.lock_settings().await;
        let mut next = settings.clone();
        // No range that is there has a lower number than one that went, so the greatest will do.
        let newest = container.ranges.iter().map(|range| range.number).max().unwrap_or(0);
        let parents = parents_of(&plan.old);
        let new: Vec<Arc<Range>> = (newest + 1..)
            .zip(&plan.slices)
            .map(|(number, epk)| {
                next.last_range += 1;
                let storage = RangeId(next.last_range);
                Arc::new(Range::new(number, storage, epk.clone(), parents.clone()))
            })
            .collect();
        let unchanged = crate::catalog::Catalog::clone(&self.catalog.load());
        drop(self.publish(settings, next, unchanged, crate::meta::Change::default()).await?);
        self.create_ranges(container.rid, &new, container.index.newest.number).await?;
        Ok(new)
    }

    /// Puts the new ranges in the place of the old ones, unless what they were made for has changed.
    async fn take_over(
        &self,
        container: &Container,
        old: &[Arc<Range>],
        new: &[Arc<Range>],
    ) -> Result<bool> {
        let mut edit = self.edit(&container.database_id).await?;
        let current = edit.owner.container(&container.id).cloned();
        let current = current.filter(|current| current.rid == container.rid);
        let current = current.ok_or_else(Error::not_found)?;
        if current.index.newest.number != container.index.newest.number {
            return Ok(false);
        }
        let is_old = |range: &Arc<Range>| old.iter().any(|old| old.storage == range.storage);
        let mut ranges: Vec<_> =
            current.ranges.iter().filter(|range| !is_old(range)).chain(new).cloned().collect();
        ranges.sort_by(|left, right| left.epk.min.cmp(&right.epk.min));
        self.change_container(&mut edit, Container { ranges, ..current.same() });
        self.save(edit).await?;
        let mut retired = self.retired.lock().expect("nothing panics while it holds this");
        retired.extend(old.iter().cloned());
        Ok(true)
    }

    /// Erases ranges that were replaced, once nobody reads them any more.
    pub(crate) async fn erase_retired(&self) -> Result<()> {
        let is_unused = |range: &mut Arc<Range>| Arc::strong_count(range) == 1;
        let unused: Vec<_> = {
            let mut retired = self.retired.lock().expect("nothing panics while it holds this");
            retired.extract_if(.., is_unused).collect()
        };
        for range in unused {
            self.store.erase(range.storage).await?;
        }
        Ok(())
    }

    /// How far the ranges that are being replaced have come.
    fn lsn_of(&self, ranges: &[Arc<Range>]) -> Result<u64> {
        let mut greatest = 0;
        for range in ranges {
            greatest = greatest.max(self.store.snapshot(range.storage)?.lsn());
        }
        Ok(greatest)
    }
}

fn ids(ranges: &[Arc<Range>]) -> Vec<String> {
    ranges.iter().map(|range| range.id.clone()).collect()
}

/// All ancestors of a range that comes from these, oldest first.
fn parents_of(old: &[Arc<Range>]) -> Vec<String> {
    let mut parents: Vec<String> = Vec::new();
    let ancestors = old.iter().flat_map(|range| range.parents.iter());
    for id in ancestors.chain(old.iter().map(|range| &range.id)) {
        if !parents.contains(id) {
            parents.push(id.clone());
        }
    }
    parents
}

fn too_narrow(id: &str) -> Error {
    Error::bad_request(format!(
        "the range '{id}' cannot be split: there is no key between its ends that would cut it"
    ))
}
