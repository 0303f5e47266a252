//! Query plans: how a client should run a query over the ranges of a container.

use storage::RangeStore;
use value::{EpkRange, Object, Value};

use crate::container::Container;
use crate::database::Db;
use crate::read::QueryText;
use crate::{Error, Result};

impl<S: RangeStore> Db<S> {
    /// How a client should run a query over the ranges of a container.
    ///
    /// Where every range can answer for itself, or there is one range only, the query is to be sent
    /// as it is. Anything else is refused for now: a client that merges would need a rewritten query.
    pub fn query_plan(&self, container: &Container, query: &QueryText) -> Result<Value> {
        let prepared = self.prepare(query, Some(container))?;
        if !prepared.is_streaming() && container.ranges.len() > 1 {
            return Err(Error::bad_request(
                "queries that sort, group, aggregate, limit or remove duplicates are not planned \
                 for containers with several ranges yet; send the query without a range",
            ));
        }
        let EpkRange { min, max } = EpkRange::full();
        let range = Object::from([
            ("min", Value::from(min.to_string())),
            ("max", Value::from(max.to_string())),
            ("isMinInclusive", Value::from(true)),
            ("isMaxInclusive", Value::from(false)),
        ]);
        let empty = || Value::Array(Vec::new());
        let info = Object::from([
            ("distinctType", Value::from("None")),
            ("top", Value::Null),
            ("offset", Value::Null),
            ("limit", Value::Null),
            ("orderBy", empty()),
            ("orderByExpressions", empty()),
            ("groupByExpressions", empty()),
            ("groupByAliases", empty()),
            ("aggregates", empty()),
            ("groupByAliasToAggregateType", Value::Object(Object::new())),
            ("rewrittenQuery", Value::from("")),
            ("hasSelectValue", Value::from(false)),
            ("dCountInfo", Value::Null),
            ("hasNonStreamingOrderBy", Value::from(false)),
        ]);
        Ok(Value::Object(Object::from([
            ("partitionedQueryExecutionInfoVersion", Value::from(2)),
            ("queryInfo", Value::Object(info)),
            ("queryRanges", Value::Array(vec![Value::Object(range)])),
        ])))
    }
}
