//! Brings what a [`Seed`] holds to an account: over the network for `orrery import`, and within the
//! process for `orrery serve --seed`. Both ways lead through the gateway and all of its checks.
//!
//! Databases and containers that are there are left alone. Documents go out in batches, one for each
//! range of the container, several at once; what a batch could not do for now is tried again one by
//! one. So documents are not written in the order of their file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use bytes::Bytes;
use db::policy;
use tokio::task::JoinSet;
use value::{Object, PartitionKey, PartitionKeyDefinition, Value};

use crate::account::{Account, Existing, Place, Range, Stored, Storing, name_of};
use crate::connection::Failure;
use crate::explanation::count;
use crate::progress::Progress;
use crate::resume::State;
use crate::script_folder::{Script, word};
use crate::seed::{ContainerSeed, DocumentsSeed, Seed};

/// Batches on their way at once.
const FLYING_MAX: usize = 8;
/// The protocol's limit for a batch.
const BATCH_OPERATIONS_MAX: usize = 100;
/// A request has two megabytes at most; the rest is for what stands around the documents.
const BATCH_BYTES_MAX: usize = 1_500_000;
/// A longer line is no document.
const LINE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) databases: u64,
    pub(crate) containers: u64,
    pub(crate) scripts: u64,
    pub(crate) documents: Documents,
}

/// What became of documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Documents {
    pub(crate) created: u64,
    pub(crate) replaced: u64,
    pub(crate) kept: u64,
}

impl Documents {
    pub(crate) fn total(self) -> u64 {
        self.created + self.replaced + self.kept
    }

    fn add(&mut self, other: Documents) {
        self.created += other.created;
        self.replaced += other.replaced;
        self.kept += other.kept;
    }
}

/// Brings things to an account.
pub(crate) struct Loader {
    pub(crate) account: Account,
    /// What becomes of scripts and documents that are there.
    pub(crate) existing: Existing,
    pub(crate) progress: Progress,
    /// Where the marks of files are kept.
    pub(crate) state: Option<State>,
}

impl Loader {
    /// Brings everything.
    pub(crate) async fn load(&mut self, seed: &Seed) -> Result<Loaded, Failure> {
        let mut loaded = Loaded::default();
        for database in &seed.databases {
            let created = self.account.create_database(&database.name, database.throughput).await;
            loaded.databases += u64::from(created.map_err(|failure| failure.at(&database.at))?);
            for container in &database.containers {
                self.container(container, &mut loaded).await?;
            }
        }
        Ok(loaded)
    }

    async fn container(
        &mut self,
        seed: &ContainerSeed,
        loaded: &mut Loaded,
    ) -> Result<(), Failure> {
        let place = &seed.place;
        let created =
            self.account.create_container(&place.database, &seed.definition, seed.throughput);
        let created = created.await.map_err(|failure| failure.at(&seed.at))?;
        loaded.containers += u64::from(created);
        let target = Target::of(&mut self.account, place).await?;
        if !created && self.existing == Existing::Replace {
            target.check_same(seed)?;
        }
        for script in &seed.scripts {
            let at = format!("{}: {} {}", seed.at, word(script.kind), script.name);
            let changed = self.script(place, script).await.map_err(|failure| failure.at(&at))?;
            loaded.scripts += u64::from(changed);
        }
        let before = self.account.count(place).await?;
        let mut documents = Documents::default();
        for source in &seed.documents {
            documents.add(self.documents(&target, source).await?);
        }
        self.check_count(&target, before, documents).await?;
        if !seed.documents.is_empty() {
            self.progress.finish(&format!(
                "{}/{}: {}, {} created, {} replaced, {} left alone",
                place.database,
                place.container,
                count(documents.total(), "document"),
                documents.created,
                documents.replaced,
                documents.kept
            ));
        }
        loaded.documents.add(documents);
        Ok(())
    }

