//! Measures Orrery against its budgets, side by side with anchors in one run.
//!
//! `cargo run --release -p bench [ROW...] [--documents N] [--seconds N]` prints a table. Rows are B1 to
//! B4. Ratios are the thing to trust: server, anchor and load share the machine, and each pair is
//! measured in turns. Anchors that are not installed (PostgreSQL) are left out and said so.
#![expect(clippy::print_stdout, reason = "the table is the result")]
#![expect(clippy::print_stderr, reason = "long work shows progress")]
#![expect(clippy::disallowed_methods, reason = "a benchmark asks the clock")]

mod client;
mod engine;
mod load;
mod postgres;
mod report;
mod responder;
mod server;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::report::Report;
use crate::server::Server;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How many connections the load uses.
const CONNECTIONS: usize = 64;

struct Settings {
    rows: Vec<String>,
    documents: u64,
    measure: Duration,
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match (std::env::args().nth(1).as_deref(), runtime) {
        (_, Err(error)) => Err(error.into()),
        (Some("responder"), Ok(runtime)) => runtime.block_on(responder::run()),
        (_, Ok(runtime)) => settings().and_then(|settings| runtime.block_on(run(settings))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn settings() -> Result<Settings, Failure> {
    let mut settings =
        Settings { rows: Vec::new(), documents: 1_000_000, measure: Duration::from_secs(10) };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number =
            || words.next().ok_or("a number is missing")?.parse::<u64>().map_err(Failure::from);
        match word.as_str() {
            "--documents" => settings.documents = number()?,
            "--seconds" => settings.measure = Duration::from_secs(number()?),
            row if row.starts_with('B') => settings.rows.push(row.to_owned()),
            other => return Err(format!("unknown word '{other}'").into()),
        }
    }
    Ok(settings)
}

async fn run(settings: Settings) -> Result<(), Failure> {
    let wanted = |row: &str| settings.rows.is_empty() || settings.rows.iter().any(|r| r == row);
    let mut report = Report::default();
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");

    if wanted("B1") || wanted("B2") {
        small(&mut report, directory.path()).await?;
    }
    if wanted("B3") || wanted("B4") {
        throughput(&mut report, &settings, directory.path(), &wanted).await?;
    }
    if wanted("B1") || wanted("B2") {
        large(&mut report, &settings, &data).await?;
    }
    println!("{report}");
    Ok(())
}

/// Start and memory with nothing stored.
async fn small(report: &mut Report, directory: &std::path::Path) -> Result<(), Failure> {
    let mut starts = Vec::new();
    let mut memory = 0;
    for round in 0..5 {
        let started = Instant::now();
        let server = Server::start(&directory.join(format!("empty{round}"))).await?;
        client::Connection::open(server.port).await?.account().await?;
        starts.push(started.elapsed());
        memory = server.memory_bytes()?;
        server.stop().await?;
    }
    starts.sort();
    report.row("B1", "start to first answer, empty directory", millis(starts[2]), "budget 50 ms");
    report.row("B2", "memory when idle, empty", mebibytes(memory), "budget 40 MB");
    Ok(())
}

/// Start and memory with many documents.
async fn large(
    report: &mut Report,
    settings: &Settings,
    data: &std::path::Path,
) -> Result<(), Failure> {
    let documents = settings.documents;
    eprintln!("loading {documents} documents through bulk requests");
    let server = Server::start(data).await?;
    load::prepare(server.port).await?;
    let started = Instant::now();
    load::bulk(server.port, documents, CONNECTIONS).await?;
    let rate = documents as f64 / started.elapsed().as_secs_f64();
    report.row("–", &format!("bulk load of {documents} documents"), format!("{rate:.0}/s"), "");
    let memory = server.memory_bytes()?;
    report.row(
        "B2",
        &format!("memory after loading {documents} documents"),
        mebibytes(memory),
        "budget 400 MB",
    );
    server.stop().await?;

    let started = Instant::now();
    let server = Server::start(data).await?;
    load::read_one(server.port, 0).await?;
    report.row(
        "B1",
        &format!("start to first answer, {documents} documents"),
        millis(started.elapsed()),
        "budget 1 s",
    );
    load::reads(server.port, CONNECTIONS, documents, Duration::from_secs(5)).await?;
    let memory = server.memory_bytes()?;
    report.row(
        "B2",
        &format!("memory with {documents} documents, after reads"),
        mebibytes(memory),
        "budget 400 MB",
    );
    server.kill().await?;

    let started = Instant::now();
    let server = Server::start(data).await?;
    load::read_one(server.port, 0).await?;
    report.row("B1", "the same after kill -9", millis(started.elapsed()), "");
    server.stop().await
}

/// Point reads and durable creates.
async fn throughput(
    report: &mut Report,
    settings: &Settings,
    directory: &std::path::Path,
    wanted: &impl Fn(&str) -> bool,
) -> Result<(), Failure> {
    const READ_SET: u64 = 20_000;
    let server = Server::start(&directory.join("throughput")).await?;
    load::prepare(server.port).await?;
    load::bulk(server.port, READ_SET, CONNECTIONS).await?;
    let postgres = postgres::Postgres::start(&directory.join("postgres"), READ_SET).await?;
    if postgres.is_none() {
        report.note("PostgreSQL is not installed: its rows are missing (Debian: postgresql)");
    }
    // Three turns each, so that a bad moment of the machine hits all alike; the medians count.
    let turn = settings.measure / 3;
    if wanted("B3") {
        let responder = responder::Responder::start().await?;
        let (mut ours, mut bare, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..3 {
            ours.push(load::reads(server.port, CONNECTIONS, READ_SET, turn).await?);
            bare.push(load::reads(responder.port, CONNECTIONS, READ_SET, turn).await?);
            if let Some(postgres) = &postgres {
                theirs.push(postgres.selects(CONNECTIONS, turn).await?);
            }
        }
        let ours = median(&mut ours);
        report.rate("B3", "point reads, 64 connections", ours, None, "");
        report.rate(
            "",
            "bare hyper responder",
            median(&mut bare),
            Some(ours),
            "budget at least 0.6",
        );
        if postgres.is_some() {
            report.rate(
                "",
                "PostgreSQL prepared select",
                median(&mut theirs),
                Some(ours),
                "budget more than 1",
            );
        }
        responder.stop().await?;
    }
    if wanted("B4") {
        let (mut ours, mut bare, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        let engine = engine::Engine::open(&directory.join("engine")).await?;
        for round in 0..3 {
            ours.push(load::creates(server.port, CONNECTIONS, round, turn).await?);
            bare.push(engine.commits(CONNECTIONS, round, turn).await?);
            if let Some(postgres) = &postgres {
                theirs.push(postgres.inserts(CONNECTIONS, turn).await?);
            }
        }
        let ours = median(&mut ours);
        report.rate("B4", "durable creates, 64 connections", ours, None, "");
        report.rate(
            "",
            "the engine committing the same keys",
            median(&mut bare),
            Some(ours),
            "budget at least 0.8",
        );
        if postgres.is_some() {
            report.rate(
                "",
                "PostgreSQL jsonb with GIN",
                median(&mut theirs),
                Some(ours),
                "budget at least 1.5",
            );
        }
    }
    server.stop().await
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn millis(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1_000.0)
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1_000_000.0)
}
