use std::sync::Arc;

use query::{Indexed, PathSegment};
use storage::{Embedded, Operation, RangeStore, Snapshot, Stop, View};
use value::{Object, PartitionKey, Value};

use super::Pace;
use super::state::{self, Usable};
use super::{own, shape, versions};
use crate::container::Container;
use crate::key::{self, Kind, PartitionPrefix};
use crate::meta::{self, Change, MetaKind};
use crate::row::{Own, PartitionCounters, RangeHeader};
use crate::write::{Address, Conditions, Write};
use crate::{CountingIds, Db, ManualClock};

fn object(text: &str) -> Object {
    match Value::parse(text.as_bytes()).unwrap() {
        Value::Object(object) => object,
        other => panic!("not an object: {other}"),
    }
}

fn definition(policy: &str) -> Object {
    object(&format!(
        r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},
            "indexingPolicy":{policy}}}"#
    ))
}

const EVERYTHING: &str = r#"{"includedPaths":[{"path":"/*"}]}"#;
const ONLY_A: &str = r#"{"includedPaths":[{"path":"/a/?"}],"excludedPaths":[{"path":"/*"}]}"#;
const NONE: &str = r#"{"indexingMode":"none","automatic":false}"#;
const STEP: Pace = Pace { commits: 1, documents: 1 };

struct Server {
    db: Arc<Db<Embedded>>,
}

fn usable_in(container: &Container, snapshot: &impl Snapshot) -> Usable {
    let header = snapshot.get(&key::header()).unwrap().unwrap();
    state::usable(container, &RangeHeader::decode(&header).unwrap(), snapshot).unwrap()
}

