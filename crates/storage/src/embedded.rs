//! The embedded engine: `fjall`, a log-structured store, in a directory of its own.
//!
//! We use it as a plain ordered store: atomic batches, snapshots, and a sync of its journal with every
//! batch. Its rows lie in two trees (see the trees module). What it lacks or does badly is guarded here:
//!
//! - It stops writers in endless loops when its background work falls behind, also when the thread
//!   that should catch up has died. We wait before the write instead, notice a store that has failed,
//!   and give up after a while.
//! - Its threads waste time while they merge tables: see the compactor module.
//! - It is slow to open after much was written, and does not open at all after some power failures: see
//!   the journal module.
//! - It asserts that keys are short. Longer ones never get here.
//!
//! After a failed write it refuses all others, and so does the committer above it.

use std::{
    io::{self, ErrorKind},
    ops::Bound,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use fjall::{Database, PersistMode, Readable};

use crate::{
    Error,
    compactor::Compactor,
    directory::Directory,
    journal::{self, EmptyWhenFlushed},
    ordered::{Batch, Direction, Load, OrderedSnapshot, OrderedStore, Visit, is_empty_interval},
    trees::Trees,
};

/// How the embedded engine uses the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Memory for blocks that were read.
    pub cache_bytes: u64,
    /// How much is gathered in memory before it is written to a table, in each of the two trees.
    pub memtable_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 128 << 20, memtable_bytes: 32 << 20 }
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
    compactor: Compactor,
    trees: Trees,
    database: Database,
    journals: EmptyWhenFlushed,
    path: PathBuf,
    _directory: Directory,
}

impl Fjall {
    /// Opens the ordered store of a directory, creating both if need be.
    pub fn open(directory: &Path, options: Options) -> Result<Self, Error> {
        let directory = Directory::open(directory)?;
        let (database, trees) = directory.open_rows(|path| open_database(path, options))?;
        let path = directory.rows();
        let journals = EmptyWhenFlushed::new(&path);
        let compactor = Compactor::start(&database, &trees, options.memtable_bytes)?;
        let opened = Opened { compactor, trees, database, journals, path, _directory: directory };
        Ok(Self { opened: Arc::new(opened) })
    }

    /// Waits until the store can take a batch without halting its writers.
    fn wait_for_room(&self) -> Result<(), Error> {
        let trees = &self.opened.trees;
        for _ in 0..PAUSES_MAX {
            let has_room = trees.sealed_memtables() < SEALED_MEMTABLES_MAX
                && trees.level0_runs() < LEVEL0_RUNS_MAX;
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
        for tree in self.opened.trees.all() {
            tree.rotate_memtable().map_err(error)?;
        }
        for _ in 0..PAUSES_MAX {
            if self.opened.trees.sealed_memtables() == 0 {
                return Ok(());
            }
            self.opened.database.persist(PersistMode::Buffer).map_err(error)?;
            std::thread::park_timeout(PAUSE);
        }
        Err(stuck())
    }
}

fn open_database(path: &Path, options: Options) -> Result<(Database, Trees), Error> {
    let open = || {
        Database::builder(path)
            .cache_size(options.cache_bytes)
            // They only flush: one for each tree.
            .worker_threads(2)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .manual_journal_persist(true)
            .open()
    };
    // What lies on the disk may be anything, and the store asserts much about it.
    let opened = catch_unwind(AssertUnwindSafe(|| journal::open_despite_torn_batch(path, open)));
    let damaged = |_| Error::Corrupt(format!("opening it panicked: {}", path.display()));
    let database = opened.map_err(damaged)?.map_err(error)?;
    let trees = Trees::open(&database, options)?;
    Ok((database, trees))
}

fn stuck() -> Error {
    Error::from(io::Error::new(ErrorKind::TimedOut, "the store does not finish its flushes"))
}

pub(crate) fn error(error: fjall::Error) -> Error {
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
        self.opened.compactor.check()?;
        self.wait_for_room()?;
        self.opened.journals.set_flushed(false);
        let database = self.opened.database.clone();
        let mut write = fjall::OwnedWriteBatch::with_capacity(database, batch.len())
            .durability(Some(PersistMode::SyncData));
        for (key, value) in batch {
            let tree = self.opened.trees.of(&key);
            match value {
                Some(value) => write.insert(tree, key, value),
                None => write.remove(tree, key),
            }
        }
        write.commit().map_err(error)?;
        self.opened.compactor.written();
        Ok(())
    }

