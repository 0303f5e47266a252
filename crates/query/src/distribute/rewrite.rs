//! Divides a query into what each range answers and what the client does with the answers.
//!
//! The forms are the service's. A sorted query gives rows of the sort keys and the payload; an
//! aggregate gives what is needed to merge it, such as the sum and the count of an average; groups
//! come with their keys. `TOP` and `OFFSET LIMIT` go to the ranges only where no later step of the
//! client can drop rows.

use super::text::lines;
use super::{Distinct, MergeKey, QueryPlan};
use crate::Error;
use crate::aggregate::AggregateKind;
use crate::plan::Plan;
use crate::same::is_same;
use sql::{
    Collection, Count, Direction, Expr, ExprKind, Item, OrderBy, Page, Query, Selection, Span,
};
use std::collections::HashSet;
use value::Number;

/// Where clients put the condition from which they resume a sorted query.
pub(super) const FILTER_PLACEHOLDER: &str = "{documentdb-formattableorderbyquery-filter}";

/// The largest count that a query may name.
const COUNT_MAX: u64 = u32::MAX as u64;

/// A query, divided if it can be.
pub(super) enum Divided {
    /// The plan, without what is said about the query as a whole.
    Plan(Box<QueryPlan>),
    /// The ranges' answers cannot be merged by a client, and why.
    Cannot(Error),
}

fn cannot(why: &str) -> Result<Divided, Error> {
    Ok(Divided::Cannot(Error::refused(format!(
        "the query cannot be divided over several partition key ranges: {why}; send it without a \
         range, or confine it to one partition key"
    ))))
}

/// Divides a query that reads the container. A query that is pinned to one logical partition need
/// not be limited by the client.
pub(super) fn divide(query: &Query, bound: &Plan, is_pinned: bool) -> Result<Divided, Error> {
    let has_aggregates = bound.grouping.is_some();
    if has_aggregates {
        refuse_compositions(query)?;
    }
    if !bound.has_independent_rows() {
        return match distinct_count(query) {
            Some(plan) => Ok(Divided::Plan(Box::new(plan))),
            None => cannot("a subquery in FROM groups or removes duplicates"),
        };
    }
    let mut plan = QueryPlan::default();
    match (&query.top, &query.page) {
        (Some(_), _) => plan.top = bound.take,
        (None, Some(_)) => (plan.offset, plan.limit) = (Some(bound.skip), bound.take),
        (None, None) => {}
    }
    if has_aggregates && has_equal_names(&query.selection) {
        return cannot("two of its results have the same name");
    }
    if !query.group_by.is_empty() {
        return grouped(query, plan);
    }
    if has_aggregates {
        aggregated(query, &mut plan);
    } else if query.order_by.is_some() {
        return sorted(query, plan);
    } else {
        listed(query, &mut plan, is_pinned);
    }
    Ok(Divided::Plan(Box::new(plan)))
}

// ---- rows ----

/// A query whose rows come in any order.
fn listed(query: &Query, plan: &mut QueryPlan, is_pinned: bool) {
    if query.distinct {
        plan.distinct = Distinct::Unordered;
        if query.top.is_some() || query.page.is_some() {
            plan.rewritten = Some(lines(&unlimited(query.clone())));
        }
    } else if query.page.is_some() {
        if is_pinned {
            (plan.offset, plan.limit) = (None, None);
        } else {
            let page = window(plan);
            plan.rewritten = Some(lines(&Query { page, ..query.clone() }));
        }
    }
}

/// What each range must give so that the client can skip and limit over all of them.
fn window(plan: &QueryPlan) -> Option<Page> {
    let count = plan.offset? + plan.limit?;
    let number = |count: u64| Count::Number(Number::from(count), Span::default());
    // A range may give more than is needed; a larger count could not be written.
    (count <= COUNT_MAX).then(|| Page {
        offset: number(0),
        limit: number(count),
        span: Span::default(),
    })
}

fn unlimited(query: Query) -> Query {
    Query { top: None, page: None, ..query }
}