    /// Brings a script; says whether anything changed.
    async fn script(&mut self, place: &Place, script: &Script) -> Result<bool, Failure> {
        let Script { kind, name, definition } = script;
        if self.account.create_script(place, *kind, definition).await? {
            return Ok(true);
        }
        if self.existing == Existing::Keep {
            return Ok(false);
        }
        let stored = self.account.scripts(place, *kind).await?;
        let same = |stored: &Object| name_of(stored) == Some(name) && script.is_same(stored);
        if stored.iter().any(same) {
            return Ok(false);
        }
        self.account.replace_script(place, *kind, name, definition).await?;
        Ok(true)
    }

    /// Brings documents to a container that is there, from a file or from memory.
    pub(crate) async fn documents(
        &mut self,
        target: &Target,
        source: &DocumentsSeed,
    ) -> Result<Documents, Failure> {
        match source {
            DocumentsSeed::Inline(documents) => {
                let mut bulk = Bulk::new(self, target, "");
                for (at, document) in documents {
                    let text = Value::from(document.clone()).to_text();
                    bulk.add(at.clone(), 0, document, text).await?;
                }
                bulk.finish().await
            }
            DocumentsSeed::File(path) => self.file(target, path).await,
        }
    }

    async fn file(&mut self, target: &Target, path: &Path) -> Result<Documents, Failure> {
        let name = path.display().to_string();
        let unreadable = |error: std::io::Error| Failure::Refused(format!("{name}: {error}"));
        let mut file = File::open(path).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        let (offset, line) = self.mark(&name);
        file.seek(SeekFrom::Start(offset)).map_err(unreadable)?;
        let Place { database, container } = &target.place;
        self.progress.start(&format!("{database}/{container}"), Some(size));
        let lines = Lines { reader: BufReader::new(file), offset, line };
        self.lines(target, lines, &name).await
    }

    /// Where a file was left: the byte, and the line before it.
    fn mark(&self, name: &str) -> (u64, u64) {
        let mark = self.state.as_ref().and_then(|state| state.mark(name));
        let number = |member: &str| {
            let number = mark.and_then(|mark| mark.get(member)?.as_i64());
            number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
        };
        (number("offset"), number("line"))
    }

    /// Brings the documents that stand on lines.
    pub(crate) async fn lines<R: BufRead>(
        &mut self,
        target: &Target,
        mut lines: Lines<R>,
        name: &str,
    ) -> Result<Documents, Failure> {
        let mut bulk = Bulk::new(self, target, name);
        bulk.next = (lines.offset, lines.line);
        let mut text = Vec::new();
        loop {
            let offset = lines.offset;
            let more = lines
                .next(&mut text)
                .map_err(|why| Failure::Refused(format!("{name}:{}: {why}", lines.line)))?;
            if !more {
                return bulk.finish().await;
            }
            bulk.next = (lines.offset, lines.line);
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let at = format!("{name}:{}", lines.line);
            let refuse = |why: String| Failure::Refused(format!("{at}: {why}"));
            let value = Value::parse(&text).map_err(|error| refuse(error.to_string()))?;
            let Value::Object(document) = value else {
                return Err(refuse("a document is a JSON object".to_owned()));
            };
            let text = String::from_utf8(text.trim_ascii().to_vec());
            let text = text.expect("what was parsed as JSON is UTF-8");
            bulk.add(at.clone(), offset, &document, text).await?;
        }
    }

    /// The container has at least as many documents more as were created. It has others still if
    /// somebody else writes to it, or a connection that broke had brought more than was known.
    pub(crate) async fn check_count(
        &mut self,
        target: &Target,
        before: u64,
        documents: Documents,
    ) -> Result<(), Failure> {
        let after = self.account.count(&target.place).await?;
        if self.existing == Existing::Keep || after >= before + documents.created {
            return Ok(());
        }
        let Place { database, container } = &target.place;
        Err(Failure::Refused(format!(
            "container '{container}' of database '{database}' had {before} documents, {} were \
             created, and it has {after} now: somebody else deletes some, or they expire",
            documents.created
        )))
    }
}

