//! The contract of a [`RangeStore`], as tests that every engine passes.
//!
//! Each function takes a way to open an empty store and panics if the store breaks a rule. They use
//! nothing but the trait, so an engine outside this crate can run them too. [`every_rule`] lists them.

#![expect(clippy::unwrap_used, reason = "a test reports a failure by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    ops::{
        Bound::{self, Excluded, Included, Unbounded},
        ControlFlow, RangeBounds,
    },
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
};

use bytes::Bytes;

use crate::{
    Committed, Direction, Error, KEY_BYTES_MAX, Lsn, META_RANGE, Operation, RangeId, RangeStore,
    Snapshot, Stop, SubmitError, Transaction, VALUE_BYTES_MAX, View, WALKED,
};

/// A rule, by name.
pub type Rule<S> = (&'static str, fn(&dyn Fn() -> S));

/// All rules.
pub fn every_rule<S: RangeStore>() -> Vec<Rule<S>> {
    vec![
        ("lsns are dense", lsns_are_dense),
        ("operations run one after the other", operations_run_one_after_the_other),
        ("what is refused leaves nothing", what_is_refused_leaves_nothing),
        ("a panic hurts nobody else", a_panic_hurts_nobody_else),
        ("snapshots do not change", snapshots_do_not_change),
        ("ranges are apart", ranges_are_apart),
        ("scans keep to their bounds", scans_keep_to_their_bounds),
        ("operations see their own writes", operations_see_their_own_writes),
        ("transactions see their own writes", transactions_see_their_own_writes),
        ("transactions conflict with what they read", transactions_conflict_with_what_they_read),
        ("old transactions conflict", old_transactions_conflict),
        ("ranges are written together or not at all", ranges_are_written_together_or_not_at_all),
        ("what is written together is seen together", what_is_written_together_is_seen_together),
        ("a transaction carries an operation", a_transaction_carries_an_operation),
        ("a transaction takes steps back", a_transaction_takes_steps_back),
        ("range ids are used once", range_ids_are_used_once),
        ("ranges advance and never go back", ranges_advance_and_never_go_back),
        ("sealed ranges are read only", sealed_ranges_are_read_only),
        ("erased ranges are gone", erased_ranges_are_gone),
        ("waiting ends", waiting_ends),
        ("closing refuses the rest", closing_refuses_the_rest),
        ("limits hold", limits_hold),
        ("random operations match a model", random_operations_match_a_model),
    ]
}

/// An operation made of a closure.
#[derive(Debug)]
pub struct Run<F>(pub F);

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

/// Waits for a future without a runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// An operation that writes one row.
fn put(
    key: impl Into<Vec<u8>>,
    value: impl Into<Bytes>,
) -> impl Operation<Output = (), Refusal = ()> {
    let (key, value) = (key.into(), value.into());
    Run(move |view: &mut dyn View| {
        view.put(&key, value.clone());
        Ok(())
    })
}

fn delete(key: impl Into<Vec<u8>>) -> impl Operation<Output = (), Refusal = ()> {
    let key = key.into();
    Run(move |view: &mut dyn View| {
        view.delete(&key);
        Ok(())
    })
}

/// An operation that adds one to a row and returns what was there.
fn increment(key: &'static str) -> impl Operation<Output = u64, Refusal = ()> {
    Run(move |view: &mut dyn View| {
        let before = view
            .get(key.as_bytes())?
            .map_or(0, |value| u64::from_be_bytes(value.as_ref().try_into().unwrap()));
        view.put(key.as_bytes(), Bytes::copy_from_slice(&(before + 1).to_be_bytes()));
        Ok(before)
    })
}

fn all(snapshot: &impl Snapshot) -> Rows {
    rows(snapshot, Unbounded, Unbounded, Direction::Forward)
}

fn rows(
    snapshot: &impl Snapshot,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    direction: Direction,
) -> Rows {
    let mut rows = Rows::new();
    snapshot
        .scan(from, to, direction, &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    rows
}

fn view_rows(view: &dyn View, direction: Direction) -> Result<Rows, Error> {
    let mut rows = Rows::new();
    view.scan(Unbounded, Unbounded, direction, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

fn row(key: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    (key.as_bytes().to_vec(), value.as_bytes().to_vec())
}

fn reversed(mut rows: Rows) -> Rows {
    rows.reverse();
    rows
}

fn lsns_are_dense<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    assert_eq!(store.snapshot(META_RANGE).unwrap().lsn(), 0);
    let waiting: Vec<_> = (0..200).map(|_| store.submit(META_RANGE, increment("n"))).collect();
    let mut lsns = BTreeSet::new();
    for committed in waiting {
        let Committed { lsn, output } = block_on(committed).unwrap();
        assert_eq!(lsn, output + 1, "LSNs follow the order in which operations ran");
        lsns.insert(lsn);
    }
    assert_eq!(lsns, (1..=200).collect());
    // Neither reading nor refusing advances the LSN, and an operation knows the LSN of its commit.
    let read = Run(|view: &mut dyn View| {
        view.get(b"n")?;
        Ok::<Lsn, Stop<()>>(view.lsn())
    });
    assert_eq!(
        block_on(store.submit(META_RANGE, read)).unwrap(),
        Committed { lsn: 200, output: 201 }
    );
    let refuse = Run(|view: &mut dyn View| {
        view.put(b"x", Bytes::new());
        Err::<(), _>(Stop::Refused("no"))
    });
    let refused = block_on(store.submit(META_RANGE, refuse)).unwrap_err();
    assert!(matches!(refused, SubmitError::Refused("no", 200)), "{refused}");
    assert_eq!(block_on(store.submit(META_RANGE, increment("n"))).unwrap().lsn, 201);
    assert_eq!(store.ranges(), [(META_RANGE, 201)]);
}

fn operations_run_one_after_the_other<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = Arc::new(open());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let store = Arc::clone(&store);
            scope.spawn(move || {
                for _ in 0..50 {
                    let Committed { lsn, output } =
                        block_on(store.submit(META_RANGE, increment("n"))).unwrap();
                    assert_eq!(lsn, output + 1);
                    // What was acknowledged is visible at once.
                    assert!(store.snapshot(META_RANGE).unwrap().lsn() >= lsn);
                }
            });
        }
    });
    let snapshot = store.snapshot(META_RANGE).unwrap();
    assert_eq!(snapshot.get(b"n").unwrap().unwrap().as_ref(), 400u64.to_be_bytes());
}

