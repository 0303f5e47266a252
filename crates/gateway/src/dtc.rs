//! Transactions across partitions and containers: `POST /operations/dtc`.
//!
//! The preview of this is known from what the clients send and read. The headers say whether all
//! operations read or all write, and carry the token by which the server knows a request again:
//!
//! ```text
//! {"operations":[{"index":0,"databaseName":"d","collectionName":"c","partitionKey":["x"],"id":"a",
//!   "operationType":"Create","resourceType":"Document","resourceBody":{"id":"a","pk":"x"}}]}
//! {"operationResponses":[{"index":0,"statusCode":201,"subStatusCode":0,"Etag":"…",
//!   "sessionToken":"0:7#12","partitionKeyRangeId":"0","requestCharge":5.7}],"isRetriable":false,…}
//! ```
//!
//! Writes answer 200, or 452 when nothing was done: the operation that stood in the way has its own
//! status, all others 453. Reads answer 200 or 304, or 207 for both; if one fails, the others are 424, and the answer
//! has the status of those that failed, or 207 where they differ.

use std::collections::BTreeSet;
use std::sync::Arc;

use db::{
    Db, DistributedOperation, DistributedOutcome, DistributedResult, Error, Failure, Kind, Result,
    Session,
};
use storage::RangeStore;
use value::{Object, Value, write_string};

use crate::batch;
use crate::request::{self, Options};
use crate::response::{Answer, Refused};

/// Nothing was done.
const ABORTED: u16 = 452;
const NOT_MODIFIED: u16 = 304;
const MULTI_STATUS: u16 = 207;
const FAILED_DEPENDENCY: u16 = 424;

/// Writes, all or none.
pub(crate) async fn write<S: RangeStore>(
    db: &Arc<Db<S>>,
    options: &Options,
    body: &[u8],
) -> Result<Answer, Refused> {
    let token = token(options)?;
    let outcome = match db.write_distributed(&token, parse(body)?).await {
        Ok(outcome) => outcome,
        Err(failure) => return refused(failure),
    };
    let status = if outcome.is_done { 200 } else { ABORTED };
    Ok(Answer { idempotency_token: Some(token), ..answer(status, &outcome) })
}

/// Reads, all at one moment.
pub(crate) async fn read<S: RangeStore>(
    db: &Arc<Db<S>>,
    options: &Options,
    body: &[u8],
) -> Result<Answer, Refused> {
    let outcome = match db.read_distributed(parse(body)?).await {
        Ok(outcome) => outcome,
        Err(failure) => return refused(failure),
    };
    let idempotency_token = options.idempotency_token.clone();
    Ok(Answer { idempotency_token, ..answer(read_status(&outcome), &outcome) })
}

/// What clients try again by themselves they know by an empty body.
fn refused(failure: Failure) -> Result<Answer, Refused> {
    match failure.error.kind.status() {
        408 | 429 | 449 | 500.. => Ok(Answer::bare(failure.error, failure.charge)),
        _ => Err(failure.into()),
    }
}

/// The token, in one spelling.
fn token(options: &Options) -> Result<String> {
    let missing = |why: &str| Error::new(Kind::TransactionTokenMissing, why);
    let Some(token) = &options.idempotency_token else {
        return Err(missing("a transaction that writes needs x-ms-cosmos-idempotency-token"));
    };
    let lengths = token.split('-').map(str::len);
    let is_hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    if !lengths.eq([8, 4, 4, 4, 12]) || !token.bytes().all(is_hex) {
        return Err(missing("the value of x-ms-cosmos-idempotency-token must be a GUID"));
    }
    Ok(token.to_ascii_lowercase())
}

fn parse(body: &[u8]) -> Result<Vec<DistributedOperation>> {
    let malformed = |what: &str| Error::new(Kind::TransactionMalformed, what);
    let body = request::json(body).map_err(|error| malformed(&error.message))?;
    let Some(Value::Array(items)) = body.get("operations").cloned() else {
        return Err(malformed("the body of a transaction must be an object with 'operations'"));
    };
    let mut operations: Vec<Option<DistributedOperation>> = vec![None; items.len()];
    for item in items {
        let (index, operation) = operation(item)?;
        match operations.get_mut(index) {
            Some(place @ None) => *place = Some(operation),
            _ => return Err(invalid(format!("the index {index} is taken, or too large"))),
        }
    }
    Ok(operations.into_iter().flatten().collect())
}

