//! PostgreSQL beside us: Debian's server on a temporary directory.
//!
//! Single selects and inserts are driven by its own pgbench; the rows about many documents by
//! [`Connection`].

mod connection;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::task::JoinSet;

pub(crate) use self::connection::{Connection, Rows, first_column};
use crate::Failure;
use crate::load::{self, Document};

pub(crate) struct Postgres {
    binaries: PathBuf,
    directory: PathBuf,
    process: Child,
    pub(crate) port: u16,
}

const USER: &str = "postgres";

impl Postgres {
    /// Starts a server; nothing where PostgreSQL is not installed.
    pub(crate) async fn start(directory: &Path) -> Result<Option<Self>, Failure> {
        let Some(binaries) = binaries() else { return Ok(None) };
        std::fs::create_dir_all(directory)?;
        run(Command::new("chown").arg("-R").arg(USER).arg(directory)).await?;
        let parents = directory.ancestors().skip(1).take_while(|path| path.parent().is_some());
        for parent in parents {
            let _ = run(Command::new("chmod").arg("o+x").arg(parent)).await;
        }
        let data = directory.join("data");
        // Bytes are the fastest order of text, and ours too.
        run(as_user(&binaries.join("initdb"))
            .await?
            .args(["-A", "trust", "--no-locale", "-E", "UTF8", "-D"])
            .arg(&data)
            .stdout(Stdio::null()))
        .await?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = as_user(&binaries.join("postgres"))
            .await?
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(directory)
            .args(["-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"])
            .args(["-c", "shared_buffers=512MB", "-c", "synchronous_commit=on"])
            .args(["-c", "max_wal_size=4GB", "-c", "maintenance_work_mem=512MB"])
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let postgres = Self { binaries, directory: directory.to_owned(), process, port };
        postgres.wait().await?;
        Ok(Some(postgres))
    }

    async fn wait(&self) -> Result<(), Failure> {
        for _ in 0..200 {
            let ready = Command::new(self.binaries.join("pg_isready"))
                .arg("-h")
                .arg(&self.directory)
                .args(["-p", &self.port.to_string()])
                .stdout(Stdio::null())
                .status()
                .await?;
            if ready.success() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err("PostgreSQL does not start".into())
    }

    /// Asks the server to stop and waits until it has.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        let process = self.process.id().ok_or("PostgreSQL is gone")?;
        Command::new("kill").args(["-INT", &process.to_string()]).status().await?;
        self.process.wait().await?;
        Ok(())
    }

    /// Makes the tables of single selects and inserts.
    pub(crate) async fn load_items(&self, documents: u64) -> Result<(), Failure> {
        let script = format!(
            "CREATE TABLE docs (pk text, id text, body jsonb, PRIMARY KEY (pk, id));
             INSERT INTO docs SELECT 'p' || (n % 1000), 'd' || n,
                 jsonb_build_object('id', 'd' || n, 'customer', 'customer-' || (n % 10007), 'status', 'new',
                     'total', n % 1000, 'city', 'city-' || (n % 200), 'tags', '[\"a\",\"b\"]'::jsonb,
                     'filler', repeat(md5(n::text), 25))
                 FROM generate_series(0, {}) n;
             CREATE TABLE created (id bigserial PRIMARY KEY, body jsonb);
             CREATE INDEX ON created USING gin (body);
             ANALYZE;",
            documents - 1
        );
        self.run(&script).await
    }

    /// Runs statements one after the other.
    pub(crate) async fn run(&self, script: &str) -> Result<(), Failure> {
        Connection::open(self.port).await?.run(script).await?;
        Ok(())
    }

