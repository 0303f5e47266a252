//! Random values for the property tests of this crate. Names and scalars come from small sets now
//! and then, so that collisions, prefixes and equal values are common.

use proptest::prelude::*;

use crate::{Number, Object, Value};

pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab\u{0}\u{1}]{0,3}",
        "[a-z0-9_]{0,12}",
        any::<String>(),
        prop::sample::select(vec!["", "\"", "\\", "\n", "é", "\u{ffff}", "😀", "a\u{0}b"])
            .prop_map(str::to_owned),
    ]
}

pub(crate) fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        (-3..4).prop_map(Number::from),
        any::<i64>().prop_map(Number::from),
        any::<f64>()
            .prop_filter("JSON is finite", |value| value.is_finite())
            .prop_map(Number::from),
        (-1_000_000_000..1_000_000_000i64, 0..12)
            .prop_map(|(mantissa, places)| { Number::from(mantissa as f64 / 10f64.powi(places)) }),
        prop::sample::select(vec![0.0, -0.0, 5e-324, f64::MAX, f64::MIN, 1e21, 1e-7, 0.1])
            .prop_map(Number::from),
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[abc]{1,2}", 1 => text()]
}

pub(crate) fn value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            members(inner).prop_map(Value::from),
        ]
    })
}

pub(crate) fn object() -> impl Strategy<Value = Object> {
    members(value())
}

fn members(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Object> {
    prop::collection::vec((name(), inner), 0..5).prop_map(|members| members.into_iter().collect())
}
