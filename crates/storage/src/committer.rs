//! The one thread that writes.
//!
//! It takes everything that waits, of all ranges, runs it in order over one overlay, and writes the
//! outcome as a single atomic, durable batch; then it shows the new state on the board, and only then
//! it answers. While the batch is being synced the next group gathers in the queue, so groups grow
//! with the load and nobody waits on purpose.
//!
//! - C1: what an operation saw of its predecessors in the group is durable before it is answered,
//!   also when it refused or only read.
//! - C2: a refused, failed or panicking operation leaves nothing in the overlay.
//! - C3: after a failed write nothing is known about the store. The group is answered with the
//!   error, everything else with [`Error::Closed`], until the store is opened again.
//! - C4: the header of a range is written with every commit that changes it, so LSNs stay dense.

use std::{
    collections::{BTreeSet, HashMap, VecDeque, hash_map::Entry},
    ops::{Bound, ControlFlow},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::AtomicBool, atomic::AtomicUsize, atomic::Ordering},
    thread::JoinHandle,
};

use bytes::{Buf, Bytes};
use tokio::sync::{oneshot, watch};

use crate::{
    COMMIT_BYTES_MAX, Direction, Error, Lsn, META_RANGE, OrderedSnapshot, OrderedStore, RangeId,
    View, Visit,
    engine::{Board, Published, Shared},
    ordered::is_empty_interval,
    overlay::{Overlay, Pending, scan_merged},
    queue::{Next, Queue},
    recent::Recent,
    row::{self, Header, State},
    transaction::{Reads, fits},
};

/// A group ends when it holds this many operations or has written this much.
const GROUP_COUNT_MAX: usize = 1024;
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Rows of erased ranges that are removed at a time, beside other work and without it.
const ERASE_ROWS_BUSY: usize = 256;
const ERASE_ROWS_IDLE: usize = 4096;

/// What the committer is asked to do.
pub(crate) enum Task {
    Operation { parts: Vec<Part>, job: Box<dyn Job> },
    Control { control: Control, answer: oneshot::Sender<Result<(), Error>> },
}

/// A change to the ranges themselves.
#[derive(Debug)]
pub(crate) enum Control {
    Create(Vec<RangeId>),
    Advance(RangeId, Lsn),
    Seal(RangeId),
    Erase(RangeId),
}

/// What an operation does in one range. Most have one part only.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) range: RangeId,
    pub(crate) guard: Option<Guard>,
}

/// The part of a transaction that the committer checks and applies before the operation runs.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) pinned: Lsn,
    pub(crate) reads: Reads,
    pub(crate) writes: Pending,
}

impl Guard {
    pub(crate) fn size_bytes(&self) -> usize {
        let row = |(key, value): (&Bytes, &Option<Bytes>)| {
            key.len() + value.as_ref().map_or(0, Bytes::len)
        };
        self.writes.iter().map(row).sum()
    }
}

/// An operation whose types the committer does not know.
pub(crate) trait Job: Send {
    /// Runs a part; they come in order, and after one that is not done no other.
    fn run(&mut self, part: usize, view: &mut dyn View) -> Ran;
    fn answer(self: Box<Self>, answer: Answer);
}

/// How an operation ended.
#[derive(Debug)]
pub(crate) enum Ran {
    Done,
    Refused,
    Failed(Error),
}

/// How a part of an operation ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Done,
    Refused,
}

/// The LSN of each part's range after the operation; up to the part that refused, if one did. Or
/// which part could not be committed, and why.
pub(crate) type Answer = Result<Vec<Lsn>, (usize, Error)>;

/// Somebody who waits for the end of the group.
enum Caller {
    Operation(Box<dyn Job>, Answer),
    Control(oneshot::Sender<Result<(), Error>>, Result<(), Error>),
}

impl Caller {
    fn answer(self, group: &Result<(), Error>) {
        match (self, group) {
            (Caller::Operation(job, Ok(_)), Err(error)) => job.answer(Err((0, error.clone()))),
            (Caller::Operation(job, answer), _) => job.answer(answer),
            (Caller::Control(sender, answer), group) => {
                // The caller may have gone; what was done stays done.
                let _ = sender.send(answer.and(group.clone()));
            }
        }
    }
}

