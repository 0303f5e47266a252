//! A place for work that takes long: queries and feeds.
//!
//! Such work would hold up every other request of its thread, so it runs on threads of its own, as
//! many at once as there are cores. What waits for one is bounded too: beyond that a client is told
//! to come back later.

use std::num::NonZeroUsize;

use db::{Error, Kind, Result};
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
    async fn a_fault_is_an_error_of_one_request() {
        let compute = Compute::with_cores(1);
        let failed = compute.run(|| -> () { panic!("a test") }).await;
        assert_eq!(failed.unwrap_err().kind, Kind::Internal);
        assert_eq!(compute.run(|| 7).await.unwrap(), 7);
    }
}
