//! Reads a query by recursive descent, its expressions by binding power.
//!
//! Two bounds keep every walk over the tree within a small stack: [`DEPTH_MAX`] for brackets,
//! prefix operators and subqueries inside each other, which is the depth of this parser's own
//! recursion, and [`HEIGHT_MAX`] for the tree, which grows with `a + b + c …` and `a.b.c …` too.
//! Chains of `AND` and `OR` are flat and count once.

use crate::lexer::{
    Keyword, Lexer, Token, TokenKind, excerpt, is_reserved, number_value, string_value,
};
use crate::print::chain_depth;
use crate::{
    BinaryOperator, Collection, Condition, Count, Direction, Error, Expr, ExprKind, Item, Order,
    OrderBy, Page, Query, Selection, Source, Span, Step, SubqueryKind, UnaryOperator,
};

/// The longest query text that is read, in bytes: the limit of the service.
pub const TEXT_BYTES_MAX: usize = 512 * 1024;

/// How deep brackets, prefix operators and subqueries may stand inside each other.
///
/// Printing a tree puts at most two levels around each node, so that any tree within
/// [`HEIGHT_MAX`] can be printed and parsed again.
pub const DEPTH_MAX: usize = 2 * HEIGHT_MAX;

/// How high the tree of an expression may grow.
pub const HEIGHT_MAX: usize = 100;

/// Reads a whole query.
pub fn parse(text: &str) -> Result<Query, Error> {
    read_query(text).map_err(|error| *error)
}

/// Reads the condition of a conditional patch: `FROM c WHERE …`, with any alias.
pub fn parse_condition(text: &str) -> Result<Condition, Error> {
    read_condition(text).map_err(|error| *error)
}

fn read_query(text: &str) -> Parsed<Query> {
    let mut parser = Parser::new(text)?;
    let (query, _) = parser.query()?;
    parser.expect_end()?;
    Ok(*query)
}

fn read_condition(text: &str) -> Parsed<Condition> {
    let mut parser = Parser::new(text)?;
    parser.expect_keyword(Keyword::From)?;
    let (source, _) = parser.source()?;
    parser.expect_keyword(Keyword::Where)?;
    let filter = *parser.expression(Power::LOWEST)?.expr;
    parser.expect_end()?;
    Ok(Condition { source, filter })
}

/// What the parser's functions return. Errors and trees travel in boxes, which keeps the frames of
/// its recursion small.
type Parsed<T> = Result<T, Box<Error>>;

/// How tightly an operator binds its operands; the table of section 3.1 of the language.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Power(u8);

impl Power {
    const LOWEST: Power = Power(0);
    const CONDITIONAL: Power = Power(1);
    const COALESCE: Power = Power(2);
    const OR: Power = Power(3);
    const AND: Power = Power(4);
    /// `IN`, `LIKE` and `BETWEEN`. The service reads `BETWEEN` below `OR`, where it can be no
    /// operand without parentheses; reading it here accepts the same texts and a few more.
    const TEST: Power = Power(5);
    const COMPARE: Power = Power(6);
    const CONCAT: Power = Power(7);
    const SUM: Power = Power(8);
    const TERM: Power = Power(9);
    const UNARY: Power = Power(10);

    fn tighter(self) -> Power {
        Power(self.0 + 1)
    }
}

/// An expression, the height of its tree and that of its highest child.
struct Tall {
    expr: Box<Expr>,
    height: usize,
    below: usize,
}

struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    current: Token,
    /// The end of the token before the current one.
    consumed: usize,
    /// The token before the current one, named in errors at the end of the text.
    previous: Token,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parsed<Parser<'a>> {
        if text.len() > TEXT_BYTES_MAX {
            let message = format!("The query text exceeds the maximum of {TEXT_BYTES_MAX} bytes.");
            return Err(Box::new(Error { code: "SC1001", message, start: 0, end: 0 }));
        }
        let mut lexer = Lexer::new(text);
        let current = lexer.next()?;
        Ok(Parser { text, lexer, current, consumed: 0, previous: current, depth: 0 })
    }

    // ---- tokens ----

    fn advance(&mut self) -> Parsed<Token> {
        let token = self.current;
        self.current = self.lexer.next()?;
        self.consumed = token.end;
        self.previous = token;
        Ok(token)
    }

    fn peek(&self) -> Parsed<Token> {
        let mut ahead = self.lexer;
        ahead.next()
    }

    fn word(&self, token: Token) -> &'a str {
        &self.text[token.start..token.end]
    }

    fn at_keyword(&self, keyword: Keyword) -> bool {
        self.current.kind == TokenKind::Keyword(keyword)
    }

    fn at_symbol(&self, symbol: &str) -> bool {
        matches!(self.current.kind, TokenKind::Symbol(found) if found == symbol)
    }

    /// Whether the current token is a word that is special only here, such as `RANK`.
    fn at_word(&self, word: &str) -> bool {
        self.current.kind == TokenKind::Identifier
            && self.word(self.current).eq_ignore_ascii_case(word)
    }

    fn take_keyword(&mut self, keyword: Keyword) -> Parsed<bool> {
        let found = self.at_keyword(keyword);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn take_symbol(&mut self, symbol: &str) -> Parsed<bool> {
        let found = self.at_symbol(symbol);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect_keyword(&mut self, keyword: Keyword) -> Parsed<()> {
        if self.take_keyword(keyword)? { Ok(()) } else { Err(self.unexpected()) }
    }

    fn expect_symbol(&mut self, symbol: &str) -> Parsed<()> {
        if self.take_symbol(symbol)? { Ok(()) } else { Err(self.unexpected()) }
    }

    fn expect_end(&mut self) -> Parsed<()> {
        if self.current.kind == TokenKind::End { Ok(()) } else { Err(self.unexpected()) }
    }

    fn identifier(&mut self) -> Parsed<String> {
        if self.current.kind != TokenKind::Identifier {
            return Err(self.unexpected());
        }
        let token = self.advance()?;
        Ok(self.word(token).to_owned())
    }

    fn string(&mut self) -> Parsed<String> {
        if self.current.kind != TokenKind::String {
            return Err(self.unexpected());
        }
        let token = self.advance()?;
        string_value(self.text, token)
    }

    /// The error about the current token; at the end of the text, about the last one.
    fn unexpected(&self) -> Box<Error> {
        let token = match self.current.kind {
            TokenKind::End => self.previous,
            _ => self.current,
        };
        let near = excerpt(self.word(token));
        let message = format!("Syntax error, incorrect syntax near '{near}'.");
        Box::new(Error::at(self.text, token.start, token.end, "SC1001", message))
    }

    fn too_complex(&self, what: &str, max: usize) -> Box<Error> {
        let message = format!("Syntax error, the {what} {max} levels.");
        Box::new(Error::at(self.text, self.current.start, self.current.end, "SC1001", message))
    }

    fn span_from(&self, start: usize) -> Span {
        Span { start, end: self.consumed }
    }

    // ---- clauses ----

    /// Goes one level deeper. An error ends the whole reading, so only success needs to come back.
    fn enter(&mut self) -> Parsed<()> {
        if self.depth == DEPTH_MAX {
            return Err(self.too_complex("query is nested deeper than", DEPTH_MAX));
        }
        self.depth += 1;
        Ok(())
    }

    /// A subquery counts as two levels: its clauses need about twice the stack of an expression.
    fn nested_query(&mut self) -> Parsed<(Box<Query>, usize)> {
        self.enter()?;
        self.enter()?;
        let query = self.query()?;
        self.depth -= 2;
        Ok(query)
    }

    fn nested_expressions(&mut self) -> Parsed<(Vec<Expr>, usize)> {
        self.enter()?;
        let list = self.expressions()?;
        self.depth -= 1;
        Ok(list)
    }

    fn nested_expression(&mut self, floor: Power) -> Parsed<Tall> {
        self.enter()?;
        let parsed = self.expression(floor)?;
        self.depth -= 1;
        Ok(parsed)
    }

    /// A query and the height of its highest expression.
    fn query(&mut self) -> Parsed<(Box<Query>, usize)> {
        let start = self.current.start;
        self.expect_keyword(Keyword::Select)?;
        let distinct = self.take_keyword(Keyword::Distinct)?;
        let top = match self.take_keyword(Keyword::Top)? {
            true => Some(self.count()?),
            false => None,
        };
        let (selection, mut height) = self.selection()?;
        let mut from = Vec::new();
        if self.take_keyword(Keyword::From)? {
            loop {
                let (source, source_height) = self.source()?;
                from.push(source);
                height = height.max(source_height);
                if !self.take_keyword(Keyword::Join)? {
                    break;
                }
            }
        }
        let mut filter = None;
        if self.take_keyword(Keyword::Where)? {
            let parsed = self.expression(Power::LOWEST)?;
            height = height.max(parsed.height);
            filter = Some(*parsed.expr);
        }
        let mut group_by = Vec::new();
        if self.take_keyword(Keyword::Group)? {
            self.expect_keyword(Keyword::By)?;
            let (keys, keys_height) = self.expressions()?;
            group_by = keys;
            height = height.max(keys_height);
        }
        let mut order_by = None;
        if self.at_keyword(Keyword::Order) {
            let (clause, clause_height) = self.order_by()?;
            order_by = Some(clause);
            height = height.max(clause_height);
        }
        let page = self.page()?;
        let span = self.span_from(start);
        let query =
            Query { distinct, top, selection, from, filter, group_by, order_by, page, span };
        Ok((Box::new(query), height))
    }

    fn selection(&mut self) -> Parsed<(Selection, usize)> {
        if self.at_symbol("*") {
            let start = self.advance()?.start;
            return Ok((Selection::Star(self.span_from(start)), 0));
        }
        if self.take_keyword(Keyword::Value)? {
            let parsed = self.expression(Power::LOWEST)?;
            return Ok((Selection::Value(*parsed.expr), parsed.height));
        }
        let mut items = Vec::new();
        let mut height = 0;
        loop {
            let parsed = self.expression(Power::LOWEST)?;
            height = height.max(parsed.height);
            items.push(Item { expr: *parsed.expr, alias: self.item_alias()? });
            if !self.take_symbol(",")? {
                return Ok((Selection::List(items), height));
            }
        }
    }

    /// A quoted name needs `AS`: `'it''s'` is two strings by mistake, not one with a name.
    fn item_alias(&mut self) -> Parsed<Option<String>> {
        if self.take_keyword(Keyword::As)? {
            if self.current.kind == TokenKind::String {
                return self.string().map(Some);
            }
            return self.identifier().map(Some);
        }
        self.bare_alias()
    }

    fn bare_alias(&mut self) -> Parsed<Option<String>> {
        match self.current.kind {
            TokenKind::Identifier => self.identifier().map(Some),
            _ => Ok(None),
        }
    }

    fn count(&mut self) -> Parsed<Count> {
        let start = self.current.start;
        match self.current.kind {
            TokenKind::Number => {
                let token = self.advance()?;
                let number = number_value(self.text, token, false)?;
                Ok(Count::Number(number, self.span_from(start)))
            }
            TokenKind::Parameter => {
                let token = self.advance()?;
                Ok(Count::Parameter(self.word(token).to_owned(), self.span_from(start)))
            }
            _ => Err(self.unexpected()),
        }
    }

    /// The count of `OFFSET` or `LIMIT`, where a literal must be written as an integer.
    fn whole_count(&mut self) -> Parsed<Count> {
        let is_fraction = self.current.kind == TokenKind::Number
            && !self.word(self.current).bytes().all(|byte| byte.is_ascii_digit());
        if is_fraction { Err(self.unexpected()) } else { self.count() }
    }

    fn source(&mut self) -> Parsed<(Source, usize)> {
        let start = self.current.start;
        if self.current.kind == TokenKind::Identifier
            && self.peek()?.kind == TokenKind::Keyword(Keyword::In)
        {
            let alias = Some(self.identifier()?);
            self.expect_keyword(Keyword::In)?;
            let (collection, height) = self.collection()?;
            let span = self.span_from(start);
            return Ok((Source { iterates: true, alias, collection, span }, height));
        }
        let (collection, height) = self.collection()?;
        let alias = match self.take_keyword(Keyword::As)? {
            true => Some(self.identifier()?),
            false => self.bare_alias()?,
        };
        let span = self.span_from(start);
        Ok((Source { iterates: false, alias, collection, span }, height))
    }

    fn collection(&mut self) -> Parsed<(Collection, usize)> {
        if self.take_symbol("(")? {
            let (query, height) = self.nested_query()?;
            self.expect_symbol(")")?;
            return Ok((Collection::Subquery(query), height + 1));
        }
        if self.at_call()? {
            let parsed = self.call()?;
            return Ok((Collection::Call(parsed.expr), parsed.height));
        }
        let root = self.identifier()?;
        let mut steps = Vec::new();
        loop {
            if self.take_symbol(".")? {
                steps.push(Step::Name(self.identifier()?));
            } else if self.take_symbol("[")? {
                steps.push(self.bracket_step()?);
                self.expect_symbol("]")?;
            } else {
                break;
            }
        }
        Ok((Collection::Path { root, steps }, 1))
    }

    fn bracket_step(&mut self) -> Parsed<Step> {
        match self.current.kind {
            TokenKind::String => self.string().map(Step::Quoted),
            TokenKind::Number => {
                let offset = self.word(self.current).parse::<u64>();
                let offset = offset.map_err(|_| self.unexpected())?;
                self.advance()?;
                Ok(Step::Offset(offset))
            }
            _ => Err(self.unexpected()),
        }
    }

    fn order_by(&mut self) -> Parsed<(OrderBy, usize)> {
        let start = self.current.start;
        self.expect_keyword(Keyword::Order)?;
        self.expect_keyword(Keyword::By)?;
        // `RANK` is an ordinary name unless a call follows: `ORDER BY rank` sorts by an alias.
        let rank = self.at_word("RANK") && self.peek()?.kind == TokenKind::Identifier;
        if rank {
            self.advance()?;
        }
        let mut keys = Vec::new();
        let mut height = 0;
        loop {
            if rank && !self.at_call()? {
                return Err(self.unexpected());
            }
            let parsed = match rank {
                true => self.call()?,
                false => self.expression(Power::LOWEST)?,
            };
            height = height.max(parsed.height);
            keys.push(Order { expr: *parsed.expr, direction: self.direction()? });
            if !self.take_symbol(",")? {
                return Ok((OrderBy { rank, keys, span: self.span_from(start) }, height));
            }
        }
    }

    fn direction(&mut self) -> Parsed<Option<Direction>> {
        if self.take_keyword(Keyword::Asc)? {
            Ok(Some(Direction::Ascending))
        } else if self.take_keyword(Keyword::Desc)? {
            Ok(Some(Direction::Descending))
        } else {
            Ok(None)
        }
    }

    fn page(&mut self) -> Parsed<Option<Page>> {
        let start = self.current.start;
        if !self.take_keyword(Keyword::Offset)? {
            return Ok(None);
        }
        let offset = self.whole_count()?;
        self.expect_keyword(Keyword::Limit)?;
        let limit = self.whole_count()?;
        Ok(Some(Page { offset, limit, span: self.span_from(start) }))
    }

    // ---- expressions ----

    /// A node over children of which the highest has height `below`.
    fn node(&self, kind: ExprKind, start: usize, below: usize) -> Parsed<Tall> {
        if below >= HEIGHT_MAX {
            return Err(self.too_complex("expression has more than", HEIGHT_MAX));
        }
        Ok(Tall {
            expr: Box::new(Expr { kind, span: self.span_from(start) }),
            height: below + 1,
            below,
        })
    }

    /// One or more expressions between commas, and the height of the highest.
    fn expressions(&mut self) -> Parsed<(Vec<Expr>, usize)> {
        let mut list = Vec::new();
        let mut height = 0;
        loop {
            let parsed = self.expression(Power::LOWEST)?;
            height = height.max(parsed.height);
            list.push(*parsed.expr);
            if !self.take_symbol(",")? {
                return Ok((list, height));
            }
        }
    }

    /// Like [`Self::expressions`] up to a closing symbol, and perhaps empty.
    fn expressions_until(&mut self, close: &str) -> Parsed<(Vec<Expr>, usize)> {
        if self.take_symbol(close)? {
            return Ok((Vec::new(), 0));
        }
        let result = self.nested_expressions()?;
        self.expect_symbol(close)?;
        Ok(result)
    }

    /// An expression whose operators bind at least as tightly as `floor`.
    fn expression(&mut self, floor: Power) -> Parsed<Tall> {
        let start = self.current.start;
        let mut left = self.prefix()?;
        let mut tested = false;
        loop {
            if let Some((operator, power)) = binary_operator(self.current.kind) {
                if power < floor {
                    return Ok(left);
                }
                left = self.binary(left, start, operator, power)?;
            } else if self.at_keyword(Keyword::And) && floor <= Power::AND {
                left = self.chain(left, start, Keyword::And, Power::AND)?;
                tested = false;
            } else if self.at_keyword(Keyword::Or) && floor <= Power::OR {
                left = self.chain(left, start, Keyword::Or, Power::OR)?;
                tested = false;
            } else if floor <= Power::TEST && !tested && self.at_test()? {
                left = self.test(left, start)?;
                tested = true;
            } else if self.at_symbol("??") && floor <= Power::COALESCE {
                left = self.coalesce(left, start)?;
            } else if self.at_symbol("?") && floor <= Power::CONDITIONAL {
                left = self.conditional(left, start)?;
            } else {
                return Ok(left);
            }
        }
    }

    fn binary(
        &mut self,
        left: Tall,
        start: usize,
        operator: BinaryOperator,
        power: Power,
    ) -> Parsed<Tall> {
        self.advance()?;
        let right = self.expression(power.tighter())?;
        let below = left.height.max(right.height);
        self.node(ExprKind::Binary(operator, left.expr, right.expr), start, below)
    }

    fn coalesce(&mut self, left: Tall, start: usize) -> Parsed<Tall> {
        self.advance()?;
        let right = self.nested_expression(Power::COALESCE)?;
        let below = left.height.max(right.height);
        self.node(ExprKind::Coalesce(left.expr, right.expr), start, below)
    }

    fn conditional(&mut self, condition: Tall, start: usize) -> Parsed<Tall> {
        self.expect_symbol("?")?;
        let yes = self.nested_expression(Power::LOWEST)?;
        self.expect_symbol(":")?;
        let no = self.nested_expression(Power::LOWEST)?;
        let below = condition.height.max(yes.height).max(no.height);
        let kind = ExprKind::Conditional(condition.expr, yes.expr, no.expr);
        self.node(kind, start, below)
    }

    /// The rest of `left AND … AND …`, as one flat node.
    fn chain(&mut self, left: Tall, start: usize, keyword: Keyword, power: Power) -> Parsed<Tall> {
        let (mut terms, mut below) = match (keyword, left.expr.kind) {
            (Keyword::And, ExprKind::And(terms)) | (Keyword::Or, ExprKind::Or(terms)) => {
                (terms, left.below)
            }
            (_, kind) => (vec![Expr { kind, span: left.expr.span }], left.height),
        };
        while self.take_keyword(keyword)? {
            let term = self.expression(power.tighter())?;
            below = below.max(term.height);
            terms.push(*term.expr);
        }
        let printed_depth = chain_depth(terms.len());
        let kind = match keyword {
            Keyword::And => ExprKind::And(terms),
            _ => ExprKind::Or(terms),
        };
        // A chain counts as high as it is deep when printed, but its terms stay directly below it.
        let node = self.node(kind, start, below + printed_depth - 1)?;
        Ok(Tall { below, ..node })
    }

    fn at_test(&self) -> Parsed<bool> {
        let is_test = |kind| {
            matches!(kind, TokenKind::Keyword(Keyword::In | Keyword::Like | Keyword::Between))
        };
        if self.at_keyword(Keyword::Not) {
            return Ok(is_test(self.peek()?.kind));
        }
        Ok(is_test(self.current.kind))
    }

    fn test(&mut self, left: Tall, start: usize) -> Parsed<Tall> {
        let negated = self.take_keyword(Keyword::Not)?;
        if self.take_keyword(Keyword::In)? {
            self.in_list(left, start, negated)
        } else if self.take_keyword(Keyword::Like)? {
            self.like(left, start, negated)
        } else {
            self.between(left, start, negated)
        }
    }

    fn in_list(&mut self, left: Tall, start: usize, negated: bool) -> Parsed<Tall> {
        self.expect_symbol("(")?;
        let (list, height) = self.nested_expressions()?;
        self.expect_symbol(")")?;
        let below = left.height.max(height);
        self.node(ExprKind::In { value: left.expr, list, negated }, start, below)
    }

    fn like(&mut self, left: Tall, start: usize, negated: bool) -> Parsed<Tall> {
        let pattern = self.expression(Power::COMPARE)?;
        let escape = match self.take_keyword(Keyword::Escape)? {
            true => Some(self.string()?),
            false => None,
        };
        let below = left.height.max(pattern.height);
        let (value, pattern) = (left.expr, pattern.expr);
        self.node(ExprKind::Like { value, pattern, escape, negated }, start, below)
    }

    fn between(&mut self, left: Tall, start: usize, negated: bool) -> Parsed<Tall> {
        self.expect_keyword(Keyword::Between)?;
        let low = self.expression(Power::COMPARE)?;
        self.expect_keyword(Keyword::And)?;
        let high = self.expression(Power::COMPARE)?;
        let below = left.height.max(low.height).max(high.height);
        let (value, low, high) = (left.expr, low.expr, high.expr);
        self.node(ExprKind::Between { value, low, high, negated }, start, below)
    }

    fn prefix(&mut self) -> Parsed<Tall> {
        let operator = match self.current.kind {
            TokenKind::Symbol("-") => UnaryOperator::Minus,
            TokenKind::Symbol("+") => UnaryOperator::Plus,
            TokenKind::Symbol("~") => UnaryOperator::BitNot,
            TokenKind::Keyword(Keyword::Not) => UnaryOperator::Not,
            _ => return self.postfix(),
        };
        let start = self.advance()?.start;
        if operator == UnaryOperator::Minus && self.at_signed_literal(start)? {
            let token = self.advance()?;
            let number = number_value(self.text, token, true)?;
            return self.node(ExprKind::Number(number), start, 0);
        }
        let operand = self.nested_expression(Power::UNARY)?;
        let kind = ExprKind::Unary(operator, operand.expr);
        self.node(kind, start, operand.height)
    }

    /// Whether the minus sign at `minus` belongs to a literal: it stands directly before one, and
    /// nothing after the literal binds tighter than the sign.
    fn at_signed_literal(&self, minus: usize) -> Parsed<bool> {
        Ok(self.current.kind == TokenKind::Number
            && self.current.start == minus + 1
            && !matches!(self.peek()?.kind, TokenKind::Symbol("." | "[")))
    }

    fn postfix(&mut self) -> Parsed<Tall> {
        let start = self.current.start;
        let mut left = self.primary()?;
        loop {
            if self.take_symbol(".")? {
                let name = self.identifier()?;
                let height = left.height;
                left = self.node(ExprKind::Member(left.expr, name), start, height)?;
            } else if self.take_symbol("[")? {
                let index = self.nested_expression(Power::LOWEST)?;
                self.expect_symbol("]")?;
                let below = left.height.max(index.height);
                let kind = ExprKind::Index(left.expr, index.expr);
                left = self.node(kind, start, below)?;
            } else {
                return Ok(left);
            }
        }
    }

    fn primary(&mut self) -> Parsed<Tall> {
        if self.at_call()? {
            return self.call();
        }
        match self.current.kind {
            TokenKind::Symbol("(") => self.parenthesis(),
            TokenKind::Symbol("[") => self.array(),
            TokenKind::Symbol("{") => self.object(),
            TokenKind::Keyword(Keyword::Exists) => self.subquery(SubqueryKind::Exists),
            TokenKind::Keyword(Keyword::Array) => self.subquery(SubqueryKind::Array),
            TokenKind::Keyword(Keyword::Udf) => self.udf(),
            _ => self.leaf(),
        }
    }

    /// A literal, a parameter or a name.
    fn leaf(&mut self) -> Parsed<Tall> {
        let start = self.current.start;
        let kind = match self.current.kind {
            TokenKind::Keyword(Keyword::Undefined) => ExprKind::Undefined,
            TokenKind::Keyword(Keyword::Null) => ExprKind::Null,
            TokenKind::Keyword(Keyword::True) => ExprKind::Bool(true),
            TokenKind::Keyword(Keyword::False) => ExprKind::Bool(false),
            TokenKind::Number => ExprKind::Number(number_value(self.text, self.current, false)?),
            TokenKind::String => ExprKind::String(string_value(self.text, self.current)?),
            TokenKind::Parameter => ExprKind::Parameter(self.word(self.current).to_owned()),
            TokenKind::Identifier => ExprKind::Identifier(self.word(self.current).to_owned()),
            _ => return Err(self.unexpected()),
        };
        self.advance()?;
        self.node(kind, start, 0)
    }

    /// `(expression)`, `(SELECT …)` or `(LET name = value IN body)`.
    fn parenthesis(&mut self) -> Parsed<Tall> {
        let start = self.current.start;
        self.expect_symbol("(")?;
        if self.at_keyword(Keyword::Select) {
            return self.subquery_body(SubqueryKind::Scalar, start);
        }
        if self.at_word("LET") && self.peek()?.kind == TokenKind::Identifier {
            return self.binding(start);
        }
        let inner = self.nested_expression(Power::LOWEST)?;
        self.expect_symbol(")")?;
        Ok(inner)
    }

    fn binding(&mut self, start: usize) -> Parsed<Tall> {
        self.advance()?;
        let name = self.identifier()?;
        self.expect_symbol("=")?;
        let value = self.nested_expression(Power::COMPARE)?;
        self.expect_keyword(Keyword::In)?;
        let body = self.nested_expression(Power::COMPARE)?;
        self.expect_symbol(")")?;
        let below = value.height.max(body.height);
        let (value, body) = (value.expr, body.expr);
        self.node(ExprKind::Let { name, value, body }, start, below)
    }

    /// `EXISTS(SELECT …)` and its like; the current token is the word before the parenthesis.
    fn subquery(&mut self, kind: SubqueryKind) -> Parsed<Tall> {
        let start = self.advance()?.start;
        self.expect_symbol("(")?;
        self.subquery_body(kind, start)
    }

    fn subquery_body(&mut self, kind: SubqueryKind, start: usize) -> Parsed<Tall> {
        let (query, height) = self.nested_query()?;
        self.expect_symbol(")")?;
        self.node(ExprKind::Subquery(kind, query), start, height)
    }

    fn array(&mut self) -> Parsed<Tall> {
        let start = self.advance()?.start;
        let (items, height) = self.expressions_until("]")?;
        self.node(ExprKind::Array(items), start, height)
    }

    fn object(&mut self) -> Parsed<Tall> {
        let start = self.advance()?.start;
        let mut members = Vec::new();
        let mut below = 0;
        if self.take_symbol("}")? {
            return self.node(ExprKind::Object(members), start, below);
        }
        loop {
            let name = match self.current.kind {
                TokenKind::String => self.string()?,
                _ => self.identifier()?,
            };
            self.expect_symbol(":")?;
            let parsed = self.nested_expression(Power::LOWEST)?;
            below = below.max(parsed.height);
            members.push((name, *parsed.expr));
            if !self.take_symbol(",")? {
                break;
            }
        }
        self.expect_symbol("}")?;
        self.node(ExprKind::Object(members), start, below)
    }

    fn udf(&mut self) -> Parsed<Tall> {
        let start = self.advance()?.start;
        self.expect_symbol(".")?;
        let name = self.identifier()?;
        self.expect_symbol("(")?;
        let (arguments, height) = self.expressions_until(")")?;
        self.node(ExprKind::Udf { name, arguments }, start, height)
    }

    /// Whether a name and an opening parenthesis come next. `LEFT` and `RIGHT` are reserved, yet
    /// functions are called so.
    fn at_call(&self) -> Parsed<bool> {
        let is_name = matches!(
            self.current.kind,
            TokenKind::Identifier | TokenKind::Keyword(Keyword::Left | Keyword::Right)
        );
        Ok(is_name && self.peek()?.kind == TokenKind::Symbol("("))
    }

    fn call(&mut self) -> Parsed<Tall> {
        let token = self.current;
        let name = self.word(token);
        if self.at_subquery_call()? {
            let kind = match name.to_ascii_uppercase().as_str() {
                "ALL" => SubqueryKind::All,
                "FIRST" => SubqueryKind::First,
                _ => SubqueryKind::Last,
            };
            return self.subquery(kind);
        }
        self.advance()?;
        let name_span = self.span_from(token.start);
        self.expect_symbol("(")?;
        let (arguments, height) = self.expressions_until(")")?;
        let kind = ExprKind::Call { name: name.to_owned(), name_span, arguments };
        self.node(kind, token.start, height)
    }

    /// Whether `ALL(SELECT`, `FIRST(SELECT` or `LAST(SELECT` comes next; the three are ordinary
    /// names otherwise.
    fn at_subquery_call(&self) -> Parsed<bool> {
        if !["ALL", "FIRST", "LAST"].iter().any(|word| self.at_word(word)) {
            return Ok(false);
        }
        let mut ahead = self.lexer;
        ahead.next()?;
        Ok(ahead.next()?.kind == TokenKind::Keyword(Keyword::Select))
    }
}

/// The operator of a token and how tightly it binds; all of these are left associative.
fn binary_operator(kind: TokenKind) -> Option<(BinaryOperator, Power)> {
    let TokenKind::Symbol(symbol) = kind else { return None };
    Some(match symbol {
        "*" => (BinaryOperator::Multiply, Power::TERM),
        "/" => (BinaryOperator::Divide, Power::TERM),
        "%" => (BinaryOperator::Modulo, Power::TERM),
        "+" => (BinaryOperator::Add, Power::SUM),
        "-" => (BinaryOperator::Subtract, Power::SUM),
        "&" => (BinaryOperator::BitAnd, Power::SUM),
        "|" => (BinaryOperator::BitOr, Power::SUM),
        "^" => (BinaryOperator::BitXor, Power::SUM),
        "||" => (BinaryOperator::Concat, Power::CONCAT),
        "=" => (BinaryOperator::Equal, Power::COMPARE),
        "!=" | "<>" => (BinaryOperator::NotEqual, Power::COMPARE),
        "<" => (BinaryOperator::Less, Power::COMPARE),
        "<=" => (BinaryOperator::LessOrEqual, Power::COMPARE),
        ">" => (BinaryOperator::Greater, Power::COMPARE),
        ">=" => (BinaryOperator::GreaterOrEqual, Power::COMPARE),
        "<<" => (BinaryOperator::ShiftLeft, Power::COMPARE),
        ">>" => (BinaryOperator::ShiftRight, Power::COMPARE),
        ">>>" => (BinaryOperator::ShiftRightUnsigned, Power::COMPARE),
        _ => return None,
    })
}

/// Whether a name can be written without quotes.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let starts_well =
        name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    starts_well
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !is_reserved(name)
}
