//! Requests: every request header is read here, once.
//!
//! Header values come from a stranger and from SDKs in six languages: booleans in any letter case,
//! numbers that may be nonsense, JSON inside headers. What is malformed is refused with the header's
//! name; what is unknown is ignored. The rest of the gateway sees only [`Options`] and [`Action`].

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use db::{
    ChangeMode, ChangeRequest, ChangeStart, Conditions, Error, Features, Kind, Migrate, Page,
    QueryText, Result, ResumeFilter, Scope, Session, Throughput,
};
use hyper::Method;
use ring::rand::{SecureRandom, SystemRandom};
use value::{Epk, EpkRange, Object, PartitionKey, ScriptKind, Value};

use crate::changes::{ChangeOptions, Form};
use crate::consistency::Consistency;
use crate::headers::{Headers, Name};
use crate::router::{ContainerTarget, DatabaseTarget, Target};
use crate::{auth, binary_json};

/// What every answer to a request carries back.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// The client's name for the request, or ours.
    pub activity_id: String,
    /// The client's name for the query that the request is part of.
    pub correlated_activity_id: Option<String>,
    /// The path as sent.
    pub path: String,
}

impl Context {
    pub(crate) fn new(headers: &Headers<'_>, path: &str) -> Self {
        let echoed = |name: Name| {
            let text = headers.plain(name)?;
            let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
            (!text.is_empty() && text.len() <= 64 && is_plain).then(|| text.to_owned())
        };
        Self {
            activity_id: echoed(Name::ActivityId).unwrap_or_else(new_activity_id),
            correlated_activity_id: echoed(Name::CorrelatedActivityId),
            path: path.to_owned(),
        }
    }
}

/// A GUID that looks random and is unlike all others of this process. Which one comes first is
/// random; the next ones follow by a step, because asking the system for each would cost more than
/// everything else about a name. Without randomness the first one is all zeros.
fn new_activity_id() -> String {
    static FIRST: LazyLock<u128> = LazyLock::new(|| {
        let mut bytes = [0; 16];
        let _ = SystemRandom::new().fill(&mut bytes);
        u128::from_be_bytes(bytes)
    });
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    // Odd, so that all numbers come before one comes again, and without a pattern in its bits.
    const STEP: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
    let given = u128::from(GIVEN.fetch_add(1, Ordering::Relaxed));
    let mut bytes = FIRST.wrapping_add(STEP.wrapping_mul(given)).to_be_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let number = u128::from_be_bytes(bytes);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        number >> 96,
        number >> 80 & 0xffff,
        number >> 64 & 0xffff,
        number >> 48 & 0xffff,
        number & 0xffff_ffff_ffff
    )
}

/// What is to be done with the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    List,
    /// The changes of documents since a moment.
    Changes,
    Query,
    Plan,
    Create,
    Upsert,
    Batch,
    Replace,
    Patch,
    Delete,
    /// Runs what the target stands for: a script, or the deletion of a partition.
    Execute,
}

impl Action {
    /// Whether the action leaves everything as it was.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Action::Read | Action::List | Action::Changes | Action::Query | Action::Plan)
    }
}

/// How the results of a query are to be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexMetrics {
    /// Base64 of JSON.
    Base64,
    /// URL-encoded JSON.
    UrlEncoded,
}

