//! Requests about documents: single writes, batches, point reads, feeds.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use storage::{Operation, RangeStore, Snapshot, Stop, SubmitError, View};
use value::{Document, DocumentRid, PartitionKey, Parts};

use crate::access::choose::Choice;
use crate::charge::Charge;
use crate::container::{Container, Range};
use crate::continuation::{Cursor, Subject};
use crate::database::Db;
use crate::explain::IndexUse;
use crate::key::{self, PartitionPrefix};
use crate::ration::Effort;
use crate::row::{self, Item};
use crate::scan::Scope;
use crate::session::{Position, Session};
use crate::transaction::{Transaction, Written};
use crate::walk::{Ended, Walk};
use crate::write::{self, Address, Commit, Conditions, Prepared, Refused, Write};
use crate::{Error, Kind, Result, precondition};

/// What a request about one document gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// 200, 201, 204 or 304.
    pub status: u16,
    /// The document, where there is one to show.
    pub document: Option<Document>,
    /// Its etag, with the quotes.
    pub etag: Option<String>,
    /// Where it was served.
    pub at: Position,
    /// What it cost.
    pub charge: Charge,
}

/// A request that failed, with what the client still learns from it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What went wrong.
    pub error: Error,
    /// Where it was served, if it came that far: also a refusal moves a session on.
    pub at: Option<Position>,
    /// What it cost.
    pub charge: Charge,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { error, at: None, charge: Charge::MINIMUM }
    }
}

impl From<storage::Error> for Failure {
    fn from(error: storage::Error) -> Self {
        Error::from(error).into()
    }
}

/// One operation of a batch or bulk request.
#[derive(Clone, Debug)]
pub struct BatchOperation {
    /// The partition key, where each operation has its own.
    pub key: Option<PartitionKey>,
    /// What to do.
    pub write: Write,
    /// On which conditions.
    pub conditions: Conditions,
}

/// The result of one operation of a batch.
#[derive(Clone, Debug)]
pub struct OperationResult {
    /// The status of this operation.
    pub status: u16,
    /// The sub-status, 0 if none.
    pub substatus: u32,
    /// The etag, with the quotes.
    pub etag: Option<String>,
    /// The document, where there is one to show.
    pub document: Option<Document>,
    /// What it cost.
    pub charge: Charge,
    /// What went wrong, if anything did.
    pub message: Option<String>,
}

/// The results of a batch, one for each operation, in order.
#[derive(Clone, Debug)]
pub struct BatchOutcome {
    /// The results.
    pub results: Vec<OperationResult>,
    /// Where it was served; a bulk request may touch several ranges.
    pub at: Vec<Position>,
    /// What it cost.
    pub charge: Charge,
}

/// A page of a feed.
#[derive(Clone, Debug, Default)]
pub struct FeedPage {
    /// JSON texts.
    pub rows: Vec<Bytes>,
    /// Where the next page starts; nothing at the end.
    pub continuation: Option<String>,
    /// The versions that were read.
    pub at: Vec<Position>,
    /// What it cost.
    pub charge: Charge,
    /// How many documents were read for it, and their size.
    pub loaded_documents: u64,
    /// The size of the documents that were read.
    pub loaded_bytes: u64,
    /// Which indexes a query uses, where the client wants to know.
    pub index_use: Option<IndexUse>,
    /// The ids of the service's advice on the query.
    pub advice: Vec<&'static str>,
}

/// Which page of a feed a client wants.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// At most so many rows; the server decides if there is no number.
    pub items_max: Option<usize>,
    /// What the page before gave.
    pub continuation: Option<String>,
    /// Whether the client wants to know which indexes a query uses.
    pub tell_indexes: bool,
    /// Whether a query takes an index wherever one serves, also where a scan is cheaper, and gives rows
    /// as they are found. The answer is the same; tests hold it to that.
    pub insist_on_indexes: bool,
    /// Whether the client merges the rows of several ranges itself where they have to be sorted,
    /// counted or told apart: such a query over several partitions is refused, and the client asks for a
    /// plan.
    pub client_merges: bool,
    /// How much may be done for it.
    pub effort: Effort,
}

/// How a commit ended, and where; a fault of the storage has no place.
type Done = Result<(Position, Vec<Written>), (Refused, Option<Position>)>;

/// Pages are cut when they have so many rows or bytes.
pub(crate) const PAGE_ITEMS: usize = 1_000;
pub(crate) const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// The service's limit for the operations of a batch.
pub(crate) const BATCH_OPERATIONS_MAX: usize = 100;

