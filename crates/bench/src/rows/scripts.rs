//! B9: what scripts cost, side by side with the same work without them.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use value::Value;

use crate::client::Connection;
use crate::load::{self, Post};
use crate::report::Report;
use crate::server::Server;
use crate::{CONNECTIONS, Failure, Settings, median};

/// How many documents a procedure or a batch creates.
const AT_ONCE: u64 = 10;
/// How many documents the function is called for at most.
const CALLED_MAX: u64 = 100_000;
/// Documents that queries look at, away from those that are created meanwhile.
const QUERIED: &str = "queried";

const CREATE_ALL: &str = "function (bodies) {
    const c = getContext().getCollection();
    let created = 0;
    for (const body of bodies) {
        c.createDocument(c.getSelfLink(), body, (error) => {
            if (error) throw error;
            created += 1;
            if (created === bodies.length) getContext().getResponse().setBody(created);
        });
    }
}";
const EMPTY: &str = "function () {}";
const CHECK: &str = "function () {
    const request = getContext().getRequest(), body = request.getBody();
    if (!(body.total >= 0)) throw new Error(400, 'the total is missing');
    body.checked = true;
    request.setBody(body);
}";
const TWICE: &str = "function (number) { return number * 2; }";

const BATCH: &[(&str, &str)] = &[
    ("x-ms-cosmos-is-batch-request", "True"),
    ("x-ms-cosmos-batch-atomic", "True"),
    ("prefer", "return=minimal"),
];
const PLAIN: &[(&str, &str)] = &[("prefer", "return=minimal")];
const TRIGGERED: &[(&str, &str)] =
    &[("prefer", "return=minimal"), ("x-ms-documentdb-pre-trigger-include", "check")];

