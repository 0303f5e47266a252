//! Runs the commands of a script and prints what came of them.
//!
//! What is not the same in every run or for every engine (resource ids, etags, session tokens, times)
//! is left out, or gets a name in the order in which it is first printed: `etag#1`, `rid#1`, `+10s`.

use std::fmt::Write as _;

use db::Page;
use value::{Object, Value};

use crate::support::account::{Account, Answer, DATABASE, Refusal, Request, START_S};
use crate::support::command::{Action, Command, Tags, shorten};
use crate::support::script::{Script, Step};

/// A script under way.
struct Run {
    /// Missing only while it is reopened.
    account: Option<Account>,
    container: String,
    etags: Names,
    rids: Names,
    sessions: Names,
    marks: Names,
}

/// Runs a script; gives what each block printed.
pub(crate) async fn run(account: Account, script: &Script) -> Result<Vec<Vec<String>>, String> {
    let mut run = Run {
        account: Some(account),
        container: String::new(),
        etags: Names::new("etag"),
        rids: Names::new("rid"),
        sessions: Names::new("session"),
        marks: Names::new("mark"),
    };
    let mut output = Vec::new();
    for block in &script.blocks {
        let mut printed = Vec::new();
        for step in &block.steps {
            let lines = run.step(step).await;
            let lines = lines.map_err(|error| format!("line {}: {error}", step.line))?;
            printed.extend(lines.iter().map(|line| shorten(line)));
        }
        output.push(printed);
    }
    let verified = run.account().db.verify(|_| {}).map_err(|error| error.to_string())?;
    match verified.problems.is_empty() {
        true => Ok(output),
        false => Err(format!("what is stored does not fit together: {:#?}", verified.problems)),
    }
}

impl Run {
    fn account(&self) -> &Account {
        self.account.as_ref().expect("the account is there between two steps")
    }

    async fn step(&mut self, step: &Step) -> Result<Vec<String>, String> {
        let Command { tags, expects_refusal, action } =
            Command::parse(step, &|name| self.etags.text_of(name).or(self.marks.text_of(name)))?;
        let request = match action {
            Action::CreateContainer { name, body, throughput } => {
                if !expects_refusal {
                    self.container = name;
                }
                Request::CreateContainer { body, throughput }
            }
            Action::DefaultTtl { seconds } => self.with_default_ttl(seconds)?,
            Action::Drop => Request::DeleteContainer { container: self.container() },
            Action::One(operation) => Request::One { container: self.container(), operation },
            Action::Batch { key, operations } => {
                Request::Batch { container: self.container(), key, operations }
            }
            Action::Bulk { operations, continue_on_error } => {
                Request::Bulk { container: self.container(), operations, continue_on_error }
            }
            Action::Feed { key, items_max } => {
                let page = Page { items_max, continuation: None, ..Page::default() };
                Request::Feed { container: self.container(), key, page }
            }
            Action::Changes { key, request } => {
                Request::Changes { container: self.container(), key, request }
            }
            Action::Query { query, key, items_max } => {
                let page = Page { items_max, continuation: None, ..Page::default() };
                Request::Query { container: self.container(), query, key, page }
            }
            Action::DeletePartition { key } => {
                Request::DeletePartition { container: self.container(), key }
            }
            Action::CreateScript { kind, body } => {
                Request::CreateScript { container: self.container(), kind, body }
            }
            Action::Call { call, key } => Request::Call { container: self.container(), call, key },
            Action::Use { name } => {
                self.container = name;
                return Ok(Vec::new());
            }
            Action::Usage => return self.usage(),
            Action::Advance { seconds } => {
                self.account().clock.advance_ms(seconds * 1_000);
                return Ok(Vec::new());
            }
            Action::Sweep => return self.sweep().await,
            Action::Reopen => {
                let account = self.account.take().expect("the account is there between two steps");
                self.account = Some(account.reopened().await);
                return Ok(Vec::new());
            }
        };
        match (self.answer(request, tags).await, expects_refusal) {
            (Ok(lines), false) => Ok(lines),
            (Ok(lines), true) => Err(format!("was not refused: {}", lines.join("\n"))),
            (Err(refusal), true) => Ok(vec![refused_line(&refusal, tags)]),
            (Err(refusal), false) => Err(format!("was refused: {}", refused_line(&refusal, tags))),
        }
    }

