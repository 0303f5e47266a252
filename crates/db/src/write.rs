//! The one path by which a document changes.
//!
//! - W1: a document and everything that hangs on it (feed pointer, events, unique keys, index entries,
//!   expiry, counters) change in the same commit.
//! - W2: an etag is never reused for the same document: it is made of the commit's lsn, or of a number
//!   that is given to one write of a script only.
//! - W3: a refused write leaves nothing behind but its charge.
//!
//! A single write is a batch of one. What can be checked without looking at the range is checked by
//! [`prepare`] on the thread of the request; [`apply`] runs inside the commit, where nothing else
//! moves, and may be run again.

use std::borrow::Cow;
use std::sync::Arc;

use storage::{Operation, Stop, View};
use value::{DocumentRid, Object, PartitionKey, Patch, Value};

use crate::change_feed::event::{ChangeKind, Event};
use crate::charge::Charge;
use crate::container::Container;
use crate::document::{self, Moment};
use crate::index::update::{self, EarlyTerms, New, Stored};
use crate::key::PartitionPrefix;
use crate::precondition;
use crate::row::Item;
use crate::transaction::{Found, Transaction, Written};
use crate::{Error, Kind, Result, unique};

/// How a client addresses one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// By the id that the client chose.
    Id(String),
    /// By the resource id that the server chose.
    Rid(String),
}

/// What a client wants done with one document.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Write {
    Create {
        body: Value,
    },
    Upsert {
        body: Value,
    },
    Replace {
        address: Address,
        body: Value,
    },
    Patch {
        address: Address,
        patch: Patch,
    },
    Delete {
        address: Address,
    },
    /// A read as part of a batch: it sees the batch's own writes.
    Read {
        address: Address,
    },
}

/// The etags that must or must not match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Only if the document has this etag.
    pub if_match: Option<String>,
    /// Only if the document does not have this etag.
    pub if_none_match: Option<String>,
}

/// A write that can be applied: its partition is known and its body is in order.
pub(crate) struct Prepared {
    pub(crate) key: PartitionKey,
    pub(crate) partition: PartitionPrefix,
    action: Action,
    conditions: Conditions,
    /// What the body has in the index, where there is a body.
    terms: Option<EarlyTerms>,
}

enum Action {
    Create { id: String, body: Object },
    Upsert { id: String, body: Object },
    Replace { target: Target, id: String, body: Object },
    Patch { target: Target, patch: Patch, condition: Option<Box<query::Predicate>> },
    Delete { target: Target },
    Read { target: Target },
}

/// An address that was looked at.
#[derive(Debug)]
enum Target {
    Id(String),
    Rid(DocumentRid),
    /// A resource id that cannot be one of this container: nothing is there.
    Nowhere,
}

/// Checks everything about a write that needs no look at the data.
pub(crate) fn prepare(
    container: &Container,
    key: Option<&PartitionKey>,
    write: Write,
    conditions: Conditions,
) -> Result<Prepared> {
    let given = container.full_key(key)?;
    let (action, key) = match write {
        Write::Create { body } => {
            let (body, id) = document::object_and_id(body)?;
            let key = key_of_body(container, given, &body)?;
            (Action::Create { id, body }, key)
        }
        Write::Upsert { body } => {
            let (body, id) = document::object_and_id(body)?;
            let key = key_of_body(container, given, &body)?;
            (Action::Upsert { id, body }, key)
        }
        Write::Replace { address, body } => {
            let key = required(container, given)?;
            let (body, id) = document::object_and_id(body)?;
            let key = key_of_body(container, Some(key), &body)?;
            (Action::Replace { target: target(container, address), id, body }, key)
        }
        Write::Patch { address, patch } => {
            let geospatial = container.policies.geospatial;
            let read = |text: &str| query::condition(text, geospatial);
            let condition = patch.condition.as_deref().map(read).transpose();
            let condition = condition.map_err(|error| Error::bad_request(error.message()))?;
            let target = target(container, address);
            let condition = condition.map(Box::new);
            (Action::Patch { target, patch, condition }, required(container, given)?)
        }
        Write::Delete { address } => {
            (Action::Delete { target: target(container, address) }, required(container, given)?)
        }
        Write::Read { address } => {
            (Action::Read { target: target(container, address) }, required(container, given)?)
        }
    };
    container.check_key_size(&key)?;
    let partition = PartitionPrefix::new(&container.epk(&key), &key);
    let terms = action.body().map(|body| {
        let definition = &container.index.newest;
        EarlyTerms { definition: definition.number, terms: definition.early_terms(body) }
    });
    Ok(Prepared { key, partition, action, conditions, terms })
}