impl<S: RangeStore> Db<S> {
    /// Writes one document.
    pub async fn write(
        &self,
        container: &Arc<Container>,
        key: Option<&PartitionKey>,
        write: Write,
        conditions: Conditions,
    ) -> Result<Outcome, Failure> {
        let prepared = write::prepare(container, key, write, conditions)?;
        let committed = self.commit(container, vec![prepared]).await;
        let (mut at, mut written) = committed.map_err(|(refused, at)| Failure {
            error: refused.error,
            at,
            charge: Charge::MINIMUM,
        })?;
        let one = written.pop().expect("one write gives one result");
        at.document_lsn = one.document_lsn;
        Ok(Outcome {
            status: one.status,
            document: one.document,
            etag: one.etag,
            at,
            charge: one.charge,
        })
    }

    /// Commits writes that are of one logical partition.
    fn commit(
        &self,
        container: &Arc<Container>,
        writes: Vec<Prepared>,
    ) -> impl Future<Output = Done> + use<S> {
        let epk = container.epk(&writes[0].key);
        let answer_bytes_max = if writes.len() > 1 { PAGE_BYTES } else { usize::MAX };
        let commit = Commit {
            container: container.clone(),
            writes,
            now_s: self.clock.now_s(),
            answer_bytes_max,
        };
        let submitted = self.submit_to_key(container, epk, |_| commit);
        let container = container.clone();
        async move {
            let (range, committed) = submitted.await;
            let committed =
                committed.map(|done| (container.position(&range, done.lsn), done.output));
            committed.map_err(|error| match error {
                SubmitError::Refused(refused, lsn) => {
                    (refused, Some(container.position(&range, lsn)))
                }
                SubmitError::Storage(error) => (Refused { at: 0, error: error.into() }, None),
            })
        }
    }

    /// Writes documents of one logical partition, all or none.
    pub async fn batch(
        &self,
        container: &Arc<Container>,
        key: &PartitionKey,
        operations: Vec<BatchOperation>,
        session: Option<&Session>,
    ) -> Result<BatchOutcome, Failure> {
        check_batch_size(operations.len())?;
        let full = container.full_key(Some(key))?.expect("a key was given");
        if let Some(session) = session {
            let range = container.range_of(&container.epk(&full));
            let lsn = self.store.snapshot(range.storage)?.lsn();
            session.check(&container.position(range, lsn))?;
        }
        let count = operations.len();
        let mut writes = Vec::with_capacity(count);
        for (at, operation) in operations.into_iter().enumerate() {
            match write::prepare(container, Some(&full), operation.write, operation.conditions) {
                Ok(prepared) => writes.push(prepared),
                Err(error) => return Ok(rolled_back(count, &Refused { at, error }, None)),
            }
        }
        match self.commit(container, writes).await {
            Ok((at, written)) => {
                let results: Vec<_> = written.into_iter().map(result_of).collect();
                let charge = results.iter().map(|result| result.charge).sum();
                Ok(BatchOutcome { results, at: vec![at], charge })
            }
            // A fault of the storage concerns the whole request, not one operation.
            Err((refused, at)) if at.is_none() || refused.error.kind.status() >= 500 => {
                Err(Failure { error: refused.error, at, charge: Charge::MINIMUM })
            }
            Err((refused, at)) => Ok(rolled_back(count, &refused, at)),
        }
    }

    /// Writes documents one by one: each succeeds or fails by itself.
    pub async fn bulk(
        &self,
        container: &Arc<Container>,
        range: Option<&str>,
        operations: Vec<BatchOperation>,
        continue_on_error: bool,
    ) -> Result<BatchOutcome, Failure> {
        check_batch_size(operations.len())?;
        let named = range.map(|id| container.range(id)).transpose()?;
        let mut outcome =
            BatchOutcome { results: Vec::new(), at: Vec::new(), charge: Charge::ZERO };
        let mut failed = false;
        let mut waiting = Vec::with_capacity(operations.len());
        for operation in operations {
            // Submitting is doing: what must not happen must not be submitted.
            if failed {
                outcome.results.push(failed_dependency());
                continue;
            }
            let key = operation.key.as_ref();
            let prepared = write::prepare(container, key, operation.write, operation.conditions);
            let submitted = prepared.and_then(|prepared| {
                let range = container.range_of(&container.epk(&prepared.key));
                if named.is_some_and(|named| named.id != range.id) {
                    return Err(Error::new(
                        Kind::RangeGone,
                        "the partition key of the operation lies in another range",
                    ));
                }
                Ok(self.commit(container, vec![prepared]))
            });
            if continue_on_error {
                waiting.push(submitted);
                continue;
            }
            failed = !settle(&mut outcome, submitted).await;
        }
        for submitted in waiting {
            settle(&mut outcome, submitted).await;
        }
        Ok(outcome)
    }

