//! A bare hyper server that answers everything with 1 KiB: what HTTP alone costs.

use std::convert::Infallible;
use std::process::Stdio;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::Failure;

/// The responder as its own process, as the server is.
pub(crate) struct Responder {
    process: Child,
    pub(crate) port: u16,
}

impl Responder {
    pub(crate) async fn start() -> Result<Self, Failure> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("responder")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().ok_or("the responder has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).await?;
        Ok(Self { process, port: line.trim().parse()? })
    }

    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        Ok(self.process.kill().await?)
    }
}

/// Serves until the process is ended.
pub(crate) async fn run() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    let body = Bytes::from(crate::load::document("d0", 0));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let body = body.clone();
        tokio::spawn(async move {
            let service = service_fn(move |_: Request<_>| {
                let answer = Response::builder()
                    .header("content-type", "application/json")
                    .header("x-ms-request-charge", "1")
                    .header("x-ms-session-token", "0:-1#1")
                    .header("etag", "\"0\"")
                    .body(Full::new(body.clone()));
                async move { Ok::<_, Infallible>(answer.expect("the headers are valid")) }
            });
            // A connection that breaks is the load's business.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
