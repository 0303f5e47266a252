//! The one tree of a query.
//!
//! It says what was written and nothing else: no name is resolved and nothing is rewritten, except
//! that parentheses are gone and chains of the same `AND` or `OR` are flat. Programs write
//! conditions of thousands of terms, and a flat chain keeps the tree low.

use value::Number;

/// The place of a part in the query text, as a half-open range of bytes.
///
/// Two trees are the same when they mean the same, wherever their parts stood: all spans are equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Where the part starts.
    pub start: usize,
    /// Where it ends, exclusive.
    pub end: usize,
}

impl PartialEq for Span {
    fn eq(&self, _: &Span) -> bool {
        true
    }
}

impl Eq for Span {}

impl Span {
    /// The same range in UTF-16 units, which is what clients count in. `text` is the text that
    /// the tree was parsed from; a range outside it is cut to it.
    pub fn in_units(self, text: &str) -> (usize, usize) {
        let units = |offset: usize| {
            text.get(..offset).map_or(text.len(), |before| before.encode_utf16().count())
        };
        (units(self.start), units(self.end))
    }
}

/// A whole query or a subquery, clause by clause.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Whether `DISTINCT` was written.
    pub distinct: bool,
    /// The count of `TOP`.
    pub top: Option<Count>,
    /// What each row becomes.
    pub selection: Selection,
    /// The first source and the joined ones, in order; empty without `FROM`.
    pub from: Vec<Source>,
    /// The condition of `WHERE`.
    pub filter: Option<Expr>,
    /// The keys of `GROUP BY`; empty without it.
    pub group_by: Vec<Expr>,
    /// The order of the rows.
    pub order_by: Option<OrderBy>,
    /// `OFFSET` and `LIMIT`, which only come together.
    pub page: Option<Page>,
    /// The place of the whole query.
    pub span: Span,
}

/// The predicate of a conditional patch: `FROM c WHERE …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// What the document is called.
    pub source: Source,
    /// The predicate.
    pub filter: Expr,
}

/// What follows `SELECT`.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// `*`, and where it stands.
    Star(Span),
    /// `VALUE expression`
    Value(Expr),
    /// A list of expressions, each perhaps with a name.
    List(Vec<Item>),
}

/// One expression of a select list.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The expression.
    pub expr: Expr,
    /// The name after `AS`, when there is one.
    pub alias: Option<String>,
}

/// The operand of `TOP`, `OFFSET` or `LIMIT`.
#[derive(Clone, Debug, PartialEq)]
pub enum Count {
    /// A literal; the binder checks that it is a count.
    Number(Number, Span),
    /// A parameter, with its `@`.
    Parameter(String, Span),
}

/// One source of `FROM`, or a joined one.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Whether the source is `alias IN collection`, one row per element, or the value itself.
    pub iterates: bool,
    /// The name that was given; a path without one takes the name of its last step.
    pub alias: Option<String>,
    /// Where the values come from.
    pub collection: Collection,
    /// The place of the source.
    pub span: Span,
}

/// Where the values of a source come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Collection {
    /// A name and a path below it.
    Path {
        /// The container, or an alias in scope.
        root: String,
        /// The steps below it.
        steps: Vec<Step>,
    },
    /// A subquery in parentheses.
    Subquery(Box<Query>),
    /// A function call, such as `OBJECTTOARRAY(c.prices)`.
    Call(Box<Expr>),
}

/// One step of a path in `FROM`.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `.name`
    Name(String),
    /// `["name"]`
    Quoted(String),
    /// `[3]`
    Offset(u64),
}

/// The `ORDER BY` clause.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderBy {
    /// Whether `RANK` was written.
    pub rank: bool,
    /// The keys, the most significant first.
    pub keys: Vec<Order>,
    /// The place of the clause.
    pub span: Span,
}

/// One key of `ORDER BY`.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The expression to order by.
    pub expr: Expr,
    /// The direction, when it was written.
    pub direction: Option<Direction>,
}

