//! The conformance corpus: every case over plain documents.
//!
//! `corpus/pending.txt` names the cases that do not pass yet, one per line. A listed case that
//! passes fails the test, and so does an unlisted one that does not: the list can only shrink.
//! `UPDATE=1` rewrites it.

#![expect(clippy::unwrap_used, reason = "a corpus that cannot be read is a failed test")]

mod satisfies;

use query::{CompositeKey, ComputedProperty, Limits, Options, RunError, prepare};
use satisfies::satisfies;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use value::{Document, SystemProperties, Value};

/// 2026-01-02T03:04:05Z, in ticks.
const NOW_TICKS: i64 = 17_673_242_450_000_000;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

#[test]
fn every_case_answers_as_expected() {
    let mut failed = Vec::new();
    let mut names = BTreeSet::new();
    for case in cases() {
        let name = text(&case, "name").to_owned();
        assert!(names.insert(name.clone()), "the case {name} is there twice");
        if let Err(why) = run(&case) {
            failed.push((name, why));
        }
    }
    assert!(names.len() > 1_500, "only {} cases were found", names.len());

    let list = directory().join("pending.txt");
    if std::env::var_os("UPDATE").is_some() {
        let lines: String = failed.iter().map(|(name, _)| format!("{name}\n")).collect();
        fs::write(&list, lines).unwrap();
    }
    let pending: BTreeSet<String> =
        fs::read_to_string(&list).unwrap().lines().map(str::to_owned).collect();
    let unexpected: Vec<String> = failed
        .iter()
        .filter(|(name, _)| !pending.contains(name))
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    let failed: BTreeSet<String> = failed.into_iter().map(|(name, _)| name).collect();
    let passing: Vec<&String> = pending.difference(&failed).collect();
    assert!(unexpected.is_empty(), "{} fail:\n{}", unexpected.len(), unexpected.join("\n"));
    assert!(passing.is_empty(), "pending cases pass now: {passing:?}");
}

fn cases() -> Vec<Value> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let lines = fs::read_to_string(file).unwrap();
        cases.extend(lines.lines().map(|line| Value::parse(line.as_bytes()).unwrap()));
    }
    cases
}

fn text<'v>(case: &'v Value, name: &str) -> &'v str {
    case.get(name).and_then(Value::as_str).unwrap()
}

fn run(case: &Value) -> Result<(), String> {
    let answer = answer(case);
    let Some(expected) = case.get("expected") else {
        return match answer {
            Ok(rows) => Err(format!("expected an error, got {}", Value::Array(rows))),
            Err(_) => Ok(()),
        };
    };
    let rows = answer?;
    let ordered = case.get("ordered").and_then(Value::as_bool).unwrap();
    let approx = case.get("approx").and_then(Value::as_f64).unwrap_or(0.0);
    let expected = expected.as_array().unwrap();
    let same = match ordered {
        true => same_list(&rows, expected, approx),
        false => same_bag(&rows, expected, approx),
    };
    if same {
        return Ok(());
    }
    let (got, expected) = (Value::Array(rows), Value::Array(expected.to_vec()));
    Err(format!("{}\n    got      {got}\n    expected {expected}", text(case, "query")))
}

fn answer(case: &Value) -> Result<Vec<Value>, String> {
    let options = options(case);
    let prepared = prepare(text(case, "query"), &parameters(case), &options)
        .map_err(|error| error.message())?;
    let documents = documents(case);
    let whole = prepared.run(documents.iter().cloned().map(Ok::<Value, Infallible>));
    let whole = whole.map_err(|error| match error {
        RunError::Query(error) => error.message(),
    })?;
    // The streaming form must say the same as the whole one.
    if prepared.is_streaming() {
        let mut rows = Vec::new();
        for document in &documents {
            prepared.rows_of(document, &mut rows).map_err(|error| error.message())?;
        }
        assert_eq!(Value::Array(rows).to_text(), Value::Array(whole.clone()).to_text());
    }
    // And so must the parts of the documents that the query touches.
    let parts = documents.iter().map(|document| stored(document).select(prepared.touched()));
    let over_parts = prepared.run(parts.map(Ok::<Value, Infallible>));
    let full = documents.iter().map(|document| stored(document).to_value());
    let over_full = prepared.run(full.map(Ok::<Value, Infallible>));
    // And so must the documents that satisfy the condition.
    let computed = &options.computed_properties;
    let condition = prepared.condition();
    let chosen = documents.iter().filter(|document| satisfies(document, condition, computed));
    let over_chosen = prepared.run(chosen.cloned().map(Ok::<Value, Infallible>));
    if !text(case, "query").to_ascii_uppercase().contains("RAND()") {
        assert_eq!(over_chosen, Ok(whole.clone()), "{} needs {condition}", text(case, "query"));
        assert_eq!(
            over_parts,
            over_full,
            "{} touches {:?}",
            text(case, "query"),
            prepared.touched()
        );
    }
    Ok(whole)
}