/// The key of a document, which must be the one given with the request if there is one.
fn key_of_body(
    container: &Container,
    given: Option<PartitionKey>,
    body: &Object,
) -> Result<PartitionKey> {
    let key = container.extract_key(body);
    match given {
        Some(given) if given != key => Err(Error::new(
            Kind::PartitionKeyMismatch,
            "PartitionKey extracted from document doesn't match the one specified in the header. \
             Learn more: https://aka.ms/CosmosDB/sql/errors/wrong-pk-value",
        )),
        _ => Ok(key),
    }
}

fn required(container: &Container, given: Option<PartitionKey>) -> Result<PartitionKey> {
    match given {
        Some(key) => Ok(key),
        // A container without a key has one partition only.
        None if container.policies.partition_key.system_key => Ok(container.undefined_key()),
        None => Err(Error::bad_request("PartitionKey value must be supplied for this operation.")),
    }
}

fn target(container: &Container, address: Address) -> Target {
    match address {
        Address::Id(id) => Target::Id(id),
        Address::Rid(rid) => match DocumentRid::parse(&rid) {
            Ok(rid) if rid.container == container.rid => Target::Rid(rid),
            _ => Target::Nowhere,
        },
    }
}

/// The stages of a write, in order. This list is what a write is.
pub(crate) fn apply(txn: &mut Transaction<'_>, write: &Prepared) -> Result<Written> {
    let (current_id, before) = locate(txn, write)?;
    if let Action::Read { .. } = write.action {
        return read(before.as_ref(), &write.conditions);
    }
    precondition::check(write.intent(), &write.conditions, before.as_ref())?;
    if let Action::Delete { .. } = write.action {
        return delete(txn, write, &current_id, before);
    }
    let (id, body) = body_after(txn, write, &current_id, before.as_ref())?;
    let after = build(txn, before.as_ref(), &body)?;
    unique::reserve(txn, &write.partition, before.as_ref(), id, &body)?;
    index(
        txn,
        write,
        before.as_ref().map(|before| (&current_id[..], before)),
        (id, &after),
        &body,
    )?;
    if let Some(before) = &before {
        txn.unstore(&write.partition, &current_id, before)?;
    }
    check_partition_size(txn, write, &after)?;
    txn.store(&write.partition, id, &after)?;
    txn.record(|ts| Event::written(ts, write.partition.place(id), before.as_ref(), &after));
    Ok(written(write, before.as_ref(), after))
}

/// The document that a write would change, if what must be true of it is; for what runs before the
/// write. Of a create nothing must be true yet, as it may still get another id.
pub(crate) fn before(txn: &mut Transaction<'_>, write: &Prepared) -> Result<Option<Item>> {
    let (_, before) = locate(txn, write)?;
    if write.intent() != precondition::Intent::Create {
        precondition::check(write.intent(), &write.conditions, before.as_ref())?;
    }
    Ok(before)
}

/// Reads a document by its id and leaves everything as it is, also what is stale.
pub(crate) fn look(txn: &Transaction<'_>, read: &Prepared) -> Result<Written> {
    let Action::Read { target: Target::Id(id) } = &read.action else {
        return Err(Error::not_found());
    };
    match txn.find(&read.partition, id)? {
        Found::Live(item) => self::read(Some(&item), &read.conditions),
        Found::Nothing | Found::Stale(_) => Err(Error::not_found()),
    }
}

/// The document that the write is about. What is stale is removed on the way.
fn locate(txn: &mut Transaction<'_>, write: &Prepared) -> Result<(String, Option<Item>)> {
    let id = match &write.action {
        Action::Create { id, .. } | Action::Upsert { id, .. } => id.clone(),
        Action::Replace { target, .. }
        | Action::Patch { target, .. }
        | Action::Delete { target }
        | Action::Read { target } => match target {
            Target::Id(id) => id.clone(),
            Target::Nowhere => return Ok((String::new(), None)),
            Target::Rid(rid) => {
                let Some(place) = txn.place_of_rid(rid.ordinal)? else {
                    return Ok((String::new(), None));
                };
                match PartitionPrefix::of(&place) {
                    Some((partition, id)) if partition == write.partition => {
                        String::from_utf8(id.to_vec())
                            .map_err(|_| crate::row::corrupt("resource id"))?
                    }
                    // Another partition's document is not visible from here.
                    Some(_) => return Ok((String::new(), None)),
                    None => return Err(crate::row::corrupt("resource id")),
                }
            }
        },
    };
    let before = live_or_removed(txn, &write.partition, &id)?;
    Ok((id, before))
}

