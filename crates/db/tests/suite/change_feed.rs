//! The change feed: what it gives, in which order, and from where.

use std::collections::BTreeMap;
use std::sync::Arc;

use db::{
    Change, ChangeKind, ChangeMode, ChangePage, ChangeRequest, ChangeStart, Container, Db, Failure,
    PreviousVersion, Scope,
};
use storage::RangeStore;
use value::{Epk, EpkRange, Object, Value};

use crate::support::{
    BY_PK, Documents, START_S, by_pk_with, create, delete, key, patch_by, replace, upsert, verify,
};

const X: &str = r#"["x"]"#;
const Y: &str = r#"["y"]"#;

/// Every version is kept for an hour.
pub(crate) fn recorded() -> String {
    by_pk_with(
        r#""changeFeedPolicy":{"retentionDuration":60},"defaultTtl":-1,
        "previousImageRetentionPolicy":{"supportedFeatures":{"allVersionsAndDeletes":{"mode":3}}}"#,
    )
}

pub(crate) fn latest(start: ChangeStart) -> ChangeRequest {
    ChangeRequest { mode: ChangeMode::LatestVersion, start, after_s: None, items_max: None }
}

pub(crate) fn all_versions(start: ChangeStart) -> ChangeRequest {
    ChangeRequest { mode: ChangeMode::AllVersions, ..latest(start) }
}

fn after(continuation: &str) -> ChangeStart {
    ChangeStart::After(continuation.to_owned())
}

fn of_key(text: &str) -> Scope {
    Scope { key: Some(key(text)), ..Scope::default() }
}

/// All changes that there are, read page by page, and where the next ones will be.
pub(crate) fn drain<S: RangeStore>(
    db: &Db<S>,
    container: &Arc<Container>,
    scope: &Scope,
    request: &ChangeRequest,
) -> (Vec<Change>, String) {
    let mut request = request.clone();
    let mut changes = Vec::new();
    for _ in 0..100_000 {
        let page = db.changes(container, scope, &request, None).unwrap_or_else(|f| panic!("{f:?}"));
        if page.changes.is_empty() {
            assert!(page.is_end, "an empty page is the last one");
            return (changes, page.continuation);
        }
        if let (Some(last), Some(first)) = (changes.last(), page.changes.first()) {
            let _: &Change = last;
            if container.range_count() == 1 {
                assert!(last.lsn < first.lsn, "a commit is never cut");
            }
        }
        changes.extend(page.changes);
        request.start = after(&page.continuation);
    }
    panic!("the feed does not end");
}

fn id_of(change: &Change) -> String {
    let text = change.current.as_ref().expect("the document is there");
    Value::parse(text).unwrap().get("id").unwrap().as_str().unwrap().to_owned()
}

fn ids(changes: &[Change]) -> Vec<String> {
    changes.iter().map(id_of).collect()
}

/// `create a`, `replace a`, `delete a`, `expire a`.
fn told(changes: &[Change]) -> Vec<String> {
    let tell = |change: &Change| {
        let version = change.version.as_ref().expect("all versions are told");
        let kind = match version.kind {
            ChangeKind::Create => "create",
            ChangeKind::Replace => "replace",
            ChangeKind::Delete => "delete",
            ChangeKind::Expire => "expire",
        };
        format!("{kind} {}", version.id)
    };
    changes.iter().map(tell).collect()
}

impl<S: RangeStore> Documents<S> {
    fn changes(&self, scope: &Scope, request: &ChangeRequest) -> Result<ChangePage, Failure> {
        self.db.changes(&self.container, scope, request, None)
    }

    fn drain(&self, scope: &Scope, request: &ChangeRequest) -> (Vec<Change>, String) {
        drain(&self.db, &self.container, scope, request)
    }

    fn now(&self, request: fn(ChangeStart) -> ChangeRequest) -> String {
        let page = self.changes(&Scope::default(), &request(ChangeStart::Now)).unwrap();
        assert!(page.changes.is_empty() && page.is_end);
        page.continuation
    }

