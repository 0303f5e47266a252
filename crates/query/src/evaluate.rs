//! The value of a bound expression in a row.
//!
//! Undefined is `None`. Values are borrowed from the document or from the plan as far as possible
//! and owned only where an operator makes something new. What is made new is charged to the
//! query's memory, so that no nesting of constructors can double its way to the end of the world.

use crate::compare::{Relation, equal, identity, relate, size_bytes};
use crate::execute::run_subquery;
use crate::function::regex::compile;
use crate::function::{Body, Function};
use crate::like::Pattern;
use crate::plan::{Like, LikePattern, Plan, RegexCall, RegexPattern, Scalar};
use crate::{Error, Functions, Geospatial, Limits, Options};
use sql::{BinaryOperator, SubqueryKind, UnaryOperator};
use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::{ControlFlow, Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering as Memory};
use value::{Number, Object, Value};

/// The frames that an expression sees, the innermost first.
pub(crate) type Env<'e> = Option<&'e Frame<'e>>;

/// One frame: the row of a source, a `LET`, or a group.
pub(crate) struct Frame<'e> {
    pub(crate) parent: Env<'e>,
    pub(crate) content: Content<'e>,
}

/// What a frame holds.
pub(crate) enum Content<'e> {
    Value(Option<&'e Value>),
    Group { keys: &'e [Option<Value>], aggregates: &'e [Option<Value>] },
}

/// The value of an expression, or undefined.
pub(crate) type Evaluated<'e> = Result<Option<Cow<'e, Value>>, Error>;

/// How many rows or elements are visited between two looks at the deadline.
const STEPS_BETWEEN_CHECKS: u32 = 1024;

/// How many bytes of a string are as much work as one row or element.
const BYTES_PER_STEP: usize = 256;

/// How much memory is kept for the next identity.
const SCRATCH_BYTES_MAX: usize = 64 * 1024;

/// How many arguments of a function are held without allocating.
const FEW: usize = 4;

/// What evaluation needs besides the row.
pub(crate) struct Context<'c> {
    now_ticks: i64,
    random: &'c AtomicU64,
    limits: &'c Limits,
    functions: Option<&'c dyn Functions>,
    geospatial: Geospatial,
    /// Bytes of values made for the current document.
    made: Cell<usize>,
    /// Bytes of values kept until the query ends.
    kept: Cell<usize>,
    steps: Cell<u32>,
    scratch: Cell<Vec<u8>>,
}

/// Bytes to write to, empty at first. The memory goes back to the context, for the next one.
pub(crate) struct Scratch<'c> {
    home: &'c Cell<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Deref for Scratch<'_> {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Scratch<'_> {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if self.bytes.capacity() <= SCRATCH_BYTES_MAX {
            self.bytes.clear();
            self.home.set(std::mem::take(&mut self.bytes));
        }
    }
}