    /// Copies documents 0 to `count` into a table of partition, id and body, over some connections.
    pub(crate) async fn copy(
        &self,
        table: &'static str,
        count: u64,
        connections: usize,
        make: impl Fn(u64) -> Document + Clone + Send + 'static,
    ) -> Result<(), Failure> {
        const AT_ONCE: u64 = 100;
        let next = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..connections {
            let (next, make, port) = (next.clone(), make.clone(), self.port);
            tasks.spawn(async move {
                let mut connection = Connection::open(port).await?;
                connection.copy_begin(table).await?;
                loop {
                    let from = next.fetch_add(AT_ONCE, Ordering::SeqCst);
                    if from >= count {
                        return connection.copy_end().await;
                    }
                    let mut lines = String::new();
                    for Document { partition, id, text } in
                        (from..(from + AT_ONCE).min(count)).map(&make)
                    {
                        // Nothing in these documents needs an escape.
                        lines.extend([partition.as_str(), "\t", &id, "\t", &text, "\n"]);
                    }
                    connection.copy_lines(lines.as_bytes()).await?;
                    if from.is_multiple_of(100_000) && from > 0 {
                        eprintln!("{from} documents copied into PostgreSQL");
                    }
                }
            });
        }
        load::finish(tasks).await
    }

    /// Prepared selects by primary key; the rate.
    pub(crate) async fn selects(
        &self,
        documents: u64,
        clients: usize,
        time: Duration,
    ) -> Result<f64, Failure> {
        let script = format!(
            "\\set n random(0, {})\nSELECT body FROM docs WHERE pk = 'p' || (:n % 1000) AND id = 'd' || :n;\n",
            documents - 1
        );
        self.pgbench("select.sql", &script, clients, time).await
    }

    /// Inserts of 1 KiB documents into a table with a GIN index, each durable; the rate.
    pub(crate) async fn inserts(&self, clients: usize, time: Duration) -> Result<f64, Failure> {
        let script = "\\set n random(0, 1000000000)
INSERT INTO created (body) VALUES (jsonb_build_object('id', 'c' || :n, 'pk', 'p' || (:n % 1000),
    'customer', 'customer-' || (:n % 10007), 'status', 'new', 'total', :n % 1000, 'currency', 'EUR',
    'created', '2026-01-01', 'city', 'city-' || (:n % 200), 'country', 'DE',
    'items', jsonb_build_array(jsonb_build_object('sku', 's' || (:n % 5000), 'count', 1)),
    'tags', '[\"a\",\"b\"]'::jsonb, 'priority', :n % 5, 'paid', true, 'note', null,
    'filler', repeat(md5(:n::text), 14)));
";
        self.pgbench("insert.sql", script, clients, time).await
    }

    async fn pgbench(
        &self,
        name: &str,
        script: &str,
        clients: usize,
        time: Duration,
    ) -> Result<f64, Failure> {
        let file = self.directory.join(name);
        std::fs::write(&file, script)?;
        let output = Command::new(self.binaries.join("pgbench"))
            .arg("-h")
            .arg(&self.directory)
            .args(["-p", &self.port.to_string()])
            .args(["-U", USER, "-n", "-M", "prepared", "-j", "2", "-c", &clients.to_string()])
            .args(["-T", &time.as_secs().max(1).to_string(), "-f"])
            .arg(&file)
            .arg("postgres")
            .output()
            .await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rate = text.lines().find_map(|line| line.strip_prefix("tps = "));
        let rate = rate.and_then(|rate| rate.split_whitespace().next());
        Ok(rate.ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())?.parse()?)
    }
}

/// Where the newest installed server is.
fn binaries() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|path| path.join("postgres").exists() && path.join("pgbench").exists())
        .collect();
    found.sort();
    found.pop()
}

/// A program of PostgreSQL, which refuses to run as root; its package brings a user.
async fn as_user(program: &Path) -> Result<Command, Failure> {
    let mut command = Command::new(program);
    command.uid(id("-u").await?).gid(id("-g").await?);
    Ok(command)
}

async fn id(which: &str) -> Result<u32, Failure> {
    let output = Command::new("id").args([which, USER]).output().await?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

async fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().await?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{command:?} failed").into())
}
