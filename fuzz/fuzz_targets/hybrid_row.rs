//! Binary batches of .NET, through the decoder and through the server.
#![no_main]

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;
use orrery_fuzz::{CONTAINER, Target};

thread_local! {
    static TARGET: LazyCell<Target> = LazyCell::new(Target::new);
}

fuzz_target!(|input: &[u8]| {
    TARGET.with(|target| {
        // The first byte says binary; the rest is the fuzzer's.
        let body = [&[0x81], input].concat();
        let headers = [
            ("x-ms-documentdb-partitionkey", &br#"["a"]"#[..]),
            ("x-ms-cosmos-is-batch-request", &b"True"[..]),
            ("x-ms-cosmos-batch-atomic", &b"True"[..]),
        ];
        let documents = format!("{CONTAINER}/docs");
        let answer = target.send("POST", "docs", CONTAINER, &documents, &headers, &body);
        let answer = answer.unwrap();
        assert!(answer.status < 500, "{}", answer.status);
        if answer.status >= 400 {
            answer.check();
        } else {
            assert_eq!(answer.body.first(), Some(&0x81), "a binary batch has a binary answer");
        }
    });
});