impl<'c> Context<'c> {
    pub(crate) fn new(options: &'c Options, random: &'c AtomicU64) -> Context<'c> {
        Context {
            now_ticks: options.now_ticks,
            random,
            limits: &options.limits,
            functions: options.functions.as_deref(),
            geospatial: options.geospatial,
            made: Cell::new(0),
            kept: Cell::new(0),
            steps: Cell::new(0),
            scratch: Cell::new(Vec::new()),
        }
    }

    /// Room for the identity of a value, which is needed for a moment and for every row.
    pub(crate) fn scratch(&self) -> Scratch<'_> {
        Scratch { home: &self.scratch, bytes: self.scratch.take() }
    }

    /// Forgets what was made for the document before.
    pub(crate) fn next_document(&self) {
        self.made.set(0);
    }

    /// Counts one row or element, and looks at the deadline now and then.
    pub(crate) fn step(&self) -> Result<(), Error> {
        self.step_by(1)
    }

    /// Counts the bytes of strings, which are quicker to go through than elements are.
    pub(crate) fn step_bytes(&self, bytes: usize) -> Result<(), Error> {
        self.step_by(bytes / BYTES_PER_STEP)
    }

    /// Counts so many rows or elements at once.
    pub(crate) fn step_by(&self, count: usize) -> Result<(), Error> {
        let steps = self.steps.get().saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if steps < STEPS_BETWEEN_CHECKS {
            self.steps.set(steps);
            return Ok(());
        }
        self.steps.set(0);
        self.check_deadline()
    }

    /// Looks at the deadline now, for work that may take long by itself.
    pub(crate) fn check_deadline(&self) -> Result<(), Error> {
        if (self.limits.is_expired)() { Err(Error::timed_out()) } else { Ok(()) }
    }

    /// Charges bytes that live as long as the current document is looked at.
    pub(crate) fn charge(&self, bytes: usize) -> Result<(), Error> {
        self.made.set(self.made.get().saturating_add(bytes));
        self.check_memory()
    }

    /// Charges bytes that live until the query ends.
    pub(crate) fn keep(&self, bytes: usize) -> Result<(), Error> {
        self.kept.set(self.kept.get().saturating_add(bytes));
        self.check_memory()
    }

    /// Gives back bytes that were kept.
    pub(crate) fn release(&self, bytes: usize) {
        self.kept.set(self.kept.get().saturating_sub(bytes));
    }

    fn check_memory(&self) -> Result<(), Error> {
        let bytes_max = self.limits.memory_bytes_max;
        if self.made.get().saturating_add(self.kept.get()) > bytes_max {
            return Err(Error::too_large(bytes_max));
        }
        Ok(())
    }

    /// The time of the query, in units of 100 ns since 1970.
    pub(crate) fn now_ticks(&self) -> i64 {
        self.now_ticks
    }

    /// Where shapes lie.
    pub(crate) fn geospatial(&self) -> Geospatial {
        self.geospatial
    }

    /// The next random number in `[0, 1)`: SplitMix64 over a counter.
    pub(crate) fn random(&self) -> f64 {
        let mut bits = self.random.fetch_add(0x9E37_79B9_7F4A_7C15, Memory::Relaxed);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The value as one that can be put into another; copying is charged.
    pub(crate) fn own(&self, value: Cow<'_, Value>) -> Result<Value, Error> {
        match value {
            Cow::Owned(value) => Ok(value),
            Cow::Borrowed(value) => {
                self.charge(size_bytes(value))?;
                Ok(value.clone())
            }
        }
    }
}

/// The value of an expression.
pub(crate) fn evaluate<'e>(
    scalar: &'e Scalar,
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    match scalar {
        Scalar::Undefined => Ok(None),
        Scalar::Constant(value) => Ok(Some(Cow::Borrowed(value))),
        Scalar::Slot(hops) => Ok(slot(env, *hops).map(Cow::Borrowed)),
        Scalar::Key(hops, at) => Ok(group(env, *hops).0[*at].as_ref().map(Cow::Borrowed)),
        Scalar::Aggregate(hops, at) => Ok(group(env, *hops).1[*at].as_ref().map(Cow::Borrowed)),
        Scalar::Member(object, name) => Ok(member(evaluate(object, env, context)?, name)),
        Scalar::Index(object, index) => element(object, index, env, context),
        Scalar::Array(items) => array(items, env, context),
        Scalar::Object(members) => object(members, env, context),
        Scalar::Unary(operator, operand) => unary(*operator, operand, env, context),
        Scalar::Binary(operator, left, right) => binary(*operator, left, right, env, context),
        Scalar::And(terms) => logic(terms, false, env, context),
        Scalar::Or(terms) => logic(terms, true, env, context),
        Scalar::Coalesce(left, right) => match evaluate(left, env, context)? {
            None => evaluate(right, env, context),
            value => Ok(value),
        },
        Scalar::Conditional(parts) => {
            let [condition, yes, no] = &**parts;
            let chosen = if is_true(condition, env, context)? { yes } else { no };
            evaluate(chosen, env, context)
        }
        Scalar::Between(parts) => between(parts, env, context),
        Scalar::In(value, list) => within(value, list, env, context),
        Scalar::InSet(value, set) => match evaluate(value, env, context)? {
            Some(value) => truth(Some(is_in(&value, &set.identities, context)?)),
            None => Ok(None),
        },
        Scalar::Like(like) => matches(like, env, context),
        Scalar::Call(function, arguments) => call(function, arguments, env, context),
        Scalar::Regex(call) => regex_call(call, env, context),
        Scalar::Udf(name, arguments) => user_function(name, arguments, env, context),
        Scalar::Subquery(kind, plan) => subquery(*kind, plan, env, context),
        Scalar::Let(value, body) => bind(value, body, env, context),
        Scalar::Computed(document, property) => bind(document, &property.body, env, context),
    }
}