/// Everything that headers say, understood.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Old versions of the protocol allow containers without a partition key.
    pub key_is_optional: bool,
    pub key: Option<PartitionKey>,
    pub range: Option<String>,
    pub epk: Option<EpkRange>,
    /// The client allows a query to look at several partitions.
    pub cross_partition: bool,
    pub session: Option<Session>,
    pub conditions: Conditions,
    /// The client wants no body for a write.
    pub minimal: bool,
    pub page: Page,
    pub throughput: Option<Throughput>,
    pub migrate: Option<Migrate>,
    pub token_seconds: Option<u64>,
    pub intended_container: Option<String>,
    pub populate_quota: bool,
    pub populate_statistics: bool,
    pub query_metrics: bool,
    pub index_metrics: Option<IndexMetrics>,
    pub query_advice: bool,
    /// The client wants to know how a query would be answered, not the answer.
    pub explain: bool,
    /// .NET's shortcut for queries of one partition.
    pub optimistic_direct: bool,
    /// What the client can do with the rows of several ranges.
    pub features: Features,
    /// All operations of a batch or none.
    pub atomic: bool,
    pub continue_on_error: bool,
    /// Triggers that the client wants to run.
    pub pre_trigger: Option<String>,
    pub post_trigger: Option<String>,
    /// The client wants what a procedure writes to its log.
    pub script_logging: bool,
    /// By which a transaction across partitions is known again.
    pub idempotency_token: Option<String>,
    /// What scripts may read of the headers; empty where none runs.
    pub script_headers: Vec<(String, String)>,
    /// What is said about the change feed, where it is asked for.
    pub changes: Option<ChangeOptions>,
}

impl Options {
    /// Whether the client wants triggers to run.
    pub(crate) fn has_triggers(&self) -> bool {
        self.pre_trigger.is_some() || self.post_trigger.is_some()
    }

    /// Which documents a feed or query is about.
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            key: self.key.clone(),
            range: self.range.clone(),
            epk: self.epk.clone(),
            cross_partition: self.cross_partition,
        }
    }
}

/// The versions of the protocol that clients may speak.
const VERSIONS: [&str; 21] = [
    "2014-08-21",
    "2015-04-08",
    "2015-06-03",
    "2015-08-06",
    "2015-12-16",
    "2016-05-30",
    "2016-07-11",
    "2016-11-14",
    "2017-01-19",
    "2017-02-22",
    "2017-05-03",
    "2017-11-15",
    "2018-06-18",
    "2018-08-31",
    "2018-09-17",
    "2018-12-31",
    "2019-10-14",
    "2020-07-15",
    "2020-11-05",
    "2024-05-15",
    "2024-06-06",
];
/// The longest that a client can wait for a change.
const WAIT_S_MAX: u64 = 60;
/// From this version on every container has a partition key.
const KEY_REQUIRED_FROM: &str = "2018-12-31";

/// Reads all headers of a request to an account that promises a consistency level.
pub(crate) fn options(headers: &Headers<'_>, promised: Consistency) -> Result<Options> {
    let version = headers.text(Name::Version)?;
    if let Some(version) = version
        && !VERSIONS.contains(&version)
    {
        return Err(Error::bad_request(format!(
            "the value of x-ms-version is not a supported version: '{version}'"
        )));
    }
    headers.check_consistency(promised)?;
    headers.check_ignored()?;
    let key = headers.text(Name::PartitionKey)?;
    let session = headers.said(Name::SessionToken)?;
    let prefer = headers.text(Name::Prefer)?.unwrap_or("").to_ascii_lowercase();
    Ok(Options {
        key_is_optional: version.is_some_and(|version| version < KEY_REQUIRED_FROM),
        key: key.map(partition_key).transpose()?,
        range: headers.range_id()?,
        epk: headers.epk_range()?,
        cross_partition: headers.flag(Name::EnableCrossPartition)?,
        session: session.map(Session::parse).transpose()?,
        conditions: Conditions {
            if_match: headers.text(Name::IfMatch)?.map(str::to_owned),
            if_none_match: headers.text(Name::IfNoneMatch)?.map(str::to_owned),
        },
        minimal: prefer.contains("return=minimal"),
        page: headers.page()?,
        throughput: headers.throughput()?,
        migrate: headers.migrate()?,
        token_seconds: headers.number(Name::ExpirySeconds)?,
        intended_container: headers.said(Name::IntendedContainer)?.map(str::to_owned),
        populate_quota: headers.flag(Name::PopulateQuota)?,
        populate_statistics: headers.flag(Name::PopulateStatistics)?,
        query_metrics: headers.flag(Name::PopulateQueryMetrics)?,
        index_metrics: headers.index_metrics()?,
        query_advice: headers.flag(Name::QueryAdvice)?,
        explain: headers.flag(Name::Explain)?,
        optimistic_direct: headers.flag(Name::OptimisticDirect)?,
        features: headers.text(Name::SupportedFeatures)?.map(Features::parse).unwrap_or_default(),
        // Every SDK but one says which it wants; what is not said is the safe one.
        atomic: headers.optional_flag(Name::BatchAtomic)?.unwrap_or(true),
        continue_on_error: headers.flag(Name::BatchContinueOnError)?,
        pre_trigger: headers.trigger(Name::PreTriggers)?,
        post_trigger: headers.trigger(Name::PostTriggers)?,
        script_logging: headers.flag(Name::ScriptLogging)?,
        idempotency_token: headers.said(Name::IdempotencyToken)?.map(str::to_owned),
        script_headers: Vec::new(),
        changes: None,
    })
}

