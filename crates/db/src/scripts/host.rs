//! What scripts ask of the database, answered from their transaction.

use std::sync::Arc;

use ring::hmac;
use script::{Host, HostError, Link};
use storage::Snapshot;
use value::{Patch, Value};

use super::query::{self, Question};
use super::transaction::ScriptTransaction;
use crate::clock::Deadline;
use crate::container::Container;
use crate::read;
use crate::transaction::Written;
use crate::write::{Address, Conditions, Write};
use crate::{Error, Result};

/// How many rows the page of a query has, where the script does not say.
const PAGE_ROWS: u32 = 100;

/// The database as one run of scripts sees it.
pub(crate) struct ScriptHost<P: Snapshot> {
    pub(crate) txn: ScriptTransaction<P>,
    pub(crate) deadline: Arc<Deadline>,
    pub(crate) now_ms: u64,
    /// By which continuations are signed.
    signing: hmac::Key,
    /// Why the scripts cannot go on.
    stopped: Option<Error>,
}

impl<P: Snapshot> ScriptHost<P> {
    pub(crate) fn new(
        txn: ScriptTransaction<P>,
        deadline: Arc<Deadline>,
        now_ms: u64,
        signing: hmac::Key,
    ) -> Self {
        Self { txn, deadline, now_ms, signing, stopped: None }
    }

    /// The error of a script in the database's terms.
    pub(crate) fn failure(&mut self, error: &script::ScriptError) -> Error {
        super::failure(error, self.stopped.take())
    }

    /// A refusal is told to the script, which may go on; a fault of ours ends it.
    fn told<T>(&mut self, result: Result<T>) -> Result<T, HostError> {
        result.map_err(|error| match error.kind.status() {
            500.. => {
                self.stopped = Some(error);
                HostError::Stop
            }
            status => HostError::refused(status, &error.message),
        })
    }

    fn write(&mut self, write: Write, if_match: Option<&str>) -> Result<Written, HostError> {
        let conditions = Conditions { if_match: if_match.map(str::to_owned), if_none_match: None };
        let written = self.txn.prepare(write, conditions);
        let written = written.and_then(|prepared| self.txn.write(prepared));
        self.told(written)
    }

    fn page(&mut self, asked: &script::Query<'_>) -> Result<script::Page> {
        let text = asked.body.map_or_else(|| Ok(query::everything()), query::parse)?;
        let limits = read::limits(self.deadline.clone(), super::SCRIPT_MS);
        let container = Some(&*self.txn.place.container);
        let prepared = read::prepare(&text, container, self.now_ms, limits)?;
        let rows_max = asked.rows_max.unwrap_or(PAGE_ROWS).max(1);
        let question = Question {
            text: &text,
            prepared: &prepared,
            rows_max: usize::try_from(rows_max).unwrap_or(usize::MAX),
            continuation: asked.continuation,
        };
        query::answer(&mut self.txn, &question, self.deadline.clock(), &self.signing)
    }
}

impl<P: Snapshot> Host for ScriptHost<P> {
    fn container(&self) -> script::Container {
        let container = &self.txn.place.container;
        // Nothing but numbers for people depends on the counters.
        let header = self.txn.header().ok();
        let (documents, bytes) = header.map_or((0, 0), |header| (header.items, header.bytes));
        script::Container {
            self_link: container.self_link.clone(),
            alt_link: container.name_path(),
            partition_key: key_paths(container),
            quota_used: quota(0, bytes.div_ceil(1024), &documents.to_string()),
            quota_max: quota(10_240, 10_485_760, "-1"),
        }
    }

    fn read(
        &mut self,
        link: Link<'_>,
        if_none_match: Option<&str>,
    ) -> Result<script::Read, HostError> {
        let if_none_match = if_none_match.map(str::to_owned);
        let conditions = Conditions { if_match: None, if_none_match };
        let read = self.txn.prepare(Write::Read { address: address(link) }, conditions);
        let read = read.and_then(|prepared| self.txn.read(&prepared));
        Ok(match self.told(read)?.document {
            Some(document) => script::Read::Document(text(&document)),
            None => script::Read::NotModified,
        })
    }

    fn query(&mut self, asked: script::Query<'_>) -> Result<script::Page, HostError> {
        let page = self.page(&asked);
        self.told(page)
    }

    fn create(&mut self, body: &str) -> Result<String, HostError> {
        let body = self.told(json(body))?;
        Ok(written(&self.write(Write::Create { body }, None)?))
    }

    fn upsert(&mut self, body: &str, if_match: Option<&str>) -> Result<(bool, String), HostError> {
        let body = self.told(json(body))?;
        let upserted = self.write(Write::Upsert { body }, if_match)?;
        Ok((upserted.status == 201, written(&upserted)))
    }

    fn replace(
        &mut self,
        link: Link<'_>,
        body: &str,
        if_match: Option<&str>,
    ) -> Result<String, HostError> {
        let body = self.told(json(body))?;
        Ok(written(&self.write(Write::Replace { address: address(link), body }, if_match)?))
    }

    fn delete(&mut self, link: Link<'_>, if_match: Option<&str>) -> Result<(), HostError> {
        self.write(Write::Delete { address: address(link) }, if_match).map(|_| ())
    }

    fn patch(
        &mut self,
        link: Link<'_>,
        patch: &str,
        if_match: Option<&str>,
    ) -> Result<String, HostError> {
        let patch = json(patch).and_then(|patch| Ok(Patch::parse(&patch)?));
        let patch = self.told(patch)?;
        Ok(written(&self.write(Write::Patch { address: address(link), patch }, if_match)?))
    }
}

fn address(link: Link<'_>) -> Address {
    match link {
        Link::Id(id) => Address::Id(id.to_owned()),
        Link::Rid(rid) => Address::Rid(rid.to_owned()),
    }
}

/// Reads the JSON that a script or a trigger gives.
pub(crate) fn json(text: &str) -> Result<Value> {
    let value = Value::parse(text.as_bytes());
    value.map_err(|error| Error::bad_request(format!("the body is not valid JSON: {error}")))
}

pub(crate) fn text(document: &value::Document) -> String {
    String::from_utf8_lossy(&document.text()).into_owned()
}

fn written(written: &Written) -> String {
    written.document.as_ref().map(text).unwrap_or_default()
}

fn key_paths(container: &Container) -> Vec<Vec<String>> {
    let definition = &container.policies.partition_key;
    if definition.system_key {
        return Vec::new();
    }
    definition.paths.iter().map(|path| path.segments().to_vec()).collect()
}

/// In the form in which clients see such figures; sizes in KB.
fn quota(document: u64, documents: u64, count: &str) -> String {
    format!(
        "documentSize={document};documentsSize={documents};documentsCount={count};\
         collectionSize={documents};"
    )
}
