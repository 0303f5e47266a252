//! Connections: HTTP/1.1 and HTTP/2, in the clear and over TLS, all on one port.
//!
//! The first byte tells TLS (a handshake record, `0x16`) from plain HTTP; ALPN or the connection
//! preface tells HTTP/2 from HTTP/1.1. Nothing here knows what a request means.
//!
//! A stranger can hold only what is bounded: a number of connections, a time until the first request
//! has arrived and until a body has, a size of headers and of bodies. Beyond the number of
//! connections the listener stops accepting, so that the rest wait in the operating system's queue.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::CONTENT_LENGTH;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// How a client reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// As it stands in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

/// The times and sizes that a connection is held to.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Connections served at once.
    pub connections_max: usize,
    /// From the connection to its first request, and between two requests. SDKs keep connections
    /// for a minute.
    pub idle: Duration,
    /// For a TLS handshake.
    pub handshake: Duration,
    /// For requests that are under way when the server is told to stop.
    pub drain: Duration,
}

impl Limits {
    /// The limits that the server runs with.
    pub(crate) fn new(connections_max: usize) -> Self {
        Self {
            connections_max: connections_max.clamp(1, Semaphore::MAX_PERMITS),
            idle: Duration::from_secs(75),
            handshake: Duration::from_secs(10),
            drain: Duration::from_secs(10),
        }
    }
}

/// Session tokens and continuations travel in headers; the largest SDK sends are near 16 KB.
const HEADERS_BYTES_MAX: u32 = 64 * 1024;
const HEADERS_MAX: usize = 128;
/// .NET and Java open at least 100 streams on one connection.
const STREAMS_MAX: u32 = 256;

/// Answers requests; one for all connections.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Answers one request.
    fn answer(
        &self,
        request: Request<Incoming>,
        scheme: Scheme,
    ) -> impl Future<Output = Response<Bytes>> + Send;

    /// Counts connections: called with `true` when one opens and with `false` when it closes.
    fn connected(&self, open: bool);
}

/// Serves until told to stop, then lets the requests under way finish.
pub(crate) async fn serve<H: Handler>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    handler: Arc<H>,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let permits = Arc::new(Semaphore::new(limits.connections_max));
    let acceptor = TlsAcceptor::from(tls);
    let (stop, stopping) = watch::channel(());
    let mut shutdown = pin!(shutdown);
    loop {
        let permit = tokio::select! {
            () = &mut shutdown => break,
            permit = permits.clone().acquire_owned() => permit.map_err(io::Error::other)?,
        };
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // One client's fault, or no more file handles: either way the next may do better.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let connection = Connection {
            acceptor: acceptor.clone(),
            handler: handler.clone(),
            limits: limits.clone(),
            stopping: stopping.clone(),
        };
        tokio::spawn(async move {
            connection.run(stream).await;
            drop(permit);
        });
    }
    drop(listener);
    drop(stopping);
    stop.send_replace(());
    // Every connection holds a receiver, so the channel closes with the last of them.
    if timeout(limits.drain, stop.closed()).await.is_err() {
        tracing::warn!("requests still under way were cut off");
    }
    Ok(())
}

struct Connection<H> {
    acceptor: TlsAcceptor,
    handler: Arc<H>,
    limits: Limits,
    stopping: watch::Receiver<()>,
}

