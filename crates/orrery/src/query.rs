//! `orrery query`: asks a server, as any client would, and prints what it says.
//!
//! Rows go to standard output and everything about them to standard error, so that the output can be
//! given to another program.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use percent_encoding::percent_decode_str;
use value::Value;

use crate::account::{Account, Place, Question, Want, json, not_understood};
use crate::client::Answer;
use crate::commands::QueryArguments;
use crate::connection::{self, Failure};
use crate::explanation::{self, count};
use crate::rows::{Format, Rows};
use crate::say;

pub(crate) fn run(arguments: QueryArguments) -> Result<ExitCode, Box<dyn std::error::Error>> {
    connection::run(query(arguments))
}

async fn query(arguments: QueryArguments) -> Result<(), Failure> {
    let mut account = arguments.connection.connect().await?;
    let mut asker = Asker {
        account: &mut account,
        question: Question {
            place: Place { database: arguments.database, container: arguments.container },
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

/// A question on its way to a server.
pub(crate) struct Asker<'a> {
    pub(crate) account: &'a mut Account,
    pub(crate) question: Question,
}

impl Asker<'_> {
    /// Prints how the query would be answered.
    pub(crate) async fn explain(&mut self, format: Option<Format>) -> Result<(), Failure> {
        let answer = self.account.ask(&self.question, Want::Explanation).await?;
        let explanation = json(&answer)?;
        let text = explanation::text(&explanation).ok_or_else(|| {
            Failure::Refused(format!(
                "{} does not explain queries: it is another server than Orrery, or an older one",
                self.account.endpoint()
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
    pub(crate) async fn rows(
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
            let answer = self.account.ask(&self.question, want).await?;
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
}

/// What an answer cost, over all pages.
#[derive(Debug, Default)]
pub(crate) struct Totals {
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