/// The form of changes that clients can name.
const SEPARATE_FORM: &str = "2021-09-15";

/// Reads what a request for changes says beyond the rest.
pub(crate) fn changes(headers: &Headers<'_>, options: &Options) -> Result<ChangeOptions> {
    const MODE: Name = Name::ChangeFeed;
    let mode = match headers.text(MODE)?.unwrap_or("") {
        text if text.eq_ignore_ascii_case("Incremental Feed") => ChangeMode::LatestVersion,
        text if text.eq_ignore_ascii_case("Full-Fidelity Feed") => ChangeMode::AllVersions,
        text => return Err(Headers::invalid(MODE, text)),
    };
    let form = match headers.said(Name::ChangeFormat)? {
        None => Form::Plain,
        Some(SEPARATE_FORM) => Form::Separate,
        Some(text) => return Err(Headers::invalid(Name::ChangeFormat, text)),
    };
    let after_s = match headers.said(Name::IfModifiedSince)? {
        None => None,
        Some(text) => {
            let ms = auth::parse_date_ms(text);
            Some(ms.ok_or_else(|| Headers::invalid(Name::IfModifiedSince, text))? / 1_000)
        }
    };
    let start = match headers.said(Name::IfNoneMatch)? {
        None => ChangeStart::Beginning,
        Some("*") => ChangeStart::Now,
        Some(etag) => ChangeStart::After(etag.to_owned()),
    };
    let request = ChangeRequest { mode, start, after_s, items_max: options.page.items_max };
    Ok(ChangeOptions { request, form, wait: headers.wait()? })
}

fn partition_key(text: &str) -> Result<PartitionKey> {
    PartitionKey::parse_header(text).map_err(|error| {
        Error::bad_request(format!(
            "the partition key of x-ms-documentdb-partitionkey is invalid: {error}"
        ))
    })
}

/// What the method and the headers mean for a target.
pub(crate) fn action(method: &Method, target: &Target, headers: &Headers<'_>) -> Result<Action> {
    let found = match target {
        Target::Account | Target::Operator(_) => read(method),
        Target::Databases
        | Target::InDatabase(
            _,
            DatabaseTarget::Containers
            | DatabaseTarget::Users
            | DatabaseTarget::Permissions(_)
            | DatabaseTarget::EncryptionKeys,
        )
        | Target::InContainer(_, ContainerTarget::Scripts(_)) => match *method {
            Method::GET | Method::HEAD => Some(Action::List),
            Method::POST => Some(headers.post()?),
            _ => None,
        },
        Target::InContainer(_, ContainerTarget::Documents) => match *method {
            Method::GET | Method::HEAD if headers.has(Name::ChangeFeed) => Some(Action::Changes),
            Method::GET | Method::HEAD => Some(Action::List),
            Method::POST => Some(headers.post_on_documents()?),
            _ => None,
        },
        Target::Offers | Target::InContainer(_, ContainerTarget::Conflicts) => match *method {
            Method::GET | Method::HEAD => Some(Action::List),
            Method::POST if headers.is_query()? => Some(Action::Query),
            _ => None,
        },
        // Clients of the service only read ranges; cutting them anew is our own.
        Target::InContainer(_, ContainerTarget::Ranges) if method == Method::POST => {
            Some(Action::Execute)
        }
        Target::InContainer(_, ContainerTarget::Ranges) => read(method).map(|_| Action::List),
        Target::InContainer(_, ContainerTarget::DeletePartition) => {
            (method == Method::POST).then_some(Action::Execute)
        }
        Target::Transactions if method == Method::POST => Some(headers.transaction()?),
        Target::Transactions => None,
        Target::Offer(_) => match *method {
            Method::PUT => Some(Action::Replace),
            _ => read(method),
        },
        Target::InContainer(_, ContainerTarget::Conflict(_)) => match *method {
            Method::DELETE => Some(Action::Delete),
            _ => read(method),
        },
        Target::InContainer(_, ContainerTarget::Document(_)) if method == Method::PATCH => {
            Some(Action::Patch)
        }
        Target::InContainer(_, ContainerTarget::Script(ScriptKind::Procedure, _))
            if method == Method::POST =>
        {
            Some(Action::Execute)
        }
        Target::Database(_) | Target::InDatabase(..) | Target::InContainer(..) => match *method {
            Method::PUT => Some(Action::Replace),
            Method::DELETE => Some(Action::Delete),
            _ => read(method),
        },
    };
    found.ok_or_else(|| {
        Error::new(Kind::MethodNotAllowed, format!("the method {method} is not allowed here"))
    })
}