/// A direction of `ORDER BY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// `ASC`
    Ascending,
    /// `DESC`
    Descending,
}

/// `OFFSET … LIMIT …`
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// How many rows are skipped.
    pub offset: Count,
    /// How many rows are returned after that.
    pub limit: Count,
    /// The place of the clause.
    pub span: Span,
}

/// An expression and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it was written.
    pub span: Span,
}

/// The forms of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// `undefined`
    Undefined,
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number; a minus sign directly before a literal belongs to it.
    Number(Number),
    /// A string.
    String(String),
    /// A parameter, with its `@`.
    Parameter(String),
    /// A name that starts an expression.
    Identifier(String),
    /// `expression.name`
    Member(Box<Expr>, String),
    /// `expression[expression]`
    Index(Box<Expr>, Box<Expr>),
    /// `[…]`
    Array(Vec<Expr>),
    /// `{…}`
    Object(Vec<(String, Expr)>),
    /// A prefix operator and its operand.
    Unary(UnaryOperator, Box<Expr>),
    /// A binary operator between two operands.
    Binary(BinaryOperator, Box<Expr>, Box<Expr>),
    /// Two or more terms joined by `AND`; the first is not itself a conjunction.
    And(Vec<Expr>),
    /// Two or more terms joined by `OR`; the first is not itself a disjunction.
    Or(Vec<Expr>),
    /// `a ?? b`
    Coalesce(Box<Expr>, Box<Expr>),
    /// `condition ? a : b`
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `value [NOT] BETWEEN low AND high`
    Between {
        /// The tested value.
        value: Box<Expr>,
        /// The lower bound, inclusive.
        low: Box<Expr>,
        /// The upper bound, inclusive.
        high: Box<Expr>,
        /// Whether `NOT` was written.
        negated: bool,
    },
    /// `value [NOT] IN (…)`
    In {
        /// The tested value.
        value: Box<Expr>,
        /// The values looked for.
        list: Vec<Expr>,
        /// Whether `NOT` was written.
        negated: bool,
    },
    /// `value [NOT] LIKE pattern [ESCAPE 'x']`
    Like {
        /// The tested value.
        value: Box<Expr>,
        /// The pattern.
        pattern: Box<Expr>,
        /// The text after `ESCAPE`.
        escape: Option<String>,
        /// Whether `NOT` was written.
        negated: bool,
    },
    /// A built-in function, as the user spelled it.
    Call {
        /// The name.
        name: String,
        /// The place of the name alone.
        name_span: Span,
        /// The arguments.
        arguments: Vec<Expr>,
    },
    /// A user-defined function: `udf.name(…)`.
    Udf {
        /// The name, without `udf.`.
        name: String,
        /// The arguments.
        arguments: Vec<Expr>,
    },
    /// A subquery in the place of a value.
    Subquery(SubqueryKind, Box<Query>),
    /// `(LET name = value IN body)`
    Let {
        /// The name that the body may use.
        name: String,
        /// What it stands for.
        value: Box<Expr>,
        /// The expression that uses it.
        body: Box<Expr>,
    },
}

/// The forms of a subquery in the place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubqueryKind {
    /// `(SELECT …)`
    Scalar,
    /// `EXISTS(SELECT …)`
    Exists,
    /// `ARRAY(SELECT …)`
    Array,
    /// `ALL(SELECT …)`
    All,
    /// `FIRST(SELECT …)`
    First,
    /// `LAST(SELECT …)`
    Last,
}

/// The prefix operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOperator {
    /// `-`
    Minus,
    /// `+`
    Plus,
    /// `~`
    BitNot,
    /// `NOT`
    Not,
}

