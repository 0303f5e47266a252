//! Queries over documents and over metadata.
//!
//! A query whose rows come from one document each is a scan that can be cut anywhere. Any other
//! query (sorted, grouped, distinct, aggregated, limited) is answered whole in one page: exact at one
//! version of every range.

use std::sync::Arc;

use bytes::Bytes;
use storage::RangeStore;
use value::{Document, Object, Value};

use crate::charge::Charge;
use crate::container::Container;
use crate::continuation::{self, Cursor, Progress, Subject};
use crate::database::Db;
use crate::documents::{Failure, FeedPage, PAGE_BYTES, PAGE_ITEMS, Page};
use crate::policy::{CompositePath, Geospatial, Order, Segment};
use crate::resource::Resource;
use crate::scan::{Reading, Scope, Start};
use crate::session::Session;
use crate::{Error, Kind, Result, routing};

/// A query as the client sends it.
#[derive(Clone, Debug, Default)]
pub struct QueryText {
    /// The query.
    pub text: String,
    /// The values of its parameters, named with their `@`.
    pub parameters: Vec<(String, Value)>,
}

/// How long a request may work on a page.
const PAGE_MS: u64 = 5_000;
/// How long a query may work in all: a page that can be cut is cut before.
const QUERY_MS: u64 = 2 * PAGE_MS;
/// A result that must be given whole may be so large.
const WHOLE_BYTES: usize = 32 * 1024 * 1024;

impl QueryText {
    /// What makes two queries the same, for continuation tokens.
    fn identity(&self) -> String {
        let mut identity = self.text.clone();
        for (name, value) in &self.parameters {
            identity.push('\0');
            identity.push_str(name);
            identity.push('=');
            identity.push_str(&value.to_text());
        }
        identity
    }
}

fn refused(error: query::Error) -> Error {
    let kind = match error.kind() {
        query::ErrorKind::TimedOut => Kind::Timeout,
        query::ErrorKind::Refused | query::ErrorKind::TooLarge => Kind::BadRequest,
    };
    Error::new(kind, error.message())
}

