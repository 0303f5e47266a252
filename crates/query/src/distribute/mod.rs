//! Plans for clients that run a query over the ranges of a container themselves.
//!
//! Many clients do not send a query that sorts, groups or limits as it is: they ask for a plan, send
//! the plan's rewritten text to every range, and merge the rows. [`plan_for_clients`] makes that
//! plan in the service's terms, so that a client built for the service gets what it expects. The
//! rewritten text is an ordinary query; running it needs nothing special.
//!
//! - D1: merging the rows of the rewritten text over any division of the documents into ranges gives
//!   the answer to the query. What cannot be divided so is refused, or left to the server where one
//!   range holds everything that the query can touch.
//! - D2: a plan never asks the client for a feature that the client did not announce.
//! - D3: the ranges of a plan hold every document that can contribute, and do not overlap.

mod features;
mod reach;
mod rewrite;
mod text;

pub use features::{Feature, Features};
pub use reach::{Reach, reach};

use crate::aggregate::AggregateKind;
use crate::bind::bind;
use crate::plan::{Origin, Plan};
use crate::{Error, Geospatial, Options};
use sql::{Query, Selection};
use value::{PartitionKey, PartitionKeyDefinition, Value};

/// What a plan is made for.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions<'a> {
    /// What the container is partitioned by.
    pub partition_key: &'a PartitionKeyDefinition,
    /// The partition, or the beginning of a hierarchical key, that the request is confined to.
    pub key: Option<&'a PartitionKey>,
    /// What the client can do with the rows of several ranges.
    pub features: Features,
    /// Whether all documents of the container are in one range.
    pub has_one_range: bool,
    /// Whether the server does what the client cannot, where everything comes from one range.
    pub server_merges: bool,
}

/// How a client runs a query over the ranges of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryPlan {
    /// How the client finds equal rows.
    pub distinct: Distinct,
    /// How many rows the client keeps of all.
    pub top: Option<u64>,
    /// How many rows the client skips first.
    pub offset: Option<u64>,
    /// How many rows the client keeps after those.
    pub limit: Option<u64>,
    /// The keys by which the client merges the rows.
    pub order_by: Vec<MergeKey>,
    /// The keys by which the client groups the rows, as text.
    pub group_by: Vec<String>,
    /// The members of a row and how the client merges each; without a function it keeps the first.
    /// Empty when the query selects a bare value.
    pub members: Vec<(String, Option<Merge>)>,
    /// How the client merges the bare value that the query selects, if it is an aggregate.
    pub aggregates: Vec<Merge>,
    /// What is sent to each range, when it is not the query itself.
    pub rewritten: Option<String>,
    /// Whether the query selects a bare value.
    pub has_select_value: bool,
    /// The client counts the distinct rows, and this is what it calls the count; nothing when the
    /// query selects the bare count.
    pub distinct_count: Option<Option<String>>,
    /// The partitions that can contribute.
    pub reach: Reach,
}

/// How a client finds equal rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distinct {
    /// It need not.
    #[default]
    None,
    /// Equal rows follow each other.
    Ordered,
    /// Equal rows may be anywhere.
    Unordered,
}

/// One key of `ORDER BY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeKey {
    /// The expression, as text.
    pub expression: String,
    /// Whether the greatest comes first.
    pub descending: bool,
}

/// How the partial results of an aggregate become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the aggregates")]
pub enum Merge {
    Average,
    Count,
    CountIf,
    Max,
    Min,
    Sum,
    MakeList,
    MakeSet,
}

impl From<AggregateKind> for Merge {
    fn from(kind: AggregateKind) -> Merge {
        match kind {
            AggregateKind::Average => Merge::Average,
            AggregateKind::Count => Merge::Count,
            AggregateKind::CountIf => Merge::CountIf,
            AggregateKind::Max => Merge::Max,
            AggregateKind::Min => Merge::Min,
            AggregateKind::Sum => Merge::Sum,
            AggregateKind::MakeList => Merge::MakeList,
            AggregateKind::MakeSet => Merge::MakeSet,
        }
    }
}