fn read(method: &Method) -> Option<Action> {
    (method == Method::GET || method == Method::HEAD).then_some(Action::Read)
}

impl Headers<'_> {
    /// What a transaction across partitions does.
    fn transaction(&self) -> Result<Action> {
        self.check_word(Name::ResourceType, &["DistributedTransactionBatch"])?;
        match self.said(Name::OperationType)? {
            Some("CommitDistributedTransaction") => Ok(Action::Batch),
            Some("Read") => Ok(Action::Read),
            Some(other) => Err(Self::invalid(Name::OperationType, other)),
            None => Err(Error::bad_request(
                "a transaction needs x-ms-cosmos-operation-type: CommitDistributedTransaction or \
                 Read",
            )),
        }
    }

    /// Headers whose values must be right although the server does the same either way: it is
    /// always consistent, always scans what it must, and always answers in text.
    fn check_ignored(&self) -> Result<()> {
        for name in
            [Name::EnableScan, Name::EmitTraces, Name::EnableLowPrecision, Name::Parallelize]
        {
            self.flag(name)?;
        }
        self.check_word(
            Name::ReadConsistency,
            &["Eventual", "Session", "LatestCommitted", "GlobalStrong", "Default"],
        )?;
        self.check_word(Name::IndexingDirective, &["Default", "Include", "Exclude"])?;
        self.check_word(Name::SerializationFormat, &["JsonText", "CosmosBinary", "HybridRow"])
    }

    /// A client may ask for less than the account promises, not for more.
    fn check_consistency(&self, promised: Consistency) -> Result<()> {
        const NAME: Name = Name::ConsistencyLevel;
        if let Some(level) = self.text(NAME)?
            && Consistency::named(level).is_some_and(|asked| asked < promised)
        {
            return Err(Error::bad_request(format!(
                "ConsistencyLevel {level} specified in the request is invalid when service is \
                 configured with consistency level {}. Ensure the request consistency level is not \
                 stronger than the service consistency level.",
                promised.name()
            )));
        }
        self.check_word(NAME, &Consistency::ALL.map(Consistency::name))
    }

    /// The range, without the container that old .NET clients put before it.
    fn range_id(&self) -> Result<Option<String>> {
        let text = self.text(Name::RangeId)?;
        let id = text.and_then(|text| text.rsplit(',').next()).map(str::trim);
        Ok(id.filter(|id| !id.is_empty()).map(str::to_owned))
    }

    fn epk_range(&self) -> Result<Option<EpkRange>> {
        const KIND: Name = Name::ReadKeyType;
        let (start, end) = (self.text(Name::StartEpk)?, self.text(Name::EndEpk)?);
        let kind = self.said(KIND)?;
        if start.is_none() && end.is_none() {
            return Ok(None);
        }
        if let Some(kind) = kind
            && !kind.eq_ignore_ascii_case("EffectivePartitionKeyRange")
        {
            return Err(Self::invalid(KIND, kind));
        }
        let bound =
            |name: Name, text: &str| Epk::parse(text).map_err(|_| Self::invalid(name, text));
        let min = bound(Name::StartEpk, start.unwrap_or(""))?;
        let max = bound(Name::EndEpk, end.unwrap_or("FF"))?;
        if min > max {
            return Err(Error::bad_request("x-ms-start-epk lies after x-ms-end-epk"));
        }
        Ok(Some(EpkRange { min, max }))
    }

    fn page(&self) -> Result<Page> {
        const COUNT: Name = Name::MaxItemCount;
        let items_max = match self.number::<i32>(COUNT)? {
            // The service's way to say that the server decides.
            None | Some(-1 | 0 | i32::MAX) => None,
            Some(count) => {
                let text = count.to_string();
                Some(usize::try_from(count).map_err(|_| Self::invalid(COUNT, &text))?)
            }
        };
        let continuation = self.said(Name::Continuation)?;
        let continuation = continuation.map(str::to_owned);
        Ok(Page { items_max, continuation, ..Page::default() })
    }

    fn throughput(&self) -> Result<Option<Throughput>> {
        const AUTOSCALE: Name = Name::AutopilotSettings;
        let manual = self.number::<i64>(Name::OfferThroughput)?;
        let autoscale = self.said(AUTOSCALE)?;
        match (manual, autoscale) {
            (None, None) => Ok(None),
            (Some(manual), None) => Ok(Some(Throughput::Manual(manual))),
            (None, Some(text)) => {
                let settings = Value::parse(text.as_bytes()).ok();
                let max = settings.as_ref().and_then(|settings| settings.get("maxThroughput"));
                let max =
                    max.and_then(Value::as_i64).ok_or_else(|| Self::invalid(AUTOSCALE, text))?;
                let increment_percent = settings
                    .as_ref()
                    .and_then(|settings| settings.get("autoUpgradePolicy"))
                    .and_then(|policy| policy.get("throughputPolicy"))
                    .and_then(|policy| policy.get("incrementPercent"))
                    .and_then(Value::as_i64);
                Ok(Some(Throughput::Autoscale { max, increment_percent }))
            }
            (Some(_), Some(_)) => Err(Error::bad_request(
                "x-ms-offer-throughput and x-ms-cosmos-offer-autopilot-settings exclude each other",
            )),
        }
    }

    fn migrate(&self) -> Result<Option<Migrate>> {
        let to_autoscale = self.flag(Name::MigrateToAutopilot)?;
        let to_manual = self.flag(Name::MigrateToManual)?;
        match (to_autoscale, to_manual) {
            (false, false) => Ok(None),
            (true, false) => Ok(Some(Migrate::ToAutoscale)),
            (false, true) => Ok(Some(Migrate::ToManual)),
            (true, true) => Err(Error::bad_request(
                "an offer cannot migrate to autoscale and to manual at once",
            )),
        }
    }

    fn index_metrics(&self) -> Result<Option<IndexMetrics>> {
        if self.flag(Name::IndexMetricsV2)? {
            return Ok(Some(IndexMetrics::UrlEncoded));
        }
        let wanted = self.flag(Name::IndexMetrics)?;
        Ok(wanted.then_some(IndexMetrics::Base64))
    }

    /// The trigger that the client wants to run; of each kind there can be one.
    fn trigger(&self, name: Name) -> Result<Option<String>> {
        let Some(text) = self.said(name)? else { return Ok(None) };
        let mut names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let first = names.next().map(str::to_owned);
        match names.next() {
            None => Ok(first),
            Some(_) => Err(Error::bad_request(format!(
                "One of the specified inputs is invalid: {} names more than one trigger: '{text}'",
                name.as_str()
            ))),
        }
    }

    /// How long the client prefers to wait, in the words of RFC 7240. A preference that cannot be
    /// understood is none.
    fn wait(&self) -> Result<Duration> {
        let text = self.text(Name::Prefer)?.unwrap_or("");
        let seconds = text.split([',', ';']).find_map(|preference| {
            let (name, value) = preference.split_once('=')?;
            let is_wait = name.trim().eq_ignore_ascii_case("wait");
            is_wait.then(|| value.trim().trim_matches('"').parse::<u64>().ok())?
        });
        Ok(Duration::from_secs(seconds.unwrap_or(0).min(WAIT_S_MAX)))
    }

    fn is_query(&self) -> Result<bool> {
        let content_type = self.text(Name::ContentType)?.unwrap_or("").to_ascii_lowercase();
        Ok(self.flag(Name::IsQuery)?
            || self.flag(Name::IsQueryInGo)?
            || content_type.starts_with("application/query+json"))
    }

    /// What a POST on a feed means: the first of these that the headers say.
    fn post(&self) -> Result<Action> {
        if self.flag(Name::IsPlan)? {
            return Ok(Action::Plan);
        }
        if self.is_query()? {
            return Ok(Action::Query);
        }
        Ok(if self.flag(Name::IsUpsert)? { Action::Upsert } else { Action::Create })
    }

    /// The same for documents, which also have batches and changes.
    fn post_on_documents(&self) -> Result<Action> {
        let action = self.post()?;
        if matches!(action, Action::Plan | Action::Query) {
            return Ok(action);
        }
        if self.flag(Name::IsBatch)? {
            return Ok(Action::Batch);
        }
        Ok(if self.has(Name::ChangeFeed) { Action::Changes } else { action })
    }
}