/// Reads the ranges, shows them on the board and starts the thread.
pub(crate) fn start<O: OrderedStore>(
    store: O,
    queue: Queue<Task>,
    finish: watch::Sender<Option<Result<(), Error>>>,
) -> Result<(Arc<Shared<O>>, JoinHandle<()>), Error> {
    let mut headers = read_headers(&store.snapshot()?)?;
    if let Entry::Vacant(meta) = headers.entry(META_RANGE) {
        let header = Header { state: State::Open, lsn: 0 };
        store.write(vec![(row::header_key(META_RANGE), Some(header.encode()))])?;
        meta.insert(header);
    }
    let base = Arc::new(store.snapshot()?);
    let erasing: VecDeque<Erasing> = headers
        .iter()
        .filter(|(_, header)| header.state == State::Erasing)
        .map(|(range, _)| Erasing { range: *range, after: None })
        .collect();
    let readable = headers.iter().filter(|(_, header)| is_readable(header.state));
    let ranges = readable.map(|(range, header)| (*range, watch::Sender::new(header.lsn))).collect();
    let published = Published { snapshot: Some(Arc::clone(&base)), ranges };
    let shared = Arc::new(Shared {
        store,
        queue,
        board: Arc::new(Board::new(published)),
        is_orderly: AtomicBool::new(false),
        is_overloaded: AtomicBool::new(false),
        erasing: AtomicUsize::new(erasing.len()),
    });
    let committer = Committer {
        shared: Arc::clone(&shared),
        headers,
        base,
        overlay: Overlay::default(),
        changed: BTreeSet::new(),
        recent: Recent::default(),
        erasing,
    };
    let thread = std::thread::Builder::new()
        .name("committer".to_owned())
        .spawn(move || committer.run(&finish))?;
    Ok((shared, thread))
}

