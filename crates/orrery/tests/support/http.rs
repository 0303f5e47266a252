//! A server on a free port, and a client that speaks to it as SDKs do.
//!
//! The client shares no code with the gateway but the signature of a key: paths, headers and bodies
//! are written out here as the protocol has them.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use db::{ChangeMode, ChangeRequest, ChangeStart, Db, Page, QueryText};
use gateway::{Certificate, Config, Consistency, EMULATOR_KEY, Gateway, Key, Keys, Origins};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Method, StatusCode};
use hyper_util::rt::TokioIo;
use storage::Embedded;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use value::{Object, PartitionKey, ScriptKind, Value, write_string};

use crate::support::account::{
    Answer, DATABASE, Operation, OperationAnswer, Refusal, Request, Verb, sentence, text,
    version_text,
};

/// One connection to a server that ends with the test.
pub(crate) struct Client {
    connection: Mutex<SendRequest<Full<Bytes>>>,
    host: String,
    key: Key,
}

/// A request on its way to being bytes.
struct Call {
    method: Method,
    /// Segments of the path, not yet encoded.
    path: Vec<String>,
    /// What the signature names: the type, and how many segments of the path lead to it.
    kind: &'static str,
    link_segments: usize,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Client {
    /// Starts a server and connects to it.
    pub(crate) async fn serve(db: Arc<Db<Embedded>>) -> Self {
        let key = Key::parse(EMULATOR_KEY).expect("the emulator's key is a key");
        let config = Config {
            keys: Keys::single(key.clone()),
            public_host: None,
            consistency: Consistency::Session,
            strict: true,
            throttle: false,
            client_merges: false,
            strict_ids: false,
            cors: Origins::None,
            connections_max: 8,
            accept_test_tokens: false,
            certificate: Certificate::Own(None),
        };
        let gateway = Gateway::new(db, config).expect("a certificate can be made");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("the listener is bound");
        tokio::spawn(Arc::new(gateway).serve(listener, std::future::pending()));
        let stream = TcpStream::connect(address).await.expect("the server listens");
        let (connection, driver) =
            http1::handshake(TokioIo::new(stream)).await.expect("the server speaks HTTP");
        tokio::spawn(driver);
        Self { connection: Mutex::new(connection), host: address.to_string(), key }
    }

    /// Sends a request and reads the answer.
    pub(crate) async fn send(&self, now_s: u64, request: &Request) -> Result<Answer, Refusal> {
        let (status, headers, body) = self.exchange(now_s, call(request)).await;
        let header = |name: &str| {
            let value = headers.get(name)?;
            Some(value.to_str().expect("the header is text").to_owned())
        };
        let charge_ru = header("x-ms-request-charge")
            .map_or(0.0, |text| text.parse().expect("the request charge is a number"));
        if status.as_u16() >= 400 {
            let substatus = header("x-ms-substatus")
                .map_or(0, |text| text.parse().expect("the sub-status is a number"));
            return Err(refusal(status.as_u16(), substatus, charge_ru, &body));
        }
        let answer = Answer { status: status.as_u16(), charge_ru, ..Answer::default() };
        Ok(match request {
            Request::One { .. } => {
                let body = (!body.is_empty()).then(|| text(&body));
                Answer { etag: header("etag"), body, ..answer }
            }
            Request::Call { .. } => {
                let body = (!body.is_empty()).then(|| text(&body));
                let log = header("x-ms-documentdb-script-log-results").map(|log| decode(&log));
                Answer { body, log, ..answer }
            }
            Request::Batch { .. } | Request::Bulk { .. } => {
                Answer { results: results(&body), ..answer }
            }
            Request::Feed { .. } => {
                let rows = rows(&body);
                assert_eq!(header("x-ms-item-count"), Some(rows.len().to_string()));
                Answer { rows, continuation: header("x-ms-continuation"), ..answer }
            }
            Request::Changes { request, .. } => {
                let rows = if answer.status == 304 { Vec::new() } else { rows(&body) };
                assert_eq!(header("x-ms-item-count"), Some(rows.len().to_string()));
                let is_plain = request.mode == ChangeMode::LatestVersion;
                let rows = if is_plain { rows } else { rows.iter().map(version).collect() };
                Answer { rows, continuation: header("etag"), ..answer }
            }
            Request::Query { .. } => {
                let rows = rows(&body);
                assert_eq!(header("x-ms-item-count"), Some(rows.len().to_string()));
                let (continuation, session) =
                    (header("x-ms-continuation"), header("x-ms-session-token"));
                Answer { rows, continuation, session, ..answer }
            }
            _ => answer,
        })
    }

    async fn exchange(&self, now_s: u64, call: Call) -> (StatusCode, HeaderMap, Bytes) {
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(now_s));
        let link = call.path[..call.link_segments].join("/");
        // Names keep their case in the signature, everything else is in small letters.
        let (method, small_date) = (call.method.as_str().to_lowercase(), date.to_lowercase());
        let payload = format!("{method}\n{}\n{link}\n{small_date}\n\n", call.kind);
        let signature = self.key.sign(payload.as_bytes());
        let authorization = encode(&format!("type=master&ver=1.0&sig={signature}"));
        let path: Vec<String> = call.path.iter().map(|segment| encode(segment)).collect();
        let mut request = hyper::Request::builder()
            .method(call.method)
            .uri(format!("/{}", path.join("/")))
            .header("host", &self.host)
            .header("x-ms-version", "2020-07-15")
            .header("x-ms-date", date)
            .header("authorization", authorization);
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(call.body))).expect("headers are valid");
        let mut connection = self.connection.lock().await;
        connection.ready().await.expect("the connection is open");
        let response = connection.send_request(request).await.expect("the server answers");
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("the answer arrives whole").to_bytes();
        (head.status, head.headers, body)
    }
}

