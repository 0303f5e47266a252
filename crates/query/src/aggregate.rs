//! The aggregate functions: what each remembers, and what it answers.
//!
//! Undefined values are skipped by all. A value of the wrong type spoils `SUM`, `AVG`, `MIN` and
//! `MAX` for good: the answer is then undefined, not an error.

use crate::compare::identity;
use std::cmp::Ordering;
use std::collections::HashSet;
use value::Value;

/// The aggregate functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    Count,
    Sum,
    Average,
    Min,
    Max,
    CountIf,
    MakeList,
    MakeSet,
}

impl AggregateKind {
    /// The aggregate of that name, whatever its case.
    pub(crate) fn named(name: &str) -> Option<AggregateKind> {
        const ALL: [(&str, AggregateKind); 8] = [
            ("COUNT", AggregateKind::Count),
            ("SUM", AggregateKind::Sum),
            ("AVG", AggregateKind::Average),
            ("MIN", AggregateKind::Min),
            ("MAX", AggregateKind::Max),
            ("COUNTIF", AggregateKind::CountIf),
            ("MAKELIST", AggregateKind::MakeList),
            ("MAKESET", AggregateKind::MakeSet),
        ];
        ALL.iter().find(|(text, _)| text.eq_ignore_ascii_case(name)).map(|(_, kind)| *kind)
    }

    /// The state before any value was seen.
    pub(crate) fn start(self) -> Accumulator {
        match self {
            AggregateKind::Count => Accumulator::Count(0),
            AggregateKind::CountIf => Accumulator::CountIf(0),
            AggregateKind::Sum => Accumulator::Sum(Some(0.0)),
            AggregateKind::Average => Accumulator::Average { sum: Some(0.0), count: 0 },
            AggregateKind::Min => {
                Accumulator::Extreme { keep: Ordering::Less, best: None, spoiled: false }
            }
            AggregateKind::Max => {
                Accumulator::Extreme { keep: Ordering::Greater, best: None, spoiled: false }
            }
            AggregateKind::MakeList => Accumulator::List(Vec::new()),
            AggregateKind::MakeSet => Accumulator::Set(Vec::new(), HashSet::new()),
        }
    }
}

/// What an aggregate remembers of the values so far.
#[derive(Debug)]
pub(crate) enum Accumulator {
    Count(u64),
    CountIf(u64),
    /// The sum; `None` once something else than a number came.
    Sum(Option<f64>),
    Average {
        sum: Option<f64>,
        count: u64,
    },
    /// The smallest or the greatest value so far.
    Extreme {
        keep: Ordering,
        best: Option<Value>,
        spoiled: bool,
    },
    List(Vec<Value>),
    Set(Vec<Value>, HashSet<Vec<u8>>),
}

impl Accumulator {
    /// Takes one defined value in; the answer is whether the value was kept, so that its memory
    /// counts.
    pub(crate) fn add(&mut self, value: &Value) -> bool {
        match self {
            Accumulator::Count(count) => *count += 1,
            Accumulator::CountIf(count) => *count += u64::from(*value == Value::Bool(true)),
            Accumulator::Sum(sum) => *sum = add(*sum, value),
            Accumulator::Average { sum, count } => {
                *sum = add(*sum, value);
                *count += 1;
            }
            Accumulator::Extreme { keep, best, spoiled } => {
                if matches!(value, Value::Array(_) | Value::Object(_)) {
                    *spoiled = true;
                } else if best
                    .as_ref()
                    .is_none_or(|best| value::compare(Some(value), Some(best)) == *keep)
                {
                    *best = Some(value.clone());
                }
            }
            Accumulator::List(values) => {
                values.push(value.clone());
                return true;
            }
            Accumulator::Set(values, seen) => {
                let mut key = Vec::new();
                identity(Some(value), &mut key);
                if seen.insert(key) {
                    values.push(value.clone());
                    return true;
                }
            }
        }
        false
    }

    /// The answer over all values.
    pub(crate) fn finish(self) -> Option<Value> {
        match self {
            Accumulator::Count(count) | Accumulator::CountIf(count) => Some(Value::from(count)),
            Accumulator::Sum(sum) => sum.map(Value::from),
            Accumulator::Average { count: 0, .. } => None,
            Accumulator::Average { sum, count } => sum.map(|sum| Value::from(sum / count as f64)),
            Accumulator::Extreme { spoiled: true, .. } => None,
            Accumulator::Extreme { best, .. } => best,
            Accumulator::List(values) | Accumulator::Set(values, _) => Some(Value::Array(values)),
        }
    }
}

fn add(sum: Option<f64>, value: &Value) -> Option<f64> {
    Some(sum? + value.as_f64()?)
}
