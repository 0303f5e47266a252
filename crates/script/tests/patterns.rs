//! The scripts that everybody writes, as they are usually written.

mod support;

use support::{Memory, answer_with, call, call_with, passing, show};

fn items(count: usize) -> Memory {
    let texts: Vec<String> =
        (0..count).map(|n| format!(r#"{{"id":"i{n:03}","pk":"a","n":{n}}}"#)).collect();
    Memory::with(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

const BULK_IMPORT: &str = r#"function bulkImport(documents) {
    var container = getContext().getCollection();
    var link = container.getSelfLink();
    var count = 0;
    if (!documents) throw new Error('The list is undefined or null.');
    if (documents.length === 0) { getContext().getResponse().setBody(0); return; }
    tryCreate(documents[count], onCreated);

    function tryCreate(document, callback) {
        var isAccepted = container.createDocument(link, document, callback);
        if (!isAccepted) getContext().getResponse().setBody(count);
    }
    function onCreated(error) {
        if (error) throw error;
        count++;
        if (count >= documents.length) getContext().getResponse().setBody(count);
        else tryCreate(documents[count], onCreated);
    }
}"#;

#[test]
fn bulk_import_goes_on_where_it_stopped() {
    let mut memory = Memory::default();
    let mut waiting: Vec<String> = (0..100).map(|n| format!(r#"{{"id":"d{n:03}"}}"#)).collect();
    let mut rounds = 0;
    while !waiting.is_empty() {
        let parameters = format!("[[{}]]", waiting.join(","));
        let outcome = call_with(&mut memory, BULK_IMPORT, &parameters, &passing(80, u64::MAX));
        let created: usize = outcome.unwrap().body.unwrap().parse().unwrap();
        assert!(created > 0, "no progress");
        waiting.drain(..created);
        rounds += 1;
    }
    assert!(rounds > 1);
    assert_eq!(memory.documents.len(), 100);
    assert_eq!(answer_with(&mut memory, BULK_IMPORT, "[[]]"), "0");
    let taken = answer_with(&mut memory, BULK_IMPORT, r#"[[{"id":"new"},{"id":"d001"}]]"#);
    assert!(
        taken.starts_with("400/409 Encountered exception while executing function."),
        "{taken}"
    );
    assert_eq!(memory.documents.len(), 100);
}

const BULK_DELETE: &str = r#"function bulkDelete(query) {
    var container = getContext().getCollection();
    var link = container.getSelfLink();
    var body = {deleted: 0, continuation: true};
    tryQuery();

    function tryQuery(continuation) {
        var isAccepted = container.queryDocuments(link, query, {continuation: continuation, pageSize: 10}, function (error, found, options) {
            if (error) throw error;
            if (found.length > 0) tryDelete(found);
            else if (options.continuation) tryQuery(options.continuation);
            else { body.continuation = false; getContext().getResponse().setBody(body); }
        });
        if (!isAccepted) getContext().getResponse().setBody(body);
    }
    function tryDelete(documents) {
        if (documents.length === 0) return tryQuery();
        var isAccepted = container.deleteDocument(documents[0]._self, {}, function (error) {
            if (error) throw error;
            body.deleted++;
            documents.shift();
            tryDelete(documents);
        });
        if (!isAccepted) getContext().getResponse().setBody(body);
    }
}"#;

#[test]
fn bulk_delete_until_there_is_nothing_left() {
    let mut memory = items(60);
    let mut deleted = 0;
    for round in 0.. {
        assert!(round < 60, "no end");
        let parameters = r#"["SELECT * FROM c"]"#;
        let outcome = call_with(&mut memory, BULK_DELETE, parameters, &passing(80, u64::MAX));
        let body = value::Value::parse(outcome.unwrap().body.unwrap().as_bytes()).unwrap();
        deleted += body.get("deleted").unwrap().as_i64().unwrap();
        if body.get("continuation").unwrap().as_bool() == Some(false) {
            break;
        }
    }
    assert_eq!((deleted, memory.documents.len()), (60, 0));
}

#[test]
fn update_with_an_optimistic_retry() {
    // The second read finds what the script itself has written in between.
    let source = r#"function increment(id) {
        var container = getContext().getCollection();
        var link = container.getAltLink() + '/docs/' + id;
        var tries = 0, etag = '"stale"';
        attempt();
        function attempt() {
            if (++tries > 3) throw new Error(ErrorCodes.RetryWith, 'too many conflicts');
            container.readDocument(link, function (error, document) {
                if (error) throw error;
                document.n += 1;
                container.replaceDocument(document._self, document, {etag: etag}, function (error, replaced) {
                    if (error && error.number === ErrorCodes.PreconditionFailed) { etag = document._etag; return attempt(); }
                    if (error) throw error;
                    getContext().getResponse().setBody({n: replaced.n, tries: tries});
                });
            });
        }
    }"#;
    let mut memory = items(3);
    assert_eq!(answer_with(&mut memory, source, r#"["i002"]"#), r#"{"n":3,"tries":2}"#);
    assert!(answer_with(&mut memory, source, r#"["none"]"#).starts_with("400/404 "));
}

#[test]
fn swap_of_two_documents() {
    let source = r#"function swap(first, second) {
        var container = getContext().getCollection(), alt = container.getAltLink();
        container.readDocument(alt + '/docs/' + first, function (error, one) {
            if (error) throw error;
            container.readDocument(alt + '/docs/' + second, function (error, other) {
                if (error) throw error;
                var kept = one.n; one.n = other.n; other.n = kept;
                container.replaceDocument(one._self, one, function (error) {
                    if (error) throw error;
                    container.replaceDocument(other._self, other, function (error) {
                        if (error) throw error;
                        if (one.n === 0) throw new Error('zero may not move');
                    });
                });
            });
        });
    }"#;
    let mut memory = items(3);
    assert_eq!(answer_with(&mut memory, source, r#"["i001","i002"]"#), "");
    assert_eq!(memory.document("i001").unwrap(), r#"{"id":"i001","pk":"a","n":2}"#);
    assert_eq!(memory.document("i002").unwrap(), r#"{"id":"i002","pk":"a","n":1}"#);
    assert!(call(&mut memory, source, r#"["i001","i000"]"#).is_err());
    assert_eq!(memory.document("i001").unwrap(), r#"{"id":"i001","pk":"a","n":2}"#);
}

#[test]
fn sum_and_count_over_all_pages() {
    let source = r#"function sum(field) {
        var container = getContext().getCollection();
        var total = 0, count = 0;
        next();
        function next(continuation) {
            var accepted = container.readDocuments(container.getSelfLink(), {pageSize: 7, continuation: continuation}, function (error, page, options) {
                if (error) throw error;
                page.forEach(function (document) { total += document[field]; count += 1; });
                if (options.continuation) next(options.continuation);
                else getContext().getResponse().setBody({total: total, count: count});
            });
            if (!accepted) throw new Error('not accepted');
        }
    }"#;
    assert_eq!(answer_with(&mut items(30), source, r#"["n"]"#), r#"{"total":435,"count":30}"#);
    let chained = "function () { __.chain().filter(d => d.n >= 10).sortByDescending(d => d.n).map(d => d.n).value({pageSize: 3}, (error, found) => __.response.setBody(found)); }";
    assert_eq!(answer_with(&mut items(30), chained, ""), "[29,28,27]");
}

/// What a compiler of TypeScript makes of an asynchronous class, for an engine of 2015.
#[test]
fn compiled_typescript() {
    let source = r#"function main(id) {
        "use strict";
        var __awaiter = (this && this.__awaiter) || function (thisArg, _arguments, P, generator) {
            return new (P || (P = Promise))(function (resolve, reject) {
                function fulfilled(value) { try { step(generator.next(value)); } catch (e) { reject(e); } }
                function rejected(value) { try { step(generator["throw"](value)); } catch (e) { reject(e); } }
                function step(result) { result.done ? resolve(result.value) : new P(function (r) { r(result.value); }).then(fulfilled, rejected); }
                step((generator = generator.apply(thisArg, _arguments || [])).next());
            });
        };
        class Store {
            constructor(container) { this.container = container; }
            read(id) {
                return new Promise((resolve, reject) => {
                    this.container.readDocument(`${this.container.getAltLink()}/docs/${id}`, (error, document) => error ? reject(error) : resolve(document));
                });
            }
        }
        __awaiter(this, void 0, void 0, function* () {
            const store = new Store(getContext().getCollection());
            const document = yield store.read(id);
            getContext().getResponse().setBody(Object.assign({}, { n: document.n }));
        }).catch(error => getContext().abort(error));
    }"#;
    assert_eq!(answer_with(&mut items(3), source, r#"["i002"]"#), r#"{"n":2}"#);
    let found = show(call(&mut items(3), source, r#"["none"]"#));
    assert!(found.starts_with("400/404 "), "{found}");
}
