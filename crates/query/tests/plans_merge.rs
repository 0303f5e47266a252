//! Plans, carried out: documents are cut into ranges, every range answers what the plan sends, and a
//! client merges the answers. The result must be the answer to the query over all documents, to the
//! last row: ranges are taken in the order of the documents, so ties cannot fall differently.

#![expect(clippy::unwrap_used, reason = "a row of another form is a failed test")]

use proptest::prelude::*;
use query::{
    Distinct, Features, Geospatial, Limits, Merge, Options, PlanOptions, QueryPlan, Reach,
    plan_for_clients, prepare, reach,
};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::convert::Infallible;
use value::{
    Component, Number, Object, PartitionKey, PartitionKeyDefinition, PartitionKind, Path, Value,
};

fn options() -> Options {
    Options::new(17_673_242_450_000_000, 3, Limits::memory(8 << 20))
}

fn run(text: &str, documents: &[Value]) -> Vec<Value> {
    let prepared = prepare(text, &[], &options()).unwrap_or_else(|error| panic!("{text}: {error}"));
    let documents = documents.iter().cloned().map(Ok::<Value, Infallible>);
    prepared.run(documents).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

fn definition(paths: &[&str], kind: PartitionKind) -> PartitionKeyDefinition {
    let paths = paths.iter().map(|path| Path::parse(path).unwrap()).collect();
    PartitionKeyDefinition { paths, kind, version: 2, system_key: false }
}

fn plan(text: &str) -> QueryPlan {
    let plan_options = PlanOptions {
        partition_key: &definition(&["/k"], PartitionKind::Hash),
        key: None,
        features: Features::all(),
        has_one_range: false,
        server_merges: true,
    };
    plan_for_clients(text, &[], &options(), &plan_options)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

// ---- a client ----

/// What a client makes of a query over ranges.
fn merged(text: &str, ranges: &[&[Value]]) -> Vec<Value> {
    let plan = plan(text);
    let sent = match &plan.rewritten {
        Some(rewritten) => rewritten.replace("{documentdb-formattableorderbyquery-filter}", "true"),
        None => text.to_owned(),
    };
    let answers = ranges.iter().map(|range| run(&sent, range));
    let mut rows: Vec<Value> = match plan.order_by.is_empty() {
        true => answers.flatten().collect(),
        false => by_order(&plan, answers.collect()),
    };
    if plan.group_by.is_empty() {
        rows = aggregated(&plan, rows);
    }
    rows = distinct(plan.distinct, rows);
    if !plan.group_by.is_empty() {
        rows = grouped(&plan, &rows);
    }
    if let Some(alias) = &plan.distinct_count {
        let count = Value::from(rows.len());
        rows = vec![match alias {
            Some(alias) => Value::Object(Object::from([(alias.clone(), count)])),
            None => count,
        }];
    }
    let take = plan.limit.or(plan.top).map_or(usize::MAX, |take| take as usize);
    rows.into_iter().skip(plan.offset.unwrap_or(0) as usize).take(take).collect()
}

fn by_order(plan: &QueryPlan, answers: Vec<Vec<Value>>) -> Vec<Value> {
    let keys = |row: &Value| -> Vec<Option<Value>> {
        let items = row.get("orderByItems").and_then(Value::as_array).expect("a row has keys");
        assert_eq!(items.len(), plan.order_by.len());
        items.iter().map(|item| item.get("item").cloned()).collect()
    };
    let order = |left: &Value, right: &Value| {
        let (left, right) = (keys(left), keys(right));
        let columns = left.iter().zip(&right).zip(&plan.order_by);
        let compared = columns.map(|((left, right), key)| {
            let order = value::compare(left.as_ref(), right.as_ref());
            if key.descending { order.reverse() } else { order }
        });
        compared.fold(Ordering::Equal, Ordering::then)
    };
    let mut rows = Vec::new();
    for answer in answers {
        assert!(answer.is_sorted_by(|left, right| order(left, right).is_le()));
        assert!(answer.iter().all(|row| row.get("_rid").is_some()));
        rows.extend(answer);
    }
    rows.sort_by(order);
    rows.iter().filter_map(|row| row.get("payload").cloned()).collect()
}

fn distinct(kind: Distinct, rows: Vec<Value>) -> Vec<Value> {
    match kind {
        Distinct::None => rows,
        Distinct::Ordered => {
            let mut kept: Vec<Value> = Vec::new();
            for row in rows {
                if kept.last().is_none_or(|last| identity(last) != identity(&row)) {
                    kept.push(row);
                }
            }
            kept
        }
        Distinct::Unordered => {
            let mut seen = HashSet::new();
            rows.into_iter().filter(|row| seen.insert(identity(row))).collect()
        }
    }
}

/// A text that two values share when they are equal.
fn identity(value: &Value) -> String {
    match value {
        Value::Number(number) => format!("{:?}", number.as_f64() + 0.0),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(identity).collect::<Vec<_>>().join(","))
        }
        Value::Object(object) => {
            let mut members: Vec<String> = object
                .iter()
                .map(|(name, value)| format!("{name:?}:{}", identity(value)))
                .collect();
            members.sort();
            format!("{{{}}}", members.join(","))
        }
        scalar => scalar.to_text(),
    }
}

