//! What a query says about documents: necessary, never more, and exact where it claims to be.

mod satisfies;

use proptest::option::weighted;
use proptest::prelude::*;
use query::{ComputedProperty, Indexed, Limits, Options, Prepared, Touched, prepare};
use satisfies::satisfies;
use value::{Document, Object, SystemProperties, Value};

fn options() -> Options {
    let mut options = Options::new(17_673_242_450_000_000, 0, Limits::memory(1 << 20));
    options.computed_properties = vec![ComputedProperty {
        name: "lower".to_owned(),
        query: "SELECT VALUE LOWER(c.name) FROM c".to_owned(),
    }];
    options
}

fn prepared(query: &str) -> Prepared {
    prepare(query, &[], &options()).unwrap_or_else(|error| panic!("{query}: {error}"))
}

/// The condition of a whole query, and whether it is exact.
#[track_caller]
fn check_query(query: &str, expected: &str, is_exact: bool) {
    let prepared = prepared(query);
    assert_eq!(prepared.condition().to_string(), expected, "{query}");
    assert_eq!(prepared.is_condition_exact(), is_exact, "{query}: exactness");
}

/// A filter with an exact condition.
#[track_caller]
fn exact(filter: &str, expected: &str) {
    check_query(&format!("SELECT * FROM c WHERE {filter}"), expected, true);
}

/// A filter that asks for more than its condition.
#[track_caller]
fn necessary(filter: &str, expected: &str) {
    check_query(&format!("SELECT * FROM c WHERE {filter}"), expected, false);
}

