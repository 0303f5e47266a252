//! Remembers which documents are written while their range is copied.
//!
//! In memory only: a copy that a crash interrupts is thrown away with it. Notes are taken where an
//! operation runs, before it is durable, and an operation may still be refused after it; so a note
//! says no more than "look at this place again, once the range has come to this lsn".

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What was written to a container since somebody began to copy its ranges.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    are_noted: AtomicBool,
    /// The places that were written, with the lsn of the last write.
    places: Mutex<HashMap<Vec<u8>, u64>>,
}

impl Changes {
    /// Whether anybody wants to know. Nearly always nobody does, and asking costs nothing.
    pub(crate) fn are_noted(&self) -> bool {
        self.are_noted.load(Ordering::SeqCst)
    }

    pub(crate) fn note(&self, place: &[u8], lsn: u64) {
        let mut places = self.places();
        match places.get_mut(place) {
            Some(last) => *last = (*last).max(lsn),
            None => drop(places.insert(place.to_vec(), lsn)),
        }
    }

    pub(super) fn begin(&self) {
        self.places().clear();
        self.are_noted.store(true, Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.are_noted.store(false, Ordering::SeqCst);
        *self.places() = HashMap::new();
    }

    /// Takes out what has been written up to the lsn that is given for its place.
    pub(super) fn take(&self, lsn_at: impl Fn(&[u8]) -> Option<u64>) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        self.places().retain(|place, lsn| match lsn_at(place) {
            // Another range, which is not copied.
            None => false,
            Some(durable) if *lsn <= durable => {
                taken.push(place.clone());
                false
            }
            Some(_) => true,
        });
        taken
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Vec<u8>, u64>> {
        // A note is whole or not there, whatever happened to who took it.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_wait_until_they_are_durable() {
        let changes = Changes::default();
        assert!(!changes.are_noted());
        changes.begin();
        assert!(changes.are_noted());
        changes.note(b"a", 3);
        changes.note(b"b", 5);
        changes.note(b"b", 4);
        changes.note(b"x", 1);
        let lsn_at = |durable| move |place: &[u8]| (place != b"x").then_some(durable);
        assert_eq!(changes.take(lsn_at(4)), [b"a".to_vec()]);
        assert_eq!(changes.take(lsn_at(4)), Vec::<Vec<u8>>::new());
        assert_eq!(changes.take(lsn_at(5)), [b"b".to_vec()]);
        changes.note(b"c", 9);
        changes.end();
        assert!(!changes.are_noted() && changes.take(lsn_at(9)).is_empty());
    }
}
