//! Triggers: what they see of the write, and what they may change of it.

mod support;

use script::TriggerKind::{Post, Pre};
use support::{Memory, trigger};

#[test]
fn pre_triggers_change_the_document() {
    let check = |statements: &str, expected: Option<&str>| {
        let source = format!("function () {{ var r = getContext().getRequest(); {statements} }}");
        let outcome = trigger(&mut Memory::default(), Pre, &source, r#"{"id":"a","n":1}"#, None);
        let outcome = outcome.unwrap();
        assert_eq!(outcome.request.as_deref(), expected, "{statements}");
        assert_eq!(outcome.response, None);
    };
    check(
        "var d = r.getBody(); d.id = d.id.toUpperCase() + 't1'; r.setBody(d);",
        Some(r#"{"id":"At1","n":1}"#),
    );
    check("r.setBody('{\"id\":\"text\"}');", Some(r#"{"id":"text"}"#));
    check("r.setValue('Body', {id: 'x'});", Some(r#"{"id":"x"}"#));
    check(
        "var d = r.getBody(); r.setBody(d); d.late = true;",
        Some(r#"{"id":"a","n":1,"late":true}"#),
    );
    check(
        "var d = r.getBody(); r.setBody(d); __.readDocuments(__.getSelfLink(), (e, all) => { d.count = all.length; });",
        Some(r#"{"id":"a","n":1,"count":0}"#),
    );
    check("r.getBody().n = 5;", None);
    check("", None);
    check(
        "if (r.getOperationType() !== 'Create' || getContext().getResponse !== undefined || __.response !== undefined) throw 'wrong';",
        None,
    );
}

#[test]
fn pre_triggers_refuse() {
    let source = "function () { if (!getContext().getRequest().getBody().author) throw new Error(4444, 'no author'); }";
    let error = trigger(&mut Memory::default(), Pre, source, r#"{"id":"a"}"#, None).unwrap_err();
    assert_eq!((error.status(), error.sub_status()), (400, Some(4444)));
    let source = "function () { getContext().getResponse(); }";
    let error = trigger(&mut Memory::default(), Pre, source, "{}", None).unwrap_err();
    assert!(error.text().contains("TypeError"), "{error}");
    let source = "function () { __.filter(d => true); }";
    let error = trigger(&mut Memory::default(), Pre, source, "{}", None).unwrap_err();
    assert!(
        error.text().contains("The callback function must be provided for scenarios"),
        "{error}"
    );
    let source = "function () { getContext().getRequest().setBody('x'.repeat(2097153)); }";
    let error = trigger(&mut Memory::default(), Pre, source, "{}", None).unwrap_err();
    assert_eq!(error.sub_status(), Some(413));
}

#[test]
fn post_triggers_see_both_bodies() {
    let source = r#"function () {
        var asked = getContext().getRequest(), answered = getContext().getResponse();
        if (asked.setBody !== undefined) throw 'the request can be changed';
        answered.setBody({asked: asked.getBody().id, answered: answered.getBody().id, used: answered.getResourceQuotaCurrentUsage(), max: answered.getMaxResourceQuota()});
    }"#;
    let outcome =
        trigger(&mut Memory::default(), Post, source, r#"{"id":"a"}"#, Some(r#"{"id":"b"}"#));
    let expected =
        r#"{"asked":"a","answered":"b","used":"documentsCount=1;","max":"documentsCount=9;"}"#;
    assert_eq!(outcome.unwrap().response.as_deref(), Some(expected));
}

/// The article's post-trigger: one document counts the others.
#[test]
fn a_post_trigger_keeps_a_count() {
    let source = r#"function updateMetadata() {
        var container = getContext().getCollection();
        var created = getContext().getResponse().getBody();
        var accepted = container.queryDocuments(container.getSelfLink(),
            {query: 'SELECT * FROM c WHERE c.id = @id', parameters: [{name: '@id', value: '_metadata'}]}, update);
        if (!accepted) throw new Error('Unable to update metadata, abort');
        function update(error, documents) {
            if (error) throw new Error('Error' + error.message);
            if (documents.length !== 1) throw new Error('Unable to find metadata document');
            var metadata = documents[0];
            metadata.created += 1;
            metadata.names.push(created.name);
            var accepted = container.replaceDocument(metadata._self, metadata, function (error) {
                if (error) throw new Error('Unable to update metadata, abort');
            });
            if (!accepted) throw new Error('Unable to update metadata, abort');
        }
    }"#;
    let mut memory = Memory::with(&[r#"{"id":"_metadata","created":0,"names":[]}"#]);
    for name in ["one", "two"] {
        let body = format!(r#"{{"id":"{name}","name":"{name}"}}"#);
        trigger(&mut memory, Post, source, &body, Some(&body)).unwrap();
    }
    let kept = memory.document("_metadata").unwrap();
    assert_eq!(kept, r#"{"id":"_metadata","created":2,"names":["one","two"]}"#);
    memory.documents.clear();
    let error = trigger(&mut memory, Post, source, "{}", Some("{}")).unwrap_err();
    assert!(error.text().contains("Unable to find metadata document"));
}
