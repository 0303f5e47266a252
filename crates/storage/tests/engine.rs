//! The range store in memory, seen from outside.

use std::ops::{Bound, ControlFlow};

use bytes::Bytes;
use storage::{
    Committed, Direction, Error, InMemory, META_RANGE, Operation, RangeId, RangeStore, Snapshot,
    Stop, SubmitError, View,
};

/// An operation made of a closure.
struct Run<F>(F);

impl<T, R, F> Operation for Run<F>
where
    T: Send + 'static,
    R: Send + 'static,
    F: FnMut(&mut dyn View) -> Result<T, Stop<R>> + Send + 'static,
{
    type Output = T;
    type Refusal = R;

    fn run(&mut self, view: &mut dyn View) -> Result<T, Stop<R>> {
        (self.0)(view)
    }
}

#[tokio::test]
async fn an_operation_reads_decides_and_writes() {
    let store = InMemory::new();
    let add = |amount: u8| {
        Run(move |view: &mut dyn View| {
            let before = view.get(b"sum")?.map_or(0, |value| value[0]);
            let Some(after) = before.checked_add(amount) else { return Err(Stop::Refused(before)) };
            view.put(b"sum", Bytes::copy_from_slice(&[after]));
            Ok((after, view.lsn()))
        })
    };
    let first = store.submit(META_RANGE, add(200)).await.unwrap();
    assert_eq!(first, Committed { lsn: 1, output: (200, 1) });
    let refused = store.submit(META_RANGE, add(100)).await.unwrap_err();
    assert!(matches!(refused, SubmitError::Refused(200, 1)), "{refused}");
    let second = store.submit(META_RANGE, add(55)).await.unwrap();
    assert_eq!(second, Committed { lsn: 2, output: (255, 2) });

    let snapshot = store.snapshot(META_RANGE).unwrap();
    assert_eq!(snapshot.lsn(), 2);
    let mut rows = Vec::new();
    snapshot
        .scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward, &mut |key, value| {
            rows.push((key.to_vec(), value.clone()));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(rows, [(b"sum".to_vec(), Bytes::copy_from_slice(&[255]))]);
    store.close().await.unwrap();
    assert!(matches!(store.snapshot(META_RANGE), Err(Error::Closed)));
}

#[tokio::test]
async fn transactions_notice_what_changed_under_them() {
    let store = InMemory::new();
    store.create_ranges(&[RangeId(7)]).await.unwrap();
    let mut first = store.begin(RangeId(7)).unwrap();
    let mut second = store.begin(RangeId(7)).unwrap();
    assert_eq!(first.get(b"a").unwrap(), None);
    assert_eq!(second.get(b"a").unwrap(), None);
    first.put(b"a", Bytes::from_static(b"1"));
    second.put(b"a", Bytes::from_static(b"2"));
    assert_eq!(store.commit(first).await.unwrap(), 1);
    assert!(matches!(store.commit(second).await, Err(Error::Conflict)));
    assert_eq!(store.ranges(), [(META_RANGE, 0), (RangeId(7), 1)]);
    store.erase(RangeId(7)).await.unwrap();
    assert!(matches!(store.snapshot(RangeId(7)), Err(Error::NoRange(RangeId(7)))));
    let again = store.create_ranges(&[RangeId(7)]).await;
    assert!(matches!(again, Err(Error::RangeExists(RangeId(7)))));
}
