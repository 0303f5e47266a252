//! Runs procedures and triggers.
//!
//! The script's function runs first, to its end. Then the calls that it made on the container are
//! carried out one by one, in the order in which they were made; each callback is a turn of its own
//! and may make further calls. Promises settle after every turn. The script is finished when no call
//! and no promise is left that could go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rquickjs::promise::PromiseState;
use rquickjs::{Ctx, Function, Object, Promise, Value};

use crate::engine::{Engine, Place, Sandbox, Watch, interrupt, text};
use crate::error::{ErrorKind, ScriptError};
use crate::host::{Host, HostError, Page, Query, Read};
use crate::link::{Link, Links};
use crate::own::Own;
use crate::{Limits, Surroundings};

/// A script as it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script<'a> {
    /// Its id, for stack traces.
    pub id: &'a str,
    /// Its text.
    pub source: &'a str,
}

/// What the execution of a procedure is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Procedure<'a> {
    /// The list of parameters, a JSON text; empty for none.
    pub parameters: &'a str,
    /// Headers that the script may read, by name.
    pub headers: &'a [(&'a str, &'a str)],
    /// Whether the client wants the log.
    pub is_logging: bool,
}

/// What a procedure leaves behind when it ends in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The body of the answer, a JSON text; none when the script did not set one.
    pub body: Option<String>,
    /// What the script wrote to the log, when the client wants it; not encoded.
    pub log: Option<String>,
    /// How many calls on the container were carried out.
    pub host_calls: u64,
    /// What the promise of an asynchronous procedure was rejected with. The service ignores that,
    /// and so commits, but somebody may want to know.
    pub rejection: Option<String>,
}

/// When a trigger runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerKind {
    /// Before the write, with a document that the trigger may change.
    Pre,
    /// After the write, with the answer that the trigger may change.
    Post,
}

/// What a trigger is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger<'a> {
    /// When it runs.
    pub kind: TriggerKind,
    /// `Create`, `Replace`, `Upsert` or `Delete`.
    pub operation: &'a str,
    /// The document of the request, a JSON text. For a delete it is the document as it was.
    pub request: &'a str,
    /// The document of the answer, a JSON text; for a post-trigger, if the answer has one.
    pub response: Option<&'a str>,
    /// Headers that the script may read, by name.
    pub headers: &'a [(&'a str, &'a str)],
}

/// What a trigger leaves behind when it ends in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerOutcome {
    /// The document to write instead, when a pre-trigger set one: text that should be JSON.
    pub request: Option<String>,
    /// The body to answer instead, when a post-trigger set one: text that should be JSON.
    pub response: Option<String>,
    /// How many calls on the container were carried out.
    pub host_calls: u64,
    /// What the promise of an asynchronous trigger was rejected with.
    pub rejection: Option<String>,
}

/// The source of a procedure that every container has, by its reserved id.
pub fn system_procedure(id: &str) -> Option<&'static str> {
    match id {
        "__.sys.echo" => {
            Some("function echo(value) { getContext().getResponse().setBody(value); }")
        }
        _ => None,
    }
}

/// Runs a stored procedure.
pub fn run_procedure(
    script: Script<'_>,
    procedure: Procedure<'_>,
    host: &mut dyn Host,
    limits: &Limits,
    surroundings: &Surroundings,
) -> Result<Outcome, ScriptError> {
    let parameters = check_parameters(procedure.parameters)?;
    let facts = Facts {
        kind: "procedure",
        operation: "",
        request: parameters,
        response: None,
        headers: procedure.headers,
        is_logging: procedure.is_logging,
    };
    run(script, &facts, host, limits, surroundings, |run, end| {
        let body = run.ending("response")?;
        let log = if procedure.is_logging { run.ending("log")? } else { None };
        Ok(Outcome { body, log, host_calls: end.host_calls, rejection: end.rejection })
    })
}

/// Runs a trigger.
pub fn run_trigger(
    script: Script<'_>,
    trigger: Trigger<'_>,
    host: &mut dyn Host,
    limits: &Limits,
    surroundings: &Surroundings,
) -> Result<TriggerOutcome, ScriptError> {
    let is_pre = trigger.kind == TriggerKind::Pre;
    let facts = Facts {
        kind: if is_pre { "pre" } else { "post" },
        operation: trigger.operation,
        request: Some(trigger.request),
        response: trigger.response,
        headers: trigger.headers,
        is_logging: false,
    };
    run(script, &facts, host, limits, surroundings, |run, end| {
        let request = if is_pre { run.ending("request")? } else { None };
        let response = if is_pre { None } else { run.ending("responseDocument")? };
        Ok(TriggerOutcome {
            request,
            response,
            host_calls: end.host_calls,
            rejection: end.rejection,
        })
    })
}

