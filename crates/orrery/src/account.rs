//! What the commands ask of an account.
//!
//! Each question is one request, or one for every page. A server that is busy is asked again for a
//! while, as the SDKs do. What the server refuses becomes a sentence for the person who asked. The
//! spellings of the protocol end here.

use std::time::Duration;

use bytes::Bytes;
use db::Throughput;
use hyper::Method;
use value::{Epk, EpkRange, Object, PartitionKey, ScriptKind, Value, write_string};

use crate::client::{Answer, Call, Client, Target};
use crate::connection::{Failure, unanswered};
use crate::refusal;

/// How often a server that is busy is asked again.
const RETRIES_MAX: u32 = 9;
/// How long to wait where the server does not say.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Longer is not waited, whatever the server says.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);
/// How many documents a page of a range has at most.
const PAGE_ITEMS: u32 = 1000;
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

/// A part of a container, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) id: String,
    pub(crate) epk: EpkRange,
}

/// What becomes of a document that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    Keep,
    Replace,
}

/// What became of a document that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Created,
    Replaced,
    /// Something is in its way: itself, or a document that must not have the same values.
    Conflict,
    /// It belongs to another range by now.
    Moved,
    /// The server could not do it now.
    NotNow,
    Refused(String),
}

impl Stored {
    fn of(status: u16, message: impl FnOnce() -> String) -> Self {
        match status {
            201 => Stored::Created,
            200 => Stored::Replaced,
            409 => Stored::Conflict,
            410 => Stored::Moved,
            // Too slow, a lost race, or busy.
            408 | 429 | 449 | 503 => Stored::NotNow,
            _ => Stored::Refused(message()),
        }
    }
}

/// The body of a request that writes many documents.
#[derive(Debug)]
pub(crate) struct Storing {
    text: String,
    verb: &'static str,
}

impl Storing {
    pub(crate) fn new(existing: Existing) -> Self {
        let verb = match existing {
            Existing::Keep => "Create",
            Existing::Replace => "Upsert",
        };
        Self { text: "[".to_owned(), verb }
    }

    /// Adds a document, which must be JSON.
    pub(crate) fn push(&mut self, key: &PartitionKey, document: &str) {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        self.text.push_str("{\"operationType\":\"");
        self.text.push_str(self.verb);
        self.text.push_str("\",\"partitionKey\":");
        write_string(&key.to_string(), &mut self.text);
        self.text.push_str(",\"resourceBody\":");
        self.text.push_str(document);
        self.text.push('}');
    }

    pub(crate) fn body(mut self) -> Bytes {
        self.text.push(']');
        self.text.into()
    }
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

    // ---- databases and containers ----

    /// All databases.
    pub(crate) async fn databases(&mut self) -> Result<Vec<Object>, Failure> {
        let all = self.list(&Target::new(&["dbs"]), "Databases").await?;
        all.ok_or_else(|| not_understood("there is no list of databases"))
    }

    /// All containers of a database.
    pub(crate) async fn containers(&mut self, database: &str) -> Result<Vec<Object>, Failure> {
        let target = Target::new(&["dbs", database, "colls"]);
        match self.list(&target, "DocumentCollections").await? {
            Some(containers) => Ok(containers),
            None => Err(Failure::Refused(self.no_database(database))),
        }
    }

    /// One container, as the server has it.
    pub(crate) async fn container(&mut self, place: &Place) -> Result<Object, Failure> {
        let answer = self.send(Call::new(Method::GET, place.target(&[]))).await?;
        if answer.status == 404 {
            return Err(Failure::Refused(self.missing(place).await?));
        }
        match json(&expect(answer, 200)?)? {
            Value::Object(container) => Ok(container),
            _ => Err(not_understood("a container is not an object")),
        }
    }

    /// Creates a database; false if there is one of that name.
    pub(crate) async fn create_database(
        &mut self,
        name: &str,
        throughput: Option<Throughput>,
    ) -> Result<bool, Failure> {
        let body = Value::from(Object::from([("id", name)])).to_text();
        let call = Call::new(Method::POST, Target::new(&["dbs"])).with_body(body);
        self.create(with_throughput(call, throughput)).await
    }

    /// Creates a container; false if there is one of that name.
    pub(crate) async fn create_container(
        &mut self,
        database: &str,
        definition: &Object,
        throughput: Option<Throughput>,
    ) -> Result<bool, Failure> {
        let call = Call::new(Method::POST, Target::new(&["dbs", database, "colls"]))
            .with_body(Value::from(definition.clone()).to_text());
        self.create(with_throughput(call, throughput)).await
    }

