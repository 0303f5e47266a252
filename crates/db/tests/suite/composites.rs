//! Composite indexes for filters: when they serve, what a client is told, and pages that go on.

use db::{Page, QueryText, Scope};
use storage::Embedded;
use value::{PartitionKey, Value};

use crate::support::{Documents, by_pk_with, create, key};

fn indexed(indexes: &[&[&str]]) -> String {
    let path = |path: &&str| {
        let (path, order) = match path.strip_prefix('-') {
            Some(path) => (path, "descending"),
            None => (*path, "ascending"),
        };
        format!(r#"{{"path":"{path}","order":"{order}"}}"#)
    };
    let index =
        |paths: &&[&str]| format!("[{}]", paths.iter().map(path).collect::<Vec<_>>().join(","));
    let indexes: Vec<String> = indexes.iter().map(index).collect();
    format!(r#""indexingPolicy":{{"compositeIndexes":[{}]}}"#, indexes.join(","))
}

fn query(text: &str) -> QueryText {
    QueryText { text: text.to_owned(), ..QueryText::default() }
}

fn scope(at: Option<&str>) -> Scope {
    Scope { key: at.map(key), cross_partition: true, ..Scope::default() }
}

/// Three hundred documents in three partitions, of which the first has most.
async fn documents(definition: &str) -> Documents<Embedded> {
    let documents = Documents::new(definition).await;
    for number in 0..300 {
        let pk = if number % 10 < 8 { "a" } else { ["b", "c"][number % 2] };
        let (tens, rest) = (number / 10, number % 7);
        let body = format!(
            r#"{{"id":"d{number:03}","pk":"{pk}","n":{number},"t":"t{rest}","tens":{tens}}}"#
        );
        documents.must(&format!("[\"{pk}\"]"), create(&body)).await;
    }
    documents
}

fn access(documents: &Documents<Embedded>, text: &str, at: Option<&str>) -> String {
    let told = documents.db.explain(&documents.container, &query(text), &scope(at), None).unwrap();
    told.get("access").and_then(Value::as_str).unwrap().to_owned()
}

/// The ids that a query gives, in pages of a size.
fn ids(documents: &Documents<Embedded>, text: &str, at: Option<&str>, size: usize) -> Vec<String> {
    let mut ids = Vec::new();
    let mut page = Page { items_max: Some(size), ..Page::default() };
    loop {
        let answer =
            documents.db.query(&documents.container, &query(text), &scope(at), &page, None);
        let answer = answer.unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
        let id = |row: &Value| row.get("id").and_then(Value::as_str).unwrap().to_owned();
        ids.extend(answer.rows.iter().map(|row| id(&Value::parse(row).unwrap())));
        page.continuation = answer.continuation;
        if page.continuation.is_none() {
            return ids;
        }
    }
}

#[tokio::test]
async fn a_range_behind_fixed_values_is_looked_up_in_a_composite_index() {
    let policy = by_pk_with(&indexed(&[&["/pk", "/n"], &["/pk", "-/t", "/n"]]));
    let documents = documents(&policy).await;
    let check = |text: &str, at: Option<&str>, told: &str, found: &[&str]| {
        assert_eq!(access(&documents, text, at), told, "{text}");
        for size in [1, 2, 100] {
            let mut ids = ids(&documents, text, at, size);
            ids.sort();
            assert_eq!(ids, found, "{text} in pages of {size}");
        }
    };
    let by_number = "3 entries of the composite index over /pk ASC, /n ASC are looked up";
    let range = "c.n > 99 AND c.n < 103";
    let found = ["d100", "d101", "d102"];
    // The key of the request, the same in the filter, and both.
    check(&format!("SELECT * FROM c WHERE {range}"), Some(r#"["a"]"#), by_number, &found);
    check(&format!("SELECT * FROM c WHERE c.pk = 'a' AND {range}"), None, by_number, &found);
    check(
        &format!("SELECT * FROM c WHERE {range} AND c.pk = 'a'"),
        Some(r#"["a"]"#),
        by_number,
        &found,
    );
    check(
        "SELECT * FROM c WHERE c.t = 't3' AND c.n >= 50 AND c.n < 60",
        Some(r#"["a"]"#),
        "1 entry of the composite index over /pk ASC, /t DESC, /n ASC are looked up",
        &["d052"],
    );
    check(
        "SELECT * FROM c WHERE c.t IN ('t3', 't4') AND c.n >= 50 AND c.n < 60",
        Some(r#"["a"]"#),
        "2 entries of the composite index over /pk ASC, /t DESC, /n ASC are looked up",
        &["d052", "d053"],
    );
    // Inside of a partition the values of one path lie together in its own index.
    check(
        "SELECT * FROM c WHERE c.n = 7",
        Some(r#"["a"]"#),
        "1 entry of /n/? are looked up",
        &["d007"],
    );
}

#[tokio::test]
async fn several_partitions_are_each_looked_up_by_their_own_key() {
    let documents = documents(&by_pk_with(&indexed(&[&["/pk", "/n"]]))).await;
    let text = "SELECT * FROM c WHERE c.pk IN ('a', 'b') AND c.n BETWEEN 106 AND 110";
    assert_eq!(
        access(&documents, text, None),
        "4 entries of the composite index over /pk ASC, /n ASC are looked up"
    );
    let mut found = ids(&documents, text, None, 1);
    found.sort();
    assert_eq!(found, ["d106", "d107", "d108", "d110"]);
    let sorted = "SELECT TOP 3 * FROM c WHERE c.pk IN ('a', 'b') AND c.n > 106 ORDER BY c.n";
    assert_eq!(
        access(&documents, sorted, None),
        "documents come along the composite index over /pk ASC, /n ASC"
    );
    assert_eq!(ids(&documents, sorted, None, 2), ["d107", "d108", "d110"]);
}

#[tokio::test]
async fn an_order_inside_a_partition_starts_where_the_filter_does() {
    let documents = documents(&by_pk_with(&indexed(&[&["/pk", "-/n"]]))).await;
    let along = "documents come along the composite index over /pk ASC, /n DESC";
    for (text, found) in [
        ("SELECT TOP 3 * FROM c WHERE c.n < 100 ORDER BY c.n DESC", ["d097", "d096", "d095"]),
        ("SELECT TOP 3 * FROM c WHERE c.n >= 98 ORDER BY c.n", ["d100", "d101", "d102"]),
        ("SELECT TOP 3 * FROM c ORDER BY c.n", ["d000", "d001", "d002"]),
    ] {
        assert_eq!(access(&documents, text, Some(r#"["a"]"#)), along, "{text}");
        for size in [1, 2, 100] {
            assert_eq!(ids(&documents, text, Some(r#"["a"]"#), size), found, "{text}");
        }
    }
}

#[tokio::test]
async fn a_hierarchical_key_fixes_its_paths() {
    let index = indexed(&[&["/city", "/street", "/n"], &["/city", "/n"]]);
    let definition = format!(
        r#"{{"partitionKey":{{"paths":["/city","/street"],"kind":"MultiHash","version":2}},{index}}}"#
    );
    let documents = Documents::new(&definition).await;
    for number in 0..200 {
        let (city, street) = (["x", "y"][number % 2], ["s", "t"][number / 2 % 2]);
        let body =
            format!(r#"{{"id":"d{number:03}","city":"{city}","street":"{street}","n":{number}}}"#);
        documents.must(&format!(r#"["{city}","{street}"]"#), create(&body)).await;
    }
    let text = "SELECT * FROM c WHERE c.n >= 100 AND c.n < 110";
    let mut all = ids(&documents, text, Some(r#"["x"]"#), 2);
    all.sort();
    assert_eq!(all, ["d100", "d102", "d104", "d106", "d108"]);
    assert_eq!(
        access(&documents, text, Some(r#"["x"]"#)),
        "5 entries of the composite index over /city ASC, /n ASC are looked up"
    );
    let sorted = "SELECT TOP 2 * FROM c WHERE c.n >= 100 ORDER BY c.n";
    assert_eq!(ids(&documents, sorted, Some(r#"["x","t"]"#), 1), ["d102", "d106"]);
    assert_eq!(
        access(&documents, sorted, Some(r#"["x","t"]"#)),
        "documents come along the composite index over /city ASC, /street ASC, /n ASC"
    );
}

#[tokio::test]
async fn a_page_does_not_go_on_in_another_index() {
    let mut documents = documents(&by_pk_with(&indexed(&[&["/pk", "/n"]]))).await;
    let text = query("SELECT * FROM c WHERE c.n >= 100 AND c.n < 120");
    let at = scope(Some(r#"["a"]"#));
    // So few documents come as they were created, unless an index has to be taken.
    let page = Page { items_max: Some(2), insist_on_indexes: true, ..Page::default() };
    let first = documents.db.query(&documents.container, &text, &at, &page, None).unwrap();
    let page = Page { continuation: first.continuation, ..page };
    let second = documents.db.query(&documents.container, &text, &at, &page, None);
    assert_eq!(second.unwrap().rows.len(), 2);
    documents.redefine(&by_pk_with(&indexed(&[&["/pk", "-/n"]]))).await;
    let refused = documents.db.query(&documents.container, &text, &at, &page, None);
    let message = refused.map(|_| ()).unwrap_err().error.to_string();
    assert!(message.contains("indexes of the container have changed"), "{message}");
}

#[tokio::test]
async fn clients_are_told_which_composite_indexes_serve_and_would_serve() {
    let documents = documents(&by_pk_with(&indexed(&[&["/pk", "/n"]]))).await;
    let check = |text: &str, at: Option<&str>, used: &[&str], potential: &[&str]| {
        let key = at.map(|at| PartitionKey::parse_header(at).unwrap());
        let scope = Scope { key, cross_partition: true, ..Scope::default() };
        let page = Page { tell_indexes: true, ..Page::default() };
        let answer = documents.db.query(&documents.container, &query(text), &scope, &page, None);
        let told = answer.unwrap().index_use.expect("it was asked for");
        let joined = |composites: &[Vec<String>]| -> Vec<String> {
            composites.iter().map(|paths| paths.join(", ")).collect()
        };
        assert_eq!(joined(&told.used_composites), used, "used by {text}");
        assert_eq!(joined(&told.potential_composites), potential, "of use to {text}");
    };
    check("SELECT * FROM c", None, &[], &[]);
    check("SELECT * FROM c WHERE c.n > 5", None, &[], &[]);
    check("SELECT * FROM c WHERE c.n = 5", Some(r#"["a"]"#), &[], &[]);
    check("SELECT * FROM c WHERE c.n > 5", Some(r#"["a"]"#), &["/pk ASC, /n ASC"], &[]);
    check("SELECT * FROM c ORDER BY c.n", Some(r#"["a"]"#), &["/pk ASC, /n ASC"], &[]);
    check("SELECT * FROM c WHERE c.pk = 'a' AND c.n > 5", None, &["/pk ASC, /n ASC"], &[]);
    check(
        "SELECT * FROM c WHERE c.t = 'x' AND c.n > 5 AND c.tens > 1",
        None,
        &[],
        &["/t ASC, /n ASC", "/t ASC, /tens ASC"],
    );
    check("SELECT * FROM c WHERE c.t = 'x' AND c.tens = 1", None, &[], &["/t ASC, /tens ASC"]);
    check(
        "SELECT * FROM c WHERE c.t = 'x' ORDER BY c.tens DESC",
        Some(r#"["a"]"#),
        &[],
        &["/pk ASC, /t ASC, /tens DESC"],
    );
}
