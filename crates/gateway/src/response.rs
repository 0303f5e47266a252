//! Answers: every response header is written here, once.
//!
//! An operation says what it has to say in an [`Answer`]; how that is spelled on the wire is decided
//! below. Every error has a JSON body with `code` and `message`, because the JavaScript SDK reads
//! them without looking whether they are there.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use db::{Charge, Container, Error, Outcome, Position};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, PRAGMA, SERVER};
use hyper::{Response, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use value::{Object, Value, write_string};

use crate::request::Context;

/// What an operation has to say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// What an answer without a body says about why it is none.
    pub refusal: Option<Error>,
    /// The body.
    pub body: Body,
    /// What the request cost.
    pub charge: Charge,
    /// The etag, with its quotes.
    pub etag: Option<String>,
    /// Where the request was served, one for each range.
    pub positions: Vec<Position>,
    /// The container that the request was about.
    pub container: Option<Arc<Container>>,
    /// Whether the answer shows the container itself: then its owner is the database.
    pub is_container: bool,
    /// Where the next page starts.
    pub continuation: Option<String>,
    /// How many things the feed has.
    pub item_count: Option<usize>,
    /// Limits and how far they are used.
    pub quota: Option<Quota>,
    /// What the answer about an offer says.
    pub offer: Option<OfferState>,
    /// Whether the container's index is built, in percent.
    pub index_progress: Option<u32>,
    /// What a query says about its work.
    pub query: QueryHeaders,
    /// Whether the client's wish for no body was granted.
    pub minimal: bool,
    /// What a procedure wrote to its log.
    pub script_log: Option<String>,
    /// By which a transaction across partitions is known again.
    pub idempotency_token: Option<String>,
}

/// The body of an answer.
#[derive(Clone, Debug, Default)]
pub(crate) enum Body {
    /// Nothing.
    #[default]
    Empty,
    /// JSON text.
    Json(Bytes),
    /// A batch in the binary form.
    HybridRow(Bytes),
    /// A page of the operator's.
    Page(&'static str, Bytes),
}

/// Limits and how far they are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    pub documents: u64,
    pub bytes: u64,
}

/// What the answer about an offer says besides the offer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfferState {
    pub minimum: i64,
    /// Whether the server is still at work on it.
    pub is_pending: bool,
}

/// What a query says about its work, ready to be sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryHeaders {
    pub metrics: Option<String>,
    pub index_utilization: Option<String>,
    pub advice: Option<String>,
    /// For the optimistic mode of .NET: whether the client must take the distributed road.
    pub requires_distribution: Option<bool>,
}

impl Answer {
    /// An answer without a body.
    pub(crate) fn empty(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// A refusal that says nothing but its status, for clients that try again by themselves.
    pub(crate) fn bare(refusal: Error, charge: Charge) -> Self {
        let status = refusal.kind.status();
        Self { refusal: Some(refusal), charge, ..Self::empty(status) }
    }

    /// An answer with JSON text.
    pub(crate) fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, body: Body::Json(body.into()), ..Self::default() }
    }

    /// An answer with a JSON object.
    pub(crate) fn object(status: u16, object: &Object) -> Self {
        Self::json(status, object_text(object))
    }

    /// A page of the operator's.
    pub(crate) fn page(content_type: &'static str, text: impl Into<Bytes>) -> Self {
        Self { status: 200, body: Body::Page(content_type, text.into()), ..Self::default() }
    }

    /// The answer about one resource.
    pub(crate) fn resource(status: u16, resource: &db::Resource) -> Self {
        let answer = Self::object(status, &resource.body);
        Self { etag: Some(resource.etag.clone()), ..answer }
    }

    /// The answer about one document.
    pub(crate) fn document(outcome: Outcome, minimal: bool) -> Self {
        let body = match outcome.document {
            Some(document) if !minimal => Body::Json(document.text()),
            _ => Body::Empty,
        };
        Self {
            status: outcome.status,
            body,
            charge: outcome.charge,
            etag: outcome.etag,
            positions: vec![outcome.at],
            minimal,
            ..Self::default()
        }
    }

    /// Adds what the request cost.
    pub(crate) fn charged(self, charge: Charge) -> Self {
        Self { charge, ..self }
    }

    /// Adds the container that the request was about.
    pub(crate) fn about(self, container: &Arc<Container>) -> Self {
        Self { container: Some(container.clone()), ..self }
    }
}

