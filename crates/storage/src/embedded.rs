//! The embedded engine: `fjall`, a log-structured store, in a directory of its own.
//!
//! We use it as a plain ordered store with one keyspace: atomic batches, snapshots, and a sync of its
//! journal with every batch. What it lacks or does badly is guarded here:
//!
//! - It stops writers in endless loops when its background work falls behind, also when the thread
//!   that should catch up has died. We wait before the write instead, notice a store that has failed,
//!   and give up after a while.
//! - It reads its whole journal when it is opened, up to 64 MB or more even if all of it has reached
//!   the tables, at one to two microseconds a row: that is what makes opening slow, and flushing alone
//!   does not cure it. After an orderly stop, when everything is in tables, we empty the journal.
//! - It asserts that keys are short. Longer ones never get here.
//!
//! After a failed write it refuses all others, and so does the committer above it.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    ops::Bound,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};

use crate::{
    Engine, Error,
    directory::{Directory, sync_directory},
    ordered::{Batch, Direction, Load, OrderedSnapshot, OrderedStore, Visit, is_empty_interval},
};

/// A range store in a directory.
pub type Embedded = Engine<Fjall>;

/// How the embedded engine uses the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Memory for blocks that were read.
    pub cache_bytes: u64,
    /// How much is gathered in memory before it is written to a table.
    pub memtable_bytes: u64,
    /// Threads that flush and compact; at least two, so that one is always free to flush.
    pub worker_threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 128 << 20, memtable_bytes: 32 << 20, worker_threads: 2 }
    }
}

impl Engine<Fjall> {
    /// Opens a range store in a directory, creating both if need be.
    pub fn open(directory: &Path, options: Options) -> Result<Self, Error> {
        Self::with_store(Fjall::open(directory, options)?)
    }
}

/// Wait while this many memory tables are unflushed. The store itself halts its writers at four, and
/// two more can be added while a batch is written.
const SEALED_MEMTABLES_MAX: usize = 2;

/// Wait while this many runs lie in the newest level. The store itself halts its writers at thirty.
const LEVEL0_RUNS_MAX: usize = 26;

/// Refuse new work when this much is unfinished.
const SEALED_MEMTABLES_OVERLOAD: usize = 3;
const LEVEL0_RUNS_OVERLOAD: usize = 24;

/// How often, and how many times, to look whether the store has caught up: a minute in all.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSES_MAX: usize = 12_000;

/// Journals that the store may keep before it flushes to be rid of them. The least that it accepts.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

const KEYSPACE: &str = "rows";

/// An ordered store in a directory.
#[derive(Clone)]
pub struct Fjall {
    opened: Arc<Opened>,
}

impl std::fmt::Debug for Fjall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fjall").field("rows", &self.opened.path).finish_non_exhaustive()
    }
}

/// Everything that must be gone before the directory is given back, in the order in which it goes.
struct Opened {
    rows: Keyspace,
    database: Database,
    journals: Journals,
    path: PathBuf,
    _directory: Directory,
}

impl Fjall {
    /// Opens the ordered store of a directory, creating both if need be.
    pub fn open(directory: &Path, options: Options) -> Result<Self, Error> {
        let directory = Directory::open(directory)?;
        let (database, rows) = directory.open_rows(|path| open_database(path, options))?;
        let path = directory.rows();
        let journals = Journals { path: path.clone(), is_flushed: AtomicBool::new(false) };
        let opened = Opened { rows, database, journals, path, _directory: directory };
        Ok(Self { opened: Arc::new(opened) })
    }

    /// Waits until the store can take a batch without halting its writers.
    fn wait_for_room(&self) -> Result<(), Error> {
        let tree = &self.opened.rows.tree;
        for _ in 0..PAUSES_MAX {
            let has_room = tree.sealed_memtable_count() < SEALED_MEMTABLES_MAX
                && tree.l0_run_count() < LEVEL0_RUNS_MAX;
            if has_room {
                return Ok(());
            }
            // Fails if a background thread has failed, which then never catches up.
            self.opened.database.persist(PersistMode::Buffer).map_err(error)?;
            std::thread::park_timeout(PAUSE);
        }
        Err(stuck())
    }

    /// Waits until everything is in tables.
    fn flush(&self) -> Result<(), Error> {
        self.opened.rows.rotate_memtable().map_err(error)?;
        for _ in 0..PAUSES_MAX {
            if self.opened.rows.tree.sealed_memtable_count() == 0 {
                return Ok(());
            }
            self.opened.database.persist(PersistMode::Buffer).map_err(error)?;
            std::thread::park_timeout(PAUSE);
        }
        Err(stuck())
    }
}

