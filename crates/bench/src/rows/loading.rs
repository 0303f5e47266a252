//! B5: the bulk load of the orders, which the rows after it ask about.

use std::path::Path;
use std::time::Instant;

use crate::orders::Orders;
use crate::postgres::Postgres;
use crate::report::{Report, seconds};
use crate::server::Server;
use crate::{CONNECTIONS, Failure, load};

/// The container, and PostgreSQL's table, of the orders.
pub(crate) const ORDERS: &str = "orders";

/// Loads the orders through bulk requests into a new server, with the default indexing policy.
pub(crate) async fn into_orrery(
    report: &mut Report,
    data: &Path,
    orders: Orders,
) -> Result<(Server, f64), Failure> {
    let count = orders.count;
    eprintln!("loading {count} documents through bulk requests");
    let server = Server::start(data).await?;
    let started = Instant::now();
    fill(&server, orders).await?;
    let rate = count as f64 / started.elapsed().as_secs_f64();
    let quiet = server.settle().await?;
    report.rate(
        "B5",
        &format!("load of {count} documents, bulk requests of 100 over {CONNECTIONS} connections"),
        rate,
        None,
        &format!("quiet {} later", seconds(quiet)),
    );
    Ok((server, rate))
}

/// Creates the container and loads the orders.
pub(crate) async fn fill(server: &Server, orders: Orders) -> Result<(), Failure> {
    load::create_database(server.port).await?;
    load::create_container(server.port, ORDERS, None).await?;
    let make = move |number| orders.order(number);
    load::bulk(server.port, ORDERS, orders.count, CONNECTIONS, make).await?;
    Ok(())
}

/// Copies the orders into a jsonb table with a GIN index of the default kind, `jsonb_ops`: like
/// Orrery's default policy it serves every path.
pub(crate) async fn into_postgres(
    report: &mut Report,
    postgres: &Postgres,
    orders: Orders,
    ours: f64,
) -> Result<(), Failure> {
    // A connection is a process, so fewer would leave cores idle.
    let connections = std::thread::available_parallelism()?.get();
    let table = "CREATE TABLE orders (pk text, id text, body jsonb, PRIMARY KEY (pk, id));
                 CREATE INDEX ON orders USING gin (body);";
    postgres.run(table).await?;
    eprintln!("copying {} documents into PostgreSQL", orders.count);
    let started = Instant::now();
    postgres.copy(ORDERS, orders.count, connections, move |number| orders.order(number)).await?;
    let rate = orders.count as f64 / started.elapsed().as_secs_f64();
    report.rate(
        "",
        &format!("PostgreSQL COPY into jsonb with GIN (jsonb_ops) over {connections} connections"),
        rate,
        Some(ours),
        "budget at least 2",
    );
    Ok(())
}
