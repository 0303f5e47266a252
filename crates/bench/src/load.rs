//! What the load does, over many connections at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Method;
use tokio::task::JoinSet;
use value::Value;

use crate::Failure;
use crate::client::{Answer, Call, Connection};

/// The database of every container here.
const DATABASE: &str = "dbs/bench";

/// The container of the rows about single documents.
pub(crate) const ITEMS: &str = "items";

/// How many logical partitions the documents of `items` are spread over.
const PARTITIONS: u64 = 1_000;

/// A document on its way into a container.
pub(crate) struct Document {
    pub(crate) partition: String,
    pub(crate) id: String,
    pub(crate) text: String,
}

/// The document of `items` with a number.
pub(crate) fn item(number: u64) -> Document {
    let (partition, id) = item_place(number);
    Document { partition, text: document(&id, number), id }
}

/// Partition and id of the document of `items` with a number.
pub(crate) fn item_place(number: u64) -> (String, String) {
    (partition(number), format!("d{number}"))
}

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

/// Creates the database.
pub(crate) async fn create_database(port: u16) -> Result<(), Failure> {
    create(port, "dbs", "", r#"{"id":"bench"}"#.to_owned()).await
}

/// Creates a container; without an indexing policy it has the default one.
pub(crate) async fn create_container(
    port: u16,
    name: &str,
    indexing_policy: Option<&str>,
) -> Result<(), Failure> {
    create(port, "colls", DATABASE, definition(name, indexing_policy)).await
}

fn definition(name: &str, indexing_policy: Option<&str>) -> String {
    let policy = indexing_policy.map(|policy| format!(r#","indexingPolicy":{policy}"#));
    format!(
        r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{}}}"#,
        policy.unwrap_or_default()
    )
}

/// Gives a container another indexing policy and waits until all documents are indexed by it.
pub(crate) async fn index(port: u16, name: &str, indexing_policy: &str) -> Result<(), Failure> {
    const LOOK_EVERY: Duration = Duration::from_millis(200);
    let body = definition(name, Some(indexing_policy));
    let (link, mut connection) = (link(name), Connection::open(port).await?);
    let path = format!("/{link}");
    let call = |method, body| Call {
        method,
        kind: "colls",
        link: &link,
        path: &path,
        headers: &[("x-ms-documentdb-populatequotainfo", "True")],
        body,
    };
    connection.call(call(Method::PUT, Bytes::from(body))).await?.expect(200)?;
    loop {
        let answer = connection.call(call(Method::GET, Bytes::new())).await?;
        answer.expect(200)?;
        match answer.header("x-ms-documentdb-collection-index-transformation-progress") {
            Some("100") => return Ok(()),
            Some(_) => tokio::time::sleep(LOOK_EVERY).await,
            None => return Err("the progress of the index is not told".into()),
        }
    }
}

async fn create(port: u16, kind: &str, link: &str, body: String) -> Result<(), Failure> {
    let parent = if link.is_empty() { String::new() } else { format!("/{link}") };
    let path = format!("{parent}/{kind}");
    let body = Bytes::from(body);
    let call = Call { method: Method::POST, kind, link, path: &path, headers: &[], body };
    Connection::open(port).await?.call(call).await?.expect(201)
}

/// Stores a procedure (`sprocs`), a trigger (`triggers`) or a function (`udfs`) in a container.
pub(crate) async fn create_script(
    port: u16,
    container: &str,
    kind: &str,
    body: String,
) -> Result<(), Failure> {
    create(port, kind, &link(container), body).await
}

fn link(container: &str) -> String {
    format!("{DATABASE}/colls/{container}")
}

/// Loads documents 0 to `count` by bulk requests of 100; how many bytes of JSON they were.
pub(crate) async fn bulk(
    port: u16,
    container: &str,
    count: u64,
    connections: usize,
    make: impl Fn(u64) -> Document + Clone + Send + 'static,
) -> Result<u64, Failure> {
    const AT_ONCE: u64 = 100;
    let (next, bytes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (next, bytes, make) = (next.clone(), bytes.clone(), make.clone());
        let link = link(container);
        tasks.spawn(async move {
            let mut connection = Connection::open(port).await?;
            loop {
                let from = next.fetch_add(AT_ONCE, Ordering::SeqCst);
                if from >= count {
                    return Ok::<(), Failure>(());
                }
                let documents = (from..(from + AT_ONCE).min(count)).map(&make).collect();
                bytes.fetch_add(store(&mut connection, &link, documents).await?, Ordering::Relaxed);
                if from.is_multiple_of(100_000) && from > 0 {
                    eprintln!("{from} documents");
                }
            }
        });
    }
    finish(tasks).await?;
    Ok(bytes.load(Ordering::Relaxed))
}

/// Stores documents by one bulk request, and again those that the server had no room for.
async fn store(
    connection: &mut Connection,
    link: &str,
    mut documents: Vec<Document>,
) -> Result<u64, Failure> {
    let path = format!("/{link}/docs");
    let bytes = documents.iter().map(|document| document.text.len() as u64).sum();
    // The documents are not wanted back, as COPY does not send them back.
    let headers = [
        ("x-ms-cosmos-is-batch-request", "True"),
        ("x-ms-cosmos-batch-atomic", "False"),
        ("x-ms-cosmos-batch-continue-on-error", "True"),
        ("x-ms-documentdb-partitionkeyrangeid", "0"),
        ("prefer", "return=minimal"),
    ];
    while !documents.is_empty() {
        let operations: Vec<String> = documents
            .iter()
            .map(|Document { partition, text, .. }| {
                format!(
                    r#"{{"operationType":"Create","partitionKey":"[\"{partition}\"]","resourceBody":{text}}}"#
                )
            })
            .collect();
        let body = Bytes::from(format!("[{}]", operations.join(",")));
        let call =
            Call { method: Method::POST, kind: "docs", link, path: &path, headers: &headers, body };
        let answer = connection.call(call).await?;
        let mut refused = refused(&answer)?;
        documents.retain(|_| refused.pop_front().unwrap_or(false));
        if !documents.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(bytes)
}

/// Which operations of a bulk request are to be sent again: those that met 429.
fn refused(answer: &Answer) -> Result<VecDeque<bool>, Failure> {
    if answer.status.as_u16() != 207 {
        answer.expect(200)?;
        return Ok(VecDeque::new());
    }
    let results = Value::parse(&answer.body)?;
    let results = results.as_array().ok_or("the answer to a bulk request is no array")?;
    let mut refused = VecDeque::new();
    for result in results {
        match result.get("statusCode").and_then(Value::as_i64) {
            Some(201) => refused.push_back(false),
            Some(429) => refused.push_back(true),
            _ => return Err(format!("a document was refused: {}", result.to_text()).into()),
        }
    }
    Ok(refused)
}

/// Reads one document.
pub(crate) async fn read(
    connection: &mut Connection,
    container: &str,
    partition: &str,
    id: &str,
) -> Result<(), Failure> {
    let key = format!("[\"{partition}\"]");
    let path = format!("/{}/docs/{id}", link(container));
    let call = Call {
        method: Method::GET,
        kind: "docs",
        link: &path[1..],
        path: &path,
        headers: &[("x-ms-documentdb-partitionkey", &key)],
        body: Bytes::new(),
    };
    connection.call(call).await?.expect(200)
}

/// One page of a query, in one partition or over all.
pub(crate) async fn query(
    connection: &mut Connection,
    container: &str,
    partition: Option<&str>,
    continuation: Option<&str>,
    body: Bytes,
) -> Result<Answer, Failure> {
    let link = link(container);
    let path = format!("/{link}/docs");
    let key = partition.map(|partition| format!("[\"{partition}\"]"));
    let mut headers = vec![
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-isquery", "True"),
        ("x-ms-max-item-count", "-1"),
    ];
    match &key {
        Some(key) => headers.push(("x-ms-documentdb-partitionkey", key)),
        None => headers.push(("x-ms-documentdb-query-enablecrosspartition", "True")),
    }
    if let Some(continuation) = continuation {
        headers.push(("x-ms-continuation", continuation));
    }
    let call = Call {
        method: Method::POST,
        kind: "docs",
        link: &link,
        path: &path,
        headers: &headers,
        body,
    };
    let answer = connection.call(call).await?;
    answer.expect(200)?;
    Ok(answer)
}

/// Point reads for a time; the rate. `place` gives partition and id of the documents 0 to `documents`.
pub(crate) async fn reads(
    port: u16,
    container: &'static str,
    connections: usize,
    documents: u64,
    place: impl Fn(u64) -> (String, String) + Clone + Send + Sync + 'static,
    time: Duration,
) -> Result<f64, Failure> {
    rate(
        connections,
        time,
        move |worker, step, mut connection| {
            let (partition, id) = place((worker * 7_919 + step * 104_729) % documents);
            async move {
                read(&mut connection, container, &partition, &id).await?;
                Ok(connection)
            }
        },
        port,
    )
    .await
}

/// Creates in `items` for a time; the rate. `round` keeps ids of several calls apart.
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
            let link = link(ITEMS);
            let call = Call {
                method: Method::POST,
                kind: "docs",
                link: &link,
                path: &format!("/{link}/docs"),
                headers: &[("x-ms-documentdb-partitionkey", &key)],
                body: Bytes::from(document(&format!("c{round}-{worker}-{step}"), number)),
            };
            connection.call(call).await?.expect(201)?;
            Ok(connection)
        },
        port,
    )
    .await
}

