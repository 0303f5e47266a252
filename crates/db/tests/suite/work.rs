//! How much a query reads: as much as it answers, however much is stored.
//!
//! The same questions are asked over few documents and over many, of which they find about as many.
//! The store counts what is read from it, so nothing here depends on the speed of a machine.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use db::{BatchOperation, Conditions, Container, Db, Page, QueryText, Scope};
use storage::{
    Batch, Direction, Engine, Error, Memory, MemorySnapshot, OrderedSnapshot, OrderedStore, Visit,
};

use value::Value;

use crate::support::{self, by_pk_with, create, key};

/// An ordered store that counts what is read.
struct Counting {
    store: Memory,
    rows: Arc<AtomicU64>,
}

struct CountingSnapshot {
    snapshot: MemorySnapshot,
    rows: Arc<AtomicU64>,
}

/// How a query would be answered.
fn access(orders: &Orders, text: &str) -> String {
    explained(orders, text).get("access").unwrap().as_str().unwrap().to_owned()
}

fn explained(orders: &Orders, text: &str) -> Value {
    let query = QueryText { text: text.to_owned(), ..QueryText::default() };
    let scope = Scope { cross_partition: true, ..Scope::default() };
    orders.db.explain(&orders.container, &query, &scope, None).unwrap()
}

impl OrderedStore for Counting {
    type Snapshot = CountingSnapshot;

    fn snapshot(&self) -> Result<CountingSnapshot, Error> {
        Ok(CountingSnapshot { snapshot: self.store.snapshot()?, rows: self.rows.clone() })
    }

    fn write(&self, batch: Batch) -> Result<(), Error> {
        self.store.write(batch)
    }
}

impl OrderedSnapshot for CountingSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.rows.fetch_add(1, Ordering::Relaxed);
        self.snapshot.get(key)
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), Error> {
        // Looking for the first row is work, too.
        self.rows.fetch_add(1, Ordering::Relaxed);
        self.snapshot.scan(from, to, direction, &mut |key, value| {
            self.rows.fetch_add(1, Ordering::Relaxed);
            visit(key, value)
        })
    }
}

/// Orders of stores. Store 0 has one order in four, the others have some twenty each; the more orders
/// there are, the more customers, tags and articles.
struct Orders {
    db: Arc<Db<Engine<Counting>>>,
    container: Arc<Container>,
    rows: Arc<AtomicU64>,
    count: u64,
}

/// One order in so many is in the large store.
const LARGE_EVERY: u64 = 4;
/// How many orders of a scope share a value.
const SHARED: u64 = 10;
/// How many a small store has.
const SMALL: u64 = 20;

/// Where a question looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Store 0.
    Large,
    Small,
    Across,
}

impl Orders {
    async fn new(count: u64, policy: &str) -> Orders {
        let rows = Arc::new(AtomicU64::new(0));
        let store = Counting { store: Memory::new(), rows: rows.clone() };
        let engine = Engine::with_store(store).unwrap();
        let db = support::open(engine, &support::clock()).await;
        let container = support::container(&db, &by_pk_with(policy)).await;
        let numbers: Vec<u64> = (0..count).collect();
        for chunk in numbers.chunks(100) {
            let operations = chunk.iter().map(|number| {
                let (pk, body) = order(*number, count);
                let key = Some(key(&format!("[\"{pk}\"]")));
                BatchOperation { key, write: create(&body), conditions: Conditions::default() }
            });
            let written = db.bulk(&container, None, operations.collect(), true).await.unwrap();
            assert!(written.results.iter().all(|result| result.status == 201), "{written:?}");
        }
        Orders { db, container, rows, count }
    }