    fn container(&self) -> String {
        self.container.clone()
    }

    fn with_default_ttl(&self, seconds: Option<i64>) -> Result<Request, String> {
        let current = self.account().db.container(DATABASE, &self.container);
        let current = current.map_err(|error| error.to_string())?;
        let mut body = Object::clone(&current.resource.body);
        match seconds {
            Some(seconds) => body.insert("defaultTtl", seconds),
            None => body.remove("defaultTtl"),
        };
        Ok(Request::ReplaceContainer { container: self.container(), body })
    }

    fn usage(&self) -> Result<Vec<String>, String> {
        let db = &self.account().db;
        let container = db.container(DATABASE, &self.container);
        let usage = container.and_then(|container| db.container_usage(&container));
        usage
            .map(|usage| vec![format!("{} stored", usage.documents)])
            .map_err(|error| error.to_string())
    }

    async fn sweep(&self) -> Result<Vec<String>, String> {
        let swept = self.account().db.sweep().await.map_err(|error| error.to_string())?;
        Ok(vec![format!(
            "{} expired, {} deleted with their partition",
            swept.expired, swept.purged
        )])
    }

    async fn answer(&mut self, request: Request, tags: Tags) -> Result<Vec<String>, Refusal> {
        match request {
            Request::Feed { .. } => return self.feed(request, tags).await,
            Request::Changes { .. } => return self.changes(request, tags).await,
            Request::Query { .. } => return self.query(request, tags).await,
            _ => {}
        }
        let answer = self.account().send(&request).await?;
        let Answer { status, etag, body, charge_ru, results, log, .. } = answer;
        let head = Printed { status, substatus: 0, etag, body, message: None, charge_ru };
        let head = self.line(head, tags);
        let mut lines = Vec::new();
        for result in results {
            let printed = Printed {
                status: result.status,
                substatus: result.substatus,
                etag: result.etag,
                body: result.body,
                // Whoever was not to blame has nothing to say.
                message: result.message.filter(|_| result.status != 424),
                charge_ru: result.charge_ru,
            };
            lines.push(self.line(printed, tags));
        }
        let mut printed = vec![head];
        printed.extend(log.map(|log| format!("  log: {log}")));
        for alike in lines.chunk_by(|one, next| one == next) {
            match alike.len() {
                0..MANY => printed.extend(alike.iter().map(|line| format!("  {line}"))),
                times => printed.push(format!("  {times} × {}", alike[0])),
            }
        }
        Ok(printed)
    }

    /// Reads a feed to its end.
    async fn feed(&mut self, mut request: Request, tags: Tags) -> Result<Vec<String>, Refusal> {
        let mut lines = Vec::new();
        loop {
            let answer = self.account().send(&request).await?;
            if tags.charge {
                lines.push(format!("{} RU", answer.charge_ru));
            }
            for row in answer.rows {
                lines.push(self.document(&row, tags));
            }
            if answer.continuation.is_none() {
                return Ok(lines);
            }
            lines.push("next page".to_owned());
            request.go_on(answer.continuation);
        }
    }

    /// Reads the change feed until there is nothing more.
    async fn changes(&mut self, mut request: Request, tags: Tags) -> Result<Vec<String>, Refusal> {
        let mut lines = Vec::new();
        loop {
            let answer = self.account().send(&request).await?;
            let mark = answer.continuation.unwrap_or_default();
            if tags.charge {
                lines.push(format!("{} RU", answer.charge_ru));
            }
            if answer.status == 304 {
                // Every reading gets a name of its own, also where two end at the same place.
                self.marks.texts.push(mark);
                lines.push(format!("nothing more: mark#{}", self.marks.texts.len()));
                return Ok(lines);
            }
            if !lines.is_empty() {
                lines.push("next page".to_owned());
            }
            for row in answer.rows {
                lines.push(self.document(&row, tags));
            }
            request.go_on(Some(mark));
        }
    }

