//! Procedures: what they are given, what they answer, and how they fail.

mod support;

use script::{ErrorKind, Surroundings, system_procedure};
use support::{Memory, NOW_MS, answer, answer_with, call, call_with, passing, show};

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

#[test]
fn errors() {
    let check = |statements: &str, expected: &str| {
        let found = answer(&format!("function broken() {{ {statements} }}"));
        assert!(found.starts_with(expected), "{statements}\n{found}");
    };
    let main = "Encountered exception while executing Javascript. Exception = ";
    let callback = "Encountered exception while executing function. Exception = ";
    check(
        "throw new Error('x');",
        &format!("400 {main}Error: x\r\nStack trace: Error: x\n   at broken (test.js:1:"),
    );
    check("throw new Error(1234, 'x');", &format!("400/1234 {main}Error: x\r\nStack trace: "));
    check("throw new Error(32766, 'x');", &format!("400/32766 {main}Error: x"));
    check("throw Error(409, 'x');", &format!("400/409 {main}Error: x"));
    check("throw new Error(1.5, 'x');", &format!("400 {main}Error: x"));
    check("throw new Error(-1, 'x');", &format!("400 {main}Error: x"));
    check("throw 'text';", &format!("400 {main}text"));
    check("throw 7;", &format!("400 {main}7"));
    check("throw {number: 5};", &format!("400/5 {main}[object Object]"));
    check("throw undefined;", &format!("400 {main}undefined"));
    check("missing();", &format!("400 {main}ReferenceError: missing is not defined"));
    check("null.x;", &format!("400 {main}TypeError: "));
    check(
        "class Own extends Error { constructor(m) { super(m); this.number = 12; } } throw new Own('x');",
        &format!("400/12 {main}Error: x"),
    );
    check(
        "getContext().abort(new Error(77, 'x')); getContext().getResponse().setBody('not reached');",
        &format!("400/77 {main}Error: x"),
    );
    check(
        "try { getContext().abort('why'); } catch (e) {} finally { getContext().getResponse().setBody('no'); }",
        &format!("400 {main}why"),
    );
    check("getContext().abort();", &format!("400 {main}undefined"));
    check(
        "Promise.resolve().then(function () { getContext().abort(new Error('x')); });",
        &format!("400 {callback}Error: x"),
    );
    check(
        "__.readDocuments(__.getSelfLink(), function () { throw new Error(5, 'x'); });",
        &format!("400/5 {callback}Error: x"),
    );
    check(
        "__.readDocument(__.getAltLink() + '/docs/missing');",
        &format!("400/404 {callback}Error: {{\"Errors\":[\"Resource Not Found\"]}}"),
    );
    check(
        "__.readDocument(__.getAltLink() + '/docs/missing', function (e) { throw e; });",
        &format!("400/404 {callback}Error: {{\"Errors\":[\"Resource Not Found\"]}}"),
    );
    check(
        "__.response.setBody('x'.repeat(4194305));",
        &format!("400/413 {main}Error: Resulting message would be too large because of \"Body\"."),
    );
    check(
        "for (;;) __.response.appendBody('x'.repeat(1000000));",
        &format!("400/413 {main}Error: Resulting message would be too large"),
    );
    check(
        "__.response.setValue('Other', 1);",
        &format!("400/400 {main}Error: Cannot set new values: Other"),
    );
    check("__.request.setBody(1);", &format!("400 {main}TypeError: "));
    check("__.request.getValue('Other');", &format!("400 {main}TypeError: "));
}

#[test]
fn sources_that_are_none() {
    let check = |source: &str, expected: &str| {
        let found = answer(source);
        assert!(
            found.starts_with("400/65535 Encountered exception while compiling Javascript."),
            "{source}\n{found}"
        );
        assert!(found.contains(expected), "{source}\n{found}");
    };
    check("serverScript() { var x = 1; }", "SyntaxError");
    check("function () {\n  var x = ;\n}", "test.js:2:");
    check("function good() {}\nfunction bad() {\n  var x = ;\n}", "test.js:3:");
    check("function (", "SyntaxError");
    check("", "must be a function");
    check("   // only a comment", "must be a function");
    check("42", "must be a function");
    check("({a: 1})", "must be a function");
    check("\0", "Error");
}

