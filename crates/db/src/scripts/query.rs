//! Queries that scripts ask: over the documents of their partition, their own writes included.
//!
//! A query whose rows depend on one document each is answered document by document, and its pages go
//! on after the last document. Any other is answered whole for every page, and its pages go on after
//! a number of rows.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use query::{Prepared, RunError};
use storage::Snapshot;
use value::{Document, Value};

use super::transaction::ScriptTransaction;
use crate::charge::Charge;
use crate::continuation;
use crate::key::PartitionPrefix;
use crate::read::refused;
use crate::row::Item;
use crate::scan::Start;
use crate::{Error, Result};

/// What a script asks for.
pub(crate) struct Question<'a> {
    /// All documents, where there is no query.
    pub(crate) query: Option<&'a Prepared>,
    pub(crate) rows_max: usize,
    pub(crate) continuation: Option<&'a str>,
}

/// A page is cut when it has so many bytes.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// What has been answered so far.
#[derive(Default)]
struct Page {
    rows: Vec<String>,
    bytes: usize,
}

impl Page {
    fn is_full(&self, rows_max: usize) -> bool {
        self.rows.len() >= rows_max || self.bytes >= PAGE_BYTES
    }

    fn push(&mut self, row: String) {
        self.bytes += row.len();
        self.rows.push(row);
    }
}

/// Answers a page.
pub(crate) fn answer<P: Snapshot>(
    txn: &mut ScriptTransaction<P>,
    question: &Question<'_>,
) -> Result<script::Page> {
    let from = match question.continuation {
        None | Some("") => Resume::Beginning,
        Some(text) => Resume::parse(text, &txn.place.partition)?,
    };
    txn.charge += Charge::QUERY_BASE;
    match question.query {
        Some(query) if !query.is_streaming() => whole(txn, query, question.rows_max, from),
        query => document_by_document(txn, query, question.rows_max, from),
    }
}

fn document_by_document<P: Snapshot>(
    txn: &mut ScriptTransaction<P>,
    query: Option<&Prepared>,
    rows_max: usize,
    from: Resume,
) -> Result<script::Page> {
    let (start, resumed) = match &from {
        Resume::Beginning => (Start::Beginning, None),
        Resume::After(place) => (Start::After(place), None),
        Resume::Within(place, rows) => (Start::At(place), Some((&place[..], *rows))),
        Resume::Row(_) => return Err(continuation::invalid()),
    };
    let mut page = Page::default();
    let mut next = None;
    let mut last = None;
    let mut charge = Charge::ZERO;
    txn.scan(start, &mut |place, item| {
        if page.is_full(rows_max) {
            next = last.take().map(Resume::After);
            return Ok(ControlFlow::Break(()));
        }
        charge += Charge::load(item.document.text().len());
        // The script may have deleted the document that the page before ended in.
        let given = resumed.filter(|(found, _)| *found == place).map_or(0, |(_, rows)| rows);
        for (at, row) in rows_of(query, &item)?.into_iter().enumerate().skip(given) {
            if page.is_full(rows_max) {
                next = Some(Resume::Within(place.to_vec(), at));
                return Ok(ControlFlow::Break(()));
            }
            charge += Charge::output(row.len());
            page.push(row);
        }
        last = Some(place.to_vec());
        Ok(ControlFlow::Continue(()))
    })?;
    txn.charge += charge;
    Ok(script::Page { rows: page.rows, continuation: next.map(|next| next.text()) })
}

fn rows_of(query: Option<&Prepared>, item: &Item) -> Result<Vec<String>> {
    let text = || String::from_utf8_lossy(&item.document.text()).into_owned();
    let Some(query) = query else { return Ok(vec![text()]) };
    let document = item.document.to_value();
    if query.returns_documents() {
        let is_kept = query.keeps(&document).map_err(refused)?;
        return Ok(if is_kept { vec![text()] } else { Vec::new() });
    }
    let mut rows = Vec::new();
    query.rows_of(&document, &mut rows).map_err(refused)?;
    Ok(rows.iter().map(Value::to_text).collect())
}

fn whole<P: Snapshot>(
    txn: &mut ScriptTransaction<P>,
    query: &Prepared,
    rows_max: usize,
    from: Resume,
) -> Result<script::Page> {
    let skip = match from {
        Resume::Beginning => 0,
        Resume::Row(count) => count,
        Resume::After(_) | Resume::Within(..) => return Err(continuation::invalid()),
    };
    let mut charge = Charge::ZERO;
    let documents = Documents {
        txn,
        charge: &mut charge,
        chunk: VecDeque::new(),
        last: None,
        is_done: !query.reads_documents(),
    };
    let rows = query.run(documents).map_err(|error| match error {
        RunError::Query(error) => refused(error),
        RunError::Source(error) => error,
    })?;
    let count = rows.len();
    let mut page = Page::default();
    for row in rows.iter().skip(skip) {
        if page.is_full(rows_max) {
            break;
        }
        let row = row.to_text();
        charge += Charge::output(row.len());
        page.push(row);
    }
    txn.charge += charge;
    let given = skip + page.rows.len();
    let continuation = (given < count).then(|| Resume::Row(given).text());
    Ok(script::Page { rows: page.rows, continuation })
}

