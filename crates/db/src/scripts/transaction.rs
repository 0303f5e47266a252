//! The transaction of a script: what it reads, what it writes, and how both become one commit.
//!
//! A script takes its time, so it does not run on the thread that commits. It reads one version of
//! its range, with its own writes on top, and what it read is remembered. Its writes go the one path
//! by which documents change, over that view; when it ends, the same writes are applied once more
//! where they are committed, which happens only if nothing that was read has changed.
//!
//! - T1: what a script is shown of a document that it wrote is what is stored: the text, the resource
//!   id, the etag and the time. Whatever depends on the commit alone (lsn, feed) it is not shown.
//! - T2: a write that is refused leaves nothing behind, as the script may go on.
//! - T3: what every commit changes (counters, how far the index has come) is not remembered as read:
//!   nothing that a script is shown depends on it, and the commit reads it anew.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use storage::{COMMIT_BYTES_MAX, Direction, Lsn, Operation, Snapshot, Stop, View, Visit};
use value::PartitionKey;

use crate::charge::Charge;
use crate::clock::Clock;
use crate::container::{Container, Range};
use crate::key::{self, Kind as RowKind, PartitionPrefix};
use crate::row::{self, Item, RangeHeader, corrupt};
use crate::scan::{OnePartition, Reading};
use crate::transaction::{SCRIPT_LAG_S, ScriptMoment, Transaction, Written};
use crate::write::{self, Conditions, Prepared, Write};
use crate::{Error, Kind, Result};

/// The most that a script may write. The commit itself takes twice as much, but other commits wait
/// for it.
const WRITTEN_BYTES_MAX: usize = COMMIT_BYTES_MAX / 2;

/// Where a script works: one logical partition.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) container: Arc<Container>,
    pub(crate) range: Arc<Range>,
    pub(crate) key: PartitionKey,
    pub(crate) partition: PartitionPrefix,
}

impl Place {
    /// The partition of a full key.
    pub(crate) fn of(container: &Arc<Container>, key: PartitionKey) -> Result<Place> {
        container.check_key_size(&key)?;
        let epk = container.epk(&key);
        let range = container.range_of(&epk).clone();
        let partition = PartitionPrefix::new(&epk, &key);
        Ok(Place { container: container.clone(), range, key, partition })
    }
}

/// The transaction of a script, while it runs.
pub(crate) struct ScriptTransaction<P: Snapshot> {
    pub(crate) place: Place,
    view: ScriptView<P>,
    pub(crate) moment: ScriptMoment,
    /// Documents up to this lsn were deleted with their partition.
    purged_up_to: Option<u64>,
    writes: Vec<Recorded>,
    /// What its reads and writes cost so far.
    pub(crate) charge: Charge,
}

/// A write that went well, with what the script was shown of it.
struct Recorded {
    prepared: Prepared,
    number: u64,
    text: Option<Bytes>,
}

impl<P: Snapshot> ScriptTransaction<P> {
    pub(crate) fn new(
        transaction: storage::Transaction<P>,
        place: Place,
        now_s: u64,
    ) -> Result<Self> {
        let view = ScriptView(transaction);
        let header = view.get(&key::header())?.ok_or_else(|| corrupt("range without header"))?;
        let last_ts = RangeHeader::decode(&header)?.last_ts;
        let moment = ScriptMoment { now_s, ts: now_s.max(last_ts) };
        // Remembered as read, so that a purge of the partition is noticed even by those that read
        // its documents before there was one.
        let purge = view.get(&place.partition.row(RowKind::Purge))?;
        let purged_up_to = purge.map(|row| row::decode_u64(&row)).transpose()?;
        let (writes, charge) = (Vec::new(), Charge::ZERO);
        Ok(Self { place, view, moment, purged_up_to, writes, charge })
    }

    /// The version that the script reads.
    pub(crate) fn lsn(&self) -> Lsn {
        self.view.0.snapshot().lsn()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.writes.is_empty()
    }

