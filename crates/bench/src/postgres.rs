//! PostgreSQL beside us: Debian's server on a temporary directory, loaded by its own pgbench.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::Failure;

pub(crate) struct Postgres {
    binaries: PathBuf,
    directory: PathBuf,
    #[expect(dead_code, reason = "the server ends when this is dropped")]
    process: Child,
    documents: u64,
}

const USER: &str = "postgres";

impl Postgres {
    /// Starts a server with documents in a jsonb table; nothing where PostgreSQL is not installed.
    pub(crate) async fn start(directory: &Path, documents: u64) -> Result<Option<Self>, Failure> {
        let Some(binaries) = binaries() else { return Ok(None) };
        std::fs::create_dir_all(directory)?;
        // PostgreSQL refuses to run as root; its package brings a user.
        run(Command::new("chown").arg("-R").arg(USER).arg(directory)).await?;
        let parents = directory.ancestors().skip(1).take_while(|path| path.parent().is_some());
        for parent in parents {
            let _ = run(Command::new("chmod").arg("o+x").arg(parent)).await;
        }
        let data = directory.join("data");
        let initdb = as_user(&binaries.join("initdb"))
            .args(["-A", "trust", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status()
            .await?;
        if !initdb.success() {
            return Err("initdb failed".into());
        }
        let process = as_user(&binaries.join("postgres"))
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(directory)
            .args(["-c", "listen_addresses=", "-c", "max_connections=200"])
            .args(["-c", "shared_buffers=512MB", "-c", "synchronous_commit=on"])
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let postgres = Self { binaries, directory: directory.to_owned(), process, documents };
        postgres.wait().await?;
        postgres.load().await?;
        Ok(Some(postgres))
    }

    async fn wait(&self) -> Result<(), Failure> {
        for _ in 0..200 {
            let ready = Command::new(self.binaries.join("pg_isready"))
                .arg("-h")
                .arg(&self.directory)
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

    async fn load(&self) -> Result<(), Failure> {
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
            self.documents - 1
        );
        let mut psql = Command::new("psql");
        psql.arg("-h")
            .arg(&self.directory)
            .args(["-U", USER, "-d", "postgres", "-q", "-v", "ON_ERROR_STOP=1", "-c"])
            .arg(script);
        run(&mut psql).await
    }

    /// Prepared selects by primary key; the rate.
    pub(crate) async fn selects(&self, clients: usize, time: Duration) -> Result<f64, Failure> {
        let script = format!(
            "\\set n random(0, {})\nSELECT body FROM docs WHERE pk = 'p' || (:n % 1000) AND id = 'd' || :n;\n",
            self.documents - 1
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

fn as_user(program: &Path) -> Command {
    let mut command = Command::new("runuser");
    command.args(["-u", USER, "--"]).arg(program);
    command
}

async fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().await?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{command:?} failed").into())
}
