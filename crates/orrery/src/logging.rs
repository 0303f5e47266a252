//! Structured logs, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging. The levels of Microsoft's emulator are understood, `quiet` among them.
pub(crate) fn start(filter: &str, json: bool) -> Result<(), String> {
    let filter = if filter == "quiet" { "off" } else { filter };
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| format!("--log '{filter}' is not valid: {error}"))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json {
        logs.json().init();
    } else {
        // Colours are for people, not for files.
        logs.with_ansi(std::io::stderr().is_terminal()).with_target(false).init();
    }
    Ok(())
}
