//! The commands of golden scripts.
//!
//! | command | what it does |
//! | --- | --- |
//! | `container NAME pk=/a[,/b] [OPTION…]` | creates a container and makes it the current one |
//! | `use NAME` | makes another container the current one |
//! | `default-ttl SECONDS` or `default-ttl off` | changes the time to live of the container |
//! | `drop` | deletes the container |
//! | `create KEY {…}`, `upsert KEY {…}` | writes a document |
//! | `replace ID KEY {…}` | replaces a document |
//! | `patch ID KEY […] [if FROM c WHERE …]` | changes parts of a document |
//! | `read ID KEY`, `delete ID KEY` | reads or deletes a document |
//! | `batch KEY` | writes the lines below as one transaction; they are commands without keys |
//! | `bulk`, `bulk stop` | writes the lines below one by one; `stop` at the first failure |
//! | `feed KEY [page=N]` | reads all documents of a partition or container, page by page |
//! | `changes [versions] [from=FROM] [page=N] [KEY]` | reads the change feed page by page until there is nothing more, and prints a name for where that was: `mark#1`. `versions` asks for all versions and deletes. `FROM` is `now`, a time such as `+10s`, or a mark |
//! | `query KEY [page=N] SELECT …` | asks a partition or container, page by page; what stands below goes on with the text, or gives a parameter: `@name JSON` |
//! | `procedure NAME`, `function NAME` | stores the lines below as a script |
//! | `trigger NAME Pre CREATE` | the same for a trigger, with its type and operation |
//! | `call [logging] NAME KEY [JSON]` | executes a procedure with a list of parameters |
//! | `delete-partition KEY` | deletes all documents of a logical partition |
//! | `usage` | prints how many documents are stored, stale ones included |
//! | `advance 10s` | moves the clock |
//! | `sweep` | removes what has expired or was deleted with its partition |
//! | `reopen` | stops the database and starts it again on what is stored |
//!
//! `pk=` takes one path, the levels of a hierarchical key, or `none` for a container without partition
//! key as old clients make them; further options of a container are
//! `version=1`, `ttl=SECONDS`, `unique=/a,/b;/c` (two unique keys), `throughput=N`, `retention=MINUTES`
//! (for which all versions are kept), `images=MODE` (of which changes the document before is kept, too), `indexing=JSON` (an indexing policy) and `composite=/a,-/b;/c,/d` (two composite indexes; `-` goes down).
//!
//! A `KEY` is a JSON scalar or, for hierarchical keys, an array; `undefined` is the key of documents
//! without a value, `none` the empty key, and `-` or nothing at all means that the client sends no
//! key. An `ID` is a word, or a JSON string.
//!
//! Between a verb and its arguments stand conditions: `if-match=E` and `if-none-match=E`, where `E`
//! is the name of an etag that was printed (`etag#1`, or `bare-etag#1` for its text without quotes), or
//! any other word as it is. Triggers of a write stand there, too: `pre=NAME` and `post=NAME`.
//!
//! A leading `!` expects a refusal. Tags before the command change what is printed: `[etag]` the
//! etag, `[charge]` the request charge, `[system]` the system properties, `[quiet]` only the status,
//! `[session]` the session token of each page of a query.
//!
//! `«text*N»` stands for N times the text, in commands and in output. In the lines below a batch,
//! `repeat N LINE` stands for N lines, in which the numbers from 1 replace `§`.

use db::{Call, ChangeMode, ChangeRequest, ChangeStart, Conditions, QueryText};
use value::{Object, PartitionKey, ScriptKind, Value, write_string};

use crate::support::account::{Operation, START_S, Verb};
use crate::support::script::Step;

/// A line of a script, understood.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) tags: Tags,
    pub(crate) expects_refusal: bool,
    pub(crate) action: Action,
}

/// What is printed beyond the usual.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tags {
    pub(crate) etag: bool,
    pub(crate) charge: bool,
    pub(crate) system: bool,
    pub(crate) quiet: bool,
    pub(crate) session: bool,
}

