//! Documents that differ in everything that an index could get wrong: types where none is expected,
//! texts that are longer than an index keeps, numbers at the ends of what there is.

use std::sync::Arc;

use db::{BatchOperation, Conditions, Container, Db, Write};
use proptest::prelude::*;
use storage::RangeStore;
use value::{Object, Value};

use crate::support::{by_id, key};

/// The partitions that documents lie in.
pub(crate) const PARTITIONS: [&str; 4] = ["p0", "p1", "p2", "p3"];

/// What is done to a document.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    number: usize,
    /// Nothing where it is deleted.
    document: Option<Object>,
}

/// So many bytes of a text an index keeps, at most.
const LONG: usize = 256;

pub(crate) fn text() -> impl Strategy<Value = String> {
    let x = |length: usize| "x".repeat(length);
    let texts = vec![
        String::new(),
        "a".to_owned(),
        "A".to_owned(),
        "ab".to_owned(),
        "abc".to_owned(),
        "b".to_owned(),
        "é".to_owned(),
        "😀".to_owned(),
        "\u{ffff}".to_owned(),
        "\u{0}".to_owned(),
        "a\u{0}".to_owned(),
        "a\u{0}b".to_owned(),
        "a\u{1}".to_owned(),
        x(LONG - 1),
        x(LONG),
        x(LONG) + "a",
        x(LONG) + "b",
        x(LONG - 1) + "é",
        x(LONG - 1) + "y",
        x(LONG + 50),
        x(LONG + 50) + "a",
        x(LONG + 50) + "\u{0}",
    ];
    prop::sample::select(texts)
}

pub(crate) fn number() -> impl Strategy<Value = Value> {
    const TEXTS: [&str; 20] = [
        "0",
        "-0",
        "-0.0",
        "1",
        "1.0",
        "2",
        "-1",
        "1.5",
        "0.1",
        "1e308",
        "-1e308",
        "5e-324",
        "-5e-324",
        "9223372036854775807",
        "-9223372036854775808",
        "9007199254740992",
        "9007199254740993",
        "18446744073709551615",
        "2e0",
        "100",
    ];
    prop::sample::select(&TEXTS[..]).prop_map(|text| Value::parse(text.as_bytes()).unwrap())
}

pub(crate) fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        4 => number(),
        4 => text().prop_map(Value::from),
    ]
}

/// The elements of [`mixed`] arrays and the members of its objects have the names of other
/// properties, so that a path can lead somewhere it was not meant to.
pub(crate) fn mixed() -> impl Strategy<Value = Value> {
    prop_oneof![
        12 => scalar(),
        1 => prop::collection::vec(scalar(), 0..3).prop_map(Value::from),
        1 => members(&["b", "k", "x"], scalar().boxed()),
        1 => prop::collection::vec(members(&["k", "v"], scalar().boxed()), 0..3)
            .prop_map(Value::from),
    ]
}

/// An object with some of these members.
fn members(names: &'static [&'static str], value: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let values = prop::collection::vec(prop::option::weighted(0.7, value), names.len());
    values
        .prop_map(|values| {
            let members = names.iter().zip(values);
            let members = members.filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
            Value::from(members.collect::<Object>())
        })
        .boxed()
}

/// Everything but the id and the partition key.
fn document() -> impl Strategy<Value = Object> {
    let small = prop::sample::select(vec!["0", "1", "2", "3", "-1", "0.5", "2.5", "null", "\"1\""]);
    let color = prop::sample::select(vec!["red", "green", "blue"]);
    let mostly = |usual: BoxedStrategy<Value>| prop_oneof![6 => usual, 1 => mixed()].boxed();
    let nested = (prop::option::of(mixed()), prop::option::of(members(&["z"], mixed().boxed())))
        .prop_map(|(x, y)| {
            let members = [("x", x), ("y", y)];
            let members = members.into_iter().filter_map(|(name, v)| Some((name.to_owned(), v?)));
            Value::from(members.collect::<Object>())
        });
    let pairs = prop::collection::vec(members(&["k", "v"], mixed().boxed()), 0..3);
    let values = [
        ("a", mixed().boxed()),
        ("b", mixed().boxed()),
        ("n", mostly(number().boxed())),
        // Few enough digits that sums are exact in any order.
        ("q", small.prop_map(|text| Value::parse(text.as_bytes()).unwrap()).boxed()),
        ("s", mostly(text().prop_map(Value::from).boxed())),
        ("t", color.prop_map(Value::from).boxed()),
        ("o", mostly(nested.boxed())),
        ("l", mostly(prop::collection::vec(mixed(), 0..4).prop_map(Value::from).boxed())),
        ("m", mostly(pairs.prop_map(Value::from).boxed())),
    ];
    let names = values.clone().map(|(name, _)| name);
    let values: Vec<_> =
        values.into_iter().map(|(_, value)| prop::option::weighted(0.8, value)).collect();
    values.prop_map(move |values| {
        let members = names.iter().zip(values);
        members.filter_map(|(name, value)| Some(((*name).to_owned(), value?))).collect()
    })
}

/// Documents are created, and then some of them replaced or deleted.
pub(crate) fn changes() -> impl Strategy<Value = Vec<Change>> {
    let created = prop::collection::vec(document(), 4..40);
    let later =
        prop::collection::vec((0..40_usize, prop::option::weighted(0.6, document())), 0..12);
    (created, later).prop_map(|(created, later)| {
        let created = created.into_iter().enumerate();
        let mut changes: Vec<Change> =
            created.map(|(number, document)| Change { number, document: Some(document) }).collect();
        let count = changes.len();
        changes.extend(later.into_iter().map(|(at, document)| {
            let number = at % count;
            Change { number, document }
        }));
        changes
    })
}

/// Writes what is to be written.
pub(crate) async fn apply<S: RangeStore>(
    db: &Db<S>,
    container: &Arc<Container>,
    changes: &[Change],
) {
    let operation = |change: &Change| {
        let (id, pk) = (format!("d{:02}", change.number), PARTITIONS[change.number % 4]);
        let write = match &change.document {
            Some(document) => {
                let mut body = document.clone();
                body.insert("id", id.as_str());
                body.insert("pk", pk);
                Write::Upsert { body: Value::from(body) }
            }
            None => Write::Delete { address: by_id(&id) },
        };
        let key = Some(key(&format!("[\"{pk}\"]")));
        BatchOperation { key, write, conditions: Conditions::default() }
    };
    let operations: Vec<_> = changes.iter().map(operation).collect();
    for some in operations.chunks(20) {
        let written = db.bulk(container, None, some.to_vec(), true).await.unwrap();
        // What is deleted twice is missing the second time.
        let fine = |status: u16| [200, 201, 204, 404].contains(&status);
        assert!(written.results.iter().all(|result| fine(result.status)), "{written:?}");
    }
}
