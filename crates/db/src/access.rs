//! How a query gets at its documents.
//!
//! Three ways lead to documents: a scan in the order of places, a lookup of index entries that
//! satisfy the query's condition, and a walk along an index in the order that the query asks for.
//! [`choose`] picks one; [`lookup`] and [`ordered`] go it; [`composite`] says what an index over several
//! paths can do for either; [`stand_in`] says when entries alone are enough: [`cover`] makes documents
//! of them, and [`extreme`] needs only one. Whatever comes out is a *candidate*: the query is run over
//! it, so an index decides how fast an answer comes and never which.

pub(crate) mod choose;
pub(crate) mod composite;
pub(crate) mod cover;
mod entries;
pub(crate) mod extreme;
pub(crate) mod lookup;
pub(crate) mod ordered;
mod stand_in;
