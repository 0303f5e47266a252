//! Procedures, triggers and functions: whole transactions or nothing, whoever else writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use db::{
    Call, Called, Clock, Conditions, Container, CountingIds, Db, Failure, Page, QueryText, Scope,
    Triggered, Triggers, Write,
};
use storage::{Embedded, RangeStore};
use value::{Object, ScriptKind, Value};

use crate::support::{
    self, BY_PK, Documents, START_S, Status, by_id, by_pk_with, create, create_container, delete,
    feed, if_match, json, key, patch_by, replace, upsert, verify,
};

const X: &str = r#"["x"]"#;

async fn script<S: RangeStore>(
    documents: &mut Documents<S>,
    kind: ScriptKind,
    definition: &[(&str, &str)],
) {
    let definition: Object =
        definition.iter().map(|(name, text)| ((*name).to_owned(), Value::from(*text))).collect();
    documents.db.create_script(&documents.container, kind, &definition).await.unwrap();
    documents.container = documents.db.container("d", "c").unwrap();
}

async fn procedure<S: RangeStore>(documents: &mut Documents<S>, id: &str, source: &str) {
    script(documents, ScriptKind::Procedure, &[("id", id), ("body", source)]).await;
}

async fn trigger<S: RangeStore>(
    documents: &mut Documents<S>,
    id: &str,
    kind: &str,
    operation: &str,
    source: &str,
) {
    let definition =
        [("id", id), ("body", source), ("triggerType", kind), ("triggerOperation", operation)];
    script(documents, ScriptKind::Trigger, &definition).await;
}

fn call(id: &str, parameters: &str) -> Call {
    Call {
        procedure: id.to_owned(),
        parameters: parameters.to_owned(),
        headers: Vec::new(),
        is_logging: false,
    }
}

impl<S: RangeStore> Documents<S> {
    async fn call(&self, at: &str, id: &str, parameters: &str) -> Result<Called, Failure> {
        self.db.execute(&self.container, Some(&key(at)), call(id, parameters), None).await
    }

    async fn called(&self, at: &str, id: &str, parameters: &str) -> Called {
        let called = self.call(at, id, parameters).await;
        called.unwrap_or_else(|failure| panic!("{id}{parameters}: {failure:?}"))
    }

    async fn trigger(
        &self,
        at: &str,
        write: Write,
        pre: Option<&str>,
        post: Option<&str>,
    ) -> Result<Triggered, Failure> {
        let triggers = Triggers {
            pre: pre.map(str::to_owned),
            post: post.map(str::to_owned),
            headers: Vec::new(),
        };
        let conditions = Conditions::default();
        let key = key(at);
        self.db.write_with_triggers(&self.container, Some(&key), write, conditions, triggers).await
    }

    fn lsn(&self) -> u64 {
        let scope = Scope { cross_partition: true, ..Scope::default() };
        let page = self.db.read_feed(&self.container, &scope, &Page::default(), None).unwrap();
        page.at.iter().map(|at| at.lsn).sum()
    }

    fn query(&self, text: &str) -> Vec<String> {
        let query = QueryText { text: text.to_owned(), ..QueryText::default() };
        let scope = Scope { cross_partition: true, ..Scope::default() };
        let page = Page { insist_on_indexes: true, ..Page::default() };
        self.answers(&query, &scope, &page)
    }

    fn query_at(&self, at: &str, text: &str) -> Vec<String> {
        let query = QueryText { text: text.to_owned(), ..QueryText::default() };
        let scope = Scope { key: Some(key(at)), ..Scope::default() };
        self.answers(&query, &scope, &Page { items_max: Some(1_000), ..Page::default() })
    }

    fn answers(&self, query: &QueryText, scope: &Scope, page: &Page) -> Vec<String> {
        let rows = self.db.query(&self.container, query, scope, page, None);
        let rows = rows.unwrap_or_else(|failure| panic!("{}: {failure:?}", query.text)).rows;
        rows.iter().map(|row| String::from_utf8(row.to_vec()).unwrap()).collect()
    }
}

fn refused<T>(result: Result<T, Failure>) -> (Status, String) {
    let error = result.err().expect("the request is refused").error;
    ((error.kind.status(), error.substatus()), error.message)
}

/// Creates each of the documents, then answers them.
const CREATE_ALL: &str = "function (bodies) {
    const container = getContext().getCollection();
    const created = [];
    for (const body of bodies) {
        container.createDocument(container.getSelfLink(), body, (error, document) => {
            if (error) throw error;
            created.push(document);
            getContext().getResponse().setBody(created);
        });
    }
}";