/// Whether an expression is exactly `true`.
pub(crate) fn is_true<'e>(
    scalar: &'e Scalar,
    env: Env<'e>,
    context: &Context<'_>,
) -> Result<bool, Error> {
    Ok(matches!(evaluate(scalar, env, context)?.as_deref(), Some(Value::Bool(true))))
}

fn frame<'e>(env: Env<'e>, hops: usize) -> &'e Content<'e> {
    let mut frame = env.expect("the binder counted the frames");
    for _ in 0..hops {
        frame = frame.parent.expect("the binder counted the frames");
    }
    &frame.content
}

fn slot<'e>(env: Env<'e>, hops: usize) -> Option<&'e Value> {
    match frame(env, hops) {
        Content::Value(value) => *value,
        Content::Group { .. } => unreachable!("the binder resolves names to rows only"),
    }
}

fn group<'e>(env: Env<'e>, hops: usize) -> (&'e [Option<Value>], &'e [Option<Value>]) {
    match frame(env, hops) {
        Content::Group { keys, aggregates } => (keys, aggregates),
        Content::Value(_) => unreachable!("the binder resolves keys to groups only"),
    }
}

fn member<'e>(object: Option<Cow<'e, Value>>, name: &str) -> Option<Cow<'e, Value>> {
    match object? {
        Cow::Borrowed(value) => value.get(name).map(Cow::Borrowed),
        Cow::Owned(Value::Object(mut object)) => object.remove(name).map(Cow::Owned),
        Cow::Owned(_) => None,
    }
}

fn element<'e>(
    object: &'e Scalar,
    index: &'e Scalar,
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    let object = evaluate(object, env, context)?;
    let Some(index) = evaluate(index, env, context)? else { return Ok(None) };
    match &*index {
        Value::String(name) => Ok(member(object, name)),
        Value::Number(offset) => Ok(offset.as_i64().and_then(|offset| {
            let offset = usize::try_from(offset).ok()?;
            match object? {
                Cow::Borrowed(Value::Array(items)) => items.get(offset).map(Cow::Borrowed),
                Cow::Owned(Value::Array(mut items)) if offset < items.len() => {
                    Some(Cow::Owned(items.swap_remove(offset)))
                }
                _ => None,
            }
        })),
        _ => Ok(None),
    }
}

fn array<'e>(items: &'e [Scalar], env: Env<'e>, context: &Context<'_>) -> Evaluated<'e> {
    let mut out = Vec::new();
    context.charge(items.len() * size_of::<Value>())?;
    for item in items {
        context.step()?;
        if let Some(value) = evaluate(item, env, context)? {
            out.push(context.own(value)?);
        }
    }
    Ok(Some(Cow::Owned(Value::Array(out))))
}

/// The members are collected rather than inserted, which would look through all names each time.
fn object<'e>(
    members: &'e [(String, Scalar)],
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    let member = |(name, scalar): &'e (String, Scalar)| {
        context.step()?;
        let Some(value) = evaluate(scalar, env, context)? else { return Ok(None) };
        context.charge(name.len() + size_of::<Value>())?;
        Ok(Some((name.as_str(), context.own(value)?)))
    };
    let out: Object = members
        .iter()
        .filter_map(|written| member(written).transpose())
        .collect::<Result<_, Error>>()?;
    Ok(Some(Cow::Owned(Value::Object(out))))
}

fn truth<'e>(truth: Option<bool>) -> Evaluated<'e> {
    Ok(truth.map(|truth| Cow::Owned(Value::Bool(truth))))
}

fn unary<'e>(
    operator: UnaryOperator,
    operand: &'e Scalar,
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    let Some(operand) = evaluate(operand, env, context)? else { return Ok(None) };
    let value = match (operator, &*operand) {
        (UnaryOperator::Not, Value::Bool(truth)) => Value::Bool(!truth),
        (UnaryOperator::Minus, Value::Number(number)) => Value::Number(negated(number)),
        (UnaryOperator::Plus, Value::Number(number)) => Value::Number(number.clone()),
        (UnaryOperator::BitNot, Value::Number(number)) => Value::from(!to_int32(number.as_f64())),
        _ => return Ok(None),
    };
    Ok(Some(Cow::Owned(value)))
}

