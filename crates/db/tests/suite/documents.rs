//! What each request about documents answers: the service's rules, as tables.

use db::{
    Address, BatchOperation, Conditions, Failure, Kind, Outcome, Page, SIZE_MAX, Scope, Write,
};
use storage::{Embedded, Engine, Memory};
use value::{EpkRange, Value, even_split};

use crate::support::{
    self, BY_PK, Documents, START_S, Status, by_id, by_pk_with, create, delete, feed, if_match,
    if_none_match, json, key, object, operation, patch, patch_by, read, replace, status, statuses,
    upsert,
};

const X: &str = r#"["x"]"#;

fn message(result: &Result<Outcome, Failure>) -> String {
    match result {
        Ok(outcome) => format!("{} without an error", outcome.status),
        Err(failure) => failure.error.message.clone(),
    }
}

fn field(outcome: &Outcome, name: &str) -> String {
    let document = outcome.document.as_ref().expect("there is a document");
    document.field(name).unwrap_or_else(|| panic!("there is no {name}")).to_owned()
}

fn rid_of(outcome: &Outcome) -> Address {
    Address::Rid(field(outcome, "_rid").trim_matches('"').to_owned())
}

#[tokio::test]
async fn each_operation_with_and_without_a_document() {
    let body = r#"{"id":"a","pk":"x"}"#;
    type Make = fn() -> Write;
    let operations: [(&str, Make, Status, Status); 5] = [
        ("create", || create(r#"{"id":"a","pk":"x"}"#), (409, 0), (201, 0)),
        ("upsert", || upsert(r#"{"id":"a","pk":"x"}"#), (200, 0), (201, 0)),
        ("replace", || replace("a", r#"{"id":"a","pk":"x"}"#), (200, 0), (404, 0)),
        ("patch", || patch_by("a", r#"[{"op":"set","path":"/n","value":1}]"#), (200, 0), (404, 0)),
        ("delete", || delete("a"), (204, 0), (404, 0)),
    ];
    for (name, write, present, absent) in operations {
        let documents = Documents::new(BY_PK).await;
        assert_eq!(status(&documents.write(X, write()).await), absent, "{name}, absent");
        let documents = Documents::new(BY_PK).await;
        documents.must(X, create(body)).await;
        let result = documents.write(X, write()).await;
        assert_eq!(status(&result), present, "{name}, present");
        assert_eq!(result.is_ok_and(|outcome| outcome.document.is_none()), name == "delete");
        documents.verify();
    }
}

#[tokio::test]
async fn documents_come_back_as_they_were_sent() {
    let documents = Documents::new(BY_PK).await;
    let sent =
        r#"{"z":1.50,"id":"a","pk":"x","_ts":5,"a":{"b":[1e2,-0,null]},"_rid":"mine","_own":1}"#;
    let created = documents.must(X, create(sent)).await;
    let text = String::from_utf8(created.document.clone().unwrap().text().to_vec()).unwrap();
    let begins = r#"{"z":1.50,"id":"a","pk":"x","a":{"b":[1e2,-0,null]},"_own":1,"_rid":"#;
    assert!(text.starts_with(begins), "{text}");
    let shown = json(&text);
    assert_eq!(shown.get("_ts"), Some(&Value::from(START_S)));
    assert_eq!(shown.get("_attachments"), Some(&Value::from("attachments/")));
    let rid = shown.get("_rid").and_then(Value::as_str).unwrap();
    let link = format!("{}docs/{rid}/", documents.container.self_link());
    assert_eq!(shown.get("_self"), Some(&Value::from(link)));
    assert_eq!(shown.get("_etag").and_then(Value::as_str), created.etag.as_deref());
    let read = documents.read(X, "a").unwrap();
    assert_eq!(read.document.unwrap().text(), created.document.unwrap().text());
}

#[tokio::test]
async fn every_write_has_its_own_etag_and_keeps_the_resource_id() {
    let documents = Documents::new(BY_PK).await;
    let created = documents.must(X, create(r#"{"id":"a","pk":"x"}"#)).await;
    let mut etags = vec![created.etag.clone().unwrap()];
    for write in [
        replace("a", r#"{"id":"a","pk":"x"}"#),
        upsert(r#"{"id":"a","pk":"x"}"#),
        patch_by("a", r#"[{"op":"set","path":"/n","value":1}]"#),
        replace("a", r#"{"id":"b","pk":"x"}"#),
    ] {
        let outcome = documents.must(X, write).await;
        assert_eq!(rid_of(&outcome), rid_of(&created));
        let etag = outcome.etag.unwrap();
        assert!(!etags.contains(&etag));
        etags.push(etag);
    }
    documents.must(X, delete("b")).await;
    let again = documents.must(X, create(r#"{"id":"b","pk":"x"}"#)).await;
    assert_ne!(rid_of(&again), rid_of(&created), "another document of the same name");
}

#[tokio::test]
async fn ids_follow_the_rules() {
    let documents = Documents::new(BY_PK).await;
    let longest = format!("\"{}\"", "a".repeat(1023));
    let too_long = format!("\"{}\"", "a".repeat(1024));
    let too_many_bytes = format!("\"{}\"", "é".repeat(512));
    for (id, expected) in [
        ("\"a\"", 201),
        ("\"a b.c~!@$%^&*()[]{}|;:'<>,?#\"", 201),
        ("\"日本 😀\"", 201),
        ("\"\\u0001\"", 201),
        ("\" a\"", 201),
        (longest.as_str(), 201),
        (too_long.as_str(), 400),
        (too_many_bytes.as_str(), 400),
        ("\"\"", 400),
        ("\"a/b\"", 201),
        ("\"a\\\\b\"", 201),
        ("\"a \"", 201),
        ("1", 400),
        ("null", 400),
        ("{}", 400),
    ] {
        let body = format!(r#"{{"id":{id},"pk":"x"}}"#);
        for write in [upsert(&body), replace("base", &body)] {
            documents.must(X, upsert(r#"{"id":"base","pk":"x"}"#)).await;
            let replaces = matches!(write, Write::Replace { .. });
            let result = documents.write(X, write).await;
            let expected = if replaces && expected == 201 { 200 } else { expected };
            assert_eq!(status(&result), (expected, 0), "{id}: {}", message(&result));
            if expected == 201 {
                let id = json(id).as_str().unwrap().to_owned();
                documents.must(X, delete(&id)).await;
            } else if expected == 200 {
                documents.must(X, delete(json(id).as_str().unwrap())).await;
            }
        }
    }
    let result = documents.write(X, create(r#"{"pk":"x"}"#)).await;
    assert!(message(&result).contains("the required properties - 'id; ' - are missing"));
    for body in ["[]", "1", "null", "\"a\""] {
        assert_eq!(status(&documents.write(X, create(body)).await), (400, 0), "{body}");
    }
    documents.verify();
}

#[tokio::test]
async fn documents_are_at_most_two_megabytes() {
    let documents = Documents::new(BY_PK).await;
    let filled = |id: &str, filler: usize| {
        format!(r#"{{"id":"{id}","pk":"x","text":"{}"}}"#, "t".repeat(filler))
    };
    let small = documents.must(X, create(&filled("a", 0))).await;
    let room = SIZE_MAX - small.document.unwrap().text().len();
    for (write, expected) in [
        (create(&filled("b", room)), (201, 0)),
        (create(&filled("c", room + 1)), (413, 0)),
        (upsert(&filled("c", room + 1)), (413, 0)),
        (replace("b", &filled("b", room + 1)), (413, 0)),
        (patch_by("b", r#"[{"op":"set","path":"/text2","value":""}]"#), (413, 0)),
        (patch_by("b", r#"[{"op":"set","path":"/text","value":""}]"#), (200, 0)),
    ] {
        let result = documents.write(X, write).await;
        assert_eq!(status(&result), expected, "{}", message(&result));
    }
    assert_eq!(status(&documents.read(X, "c")), (404, 0));
    documents.verify();
}

/// A document with so many levels of arrays and objects.
fn nested(levels: usize) -> Write {
    let value = format!("{}1{}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    let text = format!(r#"{{"id":"a","pk":"x","deep":{value}}}"#);
    Write::Upsert { body: Value::parse_with_depth(text.as_bytes(), 2_000).unwrap() }
}

#[tokio::test]
async fn documents_have_at_most_128_levels() {
    let documents = Documents::new(BY_PK).await;
    assert_eq!(status(&documents.write(X, nested(129)).await), (400, 0));
    assert_eq!(status(&documents.write(X, nested(1_000)).await), (400, 0));
    assert_eq!(status(&documents.write(X, nested(128)).await), (201, 0));
    let deeper =
        r#"[{"op":"set","path":"/other","value":1},{"op":"move","from":"/deep","path":"/n"}]"#;
    assert_eq!(status(&documents.write(X, patch_by("a", deeper)).await), (200, 0));
    let deeper = r#"[{"op":"set","path":"/o","value":{}},{"op":"move","from":"/n","path":"/o/n"}]"#;
    assert_eq!(status(&documents.write(X, patch_by("a", deeper)).await), (400, 0));
    documents.verify();
}

#[tokio::test]
async fn the_key_must_be_that_of_the_document() {
    let documents = Documents::new(BY_PK).await;
    documents.must(X, create(r#"{"id":"a","pk":"x"}"#)).await;
    for (at, body, expected) in [
        (r#"["y"]"#, r#"{"id":"a","pk":"x"}"#, (400, 1001)),
        (r#"["X"]"#, r#"{"id":"a","pk":"x"}"#, (400, 1001)),
        (r#"["1"]"#, r#"{"id":"a","pk":1}"#, (400, 1001)),
        ("[1]", r#"{"id":"a","pk":"1"}"#, (400, 1001)),
        ("[null]", r#"{"id":"a"}"#, (400, 1001)),
        ("[{}]", r#"{"id":"a","pk":null}"#, (400, 1001)),
        ("[true]", r#"{"id":"a","pk":false}"#, (400, 1001)),
        // Too few and too many components.
        ("[]", r#"{"id":"a"}"#, (400, 1001)),
        (r#"["x","x"]"#, r#"{"id":"a","pk":"x"}"#, (400, 1001)),
    ] {
        for write in [create(body), upsert(body), replace("a", body)] {
            let result = documents.write(at, write).await;
            assert_eq!(status(&result), expected, "{at} {body}: {}", message(&result));
        }
    }
    for at in ["[]", r#"["x","x"]"#] {
        for write in [delete("a"), patch_by("a", r#"[{"op":"set","path":"/n","value":1}]"#)] {
            assert_eq!(status(&documents.write(at, write).await), (400, 1001), "{at}");
        }
        assert_eq!(status(&documents.read(at, "a")), (400, 1001), "{at}");
        let purge = documents.db.delete_partition(&documents.container, &key(at)).await;
        assert_eq!(status(&purge), (400, 1001), "{at}");
    }
    assert_eq!(documents.ids(&Scope::default()), ["a"]);
}

#[tokio::test]
async fn a_missing_key_is_taken_from_the_body_or_refused() {
    let documents = Documents::new(BY_PK).await;
    let (db, container) = (&documents.db, &documents.container);
    let none = Conditions::default;
    let created = db.write(container, None, create(r#"{"id":"a","pk":"x"}"#), none()).await;
    assert_eq!(status(&created), (201, 0));
    assert_eq!(status(&documents.read(X, "a")), (200, 0));
    for write in [
        replace("a", r#"{"id":"a","pk":"x"}"#),
        patch_by("a", r#"[{"op":"set","path":"/n","value":1}]"#),
        delete("a"),
    ] {
        let result = db.write(container, None, write, none()).await;
        assert_eq!(status(&result), (400, 0));
        assert_eq!(message(&result), "PartitionKey value must be supplied for this operation.");
    }
    let result = db.read(container, None, &by_id("a"), &none(), None);
    assert_eq!(status(&result), (400, 0));
}

#[tokio::test]
async fn keys_are_told_apart_by_type_and_value() {
    let documents = Documents::new(BY_PK).await;
    let keys = [
        (r#"["1"]"#, r#""pk":"1""#),
        ("[1]", r#""pk":1"#),
        ("[true]", r#""pk":true"#),
        ("[false]", r#""pk":false"#),
        ("[null]", r#""pk":null"#),
        ("[{}]", r#""other":1"#),
        (r#"[""]"#, r#""pk":"""#),
        (r#"["\u00e9"]"#, r#""pk":"\u00e9""#),
        (r#"["e\u0301"]"#, r#""pk":"e\u0301""#),
        ("[0]", r#""pk":0"#),
    ];
    for (at, member) in keys {
        documents.must(at, create(&format!(r#"{{"id":"a",{member}}}"#))).await;
    }
    assert_eq!(documents.ids(&Scope::default()).len(), keys.len());
    for (at, member) in keys {
        let expected = object(&format!(r#"{{"id":"a",{member}}}"#));
        assert_eq!(object(&documents.user_text(at, "a")), expected, "{at}");
        let scope = Scope { key: Some(key(at)), ..Scope::default() };
        assert_eq!(documents.ids(&scope), ["a"], "{at}");
    }
    // Other spellings of the same keys, and what counts as undefined.
    for (at, body) in [
        ("[1.0]", r#"{"id":"a","pk":1}"#),
        ("[1]", r#"{"id":"a","pk":10e-1}"#),
        ("[-0]", r#"{"id":"a","pk":0}"#),
        ("[0]", r#"{"id":"a","pk":-0.0}"#),
        ("[{}]", r#"{"id":"a","pk":{"b":1}}"#),
        ("[{}]", r#"{"id":"a","pk":[1]}"#),
    ] {
        assert_eq!(status(&documents.write(at, create(body)).await), (409, 0), "{at} {body}");
    }
    documents.verify();
}

#[tokio::test]
async fn containers_without_a_key_take_every_spelling_of_it() {
    let (db, clock) = support::in_memory().await;
    db.create_database(&object(r#"{"id":"d"}"#), None).await.unwrap();
    db.create_container("d", &object(r#"{"id":"c"}"#), None, true).await.unwrap();
    let container = db.container("d", "c").unwrap();
    let documents = Documents { db, clock, container };
    documents.must("[]", create(r#"{"id":"a"}"#)).await;
    documents.must("[{}]", create(r#"{"id":"b"}"#)).await;
    let (db, container) = (&documents.db, &documents.container);
    let none = Conditions::default;
    let created = db.write(container, None, create(r#"{"id":"e"}"#), none()).await;
    assert_eq!(status(&created), (201, 0));
    for id in ["a", "b", "e"] {
        for at in ["[]", "[{}]"] {
            assert_eq!(status(&documents.read(at, id)), (200, 0), "{at} {id}");
        }
        let read = db.read(container, None, &by_id(id), &none(), None);
        assert_eq!(status(&read), (200, 0), "{id}");
    }
    // A document that was moved here from a container with a key belongs to its value.
    documents.must(r#"["v"]"#, create(r#"{"id":"a","_partitionKey":"v"}"#)).await;
    assert_eq!(status(&documents.read(r#"["v"]"#, "a")), (200, 0));
    let scope = Scope { key: Some(key("[]")), ..Scope::default() };
    assert_eq!(documents.ids(&scope), ["a", "b", "e"]);
    assert_eq!(status(&db.write(container, None, delete("a"), none()).await), (204, 0));
    assert_eq!(status(&documents.read(r#"["v"]"#, "a")), (200, 0));
    documents.verify();
}

#[tokio::test]
async fn a_key_is_at_most_2048_bytes_long() {
    let documents = Documents::new(BY_PK).await;
    for (bytes, expected) in [(2_048, 201), (2_049, 400), (100_000, 400)] {
        let pk = "k".repeat(bytes);
        let at = format!("[\"{pk}\"]");
        let result = documents.write(&at, create(&format!(r#"{{"id":"a","pk":"{pk}"}}"#))).await;
        assert_eq!(status(&result), (expected, 0), "{bytes}");
        let expected = if expected == 201 { 200 } else { 400 };
        assert_eq!(status(&documents.read(&at, "a")), (expected, 0), "{bytes}");
        let purge = documents.db.delete_partition(&documents.container, &key(&at)).await;
        assert_eq!(status(&purge), (expected, 0), "{bytes}");
    }
    // The longest id beside the longest key still fits.
    let (pk, id) = ("k".repeat(2_048), "i".repeat(1_023));
    let at = format!("[\"{pk}\"]");
    documents.must(&at, create(&format!(r#"{{"id":"{id}","pk":"{pk}"}}"#))).await;
    documents.verify();
}

const HIERARCHICAL: &str =
    r#"{"partitionKey":{"paths":["/t","/u","/s"],"kind":"MultiHash","version":2}}"#;

#[tokio::test]
async fn hierarchical_keys_need_all_levels_for_one_document() {
    let documents = Documents::with_ranges(HIERARCHICAL, 3).await;
    documents.must(r#"["a",1,"s"]"#, create(r#"{"id":"1","t":"a","u":1,"s":"s"}"#)).await;
    documents.must(r#"["a",1,{}]"#, create(r#"{"id":"2","t":"a","u":1}"#)).await;
    documents.must(r#"["a",2,null]"#, create(r#"{"id":"3","t":"a","u":2,"s":null}"#)).await;
    documents.must(r#"["b",1,"s"]"#, create(r#"{"id":"4","t":"b","u":1,"s":"s"}"#)).await;
    documents.must("[{},{},{}]", create(r#"{"id":"5"}"#)).await;
    for at in [r#"["a"]"#, r#"["a",1]"#, "[]", r#"["a",1,"s",1]"#] {
        assert_eq!(status(&documents.read(at, "1")), (400, 1001), "{at}");
        let purge = documents.db.delete_partition(&documents.container, &key(at)).await;
        assert_eq!(status(&purge), (400, 1001), "{at}");
    }
    for (at, expected) in [
        (r#"["a"]"#, vec!["1", "2", "3"]),
        (r#"["a",1]"#, vec!["1", "2"]),
        (r#"["a",1,"s"]"#, vec!["1"]),
        (r#"["a",1,{}]"#, vec!["2"]),
        (r#"["b"]"#, vec!["4"]),
        ("[{}]", vec!["5"]),
        (r#"["z"]"#, vec![]),
    ] {
        let scope = Scope { key: Some(key(at)), ..Scope::default() };
        let mut ids = documents.ids(&scope);
        ids.sort();
        assert_eq!(ids, expected, "{at}");
    }
    documents.verify();
}

/// The conditions of a request, by what the document's etag is.
fn conditions(name: &str, etag: &str) -> Conditions {
    let unquoted = etag.trim_matches('"');
    match name {
        "none" => Conditions::default(),
        "match" => if_match(etag),
        "match unquoted" => if_match(unquoted),
        "match any" => if_match("*"),
        "match other" => if_match("\"other\""),
        "unlike" => if_none_match(etag),
        "unlike any" => if_none_match("*"),
        "unlike other" => if_none_match("\"other\""),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn etags_are_conditions_of_every_operation() {
    // For each condition: create, upsert, replace, patch, delete, read; first with a document.
    for (name, present, absent) in [
        ("none", [409, 200, 200, 200, 204, 200], [201, 201, 404, 404, 404, 404]),
        ("match", [409, 200, 200, 200, 204, 200], [201, 201, 404, 404, 404, 404]),
        ("match unquoted", [409, 200, 200, 200, 204, 200], [201, 201, 404, 404, 404, 404]),
        ("match any", [409, 200, 200, 200, 204, 200], [201, 201, 404, 404, 404, 404]),
        ("match other", [409, 412, 412, 412, 412, 412], [201, 201, 404, 404, 404, 404]),
        ("unlike", [409, 412, 412, 412, 412, 304], [201, 201, 404, 404, 404, 404]),
        ("unlike any", [409, 412, 412, 412, 412, 304], [201, 201, 404, 404, 404, 404]),
        ("unlike other", [409, 200, 200, 200, 204, 200], [201, 201, 404, 404, 404, 404]),
    ] {
        let body = r#"{"id":"a","pk":"x"}"#;
        let writes = || {
            [
                create(body),
                upsert(body),
                replace("a", body),
                patch_by("a", r#"[{"op":"set","path":"/n","value":1}]"#),
                delete("a"),
            ]
        };
        for (exists, expected) in [(true, present), (false, absent)] {
            let mut answers = Vec::new();
            for write in writes() {
                let documents = Documents::new(BY_PK).await;
                let etag = first_etag(&documents, exists).await;
                let result = documents.write_if(X, write, conditions(name, &etag)).await;
                answers.push(status(&result).0);
            }
            let documents = Documents::new(BY_PK).await;
            let etag = first_etag(&documents, exists).await;
            let result = documents.read_if(X, "a", conditions(name, &etag));
            if let Ok(outcome) = &result {
                assert_eq!(outcome.document.is_none(), outcome.status == 304);
                assert_eq!(outcome.etag.as_deref(), Some(&etag[..]));
            }
            answers.push(status(&result).0);
            assert_eq!(answers, expected, "{name}, exists: {exists}");
        }
    }
}

async fn first_etag(documents: &Documents<Embedded>, exists: bool) -> String {
    if !exists {
        return "\"none\"".to_owned();
    }
    documents.must(X, create(r#"{"id":"a","pk":"x"}"#)).await.etag.unwrap()
}

#[tokio::test]
async fn a_replace_may_rename() {
    let documents = Documents::new(BY_PK).await;
    let first = documents.must(X, create(r#"{"id":"a","pk":"x"}"#)).await;
    documents.must(X, create(r#"{"id":"taken","pk":"x"}"#)).await;
    documents.must(r#"["y"]"#, create(r#"{"id":"b","pk":"y"}"#)).await;
    let taken = documents.write(X, replace("a", r#"{"id":"taken","pk":"x"}"#)).await;
    assert_eq!(status(&taken), (409, 0));
    // The same id in another partition does not matter.
    let renamed = documents.must(X, replace("a", r#"{"id":"b","pk":"x"}"#)).await;
    assert_eq!(rid_of(&renamed), rid_of(&first));
    assert_eq!(status(&documents.read(X, "a")), (404, 0));
    assert_eq!(documents.user_text(X, "b"), r#"{"id":"b","pk":"x"}"#);
    let write = Write::Replace { address: rid_of(&first), body: json(r#"{"id":"e","pk":"x"}"#) };
    documents.must(X, write).await;
    assert_eq!(status(&documents.read(X, "e")), (200, 0));
    documents.must(X, create(r#"{"id":"a","pk":"x"}"#)).await;
    let result = documents.write(X, replace("e", r#"{"id":"e","pk":"y"}"#)).await;
    assert_eq!(status(&result), (400, 1001), "a document never changes its partition");
    documents.verify();
}

#[tokio::test]
async fn documents_are_found_by_resource_id_in_their_partition_only() {
    let documents = Documents::new(BY_PK).await;
    let created = documents.must(X, create(r#"{"id":"a","pk":"x"}"#)).await;
    documents.must(r#"["y"]"#, create(r#"{"id":"a","pk":"y"}"#)).await;
    let container = support::create_container(&documents.db, "other", BY_PK, None).await;
    let write = create(r#"{"id":"a","pk":"x"}"#);
    let other =
        documents.db.write(&container, Some(&key(X)), write, Conditions::default()).await.unwrap();
    let absent = [
        (r#"["y"]"#, rid_of(&created)),
        (X, rid_of(&other)),
        (X, Address::Rid("not a resource id".to_owned())),
        (X, Address::Rid(String::new())),
        (X, Address::Rid("a".to_owned())),
    ];
    let (db, container) = (&documents.db, &documents.container);
    let none = Conditions::default;
    for (at, address) in absent {
        let read = db.read(container, Some(&key(at)), &address, &none(), None);
        assert_eq!(status(&read), (404, 0), "{at} {address:?}");
        let deleted = documents.write(at, Write::Delete { address }).await;
        assert_eq!(status(&deleted), (404, 0), "{at}");
    }
    let read = db.read(container, Some(&key(X)), &rid_of(&created), &none(), None);
    assert_eq!(status(&read), (200, 0));
    let patch = patch(r#"[{"op":"set","path":"/n","value":1}]"#);
    documents.must(X, Write::Patch { address: rid_of(&created), patch }).await;
    documents.must(X, Write::Delete { address: rid_of(&created) }).await;
    let read = db.read(container, Some(&key(X)), &rid_of(&created), &none(), None);
    assert_eq!(status(&read), (404, 0));
    documents.verify();
}

#[tokio::test]
async fn patches_change_a_copy_or_nothing() {
    for (operations, expected, after) in [
        (r#"[{"op":"add","path":"/n","value":2}]"#, (200, 0), r#""n":2"#),
        (r#"[{"op":"incr","path":"/n","value":-2.5}]"#, (200, 0), r#""n":-1.5"#),
        (r#"[{"op":"remove","path":"/n"}]"#, (200, 0), r#""a":[1,2]"#),
        (r#"[{"op":"add","path":"/a/0","value":0}]"#, (200, 0), r#""a":[0,1,2]"#),
        (r#"[{"op":"set","path":"/a/0","value":0}]"#, (200, 0), r#""a":[0,2]"#),
        (r#"[{"op":"move","from":"/n","path":"/m"}]"#, (200, 0), r#""m":1"#),
        (
            r#"[{"op":"set","path":"/n","value":5},{"op":"remove","path":"/no"}]"#,
            (400, 0),
            r#""n":1"#,
        ),
        (r#"[{"op":"replace","path":"/no","value":5}]"#, (400, 0), r#""n":1"#),
        (r#"[{"op":"incr","path":"/a","value":5}]"#, (400, 0), r#""n":1"#),
        (r#"[{"op":"set","path":"/id","value":"z"}]"#, (400, 0), r#""id":"a""#),
        (r#"[{"op":"set","path":"/pk","value":"z"}]"#, (400, 0), r#""pk":"x""#),
        (r#"[{"op":"set","path":"/_etag","value":"z"}]"#, (400, 0), r#""n":1"#),
        (r#"[{"op":"move","from":"/pk","path":"/z"}]"#, (400, 0), r#""pk":"x""#),
        (
            r#"{"operations":[{"op":"incr","path":"/n","value":1}],"condition":"FROM c WHERE c.n = 1"}"#,
            (200, 0),
            r#""n":2"#,
        ),
        (
            r#"{"operations":[{"op":"incr","path":"/n","value":1}],"condition":"from x where x.a[1] = 2 and x.pk = \"x\""}"#,
            (200, 0),
            r#""n":2"#,
        ),
        (
            r#"{"operations":[{"op":"incr","path":"/n","value":1}],"condition":"FROM c WHERE c.n = 2"}"#,
            (412, 1110),
            r#""n":1"#,
        ),
        (
            r#"{"operations":[{"op":"incr","path":"/n","value":1}],"condition":"FROM c WHERE c.missing = 2"}"#,
            (412, 1110),
            r#""n":1"#,
        ),
        (
            r#"{"operations":[{"op":"incr","path":"/n","value":1}],"condition":"FROM c WHERE c.n ="}"#,
            (400, 0),
            r#""n":1"#,
        ),
        (
            r#"{"operations":[{"op":"incr","path":"/n","value":1}],"condition":"SELECT * FROM c"}"#,
            (400, 0),
            r#""n":1"#,
        ),
    ] {
        let documents = Documents::new(BY_PK).await;
        documents.must(X, create(r#"{"id":"a","pk":"x","n":1,"a":[1,2]}"#)).await;
        let result = documents.write(X, patch_by("a", operations)).await;
        assert_eq!(status(&result), expected, "{operations}: {}", message(&result));
        let text = documents.user_text(X, "a");
        assert!(text.contains(after), "{operations}: {text}");
        documents.verify();
    }
}

#[tokio::test]
async fn what_is_missing_is_missing_before_any_condition() {
    let documents = Documents::new(BY_PK).await;
    let conditional = r#"{"operations":[{"op":"incr","path":"/n","value":1}],"condition":"FROM c WHERE c.n = 2"}"#;
    assert_eq!(status(&documents.write(X, patch_by("a", conditional)).await), (404, 0));
    documents.must(X, create(r#"{"id":"a","pk":"x","n":2}"#)).await;
    let result = documents.write_if(X, patch_by("a", conditional), if_match("\"other\"")).await;
    assert_eq!(status(&result), (412, 0), "the etag is looked at before the condition");
    assert_eq!(documents.user_text(X, "a"), r#"{"id":"a","pk":"x","n":2}"#);
}

// Unique keys.

#[tokio::test]
async fn unique_keys_hold_in_a_partition() {
    let documents = Documents::new(&by_pk_with(
        r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]},{"paths":["/v/a","/w"]}]}"#,
    ))
    .await;
    let body = |id: &str, rest: &str| format!(r#"{{"id":"{id}","pk":"x",{rest}}}"#);
    documents.must(X, create(&body("a", r#""u":1,"v":{"a":1},"w":1"#))).await;
    let mut number = 0;
    for (rest, expected) in [
        (r#""u":1,"v":{"a":2},"w":2"#, (409, 3301)),
        (r#""u":1.0,"v":{"a":2},"w":2"#, (409, 3301)),
        (r#""u":2,"v":{"a":1},"w":1"#, (409, 3301)),
        (r#""u":2,"v":{"a":1,"b":5},"w":1"#, (409, 3301)),
        (r#""u":"1","v":{"a":1},"w":2"#, (201, 0)),
        (r#""v":{"a":3},"w":3"#, (201, 0)),
        (r#""u":null,"v":{"a":4},"w":4"#, (409, 3301)),
        (r#""u":"A","v":{"a":5},"w":5"#, (201, 0)),
        (r#""u":"a","v":{"a":6},"w":6"#, (201, 0)),
        (r#""u":{"x":[1]},"v":{"a":7},"w":7"#, (201, 0)),
        (r#""u":{"x":[1]},"v":{"a":8},"w":8"#, (409, 3301)),
        (r#""u":9"#, (201, 0)),
        (r#""u":10,"v":5,"w":null"#, (409, 3301)),
    ] {
        number += 1;
        let result = documents.write(X, create(&body(&number.to_string(), rest))).await;
        assert_eq!(status(&result), expected, "{rest}: {}", message(&result));
    }
    let refused = documents.write(X, create(&body("z", r#""u":1,"v":9,"w":9"#))).await;
    assert_eq!(message(&refused), "Unique index constraint violation.");
    // Another partition has its own.
    documents.must(r#"["y"]"#, create(r#"{"id":"a","pk":"y","u":1,"v":{"a":1},"w":1}"#)).await;
    documents.verify();
}

#[tokio::test]
async fn unique_keys_follow_their_document() {
    let definition = by_pk_with(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#);
    let documents = Documents::new(&definition).await;
    let body = |id: &str, u: u8| format!(r#"{{"id":"{id}","pk":"x","u":{u}}}"#);
    documents.must(X, create(&body("a", 1))).await;
    documents.must(X, create(&body("b", 2))).await;
    let set = |u: u8| format!(r#"[{{"op":"set","path":"/u","value":{u}}}]"#);
    for (write, expected) in [
        // A refused write frees nothing.
        (replace("a", &body("a", 2)), (409, 3301)),
        (upsert(&body("a", 2)), (409, 3301)),
        (patch_by("a", &set(2)), (409, 3301)),
        (create(&body("c", 1)), (409, 3301)),
        // A document does not stand in its own way.
        (replace("a", &body("a", 1)), (200, 0)),
        (replace("a", &body("renamed", 1)), (200, 0)),
        (create(&body("c", 1)), (409, 3301)),
        // What a document leaves is free.
        (patch_by("renamed", &set(3)), (200, 0)),
        (create(&body("c", 1)), (201, 0)),
        (delete("b"), (204, 0)),
        (create(&body("d", 2)), (201, 0)),
    ] {
        let what = format!("{write:?}");
        assert_eq!(status(&documents.write(X, write).await), expected, "{what}");
        documents.verify();
    }
    // Two documents swap their values in one batch only by way of a third value.
    let swap = vec![patch_by("c", &set(9)), patch_by("d", &set(1)), patch_by("c", &set(2))];
    assert_eq!(statuses(&documents.batch(X, swap).await), [200, 200, 200]);
    let clash = vec![patch_by("c", &set(1)), patch_by("d", &set(2))];
    assert_eq!(statuses(&documents.batch(X, clash).await), [409, 424]);
    documents.verify();
}

// Time to live.

fn with_ttl(default: Option<i64>) -> String {
    match default {
        Some(default) => by_pk_with(&format!(r#""defaultTtl":{default}"#)),
        None => BY_PK.to_owned(),
    }
}

fn body_with_ttl(id: &str, ttl: Option<i64>) -> String {
    match ttl {
        Some(ttl) => format!(r#"{{"id":"{id}","pk":"x","ttl":{ttl}}}"#),
        None => format!(r#"{{"id":"{id}","pk":"x"}}"#),
    }
}

#[tokio::test]
async fn documents_expire_as_container_and_document_say() {
    for (default, ttl, expires) in [
        (None, None, None),
        (None, Some(5), None),
        (None, Some(-1), None),
        (Some(-1), None, None),
        (Some(-1), Some(-1), None),
        (Some(-1), Some(5), Some(5)),
        (Some(10), None, Some(10)),
        (Some(10), Some(-1), None),
        (Some(10), Some(5), Some(5)),
        (Some(10), Some(20), Some(20)),
        (Some(1), None, Some(1)),
        (Some(-1), Some(2_147_483_647), Some(2_147_483_647)),
    ] {
        let documents = Documents::new(&with_ttl(default)).await;
        documents.must(X, create(&body_with_ttl("a", ttl))).await;
        let what = format!("{default:?} {ttl:?}");
        documents.advance_s(expires.map_or(3_000_000_000, |seconds: u64| seconds - 1));
        assert_eq!(status(&documents.read(X, "a")), (200, 0), "{what}");
        assert_eq!(documents.ids(&Scope::default()), ["a"], "{what}");
        documents.advance_s(1);
        let there = expires.is_none();
        assert_eq!(status(&documents.read(X, "a")).0, if there { 200 } else { 404 }, "{what}");
        assert_eq!(documents.ids(&Scope::default()).len(), usize::from(there), "{what}");
        let swept = documents.db.sweep().await.unwrap();
        assert_eq!(swept.expired, u64::from(!there), "{what}");
        let usage = documents.db.container_usage(&documents.container).unwrap();
        assert_eq!(usage.documents, u64::from(there), "{what}");
        documents.verify();
    }
}

#[tokio::test]
async fn wrong_times_to_live_are_refused_where_they_matter() {
    let enabled = Documents::new(&with_ttl(Some(-1))).await;
    let disabled = Documents::new(BY_PK).await;
    for (ttl, shown) in [
        ("0", "0"),
        ("-2", "-2"),
        ("null", "null"),
        ("1.5", "1.5"),
        ("\"5\"", "5"),
        ("2147483648", "2147483648"),
    ] {
        let body = format!(r#"{{"id":"a","pk":"x","ttl":{ttl}}}"#);
        let result = enabled.write(X, create(&body)).await;
        assert_eq!(status(&result), (400, 0), "{ttl}");
        let expected = format!("The input ttl '{shown}' is invalid.");
        assert!(message(&result).starts_with(&expected), "{}", message(&result));
        assert_eq!(status(&disabled.write(X, upsert(&body)).await).0 / 100, 2, "{ttl}");
    }
    enabled.must(X, create(&body_with_ttl("a", Some(5)))).await;
    let wrong = patch_by("a", r#"[{"op":"set","path":"/ttl","value":0}]"#);
    assert_eq!(status(&enabled.write(X, wrong).await), (400, 0));
    let longer = patch_by("a", r#"[{"op":"set","path":"/ttl","value":50}]"#);
    enabled.must(X, longer).await;
    enabled.advance_s(49);
    assert_eq!(status(&enabled.read(X, "a")), (200, 0));
    enabled.advance_s(1);
    assert_eq!(status(&enabled.read(X, "a")), (404, 0));
}

#[tokio::test]
async fn every_write_starts_the_time_to_live_anew() {
    let documents = Documents::new(&with_ttl(Some(10))).await;
    documents.must(X, create(&body_with_ttl("a", None))).await;
    for write in [
        upsert(&body_with_ttl("a", None)),
        replace("a", &body_with_ttl("a", None)),
        patch_by("a", r#"[{"op":"set","path":"/n","value":1}]"#),
    ] {
        documents.advance_s(9);
        assert_eq!(documents.must(X, write).await.status, 200);
        documents.verify();
    }
    documents.advance_s(9);
    assert_eq!(documents.db.sweep().await.unwrap().expired, 0);
    assert_eq!(status(&documents.read(X, "a")), (200, 0));
    documents.advance_s(1);
    assert_eq!(status(&documents.read(X, "a")), (404, 0));
}

#[tokio::test]
async fn an_expired_document_is_not_there_for_anything() {
    let definition =
        by_pk_with(r#""defaultTtl":5,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#);
    let body = r#"{"id":"a","pk":"x","u":1}"#;
    for (write, expected) in [
        (create(body), (201, 0)),
        (upsert(body), (201, 0)),
        (replace("a", body), (404, 0)),
        (patch_by("a", r#"[{"op":"set","path":"/n","value":1}]"#), (404, 0)),
        (delete("a"), (404, 0)),
        // Its unique value and its id are free for others.
        (create(r#"{"id":"b","pk":"x","u":1}"#), (201, 0)),
        (replace("other", r#"{"id":"a","pk":"x","u":2}"#), (200, 0)),
        (replace("other", r#"{"id":"other","pk":"x","u":1}"#), (200, 0)),
        (replace("other", r#"{"id":"a","pk":"x","u":1}"#), (200, 0)),
    ] {
        let documents = Documents::new(&definition).await;
        let first = documents.must(X, create(body)).await;
        documents.advance_s(3);
        documents.must(X, create(r#"{"id":"other","pk":"x","u":2}"#)).await;
        documents.advance_s(2);
        let what = format!("{write:?}");
        let result = documents.write_if(X, write, if_match(&first.etag.clone().unwrap())).await;
        // A condition on the expired version does not bind what is created in its place.
        let expected = if what.contains("\"other\"") { (412, 0) } else { expected };
        assert_eq!(status(&result), expected, "{what}");
        documents.verify();
        if let Ok(outcome) = result {
            assert_ne!(rid_of(&outcome), rid_of(&first), "{what}");
        }
        documents.db.sweep().await.unwrap();
        documents.verify();
    }
    // The same without a condition, for those that change another document.
    for body in [
        r#"{"id":"a","pk":"x","u":2}"#,
        r#"{"id":"other","pk":"x","u":1}"#,
        r#"{"id":"a","pk":"x","u":1}"#,
    ] {
        let documents = Documents::new(&definition).await;
        documents.must(X, create(r#"{"id":"a","pk":"x","u":1}"#)).await;
        documents.advance_s(3);
        documents.must(X, create(r#"{"id":"other","pk":"x","u":2}"#)).await;
        documents.advance_s(2);
        documents.must(X, replace("other", body)).await;
        documents.verify();
        let usage = documents.db.container_usage(&documents.container).unwrap();
        assert_eq!(usage.documents, 1, "{body}");
    }
}

#[tokio::test]
async fn a_changed_default_applies_at_once_to_what_is_there() {
    let mut documents = Documents::new(BY_PK).await;
    documents.must(X, create(&body_with_ttl("plain", None))).await;
    documents.must(X, create(&body_with_ttl("own", Some(5)))).await;
    documents.must(X, create(&body_with_ttl("never", Some(-1)))).await;
    documents.advance_s(20);
    for (default, visible) in [
        (None, vec!["plain", "own", "never"]),
        (Some(30), vec!["plain", "never"]),
        (Some(10), vec!["never"]),
        (Some(-1), vec!["plain", "never"]),
        (None, vec!["plain", "own", "never"]),
    ] {
        documents.redefine(&with_ttl(default)).await;
        assert_eq!(documents.ids(&Scope::default()), visible, "{default:?}");
        documents.verify();
    }
    documents.redefine(&with_ttl(Some(10))).await;
    assert_eq!(documents.db.sweep().await.unwrap().expired, 2);
    documents.verify();
    documents.redefine(BY_PK).await;
    assert_eq!(documents.ids(&Scope::default()), ["never"], "what was swept is gone");
    documents.verify();
}

#[tokio::test]
async fn time_never_goes_back_where_documents_are() {
    let memory = Memory::new();
    let clock = support::clock();
    clock.advance_ms(100_000);
    let db = support::open(Engine::with_store(memory.clone()).unwrap(), &clock).await;
    let container = support::container(&db, &with_ttl(Some(10))).await;
    let documents = Documents { db, clock, container };
    documents.must(X, create(&body_with_ttl("a", None))).await;
    documents.db.close().await.unwrap();
    // The machine's clock was set back by 100 seconds while the server was down.
    let clock = support::clock();
    let db = support::open(Engine::with_store(memory).unwrap(), &clock).await;
    let container = db.container("d", "c").unwrap();
    let documents = Documents { db, clock, container };
    let written = documents.must(X, create(&body_with_ttl("b", None))).await;
    assert_eq!(field(&written, "_ts"), (START_S + 100).to_string());
    for (seconds, visible) in [(0, 2), (109, 2), (1, 0)] {
        documents.advance_s(seconds);
        assert_eq!(documents.ids(&Scope::default()).len(), visible);
        assert_eq!(documents.db.sweep().await.unwrap().expired, 2 - visible as u64);
        documents.verify();
    }
}

#[tokio::test]
async fn a_sweep_removes_any_number_of_documents() {
    let documents = Documents::with_ranges(&with_ttl(Some(5)), 2).await;
    for batch in 0..7 {
        let writes: Vec<_> = (0..100)
            .map(|n| create(&format!(r#"{{"id":"{batch}-{n}","pk":"x","ttl":{}}}"#, 1 + n % 9)))
            .collect();
        documents.batch(X, writes).await;
    }
    documents.must(r#"["y"]"#, create(r#"{"id":"later","pk":"y","ttl":100}"#)).await;
    documents.advance_s(9);
    assert_eq!(documents.db.sweep().await.unwrap().expired, 700);
    assert_eq!(documents.db.sweep().await.unwrap().expired, 0);
    assert_eq!(documents.ids(&Scope::default()), ["later"]);
    documents.verify();
}

// Batches.

#[tokio::test]
async fn a_batch_is_one_commit_whose_operations_see_each_other() {
    let documents = Documents::new(BY_PK).await;
    let before = documents.must(X, create(r#"{"id":"old","pk":"x"}"#)).await;
    let outcome = documents
        .batch(
            X,
            vec![
                create(r#"{"id":"a","pk":"x","n":1}"#),
                read("a"),
                replace("a", r#"{"id":"a","pk":"x","n":5}"#),
                patch_by("a", r#"[{"op":"incr","path":"/n","value":1}]"#),
                read("a"),
                upsert(r#"{"id":"b","pk":"x"}"#),
                upsert(r#"{"id":"b","pk":"x","n":2}"#),
                delete("old"),
                create(r#"{"id":"old","pk":"x","again":true}"#),
                replace("b", r#"{"id":"b2","pk":"x"}"#),
                create(r#"{"id":"b","pk":"x"}"#),
                delete("b2"),
            ],
        )
        .await;
    assert_eq!(statuses(&outcome), [201, 200, 200, 200, 200, 201, 200, 204, 201, 200, 201, 204]);
    let n =
        |at: usize| outcome.results[at].document.as_ref().unwrap().field("n").map(str::to_owned);
    assert_eq!([n(1), n(4)], [Some("1".to_owned()), Some("6".to_owned())]);
    assert_eq!(outcome.at.len(), 1);
    assert_eq!(outcome.at[0].lsn, before.at.lsn + 1);
    let etags: std::collections::BTreeSet<_> =
        outcome.results.iter().filter_map(|result| result.etag.clone()).collect();
    assert_eq!(etags.len(), 8, "each version has its own etag");
    for id in ["a", "old", "b"] {
        let read = documents.read(X, id).unwrap();
        assert_eq!(read.at.document_lsn, Some(before.at.lsn + 1), "{id}");
    }
    assert_eq!(documents.user_text(X, "a"), r#"{"id":"a","pk":"x","n":6}"#);
    assert_eq!(documents.ids(&Scope::default()), ["a", "old", "b"]);
    documents.verify();
}

#[tokio::test]
async fn a_batch_that_fails_changes_nothing() {
    let definition = by_pk_with(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#);
    let documents = Documents::new(&definition).await;
    let old = documents.must(X, create(r#"{"id":"old","pk":"x","u":1}"#)).await;
    let wrong: Vec<(BatchOperation, Status)> = vec![
        (operation(create(r#"{"id":"old","pk":"x","u":5}"#)), (409, 0)),
        (operation(create(r#"{"id":"n","pk":"x","u":2}"#)), (409, 3301)),
        (operation(create(r#"{"id":"n","pk":"y","u":5}"#)), (400, 1001)),
        (operation(create(r#"{"pk":"x"}"#)), (400, 0)),
        (operation(read("none")), (404, 0)),
        (operation(delete("none")), (404, 0)),
        (operation(replace("none", r#"{"id":"none","pk":"x"}"#)), (404, 0)),
        (operation(patch_by("old", r#"[{"op":"remove","path":"/none"}]"#)), (400, 0)),
        (
            operation(patch_by(
                "old",
                r#"{"operations":[{"op":"incr","path":"/u","value":1}],"condition":"FROM c WHERE c.u = 7"}"#,
            )),
            (412, 1110),
        ),
        (
            BatchOperation { key: None, write: delete("old"), conditions: if_match("\"other\"") },
            (412, 0),
        ),
    ];
    for (operation_that_fails, expected) in wrong {
        let what = format!("{operation_that_fails:?}");
        let operations = vec![
            operation(create(r#"{"id":"a","pk":"x","u":2}"#)),
            operation(upsert(r#"{"id":"old","pk":"x","u":3}"#)),
            operation_that_fails,
            operation(create(r#"{"id":"b","pk":"x","u":4}"#)),
        ];
        let outcome = documents.db.batch(&documents.container, &key(X), operations, None).await;
        let outcome = outcome.unwrap();
        assert_eq!(statuses(&outcome), [424, 424, expected.0, 424], "{what}");
        assert_eq!(outcome.results[2].substatus, expected.1, "{what}");
        assert!(outcome.results.iter().all(|result| result.document.is_none()), "{what}");
        assert!(outcome.results[2].message.is_some());
        let now = documents.read(X, "old").unwrap();
        assert_eq!((now.at.lsn, now.etag), (old.at.lsn, old.etag.clone()), "{what}");
        assert_eq!(documents.ids(&Scope::default()), ["old"], "{what}");
        documents.verify();
    }
}

#[tokio::test]
async fn a_read_that_finds_nothing_new_does_not_fail_a_batch() {
    let documents = Documents::new(BY_PK).await;
    let etag = documents.must(X, create(r#"{"id":"a","pk":"x"}"#)).await.etag.unwrap();
    let operations = vec![
        BatchOperation { key: None, write: read("a"), conditions: if_none_match(&etag) },
        operation(create(r#"{"id":"b","pk":"x"}"#)),
    ];
    let outcome =
        documents.db.batch(&documents.container, &key(X), operations, None).await.unwrap();
    assert_eq!(statuses(&outcome), [304, 201]);
    assert!(outcome.results[0].document.is_none());
    assert_eq!(outcome.results[0].etag, Some(etag));
    // Reads alone commit nothing.
    let outcome = documents.batch(X, vec![read("a"), read("b")]).await;
    assert_eq!(outcome.at[0].lsn, documents.read(X, "a").unwrap().at.lsn);
}

#[tokio::test]
async fn batches_have_limits() {
    let documents = Documents::new(BY_PK).await;
    for (count, message) in [
        (0, Some("Batch request has no operations.")),
        (1, None),
        (100, None),
        (101, Some("Batch request has more operations than what is supported.")),
    ] {
        let writes = (0..count).map(|n| operation(upsert(&format!(r#"{{"id":"{n}","pk":"x"}}"#))));
        let result =
            documents.db.batch(&documents.container, &key(X), writes.collect(), None).await;
        assert_eq!(
            result.err().map(|failure| failure.error.message).as_deref(),
            message,
            "{count}"
        );
    }
    // An answer over 4 MB rolls the batch back.
    let large = format!(r#"{{"id":"large","pk":"x","text":"{}"}}"#, "t".repeat(1_500_000));
    documents.must(X, create(&large)).await;
    let small = create(r#"{"id":"small","pk":"x"}"#);
    let outcome =
        documents.batch(X, vec![small, read("large"), read("large"), read("large")]).await;
    assert_eq!(statuses(&outcome), [424, 424, 424, 413]);
    assert_eq!(outcome.results[3].substatus, 3402);
    assert_eq!(status(&documents.read(X, "small")), (404, 0));
    documents.verify();
}

#[tokio::test]
async fn bulk_operations_stand_for_themselves() {
    for (go_on, expected, ids) in [
        (true, [201, 409, 400, 201, 404, 204, 412], vec!["a", "c"]),
        (false, [201, 409, 424, 424, 424, 424, 424], vec!["a", "gone"]),
    ] {
        let documents = Documents::with_ranges(BY_PK, 3).await;
        documents.must(r#"["y"]"#, create(r#"{"id":"gone","pk":"y"}"#)).await;
        let keyed = |at: &str, write| BatchOperation { key: Some(key(at)), ..operation(write) };
        let operations = vec![
            keyed(X, create(r#"{"id":"a","pk":"x"}"#)),
            keyed(X, create(r#"{"id":"a","pk":"x"}"#)),
            keyed(X, create(r#"{"id":"b","pk":"y"}"#)),
            keyed(r#"["z"]"#, create(r#"{"id":"c","pk":"z"}"#)),
            keyed(r#"["z"]"#, delete("none")),
            keyed(r#"["y"]"#, delete("gone")),
            BatchOperation {
                conditions: if_match("\"other\""),
                ..keyed(X, upsert(r#"{"id":"a","pk":"x"}"#))
            },
        ];
        let outcome =
            documents.db.bulk(&documents.container, None, operations, go_on).await.unwrap();
        assert_eq!(statuses(&outcome), expected);
        let mut found = documents.ids(&Scope::default());
        found.sort();
        assert_eq!(found, ids);
        documents.verify();
    }
}

#[tokio::test]
async fn bulk_operations_stay_in_the_range_that_was_named() {
    let documents = Documents::with_ranges(BY_PK, 2).await;
    let at = |outcome: &Outcome| outcome.at.range.clone();
    let mut names = Vec::new();
    for pk in 0..10 {
        let body = format!(r#"{{"id":"a","pk":{pk}}}"#);
        names.push(at(&documents.must(&format!("[{pk}]"), create(&body)).await));
    }
    let operations = || {
        let keyed =
            |pk| BatchOperation { key: Some(key(&format!("[{pk}]"))), ..operation(read("a")) };
        (0..10).map(keyed).collect::<Vec<_>>()
    };
    let (db, container) = (&documents.db, &documents.container);
    for range in ["0", "1"] {
        let outcome = db.bulk(container, Some(range), operations(), true).await.unwrap();
        let expected: Vec<_> =
            names.iter().map(|name| if name == range { 200 } else { 410 }).collect();
        assert_eq!(statuses(&outcome), expected);
    }
    let unknown = db.bulk(container, Some("7"), operations(), true).await;
    assert_eq!(unknown.err().map(|failure| failure.error.kind), Some(Kind::RangeGone));
    for count in [0, 101] {
        let operations = vec![operation(read("a")); count];
        assert!(db.bulk(container, None, operations, true).await.is_err(), "{count}");
    }
}

// Delete by partition key.

#[tokio::test]
async fn a_deleted_partition_is_gone_at_once_and_can_be_used_again() {
    let definition = by_pk_with(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#);
    let documents = Documents::new(&definition).await;
    let body = |id: &str, u: u64| format!(r#"{{"id":"{id}","pk":"x","u":{u}}}"#);
    let mut first = Vec::new();
    for n in 0..600 {
        first.push(documents.must(X, create(&body(&n.to_string(), n))).await);
    }
    documents.must(r#"["y"]"#, create(r#"{"id":"0","pk":"y"}"#)).await;
    let (db, container) = (&documents.db, &documents.container);
    let purge = db.delete_partition(container, &key(X)).await.unwrap();
    assert_eq!((purge.status, purge.document.is_none()), (200, true));

    assert_eq!(status(&documents.read(X, "1")), (404, 0));
    let by_rid =
        db.read(container, Some(&key(X)), &rid_of(&first[1]), &Conditions::default(), None);
    assert_eq!(status(&by_rid), (404, 0));
    assert_eq!(documents.ids(&Scope { key: Some(key(X)), ..Scope::default() }).len(), 0);
    assert_eq!(documents.ids(&Scope::default()), ["0"]);
    for write in [
        replace("1", &body("1", 1)),
        patch_by("1", r#"[{"op":"set","path":"/n","value":1}]"#),
        delete("1"),
    ] {
        assert_eq!(status(&documents.write(X, write).await), (404, 0));
    }
    documents.verify();

    // Ids and unique values are free, and what is written now stays.
    documents.must(X, create(&body("1", 2))).await;
    let etag = first[3].etag.clone().unwrap();
    let upserted = documents.write_if(X, upsert(&body("3", 3)), if_match(&etag)).await.unwrap();
    assert_eq!(upserted.status, 201);
    assert_ne!(rid_of(&upserted), rid_of(&first[3]));
    let outcome =
        documents.batch(X, vec![create(&body("5", 7)), replace("5", &body("7", 5))]).await;
    assert_eq!(statuses(&outcome), [201, 200]);
    documents.verify();
    let swept = db.sweep().await.unwrap();
    // Five were removed by those who needed their ids or values.
    assert_eq!(swept.purged, 600 - 5);
    assert_eq!(documents.ids(&Scope { key: Some(key(X)), ..Scope::default() }), ["1", "3", "7"]);
    documents.verify();

    // Again, and where nothing is.
    for at in [X, X, r#"["nothing"]"#] {
        assert_eq!(status(&db.delete_partition(container, &key(at)).await), (200, 0));
    }
    assert_eq!(documents.ids(&Scope::default()), ["0"]);
    assert_eq!(db.sweep().await.unwrap().purged, 3);
    assert_eq!(db.container_usage(container).unwrap().documents, 1);
    documents.verify();
}

// Feeds.

#[tokio::test]
async fn a_feed_gives_the_same_in_pages_of_any_size() {
    // A few in the order of their creation, many in the order of their places.
    for count in [137, 300] {
        a_feed_gives_the_same_however_it_is_cut(count).await;
    }
}

async fn a_feed_gives_the_same_however_it_is_cut(count: usize) {
    let documents = Documents::with_ranges(BY_PK, 4).await;
    for n in 0..count {
        let pk = n % 11;
        documents.must(&format!("[{pk}]"), create(&format!(r#"{{"id":"{n}","pk":{pk}}}"#))).await;
    }
    let whole = documents.ids(&Scope::default());
    assert_eq!(whole.len(), count);
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    let ids = |scope: &Scope, items_max| {
        let rows = feed(&documents.db, &documents.container, scope, items_max);
        rows.iter()
            .map(|row| row.get("id").unwrap().as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for items_max in [1, 2, 10, count - 1, count, count + 1, 5_000] {
        assert_eq!(ids(&Scope::default(), Some(items_max)), whole, "{items_max}");
    }
    for parts in [1, 2, 5] {
        let slices = even_split(parts).into_iter();
        let in_slices: Vec<_> = slices
            .flat_map(|epk| ids(&Scope { epk: Some(epk), ..Scope::default() }, Some(7)))
            .collect();
        assert_eq!(sorted(in_slices), sorted(whole.clone()), "{parts}");
    }
    let ranges = ["0", "1", "2", "3"].map(str::to_owned);
    let by_range: Vec<_> = ranges
        .into_iter()
        .flat_map(|range| ids(&Scope { range: Some(range), ..Scope::default() }, Some(3)))
        .collect();
    assert_eq!(sorted(by_range), sorted(whole.clone()));
    // What is given is intersected.
    let scope = Scope { key: Some(key("[3]")), epk: Some(EpkRange::full()), ..Scope::default() };
    let expected = (0..count).filter(|n| n % 11 == 3).count();
    assert_eq!(ids(&scope, None).len(), expected);
    let elsewhere: usize = (0..4)
        .map(|range| Scope { range: Some(range.to_string()), ..scope.clone() })
        .map(|scope| ids(&scope, None).len())
        .sum();
    assert_eq!(elsewhere, expected);
    let unknown = Scope { range: Some("9".to_owned()), ..Scope::default() };
    let failure = documents.db.read_feed(&documents.container, &unknown, &Page::default(), None);
    assert_eq!(failure.err().map(|failure| failure.error.kind), Some(Kind::RangeGone));
}

#[tokio::test]
async fn a_page_is_cut_at_four_megabytes() {
    let documents = Documents::new(BY_PK).await;
    for n in 0..5 {
        let body = format!(r#"{{"id":"{n}","pk":"x","text":"{}"}}"#, "t".repeat(1_500_000));
        documents.must(X, create(&body)).await;
    }
    let mut page = Page::default();
    let mut counts = Vec::new();
    loop {
        let feed = documents.db.read_feed(&documents.container, &Scope::default(), &page, None);
        let feed = feed.unwrap();
        counts.push(feed.rows.len());
        page.continuation = feed.continuation;
        if page.continuation.is_none() {
            break;
        }
    }
    assert_eq!(counts, [2, 2, 1]);
}

#[tokio::test]
async fn a_feed_goes_on_although_its_last_document_is_gone() {
    let documents = Documents::new(BY_PK).await;
    for id in ["a", "c", "e", "g"] {
        documents.must(X, create(&format!(r#"{{"id":"{id}","pk":"x"}}"#))).await;
    }
    let (db, container) = (&documents.db, &documents.container);
    let page = Page { items_max: Some(2), continuation: None, ..Page::default() };
    let first = db.read_feed(container, &Scope::default(), &page, None).unwrap();
    assert_eq!(first.rows.len(), 2);
    documents.must(X, delete("c")).await;
    for id in ["b", "d"] {
        documents.must(X, create(&format!(r#"{{"id":"{id}","pk":"x"}}"#))).await;
    }
    let page = Page { items_max: None, continuation: first.continuation, ..Page::default() };
    let rest = db.read_feed(container, &Scope::default(), &page, None).unwrap();
    let ids: Vec<_> = rest
        .rows
        .iter()
        .map(|row| Value::parse(row).unwrap().get("id").unwrap().as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids, ["e", "g", "b", "d"], "what comes later in order, as it is now");
}

#[tokio::test]
async fn continuations_of_others_are_refused() {
    let documents = Documents::new(BY_PK).await;
    let (db, container) = (&documents.db, &documents.container);
    for id in ["a", "b", "c"] {
        documents.must(X, create(&format!(r#"{{"id":"{id}","pk":"x"}}"#))).await;
    }
    let page = Page { items_max: Some(1), continuation: None, ..Page::default() };
    let token =
        db.read_feed(container, &Scope::default(), &page, None).unwrap().continuation.unwrap();
    let refused = |container, token: &str| {
        let page =
            Page { items_max: None, continuation: Some(token.to_owned()), ..Page::default() };
        let result = db.read_feed(container, &Scope::default(), &page, None);
        result.err().map(|failure| failure.error.kind)
    };
    assert_eq!(refused(container, &token), None);
    for at in 0..token.len() {
        let mut bytes = token.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let tampered = String::from_utf8(bytes).unwrap();
        assert_eq!(refused(container, &tampered), Some(Kind::BadRequest), "{at}");
        assert_eq!(refused(container, &token[..at]), Some(Kind::BadRequest), "{at}");
    }
    for text in ["", "1", "null", "{}", "ÿ", &"A".repeat(100_000)] {
        assert_eq!(refused(container, text), Some(Kind::BadRequest));
    }
    let other = support::create_container(db, "other", BY_PK, None).await;
    assert_eq!(refused(&other, &token), Some(Kind::BadRequest));
    // A query has its own tokens.
    let query = db::QueryText { text: "SELECT * FROM c".to_owned(), ..Default::default() };
    let page = Page { items_max: Some(1), continuation: Some(token), ..Page::default() };
    let everything = Scope { cross_partition: true, ..Scope::default() };
    let refused_by_query = db.query(container, &query, &everything, &page, None);
    assert_eq!(refused_by_query.err().map(|f| f.error.kind), Some(Kind::BadRequest));
    let page = Page { items_max: Some(1), continuation: None, ..Page::default() };
    let of_query = db.query(container, &query, &everything, &page, None).unwrap();
    let token = of_query.continuation.unwrap();
    assert_eq!(refused(container, &token), Some(Kind::BadRequest));
    // The container of the same name that comes after is another one.
    db.delete_container("d", "c", None).await.unwrap();
    let again = support::container(db, BY_PK).await;
    assert_eq!(refused(&again, &token), Some(Kind::BadRequest));
}

#[tokio::test]
async fn reads_and_writes_of_a_container_that_is_gone_find_nothing() {
    let documents = Documents::new(BY_PK).await;
    documents.must(X, create(r#"{"id":"a","pk":"x"}"#)).await;
    documents.db.delete_container("d", "c", None).await.unwrap();
    support::container(&documents.db, BY_PK).await;
    assert_eq!(status(&documents.read(X, "a")), (404, 0));
    let written = documents.write(X, upsert(r#"{"id":"a","pk":"x"}"#)).await;
    assert_eq!(status(&written), (404, 0));
    let page =
        documents.db.read_feed(&documents.container, &Scope::default(), &Page::default(), None);
    assert_eq!(page.err().map(|failure| failure.error.kind), Some(Kind::NotFound));
}

#[tokio::test]
async fn a_read_in_a_batch_honours_its_conditions() {
    let documents = Documents::new(BY_PK).await;
    let written = documents.must(r#"["a"]"#, create(r#"{"id":"1","pk":"a"}"#)).await;
    let etag = written.etag.expect("a write has an etag");
    for (conditions, expected) in
        [(if_match(&etag), 200), (if_match("\"other\""), 412), (if_none_match(&etag), 304)]
    {
        let operation = BatchOperation { key: None, write: read("1"), conditions };
        let key = key(r#"["a"]"#);
        let batch = documents.db.batch(&documents.container, &key, vec![operation], None).await;
        assert_eq!(statuses(&batch.unwrap()), [expected]);
    }
}
