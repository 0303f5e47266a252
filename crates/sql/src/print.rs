//! Prints a tree as the service's normal form.
//!
//! Every operator stands in parentheses and every string in double quotes, so the text means the
//! same under any table of precedence. Printing adds nothing to the depth that was parsed except
//! parentheses around operators, and long chains of `AND` and `OR` are printed flat for that
//! reason: a printed tree can always be parsed again.

use crate::parser::is_plain_name;
use crate::{
    Collection, Condition, Count, Direction, Expr, ExprKind, Item, OrderBy, Query, Selection,
    Source, Step, SubqueryKind, UnaryOperator,
};
use std::fmt::{self, Display, Formatter};
use value::Value;

/// Chains up to this length are printed as nested pairs, as the service does.
const NESTED_TERMS_MAX: usize = 16;

impl Display for Query {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str("SELECT ")?;
        if self.distinct {
            out.write_str("DISTINCT ")?;
        }
        if let Some(top) = &self.top {
            write!(out, "TOP {top} ")?;
        }
        write!(out, "{}", self.selection)?;
        for (position, source) in self.from.iter().enumerate() {
            out.write_str(if position == 0 { " FROM " } else { " JOIN " })?;
            write!(out, "{source}")?;
        }
        if let Some(filter) = &self.filter {
            write!(out, " WHERE {filter}")?;
        }
        if !self.group_by.is_empty() {
            out.write_str(" GROUP BY ")?;
            list(out, &self.group_by)?;
        }
        if let Some(order_by) = &self.order_by {
            write!(out, " {order_by}")?;
        }
        if let Some(page) = &self.page {
            write!(out, " OFFSET {} LIMIT {}", Whole(&page.offset), Whole(&page.limit))?;
        }
        Ok(())
    }
}

impl Display for Condition {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "FROM {} WHERE {}", self.source, self.filter)
    }
}

impl Display for Selection {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Selection::Star(_) => out.write_str("*"),
            Selection::Value(expr) => write!(out, "VALUE {expr}"),
            Selection::List(items) => list(out, items),
        }
    }
}

impl Display for Item {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.expr)?;
        match &self.alias {
            Some(alias) if is_plain_name(alias) => write!(out, " AS {alias}"),
            Some(alias) => write!(out, " AS {}", Quoted(alias)),
            None => Ok(()),
        }
    }
}

impl Display for Count {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Count::Number(number, _) => out.write_str(&number.text()),
            Count::Parameter(name, _) => out.write_str(name),
        }
    }
}

/// The count of `OFFSET` or `LIMIT`, which is read without an exponent only.
struct Whole<'a>(&'a Count);

impl Display for Whole<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Count::Number(number, _) if number.as_i64().is_none() => {
                write!(out, "{:.0}", number.as_f64())
            }
            count => write!(out, "{count}"),
        }
    }
}

impl Display for Source {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match &self.alias {
            Some(alias) if self.iterates => write!(out, "{alias} IN {}", self.collection),
            Some(alias) => write!(out, "{} AS {alias}", self.collection),
            None => write!(out, "{}", self.collection),
        }
    }
}

impl Display for Collection {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Collection::Path { root, steps } => {
                out.write_str(root)?;
                steps.iter().try_for_each(|step| write!(out, "{step}"))
            }
            Collection::Subquery(query) => write!(out, "({query})"),
            Collection::Call(call) => write!(out, "{call}"),
        }
    }
}

impl Display for Step {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Step::Name(name) => write!(out, ".{name}"),
            Step::Quoted(name) => write!(out, "[{}]", Quoted(name)),
            Step::Offset(offset) => write!(out, "[{offset}]"),
        }
    }
}

impl Display for OrderBy {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(if self.rank { "ORDER BY RANK " } else { "ORDER BY " })?;
        for (position, key) in self.keys.iter().enumerate() {
            if position > 0 {
                out.write_str(", ")?;
            }
            write!(out, "{}", key.expr)?;
            out.write_str(match key.direction {
                Some(Direction::Ascending) => " ASC",
                Some(Direction::Descending) => " DESC",
                None => "",
            })?;
        }
        Ok(())
    }
}

