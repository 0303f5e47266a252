//! Requests that nobody should send: each gets a clear answer, and nothing is written.

use bytes::Bytes;
use proptest::prelude::*;

use crate::support::{DATE, start};

const DOCS: &str = "/dbs/d/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);

async fn check(body: impl Into<Bytes>, status: u16, expected: &str) {
    let server = start().await.with_container().await;
    let reply = server.send("POST", DOCS, &[KEY], body).await;
    reply.expect_error(status, 0, expected);
    assert_eq!(server.documents(), 0);
}

fn nested(depth: usize) -> String {
    format!(r#"{{"id":"1","pk":"a","x":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))
}

#[tokio::test]
async fn malformed_bodies_are_refused() {
    check("", 400, "no body").await;
    check("{", 400, "not valid JSON").await;
    check("[]", 400, "").await;
    check("nonsense", 400, "not valid JSON").await;
    check(r#"{"id":"1","pk":"a"} x"#, 400, "not valid JSON").await;
    check(nested(1_000), 400, "").await;
    check(nested(100_000), 400, "").await;
    check(r#"{"id":"1","pk":"a","x":"\ud800"}"#, 400, "not valid JSON").await;
    check(&b"{\"id\":\"1\",\"pk\":\"a\",\"x\":\"\xff\"}"[..], 400, "not valid JSON").await;
    check(r#"{"id":"1","pk":"a","x":1e999}"#, 400, "not valid JSON").await;
    check(r#"{"id":"1","pk":"a","x":NaN}"#, 400, "not valid JSON").await;
    check(r#"{"pk":"a"}"#, 400, "id").await;
    check(r#"{"id":1,"pk":"a"}"#, 400, "").await;
    check(r#"{"id":"","pk":"a"}"#, 400, "").await;
    check(format!(r#"{{"id":"{}","pk":"a"}}"#, "x".repeat(1_024)), 400, "").await;
    check(&b"\x80\xe9"[..], 400, "binary JSON").await;
}

#[tokio::test]
async fn large_bodies_are_refused() {
    let padding = "x".repeat(2 * 1024 * 1024);
    check(format!(r#"{{"id":"1","pk":"a","x":"{padding}"}}"#), 413, "too large").await;
    let almost = "x".repeat(2 * 1024 * 1024 - 40);
    check(format!(r#"{{"id":"1","pk":"a","x":"{almost}"}}"#), 413, "too large").await;
}

#[tokio::test]
async fn odd_partition_keys_are_refused() {
    for key in ["", "[", "a", "{}", "[[]]", "[{\"a\":1}]", "[\"a\",\"b\"]", "[\"\\ud800\"]"] {
        let server = start().await.with_container().await;
        let header = ("x-ms-documentdb-partitionkey", key);
        let reply = server.post(DOCS, &[header], r#"{"id":"1","pk":"a"}"#).await;
        assert_eq!(reply.status, 400, "{key}: {:?}", reply.body);
        assert_eq!(server.documents(), 0);
    }
}

#[tokio::test]
async fn paths_that_lead_nowhere_are_refused() {
    let server = start().await;
    for (path, status) in [
        ("/../../etc/passwd", 404),
        ("/dbs/..%2f..%2fx", 404),
        ("/dbs/%00", 404),
        ("/dbs/%ff", 400),
        ("/nothing", 404),
        ("/dbs/d/colls/c/docs/1/attachments", 404),
        ("/addresses/?$resolveFor=x", 404),
    ] {
        let reply = server.get(path, &[]).await;
        assert_eq!(reply.status, status, "{path}");
        assert!(!reply.text("message").is_empty());
    }
    server.send("TRACE", "/dbs", &[], "").await.expect_error(405, 0, "TRACE");
    server.send("PATCH", "/dbs", &[], "").await.expect_error(405, 0, "PATCH");
}

#[tokio::test]
async fn answers_cannot_be_split() {
    let server = start().await;
    let odd = ("x-ms-activity-id", "a\tb");
    let reply = server.get("/dbs", &[odd]).await.expect(200);
    assert!(reply.header("x-ms-activity-id").len() == 36);
    let long = "x".repeat(1_000);
    let reply = server.get("/dbs", &[("x-ms-activity-id", &long)]).await.expect(200);
    assert_eq!(reply.header("x-ms-activity-id").len(), 36);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_body_breaks_the_server(body in proptest::collection::vec(any::<u8>(), 0..400)) {
        runtime().block_on(async {
            let server = start().await.with_container().await;
            let batch = ("x-ms-cosmos-is-batch-request", "True");
            let query = ("x-ms-documentdb-isquery", "True");
            for headers in [&[KEY][..], &[KEY, batch], &[KEY, query]] {
                let reply = server.send("POST", DOCS, headers, body.clone()).await;
                assert!((400..500).contains(&reply.status), "{reply:?}");
            }
            let reply = server.send("PATCH", "/dbs/d/colls/c/docs/1", &[KEY], body).await;
            assert!((400..500).contains(&reply.status), "{reply:?}");
        });
    }

    #[test]
    fn no_authorization_opens_the_server(authorization in "[ -~]{0,200}") {
        runtime().block_on(async {
            let server = start().await;
            let given = [("authorization", authorization.as_str()), ("x-ms-date", DATE)];
            let reply = server.send_as(&given, "GET", "/dbs", &[], "").await;
            assert!(matches!(reply.status, 401 | 403), "{reply:?}");
        });
    }
}
