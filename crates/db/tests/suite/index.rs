//! The index while documents and policies change: whatever happens, every document has exactly the
//! entries that it should have. The server's own verification says so after every step; that it finds
//! what is wrong is checked where entries are made.

use std::sync::Arc;

use db::{Container, CountingIds, Db, Kind, Pace, Write};
use proptest::prelude::*;
use storage::{Crashing, Engine, Faulty, Memory, OrderedStore, RangeStore, Torn};
use value::{Object, Value};

use crate::support::{
    self, by_id, create, delete, json, key, object, operation, patch_by, replace, upsert, verify,
};

/// Policies that differ in everything that an index may have.
const POLICIES: &[&str] = &[
    r#"{"indexingPolicy":{"includedPaths":[{"path":"/*"}]}}"#,
    r#"{"indexingPolicy":{"includedPaths":[{"path":"/a/*"},{"path":"/t/[]/?"}],
        "excludedPaths":[{"path":"/*"}]}}"#,
    r#"{"indexingPolicy":{"includedPaths":[{"path":"/*"}],
        "excludedPaths":[{"path":"/a/b/?"},{"path":"/t/*"}],
        "compositeIndexes":[[{"path":"/n"},{"path":"/a/b","order":"descending"}],
                            [{"path":"/n"},{"path":"/_ts"}]]}}"#,
    r#"{"indexingPolicy":{"indexingMode":"none","automatic":false}}"#,
    r#"{"indexingPolicy":{"includedPaths":[{"path":"/*"},{"path":"/double/?"}],
        "compositeIndexes":[[{"path":"/double","order":"descending"},{"path":"/t"}]]},
        "computedProperties":[{"name":"double","query":"SELECT VALUE c.n * 2 FROM c"}]}"#,
    r#"{"indexingPolicy":{"includedPaths":[{"path":"/*"},{"path":"/double/?"}]},
        "computedProperties":[{"name":"double","query":"SELECT VALUE c._ts + c.n FROM c"}]}"#,
];

const TTL: i64 = 10;
const PARTITIONS: [&str; 3] = [r#"["x"]"#, r#"["y"]"#, "[{}]"];

fn definition(policy: usize) -> Object {
    let mut definition = object(POLICIES[policy]);
    definition.insert("id", "c");
    definition.insert("partitionKey", json(r#"{"paths":["/pk"],"kind":"Hash","version":2}"#));
    let unique = json(r#"{"uniqueKeys":[{"paths":["/u"]}]}"#);
    definition.insert("uniqueKeyPolicy", unique);
    // Mode none and a time to live exclude each other.
    if !POLICIES[policy].contains("none") {
        definition.insert("defaultTtl", TTL);
    }
    definition
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, Change),
    Batch(usize, Vec<Change>),
    Redefine(usize),
    /// So many commits of the background work.
    Reindex(usize),
    Advance(u64),
    Sweep,
    DeletePartition(usize),
    /// Later requests hold the container as it is now, whatever becomes of it.
    Hold,
    Reopen,
}

#[derive(Clone, Debug)]
enum Change {
    Create(usize, Value),
    Upsert(usize, Value),
    Replace(usize, usize, Value),
    Patch(usize, i64),
    Delete(usize),
}

fn member() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3i64).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
        (250..260usize).prop_map(|length| Value::from("s".repeat(length))),
    ];
    scalar.prop_recursive(3, 10, 3, |inner| {
        let name = prop::sample::select(vec!["a", "b", "c"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..3).prop_map(|members| {
                Value::Object(members.into_iter().map(|(n, v)| (n.to_owned(), v)).collect())
            }),
        ]
    })
}

