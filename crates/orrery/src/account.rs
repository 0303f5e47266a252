//! What the commands ask of an account.
//!
//! Each question is one request, or one for every page. A server that is busy is asked again for a
//! while, as the SDKs do. What the server refuses becomes a sentence for the person who asked. The
//! spellings of the protocol end here.

use std::time::Duration;

use hyper::Method;
use value::{Object, PartitionKey, ScriptKind, Value};

use crate::client::{Answer, Call, Client, Target};
use crate::connection::{Failure, unanswered};
use crate::refusal;

/// How often a server that is busy is asked again.
const RETRIES_MAX: u32 = 9;
/// How long to wait where the server does not say.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Longer is not waited, whatever the server says.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// Rows of queries may be deeper than documents.
const DEPTH_MAX: usize = 1024;

/// A container, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) database: String,
    pub(crate) container: String,
}

impl Place {
    fn target(&self, rest: &[&str]) -> Target {
        let container = ["dbs", &self.database, "colls", &self.container];
        Target::new(&[&container, rest].concat())
    }
}

/// A query over the documents of a container.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) place: Place,
    pub(crate) text: String,
    pub(crate) parameters: Vec<(String, Value)>,
    pub(crate) key: Option<PartitionKey>,
}

/// What one request for a query wants.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want<'a> {
    /// A page of rows.
    Page { items_max: Option<u32>, continuation: Option<&'a str>, metrics: bool },
    /// How the query would be answered.
    Explanation,
}

/// A procedure that is called.
#[derive(Clone, Debug)]
pub(crate) struct Invocation {
    pub(crate) procedure: String,
    pub(crate) key: PartitionKey,
    pub(crate) arguments: Vec<Value>,
    pub(crate) log: bool,
}

/// An account on a server.
pub(crate) struct Account {
    client: Client,
    /// For messages.
    endpoint: String,
}

impl Account {
    pub(crate) fn new(client: Client, endpoint: String) -> Self {
        Self { client, endpoint }
    }

    /// Where the account is.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    // ---- queries ----

    /// Asks for a page of a query's answer, or how it would be answered.
    pub(crate) async fn ask(
        &mut self,
        question: &Question,
        want: Want<'_>,
    ) -> Result<Answer, Failure> {
        let mut call = Call::new(Method::POST, question.place.target(&["docs"]))
            .with("content-type", "application/query+json")
            .with("x-ms-documentdb-isquery", "True")
            .with("x-ms-documentdb-query-enablecrosspartition", "True")
            .with_body(question.body());
        if let Some(key) = &question.key {
            call = call.with("x-ms-documentdb-partitionkey", key);
        }
        call = match want {
            Want::Explanation => call.with("x-orrery-explain", "true"),
            Want::Page { items_max, continuation, metrics } => {
                if let Some(count) = items_max {
                    call = call.with("x-ms-max-item-count", count);
                }
                if let Some(token) = continuation {
                    call = call.with("x-ms-continuation", token);
                }
                if metrics {
                    call = call
                        .with("x-ms-documentdb-populatequerymetrics", "True")
                        .with("x-ms-cosmos-populateindexmetrics-v2", "True");
                }
                call
            }
        };
        let answer = self.send(call).await?;
        match answer.status {
            200 => Ok(answer),
            404 => Err(Failure::Refused(self.missing(&question.place).await?)),
            _ => Err(Failure::Refused(refusal::describe(&answer, &question.text))),
        }
    }

    // ---- scripts ----

    /// All scripts of a kind.
    pub(crate) async fn scripts(
        &mut self,
        place: &Place,
        kind: ScriptKind,
    ) -> Result<Vec<Object>, Failure> {
        let (segment, plural) = match kind {
            ScriptKind::Procedure => ("sprocs", "StoredProcedures"),
            ScriptKind::Trigger => ("triggers", "Triggers"),
            ScriptKind::Function => ("udfs", "UserDefinedFunctions"),
        };
        match self.list(&place.target(&[segment]), plural).await? {
            Some(scripts) => Ok(scripts),
            None => Err(Failure::Refused(self.missing(place).await?)),
        }
    }

    /// Creates a script; false if there is one of that name.
    pub(crate) async fn create_script(
        &mut self,
        place: &Place,
        kind: ScriptKind,
        definition: &Object,
    ) -> Result<bool, Failure> {
        let call = Call::new(Method::POST, place.target(&[segment(kind)]))
            .with_body(Value::from(definition.clone()).to_text());
        self.create(call).await
    }

    /// Puts a script in the place of the one of its name.
    pub(crate) async fn replace_script(
        &mut self,
        place: &Place,
        kind: ScriptKind,
        name: &str,
        definition: &Object,
    ) -> Result<(), Failure> {
        let call = Call::new(Method::PUT, place.target(&[segment(kind), name]))
            .with_body(Value::from(definition.clone()).to_text());
        let answer = self.send(call).await?;
        expect(answer, 200).map(drop)
    }

    /// Deletes a script, if it is still there.
    pub(crate) async fn delete_script(
        &mut self,
        place: &Place,
        kind: ScriptKind,
        name: &str,
    ) -> Result<(), Failure> {
        let call = Call::new(Method::DELETE, place.target(&[segment(kind), name]));
        match self.send(call).await? {
            Answer { status: 204 | 404, .. } => Ok(()),
            answer => Err(Failure::Refused(refusal::sentence(&answer))),
        }
    }

