//! Makes a [`RangeStore`] of any [`OrderedStore`].
//!
//! Three parts share the work. Callers put tasks into a bounded queue; one thread, the committer,
//! takes them out in order and is the only writer; what it has made durable it shows on the *board*,
//! from which readers take snapshots without meeting the committer. Closing, in order or after a
//! failed write, empties the board, and with it everything is refused.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    ops::Bound,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
};

use bytes::Bytes;
use tokio::sync::{oneshot, watch};

use crate::{
    Committed, Direction, Error, Lsn, Operation, OrderedSnapshot, OrderedStore, Outcome, PartError,
    Pressure, RangeId, RangeStore, Snapshot, Stop, SubmitError, Transaction, View, Visit,
    committer::{self, Answer, Control, Guard, Job, Part, Ran, Task},
    ordered::is_empty_interval,
    queue::{Limit, Queue},
    row,
};

/// What may wait for the committer before callers are told to come back later.
const QUEUE_LIMIT: Limit = Limit { count: 8192, size_bytes: 64 * 1024 * 1024 };

/// A range store over an ordered store.
pub struct Engine<O: OrderedStore> {
    shared: Arc<Shared<O>>,
    committer: Option<JoinHandle<()>>,
    finished: watch::Receiver<Option<Result<(), Error>>>,
}

impl<O: OrderedStore> std::fmt::Debug for Engine<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("pressure", &self.pressure()).finish_non_exhaustive()
    }
}

/// What the callers and the committer share.
pub(crate) struct Shared<O: OrderedStore> {
    pub(crate) store: O,
    pub(crate) queue: Queue<Task>,
    pub(crate) board: Arc<Board<O::Snapshot>>,
    /// Whether the store should be prepared for a fast opening when the queue ends.
    pub(crate) is_orderly: AtomicBool,
    /// Whether the store was about to stop its writers after the last commit.
    pub(crate) is_overloaded: AtomicBool,
    /// How many ranges still have rows to remove.
    pub(crate) erasing: AtomicUsize,
}

/// The newest durable state. Readers look here, and only the committer changes it.
#[derive(Debug)]
pub(crate) struct Board<S> {
    published: RwLock<Published<S>>,
}

#[derive(Debug)]
pub(crate) struct Published<S> {
    /// `None` once the engine is closed.
    pub(crate) snapshot: Option<Arc<S>>,
    /// The LSN of every range that can be read; senders wake those who wait for it.
    pub(crate) ranges: HashMap<RangeId, watch::Sender<Lsn>>,
}