/// A container that documents are brought to.
#[derive(Debug)]
pub(crate) struct Target {
    place: Place,
    key: PartitionKeyDefinition,
    ranges: Vec<Range>,
}

impl Target {
    /// A container, as the server has it.
    pub(crate) async fn of(account: &mut Account, place: &Place) -> Result<Self, Failure> {
        let definition = account.container(place).await?;
        let key = key_definition(&definition).map_err(|why| {
            Failure::Refused(format!(
                "the partition key of container '{}' cannot be used: {why}",
                place.container
            ))
        })?;
        Ok(Self { place: place.clone(), key, ranges: account.ranges(place).await? })
    }

    /// Refuses a container with another key: its documents would belong together differently.
    fn check_same(&self, seed: &ContainerSeed) -> Result<(), Failure> {
        let wanted = key_definition(&seed.definition);
        if wanted.is_ok_and(|wanted| wanted.paths == self.key.paths && wanted.kind == self.key.kind)
        {
            return Ok(());
        }
        Err(Failure::Refused(format!(
            "{}: container '{}' is there already, with another partition key; delete it, or import \
             into another database with --database",
            seed.at, self.place.container
        )))
    }
}

/// The partition key in the definition of a container.
pub(crate) fn key_definition(definition: &Object) -> Result<PartitionKeyDefinition, String> {
    let mut key = definition.get("partitionKey").cloned().unwrap_or(Value::Null);
    // Clients take an absent version for the first.
    if let Some(key) = key.as_object_mut()
        && !key.contains("version")
    {
        key.insert("version", 1);
    }
    let only_key = Object::from([("partitionKey", key)]);
    let (policies, _) = policy::check_new(&only_key, false).map_err(|error| error.message)?;
    Ok(policies.partition_key)
}

/// The lines of a file, with where they stand.
pub(crate) struct Lines<R> {
    pub(crate) reader: R,
    /// The byte that the next line starts at.
    pub(crate) offset: u64,
    /// The number of the line that was read last.
    pub(crate) line: u64,
}

impl<R: BufRead> Lines<R> {
    /// Reads the next line; false at the end.
    fn next(&mut self, text: &mut Vec<u8>) -> Result<bool, String> {
        text.clear();
        let mut bounded = self.reader.by_ref().take(LINE_BYTES_MAX);
        let length = bounded.read_until(b'\n', text).map_err(|error| error.to_string())?;
        self.line += 1;
        self.offset += length as u64;
        if length as u64 == LINE_BYTES_MAX {
            return Err(format!("the line is longer than {LINE_BYTES_MAX} bytes"));
        }
        Ok(length > 0)
    }
}

/// A document on its way.
#[derive(Debug)]
struct Operation {
    /// Where it stands, for messages.
    at: String,
    /// The byte of the file that it starts at.
    offset: u64,
    id: String,
    key: PartitionKey,
    text: String,
}

/// A batch that has come back, and whoever brought it.
struct Landed {
    account: Account,
    operations: Vec<Operation>,
    /// What became of each, and whether the ranges have changed.
    results: Result<(Vec<Stored>, bool), Failure>,
}

/// Documents on their way to one container.
struct Bulk<'a> {
    loader: &'a mut Loader,
    target: &'a Target,
    /// The file that they come from.
    name: &'a str,
    /// The ranges of the container, as far as is known.
    ranges: Vec<Range>,
    /// What waits for each range.
    waiting: Vec<Vec<Operation>>,
    flying: JoinSet<Landed>,
    idle: Vec<Account>,
    /// The documents that are read and not yet stored, by their byte, with their line.
    open: BTreeMap<u64, u64>,
    /// Where the next line of the file starts, and the line before it.
    next: (u64, u64),
    done: Documents,
}

