//! The partition-key header: what is read prints and reads back as the same, and the server never
//! takes it for a fault.
#![no_main]

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;
use orrery_fuzz::{DOCUMENT, Target};
use value::PartitionKey;

thread_local! {
    static TARGET: LazyCell<Target> = LazyCell::new(Target::new);
}

fuzz_target!(|input: &[u8]| {
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(key) = PartitionKey::parse_header(text)
    {
        let printed = key.to_string();
        assert!(printed.is_ascii());
        assert_eq!(PartitionKey::parse_header(&printed).as_ref(), Ok(&key));
        let mut bytes = Vec::new();
        key.encode(&mut bytes);
        let (decoded, used) = PartitionKey::decode(&bytes).expect("what was encoded is read");
        assert_eq!((&decoded, used), (&key, bytes.len()));
    }
    let _ = PartitionKey::decode(input);
    TARGET.with(|target| {
        let key = ("x-ms-documentdb-partitionkey", input);
        if let Some(answer) = target.send("GET", "docs", DOCUMENT, DOCUMENT, &[key], b"") {
            answer.check();
        }
    });
});
