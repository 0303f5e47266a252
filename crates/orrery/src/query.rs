//! `orrery query`: asks a server, as any client would, and prints what it says.
//!
//! Rows go to standard output and everything about them to standard error, so that the output can be
//! given to another program.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use gateway::{EMULATOR_KEY, Key};
use percent_encoding::percent_decode_str;
use value::Value;

use crate::client::{Answer, Client, Endpoint, Question, Unanswered, Want};
use crate::commands::QueryArguments;
use crate::explanation::{self, count};
use crate::refusal;
use crate::rows::{Format, Rows};
use crate::say;
use crate::trust::Trust;

/// Why a query was not answered, for the person who asked.
#[derive(Debug)]
enum Failure {
    /// The command itself makes no sense.
    Usage(String),
    /// The server did not answer the query.
    Refused(String),
    /// Nobody reads the output any more: the reader has had enough.
    Unread,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Unread,
            _ => Failure::Refused(format!("cannot write the answer: {error}")),
        }
    }
}

pub(crate) fn run(arguments: QueryArguments) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(query(arguments)) {
        Ok(()) | Err(Failure::Unread) => Ok(ExitCode::SUCCESS),
        Err(Failure::Refused(message)) => Err(message.into()),
        Err(Failure::Usage(message)) => {
            say(&format!("orrery: {message}"));
            Ok(ExitCode::from(2))
        }
    }
}

async fn query(arguments: QueryArguments) -> Result<(), Failure> {
    let key = key(&arguments)?;
    let trust = trust(&arguments)?;
    let mut asker = Asker {
        client: connect(&arguments.endpoint, &trust, key).await?,
        endpoint: arguments.endpoint,
        question: Question {
            database: arguments.database,
            container: arguments.container,
            text: arguments.text,
            parameters: arguments.parameters,
            key: arguments.partition_key,
        },
    };
    if arguments.explain {
        return asker.explain(arguments.format).await;
    }
    let format = arguments.format.unwrap_or(Format::Ndjson);
    let totals = asker.rows(format, arguments.page_size, arguments.max_rows, arguments.metrics);
    let totals = totals.await?;
    if arguments.metrics {
        say(&totals.to_string());
    }
    Ok(())
}

fn key(arguments: &QueryArguments) -> Result<Key, Failure> {
    let (name, text) = match (&arguments.key, &arguments.key_file) {
        (Some(key), _) => ("--key".to_owned(), key.clone()),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path);
            let refuse = |error| Failure::Usage(format!("cannot read {}: {error}", path.display()));
            (path.display().to_string(), text.map_err(refuse)?)
        }
        (None, None) => ("--key".to_owned(), EMULATOR_KEY.to_owned()),
    };
    Key::parse(&text).map_err(|error| Failure::Usage(format!("{name}: {}", error.0)))
}

fn trust(arguments: &QueryArguments) -> Result<Trust, Failure> {
    let trust = match &arguments.ca {
        Some(path) => Trust::File(path.clone()),
        None if arguments.insecure => Trust::Anything,
        None => Trust::System,
    };
    if trust != Trust::System && !arguments.endpoint.is_secure {
        return Err(Failure::Usage(format!(
            "--ca and --insecure are about certificates, and {} has none; give --endpoint https://…",
            arguments.endpoint
        )));
    }
    Ok(trust)
}

async fn connect(endpoint: &Endpoint, trust: &Trust, key: Key) -> Result<Client, Failure> {
    let tls = if endpoint.is_secure { Some(trust.config().map_err(Failure::Usage)?) } else { None };
    Client::connect(endpoint, tls, key).await.map_err(|error| unanswered(endpoint, error))
}

/// Says why there is no answer, and what can be done.
fn unanswered(endpoint: &Endpoint, error: Unanswered) -> Failure {
    Failure::Refused(match error {
        Unanswered::NotConnected(why) => format!(
            "cannot connect to {endpoint}: {why}; start a server with 'orrery serve', or say where \
             it is with --endpoint"
        ),
        Unanswered::NotTrusted(why) => format!(
            "the certificate of {endpoint} is not trusted: {why}; name the authority with --ca (a \
             server's own is in its data directory, tls/ca.pem), or check nothing with --insecure"
        ),
        Unanswered::Broken(why) => format!(
            "{endpoint} does not answer as a server should: {why}; see whether the address and \
             http or https are right"
        ),
        Unanswered::Late(after) => {
            format!("{endpoint} did not answer within {} seconds", after.as_secs())
        }
    })
}

/// A question on its way to a server.
struct Asker {
    client: Client,
    endpoint: Endpoint,
    question: Question,
}

