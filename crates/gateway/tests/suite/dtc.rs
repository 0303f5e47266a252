//! Transactions across partitions and containers, as the preview clients send and read them.

use gateway::Key;
use value::Value;

use crate::support::{DATE, Reply, Server, config, sign, start, start_with};

const PATH: &str = "/operations/dtc";
const COMMIT: (&str, &str) = ("x-ms-cosmos-operation-type", "CommitDistributedTransaction");
const READ: (&str, &str) = ("x-ms-cosmos-operation-type", "Read");
const KIND: (&str, &str) = ("x-ms-cosmos-resource-type", "DistributedTransactionBatch");
const TOKEN: (&str, &str) =
    ("x-ms-cosmos-idempotency-token", "3F2504E0-4F89-41D3-9A0C-0305E82C3301");
const OTHER_TOKEN: (&str, &str) =
    ("x-ms-cosmos-idempotency-token", "00000000-4f89-41d3-9a0c-0305e82c3302");

/// Operations with what all of them have.
fn body(operations: &[(&str, &str, &str, &str)]) -> String {
    let operations = operations.iter().enumerate().map(|(index, (container, key, id, rest))| {
        format!(
            r#"{{"index":{index},"databaseName":"d","collectionName":"{container}",
                "partitionKey":["{key}"],"id":"{id}","resourceType":"Document",{rest}}}"#
        )
    });
    format!(r#"{{"operations":[{}]}}"#, operations.collect::<Vec<_>>().join(","))
}

async fn server() -> Server {
    let server = start().await.with_container().await;
    let container = r#"{"id":"e","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    server.post("/dbs/d/colls", &[], container).await.expect(201);
    server
}

fn results(reply: &Reply) -> Vec<Value> {
    reply.json().get("operationResponses").unwrap().as_array().unwrap().to_vec()
}

fn statuses(reply: &Reply) -> Vec<(i64, i64)> {
    let number = |result: &Value, name: &str| result.get(name).unwrap().as_i64().unwrap();
    let status = |result| (number(result, "statusCode"), number(result, "subStatusCode"));
    results(reply).iter().map(status).collect()
}

const CREATE: &str = r#""operationType":"Create","resourceBody":{"id":"a","pk":"x","n":1}"#;
const UPSERT: &str = r#""operationType":"Upsert","resourceBody":{"id":"b","pk":"y"}"#;
const LOOK: &str = r#""operationType":"Read""#;

#[tokio::test]
async fn writes_are_committed_together() {
    let server = server().await;
    let both = body(&[("c", "x", "a", CREATE), ("e", "y", "b", UPSERT)]);
    let reply = server.post(PATH, &[COMMIT, KIND, TOKEN], &both).await.expect(200);
    assert_eq!(statuses(&reply), [(201, 0), (201, 0)]);
    assert_eq!(reply.json().get("isRetriable"), Some(&Value::from(false)));
    assert_eq!(reply.header("x-ms-cosmos-idempotency-token"), TOKEN.1.to_lowercase());
    let first = &results(&reply)[0];
    for name in ["Etag", "sessionToken", "partitionKeyRangeId"] {
        assert!(first.get(name).and_then(Value::as_str).is_some(), "{name}: {first}");
    }
    assert_eq!(first.get("index"), Some(&Value::from(0)));
    assert!(first.get("resourceBody").is_none());
    let charge: f64 = reply.header("x-ms-request-charge").parse().unwrap();
    assert!(charge > 10.0, "{charge}");
    let key = ("x-ms-documentdb-partitionkey", r#"["x"]"#);
    let read = server.get("/dbs/d/colls/c/docs/a", &[key]).await.expect(200);
    assert_eq!(Some(&Value::from(read.header("etag"))), first.get("Etag"));
    assert_eq!(Some(&Value::from(read.header("x-ms-session-token"))), first.get("sessionToken"));

    // Asked again, it is told again.
    let again = server.post(PATH, &[COMMIT, KIND, TOKEN], &both).await.expect(200);
    assert_eq!(again.body, reply.body);
    assert_eq!(server.documents(), 2);

    // Under another token it is another transaction, which finds the document there.
    let other = server.post(PATH, &[COMMIT, KIND, OTHER_TOKEN], &both).await.expect(452);
    assert_eq!(statuses(&other), [(409, 0), (453, 5415)]);
    assert!(results(&other)[0].get("message").is_some());
}

#[tokio::test]
async fn operations_may_come_in_any_order() {
    let server = server().await;
    let create = r#"{"index":1,"databaseName":"d","collectionName":"c","partitionKey":["x"],
        "id":"a","operationType":"Create","resourceBody":{"id":"a","pk":"x","n":1}}"#;
    let change = r#"{"index":0,"databaseName":"d","collectionName":"e","partitionKey":["x"],
        "id":"a","operationType":"Delete"}"#;
    let both = format!(r#"{{"operations":[{create},{change}]}}"#);
    let reply = server.post(PATH, &[COMMIT, TOKEN], &both).await.expect(452);
    assert_eq!(statuses(&reply), [(404, 0), (453, 5415)]);
    let patch = r#""operationType":"Patch","resourceBody":{"condition":"from c where c.n = 1",
        "operations":[{"op":"incr","path":"/n","value":1}]}"#;
    let made = body(&[("c", "x", "a", CREATE), ("c", "x", "a", patch)]);
    server.post(PATH, &[COMMIT, TOKEN], &made).await.expect(200);
    let unmet = body(&[("c", "x", "a", patch)]);
    let reply = server.post(PATH, &[COMMIT, OTHER_TOKEN], &unmet).await.expect(452);
    assert_eq!(statuses(&reply), [(412, 1110)]);
}

