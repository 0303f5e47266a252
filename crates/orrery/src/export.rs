//! `orrery export`: writes a database, or one of its containers, to files.
//!
//! A folder gets `export.json`, which is a seed (see [`crate::seed`]), and beside it a folder for each
//! container with its scripts and its documents, one on each line, in a file for each range of the
//! container. Ranges are read side by side. While the export is under way a state file lies in the
//! folder; it tells where `--resume` goes on, and that the export is not complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use db::Throughput;
use tokio::task::JoinSet;
use value::{Object, SYSTEM_PROPERTIES, ScriptKind, Value};

use crate::account::{Account, Place, Range, name_of, not_understood};
use crate::commands::ExportArguments;
use crate::connection::{self, Failure};
use crate::explanation::count;
use crate::feed;
use crate::progress::Progress;
use crate::resume::{State, cannot_write};
use crate::script_folder::{KINDS, folder};
use crate::seed::throughput_value;

/// The file that holds everything but documents and the text of scripts.
pub(crate) const FILE: &str = "export.json";
/// The state of an export that is not complete.
pub(crate) const STATE: &str = "export-state.json";
/// Ranges that are read at once.
const READING_MAX: usize = 8;

pub(crate) fn run(arguments: ExportArguments) -> Result<ExitCode, Box<dyn std::error::Error>> {
    connection::run(export(arguments))
}

async fn export(arguments: ExportArguments) -> Result<(), Failure> {
    if arguments.output.as_deref() == Some(Path::new("-")) {
        return to_standard_output(arguments).await;
    }
    let directory = arguments.output.clone();
    let directory = directory.unwrap_or_else(|| FileNames::default().next(&arguments.database));
    let mut account = arguments.connection.connect().await?;
    let about = about(&arguments, account.endpoint());
    let containers = containers(&mut account, &arguments).await?;
    let state = directory.join(STATE);
    let state = if arguments.resume {
        State::resume(state, &about)?
    } else {
        make_new(&directory)?;
        State::begin(state, about)?
    };
    let plan = Plan::make(&mut account, &arguments.database, containers, &directory).await?;
    let mut exporter = Exporter {
        account,
        state: Arc::new(Mutex::new(state)),
        strip: arguments.strip_system,
        progress: Progress::new(),
    };
    let mut total = 0;
    for container in &plan.containers {
        total += exporter.container(container).await?;
    }
    let Exporter { state, mut progress, .. } = exporter;
    let state = Arc::into_inner(state).expect("all readers have ended");
    state.into_inner().unwrap_or_else(PoisonError::into_inner).end()?;
    progress.finish(&format!(
        "{} and {} in {}",
        count(plan.containers.len() as u64, "container"),
        count(total, "document"),
        directory.display()
    ));
    Ok(())
}

/// What an export is about: going on with another one would mix the two.
fn about(arguments: &ExportArguments, endpoint: &str) -> Object {
    let container = arguments.container.as_deref().map_or(Value::Null, Value::from);
    Object::from([
        ("from", Value::from(endpoint)),
        ("database", Value::from(arguments.database.as_str())),
        ("container", container),
        ("strip-system", Value::from(arguments.strip_system)),
    ])
}

/// The containers that are asked for.
async fn containers(
    account: &mut Account,
    arguments: &ExportArguments,
) -> Result<Vec<Object>, Failure> {
    let mut containers = account.containers(&arguments.database).await?;
    if let Some(only) = &arguments.container {
        containers.retain(|container| name_of(container) == Some(only));
        if containers.is_empty() {
            return Err(Failure::Refused(format!(
                "there is no container '{only}' in database '{}'",
                arguments.database
            )));
        }
    }
    Ok(containers)
}

/// Makes a folder that has nothing in it.
fn make_new(directory: &Path) -> Result<(), Failure> {
    if directory.join(STATE).exists() {
        return Err(Failure::Usage(format!(
            "an export to {} was interrupted: go on with --resume, or delete the folder",
            directory.display()
        )));
    }
    fs::create_dir_all(directory).map_err(|error| cannot_write(directory, &error))?;
    let mut entries = fs::read_dir(directory).map_err(|error| cannot_write(directory, &error))?;
    if entries.next().is_some() {
        return Err(Failure::Usage(format!(
            "{} is not empty; name a new folder",
            directory.display()
        )));
    }
    Ok(())
}

