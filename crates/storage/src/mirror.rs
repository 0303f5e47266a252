//! Two ordered stores that must answer alike, for tests.
//!
//! Whatever one store answers, the other must answer too; if not, one of them is wrong, and the call
//! fails with [`Error::Corrupt`]. Running the contract suite on a simple store and a clever one side by
//! side finds differences that no single assertion asks for.

use std::{
    fmt::Debug,
    ops::{Bound, ControlFlow},
};

use bytes::Bytes;

use crate::{Batch, Direction, Error, Load, OrderedSnapshot, OrderedStore, Visit};

/// An ordered store that keeps everything twice.
#[derive(Debug)]
pub struct Mirror<A, B> {
    first: A,
    second: B,
}

impl<A, B> Mirror<A, B> {
    /// A mirror of two stores that hold the same rows, usually none.
    pub fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

impl<A: OrderedStore, B: OrderedStore> OrderedStore for Mirror<A, B> {
    type Snapshot = MirrorSnapshot<A::Snapshot, B::Snapshot>;

    fn snapshot(&self) -> Result<Self::Snapshot, Error> {
        Ok(MirrorSnapshot { first: self.first.snapshot()?, second: self.second.snapshot()? })
    }

    fn write(&self, batch: Batch) -> Result<(), Error> {
        self.first.write(batch.clone())?;
        self.second.write(batch)
    }

    fn load(&self) -> Load {
        self.second.load()
    }

    fn close(&self) -> Result<(), Error> {
        self.first.close()?;
        self.second.close()
    }
}

/// A version of a [`Mirror`].
#[derive(Debug)]
pub struct MirrorSnapshot<A, B> {
    first: A,
    second: B,
}

fn disagree(what: impl Debug, first: impl Debug, second: impl Debug) -> Error {
    Error::Corrupt(format!("stores disagree on {what:02x?}: {first:02x?} and {second:02x?}"))
}

impl<A: OrderedSnapshot, B: OrderedSnapshot> OrderedSnapshot for MirrorSnapshot<A, B> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let (first, second) = (self.first.get(key)?, self.second.get(key)?);
        if first == second { Ok(first) } else { Err(disagree(key, first, second)) }
    }

    fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), Error> {
        let mut seen = Vec::new();
        let mut stopped = false;
        self.first.scan(from, to, direction, &mut |key, value| {
            seen.push((Bytes::copy_from_slice(key), value.clone()));
            let flow = visit(key, value);
            stopped = flow.is_break();
            flow
        })?;
        let mut expected = seen.iter();
        let mut difference = None;
        self.second.scan(from, to, direction, &mut |key, value| match expected.next() {
            // The first scan was stopped by its visitor, not by the end of the rows.
            None if stopped => ControlFlow::Break(()),
            Some((seen_key, seen_value)) if seen_key == key && seen_value == value => {
                ControlFlow::Continue(())
            }
            other => {
                difference = Some(disagree((from, to), other, Some((key, value))));
                ControlFlow::Break(())
            }
        })?;
        match (difference, expected.next()) {
            (Some(difference), _) => Err(difference),
            (None, Some(missing)) => Err(disagree((from, to), Some(missing), None::<()>)),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[test]
    fn a_difference_is_noticed() {
        let row = |key: &'static str, value: &'static str| {
            (Bytes::from_static(key.as_bytes()), Some(Bytes::from_static(value.as_bytes())))
        };
        let check = |first: Batch, second: Batch, agree: bool| {
            let mirror = Mirror::new(Memory::new(), Memory::new());
            mirror.first.write(first).unwrap();
            mirror.second.write(second).unwrap();
            let snapshot = mirror.snapshot().unwrap();
            for direction in [Direction::Forward, Direction::Backward] {
                let scan =
                    snapshot.scan(Bound::Unbounded, Bound::Unbounded, direction, &mut |_, _| {
                        ControlFlow::Continue(())
                    });
                assert_eq!(scan.is_ok(), agree, "{scan:?}");
            }
        };
        check(vec![row("a", "1")], vec![row("a", "1")], true);
        check(vec![row("a", "1")], vec![row("a", "2")], false);
        check(vec![row("a", "1")], vec![row("b", "1")], false);
        check(vec![row("a", "1")], vec![], false);
        check(vec![], vec![row("a", "1")], false);
        check(vec![row("a", "1")], vec![row("a", "1"), row("b", "1")], false);
    }
}
