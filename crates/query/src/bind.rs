//! From the syntax tree to a plan: every name, parameter and function is resolved here.
//!
//! What can be refused is refused here, with the service's code and the place in the text, so that
//! a wrong query fails on an empty container too. The binder keeps the same stack of scopes that
//! evaluation will find as frames; a name becomes the distance to its frame.

use crate::aggregate::AggregateKind;
use crate::compare::identity;
use crate::fold::Folder;
use crate::function::regex::{self, RegexFunction};
use crate::function::{self, Body};
use crate::like::Pattern;
use crate::plan::{
    Aggregate, ComputedScalar, ConstantSet, Grouping, Like, LikePattern, OrderKey, Origin,
    PathStep, Plan, RegexCall, RegexPattern, Scalar, Source,
};
use crate::same::is_same;
use crate::{CompositeKey, Error, Options};
use sql::{
    Collection, Count, Direction, Expr, ExprKind, Item, Order, OrderBy, Query, Selection, Span,
    Step, SubqueryKind, UnaryOperator,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use value::Value;

/// How many user-defined functions one query may call, as documented by the service.
const UDF_CALLS_MAX: usize = 10;

/// How many joins one `FROM` may have, as documented by the service.
const JOINS_MAX: usize = 10;

/// From how many constants on `IN` looks up instead of comparing.
const LOOKUP_MIN: usize = 16;

/// Binds a whole query.
pub(crate) fn bind(
    text: &str,
    query: &Query,
    parameters: &[(String, Value)],
    options: &Options,
) -> Result<Plan, Error> {
    Binder::new(text, parameters, options)?.query(query, Place::Outermost)
}

/// Binds the condition of a patch: the filter over one frame, which is the document.
pub(crate) fn bind_condition(
    text: &str,
    condition: &sql::Condition,
    options: &Options,
) -> Result<Plan, Error> {
    let query = Query {
        distinct: false,
        top: None,
        selection: Selection::Value(Expr::new(ExprKind::Bool(true))),
        from: vec![condition.source.clone()],
        filter: Some(condition.filter.clone()),
        group_by: Vec::new(),
        order_by: None,
        page: None,
        span: Span::default(),
    };
    let mut binder = Binder::new(text, &[], options)?;
    binder.has_clock = false;
    binder.query(&query, Place::Outermost)
}

/// Binds a computed property: an expression over one frame, which is the document.
pub(crate) fn bind_computed(text: &str, options: &Options) -> Result<Scalar, Error> {
    let mut binder = Binder::new(text, &[], options)?;
    binder.has_clock = false;
    binder.computed_property(text)
}

/// Where a query stands, which decides what its first source may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The query that was sent.
    Outermost,
    /// The first source of a query that reads the container: its own first source does, too.
    FirstSource,
    /// Anywhere else.
    Subquery,
}

/// What a frame will hold.
enum Scope {
    /// The value of a source or of a `LET`.
    Value(Named),
    /// A group, in place of the rows it was made of.
    Group(GroupScope),
}

/// A frame with a value, and its name.
#[derive(Clone)]
struct Named {
    name: Option<String>,
    kind: NameKind,
}

/// What is known about the value of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameKind {
    /// A whole document of the container.
    Document,
    /// What lies at a path of each document.
    DocumentPath,
    /// Anything else: elements, subqueries, `LET`.
    Other,
}

struct GroupScope {
    /// The frames that a row has and a group has not.
    rows: Vec<Named>,
    /// The keys as they were written.
    keys: Vec<Expr>,
    aggregates: Vec<Aggregate>,
}

struct Binder<'a> {
    text: &'a str,
    parameters: HashMap<&'a str, Arc<Value>>,
    options: &'a Options,
    /// The computed properties of documents.
    computed: Vec<Arc<ComputedScalar>>,
    scopes: Vec<Scope>,
    folder: Folder,
    udf_calls: usize,
    in_aggregate: bool,
    /// Whether functions of time and chance may be called.
    has_clock: bool,
}

