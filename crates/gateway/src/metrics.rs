//! Figures about what the gateway does, for Prometheus.
//!
//! Counting is a handful of atomic additions: no locks, no allocation, no labels made of anything a
//! client sends.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The kinds of things that requests address; the words of [`crate::router::Target::kind`], and one
/// for paths that lead nowhere.
const KINDS: [&str; 12] = [
    "account",
    "operator",
    "database",
    "container",
    "document",
    "user",
    "permission",
    "encryption_key",
    "script",
    "conflict",
    "range",
    "offer",
];
const OTHER: &str = "other";

/// The statuses that are counted one by one.
const STATUSES: [u16; 22] = [
    200, 201, 204, 207, 304, 400, 401, 403, 404, 405, 408, 409, 410, 412, 413, 424, 429, 431, 449,
    500, 501, 503,
];

/// Upper bounds of the latency histogram.
const BOUNDS_MICROS: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000];

/// Counters of one gateway.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: [[AtomicU64; STATUSES.len() + 1]; KINDS.len() + 1],
    latency: [AtomicU64; BOUNDS_MICROS.len() + 1],
    latency_sum_micros: AtomicU64,
    charge_hundredths: AtomicU64,
    connections_open: AtomicU64,
    connections_total: AtomicU64,
    panics: AtomicU64,
}

/// One answered request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub kind: &'static str,
    pub status: u16,
    pub charge_ru: f64,
    pub took: Duration,
}

impl Metrics {
    pub(crate) fn answered(&self, answered: Answered) {
        let kind = position(&KINDS, &answered.kind);
        let status = position(&STATUSES, &answered.status);
        count(&self.requests[kind][status], 1);
        let micros = u64::try_from(answered.took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.iter().position(|bound| micros <= *bound);
        count(&self.latency[bucket.unwrap_or(BOUNDS_MICROS.len())], 1);
        count(&self.latency_sum_micros, micros);
        count(&self.charge_hundredths, (answered.charge_ru * 100.0).round() as u64);
    }

    pub(crate) fn connected(&self, open: bool) {
        if open {
            count(&self.connections_open, 1);
            count(&self.connections_total, 1);
        } else {
            self.connections_open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn panicked(&self) {
        count(&self.panics, 1);
    }

    pub(crate) fn connections_open(&self) -> u64 {
        self.connections_open.load(Ordering::Relaxed)
    }

    /// All figures in Prometheus' text form.
    pub(crate) fn render(&self) -> String {
        let mut page = Exposition::default();
        page.family("orrery_requests_total", "counter", "Requests answered, by kind and status.");
        for (kind, row) in KINDS.iter().chain([&OTHER]).zip(&self.requests) {
            let statuses = STATUSES.iter().map(u16::to_string).chain([OTHER.to_owned()]);
            for (status, counter) in statuses.zip(row) {
                let value = counter.load(Ordering::Relaxed);
                if value > 0 {
                    let labels = format!("{{kind=\"{kind}\",status=\"{status}\"}}");
                    page.sample("orrery_requests_total", &labels, value as f64);
                }
            }
        }
        self.render_latency(&mut page);
        let charge = self.charge_hundredths.load(Ordering::Relaxed) as f64 / 100.0;
        page.single("orrery_request_units_total", "counter", "Request units charged.", charge);
        let open = self.connections_open() as f64;
        page.single("orrery_connections", "gauge", "Connections open now.", open);
        let total = self.connections_total.load(Ordering::Relaxed) as f64;
        page.single("orrery_connections_total", "counter", "Connections accepted.", total);
        let panics = self.panics.load(Ordering::Relaxed) as f64;
        page.single("orrery_panics_total", "counter", "Requests that hit a fault of ours.", panics);
        page.text
    }

    fn render_latency(&self, page: &mut Exposition) {
        const NAME: &str = "orrery_request_duration_seconds";
        page.family(NAME, "histogram", "Time from a request's body to its answer.");
        let mut below = 0;
        for (at, counter) in self.latency.iter().enumerate() {
            below += counter.load(Ordering::Relaxed);
            let bound = match BOUNDS_MICROS.get(at) {
                Some(micros) => (*micros as f64 / 1e6).to_string(),
                None => "+Inf".to_owned(),
            };
            page.sample(&format!("{NAME}_bucket"), &format!("{{le=\"{bound}\"}}"), below as f64);
        }
        let sum = self.latency_sum_micros.load(Ordering::Relaxed) as f64 / 1e6;
        page.sample(&format!("{NAME}_sum"), "", sum);
        page.sample(&format!("{NAME}_count"), "", below as f64);
    }
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Where something is counted; what is not listed comes last.
fn position<T: PartialEq>(list: &[T], wanted: &T) -> usize {
    list.iter().position(|item| item == wanted).unwrap_or(list.len())
}

/// Prometheus' text form.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    pub text: String,
}

impl Exposition {
    /// Opens a family of figures.
    pub(crate) fn family(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}")
            .expect("writing to a string cannot fail");
    }

    /// Adds one figure of a family.
    pub(crate) fn sample(&mut self, name: &str, labels: &str, value: f64) {
        writeln!(self.text, "{name}{labels} {value}").expect("writing to a string cannot fail");
    }

    /// Adds a family of one figure.
    pub(crate) fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, "", value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_counted_and_shown() {
        let metrics = Metrics::default();
        for (kind, status, micros) in
            [("document", 200, 90), ("document", 200, 800), ("nonsense", 299, 9_000_000)]
        {
            let took = Duration::from_micros(micros);
            metrics.answered(Answered { kind, status, charge_ru: 1.5, took });
        }
        metrics.connected(true);
        metrics.connected(true);
        metrics.connected(false);
        let page = metrics.render();
        for line in [
            "orrery_requests_total{kind=\"document\",status=\"200\"} 2",
            "orrery_requests_total{kind=\"other\",status=\"other\"} 1",
            "orrery_request_duration_seconds_bucket{le=\"0.0001\"} 1",
            "orrery_request_duration_seconds_bucket{le=\"0.001\"} 2",
            "orrery_request_duration_seconds_bucket{le=\"+Inf\"} 3",
            "orrery_request_duration_seconds_count 3",
            "orrery_request_units_total 4.5",
            "orrery_connections 1",
            "orrery_connections_total 2",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