/// The service swallows what an asynchronous procedure throws, commits and answers.
#[test]
fn rejections_are_swallowed() {
    let mut memory = Memory::default();
    let source = "async function () { __.createDocument(__.getSelfLink(), {id: 'x'}); __.response.setBody(1); throw new Error('lost'); }";
    let outcome = call(&mut memory, source, "").unwrap();
    assert_eq!(outcome.body.as_deref(), Some("1"));
    assert_eq!(outcome.rejection.as_deref(), Some("Error: lost"));
    assert_eq!(memory.ids(), "x");
    let source = "function () { Promise.reject(new Error('x')).catch(e => { throw e; }); }";
    assert_eq!(answer(source), "");
}

#[test]
fn turns_follow_one_another() {
    let source = r#"function () {
        var steps = [];
        var link = __.getSelfLink();
        Promise.resolve().then(() => steps.push('promise of the main turn'));
        __.createDocument(link, {id: 'a'}, function (error, document) {
            steps.push('created ' + document.id);
            Promise.resolve().then(() => steps.push('promise of the callback'));
            __.readDocument(document._self, (error, again) => { steps.push('read ' + again.id); __.response.setBody(steps); });
        });
        __.createDocument(link, {id: 'b'}, (error, document) => steps.push('created ' + document.id));
        steps.push('end of the main turn');
    }"#;
    let expected = r#"["end of the main turn","promise of the main turn","created a","promise of the callback","created b","read a"]"#;
    assert_eq!(answer(source), expected);
}

