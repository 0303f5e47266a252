//! Queries over documents and over metadata.
//!
//! What an answer is made of decides how it is paged. Rows that depend on one document each come in
//! the order in which documents are found, or in the order that the query asks for; a page goes on
//! after the last document. Groups and distinct rows are computed whole for every page, which goes on
//! after the last row in the order of the rows' keys. So every page is exact at the versions that it
//! read, and nothing is kept between pages.

use std::sync::Arc;

use query::{Indexed, PathSegment};
use storage::{RangeStore, Snapshot};
use value::{Object, Value};

use crate::access::choose;
use crate::answer::Asked;
use crate::clock::Deadline;
use crate::container::Container;
use crate::continuation::{Cursor, Subject};
use crate::database::Db;
use crate::documents::{Failure, FeedPage, PAGE_ITEMS, Page};
use crate::plan::ResumeFilter;
use crate::policy::{CompositePath, IndexingMode, Order, Segment, Step};
use crate::ration::{Effort, Rationed};
use crate::resource::Resource;
use crate::scan::{READING_MS, Scope, Slice};
use crate::session::Session;
use crate::{Error, Kind, Result, routing, scripts, turns};

/// A query as the client sends it.
#[derive(Clone, Debug, Default)]
pub struct QueryText {
    /// The query.
    pub text: String,
    /// The values of its parameters, named with their `@`.
    pub parameters: Vec<(String, Value)>,
    /// Where a sorted query goes on, where the client says so itself.
    pub resume: Option<ResumeFilter>,
}

impl QueryText {
    /// What makes two queries the same, for continuation tokens.
    pub(crate) fn identity(&self) -> String {
        let mut identity = merged_form(&self.text).unwrap_or_else(|| self.text.clone());
        for (name, value) in &self.parameters {
            identity.push('\0');
            identity.push_str(name);
            identity.push('=');
            identity.push_str(&value.to_text());
        }
        identity
    }
}

/// A sorted query in the form that clients merge by, without its condition; nothing if it is not in
/// that form. A client that resumes such a query writes into the condition from which sort key on,
/// and sends the token of its last page with it.
fn merged_form(text: &str) -> Option<String> {
    // Few queries are; the others need not be parsed for it.
    if !text.contains("orderByItems") {
        return None;
    }
    let query = sql::parse(text).ok()?;
    let sql::Selection::List(items) = &query.selection else { return None };
    let is_selected = |name| items.iter().any(|item| item.alias.as_deref() == Some(name));
    let is_merged = query.order_by.is_some() && is_selected("orderByItems");
    let form = sql::Query { filter: None, ..query };
    is_merged.then(|| form.to_string())
}

/// Whether a query is left to the server over several partitions. It is so also where all of them lie in
/// one range.
fn crosses_partitions<P: Snapshot>(asked: &Asked<'_, P>, scope: &Scope) -> bool {
    let slices = &asked.reading.slices;
    let is_one_partition = matches!(&slices[..], [] | [Slice { partition: Some(_), .. }]);
    !is_one_partition && scope.range.is_none() && scope.epk.is_none()
}

pub(crate) fn refused(error: query::Error) -> Error {
    let kind = match error.kind() {
        query::ErrorKind::TimedOut => Kind::Timeout,
        query::ErrorKind::Refused | query::ErrorKind::TooLarge => Kind::BadRequest,
    };
    Error::new(kind, error.message())
}

/// How much memory a query may use.
const QUERY_BYTES: usize = 128 * 1024 * 1024;
/// And how much one that takes a moment.
const MOMENT_BYTES: usize = 4 * 1024 * 1024;
/// Longer texts take longer to read than a moment.
const MOMENT_TEXT_BYTES: usize = 4 * 1024;

impl<S: RangeStore> Db<S> {
    /// Runs a query over documents. This works for as long as it takes, up to a few seconds: call it
    /// where that holds nobody up.
    pub fn query(
        &self,
        container: &Arc<Container>,
        query: &QueryText,
        scope: &Scope,
        page: &Page,
        session: Option<&Session>,
    ) -> Result<FeedPage, Failure> {
        if page.client_merges {
            let ranges = self.ask(container, query, scope, page.effort, session, |asked| {
                let is_in_turns =
                    asked.prepared.is_streaming() && crosses_partitions(&asked, scope);
                Ok(if is_in_turns { turns::ranges_of(asked.reading) } else { Vec::new() })
            })?;
            if let Some(turn) = turns::Turn::of(ranges, page)? {
                return self.query_in_turns(container, query, scope, page, session, &turn);
            }
        }
        self.query_page(container, query, &query.identity(), scope, page, session)
    }