/// A request that is repeated, each time with another body.
pub(crate) struct Post {
    /// What is posted to, below the container: its documents, or one of its procedures.
    pub(crate) to: &'static str,
    pub(crate) partition: String,
    pub(crate) headers: &'static [(&'static str, &'static str)],
    pub(crate) body: String,
    pub(crate) expected: u16,
}

/// Posts to a container for a time; the rate. `make` is given the connection and the step.
pub(crate) async fn posts(
    port: u16,
    container: &'static str,
    connections: usize,
    time: Duration,
    make: impl Fn(u64, u64) -> Post + Clone + Send + Sync + 'static,
) -> Result<f64, Failure> {
    rate(
        connections,
        time,
        move |worker, step, mut connection| {
            let post = make(worker, step);
            async move {
                let key = format!("[\"{}\"]", post.partition);
                let owner = link(container);
                let path = format!("/{owner}/{}", post.to);
                // A procedure is signed with its own link, a new document with that of its owner.
                let (kind, link) = match post.to.split_once('/') {
                    None => (post.to, &owner[..]),
                    Some((kind, _)) => (kind, &path[1..]),
                };
                let mut headers: Vec<(&'static str, &str)> = post.headers.to_vec();
                headers.push(("x-ms-documentdb-partitionkey", &key));
                let (body, headers) = (Bytes::from(post.body), &headers[..]);
                let call = Call { method: Method::POST, kind, link, path: &path, headers, body };
                connection.call(call).await?.expect(post.expected)?;
                Ok(connection)
            }
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

/// Waits for all; the first failure ends the rest.
pub(crate) async fn finish(mut tasks: JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}
