//! A server to talk to, and short ways to say what is asked of it.

use std::path::Path;
use std::sync::Arc;

use db::{
    Address, BatchOperation, BatchOutcome, Conditions, Container, CountingIds, Db,
    DistributedOperation, Failure, FeedPage, Kind, ManualClock, Outcome, Page, Scope, Throughput,
    Write,
};
use storage::{Embedded, Options, RangeStore};
use value::{Object, PartitionKey, Patch, Value};

/// Where every test's clock starts: 2023-11-14.
pub(crate) const START_S: u64 = 1_700_000_000;

pub(crate) fn json(text: &str) -> Value {
    Value::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn object(text: &str) -> Object {
    match json(text) {
        Value::Object(object) => object,
        other => panic!("not an object: {other}"),
    }
}

/// A partition key in the form that requests carry.
pub(crate) fn key(text: &str) -> PartitionKey {
    PartitionKey::parse_header(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn patch(text: &str) -> Patch {
    Patch::parse(&json(text)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn by_id(id: &str) -> Address {
    Address::Id(id.to_owned())
}

pub(crate) fn if_match(etag: &str) -> Conditions {
    Conditions { if_match: Some(etag.to_owned()), if_none_match: None }
}

pub(crate) fn if_none_match(etag: &str) -> Conditions {
    Conditions { if_match: None, if_none_match: Some(etag.to_owned()) }
}

pub(crate) fn create(body: &str) -> Write {
    Write::Create { body: json(body) }
}

pub(crate) fn upsert(body: &str) -> Write {
    Write::Upsert { body: json(body) }
}

pub(crate) fn replace(id: &str, body: &str) -> Write {
    Write::Replace { address: by_id(id), body: json(body) }
}

pub(crate) fn patch_by(id: &str, operations: &str) -> Write {
    Write::Patch { address: by_id(id), patch: patch(operations) }
}

pub(crate) fn delete(id: &str) -> Write {
    Write::Delete { address: by_id(id) }
}

pub(crate) fn read(id: &str) -> Write {
    Write::Read { address: by_id(id) }
}

/// An operation of a batch, without conditions.
pub(crate) fn operation(write: Write) -> BatchOperation {
    BatchOperation { key: None, write, conditions: Conditions::default() }
}

/// An operation of a transaction across partitions, in a container of the database `d`.
pub(crate) fn distributed(container: &str, at: &str, write: Write) -> DistributedOperation {
    let id = match &write {
        Write::Create { body } | Write::Upsert { body } => {
            body.get("id").and_then(Value::as_str).unwrap_or_default()
        }
        Write::Replace { address, .. }
        | Write::Patch { address, .. }
        | Write::Delete { address }
        | Write::Read { address } => match address {
            Address::Id(id) | Address::Rid(id) => id,
        },
    };
    DistributedOperation {
        database: "d".to_owned(),
        container: container.to_owned(),
        intended: None,
        key: key(at),
        id: id.to_owned(),
        write,
        conditions: Conditions::default(),
        session: None,
    }
}

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at_ms(START_S * 1_000))
}

/// An empty server that forgets everything.
pub(crate) async fn in_memory() -> (Arc<Db<Embedded>>, Arc<ManualClock>) {
    let clock = clock();
    let db = open(Embedded::in_memory(), &clock).await;
    (db, clock)
}

pub(crate) async fn open<S: RangeStore>(store: S, clock: &Arc<ManualClock>) -> Arc<Db<S>> {
    Db::open(Arc::new(store), clock.clone(), &CountingIds::default()).await.unwrap()
}

/// The embedded engine with little memory: tests open many of them.
pub(crate) fn embedded(directory: &Path) -> Embedded {
    let options = Options { cache_bytes: 1 << 20, ..Options::default() };
    Embedded::open(directory, options).unwrap()
}

/// A database `d` with a container `c` of this definition, which lacks only its name.
pub(crate) async fn container<S: RangeStore>(db: &Db<S>, definition: &str) -> Arc<Container> {
    create_container(db, "c", definition, None).await
}

/// A container of any name in the database `d`, which is created if need be.
pub(crate) async fn create_container<S: RangeStore>(
    db: &Db<S>,
    name: &str,
    definition: &str,
    throughput: Option<i64>,
) -> Arc<Container> {
    if db.database("d").is_err() {
        db.create_database(&object(r#"{"id":"d"}"#), None).await.unwrap();
    }
    let mut body = object(definition);
    body.insert("id", name);
    let throughput = throughput.map(Throughput::Manual);
    db.create_container("d", &body, throughput, false).await.unwrap();
    db.container("d", name).unwrap()
}

/// The definition of a container that is partitioned by `/pk`.
pub(crate) const BY_PK: &str = r#"{"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;

/// The same with more members, given as they stand in JSON.
pub(crate) fn by_pk_with(members: &str) -> String {
    format!(r#"{{"partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},{members}}}"#)
}

/// Status and sub-status, as a client would see them.
pub(crate) type Status = (u16, u32);

pub(crate) fn status_of(kind: Kind) -> Status {
    (kind.status(), kind.substatus())
}

pub(crate) fn status(result: &Result<Outcome, Failure>) -> Status {
    match result {
        Ok(outcome) => (outcome.status, 0),
        Err(failure) => status_of(failure.error.kind),
    }
}

pub(crate) fn statuses(outcome: &BatchOutcome) -> Vec<u16> {
    outcome.results.iter().map(|result| result.status).collect()
}

/// A container with its server, for tests that talk about documents.
pub(crate) struct Documents<S: RangeStore> {
    pub(crate) db: Arc<Db<S>>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) container: Arc<Container>,
}

impl Documents<Embedded> {
    /// A container in memory.
    pub(crate) async fn new(definition: &str) -> Self {
        let (db, clock) = in_memory().await;
        let container = container(&db, definition).await;
        Self { db, clock, container }
    }

    /// A container that is cut into so many ranges.
    pub(crate) async fn with_ranges(definition: &str, ranges: i64) -> Self {
        let (db, clock) = in_memory().await;
        let container = create_container(&db, "c", definition, Some(ranges * 10_000)).await;
        assert_eq!(container.range_count() as i64, ranges);
        Self { db, clock, container }
    }
}

impl<S: RangeStore> Documents<S> {
    pub(crate) async fn write(&self, at: &str, write: Write) -> Result<Outcome, Failure> {
        self.write_if(at, write, Conditions::default()).await
    }

    pub(crate) async fn write_if(
        &self,
        at: &str,
        write: Write,
        conditions: Conditions,
    ) -> Result<Outcome, Failure> {
        self.db.write(&self.container, Some(&key(at)), write, conditions).await
    }

    /// A write that must succeed.
    pub(crate) async fn must(&self, at: &str, write: Write) -> Outcome {
        let what = format!("{write:?}");
        self.write(at, write).await.unwrap_or_else(|failure| panic!("{what}: {failure:?}"))
    }

    pub(crate) fn read(&self, at: &str, id: &str) -> Result<Outcome, Failure> {
        self.read_if(at, id, Conditions::default())
    }

    pub(crate) fn read_if(
        &self,
        at: &str,
        id: &str,
        conditions: Conditions,
    ) -> Result<Outcome, Failure> {
        self.db.read(&self.container, Some(&key(at)), &by_id(id), &conditions, None)
    }

    /// What a document holds, without what the server adds.
    pub(crate) fn user_text(&self, at: &str, id: &str) -> String {
        match self.read(at, id) {
            Ok(outcome) => {
                let user = outcome.document.expect("a read shows the document").to_user_object();
                Value::Object(user).to_text()
            }
            Err(failure) => failure.error.kind.status().to_string(),
        }
    }

    pub(crate) async fn batch(&self, at: &str, writes: Vec<Write>) -> BatchOutcome {
        let operations = writes.into_iter().map(operation).collect();
        self.db.batch(&self.container, &key(at), operations, None).await.unwrap()
    }

    /// The ids of all documents of a scope, in the order of the feed.
    pub(crate) fn ids(&self, scope: &Scope) -> Vec<String> {
        let rows = feed(&self.db, &self.container, scope, None);
        rows.iter().map(|row| row.get("id").unwrap().as_str().unwrap().to_owned()).collect()
    }

    /// Replaces the container's definition, as the next request will see it.
    pub(crate) async fn redefine(&mut self, definition: &str) {
        let mut body = object(definition);
        body.insert("id", self.container.id.as_str());
        self.db.replace_container("d", &self.container.id, &body, None).await.unwrap();
        self.container = self.db.container("d", &self.container.id).unwrap();
    }

    pub(crate) fn advance_s(&self, seconds: u64) {
        self.clock.advance_ms(seconds * 1_000);
    }

    /// Nothing that is stored contradicts anything else.
    pub(crate) fn verify(&self) {
        verify(&self.db);
    }
}

pub(crate) fn verify<S: RangeStore>(db: &Db<S>) {
    let verified = db.verify(|_| {}).unwrap();
    assert_eq!(verified.problems, Vec::<String>::new());
}

/// All rows of a feed, read in pages of one size.
pub(crate) fn feed<S: RangeStore>(
    db: &Db<S>,
    container: &Arc<Container>,
    scope: &Scope,
    items_max: Option<usize>,
) -> Vec<Value> {
    let mut rows = Vec::new();
    let mut continuation = None;
    loop {
        let page = Page { items_max, continuation, ..Page::default() };
        let FeedPage { rows: texts, continuation: next, .. } =
            db.read_feed(container, scope, &page, None).unwrap_or_else(|f| panic!("{f:?}"));
        if let Some(items_max) = items_max {
            assert!(texts.len() <= items_max);
        }
        rows.extend(texts.iter().map(|text| Value::parse(text).unwrap()));
        if next.is_none() {
            return rows;
        }
        assert_ne!(next, page.continuation, "a feed comes to its end");
        continuation = next;
    }
}