    /// How many rows a query gives, and how many rows of the store are read for it.
    fn ask(&self, text: &str, at: At) -> (u64, u64) {
        let store = match at {
            At::Large => Some("store-0"),
            At::Small => Some("store-2"),
            At::Across => None,
        };
        let key = store.map(|store| key(&format!("[\"{store}\"]")));
        let scope = Scope { key, cross_partition: true, ..Scope::default() };
        let query = QueryText { text: text.to_owned(), ..QueryText::default() };
        let before = self.rows.load(Ordering::Relaxed);
        let page = self.db.query(&self.container, &query, &scope, &Page::default(), None);
        let page = page.unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
        assert_eq!(page.continuation, None, "{text} is answered in one page");
        (page.rows.len() as u64, self.rows.load(Ordering::Relaxed) - before)
    }

    /// The questions of the benchmark, each for about ten rows.
    fn questions(&self, at: At) -> Vec<String> {
        let (of, middle) = match at {
            At::Large => ("large", self.count / 2),
            At::Small | At::Across => ("any", self.count / 2),
        };
        let scoped = in_scope(at, self.count);
        // Totals go up to the number of orders.
        let width = self.count * SHARED / scoped;
        vec![
            format!("SELECT * FROM c WHERE c.customer = '{of}-1'"),
            format!("SELECT * FROM c WHERE c.total >= {middle} AND c.total < {}", middle + width),
            format!("SELECT TOP 10 * FROM c WHERE c.created < {middle} ORDER BY c.created DESC"),
            format!("SELECT TOP 10 * FROM c WHERE c.created >= {middle} ORDER BY c.created"),
            format!("SELECT * FROM c WHERE ARRAY_CONTAINS(c.tags, '{of}-2')"),
            format!(
                "SELECT c.id, i.sku FROM c JOIN i IN c.items WHERE i.sku = '{of}-3' AND i.n >= 2"
            ),
        ]
    }
}

fn in_scope(at: At, count: u64) -> u64 {
    match at {
        At::Large => count / LARGE_EVERY,
        At::Small => SMALL,
        At::Across => count,
    }
}

/// The partition and the text of an order.
fn order(number: u64, count: u64) -> (String, String) {
    let is_large = number.is_multiple_of(LARGE_EVERY);
    let spread = number.wrapping_mul(7_919) % count;
    let (pk, of, values) = match is_large {
        true => ("store-0".to_owned(), "large", count / LARGE_EVERY / SHARED),
        false => (format!("store-{}", 1 + spread % (count / SMALL)), "any", count / SHARED),
    };
    let value = |salt: u64| format!("{of}-{}", (number / LARGE_EVERY + salt) % values.max(1));
    let body = format!(
        r#"{{"id":"o{number}","pk":"{pk}","customer":"{}","total":{spread},"created":{number},
            "share":{spread}.0,"tags":["all","{}"],"items":[{{"sku":"{}","n":3}},{{"sku":"x","n":1}}]}}"#,
        value(0),
        value(1),
        value(2),
    );
    (pk, body)
}

const DEFAULT: &str = "\"defaultTtl\":null";
const COMPOSITES: &str = r#""indexingPolicy":{"compositeIndexes":[
    [{"path":"/pk","order":"ascending"},{"path":"/total","order":"ascending"}],
    [{"path":"/pk","order":"ascending"},{"path":"/created","order":"descending"}]]}"#;

/// A row of an answer costs at most so many reads; a query, so many more.
const READS_PER_ROW: u64 = 4;
const READS_PER_QUERY: u64 = 64;

#[tokio::test]
async fn a_query_reads_as_much_as_it_answers() {
    // The large store of the many is so large that its lists of entries are taken uncounted.
    check_reads(&Orders::new(1_000, COMPOSITES).await, &Orders::new(12_000, COMPOSITES).await);
}