/// Integers of 64 bits keep all their digits: `-9223372036854775807` is exact.
fn negated(number: &Number) -> Number {
    match number.as_i64().and_then(i64::checked_neg) {
        Some(integer) if integer != 0 => Number::from(integer),
        _ => Number::from(-number.as_f64() + 0.0),
    }
}

fn binary<'e>(
    operator: BinaryOperator,
    left: &'e Scalar,
    right: &'e Scalar,
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    let Some(left) = evaluate(left, env, context)? else { return Ok(None) };
    let Some(right) = evaluate(right, env, context)? else { return Ok(None) };
    if let Some(answer) = comparison(operator, &left, &right, context)? {
        return truth(answer);
    }
    if operator == BinaryOperator::Concat {
        return concat(&left, &right, context);
    }
    let numbers = left.as_f64().zip(right.as_f64());
    Ok(numbers.map(|(left, right)| Cow::Owned(computed(arithmetic(operator, left, right)))))
}

/// The answer of a comparison operator, which may be undefined; `None` for other operators.
fn comparison(
    operator: BinaryOperator,
    left: &Value,
    right: &Value,
    context: &Context<'_>,
) -> Result<Option<Option<bool>>, Error> {
    let accept: fn(Ordering) -> bool = match operator {
        BinaryOperator::Equal => return Ok(Some(Some(equal(left, right, context)?))),
        BinaryOperator::NotEqual => return Ok(Some(Some(!equal(left, right, context)?))),
        BinaryOperator::Less => Ordering::is_lt,
        BinaryOperator::LessOrEqual => Ordering::is_le,
        BinaryOperator::Greater => Ordering::is_gt,
        BinaryOperator::GreaterOrEqual => Ordering::is_ge,
        _ => return Ok(None),
    };
    if let (Value::String(left), Value::String(right)) = (left, right) {
        context.step_bytes(left.len().min(right.len()))?;
    }
    Ok(Some(relate(left, right).map(|relation| match relation {
        Relation::Ordered(order) => accept(order),
        Relation::Unordered => false,
    })))
}

fn concat<'e>(left: &Value, right: &Value, context: &Context<'_>) -> Evaluated<'e> {
    let (Value::String(left), Value::String(right)) = (left, right) else { return Ok(None) };
    context.charge(left.len() + right.len())?;
    context.step_bytes(left.len() + right.len())?;
    Ok(Some(Cow::Owned(Value::String(format!("{left}{right}")))))
}

/// A computed number. Queries cannot tell the two zeros apart, so only one is returned.
fn computed(number: f64) -> Value {
    Value::from(number + 0.0)
}

fn arithmetic(operator: BinaryOperator, left: f64, right: f64) -> f64 {
    match operator {
        BinaryOperator::Add => left + right,
        BinaryOperator::Subtract => left - right,
        BinaryOperator::Multiply => left * right,
        BinaryOperator::Divide => left / right,
        BinaryOperator::Modulo => left % right,
        BinaryOperator::BitAnd => f64::from(to_int32(left) & to_int32(right)),
        BinaryOperator::BitOr => f64::from(to_int32(left) | to_int32(right)),
        BinaryOperator::BitXor => f64::from(to_int32(left) ^ to_int32(right)),
        BinaryOperator::ShiftLeft => f64::from(to_int32(left).wrapping_shl(to_uint32(right))),
        BinaryOperator::ShiftRight => f64::from(to_int32(left).wrapping_shr(to_uint32(right))),
        BinaryOperator::ShiftRightUnsigned => {
            f64::from(to_uint32(left).wrapping_shr(to_uint32(right)))
        }
        _ => unreachable!("comparison and concatenation were handled before"),
    }
}

/// JavaScript's ToUint32: truncated, modulo 2^32; what is not finite is 0.
fn to_uint32(number: f64) -> u32 {
    if !number.is_finite() {
        return 0;
    }
    number.trunc().rem_euclid(4_294_967_296.0) as u32
}

fn to_int32(number: f64) -> i32 {
    to_uint32(number).cast_signed()
}

/// `AND` and `OR`: one term equal to `decisive` decides; else anything but booleans makes the
/// whole undefined.
fn logic<'e>(
    terms: &'e [Scalar],
    decisive: bool,
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    let mut all_booleans = true;
    for term in terms {
        context.step()?;
        match evaluate(term, env, context)?.as_deref() {
            Some(Value::Bool(found)) if *found == decisive => return truth(Some(decisive)),
            Some(Value::Bool(_)) => {}
            _ => all_booleans = false,
        }
    }
    truth(all_booleans.then_some(!decisive))
}

