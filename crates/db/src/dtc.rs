//! Transactions across partitions and containers: all of their writes are committed together, or none.
//!
//! Documents of different ranges have nothing to do with each other, so such a transaction is one
//! batch for every range that it touches, and storage commits them together. A row of the meta range
//! goes into the same commit and says what became of the client's token: a client that did not hear
//! the answer asks again with the same token and is told what was done.
//!
//! - D1: what a token stands for is committed at most once, however often and at whatever time it is
//!   asked for, as long as the token is remembered.
//! - D2: only what was committed is remembered. What was refused may be tried again.

use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use storage::{
    Committed, Direction, META_RANGE, Operation, PartError, RangeId, RangeStore, Snapshot, Stop,
    SubmitError, View,
};
use value::{Object, PartitionKey, Value};

use crate::charge::Charge;
use crate::container::{Container, Range};
use crate::database::Db;
use crate::documents::{
    BATCH_OPERATIONS_MAX, Failure, OperationResult, PAGE_BYTES, failed_dependency, failed_result,
    result_of,
};
use crate::gate;
use crate::meta::{self, MetaKind};
use crate::row::corrupt;
use crate::session::{Position, Session};
use crate::transaction::{Transaction, Written};
use crate::write::{self, Commit, Conditions, Prepared, Refused, Write};
use crate::{Error, Kind, Result};

/// How long it is remembered what became of a token. Clients give up after a minute.
const REMEMBERED_S: u64 = 24 * 60 * 60;
/// How many tokens are forgotten with every one that is remembered.
const FORGOTTEN_AT_ONCE: usize = 4;

/// One operation of a transaction across partitions and containers.
#[derive(Clone, Debug)]
pub struct DistributedOperation {
    /// Name or resource id of the database.
    pub database: String,
    /// Name or resource id of the container.
    pub container: String,
    /// The resource id of the container that the client means, where it says so.
    pub intended: Option<String>,
    /// The partition key.
    pub key: PartitionKey,
    /// The id of the document, which its body must have, too.
    pub id: String,
    /// What to do.
    pub write: Write,
    /// On which conditions.
    pub conditions: Conditions,
    /// What the client has seen. Writes always work on what is newest.
    pub session: Option<Session>,
}

/// What became of one operation.
#[derive(Clone, Debug)]
pub struct DistributedResult {
    /// What it gave.
    pub result: OperationResult,
    /// Where it was served, if it came that far.
    pub at: Option<Position>,
}

/// What became of a transaction across partitions and containers.
#[derive(Clone, Debug)]
pub struct DistributedOutcome {
    /// Whether everything was done; else nothing was.
    pub is_done: bool,
    /// The results, one for each operation, in order.
    pub results: Vec<DistributedResult>,
    /// What it cost.
    pub charge: Charge,
}

impl<S: RangeStore> Db<S> {
    /// Writes documents of any partitions and containers, all or none. The results of writes do not
    /// show the documents.
    ///
    /// Of several operations that cannot be done, the result of one says why.
    pub async fn write_distributed(
        &self,
        token: &str,
        operations: Vec<DistributedOperation>,
    ) -> Result<DistributedOutcome, Failure> {
        let count = operations.len();
        check(&operations, false)?;
        if let Some(done) = self.remembered(token)? {
            return Ok(done);
        }
        let mut parts = Parts::default();
        for (at, operation) in operations.into_iter().enumerate() {
            match self.place(at, operation) {
                Ok(placed) => parts.add(placed),
                Err(error) => return Ok(aborted(count, at, &error)),
            }
        }
        let told = Told::new(count);
        let submitted =
            self.submit_parts(&mut parts, |parts| self.steps(parts, token, &told)).await;
        let error = match submitted {
            Ok(_) => return Ok(outcome(told.take()?)),
            Err(error) => error,
        };
        // Keeps D1: whoever came first with this token is the reason, and is there to be seen.
        if let Some(done) = self.remembered(token)? {
            return Ok(done);
        }
        let PartError { part, error } = error;
        let first = |part: usize| parts.0.get(part).and_then(|part| part.offsets.first()).copied();
        match (error, first(part)) {
            (SubmitError::Refused(Refusal::Documents(refused), _), Some(_)) => {
                let at = parts.0[part].offsets[refused.at];
                if refused.error.kind.status() >= 500 {
                    return Err(refused.error.into());
                }
                Ok(aborted(count, at, &refused.error))
            }
            // The container was deleted meanwhile.
            (SubmitError::Storage(storage::Error::NoRange(_)), Some(at)) => {
                Ok(aborted(count, at, &Error::owner_not_found()))
            }
            (SubmitError::Storage(storage::Error::TooLarge), _) => Err(Error::new(
                Kind::TransactionTooLarge,
                "Request size is too large: the transaction writes more than one commit holds",
            )
            .into()),
            (SubmitError::Storage(error), _) => Err(error.into()),
            (SubmitError::Refused(..), _) => Err(corrupt("token of a transaction").into()),
        }
    }