impl<S> Board<S> {
    pub(crate) fn new(published: Published<S>) -> Self {
        Self { published: RwLock::new(published) }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Published<S>> {
        self.published.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Published<S>> {
        self.published.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes everything down: readers are refused and waiting ones wake up.
    pub(crate) fn clear(&self) {
        let mut published = self.write();
        published.snapshot = None;
        published.ranges.clear();
    }
}

impl<S> Published<S> {
    fn range(&self, range: RangeId) -> Result<(&Arc<S>, &watch::Sender<Lsn>), Error> {
        let snapshot = self.snapshot.as_ref().ok_or(Error::Closed)?;
        let lsn = self.ranges.get(&range).ok_or(Error::NoRange(range))?;
        Ok((snapshot, lsn))
    }
}

impl<O: OrderedStore> Engine<O> {
    /// Opens a range store over what the ordered store holds.
    pub fn with_store(store: O) -> Result<Self, Error> {
        let (finish, finished) = watch::channel(None);
        let (shared, committer) = committer::start(store, Queue::new(QUEUE_LIMIT), finish)?;
        Ok(Self { shared, committer: Some(committer), finished })
    }

    #[cfg(test)]
    pub(crate) fn store(&self) -> &O {
        &self.shared.store
    }

    fn enqueue(&self, size_bytes: usize, task: Task) -> Result<(), Error> {
        if self.shared.is_overloaded.load(Ordering::Relaxed) {
            if self.shared.store.load().is_overloaded {
                return Err(Error::Busy);
            }
            self.shared.is_overloaded.store(false, Ordering::Relaxed);
        }
        self.shared.queue.push(size_bytes, task)
    }

    fn control(&self, control: Control) -> impl Future<Output = Result<(), Error>> + Send + use<O> {
        let (answer, answered) = oneshot::channel();
        // Control tasks are rare and free resources, so an overloaded store takes them.
        let queued = self.shared.queue.push(0, Task::Control { control, answer });
        async move {
            queued?;
            answered.await.unwrap_or(Err(Error::Closed))
        }
    }

    fn operate<P: Operation>(
        &self,
        range: RangeId,
        guard: Option<Guard>,
        operation: P,
    ) -> impl Future<Output = Outcome<P>> + Send + use<O, P> {
        let operated = self.operate_all(vec![(Part { range, guard }, operation)]);
        async move {
            match operated.await {
                Ok(mut committed) => Ok(committed.pop().expect("one part gives one result")),
                Err(PartError { error, .. }) => Err(error),
            }
        }
    }

    fn operate_all<P: Operation>(
        &self,
        parts: Vec<(Part, P)>,
    ) -> impl Future<Output = OutcomeOfAll<P>> + Send + use<O, P> {
        let size_bytes = |(part, operation): &(Part, P)| {
            operation.size_bytes() + part.guard.as_ref().map_or(0, Guard::size_bytes)
        };
        let size_bytes = parts.iter().map(size_bytes).sum();
        let (parts, operations) = parts.into_iter().unzip();
        let (answer, answered) = oneshot::channel();
        let job = Box::new(Submitted { operations, outputs: Vec::new(), refusal: None, answer });
        let queued = self.enqueue(size_bytes, Task::Operation { parts, job });
        async move {
            let failed = |error| PartError { part: 0, error: SubmitError::Storage(error) };
            queued.map_err(failed)?;
            answered.await.unwrap_or(Err(failed(Error::Closed)))
        }
    }
}

impl<O: OrderedStore> Drop for Engine<O> {
    /// Commits what was submitted and stops, without preparing for a fast opening.
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(committer) = self.committer.take()
            && committer.thread().id() != std::thread::current().id()
        {
            // Its panic, if any, has already been seen by those who waited for it.
            let _ = committer.join();
        }
    }
}

impl<O: OrderedStore> RangeStore for Engine<O> {
    type Snapshot = RangeSnapshot<O::Snapshot>;

    fn snapshot(&self, range: RangeId) -> Result<Self::Snapshot, Error> {
        let published = self.shared.board.read();
        let (snapshot, lsn) = published.range(range)?;
        Ok(RangeSnapshot { range, lsn: *lsn.borrow(), store: Arc::clone(snapshot) })
    }

    fn submit<P: Operation>(
        &self,
        range: RangeId,
        operation: P,
    ) -> impl Future<Output = Outcome<P>> + Send + use<O, P> {
        self.operate(range, None, operation)
    }

    fn submit_all<P: Operation>(
        &self,
        parts: Vec<(RangeId, P)>,
    ) -> impl Future<Output = OutcomeOfAll<P>> + Send + use<O, P> {
        let ranges: HashSet<RangeId> = parts.iter().map(|(range, _)| *range).collect();
        assert_eq!(ranges.len(), parts.len(), "a range is named twice");
        let part = |(range, operation)| (Part { range, guard: None }, operation);
        self.operate_all(parts.into_iter().map(part).collect())
    }

    fn begin(&self, range: RangeId) -> Result<Transaction<Self::Snapshot>, Error> {
        Ok(Transaction::new(range, self.snapshot(range)?))
    }

    fn commit(
        &self,
        transaction: Transaction<Self::Snapshot>,
    ) -> impl Future<Output = Result<Lsn, Error>> + Send + use<O> {
        let committed = self.commit_with(transaction, Nothing);
        async move {
            match committed.await {
                Ok(committed) => Ok(committed.lsn),
                Err(SubmitError::Refused(never, _)) => match never {},
                Err(SubmitError::Storage(error)) => Err(error),
            }
        }
    }

    fn commit_with<P: Operation>(
        &self,
        transaction: Transaction<Self::Snapshot>,
        operation: P,
    ) -> impl Future<Output = Outcome<P>> + Send + use<O, P> {
        let (range, pinned, reads, writes) = transaction.into_parts();
        self.operate(range, Some(Guard { pinned, reads, writes }), operation)
    }

    fn create_ranges(
        &self,
        ranges: &[RangeId],
    ) -> impl Future<Output = Result<(), Error>> + Send + use<O> {
        self.control(Control::Create(ranges.to_vec()))
    }

    fn advance(
        &self,
        range: RangeId,
        lsn: Lsn,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<O> {
        self.control(Control::Advance(range, lsn))
    }

    fn seal(&self, range: RangeId) -> impl Future<Output = Result<(), Error>> + Send + use<O> {
        self.control(Control::Seal(range))
    }

    fn erase(&self, range: RangeId) -> impl Future<Output = Result<(), Error>> + Send + use<O> {
        self.control(Control::Erase(range))
    }

    fn ranges(&self) -> Vec<(RangeId, Lsn)> {
        let published = self.shared.board.read();
        let mut ranges: Vec<_> =
            published.ranges.iter().map(|(range, lsn)| (*range, *lsn.borrow())).collect();
        drop(published);
        ranges.sort_unstable();
        ranges
    }

    fn wait(
        &self,
        range: RangeId,
        beyond: Lsn,
    ) -> impl Future<Output = Result<Lsn, Error>> + Send + use<O> {
        let board = Arc::clone(&self.shared.board);
        let lsn = board.read().range(range).map(|(_, lsn)| lsn.subscribe());
        async move {
            match lsn?.wait_for(|lsn| *lsn > beyond).await {
                Ok(lsn) => Ok(*lsn),
                // The sender is gone, because the range or the whole engine is.
                Err(_) => Err(board.read().range(range).err().unwrap_or(Error::NoRange(range))),
            }
        }
    }

    fn pressure(&self) -> Pressure {
        let (queued, queued_bytes) = self.shared.queue.len();
        Pressure {
            queued,
            queued_bytes,
            erasing: self.shared.erasing.load(Ordering::Relaxed),
            load: self.shared.store.load(),
        }
    }

    fn close(&self) -> impl Future<Output = Result<(), Error>> + Send + use<O> {
        self.shared.is_orderly.store(true, Ordering::Release);
        self.shared.queue.close();
        let mut finished = self.finished.clone();
        async move {
            match finished.wait_for(Option::is_some).await {
                Ok(result) => result.clone().unwrap_or(Ok(())),
                Err(_) => Err(Error::Closed),
            }
        }
    }
}

/// A version of a range of an [`Engine`].
#[derive(Debug)]
pub struct RangeSnapshot<S> {
    range: RangeId,
    lsn: Lsn,
    store: Arc<S>,
}

// Not derived, because the snapshot below need not be cloned for it.
impl<S> Clone for RangeSnapshot<S> {
    fn clone(&self) -> Self {
        Self { range: self.range, lsn: self.lsn, store: Arc::clone(&self.store) }
    }
}

impl<S: OrderedSnapshot> Snapshot for RangeSnapshot<S> {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        row::look_up(self.range, key, |key| self.store.get(key))
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), Error> {
        if is_empty_interval(from, to) {
            return Ok(());
        }
        let (from, to) = row::content_bounds(self.range, from, to);
        let (from, to) = (from.as_ref().map(Bytes::as_ref), to.as_ref().map(Bytes::as_ref));
        self.store
            .scan(from, to, direction, &mut |key, value| visit(&key[row::PREFIX_BYTES..], value))
    }
}

/// What became of operations that were submitted together.
type OutcomeOfAll<P> =
    Result<Vec<Committed<<P as Operation>::Output>>, PartError<<P as Operation>::Refusal>>;

/// The operation of a transaction that brings all its writes along.
struct Nothing;

impl Operation for Nothing {
    type Output = ();
    type Refusal = std::convert::Infallible;

    fn run(&mut self, _: &mut dyn View) -> Result<(), Stop<Self::Refusal>> {
        Ok(())
    }
}

/// Operations on their way through the committer, with their results once they have run.
struct Submitted<P: Operation> {
    operations: Vec<P>,
    outputs: Vec<P::Output>,
    refusal: Option<P::Refusal>,
    answer: oneshot::Sender<OutcomeOfAll<P>>,
}

impl<P: Operation> Job for Submitted<P> {
    fn run(&mut self, part: usize, view: &mut dyn View) -> Ran {
        match self.operations[part].run(view) {
            Ok(output) => {
                self.outputs.push(output);
                Ran::Done
            }
            Err(Stop::Refused(refusal)) => {
                self.refusal = Some(refusal);
                Ran::Refused
            }
            Err(Stop::Storage(error)) => Ran::Failed(error),
        }
    }

    fn answer(self: Box<Self>, answer: Answer) {
        let answer = match (answer, self.refusal) {
            (Ok(lsns), None) => {
                let committed = lsns.into_iter().zip(self.outputs);
                Ok(committed.map(|(lsn, output)| Committed { lsn, output }).collect())
            }
            (Ok(lsns), Some(refusal)) => {
                // The last one is that of the range of the part that refused.
                let lsn = lsns.last().copied().unwrap_or_default();
                let error = SubmitError::Refused(refusal, lsn);
                Err(PartError { part: self.outputs.len(), error })
            }
            (Err((part, error)), _) => Err(PartError { part, error: SubmitError::Storage(error) }),
        };
        // The caller may have gone; the commit stands all the same.
        let _ = self.answer.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Batch, Embedded, Load, META_RANGE, Memory, MemorySnapshot,
        contract::{Run, block_on},
    };
    use std::sync::mpsc;

    fn put() -> impl Operation<Output = (), Refusal = ()> {
        Run(|view: &mut dyn View| {
            view.put(b"a", Bytes::new());
            Ok(())
        })
    }

    /// An operation of a given size that lets the committer go on when told to.
    struct Hold {
        release: mpsc::Receiver<()>,
        size_bytes: usize,
    }

    impl Operation for Hold {
        type Output = ();
        type Refusal = ();

        fn run(&mut self, _: &mut dyn View) -> Result<(), Stop<()>> {
            self.release.recv().expect("nobody lets go");
            Ok(())
        }

        fn size_bytes(&self) -> usize {
            self.size_bytes
        }
    }

    #[test]
    fn a_full_queue_refuses_at_once() {
        let store = Embedded::in_memory();
        let hold = |size_bytes| {
            let (release, held) = mpsc::channel();
            (release, store.submit(META_RANGE, Hold { release: held, size_bytes }))
        };
        let (release, held) = hold(0);
        let waiting: Vec<_> =
            (0..2 * QUEUE_LIMIT.count).map(|_| store.submit(META_RANGE, put())).collect();
        release.send(()).unwrap();
        block_on(held).unwrap();
        let outcomes: Vec<_> = waiting.into_iter().map(block_on).collect();
        let committed = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        let refused =
            |outcome: &&Result<_, _>| matches!(outcome, Err(SubmitError::Storage(Error::Busy)));
        let busy = outcomes.iter().filter(refused).count();
        assert_eq!(committed + busy, outcomes.len());
        assert_eq!(store.snapshot(META_RANGE).unwrap().lsn(), committed as Lsn);
        assert!(committed >= QUEUE_LIMIT.count - 1 && busy > 0, "{committed} {busy}");

        // The size counts too, once the committer is busy with something else.
        let (first, held) = hold(0);
        while store.pressure().queued > 0 {
            std::thread::yield_now();
        }
        let (second, large) = hold(QUEUE_LIMIT.size_bytes);
        let refused = block_on(hold(1).1);
        assert!(matches!(refused, Err(SubmitError::Storage(Error::Busy))), "{refused:?}");
        first.send(()).unwrap();
        second.send(()).unwrap();
        block_on(held).unwrap();
        block_on(large).unwrap();
    }

    /// A store that says how it feels.
    struct Weary {
        store: Memory,
        is_weary: Arc<AtomicBool>,
    }

    impl OrderedStore for Weary {
        type Snapshot = MemorySnapshot;

        fn snapshot(&self) -> Result<MemorySnapshot, Error> {
            self.store.snapshot()
        }

        fn write(&self, batch: Batch) -> Result<(), Error> {
            self.store.write(batch)
        }

        fn load(&self) -> Load {
            Load { is_overloaded: self.is_weary.load(Ordering::Relaxed), ..Load::default() }
        }
    }

    #[test]
    fn an_overloaded_store_is_spared() {
        let is_weary = Arc::new(AtomicBool::new(true));
        let store = Weary { store: Memory::new(), is_weary: Arc::clone(&is_weary) };
        let store = Engine::with_store(store).unwrap();
        block_on(store.submit(META_RANGE, put())).unwrap();
        let refused = block_on(store.submit(META_RANGE, put()));
        assert!(matches!(refused, Err(SubmitError::Storage(Error::Busy))), "{refused:?}");
        is_weary.store(false, Ordering::Relaxed);
        assert_eq!(block_on(store.submit(META_RANGE, put())).unwrap().lsn, 2);
    }
}
