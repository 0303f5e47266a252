//! What a caller needs that orders, pages and counts by itself.

use query::{Computed, Indexed, Limits, Options, OrderBy, PathSegment, Prepared, RowKey, prepare};
use std::collections::BTreeSet;
use std::convert::Infallible;
use value::Value;

fn prepared(query: &str) -> Prepared {
    let options = Options::new(0, 0, Limits::memory(1 << 20));
    prepare(query, &[], &options).unwrap_or_else(|error| panic!("{query}: {error}"))
}

fn value(text: &str) -> Value {
    Value::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn documents(text: &str) -> Vec<Result<Value, Infallible>> {
    value(text).as_array().expect("documents are an array").iter().cloned().map(Ok).collect()
}

#[test]
fn order_and_page_are_told() {
    let check = |query: &str, expected: &[(Option<&str>, bool)], skip: u64, take: Option<u64>| {
        let prepared = prepared(query);
        let path = |path: &str| {
            let names = path.split('/').skip(1);
            Indexed::Path(names.map(|name| PathSegment::Property(name.to_owned())).collect())
        };
        let expected: Vec<OrderBy> = expected
            .iter()
            .map(|(key, descending)| OrderBy { key: key.map(path), descending: *descending })
            .collect();
        assert_eq!(prepared.order(), expected, "{query}");
        assert_eq!((prepared.skip(), prepared.take()), (skip, take), "{query}");
        assert!(prepared.is_row_wise(), "{query}");
    };
    check("SELECT * FROM c", &[], 0, None);
    check("SELECT TOP 3 c.x FROM c ORDER BY c.a.b DESC", &[(Some("/a/b"), true)], 0, Some(3));
    let two = [(Some("/a"), false), (Some("/x y"), true)];
    check("SELECT * FROM c ORDER BY c.a, c['x y'] DESC OFFSET 2 LIMIT 1", &two, 2, Some(1));
    check("SELECT VALUE d.e FROM c.d ORDER BY d.e", &[(Some("/d/e"), false)], 0, None);
    check("SELECT * FROM c ORDER BY c.a[0]", &[(None, false)], 0, None);
    check("SELECT c.id FROM c JOIN t IN c.l ORDER BY c.a", &[(Some("/a"), false)], 0, None);
}

#[test]
fn sort_keys_come_from_the_document() {
    let document = value(r#"{"id":"1","a":{"b":5},"l":[7,8]}"#);
    let keys = |query: &str| prepared(query).sort_keys_of(&document);
    let query = "SELECT t FROM c JOIN t IN c.l JOIN u IN c.l ORDER BY c.a.b, c.l[1], c.z";
    assert_eq!(keys(query), Ok(vec![Some(Value::from(5)), Some(Value::from(8)), None]));
    assert_eq!(keys("SELECT * FROM c.a ORDER BY a.b"), Ok(vec![Some(Value::from(5))]));
    assert_eq!(keys("SELECT * FROM c"), Ok(vec![]));

    // A page is the caller's: the rows of a document are all of its rows.
    let mut rows = Vec::new();
    let query = prepared("SELECT TOP 1 VALUE t FROM c JOIN t IN c.l ORDER BY c.id");
    query.rows_of(&document, &mut rows).expect("the query runs");
    assert_eq!(rows, [Value::from(7), Value::from(8)]);
}

#[test]
fn what_a_row_depends_on_is_told() {
    let kind = |query: &str| {
        let prepared = prepared(query);
        (prepared.is_row_wise(), prepared.is_grouped(), prepared.is_distinct())
    };
    assert_eq!(kind("SELECT TOP 1 VALUE x FROM (SELECT VALUE c.a FROM c) x"), (true, false, false));
    assert_eq!(kind("SELECT DISTINCT c.a FROM c"), (false, false, true));
    assert_eq!(kind("SELECT c.a FROM c GROUP BY c.a"), (false, true, false));
    assert_eq!(kind("SELECT VALUE COUNT(1) FROM c"), (false, true, false));
    assert_eq!(kind("SELECT 1"), (false, false, false));
    let query = "SELECT VALUE x FROM (SELECT DISTINCT VALUE c.a FROM c) x";
    assert_eq!(kind(query), (false, false, false));
}

#[track_caller]
fn keyed(query: &str, documents_text: &str, expected: &str) -> Vec<RowKey> {
    let query = prepared(query);
    let rows = query.run_keyed(documents(documents_text)).expect("the query runs");
    let (keys, rows): (Vec<RowKey>, Vec<Value>) = rows.into_iter().unzip();
    assert_eq!(Value::Array(rows).to_text(), expected);
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "keys differ");

    // In the other order the same results have the same keys.
    let mut reversed = documents(documents_text);
    reversed.reverse();
    let again = query.run_keyed(reversed).expect("the query runs");
    let again: BTreeSet<RowKey> = again.into_iter().map(|(key, _)| key).collect();
    assert_eq!(again, keys.iter().copied().collect());
    keys
}

#[test]
fn results_have_keys_of_their_own() {
    let all = r#"[{"a":1,"b":"x"},{"a":2},{"a":1.0},{"b":"x","a":2},{}]"#;
    let some = r#"[{"a":2},{"a":1}]"#;
    let query = "SELECT TOP 1 c.a, COUNT(1) AS n FROM c GROUP BY c.a";
    let groups = keyed(query, all, r#"[{"a":1,"n":2},{"a":2,"n":2},{"n":1}]"#);
    let fewer = keyed(query, some, r#"[{"a":2,"n":1},{"a":1,"n":1}]"#);
    assert_eq!(fewer, [groups[1], groups[0]]);
    // A group without a result takes no key from another.
    let values = keyed("SELECT VALUE c.a FROM c GROUP BY c.a", all, "[1,2]");
    assert_eq!(values, groups[..2]);
    let distinct = keyed("SELECT DISTINCT VALUE c.a FROM c OFFSET 1 LIMIT 1", all, "[1,2]");
    assert_eq!(
        keyed("SELECT DISTINCT VALUE c.a FROM c", some, "[2,1]"),
        [distinct[1], distinct[0]]
    );
    keyed("SELECT DISTINCT VALUE COUNT(1) FROM c GROUP BY c.a", all, "[2,1]");
    keyed("SELECT VALUE SUM(c.a) FROM c", "[]", "[0]");
    keyed("SELECT VALUE n % 2 FROM (SELECT VALUE COUNT(1) FROM c GROUP BY c.a) n", all, "[0,0,1]");
}

#[test]
fn counts_are_answered_with_a_number() {
    let check = |query: &str, expected: Option<(bool, &str)>| {
        let prepared = prepared(query);
        let found = prepared.count().map(|shape| {
            let rows = prepared.answer_count(3).expect("the query runs");
            (shape.is_filtered, Value::Array(rows).to_text())
        });
        let found = found.as_ref().map(|(is_filtered, rows)| (*is_filtered, rows.as_str()));
        assert_eq!(found, expected, "{query}");
        let three = documents(r#"[{"x":1},{"x":1},{"x":1}]"#);
        if let Some((_, rows)) = expected {
            let run = prepared.run(three).expect("the query runs");
            assert_eq!(Value::Array(run).to_text(), rows, "{query}");
        }
    };
    check("SELECT VALUE COUNT(1) FROM c", Some((false, "[3]")));
    check("SELECT COUNT(c) AS n FROM c", Some((false, r#"[{"n":3}]"#)));
    check("SELECT VALUE COUNT(1) FROM c WHERE c.x = 1", Some((true, "[3]")));
    check(r#"SELECT VALUE [{"item": COUNT(1)}] FROM c"#, Some((false, r#"[[{"item":3}]]"#)));
    let payload = r#"[{"payload":{"n":{"item":3}}}]"#;
    check(r#"SELECT {"n": {"item": COUNT(1)}} AS payload FROM c"#, Some((false, payload)));
    check("SELECT COUNT(1) + 1 AS n, COUNT(null) AS m FROM c", Some((false, r#"[{"n":4,"m":3}]"#)));
    check("SELECT TOP 0 VALUE COUNT(1) FROM c", Some((false, "[]")));
    check("SELECT VALUE COUNT(c.x) FROM c", None);
    check("SELECT VALUE COUNT(undefined) FROM c", None);
    check("SELECT VALUE SUM(1) FROM c", None);
    check("SELECT VALUE COUNT(1) FROM c JOIN t IN c.l", None);
    check("SELECT VALUE COUNT(1) FROM c.l", None);
    check("SELECT VALUE COUNT(1) FROM t IN c.l", None);
    check("SELECT COUNT(1), c.x FROM c GROUP BY c.x", None);
    check("SELECT VALUE 1 FROM c", None);
}

#[test]
fn computed_properties_have_values() {
    let check = |query: &str, document: &str, expected: Option<&str>| {
        let computed = Computed::new(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        assert_eq!(computed.value(&value(document)), expected.map(value), "{query}");
    };
    check("SELECT VALUE LOWER(c.name) FROM c", r#"{"name":"AB"}"#, Some(r#""ab""#));
    check("SELECT VALUE LOWER(c.name) FROM c", r#"{"name":1}"#, None);
    check("SELECT VALUE r.a.b FROM root r", r#"{"a":{"b":[1]}}"#, Some("[1]"));
    assert!(Computed::new("SELECT c.a FROM c").is_err());
    assert!(Computed::new("SELECT VALUE t FROM t IN c.a").is_err());
    assert!(Computed::new("SELECT VALUE RAND() FROM c").is_err());
}
