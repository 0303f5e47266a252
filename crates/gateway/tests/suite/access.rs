//! Who may do what.

use gateway::{Consistency, EMULATOR_KEY, Key};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::support::{DATE, Headers, Server, config, sign, start, start_with, test_token};

const DOCS: &str = "/dbs/d/colls/c/docs";
const ONE: &str = r#"{"id":"1","pk":"a"}"#;
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
const OTHER_KEY: &str = "b3RoZXIga2V5IG90aGVyIGtleSBvdGhlciBrZXk=";

#[tokio::test]
async fn requests_without_a_good_signature_are_refused() {
    let server = start().await.with_container().await;
    let check = async |authorization: Headers<'_>, status: u16, substatus: u32, message: &str| {
        let reply = server.send_as(authorization, "POST", DOCS, &[KEY], ONE).await;
        reply.expect_error(status, substatus, message);
        assert_eq!(server.documents(), 0);
    };
    let dated = ("x-ms-date", DATE);
    check(&[dated], 401, 5000, "authorization is missing").await;
    check(&[("authorization", "nonsense"), dated], 401, 5001, "malformed").await;
    let other = sign(OTHER_KEY, "POST", DOCS, DATE);
    check(&[("authorization", &other), dated], 401, 0, r"'post\ndocs\ndbs/d/colls/c\n").await;
    let elsewhere = sign(EMULATOR_KEY, "POST", "/dbs/d/colls/x/docs", DATE);
    check(&[("authorization", &elsewhere), dated], 401, 0, "payload").await;
    let old = "Thu, 27 Apr 2017 00:35:12 GMT";
    let signed_old = sign(EMULATOR_KEY, "POST", DOCS, old);
    let expired = [("authorization", signed_old.as_str()), ("x-ms-date", old)];
    check(&expired, 403, 0, "not valid at the current time").await;
    let good = sign(EMULATOR_KEY, "POST", DOCS, DATE);
    check(&[("authorization", &good), ("x-ms-date", old)], 401, 0, "payload").await;
    check(&[("authorization", &test_token(EMULATOR_KEY)), dated], 401, 0, "not enabled").await;
}

#[tokio::test]
async fn the_account_is_open_to_probes_only() {
    let server = start().await;
    let reply = server.send_as(&[], "GET", "/", &[], "").await.expect(200);
    assert!(reply.text("queryEngineConfiguration").contains("maxJoinsPerSqlQuery"));
    let client = [("x-ms-version", "2020-07-15"), ("x-ms-date", DATE)];
    server.send_as(&client, "GET", "/", &[], "").await.expect_error(401, 5000, "missing");
    let wrong = sign(OTHER_KEY, "GET", "/", DATE);
    let wrong = [("authorization", wrong.as_str()), ("x-ms-date", DATE)];
    server.send_as(&wrong, "GET", "/", &[], "").await.expect(401);
    server.get("/", &[("x-ms-consistency-level", "Strong")]).await.expect(200);
    let strict = start_with(gateway::Config { strict: true, ..config() }).await;
    strict.send_as(&[], "GET", "/", &[], "").await.expect(401);
}

