//! Scripts put together by chance: each ends, as an answer or as an error that says why, does the
//! same when run again, and leaves the next one a world as new.

mod support;

use proptest::prelude::*;
use support::{Memory, answer, call_with, passing, show};

const EXPRESSIONS: &[&str] = &[
    "0",
    "-1",
    "1e308",
    "NaN",
    "''",
    "'text'",
    "null",
    "undefined",
    "this",
    "[]",
    "[1, 2, 3]",
    "{a: 1}",
    "() => 1",
    "function () { return arguments; }",
    "class { get x() { throw 1; } }",
    "new Error(409, 'x')",
    "Symbol('s')",
    "new Date()",
    "Math.random()",
    "/(a+)+b/",
    "new Map([[1, 2]])",
    "new Proxy({}, {})",
    "new Proxy([], {get() { throw 2; }})",
    "Object.create(null)",
    "new Uint8Array(9)",
    "'x'.repeat(1e5)",
    "Array(1e6)",
    "{length: 9e15}",
    "Promise.reject(3)",
    "new Promise(() => {})",
    "globalThis",
    "getContext()",
    "__",
    "__.getSelfLink()",
    "__.getAltLink()",
    "__.getAltLink() + '/docs/a'",
    "'SELECT VALUE c.id FROM c'",
    "{query: 'SELECT *', parameters: []}",
    "{pageSize: 1, continuation: '1'}",
    "(e, r, o) => { if (e) throw e; v = [r, o]; }",
    "JSON.stringify(v)",
    "Object.keys(v)",
    "v.length",
    "v[0]",
    "v",
];

const STATEMENTS: &[&str] = &[
    "v = $;",
    "w = v; v = $;",
    "throw $;",
    "try { $; } catch (e) { v = e; }",
    "for (var i = 0; i < 50; i++) { v = $; }",
    "while (true) { v = $; }",
    "(function f() { f(); })();",
    "Promise.resolve($).then((x) => { v = x; throw x; });",
    "(async () => { v = await $; })();",
    "__.response.setBody($);",
    "__.response.appendBody($);",
    "console.log($);",
    "getContext().abort($);",
    "__.createDocument($, $, $);",
    "__.createDocument(__.getSelfLink(), $, $);",
    "__.readDocument($, $);",
    "__.readDocument(__.getAltLink() + '/docs/a', $, $);",
    "__.queryDocuments(__.getSelfLink(), $, $, $);",
    "__.upsertDocument(__.getSelfLink(), $, $);",
    "__.replaceDocument(__.getAltLink() + '/docs/a', $, $);",
    "__.deleteDocument(__.getAltLink() + '/docs/a', $);",
    "__.patchDocument(__.getAltLink() + '/docs/a', $, $);",
    "__.filter($, $, $);",
    "__.chain().map($).sortBy($).value($);",
    "Object.prototype.x = $;",
    "Object.defineProperty(Object.prototype, 'link', {get() { return $; }});",
    "Array.prototype.push = $;",
    "JSON.parse = $;",
    "Array.prototype.indexOf.call($, $);",
    "Array.prototype.splice.call($, $);",
    "[$, $].sort($);",
    "[].concat($, $);",
    "String($).split($);",
    "JSON.stringify($, $, $);",
    "new ($)($);",
    "($)($);",
    "eval(String($));",
    "delete v.x; v.x = $;",
    "v = [v, v];",
    "v = {...v, w};",
    "v = `${$}`;",
];

fn statement() -> impl Strategy<Value = String> {
    let filled = (0..STATEMENTS.len(), prop::collection::vec(0..EXPRESSIONS.len(), 3));
    filled.prop_map(|(statement, expressions)| {
        let mut text = String::new();
        let mut expressions = expressions.into_iter().cycle();
        for (at, part) in STATEMENTS[statement].split('$').enumerate() {
            if at > 0 {
                let expression = EXPRESSIONS[expressions.next().expect("a cycle does not end")];
                text.push_str(&format!("({expression})"));
            }
            text.push_str(part);
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn scripts_end(statements in prop::collection::vec(statement(), 1..8)) {
        let source = format!("function () {{ var v = 1, w = 2; {} }}", statements.join("\n"));
        let run = || {
            let mut memory = Memory::with(&[r#"{"id":"a","n":1}"#, r#"{"id":"b","n":2}"#]);
            let outcome = call_with(&mut memory, &source, "", &passing(200, 300));
            // How far a script comes until its deadline is all that may differ.
            let is_over = outcome.as_ref().is_err_and(|error| error.status() == 408);
            (!is_over).then(|| (show(outcome), memory.calls))
        };
        prop_assert_eq!(run(), run());
        prop_assert_eq!(answer("function () { __.response.setBody([typeof v, ({}).x]); }"), "[\"undefined\",null]");
    }
}
