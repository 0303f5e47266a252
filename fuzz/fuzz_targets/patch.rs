//! Patch bodies: all or nothing, and what comes out is a document.
#![no_main]

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;
use orrery_fuzz::{DOCUMENT, STORED, Target};
use value::{Patch, Path, Value};

thread_local! {
    static TARGET: LazyCell<Target> = LazyCell::new(Target::new);
}

fuzz_target!(|input: &[u8]| {
    if let Ok(body) = Value::parse(input)
        && let Ok(patch) = Patch::parse(&body)
    {
        let stored = Value::parse(STORED.as_bytes()).unwrap();
        let stored = stored.as_object().unwrap();
        let paths = [Path::parse("/pk").unwrap()];
        if let Ok(patched) = patch.apply(stored, &paths) {
            assert_eq!(patched.get("id"), stored.get("id"));
            assert_eq!(patched.get("pk"), stored.get("pk"));
            let text = Value::Object(patched.clone()).to_text();
            assert_eq!(Value::parse(text.as_bytes()).unwrap(), Value::Object(patched));
        }
    }
    TARGET.with(|target| {
        let key = ("x-ms-documentdb-partitionkey", &br#"["a"]"#[..]);
        if let Some(answer) = target.send("PATCH", "docs", DOCUMENT, DOCUMENT, &[key], input) {
            answer.check();
        }
        // The document stays what later inputs expect.
        let restored = target.send("PUT", "docs", DOCUMENT, DOCUMENT, &[key], STORED.as_bytes());
        assert_eq!(restored.unwrap().status, 200);
    });
});
