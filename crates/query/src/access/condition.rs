//! What a filter says about the documents that pass it.
//!
//! The rule is one: a claim must be necessary for the expression to be *exactly* true (or exactly
//! false, below a `NOT`). Undefined is neither, so a comparison with a missing property or of two
//! types claims nothing false: it just does not hold. What is not understood claims nothing.
//!
//! A row is made of one value per source. Where the value of a source is a place in the document,
//! its frame holds that place, and what is said about the row is said about the document.

use crate::Geospatial;
use crate::access::claim::{Claim, Known, Place, Step};
use crate::access::span::kind_of;
use crate::access::{Condition, ScalarKind, Span};
use crate::function::spatial::Shape;
use crate::function::{Body, Function};
use crate::like::Rest;
use crate::plan::{LikePattern, Origin, PathStep, Plan, Scalar, Source};
use sql::{BinaryOperator, SubqueryKind, UnaryOperator};
use std::ops::Bound;
use value::{Object, Value};

/// What must hold of a document that contributes to the results of a plan, and whether that is
/// also all that its filter asks.
pub(super) fn condition(plan: &Plan, geospatial: Geospatial) -> (Condition, bool) {
    let mut reader = Reader { frames: Vec::new(), rows: 0, steps_left: STEPS_MAX, geospatial };
    let known = reader.rows_of(plan).0;
    let is_whole_document = matches!(
        &plan.sources[..],
        [Source { origin: Origin::Container(steps), iterates: false }] if steps.is_empty()
    );
    let is_exact = known.is_exact && is_whole_document;
    (known.claim.finish(), is_exact)
}

/// How many expressions are looked at. Names for expressions can be nested so that reading them
/// all would take forever; what is not read is not known.
const STEPS_MAX: usize = 100_000;

/// What is known about the value of a frame.
#[derive(Default)]
struct Frame<'p> {
    /// Where it lies.
    place: Option<Place>,
    /// The expression that it is the value of, and the number of frames which that one sees.
    body: Option<(&'p Scalar, usize)>,
}

struct Reader<'p> {
    /// The innermost is the last.
    frames: Vec<Frame<'p>>,
    /// How many rows were numbered.
    rows: usize,
    steps_left: usize,
    geospatial: Geospatial,
}

impl<'p> Reader<'p> {
    // ---- rows ----

    /// What must hold so that there is a row, and where what it is projected to lies.
    fn rows_of(&mut self, plan: &'p Plan) -> (Known, Option<Place>) {
        let base = self.frames.len();
        let mut terms = Vec::new();
        for source in &plan.sources {
            terms.push(self.source(source));
        }
        if let Some(filter) = &plan.filter {
            terms.push(self.outcome(filter, true));
        }
        let known = Known::all(terms, self.is_in_rows());
        let place = match plan.grouping {
            Some(_) => None,
            None => self.place(&plan.projection),
        };
        self.frames.truncate(base);
        (known, place)
    }

    /// Pushes the frame of a source.
    fn source(&mut self, source: &'p Source) -> Known {
        let mut body = None;
        let (known, mut place) = match &source.origin {
            Origin::Container(steps) => (Known::always(), Some(below_document(steps))),
            Origin::Scalar(scalar) => (Known::unknown(), self.place(scalar)),
            Origin::Subquery(plan) => {
                if plan.sources.is_empty() && plan.grouping.is_none() {
                    body = Some((&plan.projection, self.frames.len()));
                }
                let (known, place) = self.rows_of(plan);
                (if always_has_row(plan) { Known::unknown() } else { known }, place)
            }
        };
        if source.iterates {
            place = place.and_then(|place| place.below(self.next_row()));
            body = None;
        }
        self.frames.push(Frame { place, body });
        known
    }

    fn next_row(&mut self) -> Step {
        self.rows += 1;
        Step::Row(self.rows)
    }

    fn is_in_rows(&self) -> bool {
        self.frames.iter().filter_map(|frame| frame.place.as_ref()).any(Place::is_in_any_row)
    }

