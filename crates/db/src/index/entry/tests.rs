use proptest::prelude::*;
use value::Value;

use super::*;

fn json(text: &str) -> Value {
    Value::parse(text.as_bytes()).unwrap()
}

fn path(text: &str) -> Vec<PathSegment> {
    let segments = text.split('/').skip(1).map(|segment| match segment {
        "[]" => PathSegment::Element,
        name => PathSegment::Property(name.to_owned()),
    });
    segments.collect()
}

fn id() -> IndexId {
    IndexId::of_path(&path("/a"))
}

fn key(value: &Value, component: Component) -> Vec<u8> {
    let mut key = prefix(&id());
    encode_component(Some(value), component == Component::Descending, &mut key);
    key.extend_from_slice(b"place");
    key
}

/// Whether a span finds a value, which is the same whether the greatest or the least comes first.
fn is_within(value: &Value, span: &Span) -> bool {
    let within = [Component::Ascending, Component::Descending].map(|component| {
        let (from, to) = bounds(&prefix(&id()), component, span);
        let key = key(value, component);
        from <= key && key < to
    });
    assert_eq!(within[0], within[1], "{value} in {span:?}");
    within[0]
}

/// What a span means, said without any encoding.
fn is_in(value: &Value, span: &Span) -> bool {
    let is_same_type = |bound: &Value| type_bytes(bound) == type_bytes(value);
    let compare = |bound: &Value| value::compare(Some(value), Some(bound));
    match span {
        Span::Exactly(one) => one == value,
        Span::Between { low, high } => {
            let above = match low {
                Bound::Unbounded => true,
                Bound::Included(low) => is_same_type(low) && compare(low).is_ge(),
                Bound::Excluded(low) => is_same_type(low) && compare(low).is_gt(),
            };
            let below = match high {
                Bound::Unbounded => true,
                Bound::Included(high) => is_same_type(high) && compare(high).is_le(),
                Bound::Excluded(high) => is_same_type(high) && compare(high).is_lt(),
            };
            above && below
        }
        Span::Prefix(start) => value.as_str().is_some_and(|text| text.starts_with(&start[..])),
        Span::Kind(kind) => type_bytes(value) == Some(kind_bytes(*kind)),
    }
}

/// A span finds exactly these of all values below.
fn check(span: Span, expected: &str) {
    let all = r#"[null,false,true,-1e300,-1,-0.5,0,0.5,1,9007199254740992,1e300,
                  "","\u0000","\u0000a","a","a\u0000","a\u0000b","ab","b","z","\uffff"]"#;
    let all = json(all);
    let found = all.as_array().unwrap().iter().filter(|value| is_within(value, &span));
    let found = Value::Array(found.cloned().collect());
    assert_eq!(found, json(expected), "{span:?}");
}

fn between(low: Bound<&str>, high: Bound<&str>) -> Span {
    Span::Between { low: low.map(json), high: high.map(json) }
}