impl Display for Expr {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ExprKind::Undefined => out.write_str("undefined"),
            ExprKind::Null => out.write_str("null"),
            ExprKind::Bool(truth) => write!(out, "{truth}"),
            ExprKind::Number(number) => out.write_str(&number.text()),
            ExprKind::String(text) => write!(out, "{}", Quoted(text)),
            ExprKind::Parameter(name) | ExprKind::Identifier(name) => out.write_str(name),
            ExprKind::Member(object, name) => write!(out, "{}.{name}", Operand(object)),
            ExprKind::Index(object, index) => write!(out, "{}[{index}]", Operand(object)),
            ExprKind::Array(items) => bracketed(out, "[", items, "]"),
            ExprKind::Object(members) => object(out, members),
            ExprKind::Unary(operator, operand) => unary(out, *operator, operand),
            ExprKind::Binary(operator, left, right) => {
                write!(out, "({left} {} {right})", operator.symbol())
            }
            ExprKind::And(terms) => chain(out, terms, "AND"),
            ExprKind::Or(terms) => chain(out, terms, "OR"),
            ExprKind::Coalesce(left, right) => write!(out, "({left} ?? {right})"),
            ExprKind::Conditional(condition, yes, no) => {
                write!(out, "({condition} ? {yes} : {no})")
            }
            ExprKind::Between { value, low, high, negated } => {
                write!(out, "({value} {}BETWEEN {low} AND {high})", not(*negated))
            }
            ExprKind::In { value, list, negated } => {
                write!(out, "({value} {}IN ", not(*negated))?;
                bracketed(out, "(", list, "))")
            }
            ExprKind::Like { value, pattern, escape, negated } => {
                write!(out, "({value} {}LIKE {pattern}", not(*negated))?;
                if let Some(escape) = escape {
                    write!(out, " ESCAPE {}", Quoted(escape))?;
                }
                out.write_str(")")
            }
            ExprKind::Call { name, arguments, .. } => {
                out.write_str(name)?;
                bracketed(out, "(", arguments, ")")
            }
            ExprKind::Udf { name, arguments } => {
                write!(out, "udf.{name}")?;
                bracketed(out, "(", arguments, ")")
            }
            ExprKind::Subquery(kind, query) => {
                out.write_str(match kind {
                    SubqueryKind::Scalar => "",
                    SubqueryKind::Exists => "EXISTS",
                    SubqueryKind::Array => "ARRAY",
                    SubqueryKind::All => "ALL",
                    SubqueryKind::First => "FIRST",
                    SubqueryKind::Last => "LAST",
                })?;
                write!(out, "({query})")
            }
            ExprKind::Let { name, value, body } => {
                write!(out, "(LET {name} = {value} IN {body})")
            }
        }
    }
}

fn not(negated: bool) -> &'static str {
    if negated { "NOT " } else { "" }
}

fn unary(out: &mut Formatter<'_>, operator: UnaryOperator, operand: &Expr) -> fmt::Result {
    write!(out, "({} {operand})", operator.symbol())
}

fn list<T: Display>(out: &mut Formatter<'_>, items: &[T]) -> fmt::Result {
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            out.write_str(", ")?;
        }
        write!(out, "{item}")?;
    }
    Ok(())
}

fn bracketed(out: &mut Formatter<'_>, open: &str, items: &[Expr], close: &str) -> fmt::Result {
    out.write_str(open)?;
    list(out, items)?;
    out.write_str(close)
}

fn object(out: &mut Formatter<'_>, members: &[(String, Expr)]) -> fmt::Result {
    out.write_str("{")?;
    for (position, (name, expr)) in members.iter().enumerate() {
        if position > 0 {
            out.write_str(", ")?;
        }
        write!(out, "{}: {expr}", Quoted(name))?;
    }
    out.write_str("}")
}

/// How many parentheses stand around the first term of a printed chain.
pub(crate) fn chain_depth(terms: usize) -> usize {
    if terms <= NESTED_TERMS_MAX { terms.saturating_sub(1) } else { 1 }
}

fn chain(out: &mut Formatter<'_>, terms: &[Expr], word: &str) -> fmt::Result {
    let nested = terms.len() <= NESTED_TERMS_MAX;
    for _ in 0..chain_depth(terms.len()) {
        out.write_str("(")?;
    }
    for (position, term) in terms.iter().enumerate() {
        if position > 0 {
            write!(out, " {word} ")?;
        }
        write!(out, "{term}")?;
        if nested && position > 0 {
            out.write_str(")")?;
        }
    }
    if nested { Ok(()) } else { out.write_str(")") }
}

/// The left side of `.name` and `[index]`; a number would swallow the dot.
struct Operand<'a>(&'a Expr);

impl Display for Operand<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self.0.kind {
            ExprKind::Number(_) => write!(out, "({})", self.0),
            _ => write!(out, "{}", self.0),
        }
    }
}

/// A string literal in double quotes. The escapes of JSON are those of the language.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}", Value::from(self.0))
    }
}