    /// Where the value of an expression lies, when it is a path.
    fn place(&self, scalar: &Scalar) -> Option<Place> {
        match scalar {
            Scalar::Slot(hops) => {
                let at = self.frames.len().checked_sub(hops + 1)?;
                self.frames[at].place.clone()
            }
            Scalar::Member(object, name) => self.place(object)?.property(name),
            Scalar::Index(array, offset) => {
                let offset = u64::try_from(offset.as_constant()?.as_i64()?).ok()?;
                self.place(array)?.below(Step::Offset(offset))
            }
            Scalar::Computed(_, property) => Some(Place::Computed(property.name.clone())),
            _ => None,
        }
    }

    // ---- truth ----

    /// What must hold so that an expression is exactly true, or exactly false.
    fn outcome(&mut self, scalar: &'p Scalar, truth: bool) -> Known {
        if self.steps_left == 0 {
            return Known::unknown();
        }
        self.steps_left -= 1;
        match scalar {
            Scalar::Undefined => Known::never(),
            Scalar::Constant(value) if **value == Value::Bool(truth) => Known::always(),
            Scalar::Constant(_) => Known::never(),
            Scalar::Slot(_) | Scalar::Member(..) | Scalar::Index(..) | Scalar::Computed(..) => {
                match (self.place(scalar), scalar) {
                    (Some(place), _) => {
                        Known::holds(place, vec![Span::Exactly(Value::Bool(truth))])
                    }
                    (None, Scalar::Slot(hops)) => self.named(*hops, truth),
                    (None, _) => Known::unknown(),
                }
            }
            Scalar::Unary(UnaryOperator::Not, operand) => self.outcome(operand, !truth),
            Scalar::And(terms) => self.logic(terms, truth, true),
            Scalar::Or(terms) => self.logic(terms, truth, false),
            Scalar::Binary(operator, left, right) => self.compare(*operator, left, right, truth),
            Scalar::Between(parts) => {
                let [value, low, high] = &**parts;
                let above = self.compare(BinaryOperator::GreaterOrEqual, value, low, truth);
                let below = self.compare(BinaryOperator::LessOrEqual, value, high, truth);
                match truth {
                    true => Known::all([above, below], self.is_in_rows()),
                    false => Known::any([above, below]),
                }
            }
            Scalar::Coalesce(first, second) => {
                Known::any([self.outcome(first, truth), self.outcome(second, truth)])
                    .only_necessary()
            }
            Scalar::Conditional(parts) => self.choice(&**parts, truth),
            Scalar::Call(function, arguments) if matches!(function.body, Body::Iif) => {
                self.choice(arguments, truth)
            }
            Scalar::Let(value, body) => {
                let (place, body_frames) = (self.place(value), self.frames.len());
                self.frames.push(Frame { place, body: Some((value, body_frames)) });
                let known = self.outcome(body, truth);
                self.frames.pop();
                known
            }
            Scalar::Call(function, arguments) if !truth => match (function.name, &arguments[..]) {
                ("IS_DEFINED", [argument]) => self.is_defined(argument, false),
                _ => Known::unknown(),
            },
            _ if truth => self.success(scalar),
            _ => Known::unknown(),
        }
    }

    /// An expression that was given a name: it is read where it was written.
    fn named(&mut self, hops: usize, truth: bool) -> Known {
        let at = self.frames.len().checked_sub(hops + 1);
        let Some((body, frames)) = at.and_then(|at| self.frames[at].body) else {
            return Known::unknown();
        };
        let later = self.frames.split_off(frames);
        let known = self.outcome(body, truth);
        self.frames.extend(later);
        known
    }