fn call(request: &Request) -> Call {
    match request {
        Request::CreateContainer { body, throughput } => {
            let throughput = throughput.map(|value| ("x-ms-offer-throughput", value.to_string()));
            let mut call = Call::new(Method::POST, "colls", &["dbs", DATABASE, "colls"], 2);
            call.headers.extend(throughput);
            call.with_body(Value::from(body.clone()).to_text())
        }
        Request::ReplaceContainer { container, body } => {
            Call::new(Method::PUT, "colls", &["dbs", DATABASE, "colls", container], 4)
                .with_body(Value::from(body.clone()).to_text())
        }
        Request::DeleteContainer { container } => {
            Call::new(Method::DELETE, "colls", &["dbs", DATABASE, "colls", container], 4)
        }
        Request::One { container, operation } => one(container, operation),
        Request::Batch { container, key, operations } => {
            Call::on_documents(Method::POST, container)
                .with_key(Some(key))
                .with("x-ms-cosmos-is-batch-request", "True")
                .with("x-ms-cosmos-batch-atomic", "True")
                .with("x-ms-cosmos-batch-ordered", "True")
                .with_body(batch_body(operations))
        }
        Request::Bulk { container, operations, continue_on_error } => {
            Call::on_documents(Method::POST, container)
                .with("x-ms-cosmos-is-batch-request", "True")
                .with("x-ms-cosmos-batch-atomic", "False")
                .with("x-ms-cosmos-batch-continue-on-error", &continue_on_error.to_string())
                .with_body(batch_body(operations))
        }
        Request::Feed { container, key, page } => {
            Call::on_documents(Method::GET, container).with_key(key.as_ref()).with_page(page)
        }
        Request::Changes { container, key, request } => changes(container, key.as_ref(), request),
        Request::Query { container, query, key, page } => {
            Call::on_documents(Method::POST, container)
                .with("content-type", "application/query+json")
                .with("x-ms-documentdb-isquery", "True")
                .with("x-ms-documentdb-query-enablecrosspartition", "True")
                .with_key(key.as_ref())
                .with_page(page)
                .with_body(query_body(query))
        }
        Request::CreateScript { container, kind, body } => {
            let kind = match kind {
                ScriptKind::Procedure => "sprocs",
                ScriptKind::Trigger => "triggers",
                ScriptKind::Function => "udfs",
            };
            Call::new(Method::POST, kind, &["dbs", DATABASE, "colls", container, kind], 4)
                .with_body(Value::from(body.clone()).to_text())
        }
        Request::Call { container, call, key } => {
            let path = ["dbs", DATABASE, "colls", container, "sprocs", &call.procedure];
            Call::new(Method::POST, "sprocs", &path, 6)
                .with("x-ms-documentdb-script-enable-logging", &call.is_logging.to_string())
                .with_key(key.as_ref())
                .with_body(call.parameters.clone())
        }
        Request::DeletePartition { container, key } => {
            let path = ["dbs", DATABASE, "colls", container, "operations", "partitionkeydelete"];
            Call::new(Method::POST, "colls", &path, 4).with_key(key.as_ref())
        }
    }
}