/// Requests may ask for less than the account announces, not for more.
#[tokio::test]
async fn the_account_announces_a_consistency_level() {
    for (consistency, policy, refused) in [
        (Consistency::Strong, r#"{"defaultConsistencyLevel":"Strong"}"#, &[][..]),
        (
            Consistency::BoundedStaleness,
            r#"{"defaultConsistencyLevel":"BoundedStaleness","maxStalenessPrefix":10,"maxIntervalInSeconds":5}"#,
            &["Strong"],
        ),
        (
            Consistency::Session,
            r#"{"defaultConsistencyLevel":"Session"}"#,
            &["Strong", "BoundedStaleness"],
        ),
    ] {
        let server = start_with(gateway::Config { consistency, ..config() }).await;
        let server = server.with_container().await;
        let account = server.get("/", &[]).await.expect(200).json();
        assert_eq!(account.get("userConsistencyPolicy").unwrap().to_text(), policy);
        for level in Consistency::ALL.map(Consistency::name) {
            let reply = server.get(DOCS, &[("x-ms-consistency-level", level)]).await;
            match refused.contains(&level) {
                true => drop(reply.expect_error(400, 0, "not stronger than the service")),
                false => drop(reply.expect(200)),
            }
        }
    }
}

#[tokio::test]
async fn read_only_keys_only_read() {
    let mut config = config();
    config.keys.secondary_read_only = Some(Key::parse(OTHER_KEY).unwrap());
    let server = start_with(config).await.with_container().await;
    let send = async |method: &str, path: &str, headers: Headers<'_>, body: &'static str| {
        let authorization = sign(OTHER_KEY, method, path, DATE);
        let signed = [("authorization", authorization.as_str()), ("x-ms-date", DATE)];
        server.send_as(&signed, method, path, headers, body).await
    };
    send("GET", "/dbs", &[], "").await.expect(200);
    send("POST", DOCS, &[KEY], ONE).await.expect_error(403, 0, "Insufficient permissions");
    let query = ("x-ms-documentdb-isquery", "True");
    send("POST", DOCS, &[KEY, query], r#"{"query":"SELECT * FROM c"}"#).await.expect(200);
    assert_eq!(server.documents(), 0);
}

#[tokio::test]
async fn test_tokens_open_documents_but_no_control() {
    let server = start_with(gateway::Config { accept_test_tokens: true, ..config() }).await;
    let server = server.with_container().await;
    let token = test_token(EMULATOR_KEY);
    let aad = [("authorization", token.as_str())];
    server.send_as(&aad, "POST", DOCS, &[KEY], ONE).await.expect(201);
    server.send_as(&aad, "GET", "/dbs/d", &[], "").await.expect(200);
    let refused = server.send_as(&aad, "POST", "/dbs", &[], r#"{"id":"x"}"#).await;
    refused.expect_error(403, 5300, "[POST /dbs] cannot be authorized");
}

/// Makes a permission and gives its token as an authorization header.
async fn token(server: &Server, user: &str, permission: &str) -> String {
    server.post("/dbs/d/users", &[], &format!(r#"{{"id":"{user}"}}"#)).await.expect(201);
    let path = format!("/dbs/d/users/{user}/permissions");
    let created = server.post(&path, &[], permission).await.expect(201);
    utf8_percent_encode(&created.text("_token"), NON_ALPHANUMERIC).to_string()
}

#[tokio::test]
async fn a_read_token_reads_one_container() {
    let server = start().await.with_container().await;
    server.post(DOCS, &[KEY], ONE).await.expect(201);
    let read = r#"{"id":"p","permissionMode":"Read","resource":"dbs/d/colls/c"}"#;
    let token = token(&server, "reader", read).await;
    let with = [("authorization", token.as_str())];
    let ask = async |method: &str, path: &str| {
        server.send_as(&with, method, path, &[KEY], "").await.status
    };
    assert_eq!(ask("GET", "/").await, 200);
    assert_eq!(ask("GET", "/dbs/d/colls/c").await, 200);
    assert_eq!(ask("GET", "/dbs/d/colls/c/pkranges").await, 200);
    assert_eq!(ask("GET", DOCS).await, 200);
    assert_eq!(ask("GET", "/dbs/d/colls/c/docs/1").await, 200);
    assert_eq!(ask("DELETE", "/dbs/d/colls/c/docs/1").await, 403);
    assert_eq!(ask("DELETE", "/dbs/d/colls/c/docs/missing").await, 403);
    assert_eq!(ask("DELETE", "/dbs/d/colls/c").await, 403);
    assert_eq!(ask("GET", "/dbs").await, 403);
    assert_eq!(ask("GET", "/dbs/d/users").await, 403);
    server.send_as(&with, "POST", DOCS, &[KEY], ONE).await.expect_error(403, 0, "Insufficient");
    server.clock.advance_ms(3_601_000);
    let late = server.send_as(&with, "GET", DOCS, &[], "").await;
    late.expect_error(403, 0, "not valid at the current time");
}

#[tokio::test]
async fn a_token_for_one_key_opens_one_partition() {
    let server = start().await.with_container().await;
    let all = r#"{"id":"p","permissionMode":"All","resource":"dbs/d/colls/c",
        "resourcePartitionKey":["a"]}"#;
    let token = token(&server, "writer", all).await;
    let with = [("authorization", token.as_str())];
    server.send_as(&with, "POST", DOCS, &[KEY], ONE).await.expect(201);
    let other = ("x-ms-documentdb-partitionkey", r#"["b"]"#);
    let body = r#"{"id":"1","pk":"b"}"#;
    server.send_as(&with, "POST", DOCS, &[other], body).await.expect(403);
    server.send_as(&with, "GET", DOCS, &[], "").await.expect(403);
    server.send_as(&with, "GET", "/dbs/d/colls/c", &[], "").await.expect(200);
    server.send_as(&with, "DELETE", "/dbs/d/colls/c/docs/1", &[KEY], "").await.expect(204);
}

#[tokio::test]
async fn a_tampered_token_opens_nothing() {
    let server = start().await.with_container().await;
    let read = r#"{"id":"p","permissionMode":"Read","resource":"dbs/d/colls/c"}"#;
    let token = token(&server, "reader", read).await;
    for at in (0..token.len()).step_by(7) {
        let mut bytes = token.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let tampered = String::from_utf8(bytes).unwrap();
        let with = [("authorization", tampered.as_str())];
        let status = server.send_as(&with, "GET", DOCS, &[], "").await.status;
        assert_eq!(status, 401, "{tampered}");
    }
}
