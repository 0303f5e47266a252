//! Which partitions a query can touch.
//!
//! The filter of a query often fixes the partition key: by equality, by a list, by several ways
//! joined with `OR`. What is derived here is *necessary*: a document of any other partition cannot
//! make the filter true. Anything that is not understood confines nothing, which is right and slower.
//!
//! Between the filter and the keys stand boxes: for every path of the key the values that it may
//! have, or any. A filter is a union of boxes. Their number is bounded; where it would grow too
//! large, a condition is forgotten rather than multiplied out.

use crate::aggregate::AggregateKind;
use crate::function::{self, Body};
use crate::{Geospatial, Limits, Options, RunError, prepare};
use sql::{BinaryOperator, Collection, Expr, ExprKind, Query, Step, UnaryOperator};
use std::collections::BTreeSet;
use std::convert::Infallible;
use value::{Component, PartitionKey, PartitionKeyDefinition, PartitionKind, Value};

/// The partitions that can contribute to the answer of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// All of them.
    #[default]
    All,
    /// None: no document makes the filter true, or the query looks at no documents.
    Nothing,
    /// These, sorted; in a hierarchical container a key may be the beginning of one. None is the
    /// beginning of another.
    Keys(Vec<PartitionKey>),
}

impl Reach {
    /// The only key, if there is one only.
    pub fn one_key(&self) -> Option<&PartitionKey> {
        match self {
            Reach::Keys(keys) if keys.len() == 1 => keys.first(),
            _ => None,
        }
    }
}

/// How many boxes a filter may be; more would be slower to make than to do without.
const BOXES_MAX: usize = 256;

/// How many keys are worth telling apart.
const KEYS_MAX: usize = 4096;

/// How many constant expressions are evaluated to find keys.
const EVALUATIONS_MAX: usize = 64;

/// How much memory a constant expression may use.
const CONSTANT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The partitions that a query over a container can touch. Computed properties hide stored ones and
/// cannot be partition keys, so they need not be known.
pub fn reach(
    query: &Query,
    parameters: &[(String, Value)],
    definition: &PartitionKeyDefinition,
    geospatial: Geospatial,
) -> Reach {
    let (Some(filter), Some((alias, steps))) = (&query.filter, root_of(query)) else {
        return Reach::All;
    };
    let paths = definition.paths.iter().map(|path| path.segments()).collect();
    let mut deriver = Deriver { alias, steps, paths, parameters, geospatial, evaluations: 0 };
    match deriver.condition(filter) {
        Region::Any => Reach::All,
        Region::Boxes(boxes) if boxes.is_empty() => Reach::Nothing,
        Region::Boxes(boxes) => keys(&boxes, definition).map_or(Reach::All, Reach::Keys),
    }
}

/// The name of what the first source binds, and where that lies in the documents.
fn root_of(query: &Query) -> Option<(&str, Vec<&str>)> {
    let source = query.from.first()?;
    let Collection::Path { steps, .. } = &source.collection else { return None };
    if source.iterates {
        return None;
    }
    let name = |step| match step {
        &Step::Name(ref name) | &Step::Quoted(ref name) => Some(name.as_str()),
        Step::Offset(_) => None,
    };
    Some((source.name()?, steps.iter().map(name).collect::<Option<_>>()?))
}

/// The values that each path of the key may have; `None` is any.
type KeyBox = Vec<Option<BTreeSet<Component>>>;

/// Where the keys of documents lie that make a condition true.
enum Region {
    Any,
    Boxes(Vec<KeyBox>),
}

impl Region {
    fn nothing() -> Region {
        Region::Boxes(Vec::new())
    }

    fn and(self, other: Region) -> Region {
        let (left, right) = match (self, other) {
            (Region::Any, region) | (region, Region::Any) => return region,
            (Region::Boxes(left), Region::Boxes(right)) => (left, right),
        };
        if left.len() * right.len() > BOXES_MAX {
            return Region::Boxes(if left.len() < right.len() { left } else { right });
        }
        let pairs = left.iter().flat_map(|left| right.iter().map(move |right| (left, right)));
        Region::Boxes(pairs.filter_map(|(left, right)| intersection(left, right)).collect())
    }

