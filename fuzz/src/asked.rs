//! What fuzzed queries are asked of: a few documents of unlike shapes, and a container's definition.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use query::{CompositeKey, ComputedProperty, Limits, Options};
use value::{Document, SystemProperties, Value};

const DOCUMENTS: &str = r#"[
    {"id":"1","pk":"a","n":1,"s":"abc","o":{"x":1,"y":{"z":null}},"l":[1,"a",null,[2]],"m":[{"k":1,"v":"x"},{"k":"2"}]},
    {"id":"2","pk":"a","n":-0.5,"s":"","o":[],"l":[],"m":[{"k":1,"v":2}],"at":"2026-01-02T03:04:05.6789Z"},
    {"id":"3","pk":"b","n":"1","s":"ABC","o":{"x":"é😀"},"l":{"0":1},"b":true},
    {"id":"4","pk":"b","n":1e308,"s":null,"o":{"x":[{"y":1}]},"b":false,"place":{"type":"Point","coordinates":[31.9,-4.8]}},
    {"id":"5","pk":"c","n":9007199254740993,"l":[[],{}],"m":[],"v":[0.1,0.2]}
]"#;

const PARAMETERS: &str = r#"{"@p":1,"@q":null,"@s":"a","@l":[1,"a",{"k":1}],"@o":{"k":1}}"#;

/// How often a query may look at the deadline before it has passed.
const LOOKS_MAX: usize = 200;

fn json(text: &str) -> Value {
    Value::parse(text.as_bytes()).unwrap()
}

/// The documents, as clients send them.
pub fn bodies() -> Vec<Value> {
    json(DOCUMENTS).as_array().unwrap().to_vec()
}

/// The documents, as they would be stored.
pub fn documents() -> Vec<Document> {
    let system = SystemProperties {
        rid: "tLRRAKmCwMICAAAAAAAAAA==",
        self_link: "dbs/tLRRAA==/colls/tLRRAKmCwMI=/docs/tLRRAKmCwMICAAAAAAAAAA==/",
        etag: "\"0000d986-0000-0700-0000-5f3c0a000000\"",
        ts: 1_600_000_000,
    };
    let documents = json(DOCUMENTS);
    let documents = documents.as_array().unwrap().iter();
    documents.map(|document| Document::build(document.as_object().unwrap(), &system)).collect()
}

/// Some parameters that a query may name.
pub fn parameters() -> Vec<(String, Value)> {
    let parameters = json(PARAMETERS);
    let parameters = parameters.as_object().unwrap().iter();
    parameters.map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

/// Surroundings for one run, with little time and memory.
pub fn options() -> Options {
    let looks = AtomicUsize::new(0);
    let limits = Limits {
        memory_bytes_max: 4 << 20,
        is_expired: Arc::new(move || looks.fetch_add(1, Ordering::Relaxed) > LOOKS_MAX),
    };
    let mut options = Options::new(17_673_242_450_000_000, 1, limits);
    options.computed_properties = vec![ComputedProperty {
        name: "lower".to_owned(),
        query: "SELECT VALUE LOWER(c.s) FROM c".to_owned(),
    }];
    let key = |name: &str, descending| CompositeKey { path: vec![name.to_owned()], descending };
    options.composite_indexes = Some(vec![vec![key("n", false), key("s", true)]]);
    options
}
