//! An account that tests talk to, directly or over HTTP.
//!
//! A [`Request`] says what a client wants without saying how it is spelled. [`Account::send`] either
//! asks the database or goes through a real socket, the gateway and the wire protocol; the answer has
//! the same form, so whatever differs between the two is a difference that a user can see.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use db::{
    Address, BatchOperation, BatchOutcome, Call, Change, ChangeKind, ChangeRequest, ChangeStart,
    Clock, Conditions, CountingIds, Db, Failure, ManualClock, Outcome, Page, Position, QueryText,
    Scope, Throughput, Triggers, Write,
};
use storage::{Embedded, Options};
use value::{Object, PartitionKey, Patch, ScriptKind, Value};

use crate::support::http::Client;

/// The database that everything here lives in.
pub(crate) const DATABASE: &str = "tests";

/// When the clock of a test starts: the first second of 2026.
pub(crate) const START_S: u64 = 1_767_225_600;

/// What a client may ask for.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    CreateContainer { body: Object, throughput: Option<i64> },
    ReplaceContainer { container: String, body: Object },
    DeleteContainer { container: String },
    One { container: String, operation: Operation },
    Batch { container: String, key: PartitionKey, operations: Vec<Operation> },
    Bulk { container: String, operations: Vec<Operation>, continue_on_error: bool },
    Feed { container: String, key: Option<PartitionKey>, page: Page },
    Changes { container: String, key: Option<PartitionKey>, request: ChangeRequest },
    Query { container: String, query: QueryText, key: Option<PartitionKey>, page: Page },
    DeletePartition { container: String, key: Option<PartitionKey> },
    CreateScript { container: String, kind: ScriptKind, body: Object },
    Call { container: String, call: Call, key: Option<PartitionKey> },
}

impl Request {
    /// Asks for the page after one that ended with this token.
    pub(crate) fn go_on(&mut self, continuation: Option<String>) {
        if let Request::Feed { page, .. } | Request::Query { page, .. } = self {
            page.continuation = continuation;
        } else if let (Request::Changes { request, .. }, Some(mark)) = (self, continuation) {
            request.start = ChangeStart::After(mark);
        }
    }

    /// Whether the order of the rows is part of the answer.
    pub(crate) fn is_ordered(&self) -> bool {
        match self {
            Request::Query { query, .. } => query.text.contains("ORDER BY"),
            _ => true,
        }
    }
}

/// What is done with one document, alone or as part of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) verb: Verb,
    pub(crate) key: Option<PartitionKey>,
    /// Of all but create and upsert, whose bodies have it.
    pub(crate) id: Option<String>,
    /// JSON text: a document or a patch, as the client wrote it.
    pub(crate) body: Option<String>,
    pub(crate) conditions: Conditions,
    /// The triggers that run with it.
    pub(crate) pre: Option<String>,
    pub(crate) post: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Upsert,
    Replace,
    Patch,
    Delete,
    Read,
}

/// What a client gets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    /// The text of the document, where the answer has one.
    pub(crate) body: Option<String>,
    pub(crate) charge_ru: f64,
    /// Of a batch: one for each operation.
    pub(crate) results: Vec<OperationAnswer>,
    /// Of a feed or a query: the texts of the documents or results.
    pub(crate) rows: Vec<String>,
    pub(crate) continuation: Option<String>,
    /// Of a query: the session token.
    pub(crate) session: Option<String>,
    /// Of a procedure: what it wrote to its log.
    pub(crate) log: Option<String>,
}

/// What a client gets for one operation of a batch.
#[derive(Clone, Debug)]
pub(crate) struct OperationAnswer {
    pub(crate) status: u16,
    pub(crate) substatus: u32,
    pub(crate) etag: Option<String>,
    pub(crate) body: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) charge_ru: f64,
}

/// What a client gets whose request is refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) substatus: u32,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) charge_ru: f64,
}

/// Where the data of an account is kept, and how it is found again.
pub(crate) enum Keeping {
    /// In memory, as long as the account exists.
    Memory(Arc<Embedded>),
    Directory(PathBuf),
}

impl Keeping {
    pub(crate) fn in_memory() -> Self {
        Self::Memory(Arc::new(Embedded::in_memory()))
    }

    /// Opens what is kept; nothing at first.
    fn open(&self) -> Arc<Embedded> {
        match self {
            Self::Memory(store) => store.clone(),
            Self::Directory(path) => {
                let options = Options { cache_bytes: 4 << 20, memtable_bytes: 4 << 20 };
                Arc::new(Embedded::open(path, options).expect("the directory can be opened"))
            }
        }
    }

    /// Stops the database so that it can be opened again.
    async fn stop(&self, db: &Db<Embedded>) {
        match self {
            // What is in memory would be lost, so it only loses its database.
            Self::Memory(_) => {}
            Self::Directory(_) => db.close().await.expect("the store can be closed"),
        }
    }
}

/// An account with an empty database and a clock that moves when told to.
pub(crate) struct Account {
    keeping: Keeping,
    pub(crate) db: Arc<Db<Embedded>>,
    pub(crate) clock: Arc<ManualClock>,
    client: Option<Client>,
}

