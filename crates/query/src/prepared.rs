//! Queries that are ready to run, and conditions that are ready to test.
//!
//! A query can be run over a source of documents, whatever its clauses. A caller that knows better
//! where documents are, in which order they come and how many are wanted asks what the query needs
//! ([`Prepared::condition`], [`Prepared::order`], [`Prepared::touched`]), brings documents one by
//! one and pages the results itself.

use crate::access::Access;
use crate::advice::advice;
use crate::aggregate::AggregateKind;
use crate::bind::{bind, bind_computed, bind_condition};
use crate::compare::{identity, size_bytes};
use crate::evaluate::{Content, Context, Frame, evaluate, is_true};
use crate::execute::{Emit, Execution, descend};
use crate::fold::is_steady;
use crate::plan::{Origin, Plan, Scalar, Source};
use crate::{Condition, Error, Geospatial, Limits, Options, OrderBy, RunError, Touched};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;
use value::{Value, murmur3_x64_128};

/// A query whose names, parameters and functions are resolved.
pub struct Prepared {
    plan: Plan,
    options: Options,
    random: AtomicU64,
    access: Access,
    advice: Vec<&'static str>,
    /// Whether results are copies of what is stored, so that none can hold a number that JSON
    /// cannot write.
    is_stored: bool,
    sifts: bool,
}

/// What identifies a result among all results of a query: its group, or its value. It is the same
/// whenever and wherever the query runs, and two results share one only by a chance of 2^-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey(pub [u8; 16]);

impl RowKey {
    fn of(identity: &[u8]) -> RowKey {
        RowKey(murmur3_x64_128(identity, 0))
    }
}

/// What kind of count a query is; [`Prepared::answer_count`] makes the answer of the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountShape {
    /// Whether only the documents that pass a filter count.
    pub is_filtered: bool,
}

/// Reads and binds a query. Whatever is wrong with it is found here, with the service's code and
/// the place; what is not supported is refused here, too.
pub fn prepare(
    text: &str,
    parameters: &[(String, Value)],
    options: &Options,
) -> Result<Prepared, Error> {
    let query = sql::parse(text)?;
    let plan = bind(text, &query, parameters, options)?;
    Ok(Prepared::new(plan, options.clone(), advice(&query)))
}

impl Prepared {
    fn new(plan: Plan, options: Options, advice: Vec<&'static str>) -> Prepared {
        let is_stored = plan.grouping.is_none()
            && is_path(&plan.projection)
            && plan.sources.iter().all(|source| match &source.origin {
                Origin::Container(_) => true,
                Origin::Scalar(scalar) => is_path(scalar),
                Origin::Subquery(_) => false,
            });
        let random = AtomicU64::new(options.seed);
        let access = Access::of(&plan, options.geospatial);
        let is_sure = plan.filter.as_ref().is_some_and(is_steady);
        let mut prepared =
            Prepared { plan, options, random, access, advice, is_stored, sifts: false };
        prepared.sifts = is_sure && prepared.reads_whole_documents();
        prepared
    }

    // ---- what kind of query it is ----

    /// Whether each document's rows depend on that document alone: no `GROUP BY`, `DISTINCT` or
    /// aggregate, and rows that come from the container. `ORDER BY`, `TOP` and `OFFSET LIMIT` may
    /// be there.
    pub fn is_row_wise(&self) -> bool {
        self.plan.is_row_wise()
    }

    /// Whether each document's results depend on that document alone: row-wise, and no `ORDER BY`,
    /// `TOP` or `OFFSET LIMIT` either.
    pub fn is_streaming(&self) -> bool {
        let is_paged = self.plan.skip > 0 || self.plan.take.is_some();
        self.is_row_wise() && self.plan.order_by.is_empty() && !is_paged
    }

    /// Whether equal results are returned once.
    pub fn is_distinct(&self) -> bool {
        self.plan.distinct
    }

    /// Whether there is a `GROUP BY` or an aggregate.
    pub fn is_grouped(&self) -> bool {
        self.plan.grouping.is_some()
    }

    /// Whether the query looks at documents at all; `SELECT 1` does not.
    pub fn reads_documents(&self) -> bool {
        self.plan.reads_container()
    }

    /// Whether the rows are the documents that pass a filter, unchanged: `SELECT * FROM c` with or
    /// without `WHERE`, `ORDER BY`, `TOP` and `OFFSET LIMIT`. Such a query can be answered with the
    /// stored texts.
    pub fn returns_documents(&self) -> bool {
        self.reads_whole_documents()
            && self.is_row_wise()
            && matches!(self.plan.projection, Scalar::Slot(0))
    }

