//! Query plans: how a client should run a query over the ranges of a container.
//!
//! The plan itself is made by [`query::plan_for_clients`]; here it meets the container, whose hash
//! says where partitions lie, and takes the form that clients read.

use std::sync::Arc;

use query::{Distinct, Features, Limits, Merge, Options, PlanOptions, QueryPlan};
use storage::RangeStore;
use value::{Object, PartitionKey, Value};

use crate::container::Container;
use crate::database::Db;
use crate::read::QueryText;
use crate::routing::{self, KeyRange};
use crate::{Error, Result, scripts};

/// How much memory the constants of a query may use while it is planned.
const PLAN_BYTES: usize = 16 * 1024 * 1024;

/// Where a sorted query goes on, in a client's own words: it knows the row and not our cursor.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeFilter {
    /// The sort keys of the row; `None` is undefined.
    pub values: Vec<Option<Value>>,
    /// The document of the row, where rows with the same keys are to be told apart.
    pub rid: Option<String>,
    /// Whether the row itself, and with no document all rows with these keys, are passed over.
    pub exclude: bool,
}

/// What a client says when it asks for a plan.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// What the client can do with the rows of several ranges.
    pub features: Features,
    /// The partition, or the beginning of a hierarchical key, that it confines the query to.
    pub key: Option<PartitionKey>,
    /// Whether all merging is left to clients. Otherwise the server does what this client cannot, where
    /// everything comes from one range.
    pub client_merges: bool,
}

impl<S: RangeStore> Db<S> {
    /// How a client should run a query over the ranges of a container.
    pub fn query_plan(
        &self,
        container: &Container,
        query: &QueryText,
        request: &PlanRequest,
    ) -> Result<Value> {
        // The container's indexes and functions decide what may be asked at all.
        self.prepare(query, Some(container))?;
        let partition_key = &container.policies.partition_key;
        // Some clients send the empty key for no key.
        let key = request.key.as_ref();
        let key = key.filter(|key| !key.0.is_empty() || partition_key.system_key);
        let whole = match key {
            Some(key) if !container.is_prefix(key) => container.full_key(Some(key))?,
            _ => None,
        };
        let plan_options = PlanOptions {
            partition_key,
            key: whole.as_ref().or(key),
            features: request.features,
            has_one_range: container.ranges.len() == 1,
            server_merges: !request.client_merges,
        };
        let mut options = Options::new(0, 0, Limits::memory(PLAN_BYTES));
        let computed = container.policies.computed.iter().map(|property| query::ComputedProperty {
            name: property.name.clone(),
            query: property.query.clone(),
        });
        options.computed_properties = computed.collect();
        options.functions = scripts::functions(container, &query.text, 0, Arc::new(|| false));
        options.geospatial = container.policies.geospatial;
        let (text, parameters) = (&query.text, &query.parameters);
        let plan = query::plan_for_clients(text, parameters, &options, &plan_options)
            .map_err(|error| Error::bad_request(error.message()))?;
        let mut ranges = routing::key_ranges(partition_key, &plan.reach);
        // Two keys may hash to one place, which must be asked once.
        ranges.dedup_by(|later, earlier| later.epk == earlier.epk);
        let ranges = match ranges.is_empty() {
            // One range must answer, although nothing can be found there.
            true => vec![query_range("", "", true)],
            false => ranges.iter().map(range).collect(),
        };
        Ok(Value::Object(Object::from([
            ("partitionedQueryExecutionInfoVersion", Value::from(2)),
            ("queryInfo", query_info(&plan)),
            ("queryRanges", Value::Array(ranges)),
        ])))
    }
}

fn range(range: &KeyRange) -> Value {
    let min = range.epk.min.to_string();
    match range.is_partition {
        true => query_range(&min, &min, true),
        false => query_range(&min, &range.epk.max.to_string(), false),
    }
}

fn query_range(min: &str, max: &str, is_max_inclusive: bool) -> Value {
    Value::Object(Object::from([
        ("min", Value::from(min)),
        ("max", Value::from(max)),
        ("isMinInclusive", Value::from(true)),
        ("isMaxInclusive", Value::from(is_max_inclusive)),
    ]))
}

fn query_info(plan: &QueryPlan) -> Value {
    let count = |count: Option<u64>| count.map_or(Value::Null, Value::from);
    let texts = |texts: Vec<&str>| Value::Array(texts.into_iter().map(Value::from).collect());
    let distinct = match plan.distinct {
        Distinct::None => "None",
        Distinct::Ordered => "Ordered",
        Distinct::Unordered => "Unordered",
    };
    let direction = |descending| if descending { "Descending" } else { "Ascending" };
    let order_by = plan.order_by.iter().map(|key| direction(key.descending));
    let order_keys = plan.order_by.iter().map(|key| key.expression.as_str());
    let merge_of = |(name, merge): &(String, Option<Merge>)| {
        (name.clone(), merge.map_or(Value::Null, |merge| Value::from(merge_name(merge))))
    };
    let merges: Object = plan.members.iter().map(merge_of).collect();
    let aliases = plan.members.iter().map(|(name, _)| name.as_str());
    let distinct_count = plan.distinct_count.as_ref().map_or(Value::Null, |alias| {
        let alias = alias.as_deref().unwrap_or_default();
        Value::Object(Object::from([("dCountAlias", Value::from(alias))]))
    });
    Value::Object(Object::from([
        ("distinctType", Value::from(distinct)),
        ("top", count(plan.top)),
        ("offset", count(plan.offset)),
        ("limit", count(plan.limit)),
        ("orderBy", texts(order_by.collect())),
        ("orderByExpressions", texts(order_keys.collect())),
        ("groupByExpressions", texts(plan.group_by.iter().map(String::as_str).collect())),
        ("groupByAliases", texts(aliases.collect())),
        ("aggregates", texts(plan.aggregates.iter().copied().map(merge_name).collect())),
        ("groupByAliasToAggregateType", Value::Object(merges)),
        ("rewrittenQuery", Value::from(plan.rewritten.as_deref().unwrap_or_default())),
        ("hasSelectValue", Value::from(plan.has_select_value)),
        ("dCountInfo", distinct_count),
        // Only orders by distance cannot be merged as they come, and those are not served.
        ("hasNonStreamingOrderBy", Value::from(false)),
    ]))
}

fn merge_name(merge: Merge) -> &'static str {
    match merge {
        Merge::Average => "Average",
        Merge::Count => "Count",
        Merge::CountIf => "CountIf",
        Merge::Max => "Max",
        Merge::Min => "Min",
        Merge::Sum => "Sum",
        Merge::MakeList => "MakeList",
        Merge::MakeSet => "MakeSet",
    }
}