impl<H: Handler> Connection<H> {
    async fn run(mut self, stream: TcpStream) {
        let handler = self.handler.clone();
        handler.connected(true);
        // Without it a small answer can wait 40 ms for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        if let Err(error) = self.serve(stream).await {
            tracing::debug!(%error, "a connection ended with an error");
        }
        handler.connected(false);
    }

    async fn serve(
        &mut self,
        stream: TcpStream,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut first = [0];
        let peeked = tokio::select! {
            _ = self.stopping.changed() => return Ok(()),
            peeked = timeout(self.limits.idle, stream.peek(&mut first)) => peeked??,
        };
        if peeked == 0 {
            return Ok(());
        }
        const TLS_HANDSHAKE: u8 = 0x16;
        if first[0] == TLS_HANDSHAKE {
            let stream = tokio::select! {
                _ = self.stopping.changed() => return Ok(()),
                accepted = timeout(self.limits.handshake, self.acceptor.accept(stream)) => accepted??,
            };
            self.serve_http(stream, Scheme::Https).await
        } else {
            self.serve_http(stream, Scheme::Http).await
        }
    }

    async fn serve_http<I>(
        &mut self,
        stream: I,
        scheme: Scheme,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let requested = Arc::new(AtomicBool::new(false));
        let service = service_fn(|request| {
            requested.store(true, Ordering::Relaxed);
            let handler = self.handler.clone();
            async move { Ok::<_, Infallible>(handler.answer(request, scheme).await.map(Full::new)) }
        });
        let builder = http_builder(&self.limits);
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        // hyper times the head of a request, but not the bytes by which it tells HTTP/2.
        let mut first_request = pin!(tokio::time::sleep(self.limits.idle));
        let mut waiting = true;
        let mut told = false;
        loop {
            tokio::select! {
                result = connection.as_mut() => return result,
                _ = self.stopping.changed(), if !told => {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = &mut first_request, if waiting => {
                    waiting = false;
                    if !requested.load(Ordering::Relaxed) {
                        return Err("no request arrived in time".into());
                    }
                }
            }
        }
    }
}

fn http_builder(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADERS_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024)
        .keep_alive_interval(limits.idle)
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Why a body did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It is larger than any request may be.
    TooLarge,
    /// It took too long.
    TooSlow,
    /// The connection broke, or the framing was wrong.
    Broken,
}

/// No request may have more, whatever it is, counted as it comes.
const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How much of a body that is refused is read all the same: most clients listen for the answer only
/// after they have sent everything.
const DISCARD_BYTES_MAX: usize = 32 * 1024 * 1024;
const BODY_TIME_MAX: Duration = Duration::from_secs(60);

/// Where the body of a request comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// It is there.
    Whole(Bytes),
    /// It still has to arrive.
    Stream(Incoming),
}

impl Source {
    /// Reads the body.
    pub(crate) async fn read(self, headers: &HeaderMap) -> Result<Bytes, BodyError> {
        match self {
            Source::Whole(body) if body.len() > BODY_BYTES_MAX => Err(BodyError::TooLarge),
            Source::Whole(body) => Ok(body),
            Source::Stream(body) => read_body(headers, body).await,
        }
    }

    /// Reads the body away, up to a limit, so that the client gets to see its answer.
    pub(crate) async fn discard(self) {
        if let Source::Stream(body) = self {
            discard(body).await;
        }
    }
}

/// Reads a body, keeping no more of it than a request may have.
async fn read_body(headers: &HeaderMap, body: Incoming) -> Result<Bytes, BodyError> {
    let announced = announced_length(headers);
    if announced.is_some_and(|length| length > BODY_BYTES_MAX as u64) {
        discard(body).await;
        return Err(BodyError::TooLarge);
    }
    match timeout(BODY_TIME_MAX, collect(announced, body)).await {
        Ok(result) => result,
        Err(_) => Err(BodyError::TooSlow),
    }
}

fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn collect(announced: Option<u64>, mut body: Incoming) -> Result<Bytes, BodyError> {
    // A stranger's announcement is not worth memory before the bytes are there.
    const RESERVE_MAX: u64 = 64 * 1024;
    let mut whole = BytesMut::new();
    let mut first = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
        if whole.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > BODY_BYTES_MAX {
            drop(whole);
            discard_frames(&mut body).await;
            return Err(BodyError::TooLarge);
        }
        // Small bodies arrive in one piece, which needs no copy.
        match first.take() {
            None if whole.is_empty() => first = Some(data),
            None => whole.extend_from_slice(&data),
            Some(earlier) => {
                whole.reserve(announced.unwrap_or(0).min(RESERVE_MAX) as usize);
                whole.extend_from_slice(&earlier);
                whole.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

async fn discard(mut body: Incoming) {
    if !body.is_end_stream() {
        // Too slow or too long: then the connection ends with the answer.
        let _ = timeout(BODY_TIME_MAX, discard_frames(&mut body)).await;
    }
}

async fn discard_frames(body: &mut Incoming) {
    let mut discarded = 0;
    while let Some(Ok(frame)) = body.frame().await {
        discarded += frame.data_ref().map_or(0, Bytes::len);
        if discarded > DISCARD_BYTES_MAX {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Certificate;
    use crate::tls::Tls;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use std::net::SocketAddr;
    use std::sync::atomic::AtomicUsize;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::{Notify, oneshot};
    use tokio_rustls::TlsConnector;

    /// Says what it got: scheme, HTTP version and the length of the body.
    #[derive(Default)]
    struct Echo {
        open: AtomicUsize,
        arrived: Notify,
        release: Notify,
    }

    impl Handler for Echo {
        async fn answer(&self, request: Request<Incoming>, scheme: Scheme) -> Response<Bytes> {
            let (head, body) = request.into_parts();
            if head.uri.path() == "/wait" {
                self.arrived.notify_one();
                self.release.notified().await;
            }
            let body = read_body(&head.headers, body).await;
            let length = body.map(|body| body.len());
            Response::new(format!("{} {:?} {length:?}", scheme.as_str(), head.version).into())
        }

        fn connected(&self, open: bool) {
            if open {
                self.open.fetch_add(1, Ordering::SeqCst);
            } else {
                self.open.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    struct Server {
        address: SocketAddr,
        trust_pem: Arc<str>,
        handler: Arc<Echo>,
        stop: oneshot::Sender<()>,
        ended: tokio::task::JoinHandle<io::Result<()>>,
    }

    async fn start(limits: Limits) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let clock = Arc::new(db::SystemClock);
        let tls = Tls::new(&Certificate::Own(None), None, clock).unwrap();
        let handler = Arc::new(Echo::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        let ended =
            tokio::spawn(serve(listener, tls.server.clone(), handler.clone(), limits, shutdown));
        Server { address, trust_pem: tls.trust_pem, handler, stop, ended }
    }

    fn limits() -> Limits {
        Limits::new(8)
    }

    async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> String {
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        // The peer may reset the connection after its answer.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn connector(server: &Server, protocol: &[u8]) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.trust_pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        TlsConnector::from(Arc::new(config))
    }

    const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

    #[tokio::test]
    async fn http_and_https_share_the_port() {
        let server = start(limits()).await;
        let plain = TcpStream::connect(server.address).await.unwrap();
        assert!(exchange(plain, GET).await.ends_with("http HTTP/1.1 Ok(0)"));
        for host in ["localhost", "127.0.0.1"] {
            let tcp = TcpStream::connect(server.address).await.unwrap();
            let name = ServerName::try_from(host).unwrap();
            let tls = connector(&server, b"http/1.1").connect(name, tcp).await.unwrap();
            assert!(exchange(tls, GET).await.ends_with("https HTTP/1.1 Ok(0)"));
        }
    }

    async fn over_http2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> String {
        let io = TokioIo::new(stream);
        let (mut send, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let body = Full::new(Bytes::from_static(b"12345"));
        let request = Request::post("http://localhost/").body(body).unwrap();
        let response = send.send_request(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn http2_works_with_prior_knowledge_and_with_alpn() {
        let server = start(limits()).await;
        let plain = TcpStream::connect(server.address).await.unwrap();
        assert_eq!(over_http2(plain).await, "http HTTP/2.0 Ok(5)");
        let tcp = TcpStream::connect(server.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let tls = connector(&server, b"h2").connect(name, tcp).await.unwrap();
        assert_eq!(over_http2(tls).await, "https HTTP/2.0 Ok(5)");
    }

    #[tokio::test]
    async fn large_bodies_are_refused_and_not_kept() {
        let server = start(limits()).await;
        let mut announced = format!(
            "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            BODY_BYTES_MAX + 1
        )
        .into_bytes();
        announced.resize(announced.len() + BODY_BYTES_MAX + 1, b'a');
        let stream = TcpStream::connect(server.address).await.unwrap();
        assert!(exchange(stream, &announced).await.ends_with("Err(TooLarge)"));
        let mut chunked =
            b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
                .to_vec();
        for _ in 0..3 {
            chunked.extend(b"100000\r\n");
            chunked.resize(chunked.len() + 0x10_0000, b'a');
            chunked.extend(b"\r\n");
        }
        chunked.extend(b"0\r\n\r\n");
        let stream = TcpStream::connect(server.address).await.unwrap();
        assert!(exchange(stream, &chunked).await.ends_with("Err(TooLarge)"));
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_put_together() {
        let server = start(limits()).await;
        let request = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
            transfer-encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n1\r\nf\r\n0\r\n\r\n";
        let stream = TcpStream::connect(server.address).await.unwrap();
        assert!(exchange(stream, request).await.ends_with("Ok(6)"));
    }

    #[tokio::test]
    async fn huge_headers_are_refused() {
        let server = start(limits()).await;
        let mut request = b"GET / HTTP/1.1\r\nhost: x\r\nbig: ".to_vec();
        request.resize(request.len() + 100_000, b'a');
        request.extend(b"\r\n\r\n");
        let stream = TcpStream::connect(server.address).await.unwrap();
        assert!(exchange(stream, &request).await.starts_with("HTTP/1.1 431"));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        let stream = TcpStream::connect(server.address).await.unwrap();
        assert!(exchange(stream, many.as_bytes()).await.starts_with("HTTP/1.1 431"));
    }

    #[tokio::test]
    async fn a_client_that_says_nothing_in_time_is_dropped() {
        let time = Duration::from_millis(20);
        let server = start(Limits { idle: time, handshake: time, ..limits() }).await;
        // Nothing, half a head, half an HTTP/2 preface, half a TLS handshake.
        for bytes in [&b""[..], b"GET / HTTP/1.1\r\nhost:", b"PRI * HT", b"\x16"] {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            let mut rest = Vec::new();
            // Ends only because the server closes the connection.
            let _ = stream.read_to_end(&mut rest).await;
        }
    }

    #[tokio::test]
    async fn a_request_under_way_is_answered_when_the_server_stops() {
        let server = start(limits()).await;
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        server.handler.arrived.notified().await;
        assert_eq!(server.handler.open.load(Ordering::SeqCst), 1);
        server.stop.send(()).unwrap();
        server.handler.release.notify_one();
        let answer = exchange(stream, b"").await;
        assert!(answer.ends_with("Ok(0)"), "{answer}");
        server.ended.await.unwrap().unwrap();
        assert_eq!(server.handler.open.load(Ordering::SeqCst), 0);
        assert!(TcpStream::connect(server.address).await.is_err());
    }

    #[tokio::test]
    async fn connections_beyond_the_limit_wait() {
        let server = start(Limits::new(1)).await;
        let mut first = TcpStream::connect(server.address).await.unwrap();
        first
            .write_all(b"GET /wait HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        server.handler.arrived.notified().await;
        let second = TcpStream::connect(server.address).await.unwrap();
        let second = tokio::spawn(exchange(second, GET));
        assert_eq!(server.handler.open.load(Ordering::SeqCst), 1);
        server.handler.release.notify_one();
        assert!(exchange(first, b"").await.ends_with("Ok(0)"));
        assert!(second.await.unwrap().ends_with("Ok(0)"));
    }

    #[tokio::test]
    async fn a_request_cut_in_the_middle_ends_quietly() {
        let server = start(limits()).await;
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let cut = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc";
        stream.write_all(cut).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        let next = TcpStream::connect(server.address).await.unwrap();
        assert!(exchange(next, GET).await.ends_with("Ok(0)"), "the server goes on");
    }
}
