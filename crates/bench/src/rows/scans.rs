//! B7: filter and aggregate over paths that no index has, so that every document is looked at.

use std::path::Path;
use std::time::Duration;

use crate::measure::{Kind, Speed, Target, compare, in_turns};
use crate::orders::{Orders, Scope};
use crate::postgres::Postgres;
use crate::question::{Question, Shape};
use crate::report::{Report, millis};
use crate::server::Server;
use crate::{CONNECTIONS, Failure, Settings, load};

const SCANNED: &str = "scanned";

/// More documents would take longer and say the same.
const DOCUMENTS_MAX: u64 = 200_000;

const POLICY: &str = r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/address/*"},{"path":"/total/?"},{"path":"/\"_etag\"/?"}]}"#;

pub(crate) async fn measure(
    report: &mut Report,
    settings: &Settings,
    directory: &Path,
    postgres: Option<&Postgres>,
) -> Result<(), Failure> {
    let orders = Orders { count: settings.orders().count.min(DOCUMENTS_MAX) };
    eprintln!("loading {} documents for scans", orders.count);
    let server = Server::start(&directory.join("scans")).await?;
    load::create_database(server.port).await?;
    load::create_container(server.port, SCANNED, Some(POLICY)).await?;
    let make = move |number| orders.order(number);
    let bytes = load::bulk(server.port, SCANNED, orders.count, CONNECTIONS, make).await?;
    server.settle().await?;

    let orrery = Kind::Orrery { container: SCANNED };
    let mut targets = vec![Target { server: orrery, port: server.port, orders }];
    if let Some(postgres) = postgres {
        postgres.run("CREATE TABLE scanned (pk text, id text, body jsonb)").await?;
        postgres.copy(SCANNED, orders.count, 1, make).await?;
        postgres.run("VACUUM ANALYZE scanned").await?;
        for settings in [
            "SET max_parallel_workers_per_gather = 0",
            "SET max_parallel_workers_per_gather = 8; SET parallel_setup_cost = 0",
        ] {
            let server = Kind::Postgres { settings };
            targets.push(Target { server, port: postgres.port, orders });
        }
    }
    for shape in [Shape::Filter, Shape::Sum] {
        let question = Question::new(shape, Scope::Across, SCANNED);
        match one(&targets, &question, &server, settings.measure).await {
            Ok((speeds, cpu)) => add(report, &question, bytes, &speeds, cpu),
            Err(reason) => report.failure("B7", &question.name(), &reason),
        }
    }
    server.stop().await
}

/// The times of the answers, and the server's CPU time for one.
async fn one(
    targets: &[Target],
    question: &Question,
    server: &Server,
    time: Duration,
) -> Result<(Vec<Speed>, Duration), Failure> {
    // The clock of CPU time ticks a hundred times a second, so one answer would not do.
    const TIMES: u64 = 10;
    compare(targets, question).await?;
    let speeds = in_turns(targets, question, 1, time).await?;
    let before = server.cpu()?;
    targets[0].repeat(question, TIMES).await?;
    Ok((speeds, (server.cpu()? - before) / TIMES as u32))
}

fn add(report: &mut Report, question: &Question, bytes: u64, speeds: &[Speed], cpu: Duration) {
    let megabytes = bytes as f64 / 1_000_000.0;
    let rate = |time: Duration| megabytes / time.as_secs_f64().max(1e-9);
    let ours = speeds[0].latency;
    let what =
        format!("{}, {megabytes:.0} MB of JSON, {:.0} rows", question.name(), speeds[0].rows);
    let figure =
        format!("{}: {:.0} MB/s, {:.0} MB/s per core", millis(ours), rate(ours), rate(cpu));
    eprintln!("{what}: {figure}");
    report.row("B7", &what, figure, "budget 1000 MB/s per core");
    let names = ["without parallel workers", "with parallel workers"];
    // One process of PostgreSQL is one core, so the first ratio is one of cores.
    let budgets = ["ratio per core, budget at least 2", "ratio of times, budget at least 2"];
    for (((speed, name), budget), ours) in
        speeds[1..].iter().zip(names).zip(budgets).zip([rate(cpu), rate(ours)])
    {
        let theirs = rate(speed.latency);
        let figure =
            format!("{}: {theirs:.0} MB/s, ratio {:.2}", millis(speed.latency), ours / theirs);
        report.row("", &format!("PostgreSQL, scan {name}"), figure, budget);
    }
}
