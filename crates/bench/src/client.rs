//! A client that signs its requests, as fast as it can be made.

use std::time::{Duration, Instant};

use bytes::Bytes;
use gateway::{EMULATOR_KEY, Key};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::Failure;

pub(crate) struct Connection {
    send: SendRequest<Full<Bytes>>,
    key: Key,
    date: String,
    dated: Instant,
}

/// A request before it is signed.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) kind: &'a str,
    /// What the signature names.
    pub(crate) link: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(&'static str, &'a str)],
    pub(crate) body: Bytes,
}

/// What came back, read to its end.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// No request of a benchmark may take longer; the server's own limits are below it.
const LONGEST: Duration = Duration::from_secs(60);

/// A signature is good for a quarter of an hour, and a large load takes longer.
const DATE_FOR: Duration = Duration::from_secs(300);

impl Connection {
    pub(crate) async fn open(port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let (send, driver) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        let key = Key::parse(EMULATOR_KEY).map_err(|error| error.0)?;
        Ok(Self { send, key, date: date(), dated: Instant::now() })
    }

    pub(crate) async fn call(&mut self, call: Call<'_>) -> Result<Answer, Failure> {
        let answer = tokio::time::timeout(LONGEST, self.exchange(call)).await;
        answer.map_err(|_| format!("no answer within {LONGEST:?}"))?
    }

    async fn exchange(&mut self, call: Call<'_>) -> Result<Answer, Failure> {
        if self.dated.elapsed() > DATE_FOR {
            (self.date, self.dated) = (date(), Instant::now());
        }
        let verb = call.method.as_str().to_lowercase();
        let date = self.date.to_lowercase();
        let payload = format!("{verb}\n{}\n{}\n{date}\n\n", call.kind, call.link);
        let signature = self.key.sign(payload.as_bytes());
        let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        let mut request = Request::builder()
            .method(call.method)
            .uri(call.path)
            .header("host", "localhost")
            .header("x-ms-version", "2020-07-15")
            .header("x-ms-date", self.date.as_str())
            .header("authorization", format!("type%3Dmaster%26ver%3D1.0%26sig%3D{signature}"));
        for (name, value) in call.headers {
            request = request.header(*name, *value);
        }
        self.send.ready().await?;
        let answer = self.send.send_request(request.body(Full::new(call.body))?).await?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    /// The first thing that every client asks for.
    pub(crate) async fn account(&mut self) -> Result<(), Failure> {
        let call = Call {
            method: Method::GET,
            kind: "",
            link: "",
            path: "/",
            headers: &[],
            body: Bytes::new(),
        };
        self.call(call).await?.expect(200)
    }
}

impl Answer {
    /// An error unless the answer has the status.
    pub(crate) fn expect(&self, status: u16) -> Result<(), Failure> {
        if self.status.as_u16() == status {
            return Ok(());
        }
        Err(format!("{}: {}", self.status, String::from_utf8_lossy(&self.body)).into())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

fn date() -> String {
    httpdate::fmt_http_date(std::time::SystemTime::now())
}
