//! Unique keys: no two documents of a logical partition have the same values at all paths of a
//! constraint.
//!
//! A missing value counts as null and takes part, so that only one document of a partition may lack
//! it. A row holds a SHA-256 of the values, because values may be longer than a key, and the id of
//! the document that owns them.

use bytes::Bytes;
use ring::digest;
use value::{Object, Value, order};

use crate::key::PartitionPrefix;
use crate::row::Item;
use crate::transaction::{Found, Transaction};
use crate::{Error, Kind, Result};

/// Moves the unique keys from what was there before to what comes after.
pub(crate) fn reserve(
    txn: &mut Transaction<'_>,
    partition: &PartitionPrefix,
    before: Option<&Item>,
    id: &str,
    after: &Object,
) -> Result<()> {
    if let Some(before) = before {
        release(txn, partition, before)?;
    }
    for row in rows_of(txn, partition, after) {
        if let Some(owner) = txn.view.get(&row)? {
            free_or_refuse(txn, partition, &owner)?;
        }
        txn.view.put(&row, Bytes::copy_from_slice(id.as_bytes()));
        txn.touch();
    }
    Ok(())
}

/// Gives the unique keys of a document back.
pub(crate) fn release(
    txn: &mut Transaction<'_>,
    partition: &PartitionPrefix,
    item: &Item,
) -> Result<()> {
    for row in rows(txn, partition, item)? {
        txn.view.delete(&row);
        txn.touch();
    }
    Ok(())
}

/// Takes the unique keys for a document that is copied. It has them where it comes from, so whoever
/// holds one here is older than the copy and will follow.
pub(crate) fn take_over(
    txn: &mut Transaction<'_>,
    partition: &PartitionPrefix,
    id: &str,
    item: &Item,
) -> Result<()> {
    for row in rows(txn, partition, item)? {
        txn.view.put(&row, Bytes::copy_from_slice(id.as_bytes()));
        txn.touch();
    }
    Ok(())
}

/// Gives the unique keys back that a copied document still has.
pub(crate) fn give_up(
    txn: &mut Transaction<'_>,
    partition: &PartitionPrefix,
    id: &str,
    item: &Item,
) -> Result<()> {
    for row in rows(txn, partition, item)? {
        if txn.view.get(&row)?.is_some_and(|owner| owner == id.as_bytes()) {
            txn.view.delete(&row);
            txn.touch();
        }
    }
    Ok(())
}

/// A key that is taken: by a document that nobody sees any more, which goes, or it is a conflict.
fn free_or_refuse(
    txn: &mut Transaction<'_>,
    partition: &PartitionPrefix,
    owner: &[u8],
) -> Result<()> {
    let owner = std::str::from_utf8(owner).map_err(|_| crate::row::corrupt("unique key"))?;
    match txn.find(partition, owner)? {
        Found::Live(_) => {
            Err(Error::new(Kind::UniqueConflict, "Unique index constraint violation."))
        }
        Found::Stale(item) => txn.remove_stale(partition, owner, &item),
        Found::Nothing => Err(crate::row::corrupt("unique key without document")),
    }
}

fn rows(txn: &Transaction<'_>, partition: &PartitionPrefix, item: &Item) -> Result<Vec<Vec<u8>>> {
    if txn.container.policies.unique_keys.is_empty() {
        return Ok(Vec::new());
    }
    let document = item.document.to_value();
    let document = document.as_object().ok_or_else(|| crate::row::corrupt("document"))?;
    Ok(rows_of(txn, partition, document))
}

/// The rows that a document occupies; also what `orrery verify` expects.
pub(crate) fn rows_for(
    container: &crate::Container,
    partition: &PartitionPrefix,
    document: &Object,
) -> Vec<Vec<u8>> {
    let constraints = container.policies.unique_keys.iter().enumerate();
    let rows = constraints.map(|(number, constraint)| {
        let mut values = Vec::new();
        for path in &constraint.paths {
            order::encode(Some(path.resolve(document).unwrap_or(&Value::Null)), &mut values);
        }
        let hash = digest::digest(&digest::SHA256, &values);
        let number = u8::try_from(number).expect("a policy has at most ten constraints");
        partition.unique_row(number, hash.as_ref())
    });
    rows.collect()
}

fn rows_of(txn: &Transaction<'_>, partition: &PartitionPrefix, document: &Object) -> Vec<Vec<u8>> {
    rows_for(txn.container, partition, document)
}
