//! Laws that hold for any query and any documents.

use proptest::prelude::*;
use query::{Limits, Options, Prepared, prepare};
use std::convert::Infallible;
use value::{Number, Object, Value};

fn options() -> Options {
    Options::new(17_673_242_450_000_000, 3, Limits::memory(8 << 20))
}

fn run(query: &str, documents: &[Value]) -> Vec<Value> {
    let prepared = prepare(query, &[], &options()).expect("the query is right");
    run_prepared(&prepared, documents).expect("the query stays within its limits")
}

fn run_prepared(prepared: &Prepared, documents: &[Value]) -> Option<Vec<Value>> {
    prepared.run(documents.iter().cloned().map(Ok::<Value, Infallible>)).ok()
}

fn text() -> impl Strategy<Value = String> {
    let samples = vec![
        "",
        "a",
        "abc",
        "Été",
        "a😀b",
        "2024-02-29T12:00:00Z",
        "0001-01-01",
        "9999-12-31",
        "[1]",
        "{\"a\":null}",
        "-1e5",
        "ns",
        "yyyy",
        "month",
        "(a|b)+",
        "[",
        "imsx",
        "%_[a-c]",
        " x ",
    ];
    prop_oneof![prop::sample::select(samples).prop_map(str::to_owned), any::<String>(),]
}

fn number() -> impl Strategy<Value = f64> {
    let samples = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        7.0,
        1e308,
        -1e308,
        5e-324,
        9.007_199_254_740_993e15,
        1e19,
        i64::MIN as f64,
    ];
    prop_oneof![prop::sample::select(samples), -10.0..10.0f64, (-20i32..20).prop_map(f64::from)]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number().prop_map(|number| Value::Number(Number::from(number))),
        any::<i64>().prop_map(|number| Value::Number(Number::from(number))),
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((prop::sample::select(vec!["a", "b", "k"]), inner), 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Object>())),
        ]
    })
}

fn documents() -> impl Strategy<Value = Vec<Value>> {
    let document =
        prop::collection::vec((prop::sample::select(vec!["a", "b", "l"]), value()), 0..4)
            .prop_map(|members| Value::Object(members.into_iter().collect::<Object>()));
    prop::collection::vec(document, 0..8)
}

/// Names of functions of all kinds; each is called with any number of arguments of any type.
const FUNCTIONS: &str = "ABS CEILING LOG NUMBERBIN POWER ROUND SIGN INTADD INTDIV INTMOD INTMUL \
    INTBITLEFTSHIFT INTBITNOT IS_DEFINED IS_INTEGER IS_DATETIME CONCAT CONTAINS INDEX_OF LASTINDEXOF \
    LEFT RIGHT LENGTH LOWER LTRIM TRIM REPLACE REPLICATE REVERSE SUBSTRING SUBSTRINGAFTER STRINGJOIN \
    STRINGSPLIT STRINGEQUALS CONTAINS_ANY_CI CONTAINS_ALL_CS STRINGTOARRAY STRINGTONUMBER \
    STRINGTOOBJECT TOSTRING REGEXMATCH REGEXEXTRACT REGEXEXTRACTALL REGEXREPLACEALL ARRAY_AVG \
    ARRAY_CONCAT ARRAY_CONTAINS ARRAY_CONTAINS_ALL ARRAY_MAX ARRAY_MEDIAN ARRAY_SLICE ARRAY_SUM \
    OBJECTTOARRAY SETUNION SETINTERSECT SETDIFFERENCE SETEQUAL CHOOSE IIF DATETIMEADD DATETIMEBIN \
    DATETIMEDIFF DATETIMEFORMAT DATETIMEFROMPARTS DATETIMEPART DATETIMETOTICKS TICKSTODATETIME \
    TIMESTAMPTODATETIME NOW AGO RAND DOCUMENTID ST_AREA \
    ST_DISTANCE ST_INTERSECTS ST_ISVALID ST_ISVALIDDETAILED ST_WITHIN";

const GEOMETRIES: &[&str] = &[
    "{type: 'Point', coordinates: [0, 90]}",
    "{type: 'Point', coordinates: [180, 0]}",
    "{type: 'LineString', coordinates: [[0, 0], [0, 0], [179, 1]]}",
    "{type: 'Polygon', coordinates: [[[0, 0], [0, 0], [0, 0], [0, 0]]]}",
    "{type: 'Polygon', coordinates: [[[0, 0], [180, 0], [0, 90], [0, 0]], []]}",
    "{type: 'Polygon', coordinates: [[[0, 0], [9, 0], [9, 9], [0, 0]]]}",
];

const OPERATORS: &str = "+ - * / % & | ^ << >> >>> || = != < <= > >= AND OR ?? IN LIKE";

