//! Procedures, triggers and functions over the wire.

use std::sync::Arc;

use gateway::{EMULATOR_KEY, Key};
use value::{Object, Value};

use crate::support::{DATE, Reply, Server, config, sign, start, start_with, test_token};

const C: &str = "/dbs/d/colls/c";
const DOCS: &str = "/dbs/d/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"a\"]");

/// Creates a script; `members` go into its definition beside id and body.
async fn script(server: &Server, kind: &str, id: &str, source: &str, members: &[(&str, &str)]) {
    let mut body = Object::from([("id", Value::from(id)), ("body", Value::from(source))]);
    for (name, text) in members {
        body.insert(*name, *text);
    }
    let body = Value::from(body).to_text();
    server.post(&format!("{C}/{kind}"), &[], &body).await.expect(201);
}

async fn call(server: &Server, id: &str, parameters: &str) -> Reply {
    server.post(&format!("{C}/sprocs/{id}"), &[KEY], parameters).await
}

async fn called(server: &Server, id: &str, parameters: &str) -> String {
    let reply = call(server, id, parameters).await.expect(200);
    assert!(!reply.header("x-ms-session-token").is_empty());
    assert!(reply.header("x-ms-request-charge").parse::<f64>().unwrap() >= 1.0);
    String::from_utf8(reply.body.to_vec()).unwrap()
}

