//! Consumers of the change feed that are killed and resumed at random, while documents are written,
//! deleted and expire, ranges are cut anew, and the server starts again and again.
//!
//! A consumer keeps what it has seen together with its continuations, and when it is killed it goes
//! back to what it kept last. In the end the consumer of latest versions must have every document as
//! it is now, each partition in the order of its commits; the consumer of all versions must have every
//! version and every delete exactly once.
//!
//! `ORRERY_FEED_WRITES` sets how many writes there are; the default is small enough for every test run.

use std::collections::BTreeMap;
use std::sync::Arc;

use db::{
    Change, ChangeKind, ChangeMode, ChangeRequest, ChangeStart, Conditions, Container, Db, Kind,
    ManualClock, Scope,
};
use storage::{Engine, Memory};
use value::{EpkRange, Object, Value};

use crate::history::Dice;
use crate::support::{
    self, by_pk_with, create_container, delete, feed, key, operation, upsert, verify,
};

const PARTITIONS: u64 = 16;
const IDS: u64 = 12;
const RANGES_MAX: usize = 5;

/// A document by its partition and id.
type Name = (u64, u64);

/// What happened to a document: the kind, and the number that it has since.
type Step = (ChangeKind, Option<i64>);

/// What must be in the feeds.
#[derive(Default)]
struct Truth {
    /// The number of each document that is stored, and when it expires.
    stored: BTreeMap<Name, (i64, Option<u64>)>,
    happened: BTreeMap<Name, Vec<Step>>,
}

impl Truth {
    fn note(&mut self, name: Name, kind: ChangeKind, number: Option<i64>) {
        self.happened.entry(name).or_default().push((kind, number));
    }

    /// A document that has expired and is still stored goes when somebody needs its place.
    fn expire(&mut self, name: Name, now_s: u64) {
        let expires = self.stored.get(&name).and_then(|(_, expires)| *expires);
        if expires.is_some_and(|at| at <= now_s) {
            self.stored.remove(&name);
            self.note(name, ChangeKind::Expire, None);
        }
    }

    fn written(&mut self, name: Name, number: i64, expires: Option<u64>, now_s: u64) {
        self.expire(name, now_s);
        let before = self.stored.insert(name, (number, expires));
        let kind = if before.is_some() { ChangeKind::Replace } else { ChangeKind::Create };
        self.note(name, kind, Some(number));
    }

    fn swept(&mut self, now_s: u64) {
        let names: Vec<Name> = self.stored.keys().copied().collect();
        for name in names {
            self.expire(name, now_s);
        }
    }
}

/// What a consumer keeps: how far it is in each part of the hash space, and what it has seen.
#[derive(Clone)]
struct Seen {
    parts: Vec<(EpkRange, ChangeStart)>,
    latest: BTreeMap<Name, i64>,
    /// How much of the log is its own.
    logged: usize,
    /// The last commit that was seen of each partition.
    lsns: BTreeMap<u64, u64>,
}

struct Consumer {
    mode: ChangeMode,
    /// Whether it asks range by range, as SDKs do, or for the hash space as it began.
    by_range: bool,
    kept: Seen,
    now: Seen,
    /// What it was told of all versions.
    log: Vec<(Name, Step)>,
}

fn name_of(object: &Object) -> Name {
    let pk = object.get("pk").and_then(Value::as_i64).unwrap().unsigned_abs();
    (pk, object.get("id").and_then(Value::as_str).unwrap().parse().unwrap())
}

impl Consumer {
    fn new(mode: ChangeMode, by_range: bool) -> Self {
        // All versions are given from now on, and now is before the first write.
        let start = match mode {
            ChangeMode::LatestVersion => ChangeStart::Beginning,
            ChangeMode::AllVersions => ChangeStart::Now,
        };
        let kept = Seen {
            parts: vec![(EpkRange::full(), start)],
            latest: BTreeMap::new(),
            logged: 0,
            lsns: BTreeMap::new(),
        };
        Self { mode, by_range, now: kept.clone(), kept, log: Vec::new() }
    }

    /// Reads some pages of every part; says whether there was anything.
    fn poll(&mut self, db: &Db<Engine<Memory>>, dice: &mut Dice) -> bool {
        let mut has_found = false;
        let mut at = 0;
        // There may be more parts on the way.
        while at < self.now.parts.len() {
            let pages = (0..12).take_while(|_| self.poll_part(at, db, dice)).count();
            has_found |= pages > 0;
            at += 1;
        }
        has_found
    }