    /// Reads documents of any partitions and containers as they are at one moment.
    pub async fn read_distributed(
        &self,
        operations: Vec<DistributedOperation>,
    ) -> Result<DistributedOutcome, Failure> {
        let count = operations.len();
        check(&operations, true)?;
        let sessions: Vec<_> = operations.iter().map(|read| read.session.clone()).collect();
        let mut results: Vec<Option<DistributedResult>> = vec![None; count];
        let mut parts = Parts::default();
        for (at, operation) in operations.into_iter().enumerate() {
            match self.place(at, operation) {
                Ok(placed) => parts.add(placed),
                Err(error) => results[at] = Some(failed(&error, None)),
            }
        }
        let submitted = self.submit_parts(&mut parts, |parts| self.looks(parts)).await;
        let committed = submitted.map_err(|failed| match failed.error {
            SubmitError::Refused(error, _) => error,
            SubmitError::Storage(error) => error.into(),
        })?;
        let mut answer_bytes = 0;
        for (part, Committed { lsn, output }) in parts.0.iter().zip(committed) {
            let at = part.container.position(&part.range, lsn);
            for (offset, read) in part.offsets.iter().zip(output) {
                let checked = sessions[*offset].as_ref().map_or(Ok(()), |seen| seen.check(&at));
                let read = checked.and(read).and_then(|read| {
                    let document = read.document.as_ref();
                    answer_bytes += document.map_or(0, |document| document.text().len());
                    if answer_bytes > PAGE_BYTES {
                        let told = "Response size is too large";
                        return Err(Error::new(Kind::BatchResponseTooLarge, told));
                    }
                    Ok(read)
                });
                results[*offset] = Some(match read {
                    Ok(read) => DistributedResult { result: result_of(read), at: Some(at.clone()) },
                    Err(error) => failed(&error, Some(at.clone())),
                });
            }
        }
        let results = results.into_iter().map(|read| read.expect("every operation has a place"));
        Ok(if_all_succeeded(results.collect()))
    }

    /// Where an operation belongs, and everything about it that can be checked without looking.
    fn place(&self, offset: usize, operation: DistributedOperation) -> Result<Placed> {
        let DistributedOperation { database, container, intended, key, id, write, .. } = operation;
        let container =
            self.container(&database, &container).map_err(|error| match error.kind {
                Kind::NotFound => Error::owner_not_found(),
                _ => error,
            })?;
        if let Some(rid) = intended {
            self.check_intended(&container, &rid)?;
        }
        if let Write::Create { body } | Write::Upsert { body } | Write::Replace { body, .. } =
            &write
            && body.get("id").and_then(Value::as_str) != Some(&id)
        {
            return Err(Error::bad_request(format!(
                "the id of the document is not that of the operation, '{id}'"
            )));
        }
        let prepared = write::prepare(&container, Some(&key), write, operation.conditions)?;
        let range = container.range_of(&container.epk(&prepared.key)).clone();
        Ok(Placed { container, range, prepared, offset })
    }