/// Aggregates over everything: one row of each range becomes one row.
fn aggregated(plan: &QueryPlan, rows: Vec<Value>) -> Vec<Value> {
    if let [merge] = plan.aggregates[..] {
        let partials = rows.iter().map(bare_partial).collect::<Vec<_>>();
        return merge_all(merge, &partials).into_iter().collect();
    }
    if plan.members.is_empty() {
        return rows;
    }
    let payloads: Vec<&Value> = rows.iter().map(|row| row.get("payload").unwrap()).collect();
    vec![merge_members(plan, &payloads)]
}

fn bare_partial(row: &Value) -> &Value {
    let items = row.as_array().expect("the row of a bare aggregate is an array");
    assert_eq!(items.len(), 1);
    &items[0]
}

fn merge_members(plan: &QueryPlan, payloads: &[&Value]) -> Value {
    let mut merged = Object::new();
    for (name, merge) in &plan.members {
        let members: Vec<&Value> = payloads.iter().filter_map(|row| row.get(name)).collect();
        let value = match merge {
            Some(merge) => merge_all(*merge, &members),
            None => members.first().copied().cloned(),
        };
        if let Some(value) = value {
            merged.insert(name.as_str(), value);
        }
    }
    Value::Object(merged)
}

fn grouped(plan: &QueryPlan, rows: &[Value]) -> Vec<Value> {
    let mut groups: Vec<(String, Vec<&Value>)> = Vec::new();
    for row in rows {
        let key = identity(row.get("groupByItems").expect("a row has keys"));
        let at = groups.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        groups[at].1.extend(row.get("payload"));
    }
    let merge = |(_, payloads): &(String, Vec<&Value>)| match plan.aggregates[..] {
        [merge] => {
            let partials: Vec<&Value> = payloads.iter().map(|row| bare_partial(row)).collect();
            merge_all(merge, &partials)
        }
        _ if plan.has_select_value => payloads.first().copied().cloned(),
        _ => Some(merge_members(plan, payloads)),
    };
    groups.iter().filter_map(merge).collect()
}

/// One value out of what the ranges know about it.
fn merge_all(merge: Merge, partials: &[&Value]) -> Option<Value> {
    let number = |value: Option<&Value>| value.and_then(Value::as_f64);
    let sum = |name: Option<&str>| -> Option<f64> {
        let part = |partial: &&Value| match name {
            Some(name) => number(partial.get("item")?.get(name)),
            None => number(partial.get("item")),
        };
        partials.iter().map(part).sum()
    };
    let extreme = |name: &str, keep: Ordering| -> Option<Value> {
        let mut best: Option<&Value> = None;
        for partial in partials {
            let known = partial.get("item2").expect("an extreme comes with its count");
            if number(known.get("count")) == Some(0.0) {
                continue;
            }
            let value = known.get(name)?;
            assert_eq!(partial.get("item"), Some(value));
            if best.is_none_or(|best| value::compare(Some(value), Some(best)) == keep) {
                best = Some(value);
            }
        }
        best.cloned()
    };
    let list = || -> Vec<Value> {
        let items =
            |partial: &&Value| partial.get("item").and_then(Value::as_array).unwrap().to_vec();
        partials.iter().flat_map(items).collect()
    };
    match merge {
        Merge::Count | Merge::CountIf | Merge::Sum => sum(None).map(Value::from),
        Merge::Average => {
            let (sum, count) = (sum(Some("sum"))?, sum(Some("count"))?);
            (count > 0.0).then(|| Value::from(sum / count))
        }
        Merge::Min => extreme("min", Ordering::Less),
        Merge::Max => extreme("max", Ordering::Greater),
        Merge::MakeList => Some(Value::Array(list())),
        Merge::MakeSet => Some(Value::Array(distinct(Distinct::Unordered, list()))),
    }
}