fn between<'e>(parts: &'e [Scalar; 3], env: Env<'e>, context: &Context<'_>) -> Evaluated<'e> {
    let [value, low, high] = parts;
    let Some(value) = evaluate(value, env, context)? else { return Ok(None) };
    let low = evaluate(low, env, context)?;
    let high = evaluate(high, env, context)?;
    let related = |operator, bound: Option<Cow<'e, Value>>| match bound {
        Some(bound) => Ok(comparison(operator, &value, &bound, context)?.flatten()),
        None => Ok::<_, Error>(None),
    };
    let above = related(BinaryOperator::GreaterOrEqual, low)?;
    let below = related(BinaryOperator::LessOrEqual, high)?;
    truth(match (above, below) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    })
}

fn within<'e>(
    value: &'e Scalar,
    list: &'e [Scalar],
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    let Some(value) = evaluate(value, env, context)? else { return Ok(None) };
    for item in list {
        context.step()?;
        if let Some(item) = evaluate(item, env, context)?
            && equal(&value, &item, context)?
        {
            return truth(Some(true));
        }
    }
    truth(Some(false))
}

fn is_in(value: &Value, set: &HashSet<Vec<u8>>, context: &Context<'_>) -> Result<bool, Error> {
    step_over(value, context)?;
    let mut key = context.scratch();
    identity(Some(value), &mut key);
    Ok(set.contains(&*key))
}

fn matches<'e>(like: &'e Like, env: Env<'e>, context: &Context<'_>) -> Evaluated<'e> {
    let value = evaluate(&like.value, env, context)?;
    let Some(Value::String(text)) = value.as_deref() else { return Ok(None) };
    match &like.pattern {
        LikePattern::Constant(pattern) => truth(Some(pattern.matches(text, context)?)),
        LikePattern::Computed(pattern) => match evaluate(pattern, env, context)?.as_deref() {
            Some(Value::String(pattern)) => {
                context.step_bytes(pattern.len())?;
                truth(Some(Pattern::parse(pattern, like.escape).matches(text, context)?))
            }
            _ => Ok(None),
        },
    }
}

fn call<'e>(
    function: &Function,
    arguments: &'e [Scalar],
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    match function.body {
        Body::Iif => {
            let chosen = if is_true(&arguments[0], env, context)? { 1 } else { 2 };
            return evaluate(&arguments[chosen], env, context);
        }
        Body::Choose => {
            let at = evaluate(&arguments[0], env, context)?.and_then(|at| at.as_i64());
            let chosen = at.and_then(|at| usize::try_from(at).ok()).filter(|at| *at > 0);
            return match chosen.and_then(|at| arguments.get(at)) {
                Some(chosen) => evaluate(chosen, env, context),
                None => Ok(None),
            };
        }
        _ => {}
    }
    let answer = if arguments.len() <= FEW {
        let mut values = [const { None }; FEW];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = evaluate(argument, env, context)?;
        }
        let values: [Option<&Value>; FEW] = std::array::from_fn(|at| values[at].as_deref());
        apply(function, &values[..arguments.len()], context)?
    } else {
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(evaluate(argument, env, context)?);
        }
        let values: Vec<Option<&Value>> = values.iter().map(Option::as_deref).collect();
        apply(function, &values, context)?
    };
    if let Some(answer) = &answer {
        context.charge(size_bytes(answer))?;
    }
    Ok(answer.map(Cow::Owned))
}

fn apply(
    function: &Function,
    values: &[Option<&Value>],
    context: &Context<'_>,
) -> Result<Option<Value>, Error> {
    for value in values.iter().flatten() {
        step_over(value, context)?;
    }
    match function.body {
        Body::Loose(body) => return Ok(body(values)),
        Body::Searching(body) => return body(context, values),
        _ => {}
    }
    if values.iter().any(Option::is_none) {
        return Ok(None);
    }
    // All are defined; where there are fewer than a few, nothing reads the rest.
    let few: [&Value; FEW] =
        std::array::from_fn(|at| values.get(at).copied().flatten().unwrap_or(&Value::Null));
    let many: Vec<&Value>;
    let values: &[&Value] = match values.len() {
        count @ ..=FEW => &few[..count],
        _ => {
            many = values.iter().copied().flatten().collect();
            &many
        }
    };
    match function.body {
        Body::Number(body) => Ok(values[0].as_f64().map(|number| computed(body(number)))),
        Body::Strict(body) => Ok(body(values)),
        Body::Contextual(body) => body(context, values),
        Body::Clocked(body) => Ok(body(context, values)),
        Body::Loose(_) | Body::Searching(_) | Body::Regex(_) | Body::Iif | Body::Choose => {
            unreachable!("these bodies were handled before")
        }
    }
}