    /// Reads one document.
    pub fn read(
        &self,
        container: &Container,
        key: Option<&PartitionKey>,
        address: &Address,
        conditions: &Conditions,
        session: Option<&Session>,
    ) -> Result<Outcome, Failure> {
        let key = match container.full_key(key)? {
            Some(key) => key,
            None if container.policies.partition_key.system_key => container.undefined_key(),
            None => {
                return Err(Error::bad_request(
                    "PartitionKey value must be supplied for this operation.",
                )
                .into());
            }
        };
        container.check_key_size(&key)?;
        let epk = container.epk(&key);
        let range = container.range_of(&epk);
        let snapshot = self.store.snapshot(range.storage)?;
        let lsn = snapshot.lsn();
        let mut at = container.position(range, lsn);
        let failed =
            |error, at: &Position| Failure { error, at: Some(at.clone()), charge: Charge::MINIMUM };
        if let Some(session) = session {
            session.check(&at)?;
        }
        let partition = PartitionPrefix::new(&epk, &key);
        let item = self
            .find(container, range, &snapshot, &partition, address)
            .map_err(|error| failed(error, &at))?;
        let Some(item) = item else { return Err(failed(Error::not_found(), &at)) };
        at.document_lsn = Some(item.header.lsn);
        let etag = precondition::etag_of(&item);
        let unmodified =
            conditions.if_none_match.as_deref().is_some_and(|known| etag.matches(known));
        if conditions.if_match.as_deref().is_some_and(|wanted| !etag.matches(wanted)) {
            return Err(failed(Error::precondition_failed(), &at));
        }
        let charge =
            if unmodified { Charge::MINIMUM } else { Charge::read(item.document.text().len()) };
        Ok(Outcome {
            status: if unmodified { 304 } else { 200 },
            document: (!unmodified).then_some(item.document),
            etag: Some(etag.to_string()),
            at,
            charge,
        })
    }

    /// The document at an address, if anybody may see it.
    fn find(
        &self,
        container: &Container,
        range: &Range,
        snapshot: &S::Snapshot,
        partition: &PartitionPrefix,
        address: &Address,
    ) -> Result<Option<Item>> {
        let place = match address {
            Address::Id(id) => partition.place(id),
            Address::Rid(rid) => {
                let rid = DocumentRid::parse(rid).ok();
                let Some(rid) = rid.filter(|rid| rid.container == container.rid) else {
                    return Ok(None);
                };
                match snapshot.get(&key::rid(rid.ordinal))? {
                    Some(place)
                        if PartitionPrefix::of(&place).is_some_and(|(p, _)| p == *partition) =>
                    {
                        place.to_vec()
                    }
                    _ => return Ok(None),
                }
            }
        };
        let Some(row) = snapshot.get(&key::item(&place))? else { return Ok(None) };
        let item = Item::decode(&row)?;
        if container.is_expired(&item.header, self.clock.now_s()) {
            return Ok(None);
        }
        if range.purges.may_concern(snapshot.lsn())
            && let Some(cutoff) = snapshot.get(&partition.row(key::Kind::Purge))?
            && item.header.lsn <= row::decode_u64(&cutoff)?
        {
            return Ok(None);
        }
        Ok(Some(item))
    }

    /// Deletes all documents of a logical partition: they are gone for everybody at once, and their
    /// rows are removed in the background. What is written later is not affected.
    pub async fn delete_partition(
        &self,
        container: &Arc<Container>,
        key: &PartitionKey,
    ) -> Result<Outcome, Failure> {
        let key = container.full_key(Some(key))?.expect("a key was given");
        container.check_key_size(&key)?;
        let epk = container.epk(&key);
        let partition = PartitionPrefix::new(&epk, &key);
        let (of, now_s) = (container.clone(), self.clock.now_s());
        let purge = move |range: &Arc<Range>| Purge {
            container: of,
            range: range.clone(),
            partition,
            now_s,
        };
        let (range, committed) = self.submit_to_key(container, epk, purge).await;
        let committed = committed.map_err(|error| match error {
            SubmitError::Storage(error) => Error::from(error),
            SubmitError::Refused(error, _) => error,
        })?;
        let at = container.position(&range, committed.lsn);
        Ok(Outcome { status: 200, document: None, etag: None, at, charge: Charge::METADATA_WRITE })
    }

