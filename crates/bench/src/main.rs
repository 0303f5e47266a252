//! Measures Orrery against its budgets, side by side with anchors in one run.
//!
//! `cargo run --release -p bench [ROW...] [--documents N] [--large N] [--seconds N]` prints a table.
//! Rows are B1 to B10. Ratios are the thing to trust: server, anchor and load share the
//! machine, and each pair is measured in turns. Anchors that are not installed (PostgreSQL) are left
//! out and said so.
//!
//! Rows about many documents share one load of `--documents`; `--large` is how many there are
//! instead when the growth of B8 and B10 is to be measured over more than the rest of a run can bear.
//! A row that cannot be measured, or on which the servers disagree, is marked and the run fails.
#![expect(clippy::print_stdout, reason = "the table is the result")]
#![expect(clippy::print_stderr, reason = "long work shows progress")]
#![expect(clippy::disallowed_methods, reason = "a benchmark asks the clock")]

mod client;
mod engine;
mod load;
mod measure;
mod orders;
mod postgres;
mod question;
mod report;
mod responder;
mod rows;
mod server;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::orders::Orders;
use crate::postgres::Postgres;
use crate::report::Report;
use crate::rows::{growth, loading, queries, scans, scripts, single, start};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How many connections the load uses.
const CONNECTIONS: usize = 64;

struct Settings {
    rows: Vec<String>,
    documents: u64,
    large: Option<u64>,
    measure: Duration,
}

const ROWS: [&str; 10] = ["B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9", "B10"];

impl Settings {
    /// Whether any of the rows is to be measured.
    fn wants(&self, rows: &[&str]) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|row| rows.contains(&row.as_str()))
    }

    /// The documents that the rows share.
    fn orders(&self) -> Orders {
        Orders { count: self.large.unwrap_or(self.documents) }
    }
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match (std::env::args().nth(1).as_deref(), runtime) {
        (_, Err(error)) => Err(error.into()),
        (Some("responder"), Ok(runtime)) => runtime.block_on(responder::run()),
        (_, Ok(runtime)) => settings().and_then(|settings| runtime.block_on(unless_told(settings))),
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
    let mut settings = Settings {
        rows: Vec::new(),
        documents: 1_000_000,
        large: None,
        measure: Duration::from_secs(10),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || match words.next().ok_or("a number is missing")?.parse::<u64>()? {
            0 => Err(Failure::from(format!("{word} must be more than 0"))),
            number => Ok(number),
        };
        match word.as_str() {
            "--documents" => settings.documents = number()?,
            "--large" => settings.large = Some(number()?),
            "--seconds" => settings.measure = Duration::from_secs(number()?),
            row if ROWS.contains(&row) => settings.rows.push(row.to_owned()),
            other => return Err(format!("unknown word '{other}'").into()),
        }
    }
    Ok(settings)
}

/// Runs until it is done or told to stop; either way the servers end and their files go.
async fn unless_told(settings: Settings) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let result = tokio::select! {
        result = run(settings, directory.path()) => result,
        _ = terminate.recv() => Err("told to stop".into()),
        _ = tokio::signal::ctrl_c() => Err("told to stop".into()),
    };
    if result.is_err() {
        // Servers that were ended in the midst of their work may write for a moment more.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    result
}

async fn run(settings: Settings, directory: &Path) -> Result<(), Failure> {
    let mut report = Report::default();
    let result = measure(&mut report, &settings, directory).await;
    // What was measured before a failure took its time too.
    println!("{report}");
    result?;
    match report.failures() {
        0 => Ok(()),
        failures => Err(format!("{failures} measurements failed").into()),
    }
}

async fn measure(
    report: &mut Report,
    settings: &Settings,
    directory: &Path,
) -> Result<(), Failure> {
    let postgres = anchor(report, settings, directory).await?;
    if settings.wants(&["B1", "B2"]) {
        start::empty(report, directory).await?;
    }
    if settings.wants(&["B3", "B4"]) {
        single::measure(report, settings, directory, postgres.as_ref()).await?;
    }
    if settings.wants(&["B1", "B2", "B5", "B6", "B8", "B10"]) {
        many(report, settings, directory, postgres.as_ref()).await?;
    }
    if settings.wants(&["B7"]) {
        scans::measure(report, settings, directory, postgres.as_ref()).await?;
    }
    if settings.wants(&["B9"]) {
        scripts::measure(report, settings, directory).await?;
    }
    match postgres {
        None => Ok(()),
        Some(postgres) => postgres.stop().await,
    }
}

/// PostgreSQL, where a row wants it and it is installed.
async fn anchor(
    report: &mut Report,
    settings: &Settings,
    directory: &Path,
) -> Result<Option<Postgres>, Failure> {
    if !settings.wants(&["B3", "B4", "B5", "B6", "B7"]) {
        return Ok(None);
    }
    let postgres = Postgres::start(&directory.join("postgres")).await?;
    if postgres.is_none() {
        report.note("PostgreSQL is not installed: its figures are missing (Debian: postgresql)");
    }
    Ok(postgres)
}

/// The rows that share one load of many documents.
async fn many(
    report: &mut Report,
    settings: &Settings,
    directory: &Path,
    postgres: Option<&Postgres>,
) -> Result<(), Failure> {
    let (orders, data) = (settings.orders(), directory.join("data"));
    let (mut server, rate) = loading::into_orrery(report, &data, orders).await?;
    let postgres = postgres.filter(|_| settings.wants(&["B5", "B6"]));
    if let Some(postgres) = postgres {
        loading::into_postgres(report, postgres, orders, rate).await?;
    }
    if settings.wants(&["B1", "B2"]) {
        server = start::full(report, orders, &data, server).await?;
    }
    if settings.wants(&["B6"]) {
        if let Some(postgres) = postgres {
            queries::prepare(postgres).await?;
        }
        queries::measure(report, settings, orders, &server, postgres, false).await?;
    }
    if settings.wants(&["B6", "B8"]) {
        queries::index(&server).await?;
    }
    if settings.wants(&["B6"]) {
        queries::measure(report, settings, orders, &server, postgres, true).await?;
    }
    if settings.wants(&["B8", "B10"]) {
        growth::measure(report, settings, directory, orders, &server).await?;
    }
    server.stop().await
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