/// Makes the plan of a query. Whatever is wrong with the query is found as if it were to be run.
pub fn plan_for_clients(
    text: &str,
    parameters: &[(String, Value)],
    options: &Options,
    plan_options: &PlanOptions<'_>,
) -> Result<QueryPlan, Error> {
    let query = sql::parse(text)?;
    let bound = bind(text, &query, parameters, options)?;
    let has_select_value = matches!(query.selection, Selection::Value(_));
    let reach = reach_of_request(&query, &bound, parameters, options.geospatial, plan_options);
    // Rows that no document contributes to are the same on every range, and one must give them.
    if !bound.reads_container() {
        return Ok(QueryPlan { has_select_value, reach, ..QueryPlan::default() });
    }
    let is_pinned = reach.one_key().is_some_and(|key| plan_options.is_complete(key));
    let planned = rewrite::divide(&query, &bound, is_pinned)?;
    let refusal = match planned {
        rewrite::Divided::Plan(plan) => {
            let plan = QueryPlan { has_select_value, reach: reach.clone(), ..*plan };
            let missing = plan.needs().missing_from(plan_options.features);
            match missing.map_or_else(|| check_rewritten(&plan, parameters, options), Err) {
                Ok(()) => return Ok(plan),
                Err(refusal) => refusal,
            }
        }
        rewrite::Divided::Cannot(refusal) => refusal,
    };
    // Where everything comes from one range, the server can do what the client cannot.
    let reach = match reach {
        Reach::Keys(keys) if keys.len() > 1 => Reach::All,
        reach => reach,
    };
    let is_from_one_range = is_pinned || plan_options.has_one_range;
    let is_confined = is_pinned && plan_options.key.is_some();
    let is_served = is_confined || is_from_one_range && plan_options.server_merges;
    if is_served || reach == Reach::Nothing {
        return Ok(QueryPlan { has_select_value, reach, ..QueryPlan::default() });
    }
    Err(refusal)
}

impl PlanOptions<'_> {
    /// Whether a key names one logical partition.
    fn is_complete(&self, key: &PartitionKey) -> bool {
        self.partition_key.system_key || key.0.len() == self.partition_key.paths.len()
    }
}

fn reach_of_request(
    query: &Query,
    bound: &Plan,
    parameters: &[(String, Value)],
    geospatial: Geospatial,
    plan_options: &PlanOptions<'_>,
) -> Reach {
    match plan_options.key {
        // The empty key is one partition only where the container has no key.
        Some(key) if !key.0.is_empty() || plan_options.partition_key.system_key => {
            Reach::Keys(vec![key.clone()])
        }
        Some(_) => Reach::All,
        None if !bound.reads_container() => Reach::Nothing,
        None => reach(query, parameters, plan_options.partition_key, geospatial),
    }
}

/// The client sends the rewritten text back; if that could not be run, the plan would be a trap.
fn check_rewritten(
    plan: &QueryPlan,
    parameters: &[(String, Value)],
    options: &Options,
) -> Result<(), Error> {
    let Some(rewritten) = &plan.rewritten else { return Ok(()) };
    let text = rewritten.replace(rewrite::FILTER_PLACEHOLDER, "true");
    bind(&text, &sql::parse(&text)?, parameters, options).map(|_| ())
}

impl Plan {
    /// Whether each document makes rows on its own, before the clauses of this query. Subqueries
    /// have neither order nor limits.
    fn has_independent_rows(&self) -> bool {
        match self.sources.first().map(|source| &source.origin) {
            Some(Origin::Container(_)) => true,
            Some(Origin::Subquery(plan)) => {
                plan.grouping.is_none() && !plan.distinct && plan.has_independent_rows()
            }
            Some(Origin::Scalar(_)) | None => false,
        }
    }
}