fn changes(container: &str, key: Option<&PartitionKey>, request: &ChangeRequest) -> Call {
    let mut call = Call::on_documents(Method::GET, container).with_key(key);
    call = match request.mode {
        ChangeMode::LatestVersion => call.with("a-im", "Incremental Feed"),
        ChangeMode::AllVersions => call
            .with("a-im", "Full-Fidelity Feed")
            .with("x-ms-cosmos-changefeed-wire-format-version", "2021-09-15"),
    };
    call = match &request.start {
        ChangeStart::Beginning => call,
        ChangeStart::Now => call.with("if-none-match", "*"),
        ChangeStart::After(mark) => call.with("if-none-match", mark),
    };
    if let Some(second) = request.after_s {
        let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        call = call.with("if-modified-since", &date);
    }
    call.with_page(&Page { items_max: request.items_max, ..Page::default() })
}

/// A change where all versions are told, as scripts print it.
fn version(row: &String) -> String {
    let row = Value::parse(row.as_bytes()).expect("a change is JSON");
    let metadata = row.get("metadata").expect("a change has metadata");
    let is_expired = metadata.get("timeToLiveExpired").and_then(Value::as_bool);
    let kind = metadata.get("operationType").and_then(Value::as_str).expect("an operation");
    let kind = if is_expired == Some(true) { "expire" } else { kind };
    let current = row.get("current").filter(|current| current.get("id").is_some());
    version_text(kind, current.cloned(), row.get("previous").cloned())
}

fn one(container: &str, operation: &Operation) -> Call {
    let method = match operation.verb {
        Verb::Create | Verb::Upsert => Method::POST,
        Verb::Replace => Method::PUT,
        Verb::Patch => Method::PATCH,
        Verb::Delete => Method::DELETE,
        Verb::Read => Method::GET,
    };
    let mut call = match &operation.id {
        Some(id) => {
            Call::new(method, "docs", &["dbs", DATABASE, "colls", container, "docs", id], 6)
        }
        None => Call::on_documents(method, container),
    };
    if operation.verb == Verb::Upsert {
        call = call.with("x-ms-documentdb-is-upsert", "True");
    }
    let conditions = &operation.conditions;
    for (name, text) in [
        ("if-match", &conditions.if_match),
        ("if-none-match", &conditions.if_none_match),
        ("x-ms-documentdb-pre-trigger-include", &operation.pre),
        ("x-ms-documentdb-post-trigger-include", &operation.post),
    ] {
        if let Some(text) = text {
            call = call.with(name, text);
        }
    }
    call.with_key(operation.key.as_ref()).with_body(operation.body.clone().unwrap_or_default())
}

impl Call {
    fn new(method: Method, kind: &'static str, path: &[&str], link_segments: usize) -> Self {
        let path = path.iter().map(|segment| (*segment).to_owned()).collect();
        Self { method, path, kind, link_segments, headers: Vec::new(), body: String::new() }
    }

