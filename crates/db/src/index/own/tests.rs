use std::ops::Bound;

use proptest::prelude::*;
use query::PathSegment;
use value::{Epk, PartitionKey, Value};

use super::*;
use crate::index::entry::{IndexId, encode_component, prefix, successor};

const PARTITIONS: [&str; 4] = [r#"["a"]"#, r#"["b"]"#, r#"["bb"]"#, r#"[""]"#];
const IDS: [&str; 5] = ["1", "11", "2", "é", "\u{10ffff}"];
const PATHS: [&str; 2] = ["x", "y"];
const LAYOUT: [Component; 2] = [Component::Ascending, Component::Descending];

fn partition(at: usize) -> PartitionPrefix {
    let key = PartitionKey::parse_header(PARTITIONS[at]).unwrap();
    // The same hash twice: partitions that lie together are still told apart.
    PartitionPrefix::new(&Epk::from_bytes([at as u8 / 2, 0, 7]), &key)
}

fn values() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        Just(None),
        Just(Some(Value::Null)),
        any::<bool>().prop_map(|value| Some(Value::from(value))),
        prop::sample::select(vec![-1.5, 0.0, 1.0, 1e300]).prop_map(|n| Some(Value::from(n))),
        prop::sample::select(vec!["", "a", "a\0", "a\u{1}", "ab", "b"])
            .prop_map(|text| Some(Value::from(text))),
        Just(Some(Value::from("long".repeat(100)))),
    ]
}

#[derive(Clone, Debug)]
struct Listed {
    path: usize,
    values: [Option<Value>; 2],
    partition: usize,
    id: usize,
}

impl Listed {
    fn term(&self) -> Vec<u8> {
        let path = [PathSegment::Property(PATHS[self.path].to_owned())];
        let mut key = prefix(&IndexId::of_path(&path));
        encode_component(self.values[0].as_ref(), false, &mut key);
        encode_component(self.values[1].as_ref(), true, &mut key);
        key
    }

    fn place(&self) -> Vec<u8> {
        partition(self.partition).place(IDS[self.id])
    }

    fn key(&self) -> Vec<u8> {
        [self.term(), self.place()].concat()
    }
}

fn listed() -> impl Strategy<Value = Listed> {
    (0..PATHS.len(), [values(), values()], 0..PARTITIONS.len(), 0..IDS.len())
        .prop_map(|(path, values, partition, id)| Listed { path, values, partition, id })
}

/// Keys as queries make bounds of them: entries, what they begin with, and what comes behind that.
fn bounds() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        listed().prop_map(|one| one.key()),
        listed().prop_map(|one| one.term()),
        (listed(), 0..PARTITIONS.len()).prop_map(|(one, at)| [
            &one.term()[..],
            partition(at).as_bytes()
        ]
        .concat()),
        (listed(), 0..PARTITIONS.len()).prop_map(|(one, at)| [
            &one.term()[..],
            partition(at).as_bytes(),
            &[0xFF]
        ]
        .concat()),
        (listed(), entry::VALUE_AT..60).prop_map(|(one, length)| {
            let mut key = one.key();
            key.truncate(length);
            key
        }),
    ];
    (part, any::<bool>()).prop_map(|(key, is_behind)| if is_behind { successor(key) } else { key })
}

proptest! {
    #[test]
    fn own_entries_lie_where_entries_do(
        entries in prop::collection::vec(listed(), 1..40),
        bound in bounds(),
        at in 0..PARTITIONS.len(),
    ) {
        let own = OwnKeys::of(&partition(at));
        let Bound::Included(translated) = own.bound(Bound::Included(&bound[..]), &LAYOUT) else {
            unreachable!("a bound stays of its kind");
        };
        let mut told = Vec::new();
        for one in entries.iter().filter(|one| one.partition == at) {
            let (key, own_key) = (one.key(), own.key(&one.term()[1..], &one.place()));
            prop_assert_eq!(key.cmp(&bound), own_key.cmp(&translated), "{:?}", one);
            prop_assert!(own.tell(&own_key, &LAYOUT, &mut told));
            prop_assert_eq!(&told, &key);
        }
        let mut by_key: Vec<_> = entries.iter().filter(|one| one.partition == at).collect();
        let mut by_own_key = by_key.clone();
        by_key.sort_by_key(|one| one.key());
        by_own_key.sort_by_key(|one| own.key(&one.term()[1..], &one.place()));
        let keys = |sorted: &[&Listed]| sorted.iter().map(|one| one.key()).collect::<Vec<_>>();
        prop_assert_eq!(keys(&by_key), keys(&by_own_key));
    }
}

#[test]
fn entries_of_others_are_not_told() {
    let one = Listed { path: 0, values: [None, None], partition: 0, id: 0 };
    let own = OwnKeys::of(&partition(0)).key(&one.term()[1..], &one.place());
    assert!(!OwnKeys::of(&partition(1)).tell(&own, &LAYOUT, &mut Vec::new()));
    assert!(!OwnKeys::of(&partition(0)).tell(&own[..own.len() - 3], &LAYOUT, &mut Vec::new()));
}

#[test]
fn large_partitions_of_larger_ranges_are_due() {
    let due = |items, range_items, own| {
        is_due(&PartitionCounters { items, own, ..PartitionCounters::default() }, range_items)
    };
    assert!(due(1_000, 8_000, Own::None));
    assert!(!due(999, 8_000, Own::None));
    assert!(!due(1_000, 7_999, Own::None));
    assert!(!due(1_000, 8_000, Own::Building));
    assert!(!due(1_000, 8_000, Own::Ready));
}