    #[track_caller]
    fn refused(&self, scope: &Scope, request: &ChangeRequest, message: &str) {
        let failure = self.changes(scope, request).unwrap_err();
        assert_eq!(failure.error.kind.status(), 400);
        assert!(failure.error.message.contains(message), "{}", failure.error);
    }
}

/// Somebody who copies a container by its change feed, page by page and whenever there is time.
pub(crate) struct Follower {
    request: ChangeRequest,
    /// What the container should hold, by resource id.
    pub(crate) copy: BTreeMap<String, Object>,
}

impl Follower {
    /// Follows the latest versions from the beginning: what was deleted stays in the copy.
    pub(crate) fn of_latest() -> Follower {
        Follower { request: latest(ChangeStart::Beginning), copy: BTreeMap::new() }
    }

    /// Follows everything that happens from now on.
    pub(crate) fn of_all_versions() -> Follower {
        Follower { request: all_versions(ChangeStart::Now), copy: BTreeMap::new() }
    }

    /// Reads one page; says whether there may be more.
    pub(crate) fn read<S: RangeStore>(
        &mut self,
        db: &Db<S>,
        container: &Arc<Container>,
        items_max: usize,
    ) -> bool {
        self.request.items_max = Some(items_max);
        let page = db.changes(container, &Scope::default(), &self.request, None);
        let page = page.unwrap_or_else(|failure| panic!("{failure:?}"));
        self.request.start = after(&page.continuation);
        for change in page.changes {
            self.apply(change);
        }
        !page.is_end
    }

    fn apply(&mut self, change: Change) {
        let current = change.current.as_ref().map(|text| split(text));
        let Some(version) = change.version else {
            let (rid, user) = current.expect("the latest version is there");
            self.copy.insert(rid, user);
            return;
        };
        // A version that comes twice, or not at all, does not fit on what is there.
        let image = |previous: &PreviousVersion| previous.image.clone().expect("is kept");
        let (previous_rid, previous) =
            version.previous.as_ref().map(|previous| split(&image(previous))).unzip();
        let rid = previous_rid.clone().or(current.as_ref().map(|(rid, _)| rid.clone())).unwrap();
        assert_eq!(self.copy.remove(&rid), previous, "{:?} of {}", version.kind, version.id);
        let is_gone = matches!(version.kind, ChangeKind::Delete | ChangeKind::Expire);
        assert_eq!(is_gone, current.is_none());
        assert_eq!(version.kind == ChangeKind::Create, previous_rid.is_none());
        self.copy.extend(current);
    }
}

/// The resource id of a document, and what its user wrote.
fn split(text: &[u8]) -> (String, Object) {
    let Value::Object(mut document) = Value::parse(text).unwrap() else { panic!("an object") };
    let rid = document.get("_rid").and_then(Value::as_str).unwrap().to_owned();
    document.retain(|name, _| !name.starts_with('_'));
    (rid, document)
}

