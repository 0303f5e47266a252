//! What the corpus does not show: error shapes, streaming, conditions, functions of the user, the
//! rows of rewritten queries.

#![expect(clippy::unwrap_used, reason = "documents that cannot be read are failed tests")]

use query::{
    Error, ErrorKind, Functions, Geospatial, Limits, Options, Prepared, RunError, condition,
    prepare,
};
use std::convert::Infallible;
use std::sync::Arc;
use value::Value;

fn value(text: &str) -> Value {
    Value::parse(text.as_bytes()).unwrap()
}

fn options() -> Options {
    Options::new(0, 7, Limits::memory(16 << 20))
}

fn run(prepared: &Prepared, documents: &str) -> Result<Vec<Value>, Error> {
    let documents = value(documents);
    let documents = documents.as_array().unwrap().iter().cloned().map(Ok::<Value, Infallible>);
    prepared.run(documents).map_err(|error| match error {
        RunError::Query(error) => error,
    })
}

#[track_caller]
fn check(query: &str, documents: &str, expected: &str) {
    let prepared = prepare(query, &[], &options()).unwrap_or_else(|error| panic!("{error}"));
    let rows = run(&prepared, documents).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(Value::Array(rows).to_text(), expected, "{query}");
}

#[track_caller]
fn refuse(query: &str, expected: &str) {
    match prepare(query, &[], &options()) {
        Ok(_) => panic!("{query} was accepted"),
        Err(error) => assert_eq!(error.message(), expected),
    }
}

#[test]
fn errors_have_the_shape_of_the_service() {
    refuse(
        "SELECT BADFUNC(r.age) FROM Root r",
        r#"{"errors":[{"severity":"Error","location":{"start":7,"end":14},"code":"SC2005","message":"'BADFUNC' is not a recognized built-in function name."}]}"#,
    );
    refuse(
        "SELECT * FROM Root r WHERE STARTSWITH(r.key, 'a', 'b', 'c')",
        r#"{"errors":[{"severity":"Error","location":{"start":27,"end":59},"code":"SC2050","message":"The STARTSWITH function requires 2 to 3 argument(s)."}]}"#,
    );
    refuse(
        "SELECT * FROM root ORDER BY LOWER(root.field) ASC",
        r#"{"errors":[{"severity":"Error","code":2206,"message":"Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path."}]}"#,
    );
    refuse(
        "SELECT c.a FROM c JOIN t IN c.l ORDER BY t.x",
        r#"{"Errors":["Order-by over correlated collections is not supported."]}"#,
    );
    refuse(
        "SELECT VALUE '😀' + x",
        r#"{"errors":[{"severity":"Error","location":{"start":20,"end":21},"code":"SC2001","message":"Identifier 'x' could not be resolved."}]}"#,
    );
}

#[track_caller]
fn code(query: &str, expected: &str) {
    let error = prepare(query, &[], &options()).err().expect("the query is wrong");
    assert_eq!(error.code(), Some(expected), "{error}");
    assert_eq!(error.kind(), ErrorKind::Refused);
}

#[test]
fn errors_carry_codes() {
    code("SELECT", "SC1001");
    code("SELECT 'x", "SC1010");
    code("SELECT x.a FROM c", "SC2001");
    code("SELECT p.a FROM products q", "SC2001");
    code("SELECT VALUE @missing FROM c", "SC2001");
    code("SELECT *", "SC2039");
    code("SELECT * FROM c JOIN t IN c.l", "SC2040");
    code("SELECT * FROM c GROUP BY c.a", "SC2041");
    code("SELECT TOP 1.5 * FROM c", "SC2060");
    code("SELECT * FROM c OFFSET 0 LIMIT 4294967296", "SC2061");
    code("SELECT * FROM c OFFSET 4294967296 LIMIT 0", "SC2062");
    code("SELECT COUNT(SUM(c.a)) FROM c", "SC2101");
    code("SELECT COUNT((SELECT VALUE 1)) FROM c", "SC2101");
    code("SELECT c.b, COUNT(1) FROM c GROUP BY c.a", "SC2102");
    code("SELECT c.b, COUNT(1) FROM c", "SC2102");
    code("SELECT VALUE ARRAY(SELECT * FROM t IN c.l ORDER BY t) FROM c", "SC2202");
    code("SELECT VALUE ARRAY(SELECT TOP 1 * FROM t IN c.l) FROM c", "SC2203");
    code("SELECT VALUE ARRAY(SELECT * FROM t IN c.l OFFSET 0 LIMIT 1) FROM c", "SC2204");
    code("SELECT * FROM c ORDER BY RANK ABS(c.a)", "SC2221");
    code("SELECT FullTextScore(c.t, 'x') FROM c", "SC2240");
}