/// Parameters come as a list. The service also takes what has a length, and nothing at all.
fn check_parameters(sent: &str) -> Result<Option<&str>, ScriptError> {
    let refused = |text: String| Err(ScriptError::new(ErrorKind::Parameters, text));
    if sent.trim().is_empty() {
        return Ok(None);
    }
    match value::Value::parse(sent.as_bytes()) {
        Err(error) => refused(format!("the parameters of a procedure are not JSON: {error}")),
        Ok(value::Value::Null) => Ok(None),
        Ok(value::Value::Array(_) | value::Value::Object(_)) => Ok(Some(sent)),
        Ok(_) => refused("the parameters of a procedure must be an array".to_owned()),
    }
}

/// What our own script is told about the run.
struct Facts<'a> {
    kind: &'static str,
    operation: &'a str,
    request: Option<&'a str>,
    response: Option<&'a str>,
    headers: &'a [(&'a str, &'a str)],
    is_logging: bool,
}

/// How a script ended.
struct End {
    host_calls: u64,
    rejection: Option<String>,
}

fn run<T>(
    script: Script<'_>,
    facts: &Facts<'_>,
    host: &mut dyn Host,
    limits: &Limits,
    surroundings: &Surroundings,
    finish: impl for<'js> FnOnce(&Run<'js>, End) -> Result<T, ScriptError>,
) -> Result<T, ScriptError> {
    let engine = Engine::new(limits, surroundings)?;
    engine.with(|ctx| {
        let (sandbox, tools) = engine.sandbox(&ctx)?;
        let links = Links::of(&host.container());
        let api = match context(&ctx, &engine, tools, facts, host, limits) {
            Ok(api) => api,
            Err(error) => return Err(sandbox.failure(&ctx, error).into_error(Place::Script)),
        };
        let watch = Arc::clone(engine.watch());
        let mut run = Run { ctx, sandbox, api, watch, links };
        let end = run.drive(script, host)?;
        finish(&run, end)
    })
}

/// Makes the context of the script; answers the object by which it is driven.
fn context<'js>(
    ctx: &Ctx<'js>,
    engine: &Engine,
    tools: Object<'js>,
    facts: &Facts<'_>,
    host: &dyn Host,
    limits: &Limits,
) -> rquickjs::Result<Object<'js>> {
    let container = host.container();
    let links = Links::of(&container);
    let make = Own::Context.load(ctx)?;
    let native = natives(ctx, engine.watch(), links, limits.host_calls_max)?;
    let told = Object::new(ctx.clone())?;
    told.set("kind", facts.kind)?;
    told.set("operation", facts.operation)?;
    told.set("request", facts.request)?;
    told.set("response", facts.response)?;
    let headers: Vec<&str> = facts.headers.iter().flat_map(|(name, text)| [*name, *text]).collect();
    told.set("headers", headers)?;
    told.set("logging", facts.is_logging)?;
    told.set("selfLink", container.self_link)?;
    told.set("altLink", container.alt_link)?;
    told.set("quotaUsed", container.quota_used)?;
    told.set("quotaMax", container.quota_max)?;
    told.set("partitionKey", paths_text(container.partition_key))?;
    told.set("requestMax", limits.request_chars_max as f64)?;
    told.set("responseMax", limits.response_chars_max as f64)?;
    told.set("logMax", limits.log_chars_max as f64)?;
    make.call((tools, native, told))
}

fn paths_text(paths: Vec<Vec<String>>) -> String {
    let names = |path: Vec<String>| path.into_iter().map(value::Value::from).collect();
    let paths = paths.into_iter().map(|path| value::Value::Array(names(path))).collect();
    value::Value::Array(paths).to_text()
}

