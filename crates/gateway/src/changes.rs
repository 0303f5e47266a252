//! The change feed: `GET …/docs` with `A-IM`.
//!
//! A client asks, gets changes with an etag, and asks again with that etag until it hears 304. Changes
//! come in one of two forms. Clients that name the wire format get `{"current", "previous",
//! "metadata"}` in both modes; the others get the document itself with `_lsn`, and with `_metadata`
//! where all versions are asked for.
//!
//! A client may ask the server to wait for the next change (`Prefer: wait=SECONDS`, RFC 7240), which
//! the service does not know: then an answer that would be 304 is held back, at no cost to anybody,
//! until something happens or the time is over.

use std::time::Duration;

use bytes::Bytes;
use db::{
    Change, ChangeKind, ChangePage, ChangeRequest, ChangeStart, ChangeVersion, Container,
    PreviousVersion,
};
use db::{Error, Result};
use storage::RangeStore;
use tokio::time::{Instant, timeout_at};
use value::{Object, Value, write_string};

use crate::documents::{Documents, feed_body, not_served};
use crate::response::{Answer, Refused};

/// What headers say about the change feed.
#[derive(Clone, Debug)]
pub(crate) struct ChangeOptions {
    pub request: ChangeRequest,
    pub form: Form,
    /// How long the client wants to wait for a change.
    pub wait: Duration,
}

/// How changes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The document, with what is known of the change inside.
    Plain,
    /// The document before and after and what is known of the change, side by side.
    Separate,
}

/// How often a client that waits looks whether its ranges are still there.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

impl<S: RangeStore> Documents<'_, S> {
    /// Answers with what has changed.
    pub(crate) async fn changes(&self, body: &[u8]) -> Result<Answer, Refused> {
        let Some(options) = &self.options.changes else {
            return Err(not_served("this way to ask for changes").into());
        };
        if !body.is_empty() {
            return Err(not_served("queries over the change feed").into());
        }
        let deadline = Instant::now() + options.wait;
        let (mut request, mut container) = (options.request.clone(), self.container.clone());
        let page = loop {
            let (db, scope) = (self.db.clone(), self.options.scope());
            let (asked, within) = (request.clone(), container.clone());
            let session = self.options.session.clone();
            let read = move || db.changes(&within, &scope, &asked, session.as_ref());
            let page = self.compute.run(read).await??;
            let is_over = !page.is_end || !page.changes.is_empty() || options.wait.is_zero();
            if is_over || !self.hears_of_a_change(&container, &page, deadline).await? {
                break page;
            }
            request.start = ChangeStart::After(page.continuation);
            container = self.container_now()?;
        };
        Ok(self.change_page(page, options.form))
    }

    /// Waits for a commit beyond a page; says whether to look again.
    async fn hears_of_a_change(
        &self,
        container: &Container,
        page: &ChangePage,
        deadline: Instant,
    ) -> Result<bool> {
        let mut stopping = self.stopping.subscribe();
        // Ranges that have been split or merged meanwhile have no commits any more.
        let until = deadline.min(Instant::now() + LOOK_AGAIN);
        tokio::select! {
            changed = timeout_at(until, self.db.changed_beyond(container, &page.at)) => {
                changed.map_or(Ok(until < deadline), |changed| changed.map(|()| true))
            }
            // A server that stops does not wait for what will not happen any more.
            _ = stopping.wait_for(|stopping| *stopping) => Ok(false),
        }
    }

    /// The container as it is defined now; it may have changed while the client waited.
    fn container_now(&self) -> Result<std::sync::Arc<Container>> {
        let now = self.db.container(&self.container.database_id, &self.container.id)?;
        if now.rid == self.container.rid { Ok(now) } else { Err(Error::owner_not_found()) }
    }

    fn change_page(&self, page: ChangePage, form: Form) -> Answer {
        let render = |change: &Change| match form {
            Form::Separate => separate(self.container, change),
            Form::Plain => plain(change),
        };
        let rows: Vec<Bytes> = page.changes.iter().map(render).map(Bytes::from).collect();
        let answer = if rows.is_empty() && page.is_end {
            Answer::empty(304)
        } else {
            Answer::json(200, feed_body(&self.container.rid.to_string(), "Documents", &rows))
        };
        Answer {
            etag: Some(page.continuation),
            item_count: Some(rows.len()),
            positions: page.at,
            charge: page.charge,
            ..answer
        }
    }
}

/// A document with the lsn of the commit that wrote it.
fn with_lsn(document: &[u8], lsn: u64) -> String {
    let text = String::from_utf8_lossy(document);
    // Every document has members: at least those of the server.
    let members = text.strip_suffix('}').unwrap_or(&text);
    format!("{members},\"_lsn\":{lsn}}}")
}

