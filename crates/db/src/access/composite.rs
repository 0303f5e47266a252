//! What composite indexes have to offer to a query.
//!
//! Every document has exactly one entry in a composite index, with the values of all paths one behind
//! the other; what a document lacks is undefined there. So where a filter names values for the first
//! paths, and a few values or spans for the next one, the documents that can satisfy it lie in a few
//! runs of entries. The partition of a slice is as good as a filter on the paths of the partition key.

use std::borrow::Cow;

use query::{Condition, Indexed, OrderBy, PathSegment, Span};
use storage::Direction;
use value::{PartitionKey, Value};

use super::lookup::{Branch, Confined, Run, merged};
use super::ordered::{Along, Stretch, encode_exactly};
use crate::container::Container;
use crate::index::definition::Composite;
use crate::index::entry::{self, Component};

/// A lookup has at most so many runs in each slice: every value of one path is combined with every
/// value of the next.
const RUNS_MAX: usize = 256;

/// The values that a partition key gives to its paths. Documents that lack a path are not told from
/// others.
pub(super) fn key_values(container: &Container, key: &PartitionKey) -> Vec<(Indexed, Value)> {
    let paths = container.policies.partition_key.paths.iter();
    let known = paths.zip(&key.0).filter_map(|(path, component)| {
        let value = match component {
            value::Component::Undefined => return None,
            value::Component::Null => Value::Null,
            value::Component::Bool(flag) => Value::Bool(*flag),
            value::Component::Number(number) => Value::from(*number),
            value::Component::String(text) => Value::String(text.clone()),
        };
        let segments = path.segments().iter().cloned().map(PathSegment::Property);
        Some((Indexed::Path(segments.collect()), value))
    });
    known.collect()
}

/// All that is known of the documents of a slice that can contribute.
#[derive(Clone, Copy)]
pub(super) struct Filter<'c> {
    /// What all holds.
    pub(super) parts: &'c [Condition],
    /// What the partition of the slice says, where it is one.
    pub(super) key: &'c [(Indexed, Value)],
}

impl<'c> Filter<'c> {
    /// Where the value at a path lies.
    fn spans(&self, what: &Indexed) -> Option<Cow<'c, [Span]>> {
        if let Some(value) = self.key_value(what) {
            return Some(Cow::Owned(vec![Span::Exactly(value.clone())]));
        }
        let mut known: Option<&[Span]> = None;
        for part in self.parts {
            if let Condition::Holds { path, spans } = part
                && path == what
                && known.is_none_or(|known| !is_values(known) && is_values(spans))
            {
                known = Some(spans);
            }
        }
        known.map(Cow::Borrowed)
    }

    fn key_value(&self, what: &Indexed) -> Option<&'c Value> {
        self.key.iter().find(|(path, _)| path == what).map(|(_, value)| value)
    }

    /// The one value that there can be at a path.
    fn value(&self, what: &Indexed) -> Option<Value> {
        match &*self.spans(what)? {
            [Span::Exactly(value)] => Some(value.clone()),
            _ => None,
        }
    }

    /// Whether a document meets all conditions when it meets those on these paths.
    pub(super) fn is_covered_by(&self, paths: &[Indexed]) -> bool {
        let mut seen: Vec<&Indexed> = Vec::new();
        self.parts.iter().all(|part| {
            let path = match part {
                Condition::Anything => return true,
                Condition::Holds { path, .. } => path,
                _ => return false,
            };
            // Of two conditions on one path only one was looked at.
            let is_first = !seen.contains(&path);
            seen.push(path);
            let is_known = self.key_value(path).is_some();
            is_first && (is_known || paths.contains(path))
        })
    }

    /// How many leading paths of an index it speaks of: by values, and at last perhaps by spans.
    fn leading(&self, composite: &Composite) -> usize {
        let (mut leading, mut runs) = (0, 1_usize);
        for what in &composite.paths {
            let Some(spans) = self.spans(what) else { break };
            runs = runs.saturating_mul(spans.len());
            if runs > RUNS_MAX {
                break;
            }
            leading += 1;
            if !is_values(&spans) {
                break;
            }
        }
        leading
    }

    /// The entries that can lead to documents, by so many leading paths.
    fn runs(&self, composite: &Composite, leading: usize) -> Vec<Run> {
        let mut starts = vec![entry::prefix(&composite.id)];
        for (what, component) in composite.paths.iter().zip(&composite.components).take(leading) {
            let spans = self.spans(what).unwrap_or_default();
            if !is_values(&spans) {
                let runs = starts.iter().flat_map(|start| {
                    spans.iter().map(|span| {
                        let (from, to) = entry::bounds(start, *component, span);
                        Run::Span(from, to)
                    })
                });
                return merged(runs.collect());
            }
            let longer = starts.iter().flat_map(|start| {
                values(&spans).map(|value| {
                    let mut start = start.clone();
                    let is_descending = *component == Component::Descending;
                    entry::encode_component(Some(value), is_descending, &mut start);
                    start
                })
            });
            starts = longer.collect();
        }
        let is_whole = leading == composite.paths.len();
        let runs = starts.into_iter().map(|start| match is_whole {
            true => Run::Value(start),
            false => whole(start),
        });
        merged(runs.collect())
    }
}

