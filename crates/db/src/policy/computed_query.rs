//! The query of a computed property: one expression over one document, nothing else.
//!
//! The form is checked on the syntax tree. Whether a function exists and takes these arguments is
//! known to `query` alone, which says so when it first binds the property.

use std::collections::HashSet;

use sql::{Collection, Expr, ExprKind, Query, Selection};
use value::{Object, Value};

use super::PolicyError;

/// Refuses a query that is not one expression over one document. The service resolves names
/// before it looks at the form, so an unknown name is reported first.
pub(super) fn check(query: &str, offset: usize, others: &HashSet<&str>) -> Result<(), PolicyError> {
    let malformed = |details: String| {
        PolicyError::new(format!(
            "Computed property at index ({offset}) has a malformed query: '{query}' Error details: \
             '{details}'"
        ))
    };
    let tree = sql::parse(query).map_err(|error| malformed(syntax_error(&error)))?;
    let mut scope = Scope { names: vec![root_alias(&tree).map_err(&malformed)?], others };
    for expr in projected(&tree.selection) {
        scope.check(expr).map_err(&malformed)?;
    }
    if let Some(clause) = foreign_clause(&tree) {
        return Err(malformed(format!("{clause} is not allowed in a computed property.")));
    }
    if !matches!(tree.selection, Selection::Value(_)) {
        return Err(PolicyError::new(format!(
            "Required VALUE expression missing from computed property query '{query}' at index \
             ({offset})."
        )));
    }
    Ok(())
}

/// The name by which the query calls the document.
fn root_alias(tree: &Query) -> Result<&str, String> {
    let [source] = tree.from.as_slice() else {
        return Err("exactly one source is needed in FROM, and no JOIN.".to_owned());
    };
    match &source.collection {
        Collection::Path { root, steps } if steps.is_empty() && !source.iterates => {
            Ok(source.alias.as_deref().unwrap_or(root))
        }
        _ => Err("FROM must name the document itself.".to_owned()),
    }
}

fn projected(selection: &Selection) -> Vec<&Expr> {
    match selection {
        Selection::Star(_) => Vec::new(),
        Selection::Value(expr) => vec![expr],
        Selection::List(items) => items.iter().map(|item| &item.expr).collect(),
    }
}

fn foreign_clause(tree: &Query) -> Option<&'static str> {
    let clauses = [
        (tree.distinct, "DISTINCT"),
        (tree.top.is_some(), "TOP"),
        (tree.filter.is_some(), "WHERE"),
        (!tree.group_by.is_empty(), "GROUP BY"),
        (tree.order_by.is_some(), "ORDER BY"),
        (tree.page.is_some(), "OFFSET LIMIT"),
    ];
    clauses.into_iter().find(|(is_there, _)| *is_there).map(|(_, clause)| clause)
}

/// Functions over all documents, and those that answer differently each time.
const FOREIGN_FUNCTIONS: [&str; 15] = [
    "AVG",
    "COUNT",
    "COUNTIF",
    "GETCURRENTDATETIME",
    "GETCURRENTDATETIMESTATIC",
    "GETCURRENTTICKS",
    "GETCURRENTTICKSSTATIC",
    "GETCURRENTTIMESTAMP",
    "GETCURRENTTIMESTAMPSTATIC",
    "MAKELIST",
    "MAKESET",
    "MAX",
    "MIN",
    "RAND",
    "SUM",
];

/// Walks over an expression. The parser bounds the height of its trees, so recursion is safe.
struct Scope<'a> {
    /// The names in scope: the document first, then those of LET.
    names: Vec<&'a str>,
    /// The names of the other computed properties, which an expression cannot build on.
    others: &'a HashSet<&'a str>,
}