/// The JSON text of an object that is shared, without a copy of it.
pub(crate) fn object_text(object: &Object) -> String {
    let mut text = String::from("{");
    for (at, (name, value)) in object.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        write_string(name, &mut text);
        text.push(':');
        value.write(&mut text);
    }
    text.push('}');
    text
}

/// A refusal, with what is known about where it was served.
#[derive(Debug)]
pub(crate) struct Refused {
    pub error: Error,
    pub charge: Charge,
    pub at: Option<Box<Position>>,
    pub container: Option<Arc<Container>>,
}

impl Refused {
    /// Where it was served, if it came that far.
    pub(crate) fn at(&self) -> &[Position] {
        self.at.as_deref().map(std::slice::from_ref).unwrap_or_default()
    }

    /// Adds the container that the request was about.
    pub(crate) fn about(self, container: &Arc<Container>) -> Self {
        Self { container: Some(container.clone()), ..self }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { error, charge: Charge::MINIMUM, at: None, container: None }
    }
}

impl From<db::Failure> for Refused {
    fn from(failure: db::Failure) -> Self {
        let db::Failure { error, at, charge } = failure;
        Self { error, charge, at: at.map(Box::new), container: None }
    }
}

/// What every answer says, whatever it answers.
const SCHEMA_VERSION: &str = "1.18";
const SERVICE_VERSION: &str = concat!("version=", env!("CARGO_PKG_VERSION"), ".0");
const SERVER_NAME: &str = concat!("Orrery/", env!("CARGO_PKG_VERSION"));

/// Writes an answer.
pub(crate) fn render(answer: Answer, context: &Context, took: Duration) -> Response<Bytes> {
    let mut out = Headers::new(answer.status, context, answer.charge, took);
    if let Some(refusal) = &answer.refusal {
        out.refusal(refusal);
    }
    out.text(ETAG, answer.etag);
    out.text(CONTINUATION, answer.continuation);
    out.number(ITEM_COUNT, answer.item_count);
    out.positions(&answer.positions);
    out.container(answer.container.as_deref());
    if answer.is_container {
        out.database(answer.container.as_deref());
    }
    if let Some(quota) = answer.quota {
        out.text(RESOURCE_QUOTA, Some(quota_text(-1, COLLECTION_KB_MAX)));
        let documents = i64::try_from(quota.documents).unwrap_or(i64::MAX);
        out.text(RESOURCE_USAGE, Some(quota_text(documents, quota.bytes.div_ceil(1024))));
    }
    if let Some(offer) = answer.offer {
        out.number(MIN_THROUGHPUT, Some(offer.minimum));
        out.fixed(OFFER_REPLACE_PENDING, if offer.is_pending { "true" } else { "false" });
    }
    out.number(INDEX_PROGRESS, answer.index_progress);
    out.text(QUERY_METRICS, answer.query.metrics);
    out.text(INDEX_UTILIZATION, answer.query.index_utilization);
    out.text(QUERY_ADVICE, answer.query.advice);
    let distribution = answer.query.requires_distribution;
    out.text(
        REQUIRES_DISTRIBUTION,
        distribution.map(|yes| if yes { "True" } else { "False" }.into()),
    );
    let log = answer.script_log.map(|log| utf8_percent_encode(&log, LOG_UNSAFE).to_string());
    out.text(SCRIPT_LOG, log);
    out.text(IDEMPOTENCY_TOKEN, answer.idempotency_token);
    if answer.minimal {
        out.fixed(PREFERENCE_APPLIED, "return=minimal");
    }
    out.finish(answer.body)
}

/// Writes a refusal.
pub(crate) fn render_error(refused: Refused, context: &Context, took: Duration) -> Response<Bytes> {
    let error = &refused.error;
    let mut out = Headers::new(error.kind.status(), context, refused.charge, took);
    out.refusal(error);
    out.positions(refused.at());
    out.container(refused.container.as_deref());
    out.finish(Body::Json(error_body(error.kind.code(), &error.message, context).into()))
}

/// The body of an error, in the service's words.
fn error_body(code: &str, message: &str, context: &Context) -> String {
    // A message that is JSON already, as those about queries are, stands as it is.
    let nested = if message.starts_with('{') {
        message.to_owned()
    } else {
        Value::from(Object::from([("Errors", Value::from(vec![Value::from(message)]))])).to_text()
    };
    let message = format!(
        "Message: {nested}\r\nActivityId: {}, Request URI: {}, {SERVER_NAME}",
        context.activity_id, context.path
    );
    Value::from(Object::from([("code", Value::from(code)), ("message", Value::from(message))]))
        .to_text()
}