fn whole(start: Vec<u8>) -> Run {
    let end = entry::successor(start.clone());
    Run::Span(start, end)
}

fn is_values(spans: &[Span]) -> bool {
    spans.iter().all(|span| matches!(span, Span::Exactly(_)))
}

fn values(spans: &[Span]) -> impl Iterator<Item = &Value> {
    spans.iter().filter_map(|span| match span {
        Span::Exactly(value) => Some(value),
        _ => None,
    })
}

/// The lookup that an index offers, with what is known of each slice. `None` when it is no better
/// than that of a single path: `is_served` says whether such a path has an index of its own.
pub(super) fn lookup(
    node: u16,
    composite: &Composite,
    slices: &[Filter<'_>],
    is_served: impl Fn(&Indexed) -> bool,
) -> Option<Branch> {
    let leading = slices.iter().map(|filter| filter.leading(composite)).min()?;
    let used = &composite.paths[..leading];
    let is_better = |filter: &Filter<'_>| {
        let mut others = used.iter().filter(|what| filter.key_value(what).is_none());
        match (others.next(), others.next()) {
            (None, _) => false,
            // Entries of one value lie together inside of a partition in any index.
            (Some(only), None) if !filter.key.is_empty() => {
                let by_values = filter.spans(only).is_some_and(|spans| is_values(&spans));
                !by_values || !is_served(only)
            }
            (Some(_), _) => true,
        }
    };
    if leading < 2 || !slices.iter().any(is_better) {
        return None;
    }
    let confined = slices.iter().map(|filter| Confined {
        runs: filter.runs(composite, leading),
        key: used.iter().map(|what| filter.key_value(what).cloned()).collect(),
    });
    Some(Branch::composite(node, composite, leading, confined.collect()))
}

