//! Which parts of a document a query looks at.
//!
//! A path that is read marks what lies at its end, whole; a path that is only passed through marks
//! nothing on its way. What is not marked can be left out of the document, and no expression can
//! tell: a property below something missing is as undefined as one below something else.

use crate::access::Touched;
use crate::aggregate::AggregateKind;
use crate::plan::{Aggregate, Origin, PathStep, Plan, Scalar, Source};
use std::collections::BTreeMap;

/// What a plan touches, all of its clauses together.
pub(super) fn touched(plan: &Plan) -> Touched {
    let mut tracer = Tracer::new();
    let base = tracer.sources(plan);
    tracer.clauses(plan, base);
    tracer.touched
}

/// What the filter of a plan touches, with the sources that it stands on.
pub(super) fn filter_touched(plan: &Plan) -> Touched {
    let mut tracer = Tracer::new();
    tracer.sources(plan);
    plan.filter.iter().for_each(|filter| tracer.read(filter));
    tracer.touched
}

struct Tracer {
    /// The names on the way to the value of each frame, the innermost last; nothing for values
    /// that do not lie in the document, or whose place is marked already.
    frames: Vec<Option<Vec<String>>>,
    touched: Touched,
}

impl Tracer {
    fn new() -> Tracer {
        Tracer { frames: Vec::new(), touched: Touched::Members(BTreeMap::new()) }
    }

    /// Pushes the frames of all sources; gives the number of frames before them.
    fn sources(&mut self, plan: &Plan) -> usize {
        let base = self.frames.len();
        for source in &plan.sources {
            let frame = self.source(source);
            self.frames.push(frame);
        }
        base
    }

    fn source(&mut self, source: &Source) -> Option<Vec<String>> {
        let place = match &source.origin {
            Origin::Container(steps) => Some(leading_names(steps)),
            Origin::Scalar(scalar) => {
                let place = self.place(scalar);
                if place.is_none() {
                    self.read(scalar);
                }
                place
            }
            Origin::Subquery(plan) => self.subquery(plan),
        }?;
        // Whether there is a row depends on what is there, except for the document itself.
        if source.iterates || !place.is_empty() {
            self.mark(&place);
            return None;
        }
        Some(place)
    }

    /// A subquery as a source. Where its rows are documents, what follows says what it touches.
    fn subquery(&mut self, plan: &Plan) -> Option<Vec<String>> {
        let base = self.sources(plan);
        let place = self.place(&plan.projection);
        let is_document = place.as_ref().is_some_and(Vec::is_empty);
        if is_document && plan.grouping.is_none() && !plan.distinct {
            plan.filter.iter().for_each(|filter| self.read(filter));
            self.frames.truncate(base);
            return place;
        }
        self.clauses(plan, base);
        None
    }

    /// Reads what stands behind `FROM`, and forgets the frames.
    fn clauses(&mut self, plan: &Plan, base: usize) {
        plan.filter.iter().for_each(|filter| self.read(filter));
        plan.order_by.iter().for_each(|key| self.read(&key.scalar));
        if let Some(grouping) = &plan.grouping {
            grouping.keys.iter().for_each(|key| self.read(key));
            grouping.aggregates.iter().for_each(|aggregate| self.aggregate(aggregate));
            self.frames.truncate(base);
            self.frames.push(None);
        }
        self.read(&plan.projection);
        self.frames.truncate(base);
    }

    /// A count of documents needs no document.
    fn aggregate(&mut self, aggregate: &Aggregate) {
        let is_document = self.place(&aggregate.argument).is_some_and(|place| place.is_empty());
        if aggregate.kind != AggregateKind::Count || !is_document {
            self.read(&aggregate.argument);
        }
    }

    fn read(&mut self, scalar: &Scalar) {
        if let Some(place) = self.place(scalar) {
            return self.mark(&place);
        }
        match scalar {
            Scalar::Call(function, arguments) if function.name == "DOCUMENTID" => {
                match self.place(&arguments[0]) {
                    Some(mut place) => {
                        place.push("_rid".to_owned());
                        self.mark(&place);
                    }
                    None => self.read(&arguments[0]),
                }
            }
            Scalar::Subquery(_, plan) => {
                let base = self.sources(plan);
                self.clauses(plan, base);
            }
            Scalar::Let(value, body) => self.bind(value, body),
            Scalar::Computed(document, property) => self.bind(document, &property.body),
            Scalar::Slot(_) => {}
            _ => scalar.children().into_iter().for_each(|child| self.read(child)),
        }
    }

    fn bind(&mut self, value: &Scalar, body: &Scalar) {
        let place = self.place(value);
        if place.is_none() {
            self.read(value);
        }
        self.frames.push(place);
        self.read(body);
        self.frames.pop();
    }

    /// The names on the way to the value of an expression, when it is a path of names.
    fn place(&self, scalar: &Scalar) -> Option<Vec<String>> {
        match scalar {
            Scalar::Slot(hops) => {
                let at = self.frames.len().checked_sub(hops + 1)?;
                self.frames[at].clone()
            }
            Scalar::Member(object, name) => {
                let mut place = self.place(object)?;
                place.push(name.clone());
                Some(place)
            }
            _ => None,
        }
    }

    fn mark(&mut self, place: &[String]) {
        mark(&mut self.touched, place);
    }
}

fn mark(touched: &mut Touched, place: &[String]) {
    let Touched::Members(members) = touched else { return };
    match place.split_first() {
        None => *touched = Touched::Whole,
        Some((name, rest)) => {
            let member = members.entry(name.clone());
            mark(member.or_insert_with(|| Touched::Members(BTreeMap::new())), rest);
        }
    }
}

fn leading_names(steps: &[PathStep]) -> Vec<String> {
    let name = |step: &PathStep| match step {
        PathStep::Name(name) => Some(name.clone()),
        PathStep::Offset(_) => None,
    };
    steps.iter().map_while(name).collect()
}
