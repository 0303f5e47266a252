//! Where time and randomness come from.
//!
//! Nothing below the command line asks the system: golden scripts, crash runs and replays are
//! deterministic because the clock and the source of ids are passed in at the top.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970 UTC.
    fn now_ms(&self) -> u64;

    /// Whole seconds since 1970 UTC, the resolution of `_ts` and of expiry.
    fn now_s(&self) -> u64 {
        self.now_ms() / 1_000
    }
}

/// The machine's clock.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the system")]
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        // A clock before 1970 is as good as zero: `_ts` never goes backwards within a range.
        since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// How long something has taken: by the clock, and where that stands still, by the machine. Work must
/// come to its end also in tests, which do not move the clock for it.
pub(crate) struct Deadline {
    clock: Arc<dyn Clock>,
    start_ms: u64,
    started: tokio::time::Instant,
}

impl Deadline {
    /// Starts to count.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let start_ms = clock.now_ms();
        Self { clock, start_ms, started: tokio::time::Instant::now() }
    }

    /// The clock by which it counts.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn spent_ms(&self) -> u64 {
        let by_clock = self.clock.now_ms().saturating_sub(self.start_ms);
        let by_machine = self.started.elapsed().as_millis();
        by_clock.max(u64::try_from(by_machine).unwrap_or(u64::MAX))
    }
}

/// A clock that only moves when told to; for tests.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that stands at the given time.
    pub fn at_ms(now_ms: u64) -> Self {
        Self(AtomicU64::new(now_ms))
    }

    /// Moves the clock forward.
    pub fn advance_ms(&self, by_ms: u64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Gives bytes that nobody can guess: secrets, and where counters of resource ids start.
pub trait Ids: Send + Sync + 'static {
    /// Fills the buffer.
    fn fill(&self, bytes: &mut [u8]);
}

/// The machine's randomness.
#[derive(Debug)]
pub struct SystemIds(SystemRandom);

impl SystemIds {
    /// Uses the operating system's generator.
    pub fn new() -> Self {
        Self(SystemRandom::new())
    }
}

impl Default for SystemIds {
    fn default() -> Self {
        Self::new()
    }
}

impl Ids for SystemIds {
    fn fill(&self, bytes: &mut [u8]) {
        // Signing secrets depend on it: to go on with predictable bytes would be worse than to stop.
        self.0.fill(bytes).expect("the operating system gives random bytes");
    }
}

/// Counts up from one; for tests whose output must be the same every time.
#[derive(Debug, Default)]
pub struct CountingIds(AtomicU64);

impl Ids for CountingIds {
    fn fill(&self, bytes: &mut [u8]) {
        let next = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        for (at, byte) in bytes.iter_mut().rev().enumerate() {
            *byte = if at < 8 { (next >> (8 * at)) as u8 } else { 0 };
        }
    }
}