    fn or(self, other: Region) -> Region {
        let (Region::Boxes(mut left), Region::Boxes(right)) = (self, other) else {
            return Region::Any;
        };
        for added in right {
            // Long chains are most often about one path; they stay one box.
            match left.iter_mut().find_map(|known| same_path(known, &added)) {
                Some((known, added)) => known.extend(added.iter().cloned()),
                None => left.push(added),
            }
        }
        if left.len() > BOXES_MAX { Region::Any } else { Region::Boxes(left) }
    }
}

fn intersection(left: &KeyBox, right: &KeyBox) -> Option<KeyBox> {
    let side = |(left, right): (&Option<BTreeSet<Component>>, &Option<BTreeSet<Component>>)| {
        let both = match (left, right) {
            (None, side) | (side, None) => side.clone(),
            (Some(left), Some(right)) => Some(left.intersection(right).cloned().collect()),
        };
        let is_empty = both.as_ref().is_some_and(BTreeSet::is_empty);
        (!is_empty).then_some(both)
    };
    left.iter().zip(right).map(side).collect()
}

/// The values of two boxes that are about one path, and the same one.
fn same_path<'b>(
    known: &'b mut KeyBox,
    added: &'b KeyBox,
) -> Option<(&'b mut BTreeSet<Component>, &'b BTreeSet<Component>)> {
    let only = |sides: &KeyBox| {
        let mut given = sides.iter().enumerate().filter(|(_, side)| side.is_some());
        let (at, _) = given.next()?;
        given.next().is_none().then_some(at)
    };
    let at = only(known)?;
    if only(added)? != at {
        return None;
    }
    Some((known[at].as_mut()?, added[at].as_ref()?))
}

/// The keys inside boxes, if they can be told apart: whole keys, or where keys are hierarchical
/// their beginnings.
fn keys(boxes: &[KeyBox], definition: &PartitionKeyDefinition) -> Option<Vec<PartitionKey>> {
    let mut keys = BTreeSet::new();
    for sides in boxes {
        let given: Vec<&BTreeSet<Component>> = sides.iter().map_while(Option::as_ref).collect();
        let is_enough = match definition.kind {
            PartitionKind::MultiHash => !given.is_empty(),
            PartitionKind::Hash | PartitionKind::Range => given.len() == sides.len(),
        };
        let count = given.iter().try_fold(1usize, |count, side| count.checked_mul(side.len()))?;
        if !is_enough || keys.len() + count > KEYS_MAX {
            return None;
        }
        let mut begun = vec![Vec::new()];
        for side in given {
            let longer = |key: &Vec<Component>| {
                let key = key.clone();
                side.iter()
                    .map(move |component| [&key[..], std::slice::from_ref(component)].concat())
            };
            begun = begun.iter().flat_map(longer).collect();
        }
        keys.extend(begun.into_iter().map(PartitionKey));
    }
    // In order, a key stands directly before the keys that it is the beginning of.
    let mut told: Vec<PartitionKey> = Vec::new();
    for key in keys {
        if !told.last().is_some_and(|last| key.0.starts_with(&last.0)) {
            told.push(key);
        }
    }
    Some(told)
}

struct Deriver<'q> {
    alias: &'q str,
    steps: Vec<&'q str>,
    paths: Vec<&'q [String]>,
    parameters: &'q [(String, Value)],
    geospatial: Geospatial,
    evaluations: usize,
}

