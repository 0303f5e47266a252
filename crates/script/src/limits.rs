//! What a script may use, and what it is given of time and chance.

use std::fmt;
use std::sync::Arc;

/// What a script may use. Exceeding the memory or the stack is an error inside the script, which it
/// may catch; it will not get more by that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many bytes the engine may allocate for a script, its runtime included, which takes about
    /// half a megabyte. Less than one megabyte counts as one.
    pub memory_bytes_max: usize,
    /// How deep the engine may go into the stack of the thread, which must have more than that left.
    pub stack_bytes_max: usize,
    /// How many calls on the container are accepted; further ones answer `false`.
    pub host_calls_max: u64,
    /// How long the body of the answer may become, in characters.
    pub response_chars_max: usize,
    /// How long the document may become that a pre-trigger sets, in characters.
    pub request_chars_max: usize,
    /// How long the log may become, in characters.
    pub log_chars_max: usize,
}

impl Limits {
    /// The limits of the service, where they are known: an answer of 4 MB, a document of 2 MB. The
    /// stack fits a thread of Rust's standard size.
    pub const STANDARD: Limits = Limits {
        memory_bytes_max: 32 << 20,
        stack_bytes_max: 512 << 10,
        host_calls_max: 10_000,
        response_chars_max: 4 << 20,
        request_chars_max: 2 << 20,
        log_chars_max: 16 << 10,
    };
}

/// How a script is doing for time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// There is time.
    OnTime,
    /// The end is near: no further calls on the container are accepted, but those accepted earlier
    /// are carried out and the script may end in order.
    Closing,
    /// The deadline has passed: the script ends at once.
    Over,
}

/// Time and chance, as the caller wants the script to see them.
#[derive(Clone)]
pub struct Surroundings {
    /// Asked while the script runs, many times.
    pub pace: Arc<dyn Fn() -> Pace + Send + Sync>,
    /// The time that the script sees, in milliseconds since 1970. It should stand still, or at
    /// least not depend on anything but the script's own progress, where a second run must do the
    /// same as the first.
    pub now_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Where the script's random numbers start, and the ids of documents that come without one.
    pub seed: u64,
}

impl Surroundings {
    /// A script that sees one moment and has all the time there is.
    pub fn standing(now_ms: u64, seed: u64) -> Surroundings {
        Surroundings { pace: Arc::new(|| Pace::OnTime), now_ms: Arc::new(move || now_ms), seed }
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Surroundings").field("seed", &self.seed).finish_non_exhaustive()
    }
}