    /// The counters of the range.
    pub(crate) fn header(&self) -> Result<RangeHeader> {
        let row = self.view.get(&key::header())?;
        RangeHeader::decode(&row.ok_or_else(|| corrupt("range without header"))?)
    }

    /// Checks everything about a write that needs no look at the data.
    pub(crate) fn prepare(&self, write: Write, conditions: Conditions) -> Result<Prepared> {
        write::prepare(&self.place.container, Some(&self.place.key), write, conditions)
    }

    /// Writes a document.
    pub(crate) fn write(&mut self, prepared: Prepared) -> Result<Written> {
        let number = self.place.range.take_script_number();
        let written = self.step(Some(number), |txn| write::apply(txn, &prepared));
        let written = written.and_then(|written| {
            if self.view.0.written_bytes() > WRITTEN_BYTES_MAX {
                return Err(Error::new(
                    Kind::TransactionTooLarge,
                    "Request size is too large: the transaction writes more than one commit holds",
                ));
            }
            Ok(written)
        });
        match &written {
            Ok(written) => {
                self.view.0.keep();
                self.charge += written.charge;
                let text = written.document.as_ref().map(value::Document::text);
                self.writes.push(Recorded { prepared, number, text });
            }
            Err(_) => self.view.0.take_back(),
        }
        written
    }

    /// Reads a document.
    pub(crate) fn read(&mut self, prepared: &Prepared) -> Result<Written> {
        let read = self.step(None, |txn| write::apply(txn, prepared));
        self.view.0.take_back();
        let read = read?;
        self.charge += read.charge;
        Ok(read)
    }

    /// The document that a write would change, if what must be true of it is.
    pub(crate) fn before(&mut self, prepared: &Prepared) -> Result<Option<Item>> {
        let before = self.step(None, |txn| write::before(txn, prepared));
        self.view.0.take_back();
        before
    }

    /// Lets something happen to the view. Counters are stored after each step: the next one, and the
    /// check of the partition's size, see them.
    fn step<T>(
        &mut self,
        number: Option<u64>,
        act: impl FnOnce(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let container = &self.place.container;
        let mut txn = Transaction::open_for_script(&mut self.view, container, self.moment)?;
        txn.script_number = number;
        let done = act(&mut txn)?;
        txn.finish();
        Ok(done)
    }

    /// The documents of the partition, as queries read them.
    pub(crate) fn reading(&self, clock: &Arc<dyn Clock>) -> Reading<Seen<'_, P>> {
        let Place { container, range, key, partition } = &self.place;
        let one = OnePartition {
            range: range.clone(),
            key: key.clone(),
            partition: partition.clone(),
            snapshot: Seen { txn: &self.view.0, looked_elsewhere: AtomicBool::new(false) },
            purged_up_to: self.purged_up_to,
            now_s: self.moment.now_s,
        };
        Reading::of_partition(container, one, clock)
    }

    /// Remembers all documents of the partition as read.
    pub(crate) fn remember_partition(&self) {
        let (from, to) = key::items_of(&self.place.partition);
        self.view.0.remember(Bound::Included(&from[..]), Bound::Excluded(&to[..]));
    }

    /// What was read, and the operation that writes what was written.
    pub(crate) fn into_commit(self) -> (storage::Transaction<P>, ScriptCommit) {
        let mut transaction = self.view.0;
        transaction.forget_writes();
        let container = self.place.container;
        (transaction, ScriptCommit { container, writes: self.writes, moment: self.moment })
    }
}

/// Rows that every commit changes, or may change whatever it is about.
const BOOKKEEPING: [RowKind; 5] = [
    RowKind::Header,
    RowKind::Partition,
    RowKind::IndexState,
    RowKind::ShapeCount,
    RowKind::OwnState,
];

fn is_bookkeeping(key: &[u8]) -> bool {
    key.first().is_some_and(|first| BOOKKEEPING.iter().any(|kind| *kind as u8 == *first))
}