fn what_is_refused_leaves_nothing<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    block_on(store.submit(META_RANGE, put("a", "1"))).unwrap();
    block_on(store.submit(META_RANGE, put("b", "1"))).unwrap();
    // In one group with others, before and after, on the same keys.
    let before = store.submit(META_RANGE, put("a", "2"));
    let refused = store.submit(
        META_RANGE,
        Run(|view: &mut dyn View| {
            view.put(b"a", Bytes::from_static(b"refused"));
            view.put(b"a", Bytes::from_static(b"refused again"));
            view.put(b"c", Bytes::from_static(b"refused"));
            view.delete(b"b");
            view.delete(b"a");
            Err::<(), _>(Stop::Refused(()))
        }),
    );
    let failed = store.submit(
        META_RANGE,
        Run(|view: &mut dyn View| {
            view.delete(b"a");
            Err::<(), Stop<()>>(Stop::Storage(Error::Corrupt("pretended".to_owned())))
        }),
    );
    let after = store.submit(META_RANGE, put("d", "1"));
    assert_eq!(block_on(before).unwrap().lsn, 3);
    assert!(matches!(block_on(refused), Err(SubmitError::Refused((), 3))));
    let failed = block_on(failed);
    assert!(matches!(failed, Err(SubmitError::Storage(Error::Corrupt(_)))), "{failed:?}");
    assert_eq!(block_on(after).unwrap().lsn, 4);
    let snapshot = store.snapshot(META_RANGE).unwrap();
    assert_eq!(all(&snapshot), [row("a", "2"), row("b", "1"), row("d", "1")]);
}

fn a_panic_hurts_nobody_else<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    let before = store.submit(META_RANGE, put("a", "1"));
    let panicked = store.submit(
        META_RANGE,
        Run(|view: &mut dyn View| {
            view.put(b"a", Bytes::from_static(b"lost"));
            if view.get(b"a")?.is_some() {
                panic!("as the test wants");
            }
            Ok::<(), Stop<()>>(())
        }),
    );
    let after = store.submit(META_RANGE, put("b", "1"));
    assert_eq!(block_on(before).unwrap().lsn, 1);
    match block_on(panicked).unwrap_err() {
        SubmitError::Storage(Error::Panicked(what)) => assert_eq!(what, "as the test wants"),
        other => panic!("{other}"),
    }
    assert_eq!(block_on(after).unwrap().lsn, 2);
    assert_eq!(all(&store.snapshot(META_RANGE).unwrap()), [row("a", "1"), row("b", "1")]);
}

fn snapshots_do_not_change<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    let mut kept = vec![(store.snapshot(META_RANGE).unwrap(), Rows::new())];
    let mut model = BTreeMap::new();
    for round in 0..20u8 {
        let key = vec![round % 5];
        if round % 3 == 2 {
            block_on(store.submit(META_RANGE, delete(key.clone()))).unwrap();
            model.remove(&key);
        } else {
            block_on(store.submit(META_RANGE, put(key.clone(), vec![round]))).unwrap();
            model.insert(key, vec![round]);
        }
        let snapshot = store.snapshot(META_RANGE).unwrap();
        kept.push((snapshot, model.clone().into_iter().collect()));
    }
    for (lsn, (snapshot, expected)) in kept.iter().enumerate() {
        assert_eq!(snapshot.lsn(), lsn as Lsn);
        assert_eq!(&all(snapshot), expected);
        assert_eq!(
            rows(snapshot, Unbounded, Unbounded, Direction::Backward),
            reversed(expected.clone())
        );
        for key in 0..5u8 {
            let expected = expected.iter().find(|(found, _)| found == &[key]);
            let value = snapshot.clone().get(&[key]).unwrap();
            assert_eq!(value.as_deref(), expected.map(|(_, value)| value.as_slice()));
        }
    }
}

fn ranges_are_apart<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    let ranges = [1, 2, 255, 256, u64::MAX - 1, u64::MAX].map(RangeId);
    block_on(store.create_ranges(&ranges)).unwrap();
    let waiting: Vec<_> = ranges
        .iter()
        .flat_map(|range| {
            let value = range.0.to_be_bytes().to_vec();
            [
                store.submit(*range, put(vec![], value.clone())),
                store.submit(*range, put(vec![0xff; 20], value)),
            ]
        })
        .collect();
    for committed in waiting {
        block_on(committed).unwrap();
    }
    for range in ranges {
        let snapshot = store.snapshot(range).unwrap();
        assert_eq!(snapshot.lsn(), 2);
        let value = range.0.to_be_bytes().to_vec();
        assert_eq!(all(&snapshot), [(vec![], value.clone()), (vec![0xff; 20], value)]);
        let seen = block_on(store.submit(
            range,
            Run(|view: &mut dyn View| Ok::<_, Stop<()>>(view_rows(view, Direction::Backward)?)),
        ));
        assert_eq!(seen.unwrap().output, reversed(all(&snapshot)));
    }
    let missing = block_on(store.submit(RangeId(3), put("a", "1")));
    assert!(matches!(missing, Err(SubmitError::Storage(Error::NoRange(RangeId(3))))));
    assert!(matches!(store.snapshot(RangeId(3)), Err(Error::NoRange(RangeId(3)))));
    assert!(matches!(store.begin(RangeId(3)), Err(Error::NoRange(RangeId(3)))));
}

