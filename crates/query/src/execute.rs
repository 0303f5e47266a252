//! Runs a plan: rows from the sources, then the clauses in their logical order.
//!
//! Rows are pushed: a source binds a value to a frame and calls what follows, down to the
//! projection, which hands each result to the caller. So a subquery in `FROM` over the whole
//! container, with its own grouping, needs nothing special: its results are pushed into the outer
//! query as they come, or when its input ends. The caller's answer can end everything early.

use crate::Error;
use crate::aggregate::Accumulator;
use crate::compare::{identity, size_bytes};
use crate::evaluate::{Content, Context, Env, Frame, evaluate, is_true};
use crate::plan::{Grouping, OrderKey, Origin, PathStep, Plan, Source};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use value::Value;

/// Whether to go on, or why the query failed.
pub(crate) type Flow = Result<ControlFlow<()>, Error>;

/// Takes the results, one by one.
pub(crate) type Emit<'a> = dyn FnMut(Cow<'_, Value>) -> Flow + 'a;

/// Takes the results of groups, one by one, with the keys of the group.
pub(crate) type EmitKeyed<'a> = dyn FnMut(&[Option<Value>], Cow<'_, Value>) -> Flow + 'a;

const MORE: Flow = Ok(ControlFlow::Continue(()));
const ENOUGH: Flow = Ok(ControlFlow::Break(()));

/// Runs a subquery of the current row to its end.
pub(crate) fn run_subquery(
    plan: &Plan,
    env: Env<'_>,
    context: &Context<'_>,
    emit: &mut Emit<'_>,
) -> Result<(), Error> {
    let mut execution = Execution::new(plan);
    if execution.pull(env, context, emit)?.is_continue() {
        execution.finish(env, context, emit)?;
    }
    execution.forget(context);
    Ok(())
}

/// A plan and what it remembers while it runs.
pub(crate) struct Execution<'p> {
    plan: &'p Plan,
    order_by: &'p [OrderKey],
    skip: u64,
    take: Option<u64>,
    /// The subquery that the first source reads the container through.
    inner: Option<Box<Execution<'p>>>,
    groups: Groups,
    seen: HashSet<Vec<u8>>,
    /// Sort keys and result of each row.
    sorted: Vec<(Vec<Option<Value>>, Value)>,
    skipped: u64,
    taken: u64,
    /// Bytes charged as kept.
    kept: usize,
}

/// The groups so far, in the order in which they were first seen.
#[derive(Default)]
struct Groups {
    positions: HashMap<Vec<u8>, usize>,
    groups: Vec<(Vec<Option<Value>>, Vec<Accumulator>)>,
}

