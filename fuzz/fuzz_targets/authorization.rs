//! The authorization header: nothing the fuzzer makes up may open the door.
#![no_main]

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;
use orrery_fuzz::{DOCUMENT, Target};

thread_local! {
    static TARGET: LazyCell<Target> = LazyCell::new(Target::new);
}

fuzz_target!(|input: &[u8]| {
    TARGET.with(|target| {
        let headers =
            [("authorization", input), ("x-ms-documentdb-partitionkey", &br#"["a"]"#[..])];
        if let Some(answer) = target.send_as("GET", DOCUMENT, &headers, b"") {
            assert!((400..500).contains(&answer.status), "{}", answer.status);
            answer.check();
        }
    });
});