impl<'a> Bulk<'a> {
    fn new(loader: &'a mut Loader, target: &'a Target, name: &'a str) -> Self {
        Self {
            loader,
            target,
            name,
            ranges: target.ranges.clone(),
            waiting: target.ranges.iter().map(|_| Vec::new()).collect(),
            flying: JoinSet::new(),
            idle: Vec::new(),
            open: BTreeMap::new(),
            next: (0, 0),
            done: Documents::default(),
        }
    }

    async fn add(
        &mut self,
        at: String,
        offset: u64,
        document: &Object,
        text: String,
    ) -> Result<(), Failure> {
        let Some(id) = document.get("id").and_then(Value::as_str) else {
            return Err(Failure::Refused(format!("{at}: a document needs an 'id', a string")));
        };
        let key = self.target.key.extract(document);
        let range = self.range_of(&key);
        let operation = Operation { at, offset, id: id.to_owned(), key, text };
        let waiting = &self.waiting[range];
        let bytes: usize = waiting.iter().map(|one| one.text.len() + one.id.len()).sum();
        let is_full =
            waiting.len() >= BATCH_OPERATIONS_MAX || bytes + operation.text.len() > BATCH_BYTES_MAX;
        if is_full && !waiting.is_empty() {
            self.depart(range).await?;
        }
        if !self.name.is_empty() {
            self.open.insert(offset, self.next.1.saturating_sub(1));
        }
        // The ranges may be others by now.
        let range = self.range_of(&operation.key);
        self.waiting[range].push(operation);
        Ok(())
    }

    fn range_of(&self, key: &PartitionKey) -> usize {
        let epk = self.target.key.epk(key);
        self.ranges.iter().position(|range| range.epk.contains(&epk)).unwrap_or(0)
    }

    /// Sends what waits for a range.
    async fn depart(&mut self, range: usize) -> Result<(), Failure> {
        let length = self.waiting[range].len().min(BATCH_OPERATIONS_MAX);
        let operations: Vec<Operation> = self.waiting[range].drain(..length).collect();
        let (place, range) = (self.target.place.clone(), self.ranges[range].clone());
        if self.flying.len() >= FLYING_MAX {
            self.land().await?;
        }
        let account = self.idle.pop().unwrap_or_else(|| self.loader.account.another());
        let existing = self.loader.existing;
        self.flying.spawn(async move {
            let mut account = account;
            let results = store(&mut account, &place, &range, existing, &operations).await;
            Landed { account, operations, results }
        });
        Ok(())
    }

    /// Waits for a batch to come back.
    async fn land(&mut self) -> Result<(), Failure> {
        let Some(landed) = self.flying.join_next().await else { return Ok(()) };
        let landed = landed.map_err(|error| Failure::Refused(format!("a fault: {error}")))?;
        let (results, is_stale) = landed.results?;
        for (operation, result) in landed.operations.iter().zip(results) {
            let refuse = |why: &str| Failure::Refused(format!("{}: {why}", operation.at));
            match result {
                Stored::Created => self.done.created += 1,
                Stored::Replaced => self.done.replaced += 1,
                Stored::Conflict if self.loader.existing == Existing::Keep => self.done.kept += 1,
                Stored::Conflict => {
                    return Err(refuse(
                        "another document of its partition has the same unique values",
                    ));
                }
                Stored::Moved | Stored::NotNow => {
                    return Err(refuse("the server is too busy; try again later"));
                }
                Stored::Refused(why) => return Err(refuse(&why)),
            }
            self.open.remove(&operation.offset);
        }
        self.idle.push(landed.account);
        if is_stale {
            self.learn_ranges().await?;
        }
        self.tell()
    }