/// What composite indexes are for in general, entries of their own are for inside large partitions,
/// whatever the policy.
#[tokio::test]
async fn a_query_inside_a_large_partition_reads_as_much_as_it_answers() {
    let (few, many) = (Orders::new(1_000, DEFAULT).await, Orders::new(12_000, DEFAULT).await);
    for orders in [&few, &many] {
        orders.db.set_apart(&orders.container, &key("[\"store-0\"]")).await.unwrap();
        orders.db.sweep().await.unwrap();
        support::verify(&orders.db);
    }
    check_reads(&few, &many);
    let text = "SELECT * FROM c WHERE c.pk = 'store-0' AND c.total < 100";
    let explained = explained(&many, text);
    let told = explained.to_text();
    assert!(told.contains("the partition has entries of its own"), "{told}");
    // Nothing is left for a composite index to do.
    assert!(told.contains(r#""potentialCompositeIndexes":[]"#), "{told}");
    let (rows, reads) = many.ask("SELECT VALUE MAX(c.total) FROM c", At::Large);
    assert!(rows == 1 && reads <= 3 * READS_PER_QUERY, "{reads} reads for a maximum");
    let (rows, reads) = many.ask("SELECT VALUE COUNT(1) FROM c WHERE c.total < 100", At::Large);
    assert!(rows == 1 && reads <= 25 + READS_PER_QUERY, "{reads} reads for a count");
}

fn check_reads(few: &Orders, many: &Orders) {
    for at in [At::Large, At::Small, At::Across] {
        for (number, text) in many.questions(at).iter().enumerate() {
            let (rows, reads) = many.ask(text, at);
            let (rows_of_few, reads_of_few) = few.ask(&few.questions(at)[number], at);
            let told = format!(
                "{text} {at:?}: {reads_of_few} reads for {rows_of_few} rows of 1000, \
                 {reads} for {rows} of 12000"
            );
            assert!(at == At::Small || rows > 0, "{told}");
            assert!(reads <= READS_PER_ROW * rows + READS_PER_QUERY, "{told}");
        }
    }
}

/// Entries are walked over, documents are looked up: so a look for each row shows in the reads.
#[tokio::test]
async fn a_query_that_entries_can_answer_reads_no_documents() {
    let orders = Orders::new(3_000, COMPOSITES).await;
    let entries_of = |text: &str, at: At, entries: u64, rows_expected: u64| {
        let (rows, reads) = orders.ask(text, at);
        let told = format!("{text} {at:?}: {reads} reads for {rows} rows");
        assert_eq!(rows, rows_expected, "{told}");
        // Some entries are read twice: when they are counted, and when a walk goes on.
        assert!(reads <= entries + entries / 4 + READS_PER_QUERY, "{told}");
    };
    entries_of("SELECT c.id, c.total FROM c WHERE c.total < 500", At::Across, 500, 500);
    entries_of(
        "SELECT c.pk, c.total FROM c WHERE c.total < 900 ORDER BY c.total",
        At::Across,
        900,
        900,
    );
    entries_of("SELECT VALUE c.id FROM c WHERE c.pk = 'store-0'", At::Across, 750, 750);
    entries_of("SELECT VALUE SUM(c.total) FROM c WHERE c.total < 600", At::Across, 600, 1);
    entries_of("SELECT c.id, c.created FROM c WHERE c.created >= 2000", At::Large, 250, 250);
    // No filter: the index of a path that all documents have, instead of all documents.
    entries_of("SELECT VALUE AVG(c.total) FROM c", At::Across, 3_000, 1);
    entries_of("SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk", At::Across, 3_000, 151);
    // Of numbers that are written otherwise the entries do not tell enough.
    assert!(access(&orders, "SELECT VALUE SUM(c.total) FROM c").contains("the entries tell all"));
    let access = access(&orders, "SELECT VALUE SUM(c.share) FROM c");
    assert!(access.contains("all 3000 documents"), "{access}");
}

/// What no index can look up, the entries of a path can still tell without their documents.
#[tokio::test]
async fn entries_are_asked_before_their_documents() {
    let orders = Orders::new(3_000, DEFAULT).await;
    let is_asked = |filter: &str| {
        let text = format!("SELECT * FROM c WHERE {filter}");
        access(&orders, &text).contains("entries of /customer/? are asked")
    };
    for filter in [
        "CONTAINS(c.customer, 'y-17')",
        "ENDSWITH(c.customer, '77')",
        "LOWER(c.customer) = 'any-1'",
        "c.customer LIKE '%-7'",
        "CONTAINS(c.customer, c.id)",
        "LENGTH(c.customer) < 6 OR c.customer = 'any-7'",
    ] {
        assert!(is_asked(filter), "{filter}");
        let (rows, _) =
            orders.ask(&format!("SELECT VALUE COUNT(1) FROM c WHERE {filter}"), At::Across);
        assert_eq!(rows, 1);
    }
    // Other paths have to be read, and chance is not asked twice.
    for filter in [
        "CONTAINS(c.customer, 'y-17') AND c.total > c.created",
        "CONTAINS(c.customer, 'y-17') AND RAND() < 2",
        "c.customer = 'any-1'",
        // Many pass, and looking them up one by one would take longer than reading all.
        "CONTAINS(c.customer, 'any')",
    ] {
        assert!(!is_asked(filter), "{filter}");
    }
    let count = |filter: &str| {
        let scope = Scope { cross_partition: true, ..Scope::default() };
        let text = format!("SELECT c.id, c.total FROM c WHERE {filter}");
        let query = QueryText { text, ..QueryText::default() };
        let (mut rows, mut page) = (0, Page { items_max: Some(7), ..Page::default() });
        loop {
            let answer = orders.db.query(&orders.container, &query, &scope, &page, None).unwrap();
            rows += answer.rows.len();
            page.continuation = answer.continuation;
            if page.continuation.is_none() {
                return rows;
            }
        }
    };
    // No entry tells of a document as a whole.
    assert_eq!(count("CONTAINS(TOSTRING(c), '\"o1717\"')"), 1);
    // Page by page, and after a document without the path has come: it may pass, or not.
    assert_eq!(count("ENDSWITH(c.customer, '-1')"), count("c.customer IN ('any-1', 'large-1')"));
    let odd = |id: &str, customer: &str| {
        let body = format!(r#"{{"id":"{id}","pk":"store-0"{customer}}}"#);
        let key = Some(key("[\"store-0\"]"));
        BatchOperation { key, write: create(&body), conditions: Conditions::default() }
    };
    let before = count("LENGTH(c.customer ?? 'none') < 6");
    let operations = vec![odd("lacking", "")];
    orders.db.bulk(&orders.container, None, operations, true).await.unwrap();
    assert!(is_asked("CONTAINS(c.customer, 'y-17')"));
    assert!(!is_asked("LENGTH(c.customer ?? 'none') < 6"));
    assert_eq!(count("LENGTH(c.customer ?? 'none') < 6"), before + 1);
    let operations = vec![odd("listed", r#","customer":["any-1"]"#)];
    orders.db.bulk(&orders.container, None, operations, true).await.unwrap();
    assert!(!is_asked("CONTAINS(c.customer, 'y-17')"));
}

#[tokio::test]
async fn the_least_and_the_greatest_are_read_at_the_ends_of_an_index() {
    let orders = Orders::new(3_000, COMPOSITES).await;
    let check = |text: &str, at: At| {
        let (rows, reads) = orders.ask(text, at);
        assert!(rows == 1 && reads <= 3 * READS_PER_QUERY, "{text} {at:?}: {reads} reads");
    };
    check("SELECT VALUE MAX(c.total) FROM c", At::Across);
    check("SELECT MIN(c.total) AS low, MAX(c.customer) AS high FROM c", At::Across);
    check("SELECT VALUE MAX(c._ts) FROM c", At::Across);
    check("SELECT VALUE MIN(c.total) FROM c WHERE c.total > 1000.5", At::Across);
    // In one partition by the composite index that begins with it.
    check("SELECT VALUE MAX(c.created) FROM c", At::Large);
    check("SELECT VALUE MIN(c.created) FROM c WHERE c.pk = 'store-0'", At::Across);
}

#[tokio::test]
async fn a_count_reads_nothing_but_counters() {
    let orders = Orders::new(2_000, DEFAULT).await;
    for at in [At::Large, At::Across] {
        let (rows, reads) = orders.ask("SELECT VALUE COUNT(1) FROM c", at);
        assert!(rows == 1 && reads < 10, "{reads} reads for a count {at:?}");
    }
}
