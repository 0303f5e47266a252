//! Ranges that are cut anew, and throughput that is enforced.

use value::Value;

use crate::support::{Server, config, start, start_with};

const RANGES: &str = "/dbs/d/colls/c/pkranges";
const DOCS: &str = "/dbs/d/colls/c/docs";

async fn fill(server: &Server, count: usize) {
    for number in 0..count {
        let body = format!(r#"{{"id":"{number}","pk":"{number}"}}"#);
        let key = format!(r#"["{number}"]"#);
        server.post(DOCS, &[("x-ms-documentdb-partitionkey", &key)], &body).await.expect(201);
    }
}

async fn range_ids(server: &Server) -> Vec<String> {
    let ranges = server.get(RANGES, &[]).await.expect(200).json();
    let ranges = ranges.get("PartitionKeyRanges").and_then(Value::as_array).unwrap().to_vec();
    ranges.iter().map(|range| range.get("id").unwrap().as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn clients_learn_of_a_split() {
    let server = start().await.with_container().await;
    fill(&server, 10).await;
    let known = server.get(RANGES, &[("a-im", "Incremental Feed")]).await.expect(200);
    let etag = known.header("etag").to_owned();
    let incremental = [("a-im", "Incremental Feed"), ("if-none-match", &etag[..])];
    server.get(RANGES, &incremental).await.expect(304);

    let recut = server.post(RANGES, &[], r#"{"split":"0"}"#).await.expect(200);
    assert_eq!(recut.json().to_text(), r#"{"old":["0"],"new":["1","2"]}"#);
    server.get(RANGES, &incremental).await.expect(200);
    assert_eq!(range_ids(&server).await, ["1", "2"]);
    let gone = [("x-ms-documentdb-partitionkeyrangeid", "0")];
    server.get(DOCS, &gone).await.expect_error(410, 1002, "does not exist");
    let mut count = 0;
    for range in ["1", "2"] {
        let page = server.get(DOCS, &[("x-ms-documentdb-partitionkeyrangeid", range)]).await;
        count += page.expect(200).header("x-ms-item-count").parse::<u64>().unwrap();
    }
    assert_eq!(count, 10);
    server.post(RANGES, &[], r#"{"merge":["1","2"]}"#).await.expect(200);
    assert_eq!(range_ids(&server).await, ["3"]);
    for body in [r#"{}"#, r#"{"split":0}"#, r#"{"merge":["3"]}"#, r#"{"split":"3","merge":[]}"#] {
        server.post(RANGES, &[], body).await.expect_error(400, 0, "");
    }
}

#[tokio::test]
async fn raised_throughput_splits() {
    let server = start().await.with_container().await;
    fill(&server, 10).await;
    let offers = server.get("/offers", &[]).await.expect(200).json();
    let offer = offers.get("Offers").and_then(Value::as_array).unwrap()[0].clone();
    let rid = offer.get("_rid").and_then(Value::as_str).unwrap().to_owned();
    let Value::Object(mut offer) = offer else { panic!("an offer is an object") };
    offer.insert("content", Value::parse(br#"{"offerThroughput":25000}"#).unwrap());
    let body = Value::Object(offer).to_text();
    let replaced = server.send("PUT", &format!("/offers/{rid}"), &[], body).await.expect(200);
    assert_eq!(replaced.header("x-ms-offer-replace-pending"), "false");
    assert_eq!(range_ids(&server).await.len(), 3);
    assert_eq!(server.documents(), 10);
}

#[tokio::test]
async fn throughput_is_enforced_where_it_is_asked_for() {
    let config = gateway::Config { throttle: true, ..config() };
    let server = start_with(config).await.with_container().await;
    let key = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
    let mut written = 0;
    let refused = loop {
        let body = format!(r#"{{"id":"{written}","pk":"a"}}"#);
        let reply = server.post(DOCS, &[key], &body).await;
        if reply.status != 201 {
            break reply;
        }
        written += 1;
        assert!(written < 1_000, "400 units a second are never used up");
    };
    let refused = refused.expect_error(429, 3200, "Request rate is large");
    let wait_ms: u64 = refused.header("x-ms-retry-after-ms").parse().unwrap();
    assert!((1..1_000).contains(&wait_ms), "{wait_ms}");
    assert_eq!(server.documents(), written);
    // What is about no document is not metered, and time brings units back.
    server.get("/dbs/d/colls/c", &[]).await.expect(200);
    server.clock.advance_ms(wait_ms);
    server.post(DOCS, &[key], r#"{"id":"later","pk":"a"}"#).await.expect(201);
}

#[tokio::test]
async fn merging_is_left_to_clients_where_it_is_asked_for() {
    for client_merges in [false, true] {
        let server = start_with(gateway::Config { client_merges, ..config() }).await;
        let server = server.with_container().await;
        fill(&server, 10).await;
        let query = async |text: &str, range: Option<&str>| {
            let mut headers = vec![
                ("x-ms-documentdb-isquery", "True"),
                ("x-ms-documentdb-query-enablecrosspartition", "True"),
            ];
            headers.extend(range.map(|id| ("x-ms-documentdb-partitionkeyrangeid", id)));
            server.post(DOCS, &headers, &format!(r#"{{"query":"{text}"}}"#)).await
        };
        let sorted = "SELECT VALUE c.id FROM c ORDER BY c.id";
        // As in the service, one range makes no difference.
        let answered = query(sorted, None).await.status;
        assert_eq!(answered, if client_merges { 400 } else { 200 });
        // A full page may be followed by an empty one.
        let pages = pages_of(&server, "5").await;
        assert_eq!(pages, if client_merges { &[5, 5, 0][..] } else { &[5, 5] });
        server.post(RANGES, &[], r#"{"split":"0"}"#).await.expect(200);
        for text in [sorted, "SELECT VALUE COUNT(1) FROM c", "SELECT TOP 3 * FROM c"] {
            let reply = query(text, None).await;
            match client_merges {
                true => drop(reply.expect_error(400, 1004, "query plan")),
                false => drop(reply.expect(200)),
            }
            query(text, Some("1")).await.expect(200);
        }
        query("SELECT * FROM c", None).await.expect(200);
        // As in the service, every range has pages of its own, be they empty.
        let pages = pages_of(&server, "6").await;
        let by_range = [documents_in(&server, "1").await, documents_in(&server, "2").await];
        assert_eq!(by_range.iter().sum::<usize>(), 10);
        assert_eq!(pages, if client_merges { by_range.to_vec() } else { vec![6, 4] });
        let pages = pages_of(&server, "100").await;
        assert_eq!(pages, if client_merges { by_range.to_vec() } else { vec![10] });
        // Aggregates it leaves to clients unless the request itself names the partition.
        let counted = query("SELECT VALUE COUNT(1) FROM c WHERE c.pk = '3'", None).await;
        assert_eq!(counted.status, if client_merges { 400 } else { 200 });
    }
}

/// How many rows each page of a query over all partitions has.
async fn pages_of(server: &Server, rows_max: &str) -> Vec<usize> {
    let (mut pages, mut next) = (Vec::new(), String::new());
    loop {
        let mut headers = vec![
            ("x-ms-documentdb-isquery", "True"),
            ("x-ms-documentdb-query-enablecrosspartition", "True"),
            ("x-ms-max-item-count", rows_max),
        ];
        headers.extend((!next.is_empty()).then_some(("x-ms-continuation", next.as_str())));
        let reply = server.post(DOCS, &headers, r#"{"query":"SELECT * FROM c"}"#).await;
        let reply = reply.expect(200);
        pages.push(reply.header("x-ms-item-count").parse().unwrap());
        next = reply.header("x-ms-continuation").to_owned();
        if next.is_empty() {
            return pages;
        }
    }
}

/// How many documents a range has.
async fn documents_in(server: &Server, range: &str) -> usize {
    let headers =
        [("x-ms-documentdb-isquery", "True"), ("x-ms-documentdb-partitionkeyrangeid", range)];
    let reply = server.post(DOCS, &headers, r#"{"query":"SELECT * FROM c"}"#).await.expect(200);
    reply.header("x-ms-item-count").parse().unwrap()
}
