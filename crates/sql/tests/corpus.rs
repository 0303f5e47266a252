//! The grammar baselines of the service's own parser tests, run in place.
//!
//! The corpus lies beside the checkout and is not part of it; without it there is nothing to run.

use sql::{Direction, Query};
use std::path::Path;
use value::Value;

/// Cases whose normal form shows the precedence or the string escapes of a client-side grammar.
/// The service's table puts all bitwise operators on the level of `+` and tighter than
/// comparison, and its strings resolve every escape; both are in the language reference.
const CLIENT_GRAMMAR: &[&str] = &[
    "scalarexpression.binary-23",
    "scalarexpression.binary-29",
    "scalarexpression.binary-30",
    "scalarexpression.binary-31",
    "scalarexpression.stringliteral-1",
    "scalarexpression.stringliteral-2",
    "scalarexpression.stringliteral-3",
];

#[test]
fn accepts_and_normalises_as_the_baselines_do() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/parser/parser.jsonl");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("not run: no corpus beside the checkout");
        return;
    };
    let failures: Vec<String> = text.lines().filter_map(failure).collect();
    assert!(failures.is_empty(), "{} cases:\n{}", failures.len(), failures.join("\n"));
}

fn failure(line: &str) -> Option<String> {
    let case = Value::parse(line.as_bytes()).expect("the corpus is JSON");
    let member = |name| case.get(name).and_then(Value::as_str);
    let name = member("name").expect("cases have names");
    let text = member("query").expect("cases have queries");
    let accepts = case.get("accepts").and_then(Value::as_bool).expect("cases have a verdict");
    let query = match (sql::parse(text), accepts) {
        (Ok(query), true) => query,
        (Err(_), false) => return None,
        (Ok(query), false) => return Some(format!("{name}: accepted {text} as {query}")),
        (Err(error), true) => return Some(format!("{name}: refused {text}: {error}")),
    };
    assert_eq!(sql::parse(&query.to_string()).as_ref(), Ok(&query), "{name}");
    let normal = member("normalized").expect("accepted cases have a normal form").trim_end();
    let printed = with_directions(query).to_string();
    let differs = printed != normal;
    if differs == CLIENT_GRAMMAR.contains(&name) {
        return None;
    }
    Some(format!("{name}: printed {printed}, expected {normal}"))
}

/// The baselines write the default direction out; our trees keep what was written, because query
/// plans need that.
fn with_directions(mut query: Query) -> Query {
    if let Some(order_by) = &mut query.order_by
        && !order_by.rank
    {
        for key in &mut order_by.keys {
            key.direction.get_or_insert(Direction::Ascending);
        }
    }
    query
}