/// What a command does.
#[derive(Debug)]
pub(crate) enum Action {
    CreateContainer { name: String, body: Object, throughput: Option<i64> },
    Use { name: String },
    DefaultTtl { seconds: Option<i64> },
    Drop,
    One(Operation),
    Batch { key: PartitionKey, operations: Vec<Operation> },
    Bulk { operations: Vec<Operation>, continue_on_error: bool },
    Feed { key: Option<PartitionKey>, items_max: Option<usize> },
    Changes { key: Option<PartitionKey>, request: ChangeRequest },
    Query { query: QueryText, key: Option<PartitionKey>, items_max: Option<usize> },
    DeletePartition { key: Option<PartitionKey> },
    CreateScript { kind: ScriptKind, body: Object },
    Call { call: Call, key: Option<PartitionKey> },
    Usage,
    Advance { seconds: u64 },
    Sweep,
    Reopen,
}

/// Looks up the text that stands behind a name such as `etag#1`.
pub(crate) type Resolve<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Command {
    pub(crate) fn parse(step: &Step, resolve: Resolve<'_>) -> Result<Self, String> {
        let line = expand(&step.command)?;
        let mut words = Words { rest: &line, resolve };
        let mut tags = Tags::default();
        while words.rest.starts_with('[') {
            match words.word() {
                "[etag]" => tags.etag = true,
                "[charge]" => tags.charge = true,
                "[system]" => tags.system = true,
                "[quiet]" => tags.quiet = true,
                "[session]" => tags.session = true,
                other => return Err(format!("unknown tag {other}")),
            }
        }
        let expects_refusal = words.rest.starts_with('!');
        words.rest = words.rest.strip_prefix('!').unwrap_or(words.rest);
        let verb = words.word();
        let takes_details =
            ["batch", "bulk", "query", "procedure", "trigger", "function"].contains(&verb);
        if !takes_details && !step.details.is_empty() {
            return Err(format!("'{verb}' has no lines below it"));
        }
        let action = action(verb, &mut words, &step.details)?;
        words.end()?;
        Ok(Self { tags, expects_refusal, action })
    }
}

fn action(verb: &str, words: &mut Words<'_>, details: &[String]) -> Result<Action, String> {
    Ok(match verb {
        "container" => container(words)?,
        "use" => Action::Use { name: words.word().to_owned() },
        "default-ttl" => {
            let seconds = Some(words.word()).filter(|word| *word != "off").map(number);
            Action::DefaultTtl { seconds: seconds.transpose()? }
        }
        "drop" => Action::Drop,
        "batch" => {
            let key = words.key()?.ok_or("a batch needs a key")?;
            let operations = operations(details, words.resolve, Keys::OfTheBatch)?;
            Action::Batch { key, operations }
        }
        "bulk" => {
            let continue_on_error = match words.word() {
                "" => true,
                "stop" => false,
                other => return Err(format!("unknown option '{other}'")),
            };
            let operations = operations(details, words.resolve, Keys::OfEach)?;
            Action::Bulk { operations, continue_on_error }
        }
        "feed" => {
            let key = if words.rest.starts_with("page=") { None } else { words.key()? };
            Action::Feed { key, items_max: words.page()? }
        }
        "changes" => changes(words)?,
        "query" => {
            let has_key = !["page=", "SELECT "].iter().any(|word| words.rest.starts_with(word));
            let key = if has_key { words.key()? } else { None };
            let items_max = words.page()?;
            Action::Query { query: query(words, details)?, key, items_max }
        }
        "delete-partition" => Action::DeletePartition { key: words.key()? },
        "procedure" | "trigger" | "function" => script(verb, words, details),
        "call" => {
            let is_logging = words.option("logging").is_some();
            let procedure = words.word().to_owned();
            let key = words.key()?;
            let parameters = std::mem::take(&mut words.rest).to_owned();
            let call = Call { procedure, parameters, headers: Vec::new(), is_logging };
            Action::Call { call, key }
        }
        "usage" => Action::Usage,
        "advance" => {
            let seconds = words.word().strip_suffix('s').ok_or("a time is written as in '10s'")?;
            Action::Advance { seconds: seconds.parse().map_err(|_| "not a time".to_owned())? }
        }
        "sweep" => Action::Sweep,
        "reopen" => Action::Reopen,
        _ => Action::One(operation(verb, words, Keys::OfEach)?),
    })
}

