//! The way of operations to their range, which may be about to be replaced by others.
//!
//! A range that is split or merged is closed for a moment, then it is gone, and the ranges that took
//! over hold its partitions. Writers who come meanwhile wait and go to where their partition is then:
//! nobody is refused, and no write reaches a range whose rows have been copied already.
//!
//! - G1: an operation is submitted while its gate is held open, so once [`Gate::close`] returns, every
//!   operation of the range has been submitted.

use std::sync::Arc;

use storage::{Error, Operation, Outcome, RangeStore, SubmitError};
use tokio::sync::watch;
use value::{ContainerRid, Epk};

use crate::container::{Container, Range};
use crate::database::Db;

/// Whether a range takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// For a moment: it will be open again, or gone.
    Closed,
    /// Other ranges have taken over.
    Gone,
}

/// Lets writers through to a range, or makes them wait.
#[derive(Debug)]
pub(crate) struct Gate(watch::Sender<State>);

impl Default for Gate {
    fn default() -> Self {
        Self(watch::Sender::new(State::Open))
    }
}

impl Gate {
    /// Lets a writer submit, if the gate is open. Keeps G1.
    pub(crate) fn pass<T>(&self, submit: impl FnOnce() -> T) -> Option<T> {
        let state = self.0.borrow();
        (*state == State::Open).then(submit)
    }

    pub(crate) fn close(&self) {
        self.0.send_replace(State::Closed);
    }

    pub(crate) fn open(&self) {
        self.0.send_replace(State::Open);
    }

    /// The range is not used any more.
    pub(crate) fn end(&self) {
        self.0.send_replace(State::Gone);
    }

    pub(crate) fn is_ended(&self) -> bool {
        *self.0.borrow() == State::Gone
    }

    /// Waits until it is known whether the range goes on.
    pub(crate) async fn decided(&self) {
        let mut state = self.0.subscribe();
        // The sender lives in the gate.
        let _ = state.wait_for(|state| *state != State::Closed).await;
    }
}

/// Lets a writer submit to several ranges together, if all of their gates are open; else says which
/// range has one that is not. Keeps G1.
pub(crate) fn pass_all<T>(
    ranges: &[Arc<Range>],
    submit: impl FnOnce() -> T,
) -> Result<T, Arc<Range>> {
    let states: Vec<_> = ranges.iter().map(|range| range.gate.0.borrow()).collect();
    match states.iter().position(|state| **state != State::Open) {
        None => Ok(submit()),
        Some(closed) => Err(ranges[closed].clone()),
    }
}

impl<S: RangeStore> Db<S> {
    /// Submits an operation to the range that holds a key, and says which range that was.
    ///
    /// As with [`RangeStore::submit`], the order of writes is the order of these calls, unless the
    /// range is being replaced: then the operation waits for its turn in the new one.
    pub(crate) fn submit_to_key<O, F>(
        &self,
        container: &Container,
        epk: Epk,
        operation: F,
    ) -> impl Future<Output = (Arc<Range>, Outcome<O>)> + Send + use<S, O, F>
    where
        O: Operation,
        F: FnOnce(&Arc<Range>) -> O + Send + 'static,
    {
        let mut range = container.range_of(&epk).clone();
        let mut operation = Some(operation);
        let mut submit = {
            let store = self.store.clone();
            move |range: &Arc<Range>| {
                range.gate.pass(|| {
                    let operation = operation.take().expect("an operation is submitted once");
                    store.submit(range.storage, operation(range))
                })
            }
        };
        let mut submitted = submit(&range);
        let (catalog, rid) = (self.catalog.clone(), container.rid);
        async move {
            loop {
                if let Some(submitted) = submitted {
                    return (range, submitted.await);
                }
                range.gate.decided().await;
                let now = catalog.load().container_of(rid).cloned();
                let Some(now) = now else {
                    let gone = SubmitError::Storage(Error::NoRange(range.storage));
                    return (range, Err(gone));
                };
                range = now.range_of(&epk).clone();
                submitted = submit(&range);
            }
        }
    }

    /// Submits an operation that concerns one range and no other. A range that is being replaced
    /// counts as gone.
    pub(crate) fn submit_to_range<O: Operation>(
        &self,
        range: &Range,
        operation: O,
    ) -> impl Future<Output = Outcome<O>> + Send + use<S, O> {
        let storage = range.storage;
        let submitted = range.gate.pass(|| self.store.submit(storage, operation));
        async move {
            match submitted {
                Some(submitted) => submitted.await,
                None => Err(SubmitError::Storage(Error::NoRange(storage))),
            }
        }
    }

    /// The container as it is now, if it still exists.
    pub(crate) fn container_now(&self, rid: ContainerRid) -> Option<Arc<Container>> {
        self.catalog.load().container_of(rid).cloned()
    }
}
