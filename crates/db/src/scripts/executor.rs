//! Where scripts run, and in which order.
//!
//! Scripts take long, so they run on threads of their own, a few at once; more may wait, but not
//! without end. Scripts of one logical partition take turns: they would only undo each other's work,
//! as all but the first to commit have to run again. Whoever waits for a turn holds no thread.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use value::ContainerRid;

use crate::key::PartitionPrefix;
use crate::{Error, Kind, Result};

/// How many may wait for each one that runs.
const WAITING_PER_THREAD: usize = 128;
/// How long one may wait for its turn.
const TURN_MS: u64 = 10_000;

/// Runs scripts, some at once and some waiting.
pub(crate) struct Executor {
    running: Arc<Semaphore>,
    admitted: Arc<Semaphore>,
    turns: Turns,
}

impl Executor {
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::with_threads(cores.max(2))
    }

    fn with_threads(threads: usize) -> Self {
        Self {
            running: Arc::new(Semaphore::new(threads)),
            admitted: Arc::new(Semaphore::new(threads * (1 + WAITING_PER_THREAD))),
            turns: Turns::default(),
        }
    }

    /// Waits for the turn of a script; refused when too many wait already, or for too long.
    pub(crate) async fn turn(
        &self,
        container: ContainerRid,
        partition: &PartitionPrefix,
    ) -> Result<Turn> {
        let admitted = self.admitted.clone().try_acquire_owned().map_err(|_| too_many())?;
        let turn = self.turns.take((container, partition.clone()));
        let turn = tokio::time::timeout(Duration::from_millis(TURN_MS), turn).await;
        Ok(Turn { _turn: turn.map_err(|_| too_many())?, _admitted: admitted })
    }

    /// Runs scripts on a thread of their own.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let running = self.running.clone().acquire_owned().await.map_err(|_| fault())?;
        let run = move || {
            // The thread is taken as long as the script runs, whether anybody waits for it or not.
            let _running = running;
            work()
        };
        tokio::task::spawn_blocking(run).await.map_err(|error| {
            tracing::error!(%error, "a script ended with a fault of ours");
            fault()
        })
    }
}

fn too_many() -> Error {
    Error::new(
        Kind::TooManyScripts,
        "Request rate is large: too many scripts wait to be run. Please retry this request later.",
    )
}

fn fault() -> Error {
    Error::new(Kind::Internal, "the server hit a fault of its own; see its log")
}

/// The right to run a script on a partition.
pub(crate) struct Turn {
    _turn: Taken,
    _admitted: OwnedSemaphorePermit,
}

type Partition = (ContainerRid, PartitionPrefix);

/// Who works on which partition. First come, first served.
#[derive(Clone, Default)]
struct Turns(Arc<Mutex<HashMap<Partition, Arc<tokio::sync::Mutex<()>>>>>);

impl Turns {
    async fn take(&self, partition: Partition) -> Taken {
        let waiting = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            turns.entry(partition.clone()).or_default().clone()
        };
        // Made before waiting: whoever gives up waiting tidies up, too.
        let mut taken = Taken { turns: self.clone(), partition, guard: None };
        taken.guard = Some(waiting.lock_owned().await);
        taken
    }
}

struct Taken {
    turns: Turns,
    partition: Partition,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut turns = self.turns.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.guard.take());
        // Nobody can come to hold it meanwhile: that needs the map.
        if turns.get(&self.partition).is_some_and(|waiting| Arc::strong_count(waiting) == 1) {
            turns.remove(&self.partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use value::{Component, Epk, PartitionKey};

    use super::*;

    fn container(number: u32) -> ContainerRid {
        ContainerRid::new(value::DatabaseRid(1), number)
    }

    fn partition(key: &str) -> PartitionPrefix {
        let key = PartitionKey(vec![Component::String(key.to_owned())]);
        PartitionPrefix::new(&Epk::from_bytes(vec![1]), &key)
    }

    #[tokio::test]
    async fn partitions_take_turns_and_are_forgotten() {
        let executor = Arc::new(Executor::with_threads(1));
        let first = executor.turn(container(1), &partition("a")).await.unwrap();
        let other = executor.turn(container(1), &partition("b")).await.unwrap();
        let same = executor.turn(container(2), &partition("a")).await.unwrap();
        let second = tokio::spawn({
            let executor = executor.clone();
            async move { executor.turn(container(1), &partition("a")).await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop((first, other, same));
        second.await.unwrap().unwrap();
        assert!(executor.turns.0.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn too_many_are_refused() {
        let executor = Executor::with_threads(1);
        let places = executor.admitted.available_permits();
        let _all = executor.admitted.acquire_many(places as u32).await.unwrap();
        let refused = executor.turn(container(1), &partition("a")).await.err().unwrap();
        assert_eq!((refused.kind.status(), refused.kind.substatus()), (429, 3084));
    }

    #[tokio::test]
    async fn a_fault_is_an_error_of_one_request() {
        let executor = Executor::with_threads(1);
        let failed = executor.run(|| -> () { panic!("a test") }).await;
        assert_eq!(failed.unwrap_err().kind, Kind::Internal);
        assert_eq!(executor.run(|| 7).await.unwrap(), 7);
    }
}