    /// The same for what is only understood when it is true.
    fn success(&mut self, scalar: &'p Scalar) -> Known {
        match scalar {
            Scalar::In(value, list) => {
                let equal = |item| self.compare(BinaryOperator::Equal, value, item, true);
                Known::any(list.iter().map(equal).collect::<Vec<Known>>())
            }
            Scalar::InSet(value, set) => {
                let values = set.values.iter().map(|value| &**value);
                self.one_of(value, values)
            }
            Scalar::Like(like) => match (&like.pattern, self.place(&like.value)) {
                (LikePattern::Constant(pattern), Some(place)) => match pattern.prefix() {
                    (text, Rest::Nothing) => {
                        Known::holds(place, vec![Span::Exactly(Value::String(text))])
                    }
                    (text, Rest::Anything) => Known::holds(place, vec![prefix(text)]),
                    (text, Rest::Something) if text.is_empty() => Known::unknown(),
                    (text, Rest::Something) => {
                        Known::holds(place, vec![prefix(text)]).only_necessary()
                    }
                },
                _ => Known::unknown(),
            },
            Scalar::Call(function, arguments) => self.call(function, arguments),
            Scalar::Subquery(SubqueryKind::Exists, plan) => self.exists(plan),
            _ => Known::unknown(),
        }
    }

    /// `AND` is true when all terms are and false when one is; `OR` the other way round.
    fn logic(&mut self, terms: &'p [Scalar], truth: bool, is_and: bool) -> Known {
        let known: Vec<Known> = terms.iter().map(|term| self.outcome(term, truth)).collect();
        if truth == is_and { Known::all(known, self.is_in_rows()) } else { Known::any(known) }
    }

    /// `condition ? yes : no`
    fn choice(&mut self, parts: &'p [Scalar], truth: bool) -> Known {
        let [condition, yes, no] = parts else { return Known::unknown() };
        let chosen = [self.outcome(condition, true), self.outcome(yes, truth)];
        let chosen = Known::all(chosen, self.is_in_rows());
        Known::any([chosen, self.outcome(no, truth)]).only_necessary()
    }

    /// A subquery that has a row. It is told exactly when there is one array, whose elements the
    /// filter speaks of, and every row counts.
    fn exists(&mut self, plan: &'p Plan) -> Known {
        if always_has_row(plan) {
            return Known::unknown();
        }
        let is_row_defined = matches!(
            plan.projection,
            Scalar::Constant(_) | Scalar::Slot(0) | Scalar::Object(_) | Scalar::Array(_)
        );
        let (Some(filter), [source], None, true) =
            (&plan.filter, &plan.sources[..], &plan.grouping, is_row_defined)
        else {
            return self.rows_of(plan).0.only_necessary();
        };
        if !source.iterates || !matches!(source.origin, Origin::Scalar(_)) {
            return self.rows_of(plan).0.only_necessary();
        }
        self.source(source);
        let row = self.rows;
        let known = self.outcome(filter, true);
        self.frames.pop();
        if known.claim.is_about_row(row) { known } else { known.only_necessary() }
    }

    // ---- comparisons ----

    fn compare(
        &mut self,
        operator: BinaryOperator,
        left: &'p Scalar,
        right: &'p Scalar,
        truth: bool,
    ) -> Known {
        let Some(operator) = Comparison::of(operator) else { return Known::unknown() };
        if matches!(left, Scalar::Undefined) || matches!(right, Scalar::Undefined) {
            return Known::never();
        }
        match (left.as_constant(), right.as_constant()) {
            (None, Some(constant)) => self.compare_constant(left, operator, constant, truth),
            (Some(constant), None) => {
                self.compare_constant(right, operator.mirrored(), constant, truth)
            }
            _ => Known::unknown(),
        }
    }

    fn compare_constant(
        &mut self,
        scalar: &'p Scalar,
        operator: Comparison,
        constant: &Value,
        truth: bool,
    ) -> Known {
        let operator = match truth {
            true => operator,
            false => operator.negated(),
        };
        if let Some(place) = self.place(scalar) {
            // Two numbers may both not be less and not be greater, when one is not a number. Only
            // constants and computed values can be that.
            let may_be_unordered = matches!(place, Place::Computed(_)) || is_nan(constant);
            if !truth && operator.is_order() && may_be_unordered {
                return Known::unknown();
            }
            return match operator.spans(constant) {
                Some(spans) => Known::holds(place, spans),
                None => Known::unknown(),
            };
        }
        match (scalar, constant) {
            (Scalar::Call(function, arguments), _) if truth => {
                self.compare_call(function, arguments, operator, constant)
            }
            (_, Value::Bool(wanted)) if operator == Comparison::Equal => {
                self.outcome(scalar, *wanted)
            }
            _ => Known::unknown(),
        }
    }