    /// Reads a page of one part; says whether there was anything.
    fn poll_part(&mut self, at: usize, db: &Db<Engine<Memory>>, dice: &mut Dice) -> bool {
        let container = db.container("d", "c").unwrap();
        let (epk, start) = self.now.parts[at].clone();
        let items_max = Some(1 + dice.roll(40) as usize);
        let request = ChangeRequest { mode: self.mode, start, after_s: None, items_max };
        let mut scope = Scope { epk: Some(epk.clone()), ..Scope::default() };
        if self.by_range {
            // The part may lie in several ranges by now: then each of them goes on for itself.
            let ranges = ranges(db, &container, &epk);
            if let [(id, _)] = &ranges[..] {
                scope.range = Some(id.clone());
            } else {
                let start = &request.start;
                let parts = ranges.into_iter().map(|(_, part)| (part, start.clone()));
                self.now.parts.splice(at..=at, parts);
                return true;
            }
        }
        let page = match db.changes(&container, &scope, &request, None) {
            Ok(page) => page,
            Err(failure) => panic!("{request:?}: {failure:?}"),
        };
        for change in &page.changes {
            self.see(change);
        }
        self.now.parts[at].1 = ChangeStart::After(page.continuation);
        !page.changes.is_empty()
    }

    fn see(&mut self, change: &Change) {
        let object = |text: &[u8]| match Value::parse(text).unwrap() {
            Value::Object(object) => object,
            other => panic!("{other}"),
        };
        let current = change.current.as_ref().map(|text| object(text));
        let number = |object: &Object| object.get("n").and_then(Value::as_i64).unwrap();
        let name = match (&current, &change.version) {
            (Some(current), _) => name_of(current),
            (None, Some(version)) => {
                let previous = version.previous.as_ref().expect("what is gone was there");
                name_of(&object(previous.image.as_ref().expect("what is gone is kept")))
            }
            (None, None) => panic!("a change of nothing"),
        };
        let last = self.now.lsns.entry(name.0).or_default();
        assert!(*last <= change.lsn, "partition {} went from {last} to {}", name.0, change.lsn);
        *last = change.lsn;
        match &change.version {
            None => drop(self.now.latest.insert(name, number(&current.unwrap()))),
            Some(version) => {
                let step = (version.kind, current.as_ref().map(number));
                // What was told after the consumer was last killed takes the place of what was told before.
                self.log.truncate(self.now.logged);
                self.log.push((name, step));
                self.now.logged += 1;
            }
        }
    }

    fn read_to_the_end(&mut self, db: &Db<Engine<Memory>>, dice: &mut Dice) {
        while self.poll(db, dice) {}
    }
}

/// The ranges that lie in a part of the hash space, cut to it.
fn ranges(
    db: &Db<Engine<Memory>>,
    container: &Container,
    within: &EpkRange,
) -> Vec<(String, EpkRange)> {
    let ranges = db.partition_key_ranges(container).unwrap().ranges;
    let ranges = ranges.iter().filter_map(|range| {
        let text = |name| range.get(name).and_then(Value::as_str).unwrap();
        let bound = |name| value::Epk::parse(text(name)).unwrap();
        let range = EpkRange { min: bound("minInclusive"), max: bound("maxExclusive") };
        Some((text("id").to_owned(), range.intersect(within)?))
    });
    ranges.collect()
}

struct World {
    memory: Memory,
    clock: Arc<ManualClock>,
    db: Arc<Db<Engine<Memory>>>,
    truth: Truth,
    dice: Dice,
    written: i64,
}

impl World {
    fn now_s(&self) -> u64 {
        db::Clock::now_ms(self.clock.as_ref()) / 1_000
    }

    fn name(&mut self) -> Name {
        (self.dice.roll(PARTITIONS), self.dice.roll(IDS))
    }

