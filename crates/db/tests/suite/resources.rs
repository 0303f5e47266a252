//! Databases, containers, users, permissions, offers and encryption keys, before and after a restart.

use std::sync::Arc;

use db::{
    Access, Address, Db, Grant, Kind, Migrate, Page, Resource, Result, Scope, SystemIds,
    Throughput, What,
};
use storage::{Embedded, META_RANGE, RangeStore};
use value::{Object, Value};

use crate::support::{
    self, BY_PK, START_S, Status, by_id, by_pk_with, create, json, key, object, status_of, verify,
};

fn named(id: &str) -> Object {
    Object::from([("id", id)])
}

/// The status of a failure, or nothing.
fn refused<T>(result: Result<T>) -> Option<Status> {
    result.err().map(|error| status_of(error.kind))
}

const MISSING: Option<Status> = Some((404, 0));
const OWNER_MISSING: Option<Status> = Some((404, 1003));
const TAKEN: Option<Status> = Some((409, 0));
const CHANGED: Option<Status> = Some((412, 0));
const WRONG: Option<Status> = Some((400, 0));

fn definition(id: &str) -> Object {
    let mut definition = object(BY_PK);
    definition.insert("id", id);
    definition
}

fn ids(resources: &[Resource]) -> Vec<&str> {
    resources.iter().map(|resource| resource.id.as_str()).collect()
}

