//! Batches, in JSON and in the binary form of .NET.

use value::Value;

use crate::support::{Server, start};

const DOCS: &str = "/dbs/d/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
const BATCH: (&str, &str) = ("x-ms-cosmos-is-batch-request", "True");
const ATOMIC: (&str, &str) = ("x-ms-cosmos-batch-atomic", "True");

fn statuses(body: &Value) -> Vec<i64> {
    let results = body.as_array().unwrap();
    results.iter().map(|result| result.get("statusCode").unwrap().as_i64().unwrap()).collect()
}

async fn batch(server: &Server, body: &str) -> (u16, Value) {
    let reply = server.post(DOCS, &[KEY, BATCH, ATOMIC], body).await;
    (reply.status, reply.json())
}

#[tokio::test]
async fn a_batch_is_done_whole() {
    let server = start().await.with_container().await;
    let body = r#"[
        {"operationType":"Create","resourceBody":{"id":"1","pk":"a","n":1}},
        {"operationType":"Upsert","resourceBody":{"id":"2","pk":"a"}},
        {"operationType":"Replace","id":"1","resourceBody":{"id":"1","pk":"a","n":2}},
        {"operationType":"Patch","id":"1","resourceBody":{"operations":[{"op":"incr","path":"/n","value":1}]}},
        {"operationType":"Read","id":"1","minimalReturnPreference":true},
        {"operationType":"Delete","id":"2"},
        {"operationType":"Create","resourceBody":{"id":"3","pk":"a"},"minimalReturnPreference":true}]"#;
    let before = server.db.stats().unwrap().documents;
    let (status, results) = batch(&server, body).await;
    assert_eq!(status, 200, "{results}");
    assert_eq!(statuses(&results), [201, 201, 200, 200, 200, 204, 201]);
    let results = results.as_array().unwrap();
    let read = results[4].get("resourceBody").unwrap();
    assert_eq!(read.get("n"), Some(&Value::from(3)), "reads see the batch's writes");
    assert!(results[0].get("eTag").is_some() && results[0].get("requestCharge").is_some());
    assert!(results[5].get("resourceBody").is_none() && results[6].get("resourceBody").is_none());
    assert_eq!(server.documents(), before + 2);
}

#[tokio::test]
async fn a_batch_that_fails_leaves_nothing() {
    let server = start().await.with_container().await;
    let body = r#"[
        {"operationType":"Create","resourceBody":{"id":"1","pk":"a"}},
        {"operationType":"Create","resourceBody":{"id":"1","pk":"a"}},
        {"operationType":"Delete","id":"9"}]"#;
    let (status, results) = batch(&server, body).await;
    assert_eq!((status, statuses(&results)), (207, vec![424, 409, 424]));
    assert_eq!(server.documents(), 0);
    let body = r#"[{"operationType":"Create","resourceBody":{"id":"1","pk":"b"}}]"#;
    let (status, results) = batch(&server, body).await;
    assert_eq!((status, statuses(&results)), (207, vec![400]));
}