// ---- documents and queries ----

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (-2i32..4).prop_map(|number| Value::Number(Number::from(number))),
        1 => Just(Value::Number(Number::from(1.5))),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        2 => prop::sample::select(vec!["", "a", "b", "B"]).prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => scalar(),
        1 => prop::collection::vec(scalar(), 0..3).prop_map(Value::Array),
        1 => scalar().prop_map(|value| Value::Object(Object::from([("p", value)]))),
    ]
}

fn documents() -> impl Strategy<Value = Vec<Value>> {
    let members = (
        prop::option::of(value()),
        prop::option::of(value()),
        prop::option::weighted(0.9, 0i32..4),
        prop::collection::vec(scalar(), 0..3),
    );
    prop::collection::vec(members, 0..12).prop_map(|documents| {
        let document = |(at, (a, b, n, l)): (usize, (Option<Value>, Option<Value>, _, _))| {
            let mut object = Object::from([("id", Value::from(format!("d{at}")))]);
            let n: Option<i32> = n;
            let members = [
                ("a", a),
                ("b", b),
                ("n", n.map(|number| Value::Number(Number::from(number)))),
                ("l", Some(Value::Array(l))),
                ("_rid", Some(Value::from(format!("rid{at}")))),
            ];
            for (name, value) in members {
                if let Some(value) = value {
                    object.insert(name, value);
                }
            }
            Value::Object(object)
        };
        documents.into_iter().enumerate().map(document).collect()
    })
}

fn one_of(list: &'static [&'static str]) -> impl Strategy<Value = &'static str> + Clone {
    prop::sample::select(list)
}

const FILTERS: &[&str] = &[
    "",
    " WHERE c.n > 1",
    " WHERE c.n > 0 AND c.a != 2",
    " WHERE c.n = 1 OR c.b = true OR c.a = 'a'",
    " WHERE EXISTS(SELECT VALUE x FROM x IN c.l WHERE x = 1)",
    " WHERE NOT IS_DEFINED(c.a)",
    " WHERE false",
];
const ROWS: &[&str] = &[
    "*",
    "VALUE c",
    "VALUE c.a",
    "VALUE c.b.p",
    "VALUE [c.a, c.b]",
    "VALUE {x: c.a}",
    "VALUE 1",
    "c.a",
    "c.a, c.b",
    "c.n + 1, c['a'] AS x, c.l[0], 'k'",
    "c.a AS x, c.b AS x",
    "(SELECT VALUE COUNT(1) FROM x IN c.l) AS s, c.n",
];
const ORDERS: &[&str] = &[
    "",
    " ORDER BY c.a",
    " ORDER BY c.a DESC",
    " ORDER BY c.a ASC, c.b DESC",
    " ORDER BY c.n, c.a, c.b",
    " ORDER BY c.b.p DESC",
    " ORDER BY c.l[0]",
];
const AGGREGATES: &[&str] = &[
    "COUNT(1)",
    "COUNT(c.a)",
    "SUM(c.n)",
    "SUM(c.a)",
    "AVG(c.n)",
    "Avg(c.a)",
    "MIN(c.a)",
    "max(c.a)",
    "MAX(c.n)",
    "MIN(c.b.p)",
    "COUNTIF(c.n = 1)",
    "MAKELIST(c.a)",
    "MAKESET(c.n)",
    "SUM(c.n * 2 + 1)",
];
const KEYS: &[&str] = &["c.a", "c.n", "c.b", "c.n % 2", "LOWER(c.a)"];

fn limits() -> impl Strategy<Value = (String, String)> {
    prop_oneof![
        3 => Just((String::new(), String::new())),
        1 => (0..8u32).prop_map(|top| (format!("TOP {top} "), String::new())),
        1 => (0..5u32, 0..8u32).prop_map(|(offset, limit)| {
            (String::new(), format!(" OFFSET {offset} LIMIT {limit}"))
        }),
    ]
}

fn distinct_word() -> impl Strategy<Value = &'static str> {
    one_of(&["", "", "DISTINCT "])
}

