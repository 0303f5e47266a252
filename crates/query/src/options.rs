//! What a query is given besides its text: time, chance, limits and the container's own names.

use crate::Error;
use std::fmt;
use std::sync::Arc;
use value::Value;

/// The surroundings of a query.
#[derive(Clone)]
pub struct Options {
    /// The time of the query, in units of 100 ns since 1970. One query sees one time.
    pub now_ticks: i64,
    /// Where random numbers start.
    pub seed: u64,
    /// What stops a query that takes too much.
    pub limits: Limits,
    /// The container's user-defined functions; without them, calling one is refused.
    pub functions: Option<Arc<dyn Functions>>,
    /// The container's computed properties.
    pub computed_properties: Vec<ComputedProperty>,
    /// The container's composite indexes. `ORDER BY` with several keys is refused when none of
    /// them serves it; `None` accepts any keys.
    pub composite_indexes: Option<Vec<Vec<CompositeKey>>>,
    /// Where the container's shapes lie.
    pub geospatial: Geospatial,
}

/// Where the positions of shapes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Geospatial {
    /// On the globe: degrees of longitude and latitude.
    Geography,
    /// In a plane.
    Geometry,
}

impl Options {
    /// Options for a query at that time, without functions, computed properties and index checks,
    /// with shapes on the globe.
    pub fn new(now_ticks: i64, seed: u64, limits: Limits) -> Options {
        Options {
            now_ticks,
            seed,
            limits,
            functions: None,
            computed_properties: Vec::new(),
            composite_indexes: None,
            geospatial: Geospatial::Geography,
        }
    }
}

/// What a query may use.
#[derive(Clone)]
pub struct Limits {
    /// How many bytes of values a query may hold at once, roughly.
    pub memory_bytes_max: usize,
    /// Asked now and then while the query runs: whether it should stop.
    pub is_expired: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Limits {
    /// Limits on memory alone.
    pub fn memory(memory_bytes_max: usize) -> Limits {
        Limits { memory_bytes_max, is_expired: Arc::new(|| false) }
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Limits").field("memory_bytes_max", &self.memory_bytes_max).finish()
    }
}

/// A property whose value is computed from the document: `SELECT VALUE … FROM c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputedProperty {
    /// Its name, at the top level of the document.
    pub name: String,
    /// The query that computes it.
    pub query: String,
}

/// One path of a composite index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompositeKey {
    /// The names from the root of the document down.
    pub path: Vec<String>,
    /// Whether the index goes from the greatest to the smallest.
    pub descending: bool,
}

/// The user-defined functions of a container.
pub trait Functions: Send + Sync {
    /// Whether there is a function of that name; names are case-sensitive.
    fn contains(&self, name: &str) -> bool;

    /// Calls a function; `None` is undefined, on both sides.
    fn call(&self, name: &str, arguments: &[Option<Value>]) -> Result<Option<Value>, Error>;
}