#[tokio::test]
async fn malformed_batches_are_refused() {
    let server = start().await.with_container().await;
    for (body, expected) in [
        ("[]", "no operations"),
        ("{}", "must be an array"),
        ("[1]", "must be an object"),
        ("[{}]", "operationType"),
        (r#"[{"operationType":"Jump"}]"#, "unknown"),
        (r#"[{"operationType":"Create"}]"#, "resourceBody"),
        (r#"[{"operationType":"Delete"}]"#, "an id"),
        (r#"[{"operationType":"Delete","id":7}]"#, "must be text"),
        (r#"[{"operationType":"Delete","id":"1","partitionKey":"x"}]"#, "partitionKey"),
        (r#"[{"operationType":"Delete","id":"1","timeToLiveInSeconds":5}]"#, "not served"),
        ("\u{81}", "not valid JSON"),
    ] {
        let reply = server.post(DOCS, &[KEY, BATCH, ATOMIC], body).await;
        reply.expect_error(400, 0, expected);
    }
    let many = vec![r#"{"operationType":"Delete","id":"1"}"#; 101].join(",");
    let reply = server.post(DOCS, &[KEY, BATCH, ATOMIC], &format!("[{many}]")).await;
    reply.expect_error(400, 0, "more operations than what is supported");
    let reply = server.post(DOCS, &[BATCH, ATOMIC], r#"[{"operationType":"Read","id":"1"}]"#).await;
    reply.expect_error(400, 0, "needs x-ms-documentdb-partitionkey");
}

#[tokio::test]
async fn bulk_operations_stand_alone() {
    let server = start().await.with_container().await;
    let headers = [
        BATCH,
        ("x-ms-cosmos-batch-atomic", "False"),
        ("x-ms-cosmos-batch-continue-on-error", "True"),
        ("x-ms-documentdb-partitionkeyrangeid", "0"),
    ];
    let body = r#"[
        {"operationType":"Create","partitionKey":"[\"a\"]","resourceBody":{"id":"1","pk":"a"}},
        {"operationType":"Delete","partitionKey":"[\"a\"]","id":"9"},
        {"operationType":"Create","partitionKey":"[\"b\"]","resourceBody":{"id":"1","pk":"b"}}]"#;
    let reply = server.post(DOCS, &headers, body).await.expect(207);
    assert_eq!(statuses(&reply.json()), [201, 404, 201]);
    assert_eq!(server.documents(), 2);
}

/// Writes a stream of operations as .NET does: type, id and body of each.
fn hybrid_row(operations: &[(i32, Option<&str>, Option<&str>)]) -> Vec<u8> {
    let mut out = b"\x81\xf0\xd8\xff\x7f\x01\x0a\0\0\0".to_vec();
    for (operation, id, body) in operations {
        let mut row = b"\x81\x70\x54\xe1\x7f".to_vec();
        row.push(0b11 | u8::from(id.is_some()) << 4 | u8::from(body.is_some()) << 6);
        row.extend(operation.to_le_bytes());
        row.extend(2_i32.to_le_bytes());
        for text in [id, body].into_iter().flatten() {
            row.push(u8::try_from(text.len()).unwrap());
            row.extend(text.as_bytes());
        }
        out.extend(b"\x81\xf1\xd8\xff\x7f");
        out.extend(u32::try_from(row.len()).unwrap().to_le_bytes());
        out.extend(crc32fast::hash(&row).to_le_bytes());
        out.extend(row);
    }
    out
}

#[tokio::test]
async fn a_binary_batch_gets_a_binary_answer() {
    let server = start().await.with_container().await;
    let body = hybrid_row(&[
        (0, None, Some(r#"{"id":"1","pk":"a"}"#)),
        (2, Some("1"), None),
        (20, None, Some(r#"{"id":"2","pk":"a"}"#)),
    ]);
    let reply = server.send("POST", DOCS, &[KEY, BATCH, ATOMIC], body).await.expect(200);
    assert!(reply.body.starts_with(b"\x81\xf0\xd8\xff\x7f\x01\x0a\0\0\0\x81\xf1\xd8\xff\x7f"));
    // Every result row opens with its schema, presence bits and status.
    let count = |status: u8| {
        let row = [0x81, 0x71, 0x54, 0xe1, 0x7f, 0x0f, status, 0, 0, 0];
        reply.body.windows(row.len()).filter(|window| *window == row).count()
    };
    assert_eq!((count(201), count(200)), (2, 1));
    let failing = hybrid_row(&[(4, Some("9"), None), (2, Some("1"), None)]);
    let reply = server.send("POST", DOCS, &[KEY, BATCH, ATOMIC], failing).await.expect(207);
    assert_eq!(reply.body.first(), Some(&0x81));
    let mut broken = hybrid_row(&[(2, Some("1"), None)]);
    broken.pop();
    let reply = server.send("POST", DOCS, &[KEY, BATCH, ATOMIC], broken).await;
    reply.expect_error(400, 0, "not valid HybridRow");
}
