//! A place for work that takes long: queries and feeds.
//!
//! Such work would hold up every other request of its thread, so it runs on threads of its own, as
//! many at once as there are cores. What waits for one is bounded too: beyond that a client is told
//! to come back later. But most queries are over sooner than another thread wakes up, so what may be one
//! of these is tried at once.

use std::num::NonZeroUsize;

use db::{Effort, Error, Kind, Result};
use tokio::sync::Semaphore;

/// Runs long work, some at once and some waiting.
#[derive(Debug)]
pub(crate) struct Compute {
    running: Semaphore,
    admitted: Semaphore,
}

/// How many may wait for each one that runs.
const WAITING_PER_CORE: usize = 256;

impl Compute {
    pub(crate) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::with_cores(cores)
    }

    fn with_cores(cores: usize) -> Self {
        Self {
            running: Semaphore::new(cores),
            admitted: Semaphore::new(cores * (1 + WAITING_PER_CORE)),
        }
    }

    /// Runs the work here and now if a moment is enough for it, and else as [`Compute::run`] does.
    pub(crate) async fn run_soon<T: Send + 'static, E: Send + 'static>(
        &self,
        work: impl Fn(Effort) -> Result<T, E> + Send + 'static,
    ) -> Result<Result<T, E>> {
        // Why it failed does not matter: there may have been too little of something.
        match work(Effort::Moment) {
            Ok(done) => Ok(Ok(done)),
            Err(_) => self.run(move || work(Effort::Whole)).await,
        }
    }

    /// Runs the work; refused when too much waits already.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let _admitted = self.admitted.try_acquire().map_err(|_| {
            Error::new(
                Kind::TooManyRequests,
                "Request rate is large: too many queries wait to be run. \
                 Please retry this request later.",
            )
        })?;
        let _running = self.running.acquire().await.map_err(|_| internal())?;
        tokio::task::spawn_blocking(work).await.map_err(|error| {
            tracing::error!(%error, "a query ended with a fault of ours");
            internal()
        })
    }
}

fn internal() -> Error {
    Error::new(Kind::Internal, "the server hit a fault of its own; see its log")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    #[tokio::test]
    async fn work_beyond_the_limit_is_refused() {
        let compute = Arc::new(Compute::with_cores(1));
        let (release, blocked) = mpsc::channel::<()>();
        let (started, has_started) = tokio::sync::oneshot::channel();
        let first = tokio::spawn({
            let compute = compute.clone();
            async move {
                let work = move || {
                    started.send(()).unwrap();
                    blocked.recv().unwrap();
                };
                compute.run(work).await
            }
        });
        has_started.await.unwrap();
        let places = compute.admitted.available_permits();
        let waiting = compute.admitted.acquire_many(places as u32).await.unwrap();
        assert_eq!(compute.run(|| ()).await.unwrap_err().kind, Kind::TooManyRequests);
        drop(waiting);
        release.send(()).unwrap();
        first.await.unwrap().unwrap();
        assert_eq!(compute.run(|| 7).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn what_takes_longer_than_a_moment_is_run_again_elsewhere() {
        let compute = Compute::with_cores(1);
        let here = std::thread::current().id();
        let work = move |effort| match effort {
            Effort::Moment => Err("too little"),
            Effort::Whole => Ok(std::thread::current().id()),
        };
        assert_ne!(compute.run_soon(work).await.unwrap(), Ok(here));
        let work = |_| Ok::<_, ()>(std::thread::current().id());
        assert_eq!(compute.run_soon(work).await.unwrap(), Ok(here));
        let refused = compute.run_soon(Err::<(), _>).await.unwrap();
        assert_eq!(refused, Err(Effort::Whole));
    }

    #[tokio::test]
    async fn a_fault_is_an_error_of_one_request() {
        let compute = Compute::with_cores(1);
        let failed = compute.run(|| -> () { panic!("a test") }).await;
        assert_eq!(failed.unwrap_err().kind, Kind::Internal);
        assert_eq!(compute.run(|| 7).await.unwrap(), 7);
    }
}