/// A query that is merged by its sort keys.
fn sorted(query: &Query, mut plan: QueryPlan) -> Result<Divided, Error> {
    let (Some(order_by), Some(root)) = (&query.order_by, root_alias(query)) else {
        return cannot("it sorts what lies inside of documents");
    };
    plan.order_by = order_by.keys.iter().map(merge_key).collect();
    if query.distinct {
        plan.distinct = sorted_distinct(query, order_by);
    }
    let placeholder = identifier(&format!("({FILTER_PLACEHOLDER})"));
    let mut conditions: Vec<Expr> = match &query.filter {
        Some(Expr { kind: ExprKind::And(terms), .. }) => terms.clone(),
        filter => filter.iter().cloned().collect(),
    };
    conditions.push(placeholder.clone());
    let payload = match &query.selection {
        Selection::Star(_) => identifier(root),
        Selection::List(items) => Expr::new(ExprKind::Object(members(items))),
        Selection::Value(value) => {
            // A row without a value is no row, and must not count as one before the client sees it.
            conditions.push(call("IS_DEFINED", value));
            value.clone()
        }
    };
    let filter = match conditions.len() {
        1 => placeholder,
        _ => Expr::new(ExprKind::And(conditions)),
    };
    let keys = order_by.keys.iter().map(|key| object([("item", key.expr.clone())])).collect();
    let rid = Expr::new(ExprKind::Member(Box::new(identifier(root)), "_rid".to_owned()));
    let selection = Selection::List(vec![
        Item { expr: rid, alias: None },
        named(Expr::new(ExprKind::Array(keys)), "orderByItems"),
        named(payload, "payload"),
    ]);
    let is_limited_by_ranges = !query.distinct;
    let top = plan.top.map(|top| Count::Number(Number::from(top), Span::default()));
    let rewritten = Query {
        distinct: false,
        top: top.filter(|_| is_limited_by_ranges),
        page: window(&plan).filter(|_| is_limited_by_ranges),
        selection,
        filter: Some(filter),
        ..query.clone()
    };
    plan.rewritten = Some(lines(&rewritten));
    Ok(Divided::Plan(Box::new(plan)))
}

fn merge_key(key: &sql::Order) -> MergeKey {
    MergeKey {
        expression: key.expr.to_string(),
        descending: key.direction == Some(Direction::Descending),
    }
}

/// Equal rows follow each other when the one thing selected is the one thing sorted by.
fn sorted_distinct(query: &Query, order_by: &OrderBy) -> Distinct {
    match (&query.selection, &order_by.keys[..]) {
        (Selection::Value(value), [key]) if is_same(value, &key.expr) => Distinct::Ordered,
        _ => Distinct::Unordered,
    }
}

/// The name of the documents, where the first source is the documents.
fn root_alias(query: &Query) -> Option<&str> {
    let source = query.from.first()?;
    match &source.collection {
        Collection::Path { steps, .. } if steps.is_empty() && !source.iterates => source.name(),
        _ => None,
    }
}

// ---- aggregates ----

/// The service plans no aggregate that is a part of a larger expression.
fn refuse_compositions(query: &Query) -> Result<(), Error> {
    let is_composed = |expr: &Expr| aggregate(expr).is_none() && has_aggregate(expr);
    let is_refused = match &query.selection {
        Selection::Star(_) => false,
        Selection::Value(expr) => is_composed(expr),
        Selection::List(items) => items.iter().any(|item| is_composed(&item.expr)),
    };
    match is_refused {
        true => {
            Err(Error::refused("Compositions of aggregates and other expressions are not allowed."))
        }
        false => Ok(()),
    }
}

fn has_aggregate(expr: &Expr) -> bool {
    aggregate(expr).is_some() || expr.children().into_iter().any(has_aggregate)
}

/// The aggregate and its argument that an expression is.
fn aggregate(expr: &Expr) -> Option<(AggregateKind, &Expr)> {
    match &expr.kind {
        ExprKind::Call { name, arguments, .. } => {
            Some((AggregateKind::named(name)?, arguments.first()?))
        }
        _ => None,
    }
}

/// What a range gives so that an aggregate can be merged. Clients that know `item2` take that, and
/// see from its count whether the range had any value at all.
fn partial(expr: &Expr, kind: AggregateKind, argument: &Expr) -> Expr {
    let extreme = |name: &str| {
        let known = object([(name, expr.clone()), ("count", call("COUNT", argument))]);
        object([("item", expr.clone()), ("item2", known)])
    };
    match kind {
        AggregateKind::Average => {
            let parts =
                object([("sum", call("SUM", argument)), ("count", call("COUNT", argument))]);
            object([("item", parts)])
        }
        AggregateKind::Min => extreme("min"),
        AggregateKind::Max => extreme("max"),
        AggregateKind::Count
        | AggregateKind::Sum
        | AggregateKind::CountIf
        | AggregateKind::MakeList
        | AggregateKind::MakeSet => object([("item", expr.clone())]),
    }
}

/// One row over everything. Neither an order nor the removal of duplicates can change it.
fn aggregated(query: &Query, plan: &mut QueryPlan) {
    let payload = payload(query, plan);
    let selection = match query.selection {
        Selection::Value(_) => Selection::Value(payload),
        Selection::Star(_) | Selection::List(_) => Selection::List(vec![named(payload, "payload")]),
    };
    let rewritten =
        Query { distinct: false, selection, order_by: None, ..unlimited(query.clone()) };
    plan.rewritten = Some(lines(&rewritten));
}

/// A row for each group.
fn grouped(query: &Query, mut plan: QueryPlan) -> Result<Divided, Error> {
    // Clients remove duplicates before they merge groups.
    if query.distinct && !selects_all_keys(query) {
        return cannot("it removes duplicates from groups");
    }
    let payload = payload(query, &mut plan);
    plan.group_by = query.group_by.iter().map(ToString::to_string).collect();
    let keys = query.group_by.iter().map(|key| object([("item", key.clone())])).collect();
    let selection = Selection::List(vec![
        named(Expr::new(ExprKind::Array(keys)), "groupByItems"),
        named(payload, "payload"),
    ]);
    let rewritten = Query { distinct: false, selection, ..unlimited(query.clone()) };
    plan.rewritten = Some(lines(&rewritten));
    Ok(Divided::Plan(Box::new(plan)))
}

