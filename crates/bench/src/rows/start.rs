//! B1 and B2: how long a start takes and what memory is held.

use std::path::Path;
use std::time::{Duration, Instant};

use super::loading::ORDERS;
use crate::client::Connection;
use crate::load;
use crate::orders::Orders;
use crate::report::{Report, megabytes, millis};
use crate::server::Server;
use crate::{CONNECTIONS, Failure};

/// With nothing stored.
pub(crate) async fn empty(report: &mut Report, directory: &Path) -> Result<(), Failure> {
    let mut starts = Vec::new();
    let mut memory = 0;
    for round in 0..5 {
        let started = Instant::now();
        let server = Server::start(&directory.join(format!("empty{round}"))).await?;
        Connection::open(server.port).await?.account().await?;
        starts.push(started.elapsed());
        memory = server.memory_bytes()?;
        server.stop().await?;
    }
    starts.sort();
    report.row("B1", "start to first answer, empty directory", millis(starts[2]), "budget 50 ms");
    report.row("B2", "memory when idle, empty", megabytes(memory), "budget 40 MB");
    Ok(())
}

/// With many documents, which the server has just loaded; the server as it was started last.
pub(crate) async fn full(
    report: &mut Report,
    orders: Orders,
    data: &Path,
    server: Server,
) -> Result<Server, Failure> {
    let documents = orders.count;
    report.row(
        "B2",
        &format!("memory after loading {documents} documents"),
        megabytes(server.memory_bytes()?),
        "budget 400 MB",
    );
    server.stop().await?;

    let started = Instant::now();
    let server = Server::start(data).await?;
    read_first(server.port, orders).await?;
    report.row(
        "B1",
        &format!("start to first answer, {documents} documents"),
        millis(started.elapsed()),
        "budget 1 s",
    );
    let time = Duration::from_secs(5);
    let place = move |number| orders.place(number);
    load::reads(server.port, ORDERS, CONNECTIONS, documents, place, time).await?;
    report.row(
        "B2",
        &format!("memory with {documents} documents, after reads"),
        megabytes(server.memory_bytes()?),
        "budget 400 MB",
    );
    server.kill().await?;

    let started = Instant::now();
    let server = Server::start(data).await?;
    read_first(server.port, orders).await?;
    report.row("B1", "the same after kill -9", millis(started.elapsed()), "");
    Ok(server)
}

async fn read_first(port: u16, orders: Orders) -> Result<(), Failure> {
    let (partition, id) = orders.place(0);
    load::read(&mut Connection::open(port).await?, ORDERS, &partition, &id).await
}