    /// Reads the answer of a query to its end: how many rows each page has, and the rows.
    ///
    /// Rows of a query that says nothing about their order are printed in the order of their texts.
    async fn query(&mut self, mut request: Request, tags: Tags) -> Result<Vec<String>, Refusal> {
        let is_ordered = request.is_ordered();
        let (mut sizes, mut sessions, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let answer = self.account().send(&request).await?;
            sizes.push(answer.rows.len().to_string());
            sessions.push(self.sessions.name_of(&answer.session.unwrap_or_default()));
            for row in answer.rows {
                rows.push(format!("  {}", self.document(&row, tags)));
            }
            if answer.continuation.is_none() {
                break;
            }
            request.go_on(answer.continuation);
        }
        if !is_ordered {
            rows.sort();
        }
        let noun = if rows.len() == 1 { "row" } else { "rows" };
        let mut head = format!("{} {noun}", sizes.join(" + "));
        if tags.session {
            let _ = write!(head, ", {}", sessions.join(" + "));
        }
        rows.insert(0, head);
        Ok(rows)
    }

    fn line(&mut self, printed: Printed, tags: Tags) -> String {
        let mut line = printed.status.to_string();
        if printed.status >= 400 {
            let _ = write!(line, "/{}", printed.substatus);
        }
        if tags.charge {
            let _ = write!(line, " {} RU", printed.charge_ru);
        }
        if tags.etag
            && let Some(etag) = &printed.etag
        {
            let _ = write!(line, " {}", self.etags.name_of(etag));
        }
        if let Some(body) = printed.body.filter(|_| !tags.quiet) {
            let _ = write!(line, " {}", self.document(&body, tags));
        }
        if let Some(message) = printed.message {
            let _ = write!(line, ": {message}");
        }
        line
    }

    /// A document as it came, without what the server added.
    fn document(&mut self, text: &str, tags: Tags) -> String {
        let document = Value::parse(text.as_bytes()).expect("documents are JSON");
        let Value::Object(mut document) = document else { return text.to_owned() };
        if tags.system {
            self.name_system_properties(&mut document);
        } else {
            document.retain(|name, _| !value::SYSTEM_PROPERTIES.contains(&name));
        }
        Value::from(document).to_text()
    }

    fn name_system_properties(&mut self, document: &mut Object) {
        let text = |document: &Object, name: &str| {
            document.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let (rid, etag) = (text(document, "_rid"), text(document, "_etag"));
        let rid_name = self.rids.name_of(&rid);
        let self_link = text(document, "_self").replace(&rid, &rid_name);
        let place = self_link.split_once("/docs/").map(|(_, place)| format!("…/docs/{place}"));
        document.insert("_self", place.unwrap_or(self_link));
        document.insert("_rid", rid_name);
        document.insert("_etag", self.etags.name_of(&etag));
        let ts = document.get("_ts").and_then(Value::as_i64).unwrap_or_default();
        document.insert("_ts", format!("+{}s", ts - i64::try_from(START_S).unwrap_or_default()));
    }
}

/// So many equal results of a batch are printed as one line.
const MANY: usize = 5;

/// What one line of output is made of.
struct Printed {
    status: u16,
    substatus: u32,
    etag: Option<String>,
    body: Option<String>,
    message: Option<String>,
    charge_ru: f64,
}

fn refused_line(refusal: &Refusal, tags: Tags) -> String {
    let Refusal { status, substatus, code, message, charge_ru } = refusal;
    let charge = if tags.charge { format!(" {charge_ru} RU") } else { String::new() };
    // Where in its source a script failed is of no interest here.
    let message = message.split("\r\nStack trace").next().unwrap_or_default();
    format!("{status}/{substatus}{charge} {code}: {message}")
}

/// Names for texts that are not the same in every run, in the order of their appearance.
struct Names {
    kind: &'static str,
    texts: Vec<String>,
}

impl Names {
    fn new(kind: &'static str) -> Self {
        Self { kind, texts: Vec::new() }
    }

    fn name_of(&mut self, text: &str) -> String {
        let at = self.texts.iter().position(|known| known == text).unwrap_or_else(|| {
            self.texts.push(text.to_owned());
            self.texts.len() - 1
        });
        format!("{}#{}", self.kind, at + 1)
    }

    fn text_of(&self, name: &str) -> Option<String> {
        let number: usize = name.strip_prefix(self.kind)?.strip_prefix('#')?.parse().ok()?;
        self.texts.get(number.checked_sub(1)?).cloned()
    }
}