fn live_or_removed(
    txn: &mut Transaction<'_>,
    partition: &PartitionPrefix,
    id: &str,
) -> Result<Option<Item>> {
    match txn.find(partition, id)? {
        Found::Nothing => Ok(None),
        Found::Live(item) => Ok(Some(*item)),
        Found::Stale(item) => {
            txn.remove_stale(partition, id, &item)?;
            Ok(None)
        }
    }
}

/// The id and body that the document has afterwards.
fn body_after<'a>(
    txn: &mut Transaction<'_>,
    write: &'a Prepared,
    current_id: &'a str,
    before: Option<&Item>,
) -> Result<(&'a str, Cow<'a, Object>)> {
    match (&write.action, before) {
        (Action::Create { id, body } | Action::Upsert { id, body }, _) => {
            Ok((id, Cow::Borrowed(body)))
        }
        (Action::Replace { id, body, .. }, _) => {
            // A replace may carry another id: the document is renamed and keeps its resource id.
            if id != current_id && live_or_removed(txn, &write.partition, id)?.is_some() {
                return Err(precondition::id_taken());
            }
            Ok((id, Cow::Borrowed(body)))
        }
        (Action::Patch { patch, condition, .. }, Some(before)) => {
            let current = before.document.to_value();
            if let Some(condition) = condition
                && !condition.holds(&current)
            {
                return Err(Error::new(
                    Kind::PatchConditionFailed,
                    Error::precondition_failed().message,
                ));
            }
            let user = before.document.to_user_object();
            let body = patch.apply(&user, &txn.container.policies.partition_key.paths)?;
            if body.depth() > value::DEPTH_MAX {
                return Err(Error::bad_request("the patched document is nested too deeply"));
            }
            Ok((current_id, Cow::Owned(body)))
        }
        (Action::Patch { .. } | Action::Delete { .. } | Action::Read { .. }, _) => {
            Err(Error::not_found())
        }
    }
}

fn build(txn: &mut Transaction<'_>, before: Option<&Item>, body: &Object) -> Result<Item> {
    let rid_ordinal = match before {
        Some(before) => before.header.rid_ordinal,
        None => txn.next_rid_ordinal(),
    };
    let moment = Moment {
        lsn: txn.lsn(),
        commit_ordinal: txn.next_commit_ordinal(),
        ts: txn.ts,
        rid_ordinal,
        script_number: txn.script_number,
    };
    if let Some(number) = txn.script_number {
        let next = &mut txn.header.next_script_ordinal;
        *next = (*next).max(number + 1);
    }
    document::build(txn.container, body, &moment)
}

/// Moves the index entries from the document before to the document after.
fn index(
    txn: &mut Transaction<'_>,
    write: &Prepared,
    before: Option<(&str, &Item)>,
    after: (&str, &Item),
    body: &Object,
) -> Result<()> {
    let place_before = before.map(|(id, _)| write.partition.place(id)).unwrap_or_default();
    let before = before.map(|(_, item)| Stored { place: &place_before, item });
    let place = write.partition.place(after.0);
    let stored = Stored { place: &place, item: after.1 };
    update::update(txn, before, New { stored, body, early: write.terms.as_ref() })
}

/// The service's limit for one logical partition: 20 GB.
const PARTITION_BYTES_MAX: u64 = 20 * 1024 * 1024 * 1024;

fn check_partition_size(txn: &mut Transaction<'_>, write: &Prepared, after: &Item) -> Result<()> {
    let bytes = txn.counters(&write.partition)?.bytes + after.document.text().len() as u64;
    if bytes > PARTITION_BYTES_MAX {
        return Err(Error::new(Kind::PartitionFull, "Partition key reached maximum size of 20 GB"));
    }
    Ok(())
}

fn read(before: Option<&Item>, conditions: &Conditions) -> Result<Written> {
    let item = before.ok_or_else(Error::not_found)?;
    let size = item.document.text().len();
    let etag = precondition::etag_of(item);
    if conditions.if_match.as_deref().is_some_and(|wanted| !etag.matches(wanted)) {
        return Err(Error::precondition_failed());
    }
    let not_modified =
        conditions.if_none_match.as_deref().is_some_and(|wanted| etag.matches(wanted));
    Ok(Written {
        status: if not_modified { 304 } else { 200 },
        document: (!not_modified).then(|| item.document.clone()),
        etag: Some(etag.to_string()),
        document_lsn: Some(item.header.lsn),
        charge: if not_modified { Charge::MINIMUM } else { Charge::read(size) },
    })
}

