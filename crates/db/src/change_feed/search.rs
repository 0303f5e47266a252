//! Finds where in the feed a time begins, without reading up to there.
//!
//! Commits of a range carry ever later times, so the commit is found by halving. Documents of scripts
//! are the exception: they have the time at which their script began, which may be a little older than
//! that of commits before theirs ([`SCRIPT_LAG_S`]). So an old document of a script alone does not prove
//! that everything before it is old. Wherever it cannot be told the search stays on the safe side: it
//! may end too early in the feed, never too late, and the reader looks at every time itself.
//!
//! Where two ranges were merged their commits up to then stand side by side, in no order of time. What
//! was committed later is later than all of those.

use std::ops::{Bound, ControlFlow};

use storage::{Direction, Snapshot};

use crate::row::{ItemHeader, RangeHeader, corrupt};
use crate::transaction::SCRIPT_LAG_S;
use crate::{Result, key};

/// How many documents of scripts are passed over to find one that proves something.
const PASSED_MAX: usize = 32;

/// A position up to which no document is newer than a second.
pub(crate) fn before_time(snapshot: &impl Snapshot, second: u64) -> Result<u64> {
    let header = snapshot.get(&key::header())?.ok_or_else(|| corrupt("range without header"))?;
    let merged_lsn = RangeHeader::decode(&header)?.merged_lsn;
    // Everything up to `low` is old enough, if a document was found that proves it, or if there is
    // no order below to care about; nothing is known between `low` and `high`.
    let (mut low, mut high) = (merged_lsn.min(snapshot.lsn()), snapshot.lsn());
    let mut is_proved = merged_lsn == 0;
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match last_between(snapshot, low, middle)? {
            None => low = middle,
            Some(last) if is_old_up_to(snapshot, &last, second)? => {
                is_proved = true;
                low = middle;
            }
            Some(last) => high = last.lsn - 1,
        }
    }
    Ok(if is_proved { low } else { 0 })
}

/// A document of the feed.
struct Found {
    lsn: u64,
    ts: u64,
    /// Whether a script may have written it.
    by_script: bool,
}

/// Whether everything up to a document is known to be no newer than a second.
fn is_old_up_to(snapshot: &impl Snapshot, found: &Found, second: u64) -> Result<bool> {
    if found.ts > second {
        return Ok(false);
    }
    if !found.by_script || found.ts.saturating_add(SCRIPT_LAG_S) <= second {
        return Ok(true);
    }
    let mut proof = false;
    visit(snapshot, found.lsn, u64::MAX, Direction::Forward, PASSED_MAX, &mut |next| {
        proof = next.ts <= second && !next.by_script;
        let is_decided = proof || next.ts > second;
        if is_decided { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(proof)
}

/// The last document that was written after one commit and no later than another.
fn last_between(snapshot: &impl Snapshot, after: u64, until: u64) -> Result<Option<Found>> {
    let mut last = None;
    visit(snapshot, after + 1, until, Direction::Backward, 1, &mut |found| {
        last = Some(found);
        ControlFlow::Break(())
    })?;
    Ok(last)
}

fn visit(
    snapshot: &impl Snapshot,
    from_lsn: u64,
    to_lsn: u64,
    direction: Direction,
    count_max: usize,
    visit: &mut dyn FnMut(Found) -> ControlFlow<()>,
) -> Result<()> {
    let from = key::feed(from_lsn, 0);
    let to = match to_lsn.checked_add(1) {
        Some(behind) => key::feed(behind, 0),
        None => key::all_of(key::Kind::Feed).1,
    };
    let mut rows = Vec::new();
    snapshot.scan(
        Bound::Included(&from[..]),
        Bound::Excluded(&to[..]),
        direction,
        &mut |key, place| {
            rows.push((key.to_vec(), place.clone()));
            if rows.len() < count_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        },
    )?;
    for (key, place) in rows {
        let lsn = key::lsn_of(&key).ok_or_else(|| corrupt("feed pointer"))?;
        let item = snapshot.get(&key::item(&place))?;
        let item = item.ok_or_else(|| corrupt("feed pointer without a document"))?;
        let header = ItemHeader::decode(&item)?;
        let found = Found { lsn, ts: header.ts, by_script: header.keeps_etag };
        if visit(found).is_break() {
            break;
        }
    }
    Ok(())
}