#[test]
fn asynchronous_procedures() {
    let source = r#"async function main(prefix) {
        const link = __.getSelfLink();
        const create = (body) => new Promise((resolve, reject) => {
            const accepted = __.createDocument(link, body, (error, document) => error ? reject(error) : resolve(document));
            if (!accepted) reject(new Error('not accepted'));
        });
        try {
            const made = [];
            for (let at = 0; at < 3; at += 1) made.push((await create({id: prefix + at})).id);
            await create({id: prefix + 0});
        } catch (error) {
            getContext().getResponse().setBody([error.number, error.body, error.message]);
        }
    }"#;
    let mut memory = Memory::default();
    let message = r#"{\"Errors\":[\"Resource with specified id or name already exists.\"]}"#;
    assert_eq!(
        answer_with(&mut memory, source, r#"["x"]"#),
        format!(r#"[409,"{message}","{message}"]"#)
    );
    assert_eq!(memory.ids(), "x0 x1 x2");
}

#[test]
fn a_failure_leaves_nothing() {
    let mut memory = Memory::with(&[r#"{"id":"old"}"#]);
    let source = "function () { var l = __.getSelfLink(); __.createDocument(l, {id: 'a'}); __.createDocument(l, {id: 'b'}, function () { throw 'no'; }); }";
    assert!(call(&mut memory, source, "").is_err());
    assert_eq!(memory.calls, ["create a", "create b"]);
    assert_eq!(memory.ids(), "old");
}

#[test]
fn the_host_can_stop_a_script() {
    let mut memory = Memory { stops_at: Some(1), ..Memory::default() };
    let source = "function () { try { for (var i = 0; i < 3; i++) __.createDocument(__.getSelfLink(), {id: 'd' + i}, function (e) { if (e) throw 'told'; }); } finally {} }";
    let error = call(&mut memory, source, "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(memory.calls, ["create d0"]);
    // The same again, on a host that lets it.
    memory.stops_at = None;
    call(&mut memory, source, "").unwrap();
    assert_eq!(memory.ids(), "d0 d1 d2");
}

/// Two runs with the same documents, time and seed do the same.
#[test]
fn time_and_chance_are_the_callers() {
    let source = r#"function () {
        __.createDocument(__.getSelfLink(), {n: 1}, function (e, d) {
            __.response.setBody([d.id, Math.random(), Math.random(), Date.now(), new Date(), Date(), new Date(2020, 0, 31, 12).toISOString(),
                new Date('2020-06-01T00:00').getTimezoneOffset(), new Date(0).getHours(), String(new Date(0)), Date.parse('1 Jan 1970'),
                new Date(1e12).toISOString(), Object.prototype.toString.call(new Date()), new Date() instanceof Date, new Date(new Date(5)).getTime(),
                new Date('2020-01-01T00:00:00+02:00').toISOString(), new Date(NaN).toString(), new Date(2024, 1, 29).toDateString(), typeof Date()]);
        });
    }"#;
    let first = answer(source);
    assert_eq!(answer(source), first);
    let (drawn, time) = first.split_at(first.find("1767225600123").unwrap());
    assert!(drawn.len() > 60 && drawn.starts_with("[\""), "{drawn}");
    let expected = r#"1767225600123,"2026-01-01T00:00:00.123Z","Thu Jan 01 2026 00:00:00 GMT+0000 (UTC)","2020-01-31T12:00:00.000Z",0,0,"Thu Jan 01 1970 00:00:00 GMT+0000 (UTC)",0,"2001-09-09T01:46:40.000Z","[object Date]",true,5,"2019-12-31T22:00:00.000Z","Invalid Date","Thu Feb 29 2024","string"]"#;
    assert_eq!(time, expected);
    let random = "function () { __.response.setBody(Math.random()); }";
    let other = Surroundings::standing(NOW_MS, 8);
    assert_ne!(answer(random), show(call_with(&mut Memory::default(), random, "", &other)));
    let spread = "function () { var n = 0; for (var i = 0; i < 1000; i++) { var x = Math.random(); if (x < 0 || x >= 1) throw x; if (x < 0.5) n++; } __.response.setBody(n > 400 && n < 600); }";
    assert_eq!(answer(spread), "true");
}

#[test]
fn the_log() {
    let log = |statements: &str| {
        let source = format!("function () {{ {statements} }}");
        call(&mut Memory::default(), &source, "").map(|outcome| outcome.log.unwrap_or_default())
    };
    let check = |statements: &str, expected: &str| assert_eq!(log(statements).unwrap(), expected);
    check("", "");
    check("console.log('a b'); console.log('c');", "a bc");
    check("console.log(1); console.log({}); console.log(undefined);", "1[object Object]undefined");
    check("console.log('%s and %s, 100%%', 'x', 2);", "x and 2, 100%");
    check("console.log('100%');", "100%");
    assert!(
        log("console.log(1, 2);")
            .unwrap_err()
            .text()
            .contains("First argument to console.log should be a string")
    );
    assert!(
        log("console.log();")
            .unwrap_err()
            .text()
            .contains("requires at least 1 argument(s) but was called with 0")
    );
    let full = log("for (;;) console.log('x'.repeat(1000));").unwrap_err();
    assert_eq!((full.status(), full.sub_status()), (400, Some(413)));
}

/// Calls are refused when the end is near, and what was accepted is still done.
#[test]
fn bounded_execution() {
    let source = r#"function () {
        var made = 0;
        (function next() {
            if (!__.createDocument(__.getSelfLink(), {id: 'd' + made}, function (e) { if (e) throw e; made++; next(); }))
                getContext().getResponse().setBody(made);
        })();
    }"#;
    let mut memory = Memory::default();
    let outcome = call_with(&mut memory, source, "", &passing(100, u64::MAX)).unwrap();
    let made: usize = outcome.body.unwrap().parse().unwrap();
    assert!(made > 5 && made == memory.documents.len(), "{made}");
    assert_eq!(outcome.host_calls, made as u64);
    // The budget of calls, without any hurry.
    let mut memory = Memory::default();
    let body = show(call(&mut memory, source, ""));
    assert_eq!((body.as_str(), memory.documents.len()), ("10000", 10000));
    // The deadline, where the script does not care.
    let careless = "function () { (function next() { __.readDocuments(__.getSelfLink(), next); })(); for (;;); }";
    let found = show(call_with(&mut Memory::default(), careless, "", &passing(50, 100)));
    assert!(
        found.starts_with("408 The requested operation exceeded maximum alloted time."),
        "{found}"
    );
}

#[test]
fn what_a_procedure_knows_of_its_request() {
    let source = "function () { var r = getContext().getRequest(); __.response.setBody([r.getBody(), r.getValue('x-ms-documentdb-script-enable-logging'), typeof r.setBody, typeof r.getOperationType]); }";
    assert_eq!(
        answer_with(&mut Memory::default(), source, r#"["a",1]"#),
        r#"[["a",1],"true","undefined","undefined"]"#
    );
    let source = "function () { __.response.setBody([ErrorCodes.Conflict, Object.isFrozen(ErrorCodes), new Error(4, 'm').message, new Error(4, 'm').number, new Error('m').message, new Error('m', {cause: 3}).cause, new TypeError('t') instanceof Error, Object.keys(new Error(4, 'm')), __.getPartitionKeyDefinition()]); }";
    assert_eq!(answer(source), r#"[409,true,"m",4,"m",3,true,["number"],[["pk"]]]"#);
}

#[test]
fn procedures_of_the_system() {
    let echo = system_procedure("__.sys.echo").unwrap();
    assert_eq!(answer_with(&mut Memory::default(), echo, r#"[{"a":1}]"#), r#"{"a":1}"#);
    assert_eq!(system_procedure("__.sys.other"), None);
}