    fn compare_call(
        &mut self,
        function: &Function,
        arguments: &[Scalar],
        operator: Comparison,
        constant: &Value,
    ) -> Known {
        match (function.name, arguments, constant) {
            ("LEFT", [text, count], Value::String(wanted)) if operator == Comparison::Equal => {
                self.begins(text, count, wanted)
            }
            ("SUBSTRING", [text, start, count], Value::String(wanted))
                if operator == Comparison::Equal
                    && start.as_constant().and_then(Value::as_i64) == Some(0) =>
            {
                self.begins(text, count, wanted)
            }
            ("ST_DISTANCE", [left, right], Value::Number(distance)) => match operator {
                Comparison::Less | Comparison::LessOrEqual | Comparison::Equal => {
                    self.near(left, right, distance.as_f64())
                }
                _ => Known::unknown(),
            },
            (_, _, Value::Bool(true)) if operator == Comparison::Equal => {
                self.call(function, arguments)
            }
            ("IS_DEFINED", [argument], Value::Bool(false)) if operator == Comparison::Equal => {
                self.is_defined(argument, false)
            }
            _ => Known::unknown(),
        }
    }

    /// The first characters of a text are those wanted. A text that has fewer than asked for is
    /// what was wanted, as a whole.
    fn begins(&mut self, text: &Scalar, count: &Scalar, wanted: &str) -> Known {
        let Some(place) = self.place(text) else { return Known::unknown() };
        let Some(count) = count.as_constant().and_then(Value::as_i64) else {
            return Known::unknown();
        };
        let units = i64::try_from(wanted.encode_utf16().count()).unwrap_or(i64::MAX);
        match units.cmp(&count.max(0)) {
            std::cmp::Ordering::Less => {
                Known::holds(place, vec![Span::Exactly(Value::from(wanted))])
            }
            std::cmp::Ordering::Equal => Known::holds(place, vec![prefix(wanted.to_owned())]),
            std::cmp::Ordering::Greater => Known::never(),
        }
    }

