//! When two expressions are the same text, as `GROUP BY` needs to know.
//!
//! An expression of the select list may be a key of the groups, and it is one when it was written as
//! the key was. Two spellings of one path are the same, `c["a"]` and `c.a`, and so are two cases of
//! a function name; nothing else is looked through.

use sql::{Expr, ExprKind};

/// Whether two expressions were written the same.
pub(crate) fn is_same(left: &Expr, right: &Expr) -> bool {
    if let (Some((left, left_name)), Some((right, right_name))) = (property(left), property(right))
    {
        return left_name == right_name && is_same(left, right);
    }
    if !has_same_head(&left.kind, &right.kind) {
        return false;
    }
    let (left, right) = (left.children(), right.children());
    left.len() == right.len()
        && left.into_iter().zip(right).all(|(left, right)| is_same(left, right))
}

/// The object and the name of a property reference, in either spelling.
fn property(expr: &Expr) -> Option<(&Expr, &str)> {
    match &expr.kind {
        ExprKind::Member(object, name) => Some((object, name)),
        ExprKind::Index(object, index) => match &index.kind {
            ExprKind::String(name) => Some((object, name)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether two expressions are the same apart from what is below them.
fn has_same_head(left: &ExprKind, right: &ExprKind) -> bool {
    match (left, right) {
        (ExprKind::Undefined, ExprKind::Undefined)
        | (ExprKind::Null, ExprKind::Null)
        | (ExprKind::Index(..), ExprKind::Index(..))
        | (ExprKind::Array(_), ExprKind::Array(_))
        | (ExprKind::And(_), ExprKind::And(_))
        | (ExprKind::Or(_), ExprKind::Or(_))
        | (ExprKind::Coalesce(..), ExprKind::Coalesce(..))
        | (ExprKind::Conditional(..), ExprKind::Conditional(..)) => true,
        (ExprKind::Bool(left), ExprKind::Bool(right)) => left == right,
        (ExprKind::Number(left), ExprKind::Number(right)) => left == right,
        (ExprKind::String(left), ExprKind::String(right))
        | (ExprKind::Parameter(left), ExprKind::Parameter(right))
        | (ExprKind::Identifier(left), ExprKind::Identifier(right))
        | (ExprKind::Udf { name: left, .. }, ExprKind::Udf { name: right, .. })
        | (ExprKind::Let { name: left, .. }, ExprKind::Let { name: right, .. }) => left == right,
        (ExprKind::Call { name: left, .. }, ExprKind::Call { name: right, .. }) => {
            left.eq_ignore_ascii_case(right)
        }
        (ExprKind::Object(left), ExprKind::Object(right)) => {
            left.iter().map(|(name, _)| name).eq(right.iter().map(|(name, _)| name))
        }
        (ExprKind::Unary(left, _), ExprKind::Unary(right, _)) => left == right,
        (ExprKind::Binary(left, ..), ExprKind::Binary(right, ..)) => left == right,
        (ExprKind::Between { negated: left, .. }, ExprKind::Between { negated: right, .. })
        | (ExprKind::In { negated: left, .. }, ExprKind::In { negated: right, .. }) => {
            left == right
        }
        (
            ExprKind::Like { negated: left, escape: left_escape, .. },
            ExprKind::Like { negated: right, escape: right_escape, .. },
        ) => left == right && left_escape == right_escape,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::Selection;

    fn expr(text: &str) -> Expr {
        let query = sql::parse(&format!("SELECT VALUE {text}")).unwrap();
        match query.selection {
            Selection::Value(expr) => expr,
            _ => unreachable!("the query selects a value"),
        }
    }

    #[track_caller]
    fn check(left: &str, right: &str, expected: bool) {
        assert_eq!(is_same(&expr(left), &expr(right)), expected, "{left} {right}");
    }

    #[test]
    fn spelling_decides_except_for_paths_and_functions() {
        check("c.a['b'].d", "c['a'].b['d']", true);
        check("LOWER(c.a)", "lower(c['a'])", true);
        check("c.a", "c.A", false);
        check("c[0]", "c['0']", false);
        check("c.a + 1", "1 + c.a", false);
        check("c.a IN (1)", "c.a NOT IN (1)", false);
        check("{x: c.a}", "{'x': c.a}", true);
        check("{x: c.a}", "{y: c.a}", false);
        check("c.a LIKE 'x'", "c.a LIKE 'x' ESCAPE '!'", false);
        check("(SELECT VALUE 1)", "(SELECT VALUE 1)", false);
    }
}