/// All documents, read in chunks.
struct Documents<'a, P: Snapshot> {
    txn: &'a ScriptTransaction<P>,
    charge: &'a mut Charge,
    chunk: VecDeque<Document>,
    last: Option<Vec<u8>>,
    is_done: bool,
}

const CHUNK_ITEMS: usize = 256;
const CHUNK_BYTES: usize = 1024 * 1024;

impl<P: Snapshot> Documents<'_, P> {
    fn fill(&mut self) -> Result<()> {
        let last = self.last.take();
        let start = last.as_deref().map_or(Start::Beginning, Start::After);
        let mut bytes = 0;
        self.txn.scan(start, &mut |place, item| {
            bytes += item.document.text().len();
            *self.charge += Charge::load(item.document.text().len());
            self.chunk.push_back(item.document);
            if self.chunk.len() < CHUNK_ITEMS && bytes < CHUNK_BYTES {
                return Ok(ControlFlow::Continue(()));
            }
            self.last = Some(place.to_vec());
            Ok(ControlFlow::Break(()))
        })?;
        self.is_done = self.last.is_none();
        Ok(())
    }
}

impl<P: Snapshot> Iterator for Documents<'_, P> {
    type Item = Result<Value>;

    fn next(&mut self) -> Option<Result<Value>> {
        if self.chunk.is_empty()
            && !self.is_done
            && let Err(error) = self.fill()
        {
            return Some(Err(error));
        }
        self.chunk.pop_front().map(|document| Ok(document.to_value()))
    }
}

/// Where a page goes on. A script may tamper with its own continuation; all that it gets by that is
/// another page of its own partition.
#[derive(Debug, PartialEq, Eq)]
enum Resume {
    Beginning,
    /// After the document at a place.
    After(Vec<u8>),
    /// With the document at a place, of which so many rows were given.
    Within(Vec<u8>, usize),
    /// After so many of all rows.
    Row(usize),
}

impl Resume {
    fn text(&self) -> String {
        let hex = |place: &[u8]| place.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        match self {
            Resume::Beginning => String::new(),
            Resume::After(place) => format!("after:{}", hex(place)),
            Resume::Within(place, rows) => format!("within:{}:{rows}", hex(place)),
            Resume::Row(count) => format!("row:{count}"),
        }
    }

    fn parse(text: &str, partition: &PartitionPrefix) -> Result<Resume> {
        let from = Self::read(text).ok_or_else(continuation::invalid)?;
        if let Resume::After(place) | Resume::Within(place, _) = &from
            && PartitionPrefix::of(place).is_none_or(|(found, _)| found != *partition)
        {
            return Err(continuation::invalid());
        }
        Ok(from)
    }

    fn read(text: &str) -> Option<Resume> {
        let (word, rest) = text.split_once(':')?;
        match word {
            "after" => Some(Resume::After(bytes_of(rest)?)),
            "within" => {
                let (place, rows) = rest.split_once(':')?;
                Some(Resume::Within(bytes_of(place)?, rows.parse().ok()?))
            }
            "row" => Some(Resume::Row(rest.parse().ok()?)),
            _ => None,
        }
    }
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok();
    (0..hex.len().div_ceil(2)).map(byte).collect()
}

/// Reads `{"query": …, "parameters": […]}`.
pub(crate) fn parse(body: &str) -> Result<crate::QueryText> {
    let malformed = |what: &str| Error::bad_request(format!("a query of a script {what}"));
    let body = Value::parse(body.as_bytes()).map_err(|error| malformed(&format!(": {error}")))?;
    let text = body.get("query").and_then(Value::as_str);
    let text = text.ok_or_else(|| malformed("needs the property 'query' with its text"))?;
    let given = body.get("parameters").filter(|given| !given.is_null());
    let given = match given {
        None => &[],
        Some(given) => {
            given.as_array().ok_or_else(|| malformed("has parameters that are not a list"))?
        }
    };
    let parameter = |item: &Value| {
        let name = item.get("name").and_then(Value::as_str).map(str::to_owned);
        let parameter = name.zip(item.get("value").cloned());
        parameter.ok_or_else(|| malformed("has a parameter without 'name' or 'value'"))
    };
    let parameters = given.iter().map(parameter).collect::<Result<_>>()?;
    Ok(crate::QueryText { text: text.to_owned(), parameters, resume: None })
}

#[cfg(test)]
mod tests {
    use value::{Component, Epk, PartitionKey};

    use super::*;

    fn partition(key: &str) -> PartitionPrefix {
        let key = PartitionKey(vec![Component::String(key.to_owned())]);
        PartitionPrefix::new(&Epk::from_bytes(vec![1, 0, 2]), &key)
    }

    #[test]
    fn continuations_come_back() {
        let here = partition("a");
        let place = || here.place("x");
        for from in [Resume::Row(7), Resume::After(place()), Resume::Within(place(), 3)] {
            assert_eq!(Resume::parse(&from.text(), &here).unwrap(), from);
        }
        let there = Resume::After(partition("b").place("x"));
        assert!(Resume::parse(&there.text(), &here).is_err(), "another partition");
        for text in ["x", "row:", "row:-1", "after:", "after:0", "after:é", "within:00", "next:1"]
        {
            assert!(Resume::parse(text, &here).is_err(), "{text}");
        }
    }
}
