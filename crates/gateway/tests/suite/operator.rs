//! Pages for operators, and what browsers need.

use crate::support::{Server, start};

async fn page(server: &Server, path: &str) -> crate::support::Reply {
    server.send_as(&[], "GET", path, &[], "").await.expect(200)
}

#[tokio::test]
async fn pages_need_no_signature() {
    let server = start().await.with_container().await;
    for path in ["/alive", "/ready", "/_explorer/index.html"] {
        page(&server, path).await;
    }
    let certificate = page(&server, "/_explorer/emulator.pem").await;
    assert_eq!(certificate.body, server.gateway.trust_pem());
    assert!(certificate.body.starts_with(b"-----BEGIN CERTIFICATE-----"));
    let status = page(&server, "/status").await;
    assert_eq!(status.json().get("containers"), Some(&value::Value::from(1)));
    let metrics = page(&server, "/metrics").await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    assert!(metrics.contains("orrery_requests_total{kind=\"database\",status=\"201\"} 1\n"));
    assert!(metrics.contains("orrery_containers 1\n"));
    server.send_as(&[], "POST", "/metrics", &[], "").await.expect_error(405, 0, "POST");
}

#[tokio::test]
async fn the_account_names_the_endpoint_that_was_used() {
    let server = start().await;
    let forwarded = [("x-forwarded-proto", "https")];
    let account = server.send_as(&[], "GET", "/", &forwarded, "").await.expect(200);
    let locations = account.json().get("writableLocations").unwrap().to_text();
    assert!(locations.contains("\"https://localhost/\""), "{locations}");
    assert!(account.json().get("thinClientReadableLocations").is_none());
}

#[tokio::test]
async fn browsers_may_ask_first() {
    let server = start().await;
    let asked = [
        ("origin", "https://page.test"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,x-ms-date"),
    ];
    let allowed = server.send_as(&[], "OPTIONS", "/dbs", &asked, "").await.expect(204);
    assert_eq!(allowed.header("access-control-allow-origin"), "*");
    assert_eq!(allowed.header("access-control-allow-headers"), "authorization,x-ms-date");
    let seen = server.get("/dbs", &asked[..1]).await.expect(200);
    assert!(seen.header("access-control-expose-headers").contains("x-ms-request-charge"));
}
