//! The queries of queries.json, asked through the Rust SDK over a container of several ranges.
//!
//! The SDK asks every range and merges. It makes a plan itself where it can and asks the server for one where it cannot,
//! or where it is told to; queries are asked both ways, in pages of several sizes, and resumed from continuations. What
//! it cannot merge, it or the server must refuse.

use std::num::NonZeroU32;

use azure_core::http::StatusCode;
use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::feed::{ContinuationToken, FeedScope, Query};
use azure_data_cosmos::models::{ContainerProperties, ThroughputProperties};
use azure_data_cosmos::options::{
    CreateContainerOptions, MaxItemCountHint, QueryOptions, QueryPlanMode,
};
use azure_data_cosmos::{CosmosError, PartitionKey};
use futures::StreamExt;
use serde_json::Value;

use crate::{Outcome, same};

/// What the file holds: a container, its documents, and queries with the rows they must give.
pub(crate) struct Script(Value);

impl Script {
    pub(crate) fn read(path: &str) -> Outcome<Self> {
        Ok(Self(serde_json::from_str(&std::fs::read_to_string(path)?)?))
    }

    pub(crate) fn queries(&self) -> &[Value] {
        self.0["queries"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Makes the container and fills it.
    pub(crate) async fn fill(&self, database: &DatabaseClient) -> Outcome<ContainerClient> {
        let properties: ContainerProperties = serde_json::from_value(self.0["container"].clone())?;
        let id = properties.id.clone().into_owned();
        let throughput = self.0["throughput"].as_u64().ok_or("no throughput")?;
        let throughput = ThroughputProperties::manual(throughput);
        let options = CreateContainerOptions::default().with_throughput(throughput);
        database.create_container(properties, Some(options)).await?;
        let container = database.container_client(id, None).await?;
        for document in self.0["documents"].as_array().ok_or("no documents")? {
            let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
            let key = PartitionKey::from(text("pk"));
            container.create_item(key, &text("id"), document, None).await?;
        }
        let ranges = container.read_feed_ranges(None).await?;
        same("has several ranges", &(ranges.len() >= 3), &true)?;
        Ok(container)
    }
}

/// Asks one query in all ways.
pub(crate) async fn ask(container: &ContainerClient, query: &Value) -> Outcome {
    for mode in [QueryPlanMode::LocalPreferred, QueryPlanMode::GatewayOnly] {
        if is_refused(query) {
            let outcome = rows(container, query, mode, Some(4)).await;
            same(&format!("{mode}: status"), &status(outcome), &Some(StatusCode::BadRequest))?;
            continue;
        }
        for size in [None, Some(1), Some(4)] {
            let rows = rows(container, query, mode, size).await?;
            check(&format!("{mode}, in pages of {size:?}"), query, rows)?;
        }
        let rows = resumed(container, query, mode, 3).await?;
        check(&format!("{mode}, resumed"), query, rows)?;
    }
    Ok(())
}

/// Whether the server refuses the query, or the SDK cannot merge its rows. It merges no aggregates and no groups; it
/// removes duplicates only where they follow each other or where few rows are wanted, and sorts no arrays and objects.
fn is_refused(query: &Value) -> bool {
    let needs = |what: &str| needs(query, what);
    let is_aggregate = needs("aggregate") || needs("aggregates") || needs("group");
    let is_sorted_value = needs("order")
        && query["query"].as_str().is_some_and(|text| text.contains("DISTINCT VALUE"));
    let is_limited = needs("top") || needs("offset");
    query.get("status").is_some()
        || is_aggregate && !needs("confined")
        || needs("distinct") && !is_sorted_value && !is_limited
        || needs("structured")
}

fn needs(query: &Value, what: &str) -> bool {
    query["needs"].as_array().is_some_and(|needs| needs.iter().any(|each| each == what))
}

fn status(outcome: Outcome<Vec<Value>>) -> Option<StatusCode> {
    let error = outcome.err()?;
    error.downcast_ref::<CosmosError>().map(|error| error.status().status_code())
}

fn text_of(query: &Value) -> Outcome<Query> {
    let mut text = Query::from(query["query"].as_str().ok_or("no text")?);
    for parameter in query["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().ok_or("no name")?;
        text = text.with_parameter(name, &parameter["value"])?;
    }
    Ok(text)
}

fn options(mode: QueryPlanMode, size: Option<u32>) -> QueryOptions {
    let options = QueryOptions::default().with_query_plan_mode(mode);
    match size.and_then(NonZeroU32::new) {
        Some(size) => options.with_max_item_count(MaxItemCountHint::Limit(size)),
        None => options,
    }
}

/// All rows, page by page.
async fn rows(
    container: &ContainerClient,
    query: &Value,
    mode: QueryPlanMode,
    size: Option<u32>,
) -> Outcome<Vec<Value>> {
    let scope = FeedScope::full_container();
    let mut rows =
        container.query_items::<Value>(text_of(query)?, scope, Some(options(mode, size))).await?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().await {
        all.push(row?);
    }
    Ok(all)
}

/// All rows, with a new request after every page.
async fn resumed(
    container: &ContainerClient,
    query: &Value,
    mode: QueryPlanMode,
    size: u32,
) -> Outcome<Vec<Value>> {
    let mut all = Vec::new();
    let mut continuation: Option<ContinuationToken> = None;
    loop {
        let mut options = options(mode, Some(size));
        if let Some(continuation) = continuation.take() {
            options = options.with_continuation_token(continuation);
        }
        let scope = FeedScope::full_container();
        let rows = container.query_items::<Value>(text_of(query)?, scope, Some(options)).await?;
        let mut pages = rows.into_pages();
        let Some(page) = pages.next().await else { return Ok(all) };
        all.extend(page?.into_items());
        continuation = Some(pages.to_continuation_token()?);
    }
}

fn check(way: &str, query: &Value, rows: Vec<Value>) -> Outcome {
    let Some(expected) = query["rows"].as_array() else {
        return same(way, &(rows.len() as u64), &query["count"].as_u64().unwrap_or_default());
    };
    let mut actual: Vec<String> = rows.iter().map(canonical).collect();
    let mut expected: Vec<String> = expected.iter().map(canonical).collect();
    if query["ordered"] != true {
        actual.sort();
        expected.sort();
    }
    same(way, &actual, &expected)
}

/// A text that is the same for equal values: members in one order, numbers in one form.
fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) => number.as_f64().unwrap_or(f64::NAN).to_string(),
        Value::Array(elements) => {
            format!("[{}]", elements.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        Value::Object(members) => {
            let member = |(name, value)| format!("{name:?}:{}", canonical(value));
            let mut members: Vec<String> = members.iter().map(member).collect();
            members.sort();
            format!("{{{}}}", members.join(","))
        }
        other => other.to_string(),
    }
}
