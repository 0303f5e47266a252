//! What can go wrong in storage, sorted by what the caller does about it.
//!
//! `Busy` and `Conflict` are retried, `NoRange`, `RangeExists`, `Sealed` and `TooLarge` are answers
//! about the request, `Panicked` is a bug in one operation, and the rest mean that the store itself
//! is unwell. Errors are cheap to clone because a failed commit is reported to its whole group.

use std::{fmt, io, sync::Arc};

use crate::RangeId;

/// Why storage could not do what was asked.
#[derive(Debug, Clone)]
pub enum Error {
    /// The operating system refused a read or a write. After a failed write the engine is closed.
    Io(Arc<io::Error>),
    /// What is stored, or what an engine answered, contradicts itself.
    Corrupt(String),
    /// The engine was closed, in order or by a failed write; it has to be opened again.
    Closed,
    /// The range was never created, or it was erased.
    NoRange(RangeId),
    /// The range exists, or existed and was erased: ids are never used twice.
    RangeExists(RangeId),
    /// The range takes no more writes.
    Sealed(RangeId),
    /// Something that the transaction read has changed since; run it again.
    Conflict,
    /// A key, a value or a whole commit exceeds the limits of this crate.
    TooLarge,
    /// Too much is waiting to be committed; try again later.
    Busy,
    /// The operation panicked; nothing of it was kept.
    Panicked(String),
    /// The directory cannot be opened as it is; the text says why and what to do.
    Unusable(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(f, "storage input or output failed: {error}"),
            Error::Corrupt(what) => write!(f, "storage is corrupt: {what}"),
            Error::Closed => write!(f, "storage is closed until it is opened again"),
            Error::NoRange(range) => write!(f, "no such range: {}", range.0),
            Error::RangeExists(range) => write!(f, "range id is taken: {}", range.0),
            Error::Sealed(range) => write!(f, "range is sealed: {}", range.0),
            Error::Conflict => write!(f, "what the transaction read has changed"),
            Error::TooLarge => write!(f, "key, value or commit is too large"),
            Error::Busy => write!(f, "too many commits are waiting"),
            Error::Panicked(what) => write!(f, "operation panicked: {what}"),
            Error::Unusable(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(Arc::new(error))
    }
}
