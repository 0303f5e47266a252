//! The seam that the database uses: ranges, versions, commits.
//!
//! - R1: the LSN of a range starts at 0 and grows by exactly one with every operation that writes. Only
//!   [`RangeStore::advance`] lets it jump, and never back.
//! - R2: an operation's writes become visible and durable together, or not at all; so do those of
//!   operations on several ranges that are submitted together.
//! - R3: a snapshot never shows what a crash could take back.
//! - R4: operations of a range behave as if run one after the other, in the order of their LSNs.
//! - R5: a range id is used once; after erasure it can never be created again.

use std::{
    fmt,
    future::Future,
    ops::{Bound, ControlFlow},
};

use bytes::Bytes;

use crate::{Direction, Error, Load, Transaction, Visit};

/// Names a range. Chosen by the caller, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeId(pub u64);

/// The range that describes all others. Every store has it from the beginning.
pub const META_RANGE: RangeId = RangeId(0);

/// The version of a range: how many commits have changed it.
pub type Lsn = u64;

/// The longest key that a range takes.
pub const KEY_BYTES_MAX: usize = 32 * 1024;

/// The longest value that a range takes.
pub const VALUE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The most that the keys and values written by one operation may add up to.
pub const COMMIT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Keys that begin with one of these bytes are walked in order and hardly ever looked up one by one, as
/// the entries of indexes. An engine may keep them apart from the others; to whoever uses a range
/// they are keys like all others.
pub const WALKED: std::ops::Range<u8> = 0x1F..0x22;

/// A store of ranges.
///
/// The futures do not borrow the store. Dropping one does not take the work back: an operation that
/// was submitted may still commit.
pub trait RangeStore: Send + Sync + 'static {
    /// A version of a range that does not change.
    type Snapshot: Snapshot + Clone + 'static;

    /// The newest durable version of a range.
    fn snapshot(&self, range: RangeId) -> Result<Self::Snapshot, Error>;

    /// Runs an operation on the newest state of the range and commits what it wrote.
    ///
    /// It takes its place in the order of commits at once, not when the future is first polled.
    fn submit<O: Operation>(
        &self,
        range: RangeId,
        operation: O,
    ) -> impl Future<Output = Outcome<O>> + Send + use<Self, O>;

    /// Runs operations on several ranges and commits what all of them wrote, or nothing.
    ///
    /// They run in the order given, each on the newest state of its range, and nothing comes between
    /// them: what they read, they read at one moment. The first one that ends without a result ends
    /// all. Every range that is written to advances by one, as for a single operation.
    ///
    /// # Panics
    ///
    /// If a range is named twice: what belongs together in a range belongs into one operation.
    fn submit_all<O: Operation>(
        &self,
        parts: Vec<(RangeId, O)>,
    ) -> impl Future<Output = Result<Vec<Committed<O::Output>>, PartError<O::Refusal>>>
    + Send
    + use<Self, O>;

    /// Starts a transaction on the newest durable version of a range.
    fn begin(&self, range: RangeId) -> Result<Transaction<Self::Snapshot>, Error>;

    /// Commits a transaction; [`Error::Conflict`] if anything that it read has changed since.
    ///
    /// The result is the LSN of the range afterwards. A transaction that wrote nothing does not
    /// advance it.
    fn commit(
        &self,
        transaction: Transaction<Self::Snapshot>,
    ) -> impl Future<Output = Result<Lsn, Error>> + Send + use<Self>;

    /// Commits a transaction and, in the same commit, an operation that runs after it.
    ///
    /// The operation sees the transaction's writes and knows the LSN of the commit, which the
    /// transaction cannot. Rows that contain the LSN are therefore best written here. The conflict
    /// check covers the transaction's reads; those of the operation are always fresh.
    fn commit_with<O: Operation>(
        &self,
        transaction: Transaction<Self::Snapshot>,
        operation: O,
    ) -> impl Future<Output = Outcome<O>> + Send + use<Self, O>;

    /// Creates empty ranges, all or none, with LSN 0. Durable when the future resolves.
    fn create_ranges(
        &self,
        ranges: &[RangeId],
    ) -> impl Future<Output = Result<(), Error>> + Send + use<Self>;

    /// Raises the LSN of a range to this number, if it is lower. For a range that takes over from
    /// another one and goes on counting where that ended.
    fn advance(
        &self,
        range: RangeId,
        lsn: Lsn,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<Self>;

    /// Ends all writing to a range; what is there can still be read. Sealing twice is no error.
    fn seal(&self, range: RangeId) -> impl Future<Output = Result<(), Error>> + Send + use<Self>;

    /// Erases a range. When the future resolves it is gone for readers and writers, durably; its
    /// rows are removed in the background, also after a restart. Snapshots taken before stay valid.
    fn erase(&self, range: RangeId) -> impl Future<Output = Result<(), Error>> + Send + use<Self>;

    /// All ranges with their durable LSNs, in ascending order of ids.
    fn ranges(&self) -> Vec<(RangeId, Lsn)>;

    /// Resolves with the durable LSN of the range once that is greater than `beyond`.
    fn wait(
        &self,
        range: RangeId,
        beyond: Lsn,
    ) -> impl Future<Output = Result<Lsn, Error>> + Send + use<Self>;

    /// How much is waiting.
    fn pressure(&self) -> Pressure;

    /// Stops in order: what was submitted is committed, then the engine prepares for a fast opening.
    /// Everything submitted later is refused. Closing again waits for nothing and is no error.
    fn close(&self) -> impl Future<Output = Result<(), Error>> + Send + use<Self>;
}

