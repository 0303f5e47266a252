//! Queries that scripts ask: over the documents of their partition, their own writes included.
//!
//! They are answered as any other query is, with the same indexes and continuations, over what the
//! transaction sees. A continuation may be used by a later execution, too.

use std::sync::Arc;

use query::Prepared;
use ring::hmac;
use storage::Snapshot;
use value::Value;

use super::transaction::ScriptTransaction;
use crate::access::choose;
use crate::answer::Asked;
use crate::clock::Clock;
use crate::continuation::{Cursor, Subject};
use crate::{Error, QueryText, Result};

/// What a script asks for.
pub(crate) struct Question<'a> {
    pub(crate) text: &'a QueryText,
    pub(crate) prepared: &'a Prepared,
    pub(crate) rows_max: usize,
    pub(crate) continuation: Option<&'a str>,
}

/// Answers a page.
pub(crate) fn answer<P: Snapshot>(
    txn: &mut ScriptTransaction<P>,
    question: &Question<'_>,
    clock: &Arc<dyn Clock>,
    signing: &hmac::Key,
) -> Result<script::Page> {
    let container = txn.place.container.clone();
    let identity = question.text.identity();
    let subject = Subject { container: container.rid, query: &identity };
    let cursor = question.continuation.filter(|text| !text.is_empty());
    let cursor = cursor.map(|text| Cursor::verify(text, signing, &subject)).transpose()?;
    let prepared = question.prepared;
    let reading = txn.reading(clock);
    let asked = Asked {
        prepared,
        reading: &reading,
        condition: choose::with_key(prepared.condition(), &container, Some(&txn.place.key)),
        is_for_merging: false,
        items_max: question.rows_max,
        ends_open: false,
        cursor: cursor.as_ref(),
        insists: false,
        resume: None,
    };
    let answered = asked.answer();
    // A number of documents may come from a counter, and those are not remembered either.
    let is_made_of_more = reading.slices.iter().any(|slice| slice.snapshot.has_looked_elsewhere());
    if is_made_of_more || prepared.count().is_some() {
        txn.remember_partition();
    }
    let answered = answered?;
    let charge = answered.feed.charge;
    drop(reading);
    txn.charge += charge;
    let text = |row: &bytes::Bytes| String::from_utf8_lossy(row).into_owned();
    Ok(script::Page {
        rows: answered.feed.rows.iter().map(text).collect(),
        continuation: answered.next.map(|next| next.sign(signing, &subject)),
    })
}

/// The query of a script that wants all documents.
pub(crate) fn everything() -> QueryText {
    QueryText { text: "SELECT * FROM c".to_owned(), ..QueryText::default() }
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
