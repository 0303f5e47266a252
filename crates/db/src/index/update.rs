//! Writes the difference that a change of a document makes to the index.

use bytes::Bytes;
use value::Object;

use super::own::OwnKeys;
use super::terms::{Term, Terms};
use super::{entry, own, shape};
use crate::key::{Kind, PartitionPrefix};
use crate::row::{Item, corrupt};
use crate::transaction::Transaction;
use crate::{Error, Result};

/// The terms of a new document as far as they are known before its commit.
#[derive(Debug)]
pub(crate) struct EarlyTerms {
    /// The definition that they were made for.
    pub(crate) definition: u32,
    pub(crate) terms: Terms,
}

/// A document at its place.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub(crate) place: &'a [u8],
    pub(crate) item: &'a Item,
}

/// A document that is about to be stored.
#[derive(Clone, Copy)]
pub(crate) struct New<'a> {
    pub(crate) stored: Stored<'a>,
    pub(crate) body: &'a Object,
    pub(crate) early: Option<&'a EarlyTerms>,
}

/// Moves the entries from what was there before to what comes after. Keeps I1.
pub(crate) fn update(
    txn: &mut Transaction<'_>,
    before: Option<Stored<'_>>,
    after: New<'_>,
) -> Result<()> {
    let definition = txn.in_force.at(after.stored.place).clone();
    let made;
    let early = match after.early {
        Some(early) if early.definition == definition.number => &early.terms,
        _ => {
            made = definition.early_terms(after.body);
            &made
        }
    };
    let late = definition.late_terms(after.stored.item)?;
    check_size(after.stored.place, &[early, &late])?;
    let new = At { place: after.stored.place, terms: [early, &late] };
    match before {
        None => difference(txn, None, Some(new)),
        Some(before) => {
            let old = txn.in_force.at(before.place).clone().terms_of(before.item)?;
            let old = At { place: before.place, terms: [&old[0], &old[1]] };
            difference(txn, Some(old), Some(new))
        }
    }
}

/// Adds the entries of a document that comes from elsewhere. Keeps I1.
pub(crate) fn insert(txn: &mut Transaction<'_>, stored: Stored<'_>) -> Result<()> {
    let [early, late] = txn.in_force.at(stored.place).clone().terms_of(stored.item)?;
    check_size(stored.place, &[&early, &late])?;
    difference(txn, None, Some(At { place: stored.place, terms: [&early, &late] }))
}

/// Removes the entries of a document. Keeps I1.
pub(crate) fn remove(txn: &mut Transaction<'_>, stored: Stored<'_>) -> Result<()> {
    let [early, late] = txn.in_force.at(stored.place).clone().terms_of(stored.item)?;
    difference(txn, Some(At { place: stored.place, terms: [&early, &late] }), None)
}

/// The most that the entries of one document may add up to. A commit has to hold those of a document
/// before and after a change, and other documents.
const ENTRY_BYTES_MAX: usize = 24 * 1024 * 1024;

fn check_size(place: &[u8], terms: &[&Terms]) -> Result<()> {
    let bytes: usize = terms.iter().map(|terms| terms.entry_bytes(place)).sum();
    if bytes > ENTRY_BYTES_MAX {
        return Err(Error::new(
            crate::Kind::TooLarge,
            "Request size is too large: the document has more values than can be indexed; exclude \
             some of its paths in the indexing policy",
        ));
    }
    Ok(())
}

/// Terms at a place, early and late ones.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) place: &'a [u8],
    pub(super) terms: [&'a Terms; 2],
}

