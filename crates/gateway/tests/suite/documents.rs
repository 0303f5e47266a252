//! Documents: what each request answers, and the headers SDKs keep their books by.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::support::{Headers, config, start, start_with};

const DOCS: &str = "/dbs/d/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
const ONE: &str = r#"{"id":"1","pk":"a","n":1.0}"#;

#[tokio::test]
async fn a_document_lives_its_life() {
    let server = start().await.with_container().await;
    let created = server.post(DOCS, &[KEY], ONE).await.expect(201);
    assert!(created.body.starts_with(br#"{"id":"1","pk":"a","n":1.0,"_rid":""#));
    assert_eq!(created.text("_etag"), created.header("etag"));
    let path = "/dbs/d/colls/c/docs/1";
    let read = server.get(path, &[KEY]).await.expect(200);
    assert_eq!(read.body, created.body);
    assert_eq!(read.header("content-location"), "http://localhost/dbs/d/colls/c/docs/1");
    let etag = read.header("etag").to_owned();
    server.get(path, &[KEY, ("if-none-match", &etag)]).await.expect(304);
    server.post(DOCS, &[KEY], ONE).await.expect_error(409, 0, "already exists");

    let replaced = server.send("PUT", path, &[KEY], r#"{"id":"1","pk":"a","n":2}"#).await;
    let replaced = replaced.expect(200);
    assert_ne!(replaced.header("etag"), etag);
    let stale = [KEY, ("if-match", etag.as_str())];
    let refused = server.send("PUT", path, &stale, ONE).await.expect_error(412, 0, "pre-condition");
    assert!(!refused.header("x-ms-session-token").is_empty());

    let patch = r#"{"operations":[{"op":"incr","path":"/n","value":3}]}"#;
    let patched = server.send("PATCH", path, &[KEY], patch).await.expect(200);
    assert_eq!(patched.json().get("n").and_then(value::Value::as_i64), Some(5));

    let deleted = server.send("DELETE", path, &[KEY], "").await.expect(204);
    assert!(deleted.body.is_empty());
    server.get(path, &[KEY]).await.expect_error(404, 0, "Resource Not Found");
}

#[tokio::test]
async fn answers_carry_the_bookkeeping_headers() {
    let server = start().await.with_container().await;
    let activity = ("x-ms-activity-id", "7c1a0000-0000-0000-0000-000000000001");
    let created = server.post(DOCS, &[KEY, activity], ONE).await.expect(201);
    assert_eq!(created.header("x-ms-activity-id"), activity.1);
    assert_eq!(created.header("x-ms-alt-content-path"), "dbs/d/colls/c");
    let rid = created.header("x-ms-content-path").replace('-', "/");
    assert_eq!(STANDARD.decode(rid).unwrap().len(), 8);
    assert_eq!(created.header("x-ms-documentdb-partitionkeyrangeid"), "0");
    let lsn: u64 = created.header("lsn").parse().unwrap();
    let token = created.header("x-ms-session-token");
    assert!(token.starts_with("0:") && token.ends_with(&format!("#{lsn}")), "{token}");
    assert_eq!(created.header("x-ms-item-lsn"), lsn.to_string());
    assert!(created.header("x-ms-request-charge").parse::<f64>().unwrap() > 0.0);
    assert!(created.header("x-ms-request-duration-ms").parse::<f64>().is_ok());
    assert_eq!(created.header("cache-control"), "no-store, no-cache");
    let missing = server.get("/dbs/d/colls/c/docs/2", &[KEY]).await.expect(404);
    assert_eq!(missing.header("x-ms-session-token"), created.header("x-ms-session-token"));
    assert_eq!(missing.header("x-ms-alt-content-path"), "dbs/d/colls/c");
    assert_eq!(missing.header("x-ms-activity-id").len(), 36);
}

#[tokio::test]
async fn upsert_creates_or_replaces() {
    let server = start().await.with_container().await;
    let upsert = ("x-ms-documentdb-is-upsert", "True");
    server.post(DOCS, &[KEY, upsert], ONE).await.expect(201);
    server.post(DOCS, &[KEY, upsert], ONE).await.expect(200);
}

#[tokio::test]
async fn a_client_may_want_no_body() {
    let server = start().await.with_container().await;
    let minimal = ("prefer", "return=minimal");
    let created = server.post(DOCS, &[KEY, minimal], ONE).await.expect(201);
    assert!(created.body.is_empty());
    assert!(!created.header("etag").is_empty());
    let read = server.get("/dbs/d/colls/c/docs/1", &[KEY, minimal]).await.expect(200);
    assert_eq!(read.header("etag"), created.header("etag"));
    assert!(!read.body.is_empty(), "only writes go without");
}

#[tokio::test]
async fn documents_are_found_by_resource_id_too() {
    let server = start().await.with_container().await;
    let created = server.post(DOCS, &[KEY], ONE).await.expect(201);
    let link = format!("/{}", created.text("_self"));
    let read = server.get(&link, &[KEY]).await.expect(200);
    assert_eq!(read.body, created.body);
    let mixed = format!("/dbs/d/colls/{}/docs/1", created.header("x-ms-content-path"));
    server.get(&mixed, &[KEY]).await.expect(200);
}

#[tokio::test]
async fn ids_are_taken_as_they_are() {
    let server = start().await.with_container().await;
    for (id, path) in [
        ("a b", "a%20b"),
        ("100%", "100%25"),
        ("a+b", "a+b"),
        ("€", "%E2%82%AC"),
        ("!@$%^&*()-~`'_[]{}|;:,.<>", "!@$%25%5E&*()-~%60'_%5B%5D%7B%7D%7C;:,.%3C%3E"),
    ] {
        let body = format!(r#"{{"id":"{id}","pk":"a"}}"#);
        server.post(DOCS, &[KEY], &body).await.expect(201);
        let read = server.get(&format!("{DOCS}/{path}/"), &[KEY]).await.expect(200);
        assert_eq!(read.text("id"), id);
    }
}

/// What the Go SDK's tests of the two gateways say of ids that a URL hardly carries.
#[tokio::test]
async fn strange_ids_can_be_created_and_are_addressed_where_that_is_allowed() {
    let cases = [
        ("This is a test", "This%20is%20a%20test", 200),
        (" a", "%20a", 200),
        ("a?b", "a%3Fb", 200),
        ("100%", "100%25", 200),
        ("a ", "a%20", 401),
        ("a%20", "a%2520", 401),
        ("%E9%B1%80", "%25E9%25B1%2580", 401),
        ("a/b", "a%2Fb", 401),
        (r"a\\b", "a%5Cb", 401),
        ("a#b", "a%23b", 401),
        (r"a\rb", "a%0Db", 400),
        (r"a\tb", "a%09b", 400),
        (r"a\nb", "a%0Ab", 400),
    ];
    for strict_ids in [false, true] {
        let config = gateway::Config { strict_ids, ..config() };
        let server = start_with(config).await.with_container().await;
        for (id, path, refused) in cases {
            let body = format!(r#"{{"id":"{id}","pk":"a"}}"#);
            let path = format!("{DOCS}/{path}");
            let is_found = !strict_ids || refused == 200;
            let expected = |status| if is_found { status } else { refused };
            server.post(DOCS, &[KEY], &body).await.expect(201);
            server.get(&path, &[KEY]).await.expect(expected(200));
            server.send("PUT", &path, &[KEY], body).await.expect(expected(200));
            server.send("DELETE", &path, &[KEY], "").await.expect(expected(204));
        }
    }
}

#[tokio::test]
async fn feeds_come_in_pages() {
    let server = start().await.with_container().await;
    for at in 0..5 {
        let body = format!(r#"{{"id":"{at}","pk":"a"}}"#);
        server.post(DOCS, &[KEY], &body).await.expect(201);
    }
    let mut seen = 0;
    let mut continuation = String::new();
    loop {
        let mut headers = vec![("x-ms-max-item-count", "2")];
        if !continuation.is_empty() {
            headers.push(("x-ms-continuation", &continuation));
        }
        let page = server.get(DOCS, &headers).await.expect(200);
        let count: usize = page.header("x-ms-item-count").parse().unwrap();
        let documents = page.json().get("Documents").unwrap().as_array().unwrap().len();
        assert_eq!(documents, count);
        assert_eq!(page.text("_rid"), page.header("x-ms-content-path"));
        seen += count;
        let next = page.header("x-ms-continuation").to_owned();
        if next.is_empty() {
            break;
        }
        continuation = next;
    }
    assert_eq!(seen, 5);
    let tampered = format!("{}x", &continuation[..continuation.len() - 1]);
    server.get(DOCS, &[("x-ms-continuation", &tampered)]).await.expect_error(400, 0, "");
}

#[tokio::test]
async fn queries_are_answered() {
    let server = start().await.with_container().await;
    server.post(DOCS, &[KEY], ONE).await.expect(201);
    let query = ("x-ms-documentdb-isquery", "True");
    let kind = ("content-type", "application/query+json");
    let metrics = ("x-ms-documentdb-populatequerymetrics", "true");
    let body = r#"{"query":"SELECT VALUE c.n FROM c WHERE c.id = @id",
        "parameters":[{"name":"@id","value":"1"}]}"#;
    let found = server.post(DOCS, &[KEY, query, kind, metrics], body).await.expect(200);
    assert_eq!(found.json().get("Documents").unwrap().to_text(), "[1.0]");
    assert_eq!(found.header("x-ms-item-count"), "1");
    let metrics = found.header("x-ms-documentdb-query-metrics");
    assert!(metrics.split(';').all(|part| part.split('=').count() == 2), "{metrics}");
    let wrong = server.post(DOCS, &[KEY, query], r#"{"query":"SELEC"}"#).await;
    wrong.expect_error(400, 0, "");
    let plan = ("x-ms-cosmos-is-query-plan-request", "True");
    let planned = server.post(DOCS, &[plan], r#"{"query":"SELECT * FROM c"}"#).await.expect(200);
    assert!(planned.json().get("queryRanges").is_some());
}

#[tokio::test]
async fn whole_partitions_are_deleted() {
    let server = start().await.with_container().await;
    server.post(DOCS, &[KEY], ONE).await.expect(201);
    let path = "/dbs/d/colls/c/operations/partitionkeydelete/";
    server.post(path, &[], "").await.expect_error(400, 0, "PartitionKey value must be supplied");
    server.post(path, &[KEY], "").await.expect(200);
    server.get("/dbs/d/colls/c/docs/1", &[KEY]).await.expect(404);
}

#[tokio::test]
async fn binary_bodies_are_read() {
    let server = start().await.with_container().await;
    // {"id":"1","pk":"a","n":7}
    let body = b"\x80\xed\x0b\x03\x2c\x811\x82pk\x81a\x81n\x07".to_vec();
    let created = server.send("POST", DOCS, &[KEY], body).await.expect(201);
    assert!(created.body.starts_with(br#"{"id":"1","pk":"a","n":7,"#), "{:?}", created.body);
}

async fn check_header(header: (&str, &str), expected: &str) {
    let server = start().await.with_container().await;
    let headers: Headers<'_> = &[header];
    server.get(DOCS, headers).await.expect_error(400, 0, expected);
}

#[tokio::test]
async fn invalid_header_values_are_refused() {
    check_header(("x-ms-version", "2030-01-01"), "x-ms-version").await;
    check_header(("x-ms-max-item-count", "-2"), "x-ms-max-item-count").await;
    check_header(("x-ms-max-item-count", "many"), "x-ms-max-item-count").await;
    check_header(("x-ms-max-item-count", "9999999999"), "x-ms-max-item-count").await;
    check_header(("x-ms-consistency-level", "Sometimes"), "x-ms-consistency-level").await;
    check_header(("x-ms-consistency-level", "Strong"), "consistency level Session").await;
    check_header(("x-ms-indexing-directive", "maybe"), "x-ms-indexing-directive").await;
    check_header(("x-ms-documentdb-query-emit-traces", "maybe"), "emit-traces").await;
    check_header(("x-ms-documentdb-content-serialization-format", "Xml"), "format").await;
    check_header(("x-ms-documentdb-partitionkey", "a"), "x-ms-documentdb-partitionkey").await;
    check_header(("x-ms-session-token", "junk"), "session token").await;
    check_header(("x-ms-start-epk", "xyz"), "x-ms-start-epk").await;
    check_header(("a-im", "Decremental Feed"), "a-im").await;
}

#[tokio::test]
async fn a_session_ahead_of_the_server_is_told() {
    let server = start().await.with_container().await;
    server.post(DOCS, &[KEY], ONE).await.expect(201);
    let ahead = ("x-ms-session-token", "0:-1#9999");
    let path = "/dbs/d/colls/c/docs/1";
    server.get(path, &[KEY, ahead]).await.expect_error(404, 1002, "session");
    server.get(path, &[KEY, ("x-ms-session-token", "77:-1#9999")]).await.expect(200);
}

#[tokio::test]
async fn a_container_made_anew_is_noticed() {
    let server = start().await.with_container().await;
    let intended = ("x-ms-cosmos-intended-collection-rid", "AAAAAIAAAAA=");
    server.post(DOCS, &[KEY, intended], ONE).await.expect_error(400, 1024, "");
    server.post("/dbs/d/colls/x/docs", &[KEY], ONE).await.expect_error(404, 1003, "Not Found");
    server.get("/dbs/d/colls/x", &[]).await.expect_error(404, 0, "Not Found");
}
