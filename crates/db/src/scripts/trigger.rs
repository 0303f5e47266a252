//! Writes with triggers: the pre-trigger, the write and the post-trigger are one transaction.

use std::sync::Arc;

use script::{Limits, Script, Surroundings, TriggerKind};
use storage::{RangeStore, Snapshot};
use value::{PartitionKey, ScriptKind, Value};

use super::execute::{Done, Work, borrowed};
use super::host::{self, ScriptHost};
use super::resource::Stored;
use super::transaction::Place;
use crate::container::Container;
use crate::database::Db;
use crate::documents::{Failure, Outcome};
use crate::row::Item;
use crate::transaction::Written;
use crate::write::{self, Conditions, Write};
use crate::{Error, Result};

/// The triggers that a client wants to run with a write.
#[derive(Clone, Debug, Default)]
pub struct Triggers {
    /// The one before the write.
    pub pre: Option<String>,
    /// The one after the write.
    pub post: Option<String>,
    /// What they may read of the request, by name.
    pub headers: Vec<(String, String)>,
}

/// What a write with triggers gave.
#[derive(Clone, Debug)]
pub struct Triggered {
    /// What the write gave.
    pub outcome: Outcome,
    /// What the post-trigger wants to be answered instead of the document: a JSON text.
    pub body: Option<String>,
}

impl<S: RangeStore> Db<S> {
    /// Writes one document, with the triggers that the client named.
    pub async fn write_with_triggers(
        &self,
        container: &Arc<Container>,
        key: Option<&PartitionKey>,
        write: Write,
        conditions: Conditions,
        triggers: Triggers,
    ) -> Result<Triggered, Failure> {
        let operation = operation(&write)?;
        let find = |name: &Option<String>, kind| {
            name.as_deref().map(|name| trigger(container, name, kind, operation)).transpose()
        };
        let pre = find(&triggers.pre, TriggerKind::Pre)?;
        let post = find(&triggers.post, TriggerKind::Post)?;
        let prepared = write::prepare(container, key, write.clone(), conditions.clone())?;
        let place = Place::of(container, prepared.key)?;
        let headers = triggers.headers;
        let work = TriggeredWrite { write, conditions, operation, pre, post, headers };
        let Done { output: (written, body), mut at, charge } =
            self.run_scripts(place, None, work).await?;
        at.document_lsn = written.document_lsn.map(|_| at.lsn);
        let Written { status, document, etag, .. } = written;
        Ok(Triggered { outcome: Outcome { status, document, etag, at, charge }, body })
    }
}

/// What triggers call a write.
fn operation(write: &Write) -> Result<&'static str> {
    match write {
        Write::Create { .. } => Ok("Create"),
        Write::Upsert { .. } => Ok("Upsert"),
        Write::Replace { .. } => Ok("Replace"),
        Write::Delete { .. } => Ok("Delete"),
        Write::Patch { .. } | Write::Read { .. } => Err(Error::bad_request(
            "triggers run with create, replace, upsert and delete, not with this operation",
        )),
    }
}

/// A trigger that may run with an operation.
fn trigger(
    container: &Container,
    name: &str,
    kind: TriggerKind,
    operation: &str,
) -> Result<Arc<Stored>> {
    let trigger = container.scripts.find(ScriptKind::Trigger, name);
    let trigger = trigger.map_err(|_| {
        Error::bad_request(format!("One of the specified inputs is invalid: no trigger '{name}'"))
    })?;
    let wanted = match kind {
        TriggerKind::Pre => "Pre",
        TriggerKind::Post => "Post",
    };
    let defined = trigger.text("triggerType");
    if !defined.eq_ignore_ascii_case(wanted) {
        return Err(Error::bad_request(format!(
            "Trigger '{name}' was defined with type '{defined}', and therefore is invalid as \
             '{wanted}'."
        )));
    }
    let defined = trigger.text("triggerOperation");
    let is_fit = |word: &str| defined.eq_ignore_ascii_case(word);
    // The older name of a replace.
    if is_fit("All") || is_fit(operation) || (is_fit("Update") && operation == "Replace") {
        return Ok(trigger.clone());
    }
    Err(Error::bad_request(format!(
        "Trigger '{name}' was defined with operation type '{defined}', and therefore is invalid for \
         '{operation}'."
    )))
}

struct TriggeredWrite {
    write: Write,
    conditions: Conditions,
    operation: &'static str,
    pre: Option<Arc<Stored>>,
    post: Option<Arc<Stored>>,
    headers: Vec<(String, String)>,
}

impl<P: Snapshot> Work<P> for TriggeredWrite {
    type Output = (Written, Option<String>);

    fn run(&self, host: &mut ScriptHost<P>, surroundings: &Surroundings) -> Result<Self::Output> {
        let mut write = self.write.clone();
        let prepared = host.txn.prepare(write.clone(), self.conditions.clone())?;
        let before = host.txn.before(&prepared)?;
        let mut request = request_of(&write, before.as_ref());
        if let Some(trigger) = &self.pre {
            let set = self.fire(host, surroundings, trigger, (TriggerKind::Pre, &request, None))?;
            if let Some(body) = set.request {
                write = with_body(write, &body)?;
                request = body;
            }
        }
        let prepared = host.txn.prepare(write, self.conditions.clone())?;
        let written = host.txn.write(prepared)?;
        let mut answer = None;
        if let Some(trigger) = &self.post {
            let response = written.document.as_ref().map(host::text);
            let given = (TriggerKind::Post, &request[..], response.as_deref());
            answer = self.fire(host, surroundings, trigger, given)?.response;
            if let Some(answer) = &answer {
                host::json(answer)?;
            }
        }
        Ok((written, answer))
    }
}

impl TriggeredWrite {
    fn fire<P: Snapshot>(
        &self,
        host: &mut ScriptHost<P>,
        surroundings: &Surroundings,
        trigger: &Stored,
        (kind, request, response): (TriggerKind, &str, Option<&str>),
    ) -> Result<script::TriggerOutcome> {
        let script = Script { id: &trigger.resource.id, source: trigger.source() };
        let headers = borrowed(&self.headers);
        let given = script::Trigger {
            kind,
            operation: self.operation,
            request,
            response,
            headers: &headers,
        };
        let ran = script::run_trigger(script, given, host, &Limits::STANDARD, surroundings);
        ran.map_err(|error| host.failure(&error))
    }
}

/// The document of the request, as triggers see it: of a replace with the link of what is replaced,
/// of a delete the document that is deleted.
fn request_of(write: &Write, before: Option<&Item>) -> String {
    match (write, before) {
        (Write::Replace { body: Value::Object(body), .. }, Some(before)) => {
            let mut body = body.clone();
            if let Some(Value::String(link)) = before.document.to_value().get("_self") {
                body.insert("_self", link.as_str());
            }
            Value::Object(body).to_text()
        }
        (Write::Create { body } | Write::Upsert { body } | Write::Replace { body, .. }, _) => {
            body.to_text()
        }
        (Write::Delete { .. }, Some(before)) => host::text(&before.document),
        (Write::Delete { .. } | Write::Patch { .. } | Write::Read { .. }, _) => "null".to_owned(),
    }
}

/// The write with the document that the pre-trigger set.
fn with_body(write: Write, body: &str) -> Result<Write> {
    Ok(match write {
        Write::Create { .. } => Write::Create { body: host::json(body)? },
        Write::Upsert { .. } => Write::Upsert { body: host::json(body)? },
        Write::Replace { address, .. } => Write::Replace { address, body: host::json(body)? },
        Write::Delete { .. } | Write::Patch { .. } | Write::Read { .. } => write,
    })
}