fn open_database(path: &Path, options: Options) -> Result<(Database, Keyspace), Error> {
    let database = Database::builder(path)
        .cache_size(options.cache_bytes)
        .worker_threads(options.worker_threads.max(2))
        .max_journaling_size(JOURNAL_BYTES_MAX)
        .manual_journal_persist(true)
        .open()
        .map_err(error)?;
    let create = || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(options.memtable_bytes)
            .manual_journal_persist(true)
    };
    let rows = database.keyspace(KEYSPACE, create).map_err(error)?;
    Ok((database, rows))
}

fn stuck() -> Error {
    Error::from(io::Error::new(ErrorKind::TimedOut, "the store does not finish its flushes"))
}

fn error(error: fjall::Error) -> Error {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
            Error::from(error)
        }
        fjall::Error::Poisoned => Error::from(io::Error::other("an earlier write failed")),
        fjall::Error::Locked => Error::Unusable("data directory is locked".to_owned()),
        other => Error::Corrupt(other.to_string()),
    }
}

impl OrderedStore for Fjall {
    type Snapshot = FjallSnapshot;

    fn snapshot(&self) -> Result<FjallSnapshot, Error> {
        let snapshot = self.opened.database.snapshot();
        Ok(FjallSnapshot { snapshot, opened: Arc::clone(&self.opened) })
    }

    fn write(&self, batch: Batch) -> Result<(), Error> {
        self.wait_for_room()?;
        self.opened.journals.is_flushed.store(false, Ordering::Release);
        let database = self.opened.database.clone();
        let mut write = fjall::OwnedWriteBatch::with_capacity(database, batch.len())
            .durability(Some(PersistMode::SyncData));
        for (key, value) in batch {
            match value {
                Some(value) => write.insert(&self.opened.rows, key, value),
                None => write.remove(&self.opened.rows, key),
            }
        }
        write.commit().map_err(error)
    }

    fn load(&self) -> Load {
        let tree = &self.opened.rows.tree;
        let (sealed, level0_runs) = (tree.sealed_memtable_count(), tree.l0_run_count());
        Load {
            outstanding_flushes: sealed,
            journals: self.opened.database.journal_count(),
            level0_tables: self.opened.rows.l0_table_count(),
            write_buffer_bytes: self.opened.database.write_buffer_size(),
            is_overloaded: sealed >= SEALED_MEMTABLES_OVERLOAD
                || level0_runs >= LEVEL0_RUNS_OVERLOAD,
        }
    }

    fn close(&self) -> Result<(), Error> {
        self.flush()?;
        self.opened.journals.is_flushed.store(true, Ordering::Release);
        Ok(())
    }
}

/// The journals of a store, which are emptied after an orderly stop.
///
/// This relies on two facts about the store: it skips what it reads from a journal if the tables
/// already hold it, so leaving it out changes nothing; and it takes an empty newest journal for one
/// in which nothing has been written yet.
struct Journals {
    path: PathBuf,
    /// Whether everything has reached the tables and nothing was written since.
    is_flushed: AtomicBool,
}

impl Drop for Journals {
    fn drop(&mut self) {
        if self.is_flushed.load(Ordering::Acquire)
            && let Err(error) = self.empty()
        {
            // Only the next opening is slower.
            tracing::warn!(%error, "cannot empty the journal");
        }
    }
}

impl Journals {
    fn empty(&self) -> io::Result<()> {
        let mut journals = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let number = path.file_name().and_then(|name| name.to_str());
            let number = number.and_then(|name| name.strip_suffix(".jnl"));
            if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
                journals.push((number, path));
            }
        }
        journals.sort();
        let Some((_, newest)) = journals.pop() else { return Ok(()) };
        // Oldest first: what is left after a crash must be the end of the history.
        for (_, path) in journals {
            fs::remove_file(path)?;
        }
        sync_directory(&self.path)?;
        let newest = File::options().write(true).open(newest)?;
        newest.set_len(0)?;
        newest.sync_all()
    }
}

/// A version of a [`Fjall`].
pub struct FjallSnapshot {
    snapshot: fjall::Snapshot,
    opened: Arc<Opened>,
}

impl std::fmt::Debug for FjallSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FjallSnapshot").finish_non_exhaustive()
    }
}

impl OrderedSnapshot for FjallSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let value = self.snapshot.get(&self.opened.rows, key).map_err(error)?;
        Ok(value.map(Bytes::from))
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
        let mut rows = self.snapshot.range::<&[u8], _>(&self.opened.rows, (from, to));
        loop {
            let row = match direction {
                Direction::Forward => rows.next(),
                Direction::Backward => rows.next_back(),
            };
            let Some(row) = row else { return Ok(()) };
            let (key, value) = row.into_inner().map_err(error)?;
            if visit(&key, &Bytes::from(value)).is_break() {
                return Ok(());
            }
        }
    }
}
