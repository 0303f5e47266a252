//! A client of a server, for the commands that ask one.
//!
//! It speaks the protocol as the SDKs do and shares nothing with the server but the signature of a
//! key, so that what a command shows is what every client gets. One connection, one request at a
//! time. What comes back is bounded in size and in time. What can be asked for is in [`crate::account`].

use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use db::{Clock, SystemClock};
use gateway::{Gateway, Key, Scheme};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use storage::RangeStore;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A server is either there within this time or it is not.
const CONNECT_AT_MOST: Duration = Duration::from_secs(10);
/// The server ends a page after ten seconds; the rest is for the way.
const ANSWER_AT_MOST: Duration = Duration::from_secs(60);
/// The largest page that a server gives is half of this.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The version of the protocol that is spoken.
const VERSION: &str = "2020-07-15";

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) is_secure: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    /// As it was written, for messages and the `host` header.
    authority: String,
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("it is not a URL: {error}"))?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("it must start with http:// or https://".to_owned()),
        };
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("a key is given with --key, not in the URL".to_owned());
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err("it must end after the host and port".to_owned());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        Ok(Self {
            is_secure,
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}/", self.authority)
    }
}

/// An answer, read to its end, of whatever status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn continuation(&self) -> Option<&str> {
        self.header("x-ms-continuation").filter(|token| !token.is_empty())
    }

    pub(crate) fn charge_ru(&self) -> f64 {
        let charge = self.header("x-ms-request-charge").and_then(|text| text.parse().ok());
        charge.unwrap_or(0.0)
    }

    /// Figures about how a page was found, `name=value` with semicolons between.
    pub(crate) fn metrics(&self) -> Option<&str> {
        self.header("x-ms-documentdb-query-metrics")
    }

    /// The indexes of the query, URL-encoded JSON.
    pub(crate) fn indexes(&self) -> Option<&str> {
        self.header("x-ms-cosmos-index-utilization")
    }

    /// How long to wait before the request is sent again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let after = self.header("x-ms-retry-after-ms")?.parse().ok()?;
        Some(Duration::from_millis(after))
    }

    /// What a procedure wrote to its log.
    pub(crate) fn script_log(&self) -> Option<String> {
        let log = self.header("x-ms-documentdb-script-log-results")?;
        Some(percent_decode_str(log).decode_utf8_lossy().into_owned())
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// Nothing listens there, or the way there is closed.
    NotConnected(String),
    /// The server's certificate is not believed.
    NotTrusted(String),
    /// The connection failed, or what came is not an answer.
    Broken(String),
    /// It took too long.
    Late(Duration),
}

/// What a request is about: the segments of its path, not encoded. They alternate between what a
/// thing is and how it is called, so a path of an odd number of them is about all things of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target(Vec<String>);

impl Target {
    pub(crate) fn new(segments: &[&str]) -> Self {
        Self(segments.iter().map(|segment| (*segment).to_owned()).collect())
    }

    fn path(&self) -> String {
        self.0.iter().map(|segment| format!("/{}", encode(segment))).collect()
    }

    /// The kind and the link that the signature names.
    fn signed(&self) -> (&str, String) {
        let is_list = self.0.len() % 2 == 1;
        let (kind_at, link_end) = if is_list { (1, self.0.len() - 1) } else { (2, self.0.len()) };
        (&self.0[self.0.len() - kind_at], self.0[..link_end].join("/"))
    }
}

/// A request, but for what every request has.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: Method,
    target: Target,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl Call {
    pub(crate) fn new(method: Method, target: Target) -> Self {
        Self { method, target, headers: Vec::new(), body: Bytes::new() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    pub(crate) fn with_body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }

    fn authorization(&self, key: &Key, date: &str) -> String {
        let verb = self.method.as_str().to_lowercase();
        let (kind, link) = self.target.signed();
        let payload = format!("{verb}\n{kind}\n{link}\n{}\n\n", date.to_lowercase());
        let signature = key.sign(payload.as_bytes());
        encode(&format!("type=master&ver=1.0&sig={signature}"))
    }

    fn request(self, authority: &HeaderValue, key: &Key) -> Result<Request<Bytes>, Unanswered> {
        let now = UNIX_EPOCH + Duration::from_millis(SystemClock.now_ms());
        let date = httpdate::fmt_http_date(now);
        let authorization = self.authorization(key, &date);
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.target.path())
            .header(HOST, authority.clone())
            .header("x-ms-version", VERSION)
            .header("x-ms-date", date)
            .header(AUTHORIZATION, authorization);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        request.body(self.body).map_err(|error| Unanswered::Broken(error.to_string()))
    }
}

