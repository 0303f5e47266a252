//! Transactions across partitions and containers: all or nothing, once for every token.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use db::{DistributedOperation, DistributedOutcome, Failure, Kind, Session};
use storage::{Crashing, Embedded, Engine, Memory, OrderedStore, RangeStore, Torn};

use crate::history::{Dice, History, LISTS, Step, Transaction, numbers};
use crate::support::{
    self, BY_PK, Documents, Status, by_pk_with, create, create_container, delete, distributed,
    patch_by, read, replace, upsert,
};

const X: &str = r#"["x"]"#;
const Y: &str = r#"["y"]"#;
const Z: &str = r#"["z"]"#;

/// A container `c` of three ranges and one named `other`.
async fn two_containers() -> Documents<Embedded> {
    let documents = Documents::with_ranges(BY_PK, 3).await;
    let unique = by_pk_with(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#);
    create_container(&documents.db, "other", &unique, None).await;
    documents
}

fn statuses(outcome: &DistributedOutcome) -> Vec<Status> {
    let results = outcome.results.iter().map(|result| &result.result);
    results.map(|result| (result.status, result.substatus)).collect()
}

impl<S: RangeStore> Documents<S> {
    async fn span(
        &self,
        token: &str,
        operations: Vec<DistributedOperation>,
    ) -> Result<DistributedOutcome, Failure> {
        self.db.write_distributed(token, operations).await
    }

    fn other(&self, at: &str, id: &str) -> String {
        let container = self.db.container("d", "other").unwrap();
        let (db, clock) = (self.db.clone(), self.clock.clone());
        Documents { db, clock, container }.user_text(at, id)
    }
}

#[tokio::test]
async fn everything_is_done_at_once() {
    let documents = two_containers().await;
    for at in ["x", "y", "z"] {
        let body = format!(r#"{{"id":"old","pk":"{at}","n":1}}"#);
        documents.must(&format!("[\"{at}\"]"), create(&body)).await;
    }
    let operations = vec![
        distributed("c", X, create(r#"{"id":"new","pk":"x"}"#)),
        distributed("other", X, upsert(r#"{"id":"new","pk":"x","u":1}"#)),
        distributed("c", Y, patch_by("old", r#"[{"op":"incr","path":"/n","value":1}]"#)),
        distributed("c", Z, delete("old")),
        distributed("c", X, replace("old", r#"{"id":"old","pk":"x","n":9}"#)),
    ];
    let outcome = documents.span("token", operations).await.unwrap();
    assert!(outcome.is_done);
    assert_eq!(statuses(&outcome), [(201, 0), (201, 0), (200, 0), (204, 0), (200, 0)]);
    assert_eq!(documents.user_text(X, "old"), r#"{"id":"old","pk":"x","n":9}"#);
    assert_eq!(documents.user_text(Y, "old"), r#"{"id":"old","pk":"y","n":2}"#);
    assert_eq!(documents.user_text(Z, "old"), "404");
    assert_eq!(documents.other(X, "new"), r#"{"id":"new","pk":"x","u":1}"#);
    // What the client is told is good for what it does next.
    let [new, other, patched, deleted, _] = &outcome.results[..] else { panic!("five results") };
    let read = documents.read(X, "new").unwrap();
    assert_eq!((read.etag, Some(read.at.token())), (new.result.etag.clone(), token(new)));
    assert_ne!(token(new), token(other));
    assert!(patched.result.etag.is_some() && deleted.result.etag.is_none());
    assert!(outcome.results.iter().all(|result| result.result.document.is_none()));
    assert!(outcome.charge.ru() > 20.0, "{:?}", outcome.charge);
    documents.verify();
}

fn token(result: &db::DistributedResult) -> Option<String> {
    result.at.as_ref().map(db::Position::token)
}

#[tokio::test]
async fn whatever_stands_in_the_way_leaves_nothing() {
    let documents = two_containers().await;
    documents.must(X, create(r#"{"id":"old","pk":"x","n":1}"#)).await;
    let taken = vec![distributed("other", X, create(r#"{"id":"u","pk":"x","u":1}"#))];
    documents.span("taken", taken).await.unwrap();
    let fine = || distributed("c", Y, create(r#"{"id":"new","pk":"y"}"#));
    let mut conditional = distributed("c", X, delete("old"));
    conditional.conditions = support::if_match("\"no\"");
    let mut moved = distributed("c", X, create(r#"{"id":"new","pk":"x"}"#));
    moved.intended = Some("AAAAAAAAAAA=".to_owned());
    let mut named = distributed("c", X, create(r#"{"id":"new","pk":"x"}"#));
    named.id = "another".to_owned();
    let mut renamed = distributed("c", X, replace("old", r#"{"id":"renamed","pk":"x"}"#));
    renamed.id = "old".to_owned();
    let condition = r#"{"condition":"FROM c WHERE c.n > 1",
        "operations":[{"op":"incr","path":"/n","value":1}]}"#;
    for (number, (culprit, expected)) in [
        (distributed("c", X, create(r#"{"id":"old","pk":"x"}"#)), (409, 0)),
        (distributed("c", Z, delete("old")), (404, 0)),
        (distributed("other", X, upsert(r#"{"id":"v","pk":"x","u":1}"#)), (409, 3301)),
        (distributed("c", X, create(r#"{"id":"new","pk":"z"}"#)), (400, 1001)),
        (distributed("none", X, create(r#"{"id":"new","pk":"x"}"#)), (404, 1003)),
        (distributed("c", X, patch_by("old", condition)), (412, 1110)),
        (conditional, (412, 0)),
        (moved, (400, 1024)),
        (named, (400, 0)),
        (renamed, (400, 0)),
    ]
    .into_iter()
    .enumerate()
    {
        for is_first in [false, true] {
            let mut operations = vec![fine(), culprit.clone()];
            let mut told = vec![(453, 5415), expected];
            if is_first {
                operations.reverse();
                told.reverse();
            }
            let outcome = documents.span(&format!("{number}"), operations).await.unwrap();
            assert_eq!((outcome.is_done, statuses(&outcome)), (false, told), "{culprit:?}");
            assert_eq!(documents.user_text(Y, "new"), "404");
            assert_eq!(documents.user_text(X, "old"), r#"{"id":"old","pk":"x","n":1}"#);
        }
    }
    // What was refused may be tried again under the same token.
    documents.must(Z, create(r#"{"id":"old","pk":"z"}"#)).await;
    let again = vec![fine(), distributed("c", Z, delete("old"))];
    assert!(documents.span("1", again).await.unwrap().is_done);
    documents.verify();
}

#[tokio::test]
async fn what_is_no_transaction_is_refused() {
    let documents = two_containers().await;
    let write = || distributed("c", X, upsert(r#"{"id":"a","pk":"x"}"#));
    let look = || distributed("c", X, read("a"));
    let kind = |result: Result<DistributedOutcome, Failure>| result.unwrap_err().error.kind;
    assert_eq!(kind(documents.span("1", vec![]).await), Kind::TransactionInvalid);
    let mixed = vec![write(), look()];
    assert_eq!(kind(documents.span("1", mixed.clone()).await), Kind::TransactionInvalid);
    assert_eq!(kind(documents.db.read_distributed(mixed).await), Kind::TransactionInvalid);
    let many = vec![write(); 101];
    assert_eq!(kind(documents.span("1", many).await), Kind::TransactionTooLong);
    assert!(documents.span("1", vec![write(); 100]).await.unwrap().is_done);
}

#[tokio::test]
async fn a_token_is_good_for_one_transaction() {
    let documents = two_containers().await;
    let operations = || {
        vec![
            distributed("c", X, create(r#"{"id":"a","pk":"x"}"#)),
            distributed("other", Y, upsert(r#"{"id":"a","pk":"y","u":1}"#)),
        ]
    };
    let first = documents.span("token", operations()).await.unwrap();
    documents.must(X, delete("a")).await;
    for _ in 0..3 {
        let again = documents.span("token", operations()).await.unwrap();
        assert_eq!(format!("{again:?}"), format!("{first:?}"));
    }
    assert_eq!(documents.user_text(X, "a"), "404", "it was not done again");
    // After a day nobody asks any more, and the server need not know.
    documents.advance_s(24 * 60 * 60 + 1);
    for other in 0..2 {
        let write = vec![distributed("c", Z, upsert(r#"{"id":"a","pk":"z"}"#))];
        documents.span(&format!("other{other}"), write).await.unwrap();
    }
    assert!(documents.span("token", operations()).await.unwrap().is_done);
    assert_eq!(documents.user_text(X, "a"), r#"{"id":"a","pk":"x"}"#);
    documents.verify();
}

/// Clients that get no answer in time ask again while the first attempt is still under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_token_at_the_same_time_is_one_transaction() {
    let documents = Arc::new(two_containers().await);
    for round in 0..20 {
        let attempts: Vec<_> = (0..8)
            .map(|_| {
                let documents = documents.clone();
                let body = format!(r#"{{"id":"{round}","pk":"x"}}"#);
                let operations = vec![
                    distributed("c", Y, upsert(&body.replace('x', "y"))),
                    distributed(
                        "other",
                        X,
                        create(&format!(r#"{{"id":"{round}","pk":"x","u":{round}}}"#)),
                    ),
                    distributed("c", X, create(&body)),
                ];
                let token = format!("token{round}");
                tokio::spawn(async move { documents.span(&token, operations).await.unwrap() })
            })
            .collect();
        let mut told = Vec::new();
        for attempt in attempts {
            told.push(format!("{:?}", attempt.await.unwrap()));
        }
        assert!(told[0].contains("is_done: true"), "{}", told[0]);
        assert!(told.iter().all(|other| *other == told[0]), "{told:?}");
    }
    documents.verify();
}

#[tokio::test]
async fn reads_are_shown_together_or_not_at_all() {
    let documents = two_containers().await;
    let first = documents.must(X, create(r#"{"id":"a","pk":"x"}"#)).await;
    documents.must(Y, create(r#"{"id":"a","pk":"y"}"#)).await;
    let both = || vec![distributed("c", X, read("a")), distributed("c", Y, read("a"))];
    let reads = |operations| documents.db.read_distributed(operations);
    let found = reads(both()).await.unwrap();
    assert_eq!((found.is_done, statuses(&found)), (true, vec![(200, 0), (200, 0)]));
    let text = |at: usize| found.results[at].result.document.as_ref().unwrap().text();
    assert_eq!(text(0), documents.read(X, "a").unwrap().document.unwrap().text());
    assert_eq!(token(&found.results[0]), Some(first.at.token()));

    let mut known = both();
    known[0].conditions = support::if_none_match(&first.etag.unwrap());
    let found = reads(known).await.unwrap();
    assert_eq!((found.is_done, statuses(&found)), (true, vec![(304, 0), (200, 0)]));

    let mut missing = both();
    missing.push(distributed("c", Z, read("a")));
    missing.push(distributed("none", Z, read("a")));
    let found = reads(missing).await.unwrap();
    assert!(!found.is_done);
    assert_eq!(statuses(&found), [(424, 0), (424, 0), (404, 0), (404, 1003)]);
    assert!(found.results.iter().all(|read| read.result.document.is_none()));

    let mut ahead = both();
    ahead[1].session = Some(Session::parse("0:-1#99,1:-1#99,2:-1#99").unwrap());
    assert_eq!(statuses(&reads(ahead).await.unwrap()), [(424, 0), (404, 1002)]);

    // Reading changes nothing, not even what has expired.
    let before = documents.read(X, "a").unwrap().at.lsn;
    reads(both()).await.unwrap();
    assert_eq!(documents.read(X, "a").unwrap().at.lsn, before);
    documents.verify();
}

#[tokio::test]
async fn reads_leave_what_has_expired() {
    let documents = Documents::new(&by_pk_with(r#""defaultTtl":10"#)).await;
    let created = documents.must(X, create(r#"{"id":"a","pk":"x"}"#)).await;
    documents.advance_s(11);
    let look = || vec![distributed("c", X, read("a"))];
    let found = documents.db.read_distributed(look()).await.unwrap();
    assert_eq!(statuses(&found), [(404, 0)]);
    assert_eq!(token(&found.results[0]), Some(created.at.token()));
    documents.verify();
}

/// Splits and merges the ranges of a container until it is over; how often.
async fn recut(db: &Arc<db::Db<Embedded>>, name: &str, is_over: &AtomicBool) -> usize {
    let mut count = 0;
    while !is_over.load(Ordering::SeqCst) || count == 0 {
        let container = db.container("d", name).unwrap();
        let ranges = db.partition_key_ranges(&container).unwrap().ranges;
        let id = |at: usize| ranges[at].get("id").unwrap().as_str().unwrap();
        if ranges.len() < 4 {
            db.split_range(&container, id(count % ranges.len()), None).await.unwrap();
        } else {
            let at = count % (ranges.len() - 1);
            db.merge_ranges(&container, id(at), id(at + 1)).await.unwrap();
        }
        count += 1;
    }
    count
}

/// Whoever looks sees the money of all accounts, in whatever container and range they are, while
/// the ranges are cut anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn transfers_between_containers_keep_the_total() {
    const ACCOUNTS: [(&str, &str); 4] = [("c", X), ("c", Y), ("other", X), ("c", Z)];
    let documents = Arc::new(two_containers().await);
    for (at, (container, key)) in ACCOUNTS.iter().enumerate() {
        let body = format!(r#"{{"id":"a","pk":{},"u":{at},"n":100}}"#, &key[1..key.len() - 1]);
        let open = vec![distributed(container, key, create(&body))];
        assert!(documents.span(&format!("open{at}"), open).await.unwrap().is_done);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..6_u64)
        .map(|client| {
            let documents = documents.clone();
            tokio::spawn(async move {
                let mut dice = Dice(client);
                for round in 0..30 {
                    let from = dice.roll(4) as usize;
                    let to = (from + 1 + dice.roll(3) as usize) % 4;
                    let amount = 1 + dice.roll(40);
                    let take = format!(
                        r#"{{"condition":"FROM c WHERE c.n >= {amount}",
                            "operations":[{{"op":"incr","path":"/n","value":-{amount}}}]}}"#
                    );
                    let give = format!(r#"[{{"op":"incr","path":"/n","value":{amount}}}]"#);
                    let part = |at: usize, change: &str| {
                        let (container, key) = ACCOUNTS[at];
                        distributed(container, key, patch_by("a", change))
                    };
                    let operations = vec![part(to, &give), part(from, &take)];
                    let told = documents.span(&format!("{client}-{round}"), operations).await;
                    let told = statuses(&told.unwrap());
                    let expected = [vec![(200, 0); 2], vec![(453, 5415), (412, 1110)]];
                    assert!(expected.contains(&told), "{told:?}");
                }
            })
        })
        .collect();
    let cutting = {
        let (db, is_over) = (documents.db.clone(), is_over.clone());
        tokio::spawn(async move { recut(&db, "c", &is_over).await })
    };
    let looking = {
        let (documents, is_over) = (documents.clone(), is_over.clone());
        tokio::spawn(async move {
            let mut looks = 0;
            while !is_over.load(Ordering::SeqCst) || looks == 0 {
                let reads =
                    ACCOUNTS.iter().map(|(container, key)| distributed(container, key, read("a")));
                let found = documents.db.read_distributed(reads.collect()).await.unwrap();
                let amount = |read: &db::DistributedResult| {
                    let document = read.result.document.as_ref().unwrap();
                    document.field("n").unwrap().parse::<i64>().unwrap()
                };
                assert_eq!(found.results.iter().map(amount).sum::<i64>(), 400);
                looks += 1;
            }
        })
    };
    for client in clients {
        client.await.unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    looking.await.unwrap();
    assert!(cutting.await.unwrap() > 1, "ranges are cut anew meanwhile");
    documents.verify();
}

/// Appends to lists in different containers and partitions and reads them, all at once: there must be
/// one order in which that can have happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_after_the_other_across_partitions() {
    const PLACES: [(&str, &str); LISTS] = [("c", X), ("c", Y), ("other", X), ("other", Y)];
    for seed in 0..8 {
        let documents = Arc::new(two_containers().await);
        let empty = PLACES.iter().enumerate().map(|(at, (container, key))| {
            let body =
                format!(r#"{{"id":"l","pk":{},"u":{at},"list":[]}}"#, &key[1..key.len() - 1]);
            distributed(container, key, create(&body))
        });
        documents.span("empty", empty.collect()).await.unwrap();
        let time = Arc::new(AtomicU64::new(0));
        let clients: Vec<_> = (0..4_u64)
            .map(|client| {
                let (documents, time) = (documents.clone(), time.clone());
                let mut dice = Dice(seed * 4 + client);
                tokio::spawn(async move {
                    let mut done = Vec::new();
                    for round in 0..25 {
                        let number = client * 1_000 + round;
                        let mut lists: Vec<usize> =
                            (0..1 + dice.roll(3)).map(|_| dice.list()).collect();
                        lists.sort_unstable();
                        lists.dedup();
                        let is_read = dice.roll(2) == 0;
                        let began = time.fetch_add(1, Ordering::SeqCst);
                        let operations = lists.iter().map(|list| {
                            let (container, key) = PLACES[*list];
                            let add =
                                format!(r#"[{{"op":"add","path":"/list/-","value":{number}}}]"#);
                            let write = if is_read { read("l") } else { patch_by("l", &add) };
                            distributed(container, key, write)
                        });
                        let operations = operations.collect();
                        let steps: Vec<Step> = if is_read {
                            let found = documents.db.read_distributed(operations).await.unwrap();
                            let seen = found.results.iter().map(|read| {
                                let document = read.result.document.as_ref().unwrap().to_value();
                                numbers(document.get("list").unwrap())
                            });
                            lists
                                .iter()
                                .zip(seen)
                                .map(|(list, seen)| Step::Read { list: *list, seen })
                                .collect()
                        } else {
                            let told =
                                documents.span(&number.to_string(), operations).await.unwrap();
                            assert!(told.is_done);
                            lists.iter().map(|list| Step::Append { list: *list, number }).collect()
                        };
                        let ended = Some(time.fetch_add(1, Ordering::SeqCst));
                        done.push(Transaction { began, ended, steps });
                    }
                    done
                })
            })
            .collect();
        let mut history = History::default();
        for client in clients {
            history.transactions.extend(client.await.unwrap());
        }
        let reads = PLACES.iter().map(|(container, key)| distributed(container, key, read("l")));
        let found = documents.db.read_distributed(reads.collect()).await.unwrap();
        for read in &found.results {
            let document = read.result.document.as_ref().unwrap().to_value();
            history.lists.push(numbers(document.get("list").unwrap()));
        }
        history.check().unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        documents.verify();
    }
}

/// Does a transaction and asks again under the same token, as a client does that got no answer.
async fn transact<O: OrderedStore>(store: O) -> Option<DistributedOutcome> {
    let engine = Engine::with_store(store).ok()?;
    let db = db::Db::open(Arc::new(engine), support::clock(), &db::CountingIds::default()).await;
    let db = db.ok()?;
    if db.container("d", "two").is_err() {
        let _ = db.create_database(&support::object(r#"{"id":"d"}"#), None).await;
        for name in ["one", "two"] {
            let mut body = support::object(BY_PK);
            body.insert("id", name);
            let _ = db.create_container("d", &body, None, false).await;
        }
    }
    let operations = vec![
        distributed("one", X, create(r#"{"id":"a","pk":"x"}"#)),
        distributed("two", X, create(r#"{"id":"a","pk":"x"}"#)),
    ];
    let told = db.write_distributed("token", operations).await.ok()?;
    // A server that has crashed since cannot be looked at.
    if let Ok(verified) = db.verify(|_| {}) {
        assert_eq!(verified.problems, Vec::<String>::new());
    }
    Some(told)
}

/// Whenever the server dies, the client that asks again finds the transaction done once.
#[test]
fn a_token_survives_every_crash() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for torn in [Torn::Kept, Torn::Lost] {
        let mut replayed = 0;
        for crash_at in 1.. {
            let crashing = Crashing::new(Memory::new(), crash_at, torn);
            let (survivor, calls) = (crashing.survivor(), crashing.calls());
            let first = runtime.block_on(transact(crashing));
            let again = runtime.block_on(transact(survivor.clone())).expect("the server is back");
            assert!(again.is_done, "{crash_at}: {again:?}");
            if let Some(first) = first.filter(|first| first.is_done) {
                assert_eq!(format!("{first:?}"), format!("{again:?}"));
                replayed += 1;
            }
            let last = runtime.block_on(transact(survivor)).expect("the server is back");
            assert_eq!(format!("{last:?}"), format!("{again:?}"));
            if calls() < crash_at {
                break;
            }
        }
        assert!(replayed > 0, "no crash came after the transaction");
    }
}
