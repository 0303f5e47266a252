//! Requests about documents.
//!
//! The wire form of each is in the protocol's own words: `POST …/docs` creates, or with headers
//! upserts, queries, plans or runs a batch; `GET`, `PUT`, `PATCH` and `DELETE` on `…/docs/{id}` act on
//! one document. Reads and small writes run where they are; queries and feeds go to [`Compute`] where a
//! moment is not enough for them.

use std::sync::Arc;

use bytes::Bytes;
use db::{
    Address, Call, Charge, Container, Db, Error, FeedPage, Page, PlanRequest, Result, Triggers,
    Write,
};
use storage::RangeStore;
use tokio::sync::watch;
use value::Patch;

use crate::batch::{self, Batch};
use crate::compute::Compute;
use crate::query_headers::query_headers;
use crate::request::{self, Action, Options};
use crate::response::{Answer, Body, Refused};
use crate::router::ContainerPath;

/// Where requests about the documents of one container are answered.
pub(crate) struct Documents<'a, S: RangeStore> {
    pub db: &'a Arc<Db<S>>,
    pub compute: &'a Compute,
    pub container: &'a Arc<Container>,
    pub options: &'a Options,
    /// Whether clients merge the rows of several ranges themselves.
    pub client_merges: bool,
    /// Whether the server is about to stop.
    pub stopping: &'a watch::Sender<bool>,
}