    /// The body of a new version, and when it expires.
    fn body(&mut self, (pk, id): Name) -> (String, Option<u64>) {
        self.written += 1;
        let ttl = (self.dice.roll(6) == 0).then(|| 1 + self.dice.roll(4));
        let member = ttl.map_or(String::new(), |ttl| format!(r#","ttl":{ttl}"#));
        let body = format!(r#"{{"id":"{id}","pk":{pk},"n":{}{member}}}"#, self.written);
        (body, ttl.map(|ttl| self.now_s() + ttl))
    }

    async fn step(&mut self) {
        let container = self.db.container("d", "c").unwrap();
        let none = Conditions::default();
        match self.dice.roll(100) {
            0..70 => {
                let name = self.name();
                let (body, expires) = self.body(name);
                let at = key(&format!("[{}]", name.0));
                self.db.write(&container, Some(&at), upsert(&body), none).await.unwrap();
                self.truth.written(name, self.written, expires, self.now_s());
            }
            70..85 => {
                let name = self.name();
                let at = key(&format!("[{}]", name.0));
                let deleted =
                    self.db.write(&container, Some(&at), delete(&name.1.to_string()), none).await;
                let now_s = self.now_s();
                let is_live = (self.truth.stored.get(&name))
                    .is_some_and(|(_, expires)| expires.is_none_or(|at| at > now_s));
                match deleted {
                    Ok(_) => {
                        assert!(is_live);
                        self.truth.stored.remove(&name);
                        self.truth.note(name, ChangeKind::Delete, None);
                    }
                    Err(failure) => {
                        assert_eq!(failure.error.kind, Kind::NotFound);
                        assert!(!is_live);
                    }
                }
            }
            85..93 => self.batch(&container).await,
            93..98 => self.clock.advance_ms(1_000 * (1 + self.dice.roll(3))),
            _ => {
                self.db.sweep().await.unwrap();
                let now_s = self.now_s();
                self.truth.swept(now_s);
            }
        }
    }

    async fn batch(&mut self, container: &Arc<Container>) {
        let pk = self.dice.roll(PARTITIONS);
        let mut operations = Vec::new();
        for _ in 0..3 {
            let name = (pk, self.dice.roll(IDS));
            let (body, expires) = self.body(name);
            operations.push(operation(upsert(&body)));
            self.truth.written(name, self.written, expires, self.now_s());
        }
        let at = key(&format!("[{pk}]"));
        self.db.batch(container, &at, operations, None).await.unwrap();
    }

    async fn recut(&mut self) {
        let container = self.db.container("d", "c").unwrap();
        let ranges = ranges(&self.db, &container, &EpkRange::full());
        let at = self.dice.roll(ranges.len() as u64) as usize;
        match &ranges[at..] {
            [(one, _), (other, _), ..] if ranges.len() >= RANGES_MAX => {
                self.db.merge_ranges(&container, one, other).await.unwrap();
            }
            [(range, _), ..] if ranges.len() < RANGES_MAX => {
                self.db.split_range(&container, range, None).await.unwrap();
            }
            _ => {}
        }
    }

    async fn restart(&mut self) {
        self.db.close().await.unwrap();
        let engine = Engine::with_store(self.memory.clone()).unwrap();
        self.db = support::open(engine, &self.clock).await;
    }
}

async fn consume(seed: u64, writes: i64) {
    let (memory, clock) = (Memory::new(), support::clock());
    let db = support::open(Engine::with_store(memory.clone()).unwrap(), &clock).await;
    let definition = by_pk_with(r#""changeFeedPolicy":{"retentionDuration":10},"defaultTtl":-1"#);
    create_container(&db, "c", &definition, Some(20_000)).await;
    let (truth, dice) = (Truth::default(), Dice(seed));
    let mut world = World { memory, clock, db, truth, dice, written: 0 };
    let mut dice = Dice(seed + 1);
    let mut consumers: Vec<Consumer> = [ChangeMode::LatestVersion, ChangeMode::AllVersions]
        .into_iter()
        .flat_map(|mode| [true, false].map(|by_range| Consumer::new(mode, by_range)))
        .collect();
    for consumer in &mut consumers {
        // Fixes where now is, in every part.
        consumer.read_to_the_end(&world.db, &mut dice);
        consumer.kept = consumer.now.clone();
    }
    while world.written < writes {
        world.step().await;
        match dice.roll(4_000) {
            0..12 => world.recut().await,
            12..14 => world.restart().await,
            _ => {}
        }
        let consumer = &mut consumers[dice.roll(4) as usize];
        match dice.roll(40) {
            0..4 => drop(consumer.poll(&world.db, &mut dice)),
            4..6 => consumer.kept = consumer.now.clone(),
            6 => consumer.now = consumer.kept.clone(),
            _ => {}
        }
    }
    world.db.sweep().await.unwrap();
    let now_s = world.now_s();
    world.truth.swept(now_s);
    let container = world.db.container("d", "c").unwrap();
    let stored: BTreeMap<Name, i64> =
        world.truth.stored.iter().map(|(name, (number, _))| (*name, *number)).collect();
    let rows = feed(&world.db, &container, &Scope::default(), None);
    assert_eq!(rows.len(), stored.len());
    for consumer in &mut consumers {
        consumer.read_to_the_end(&world.db, &mut dice);
        match consumer.mode {
            ChangeMode::LatestVersion => {
                for (name, number) in &stored {
                    assert_eq!(consumer.now.latest.get(name), Some(number), "{name:?}");
                }
            }
            ChangeMode::AllVersions => {
                let mut seen: BTreeMap<Name, Vec<Step>> = BTreeMap::new();
                for (name, step) in &consumer.log {
                    seen.entry(*name).or_default().push(*step);
                }
                for (name, happened) in &world.truth.happened {
                    assert_eq!(seen.get(name), Some(happened), "{name:?}");
                }
            }
        }
    }
    verify(&world.db);
}

#[tokio::test]
async fn consumers_miss_nothing() {
    let writes = std::env::var("ORRERY_FEED_WRITES").map_or(6_000, |count| count.parse().unwrap());
    consume(1, writes).await;
}
