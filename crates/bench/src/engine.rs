//! The storage engine alone, committing the keys that a create of a document commits.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use storage::{Embedded, Operation, Options, RangeId, RangeStore, Stop, View};
use tokio::task::JoinSet;

use crate::Failure;

pub(crate) struct Engine(Arc<Embedded>);

const RANGE: RangeId = RangeId(1);

impl Engine {
    pub(crate) async fn open(directory: &Path) -> Result<Self, Failure> {
        let engine = Arc::new(Embedded::open(directory, Options::default())?);
        engine.create_ranges(&[RANGE]).await?;
        Ok(Self(engine))
    }

    /// Commits for a time, from as many tasks as the server has connections; the rate.
    pub(crate) async fn commits(
        &self,
        tasks: usize,
        round: u64,
        time: Duration,
    ) -> Result<f64, Failure> {
        let done = Arc::new(AtomicU64::new(0));
        let started = Instant::now();
        let mut running = JoinSet::new();
        for worker in 0..tasks as u64 {
            let (done, engine) = (done.clone(), self.0.clone());
            running.spawn(async move {
                let mut step = 0;
                while started.elapsed() < time {
                    let id = format!("c{round}-{worker}-{step}");
                    let number = step * 64 + worker;
                    let text = Bytes::from(crate::load::document(&id, number));
                    let rows = Rows { number, place: place(&id, worker), text };
                    engine.submit(RANGE, rows).await.map_err(|error| error.to_string())?;
                    step += 1;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), Failure>(())
            });
        }
        while let Some(task) = running.join_next().await {
            task??;
        }
        Ok(done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
    }
}

/// As long as the place of a document: hash, partition key, id.
fn place(id: &str, worker: u64) -> Vec<u8> {
    let mut place = worker.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().repeat(2);
    place.extend_from_slice(b"\0\0\x08p123\0\x01");
    place.extend_from_slice(id.as_bytes());
    place
}

/// How many different values each indexed path of the document has, about.
const VALUES: [u64; 20] = [
    u64::MAX,
    u64::MAX,
    10_007,
    5_000,
    4_999,
    1_000,
    1_000,
    200,
    28,
    9,
    5,
    3,
    1,
    1,
    1,
    1,
    1,
    1,
    1,
    1,
];

/// The key of an index entry: kind, name of the index, value, place.
fn entry(path: usize, number: u64, place: &[u8]) -> Vec<u8> {
    let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let value = format!("value-{}", spread % VALUES[path]);
    [&[0x20], &[path as u8; 12][..], value.as_bytes(), &[0, 0], place].concat()
}

/// The rows of one document: itself, by resource id, its feed pointer, its index entries with that of
/// its shape, and three counters.
struct Rows {
    number: u64,
    place: Vec<u8>,
    text: Bytes,
}

impl Operation for Rows {
    type Output = ();
    type Refusal = std::convert::Infallible;

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Self::Refusal>> {
        let lsn = view.lsn().to_be_bytes();
        let key = |kind: u8, parts: &[&[u8]]| [&[kind][..], &parts.concat()].concat();
        // A create looks for the document and for the counters before it writes.
        view.get(&key(0x24, &[&[7; 12]]))?;
        view.get(&key(0x10, &[&self.place]))?;
        view.get(&[0x01])?;
        view.get(&key(0x11, &[&self.place[..20]]))?;
        view.put(&key(0x10, &[&self.place]), self.text.clone());
        view.put(&key(0x12, &[&lsn]), Bytes::copy_from_slice(&self.place));
        view.put(&key(0x13, &[&lsn, &[0; 4]]), Bytes::copy_from_slice(&self.place));
        for path in 0..VALUES.len() {
            view.put(&entry(path, self.number, &self.place), Bytes::new());
        }
        view.put(&key(0x21, &[&[7; 12], &self.place]), Bytes::new());
        view.put(&key(0x24, &[&[7; 12]]), Bytes::from_static(&[0; 8]));
        view.put(&[0x01], Bytes::from_static(&[0; 84]));
        view.put(&key(0x11, &[&self.place[..20]]), Bytes::from_static(&[0; 17]));
        Ok(())
    }
}
