//! A host over a map, and short ways to run scripts against it.

#![allow(dead_code, reason = "every test file uses its own part")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use script::{
    Container, Host, HostError, Limits, Link, Outcome, Pace, Page, Procedure, Query, Read, Script,
    ScriptError, Surroundings, Trigger, TriggerKind, TriggerOutcome, run_procedure, run_trigger,
};
use value::{Object, Value};

pub(crate) const SELF_LINK: &str = "dbs/AQAAAA==/colls/AQAAAAEAAAA=/";
pub(crate) const ALT_LINK: &str = "dbs/shop/colls/orders";
pub(crate) const NOW_MS: u64 = 1_767_225_600_123;

/// The documents of one partition. Resource ids are `rid-<id>`, etags count the writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) documents: BTreeMap<String, Object>,
    pub(crate) writes: u64,
    pub(crate) calls: Vec<String>,
    /// The next call with this number stops the script.
    pub(crate) stops_at: Option<usize>,
}

impl Memory {
    pub(crate) fn with(documents: &[&str]) -> Memory {
        let mut memory = Memory::default();
        for document in documents {
            memory.create(document).expect("a document of a test");
        }
        memory.calls.clear();
        memory
    }

    pub(crate) fn ids(&self) -> String {
        self.documents.keys().cloned().collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn document(&self, id: &str) -> Option<String> {
        let mut document = self.documents.get(id)?.clone();
        document.remove("_self");
        document.remove("_etag");
        Some(Value::Object(document).to_text())
    }

    fn note(&mut self, call: String) -> Result<(), HostError> {
        if self.stops_at == Some(self.calls.len()) {
            return Err(HostError::Stop);
        }
        self.calls.push(call);
        Ok(())
    }

    fn id_of(link: Link<'_>) -> String {
        match link {
            Link::Id(id) => id.to_owned(),
            Link::Rid(rid) => rid.strip_prefix("rid-").unwrap_or("").to_owned(),
        }
    }

    fn found(&self, id: &str) -> Result<&Object, HostError> {
        self.documents.get(id).ok_or_else(|| HostError::refused(404, "Resource Not Found"))
    }

    fn check(&self, id: &str, if_match: Option<&str>) -> Result<(), HostError> {
        let etag = self.documents.get(id).and_then(|found| found.get("_etag")?.as_str());
        match if_match {
            Some(wanted) if etag.is_some_and(|etag| etag != wanted) => {
                Err(HostError::refused(412, "One of the specified pre-condition is not met"))
            }
            _ => Ok(()),
        }
    }

    fn store(&mut self, body: &str) -> Result<(String, String), HostError> {
        let body = Value::parse(body.as_bytes())
            .map_err(|error| HostError::refused(400, &error.to_string()))?;
        let Value::Object(mut document) = body else {
            return Err(HostError::refused(400, "a document must be an object"));
        };
        let Some(id) = document.get("id").and_then(Value::as_str).map(str::to_owned) else {
            return Err(HostError::refused(400, "the id is missing"));
        };
        if let Some(pk) = document.get("pk")
            && pk.as_str() != Some("a")
        {
            return Err(HostError::refused(400, "the partition key does not match"));
        }
        self.writes += 1;
        document.insert("_self", format!("{SELF_LINK}docs/rid-{id}/"));
        document.insert("_etag", format!("\"{}\"", self.writes));
        let text = Value::Object(document.clone()).to_text();
        self.documents.insert(id.clone(), document);
        Ok((id, text))
    }
}

impl Host for Memory {
    fn container(&self) -> Container {
        Container {
            self_link: SELF_LINK.to_owned(),
            alt_link: ALT_LINK.to_owned(),
            partition_key: vec![vec!["pk".to_owned()]],
            quota_used: "documentsCount=1;".to_owned(),
            quota_max: "documentsCount=9;".to_owned(),
        }
    }

    fn read(&mut self, link: Link<'_>, if_none_match: Option<&str>) -> Result<Read, HostError> {
        let id = Memory::id_of(link);
        self.note(format!("read {id}"))?;
        let found = self.found(&id)?;
        let etag = found.get("_etag").and_then(Value::as_str);
        if etag.is_some() && etag == if_none_match {
            return Ok(Read::NotModified);
        }
        Ok(Read::Document(Value::Object(found.clone()).to_text()))
    }