/// Answers requests in this process, without a connection.
pub(crate) trait Within: Send + Sync {
    fn answer(
        &self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Response<Bytes>> + Send + '_>>;
}

impl<S: RangeStore> Within for Gateway<S> {
    fn answer(
        &self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Response<Bytes>> + Send + '_>> {
        Box::pin(self.respond(request, Scheme::Http))
    }
}

/// Asks a server.
pub(crate) struct Client {
    way: Way,
    authority: HeaderValue,
    key: Key,
}

/// How requests get to the server.
enum Way {
    Network(Network),
    Within(Arc<dyn Within>),
}

/// A connection, opened when it is needed and again when the server has closed it.
struct Network {
    endpoint: Endpoint,
    tls: Option<Arc<ClientConfig>>,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// Connects, with TLS if it is given.
    pub(crate) async fn connect(
        endpoint: &Endpoint,
        tls: Option<ClientConfig>,
        key: Key,
    ) -> Result<Self, Unanswered> {
        let authority = HeaderValue::from_str(&endpoint.authority)
            .map_err(|error| Unanswered::Broken(error.to_string()))?;
        let tls = tls.map(Arc::new);
        let mut network = Network { endpoint: endpoint.clone(), tls, open: None };
        network.open().await?;
        Ok(Self { way: Way::Network(network), authority, key })
    }

    /// A client of a server in this process.
    pub(crate) fn within(server: Arc<dyn Within>, key: Key) -> Self {
        let authority = HeaderValue::from_static("localhost");
        Self { way: Way::Within(server), authority, key }
    }

    /// Another client of the same server, for requests side by side.
    pub(crate) fn another(&self) -> Self {
        let way = match &self.way {
            Way::Within(server) => Way::Within(server.clone()),
            Way::Network(Network { endpoint, tls, .. }) => {
                let (endpoint, tls) = (endpoint.clone(), tls.clone());
                Way::Network(Network { endpoint, tls, open: None })
            }
        };
        Self { way, authority: self.authority.clone(), key: self.key.clone() }
    }

    /// Sends a request and reads the answer, of whatever status.
    pub(crate) async fn send(&mut self, call: Call) -> Result<Answer, Unanswered> {
        let request = call.request(&self.authority, &self.key)?;
        match &mut self.way {
            Way::Within(server) => {
                let (head, body) = server.answer(request).await.into_parts();
                Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
            }
            Way::Network(network) => {
                tokio::time::timeout(ANSWER_AT_MOST, network.exchange(request))
                    .await
                    .map_err(|_| Unanswered::Late(ANSWER_AT_MOST))?
            }
        }
    }
}

impl Network {
    /// The connection, a new one if need be.
    async fn open(&mut self) -> Result<&mut SendRequest<Full<Bytes>>, Unanswered> {
        let is_open = match &mut self.open {
            // A server closes connections that nothing comes over for a while.
            Some(open) => !open.is_closed() && open.ready().await.is_ok(),
            None => false,
        };
        if !is_open {
            let opened = tokio::time::timeout(CONNECT_AT_MOST, self.dial()).await;
            self.open = Some(opened.map_err(|_| Unanswered::Late(CONNECT_AT_MOST))??);
        }
        Ok(self.open.as_mut().expect("it was opened just now"))
    }

    async fn dial(&self) -> Result<SendRequest<Full<Bytes>>, Unanswered> {
        let broken = |error: &dyn fmt::Display| Unanswered::Broken(error.to_string());
        let endpoint = &self.endpoint;
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
            .await
            .map_err(|error| Unanswered::NotConnected(error.to_string()))?;
        // Requests are written whole; waiting for more of them only delays the answer.
        stream.set_nodelay(true).map_err(|e| broken(&e))?;
        let Some(tls) = self.tls.clone() else { return handshake(stream).await };
        let name = ServerName::try_from(endpoint.host.clone()).map_err(|e| broken(&e))?;
        let stream = TlsConnector::from(tls).connect(name, stream).await;
        handshake(stream.map_err(tls_failure)?).await
    }

