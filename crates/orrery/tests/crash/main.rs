//! Kills a real server under load, again and again, and checks that nothing acknowledged is lost.
//!
//! Sixteen clients create, replace, delete and write batches of two, each on documents of its own, so
//! that each knows exactly what must be there. The process is killed with SIGKILL in the middle. Then
//! `orrery verify` must find nothing wrong, and every client must find every write that was
//! acknowledged; the one write that was under way may be there whole or not at all. Others execute
//! procedures meanwhile, see `scripts`, and cut the ranges of the container anew, see `ranges`.
//!
//! `ORRERY_CRASH_ROUNDS` sets how often; the default is small enough for every test run.

#![expect(clippy::unwrap_used, reason = "a test may stop where a script would")]

#[path = "../../../db/tests/suite/history.rs"]
mod history;
mod ranges;
mod scripts;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use gateway::{EMULATOR_KEY, Key};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use value::Value;

use crate::history::Dice;
use crate::scripts::Lists;

const CLIENTS: u64 = 16;
/// How many clients execute each of the procedures.
const CALLERS: u64 = 3;
/// How many procedures are executed at least before the server is killed.
const CALLS_MIN: u64 = 10;
const CONTAINER: &str = "dbs/crash/colls/items";

struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// Starts the server on a free port and waits for its ready line.
    fn start(data: &std::path::Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_orrery"))
            .args(["serve", "--port", "0", "--log", "error", "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("is piped")).read_line(&mut line).unwrap();
        let port = line.split("https://localhost:").nth(1).and_then(|rest| rest.split('/').next());
        let port = port.and_then(|port| port.parse().ok());
        Self { process, port: port.unwrap_or_else(|| panic!("no ready line: {line:?}")) }
    }

    /// As power loss would: no time for last words.
    fn kill(self) {
        drop(self);
    }
}

impl Drop for Server {
    /// Also when the test fails: no server may outlive it.
    fn drop(&mut self) {
        self.process.kill().expect("the server runs");
        self.process.wait().expect("the server ends");
    }
}

/// One connection that signs its requests.
struct Connection {
    send: SendRequest<Full<Bytes>>,
    key: Key,
}

/// The connection broke: nobody knows whether the request was carried out.
#[derive(Debug)]
struct Lost;

impl Connection {
    async fn open(port: u16) -> Result<Self, Lost> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(|_| Lost)?;
        let (send, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(|_| Lost)?;
        tokio::spawn(driver);
        Ok(Self { send, key: Key::parse(EMULATOR_KEY).unwrap() })
    }

    /// Sends a request. `link` is what the signature names; `path` is below it.
    async fn call(
        &mut self,
        method: &str,
        kind: &str,
        (link, path): (&str, &str),
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<(StatusCode, Option<String>, Value), Lost> {
        #[expect(clippy::disallowed_methods, reason = "the server checks dates against its clock")]
        let date = httpdate::fmt_http_date(std::time::SystemTime::now());
        let verb = method.to_lowercase();
        let payload = format!("{verb}\n{kind}\n{link}\n{}\n\n", date.to_lowercase());
        let signature = self.key.sign(payload.as_bytes());
        let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/{path}"))
            .header("host", "localhost")
            .header("x-ms-version", "2020-07-15")
            .header("x-ms-date", date)
            .header("authorization", format!("type%3Dmaster%26ver%3D1.0%26sig%3D{signature}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        self.send.ready().await.map_err(|_| Lost)?;
        let answer = self.send.send_request(request).await.map_err(|_| Lost)?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
        let token = head.headers.get("x-ms-session-token");
        let token = token.map(|token| token.to_str().unwrap().to_owned());
        let body = if body.is_empty() { Value::Null } else { Value::parse(&body).unwrap() };
        Ok((head.status, token, body))
    }
}

/// What a client knows of its documents: the number in each, or that it is gone.
#[derive(Clone, Default)]
struct Known {
    documents: BTreeMap<String, Option<u64>>,
    /// What the write under way would have changed.
    pending: BTreeMap<String, Option<u64>>,
    /// The newest session token for each range.
    sessions: BTreeMap<String, String>,
    next: u64,
}

fn document(client: u64, id: &str, number: u64) -> String {
    // The unique key has the id in it, so that it is free exactly when the document is gone.
    format!(
        r#"{{"id":"{id}","pk":"p{client}","u":"{id}","n":{number},"fill":"{}"}}"#,
        "x".repeat(200)
    )
}

/// Writes until the server is gone.
async fn write(
    client: u64,
    port: u16,
    known: &mut Known,
    dice: &mut Dice,
    acknowledged: &AtomicU64,
    slowest_ms: &AtomicU64,
) {
    let Ok(mut connection) = Connection::open(port).await else { return };
    let key = format!(r#"["p{client}"]"#);
    loop {
        known.next += 1;
        let number = known.next;
        let existing: Vec<&String> =
            known.documents.iter().filter(|(_, n)| n.is_some()).map(|(id, _)| id).collect();
        let some = (!existing.is_empty())
            .then(|| existing[dice.roll(existing.len() as u64) as usize].clone());
        let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
        let documents = format!("{CONTAINER}/docs");
        #[expect(clippy::disallowed_methods, reason = "tells how long a write took, no more")]
        let began = std::time::Instant::now();
        let (result, change) = match (dice.roll(5), some) {
            (0, Some(id)) => {
                let path = format!("{documents}/{id}");
                known.pending = BTreeMap::from([(id, None)]);
                let call =
                    connection.call("DELETE", "docs", (&path, &path), &headers, String::new());
                (call.await, 204)
            }
            (1, Some(id)) => {
                let path = format!("{documents}/{id}");
                let body = document(client, &id, number);
                known.pending = BTreeMap::from([(id, Some(number))]);
                (connection.call("PUT", "docs", (&path, &path), &headers, body).await, 200)
            }
            (2, _) => {
                let ids = [format!("a{client}-{number}"), format!("b{client}-{number}")];
                let operations = ids.each_ref().map(|id| {
                    let body = document(client, id, number);
                    format!(r#"{{"operationType":"Create","resourceBody":{body}}}"#)
                });
                known.pending = ids.into_iter().map(|id| (id, Some(number))).collect();
                let headers = [
                    headers[0],
                    ("x-ms-cosmos-is-batch-request", "True"),
                    ("x-ms-cosmos-batch-atomic", "True"),
                ];
                let body = format!("[{}]", operations.join(","));
                let call = connection.call("POST", "docs", (CONTAINER, &documents), &headers, body);
                (call.await, 200)
            }
            _ => {
                let id = format!("c{client}-{number}");
                let body = document(client, &id, number);
                known.pending = BTreeMap::from([(id, Some(number))]);
                let call = connection.call("POST", "docs", (CONTAINER, &documents), &headers, body);
                (call.await, 201)
            }
        };
        match result {
            Err(Lost) => return,
            Ok((status, token, body)) => {
                assert_eq!(status.as_u16(), change, "client {client}: {body}");
                let pending = std::mem::take(&mut known.pending);
                known.documents.extend(pending);
                if let Some((range, _)) = token.as_deref().and_then(|token| token.split_once(':')) {
                    known.sessions.insert(range.to_owned(), token.clone().unwrap());
                }
                let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                slowest_ms.fetch_max(took_ms, Ordering::SeqCst);
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

/// Looks for everything that a client knows, and settles what was under way.
async fn check(client: u64, port: u16, known: &mut Known) {
    let mut connection = Connection::open(port).await.expect("the server is back");
    let key = format!(r#"["p{client}"]"#);
    // The server must be at least as far as every write that it acknowledged.
    let session = known.sessions.values().cloned().collect::<Vec<_>>().join(",");
    let mut headers = vec![("x-ms-documentdb-partitionkey", key.as_str())];
    if !session.is_empty() {
        headers.push(("x-ms-session-token", session.as_str()));
    }
    let pending = std::mem::take(&mut known.pending);
    let mut applied = Vec::new();
    let ids: BTreeSet<String> = known.documents.keys().chain(pending.keys()).cloned().collect();
    for id in ids {
        let path = format!("{CONTAINER}/docs/{id}");
        let call = connection.call("GET", "docs", (&path, &path), &headers, String::new());
        let (status, _, body) = call.await.expect("the server answers");
        let found = match status.as_u16() {
            200 => Some(body.get("n").and_then(Value::as_i64).expect("has a number") as u64),
            404 => None,
            other => panic!("client {client}, document {id}: status {other}: {body}"),
        };
        let before = known.documents.get(&id).copied().flatten();
        match pending.get(&id) {
            Some(after) if found == *after && found != before => {
                applied.push(true);
                known.documents.insert(id, found);
            }
            Some(_) => {
                applied.push(false);
                assert_eq!(found, before, "client {client}, document {id} was under way");
            }
            None => assert_eq!(found, before, "client {client}, document {id} was acknowledged"),
        }
    }
    applied.dedup();
    assert!(applied.len() <= 1, "client {client}: a batch was carried out in part");
}

async fn prepare(port: u16) {
    let mut connection = Connection::open(port).await.unwrap();
    let body = r#"{"id":"crash"}"#.to_owned();
    let (status, _, body) = connection.call("POST", "dbs", ("", "dbs"), &[], body).await.unwrap();
    assert_eq!(status, 201, "{body}");
    let body = r#"{"id":"items","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
                   "defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}}"#;
    let headers = [("x-ms-offer-throughput", "20000")];
    let call =
        connection.call("POST", "colls", ("dbs/crash", "dbs/crash/colls"), &headers, body.into());
    let (status, _, body) = call.await.unwrap();
    assert_eq!(status, 201, "{body}");
    scripts::prepare(&mut connection).await;
}

fn verify(data: &std::path::Path) {
    let verified = Command::new(env!("CARGO_BIN_EXE_orrery"))
        .args(["verify", "--data"])
        .arg(data)
        .output()
        .expect("verify runs");
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success(), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost() {
    let rounds = std::env::var("ORRERY_CRASH_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut clients: Vec<(u64, Known, Dice)> =
        (0..CLIENTS).map(|client| (client, Known::default(), Dice(client))).collect();
    let mut dice = Dice(4711);
    let mut total = 0;
    let mut called = 0;
    let cuts = Arc::new(AtomicU64::new(0));
    let slowest_ms = Arc::new(AtomicU64::new(0));
    let mut written: Option<(Lists, Vec<history::Transaction>)> = None;
    for round in 0..rounds {
        let server = Server::start(&data);
        let port = server.port;
        if round == 0 {
            prepare(port).await;
        }
        // Everybody looks before anybody writes: the server dies as soon as enough is written.
        let looking: Vec<_> = clients
            .drain(..)
            .map(|(client, mut known, dice)| {
                tokio::spawn(async move {
                    check(client, port, &mut known).await;
                    (client, known, dice)
                })
            })
            .collect();
        for client in looking {
            clients.push(client.await.expect("the client found what it knew"));
        }
        let mut connection = Connection::open(port).await.unwrap();
        scripts::check_total(&mut connection).await;
        if let Some((lists, transactions)) = written.take() {
            lists.check(&mut connection, transactions).await;
        }
        let lists = Lists::start(&mut connection, round).await;
        let calls = Arc::new(AtomicU64::new(0));
        let seed = |caller| Dice(1 + round * CALLERS + caller);
        let tellers: Vec<_> = (0..CALLERS)
            .map(|caller| tokio::spawn(scripts::transfer(port, seed(caller), calls.clone())))
            .collect();
        let scribes: Vec<_> = (0..CALLERS)
            .map(|caller| tokio::spawn(lists.clone().write(port, seed(caller), calls.clone())))
            .collect();
        let cutter = tokio::spawn(ranges::cut(port, Dice(7 + round), cuts.clone()));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let enough = 50 + dice.roll(800);
        let writers: Vec<_> = clients
            .drain(..)
            .map(|(client, mut known, mut dice)| {
                let (acknowledged, slowest_ms) = (acknowledged.clone(), slowest_ms.clone());
                tokio::spawn(async move {
                    write(client, port, &mut known, &mut dice, &acknowledged, &slowest_ms).await;
                    (client, known, dice)
                })
            })
            .collect();
        let is_enough = || {
            acknowledged.load(Ordering::SeqCst) >= enough
                && calls.load(Ordering::SeqCst) >= CALLS_MIN
        };
        let has_failed = || {
            writers.iter().any(|writer| writer.is_finished())
                || tellers.iter().any(|teller| teller.is_finished())
                || scribes.iter().any(|scribe| scribe.is_finished())
                || cutter.is_finished()
        };
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(2));
        while !is_enough() && !has_failed() {
            ticks.tick().await;
        }
        server.kill();
        cutter.await.expect("the server cuts as often as it is asked to");
        for writer in writers {
            clients.push(writer.await.expect("the server takes every write"));
        }
        for teller in tellers {
            teller.await.expect("the server takes every transfer");
        }
        let mut transactions = Vec::new();
        for scribe in scribes {
            transactions.extend(scribe.await.expect("the server takes every transaction"));
        }
        written = Some((lists, transactions));
        total += acknowledged.load(Ordering::SeqCst);
        called += calls.load(Ordering::SeqCst);
        verify(&data);
    }
    let server = Server::start(&data);
    for (client, known, _) in &mut clients {
        check(*client, server.port, known).await;
    }
    let mut connection = Connection::open(server.port).await.unwrap();
    scripts::check_total(&mut connection).await;
    if let Some((lists, transactions)) = written {
        lists.check(&mut connection, transactions).await;
    }
    server.kill();
    assert!(total > 0, "nothing was written");
    let (cuts, slowest_ms) = (cuts.load(Ordering::SeqCst), slowest_ms.load(Ordering::SeqCst));
    assert!(cuts > 0, "no range was cut anew");
    println!(
        "{rounds} kills, {total} acknowledged writes and {called} procedures, none lost; ranges cut \
         {cuts} times meanwhile, the slowest write took {slowest_ms} ms"
    );
}
