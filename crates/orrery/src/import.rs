//! `orrery import`: brings what `orrery export` wrote, or what a seed holds, to a server.
//!
//! Databases, containers and scripts are created where they are missing. Documents that are there are
//! replaced, so an import can be repeated. While it is under way a state file lies beside what is
//! imported; `--resume` goes on from it.

use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use value::{Object, Value};

use crate::account::{Account, Existing, Place};
use crate::commands::ImportArguments;
use crate::connection::{self, Failure};
use crate::explanation::count;
use crate::export;
use crate::loader::{Documents, Lines, Loader, Target};
use crate::progress::Progress;
use crate::resume::State;
use crate::say;
use crate::seed::{DocumentsSeed, Seed};

pub(crate) fn run(arguments: ImportArguments) -> Result<ExitCode, Box<dyn std::error::Error>> {
    connection::run(import(arguments))
}

/// What is imported.
enum Input {
    Seed(Box<Seed>),
    /// A file of documents for a container that is there.
    File(PathBuf, Place),
    Stdin(Place),
}

async fn import(arguments: ImportArguments) -> Result<(), Failure> {
    let input = input(&arguments)?;
    let account = arguments.connection.connect().await?;
    let state = state(&arguments, &input, &account)?;
    let progress = Progress::new();
    let mut loader = Loader { account, existing: Existing::Replace, progress, state };
    match &input {
        Input::Seed(seed) => {
            let loaded = loader.load(seed).await?;
            loader.progress.finish(&format!(
                "{} and {} created, {} changed, {} created and {} replaced",
                count(loaded.databases, "database"),
                count(loaded.containers, "container"),
                count(loaded.scripts, "script"),
                count(loaded.documents.created, "document"),
                loaded.documents.replaced
            ));
        }
        Input::File(path, place) => {
            let source = DocumentsSeed::File(path.clone());
            let (target, before) = target(&mut loader, place).await?;
            let documents = loader.documents(&target, &source).await?;
            finish(&mut loader, &target, before, documents).await?;
        }
        Input::Stdin(place) => {
            let (target, before) = target(&mut loader, place).await?;
            let lines = Lines { reader: BufReader::new(io::stdin()), offset: 0, line: 0 };
            let documents = loader.lines(&target, lines, "standard input").await?;
            finish(&mut loader, &target, before, documents).await?;
        }
    }
    loader.state.map_or(Ok(()), State::end)
}

async fn target(loader: &mut Loader, place: &Place) -> Result<(Target, u64), Failure> {
    let target = Target::of(&mut loader.account, place).await?;
    let before = loader.account.count(place).await?;
    Ok((target, before))
}

async fn finish(
    loader: &mut Loader,
    target: &Target,
    before: u64,
    documents: Documents,
) -> Result<(), Failure> {
    loader.check_count(target, before, documents).await?;
    loader.progress.finish(&format!(
        "{} created and {} replaced",
        count(documents.created, "document"),
        documents.replaced
    ));
    Ok(())
}

/// Finds out what is to be imported.
fn input(arguments: &ImportArguments) -> Result<Input, Failure> {
    let path = &arguments.input;
    let container = || match (&arguments.database, &arguments.container) {
        (Some(database), Some(container)) => {
            Ok(Place { database: database.clone(), container: container.clone() })
        }
        _ => Err(Failure::Usage(
            "documents alone go to a container that is there: name it with --database and \
             --container"
                .to_owned(),
        )),
    };
    if path == Path::new("-") {
        return Ok(Input::Stdin(container()?));
    }
    if path.extension().is_some_and(|extension| extension == "ndjson" || extension == "jsonl") {
        return Ok(Input::File(path.clone(), container()?));
    }
    let file = if path.is_dir() { path.join(export::FILE) } else { path.clone() };
    if path.is_dir() && path.join(export::STATE).exists() {
        return Err(Failure::Usage(format!(
            "the export in {} is not complete: go on with 'orrery export --resume'",
            path.display()
        )));
    }
    let mut seed = Seed::read(&file).map_err(|error| Failure::Usage(error.to_string()))?;
    confine(&mut seed, arguments)?;
    Ok(Input::Seed(Box::new(seed)))
}

/// Keeps of a seed what is asked for, under the name that is asked for.
fn confine(seed: &mut Seed, arguments: &ImportArguments) -> Result<(), Failure> {
    if let Some(only) = &arguments.container {
        for database in &mut seed.databases {
            database.containers.retain(|container| container.place.container == *only);
        }
        seed.databases.retain(|database| !database.containers.is_empty());
        if seed.databases.is_empty() {
            return Err(Failure::Usage(format!("there is no container '{only}' to import")));
        }
    }
    if let Some(name) = &arguments.database {
        let [database] = &mut seed.databases[..] else {
            return Err(Failure::Usage(
                "--database gives one database another name, and there are several to import"
                    .to_owned(),
            ));
        };
        database.name.clone_from(name);
        for container in &mut database.containers {
            container.place.database.clone_from(name);
        }
    }
    Ok(())
}

/// The state of the import: a new one, or that of the one that was interrupted.
fn state(
    arguments: &ImportArguments,
    input: &Input,
    account: &Account,
) -> Result<Option<State>, Failure> {
    let path = match input {
        Input::Stdin(_) if arguments.resume => {
            return Err(Failure::Usage("standard input cannot be resumed".to_owned()));
        }
        Input::Stdin(_) => return Ok(None),
        _ if arguments.input.is_dir() => arguments.input.join("import-state.json"),
        _ => arguments.input.with_added_extension("import-state.json"),
    };
    let text = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::from);
    let about = Object::from([
        ("into", Value::from(account.endpoint())),
        ("database", text(&arguments.database)),
        ("container", text(&arguments.container)),
    ]);
    if arguments.resume {
        return State::resume(path, &about).map(Some);
    }
    // What is imported may lie where nothing can be written.
    match State::begin(path, about) {
        Ok(state) => Ok(Some(state)),
        Err(failure) => {
            say(&format!("orrery: {failure}; this import cannot be resumed if it is interrupted"));
            Ok(None)
        }
    }
}
