//! The thread that merges tables.
//!
//! The store has threads of its own for that, and we keep them from it: of two such threads one stays
//! free for flushes, and while the other merges it takes the request for the next merge out of a queue
//! and puts it back as fast as it can. On a small machine that is half of the processor. So the
//! store's threads only flush, because it is told that no level is ever full; and this one asks the tree
//! itself to merge, by the rule that the store would have followed.
//!
//! A merge that fails ends the thread. From then on every write fails too, as the store would want it.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use fjall::{AbstractTree, Database, Keyspace, compaction::Leveled};

use crate::{Error, trees::Trees};

/// How often to look whether a flush that is under way has left something to merge.
const PAUSE: Duration = Duration::from_millis(20);

/// A rule by which nothing is ever merged, for the store's own thread: it takes more tables and more
/// bytes for a level to be full than there can be.
pub(crate) fn never() -> Arc<Leveled> {
    Arc::new(Leveled::default().with_l0_threshold(u8::MAX).with_table_target_size(1 << 50))
}

/// Merges tables until it is dropped.
pub(crate) struct Compactor {
    work: Arc<Work>,
    /// There until it is dropped.
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether there may be work since the thread last looked.
    is_asked: bool,
    is_ending: bool,
    failure: Option<Error>,
}

impl Signal {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Only flags are set while it is held, so a poisoned one is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a request, or for a moment if more work may come of itself; says whether to go on.
    fn wait(&self, more_may_come: bool) -> bool {
        let mut state = self.lock();
        while !state.is_asked && !state.is_ending {
            if more_may_come {
                let waited = self.changed.wait_timeout(state, PAUSE);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_asked = false;
        !state.is_ending
    }
}

impl Compactor {
    /// Starts the thread. It looks for work at once.
    pub(crate) fn start(
        database: &Database,
        trees: &Trees,
        memtable_bytes: u64,
    ) -> Result<Self, Error> {
        let work = Arc::new(Work {
            database: database.clone(),
            trees: trees.clone(),
            memtable_bytes,
            signal: Signal::default(),
        });
        let working = work.clone();
        let thread = std::thread::Builder::new()
            .name("compactor".to_owned())
            .spawn(move || working.run())?;
        Ok(Self { work, thread: Some(thread) })
    }

    /// Lets the thread look for work if what was written has filled a memory table. Only a flush
    /// makes a level full.
    pub(crate) fn written(&self) {
        if self.work.is_flushing() {
            self.work.signal.lock().is_asked = true;
            self.work.signal.changed.notify_one();
        }
    }

    /// Fails if the thread has.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        let failure = self.work.signal.lock().failure.clone();
        Err(failure.unwrap_or_else(|| Error::Panicked("merging tables".to_owned())))
    }
}

impl Drop for Compactor {
    /// Waits for the merge that is under way.
    fn drop(&mut self) {
        self.work.signal.lock().is_ending = true;
        self.work.signal.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, was told by `check`.
            let _ = thread.join();
        }
    }
}

/// What the thread works with.
struct Work {
    database: Database,
    trees: Trees,
    memtable_bytes: u64,
    signal: Signal,
}

impl Work {
    fn run(&self) {
        let mut has_merged = true;
        while has_merged || self.signal.wait(self.is_flushing()) {
            match self.merge() {
                Ok(merged) => has_merged = merged && !self.signal.lock().is_ending,
                Err(error) => {
                    tracing::error!(%error, "cannot merge tables");
                    self.signal.lock().failure = Some(error);
                    return;
                }
            }
        }
    }

    /// Merges once in every tree, where a level is full; says whether anything has changed.
    fn merge(&self) -> Result<bool, Error> {
        let mut has_merged = false;
        for keyspace in self.trees.all() {
            has_merged |= self.merge_in(keyspace)?;
        }
        Ok(has_merged)
    }

    fn merge_in(&self, keyspace: &Keyspace) -> Result<bool, Error> {
        let tree = &keyspace.tree;
        let before = tree.current_version().id();
        // What is older than every snapshot can be forgotten.
        let unseen = self.database.supervisor.snapshot_tracker.get_seqno_safe_to_gc();
        let merged = tree.compact(Arc::new(Leveled::default()), unseen);
        merged.map_err(|error| crate::embedded::error(error.into()))?;
        Ok(tree.current_version().id() != before)
    }

    /// Whether a table is about to be added.
    fn is_flushing(&self) -> bool {
        self.trees.all().into_iter().any(|keyspace| {
            let tree = &keyspace.tree;
            tree.sealed_memtable_count() > 0 || tree.active_memtable().size() > self.memtable_bytes
        })
    }
}