/// What the context asks at once, during the script's turn.
fn natives<'js>(
    ctx: &Ctx<'js>,
    watch: &Arc<Watch>,
    links: Links,
    calls_max: u64,
) -> rquickjs::Result<Object<'js>> {
    let native = Object::new(ctx.clone())?;
    let accepting = Arc::clone(watch);
    let calls = AtomicU64::new(0);
    let accept = move |ctx: Ctx<'js>| {
        if accepting.must_end() {
            interrupt(&ctx)?;
        }
        let has_budget = calls.load(Ordering::Relaxed) < calls_max;
        let is_accepted = has_budget && !accepting.is_closing();
        if is_accepted {
            calls.fetch_add(1, Ordering::Relaxed);
        }
        rquickjs::Result::Ok(is_accepted)
    };
    native.set("accept", Function::new(ctx.clone(), accept)?)?;
    let closing = Arc::clone(watch);
    native.set("isClosing", Function::new(ctx.clone(), move || closing.is_closing())?)?;
    let stopping = Arc::clone(watch);
    let stop = move |ctx: Ctx<'js>| {
        stopping.abort();
        interrupt(&ctx)
    };
    native.set("stop", Function::new(ctx.clone(), stop)?)?;
    let checking = links.clone();
    let container_link = move |link: String| checking.check_container(&link).err();
    native.set("collectionLink", Function::new(ctx.clone(), container_link)?)?;
    let document_link = move |link: String| links.document(&link).err();
    native.set("documentLink", Function::new(ctx.clone(), document_link)?)?;
    let load = |ctx: Ctx<'js>| Own::Queries.load(&ctx);
    native.set("loadQueries", Function::new(ctx.clone(), load)?)?;
    Ok(native)
}

struct Run<'js> {
    ctx: Ctx<'js>,
    sandbox: Sandbox<'js>,
    api: Object<'js>,
    watch: Arc<Watch>,
    links: Links,
}

impl<'js> Run<'js> {
    fn drive(&mut self, script: Script<'_>, host: &mut dyn Host) -> Result<End, ScriptError> {
        let main = self.sandbox.compile(&self.ctx, script.id, script.source)?;
        let start: Function<'js> = self.part("start")?;
        let take: Function<'js> = self.part("take")?;
        let complete: Function<'js> = self.part("complete")?;
        let refuse: Function<'js> = self.part("refuse")?;
        let returned = start.call((main,));
        let returned: Value<'js> = returned.map_err(|error| self.fail(error, Place::Script))?;
        self.settle()?;
        let mut host_calls = 0;
        loop {
            let call: Option<Object<'js>> =
                take.call(()).map_err(|error| self.fail(error, Place::Callback))?;
            let Some(call) = call else { break };
            if self.watch.is_over() {
                return Err(ScriptError::timed_out());
            }
            host_calls += 1;
            let delivered: rquickjs::Result<Value<'js>> = match self.perform(&call, host)? {
                Ok(answer) => {
                    complete.call((call, answer.status, answer.text, answer.continuation))
                }
                Err((status, message)) => refuse.call((call, status, message)),
            };
            delivered.map_err(|error| self.fail(error, Place::Callback))?;
            self.settle()?;
        }
        Ok(End { host_calls, rejection: self.result_of(returned)? })
    }

    /// Lets promises settle that can.
    fn settle(&self) -> Result<(), ScriptError> {
        loop {
            // A job that was interrupted looks like any other from here.
            if self.watch.must_end() {
                return Err(self.fail(rquickjs::Error::Exception, Place::Callback));
            }
            if !self.ctx.execute_pending_job() {
                return Ok(());
            }
        }
    }

    /// Whether what the script's function returned can be the end of it.
    fn result_of(&self, returned: Value<'js>) -> Result<Option<String>, ScriptError> {
        let Some(promise) = Promise::from_value(returned).ok() else { return Ok(None) };
        match promise.state() {
            PromiseState::Resolved => Ok(None),
            PromiseState::Rejected => {
                let reason = promise.result::<Value<'js>>();
                let Some(Err(error)) = reason else { return Ok(None) };
                Ok(Some(self.sandbox.failure(&self.ctx, error).text().to_owned()))
            }
            PromiseState::Pending => {
                let text = "Encountered exception while executing Javascript. Exception = Error: \
                            the script waits for a promise that nothing can settle any more";
                Err(ScriptError::new(ErrorKind::Unsettled, text))
            }
        }
    }

    /// Asks the host what the script has asked for.
    fn perform(
        &self,
        call: &Object<'js>,
        host: &mut dyn Host,
    ) -> Result<Result<Answer, (u16, String)>, ScriptError> {
        let call = self.read(call).map_err(|error| self.fail(error, Place::Callback))?;
        let link = call.link.as_deref().map(|link| self.links.document(link));
        let link = match link.transpose() {
            Ok(link) => link.unwrap_or(Link::Id("")),
            Err(message) => return Ok(Err((400, message))),
        };
        match ask(&call, link, host) {
            Ok(answer) => Ok(Ok(answer)),
            Err(HostError::Refused { status, message }) => Ok(Err((status, message))),
            Err(HostError::Stop) => {
                let text = "the transaction of the script cannot go on";
                Err(ScriptError::new(ErrorKind::Stopped, text))
            }
        }
    }

    fn read(&self, call: &Object<'js>) -> rquickjs::Result<Call> {
        let rows: Option<f64> = call.get("pageSize")?;
        Ok(Call {
            kind: call.get("kind")?,
            link: text(call.get("link")?)?,
            body: text(call.get("body")?)?.unwrap_or_default(),
            query: text(call.get("query")?)?,
            condition: text(call.get("condition")?)?,
            continuation: text(call.get("continuation")?)?,
            // Beyond what fits, and below zero, there is no bound.
            rows_max: rows.filter(|rows| *rows >= 1.0 && *rows < 1e9).map(|rows| rows as u32),
        })
    }

    /// Asks for one of the texts that the script has left, at its end.
    fn ending(&self, name: &str) -> Result<Option<String>, ScriptError> {
        let found = self.api.get(name).and_then(|part: Function<'js>| part.call(()));
        found.and_then(text).map_err(|error| self.fail(error, Place::Script))
    }

    fn part(&self, name: &str) -> Result<Function<'js>, ScriptError> {
        self.api.get(name).map_err(|error| self.fail(error, Place::Script))
    }

    fn fail(&self, error: rquickjs::Error, place: Place) -> ScriptError {
        if self.watch.is_aborted() {
            self.ctx.catch();
            let reason = self.abortion();
            return self.sandbox.describe(&self.ctx, reason).into_error(place);
        }
        self.sandbox.failure(&self.ctx, error).into_error(place)
    }

    /// What the script gave `abort`.
    fn abortion(&self) -> Value<'js> {
        let found = self.api.get("abortion").and_then(|part: Function<'js>| part.call(()));
        let reason = found.and_then(|abortion: Object<'js>| abortion.get("error"));
        reason.unwrap_or_else(|_| Value::new_undefined(self.ctx.clone()))
    }
}