    fn load(&self) -> Load {
        let trees = &self.opened.trees;
        let (sealed, level0_runs) = (trees.sealed_memtables(), trees.level0_runs());
        Load {
            outstanding_flushes: sealed,
            journals: self.opened.database.journal_count(),
            level0_tables: trees.all().into_iter().map(|tree| tree.l0_table_count()).sum(),
            write_buffer_bytes: self.opened.database.write_buffer_size(),
            is_overloaded: sealed >= SEALED_MEMTABLES_OVERLOAD
                || level0_runs >= LEVEL0_RUNS_OVERLOAD,
        }
    }

    fn close(&self) -> Result<(), Error> {
        self.flush()?;
        self.opened.journals.set_flushed(true);
        Ok(())
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
        let value = self.snapshot.get(self.opened.trees.of(key), key).map_err(error)?;
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
        self.opened.trees.scan(&self.snapshot, from, to, direction, visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Embedded, Local, META_RANGE, RangeId, RangeStore, Snapshot, Stop, View, WALKED,
        contract::{Run, block_on},
        row,
    };
    use fjall::AbstractTree;
    use proptest::prelude::*;
    use std::{
        collections::{BTreeMap, BTreeSet},
        fs,
        io::BufRead,
        ops::ControlFlow,
    };

    /// Small enough that tests flush and compact.
    const SMALL: Options = Options { cache_bytes: 1 << 20, memtable_bytes: 256 << 10 };

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    /// A key for a number; a third of the numbers have one that is only walked.
    fn in_either_tree(number: u32) -> Vec<u8> {
        let kind = WALKED.start - 2 + u8::try_from(number % 6).unwrap();
        [&[kind][..], &number.to_be_bytes()].concat()
    }

    fn write(store: &Embedded, range: RangeId, rows: Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        let operation = Run(move |view: &mut dyn View| {
            for (key, value) in &rows {
                match value {
                    Some(value) => view.put(key, Bytes::copy_from_slice(value)),
                    None => view.delete(key),
                }
            }
            Ok::<(), Stop<()>>(())
        });
        block_on(store.submit(range, operation)).unwrap();
    }

    fn read(store: &Embedded, range: RangeId) -> Model {
        let mut rows = Model::new();
        store
            .snapshot(range)
            .unwrap()
            .scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, &mut |key, value| {
                rows.insert(key.to_vec(), value.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
        rows
    }

    /// Writes and overwrites enough for several tables.
    fn fill(store: &Embedded, model: &mut Model, round: u32) {
        for batch in 0..20u32 {
            let rows: Vec<_> = (0..100u32)
                .map(|number| {
                    let key =
                        (number * 37 + batch * 1009 + round).wrapping_mul(2_654_435_761) % 3000;
                    let value = vec![(batch + round) as u8; 700];
                    (in_either_tree(key), (!key.is_multiple_of(5)).then_some(value))
                })
                .collect();
            for (key, value) in &rows {
                match value {
                    Some(value) => model.insert(key.clone(), value.clone()),
                    None => model.remove(key),
                };
            }
            write(store, META_RANGE, rows);
        }
    }

    fn copy_directory(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy_directory(&entry.path(), &target);
            } else {
                fs::copy(entry.path(), target).unwrap();
            }
        }
    }

    fn journals(directory: &Path) -> Vec<PathBuf> {
        journal::journals(&directory.join("rows")).unwrap()
    }

    #[test]
    fn everything_is_there_after_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let mut model = Model::new();
        for round in 0..6 {
            let store = Embedded::open(directory.path(), SMALL).unwrap();
            assert_eq!(store.ranges(), [(META_RANGE, u64::from(round) * 20)]);
            assert!(read(&store, META_RANGE) == model, "round {round}");
            fill(&store, &mut model, round);
            assert!(read(&store, META_RANGE) == model, "round {round}");
            // Every other time it stops without closing.
            if round % 2 == 0 {
                block_on(store.close()).unwrap();
                drop(store);
                let sizes = journals(directory.path())
                    .into_iter()
                    .map(|path| path.metadata().unwrap().len());
                assert_eq!(sizes.sum::<u64>(), 0, "an orderly stop leaves nothing to replay");
            }
        }
    }

    /// The store's own threads are kept from merging, so it must be seen that somebody does.
    #[test]
    fn tables_are_merged_in_the_background() {
        let directory = tempfile::tempdir().unwrap();
        let store = Embedded::open(directory.path(), SMALL).unwrap();
        let mut model = Model::new();
        for round in 0..6 {
            fill(&store, &mut model, round);
        }
        let Local::Kept(fjall) = store.store() else { panic!("it is in a directory") };
        let trees = &fjall.opened.trees;
        while trees.sealed_memtables() > 0 || trees.level0_runs() >= 4 {
            std::thread::yield_now();
        }
        for tree in trees.all().map(|keyspace| &keyspace.tree) {
            let tables_below = (1..7).filter_map(|level| tree.level_table_count(level));
            assert!(tables_below.sum::<usize>() > 0, "tables: {:?}", tree.table_count());
        }
        assert!(read(&store, META_RANGE) == model);
    }