/// Counts what has to be gone through in a value, by a function above all: a join may call it a million times.
fn step_over(value: &Value, context: &Context<'_>) -> Result<(), Error> {
    match value {
        Value::String(text) => context.step_bytes(text.len()),
        Value::Array(items) => context.step_bytes(size_of_val(&items[..])),
        Value::Object(object) => context.step_bytes(object.len() * size_of::<(String, Value)>()),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn regex_call<'e>(call: &'e RegexCall, env: Env<'e>, context: &Context<'_>) -> Evaluated<'e> {
    let mut values = Vec::with_capacity(call.arguments.len());
    for argument in &call.arguments {
        match evaluate(argument, env, context)? {
            Some(value) => values.push(value),
            None => return Ok(None),
        }
    }
    let values: Vec<&Value> = values.iter().map(|value| &**value).collect();
    let answer = match &call.pattern {
        RegexPattern::Constant(regex) => call.function.call(regex, &values, context)?,
        RegexPattern::Computed => {
            let modifiers = match values.get(call.function.modifiers_at()) {
                Some(modifiers) => modifiers.as_str(),
                None => Some(""),
            };
            let (Some(pattern), Some(modifiers)) = (values[1].as_str(), modifiers) else {
                return Ok(None);
            };
            match compile(pattern, modifiers) {
                Some(regex) => call.function.call(&regex, &values, context)?,
                None => None,
            }
        }
    };
    Ok(answer.map(Cow::Owned))
}

fn user_function<'e>(
    name: &str,
    arguments: &'e [Scalar],
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    let functions = context.functions.expect("the binder refuses functions that do not exist");
    let mut values = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let value = evaluate(argument, env, context)?;
        values.push(value.map(|value| context.own(value)).transpose()?);
    }
    let answer = functions.call(name, &values)?;
    if let Some(answer) = &answer {
        context.charge(size_bytes(answer))?;
    }
    Ok(answer.map(Cow::Owned))
}

fn bind<'e>(
    value: &'e Scalar,
    body: &'e Scalar,
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    let value = evaluate(value, env, context)?;
    let frame = Frame { parent: env, content: Content::Value(value.as_deref()) };
    match evaluate(body, Some(&frame), context)? {
        Some(value) => Ok(Some(Cow::Owned(context.own(value)?))),
        None => Ok(None),
    }
}

fn subquery<'e>(
    kind: SubqueryKind,
    plan: &'e Plan,
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    match kind {
        SubqueryKind::Exists => truth(Some(exists(plan, env, context)?)),
        // The binder negated the filter: what is left are the counterexamples.
        SubqueryKind::All => truth(Some(!exists(plan, env, context)?)),
        SubqueryKind::Array => {
            let mut rows = Vec::new();
            run_subquery(plan, env, context, &mut |row| {
                context.charge(size_of::<Value>())?;
                rows.push(context.own(row)?);
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(Some(Cow::Owned(Value::Array(rows))))
        }
        SubqueryKind::Scalar | SubqueryKind::First | SubqueryKind::Last => {
            single(kind, plan, env, context)
        }
    }
}

fn exists<'e>(plan: &'e Plan, env: Env<'e>, context: &Context<'_>) -> Result<bool, Error> {
    let mut found = false;
    run_subquery(plan, env, context, &mut |_| {
        found = true;
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

fn single<'e>(
    kind: SubqueryKind,
    plan: &'e Plan,
    env: Env<'e>,
    context: &Context<'_>,
) -> Evaluated<'e> {
    let mut result = None;
    run_subquery(plan, env, context, &mut |row| {
        if kind == SubqueryKind::Scalar && result.is_some() {
            return Err(Error::refused(
                "The cardinality of a scalar subquery result set cannot be greater than one.",
            ));
        }
        result = Some(context.own(row)?);
        Ok(match kind {
            SubqueryKind::First => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })
    })?;
    Ok(result.map(Cow::Owned))
}