impl Deriver<'_> {
    /// Where the keys lie of documents for which the condition is exactly true.
    fn condition(&mut self, expr: &Expr) -> Region {
        match &expr.kind {
            ExprKind::And(terms) => {
                terms.iter().fold(Region::Any, |region, term| region.and(self.condition(term)))
            }
            ExprKind::Or(terms) => {
                terms.iter().fold(Region::nothing(), |region, term| region.or(self.condition(term)))
            }
            _ if is_constant(expr) => match self.constant(expr) {
                Some(Some(Value::Bool(true))) | None => Region::Any,
                Some(_) => Region::nothing(),
            },
            ExprKind::Binary(BinaryOperator::Equal, left, right) => self.equality(left, right),
            ExprKind::In { value, list, negated: false } => self.list(value, list),
            ExprKind::Like { value, pattern, escape, negated: false } => {
                self.like(value, pattern, escape.as_deref())
            }
            ExprKind::Call { name, arguments, .. } => self.call(name, arguments),
            ExprKind::Unary(UnaryOperator::Not, operand) => match self.path(operand) {
                Some(path) => self.only(path, [Component::Bool(false)]),
                None => self.negation(operand),
            },
            _ => match self.path(expr) {
                Some(path) => self.only(path, [Component::Bool(true)]),
                None => Region::Any,
            },
        }
    }

    /// Only `NOT IS_DEFINED` says something: there is nothing at the path.
    fn negation(&mut self, operand: &Expr) -> Region {
        match &operand.kind {
            ExprKind::Call { name, arguments, .. } if name.eq_ignore_ascii_case("IS_DEFINED") => {
                match arguments.first().and_then(|argument| self.path(argument)) {
                    Some(path) => self.only(path, [Component::Undefined]),
                    None => Region::Any,
                }
            }
            _ => Region::Any,
        }
    }

    fn equality(&mut self, left: &Expr, right: &Expr) -> Region {
        for (side, constant) in [(left, right), (right, left)] {
            if let Some(path) = self.path(side) {
                return self.one_of(path, std::slice::from_ref(constant));
            }
            if let Some(path) = self.absolute(side)
                && let Some(Some(Value::Number(number))) = self.constant(constant)
                && number.as_f64().is_finite()
            {
                let size = Component::from_value(Some(&Value::from(number.as_f64())));
                let other = Component::from_value(Some(&Value::from(-number.as_f64())));
                return self.only(path, size.into_iter().chain(other));
            }
        }
        Region::Any
    }

    /// The path whose absolute value an expression is.
    fn absolute(&self, expr: &Expr) -> Option<usize> {
        match &expr.kind {
            ExprKind::Call { name, arguments, .. } if name.eq_ignore_ascii_case("ABS") => {
                self.path(arguments.first()?)
            }
            _ => None,
        }
    }

    fn list(&mut self, value: &Expr, list: &[Expr]) -> Region {
        match self.path(value) {
            Some(path) => self.one_of(path, list),
            None => Region::Any,
        }
    }

    /// A pattern without wildcards is an equality.
    fn like(&mut self, value: &Expr, pattern: &Expr, escape: Option<&str>) -> Region {
        let (Some(path), Some(Some(Value::String(pattern)))) =
            (self.path(value), self.constant(pattern))
        else {
            return Region::Any;
        };
        let escape = escape.and_then(|escape| escape.chars().next());
        match literal(&pattern, escape) {
            Some(text) => self.only(path, [Component::String(text)]),
            None => Region::Any,
        }
    }

    fn call(&mut self, name: &str, arguments: &[Expr]) -> Region {
        let is = |spelling: &str| spelling.eq_ignore_ascii_case(name);
        match arguments {
            [argument] => {
                let Some(path) = self.path(argument) else { return Region::Any };
                if is("IS_NULL") {
                    return self.only(path, [Component::Null]);
                }
                if is("IS_BOOL") || is("IS_BOOLEAN") {
                    return self.only(path, [Component::Bool(false), Component::Bool(true)]);
                }
                Region::Any
            }
            [array, sought] if is("ARRAY_CONTAINS") => {
                let Some(path) = self.path(sought) else { return Region::Any };
                if let ExprKind::Array(items) = &array.kind {
                    return self.one_of(path, items);
                }
                match self.constant(array) {
                    Some(Some(Value::Array(items))) => {
                        match items.iter().map(component).collect::<Option<Vec<_>>>() {
                            Some(components) => self.only(path, components),
                            None => Region::Any,
                        }
                    }
                    _ => Region::Any,
                }
            }
            _ => Region::Any,
        }
    }

    /// The documents whose value at a path equals one of some constants.
    fn one_of(&mut self, path: usize, constants: &[Expr]) -> Region {
        let mut components = Vec::with_capacity(constants.len());
        for constant in constants {
            match &constant.kind {
                // Arrays and objects at the path count as nothing, whatever is in them.
                ExprKind::Array(_) | ExprKind::Object(_) => components.push(Component::Undefined),
                _ => match self.constant(constant) {
                    // Nothing equals undefined.
                    Some(None) => {}
                    Some(Some(value)) => match component(&value) {
                        Some(component) => components.push(component),
                        None => return Region::Any,
                    },
                    None => return Region::Any,
                },
            }
        }
        self.only(path, components)
    }

    fn only(&self, path: usize, components: impl IntoIterator<Item = Component>) -> Region {
        let components: BTreeSet<Component> = components.into_iter().collect();
        if components.is_empty() {
            return Region::nothing();
        }
        let mut sides = vec![None; self.paths.len()];
        sides[path] = Some(components);
        Region::Boxes(vec![sides])
    }

    /// Which path of the key an expression is.
    fn path(&self, expr: &Expr) -> Option<usize> {
        let mut names = Vec::new();
        let mut expr = expr;
        loop {
            match &expr.kind {
                ExprKind::Member(object, name) => {
                    names.push(name.as_str());
                    expr = object;
                }
                ExprKind::Index(object, index) => {
                    let ExprKind::String(name) = &index.kind else { return None };
                    names.push(name);
                    expr = object;
                }
                ExprKind::Identifier(name) if name == self.alias => break,
                _ => return None,
            }
        }
        let full = || self.steps.iter().chain(names.iter().rev());
        self.paths.iter().position(|path| path.iter().eq(full()))
    }

    /// The value of a constant expression; `None` when it is none, or could not be computed.
    fn constant(&mut self, expr: &Expr) -> Option<Option<Value>> {
        let value = match &expr.kind {
            ExprKind::Null => Value::Null,
            ExprKind::Bool(truth) => Value::Bool(*truth),
            ExprKind::Number(number) => Value::Number(number.clone()),
            ExprKind::String(text) => Value::String(text.clone()),
            ExprKind::Parameter(name) => {
                self.parameters.iter().rev().find(|(known, _)| known == name)?.1.clone()
            }
            ExprKind::Undefined => return Some(None),
            _ => return self.evaluated(expr),
        };
        Some(Some(value))
    }

    fn evaluated(&mut self, expr: &Expr) -> Option<Option<Value>> {
        if !is_constant(expr) || self.evaluations == EVALUATIONS_MAX {
            return None;
        }
        self.evaluations += 1;
        let limits = Limits::memory(CONSTANT_BYTES_MAX);
        let options = Options { geospatial: self.geospatial, ..Options::new(0, 0, limits) };
        let prepared = prepare(&format!("SELECT VALUE {expr}"), self.parameters, &options).ok()?;
        let rows: Result<Vec<Value>, RunError<Infallible>> = prepared.run([]);
        Some(rows.ok()?.pop())
    }
}

/// The one text that a pattern of `LIKE` matches, if it has no wildcards.
fn literal(pattern: &str, escape: Option<char>) -> Option<String> {
    let mut text = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            _ if Some(character) == escape => text.push(characters.next()?),
            '%' | '_' | '[' => return None,
            _ => text.push(character),
        }
    }
    Some(text)
}

/// The component of a key that a value is; `None` when it is no number.
fn component(value: &Value) -> Option<Component> {
    match value {
        Value::Number(number) if !number.as_f64().is_finite() => None,
        _ => Some(Component::from_value(Some(value)).unwrap_or(Component::Undefined)),
    }
}

/// Whether an expression has the same value wherever and whenever it is evaluated.
fn is_constant(expr: &Expr) -> bool {
    let is_fixed = match &expr.kind {
        ExprKind::Identifier(_)
        | ExprKind::Subquery(..)
        | ExprKind::Udf { .. }
        | ExprKind::Let { .. } => false,
        ExprKind::Call { name, .. } => {
            AggregateKind::named(name).is_none()
                && function::named(name)
                    .is_some_and(|function| !matches!(function.body, Body::Clocked(_)))
        }
        _ => true,
    };
    is_fixed && expr.children().into_iter().all(is_constant)
}
