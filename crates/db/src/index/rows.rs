//! Some documents at a time, for work that goes over many of them.

use std::ops::ControlFlow;

use bytes::Bytes;
use storage::Visit;

use crate::Result;

/// Some of the documents of an interval, from its beginning.
pub(super) struct Rows {
    /// Each with its place.
    pub(super) rows: Vec<(Vec<u8>, Bytes)>,
    /// Whether there are no more in the interval.
    pub(super) is_end: bool,
}

impl Rows {
    /// Reads documents until they are so many or so large together.
    pub(super) fn collect(
        count_max: usize,
        bytes_max: usize,
        scan: impl FnOnce(Visit<'_>) -> Result<(), storage::Error>,
    ) -> Result<Rows> {
        let mut collected = Rows { rows: Vec::new(), is_end: true };
        let mut bytes = 0;
        scan(&mut |key, row| {
            if collected.rows.len() >= count_max || bytes >= bytes_max {
                collected.is_end = false;
                return ControlFlow::Break(());
            }
            bytes += row.len();
            collected.rows.push((key[1..].to_vec(), row.clone()));
            ControlFlow::Continue(())
        })?;
        Ok(collected)
    }
}
