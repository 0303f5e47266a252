//! What the load does, over many connections at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use tokio::task::JoinSet;

use crate::Failure;
use crate::client::{Call, Connection, expect};

const DATABASE: &str = "dbs/bench";
const CONTAINER: &str = "dbs/bench/colls/items";
const DOCUMENTS: &str = "/dbs/bench/colls/items/docs";

/// How many logical partitions the documents are spread over.
const PARTITIONS: u64 = 1_000;

fn partition(number: u64) -> String {
    format!("p{}", number % PARTITIONS)
}

/// A document of about 1 KiB with fifteen properties, like an order.
pub(crate) fn document(id: &str, number: u64) -> String {
    let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let filler: String = (0..28).map(|at| format!("{:016x}", spread.rotate_left(at))).collect();
    format!(
        r#"{{"id":"{id}","pk":"{}","customer":"customer-{}","status":"{}","total":{}.5,"currency":"EUR","created":"2026-01-{:02}T10:00:00Z","city":"city-{}","country":"DE","items":[{{"sku":"s{}","count":{}}},{{"sku":"s{}","count":1}}],"tags":["a","b"],"priority":{},"paid":true,"note":null,"filler":"{}"}}"#,
        partition(number),
        spread % 10_007,
        ["new", "paid", "sent"][(spread % 3) as usize],
        spread % 1_000,
        1 + spread % 28,
        spread % 200,
        spread % 5_000,
        1 + spread % 9,
        spread % 4_999,
        spread % 5,
        filler
    )
}

/// Creates the database and the container.
pub(crate) async fn prepare(port: u16) -> Result<(), Failure> {
    let mut connection = Connection::open(port).await?;
    for (kind, link, path, body) in [
        ("dbs", "", "/dbs", r#"{"id":"bench"}"#),
        (
            "colls",
            DATABASE,
            "/dbs/bench/colls",
            r#"{"id":"items","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#,
        ),
    ] {
        let body = Bytes::from(body);
        let call = Call { method: Method::POST, kind, link, path, headers: &[], body };
        expect(connection.call(call).await?, 201)?;
    }
    Ok(())
}

/// Loads documents 0 to count by bulk requests of 100.
pub(crate) async fn bulk(port: u16, count: u64, connections: usize) -> Result<(), Failure> {
    const AT_ONCE: u64 = 100;
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let next = next.clone();
        tasks.spawn(async move {
            let mut connection = Connection::open(port).await?;
            loop {
                let from = next.fetch_add(AT_ONCE, Ordering::SeqCst);
                if from >= count {
                    return Ok::<(), Failure>(());
                }
                let operations: Vec<String> = (from..(from + AT_ONCE).min(count))
                    .map(|number| {
                        let body = document(&format!("d{number}"), number);
                        format!(
                            r#"{{"operationType":"Create","partitionKey":"[\"{}\"]","resourceBody":{body}}}"#,
                            partition(number)
                        )
                    })
                    .collect();
                let headers = [
                    ("x-ms-cosmos-is-batch-request", "True"),
                    ("x-ms-cosmos-batch-atomic", "False"),
                    ("x-ms-cosmos-batch-continue-on-error", "True"),
                    ("x-ms-documentdb-partitionkeyrangeid", "0"),
                ];
                let body = Bytes::from(format!("[{}]", operations.join(",")));
                let call = Call {
                    method: Method::POST,
                    kind: "docs",
                    link: CONTAINER,
                    path: DOCUMENTS,
                    headers: &headers,
                    body,
                };
                expect(connection.call(call).await?, 200)?;
                if from.is_multiple_of(100_000) && from > 0 {
                    eprintln!("{from} documents");
                }
            }
        });
    }
    finish(tasks).await
}

/// Reads one document.
pub(crate) async fn read_one(port: u16, number: u64) -> Result<(), Failure> {
    let mut connection = Connection::open(port).await?;
    read(&mut connection, number).await
}

async fn read(connection: &mut Connection, number: u64) -> Result<(), Failure> {
    let key = format!("[\"{}\"]", partition(number));
    let path = format!("{DOCUMENTS}/d{number}");
    let call = Call {
        method: Method::GET,
        kind: "docs",
        link: &path[1..],
        path: &path,
        headers: &[("x-ms-documentdb-partitionkey", &key)],
        body: Bytes::new(),
    };
    expect(connection.call(call).await?, 200)
}

/// Point reads for a time; the rate.
pub(crate) async fn reads(
    port: u16,
    connections: usize,
    documents: u64,
    time: Duration,
) -> Result<f64, Failure> {
    rate(
        connections,
        time,
        move |worker, step, mut connection| async move {
            let number = (worker * 7_919 + step * 104_729) % documents;
            read(&mut connection, number).await?;
            Ok(connection)
        },
        port,
    )
    .await
}

/// Creates for a time; the rate. `round` keeps ids of several calls apart.
pub(crate) async fn creates(
    port: u16,
    connections: usize,
    round: u64,
    time: Duration,
) -> Result<f64, Failure> {
    rate(
        connections,
        time,
        move |worker, step, mut connection| async move {
            let number = step * 64 + worker;
            let key = format!("[\"{}\"]", partition(number));
            let call = Call {
                method: Method::POST,
                kind: "docs",
                link: CONTAINER,
                path: DOCUMENTS,
                headers: &[("x-ms-documentdb-partitionkey", &key)],
                body: Bytes::from(document(&format!("c{round}-{worker}-{step}"), number)),
            };
            expect(connection.call(call).await?, 201)?;
            Ok(connection)
        },
        port,
    )
    .await
}

/// Repeats a request on every connection for a time; how many per second.
async fn rate<F, Fut>(
    connections: usize,
    time: Duration,
    request: F,
    port: u16,
) -> Result<f64, Failure>
where
    F: Fn(u64, u64, Connection) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<Connection, Failure>> + Send,
{
    let done = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for worker in 0..connections as u64 {
        let (done, request) = (done.clone(), request.clone());
        tasks.spawn(async move {
            let mut connection = Connection::open(port).await?;
            let mut step = 0;
            while started.elapsed() < time {
                connection = request(worker, step, connection).await?;
                step += 1;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), Failure>(())
        });
    }
    finish(tasks).await?;
    Ok(done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}

async fn finish(mut tasks: JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}