impl Account {
    /// An account whose requests go straight to the database.
    pub(crate) async fn direct(keeping: Keeping) -> Self {
        let clock = Arc::new(ManualClock::at_ms(START_S * 1_000));
        let db = open(&keeping, &clock).await;
        let body = Object::from([("id", Value::from(DATABASE))]);
        db.create_database(&body, None).await.expect("the database is new");
        Self { keeping, db, clock, client: None }
    }

    /// An account whose requests go through a server on a free port of the loopback address.
    pub(crate) async fn over_http(keeping: Keeping) -> Self {
        let mut account = Self::direct(keeping).await;
        account.client = Some(Client::serve(account.db.clone()).await);
        account
    }

    /// The account after its database was stopped and started again.
    pub(crate) async fn reopened(self) -> Self {
        let Self { keeping, db, clock, client } = self;
        keeping.stop(&db).await;
        // The directory is free only when nobody holds the database any more.
        drop(db);
        let db = open(&keeping, &clock).await;
        let client = match client {
            Some(_) => Some(Client::serve(db.clone()).await),
            None => None,
        };
        Self { keeping, db, clock, client }
    }

    /// Does what a client asks for.
    pub(crate) async fn send(&self, request: &Request) -> Result<Answer, Refusal> {
        match &self.client {
            Some(client) => client.send(self.clock.now_s(), request).await,
            None => self.ask(request).await.map_err(refusal),
        }
    }

    async fn ask(&self, request: &Request) -> Result<Answer, Failure> {
        let db = &self.db;
        let container = |name: &str| db.container(DATABASE, name);
        match request {
            Request::CreateContainer { body, throughput } => {
                let throughput = throughput.map(Throughput::Manual);
                db.create_container(DATABASE, body, throughput, false).await?;
                Ok(Answer { status: 201, ..Answer::default() })
            }
            Request::ReplaceContainer { container, body } => {
                db.replace_container(DATABASE, container, body, None).await?;
                Ok(Answer { status: 200, ..Answer::default() })
            }
            Request::DeleteContainer { container } => {
                db.delete_container(DATABASE, container, None).await?;
                Ok(Answer { status: 204, ..Answer::default() })
            }
            Request::One { container: name, operation } => {
                let container = container(name)?;
                let key = operation.key.as_ref();
                let conditions = operation.conditions.clone();
                let (pre, post) = (operation.pre.clone(), operation.post.clone());
                if pre.is_some() || post.is_some() {
                    let triggers = Triggers { pre, post, headers: Vec::new() };
                    let write = operation.write()?;
                    let done = db
                        .write_with_triggers(&container, key, write, conditions, triggers)
                        .await?;
                    let answer = Answer::of_document(done.outcome);
                    return Ok(Answer { body: done.body.or(answer.body), ..answer });
                }
                let outcome = match operation.write()? {
                    Write::Read { address } => {
                        db.read(&container, key, &address, &conditions, None)
                    }
                    write => db.write(&container, key, write, conditions).await,
                };
                outcome.map(Answer::of_document)
            }
            Request::Batch { container: name, key, operations } => {
                let operations = batch_operations(operations)?;
                let outcome = db.batch(&container(name)?, key, operations, None).await;
                outcome.map(Answer::of_batch)
            }
            Request::Bulk { container: name, operations, continue_on_error } => {
                let operations = batch_operations(operations)?;
                let container = container(name)?;
                let outcome = db.bulk(&container, None, operations, *continue_on_error).await;
                outcome.map(Answer::of_batch)
            }
            Request::Feed { container: name, key, page } => {
                let scope = Scope { key: key.clone(), ..Scope::default() };
                let feed = db.read_feed(&container(name)?, &scope, page, None)?;
                Ok(Answer {
                    status: 200,
                    rows: feed.rows.iter().map(|row| text(row)).collect(),
                    continuation: feed.continuation,
                    charge_ru: feed.charge.ru(),
                    ..Answer::default()
                })
            }
            Request::Changes { container: name, key, request } => {
                let scope = Scope { key: key.clone(), ..Scope::default() };
                let page = db.changes(&container(name)?, &scope, request, None)?;
                let is_over = page.changes.is_empty() && page.is_end;
                Ok(Answer {
                    status: if is_over { 304 } else { 200 },
                    rows: page.changes.iter().map(change).collect(),
                    continuation: Some(page.continuation),
                    charge_ru: page.charge.ru(),
                    ..Answer::default()
                })
            }
            Request::Query { container: name, query, key, page } => {
                let scope = Scope { key: key.clone(), cross_partition: true, ..Scope::default() };
                let feed = db.query(&container(name)?, query, &scope, page, None)?;
                let tokens: Vec<String> = feed.at.iter().map(Position::token).collect();
                Ok(Answer {
                    status: 200,
                    rows: feed.rows.iter().map(|row| text(row)).collect(),
                    continuation: feed.continuation,
                    charge_ru: feed.charge.ru(),
                    session: Some(tokens.join(",")),
                    ..Answer::default()
                })
            }
            Request::CreateScript { container: name, kind, body } => {
                db.create_script(&*container(name)?, *kind, body).await?;
                Ok(Answer { status: 201, ..Answer::default() })
            }
            Request::Call { container: name, call, key } => {
                let container = container(name)?;
                let called = db.execute(&container, key.as_ref(), call.clone(), None).await?;
                let charge_ru = called.charge.ru();
                let (body, log) = (called.body, called.log);
                Ok(Answer { status: 200, body, log, charge_ru, ..Answer::default() })
            }
            Request::DeletePartition { container: name, key } => {
                let missing = "PartitionKey value must be supplied for this operation.";
                let key = key.as_ref().ok_or_else(|| db::Error::bad_request(missing))?;
                let outcome = db.delete_partition(&container(name)?, key).await;
                outcome.map(Answer::of_document)
            }
        }
    }
}