    /// Looks at the ranges anew, and sorts what waits into them.
    async fn learn_ranges(&mut self) -> Result<(), Failure> {
        self.ranges = self.loader.account.ranges(&self.target.place).await?;
        let waiting: Vec<Operation> = self.waiting.drain(..).flatten().collect();
        self.waiting = self.ranges.iter().map(|_| Vec::new()).collect();
        for operation in waiting {
            let range = self.range_of(&operation.key);
            self.waiting[range].push(operation);
        }
        Ok(())
    }

    fn tell(&mut self) -> Result<(), Failure> {
        let first_open = self.open.first_key_value().map(|(offset, line)| (*offset, *line));
        let (offset, line) = first_open.unwrap_or(self.next);
        self.loader.progress.tell(offset, self.done.total());
        if let Some(state) = &mut self.loader.state
            && !self.name.is_empty()
        {
            let mark = [("offset", Value::from(offset)), ("line", Value::from(line))];
            state.set(self.name, Value::from(Object::from(mark)))?;
        }
        Ok(())
    }

    /// Sends the rest and waits for all.
    async fn finish(mut self) -> Result<Documents, Failure> {
        while let Some(range) = self.waiting.iter().position(|waiting| !waiting.is_empty()) {
            self.depart(range).await?;
        }
        while !self.flying.is_empty() {
            self.land().await?;
        }
        self.tell()?;
        Ok(self.done)
    }
}

