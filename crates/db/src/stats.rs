//! Figures about the whole server, for operators.

use storage::{Pressure, RangeStore};

use crate::Result;
use crate::database::Db;

/// How much there is, and how much waits.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Databases.
    pub databases: usize,
    /// Containers.
    pub containers: usize,
    /// Documents, those included that have expired and wait to be removed.
    pub documents: u64,
    /// The sum of their texts.
    pub bytes: u64,
    /// What waits in the storage engine.
    pub pressure: Pressure,
}

impl<S: RangeStore> Db<S> {
    /// The figures at this moment.
    pub fn stats(&self) -> Result<Stats> {
        self.check_open()?;
        let catalog = self.catalog.load();
        let mut stats = Stats {
            databases: catalog.databases.len(),
            containers: 0,
            documents: 0,
            bytes: 0,
            pressure: self.store.pressure(),
        };
        for container in catalog.containers() {
            stats.containers += 1;
            let usage = self.container_usage(container)?;
            stats.documents += usage.documents;
            stats.bytes += usage.bytes;
        }
        Ok(stats)
    }
}