/// A document without its id and partition key.
fn document() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["a", "n", "t", "double", "_etag"]);
    (prop::collection::vec((name, member()), 0..4), 0..6i64, 0..3i64).prop_map(
        |(members, unique, ttl)| {
            let mut document: Object =
                members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            document.insert("u", unique);
            if ttl > 0 {
                document.insert("ttl", 3 * ttl);
            }
            Value::Object(document)
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    let id = || 0..5usize;
    prop_oneof![
        3 => (id(), document()).prop_map(|(id, body)| Change::Create(id, body)),
        4 => (id(), document()).prop_map(|(id, body)| Change::Upsert(id, body)),
        3 => (id(), id(), document()).prop_map(|(id, to, body)| Change::Replace(id, to, body)),
        2 => (id(), 0..3i64).prop_map(|(id, n)| Change::Patch(id, n)),
        2 => id().prop_map(Change::Delete),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let partition = || 0..PARTITIONS.len();
    prop_oneof![
        16 => (partition(), change()).prop_map(|(at, change)| Step::Write(at, change)),
        4 => (partition(), prop::collection::vec(change(), 1..5))
            .prop_map(|(at, changes)| Step::Batch(at, changes)),
        4 => (0..POLICIES.len()).prop_map(Step::Redefine),
        8 => (1..4usize).prop_map(Step::Reindex),
        2 => (1..5u64).prop_map(Step::Advance),
        1 => Just(Step::Sweep),
        1 => partition().prop_map(Step::DeletePartition),
        1 => Just(Step::Hold),
        1 => Just(Step::Reopen),
    ]
}

fn write(partition: usize, change: &Change) -> Write {
    let body = |id: usize, body: &Value| {
        let mut body = body.as_object().unwrap().clone();
        body.insert("id", format!("id{id}"));
        if let Some(key) = ["x", "y"].get(partition) {
            body.insert("pk", *key);
        }
        Value::Object(body)
    };
    let address = |id: &usize| by_id(&format!("id{id}"));
    match change {
        Change::Create(id, new) => Write::Create { body: body(*id, new) },
        Change::Upsert(id, new) => Write::Upsert { body: body(*id, new) },
        Change::Replace(id, to, new) => {
            Write::Replace { address: address(id), body: body(*to, new) }
        }
        Change::Patch(id, n) => {
            let operations = format!(
                r#"[{{"op":"set","path":"/n","value":{n}}},{{"op":"set","path":"/t","value":[{n}]}}]"#
            );
            patch_by(&format!("id{id}"), &operations)
        }
        Change::Delete(id) => delete(&format!("id{id}")),
    }
}

async fn play(first: usize, steps: &[Step]) {
    let memory = Memory::new();
    let clock = support::clock();
    let open = async || support::open(Engine::with_store(memory.clone()).unwrap(), &clock).await;
    let mut db = open().await;
    let text = Value::Object(definition(first)).to_text();
    let mut container = support::create_container(&db, "c", &text, Some(20_000)).await;
    let mut is_held = false;
    for step in steps {
        match step {
            Step::Write(partition, change) => {
                let key = key(PARTITIONS[*partition]);
                let write = write(*partition, change);
                let _ = db.write(&container, Some(&key), write, Default::default()).await;
            }
            Step::Batch(partition, changes) => {
                let writes = changes.iter().map(|change| operation(write(*partition, change)));
                let key = key(PARTITIONS[*partition]);
                db.batch(&container, &key, writes.collect(), None).await.unwrap();
            }
            Step::Redefine(policy) => {
                db.replace_container("d", "c", &definition(*policy), None).await.unwrap();
            }
            Step::Reindex(commits) => {
                let pace = Pace { commits: *commits, documents: 1 };
                db.reindex(pace).await.unwrap();
            }
            Step::Advance(seconds) => clock.advance_ms(seconds * 1_000),
            Step::Sweep => {
                db.sweep().await.unwrap();
            }
            Step::DeletePartition(partition) => {
                db.delete_partition(&container, &key(PARTITIONS[*partition])).await.unwrap();
            }
            Step::Hold => is_held = true,
            Step::Reopen => {
                db.close().await.unwrap();
                db = open().await;
                is_held = false;
            }
        }
        if !is_held {
            container = db.container("d", "c").unwrap();
        }
        verify(&db);
    }
    db.sweep().await.unwrap();
    verify(&db);
    assert_eq!(db.index_progress(&db.container("d", "c").unwrap()).unwrap(), 100);
    db.close().await.unwrap();
    let db = open().await;
    verify(&db);
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn entries_follow_documents_and_policies(
        first in 0..POLICIES.len(), steps in prop::collection::vec(step(), 1..50)
    ) {
        block_on(play(first, &steps));
    }
}

/// Documents, and policies that change while they are written.
async fn work<S: RangeStore>(db: &Db<S>) -> db::Result<()> {
    let step = Pace { commits: 1, documents: 1 };
    db.create_database(&object(r#"{"id":"d"}"#), None).await?;
    db.create_container("d", &definition(0), Some(db::Throughput::Manual(20_000)), false).await?;
    let mut container = db.container("d", "c")?;
    for number in 0..4 {
        let body = format!(r#"{{"id":"{number}","u":{number},"n":{number},"pk":"x","t":[1]}}"#);
        written(db, &container, 0, create(&body)).await?;
    }
    written(db, &container, 1, create(r#"{"id":"other","u":1,"pk":"y"}"#)).await?;
    for policy in [2, 3, 4] {
        db.replace_container("d", "c", &definition(policy), None).await?;
        if policy == 3 {
            // This one is replaced before anything was done for it.
            continue;
        }
        db.reindex(step).await?;
        db.reindex(step).await?;
        written(db, &container, 0, upsert(r#"{"id":"0","u":0,"a":{"b":1},"pk":"x"}"#)).await?;
        written(db, &container, 0, replace("3", r#"{"id":"9","u":9,"pk":"x"}"#)).await?;
        container = db.container("d", "c")?;
        written(db, &container, 0, create(r#"{"id":"3","u":3,"n":7,"pk":"x"}"#)).await?;
        written(db, &container, 0, delete("9")).await?;
        while db.reindex(step).await? {}
    }
    Ok(())
}

async fn written<S: RangeStore>(
    db: &Db<S>,
    container: &Arc<Container>,
    partition: usize,
    write: Write,
) -> db::Result<()> {
    let key = key(PARTITIONS[partition]);
    let written = db.write(container, Some(&key), write, Default::default()).await;
    written.map(drop).map_err(|failure| failure.error)
}

/// Works until trouble comes; then opens what is left, which is whole, and brings it to the end.
async fn survive<O: OrderedStore>(store: O, survivor: Memory) {
    if let Ok(engine) = Engine::with_store(store) {
        let ids = CountingIds::default();
        if let Ok(db) = Db::open(Arc::new(engine), support::clock(), &ids).await {
            let result = work(&db).await;
            let trouble = result.err().map(|error| error.kind);
            assert!(matches!(trouble, None | Some(Kind::Unavailable)), "{trouble:?}");
        }
    }
    let db = support::open(Engine::with_store(survivor).unwrap(), &support::clock()).await;
    verify(&db);
    db.sweep().await.unwrap();
    verify(&db);
    match db.container("d", "c") {
        Ok(container) => assert_eq!(db.index_progress(&container), Ok(100)),
        Err(error) => assert_eq!(error.kind.status(), 404),
    }
}

#[test]
fn re_indexing_survives_trouble_at_every_call() {
    let mut met = 0;
    for trouble_at in 1.. {
        let memory = Memory::new();
        let faulty = Faulty::new(memory.clone(), trouble_at);
        let calls = faulty.calls();
        block_on(survive(faulty, memory));
        for torn in [Torn::Kept, Torn::Lost] {
            let crashing = Crashing::new(Memory::new(), trouble_at, torn);
            let survivor = crashing.survivor();
            block_on(survive(crashing, survivor));
        }
        if calls() < trouble_at {
            break;
        }
        met += 1;
    }
    assert!(met > 60, "the work meets too little trouble: {met}");
}

/// Writers go on while policies change and documents are re-indexed; every version of every range is
/// exact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_do_not_wait_for_re_indexing() {
    let (db, _) = support::in_memory().await;
    let text = Value::Object(definition(0)).to_text();
    support::create_container(&db, "c", &text, Some(20_000)).await;
    let writers = (0..3i64).map(|writer| {
        let db = db.clone();
        tokio::spawn(async move {
            for number in 0..120i64 {
                let container = db.container("d", "c").unwrap();
                let id = (writer * 40 + number * 7) % 50;
                let body = json(&format!(r#"{{"n":{number},"u":{id},"t":[{writer},{number}]}}"#));
                let change = match number % 5 {
                    4 => Change::Delete(id.unsigned_abs() as usize),
                    _ => Change::Upsert(id.unsigned_abs() as usize, body),
                };
                let partition = usize::from(id % 2 == 0);
                let key = key(PARTITIONS[partition]);
                let write = write(partition, &change);
                match db.write(&container, Some(&key), write, Default::default()).await {
                    Ok(_) => {}
                    // Another writer deleted the document before.
                    Err(failure) => assert_eq!(failure.error.kind, Kind::NotFound),
                }
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut policy = 0;
    while writers.iter().any(|writer| !writer.is_finished()) {
        policy = (policy + 1) % POLICIES.len();
        db.replace_container("d", "c", &definition(policy), None).await.unwrap();
        for _ in 0..4 {
            db.reindex(Pace { commits: 2, documents: 3 }).await.unwrap();
            verify(&db);
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    db.sweep().await.unwrap();
    verify(&db);
}