#[test]
fn what_is_not_there_is_refused() {
    let refused = |query: &str| {
        let error = prepare(query, &[], &options()).err().expect(query);
        assert_eq!(error.kind(), ErrorKind::Refused, "{query}");
    };
    refused("SELECT VALUE FullTextContains(c.t, 'x') FROM c");
    refused("SELECT * FROM c ORDER BY RANK FullTextScore(c.t, 'x')");
    refused("SELECT VALUE udf.f(1)");
    refused("SELECT VALUE c.a FROM c WHERE COUNT(1) > 0");
    refused("SELECT c.a FROM c GROUP BY c.a ORDER BY c.a");
    refused("SELECT TOP 1 * FROM c OFFSET 0 LIMIT 1");
    refused("SELECT * FROM c JOIN a IN c.l JOIN a IN c.m");
    refused("SELECT * FROM c ORDER BY c");
}

#[test]
fn streaming_is_what_depends_on_one_document() {
    let streams = |query: &str| prepare(query, &[], &options()).unwrap().is_streaming();
    assert!(streams("SELECT * FROM c WHERE c.a = 1"));
    assert!(streams("SELECT c.a, t FROM c JOIN t IN c.tags"));
    assert!(streams("SELECT VALUE ARRAY(SELECT DISTINCT VALUE t FROM t IN c.tags) FROM c"));
    assert!(streams("SELECT VALUE (SELECT VALUE COUNT(1) FROM t IN c.tags) FROM c"));
    assert!(streams("SELECT VALUE x.a FROM (SELECT c.a FROM c) x"));
    for query in [
        "SELECT VALUE 1",
        "SELECT DISTINCT c.a FROM c",
        "SELECT TOP 1 * FROM c",
        "SELECT * FROM c OFFSET 0 LIMIT 1",
        "SELECT * FROM c ORDER BY c.a",
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT c.a FROM c GROUP BY c.a",
        "SELECT VALUE x FROM (SELECT DISTINCT VALUE c.a FROM c) x",
    ] {
        assert!(!streams(query), "{query}");
    }
}

