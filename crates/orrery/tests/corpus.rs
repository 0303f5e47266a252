//! The conformance corpus of the query language, asked of a whole database.
//!
//! `crates/query` runs the same cases over plain documents. Here the documents are stored, the
//! container has a definition, and the answer comes in pages: of any size, of one and of three rows.
//! What a case expects must not depend on any of that, nor on whether there are indexes. Cases with
//! the same documents and the same definition share a container.

#[allow(dead_code, reason = "the golden scripts use more of it")]
mod support {
    pub(crate) mod account;
    pub(crate) mod http;
}

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use db::{Conditions, Page, QueryText};
use support::account::{Account, Keeping, Operation, Refusal, Request, Verb};
use value::{Component, Object, PartitionKey, Value};

/// The sizes of pages to ask for, and whether indexes must be used where a scan would be cheaper,
/// which only who asks the database itself can say.
const WAYS: [(Option<usize>, bool); 5] =
    [(None, false), (Some(1), false), (Some(3), false), (None, true), (Some(1), true)];

/// One question with its answer.
struct Case {
    name: String,
    query: QueryText,
    /// Rows, or nothing where the question is refused.
    expected: Option<Vec<Value>>,
    is_ordered: bool,
    approx: f64,
}

/// Cases over the same documents, with the members of the container's definition.
struct Group {
    documents: Vec<Value>,
    definition: Object,
    cases: Vec<Case>,
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../query/corpus")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a directory that end so, in the order of their names.
fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the corpus can be read");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

fn parse(text: &str) -> Value {
    Value::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn list(value: &Value, name: &str) -> Vec<Value> {
    value.get(name).and_then(Value::as_array).unwrap_or_default().to_vec()
}

/// All cases but the pending ones, by what they need.
fn groups() -> Vec<Group> {
    let pending = read(&corpus().join("pending.txt"));
    let pending: BTreeSet<&str> = pending.lines().collect();
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    let (mut count, mut skipped) = (0, 0);
    for file in files(&corpus(), "jsonl") {
        for line in read(&file).lines() {
            let case = parse(line);
            if pending.contains(text(&case, "name")) {
                skipped += 1;
                continue;
            }
            count += 1;
            let documents = case.get("documents").expect("a case has documents");
            let definition = case.get("container").cloned().unwrap_or(Object::new().into());
            let key = (documents.to_text(), definition.to_text());
            let group = groups.entry(key).or_insert_with(|| Group {
                documents: documents_of(documents),
                definition: definition.as_object().expect("a definition is an object").clone(),
                cases: Vec::new(),
            });
            group.cases.push(Case::of(&case));
        }
    }
    assert_eq!(skipped, pending.len(), "the pending cases are in the corpus");
    assert!(count > 1_500, "only {count} cases were found");
    groups.into_values().collect()
}

fn documents_of(documents: &Value) -> Vec<Value> {
    let documents = match documents.get("$dataset").and_then(Value::as_str) {
        Some(name) => parse(&read(&corpus().join(format!("datasets/{name}.json")))),
        None => documents.clone(),
    };
    documents.as_array().expect("documents are a list").to_vec()
}

impl Case {
    fn of(case: &Value) -> Self {
        let mut query = QueryText::default();
        query.text.push_str(text(case, "query"));
        for parameter in list(case, "parameters") {
            let value = parameter.get("value").expect("a parameter has a value").clone();
            query.parameters.push((text(&parameter, "name").to_owned(), value));
        }
        let expected = case.get("expected").and_then(Value::as_array).map(<[Value]>::to_vec);
        let status = case.get("error").and_then(|error| error.get("status"));
        assert_eq!(expected.is_none(), status.and_then(Value::as_i64) == Some(400), "{case}");
        Self {
            name: text(case, "name").to_owned(),
            query,
            expected,
            is_ordered: case.get("ordered").and_then(Value::as_bool).expect("it is said"),
            approx: case.get("approx").and_then(Value::as_f64).unwrap_or(0.0),
        }
    }

    /// Subqueries cannot be ordered, so the words can only stand at the end of the query itself.
    fn is_sorted(&self) -> bool {
        self.query.text.to_uppercase().contains("ORDER BY")
    }

    /// Says what is wrong with an answer, if anything is.
    fn check(&self, answer: Result<Vec<Value>, Refusal>) -> Result<(), String> {
        let got = match (answer, &self.expected) {
            (Ok(rows), Some(expected)) => {
                let same = match self.is_ordered {
                    true => same_list(&rows, expected, self.approx),
                    false => same_bag(&rows, expected, self.approx),
                };
                if same {
                    return Ok(());
                }
                Value::Array(rows).to_text()
            }
            (Err(refusal), None) if refusal.status == 400 => return Ok(()),
            (Ok(rows), None) => Value::Array(rows).to_text(),
            (Err(refusal), _) => format!("{refusal:?}"),
        };
        let expected = match &self.expected {
            Some(rows) => Value::Array(rows.clone()).to_text(),
            None => "a refusal".to_owned(),
        };
        Err(format!("{}\n    got      {got}\n    expected {expected}", self.query.text))
    }

    /// The same for a container without indexes, where nothing can be sorted by.
    fn check_without_index(&self, answer: Result<Vec<Value>, Refusal>) -> Result<(), String> {
        if !self.is_sorted() {
            return self.check(answer);
        }
        match answer {
            Err(refusal) if refusal.status == 400 => Ok(()),
            other => Err(format!("{}\n    not refused: {other:?}", self.query.text)),
        }
    }
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

/// Which indexes the containers have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Indexes {
    /// Those that the case asks for, or the default ones.
    AsGiven,
    None,
}

/// Asks every case of an account.
async fn check_all(account: &Account, indexes: Indexes) {
    let mut wrong = Vec::new();
    for (number, group) in groups().iter().enumerate() {
        let container = format!("c{number}");
        fill(account, &container, group, indexes).await;
        for case in &group.cases {
            for (items_max, insist_on_indexes) in WAYS {
                let page = Page { items_max, insist_on_indexes, ..Page::default() };
                let answer = ask(account, &container, case, page).await;
                let checked = match indexes {
                    Indexes::AsGiven => case.check(answer),
                    Indexes::None => case.check_without_index(answer),
                };
                if let Err(why) = checked {
                    wrong.push(format!(
                        "{} in pages of {items_max:?}, by index {insist_on_indexes}: {why}",
                        case.name
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

async fn fill(account: &Account, name: &str, group: &Group, indexes: Indexes) {
    let key = r#"{"paths":["/id"],"kind":"Hash","version":2}"#;
    let mut body = group.definition.clone();
    body.insert("id", name);
    body.insert("partitionKey", parse(key));
    if indexes == Indexes::None {
        body.insert("indexingPolicy", parse(r#"{"indexingMode":"none","automatic":false}"#));
    }
    let created = account.send(&Request::CreateContainer { body, throughput: None }).await;
    created.unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
    if group.documents.is_empty() {
        return;
    }
    let create = |document: &Value| {
        let id = Component::from_value(document.get("id")).expect("an id is a scalar");
        Operation {
            verb: Verb::Create,
            key: Some(PartitionKey(vec![id])),
            id: None,
            body: Some(document.to_text()),
            conditions: Conditions::default(),
            pre: None,
            post: None,
        }
    };
    let operations = group.documents.iter().map(create).collect();
    let bulk = Request::Bulk { container: name.to_owned(), operations, continue_on_error: false };
    let answer = account.send(&bulk).await.expect("the documents can be stored");
    assert_eq!(answer.results.len(), group.documents.len());
    assert!(answer.results.iter().all(|result| result.status == 201), "{:?}", answer.results);
}

/// All rows of an answer, page by page, without what the server adds to documents.
async fn ask(
    account: &Account,
    container: &str,
    case: &Case,
    mut page: Page,
) -> Result<Vec<Value>, Refusal> {
    let mut rows = Vec::new();
    loop {
        let (container, query) = (container.to_owned(), case.query.clone());
        let request = Request::Query { container, query, key: None, page: page.clone() };
        let answer = account.send(&request).await?;
        if let Some(items_max) = page.items_max {
            assert!(answer.rows.len() <= items_max, "{}: the page is too long", case.name);
        }
        rows.extend(answer.rows.iter().map(|row| without_system_properties(parse(row))));
        if answer.continuation.is_none() {
            return Ok(rows);
        }
        assert_ne!(answer.continuation, page.continuation, "{}: no end", case.name);
        page.continuation = answer.continuation;
    }
}

/// Whole documents may also be members of a row.
fn without_system_properties(row: Value) -> Value {
    let strip = |value: &mut Value| {
        if let Value::Object(object) = value {
            object.retain(|name, _| !value::SYSTEM_PROPERTIES.contains(&name));
        }
    };
    let mut row = row;
    strip(&mut row);
    if let Value::Object(members) = &mut row {
        members.iter_mut().for_each(|(_, member)| strip(member));
    }
    row
}

/// Our copy is the corpus that all parts of the project share, where that is at hand.
#[test]
fn the_corpus_is_the_shared_one() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/sql");
    if !shared.is_dir() {
        eprintln!("not run: there is no {}", shared.display());
        return;
    }
    for (part, extension) in [("", "jsonl"), ("datasets", "json")] {
        let (ours, theirs) = (files(&corpus().join(part), extension), shared.join(part));
        let names = |files: &[PathBuf]| -> Vec<_> {
            files.iter().map(|file| file.file_name().map(ToOwned::to_owned)).collect()
        };
        assert_eq!(names(&ours), names(&files(&theirs, extension)));
        for file in ours {
            let name = file.file_name().expect("a file has a name");
            assert!(read(&file) == read(&theirs.join(name)), "{} differs", file.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_engine_answers_every_case() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let account = Account::direct(Keeping::Directory(directory.path().to_owned())).await;
    check_all(&account, Indexes::AsGiven).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_engine_answers_every_case_without_indexes() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let account = Account::direct(Keeping::Directory(directory.path().to_owned())).await;
    check_all(&account, Indexes::None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_answers_every_case() {
    let account = Account::over_http(Keeping::in_memory()).await;
    check_all(&account, Indexes::AsGiven).await;
}