impl<'a> Binder<'a> {
    fn new(
        text: &'a str,
        parameters: &'a [(String, Value)],
        options: &'a Options,
    ) -> Result<Binder<'a>, Error> {
        let mut binder = Binder {
            text,
            parameters: HashMap::new(),
            options,
            computed: Vec::new(),
            scopes: Vec::new(),
            folder: Folder::new(),
            udf_calls: 0,
            in_aggregate: false,
            has_clock: true,
        };
        let mut computed = Vec::new();
        for property in &options.computed_properties {
            let body = binder.computed_property(&property.query)?;
            computed.push(Arc::new(ComputedScalar { name: property.name.clone(), body }));
        }
        binder.computed = computed;
        for (name, value) in parameters {
            binder.parameters.insert(name, Arc::new(value.clone()));
        }
        Ok(binder)
    }

    /// The expression of a computed property. The container accepted its definition, so only the
    /// form that is needed is asked for here. It is bound before the query's parameters are known,
    /// which are none of its business.
    fn computed_property(&mut self, text: &str) -> Result<Scalar, Error> {
        let query = sql::parse(text)?;
        let (Selection::Value(expr), [source]) = (&query.selection, &query.from[..]) else {
            return Err(Error::refused("a computed property must be SELECT VALUE … FROM …"));
        };
        if source.iterates
            || !matches!(&source.collection, Collection::Path { steps, .. } if steps.is_empty())
        {
            return Err(Error::refused("a computed property must read the whole document"));
        }
        let name = source_name(source);
        self.scopes.push(Scope::Value(Named { name, kind: NameKind::Other }));
        let scalar = self.expr(expr);
        self.scopes.pop();
        scalar
    }

    fn refuse(&self, span: Span, code: &'static str, text: impl Into<String>) -> Error {
        Error::at(self.text, span, code, text)
    }

    // ---- queries ----

    fn query(&mut self, query: &Query, place: Place) -> Result<Plan, Error> {
        if place != Place::Outermost {
            self.check_subquery(query)?;
        }
        let base = self.scopes.len();
        let result = self.clauses(query, place, base);
        self.scopes.truncate(base);
        result
    }

    fn clauses(&mut self, query: &Query, place: Place, base: usize) -> Result<Plan, Error> {
        let sources = self.sources(query, place)?;
        let filter = query.filter.as_ref().map(|filter| self.expr(filter)).transpose()?;
        let order_by = match &query.order_by {
            Some(order_by) => self.order_by(order_by, base)?,
            None => Vec::new(),
        };
        let aggregates = selected(&query.selection).any(has_aggregate);
        let grouping_keys = self.group_by(query, aggregates)?;
        let (grouping, projection) = match grouping_keys {
            Some(keys) => self.grouped_projection(query, keys, base)?,
            None => (None, self.projection(query)?),
        };
        let (skip, take) = self.page(query)?;
        let distinct = query.distinct;
        Ok(Plan { sources, filter, grouping, projection, distinct, order_by, skip, take })
    }

    fn check_subquery(&self, query: &Query) -> Result<(), Error> {
        if let Some(order_by) = &query.order_by {
            if order_by.rank {
                let text = "The ORDER BY RANK clause is not supported in subqueries.";
                return Err(self.refuse(order_by.span, "SC2228", text));
            }
            let text = "'ORDER BY' is not supported in subqueries.";
            return Err(self.refuse(order_by.span, "SC2202", text));
        }
        if let Some(top) = &query.top {
            let text = "'TOP' is not supported in subqueries.";
            return Err(self.refuse(count_span(top), "SC2203", text));
        }
        if let Some(page) = &query.page {
            let text = "'OFFSET LIMIT' clause is not supported in subqueries.";
            return Err(self.refuse(page.span, "SC2204", text));
        }
        Ok(())
    }

    fn sources(&mut self, query: &Query, place: Place) -> Result<Vec<Source>, Error> {
        if query.from.len() > JOINS_MAX + 1 {
            return Err(Error::refused(format!("a query may have at most {JOINS_MAX} joins")));
        }
        let base = self.scopes.len();
        let mut sources = Vec::new();
        for (position, source) in query.from.iter().enumerate() {
            let reads_container = position == 0 && place != Place::Subquery;
            let (origin, kind) = self.origin(source, reads_container)?;
            let name = source_name(source);
            if let Some(name) = &name
                && self.scopes[base..].iter().any(|scope| scope.is_named(name))
            {
                let text = format!("The input alias '{name}' is specified more than once.");
                return Err(self.refuse(source.span, "SC2011", text));
            }
            let kind = if source.iterates { NameKind::Other } else { kind };
            self.scopes.push(Scope::Value(Named { name, kind }));
            sources.push(Source { origin, iterates: source.iterates });
        }
        Ok(sources)
    }

    fn origin(
        &mut self,
        source: &sql::Source,
        reads_container: bool,
    ) -> Result<(Origin, NameKind), Error> {
        match &source.collection {
            Collection::Path { steps, .. } if reads_container => {
                let kind =
                    if steps.is_empty() { NameKind::Document } else { NameKind::DocumentPath };
                if let Some(Step::Name(name) | Step::Quoted(name)) = steps.first()
                    && self.computed.iter().any(|computed| computed.name == *name)
                {
                    let text = format!("the computed property {name:?} cannot be a FROM source");
                    return Err(Error::refused(text));
                }
                Ok((Origin::Container(steps.iter().map(path_step).collect()), kind))
            }
            Collection::Path { root, steps } => {
                let scalar = self.identifier(root, source.span)?;
                let scalar = steps.iter().fold(scalar, |scalar, step| match path_step(step) {
                    PathStep::Name(name) => self.member(scalar, name),
                    PathStep::Offset(offset) => {
                        let offset = Scalar::constant(offset);
                        Scalar::Index(Box::new(scalar), Box::new(offset))
                    }
                });
                Ok((Origin::Scalar(scalar), NameKind::Other))
            }
            Collection::Subquery(query) => {
                let place = if reads_container { Place::FirstSource } else { Place::Subquery };
                let plan = self.query(query, place)?;
                Ok((Origin::Subquery(Box::new(plan)), NameKind::Other))
            }
            Collection::Call(call) => Ok((Origin::Scalar(self.expr(call)?), NameKind::Other)),
        }
    }

    /// The keys of `GROUP BY`; `None` when rows stay rows.
    fn group_by(&mut self, query: &Query, aggregates: bool) -> Result<Option<Vec<Scalar>>, Error> {
        if query.group_by.is_empty() {
            return Ok(aggregates.then(Vec::new));
        }
        if query.order_by.is_some() {
            let text = "'ORDER BY' is not supported together with 'GROUP BY'.";
            return Err(Error::refused(text));
        }
        let mut keys = Vec::new();
        for key in &query.group_by {
            if contains(key, &|expr| matches!(expr.kind, ExprKind::Subquery(..))) {
                let text = "a GROUP BY key cannot contain a subquery";
                return Err(Error::refused(text));
            }
            keys.push(self.expr(key)?);
        }
        Ok(Some(keys))
    }

    /// The projection of groups: it sees one frame with the group instead of those of the rows.
    fn grouped_projection(
        &mut self,
        query: &Query,
        keys: Vec<Scalar>,
        base: usize,
    ) -> Result<(Option<Grouping>, Scalar), Error> {
        if let Selection::Star(span) = query.selection {
            let text = "'SELECT *' is not allowed with GROUP BY.";
            return Err(self.refuse(span, "SC2041", text));
        }
        let mut rows = Vec::new();
        for scope in self.scopes.drain(base..) {
            if let Scope::Value(named) = scope {
                rows.push(named);
            }
        }
        let group = GroupScope { rows, keys: query.group_by.clone(), aggregates: Vec::new() };
        self.scopes.push(Scope::Group(group));
        let projection = self.projection(query)?;
        let Some(Scope::Group(group)) = self.scopes.pop() else {
            unreachable!("the scope of the group was pushed above")
        };
        Ok((Some(Grouping { keys, aggregates: group.aggregates }), projection))
    }

    fn projection(&mut self, query: &Query) -> Result<Scalar, Error> {
        match &query.selection {
            Selection::Value(expr) => self.expr(expr),
            Selection::List(items) => self.list(items),
            Selection::Star(span) => match query.from.len() {
                1 => Ok(Scalar::Slot(0)),
                0 => {
                    let text = "'SELECT *' is not valid if FROM clause is omitted.";
                    Err(self.refuse(*span, "SC2039", text))
                }
                _ => {
                    let text = "'SELECT *' is only valid with a single input set.";
                    Err(self.refuse(*span, "SC2040", text))
                }
            },
        }
    }

    /// A list is an object; items without a name are numbered among themselves.
    fn list(&mut self, items: &[Item]) -> Result<Scalar, Error> {
        let mut unnamed = 0;
        let mut members = Vec::with_capacity(items.len());
        for item in items {
            let name = item.alias.clone().or_else(|| inferred_name(&item.expr));
            let name = name.unwrap_or_else(|| {
                unnamed += 1;
                format!("${unnamed}")
            });
            members.push((name, self.expr(&item.expr)?));
        }
        Ok(Scalar::Object(members))
    }

    // ---- order and page ----

    fn order_by(&mut self, order_by: &OrderBy, base: usize) -> Result<Vec<OrderKey>, Error> {
        if order_by.rank {
            return Err(self.rank(order_by));
        }
        let mut keys = Vec::new();
        let mut paths = Vec::new();
        for key in &order_by.keys {
            paths.push(self.order_path(key, base)?);
            keys.push(OrderKey {
                scalar: self.expr(&key.expr)?,
                descending: key.direction == Some(Direction::Descending),
            });
        }
        if keys.len() > 1
            && let Some(indexes) = &self.options.composite_indexes
            && !indexes.iter().any(|index| serves(index, &keys, &paths))
        {
            return Err(Error::refused(
                "The order by query does not have a corresponding composite index that it can be \
                 served from.",
            ));
        }
        Ok(keys)
    }

    fn rank(&self, order_by: &OrderBy) -> Error {
        let is_score = |key: &Order| {
            matches!(&key.expr.kind, ExprKind::Call { name, .. }
                if function::is_rank_function(name))
        };
        if !order_by.keys.iter().all(is_score) {
            let text = "The ORDER BY RANK clause must be followed by a VectorDistance and/or a \
                        FullTextScore function call.";
            return self.refuse(order_by.span, "SC2221", text);
        }
        if order_by.keys.iter().any(|key| key.direction.is_some()) {
            let text = "Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause is not \
                        allowed.";
            return Error::refused(text);
        }
        Error::refused("ORDER BY RANK is not supported yet")
    }

    /// The names on the way to an order key; a key that is no path of the document is refused.
    fn order_path(&self, key: &Order, base: usize) -> Result<Vec<String>, Error> {
        let not_a_path = || {
            Error::numbered(
                2206,
                "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a \
                 document path.",
            )
        };
        if matches!(&key.expr.kind, ExprKind::Call { name, .. }
            if function::is_unsupported(name))
        {
            return Err(Error::refused(
                "ordering by vector or full-text scores is not supported yet",
            ));
        }
        let mut path = Vec::new();
        let mut expr = &key.expr;
        loop {
            match &expr.kind {
                ExprKind::Member(object, name) => {
                    path.push(name.clone());
                    expr = object;
                }
                ExprKind::Index(object, index) => {
                    path.push(self.constant_step(index).ok_or_else(not_a_path)?);
                    expr = object;
                }
                ExprKind::Identifier(name) => {
                    let scope = self.scopes[base..].iter().find_map(|scope| match scope {
                        Scope::Value(named) if named.name.as_deref() == Some(name) => Some(named),
                        _ => None,
                    });
                    return match scope {
                        Some(Named { kind: NameKind::Other, .. }) => Err(Error::refused(
                            "Order-by over correlated collections is not supported.",
                        )),
                        Some(_) if path.is_empty() => Err(not_a_path()),
                        Some(_) => {
                            path.reverse();
                            Ok(path)
                        }
                        None => Err(self.unresolved(name, expr.span)),
                    };
                }
                _ => return Err(not_a_path()),
            }
        }
    }

    /// What a constant in brackets names: a member, or an element by its decimal offset.
    fn constant_step(&self, index: &Expr) -> Option<String> {
        let value = match &index.kind {
            ExprKind::String(name) => return Some(name.clone()),
            ExprKind::Number(number) => return Some(number.text().into_owned()),
            ExprKind::Parameter(name) => self.parameters.get(name.as_str())?,
            _ => return None,
        };
        match &**value {
            Value::String(name) => Some(name.clone()),
            Value::Number(number) => Some(number.text().into_owned()),
            _ => None,
        }
    }

    /// How many results to skip, and how many to return.
    fn page(&self, query: &Query) -> Result<(u64, Option<u64>), Error> {
        match (&query.top, &query.page) {
            (None, None) => Ok((0, None)),
            (Some(top), None) => {
                let text = "The count value provided for a TOP clause must be an integer.";
                Ok((0, Some(self.count(top, "SC2060", text)?)))
            }
            (None, Some(page)) => {
                let text = "The OFFSET count value exceeds the maximum allowed value.";
                let skip = self.count(&page.offset, "SC2062", text)?;
                let text = "The LIMIT count value exceeds the maximum allowed value.";
                Ok((skip, Some(self.count(&page.limit, "SC2061", text)?)))
            }
            (Some(_), Some(_)) => {
                Err(Error::refused("'TOP' and 'OFFSET LIMIT' cannot be used in the same query."))
            }
        }
    }

    fn count(&self, count: &Count, code: &'static str, text: &str) -> Result<u64, Error> {
        let number = match count {
            Count::Number(number, _) => number.as_i64(),
            Count::Parameter(name, span) => self.parameter(name, *span)?.as_i64(),
        };
        let count_u32 = number.and_then(|number| u32::try_from(number).ok());
        count_u32.map(u64::from).ok_or_else(|| self.refuse(count_span(count), code, text))
    }

    // ---- expressions ----

    fn expr(&mut self, expr: &Expr) -> Result<Scalar, Error> {
        if let Some(key) = self.group_key(expr) {
            return Ok(key);
        }
        let scalar = match &expr.kind {
            ExprKind::Undefined => Scalar::Undefined,
            ExprKind::Null => Scalar::constant(Value::Null),
            ExprKind::Bool(truth) => Scalar::constant(*truth),
            ExprKind::Number(number) => Scalar::constant(Value::Number(number.clone())),
            ExprKind::String(text) => Scalar::constant(text.as_str()),
            ExprKind::Parameter(name) => {
                Scalar::Constant(Arc::clone(self.parameter(name, expr.span)?))
            }
            ExprKind::Identifier(name) => self.identifier(name, expr.span)?,
            ExprKind::Member(object, name) => {
                let object = self.property_of(object, expr)?;
                self.member(object, name.clone())
            }
            ExprKind::Index(object, index) => self.index(object, index, expr)?,
            ExprKind::Array(items) => Scalar::Array(self.exprs(items)?),
            ExprKind::Object(members) => self.object(members)?,
            ExprKind::Unary(operator, operand) => {
                Scalar::Unary(*operator, Box::new(self.expr(operand)?))
            }
            ExprKind::Binary(operator, left, right) => {
                Scalar::Binary(*operator, self.boxed(left)?, self.boxed(right)?)
            }
            ExprKind::And(terms) => Scalar::And(self.exprs(terms)?),
            ExprKind::Or(terms) => Scalar::Or(self.exprs(terms)?),
            ExprKind::Coalesce(left, right) => {
                Scalar::Coalesce(self.boxed(left)?, self.boxed(right)?)
            }
            ExprKind::Conditional(condition, yes, no) => {
                let parts = [self.expr(condition)?, self.expr(yes)?, self.expr(no)?];
                Scalar::Conditional(Box::new(parts))
            }
            ExprKind::Between { value, low, high, negated } => {
                let parts = [self.expr(value)?, self.expr(low)?, self.expr(high)?];
                negate(Scalar::Between(Box::new(parts)), *negated)
            }
            ExprKind::In { value, list, negated } => {
                negate(within(self.boxed(value)?, self.exprs(list)?), *negated)
            }
            ExprKind::Like { value, pattern, escape, negated } => {
                let like = self.like(value, pattern, escape.as_deref(), expr.span)?;
                negate(like, *negated)
            }
            ExprKind::Call { name, name_span, arguments } => {
                self.call(name, *name_span, arguments, expr.span)?
            }
            ExprKind::Udf { name, arguments } => self.udf(name, arguments)?,
            ExprKind::Subquery(kind, query) => self.subquery(*kind, query, expr.span)?,
            ExprKind::Let { name, value, body } => self.binding(name, value, body)?,
        };
        Ok(self.folder.fold(scalar, self.options))
    }

    fn boxed(&mut self, expr: &Expr) -> Result<Box<Scalar>, Error> {
        self.expr(expr).map(Box::new)
    }

    fn exprs(&mut self, list: &[Expr]) -> Result<Vec<Scalar>, Error> {
        list.iter().map(|expr| self.expr(expr)).collect()
    }

    fn object(&mut self, members: &[(String, Expr)]) -> Result<Scalar, Error> {
        let mut bound = Vec::with_capacity(members.len());
        for (name, expr) in members {
            bound.push((name.clone(), self.expr(expr)?));
        }
        Ok(Scalar::Object(bound))
    }

    /// The key of the group that an expression is, when groups are projected.
    fn group_key(&self, expr: &Expr) -> Option<Scalar> {
        let Some(Scope::Group(group)) = self.scopes.last() else { return None };
        group.keys.iter().position(|key| is_same(expr, key)).map(|at| Scalar::Key(0, at))
    }

    fn parameter(&self, name: &str, span: Span) -> Result<&Arc<Value>, Error> {
        self.parameters.get(name).ok_or_else(|| {
            let text = format!("The parameter '{name}' is used but not supplied.");
            self.refuse(span, "SC2001", text)
        })
    }

    fn unresolved(&self, name: &str, span: Span) -> Error {
        self.refuse(span, "SC2001", format!("Identifier '{name}' could not be resolved."))
    }

    fn identifier(&self, name: &str, span: Span) -> Result<Scalar, Error> {
        for (hops, scope) in self.scopes.iter().rev().enumerate() {
            if scope.is_named(name) {
                return Ok(Scalar::Slot(hops));
            }
            if let Scope::Group(group) = scope
                && group.rows.iter().any(|row| row.name.as_deref() == Some(name))
            {
                return Err(self.ungrouped(name, span));
            }
        }
        match name {
            "NaN" => Ok(Scalar::constant(f64::NAN)),
            "Infinity" => Ok(Scalar::constant(f64::INFINITY)),
            _ => Err(self.unresolved(name, span)),
        }
    }

    fn ungrouped(&self, reference: &str, span: Span) -> Error {
        let text = format!(
            "Property reference '{reference}' is invalid in the select list because it is not \
             contained in either an aggregate function or the GROUP BY clause."
        );
        self.refuse(span, "SC2102", text)
    }

    /// The object of a property reference. When a row's name is out of reach behind a group, the
    /// error names the whole reference.
    fn property_of(&mut self, object: &Expr, whole: &Expr) -> Result<Scalar, Error> {
        self.expr(object).map_err(|error| match error.code() {
            Some("SC2102") => self.ungrouped(&whole.to_string(), whole.span),
            _ => error,
        })
    }

    /// A member; of a whole document it may be a computed property, which hides a stored one.
    fn member(&self, object: Scalar, name: String) -> Scalar {
        if let Scalar::Slot(hops) = object
            && let Some(Scope::Value(Named { kind: NameKind::Document, .. })) =
                self.scopes.iter().rev().nth(hops)
            && let Some(computed) = self.computed.iter().find(|computed| computed.name == name)
        {
            return Scalar::Computed(Box::new(object), Arc::clone(computed));
        }
        Scalar::Member(Box::new(object), name)
    }

    fn index(&mut self, object: &Expr, index: &Expr, whole: &Expr) -> Result<Scalar, Error> {
        let object = self.property_of(object, whole)?;
        let index = self.expr(index)?;
        match index.as_constant() {
            Some(Value::String(name)) => Ok(self.member(object, name.clone())),
            _ => Ok(Scalar::Index(Box::new(object), Box::new(index))),
        }
    }

    fn like(
        &mut self,
        value: &Expr,
        pattern: &Expr,
        escape: Option<&str>,
        span: Span,
    ) -> Result<Scalar, Error> {
        let escape = match escape.map(|text| text.chars().collect::<Vec<char>>()).as_deref() {
            None => None,
            Some([character]) => Some(*character),
            Some(_) => {
                let text = "The ESCAPE clause takes a single character.";
                return Err(self.refuse(span, "SC1001", text));
            }
        };
        let value = self.expr(value)?;
        let pattern = self.expr(pattern)?;
        let pattern = match pattern.as_constant() {
            Some(Value::String(text)) => LikePattern::Constant(Pattern::parse(text, escape)),
            _ => LikePattern::Computed(pattern),
        };
        Ok(Scalar::Like(Box::new(Like { value, pattern, escape })))
    }

    fn call(
        &mut self,
        name: &str,
        name_span: Span,
        arguments: &[Expr],
        span: Span,
    ) -> Result<Scalar, Error> {
        if let Some(kind) = AggregateKind::named(name) {
            return self.aggregate(kind, name, arguments, span);
        }
        let Some(function) = function::named(name) else {
            if name.eq_ignore_ascii_case("FullTextScore") {
                let text =
                    "The FullTextScore function is only allowed in the ORDER BY RANK clause.";
                return Err(self.refuse(span, "SC2240", text));
            }
            if function::is_unsupported(name) {
                return Err(Error::refused(format!("the function {name} is not supported yet")));
            }
            let text = format!("'{name}' is not a recognized built-in function name.");
            return Err(self.refuse(name_span, "SC2005", text));
        };
        if let Some(expected) = function.mismatch(arguments.len()) {
            let text = format!("The {} function requires {expected} argument(s).", function.name);
            return Err(self.refuse(span, "SC2050", text));
        }
        if !self.has_clock && matches!(function.body, Body::Clocked(_)) {
            return Err(Error::refused(format!("{name} cannot be called in a condition")));
        }
        let arguments = self.exprs(arguments)?;
        match function.body {
            Body::Regex(function) => Ok(regex_call(function, arguments)),
            _ => Ok(Scalar::Call(function, arguments)),
        }
    }

    fn aggregate(
        &mut self,
        kind: AggregateKind,
        name: &str,
        arguments: &[Expr],
        span: Span,
    ) -> Result<Scalar, Error> {
        let [argument] = arguments else {
            let name = name.to_ascii_uppercase();
            let text = format!("The {name} function requires 1 argument(s).");
            return Err(self.refuse(span, "SC2050", text));
        };
        let nested =
            |expr: &Expr| is_aggregate(expr) || matches!(expr.kind, ExprKind::Subquery(..));
        if self.in_aggregate || contains(argument, &nested) {
            let text = "Cannot perform an aggregate function on an expression containing an \
                        aggregate or a subquery.";
            return Err(self.refuse(span, "SC2101", text));
        }
        let Some(Scope::Group(_)) = self.scopes.last() else {
            let text =
                format!("The aggregate function {name} is only allowed in the SELECT clause.");
            return Err(Error::refused(text));
        };
        let argument = self.aggregate_argument(argument)?;
        let Some(Scope::Group(group)) = self.scopes.last_mut() else {
            unreachable!("the scope of the group was put back")
        };
        group.aggregates.push(Aggregate { kind, argument });
        Ok(Scalar::Aggregate(0, group.aggregates.len() - 1))
    }

    /// Binds the argument of an aggregate, which sees the rows and not the group.
    fn aggregate_argument(&mut self, argument: &Expr) -> Result<Scalar, Error> {
        let Some(Scope::Group(group)) = self.scopes.pop() else {
            unreachable!("the caller saw the scope of the group")
        };
        let base = self.scopes.len();
        self.scopes.extend(group.rows.iter().cloned().map(Scope::Value));
        self.in_aggregate = true;
        let bound = self.expr(argument);
        self.in_aggregate = false;
        self.scopes.truncate(base);
        self.scopes.push(Scope::Group(group));
        bound
    }

    fn udf(&mut self, name: &str, arguments: &[Expr]) -> Result<Scalar, Error> {
        let exists =
            self.options.functions.as_ref().is_some_and(|functions| functions.contains(name));
        if !exists {
            let text = format!("The user defined function '{name}' could not be found.");
            return Err(Error::refused(text));
        }
        self.udf_calls += 1;
        if self.udf_calls > UDF_CALLS_MAX {
            let text = format!("a query may call at most {UDF_CALLS_MAX} user-defined functions");
            return Err(Error::refused(text));
        }
        Ok(Scalar::Udf(name.to_owned(), self.exprs(arguments)?))
    }

    fn subquery(&mut self, kind: SubqueryKind, query: &Query, span: Span) -> Result<Scalar, Error> {
        if self.in_aggregate {
            let text = "Cannot perform an aggregate function on an expression containing an \
                        aggregate or a subquery.";
            return Err(self.refuse(span, "SC2101", text));
        }
        let mut plan = self.query(query, Place::Subquery)?;
        if kind == SubqueryKind::All {
            let filter = plan.filter.take().unwrap_or(Scalar::constant(true));
            plan.filter = Some(negate(filter, true));
        }
        Ok(Scalar::Subquery(kind, Box::new(plan)))
    }

    fn binding(&mut self, name: &str, value: &Expr, body: &Expr) -> Result<Scalar, Error> {
        let value = self.expr(value)?;
        self.scopes
            .push(Scope::Value(Named { name: Some(name.to_owned()), kind: NameKind::Other }));
        let body = self.expr(body);
        self.scopes.pop();
        Ok(Scalar::Let(Box::new(value), Box::new(body?)))
    }
}