/// Queries of rows, of aggregates and of groups.
fn query() -> impl Strategy<Value = String> {
    let rows = (distinct_word(), limits(), one_of(ROWS), one_of(FILTERS), one_of(ORDERS)).prop_map(
        |(distinct, (top, page), rows, filter, order)| {
            format!("SELECT {distinct}{top}{rows} FROM c{filter}{order}{page}")
        },
    );
    let joined =
        (limits(), one_of(FILTERS), one_of(ORDERS)).prop_map(|((top, page), filter, order)| {
            format!("SELECT {top}c.a, t, c.id FROM c JOIN t IN c.l{filter}{order}{page}")
        });
    let list = prop::collection::vec((one_of(AGGREGATES), any::<bool>()), 1..4).prop_map(|items| {
        let item = |(at, (item, named)): (usize, (&str, bool))| match named {
            true => format!("{item} AS x{at}"),
            false => item.to_owned(),
        };
        items.into_iter().enumerate().map(item).collect::<Vec<_>>().join(", ")
    });
    let bare = one_of(AGGREGATES).prop_map(|aggregate| format!("VALUE {aggregate}"));
    let aggregates = prop_oneof![bare, list.clone()].boxed();
    let sources = one_of(&["c", "c", "c JOIN t IN c.l", "(SELECT * FROM d) c"]);
    let whole = (distinct_word(), limits(), aggregates.clone(), sources, one_of(FILTERS)).prop_map(
        |(distinct, (top, page), selection, from, filter)| {
            format!("SELECT {distinct}{top}{selection} FROM {from}{filter}{page}")
        },
    );
    let keys = prop::sample::subsequence(KEYS, 1..=2);
    let selected = prop_oneof![Just("all"), Just("aggregates"), Just("first"), Just("value")];
    let grouped = (limits(), keys, selected, aggregates, list, one_of(FILTERS)).prop_map(
        |((top, page), keys, selected, aggregates, list, filter)| {
            let all = keys.join(", ");
            let selection = match selected {
                "all" => format!("{all}, {list}"),
                "aggregates" => aggregates,
                "first" => keys[0].to_owned(),
                _ => format!("VALUE {{k: {}, one: 1}}", keys[0]),
            };
            format!("SELECT {top}{selection} FROM c{filter} GROUP BY {all}{page}")
        },
    );
    let counted = (one_of(&["VALUE COUNT(1)", "COUNT(t)", "COUNT(1) AS n"]), one_of(FILTERS))
        .prop_map(|(count, filter)| {
            format!("SELECT {count} FROM (SELECT DISTINCT c.a, c.n FROM c{filter}) AS t")
        });
    prop_oneof![4 => rows, 1 => joined, 3 => whole, 3 => grouped, 1 => counted]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn merging_the_ranges_answers_the_query(
        text in query(),
        documents in documents(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(documents.len() + 1)).collect();
        cuts.extend([0, documents.len()]);
        cuts.sort_unstable();
        let ranges: Vec<&[Value]> =
            cuts.windows(2).map(|pair| &documents[pair[0]..pair[1]]).collect();
        let expected = run(&text, &documents);
        let got = merged(&text, &ranges);
        let identities = |rows: &[Value]| rows.iter().map(identity).collect::<Vec<_>>();
        prop_assert_eq!(identities(&got), identities(&expected), "{}", text);
    }
}

// ---- partitions ----

fn key_path() -> impl Strategy<Value = &'static str> {
    one_of(&["c.k", "c['k']", "c.o.k", "c.n"])
}

fn constant() -> impl Strategy<Value = &'static str> {
    one_of(&[
        "1",
        "2",
        "-1",
        "1.0",
        "-0",
        "0",
        "'a'",
        "\"b\"",
        "null",
        "true",
        "false",
        "[]",
        "[1]",
        "{}",
        "undefined",
        "1 + 1",
        "LOWER('A')",
        "c.n",
        "@p",
    ])
}

fn condition() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => (key_path(), constant()).prop_map(|(path, value)| format!("{path} = {value}")),
        1 => (key_path(), constant()).prop_map(|(path, value)| format!("{value} = {path}")),
        1 => (key_path(), constant()).prop_map(|(path, value)| format!("{path} != {value}")),
        1 => (key_path(), constant()).prop_map(|(path, value)| format!("{path} >= {value}")),
        1 => (key_path(), constant()).prop_map(|(path, value)| format!("ABS({path}) = {value}")),
        2 => (key_path(), prop::collection::vec(constant(), 1..4))
            .prop_map(|(path, list)| format!("{path} IN ({})", list.join(", "))),
        1 => (key_path(), prop::collection::vec(constant(), 0..4))
            .prop_map(|(path, list)| format!("ARRAY_CONTAINS([{}], {path})", list.join(", "))),
        1 => (key_path(), one_of(&["'a'", "'a%'", "'!a' ESCAPE '!'", "'%'", "@p"]))
            .prop_map(|(path, pattern)| format!("{path} LIKE {pattern}")),
        2 => (key_path(), one_of(&["IS_NULL", "IS_BOOL", "IS_DEFINED", "IS_ARRAY", "NOT IS_DEFINED"]))
            .prop_map(|(path, test)| format!("{test}({path})")),
        1 => key_path().prop_map(str::to_owned),
        1 => key_path().prop_map(|path| format!("NOT {path}")),
        1 => one_of(&["true", "false", "1", "NOT true", "'a' = 'a'"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|terms| format!("({})", terms.join(" AND "))),
            3 => prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|terms| format!("({})", terms.join(" OR "))),
            1 => inner.prop_map(|term| format!("NOT ({term})")),
        ]
    })
}