    /// Whether the container's documents are the only source, so that a document is a row.
    fn reads_whole_documents(&self) -> bool {
        matches!(
            &self.plan.sources[..],
            [Source { origin: Origin::Container(steps), iterates: false }] if steps.is_empty()
        )
    }

    /// The keys of `ORDER BY`, the most significant first.
    pub fn order(&self) -> Vec<OrderBy> {
        self.access.order.clone()
    }

    /// How many results are skipped.
    pub fn skip(&self) -> u64 {
        self.plan.skip
    }

    /// How many results are returned at most.
    pub fn take(&self) -> Option<u64> {
        self.plan.take
    }

    /// Whether the query only counts documents, with nothing but `COUNT` of what is always there:
    /// `COUNT(1)`, `COUNT(c)`.
    pub fn count(&self) -> Option<CountShape> {
        let grouping = self.plan.grouping.as_ref()?;
        let counts_rows = grouping.aggregates.iter().all(|aggregate| {
            aggregate.kind == AggregateKind::Count
                && matches!(aggregate.argument, Scalar::Constant(_) | Scalar::Slot(0))
        });
        let is_count = self.reads_whole_documents() && grouping.keys.is_empty() && counts_rows;
        is_count.then_some(CountShape { is_filtered: self.plan.filter.is_some() })
    }

    /// What the query wants the least or the greatest of, with nothing but `MIN` and `MAX` over the
    /// documents: in the order of each, the first document that has a scalar there is all that
    /// matters, unless one has an array or an object.
    pub fn extremes(&self) -> Option<&[OrderBy]> {
        self.access.extremes.as_deref()
    }