/// The definition of a script.
fn script(verb: &str, words: &mut Words<'_>, details: &[String]) -> Action {
    let mut body = Object::from([("id", Value::from(words.word()))]);
    body.insert("body", details.join("\n"));
    let kind = match verb {
        "procedure" => ScriptKind::Procedure,
        "function" => ScriptKind::Function,
        _ => {
            body.insert("triggerType", words.word());
            body.insert("triggerOperation", words.word());
            ScriptKind::Trigger
        }
    };
    Action::CreateScript { kind, body }
}

/// Where the change feed is read from, and how.
fn changes(words: &mut Words<'_>) -> Result<Action, String> {
    let mode = match words.option("versions") {
        Some(_) => ChangeMode::AllVersions,
        None => ChangeMode::LatestVersion,
    };
    let mut after_s = None;
    let start = match words.option("from=") {
        None => ChangeStart::Beginning,
        Some(now) if now == "now" => ChangeStart::Now,
        Some(time) if time.starts_with('+') => {
            let seconds = time.trim_start_matches('+').trim_end_matches('s');
            let seconds = seconds.parse::<u64>().map_err(|_| "not a time".to_owned())?;
            after_s = Some(START_S + seconds);
            ChangeStart::Beginning
        }
        Some(mark) => ChangeStart::After(words.resolved(mark)),
    };
    let items_max = words.page()?;
    let request = ChangeRequest { mode, start, after_s, items_max };
    Ok(Action::Changes { key: words.key()?, request })
}

/// The text of a query and its parameters.
fn query(words: &mut Words<'_>, details: &[String]) -> Result<QueryText, String> {
    let mut query = QueryText::default();
    query.text.push_str(std::mem::take(&mut words.rest));
    for line in details {
        let line = expand(line)?;
        if line.starts_with('@') {
            let (name, json) = line.split_once(' ').ok_or("a parameter has a value")?;
            let value =
                Value::parse(json.as_bytes()).map_err(|error| format!("{error}: {json}"))?;
            query.parameters.push((name.to_owned(), value));
        } else {
            query.text.push('\n');
            query.text.push_str(&line);
        }
    }
    Ok(query)
}

fn container(words: &mut Words<'_>) -> Result<Action, String> {
    let name = words.word().to_owned();
    let mut body = Object::from([("id", Value::from(name.as_str()))]);
    let mut throughput = None;
    let mut version = 2;
    let mut paths: Vec<&str> = Vec::new();
    while !words.rest.is_empty() {
        let word = words.word();
        let (option, text) = word.split_once('=').ok_or_else(|| format!("no option: '{word}'"))?;
        match option {
            "pk" => paths = text.split(',').collect(),
            "version" => version = number(text)?,
            "ttl" => drop(body.insert("defaultTtl", number(text)?)),
            "unique" => drop(body.insert("uniqueKeyPolicy", unique_keys(text))),
            "throughput" => throughput = Some(number(text)?),
            "retention" => {
                let policy = Object::from([("retentionDuration", Value::from(number(text)?))]);
                body.insert("changeFeedPolicy", policy);
            }
            "images" => {
                let mode = Object::from([("mode", Value::from(number(text)?))]);
                let feature = Object::from([("allVersionsAndDeletes", Value::from(mode))]);
                let policy = Object::from([("supportedFeatures", Value::from(feature))]);
                body.insert("previousImageRetentionPolicy", policy);
            }
            "indexing" => {
                let policy = Value::parse(text.as_bytes());
                let policy = policy.map_err(|error| format!("{error}: {text}"))?;
                body.insert("indexingPolicy", policy);
            }
            "composite" => {
                let policy = Object::from([("compositeIndexes", composite_indexes(text))]);
                body.insert("indexingPolicy", policy);
            }
            _ => return Err(format!("unknown option '{option}'")),
        }
    }
    body.insert("partitionKey", partition_key(&paths, version));
    Ok(Action::CreateContainer { name, body, throughput })
}

