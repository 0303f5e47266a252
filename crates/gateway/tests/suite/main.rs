//! The gateway as clients see it, over a database in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod access;
mod batches;
mod changes;
mod documents;
mod dtc;
mod hostile;
mod metadata;
mod operator;
mod ranges;
mod scripts;
mod sockets;
mod support;