/// Whether no two groups can give equal rows, because the rows hold the keys.
fn selects_all_keys(query: &Query) -> bool {
    let selected: Vec<&Expr> = match &query.selection {
        Selection::Star(_) => Vec::new(),
        Selection::Value(expr) => vec![expr],
        Selection::List(items) => items.iter().map(|item| &item.expr).collect(),
    };
    query.group_by.iter().all(|key| selected.iter().any(|expr| is_same(expr, key)))
}

/// What a range gives for the selection of groups; the plan learns how it is merged.
fn payload(query: &Query, plan: &mut QueryPlan) -> Expr {
    match &query.selection {
        Selection::Star(_) => unreachable!("'SELECT *' was refused when the query was bound"),
        Selection::Value(expr) => match aggregate(expr) {
            Some((kind, argument)) => {
                plan.aggregates.push(kind.into());
                Expr::new(ExprKind::Array(vec![partial(expr, kind, argument)]))
            }
            None => expr.clone(),
        },
        Selection::List(items) => {
            let mut payload = members(items);
            for (name, expr) in &mut payload {
                let found = aggregate(expr);
                plan.members.push((name.clone(), found.map(|(kind, _)| kind.into())));
                if let Some((kind, argument)) = found {
                    *expr = partial(expr, kind, argument);
                }
            }
            Expr::new(ExprKind::Object(payload))
        }
    }
}

/// Of two members with one name the later counts, if it is defined: nobody can tell who sees only
/// parts of them.
fn has_equal_names(selection: &Selection) -> bool {
    let Selection::List(items) = selection else { return false };
    let mut names = HashSet::new();
    members(items).into_iter().any(|(name, _)| !names.insert(name))
}

/// `COUNT` over the distinct results of a subquery: the client counts what it finds distinct.
fn distinct_count(query: &Query) -> Option<QueryPlan> {
    let [source] = &query.from[..] else { return None };
    let Collection::Subquery(inner) = &source.collection else { return None };
    let is_plain = !query.distinct
        && query.filter.is_none()
        && query.group_by.is_empty()
        && query.top.is_none()
        && query.page.is_none()
        && !source.iterates;
    let is_countable = inner.distinct
        && inner.group_by.is_empty()
        && matches!(inner.from.first()?.collection, Collection::Path { .. })
        && !selection_has_aggregate(&inner.selection);
    if !is_plain || !is_countable {
        return None;
    }
    let (expr, alias) = match &query.selection {
        Selection::Value(expr) => (expr, None),
        Selection::List(items) => match &items[..] {
            [item] => (&item.expr, Some(item.name().unwrap_or("$1").to_owned())),
            _ => return None,
        },
        Selection::Star(_) => return None,
    };
    let (AggregateKind::Count, argument) = aggregate(expr)? else { return None };
    let counts_every_row = match &argument.kind {
        ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Bool(_) | ExprKind::Null => true,
        ExprKind::Identifier(name) => source.name() == Some(name),
        _ => false,
    };
    counts_every_row.then(|| QueryPlan {
        distinct: Distinct::Unordered,
        distinct_count: Some(alias),
        rewritten: Some(lines(inner)),
        ..QueryPlan::default()
    })
}

fn selection_has_aggregate(selection: &Selection) -> bool {
    match selection {
        Selection::Star(_) => false,
        Selection::Value(expr) => has_aggregate(expr),
        Selection::List(items) => items.iter().any(|item| has_aggregate(&item.expr)),
    }
}

// ---- trees ----

/// The members of the object that a select list is.
fn members(items: &[Item]) -> Vec<(String, Expr)> {
    let mut unnamed = 0;
    let member = |item: &Item| {
        let name = item.name().map(str::to_owned).unwrap_or_else(|| {
            unnamed += 1;
            format!("${unnamed}")
        });
        (name, item.expr.clone())
    };
    items.iter().map(member).collect()
}

fn identifier(name: &str) -> Expr {
    Expr::new(ExprKind::Identifier(name.to_owned()))
}

fn call(name: &str, argument: &Expr) -> Expr {
    let arguments = vec![argument.clone()];
    Expr::new(ExprKind::Call { name: name.to_owned(), name_span: Span::default(), arguments })
}

fn object<const N: usize>(members: [(&str, Expr); N]) -> Expr {
    let members = members.into_iter().map(|(name, expr)| (name.to_owned(), expr));
    Expr::new(ExprKind::Object(members.collect()))
}

fn named(expr: Expr, alias: &str) -> Item {
    Item { expr, alias: Some(alias.to_owned()) }
}