    /// Submits what is to be done in each of the ranges, together. While one of them is being
    /// replaced this waits, and then goes to where the operations belong.
    async fn submit_parts<O: Operation>(
        &self,
        parts: &mut Parts,
        operations: impl Fn(&mut Parts) -> Vec<(RangeId, O)>,
    ) -> Result<Vec<Committed<O::Output>>, PartError<O::Refusal>> {
        loop {
            let ranges: Vec<_> = parts.0.iter().map(|part| part.range.clone()).collect();
            let submit = || self.store.submit_all(operations(parts));
            match gate::pass_all(&ranges, submit) {
                Ok(submitted) => return submitted.await,
                Err(closed) => {
                    closed.gate.decided().await;
                    self.find_anew(parts)?;
                }
            }
        }
    }

    /// Sorts the operations into the ranges that there are now.
    fn find_anew<R>(&self, parts: &mut Parts) -> Result<(), PartError<R>> {
        let mut found = Parts::default();
        for (at, part) in parts.0.iter_mut().enumerate() {
            let Some(now) = self.container_now(part.container.rid) else {
                let gone = storage::Error::NoRange(part.range.storage);
                return Err(PartError { part: at, error: SubmitError::Storage(gone) });
            };
            for (prepared, offset) in part.writes.drain(..).zip(part.offsets.drain(..)) {
                let range = now.range_of(&now.epk(&prepared.key)).clone();
                let container = part.container.clone();
                found.add(Placed { container, range, prepared, offset });
            }
        }
        *parts = found;
        Ok(())
    }

    fn looks(&self, parts: &mut Parts) -> Vec<(RangeId, Look)> {
        let now_s = self.clock.now_s();
        let looks = parts.0.iter_mut().map(|part| {
            let reads = std::mem::take(&mut part.writes);
            (part.range.storage, Look { container: part.container.clone(), reads, now_s })
        });
        looks.collect()
    }

    /// What storage has to do for the parts, and for the token.
    fn steps(&self, parts: &mut Parts, token: &str, told: &Told) -> Vec<(RangeId, Step)> {
        let now_s = self.clock.now_s();
        let mut steps: Vec<_> = parts
            .0
            .iter_mut()
            .map(|part| {
                let commit = Commit {
                    container: part.container.clone(),
                    writes: std::mem::take(&mut part.writes),
                    now_s,
                    answer_bytes_max: usize::MAX,
                };
                let (range, offsets) = (part.range.clone(), part.offsets.clone());
                let step = Step::Documents { commit, range, offsets, told: told.clone() };
                (part.range.storage, step)
            })
            .collect();
        let token = token.to_owned();
        steps.push((META_RANGE, Step::Remember { token, now_s, told: told.clone() }));
        steps
    }

    /// What became of a token.
    fn remembered(&self, token: &str) -> Result<Option<DistributedOutcome>> {
        let row = self.store.snapshot(META_RANGE)?.get(&row_of(token))?;
        row.map(|row| Ok(outcome(decode(&row)?))).transpose()
    }
}

/// A transaction reads or writes, and neither nothing nor too much.
fn check(operations: &[DistributedOperation], is_read: bool) -> Result<()> {
    let reads = |operation: &DistributedOperation| matches!(operation.write, Write::Read { .. });
    if operations.iter().any(|operation| reads(operation) != is_read) {
        let told = "the operations of a transaction must all be reads, or all be writes, as the \
                    type of the transaction says";
        return Err(Error::new(Kind::TransactionInvalid, told));
    }
    match operations.len() {
        0 => Err(Error::new(Kind::TransactionInvalid, "the transaction has no operations")),
        1..=BATCH_OPERATIONS_MAX => Ok(()),
        count => Err(Error::new(
            Kind::TransactionTooLong,
            format!("the transaction has {count} operations, more than {BATCH_OPERATIONS_MAX}"),
        )),
    }
}

/// An operation whose place is known.
struct Placed {
    container: Arc<Container>,
    range: Arc<Range>,
    prepared: Prepared,
    /// Where it stands in the transaction.
    offset: usize,
}