#[tokio::test]
async fn a_document_appears_once_where_it_was_last_written() {
    let documents = Documents::new(BY_PK).await;
    for id in ["a", "b", "c", "d"] {
        documents.must(X, create(&format!(r#"{{"id":"{id}","pk":"x"}}"#))).await;
    }
    documents.must(X, replace("a", r#"{"id":"a","pk":"x","n":1}"#)).await;
    documents.must(X, patch_by("b", r#"[{"op":"set","path":"/n","value":2}]"#)).await;
    documents.must(X, delete("c")).await;
    let everything = latest(ChangeStart::Beginning);
    let (changes, end) = documents.drain(&Scope::default(), &everything);
    assert_eq!(ids(&changes), ["d", "a", "b"]);
    assert!(changes.iter().all(|change| change.version.is_none()));
    // What comes later is all that a reader gets who has seen the rest.
    documents.must(Y, upsert(r#"{"id":"e","pk":"y"}"#)).await;
    documents.must(X, upsert(r#"{"id":"d","pk":"x"}"#)).await;
    let (changes, _) = documents.drain(&Scope::default(), &latest(after(&end)));
    assert_eq!(ids(&changes), ["e", "d"]);
    let (changes, _) = documents.drain(&of_key(Y), &latest(after(&end)));
    assert_eq!(ids(&changes), ["e"]);
}

#[tokio::test]
async fn a_commit_is_never_cut() {
    let documents = Documents::new(BY_PK).await;
    documents.must(X, create(r#"{"id":"first","pk":"x"}"#)).await;
    let batch = (0..5).map(|n| create(&format!(r#"{{"id":"{n}","pk":"x"}}"#))).collect();
    documents.batch(X, batch).await;
    documents.must(X, create(r#"{"id":"last","pk":"x"}"#)).await;
    let mut request = ChangeRequest { items_max: Some(2), ..latest(ChangeStart::Beginning) };
    let mut sizes = Vec::new();
    loop {
        let page = documents.changes(&Scope::default(), &request).unwrap();
        sizes.push(page.changes.len());
        if page.changes.is_empty() {
            break;
        }
        request.start = after(&page.continuation);
    }
    assert_eq!(sizes, [6, 1, 0]);
}

#[tokio::test]
async fn what_has_expired_or_was_purged_is_passed_over() {
    let documents = Documents::new(&by_pk_with(r#""defaultTtl":-1"#)).await;
    documents.must(X, create(r#"{"id":"brief","pk":"x","ttl":5}"#)).await;
    documents.must(X, create(r#"{"id":"long","pk":"x"}"#)).await;
    documents.must(Y, create(r#"{"id":"purged","pk":"y"}"#)).await;
    documents.advance_s(5);
    documents.db.delete_partition(&documents.container, &key(Y)).await.unwrap();
    documents.must(Y, create(r#"{"id":"anew","pk":"y"}"#)).await;
    for _ in 0..2 {
        let (changes, _) = documents.drain(&Scope::default(), &latest(ChangeStart::Beginning));
        assert_eq!(ids(&changes), ["long", "anew"]);
        documents.db.sweep().await.unwrap();
    }
}

#[tokio::test]
async fn a_time_is_found_without_reading_up_to_there() {
    let documents = Documents::new(BY_PK).await;
    for second in 0..40 {
        for n in 0..3 {
            documents.must(X, create(&format!(r#"{{"id":"{second}.{n}","pk":"x"}}"#))).await;
        }
        documents.advance_s(1);
    }
    // Documents that were written again leave holes in the feed.
    for second in (0..40).step_by(3) {
        documents.must(X, upsert(&format!(r#"{{"id":"{second}.0","pk":"x"}}"#))).await;
    }
    for asked in [0, 1, 2, 7, 20, 38, 39, 40, 1_000] {
        let after_s = Some(START_S + asked - 1);
        let request = ChangeRequest { after_s, ..latest(ChangeStart::Beginning) };
        let (changes, end) = documents.drain(&Scope::default(), &request);
        let expected = (0..=40u64)
            .filter(|second| *second >= asked)
            .map(|second| match second {
                40 => 14,
                _ if second % 3 == 0 => 2,
                _ => 3,
            })
            .sum::<usize>();
        assert_eq!(changes.len(), expected, "after {asked} seconds");
        assert!(changes.iter().all(|change| change.ts >= START_S + asked));
        // The time still counts for a reader who has seen something since, and its place goes on.
        let request = ChangeRequest { after_s, ..latest(after(&end)) };
        assert!(documents.changes(&Scope::default(), &request).unwrap().changes.is_empty());
    }
}

/// A small partition is not looked for in a long feed; what its reader gets is the same.
#[tokio::test]
async fn a_small_partition_among_many_writes_is_read_by_itself() {
    let documents = Documents::new(&by_pk_with(r#""defaultTtl":-1"#)).await;
    let noise = async || {
        for n in 0..60 {
            documents.must(Y, upsert(&format!(r#"{{"id":"{}","pk":"y"}}"#, n % 5))).await;
        }
    };
    documents.must(X, create(r#"{"id":"c","pk":"x"}"#)).await;
    documents.must(X, create(r#"{"id":"b","pk":"x","ttl":5}"#)).await;
    noise().await;
    let batch = ["d", "a"].map(|id| create(&format!(r#"{{"id":"{id}","pk":"x"}}"#)));
    documents.batch(X, batch.to_vec()).await;
    documents.advance_s(5);
    documents.must(X, upsert(r#"{"id":"c","pk":"x","n":1}"#)).await;
    noise().await;
    for items_max in [Some(1), None] {
        let request = ChangeRequest { items_max, ..latest(ChangeStart::Beginning) };
        let (changes, end) = documents.drain(&of_key(X), &request);
        assert_eq!(ids(&changes), ["d", "a", "c"]);
        assert_eq!(changes[0].lsn, changes[1].lsn);
        assert_eq!(end, documents.now(latest));
        let after_s = Some(START_S + 4);
        let request = ChangeRequest { after_s, ..request };
        assert_eq!(ids(&documents.drain(&of_key(X), &request).0), ["c"]);
    }
}

#[tokio::test]
async fn slices_of_the_hash_space_are_read_apart() {
    let documents = Documents::with_ranges(BY_PK, 3).await;
    for n in 0..30 {
        let at = format!(r#"["{n}"]"#);
        documents.must(&at, create(&format!(r#"{{"id":"{n}","pk":"{n}"}}"#))).await;
    }
    let everything = latest(ChangeStart::Beginning);
    let (all, end) = documents.drain(&Scope::default(), &everything);
    assert_eq!(all.len(), 30);
    let mut found = Vec::new();
    for range in ["0", "1", "2"] {
        let scope = Scope { range: Some(range.to_owned()), ..Scope::default() };
        let page = documents.changes(&scope, &everything).unwrap();
        assert_eq!(page.continuation, format!("\"{}\"", page.at[0].lsn));
        found.extend(ids(&page.changes));
    }
    assert_eq!(found, ids(&all), "ranges come one after the other");
    // Slices across the bounds of ranges, page by page.
    let bound = |text: &str| Epk::parse(text).unwrap();
    let mut found = Vec::new();
    for (min, max) in [("", "09"), ("09", "18"), ("18", "2C"), ("2C", "FF")] {
        let epk = EpkRange { min: bound(min), max: bound(max) };
        let scope = Scope { epk: Some(epk), ..Scope::default() };
        let request = ChangeRequest { items_max: Some(1), ..everything.clone() };
        found.extend(ids(&documents.drain(&scope, &request).0));
    }
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    assert_eq!(sorted(found), sorted(ids(&all)));
    // A continuation of everything goes on in a part, not the other way round.
    documents.must(r#"["7"]"#, upsert(r#"{"id":"7","pk":"7","n":1}"#)).await;
    let (changes, end_of_key) = documents.drain(&of_key(r#"["7"]"#), &latest(after(&end)));
    assert_eq!(ids(&changes), ["7"]);
    let (changes, _) = documents.drain(&Scope::default(), &latest(after(&end)));
    assert_eq!(ids(&changes), ["7"]);
    documents.refused(&Scope::default(), &latest(after(&end_of_key)), "another part");
    let half = EpkRange { min: Epk::MIN, max: bound("30") };
    let half = Scope { epk: Some(half), ..Scope::default() };
    let (_, end_of_half) = documents.drain(&half, &everything);
    documents.refused(&Scope::default(), &latest(after(&end_of_half)), "another part");
}

/// A reader of the whole container goes on exactly where it was, whatever becomes of the ranges.
#[tokio::test]
async fn readers_go_on_when_ranges_split_and_merge() {
    let mut documents = Documents::new(&recorded()).await;
    let everything = Scope::default();
    let sorted = |changes: &[Change]| {
        let mut ids = ids(changes);
        ids.sort();
        ids
    };
    let names = |from: usize, to: usize| {
        let mut names: Vec<String> = (from..to).map(|n| format!("{n:02}")).collect();
        names.sort();
        names
    };
    let write = async |documents: &Documents<_>, from: usize, to: usize| {
        for id in names(from, to) {
            let body = format!(r#"{{"id":"{id}","pk":"{id}"}}"#);
            documents.must(&format!(r#"["{id}"]"#), upsert(&body)).await;
            documents.advance_s(1);
        }
    };
    let start = documents.now(all_versions);
    write(&documents, 0, 10).await;
    // Half of it before the split, from a page in the middle.
    let request = ChangeRequest { items_max: Some(4), ..latest(ChangeStart::Beginning) };
    let page = documents.changes(&everything, &request).unwrap();
    assert_eq!(ids(&page.changes), names(0, 4));
    let of_versions = ChangeRequest { items_max: Some(3), ..all_versions(after(&start)) };
    let versions = documents.changes(&everything, &of_versions).unwrap();

    let db = documents.db.clone();
    db.split_range(&documents.container, "0", None).await.unwrap();
    documents.container = db.container("d", "c").unwrap();
    write(&documents, 10, 20).await;
    let (changes, end) = documents.drain(&everything, &latest(after(&page.continuation)));
    assert_eq!(sorted(&changes), names(4, 20));
    let (changes, end_of_versions) =
        documents.drain(&everything, &all_versions(after(&versions.continuation)));
    assert_eq!(sorted(&changes), names(3, 20));
    // Each child goes on where its parent was, as clients do it range by range.
    let mut found = Vec::new();
    for range in ["1", "2"] {
        let scope = Scope { range: Some(range.to_owned()), ..Scope::default() };
        found.extend(documents.drain(&scope, &latest(after(&page.continuation))).0);
    }
    assert_eq!(sorted(&found), names(4, 20));

    // Readers of several ranges have come to a different lsn in each when these are merged.
    write(&documents, 20, 30).await;
    let request = ChangeRequest { items_max: Some(3), ..latest(after(&end)) };
    let page = documents.changes(&everything, &request).unwrap();
    let seen = sorted(&page.changes);
    db.merge_ranges(&documents.container, "1", "2").await.unwrap();
    documents.container = db.container("d", "c").unwrap();
    assert_eq!(documents.container.range_count(), 1);
    write(&documents, 30, 35).await;
    let (changes, last) = documents.drain(&everything, &latest(after(&page.continuation)));
    let mut all = [seen, sorted(&changes)].concat();
    all.sort();
    assert_eq!(all, names(20, 35));
    assert_eq!(last, documents.now(latest), "one range, one lsn");
    let (changes, _) = documents.drain(&everything, &all_versions(after(&end_of_versions)));
    assert_eq!(sorted(&changes), names(20, 35));
    // Times are not in order where ranges were merged, and still exact.
    for second in [0, 3, 12, 19, 25, 29, 30, 33, 34] {
        let after_s = Some(START_S + second);
        let request = ChangeRequest { after_s, ..latest(ChangeStart::Beginning) };
        let (changes, _) = documents.drain(&everything, &request);
        assert_eq!(sorted(&changes), names(second as usize + 1, 35), "after {second} seconds");
    }
    documents.verify();
}

#[tokio::test]
async fn busy_ranges_do_not_starve_the_others() {
    let documents = Documents::with_ranges(BY_PK, 2).await;
    for n in 0..20 {
        let at = format!(r#"["{n}"]"#);
        documents.must(&at, create(&format!(r#"{{"id":"{n}","pk":"{n}"}}"#))).await;
    }
    let mut request = ChangeRequest { items_max: Some(1), ..latest(ChangeStart::Beginning) };
    let mut lsns = Vec::new();
    for _ in 0..6 {
        let page = documents.changes(&Scope::default(), &request).unwrap();
        lsns.push(page.changes[0].lsn);
        request.start = after(&page.continuation);
    }
    assert_eq!(lsns, [2, 2, 3, 3, 4, 4]);
}

#[tokio::test]
async fn the_beginning_of_a_hierarchical_key_is_a_scope() {
    let definition = r#"{"partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2},
            "changeFeedPolicy":{"retentionDuration":60}}"#;
    let documents = Documents::with_ranges(definition, 2).await;
    let now = documents.now(all_versions);
    for (a, b) in [("s", 1), ("t", 1), ("s", 2), ("t", 2)] {
        let at = format!(r#"["{a}",{b}]"#);
        let body = format!(r#"{{"id":"{a}{b}","a":"{a}","b":{b}}}"#);
        documents.must(&at, create(&body)).await;
    }
    let scope = of_key(r#"["s"]"#);
    let (mut changes, _) = documents.drain(&scope, &latest(ChangeStart::Beginning));
    changes.sort_by_key(id_of);
    assert_eq!(ids(&changes), ["s1", "s2"]);
    let (mut changes, _) = documents.drain(&scope, &all_versions(after(&now)));
    changes.sort_by_key(id_of);
    assert_eq!(told(&changes), ["create s1", "create s2"]);
    let (changes, _) = documents.drain(&of_key(r#"["t",2]"#), &latest(ChangeStart::Beginning));
    assert_eq!(ids(&changes), ["t2"]);
}

#[tokio::test]
async fn continuations_that_make_no_sense_are_refused() {
    let documents = Documents::new(BY_PK).await;
    documents.must(X, create(r#"{"id":"a","pk":"x"}"#)).await;
    for text in ["junk", "-1", ":", "\"\"", ":1", "1,2", "99999999999999999999999"] {
        documents.refused(&Scope::default(), &latest(after(text)), "continuation");
    }
    documents.refused(&Scope::default(), &latest(after("\"77\"")), "ahead of the container");
    documents.refused(&Scope::default(), &latest(after("\":77,FF\"")), "ahead of the container");
    documents.changes(&Scope::default(), &latest(after("\":1,10:2,FF\""))).unwrap();
}

#[tokio::test]
async fn every_version_and_delete_is_told() {
    let documents = Documents::new(&recorded()).await;
    let start = documents.now(all_versions);
    documents.must(X, create(r#"{"id":"a","pk":"x","n":0}"#)).await;
    documents.must(X, upsert(r#"{"id":"a","pk":"x","n":1}"#)).await;
    documents.must(X, replace("a", r#"{"id":"renamed","pk":"x","n":2}"#)).await;
    documents.must(Y, create(r#"{"id":"b","pk":"y","ttl":5}"#)).await;
    documents.must(Y, create(r#"{"id":"c","pk":"y","ttl":5}"#)).await;
    documents.must(X, delete("renamed")).await;
    documents.advance_s(5);
    // One that has expired makes room for another of its id; the other waits to be swept.
    documents.must(Y, create(r#"{"id":"b","pk":"y","n":9}"#)).await;
    documents.db.sweep().await.unwrap();
    documents.db.delete_partition(&documents.container, &key(Y)).await.unwrap();
    documents.db.sweep().await.unwrap();
    let (changes, _) = documents.drain(&Scope::default(), &all_versions(after(&start)));
    assert_eq!(
        told(&changes),
        [
            "create a",
            "replace a",
            "replace renamed",
            "create b",
            "create c",
            "delete renamed",
            "expire b",
            "create b",
            "expire c",
            "delete b",
        ]
    );
    let n = |text: &Option<bytes::Bytes>| {
        let value = Value::parse(text.as_ref()?).unwrap();
        value.get("n").and_then(Value::as_i64)
    };
    let images: Vec<_> = changes
        .iter()
        .filter_map(|change| {
            let version = change.version.as_ref()?;
            let previous = version.previous.clone();
            let previous_lsn = previous.as_ref().map(|previous| previous.lsn);
            let before = n(&previous.and_then(|previous| previous.image));
            (version.key == key(X)).then(|| (change.lsn, n(&change.current), before, previous_lsn))
        })
        .collect();
    assert_eq!(
        images,
        [
            (2, Some(0), None, None),
            (3, Some(1), Some(0), Some(2)),
            (4, Some(2), Some(1), Some(3)),
            (7, None, Some(2), Some(4)),
        ]
    );
    assert!(changes.iter().take(6).all(|change| change.ts == START_S));
    let (changes, _) = documents.drain(&of_key(Y), &all_versions(after(&start)));
    let of_y = ["create b", "create c", "expire b", "create b", "expire c", "delete b"];
    assert_eq!(told(&changes), of_y);
    documents.verify();
}

#[tokio::test]
async fn all_versions_are_there_where_the_policy_keeps_them() {
    let mut documents = Documents::new(BY_PK).await;
    let from_now = all_versions(ChangeStart::Now);
    documents.refused(&Scope::default(), &from_now, "must be enabled");
    documents.must(X, create(r#"{"id":"a","pk":"x"}"#)).await;
    let before = documents.now(latest);
    documents.redefine(&recorded()).await;
    documents.refused(&Scope::default(), &all_versions(ChangeStart::Beginning), "If-None-Match");
    let start = documents.now(all_versions);
    assert_eq!(start, before);
    documents.must(X, upsert(r#"{"id":"a","pk":"x","n":1}"#)).await;
    let (changes, end) = documents.drain(&Scope::default(), &all_versions(after(&start)));
    assert_eq!(told(&changes), ["replace a"]);
    // What happened before the policy is not known.
    documents.refused(&Scope::default(), &all_versions(after("\"1\"")), "older than its retention");

    // A policy that goes leaves a gap, which is not passed over in silence.
    documents.redefine(BY_PK).await;
    documents.must(X, upsert(r#"{"id":"a","pk":"x","n":2}"#)).await;
    documents.redefine(&recorded()).await;
    documents.must(X, upsert(r#"{"id":"a","pk":"x","n":3}"#)).await;
    documents.refused(&Scope::default(), &all_versions(after(&end)), "older than its retention");
    let start = documents.changes(&Scope::default(), &from_now).unwrap().continuation;
    documents.must(X, delete("a")).await;
    let (changes, end) = documents.drain(&Scope::default(), &all_versions(after(&start)));
    assert_eq!(told(&changes), ["delete a"]);
    documents.verify();

    // After an hour it is forgotten, whether it has been swept or not.
    documents.advance_s(3_600);
    documents.refused(&Scope::default(), &all_versions(after(&start)), "older than its retention");
    assert!(documents.changes(&Scope::default(), &all_versions(after(&end))).is_ok());
    let swept = documents.db.sweep().await.unwrap();
    assert_eq!(swept.events, 3);
    documents.refused(&Scope::default(), &all_versions(after(&start)), "older than its retention");
    assert!(documents.changes(&Scope::default(), &all_versions(after(&end))).is_ok());
    documents.verify();
}

#[tokio::test]
async fn a_reader_can_wait_for_the_next_change() {
    let documents = Documents::with_ranges(BY_PK, 2).await;
    let page = documents.changes(&Scope::default(), &latest(ChangeStart::Now)).unwrap();
    let waiting = documents.db.changed_beyond(&documents.container, &page.at);
    let waiting = tokio::spawn(waiting);
    documents.must(X, create(r#"{"id":"a","pk":"x"}"#)).await;
    waiting.await.unwrap().unwrap();
    let (changes, _) = documents.drain(&Scope::default(), &latest(after(&page.continuation)));
    assert_eq!(ids(&changes), ["a"]);
    verify(&documents.db);
}