    /// The ids of the service's query advice that the query deserves, each once.
    pub fn advice(&self) -> Vec<&'static str> {
        self.advice.clone()
    }

    // ---- what it says about documents ----

    /// What must hold of a document that contributes to the answer. All others may be left out.
    pub fn condition(&self) -> &Condition {
        &self.access.condition
    }

    /// Whether a document that satisfies the condition also passes the filter, so that the filter
    /// need not be asked.
    pub fn is_condition_exact(&self) -> bool {
        self.access.is_exact
    }

    /// Which parts of a document the query looks at. Answers over documents without the other
    /// parts are the same.
    pub fn touched(&self) -> &Touched {
        &self.access.touched
    }

    /// Which parts of a document [`Prepared::keeps`] looks at.
    pub fn filter_touched(&self) -> &Touched {
        &self.access.filter_touched
    }

    // ---- document by document ----

    /// Whether documents can be asked one by one whether they pass the filter, and answer the same
    /// however often they are asked.
    pub fn sifts(&self) -> bool {
        self.sifts
    }

    /// Whether a document passes the filter, for queries that sift.
    ///
    /// # Panics
    ///
    /// When the filter is not about documents alone.
    pub fn passes(&self, document: &Value) -> Result<bool, Error> {
        assert!(self.sifts, "only queries that sift can be asked");
        let context = Context::new(&self.options, &self.random);
        let frame = Frame { parent: None, content: Content::Value(Some(document)) };
        self.plan.filter.as_ref().map_or(Ok(true), |f| is_true(f, Some(&frame), &context))
    }

    /// Whether a document passes the filter, for queries that return documents.
    ///
    /// # Panics
    ///
    /// When the query returns something else than documents.
    pub fn keeps(&self, document: &Value) -> Result<bool, Error> {
        assert!(self.returns_documents(), "only queries that return documents keep or drop them");
        let context = Context::new(&self.options, &self.random);
        let frame = Frame { parent: None, content: Content::Value(Some(document)) };
        match &self.plan.filter {
            Some(filter) => is_true(filter, Some(&frame), &context),
            None => Ok(true),
        }
    }

    /// Appends the rows of one document, for row-wise queries. `ORDER BY`, `TOP` and
    /// `OFFSET LIMIT` are the caller's.
    ///
    /// # Panics
    ///
    /// When the query is not row-wise.
    pub fn rows_of(&self, document: &Value, out: &mut Vec<Value>) -> Result<(), Error> {
        assert!(self.is_row_wise(), "only row-wise queries answer document by document");
        let context = Context::new(&self.options, &self.random);
        let mut execution = Execution::unpaged(&self.plan);
        let pushed = execution.push(document, &context, &mut |row| {
            let row = context.own(row)?;
            out.push(self.result(row));
            Ok(ControlFlow::Continue(()))
        });
        pushed.map(|_| ())
    }

    /// The rows of one document with their keys, each once, for queries that remove duplicates and
    /// do not group. Which of the equal rows of several documents counts is the caller's.
    ///
    /// # Panics
    ///
    /// When the query groups.
    pub fn distinct_rows_of(&self, document: &Value) -> Result<Vec<(RowKey, Value)>, Error> {
        assert!(!self.is_grouped(), "groups are made of many documents");
        let context = Context::new(&self.options, &self.random);
        let mut execution = Execution::unpaged(&self.plan);
        let mut out = Vec::new();
        let pushed = execution.push(document, &context, &mut |row| {
            let mut known = Vec::new();
            identity(Some(&row), &mut known);
            let row = context.own(row)?;
            out.push((RowKey::of(&known), self.result(row)));
            Ok(ControlFlow::Continue(()))
        });
        pushed.map(|_| out)
    }

    /// The values of the `ORDER BY` keys for a document; they are the same for all of its rows.
    pub fn sort_keys_of(&self, document: &Value) -> Result<Vec<Option<Value>>, Error> {
        let Some(Source { origin: Origin::Container(steps), .. }) = self.plan.sources.first()
        else {
            return Ok(Vec::new());
        };
        let context = Context::new(&self.options, &self.random);
        let content = Content::Value(descend(document, steps));
        let frame = Frame { parent: None, content };
        let mut keys = Vec::with_capacity(self.access.sort_keys.len());
        for key in &self.access.sort_keys {
            keys.push(evaluate(key, Some(&frame), &context)?.map(Cow::into_owned));
        }
        Ok(keys)
    }

    // ---- over all documents ----

    /// The results over all documents of a source, whatever the clauses. Reading stops as soon as
    /// no further document can change the answer.
    pub fn run<E>(
        &self,
        documents: impl IntoIterator<Item = Result<Value, E>>,
    ) -> Result<Vec<Value>, RunError<E>> {
        let context = Context::new(&self.options, &self.random);
        let mut execution = Execution::new(&self.plan);
        let mut out = Vec::new();
        let mut emit = |row: Cow<'_, Value>| {
            let row = self.result(row.into_owned());
            context.keep(size_bytes(&row))?;
            out.push(row);
            Ok(ControlFlow::Continue(()))
        };
        if self.feed(&mut execution, documents, &context, &mut emit)?.is_continue() {
            execution.finish(None, &context, &mut emit)?;
        }
        Ok(out)
    }

    /// The results over all documents of a source with a key for each, in the order in which they
    /// were first seen, for queries that are not row-wise. The keys do not depend on that order.
    /// `ORDER BY`, `TOP` and `OFFSET LIMIT` are the caller's.
    ///
    /// A group is known by its keys and a distinct result by its value. What is neither, because a
    /// subquery groups or selects the rows, is known by its value and its number among equals.
    pub fn run_keyed<E>(
        &self,
        documents: impl IntoIterator<Item = Result<Value, E>>,
    ) -> Result<Vec<(RowKey, Value)>, RunError<E>> {
        let context = Context::new(&self.options, &self.random);
        let mut execution = Execution::unpaged(&self.plan);
        let mut out = Vec::new();
        let mut keep = |key: RowKey, row: Cow<'_, Value>| {
            let row = self.result(row.into_owned());
            context.keep(size_of::<RowKey>() + size_bytes(&row))?;
            out.push((key, row));
            Ok(ControlFlow::Continue(()))
        };
        if self.is_grouped() && !self.is_distinct() {
            let mut no_rows = |_: Cow<'_, Value>| Ok(ControlFlow::Continue(()));
            let _ = self.feed(&mut execution, documents, &context, &mut no_rows)?;
            execution.finish_keyed(&context, &mut |keys, row| {
                let mut known = Vec::new();
                keys.iter().for_each(|key| identity(key.as_ref(), &mut known));
                keep(RowKey::of(&known), row)
            })?;
            return Ok(out);
        }
        let is_distinct = self.is_distinct();
        let mut equals: HashMap<RowKey, u64> = HashMap::new();
        let mut emit = |row: Cow<'_, Value>| {
            let mut known = Vec::new();
            identity(Some(&row), &mut known);
            if !is_distinct {
                let number = equals.entry(RowKey::of(&known)).or_default();
                known.extend(number.to_be_bytes());
                *number += 1;
            }
            keep(RowKey::of(&known), row)
        };
        if self.feed(&mut execution, documents, &context, &mut emit)?.is_continue() {
            execution.finish(None, &context, &mut emit)?;
        }
        Ok(out)
    }

    /// The results of a query that counts, given the count; see [`Prepared::count`].
    ///
    /// # Panics
    ///
    /// When the query does not only count.
    pub fn answer_count(&self, count: u64) -> Result<Vec<Value>, Error> {
        assert!(self.count().is_some(), "only queries that count are answered by a count");
        let context = Context::new(&self.options, &self.random);
        let mut execution = Execution::new(&self.plan);
        execution.count_rows(count);
        let mut out = Vec::new();
        execution.finish(None, &context, &mut |row| {
            out.push(self.result(row.into_owned()));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(out)
    }

    /// Takes all documents in; a break says that no further result can come.
    fn feed<E>(
        &self,
        execution: &mut Execution<'_>,
        documents: impl IntoIterator<Item = Result<Value, E>>,
        context: &Context<'_>,
        emit: &mut Emit<'_>,
    ) -> Result<ControlFlow<()>, RunError<E>> {
        if !self.reads_documents() {
            return Ok(execution.pull(None, context, emit)?);
        }
        for document in documents {
            if execution.is_full() {
                break;
            }
            let document = document.map_err(RunError::Source)?;
            context.next_document();
            if execution.push(&document, context, emit)?.is_break() {
                break;
            }
        }
        context.next_document();
        Ok(ControlFlow::Continue(()))
    }

    /// A result as it is sent: numbers that JSON cannot write are strings, as the service's writer
    /// has them.
    fn result(&self, mut row: Value) -> Value {
        if !self.is_stored {
            spell_out(&mut row);
        }
        row
    }
}

fn is_path(scalar: &Scalar) -> bool {
    match scalar {
        Scalar::Slot(_) => true,
        Scalar::Member(object, _) => is_path(object),
        _ => false,
    }
}

fn spell_out(value: &mut Value) {
    match value {
        Value::Number(number) if !number.as_f64().is_finite() => {
            let number = number.as_f64();
            let text = match number {
                _ if number.is_nan() => "NaN",
                _ if number > 0.0 => "Infinity",
                _ => "-Infinity",
            };
            *value = Value::from(text);
        }
        Value::Array(items) => items.iter_mut().for_each(spell_out),
        Value::Object(object) => object.iter_mut().for_each(|(_, value)| spell_out(value)),
        _ => {}
    }
}

/// How much memory a condition may use; it looks at one document.
const CONDITION_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The surroundings of what looks at one document, at no particular time.
fn one_document(geospatial: Geospatial) -> Options {
    Options { geospatial, ..Options::new(0, 0, Limits::memory(CONDITION_BYTES_MAX)) }
}

/// The condition of a conditional patch: `FROM c WHERE …`.
pub struct Predicate(Prepared);

/// Reads and binds the condition of a conditional patch.
pub fn condition(text: &str, geospatial: Geospatial) -> Result<Predicate, Error> {
    let condition = sql::parse_condition(text)?;
    let options = one_document(geospatial);
    let plan = bind_condition(text, &condition, &options)?;
    Ok(Predicate(Prepared::new(plan, options, Vec::new())))
}

impl Predicate {
    /// Whether the condition is exactly true for a document. A condition that cannot be evaluated
    /// is not true.
    pub fn holds(&self, document: &Value) -> bool {
        let mut rows = Vec::new();
        self.0.rows_of(document, &mut rows).is_ok() && !rows.is_empty()
    }
}

/// A computed property of a container, for whoever keeps its values.
pub struct Computed {
    scalar: Scalar,
    options: Options,
    random: AtomicU64,
}

impl Computed {
    /// Reads and binds the query of a computed property.
    pub fn new(text: &str) -> Result<Computed, Error> {
        // Computed properties have no spatial functions.
        let options = one_document(Geospatial::Geography);
        let scalar = bind_computed(text, &options)?;
        Ok(Computed { scalar, options, random: AtomicU64::new(0) })
    }

    /// The value for a document; a property that cannot be evaluated is undefined.
    pub fn value(&self, document: &Value) -> Option<Value> {
        let context = Context::new(&self.options, &self.random);
        let frame = Frame { parent: None, content: Content::Value(Some(document)) };
        evaluate(&self.scalar, Some(&frame), &context).ok()?.map(Cow::into_owned)
    }
}