fn separate(container: &Container, change: &Change) -> String {
    let current = change.current.as_ref();
    let mut text = String::from("{\"current\":");
    text.push_str(&current.map_or("{}".to_owned(), |document| with_lsn(document, change.lsn)));
    let mut metadata = Object::new();
    if let Some(version) = &change.version {
        if let Some(PreviousVersion { lsn, image: Some(document) }) = &version.previous {
            text.push_str(",\"previous\":");
            text.push_str(&with_lsn(document, *lsn));
        }
        metadata.insert("operationType", operation(version.kind));
    }
    metadata.insert("lsn", change.lsn);
    metadata.insert("crts", change.ts);
    if let Some(version) = &change.version {
        add_previous_lsn(&mut metadata, version);
        if change.current.is_none() {
            metadata.insert("timeToLiveExpired", version.kind == ChangeKind::Expire);
            metadata.insert("id", version.id.as_str());
            metadata.insert("partitionKey", partition_key(container, version));
        }
    }
    text.push_str(",\"metadata\":");
    Value::Object(metadata).write(&mut text);
    text.push('}');
    text
}

fn plain(change: &Change) -> String {
    let document = change.current.as_ref().map(|document| with_lsn(document, change.lsn));
    let Some(version) = &change.version else { return document.unwrap_or_default() };
    let mut text = document.unwrap_or_else(|| {
        let mut text = String::from("{\"id\":");
        write_string(&version.id, &mut text);
        format!("{text},\"_lsn\":{}}}", change.lsn)
    });
    text.pop();
    let mut metadata = Object::from([("operationType", Value::from(operation(version.kind)))]);
    add_previous_lsn(&mut metadata, version);
    if version.kind == ChangeKind::Expire {
        metadata.insert("timeToLiveExpired", true);
    }
    text.push_str(",\"_metadata\":");
    Value::Object(metadata).write(&mut text);
    if let Some(PreviousVersion { lsn, image: Some(document) }) = &version.previous {
        text.pop();
        text.push_str(",\"previousImage\":");
        text.push_str(&with_lsn(document, *lsn));
        text.push('}');
    }
    text.push('}');
    text
}

fn operation(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Create => "create",
        ChangeKind::Replace => "replace",
        ChangeKind::Delete | ChangeKind::Expire => "delete",
    }
}

fn add_previous_lsn(metadata: &mut Object, version: &ChangeVersion) {
    if let Some(previous) = &version.previous {
        metadata.insert("previousImageLSN", previous.lsn);
    }
}

/// The values of the partition key by the names of their properties. What has no value is left out.
fn partition_key(container: &Container, version: &ChangeVersion) -> Object {
    let paths = container.policies.partition_key.paths.iter();
    let mut key = Object::new();
    for (path, component) in paths.zip(&version.key.0) {
        if let Some(value) = component.to_value() {
            key.insert(path.segments().join("/"), value);
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use db::ChangeVersion;
    use value::PartitionKey;

    use super::*;

    fn change(kind: ChangeKind) -> Change {
        let is_gone = matches!(kind, ChangeKind::Delete | ChangeKind::Expire);
        let image = Some(Bytes::from_static(br#"{"id":"1","n":1,"_ts":6}"#));
        let previous = (kind != ChangeKind::Create).then_some(PreviousVersion { lsn: 4, image });
        let current = (!is_gone).then(|| Bytes::from_static(br#"{"id":"1","n":2,"_ts":7}"#));
        let key = PartitionKey::parse_header(r#"["a"]"#).unwrap();
        let version = Some(ChangeVersion { kind, previous, id: "1".to_owned(), key });
        Change { lsn: 5, ts: 7, current, version }
    }

    #[test]
    fn changes_in_the_older_form_have_their_metadata_inside() {
        for (kind, expected) in [
            (
                ChangeKind::Create,
                r#"{"id":"1","n":2,"_ts":7,"_lsn":5,"_metadata":{"operationType":"create"}}"#,
            ),
            (
                ChangeKind::Expire,
                r#"{"id":"1","_lsn":5,"_metadata":{"operationType":"delete","previousImageLSN":4,"timeToLiveExpired":true,"previousImage":{"id":"1","n":1,"_ts":6,"_lsn":4}}}"#,
            ),
        ] {
            assert_eq!(plain(&change(kind)), expected);
        }
        let latest = Change { version: None, ..change(ChangeKind::Create) };
        assert_eq!(plain(&latest), r#"{"id":"1","n":2,"_ts":7,"_lsn":5}"#);
    }
}
