//! Plans of our own making: what each kind of query becomes, what is refused, and what the rewritten
//! texts answer.

#![expect(clippy::unwrap_used, reason = "what cannot be planned is a failed test")]

use query::{
    Distinct, Features, Limits, Options, PlanOptions, QueryPlan, Reach, plan_for_clients, prepare,
};
use std::convert::Infallible;
use value::{PartitionKey, PartitionKeyDefinition, PartitionKind, Path, Value};

const EVERYTHING: &str = "OrderBy,MultipleOrderBy,Top,OffsetAndLimit,Distinct,Aggregate,GroupBy,\
    NonValueAggregate,MultipleAggregates,DCount,CountIf,ListAndSetAggregate";

/// Where a query is planned.
#[derive(Clone, Copy)]
struct Place {
    paths: &'static [&'static str],
    key: Option<&'static str>,
    features: &'static str,
    has_one_range: bool,
    server_merges: bool,
}

const BY_PK: Place = Place {
    paths: &["/pk"],
    key: None,
    features: EVERYTHING,
    has_one_range: false,
    server_merges: true,
};

impl Place {
    fn plan(self, text: &str) -> Result<QueryPlan, String> {
        let kind = match self.paths.len() {
            1 => PartitionKind::Hash,
            _ => PartitionKind::MultiHash,
        };
        let paths = self.paths.iter().map(|path| Path::parse(path).unwrap()).collect();
        let partition_key = &PartitionKeyDefinition { paths, kind, version: 2, system_key: false };
        let key = self.key.map(|key| PartitionKey::parse_header(key).unwrap());
        let plan_options = PlanOptions {
            partition_key,
            key: key.as_ref(),
            features: Features::parse(self.features),
            has_one_range: self.has_one_range,
            server_merges: self.server_merges,
        };
        let parameters = [("@n".to_owned(), Value::from(7)), ("@k".to_owned(), Value::from("x"))];
        plan_for_clients(text, &parameters, &options(), &plan_options)
            .map_err(|error| error.text().to_owned())
    }