/// Writes the documents of one container to standard output, and nothing else.
async fn to_standard_output(arguments: ExportArguments) -> Result<(), Failure> {
    let Some(container) = arguments.container else {
        return Err(Failure::Usage(
            "standard output takes the documents of one container: name it with --container"
                .to_owned(),
        ));
    };
    if arguments.resume {
        return Err(Failure::Usage("what goes to standard output cannot be resumed".to_owned()));
    }
    let place = Place { database: arguments.database, container };
    let mut account = arguments.connection.connect().await?;
    let ranges = account.ranges(&place).await?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut written = 0;
    for range in &ranges {
        let mut continuation: Option<String> = None;
        loop {
            let answer = account.page(&place, range, continuation.as_deref()).await?;
            written += write_page(&mut out, &answer.body, arguments.strip_system)?;
            out.flush()?;
            continuation = answer.continuation().map(str::to_owned);
            if continuation.is_none() {
                break;
            }
        }
    }
    check_count(&mut account, &place, written).await
}

/// What is exported, and to which files.
struct Plan {
    containers: Vec<ContainerPlan>,
}

struct ContainerPlan {
    place: Place,
    /// The ranges, each with the file of its documents.
    ranges: Vec<(Range, PathBuf)>,
}

impl Plan {
    /// Looks at everything but documents and writes it.
    async fn make(
        account: &mut Account,
        database: &str,
        containers: Vec<Object>,
        directory: &Path,
    ) -> Result<Self, Failure> {
        let throughputs = account.throughputs().await?;
        let mut plans = Vec::new();
        let mut members = Vec::new();
        let mut names = FileNames::default();
        for container in containers {
            let name =
                name_of(&container).ok_or_else(|| not_understood("a container has no id"))?;
            let place = Place { database: database.to_owned(), container: name.to_owned() };
            let (member, ranges) =
                describe(account, &place, container, &throughputs, &mut names, directory).await?;
            members.push(Value::from(member));
            plans.push(ContainerPlan { place, ranges });
        }
        let mut own = Object::from([("id", Value::from(database))]);
        let databases = account.databases().await?;
        let this = databases.iter().find(|one| name_of(one) == Some(database));
        if let Some(throughput) = this.and_then(|this| throughput(this, &throughputs)) {
            own.insert("throughput", throughput_value(throughput));
        }
        own.insert("containers", Value::from(members));
        let seed = Object::from([("databases", Value::from(vec![Value::from(own)]))]);
        write_file(&directory.join(FILE), &pretty(&Value::from(seed)))?;
        Ok(Self { containers: plans })
    }
}

/// The member of the seed that a container becomes, and the files of its documents. Its scripts are
/// written.
async fn describe(
    account: &mut Account,
    place: &Place,
    mut container: Object,
    throughputs: &[(String, Throughput)],
    names: &mut FileNames,
    directory: &Path,
) -> Result<(Object, Vec<(Range, PathBuf)>), Failure> {
    let throughput = throughput(&container, throughputs);
    container.retain(|name, _| !name.starts_with('_'));
    if let Some(throughput) = throughput {
        container.insert("throughput", throughput_value(throughput));
    }
    let own = names.next(&place.container);
    let make = |path: &Path| fs::create_dir_all(path).map_err(|error| cannot_write(path, &error));
    make(&directory.join(&own))?;
    for kind in KINDS {
        let scripts = account.scripts(place, kind).await?;
        if scripts.is_empty() {
            continue;
        }
        let subfolder = own.join(folder(kind));
        make(&directory.join(&subfolder))?;
        let mut names = FileNames::default();
        let mut members = Vec::new();
        for script in scripts {
            members.push(write_script(kind, script, &subfolder, &mut names, directory)?);
        }
        container.insert(folder(kind), Value::from(members));
    }
    let ranges = account.ranges(place).await?;
    let is_single = ranges.len() == 1;
    let mut files = Vec::new();
    let mut documents = Vec::new();
    for range in ranges {
        let name = match is_single {
            true => "documents.ndjson".to_owned(),
            false => format!("documents-{}.ndjson", safe(&range.id)),
        };
        documents.push(Value::from(portable(&own.join(&name))));
        files.push((range, directory.join(&own).join(name)));
    }
    container.insert("documents", Value::from(documents));
    forget_others(&directory.join(own), &files)?;
    Ok((container, files))
}

