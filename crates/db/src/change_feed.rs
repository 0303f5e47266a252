//! The change feed: what happened to the documents of a container, in the order of commits.
//!
//! There are two. The feed of latest versions needs nothing of its own: every document has one
//! pointer under the lsn of its last write, and whoever follows the pointers sees each document once,
//! as it is now. The feed of all versions and deletes is written down event by event, in the commit
//! that made the change, for as long as the container's policy says.
//!
//! - F1: a position is an lsn: everything up to it has been given, nothing behind it.
//! - F2: what one commit wrote is given together, never over two pages.
//! - F3: an event is recorded in the commit of its change, or the change is not committed.

mod continuation;
pub(crate) mod event;
pub(crate) mod read;
pub(crate) mod recorded;
mod search;
