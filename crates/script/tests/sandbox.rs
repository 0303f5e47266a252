//! Scripts that mean harm: each ends in a clear error, in time, and the next call notices nothing.

mod support;

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use script::{Pace, Surroundings};
use support::{Memory, NOW_MS, answer, call_with, show};

/// Real time, as these tests are about it.
#[expect(clippy::disallowed_methods, reason = "the deadline of a script is what is tested")]
fn now() -> Instant {
    Instant::now()
}

fn within(deadline: Duration) -> Surroundings {
    let start = now();
    let pace = move || if now() - start > deadline { Pace::Over } else { Pace::OnTime };
    Surroundings { pace: Arc::new(pace), ..Surroundings::standing(NOW_MS, 1) }
}

/// What a script in this file may take before it is a failure of the sandbox: far more than its
/// deadline, as machines that run tests are busy, and far less than what the script would need.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a script; checks that it ends in time as it should, and that the next one finds a world as
/// new.
fn check_within(deadline: Duration, source: &str, expected: &str) {
    let start = now();
    let found = show(call_with(&mut Memory::default(), source, "", &within(deadline)));
    let took = now() - start;
    assert!(found.contains(expected), "{source}\n{found}");
    assert!(took < PATIENCE, "{source}\n{took:?}");
    let clean = "function () { __.response.setBody([typeof leaked, ({}).polluted, [].polluted, Array.prototype.slice.call('ab').join(), JSON.stringify({a: 1})]); }";
    assert_eq!(answer(clean), r#"["undefined",null,null,"a,b","{\"a\":1}"]"#, "{source}");
}

/// For scripts that would go on for ever.
fn check_endless(statements: &str) {
    let deadline = Duration::from_millis(50);
    check_within(
        deadline,
        &format!("function () {{ {statements} }}"),
        "408 The requested operation",
    );
}

/// For scripts that end by another limit, given the time.
fn check(statements: &str, expected: &str) {
    check_within(PATIENCE, &format!("function () {{ {statements} }}"), expected);
}

#[test]
fn endless_loops() {
    check_endless("for (;;);");
    check_endless("while (true) { try { for (;;); } catch (e) {} finally { continue; } }");
    check_endless("(function loop() { return Promise.resolve().then(loop); })();");
    check_endless("(async function () { for (;;) { try { await 1; } catch (e) {} } })();");
    check_endless("function* g() { for (;;) yield 1; } for (var x of g());");
    check_endless("eval('for(;;);');");
    check_endless("new Function('for(;;);')();");
    check_endless("__.response.setBody({toJSON() { for (;;); }});");
    check_endless("Array.prototype.forEach.call({length: 9e15}, function () {});");
    check_endless("function f() { try { f(); } catch (e) { f(); } } f();");
    check_endless("var p = {}; for (var i = 0; ; i++) p = new Proxy({}, {});");
    check_within(Duration::from_millis(50), "for (;;);", "408 ");
}

/// What is thrown into a promise does not come out again, so a loop of promises could go on for ever if
/// it were stopped at the same place of its body every time. How many steps the engine takes until it
/// asks again is shared by all lengths that divide it; the steps before the loop move the place.
#[test]
fn endless_promises() {
    let bodies = [
        "new Promise(() => {});",
        "new Promise(() => { for (;;); });",
        "if (n) new Promise(() => {});",
        "(async () => {})();",
        "(async () => { for (;;); })();",
        "n ? f() : 0;",
        "new Promise((r) => r({get then() { for (;;); }}));",
        "Promise.all({get [Symbol.iterator]() { for (;;); }});",
        "try { new Promise(() => { for (;;); }); } catch (e) {}",
    ];
    let preludes = ["", "function g(m) { async function f() { while (n) f(); } f(); } g(); "];
    let (done, ended) = mpsc::channel();
    let run = move || {
        for body in bodies {
            for steps in 0..10 {
                let lead = "async function f() {} var n = 1;";
                let lead = format!("{lead} for (var i = 0; i < {steps}; i++) if (n) {{}}");
                check_endless(&format!("{lead} while (true) {{ {body} }}"));
                done.send(format!("{steps} steps before {body}")).unwrap();
            }
        }
        for prelude in preludes {
            check_endless(&format!("var n = 1; {prelude} for (;;) new Promise(() => {{}});"));
        }
    };
    let running = std::thread::spawn(run);
    let mut last = String::new();
    loop {
        match ended.recv_timeout(PATIENCE) {
            Ok(case) => last = case,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("does not end: what follows {last}"),
        }
    }
    running.join().unwrap();
}

#[test]
fn endless_calls_on_the_container() {
    check_endless("for (;;) __.createDocument(__.getSelfLink(), {id: 'x'}, function () {});");
    check_endless(
        "while (!__.readDocuments(__.getSelfLink())); for (;;) __.readDocuments(__.getSelfLink());",
    );
    check_endless(
        "(function again() { __.queryDocuments(__.getSelfLink(), 'SELECT *', again) || again(); })();",
    );
}

#[test]
fn patterns_that_search_for_ever() {
    check_endless("/(a+)+$/.test('a'.repeat(60) + 'b');");
    check_endless("/(.*)*x(.*)*y(.*)*z/.test('x'.repeat(1000));");
    check_endless("'a'.repeat(60).replace(/(a|aa)+$|b/g, function () { for (;;); });");
    check(
        "new RegExp('((((a{1000}){1000}){1000}){1000})').test('a'); __.response.setBody('ended');",
        "\"ended\"",
    );
}

#[test]
fn built_in_functions_over_much() {
    check_endless("for (;;) 'x'.repeat(4e6);");
    check_endless("for (;;) Array.from({length: 1e5});");
    check_endless(
        "var a = []; for (var i = 0; i < 100000; i++) a.push((i * 7919) % 100000); for (;;) a.sort();",
    );
    check_endless("var a = new Float64Array(1e5); for (;;) a.sort();");
    check_endless(
        "var a = []; for (var i = 0; i < 100000; i++) a.push(i); for (;;) JSON.stringify(a);",
    );
    check_endless(
        "var a = []; for (var i = 0; i < 100000; i++) a.push(i); for (;;) { var b = [...a]; }",
    );
    check_endless(
        "var a = {}; for (var i = 0; i < 10000; i++) a['k' + i] = i; for (;;) Object.keys(a);",
    );
    check_endless("var a = []; for (var i = 0; i < 60; i++) a = [a, a]; a.flat(Infinity);");
    check_endless("var a = []; for (var i = 0; i < 60; i++) a = [a, a]; JSON.stringify(a);");
    check_endless("var a = []; for (var i = 0; i < 60; i++) a = [a, a]; JSON.stringify(a, ['x']);");
    check_endless("var a = []; for (var i = 0; i < 60; i++) a = [a, a]; a.join();");
    let too_long = "RangeError";
    check("new Array(4e9).indexOf(1);", too_long);
    check("Array.prototype.indexOf.call({length: 9e15}, 1);", too_long);
    check("Array.prototype.lastIndexOf.call(new Proxy({length: 9e15}, {}), 1);", too_long);
    check("'a'.repeat(4e6).indexOf('a'.repeat(2e6) + 'b');", too_long);
    check("'a'.repeat(4e6).split('a'.repeat(2e6) + 'b');", too_long);
    check("'a'.repeat(4e6).replace('a'.repeat(2e6) + 'b', '');", too_long);
    check(
        "var n = 0; Array.prototype.includes.call({get length() { return n++ ? 9e15 : 1; }}, 1); __.response.setBody('ended');",
        "\"ended\"",
    );
    check(
        "var n = 0; [].concat(new Proxy([], {get(t, k) { return k === 'length' ? (n++ ? 9e15 : 1) : t[k]; }}));",
        "TypeError",
    );
}

#[test]
fn memory() {
    let out = "out of memory";
    check("var a = []; for (;;) a.push(new Array(1000).fill(7));", out);
    check("var m = new Map(); for (var i = 0; ; i++) m.set(i, {i});", out);
    check("'x'.repeat(1 << 29);", out);
    check("new Uint8Array(1 << 30);", out);
    check("new ArrayBuffer(1e12);", "RangeError");
    check("var s = 'x'; for (;;) s += s;", "400 ");
    check("[...(function* () { for (;;) yield 1; })()];", out);
    check(
        "try { for (var a = [];;) a.push({}); } catch (e) { a = null; __.response.setBody('caught ' + e); }",
        "caught ",
    );
    check("for (;;) __.createDocument(__.getSelfLink(), {id: 'x'.repeat(1e6)});", out);
}

#[test]
fn stack() {
    let deep = "Maximum call stack size exceeded";
    check("function f() { return f() + 1; } f();", deep);
    check("eval('('.repeat(1e6));", deep);
    check("JSON.parse('['.repeat(1e6));", deep);
    check("var o = {}; for (var i = 0; i < 1e4; i++) o = {o}; JSON.stringify(o);", deep);
    check("var o = {}; for (var i = 0; i < 1e4; i++) o = {o}; __.response.setBody(o);", deep);
    check("var p = {}; for (var i = 0; i < 2e4; i++) p = new Proxy(p, {}); p.x;", deep);
    check(
        "try { (function f() { f(); })(); } catch (e) { __.response.setBody('caught ' + e.name); }",
        "caught RangeError",
    );
}

#[test]
fn errors_that_defend_themselves() {
    let hidden = "Exception = an error that cannot be shown";
    check(
        "throw {get message() { for (;;); }, get number() { for (;;); }, toString() { for (;;); }};",
        hidden,
    );
    check("throw {toString() { throw new Error('no'); }};", hidden);
    check("throw Object.create(null);", hidden);
    check("throw Symbol('s');", "Exception = Symbol(s)");
    check(
        "var e = new Error('x'); Object.defineProperty(e, 'stack', {get() { throw 1; }}); throw e;",
        "Exception = Error: x",
    );
    check(
        "var e = new Error('x'); Object.defineProperty(e, 'number', {get() { for (;;); }}); throw e;",
        hidden,
    );
    check("throw new Error('x'.repeat(1e6));", "Exception = Error: xxx");
    check(
        "__.response.setBody({get a() { throw new Error('getter'); }});",
        "Exception = Error: getter",
    );
    check(
        "__.createDocument(__.getSelfLink(), {get id() { throw new Error('getter'); }});",
        "Exception = Error: getter",
    );
}

#[test]
fn a_script_changes_its_own_world_only() {
    let world = "Object.prototype.polluted = 1; Array.prototype.polluted = 2; leaked = 3; Array.prototype.slice = null; JSON.stringify = null; JSON.parse = null; Function.prototype.call = null; Function.prototype.apply = null; Array.prototype[Symbol.iterator] = null; Promise.prototype.then = null; String = null; Error = null; Reflect.apply = null;";
    check(
        &format!(
            "{world} __.createDocument(__.getSelfLink(), {{a: 1}}, function (e, d) {{ __.response.setBody([d.a, d.id.length]); }});"
        ),
        "[1,36]",
    );
    check(&format!("{world} __.filter(function () {{ return true; }});"), r#""[]""#);
    let getter =
        "Object.defineProperty(Object.prototype, 'link', {get() { throw new Error('got'); }});";
    check(
        &format!(
            "{getter} __.createDocument(__.getSelfLink(), {{id: 'x'}}, function (e, d) {{ __.response.setBody(d.id); }});"
        ),
        "\"x\"",
    );
}

#[test]
fn promises_that_never_settle() {
    let waits = "400 Encountered exception while executing Javascript. Exception = Error: the script waits for a promise";
    check_within(PATIENCE, "async function () { await new Promise(function () {}); }", waits);
    check_within(PATIENCE, "() => new Promise(function () {})", waits);
    // Nobody waits for this one.
    check(
        "new Promise(function () {}).then(function () { throw 'never'; }); __.response.setBody(1);",
        "1",
    );
}

#[test]
fn nothing_of_the_world_outside() {
    let names = "require process module exports global window self fetch XMLHttpRequest WebSocket setTimeout setInterval setImmediate queueMicrotask performance navigator SharedArrayBuffer Atomics WeakRef FinalizationRegistry BigInt std os print gc Deno Bun scriptArgs";
    for name in names.split(' ') {
        check(&format!("__.response.setBody(typeof {name});"), "\"undefined\"");
    }
    check(
        "import('fs').then(function () { __.response.setBody('loaded'); }, function () { __.response.setBody('refused'); });",
        "\"refused\"",
    );
}

/// The host's own scripts are modules of the engine. Those that are loaded can be imported, but what
/// they exported is gone.
#[test]
fn nothing_of_the_host() {
    for name in ["sandbox", "dates", "context", "queries"] {
        let source = format!(
            "new Date(); __.spatial; import('<orrery>/{name}').then(function (found) {{ \
             __.response.setBody(Object.keys(found).length + typeof found.part); }});"
        );
        check(&source, "\"1undefined\"");
    }
}

/// What stands in front of a built-in function looks like it.
#[test]
fn guards_look_like_what_they_guard() {
    check(
        "var seen = []; for (var holder of [Array.prototype, String.prototype, Object.getPrototypeOf(Uint8Array.prototype), Object, JSON]) {
            seen.push(Object.keys(holder).length);
            for (var name of Object.getOwnPropertyNames(holder)) {
                var found = Object.getOwnPropertyDescriptor(holder, name);
                if (typeof found.value !== 'function' || name === 'constructor') continue;
                if (found.value.name !== name && !/^(values|entries|trim)/.test(found.value.name)) seen.push(name);
                if (found.enumerable || !found.writable || !found.configurable || found.value.hasOwnProperty('prototype')) seen.push(name);
            }
        }
        __.response.setBody(seen.join());",
        "\"0,0,0,0,0\"",
    );
    check(
        "__.response.setBody([[].slice, [].sort, [].concat, [].flat, [].shift, ''.indexOf, ''.replaceAll, ''.toLowerCase, Object.assign, Array.from].map((f) => f.length).join());",
        "\"2,1,1,0,0,1,2,0,2,1\"",
    );
}

/// Scripts of many clients at once do not see one another.
#[test]
fn scripts_side_by_side() {
    std::thread::scope(|scope| {
        for client in 0..4 {
            scope.spawn(move || {
                for round in 0..20 {
                    let set = format!("if (typeof mine !== 'undefined') throw 'seen'; mine = {client} * 100 + {round}; for (var i = 0; i < 1000; i++) if (mine !== {client} * 100 + {round}) throw 'lost'; __.response.setBody(mine);");
                    check(&set, &(client * 100 + round).to_string());
                }
            });
        }
    });
}
