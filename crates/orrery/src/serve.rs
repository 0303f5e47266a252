//! `orrery serve`: runs the server until it is told to stop.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use db::{Db, SystemClock, SystemIds};
use gateway::{EMULATOR_KEY, Gateway, Key};
use storage::{Embedded, Options};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::account::{Account, Existing};
use crate::client::{Client, Within};
use crate::commands::ServeArguments;
use crate::config::{Listen, ServerConfig};
use crate::loader::Loader;
use crate::logging;
use crate::progress::Progress;
use crate::seed::Seed;

type Failure = Box<dyn std::error::Error>;

/// How often expired documents and purged partitions are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// How long requests under way may take to finish when the server stops.
const DRAIN_AT_MOST: Duration = Duration::from_secs(10);

pub(crate) fn run(arguments: ServeArguments) -> Result<ExitCode, Failure> {
    let config = ServerConfig::resolve(arguments, &|name| std::env::var(name).ok())?;
    logging::start(&config.log, config.log_json)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = match &config.data {
            Some(directory) => Embedded::open(directory, Options::default())?,
            None => Embedded::in_memory(),
        };
        serve(store, &config).await
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(store: Embedded, config: &ServerConfig) -> Result<(), Failure> {
    let mut stop = pin!(stop_signal()?);
    let (store, clock) = (Arc::new(store), Arc::new(SystemClock));
    let db = Db::open_with(store, clock, &SystemIds::new(), config.range_throughput).await?;
    let gateway = Arc::new(Gateway::new(db.clone(), config.gateway.clone())?);
    let mut listeners = listen(&config.listen, config.port).await?;
    let port = listeners[0].local_addr()?.port();
    if let Some(health_port) = config.health_port {
        listeners.extend(listen(&config.listen, health_port).await?);
    }
    // Whoever connects meanwhile waits until the server has what it starts with.
    if let Some(path) = &config.seed {
        let key = config.gateway.keys.primary.clone();
        let seeded = tokio::select! {
            seeded = sow(gateway.clone(), key, path) => seeded,
            () = &mut stop => Err("stopped before the seed was in".into()),
        };
        if seeded.is_err() {
            db.close().await?;
        }
        seeded?;
    }
    let (stopping, stopped) = watch::channel(false);
    let mut servers = tokio::task::JoinSet::new();
    for listener in listeners {
        let mut stopped = stopped.clone();
        let told = async move {
            // The sender lives until the end, so the only way on is the word to stop.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        servers.spawn(gateway.clone().serve(listener, told));
    }
    let sweeper = tokio::spawn(sweep(db.clone()));
    announce(config, port);

    stop.await;
    tracing::info!("stopping");
    sweeper.abort();
    stopping.send_replace(true);
    let drained = tokio::time::timeout(DRAIN_AT_MOST, async {
        while let Some(server) = servers.join_next().await {
            server??;
        }
        Ok::<(), Failure>(())
    });
    if drained.await.is_err() {
        tracing::warn!("some connections did not end in time and are cut");
        servers.abort_all();
    }
    db.close().await?;
    tracing::info!("stopped");
    Ok(())
}

/// Brings what a seed holds to the database, through the gateway as clients do.
async fn sow(server: Arc<dyn Within>, key: Key, path: &Path) -> Result<(), Failure> {
    let seed = Seed::read(path)?;
    let account = Account::new(Client::within(server, key), "this server".to_owned());
    let progress = Progress::silent();
    let mut loader = Loader { account, existing: Existing::Keep, progress, state: None };
    let loaded = loader.load(&seed).await;
    let loaded = loaded.map_err(|failure| failure.at(&path.display().to_string()))?;
    tracing::info!(
        databases = loaded.databases,
        containers = loaded.containers,
        scripts = loaded.scripts,
        documents = loaded.documents.created,
        "seeded"
    );
    Ok(())
}

/// Binds the port; on this machine only by both of its addresses where it has both.
async fn listen(listen: &Listen, port: u16) -> Result<Vec<TcpListener>, Failure> {
    let bind = async |address: &str, port: u16| {
        TcpListener::bind((address, port)).await.map_err(|error| {
            format!("cannot listen on {address} port {port}: {error}; choose another port")
        })
    };
    let mut listeners = Vec::new();
    match listen {
        Listen::Address(address) => {
            let address = address.trim_start_matches('[').trim_end_matches(']');
            listeners.push(bind(address, port).await?);
        }
        Listen::Localhost => {
            listeners.push(bind("127.0.0.1", port).await?);
            let port = listeners[0].local_addr()?.port();
            // Some systems resolve localhost to ::1 first; others have no such address.
            match TcpListener::bind(SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port))).await {
                Ok(listener) => listeners.push(listener),
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    return Err(format!("cannot listen on ::1 port {port}: {error}").into());
                }
                Err(error) => tracing::debug!(%error, "no listening on ::1"),
            }
        }
    }
    Ok(listeners)
}

/// Does in the background what nobody waits for: removes what nobody sees any more, and splits ranges
/// that have become too large, or too few.
async fn sweep(db: Arc<Db<Embedded>>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match db.sweep().await {
            Ok(swept) if swept != Default::default() => {
                tracing::debug!(expired = swept.expired, purged = swept.purged, "swept");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the sweep failed and will be tried again"),
        }
        if let Err(error) = db.fit_ranges().await {
            tracing::warn!(%error, "ranges could not be split and will be tried again");
        }
    }
}

/// Says where the server is and how to connect.
#[expect(clippy::print_stdout, reason = "the ready line is what a user or script waits for")]
fn announce(config: &ServerConfig, port: u16) {
    let host = match (&config.gateway.public_host, &config.listen) {
        (Some(host), _) => host.as_str(),
        (None, Listen::Localhost) => "localhost",
        (None, Listen::Address(address)) => match address.as_str() {
            "0.0.0.0" | "::" | "[::]" => "localhost",
            address => address,
        },
    };
    let endpoint = gateway::endpoint_of(host, port);
    // A key that is a secret is not repeated where logs may keep it.
    let key = if config.well_known_key { EMULATOR_KEY } else { "<your key>" };
    println!("Orrery is ready: {endpoint} AccountEndpoint={endpoint};AccountKey={key};");
    if config.emulator {
        println!("Now listening on: {endpoint}");
        println!("System is now fully ready to accept requests");
        // One of the modules that wait for this line wants it to end so.
        println!("Started\r");
    }
    let data = config.data.as_ref().map(|data| data.display().to_string());
    tracing::info!(endpoint, data = data.as_deref().unwrap_or("in memory"), "ready");
}

/// Resolves when somebody asks the server to stop.
fn stop_signal() -> Result<impl Future<Output = ()>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