impl<'p> Execution<'p> {
    pub(crate) fn new(plan: &'p Plan) -> Execution<'p> {
        let inner = match plan.sources.first().map(|source| &source.origin) {
            Some(Origin::Subquery(inner)) if inner.reads_container() => {
                Some(Box::new(Execution::new(inner)))
            }
            _ => None,
        };
        let mut groups = Groups::default();
        if let Some(grouping) = &plan.grouping
            && grouping.keys.is_empty()
        {
            // Without keys everything is one group, and it exists even when nothing is in it.
            groups.enter(Vec::new(), Vec::new(), grouping);
        }
        Execution {
            plan,
            order_by: &plan.order_by,
            skip: plan.skip,
            take: plan.take,
            inner,
            groups,
            seen: HashSet::new(),
            sorted: Vec::new(),
            skipped: 0,
            taken: 0,
            kept: 0,
        }
    }

    /// The same without `ORDER BY`, `TOP` and `OFFSET LIMIT`, which the caller sees to.
    pub(crate) fn unpaged(plan: &'p Plan) -> Execution<'p> {
        Execution { order_by: &[], skip: 0, take: None, ..Execution::new(plan) }
    }

    /// Whether no further result can come.
    pub(crate) fn is_full(&self) -> bool {
        self.order_by.is_empty()
            && self.plan.grouping.is_none()
            && self.take.is_some_and(|take| self.taken >= take)
    }

    /// Takes one document of the container in.
    pub(crate) fn push(
        &mut self,
        document: &Value,
        context: &Context<'_>,
        emit: &mut Emit<'_>,
    ) -> Flow {
        if self.is_full() {
            return ENOUGH;
        }
        if let Some(mut inner) = self.inner.take() {
            let flow =
                inner.push(document, context, &mut |row| self.bind(0, &row, None, context, emit));
            self.inner = Some(inner);
            return flow;
        }
        let Some(Source { origin: Origin::Container(steps), .. }) = self.plan.sources.first()
        else {
            return MORE;
        };
        match descend(document, steps) {
            Some(value) => self.bind(0, value, None, context, emit),
            None => MORE,
        }
    }

    /// Runs over sources that do not come from the container.
    pub(crate) fn pull(
        &mut self,
        env: Env<'_>,
        context: &Context<'_>,
        emit: &mut Emit<'_>,
    ) -> Flow {
        if self.is_full() {
            return ENOUGH;
        }
        self.next(0, env, context, emit)
    }

    /// After the last document: what was waiting for it.
    pub(crate) fn finish(
        &mut self,
        env: Env<'_>,
        context: &Context<'_>,
        emit: &mut Emit<'_>,
    ) -> Result<(), Error> {
        if let Some(mut inner) = self.inner.take() {
            inner.finish(None, context, &mut |row| self.bind(0, &row, None, context, emit))?;
        }
        if let Some(grouping) = &self.plan.grouping {
            self.finish_groups(grouping, env, context, emit)?;
        } else if !self.order_by.is_empty() {
            self.finish_sorted(context, emit)?;
        }
        Ok(())
    }

    /// Gives back the memory of what was remembered.
    fn forget(&mut self, context: &Context<'_>) {
        context.release(self.kept);
        self.kept = 0;
    }

    fn keep(&mut self, bytes: usize, context: &Context<'_>) -> Result<(), Error> {
        self.kept += bytes;
        context.keep(bytes)
    }

    /// The rows of the source at a position, given the frames of those before it.
    fn next(
        &mut self,
        position: usize,
        env: Env<'_>,
        context: &Context<'_>,
        emit: &mut Emit<'_>,
    ) -> Flow {
        let plan = self.plan;
        let Some(source) = plan.sources.get(position) else {
            return self.row(env, context, emit);
        };
        match &source.origin {
            Origin::Container(_) => {
                unreachable!("documents of the container are pushed into the first source")
            }
            Origin::Scalar(scalar) => match evaluate(scalar, env, context)? {
                Some(value) => self.bind(position, &value, env, context, emit),
                None => MORE,
            },
            Origin::Subquery(subquery) => {
                let mut flow = ControlFlow::Continue(());
                run_subquery(subquery, env, context, &mut |row| {
                    flow = self.bind(position, &row, env, context, emit)?;
                    Ok(flow)
                })?;
                Ok(flow)
            }
        }
    }

    /// Binds the value of a source, or each of its elements, and goes on to the next source.
    fn bind(
        &mut self,
        position: usize,
        value: &Value,
        env: Env<'_>,
        context: &Context<'_>,
        emit: &mut Emit<'_>,
    ) -> Flow {
        if !self.plan.sources[position].iterates {
            let frame = Frame { parent: env, content: Content::Value(Some(value)) };
            return self.next(position + 1, Some(&frame), context, emit);
        }
        let Value::Array(items) = value else { return MORE };
        for item in items {
            context.step()?;
            let frame = Frame { parent: env, content: Content::Value(Some(item)) };
            if self.next(position + 1, Some(&frame), context, emit)?.is_break() {
                return ENOUGH;
            }
        }
        MORE
    }

    /// One row of all sources.
    fn row(&mut self, env: Env<'_>, context: &Context<'_>, emit: &mut Emit<'_>) -> Flow {
        context.step()?;
        let plan = self.plan;
        if let Some(filter) = &plan.filter
            && !is_true(filter, env, context)?
        {
            return MORE;
        }
        if let Some(grouping) = &plan.grouping {
            return self.group(grouping, env, context);
        }
        if !self.order_by.is_empty() {
            return self.sort(env, context);
        }
        match evaluate(&plan.projection, env, context)? {
            Some(value) => self.deliver(value, context, emit),
            None => MORE,
        }
    }

    /// Hands one result on, unless it was there before or lies outside the page.
    fn deliver(
        &mut self,
        value: Cow<'_, Value>,
        context: &Context<'_>,
        emit: &mut Emit<'_>,
    ) -> Flow {
        if self.plan.distinct {
            let mut key = context.scratch();
            identity(Some(&value), &mut key);
            if self.seen.contains(&*key) {
                return MORE;
            }
            self.keep(key.len(), context)?;
            self.seen.insert(key.to_vec());
        }
        if self.skipped < self.skip {
            self.skipped += 1;
            return MORE;
        }
        match self.take {
            Some(take) if self.taken >= take => return ENOUGH,
            _ => self.taken += 1,
        }
        if emit(value)?.is_break() || self.take == Some(self.taken) {
            return ENOUGH;
        }
        MORE
    }

    fn group(&mut self, grouping: &'p Grouping, env: Env<'_>, context: &Context<'_>) -> Flow {
        // Without keys there is one group, the first.
        let position = match grouping.keys.is_empty() {
            true => 0,
            false => self.position(grouping, env, context)?,
        };
        for (at, aggregate) in grouping.aggregates.iter().enumerate() {
            if let Some(value) = evaluate(&aggregate.argument, env, context)?
                && self.groups.groups[position].1[at].add(&value)
            {
                self.keep(size_bytes(&value), context)?;
            }
        }
        MORE
    }

    /// The position of the group that a row belongs to; a new group is entered.
    fn position(
        &mut self,
        grouping: &'p Grouping,
        env: Env<'_>,
        context: &Context<'_>,
    ) -> Result<usize, Error> {
        let mut identities = context.scratch();
        let mut keys = Vec::with_capacity(grouping.keys.len());
        for key in &grouping.keys {
            let key = evaluate(key, env, context)?;
            identity(key.as_deref(), &mut identities);
            keys.push(key);
        }
        if let Some(position) = self.groups.positions.get(&*identities) {
            return Ok(*position);
        }
        let keys: Vec<Option<Value>> =
            keys.into_iter().map(|key| key.map(Cow::into_owned)).collect();
        let bytes = keys.iter().flatten().map(size_bytes).sum::<usize>();
        self.keep(bytes + identities.len(), context)?;
        Ok(self.groups.enter(identities.to_vec(), keys, grouping))
    }

    fn finish_groups(
        &mut self,
        grouping: &'p Grouping,
        env: Env<'_>,
        context: &Context<'_>,
        emit: &mut Emit<'_>,
    ) -> Result<(), Error> {
        debug_assert!(self.order_by.is_empty() || grouping.keys.is_empty());
        let plan = self.plan;
        for (keys, accumulators) in std::mem::take(&mut self.groups.groups) {
            let mut flow = ControlFlow::Continue(());
            project_group(plan, &keys, accumulators, env, context, &mut |value| {
                flow = self.deliver(value, context, emit)?;
                Ok(flow)
            })?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// After the last document, for a plan with grouping: the result of each group with the keys
    /// that tell it from the others, in the order in which the groups were first seen.
    pub(crate) fn finish_keyed(
        &mut self,
        context: &Context<'_>,
        emit: &mut EmitKeyed<'_>,
    ) -> Result<(), Error> {
        if let Some(mut inner) = self.inner.take() {
            let mut none = |_: Cow<'_, Value>| MORE;
            inner.finish(None, context, &mut |row| self.bind(0, &row, None, context, &mut none))?;
        }
        for (keys, accumulators) in std::mem::take(&mut self.groups.groups) {
            project_group(self.plan, &keys, accumulators, None, context, &mut |value| {
                emit(&keys, value)
            })?;
        }
        Ok(())
    }

    /// Makes as if so many rows had been counted, by a plan whose only group counts rows.
    pub(crate) fn count_rows(&mut self, rows: u64) {
        for (_, accumulators) in &mut self.groups.groups {
            accumulators.fill_with(|| Accumulator::Count(rows));
        }
    }

    /// Remembers a row with its sort keys. Only the rows that can still be returned are kept.
    fn sort(&mut self, env: Env<'_>, context: &Context<'_>) -> Flow {
        let plan = self.plan;
        let Some(value) = evaluate(&plan.projection, env, context)? else { return MORE };
        let value = value.into_owned();
        let mut keys = Vec::with_capacity(plan.order_by.len());
        for key in self.order_by {
            keys.push(evaluate(&key.scalar, env, context)?.map(Cow::into_owned));
        }
        self.keep(row_bytes(&keys, &value), context)?;
        self.sorted.push((keys, value));
        let needed = self.take.filter(|_| !plan.distinct).map(|take| take + self.skip);
        if let Some(needed) = needed
            && self.sorted.len() as u64 >= needed.saturating_mul(2).saturating_add(1024)
        {
            self.sort_rows();
            let tail = self.sorted.split_off(usize::try_from(needed).unwrap_or(usize::MAX));
            let bytes = tail.iter().map(|(keys, value)| row_bytes(keys, value)).sum::<usize>();
            self.kept -= bytes;
            context.release(bytes);
        }
        MORE
    }

    /// The sort is stable: rows with equal keys stay in the order in which they came.
    fn sort_rows(&mut self) {
        let order_by = self.order_by;
        self.sorted.sort_by(|(left, _), (right, _)| {
            for (key, (left, right)) in order_by.iter().zip(left.iter().zip(right)) {
                let order = value::compare(left.as_ref(), right.as_ref());
                let order = if key.descending { order.reverse() } else { order };
                if order != Ordering::Equal {
                    return order;
                }
            }
            Ordering::Equal
        });
    }

    fn finish_sorted(&mut self, context: &Context<'_>, emit: &mut Emit<'_>) -> Result<(), Error> {
        self.sort_rows();
        for (_, value) in std::mem::take(&mut self.sorted) {
            if self.deliver(Cow::Owned(value), context, emit)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// The result of one group.
fn project_group(
    plan: &Plan,
    keys: &[Option<Value>],
    accumulators: Vec<Accumulator>,
    env: Env<'_>,
    context: &Context<'_>,
    emit: &mut Emit<'_>,
) -> Result<(), Error> {
    context.next_document();
    let aggregates: Vec<Option<Value>> =
        accumulators.into_iter().map(Accumulator::finish).collect();
    let frame = Frame { parent: env, content: Content::Group { keys, aggregates: &aggregates } };
    if let Some(value) = evaluate(&plan.projection, Some(&frame), context)? {
        let _ = emit(value)?;
    }
    Ok(())
}

fn row_bytes(keys: &[Option<Value>], value: &Value) -> usize {
    keys.iter().flatten().map(size_bytes).sum::<usize>() + size_bytes(value)
}

impl Groups {
    fn enter(
        &mut self,
        identities: Vec<u8>,
        keys: Vec<Option<Value>>,
        grouping: &Grouping,
    ) -> usize {
        let accumulators =
            grouping.aggregates.iter().map(|aggregate| aggregate.kind.start()).collect();
        self.positions.insert(identities, self.groups.len());
        self.groups.push((keys, accumulators));
        self.groups.len() - 1
    }
}

/// What lies at a path in a document.
pub(crate) fn descend<'v>(document: &'v Value, steps: &[PathStep]) -> Option<&'v Value> {
    steps.iter().try_fold(document, |value, step| match step {
        PathStep::Name(name) => value.get(name),
        PathStep::Offset(offset) => value.as_array()?.get(usize::try_from(*offset).ok()?),
    })
}
