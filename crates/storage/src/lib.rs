//! Ranges of ordered bytes with versions and commits, and the engines behind them.
//!
//! The database above cuts its data into *ranges*. A range holds ordered byte keys and has a
//! version, its LSN, which grows by one with every commit. Reads work on snapshots; writes are
//! operations that the engine runs one after the other and commits in groups. This crate knows bytes
//! only: no documents, no JSON, no partitions.
//!
//! In reading order: [`RangeStore`] is the seam that the database uses, [`Engine`] implements it
//! over any [`OrderedStore`]: [`Memory`] is the simplest of those, [`Fjall`] the one that keeps data,
//! and [`Local`] whichever of the two a server was started with.

mod committer;
mod compactor;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod directory;
mod embedded;
mod engine;
mod error;
mod journal;
mod local;
mod memory;
mod mirror;
mod ordered;
mod overlay;
mod queue;
mod range;
mod recent;
mod row;
mod transaction;
mod trees;
mod trouble;

pub use embedded::{Fjall, FjallSnapshot, Options};
pub use engine::{Engine, RangeSnapshot};
pub use error::Error;
pub use local::{Embedded, Local, LocalSnapshot};
pub use memory::{Memory, MemorySnapshot};
pub use mirror::{Mirror, MirrorSnapshot};
pub use ordered::{Batch, Direction, Load, OrderedSnapshot, OrderedStore, Visit};
pub use range::{
    COMMIT_BYTES_MAX, Committed, KEY_BYTES_MAX, Lsn, META_RANGE, Operation, Outcome, PartError,
    Pressure, RangeId, RangeStore, Snapshot, Stop, SubmitError, VALUE_BYTES_MAX, View, WALKED,
};
pub use transaction::Transaction;
pub use trouble::{Crashing, Faulty, Torn, TroubledSnapshot};
