//! Hostile queries are stopped: by memory, by time, by depth.

use query::{ErrorKind, Limits, Options, RunError, prepare};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use value::{Number, Object, Value};

const MEMORY: usize = 4 << 20;

fn documents(count: usize) -> impl Iterator<Item = Result<Value, Infallible>> {
    (0..count).map(|number| {
        let list = (0..1_000).map(|item| Value::Number(Number::from(item))).collect::<Vec<_>>();
        let document = Object::from([
            ("id", Value::from(format!("{number}"))),
            ("list", Value::Array(list)),
            ("text", Value::String("a".repeat(1_000))),
        ]);
        Ok(Value::Object(document))
    })
}

fn outcome(query: &str, limits: Limits, count: usize) -> Result<usize, ErrorKind> {
    let prepared = match prepare(query, &[], &Options::new(0, 0, limits)) {
        Ok(prepared) => prepared,
        Err(error) => return Err(error.kind()),
    };
    match prepared.run(documents(count)) {
        Ok(rows) => Ok(rows.len()),
        Err(RunError::Query(error)) => Err(error.kind()),
    }
}

#[track_caller]
fn too_large(query: &str) {
    assert_eq!(outcome(query, Limits::memory(MEMORY), 200), Err(ErrorKind::TooLarge), "{query}");
}

#[test]
fn memory_is_bounded_whatever_the_clause() {
    too_large("SELECT VALUE c FROM c JOIN a IN c.list");
    too_large("SELECT VALUE c FROM c JOIN a IN c.list JOIN b IN c.list ORDER BY c.id");
    too_large("SELECT DISTINCT VALUE [c.id, a, b] FROM c JOIN a IN c.list JOIN b IN c.list");
    too_large("SELECT a, b, COUNT(1) FROM c JOIN a IN c.list JOIN b IN c.list GROUP BY a, b");
    too_large("SELECT VALUE MAKELIST(c.text) FROM c JOIN a IN c.list");
    too_large("SELECT VALUE ARRAY(SELECT VALUE c.text FROM a IN c.list JOIN b IN c.list) FROM c");
    too_large("SELECT VALUE REPLACE(c.text, 'a', REPLICATE(c.text, 9)) FROM c");
    too_large(
        "SELECT VALUE STRINGJOIN(ARRAY(SELECT VALUE 'x' FROM a IN c.list), REPLICATE(c.text, 9)) \
         FROM c",
    );
}

/// Each level doubles what the level below made.
#[test]
fn doubling_is_bounded() {
    for step in ["[x, x]", "{a: x, b: x}", "ARRAY_CONCAT(x, x)"] {
        let mut query = "SELECT VALUE [1]".to_owned();
        for _ in 0..40 {
            query = format!("SELECT VALUE {step} FROM ({query}) x");
        }
        too_large(&query);
    }
    let mut query = "SELECT VALUE 'ab'".to_owned();
    for _ in 0..40 {
        query = format!("SELECT VALUE CONCAT(x || x, x) FROM ({query}) x");
    }
    too_large(&query);
}

/// Constants are evaluated when the query is bound, but not without end.
#[test]
fn constants_are_bounded() {
    let calls = vec!["REPLICATE('a', 10000)"; 5_000].join(", ");
    too_large(&format!("SELECT VALUE [{calls}] FROM c"));
    let mut doubled = "[1, 2]".to_owned();
    for _ in 0..10 {
        doubled = format!("ARRAY_CONCAT({doubled}, {doubled})");
    }
    let options = Options::new(0, 0, Limits::memory(MEMORY));
    let prepared = prepare(&format!("SELECT VALUE ARRAY_LENGTH({doubled})"), &[], &options);
    let rows = prepared.expect("the query is right").run(documents(0));
    assert_eq!(rows, Ok(vec![Value::from(2048)]));
}

#[test]
fn sorting_for_a_page_keeps_only_the_page() {
    let query = "SELECT TOP 3 VALUE c.text FROM c JOIN a IN c.list ORDER BY c.id";
    assert_eq!(outcome(query, Limits::memory(MEMORY), 50), Ok(3));
}