pub(crate) async fn measure(
    report: &mut Report,
    settings: &Settings,
    directory: &Path,
) -> Result<(), Failure> {
    let server = Server::start(&directory.join("scripts")).await?;
    let port = server.port;
    load::create_database(port).await?;
    load::create_container(port, load::ITEMS, None).await?;
    let script = |id: &str, source: &str, rest: &str| {
        format!(r#"{{"id":"{id}","body":{}{rest}}}"#, Value::from(source).to_text())
    };
    for (id, source) in [("create", CREATE_ALL), ("empty", EMPTY)] {
        load::create_script(port, load::ITEMS, "sprocs", script(id, source, "")).await?;
    }
    let trigger = script("check", CHECK, r#","triggerType":"Pre","triggerOperation":"Create""#);
    load::create_script(port, load::ITEMS, "triggers", trigger).await?;

    let time = settings.measure;
    let [procedures, batches] = in_turns(port, "p", CONNECTIONS, time, [procedure, batch]).await?;
    let what = "procedures that create 10 documents, 64 connections";
    report.rate("B9", what, procedures, None, "");
    let what = "transactional batches of the same";
    report.rate("", what, batches, Some(procedures), "budget at least 0.5");

    let [triggered, plain] = in_turns(port, "t", CONNECTIONS, time, [triggered, single]).await?;
    report.rate("", "creates with a pre-trigger, 64 connections", triggered, None, "");
    report.rate("", "creates without", plain, Some(triggered), "");

    let [calls, creates] = in_turns(port, "e", 1, time, [empty, single]).await?;
    let what = format!("empty procedure, 1 connection: {:.0} µs a call", 1e6 / calls);
    report.rate("", &what, calls, None, "");
    report.rate("", "creates of one document, 1 connection", creates, Some(calls), "");
    functions(report, settings, port).await?;
    server.stop().await
}

/// A kind of request: given a name that no other has, and a number that chooses the partition.
type Work = fn(&str, u64) -> Post;

/// Three turns each, so that a bad moment of the machine hits both alike; the medians count.
async fn in_turns(
    port: u16,
    name: &'static str,
    connections: usize,
    time: Duration,
    works: [Work; 2],
) -> Result<[f64; 2], Failure> {
    let mut rates = [Vec::new(), Vec::new()];
    for turn in 0..3 {
        for (at, work) in works.into_iter().enumerate() {
            let make = move |worker: u64, step: u64| {
                work(&format!("{name}{at}-{turn}-{worker}-{step}"), worker + step * 64)
            };
            let rate = load::posts(port, load::ITEMS, connections, time / 3, make).await?;
            rates[at].push(rate);
        }
    }
    Ok(rates.map(|mut rates| median(&mut rates)))
}

fn partition(number: u64) -> String {
    load::item_place(number).0
}

fn documents(name: &str, number: u64) -> impl Iterator<Item = String> {
    (0..AT_ONCE).map(move |at| load::document(&format!("{name}-{at}"), number))
}

fn procedure(name: &str, number: u64) -> Post {
    let bodies = documents(name, number).collect::<Vec<_>>().join(",");
    let body = format!("[[{bodies}]]");
    let partition = partition(number);
    Post { to: "sprocs/create", partition, headers: &[], body, expected: 200 }
}

fn batch(name: &str, number: u64) -> Post {
    let operation = |body| format!(r#"{{"operationType":"Create","resourceBody":{body}}}"#);
    let body = documents(name, number).map(operation).collect::<Vec<_>>().join(",");
    let (partition, body) = (partition(number), format!("[{body}]"));
    Post { to: "docs", partition, headers: BATCH, body, expected: 200 }
}

fn single(name: &str, number: u64) -> Post {
    let (partition, body) = (partition(number), load::document(name, number));
    Post { to: "docs", partition, headers: PLAIN, body, expected: 201 }
}

fn triggered(name: &str, number: u64) -> Post {
    Post { headers: TRIGGERED, ..single(name, number) }
}

fn empty(_: &str, number: u64) -> Post {
    let (partition, body) = (partition(number), "[]".to_owned());
    Post { to: "sprocs/empty", partition, headers: &[], body, expected: 200 }
}

/// A function in a query, over documents in one container, against the same query without.
async fn functions(report: &mut Report, settings: &Settings, port: u16) -> Result<(), Failure> {
    let count = settings.orders().count.min(CALLED_MAX);
    load::create_container(port, QUERIED, None).await?;
    load::bulk(port, QUERIED, count, CONNECTIONS, load::item).await?;
    let function = format!(r#"{{"id":"twice","body":{}}}"#, Value::from(TWICE).to_text());
    load::create_script(port, QUERIED, "udfs", function).await?;
    let mut connection = Connection::open(port).await?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let mut answers = Vec::new();
    for _ in 0..3 {
        for (text, times) in [
            ("SELECT VALUE SUM(udf.twice(c.total)) FROM c", &mut with),
            ("SELECT VALUE SUM(c.total * 2) FROM c", &mut without),
        ] {
            let body = Bytes::from(format!(r#"{{"query":"{text}","parameters":[]}}"#));
            let started = Instant::now();
            let answer = load::query(&mut connection, QUERIED, None, None, body).await?;
            times.push(started.elapsed().as_secs_f64());
            let rows = Value::parse(&answer.body)?.get("Documents").map(Value::to_text);
            answers.push(rows.ok_or("the answer has no rows")?);
        }
    }
    if answers.iter().any(|answer| *answer != answers[0]) {
        return Err(format!("the queries disagree: {answers:?}").into());
    }
    let (with, without) = (median(&mut with), median(&mut without));
    let what = format!("SUM of a function over {count} documents");
    report.row("", &what, format!("{:.0} ms", with * 1_000.0), "");
    let each = (with - without).max(0.0) * 1e6 / count as f64;
    let figure = format!("{:.0} ms, ratio {:.2}", without * 1_000.0, without / with);
    report.row("", "the same without the function", figure, &format!("{each:.1} µs a call"));
    Ok(())
}
