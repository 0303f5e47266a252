//! `orrery verify`: checks what is stored while the server is not running.

use std::process::ExitCode;
use std::sync::Arc;

use db::{Db, SystemClock, SystemIds};
use storage::{Embedded, Options};

use crate::commands::VerifyArguments;
use crate::say;

pub(crate) fn run(arguments: &VerifyArguments) -> Result<ExitCode, Box<dyn std::error::Error>> {
    if !arguments.data.is_dir() {
        return Err(format!("{} is not a data directory", arguments.data.display()).into());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    let store = Arc::new(Embedded::open(&arguments.data, Options::default())?);
    let db = runtime.block_on(Db::open(store, Arc::new(SystemClock), &SystemIds::new()))?;
    let verified = db.verify(|so_far| {
        say(&format!("checked {} ranges, {} documents", so_far.ranges, so_far.documents));
    })?;
    runtime.block_on(db.close())?;
    for problem in &verified.problems {
        say(problem);
    }
    say(&format!(
        "{} containers, {} ranges, {} documents, {} problems",
        verified.containers,
        verified.ranges,
        verified.documents,
        verified.problems.len()
    ));
    Ok(if verified.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
