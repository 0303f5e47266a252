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

use support::account::{Account, Keeping};
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
    run(Account::direct(Keeping::in_memory()).await, script).await
}

async fn embedded(script: &Script) -> Output {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let account = Account::direct(Keeping::Directory(directory.path().to_owned())).await;
    run(account, script).await
}

async fn over_http(script: &Script) -> Output {
    run(Account::over_http(Keeping::in_memory()).await, script).await
}

/// Whether the scripts are to be rewritten.
fn is_update() -> bool {
    std::env::var_os("UPDATE").is_some()
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

/// An update then changes only what a change of behaviour changes.
#[test]
fn scripts_are_written_as_an_update_would_write_them() {
    if is_update() {
        return;
    }
    for path in scripts() {
        let text = std::fs::read_to_string(&path).expect("a script is text");
        let script = Script::parse(&text).expect("a script has the form of one");
        let expected: Vec<_> = script.blocks.iter().map(|block| block.expected.clone()).collect();
        assert_eq!(script.with_output(&expected), text, "{}", path.display());
        let silent = script.blocks.iter().find(|block| !block.has_comment());
        assert!(silent.is_none(), "{}: {silent:?} does not say what it shows", path.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_print_the_same_everywhere() {
    let mut problems = Vec::new();
    for path in scripts() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a script is text");
        let mut script = Script::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        if is_update() {
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