impl<'a> Scope<'a> {
    fn check(&mut self, expr: &'a Expr) -> Result<(), String> {
        match &expr.kind {
            ExprKind::Undefined
            | ExprKind::Null
            | ExprKind::Bool(_)
            | ExprKind::Number(_)
            | ExprKind::String(_) => Ok(()),
            ExprKind::Identifier(name) => self.check_name(name),
            ExprKind::Parameter(name) => Err(format!("the parameter {name} has no value.")),
            ExprKind::Member(owner, name) => {
                self.refuse_computed(owner, name)?;
                self.check(owner)
            }
            ExprKind::Index(owner, name) => {
                if let ExprKind::String(name) = &name.kind {
                    self.refuse_computed(owner, name)?;
                }
                self.check(owner)?;
                self.check(name)
            }
            ExprKind::Array(parts) | ExprKind::And(parts) | ExprKind::Or(parts) => {
                self.check_all(parts)
            }
            ExprKind::Object(members) => {
                members.iter().try_for_each(|(_, member)| self.check(member))
            }
            ExprKind::Unary(_, operand) => self.check(operand),
            ExprKind::Binary(_, left, right) | ExprKind::Coalesce(left, right) => {
                self.check(left)?;
                self.check(right)
            }
            ExprKind::Conditional(first, second, third) => {
                [first, second, third].into_iter().try_for_each(|part| self.check(part))
            }
            ExprKind::Between { value, low, high, .. } => {
                [value, low, high].into_iter().try_for_each(|part| self.check(part))
            }
            ExprKind::In { value, list, .. } => {
                self.check(value)?;
                self.check_all(list)
            }
            ExprKind::Like { value, pattern, .. } => {
                self.check(value)?;
                self.check(pattern)
            }
            ExprKind::Call { name, arguments, .. } => {
                check_function(name)?;
                self.check_all(arguments)
            }
            ExprKind::Udf { name, .. } => Err(format!(
                "the user-defined function '{name}' is not allowed in a computed property."
            )),
            ExprKind::Subquery(..) => {
                Err("a subquery is not allowed in a computed property.".to_owned())
            }
            ExprKind::Let { name, value, body } => {
                self.check(value)?;
                self.names.push(name);
                let checked = self.check(body);
                self.names.pop();
                checked
            }
        }
    }

    fn check_all(&mut self, parts: &'a [Expr]) -> Result<(), String> {
        parts.iter().try_for_each(|part| self.check(part))
    }

    fn check_name(&self, name: &str) -> Result<(), String> {
        if self.names.contains(&name) {
            return Ok(());
        }
        // The service puts its own error document into the text, without a location.
        let message = format!("Identifier '{name}' could not be resolved.");
        let error = Object::from([
            ("severity", Value::from("Error")),
            ("code", Value::from(2001)),
            ("message", Value::from(message)),
        ]);
        Err(error_document(error))
    }

    fn refuse_computed(&self, owner: &Expr, name: &str) -> Result<(), String> {
        let is_document = matches!(&owner.kind, ExprKind::Identifier(root) if Some(&root.as_str()) == self.names.first());
        if is_document && self.others.contains(name) {
            return Err(format!("'{name}' is itself a computed property."));
        }
        Ok(())
    }
}

fn check_function(name: &str) -> Result<(), String> {
    let upper = name.to_ascii_uppercase();
    if FOREIGN_FUNCTIONS.contains(&upper.as_str()) || upper.starts_with("ST_") {
        return Err(format!("the function '{name}' is not allowed in a computed property."));
    }
    Ok(())
}

fn syntax_error(error: &sql::Error) -> String {
    let location =
        Object::from([("start", Value::from(error.start)), ("end", Value::from(error.end))]);
    error_document(Object::from([
        ("severity", Value::from("Error")),
        ("location", Value::from(location)),
        ("code", Value::from(error.code)),
        ("message", Value::from(error.message.as_str())),
    ]))
}

fn error_document(error: Object) -> String {
    Value::from(Object::from([("errors", Value::from(vec![Value::from(error)]))])).to_text()
}
