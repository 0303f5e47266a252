//! B3 and B4: point reads and durable creates, one document each.

use std::path::Path;

use crate::engine::Engine;
use crate::postgres::Postgres;
use crate::report::Report;
use crate::responder::Responder;
use crate::server::Server;
use crate::{CONNECTIONS, Failure, Settings, load, median};

/// How many documents the reads are spread over.
const READ_SET: u64 = 20_000;

pub(crate) async fn measure(
    report: &mut Report,
    settings: &Settings,
    directory: &Path,
    postgres: Option<&Postgres>,
) -> Result<(), Failure> {
    let server = Server::start(&directory.join("single")).await?;
    load::create_database(server.port).await?;
    load::create_container(server.port, load::ITEMS, None).await?;
    load::bulk(server.port, load::ITEMS, READ_SET, CONNECTIONS, load::item).await?;
    if let Some(postgres) = postgres {
        postgres.load_items(READ_SET).await?;
    }
    if settings.wants(&["B3"]) {
        reads(report, settings, &server, postgres).await?;
    }
    if settings.wants(&["B4"]) {
        let engine = Engine::open(&directory.join("engine")).await?;
        creates(report, settings, &server, &engine, postgres).await?;
    }
    server.stop().await
}

/// Three turns each, so that a bad moment of the machine hits all alike; the medians count.
async fn reads(
    report: &mut Report,
    settings: &Settings,
    server: &Server,
    postgres: Option<&Postgres>,
) -> Result<(), Failure> {
    let turn = settings.measure / 3;
    let responder = Responder::start().await?;
    let (mut ours, mut bare, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        for (port, rates) in [(server.port, &mut ours), (responder.port, &mut bare)] {
            let place = load::item_place;
            rates.push(load::reads(port, load::ITEMS, CONNECTIONS, READ_SET, place, turn).await?);
        }
        if let Some(postgres) = postgres {
            theirs.push(postgres.selects(READ_SET, CONNECTIONS, turn).await?);
        }
    }
    let ours = median(&mut ours);
    report.rate("B3", "point reads, 64 connections", ours, None, "");
    let bare = median(&mut bare);
    report.rate("", "bare hyper responder", bare, Some(ours), "budget at least 0.6");
    if postgres.is_some() {
        let theirs = median(&mut theirs);
        report.rate("", "PostgreSQL prepared select", theirs, Some(ours), "budget more than 1");
    }
    responder.stop().await
}

/// In turns as the reads.
async fn creates(
    report: &mut Report,
    settings: &Settings,
    server: &Server,
    engine: &Engine,
    postgres: Option<&Postgres>,
) -> Result<(), Failure> {
    let turn = settings.measure / 3;
    let (mut ours, mut bare, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..3 {
        ours.push(load::creates(server.port, CONNECTIONS, round, turn).await?);
        bare.push(engine.commits(CONNECTIONS, round, turn).await?);
        if let Some(postgres) = postgres {
            theirs.push(postgres.inserts(CONNECTIONS, turn).await?);
        }
    }
    let ours = median(&mut ours);
    report.rate("B4", "durable creates, 64 connections", ours, None, "");
    let bare = median(&mut bare);
    report.rate("", "the engine committing the same keys", bare, Some(ours), "budget at least 0.8");
    if postgres.is_some() {
        let theirs = median(&mut theirs);
        report.rate("", "PostgreSQL jsonb with GIN", theirs, Some(ours), "budget at least 1.5");
    }
    Ok(())
}
