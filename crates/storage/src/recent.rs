//! Which keys the newest commits have changed, for the conflict check of transactions.
//!
//! Kept in memory only, and not for ever: a transaction that is older than what is remembered is
//! told to run again. So forgetting is always safe, and the bound can be chosen freely.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

use crate::{Lsn, RangeId, transaction::Reads};

/// How many commits are remembered, and how many bytes of keys, over all ranges.
const COMMITS_MAX: usize = 8192;
const KEY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What an entry occupies beside its keys, roughly.
const OVERHEAD_BYTES: usize = 64;

/// The newest commits of all ranges.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    ranges: HashMap<RangeId, VecDeque<Commit>>,
    /// The range of every remembered commit, oldest first.
    order: VecDeque<RangeId>,
    size_bytes: usize,
}

#[derive(Debug)]
struct Commit {
    lsn: Lsn,
    /// Keys of the range, in any order.
    keys: Vec<Bytes>,
    size_bytes: usize,
}

impl Recent {
    /// Remembers a commit and forgets the oldest ones beyond the bound.
    pub(crate) fn remember(&mut self, range: RangeId, lsn: Lsn, keys: Vec<Bytes>) {
        let size_bytes = keys.iter().map(|key| key.len() + OVERHEAD_BYTES).sum();
        self.size_bytes += size_bytes;
        self.ranges.entry(range).or_default().push_back(Commit { lsn, keys, size_bytes });
        self.order.push_back(range);
        while self.order.len() > COMMITS_MAX || self.size_bytes > KEY_BYTES_MAX {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(range) = self.order.pop_front() else { return };
        let Some(commits) = self.ranges.get_mut(&range) else { return };
        if let Some(commit) = commits.pop_front() {
            self.size_bytes -= commit.size_bytes;
        }
        if commits.is_empty() {
            self.ranges.remove(&range);
        }
    }

    /// Whether anything that was read at `pinned` may have changed up to `newest`.
    pub(crate) fn conflicts(
        &self,
        range: RangeId,
        pinned: Lsn,
        newest: Lsn,
        reads: &Reads,
    ) -> bool {
        if pinned == newest || reads.is_empty() {
            return false;
        }
        let Some(commits) = self.ranges.get(&range) else { return true };
        // LSNs are dense, so the first remembered one tells whether any is missing.
        if commits.front().is_none_or(|oldest| oldest.lsn > pinned + 1) {
            return true;
        }
        commits
            .iter()
            .rev()
            .take_while(|commit| commit.lsn > pinned)
            .any(|commit| reads.touch(&commit.keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut recent = Recent::default();
        for lsn in 1..=20_000 {
            recent.remember(RangeId(lsn % 3), lsn, vec![Bytes::from_static(&[0; 10_000])]);
            assert!(recent.size_bytes <= KEY_BYTES_MAX && recent.order.len() <= COMMITS_MAX);
        }
        assert!(recent.order.len() > 500);
        for lsn in 20_001..=40_000 {
            recent.remember(RangeId(7), lsn, vec![Bytes::new()]);
            assert!(recent.size_bytes <= KEY_BYTES_MAX && recent.order.len() <= COMMITS_MAX);
        }
        assert_eq!(recent.order.len(), COMMITS_MAX);
        assert_eq!(recent.ranges.len(), 1, "ranges in which nothing happens are forgotten");
    }
}