/// A call on the container, taken from the queue.
struct Call {
    kind: String,
    link: Option<String>,
    body: String,
    query: Option<String>,
    condition: Option<String>,
    continuation: Option<String>,
    rows_max: Option<u32>,
}

/// What the script is told about a call that succeeded.
struct Answer {
    status: u16,
    text: Option<String>,
    continuation: Option<String>,
}

impl Answer {
    fn document(status: u16, text: String) -> Answer {
        Answer { status, text: Some(text), continuation: None }
    }
}

fn ask(call: &Call, link: Link<'_>, host: &mut dyn Host) -> Result<Answer, HostError> {
    let condition = call.condition.as_deref();
    match call.kind.as_str() {
        "read" => Ok(match host.read(link, condition)? {
            Read::Document(text) => Answer::document(200, text),
            Read::NotModified => Answer { status: 304, text: None, continuation: None },
        }),
        "create" => Ok(Answer::document(201, host.create(&call.body)?)),
        "upsert" => {
            let (is_new, text) = host.upsert(&call.body, condition)?;
            Ok(Answer::document(if is_new { 201 } else { 200 }, text))
        }
        "replace" => Ok(Answer::document(200, host.replace(link, &call.body, condition)?)),
        "patch" => Ok(Answer::document(200, host.patch(link, &call.body, condition)?)),
        "delete" => {
            host.delete(link, condition)?;
            Ok(Answer { status: 204, text: None, continuation: None })
        }
        "query" | "readFeed" => {
            let page = host.query(Query {
                body: call.query.as_deref(),
                rows_max: call.rows_max,
                continuation: call.continuation.as_deref(),
            })?;
            Ok(feed(page))
        }
        other => Err(HostError::refused(400, &format!("no such call on a container: {other}"))),
    }
}

fn feed(page: Page) -> Answer {
    let mut text = String::from("[");
    for (at, row) in page.rows.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(row);
    }
    text.push(']');
    Answer { status: 200, text: Some(text), continuation: page.continuation }
}
