//! Which definition holds for which document of a range.
//!
//! A range says in its header from which definition to which it is on its way, and while it is, a row
//! of its own says how far it has come: documents up to the cursor have the entries of the new
//! definition, those behind it the entries of the old one. Every commit follows that, so the index is
//! exact for both at every moment, and a query may use what both have.

use std::sync::Arc;

use query::Indexed;
use storage::{Snapshot, View};

use super::definition::{Composite, Definition};
use super::entry::IndexId;
use super::versions::Index;
use crate::Result;
use crate::container::Container;
use crate::key::{self, Kind};
use crate::row::{IndexState, RangeHeader, corrupt};

/// The row that says how far a range has come.
pub(crate) fn row() -> Vec<u8> {
    key::keyed(Kind::IndexState, &[])
}

/// The definitions that hold in one version of a range.
#[derive(Clone, Debug)]
pub(crate) enum InForce {
    /// One for all documents.
    Settled(Arc<Definition>),
    /// Two, and where the first ends.
    Moving { from: Arc<Definition>, to: Arc<Definition>, state: IndexState },
}

impl InForce {
    /// What holds in the version that `get` reads; `None` when it is so old that its definitions are
    /// forgotten.
    pub(crate) fn load(
        index: &Index,
        header: &RangeHeader,
        get: impl FnOnce(&[u8]) -> Result<Option<bytes::Bytes>, storage::Error>,
    ) -> Result<Option<InForce>> {
        let indexed = header.indexed;
        let Some(to) = index.definition(indexed.to) else { return Ok(None) };
        if indexed.is_settled() {
            return Ok(Some(InForce::Settled(to)));
        }
        let Some(from) = index.definition(indexed.from) else { return Ok(None) };
        let state = get(&row())?.ok_or_else(|| corrupt("index state is missing"))?;
        Ok(Some(InForce::Moving { from, to, state: IndexState::decode(&state)? }))
    }

    /// What holds for the commit that is being made.
    pub(crate) fn for_commit(
        index: &Index,
        header: &RangeHeader,
        view: &dyn View,
    ) -> Result<InForce> {
        let in_force = InForce::load(index, header, |key| view.get(key))?;
        in_force.ok_or_else(|| corrupt("definition of the index is missing"))
    }

    /// The definition that holds for the document at a place.
    pub(crate) fn at(&self, place: &[u8]) -> &Arc<Definition> {
        match self {
            InForce::Settled(definition) => definition,
            InForce::Moving { to, state, .. } if *place <= state.cursor[..] => to,
            InForce::Moving { from, .. } => from,
        }
    }
}

/// The indexes that a query may use in one version of a range: those that every definition in force
/// has, and the newest, because what a policy no longer asks for is not used any more.
#[derive(Debug)]
pub(crate) struct Usable {
    definitions: Vec<Arc<Definition>>,
}

/// Finds out which indexes a query may use.
pub(crate) fn usable<P: Snapshot>(
    container: &Container,
    header: &RangeHeader,
    snapshot: &P,
) -> Result<Usable> {
    let newest = container.index.newest.clone();
    let definitions = match InForce::load(&container.index, header, |key| snapshot.get(key))? {
        None => vec![Arc::new(Definition::empty())],
        Some(InForce::Settled(only)) if only.number == newest.number => vec![newest],
        Some(InForce::Settled(only)) => vec![newest, only],
        Some(InForce::Moving { from, to, .. }) => vec![newest, from, to],
    };
    Ok(Usable { definitions })
}

impl Usable {
    /// The index that knows these values, if there is one.
    pub(crate) fn serves(&self, indexed: &Indexed) -> Option<IndexId> {
        let (newest, others) = self.definitions.split_first()?;
        let id = newest.serves(indexed)?;
        others.iter().all(|other| other.serves(indexed) == Some(id)).then_some(id)
    }

    /// The composite indexes.
    pub(crate) fn composites(&self) -> Vec<&Composite> {
        let Some((newest, others)) = self.definitions.split_first() else { return Vec::new() };
        let has = |other: &Definition, id| other.composites().iter().any(|one| one.id == id);
        let composites = newest.composites().iter();
        composites.filter(|one| others.iter().all(|other| has(other, one.id))).collect()
    }

    /// Whether every document stands under its shape.
    pub(crate) fn has_shapes(&self) -> bool {
        self.definitions.iter().all(|definition| !definition.is_empty())
    }
}
