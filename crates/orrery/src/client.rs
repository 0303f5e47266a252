//! A client of a server, for the commands that ask one.
//!
//! It speaks the protocol as the SDKs do and shares nothing with the server but the signature of a
//! key, so that what a command shows is what every client gets. One connection, one request at a
//! time. What comes back is bounded in size and in time.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use db::{Clock, SystemClock};
use gateway::Key;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Uri};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use value::{Object, PartitionKey, Value};

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

/// A query over the documents of a container.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) database: String,
    pub(crate) container: String,
    pub(crate) text: String,
    pub(crate) parameters: Vec<(String, Value)>,
    pub(crate) key: Option<PartitionKey>,
}

/// What one request for a query wants.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want<'a> {
    /// A page of rows.
    Page { items_max: Option<u32>, continuation: Option<&'a str>, metrics: bool },
    /// How the query would be answered.
    Explanation,
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

/// A connection to a server.
pub(crate) struct Client {
    send: SendRequest<Full<Bytes>>,
    authority: HeaderValue,
    key: Key,
}

impl Client {
    /// Connects, with TLS if it is given.
    pub(crate) async fn connect(
        endpoint: &Endpoint,
        tls: Option<ClientConfig>,
        key: Key,
    ) -> Result<Self, Unanswered> {
        let broken = |error: &dyn fmt::Display| Unanswered::Broken(error.to_string());
        let authority = HeaderValue::from_str(&endpoint.authority).map_err(|e| broken(&e))?;
        let opening = async {
            let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
                .await
                .map_err(|error| Unanswered::NotConnected(error.to_string()))?;
            // Requests are written whole; waiting for more of them only delays the answer.
            stream.set_nodelay(true).map_err(|e| broken(&e))?;
            let Some(tls) = tls else { return handshake(stream).await };
            let name = ServerName::try_from(endpoint.host.clone()).map_err(|e| broken(&e))?;
            let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await;
            handshake(stream.map_err(tls_failure)?).await
        };
        let send = tokio::time::timeout(CONNECT_AT_MOST, opening)
            .await
            .map_err(|_| Unanswered::Late(CONNECT_AT_MOST))??;
        Ok(Self { send, authority, key })
    }

    /// Asks for a page of a query's answer, or how it would be answered.
    pub(crate) async fn ask(
        &mut self,
        question: &Question,
        want: Want<'_>,
    ) -> Result<Answer, Unanswered> {
        let link = format!("dbs/{}/colls/{}", question.database, question.container);
        let path = format!(
            "/dbs/{}/colls/{}/docs",
            encode(&question.database),
            encode(&question.container)
        );
        let mut headers = vec![
            (CONTENT_TYPE, "application/query+json".to_owned()),
            header("x-ms-documentdb-isquery", "True"),
            header("x-ms-documentdb-query-enablecrosspartition", "True"),
        ];
        if let Some(key) = &question.key {
            headers.push(header("x-ms-documentdb-partitionkey", key));
        }
        match want {
            Want::Explanation => headers.push(header("x-orrery-explain", "true")),
            Want::Page { items_max, continuation, metrics } => {
                headers.extend(items_max.map(|count| header("x-ms-max-item-count", count)));
                headers.extend(continuation.map(|token| header("x-ms-continuation", token)));
                if metrics {
                    headers.push(header("x-ms-documentdb-populatequerymetrics", "True"));
                    headers.push(header("x-ms-cosmos-populateindexmetrics-v2", "True"));
                }
            }
        }
        let call = Call { method: Method::POST, kind: "docs", link: &link, path: &path };
        self.call(call, headers, question.body()).await
    }

    /// Whether there is such a database.
    pub(crate) async fn has_database(&mut self, name: &str) -> Result<bool, Unanswered> {
        let (link, path) = (format!("dbs/{name}"), format!("/dbs/{}", encode(name)));
        let call = Call { method: Method::GET, kind: "dbs", link: &link, path: &path };
        Ok(self.call(call, Vec::new(), String::new()).await?.status == 200)
    }

    async fn call(
        &mut self,
        call: Call<'_>,
        headers: Vec<(HeaderName, String)>,
        body: String,
    ) -> Result<Answer, Unanswered> {
        let exchange = self.exchange(call, headers, body);
        tokio::time::timeout(ANSWER_AT_MOST, exchange)
            .await
            .map_err(|_| Unanswered::Late(ANSWER_AT_MOST))?
    }

    async fn exchange(
        &mut self,
        call: Call<'_>,
        headers: Vec<(HeaderName, String)>,
        body: String,
    ) -> Result<Answer, Unanswered> {
        let broken = |error: &dyn fmt::Display| Unanswered::Broken(error.to_string());
        let now = UNIX_EPOCH + Duration::from_millis(SystemClock.now_ms());
        let date = httpdate::fmt_http_date(now);
        let authorization = call.authorization(&self.key, &date);
        let mut request = Request::builder()
            .method(call.method)
            .uri(call.path)
            .header(HOST, self.authority.clone())
            .header("x-ms-version", VERSION)
            .header("x-ms-date", date)
            .header(AUTHORIZATION, authorization);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| broken(&e))?;
        self.send.ready().await.map_err(|e| broken(&e))?;
        let answer = self.send.send_request(request).await.map_err(|e| broken(&e))?;
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

/// What a request is signed for, and its path.
struct Call<'a> {
    method: Method,
    /// The type and the link that the signature names.
    kind: &'a str,
    link: &'a str,
    path: &'a str,
}

impl Call<'_> {
    fn authorization(&self, key: &Key, date: &str) -> String {
        let verb = self.method.as_str().to_lowercase();
        let payload = format!("{verb}\n{}\n{}\n{}\n\n", self.kind, self.link, date.to_lowercase());
        let signature = key.sign(payload.as_bytes());
        encode(&format!("type=master&ver=1.0&sig={signature}"))
    }
}

impl Question {
    fn body(&self) -> String {
        let parameter = |(name, value): &(String, Value)| {
            let name = Value::from(name.as_str());
            Value::from(Object::from([("name", name), ("value", value.clone())]))
        };
        let parameters: Vec<Value> = self.parameters.iter().map(parameter).collect();
        let query = Value::from(self.text.as_str());
        Value::from(Object::from([("query", query), ("parameters", Value::from(parameters))]))
            .to_text()
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

fn header(name: &'static str, value: impl fmt::Display) -> (HeaderName, String) {
    (HeaderName::from_static(name), value.to_string())
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
        for (method, kind, link, signature) in [
            (Method::GET, "dbs", "", "Bk4MqbjRdQImb4Rqp5pmqv1%2FOhkMQU93qlTmk%2FSzVRQ%3D"),
            (
                Method::POST,
                "docs",
                "dbs/ToDoList/colls/Items",
                "xsGOVdJuhdfCMSf88b%2Fz4eUsnekTR9zZqIIh8juDTYo%3D",
            ),
        ] {
            let call = Call { method, kind, link, path: "" };
            let found = call.authorization(&key, "Thu, 27 Apr 2017 00:51:12 GMT");
            assert_eq!(found, format!("type%3Dmaster%26ver%3D1.0%26sig%3D{signature}"));
        }
    }

    #[test]
    fn names_are_encoded_in_paths() {
        assert_eq!(encode("a b/ö-_.~"), "a%20b%2F%C3%B6-_.~");
    }
}