/// The operations of a transaction, by range.
#[derive(Default)]
struct Parts(Vec<Part>);

struct Part {
    container: Arc<Container>,
    range: Arc<Range>,
    writes: Vec<Prepared>,
    /// Where the writes stand in the transaction.
    offsets: Vec<usize>,
}

impl Parts {
    fn add(&mut self, placed: Placed) {
        let Placed { container, range, prepared, offset } = placed;
        let same = self.0.iter_mut().find(|part| part.range.storage == range.storage);
        match same {
            Some(part) => {
                part.writes.push(prepared);
                part.offsets.push(offset);
            }
            None => {
                let (writes, offsets) = (vec![prepared], vec![offset]);
                self.0.push(Part { container, range, writes, offsets });
            }
        }
    }
}

/// What is told of a write that was committed, at once and later.
#[derive(Clone, Debug, PartialEq)]
struct Done {
    status: u16,
    etag: Option<String>,
    charge: Charge,
    at: Position,
}

/// What the steps of a commit have to tell so far. They run one after the other, and all of them again
/// if one of them is.
#[derive(Clone, Debug)]
struct Told(Arc<Mutex<Vec<Option<Done>>>>);

impl Told {
    fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![None; count])))
    }

    fn set(&self, offset: usize, done: Done) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[offset] = Some(done);
    }

    fn take(&self) -> Result<Vec<Done>> {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().cloned().collect::<Option<_>>().ok_or_else(|| corrupt("transaction"))
    }
}

/// What a transaction does in one range.
enum Step {
    Documents { commit: Commit, range: Arc<Range>, offsets: Vec<usize>, told: Told },
    Remember { token: String, now_s: u64, told: Told },
}

/// Why a transaction is not carried out.
enum Refusal {
    Documents(Refused),
    /// The token has been used.
    Known,
}

impl Operation for Step {
    type Output = ();
    type Refusal = Refusal;

    fn size_bytes(&self) -> usize {
        match self {
            Step::Documents { commit, .. } => commit.size_bytes(),
            Step::Remember { .. } => 0,
        }
    }

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Refusal>> {
        match self {
            Step::Documents { commit, range, offsets, told } => {
                let written = commit.run(view).map_err(|stop| match stop {
                    Stop::Refused(refused) => Stop::Refused(Refusal::Documents(refused)),
                    Stop::Storage(error) => Stop::Storage(error),
                })?;
                let at = commit.container.position(range, view.lsn());
                for (offset, Written { status, etag, charge, .. }) in offsets.iter().zip(written) {
                    // As it can be remembered.
                    let charge = Charge::of_ru(charge.ru());
                    told.set(*offset, Done { status, etag, charge, at: at.clone() });
                }
                Ok(())
            }
            Step::Remember { token, now_s, told } => {
                if view.get(&row_of(token))?.is_some() {
                    return Err(Stop::Refused(Refusal::Known));
                }
                let failed = |error| Stop::Refused(Refusal::Documents(Refused { at: 0, error }));
                view.put(&row_of(token), encode(&told.take().map_err(failed)?));
                view.put(&time_row(*now_s, token), Bytes::new());
                Ok(forget_some(view, *now_s)?)
            }
        }
    }
}

/// Reads documents and leaves everything as it is.
struct Look {
    container: Arc<Container>,
    reads: Vec<Prepared>,
    now_s: u64,
}

impl Operation for Look {
    type Output = Vec<Result<Written>>;
    type Refusal = Error;

    fn run(&mut self, view: &mut dyn View) -> Result<Self::Output, Stop<Error>> {
        let txn = Transaction::open(view, &self.container, self.now_s).map_err(Stop::Refused)?;
        Ok(self.reads.iter().map(|read| write::look(&txn, read)).collect())
    }
}

fn row_of(token: &str) -> Vec<u8> {
    meta::key(MetaKind::Transaction, token)
}