/// The service's figures, in KB: what a document and a container may have.
const COLLECTION_KB_MAX: u64 = 10_485_760;

fn quota_text(documents: i64, kilobytes: u64) -> String {
    let (document, limit) = if documents < 0 { (10_240, true) } else { (0, false) };
    let (procedures, triggers, functions) = if limit { (100, 25, 25) } else { (0, 0, 0) };
    format!(
        "storedProcedures={procedures};triggers={triggers};functions={functions};\
         documentsCount={documents};documentSize={document};documentsSize={kilobytes};\
         collectionSize={kilobytes};"
    )
}

const ACTIVITY_ID: HeaderName = HeaderName::from_static("x-ms-activity-id");
const REQUEST_CHARGE: HeaderName = HeaderName::from_static("x-ms-request-charge");
const REQUEST_DURATION: HeaderName = HeaderName::from_static("x-ms-request-duration-ms");
const SCHEMA: HeaderName = HeaderName::from_static("x-ms-schemaversion");
const SERVICE: HeaderName = HeaderName::from_static("x-ms-serviceversion");
const GATEWAY: HeaderName = HeaderName::from_static("x-ms-gatewayversion");
const SUBSTATUS: HeaderName = HeaderName::from_static("x-ms-substatus");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("x-ms-retry-after-ms");
const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-ms-session-token");
const CONTINUATION: HeaderName = HeaderName::from_static("x-ms-continuation");
const ITEM_COUNT: HeaderName = HeaderName::from_static("x-ms-item-count");
const CONTENT_PATH: HeaderName = HeaderName::from_static("x-ms-content-path");
const ALT_CONTENT_PATH: HeaderName = HeaderName::from_static("x-ms-alt-content-path");
const RANGE_ID: HeaderName = HeaderName::from_static("x-ms-documentdb-partitionkeyrangeid");
const RESOURCE_QUOTA: HeaderName = HeaderName::from_static("x-ms-resource-quota");
const RESOURCE_USAGE: HeaderName = HeaderName::from_static("x-ms-resource-usage");
const MIN_THROUGHPUT: HeaderName = HeaderName::from_static("x-ms-cosmos-min-throughput");
const OFFER_REPLACE_PENDING: HeaderName = HeaderName::from_static("x-ms-offer-replace-pending");
const INDEX_PROGRESS: HeaderName =
    HeaderName::from_static("x-ms-documentdb-collection-index-transformation-progress");
const QUERY_METRICS: HeaderName = HeaderName::from_static("x-ms-documentdb-query-metrics");
const INDEX_UTILIZATION: HeaderName = HeaderName::from_static("x-ms-cosmos-index-utilization");
const QUERY_ADVICE: HeaderName = HeaderName::from_static("x-ms-cosmos-query-advice");
const REQUIRES_DISTRIBUTION: HeaderName =
    HeaderName::from_static("x-ms-cosmos-query-requiresdistribution");
const SCRIPT_LOG: HeaderName = HeaderName::from_static("x-ms-documentdb-script-log-results");
const IDEMPOTENCY_TOKEN: HeaderName = HeaderName::from_static("x-ms-cosmos-idempotency-token");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const CORRELATED_ACTIVITY_ID: HeaderName =
    HeaderName::from_static("x-ms-cosmos-correlated-activityid");

/// The diagnostics that all stand for the version of the range.
const LSN_NAMES: [HeaderName; 5] = [
    HeaderName::from_static("lsn"),
    HeaderName::from_static("x-ms-cosmos-llsn"),
    HeaderName::from_static("x-ms-quorum-acked-lsn"),
    HeaderName::from_static("x-ms-cosmos-quorum-acked-llsn"),
    HeaderName::from_static("x-ms-global-committed-lsn"),
];
/// The diagnostics that all stand for the version of the document.
const DOCUMENT_LSN_NAMES: [HeaderName; 2] =
    [HeaderName::from_static("x-ms-item-lsn"), HeaderName::from_static("x-ms-cosmos-item-llsn")];
/// There is one region and one replica of everything.
const REPLICAS: [(HeaderName, &str); 3] = [
    (HeaderName::from_static("x-ms-number-of-read-regions"), "0"),
    (HeaderName::from_static("x-ms-current-write-quorum"), "1"),
    (HeaderName::from_static("x-ms-current-replica-set-size"), "1"),
];

