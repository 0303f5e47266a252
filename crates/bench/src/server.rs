//! The real server, as its own process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::Failure;

pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
}

impl Server {
    /// Starts the server on a free port and waits for its ready line.
    pub(crate) async fn start(data: &Path) -> Result<Self, Failure> {
        let mut process = Command::new(binary()?)
            .args(["serve", "--port", "0", "--log", "error", "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().ok_or("the server has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).await?;
        let port = line.split("https://localhost:").nth(1).and_then(|rest| rest.split('/').next());
        let port = port.ok_or_else(|| format!("no ready line: {line:?}"))?.parse()?;
        Ok(Self { process, port })
    }

    /// What the process holds in memory.
    pub(crate) fn memory_bytes(&self) -> Result<u64, Failure> {
        let process = self.process.id().ok_or("the server is gone")?;
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next());
        Ok(kibibytes.ok_or("no VmRSS")?.parse::<u64>()? * 1024)
    }

    /// The CPU time that the process has used.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        let process = self.process.id().ok_or("the server is gone")?;
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        // The name of the program, in parentheses, may hold spaces; the times are the 12th and 13th
        // words after it, in hundredths of a second wherever Linux runs.
        let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: Vec<u64> = words.skip(11).take(2).flat_map(str::parse).collect();
        Ok(Duration::from_millis(10 * ticks.iter().sum::<u64>()))
    }

    /// Waits until the server does nothing more of its own accord, a minute at most; how long.
    pub(crate) async fn settle(&self) -> Result<Duration, Failure> {
        const LOOK_EVERY: Duration = Duration::from_millis(500);
        let started = Instant::now();
        loop {
            let (waited, before) = (started.elapsed(), self.cpu()?);
            tokio::time::sleep(LOOK_EVERY).await;
            if self.cpu()? - before < LOOK_EVERY / 20 || waited > Duration::from_secs(60) {
                return Ok(waited);
            }
        }
    }

    /// Asks the server to stop and waits until it has.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        let process = self.process.id().ok_or("the server is gone")?;
        Command::new("kill").arg(process.to_string()).status().await?;
        self.process.wait().await?;
        Ok(())
    }

    pub(crate) async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.process.kill().await?)
    }
}

/// The server's binary, which is built beside this one.
fn binary() -> Result<PathBuf, Failure> {
    let binary = std::env::current_exe()?.with_file_name("orrery");
    if !binary.exists() {
        let built = std::process::Command::new("cargo")
            .args(["build", "--release", "--bin", "orrery"])
            .status()?;
        if !built.success() || !binary.exists() {
            return Err("build the server first: cargo build --release".into());
        }
    }
    Ok(binary)
}
