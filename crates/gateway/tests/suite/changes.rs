//! The change feed as clients meet it: headers, statuses and the two forms of a change.

use std::sync::Arc;

use value::Value;

use crate::support::{Headers, NOW_MS, Reply, Server, start};

const DOCS: &str = "/dbs/d/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
const LATEST: (&str, &str) = ("a-im", "Incremental feed");
const VERSIONS: (&str, &str) = ("A-IM", "Full-Fidelity Feed");
const SEPARATE: (&str, &str) = ("x-ms-cosmos-changefeed-wire-format-version", "2021-09-15");

async fn create(server: &Server, id: &str) {
    let body = format!(r#"{{"id":"{id}","pk":"a"}}"#);
    server.post(DOCS, &[KEY], &body).await.expect(201);
}

/// A container `c` that keeps all versions.
async fn with_versions() -> Server {
    let server = start().await;
    server.post("/dbs", &[], r#"{"id":"d"}"#).await.expect(201);
    let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
        "defaultTtl":-1,"changeFeedPolicy":{"retentionDuration":10}}"#;
    server.post("/dbs/d/colls", &[], container).await.expect(201);
    server
}

fn rows(reply: &Reply) -> Vec<Value> {
    reply.json().get("Documents").unwrap().as_array().unwrap().to_vec()
}

fn ids(reply: &Reply) -> Vec<String> {
    let id = |row: &Value| row.get("id").unwrap().as_str().unwrap().to_owned();
    rows(reply).iter().map(id).collect()
}

#[tokio::test]
async fn changes_come_with_an_etag_until_there_are_none() {
    let server = start().await.with_container().await;
    for id in ["1", "2", "3"] {
        create(&server, id).await;
    }
    let page = server.get(DOCS, &[LATEST, ("x-ms-max-item-count", "2")]).await.expect(200);
    assert_eq!(ids(&page), ["1", "2"]);
    assert_eq!(page.header("x-ms-item-count"), "2");
    let lsn = rows(&page)[1].get("_lsn").unwrap().as_i64().unwrap();
    assert_eq!(page.header("etag"), format!("\"{lsn}\""));
    assert_eq!(page.header("x-ms-continuation"), "");
    let etag = page.header("etag").to_owned();
    let page = server.get(DOCS, &[LATEST, ("if-none-match", &etag)]).await.expect(200);
    assert_eq!(ids(&page), ["3"]);
    // Some clients take the quotes off.
    let etag = page.header("etag").trim_matches('"').to_owned();
    let end = server.get(DOCS, &[LATEST, ("if-none-match", &etag)]).await.expect(304);
    assert!(end.body.is_empty());
    for (name, value) in [
        ("x-ms-item-count", "0"),
        ("etag", page.header("etag")),
        ("lsn", page.header("lsn")),
        ("x-ms-session-token", page.header("x-ms-session-token")),
        ("x-ms-documentdb-partitionkeyrangeid", "0"),
        ("x-ms-alt-content-path", "dbs/d/colls/c"),
        ("x-ms-content-path", page.header("x-ms-content-path")),
        ("x-ms-request-charge", "1"),
    ] {
        assert_eq!(end.header(name), value, "{name}");
        assert_ne!(end.header(name), "", "{name}");
    }
}

/// The Java SDK asks for changes at the path that it makes of the container's answer: this header, then
/// `/colls/` and the id.
#[tokio::test]
async fn a_container_names_the_path_of_its_database() {
    let server = start().await.with_container().await;
    let read = server.get("/dbs/d/colls/c", &[]).await.expect(200);
    assert_eq!(read.header("x-ms-alt-content-path"), "dbs/d");
    assert!(!read.header("x-ms-content-path").is_empty());
}

#[tokio::test]
async fn a_reader_begins_now_or_with_a_time() {
    let server = start().await.with_container().await;
    create(&server, "1").await;
    let now = server.get(DOCS, &[LATEST, ("if-none-match", "*")]).await.expect(304);
    let etag = now.header("etag").to_owned();
    server.clock.advance_ms(1_000);
    create(&server, "2").await;
    let page = server.get(DOCS, &[LATEST, ("if-none-match", &etag)]).await.expect(200);
    assert_eq!(ids(&page), ["2"]);
    // The second of the first document; Go writes the zone as UTC.
    assert_eq!(NOW_MS, 1_493_254_272_000);
    for date in ["Thu, 27 Apr 2017 00:51:12 GMT", "Thu, 27 Apr 2017 00:51:12 UTC"] {
        let page = server.get(DOCS, &[LATEST, ("if-modified-since", date)]).await.expect(200);
        assert_eq!(ids(&page), ["2"]);
    }
    let future = ("if-modified-since", "Tue, 27 Apr 2027 00:51:12 GMT");
    let none = server.get(DOCS, &[LATEST, future]).await.expect(304);
    assert_eq!(none.header("etag"), page.header("etag"));
    // Where to go on is said by the etag alone, and the time still holds.
    let early = ("if-modified-since", "Thu, 27 Apr 2017 00:51:11 GMT");
    let both = [LATEST, ("if-none-match", etag.as_str()), early];
    assert_eq!(ids(&server.get(DOCS, &both).await.expect(200)), ["2"]);
}

#[tokio::test]
async fn a_policy_says_of_which_changes_the_document_before_is_told() {
    let server = start().await;
    server.post("/dbs", &[], r#"{"id":"d"}"#).await.expect(201);
    for (mode, replaced, deleted) in
        [(0, false, false), (1, true, false), (2, false, true), (3, true, true)]
    {
        let policy =
            format!(r#"{{"supportedFeatures":{{"allVersionsAndDeletes":{{"mode":{mode}}}}}}}"#);
        // Older clients name no feature; what is stored does.
        for asked in [policy.clone(), format!(r#"{{"mode":{mode}}}"#)] {
            let container = format!(
                r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},
                "changeFeedPolicy":{{"retentionDuration":10}},
                "previousImageRetentionPolicy":{asked}}}"#
            );
            let created = server.post("/dbs/d/colls", &[], &container).await.expect(201);
            let stored = created.json().get("previousImageRetentionPolicy").unwrap().to_text();
            assert_eq!(stored, policy);
            let now = server.get(DOCS, &[VERSIONS, ("if-none-match", "*")]).await.expect(304);
            let from = ("if-none-match", now.header("etag"));
            create(&server, "1").await;
            let path = "/dbs/d/colls/c/docs/1";
            server.send("PUT", path, &[KEY], r#"{"id":"1","pk":"a"}"#).await.expect(200);
            server.send("DELETE", path, &[KEY], "").await.expect(204);
            let page = server.get(DOCS, &[VERSIONS, SEPARATE, from]).await.expect(200);
            let all = rows(&page);
            let previous: Vec<bool> = all.iter().map(|row| row.get("previous").is_some()).collect();
            assert_eq!(previous, [false, replaced, deleted], "{mode}");
            for at in [1, 2] {
                let before = all[at].get("metadata").unwrap().get("previousImageLSN");
                assert_eq!(before, all[at - 1].get("metadata").unwrap().get("lsn"));
            }
            server.send("DELETE", "/dbs/d/colls/c", &[], "").await.expect(204);
        }
    }
}

#[tokio::test]
async fn changes_come_in_two_forms() {
    let server = with_versions().await;
    let now = server.get(DOCS, &[VERSIONS, ("if-none-match", "*")]).await.expect(304);
    let from = ("if-none-match", now.header("etag"));
    create(&server, "1").await;
    let path = "/dbs/d/colls/c/docs/1";
    let body = r#"{"id":"1","pk":"a","n":1,"ttl":5}"#;
    server.send("PUT", path, &[KEY], body).await.expect(200);
    create(&server, "2").await;
    server.send("DELETE", "/dbs/d/colls/c/docs/2", &[KEY], "").await.expect(204);
    server.clock.advance_ms(5_000);
    server.db.sweep().await.unwrap();

    let latest = server.get(DOCS, &[LATEST, SEPARATE]).await.expect(304);
    assert_eq!(latest.header("x-ms-item-count"), "0");
    create(&server, "3").await;
    let latest = server.get(DOCS, &[LATEST, SEPARATE]).await.expect(200);
    let [row] = &rows(&latest)[..] else { panic!("{:?}", latest.body) };
    assert_eq!(row.get("current").unwrap().get("id").unwrap().as_str(), Some("3"));
    assert_eq!(row.get("metadata").unwrap().to_text(), r#"{"lsn":7,"crts":1493254277}"#);

    let page = server.get(DOCS, &[VERSIONS, SEPARATE, from]).await.expect(200);
    let metadata: Vec<String> =
        rows(&page).iter().map(|row| row.get("metadata").unwrap().to_text()).collect();
    assert_eq!(
        metadata,
        [
            r#"{"operationType":"create","lsn":2,"crts":1493254272}"#,
            r#"{"operationType":"replace","lsn":3,"crts":1493254272,"previousImageLSN":2}"#,
            r#"{"operationType":"create","lsn":4,"crts":1493254272}"#,
            r#"{"operationType":"delete","lsn":5,"crts":1493254272,"previousImageLSN":4,"timeToLiveExpired":false,"id":"2","partitionKey":{"pk":"a"}}"#,
            r#"{"operationType":"delete","lsn":6,"crts":1493254277,"previousImageLSN":3,"timeToLiveExpired":true,"id":"1","partitionKey":{"pk":"a"}}"#,
            r#"{"operationType":"create","lsn":7,"crts":1493254277}"#,
        ]
    );
    let all = rows(&page);
    assert_eq!(all[1].get("previous"), None);
    assert_eq!(all[4].get("previous"), all[1].get("current"));
    assert_eq!(all[4].get("current").unwrap().to_text(), "{}");
    assert!(all[0].get("previous").is_none());

    let page = server.get(DOCS, &[VERSIONS, from]).await.expect(200);
    let plain = rows(&page);
    let operation = |row: &Value| row.get("_metadata").unwrap().get("operationType").cloned();
    assert_eq!(operation(&plain[1]), Some(Value::from("replace")));
    assert_eq!(plain[1].get("n").and_then(Value::as_i64), Some(1));
    assert_eq!(plain[3].get("id").and_then(Value::as_str), Some("2"));
    assert_eq!(operation(&plain[3]), Some(Value::from("delete")));
}

#[tokio::test]
async fn what_cannot_be_asked_for_is_refused() {
    let server = start().await.with_container().await;
    create(&server, "1").await;
    let check = async |headers: Headers<'_>, message: &str| {
        server.get(DOCS, headers).await.expect_error(400, 0, message);
    };
    check(&[("a-im", "Sometimes Feed")], "a-im").await;
    check(&[LATEST, ("if-none-match", "\"junk\"")], "continuation").await;
    check(&[LATEST, ("if-none-match", "\"999\"")], "ahead of the container").await;
    check(&[LATEST, ("if-modified-since", "yesterday")], "if-modified-since").await;
    check(&[LATEST, (SEPARATE.0, "2030-01-01")], "wire-format-version").await;
    check(&[VERSIONS, ("if-none-match", "*")], "'All Versions and Deletes' mode must be enabled")
        .await;
    let kind = [LATEST, ("content-type", "application/json")];
    let query = server.post(DOCS, &kind, r#"{"query":"SELECT * FROM c"}"#).await;
    query.expect_error(400, 0, "not served");
    let gone = [LATEST, ("x-ms-documentdb-partitionkeyrangeid", "7")];
    server.get(DOCS, &gone).await.expect_error(410, 1002, "");
    let other = [LATEST, ("x-ms-cosmos-intended-collection-rid", "AAAAAIAAAAA=")];
    server.get(DOCS, &other).await.expect_error(400, 1024, "");

    let server = with_versions().await;
    let check = async |headers: Headers<'_>| {
        server.get(DOCS, headers).await.expect_error(400, 0, "valid If-None-Match");
    };
    check(&[VERSIONS]).await;
    check(&[VERSIONS, ("if-modified-since", "Thu, 27 Apr 2017 00:51:12 GMT")]).await;
}

/// How long an answer may take: far longer than any does that works.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

#[tokio::test]
async fn a_client_may_wait_for_the_next_change() {
    let server = Arc::new(start().await.with_container().await);
    let waiting = tokio::spawn({
        let server = server.clone();
        async move {
            let wait = ("prefer", "respond-async, wait=60");
            server.get(DOCS, &[LATEST, KEY, ("if-none-match", "*"), wait]).await
        }
    });
    // Whatever comes first: a change of another partition is none, and one of the partition is.
    while !waiting.is_finished() {
        let other = [("x-ms-documentdb-partitionkey", r#"["b"]"#)];
        let upsert = ("x-ms-documentdb-is-upsert", "true");
        server.post(DOCS, &[other[0], upsert], r#"{"id":"0","pk":"b"}"#).await;
        server.post(DOCS, &[KEY, upsert], r#"{"id":"1","pk":"a"}"#).await;
    }
    let page = waiting.await.unwrap().expect(200);
    assert_eq!(ids(&page), ["1"]);
    // Nothing that cannot be understood is waited for.
    for prefer in ["wait", "wait=soon", "wait=0", "return=minimal"] {
        let etag = server.get(DOCS, &[LATEST, ("if-none-match", "*")]).await.expect(304);
        let headers = [LATEST, ("if-none-match", etag.header("etag")), ("prefer", prefer)];
        let reply = tokio::time::timeout(PATIENCE, server.get(DOCS, &headers)).await;
        reply.expect("no wait").expect(304);
    }
}

#[tokio::test]
async fn a_client_waits_no_longer_than_it_wants() {
    let server = start().await.with_container().await;
    let started = tokio::time::Instant::now();
    let headers = [LATEST, ("prefer", "wait=1")];
    let reply = tokio::time::timeout(PATIENCE, server.get(DOCS, &headers)).await;
    let end = reply.expect("an answer in time").expect(304);
    assert!(started.elapsed().as_millis() >= 1_000);
    assert_eq!(end.header("x-ms-item-count"), "0");
}
