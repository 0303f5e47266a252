//! Queries as requests see them: scopes, pages that go on, and what is refused.

use db::{Kind, Page, QueryText, Scope};
use storage::Embedded;
use value::{Epk, EpkRange, PartitionKey, Value};

use crate::support::{BY_PK, Documents, by_pk_with, create, upsert};

fn query(text: &str) -> QueryText {
    QueryText { text: text.to_owned(), ..Default::default() }
}

fn everywhere() -> Scope {
    Scope { cross_partition: true, ..Scope::default() }
}

/// All rows of a query, fetched in pages of the given size.
fn rows(
    documents: &Documents<Embedded>,
    text: &str,
    scope: &Scope,
    items_max: Option<usize>,
) -> Result<Vec<String>, db::Error> {
    let mut rows = Vec::new();
    let mut continuation = None;
    loop {
        let page = Page { items_max, continuation, ..Page::default() };
        let answer = documents.db.query(&documents.container, &query(text), scope, &page, None);
        let answer = answer.map_err(|failure| failure.error)?;
        assert!(items_max.is_none_or(|max| answer.rows.len() <= max), "the page is too long");
        let texts = answer.rows.iter().map(|row| String::from_utf8(row.to_vec()));
        rows.extend(texts.map(|text| text.expect("rows are text")));
        continuation = answer.continuation;
        if continuation.is_none() {
            return Ok(rows);
        }
    }
}

async fn with_lists() -> Documents<Embedded> {
    let documents = Documents::with_ranges(BY_PK, 3).await;
    for number in 0..20 {
        let pk = number % 5;
        let list: Vec<String> = (0..number % 4).map(|at| format!("\"{number}-{at}\"")).collect();
        let body = format!(
            r#"{{"id":"d{number:02}","pk":"p{pk}","n":{number},"list":[{}]}}"#,
            list.join(",")
        );
        documents.must(&format!("[\"p{pk}\"]"), create(&body)).await;
    }
    documents
}

#[tokio::test]
async fn pages_of_any_size_give_the_same_rows() {
    let documents = with_lists().await;
    for text in [
        "SELECT * FROM c",
        "SELECT * FROM c WHERE c.n > 7",
        "SELECT VALUE c.id FROM c",
        "SELECT c.id, l FROM c JOIN l IN c.list",
        "SELECT VALUE l FROM c JOIN l IN c.list JOIN m IN c.list WHERE l != m",
    ] {
        let whole = rows(&documents, text, &everywhere(), None).unwrap();
        assert!(whole.len() > 10, "{text}: {whole:?}");
        for items_max in [1, 2, 3, 7, 100] {
            let paged = rows(&documents, text, &everywhere(), Some(items_max)).unwrap();
            assert_eq!(paged, whole, "{text} in pages of {items_max}");
        }
    }
}

