//! The real server, as its own process.

use std::path::{Path, PathBuf};
use std::process::Stdio;

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