/// Removes the files of ranges that are gone since the export was interrupted.
fn forget_others(directory: &Path, files: &[(Range, PathBuf)]) -> Result<(), Failure> {
    let entries = fs::read_dir(directory).map_err(|error| cannot_write(directory, &error))?;
    for entry in entries {
        let path = entry.map_err(|error| cannot_write(directory, &error))?.path();
        let is_documents = path.extension().is_some_and(|extension| extension == "ndjson");
        if is_documents && !files.iter().any(|(_, file)| *file == path) {
            fs::remove_file(&path).map_err(|error| cannot_write(&path, &error))?;
        }
    }
    Ok(())
}

fn throughput(of: &Object, throughputs: &[(String, Throughput)]) -> Option<Throughput> {
    let rid = of.get("_rid").and_then(Value::as_str)?;
    throughputs.iter().find(|(owner, _)| owner == rid).map(|(_, throughput)| *throughput)
}

/// Writes the text of a script to a file; gives the rest of it, with the file's name.
fn write_script(
    kind: ScriptKind,
    mut script: Object,
    subfolder: &Path,
    names: &mut FileNames,
    directory: &Path,
) -> Result<Value, Failure> {
    let name = name_of(&script).unwrap_or_default().to_owned();
    let path = subfolder.join(names.next(&name)).with_added_extension("js");
    let body = script.get("body").and_then(Value::as_str).unwrap_or_default();
    write_file(&directory.join(&path), body)?;
    let mut member = Object::from([("id", Value::from(name))]);
    if kind == ScriptKind::Trigger {
        for name in ["triggerType", "triggerOperation"] {
            member.insert(name, script.remove(name).unwrap_or(Value::Null));
        }
    }
    member.insert("file", portable(&path));
    Ok(Value::from(member))
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| cannot_write(path, &error))
}