/// A document as it would be stored.
fn stored(document: &Value) -> Document {
    let system = SystemProperties {
        rid: "tLRRAKmCwMICAAAAAAAAAA==",
        self_link: "dbs/tLRRAA==/colls/tLRRAKmCwMI=/docs/tLRRAKmCwMICAAAAAAAAAA==/",
        etag: "\"0000d986-0000-0700-0000-5f3c0a000000\"",
        ts: 1_600_000_000,
    };
    Document::build(document.as_object().unwrap(), &system)
}

fn documents(case: &Value) -> Vec<Value> {
    let documents = case.get("documents").unwrap();
    let documents = match documents.get("$dataset") {
        Some(name) => {
            let file = format!("datasets/{}.json", name.as_str().unwrap());
            Value::parse(&fs::read(directory().join(file)).unwrap()).unwrap()
        }
        None => documents.clone(),
    };
    documents.as_array().unwrap().to_vec()
}

fn parameters(case: &Value) -> Vec<(String, Value)> {
    let parameters = case.get("parameters").and_then(Value::as_array).unwrap_or_default();
    let pair = |parameter: &Value| {
        (text(parameter, "name").to_owned(), parameter.get("value").unwrap().clone())
    };
    parameters.iter().map(pair).collect()
}

fn options(case: &Value) -> Options {
    let mut options = Options::new(NOW_TICKS, 1, Limits::memory(64 << 20));
    let container = case.get("container");
    let list = |value: Option<&Value>, name| -> Vec<Value> {
        let found = value.and_then(|value| value.get(name)).and_then(Value::as_array);
        found.unwrap_or_default().to_vec()
    };
    options.computed_properties = list(container, "computedProperties")
        .iter()
        .map(|property| ComputedProperty {
            name: text(property, "name").to_owned(),
            query: text(property, "query").to_owned(),
        })
        .collect();
    let policy = container.and_then(|container| container.get("indexingPolicy"));
    let indexes = list(policy, "compositeIndexes");
    options.composite_indexes = Some(indexes.iter().map(composite_index).collect());
    options
}

fn composite_index(index: &Value) -> Vec<CompositeKey> {
    let key = |key: &Value| CompositeKey {
        path: text(key, "path").split('/').skip(1).map(str::to_owned).collect(),
        descending: key.get("order").and_then(Value::as_str) == Some("descending"),
    };
    index.as_array().unwrap().iter().map(key).collect()
}

fn same_list(left: &[Value], right: &[Value], approx: f64) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(left, right)| same(left, right, approx))
}

fn same_bag(left: &[Value], right: &[Value], approx: f64) -> bool {
    let mut right: Vec<&Value> = right.iter().collect();
    left.len() == right.len()
        && left.iter().all(|left| {
            let found = right.iter().position(|right| same(left, right, approx));
            found.map(|at| right.swap_remove(at)).is_some()
        })
}

fn same(left: &Value, right: &Value, approx: f64) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            let (left, right) = (left.as_f64(), right.as_f64());
            let scale = 1f64.max(left.abs()).max(right.abs());
            left == right || (left - right).abs() <= approx * scale
        }
        (Value::Array(left), Value::Array(right)) => same_list(left, right, approx),
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, left)| {
                    right.get(name).is_some_and(|right| same(left, right, approx))
                })
        }
        _ => left == right,
    }
}
