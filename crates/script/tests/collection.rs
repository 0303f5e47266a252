//! The container as scripts see it: every call with its options, its callback and its refusals.

mod support;

use support::{ALT_LINK, Memory, SELF_LINK, answer, answer_with};

fn orders() -> Memory {
    Memory::with(&[
        r#"{"id":"a","pk":"a","n":3,"tags":["x","y"]}"#,
        r#"{"id":"b","pk":"a","n":1,"tags":["z"]}"#,
        r#"{"id":"c","pk":"a","n":2,"tags":[["p"],["q","r"]]}"#,
        r#"{"id":"d","pk":"a"}"#,
    ])
}

/// Runs statements with `c`, `link`, `alt`, and `done`, which answers what it is given.
fn check(statements: &str, expected: &str) {
    let source = format!(
        "function () {{ var c = getContext().getCollection(), link = c.getSelfLink(), alt = c.getAltLink();
         var done = function () {{ getContext().getResponse().setBody(Array.prototype.slice.call(arguments)); }};
         {statements} }}"
    );
    let found = answer_with(&mut orders(), &source, "");
    assert!(found.starts_with(expected), "{statements}\n{found}");
}

#[test]
fn links() {
    check("done(link, alt)", &format!(r#"["{SELF_LINK}","{ALT_LINK}"]"#));
    check(
        "done(__.getSelfLink() === link, Object.getPrototypeOf(__) === c, __.response === getContext().getResponse())",
        "[true,true,true]",
    );
    check("c.readDocument(alt + '/docs/a', (e, d) => done(d.id))", r#"["a"]"#);
    check("c.readDocument(alt + '/docs/a/', (e, d) => done(d.id))", r#"["a"]"#);
    check("c.readDocument(link + 'docs/rid-b/', (e, d) => done(d.id))", r#"["b"]"#);
    check("c.readDocuments(alt, (e, d) => done(d.length))", "[4]");
}

#[test]
fn reads() {
    let read = |rest: &str| format!("c.readDocument(alt + '/docs/a', {rest})");
    check(
        &read("(e, d, o) => done(e, d.n, o)"),
        r#"[null,3,{"statusCode":200,"currentCollectionSizeInMB":"documentsCount=1;","maxCollectionSizeInMB":"documentsCount=9;"}]"#,
    );
    check(&read("{}, (e, d, o) => done(e === undefined, d.n)"), "[true,3]");
    check(
        &read("{ifNoneMatch: '\"1\"'}, (e, d, o) => done(e, d, o.notModified)"),
        "[null,null,true]",
    );
    check(
        &read("{ifNoneMatch: '\"9\"'}, (e, d, o) => done(e, d.n, o.notModified)"),
        "[null,3,null]",
    );
    check(
        "c.readDocument(alt + '/docs/none', function (e) { done(arguments.length, e.number, e.body, e instanceof Error); })",
        r#"[1,404,"{\"Errors\":[\"Resource Not Found\"]}",true]"#,
    );
    check("done(c.readDocument(alt + '/docs/a'))", "[true]");
}

#[test]
fn feeds() {
    check(
        "c.readDocuments(link, {pageSize: 3}, (e, d, o) => done(d.map(x => x.id), o.continuation))",
        r#"[["a","b","c"],"3"]"#,
    );
    check(
        "c.readDocuments(link, {pageSize: 3, continuation: '3'}, (e, d, o) => done(d.map(x => x.id), o.continuation === undefined, 'continuation' in o))",
        r#"[["d"],true,true]"#,
    );
    check(
        "c.queryDocuments(link, 'SELECT VALUE c.id FROM c', (e, d) => done(d))",
        r#"[["a","b","c","d"]]"#,
    );
    check(
        "c.queryDocuments(link, {query: 'SELECT VALUE c.id FROM c WHERE c.id = @id', parameters: [{name: '@id', value: 'b'}]}, (e, d) => done(d))",
        r#"[["b"]]"#,
    );
    check(
        "c.queryDocuments(link, 'BAD', (e, d) => done(e.number, d, e.message))",
        r#"[400,null,"{\"Errors\":[\"Syntax error near BAD\"]}"]"#,
    );
    check("c.queryDocuments(link, 'SELECT *', {pageSize: -1}, (e, d) => done(d.length))", "[4]");
    check("c.readDocuments(link, {continuation: 'nonsense'}, (e) => done(e.number))", "[400]");
}

#[test]
fn writes() {
    check(
        "c.createDocument(link, {id: 'x', pk: 'a'}, (e, d, o) => done(e, d.id, d._self, o.statusCode))",
        &format!(r#"[null,"x","{SELF_LINK}docs/rid-x/",201]"#),
    );
    check("c.createDocument(alt, '{\"id\":\"x\"}', (e, d) => done(d.id))", r#"["x"]"#);
    check("c.createDocument(link, {id: 'a'}, (e) => done(e.number))", "[409]");
    check("c.createDocument(link, {id: 'x', pk: 'other'}, (e) => done(e.number))", "[400]");
    check(
        "var body = {n: 1}; c.createDocument(link, body, (e, d) => done(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(d.id), body))",
        r#"[true,{"n":1}]"#,
    );
    check("c.createDocument(link, {id: ''}, (e, d) => done(d.id.length))", "[36]");
    check(
        "c.createDocument(link, {n: 1}, {disableAutomaticIdGeneration: true}, (e, d) => done(e.number))",
        "[400]",
    );
    check(
        "var body = {id: 'x', n: 1}; c.createDocument(link, body, (e, d) => done(d.n)); body.n = 2;",
        "[1]",
    );
    check(
        "c.createDocument(link, {id: 'x'}, {indexAction: 'exclude'}, (e, d) => done(d.id))",
        r#"["x"]"#,
    );
    check(
        "c.upsertDocument(link, {id: 'a', n: 9}, (e, d, o) => done(d.n, o.statusCode))",
        "[9,200]",
    );
    check("c.upsertDocument(link, {id: 'x'}, (e, d, o) => done(o.statusCode))", "[201]");
    check("c.upsertDocument(link, {id: 'a'}, {etag: '\"9\"'}, (e) => done(e.number))", "[412]");
    check("c.replaceDocument(alt + '/docs/a', {id: 'a', n: 8}, (e, d) => done(d.n))", "[8]");
    check(
        "c.replaceDocument(alt + '/docs/a', {id: 'a'}, {etag: '\"9\"'}, (e) => done(e.number))",
        "[412]",
    );
    check(
        "c.replaceDocument(alt + '/docs/a', {id: 'a', n: 7}, {etag: '\"1\"'}, (e, d) => done(d.n))",
        "[7]",
    );
    check("c.replaceDocument(alt + '/docs/none', {id: 'none'}, (e) => done(e.number))", "[404]");
    check(
        "c.deleteDocument(alt + '/docs/a', function (e, o) { done(arguments.length, e, o.statusCode); })",
        "[2,null,204]",
    );
    check("c.deleteDocument(alt + '/docs/a', {etag: '\"9\"'}, (e) => done(e.number))", "[412]");
    check(
        "c.patchDocument(alt + '/docs/a', [{op: 'incr', path: '/n', value: 2}], (e, d) => done(d.n))",
        "[5]",
    );
    check(
        "c.patchDocument(alt + '/docs/a', {operations: [{op: 'set', path: '/n', value: 0}]}, (e, d) => done(d.n))",
        "[0]",
    );
}

#[test]
fn arguments() {
    let check_error = |statements: &str, number: u32, text: &str| {
        let caught = format!(
            "try {{ {statements}; done('none'); }} catch (e) {{ done(e.number, e.message); }}"
        );
        let text = value::Value::from(text).to_text();
        check(&caught, &format!("[{number},{text}]"));
    };
    check_error(
        "c.readDocument()",
        400,
        r#"The function "readDocument" requires at least 1 argument(s) but was called with 0 argument(s)."#,
    );
    check_error(
        "c.createDocument(link)",
        400,
        r#"The function "createDocument" requires at least 2 argument(s) but was called with 1 argument(s)."#,
    );
    check_error(
        "c.queryDocuments(link)",
        400,
        r#"The function "queryDocuments" requires at least 2 argument(s) but was called with 1 argument(s)."#,
    );
    check_error(
        "c.readDocuments(link, 1)",
        400,
        r#"The "options" parameter must be of type "object". Actual type is: "number"."#,
    );
    check_error(
        "c.readDocuments(link, {}, 1)",
        400,
        r#"The "callback" parameter must be of type "function". Actual type is: "number"."#,
    );
    check_error(
        "c.createDocument(link, 1)",
        400,
        "The document body must be an object or a string representing a JSON-serialized object.",
    );
    check_error(
        "c.createDocument(link, null)",
        400,
        "The document body must be an object or a string representing a JSON-serialized object.",
    );
    check_error(
        "c.queryDocuments(link, 1)",
        400,
        r#"The "filterQuery" parameter must be of type "string" or "object". Actual type is: "number"."#,
    );
    check_error("c.readDocuments('x')", 400, r#"Invalid collection link: "x"."#);
    check_error("c.readDocuments(7)", 400, r#"Invalid collection link: "7"."#);
    check_error("c.readDocument('x')", 400, r#"Invalid document link: "x"."#);
    check_error("c.readDocument({})", 400, r#"Invalid document link: "[object Object]"."#);
    check_error(
        "c.readDocuments('dbs/other/colls/other')",
        400,
        r#"Function is not allowed to operate on resources outside current collection. Make sure that the link provided, "dbs/other/colls/other", belongs to current collection."#,
    );
    check_error(
        "c.patchDocument(alt + '/docs/a', 1)",
        400,
        "The patch specification must be an object or an array.",
    );
    check_error(
        "c.readAttachments(alt + '/docs/a')",
        400,
        r#"The function "readAttachments" is not supported: attachments do not exist in this server."#,
    );
}

#[test]
fn queries_in_javascript() {
    check(
        "__.filter(d => d.n > 1, (e, r, o) => done(e, r.map(d => d.id), o.continuation))",
        r#"[null,["a","c"],null]"#,
    );
    check(
        "__.map(d => ({i: d.id}), (e, r) => done(r))",
        r#"[[{"i":"a"},{"i":"b"},{"i":"c"},{"i":"d"}]]"#,
    );
    check("__.pluck('n', (e, r) => done(r))", "[[3,1,2,null]]");
    check("__.sortBy(d => d.n, (e, r) => done(r.map(d => d.id)))", r#"[["d","b","c","a"]]"#);
    check(
        "__.sortByDescending(d => d.n, (e, r) => done(r.map(d => d.id)))",
        r#"[["a","c","b","d"]]"#,
    );
    // A function of two parameters is the one that combines, unless options come before it.
    check("__.unwind(d => d.tags, {}, (e, r) => done(r))", r#"[["x","y","z",["p"],["q","r"]]]"#);
    check(
        "__.unwind(d => d.tags, (d, t) => d.id + t, (e, r) => done(r))",
        r#"[["ax","ay","bz","cp","cq,r"]]"#,
    );
    check(
        "__.chain().filter(d => d.tags).unwind(d => d.tags).flatten().value((e, r) => done(r))",
        r#"[["x","y","z","p","q","r"]]"#,
    );
    check(
        "__.chain().pluck('tags').flatten(true).value((e, r) => done(r))",
        r#"[["x","y","z",["p"],["q","r"],null]]"#,
    );
    check(
        "__.chain().pluck('tags').flatten().value((e, r) => done(r))",
        r#"[["x","y","z","p","q","r",null]]"#,
    );
    check(
        "__.chain().filter(d => d.n).sortByDescending(d => d.n).pluck('id').value({pageSize: 2}, (e, r, o) => done(r, o.continuation))",
        r#"[["a","c"],"{\"skip\":2}"]"#,
    );
    check("done(__.filter(d => true, () => {}))", r#"[{"isAccepted":true}]"#);
    check("__.filter(__, d => d.n === 1, (e, r) => done(r.length))", "[1]");
    check("__.filter(d => d.n === 1); ", r#""[{\"id\":\"b\""#);
    check(
        "__.filter(d => { throw new Error('p'); }, (e, r) => done(e.message, r))",
        r#"["p",null]"#,
    );
    check(
        "__.filter(d => { throw new Error(3, 'p'); })",
        "400/3 Encountered exception while executing function. Exception = Error: p",
    );
    let fails = |expression: &str, text: &str| {
        let found = format!(
            "try {{ {expression}; done('none'); }} catch (e) {{ done(e.number, e.message); }}"
        );
        let text = value::Value::from(text).to_text();
        check(&found, &format!("[400,{text}]"));
    };
    fails("__.filter()", "The predicate/transform function must be provided.");
    fails("__.pluck('')", "The property name must be a string and cannot be empty.");
    fails("__.unwind()", r#"When using "unwind", "collectionSelector" must be used."#);
    fails("__.unwind('x')", r#"When using "unwind", "collectionSelector" must be a function."#);
    fails("__.unwind(() => 1)", r#""collectionSelector" requires one argument."#);
    fails("__.unwind(d => d, d => d)", r#""resultSelector" requires two arguments."#);
    fails(
        "__.chain().filter(d => d, {pageSize: 1})",
        r#"When using "chain", options can only be provided on the call to the "value" function"#,
    );
    fails(
        "__.chain().filter(d => d, () => 1)",
        r#"When using "chain", the callback parameter can only be provided on the "value" function."#,
    );
    fails(
        "__.filter(d => d, {continuation: 'x'}, () => 1)",
        "The continuation is not one that a query of this kind has given.",
    );
}

/// Pages of any size give the same list, also where one document makes several results.
#[test]
fn pages_of_queries_in_javascript() {
    let walk = |query: &str, size: usize| {
        let source = format!(
            "function () {{
                var all = [];
                (function next(token) {{
                    __.chain(){query}.value({{pageSize: {size}, continuation: token}}, function (error, page, options) {{
                        if (error) throw error;
                        if (page.length > {size}) throw 'too long a page';
                        all = all.concat(page);
                        if (options.continuation) next(options.continuation);
                        else __.response.setBody(all);
                    }});
                }})();
            }}"
        );
        answer_with(&mut orders(), &source, "")
    };
    for query in [
        ".pluck('id')",
        ".filter(d => d.n !== 1).pluck('id')",
        ".filter(d => false)",
        ".filter(d => d.tags).unwind(d => d.tags).flatten()",
        ".sortBy(d => d.n).pluck('id')",
        ".filter(d => d.tags).sortByDescending(d => d.n).unwind(d => d.tags)",
    ] {
        let whole = walk(query, 1000);
        assert!(whole.starts_with('['), "{whole}");
        for size in 1..7 {
            assert_eq!(walk(query, size), whole, "{query} in pages of {size}");
        }
    }
}

#[test]
fn what_is_not_there_says_so() {
    let found = answer("function () { __.spatial.distance({}, {}); }");
    assert!(found.contains("spatial.distance is not supported in scripts"), "{found}");
}
