//! What we do to the journals of the embedded store while it is not open.
//!
//! The store reads its whole journal when it is opened, up to 64 MB or more even if all of it has
//! reached the tables, at one to two microseconds a row. That is what makes opening slow, and flushing
//! alone does not cure it. So after an orderly stop, when everything is in tables, we empty the journal.
//!
//! The store also refuses to open when a batch is complete but its checksum is wrong. For the last batch
//! that is what a power failure may leave of a write that was never acknowledged, because pages reach
//! the disk in any order; we take such a batch away. Anywhere else it means damage, and stays refused.
//!
//! This relies on facts about the store's version, which the tests of the engine check:
//!
//! - J1: it skips what it reads from a journal if the tables already hold it.
//! - J2: it takes an empty newest journal for one in which nothing has been written yet.
//! - J3: every batch in a journal ends with the same four bytes, and a batch without them is dropped.
//! - J4: older journals were synced before the newest was begun.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::directory::sync_directory;

/// The end of every batch.
const TRAILER: [u8; 4] = [b'F', b'J', b'L', 3];

/// The name under which a journal is kept while we try to open the store without its last batch.
const ASIDE: &str = "aside";

/// Empties the journals when it is dropped, if everything is in tables.
#[derive(Debug)]
pub(crate) struct EmptyWhenFlushed {
    path: PathBuf,
    is_flushed: AtomicBool,
}

impl EmptyWhenFlushed {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), is_flushed: AtomicBool::new(false) }
    }

    /// Says whether everything has reached the tables and nothing was written since.
    pub(crate) fn set_flushed(&self, is_flushed: bool) {
        self.is_flushed.store(is_flushed, Ordering::Release);
    }
}

impl Drop for EmptyWhenFlushed {
    fn drop(&mut self) {
        if self.is_flushed.load(Ordering::Acquire)
            && let Err(error) = empty(&self.path)
        {
            // Only the next opening is slower.
            tracing::warn!(%error, "cannot empty the journal");
        }
    }
}

fn empty(path: &Path) -> io::Result<()> {
    let mut journals = journals(path)?;
    let Some(newest) = journals.pop() else { return Ok(()) };
    // Oldest first: what is left after a crash must be the end of the history.
    for journal in journals {
        fs::remove_file(journal)?;
    }
    sync_directory(path)?;
    cut(&newest, 0)
}

/// The journals in a directory, oldest first.
pub(crate) fn journals(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut journals = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_suffix(".jnl"));
        if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
            journals.push((number, path));
        }
    }
    journals.sort();
    Ok(journals.into_iter().map(|(_, path)| path).collect())
}

fn cut(journal: &Path, length: u64) -> io::Result<()> {
    let journal = File::options().write(true).open(journal)?;
    journal.set_len(length)?;
    journal.sync_all()
}

/// Opens the store; if it stumbles over a damaged batch that is the last one, takes that away and opens
/// it again.
pub(crate) fn open_despite_torn_batch<T>(
    path: &Path,
    open: impl Fn() -> fjall::Result<T>,
) -> fjall::Result<T> {
    if path.is_dir() {
        // A crash during an earlier attempt.
        put_back(path)?;
    }
    let damaged = match open() {
        Err(damaged @ fjall::Error::JournalRecovery(_)) => damaged,
        other => return other,
    };
    let Some(journal) = journals(path)?.pop() else { return Err(damaged) };
    let Some(length) = end_of_last_but_one(&fs::read(&journal)?) else { return Err(damaged) };
    let aside = journal.with_extension(ASIDE);
    fs::copy(&journal, &aside)?;
    File::open(&aside)?.sync_all()?;
    sync_directory(path)?;
    cut(&journal, length)?;
    match open() {
        Ok(opened) => {
            tracing::warn!("dropped a torn commit, which was never acknowledged");
            fs::remove_file(aside)?;
            sync_directory(path)?;
            Ok(opened)
        }
        // The damage lies deeper, so nothing is changed.
        Err(_) => {
            put_back(path)?;
            Err(damaged)
        }
    }
}

/// Where the last batch begins: behind the end of the one before, or at zero.
fn end_of_last_but_one(journal: &[u8]) -> Option<u64> {
    let ends = |journal: &[u8]| journal.windows(TRAILER.len()).rposition(|end| end == TRAILER);
    let last = ends(journal)?;
    Some(ends(&journal[..last]).map_or(0, |end| (end + TRAILER.len()) as u64))
}

fn put_back(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let aside = entry?.path();
        if aside.extension().is_some_and(|extension| extension == ASIDE) {
            fs::rename(&aside, aside.with_extension("jnl"))?;
        }
    }
    sync_directory(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_batch_is_found() {
        let check = |journal: &[u8], expected| assert_eq!(end_of_last_but_one(journal), expected);
        check(b"", None);
        check(b"one", None);
        check(b"oneFJL\x03", Some(0));
        check(b"oneFJL\x03twoFJL\x03", Some(7));
        check(b"oneFJL\x03twoFJL\x03thrFJL\x03\0\0\0", Some(14));
    }
}
