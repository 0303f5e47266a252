//! `ORDER BY` in terms of a document.
//!
//! The binder accepts only paths below the first source, which is not iterated: so the keys are
//! functions of the document, the same for all rows that joins make of it, and can be evaluated
//! without the frames of the joins.

use crate::access::{Indexed, OrderBy, PathSegment};
use crate::aggregate::AggregateKind;
use crate::plan::{Aggregate, Origin, PathStep, Plan, Scalar, Source};
use std::sync::Arc;

/// The keys as an index knows them.
pub(super) fn order(plan: &Plan) -> Vec<OrderBy> {
    let key = |scalar| indexed(plan, scalar);
    plan.order_by
        .iter()
        .map(|order| OrderBy { key: key(&order.scalar), descending: order.descending })
        .collect()
}

/// What the query wants the least or the greatest of, where that is all that it wants of documents: by
/// which the best document comes first.
pub(super) fn extremes(plan: &Plan) -> Option<Vec<OrderBy>> {
    let [Source { origin: Origin::Container(_), iterates: false }] = &plan.sources[..] else {
        return None;
    };
    let grouping = plan.grouping.as_ref().filter(|grouping| grouping.keys.is_empty())?;
    let extreme = |aggregate: &Aggregate| {
        let descending = match aggregate.kind {
            AggregateKind::Min => false,
            AggregateKind::Max => true,
            _ => return None,
        };
        let key = indexed(plan, &aggregate.argument)?;
        Some(OrderBy { key: Some(key), descending })
    };
    grouping.aggregates.iter().map(extreme).collect()
}

/// The keys over one frame, which is the value of the first source.
pub(super) fn sort_keys(plan: &Plan) -> Vec<Scalar> {
    plan.order_by.iter().map(|order| over_first(&order.scalar)).collect()
}

fn indexed(plan: &Plan, scalar: &Scalar) -> Option<Indexed> {
    let Some(Source { origin: Origin::Container(steps), .. }) = plan.sources.first() else {
        return None;
    };
    if let Scalar::Computed(_, property) = scalar {
        return Some(Indexed::Computed(property.name.clone()));
    }
    let mut path = Vec::new();
    for step in steps {
        match step {
            PathStep::Name(name) => path.push(PathSegment::Property(name.clone())),
            PathStep::Offset(_) => return None,
        }
    }
    below(scalar, &mut path)?;
    Some(Indexed::Path(path))
}

/// Appends the names of a path; `None` when there is anything else in it.
fn below(scalar: &Scalar, path: &mut Vec<PathSegment>) -> Option<()> {
    match scalar {
        Scalar::Slot(_) => Some(()),
        Scalar::Member(object, name) => {
            below(object, path)?;
            path.push(PathSegment::Property(name.clone()));
            Some(())
        }
        _ => None,
    }
}

fn over_first(scalar: &Scalar) -> Scalar {
    match scalar {
        Scalar::Slot(_) => Scalar::Slot(0),
        Scalar::Member(object, name) => Scalar::Member(Box::new(over_first(object)), name.clone()),
        Scalar::Index(object, index) => Scalar::Index(Box::new(over_first(object)), index.clone()),
        Scalar::Computed(document, property) => {
            Scalar::Computed(Box::new(over_first(document)), Arc::clone(property))
        }
        _ => unreachable!("the binder refuses keys that are no paths"),
    }
}