fn partition_key(paths: &[&str], version: i64) -> Object {
    let is_none = paths == ["none"];
    let paths = if is_none { &["/_partitionKey"] } else { paths };
    let mut key = Object::from([
        ("paths", Value::from(paths.iter().map(|path| Value::from(*path)).collect::<Vec<_>>())),
        ("kind", Value::from(if paths.len() > 1 { "MultiHash" } else { "Hash" })),
        ("version", Value::from(version)),
    ]);
    if is_none {
        key.insert("systemKey", true);
    }
    key
}

fn unique_keys(text: &str) -> Value {
    let one = |paths: &str| {
        let paths: Vec<Value> = paths.split(',').map(Value::from).collect();
        Value::from(Object::from([("paths", Value::from(paths))]))
    };
    let keys: Vec<Value> = text.split(';').map(one).collect();
    Value::from(Object::from([("uniqueKeys", Value::from(keys))]))
}

fn composite_indexes(text: &str) -> Value {
    let path = |text: &str| {
        let (path, order) = match text.strip_prefix('-') {
            Some(path) => (path, "descending"),
            None => (text, "ascending"),
        };
        Value::from(Object::from([("path", Value::from(path)), ("order", Value::from(order))]))
    };
    let one = |paths: &str| Value::from(paths.split(',').map(path).collect::<Vec<_>>());
    Value::from(text.split(';').map(one).collect::<Vec<_>>())
}

/// Whether operations say their keys themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    OfTheBatch,
    OfEach,
}

fn operations(
    details: &[String],
    resolve: Resolve<'_>,
    keys: Keys,
) -> Result<Vec<Operation>, String> {
    let mut operations = Vec::new();
    for line in repeated(details)? {
        let line = expand(&line)?;
        let mut words = Words { rest: &line, resolve };
        let verb = words.word();
        operations.push(operation(verb, &mut words, keys)?);
        words.end()?;
    }
    Ok(operations)
}

/// Writes `repeat N LINE` out, with the numbers from 1 for every `§`.
fn repeated(details: &[String]) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    for detail in details {
        match detail.strip_prefix("repeat ").and_then(|rest| rest.split_once(' ')) {
            Some((times, line)) => {
                lines.extend((1..=number(times)?).map(|at| line.replace('§', &at.to_string())));
            }
            None => lines.push(detail.clone()),
        }
    }
    Ok(lines)
}

fn operation(verb: &str, words: &mut Words<'_>, keys: Keys) -> Result<Operation, String> {
    let verb = match verb {
        "create" => Verb::Create,
        "upsert" => Verb::Upsert,
        "replace" => Verb::Replace,
        "patch" => Verb::Patch,
        "delete" => Verb::Delete,
        "read" => Verb::Read,
        _ => return Err(format!("unknown command '{verb}'")),
    };
    let conditions = Conditions {
        if_match: words.option("if-match=").map(|etag| words.resolved(etag)),
        if_none_match: words.option("if-none-match=").map(|etag| words.resolved(etag)),
    };
    let (pre, post) = (words.option("pre="), words.option("post="));
    let has_id = !matches!(verb, Verb::Create | Verb::Upsert);
    let id = if has_id { Some(words.id()?) } else { None };
    let key = if keys == Keys::OfEach { words.key()? } else { None };
    let body = match verb {
        Verb::Create | Verb::Upsert | Verb::Replace => Some(words.json()?.to_owned()),
        Verb::Patch => Some(words.patch()?),
        Verb::Delete | Verb::Read => None,
    };
    Ok(Operation { verb, key, id, body, conditions, pre, post })
}