impl<S: RangeStore> Documents<'_, S> {
    /// Answers a request about all documents.
    pub(crate) async fn all(&self, action: Action, body: &[u8]) -> Result<Answer, Refused> {
        match action {
            Action::List => self.list().await,
            Action::Query => self.query(body).await,
            Action::Plan => self.plan(body).await,
            Action::Batch => self.batch(body).await,
            Action::Create => self.write(Write::Create { body: request::json(body)? }).await,
            Action::Upsert => self.write(Write::Upsert { body: request::json(body)? }).await,
            _ => self.changes(body).await,
        }
    }

    /// The change that a request about one document asks for, if it asks for one.
    pub(crate) fn change(action: Action, address: &Address, body: &[u8]) -> Result<Option<Write>> {
        let address = || address.clone();
        Ok(match action {
            Action::Replace => {
                Some(Write::Replace { address: address(), body: request::json(body)? })
            }
            Action::Patch => {
                let patch = Patch::parse(&request::json(body)?).map_err(Error::from)?;
                Some(Write::Patch { address: address(), patch })
            }
            Action::Delete => Some(Write::Delete { address: address() }),
            _ => None,
        })
    }

    pub(crate) fn read(&self, address: &Address) -> Result<Answer, Refused> {
        let options = self.options;
        let outcome = self.db.read(
            self.container,
            options.key.as_ref(),
            address,
            &options.conditions,
            options.session.as_ref(),
        )?;
        Ok(Answer::document(outcome, false))
    }

    pub(crate) async fn write(&self, write: Write) -> Result<Answer, Refused> {
        if self.options.has_triggers() {
            return self.write_with_triggers(write).await;
        }
        let (key, conditions) = (self.options.key.as_ref(), self.options.conditions.clone());
        let outcome = self.db.write(self.container, key, write, conditions).await?;
        Ok(Answer::document(outcome, self.options.minimal))
    }

    async fn write_with_triggers(&self, write: Write) -> Result<Answer, Refused> {
        let options = self.options;
        let triggers = Triggers {
            pre: options.pre_trigger.clone(),
            post: options.post_trigger.clone(),
            headers: options.script_headers.clone(),
        };
        let (key, conditions) = (options.key.as_ref(), options.conditions.clone());
        let written =
            self.db.write_with_triggers(self.container, key, write, conditions, triggers).await?;
        let answer = Answer::document(written.outcome, options.minimal);
        Ok(match written.body {
            Some(body) if !options.minimal => Answer { body: Body::Json(body.into()), ..answer },
            _ => answer,
        })
    }

    /// Executes a stored procedure.
    pub(crate) async fn execute(&self, procedure: &str, body: &[u8]) -> Result<Answer, Refused> {
        let options = self.options;
        let call = Call {
            procedure: procedure.to_owned(),
            parameters: request::parameters(body)?,
            headers: options.script_headers.clone(),
            is_logging: options.script_logging,
        };
        let (key, session) = (options.key.as_ref(), options.session.as_ref());
        let called = self.db.execute(self.container, key, call, session).await?;
        let answer = match called.body {
            Some(body) => Answer::json(200, body),
            None => Answer::empty(200),
        };
        Ok(Answer {
            script_log: called.log,
            positions: vec![called.at],
            ..answer.charged(called.charge)
        })
    }

    async fn batch(&self, body: &[u8]) -> Result<Answer, Refused> {
        let options = self.options;
        let (form, minimal, operations) = Batch::parse(body, options.minimal)?.into_parts();
        let outcome = if options.atomic {
            let key = options.key.as_ref().ok_or_else(|| {
                Error::bad_request("A transactional batch needs x-ms-documentdb-partitionkey")
            })?;
            self.db.batch(self.container, key, operations, options.session.as_ref()).await?
        } else {
            let range = options.range.as_deref();
            self.db.bulk(self.container, range, operations, options.continue_on_error).await?
        };
        let (status, body) = batch::render(form, &minimal, &outcome);
        Ok(Answer {
            status,
            body,
            charge: outcome.charge,
            positions: outcome.at,
            ..Answer::default()
        })
    }

    async fn list(&self) -> Result<Answer, Refused> {
        let (db, container) = (self.db.clone(), self.container.clone());
        let (scope, page) = (self.options.scope(), self.options.page.clone());
        let session = self.options.session.clone();
        let read = move |effort| {
            let page = Page { effort, ..page.clone() };
            db.read_feed(&container, &scope, &page, session.as_ref())
        };
        let feed = self.compute.run_soon(read).await??;
        Ok(self.feed(feed))
    }

    async fn query(&self, body: &[u8]) -> Result<Answer, Refused> {
        let query = request::query(body)?;
        let (db, container) = (self.db.clone(), self.container.clone());
        let (scope, mut page) = (self.options.scope(), self.options.page.clone());
        let session = self.options.session.clone();
        if self.options.explain {
            let run = move || db.explain(&container, &query, &scope, session.as_ref());
            let explanation = self.compute.run(run).await??;
            return Ok(Answer::json(200, explanation.to_text()).charged(Charge::MINIMUM));
        }
        page.tell_indexes = self.options.index_metrics.is_some();
        page.client_merges = self.client_merges;
        let started = tokio::time::Instant::now();
        let run = move |effort| {
            let page = Page { effort, ..page.clone() };
            db.query(&container, &query, &scope, &page, session.as_ref())
        };
        let feed = self.compute.run_soon(run).await??;
        let took_ms = started.elapsed().as_secs_f64() * 1_000.0;
        let query = query_headers(self.options, &feed, took_ms);
        Ok(Answer { query, ..self.feed(feed) })
    }

    async fn plan(&self, body: &[u8]) -> Result<Answer, Refused> {
        let query = request::query(body)?;
        let (db, container) = (self.db.clone(), self.container.clone());
        let (features, key) = (self.options.features, self.options.key.clone());
        let request = PlanRequest { features, key, client_merges: self.client_merges };
        let plan = move || db.query_plan(&container, &query, &request);
        let plan = self.compute.run(plan).await??;
        Ok(Answer::json(200, plan.to_text()).charged(Charge::MINIMUM))
    }

    /// Deletes all documents of a logical partition.
    pub(crate) async fn delete_partition(&self) -> Result<Answer, Refused> {
        let key = self.options.key.as_ref().ok_or_else(|| {
            Error::bad_request("PartitionKey value must be supplied for this operation.")
        })?;
        let outcome = self.db.delete_partition(self.container, key).await?;
        Ok(Answer::document(outcome, false))
    }

    fn feed(&self, feed: FeedPage) -> Answer {
        let rid = self.container.rid.to_string();
        let body = feed_body(&rid, "Documents", &feed.rows);
        Answer {
            continuation: feed.continuation,
            item_count: Some(feed.rows.len()),
            positions: feed.at,
            charge: feed.charge,
            ..Answer::json(200, body)
        }
    }
}

/// The envelope of a feed: the owner's resource id, the things, and how many.
pub(crate) fn feed_body(owner_rid: &str, plural: &str, rows: &[Bytes]) -> Vec<u8> {
    let size: usize = rows.iter().map(|row| row.len() + 1).sum();
    let mut out = Vec::with_capacity(size + 64);
    out.extend(format!("{{\"_rid\":\"{owner_rid}\",\"{plural}\":[").as_bytes());
    for (at, row) in rows.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend(&row[..]);
    }
    out.extend(format!("],\"_count\":{}}}", rows.len()).as_bytes());
    out
}

/// How the last segment of a path addresses a document: by resource id if everything before it does,
/// else by id.
pub(crate) fn address(container: &Container, path: &ContainerPath, document: &str) -> Address {
    let by_rid = path.database == container.database_rid.to_string()
        && path.container == container.rid.to_string();
    if by_rid && db::is_document_rid(document) {
        Address::Rid(document.to_owned())
    } else {
        Address::Id(document.to_owned())
    }
}

/// A part of the protocol that this version does not have.
pub(crate) fn not_served(what: &str) -> Error {
    Error::bad_request(format!("not served by this version of Orrery: {what}"))
}