fn invalid(what: String) -> Error {
    Error::new(Kind::TransactionInvalid, what)
}

fn operation(item: Value) -> Result<(usize, DistributedOperation)> {
    let text = |name: &str| match item.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(invalid(format!("'{name}' of an operation must be text: {other}"))),
    };
    let needed = |name: &str| {
        text(name)?.ok_or_else(|| invalid(format!("an operation of a transaction needs '{name}'")))
    };
    let index = item.get("index").and_then(Value::as_i64);
    let index = index.and_then(|index| usize::try_from(index).ok());
    let index = index.ok_or_else(|| invalid("an operation needs its 'index'".to_owned()))?;
    if let Some(kind) = text("resourceType")?
        && kind != "Document"
    {
        return Err(invalid(format!("the operations must be about documents, not '{kind}'")));
    }
    let session = text("sessionToken")?.filter(|token| !token.is_empty());
    let session = session.as_deref().map(Session::parse).transpose();
    let (database, container, id) =
        (needed("databaseName")?, needed("collectionName")?, needed("id")?);
    let (intended, session) =
        (text("collectionResourceId")?, session.map_err(|error| invalid(error.message))?);
    let batched = batch::operation(item).map_err(|error| invalid(error.message))?;
    let key = batched.key.ok_or_else(|| invalid("an operation needs a 'partitionKey'".into()))?;
    let operation = DistributedOperation {
        database,
        container,
        intended,
        key,
        id,
        write: batched.write,
        conditions: batched.conditions,
        session,
    };
    Ok((index, operation))
}

/// The status of reads: their own if they agree.
fn read_status(outcome: &DistributedOutcome) -> u16 {
    let statuses = outcome.results.iter().map(|read| read.result.status);
    let statuses: BTreeSet<u16> = statuses.filter(|status| *status != FAILED_DEPENDENCY).collect();
    match statuses.first() {
        Some(status) if statuses.len() == 1 => *status,
        _ => MULTI_STATUS,
    }
}

fn answer(status: u16, outcome: &DistributedOutcome) -> Answer {
    let results = outcome.results.iter().enumerate().map(|(index, result)| entry(index, result));
    let results = results.collect::<Vec<_>>().join(",");
    let told = match (status, outcome.is_done) {
        (_, true) => "all operations were done",
        (ABORTED, _) => "nothing was done",
        _ => "some documents could not be read",
    };
    let rest = Object::from([
        ("statusCode", Value::from(u32::from(status))),
        ("subStatusCode", Value::from(0)),
        ("requestCharge", Value::from(outcome.charge.ru())),
        ("isRetriable", Value::from(false)),
        ("diagnosticString", Value::from(told)),
    ]);
    let rest = Value::Object(rest).to_text();
    let body = format!("{{\"operationResponses\":[{results}],{}", &rest[1..]);
    // HTTP allows no body for this one; that all results are alike is what it says.
    let answer =
        if status == NOT_MODIFIED { Answer::empty(status) } else { Answer::json(status, body) };
    answer.charged(outcome.charge)
}

fn entry(index: usize, result: &DistributedResult) -> String {
    let DistributedResult { result, at } = result;
    let mut text = format!(
        "{{\"index\":{index},\"statusCode\":{},\"subStatusCode\":{},\"requestCharge\":{},\
         \"isRetriable\":false",
        result.status,
        result.substatus,
        result.charge.ru()
    );
    let token = at.as_ref().map(db::Position::token);
    let range = at.as_ref().map(|at| at.range.clone());
    for (name, value) in [
        ("Etag", &result.etag),
        ("sessionToken", &token),
        ("partitionKeyRangeId", &range),
        ("message", &result.message),
    ] {
        if let Some(value) = value {
            text.push_str(&format!(",\"{name}\":"));
            write_string(value, &mut text);
        }
    }
    if let Some(document) = &result.document {
        text.push_str(",\"resourceBody\":");
        text.push_str(&String::from_utf8_lossy(&document.text()));
    }
    text.push('}');
    text
}