#[test]
fn time_is_looked_at_while_one_document_is_joined() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let limits = Limits {
        memory_bytes_max: MEMORY,
        is_expired: Arc::new(move || counter.fetch_add(1, Ordering::Relaxed) > 10),
    };
    let query = "SELECT VALUE 1 FROM c JOIN a IN c.list JOIN b IN c.list JOIN d IN c.list \
                 WHERE a = -1";
    assert_eq!(outcome(query, limits, 1), Err(ErrorKind::TimedOut));
    assert!(asked.load(Ordering::Relaxed) < 20);
}

#[test]
fn a_hostile_pattern_is_stopped() {
    let query = r"SELECT VALUE REGEXMATCH(c.text, '^(a|a|aa)+(?=b)$') FROM c";
    assert_eq!(outcome(query, Limits::memory(MEMORY), 1), Err(ErrorKind::Refused));
}

/// The deepest queries that are read can be bound, run and dropped on a small stack.
#[test]
fn depth_is_bounded() {
    let run = || {
        let nested = |open: &str, leaf: &str, close: &str, depth: usize| {
            format!("SELECT VALUE {}{leaf}{} FROM c", open.repeat(depth), close.repeat(depth))
        };
        for (open, close) in [
            ("(SELECT VALUE ", ")"),
            ("ARRAY(SELECT VALUE ", ")"),
            ("EXISTS(SELECT VALUE ", ")"),
            ("[", "]"),
            ("{a: ", "}"),
            ("ABS(", ")"),
            ("- ", ""),
            ("(1 + ", ")"),
            ("IIF(true, ", ", 1)"),
            ("(c.list IN (", "))"),
            ("(true ? ", " : 1)"),
            ("(LET x = 1 IN ", ")"),
            ("(SELECT VALUE x FROM (SELECT VALUE ", ") x)"),
        ] {
            let deepest = (1..=sql::HEIGHT_MAX)
                .rev()
                .map(|depth| nested(open, "1", close, depth))
                .find(|query| sql::parse(query).is_ok());
            let deepest = deepest.expect("some depth is read");
            assert!(outcome(&deepest, Limits::memory(MEMORY), 1).is_ok(), "{open}");
        }
    };
    let thread = std::thread::Builder::new().stack_size(1536 * 1024).spawn(run);
    thread.expect("threads start").join().expect("no stack overflows");
}

/// A large parameter is held once, however often the text names it; copies would take gigabytes.
#[test]
fn parameters_are_shared() {
    let parameters = [("@p".to_owned(), Value::String("x".repeat(1 << 20)))];
    let terms = vec!["@p = 1"; 20_000].join(" OR ");
    let options = Options::new(0, 0, Limits::memory(MEMORY));
    let prepared = prepare(&format!("SELECT VALUE {terms}"), &parameters, &options);
    let rows = prepared.expect("the query is right").run(documents(0));
    assert_eq!(rows, Ok(vec![Value::Bool(false)]));
}

/// One document with everything that takes long, and the answer to a query over it; an error when
/// time runs out after a few looks.
fn ask(query: &str, parameters: &[(String, Value)], looks: usize) -> Result<Vec<Value>, ErrorKind> {
    let names = |numbers: &mut dyn Iterator<Item = usize>| {
        let member = |number| (format!("name{number}"), Value::from(number));
        Value::Object(numbers.map(member).collect())
    };
    let document = Value::Object(Object::from([
        ("text", Value::String("a".repeat(100_000))),
        ("up", names(&mut (0..2_000))),
        ("down", names(&mut (0..2_000).rev())),
        ("list", Value::Array(vec![names(&mut (0..200)); 100])),
        ("few", Value::Array((0..30).map(Value::from).collect())),
    ]));
    let asked = AtomicUsize::new(0);
    let limits = Limits {
        memory_bytes_max: 64 << 20,
        is_expired: Arc::new(move || asked.fetch_add(1, Ordering::Relaxed) >= looks),
    };
    let options = Options::new(0, 0, limits);
    let prepared = prepare(query, parameters, &options).map_err(|error| error.kind())?;
    let rows = prepared.run([Ok::<_, Infallible>(document)]);
    rows.map_err(|RunError::Query(error)| error.kind())
}