    const SLOTS: u64 = 300;
    const SLOT_ROWS: u32 = 8;
    const VICTIM: &str = "ORRERY_TEST_STORE_TO_WRITE";

    /// The rows of a slot are in both trees.
    fn slot_key(slot: u64, row: u32) -> Vec<u8> {
        [&in_either_tree(row)[..], &slot.to_be_bytes()].concat()
    }

    /// Sets all rows of a slot to the number of the commit, so that a half commit would show.
    fn write_slot(store: &Embedded) -> u64 {
        let operation = Run(|view: &mut dyn View| {
            let (slot, value) = (view.lsn() % SLOTS, view.lsn().to_be_bytes().repeat(60));
            for row in 0..SLOT_ROWS {
                view.put(&slot_key(slot, row), value.clone().into());
            }
            Ok::<(), Stop<()>>(())
        });
        block_on(store.submit(META_RANGE, operation)).unwrap().lsn
    }

    /// Not a test of its own: the process that the test below kills.
    #[test]
    fn writes_until_it_is_killed() {
        let Ok(directory) = std::env::var(VICTIM) else { return };
        let store = Embedded::open(Path::new(&directory), SMALL).unwrap();
        for _ in 0..100_000 {
            println!("acknowledged {}", write_slot(&store));
        }
    }