fn delete(
    txn: &mut Transaction<'_>,
    write: &Prepared,
    id: &str,
    before: Option<Item>,
) -> Result<Written> {
    let before = before.ok_or_else(Error::not_found)?;
    unique::release(txn, &write.partition, &before)?;
    update::remove(txn, Stored { place: &write.partition.place(id), item: &before })?;
    txn.unstore(&write.partition, id, &before)?;
    let place = write.partition.place(id);
    txn.record(|ts| Event::removed(ChangeKind::Delete, ts, place, &before));
    Ok(Written {
        status: 204,
        document: None,
        etag: None,
        document_lsn: None,
        charge: Charge::delete(before.document.text().len(), before.header.terms),
    })
}

fn written(write: &Prepared, before: Option<&Item>, after: Item) -> Written {
    let size = after.document.text().len();
    let mut charge = match before {
        None => Charge::create(size, after.header.terms),
        Some(before) => Charge::replace(size, before.header.terms, after.header.terms),
    };
    if let Action::Patch { patch, .. } = &write.action {
        charge += Charge::patch_operations(patch.operations.len());
    }
    Written {
        status: if before.is_some() { 200 } else { 201 },
        etag: Some(precondition::etag_of(&after).to_string()),
        document_lsn: Some(after.header.lsn),
        document: Some(after.document),
        charge,
    }
}

impl Prepared {
    /// Roughly what the write holds in memory while it waits.
    pub(crate) fn size_bytes(&self) -> usize {
        let terms = self.terms.as_ref().map_or(0, |early| early.terms.size_bytes());
        terms + self.action.size_bytes()
    }

    fn intent(&self) -> precondition::Intent {
        match self.action {
            Action::Create { .. } => precondition::Intent::Create,
            Action::Upsert { .. } => precondition::Intent::Upsert,
            _ => precondition::Intent::Change,
        }
    }
}

impl Action {
    /// The document that the client sent, where it sent one.
    fn body(&self) -> Option<&Object> {
        match self {
            Action::Create { body, .. }
            | Action::Upsert { body, .. }
            | Action::Replace { body, .. } => Some(body),
            Action::Patch { .. } | Action::Delete { .. } | Action::Read { .. } => None,
        }
    }

    fn size_bytes(&self) -> usize {
        match self {
            Action::Create { body, .. }
            | Action::Upsert { body, .. }
            | Action::Replace { body, .. } => body.iter().map(|(_, value)| weight(value)).sum(),
            Action::Patch { patch, .. } => patch
                .operations
                .iter()
                .filter_map(|operation| operation.value.as_ref())
                .map(weight)
                .sum(),
            Action::Delete { .. } | Action::Read { .. } => 0,
        }
    }
}

fn weight(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(object) => {
                object.iter().map(|(name, value)| name.len() + weight(value)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

/// Writes that are committed together or not at all.
pub(crate) struct Commit {
    pub(crate) container: Arc<Container>,
    pub(crate) writes: Vec<Prepared>,
    pub(crate) now_s: u64,
    /// More returned documents than this are too much for one answer.
    pub(crate) answer_bytes_max: usize,
}

/// Which of the writes was refused, and why.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) at: usize,
    pub(crate) error: Error,
}

impl Operation for Commit {
    type Output = Vec<Written>;
    type Refusal = Refused;

    fn size_bytes(&self) -> usize {
        self.writes.iter().map(Prepared::size_bytes).sum()
    }

    fn run(&mut self, view: &mut dyn View) -> Result<Vec<Written>, Stop<Refused>> {
        let refuse = |at, error| Stop::Refused(Refused { at, error });
        let mut txn = Transaction::open(view, &self.container, self.now_s)
            .map_err(|error| refuse(0, error))?;
        let mut results = Vec::with_capacity(self.writes.len());
        let mut answer_bytes = 0;
        for (at, write) in self.writes.iter().enumerate() {
            let written = apply(&mut txn, write).map_err(|error| refuse(at, error))?;
            answer_bytes += written.document.as_ref().map_or(0, |document| document.text().len());
            if answer_bytes > self.answer_bytes_max {
                let error = Error::new(Kind::BatchResponseTooLarge, "Response size is too large");
                return Err(refuse(at, error));
            }
            results.push(written);
        }
        txn.finish();
        Ok(results)
    }
}