    fn on_documents(method: Method, container: &str) -> Self {
        Self::new(method, "docs", &["dbs", DATABASE, "colls", container, "docs"], 4)
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    fn with_key(self, key: Option<&PartitionKey>) -> Self {
        match key {
            Some(key) => self.with("x-ms-documentdb-partitionkey", &key.to_string()),
            None => self,
        }
    }

    fn with_page(mut self, page: &Page) -> Self {
        if let Some(items_max) = page.items_max {
            self = self.with("x-ms-max-item-count", &items_max.to_string());
        }
        match &page.continuation {
            Some(continuation) => self.with("x-ms-continuation", continuation),
            None => self,
        }
    }

    fn with_body(self, body: String) -> Self {
        Self { body, ..self }
    }
}

fn query_body(query: &QueryText) -> String {
    let parameter = |(name, value): &(String, Value)| {
        Value::from(Object::from([("name", Value::from(name.as_str())), ("value", value.clone())]))
    };
    let parameters: Vec<Value> = query.parameters.iter().map(parameter).collect();
    let body = Object::from([
        ("query", Value::from(query.text.as_str())),
        ("parameters", Value::from(parameters)),
    ]);
    Value::from(body).to_text()
}

/// The operations of a batch as the SDKs for Python, JavaScript, Java, Go and Rust send them.
fn batch_body(operations: &[Operation]) -> String {
    let mut out = String::from("[");
    for (at, operation) in operations.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        let _ = write!(out, "{{\"operationType\":\"{:?}\"", operation.verb);
        let key = operation.key.as_ref().map(ToString::to_string);
        for (name, value) in [
            ("id", &operation.id),
            ("partitionKey", &key),
            ("ifMatch", &operation.conditions.if_match),
            ("ifNoneMatch", &operation.conditions.if_none_match),
        ] {
            if let Some(value) = value {
                let _ = write!(out, ",\"{name}\":");
                write_string(value, &mut out);
            }
        }
        if let Some(body) = &operation.body {
            let _ = write!(out, ",\"resourceBody\":{body}");
        }
        out.push('}');
    }
    out.push(']');
    out
}

fn results(body: &[u8]) -> Vec<OperationAnswer> {
    let body = Value::parse(body).expect("the answer is JSON");
    let results = body.as_array().expect("the answer of a batch is an array");
    let one = |result: &Value| {
        let text = |name: &str| result.get(name).and_then(Value::as_str).map(str::to_owned);
        let number = |name: &str| result.get(name).and_then(Value::as_i64);
        OperationAnswer {
            status: number("statusCode").and_then(|n| u16::try_from(n).ok()).expect("a status"),
            substatus: number("subStatusCode").map_or(0, |n| u32::try_from(n).expect("a number")),
            etag: text("eTag"),
            body: result.get("resourceBody").map(Value::to_text),
            message: text("message"),
            charge_ru: result.get("requestCharge").and_then(Value::as_f64).unwrap_or(0.0),
        }
    };
    results.iter().map(one).collect()
}

fn rows(body: &[u8]) -> Vec<String> {
    let body = Value::parse(body).expect("the answer is JSON");
    let rows = body.get("Documents").and_then(Value::as_array).expect("a feed has documents");
    assert_eq!(body.get("_count").and_then(Value::as_i64), i64::try_from(rows.len()).ok());
    rows.iter().map(Value::to_text).collect()
}

/// The error that a body tells of: `{"code":…,"message":"Message: {\"Errors\":[…]}\r\n…"}`.
fn refusal(status: u16, substatus: u32, charge_ru: f64, body: &[u8]) -> Refusal {
    let body = Value::parse(body).expect("the body of an error is JSON");
    let member = |name: &str| {
        let text = body.get(name).and_then(Value::as_str);
        text.expect("an error has a code and a message").to_owned()
    };
    let (code, told) = (member("code"), member("message"));
    let told = told.strip_prefix("Message: ").expect("the message starts as the service's do");
    let (nested, rest) = told.split_once("\r\n").expect("the activity id is on its own line");
    assert!(rest.starts_with("ActivityId: "), "{rest}");
    let message = sentence(nested.to_owned());
    Refusal { status, substatus, code, message, charge_ru }
}

/// Percent-encodes all but letters, digits and the few marks that are safe everywhere.
fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digits = if byte == b'%' { [rest.next(), rest.next()] } else { [None, None] };
        bytes.push(match digits {
            [Some(high), Some(low)] => {
                let hex = [high, low];
                let hex = std::str::from_utf8(&hex).expect("digits are text");
                u8::from_str_radix(hex, 16).expect("a percent sign starts two digits")
            }
            _ => byte,
        });
    }
    String::from_utf8(bytes).expect("the text is UTF-8")
}