/// An operation of one of several kinds, as those that are submitted together have one type.
fn change(change: Change) -> impl Operation<Output = (Lsn, Rows), Refusal = &'static str> {
    Run(move |view: &mut dyn View| {
        let seen = view_rows(view, Direction::Forward)?;
        match change {
            Change::Put(key, value) => view.put(key.as_bytes(), Bytes::from(value)),
            Change::Look => {}
            Change::Refuse(why) => {
                view.put(b"refused", Bytes::new());
                return Err(Stop::Refused(why));
            }
            Change::Fail => return Err(Stop::Storage(Error::Corrupt("pretended".to_owned()))),
            Change::Panic => panic!("as the test wants"),
            Change::PutLarge => view.put(b"large", Bytes::from(vec![0; VALUE_BYTES_MAX])),
        }
        Ok((view.lsn(), seen))
    })
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Put(&'static str, &'static str),
    Look,
    Refuse(&'static str),
    Fail,
    Panic,
    PutLarge,
}

fn ranges_are_written_together_or_not_at_all<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    let [one, two, three] = [1, 2, 3].map(RangeId);
    block_on(store.create_ranges(&[one, two, three])).unwrap();
    block_on(store.submit(two, put("old", "2"))).unwrap();
    let together = |parts: &[(RangeId, Change)]| {
        let parts = parts.iter().map(|(range, step)| (*range, change(*step))).collect();
        store.submit_all(parts)
    };

    // One commit of each range that is written to; the others stay as they are.
    let parts = [(two, Change::Put("a", "2")), (one, Change::Put("a", "1")), (three, Change::Look)];
    let committed = block_on(together(&parts)).unwrap();
    let found: Vec<_> = committed.iter().map(|part| (part.lsn, part.output.0)).collect();
    assert_eq!(found, [(2, 2), (1, 1), (0, 1)]);
    assert_eq!(committed[0].output.1, [row("old", "2")]);
    assert_eq!(committed[1].output.1, []);
    let state = || {
        store
            .ranges()
            .into_iter()
            .map(|(range, _)| {
                let snapshot = store.snapshot(range).unwrap();
                (range, snapshot.lsn(), all(&snapshot))
            })
            .collect::<Vec<_>>()
    };
    let before = state();
    assert_eq!(
        before[1..],
        [
            (one, 1, vec![row("a", "1")]),
            (two, 2, vec![row("a", "2"), row("old", "2")]),
            (three, 0, vec![]),
        ]
    );

    // Whichever part stands in the way, nothing is left of any, and what comes before and after in
    // the same group is not touched.
    block_on(store.seal(three)).unwrap();
    type IsExpected = fn(&SubmitError<&str>) -> bool;
    let obstacles: [(Change, RangeId, IsExpected); 5] = [
        (Change::Refuse("no"), two, |error| matches!(error, SubmitError::Refused("no", 2))),
        (Change::Fail, two, |error| matches!(error, SubmitError::Storage(Error::Corrupt(_)))),
        (Change::Panic, two, |error| matches!(error, SubmitError::Storage(Error::Panicked(_)))),
        (Change::Look, three, |error| matches!(error, SubmitError::Storage(Error::Sealed(_)))),
        (Change::Look, RangeId(9), |error| {
            matches!(error, SubmitError::Storage(Error::NoRange(RangeId(9))))
        }),
    ];
    for (obstacle, range, is_expected) in obstacles {
        let mut parts = [(one, Change::Put("b", "1")), (range, obstacle)];
        for expected in [1, 0] {
            let failed = block_on(together(&parts)).unwrap_err();
            assert!(is_expected(&failed.error) && failed.part == expected, "{parts:?}: {failed}");
            assert_eq!(state(), before, "{parts:?}");
            parts.reverse();
        }
    }
    // Each fits by itself, all of them do not.
    let failed = block_on(together(&[META_RANGE, one, two].map(|range| (range, Change::PutLarge))));
    let failed = failed.unwrap_err();
    let is_too_large = matches!(failed.error, SubmitError::Storage(Error::TooLarge));
    assert!(is_too_large && failed.part == 2, "{failed}");
    assert_eq!(state(), before);
    let first = together(&[(one, Change::Put("c", "1"))]);
    let refused = together(&[(one, Change::Put("c", "no")), (two, Change::Refuse("no"))]);
    let second = together(&[(two, Change::Put("c", "2")), (one, Change::Put("d", "1"))]);
    assert_eq!(block_on(first).unwrap()[0].lsn, 2);
    assert!(block_on(refused).is_err());
    let second = block_on(second).unwrap();
    assert_eq!((second[0].lsn, second[1].lsn), (3, 3));
    assert_eq!(second[1].output.1, [row("a", "1"), row("c", "1")]);
    assert!(block_on(together(&[])).unwrap().is_empty());

    // A transaction notices what was written together with other ranges.
    let transaction = store.begin(two).unwrap();
    transaction.get(b"a").unwrap();
    block_on(together(&[(one, Change::Put("a", "3")), (two, Change::Put("a", "3"))])).unwrap();
    assert!(matches!(block_on(store.commit(transaction)), Err(Error::Conflict)));
    let transaction = store.begin(two).unwrap();
    transaction.get(b"a").unwrap();
    block_on(together(&[(one, Change::Put("a", "4")), (two, Change::Put("b", "4"))])).unwrap();
    block_on(store.commit(transaction)).unwrap();
}

/// Counts in two ranges at once: whoever looks finds both counted or none, also in the same group.
fn what_is_written_together_is_seen_together<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = Arc::new(open());
    let [one, two] = [1, 2].map(RangeId);
    block_on(store.create_ranges(&[one, two])).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let store = Arc::clone(&store);
            scope.spawn(move || {
                for _ in 0..50 {
                    let parts = vec![(one, increment("n")), (two, increment("n"))];
                    let counted = block_on(store.submit_all(parts)).unwrap();
                    assert_eq!(counted[0], counted[1]);
                    assert_eq!(counted[0].lsn, counted[0].output + 1);
                    assert!(store.snapshot(two).unwrap().lsn() >= counted[1].lsn);
                }
            });
        }
    });
    assert_eq!(store.ranges()[1..], [(one, 200), (two, 200)]);
    assert_eq!(all(&store.snapshot(one).unwrap()), all(&store.snapshot(two).unwrap()));
}

