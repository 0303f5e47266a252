//! Databases, containers, users, permissions, offers and ranges.

use value::Value;

use crate::support::start;

#[tokio::test]
async fn databases_live_their_lives() {
    let server = start().await;
    let created = server.post("/dbs/", &[], r#"{"id":"one two"}"#).await.expect(201);
    assert_eq!(created.text("_self"), format!("dbs/{}/", created.text("_rid")));
    assert_eq!(created.header("etag"), created.text("_etag"));
    server.post("/dbs", &[], r#"{"id":"one two"}"#).await.expect(409);
    server.get("/dbs/one%20two", &[]).await.expect(200);
    let by_rid = format!("/{}", created.text("_self"));
    let read = server.get(&by_rid, &[]).await.expect(200);
    assert_eq!(read.text("id"), "one two");
    let etag = read.header("etag").to_owned();
    server.get("/dbs/one%20two", &[("if-none-match", &etag)]).await.expect(304);
    server.send("PUT", "/dbs/one%20two", &[], "{}").await.expect_error(405, 0, "");
    server.send("DELETE", "/dbs/one%20two", &[], "").await.expect(204);
    server.get("/dbs/one%20two", &[]).await.expect_error(404, 0, "Not Found");
}

#[tokio::test]
async fn lists_come_in_pages() {
    let server = start().await;
    for name in ["a", "b", "c"] {
        server.post("/dbs", &[], &format!(r#"{{"id":"{name}"}}"#)).await.expect(201);
    }
    let whole = server.get("/dbs", &[]).await.expect(200);
    assert_eq!(whole.header("x-ms-item-count"), "3");
    let first = server.get("/dbs", &[("x-ms-max-item-count", "2")]).await.expect(200);
    assert_eq!(first.json().get("_count"), Some(&Value::from(2)));
    let next = ("x-ms-continuation", first.header("x-ms-continuation"));
    let second = server.get("/dbs", &[("x-ms-max-item-count", "2"), next]).await.expect(200);
    let names: Vec<_> = second.json().get("Databases").unwrap().as_array().unwrap().to_vec();
    assert_eq!(names[0].get("id"), Some(&Value::from("c")));
    assert_eq!(second.header("x-ms-continuation"), "");
    server.get("/dbs", &[("x-ms-continuation", "*")]).await.expect_error(400, 0, "continuation");
}

#[tokio::test]
async fn containers_are_made_and_described() {
    let server = start().await.with_container().await;
    let quota = [
        ("x-ms-documentdb-populatequotainfo", "True"),
        ("x-ms-documentdb-populatepartitionstatistics", "True"),
    ];
    let read = server.get("/dbs/d/colls/c", &quota).await.expect(200);
    assert!(
        read.json().get("statistics").is_some_and(|statistics| statistics.as_array().is_some())
    );
    assert!(read.header("x-ms-resource-usage").contains("documentsCount=0;"));
    assert_eq!(read.header("x-ms-documentdb-collection-index-transformation-progress"), "100");
    assert_eq!(read.header("x-ms-content-path"), read.text("_rid"));
    let list = server.get("/dbs/d/colls", &[]).await.expect(200);
    assert!(list.json().get("DocumentCollections").is_some());
    let keyless = r#"{"id":"k"}"#;
    let version = ("x-ms-version", "2020-07-15");
    server.post("/dbs/d/colls", &[version], keyless).await.expect_error(400, 0, "");
    let missing = server.post("/dbs/x/colls", &[], keyless).await;
    assert!(matches!(missing.status, 400 | 404));
    let mut body = read.json();
    body.as_object_mut().unwrap().insert("defaultTtl", 60);
    let replaced = server.send("PUT", "/dbs/d/colls/c", &[], body.to_text()).await.expect(200);
    assert_eq!(replaced.json().get("defaultTtl"), Some(&Value::from(60)));
    server.send("DELETE", "/dbs/d/colls/c", &[], "").await.expect(204);
}

#[tokio::test]
async fn ranges_are_listed_until_nothing_changed() {
    let server = start().await;
    server.post("/dbs", &[], r#"{"id":"d"}"#).await.expect(201);
    let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    let throughput = ("x-ms-offer-throughput", "11000");
    server.post("/dbs/d/colls", &[throughput], container).await.expect(201);
    let incremental = ("a-im", "Incremental Feed");
    let path = "/dbs/d/colls/c/pkranges/";
    let feed = server.get(path, &[incremental]).await.expect(200);
    let ranges = feed.json().get("PartitionKeyRanges").unwrap().as_array().unwrap().to_vec();
    assert_eq!(ranges.len(), 2);
    assert_eq!(ranges[0].get("minInclusive"), Some(&Value::from("")));
    assert_eq!(ranges[0].get("maxExclusive"), ranges[1].get("minInclusive"));
    assert_eq!(ranges[1].get("maxExclusive"), Some(&Value::from("FF")));
    let etag = feed.header("etag").to_owned();
    let again = server.get(path, &[incremental, ("if-none-match", &etag)]).await.expect(304);
    assert_eq!(again.header("etag"), etag);
    assert!(again.body.is_empty());
}

#[tokio::test]
async fn offers_are_found_and_changed() {
    let server = start().await.with_container().await;
    let container = server.get("/dbs/d/colls/c", &[]).await.expect(200);
    let query = format!(
        r#"{{"query":"SELECT * FROM root r WHERE r.resource=@link",
            "parameters":[{{"name":"@link","value":"{}"}}]}}"#,
        container.text("_self")
    );
    let isquery = ("x-ms-documentdb-isquery", "True");
    let found = server.post("/offers/", &[isquery], &query).await.expect(200);
    let offers = found.json().get("Offers").unwrap().as_array().unwrap().to_vec();
    assert_eq!(offers.len(), 1, "{found:?}");
    let rid = offers[0].get("_rid").and_then(Value::as_str).unwrap();
    let path = format!("/offers/{rid}");
    let read = server.get(&path, &[]).await.expect(200);
    assert_eq!(read.header("x-ms-cosmos-min-throughput"), "400");
    assert_eq!(read.header("x-ms-offer-replace-pending"), "false");
    let mut offer = read.json();
    let content = offer.as_object_mut().unwrap().get_mut("content").unwrap();
    content.as_object_mut().unwrap().insert("offerThroughput", 500);
    let minimal = ("prefer", "return=minimal");
    let replaced = server.send("PUT", &path, &[minimal], offer.to_text()).await.expect(200);
    let throughput = replaced.json().get("content").unwrap().get("offerThroughput").cloned();
    assert_eq!(throughput, Some(Value::from(500)));
    server.post("/offers", &[], "{}").await.expect_error(405, 0, "");
    let both = [
        ("x-ms-offer-throughput", "400"),
        ("x-ms-cosmos-offer-autopilot-settings", r#"{"maxThroughput":4000}"#),
    ];
    server.post("/dbs", &both, r#"{"id":"x"}"#).await.expect_error(400, 0, "exclude each other");
}

#[tokio::test]
async fn users_and_their_permissions() {
    let server = start().await.with_container().await;
    server.post("/dbs/d/users", &[], r#"{"id":"u"}"#).await.expect(201);
    let upsert = ("x-ms-documentdb-is-upsert", "True");
    server.post("/dbs/d/users", &[upsert], r#"{"id":"u"}"#).await.expect(200);
    let permission = r#"{"id":"p","permissionMode":"Read","resource":"dbs/d/colls/c"}"#;
    let path = "/dbs/d/users/u/permissions";
    let created = server.post(path, &[], permission).await.expect(201);
    assert!(created.text("_token").starts_with("type=resource&ver=1&sig="));
    let feed = server.get(path, &[]).await.expect(200);
    assert!(feed.json().get("Permissions").is_some());
    let odd = ("x-ms-documentdb-expiry-seconds", "soon");
    server.get("/dbs/d/users/u/permissions/p", &[odd]).await.expect_error(400, 0, "expiry");
    server.send("DELETE", "/dbs/d/users/u/permissions/p", &[], "").await.expect(204);
    server.send("DELETE", "/dbs/d/users/u", &[], "").await.expect(204);
    server.get("/dbs/d/users/u", &[]).await.expect(404);
}

#[tokio::test]
async fn there_are_no_conflicts() {
    let server = start().await.with_container().await;
    let feed = server.get("/dbs/d/colls/c/conflicts", &[]).await.expect(200);
    assert_eq!(feed.json().get("Conflicts").unwrap().to_text(), "[]");
    server.get("/dbs/d/colls/c/conflicts/x", &[]).await.expect(404);
}
