//! The service's own query plans, where their corpus lies beside the checkout.
//!
//! Plan fields and texts must be the same up to white space, errors must have the same code. Of the
//! ranges the corpus kept one for each case: it must be one of ours, or all there is.

#![expect(clippy::unwrap_used, reason = "a corpus that cannot be read is a failed test")]

use query::{
    Distinct, Features, Geospatial, Limits, Options, PlanOptions, QueryPlan, Reach,
    plan_for_clients,
};
use std::fs;
use std::path::Path;
use value::{Component, PartitionKey, PartitionKeyDefinition, PartitionKind, Value};

/// Cases that are not expected to pass, by the beginning of their names, and why.
const EXCEPTED: &[(&str, &str)] = &[
    ("vectorsearch-", "vector functions are refused"),
    ("manyranges-19", "_TRY_ARRAY_CONTAINS is internal to the service and not in the language"),
    ("pointrange-14", "an element of an array cannot be a partition key"),
    ("rangepartitionkey-5", "no container can be partitioned by ranges of values"),
    ("rangepartitionkey-6", "no container can be partitioned by ranges of values"),
    ("rangepartitionkey-9", "no container can be partitioned by ranges of values"),
    ("rangepartitionkey-10", "no container can be partitioned by ranges of values"),
];

#[test]
fn plans_are_those_of_the_service() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/corpus/query-plans/plans.jsonl");
    let Ok(text) = fs::read_to_string(&file) else {
        eprintln!("not run: {} is not there", file.display());
        return;
    };
    let mut failed = Vec::new();
    let mut count = 0;
    for line in text.lines() {
        let case = Value::parse(line.as_bytes()).unwrap();
        let name = case.get("name").and_then(Value::as_str).unwrap();
        let is_excepted = EXCEPTED.iter().any(|(excepted, _)| match excepted.strip_suffix('-') {
            Some(_) => name.starts_with(excepted),
            None => name == *excepted,
        });
        count += 1;
        match check(&case) {
            Ok(()) if is_excepted => failed.push(format!("{name} is excepted and passes")),
            Err(why) if !is_excepted => failed.push(format!("{name}: {why}")),
            _ => {}
        }
    }
    assert!(count > 200, "only {count} cases were found");
    assert!(failed.is_empty(), "{} of {count} fail:\n{}", failed.len(), failed.join("\n"));
}

fn check(case: &Value) -> Result<(), String> {
    let query = case.get("query").and_then(Value::as_str).unwrap();
    let definition = definition(case)?;
    let mut options = Options::new(17_673_242_450_000_000, 3, Limits::memory(8 << 20));
    if case.get("in_GeospatialType").and_then(Value::as_str) == Some("Geometry") {
        options.geospatial = Geospatial::Geometry;
    }
    let plan_options = PlanOptions {
        partition_key: &definition,
        key: None,
        features: Features::all(),
        has_one_range: false,
        server_merges: true,
    };
    let planned = plan_for_clients(query, &parameters(case), &options, &plan_options);
    // Ranking by full text is refused whatever else is right or wrong about the query.
    if query.contains("ORDER BY RANK") {
        return planned.map_or(Ok(()), |plan| Err(format!("expected a refusal, got {plan:?}")));
    }
    let Some(error) = case.get("error").and_then(Value::as_str) else {
        let plan = planned.map_err(|error| error.message())?;
        return compare(&plan, case.get("expected").unwrap());
    };
    let error = Value::parse(error.as_bytes()).map_err(|error| error.to_string())?;
    // Some plans are errors only for the client that recorded them, whose counts are smaller.
    if let Some(info) = error.get("queryInfo") {
        let plan = planned.map_err(|error| error.message())?;
        return compare_counts(&plan, info);
    }
    match planned {
        Ok(plan) => Err(format!("expected an error, got {plan:?}")),
        Err(got) => {
            let got = Value::parse(got.message().as_bytes()).unwrap();
            same("the error", &code(&got), &code(&error))
        }
    }
}

/// The code of an error, or its words where it has none.
fn code(error: &Value) -> Value {
    let first = |name: &str| error.get(name).and_then(Value::as_array).and_then(<[Value]>::first);
    match first("errors") {
        Some(error) => error.get("code").cloned().unwrap(),
        None => first("Errors").cloned().unwrap(),
    }
}

fn definition(case: &Value) -> Result<PartitionKeyDefinition, String> {
    let paths = case.get("partitionKeyPaths").and_then(Value::as_array).unwrap();
    let path = |path: &Value| value::Path::parse(path.as_str().unwrap());
    let paths = paths.iter().map(path).collect::<Result<Vec<_>, _>>();
    Ok(PartitionKeyDefinition {
        paths: paths.map_err(|error| error.to_string())?,
        kind: match case.get("partitionKeyKind").and_then(Value::as_str).unwrap() {
            "MultiHash" => PartitionKind::MultiHash,
            "Range" => PartitionKind::Range,
            _ => PartitionKind::Hash,
        },
        version: 2,
        system_key: false,
    })
}