/// The answer is right with enough time, and without it the query ends early.
#[track_caller]
fn stops(query: &str, parameters: &[(String, Value)], expected: &str) {
    let rows = ask(query, parameters, usize::MAX).expect("there is time");
    let rows: Vec<String> = rows.iter().map(Value::to_text).collect();
    assert_eq!(rows, [expected], "{query}");
    let stopped = ask(query, parameters, 1);
    assert_eq!(stopped, Err(ErrorKind::TimedOut), "{query}");
}

#[test]
fn time_is_looked_at_while_a_pattern_of_like_is_matched() {
    stops("SELECT VALUE c.text LIKE @p FROM c", &like("%a%a%b"), "false");
    stops("SELECT VALUE c.text LIKE (@p || '') FROM c", &like("%a%a%b"), "false");
    let class: String = ('\u{4e00}'..).take(100_000).collect();
    stops("SELECT VALUE c.text LIKE @p FROM c", &like(&format!("%[{class}]%")), "false");
    stops("SELECT VALUE c.text LIKE @p FROM c", &like(&format!("%[{class}a]%a")), "true");
}

fn like(pattern: &str) -> [(String, Value); 1] {
    [("@p".to_owned(), Value::from(pattern))]
}

#[test]
fn time_is_looked_at_while_objects_are_compared() {
    stops("SELECT VALUE c.up = c.down FROM c", &[], "true");
    stops("SELECT VALUE c.up != c.down FROM c", &[], "false");
    stops("SELECT VALUE c.up IN (c.list, c.down) FROM c", &[], "true");
    stops("SELECT VALUE ARRAY_CONTAINS([c.up], c.down) FROM c", &[], "true");
    stops("SELECT VALUE ARRAY_CONTAINS([c.up], c.down, true) FROM c", &[], "true");
    stops("SELECT VALUE ARRAY_CONTAINS(c.list, {name199: 0}, true) FROM c", &[], "false");
    stops("SELECT VALUE ARRAY_CONTAINS_ANY([c.up], c.down) FROM c", &[], "true");
}

/// A select list with very many names takes time in proportion to their number.
#[test]
fn many_output_names_take_no_time() {
    let items: Vec<String> = (0..20_000).map(|number| format!("{number} AS n{number}")).collect();
    let list = items.join(", ");
    let query = format!("SELECT VALUE x.n19999 FROM (SELECT {list}, c.few[0] AS n0 FROM c) x");
    stops(&query, &[], "19999");
    let rows = ask(&format!("SELECT {list}, 7 AS n1 FROM c"), &[], usize::MAX);
    let rows = rows.expect("there is time");
    let object = rows[0].as_object().expect("a list is an object");
    assert_eq!(object.len(), 20_000);
    assert_eq!(object.keys().nth(1), Some("n1"));
    assert_eq!(object.get("n1"), Some(&Value::from(7)));
}

#[test]
fn time_is_looked_at_between_the_strings_looked_for() {
    let wanted: Vec<String> = (0..50).map(|number| format!("'b{number}'")).collect();
    let wanted = wanted.join(", ");
    for function in ["CONTAINS_ANY_CS", "CONTAINS_ANY_CI"] {
        let query = format!("SELECT VALUE {function}(c.text, {wanted}) FROM c");
        stops(&query, &[], "false");
    }
    let wanted = vec!["'a'"; 50].join(", ");
    for function in ["CONTAINS_ALL_CS", "CONTAINS_ALL_CI"] {
        let query = format!("SELECT VALUE {function}(c.text, {wanted}) FROM c");
        stops(&query, &[], "true");
    }
}

/// Rows are counted, but so is how much each of them has to go through.
#[test]
fn time_is_looked_at_while_few_rows_handle_long_strings() {
    let check = |expression: &str, expected: &str| {
        let query = format!("SELECT VALUE COUNT(1) FROM c JOIN x IN c.few WHERE {expression}");
        stops(&query, &[], expected);
    };
    check("CONTAINS(c.text, 'b')", "0");
    check("LENGTH(c.text) = 100000", "30");
    check("UPPER(c.text) != c.text", "30");
    check("REVERSE(c.text) = c.text", "30");
    check("c.text <= c.text", "30");
    check("c.text BETWEEN c.text AND c.text", "30");
    check("LENGTH(c.text || 'b') > 0", "30");
    check("TRIM(c.text, 'ab') = ''", "30");
}
