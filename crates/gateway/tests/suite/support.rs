//! A server without a socket, and a client that signs as SDKs do.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use db::{CountingIds, Db, ManualClock};
use gateway::{
    Certificate, Config, Consistency, EMULATOR_KEY, Gateway, Key, Keys, Origins, Scheme,
};
use hyper::{HeaderMap, Request, Response};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use storage::Embedded;
use value::Value;

/// Thu, 27 Apr 2017 00:51:12 GMT.
pub(crate) const NOW_MS: u64 = 1_493_254_272_000;
pub(crate) const DATE: &str = "Thu, 27 Apr 2017 00:51:12 GMT";

pub(crate) struct Server {
    pub gateway: Arc<Gateway<Embedded>>,
    pub db: Arc<Db<Embedded>>,
    pub clock: Arc<ManualClock>,
}

pub(crate) fn config() -> Config {
    Config {
        keys: Keys::single(Key::parse(EMULATOR_KEY).unwrap()),
        public_host: None,
        consistency: Consistency::Session,
        strict: false,
        throttle: false,
        client_merges: false,
        strict_ids: false,
        cors: Origins::Any,
        connections_max: 16,
        accept_test_tokens: false,
        certificate: Certificate::Own(None),
    }
}

pub(crate) async fn start() -> Server {
    start_with(config()).await
}

pub(crate) async fn start_with(config: Config) -> Server {
    let clock = Arc::new(ManualClock::at_ms(NOW_MS));
    let store = Arc::new(Embedded::in_memory());
    let db = Db::open(store, clock.clone(), &CountingIds::default()).await.unwrap();
    let gateway = Arc::new(Gateway::new(db.clone(), config).unwrap());
    Server { gateway, db, clock }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        Value::parse(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.json().get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{:?}", self.body);
        self
    }

    /// An error is JSON with code and message, and says its sub-status.
    #[track_caller]
    pub(crate) fn expect_error(self, status: u16, substatus: u32, message: &str) -> Self {
        let reply = self.expect(status);
        assert_eq!(reply.header("content-type"), "application/json");
        assert_eq!(reply.header("x-ms-substatus").parse().unwrap_or(0), substatus);
        assert!(!reply.text("code").is_empty());
        assert!(reply.text("message").contains(message), "{}", reply.text("message"));
        reply
    }
}

pub(crate) type Headers<'a> = &'a [(&'a str, &'a str)];

impl Server {
    /// Sends a request signed with the account's key.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: Headers<'_>,
        body: impl Into<Bytes>,
    ) -> Reply {
        let authorization = sign(EMULATOR_KEY, method, path, DATE);
        let signed = [("authorization", authorization.as_str()), ("x-ms-date", DATE)];
        self.send_as(&signed, method, path, headers, body).await
    }

    /// Sends a request with an authorization of its own.
    pub(crate) async fn send_as(
        &self,
        authorization: Headers<'_>,
        method: &str,
        path: &str,
        headers: Headers<'_>,
        body: impl Into<Bytes>,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        for (name, value) in authorization.iter().chain(headers) {
            request = request.header(*name, *value);
        }
        let request = request.body(body.into()).unwrap();
        reply(self.gateway.respond(request, Scheme::Http).await)
    }

    pub(crate) async fn get(&self, path: &str, headers: Headers<'_>) -> Reply {
        self.send("GET", path, headers, "").await
    }

    pub(crate) async fn post(&self, path: &str, headers: Headers<'_>, body: &str) -> Reply {
        self.send("POST", path, headers, body.to_owned()).await
    }

    /// Creates a database `d` with a container `c`, partitioned by `/pk`.
    pub(crate) async fn with_container(self) -> Self {
        self.post("/dbs", &[], r#"{"id":"d"}"#).await.expect(201);
        let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
        self.post("/dbs/d/colls", &[], container).await.expect(201);
        self
    }

    /// How many documents there are.
    pub(crate) fn documents(&self) -> u64 {
        self.db.stats().unwrap().documents
    }
}

pub(crate) fn reply(response: Response<Bytes>) -> Reply {
    let (head, body) = response.into_parts();
    Reply { status: head.status.as_u16(), headers: head.headers, body }
}

/// Signs as an SDK does: type and link come from the decoded path.
pub(crate) fn sign(key: &str, method: &str, path: &str, date: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let segments: Vec<String> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
        .collect();
    let (kind, link) = match segments.as_slice() {
        [] => (String::new(), String::new()),
        [operations, dtc] if operations == "operations" && dtc == "dtc" => {
            ("distributedtransactionbatch".to_owned(), String::new())
        }
        [rest @ .., operations, _] if operations == "operations" => {
            ("colls".to_owned(), rest.join("/"))
        }
        all if all.len() % 2 == 1 => (all[all.len() - 1].clone(), all[..all.len() - 1].join("/")),
        all => (all[all.len() - 2].clone(), all.join("/")),
    };
    let payload = format!("{}\n{kind}\n{link}\n{}\n\n", method.to_lowercase(), date.to_lowercase());
    let signature = Key::parse(key).unwrap().sign(payload.as_bytes());
    let plain = format!("type=master&ver=1.0&sig={signature}");
    utf8_percent_encode(&plain, NON_ALPHANUMERIC).to_string()
}

/// A JSON token whose signature is the key's text, as the emulator's tests make it.
pub(crate) fn test_token(key: &str) -> String {
    let encode = |text: &str| {
        STANDARD.encode(text).trim_end_matches('=').replace('+', "-").replace('/', "_")
    };
    let claims = format!("{{\"nbf\":{},\"exp\":{}}}", NOW_MS / 1_000 - 5, NOW_MS / 1_000 + 60);
    format!("type=aad&ver=1.0&sig={}.{}.{}", encode("{}"), encode(&claims), encode(key))
}