fn read_headers(snapshot: &impl OrderedSnapshot) -> Result<HashMap<RangeId, Header>, Error> {
    let mut headers = HashMap::new();
    let mut damaged = None;
    let (from, to) = row::HEADERS;
    snapshot.scan(from, to, Direction::Forward, &mut |key, value| {
        let header =
            row::header_range(key).and_then(|range| Ok((range, Header::decode(range, value)?)));
        match header {
            Ok((range, header)) => {
                headers.insert(range, header);
                ControlFlow::Continue(())
            }
            Err(error) => {
                damaged = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    damaged.map_or(Ok(headers), Err)
}

fn is_readable(state: State) -> bool {
    matches!(state, State::Open | State::Sealed)
}

/// A range whose rows are being removed.
struct Erasing {
    range: RangeId,
    /// The last stored key that was removed. Starting over would wade through all that is deleted.
    after: Option<Bytes>,
}

struct Committer<O: OrderedStore> {
    shared: Arc<Shared<O>>,
    /// All ranges that exist or existed, with the effects of the present group.
    headers: HashMap<RangeId, Header>,
    /// The newest durable version.
    base: Arc<O::Snapshot>,
    overlay: Overlay,
    /// Ranges whose headers the present group has changed.
    changed: BTreeSet<RangeId>,
    recent: Recent,
    erasing: VecDeque<Erasing>,
}

/// Refuses whatever comes when the committer ends, also when it ends by a panic.
struct Refuse<O: OrderedStore>(Arc<Shared<O>>);

impl<O: OrderedStore> Drop for Refuse<O> {
    fn drop(&mut self) {
        self.0.queue.close();
        self.0.board.clear();
        // Dropping the tasks tells their callers that the engine is closed.
        while let Next::Entries(_) = self.0.queue.take(usize::MAX, false) {}
    }
}

impl<O: OrderedStore> Committer<O> {
    fn run(mut self, finish: &watch::Sender<Option<Result<(), Error>>>) {
        let refuse = Refuse(Arc::clone(&self.shared));
        let mut result = self.run_groups();
        if result.is_ok() && self.shared.is_orderly.load(Ordering::Acquire) {
            result = self.shared.store.close();
        }
        if let Err(error) = &result {
            tracing::error!(%error, "storage is closed because a write failed");
        }
        drop(refuse);
        finish.send_replace(Some(result));
    }

    /// Runs until the queue ends or a write fails.
    fn run_groups(&mut self) -> Result<(), Error> {
        let mut tasks = VecDeque::new();
        loop {
            if tasks.is_empty() {
                match self.shared.queue.take(GROUP_COUNT_MAX, self.erasing.is_empty()) {
                    Next::Entries(taken) => tasks = taken,
                    Next::Nothing => {}
                    Next::End => return Ok(()),
                }
            }
            let erase_rows = if tasks.is_empty() { ERASE_ROWS_IDLE } else { ERASE_ROWS_BUSY };
            let mut callers = Vec::with_capacity(tasks.len());
            while self.overlay.kept_bytes() < GROUP_BYTES_MAX {
                let Some((_, task)) = tasks.pop_front() else { break };
                callers.push(self.perform(task));
            }
            let committed = self.erase_some(erase_rows).and_then(|()| self.commit());
            if committed.is_err() {
                // Keeps C3: nobody may hear of success or see this state any more.
                self.shared.queue.close();
                self.shared.board.clear();
            }
            for caller in callers {
                caller.answer(&committed);
            }
            committed?;
        }
    }

    fn perform(&mut self, task: Task) -> Caller {
        match task {
            Task::Operation { parts, mut job } => {
                let answer = self.operate(parts, job.as_mut());
                Caller::Operation(job, answer)
            }
            Task::Control { control, answer } => {
                let result = match control {
                    Control::Create(ranges) => self.create(&ranges),
                    Control::Advance(range, lsn) => self.raise(range, lsn),
                    Control::Seal(range) => self.seal(range),
                    Control::Erase(range) => self.erase(range),
                };
                Caller::Control(answer, result)
            }
        }
    }

    fn readable(&self, range: RangeId) -> Result<Header, Error> {
        let header = self.headers.get(&range).copied();
        header.filter(|header| is_readable(header.state)).ok_or(Error::NoRange(range))
    }

    fn set_header(&mut self, range: RangeId, header: Header) {
        self.headers.insert(range, header);
        self.changed.insert(range);
    }

    fn operate(&mut self, parts: Vec<Part>, job: &mut dyn Job) -> Answer {
        let mut lsns = Vec::with_capacity(parts.len());
        let ranges: Vec<RangeId> = parts.iter().map(|part| part.range).collect();
        for (at, part) in parts.into_iter().enumerate() {
            let (lsn, ended) = self.run_part(at, part, job).map_err(|error| {
                // Keeps C2, here and below.
                self.overlay.take_back();
                (at, error)
            })?;
            lsns.push(lsn);
            if ended == Ended::Refused {
                self.overlay.take_back();
                return Ok(lsns);
            }
        }
        let mut keys = self.overlay.keep();
        for (range, lsn) in ranges.iter().zip(&mut lsns) {
            let own = if ranges.len() == 1 {
                std::mem::take(&mut keys)
            } else {
                keys.extract_if(.., |key| row::is_content_of(*range, key)).collect()
            };
            self.advance(*range, own, lsn);
        }
        Ok(lsns)
    }

    /// Runs one part of an operation. Returns the LSN of its range before it.
    fn run_part(
        &mut self,
        at: usize,
        Part { range, guard }: Part,
        job: &mut dyn Job,
    ) -> Result<(Lsn, Ended), Error> {
        let header = self.readable(range)?;
        if header.state == State::Sealed {
            return Err(Error::Sealed(range));
        }
        if let Some(guard) = &guard
            && self.recent.conflicts(range, guard.pinned, header.lsn, &guard.reads)
        {
            return Err(Error::Conflict);
        }
        let mut view = GroupView {
            base: self.base.as_ref(),
            overlay: &mut self.overlay,
            range,
            lsn: header.lsn + 1,
            is_too_large: false,
        };
        view.apply(guard.map(|guard| guard.writes));
        let ran = catch_unwind(AssertUnwindSafe(|| job.run(at, &mut view)))
            .unwrap_or_else(|panic| Ran::Failed(Error::Panicked(panic_message(panic.as_ref()))));
        match ran {
            Ran::Done if view.is_too_large => Err(Error::TooLarge),
            Ran::Done => Ok((header.lsn, Ended::Done)),
            Ran::Refused => Ok((header.lsn, Ended::Refused)),
            Ran::Failed(error) => Err(error),
        }
    }

    /// Counts what an operation wrote to a range, if it wrote anything.
    fn advance(&mut self, range: RangeId, mut keys: Vec<Bytes>, lsn: &mut Lsn) {
        if keys.is_empty() {
            return;
        }
        *lsn += 1;
        keys.iter_mut().for_each(|key| key.advance(row::PREFIX_BYTES));
        self.recent.remember(range, *lsn, keys);
        self.set_header(range, Header { state: State::Open, lsn: *lsn });
    }

    fn create(&mut self, ranges: &[RangeId]) -> Result<(), Error> {
        let mut seen = BTreeSet::new();
        for range in ranges {
            if self.headers.contains_key(range) || !seen.insert(*range) {
                return Err(Error::RangeExists(*range));
            }
        }
        for range in ranges {
            self.set_header(*range, Header { state: State::Open, lsn: 0 });
        }
        Ok(())
    }

    fn raise(&mut self, range: RangeId, lsn: Lsn) -> Result<(), Error> {
        let header = self.readable(range)?;
        if header.state == State::Sealed {
            return Err(Error::Sealed(range));
        }
        self.set_header(range, Header { lsn: header.lsn.max(lsn), ..header });
        Ok(())
    }

    fn seal(&mut self, range: RangeId) -> Result<(), Error> {
        let header = self.readable(range)?;
        self.set_header(range, Header { state: State::Sealed, ..header });
        Ok(())
    }

    fn erase(&mut self, range: RangeId) -> Result<(), Error> {
        let header = self.readable(range)?;
        self.set_header(range, Header { state: State::Erasing, ..header });
        self.erasing.push_back(Erasing { range, after: None });
        Ok(())
    }

    /// Adds the removal of some rows of erased ranges to the group.
    fn erase_some(&mut self, rows_max: usize) -> Result<(), Error> {
        let Some(Erasing { range, after }) = self.erasing.front() else { return Ok(()) };
        let range = *range;
        if self.changed.contains(&range) {
            // Erased in this very group, which may hold rows that the base does not have yet.
            return Ok(());
        }
        let (from, to) = row::content_bounds(range, Bound::Unbounded, Bound::Unbounded);
        let from = after.clone().map_or(from, Bound::Excluded);
        let (from, to) = (from.as_ref().map(Bytes::as_ref), to.as_ref().map(Bytes::as_ref));
        let mut keys = Vec::new();
        self.base.scan(from, to, Direction::Forward, &mut |key, _| {
            keys.push(Bytes::copy_from_slice(key));
            if keys.len() < rows_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if keys.len() < rows_max {
            self.erasing.pop_front();
            let lsn = self.headers.get(&range).map_or(0, |header| header.lsn);
            self.set_header(range, Header { state: State::Erased, lsn });
        } else if let Some(first) = self.erasing.front_mut() {
            first.after = keys.last().cloned();
        }
        for key in keys {
            self.overlay.set(key, None);
        }
        self.overlay.keep();
        Ok(())
    }

    /// Writes the group and shows the new state.
    fn commit(&mut self) -> Result<(), Error> {
        for range in &self.changed {
            let header = self.headers.get(range).expect("a changed range has a header");
            self.overlay.set(row::header_key(*range), Some(header.encode()));
        }
        self.overlay.keep();
        let batch = self.overlay.take_batch();
        if batch.is_empty() {
            return Ok(());
        }
        self.shared.store.write(batch)?;
        self.base = Arc::new(self.shared.store.snapshot()?);
        self.publish();
        let is_overloaded = self.shared.store.load().is_overloaded;
        self.shared.is_overloaded.store(is_overloaded, Ordering::Relaxed);
        self.shared.erasing.store(self.erasing.len(), Ordering::Relaxed);
        Ok(())
    }

    fn publish(&mut self) {
        let mut published = self.shared.board.write();
        let previous = published.snapshot.replace(Arc::clone(&self.base));
        for range in std::mem::take(&mut self.changed) {
            let header = self.headers.get(&range).expect("a changed range has a header");
            if is_readable(header.state) {
                let lsn = published.ranges.entry(range).or_insert_with(|| watch::Sender::new(0));
                lsn.send_replace(header.lsn);
            } else {
                published.ranges.remove(&range);
            }
        }
        drop(published);
        // Letting go of a version may take a moment, which no reader should wait for.
        drop(previous);
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "?".to_owned())
}

/// What an operation sees: the durable version, the writes of the group before it, and its own.
struct GroupView<'a, S> {
    base: &'a S,
    overlay: &'a mut Overlay,
    range: RangeId,
    lsn: Lsn,
    is_too_large: bool,
}

impl<S: OrderedSnapshot> GroupView<'_, S> {
    fn apply(&mut self, writes: Option<Pending>) {
        for (key, value) in writes.into_iter().flatten() {
            self.set(&key, value);
        }
    }

    fn set(&mut self, key: &[u8], value: Option<Bytes>) {
        let value_bytes = value.as_ref().map_or(0, Bytes::len);
        let is_full = self.overlay.operation_bytes() > COMMIT_BYTES_MAX;
        if self.is_too_large || is_full || !fits(key.len(), value_bytes) {
            // The operation will be taken back, so it need not be remembered any further.
            self.is_too_large = true;
            return;
        }
        self.overlay.set_copied(&row::content_prefix(self.range), key, value);
    }
}

impl<S: OrderedSnapshot> View for GroupView<'_, S> {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        row::look_up(self.range, key, |key| match self.overlay.pending().get(key) {
            Some(value) => Ok(value.clone()),
            None => self.base.get(key),
        })
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
        scan_merged(
            self.overlay.pending(),
            from,
            to,
            direction,
            &mut |key, value| visit(&key[row::PREFIX_BYTES..], value),
            |visit| self.base.scan(from, to, direction, visit),
        )
    }

    fn put(&mut self, key: &[u8], value: Bytes) {
        self.set(key, Some(value));
    }

    fn delete(&mut self, key: &[u8]) {
        self.set(key, None);
    }
}