    /// A path equals one of some constants.
    fn one_of<'v>(&mut self, scalar: &Scalar, values: impl Iterator<Item = &'v Value>) -> Known {
        let Some(place) = self.place(scalar) else { return Known::unknown() };
        let mut spans = Vec::new();
        for value in values {
            match Comparison::Equal.spans(value) {
                Some(span) => spans.extend(span),
                None => return Known::unknown(),
            }
        }
        Known::holds(place, spans)
    }

    // ---- functions ----

    fn call(&mut self, function: &Function, arguments: &[Scalar]) -> Known {
        match (function.name, arguments) {
            ("STARTSWITH", [text, start, rest @ ..]) if is_case_sensitive(rest) => {
                match (self.place(text), start.as_constant()) {
                    (Some(place), Some(Value::String(start))) => {
                        Known::holds(place, vec![prefix(start.clone())])
                    }
                    _ => Known::unknown(),
                }
            }
            ("STRINGEQUALS", [left, right, rest @ ..]) if is_case_sensitive(rest) => {
                match (left.as_constant(), right.as_constant()) {
                    (None, Some(text @ Value::String(_))) => self.one_of(left, [text].into_iter()),
                    (Some(text @ Value::String(_)), None) => self.one_of(right, [text].into_iter()),
                    _ => Known::unknown(),
                }
            }
            ("IS_DEFINED", [argument]) => self.is_defined(argument, true),
            ("IS_NULL", [argument]) => self.is_of(argument, &[ScalarKind::Null]),
            ("IS_BOOL", [argument]) => self.is_of(argument, &[ScalarKind::Boolean]),
            ("IS_NUMBER", [argument]) => self.is_of(argument, &[ScalarKind::Number]),
            ("IS_STRING", [argument]) => self.is_of(argument, &[ScalarKind::String]),
            ("IS_PRIMITIVE", [argument]) => {
                use ScalarKind::{Boolean, Null, Number, String};
                self.is_of(argument, &[Null, Boolean, Number, String])
            }
            ("ARRAY_CONTAINS", [array, wanted, rest @ ..]) => {
                let known = self.contains(array, wanted);
                let is_flag = |flag: &Scalar| matches!(flag.as_constant(), Some(Value::Bool(_)));
                if rest.iter().all(is_flag) { known } else { known.only_necessary() }
            }
            ("ARRAY_CONTAINS_ANY", [array, wanted @ ..]) => {
                let contains = |wanted| self.contains(array, wanted);
                Known::any(wanted.iter().map(contains).collect::<Vec<Known>>())
            }
            ("ARRAY_CONTAINS_ALL", [array, wanted @ ..]) => {
                let contains = |wanted| self.contains(array, wanted);
                let known: Vec<Known> = wanted.iter().map(contains).collect();
                Known::all(known, self.is_in_rows())
            }
            ("ST_WITHIN" | "ST_INTERSECTS", [left, right]) => self.near(left, right, 0.0),
            _ => Known::unknown(),
        }
    }

    fn is_defined(&mut self, argument: &Scalar, truth: bool) -> Known {
        match self.place(argument).and_then(Place::names) {
            Some(names) if names.is_empty() && truth => Known::always(),
            Some(names) if names.is_empty() => Known::never(),
            Some(names) if truth => Known::exact(Claim::Defined(names)),
            Some(names) => Known::exact(Claim::Undefined(names)),
            None => Known::unknown(),
        }
    }

    fn is_of(&mut self, argument: &Scalar, kinds: &[ScalarKind]) -> Known {
        let span = |kind: &ScalarKind| match kind {
            ScalarKind::Null => Span::Exactly(Value::Null),
            kind => Span::Kind(*kind),
        };
        match self.place(argument) {
            Some(place) => Known::holds(place, kinds.iter().map(span).collect()),
            None => Known::unknown(),
        }
    }

    /// An array has an element that equals a value.
    fn contains(&mut self, array: &Scalar, wanted: &Scalar) -> Known {
        if let Some(Value::Array(items)) = array.as_constant() {
            return self.one_of(wanted, items.iter());
        }
        if matches!(wanted, Scalar::Undefined) {
            return Known::never();
        }
        let Some(wanted) = wanted.as_constant() else { return Known::unknown() };
        let row = self.next_row();
        let Some(element) = self.place(array).and_then(|place| place.below(row)) else {
            return Known::unknown();
        };
        equals(element, wanted)
    }

    /// Whether a value is a shape, and not one of the plane, where there are no indexes to ask.
    fn is_on_globe(&self, value: &Value) -> bool {
        self.geospatial == Geospatial::Geography && Shape::read(value, self.geospatial).is_some()
    }

    /// One of two shapes is constant, and the other is no farther away.
    fn near(&mut self, left: &Scalar, right: &Scalar, distance: f64) -> Known {
        let (place, shape) = match (left.as_constant(), right.as_constant()) {
            (None, Some(shape)) => (self.place(left), shape),
            (Some(shape), None) => (self.place(right), shape),
            _ => return Known::unknown(),
        };
        if distance.is_nan() || distance < 0.0 {
            return Known::never();
        }
        match place {
            Some(Place::Path(steps)) if distance.is_finite() && self.is_on_globe(shape) => {
                Known::necessary(Claim::Near(steps, shape.clone(), distance))
            }
            _ => Known::unknown(),
        }
    }
}

/// Whether there is a row whatever the document: aggregates without keys always have one. Of the
/// container's documents it still matters which ones are in it.
fn always_has_row(plan: &Plan) -> bool {
    let is_one_group = plan.grouping.as_ref().is_some_and(|grouping| grouping.keys.is_empty());
    is_one_group && !plan.reads_container()
}

fn below_document(steps: &[PathStep]) -> Place {
    let step = |step: &PathStep| match step {
        PathStep::Name(name) => Step::Property(name.clone()),
        PathStep::Offset(offset) => Step::Offset(*offset),
    };
    Place::Path(steps.iter().map(step).collect())
}