impl At<'_> {
    fn contains(&self, place: &[u8], term: Term<'_>) -> bool {
        self.place == place && self.terms.iter().any(|terms| terms.contains(term))
    }

    /// Calls with the key and the row of each entry that is not among those of `other`.
    fn each_beyond(&self, other: Option<&At<'_>>, mut call: impl FnMut(&[u8], Bytes)) {
        let mut key = vec![Kind::Index as u8];
        for term in self.terms.iter().flat_map(|terms| terms.iter()) {
            if other.is_some_and(|other| other.contains(self.place, term)) {
                continue;
            }
            key.truncate(1);
            key.extend_from_slice(term.key);
            key.extend_from_slice(self.place);
            call(&key, entry::row(term.is_respelled));
        }
    }

    /// The same for the entries of the document's partition.
    fn each_own_beyond(
        &self,
        own: &OwnKeys,
        other: Option<&At<'_>>,
        mut call: impl FnMut(&[u8], Bytes),
    ) {
        for term in self.terms.iter().flat_map(|terms| terms.iter()) {
            if !other.is_some_and(|other| other.contains(self.place, term)) {
                call(&own.key(term.key, self.place), entry::row(term.is_respelled));
            }
        }
    }
}

/// Where the entries of a partition are that a document is listed among; nothing if it is not. Counts
/// those that should be.
fn own_keys(txn: &mut Transaction<'_>, at: &At<'_>, change: i64) -> Result<Option<OwnKeys>> {
    let (partition, id) = PartitionPrefix::of(at.place).ok_or_else(|| corrupt("place"))?;
    if !txn.has_own(&partition, id)? {
        return Ok(None);
    }
    if own::is_listed(at.place, &at.terms) {
        return Ok(Some(OwnKeys::of(&partition)));
    }
    let unlisted = &mut txn.counters(&partition)?.unlisted;
    *unlisted = unlisted.saturating_add_signed(change);
    Ok(None)
}

/// Adds the entries of a document to those of its partition. Keeps O1 once the cursor has moved.
pub(super) fn list(
    txn: &mut Transaction<'_>,
    partition: &PartitionPrefix,
    at: At<'_>,
) -> Result<()> {
    if own::is_listed(at.place, &at.terms) {
        at.each_own_beyond(&OwnKeys::of(partition), None, |key, row| txn.view.put(key, row));
    } else {
        txn.counters(partition)?.unlisted += 1;
    }
    Ok(())
}

/// Deletes entries that are no longer there and puts those that are new. Keeps O1 and O2.
pub(super) fn difference(
    txn: &mut Transaction<'_>,
    old: Option<At<'_>>,
    new: Option<At<'_>>,
) -> Result<()> {
    let old_own = old.as_ref().map_or(Ok(None), |old| own_keys(txn, old, -1))?;
    let new_own = new.as_ref().map_or(Ok(None), |new| own_keys(txn, new, 1))?;
    if let Some(old) = &old {
        old.each_beyond(new.as_ref(), |key, _| txn.view.delete(key));
        if let Some(own) = &old_own {
            let kept = new.as_ref().filter(|_| new_own.is_some());
            old.each_own_beyond(own, kept, |key, _| txn.view.delete(key));
        }
    }
    if let Some(new) = &new {
        new.each_beyond(old.as_ref(), |key, row| txn.view.put(key, row));
        if let Some(own) = &new_own {
            let kept = old.as_ref().filter(|_| old_own.is_some());
            new.each_own_beyond(own, kept, |key, row| txn.view.put(key, row));
        }
    }
    txn.touch();
    let shape_of = |at: &Option<At<'_>>| {
        at.as_ref().and_then(|at| Some((at.place.to_vec(), at.terms[0].shape.clone()?)))
    };
    let (old, new) = (shape_of(&old), shape_of(&new));
    if old == new {
        return Ok(());
    }
    if let Some((place, shape)) = old {
        txn.view.delete(&shape::entry(shape.id, &place));
        let count = txn.shape_count(&shape)?;
        *count = count.saturating_sub(1);
    }
    if let Some((place, shape)) = new {
        txn.view.put(&shape::entry(shape.id, &place), Bytes::new());
        *txn.shape_count(&shape)? += 1;
    }
    Ok(())
}