impl Scope {
    fn is_named(&self, name: &str) -> bool {
        matches!(self, Scope::Value(named) if named.name.as_deref() == Some(name))
    }
}

/// `value IN list`. Programs send lists of thousands of constants, which are looked up instead of
/// being compared one by one; what is not a number equals nothing, itself included.
fn within(value: Box<Scalar>, list: Vec<Scalar>) -> Scalar {
    if list.len() < LOOKUP_MIN {
        return Scalar::In(value, list);
    }
    match constant_set(&list) {
        Some(set) => Scalar::InSet(value, Box::new(set)),
        None => Scalar::In(value, list),
    }
}

fn constant_set(list: &[Scalar]) -> Option<ConstantSet> {
    let mut set = ConstantSet { identities: HashSet::new(), values: Vec::new() };
    for item in list {
        let Scalar::Constant(constant) = item else { return None };
        if constant.as_f64().is_some_and(f64::is_nan) {
            return None;
        }
        let mut key = Vec::new();
        identity(Some(constant), &mut key);
        if set.identities.insert(key) {
            set.values.push(Arc::clone(constant));
        }
    }
    Some(set)
}

/// A call with a pattern that is compiled now when it is a constant.
fn regex_call(function: RegexFunction, arguments: Vec<Scalar>) -> Scalar {
    let constant = |scalar: &Scalar| scalar.as_constant()?.as_str().map(str::to_owned);
    let modifiers = match arguments.get(function.modifiers_at()) {
        Some(modifiers) => constant(modifiers),
        None => Some(String::new()),
    };
    let compiled = constant(&arguments[1])
        .zip(modifiers)
        .and_then(|(pattern, modifiers)| regex::compile(&pattern, &modifiers));
    let pattern = compiled.map_or(RegexPattern::Computed, RegexPattern::Constant);
    Scalar::Regex(Box::new(RegexCall { function, arguments, pattern }))
}