fn scans_keep_to_their_bounds<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    let keys = ["", "a", "a\0", "aa", "ab", "b", "c"];
    for key in keys {
        block_on(store.submit(META_RANGE, put(key, key))).unwrap();
    }
    let long = vec![b'b'; KEY_BYTES_MAX * 3];
    let mut bounds = vec![Unbounded];
    for key in ["", "\0", "a", "a\0", "aaa", "b", "bb", "c", "d"] {
        bounds.extend([Included(key.as_bytes()), Excluded(key.as_bytes())]);
    }
    bounds.extend([Included(long.as_slice()), Excluded(long.as_slice())]);
    let snapshot = store.snapshot(META_RANGE).unwrap();
    for from in &bounds {
        for to in &bounds {
            let inside = |key: &&str| RangeBounds::<[u8]>::contains(&(*from, *to), key.as_bytes());
            let expected: Rows =
                keys.iter().filter(|key| inside(key)).map(|key| row(key, key)).collect();
            let forward = rows(&snapshot, *from, *to, Direction::Forward);
            assert_eq!(forward, expected, "{from:02x?} {to:02x?}");
            let backward = rows(&snapshot, *from, *to, Direction::Backward);
            assert_eq!(backward, reversed(expected), "{from:02x?} {to:02x?}");
        }
    }
    // A visitor may stop, and may read while it scans.
    let mut seen = Vec::new();
    snapshot
        .scan(Included(b"a"), Unbounded, Direction::Forward, &mut |key, value| {
            assert_eq!(snapshot.get(key).unwrap().as_ref(), Some(value));
            seen.push(key.to_vec());
            if seen.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(seen, [&b"a"[..], b"a\0", b"aa"]);
    let mut found = Vec::new();
    snapshot
        .get_many(&[b"b", b"nothing", b"", &long], &mut |offset, value| {
            found.push((offset, value));
            ControlFlow::Continue(())
        })
        .unwrap();
    let found: Vec<_> = found.iter().map(|(offset, value)| (*offset, value.as_deref())).collect();
    assert_eq!(found, [(0, Some(&b"b"[..])), (1, None), (2, Some(b"")), (3, None)]);
}

/// Changes rows through a view and checks what the view shows.
fn change_and_look(view: &mut dyn View) -> Result<(), Error> {
    // The range holds b, d and f.
    assert_eq!(view_rows(view, Direction::Forward)?, [row("b", "1"), row("d", "1"), row("f", "1")]);
    view.put(b"a", Bytes::from_static(b"2"));
    view.put(b"d", Bytes::from_static(b"2"));
    view.delete(b"f");
    view.put(b"e", Bytes::from_static(b"2"));
    view.delete(b"e");
    view.put(b"g", Bytes::from_static(b"2"));
    view.delete(b"nothing");
    let expected = vec![row("a", "2"), row("b", "1"), row("d", "2"), row("g", "2")];
    assert_eq!(view_rows(view, Direction::Forward)?, expected);
    assert_eq!(view_rows(view, Direction::Backward)?, reversed(expected));
    assert_eq!(view.get(b"d")?.as_deref(), Some(&b"2"[..]));
    assert_eq!(view.get(b"e")?, None);
    assert_eq!(view.get(b"f")?, None);
    assert_eq!(view.get(b"b")?.as_deref(), Some(&b"1"[..]));
    for (limit, direction, expected) in [
        (1, Direction::Forward, "b"),
        (2, Direction::Forward, "bd"),
        (1, Direction::Backward, "g"),
        (3, Direction::Backward, "gdb"),
    ] {
        let mut seen = String::new();
        view.scan(Excluded(b"a"), Included(b"g"), direction, &mut |key, _| {
            seen.push_str(str::from_utf8(key).unwrap());
            if seen.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        assert_eq!(seen, expected);
    }
    Ok(())
}

fn put_b_d_f<S: RangeStore>(store: &S, range: RangeId) {
    for key in ["b", "d", "f"] {
        block_on(store.submit(range, put(key, "1"))).unwrap();
    }
}

fn operations_see_their_own_writes<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    put_b_d_f(&store, META_RANGE);
    let look = Run(|view: &mut dyn View| Ok::<(), Stop<()>>(change_and_look(view)?));
    assert_eq!(block_on(store.submit(META_RANGE, look)).unwrap().lsn, 4);
    let expected = [row("a", "2"), row("b", "1"), row("d", "2"), row("g", "2")];
    assert_eq!(all(&store.snapshot(META_RANGE).unwrap()), expected);
}

fn transactions_see_their_own_writes<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    put_b_d_f(&store, META_RANGE);
    let mut txn = store.begin(META_RANGE).unwrap();
    change_and_look(&mut txn).unwrap();
    assert_eq!(
        all(&store.snapshot(META_RANGE).unwrap()).len(),
        3,
        "nothing shows before the commit"
    );
    assert_eq!(block_on(store.commit(txn)).unwrap(), 4);
    let expected = [row("a", "2"), row("b", "1"), row("d", "2"), row("g", "2")];
    assert_eq!(all(&store.snapshot(META_RANGE).unwrap()), expected);
    // One that wrote nothing advances nothing; one that is dropped leaves nothing.
    let txn = store.begin(META_RANGE).unwrap();
    assert!(txn.is_read_only());
    assert_eq!(block_on(store.commit(txn)).unwrap(), 4);
    let mut txn = store.begin(META_RANGE).unwrap();
    txn.put(b"z", Bytes::new());
    drop(txn);
    assert_eq!(all(&store.snapshot(META_RANGE).unwrap()), expected);
}

fn transactions_conflict_with_what_they_read<S: RangeStore>(open: &dyn Fn() -> S) {
    type Read<S> = fn(&mut Transaction<<S as RangeStore>::Snapshot>);
    fn scan<S: Snapshot>(
        txn: &Transaction<S>,
        from: &str,
        to: &str,
        direction: Direction,
        rows: usize,
    ) {
        let mut seen = 0;
        let (from, to) = (Included(from.as_bytes()), Included(to.as_bytes()));
        txn.scan(from, to, direction, &mut |_, _| {
            seen += 1;
            if seen == rows { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    }
    // The range holds b, d and f. The letters name the keys whose change is a conflict.
    let reads: [(&str, Read<S>, &str); 10] = [
        ("nothing", |_| (), ""),
        ("a key", |txn| drop(txn.get(b"b").unwrap()), "b"),
        ("an absent key", |txn| drop(txn.get(b"c").unwrap()), "c"),
        ("an interval", |txn| scan(txn, "c", "e", Direction::Forward, 9), "cde"),
        ("an interval, backward", |txn| scan(txn, "c", "e", Direction::Backward, 9), "cde"),
        ("part of an interval", |txn| scan(txn, "a", "z", Direction::Forward, 1), "ab"),
        ("part, backward", |txn| scan(txn, "a", "e", Direction::Backward, 1), "de"),
        ("an empty interval", |txn| scan(txn, "e", "c", Direction::Forward, 9), ""),
        ("the version", |txn| assert_eq!(txn.lsn(), 4), "abcdef"),
        (
            "its own write",
            |txn| {
                txn.put(b"b", Bytes::from_static(b"mine"));
                txn.get(b"b").unwrap();
            },
            "",
        ),
    ];
    let store = open();
    let mut range = META_RANGE;
    for (name, read, conflicts) in reads {
        for key in ["a", "b", "c", "d", "e", "f"] {
            for value in [Some("2"), None] {
                range.0 += 1;
                block_on(store.create_ranges(&[range])).unwrap();
                put_b_d_f(&store, range);
                let mut txn = store.begin(range).unwrap();
                read(&mut txn);
                txn.put(b"x", Bytes::from_static(b"written"));
                match value {
                    Some(value) => block_on(store.submit(range, put(key, value))).unwrap(),
                    None => block_on(store.submit(range, delete(key))).unwrap(),
                };
                let committed = block_on(store.commit(txn));
                let is_written = store.snapshot(range).unwrap().get(b"x").unwrap().is_some();
                let is_conflict = matches!(committed, Err(Error::Conflict));
                let is_committed = matches!(committed, Ok(5));
                let expected = conflicts.contains(key);
                assert_eq!(is_conflict, expected, "{name}, {key}: {committed:?}");
                assert_eq!(is_committed, !expected, "{name}, {key}: {committed:?}");
                assert_eq!(is_written, !expected, "{name}, {key}");
            }
        }
    }
}

fn old_transactions_conflict<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    block_on(store.create_ranges(&[RangeId(1)])).unwrap();
    let begin = |range| {
        let mut txn = store.begin(range).unwrap();
        txn.get(b"a").unwrap();
        txn.put(b"a", Bytes::from_static(b"1"));
        txn
    };
    let (old, quiet) = (begin(META_RANGE), begin(RangeId(1)));
    // Far more commits than any engine remembers, none of which touches what was read.
    let waiting: Vec<_> = (0..20_000u32)
        .filter_map(|_| match store.submit(META_RANGE, put("b", "1")) {
            committed if store.pressure().queued > 1000 => {
                block_on(committed).unwrap();
                None
            }
            committed => Some(committed),
        })
        .collect();
    for committed in waiting {
        block_on(committed).unwrap();
    }
    assert!(matches!(block_on(store.commit(old)), Err(Error::Conflict)));
    // A range in which nothing happened has nothing to forget.
    assert_eq!(block_on(store.commit(quiet)).unwrap(), 1);
    assert_eq!(block_on(store.commit(begin(META_RANGE))).unwrap(), 20_001);
}

fn a_transaction_carries_an_operation<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    let mut txn = store.begin(META_RANGE).unwrap();
    txn.get(b"a").unwrap();
    txn.put(b"a", Bytes::from_static(b"1"));
    block_on(store.submit(META_RANGE, put("b", "1"))).unwrap();
    let record = |key: &'static [u8]| {
        Run(move |view: &mut dyn View| {
            if view.get(b"a")?.as_deref() != Some(&b"1"[..]) {
                return Err(Stop::Refused(()));
            }
            view.put(key, Bytes::copy_from_slice(&view.lsn().to_be_bytes()));
            Ok(())
        })
    };
    let committed = block_on(store.commit_with(txn, record(b"lsn"))).unwrap();
    assert_eq!(
        committed.lsn, 2,
        "the operation knows the real LSN, and nothing that was read changed"
    );
    let snapshot = store.snapshot(META_RANGE).unwrap();
    assert_eq!(snapshot.get(b"lsn").unwrap().unwrap().as_ref(), 2u64.to_be_bytes());
    // If the operation refuses, the transaction's writes go with it.
    let mut txn = store.begin(META_RANGE).unwrap();
    txn.delete(b"a");
    txn.put(b"c", Bytes::from_static(b"1"));
    let refused = block_on(store.commit_with(txn, record(b"again")));
    assert!(matches!(refused, Err(SubmitError::Refused((), 2))), "{refused:?}");
    assert_eq!(all(&store.snapshot(META_RANGE).unwrap()), all(&snapshot));
}

fn a_transaction_takes_steps_back<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    block_on(store.submit(META_RANGE, put("a", "1"))).unwrap();
    let value = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    let mut txn = store.begin(META_RANGE).unwrap();
    txn.put(b"a", Bytes::from_static(b"2"));
    txn.keep();
    txn.put(b"a", Bytes::from_static(b"3"));
    txn.delete(b"a");
    txn.put(b"b", Bytes::from_static(b"3"));
    assert_eq!((txn.peek(b"a").unwrap(), txn.peek(b"b").unwrap()), (None, value("3")));
    txn.take_back();
    assert_eq!((txn.peek(b"a").unwrap(), txn.peek(b"b").unwrap()), (value("2"), None));
    assert_eq!(txn.written_bytes(), 2);
    // Peeking is not reading, so this is no conflict.
    block_on(store.submit(META_RANGE, put("b", "1"))).unwrap();
    assert_eq!(block_on(store.commit(txn)).unwrap(), 3);
    let snapshot = store.snapshot(META_RANGE).unwrap();
    assert_eq!(
        (snapshot.get(b"a").unwrap(), snapshot.get(b"b").unwrap()),
        (value("2"), value("1"))
    );
    // What was read still counts when what was written does not.
    for is_changed in [false, true] {
        let mut txn = store.begin(META_RANGE).unwrap();
        txn.get(b"a").unwrap();
        txn.put(b"c", Bytes::from_static(b"1"));
        txn.forget_writes();
        assert!(txn.is_read_only());
        if is_changed {
            block_on(store.submit(META_RANGE, put("a", "4"))).unwrap();
        }
        let committed = block_on(store.commit_with(txn, put("d", "1")));
        assert_eq!(committed.is_err(), is_changed, "{committed:?}");
        assert_eq!(store.snapshot(META_RANGE).unwrap().get(b"c").unwrap(), None);
    }
}

