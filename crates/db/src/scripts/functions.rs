//! User-defined functions, for queries.

use std::sync::Arc;

use script::{ErrorKind, Functions, Limits, Pace, Surroundings};
use value::{ScriptKind, Value};

use crate::container::Container;

/// The functions of a container that a query may call, or nothing if there are none such. They cost
/// nothing until one is called.
pub(crate) fn functions(
    container: &Container,
    query: &str,
    now_ms: u64,
    is_expired: Arc<dyn Fn() -> bool + Send + Sync>,
) -> Option<Arc<dyn query::Functions>> {
    let all = container.scripts.all(ScriptKind::Function).iter();
    let sources: Vec<(String, String)> = all
        .filter(|(name, _)| query.contains(name.as_str()))
        .map(|(name, script)| (name.clone(), script.source().to_owned()))
        .collect();
    if sources.is_empty() {
        return None;
    }
    let pace = move || if is_expired() { Pace::Over } else { Pace::OnTime };
    let surroundings =
        Surroundings { pace: Arc::new(pace), now_ms: Arc::new(move || now_ms), seed: now_ms };
    Some(Arc::new(Called(Functions::new(sources, Limits::STANDARD, surroundings))))
}

struct Called(Functions);

impl query::Functions for Called {
    fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    fn call(&self, name: &str, arguments: &[Option<Value>]) -> Result<Option<Value>, query::Error> {
        self.0.call(name, arguments).map_err(|error| match error.kind() {
            ErrorKind::TimedOut => query::Error::timed_out(),
            _ => query::Error::refused(error.text()),
        })
    }
}