/// What lies at a place equals a constant; of an object, its scalars do.
fn equals(place: Place, wanted: &Value) -> Known {
    match wanted {
        Value::Array(_) => Known::unknown(),
        Value::Object(members) => equals_members(place, members),
        scalar => Known::holds(place, Comparison::Equal.spans(scalar).unwrap_or_default()),
    }
}

fn equals_members(place: Place, members: &Object) -> Known {
    let mut terms = Vec::new();
    for (name, wanted) in members.iter() {
        if let Some(place) = place.clone().property(name) {
            terms.push(equals(place, wanted));
        }
    }
    Known::all(terms, true).only_necessary()
}

fn is_nan(value: &Value) -> bool {
    value.as_f64().is_some_and(f64::is_nan)
}

/// Whether the last argument of a string function asks for nothing special.
fn is_case_sensitive(rest: &[Scalar]) -> bool {
    rest.iter().all(|ignore_case| ignore_case.as_constant() == Some(&Value::Bool(false)))
}

fn prefix(text: String) -> Span {
    if text.is_empty() { Span::Kind(ScalarKind::String) } else { Span::Prefix(text) }
}

/// The comparison operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn of(operator: BinaryOperator) -> Option<Comparison> {
        match operator {
            BinaryOperator::Equal => Some(Comparison::Equal),
            BinaryOperator::NotEqual => Some(Comparison::NotEqual),
            BinaryOperator::Less => Some(Comparison::Less),
            BinaryOperator::LessOrEqual => Some(Comparison::LessOrEqual),
            BinaryOperator::Greater => Some(Comparison::Greater),
            BinaryOperator::GreaterOrEqual => Some(Comparison::GreaterOrEqual),
            _ => None,
        }
    }

    /// The operator with its sides changed over.
    fn mirrored(self) -> Comparison {
        match self {
            Comparison::Equal => Comparison::Equal,
            Comparison::NotEqual => Comparison::NotEqual,
            Comparison::Less => Comparison::Greater,
            Comparison::LessOrEqual => Comparison::GreaterOrEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        }
    }

    /// The operator that is true where this one is false, among values that compare at all.
    fn negated(self) -> Comparison {
        match self {
            Comparison::Equal => Comparison::NotEqual,
            Comparison::NotEqual => Comparison::Equal,
            Comparison::Less => Comparison::GreaterOrEqual,
            Comparison::LessOrEqual => Comparison::Greater,
            Comparison::Greater => Comparison::LessOrEqual,
            Comparison::GreaterOrEqual => Comparison::Less,
        }
    }

    fn is_order(self) -> bool {
        !matches!(self, Comparison::Equal | Comparison::NotEqual)
    }

    /// The scalars for which the comparison with a constant is true; `None` when there are others
    /// than scalars, or when they do not lie together.
    fn spans(self, constant: &Value) -> Option<Vec<Span>> {
        if self == Comparison::NotEqual {
            return None;
        }
        if is_nan(constant) {
            return Some(Vec::new());
        }
        let Some(kind) = kind_of(constant) else {
            return if self == Comparison::Equal { None } else { Some(Vec::new()) };
        };
        let exactly = |value: Value| Span::Exactly(value);
        if self == Comparison::Equal {
            return Some(vec![exactly(constant.clone())]);
        }
        if matches!(kind, ScalarKind::Null | ScalarKind::Boolean) {
            let few = [Value::Null, Value::Bool(false), Value::Bool(true)];
            let fits =
                |value: &Value| kind_of(value) == Some(kind) && self.accepts(value, constant);
            return Some(few.into_iter().filter(fits).map(exactly).collect());
        }
        let (low, high) = match self {
            Comparison::Less => (Bound::Unbounded, Bound::Excluded(constant.clone())),
            Comparison::LessOrEqual => (Bound::Unbounded, Bound::Included(constant.clone())),
            Comparison::Greater => (Bound::Excluded(constant.clone()), Bound::Unbounded),
            _ => (Bound::Included(constant.clone()), Bound::Unbounded),
        };
        Some(vec![Span::Between { low, high }])
    }

    fn accepts(self, value: &Value, constant: &Value) -> bool {
        let order = value::compare(Some(value), Some(constant));
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }
}