    #[track_caller]
    fn check(self, text: &str, expected: &[&str]) {
        let plan = self.plan(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(summary(&plan), expected, "{text}");
    }

    #[track_caller]
    fn check_refused(self, text: &str, expected: &str) {
        match self.plan(text) {
            Ok(plan) => panic!("{text}: {plan:?}"),
            Err(error) => assert!(error.contains(expected), "{text}: {error}"),
        }
    }
}

fn options() -> Options {
    Options::new(17_673_242_450_000_000, 3, Limits::memory(8 << 20))
}

/// What a plan says, line by line; the lines of the text are separated by bars.
fn summary(plan: &QueryPlan) -> Vec<String> {
    let mut lines = Vec::new();
    if plan.distinct != Distinct::None {
        lines.push(format!("distinct {:?}", plan.distinct).to_lowercase());
    }
    for (name, count) in [("top", plan.top), ("offset", plan.offset), ("limit", plan.limit)] {
        lines.extend(count.map(|count| format!("{name} {count}")));
    }
    for key in &plan.order_by {
        let direction = if key.descending { " descending" } else { "" };
        lines.push(format!("order {}{direction}", key.expression));
    }
    lines.extend(plan.group_by.iter().map(|key| format!("group {key}")));
    for (name, merge) in &plan.members {
        lines.push(match merge {
            Some(merge) => format!("member {name}: {merge:?}"),
            None => format!("member {name}"),
        });
    }
    lines.extend(plan.aggregates.iter().map(|merge| format!("value {merge:?}")));
    if let Some(alias) = &plan.distinct_count {
        lines.push(format!("count {}", alias.as_deref().unwrap_or("value")));
    }
    if let Some(text) = &plan.rewritten {
        let text = text.replace("{documentdb-formattableorderbyquery-filter}", "{…}");
        lines.push(text.replace('\n', " | "));
    }
    match &plan.reach {
        Reach::All => {}
        Reach::Nothing => lines.push("reach nothing".to_owned()),
        Reach::Keys(keys) => lines.extend(keys.iter().map(|key| format!("reach {key}"))),
    }
    lines
}

#[test]
fn what_ranges_can_answer_alone_is_not_rewritten() {
    BY_PK.check("SELECT * FROM c", &[]);
    BY_PK.check("SELECT VALUE t FROM c JOIN t IN c.tags WHERE t = 'a'", &[]);
    BY_PK.check("SELECT x FROM (SELECT VALUE c.a FROM c) x", &[]);
    BY_PK.check("SELECT TOP 3 * FROM c", &["top 3"]);
    BY_PK.check("SELECT TOP @n * FROM c", &["top 7"]);
    BY_PK.check("SELECT DISTINCT c.a FROM c", &["distinct unordered"]);
    // An aggregate of a subquery is over one document.
    BY_PK.check("SELECT (SELECT VALUE COUNT(1) FROM t IN c.tags) AS n FROM c", &[]);
}

#[test]
fn what_reads_no_documents_is_asked_of_one_range() {
    BY_PK.check("SELECT VALUE 1", &["reach nothing"]);
    BY_PK
        .check("SELECT DISTINCT TOP 1 VALUE x FROM x IN (SELECT VALUE [1, 1])", &["reach nothing"]);
    BY_PK.check("SELECT VALUE COUNT(1)", &["reach nothing"]);
}

#[test]
fn limits_go_to_the_ranges_where_the_client_drops_nothing() {
    BY_PK.check(
        "SELECT c.a FROM c WHERE c.b = 1 OFFSET 2 LIMIT @n",
        &["offset 2", "limit 7", "SELECT c.a | FROM c | WHERE (c.b = 1) | OFFSET 0 LIMIT 9"],
    );
    BY_PK.check(
        "SELECT DISTINCT TOP 2 c.a FROM c",
        &["distinct unordered", "top 2", "SELECT DISTINCT c.a | FROM c"],
    );
    BY_PK.check(
        "SELECT DISTINCT c.a FROM c OFFSET 1 LIMIT 2",
        &["distinct unordered", "offset 1", "limit 2", "SELECT DISTINCT c.a | FROM c"],
    );
    // More than a query may ask for: the client alone limits.
    BY_PK.check(
        "SELECT * FROM c OFFSET 4294967295 LIMIT 4294967295",
        &["offset 4294967295", "limit 4294967295", "SELECT * | FROM c"],
    );
    // One logical partition is one range's business.
    BY_PK.check("SELECT * FROM c WHERE c.pk = @k OFFSET 1 LIMIT 2", &[r#"reach ["x"]"#]);
    let pinned = Place { key: Some(r#"["x"]"#), ..BY_PK };
    pinned.check("SELECT * FROM c OFFSET 1 LIMIT 2", &[r#"reach ["x"]"#]);
    let levels = Place { paths: &["/a", "/b"], ..BY_PK };
    levels.check(
        "SELECT * FROM c WHERE c.a = 1 OFFSET 1 LIMIT 2",
        &[
            "offset 1",
            "limit 2",
            "SELECT * | FROM c | WHERE (c.a = 1) | OFFSET 0 LIMIT 3",
            "reach [1]",
        ],
    );
}

#[test]
fn sorted_queries_bring_their_keys() {
    BY_PK.check(
        "SELECT * FROM docs AS d ORDER BY d.a.b DESC, d['c d']",
        &[
            "order d.a.b descending",
            "order d[\"c d\"]",
            "SELECT d._rid, [{\"item\": d.a.b}, {\"item\": d[\"c d\"]}] AS orderByItems, d AS payload \
             | FROM docs AS d | WHERE ({…}) | ORDER BY d.a.b DESC, d[\"c d\"]",
        ],
    );
    BY_PK.check(
        "SELECT c.id, t, c.n + 1 FROM c JOIN t IN c.tags WHERE c.n > 1 AND t != 'a' \
         ORDER BY c.n ASC OFFSET 1 LIMIT 2",
        &[
            "offset 1",
            "limit 2",
            "order c.n",
            "SELECT c._rid, [{\"item\": c.n}] AS orderByItems, \
             {\"id\": c.id, \"t\": t, \"$1\": (c.n + 1)} AS payload | FROM c | JOIN t IN c.tags \
             | WHERE (((c.n > 1) AND (t != \"a\")) AND ({…})) | ORDER BY c.n ASC | OFFSET 0 LIMIT 3",
        ],
    );
    BY_PK.check(
        "SELECT DISTINCT TOP 2 VALUE c['a'] FROM c WHERE c.b OR c.d ORDER BY c.a",
        &[
            "distinct ordered",
            "top 2",
            "order c.a",
            "SELECT c._rid, [{\"item\": c.a}] AS orderByItems, c[\"a\"] AS payload | FROM c \
             | WHERE (((c.b OR c.d) AND ({…})) AND IS_DEFINED(c[\"a\"])) | ORDER BY c.a",
        ],
    );
    BY_PK.check(
        "SELECT DISTINCT c.a FROM c ORDER BY c.a",
        &[
            "distinct unordered",
            "order c.a",
            "SELECT c._rid, [{\"item\": c.a}] AS orderByItems, {\"a\": c.a} AS payload | FROM c \
             | WHERE ({…}) | ORDER BY c.a",
        ],
    );
    BY_PK.check_refused("SELECT * FROM c.a ORDER BY a.b", "sorts what lies inside of documents");
}

#[test]
fn aggregates_bring_what_is_needed_to_merge_them() {
    BY_PK.check(
        "SELECT VALUE min(c.a) FROM c ORDER BY c.a",
        &[
            "value Min",
            "SELECT VALUE [{\"item\": min(c.a), \"item2\": {\"min\": min(c.a), \"count\": \
             COUNT(c.a)}}] | FROM c",
        ],
    );
    BY_PK.check(
        "SELECT DISTINCT TOP 1 COUNTIF(c.a > 1) AS n, 'x' AS kind, MAKESET(c.a) FROM c",
        &[
            "top 1",
            "member n: CountIf",
            "member kind",
            "member $1: MakeSet",
            "SELECT {\"n\": {\"item\": COUNTIF((c.a > 1))}, \"kind\": \"x\", \"$1\": {\"item\": \
             MAKESET(c.a)}} AS payload | FROM c",
        ],
    );
    BY_PK.check(
        "SELECT c.a, AVG(c.n) AS mean FROM c GROUP BY c.a, c['b'] OFFSET 1 LIMIT 2",
        &[
            "offset 1",
            "limit 2",
            "group c.a",
            "group c[\"b\"]",
            "member a",
            "member mean: Average",
            "SELECT [{\"item\": c.a}, {\"item\": c[\"b\"]}] AS groupByItems, {\"a\": c.a, \"mean\": \
             {\"item\": {\"sum\": SUM(c.n), \"count\": COUNT(c.n)}}} AS payload | FROM c \
             | GROUP BY c.a, c[\"b\"]",
        ],
    );
    BY_PK.check(
        "SELECT VALUE LOWER(c.a) FROM c GROUP BY LOWER(c.a)",
        &[
            "group LOWER(c.a)",
            "SELECT [{\"item\": LOWER(c.a)}] AS groupByItems, LOWER(c.a) AS payload | FROM c \
             | GROUP BY LOWER(c.a)",
        ],
    );
    for text in [
        "SELECT VALUE COUNT(1) + 1 FROM c",
        "SELECT [SUM(c.a)] FROM c",
        "SELECT {n: COUNT(1)} FROM c",
    ] {
        BY_PK.check_refused(text, "Compositions of aggregates");
    }
    BY_PK.check_refused("SELECT SUM(c.a) AS x, MAX(c.a) AS x FROM c", "the same name");
}

#[test]
fn subqueries_over_all_documents_are_counted_or_refused() {
    BY_PK.check(
        "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.a, c.b FROM c WHERE c.n = 1)",
        &[
            "distinct unordered",
            "count value",
            "SELECT DISTINCT c.a, c.b | FROM c | WHERE (c.n = 1)",
        ],
    );
    BY_PK.check(
        "SELECT COUNT(t) AS n FROM (SELECT DISTINCT VALUE c.a FROM c) AS t",
        &["distinct unordered", "count n", "SELECT DISTINCT VALUE c.a | FROM c"],
    );
    for text in [
        "SELECT VALUE COUNT(t.a) FROM (SELECT DISTINCT c.a FROM c) AS t",
        "SELECT VALUE t FROM (SELECT DISTINCT VALUE c.a FROM c) AS t",
        "SELECT VALUE SUM(t) FROM (SELECT VALUE COUNT(1) FROM c GROUP BY c.a) AS t",
        "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.a FROM c) AS t WHERE t > 1",
        "SELECT DISTINCT COUNT(1) FROM c GROUP BY c.a",
    ] {
        BY_PK.check_refused(text, "cannot be divided over several partition key ranges");
        let pinned = Place { key: Some(r#"["x"]"#), ..BY_PK };
        pinned.check(text, &[r#"reach ["x"]"#]);
        Place { has_one_range: true, ..BY_PK }.check(text, &[]);
    }
    BY_PK.check(
        "SELECT DISTINCT c.a, COUNT(1) FROM c GROUP BY c['a']",
        &[
            "group c[\"a\"]",
            "member a",
            "member $1: Count",
            "SELECT [{\"item\": c[\"a\"]}] AS groupByItems, {\"a\": c.a, \"$1\": {\"item\": \
             COUNT(1)}} AS payload | FROM c | GROUP BY c[\"a\"]",
        ],
    );
}

#[test]
fn subqueries_are_indented_in_texts() {
    let plan = BY_PK
        .plan(
            "SELECT COUNT(1) FROM (SELECT * FROM (SELECT VALUE d FROM docs AS d)) AS x \
             JOIN y IN (SELECT VALUE [1]) WHERE EXISTS(SELECT VALUE z FROM z IN x.l)",
        )
        .unwrap();
    let expected = "SELECT {\"$1\": {\"item\": COUNT(1)}} AS payload
FROM (
    SELECT *
    FROM (
        SELECT VALUE d
        FROM docs AS d
    )
) AS x
JOIN y IN (
    SELECT VALUE [1]
)
WHERE EXISTS(SELECT VALUE z FROM z IN x.l)";
    assert_eq!(plan.rewritten.as_deref(), Some(expected));
}

#[test]
fn a_client_gets_what_it_can_do() {
    let check_needs = |text: &str, features: &[&str]| {
        let announced = features.join(", ");
        let able = Place { features: Box::leak(announced.into_boxed_str()), ..BY_PK };
        able.plan(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        for missing in features {
            let rest = EVERYTHING.split(',').filter(|name| name != missing);
            let rest = rest.collect::<Vec<_>>().join(",");
            let unable = Place { features: Box::leak(rest.into_boxed_str()), ..BY_PK };
            let refusal =
                format!("Query contained {missing}, which the calling client does not support.");
            unable.check_refused(text, &refusal);
            Place { has_one_range: true, ..unable }.check(text, &[]);
        }
    };
    check_needs("SELECT * FROM c", &[]);
    check_needs("SELECT TOP 1 * FROM c", &["Top"]);
    check_needs("SELECT * FROM c OFFSET 1 LIMIT 1", &["OffsetAndLimit"]);
    check_needs("SELECT * FROM c ORDER BY c.a", &["OrderBy"]);
    check_needs("SELECT * FROM c ORDER BY c.a, c.b", &["MultipleOrderBy"]);
    check_needs("SELECT DISTINCT c.a FROM c", &["Distinct"]);
    check_needs("SELECT VALUE COUNT(1) FROM c", &["Aggregate"]);
    check_needs("SELECT COUNT(1) FROM c", &["NonValueAggregate"]);
    check_needs("SELECT COUNT(1), SUM(c.a) FROM c", &["NonValueAggregate", "MultipleAggregates"]);
    check_needs("SELECT VALUE MAKELIST(c.a) FROM c", &["Aggregate", "ListAndSetAggregate"]);
    check_needs("SELECT COUNTIF(c.a) FROM c", &["NonValueAggregate", "CountIf"]);
    check_needs("SELECT c.a FROM c GROUP BY c.a", &["GroupBy"]);
    check_needs("SELECT COUNT(1) FROM (SELECT DISTINCT VALUE c.a FROM c)", &["Distinct", "DCount"]);
    // Several partitions of one range are asked once, so that the range sees all of them.
    let only = Place { features: "", has_one_range: true, ..BY_PK };
    only.check("SELECT VALUE COUNT(1) FROM c WHERE c.pk IN ('a', 'b')", &[]);
    let one = Place { has_one_range: false, ..only };
    one.check("SELECT VALUE COUNT(1) FROM c WHERE c.pk IN ('a', 'a')", &[r#"reach ["a"]"#]);
    one.check("SELECT VALUE COUNT(1) FROM c WHERE false", &["reach nothing"]);
    // Where merging is left to clients, only a key in the request spares them.
    let text = "SELECT COUNT(1) AS n FROM c WHERE c.pk = 'a'";
    one.check(text, &[r#"reach ["a"]"#]);
    for has_one_range in [false, true] {
        let left = Place { server_merges: false, has_one_range, ..one };
        left.check_refused(text, "which the calling client does not support.");
        Place { key: Some(r#"["a"]"#), ..left }.check(text, &[r#"reach ["a"]"#]);
        left.check("SELECT * FROM c", &[]);
    }
}

/// A rewritten text nests deeper than the query, and there is a limit to that.
#[test]
fn a_text_that_could_not_be_sent_back_is_not_given_away() {
    let mut refused = 0;
    for depth in 1..=sql::DEPTH_MAX {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        let text = format!("SELECT VALUE {open}{close} FROM c ORDER BY c.a");
        if sql::parse(&text).is_ok() {
            refused += usize::from(BY_PK.plan(&text).is_err());
            Place { has_one_range: true, ..BY_PK }.plan(&text).unwrap();
        }
    }
    assert!((1..5).contains(&refused), "{refused} texts are refused");
}

#[test]
fn filters_say_which_partitions_are_reached() {
    let check = |place: Place, filter: &str, expected: &[&str]| {
        let expected: Vec<String> = expected.iter().map(|key| format!("reach {key}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        place.check(&format!("SELECT * FROM c WHERE {filter}"), &expected);
    };
    check(BY_PK, "c.pk = UPPER(@k)", &[r#"["X"]"#]);
    check(BY_PK, "(c.pk = 1 OR 2 = c['pk']) AND c.pk IN (2, 3)", &["[2]"]);
    check(BY_PK, "c.pk IN (@k, null, undefined)", &["[null]", r#"["x"]"#]);
    check(BY_PK, "NOT c.pk", &["[false]"]);
    check(BY_PK, "NOT IS_DEFINED(c.pk)", &["[{}]"]);
    check(BY_PK, "c.pk LIKE 'a!_' ESCAPE '!'", &[r#"["a_"]"#]);
    check(BY_PK, "c.pk = 1 AND c.pk = '1'", &["nothing"]);
    check(BY_PK, "c.pk = 1 AND 1 > 2", &["nothing"]);
    for everything in [
        "c.pk != 1",
        "NOT (c.pk = 1)",
        "c.pk = 1 OR c.a = 1",
        "c.pk = c.a",
        "c.pk = (SELECT VALUE 1)",
        "c.pk = RAND()",
        "c.pk.a = 1",
        "c.pk[0] = 1",
        "EXISTS(SELECT VALUE 1 FROM c IN c.l WHERE c.pk = 1)",
        "c.pk LIKE 'a_'",
        "LOWER(c.pk) = 'a'",
    ] {
        check(BY_PK, everything, &[]);
    }
    let levels = Place { paths: &["/a", "/b", "/c"], ..BY_PK };
    check(levels, "c.a = 1 AND c.c = 3", &["[1]"]);
    check(levels, "c.a IN (2, 1) AND c.b = 3", &["[1,3]", "[2,3]"]);
    check(levels, "c.a = 1 AND (c.b = 2 OR c.b = 3) AND c.c = 4", &["[1,2,4]", "[1,3,4]"]);
    check(levels, "c.b = 2 AND c.c = 3", &[]);
    // A partition of the request wins over the filter, which stays in the text.
    let confined = Place { key: Some("[7]"), ..BY_PK };
    check(confined, "c.pk = 1", &["[7]"]);
}

/// The rows of a text that a plan sends to a range.
#[track_caller]
fn check_rows(text: &str, documents: &[&str], expected: &[&str]) {
    let plan = BY_PK.plan(text).unwrap();
    let sent =
        plan.rewritten.unwrap().replace("{documentdb-formattableorderbyquery-filter}", "true");
    let prepared = prepare(&sent, &[], &options()).unwrap();
    let documents = documents.iter().map(|text| Value::parse(text.as_bytes()).unwrap());
    let rows = prepared.run(documents.map(Ok::<Value, Infallible>)).unwrap();
    let rows: Vec<String> = rows.iter().map(Value::to_text).collect();
    assert_eq!(rows, expected, "{sent}");
}

#[test]
fn rows_are_what_clients_take_apart() {
    let documents =
        &[r#"{"_rid":"r1","a":2,"b":"x"}"#, r#"{"_rid":"r2","b":[1]}"#, r#"{"_rid":"r3","a":1}"#];
    check_rows(
        "SELECT * FROM c ORDER BY c.a",
        documents,
        &[
            r#"{"_rid":"r2","orderByItems":[{}],"payload":{"_rid":"r2","b":[1]}}"#,
            r#"{"_rid":"r3","orderByItems":[{"item":1}],"payload":{"_rid":"r3","a":1}}"#,
            r#"{"_rid":"r1","orderByItems":[{"item":2}],"payload":{"_rid":"r1","a":2,"b":"x"}}"#,
        ],
    );
    check_rows(
        "SELECT VALUE c.b FROM c ORDER BY c.a DESC",
        documents,
        &[
            r#"{"_rid":"r1","orderByItems":[{"item":2}],"payload":"x"}"#,
            r#"{"_rid":"r2","orderByItems":[{}],"payload":[1]}"#,
        ],
    );
    check_rows(
        "SELECT VALUE MIN(c.a) FROM c",
        documents,
        &[r#"[{"item":1,"item2":{"min":1,"count":2}}]"#],
    );
    // An array spoils the least value, which the count tells from there being none.
    check_rows("SELECT VALUE MIN(c.b) FROM c", documents, &[r#"[{"item2":{"count":2}}]"#]);
    check_rows("SELECT VALUE MIN(c.z) FROM c", documents, &[r#"[{"item2":{"count":0}}]"#]);
    check_rows("SELECT VALUE SUM(c.b) FROM c", documents, &["[{}]"]);
    check_rows("SELECT VALUE AVG(c.a) FROM c", documents, &[r#"[{"item":{"sum":3,"count":2}}]"#]);
    check_rows("SELECT VALUE AVG(c.b) FROM c", documents, &[r#"[{"item":{"count":2}}]"#]);
    check_rows("SELECT COUNT(1) FROM c", &[], &[r#"{"payload":{"$1":{"item":0}}}"#]);
    check_rows(
        "SELECT c.a, COUNT(1) AS n FROM c GROUP BY c.a",
        documents,
        &[
            r#"{"groupByItems":[{"item":2}],"payload":{"a":2,"n":{"item":1}}}"#,
            r#"{"groupByItems":[{}],"payload":{"n":{"item":1}}}"#,
            r#"{"groupByItems":[{"item":1}],"payload":{"a":1,"n":{"item":1}}}"#,
        ],
    );
    check_rows(
        "SELECT VALUE c.a FROM c GROUP BY c.a",
        &documents[1..2],
        &[r#"{"groupByItems":[{}]}"#],
    );
}