fn negate(scalar: Scalar, negated: bool) -> Scalar {
    if negated { Scalar::Unary(UnaryOperator::Not, Box::new(scalar)) } else { scalar }
}

fn count_span(count: &Count) -> Span {
    match count {
        Count::Number(_, span) | Count::Parameter(_, span) => *span,
    }
}

fn path_step(step: &Step) -> PathStep {
    match step {
        Step::Name(name) | Step::Quoted(name) => PathStep::Name(name.clone()),
        Step::Offset(offset) => PathStep::Offset(*offset),
    }
}

/// The name of a source: its alias, else the last name of its path.
fn source_name(source: &sql::Source) -> Option<String> {
    if source.alias.is_some() {
        return source.alias.clone();
    }
    let Collection::Path { root, steps } = &source.collection else { return None };
    match steps.last() {
        None => Some(root.clone()),
        Some(Step::Name(name) | Step::Quoted(name)) => Some(name.clone()),
        Some(Step::Offset(_)) => None,
    }
}

/// The name of a select item without an alias: the last name of a path.
fn inferred_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Identifier(name) | ExprKind::Member(_, name) => Some(name.clone()),
        ExprKind::Index(_, index) => match &index.kind {
            ExprKind::String(name) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn selected(selection: &Selection) -> impl Iterator<Item = &Expr> {
    let (value, items): (Option<&Expr>, &[Item]) = match selection {
        Selection::Star(_) => (None, &[]),
        Selection::Value(expr) => (Some(expr), &[]),
        Selection::List(items) => (None, items),
    };
    value.into_iter().chain(items.iter().map(|item| &item.expr))
}

fn is_aggregate(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Call { name, .. } if AggregateKind::named(name).is_some())
}

fn has_aggregate(expr: &Expr) -> bool {
    contains(expr, &is_aggregate)
}

/// Whether an expression or anything below it, outside subqueries, is what is looked for.
fn contains(expr: &Expr, found: &dyn Fn(&Expr) -> bool) -> bool {
    found(expr) || expr.children().into_iter().any(|child| contains(child, found))
}

/// Whether a composite index serves an order: the same paths in the same sequence, with all
/// directions the same or all opposite.
fn serves(index: &[CompositeKey], keys: &[OrderKey], paths: &[Vec<String>]) -> bool {
    let same_paths = index.len() == paths.len()
        && index.iter().zip(paths).all(|(composite, path)| composite.path == *path);
    let opposed =
        |(composite, key): (&CompositeKey, &OrderKey)| composite.descending != key.descending;
    let mut directions = index.iter().zip(keys).map(opposed);
    let first = directions.next();
    same_paths && directions.all(|direction| Some(direction) == first)
}