fn words(list: &'static str) -> impl Strategy<Value = &'static str> + Clone {
    prop::sample::select(list.split_whitespace().collect::<Vec<_>>())
}

/// The text of an expression over a document `c`.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["c", "c.a", "c.b", "c.l", "c.a.b", "c.l[0]", "undefined", "NaN"])
            .prop_map(str::to_owned),
        prop::sample::select(GEOMETRIES.to_vec()).prop_map(str::to_owned),
        value().prop_map(|value| value.to_text()),
        text().prop_map(|text| Value::String(text).to_text()),
        number().prop_map(|number| Value::Number(Number::from(number)).to_text()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (words(FUNCTIONS), prop::collection::vec(inner.clone(), 0..5))
                .prop_map(|(name, arguments)| format!("{name}({})", arguments.join(", "))),
            (inner.clone(), words(OPERATORS), inner.clone()).prop_map(|(left, operator, right)| {
                match operator {
                    "IN" => format!("({left} IN ({right}, {left}))"),
                    _ => format!("({left} {operator} {right})"),
                }
            }),
            (prop::sample::select(vec!["-", "+", "~", "NOT "]), inner.clone())
                .prop_map(|(operator, operand)| format!("({operator}{operand})")),
            inner.clone().prop_map(|inner| format!("ARRAY(SELECT DISTINCT VALUE {inner})")),
            inner.clone().prop_map(|inner| format!("(SELECT VALUE COUNT({inner}))")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(first, second, third)| format!("({first} ? {second} : {third})")),
            (inner.clone(), inner).prop_map(|(object, index)| format!("({object})[{index}]")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Whatever the types, an expression has a value or none; nothing panics, and what is returned
    /// can be written as JSON and read back.
    #[test]
    fn any_expression_can_be_evaluated(expression in expression(), documents in documents()) {
        let query = format!("SELECT VALUE {expression} FROM c");
        let Ok(prepared) = prepare(&query, &[], &options()) else { return Ok(()) };
        let Some(rows) = run_prepared(&prepared, &documents) else { return Ok(()) };
        prop_assert!(rows.len() <= documents.len());
        for row in rows {
            let read = Value::parse(row.to_text().as_bytes());
            prop_assert_eq!(read.map(|read| read == row), Ok(true));
        }
    }
}

proptest! {
    /// A filter, its negation and what is neither true nor false divide the documents.
    #[test]
    fn logic_has_three_values(filter in expression(), documents in documents()) {
        let count = |condition: String| {
            let query = format!("SELECT VALUE COUNT(1) FROM c WHERE {condition}");
            let prepared = prepare(&query, &[], &options()).ok()?;
            run_prepared(&prepared, &documents)?[0].as_i64()
        };
        prop_assume!(!filter.contains("RAND"));
        let yes = count(format!("({filter}) = true"));
        let no = count(format!("NOT (({filter}) = true)"));
        let neither = count(format!("NOT IS_DEFINED(({filter}) = true)"));
        prop_assume!(yes.is_some() && no.is_some() && neither.is_some());
        let sum = yes.and_then(|yes| Some(yes + no? + neither?));
        prop_assert_eq!(sum, i64::try_from(documents.len()).ok());
    }

    #[test]
    fn order_is_the_order_of_values(documents in documents()) {
        let order = |left: &Value, right: &Value| value::compare(left.get("a"), right.get("a"));
        let ascending = run("SELECT c.a FROM c ORDER BY c.a", &documents);
        prop_assert!(ascending.is_sorted_by(|left, right| order(left, right).is_le()));
        let descending = run("SELECT c.a FROM c ORDER BY c.a DESC", &documents);
        prop_assert!(descending.is_sorted_by(|left, right| order(left, right).is_ge()));
        prop_assert_eq!(ascending.len(), documents.len());
    }

    /// Pages of any size, put together, are the whole list.
    #[test]
    fn pages_make_the_list(documents in documents(), size in 1usize..5) {
        let whole = run("SELECT * FROM c ORDER BY c.a", &documents);
        let mut pages = Vec::new();
        for offset in (0..=documents.len()).step_by(size) {
            let query = format!("SELECT * FROM c ORDER BY c.a OFFSET {offset} LIMIT {size}");
            pages.extend(run(&query, &documents));
        }
        prop_assert_eq!(pages, whole);
    }

    /// `DISTINCT`, `GROUP BY` and `MAKESET` agree on what is equal, and `=` agrees with them.
    #[test]
    fn equality_is_one_relation(documents in documents()) {
        let distinct = run("SELECT DISTINCT VALUE c.a FROM c", &documents);
        let groups = run("SELECT VALUE c.a FROM c GROUP BY c.a", &documents);
        let set = run("SELECT VALUE MAKESET(c.a) FROM c", &documents);
        prop_assert_eq!(&distinct, &groups);
        prop_assert_eq!(Some(&distinct[..]), set[0].as_array());
        let equal = run(
            "SELECT VALUE COUNT(1) FROM (SELECT VALUE MAKESET(c.a) FROM c) s \
             JOIN x IN s JOIN y IN s WHERE x = y",
            &documents,
        );
        prop_assert_eq!(equal[0].as_i64(), i64::try_from(distinct.len()).ok());
    }

    #[test]
    fn counts_of_groups_add_up(documents in documents()) {
        let counts = run("SELECT VALUE COUNT(1) FROM c GROUP BY c.a, c.b", &documents);
        let sum: i64 = counts.iter().filter_map(Value::as_i64).sum();
        prop_assert_eq!(Some(sum), i64::try_from(documents.len()).ok());
    }
}
