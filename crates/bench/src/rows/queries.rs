//! B6: questions that an index answers, in one partition and across partitions.
//!
//! Both have the best index for each question: PostgreSQL one for each, Orrery the default policy and
//! composite indexes for ranges and orders inside of a partition. Those are measured with the default
//! policy alone, too. Both are asked over loopback from this process; PostgreSQL by prepared
//! statements, Orrery by query text.

use std::time::Duration;

use super::loading::ORDERS;
use crate::measure::{Kind, Speed, Target, compare, in_turns};
use crate::orders::{Orders, Scope};
use crate::postgres::Postgres;
use crate::question::{Question, Shape};
use crate::report::{Report, micros};
use crate::server::Server;
use crate::{Failure, Settings, load};

/// How many connections ask at once when the rate is measured.
const CONNECTIONS: usize = 8;

/// An answer that takes longer than this says enough; its rate is not measured.
const SLOW: Duration = Duration::from_secs(1);

/// The best index for each question; the planner chooses.
const INDEXES: &str = "CREATE EXTENSION btree_gin;
CREATE INDEX ON orders ((body->>'customer'));
CREATE INDEX ON orders (pk, (body->>'customer'));
CREATE INDEX ON orders (pk, (body->>'status'));
CREATE INDEX ON orders (((body->>'total')::float8));
CREATE INDEX ON orders (pk, ((body->>'total')::float8));
CREATE INDEX ON orders ((body->>'created'));
CREATE INDEX ON orders (pk, (body->>'created'));
CREATE INDEX ON orders USING gin ((body->'tags') jsonb_path_ops);
CREATE INDEX ON orders USING gin (pk, (body->'tags') jsonb_path_ops);
CREATE INDEX ON orders USING gin ((body->'items') jsonb_path_ops);
CREATE INDEX ON orders USING gin (pk, (body->'items') jsonb_path_ops)";

/// Gives PostgreSQL its indexes, statistics and rest.
pub(crate) async fn prepare(postgres: &Postgres) -> Result<(), Failure> {
    for statement in INDEXES.split(';').chain(["VACUUM ANALYZE orders", "CHECKPOINT"]) {
        eprintln!("PostgreSQL: {}", statement.trim());
        postgres.run(statement).await?;
    }
    Ok(())
}

/// What Orrery's default policy lacks: the values of a partition side by side.
const COMPOSITES: &str = r#"{"compositeIndexes":[
    [{"path":"/pk","order":"ascending"},{"path":"/total","order":"ascending"}],
    [{"path":"/pk","order":"ascending"},{"path":"/created","order":"ascending"}]]}"#;

/// Gives Orrery its indexes.
pub(crate) async fn index(server: &Server) -> Result<(), Failure> {
    eprintln!("Orrery: composite indexes");
    load::index(server.port, ORDERS, COMPOSITES).await?;
    server.settle().await?;
    Ok(())
}

/// Whether the default policy answers the question by more entries than rows.
fn needs_composite(question: &Question) -> bool {
    question.scope == Scope::Large && matches!(question.shape, Shape::Range | Shape::Latest)
}

/// Measures all questions, or those that need a composite index while there is none.
pub(crate) async fn measure(
    report: &mut Report,
    settings: &Settings,
    orders: Orders,
    server: &Server,
    postgres: Option<&Postgres>,
    has_composites: bool,
) -> Result<(), Failure> {
    let mut targets = vec![orrery(server, orders)];
    if let Some(postgres) = postgres {
        let server = Kind::Postgres { settings: "" };
        targets.push(Target { server, port: postgres.port, orders });
    }
    let wanted = |question: &Question| has_composites || needs_composite(question);
    for question in Question::indexed().into_iter().filter(wanted) {
        let policy = if has_composites { "" } else { ", default policy" };
        let name = question.name() + policy;
        match one(&targets, &question, settings.measure / 2).await {
            Ok(speeds) => add(report, &name, &speeds),
            Err(reason) => report.failure("B6", &name, &reason),
        }
    }
    Ok(())
}

/// The orders of a server.
pub(crate) fn orrery(server: &Server, orders: Orders) -> Target {
    Target { server: Kind::Orrery { container: ORDERS }, port: server.port, orders }
}

/// The time of an answer with one connection, and the rate with several.
async fn one(
    targets: &[Target],
    question: &Question,
    time: Duration,
) -> Result<Vec<(Speed, Option<f64>)>, Failure> {
    compare(targets, question).await?;
    let alone = in_turns(targets, question, 1, time).await?;
    if alone.iter().any(|speed| speed.latency > SLOW) {
        return Ok(alone.into_iter().map(|speed| (speed, None)).collect());
    }
    let together = in_turns(targets, question, CONNECTIONS, time).await?;
    let rates = together.into_iter().map(|speed| Some(speed.rate));
    Ok(alone.into_iter().zip(rates).collect())
}

fn add(report: &mut Report, name: &str, speeds: &[(Speed, Option<f64>)]) {
    let figures = |(speed, rate): &(Speed, Option<f64>)| {
        let rate = rate.map_or("rate not measured".to_owned(), |rate| format!("{rate:.0}/s"));
        format!("{}, {rate}", micros(speed.latency))
    };
    let ours = speeds[0];
    let what = format!("{name}, {:.0} rows", ours.0.rows);
    let remark = speeds.get(1).map(|theirs| {
        let faster = theirs.0.latency.as_secs_f64() / ours.0.latency.as_secs_f64();
        let more = ours.1.zip(theirs.1).map(|(ours, theirs)| format!(" and {:.2}", ours / theirs));
        let more = more.unwrap_or_default();
        format!("PostgreSQL {}: ratio {faster:.2}{more}; budget at least 2", figures(theirs))
    });
    eprintln!("{what}: {}; {}", figures(&ours), remark.as_deref().unwrap_or_default());
    report.row("B6", &what, figures(&ours), &remark.unwrap_or_default());
}
