//! Finds the partition that a query's own filter confines it to.
//!
//! A conjunction that fixes every path of the partition key to a constant can only be true for
//! documents of one logical partition, so the query needs no leave to cross partitions and no look
//! at the others. Anything less clear fixes nothing: the answer is the same, only slower.

use sql::{BinaryOperator, Collection, Expr, ExprKind};
use value::{Component, PartitionKey, PartitionKeyDefinition, Value};

/// The key that the filter of a query fixes, if it does.
pub(crate) fn fixed_key(
    definition: &PartitionKeyDefinition,
    text: &str,
    parameters: &[(String, Value)],
) -> Option<PartitionKey> {
    let query = sql::parse(text).ok()?;
    let [source, ..] = query.from.as_slice() else { return None };
    let Collection::Path { root, steps } = &source.collection else { return None };
    if source.iterates || !steps.is_empty() {
        return None;
    }
    let alias = source.alias.as_deref().unwrap_or(root);
    let filter = query.filter.as_ref()?;
    let terms = match &filter.kind {
        ExprKind::And(terms) => terms.as_slice(),
        _ => std::slice::from_ref(filter),
    };
    let component = |segments: &[String]| {
        terms.iter().find_map(|term| {
            let ExprKind::Binary(BinaryOperator::Equal, left, right) = &term.kind else {
                return None;
            };
            for (path, constant) in [(left, right), (right, left)] {
                if is_path(path, alias, segments) {
                    return constant_of(constant, parameters);
                }
            }
            None
        })
    };
    let components = definition.paths.iter().map(|path| component(path.segments()));
    components.collect::<Option<Vec<_>>>().map(PartitionKey)
}

/// Whether an expression is the document's value at a path.
fn is_path(expression: &Expr, alias: &str, segments: &[String]) -> bool {
    match (&expression.kind, segments.split_last()) {
        (ExprKind::Identifier(name), None) => name == alias,
        (ExprKind::Member(object, name), Some((last, rest))) => {
            name == last && is_path(object, alias, rest)
        }
        (ExprKind::Index(object, index), Some((last, rest))) => {
            matches!(&index.kind, ExprKind::String(name) if name == last)
                && is_path(object, alias, rest)
        }
        _ => false,
    }
}

fn constant_of(expression: &Expr, parameters: &[(String, Value)]) -> Option<Component> {
    let value = match &expression.kind {
        ExprKind::Null => Value::Null,
        ExprKind::Bool(flag) => Value::Bool(*flag),
        ExprKind::Number(number) => Value::Number(number.clone()),
        ExprKind::String(text) => Value::String(text.clone()),
        ExprKind::Parameter(name) => {
            parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())?
        }
        _ => return None,
    };
    Component::from_value(Some(&value))
}

#[cfg(test)]
mod tests {
    use value::{PartitionKind, Path};

    use super::*;

    fn check(paths: &[&str], text: &str, expected: Option<&str>) {
        let definition = PartitionKeyDefinition {
            paths: paths.iter().map(|path| Path::parse(path).unwrap()).collect(),
            kind: if paths.len() > 1 { PartitionKind::MultiHash } else { PartitionKind::Hash },
            version: 2,
            system_key: false,
        };
        let parameters = [("@p".to_owned(), Value::from("x"))];
        let key = fixed_key(&definition, text, &parameters).map(|key| key.to_string());
        assert_eq!(key.as_deref(), expected, "{text}");
    }

    #[test]
    fn equalities_fix_a_key() {
        check(&["/pk"], "SELECT * FROM c WHERE c.pk = 'a'", Some(r#"["a"]"#));
        check(&["/pk"], "SELECT * FROM c WHERE @p = c[\"pk\"] AND c.n > 1", Some(r#"["x"]"#));
        check(&["/a/b"], "SELECT * FROM root r WHERE r.a.b = 1", Some("[1]"));
        check(
            &["/city", "/zip"],
            "SELECT * FROM r WHERE r.zip = null AND r.city = 'X'",
            Some(r#"["X",null]"#),
        );
    }

    #[test]
    fn anything_else_fixes_nothing() {
        for text in [
            "SELECT * FROM c",
            "SELECT * FROM c WHERE c.pk > 'a'",
            "SELECT * FROM c WHERE c.pk = 'a' OR c.pk = 'b'",
            "SELECT * FROM c WHERE NOT c.pk = 'a'",
            "SELECT * FROM c WHERE c.other = 'a'",
            "SELECT * FROM c WHERE d.pk = 'a'",
            "SELECT * FROM x IN c.xs WHERE x.pk = 'a'",
            "SELECT * FROM c WHERE c.pk = c.other",
            "SELECT * FROM c WHERE c.pk = @unknown",
            "SELECT * FROM c WHERE c.pk = [1]",
        ] {
            check(&["/pk"], text, None);
        }
        check(&["/city", "/zip"], "SELECT * FROM r WHERE r.city = 'X'", None);
    }
}