    /// One page of a query. Its continuation belongs to what identifies the query.
    pub(crate) fn query_page(
        &self,
        container: &Arc<Container>,
        query: &QueryText,
        identity: &str,
        scope: &Scope,
        page: &Page,
        session: Option<&Session>,
    ) -> Result<FeedPage, Failure> {
        let subject = Subject { container: container.rid, query: identity };
        let cursor = page.continuation.as_deref();
        let cursor =
            cursor.map(|text| Cursor::verify(text, &self.signing, &subject)).transpose()?;
        let cursor = cursor.filter(|cursor| !cursor.is_at_beginning());
        let items_max = page.items_max.unwrap_or(PAGE_ITEMS).max(1);
        self.ask(container, query, scope, page.effort, session, |asked| {
            // The service leaves to clients what cannot be answered without a look at all rows, and of
            // the rest it does not look whether anything follows a full page. Aggregates it leaves to
            // them also where the filter names the partition and the request does not.
            let ends_open = page.client_merges && crosses_partitions(&asked, scope);
            let is_aggregate = asked.prepared.is_grouped() && asked.prepared.reads_documents();
            let is_left = page.client_merges && is_aggregate && scope.is_unconfined();
            if is_left || ends_open && !asked.prepared.is_streaming() {
                return Err(Error::new(
                    Kind::CrossPartitionQuery,
                    "The provided cross partition query can not be directly served by the gateway: its \
                     rows have to be merged. Ask for the query plan and merge the answers of the \
                     partition key ranges.",
                ));
            }
            let insists = page.insist_on_indexes;
            let asked = Asked { items_max, ends_open, cursor: cursor.as_ref(), insists, ..asked };
            let answered = asked.answer()?;
            let continuation = answered.next.map(|cursor| cursor.sign(&self.signing, &subject));
            let index_use = page.tell_indexes.then(|| asked.index_use()).transpose()?;
            let advice = asked.prepared.advice();
            Ok(FeedPage { continuation, index_use, advice, ..answered.feed })
        })
    }

    /// Tells how a query would be answered, as JSON for people to read.
    pub fn explain(
        &self,
        container: &Arc<Container>,
        query: &QueryText,
        scope: &Scope,
        session: Option<&Session>,
    ) -> Result<Value, Failure> {
        let effort = Effort::Whole;
        self.ask(container, query, scope, effort, session, |asked| Ok(asked.explain()?.to_value()))
    }