fn text(resource: &Resource, name: &str) -> String {
    resource.body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Every resource has what clients rely on, and says the same in its parts and in its body.
fn check_system_properties(resource: &Resource, self_link: &str) {
    assert_eq!(text(resource, "id"), resource.id);
    assert_eq!(text(resource, "_rid"), resource.rid);
    assert_eq!(text(resource, "_etag"), resource.etag);
    assert_eq!(resource.self_link(), self_link);
    assert!(resource.etag.starts_with('"') && resource.etag.ends_with('"'));
    assert_eq!(resource.body.get("_ts"), Some(&Value::from(START_S)));
}

#[tokio::test]
async fn databases_come_and_go() {
    let (db, _) = support::in_memory().await;
    let created = db.create_database(&object(r#"{"id":"a","_rid":"mine","x":1}"#), None).await;
    let created = created.unwrap();
    check_system_properties(&created, &format!("dbs/{}/", created.rid));
    assert_eq!(text(&created, "_colls"), "colls/");
    assert_eq!(text(&created, "_users"), "users/");
    assert!(!created.body.contains("x"));
    assert_eq!(refused(db.create_database(&named("a"), None).await), TAKEN);
    db.create_database(&named("A"), None).await.unwrap();
    assert_eq!(ids(&db.databases()), ["A", "a"], "names are told apart by case");
    assert_eq!(db.database(&created.rid).unwrap().resource.id, "a", "found by resource id");
    assert_eq!(refused(db.database("b")), MISSING);

    assert_eq!(refused(db.delete_database("b", None).await), MISSING);
    assert_eq!(refused(db.delete_database("a", Some("\"other\"")).await), CHANGED);
    db.delete_database("a", Some(&created.etag)).await.unwrap();
    assert_eq!(refused(db.database(&created.rid)), MISSING);
    let again = db.create_database(&named("a"), None).await.unwrap();
    assert_ne!((again.rid, again.etag), (created.rid, created.etag));
}

#[tokio::test]
async fn names_follow_the_rules() {
    let (db, _) = support::in_memory().await;
    db.create_database(&named("d"), None).await.unwrap();
    let longest = format!("\"{}\"", "ü".repeat(255));
    let too_long = format!("\"{}\"", "a".repeat(256));
    for (id, good) in [
        ("\"a b\"", true),
        ("\"日本\"", true),
        ("\"a.b-c_d~\"", true),
        (longest.as_str(), true),
        (too_long.as_str(), false),
        ("\"\"", false),
        ("\"a/b\"", false),
        ("\"a\\\\b\"", false),
        ("\"a?b\"", false),
        ("\"a#b\"", false),
        ("\"a \"", false),
        ("1", false),
        ("null", false),
        ("[]", false),
    ] {
        let expected = if good { None } else { WRONG };
        let body = object(&format!(r#"{{"id":{id}}}"#));
        assert_eq!(refused(db.create_database(&body, None).await), expected, "database {id}");
        assert_eq!(refused(db.create_user("d", &body).await), expected, "user {id}");
        let mut container = object(BY_PK);
        container.insert("id", json(id));
        let created = db.create_container("d", &container, None, false).await;
        assert_eq!(refused(created), expected, "container {id}");
    }
    assert_eq!(refused(db.create_database(&Object::new(), None).await), WRONG);
}

#[tokio::test]
async fn containers_come_and_go() {
    let (db, _) = support::in_memory().await;
    let create = |id| {
        let (db, body) = (db.clone(), definition(id));
        async move { db.create_container("d", &body, None, false).await }
    };
    assert_eq!(refused(create("c").await), OWNER_MISSING);
    assert_eq!(refused(db.containers("d")), OWNER_MISSING);
    assert_eq!(refused(db.container("d", "c")), OWNER_MISSING);
    assert_eq!(refused(db.delete_container("d", "c", None).await), OWNER_MISSING);
    let replaced = db.replace_container("d", "c", &definition("c"), None).await;
    assert_eq!(refused(replaced), OWNER_MISSING);

    let database = db.create_database(&named("d"), None).await.unwrap();
    assert_eq!(refused(db.container("d", "c")), MISSING);
    assert_eq!(refused(db.delete_container("d", "c", None).await), MISSING);
    let replaced = db.replace_container("d", "c", &definition("c"), None).await;
    assert_eq!(refused(replaced), MISSING);
    let created = create("c").await.unwrap();
    check_system_properties(&created, &format!("dbs/{}/colls/{}/", database.rid, created.rid));
    for (link, path) in [("_docs", "docs/"), ("_sprocs", "sprocs/"), ("_conflicts", "conflicts/")] {
        assert_eq!(text(&created, link), path);
    }
    for completed in ["indexingPolicy", "conflictResolutionPolicy", "geospatialConfig"] {
        assert!(created.body.contains(completed), "{completed}");
    }
    assert_eq!(refused(create("c").await), TAKEN);
    create("C").await.unwrap();
    assert_eq!(ids(&db.containers("d").unwrap()), ["C", "c"]);
    for (database, container) in [("d", "c"), (&database.rid, &created.rid), ("d", &created.rid)] {
        let found = db.container(database, container).unwrap();
        assert_eq!(found.resource.etag, created.etag);
        assert_eq!(found.name_path(), "dbs/d/colls/c");
    }
    assert!(db.conflicts(&db.container("d", "c").unwrap()).is_empty());

    assert_eq!(refused(db.delete_container("d", "c", Some("\"other\"")).await), CHANGED);
    db.delete_container("d", "c", Some(&created.etag)).await.unwrap();
    assert_eq!(refused(db.container("d", &created.rid)), MISSING);
}

#[tokio::test]
async fn a_container_changes_only_where_it_may() {
    let (db, clock) = support::in_memory().await;
    let keys = by_pk_with(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}"#);
    support::container(&db, &keys).await;
    let created = db.container("d", "c").unwrap().resource.clone();
    let with = |members: &str| {
        let mut body = object(&keys);
        body.insert("id", "c");
        for (name, value) in object(members) {
            body.insert(name, value);
        }
        body
    };
    for members in [
        r#"{"id":"other"}"#,
        r#"{"partitionKey":{"paths":["/other"],"kind":"Hash","version":2}}"#,
        r#"{"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/v"]}]}}"#,
        r#"{"uniqueKeyPolicy":null}"#,
        r#"{"defaultTtl":0}"#,
        r#"{"defaultTtl":-2}"#,
    ] {
        let result = db.replace_container("d", "c", &with(members), None).await;
        assert_eq!(refused(result), WRONG, "{members}");
    }
    let body = with(r#"{"defaultTtl":10}"#);
    let result = db.replace_container("d", "c", &body, Some("\"other\"")).await;
    assert_eq!(refused(result), CHANGED);
    assert_eq!(db.container("d", "c").unwrap().resource.etag, created.etag, "nothing happened");
    clock.advance_ms(3_000);
    let replaced = db.replace_container("d", "c", &body, Some(&created.etag)).await.unwrap();
    assert_eq!(replaced.rid, created.rid);
    assert_ne!(replaced.etag, created.etag);
    assert_eq!(replaced.body.get("_ts"), Some(&Value::from(START_S + 3)));
    assert_eq!(replaced.body.get("defaultTtl"), Some(&Value::from(10)));
    // A replace is whole: what is left out is gone.
    let replaced = db.replace_container("d", "c", &with("{}"), None).await.unwrap();
    assert!(!replaced.body.contains("defaultTtl"));
    assert!(replaced.is_unmodified(Some(&replaced.etag)));
    assert!(!replaced.is_unmodified(Some(&created.etag)));
}

#[tokio::test]
async fn a_container_of_the_same_name_is_another_one() {
    let (db, _) = support::in_memory().await;
    let first = support::container(&db, BY_PK).await;
    let grant = grant_for(&db, "dbs/d/colls/c", "All").await;
    let access = |container| Access { container, write: true, what: What::Documents, key: None };
    assert!(grant.allows(&access(first.as_ref())));
    db.check_intended(&first, &first.rid.to_string()).unwrap();
    db.delete_container("d", "c", None).await.unwrap();
    let second = support::container(&db, BY_PK).await;
    assert_ne!(first.rid, second.rid);
    let stale = db.check_intended(&second, &first.rid.to_string());
    assert_eq!(refused(stale), Some((400, 1024)));
    assert_eq!(refused(db.check_intended(&second, "junk")), Some((400, 1024)));
    assert!(!grant.allows(&access(second.as_ref())), "an old token opens nothing");
}

#[tokio::test]
async fn ranges_cover_the_hash_space() {
    let (db, _) = support::in_memory().await;
    for (throughput, count) in [(400, 1), (10_000, 1), (10_100, 2), (30_000, 3), (100_000, 10)] {
        let name = format!("c{throughput}");
        let container = support::create_container(&db, &name, BY_PK, Some(throughput)).await;
        let feed = db.partition_key_ranges(&container).unwrap();
        assert_eq!(feed.ranges.len(), count, "{throughput}");
        let bound = |range: &Object, name: &str| {
            range.get(name).and_then(Value::as_str).unwrap().to_owned()
        };
        let mut reached = String::new();
        for (at, range) in feed.ranges.iter().enumerate() {
            assert_eq!(bound(range, "id"), at.to_string());
            assert_eq!(bound(range, "minInclusive"), reached);
            reached = bound(range, "maxExclusive");
        }
        assert_eq!(reached, "FF");
    }
}

#[tokio::test]
async fn users_come_and_go() {
    let (db, _) = support::in_memory().await;
    assert_eq!(refused(db.create_user("d", &named("u")).await), OWNER_MISSING);
    assert_eq!(refused(db.users("d")), OWNER_MISSING);
    assert_eq!(refused(db.user("d", "u")), OWNER_MISSING);
    let database = db.create_database(&named("d"), None).await.unwrap();
    assert_eq!(refused(db.user("d", "u")), MISSING);
    assert_eq!(refused(db.delete_user("d", "u", None).await), MISSING);
    assert_eq!(refused(db.replace_user("d", "u", &named("v"), None).await), MISSING);
    let created = db.create_user("d", &named("u")).await.unwrap();
    check_system_properties(&created, &format!("dbs/{}/users/{}/", database.rid, created.rid));
    assert_eq!(text(&created, "_permissions"), "permissions/");
    assert_eq!(refused(db.create_user("d", &named("u")).await), TAKEN);
    let (same, new) = db.upsert_user("d", &named("u")).await.unwrap();
    assert!(!new && same.rid == created.rid && same.etag != created.etag);
    let (other, new) = db.upsert_user("d", &named("v")).await.unwrap();
    assert!(new);
    assert_eq!(refused(db.replace_user("d", "u", &named("v"), None).await), TAKEN);
    let replaced = db.replace_user("d", "u", &named("w"), Some(&created.etag)).await;
    assert_eq!(refused(replaced), CHANGED);
    let renamed = db.replace_user("d", "u", &named("w"), Some(&same.etag)).await.unwrap();
    assert_eq!((renamed.rid, renamed.id.as_str()), (created.rid.clone(), "w"));
    assert_eq!(ids(&db.users("d").unwrap()), ["v", "w"]);
    assert_eq!(db.user("d", &created.rid).unwrap().resource.id, "w");
    assert_eq!(refused(db.delete_user("d", "v", Some(&created.etag)).await), CHANGED);
    db.delete_user("d", &other.rid, None).await.unwrap();
    assert_eq!(ids(&db.users("d").unwrap()), ["w"]);
}

fn permission(id: &str, mode: &str, resource: &str) -> Object {
    Object::from([("id", id), ("permissionMode", mode), ("resource", resource)])
}

#[tokio::test]
async fn permissions_come_and_go() {
    let (db, _) = support::in_memory().await;
    support::container(&db, BY_PK).await;
    let body = permission("p", "read", "dbs/d/colls/c");
    assert_eq!(refused(db.create_permission("x", "u", &body, None).await), OWNER_MISSING);
    assert_eq!(refused(db.create_permission("d", "u", &body, None).await), OWNER_MISSING);
    assert_eq!(refused(db.permissions("d", "u", None)), OWNER_MISSING);
    let user = db.create_user("d", &named("u")).await.unwrap();
    assert_eq!(refused(db.permission("d", "u", "p", None)), MISSING);
    for (wrong, part) in [
        (r#"{"id":"p"}"#, "'permissionMode; resource; '"),
        (r#"{"id":"p","permissionMode":"All"}"#, "'resource; '"),
        (r#"{"id":"p","permissionMode":"Write","resource":"dbs/d/colls/c"}"#, "permissionMode"),
        (r#"{"id":"p","permissionMode":1,"resource":"dbs/d/colls/c"}"#, "permissionMode"),
        (r#"{"id":"p","permissionMode":"All","resource":"offers/x"}"#, "offers/x"),
        (r#"{"id":"p","permissionMode":"All","resource":""}"#, "resource"),
        (r#"{"permissionMode":"All","resource":"dbs/d/colls/c"}"#, "'id; '"),
        (
            r#"{"id":"p","permissionMode":"All","resource":"dbs/d/colls/c","resourcePartitionKey":5}"#,
            "resourcePartitionKey",
        ),
    ] {
        let error = db.create_permission("d", "u", &object(wrong), None).await.unwrap_err();
        assert_eq!(status_of(error.kind), (400, 0), "{wrong}");
        assert!(error.message.contains(part), "{wrong}: {error}");
    }
    let created = db.create_permission("d", "u", &body, None).await.unwrap();
    check_system_properties(&created, &format!("{}permissions/{}/", user.self_link(), created.rid));
    assert_eq!(text(&created, "permissionMode"), "read", "echoed as it was spelled");
    assert!(text(&created, "_token").starts_with("type=resource&ver=1&sig="));
    assert_eq!(refused(db.create_permission("d", "u", &body, None).await), TAKEN);
    let same = permission("q", "All", "dbs/d/colls/c");
    assert_eq!(refused(db.create_permission("d", "u", &same, None).await), TAKEN, "one for each");
    let mut one_key = same.clone();
    one_key.insert("resourcePartitionKey", json(r#"["x"]"#));
    db.create_permission("d", "u", &one_key, None).await.unwrap();
    let renamed = permission("r", "All", "dbs/d/colls/c");
    let replaced = db.replace_permission("d", "u", "p", &renamed, Some("\"other\""), None).await;
    assert_eq!(refused(replaced), CHANGED);
    let replaced = db.replace_permission("d", "u", "p", &renamed, Some(&created.etag), None).await;
    assert_eq!(replaced.unwrap().rid, created.rid);
    let (_, new) = db.upsert_permission("d", "u", &renamed, None).await.unwrap();
    assert!(!new);
    assert_eq!(ids(&db.permissions("d", "u", None).unwrap()), ["q", "r"]);
    // Permissions stay with a user that is renamed, and go with one that is deleted.
    db.replace_user("d", "u", &named("v"), None).await.unwrap();
    assert_eq!(ids(&db.permissions("d", "v", None).unwrap()), ["q", "r"]);
    db.delete_permission("d", "v", "q", None).await.unwrap();
    assert_eq!(refused(db.delete_permission("d", "v", "q", None).await), MISSING);
    db.delete_user("d", "v", None).await.unwrap();
    db.create_user("d", &named("v")).await.unwrap();
    assert!(db.permissions("d", "v", None).unwrap().is_empty());
}

/// The part of a token after `sig=`.
fn signature(permission: &Resource) -> String {
    text(permission, "_token").strip_prefix("type=resource&ver=1&sig=").unwrap().to_owned()
}

/// What a new permission for a resource allows.
async fn grant_for<S: RangeStore>(db: &Db<S>, resource: &str, mode: &str) -> Grant {
    let (user, _) = db.upsert_user("d", &named("u")).await.unwrap();
    let name = format!("{mode}-{}", resource.replace('/', "-"));
    let body = permission(&name, mode, resource);
    let (permission, _) = db.upsert_permission("d", &user.id, &body, None).await.unwrap();
    db.verify_token(&signature(&permission)).unwrap()
}

#[tokio::test]
async fn tokens_allow_what_their_permission_says() {
    let (db, _) = support::in_memory().await;
    let container = support::container(&db, BY_PK).await;
    let other = support::create_container(&db, "other", BY_PK, None).await;
    let write = create(r#"{"id":"a","pk":"x"}"#);
    let written = db.write(&container, Some(&key(r#"["x"]"#)), write, Default::default()).await;
    let document = written.unwrap().document.unwrap();
    let rid = document.field("_rid").unwrap().trim_matches('"').to_owned();
    let (by_name, by_rid) = (by_id("a"), Address::Rid(rid.clone()));
    let another = by_id("b");
    let (x, y) = (key(r#"["x"]"#), key(r#"["y"]"#));
    let by_self = container.self_link().trim_end_matches('/').to_owned();
    let everything = [
        Access { container: &container, write: false, what: What::Container, key: None },
        Access { container: &container, write: true, what: What::Container, key: None },
        Access { container: &container, write: false, what: What::Documents, key: None },
        Access { container: &container, write: true, what: What::Documents, key: Some(&x) },
        Access {
            container: &container,
            write: false,
            what: What::Document(&by_name),
            key: Some(&x),
        },
        Access { container: &container, write: true, what: What::Document(&by_rid), key: Some(&x) },
        Access {
            container: &container,
            write: false,
            what: What::Document(&another),
            key: Some(&x),
        },
        Access { container: &container, write: false, what: What::Documents, key: Some(&y) },
        Access { container: &other, write: false, what: What::Documents, key: Some(&x) },
    ];
    let allowed = |grant: &Grant| {
        let letters = everything.iter().map(|access| if grant.allows(access) { 'y' } else { '-' });
        letters.collect::<String>()
    };
    for (resource, mode, expected) in [
        ("dbs/d/colls/c".to_owned(), "Read", "y-y-y-yy-"),
        ("dbs/d/colls/c/".to_owned(), "All", "y-yyyyyy-"),
        (by_self, "all", "y-yyyyyy-"),
        ("dbs/d/colls/c/docs/a".to_owned(), "All", "y---y----"),
        (format!("dbs/d/colls/c/docs/{rid}"), "Read", "y--------"),
        (format!("dbs/d/colls/c/docs/{rid}"), "All", "y----y---"),
        ("dbs/d/colls/none".to_owned(), "All", "---------"),
    ] {
        db.delete_user("d", "u", None).await.ok();
        let grant = grant_for(&db, &resource, mode).await;
        assert_eq!(allowed(&grant), expected, "{resource} {mode}");
    }
    db.delete_user("d", "u", None).await.unwrap();
    db.create_user("d", &named("u")).await.unwrap();
    let mut body = permission("p", "All", "dbs/d/colls/c");
    body.insert("resourcePartitionKey", json(r#"["x"]"#));
    let permission = db.create_permission("d", "u", &body, None).await.unwrap();
    let grant = db.verify_token(&signature(&permission)).unwrap();
    assert_eq!(allowed(&grant), "y--yyyy--", "for one partition");
}

#[tokio::test]
async fn tokens_cannot_be_made_up_and_do_not_last() {
    let (db, clock) = support::in_memory().await;
    support::container(&db, BY_PK).await;
    db.create_user("d", &named("u")).await.unwrap();
    let body = permission("p", "All", "dbs/d/colls/c");
    for seconds in [0, 86_401, u64::MAX] {
        let result = db.create_permission("d", "u", &body, Some(seconds)).await;
        assert_eq!(refused(result), WRONG, "{seconds}");
    }
    let created = db.create_permission("d", "u", &body, Some(600)).await.unwrap();
    let token = signature(&created);
    db.verify_token(&token).unwrap();
    for at in 0..token.len() {
        let mut bytes = token.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let tampered = String::from_utf8(bytes).unwrap();
        assert_eq!(refused(db.verify_token(&tampered)), Some((401, 0)), "{at}");
        assert_eq!(refused(db.verify_token(&token[..at])), Some((401, 0)), "{at}");
    }
    for junk in ["", ";", ";;", "a;b;", "ü;;", &format!("{token}x"), &format!(";{token}")] {
        assert_eq!(refused(db.verify_token(junk)), Some((401, 0)), "{junk}");
    }
    // Another account has another secret.
    let store = Arc::new(Embedded::in_memory());
    let stranger = Db::open(store, clock.clone(), &SystemIds::new()).await.unwrap();
    assert_eq!(refused(stranger.verify_token(&token)), Some((401, 0)));

    clock.advance_ms(599_000);
    db.verify_token(&token).unwrap();
    let renewed = signature(&db.permission("d", "u", "p", None).unwrap());
    clock.advance_ms(1_000);
    let expired = db.verify_token(&token).unwrap_err();
    assert_eq!(status_of(expired.kind), (403, 0));
    assert!(expired.message.contains("not valid at the current time"), "{expired}");
    db.verify_token(&renewed).unwrap();
    // Tokens outlive their permission, as in the service.
    db.delete_permission("d", "u", "p", None).await.unwrap();
    db.verify_token(&renewed).unwrap();
    clock.advance_ms(3_600_000);
    assert_eq!(refused(db.verify_token(&renewed)), Some((403, 0)));
}

fn offer_of<S: RangeStore>(db: &Db<S>, self_link: &str) -> Option<Resource> {
    db.offers().into_iter().find(|offer| text(offer, "resource") == self_link)
}

fn content(offer: &Resource, name: &str) -> Option<Value> {
    offer.body.get("content").and_then(|content| content.get(name)).cloned()
}

fn with_content(offer: &Resource, content: &str) -> Object {
    let mut body = Object::clone(&offer.body);
    body.insert("content", json(content));
    body
}

#[tokio::test]
async fn throughput_is_offered_where_it_was_asked_for() {
    let (db, _) = support::in_memory().await;
    let container = support::container(&db, BY_PK).await;
    assert!(offer_of(&db, db.database("d").unwrap().resource.self_link()).is_none());
    let offer = offer_of(&db, container.self_link()).unwrap();
    assert_eq!(content(&offer, "offerThroughput"), Some(Value::from(400)));
    check_system_properties(&offer, &format!("offers/{}/", offer.rid));
    assert_eq!(text(&offer, "offerResourceId"), container.rid.to_string());
    assert_eq!(text(&offer, "offerVersion"), "V2");
    assert_eq!(db.minimum_throughput(&offer), 400);

    for bad in [
        "{}",
        r#"{"offerThroughput":"400"}"#,
        r#"{"offerThroughput":450}"#,
        r#"{"offerThroughput":100}"#,
        r#"{"offerThroughput":-100}"#,
        r#"{"offerThroughput":1000100}"#,
        r#"{"offerAutopilotSettings":{"maxThroughput":1500}}"#,
        r#"{"offerAutopilotSettings":{}}"#,
    ] {
        let result = db.replace_offer(&offer.rid, &with_content(&offer, bad), None, None).await;
        assert_eq!(refused(result), WRONG, "{bad}");
    }
    let more = with_content(&offer, r#"{"offerThroughput":50000}"#);
    let result = db.replace_offer(&offer.rid, &more, Some("\"other\""), None).await;
    assert_eq!(refused(result), CHANGED);
    let mut moved = more.clone();
    moved.insert("resource", "dbs/x/");
    assert_eq!(refused(db.replace_offer(&offer.rid, &moved, None, None).await), WRONG);
    assert_eq!(refused(db.replace_offer("none", &more, None, None).await), MISSING);
    assert_eq!(refused(db.offer("none")), MISSING);
    let replaced = db.replace_offer(&offer.rid, &more, Some(&offer.etag), None).await.unwrap();
    assert_eq!(content(&replaced, "offerThroughput"), Some(Value::from(50_000)));
    assert_ne!(replaced.etag, offer.etag);
    assert_eq!(db.minimum_throughput(&replaced), 500, "a hundredth of the highest ever");
    assert_eq!(db.offer(&offer.rid).unwrap().etag, replaced.etag);

    let scaled =
        db.replace_offer(&offer.rid, &more, None, Some(Migrate::ToAutoscale)).await.unwrap();
    let settings = content(&scaled, "offerAutopilotSettings").unwrap();
    assert_eq!(settings.get("maxThroughput"), Some(&Value::from(50_000)));
    assert_eq!(content(&scaled, "offerThroughput"), Some(Value::from(5_000)));
    let manual = db.replace_offer(&offer.rid, &scaled.body, None, Some(Migrate::ToManual)).await;
    assert_eq!(content(&manual.unwrap(), "offerAutopilotSettings"), None);

    db.delete_container("d", "c", None).await.unwrap();
    assert!(db.offers().is_empty(), "an offer goes with its container");
    assert_eq!(refused(db.offer(&offer.rid)), MISSING);
}

#[tokio::test]
async fn containers_may_share_the_throughput_of_their_database() {
    let (db, _) = support::in_memory().await;
    let autoscale = Throughput::Autoscale { max: 4_000, increment_percent: None };
    let database = db.create_database(&named("d"), Some(autoscale)).await.unwrap();
    let offer = offer_of(&db, database.self_link()).unwrap();
    assert_eq!(content(&offer, "offerThroughput"), Some(Value::from(400)));
    let own = support::create_container(&db, "own", BY_PK, Some(500)).await;
    assert!(offer_of(&db, own.self_link()).is_some());
    for n in 0..25 {
        let shared = support::create_container(&db, &n.to_string(), BY_PK, None).await;
        assert!(offer_of(&db, shared.self_link()).is_none());
    }
    let one_more = db.create_container("d", &definition("one more"), None, false).await;
    assert_eq!(refused(one_more), WRONG);
    support::create_container(&db, "another own", BY_PK, Some(400)).await;
    for wrong in [Throughput::Manual(399), Throughput::Manual(450), Throughput::Manual(-1)] {
        let result = db.create_database(&named("e"), Some(wrong)).await;
        assert_eq!(refused(result), WRONG, "{wrong:?}");
        let result = db.create_container("d", &definition("e"), Some(wrong), false).await;
        assert_eq!(refused(result), WRONG, "{wrong:?}");
    }
    db.delete_database("d", None).await.unwrap();
    assert!(db.offers().is_empty());
}

#[tokio::test]
async fn an_account_has_at_most_500_databases_and_containers() {
    let (db, _) = support::in_memory().await;
    support::container(&db, BY_PK).await;
    for n in 2..500 {
        db.create_database(&named(&n.to_string()), None).await.unwrap();
    }
    let full = Some(status_of(Kind::Forbidden));
    assert_eq!(refused(db.create_database(&named("more"), None).await), full);
    assert_eq!(refused(db.create_container("d", &definition("more"), None, false).await), full);
    db.delete_container("d", "c", None).await.unwrap();
    db.create_database(&named("more"), None).await.unwrap();
}

const ENCRYPTION_KEY: &str = r#"{"id":"k","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256",
    "wrappedDataEncryptionKey":"d3JhcHBlZA==",
    "keyWrapMetadata":{"name":"cmk","type":"AZURE_KEY_VAULT","value":"https://v/k/1","algorithm":"RSA-OAEP"}}"#;

#[tokio::test]
async fn encryption_keys_are_stored_and_echoed() {
    let (db, _) = support::in_memory().await;
    let body = object(ENCRYPTION_KEY);
    assert_eq!(refused(db.create_encryption_key("d", &body).await), OWNER_MISSING);
    assert_eq!(refused(db.encryption_keys("d")), OWNER_MISSING);
    let database = db.create_database(&named("d"), None).await.unwrap();
    assert_eq!(refused(db.encryption_key("d", "k")), MISSING);
    let missing = db.create_encryption_key("d", &named("k")).await.unwrap_err();
    assert!(missing.message.contains("'encryptionAlgorithm; "), "{missing}");
    let created = db.create_encryption_key("d", &body).await.unwrap();
    let link = format!("dbs/{}/clientencryptionkeys/{}/", database.rid, created.rid);
    check_system_properties(&created, &link);
    for (name, value) in &body {
        assert_eq!(created.body.get(name), Some(value), "{name}");
    }
    assert_eq!(refused(db.create_encryption_key("d", &body).await), TAKEN);
    let mut rotated = body.clone();
    rotated.insert("wrappedDataEncryptionKey", "bmV3");
    let result = db.replace_encryption_key("d", "k", &rotated, Some("\"other\"")).await;
    assert_eq!(refused(result), CHANGED);
    let replaced =
        db.replace_encryption_key("d", "k", &rotated, Some(&created.etag)).await.unwrap();
    assert_eq!(text(&replaced, "wrappedDataEncryptionKey"), "bmV3");
    assert_eq!(replaced.rid, created.rid);
    let mut renamed = rotated.clone();
    renamed.insert("id", "other");
    assert_eq!(refused(db.replace_encryption_key("d", "k", &renamed, None).await), WRONG);
    assert_eq!(db.encryption_key("d", &created.rid).unwrap().etag, replaced.etag);
    assert_eq!(refused(db.delete_encryption_key("d", "k", Some(&created.etag)).await), CHANGED);
    db.delete_encryption_key("d", "k", None).await.unwrap();
    assert!(db.encryption_keys("d").unwrap().is_empty());
    assert_eq!(refused(db.delete_encryption_key("d", "k", None).await), MISSING);
}

/// Everything about metadata that can be read, as text.
fn everything<S: RangeStore>(db: &Db<S>) -> Vec<String> {
    let mut resources = db.databases();
    for database in db.databases() {
        resources.extend(db.containers(&database.id).unwrap());
        resources.extend(db.encryption_keys(&database.id).unwrap());
        for user in db.users(&database.id).unwrap() {
            resources.extend(db.permissions(&database.id, &user.id, None).unwrap());
            resources.push(user);
        }
    }
    resources.extend(db.offers());
    resources
        .iter()
        .map(|resource| Value::Object(Object::clone(&resource.body)).to_text())
        .collect()
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let clock = support::clock();
    let db = support::open(support::embedded(directory.path()), &clock).await;
    let hierarchical = r#"{"partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2},
        "defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}}"#;
    let container = support::create_container(&db, "c", hierarchical, Some(30_000)).await;
    support::create_container(&db, "gone", BY_PK, None).await;
    db.create_database(&named("shared"), Some(Throughput::Manual(1_000))).await.unwrap();
    db.create_container("shared", &definition("c"), None, false).await.unwrap();
    db.create_user("d", &named("u")).await.unwrap();
    let body = permission("p", "All", "dbs/d/colls/c");
    let token = signature(&db.create_permission("d", "u", &body, None).await.unwrap());
    db.create_encryption_key("d", &object(ENCRYPTION_KEY)).await.unwrap();
    for n in 0..20 {
        let write = create(&format!(r#"{{"id":"{n}","a":"t","b":{n},"u":{n},"ttl":{}}}"#, 5 + n));
        db.write(&container, None, write, Default::default()).await.unwrap();
    }
    db.delete_partition(&container, &key(r#"["t",3]"#)).await.unwrap();
    db.delete_container("d", "gone", None).await.unwrap();
    let page = Page { items_max: Some(7), continuation: None, ..Page::default() };
    let first = db.read_feed(&container, &Scope::default(), &page, None).unwrap();
    let before = everything(&db);
    let rows = support::feed(&db, &container, &Scope::default(), None);
    assert_eq!(rows.len(), 19);
    let ranges = db.partition_key_ranges(&container).unwrap().ranges;
    db.close().await.unwrap();
    drop(db);

    let store = Arc::new(support::embedded(directory.path()));
    let db = Db::open(store.clone(), clock.clone(), &SystemIds::new()).await.unwrap();
    assert_eq!(everything(&db), before);
    let container = db.container("d", "c").unwrap();
    assert_eq!(db.partition_key_ranges(&container).unwrap().ranges, ranges, "versions, too");
    assert_eq!(support::feed(&db, &container, &Scope::default(), None), rows);
    let grant = db.verify_token(&token).unwrap();
    let access = Access { container: &container, write: true, what: What::Documents, key: None };
    assert!(grant.allows(&access));
    let page = Page { items_max: None, continuation: first.continuation, ..Page::default() };
    let rest = db.read_feed(&container, &Scope::default(), &page, None).unwrap();
    assert_eq!(first.rows.len() + rest.rows.len(), 19, "continuations outlive a restart");
    assert_eq!(store.ranges().len(), 1 + 3 + 1);
    verify(&db);
    clock.advance_ms(9_000);
    assert_eq!(db.sweep().await.unwrap(), db::Swept { expired: 4, purged: 1, events: 0 });
    verify(&db);

    // What is created now has names of its own.
    let known: Vec<_> = before.iter().map(|text| object(text)).collect();
    let new = db.create_database(&named("new"), None).await.unwrap();
    assert!(known.iter().all(|old| old.get("_rid") != new.body.get("_rid")));
    assert!(known.iter().all(|old| old.get("_etag") != new.body.get("_etag")));
    for name in ["d", "shared", "new"] {
        db.delete_database(name, None).await.unwrap();
    }
    assert_eq!(everything(&db), Vec::<String>::new());
    assert_eq!(store.ranges().iter().map(|(range, _)| *range).collect::<Vec<_>>(), [META_RANGE]);
    let stats = db.stats().unwrap();
    assert_eq!((stats.databases, stats.containers, stats.documents, stats.bytes), (0, 0, 0, 0));
}