/// The binary operators, except the logical ones and `??`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
    /// `&`
    BitAnd,
    /// `|`
    BitOr,
    /// `^`
    BitXor,
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
    /// `>>>`
    ShiftRightUnsigned,
    /// `||`
    Concat,
    /// `=`
    Equal,
    /// `!=` or `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Expr {
    /// An expression without a place, for trees that are built rather than parsed.
    pub fn new(kind: ExprKind) -> Expr {
        Expr { kind, span: Span::default() }
    }

    /// The expressions directly below this one, in the order in which they were written. A
    /// subquery is a query of its own: nothing in it is below.
    pub fn children(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Undefined
            | ExprKind::Null
            | ExprKind::Bool(_)
            | ExprKind::Number(_)
            | ExprKind::String(_)
            | ExprKind::Parameter(_)
            | ExprKind::Identifier(_)
            | ExprKind::Subquery(..) => Vec::new(),
            ExprKind::Member(object, _) => vec![object],
            ExprKind::Unary(_, operand) => vec![operand],
            ExprKind::Index(left, right)
            | ExprKind::Binary(_, left, right)
            | ExprKind::Coalesce(left, right)
            | ExprKind::Let { value: left, body: right, .. }
            | ExprKind::Like { value: left, pattern: right, .. } => vec![left, right],
            ExprKind::Conditional(first, second, third)
            | ExprKind::Between { value: first, low: second, high: third, .. } => {
                vec![first, second, third]
            }
            ExprKind::Object(members) => members.iter().map(|(_, expr)| expr).collect(),
            ExprKind::In { value, list, .. } => std::iter::once(&**value).chain(list).collect(),
            ExprKind::Array(list)
            | ExprKind::And(list)
            | ExprKind::Or(list)
            | ExprKind::Call { arguments: list, .. }
            | ExprKind::Udf { arguments: list, .. } => list.iter().collect(),
        }
    }
}

impl Source {
    /// What the source is called: its alias, else the last name of its path.
    pub fn name(&self) -> Option<&str> {
        if let Some(alias) = &self.alias {
            return Some(alias);
        }
        let Collection::Path { root, steps } = &self.collection else { return None };
        match steps.last() {
            None => Some(root),
            Some(Step::Name(name) | Step::Quoted(name)) => Some(name),
            Some(Step::Offset(_)) => None,
        }
    }
}

impl Item {
    /// What the result of the expression is called: its alias, else the last name of its path.
    /// Items without a name are numbered among themselves.
    pub fn name(&self) -> Option<&str> {
        if let Some(alias) = &self.alias {
            return Some(alias);
        }
        match &self.expr.kind {
            ExprKind::Identifier(name) | ExprKind::Member(_, name) => Some(name),
            ExprKind::Index(_, index) => match &index.kind {
                ExprKind::String(name) => Some(name),
                _ => None,
            },
            _ => None,
        }
    }
}

impl BinaryOperator {
    /// The operator as it is written.
    pub fn symbol(self) -> &'static str {
        match self {
            BinaryOperator::Add => "+",
            BinaryOperator::Subtract => "-",
            BinaryOperator::Multiply => "*",
            BinaryOperator::Divide => "/",
            BinaryOperator::Modulo => "%",
            BinaryOperator::BitAnd => "&",
            BinaryOperator::BitOr => "|",
            BinaryOperator::BitXor => "^",
            BinaryOperator::ShiftLeft => "<<",
            BinaryOperator::ShiftRight => ">>",
            BinaryOperator::ShiftRightUnsigned => ">>>",
            BinaryOperator::Concat => "||",
            BinaryOperator::Equal => "=",
            BinaryOperator::NotEqual => "!=",
            BinaryOperator::Less => "<",
            BinaryOperator::LessOrEqual => "<=",
            BinaryOperator::Greater => ">",
            BinaryOperator::GreaterOrEqual => ">=",
        }
    }
}

impl UnaryOperator {
    /// The operator as it is written.
    pub fn symbol(self) -> &'static str {
        match self {
            UnaryOperator::Minus => "-",
            UnaryOperator::Plus => "+",
            UnaryOperator::BitNot => "~",
            UnaryOperator::Not => "NOT",
        }
    }
}
