//! How far a reader of the change feed has come, as text.
//!
//! Within one range that is an lsn, `"12"`: clients read it as a number and hand it on to the ranges
//! that a range was cut into, whose lsns go on from there. A reader of several ranges at once has come
//! to a different lsn in each: `":12,1FFF:7,FF"` names for each slice of the hash space where it begins
//! and its lsn, and at the end where the last one ends. Slices mean the same whatever becomes of the
//! ranges. The slice that is to be read first stands first.

use std::fmt;

use value::{Epk, EpkRange};

use crate::{Error, Result};

/// How far a reader has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Continuation {
    /// In the whole of what it reads.
    Everywhere(u64),
    /// In each slice of what it reads.
    Slices(Slices),
}

/// Slices that follow each other in the hash space, with an lsn for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slices {
    /// Where each begins, in order; never empty.
    starts: Vec<(Epk, u64)>,
    /// Where the last one ends.
    end: Epk,
    /// Which one is to be read first.
    first: usize,
}

/// More slices than any container has ranges.
const SLICES_MAX: usize = 10_000;

impl Continuation {
    /// Reads what a client sends back, with or without its quotes.
    pub(crate) fn parse(text: &str) -> Result<Continuation> {
        let inside = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        let inside = inside.unwrap_or(text);
        let parsed = match number(inside) {
            Some(lsn) => Some(Continuation::Everywhere(lsn)),
            None => Slices::parse(inside).map(Continuation::Slices),
        };
        parsed.ok_or_else(|| {
            Error::bad_request(format!(
                "the continuation '{}' of the change feed is invalid: it is no etag that this \
                 server gave",
                text.chars().take(100).collect::<String>()
            ))
        })
    }
}

impl fmt::Display for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Continuation::Everywhere(lsn) => write!(f, "\"{lsn}\""),
            Continuation::Slices(slices) => write!(f, "\"{slices}\""),
        }
    }
}

impl Slices {
    /// Puts slices together that follow each other; `first` is the offset of the one to read first.
    pub(crate) fn new(slices: &[(EpkRange, u64)], first: usize) -> Option<Slices> {
        let (last, _) = slices.last()?;
        let starts = slices.iter().map(|(epk, lsn)| (epk.min.clone(), *lsn)).collect();
        Some(Slices { starts, end: last.max.clone(), first: first.min(slices.len() - 1) })
    }

    fn parse(text: &str) -> Option<Slices> {
        let (slices, end) = text.rsplit_once(',')?;
        let mut starts = Vec::new();
        for slice in slices.split(',') {
            let (start, lsn) = slice.split_once(':')?;
            starts.push((Epk::parse(start).ok()?, number(lsn)?));
            if starts.len() > SLICES_MAX {
                return None;
            }
        }
        let first = starts.first()?.0.clone();
        starts.sort();
        let is_ascending = starts.is_sorted_by(|left, right| left.0 < right.0);
        let end = Epk::parse(end).ok()?;
        let is_in_order = is_ascending && starts.last()?.0 < end;
        let first = starts.iter().position(|(start, _)| *start == first)?;
        is_in_order.then_some(Slices { starts, end, first })
    }

    /// The slices, the one to read first in front; each with what it shares with an interval.
    pub(crate) fn within(&self, interval: &EpkRange) -> Vec<(EpkRange, u64)> {
        let ends = self.starts.iter().skip(1).map(|(start, _)| start).chain([&self.end]);
        let slices = self.starts.iter().zip(ends).filter_map(|((min, lsn), max)| {
            let slice = EpkRange { min: min.clone(), max: max.clone() };
            Some((slice.intersect(interval)?, *lsn))
        });
        slices.collect()
    }

    /// Whether an interval lies inside altogether.
    pub(crate) fn cover(&self, interval: &EpkRange) -> bool {
        self.starts.first().is_some_and(|(start, _)| *start <= interval.min)
            && interval.max <= self.end
    }

    /// Where the slice begins that is to be read first.
    pub(crate) fn first(&self) -> &Epk {
        &self.starts[self.first].0
    }
}

impl fmt::Display for Slices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, from) = self.starts.split_at(self.first);
        for (start, lsn) in from.iter().chain(before) {
            write!(f, "{start}:{lsn},")?;
        }
        write!(f, "{}", self.end)
    }
}

/// A number in decimal digits alone.
fn number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn epk(text: &str) -> Epk {
        Epk::parse(text).unwrap()
    }

    fn range(min: &str, max: &str) -> EpkRange {
        EpkRange { min: epk(min), max: epk(max) }
    }

    fn slices(text: &str) -> Slices {
        match Continuation::parse(text).unwrap() {
            Continuation::Slices(slices) => slices,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn texts_come_back_as_they_were() {
        for text in ["\"0\"", "\"12\"", "\":12,FF\"", "\":12,1F:7,FF\"", "\"1F:7,:12,FF\""] {
            assert_eq!(Continuation::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Continuation::parse("12").unwrap(), Continuation::Everywhere(12));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "\"\"",
            "x",
            "-1",
            "+1",
            "1.5",
            "99999999999999999999",
            "\"12",
            ":12",
            ":x,FF",
            "1:2,FF",
            "1F:7,1F:8,FF",
            "1F:7,1F",
            "00000000-0000-0000-0000-000000000000",
            "W/\"1\"",
        ] {
            let error = Continuation::parse(text).unwrap_err();
            assert!(error.message.contains("continuation"), "{text}: {error}");
        }
    }

    #[test]
    fn slices_are_cut_to_an_interval() {
        let slices = slices("20:3,:1,10:2,30");
        let cut = slices.within(&range("08", "18"));
        assert_eq!(cut, [(range("08", "10"), 1), (range("10", "18"), 2)]);
        assert_eq!(*slices.first(), epk("20"));
        assert!(slices.cover(&range("", "30")) && slices.cover(&range("05", "06")));
        assert!(!slices.cover(&range("", "FF")));
    }

    proptest! {
        #[test]
        fn no_text_does_harm(text in "\\PC{0,40}") {
            let _ = Continuation::parse(&text);
        }
    }
}