/// A path of ours as it stands in a seed: relative, with slashes.
fn portable(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

/// Reads documents and writes them to files.
struct Exporter {
    account: Account,
    state: Arc<Mutex<State>>,
    strip: bool,
    progress: Progress,
}

/// A range on its way to its file.
struct Reading {
    account: Account,
    place: Place,
    range: Range,
    path: PathBuf,
    strip: bool,
    state: Arc<Mutex<State>>,
    told: tokio::sync::mpsc::UnboundedSender<u64>,
}

impl Exporter {
    /// Writes the documents of a container; says how many.
    async fn container(&mut self, plan: &ContainerPlan) -> Result<u64, Failure> {
        let ContainerPlan { place, ranges } = plan;
        let total = self.account.count(place).await?;
        let name = format!("{}/{}", place.database, place.container);
        self.progress.start(&name, Some(total));
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let mut waiting: Vec<Reading> = Vec::new();
        for (range, path) in ranges.iter().rev() {
            waiting.push(Reading {
                account: self.account.another(),
                place: place.clone(),
                range: range.clone(),
                path: path.clone(),
                strip: self.strip,
                state: self.state.clone(),
                told: told.clone(),
            });
        }
        drop(told);
        let mut reading = JoinSet::new();
        let (mut heard_of, mut written) = (0, 0);
        loop {
            while reading.len() < READING_MAX
                && let Some(next) = waiting.pop()
            {
                reading.spawn(next.run());
            }
            tokio::select! {
                Some(documents) = heard.recv() => {
                    heard_of += documents;
                    self.progress.tell(heard_of, heard_of);
                }
                ended = reading.join_next() => match ended {
                    None => break,
                    Some(Ok(documents)) => written += documents?,
                    Some(Err(error)) => return Err(Failure::Refused(format!("a fault: {error}"))),
                },
            }
        }
        check_count(&mut self.account, place, written).await?;
        self.progress.finish(&format!("{name}: {}", count(written, "document")));
        Ok(written)
    }
}

impl Reading {
    /// Reads the range to its end; says how many documents its file has.
    async fn run(mut self) -> Result<u64, Failure> {
        let part = format!("{}/{}", self.place.container, self.range.id);
        let mark = self.state().mark(&part).cloned().unwrap_or(Value::Null);
        let number = |name: &str| {
            let number = mark.get(name).and_then(Value::as_i64);
            number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
        };
        let (mut bytes, mut documents) = (number("bytes"), number("documents"));
        let mut continuation = mark.get("continuation").and_then(Value::as_str).map(str::to_owned);
        let unwritable = |path: &Path, error: &io::Error| cannot_write(path, error);
        let path = self.path.clone();
        let mut file = open_at(&path, bytes)?;
        let _ = self.told.send(documents);
        // A mark without a continuation is that of a range that was read to its end.
        let mut is_complete = !mark.is_null() && continuation.is_none();
        while !is_complete {
            let answer =
                self.account.page(&self.place, &self.range, continuation.as_deref()).await?;
            let mut page = Vec::new();
            let found = write_page(&mut page, &answer.body, self.strip)?;
            file.write_all(&page).map_err(|error| unwritable(&path, &error))?;
            bytes += page.len() as u64;
            documents += found;
            continuation = answer.continuation().map(str::to_owned);
            let mut next = Object::from([("bytes", bytes), ("documents", documents)]);
            if let Some(token) = &continuation {
                next.insert("continuation", token.as_str());
            }
            self.state().set(&part, Value::from(next))?;
            let _ = self.told.send(found);
            is_complete = continuation.is_none();
        }
        file.sync_all().map_err(|error| unwritable(&path, &error))?;
        Ok(documents)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a file to be written on after so many bytes; what is behind them is cut off.
fn open_at(path: &Path, bytes: u64) -> Result<File, Failure> {
    let unwritable = |error: io::Error| cannot_write(path, &error);
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let mut file = opened.map_err(unwritable)?;
    if file.metadata().map_err(unwritable)?.len() < bytes {
        return Err(Failure::Refused(format!(
            "{} is shorter than it was when the export was interrupted: start anew in another \
             folder",
            path.display()
        )));
    }
    file.set_len(bytes).map_err(unwritable)?;
    file.seek(SeekFrom::Start(bytes)).map_err(unwritable)?;
    Ok(file)
}

/// Writes the documents of a page, one on each line, as the server spells them; says how many.
fn write_page(out: &mut impl Write, body: &[u8], strip: bool) -> Result<u64, Failure> {
    let documents = feed::elements(body, "Documents");
    let documents = documents.ok_or_else(|| not_understood("it has no documents"))?;
    for document in &documents {
        // A server may break lines between the parts of a document, which here would end it.
        if strip || document.contains(&b'\n') {
            let value = Value::parse(document);
            let value = value.map_err(|error| not_understood(&format!("a document: {error}")))?;
            let text = if strip { stripped(value) } else { value };
            out.write_all(text.to_text().as_bytes())?;
        } else {
            out.write_all(document)?;
        }
        out.write_all(b"\n")?;
    }
    Ok(documents.len() as u64)
}

fn stripped(document: Value) -> Value {
    match document {
        Value::Object(mut document) => {
            document.retain(|name, _| !SYSTEM_PROPERTIES.contains(&name));
            Value::from(document)
        }
        other => other,
    }
}

/// The container has as many documents as were written; unless somebody writes to it.
async fn check_count(account: &mut Account, place: &Place, written: u64) -> Result<(), Failure> {
    let there = account.count(place).await?;
    if there == written {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "{} of '{}/{}' were written and the container has {there}: somebody writes to it, or \
         documents expire; export again when it is quiet",
        count(written, "document"),
        place.database,
        place.container
    )))
}

/// Gives things names of files: each its own, on every file system.
#[derive(Default)]
struct FileNames(Vec<String>);

impl FileNames {
    fn next(&mut self, name: &str) -> PathBuf {
        let plain = safe(name);
        let mut unique = plain.clone();
        let mut number = 1;
        // Some file systems do not tell small letters from large ones.
        while self.0.contains(&unique.to_lowercase()) {
            number += 1;
            unique = format!("{plain}~{number}");
        }
        self.0.push(unique.to_lowercase());
        PathBuf::from(unique)
    }
}

/// Longer names are cut.
const NAME_CHARS_MAX: usize = 60;

/// A name without what a file system could take for something else.
fn safe(name: &str) -> String {
    let plain = |(at, character): (usize, char)| match character {
        '-' | '_' | ' ' => character,
        '.' if at > 0 => character,
        character if character.is_alphanumeric() => character,
        _ => '_',
    };
    let safe: String = name.chars().take(NAME_CHARS_MAX).enumerate().map(plain).collect();
    let safe = safe.trim_end_matches([' ', '.']);
    if safe.is_empty() { "_".to_owned() } else { safe.to_owned() }
}

/// JSON with a line for every member, for people who look into it.
fn pretty(value: &Value) -> String {
    let mut out = String::new();
    write_pretty(value, 0, &mut out);
    out.push('\n');
    out
}

fn write_pretty(value: &Value, depth: usize, out: &mut String) {
    let (open, close, parts): (char, char, Vec<(Option<&str>, &Value)>) = match value {
        Value::Array(elements) if !elements.is_empty() => {
            ('[', ']', elements.iter().map(|element| (None, element)).collect())
        }
        Value::Object(members) if !members.is_empty() => {
            ('{', '}', members.iter().map(|(name, value)| (Some(name), value)).collect())
        }
        scalar => return scalar.write(out),
    };
    out.push(open);
    for (at, (name, part)) in parts.iter().enumerate() {
        out.push_str(if at > 0 { ",\n" } else { "\n" });
        out.push_str(&"  ".repeat(depth + 1));
        if let Some(name) = name {
            value::write_string(name, out);
            out.push_str(": ");
        }
        write_pretty(part, depth + 1, out);
    }
    out.push('\n');
    out.push_str(&"  ".repeat(depth));
    out.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_safe_and_their_own() {
        let mut names = FileNames::default();
        let mut check = |name: &str, expected: &str| {
            assert_eq!(names.next(name), PathBuf::from(expected), "{name}");
        };
        check("orders", "orders");
        check("Orders", "Orders~2");
        check("orders", "orders~3");
        check("..", "_");
        check(".hidden.", "_hidden");
        check("a:b*c", "a_b_c");
        check("größe 1", "größe 1");
        check(&"x".repeat(255), &"x".repeat(60));
    }

    #[test]
    fn what_is_written_for_people_is_the_same_value() {
        let text = r#"{"a":[1.50,{"b":"\n"}],"c":{},"d":[]}"#;
        let value = Value::parse(text.as_bytes()).unwrap();
        let pretty = pretty(&value);
        assert_eq!(Value::parse(pretty.as_bytes()).unwrap().to_text(), text);
        assert!(pretty.starts_with("{\n  \"a\": [\n    1.50,\n    {\n"), "{pretty}");
    }

    #[test]
    fn documents_keep_their_spelling_unless_they_have_to_change() {
        let page = br#"{"Documents":[{"id":"\u0061","n":1.0e2,"_ts":1,"_x":2}]}"#;
        let check = |strip: bool, expected: &str| {
            let mut out = Vec::new();
            assert_eq!(write_page(&mut out, page, strip).unwrap(), 1);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(false, "{\"id\":\"\\u0061\",\"n\":1.0e2,\"_ts\":1,\"_x\":2}\n");
        check(true, "{\"id\":\"a\",\"n\":1.0e2,\"_x\":2}\n");
    }
}
