//! Many clients at once: nothing is lost, nothing is done twice, and everybody sees whole commits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use db::{Address, Conditions, Kind, Outcome, Page, Position, Scope, Session};
use storage::RangeStore;
use value::Value;

use crate::support::{
    self, BY_PK, Documents, Status, by_id, by_pk_with, create, feed, if_match, key, patch_by,
    replace, status, status_of, statuses, upsert,
};

const CLIENTS: u64 = 16;

/// Runs one task for every client and gathers their results.
async fn together<T, F>(task: impl Fn(u64) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let tasks: Vec<_> = (0..CLIENTS).map(|client| tokio::spawn(task(client))).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap());
    }
    results
}

fn number(document: &Outcome, name: &str) -> i64 {
    let document = document.document.as_ref().unwrap();
    document.field(name).unwrap().parse().unwrap()
}

/// The versions of the commits, each of which is the one after another.
fn assert_dense(mut lsns: Vec<u64>, before: u64) {
    lsns.sort_unstable();
    let expected: Vec<_> = (before + 1..=before + lsns.len() as u64).collect();
    assert_eq!(lsns, expected);
}

async fn increments<S: RangeStore>(documents: Documents<S>, rounds: i64) {
    let first = documents.must("[1]", create(r#"{"id":"a","pk":1,"n":0}"#)).await;
    let documents = Arc::new(documents);
    let lsns = together(|_| {
        let documents = documents.clone();
        async move {
            let mut lsns = Vec::new();
            for _ in 0..rounds {
                let write = patch_by("a", r#"[{"op":"incr","path":"/n","value":1}]"#);
                let outcome = documents.must("[1]", write).await;
                assert!(lsns.last().is_none_or(|last| *last < outcome.at.lsn));
                // What was just written is there for whoever wrote it.
                assert!(number(&documents.read("[1]", "a").unwrap(), "n") >= number(&outcome, "n"));
                lsns.push(outcome.at.lsn);
            }
            lsns
        }
    })
    .await;
    assert_dense(lsns.concat(), first.at.lsn);
    let read = documents.read("[1]", "a").unwrap();
    assert_eq!(number(&read, "n"), CLIENTS as i64 * rounds);
    documents.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_increment_is_lost_in_memory() {
    increments(Documents::new(BY_PK).await, 50).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_increment_is_lost_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let clock = support::clock();
    let db = support::open(support::embedded(directory.path()), &clock).await;
    let container = support::container(&db, BY_PK).await;
    increments(Documents { db, clock, container }, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conditional_replaces_lose_nothing() {
    let documents = Arc::new(Documents::new(BY_PK).await);
    documents.must("[1]", create(r#"{"id":"a","pk":1,"n":0}"#)).await;
    together(|_| {
        let documents = documents.clone();
        async move {
            let mut done = 0;
            while done < 10 {
                let current = documents.read("[1]", "a").unwrap();
                let body = format!(r#"{{"id":"a","pk":1,"n":{}}}"#, number(&current, "n") + 1);
                let etag = if_match(&current.etag.unwrap());
                let result = documents.write_if("[1]", replace("a", &body), etag).await;
                match status(&result) {
                    (200, 0) => done += 1,
                    (412, 0) => tokio::task::yield_now().await,
                    other => panic!("{other:?}"),
                }
            }
        }
    })
    .await;
    assert_eq!(number(&documents.read("[1]", "a").unwrap(), "n"), CLIENTS as i64 * 10);
}

const ACCOUNTS: u64 = 8;
const BALANCE: i64 = 100;

/// Moves an amount from one account to another, if there is as much.
async fn transfer<S: RangeStore>(documents: &Documents<S>, from: u64, to: u64, amount: i64) -> u16 {
    let take = format!(
        r#"{{"condition":"FROM c WHERE c.n >= {amount}",
             "operations":[{{"op":"incr","path":"/n","value":-{amount}}}]}}"#
    );
    let give = format!(r#"[{{"op":"incr","path":"/n","value":{amount}}}]"#);
    let writes = vec![patch_by(&from.to_string(), &take), patch_by(&to.to_string(), &give)];
    let outcome = documents.batch(r#"["bank"]"#, writes).await;
    match statuses(&outcome)[..] {
        [200, 200] => 200,
        [412, 424] => 412,
        ref other => panic!("{other:?}"),
    }
}

fn total<S: RangeStore>(documents: &Documents<S>) -> i64 {
    let scope = Scope { key: Some(key(r#"["bank"]"#)), ..Scope::default() };
    let rows = feed(&documents.db, &documents.container, &scope, None);
    assert_eq!(rows.len() as u64, ACCOUNTS);
    rows.iter().map(|row| row.get("n").and_then(Value::as_i64).unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn transfers_keep_the_total() {
    let documents = Arc::new(Documents::with_ranges(BY_PK, 3).await);
    for account in 0..ACCOUNTS {
        let body = format!(r#"{{"id":"{account}","pk":"bank","n":{BALANCE}}}"#);
        documents.must(r#"["bank"]"#, create(&body)).await;
    }
    let done = Arc::new(AtomicBool::new(false));
    let auditor = {
        let (documents, done) = (documents.clone(), done.clone());
        tokio::spawn(async move {
            let mut audits = 0;
            while audits < 20 || !done.load(Ordering::SeqCst) {
                assert_eq!(total(&documents), ACCOUNTS as i64 * BALANCE);
                audits += 1;
                tokio::task::yield_now().await;
            }
        })
    };
    let answers = together(|client| {
        let documents = documents.clone();
        async move {
            let mut answers = [0, 0];
            for round in 0..40 {
                let from = (client + round) % ACCOUNTS;
                let to = (client * 3 + round * 5 + 1) % ACCOUNTS;
                let amount = ((client * 7 + round * 11) % 60) as i64;
                let refused = transfer(&documents, from, to, amount).await == 412;
                answers[usize::from(refused)] += 1;
            }
            answers
        }
    })
    .await;
    done.store(true, Ordering::SeqCst);
    auditor.await.unwrap();
    assert_eq!(total(&documents), ACCOUNTS as i64 * BALANCE);
    let accepted: i32 = answers.iter().map(|[accepted, _]| accepted).sum();
    assert!(accepted > 0);
    documents.verify();
}

/// Exactly one of the clients wins; the others are all refused in one way.
async fn race(definition: &str, body: fn(u64, u64) -> String, refused: Status) {
    let documents = Arc::new(Documents::new(definition).await);
    for round in 0..20 {
        let answers = together(|client| {
            let documents = documents.clone();
            async move { status(&documents.write(r#"["x"]"#, create(&body(round, client))).await) }
        })
        .await;
        let won = answers.iter().filter(|answer| **answer == (201, 0)).count();
        assert_eq!(won, 1, "{answers:?}");
        assert!(answers.iter().all(|answer| *answer == (201, 0) || *answer == refused));
    }
    documents.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_id_is_taken_once() {
    let body = |round, client| format!(r#"{{"id":"{round}","pk":"x","client":{client}}}"#);
    race(BY_PK, body, status_of(Kind::Conflict)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_unique_key_is_taken_once() {
    let definition = by_pk_with(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#);
    let body = |round, client| format!(r#"{{"id":"{round}-{client}","pk":"x","u":{round}}}"#);
    race(&definition, body, status_of(Kind::UniqueConflict)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn versions_are_dense_in_every_range() {
    let documents = Arc::new(Documents::with_ranges(BY_PK, 4).await);
    let positions: Vec<Vec<Position>> = together(|client| {
        let documents = documents.clone();
        async move {
            let mut positions: Vec<Position> = Vec::new();
            for round in 0..25 {
                let pk = (client + round) % 23;
                let at = format!("[{pk}]");
                let body = format!(r#"{{"id":"{round}","pk":{pk}}}"#);
                let written = documents.must(&at, upsert(&body)).await;
                assert_eq!(written.at.document_lsn, Some(written.at.lsn));
                // A session sees what it wrote, at that version or a later one.
                let session = Session::parse(&written.at.token()).unwrap();
                let none = Conditions::default();
                let id = by_id(&round.to_string());
                let container = &documents.container;
                let read =
                    documents.db.read(container, Some(&key(&at)), &id, &none, Some(&session));
                let read = read.unwrap();
                assert_eq!(read.at.range, written.at.range);
                assert!(read.at.lsn >= written.at.lsn);
                assert!(read.at.document_lsn.unwrap() >= written.at.lsn);
                positions.push(written.at);
            }
            positions
        }
    })
    .await;
    let mut by_range: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for position in positions.concat() {
        by_range.entry(position.range).or_default().push(position.lsn);
    }
    assert_eq!(by_range.len(), 4, "every range has documents");
    for (_, lsns) in by_range {
        // The first commit of a range is its header.
        assert_dense(lsns, 1);
    }
    documents.verify();
}

#[tokio::test]
async fn a_session_ahead_of_the_server_is_refused() {
    let documents = Documents::with_ranges(BY_PK, 2).await;
    let written = documents.must("[1]", create(r#"{"id":"a","pk":1}"#)).await;
    let unavailable = status_of(Kind::SessionNotAvailable);
    assert_eq!(unavailable, (404, 1002));
    let other_range = if written.at.range == "0" { "1" } else { "0" };
    for (token, refused) in [
        (written.at.token(), false),
        (format!("{}:-1#{}", written.at.range, written.at.lsn + 1), true),
        (format!("{other_range}:-1#1000,{}:-1#0", written.at.range), false),
        ("77:-1#1000".to_owned(), false),
    ] {
        let session = Session::parse(&token).unwrap();
        let (db, container) = (&documents.db, &documents.container);
        let none = Conditions::default();
        let read = db.read(container, Some(&key("[1]")), &by_id("a"), &none, Some(&session));
        assert_eq!(status(&read), if refused { unavailable } else { (200, 0) }, "{token}");

        let operations = vec![support::operation(support::read("a"))];
        let batch = db.batch(container, &key("[1]"), operations, Some(&session)).await;
        assert_eq!(batch.is_err(), refused, "{token}");

        let scope = Scope { key: Some(key("[1]")), ..Scope::default() };
        let page = db.read_feed(container, &scope, &Page::default(), Some(&session));
        let kind = page.err().map(|failure| failure.error.kind);
        assert_eq!(kind, refused.then_some(Kind::SessionNotAvailable), "{token}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn purges_and_sweeps_do_not_disturb_writers() {
    let definition =
        by_pk_with(r#""defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#);
    let documents = Arc::new(Documents::with_ranges(&definition, 2).await);
    together(|client| {
        let documents = documents.clone();
        async move {
            for round in 0..30u64 {
                let pk = (client + round) % 4;
                let at = format!("[{pk}]");
                match client % 4 {
                    0 if round % 5 == 0 => {
                        documents
                            .db
                            .delete_partition(&documents.container, &key(&at))
                            .await
                            .unwrap();
                    }
                    1 if round % 5 == 0 => {
                        documents.db.sweep().await.unwrap();
                    }
                    2 if round % 10 == 0 => documents.advance_s(1),
                    _ => {
                        let id = format!("{}", (client * 5 + round) % 11);
                        let body = format!(r#"{{"id":"{id}","pk":{pk},"u":"{id}","ttl":2}}"#);
                        documents.must(&at, upsert(&body)).await;
                    }
                }
            }
        }
    })
    .await;
    documents.verify();
    documents.advance_s(10);
    assert_eq!(documents.ids(&Scope::default()), Vec::<String>::new());
    documents.db.sweep().await.unwrap();
    documents.verify();
    assert_eq!(documents.db.container_usage(&documents.container).unwrap().documents, 0);
}

/// What a purge acknowledged stays gone for every reader, also while the sweep works.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_purged_document_never_comes_back() {
    let documents = Arc::new(Documents::new(BY_PK).await);
    let done = Arc::new(AtomicBool::new(false));
    let sweeper = {
        let (documents, done) = (documents.clone(), done.clone());
        tokio::spawn(async move {
            while !done.load(Ordering::SeqCst) {
                documents.db.sweep().await.unwrap();
                tokio::task::yield_now().await;
            }
        })
    };
    together(|client| {
        let documents = documents.clone();
        async move {
            let at = format!("[{client}]");
            for round in 0..60 {
                let id = round.to_string();
                let created =
                    documents.must(&at, create(&format!(r#"{{"id":"{id}","pk":{client}}}"#))).await;
                let rid =
                    created.document.unwrap().field("_rid").unwrap().trim_matches('"').to_owned();
                documents.db.delete_partition(&documents.container, &key(&at)).await.unwrap();
                for address in [Address::Id(id.clone()), Address::Rid(rid)] {
                    let none = Conditions::default();
                    let (container, key) = (&documents.container, key(&at));
                    let read = documents.db.read(container, Some(&key), &address, &none, None);
                    assert_eq!(status(&read), (404, 0), "{at} {id}");
                }
                let scope = Scope { key: Some(key(&at)), ..Scope::default() };
                assert_eq!(documents.ids(&scope), Vec::<String>::new());
            }
        }
    })
    .await;
    done.store(true, Ordering::SeqCst);
    sweeper.await.unwrap();
    documents.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_container_may_go_while_it_is_written() {
    let documents = Arc::new(Documents::with_ranges(BY_PK, 2).await);
    let answers = together(|client| {
        let documents = documents.clone();
        async move {
            let mut answers = Vec::new();
            for round in 0..20u64 {
                if client == 0 && round == 10 {
                    documents.db.delete_container("d", "c", None).await.unwrap();
                }
                // Every request looks its container up, and may lose it right afterwards.
                let Ok(container) = documents.db.container("d", "c") else {
                    answers.push(404);
                    continue;
                };
                let body = create(&format!(r#"{{"id":"{client}-{round}","pk":{round}}}"#));
                let (key, none) = (key(&format!("[{round}]")), Conditions::default());
                let result = documents.db.write(&container, Some(&key), body, none).await;
                let answer = status(&result);
                assert!(answer == (201, 0) || answer == (404, 0), "{answer:?}");
                answers.push(answer.0);
            }
            answers
        }
    })
    .await;
    for answers in answers {
        assert!(answers.is_sorted(), "what is gone stays gone: {answers:?}");
    }
    documents.verify();
    assert_eq!(documents.db.stats().unwrap().documents, 0);
}

/// A sweep goes over many containers and takes its time. What it began to look at under one time to
/// live must not be removed when another one holds by then.
#[tokio::test]
async fn a_sweep_goes_by_the_definition_that_holds() {
    let (db, clock) = support::in_memory().await;
    let brief = by_pk_with(r#""defaultTtl":5"#);
    for name in ["a", "b", "c"] {
        let container = support::create_container(&db, name, &brief, None).await;
        for id in 0..3 {
            let body = create(&format!(r#"{{"id":"{id}","pk":"x"}}"#));
            db.write(&container, None, body, Conditions::default()).await.unwrap();
        }
    }
    clock.advance_ms(5_000);
    let mut sweep = Box::pin(db.sweep());
    // The sweep starts, and waits for its first commit.
    tokio::select! {
        biased;
        swept = &mut sweep => panic!("{swept:?} before the first commit"),
        () = std::future::ready(()) => {}
    }
    let mut lasting = support::object(BY_PK);
    lasting.insert("id", "c");
    db.replace_container("d", "c", &lasting, None).await.unwrap();
    let container = db.container("d", "c").unwrap();
    assert_eq!(feed(&db, &container, &Scope::default(), None).len(), 3);
    assert_eq!(sweep.await.unwrap().expired, 6);
    assert_eq!(feed(&db, &container, &Scope::default(), None).len(), 3, "they came back");
    support::verify(&db);
}