    /// Reads documents: few in the order of their creation, many in the order of their places.
    pub fn read_feed(
        &self,
        container: &Arc<Container>,
        scope: &Scope,
        page: &Page,
        session: Option<&Session>,
    ) -> Result<FeedPage, Failure> {
        let subject = Subject { container: container.rid, query: "" };
        let cursor = page.continuation.as_deref();
        let cursor =
            cursor.map(|text| Cursor::verify(text, &self.signing, &subject)).transpose()?;
        let reading = self.reading(container, scope, None, session, page.effort)?;
        let nothing = Parts::Members(BTreeMap::new());
        let ended = cursor.as_ref().map(|cursor| Ended { at: &cursor.progress, inclusive: false });
        let are_few = reading.is_few()?;
        let mut walk = Walk::unordered(&reading, &nothing, are_few, ended, || Ok(Choice::Scan))?;
        let mut feed =
            FeedPage { at: reading.at.clone(), charge: Charge::MINIMUM, ..Default::default() };
        let items_max = page.items_max.unwrap_or(PAGE_ITEMS).max(1);
        let mut bytes = 0;
        let mut last = None;
        while let Some(candidate) = walk.next()? {
            let text = candidate.stored().document.text();
            let full = feed.rows.len() >= items_max || bytes + text.len() > PAGE_BYTES;
            if full && let Some(progress) = last {
                feed.continuation = Some(Cursor::after(progress).sign(&self.signing, &subject));
                break;
            }
            bytes += text.len();
            feed.charge += Charge::load(text.len()) + Charge::output(text.len());
            feed.rows.push(text);
            last = Some(walk.progress(&candidate));
        }
        Ok(feed)
    }
}

/// Waits for one operation of a bulk request; says whether it succeeded.
async fn settle(outcome: &mut BatchOutcome, submitted: Result<impl Future<Output = Done>>) -> bool {
    let (result, at) = match submitted {
        Err(error) => (failed_result(&error), None),
        Ok(submitted) => match submitted.await {
            Ok((at, mut written)) => {
                let written = written.pop().expect("one write gives one result");
                (result_of(written), Some(at))
            }
            Err((refused, at)) => (failed_result(&refused.error), at),
        },
    };
    let succeeded = result.status < 400;
    outcome.charge += result.charge;
    outcome.results.push(result);
    if let Some(at) = at {
        match outcome.at.iter_mut().find(|known| known.range == at.range) {
            Some(known) => known.lsn = known.lsn.max(at.lsn),
            None => outcome.at.push(at),
        }
    }
    succeeded
}

fn check_batch_size(count: usize) -> Result<()> {
    if count == 0 {
        return Err(Error::bad_request("Batch request has no operations."));
    }
    if count > BATCH_OPERATIONS_MAX {
        return Err(Error::bad_request(
            "Batch request has more operations than what is supported.",
        ));
    }
    Ok(())
}

pub(crate) fn result_of(written: Written) -> OperationResult {
    OperationResult {
        status: written.status,
        substatus: 0,
        etag: written.etag,
        document: written.document,
        charge: written.charge,
        message: None,
    }
}

pub(crate) fn failed_result(error: &Error) -> OperationResult {
    OperationResult {
        status: error.kind.status(),
        substatus: error.substatus(),
        etag: None,
        document: None,
        charge: Charge::MINIMUM,
        message: Some(error.message.clone()),
    }
}

pub(crate) fn failed_dependency() -> OperationResult {
    let mut result = failed_result(&Error::new(
        Kind::FailedDependency,
        "another operation of the batch failed, so this one was not done",
    ));
    result.charge = Charge::ZERO;
    result
}

/// All operations of a batch failed because one did.
fn rolled_back(count: usize, refused: &Refused, at: Option<Position>) -> BatchOutcome {
    let mut results: Vec<_> = (0..count).map(|_| failed_dependency()).collect();
    results[refused.at] = failed_result(&refused.error);
    BatchOutcome { results, at: at.into_iter().collect(), charge: Charge::MINIMUM }
}

/// Marks everything in a partition as deleted.
struct Purge {
    container: Arc<Container>,
    range: Arc<Range>,
    partition: PartitionPrefix,
    now_s: u64,
}

impl Operation for Purge {
    type Output = ();
    type Refusal = Error;

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Error>> {
        let mut txn =
            Transaction::open(view, &self.container, self.now_s).map_err(Stop::Refused)?;
        let counters = txn.counters(&self.partition).map_err(Stop::Refused)?;
        if counters.items == 0 {
            return Ok(());
        }
        let row = self.partition.row(key::Kind::Purge);
        if txn.view.get(&row)?.is_none() {
            txn.header.purges += 1;
        }
        let cutoff = txn.lsn().to_be_bytes();
        txn.view.put(&row, Bytes::copy_from_slice(&cutoff));
        // Said here and not after the commit: the request may be dropped when its client leaves.
        self.range.purges.began(txn.lsn());
        txn.touch();
        txn.finish();
        Ok(())
    }
}