    async fn exchange(&mut self, request: Request<Bytes>) -> Result<Answer, Unanswered> {
        let broken = |error: &dyn fmt::Display| Unanswered::Broken(error.to_string());
        let open = self.open().await?;
        open.ready().await.map_err(|e| broken(&e))?;
        let answer = open.send_request(request.map(Full::new)).await.map_err(|e| broken(&e))?;
        let (head, body) = answer.into_parts();
        let body =
            Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| {
                match error.downcast_ref::<LengthLimitError>() {
                    Some(_) => {
                        broken(&format!("the answer is larger than {ANSWER_BYTES_MAX} bytes"))
                    }
                    None => broken(&error),
                }
            })?;
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes() })
    }
}

async fn handshake<T>(stream: T) -> Result<SendRequest<Full<Bytes>>, Unanswered>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (send, driver) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Unanswered::Broken(error.to_string()))?;
    // What goes wrong with the connection is told by the request that it goes wrong for.
    tokio::spawn(driver);
    Ok(send)
}

fn tls_failure(error: std::io::Error) -> Unanswered {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(why)) => Unanswered::NotTrusted(why.to_string()),
        _ => Unanswered::Broken(error.to_string()),
    }
}

/// All but letters, digits and the few marks that are safe everywhere.
const UNSAFE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn encode(text: &str) -> String {
    utf8_percent_encode(text, UNSAFE).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::EMULATOR_KEY;

    #[track_caller]
    fn check(text: &str, expected: Result<(bool, &str, u16), &str>) {
        let found = text.parse::<Endpoint>();
        match (&found, expected) {
            (Ok(found), Ok((is_secure, host, port))) => {
                let found = (found.is_secure, found.host.as_str(), found.port);
                assert_eq!(found, (is_secure, host, port), "{text}");
            }
            (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
            _ => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn endpoints_are_read() {
        check("http://localhost:8081", Ok((false, "localhost", 8081)));
        check("https://localhost:8081/", Ok((true, "localhost", 8081)));
        check("https://db.example.org", Ok((true, "db.example.org", 443)));
        check("http://[::1]/", Ok((false, "::1", 80)));
        check("localhost:8081", Err("http://"));
        check("ftp://localhost", Err("http://"));
        check("http://localhost/dbs", Err("end after the host"));
        check("http://localhost/?a=b", Err("end after the host"));
        check("http://me:secret@localhost/", Err("--key"));
        check("", Err("not a URL"));
        check("http://", Err("not a URL"));
    }

    /// The vectors are the specification's.
    #[test]
    fn requests_are_signed_as_the_service_expects() {
        let key = Key::parse(EMULATOR_KEY).unwrap();
        for (method, segments, signature) in [
            (Method::GET, &["dbs"][..], "Bk4MqbjRdQImb4Rqp5pmqv1%2FOhkMQU93qlTmk%2FSzVRQ%3D"),
            (
                Method::POST,
                &["dbs", "ToDoList", "colls", "Items", "docs"],
                "xsGOVdJuhdfCMSf88b%2Fz4eUsnekTR9zZqIIh8juDTYo%3D",
            ),
        ] {
            let call = Call::new(method, Target::new(segments));
            let found = call.authorization(&key, "Thu, 27 Apr 2017 00:51:12 GMT");
            assert_eq!(found, format!("type%3Dmaster%26ver%3D1.0%26sig%3D{signature}"));
        }
    }

    #[test]
    fn targets_have_a_path_and_what_is_signed() {
        let target = Target::new(&["dbs", "a b/ö-_.~", "colls"]);
        assert_eq!(target.path(), "/dbs/a%20b%2F%C3%B6-_.~/colls");
        assert_eq!(target.signed(), ("colls", "dbs/a b/ö-_.~".to_owned()));
        let target = Target::new(&["dbs", "a", "colls", "b"]);
        assert_eq!(target.signed(), ("colls", "dbs/a/colls/b".to_owned()));
    }
}
