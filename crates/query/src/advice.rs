//! The service's advice about queries: ten rules on their text, told by id.
//!
//! Clients hold the sentences. Most rules are about filters, because there the index is at stake.

use sql::{Collection, Expr, ExprKind, Query, Selection, Source};

/// The ids of the advice that a query deserves, ascending.
pub(crate) fn advice(query: &Query) -> Vec<&'static str> {
    let mut found = Vec::new();
    advise_query(query, &mut found);
    found.sort_unstable();
    found.dedup();
    found
}

fn advise_query(query: &Query, found: &mut Vec<&'static str>) {
    if query.distinct && query.from.len() > 1 {
        found.push("QA1001");
    }
    if query.group_by.iter().any(|key| !is_path(key)) {
        found.push("QA1005");
    }
    for Source { collection, .. } in &query.from {
        match collection {
            Collection::Subquery(query) => advise_query(query, found),
            Collection::Call(call) => advise_expr(call, false, found),
            Collection::Path { .. } => {}
        }
    }
    match &query.selection {
        Selection::Star(_) => {}
        Selection::Value(expr) => advise_expr(expr, false, found),
        Selection::List(items) => {
            items.iter().for_each(|item| advise_expr(&item.expr, false, found));
        }
    }
    if let Some(filter) = &query.filter {
        advise_expr(filter, true, found);
    }
}

/// Looks at an expression and what is below it, subqueries included.
fn advise_expr(expr: &Expr, in_filter: bool, found: &mut Vec<&'static str>) {
    match &expr.kind {
        ExprKind::Subquery(_, query) => advise_query(query, found),
        ExprKind::Call { name, arguments, .. } if in_filter => {
            found.extend(call(&name.to_ascii_uppercase(), arguments));
        }
        ExprKind::Binary(_, left, right)
            if in_filter && (changes_case(left) || changes_case(right)) =>
        {
            found.push("QA1006");
        }
        _ => {}
    }
    expr.children().into_iter().for_each(|child| advise_expr(child, in_filter, found));
}

fn call(name: &str, arguments: &[Expr]) -> Option<&'static str> {
    let is_set = arguments.get(2).is_some_and(|flag| flag.kind != ExprKind::Bool(false));
    match name {
        "ARRAY_CONTAINS" if is_set => Some("QA1000"),
        "CONTAINS" => Some("QA1002"),
        "STARTSWITH" | "STRINGEQUALS" | "STRING_EQUALS" if is_set => Some("QA1003"),
        "ENDSWITH" if is_set => Some("QA1004"),
        "GETCURRENTDATETIME" => Some("QA1007"),
        "GETCURRENTTICKS" => Some("QA1008"),
        "GETCURRENTTIMESTAMP" => Some("QA1009"),
        _ => None,
    }
}

fn changes_case(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Call { name, .. }
        if name.eq_ignore_ascii_case("UPPER") || name.eq_ignore_ascii_case("LOWER"))
}

fn is_path(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Identifier(_) => true,
        ExprKind::Member(object, _) | ExprKind::Index(object, _) => is_path(object),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(advice(&sql::parse(text).unwrap()), expected, "{text}");
    }

    #[test]
    fn each_rule_finds_its_form() {
        check("SELECT * FROM c WHERE c.a = 1", &[]);
        check("SELECT CONTAINS(c.a, 'x') FROM c", &[]);
        check("SELECT * FROM c WHERE ARRAY_CONTAINS(c.a, {b: 1}, true)", &["QA1000"]);
        check("SELECT * FROM c WHERE ARRAY_CONTAINS(c.a, {b: 1}, false)", &[]);
        check("SELECT DISTINCT c.a FROM c JOIN t IN c.b", &["QA1001"]);
        check("SELECT DISTINCT c.a FROM c", &[]);
        check("SELECT * FROM c WHERE contains(c.a, 'x')", &["QA1002"]);
        check("SELECT * FROM c WHERE STARTSWITH(c.a, 'x', true)", &["QA1003"]);
        check("SELECT * FROM c WHERE StringEquals(c.a, 'x', true)", &["QA1003"]);
        check("SELECT * FROM c WHERE STARTSWITH(c.a, 'x')", &[]);
        check("SELECT * FROM c WHERE ENDSWITH(c.a, 'x', true)", &["QA1004"]);
        check("SELECT COUNT(1) FROM c GROUP BY LOWER(c.a)", &["QA1005"]);
        check("SELECT COUNT(1) FROM c GROUP BY c.a, c['b']", &[]);
        check("SELECT * FROM c WHERE UPPER(c.a) = 'X' OR c.b = LOWER('X')", &["QA1006"]);
        check("SELECT * FROM c WHERE c.a < GetCurrentDateTime()", &["QA1007"]);
        check("SELECT * FROM c WHERE c.a < GetCurrentTicks()", &["QA1008"]);
        check("SELECT * FROM c WHERE c.a < GetCurrentTimestamp()", &["QA1009"]);
        check("SELECT * FROM c WHERE c.a < GetCurrentTimestampStatic()", &[]);
    }

    #[test]
    fn rules_look_into_subqueries_and_are_told_once() {
        check(
            "SELECT * FROM c JOIN (SELECT VALUE t FROM t IN c.b WHERE CONTAINS(t, 'x')) \
             WHERE CONTAINS(c.a, 'y') AND EXISTS(SELECT VALUE 1 WHERE ENDSWITH(c.a, 'z', true))",
            &["QA1002", "QA1004"],
        );
    }
}