#[tokio::test]
async fn few_documents_come_as_they_were_created() {
    let documents = Documents::new(BY_PK).await;
    for (number, id) in ["m", "z", "a", "q", "b"].into_iter().enumerate() {
        let body = format!(r#"{{"id":"{id}","pk":"p{}","n":{}}}"#, number % 2, number % 3);
        documents.must(&format!("[\"p{}\"]", number % 2), create(&body)).await;
    }
    // Another version of a document leaves it where it is.
    documents.must("[\"p0\"]", upsert(r#"{"id":"m","pk":"p0","n":0,"again":true}"#)).await;
    for (text, expected) in [
        ("SELECT VALUE c.id FROM c", "m z a q b"),
        ("SELECT VALUE c.id FROM c WHERE c.n < 2", "m z q b"),
        ("SELECT VALUE c.id FROM c OFFSET 1 LIMIT 2", "z a"),
        ("SELECT TOP 3 VALUE c.id FROM c", "m z a"),
        ("SELECT VALUE c.id FROM c WHERE c.pk = \"p0\"", "m a b"),
        ("SELECT VALUE c.id FROM c ORDER BY c.n", "m q z b a"),
        ("SELECT VALUE c.id FROM c ORDER BY c.n DESC", "a b z q m"),
    ] {
        let expected: Vec<String> = expected.split(' ').map(|id| format!("\"{id}\"")).collect();
        for items_max in [None, Some(1), Some(2)] {
            let got = rows(&documents, text, &everywhere(), items_max).unwrap();
            assert_eq!(got, expected, "{text} in pages of {items_max:?}");
        }
    }
    let numbers = rows(&documents, "SELECT DISTINCT VALUE c.n FROM c", &everywhere(), None);
    assert_eq!(numbers.unwrap(), ["0", "1", "2"]);
}

#[tokio::test]
async fn an_answer_goes_on_when_few_documents_have_become_many() {
    for text in ["SELECT VALUE c.id FROM c", "SELECT VALUE l FROM c JOIN l IN c.list"] {
        for items_max in [1, 2, 3, 5, 7] {
            let documents = with_lists().await;
            let before = rows(&documents, text, &everywhere(), None).unwrap();
            let (mut got, mut continuation) = (Vec::new(), None);
            for page_number in 0.. {
                let page = Page { items_max: Some(items_max), continuation, ..Page::default() };
                let asked = &query(text);
                let answer =
                    documents.db.query(&documents.container, asked, &everywhere(), &page, None);
                let answer = answer.map_err(|failure| failure.error).unwrap();
                let texts = answer.rows.iter().map(|row| String::from_utf8(row.to_vec()).unwrap());
                got.extend(texts);
                continuation = answer.continuation;
                if continuation.is_none() {
                    break;
                }
                if page_number == 1 {
                    for number in 0..300 {
                        let id = format!("n{number}");
                        let body = format!(r#"{{"id":"{id}","pk":"{id}","list":["{id}"]}}"#);
                        documents.must(&format!("[\"{id}\"]"), create(&body)).await;
                    }
                }
            }
            let (mut kept, mut expected) = (got.clone(), before);
            kept.retain(|row| !row.starts_with("\"n"));
            kept.sort();
            expected.sort();
            assert_eq!(kept, expected, "{text} in pages of {items_max}");
            got.sort();
            let all = got.len();
            got.dedup();
            assert_eq!(got.len(), all, "{text} in pages of {items_max}: a row came twice");
        }
    }
}

#[tokio::test]
async fn an_aggregate_is_one_row_whatever_the_order() {
    let documents = with_lists().await;
    for order in ["", " ORDER BY c.n", " ORDER BY c.id DESC"] {
        let sum = format!("SELECT VALUE SUM(c.n) FROM c{order}");
        assert_eq!(rows(&documents, &sum, &everywhere(), None).unwrap(), ["190"], "{sum}");
        let most = format!("SELECT DISTINCT VALUE MAX(c.n) FROM c{order}");
        assert_eq!(rows(&documents, &most, &everywhere(), Some(1)).unwrap(), ["19"], "{most}");
    }
}

#[tokio::test]
async fn a_query_that_can_find_nothing_costs_something() {
    let documents = with_lists().await;
    for text in [
        r#"SELECT * FROM c WHERE c.pk = "p1" AND c.pk = "p2""#,
        r#"SELECT * FROM c WHERE c.pk = "nobody""#,
        "SELECT * FROM c WHERE false",
    ] {
        let (scope, page) = (everywhere(), Page::default());
        let answer = documents.db.query(&documents.container, &query(text), &scope, &page, None);
        let charge = answer.expect("the query is answered").charge;
        assert!(charge >= db::Charge::QUERY_BASE, "{text} costs {charge:?}");
    }
}

#[tokio::test]
async fn a_client_that_merges_may_narrow_a_query_that_goes_on() {
    // The JavaScript and Java SDKs resume so: with the last sort key in the condition, and the token
    // of the page before.
    let documents = with_lists().await;
    let ask = |filter: &str, continuation: Option<String>| {
        let text = format!(
            r#"SELECT c._rid, [{{"item": c.n}}] AS orderByItems, c.n AS payload
            FROM c WHERE ({filter}) ORDER BY c.n DESC"#
        );
        let scope = Scope { range: Some("0".to_owned()), ..Scope::default() };
        let page = Page { items_max: Some(2), continuation, ..Page::default() };
        let answer = documents.db.query(&documents.container, &query(&text), &scope, &page, None);
        answer.map_err(|failure| failure.error)
    };
    let payloads = |page: &db::FeedPage| -> Vec<Value> {
        let rows = page.rows.iter().map(|row| Value::parse(row).expect("a row is JSON"));
        let payload = |row: Value| row.as_object()?.get("payload").cloned();
        rows.map(|row| payload(row).expect("the row has a payload")).collect()
    };
    let first = ask("true", None).unwrap();
    let second = ask("true", first.continuation.clone()).unwrap();
    let last = payloads(&first)[1].to_text();
    let narrowed = ask(&format!("c.n <= {last}"), first.continuation.clone()).unwrap();
    assert_eq!(payloads(&narrowed), payloads(&second));
    assert_eq!(narrowed.rows.len(), 2);

    // Any other query is another one when its condition is.
    let page = |text: &str, continuation| {
        let page = Page { items_max: Some(2), continuation, ..Page::default() };
        documents.db.query(&documents.container, &query(text), &everywhere(), &page, None)
    };
    let token = page("SELECT c.n FROM c WHERE c.n > 1 ORDER BY c.n", None).unwrap().continuation;
    let refused = page("SELECT c.n FROM c WHERE c.n > 2 ORDER BY c.n", token).map(|_| ());
    assert_eq!(refused.unwrap_err().error.kind, Kind::BadRequest);
}

#[tokio::test]
async fn the_key_of_a_request_counts_as_an_index() {
    let policies = by_pk_with(
        r#""indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/n/?"}]}"#,
    );
    let documents = Documents::new(&policies).await;
    documents.must(r#"["a"]"#, create(r#"{"id":"1","pk":"a"}"#)).await;
    let check = |text: &str, key: Option<&str>, used: &[&str], potential: &[&str]| {
        let key = key.map(|key| PartitionKey::parse_header(key).unwrap());
        let scope = Scope { key, cross_partition: true, ..Scope::default() };
        let page = Page { tell_indexes: true, ..Page::default() };
        let answer = documents.db.query(&documents.container, &query(text), &scope, &page, None);
        let index_use = answer.unwrap().index_use.expect("it was asked for");
        assert_eq!(index_use.used, used, "used by {text}");
        assert_eq!(index_use.potential, potential, "of use to {text}");
    };
    check("SELECT * FROM c", None, &[], &[]);
    check("SELECT * FROM c", Some(r#"["a"]"#), &["/pk/?"], &[]);
    check("SELECT * FROM c WHERE c.m = 1 AND c.n = 1", None, &["/m/?"], &["/n/?"]);
    check("SELECT * FROM c WHERE c.n = 1", Some(r#"["a"]"#), &["/pk/?"], &["/n/?"]);
    check("SELECT * FROM c WHERE c.pk = 'a'", None, &["/pk/?"], &[]);
}

#[tokio::test]
async fn stored_texts_come_back_as_they_are() {
    let documents = Documents::new(BY_PK).await;
    documents.must(r#"["a"]"#, create(r#"{"id":"1","pk":"a","n":1.50,"m":1E2,"z":-0}"#)).await;
    let all = rows(&documents, "SELECT * FROM c WHERE c.n = 1.5", &everywhere(), None).unwrap();
    assert!(all[0].starts_with(r#"{"id":"1","pk":"a","n":1.50,"m":1E2,"z":-0,"_rid":"#), "{all:?}");
}

#[tokio::test]
async fn a_query_stays_within_its_scope() {
    let documents = with_lists().await;
    let key = |text: &str| Some(PartitionKey::parse_header(text).unwrap());
    let one = Scope { key: key(r#"["p1"]"#), ..Scope::default() };
    let ids = rows(&documents, "SELECT VALUE c.id FROM c", &one, Some(2)).unwrap();
    assert_eq!(ids, [r#""d01""#, r#""d06""#, r#""d11""#, r#""d16""#]);

    // The slices of the hash space, and the ranges, each give their part and together all.
    let ranges = documents.db.partition_key_ranges(&documents.container).unwrap().ranges;
    let mut by_range = Vec::new();
    let mut by_epk = Vec::new();
    for range in &ranges {
        let text = |name: &str| range.get(name).and_then(Value::as_str).unwrap().to_owned();
        let scope = Scope { range: Some(text("id")), ..Scope::default() };
        by_range.extend(rows(&documents, "SELECT * FROM c", &scope, Some(3)).unwrap());
        let (min, max) = (text("minInclusive"), text("maxExclusive"));
        let epk = EpkRange { min: Epk::parse(&min).unwrap(), max: Epk::parse(&max).unwrap() };
        let scope = Scope { epk: Some(epk), ..Scope::default() };
        by_epk.extend(rows(&documents, "SELECT * FROM c", &scope, Some(3)).unwrap());
    }
    let all = rows(&documents, "SELECT * FROM c", &everywhere(), None).unwrap();
    assert_eq!(by_range, all);
    assert_eq!(by_epk, all);

    let gone = Scope { range: Some("99".to_owned()), ..Scope::default() };
    let error = rows(&documents, "SELECT * FROM c", &gone, None).unwrap_err();
    assert_eq!(error.kind, Kind::RangeGone);
}

#[tokio::test]
async fn crossing_partitions_must_be_allowed_or_not_needed() {
    let documents = with_lists().await;
    let confined = Scope::default();
    let error = rows(&documents, "SELECT * FROM c WHERE c.n = 1", &confined, None).unwrap_err();
    assert!(error.message.contains("Cross partition query is required but disabled"), "{error}");
    let legacy = Documents::new(
        r#"{"partitionKey":{"paths":["/_partitionKey"],"kind":"Hash","version":2,"systemKey":true}}"#,
    )
    .await;
    legacy.must("[]", create(r#"{"id":"1"}"#)).await;
    assert_eq!(rows(&legacy, "SELECT VALUE c.id FROM c", &confined, None).unwrap(), [r#""1""#]);

    let by_filter = "SELECT VALUE c.id FROM c WHERE c.pk = 'p2' AND c.n > 5";
    let ids = rows(&documents, by_filter, &confined, None).unwrap();
    assert_eq!(ids, [r#""d07""#, r#""d12""#, r#""d17""#]);
}

#[tokio::test]
async fn sorted_and_counted_results_come_whole() {
    let documents = with_lists().await;
    let count = rows(&documents, "SELECT VALUE COUNT(1) FROM c", &everywhere(), None).unwrap();
    assert_eq!(count, ["20"]);
    let top = "SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC";
    assert_eq!(rows(&documents, top, &everywhere(), None).unwrap(), ["19", "18", "17"]);
}

#[tokio::test]
async fn a_token_is_bound_to_its_query() {
    let documents = with_lists().await;
    let page = Page { items_max: Some(1), continuation: None, ..Page::default() };
    let first = documents.db.query(
        &documents.container,
        &query("SELECT * FROM c"),
        &everywhere(),
        &page,
        None,
    );
    let continuation = first.unwrap().continuation;
    let page = Page { items_max: Some(1), continuation, ..Page::default() };
    let other = query("SELECT c.id FROM c");
    let error = documents.db.query(&documents.container, &other, &everywhere(), &page, None);
    assert_eq!(error.unwrap_err().error.kind, Kind::BadRequest);
}
