//! Procedures: what they are given, what they answer, and how they fail.

mod support;

use support::{Memory, answer, answer_with};

#[test]
fn bodies_of_answers() {
    let check = |statements: &str, expected: &str| {
        let source = format!("function f() {{ var r = getContext().getResponse(); {statements} }}");
        assert_eq!(answer(&source), expected, "{statements}");
    };
    check("", "");
    check("r.setBody('x')", r#""x""#);
    check("r.setBody('')", r#""""#);
    check("r.setBody({a: [1, null, true]})", r#"{"a":[1,null,true]}"#);
    check("r.setBody(undefined)", "");
    check("r.setBody(null)", "null");
    check("r.setBody(1.5)", "1.5");
    check("r.setBody(function () {})", "");
    check(
        "for (var i = 0; i < 1000; i++) { if (i > 0 && r.getBody() != i - 1) throw 'lost'; r.setBody(i); }",
        "999",
    );
    check("for (var i = 0; i < 10; i++) r.appendValue('Body', i);", r#""0123456789""#);
    check("r.setBody(1); r.appendBody(2)", "3");
    check("r.setBody(null); r.appendBody({a: 1})", r#"{"a":1}"#);
    check("r.setValue('Body', 4); r.setBody(r.getValue('Body') + 1)", "5");
    check("var o = {n: 1}; r.setBody(o); o.n = 2", r#"{"n":2}"#);
}

#[test]
fn parameters() {
    let check = |source: &str, sent: &str, expected: &str| {
        let found = answer_with(&mut Memory::default(), source, sent);
        assert!(found.starts_with(expected), "{sent}: {found}");
    };
    let list = "function () { getContext().getResponse().setBody(Array.prototype.slice.call(arguments)); }";
    check(
        "function (input) { getContext().getResponse().setBody('a' + input.temp); }",
        r#"[{"temp":"so"}]"#,
        r#""aso""#,
    );
    check("(one) => getContext().getResponse().setBody(one)", r#"["one"]"#, r#""one""#);
    check("(one) => getContext().getResponse().setBody(one)", "[null]", "null");
    check("(one) => getContext().getResponse().setBody(one)", "[]", "");
    check(list, "", "[]");
    check(list, "null", "[]");
    check(list, "{}", "[]");
    check(list, r#"{"0":"a","1":"b","length":"2"}"#, r#"["a","b"]"#);
    check(list, "[1,2,3,4,5,6,7,8,9,10,11]", "[1,2,3,4,5,6,7,8,9,10,11]");
    check(list, r#"{"length":600000}"#, "400/400");
    check(list, "1", "400 ");
    check(list, "\"x\"", "400 ");
    check(list, "[1", "400 ");
}

#[test]
fn forms_of_sources() {
    let body = "{ getContext().getResponse().setBody('ran'); }";
    let check = |source: String| assert_eq!(answer(&source), r#""ran""#, "{source}");
    check(format!("function () {body}"));
    check(format!("function name() {body}"));
    check(format!("function name() {body};"));
    check(format!("() => {body}"));
    check(format!("async () => {body}"));
    check(format!("async function name() {body}"));
    check(format!("(function () {body})"));
    check(format!("// says what it does\n/* twice */\n\nfunction name() {body}\n// the end"));
    check(format!("'use strict';\nfunction name() {body}"));
    check(format!("function name() {body}\nfunction helper() {{ throw 'not me'; }}"));
    check("function name() { helper(); }\nfunction helper() { getContext().getResponse().setBody('ran'); }".to_owned());
    check(
        "var greeting = 'ran'; function name() { getContext().getResponse().setBody(greeting); }"
            .to_owned(),
    );
    check("(class { static main() {} }).main && (() => { const {a, ...rest} = {a: 'ran', b: 2}; let t = `${a}`; __.response.setBody(t ?? rest); })".to_owned());
}