/// One version of one range. Keys are those of the range.
pub trait Snapshot: Send + Sync {
    /// The version.
    fn lsn(&self) -> Lsn;

    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error>;

    /// Reads many keys and hands each value over with the offset of its key. Fastest when the keys
    /// are sorted.
    fn get_many(
        &self,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(usize, Option<Bytes>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        for (offset, key) in keys.iter().enumerate() {
            if visit(offset, self.get(key)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Visits the rows between the bounds. An interval that contains no key, also one whose bounds
    /// are the wrong way round, visits nothing. The visitor may read from the same snapshot.
    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), Error>;
}

/// A write: reads, a decision, then puts and deletes.
///
/// An operation must depend on nothing but itself and the view, because an engine may run it again.
/// It runs on the thread that commits for everybody, so it should be brief.
pub trait Operation: Send + 'static {
    /// What the caller learns when the operation is committed.
    type Output: Send + 'static;
    /// Why the operation may decide to change nothing.
    type Refusal: Send + 'static;

    /// Runs the operation. After `Err` nothing that it wrote is kept.
    fn run(&mut self, view: &mut dyn View) -> Result<Self::Output, Stop<Self::Refusal>>;

    /// Roughly the memory that the operation occupies while it waits. Bounds the queue.
    fn size_bytes(&self) -> usize {
        0
    }
}

/// The state that an operation or a transaction works on: a version of the range with its own writes
/// on top.
pub trait View {
    /// The LSN at which this commits.
    ///
    /// A transaction cannot know it for certain, so asking counts as a read of the whole range: it
    /// then commits only if no other commit came in between.
    fn lsn(&self) -> Lsn;

    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error>;

    /// Visits the rows between the bounds, as [`Snapshot::scan`] does.
    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), Error>;

    /// Sets the value of a key. Limits are checked at the end: [`Error::TooLarge`].
    fn put(&mut self, key: &[u8], value: Bytes);

    /// Removes a key; nothing happens if it is not there.
    fn delete(&mut self, key: &[u8]);
}

/// Why an operation ended without a result.
#[derive(Debug, Clone)]
pub enum Stop<R> {
    /// It decided against it.
    Refused(R),
    /// It could not read.
    Storage(Error),
}

impl<R> From<Error> for Stop<R> {
    fn from(error: Error) -> Self {
        Stop::Storage(error)
    }
}

/// A committed operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed<T> {
    /// The LSN of the range after the operation. One that wrote nothing does not advance it.
    pub lsn: Lsn,
    /// What the operation returned.
    pub output: T,
}

/// What became of a submitted operation.
pub type Outcome<O> =
    Result<Committed<<O as Operation>::Output>, SubmitError<<O as Operation>::Refusal>>;

/// Why a submitted operation was not committed.
#[derive(Debug, Clone)]
pub enum SubmitError<R> {
    /// The operation refused, looking at this LSN of the range.
    Refused(R, Lsn),
    /// Storage failed. After [`Error::Io`] the operation may or may not be there after reopening.
    Storage(Error),
}

impl<R> From<Error> for SubmitError<R> {
    fn from(error: Error) -> Self {
        SubmitError::Storage(error)
    }
}

impl<R: fmt::Debug> fmt::Display for SubmitError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubmitError::Refused(refusal, lsn) => write!(f, "refused at {lsn}: {refusal:?}"),
            SubmitError::Storage(error) => error.fmt(f),
        }
    }
}

impl<R: fmt::Debug> std::error::Error for SubmitError<R> {}

/// Why operations that were submitted together were not committed.
#[derive(Debug, Clone)]
pub struct PartError<R> {
    /// The offset of the operation that ended all.
    pub part: usize,
    /// How it ended. A failure of the storage may concern any of them.
    pub error: SubmitError<R>,
}

impl<R: fmt::Debug> fmt::Display for PartError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}: {}", self.part, self.error)
    }
}

impl<R: fmt::Debug> std::error::Error for PartError<R> {}

/// How much is waiting in a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Operations that wait for the committer.
    pub queued: usize,
    /// Their size, as far as they tell it.
    pub queued_bytes: usize,
    /// Ranges whose rows are still being removed.
    pub erasing: usize,
    /// Unfinished work of the ordered store below.
    pub load: Load,
}
