//! The index: rows of a range that say which documents hold which values.
//!
//! - I1: the entries of a document are exactly those that its definition asks for, in every version of
//!   the range: they change in the commit that changes the document.
//! - I2: which definition that is depends on the range alone, never on who writes: see [`state`].
//! - I3: an entry may stand for several values (a long string is cut), so whoever finds a document by
//!   its entries still asks the document.
//!
//! In reading order: [`entry`] is what an entry looks like; [`definition`] is what a policy asks for;
//! [`terms`] takes it from a document, with the help of [`cells`] where that has shapes on the globe; [`shape`] says what documents look like, so that those that
//! lack a path can be found; [`own`] is about the entries that large partitions have once more;
//! [`update`] writes the difference that a write makes; [`versions`] and
//! [`state`] say which definition holds where while a policy changes; [`reindex`] brings documents from
//! one definition to the next in the background; [`set_apart`] gives large partitions their own entries.

pub(crate) mod cells;
pub(crate) mod definition;
pub(crate) mod entry;
mod known;
pub(crate) mod own;
mod reindex;
mod rows;
mod set_apart;
pub(crate) mod shape;
pub(crate) mod state;
pub(crate) mod terms;
pub(crate) mod update;
pub(crate) mod versions;

pub use reindex::Pace;

#[cfg(test)]
mod tests;