/// What the queries of a script see of its range: the version that the script reads, with its own
/// writes on top, documents and index entries alike. Keeps T3.
///
/// Documents that are looked at are remembered. Entries are not: those of a span of values are the
/// entries of all partitions. What is made of them depends on the documents of the partition alone,
/// because entries are written in the commit of their document; so whoever looks at entries has to
/// remember the partition.
pub(crate) struct Seen<'t, P> {
    txn: &'t storage::Transaction<P>,
    looked_elsewhere: AtomicBool,
}

impl<P> Seen<'_, P> {
    /// Whether something was looked at that is not remembered, and counts.
    pub(crate) fn has_looked_elsewhere(&self) -> bool {
        self.looked_elsewhere.load(Ordering::Relaxed)
    }

    /// Whether rows of a kind are documents; if not, notes that it was looked at.
    fn is_document(&self, key: &[u8]) -> bool {
        let is_document = key.first() == Some(&(RowKind::Item as u8));
        if !is_document && !is_bookkeeping(key) {
            self.looked_elsewhere.store(true, Ordering::Relaxed);
        }
        is_document
    }
}

impl<P: Snapshot> Snapshot for Seen<'_, P> {
    fn lsn(&self) -> Lsn {
        self.txn.snapshot().lsn()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, storage::Error> {
        if self.is_document(key) { self.txn.get(key) } else { self.txn.peek(key) }
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), storage::Error> {
        // No scan crosses from one kind of rows to another.
        let is_document = match from {
            Bound::Included(key) | Bound::Excluded(key) => self.is_document(key),
            Bound::Unbounded => self.is_document(&[]),
        };
        if is_document {
            self.txn.scan(from, to, direction, visit)
        } else {
            self.txn.peek_scan(from, to, direction, visit)
        }
    }
}

/// What a script sees of its range. Keeps T3.
struct ScriptView<P: Snapshot>(storage::Transaction<P>);

impl<P: Snapshot> View for ScriptView<P> {
    /// Nothing that a script is shown depends on it, so it need not be right.
    fn lsn(&self) -> Lsn {
        self.0.snapshot().lsn() + 1
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, storage::Error> {
        if is_bookkeeping(key) { self.0.peek(key) } else { self.0.get(key) }
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), storage::Error> {
        self.0.scan(from, to, direction, visit)
    }

    fn put(&mut self, key: &[u8], value: Bytes) {
        self.0.put(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.0.delete(key);
    }
}

/// The writes of a script, where they are committed.
pub(crate) struct ScriptCommit {
    container: Arc<Container>,
    writes: Vec<Recorded>,
    moment: ScriptMoment,
}

/// Why the writes of a script came out otherwise than it was shown: something has changed that is not
/// remembered as read.
#[derive(Debug)]
pub(crate) struct Changed(pub(crate) String);

impl Operation for ScriptCommit {
    type Output = ();
    type Refusal = Changed;

    fn size_bytes(&self) -> usize {
        self.writes.iter().map(|write| write.prepared.size_bytes()).sum()
    }

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Changed>> {
        self.apply(view).map_err(Stop::Refused)
    }
}

impl ScriptCommit {
    fn apply(&self, view: &mut dyn View) -> Result<(), Changed> {
        let refused = |error: Error| Changed(error.message);
        let mut txn =
            Transaction::open_for_script(view, &self.container, self.moment).map_err(refused)?;
        if txn.header.last_ts > self.moment.ts.saturating_add(SCRIPT_LAG_S) {
            return Err(Changed("the script took too long to be committed".to_owned()));
        }
        for Recorded { prepared, number, text } in &self.writes {
            txn.script_number = Some(*number);
            let written = write::apply(&mut txn, prepared).map_err(refused)?;
            // Keeps T1.
            if written.document.as_ref().map(value::Document::text) != *text {
                return Err(Changed("a document came out differently".to_owned()));
            }
        }
        txn.finish();
        Ok(())
    }
}