/// How much memory a query may use.
const QUERY_BYTES: usize = 128 * 1024 * 1024;

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
        let prepared = self.prepare(query, Some(container))?;
        let mut scope = scope.clone();
        if scope.key.is_none() {
            let definition = &container.policies.partition_key;
            scope.key = routing::fixed_key(definition, &query.text, &query.parameters);
        }
        // A container without a partition key has one partition, which nothing can cross.
        if scope.is_everything() && !container.policies.partition_key.system_key {
            return Err(Error::bad_request(
                "Cross partition query is required but disabled. Please set \
                 x-ms-documentdb-query-enablecrosspartition to true, specify \
                 x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
            )
            .into());
        }
        let scope = &scope;
        let identity = query.identity();
        let subject = Subject { container: container.rid, query: &identity };
        let cursor = page.continuation.as_deref();
        let cursor =
            cursor.map(|text| Cursor::verify(text, &self.signing, &subject)).transpose()?;
        if !prepared.is_streaming() {
            let reading = self.reading(container, scope, session)?;
            return self.query_whole(&prepared, &reading);
        }
        let start = match &cursor {
            None => Start::Beginning,
            // A page may end in the middle of a document whose rows did not fit.
            Some(Cursor { progress: Progress::Place(place), rows_taken, .. }) => match rows_taken {
                Some(_) => Start::At(place),
                None => Start::After(place),
            },
            Some(_) => return Err(continuation::invalid().into()),
        };
        let reading = self.reading(container, scope, session)?;
        self.query_page(&prepared, &reading, start, cursor.as_ref(), page, &subject)
    }

    /// Fills a page document by document.
    fn query_page(
        &self,
        prepared: &query::Prepared,
        reading: &Reading<S::Snapshot>,
        start: Start<'_>,
        resumed: Option<&Cursor>,
        page: &Page,
        subject: &Subject<'_>,
    ) -> Result<FeedPage, Failure> {
        let items_max = page.items_max.unwrap_or(PAGE_ITEMS).max(1);
        let deadline_ms = self.clock.now_ms().saturating_add(PAGE_MS);
        let mut scan = reading.scan(start);
        let charge = reading.at.iter().map(|_| Charge::QUERY_BASE).sum();
        let mut feed = FeedPage { at: reading.at.clone(), charge, ..Default::default() };
        let mut bytes = 0;
        while let Some(visited) = scan.next()? {
            feed.charge += Charge::load(visited.item.document.text().len());
            // Rows of this document that the client has from the page before.
            let taken = match resumed {
                Some(Cursor { progress: Progress::Place(place), rows_taken: Some(taken), .. })
                    if *place == visited.place =>
                {
                    *taken
                }
                _ => 0,
            };
            let rows = rows_of(prepared, &visited.item.document)?;
            for (number, text) in rows.into_iter().enumerate().skip(taken as usize) {
                let full = feed.rows.len() >= items_max
                    || (!feed.rows.is_empty() && bytes + text.len() > PAGE_BYTES);
                if full {
                    let rows_taken = Some(u32::try_from(number).unwrap_or(u32::MAX));
                    let cursor = Cursor { rows_taken, ..Cursor::after(visited.place.to_vec()) };
                    feed.continuation = Some(cursor.sign(&self.signing, subject));
                    return Ok(feed);
                }
                bytes += text.len();
                feed.charge += Charge::output(text.len());
                feed.rows.push(text);
            }
            if self.clock.now_ms() > deadline_ms {
                let cursor = Cursor::after(visited.place.to_vec());
                feed.continuation = Some(cursor.sign(&self.signing, subject));
                return Ok(feed);
            }
        }
        Ok(feed)
    }

    fn query_whole(
        &self,
        prepared: &query::Prepared,
        reading: &Reading<S::Snapshot>,
    ) -> Result<FeedPage, Failure> {
        let mut scan = reading.scan(Start::Beginning);
        let charge = reading.at.iter().map(|_| Charge::QUERY_BASE).sum();
        let mut feed = FeedPage { at: reading.at.clone(), charge, ..Default::default() };
        let mut loading = Charge::ZERO;
        let documents = std::iter::from_fn(|| {
            let visited = scan.next().transpose()?;
            Some(visited.map(|visited| {
                loading += Charge::load(visited.item.document.text().len());
                visited.item.document.to_value()
            }))
        });
        let rows = prepared.run(documents).map_err(|error| match error {
            query::RunError::Query(error) => refused(error),
            query::RunError::Source(error) => error,
        })?;
        feed.charge += loading;
        let mut bytes = 0;
        for row in rows {
            let text = row.to_text();
            bytes += text.len();
            if bytes > WHOLE_BYTES {
                return Err(Error::bad_request(
                    "the result of the query is over 32 MB; sorted, grouped and distinct results \
                     are given whole: narrow the query",
                )
                .into());
            }
            feed.charge += Charge::output(text.len());
            feed.rows.push(Bytes::from(text));
        }
        Ok(feed)
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
        let clock = self.clock.clone();
        let now_ms = clock.now_ms();
        let deadline_ms = now_ms.saturating_add(QUERY_MS);
        let limits = query::Limits {
            memory_bytes_max: QUERY_BYTES,
            is_expired: Arc::new(move || clock.now_ms() > deadline_ms),
        };
        let now_ticks = i64::try_from(now_ms.saturating_mul(10_000)).unwrap_or(i64::MAX);
        let mut options = query::Options::new(now_ticks, now_ms, limits);
        if let Some(container) = container {
            check_geometry(container, &query.text)?;
            let computed =
                container.policies.computed.iter().map(|property| query::ComputedProperty {
                    name: property.name.clone(),
                    query: property.query.clone(),
                });
            options.computed_properties = computed.collect();
            options.composite_indexes = Some(composite_indexes(container));
        }
        query::prepare(&query.text, &query.parameters, &options).map_err(refused)
    }
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

/// The rows that a document gives; where they are the document itself, its stored text.
fn rows_of(prepared: &query::Prepared, document: &Document) -> Result<Vec<Bytes>> {
    let value = document.to_value();
    if prepared.returns_documents() {
        let kept = prepared.keeps(&value).map_err(refused)?;
        return Ok(if kept { vec![document.text()] } else { Vec::new() });
    }
    let mut rows = Vec::new();
    prepared.rows_of(&value, &mut rows).map_err(refused)?;
    Ok(rows.iter().map(|row| Bytes::from(row.to_text())).collect())
}

/// Spatial functions compute on the ellipsoid; on a container whose points lie in a plane they would
/// give wrong answers.
fn check_geometry(container: &Container, text: &str) -> Result<()> {
    let spatial = text.as_bytes().windows(3).any(|word| word.eq_ignore_ascii_case(b"ST_"));
    if container.policies.geospatial == Geospatial::Geometry && spatial {
        return Err(Error::bad_request(
            "spatial functions are not served for containers with geospatialConfig 'Geometry' yet",
        ));
    }
    Ok(())
}
