//! The same work again and again, with trouble one storage call later each time.
//!
//! While the work goes on we keep every state that the server may be in. A request that was answered
//! leaves the states in which that answer is right, changed as it says. The request that meets the
//! trouble may or may not have happened, so every state stands beside itself with the change made.
//! After reopening the server must be in one of these states, whole.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use db::{
    Conditions, Container, CountingIds, Db, Failure, ManualClock, Outcome, Position, Result, Scope,
    Throughput, Write,
};
use storage::{Crashing, Engine, Faulty, META_RANGE, Memory, OrderedStore, RangeStore, Torn};
use value::{Object, PartitionKey, ScriptKind, Value};

use crate::support::{
    self, by_id, create, delete, feed, key, object, operation, patch_by, replace, upsert, verify,
};

/// One request of the work.
#[derive(Clone, Copy, Debug)]
enum Step {
    CreateDatabase(&'static str),
    DeleteDatabase(&'static str),
    /// In the database `d`, with this throughput.
    CreateContainer(&'static str, i64),
    SetTtl(&'static str, i64),
    DeleteContainer(&'static str),
    CreateUser(&'static str),
    /// For the user `u`.
    CreatePermission(&'static str),
    DeleteUser(&'static str),
    CreateEncryptionKey(&'static str),
    /// In the container `c`: does what a batch does.
    CreateProcedure(&'static str),
    SetThroughput(&'static str, i64),
    // What follows is about documents of the container `c`, by the text of their partition key.
    Create(&'static str, &'static str),
    Upsert(&'static str, &'static str),
    Replace(&'static str, &'static str, &'static str),
    Increment(&'static str, &'static str),
    Delete(&'static str, &'static str),
    Read(&'static str, &'static str),
    /// Creates two documents and increments a third.
    Batch(&'static str, [&'static str; 2], &'static str),
    /// Creates documents in two partitions at once, under a token.
    Span(&'static str, [(&'static str, &'static str); 2]),
    /// Calls the procedure `publish` with the same.
    Call(&'static str, [&'static str; 2], &'static str),
    DeletePartition(&'static str),
    ReadFeed,
    /// Splits the range of a key.
    Split(&'static str),
    /// Merges the first two ranges.
    Merge,
    /// Gives the partition index entries of its own, which the next sweep makes.
    SetApart(&'static str),
    Advance(u64),
    Sweep,
}

use Step::*;

const X: &str = r#"["x"]"#;
const Y: &str = r#"["y"]"#;

const WORK: &[Step] = &[
    CreateDatabase("d"),
    CreateDatabase("d"),
    // A second attempt succeeds where the first one failed on the way.
    CreateContainer("c", 20_000),
    CreateContainer("c", 20_000),
    CreateContainer("gone", 400),
    CreateUser("u"),
    CreatePermission("p"),
    CreateEncryptionKey("k"),
    CreateProcedure("publish"),
    SetThroughput("c", 30_000),
    Create(X, r#"{"id":"a","pk":"x","u":1,"n":0}"#),
    Create(X, r#"{"id":"a","pk":"x","u":2,"n":0}"#),
    Create(X, r#"{"id":"b","pk":"x","u":1,"n":0}"#),
    Create(Y, r#"{"id":"a","pk":"y","u":1,"n":5}"#),
    Upsert(Y, r#"{"id":"b","pk":"y","u":2,"n":6}"#),
    Upsert(Y, r#"{"id":"b","pk":"y","u":3,"n":7}"#),
    Increment(X, "a"),
    SetApart(X),
    Increment(X, "a"),
    Split(X),
    Read(X, "a"),
    SetApart(X),
    Sweep,
    Increment(X, "a"),
    Replace(X, "a", r#"{"id":"renamed","pk":"x","u":1,"n":9}"#),
    Batch(
        X,
        [r#"{"id":"e","pk":"x","u":4,"n":0}"#, r#"{"id":"f","pk":"x","u":5,"n":0}"#],
        "renamed",
    ),
    Batch(
        X,
        [r#"{"id":"g","pk":"x","u":6,"n":0}"#, r#"{"id":"h","pk":"x","u":6,"n":0}"#],
        "renamed",
    ),
    Call(
        X,
        [r#"{"id":"i","pk":"x","u":8,"n":0}"#, r#"{"id":"j","pk":"x","u":9,"n":0}"#],
        "renamed",
    ),
    Call(X, [r#"{"id":"k","pk":"x","u":10,"n":0}"#, r#"{"id":"l","pk":"x","u":8,"n":0}"#], "i"),
    Call(X, [r#"{"id":"k","pk":"x","u":10,"n":0}"#, r#"{"id":"l","pk":"x","u":11,"n":0}"#], "k"),
    Span(
        "one",
        [
            (X, r#"{"id":"far","pk":"x","u":12,"n":0}"#),
            (Y, r#"{"id":"away","pk":"y","u":12,"n":0}"#),
        ],
    ),
    Span(
        "two",
        [
            (X, r#"{"id":"lost","pk":"x","u":13,"n":0}"#),
            (Y, r#"{"id":"away","pk":"y","u":13,"n":0}"#),
        ],
    ),
    Delete(X, "e"),
    Delete(X, "e"),
    Delete(X, "j"),
    SetTtl("c", -1),
    Create(X, r#"{"id":"brief","pk":"x","u":7,"n":0,"ttl":5}"#),
    Merge,
    Advance(5),
    ReadFeed,
    Sweep,
    SetApart(Y),
    Create(X, r#"{"id":"brief","pk":"x","u":7,"n":1}"#),
    Sweep,
    DeletePartition(Y),
    Create(Y, r#"{"id":"a","pk":"y","u":1,"n":8}"#),
    Split(Y),
    Sweep,
    ReadFeed,
    DeleteUser("u"),
    DeleteContainer("gone"),
    CreateDatabase("doomed"),
    DeleteDatabase("doomed"),
    Increment(Y, "a"),
    // What was recorded is forgotten after a minute.
    Advance(60),
    Sweep,
    Increment(Y, "a"),
];

/// Everything that can be seen from outside, by name.
type State = BTreeMap<String, String>;

/// What a step should answer in a state, and what it makes of it.
fn expect(state: &mut State, step: Step) -> u16 {
    let insert = |state: &mut State, name: String, content: String| match state.contains_key(&name)
    {
        true => 409,
        false => {
            state.insert(name, content);
            201
        }
    };
    if !matches!(step, CreateDatabase(_) | DeleteDatabase(_) | Advance(_) | Sweep)
        && !state.contains_key("database d")
    {
        return 404;
    }
    match step {
        CreateDatabase(name) => insert(state, format!("database {name}"), String::new()),
        DeleteDatabase(name) => match state.remove(&format!("database {name}")) {
            Some(_) => 204,
            None => 404,
        },
        CreateContainer(name, throughput) => {
            let status = insert(state, format!("container {name}"), "None".to_owned());
            if status == 201 {
                state.insert(format!("offer {name}"), throughput.to_string());
            }
            status
        }
        SetTtl(name, ttl) => match state.get_mut(&format!("container {name}")) {
            Some(container) => {
                *container = format!("{:?}", Some(ttl));
                200
            }
            None => 404,
        },
        DeleteContainer(name) => {
            state.remove(&format!("offer {name}"));
            state.remove(&format!("container {name}")).map_or(404, |_| 204)
        }
        CreateUser(name) => insert(state, format!("user {name}"), String::new()),
        CreatePermission(_) if !state.contains_key("user u") => 404,
        CreatePermission(name) => insert(state, format!("permission {name}"), String::new()),
        DeleteUser(name) => {
            state.retain(|name, _| !name.starts_with("permission "));
            state.remove(&format!("user {name}")).map_or(404, |_| 204)
        }
        CreateEncryptionKey(name) => insert(state, format!("key {name}"), String::new()),
        CreateProcedure(_) if !state.contains_key("container c") => 404,
        CreateProcedure(name) => insert(state, format!("procedure {name}"), String::new()),
        SetThroughput(name, throughput) => match state.get_mut(&format!("offer {name}")) {
            Some(offer) => {
                *offer = throughput.to_string();
                200
            }
            None => 404,
        },
        Advance(_) => {
            if state.get("container c").is_some_and(|ttl| ttl != "None") {
                state.retain(|name, text| !(name.starts_with('[') && text.contains("\"ttl\"")));
            }
            200
        }
        Sweep => 200,
        _ if !state.contains_key("container c") => 404,
        ReadFeed | Split(_) | Merge | SetApart(_) => 200,
        Read(key, id) => {
            if state.contains_key(&place(key, id)) {
                200
            } else {
                404
            }
        }
        Create(key, body) => {
            if state.contains_key(&place_of(key, body)) {
                409
            } else {
                put(state, key, body, None)
            }
        }
        Upsert(key, body) => {
            let before = state.contains_key(&place_of(key, body)).then(|| place_of(key, body));
            put(state, key, body, before)
        }
        Replace(key, id, body) => match place(key, id) {
            before if state.contains_key(&before) => put(state, key, body, Some(before)),
            _ => 404,
        },
        Increment(key, id) => increment(state, key, id),
        Delete(key, id) => state.remove(&place(key, id)).map_or(404, |_| 204),
        Batch(key, bodies, id) => {
            let before = state.clone();
            let mut answers = bodies.iter().map(|body| expect(state, Create(key, body)));
            let failed = answers.find(|status| *status >= 400);
            let failed = failed.or_else(|| Some(increment(state, key, id)).filter(|s| *s >= 400));
            if failed.is_some() {
                *state = before;
            }
            failed.unwrap_or(200)
        }
        Span(_, documents) => {
            let before = state.clone();
            let mut answers = documents.iter().map(|(key, body)| expect(state, Create(key, body)));
            let failed = answers.find(|status| *status >= 400);
            if failed.is_some() {
                *state = before;
            }
            failed.unwrap_or(200)
        }
        Call(..) if !state.contains_key("procedure publish") => 404,
        // A procedure has one status for all that goes wrong in it.
        Call(key, bodies, id) => match expect(state, Batch(key, bodies, id)) {
            200 => 200,
            _ => 400,
        },
        DeletePartition(key) => {
            state.retain(|name, _| !name.starts_with(key));
            200
        }
    }
}

fn place(key: &str, id: &str) -> String {
    format!("{key} {id}")
}

fn place_of(key: &str, body: &str) -> String {
    place(key, object(body).get("id").and_then(Value::as_str).unwrap())
}

/// Stores a document if its unique value is free.
fn put(state: &mut State, key: &str, body: &str, before: Option<String>) -> u16 {
    let unique = |text: &str| object(text).get("u").cloned();
    let old = before.as_ref().and_then(|place| state.remove(place));
    let taken =
        state.iter().any(|(name, text)| name.starts_with(key) && unique(text) == unique(body));
    if !taken {
        state.insert(place_of(key, body), Value::Object(object(body)).to_text());
    } else if let (Some(place), Some(old)) = (before.clone(), old) {
        state.insert(place, old);
    }
    match (taken, before) {
        (true, _) => 409,
        (false, Some(_)) => 200,
        (false, None) => 201,
    }
}

fn increment(state: &mut State, key: &str, id: &str) -> u16 {
    let Some(text) = state.get_mut(&place(key, id)) else { return 404 };
    let mut document = object(text);
    let n = document.get("n").and_then(Value::as_i64).unwrap();
    document.insert("n", n + 1);
    *text = Value::Object(document).to_text();
    200
}

/// What the work was told.
#[derive(Debug)]
struct Told {
    /// The states that fit everything that was answered.
    states: Vec<State>,
    /// The newest version that was told of each range of `c`, with the container's resource id.
    versions: BTreeMap<(String, String), u64>,
    failures: usize,
}

impl Told {
    fn nothing() -> Self {
        Told { states: vec![State::new()], versions: BTreeMap::new(), failures: 0 }
    }

    fn answered(&mut self, step: Step, status: u16) {
        // After a failure the catalog in memory may be behind what is stored: it still refuses by what
        // it knows, and that tells nothing about what is there.
        if self.failures > 0 && matches!(status, 404 | 409) {
            return;
        }
        if status < 500 {
            self.states.retain_mut(|state| expect(state, step) == status);
            assert!(!self.states.is_empty(), "{step:?} was answered with {status}");
            return;
        }
        self.failures += 1;
        // Only one call fails by itself; what is refused because of it certainly does not happen.
        if self.failures == 1 {
            let mut changed = self.states.clone();
            for state in &mut changed {
                expect(state, step);
            }
            self.states.append(&mut changed);
        }
    }
}

struct Work<O: OrderedStore> {
    db: Arc<Db<Engine<O>>>,
    clock: Arc<ManualClock>,
    told: Told,
}

impl<O: OrderedStore> Work<O> {
    async fn go(store: O) -> Told {
        let Ok(engine) = Engine::with_store(store) else { return Told::nothing() };
        let clock = support::clock();
        let opened = Db::open(Arc::new(engine), clock.clone(), &CountingIds::default()).await;
        let Ok(db) = opened else { return Told::nothing() };
        let mut work = Work { db, clock, told: Told::nothing() };
        for step in WORK {
            let failures_before = work.told.failures;
            let status = work.perform(*step).await;
            work.told.answered(*step, status);
            assert!(status < 500 || !work.shows(*step), "{step:?} failed, but it shows");
            // A second failure without a second fault: the engine has closed itself.
            let closed = failures_before >= 2 && !matches!(step, Advance(_) | Sweep);
            assert!(!closed || status >= 400, "{step:?} succeeded after a failed write");
        }
        // Whether closing succeeds changes nothing about what was told.
        let _ = work.db.close().await;
        work.told
    }

    /// Whether the catalog has what a step creates: never before it is stored.
    fn shows(&self, step: Step) -> bool {
        match step {
            CreateDatabase(name) => self.db.database(name).is_ok(),
            CreateContainer(name, _) => self.db.container("d", name).is_ok(),
            CreateUser(name) => self.db.user("d", name).is_ok(),
            CreateEncryptionKey(name) => self.db.encryption_key("d", name).is_ok(),
            CreateProcedure(name) => self
                .db
                .container("d", "c")
                .is_ok_and(|c| self.db.script(&c, ScriptKind::Procedure, name).is_ok()),
            _ => false,
        }
    }

    async fn perform(&mut self, step: Step) -> u16 {
        let db = self.db.clone();
        let named = |name: &str| Object::from([("id", name)]);
        match step {
            CreateDatabase(name) => told(db.create_database(&named(name), None).await, 201),
            DeleteDatabase(name) => told(db.delete_database(name, None).await, 204),
            CreateContainer(name, throughput) => {
                let throughput = Some(Throughput::Manual(throughput));
                let body = definition(name, None);
                told(db.create_container("d", &body, throughput, false).await, 201)
            }
            SetTtl(name, ttl) => {
                let body = definition(name, Some(ttl));
                told(db.replace_container("d", name, &body, None).await, 200)
            }
            DeleteContainer(name) => told(db.delete_container("d", name, None).await, 204),
            CreateUser(name) => told(db.create_user("d", &named(name)).await, 201),
            CreatePermission(name) => {
                let mut body = object(r#"{"permissionMode":"All","resource":"dbs/d/colls/c"}"#);
                body.insert("id", name);
                told(db.create_permission("d", "u", &body, None).await, 201)
            }
            DeleteUser(name) => told(db.delete_user("d", name, None).await, 204),
            CreateEncryptionKey(name) => {
                let mut body = object(
                    r#"{"encryptionAlgorithm":"x","wrappedDataEncryptionKey":"y","keyWrapMetadata":{}}"#,
                );
                body.insert("id", name);
                told(db.create_encryption_key("d", &body).await, 201)
            }
            SetThroughput(name, throughput) => self.set_throughput(name, throughput).await,
            Advance(seconds) => {
                self.clock.advance_ms(seconds * 1_000);
                200
            }
            Sweep => told(db.sweep().await, 200),
            _ => match db.container("d", "c") {
                Ok(container) => self.perform_on(&container, step).await,
                Err(error) => error.kind.status(),
            },
        }
    }

    async fn set_throughput(&self, name: &str, throughput: i64) -> u16 {
        let Ok(container) = self.db.container("d", name) else { return 404 };
        let offers = self.db.offers();
        let link = Value::from(container.self_link());
        let offer = offers.iter().find(|offer| offer.body.get("resource") == Some(&link)).unwrap();
        let mut body = Object::clone(&offer.body);
        body.insert("content", Value::Object(Object::from([("offerThroughput", throughput)])));
        told(self.db.replace_offer(&offer.rid, &body, None, None).await, 200)
    }

    async fn call(
        &mut self,
        container: &Arc<Container>,
        key: &PartitionKey,
        bodies: [&str; 2],
        id: &str,
    ) -> u16 {
        let call = db::Call {
            procedure: "publish".to_owned(),
            parameters: format!("[[{}],\"{id}\"]", bodies.join(",")),
            headers: Vec::new(),
            is_logging: false,
        };
        match self.db.execute(container, Some(key), call, None).await {
            Ok(called) => {
                self.learn(container, &called.at);
                200
            }
            Err(failure) => failure.error.kind.status(),
        }
    }

    async fn perform_on(&mut self, container: &Arc<Container>, step: Step) -> u16 {
        let db = self.db.clone();
        let none = Conditions::default();
        let (at, write) = match step {
            CreateProcedure(name) => {
                let body = [("id", name), ("body", PUBLISH)];
                let created =
                    db.create_script(container, ScriptKind::Procedure, &Object::from(body)).await;
                return told(created, 201);
            }
            Call(at, bodies, id) => return self.call(container, &key(at), bodies, id).await,
            Create(key, body) => (key, create(body)),
            Upsert(key, body) => (key, upsert(body)),
            Replace(key, id, body) => (key, replace(id, body)),
            Increment(key, id) => (key, increment_write(id)),
            Delete(key, id) => (key, delete(id)),
            Read(at, id) => {
                let result = db.read(container, Some(&key(at)), &by_id(id), &none, None);
                return self.served(container, result);
            }
            Batch(at, bodies, id) => {
                let mut writes: Vec<_> = bodies.iter().map(|body| create(body)).collect();
                writes.push(increment_write(id));
                return self.batch(container, &key(at), writes).await;
            }
            Span(token, documents) => return self.span(container, token, documents).await,
            DeletePartition(at) => {
                let result = db.delete_partition(container, &key(at)).await;
                return self.served(container, result);
            }
            Split(at) => {
                let range = db.read(container, Some(&key(at)), &by_id("?"), &none, None);
                let at = range.expect_err("no document has this id").at;
                let Some(at) = at else { return 503 };
                return told(db.split_range(container, &at.range, None).await, 200);
            }
            Merge => {
                let Ok(ranges) = db.partition_key_ranges(container) else { return 503 };
                let ids: Vec<_> = (ranges.ranges.iter())
                    .map(|range| range.get("id").and_then(Value::as_str).unwrap())
                    .collect();
                return told(db.merge_ranges(container, ids[0], ids[1]).await, 200);
            }
            SetApart(at) => return told(db.set_apart(container, &key(at)).await, 200),
            ReadFeed => {
                let page = db.read_feed(container, &Scope::default(), &db::Page::default(), None);
                return page.map_or_else(|failure| failure.error.kind.status(), |_| 200);
            }
            _ => unreachable!("was performed elsewhere"),
        };
        let result = db.write(container, Some(&key(at)), write, none).await;
        self.served(container, result)
    }

    async fn batch(
        &mut self,
        container: &Arc<Container>,
        key: &PartitionKey,
        writes: Vec<Write>,
    ) -> u16 {
        let operations = writes.into_iter().map(operation).collect();
        match self.db.batch(container, key, operations, None).await {
            Ok(outcome) => {
                outcome.at.iter().for_each(|at| self.learn(container, at));
                let mut statuses = outcome.results.iter().map(|result| result.status);
                // A fault is not the fault of one operation.
                assert!(statuses.clone().all(|status| status < 500));
                statuses.find(|status| *status >= 400 && *status != 424).unwrap_or(200)
            }
            Err(failure) => failure.error.kind.status(),
        }
    }

    async fn span(
        &mut self,
        container: &Container,
        token: &str,
        documents: [(&str, &str); 2],
    ) -> u16 {
        let operations =
            documents.iter().map(|(at, body)| support::distributed("c", at, create(body)));
        match self.db.write_distributed(token, operations.collect()).await {
            Ok(outcome) => {
                let at = outcome.results.iter().filter_map(|result| result.at.as_ref());
                at.for_each(|at| self.learn(container, at));
                let mut statuses = outcome.results.iter().map(|result| result.result.status);
                assert!(statuses.clone().all(|status| status < 500));
                statuses.find(|status| *status >= 400 && *status != 453).unwrap_or(200)
            }
            Err(failure) => failure.error.kind.status(),
        }
    }

    fn served(&mut self, container: &Container, result: Result<Outcome, Failure>) -> u16 {
        match result {
            Ok(outcome) => {
                self.learn(container, &outcome.at);
                outcome.status
            }
            Err(failure) => failure.error.kind.status(),
        }
    }

    fn learn(&mut self, container: &Container, at: &Position) {
        let range = (container.rid.to_string(), at.range.clone());
        self.told.versions.insert(range, at.lsn);
    }
}

/// Creates documents and increments another.
const PUBLISH: &str = "function (bodies, id) {
    const c = getContext().getCollection(), fail = (error) => { if (error) throw error; };
    for (const body of bodies) c.createDocument(c.getSelfLink(), body, fail);
    const link = c.getAltLink() + '/docs/' + id;
    c.patchDocument(link, [{op: 'incr', path: '/n', value: 1}], fail);
}";

fn increment_write(id: &str) -> Write {
    patch_by(id, r#"[{"op":"incr","path":"/n","value":1}]"#)
}

fn definition(name: &str, ttl: Option<i64>) -> Object {
    let mut body = object(&support::by_pk_with(
        r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]},
        "changeFeedPolicy":{"retentionDuration":1}"#,
    ));
    body.insert("id", name);
    if let Some(ttl) = ttl {
        body.insert("defaultTtl", ttl);
    }
    body
}

fn told<T>(result: Result<T>, success: u16) -> u16 {
    result.map_or_else(|error| error.kind.status(), |_| success)
}

/// Reads everything there is.
fn observe<S: RangeStore>(db: &Db<S>) -> State {
    let mut state = State::new();
    for database in db.databases() {
        state.insert(format!("database {}", database.id), String::new());
    }
    if db.database("d").is_err() {
        return state;
    }
    let mut links = BTreeMap::new();
    for container in db.containers("d").unwrap() {
        let container = db.container("d", &container.id).unwrap();
        links.insert(container.self_link().to_owned(), container.id.clone());
        let ttl = format!("{:?}", container.policies.default_ttl);
        state.insert(format!("container {}", container.id), ttl);
        for script in db.scripts(&container, ScriptKind::Procedure) {
            state.insert(format!("procedure {}", script.id), String::new());
        }
        for row in feed(db, &container, &Scope::default(), Some(2)) {
            let Value::Object(mut row) = row else { panic!("a row is an object") };
            row.retain(|name, _| !name.starts_with('_'));
            let at = Value::Array(vec![row.get("pk").unwrap().clone()]).to_text();
            let id = row.get("id").and_then(Value::as_str).unwrap().to_owned();
            state.insert(place(&at, &id), Value::Object(row).to_text());
        }
    }
    for offer in db.offers() {
        let link = offer.body.get("resource").and_then(Value::as_str).unwrap();
        let content = offer.body.get("content").unwrap();
        let throughput = content.get("offerThroughput").unwrap().to_text();
        state.insert(format!("offer {}", links[link]), throughput);
    }
    for user in db.users("d").unwrap() {
        state.insert(format!("user {}", user.id), String::new());
        for permission in db.permissions("d", &user.id, None).unwrap() {
            state.insert(format!("permission {}", permission.id), String::new());
        }
    }
    for encryption_key in db.encryption_keys("d").unwrap() {
        state.insert(format!("key {}", encryption_key.id), String::new());
    }
    state
}

/// Opens what is left and compares it with what was told.
async fn check(survivor: Memory, told: &Told) {
    let engine = Arc::new(Engine::with_store(survivor).unwrap());
    // The work ends five seconds after it began.
    let clock = support::clock();
    clock.advance_ms(5_000);
    let db = Db::open(engine.clone(), clock, &CountingIds::default()).await.unwrap();
    verify(&db);
    let state = observe(&db);
    // The clock may have stood still where the work ended early; then nothing has expired yet.
    let states: Vec<_> = told
        .states
        .iter()
        .cloned()
        .map(|mut state| {
            expect(&mut state, Advance(0));
            state
        })
        .collect();
    assert!(states.contains(&state), "found {state:#?}, but {told:#?}");
    check_ranges(&db, engine.as_ref(), told);
    let after = Object::from([("id", "after")]);
    db.create_database(&after, None).await.unwrap();
    db.create_container("after", &definition("c", None), None, false).await.unwrap();
    let container = db.container("after", "c").unwrap();
    let write = create(r#"{"id":"a","pk":"x"}"#);
    db.write(&container, None, write, Conditions::default()).await.unwrap();
    verify(&db);
    db.close().await.unwrap();
}

/// Versions never go back, and no range is left without its container.
fn check_ranges<S: RangeStore>(db: &Db<S>, store: &S, told: &Told) {
    let mut known = 1;
    let containers =
        if db.database("d").is_ok() { db.containers("d").unwrap() } else { Vec::new() };
    for container in containers {
        let container = db.container("d", &container.id).unwrap();
        known += container.range_count();
        for range in db.partition_key_ranges(&container).unwrap().ranges {
            let lsn = range.get("_lsn").and_then(Value::as_i64).unwrap().unsigned_abs();
            // A range that comes from others is not behind any of them.
            let parents = range.get("parents").and_then(Value::as_array).unwrap();
            for id in parents.iter().chain(range.get("id")) {
                let id = id.as_str().unwrap().to_owned();
                let told = told.versions.get(&(container.rid.to_string(), id));
                assert!(told.is_none_or(|told| *told <= lsn), "{lsn} after {told:?}");
            }
        }
    }
    let ranges: BTreeSet<_> = store.ranges().into_iter().map(|(range, _)| range).collect();
    assert!(ranges.contains(&META_RANGE));
    assert_eq!(ranges.len(), known, "{ranges:?}");
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

#[test]
fn without_trouble_all_is_done() {
    block_on(async {
        let memory = Memory::new();
        let told = Work::go(memory.clone()).await;
        assert_eq!((told.failures, told.states.len()), (0, 1));
        check(memory, &told).await;
    });
}

#[test]
fn every_call_may_fail() {
    let mut met = 0;
    for fail_at in 1.. {
        let memory = Memory::new();
        let faulty = Faulty::new(memory.clone(), fail_at);
        let calls = faulty.calls();
        block_on(async {
            let told = Work::go(faulty).await;
            check(memory, &told).await;
        });
        if calls() < fail_at {
            break;
        }
        met += 1;
    }
    assert!(met > 150, "the work meets too few faults: {met}");
}

#[test]
fn every_call_may_be_the_last() {
    for torn in [Torn::Kept, Torn::Lost] {
        let mut met = 0;
        for crash_at in 1.. {
            let crashing = Crashing::new(Memory::new(), crash_at, torn);
            let (survivor, calls) = (crashing.survivor(), crashing.calls());
            block_on(async {
                let told = Work::go(crashing).await;
                // Opening again may meet trouble as well; the next time it goes well.
                let faulty = Faulty::new(survivor.clone(), 1 + crash_at % 24);
                if let Ok(engine) = Engine::with_store(faulty) {
                    let ids = CountingIds::default();
                    let _ = Db::open(Arc::new(engine), support::clock(), &ids).await;
                }
                check(survivor, &told).await;
            });
            if calls() < crash_at {
                break;
            }
            met += 1;
        }
        assert!(met > 150, "the work meets too few crashes: {met}");
    }
}

/// Polls a future so often and then drops it, as happens to a request whose client has left.
async fn abandoned<T>(work: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut work = pin!(work);
    let mut left = polls;
    poll_fn(|context| match left.checked_sub(1) {
        None => Poll::Ready(None),
        Some(rest) => {
            left = rest;
            work.as_mut().poll(context).map(Some)
        }
    })
    .await
}

/// Does all of the work, but leaves one step after so many polls; says whether it was done by then.
async fn abandon(leave_at: usize, polls: usize) -> bool {
    let memory = Memory::new();
    let clock = support::clock();
    let db = support::open(Engine::with_store(memory.clone()).unwrap(), &clock).await;
    let mut work = Work { db, clock, told: Told::nothing() };
    let mut done = true;
    for (at, step) in WORK.iter().enumerate() {
        if at == leave_at {
            done = abandoned(work.perform(*step), polls).await.is_some();
            continue;
        }
        let status = work.perform(*step).await;
        assert!(status < 500, "{step:?} after {:?} was left", WORK[leave_at]);
    }
    // Whoever changes metadata now waits for what is still under way.
    let last = Object::from([("id", "last")]);
    work.db.create_database(&last, None).await.unwrap();
    let seen = observe(&work.db);
    verify(&work.db);
    work.db.close().await.unwrap();
    let db = support::open(Engine::with_store(memory).unwrap(), &work.clock).await;
    assert_eq!(observe(&db), seen, "after {:?} was left at poll {polls}", WORK[leave_at]);
    verify(&db);
    done
}

#[test]
fn clients_may_leave_at_any_moment() {
    for leave_at in 0..WORK.len() {
        let polls = (1..).find(|polls| block_on(abandon(leave_at, *polls)));
        assert!(polls.is_some());
    }
}

#[test]
fn after_a_failed_write_nothing_is_served() {
    let mut met = 0;
    for fail_at in 1..200 {
        block_on(async {
            let Ok(engine) = Engine::with_store(Faulty::new(Memory::new(), fail_at)) else {
                return;
            };
            let ids = CountingIds::default();
            let opened = Db::open(Arc::new(engine), support::clock(), &ids).await;
            let Ok(db) = opened else { return };
            assert_eq!(db.check_open(), Ok(()));
            let created = db.create_database(&Object::from([("id", "d")]), None).await;
            if created.is_err_and(|error| error.kind == db::Kind::Unavailable) {
                met += 1;
                assert_eq!(db.check_open().unwrap_err().kind, db::Kind::Unavailable);
                assert!(db.stats().is_err(), "readiness must not be claimed");
            }
        });
    }
    assert!(met > 0, "no write failed");
}