/// Reads a body as JSON, text or binary.
pub(crate) fn json(body: &[u8]) -> Result<Value> {
    if body.is_empty() {
        return Err(Error::bad_request("The request has no body, but it needs one"));
    }
    if body.first() == Some(&binary_json::FIRST_BYTE) {
        return binary_json::decode(body)
            .map_err(|error| Error::bad_request(format!("The binary JSON is malformed: {error}")));
    }
    Value::parse(body)
        .map_err(|error| Error::bad_request(format!("The request body is not valid JSON: {error}")))
}

/// Reads the parameters of a procedure as JSON text, which may be missing.
pub(crate) fn parameters(body: &[u8]) -> Result<String> {
    if body.first() == Some(&binary_json::FIRST_BYTE) {
        return Ok(json(body)?.to_text());
    }
    let text = std::str::from_utf8(body);
    text.map(str::to_owned).map_err(|_| Error::bad_request("The request body is not UTF-8"))
}

/// Reads a body as a JSON object.
pub(crate) fn object(body: &[u8]) -> Result<Object> {
    match json(body)? {
        Value::Object(object) => Ok(object),
        _ => Err(Error::bad_request("The request body is not a JSON object")),
    }
}

/// Reads the body of a query: `{"query": …, "parameters": […]}`, or in old clients just the text.
pub(crate) fn query(body: &[u8]) -> Result<QueryText> {
    let body = json(body)?;
    if let Value::String(text) = body {
        return Ok(QueryText { text, ..QueryText::default() });
    }
    let text = body.get("query").and_then(Value::as_str).ok_or_else(|| {
        Error::bad_request("The body of a query needs the property 'query' with its text")
    })?;
    let mut parameters = Vec::new();
    match body.get("parameters") {
        None | Some(Value::Null) => {}
        Some(Value::Array(items)) => {
            for item in items {
                parameters.push(parameter(item)?);
            }
        }
        Some(_) => return Err(Error::bad_request("The parameters of a query must be an array")),
    }
    let resume = resume_filter(&body)?;
    Ok(QueryText { text: text.to_owned(), parameters, resume })
}