#[tokio::test]
async fn what_a_procedure_is_shown_is_what_is_stored() {
    let mut documents = Documents::with_ranges(BY_PK, 3).await;
    procedure(&mut documents, "create", CREATE_ALL).await;
    // The clock of the range is ahead of ours.
    documents.advance_s(100);
    let first = documents.must(X, create(r#"{"id":"first","pk":"x"}"#)).await;
    let (before, all_before) = (first.at.lsn, documents.lsn());
    let bodies =
        r#"[[{"id":"a","pk":"x","n":1.50,"deep":{"b":[1]}},{"id":"b","pk":"x"},{"pk":"x"}]]"#;
    let called = documents.called(X, "create", bodies).await;
    assert_eq!(documents.lsn(), all_before + 1, "one commit");
    assert_eq!(called.at.lsn, before + 1);
    let answer = json(&called.body.unwrap());
    let answer = answer.as_array().unwrap();
    assert_eq!(answer.len(), 3);
    let mut rids = Vec::new();
    for document in answer {
        let text = |name: &str| document.get(name).unwrap().as_str().unwrap().to_owned();
        let read = documents.read(X, &text("id")).unwrap();
        assert_eq!(Value::parse(&read.document.unwrap().text()).unwrap(), *document);
        assert_eq!(read.etag.unwrap(), text("_etag"));
        assert_eq!(read.at.document_lsn, Some(before + 1));
        // The etag that the script saw is good for the next write.
        let change = patch_by(&text("id"), r#"[{"op":"set","path":"/changed","value":1}]"#);
        let changed = documents.write_if(X, change, if_match(&text("_etag"))).await.unwrap();
        assert_ne!(changed.etag.unwrap(), text("_etag"));
        rids.push(text("_rid"));
    }
    rids.sort();
    rids.dedup();
    assert_eq!(rids.len(), 3);
    let found = documents.query("SELECT VALUE c.id FROM c WHERE c.n = 1.5 AND c.deep.b[0] = 1");
    assert_eq!(found, [r#""a""#]);
    documents.verify();
}

#[tokio::test]
async fn a_text_that_a_procedure_returns_is_the_text_that_is_read() {
    let mut documents = Documents::new(BY_PK).await;
    let source = "function (body) {
        const container = __;
        container.createDocument(container.getSelfLink(), body, (error, created) => {
            container.readDocument(created._self, (error, read) => {
                container.replaceDocument(read._self, Object.assign(read, {n: 2}), (error, last) => {
                    container.response.setBody(last);
                });
            });
        });
    }";
    procedure(&mut documents, "p", source).await;
    let called = documents.called(X, "p", r#"[{"id":"a","pk":"x","n":1}]"#).await;
    let read = documents.read(X, "a").unwrap().document.unwrap();
    assert_eq!(called.body.unwrap().as_bytes(), &read.text()[..]);
    documents.verify();
}

#[tokio::test]
async fn a_failure_leaves_nothing() {
    let mut documents =
        Documents::new(&by_pk_with(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#)).await;
    let source = "function (how) {
        const c = getContext().getCollection(), link = c.getSelfLink();
        c.createDocument(link, {id: 'a', pk: 'x', u: 1}, () => {
            c.createDocument(link, {id: 'b', pk: 'x', u: 2}, () => {
                c.deleteDocument(c.getAltLink() + '/docs/old', (error) => {
                    if (how === 'throw') throw new Error(1234, 'no');
                    if (how === 'abort') getContext().abort(new Error('no'));
                    c.createDocument(link, {id: 'c', pk: 'x', u: 2});
                });
            });
        });
    }";
    procedure(&mut documents, "p", source).await;
    documents.must(X, create(r#"{"id":"old","pk":"x","u":9}"#)).await;
    for (how, expected, part) in [
        ("throw", (400, 1234), "no"),
        ("abort", (400, 0), "no"),
        ("conflict", (400, 409), "Unique index constraint violation."),
    ] {
        let before = documents.lsn();
        let (status, message) = refused(documents.call(X, "p", &format!("[\"{how}\"]")).await);
        assert_eq!(status, expected, "{how}: {message}");
        assert!(message.contains(part), "{how}: {message}");
        assert_eq!(documents.lsn(), before, "{how}");
        assert_eq!(documents.ids(&Scope { key: Some(key(X)), ..Scope::default() }), ["old"]);
        assert_eq!(documents.query("SELECT VALUE c.u FROM c WHERE c.u > 0"), ["9"]);
        // The unique key is free.
        documents.must(X, upsert(r#"{"id":"probe","pk":"x","u":1}"#)).await;
        documents.must(X, delete("probe")).await;
        documents.verify();
    }
}

#[tokio::test]
async fn a_script_that_never_ends_is_ended() {
    let mut documents = Documents::new(BY_PK).await;
    procedure(&mut documents, "loop", "function () { for (;;); }").await;
    let clock = documents.clock.clone();
    let advance = async move {
        tokio::task::yield_now().await;
        clock.advance_ms(5_000);
    };
    let (called, ()) = tokio::join!(documents.call(X, "loop", ""), advance);
    let (status, message) = refused(called);
    assert_eq!(status, (408, 0), "{message}");
    assert!(message.contains("exceeded maximum alloted time"), "{message}");
}

#[tokio::test]
async fn a_refused_write_leaves_nothing_to_a_script_that_goes_on() {
    let mut documents =
        Documents::new(&by_pk_with(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#)).await;
    // The replace gives up the value 1 before it finds that 2 is taken.
    let source = "function () {
        const c = __, link = c.getSelfLink(), told = [];
        const tell = (error) => told.push(error ? error.number : 'ok');
        c.replaceDocument(c.getAltLink() + '/docs/a', {id: 'a', pk: 'x', u: 2}, tell);
        c.createDocument(link, {id: 'c', pk: 'x', u: 1}, tell);
        c.createDocument(link, {id: 'd', pk: 'y', u: 3}, tell);
        c.createDocument(link, {id: 'a', pk: 'x', u: 3}, tell);
        c.deleteDocument(c.getAltLink() + '/docs/none', tell);
        c.replaceDocument(c.getAltLink() + '/docs/b', {id: 'b', pk: 'x', u: 4}, {etag: 'no'}, tell);
        c.createDocument(link, {id: 'e', pk: 'x', u: 5}, (error) => {
            tell(error);
            c.response.setBody(told);
        });
    }";
    procedure(&mut documents, "p", source).await;
    documents.must(X, create(r#"{"id":"a","pk":"x","u":1}"#)).await;
    documents.must(X, create(r#"{"id":"b","pk":"x","u":2}"#)).await;
    let called = documents.called(X, "p", "").await;
    assert_eq!(called.body.unwrap(), r#"[409,409,400,409,404,412,"ok"]"#);
    assert_eq!(documents.query("SELECT VALUE c.u FROM c ORDER BY c.u"), ["1", "2", "5"]);
    documents.verify();
}

#[tokio::test]
async fn numbers_go_on_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let clock = support::clock();
    let mut seen: Vec<(String, String)> = Vec::new();
    for round in 0..3 {
        let db = support::open(support::embedded(directory.path()), &clock).await;
        let container = match round {
            0 => support::container(&db, BY_PK).await,
            _ => db.container("d", "c").unwrap(),
        };
        let mut documents = Documents { db, clock: clock.clone(), container };
        if round == 0 {
            procedure(&mut documents, "create", CREATE_ALL).await;
        }
        let bodies = r#"[[{"pk":"x"},{"pk":"x"},{"id":"same","pk":"x"}]]"#;
        let called = documents.called(X, "create", bodies).await;
        for document in json(&called.body.unwrap()).as_array().unwrap() {
            let text = |name: &str| document.get(name).unwrap().as_str().unwrap().to_owned();
            seen.push((text("_rid"), text("_etag")));
        }
        // What is deleted is not there to be counted on after a restart.
        documents.must(X, delete("same")).await;
        documents.verify();
        documents.db.close().await.unwrap();
    }
    let mut rids: Vec<_> = seen.iter().map(|(rid, _)| rid).collect();
    let mut etags: Vec<_> = seen.iter().map(|(_, etag)| etag).collect();
    rids.sort();
    rids.dedup();
    etags.sort();
    etags.dedup();
    assert_eq!((rids.len(), etags.len()), (9, 9), "{seen:?}");
}

/// A clock that does something when a script looks at it: in the midst of its run.
struct Hook {
    now_ms: u64,
    own: ThreadId,
    /// Whether a run has started in which nothing was done yet.
    is_armed: AtomicBool,
    act: Mutex<Option<Box<dyn FnMut() -> bool + Send>>>,
}

impl Clock for Hook {
    fn now_ms(&self) -> u64 {
        // Requests run on the thread of the test, scripts on another.
        if std::thread::current().id() == self.own {
            self.is_armed.store(true, Ordering::SeqCst);
        } else if self.is_armed.swap(false, Ordering::SeqCst) {
            let act = self.act.lock().unwrap().take();
            if let Some(mut act) = act
                && act()
            {
                *self.act.lock().unwrap() = Some(act);
            }
        }
        self.now_ms
    }
}

/// A clock that moves on with every look at it.
struct Hasty(AtomicU64);

impl Clock for Hasty {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(10, Ordering::SeqCst)
    }
}

/// The classic import: as many as there is time for, and the client goes on from there.
#[tokio::test]
async fn a_script_that_runs_out_of_time_keeps_what_it_has_done() {
    let source = "function (from, to) {
        const c = getContext().getCollection();
        next(from);
        function next(n) {
            getContext().getResponse().setBody(n);
            if (n === to) return;
            const body = {id: String(n), pk: 'x'};
            const accepted = c.createDocument(c.getSelfLink(), body, (error) => {
                if (error) throw error;
                next(n + 1);
            });
            if (!accepted) getContext().getResponse().setBody(n);
        }
    }";
    let clock = Arc::new(Hasty(AtomicU64::new(START_S * 1_000)));
    let db =
        Db::open(Arc::new(Embedded::in_memory()), clock, &CountingIds::default()).await.unwrap();
    let container = create_container(&db, "c", BY_PK, None).await;
    let definition = Object::from([("id", "p"), ("body", source)]);
    db.create_script(&container, ScriptKind::Procedure, &definition).await.unwrap();
    let container = db.container("d", "c").unwrap();
    let (mut done, mut calls) = (0, 0);
    while done < 1_000 {
        let call = call("p", &format!("[{done},1000]"));
        let called = db.execute(&container, Some(&key(X)), call, None).await.unwrap();
        let next: u64 = called.body.unwrap().parse().unwrap();
        assert!(next > done, "every call gets on");
        done = next;
        calls += 1;
    }
    assert!(calls > 1, "one call had time for everything");
    assert_eq!(db.container_usage(&container).unwrap().documents, 1_000);
    verify(&db);
}

/// A container whose clock is a hook.
struct Hooked {
    db: Arc<Db<Embedded>>,
    container: Arc<Container>,
    hook: Arc<Hook>,
}

impl Hooked {
    async fn new(source: &str) -> Hooked {
        let own = std::thread::current().id();
        let hook = Arc::new(Hook {
            now_ms: START_S * 1_000,
            own,
            is_armed: AtomicBool::new(false),
            act: Mutex::new(None),
        });
        let store = Arc::new(Embedded::in_memory());
        let db = Db::open(store, hook.clone(), &CountingIds::default()).await.unwrap();
        let container = create_container(&db, "c", BY_PK, None).await;
        let definition = Object::from([("id", Value::from("p")), ("body", Value::from(source))]);
        db.create_script(&container, ScriptKind::Procedure, &definition).await.unwrap();
        let container = db.container("d", "c").unwrap();
        Hooked { db, container, hook }
    }

    async fn must(&self, write: Write) {
        let conditions = Conditions::default();
        self.db.write(&self.container, Some(&key(X)), write, conditions).await.unwrap();
    }

    /// Does these writes one by one, one in every run of a script from now on.
    fn interfere(&self, writes: Vec<Write>) {
        self.interfere_at(X, writes);
    }

    fn interfere_at(&self, at: &'static str, writes: Vec<Write>) {
        let (db, container) = (self.db.clone(), self.container.clone());
        let runtime = tokio::runtime::Handle::current();
        let mut writes = writes.into_iter();
        let act = move || {
            let Some(write) = writes.next() else { return false };
            let key = key(at);
            let done = db.write(&container, Some(&key), write, Conditions::default());
            runtime.block_on(done).unwrap();
            true
        };
        *self.hook.act.lock().unwrap() = Some(Box::new(act));
    }

    async fn call(&self) -> Result<Called, Failure> {
        self.db.execute(&self.container, Some(&key(X)), call("p", ""), None).await
    }

    fn lsn(&self) -> u64 {
        let scope = Scope { cross_partition: true, ..Scope::default() };
        let page = self.db.read_feed(&self.container, &scope, &Page::default(), None).unwrap();
        page.at[0].lsn
    }

    fn text(&self, id: &str) -> String {
        let read =
            self.db.read(&self.container, Some(&key(X)), &by_id(id), &Conditions::default(), None);
        Value::Object(read.unwrap().document.unwrap().to_user_object()).to_text()
    }
}

const ADD_ONE: &str = "function () {
    const c = __, link = c.getAltLink() + '/docs/a';
    c.readDocument(link, (error, document) => {
        document.n += 1;
        c.replaceDocument(link, document, () => c.response.setBody(document.n));
    });
}";

fn incremented() -> Write {
    patch_by("a", r#"[{"op":"incr","path":"/n","value":10}]"#)
}

#[tokio::test]
async fn a_script_that_loses_a_race_runs_again() {
    let hooked = Hooked::new(ADD_ONE).await;
    hooked.must(create(r#"{"id":"a","pk":"x","n":0}"#)).await;
    hooked.interfere(vec![incremented(), incremented(), incremented()]);
    let called = hooked.call().await.unwrap();
    assert_eq!(called.body.unwrap(), "31", "the last run saw everything");
    assert_eq!(hooked.text("a"), r#"{"id":"a","pk":"x","n":31}"#);
    verify(&hooked.db);
}

#[tokio::test]
async fn a_script_that_always_loses_is_told() {
    let hooked = Hooked::new(ADD_ONE).await;
    hooked.must(create(r#"{"id":"a","pk":"x","n":0}"#)).await;
    hooked.interfere(vec![incremented(); 4]);
    let (status, _) = refused(hooked.call().await);
    assert_eq!(status, (449, 0));
    assert_eq!(hooked.text("a"), r#"{"id":"a","pk":"x","n":40}"#);
    verify(&hooked.db);
}

#[tokio::test]
async fn other_documents_are_not_in_the_way() {
    let hooked = Hooked::new(ADD_ONE).await;
    hooked.must(create(r#"{"id":"a","pk":"x","n":0}"#)).await;
    let others = (0..9).map(|at| create(&format!(r#"{{"id":"{at}","pk":"x","n":1}}"#)));
    hooked.interfere(others.collect());
    let called = hooked.call().await.unwrap();
    assert_eq!(called.body.unwrap(), "1");
    // One document of another client and the commit of the script: it ran once.
    assert_eq!(called.at.lsn, 4);
    verify(&hooked.db);
}

#[tokio::test]
async fn what_a_query_did_not_find_is_noticed_too() {
    let source = "function () {
        const c = __;
        c.queryDocuments(c.getSelfLink(), 'SELECT VALUE COUNT(1) FROM c', (error, [count]) => {
            c.createDocument(c.getSelfLink(), {id: 'count', pk: 'x', count}, () => {
                c.response.setBody(count);
            });
        });
    }";
    let hooked = Hooked::new(source).await;
    hooked.interfere(vec![create(r#"{"id":"a","pk":"x","n":0}"#)]);
    assert_eq!(hooked.call().await.unwrap().body.unwrap(), "1");
    verify(&hooked.db);
}

#[tokio::test]
async fn a_partition_that_is_deleted_meanwhile_is_noticed() {
    let hooked = Hooked::new(
        "function () {
            const c = __;
            c.readDocument(c.getAltLink() + '/docs/a', (error, found) => {
                c.createDocument(c.getSelfLink(), {id: 'b', pk: 'x', saw: !error});
            });
        }",
    )
    .await;
    hooked.must(create(r#"{"id":"a","pk":"x","n":0}"#)).await;
    let (db, container) = (hooked.db.clone(), hooked.container.clone());
    let runtime = tokio::runtime::Handle::current();
    let act = move || {
        let key = key(X);
        runtime.block_on(db.delete_partition(&container, &key)).unwrap();
        false
    };
    *hooked.hook.act.lock().unwrap() = Some(Box::new(act));
    hooked.call().await.unwrap();
    assert_eq!(hooked.text("b"), r#"{"id":"b","pk":"x","saw":false}"#);
    verify(&hooked.db);
    hooked.db.sweep().await.unwrap();
    assert_eq!(hooked.text("b"), r#"{"id":"b","pk":"x","saw":false}"#);
    verify(&hooked.db);
}

#[tokio::test]
async fn expired_documents_are_gone_for_scripts() {
    let mut documents = Documents::new(&by_pk_with(r#""defaultTtl":-1"#)).await;
    let source = "function () {
        const c = __;
        c.readDocument(c.getAltLink() + '/docs/brief', (error) => {
            c.queryDocuments(c.getSelfLink(), 'SELECT VALUE r.id FROM r', (_, ids) => {
                c.createDocument(c.getSelfLink(), {id: 'brief', pk: 'x', ttl: 5}, () => {
                    c.response.setBody([error ? error.number : 200, ids]);
                });
            });
        });
    }";
    procedure(&mut documents, "p", source).await;
    documents.must(X, create(r#"{"id":"brief","pk":"x","ttl":5}"#)).await;
    documents.must(X, create(r#"{"id":"lasting","pk":"x"}"#)).await;
    let called = documents.called(X, "p", "").await;
    assert_eq!(called.body.unwrap(), r#"[200,["brief","lasting"]]"#, "still there");
    for _ in 0..2 {
        documents.advance_s(5);
        let called = documents.called(X, "p", "").await;
        assert_eq!(called.body.unwrap(), r#"[404,["lasting"]]"#);
        documents.verify();
    }
    documents.advance_s(5);
    assert_eq!(documents.db.sweep().await.unwrap().expired, 1);
    documents.verify();
}

#[tokio::test]
async fn queries_of_scripts_are_paged_and_see_what_the_script_wrote() {
    let mut documents = Documents::new(BY_PK).await;
    let source = "function (query, pageSize) {
        const c = __, link = c.getSelfLink(), pages = [];
        c.createDocument(link, {id: 'own', pk: 'x', n: 3, list: [7, 8]}, () => next());
        function next(continuation) {
            const options = {pageSize, continuation};
            c.queryDocuments(link, query, options, (error, rows, info) => {
                if (error) throw error;
                pages.push(rows);
                if (info.continuation) next(info.continuation);
                else c.response.setBody(pages);
            });
        }
    }";
    procedure(&mut documents, "p", source).await;
    for n in 0..3 {
        documents
            .must(X, create(&format!(r#"{{"id":"{n}","pk":"x","n":{n},"list":[{n},{n}]}}"#)))
            .await;
    }
    documents.must(r#"["y"]"#, create(r#"{"id":"far","pk":"y","n":9,"list":[9]}"#)).await;
    for (query, page, expected) in [
        ("SELECT VALUE c.id FROM c", 100, r#"[["0","1","2","own"]]"#),
        ("SELECT VALUE c.id FROM c", 2, r#"[["0","1"],["2","own"]]"#),
        ("SELECT VALUE c.id FROM c WHERE c.n > 1", 1, r#"[["2"],["own"]]"#),
        ("SELECT VALUE item FROM c JOIN item IN c.list", 3, "[[0,0,1],[1,2,2],[7,8]]"),
        ("SELECT VALUE c.id FROM c ORDER BY c.n DESC", 3, r#"[["own","2","1"],["0"]]"#),
        ("SELECT TOP 2 VALUE c.id FROM c ORDER BY c.n", 1, r#"[["0"],["1"]]"#),
        ("SELECT VALUE SUM(c.n) FROM c", 1, "[[6]]"),
        ("SELECT DISTINCT VALUE c.pk FROM c", 1, r#"[["x"]]"#),
        ("SELECT VALUE 1", 1, "[[1]]"),
    ] {
        let parameters = format!("[{},{page}]", Value::from(query).to_text());
        let called = documents.called(X, "p", &parameters).await;
        assert_eq!(called.body.unwrap(), expected, "{query}");
        documents.must(X, delete("own")).await;
    }
    let (status, message) =
        refused(documents.call(X, "p", r#"["SELECT udf.none(1) FROM c",1]"#).await);
    assert_eq!(status, (400, 400));
    assert!(message.contains("udf") || message.contains("function 'none'"), "{message}");
    documents.verify();
}

/// Enough documents that indexes pay, in the midst of those of another partition; and a script that
/// changes some of them before it asks.
#[tokio::test]
async fn queries_of_scripts_find_by_index_what_the_script_wrote() {
    let mut documents = Documents::new(BY_PK).await;
    let source = "function (query, pageSize) {
        const c = __, link = c.getSelfLink(), pages = [];
        const at = (id) => c.getAltLink() + '/docs/' + id;
        for (let n = 0; n < 400; n += 40) {
            c.deleteDocument(at(n));
            c.patchDocument(at(n + 1), [{op: 'set', path: '/kind', value: 'k3'}]);
            c.upsertDocument(link, {id: `${n + 2}`, pk: 'x', n: -n, kind: 'k3', list: [n, 'k']});
            c.createDocument(link, {id: `new${n}`, pk: 'x', n: n + 0.5, kind: 'k4', list: []});
        }
        next();
        function next(continuation) {
            c.queryDocuments(link, query, {pageSize, continuation}, (error, rows, info) => {
                if (error) throw error;
                pages.push(...rows);
                if (info.continuation) next(info.continuation);
                else c.response.setBody(pages);
            });
        }
    }";
    procedure(&mut documents, "p", source).await;
    for n in 0..400 {
        let rest = format!(r#""n":{n},"kind":"k{}","list":[{n},"k"]"#, n % 20);
        for at in ["x", "y"] {
            let body = format!(r#"{{"id":"{n}","pk":"{at}",{rest}}}"#);
            documents.must(&format!(r#"["{at}"]"#), create(&body)).await;
        }
    }
    for query in [
        "SELECT VALUE c.id FROM c",
        "SELECT VALUE c.id FROM c WHERE c.kind = 'k3'",
        "SELECT VALUE c.id FROM c WHERE c.kind = 'k4' AND c.n > 100",
        "SELECT VALUE c.id FROM c WHERE c.n < 0",
        "SELECT VALUE c.id FROM c WHERE c.n BETWEEN 100 AND 110 OR c.kind IN ('k0', 'k1')",
        "SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(c.list, 80)",
        "SELECT VALUE c.id FROM c WHERE c.id = 'new40'",
        "SELECT VALUE [c.n, l] FROM c JOIN l IN c.list WHERE c.kind = 'k3'",
        "SELECT VALUE c.id FROM c ORDER BY c.n",
        "SELECT VALUE c.id FROM c WHERE c.kind = 'k3' ORDER BY c.n DESC",
        "SELECT TOP 7 VALUE c.id FROM c ORDER BY c.n DESC",
        "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 3 LIMIT 9",
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT VALUE COUNT(1) FROM c WHERE c.kind = 'k4'",
        "SELECT c.kind, SUM(c.n) AS s FROM c GROUP BY c.kind",
        "SELECT DISTINCT VALUE c.kind FROM c",
    ] {
        for page in [1_000, 3] {
            let parameters = format!("[{},{page}]", Value::from(query).to_text());
            let called = documents.called(X, "p", &parameters).await;
            let rows = Value::parse(called.body.unwrap().as_bytes()).unwrap();
            let mut shown: Vec<String> =
                rows.as_array().unwrap().iter().map(Value::to_text).collect();
            let mut stored = documents.query_at(X, query);
            if !query.contains("ORDER BY") {
                shown.sort();
                stored.sort();
            }
            assert!(!stored.is_empty());
            assert_eq!(shown, stored, "{query}, pages of {page}");
            for n in (0..400).step_by(40) {
                documents.must(X, delete(&format!("new{n}"))).await;
                for at in [n, n + 1, n + 2] {
                    let kind = at % 20;
                    let body = format!(
                        r#"{{"id":"{at}","pk":"x","n":{at},"kind":"k{kind}","list":[{at},"k"]}}"#
                    );
                    documents.must(X, upsert(&body)).await;
                }
            }
        }
    }
    documents.verify();
}

/// What a query found, or did not find, by an index is as good as read: a script that others got in
/// the way of runs again. Documents of other partitions are in nobody's way.
#[tokio::test]
async fn what_an_index_did_not_lead_to_is_noticed_too() {
    for (query, wanted) in [
        ("SELECT VALUE c.id FROM c WHERE c.n = 7", r#"["late"]"#),
        ("SELECT VALUE c.id FROM c WHERE c.n > 1 AND c.n < 9", r#"["late"]"#),
        ("SELECT VALUE c.id FROM c WHERE c.kind = 'rare'", r#"["late"]"#),
        ("SELECT TOP 1 VALUE c.id FROM c ORDER BY c.n", r#"["late"]"#),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.kind = 'rare'", "[1]"),
        ("SELECT VALUE COUNT(1) FROM c", "[501]"),
    ] {
        let source = format!(
            "function () {{
                const c = __;
                c.queryDocuments(c.getSelfLink(), {}, (error, found) => {{
                    if (error) throw error;
                    c.createDocument(c.getSelfLink(), {{id: 'found', pk: 'x', n: 1000}}, () => {{
                        c.response.setBody(found);
                    }});
                }});
            }}",
            Value::from(query).to_text()
        );
        let hooked = Hooked::new(&source).await;
        for n in 0..500 {
            let body = format!(r#"{{"id":"{n}","pk":"x","n":{},"kind":"common"}}"#, n + 10);
            hooked.must(create(&body)).await;
        }
        let late = create(r#"{"id":"late","pk":"x","n":7,"kind":"rare"}"#);
        hooked.interfere(vec![late]);
        assert_eq!(hooked.call().await.unwrap().body.unwrap(), wanted, "{query}");
        verify(&hooked.db);

        hooked.must(delete("found")).await;
        let elsewhere = create(r#"{"id":"late","pk":"y","n":7,"kind":"rare"}"#);
        hooked.interfere_at(r#"["y"]"#, vec![elsewhere]);
        let before = hooked.lsn();
        let called = hooked.call().await.unwrap();
        assert_eq!(called.at.lsn, before + 2, "one write elsewhere and one run: {query}");
    }
}

const BANK: &str = r#"["bank"]"#;
const ACCOUNTS: u64 = 6;

/// Moves money between three accounts in its own way: the first two pay half each, if they can.
const TRANSFER: &str = "function (one, two, to, amount) {
    const c = getContext().getCollection();
    const link = (id) => c.getAltLink() + '/docs/' + id;
    c.queryDocuments(c.getSelfLink(), 'SELECT VALUE SUM(a.n) FROM a', (error, [sum]) => {
        if (sum !== 600) getContext().abort(new Error('the sum is ' + sum));
        take(one, () => take(two, () => give()));
    });
    function take(id, then) {
        c.readDocument(link(id), (error, account) => {
            if (account.n < amount) throw new Error(4444, 'not enough');
            account.n -= amount;
            c.replaceDocument(account._self, account, {etag: account._etag}, then);
        });
    }
    function give() {
        c.patchDocument(link(to), [{op: 'incr', path: '/n', value: 2 * amount}]);
    }
}";

async fn bank<S: RangeStore>(mut documents: Documents<S>, rounds: u64) {
    procedure(&mut documents, "transfer", TRANSFER).await;
    for account in 0..ACCOUNTS {
        let body = format!(r#"{{"id":"{account}","pk":"bank","n":100}}"#);
        documents.must(BANK, create(&body)).await;
    }
    let documents = Arc::new(documents);
    let clients = (0..16_u64).map(|client| {
        let documents = documents.clone();
        tokio::spawn(async move {
            let mut done = 0;
            for round in 0..rounds {
                let at = client * 7 + round * 5;
                let ids = [at, at + 1 + round % 2, at + 3 + client % 2].map(|id| id % ACCOUNTS);
                let amount = 1 + (client + round) % 9;
                if client % 4 == 3 {
                    // A client of the other kind: single documents, in a batch and alone.
                    let take = format!(
                        r#"{{"condition":"FROM c WHERE c.n >= {amount}",
                            "operations":[{{"op":"incr","path":"/n","value":-{amount}}}]}}"#
                    );
                    let give = format!(r#"[{{"op":"incr","path":"/n","value":{amount}}}]"#);
                    let writes = vec![
                        patch_by(&ids[0].to_string(), &take),
                        patch_by(&ids[1].to_string(), &give),
                    ];
                    documents.batch(BANK, writes).await;
                    let touch = r#"[{"op":"incr","path":"/touched","value":1}]"#;
                    documents.must(BANK, patch_by(&ids[2].to_string(), touch)).await;
                    continue;
                }
                let [one, two, to] = ids;
                let parameters = format!(r#"["{one}","{two}","{to}",{amount}]"#);
                match documents.call(BANK, "transfer", &parameters).await {
                    Ok(_) => done += 1,
                    failed => match refused(failed).0 {
                        (400, 4444) | (449, 0) => {}
                        other => panic!("{other:?}"),
                    },
                }
            }
            done
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut done = 0;
    for client in clients {
        done += client.await.unwrap();
    }
    assert!(done > rounds, "most transfers succeed: {done}");
    let scope = Scope { key: Some(key(BANK)), ..Scope::default() };
    let rows = feed(&documents.db, &documents.container, &scope, None);
    let total: i64 = rows.iter().map(|row| row.get("n").and_then(Value::as_i64).unwrap()).sum();
    assert_eq!(total, 600);
    documents.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn transfers_keep_the_total_in_memory() {
    bank(Documents::new(BY_PK).await, 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn transfers_keep_the_total_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let clock = support::clock();
    let db = support::open(support::embedded(directory.path()), &clock).await;
    let container = support::container(&db, BY_PK).await;
    bank(Documents { db, clock, container }, 4).await;
}

/// Scripts on one partition take turns, so none of them has to give up.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn scripts_alone_never_conflict() {
    let mut documents = Documents::new(BY_PK).await;
    procedure(&mut documents, "p", ADD_ONE).await;
    documents.must(X, create(r#"{"id":"a","pk":"x","n":0}"#)).await;
    let documents = Arc::new(documents);
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let documents = documents.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    documents.called(X, "p", "").await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(documents.user_text(X, "a"), r#"{"id":"a","pk":"x","n":160}"#);
    documents.verify();
}

#[tokio::test]
async fn triggers_are_part_of_the_write() {
    let mut documents = Documents::new(BY_PK).await;
    let pre = "function () {
        const request = getContext().getRequest(), body = request.getBody();
        if (!body.title) throw new Error(4001, 'a book has a title');
        body.by = 'trigger';
        request.setBody(body);
    }";
    let post = "function () {
        const context = getContext(), c = context.getCollection();
        const book = context.getResponse().getBody();
        c.readDocument(c.getAltLink() + '/docs/count', (error, count) => {
            if (error) throw new Error(4002, 'nobody counts');
            count.n += 1;
            c.replaceDocument(count._self, count);
        });
    }";
    trigger(&mut documents, "check", "Pre", "All", pre).await;
    trigger(&mut documents, "count", "Post", "Create", post).await;
    let before = documents.lsn();
    let book = || create(r#"{"id":"b","pk":"x","title":"t"}"#);
    let both = (Some("check"), Some("count"));
    let (status, _) = refused(documents.trigger(X, book(), both.0, both.1).await);
    assert_eq!(status, (400, 4002));
    let untitled = create(r#"{"id":"b","pk":"x"}"#);
    let (status, _) = refused(documents.trigger(X, untitled, both.0, both.1).await);
    assert_eq!(status, (400, 4001));
    assert_eq!(documents.lsn(), before);
    documents.must(X, create(r#"{"id":"count","pk":"x","n":0}"#)).await;
    let written = documents.trigger(X, book(), both.0, both.1).await.unwrap();
    assert_eq!(written.outcome.status, 201);
    assert_eq!(documents.lsn(), before + 2, "one commit for the book and its count");
    assert_eq!(written.outcome.at.document_lsn, Some(before + 2));
    assert_eq!(documents.user_text(X, "b"), r#"{"id":"b","pk":"x","title":"t","by":"trigger"}"#);
    assert_eq!(documents.user_text(X, "count"), r#"{"id":"count","pk":"x","n":1}"#);
    let read = documents.read(X, "b").unwrap();
    assert_eq!(read.etag, written.outcome.etag);
    assert_eq!(read.document.unwrap().text(), written.outcome.document.unwrap().text());
    // The same book again: the write is refused, so nothing is counted.
    let (status, _) = refused(documents.trigger(X, book(), both.0, both.1).await);
    assert_eq!(status, (409, 0));
    assert_eq!(documents.user_text(X, "count"), r#"{"id":"count","pk":"x","n":1}"#);
    for (write, pre, post, part) in [
        (book(), Some("count"), None, "'Post'"),
        (book(), None, Some("check"), "'Pre'"),
        (book(), Some("none"), None, "no trigger 'none'"),
        (upsert(r#"{"id":"b","pk":"x"}"#), None, Some("count"), "is invalid for 'Upsert'"),
        (incremented(), Some("check"), None, "not with this operation"),
    ] {
        let (status, message) = refused(documents.trigger(X, write, pre, post).await);
        assert_eq!(status, (400, 0), "{message}");
        assert!(message.contains(part), "{message}");
    }
    documents.verify();
}

#[tokio::test]
async fn triggers_see_what_is_replaced_and_deleted() {
    let mut documents = Documents::new(BY_PK).await;
    let source = "function () {
        const request = getContext().getRequest(), body = request.getBody();
        const c = getContext().getCollection();
        const seen = {id: 'seen', pk: 'x', was: request.getOperationType(), n: body.n,
            linked: typeof body._self};
        c.upsertDocument(c.getSelfLink(), seen);
    }";
    trigger(&mut documents, "t", "Pre", "All", source).await;
    documents.must(X, create(r#"{"id":"a","pk":"x","n":1}"#)).await;
    for (write, was, n, linked) in [
        (replace("a", r#"{"id":"a","pk":"x","n":2}"#), "Replace", 2, "string"),
        (upsert(r#"{"id":"a","pk":"x","n":3}"#), "Upsert", 3, "undefined"),
        (delete("a"), "Delete", 3, "string"),
        (create(r#"{"id":"a","pk":"x","n":4}"#), "Create", 4, "undefined"),
    ] {
        documents.trigger(X, write, Some("t"), None).await.unwrap();
        let expected =
            format!(r#"{{"id":"seen","pk":"x","was":"{was}","n":{n},"linked":"{linked}"}}"#);
        assert_eq!(documents.user_text(X, "seen"), expected);
    }
    // What is not there is said before any trigger runs.
    let gone = replace("gone", r#"{"id":"gone","pk":"x"}"#);
    assert_eq!(refused(documents.trigger(X, gone, Some("t"), None).await).0, (404, 0));
    documents.verify();
}

#[tokio::test]
async fn functions_work_in_queries() {
    let mut documents = Documents::with_ranges(BY_PK, 2).await;
    for (id, source) in [
        ("twice", "function (n) { return typeof n === 'number' ? 2 * n : n; }"),
        ("fail", "function (n) { throw new Error('no: ' + n); }"),
        ("broken", "function ( {"),
        ("forever", "function () { for (;;); }"),
    ] {
        script(&mut documents, ScriptKind::Function, &[("id", id), ("body", source)]).await;
    }
    for n in 0..4 {
        let body = format!(r#"{{"id":"{n}","pk":{n},"n":{n},"s":"{n}"}}"#);
        documents.must(&format!("[{n}]"), create(&body)).await;
    }
    let mut rows = documents.query("SELECT VALUE udf.twice(c.n) FROM c WHERE udf.twice(c.n) > 2");
    rows.sort();
    assert_eq!(rows, ["4", "6"]);
    let rows =
        documents.query("SELECT udf.twice(c.s) AS s, udf.twice(c.none) AS u FROM c WHERE c.n = 1");
    assert_eq!(rows, [r#"{"s":"1"}"#]);
    let rows = documents.query("SELECT VALUE SUM(udf.twice(c.n)) FROM c");
    assert_eq!(rows, ["12"]);
    let check = |text: &str| {
        let query = QueryText { text: text.to_owned(), ..QueryText::default() };
        let scope = Scope { cross_partition: true, ..Scope::default() };
        refused(documents.db.query(&documents.container, &query, &scope, &Page::default(), None))
    };
    for (text, part) in [
        ("SELECT udf.fail(1) FROM c", "no: 1"),
        ("SELECT udf.broken(1) FROM c", "broken"),
        ("SELECT udf.none(1) FROM c", "'none' could not be found"),
        ("SELECT udf.Twice(1) FROM c", "'Twice' could not be found"),
    ] {
        let (status, message) = check(text);
        assert_eq!(status, (400, 0), "{text}: {message}");
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[tokio::test]
async fn scripts_go_with_their_container() {
    let directory = tempfile::tempdir().unwrap();
    let clock = support::clock();
    let db = support::open(support::embedded(directory.path()), &clock).await;
    let container = support::container(&db, BY_PK).await;
    let mut documents = Documents { db, clock: clock.clone(), container };
    procedure(&mut documents, "p", "function () {}").await;
    trigger(&mut documents, "t", "pre", "all", "function () {}").await;
    // A change of the container leaves its scripts alone.
    documents.redefine(&by_pk_with(r#""defaultTtl":7"#)).await;
    documents.db.sweep().await.unwrap();
    documents.db.close().await.unwrap();
    drop(documents);
    let db = support::open(support::embedded(directory.path()), &clock).await;
    let container = db.container("d", "c").unwrap();
    let found = db.script(&container, ScriptKind::Trigger, "t").unwrap();
    assert_eq!(found.body.get("triggerType").unwrap().as_str(), Some("pre"));
    assert_eq!(db.scripts(&container, ScriptKind::Procedure).len(), 1);
    db.delete_container("d", "c", None).await.unwrap();
    let container = support::container(&db, BY_PK).await;
    assert!(db.scripts(&container, ScriptKind::Procedure).is_empty());
    db.delete_database("d", None).await.unwrap();
    db.close().await.unwrap();
    drop(db);
    // No script is left without a container.
    support::open(support::embedded(directory.path()), &clock).await.close().await.unwrap();
}