    /// The throughput of everything that has its own, by resource id.
    pub(crate) async fn throughputs(&mut self) -> Result<Vec<(String, Throughput)>, Failure> {
        // An account that is billed by use has no offers, and says so in different ways.
        let offers = self.list(&Target::new(&["offers"]), "Offers").await?.unwrap_or_default();
        Ok(offers.iter().filter_map(throughput_of).collect())
    }

    /// The ranges of a container.
    pub(crate) async fn ranges(&mut self, place: &Place) -> Result<Vec<Range>, Failure> {
        let ranges = self.range_resources(place).await?;
        let ranges: Option<Vec<Range>> = ranges.iter().map(range_of).collect();
        let ranges = ranges.filter(|ranges| !ranges.is_empty());
        ranges.ok_or_else(|| not_understood("a container has no ranges"))
    }

    /// The ranges of a container, with all that the server tells of them.
    pub(crate) async fn range_resources(&mut self, place: &Place) -> Result<Vec<Object>, Failure> {
        match self.list(&place.target(&["pkranges"]), "PartitionKeyRanges").await? {
            Some(ranges) => Ok(ranges),
            None => Err(Failure::Refused(self.missing(place).await?)),
        }
    }

    /// Cuts ranges anew, and says which ones there are instead.
    pub(crate) async fn recut(
        &mut self,
        place: &Place,
        what: &Object,
    ) -> Result<Vec<String>, Failure> {
        let call = Call::new(Method::POST, place.target(&["pkranges"]))
            .with("content-type", "application/json")
            .with_body(Value::from(what.clone()).to_text());
        let answer = self.send(call).await?;
        if answer.status == 404 {
            return Err(Failure::Refused(self.missing(place).await?));
        }
        let recut = json(&expect(answer, 200)?)?;
        let new = recut.get("new").and_then(Value::as_array).unwrap_or_default();
        Ok(new.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    // ---- documents ----

    /// A page of the documents of a range.
    pub(crate) async fn page(
        &mut self,
        place: &Place,
        range: &Range,
        continuation: Option<&str>,
    ) -> Result<Answer, Failure> {
        let mut call = Call::new(Method::GET, place.target(&["docs"]))
            .with("x-ms-documentdb-partitionkeyrangeid", &range.id)
            .with("x-ms-max-item-count", PAGE_ITEMS);
        if let Some(token) = continuation {
            call = call.with("x-ms-continuation", token);
        }
        let answer = self.send(call).await?;
        if answer.status == 410 {
            return Err(Failure::Refused(format!(
                "the ranges of container '{}' have changed while it was read; go on with --resume",
                place.container
            )));
        }
        expect(answer, 200)
    }

    /// How many documents a container has.
    pub(crate) async fn count(&mut self, place: &Place) -> Result<u64, Failure> {
        for _ in 0..RETRIES_MAX {
            let ranges = self.ranges(place).await?;
            if let Some(count) = self.count_in(place, &ranges).await? {
                return Ok(count);
            }
        }
        Err(Failure::Refused("the ranges of the container do not stop changing".to_owned()))
    }

    /// How many documents the ranges have; nothing if one of them is gone.
    async fn count_in(&mut self, place: &Place, ranges: &[Range]) -> Result<Option<u64>, Failure> {
        let mut count = 0;
        for range in ranges {
            // A sum over ranges is the client's work in this protocol.
            let call = Call::new(Method::POST, place.target(&["docs"]))
                .with("content-type", "application/query+json")
                .with("x-ms-documentdb-isquery", "True")
                .with("x-ms-documentdb-partitionkeyrangeid", &range.id)
                .with_body(r#"{"query":"SELECT VALUE COUNT(1) FROM c","parameters":[]}"#);
            let answer = self.send(call).await?;
            if answer.status == 410 {
                return Ok(None);
            }
            let page = json(&expect(answer, 200)?)?;
            let found = page.get("Documents").and_then(Value::as_array);
            let found = found.and_then(|found| found.first()?.as_i64());
            let found = found.and_then(|found| u64::try_from(found).ok());
            count += found.ok_or_else(|| not_understood("a count is not a number"))?;
        }
        Ok(Some(count))
    }

    /// Writes many documents of one range, each by itself; one result for each of them, or nothing if
    /// the range is gone. The body is what [`Storing`] says.
    pub(crate) async fn store_many(
        &mut self,
        place: &Place,
        range: &Range,
        body: Bytes,
    ) -> Result<Option<Vec<Stored>>, Failure> {
        let call = Call::new(Method::POST, place.target(&["docs"]))
            .with("content-type", "application/json")
            .with("x-ms-documentdb-partitionkeyrangeid", &range.id)
            .with("x-ms-cosmos-is-batch-request", "True")
            .with("x-ms-cosmos-batch-atomic", "False")
            .with("x-ms-cosmos-batch-continue-on-error", "True")
            .with("prefer", "return=minimal")
            .with_body(body);
        let answer = self.send(call).await?;
        if answer.status == 410 {
            return Ok(None);
        }
        if !matches!(answer.status, 200 | 207) {
            return Err(Failure::Refused(refusal::sentence(&answer)));
        }
        let results = json(&answer)?;
        let results = results.as_array().ok_or_else(|| not_understood("it has no results"))?;
        let stored = |result: &Value| {
            let status = result.get("statusCode").and_then(Value::as_i64).unwrap_or(0);
            let message = result.get("message").and_then(Value::as_str).map(str::to_owned);
            Stored::of(u16::try_from(status).unwrap_or(0), || {
                message.unwrap_or_else(|| format!("the server answers {status}"))
            })
        };
        Ok(Some(results.iter().map(stored).collect()))
    }

    /// Writes one document.
    pub(crate) async fn store(
        &mut self,
        place: &Place,
        key: &PartitionKey,
        document: Bytes,
        existing: Existing,
    ) -> Result<Stored, Failure> {
        let mut call = Call::new(Method::POST, place.target(&["docs"]))
            .with("content-type", "application/json")
            .with("x-ms-documentdb-partitionkey", key)
            .with("prefer", "return=minimal")
            .with_body(document);
        if existing == Existing::Replace {
            call = call.with("x-ms-documentdb-is-upsert", "True");
        }
        let answer = self.send(call).await?;
        if answer.status == 401 {
            return Err(Failure::Refused(refusal::sentence(&answer)));
        }
        Ok(Stored::of(answer.status, || refusal::sentence(&answer)))
    }

    /// One document, if it is there.
    pub(crate) async fn document(
        &mut self,
        place: &Place,
        key: &PartitionKey,
        id: &str,
    ) -> Result<Option<Bytes>, Failure> {
        let call = Call::new(Method::GET, place.target(&["docs", id]))
            .with("x-ms-documentdb-partitionkey", key);
        match self.send(call).await? {
            Answer { status: 404, .. } => Ok(None),
            answer => Ok(Some(expect(answer, 200)?.body)),
        }
    }

    /// Deletes a document; false if it is not there.
    pub(crate) async fn delete(
        &mut self,
        place: &Place,
        key: &PartitionKey,
        id: &str,
    ) -> Result<bool, Failure> {
        let call = Call::new(Method::DELETE, place.target(&["docs", id]))
            .with("x-ms-documentdb-partitionkey", key);
        match self.send(call).await? {
            Answer { status: 404, .. } => Ok(false),
            answer => expect(answer, 204).map(|_| true),
        }
    }

    // ---- what all of them lean on ----

    /// Another account of the same server, for requests side by side.
    pub(crate) fn another(&self) -> Self {
        Self { client: self.client.another(), endpoint: self.endpoint.clone() }
    }

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

fn with_throughput(call: Call, throughput: Option<Throughput>) -> Call {
    match throughput {
        None => call,
        Some(Throughput::Manual(units)) => call.with("x-ms-offer-throughput", units),
        Some(Throughput::Autoscale { max, increment_percent }) => {
            let mut settings = Object::from([("maxThroughput", Value::from(max))]);
            if let Some(percent) = increment_percent {
                let policy = Object::from([("incrementPercent", Value::from(percent))]);
                let policy = Object::from([("throughputPolicy", Value::from(policy))]);
                settings.insert("autoUpgradePolicy", Value::from(policy));
            }
            let settings = Value::from(settings).to_text();
            call.with("x-ms-cosmos-offer-autopilot-settings", settings)
        }
    }
}

/// The resource id and the throughput that an offer is about.
fn throughput_of(offer: &Object) -> Option<(String, Throughput)> {
    let rid = offer.get("offerResourceId")?.as_str()?.to_owned();
    let content = offer.get("content")?;
    let settings = content.get("offerAutopilotSettings").filter(|settings| !settings.is_null());
    let Some(settings) = settings else {
        return Some((rid, Throughput::Manual(content.get("offerThroughput")?.as_i64()?)));
    };
    let policy =
        settings.get("autoUpgradePolicy").and_then(|policy| policy.get("throughputPolicy"));
    let percent = policy.and_then(|policy| policy.get("incrementPercent")?.as_i64());
    let increment_percent = percent.filter(|percent| *percent != 0);
    let max = settings.get("maxThroughput")?.as_i64()?;
    Some((rid, Throughput::Autoscale { max, increment_percent }))
}

fn range_of(range: &Object) -> Option<Range> {
    let text = |name: &str| range.get(name).and_then(Value::as_str);
    let bound = |name: &str| text(name).and_then(|bound| Epk::parse(bound).ok());
    let epk = EpkRange { min: bound("minInclusive")?, max: bound("maxExclusive")? };
    Some(Range { id: text("id")?.to_owned(), epk })
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