/// Reads where a sorted query is to go on:
/// `"resumeFilter": {"value": […], "rid": "…", "exclude": true}`, with `[]` for undefined.
fn resume_filter(body: &Value) -> Result<Option<ResumeFilter>> {
    let filter = match body.get("resumeFilter") {
        None | Some(Value::Null) => return Ok(None),
        Some(filter) => filter,
    };
    let malformed =
        |what: &str| Error::bad_request(format!("The 'resumeFilter' of a query {what}"));
    let values = filter.get("value").and_then(Value::as_array);
    let values = values.ok_or_else(|| malformed("needs an array 'value'"))?;
    let sort_key = |value: &Value| match value {
        Value::Array(items) if items.is_empty() => Ok(None),
        Value::Array(_) | Value::Object(_) => {
            Err(malformed("cannot go on from an array or an object"))
        }
        scalar => Ok(Some(scalar.clone())),
    };
    let rid = match filter.get("rid") {
        None | Some(Value::Null) => None,
        Some(Value::String(rid)) => Some(rid.clone()),
        Some(_) => return Err(malformed("needs a string as 'rid'")),
    };
    let exclude = match filter.get("exclude") {
        None => false,
        Some(Value::Bool(exclude)) => *exclude,
        Some(_) => return Err(malformed("needs a boolean as 'exclude'")),
    };
    let values = values.iter().map(sort_key).collect::<Result<_>>()?;
    Ok(Some(ResumeFilter { values, rid, exclude }))
}