fn range_ids_are_used_once<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    assert_eq!(store.ranges(), [(META_RANGE, 0)]);
    block_on(store.create_ranges(&[RangeId(2), RangeId(1)])).unwrap();
    assert_eq!(store.ranges(), [(META_RANGE, 0), (RangeId(1), 0), (RangeId(2), 0)]);
    let check = |ranges: &[RangeId], taken| {
        let created = block_on(store.create_ranges(ranges));
        assert!(matches!(created, Err(Error::RangeExists(range)) if range == taken), "{created:?}");
    };
    check(&[META_RANGE], META_RANGE);
    check(&[RangeId(3), RangeId(1)], RangeId(1));
    check(&[RangeId(3), RangeId(3)], RangeId(3));
    assert!(matches!(store.snapshot(RangeId(3)), Err(Error::NoRange(_))), "all or none");
    block_on(store.erase(RangeId(1))).unwrap();
    check(&[RangeId(1)], RangeId(1));
    block_on(store.create_ranges(&[])).unwrap();
    assert_eq!(store.ranges(), [(META_RANGE, 0), (RangeId(2), 0)]);
}

fn ranges_advance_and_never_go_back<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    block_on(store.create_ranges(&[RangeId(1)])).unwrap();
    block_on(store.submit(RangeId(1), put("a", "1"))).unwrap();
    let mut txn = store.begin(RangeId(1)).unwrap();
    txn.get(b"a").unwrap();
    txn.put(b"b", Bytes::new());
    for (lsn, expected) in [(7, 7), (3, 7)] {
        block_on(store.advance(RangeId(1), lsn)).unwrap();
        assert_eq!(store.snapshot(RangeId(1)).unwrap().lsn(), expected);
        assert_eq!(block_on(store.wait(RangeId(1), 6)).unwrap(), expected);
    }
    assert_eq!(block_on(store.submit(RangeId(1), put("a", "2"))).unwrap().lsn, 8);
    assert!(matches!(block_on(store.commit(txn)), Err(Error::Conflict)));
    assert!(matches!(block_on(store.advance(RangeId(9), 1)), Err(Error::NoRange(RangeId(9)))));
    block_on(store.seal(RangeId(1))).unwrap();
    let refused = block_on(store.advance(RangeId(1), 9));
    assert!(matches!(refused, Err(Error::Sealed(RangeId(1)))));
}

