use std::collections::BTreeSet;

use proptest::prelude::*;
use query::PathSegment;
use value::{ContainerRid, DatabaseRid, order};

use super::*;
use crate::policy;
use crate::row::ItemHeader;

fn object(text: &str) -> Object {
    match Value::parse(text.as_bytes()).unwrap() {
        Value::Object(object) => object,
        other => panic!("not an object: {other}"),
    }
}

fn definition(container: &str) -> Definition {
    let container = object(container);
    Definition::new(1, &policy::load(&container).unwrap(), &container).unwrap()
}

fn with_policy(policy: &str) -> Definition {
    definition(&format!(r#"{{"indexingPolicy":{policy}}}"#))
}

/// The document as it would be stored at second 7.
fn stored(user: &Object) -> Item {
    let rid = ContainerRid::new(DatabaseRid(1), 1).to_string();
    let system = value::SystemProperties { rid: &rid, self_link: "self/", etag: "\"e\"", ts: 7 };
    let header = ItemHeader {
        lsn: 1,
        commit_ordinal: 0,
        ts: 7,
        rid_ordinal: 1,
        ttl: 0,
        terms: 0,
        queued: false,
        keeps_etag: false,
    };
    Item { header, document: value::Document::build(user, &system) }
}

/// `/a/[]/b` as a query names it.
fn path(text: &str) -> Vec<PathSegment> {
    let segments = text.split('/').skip(1).map(|segment| match segment {
        "[]" => PathSegment::Element,
        name => PathSegment::Property(name.to_owned()),
    });
    segments.collect()
}

fn single(id: IndexId, value: &Value) -> Vec<u8> {
    let mut term = id.0.to_vec();
    order::encode_term(Some(value), &mut term);
    term
}

fn all_terms(definition: &Definition, document: &Object) -> BTreeSet<Vec<u8>> {
    let [early, late] = definition.terms_of(&stored(document)).unwrap();
    assert!(early.iter().is_sorted() && late.iter().is_sorted());
    let terms: Vec<_> = early.iter().chain(late.iter()).map(|term| term.key.to_vec()).collect();
    let distinct: BTreeSet<_> = terms.iter().cloned().collect();
    assert_eq!(distinct.len(), terms.len(), "a term comes once");
    distinct
}

/// A policy takes these scalars from a document, written as `[[path, value], …]`, beside its `_ts`.
fn check(policy: &str, document: &str, expected: &str) {
    let expected = Value::parse(expected.as_bytes()).unwrap();
    let mut terms = BTreeSet::from([single(IndexId::of_path(&path("/_ts")), &Value::from(7))]);
    for pair in expected.as_array().unwrap() {
        let [at, value] = pair.as_array().unwrap() else { panic!("not a pair: {pair}") };
        terms.insert(single(IndexId::of_path(&path(at.as_str().unwrap())), value));
    }
    assert_eq!(all_terms(&with_policy(policy), &object(document)), terms, "{policy} {document}");
}

const EVERYTHING: &str = r#"{"includedPaths":[{"path":"/*"}]}"#;

#[test]
fn policies_take_scalars() {
    check(
        EVERYTHING,
        r#"{"id":"x","a":{"b":1,"c":[true,null,{"d":"e"}]},"f":[],"g":{},"_etag":"sent"}"#,
        r#"[["/id","x"],["/a/b",1],["/a/c/[]",true],["/a/c/[]",null],["/a/c/[]/d","e"]]"#,
    );
    // Equal values of one path are one entry; arrays in arrays have a path of their own.
    check(
        EVERYTHING,
        r#"{"id":"x","a":[1,1.0,[1,2,[1]],-0,0],"b":[{"c":1},{"c":1}]}"#,
        r#"[["/id","x"],["/a/[]",1],["/a/[]/[]",1],["/a/[]/[]",2],["/a/[]/[]/[]",1],["/a/[]",0],
            ["/b/[]/c",1]]"#,
    );
    // Nothing is as empty as this, and still has its id and time.
    check(
        r#"{"includedPaths":[],"excludedPaths":[{"path":"/*"}]}"#,
        r#"{"id":"x","a":1}"#,
        r#"[["/id","x"]]"#,
    );
    // The longest path decides.
    check(
        r#"{"includedPaths":[{"path":"/a/b/*"},{"path":"/c/?"},{"path":"/t/[]/n/?"}],
            "excludedPaths":[{"path":"/*"},{"path":"/a/b/no/?"}]}"#,
        r#"{"id":"x","a":{"b":{"no":1,"yes":2},"other":3},"c":4,"t":[{"n":5,"m":6}],"d":7}"#,
        r#"[["/id","x"],["/a/b/yes",2],["/c",4],["/t/[]/n",5]]"#,
    );
    check(
        r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/a/?"},{"path":"/b/*"}]}"#,
        r#"{"id":"x","a":1,"b":{"c":[1,{"d":2}]},"e":3}"#,
        r#"[["/id","x"],["/e",3]]"#,
    );
}

#[test]
fn a_term_says_whether_its_number_is_written_otherwise() {
    let definition = with_policy(r#"{"compositeIndexes":[[{"path":"/a"},{"path":"/b"}]]}"#);
    let respelled = |document: &str| {
        let [early, _] = definition.terms_of(&stored(&object(document))).unwrap();
        early.iter().filter(|term| term.is_respelled).count()
    };
    for plain in ["1", "-1.5", "0", "1e21", "0.1", "9007199254740992", "\"1.0\"", "null", "{}"] {
        let expected = if plain == "1e21" { 2 } else { 0 };
        assert_eq!(respelled(&format!(r#"{{"id":"x","a":{plain}}}"#)), expected, "{plain}");
    }
    // At its path and in the composite index.
    for other in ["1.0", "-0", "-0.0", "1e2", "9007199254740993", "0.10", "1E5"] {
        assert_eq!(respelled(&format!(r#"{{"id":"x","b":{other}}}"#)), 2, "{other}");
    }
    // Two that share an entry.
    assert_eq!(respelled(r#"{"id":"x","a":[1,1.0]}"#), 1);
    assert_eq!(respelled(r#"{"id":"x","a":[1.0,1]}"#), 1);
}

#[test]
fn nothing_is_indexed_in_mode_none() {
    let none = with_policy(r#"{"indexingMode":"none","automatic":false}"#);
    let [early, late] = none.terms_of(&stored(&object(r#"{"id":"x","a":1}"#))).unwrap();
    assert_eq!((early, late), Default::default());
    assert!(none.is_empty() && Definition::empty().is_same_index(&none));
}

#[test]
fn composite_indexes_take_tuples() {
    let definition = with_policy(
        r#"{"compositeIndexes":[
            [{"path":"/a"},{"path":"/b/c","order":"descending"}],
            [{"path":"/a"},{"path":"/_ts","order":"descending"}],
            [{"path":"/a"},{"path":"/t/[]"}]]}"#,
    );
    let [plain, timed] = definition.composites() else {
        panic!("an index of elements is not kept")
    };
    let tuple = |composite: &super::super::definition::Composite, values: [Option<&Value>; 2]| {
        let mut term = composite.id.0.to_vec();
        entry::encode_component(values[0], false, &mut term);
        entry::encode_component(values[1], true, &mut term);
        term
    };
    let (one, ts) = (Value::from("one"), Value::from(7));
    let terms = all_terms(&definition, &object(r#"{"id":"x","a":"one","b":[]}"#));
    assert!(terms.contains(&tuple(plain, [Some(&one), None])));
    assert!(terms.contains(&tuple(timed, [Some(&one), Some(&ts)])));
    let list = Value::Array(Vec::new());
    let terms = all_terms(&definition, &object(r#"{"id":"x","b":{"c":["long"]}}"#));
    assert!(terms.contains(&tuple(plain, [None, Some(&list)])), "an array leaves its type");
    assert!(terms.contains(&tuple(timed, [None, Some(&ts)])));
}

#[test]
fn computed_properties_are_indexed_where_a_path_asks_for_it() {
    let text = |included: &str, query: &str| {
        format!(
            r#"{{"indexingPolicy":{{"includedPaths":[{{"path":"/*"}}{included}],
                "compositeIndexes":[[{{"path":"/a"}},{{"path":"/lower"}}]]}},
                "computedProperties":[
                    {{"name":"lower","query":"SELECT VALUE LOWER(c.name) FROM c"}},
                    {{"name":"ms","query":"{query}"}}]}}"#
        )
    };
    let ms = "SELECT VALUE c._ts * 1000 FROM c";
    let included = definition(&text(r#",{"path":"/ms/?"}"#, ms));
    let document = object(r#"{"id":"x","name":"ABC"}"#);
    let terms = all_terms(&included, &document);
    let id = included.serves(&query::Indexed::Computed("ms".to_owned())).unwrap();
    assert_eq!(id, IndexId::of_computed("ms", ms));
    assert!(terms.contains(&single(id, &Value::from(7000))));
    // The root does not cover them; the composite index has it all the same.
    assert_eq!(included.serves(&query::Indexed::Computed("lower".to_owned())), None);
    let mut tuple = included.composites()[0].id.0.to_vec();
    entry::encode_component(None, false, &mut tuple);
    entry::encode_component(Some(&Value::from("abc")), false, &mut tuple);
    assert!(terms.contains(&tuple));
    // Without a path nobody needs it, and another query makes another index.
    let without = definition(&text("", ms));
    assert_eq!(without.serves(&query::Indexed::Computed("ms".to_owned())), None);
    let other = definition(&text(r#",{"path":"/ms/?"}"#, "SELECT VALUE c._ts FROM c"));
    assert_ne!(other.serves(&query::Indexed::Computed("ms".to_owned())), Some(id));
    assert!(!other.is_same_index(&included) && !without.is_same_index(&included));
}

#[test]
fn queries_learn_what_is_indexed() {
    let definition = with_policy(
        r#"{"includedPaths":[{"path":"/*"},{"path":"/_rid/?"}],
            "excludedPaths":[{"path":"/secret/*"},{"path":"/t/[]/?"}]}"#,
    );
    for (at, expected) in [
        ("/id", true),
        ("/_ts", true),
        ("/_etag", false),
        ("/_rid", false),
        ("/a", true),
        ("/a/_etag", true),
        ("/secret/b", false),
        ("/secret", false),
        ("/t/[]", false),
        ("/t/[]/b", true),
    ] {
        let served = definition.serves(&query::Indexed::Path(path(at)));
        assert_eq!(served, expected.then(|| IndexId::of_path(&path(at))), "{at}");
    }
}

#[test]
fn shapes_tell_kinds() {
    let shape =
        |policy: &str, text: &str| with_policy(policy).early_terms(&object(text)).shape.unwrap();
    let document = r#"{"id":"x","a":{"b":[{"c":1}],"d":null},"_self":"s"}"#;
    let found = shape(EVERYTHING, document);
    let kind = |at: &[&str]| {
        found.set.kind_of(&at.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(kind(&["id"]), Some(NodeKind::Scalar));
    assert_eq!(kind(&["a"]), Some(NodeKind::Object));
    assert_eq!(kind(&["a", "b"]), Some(NodeKind::Array));
    assert_eq!(kind(&["a", "d"]), Some(NodeKind::Scalar));
    assert_eq!(kind(&["a", "b", "c"]), None);
    assert_eq!(kind(&["_self"]), None);
    assert_eq!(kind(&["b"]), None);
    // The policy and the values do not matter, nor does the order of members; kinds do.
    let excluded = r#"{"excludedPaths":[{"path":"/*"}]}"#;
    assert_eq!(shape(excluded, r#"{"a":{"d":5,"b":[]},"id":"y"}"#), found);
    assert_ne!(shape(EVERYTHING, r#"{"id":"x","a":{"b":[],"d":{}}}"#).id, found.id);
    // What was stored is read with care.
    assert!(super::super::shape::ShapeSet::decode(&bytes::Bytes::from_static(b"short")).is_err());
    assert!(super::super::shape::ShapeSet::decode(&bytes::Bytes::from_static(&[9; 13])).is_err());
    assert_eq!(super::super::shape::ShapeSet::decode(found.set.encoded()).unwrap(), found.set);
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "_ts", "id"]).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..3i64).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 30, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            members(inner).prop_map(Value::from),
        ]
    })
}

fn members(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Object> {
    prop::collection::vec((name(), inner), 0..4).prop_map(|members| members.into_iter().collect())
}

/// A policy with a few paths, each included or excluded; the root is always there.
fn some_policy() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "c", "[]"]);
    let path = (prop::collection::vec(segment, 1..4), any::<bool>(), any::<bool>());
    (any::<bool>(), prop::collection::vec(path, 0..6)).prop_map(|(root, paths)| {
        let mut lists = [vec![], vec![]];
        lists[usize::from(root)].push(r#"{"path":"/*"}"#.to_owned());
        let mut seen = BTreeSet::new();
        for (segments, is_scalar, is_included) in paths {
            let path = format!("/{}/{}", segments.join("/"), if is_scalar { "?" } else { "*" });
            if seen.insert(path.clone()) {
                lists[usize::from(is_included)].push(format!(r#"{{"path":"{path}"}}"#));
            }
        }
        let [excluded, included] = lists.map(|list| list.join(","));
        format!(r#"{{"includedPaths":[{included}],"excludedPaths":[{excluded}]}}"#)
    })
}

/// All scalars of a value with their paths, found without any policy.
fn scalars(value: &Value, path: &mut Vec<PathSegment>, found: &mut Vec<(Vec<PathSegment>, Value)>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object.iter() {
                path.push(PathSegment::Property(name.to_owned()));
                scalars(value, path, found);
                path.pop();
            }
        }
        Value::Array(elements) => {
            for element in elements {
                path.push(PathSegment::Element);
                scalars(element, path, found);
                path.pop();
            }
        }
        scalar => found.push((path.clone(), scalar.clone())),
    }
}

proptest! {
    /// A document has an entry exactly for those scalars that queries are told are indexed.
    #[test]
    fn entries_are_what_queries_are_told(policy in some_policy(), user in members(value())) {
        let definition = with_policy(&policy);
        let whole = stored(&user).document.to_value();
        let mut found = Vec::new();
        scalars(&whole, &mut Vec::new(), &mut found);
        let expected: BTreeSet<_> = found
            .iter()
            .filter_map(|(path, value)| {
                let id = definition.serves(&query::Indexed::Path(path.clone()))?;
                Some(single(id, value))
            })
            .collect();
        prop_assert_eq!(all_terms(&definition, &user), expected);
    }
}