impl Asker {
    /// Prints how the query would be answered.
    async fn explain(&mut self, format: Option<Format>) -> Result<(), Failure> {
        let answer = self.ask(Want::Explanation).await?;
        let explanation = json(&answer)?;
        let text = explanation::text(&explanation).ok_or_else(|| {
            Failure::Refused(format!(
                "{} does not explain queries: it is another server than Orrery, or an older one",
                self.endpoint
            ))
        })?;
        let text = match format {
            None | Some(Format::Table) => text,
            Some(Format::Json | Format::Ndjson) => explanation.to_text() + "\n",
        };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Prints the rows, page by page.
    async fn rows(
        &mut self,
        format: Format,
        page_size: Option<u32>,
        rows_max: Option<u64>,
        metrics: bool,
    ) -> Result<Totals, Failure> {
        let mut rows = Rows::new(BufWriter::new(io::stdout()), format);
        let mut totals = Totals::default();
        let mut continuation: Option<String> = None;
        let left = |written: u64| rows_max.map(|max| max.saturating_sub(written));
        while left(rows.written()) != Some(0) {
            // No more is asked for than will be shown.
            let room = left(rows.written()).and_then(|left| u32::try_from(left).ok());
            let items_max = page_size.into_iter().chain(room).min();
            let continuation_sent = continuation.as_deref();
            let want = Want::Page { items_max, continuation: continuation_sent, metrics };
            let answer = self.ask(want).await?;
            let page = json(&answer)?;
            let found = page.get("Documents").and_then(Value::as_array);
            let found = found.ok_or_else(|| not_understood("it has no rows"))?;
            let taken = left(rows.written()).and_then(|left| usize::try_from(left).ok());
            let taken = taken.unwrap_or(usize::MAX).min(found.len());
            rows.page(&found[..taken])?;
            totals.add(&answer, taken as u64);
            continuation = answer.continuation().map(str::to_owned);
            if continuation.is_none() {
                break;
            }
        }
        rows.finish()?;
        if continuation.is_some() {
            say(&format!("stopped after {}; there may be more", count(rows.written(), "row")));
        }
        Ok(totals)
    }

    /// Asks, and makes a refusal readable.
    async fn ask(&mut self, want: Want<'_>) -> Result<Answer, Failure> {
        let answer = self.client.ask(&self.question, want).await;
        let answer = answer.map_err(|error| unanswered(&self.endpoint, error))?;
        match answer.status {
            200 => Ok(answer),
            404 => Err(Failure::Refused(self.missing().await?)),
            _ => Err(Failure::Refused(refusal::describe(&answer, &self.question.text))),
        }
    }

    /// What it is that does not exist.
    async fn missing(&mut self) -> Result<String, Failure> {
        let Question { database, container, .. } = &self.question;
        let has_database = self.client.has_database(database).await;
        Ok(if has_database.map_err(|error| unanswered(&self.endpoint, error))? {
            format!("there is no container '{container}' in database '{database}'")
        } else {
            format!("there is no database '{database}' at {}", self.endpoint)
        })
    }
}

/// Rows of queries may be deeper than documents.
const DEPTH_MAX: usize = 1024;

fn json(answer: &Answer) -> Result<Value, Failure> {
    Value::parse_with_depth(&answer.body, DEPTH_MAX)
        .map_err(|error| not_understood(&format!("it is not JSON: {error}")))
}

fn not_understood(why: &str) -> Failure {
    Failure::Refused(format!("the server's answer cannot be understood: {why}"))
}

/// What an answer cost, over all pages.
#[derive(Debug, Default)]
struct Totals {
    rows: u64,
    pages: u64,
    charge_ru: f64,
    took_ms: f64,
    loaded_documents: u64,
    loaded_bytes: u64,
    /// The paths of the query that have an index.
    indexed: Vec<String>,
    /// Those that an index would help with, and that have none.
    unindexed: Vec<String>,
}

impl Totals {
    fn add(&mut self, answer: &Answer, rows: u64) {
        self.rows += rows;
        self.pages += 1;
        self.charge_ru += answer.charge_ru();
        for figure in answer.metrics().unwrap_or_default().split(';') {
            let Some((name, value)) = figure.split_once('=') else { continue };
            match name {
                "totalExecutionTimeInMs" => self.took_ms += value.parse().unwrap_or(0.0),
                "retrievedDocumentCount" => self.loaded_documents += value.parse().unwrap_or(0),
                "retrievedDocumentSize" => self.loaded_bytes += value.parse().unwrap_or(0),
                _ => {}
            }
        }
        // The indexes are the query's, so one page tells them for all.
        let indexes = answer.indexes().and_then(|text| percent_decode_str(text).decode_utf8().ok());
        let indexes = indexes.and_then(|text| Value::parse(text.as_bytes()).ok());
        if let Some(indexes) = indexes {
            self.indexed = specs(indexes.get("Utilized"));
            self.unindexed = specs(indexes.get("Potential"));
        }
    }
}

/// The paths of single indexes, and the lists of paths of composite ones.
fn specs(indexes: Option<&Value>) -> Vec<String> {
    let list = |name: &str| {
        let list = indexes.and_then(|indexes| indexes.get(name)?.as_array());
        list.unwrap_or_default().iter()
    };
    let single = list("SingleIndexes").filter_map(|index| index.get("IndexSpec")?.as_str());
    let mut specs: Vec<String> = single.map(str::to_owned).collect();
    for index in list("CompositeIndexes") {
        let paths = index.get("IndexSpecs").and_then(Value::as_array).unwrap_or_default();
        let paths: Vec<&str> = paths.iter().filter_map(Value::as_str).collect();
        specs.push(format!("({})", paths.join(", ")));
    }
    specs
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |specs: &[String]| match specs {
            [] => "none".to_owned(),
            specs => specs.join(", "),
        };
        let (rows, pages) = (count(self.rows, "row"), count(self.pages, "page"));
        writeln!(f, "{rows} in {pages}, {:.2} request units", self.charge_ru)?;
        let documents = count(self.loaded_documents, "document");
        let bytes = count(self.loaded_bytes, "byte");
        writeln!(f, "{documents} read ({bytes}), {:.2} ms on the server", self.took_ms)?;
        writeln!(f, "indexed: {}", list(&self.indexed))?;
        write!(f, "not indexed: {}", list(&self.unindexed))
    }
}