fn sealed_ranges_are_read_only<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    block_on(store.create_ranges(&[RangeId(1)])).unwrap();
    block_on(store.submit(RangeId(1), put("a", "1"))).unwrap();
    let mut txn = store.begin(RangeId(1)).unwrap();
    txn.put(b"b", Bytes::new());
    block_on(store.seal(RangeId(1))).unwrap();
    block_on(store.seal(RangeId(1))).unwrap();
    let refused = block_on(store.submit(RangeId(1), put("a", "2")));
    assert!(matches!(refused, Err(SubmitError::Storage(Error::Sealed(RangeId(1))))));
    assert!(matches!(block_on(store.commit(txn)), Err(Error::Sealed(RangeId(1)))));
    let snapshot = store.snapshot(RangeId(1)).unwrap();
    assert_eq!((snapshot.lsn(), all(&snapshot)), (1, vec![row("a", "1")]));
    assert!(matches!(block_on(store.seal(RangeId(9))), Err(Error::NoRange(RangeId(9)))));
    block_on(store.erase(RangeId(1))).unwrap();
    assert!(matches!(block_on(store.seal(RangeId(1))), Err(Error::NoRange(RangeId(1)))));
}

fn erased_ranges_are_gone<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    block_on(store.create_ranges(&[RangeId(1), RangeId(2), RangeId(3)])).unwrap();
    for range in [1, 2, 3].map(RangeId) {
        let fill = Run(|view: &mut dyn View| {
            for number in 0..10_000u32 {
                view.put(&number.to_be_bytes(), Bytes::from_static(b"row"));
            }
            Ok::<(), Stop<()>>(())
        });
        block_on(store.submit(range, fill)).unwrap();
    }
    let before = store.snapshot(RangeId(2)).unwrap();
    let mut txn = store.begin(RangeId(2)).unwrap();
    txn.put(b"a", Bytes::new());
    // A write in the same group as the erasure is erased too.
    let last = store.submit(RangeId(2), put("last", "row"));
    let erased = store.erase(RangeId(2));
    let late = store.submit(RangeId(2), put("a", "1"));
    block_on(last).unwrap();
    block_on(erased).unwrap();
    let gone = |error: Error| assert!(matches!(error, Error::NoRange(RangeId(2))), "{error}");
    gone(store.snapshot(RangeId(2)).err().unwrap());
    gone(block_on(store.commit(txn)).unwrap_err());
    gone(block_on(store.erase(RangeId(2))).unwrap_err());
    match block_on(late) {
        Err(SubmitError::Storage(error)) => gone(error),
        other => panic!("{other:?}"),
    }
    // The rows go in the background, while others work.
    while store.pressure().erasing > 0 {
        block_on(store.submit(META_RANGE, increment("n"))).unwrap();
    }
    assert_eq!(all(&before).len(), 10_000, "an old snapshot stays valid");
    for range in [1, 3].map(RangeId) {
        assert_eq!(all(&store.snapshot(range).unwrap()).len(), 10_000);
    }
}