impl Server {
    async fn new(policy: &str) -> Server {
        let store = Arc::new(Embedded::in_memory());
        let server = Server::open(store).await;
        server.db.create_database(&object(r#"{"id":"d"}"#), None).await.unwrap();
        server.db.create_container("d", &definition(policy), None, false).await.unwrap();
        server
    }

    async fn open(store: Arc<Embedded>) -> Server {
        let clock = Arc::new(ManualClock::at_ms(1_700_000_000_000));
        Server { db: Db::open(store, clock, &CountingIds::default()).await.unwrap() }
    }

    fn container(&self) -> Arc<Container> {
        self.db.container("d", "c").unwrap()
    }

    async fn write_to(&self, container: &Arc<Container>, pk: &str, body: &str) {
        let body = Value::Object(object(body));
        let key = PartitionKey::parse_header(&format!("[{pk:?}]")).unwrap();
        let write = Write::Upsert { body };
        self.db.write(container, Some(&key), write, Conditions::default()).await.unwrap();
    }

    async fn upsert_to(&self, container: &Arc<Container>, body: &str) {
        self.write_to(container, "x", body).await;
    }

    async fn upsert_in(&self, pk: &str, body: &str) {
        self.write_to(&self.container(), pk, body).await;
    }

    async fn upsert(&self, body: &str) {
        self.upsert_to(&self.container(), body).await;
    }

    async fn delete(&self, id: &str) {
        let key = PartitionKey::parse_header(r#"["x"]"#).unwrap();
        let write = Write::Delete { address: Address::Id(id.to_owned()) };
        let container = self.container();
        self.db.write(&container, Some(&key), write, Conditions::default()).await.unwrap();
    }

    async fn redefine(&self, policy: &str) {
        self.db.replace_container("d", "c", &definition(policy), None).await.unwrap();
    }

    fn snapshot(&self) -> <Embedded as RangeStore>::Snapshot {
        self.db.store.snapshot(self.container().ranges[0].storage).unwrap()
    }

    fn usable(&self) -> Usable {
        usable_in(&self.container(), &self.snapshot())
    }

    /// Which of the paths `/a` and `/b` queries may use now.
    fn served(&self) -> [bool; 2] {
        let usable = self.usable();
        ["a", "b"].map(|name| {
            let path = vec![PathSegment::Property(name.to_owned())];
            usable.serves(&Indexed::Path(path)).is_some()
        })
    }

    fn progress(&self) -> u32 {
        self.db.index_progress(&self.container()).unwrap()
    }

    fn verify(&self) {
        let verified = self.db.verify(|_| {}).unwrap();
        assert_eq!(verified.problems, Vec::<String>::new());
    }

    fn count(&self, kind: Kind) -> usize {
        let (from, to) = key::all_of(kind);
        crate::sweep::rows_between(&self.snapshot(), &from, &to, usize::MAX).unwrap().len()
    }

    /// The numbers of the definitions that are stored.
    fn numbers(&self) -> Vec<i64> {
        let stored = self.container().index.stored();
        let versions = stored.as_array().unwrap().iter();
        versions.map(|version| version.get("number").unwrap().as_i64().unwrap()).collect()
    }
}

/// The partition of all documents that have `x` for their key.
fn partition_x(server: &Server) -> PartitionPrefix {
    let key = PartitionKey::parse_header(r#"["x"]"#).unwrap();
    PartitionPrefix::new(&server.container().epk(&key), &key)
}

impl Server {
    fn counters(&self) -> PartitionCounters {
        let row = self.snapshot().get(&partition_x(self).row(Kind::Partition)).unwrap();
        row.map_or_else(PartitionCounters::default, |row| PartitionCounters::decode(&row).unwrap())
    }

    async fn set_apart(&self) {
        let key = PartitionKey::parse_header(r#"["x"]"#).unwrap();
        self.db.set_apart(&self.container(), &key).await.unwrap();
    }
}

async fn with_documents(policy: &str, count: usize) -> Server {
    let server = Server::new(policy).await;
    for number in 0..count {
        let body = format!(r#"{{"id":"{number}","pk":"x","a":{number},"b":"{number}"}}"#);
        server.upsert(&body).await;
    }
    server
}

#[tokio::test]
async fn a_changed_policy_is_carried_out_step_by_step() {
    let server = with_documents(EVERYTHING, 4).await;
    assert_eq!((server.served(), server.progress()), ([true, true], 100));
    server.redefine(ONLY_A).await;
    // What the policy no longer asks for is not used from now on.
    assert_eq!((server.served(), server.progress()), ([true, false], 0));
    let mut seen = vec![0];
    while server.db.reindex(STEP).await.unwrap() {
        server.verify();
        assert_eq!(server.served(), [true, false]);
        seen.push(server.progress());
    }
    assert_eq!(seen, [0, 0, 25, 50, 75, 100]);
    assert_eq!(server.numbers(), [2]);

    // What it asks for anew is used when all documents have it.
    server.redefine(EVERYTHING).await;
    while server.db.reindex(STEP).await.unwrap() {
        server.verify();
        assert_eq!(server.served(), [true, server.progress() == 100]);
    }
    assert_eq!((server.served(), server.progress()), ([true, true], 100));
}

#[tokio::test]
async fn the_same_index_is_no_change() {
    let server = with_documents(EVERYTHING, 1).await;
    let ttl = || {
        let mut body = definition(r#"{"excludedPaths":[{"path":"/_etag/?"}]}"#);
        body.insert("defaultTtl", 5);
        body
    };
    server.db.replace_container("d", "c", &ttl(), None).await.unwrap();
    assert_eq!((server.progress(), server.numbers()), (100, vec![1]));
    assert!(!server.db.reindex(STEP).await.unwrap());
}

#[tokio::test]
async fn the_last_of_many_changes_wins() {
    let server = with_documents(EVERYTHING, 3).await;
    server.redefine(ONLY_A).await;
    for _ in 0..2 {
        assert!(server.db.reindex(STEP).await.unwrap());
    }
    // Under way to the second definition; the third was never begun when the fourth comes.
    server.redefine(NONE).await;
    server.redefine(EVERYTHING).await;
    server.redefine(NONE).await;
    assert_eq!(server.numbers(), [1, 2, 4, 5]);
    server.verify();
    while server.db.reindex(STEP).await.unwrap() {
        server.verify();
    }
    server.verify();
    assert_eq!((server.numbers(), server.progress()), (vec![5], 100));
    assert_eq!((server.count(Kind::Index), server.count(Kind::Shape)), (0, 0));
    assert!(!server.usable().has_shapes());
}

/// A request may hold a container that was replaced since: the range decides.
#[tokio::test]
async fn old_requests_follow_the_new_definition() {
    let server = with_documents(EVERYTHING, 3).await;
    let old = server.container();
    server.redefine(ONLY_A).await;
    let newer = server.container();
    server.upsert_to(&old, r#"{"id":"1","pk":"x","b":1}"#).await;
    server.verify();
    let mut number = 0;
    while server.db.reindex(STEP).await.unwrap() {
        for container in [&old, &newer] {
            number += 1;
            for id in ["0", "1", "2"] {
                let body = format!(r#"{{"id":"{id}","pk":"x","a":{number},"b":{number}}}"#);
                server.upsert_to(container, &body).await;
            }
            server.verify();
        }
    }
    server.upsert_to(&old, r#"{"id":"2","pk":"x","b":2}"#).await;
    server.upsert_to(&old, r#"{"id":"new","pk":"x","b":2}"#).await;
    server.verify();
    server.redefine(NONE).await;
    server.db.sweep().await.unwrap();
    server.upsert_to(&newer, r#"{"id":"newer","pk":"x","b":2}"#).await;
    server.verify();
    // A reader of a version whose definition is forgotten uses no index.
    assert_eq!(server.count(Kind::Index), 0);
}

#[tokio::test]
async fn old_versions_of_a_range_are_read_without_forgotten_definitions() {
    let server = with_documents(EVERYTHING, 2).await;
    let (before, container) = (server.snapshot(), server.container());
    server.redefine(NONE).await;
    server.db.sweep().await.unwrap();
    // The container of the old request knows its own definition; the new one does not.
    let id = Indexed::Path(vec![PathSegment::Property("id".to_owned())]);
    assert!(usable_in(&container, &before).serves(&id).is_some());
    assert!(usable_in(&container, &server.snapshot()).serves(&id).is_none());
    assert!(usable_in(&server.container(), &before).serves(&id).is_none());
}

/// The key of an entry is the same for all ways to write a number, and still it has to change.
#[tokio::test]
async fn an_entry_follows_the_spelling_of_its_number() {
    let server = with_documents(EVERYTHING, 1).await;
    let marked = || {
        let (from, to) = key::all_of(Kind::Index);
        let rows = crate::sweep::rows_between(&server.snapshot(), &from, &to, 1_000).unwrap();
        rows.iter().filter(|(_, row)| !row.is_empty()).count()
    };
    for (number, expected) in [("7.0", 1), ("7", 0), ("7e0", 1), ("7.00", 1), ("8", 0)] {
        server.upsert(&format!(r#"{{"id":"0","pk":"x","a":{number}}}"#)).await;
        assert_eq!(marked(), expected, "{number}");
        server.verify();
    }
    server.upsert(r#"{"id":"0","pk":"x","a":9.0}"#).await;
    server.redefine(ONLY_A).await;
    server.db.sweep().await.unwrap();
    assert_eq!(marked(), 1);
    server.verify();
}

#[tokio::test]
async fn shapes_come_and_go_with_their_documents() {
    let server = with_documents(EVERYTHING, 3).await;
    assert_eq!(server.count(Kind::ShapeDefinition), 1);
    server.upsert(r#"{"id":"1","pk":"x","a":[]}"#).await;
    let shapes = shape::shapes(&server.snapshot()).unwrap().unwrap();
    assert_eq!(shapes.len(), 2);
    for (id, set) in &shapes {
        let from = shape::entry(*id, &[]);
        let to = super::entry::successor(from.clone());
        let rows = crate::sweep::rows_between(&server.snapshot(), &from, &to, usize::MAX).unwrap();
        let is_array = set.kind_of(&["a".to_owned()]) == Some(shape::NodeKind::Array);
        assert_eq!(rows.len(), if is_array { 1 } else { 2 });
        for (key, _) in rows {
            let item = key::item(&key[shape::PLACE_AT..]);
            assert!(server.snapshot().get(&item).unwrap().is_some());
        }
    }
    server.delete("1").await;
    assert_eq!(server.count(Kind::ShapeDefinition), 1);
    server.delete("0").await;
    server.delete("2").await;
    assert_eq!(server.count(Kind::ShapeDefinition) + server.count(Kind::ShapeCount), 0);
    server.verify();
}

/// Writes rows directly, as an older server would have left them.
struct Rows(Vec<(Vec<u8>, Option<bytes::Bytes>)>);

impl Operation for Rows {
    type Output = ();
    type Refusal = std::convert::Infallible;

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Self::Refusal>> {
        for (key, row) in &self.0 {
            match row {
                Some(row) => view.put(key, row.clone()),
                None => view.delete(key),
            }
        }
        Ok(())
    }
}

#[tokio::test]
async fn documents_of_older_servers_are_indexed() {
    let server = with_documents(EVERYTHING, 5).await;
    let container = server.container();
    let mut rows = Vec::new();
    for kind in [Kind::Index, Kind::Shape, Kind::ShapeDefinition, Kind::ShapeCount] {
        let (from, to) = key::all_of(kind);
        let found = crate::sweep::rows_between(&server.snapshot(), &from, &to, 1_000).unwrap();
        rows.extend(found.into_iter().map(|(key, _)| (key, None)));
    }
    let header = server.snapshot().get(&key::header()).unwrap().unwrap();
    let mut old = header[..60].to_vec();
    old[0] = 1;
    rows.push((key::header(), Some(old.into())));
    server.db.store.submit(container.ranges[0].storage, Rows(rows)).await.unwrap();
    let meta = server.db.store.snapshot(storage::META_RANGE).unwrap();
    let (name, row) = meta::rows(&meta, MetaKind::Container).unwrap().pop().unwrap();
    let mut record = meta::object(&row).unwrap();
    assert!(record.remove("index").is_some());
    let mut change = Change::default();
    change.put_object(MetaKind::Container, &name, &record);
    server.db.commit_meta(change).await.unwrap();

    let server = Server::open(server.db.store.clone()).await;
    server.verify();
    assert_eq!((server.served(), server.progress()), ([false, false], 0));
    server.upsert(r#"{"id":"new","pk":"x","a":1}"#).await;
    assert_eq!(server.count(Kind::Index), 0);
    assert!(server.db.reindex(STEP).await.unwrap());
    server.db.sweep().await.unwrap();
    server.verify();
    assert_eq!((server.served(), server.progress()), ([true, true], 100));
    assert_eq!(server.numbers(), [i64::from(versions::FIRST)]);
}

#[tokio::test]
async fn a_document_with_too_many_values_is_refused() {
    let server = Server::new(EVERYTHING).await;
    let values = (0..70_000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let body = format!(r#"{{"id":"{}","pk":"x","a":[{values}]}}"#, "i".repeat(1_000));
    let key = PartitionKey::parse_header(r#"["x"]"#).unwrap();
    let create = || Write::Create { body: Value::Object(object(&body)) };
    let container = server.container();
    let refused = server.db.write(&container, Some(&key), create(), Conditions::default()).await;
    let error = refused.unwrap_err().error;
    assert_eq!(error.kind, crate::Kind::TooLarge);
    assert!(error.message.contains("exclude some of its paths"), "{error}");
    // Where the policy leaves the values out it is a document like any other, and a policy that asks
    // for them cannot be carried out: the index is not used, and nothing else is wrong.
    server.redefine(ONLY_A).await;
    server.db.sweep().await.unwrap();
    let container = server.container();
    let written = server.db.write(&container, Some(&key), create(), Conditions::default());
    written.await.unwrap();
    server.redefine(EVERYTHING).await;
    assert!(!server.db.reindex(Pace::ORDINARY).await.unwrap());
    assert_eq!((server.served(), server.progress()), ([true, false], 0));
    server.verify();
    server.delete(&"i".repeat(1_000)).await;
    server.db.sweep().await.unwrap();
    assert_eq!((server.served(), server.progress()), ([true, true], 100));
}

#[tokio::test]
async fn verification_finds_what_is_wrong() {
    enum Fault {
        Missing,
        Additional,
        /// As many rows as there should be, and not the same.
        Another,
    }
    use Fault::{Additional, Another, Missing};
    let check = async |kind: Kind, fault: Fault, expected: &[&str]| {
        let server = with_documents(EVERYTHING, 2).await;
        if matches!(kind, Kind::Own | Kind::OwnState) {
            server.set_apart().await;
        }
        if kind == Kind::Own {
            server.db.sweep().await.unwrap();
        }
        let (from, to) = key::all_of(kind);
        let found = crate::sweep::rows_between(&server.snapshot(), &from, &to, 1).unwrap();
        let additional =
            |(key, row): &(Vec<u8>, bytes::Bytes)| ([&key[..], b"x"].concat(), Some(row.clone()));
        let rows = match (found.first(), fault) {
            (Some((key, _)), Missing) => vec![(key.clone(), None)],
            (Some(row), Additional) => vec![additional(row)],
            (Some(row), Another) => vec![(row.0.clone(), None), additional(row)],
            (None, _) => vec![(from, Some(bytes::Bytes::new()))],
        };
        let range = server.container().ranges[0].storage;
        server.db.store.submit(range, Rows(rows)).await.unwrap();
        let problems = server.db.verify(|_| {}).unwrap().problems;
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.contains(expected), "{problem} is not {expected}");
        }
    };
    check(Kind::Index, Missing, &["index entries, expected", "lacks 1 of its index entries"]).await;
    check(Kind::Index, Additional, &["index entries, expected"]).await;
    check(Kind::Index, Another, &["lacks 1 of its index entries"]).await;
    let own = "index entries of single partitions, expected";
    check(Kind::Own, Missing, &[own, "lacks 1 of the index entries of its partition"]).await;
    check(Kind::Own, Additional, &[own]).await;
    check(Kind::Own, Another, &["lacks 1 of the index entries of its partition"]).await;
    check(Kind::OwnState, Missing, &["partitions that are given entries of their own"]).await;
    check(Kind::Shape, Missing, &["documents under their shapes", "is not under its shape"]).await;
    check(Kind::Shape, Additional, &["documents under their shapes"]).await;
    check(Kind::Shape, Another, &["is not under its shape"]).await;
    let undefined = "is not defined";
    check(Kind::ShapeDefinition, Missing, &[undefined, undefined, "definitions of shapes"]).await;
    check(Kind::ShapeDefinition, Additional, &["definitions of shapes"]).await;
    check(Kind::ShapeCount, Missing, &["counts of shapes that differ"]).await;
    check(Kind::ShapeCount, Additional, &["count of a shape that cannot be read"]).await;
    check(Kind::IndexState, Additional, &["index states, expected 0"]).await;
}

#[tokio::test]
async fn a_partition_gets_entries_of_its_own_step_by_step() {
    let server = with_documents(EVERYTHING, 6).await;
    server.set_apart().await;
    assert_eq!(server.counters().own, Own::Building);
    let mut number = 100;
    let mut rows = vec![server.count(Kind::Own)];
    while server.db.index_apart(STEP).await.unwrap() {
        server.verify();
        // Before and behind the cursor, documents come, change and go.
        for id in ["0", "3", "55", "9"] {
            number += 1;
            let body = format!(r#"{{"id":"{id}","pk":"x","a":{number},"c":[{number},1]}}"#);
            server.upsert(&body).await;
            server.verify();
        }
        server.delete("3").await;
        server.verify();
        rows.push(server.count(Kind::Own));
    }
    assert!(rows.is_sorted() && rows[0] == 0, "{rows:?}");
    assert_eq!((server.counters().own, server.count(Kind::OwnState)), (Own::Ready, 0));
    assert_eq!(server.count(Kind::Own), server.count(Kind::Index));

    // Entries of a partition follow what the policy asks for.
    server.redefine(ONLY_A).await;
    while server.db.reindex(STEP).await.unwrap() {
        server.verify();
    }
    assert_eq!(server.count(Kind::Own), server.count(Kind::Index));
    server.redefine(NONE).await;
    server.db.sweep().await.unwrap();
    server.verify();
    assert_eq!(server.count(Kind::Own), 0);
    server.redefine(EVERYTHING).await;
    server.db.sweep().await.unwrap();
    server.verify();
    assert_eq!(server.count(Kind::Own), server.count(Kind::Index));

    // An empty partition has nothing left, and none is given to it before it is large again.
    for id in ["0", "1", "2", "4", "5", "55", "9"] {
        server.delete(id).await;
        server.verify();
    }
    assert_eq!((server.count(Kind::Own), server.counters().own), (0, Own::None));
    server.upsert(r#"{"id":"0","pk":"x"}"#).await;
    server.db.sweep().await.unwrap();
    assert_eq!(server.count(Kind::Own), 0);
    server.verify();
}

#[tokio::test]
async fn a_partition_that_is_emptied_meanwhile_is_forgotten() {
    let server = with_documents(EVERYTHING, 3).await;
    server.set_apart().await;
    assert!(server.db.index_apart(STEP).await.unwrap());
    for id in ["0", "1", "2"] {
        server.delete(id).await;
        server.verify();
    }
    assert_eq!((server.count(Kind::Own), server.count(Kind::OwnState)), (0, 0));
    assert!(!server.db.index_apart(STEP).await.unwrap());
    server.set_apart().await;
    assert_eq!(server.count(Kind::OwnState), 0);
}

#[tokio::test]
async fn documents_with_many_values_are_not_listed_in_their_partition() {
    let server = with_documents(EVERYTHING, 2).await;
    let values = (0..7_000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let many = |id: &str| format!(r#"{{"id":"{}","pk":"x","a":[{values}]}}"#, id.repeat(1_000));
    server.upsert(&many("i")).await;
    server.set_apart().await;
    server.db.sweep().await.unwrap();
    server.verify();
    assert_eq!((server.counters().own, server.counters().unlisted), (Own::Ready, 1));
    server.upsert(&many("j")).await;
    server.verify();
    assert_eq!(server.counters().unlisted, 2);
    let few = |id: &str| format!(r#"{{"id":"{}","pk":"x","a":[1]}}"#, id.repeat(1_000));
    server.upsert(&few("i")).await;
    server.verify();
    assert_eq!(server.counters().unlisted, 1);
    server.delete(&"j".repeat(1_000)).await;
    server.verify();
    assert_eq!(server.counters().unlisted, 0);
    server.upsert(&many("i")).await;
    server.verify();
    assert_eq!(server.counters().unlisted, 1);
    let own = own::state_row(&partition_x(&server));
    assert_eq!(server.snapshot().get(&own).unwrap(), None);
}

#[tokio::test]
async fn a_large_partition_is_given_entries_of_its_own() {
    let server = Server::new(EVERYTHING).await;
    for number in 0..8_000 {
        let pk = if number % 8 == 0 { "x".to_owned() } else { format!("y{number}") };
        let body = format!(r#"{{"id":"{number}","pk":"{pk}","a":{number}}}"#);
        server.upsert_in(&pk, &body).await;
    }
    assert_eq!((server.counters().items, server.counters().own), (1_000, Own::None));
    // The next one makes it large, in a range that is larger by enough.
    server.upsert_in("z", r#"{"id":"z","pk":"z"}"#).await;
    server.upsert(r#"{"id":"0","pk":"x","a":0}"#).await;
    assert_eq!(server.counters().own, Own::Building);
    server.db.sweep().await.unwrap();
    assert_eq!(server.counters().own, Own::Ready);
    server.verify();
}