fn parameters(case: &Value) -> Vec<(String, Value)> {
    let Some(text) = case.get("in_QueryParameters").and_then(Value::as_str) else {
        return Vec::new();
    };
    let list = Value::parse(text.as_bytes()).unwrap();
    let parameter = |item: &Value| {
        let name = item.get("name").and_then(Value::as_str).unwrap().to_owned();
        (name, item.get("value").cloned().unwrap())
    };
    list.as_array().unwrap().iter().map(parameter).collect()
}

fn compare_counts(plan: &QueryPlan, info: &Value) -> Result<(), String> {
    let count = |name: &str| info.get(name).and_then(Value::as_i64).map(|count| count as u64);
    same("top", &plan.top, &count("top"))?;
    same("offset", &plan.offset, &count("offset"))?;
    same("limit", &plan.limit, &count("limit"))?;
    same_text(plan, info)
}

fn same_text(plan: &QueryPlan, expected: &Value) -> Result<(), String> {
    let expected = expected.get("rewrittenQuery").and_then(Value::as_str).unwrap_or("");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    same("the text", &words(plan.rewritten.as_deref().unwrap_or("")), &words(expected))
}

fn compare(plan: &QueryPlan, expected: &Value) -> Result<(), String> {
    let text = |name: &str| expected.get(name).and_then(Value::as_str);
    let count = |name: &str| text(name).map(|count| count.parse::<u64>().unwrap());
    let list = |name: &str| -> Vec<String> {
        let list = expected.get(name).and_then(Value::as_array).unwrap_or_default();
        list.iter().map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let distinct = match text("distinctType").unwrap() {
        "Ordered" => Distinct::Ordered,
        "Unordered" => Distinct::Unordered,
        _ => Distinct::None,
    };
    same("distinct", &plan.distinct, &distinct)?;
    same("top", &plan.top, &count("top"))?;
    same("offset", &plan.offset, &count("offset"))?;
    same("limit", &plan.limit, &count("limit"))?;
    let direction = |descending| if descending { "Descending" } else { "Ascending" }.to_owned();
    let directions: Vec<String> =
        plan.order_by.iter().map(|key| direction(key.descending)).collect();
    same("order", &directions, &list("orderBy"))?;
    let keys: Vec<String> = plan.order_by.iter().map(|key| key.expression.clone()).collect();
    same("order keys", &keys, &list("orderByExpressions"))?;
    same("group keys", &plan.group_by, &list("groupByExpressions"))?;
    let aliases: Vec<String> = plan.members.iter().map(|(name, _)| name.clone()).collect();
    same("aliases", &aliases, &list("groupByAliases"))?;
    for (name, merge) in &plan.members {
        let merge = merge.map_or("null".to_owned(), |merge| format!("{merge:?}"));
        let map = expected.get("groupByAliasToAggregateType").unwrap();
        same(name, &Some(merge.as_str()), &map.get(name).and_then(Value::as_str))?;
    }
    let aggregates: Vec<String> =
        plan.aggregates.iter().map(|merge| format!("{merge:?}")).collect();
    same("aggregates", &aggregates, &list("aggregates"))?;
    same("value", &plan.has_select_value, &(text("hasSelectValue") == Some("True")))?;
    same_text(plan, expected)?;
    let ranges = list("queryRanges");
    let ours = ranges_of(&plan.reach);
    match ranges.iter().all(|range| ours.contains(&normal(range))) {
        true => Ok(()),
        false => Err(format!("ranges\n    got      {ours:?}\n    expected {ranges:?}")),
    }
}

/// A range of the corpus, with numbers written our way.
fn normal(range: &str) -> String {
    let inner = &range[1..range.len() - 1];
    let Ok(Value::Array(bounds)) = Value::parse(format!("[{inner}]").as_bytes()) else {
        return range.to_owned();
    };
    let Some(Value::Array(components)) = bounds.first() else { return range.to_owned() };
    let component = |value: &Value| match value {
        Value::Object(_) => Component::Undefined,
        value => Component::from_value(Some(value)).unwrap(),
    };
    let key = PartitionKey(components.iter().map(component).collect());
    match bounds.get(1) {
        Some(Value::Array(_)) => format!("[{key},{key}]"),
        _ => range.to_owned(),
    }
}

fn ranges_of(reach: &Reach) -> Vec<String> {
    match reach {
        Reach::All => vec!["[[],\"Infinity\")".to_owned()],
        Reach::Nothing => vec!["[[],[]]".to_owned()],
        Reach::Keys(keys) => keys.iter().map(|key| format!("[{key},{key}]")).collect(),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, expected: &T) -> Result<(), String> {
    match got == expected {
        true => Ok(()),
        false => Err(format!("{what}\n    got      {got:?}\n    expected {expected:?}")),
    }
}