/// Stores documents of one range: all at once, then one by one what that did not do.
async fn store(
    account: &mut Account,
    place: &Place,
    range: &Range,
    existing: Existing,
    operations: &[Operation],
) -> Result<(Vec<Stored>, bool), Failure> {
    let bytes: usize = operations.iter().map(|one| one.text.len()).sum();
    let mut results = if operations.len() == 1 || bytes > BATCH_BYTES_MAX {
        vec![Stored::NotNow; operations.len()]
    } else {
        let mut storing = Storing::new(existing);
        operations.iter().for_each(|one| storing.push(&one.key, &one.text));
        let results = account.store_many(place, range, storing.body()).await?;
        results.unwrap_or_else(|| vec![Stored::Moved; operations.len()])
    };
    let is_stale = results.contains(&Stored::Moved);
    if results.len() != operations.len() {
        return Err(Failure::Refused(format!(
            "the server's answer cannot be understood: it has {} for {}",
            count(results.len() as u64, "result"),
            count(operations.len() as u64, "document")
        )));
    }
    for (result, operation) in results.iter_mut().zip(operations) {
        if matches!(result, Stored::Moved | Stored::NotNow) {
            let text = Bytes::copy_from_slice(operation.text.as_bytes());
            *result = account.store(place, &operation.key, text, existing).await?;
        }
        // What is in the way may be another document, by a unique key.
        if *result == Stored::Conflict && existing == Existing::Keep {
            let found = account.document(place, &operation.key, &operation.id).await?;
            if found.is_none() {
                let why = "another document of its partition has the same unique values";
                *result = Stored::Refused(why.to_owned());
            }
        }
    }
    Ok((results, is_stale))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use db::{Db, SystemClock, SystemIds};
    use gateway::{
        Certificate, Config, Consistency, EMULATOR_KEY, Gateway, Key, Keys, Origins, Scheme,
    };
    use hyper::{Request, Response};
    use storage::Embedded;

    use super::*;
    use crate::client::{Client, Within};

    /// A server that makes trouble at some of the requests.
    struct Troubled {
        db: Arc<Db<Embedded>>,
        gateway: Gateway<Embedded>,
        requests: AtomicUsize,
        every: usize,
        trouble: Trouble,
    }

    #[derive(PartialEq)]
    enum Trouble {
        /// The first range of the container is cut in two before the request.
        Cut,
        /// The request is not answered but sent away for a moment.
        Busy,
    }

    impl Within for Troubled {
        fn answer(
            &self,
            request: Request<Bytes>,
        ) -> Pin<Box<dyn Future<Output = Response<Bytes>> + Send + '_>> {
            Box::pin(async move {
                let number = self.requests.fetch_add(1, Ordering::SeqCst);
                let is_troubled = number % self.every == self.every - 1;
                if is_troubled && self.trouble == Trouble::Busy {
                    let busy = Response::builder().status(429).header("x-ms-retry-after-ms", "1");
                    return busy.body(Bytes::from("{}")).unwrap();
                }
                if is_troubled && let Ok(container) = self.db.container("d", "c") {
                    let ranges = self.db.partition_key_ranges(&container).unwrap().ranges;
                    let first = ranges[0].get("id").unwrap().as_str().unwrap();
                    // Another request may have had it cut just now.
                    if let Err(error) = self.db.split_range(&container, first, None).await {
                        assert_eq!(error.kind, db::Kind::RangeGone, "{error:?}");
                    }
                }
                self.gateway.respond(request, Scheme::Http).await
            })
        }
    }

    async fn loader(trouble: Trouble, every: usize) -> (Loader, Arc<Troubled>) {
        let store = Arc::new(Embedded::in_memory());
        let db = Db::open(store, Arc::new(SystemClock), &SystemIds::new()).await.unwrap();
        let key = Key::parse(EMULATOR_KEY).unwrap();
        let config = Config {
            keys: Keys::single(key.clone()),
            public_host: None,
            consistency: Consistency::Session,
            strict: true,
            throttle: false,
            client_merges: false,
            strict_ids: false,
            cors: Origins::None,
            connections_max: 8,
            accept_test_tokens: false,
            certificate: Certificate::Own(None),
        };
        let gateway = Gateway::new(db.clone(), config).unwrap();
        let requests = AtomicUsize::new(0);
        let server = Arc::new(Troubled { db, gateway, requests, every, trouble });
        let account = Account::new(Client::within(server.clone(), key), "here".to_owned());
        let (existing, progress) = (Existing::Replace, Progress::silent());
        (Loader { account, existing, progress, state: None }, server)
    }

    fn seed(documents: usize) -> Seed {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("seed.json");
        let document = |n| format!(r#"{{"id":"{n}","pk":"{}"}}"#, n % 100);
        let documents: Vec<String> = (0..documents).map(document).collect();
        let text = format!(
            r#"{{"databases":[{{"id":"d","containers":[{{"id":"c","partitionKey":"/pk",
                "documents":[{}]}}]}}]}}"#,
            documents.join(",")
        );
        std::fs::write(&path, text).unwrap();
        Seed::read(&path).unwrap()
    }

    /// Ranges are split and merged by the server when it likes, also while documents come in.
    #[tokio::test]
    async fn documents_find_their_way_when_ranges_change() {
        let (mut loader, server) = loader(Trouble::Cut, 9).await;
        let loaded = loader.load(&seed(3_000)).await.unwrap();
        assert_eq!(loaded.documents.created, 3_000);
        let again = loader.load(&seed(3_000)).await.unwrap();
        assert_eq!((again.documents.created, again.documents.replaced), (0, 3_000));
        let place = Place { database: "d".to_owned(), container: "c".to_owned() };
        assert_eq!(loader.account.count(&place).await.unwrap(), 3_000);
        assert!(loader.account.ranges(&place).await.unwrap().len() > 3);
        assert!(server.db.verify(|_| {}).unwrap().problems.is_empty());
    }

    #[tokio::test]
    async fn a_busy_server_is_asked_again() {
        let (mut loader, _) = loader(Trouble::Busy, 3).await;
        let loaded = loader.load(&seed(1_000)).await.unwrap();
        assert_eq!((loaded.containers, loaded.documents.created), (1, 1_000));
        let (mut loader, server) = self::loader(Trouble::Busy, 1).await;
        let failure = loader.load(&seed(1)).await.unwrap_err().to_string();
        assert!(failure.contains("the server is busy"), "{failure}");
        assert_eq!(server.requests.load(Ordering::SeqCst), 10);
    }
}
