//! The directory of the embedded engine: who may open it, and whether it can be understood.
//!
//! | entry | what it is |
//! | --- | --- |
//! | `LOCK` | locked while a server uses the directory; its content means nothing |
//! | `FORMAT` | the version of everything that lies here, as text |
//! | `rows` | the ordered store |
//! | `rows/created` | says that the ordered store was made completely |
//!
//! Other entries are left alone. A half-made ordered store cannot be told from a damaged one by looking
//! at it, hence the last entry: without it nothing was ever written there, and it is made again.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::Error;

/// What this version of the crate writes.
const FORMAT: u32 = 4;

/// The oldest format that it reads. What it writes from then on is of its own format, which servers of the
/// older one do not know.
const FORMAT_OLDEST: u32 = 3;

/// What a format file begins with.
const FORMAT_NAME: &str = "orrery-data";

/// A locked directory in a format that can be read.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// The lock is given back when the file is closed.
    _lock: File,
}

impl Directory {
    /// Locks the directory, creating it if need be, and checks its format.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        fs::create_dir_all(path).map_err(|error| explain(error, "cannot create", path))?;
        let lock = lock(path)?;
        check_format(path)?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Opens the ordered store in the directory that is handed over, making it if there is none.
    pub(crate) fn open_rows<T>(
        &self,
        open: impl FnOnce(&Path) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let rows = self.rows();
        let created = rows.join("created");
        if created.try_exists()? {
            return open(&rows);
        }
        if rows.try_exists()? {
            fs::remove_dir_all(&rows)?;
        }
        let opened = open(&rows)?;
        File::create(&created)?.sync_all()?;
        sync_directory(&rows)?;
        sync_directory(&self.path)?;
        Ok(opened)
    }

    /// Where the ordered store is.
    pub(crate) fn rows(&self) -> PathBuf {
        self.path.join("rows")
    }
}

fn lock(path: &Path) -> Result<File, Error> {
    let file = path.join("LOCK");
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&file)
        .map_err(|error| explain(error, "cannot open", &file))?;
    for _ in 0..LOCK_TRIES {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) => std::thread::park_timeout(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(explain(error, "cannot lock", &file)),
        }
    }
    Err(Error::Unusable(format!(
        "data directory is in use by another server: {}; stop that one or choose another directory",
        path.display()
    )))
}

/// How often the lock is tried, for about a second in all. A server that is just ending still has it,
/// and so has, for a moment, every process that is being started from one that has it.
const LOCK_TRIES: usize = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

fn check_format(path: &Path) -> Result<(), Error> {
    let file = path.join("FORMAT");
    let text = match fs::read(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if path.join("rows").try_exists()? {
                return Err(Error::Unusable(format!(
                    "data directory has rows but no format file: {}; restore it from a backup",
                    path.display()
                )));
            }
            return write_format(path);
        }
        Err(error) => return Err(explain(error, "cannot read", &file)),
    };
    match parse_format(&text) {
        Some(FORMAT) => Ok(()),
        Some(FORMAT_OLDEST..FORMAT) => write_format(path),
        Some(found) if found < FORMAT => Err(Error::Unusable(format!(
            "data directory has the older format {found}, this server reads format {FORMAT}: {}; \
             export it with the version that wrote it and import it here",
            path.display()
        ))),
        Some(found) => Err(Error::Unusable(format!(
            "data directory has the newer format {found}, this server reads format {FORMAT}: {}; \
             use a newer server",
            path.display()
        ))),
        None => Err(Error::Unusable(format!(
            "not a format file: {}; restore it from a backup",
            file.display()
        ))),
    }
}

fn parse_format(text: &[u8]) -> Option<u32> {
    let text = str::from_utf8(text).ok()?;
    text.trim_end().strip_prefix(FORMAT_NAME)?.strip_prefix(' ')?.parse().ok()
}

/// Writes the format file so that it is found whole or not at all.
fn write_format(path: &Path) -> Result<(), Error> {
    let unfinished = path.join("FORMAT.new");
    let mut file = File::create(&unfinished)?;
    writeln!(file, "{FORMAT_NAME} {FORMAT}")?;
    file.sync_all()?;
    drop(file);
    fs::rename(&unfinished, path.join("FORMAT"))?;
    sync_directory(path)?;
    Ok(())
}

/// Makes new and renamed entries of a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    // Windows cannot open directories, and keeps their entries in its own journal.
    if cfg!(windows) { Ok(()) } else { File::open(path)?.sync_all() }
}

fn explain(error: io::Error, what: &str, path: &Path) -> Error {
    Error::Unusable(format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_parsed_strictly() {
        let check = |text: &[u8], expected| assert_eq!(parse_format(text), expected, "{text:?}");
        check(b"orrery-data 1\n", Some(1));
        check(b"orrery-data 12", Some(12));
        check(b"orrery-data", None);
        check(b"orrery-data -1", None);
        check(b"orrery-data1", None);
        check(b"", None);
        check(b"\xff", None);
    }

    #[test]
    fn another_format_is_refused_with_advice() {
        let check = |format: &str, advice: &str| {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("FORMAT"), format).unwrap();
            let error = Directory::open(directory.path()).unwrap_err().to_string();
            assert!(error.contains(advice), "{error}");
        };
        check("orrery-data 1\n", "export it with the version that wrote it");
        check(&format!("orrery-data {}\n", FORMAT + 1), "use a newer server");
        check("something", "not a format file");
    }

    #[test]
    fn the_format_before_is_read_and_becomes_this_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("FORMAT");
        fs::write(&file, format!("orrery-data {FORMAT_OLDEST}\n")).unwrap();
        drop(Directory::open(directory.path()).unwrap());
        assert_eq!(parse_format(&fs::read(&file).unwrap()), Some(FORMAT));
    }

    #[test]
    fn rows_without_a_format_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("rows")).unwrap();
        let error = Directory::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains("no format file"), "{error}");
    }

    #[test]
    fn a_directory_is_opened_once_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let first = Directory::open(directory.path()).unwrap();
        let error = Directory::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains("in use by another server"), "{error}");
        drop(first);
        Directory::open(directory.path()).unwrap();
    }

    #[test]
    fn an_interrupted_creation_starts_over() {
        let path = tempfile::tempdir().unwrap();
        let directory = Directory::open(path.path()).unwrap();
        let interrupted = directory.open_rows(|rows| {
            fs::create_dir(rows)?;
            fs::write(rows.join("half"), "")?;
            Err::<(), _>(Error::Closed)
        });
        assert!(interrupted.is_err());
        directory.open_rows(|rows| Ok(fs::create_dir(rows)?)).unwrap();
        directory
            .open_rows(|rows| {
                assert!(!rows.join("half").exists(), "the half-made one is gone");
                assert!(rows.exists(), "the whole one is kept");
                Ok(())
            })
            .unwrap();
    }
}
