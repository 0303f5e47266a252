//! The data shapes of `tests/fixtures/article`, loaded and read back.
//!
//! What comes back must be the text that was sent, byte for byte: values, the spelling of numbers,
//! the order of members. Only the system properties are added, behind everything else.

#[allow(dead_code, reason = "the golden scripts use more of it")]
mod support {
    pub(crate) mod account;
    pub(crate) mod http;
}

use std::path::Path;

use db::{Conditions, Page};
use support::account::{Account, Answer, Keeping, Operation, Refusal, Request, Verb};
use value::{Component, Object, PartitionKey, Value};

/// The files, and the partition key of the containers they are loaded into.
const FIXTURES: [(&str, &str); 14] = [
    ("e1_person", "id"),
    ("e2a_post_with_comments", "id"),
    ("e2b_post_and_comment_batches", "id"),
    ("e2c_post_and_comment_items", "postId"),
    ("e3a_portfolio_with_stocks", "id"),
    ("e3b_portfolio_and_stocks", "id"),
    ("e4a_publisher_with_books", "id"),
    ("e4b_books_with_publisher", "id"),
    ("e5a_authors_books_joined", "id"),
    ("e5b_authors_and_books_with_id_lists", "id"),
    ("e6_hybrid_authors_and_books", "id"),
    ("e7_author_with_published_books", "authorId"),
    ("e8_book_of_unknown_author", "id"),
    ("e9_books_and_reviews", "bookId"),
];

fn lines(fixture: &str) -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/article");
    let text = std::fs::read_to_string(directory.join(format!("{fixture}.ndjson")));
    text.expect("the fixture is there").lines().map(str::to_owned).collect()
}

/// The id of a document and its value at the partition key.
fn address(text: &str, key: &str) -> (String, PartitionKey) {
    let document = Value::parse(text.as_bytes()).expect("a fixture is JSON");
    let id = document.get("id").and_then(Value::as_str).expect("a fixture has ids").to_owned();
    let component = Component::from_value(document.get(key)).expect("the key is a scalar");
    (id, PartitionKey(vec![component]))
}

fn operation(verb: Verb, key: &PartitionKey, id: Option<&str>, body: Option<&str>) -> Operation {
    Operation {
        verb,
        key: Some(key.clone()),
        id: id.map(str::to_owned),
        body: body.map(str::to_owned),
        conditions: Conditions::default(),
        pre: None,
        post: None,
    }
}

async fn one(account: &Account, container: &str, operation: Operation) -> Result<Answer, Refusal> {
    account.send(&Request::One { container: container.to_owned(), operation }).await
}

async fn create_container(account: &Account, name: &str, key: &str) {
    let path = format!("/{key}");
    let definition = Object::from([
        ("paths", Value::from(vec![Value::from(path)])),
        ("kind", Value::from("Hash")),
        ("version", Value::from(2)),
    ]);
    let body = Object::from([("id", Value::from(name)), ("partitionKey", definition.into())]);
    let created = account.send(&Request::CreateContainer { body, throughput: None }).await;
    created.expect("the container can be made");
}

async fn load(account: &Account, fixture: &str, key: &str) {
    create_container(account, fixture, key).await;
    for line in lines(fixture) {
        let (_, key) = address(&line, key);
        let created = one(account, fixture, operation(Verb::Create, &key, None, Some(&line))).await;
        let created = created.expect("a fixture can be created");
        assert_eq!(created.status, 201);
        check_same(&created.body.expect("a create shows the document"), &line);
    }
}

/// The text that came back is the text that was sent, with the system properties behind it.
#[track_caller]
fn check_same(came_back: &str, sent: &str) {
    let members = sent.strip_suffix('}').expect("a document is an object");
    let added = came_back.strip_prefix(members).unwrap_or_else(|| {
        panic!("what came back differs\n  sent      {sent}\n  came back {came_back}")
    });
    assert!(added.starts_with(",\"_rid\":\""), "{added}");
    let names: Vec<_> =
        value::SYSTEM_PROPERTIES.iter().filter(|name| added.contains(*name)).collect();
    assert_eq!(names, ["_rid", "_self", "_etag", "_attachments", "_ts"].iter().collect::<Vec<_>>());
}

async fn check_round_trip(account: &Account) {
    for (fixture, key) in FIXTURES {
        load(account, fixture, key).await;
        let sent = lines(fixture);
        for line in &sent {
            let (id, key) = address(line, key);
            let read = one(account, fixture, operation(Verb::Read, &key, Some(&id), None)).await;
            let read = read.unwrap_or_else(|refused| panic!("{fixture} {id}: {refused:?}"));
            check_same(&read.body.expect("a read shows the document"), line);
        }
        let container = fixture.to_owned();
        let feed = Request::Feed { container, key: None, page: Page::default() };
        let mut rows = account.send(&feed).await.expect("the container can be read").rows;
        assert_eq!(rows.len(), sent.len(), "{fixture}");
        let mut sent = sent;
        // A feed has an order of its own; ids tell documents apart in every fixture.
        rows.sort_by_key(|row| address(row, key).0);
        sent.sort_by_key(|line| address(line, key).0);
        for (row, line) in rows.iter().zip(&sent) {
            check_same(row, line);
        }
    }
}