fn waiting_ends<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    block_on(store.create_ranges(&[RangeId(1), RangeId(2)])).unwrap();
    let (first, second) = (store.wait(RangeId(1), 0), store.wait(RangeId(1), 1));
    let erased = store.wait(RangeId(2), 0);
    let closed = store.wait(RangeId(1), 99);
    assert!(matches!(block_on(store.wait(RangeId(9), 0)), Err(Error::NoRange(RangeId(9)))));
    block_on(store.submit(RangeId(1), put("a", "1"))).unwrap();
    assert_eq!(block_on(first).unwrap(), 1);
    let mut second = pin!(second);
    let mut context = Context::from_waker(Waker::noop());
    assert!(second.as_mut().poll(&mut context).is_pending(), "LSN 1 is not beyond 1");
    block_on(store.submit(RangeId(1), put("a", "2"))).unwrap();
    assert_eq!(block_on(second).unwrap(), 2);
    assert_eq!(block_on(store.wait(RangeId(1), 0)).unwrap(), 2, "what is past need not be awaited");
    block_on(store.erase(RangeId(2))).unwrap();
    assert!(matches!(block_on(erased), Err(Error::NoRange(RangeId(2)))));
    block_on(store.close()).unwrap();
    assert!(matches!(block_on(closed), Err(Error::Closed)));
}

fn closing_refuses_the_rest<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    let waiting: Vec<_> = (0..100).map(|_| store.submit(META_RANGE, increment("n"))).collect();
    let txn = store.begin(META_RANGE).unwrap();
    let snapshot = store.snapshot(META_RANGE).unwrap();
    let closed = store.close();
    let late = store.submit(META_RANGE, increment("n"));
    for committed in waiting {
        block_on(committed).unwrap();
    }
    block_on(closed).unwrap();
    block_on(store.close()).unwrap();
    assert!(matches!(block_on(late), Err(SubmitError::Storage(Error::Closed))));
    assert!(matches!(store.snapshot(META_RANGE), Err(Error::Closed)));
    assert!(matches!(store.begin(META_RANGE), Err(Error::Closed)));
    assert!(matches!(block_on(store.commit(txn)), Err(Error::Closed)));
    assert!(matches!(block_on(store.create_ranges(&[RangeId(1)])), Err(Error::Closed)));
    assert!(matches!(block_on(store.erase(META_RANGE)), Err(Error::Closed)));
    assert!(matches!(block_on(store.wait(META_RANGE, 0)), Err(Error::Closed)));
    assert!(snapshot.get(b"m").unwrap().is_none(), "what was taken before can still be read");
}

fn limits_hold<S: RangeStore>(open: &dyn Fn() -> S) {
    let store = open();
    let longest = vec![7; KEY_BYTES_MAX];
    block_on(store.submit(META_RANGE, put(longest.clone(), "1"))).unwrap();
    block_on(store.submit(META_RANGE, put("", ""))).unwrap();
    let too_large = |result: Result<_, SubmitError<()>>| {
        assert!(matches!(result, Err(SubmitError::Storage(Error::TooLarge))), "{result:?}");
    };
    let key = || vec![7; KEY_BYTES_MAX + 1];
    too_large(block_on(store.submit(META_RANGE, put(key(), "1"))).map(drop));
    too_large(block_on(store.submit(META_RANGE, delete(key()))).map(drop));
    let value = vec![0; VALUE_BYTES_MAX + 1];
    too_large(block_on(store.submit(META_RANGE, put("a", value))).map(drop));
    let half = Bytes::from(vec![0; VALUE_BYTES_MAX]);
    let many = Run(move |view: &mut dyn View| {
        (0..9u8).for_each(|key| view.put(&[key], half.clone()));
        Ok(())
    });
    too_large(block_on(store.submit(META_RANGE, many)).map(drop));
    let mut txn = store.begin(META_RANGE).unwrap();
    txn.put(&key(), Bytes::new());
    assert!(matches!(block_on(store.commit(txn)), Err(Error::TooLarge)));
    let snapshot = store.snapshot(META_RANGE).unwrap();
    assert_eq!(all(&snapshot), [(vec![], vec![]), (longest, b"1".to_vec())]);
    assert_eq!(snapshot.get(&key()).unwrap(), None);
}

