//! How documents are found: by every index that serves, page by page, or by looking at all of them.
//! The rows must be the same.
#![no_main]

use std::sync::{Arc, LazyLock};

use db::{Conditions, Container, CountingIds, Db, ManualClock, Page, QueryText, Scope, Write};
use libfuzzer_sys::fuzz_target;
use orrery_fuzz::asked::{bodies, parameters};
use storage::Embedded;
use value::{Object, PartitionKey, Value};

const CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
    "indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/o/y/?"}],
        "spatialIndexes":[{"path":"/place/?","types":["Point"]}],
        "compositeIndexes":[
            [{"path":"/pk","order":"ascending"},{"path":"/n","order":"ascending"}],
            [{"path":"/n","order":"ascending"},{"path":"/s","order":"descending"}]]},
    "computedProperties":[{"name":"lower","query":"SELECT VALUE LOWER(c.s) FROM c"}]}"#;

struct Target {
    db: Arc<Db<Embedded>>,
    container: Arc<Container>,
}

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let clock = Arc::new(ManualClock::at_ms(1_767_225_600_000));
        let db = Db::open(Arc::new(Embedded::in_memory()), clock, &CountingIds::default()).await.unwrap();
        db.create_database(&Object::from([("id", Value::from("d"))]), None).await.unwrap();
        let definition = Value::parse(CONTAINER.as_bytes()).unwrap();
        db.create_container("d", definition.as_object().unwrap(), None, false).await.unwrap();
        let container = db.container("d", "c").unwrap();
        for body in bodies() {
            let key = partition(body.get("pk").and_then(Value::as_str).unwrap());
            let write = Write::Create { body };
            db.write(&container, Some(&key), write, Conditions::default()).await.unwrap();
        }
        // One partition has entries of its own.
        db.set_apart(&container, &partition("b")).await.unwrap();
        db.sweep().await.unwrap();
        Target { db, container }
    })
});

fn partition(key: &str) -> PartitionKey {
    PartitionKey::parse_header(&format!("[{key:?}]")).unwrap()
}

impl Target {
    /// All rows, in pages of so many, in no order; nothing if the query is refused.
    fn rows(&self, query: &QueryText, scope: &Scope, items_max: usize, insists: bool) -> Option<Vec<String>> {
        let mut page = Page { items_max: Some(items_max), insist_on_indexes: insists, ..Page::default() };
        let mut rows = Vec::new();
        // More pages than there are rows would be pages without end.
        for _ in 0..10_000 {
            let answer = match self.db.query(&self.container, query, scope, &page, None) {
                Ok(answer) => answer,
                Err(failure) => {
                    let status = failure.error.kind.status();
                    assert!(status < 500, "{status}: {}", failure.error.message);
                    return None;
                }
            };
            rows.extend(answer.rows.iter().map(|row| String::from_utf8(row.to_vec()).unwrap()));
            page.continuation = answer.continuation;
            if page.continuation.is_none() {
                rows.sort();
                return Some(rows);
            }
        }
        panic!("pages without end");
    }
}

/// What may answer differently whenever it is asked, or in another order of documents.
const UNSURE: [&str; 8] = ["RAND", "TOP", "OFFSET", "SUM", "AVG", "AGG", "STDEV", "VAR"];

fuzz_target!(|text: &str| {
    let upper = text.to_ascii_uppercase();
    // Few documents that multiply with themselves take long, which the other targets look after.
    if text.len() > 400 || upper.matches("JOIN").count() > 2 || UNSURE.iter().any(|word| upper.contains(word)) {
        return;
    }
    let query = QueryText { text: text.to_owned(), parameters: parameters(), ..QueryText::default() };
    for key in [None, Some(partition("a")), Some(partition("b"))] {
        let scope = Scope { key, cross_partition: true, ..Scope::default() };
        // So few documents are never looked up unless that is insisted on.
        let Some(looked_at) = TARGET.rows(&query, &scope, 1_000, false) else { continue };
        let looked_up = TARGET.rows(&query, &scope, 2, true);
        assert_eq!(looked_up.as_ref(), Some(&looked_at));
    }
});