#[test]
fn comparisons_with_constants() {
    check_query("SELECT * FROM c", "anything", true);
    exact("c.a = 1", "/a = 1");
    exact("'x' = c.a.b", r#"/a/b = "x""#);
    exact("c['x y'].a = null", r#"/"x y"/a = null"#);
    exact("c.a < 1", "/a < 1");
    exact("1 < c.a", "/a > 1");
    exact("c.a >= -1.5 AND c.a < 7", "-1.5 <= /a < 7");
    exact("c.a >= 7 AND c.a <= 7", "/a = 7");
    exact("c.a > 7 AND c.a < 7", "nothing");
    exact("c.a > 7 AND c.a = 'x'", "nothing");
    exact("c.a BETWEEN 1 AND 2", "1 <= /a <= 2");
    exact("c.a BETWEEN 1 AND 'x'", "nothing");
    exact("(5 BETWEEN c.a AND c.b)", "/a <= 5 and /b >= 5");
    exact("c.a > false", "/a = true");
    exact("c.a >= false", "/a in (false, true)");
    exact("c.a <= null", "/a = null");
    exact("c.a < null", "nothing");
    exact("c.a = undefined", "nothing");
    necessary("c.a != 1", "anything");
    necessary("c.a = [1]", "anything");
    necessary("c.a = {b: 1}", "anything");
    exact("c.a < [1]", "nothing");
    necessary("c.a = c.b", "anything");
    exact("c.a = 1 + 2", "/a = 3");
    exact("c.a > DateTimeAdd('yyyy', 1, '2020-01-01')", r#"/a > "2021-01-01T00:00:00.0000000Z""#);
    exact("c.a = GetCurrentTimestamp()", "/a = 1767324245000");
    necessary("c.a > RAND()", "anything");
}

#[test]
fn numbers_that_are_none() {
    exact("c.a = NaN", "nothing");
    exact("c.a < NaN", "nothing");
    necessary("NOT (c.a < NaN)", "anything");
    exact("c.a < Infinity", r#"/a < "Infinity""#);
    exact("c.a IN (NaN, 1)", "/a = 1");
}

#[test]
fn logic_has_three_values() {
    exact("c.a = 1 AND c.b = 2", "/a = 1 and /b = 2");
    exact("c.a = 1 OR c.b = 2", "/a = 1 or /b = 2");
    exact("c.a = 2 OR c.a = 1 OR c.a > 5", "/a in (1, 2, … > 5)");
    exact("(c.a = 1 OR c.a = 2 OR c.a = 9) AND c.a < 5", "/a in (1, 2)");
    exact("c.a = 1 AND (c.b = 2 OR c.d = 3)", "/a = 1 and (/b = 2 or /d = 3)");
    necessary("c.a = 1 AND c.b != 2", "/a = 1");
    necessary("c.a = 1 OR c.b != 2", "anything");
    exact("c.a = 1 AND false", "nothing");
    exact("c.a = 1 OR true", "anything");
    exact("c.a = 1 OR 5", "/a = 1");
    exact("true", "anything");
    exact("1", "nothing");
    exact("c.flag", "/flag = true");
    exact("NOT c.flag", "/flag = false");
    exact("NOT NOT c.flag", "/flag = true");
    exact("NOT (c.a < 5)", "/a >= 5");
    exact("NOT (c.a < 5 AND c.b)", "/a >= 5 or /b = false");
    exact("NOT (c.a < 5 OR c.b)", "/a >= 5 and /b = false");
    exact("NOT (c.a != 5)", "/a = 5");
    necessary("NOT (c.a = 5)", "anything");
    exact("(c.a NOT BETWEEN 1 AND 5)", "/a in (… < 1, … > 5)");
    exact("(c.a > 1) = false", "/a <= 1");
    exact("STARTSWITH(c.a, 'x') = true", r#"/a begins with "x""#);
    necessary("c.a = 1 ? c.b = 2 : c.b = 3", "(/a = 1 and /b = 2) or /b = 3");
    necessary("IIF(c.a = 1, c.b, false)", "/a = 1 and /b = true");
    necessary("c.flag ?? false", "/flag = true");
    exact("(LET x = c.a IN x > 1)", "/a > 1");
    exact("(LET x = c.a > 1 IN (x AND x))", "/a > 1");
}

#[test]
fn lists() {
    exact("c.a IN (3, 1, 'x', 1.0, null)", r#"/a in (null, 1, 3, "x")"#);
    exact("c.a IN (undefined)", "nothing");
    necessary("c.a IN (1, [2])", "anything");
    necessary("c.a NOT IN (1)", "anything");
    exact("'x' IN (c.a, c.b)", r#"/a = "x" or /b = "x""#);
    let long: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let list = format!("c.a IN ({})", long.join(", "));
    exact(&list, "/a in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 10 more)");
    exact(&format!("{list} AND c.a > 17"), "/a in (18, 19)");
    exact("ARRAY_CONTAINS([1, 2], c.a)", "/a in (1, 2)");
    exact("ARRAY_CONTAINS([], c.a)", "nothing");
    necessary("ARRAY_CONTAINS([{b: 1}], c.a, true)", "anything");
}

#[test]
fn strings() {
    exact("STARTSWITH(c.a, 'ab')", r#"/a begins with "ab""#);
    exact("STARTSWITH(c.a, 'ab', false)", r#"/a begins with "ab""#);
    exact("STARTSWITH(c.a, '')", "/a is a string");
    necessary("STARTSWITH(c.a, 'ab', true)", "anything");
    necessary("NOT STARTSWITH(c.a, 'ab')", "anything");
    exact("STARTSWITH(c.a, 'ab') AND STARTSWITH(c.a, 'abc')", r#"/a begins with "abc""#);
    exact("STARTSWITH(c.a, 'ab') AND c.a > 'a'", r#"/a begins with "ab""#);
    exact("STARTSWITH(c.a, 'ab') AND c.a < 'a'", "nothing");
    exact("STARTSWITH(c.a, 'ab') AND c.a > 'b'", "nothing");
    let both = r#"/a begins with "ab" and /a > "abc""#;
    exact("STARTSWITH(c.a, 'ab') AND c.a > 'abc'", both);
    exact("STARTSWITH(c.a, 'ab') AND c.a = 'abc'", r#"/a = "abc""#);
    exact("c.a LIKE 'ab%'", r#"/a begins with "ab""#);
    exact("c.a LIKE 'ab'", r#"/a = "ab""#);
    exact("c.a LIKE '%'", "/a is a string");
    necessary("c.a LIKE 'ab%c'", r#"/a begins with "ab""#);
    exact("c.a LIKE '50!%%' ESCAPE '!'", r#"/a begins with "50%""#);
    necessary("c.a LIKE '%ab'", "anything");
    necessary("c.a NOT LIKE 'ab%'", "anything");
    exact("STRINGEQUALS(c.a, 'ab')", r#"/a = "ab""#);
    exact("STRINGEQUALS('ab', c.a, false)", r#"/a = "ab""#);
    necessary("STRINGEQUALS(c.a, 'ab', true)", "anything");
    exact("LEFT(c.a, 2) = 'ab'", r#"/a begins with "ab""#);
    exact("LEFT(c.a, 3) = 'ab'", r#"/a = "ab""#);
    exact("LEFT(c.a, 1) = 'ab'", "nothing");
    exact("LEFT(c.a, 2) = '😀'", r#"/a begins with "😀""#);
    exact("SUBSTRING(c.a, 0, 2) = 'ab'", r#"/a begins with "ab""#);
    exact("SUBSTRING(c.a, 0, -1) = ''", "/a is a string");
    necessary("SUBSTRING(c.a, 1, 2) = 'ab'", "anything");
    necessary("CONTAINS(c.a, 'ab')", "anything");
    necessary("UPPER(c.a) = 'AB'", "anything");
}

#[test]
fn types_and_definedness() {
    exact("IS_DEFINED(c.a.b)", "/a/b is defined");
    exact("NOT IS_DEFINED(c.a)", "/a is undefined");
    exact("IS_DEFINED(c.a) = false", "/a is undefined");
    exact("IS_DEFINED(c)", "anything");
    exact("NOT IS_DEFINED(c)", "nothing");
    necessary("IS_DEFINED(c.a[0])", "anything");
    exact("IS_NULL(c.a)", "/a = null");
    exact("IS_BOOL(c.a) OR IS_NUMBER(c.a)", "/a in (… is a boolean, … is a number)");
    exact("IS_STRING(c.a) AND c.a > 'x'", r#"/a > "x""#);
    exact("IS_STRING(c.a) AND c.a = 1", "nothing");
    necessary("NOT IS_STRING(c.a)", "anything");
    necessary("IS_ARRAY(c.a)", "anything");
}

#[test]
fn arrays() {
    exact("ARRAY_CONTAINS(c.tags, 'x')", r#"/tags/[] = "x""#);
    exact("ARRAY_CONTAINS(c.a.tags, 1, true)", "/a/tags/[] = 1");
    necessary("ARRAY_CONTAINS(c.tags, 1, c.b)", "/tags/[] = 1");
    necessary("NOT ARRAY_CONTAINS(c.tags, 'x')", "anything");
    let members = r#"/l/[]/a = 1 and /l/[]/b/d = "x""#;
    necessary("ARRAY_CONTAINS(c.l, {a: 1, b: {d: 'x'}, e: [1]})", members);
    necessary("ARRAY_CONTAINS(c.l, {a: 1}, true)", "/l/[]/a = 1");
    necessary("ARRAY_CONTAINS(c.l, [1])", "anything");
    necessary("ARRAY_CONTAINS(c.l, {})", "anything");
    exact("ARRAY_CONTAINS_ANY(c.tags, 'y', 'x')", r#"/tags/[] in ("x", "y")"#);
    exact("ARRAY_CONTAINS_ALL(c.tags, 'y', 'x')", r#"/tags/[] = "y" and /tags/[] = "x""#);
    necessary("ARRAY_CONTAINS_ANY(c.tags, 'x', c.b)", "anything");
    necessary("ARRAY_CONTAINS_ALL(c.tags, 'x', c.b)", r#"/tags/[] = "x""#);
    necessary("c.tags[0] = 'x'", r#"/tags/[] = "x""#);
    // Two offsets are two elements, one offset is one.
    necessary("c.n[0] > 5 AND c.n[1] < 3", "/n/[] > 5 and /n/[] < 3");
    necessary("c.n[0] > 5 AND c.n[0] < 7", "5 < /n/[] < 7");
    necessary("c.l[0].a = 1", "/l/[]/a = 1");
    necessary("c.n[-1] = 5", "anything");
    exact("EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'x')", r#"/tags/[] = "x""#);
    exact("EXISTS(SELECT VALUE t FROM t IN c.n WHERE t > 1 AND t < 5)", "1 < /n/[] < 5");
    let two = "/l/[]/a = 1 and /l/[]/b = 2";
    necessary("EXISTS(SELECT VALUE t FROM t IN c.l WHERE t.a = 1 AND t.b = 2)", two);
    exact("EXISTS(SELECT 1 FROM t IN c.l WHERE t.a = 1 OR t.b = 2)", "/l/[]/a = 1 or /l/[]/b = 2");
    necessary("EXISTS(SELECT VALUE t.z FROM t IN c.l WHERE t.a = 1)", "/l/[]/a = 1");
    necessary("EXISTS(SELECT VALUE t FROM t IN c.l WHERE c.x = 1)", "/x = 1");
    necessary("EXISTS(SELECT VALUE t FROM t IN c.l)", "anything");
    necessary("NOT EXISTS(SELECT VALUE t FROM t IN c.l WHERE t = 1)", "anything");
    necessary("EXISTS(SELECT VALUE COUNT(1) FROM t IN c.l WHERE t = 1)", "anything");
    let nested = "EXISTS(SELECT VALUE t FROM t IN c.l WHERE ARRAY_CONTAINS(t.n, 1))";
    exact(nested, "/l/[]/n/[] = 1");
    let nested = "EXISTS(SELECT VALUE u FROM t IN c.l JOIN u IN t.n WHERE u = 1 AND t.a > 2)";
    necessary(nested, "/l/[]/n/[] = 1 and /l/[]/a > 2");
}

#[test]
fn sources() {
    let check = |query: &str, expected: &str| check_query(query, expected, false);
    check("SELECT c FROM c JOIN t IN c.tags", "anything");
    check("SELECT VALUE t FROM c JOIN t IN c.tags WHERE t = 'x'", r#"/tags/[] = "x""#);
    check("SELECT VALUE t FROM c JOIN t IN c.n WHERE t > 1 AND t < 3", "1 < /n/[] < 3");
    let two = "/n/[] > 1 and /n/[] < 3";
    check("SELECT VALUE t FROM c JOIN t IN c.n JOIN u IN c.n WHERE t > 1 AND u < 3", two);
    check("SELECT VALUE t FROM t IN c.l.m WHERE t.a = 1", "/l/m/[]/a = 1");
    check("SELECT * FROM c.a WHERE a.b = 1", "/a/b = 1");
    check("SELECT * FROM c.l[2] x WHERE x.b = 1", "/l/[]/b = 1");
    check(
        "SELECT VALUE x FROM (SELECT VALUE c.a FROM c WHERE c.b = 1) x WHERE x > 2",
        "/b = 1 and /a > 2",
    );
    check(
        "SELECT VALUE n FROM (SELECT VALUE COUNT(1) FROM c WHERE c.b = 1) n WHERE n > 2",
        "/b = 1",
    );
    check("SELECT VALUE x.k FROM (SELECT c.k FROM c GROUP BY c.k) x WHERE x.k = 1", "anything");
    check(
        "SELECT c.id FROM c JOIN (SELECT VALUE t FROM t IN c.l WHERE t.a = 1) s WHERE s.b < 2",
        "/l/[]/a = 1 and /l/[]/b < 2",
    );
    check("SELECT 1 FROM c JOIN (SELECT VALUE COUNT(1) FROM t IN c.l WHERE t.a = 1) n", "anything");
    // The form in which the .NET provider of LINQ asks.
    check(
        "SELECT VALUE root FROM root JOIN (SELECT VALUE EXISTS(SELECT VALUE x FROM root \
         JOIN x IN root['l'] WHERE (x['a'] = 1))) AS v0 WHERE v0",
        "/l/[]/a = 1",
    );
    check("SELECT VALUE COUNT(1) FROM c JOIN t IN c.l WHERE t.a = 1 GROUP BY c.k", "/l/[]/a = 1");
    check_query("SELECT c.k FROM c WHERE c.a = 1 GROUP BY c.k", "/a = 1", true);
}

#[test]
fn computed_properties() {
    necessary("c.lower = 'x'", r#"computed(lower) = "x""#);
    necessary("c.lower > 'a' AND c.lower < 'b'", r#""a" < computed(lower) < "b""#);
    necessary("STARTSWITH(c.lower, 'x')", r#"computed(lower) begins with "x""#);
    necessary("c.lower.x = 1", "anything");
    necessary("NOT (c.lower > 5)", "anything");
    necessary("NOT IS_DEFINED(c.lower)", "anything");
    let order = prepared("SELECT * FROM c ORDER BY c.lower DESC").order();
    assert_eq!(order[0].key, Some(Indexed::Computed("lower".to_owned())));
}

#[test]
fn shapes() {
    let point = "{type: 'Point', coordinates: [1, 2]}";
    let shown = r#"{"type":"Point","coordinates":[1,2]}"#;
    let near = format!("/at within 500 of {shown}");
    necessary(&format!("ST_DISTANCE(c.at, {point}) < 500"), &near);
    necessary(&format!("500 >= ST_DISTANCE({point}, c.at)"), &near);
    necessary(&format!("ST_DISTANCE(c.at, {point}) BETWEEN 100 AND 500"), &near);
    necessary(&format!("ST_DISTANCE(c.at, {point}) > 500"), "anything");
    exact(&format!("ST_DISTANCE(c.at, {point}) < -1"), "nothing");
    necessary(&format!("ST_INTERSECTS({point}, c.at.x)"), &format!("/at/x meets {shown}"));
    let area = "{type: 'Polygon', coordinates: [[[0, 0], [9, 0], [9, 9], [0, 0]]]}";
    let shown = r#"{"type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,0]]]}"#;
    necessary(&format!("ST_WITHIN(c.at, {area})"), &format!("/at meets {shown}"));
    necessary(&format!("NOT ST_WITHIN(c.at, {area})"), "anything");
    necessary("ST_WITHIN(c.at, {type: 'Circle'})", "anything");
}

#[track_caller]
fn touches(query: &str, expected: &str, filter: &str) {
    fn show(touched: &Touched) -> String {
        let Touched::Members(members) = touched else { return "*".to_owned() };
        let show = |(name, inner): (&String, &Touched)| match inner {
            Touched::Whole => name.clone(),
            Touched::Members(_) => format!("{name}.{}", show(inner)),
        };
        format!("({})", members.iter().map(show).collect::<Vec<String>>().join(" "))
    }
    let prepared = prepared(query);
    assert_eq!(show(prepared.touched()), expected, "{query}");
    assert_eq!(show(prepared.filter_touched()), filter, "{query}: the filter");
}

#[test]
fn touched_parts() {
    touches("SELECT * FROM c", "*", "()");
    touches("SELECT * FROM c WHERE c.a.b > 1 AND c.a.d = 2", "*", "(a.(b d))");
    touches("SELECT VALUE COUNT(1) FROM c WHERE c.a.b > 5", "(a.(b))", "(a.(b))");
    touches("SELECT VALUE COUNT(c) FROM c WHERE c.a", "(a)", "(a)");
    touches("SELECT VALUE SUM(c.n) FROM c GROUP BY c.k", "(k n)", "()");
    touches("SELECT c.a, c.a.b FROM c ORDER BY c.x.y", "(a x.(y))", "()");
    touches("SELECT c.l[0].a, c[c.b] FROM c", "*", "()");
    touches("SELECT c.l[0].a FROM c", "(l)", "()");
    touches("SELECT t.a FROM c JOIN t IN c.x.l WHERE c.b = 1", "(b x.(l))", "(b x.(l))");
    touches(
        "SELECT 1 FROM c WHERE EXISTS(SELECT 1 FROM c JOIN t IN c.l WHERE t = c.b)",
        "(b l)",
        "(b l)",
    );
    touches("SELECT x.a FROM (SELECT VALUE c FROM c WHERE c.b) x WHERE x.d", "(a b d)", "(b d)");
    touches("SELECT x.a FROM (SELECT VALUE c.y FROM c) x", "(y)", "(y)");
    touches("SELECT x.a FROM (SELECT DISTINCT VALUE c FROM c) x", "*", "*");
    touches("SELECT VALUE DOCUMENTID(c) FROM c", "(_rid)", "()");
    touches("SELECT c.lower FROM c", "(name)", "()");
    touches("SELECT VALUE (LET x = c.a IN x.b) FROM c", "(a.(b))", "()");
    touches("SELECT VALUE a.b FROM c.a", "(a)", "(a)");
    touches("SELECT ARRAY(SELECT VALUE t FROM t IN c.l) FROM c", "(l)", "()");
    touches("SELECT 1", "()", "()");
}

/// Names for names for names: reading each use anew would take forever.
#[test]
fn names_do_not_multiply_the_work() {
    let mut query = "c.a > 1".to_owned();
    for _ in 0..30 {
        query = format!("(LET x = {query} IN (x AND x AND x))");
    }
    let query = format!("SELECT * FROM c WHERE {query}");
    assert!(["/a > 1", "anything"].contains(&prepared(&query).condition().to_string().as_str()));
    let joins: String = (1..10)
        .map(|at| format!("JOIN (SELECT VALUE v{} AND v{} AND v{}) v{at} ", at - 1, at - 1, at - 1))
        .collect();
    let query = format!("SELECT 1 FROM c JOIN (SELECT VALUE c.a > 1) v0 {joins} WHERE v9");
    assert_eq!(prepared(&query).condition().to_string(), "/a > 1");
}

// ---- the law ----

/// Few scalars, so that filters and documents meet.
fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        2 => any::<bool>().prop_map(Value::Bool),
        3 => (0i32..3).prop_map(Value::from),
        3 => prop::sample::select(vec!["", "a", "ab", "b"]).prop_map(Value::from),
    ]
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::vec((prop::sample::select(vec!["a", "b"]), inner), 0..3)
        .prop_map(|members| Value::Object(members.into_iter().collect::<Object>()))
}

fn any_value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            object(inner),
        ]
    })
}

fn document() -> impl Strategy<Value = Value> {
    let member = || prop_oneof![4 => scalar(), 2 => object(scalar()), 1 => any_value()];
    let element = prop_oneof![3 => object(scalar()), 3 => scalar(), 1 => any_value()];
    let list = prop::collection::vec(element, 0..4).prop_map(Value::Array);
    let list = prop_oneof![5 => list, 1 => any_value()];
    (weighted(0.8, member()), weighted(0.8, member()), weighted(0.9, list), weighted(0.3, scalar()))
        .prop_map(|(a, b, l, name)| {
            let members = [("a", a), ("b", b), ("l", l), ("name", name)];
            let defined = members.into_iter().filter_map(|(name, value)| Some((name, value?)));
            Value::Object(defined.collect::<Object>())
        })
}

/// A term over the names that are in scope where it stands.
fn term(names: &'static [&'static str]) -> impl Strategy<Value = String> {
    let path = prop::sample::select(names.to_vec());
    let constant = prop_oneof![
        8 => scalar().prop_map(|value| value.to_text()),
        1 => any_value().prop_map(|value| value.to_text()),
        1 => prop::sample::select(vec!["NaN", "undefined", "Infinity", "0 - 1", "'a' || 'b'"])
            .prop_map(str::to_owned),
    ];
    let operator = prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]);
    let flag = prop::sample::select(vec!["", ", false", ", true"]);
    prop_oneof![
        4 => (path.clone(), operator.clone(), constant.clone())
            .prop_map(|(path, operator, constant)| format!("({path} {operator} {constant})")),
        2 => (path.clone(), operator, constant.clone())
            .prop_map(|(path, operator, constant)| format!("({constant} {operator} {path})")),
        1 => path.clone().prop_map(str::to_owned),
        1 => (path.clone(), constant.clone(), constant.clone())
            .prop_map(|(path, low, high)| format!("({path} BETWEEN {low} AND {high})")),
        1 => (path.clone(), prop::collection::vec(constant.clone(), 1..20))
            .prop_map(|(path, list)| format!("({path} IN ({}))", list.join(", "))),
        1 => (path.clone(), prop::sample::select(vec!["a%", "%", "ab", "a_%", "[a]%", "a%b"]))
            .prop_map(|(path, pattern)| format!("({path} LIKE '{pattern}')")),
        1 => (
            prop::sample::select(vec!["STARTSWITH", "STRINGEQUALS", "ARRAY_CONTAINS", "CONTAINS"]),
            path.clone(),
            constant.clone(),
            flag,
        )
            .prop_map(|(name, path, constant, flag)| format!("{name}({path}, {constant}{flag})")),
        1 => (
            prop::sample::select(vec!["ARRAY_CONTAINS_ANY", "ARRAY_CONTAINS_ALL"]),
            path.clone(),
            prop::collection::vec(constant.clone(), 1..3),
        )
            .prop_map(|(name, path, list)| format!("{name}({path}, {})", list.join(", "))),
        1 => (path.clone(), prop::collection::vec(constant.clone(), 0..3))
            .prop_map(|(path, list)| format!("ARRAY_CONTAINS([{}], {path})", list.join(", "))),
        1 => (path.clone(), -1i32..4, constant)
            .prop_map(|(path, count, constant)| format!("(LEFT({path}, {count}) = {constant})")),
        1 => (path.clone(), -1i32..4)
            .prop_map(|(path, count)| format!("(SUBSTRING({path}, 0, {count}) = 'ab')")),
        2 => (
            prop::sample::select(vec![
                "IS_DEFINED", "IS_NULL", "IS_BOOL", "IS_NUMBER", "IS_STRING", "IS_PRIMITIVE",
                "IS_ARRAY",
            ]),
            path,
        )
            .prop_map(|(name, path)| format!("{name}({path})")),
    ]
}

const DOCUMENT: &[&str] =
    &["c.a", "c.b", "c.l", "c.a.a", "c.a.b", "c.l[0]", "c.l[1]", "c.l[1].a", "c['a']", "c.lower"];
const ELEMENT: &[&str] = &["t", "t.a", "t.b", "t[0]", "c.a"];

fn combined(leaf: impl Strategy<Value = String> + 'static) -> impl Strategy<Value = String> {
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|terms| format!("({})", terms.join(" AND "))),
            3 => prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|terms| format!("({})", terms.join(" OR "))),
            2 => inner.clone().prop_map(|term| format!("(NOT {term})")),
            1 => inner.clone().prop_map(|term| format!("({term} = true)")),
            1 => inner.clone().prop_map(|term| format!("({term} = false)")),
            1 => (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(one, two, three)| format!("({one} ? {two} : {three})")),
            1 => (inner.clone(), inner.clone())
                .prop_map(|(one, two)| format!("({one} ?? {two})")),
            1 => (inner.clone(), inner)
                .prop_map(|(one, two)| format!("(LET x = {one} IN (x OR {two}))")),
        ]
    })
}

fn filter() -> impl Strategy<Value = String> {
    let exists = combined(term(ELEMENT)).prop_flat_map(|filter| {
        prop::sample::select(vec!["VALUE t", "1", "VALUE t.a"]).prop_map(move |selection| {
            format!("EXISTS(SELECT {selection} FROM t IN c.l WHERE {filter})")
        })
    });
    combined(prop_oneof![3 => term(DOCUMENT), 2 => exists])
}

fn joined() -> impl Strategy<Value = String> {
    let sources = prop::sample::select(vec![
        "c JOIN t IN c.l",
        "c JOIN t IN c.l JOIN u IN t.a",
        "c JOIN (SELECT VALUE t FROM t IN c.l WHERE t.a > 0) t",
        "c JOIN t IN (SELECT VALUE c.l)",
        "c JOIN c.l[0] t",
        "c JOIN t IN c.l JOIN u IN c.l",
    ]);
    (sources, combined(term(ELEMENT)))
        .prop_map(|(sources, filter)| format!("SELECT VALUE 1 FROM {sources} WHERE {filter}"))
}

const SYSTEM: SystemProperties<'_> =
    SystemProperties { rid: "tLRRAKmCwMICAAAAAAAAAA==", self_link: "", etag: "", ts: 0 };

fn has_rows(prepared: &Prepared, document: &Value) -> bool {
    let mut rows = Vec::new();
    prepared.rows_of(document, &mut rows).expect("the query stays within its limits");
    !rows.is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A document that passes the filter satisfies the condition; where the condition claims to be
    /// exact, a document that satisfies it passes the filter.
    #[test]
    fn conditions_are_necessary(
        filter in filter(),
        documents in prop::collection::vec(document(), 40),
    ) {
        let prepared = prepared(&format!("SELECT * FROM c WHERE {filter}"));
        let condition = prepared.condition();
        for document in &documents {
            let is_kept = prepared.keeps(document).expect("the filter runs");
            let is_satisfied = satisfies(document, condition, &options().computed_properties);
            prop_assert!(!is_kept || is_satisfied, "{condition}\n{document}");
            if prepared.is_condition_exact() {
                prop_assert_eq!(is_kept, is_satisfied, "exactly: {}\n{}", condition, document);
            }
        }
    }

    /// What a query does not touch does not matter.
    #[test]
    fn the_rest_of_a_document_does_not_matter(
        query in prop_oneof![
            joined(),
            filter().prop_map(|filter| format!("SELECT c.a.b, c.name FROM c WHERE {filter}")),
            filter().prop_map(|filter| format!("SELECT * FROM c WHERE {filter}")),
        ],
        documents in prop::collection::vec(document(), 10),
    ) {
        let prepared = prepared(&query);
        let rows = |document: &Value| {
            let mut rows = Vec::new();
            prepared.rows_of(document, &mut rows).expect("the query stays within its limits");
            Value::Array(rows).to_text()
        };
        for document in &documents {
            let stored = Document::build(document.as_object().expect("it is an object"), &SYSTEM);
            if prepared.returns_documents() {
                let parts = stored.select(prepared.filter_touched());
                prop_assert_eq!(prepared.keeps(&parts), prepared.keeps(document), "{}", query);
                continue;
            }
            let parts = stored.select(prepared.touched());
            prop_assert_eq!(rows(&parts), rows(document), "{}", query);
        }
    }

    /// The same for rows of joins and subqueries.
    #[test]
    fn conditions_of_joins_are_necessary(
        query in joined(),
        documents in prop::collection::vec(document(), 40),
    ) {
        let prepared = prepared(&query);
        for document in &documents {
            if has_rows(&prepared, document) {
                let condition = prepared.condition();
                let is_satisfied = satisfies(document, condition, &options().computed_properties);
                prop_assert!(is_satisfied, "{}\n{}", condition, document);
            }
        }
    }
}
