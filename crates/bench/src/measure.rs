//! Asks a server the same question again and again and keeps the times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;
use value::Value;

use crate::orders::Orders;
use crate::question::{Asked, Question, Shape};
use crate::{Failure, client, load, postgres};

/// A server with orders.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) server: Kind,
    pub(crate) port: u16,
    pub(crate) orders: Orders,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// The orders are in this container.
    Orrery { container: &'static str },
    /// A connection begins with these statements.
    Postgres { settings: &'static str },
}

/// How fast a server answered.
#[derive(Clone, Copy)]
pub(crate) struct Speed {
    /// The median time of an answer.
    pub(crate) latency: Duration,
    /// Answers per second.
    pub(crate) rate: f64,
    /// Rows per answer.
    pub(crate) rows: f64,
}

/// An answer that takes longer is a failure.
const LONGEST: Duration = Duration::from_secs(60);

/// Several turns for each of several targets, so that a bad moment of the machine hits all alike; of
/// each figure the median counts.
pub(crate) async fn in_turns(
    targets: &[Target],
    question: &Question,
    connections: usize,
    time: Duration,
) -> Result<Vec<Speed>, Failure> {
    const TURNS: u64 = 3;
    let mut turns: Vec<Vec<Speed>> = targets.iter().map(|_| Vec::new()).collect();
    for turn in 0..TURNS {
        for (target, speeds) in targets.iter().zip(&mut turns) {
            speeds.push(target.measure(question, connections, turn, time / 3).await?);
        }
    }
    let median = |speeds: &[Speed], figure: fn(&Speed) -> f64| {
        let mut figures: Vec<f64> = speeds.iter().map(figure).collect();
        crate::median(&mut figures)
    };
    let speeds = turns.iter().map(|speeds| Speed {
        latency: Duration::from_secs_f64(median(speeds, |speed| speed.latency.as_secs_f64())),
        rate: median(speeds, |speed| speed.rate),
        rows: median(speeds, |speed| speed.rows),
    });
    Ok(speeds.collect())
}

/// An error unless all targets give the same rows to the same arguments.
pub(crate) async fn compare(targets: &[Target], question: &Question) -> Result<(), Failure> {
    const TIMES: u64 = 5;
    for time in 0..TIMES {
        let mut first: Option<Vec<String>> = None;
        for target in targets {
            let asked = question.asked(target.orders, time);
            let mut link = Link::open(target).await?;
            let mut rows = link.ask(question, &asked).await?.names()?;
            if !question.is_ordered() {
                rows.sort();
            }
            match &first {
                None => first = Some(rows),
                Some(first) if *first == rows => {}
                Some(first) => {
                    return Err(format!(
                        "the servers do not agree on {}: {} rows and {}: {first:?} and {rows:?}",
                        question.sql,
                        first.len(),
                        rows.len()
                    )
                    .into());
                }
            }
        }
    }
    Ok(())
}

impl Target {
    /// The only value of an answer, a number.
    pub(crate) async fn number(&self, question: &Question) -> Result<f64, Failure> {
        let asked = question.asked(self.orders, 0);
        let names = Link::open(self).await?.ask(question, &asked).await?.names()?;
        match names.as_slice() {
            [number] => Ok(number.parse()?),
            _ => Err(format!("not one number: {names:?}").into()),
        }
    }

    /// Asks some times over one connection.
    pub(crate) async fn repeat(&self, question: &Question, times: u64) -> Result<(), Failure> {
        let mut link = Link::open(self).await?;
        for time in 0..times {
            link.ask(question, &question.asked(self.orders, time)).await?;
        }
        Ok(())
    }

    /// Asks over some connections for a time.
    async fn measure(
        &self,
        question: &Question,
        connections: usize,
        turn: u64,
        time: Duration,
    ) -> Result<Speed, Failure> {
        let mut links = Vec::new();
        for _ in 0..connections {
            let mut link = Link::open(self).await?;
            // What only the first answer costs, as preparing a statement, is no part of the figures.
            link.ask(question, &question.asked(self.orders, 0)).await?;
            links.push(link);
        }
        let rows = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for (worker, mut link) in (0..).zip(links) {
            let (question, orders, rows) = (question.clone(), self.orders, rows.clone());
            tasks.spawn(async move {
                let mut times = Vec::new();
                while started.elapsed() < time || times.is_empty() {
                    let number = (turn << 40) + (worker << 32) + times.len() as u64;
                    let asked = question.asked(orders, number);
                    let asked_at = Instant::now();
                    let answer = link.ask(&question, &asked).await?;
                    times.push(asked_at.elapsed());
                    rows.fetch_add(answer.rows, Ordering::Relaxed);
                }
                Ok::<_, Failure>(times)
            });
        }
        let mut times = Vec::new();
        while let Some(task) = tasks.join_next().await {
            times.extend(task??);
        }
        let took = started.elapsed();
        times.sort();
        let answers = times.len() as f64;
        Ok(Speed {
            latency: times[times.len() / 2],
            rate: answers / took.as_secs_f64(),
            rows: rows.load(Ordering::Relaxed) as f64 / answers,
        })
    }
}

/// A connection to either server.
enum Link {
    Orrery(client::Connection, &'static str),
    Postgres(postgres::Connection),
}

/// An answer as it came.
struct Answer {
    rows: u64,
    body: Body,
}

enum Body {
    Pages(Vec<Bytes>),
    Rows(postgres::Rows),
    Document,
}

impl Link {
    async fn open(target: &Target) -> Result<Self, Failure> {
        match target.server {
            Kind::Orrery { container } => {
                Ok(Self::Orrery(client::Connection::open(target.port).await?, container))
            }
            Kind::Postgres { settings } => {
                let mut connection = postgres::Connection::open(target.port).await?;
                connection.run("SET statement_timeout = '60s'").await?;
                connection.run(settings).await?;
                Ok(Self::Postgres(connection))
            }
        }
    }

    async fn ask(&mut self, question: &Question, asked: &Asked) -> Result<Answer, Failure> {
        match self {
            Self::Orrery(connection, container) if question.shape == Shape::Point => {
                let values = asked.values();
                load::read(connection, container, &values[1], &values[0]).await?;
                Ok(Answer { rows: 1, body: Body::Document })
            }
            Self::Orrery(connection, container) => {
                pages(connection, container, question, asked).await
            }
            Self::Postgres(connection) => {
                let rows = connection.query(&question.sql, &asked.values()).await?;
                Ok(Answer { rows: rows.len() as u64, body: Body::Rows(rows) })
            }
        }
    }
}

/// All pages of a query.
async fn pages(
    connection: &mut client::Connection,
    container: &str,
    question: &Question,
    asked: &Asked,
) -> Result<Answer, Failure> {
    let body = asked.body(&question.text);
    let (mut rows, mut pages) = (0, Vec::new());
    let mut continuation: Option<String> = None;
    let started = Instant::now();
    while started.elapsed() < LONGEST {
        let partition = asked.partition.as_deref();
        let answer =
            load::query(connection, container, partition, continuation.as_deref(), body.clone())
                .await?;
        rows += answer.header("x-ms-item-count").ok_or("no count of rows")?.parse::<u64>()?;
        continuation = answer.header("x-ms-continuation").map(str::to_owned);
        pages.push(answer.body);
        if continuation.is_none() {
            return Ok(Answer { rows, body: Body::Pages(pages) });
        }
    }
    Err(format!("no end after {} pages and {LONGEST:?}", pages.len()).into())
}

impl Answer {
    /// What tells the rows apart, in their order: the id of an order, or the value itself.
    fn names(&self) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        match &self.body {
            Body::Document => {}
            Body::Pages(pages) => {
                for page in pages {
                    let page = Value::parse(page)?;
                    let rows = page.get("Documents").and_then(Value::as_array);
                    names.extend(rows.ok_or("a page without rows")?.iter().map(name));
                }
            }
            Body::Rows(rows) => {
                for row in rows {
                    let column = postgres::first_column(row).ok_or("a row without a value")?;
                    // A column of text is the id itself.
                    let value = Value::parse(column);
                    let text = || String::from_utf8_lossy(column).into_owned();
                    names.push(value.map_or_else(|_| text(), |value| name(&value)));
                }
            }
        }
        if names.len() as u64 != self.rows && !matches!(self.body, Body::Document) {
            return Err(format!("{} rows were announced, {} came", self.rows, names.len()).into());
        }
        Ok(names)
    }
}

fn name(row: &Value) -> String {
    match (row.get("id").and_then(Value::as_str), row.as_f64()) {
        (Some(id), _) => id.to_owned(),
        (None, Some(number)) => number.to_string(),
        (None, None) => row.to_text(),
    }
}