fn keyed_documents() -> impl Strategy<Value = Vec<Value>> {
    let member = || prop::option::of(value());
    prop::collection::vec((member(), member(), member()), 1..20).prop_map(|documents| {
        let document = |(k, inner, n): (Option<Value>, Option<Value>, Option<Value>)| {
            let inner: Object = inner.into_iter().map(|value| ("k", value)).collect();
            let mut object = Object::from([("o", Value::Object(inner))]);
            for (name, value) in [("k", k), ("n", n)] {
                if let Some(value) = value {
                    object.insert(name, value);
                }
            }
            Value::Object(object)
        };
        documents.into_iter().map(document).collect()
    })
}

fn reaches(reach: &Reach, key: &PartitionKey) -> bool {
    match reach {
        Reach::All => true,
        Reach::Nothing => false,
        Reach::Keys(keys) => keys.iter().any(|prefix| key.0.starts_with(&prefix.0)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn a_document_that_passes_the_filter_is_within_reach(
        condition in condition(),
        documents in keyed_documents(),
    ) {
        let text = format!("SELECT * FROM c WHERE {condition}");
        let parameters = [("@p".to_owned(), Value::from("a"))];
        let query = sql::parse(&text).unwrap();
        let prepared = prepare(&text, &parameters, &options()).unwrap();
        for (paths, kind) in [
            (&["/k"][..], PartitionKind::Hash),
            (&["/k", "/o/k"], PartitionKind::Hash),
            (&["/k", "/o/k"], PartitionKind::MultiHash),
        ] {
            let definition = definition(paths, kind);
            let reach = reach(&query, &parameters, &definition, Geospatial::Geography);
            if let Reach::Keys(keys) = &reach {
                prop_assert!(keys.is_sorted());
                let overlap = keys.windows(2).any(|pair| pair[1].0.starts_with(&pair[0].0));
                prop_assert!(!overlap, "{keys:?}");
            }
            for document in &documents {
                let rows = prepared.run([Ok::<Value, Infallible>(document.clone())]).unwrap();
                let Value::Object(object) = document else { unreachable!("documents are objects") };
                let key = definition.extract(object);
                let is_reached = rows.is_empty() || reaches(&reach, &key);
                prop_assert!(is_reached, "{condition} keeps {document}, key {key}: {reach:?}");
            }
        }
    }
}

#[test]
fn long_filters_are_derived_in_reasonable_time() {
    let keys = definition(&["/k", "/o/k"], PartitionKind::MultiHash);
    let derived = |filter: String| {
        let query = sql::parse(&format!("SELECT * FROM c WHERE {filter}")).unwrap();
        reach(&query, &[], &keys, Geospatial::Geography)
    };
    let chain: Vec<String> = (0..3_000).map(|at| format!("c.k = {at}")).collect();
    assert!(matches!(derived(chain.join(" OR ")), Reach::Keys(keys) if keys.len() == 3_000));
    let list: Vec<String> = (0..30_000).map(|at| at.to_string()).collect();
    assert_eq!(derived(format!("c.k IN ({})", list.join(", "))), Reach::All);
    let pairs: Vec<String> =
        (0..2_000).map(|at| format!("(c.k = {at} AND c.o.k = {at})")).collect();
    assert_eq!(derived(pairs.join(" OR ")), Reach::All);
    // A conjunction that cannot be multiplied out keeps a part of what it says.
    let few = pairs[..100].join(" OR ");
    let reach = derived(format!("({few}) AND ({few})"));
    assert!(matches!(reach, Reach::Keys(keys) if keys.len() == 100));
    let constants: Vec<String> = (0..1_000).map(|at| format!("c.k = {at} + 1")).collect();
    assert_eq!(derived(constants.join(" OR ")), Reach::All);
    let undefined = derived("NOT IS_DEFINED(c.k)".to_owned());
    assert_eq!(undefined, Reach::Keys(vec![PartitionKey(vec![Component::Undefined])]));
}