/// A change as scripts print it: the document, or what happened with the document after and before.
fn change(change: &Change) -> String {
    let Some(version) = &change.version else {
        return text(change.current.as_ref().expect("the latest version is there"));
    };
    let kind = match version.kind {
        ChangeKind::Create => "create",
        ChangeKind::Replace => "replace",
        ChangeKind::Delete => "delete",
        ChangeKind::Expire => "expire",
    };
    let document = |text: &Bytes| Value::parse(text).expect("documents are JSON");
    let previous = version.previous.as_ref().and_then(|previous| previous.image.as_ref());
    let previous = previous.map(document);
    version_text(kind, change.current.as_ref().map(document), previous)
}

/// What scripts print of a change where all versions are told.
pub(crate) fn version_text(kind: &str, current: Option<Value>, previous: Option<Value>) -> String {
    let mut told = Object::from([("change", Value::from(kind))]);
    for (name, document) in [("current", current), ("previous", previous)] {
        if let Some(Value::Object(mut document)) = document {
            document.retain(|name, _| !value::SYSTEM_PROPERTIES.contains(&name));
            told.insert(name, document);
        }
    }
    Value::from(told).to_text()
}

async fn open(keeping: &Keeping, clock: &Arc<ManualClock>) -> Arc<Db<Embedded>> {
    let opened = Db::open(keeping.open(), clock.clone(), &CountingIds::default()).await;
    opened.expect("what is stored can be opened")
}

impl Operation {
    fn write(&self) -> Result<Write, db::Error> {
        let address = || Address::Id(self.id.clone().expect("the script names a document"));
        let body = || {
            let text = self.body.as_deref().expect("the script has a body");
            Value::parse(text.as_bytes()).expect("bodies in scripts are JSON")
        };
        Ok(match self.verb {
            Verb::Create => Write::Create { body: body() },
            Verb::Upsert => Write::Upsert { body: body() },
            Verb::Replace => Write::Replace { address: address(), body: body() },
            Verb::Patch => Write::Patch { address: address(), patch: Patch::parse(&body())? },
            Verb::Delete => Write::Delete { address: address() },
            Verb::Read => Write::Read { address: address() },
        })
    }
}

fn batch_operations(operations: &[Operation]) -> Result<Vec<BatchOperation>, db::Error> {
    let one = |operation: &Operation| {
        Ok(BatchOperation {
            key: operation.key.clone(),
            write: operation.write()?,
            conditions: operation.conditions.clone(),
        })
    };
    operations.iter().map(one).collect()
}

impl Answer {
    fn of_document(outcome: Outcome) -> Self {
        Self {
            status: outcome.status,
            etag: outcome.etag,
            body: outcome.document.map(|document| text(&document.text())),
            charge_ru: outcome.charge.ru(),
            ..Self::default()
        }
    }

    fn of_batch(outcome: BatchOutcome) -> Self {
        let charge_ru = outcome.charge.ru();
        let one = |result: db::OperationResult| OperationAnswer {
            status: result.status,
            substatus: result.substatus,
            etag: result.etag,
            body: result.document.map(|document| text(&document.text())),
            message: result.message,
            charge_ru: result.charge.ru(),
        };
        let results: Vec<_> = outcome.results.into_iter().map(one).collect();
        // The protocol's way to say that not everything went well.
        let all_well = results.iter().all(|result| (200..300).contains(&result.status));
        Self { status: if all_well { 200 } else { 207 }, charge_ru, results, ..Self::default() }
    }
}

fn refusal(failure: Failure) -> Refusal {
    let Failure { error, charge, .. } = failure;
    Refusal {
        status: error.kind.status(),
        substatus: error.substatus(),
        code: error.kind.code().to_owned(),
        message: sentence(error.message),
        charge_ru: charge.ru(),
    }
}

/// What an error says: its one sentence, or JSON of its own where it has a code and a place.
pub(crate) fn sentence(message: String) -> String {
    let errors = Value::parse(message.as_bytes()).ok();
    match errors.as_ref().and_then(|errors| errors.get("Errors")).and_then(Value::as_array) {
        Some([Value::String(only)]) => only.clone(),
        _ => message,
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).expect("documents are UTF-8").to_owned()
}
