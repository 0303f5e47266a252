//! Bodies of creates, upserts, replaces, batches, queries and container definitions.
#![no_main]

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;
use orrery_fuzz::{CONTAINER, DOCUMENT, Target};

thread_local! {
    static TARGET: LazyCell<Target> = LazyCell::new(Target::new);
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, body)) = input.split_first() else { return };
    let documents = format!("{CONTAINER}/docs");
    let key = ("x-ms-documentdb-partitionkey", &br#"["a"]"#[..]);
    TARGET.with(|target| {
        let answer = match choice % 7 {
            0 => target.send("POST", "docs", CONTAINER, &documents, &[key], body),
            1 => {
                let upsert = ("x-ms-documentdb-is-upsert", &b"True"[..]);
                target.send("POST", "docs", CONTAINER, &documents, &[key, upsert], body)
            }
            2 => target.send("PUT", "docs", DOCUMENT, DOCUMENT, &[key], body),
            3 => {
                let batch = ("x-ms-cosmos-is-batch-request", &b"True"[..]);
                let atomic = ("x-ms-cosmos-batch-atomic", &b"True"[..]);
                target.send("POST", "docs", CONTAINER, &documents, &[key, batch, atomic], body)
            }
            4 => {
                let query = ("x-ms-documentdb-isquery", &b"True"[..]);
                target.send("POST", "docs", CONTAINER, &documents, &[key, query], body)
            }
            5 => target.send("POST", "colls", "dbs/d", "dbs/d/colls", &[], body),
            _ => target.send("PUT", "colls", CONTAINER, CONTAINER, &[], body),
        };
        if let Some(answer) = answer {
            answer.check();
        }
    });
});
