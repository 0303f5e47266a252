//! Splits and merges: everything is where it was, for everybody, at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use db::{
    Conditions, Container, CountingIds, Db, Kind, Page, QueryText, RangeThroughput, Recut, Scope,
    Session,
};
use storage::RangeStore;
use value::{Epk, Object, Value};

use crate::support::{
    self, BY_PK, Documents, by_id, by_pk_with, create, delete, feed, key, object, patch_by, upsert,
    verify,
};

/// The ranges of a container as clients see them.
fn ranges<S: RangeStore>(db: &Db<S>, container: &Container) -> Vec<Object> {
    db.partition_key_ranges(container).unwrap().ranges
}

fn text(range: &Object, name: &str) -> String {
    range.get(name).and_then(Value::as_str).unwrap().to_owned()
}

impl<S: RangeStore> Documents<S> {
    async fn split(&mut self, range: &str) -> Recut {
        let recut = self.db.split_range(&self.container, range, None).await.unwrap();
        self.container = self.db.container("d", "c").unwrap();
        recut
    }

    async fn merge(&mut self, one: &str, other: &str) -> Recut {
        let recut = self.db.merge_ranges(&self.container, one, other).await.unwrap();
        self.container = self.db.container("d", "c").unwrap();
        recut
    }

    fn rows(&self) -> BTreeSet<String> {
        let rows = feed(&self.db, &self.container, &Scope::default(), None);
        rows.iter().map(Value::to_text).collect()
    }
}

fn recut(old: &[&str], new: &[&str]) -> Recut {
    let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    Recut { old: owned(old), new: owned(new) }
}

/// The rows of a query, a few a page, while the ranges are cut anew between the pages.
#[tokio::test]
async fn what_is_answered_in_turns_goes_on_across_splits_and_merges() {
    let mut documents = filled().await;
    documents.split("0").await;
    let query = QueryText { text: "SELECT VALUE c.id FROM c".to_owned(), ..QueryText::default() };
    let scope = Scope { cross_partition: true, ..Scope::default() };
    let whole = documents.db.query(&documents.container, &query, &scope, &Page::default(), None);
    let mut expected: Vec<String> =
        (whole.unwrap().rows.iter()).map(|row| String::from_utf8(row.to_vec()).unwrap()).collect();
    expected.sort();
    assert!(expected.len() >= 40, "{expected:?}");
    for items_max in [1, 3, 7, 100] {
        let (mut rows, mut continuation) = (Vec::new(), None);
        for page_number in 0.. {
            let items_max = Some(items_max);
            let page = Page { items_max, continuation, client_merges: true, ..Page::default() };
            let answer = documents.db.query(&documents.container, &query, &scope, &page, None);
            let answer = answer.map_err(|failure| failure.error).unwrap();
            rows.extend(answer.rows.iter().map(|row| String::from_utf8(row.to_vec()).unwrap()));
            continuation = answer.continuation;
            if continuation.is_none() {
                break;
            }
            let ids: Vec<String> = ranges(&documents.db, &documents.container)
                .iter()
                .map(|range| text(range, "id"))
                .collect();
            match page_number % 3 {
                0 if ids.len() < 6 => drop(documents.split(&ids[ids.len() / 2]).await),
                1 if ids.len() > 1 => drop(documents.merge(&ids[0], &ids[1]).await),
                _ => {}
            }
        }
        rows.sort();
        assert_eq!(rows, expected, "in pages of {items_max}");
    }
}

const EVERYTHING: &str = r#""defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]},
    "changeFeedPolicy":{"retentionDuration":60},
    "previousImageRetentionPolicy":{"supportedFeatures":{"allVersionsAndDeletes":{"mode":3}}}"#;