    /// Calls a procedure. The answer's body is what it set, and its log what it wrote.
    pub(crate) async fn call(
        &mut self,
        place: &Place,
        invocation: &Invocation,
    ) -> Result<Answer, Failure> {
        let Invocation { procedure, key, arguments, log } = invocation;
        let call = Call::new(Method::POST, place.target(&["sprocs", procedure]))
            .with("content-type", "application/json")
            .with("x-ms-documentdb-partitionkey", key)
            .with("x-ms-documentdb-script-enable-logging", log)
            .with_body(Value::from(arguments.clone()).to_text());
        let answer = self.send(call).await?;
        if answer.status != 404 {
            return expect(answer, 200);
        }
        let known = self.scripts(place, ScriptKind::Procedure).await?;
        let known: Vec<&str> = known.iter().filter_map(|script| name_of(script)).collect();
        // A procedure may itself fail with the status of something that is not there.
        if known.contains(&procedure.as_str()) {
            return Err(Failure::Refused(refusal::sentence(&answer)));
        }
        let known = match known.as_slice() {
            [] => "it has none".to_owned(),
            known => format!("it has {}", known.join(", ")),
        };
        let Place { database, container } = place;
        Err(Failure::Refused(format!(
            "there is no procedure '{procedure}' in container '{container}' of database \
             '{database}'; {known}"
        )))
    }

    // ---- what all of them lean on ----

    /// Creates something; false if there is one of that name already.
    async fn create(&mut self, call: Call) -> Result<bool, Failure> {
        match self.send(call).await? {
            Answer { status: 201, .. } => Ok(true),
            Answer { status: 409, .. } => Ok(false),
            answer => Err(Failure::Refused(refusal::sentence(&answer))),
        }
    }

    /// All things of a list; nothing if what should have them is not there.
    async fn list(
        &mut self,
        target: &Target,
        plural: &str,
    ) -> Result<Option<Vec<Object>>, Failure> {
        let mut all = Vec::new();
        let mut continuation: Option<String> = None;
        loop {
            let mut call = Call::new(Method::GET, target.clone());
            if let Some(token) = continuation {
                call = call.with("x-ms-continuation", token);
            }
            let answer = self.send(call).await?;
            if answer.status == 404 {
                return Ok(None);
            }
            let answer = expect(answer, 200)?;
            let Value::Object(mut page) = json(&answer)? else {
                return Err(not_understood("a list is not an object"));
            };
            let Some(Value::Array(found)) = page.remove(plural) else {
                return Err(not_understood(&format!("it has no {plural}")));
            };
            for one in found {
                let Value::Object(one) = one else {
                    return Err(not_understood(&format!("one of the {plural} is not an object")));
                };
                all.push(one);
            }
            continuation = answer.continuation().map(str::to_owned);
            if continuation.is_none() {
                return Ok(Some(all));
            }
        }
    }

    /// What it is that does not exist.
    async fn missing(&mut self, place: &Place) -> Result<String, Failure> {
        let Place { database, container } = place;
        let call = Call::new(Method::GET, Target::new(&["dbs", database]));
        Ok(if self.send(call).await?.status == 200 {
            format!("there is no container '{container}' in database '{database}'")
        } else {
            self.no_database(database)
        })
    }

    fn no_database(&self, database: &str) -> String {
        format!("there is no database '{database}' at {}", self.endpoint)
    }

    /// Sends a request, again while the server is busy.
    async fn send(&mut self, call: Call) -> Result<Answer, Failure> {
        let mut retries = 0;
        loop {
            let answer = self.client.send(call.clone()).await;
            let answer = answer.map_err(|error| unanswered(&self.endpoint, error))?;
            // 449 is a transaction that lost a race and may be tried again.
            if !matches!(answer.status, 429 | 449) || retries == RETRIES_MAX {
                return Ok(answer);
            }
            retries += 1;
            let after = answer.retry_after().unwrap_or(RETRY_AFTER);
            tokio::time::sleep(after.min(RETRY_AFTER_MAX)).await;
        }
    }
}

impl Question {
    fn body(&self) -> String {
        let parameter = |(name, value): &(String, Value)| {
            let name = Value::from(name.as_str());
            Value::from(Object::from([("name", name), ("value", value.clone())]))
        };
        let parameters: Vec<Value> = self.parameters.iter().map(parameter).collect();
        let query = Value::from(self.text.as_str());
        Value::from(Object::from([("query", query), ("parameters", Value::from(parameters))]))
            .to_text()
    }
}

/// The name of a thing that the server told of.
pub(crate) fn name_of(resource: &Object) -> Option<&str> {
    resource.get("id").and_then(Value::as_str)
}

/// The answer, if it has the status of success.
fn expect(answer: Answer, status: u16) -> Result<Answer, Failure> {
    if answer.status == status {
        return Ok(answer);
    }
    Err(Failure::Refused(refusal::sentence(&answer)))
}

/// The body of an answer.
pub(crate) fn json(answer: &Answer) -> Result<Value, Failure> {
    Value::parse_with_depth(&answer.body, DEPTH_MAX)
        .map_err(|error| not_understood(&format!("it is not JSON: {error}")))
}

pub(crate) fn not_understood(why: &str) -> Failure {
    Failure::Refused(format!("the server's answer cannot be understood: {why}"))
}

fn segment(kind: ScriptKind) -> &'static str {
    match kind {
        ScriptKind::Procedure => "sprocs",
        ScriptKind::Trigger => "triggers",
        ScriptKind::Function => "udfs",
    }
}
