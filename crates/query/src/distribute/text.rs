//! Prints a query as plans do: one clause on a line, subqueries of `FROM` indented.

use sql::{Collection, Query, Source};

const INDENT: &str = "    ";

/// The text of a query, clause by clause.
pub(super) fn lines(query: &Query) -> String {
    let mut out = String::new();
    write_query(query, "", &mut out);
    out
}

fn write_query(query: &Query, indent: &str, out: &mut String) {
    out.push_str("SELECT ");
    if query.distinct {
        out.push_str("DISTINCT ");
    }
    if let Some(top) = &query.top {
        out.push_str(&format!("TOP {top} "));
    }
    out.push_str(&query.selection.to_string());
    let mut line = |text: String| {
        out.push('\n');
        out.push_str(indent);
        out.push_str(&text);
    };
    for (position, source) in query.from.iter().enumerate() {
        let word = if position == 0 { "FROM" } else { "JOIN" };
        line(format!("{word} {}", source_text(source, indent)));
    }
    if let Some(filter) = &query.filter {
        line(format!("WHERE {filter}"));
    }
    if !query.group_by.is_empty() {
        let keys: Vec<String> = query.group_by.iter().map(ToString::to_string).collect();
        line(format!("GROUP BY {}", keys.join(", ")));
    }
    if let Some(order_by) = &query.order_by {
        line(order_by.to_string());
    }
    if let Some(page) = &query.page {
        line(format!("OFFSET {} LIMIT {}", page.offset, page.limit));
    }
}

fn source_text(source: &Source, indent: &str) -> String {
    let Collection::Subquery(query) = &source.collection else { return source.to_string() };
    let deeper = format!("{indent}{INDENT}");
    let mut inner = String::new();
    write_query(query, &deeper, &mut inner);
    let subquery = format!("(\n{deeper}{inner}\n{indent})");
    match &source.alias {
        Some(alias) if source.iterates => format!("{alias} IN {subquery}"),
        Some(alias) => format!("{subquery} AS {alias}"),
        None => subquery,
    }
}