#[test]
fn documents_that_stay_as_they_are_are_known() {
    let prepared = |query: &str| prepare(query, &[], &options()).unwrap();
    for query in [
        "SELECT * FROM c",
        "SELECT VALUE r FROM root r WHERE r.a = 1",
        "SELECT TOP 1 * FROM c",
        "SELECT * FROM c WHERE c.a = 1 ORDER BY c.b OFFSET 1 LIMIT 2",
    ] {
        let prepared = prepared(query);
        assert!(prepared.returns_documents(), "{query}");
        assert_eq!(prepared.keeps(&value(r#"{"a":1}"#)), Ok(true));
    }
    let filtered = prepared("SELECT * FROM c WHERE c.a = 1");
    assert_eq!(filtered.keeps(&value(r#"{"a":2}"#)), Ok(false));
    for query in [
        "SELECT * FROM c.a",
        "SELECT * FROM t IN c.l",
        "SELECT DISTINCT * FROM c",
        "SELECT c FROM c",
        "SELECT VALUE c FROM c JOIN t IN c.l",
    ] {
        assert!(!prepared(query).returns_documents(), "{query}");
    }
}

#[test]
fn prepared_queries_move_between_threads() {
    fn moves<T: Send + Sync>() {}
    moves::<Prepared>();
    moves::<query::Predicate>();
}

/// The texts that query plans send to clients, and what clients read from the rows.
#[test]
fn rewritten_queries_answer_in_the_form_that_clients_merge() {
    let documents = r#"[{"_rid":"r1","a":2,"k":"x"},{"_rid":"r2","k":"x"},{"_rid":"r3","a":1}]"#;
    check(
        r#"SELECT c._rid, [{"item": c.a}] AS orderByItems, {"k": c.k} AS payload
           FROM c WHERE (true) ORDER BY c.a"#,
        documents,
        concat!(
            r#"[{"_rid":"r2","orderByItems":[{}],"payload":{"k":"x"}},"#,
            r#"{"_rid":"r3","orderByItems":[{"item":1}],"payload":{}},"#,
            r#"{"_rid":"r1","orderByItems":[{"item":2}],"payload":{"k":"x"}}]"#
        ),
    );
    check(
        r#"SELECT VALUE [{"item": {"sum": SUM(c.a), "count": COUNT(c.a)}}] FROM c"#,
        documents,
        r#"[[{"item":{"sum":3,"count":2}}]]"#,
    );
    check(
        r#"SELECT VALUE [{"item": MIN(c.a), "item2": {"min": MIN(c.a), "count": COUNT(c.a)}}]
           FROM c WHERE false"#,
        documents,
        r#"[[{"item2":{"count":0}}]]"#,
    );
    check(r#"SELECT VALUE [{"item": SUM(c.k)}] FROM c"#, documents, "[[{}]]");
    check(
        r#"SELECT [{"item": c.k}] AS groupByItems, {"k": c.k, "n": {"item": COUNT(1)}} AS payload
           FROM c GROUP BY c.k"#,
        documents,
        concat!(
            r#"[{"groupByItems":[{"item":"x"}],"payload":{"k":"x","n":{"item":2}}},"#,
            r#"{"groupByItems":[{}],"payload":{"n":{"item":1}}}]"#
        ),
    );
}

#[test]
fn numbers_that_json_cannot_write_are_strings() {
    check("SELECT VALUE [1/0, -1/0, 0/0, 1]", "[]", r#"[["Infinity","-Infinity","NaN",1]]"#);
    check("SELECT VALUE [-c.z, c.z * -1, ROUND(-0.1)] FROM c", r#"[{"z":0}]"#, "[[0,0,0]]");
    check("SELECT VALUE IS_FINITE_NUMBER(x) FROM (SELECT VALUE 1/0) x", "[]", "[false]");
}

#[test]
fn rare_forms_work() {
    check("SELECT VALUE (LET x = c.a + 1 IN x * x) FROM c", r#"[{"a":2}]"#, "[9]");
    check(
        "SELECT VALUE ALL(SELECT VALUE t FROM t IN c.l WHERE t > 0) FROM c",
        r#"[{"l":[1,2]},{"l":[1,-2]},{"l":[]}]"#,
        "[true,false,true]",
    );
    check(
        "SELECT VALUE FIRST(SELECT VALUE t FROM t IN c.l) FROM c",
        r#"[{"l":[1,2]},{"l":[]}]"#,
        "[1]",
    );
    check(
        "SELECT VALUE LAST(SELECT VALUE t FROM t IN c.l) FROM c",
        r#"[{"l":[1,2]},{"l":[]}]"#,
        "[2]",
    );
    check(
        "SELECT VALUE kv.k FROM c JOIN kv IN OBJECTTOARRAY(c.o)",
        r#"[{"o":{"a":1,"b":2}}]"#,
        r#"["a","b"]"#,
    );
    check(
        "SELECT VALUE x FROM x IN (SELECT VALUE [c.a, c.b] FROM c)",
        r#"[{"a":1,"b":2},{"a":3}]"#,
        "[1,2,3]",
    );
    check(
        "SELECT c.k, (SELECT VALUE COUNT(1) FROM t IN c.l) AS n FROM c",
        r#"[{"k":1,"l":[5,6]}]"#,
        r#"[{"k":1,"n":2}]"#,
    );
    check("SELECT VALUE -9223372036854775808", "[]", "[-9223372036854775808]");
    check("SELECT VALUE INTADD(9223372036854775806, 1)", "[]", "[9223372036854775807]");
    check("SELECT VALUE DOCUMENTID(c) FROM c", r#"[{"_rid":"nope"}]"#, "[]");
}

/// A long list of constants is looked up; it must say what a short one says.
#[test]
fn long_lists_answer_as_short_ones() {
    let documents =
        r#"[{"a":1.0},{"a":"1"},{"a":null},{"a":[1,{"y":2,"x":1}]},{"a":-0},{},{"a":7}]"#;
    let items = r#"1, "1", null, [1, {"x":1,"y":2}], 0"#;
    let padding = (100..120).map(|number| format!(", {number}")).collect::<String>();
    for list in [items.to_owned(), format!("{items}{padding}")] {
        check(
            &format!("SELECT VALUE c.a FROM c WHERE c.a IN ({list})"),
            documents,
            r#"[1.0,"1",null,[1,{"y":2,"x":1}],-0]"#,
        );
        check(&format!("SELECT VALUE c.a FROM c WHERE c.a NOT IN ({list})"), documents, "[7]");
    }
}

#[test]
fn a_condition_is_true_or_it_is_not() {
    let holds = |text: &str, document: &str| {
        condition(text, Geospatial::Geography).unwrap().holds(&value(document))
    };
    assert!(holds("from c where c.a = 1", r#"{"a":1}"#));
    assert!(!holds("from c where c.a = 1", r#"{"a":2}"#));
    assert!(!holds("FROM x WHERE x.a", r#"{"a":1}"#));
    assert!(!holds("FROM x WHERE x.missing = 1", r#"{"a":1}"#));
    assert!(holds("FROM root r WHERE NOT IS_DEFINED(r.b)", r#"{"a":1}"#));
    assert!(condition("SELECT * FROM c", Geospatial::Geography).is_err());
    assert!(condition("FROM c WHERE d.a = 1", Geospatial::Geography).is_err());
    assert!(condition("FROM c WHERE GETCURRENTTIMESTAMP() > 0", Geospatial::Geography).is_err());
}

struct Doubling;

impl Functions for Doubling {
    fn contains(&self, name: &str) -> bool {
        name == "double"
    }

    fn call(&self, _: &str, arguments: &[Option<Value>]) -> Result<Option<Value>, Error> {
        match arguments {
            [Some(Value::Number(number))] => Ok(Some(Value::from(2.0 * number.as_f64()))),
            [None] => Ok(None),
            _ => Err(Error::refused("the user-defined function double threw")),
        }
    }
}

#[test]
fn user_functions_see_undefined_and_may_fail() {
    let options = Options { functions: Some(Arc::new(Doubling)), ..options() };
    let rows = |query: &str| {
        let prepared = prepare(query, &[], &options)?;
        run(&prepared, r#"[{"a":2}]"#).map(|rows| Value::Array(rows).to_text())
    };
    assert_eq!(
        rows("SELECT udf.double(c.a) AS x, udf.double(c.b) AS y FROM c").unwrap(),
        r#"[{"x":4}]"#
    );
    assert!(rows("SELECT VALUE udf.double('x') FROM c").is_err());
    assert!(rows("SELECT VALUE udf.Double(1) FROM c").is_err());
    let many = format!("SELECT VALUE [{}1]", "udf.double(1), ".repeat(11));
    assert!(rows(&many).unwrap_err().text().contains("at most 10"));
}

#[test]
fn parameters_are_values() {
    let parameters = [("@v".to_owned(), value(r#"{"x":[1]}"#)), ("@n".to_owned(), value("1"))];
    let prepared = prepare(
        "SELECT TOP @n VALUE [@v.x[0], c[@p2]] FROM c",
        &[&parameters[..], &[("@p2".to_owned(), Value::from("a"))]].concat(),
        &options(),
    )
    .unwrap();
    let rows = run(&prepared, r#"[{"a":5},{"a":6}]"#).unwrap();
    assert_eq!(Value::Array(rows).to_text(), "[[1,5]]");
}

#[test]
fn the_source_is_read_only_as_far_as_needed() {
    let prepared = prepare("SELECT TOP 2 VALUE c.a FROM c", &[], &options()).unwrap();
    let documents = [Ok(value(r#"{"a":1}"#)), Ok(value(r#"{"a":2}"#)), Err("read too far")];
    assert_eq!(prepared.run(documents).unwrap().len(), 2);
    let prepared = prepare("SELECT VALUE c.a FROM c", &[], &options()).unwrap();
    let failing = [Ok(value(r#"{"a":1}"#)), Err("broken")];
    assert_eq!(prepared.run(failing), Err(RunError::Source("broken")));
}