#[test]
fn spans_find_their_values() {
    use Bound::{Excluded, Included, Unbounded};
    check(Span::Exactly(json("null")), "[null]");
    check(Span::Exactly(json("false")), "[false]");
    check(Span::Exactly(json("-0")), "[0]");
    check(Span::Exactly(json("1.0")), "[1]");
    check(Span::Exactly(json("9007199254740993")), "[9007199254740992]");
    check(Span::Exactly(json(r#""a""#)), r#"["a"]"#);
    check(Span::Exactly(json(r#""a\u0000""#)), r#"["a\u0000"]"#);
    check(Span::Exactly(json("[]")), "[]");
    check(Span::Exactly(json("{}")), "[]");
    check(between(Included("-1"), Excluded("0.5")), "[-1,-0.5,0]");
    check(between(Excluded("-1"), Included("0.5")), "[-0.5,0,0.5]");
    check(between(Unbounded, Excluded("-0")), "[-1e300,-1,-0.5]");
    check(between(Excluded("-0"), Unbounded), "[0.5,1,9007199254740992,1e300]");
    check(between(Included("false"), Unbounded), "[false,true]");
    check(between(Excluded("false"), Unbounded), "[true]");
    check(between(Unbounded, Excluded("true")), "[false]");
    check(between(Unbounded, Included("null")), "[null]");
    check(between(Unbounded, Excluded("null")), "[]");
    check(between(Unbounded, Excluded(r#""a""#)), r#"["","\u0000","\u0000a"]"#);
    check(between(Excluded(r#""a""#), Excluded(r#""b""#)), r#"["a\u0000","a\u0000b","ab"]"#);
    check(between(Included("1"), Included(r#""b""#)), "[]");
    check(between(Included("1"), Included("0")), "[]");
    check(Span::Prefix("a".to_owned()), r#"["a","a\u0000","a\u0000b","ab"]"#);
    check(Span::Prefix("a\0".to_owned()), r#"["a\u0000","a\u0000b"]"#);
    check(Span::Prefix("\u{ffff}".to_owned()), r#"["\uffff"]"#);
    let strings = r#"["","\u0000","\u0000a","a","a\u0000","a\u0000b","ab","b","z","\uffff"]"#;
    check(Span::Prefix(String::new()), strings);
    check(Span::Kind(ScalarKind::String), strings);
    check(Span::Kind(ScalarKind::Null), "[null]");
    check(Span::Kind(ScalarKind::Boolean), "[false,true]");
    check(Span::Kind(ScalarKind::Number), "[-1e300,-1,-0.5,0,0.5,1,9007199254740992,1e300]");
}

/// Strings that have the same beginning cannot be told apart, so all of them are found.
#[test]
fn cut_strings_are_found_with_their_like() {
    let start = "x".repeat(order::TERM_STRING_BYTES);
    let [short, one, two] = ["", "1", "2"].map(|end| Value::from(start.clone() + end));
    let check = |span: Span, expected: [bool; 3]| {
        let found = [&short, &one, &two].map(|value| is_within(value, &span));
        assert_eq!(found, expected, "{span:?}");
    };
    let low = |low| Span::Between { low, high: Bound::Unbounded };
    let high = |high| Span::Between { low: Bound::Unbounded, high };
    check(Span::Exactly(short.clone()), [true, false, false]);
    check(Span::Exactly(one.clone()), [false, true, true]);
    check(low(Bound::Excluded(short.clone())), [false, true, true]);
    check(low(Bound::Excluded(two.clone())), [false, true, true]);
    check(high(Bound::Included(short.clone())), [true, false, false]);
    check(high(Bound::Excluded(one.clone())), [true, true, true]);
    check(Span::Prefix(start.clone()), [true, true, true]);
    check(Span::Prefix(start.clone() + "1"), [false, true, true]);
    check(Span::Prefix(start[1..].to_owned()), [true, true, true]);
    assert!(!parse(&key(&one, Component::Ascending), &SINGLE).unwrap().exact);
    assert!(parse(&key(&short, Component::Ascending), &SINGLE).unwrap().exact);
}

#[test]
fn different_things_have_different_indexes() {
    let names = ["/a", "/a/b", "/ab", "/a/[]", "/[]/a", "/a/[]/b", "/a/[]/[]", "/"];
    let mut ids: Vec<_> = names.iter().map(|name| IndexId::of_path(&path(name))).collect();
    ids.extend(names.iter().map(|name| IndexId::of_spatial(&path(name))));
    ids.extend([IndexId::of_computed("a", "b"), IndexId::of_computed("ab", "")]);
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

/// The names of indexes are on disk.
#[test]
fn names_of_indexes_stay() {
    let hex = |id: IndexId| id.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(IndexId::of_path(&path("/id"))), "679326c870c390745444640d");
    assert_eq!(hex(IndexId::of_path(&path("/tags/[]/name"))), "7748c5cbaf851de220e714c8");
    assert_eq!(
        hex(IndexId::of_computed("n", "SELECT VALUE c.n FROM c")),
        "c5b0f3daed9f7b9364ae7e3a"
    );
    assert_eq!(hex(IndexId::of_spatial(&path("/place"))), "0c06c80f71944d13d298cc25");
}

#[test]
fn composite_entries_come_apart() {
    let components = [Component::Ascending, Component::Descending, Component::Ascending];
    let values = [Some(json(r#""a\u0000""#)), Some(json("5")), None];
    let mut key = prefix(&id());
    for (value, component) in values.iter().zip(components) {
        encode_component(value.as_ref(), component == Component::Descending, &mut key);
    }
    let end = key.len();
    key.extend_from_slice(b"place");
    let entry = parse(&key, &components).unwrap();
    assert_eq!((entry.value, entry.place), (&key[VALUE_AT..end], &b"place"[..]));
    assert!(entry.exact);
    // An array leaves only its type.
    let mut key = prefix(&id());
    encode_component(Some(&json("[1]")), true, &mut key);
    key.extend_from_slice(b"place");
    let entry = parse(&key, &[Component::Descending]).unwrap();
    assert_eq!((entry.place, entry.exact), (&b"place"[..], false));
}

fn text() -> impl Strategy<Value = String> {
    let long = (0..3usize, "[ab\u{0}é]{0,4}", 250..258usize).prop_map(|(skip, end, length)| {
        "ab\0".chars().skip(skip).collect::<String>() + &"x".repeat(length) + &end
    });
    prop_oneof![3 => "[ab\u{0}\u{1}é]{0,3}", 2 => long, 1 => any::<String>()]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        2 => any::<bool>().prop_map(Value::from),
        4 => prop::sample::select(vec![-2.5, -1.0, -0.0, 0.0, 1.0, 1e300]).prop_map(Value::from),
        1 => any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Value::from),
        8 => text().prop_map(Value::from),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Value>> {
    prop_oneof![
        scalar().prop_map(Bound::Included),
        scalar().prop_map(Bound::Excluded),
        Just(Bound::Unbounded),
    ]
}

fn span() -> impl Strategy<Value = Span> {
    let is_bounded = |(low, high): &(Bound<Value>, Bound<Value>)| {
        !matches!((low, high), (Bound::Unbounded, Bound::Unbounded))
    };
    let kinds =
        [ScalarKind::Null, ScalarKind::Boolean, ScalarKind::Number, ScalarKind::String].to_vec();
    prop_oneof![
        2 => scalar().prop_map(Span::Exactly),
        4 => (bound(), bound())
            .prop_filter("one side is bounded", is_bounded)
            .prop_map(|(low, high)| Span::Between { low, high }),
        2 => text().prop_map(Span::Prefix),
        1 => prop::sample::select(kinds).prop_map(Span::Kind),
    ]
}

fn is_cut(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.len() > order::TERM_STRING_BYTES)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn no_value_of_a_span_is_missed(value in scalar(), span in span()) {
        let is_in = is_in(&value, &span);
        let is_within = is_within(&value, &span);
        prop_assert!(is_within || !is_in);
        // Only values that were cut can be found without being meant.
        prop_assert!(is_in == is_within || is_cut(&value));
    }

    #[test]
    fn entries_come_apart(value in scalar(), place in prop::collection::vec(any::<u8>(), 1..9)) {
        let mut key = prefix(&id());
        encode_component(Some(&value), false, &mut key);
        let end = key.len();
        key.extend_from_slice(&place);
        let entry = parse(&key, &SINGLE).unwrap();
        prop_assert_eq!(entry.value, &key[VALUE_AT..end]);
        prop_assert_eq!(entry.place, &place[..]);
        prop_assert_eq!(entry.exact, !is_cut(&value));
        let (from, to) = all(&id());
        prop_assert!(from <= key && key < to);
    }

    #[test]
    fn damaged_entries_are_refused_without_panic(key in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = parse(&key, &[Component::Descending, Component::Ascending]);
    }
}