fn parameter(item: &Value) -> Result<(String, Value)> {
    let name = item
        .get("name")
        .and_then(Value::as_str)
        .ok_or_else(|| Error::bad_request(format!("A query parameter needs a 'name': {item}")))?;
    let value = item.get("value").cloned().ok_or_else(|| {
        Error::bad_request(format!("The query parameter '{name}' needs a 'value'"))
    })?;
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<Option<ResumeFilter>, &str>) {
        let body = Value::parse(text.as_bytes()).unwrap();
        match (resume_filter(&body), expected) {
            (Ok(filter), Ok(expected)) => assert_eq!(filter, expected, "{text}"),
            (Err(error), Err(expected)) => {
                assert!(error.message.contains(expected), "{text}: {error}");
            }
            (got, _) => panic!("{text}: {got:?}"),
        }
    }

    #[test]
    fn requests_without_a_name_get_one_each() {
        let ids: std::collections::BTreeSet<_> = (0..1_000).map(|_| new_activity_id()).collect();
        assert_eq!(ids.len(), 1_000);
        for id in ids {
            let parts: Vec<_> = id.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{id}");
            assert!(id.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()), "{id}");
            assert_eq!(&id[14..15], "4", "{id}");
        }
    }

    #[test]
    fn clients_say_how_long_they_wait() {
        for (text, seconds) in [
            ("wait=10", 10),
            ("return=minimal, Wait = \"7\"", 7),
            ("respond-async; wait=5", 5),
            ("wait=3600", 60),
            ("wait=-1", 0),
            ("wait", 0),
            ("awaited=10", 0),
        ] {
            let mut map = hyper::HeaderMap::new();
            map.insert("prefer", text.parse().unwrap());
            let wait = Headers::new(&map).wait().unwrap();
            assert_eq!(wait, Duration::from_secs(seconds), "{text}");
        }
        assert_eq!(Headers::new(&hyper::HeaderMap::new()).wait(), Ok(Duration::ZERO));
    }

    #[test]
    fn a_query_goes_on_where_the_client_says() {
        check(r#"{}"#, Ok(None));
        check(r#"{"resumeFilter":null}"#, Ok(None));
        let values = vec![Some(Value::from("a")), None, Some(Value::Null)];
        let filter = ResumeFilter { values, rid: Some("r".to_owned()), exclude: true };
        check(
            r#"{"resumeFilter":{"value":["a",[],null],"rid":"r","exclude":true}}"#,
            Ok(Some(filter)),
        );
        let first = ResumeFilter { values: vec![Some(Value::from(1))], rid: None, exclude: false };
        check(r#"{"resumeFilter":{"value":[1]}}"#, Ok(Some(first)));
        for (text, expected) in [
            (r#"{"resumeFilter":[]}"#, "needs an array"),
            (r#"{"resumeFilter":{"value":[[1]]}}"#, "array or an object"),
            (r#"{"resumeFilter":{"value":[{"type":"array","low":1,"high":2}]}}"#, "an object"),
            (r#"{"resumeFilter":{"value":[1],"rid":1}}"#, "a string"),
            (r#"{"resumeFilter":{"value":[1],"exclude":"x"}}"#, "a boolean"),
        ] {
            check(text, Err(expected));
        }
    }
}
