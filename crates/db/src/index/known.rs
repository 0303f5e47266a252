//! The ids of paths that documents had before, so that they need not be hashed again.
//!
//! Documents of a container mostly have the same few paths, and hashing them is most of the work of
//! finding a document's terms. Only so many are kept: a container with endless paths gains nothing.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use super::entry::{IndexId, Spelling};

const PATHS_MAX: usize = 1_024;
/// A path that is longer than this is rare, and not worth the memory.
const PATH_BYTES_MAX: usize = 256;

type Ids = HashMap<Vec<u8>, IndexId>;

#[derive(Debug, Default)]
pub(super) struct KnownPaths(RwLock<Ids>);

impl KnownPaths {
    /// Looks paths up; what was not known can be learned afterwards.
    pub(super) fn lookup(&self) -> Lookup<'_> {
        // An entry is there or not, so a panic elsewhere does not spoil the map.
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Lookup { known, new: Vec::new() }
    }

    pub(super) fn learn(&self, new: Vec<(Vec<u8>, IndexId)>) {
        if new.is_empty() {
            return;
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let room = PATHS_MAX.saturating_sub(known.len());
        known.extend(new.into_iter().take(room));
    }
}

/// Paths that are looked up for one document.
pub(super) struct Lookup<'a> {
    known: RwLockReadGuard<'a, Ids>,
    /// What was not known, as far as there is room for it.
    new: Vec<(Vec<u8>, IndexId)>,
}

impl Lookup<'_> {
    pub(super) fn id(&mut self, path: &Spelling) -> IndexId {
        if let Some(id) = self.known.get(path.as_bytes()) {
            return *id;
        }
        let id = path.id();
        let is_room = self.known.len() + self.new.len() < PATHS_MAX;
        if is_room && path.length() <= PATH_BYTES_MAX {
            self.new.push((path.as_bytes().to_vec(), id));
        }
        id
    }

    /// What [`KnownPaths::learn`] is to be told, once nobody looks anything up here any more.
    pub(super) fn into_new(self) -> Vec<(Vec<u8>, IndexId)> {
        self.new
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Class;
    use super::*;

    #[test]
    fn known_paths_have_the_same_ids_and_are_not_endless() {
        let known = KnownPaths::default();
        for number in (0..2 * PATHS_MAX).chain(0..10) {
            let mut path = Spelling::new(Class::Path);
            path.property(&number.to_string());
            let mut lookup = known.lookup();
            assert_eq!(lookup.id(&path), path.id());
            let new = lookup.into_new();
            known.learn(new);
        }
        assert_eq!(known.lookup().known.len(), PATHS_MAX);
    }
}
