//! A server in memory that fuzz targets throw requests at, and documents that they query.

pub mod asked;

use std::sync::Arc;

use bytes::Bytes;
use db::{CountingIds, Db, ManualClock};
use gateway::{Certificate, Config, Consistency, EMULATOR_KEY, Gateway, Key, Keys, Origins, Scheme};
use hyper::Request;
use storage::Embedded;

/// The server's clock stands still, so that signatures stay valid.
const NOW_S: u64 = 1_767_225_600;

/// A server with one container, and one document in it.
pub struct Target {
    runtime: tokio::runtime::Runtime,
    gateway: Gateway<Embedded>,
    key: Key,
    date: String,
}

/// What came back.
pub struct Answer {
    pub status: u16,
    pub body: Bytes,
}

pub const CONTAINER: &str = "dbs/d/colls/c";
pub const DOCUMENT: &str = "dbs/d/colls/c/docs/x";
pub const STORED: &str = r#"{"id":"x","pk":"a","n":1,"list":[1,2,{"deep":null}],"map":{"k":"v"}}"#;

impl Target {
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let key = Key::parse(EMULATOR_KEY).unwrap();
        let gateway = runtime.block_on(async {
            let clock = Arc::new(ManualClock::at_ms(NOW_S * 1_000));
            let store = Arc::new(Embedded::in_memory());
            let db = Db::open(store, clock, &CountingIds::default()).await.unwrap();
            let config = Config {
                keys: Keys::single(key.clone()),
                public_host: None,
                consistency: Consistency::Session,
                strict: true,
                throttle: false,
                client_merges: false,
                strict_ids: false,
                cors: Origins::None,
                connections_max: 1,
                accept_test_tokens: true,
                certificate: Certificate::Own(None),
            };
            Gateway::new(db, config).unwrap()
        });
        let since = std::time::Duration::from_secs(NOW_S);
        let date = httpdate::fmt_http_date(std::time::UNIX_EPOCH + since);
        let target = Self { runtime, gateway, key, date };
        target.must("POST", "dbs", "", "dbs", &[], br#"{"id":"d"}"#);
        let container = br#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1}"#;
        target.must("POST", "colls", "dbs/d", "dbs/d/colls", &[], container);
        let key = [("x-ms-documentdb-partitionkey", &br#"["a"]"#[..])];
        let documents = format!("{CONTAINER}/docs");
        target.must("POST", "docs", CONTAINER, &documents, &key, STORED.as_bytes());
        target
    }

    fn must(&self, method: &str, kind: &str, link: &str, path: &str, headers: &[(&str, &[u8])], body: &[u8]) {
        let answer = self.send(method, kind, link, path, headers, body).unwrap();
        assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
    }

    /// Sends a signed request; nothing if a header cannot be sent at all.
    pub fn send(
        &self,
        method: &str,
        kind: &str,
        link: &str,
        path: &str,
        headers: &[(&str, &[u8])],
        body: &[u8],
    ) -> Option<Answer> {
        let payload =
            format!("{}\n{kind}\n{link}\n{}\n\n", method.to_lowercase(), self.date.to_lowercase());
        let signature = self.key.sign(payload.as_bytes());
        let authorization = format!("type=master&ver=1.0&sig={signature}");
        let mut all: Vec<(&str, &[u8])> = vec![("authorization", authorization.as_bytes())];
        all.extend_from_slice(headers);
        self.send_as(method, path, &all, body)
    }

    /// Sends a request with just these headers.
    pub fn send_as(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &[u8])],
        body: &[u8],
    ) -> Option<Answer> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/{path}"))
            .header("host", "localhost")
            .header("x-ms-version", "2020-07-15")
            .header("x-ms-date", &self.date);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Bytes::copy_from_slice(body)).ok()?;
        let answer = self.runtime.block_on(self.gateway.respond(request, Scheme::Http));
        Some(Answer { status: answer.status().as_u16(), body: answer.into_body() })
    }
}

impl Default for Target {
    fn default() -> Self {
        Self::new()
    }
}

impl Answer {
    /// A fault of the server is a finding, and so is an error that does not say what is wrong.
    pub fn check(&self) {
        let text = String::from_utf8_lossy(&self.body);
        assert!(self.status < 500, "{}: {text}", self.status);
        if self.status >= 400 {
            let error = value::Value::parse(&self.body).expect("errors are JSON");
            assert!(error.get("message").is_some(), "{text}");
        }
    }
}