/// How an index serves an order: behind values that the filter fixes come the keys of the order, all
/// in the index's directions or all against them.
pub(super) fn along(
    composite: &Composite,
    order: &[OrderBy],
    slices: &[Filter<'_>],
) -> Option<Along> {
    let fixed_count = composite.paths.len().checked_sub(order.len())?;
    let keys = composite.paths.iter().zip(&composite.components).skip(fixed_count);
    let directions = keys.zip(order).map(|((what, component), by)| {
        let is_descending = *component == Component::Descending;
        (by.key.as_ref() == Some(what)).then_some(is_descending != by.descending)
    });
    let reversed = directions.collect::<Option<Vec<bool>>>()?;
    let is_reversed = *reversed.first()?;
    if reversed.iter().any(|reversed| *reversed != is_reversed) {
        return None;
    }
    let stretches = slices.iter().map(|filter| stretch(composite, fixed_count, *filter));
    let stretches = stretches.collect::<Option<Vec<_>>>()?;
    let is_covered = slices
        .iter()
        .zip(&stretches)
        .all(|(filter, (_, used))| filter.is_covered_by(&composite.paths[..*used]));
    let descending =
        composite.components.iter().map(|component| *component == Component::Descending);
    Some(Along {
        id: composite.id,
        paths: composite.paths.iter().cloned().zip(descending).collect(),
        direction: if is_reversed { Direction::Backward } else { Direction::Forward },
        layout: composite.components.clone(),
        fixed_count,
        stretches: stretches.into_iter().map(|(stretch, _)| stretch).collect(),
        others: None,
        is_covered,
        // Whoever knows the scope and the query knows better.
        is_straight: false,
        cover: None,
    })
}

/// The entries of a slice in order, and of how many leading paths they leave out what cannot be.
fn stretch(
    composite: &Composite,
    fixed_count: usize,
    filter: Filter<'_>,
) -> Option<(Stretch, usize)> {
    let mut keys = composite.paths.iter().zip(composite.components.iter().copied());
    let mut fixed = Vec::new();
    for (what, component) in keys.by_ref().take(fixed_count) {
        // Values that share an entry would come mixed.
        if !encode_exactly(Some(&filter.value(what)?), component, &mut fixed) {
            return None;
        }
    }
    let mut start = [entry::prefix(&composite.id), fixed.clone()].concat();
    let mut used = fixed_count;
    for (what, component) in keys {
        let Some(spans) = filter.spans(what) else { break };
        used += 1;
        if let [Span::Exactly(value)] = &*spans {
            if encode_exactly(Some(value), component, &mut start) {
                continue;
            }
            break;
        }
        let runs = spans.iter().map(|span| {
            let (from, to) = entry::bounds(&start, component, span);
            Run::Span(from, to)
        });
        return Some((Stretch { fixed, runs: merged(runs.collect()) }, used));
    }
    Some((Stretch { fixed, runs: vec![whole(start)] }, used))
}

/// A composite index by its paths, and whether each has the greatest first.
pub(crate) type Paths = Vec<(Indexed, bool)>;

/// A policy may have composite indexes of so many paths.
const PATHS_MAX: usize = 8;

/// The composite indexes that would serve a query best: first the paths that the filter gives values
/// for, then one for which it gives spans, or the keys of the order.
pub(super) fn recommended(filter: Filter<'_>, order: &[OrderBy]) -> Vec<Paths> {
    let mut fixed: Paths = filter.key.iter().map(|(path, _)| (path.clone(), false)).collect();
    let mut spanned: Vec<&Indexed> = Vec::new();
    let holds = filter.parts.iter().filter_map(|part| match part {
        Condition::Holds { path, spans } => Some((path, spans)),
        _ => None,
    });
    for (path, spans) in holds.filter(|(path, _)| is_composable(path)) {
        if !is_values(spans) {
            spanned.push(path);
        } else if !fixed.iter().any(|(known, _)| known == path) {
            fixed.push((path.clone(), false));
        }
    }
    spanned.retain(|path| !fixed.iter().any(|(known, _)| known == *path));
    let keys = order.iter().map(|by| {
        let key = by.key.clone().filter(is_composable)?;
        let is_fixed = fixed.iter().any(|(known, _)| *known == key);
        (!is_fixed).then_some((key, by.descending))
    });
    let keys: Option<Paths> = keys.collect();
    let ends: Vec<Paths> = match keys {
        None => Vec::new(),
        Some(keys) if !keys.is_empty() => vec![keys],
        Some(_) if spanned.is_empty() => vec![Vec::new()],
        Some(_) => spanned.into_iter().map(|path| vec![(path.clone(), false)]).collect(),
    };
    let with_fixed = ends.into_iter().map(|end| {
        let is_by_values = end.is_empty();
        (fixed.iter().cloned().chain(end).collect::<Paths>(), is_by_values)
    });
    let of_use = with_fixed.filter(|(paths, is_by_values)| {
        let others = paths.iter().filter(|(path, _)| filter.key_value(path).is_none()).count();
        // Inside of a partition, the values of one path need no more than the path's own index.
        let is_better = others > usize::from(*is_by_values && !filter.key.is_empty());
        !fixed.is_empty() && is_better && (2..=PATHS_MAX).contains(&paths.len())
    });
    of_use.map(|(paths, _)| paths).collect()
}

/// Whether a composite index can be over it.
fn is_composable(what: &Indexed) -> bool {
    match what {
        Indexed::Path(path) => !path.contains(&PathSegment::Element),
        Indexed::Computed(_) => true,
        Indexed::Shapes(_) => false,
    }
}