    /// Makes a query ready to be answered.
    fn ask<T>(
        &self,
        container: &Arc<Container>,
        query: &QueryText,
        scope: &Scope,
        effort: Effort,
        session: Option<&Session>,
        then: impl FnOnce(Asked<'_, Rationed<S::Snapshot>>) -> Result<T>,
    ) -> Result<T, Failure> {
        let prepared = match effort {
            Effort::Moment => self.prepare_for_a_moment(query, container)?,
            Effort::Whole => self.prepare(query, Some(container))?,
        };
        if query.resume.is_some() && prepared.order().is_empty() {
            return Err(Error::bad_request("only a query with ORDER BY has a resume filter").into());
        }
        let definition = &container.policies.partition_key;
        let parts = match &scope.key {
            None => Some(routing::ranges(
                definition,
                &query.text,
                &query.parameters,
                container.policies.geospatial,
            )),
            Some(_) => None,
        };
        // A query whose filter names its one partition crosses none, and neither does one over a
        // container without a partition key.
        let is_confined = match parts.as_deref() {
            Some([part]) => part.is_partition,
            Some(parts) => parts.is_empty(),
            None => true,
        };
        if scope.is_everything() && !is_confined && !definition.system_key {
            return Err(Error::bad_request(
                "Cross partition query is required but disabled. Please set \
                 x-ms-documentdb-query-enablecrosspartition to true, specify \
                 x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
            )
            .into());
        }
        let reading = self.reading(container, scope, parts.as_deref(), session, effort)?;
        let key = match parts.as_deref() {
            Some([part]) => part.key.as_ref(),
            Some(_) => None,
            None => scope.key.as_ref(),
        };
        Ok(then(Asked {
            prepared: &prepared,
            reading: &reading,
            condition: choose::with_key(prepared.condition(), container, key),
            is_for_merging: scope.range.is_some() || scope.epk.is_some() || query.resume.is_some(),
            items_max: PAGE_ITEMS,
            ends_open: false,
            cursor: None,
            insists: false,
            resume: query.resume.as_ref(),
        })?)
    }

    /// Runs a query over databases, containers, offers and the like.
    pub fn query_resources(&self, resources: &[Resource], query: &QueryText) -> Result<Vec<Value>> {
        let documents = resources.iter().map(|r| Ok(Value::Object(Object::clone(&r.body))));
        match self.prepare(query, None)?.run::<std::convert::Infallible>(documents) {
            Ok(rows) => Ok(rows),
            Err(query::RunError::Query(error)) => Err(refused(error)),
            Err(query::RunError::Source(never)) => match never {},
        }
    }

    /// Makes a query ready, with what the container's definition says about queries.
    pub(crate) fn prepare(
        &self,
        query: &QueryText,
        container: Option<&Container>,
    ) -> Result<query::Prepared> {
        let deadline = Arc::new(Deadline::new(self.clock.clone()));
        prepare(query, container, self.clock.now_ms(), limits(deadline, READING_MS))
    }
}

impl<S: RangeStore> Db<S> {
    /// Makes a query ready that has little memory and no time: it fails where it would look at the
    /// clock, which it does when it has done some thousand steps, and before anything that takes
    /// long by itself.
    fn prepare_for_a_moment(
        &self,
        query: &QueryText,
        container: &Container,
    ) -> Result<query::Prepared> {
        let calls_functions = query.text.to_ascii_lowercase().contains("udf");
        if query.text.len() > MOMENT_TEXT_BYTES || calls_functions {
            return Err(Error::new(Kind::Timeout, "the query takes longer than a moment"));
        }
        let is_expired = Arc::new(|| true);
        let limits = query::Limits { memory_bytes_max: MOMENT_BYTES, is_expired };
        prepare(query, Some(container), self.clock.now_ms(), limits)
    }
}

/// What a query may use, with the time that it may take.
pub(crate) fn limits(deadline: Arc<Deadline>, spent_ms_max: u64) -> query::Limits {
    query::Limits {
        memory_bytes_max: QUERY_BYTES,
        is_expired: Arc::new(move || deadline.spent_ms() > spent_ms_max),
    }
}

/// Makes a query ready, with what the container's definition says about queries.
pub(crate) fn prepare(
    query: &QueryText,
    container: Option<&Container>,
    now_ms: u64,
    limits: query::Limits,
) -> Result<query::Prepared> {
    let now_ticks = i64::try_from(now_ms.saturating_mul(10_000)).unwrap_or(i64::MAX);
    let is_expired = limits.is_expired.clone();
    let mut options = query::Options::new(now_ticks, now_ms, limits);
    if let Some(container) = container {
        let computed = container.policies.computed.iter().map(|property| query::ComputedProperty {
            name: property.name.clone(),
            query: property.query.clone(),
        });
        options.computed_properties = computed.collect();
        options.composite_indexes = Some(composite_indexes(container));
        options.functions = scripts::functions(container, &query.text, now_ms, is_expired);
        options.geospatial = container.policies.geospatial;
    }
    let prepared = query::prepare(&query.text, &query.parameters, &options).map_err(refused)?;
    if let Some(container) = container {
        check_order(container, &prepared)?;
    }
    Ok(prepared)
}

fn composite_indexes(container: &Container) -> Vec<Vec<query::CompositeKey>> {
    let indexes = container.policies.indexing.composite.iter();
    let key = |path: &CompositePath| {
        let names = path.segments.iter().map(|segment| match segment {
            Segment::Property(name) => Some(name.clone()),
            Segment::AnyElement | Segment::Element(_) => None,
        });
        let path_names = names.collect::<Option<Vec<_>>>()?;
        let descending = path.order == Order::Descending;
        Some(query::CompositeKey { path: path_names, descending })
    };
    indexes.filter_map(|index| index.iter().map(key).collect()).collect()
}

/// Refuses to order by what the container does not index, as the service does. Several keys were
/// checked against the composite indexes when the query was bound.
fn check_order(container: &Container, prepared: &query::Prepared) -> Result<()> {
    let indexing = &container.policies.indexing;
    let is_indexed = match &prepared.order()[..] {
        [query::OrderBy { key: Some(Indexed::Path(path)), .. }] => {
            let steps: Vec<Step<'_>> = path
                .iter()
                .map(|segment| match segment {
                    PathSegment::Property(name) => Step::Property(name),
                    PathSegment::Element => Step::Element,
                })
                .collect();
            indexing.decides(&steps)
        }
        [query::OrderBy { key: Some(Indexed::Computed(name)), .. }] => {
            indexing.decides_computed(name)
        }
        [query::OrderBy { key: None, .. }] => indexing.mode != IndexingMode::None,
        _ => true,
    };
    if is_indexed {
        return Ok(());
    }
    Err(Error::bad_request(
        "The index path corresponding to the specified order-by item is excluded.",
    ))
}
