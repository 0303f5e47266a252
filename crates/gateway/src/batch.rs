//! Batches: many operations in one request, in JSON or in HybridRow.
//!
//! Both forms say the same, and the answer takes the form of the request. A batch that cannot be
//! read is refused as a whole; what an operation does wrong beyond that is the operation's own
//! result.

use bytes::Bytes;
use db::{
    Address, BatchOperation, BatchOutcome, Conditions, Error, OperationResult, Result, Write,
};
use value::{Object, PartitionKey, Patch, Value, write_string};

use crate::hybrid_row::{self, OperationRow, ResultRow};
use crate::request;
use crate::response::Body;

/// A batch as it came.
#[derive(Debug)]
pub(crate) struct Batch {
    pub operations: Vec<BatchOperation>,
    pub form: Form,
    /// Operations whose results leave out the document.
    minimal: Vec<bool>,
}

/// How a batch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    HybridRow,
}

impl Batch {
    /// Reads a batch; `minimal` is the wish of the whole request.
    pub(crate) fn parse(body: &[u8], minimal: bool) -> Result<Self> {
        let (form, lines) = if body.first() == Some(&hybrid_row::FIRST_BYTE) {
            let rows = hybrid_row::decode_operations(body).map_err(|error| {
                Error::bad_request(format!("The batch is not valid HybridRow: {error}"))
            })?;
            (Form::HybridRow, rows.into_iter().map(Line::from_row).collect::<Result<Vec<_>>>()?)
        } else {
            let Value::Array(items) = request::json(body)? else {
                return Err(Error::bad_request(
                    "The body of a batch must be an array of operations",
                ));
            };
            (Form::Json, items.into_iter().map(Line::from_json).collect::<Result<Vec<_>>>()?)
        };
        let mut batch = Self { operations: Vec::new(), form, minimal: Vec::new() };
        for line in lines {
            let is_read = line.verb == Verb::Read;
            batch.minimal.push((minimal || line.minimal) && !is_read);
            batch.operations.push(line.operation()?);
        }
        Ok(batch)
    }
}

/// Writes the results in the form of the batch; the status says whether all succeeded.
pub(crate) fn render(form: Form, minimal: &[bool], outcome: &BatchOutcome) -> (u16, Body) {
    let succeeded = |result: &OperationResult| (200..300).contains(&result.status);
    let status = if outcome.results.iter().all(succeeded) { 200 } else { 207 };
    let shown = outcome.results.iter().enumerate().map(|(at, result)| {
        let hide = minimal.get(at).copied().unwrap_or(false);
        (result, result.document.as_ref().filter(|_| !hide).map(value::Document::text))
    });
    let body = match form {
        Form::Json => Body::Json(json_results(shown).into()),
        Form::HybridRow => {
            let rows: Vec<ResultRow> =
                shown.map(|(result, document)| row(result, document)).collect();
            Body::HybridRow(hybrid_row::encode_results(&rows).into())
        }
    };
    (status, body)
}

impl Batch {
    /// Which results leave out the document, and the operations themselves.
    pub(crate) fn into_parts(self) -> (Form, Vec<bool>, Vec<BatchOperation>) {
        (self.form, self.minimal, self.operations)
    }
}

/// One operation that is written as those of a batch are.
pub(crate) fn operation(item: Value) -> Result<BatchOperation> {
    Line::from_json(item)?.operation()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Create,
    Upsert,
    Read,
    Replace,
    Delete,
    Patch,
}

/// One operation, whatever the form.
#[derive(Debug)]
struct Line {
    verb: Verb,
    id: Option<String>,
    body: Option<Value>,
    key: Option<PartitionKey>,
    conditions: Conditions,
    minimal: bool,
}

impl Line {
    fn from_json(item: Value) -> Result<Self> {
        let Value::Object(mut item) = item else {
            return Err(Error::bad_request("An operation of a batch must be an object"));
        };
        let verb = match item.get("operationType").and_then(Value::as_str) {
            Some(word) => verb_of_word(word)?,
            None => {
                return Err(Error::bad_request("An operation of a batch needs an operationType"));
            }
        };
        if let Some(ttl) = item.get("timeToLiveInSeconds").filter(|ttl| !ttl.is_null()) {
            return Err(ttl_refused(ttl));
        }
        let directive = text_member(&item, "indexingDirective")?;
        check_directive(directive.as_deref())?;
        let key = match item.get("partitionKey") {
            None | Some(Value::Null) => None,
            // SDKs send the key as JSON inside a string; an array is as clear.
            Some(Value::String(text)) => Some(key_of(text)?),
            Some(other) => Some(key_of(&other.to_text())?),
        };
        Ok(Self {
            verb,
            id: text_member(&item, "id")?,
            key,
            conditions: Conditions {
                if_match: text_member(&item, "ifMatch")?,
                if_none_match: text_member(&item, "ifNoneMatch")?,
            },
            minimal: item.get("minimalReturnPreference").and_then(Value::as_bool).unwrap_or(false),
            body: item.remove("resourceBody").filter(|body| !body.is_null()),
        })
    }

