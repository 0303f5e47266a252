//! Queries that are ready to run, and conditions that are ready to test.

use crate::bind::{bind, bind_condition};
use crate::compare::size_bytes;
use crate::evaluate::{Content, Context, Frame, is_true};
use crate::execute::Execution;
use crate::plan::{Origin, Plan, Scalar, Source};
use crate::{Error, Limits, Options, RunError};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;
use value::Value;

/// A query whose names, parameters and functions are resolved.
pub struct Prepared {
    plan: Plan,
    options: Options,
    random: AtomicU64,
    /// Whether results are copies of what is stored, so that none can hold a number that JSON
    /// cannot write.
    is_stored: bool,
}

/// Reads and binds a query. Whatever is wrong with it is found here, with the service's code and
/// the place; what is not supported is refused here, too.
pub fn prepare(
    text: &str,
    parameters: &[(String, Value)],
    options: &Options,
) -> Result<Prepared, Error> {
    let query = sql::parse(text)?;
    Ok(Prepared::new(bind(text, &query, parameters, options)?, options.clone()))
}

impl Prepared {
    fn new(plan: Plan, options: Options) -> Prepared {
        let is_stored = plan.grouping.is_none()
            && is_path(&plan.projection)
            && plan.sources.iter().all(|source| match &source.origin {
                Origin::Container(_) => true,
                Origin::Scalar(scalar) => is_path(scalar),
                Origin::Subquery(_) => false,
            });
        let random = AtomicU64::new(options.seed);
        Prepared { plan, options, random, is_stored }
    }

    /// Whether each document's results depend on that document alone: no `ORDER BY`, `GROUP BY`,
    /// `DISTINCT`, aggregate, `TOP` or `OFFSET LIMIT`, and rows that come from the container.
    pub fn is_streaming(&self) -> bool {
        self.plan.is_streaming()
    }

    /// Whether the query looks at documents at all; `SELECT 1` does not.
    pub fn reads_documents(&self) -> bool {
        self.plan.reads_container()
    }

    /// Whether the results are the documents that pass a filter, unchanged: `SELECT * FROM c` with
    /// or without `WHERE`. Such a query can be answered with the stored texts.
    pub fn returns_documents(&self) -> bool {
        let [Source { origin: Origin::Container(steps), iterates: false }] = &self.plan.sources[..]
        else {
            return false;
        };
        steps.is_empty() && self.is_streaming() && matches!(self.plan.projection, Scalar::Slot(0))
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

    /// Appends the results of one document, for queries that stream.
    ///
    /// # Panics
    ///
    /// When the query does not stream.
    pub fn rows_of(&self, document: &Value, out: &mut Vec<Value>) -> Result<(), Error> {
        assert!(self.is_streaming(), "only streaming queries answer document by document");
        let context = Context::new(&self.options, &self.random);
        let mut execution = Execution::new(&self.plan);
        let pushed = execution.push(document, &context, &mut |row| {
            let row = context.own(row)?;
            out.push(self.result(row));
            Ok(ControlFlow::Continue(()))
        });
        pushed.map(|_| ())
    }

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
        if self.reads_documents() {
            for document in documents {
                if execution.is_full() {
                    break;
                }
                let document = document.map_err(RunError::Source)?;
                context.next_document();
                if execution.push(&document, &context, &mut emit)?.is_break() {
                    break;
                }
            }
        } else if execution.pull(None, &context, &mut emit)?.is_break() {
            return Ok(out);
        }
        context.next_document();
        execution.finish(None, &context, &mut emit)?;
        Ok(out)
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

/// The condition of a conditional patch: `FROM c WHERE …`.
pub struct Predicate(Prepared);

/// Reads and binds the condition of a conditional patch.
pub fn condition(text: &str) -> Result<Predicate, Error> {
    let condition = sql::parse_condition(text)?;
    let options = Options::new(0, 0, Limits::memory(CONDITION_BYTES_MAX));
    let plan = bind_condition(text, &condition, &options)?;
    Ok(Predicate(Prepared::new(plan, options)))
}

impl Predicate {
    /// Whether the condition is exactly true for a document. A condition that cannot be evaluated
    /// is not true.
    pub fn holds(&self, document: &Value) -> bool {
        let mut rows = Vec::new();
        self.0.rows_of(document, &mut rows).is_ok() && !rows.is_empty()
    }
}