    /// Knows `SELECT *`, `SELECT VALUE c.id`, and a filter on `@id`.
    fn query(&mut self, query: Query<'_>) -> Result<Page, HostError> {
        self.note(format!("query {}", query.body.unwrap_or("all")))?;
        let body = Value::parse(query.body.unwrap_or(r#"{"query":"SELECT *"}"#).as_bytes());
        let body = body.map_err(|error| HostError::refused(400, &error.to_string()))?;
        let text = body.get("query").and_then(Value::as_str).unwrap_or("").to_owned();
        if text.contains("BAD") {
            return Err(HostError::refused(400, "Syntax error near BAD"));
        }
        let wanted = body
            .get("parameters")
            .and_then(Value::as_array)
            .and_then(|list| list.first().and_then(|parameter| parameter.get("value")).cloned());
        let rows: Vec<&Object> = self.documents.values().collect();
        let rows =
            rows.into_iter().filter(|row| wanted.is_none() || row.get("id") == wanted.as_ref());
        let rows: Vec<String> = rows
            .map(|row| {
                let id = row.get("id").cloned().unwrap_or(Value::Null);
                if text.contains("VALUE c.id") {
                    id.to_text()
                } else {
                    Value::Object(row.clone()).to_text()
                }
            })
            .collect();
        let from: usize = query.continuation.map_or(0, |token| token.parse().unwrap_or(usize::MAX));
        if from > rows.len() {
            return Err(HostError::refused(400, "Invalid Continuation Token"));
        }
        let size = query.rows_max.map_or(rows.len(), |size| size as usize);
        let end = rows.len().min(from + size);
        let continuation = (end < rows.len()).then(|| end.to_string());
        Ok(Page { rows: rows[from..end].to_vec(), continuation })
    }

    fn create(&mut self, body: &str) -> Result<String, HostError> {
        let id = Value::parse(body.as_bytes()).ok();
        let id = id.and_then(|body| Some(body.get("id")?.as_str()?.to_owned())).unwrap_or_default();
        self.note(format!("create {id}"))?;
        if self.documents.contains_key(&id) {
            return Err(HostError::refused(
                409,
                "Resource with specified id or name already exists.",
            ));
        }
        Ok(self.store(body)?.1)
    }

    fn upsert(&mut self, body: &str, if_match: Option<&str>) -> Result<(bool, String), HostError> {
        let id = Value::parse(body.as_bytes()).ok();
        let id = id.and_then(|body| Some(body.get("id")?.as_str()?.to_owned())).unwrap_or_default();
        self.note(format!("upsert {id}"))?;
        self.check(&id, if_match)?;
        let is_new = !self.documents.contains_key(&id);
        Ok((is_new, self.store(body)?.1))
    }

    fn replace(
        &mut self,
        link: Link<'_>,
        body: &str,
        if_match: Option<&str>,
    ) -> Result<String, HostError> {
        let id = Memory::id_of(link);
        self.note(format!("replace {id}"))?;
        self.found(&id)?;
        self.check(&id, if_match)?;
        let (stored, text) = self.store(body)?;
        if stored != id {
            self.documents.remove(&id);
        }
        Ok(text)
    }

    fn delete(&mut self, link: Link<'_>, if_match: Option<&str>) -> Result<(), HostError> {
        let id = Memory::id_of(link);
        self.note(format!("delete {id}"))?;
        self.found(&id)?;
        self.check(&id, if_match)?;
        self.documents.remove(&id);
        Ok(())
    }

    fn patch(
        &mut self,
        link: Link<'_>,
        patch: &str,
        if_match: Option<&str>,
    ) -> Result<String, HostError> {
        let id = Memory::id_of(link);
        self.note(format!("patch {id}"))?;
        self.check(&id, if_match)?;
        let patch = Value::parse(patch.as_bytes()).expect("the context writes JSON");
        let patch = value::Patch::parse(&patch);
        let patch = patch.map_err(|error| HostError::refused(400, &error.to_string()))?;
        let patched = patch.apply(self.found(&id)?, &[]);
        let patched = patched.map_err(|error| HostError::refused(400, &error.to_string()))?;
        Ok(self.store(&Value::Object(patched).to_text())?.1)
    }
}

/// Time that passes with every look at it: `closing` looks until no more calls are accepted, `over`
/// until the deadline.
pub(crate) fn passing(closing: u64, over: u64) -> Surroundings {
    let looks = Arc::new(AtomicU64::new(0));
    let pace = move || match looks.fetch_add(1, Ordering::Relaxed) {
        look if look >= over => Pace::Over,
        look if look >= closing => Pace::Closing,
        _ => Pace::OnTime,
    };
    Surroundings { pace: Arc::new(pace), ..Surroundings::standing(NOW_MS, 7) }
}

pub(crate) fn standing() -> Surroundings {
    Surroundings::standing(NOW_MS, 7)
}

/// Runs a procedure as a client would: what it did to the documents counts only if it succeeds.
pub(crate) fn call_with(
    memory: &mut Memory,
    source: &str,
    parameters: &str,
    surroundings: &Surroundings,
) -> Result<Outcome, ScriptError> {
    let mut copy = memory.clone();
    let script = Script { id: "test", source };
    let procedure = Procedure {
        parameters,
        headers: &[("x-ms-documentdb-script-enable-logging", "true")],
        is_logging: true,
    };
    let outcome = run_procedure(script, procedure, &mut copy, &Limits::STANDARD, surroundings);
    memory.calls = copy.calls.clone();
    if outcome.is_ok() {
        *memory = copy;
    }
    outcome
}

pub(crate) fn call(
    memory: &mut Memory,
    source: &str,
    parameters: &str,
) -> Result<Outcome, ScriptError> {
    call_with(memory, source, parameters, &standing())
}

/// The body that a procedure answers with, or status, sub-status and text of its error.
pub(crate) fn answer_with(memory: &mut Memory, source: &str, parameters: &str) -> String {
    show(call(memory, source, parameters))
}

pub(crate) fn answer(source: &str) -> String {
    answer_with(&mut Memory::default(), source, "")
}

pub(crate) fn show(outcome: Result<Outcome, ScriptError>) -> String {
    match outcome {
        Ok(outcome) => outcome.body.unwrap_or_default(),
        Err(error) => {
            let number = error.sub_status().map(|number| format!("/{number}"));
            format!("{}{} {}", error.status(), number.unwrap_or_default(), error.text())
        }
    }
}

pub(crate) fn trigger(
    memory: &mut Memory,
    kind: TriggerKind,
    source: &str,
    request: &str,
    response: Option<&str>,
) -> Result<TriggerOutcome, ScriptError> {
    let mut copy = memory.clone();
    let script = Script { id: "test", source };
    let trigger = Trigger { kind, operation: "Create", request, response, headers: &[] };
    let outcome = run_trigger(script, trigger, &mut copy, &Limits::STANDARD, &standing());
    if outcome.is_ok() {
        *memory = copy;
    }
    outcome
}
