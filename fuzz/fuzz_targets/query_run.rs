//! Answers: the same over whole documents, over the parts that the query touches, over the documents
//! that satisfy its condition, and document by document.
#![no_main]

use std::convert::Infallible;

use libfuzzer_sys::fuzz_target;
use orrery_fuzz::asked::{documents, options, parameters};
use query::{Error, ErrorKind, Prepared, RunError};
use value::Value;

#[path = "../../crates/query/tests/satisfies/mod.rs"]
mod satisfies;

fn prepared(text: &str) -> Option<Prepared> {
    query::prepare(text, &parameters(), &options()).ok()
}

/// The answer of a run of its own: time and chance start again.
fn run(text: &str, documents: Vec<Value>) -> Result<Vec<Value>, Error> {
    let prepared = prepared(text).expect("it could be prepared before");
    prepared.run(documents.into_iter().map(Ok::<Value, Infallible>)).map_err(|error| match error {
        RunError::Query(error) => error,
    })
}

/// Whether two runs say the same; one that was stopped says nothing.
fn agree(left: &Result<Vec<Value>, Error>, right: &Result<Vec<Value>, Error>) -> bool {
    let is_stopped = |answer: &Result<Vec<Value>, Error>| {
        answer.as_ref().is_err_and(|error| error.kind() != ErrorKind::Refused)
    };
    is_stopped(left) || is_stopped(right) || left == right
}

fuzz_target!(|text: &str| {
    let Some(query) = prepared(text) else { return };
    let stored = documents();
    let whole: Vec<Value> = stored.iter().map(|document| document.to_value()).collect();
    let answer = run(text, whole.clone());
    if text.to_ascii_uppercase().contains("RAND") {
        return;
    }
    let parts = stored.iter().map(|document| document.select(query.touched())).collect();
    let over_parts = run(text, parts);
    assert!(agree(&answer, &over_parts), "{:?}\n{answer:?}\n{over_parts:?}", query.touched());
    if answer.is_err() {
        return;
    }
    let condition = query.condition();
    let computed = options().computed_properties;
    let satisfying = whole.iter().filter(|document| {
        satisfies::satisfies(document, condition, &computed)
    });
    let over_some = run(text, satisfying.cloned().collect());
    assert!(agree(&answer, &over_some), "{condition}\n{answer:?}\n{over_some:?}");
    if query.is_streaming() {
        let mut rows = Vec::new();
        let taken = whole.iter().try_for_each(|document| query.rows_of(document, &mut rows));
        assert!(agree(&answer, &taken.map(|()| rows)));
    }
});