#[tokio::test]
async fn documents_come_back_as_they_were_sent() {
    check_round_trip(&Account::direct(Keeping::in_memory()).await).await;
}

#[tokio::test]
async fn documents_come_back_over_http_as_they_were_sent() {
    check_round_trip(&Account::over_http(Keeping::in_memory()).await).await;
}

#[test]
fn every_fixture_is_loaded_and_in_normal_form() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/article");
    let entries = std::fs::read_dir(directory).expect("the fixtures are there");
    let names = entries.map(|entry| entry.expect("an entry").path());
    let names = names.filter(|path| path.extension().is_some_and(|kind| kind == "ndjson"));
    let mut names: Vec<_> = names
        .filter_map(|path| path.file_stem().map(|name| name.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    assert_eq!(names, FIXTURES.map(|(name, _)| name));
    for name in names {
        for line in lines(&name) {
            let value = Value::parse(line.as_bytes()).expect("a fixture is JSON");
            assert_eq!(value.to_text(), line, "{name}");
        }
    }
}

/// The article's samples as printed have slips like these; each is refused and says where.
#[tokio::test]
async fn slips_of_the_printed_samples_are_refused() {
    let account = Account::over_http(Keeping::in_memory()).await;
    create_container(&account, "slips", "id").await;
    let key = PartitionKey(vec![Component::String("1".into())]);
    for (slip, at) in [
        (r#"{"id":"1","comments":[{"id":1},…]}"#, 31),
        (r#"{"id":"1","comments":[{"id":1},]}"#, 31),
        (r#"{"id":"1","comments":[{"id":∞ + 1}]}"#, 28),
        (r#"{"id":"1" "comments":[]}"#, 10),
        (r#"{"id":"1","books":["b1, "b2", "b3"]}"#, 25),
        (r#"{"id":"1","images":[{"thumbnail":"t"} {"profile":"p"}]}"#, 38),
        (r#"{"id":"1","contactDetails":[{"email: "thomas@example.org"}]}"#, 38),
    ] {
        let error = Value::parse(slip.as_bytes()).expect_err(slip);
        assert_eq!(error.offset, at, "{slip}: {error}");
        let sent = one(&account, "slips", operation(Verb::Create, &key, None, Some(slip))).await;
        let refused = sent.expect_err(slip);
        assert_eq!((refused.status, refused.code.as_str()), (400, "BadRequest"), "{slip}");
        assert!(refused.message.contains(&format!("at byte {at}")), "{slip}: {}", refused.message);
    }
    // Batches and joining documents are printed without an id, which only SDKs can make up.
    let without_id = r#"{"postId":"1","comments":[]}"#;
    let key = PartitionKey(vec![Component::Undefined]);
    let sent = one(&account, "slips", operation(Verb::Create, &key, None, Some(without_id))).await;
    assert_eq!(sent.expect_err(without_id).status, 400);
}

/// Publishing a book and counting it is one transaction where both share a partition.
#[tokio::test]
async fn a_book_and_its_count_change_together_or_not_at_all() {
    let (fixture, key_name) = ("e7_author_with_published_books", "authorId");
    let account = Account::over_http(Keeping::in_memory()).await;
    load(&account, fixture, key_name).await;
    let key = PartitionKey(vec![Component::String("a1".into())]);
    let count = r#"[{"op":"incr","path":"/countOfBooks","value":1},
        {"op":"add","path":"/books/-","value":"b2"}]"#;
    let book = r#"{"id":"b2","authorId":"a1","type":"book","name":"Writing queries"}"#;
    let publish = Request::Batch {
        container: fixture.to_owned(),
        key: key.clone(),
        operations: [
            operation(Verb::Patch, &key, Some("a1"), Some(count)),
            operation(Verb::Create, &key, None, Some(book)),
        ]
        .map(|operation| Operation { key: None, ..operation })
        .into(),
    };
    let statuses = |answer: Answer| -> Vec<u16> {
        answer.results.iter().map(|result| result.status).collect()
    };
    let published = account.send(&publish).await.expect("the batch is in order");
    assert_eq!((published.status, statuses(published)), (200, vec![200, 201]));
    // The book exists now, so doing it again must not count it again.
    let again = account.send(&publish).await.expect("the batch is in order");
    assert_eq!((again.status, statuses(again)), (207, vec![424, 409]));
    let author = one(&account, fixture, operation(Verb::Read, &key, Some("a1"), None)).await;
    let author = author.expect("the author is there").body.expect("a read shows the document");
    check_same(
        &author,
        r#"{"id":"a1","authorId":"a1","type":"author","firstName":"Thomas","lastName":"Andersen","countOfBooks":2,"books":["b1","b2"]}"#,
    );
}
