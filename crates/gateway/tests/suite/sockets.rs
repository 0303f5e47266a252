//! The same over real sockets.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{DATE, Server, sign, start};
use gateway::EMULATOR_KEY;

struct Running {
    server: Server,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<std::io::Result<()>>,
}

async fn run() -> Running {
    let server = start().await.with_container().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async {
        let _ = stopped.await;
    };
    let ended = tokio::spawn(server.gateway.clone().serve(listener, shutdown));
    Running { server, address, stop, ended }
}

fn head(method: &str, path: &str, more: &str) -> String {
    let authorization = sign(EMULATOR_KEY, method, path, DATE);
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         authorization: {authorization}\r\nx-ms-date: {DATE}\r\n\
         x-ms-documentdb-partitionkey: [\"a\"]\r\n{more}\r\n"
    )
}

async fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

const DOCS: &str = "/dbs/d/colls/c/docs";

#[tokio::test]
async fn a_document_is_written_and_read() {
    let running = run().await;
    let body = r#"{"id":"1","pk":"a"}"#;
    let request = head("POST", DOCS, &format!("content-length: {}\r\n", body.len())) + body;
    let answer = exchange(running.address, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
    assert!(answer.contains("\r\ncontent-length: "), "{answer}");
    let path = "/dbs/d/colls/c/docs/1";
    let answer = exchange(running.address, head("GET", path, "").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    running.stop.send(()).unwrap();
    running.ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_refused_client_still_sees_why() {
    let running = run().await;
    let length = 3 * 1024 * 1024;
    let mut request = head("POST", DOCS, &format!("content-length: {length}\r\n")).into_bytes();
    request.resize(request.len() + length, b'x');
    let answer = exchange(running.address, &request).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("RequestEntityTooLarge"), "{answer}");
    let unsigned = format!(
        "POST {DOCS} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    let mut unsigned = unsigned.into_bytes();
    unsigned.resize(unsigned.len() + length, b'x');
    let answer = exchange(running.address, &unsigned).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert_eq!(running.server.documents(), 0);
}

#[tokio::test]
async fn a_request_cut_in_the_middle_writes_nothing() {
    let running = run().await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let request = head("POST", DOCS, "content-length: 100\r\n") + r#"{"id":"1","pk":"a"}"#;
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert_eq!(running.server.documents(), 0);
    let answer = exchange(running.address, head("GET", "/dbs", "").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "the server goes on: {answer}");
}

#[tokio::test]
async fn what_is_not_http_is_refused() {
    let running = run().await;
    let answer = exchange(running.address, b"\x00\x01\x02\x03\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let smuggled = b"POST /dbs HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\
        transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /";
    let answer = exchange(running.address, smuggled).await;
    assert!(answer.matches("HTTP/1.1").count() <= 2 && !answer.contains(" 200 "), "{answer}");
    let twice = b"POST /dbs HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n";
    assert!(exchange(running.address, twice).await.starts_with("HTTP/1.1 400 "));
}