/// The rest of a line, read from the left.
struct Words<'a> {
    rest: &'a str,
    resolve: Resolve<'a>,
}

impl<'a> Words<'a> {
    /// Up to the next space; empty at the end.
    fn word(&mut self) -> &'a str {
        let end = self.rest.find(' ').unwrap_or(self.rest.len());
        self.take(end)
    }

    fn take(&mut self, end: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        taken
    }

    fn option(&mut self, name: &str) -> Option<String> {
        self.rest.starts_with(name).then(|| self.word()[name.len()..].to_owned())
    }

    fn resolved(&self, name: String) -> String {
        let found = match name.strip_prefix("bare-") {
            Some(name) => (self.resolve)(name).map(|etag| etag.trim_matches('"').to_owned()),
            None => (self.resolve)(&name),
        };
        found.unwrap_or(name)
    }

    /// A JSON value as it is written, checked.
    fn json(&mut self) -> Result<&'a str, String> {
        let text = self.take(json_end(self.rest));
        Value::parse(text.as_bytes()).map_err(|error| format!("{error}: {text}"))?;
        Ok(text)
    }

    fn id(&mut self) -> Result<String, String> {
        if !self.rest.starts_with('"') {
            return Ok(self.word().to_owned());
        }
        let text = Value::parse(self.json()?.as_bytes()).ok();
        Ok(text.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    fn key(&mut self) -> Result<Option<PartitionKey>, String> {
        let header = match self.rest.chars().next() {
            // What follows is a document or nothing.
            None | Some('{') => return Ok(None),
            Some('[') => self.json()?.to_owned(),
            Some('"') => format!("[{}]", self.json()?),
            Some(_) => match self.word() {
                "-" => return Ok(None),
                "none" => "[]".to_owned(),
                "undefined" => "[{}]".to_owned(),
                scalar => format!("[{scalar}]"),
            },
        };
        PartitionKey::parse_header(&header).map(Some).map_err(|error| format!("{header}: {error}"))
    }

    fn page(&mut self) -> Result<Option<usize>, String> {
        let items_max = self.option("page=").map(|text| number(&text)).transpose()?;
        Ok(items_max.map(|count| usize::try_from(count).unwrap_or(0)))
    }

    /// The body of a patch: the operations, and a condition if there is one.
    fn patch(&mut self) -> Result<String, String> {
        let operations = self.json()?;
        let Some(condition) = self.rest.strip_prefix("if ") else {
            return Ok(operations.to_owned());
        };
        self.rest = "";
        let mut body = format!("{{\"operations\":{operations},\"condition\":");
        write_string(condition, &mut body);
        body.push('}');
        Ok(body)
    }

    fn end(&self) -> Result<(), String> {
        match self.rest {
            "" => Ok(()),
            rest => Err(format!("what is this: '{rest}'")),
        }
    }
}

/// Where the JSON value at the start of a text ends.
fn json_end(text: &str) -> usize {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => continue,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 => return at,
            _ => continue,
        }
        if depth == 0 && !in_string {
            return at + 1;
        }
    }
    text.len()
}

fn number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("not a number: '{text}'"))
}

/// Writes `«text*N»` out.
fn expand(line: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, from)) = rest.split_once('«') {
        let (inside, after) = from.split_once('»').ok_or("'«' without '»'")?;
        let (text, times) = inside.rsplit_once('*').ok_or("'«text*N»' says how often")?;
        let times = times.parse().map_err(|_| format!("not a number: '{times}'"))?;
        out.push_str(before);
        out.push_str(&text.repeat(times));
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Writes long runs of one character as `«text*N»`.
pub(crate) fn shorten(line: &str) -> String {
    const LONG: usize = 32;
    let mut out = String::new();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let mut times = 1;
        while characters.next_if_eq(&character).is_some() {
            times += 1;
        }
        if times >= LONG {
            out.push_str(&format!("«{character}*{times}»"));
        } else {
            out.extend(std::iter::repeat_n(character, times));
        }
    }
    out
}