#[tokio::test]
async fn reads_have_the_status_of_what_was_read() {
    let server = server().await;
    let both = body(&[("c", "x", "a", CREATE), ("e", "y", "b", UPSERT)]);
    let written = server.post(PATH, &[COMMIT, TOKEN], &both).await.expect(200);
    let etag = results(&written)[0].get("Etag").unwrap().to_text();
    let known = format!(r#"{LOOK},"ifNoneMatch":{etag}"#);

    let all = body(&[("c", "x", "a", LOOK), ("e", "y", "b", LOOK)]);
    let reply = server.post(PATH, &[READ, KIND, TOKEN], &all).await.expect(200);
    assert_eq!(statuses(&reply), [(200, 0), (200, 0)]);
    let document = results(&reply)[0].get("resourceBody").unwrap().clone();
    assert_eq!(document.get("n"), Some(&Value::from(1)));
    assert_eq!(reply.header("x-ms-cosmos-idempotency-token"), TOKEN.1);

    let unchanged = body(&[("c", "x", "a", &known)]);
    let reply = server.post(PATH, &[READ], &unchanged).await.expect(304);
    assert!(reply.body.is_empty());
    let partly = body(&[("c", "x", "a", &known), ("e", "y", "b", LOOK)]);
    let reply = server.post(PATH, &[READ], &partly).await.expect(207);
    assert_eq!(statuses(&reply), [(304, 0), (200, 0)]);

    let missing = body(&[("c", "x", "a", LOOK), ("e", "y", "none", LOOK)]);
    let reply = server.post(PATH, &[READ], &missing).await.expect(404);
    assert_eq!(statuses(&reply), [(424, 0), (404, 0)]);
    assert!(results(&reply)[0].get("resourceBody").is_none());
    let unmatched = format!(r#"{LOOK},"ifMatch":"no""#);
    let differently = body(&[("c", "x", "a", &unmatched), ("e", "y", "none", LOOK)]);
    let reply = server.post(PATH, &[READ], &differently).await.expect(207);
    assert_eq!(statuses(&reply), [(412, 0), (404, 0)]);
}

#[tokio::test]
async fn what_is_no_transaction_is_refused() {
    let server = server().await;
    let one = body(&[("c", "x", "a", CREATE)]);
    let check = async |headers: &[(&str, &str)], body: &str, substatus: u32, part: &str| {
        let reply = server.post(PATH, headers, body).await;
        reply.expect_error(400, substatus, part);
    };
    let commit = [COMMIT, KIND, TOKEN];
    check(&[KIND, TOKEN], &one, 0, "x-ms-cosmos-operation-type").await;
    check(&[("x-ms-cosmos-operation-type", "Abort"), TOKEN], &one, 0, "Abort").await;
    check(&[COMMIT, ("x-ms-cosmos-resource-type", "Document")], &one, 0, "Document").await;
    check(&[COMMIT, KIND], &one, 5408, "needs x-ms-cosmos-idempotency-token").await;
    for token in
        ["", "1", "3f2504e0-4f89-41d3-9a0c-0305e82c330g", "3f2504e04f8941d39a0c0305e82c3301"]
    {
        let headers = [COMMIT, ("x-ms-cosmos-idempotency-token", token)];
        check(&headers, &one, 5408, "x-ms-cosmos-idempotency-token").await;
    }
    for text in ["", "[", "[]", "{}", r#"{"operations":{}}"#] {
        check(&commit, text, 5405, "").await;
    }
    check(&commit, r#"{"operations":[]}"#, 5410, "no operations").await;
    check(&commit, r#"{"operations":[7]}"#, 5410, "index").await;
    check(&commit, &body(&[("c", "x", "a", LOOK)]), 5410, "all be reads").await;
    check(&[READ], &one, 5410, "all be reads").await;
    check(&commit, &one.replace("\"index\":0", "\"index\":1"), 5410, "index").await;
    check(&commit, &one.replace("Document", "Trigger"), 5410, "Trigger").await;
    check(&commit, &one.replace("\"id\":\"a\",\"res", "\"res"), 5410, "'id'").await;
    check(&commit, &one.replace("[\"x\"]", "null"), 5410, "partitionKey").await;
    check(&commit, &one.replace("Create", "Execute"), 5410, "Execute").await;
    let many = vec![("c", "y", "b", UPSERT); 101];
    check(&commit, &body(&many), 5407, "101 operations").await;
    server.get(PATH, &[]).await.expect_error(405, 0, "GET");
    assert_eq!(server.documents(), 0);
}

#[tokio::test]
async fn a_key_that_only_reads_reads_transactions() {
    let reader = "c2Vjb25kYXJ5LXJlYWRvbmx5LWtleS1mb3ItdGVzdHMtb25seQ==";
    let mut config = config();
    config.keys.secondary_read_only = Some(Key::parse(reader).unwrap());
    let server = start_with(config).await.with_container().await;
    let authorization = sign(reader, "POST", PATH, DATE);
    let signed = [("authorization", authorization.as_str()), ("x-ms-date", DATE)];
    let one = body(&[("c", "x", "a", CREATE)]);
    let refused = server.send_as(&signed, "POST", PATH, &[COMMIT, TOKEN], one.clone()).await;
    refused.expect_error(403, 0, "Insufficient permissions");
    server.post(PATH, &[COMMIT, TOKEN], &one).await.expect(200);
    let look = body(&[("c", "x", "a", LOOK)]);
    server.send_as(&signed, "POST", PATH, &[READ], look).await.expect(200);
}
