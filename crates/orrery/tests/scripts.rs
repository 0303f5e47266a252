//! The golden scripts of `tests/scripts`.
//!
//! Every script runs three times: over the memory engine, over the embedded engine, and over HTTP
//! through a real socket. All three must print what the script says. `UPDATE=1` writes what the memory
//! engine prints into the scripts instead; the diff is reviewed like code. The language of the scripts
//! is described in `support/command.rs`, their form in `support/script.rs`.

mod support {
    pub(crate) mod account;
    pub(crate) mod command;
    pub(crate) mod http;
    pub(crate) mod run;
    pub(crate) mod script;
}

use std::path::{Path, PathBuf};

use storage::{Embedded, InMemory, Options};
use support::account::Account;
use support::run::run;
use support::script::Script;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scripts")
}

fn scripts() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory()).expect("tests/scripts can be read");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "there are no scripts");
    paths
}

/// What a script prints, block by block, or why it cannot be run.
type Output = Result<Vec<Vec<String>>, String>;

async fn in_memory(script: &Script) -> Output {
    run(&Account::direct(InMemory::new()).await, script).await
}

async fn embedded(script: &Script) -> Output {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let options = Options { cache_bytes: 4 << 20, memtable_bytes: 4 << 20, worker_threads: 2 };
    let store =
        Embedded::open(directory.path(), options).expect("an empty directory can be opened");
    let account = Account::direct(store).await;
    let output = run(&account, script).await;
    account.db.close().await.expect("the store can be closed");
    output
}

async fn over_http(script: &Script) -> Output {
    run(&Account::over_http(InMemory::new()).await, script).await
}

/// Says what is wrong with what a script printed.
fn differences(script: &Script, output: Output) -> Vec<String> {
    let output = match output {
        Ok(output) => output,
        Err(error) => return vec![error],
    };
    let pairs = script.blocks.iter().zip(output);
    let wrong = pairs.filter(|(block, printed)| block.expected != *printed);
    wrong
        .map(|(block, printed)| {
            let line = block.steps.first().map_or(0, |step| step.line);
            let (expected, printed) = (block.expected.join("\n    "), printed.join("\n    "));
            format!("block at line {line}\n  expected\n    {expected}\n  printed\n    {printed}")
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_print_the_same_everywhere() {
    let update = std::env::var_os("UPDATE").is_some();
    let mut problems = Vec::new();
    for path in scripts() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a script is text");
        let mut script = Script::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        if update {
            match in_memory(&script).await {
                Ok(output) => {
                    let text = script.with_output(&output);
                    std::fs::write(&path, &text).expect("the script can be written");
                    script = Script::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
                }
                Err(error) => {
                    problems.push(format!("{name}: {error}"));
                    continue;
                }
            }
        }
        for (way, output) in [
            ("memory engine", in_memory(&script).await),
            ("embedded engine", embedded(&script).await),
            ("over HTTP", over_http(&script).await),
        ] {
            let wrong = differences(&script, output).into_iter();
            problems.extend(wrong.map(|wrong| format!("{name}, {way}: {wrong}")));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}
