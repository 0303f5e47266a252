//! Events: one row for each change of a document, kept for as long as the container's policy says.
//!
//! An event holds the place of its document, so that it can be given to those who ask for a part of
//! the container, and moves with the documents where a range is cut. It holds the document after the change
//! and, where the policy asks for it, the one before, each as it is stored, with its checksum.
//!
//! A policy may come and go. The row of [`Recorded`](super::recorded::Recorded) says from which commit
//! on all events are there; it is written by the first commit that records its events and goes with the first that does
//! not, so that a reader never takes a gap for silence.

use bytes::{BufMut, Bytes, BytesMut};
use value::Document;

use crate::Result;
use crate::policy::PreviousImages;
use crate::row::{Fields, Item, corrupt};

/// What happened to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// There was none before.
    Create,
    /// There was one before.
    Replace,
    /// A client deleted it, alone or with its partition.
    Delete,
    /// Its time to live was over.
    Expire,
}

impl ChangeKind {
    const ALL: [ChangeKind; 4] =
        [ChangeKind::Create, ChangeKind::Replace, ChangeKind::Delete, ChangeKind::Expire];
}

/// A change of a document, as it is recorded.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) kind: ChangeKind,
    /// The time of the commit.
    pub(crate) ts: u64,
    /// Where the document stands; where it stood, if it is gone.
    pub(crate) place: Bytes,
    pub(crate) current: Option<Document>,
    pub(crate) previous: Option<Previous>,
}

/// The document before a change.
#[derive(Clone, Debug)]
pub(crate) struct Previous {
    /// The commit that wrote it; never 0, which in a row means that there was no document.
    pub(crate) lsn: u64,
    /// Itself, where it is kept.
    pub(crate) image: Option<Document>,
}

const VERSION: u8 = 1;
const HEADER: usize = 28;

impl Event {
    /// A document was written.
    pub(crate) fn written(ts: u64, place: Vec<u8>, before: Option<&Item>, after: &Item) -> Event {
        Event {
            kind: if before.is_some() { ChangeKind::Replace } else { ChangeKind::Create },
            ts,
            place: place.into(),
            current: Some(after.document.clone()),
            previous: before.map(Previous::of),
        }
    }

    /// A document is gone.
    pub(crate) fn removed(kind: ChangeKind, ts: u64, place: Vec<u8>, before: &Item) -> Event {
        let previous = Some(Previous::of(before));
        Event { kind, ts, place: place.into(), current: None, previous }
    }

    /// The event as a policy wants it kept.
    pub(crate) fn keeping(mut self, images: PreviousImages) -> Event {
        let is_kept = match self.kind {
            ChangeKind::Create => false,
            ChangeKind::Replace => images.of_replaced,
            ChangeKind::Delete | ChangeKind::Expire => images.of_deleted,
        };
        if let Some(previous) = &mut self.previous
            && !is_kept
        {
            previous.image = None;
        }
        self
    }

    pub(crate) fn encode(&self) -> Bytes {
        let current = self.current.as_ref().map_or(&[][..], |document| document.encoded());
        let previous = self.previous.as_ref();
        let image = previous.and_then(|previous| previous.image.as_ref());
        let before = image.map_or(&[][..], |image| image.encoded());
        let length = HEADER + self.place.len() + current.len() + before.len();
        let mut row = BytesMut::with_capacity(length);
        row.put_u8(VERSION);
        row.put_u8(self.kind as u8);
        row.put_u16(0);
        row.put_u64(self.ts);
        row.put_u64(previous.map_or(0, |previous| previous.lsn));
        row.put_u32(u32::try_from(self.place.len()).expect("places are shorter than keys"));
        row.put_u32(u32::try_from(current.len()).expect("documents are far below 4 GiB"));
        row.extend_from_slice(&self.place);
        row.extend_from_slice(current);
        row.extend_from_slice(before);
        row.freeze()
    }