/// Tokens in the order in which they came.
fn time_row(time_s: u64, token: &str) -> Vec<u8> {
    meta::key(MetaKind::TransactionTime, &format!("{time_s:020} {token}"))
}

/// Forgets what is older than anybody asks for, a little at a time.
fn forget_some(view: &mut dyn View, now_s: u64) -> Result<(), storage::Error> {
    let from = meta::key(MetaKind::TransactionTime, "");
    let to = time_row(now_s.saturating_sub(REMEMBERED_S), "");
    let mut old = Vec::new();
    let (from, to) = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
    view.scan(from, to, Direction::Forward, &mut |key, _| {
        old.push(key.to_vec());
        if old.len() < FORGOTTEN_AT_ONCE {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    for key in old {
        if let Some(space) = key.iter().position(|byte| *byte == b' ') {
            let mut row = row_of("");
            row.extend_from_slice(&key[space + 1..]);
            view.delete(&row);
        }
        view.delete(&key);
    }
    Ok(())
}

fn encode(done: &[Done]) -> Bytes {
    let operations = done.iter().map(|done| {
        let Done { status, etag, charge, at } = done;
        Value::Object(Object::from([
            ("status", Value::from(u32::from(*status))),
            ("etag", etag.as_deref().map_or(Value::Null, Value::from)),
            ("charge", Value::from(charge.ru())),
            ("range", Value::from(at.range.as_str())),
            ("version", Value::from(at.version)),
            ("lsn", Value::from(at.lsn)),
        ]))
    });
    Bytes::from(Value::Array(operations.collect()).to_text())
}

fn decode(row: &[u8]) -> Result<Vec<Done>> {
    let damaged = || corrupt("token of a transaction");
    let operation = |object: &Value| {
        let number = |name: &str| object.get(name).and_then(Value::as_i64);
        let at = Position {
            range: object.get("range")?.as_str()?.to_owned(),
            version: u32::try_from(number("version")?).ok()?,
            lsn: u64::try_from(number("lsn")?).ok()?,
            document_lsn: None,
        };
        Some(Done {
            status: u16::try_from(number("status")?).ok()?,
            etag: object.get("etag")?.as_str().map(str::to_owned),
            charge: Charge::of_ru(object.get("charge")?.as_f64()?),
            at,
        })
    };
    let row = Value::parse(row).map_err(|_| damaged())?;
    let operations = row.as_array().ok_or_else(damaged)?;
    operations.iter().map(operation).collect::<Option<_>>().ok_or_else(damaged)
}

fn outcome(done: Vec<Done>) -> DistributedOutcome {
    let charge = done.iter().map(|done| done.charge).sum();
    let results = done.into_iter().map(|Done { status, etag, charge, at }| DistributedResult {
        result: OperationResult {
            status,
            substatus: 0,
            etag,
            document: None,
            charge,
            message: None,
        },
        at: Some(at),
    });
    DistributedOutcome { is_done: true, results: results.collect(), charge }
}

fn failed(error: &Error, at: Option<Position>) -> DistributedResult {
    DistributedResult { result: failed_result(error), at }
}

/// Nothing was done because of one operation.
fn aborted(count: usize, culprit: usize, error: &Error) -> DistributedOutcome {
    let rolled_back = Error::new(Kind::RolledBack, "rolled back with the transaction");
    let mut results: Vec<_> = (0..count).map(|_| failed(&rolled_back, None)).collect();
    results[culprit] = failed(error, None);
    DistributedOutcome { is_done: false, results, charge: Charge::MINIMUM }
}

/// Reads that succeeded beside one that did not are not shown.
fn if_all_succeeded(mut results: Vec<DistributedResult>) -> DistributedOutcome {
    let is_failed = |read: &DistributedResult| read.result.status >= 400;
    let is_done = !results.iter().any(is_failed);
    let charge = results.iter().map(|read| read.result.charge).sum();
    if !is_done {
        for read in results.iter_mut().filter(|read| !is_failed(read)) {
            read.result = failed_dependency();
        }
    }
    DistributedOutcome { is_done, results, charge }
}
