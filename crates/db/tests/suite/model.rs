//! Random requests against a map that says what each of them should do.
//!
//! The map holds what the server holds: documents that anybody sees, and those that have expired but
//! still lie there. The difference shows when the time to live of a container changes: what was not
//! swept is visible again. Everything else that the server keeps (pointers, counters, unique keys,
//! queues) is checked by its own verification, after which nothing may be wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use db::{
    Address, BatchOperation, ChangeRequest, ChangeStart, Conditions, Container, Db, Failure, Kind,
    ManualClock, Outcome, Pace, Position, Scope, Write,
};
use proptest::prelude::*;
use storage::{Embedded, Local, Memory};
use value::{Object, Value};

use crate::change_feed::{Follower, drain, latest};
use crate::support::{self, Status, feed, key, object, patch, status, status_of, verify};

/// What a container looks like, and the partitions that the test uses.
#[derive(Clone, Copy, Debug)]
struct Shape {
    partition_key: &'static str,
    partitions: [&'static str; 4],
    /// The members of a document that put it into each of the partitions.
    members: [&'static str; 4],
    unique: bool,
    /// Whether every version is recorded.
    records: bool,
}

const FLAT: Shape = Shape {
    partition_key: r#"{"paths":["/pk"],"kind":"Hash","version":2}"#,
    partitions: [r#"["x"]"#, "[7.5]", "[null]", "[{}]"],
    members: [r#"{"pk":"x"}"#, r#"{"pk":7.5}"#, r#"{"pk":null}"#, "{}"],
    unique: false,
    records: false,
};

const HIERARCHICAL: Shape = Shape {
    partition_key: r#"{"paths":["/a","/b/c"],"kind":"MultiHash","version":2}"#,
    partitions: [r#"["t",1]"#, r#"["t",2]"#, r#"["s",{}]"#, r#"[{},true]"#],
    members: [
        r#"{"a":"t","b":{"c":1}}"#,
        r#"{"a":"t","b":{"c":2}}"#,
        r#"{"a":"s"}"#,
        r#"{"b":{"c":true}}"#,
    ],
    unique: false,
    records: false,
};

impl Shape {
    fn definition(&self, default_ttl: Option<i64>) -> Object {
        let mut definition = object(r#"{"id":"c"}"#);
        definition.insert("partitionKey", support::json(self.partition_key));
        if self.unique {
            let keys = support::json(r#"{"uniqueKeys":[{"paths":["/u"]}]}"#);
            definition.insert("uniqueKeyPolicy", keys);
        }
        if self.records {
            let policy = support::json(r#"{"retentionDuration":600}"#);
            definition.insert("changeFeedPolicy", policy);
            let features = r#"{"supportedFeatures":{"allVersionsAndDeletes":{"mode":3}}}"#;
            definition.insert("previousImageRetentionPolicy", support::json(features));
        }
        if let Some(seconds) = default_ttl {
            definition.insert("defaultTtl", seconds);
        }
        definition
    }
}

#[derive(Clone, Debug)]
struct Case {
    shape: Shape,
    default_ttl: Option<i64>,
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    Write(Request),
    /// All requests go to one partition.
    Batch(usize, Vec<Request>),
    Bulk {
        requests: Vec<Request>,
        continue_on_error: bool,
    },
    Advance(u64),
    Sweep,
    DeletePartition(usize),
    SetTtl(Option<i64>),
    /// Splits the range at this position, or merges it with the next one.
    Recut(usize),
    /// Gives a partition index entries of its own, with so many commits.
    SetApart(usize, usize),
    Reopen,
    /// Those who follow the change feed read a page of this size.
    Follow(usize),
}

#[derive(Clone, Debug)]
struct Request {
    partition: usize,
    id: usize,
    by_rid: bool,
    guard: Guard,
    action: Action,
}

#[derive(Clone, Copy, Debug)]
enum Guard {
    None,
    Current,
    Any,
    Wrong,
}

#[derive(Clone, Debug)]
enum Action {
    Create(Body),
    Upsert(Body),
    Replace(usize, Body),
    Patch(Change),
    Delete,
    Read,
}

#[derive(Clone, Debug)]
struct Body {
    n: i64,
    /// The unique value; 6 stands for nothing and 7 for null, which are the same.
    u: u8,
    ttl: Option<i64>,
}

#[derive(Clone, Debug)]
enum Change {
    Increment(i64),
    SetUnique(u8),
    SetTtl(i64),
    RemoveTtl,
    IncrementIfOver(i64),
}

fn case() -> impl Strategy<Value = Case> {
    let shape = prop_oneof![Just(FLAT), Just(HIERARCHICAL)];
    let shape = (shape, any::<bool>(), any::<bool>()).prop_map(|(shape, unique, records)| Shape {
        unique,
        records,
        ..shape
    });
    (shape, default_ttl(), proptest::collection::vec(step(), 1..80))
        .prop_map(|(shape, default_ttl, steps)| Case { shape, default_ttl, steps })
}

fn default_ttl() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![Just(None), Just(Some(-1)), Just(Some(4)), Just(Some(20))]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        24 => request().prop_map(Step::Write),
        6 => (0..4usize, proptest::collection::vec(request(), 1..6))
            .prop_map(|(partition, requests)| Step::Batch(partition, requests)),
        3 => (proptest::collection::vec(request(), 1..6), any::<bool>())
            .prop_map(|(requests, continue_on_error)| Step::Bulk { requests, continue_on_error }),
        4 => (1..6u64).prop_map(Step::Advance),
        2 => Just(Step::Sweep),
        1 => (0..4usize).prop_map(Step::DeletePartition),
        2 => default_ttl().prop_map(Step::SetTtl),
        1 => (0..4usize).prop_map(Step::Recut),
        1 => (0..4usize, 0..4usize).prop_map(|(at, commits)| Step::SetApart(at, commits)),
        1 => Just(Step::Reopen),
        5 => (1..6usize).prop_map(Step::Follow),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let guard = prop_oneof![
        6 => Just(Guard::None), 2 => Just(Guard::Current), 1 => Just(Guard::Any),
        1 => Just(Guard::Wrong),
    ];
    (0..4usize, 0..5usize, any::<bool>(), guard, action()).prop_map(
        |(partition, id, by_rid, guard, action)| Request { partition, id, by_rid, guard, action },
    )
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => body().prop_map(Action::Create),
        4 => body().prop_map(Action::Upsert),
        3 => (0..5usize, body()).prop_map(|(id, body)| Action::Replace(id, body)),
        4 => change().prop_map(Action::Patch),
        2 => Just(Action::Delete),
        2 => Just(Action::Read),
    ]
}

fn body() -> impl Strategy<Value = Body> {
    let ttl = prop_oneof![
        6 => Just(None), 1 => Just(Some(-1)), 1 => Just(Some(0)), 2 => Just(Some(3)),
        1 => Just(Some(9)),
    ];
    (0..10i64, 0..8u8, ttl).prop_map(|(n, u, ttl)| Body { n, u, ttl })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (-3..4i64).prop_map(Change::Increment),
        (0..8u8).prop_map(Change::SetUnique),
        prop_oneof![Just(-1), Just(0), Just(3), Just(9)].prop_map(Change::SetTtl),
        Just(Change::RemoveTtl),
        (0..10i64).prop_map(Change::IncrementIfOver),
    ]
}

/// Where the data is, so that a server can be opened over it again.
enum Home<'a> {
    Memory(Memory),
    Directory(&'a Path),
}

impl Home<'_> {
    fn engine(&self) -> Embedded {
        match self {
            Self::Memory(memory) => Embedded::with_store(Local::Forgotten(memory.clone())).unwrap(),
            Self::Directory(path) => support::embedded(path),
        }
    }
}

/// A document as the map knows it.
#[derive(Clone, Debug)]
struct Entry {
    user: Object,
    ts: u64,
    /// Chosen by the server: unknown until it was read.
    rid: Option<String>,
    /// Unknown from every write until the document was read.
    etag: Option<String>,
}

type Entries = BTreeMap<(usize, String), Entry>;

#[derive(Debug)]
struct Model {
    shape: Shape,
    default_ttl: Option<i64>,
    now_s: u64,
    entries: Entries,
}

/// A request as it goes to the server: what it refers to was looked up before anything ran.
#[derive(Clone, Debug)]
struct Sent {
    partition: usize,
    address: Address,
    if_match: Option<String>,
    action: Action,
}

fn id_text(id: usize) -> String {
    format!("id{id}")
}

impl Model {
    fn send(&self, request: &Request, partition: usize) -> Sent {
        let id = id_text(request.id);
        let entry = self.entries.get(&(partition, id.clone()));
        let address = match entry.and_then(|entry| entry.rid.clone()) {
            Some(rid) if request.by_rid => Address::Rid(rid),
            _ => Address::Id(id),
        };
        let wrong = "\"00000000-0000-0000-0000-000000000000\"";
        let if_match = match request.guard {
            Guard::None => None,
            Guard::Current => entry.and_then(|entry| entry.etag.clone()),
            Guard::Any => Some("*".to_owned()),
            Guard::Wrong => Some(wrong.to_owned()),
        };
        // Only what exists can be addressed by its resource id.
        let by_id = matches!(request.action, Action::Create(_) | Action::Upsert(_));
        let address = if by_id { Address::Id(id_text(request.id)) } else { address };
        Sent { partition, address, if_match, action: request.action.clone() }
    }

    fn user(&self, partition: usize, id: &str, body: &Body) -> Object {
        let mut user = object(self.shape.members[partition]);
        user.insert("id", id);
        user.insert("n", body.n);
        if let Some(value) = unique_value(body.u) {
            user.insert("u", value);
        }
        if let Some(ttl) = body.ttl {
            user.insert("ttl", ttl);
        }
        user
    }

    fn write(&self, sent: &Sent) -> Write {
        let address = sent.address.clone();
        let id_of = |address: &Address| match address {
            Address::Id(id) | Address::Rid(id) => id.clone(),
        };
        let body = |id: &str, body| Value::Object(self.user(sent.partition, id, body));
        match &sent.action {
            Action::Create(new) => Write::Create { body: body(&id_of(&address), new) },
            Action::Upsert(new) => Write::Upsert { body: body(&id_of(&address), new) },
            Action::Replace(id, new) => Write::Replace { address, body: body(&id_text(*id), new) },
            Action::Patch(change) => Write::Patch { address, patch: patch(&change.text()) },
            Action::Delete => Write::Delete { address },
            Action::Read => Write::Read { address },
        }
    }

    fn is_expired(&self, entry: &Entry) -> bool {
        let Some(default) = self.default_ttl else { return false };
        let own = entry.user.get("ttl").and_then(Value::as_i64);
        let seconds = own.filter(|ttl| *ttl == -1 || *ttl > 0).unwrap_or(default);
        seconds > 0 && entry.ts + seconds.unsigned_abs() <= self.now_s
    }

    fn is_visible(&self, partition: usize, id: &str) -> bool {
        let entry = self.entries.get(&(partition, id.to_owned()));
        entry.is_some_and(|entry| !self.is_expired(entry))
    }

    fn visible(&self) -> impl Iterator<Item = (&(usize, String), &Entry)> {
        self.entries.iter().filter(|(_, entry)| !self.is_expired(entry))
    }

    /// What a request should answer, and what it changes. What is refused changes nothing.
    fn apply(&mut self, sent: &Sent) -> (Status, Option<Object>) {
        let before = self.entries.clone();
        match self.try_apply(sent) {
            Ok(answer) => answer,
            Err(kind) => {
                self.entries = before;
                (status_of(kind), None)
            }
        }
    }

    fn try_apply(&mut self, sent: &Sent) -> Result<(Status, Option<Object>), Kind> {
        let partition = sent.partition;
        let id = self.locate(partition, &sent.address);
        let found = self.is_visible(partition, &id);
        if !found {
            self.entries.remove(&(partition, id.clone()));
        }
        match &sent.action {
            Action::Create(_) if found => return Err(Kind::Conflict),
            Action::Create(_) => {}
            Action::Upsert(_) if !found => {}
            _ if !found => return Err(Kind::NotFound),
            Action::Read => {
                self.check_guard(partition, &id, sent)?;
                return Ok(((200, 0), Some(self.entries[&(partition, id)].user.clone())));
            }
            _ => self.check_guard(partition, &id, sent)?,
        }
        let user = match &sent.action {
            Action::Delete => {
                self.entries.remove(&(partition, id));
                return Ok(((204, 0), None));
            }
            Action::Create(body) | Action::Upsert(body) => self.user(partition, &id, body),
            Action::Replace(new_id, body) => {
                let new_id = id_text(*new_id);
                if new_id != id && self.is_visible(partition, &new_id) {
                    return Err(Kind::Conflict);
                }
                self.user(partition, &new_id, body)
            }
            Action::Patch(change) => {
                let mut user = self.entries[&(partition, id.clone())].user.clone();
                change.apply(&mut user)?;
                user
            }
            Action::Read => unreachable!("was answered above"),
        };
        self.store(partition, id, user, found)
    }

    fn locate(&self, partition: usize, address: &Address) -> String {
        match address {
            Address::Id(id) => id.clone(),
            Address::Rid(rid) => {
                let of = |entry: &Entry| entry.rid.as_ref() == Some(rid);
                let mut entries = self.entries.iter();
                let found = entries.find(|((at, _), entry)| *at == partition && of(entry));
                found.map_or_else(|| "nowhere".to_owned(), |((_, id), _)| id.clone())
            }
        }
    }

    fn check_guard(&self, partition: usize, id: &str, sent: &Sent) -> Result<(), Kind> {
        let entry = &self.entries[&(partition, id.to_owned())];
        match &sent.if_match {
            None => Ok(()),
            Some(any) if any == "*" => Ok(()),
            Some(etag) if entry.etag.as_ref() == Some(etag) => Ok(()),
            Some(_) => Err(Kind::PreconditionFailed),
        }
    }

    /// Puts a new version where its id says, if its time to live and unique value allow.
    fn store(
        &mut self,
        partition: usize,
        old_id: String,
        user: Object,
        existed: bool,
    ) -> Result<(Status, Option<Object>), Kind> {
        if self.default_ttl.is_some()
            && user.get("ttl").and_then(Value::as_i64).is_some_and(|ttl| ttl == 0)
        {
            return Err(Kind::BadRequest);
        }
        let rid = self.entries.remove(&(partition, old_id)).and_then(|entry| entry.rid);
        if self.shape.unique {
            let value = |user: &Object| user.get("u").cloned().unwrap_or(Value::Null);
            let mut entries = self.entries.iter();
            let owner = entries
                .find(|((at, _), entry)| *at == partition && value(&entry.user) == value(&user));
            if let Some((place, entry)) = owner {
                if !self.is_expired(entry) {
                    return Err(Kind::UniqueConflict);
                }
                let place = place.clone();
                self.entries.remove(&place);
            }
        }
        let id = user.get("id").and_then(Value::as_str).unwrap().to_owned();
        let entry = Entry { user: user.clone(), ts: self.now_s, rid, etag: None };
        self.entries.insert((partition, id), entry);
        Ok(((if existed { 200 } else { 201 }, 0), Some(user)))
    }
}

fn unique_value(u: u8) -> Option<Value> {
    match u {
        6 => None,
        7 => Some(Value::Null),
        value => Some(Value::from(u32::from(value))),
    }
}

impl Change {
    fn text(&self) -> String {
        match self {
            Change::Increment(by) => format!(r#"[{{"op":"incr","path":"/n","value":{by}}}]"#),
            Change::SetUnique(u) => {
                let value = unique_value(*u).unwrap_or(Value::Null);
                format!(r#"[{{"op":"set","path":"/u","value":{value}}}]"#)
            }
            Change::SetTtl(ttl) => format!(r#"[{{"op":"set","path":"/ttl","value":{ttl}}}]"#),
            Change::RemoveTtl => r#"[{"op":"remove","path":"/ttl"}]"#.to_owned(),
            Change::IncrementIfOver(over) => format!(
                r#"{{"condition":"FROM c WHERE c.n > {over}",
                     "operations":[{{"op":"incr","path":"/n","value":1}}]}}"#
            ),
        }
    }

    fn apply(&self, user: &mut Object) -> Result<(), Kind> {
        let n = user.get("n").and_then(Value::as_i64).unwrap();
        match self {
            Change::Increment(by) => user.insert("n", n + by),
            Change::SetUnique(u) => user.insert("u", unique_value(*u).unwrap_or(Value::Null)),
            Change::SetTtl(ttl) => user.insert("ttl", *ttl),
            Change::RemoveTtl => Some(user.remove("ttl").ok_or(Kind::BadRequest)?),
            Change::IncrementIfOver(over) if n <= *over => {
                return Err(Kind::PatchConditionFailed);
            }
            Change::IncrementIfOver(_) => user.insert("n", n + 1),
        };
        Ok(())
    }
}

/// The server under test, and what is known about its answers.
struct Run<'a> {
    home: Home<'a>,
    /// Nothing only while it is being opened again.
    db: Option<Arc<Db<Embedded>>>,
    container: Arc<Container>,
    clock: Arc<ManualClock>,
    model: Model,
    /// The version of every range after the last step.
    lsns: BTreeMap<String, u64>,
    /// Where each partition was last served: always in the same range.
    ranges: BTreeMap<usize, String>,
    etags: BTreeSet<(usize, String)>,
    /// Follows the latest versions, and all versions where they are recorded.
    latest: Follower,
    versions: Option<Follower>,
    /// Whether the time to live of the container has changed.
    ttl_changed: bool,
}

impl<'a> Run<'a> {
    async fn start(home: Home<'a>, case: &Case) -> Self {
        let clock = support::clock();
        let db = support::open(home.engine(), &clock).await;
        let definition = Value::Object(case.shape.definition(case.default_ttl)).to_text();
        let container = support::create_container(&db, "c", &definition, Some(30_000)).await;
        assert_eq!(container.range_count(), 3);
        let model = Model {
            shape: case.shape,
            default_ttl: case.default_ttl,
            now_s: support::START_S,
            entries: Entries::new(),
        };
        let (lsns, ranges, etags) = Default::default();
        let mut versions = case.shape.records.then(Follower::of_all_versions);
        if let Some(follower) = &mut versions {
            follower.read(&db, &container, 1);
        }
        let mut run = Run {
            home,
            db: Some(db),
            container,
            clock,
            model,
            lsns,
            ranges,
            etags,
            latest: Follower::of_latest(),
            versions,
            ttl_changed: false,
        };
        run.learn_lsns();
        run
    }

    fn learn_lsns(&mut self) {
        let feed = self.db().partition_key_ranges(&self.container).unwrap();
        for range in feed.ranges {
            let id = range.get("id").and_then(Value::as_str).unwrap().to_owned();
            let lsn = range.get("_lsn").and_then(Value::as_i64).unwrap().unsigned_abs();
            let before = self.lsns.insert(id, lsn).unwrap_or(0);
            assert!(before <= lsn, "versions never go back");
        }
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Write(request) => self.write(request).await,
            Step::Batch(partition, requests) => self.batch(*partition, requests).await,
            Step::Bulk { requests, continue_on_error } => {
                self.bulk(requests, *continue_on_error).await;
            }
            Step::Advance(seconds) => {
                self.clock.advance_ms(seconds * 1_000);
                self.model.now_s += seconds;
            }
            Step::Sweep => self.sweep().await,
            Step::DeletePartition(partition) => {
                let key = key(self.model.shape.partitions[*partition]);
                self.db().delete_partition(&self.container, &key).await.unwrap();
                self.model.entries.retain(|(at, _), _| at != partition);
            }
            Step::SetTtl(default_ttl) => {
                self.model.default_ttl = *default_ttl;
                self.ttl_changed = true;
                let definition = self.model.shape.definition(*default_ttl);
                self.db().replace_container("d", "c", &definition, None).await.unwrap();
                self.container = self.db().container("d", "c").unwrap();
            }
            Step::Recut(at) => self.recut(*at).await,
            Step::SetApart(partition, commits) => {
                let key = key(self.model.shape.partitions[*partition]);
                self.db().set_apart(&self.container, &key).await.unwrap();
                let pace = Pace { commits: *commits, documents: 1 };
                self.db().index_apart(pace).await.unwrap();
            }
            Step::Reopen => self.reopen().await,
            Step::Follow(items_max) => {
                self.follow(*items_max);
            }
        }
        self.settle();
        if !matches!(step, Step::Write(_) | Step::Batch(..) | Step::Bulk { .. }) {
            self.learn_lsns();
        }
    }

    /// Lets those who follow the change feed read a page; says whether there may be more.
    fn follow(&mut self, items_max: usize) -> bool {
        let (db, container) = (self.db.as_ref().unwrap(), &self.container);
        let more = self.latest.read(db, container, items_max);
        let versions = self.versions.as_mut();
        more | versions.is_some_and(|follower| follower.read(db, container, items_max))
    }

    async fn sweep(&mut self) {
        self.db().sweep().await.unwrap();
        let expired: Vec<_> = (self.model.entries.iter())
            .filter(|(_, entry)| self.model.is_expired(entry))
            .map(|(place, _)| place.clone())
            .collect();
        for place in expired {
            self.model.entries.remove(&place);
        }
    }

    async fn recut(&mut self, at: usize) {
        let ids: Vec<_> = (self.db().partition_key_ranges(&self.container).unwrap().ranges.iter())
            .map(|range| range.get("id").and_then(Value::as_str).unwrap().to_owned())
            .collect();
        let db = self.db.as_ref().unwrap();
        match &ids[at % ids.len()..] {
            [one, other, ..] if ids.len() > 3 => {
                db.merge_ranges(&self.container, one, other).await.unwrap();
            }
            [range, ..] => drop(db.split_range(&self.container, range, None).await.unwrap()),
            [] => unreachable!("a container has ranges"),
        }
        self.container = self.db().container("d", "c").unwrap();
        self.ranges.clear();
        // None of those that follow is behind any of those that were there.
        let before = std::mem::take(&mut self.lsns);
        self.learn_lsns();
        let is_kept = |id: &String| before.contains_key(id);
        let kept = self.lsns.iter().filter(|(id, _)| is_kept(id)).map(|(_, lsn)| *lsn);
        let new = self.lsns.iter().filter(|(id, _)| !is_kept(id)).map(|(_, lsn)| *lsn);
        let gone = before.iter().filter(|(id, _)| !self.lsns.contains_key(*id));
        let greatest = gone.map(|(_, lsn)| *lsn).max().expect("a range was replaced");
        assert!(new.min().is_some_and(|lsn| lsn >= greatest) && kept.count() < before.len());
    }

    async fn reopen(&mut self) {
        let db = self.db.take().unwrap();
        db.close().await.unwrap();
        // The directory is free again only when nobody holds the old server.
        drop(Arc::into_inner(db).expect("nobody else has the server"));
        self.db = Some(support::open(self.home.engine(), &self.clock).await);
        self.container = self.db().container("d", "c").unwrap();
    }

    fn db(&self) -> &Db<Embedded> {
        self.db.as_ref().unwrap()
    }

    async fn write(&mut self, request: &Request) {
        let sent = self.model.send(request, request.partition);
        let (expected, user) = self.model.apply(&sent);
        let key = key(self.model.shape.partitions[sent.partition]);
        let conditions = Conditions { if_match: sent.if_match.clone(), if_none_match: None };
        let is_read = matches!(sent.action, Action::Read);
        let result = if is_read {
            self.db().read(&self.container, Some(&key), &sent.address, &conditions, None)
        } else {
            let write = self.model.write(&sent);
            self.db().write(&self.container, Some(&key), write, conditions).await
        };
        assert_eq!(status(&result), expected, "{sent:?}: {result:?}");
        let writes = u64::from(!is_read && result.is_ok());
        match result {
            Ok(Outcome { at, document, .. }) => {
                assert_eq!(document.map(|document| document.to_user_object()), user);
                self.served(sent.partition, &at, writes);
            }
            Err(Failure { at: Some(at), .. }) => self.served(sent.partition, &at, 0),
            Err(failure) => panic!("{failure:?}"),
        }
    }

    /// An answer tells the version of the range, which has grown by as much as was written.
    fn served(&mut self, partition: usize, at: &Position, writes: u64) {
        let range = self.ranges.entry(partition).or_insert_with(|| at.range.clone());
        assert_eq!(*range, at.range, "a partition stays in its range");
        let lsn = self.lsns.get_mut(&at.range).unwrap();
        *lsn += writes;
        assert_eq!(at.lsn, *lsn, "versions are dense");
    }

    async fn batch(&mut self, partition: usize, requests: &[Request]) {
        let sent: Vec<_> =
            requests.iter().map(|request| self.model.send(request, partition)).collect();
        let before = self.model.entries.clone();
        let mut expected: Vec<(Status, Option<Object>)> = Vec::new();
        let mut failed = None;
        for (at, request) in sent.iter().enumerate() {
            let answer = self.model.apply(request);
            if answer.0.0 >= 400 {
                failed = Some((at, answer.0));
                break;
            }
            expected.push(answer);
        }
        if let Some((at, status)) = failed {
            self.model.entries = before;
            expected = vec![((424, 0), None); sent.len()];
            expected[at] = (status, None);
        }
        let operations = self.operations(&sent);
        let key = key(self.model.shape.partitions[partition]);
        let outcome = self.db().batch(&self.container, &key, operations, None).await.unwrap();
        let results: Vec<_> = outcome.results.iter().map(answer_of).collect();
        assert_eq!(results, expected, "{sent:?}");
        let wrote = sent.iter().any(|request| !matches!(request.action, Action::Read));
        let writes = u64::from(failed.is_none() && wrote);
        for at in &outcome.at {
            self.served(partition, at, writes);
        }
    }

    async fn bulk(&mut self, requests: &[Request], continue_on_error: bool) {
        let sent: Vec<_> =
            requests.iter().map(|request| self.model.send(request, request.partition)).collect();
        let mut expected = Vec::new();
        let mut failed = false;
        for request in &sent {
            if failed && !continue_on_error {
                expected.push(((424, 0), None));
                continue;
            }
            let answer = self.model.apply(request);
            failed |= answer.0.0 >= 400;
            expected.push(answer);
        }
        let mut operations = self.operations(&sent);
        for (operation, request) in operations.iter_mut().zip(&sent) {
            operation.key = Some(key(self.model.shape.partitions[request.partition]));
        }
        let outcome = self.db().bulk(&self.container, None, operations, continue_on_error).await;
        let outcome = outcome.unwrap();
        let results: Vec<_> = outcome.results.iter().map(answer_of).collect();
        assert_eq!(results, expected, "{sent:?}");
        self.learn_lsns();
        for at in &outcome.at {
            assert_eq!(self.lsns[&at.range], at.lsn, "the last version is told");
        }
    }

    fn operations(&self, sent: &[Sent]) -> Vec<BatchOperation> {
        let operation = |sent: &Sent| BatchOperation {
            key: None,
            write: self.model.write(sent),
            conditions: Conditions { if_match: sent.if_match.clone(), if_none_match: None },
        };
        sent.iter().map(operation).collect()
    }

    /// Reads what was written, and learns what the server chose for it.
    fn settle(&mut self) {
        let mut learned = Vec::new();
        for ((partition, id), entry) in self.model.visible() {
            if entry.etag.is_some() {
                continue;
            }
            let key = key(self.model.shape.partitions[*partition]);
            let address = Address::Id(id.clone());
            let none = Conditions::default();
            let found = self.db().read(&self.container, Some(&key), &address, &none, None).unwrap();
            let document = found.document.unwrap().to_value();
            let text = |name: &str| document.get(name).unwrap().as_str().unwrap().to_owned();
            let ts = document.get("_ts").and_then(Value::as_i64).unwrap().unsigned_abs();
            assert_eq!(ts, entry.ts, "{document}");
            assert_eq!(found.etag, Some(text("_etag")));
            if let Some(rid) = &entry.rid {
                assert_eq!(*rid, text("_rid"), "a resource id stays");
            }
            learned.push(((*partition, id.clone()), text("_rid"), text("_etag")));
        }
        for (place, rid, etag) in learned {
            let fresh = self.etags.insert((place.0, etag.clone()));
            assert!(fresh, "an etag comes once in a partition: {etag}");
            let entry = self.model.entries.get_mut(&place).unwrap();
            entry.rid = Some(rid);
            entry.etag = Some(etag);
        }
    }

    /// The whole container, read in every way, is the whole map.
    fn compare(&self) {
        let everything = Scope::default();
        let expected = self.expected(|_| true);
        for items_max in [Some(1), Some(2), Some(7), None] {
            let rows = feed(self.db(), &self.container, &everything, items_max);
            assert_eq!(by_place(rows), expected, "{items_max:?}");
        }
        let mut rows = Vec::new();
        for range in self.lsns.keys() {
            let scope = Scope { range: Some(range.clone()), ..Scope::default() };
            rows.extend(feed(self.db(), &self.container, &scope, Some(2)));
        }
        assert_eq!(by_place(rows), expected, "range by range");
        for (at, partition) in self.model.shape.partitions.iter().enumerate() {
            let scope = Scope { key: Some(key(partition)), ..Scope::default() };
            let rows = feed(self.db(), &self.container, &scope, Some(2));
            assert_eq!(by_place(rows), self.expected(|partition| partition == at));
        }
        verify(self.db());
    }

    /// The change feed, read in every way, has every document once, in the order of commits.
    fn compare_changes(&self) {
        let expected = self.expected(|_| true);
        for items_max in [Some(1), Some(3), None] {
            let request = ChangeRequest { items_max, ..latest(ChangeStart::Beginning) };
            let everything = Scope::default();
            let changes = drain(self.db(), &self.container, &everything, &request).0;
            let rows = changes.iter().map(document_of).collect();
            assert_eq!(by_place(rows), expected, "{items_max:?}");
            for (at, partition) in self.model.shape.partitions.iter().enumerate() {
                let scope = Scope { key: Some(key(partition)), ..Scope::default() };
                let changes = drain(self.db(), &self.container, &scope, &request).0;
                assert!(changes.is_sorted_by_key(|change| change.lsn));
                let rows = changes.iter().map(document_of).collect();
                assert_eq!(by_place(rows), self.expected(|partition| partition == at));
            }
        }
    }

    /// Those who have followed the change feed to its end have what is there. This is after a sweep.
    fn compare_followers(&mut self) {
        while self.follow(3) {}
        let expected = self.expected(|_| true);
        // What had expired when the feed was read may be there again with another time to live.
        let has_revived = self.ttl_changed;
        for (rid, user) in expected.iter().filter(|_| !has_revived) {
            assert_eq!(self.latest.copy.get(rid), Some(user), "the last version was given");
        }
        if let Some(follower) = &self.versions {
            assert_eq!(follower.copy, expected, "every version was given once");
        }
    }

    fn expected(&self, wanted: impl Fn(usize) -> bool) -> BTreeMap<String, Object> {
        let entries = self.model.visible().filter(|((partition, _), _)| wanted(*partition));
        entries.map(|(_, entry)| (entry.rid.clone().unwrap(), entry.user.clone())).collect()
    }

    async fn finish(mut self) {
        self.compare();
        self.compare_changes();
        self.sweep().await;
        self.compare();
        self.compare_followers();
        let usage = self.db().container_usage(&self.container).unwrap();
        assert_eq!(usage.documents, self.model.entries.len() as u64, "nothing stale is left");
        self.reopen().await;
        self.compare();
        self.compare_changes();
        self.compare_followers();
    }
}

fn document_of(change: &db::Change) -> Value {
    Value::parse(change.current.as_ref().expect("the latest version is there")).unwrap()
}

fn answer_of(result: &db::OperationResult) -> (Status, Option<Object>) {
    let user = result.document.as_ref().map(|document| document.to_user_object());
    ((result.status, result.substatus), user)
}

/// Rows of a feed by their resource id, without system properties.
fn by_place(rows: Vec<Value>) -> BTreeMap<String, Object> {
    let count = rows.len();
    let split = |row: Value| {
        let Value::Object(mut row) = row else { panic!("a row is an object") };
        let rid = row.get("_rid").and_then(Value::as_str).unwrap().to_owned();
        row.retain(|name, _| !name.starts_with('_'));
        (rid, row)
    };
    let rows: BTreeMap<_, _> = rows.into_iter().map(split).collect();
    assert_eq!(rows.len(), count, "no document comes twice");
    rows
}

fn play(home: Home<'_>, case: &Case) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut run = Run::start(home, case).await;
        for step in &case.steps {
            run.step(step).await;
        }
        run.finish().await;
    });
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(192))]
    #[test]
    fn requests_do_what_the_map_says_in_memory(case in case()) {
        play(Home::Memory(Memory::new()), &case);
    }
}

proptest! {
    #![proptest_config(cases(8))]
    #[test]
    fn requests_do_what_the_map_says_on_disk(case in case()) {
        let directory = tempfile::tempdir().unwrap();
        play(Home::Directory(directory.path()), &case);
    }
}