    pub(crate) fn decode(row: &Bytes) -> Result<Event> {
        let parts = Parts::read(row)?;
        let kind = ChangeKind::ALL.get(usize::from(parts.kind)).ok_or_else(|| corrupt("event"))?;
        let document = |from: usize, to: usize| -> Result<Option<Document>> {
            if from == to {
                return Ok(None);
            }
            let decoded = Document::decode(row.slice(from..to));
            decoded.map(Some).map_err(|error| corrupt(&format!("document of an event: {error}")))
        };
        let image = document(parts.current_end, row.len())?;
        Ok(Event {
            kind: *kind,
            ts: parts.ts,
            place: row.slice(HEADER..parts.place_end),
            current: document(parts.place_end, parts.current_end)?,
            previous: (parts.previous_lsn > 0).then(|| Previous { lsn: parts.previous_lsn, image }),
        })
    }

    /// Where the document of an event stands, without a look at the rest of its row.
    pub(crate) fn place_of(row: &[u8]) -> Result<&[u8]> {
        Ok(&row[HEADER..Parts::read(row)?.place_end])
    }

    /// When an event was recorded, without a look at the rest of its row.
    pub(crate) fn ts_of(row: &[u8]) -> Result<u64> {
        Ok(Parts::read(row)?.ts)
    }
}

impl Previous {
    fn of(item: &Item) -> Previous {
        Previous { lsn: item.header.lsn, image: Some(item.document.clone()) }
    }
}

/// The fixed part of a row, with the ends of what follows.
struct Parts {
    kind: u8,
    ts: u64,
    previous_lsn: u64,
    place_end: usize,
    current_end: usize,
}

impl Parts {
    fn read(row: &[u8]) -> Result<Parts> {
        let mut fields = Fields::new(row, VERSION, HEADER, "event")?;
        let kind = fields.u8();
        fields.u16();
        let (ts, previous_lsn) = (fields.u64(), fields.u64());
        let place_end = HEADER.checked_add(fields.u32() as usize);
        let current = fields.u32() as usize;
        let current_end = place_end.and_then(|end| end.checked_add(current));
        match (place_end, current_end) {
            (Some(place_end), Some(current_end)) if current_end <= row.len() => {
                Ok(Parts { kind, ts, previous_lsn, place_end, current_end })
            }
            _ => Err(corrupt("event")),
        }
    }
}

#[cfg(test)]
mod tests {
    use value::{Object, SystemProperties, Value};

    use super::*;

    fn document(id: &str) -> Document {
        let system = SystemProperties { rid: "r", self_link: "s", etag: "e", ts: 7 };
        Document::build(&Object::from([("id", Value::from(id))]), &system)
    }

    fn text(document: Option<&Document>) -> Option<Bytes> {
        document.map(Document::text)
    }

    #[test]
    fn events_come_back_as_they_were() {
        let current = Some(document("after"));
        let previous = Some(Previous { lsn: 9, image: Some(document("before")) });
        let unseen = Some(Previous { lsn: 9, image: None });
        for (kind, current, previous) in [
            (ChangeKind::Create, current.clone(), None),
            (ChangeKind::Replace, current.clone(), previous.clone()),
            (ChangeKind::Replace, current, unseen.clone()),
            (ChangeKind::Delete, None, unseen),
            (ChangeKind::Delete, None, previous.clone()),
            (ChangeKind::Expire, None, previous),
        ] {
            let place = Bytes::from_static(b"a place");
            let event = Event { kind, ts: 7, place: place.clone(), current, previous };
            let row = event.encode();
            let read = Event::decode(&row).unwrap();
            assert_eq!((read.kind, read.ts, &read.place), (kind, 7, &place));
            assert_eq!(text(read.current.as_ref()), text(event.current.as_ref()));
            let before = |event: &Event| {
                let previous = event.previous.as_ref()?;
                Some((previous.image.as_ref().map(Document::text), previous.lsn))
            };
            assert_eq!(before(&read), before(&event));
            assert_eq!(Event::place_of(&row).unwrap(), &place[..]);
            assert_eq!(Event::ts_of(&row).unwrap(), 7);
            for length in 0..row.len() {
                let _ = Event::decode(&row.slice(..length));
                let _ = Event::place_of(&row[..length]);
            }
        }
    }
}
