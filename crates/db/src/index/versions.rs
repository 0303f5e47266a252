//! The definitions of a container's index that some range may still need.
//!
//! A container has one definition most of the time. When its policy changes, it gets another with the
//! next number, and its ranges go over to it one after the other, while requests that know only the old
//! one are still under way. So all requests of a container share one list, from which a commit takes
//! the definition that its range names.
//!
//! - V1: a number means the same definition for ever.
//! - V2: a definition that a range names, or will name by a commit that is under way, is in the list and
//!   in what is stored of the container.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use value::{Object, Value};

use super::definition::Definition;
use crate::Result;
use crate::policy::Policies;
use crate::row::corrupt;

/// The index of a container: its definition, and those that came before as far as they are needed.
#[derive(Debug)]
pub(crate) struct Index {
    /// What the container's policies ask for.
    pub(crate) newest: Arc<Definition>,
    versions: Arc<Versions>,
    /// Whether all ranges were seen to have come to the newest definition.
    is_settled: AtomicBool,
    /// The version of the container at which they could not; trying again is of no use before something
    /// has changed.
    stuck_at: AtomicU64,
}

/// The definitions by number, for everybody who works on the container.
#[derive(Debug)]
struct Versions(RwLock<Vec<Version>>);

#[derive(Debug)]
struct Version {
    definition: Arc<Definition>,
    /// Whether a range may be on its way to it.
    is_started: bool,
}

/// The number of the first definition of a new container.
pub(crate) const FIRST: u32 = 1;

impl Index {
    /// The index of a new container.
    pub(crate) fn new(policies: &Policies, container: &Object) -> Result<Index> {
        let newest = Definition::new(FIRST, policies, container)?;
        Ok(Index::from_definitions(vec![newest]))
    }

    fn from_definitions(definitions: Vec<Definition>) -> Index {
        let definitions: Vec<_> = definitions.into_iter().map(Arc::new).collect();
        let newest = definitions.last().expect("a container has a definition").clone();
        let versions = definitions.into_iter();
        let versions =
            versions.map(|definition| Version { definition, is_started: false }).collect();
        Index::of(newest, Arc::new(Versions(RwLock::new(versions))))
    }

    fn of(newest: Arc<Definition>, versions: Arc<Versions>) -> Index {
        Index { newest, versions, is_settled: AtomicBool::new(false), stuck_at: AtomicU64::new(0) }
    }

    /// The index after the policies have changed. `in_use` are the numbers that ranges name.
    ///
    /// The list changes at once, which does no harm if the container then does not change after all.
    pub(crate) fn redefined(
        &self,
        policies: &Policies,
        container: &Object,
        in_use: &BTreeSet<u32>,
    ) -> Result<Index> {
        let number = self.newest.number.checked_add(1).ok_or_else(|| corrupt("index"))?;
        let definition = Definition::new(number, policies, container)?;
        if definition.is_same_index(&self.newest) {
            return Ok(self.unchanged());
        }
        let newest = Arc::new(definition);
        let mut versions = self.versions.change();
        self.forget(&mut versions, in_use);
        versions.retain(|version| version.definition.number < number);
        versions.push(Version { definition: newest.clone(), is_started: false });
        drop(versions);
        Ok(Index::of(newest, self.versions.clone()))
    }

    /// The same index, for a container that changed otherwise.
    pub(crate) fn unchanged(&self) -> Index {
        let index = Index::of(self.newest.clone(), self.versions.clone());
        index.is_settled.store(self.is_settled(), Ordering::Relaxed);
        index
    }

    /// The same index without definitions that nobody needs; `None` if there are none such.
    pub(crate) fn tidied(&self, in_use: &BTreeSet<u32>) -> Option<Index> {
        let mut versions = self.versions.change();
        let before = versions.len();
        self.forget(&mut versions, in_use);
        let is_changed = versions.len() < before;
        drop(versions);
        is_changed.then(|| self.unchanged())
    }

    /// Keeps V2: ranges only ever go on to greater numbers, so what is below all that they name is
    /// done with, and what was never started is not needed unless it is the newest.
    fn forget(&self, versions: &mut Vec<Version>, in_use: &BTreeSet<u32>) {
        let oldest = in_use.first().copied().unwrap_or(self.newest.number);
        versions.retain(|version| {
            let number = version.definition.number;
            in_use.contains(&number)
                || number == self.newest.number
                || (version.is_started && number > oldest)
        });
    }

    /// The definition of a number, if somebody may still need it.
    pub(crate) fn definition(&self, number: u32) -> Option<Arc<Definition>> {
        if self.newest.number == number {
            return Some(self.newest.clone());
        }
        let versions = self.versions.read();
        let version = versions.iter().find(|version| version.definition.number == number);
        version.map(|version| version.definition.clone())
    }

    /// Says that ranges are about to be brought to the newest definition; not when it was replaced and
    /// forgotten meanwhile.
    pub(crate) fn start(&self) -> bool {
        let mut versions = self.versions.change();
        let mut newest = versions.iter_mut().filter(|v| v.definition.number == self.newest.number);
        newest.next().is_some_and(|version| {
            version.is_started = true;
            true
        })
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed)
    }

    pub(crate) fn settle(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stuck_at(&self, version: u64) -> bool {
        self.stuck_at.load(Ordering::Relaxed) == version
    }

    pub(crate) fn stick_at(&self, version: u64) {
        self.stuck_at.store(version, Ordering::Relaxed);
    }

    /// What is stored of the index with its container.
    pub(crate) fn stored(&self) -> Value {
        let versions = self.versions.read();
        let known = versions.iter().filter(|v| v.definition.number <= self.newest.number);
        let stored = known.map(|version| {
            Value::Object(Object::from([
                ("number", Value::from(version.definition.number)),
                ("definition", Value::Object(version.definition.source().clone())),
            ]))
        });
        Value::Array(stored.collect())
    }

    /// Reads what was stored. Containers that were stored before there was an index have documents
    /// without entries, which will be brought to the first definition.
    pub(crate) fn load(
        stored: Option<&Value>,
        policies: &Policies,
        container: &Object,
    ) -> Result<Index> {
        let Some(stored) = stored else {
            let first = Definition::new(FIRST, policies, container)?;
            return Ok(Index::from_definitions(vec![Definition::empty(), first]));
        };
        let stored = stored.as_array().filter(|versions| !versions.is_empty());
        let stored = stored.ok_or_else(|| corrupt("index of a container"))?;
        let definitions = stored.iter().map(|version| {
            let number = version.get("number").and_then(Value::as_i64);
            let number = number.and_then(|number| u32::try_from(number).ok());
            let source = version.get("definition").and_then(Value::as_object);
            let (number, source) =
                number.zip(source).ok_or_else(|| corrupt("index of a container"))?;
            Definition::load(number, source)
        });
        Ok(Index::from_definitions(definitions.collect::<Result<_>>()?))
    }
}

impl Versions {
    // A list of shared pointers is whole at every moment, so a panic elsewhere does not spoil it.
    fn read(&self) -> RwLockReadGuard<'_, Vec<Version>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Vec<Version>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