/// Numbers that look random and are the same in every run.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    /// Few short keys, so that they meet, and a long one now and then; some of those that are only
    /// walked, and their neighbours.
    fn key(&mut self) -> Vec<u8> {
        let bytes = [0, WALKED.start - 1, WALKED.start, WALKED.end - 1, WALKED.end, 255];
        let length = if self.roll(20) == 0 { 300 } else { self.roll(3) };
        (0..length).map(|_| bytes[self.roll(bytes.len() as u64) as usize]).collect()
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        match self.roll(5) {
            0 => Unbounded,
            1 | 2 => Included(self.key()),
            _ => Excluded(self.key()),
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Get(Vec<u8>),
    Scan(Bound<Vec<u8>>, Bound<Vec<u8>>, Direction, usize),
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the reads among the steps found.
type Found = Vec<Rows>;

fn random_steps(dice: &mut Dice) -> Vec<Step> {
    let count = 1 + dice.roll(8);
    let mut steps = Vec::new();
    for _ in 0..count {
        steps.push(match dice.roll(6) {
            0 | 1 => Step::Put(dice.key(), dice.roll(1000).to_be_bytes().to_vec()),
            2 => Step::Delete(dice.key()),
            3 => Step::Get(dice.key()),
            _ => {
                let direction =
                    if dice.roll(2) == 0 { Direction::Forward } else { Direction::Backward };
                Step::Scan(dice.bound(), dice.bound(), direction, 1 + dice.roll(6) as usize)
            }
        });
    }
    steps
}

fn apply_to_view(steps: &[Step], view: &mut dyn View) -> Result<Found, Error> {
    let mut found = Found::new();
    for step in steps {
        match step {
            Step::Put(key, value) => view.put(key, Bytes::copy_from_slice(value)),
            Step::Delete(key) => view.delete(key),
            Step::Get(key) => {
                found.push(
                    view.get(key)?.into_iter().map(|value| (key.clone(), value.to_vec())).collect(),
                );
            }
            Step::Scan(from, to, direction, limit) => {
                let mut rows = Rows::new();
                let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
                view.scan(from, to, *direction, &mut |key, value| {
                    rows.push((key.to_vec(), value.to_vec()));
                    if rows.len() < *limit {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    }
                })?;
                found.push(rows);
            }
        }
    }
    Ok(found)
}

fn apply_to_model(steps: &[Step], model: &mut Model) -> Found {
    let mut found = Found::new();
    for step in steps {
        match step {
            Step::Put(key, value) => drop(model.insert(key.clone(), value.clone())),
            Step::Delete(key) => drop(model.remove(key)),
            Step::Get(key) => {
                found.push(
                    model.get(key).into_iter().map(|value| (key.clone(), value.clone())).collect(),
                );
            }
            Step::Scan(from, to, direction, limit) => {
                let interval = (from.clone(), to.clone());
                let inside = model.iter().filter(|(key, _)| interval.contains(*key));
                let mut rows: Rows =
                    inside.map(|(key, value)| (key.clone(), value.clone())).collect();
                if *direction == Direction::Backward {
                    rows.reverse();
                }
                rows.truncate(*limit);
                found.push(rows);
            }
        }
    }
    found
}

fn writes(steps: &[Step]) -> bool {
    steps.iter().any(|step| matches!(step, Step::Put(..) | Step::Delete(_)))
}

fn random_operations_match_a_model<S: RangeStore>(open: &dyn Fn() -> S) {
    for seed in [1, 2, 3, 4] {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 >> seed);
        let store = open();
        let ranges = [0, 1, 2].map(RangeId);
        block_on(store.create_ranges(&ranges[1..])).unwrap();
        let mut models = [Model::new(), Model::new(), Model::new()];
        let mut lsns = [0; 3];
        for _ in 0..60 {
            random_group(&store, &mut dice, &ranges, &mut models, &mut lsns);
            let at = dice.roll(3) as usize;
            random_transaction(&store, &mut dice, ranges[at], &mut models[at], &mut lsns[at]);
            for (range, (model, lsn)) in ranges.iter().zip(models.iter().zip(lsns)) {
                let snapshot = store.snapshot(*range).unwrap();
                assert_eq!(snapshot.lsn(), lsn);
                let expected: Rows = model.clone().into_iter().collect();
                assert_eq!(all(&snapshot), expected);
            }
        }
    }
}

/// Submits a few operations at once, some of which refuse after all.
fn random_group<S: RangeStore>(
    store: &S,
    dice: &mut Dice,
    ranges: &[RangeId; 3],
    models: &mut [Model; 3],
    lsns: &mut [Lsn; 3],
) {
    let mut waiting = Vec::new();
    for _ in 0..1 + dice.roll(10) {
        let (at, refuses, steps) = (dice.roll(3) as usize, dice.roll(5) == 0, random_steps(dice));
        let operation = {
            let steps = steps.clone();
            Run(move |view: &mut dyn View| {
                let found = apply_to_view(&steps, view)?;
                if refuses { Err(Stop::Refused(found)) } else { Ok(found) }
            })
        };
        waiting.push((at, refuses, steps, store.submit(ranges[at], operation)));
    }
    for (at, refuses, steps, committed) in waiting {
        let (found, lsn) = match block_on(committed) {
            Ok(Committed { lsn, output }) if !refuses => (output, lsn),
            Err(SubmitError::Refused(found, lsn)) if refuses => (found, lsn),
            other => panic!("{other:?}"),
        };
        if refuses {
            assert_eq!(found, apply_to_model(&steps, &mut models[at].clone()));
        } else {
            assert_eq!(found, apply_to_model(&steps, &mut models[at]));
            lsns[at] += Lsn::from(writes(&steps));
        }
        assert_eq!(lsn, lsns[at]);
    }
}

/// Runs a transaction, with another commit in between. Either it conflicts, or it is as if it had run
/// after the other.
fn random_transaction<S: RangeStore>(
    store: &S,
    dice: &mut Dice,
    range: RangeId,
    model: &mut Model,
    lsn: &mut Lsn,
) {
    let mut txn = store.begin(range).unwrap();
    let steps = random_steps(dice);
    let found = apply_to_view(&steps, &mut txn).unwrap();
    assert_eq!(found, apply_to_model(&steps, &mut model.clone()));
    let (key, value) = (dice.key(), vec![9]);
    let operation = put(key.clone(), value.clone());
    block_on(store.submit(range, operation)).unwrap();
    model.insert(key, value);
    *lsn += 1;
    match block_on(store.commit(txn)) {
        Ok(committed) => {
            assert_eq!(found, apply_to_model(&steps, model), "what was read was still true");
            *lsn += Lsn::from(writes(&steps));
            assert_eq!(committed, *lsn);
        }
        Err(Error::Conflict) => {}
        Err(other) => panic!("{other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Embedded, Engine, Fjall, Memory, Mirror, Options};

    fn check<S: RangeStore>(open: &dyn Fn() -> S) {
        for (name, rule) in every_rule::<S>() {
            eprintln!("{name}");
            rule(open);
        }
    }

    fn small() -> Options {
        Options { cache_bytes: 1 << 20, memtable_bytes: 1 << 20 }
    }

    #[test]
    fn memory_keeps_the_contract() {
        check(&Embedded::in_memory);
    }

    #[test]
    fn the_embedded_engine_keeps_the_contract() {
        let directory = tempfile::tempdir().unwrap();
        let number = std::cell::Cell::new(0);
        check(&|| {
            number.set(number.get() + 1);
            Embedded::open(&directory.path().join(number.get().to_string()), small()).unwrap()
        });
    }

    #[test]
    fn both_agree() {
        let directory = tempfile::tempdir().unwrap();
        let number = std::cell::Cell::new(0);
        check(&|| {
            number.set(number.get() + 1);
            let path = directory.path().join(number.get().to_string());
            let fjall = Fjall::open(&path, small()).unwrap();
            Engine::with_store(Mirror::new(Memory::new(), fjall)).unwrap()
        });
    }
}