async fn filled() -> Documents<storage::Embedded> {
    let documents = Documents::new(&by_pk_with(EVERYTHING)).await;
    for number in 0..40 {
        let body = format!(r#"{{"id":"{number}","pk":{},"u":{number},"n":0}}"#, number % 10);
        documents.must(&format!("[{}]", number % 10), create(&body)).await;
    }
    documents.must("[3]", create(r#"{"id":"brief","pk":3,"u":"b","ttl":5}"#)).await;
    documents
}

#[tokio::test]
async fn documents_stay_as_they_were() {
    let mut documents = filled().await;
    let before = documents.rows();
    let split = documents.split("0").await;
    assert_eq!(split, recut(&["0"], &["1", "2"]));
    assert_eq!(documents.rows(), before);
    documents.verify();
    let split = documents.split("2").await;
    assert_eq!(split, recut(&["2"], &["3", "4"]));
    let merged = documents.merge("3", "1").await;
    assert_eq!(merged, recut(&["1", "3"], &["5"]));
    assert_eq!(documents.rows(), before);
    documents.verify();
    let seen: Vec<_> = ranges(&documents.db, &documents.container)
        .iter()
        .map(|range| {
            let parents = range.get("parents").unwrap().to_text();
            (text(range, "id"), text(range, "minInclusive"), text(range, "maxExclusive"), parents)
        })
        .collect();
    let cut = &seen[1].1;
    let expected = [("5", "", &cut[..], r#"["0","2","1","3"]"#), ("4", cut, "FF", r#"["0","2"]"#)];
    let expected = expected.map(|(id, min, max, parents)| {
        (id.to_owned(), min.to_owned(), max.to_owned(), parents.to_owned())
    });
    assert_eq!(seen, expected);
    // Everything that hangs on a document goes on: its unique keys, its time to live.
    let taken = documents.write("[3]", create(r#"{"id":"x","pk":3,"u":13}"#)).await;
    assert_eq!(taken.unwrap_err().error.kind, Kind::UniqueConflict);
    documents.advance_s(5);
    assert_eq!(documents.db.sweep().await.unwrap().expired, 1);
    documents.must("[3]", create(r#"{"id":"x","pk":3,"u":"b"}"#)).await;
    documents.verify();
}

#[tokio::test]
async fn a_range_that_is_gone_is_named_as_such() {
    let mut documents = filled().await;
    documents.split("0").await;
    let scope = Scope { range: Some("0".to_owned()), ..Scope::default() };
    let page = documents.db.read_feed(&documents.container, &scope, &Page::default(), None);
    let error = page.unwrap_err().error;
    assert_eq!((error.kind.status(), error.kind.substatus()), (410, 1002));
    let again = documents.db.split_range(&documents.container, "0", None).await;
    assert_eq!(again.unwrap_err().kind, Kind::RangeGone);
    let apart = documents.db.merge_ranges(&documents.container, "1", "1").await;
    assert_eq!(apart.unwrap_err().kind, Kind::BadRequest);
    for at in ["", "FF", "FF00"] {
        let at = Some(Epk::parse(at).unwrap());
        let outside = documents.db.split_range(&documents.container, "1", at).await;
        assert_eq!(outside.unwrap_err().kind, Kind::BadRequest);
    }
}

/// Versions go on: what a client has seen of a range is never ahead of the ranges that follow it.
#[tokio::test]
async fn sessions_go_on() {
    let mut documents = Documents::new(BY_PK).await;
    // One partition has many more commits than the copy will need.
    for round in 0..200 {
        documents.must("[1]", upsert(&format!(r#"{{"id":"a","pk":1,"n":{round}}}"#))).await;
    }
    let written = documents.must("[2]", upsert(r#"{"id":"a","pk":2}"#)).await;
    let session = Session::parse(&written.at.token()).unwrap();
    documents.split("0").await;
    documents.must("[1]", upsert(r#"{"id":"a","pk":1,"n":"after"}"#)).await;
    for merged in [false, true] {
        if merged {
            documents.merge("1", "2").await;
        }
        for (at, lsn_min) in [("[1]", written.at.lsn), ("[2]", written.at.lsn)] {
            let (container, none) = (&documents.container, Conditions::default());
            let read =
                documents.db.read(container, Some(&key(at)), &by_id("a"), &none, Some(&session));
            assert!(read.unwrap().at.lsn >= lsn_min);
        }
    }
    documents.verify();
}

/// Pages that began before a split go on after it, with the tokens that they had.
#[tokio::test]
async fn pages_go_on() {
    for text in [
        "SELECT VALUE c.id FROM c",
        "SELECT VALUE c.id FROM c WHERE c.u >= 10",
        "SELECT VALUE c.id FROM c ORDER BY c.u",
        "SELECT DISTINCT VALUE c.pk FROM c",
    ] {
        let query = QueryText { text: text.to_owned(), ..QueryText::default() };
        let scope = Scope { cross_partition: true, ..Scope::default() };
        let documents = filled().await;
        let all = |documents: &Documents<_>, first: Option<(Vec<String>, Option<String>)>| {
            let (mut rows, mut continuation) = first.unwrap_or_default();
            loop {
                let page = Page { items_max: Some(3), continuation, ..Page::default() };
                let (db, container) = (&documents.db, &documents.container);
                let page = db.query(container, &query, &scope, &page, None).unwrap();
                rows.extend(page.rows.iter().map(|row| String::from_utf8(row.to_vec()).unwrap()));
                continuation = page.continuation;
                if continuation.is_none() {
                    return rows;
                }
            }
        };
        let expected = all(&documents, None);
        let page = Page { items_max: Some(7), ..Page::default() };
        let (db, container) = (&documents.db, &documents.container);
        let first = db.query(container, &query, &scope, &page, None).unwrap();
        let rows = first.rows.iter().map(|row| String::from_utf8(row.to_vec()).unwrap()).collect();
        let mut documents = documents;
        documents.split("0").await;
        documents.split("1").await;
        let went_on = all(&documents, Some((rows, first.continuation)));
        assert_eq!(went_on, expected, "{text}");
    }
}

/// A client that reads range by range takes the token of a range to the ranges that it became.
#[tokio::test]
async fn pages_of_a_range_go_on_in_its_children() {
    let documents = filled().await;
    let scope = |range: &str| Scope { range: Some(range.to_owned()), ..Scope::default() };
    let query = QueryText {
        text: "SELECT VALUE c.id FROM c WHERE c.u >= 5".to_owned(),
        ..QueryText::default()
    };
    let page = Page { items_max: Some(11), ..Page::default() };
    let (db, container) = (&documents.db, &documents.container);
    let first = db.query(container, &query, &scope("0"), &page, None).unwrap();
    let mut seen: Vec<_> = first.rows.iter().map(|row| row.to_vec()).collect();
    let mut documents = documents;
    documents.split("0").await;
    for child in ["1", "2"] {
        let mut continuation = first.continuation.clone();
        loop {
            let page = Page { items_max: Some(4), continuation, ..Page::default() };
            let (db, container) = (&documents.db, &documents.container);
            let next = db.query(container, &query, &scope(child), &page, None).unwrap();
            seen.extend(next.rows.iter().map(|row| row.to_vec()));
            continuation = next.continuation;
            if continuation.is_none() {
                break;
            }
        }
    }
    let distinct: BTreeSet<_> = seen.iter().collect();
    assert_eq!((seen.len(), distinct.len()), (35, 35));
}

/// Two ranges that have documents of the same versions become one, in which each keeps its etag.
#[tokio::test]
async fn merged_documents_keep_their_etags() {
    let mut documents = Documents::with_ranges(BY_PK, 2).await;
    for pk in 0..20 {
        let at = format!("[{pk}]");
        let writes = (0..3).map(|id| create(&format!(r#"{{"id":"{id}","pk":{pk},"n":0}}"#)));
        documents.batch(&at, writes.collect()).await;
    }
    let before = documents.rows();
    documents.merge("0", "1").await;
    assert_eq!(documents.rows(), before);
    documents.verify();
    for pk in 0..20 {
        let at = format!("[{pk}]");
        let etag = documents.read(&at, "1").unwrap().etag.unwrap();
        let increment = patch_by("1", r#"[{"op":"incr","path":"/n","value":1}]"#);
        let written = documents.write_if(&at, increment, support::if_match(&etag)).await.unwrap();
        assert_ne!(written.etag.unwrap(), etag);
    }
    documents.verify();
}

/// A split that is under way when the policy changes starts again, and nothing is lost.
#[tokio::test]
async fn a_changed_policy_holds_in_the_new_ranges() {
    let mut documents = filled().await;
    let splitting = {
        let (db, container) = (documents.db.clone(), documents.container.clone());
        tokio::spawn(async move { db.split_range(&container, "0", None).await })
    };
    let policy =
        r#""indexingPolicy":{"includedPaths":[{"path":"/n/?"}],"excludedPaths":[{"path":"/*"}]}"#;
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    documents.redefine(&by_pk_with(&format!("{EVERYTHING},{policy}"))).await;
    splitting.await.unwrap().unwrap();
    documents.container = documents.db.container("d", "c").unwrap();
    documents.db.sweep().await.unwrap();
    assert_eq!(documents.container.range_count(), 2);
    documents.verify();
}

/// A write that is refused comes after one that is not, to the same document, until the range is gone.
#[tokio::test]
async fn a_refused_write_hides_no_other() {
    for _ in 0..10 {
        let documents = filled().await;
        let splitting = {
            let (db, container) = (documents.db.clone(), documents.container.clone());
            tokio::spawn(async move { db.split_range(&container, "0", None).await })
        };
        let mut written = 0;
        while !splitting.is_finished() {
            let container = documents.db.container("d", "c").unwrap();
            let (at, none) = (key("[1]"), Conditions::default());
            let increment = patch_by("1", r#"[{"op":"incr","path":"/n","value":1}]"#);
            let batch = vec![increment.clone(), create(r#"{"id":"1","pk":1,"u":"x"}"#)];
            let batch = batch.into_iter().map(support::operation).collect();
            let (done, refused) = tokio::join!(
                documents.db.write(&container, Some(&at), increment, none),
                documents.db.batch(&container, &at, batch, None)
            );
            done.unwrap();
            assert_eq!(support::statuses(&refused.unwrap()), [424, 409]);
            written += 1;
        }
        splitting.await.unwrap().unwrap();
        let container = documents.db.container("d", "c").unwrap();
        let documents = Documents { container, ..documents };
        let expected = format!(r#"{{"id":"1","pk":1,"u":1,"n":{written}}}"#);
        assert_eq!(documents.user_text("[1]", "1"), expected);
        documents.verify();
    }
}

/// Where ranges serve less, containers have more of them: new ones at once, older ones soon.
#[tokio::test]
async fn ranges_may_serve_less() {
    let store = Arc::new(storage::Embedded::in_memory());
    let open = async |units: i64| {
        let (each, ids) = (RangeThroughput::new(units).unwrap(), CountingIds::default());
        Db::open_with(store.clone(), support::clock(), &ids, each).await.unwrap()
    };
    let db = open(10_000).await;
    assert_eq!(support::create_container(&db, "old", BY_PK, None).await.range_count(), 1);
    let db = open(100).await;
    assert_eq!(support::create_container(&db, "new", BY_PK, None).await.range_count(), 4);
    assert!(db.is_scaling(&db.container("d", "old").unwrap()));
    db.fit_ranges().await.unwrap();
    assert_eq!(db.container("d", "old").unwrap().range_count(), 4);
    // What is cut stays cut.
    let db = open(10_000).await;
    db.fit_ranges().await.unwrap();
    assert_eq!(db.container("d", "new").unwrap().range_count(), 4);
}

/// Raised throughput asks for more ranges, and lowered throughput leaves them.
#[tokio::test]
async fn throughput_splits() {
    let documents = filled().await;
    let before = documents.rows();
    let (db, container) = (&documents.db, &documents.container);
    let offer = db.offers().into_iter().next().unwrap();
    for (throughput, count) in [(25_000, 3), (400, 3), (40_000, 4)] {
        let mut body = Object::clone(&offer.body);
        body.insert("content", Value::Object(Object::from([("offerThroughput", throughput)])));
        db.replace_offer(&offer.rid, &body, None, None).await.unwrap();
        db.fit_ranges().await.unwrap();
        let container = db.container("d", "c").unwrap();
        assert!(!db.is_scaling(&container));
        assert_eq!(container.range_count(), count);
    }
    assert_eq!(container.range_count(), 1, "who has the old container sees the old ranges");
    let documents = Documents { container: db.container("d", "c").unwrap(), ..documents };
    assert_eq!(documents.rows(), before);
    documents.verify();
}

const CLIENTS: i64 = 8;
const ROUNDS: i64 = 60;

/// What one client does: it increments its counters, creates and deletes beside them, and calls a
/// procedure. Every request finds its container anew, as requests of the gateway do.
async fn work<S: RangeStore>(db: Arc<Db<S>>, client: i64) {
    for round in 0..ROUNDS {
        let container = db.container("d", "c").unwrap();
        let at = key(&format!("[{}]", (client + round) % 12));
        let pk = (client + round) % 12;
        let none = Conditions::default();
        let increment = patch_by("counter", r#"[{"op":"incr","path":"/n","value":1}]"#);
        db.write(&container, Some(&at), increment, none.clone()).await.unwrap();
        let body = format!(r#"{{"id":"{client}-{round}","pk":{pk},"u":"{client}-{round}"}}"#);
        let created = db.write(&container, Some(&at), create(&body), none.clone()).await.unwrap();
        // What was acknowledged is there for whoever asks next, wherever it is by then.
        let container = db.container("d", "c").unwrap();
        let session = Session::parse(&created.at.token()).unwrap();
        let id = by_id(&format!("{client}-{round}"));
        db.read(&container, Some(&at), &id, &none, Some(&session)).unwrap();
        if round % 2 == 0 {
            let gone = delete(&format!("{client}-{round}"));
            db.write(&container, Some(&at), gone, none.clone()).await.unwrap();
        }
        if round % 5 == 0 {
            count(&db, &container, &at).await;
        }
    }
}

/// Calls the procedure until it wins against the others who write the same counter.
async fn count<S: RangeStore>(db: &Db<S>, container: &Arc<Container>, at: &value::PartitionKey) {
    loop {
        let call = db::Call {
            procedure: "count".to_owned(),
            parameters: String::new(),
            headers: Vec::new(),
            is_logging: false,
        };
        match db.execute(container, Some(at), call, None).await {
            Ok(_) => return,
            Err(failure) => assert_eq!(failure.error.kind, Kind::RetryWith),
        }
    }
}

async fn under_load<S: RangeStore>(db: Arc<Db<S>>) {
    let container = support::container(&db, &by_pk_with(EVERYTHING)).await;
    let procedure = object(
        r#"{"id":"count","body":"function () {
            const c = getContext().getCollection(), link = c.getAltLink() + '/docs/counter';
            c.patchDocument(link, [{op: 'incr', path: '/n', value: 1}],
                (error) => { if (error) throw error; });
        }"}"#
            .replace('\n', " ")
            .as_str(),
    );
    db.create_script(&container, value::ScriptKind::Procedure, &procedure).await.unwrap();
    for pk in 0..12 {
        let body = format!(r#"{{"id":"counter","pk":{pk},"u":"counter","n":0}}"#);
        db.write(&container, None, create(&body), Conditions::default()).await.unwrap();
    }
    let is_done = Arc::new(AtomicBool::new(false));
    let cutter = {
        let (db, is_done) = (db.clone(), is_done.clone());
        tokio::spawn(async move {
            let mut cuts = 0;
            while !is_done.load(Ordering::SeqCst) || cuts < 6 {
                let container = db.container("d", "c").unwrap();
                let ids: Vec<_> =
                    ranges(&db, &container).iter().map(|range| text(range, "id")).collect();
                if ids.len() < 4 {
                    db.split_range(&container, &ids[cuts % ids.len()], None).await.unwrap();
                } else {
                    let at = cuts % (ids.len() - 1);
                    db.merge_ranges(&container, &ids[at], &ids[at + 1]).await.unwrap();
                }
                cuts += 1;
            }
        })
    };
    let clients: Vec<_> =
        (0..CLIENTS).map(|client| tokio::spawn(work(db.clone(), client))).collect();
    for client in clients {
        client.await.unwrap();
    }
    is_done.store(true, Ordering::SeqCst);
    cutter.await.unwrap();
    let container = db.container("d", "c").unwrap();
    let mut expected: BTreeMap<i64, i64> = BTreeMap::new();
    for client in 0..CLIENTS {
        for round in 0..ROUNDS {
            let count = expected.entry((client + round) % 12).or_default();
            *count += 1 + i64::from(round % 5 == 0);
        }
    }
    let rows = feed(&db, &container, &Scope::default(), None);
    let counters: BTreeMap<i64, i64> = (rows.iter())
        .filter(|row| row.get("id") == Some(&Value::from("counter")))
        .map(|row| {
            let number = |name| row.get(name).and_then(Value::as_i64).unwrap();
            (number("pk"), number("n"))
        })
        .collect();
    assert_eq!(counters, expected);
    assert_eq!(rows.len() as i64, 12 + CLIENTS * ROUNDS / 2);
    verify(&db);
    // Nobody reads the old ranges any more.
    db.sweep().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_notices_in_memory() {
    let (db, _) = support::in_memory().await;
    under_load(db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_notices_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let clock = support::clock();
    let db = support::open(support::embedded(directory.path()), &clock).await;
    under_load(db.clone()).await;
    let rows = feed(&db, &db.container("d", "c").unwrap(), &Scope::default(), None);
    db.close().await.unwrap();
    drop(Arc::into_inner(db).expect("nobody else has the server"));
    let db = support::open(support::embedded(directory.path()), &clock).await;
    assert_eq!(feed(&db, &db.container("d", "c").unwrap(), &Scope::default(), None), rows);
    verify(&db);
}
