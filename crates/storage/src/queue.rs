//! Where operations wait for the committer: first in, first out, and never more than it can bear.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::Error;

/// A bounded queue with one consumer.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    arrived: Condvar,
    limit: Limit,
}

/// The most that may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) count: usize,
    pub(crate) size_bytes: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    entries: VecDeque<(usize, T)>,
    size_bytes: usize,
    closed: bool,
}

/// What the consumer found.
#[derive(Debug)]
pub(crate) enum Next<T> {
    /// The oldest entries, at least one.
    Entries(VecDeque<(usize, T)>),
    /// Nothing is waiting, and more may come.
    Nothing,
    /// Nothing is waiting, and nothing will come.
    End,
}

impl<T> Queue<T> {
    pub(crate) fn new(limit: Limit) -> Self {
        let waiting = Waiting { entries: VecDeque::new(), size_bytes: 0, closed: false };
        Self { waiting: Mutex::new(waiting), arrived: Condvar::new(), limit }
    }

    /// Appends an entry, unless the queue is full or closed.
    pub(crate) fn push(&self, size_bytes: usize, entry: T) -> Result<(), Error> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(Error::Closed);
        }
        // A single large entry is let in, or it could never be.
        let is_full = waiting.entries.len() >= self.limit.count
            || (waiting.size_bytes > 0 && waiting.size_bytes + size_bytes > self.limit.size_bytes);
        if is_full {
            return Err(Error::Busy);
        }
        waiting.size_bytes += size_bytes;
        waiting.entries.push_back((size_bytes, entry));
        drop(waiting);
        self.arrived.notify_one();
        Ok(())
    }

    /// Takes up to `count_max` entries; waits for the first one if asked to.
    pub(crate) fn take(&self, count_max: usize, wait: bool) -> Next<T> {
        let mut waiting = self.lock();
        while waiting.entries.is_empty() {
            if waiting.closed {
                return Next::End;
            }
            if !wait {
                return Next::Nothing;
            }
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let count = count_max.min(waiting.entries.len());
        let rest = waiting.entries.split_off(count);
        let taken = std::mem::replace(&mut waiting.entries, rest);
        waiting.size_bytes -= taken.iter().map(|(size_bytes, _)| size_bytes).sum::<usize>();
        Next::Entries(taken)
    }

    /// Lets nobody in any more. What waits can still be taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
    }

    /// How many entries wait, and their size.
    pub(crate) fn len(&self) -> (usize, usize) {
        let waiting = self.lock();
        (waiting.entries.len(), waiting.size_bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        // Nothing panics while the queue is held, so a poisoned one is still whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