    fn from_row(row: OperationRow) -> Result<Self> {
        const DOCUMENT: i32 = 2;
        if row.resource_type.is_some_and(|kind| kind != DOCUMENT) {
            return Err(Error::bad_request("The operations of a batch must be about documents"));
        }
        if let Some(ttl) = row.ttl_seconds {
            return Err(ttl_refused(&Value::from(ttl)));
        }
        check_directive(row.indexing_directive.as_deref())?;
        let body = row.body.filter(|body| !body.is_empty());
        Ok(Self {
            verb: verb_of_number(row.operation_type)?,
            id: row.id,
            body: body.map(|body| request::json(&body)).transpose()?,
            key: row.partition_key.map(|text| key_of(&text)).transpose()?,
            conditions: Conditions { if_match: row.if_match, if_none_match: row.if_none_match },
            minimal: row.minimal_return.unwrap_or(false),
        })
    }

    fn operation(self) -> Result<BatchOperation> {
        let Line { verb, id, body, key, conditions, .. } = self;
        let missing = |what: &str| {
            Error::bad_request(format!("An operation '{verb:?}' of a batch needs {what}"))
        };
        let address = || id.map(Address::Id).ok_or_else(|| missing("an id"));
        let body = || body.ok_or_else(|| missing("a resourceBody"));
        let write = match verb {
            Verb::Create => Write::Create { body: body()? },
            Verb::Upsert => Write::Upsert { body: body()? },
            Verb::Replace => Write::Replace { address: address()?, body: body()? },
            Verb::Patch => Write::Patch { address: address()?, patch: Patch::parse(&body()?)? },
            Verb::Delete => Write::Delete { address: address()? },
            Verb::Read => Write::Read { address: address()? },
        };
        Ok(BatchOperation { key, write, conditions })
    }
}

fn verb_of_word(word: &str) -> Result<Verb> {
    let verb = match word.to_ascii_lowercase().as_str() {
        "create" => Verb::Create,
        "upsert" => Verb::Upsert,
        "read" => Verb::Read,
        "replace" => Verb::Replace,
        "delete" => Verb::Delete,
        "patch" => Verb::Patch,
        _ => return Err(Error::bad_request(format!("the operationType '{word}' is unknown"))),
    };
    Ok(verb)
}

/// The numbers of the binary form.
fn verb_of_number(number: Option<i32>) -> Result<Verb> {
    let verb = match number {
        Some(0) => Verb::Create,
        Some(1) => Verb::Patch,
        Some(2) => Verb::Read,
        Some(4) => Verb::Delete,
        Some(5) => Verb::Replace,
        Some(20) => Verb::Upsert,
        other => {
            return Err(Error::bad_request(format!("the operationType {other:?} is unknown")));
        }
    };
    Ok(verb)
}

fn text_member(item: &Object, name: &str) -> Result<Option<String>> {
    match item.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => {
            Err(Error::bad_request(format!("'{name}' of a batch operation must be text: {other}")))
        }
    }
}

fn key_of(text: &str) -> Result<PartitionKey> {
    PartitionKey::parse_header(text).map_err(|error| {
        Error::bad_request(format!("the partitionKey of a batch operation is invalid: {error}"))
    })
}

fn check_directive(directive: Option<&str>) -> Result<()> {
    match directive {
        None => Ok(()),
        Some(word)
            if ["default", "include", "exclude"].contains(&word.to_ascii_lowercase().as_str()) =>
        {
            Ok(())
        }
        Some(word) => Err(Error::bad_request(format!("the indexingDirective '{word}' is unknown"))),
    }
}

fn ttl_refused(ttl: &Value) -> Error {
    Error::bad_request(format!(
        "timeToLiveInSeconds of a batch operation is not served ({ttl}): \
         set the property 'ttl' of the document"
    ))
}

fn json_results<'a>(
    results: impl Iterator<Item = (&'a OperationResult, Option<Bytes>)>,
) -> Vec<u8> {
    let mut out = vec![b'['];
    for (at, (result, document)) in results.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let mut head = format!(
            "{{\"statusCode\":{},\"subStatusCode\":{},\"requestCharge\":{}",
            result.status,
            result.substatus,
            result.charge.ru()
        );
        for (name, text) in [("eTag", &result.etag), ("message", &result.message)] {
            if let Some(text) = text {
                head.push_str(&format!(",\"{name}\":"));
                write_string(text, &mut head);
            }
        }
        out.extend(head.as_bytes());
        if let Some(document) = document {
            out.extend(b",\"resourceBody\":");
            out.extend(&document[..]);
        }
        out.push(b'}');
    }
    out.push(b']');
    out
}

fn row(result: &OperationResult, document: Option<Bytes>) -> ResultRow {
    // .NET shows the body of the operation that failed as the message of its exception.
    let message = result.message.as_ref().map(|message| message.clone().into_bytes());
    ResultRow {
        status: i32::from(result.status),
        substatus: i32::try_from(result.substatus).unwrap_or(0),
        etag: result.etag.clone(),
        body: document.map(|text| text.to_vec()).or(message),
        retry_after_ms: None,
        charge_ru: result.charge.ru(),
    }
}
