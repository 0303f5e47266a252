//! User-defined functions: values in, values out, row after row.

mod support;

use script::{ErrorKind, Functions, Limits};
use support::{passing, standing};
use value::Value;

fn functions(sources: &[(&str, &str)]) -> Functions {
    let sources = sources.iter().map(|(name, source)| ((*name).to_owned(), (*source).to_owned()));
    Functions::new(sources, Limits::STANDARD, standing())
}

/// The answer as JSON text, `undefined`, or the error.
fn call(functions: &Functions, name: &str, arguments: &str) -> String {
    let arguments = Value::parse(arguments.as_bytes()).expect("arguments are JSON");
    let arguments = arguments.as_array().expect("arguments are a list").iter().cloned();
    let arguments: Vec<Option<Value>> = arguments.map(Some).collect();
    match functions.call(name, &arguments) {
        Ok(Some(value)) => value.to_text(),
        Ok(None) => "undefined".to_owned(),
        Err(error) => format!("{} {}", error.status(), error.text()),
    }
}

#[test]
fn values_cross_both_ways() {
    let check = |source: &str, arguments: &str, expected: &str| {
        let found = call(&functions(&[("f", source)]), "f", arguments);
        assert_eq!(found, expected, "{source} of {arguments}");
    };
    let same = "function (x) { return x; }";
    for text in [
        "null",
        "true",
        "0",
        "-1.5",
        "1e+300",
        r#""text é 漢 \u0000""#,
        "[1,[2]]",
        r#"{"a":{"b":[null]},"__proto__":1}"#,
        "{}",
    ] {
        check(same, &format!("[{text}]"), &Value::parse(text.as_bytes()).unwrap().to_text());
    }
    check(same, "[]", "undefined");
    check("(a, b) => a + b", "[1,2]", "3");
    check("(a, b) => a + b", r#"["1",2]"#, r#""12""#);
    check(
        "function tax(income) { if (income == undefined) throw 'no input'; return income < 1000 ? income * 0.1 : income * 0.4; }",
        "[100]",
        "10",
    );
    check("() => NaN", "[]", "undefined");
    check("() => 1 / 0", "[]", "undefined");
    check("() => [NaN, undefined]", "[]", "[null,null]");
    check("() => ({a: undefined, b: 1})", "[]", r#"{"b":1}"#);
    check("() => function () {}", "[]", "undefined");
    check("() => Symbol('s')", "[]", "undefined");
    check("() => new Date(0)", "[]", r#""1970-01-01T00:00:00.000Z""#);
    check("() => '\\ud800'.length", "[]", "1");
    check("() => Date.now()", "[]", "1767225600123");
    check(
        "() => typeof getContext + typeof __ + typeof console",
        "[]",
        r#""undefinedundefinedundefined""#,
    );
}

#[test]
fn undefined_arguments_arrive_as_such() {
    let functions =
        functions(&[("f", "function (a, b) { return [typeof a, typeof b, arguments.length]; }")]);
    let found = functions.call("f", &[None, Some(Value::Null)]).unwrap().unwrap();
    assert_eq!(found.to_text(), r#"["undefined","object",2]"#);
}

#[test]
fn errors() {
    let functions = functions(&[
        ("throws", "function () { throw new Error(7, 'x'); }"),
        ("syntax", "function ( {"),
        ("context", "function () { return getContext(); }"),
        ("deep", "function () { var o = {}; for (var i = 0; i < 200; i++) o = {o}; return o; }"),
        ("fine", "function (x) { return x + 1; }"),
        ("memory", "function () { for (var a = [];;) a.push({}); }"),
        ("stack", "function f() { return f(); }"),
    ]);
    let check = |name: &str, expected: &str| {
        let found = call(&functions, name, "[1]");
        assert!(found.contains(expected), "{name}: {found}");
        assert_eq!(call(&functions, "fine", "[1]"), "2", "after {name}");
    };
    check("throws", "400 Encountered exception while executing Javascript. Exception = Error: x");
    check(
        "syntax",
        "400 Encountered exception while compiling Javascript. Exception = SyntaxError",
    );
    check("context", "ReferenceError: getContext is not defined");
    check("deep", "the function \"deep\" returned no value");
    check("memory", "out of memory");
    check("stack", "Maximum call stack size exceeded");
    check("none", "there is no user-defined function \"none\"");
    assert!(functions.contains("fine") && !functions.contains("Fine"));
}

#[test]
fn the_deadline_holds_for_all_calls_together() {
    let sources = [("f".to_owned(), "function (n) { while (n-- > 0); }".to_owned())];
    let functions = Functions::new(sources, Limits::STANDARD, passing(200, 200));
    let calls = (0..1000).map(|_| functions.call("f", &[Some(Value::from(100_000))]));
    let error = calls.into_iter().find_map(Result::err).unwrap();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(
        functions.call("f", &[Some(Value::from(1_000_000))]).is_err(),
        "time does not come back"
    );
}

#[test]
fn many_rows_in_one_runtime() {
    let functions = functions(&[("f", "function (d) { return d.n % 2 ? d.name : undefined; }")]);
    let mut kept = 0;
    for n in 0..20_000 {
        let row = Value::parse(format!(r#"{{"n":{n},"name":"row {n}"}}"#).as_bytes()).unwrap();
        kept += usize::from(functions.call("f", &[Some(row)]).unwrap().is_some());
    }
    assert_eq!(kept, 10_000);
}

/// A query may go from thread to thread.
#[test]
fn functions_move_between_threads() {
    let functions = functions(&[("f", "function f(n) { return n ? f(n - 1) + 1 : 0; }")]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(call(&functions, "f", "[100]"), "100");
                }
            });
        }
    });
}
