//! Requests about everything but documents: databases, containers, users, permissions, keys, offers.
//!
//! All of these are small and in memory, so lists are given whole or by page from a copy, and queries
//! run over that copy.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use db::{Charge, Container, Db, Error, Kind, Page, Resource, Result};
use storage::RangeStore;
use value::{Epk, Etag, Object, ScriptKind, Value};

use crate::documents::{feed_body, not_served};
use crate::request::{self, Action, Options};
use crate::response::{Answer, OfferState, Quota, object_text};
use crate::router::{ContainerPath, DatabaseTarget};

/// How long a client waits for ranges to be split.
const FIT_AT_MOST: Duration = Duration::from_secs(1);

/// Where requests about metadata are answered.
pub(crate) struct Metadata<'a, S: RangeStore> {
    pub db: &'a Arc<Db<S>>,
    pub options: &'a Options,
    pub action: Action,
    pub body: &'a [u8],
}

/// The things of a list, and how it is called.
struct List {
    owner_rid: String,
    plural: &'static str,
    resources: Vec<Resource>,
}

impl<S: RangeStore> Metadata<'_, S> {
    /// Answers a request about all databases.
    pub(crate) async fn databases(&self) -> Result<Answer> {
        if self.action != Action::Create {
            let resources = self.db.databases();
            return self.list(List { owner_rid: String::new(), plural: "Databases", resources });
        }
        let body = request::object(self.body)?;
        let resource = self.db.create_database(&body, self.options.throughput).await?;
        Ok(written(201, &resource))
    }

    /// Answers a request about one database.
    pub(crate) async fn database(&self, name: &str) -> Result<Answer> {
        match self.action {
            Action::Read => Ok(self.read(&self.db.database(name)?.resource)),
            Action::Delete => {
                self.db.delete_database(name, self.if_match()).await?;
                Ok(deleted())
            }
            _ => Err(Error::new(Kind::MethodNotAllowed, "a database cannot be replaced")),
        }
    }

    /// Answers a request about something in a database.
    pub(crate) async fn in_database(
        &self,
        database: &str,
        target: &DatabaseTarget,
    ) -> Result<Answer> {
        match target {
            DatabaseTarget::Containers => self.containers(database).await,
            DatabaseTarget::Users => self.users(database).await,
            DatabaseTarget::User(user) => self.user(database, user).await,
            DatabaseTarget::Permissions(user) => self.permissions(database, user).await,
            DatabaseTarget::Permission(user, name) => self.permission(database, user, name).await,
            DatabaseTarget::EncryptionKeys => self.encryption_keys(database).await,
            DatabaseTarget::EncryptionKey(key) => self.encryption_key(database, key).await,
        }
    }

    async fn containers(&self, database: &str) -> Result<Answer> {
        if self.action != Action::Create {
            let resources = self.db.containers(database)?;
            let owner_rid = self.owner_rid(database)?;
            return self.list(List { owner_rid, plural: "DocumentCollections", resources });
        }
        let body = request::object(self.body)?;
        let options = self.options;
        let resource = self
            .db
            .create_container(database, &body, options.throughput, options.key_is_optional)
            .await?;
        let answer = written(201, &resource);
        // It may already be gone again; then there is nothing to file.
        Ok(match self.db.container(database, &resource.rid) {
            Ok(container) => answer.about(&container),
            Err(_) => answer,
        })
    }

    /// Answers a request about one container.
    pub(crate) async fn container(
        &self,
        path: &ContainerPath,
        container: &Container,
    ) -> Result<Answer> {
        let (database, name) = (path.database.as_str(), path.container.as_str());
        match self.action {
            Action::Read => self.read_container(container),
            Action::Replace => {
                let body = request::object(self.body)?;
                let replaced =
                    self.db.replace_container(database, name, &body, self.if_match()).await?;
                // Somebody else may have deleted it meanwhile.
                let container = self.db.container(database, name);
                let index_progress = container.and_then(|c| self.db.index_progress(&c)).ok();
                Ok(Answer { index_progress, ..written(200, &replaced) })
            }
            _ => {
                self.db.delete_container(database, name, self.if_match()).await?;
                Ok(deleted())
            }
        }
    }

    fn read_container(&self, container: &Container) -> Result<Answer> {
        let options = self.options;
        let mut resource = container.resource.clone();
        if options.populate_statistics {
            let mut body = Object::clone(&resource.body);
            body.insert("statistics", self.db.container_statistics(container)?);
            resource.body = Arc::new(body);
        }
        let mut answer = self.read(&resource);
        answer.index_progress = Some(self.db.index_progress(container)?);
        if options.populate_quota || options.populate_statistics {
            let usage = self.db.container_usage(container)?;
            answer.quota = Some(Quota { documents: usage.documents, bytes: usage.bytes });
        }
        Ok(answer)
    }

    /// Answers a request about the partition key ranges of a container.
    pub(crate) fn ranges(&self, container: &Container) -> Result<Answer> {
        let feed = self.db.partition_key_ranges(container)?;
        let known = self.options.conditions.if_none_match.as_deref();
        // Clients ask until nothing has changed since: without this answer they ask forever.
        let unchanged = known.is_some_and(|known| Etag::from_text(&feed.etag).matches(known));
        let answer = if unchanged {
            Answer { item_count: Some(0), ..Answer::empty(304) }
        } else {
            let rows: Vec<Bytes> =
                feed.ranges.iter().map(|range| object_text(range).into()).collect();
            let body = feed_body(&container.rid.to_string(), "PartitionKeyRanges", &rows);
            Answer { item_count: Some(rows.len()), ..Answer::json(200, body) }
        };
        Ok(Answer { etag: Some(feed.etag), ..answer }.charged(Charge::MINIMUM))
    }

    /// Splits a range, or merges two.
    pub(crate) async fn recut(&self, container: &Container) -> Result<Answer> {
        let body = request::object(self.body)?;
        let at = match body.get("at") {
            None | Some(Value::Null) => None,
            Some(Value::String(at)) => {
                Some(Epk::parse(at).map_err(|error| Error::bad_request(error.to_string()))?)
            }
            Some(_) => return Err(Error::bad_request("'at' must be an effective partition key")),
        };
        let merged = body.get("merge").and_then(Value::as_array);
        let recut = match (body.get("split").and_then(Value::as_str), merged, at) {
            (Some(range), None, at) => self.db.split_range(container, range, at).await?,
            (None, Some([Value::String(one), Value::String(other)]), None) => {
                self.db.merge_ranges(container, one, other).await?
            }
            _ => {
                return Err(Error::bad_request(
                    "say which range to split, as in {\"split\":\"0\"}, with \"at\" for where, or \
                     which two to merge, as in {\"merge\":[\"1\",\"2\"]}",
                ));
            }
        };
        let ids = |ids: Vec<String>| Value::Array(ids.into_iter().map(Value::from).collect());
        let body = Object::from([("old", ids(recut.old)), ("new", ids(recut.new))]);
        Ok(Answer::object(200, &body).charged(Charge::METADATA_WRITE))
    }

    /// Answers a request about all conflicts, of which a single server has none.
    pub(crate) fn conflicts(&self, container: &Container) -> Result<Answer> {
        let Options { key, range, cross_partition, .. } = self.options;
        if self.action == Action::Query && key.is_none() && range.is_none() && !cross_partition {
            return Err(Error::bad_request(
                "Cross partition query is required but disabled. Please set \
                 x-ms-documentdb-query-enablecrosspartition to true, specify \
                 x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
            ));
        }
        let resources = self.db.conflicts(container);
        let owner_rid = container.rid.to_string();
        self.list(List { owner_rid, plural: "Conflicts", resources })
    }

    /// Answers a request about all scripts of a kind.
    pub(crate) async fn scripts(&self, container: &Container, kind: ScriptKind) -> Result<Answer> {
        match self.action {
            Action::Create => {
                let body = request::object(self.body)?;
                Ok(written(201, &self.db.create_script(container, kind, &body).await?))
            }
            Action::Upsert => {
                let body = request::object(self.body)?;
                let upsert = self.db.upsert_script(container, kind, &body, self.if_match());
                Ok(upserted(upsert.await?))
            }
            _ => {
                let resources = self.db.scripts(container, kind);
                let plural = match kind {
                    ScriptKind::Procedure => "StoredProcedures",
                    ScriptKind::Trigger => "Triggers",
                    ScriptKind::Function => "UserDefinedFunctions",
                };
                self.list(List { owner_rid: container.rid.to_string(), plural, resources })
            }
        }
    }

    /// Answers a request about one script, but for running it.
    pub(crate) async fn script(
        &self,
        container: &Container,
        kind: ScriptKind,
        name: &str,
    ) -> Result<Answer> {
        match self.action {
            Action::Read => Ok(self.read(&self.db.script(container, kind, name)?)),
            Action::Replace => {
                let body = request::object(self.body)?;
                let if_match = self.if_match();
                let replace = self.db.replace_script(container, kind, name, &body, if_match);
                Ok(written(200, &replace.await?))
            }
            _ => {
                self.db.delete_script(container, kind, name, self.if_match()).await?;
                Ok(deleted())
            }
        }
    }

    async fn users(&self, database: &str) -> Result<Answer> {
        match self.action {
            Action::Create => {
                let created = self.db.create_user(database, &request::object(self.body)?).await?;
                Ok(written(201, &created))
            }
            Action::Upsert => {
                let body = request::object(self.body)?;
                Ok(upserted(self.db.upsert_user(database, &body).await?))
            }
            _ => {
                let resources = self.db.users(database)?;
                let owner_rid = self.owner_rid(database)?;
                self.list(List { owner_rid, plural: "Users", resources })
            }
        }
    }

    async fn user(&self, database: &str, user: &str) -> Result<Answer> {
        match self.action {
            Action::Read => Ok(self.read(&self.db.user(database, user)?.resource)),
            Action::Replace => {
                let body = request::object(self.body)?;
                let replaced = self.db.replace_user(database, user, &body, self.if_match()).await?;
                Ok(written(200, &replaced))
            }
            _ => {
                self.db.delete_user(database, user, self.if_match()).await?;
                Ok(deleted())
            }
        }
    }

    async fn permissions(&self, database: &str, user: &str) -> Result<Answer> {
        let seconds = self.options.token_seconds;
        match self.action {
            Action::Create => {
                let body = request::object(self.body)?;
                let created = self.db.create_permission(database, user, &body, seconds).await?;
                Ok(written(201, &created))
            }
            Action::Upsert => {
                let body = request::object(self.body)?;
                Ok(upserted(self.db.upsert_permission(database, user, &body, seconds).await?))
            }
            _ => {
                let resources = self.db.permissions(database, user, seconds)?;
                let owner_rid = self.db.user(database, user)?.resource.rid.clone();
                self.list(List { owner_rid, plural: "Permissions", resources })
            }
        }
    }

    async fn permission(&self, database: &str, user: &str, name: &str) -> Result<Answer> {
        let seconds = self.options.token_seconds;
        match self.action {
            Action::Read => Ok(self.read(&self.db.permission(database, user, name, seconds)?)),
            Action::Replace => {
                let body = request::object(self.body)?;
                let if_match = self.if_match();
                let replaced = self
                    .db
                    .replace_permission(database, user, name, &body, if_match, seconds)
                    .await?;
                Ok(written(200, &replaced))
            }
            _ => {
                self.db.delete_permission(database, user, name, self.if_match()).await?;
                Ok(deleted())
            }
        }
    }

    async fn encryption_keys(&self, database: &str) -> Result<Answer> {
        match self.action {
            Action::Create => {
                let body = request::object(self.body)?;
                Ok(written(201, &self.db.create_encryption_key(database, &body).await?))
            }
            Action::Upsert => Err(not_served("upserting client encryption keys")),
            _ => {
                let resources = self.db.encryption_keys(database)?;
                let owner_rid = self.owner_rid(database)?;
                self.list(List { owner_rid, plural: "ClientEncryptionKeys", resources })
            }
        }
    }

    async fn encryption_key(&self, database: &str, key: &str) -> Result<Answer> {
        match self.action {
            Action::Read => Ok(self.read(&self.db.encryption_key(database, key)?)),
            Action::Replace => {
                let body = request::object(self.body)?;
                let if_match = self.if_match();
                let replaced =
                    self.db.replace_encryption_key(database, key, &body, if_match).await?;
                Ok(written(200, &replaced))
            }
            _ => {
                self.db.delete_encryption_key(database, key, self.if_match()).await?;
                Ok(deleted())
            }
        }
    }

    /// Answers a request about all offers.
    pub(crate) fn offers(&self) -> Result<Answer> {
        let resources = self.db.offers();
        self.list(List { owner_rid: String::new(), plural: "Offers", resources })
    }

    /// Answers a request about one offer. Its body comes back even to clients that want none: they
    /// read the throughput from it.
    pub(crate) async fn offer(&self, rid: &str) -> Result<Answer> {
        let (answer, offer) = if self.action == Action::Replace {
            let body = request::object(self.body)?;
            let migrate = self.options.migrate;
            self.db.replace_offer(rid, &body, self.if_match(), migrate).await?;
            self.fit_ranges().await;
            let offer = self.db.offer(rid)?;
            (written(200, &offer), offer)
        } else {
            let offer = self.db.offer(rid)?;
            (self.read(&offer), offer)
        };
        let minimum = self.db.minimum_throughput(&offer);
        let is_pending = self.db.is_pending(&offer);
        Ok(Answer { offer: Some(OfferState { minimum, is_pending }), ..answer })
    }

    /// Splits ranges for throughput that was raised. With little data that is done at once, and the
    /// client need not ask again; otherwise it goes on while the answer says that it does.
    async fn fit_ranges(&self) {
        let db = self.db.clone();
        let fitting = tokio::spawn(async move {
            if let Err(error) = db.fit_ranges().await {
                tracing::warn!(%error, "ranges could not be split and will be tried again");
            }
        });
        let _ = tokio::time::timeout(FIT_AT_MOST, fitting).await;
    }

    fn if_match(&self) -> Option<&str> {
        self.options.conditions.if_match.as_deref()
    }

    fn owner_rid(&self, database: &str) -> Result<String> {
        Ok(self.db.database(database)?.resource.rid.clone())
    }

    fn read(&self, resource: &Resource) -> Answer {
        let known = self.options.conditions.if_none_match.as_deref();
        let answer = if resource.is_unmodified(known) {
            Answer { etag: Some(resource.etag.clone()), ..Answer::empty(304) }
        } else {
            Answer::resource(200, resource)
        };
        answer.charged(Charge::METADATA_READ)
    }

    /// A list, a page of it, or what a query makes of it.
    fn list(&self, list: List) -> Result<Answer> {
        let List { owner_rid, plural, resources } = list;
        let (rows, continuation): (Vec<Bytes>, _) = match self.action {
            Action::List => {
                let (page, continuation) = cut(resources, &self.options.page)?;
                let rows = page.iter().map(|resource| object_text(&resource.body).into());
                (rows.collect(), continuation)
            }
            Action::Query => {
                let query = request::query(self.body)?;
                let rows = self.db.query_resources(&resources, &query)?;
                (rows.into_iter().map(|row| row.to_text().into()).collect(), None)
            }
            _ => return Err(not_served("this operation")),
        };
        Ok(Answer {
            continuation,
            item_count: Some(rows.len()),
            ..Answer::json(200, feed_body(&owner_rid, plural, &rows))
        }
        .charged(Charge::METADATA_READ))
    }
}

fn written(status: u16, resource: &Resource) -> Answer {
    Answer::resource(status, resource).charged(Charge::METADATA_WRITE)
}

fn upserted((resource, created): (Resource, bool)) -> Answer {
    written(if created { 201 } else { 200 }, &resource)
}

fn deleted() -> Answer {
    Answer::empty(204).charged(Charge::METADATA_WRITE)
}

/// The page of a list that a client wants. A continuation is the id after which the page starts, so
/// that it holds whatever comes and goes meanwhile.
fn cut(mut resources: Vec<Resource>, page: &Page) -> Result<(Vec<Resource>, Option<String>)> {
    resources.sort_by(|a, b| a.id.cmp(&b.id));
    if let Some(token) = &page.continuation {
        let after = URL_SAFE_NO_PAD
            .decode(token)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| Error::bad_request("the continuation token is invalid"))?;
        resources.retain(|resource| resource.id > after);
    }
    let Some(items_max) = page.items_max else { return Ok((resources, None)) };
    if resources.len() <= items_max {
        return Ok((resources, None));
    }
    resources.truncate(items_max);
    let continuation = resources.last().map(|last| URL_SAFE_NO_PAD.encode(&last.id));
    Ok((resources, continuation))
}