    #[test]
    fn what_was_acknowledged_survives_a_kill() {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..4 {
            let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "embedded::tests::writes_until_it_is_killed", "--nocapture"])
                .env(VICTIM, directory.path())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let output = io::BufReader::new(victim.stdout.take().unwrap());
            let told = output.lines().map_while(Result::ok).filter_map(|line| {
                line.strip_prefix("acknowledged ").map(|lsn| lsn.parse::<u64>().unwrap())
            });
            let mut acknowledged = 0;
            for (count, lsn) in told.enumerate() {
                acknowledged = lsn;
                // The rest of the loop reads what was told before the end.
                if count == 300 + 70 * round {
                    victim.kill().unwrap();
                }
            }
            victim.wait().unwrap();
            let store = Embedded::open(directory.path(), SMALL).unwrap();
            let lsn = store.snapshot(META_RANGE).unwrap().lsn();
            assert!(lsn >= acknowledged && acknowledged > 0, "{lsn} {acknowledged}");
            let mut expected = Model::new();
            for commit in 1..=lsn {
                for row in 0..SLOT_ROWS {
                    expected.insert(slot_key(commit % SLOTS, row), commit.to_be_bytes().repeat(60));
                }
            }
            assert!(read(&store, META_RANGE) == expected, "round {round}, LSN {lsn}");
        }
    }

    /// A killed store of six commits, each of which sets the same ten rows, and its journal.
    fn six_commits(directory: &Path) -> (PathBuf, PathBuf, Vec<u8>) {
        let (alive, killed) = (directory.join("alive"), directory.join("killed"));
        let store = Embedded::open(&alive, SMALL).unwrap();
        for commit in 1..=6u8 {
            let rows = (0..10u8).map(|key| (vec![key], Some(vec![commit; 20]))).collect();
            write(&store, META_RANGE, rows);
        }
        copy_directory(&alive, &killed);
        let [journal] = journals(&killed).try_into().unwrap();
        let mut bytes = fs::read(&journal).unwrap();
        let written = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        bytes.truncate(written);
        (killed, journal, bytes)
    }

    /// The LSN of a store of which each commit sets the same ten rows.
    fn whole_commits(store: &Embedded) -> u64 {
        let lsn = store.snapshot(META_RANGE).unwrap().lsn();
        let rows = if lsn == 0 { 0 } else { 10 };
        let expected: Model = (0..rows).map(|key| (vec![key], vec![lsn as u8; 20])).collect();
        assert!(read(store, META_RANGE) == expected, "LSN {lsn}");
        lsn
    }

    #[test]
    fn a_torn_journal_loses_whole_commits_only() {
        let directory = tempfile::tempdir().unwrap();
        let (killed, journal, bytes) = six_commits(directory.path());
        let mut found = BTreeSet::new();
        for cut in (0..=bytes.len()).rev().step_by(bytes.len() / 40) {
            let torn = directory.path().join(format!("torn{cut}"));
            copy_directory(&killed, &torn);
            let journal = torn.join("rows").join(journal.file_name().unwrap());
            // A crash may leave the file short, or long and unwritten.
            for zeros in [0, 4096] {
                let mut bytes = bytes[..cut].to_vec();
                bytes.resize(cut + zeros, 0);
                fs::write(&journal, bytes).unwrap();
                // Where the cut separates two lengths, an assertion of the store fires that release
                // builds do not have.
                match Embedded::open(&torn, SMALL) {
                    Ok(store) => drop(found.insert(whole_commits(&store))),
                    Err(error) => assert!(error.to_string().contains("panicked"), "{error}"),
                }
            }
        }
        assert_eq!(found, (0..=6).collect(), "the cuts hit every commit");
    }

    #[test]
    fn a_damaged_last_batch_is_dropped_and_others_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (killed, journal, bytes) = six_commits(directory.path());
        for commit in 1..=6u8 {
            let damaged = directory.path().join(format!("damaged{commit}"));
            copy_directory(&killed, &damaged);
            let journal = damaged.join("rows").join(journal.file_name().unwrap());
            let mut bytes = bytes.clone();
            let value = bytes.windows(20).position(|bytes| bytes == [commit; 20]).unwrap();
            bytes[value] = 0;
            fs::write(&journal, &bytes).unwrap();
            let opened = Embedded::open(&damaged, SMALL);
            if commit == 6 {
                assert_eq!(whole_commits(&opened.unwrap()), 5);
            } else {
                let refused = opened.unwrap_err();
                assert!(matches!(refused, Error::Corrupt(_)), "{refused}");
                assert!(fs::read(&journal).unwrap() == bytes, "what is damaged is left alone");
            }
        }
    }

    #[test]
    fn erasing_goes_on_after_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let store = Embedded::open(directory.path(), SMALL).unwrap();
        block_on(store.create_ranges(&[RangeId(1), RangeId(2)])).unwrap();
        for range in [1, 2].map(RangeId) {
            let rows = (0..20_000u32).map(|key| (key.to_be_bytes().to_vec(), Some(vec![1; 30])));
            write(&store, range, rows.collect());
        }
        block_on(store.erase(RangeId(1))).unwrap();
        drop(store);
        let store = Embedded::open(directory.path(), SMALL).unwrap();
        assert_eq!(store.ranges(), [(META_RANGE, 0), (RangeId(2), 1)]);
        while store.pressure().erasing > 0 {
            std::thread::yield_now();
        }
        let (from, to) = row::content_bounds(RangeId(1), Bound::Unbounded, Bound::Unbounded);
        let (from, to) = (from.as_ref().map(Bytes::as_ref), to.as_ref().map(Bytes::as_ref));
        let snapshot = store.store().snapshot().unwrap();
        snapshot
            .scan(from, to, Direction::Forward, &mut |key, _| panic!("still there: {key:?}"))
            .unwrap();
        assert_eq!(read(&store, RangeId(2)).len(), 20_000);
        drop((store, snapshot));
        let store = Embedded::open(directory.path(), SMALL).unwrap();
        assert_eq!(store.pressure().erasing, 0);
        let again = block_on(store.create_ranges(&[RangeId(1)]));
        assert!(matches!(again, Err(Error::RangeExists(RangeId(1)))));
    }

    #[test]
    fn a_directory_is_opened_once_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let store = Embedded::open(directory.path(), SMALL).unwrap();
        let refused = Embedded::open(directory.path(), SMALL).unwrap_err();
        assert!(refused.to_string().contains("in use by another server"), "{refused}");
        block_on(store.close()).unwrap();
        drop(store);
        Embedded::open(directory.path(), SMALL).unwrap();
    }

    #[test]
    fn another_format_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        drop(Embedded::open(directory.path(), SMALL).unwrap());
        fs::write(directory.path().join("FORMAT"), "orrery-data 99\n").unwrap();
        let refused = Embedded::open(directory.path(), SMALL).unwrap_err();
        assert!(refused.to_string().contains("newer format 99"), "{refused}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() })]

        #[test]
        fn long_keys_and_values_come_back(
            rows in prop::collection::btree_map(
                (prop::collection::vec(any::<u8>(), 0..40), 0usize..=16 * 1024).prop_map(
                    |(mut key, length)| {
                        key.resize(length.max(key.len()), 7);
                        key
                    },
                ),
                prop::collection::vec(any::<u8>(), 0..3000),
                1..30,
            )
        ) {
            let directory = tempfile::tempdir().unwrap();
            let store = Embedded::open(directory.path(), SMALL).unwrap();
            write(&store, META_RANGE, rows.clone().into_iter().map(|(key, value)| (key, Some(value))).collect());
            block_on(store.close()).unwrap();
            drop(store);
            let store = Embedded::open(directory.path(), SMALL).unwrap();
            prop_assert_eq!(read(&store, META_RANGE), rows);
        }
    }
}
