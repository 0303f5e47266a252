//! Spans: what lies in one, in two at once, and which comes first.

use crate::access::{ScalarKind, Span};
use std::cmp::Ordering;
use std::ops::Bound;
use value::Value;

/// How many pairs of spans are looked at to intersect two lists.
const PAIRS_MAX: usize = 1 << 16;

/// What two spans have in common.
enum Common {
    Nothing,
    Span(Span),
    /// Not something that is one span.
    Several,
}

/// The kind of a scalar; arrays and objects have none.
pub(super) fn kind_of(value: &Value) -> Option<ScalarKind> {
    match value {
        Value::Null => Some(ScalarKind::Null),
        Value::Bool(_) => Some(ScalarKind::Boolean),
        Value::Number(_) => Some(ScalarKind::Number),
        Value::String(_) => Some(ScalarKind::String),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// The scalars that lie in a span of both lists, when that can be told.
pub(super) fn intersect(left: &[Span], right: &[Span]) -> Option<Vec<Span>> {
    if left.len().saturating_mul(right.len()) > PAIRS_MAX {
        return None;
    }
    let mut spans = Vec::new();
    for left in left {
        for right in right {
            match common(left, right) {
                Common::Nothing => {}
                Common::Span(span) => spans.push(span),
                Common::Several => return None,
            }
        }
    }
    Some(spans)
}

/// In the order of their values, each once.
pub(super) fn sort(spans: &mut Vec<Span>) {
    spans.sort_by(order);
    spans.dedup();
}

fn common(left: &Span, right: &Span) -> Common {
    if span_kind(left) != span_kind(right) {
        return Common::Nothing;
    }
    match (left, right) {
        (Span::Kind(_), other) | (other, Span::Kind(_)) => Common::Span(other.clone()),
        (Span::Exactly(value), other) | (other, Span::Exactly(value)) => {
            if contains(other, value) {
                Common::Span(Span::Exactly(value.clone()))
            } else {
                Common::Nothing
            }
        }
        (Span::Prefix(left), Span::Prefix(right)) => {
            let (short, long) =
                if left.len() < right.len() { (left, right) } else { (right, left) };
            match long.starts_with(short.as_str()) {
                true => Common::Span(Span::Prefix(long.clone())),
                false => Common::Nothing,
            }
        }
        (Span::Prefix(prefix), Span::Between { low, high })
        | (Span::Between { low, high }, Span::Prefix(prefix)) => begin_between(prefix, low, high),
        (
            Span::Between { low: left_low, high: left_high },
            Span::Between { low: right_low, high: right_high },
        ) => between(tighter_low(left_low, right_low), tighter_high(left_high, right_high)),
    }
}

fn span_kind(span: &Span) -> Option<ScalarKind> {
    match span {
        Span::Exactly(value) => kind_of(value),
        Span::Between { low, high } => bound(low).or(bound(high)).and_then(kind_of),
        Span::Prefix(_) => Some(ScalarKind::String),
        Span::Kind(kind) => Some(*kind),
    }
}

fn bound(bound: &Bound<Value>) -> Option<&Value> {
    match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(value),
        Bound::Unbounded => None,
    }
}

/// Whether a scalar of the span's kind lies in it.
fn contains(span: &Span, value: &Value) -> bool {
    match span {
        Span::Exactly(other) => compare(value, other).is_eq(),
        Span::Between { low, high } => {
            let above = match low {
                Bound::Included(low) => compare(value, low).is_ge(),
                Bound::Excluded(low) => compare(value, low).is_gt(),
                Bound::Unbounded => true,
            };
            let below = match high {
                Bound::Included(high) => compare(value, high).is_le(),
                Bound::Excluded(high) => compare(value, high).is_lt(),
                Bound::Unbounded => true,
            };
            above && below
        }
        Span::Prefix(prefix) => value.as_str().is_some_and(|text| text.starts_with(prefix)),
        Span::Kind(_) => true,
    }
}

fn compare(left: &Value, right: &Value) -> Ordering {
    value::compare(Some(left), Some(right))
}

/// The strings with a prefix lie together: a bound that lacks the prefix is on one side of all.
fn begin_between(prefix: &str, low: &Bound<Value>, high: &Bound<Value>) -> Common {
    let text = |side| bound(side).and_then(Value::as_str);
    if let Some(low) = text(low)
        && low >= prefix
    {
        return if low.starts_with(prefix) { Common::Several } else { Common::Nothing };
    }
    if let Some(high) = text(high)
        && (high <= prefix || high.starts_with(prefix))
    {
        return if high < prefix { Common::Nothing } else { Common::Several };
    }
    Common::Span(Span::Prefix(prefix.to_owned()))
}

fn between(low: Bound<Value>, high: Bound<Value>) -> Common {
    if let (Some(bottom), Some(top)) = (bound(&low), bound(&high)) {
        let is_closed = matches!((&low, &high), (Bound::Included(_), Bound::Included(_)));
        match compare(bottom, top) {
            Ordering::Greater => return Common::Nothing,
            Ordering::Equal if is_closed => return Common::Span(Span::Exactly(bottom.clone())),
            Ordering::Equal => return Common::Nothing,
            Ordering::Less => {}
        }
    }
    Common::Span(Span::Between { low, high })
}

fn tighter_low(left: &Bound<Value>, right: &Bound<Value>) -> Bound<Value> {
    tighter(left, right, Ordering::Greater)
}

fn tighter_high(left: &Bound<Value>, right: &Bound<Value>) -> Bound<Value> {
    tighter(left, right, Ordering::Less)
}

fn tighter(left: &Bound<Value>, right: &Bound<Value>, wanted: Ordering) -> Bound<Value> {
    let (Some(left_value), Some(right_value)) = (bound(left), bound(right)) else {
        return if matches!(left, Bound::Unbounded) { right.clone() } else { left.clone() };
    };
    match compare(left_value, right_value) {
        Ordering::Equal if matches!(left, Bound::Excluded(_)) => left.clone(),
        Ordering::Equal => right.clone(),
        order if order == wanted => left.clone(),
        _ => right.clone(),
    }
}

fn order(left: &Span, right: &Span) -> Ordering {
    let kinds = rank(left).cmp(&rank(right));
    kinds.then_with(|| value::compare(start(left).as_deref(), start(right).as_deref()))
}

fn rank(span: &Span) -> u8 {
    match span_kind(span) {
        Some(ScalarKind::Null) | None => 0,
        Some(ScalarKind::Boolean) => 1,
        Some(ScalarKind::Number) => 2,
        Some(ScalarKind::String) => 3,
    }
}

/// Where a span starts; nothing when it starts with its kind.
fn start(span: &Span) -> Option<std::borrow::Cow<'_, Value>> {
    use std::borrow::Cow;
    match span {
        Span::Exactly(value) => Some(Cow::Borrowed(value)),
        Span::Between { low, .. } => bound(low).map(Cow::Borrowed),
        Span::Prefix(prefix) => Some(Cow::Owned(Value::from(prefix.as_str()))),
        Span::Kind(_) => None,
    }
}