/// A response while its headers are written.
struct Headers {
    response: Response<Bytes>,
}

impl Headers {
    fn new(status: u16, context: &Context, charge: Charge, took: Duration) -> Self {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().reserve(32);
        let mut out = Self { response };
        out.text(ACTIVITY_ID, Some(context.activity_id.clone()));
        out.text(CORRELATED_ACTIVITY_ID, context.correlated_activity_id.clone());
        out.text(REQUEST_CHARGE, Some(charge.ru().to_string()));
        let micros = took.as_micros();
        out.text(REQUEST_DURATION, Some(format!("{}.{:03}", micros / 1_000, micros % 1_000)));
        out.fixed(SCHEMA, SCHEMA_VERSION);
        out.fixed(SERVICE, SERVICE_VERSION);
        out.fixed(GATEWAY, SERVICE_VERSION);
        out.fixed(SERVER, SERVER_NAME);
        out.fixed(CACHE_CONTROL, "no-store, no-cache");
        out.fixed(PRAGMA, "no-cache");
        out
    }

    fn fixed(&mut self, name: HeaderName, value: &'static str) {
        self.response.headers_mut().insert(name, HeaderValue::from_static(value));
    }

    fn text(&mut self, name: HeaderName, value: Option<String>) {
        let Some(value) = value else { return };
        match HeaderValue::from_maybe_shared(Bytes::from(value)) {
            Ok(value) => {
                self.response.headers_mut().insert(name, value);
            }
            // All texts are made header-safe where they are made.
            Err(_) => tracing::error!(header = %name, "a response header cannot be sent"),
        }
    }

    fn number(&mut self, name: HeaderName, value: Option<impl ToString>) {
        self.text(name, value.map(|value| value.to_string()));
    }

    /// One number under several names.
    fn all<const N: usize>(&mut self, names: [HeaderName; N], number: u64) {
        // Clones share the digits.
        let value = HeaderValue::from(number);
        for name in names {
            self.response.headers_mut().insert(name, value.clone());
        }
    }

    fn refusal(&mut self, error: &Error) {
        if error.substatus() != 0 {
            self.number(SUBSTATUS, Some(error.substatus()));
        }
        self.number(RETRY_AFTER_MS, error.retry_after_ms());
    }

    fn positions(&mut self, positions: &[Position]) {
        let Some(first) = positions.first() else { return };
        let mut tokens = first.token();
        for position in &positions[1..] {
            tokens.push(',');
            tokens.push_str(&position.token());
        }
        self.text(SESSION_TOKEN, Some(tokens));
        self.text(RANGE_ID, Some(first.range.clone()));
        self.all(LSN_NAMES, first.lsn);
        if let Some(lsn) = first.document_lsn {
            self.all(DOCUMENT_LSN_NAMES, lsn);
        }
        for (name, value) in REPLICAS {
            self.fixed(name, value);
        }
    }

    /// How clients file what they learn about a container.
    fn container(&mut self, container: Option<&Container>) {
        let Some(container) = container else { return };
        self.text(CONTENT_PATH, Some(container.rid.to_string()));
        let names = utf8_percent_encode(&container.name_path(), HEADER_UNSAFE).to_string();
        self.text(ALT_CONTENT_PATH, Some(names));
    }

    /// The path that the Java SDK completes to that of the container it has read.
    fn database(&mut self, container: Option<&Container>) {
        let Some(container) = container else { return };
        let path = format!("dbs/{}", container.database_id);
        let path = utf8_percent_encode(&path, HEADER_UNSAFE).to_string();
        self.text(ALT_CONTENT_PATH, Some(path));
    }

    fn finish(mut self, body: Body) -> Response<Bytes> {
        let (content_type, bytes) = match body {
            Body::Empty => return self.response,
            Body::Json(bytes) => ("application/json", bytes),
            Body::HybridRow(bytes) => ("application/octet-stream", bytes),
            Body::Page(content_type, bytes) => (content_type, bytes),
        };
        self.fixed(CONTENT_TYPE, content_type);
        *self.response.body_mut() = bytes;
        self.response
    }
}

/// What JavaScript's `encodeURIComponent` encodes, which clients undo.
const LOG_UNSAFE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// SDKs compare the path with the names they know, so only what a header cannot carry is encoded;
/// `utf8_percent_encode` always encodes what is not ASCII.
const HEADER_UNSAFE: &AsciiSet = CONTROLS;