#[tokio::test]
async fn scripts_are_resources() {
    let server = start().await.with_container().await;
    for (kind, plural, more) in [
        ("sprocs", "StoredProcedures", ""),
        ("triggers", "Triggers", r#","triggerType":"Pre","triggerOperation":"All""#),
        ("udfs", "UserDefinedFunctions", ""),
    ] {
        let feed = format!("{C}/{kind}");
        let one = format!("{feed}/s");
        // The source is not looked at before it runs.
        let body = format!(r#"{{"id":"s","body":"serverScript() {{}}"{more}}}"#);
        let created = server.post(&feed, &[], &body).await.expect(201);
        assert_eq!(created.text("body"), "serverScript() {}");
        let self_link = created.text("_self");
        assert!(self_link.contains(&format!("/{kind}/")), "{self_link}");
        assert_eq!(created.header("etag"), created.text("_etag"));
        server.post(&feed, &[], &body).await.expect_error(409, 0, "already exists");
        let read = server.get(&one, &[]).await.expect(200);
        assert_eq!(read.body, created.body);
        let by_rid = server.get(&format!("{feed}/{}", created.text("_rid")), &[]).await.expect(200);
        assert_eq!(by_rid.body, created.body);
        let known = ("if-none-match", created.header("etag"));
        server.get(&one, &[known]).await.expect(304);
        let changed = body.replace("serverScript", "function other");
        let wrong = ("if-match", "\"other\"");
        server.send("PUT", &one, &[wrong], changed.clone()).await.expect_error(412, 0, "condition");
        let right = ("if-match", created.header("etag"));
        let replaced = server.send("PUT", &one, &[right], changed).await.expect(200);
        assert_eq!(replaced.text("_rid"), created.text("_rid"));
        assert_ne!(replaced.header("etag"), created.header("etag"));
        let renamed = body.replace("\"id\":\"s\"", "\"id\":\"t\"");
        server.send("PUT", &one, &[], renamed).await.expect(200);
        server.get(&one, &[]).await.expect(404);
        let upsert = ("x-ms-documentdb-is-upsert", "true");
        server.post(&feed, &[upsert], &body).await.expect(201);
        server.post(&feed, &[upsert], &body).await.expect(200);
        let list = server.get(&feed, &[]).await.expect(200);
        assert_eq!(list.json().get(plural).unwrap().as_array().unwrap().len(), 2);
        let query = ("x-ms-documentdb-isquery", "true");
        let text = r#"{"query":"SELECT * FROM root r WHERE r.id = 't'"}"#;
        let found = server.post(&feed, &[query], text).await.expect(200);
        assert_eq!(found.json().get(plural).unwrap().as_array().unwrap().len(), 1);
        server.send("DELETE", &one, &[], "").await.expect(204);
        server.send("DELETE", &one, &[], "").await.expect(404);
        for (body, part) in [
            ("{}", "'id; '"),
            (r#"{"id":"x"}"#, "'body; "),
            (&format!(r#"{{"id":"x","body":""{more}}}"#), "while compiling Javascript"),
            (&format!(r#"{{"id":"x","body":7{more}}}"#), "must be its text"),
            (&format!(r#"{{"id":"a/b","body":"x"{more}}}"#), "must not contain"),
        ] {
            server.post(&feed, &[], body).await.expect_error(400, 0, part);
        }
    }
    let triggers = format!("{C}/triggers");
    for (body, part) in [
        (r#"{"id":"x"}"#, "'body; triggerType; triggerOperation; '"),
        (r#"{"id":"x","body":"f","triggerType":"Pre"}"#, "'triggerOperation; '"),
        (r#"{"id":"x","body":"f","triggerType":"Mid","triggerOperation":"All"}"#, "one of Pre"),
        (r#"{"id":"x","body":"f","triggerType":"pre","triggerOperation":"x"}"#, "one of All"),
    ] {
        server.post(&triggers, &[], body).await.expect_error(400, 0, part);
    }
    server.post("/dbs/d/colls/none/sprocs", &[], "{}").await.expect_error(404, 1003, "");
    server.post(&format!("{C}/triggers/x"), &[], "").await.expect(405);
}

#[tokio::test]
async fn procedures_answer_what_they_set() {
    let server = start().await.with_container().await;
    for (id, source) in [
        ("nothing", "function () {}"),
        ("undefined", "function () { getContext().getResponse().setBody(undefined); }"),
        ("one", "function (one) { getContext().getResponse().setBody(one); }"),
        ("arrow", "(input) => { const text = `a${input.temp}`; __.response.setBody(text); }"),
        ("count", "function () { __.response.setBody(arguments.length); }"),
        ("fail", "function () { throw new Error(1234, 'my message'); }"),
        ("broken", "function () {"),
    ] {
        script(&server, "sprocs", id, source, &[]).await;
    }
    for (id, parameters, expected) in [
        ("nothing", "", ""),
        ("undefined", "[]", ""),
        ("one", r#"["one"]"#, r#""one""#),
        ("one", "[null]", "null"),
        ("one", r#"[{"a":[1,2.50]}]"#, r#"{"a":[1,2.5]}"#),
        ("one", "[7]", "7"),
        ("arrow", r#"[{"temp":"so"}]"#, r#""aso""#),
        ("count", "", "0"),
        ("count", "null", "0"),
        ("count", "{}", "0"),
        ("count", r#"{"0":1,"1":2,"length":2}"#, "2"),
        ("count", "[1,2,3]", "3"),
        ("__.sys.echo", r#"["hello"]"#, r#""hello""#),
    ] {
        assert_eq!(called(&server, id, parameters).await, expected, "{id} {parameters}");
    }
    call(&server, "none", "[]").await.expect_error(404, 0, "Not Found");
    call(&server, "one", "7").await.expect_error(400, 0, "array");
    call(&server, "one", "[").await.expect_error(400, 0, "JSON");
    call(&server, "fail", "").await.expect_error(400, 1234, "my message");
    call(&server, "broken", "").await.expect_error(400, 65535, "compiling");
    server.post(&format!("{C}/sprocs/one"), &[], "[]").await.expect_error(400, 0, "PartitionKey");
    let trigger = ("x-ms-documentdb-pre-trigger-include", "t");
    let path = format!("{C}/sprocs/one");
    let refused = server.post(&path, &[KEY, trigger], "[]").await;
    refused.expect_error(400, 0, "One of the specified inputs is invalid");
    let ahead = ("x-ms-session-token", "0:-1#999");
    server.post(&path, &[KEY, ahead], "[]").await.expect_error(404, 1002, "session");
}

#[tokio::test]
async fn logs_come_back_encoded_when_asked_for() {
    let server = start().await.with_container().await;
    let source = "function () {
        console.log('The value of %s is %s.', 'mytext', 1);
        console.log('ä\\n');
        __.response.setBody(__.request.getValue('x-ms-documentdb-script-enable-logging'));
    }";
    script(&server, "sprocs", "log", source, &[]).await;
    let ask = |logging: &'static str| {
        let server = &server;
        async move {
            let header = ("x-ms-documentdb-script-enable-logging", logging);
            server.post(&format!("{C}/sprocs/log"), &[KEY, header], "").await.expect(200)
        }
    };
    let log = "x-ms-documentdb-script-log-results";
    assert!(!ask("false").await.headers.contains_key(log));
    let reply = ask("True").await;
    assert_eq!(reply.header(log), "The%20value%20of%20mytext%20is%201.%C3%A4%0A");
    assert_eq!(&reply.body[..], b"\"True\"");
    assert!(!ask("false").await.headers.contains_key(log));
}

#[tokio::test]
async fn whoever_may_not_write_may_not_execute() {
    const OTHER_KEY: &str = "b3RoZXIga2V5IG90aGVyIGtleSBvdGhlciBrZXkgb3RoZXIga2V5IG90aGVyIGtleQ==";
    let mut config = config();
    config.keys.secondary_read_only = Some(Key::parse(OTHER_KEY).unwrap());
    config.accept_test_tokens = true;
    let server = start_with(config).await.with_container().await;
    script(&server, "sprocs", "p", "function () {}", &[]).await;
    let path = format!("{C}/sprocs/p");
    let reader = sign(OTHER_KEY, "POST", &path, DATE);
    let reader = [("authorization", reader.as_str()), ("x-ms-date", DATE)];
    server.send_as(&reader, "POST", &path, &[KEY], "").await.expect(403);
    let directory = test_token(EMULATOR_KEY);
    let directory = [("authorization", directory.as_str()), ("x-ms-date", DATE)];
    server.send_as(&directory, "POST", &path, &[KEY], "").await.expect(200);
    let feed = format!("{C}/sprocs");
    server.send_as(&directory, "GET", &feed, &[], "").await.expect(200);
    let refused = server.send_as(&directory, "POST", &feed, &[], r#"{"id":"q","body":"f"}"#).await;
    refused.expect_error(403, 5300, "cannot be authorized by AAD");
    server.post("/dbs/d/users", &[], r#"{"id":"u"}"#).await.expect(201);
    for (mode, status) in [("Read", 403), ("All", 200)] {
        let permission = format!(
            r#"{{"id":"{mode}","permissionMode":"{mode}","resource":"dbs/d/colls/c",
                "resourcePartitionKey":["{}"]}}"#,
            if mode == "Read" { "b" } else { "a" }
        );
        let permission = server.post("/dbs/d/users/u/permissions", &[], &permission).await;
        let token = permission.expect(201).text("_token").replace('=', "%3d");
        let bearer = [("authorization", token.as_str()), ("x-ms-date", DATE)];
        server.send_as(&bearer, "POST", &path, &[KEY], "").await.expect(status);
        let other = ("x-ms-documentdb-partitionkey", "[\"z\"]");
        server.send_as(&bearer, "POST", &path, &[other], "").await.expect(403);
    }
}

const PRE: &str = "x-ms-documentdb-pre-trigger-include";
const POST: &str = "x-ms-documentdb-post-trigger-include";

#[tokio::test]
async fn triggers_run_when_they_are_named() {
    let server = start().await.with_container().await;
    let upper = "function () {
        const request = getContext().getRequest(), body = request.getBody();
        body.id = body.id.toUpperCase() + 't1';
        request.setBody(body);
    }";
    let check = "function () {
        const context = getContext();
        const written = context.getResponse().getBody(), sent = context.getRequest().getBody();
        if (written.id !== sent.id) throw 'ids differ';
        written.told = true;
        context.getResponse().setBody(written);
    }";
    let all = [("triggerType", "Pre"), ("triggerOperation", "All")];
    script(&server, "triggers", "upper", upper, &all).await;
    let all = [("triggerType", "Post"), ("triggerOperation", "All")];
    script(&server, "triggers", "check", check, &all).await;
    let delete = [("triggerType", "Post"), ("triggerOperation", "Delete")];
    script(&server, "triggers", "deleted", "function () {}", &delete).await;
    let body = r#"{"id":"one","pk":"a"}"#;
    let headers = [KEY, (PRE, "upper"), (POST, "check")];
    let created = server.post(DOCS, &headers, body).await.expect(201);
    assert_eq!(created.text("id"), "ONEt1");
    assert_eq!(created.json().get("told"), Some(&Value::from(true)));
    let read = server.get(&format!("{DOCS}/ONEt1"), &[KEY]).await.expect(200);
    assert_eq!(read.header("etag"), created.header("etag"));
    assert_eq!(read.json().get("told"), None, "what is answered is not what is stored");
    // Nothing runs that is not named; the names of another case are other names.
    server.post(DOCS, &[KEY], body).await.expect(201);
    for (name, value, part) in [
        (POST, "deleted", "is invalid for 'Create'"),
        (PRE, "check", "invalid as 'Pre'"),
        (PRE, "none", "One of the specified inputs is invalid"),
        (PRE, "upper,upper", "more than one trigger"),
    ] {
        let two = r#"{"id":"two","pk":"a"}"#;
        server.post(DOCS, &[KEY, (name, value)], two).await.expect_error(400, 0, part);
    }
    assert_eq!(server.documents(), 2);
    let one = format!("{DOCS}/one");
    server.send("DELETE", &one, &[KEY, (POST, "deleted")], "").await.expect(204);
    let minimal = ("prefer", "return=minimal");
    let quiet = server.post(DOCS, &[KEY, (POST, "check"), minimal], body).await.expect(201);
    assert!(quiet.body.is_empty());
    // Reads do not care, other writes do.
    server.get(&one, &[KEY, (PRE, "none")]).await.expect(200);
    let patch = r#"[{"op":"set","path":"/n","value":1}]"#;
    let refused = server.send("PATCH", &one, &[KEY, (PRE, "upper")], patch).await;
    refused.expect_error(400, 0, "not with this operation");
    let refused = server.send("DELETE", C, &[(PRE, "upper")], "").await;
    refused.expect_error(400, 0, "One of the specified inputs is invalid");
}

#[tokio::test]
async fn functions_are_called_by_queries() {
    let server = start().await.with_container().await;
    let tax = "function (income) {
        if (income === undefined) throw 'no income';
        return income < 1000 ? income * 0.1 : income * 0.2;
    }";
    script(&server, "udfs", "tax", tax, &[]).await;
    for n in [100, 1000] {
        let body = format!(r#"{{"id":"{n}","pk":"a","income":{n}}}"#);
        server.post(DOCS, &[KEY], &body).await.expect(201);
    }
    let query = ("x-ms-documentdb-isquery", "true");
    let ask = |text: &str| {
        let body = Value::from(Object::from([("query", Value::from(text))])).to_text();
        let server = &server;
        async move { server.post(DOCS, &[KEY, query], &body).await }
    };
    let text = "SELECT VALUE udf.tax(c.income) FROM c WHERE udf.tax(c.income) > 100";
    let found = ask(text).await.expect(200);
    assert_eq!(found.json().get("Documents").unwrap().to_text(), "[200]");
    ask("SELECT udf.tax(c.none) FROM c").await.expect_error(400, 0, "no income");
    ask("SELECT udf.other(1) FROM c").await.expect_error(400, 0, "'other' could not be found");
    let plan = [
        ("x-ms-cosmos-is-query-plan-request", "True"),
        ("x-ms-cosmos-supported-query-features", "Aggregate"),
    ];
    let text = r#"{"query":"SELECT udf.tax(c.income) AS t FROM c"}"#;
    server.post(DOCS, &plan, text).await.expect(200);
}

// ---- the article's transaction: books and their authors ----

/// Publishes a book and raises the author's count.
const PUBLISH: &str = "function (book, failAt) {
    const context = getContext(), container = context.getCollection();
    const author = container.getAltLink() + '/docs/' + book.author;
    container.readDocument(author, (error, found) => {
        if (error) throw new Error(4040, 'there is no author ' + book.author);
        container.createDocument(container.getSelfLink(), book, (error, created) => {
            if (error) throw error;
            if (failAt === 'created') throw new Error(5001, 'failed after the book');
            found.countOfBooks += 1;
            container.replaceDocument(found._self, found, {etag: found._etag}, (error) => {
                if (error) throw error;
                if (failAt === 'counted') context.abort(new Error(5002, 'failed after the count'));
                context.getResponse().setBody(created);
            });
        });
    });
}";

/// Refuses a book whose author does not exist.
const HAS_AUTHOR: &str = "function () {
    const context = getContext(), container = context.getCollection();
    const book = context.getRequest().getBody();
    const accepted = container.readDocument(container.getAltLink() + '/docs/' + book.author,
        (error) => {
            if (error) throw new Error(4040, 'there is no author ' + book.author);
        });
    if (!accepted) throw new Error('busy');
}";

/// Keeps the author's count.
const COUNTS: &str = "function () {
    const context = getContext(), container = context.getCollection();
    const book = context.getResponse().getBody();
    container.readDocument(container.getAltLink() + '/docs/' + book.author, (error, author) => {
        if (error) throw error;
        author.countOfBooks += 1;
        container.replaceDocument(author._self, author, (error) => {
            if (error) throw error;
            if (book.fails) throw new Error(5003, 'failed after the count');
        });
    });
}";

async fn library() -> Server {
    let server = start().await.with_container().await;
    script(&server, "sprocs", "publish", PUBLISH, &[]).await;
    let pre = [("triggerType", "Pre"), ("triggerOperation", "Create")];
    script(&server, "triggers", "hasAuthor", HAS_AUTHOR, &pre).await;
    let post = [("triggerType", "Post"), ("triggerOperation", "Create")];
    script(&server, "triggers", "counts", COUNTS, &post).await;
    let author = r#"{"id":"author","pk":"a","countOfBooks":0}"#;
    server.post(DOCS, &[KEY], author).await.expect(201);
    server
}

/// Everything that a client can see of the partition: documents, what a query finds, how far the range
/// has come, and what its change feed gives and where that ends.
async fn seen(server: &Server) -> (Vec<u8>, String, String, [String; 2]) {
    let list = server.get(DOCS, &[KEY]).await.expect(200);
    let query = ("x-ms-documentdb-isquery", "true");
    let text = r#"{"query":"SELECT VALUE c.countOfBooks FROM c WHERE c.id = 'author'"}"#;
    let found = server.post(DOCS, &[KEY, query], text).await.expect(200);
    let count = found.json().get("Documents").unwrap().to_text();
    let changes = server.get(DOCS, &[KEY, ("a-im", "Incremental Feed")]).await.expect(200);
    let changes = [changes.json().to_text(), changes.header("etag").to_owned()];
    (list.body.to_vec(), count, list.header("lsn").to_owned(), changes)
}

#[tokio::test]
async fn a_book_and_its_count_are_one_transaction() {
    let server = library().await;
    let both = [KEY, (PRE, "hasAuthor"), (POST, "counts")];
    let before = seen(&server).await;
    for (parameters, status) in [
        (r#"[{"id":"b1","pk":"a","author":"author"},"created"]"#, 5001),
        (r#"[{"id":"b1","pk":"a","author":"author"},"counted"]"#, 5002),
        (r#"[{"id":"b1","pk":"a","author":"nobody"}]"#, 4040),
        (r#"[{"id":"author","pk":"a","author":"author"}]"#, 409),
        (r#"[{"id":"b1","pk":"other","author":"author"}]"#, 400),
    ] {
        call(&server, "publish", parameters).await.expect_error(400, status, "");
        assert_eq!(seen(&server).await, before, "{parameters}");
    }
    for (book, status) in [
        (r#"{"id":"b1","pk":"a","author":"nobody"}"#, 4040),
        (r#"{"id":"b1","pk":"a","author":"author","fails":true}"#, 5003),
    ] {
        server.post(DOCS, &both, book).await.expect_error(400, status, "");
        assert_eq!(seen(&server).await, before, "{book}");
    }
    server.get(&format!("{DOCS}/b1"), &[KEY]).await.expect(404);
    let book = call(&server, "publish", r#"[{"id":"b1","pk":"a","author":"author"}]"#).await;
    let book = book.expect(200);
    assert_eq!(server.get(&format!("{DOCS}/b1"), &[KEY]).await.expect(200).body, book.body);
    server.post(DOCS, &both, r#"{"id":"b2","pk":"a","author":"author"}"#).await.expect(201);
    let (_, count, lsn, [changes, _]) = seen(&server).await;
    assert_eq!(count, "[2]");
    // The book and the author's count came by the same commit, and the feed gives them side by side.
    let changes = Value::parse(changes.as_bytes()).unwrap();
    let changes = changes.get("Documents").and_then(Value::as_array).unwrap().to_vec();
    let told = |change: &Value| (change.get("id").cloned(), change.get("_lsn").cloned());
    let [book, author] = &changes[changes.len() - 2..] else { panic!("{changes:?}") };
    assert_eq!(told(book).1, told(author).1);
    let ids = [told(book).0, told(author).0];
    assert!(ids.contains(&Some("b2".into())) && ids.contains(&Some("author".into())), "{ids:?}");
    assert_eq!(lsn.parse::<u64>().unwrap(), before.2.parse::<u64>().unwrap() + 2);
    assert!(server.db.verify(|_| {}).unwrap().problems.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_that_publish_at_once_end_with_exact_counts() {
    let server = Arc::new(library().await);
    let clients: Vec<_> = (0..16)
        .map(|client| {
            let server = server.clone();
            tokio::spawn(async move {
                for round in 0..5 {
                    let book = format!(r#"{{"id":"{client}-{round}","pk":"a","author":"author"}}"#);
                    if client % 2 == 0 {
                        call(&server, "publish", &format!("[{book}]")).await.expect(200);
                    } else {
                        let both = [KEY, (PRE, "hasAuthor"), (POST, "counts")];
                        server.post(DOCS, &both, &book).await.expect(201);
                    }
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let (_, count, ..) = seen(&server).await;
    assert_eq!(count, "[80]");
    assert_eq!(server.documents(), 81);
    assert!(server.db.verify(|_| {}).unwrap().problems.is_empty());
}
