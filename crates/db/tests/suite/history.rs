//! Decides whether what many clients saw can have come of one transaction after the other.
//!
//! Transactions append numbers to lists, every number once, and read lists. A list therefore tells
//! its own past: what a reader saw says exactly whose appends came before it and whose came after.
//! From that, and from which transaction had ended before another one began, follows who must have
//! come before whom. If that goes round in a circle, there was no such order.

use std::collections::{BTreeMap, BTreeSet};

use value::Value;

/// How many lists there are.
pub(crate) const LISTS: usize = 4;

/// A procedure that takes step after step on documents with the given prefix to their ids: `[list]`
/// reads one, `[list, number]` appends to it, `[]` reads all by a query. Answers what it read.
pub(crate) const STEPS: &str = "function (prefix, steps) {
    const c = getContext().getCollection(), told = [];
    next(0);
    function next(at) {
        if (at === steps.length) return getContext().getResponse().setBody(told);
        const [list, number] = steps[at];
        if (list === undefined) return all((lists) => { told.push(lists); next(at + 1); });
        c.readDocument(c.getAltLink() + '/docs/' + prefix + list, (error, document) => {
            if (error) throw error;
            if (number === undefined) { told.push(document.list); return next(at + 1); }
            document.list.push(number);
            c.replaceDocument(document._self, document, (error) => {
                if (error) throw error;
                next(at + 1);
            });
        });
    }
    function all(then) {
        const query = 'SELECT c.list FROM c WHERE STARTSWITH(c.id, @prefix) ORDER BY c.id';
        const parameters = [{name: '@prefix', value: prefix}];
        c.queryDocuments(c.getSelfLink(), {query, parameters}, (error, found) => {
            if (error) throw error;
            then(found.map((document) => document.list));
        });
    }
}";

/// Numbers that look random and are the same for the same start.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// One of the lists.
    pub(crate) fn list(&mut self) -> usize {
        self.roll(LISTS as u64) as usize
    }
}

/// What one execution of [`STEPS`] is asked to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked(Vec<Wish>);

#[derive(Clone, Copy, Debug)]
enum Wish {
    Append(usize, u64),
    Read(usize),
    ReadAll,
}

impl Asked {
    /// A few steps. Appends use up numbers.
    pub(crate) fn random(dice: &mut Dice, number: &mut impl FnMut() -> u64) -> Self {
        let mut wish = |dice: &mut Dice| match dice.roll(5) {
            0 | 1 => Wish::Append(dice.list(), number()),
            2 | 3 => Wish::Read(dice.list()),
            _ => Wish::ReadAll,
        };
        Self((0..1 + dice.roll(4)).map(|_| wish(dice)).collect())
    }

    /// The parameters of the procedure.
    pub(crate) fn parameters(&self, prefix: &str) -> String {
        let texts = self.0.iter().map(|wish| match wish {
            Wish::Append(list, number) => format!("[{list},{number}]"),
            Wish::Read(list) => format!("[{list}]"),
            Wish::ReadAll => "[]".to_owned(),
        });
        format!(r#"["{prefix}",[{}]]"#, texts.collect::<Vec<_>>().join(","))
    }

    /// The steps with what the answer says was read; without an answer, what was appended.
    pub(crate) fn steps(&self, answer: Option<&Value>) -> Vec<Step> {
        let mut told = answer.map(|told| told.as_array().expect("what was read").iter());
        let mut told = || told.as_mut().map(|told| told.next().expect("every read is answered"));
        let mut steps = Vec::new();
        for wish in &self.0 {
            match *wish {
                Wish::Append(list, number) => steps.push(Step::Append { list, number }),
                Wish::Read(list) => {
                    steps.extend(told().map(|told| Step::Read { list, seen: numbers(told) }));
                }
                Wish::ReadAll => {
                    let Some(lists) = told() else { continue };
                    let lists = lists.as_array().expect("all lists");
                    assert_eq!(lists.len(), LISTS);
                    for (list, seen) in lists.iter().enumerate() {
                        steps.push(Step::Read { list, seen: numbers(seen) });
                    }
                }
            }
        }
        steps
    }
}

/// The numbers of a list.
pub(crate) fn numbers(list: &Value) -> Vec<u64> {
    let numbers = list.as_array().expect("a list").iter();
    numbers.map(|number| number.as_i64().expect("a number") as u64).collect()
}

/// One thing that a transaction did.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Put a number at the end of a list.
    Append { list: usize, number: u64 },
    /// Saw a list.
    Read { list: usize, seen: Vec<u64> },
}

/// A transaction that was committed, or may have been.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    /// When it was asked for.
    pub(crate) began: u64,
    /// When it was answered; never, if nobody knows whether it was committed.
    pub(crate) ended: Option<u64>,
    pub(crate) steps: Vec<Step>,
}

/// Everything that happened, and the lists in the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) transactions: Vec<Transaction>,
    pub(crate) lists: Vec<Vec<u64>>,
}

impl History {
    /// What is wrong, if anything is.
    pub(crate) fn check(&self) -> Result<(), String> {
        let writers = self.writers()?;
        let order = Order { lists: &self.lists, writers };
        let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.transactions.len()];
        for (this, transaction) in self.transactions.iter().enumerate() {
            if !order.is_committed(transaction)? {
                continue;
            }
            self.add_appends(this, &order, &mut before);
            self.add_reads(this, &order, &mut before)?;
            for (other, earlier) in self.transactions.iter().enumerate() {
                if earlier.ended.is_some_and(|ended| ended < transaction.began) {
                    before[this].insert(other);
                }
            }
        }
        circle(&before).map_or(Ok(()), |circle| {
            let told = circle.iter().map(|at| format!("\n  {:?}", self.transactions[*at]));
            Err(format!("each of these comes before the next one:{}", told.collect::<String>()))
        })
    }

    /// Who appended which number to which list.
    fn writers(&self) -> Result<BTreeMap<(usize, u64), usize>, String> {
        let mut writers = BTreeMap::new();
        for (at, transaction) in self.transactions.iter().enumerate() {
            for step in &transaction.steps {
                if let Step::Append { list, number } = step
                    && writers.insert((*list, *number), at).is_some()
                {
                    return Err(format!("{number} is appended twice to list {list}"));
                }
            }
        }
        for (list, numbers) in self.lists.iter().enumerate() {
            let mut seen = BTreeSet::new();
            for number in numbers {
                if !writers.contains_key(&(list, *number)) {
                    return Err(format!("nobody who was answered appended {number} to {list}"));
                }
                if !seen.insert(number) {
                    return Err(format!("{number} stands twice in list {list}"));
                }
            }
        }
        Ok(writers)
    }

    /// Appends to a list come in the order of the list.
    fn add_appends(&self, this: usize, order: &Order<'_>, before: &mut [BTreeSet<usize>]) {
        for step in &self.transactions[this].steps {
            let Step::Append { list, number } = step else { continue };
            let numbers = &self.lists[*list];
            let at = numbers.iter().position(|other| other == number).expect("is committed");
            if let Some(previous) = at.checked_sub(1) {
                order.add(before, order.writer(*list, numbers[previous]), this);
            }
        }
    }

    /// Whoever sees a list comes after those that it sees, and before the next one.
    fn add_reads(
        &self,
        this: usize,
        order: &Order<'_>,
        before: &mut [BTreeSet<usize>],
    ) -> Result<(), String> {
        let mut own: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for step in &self.transactions[this].steps {
            match step {
                Step::Append { list, number } => own.entry(*list).or_default().push(*number),
                Step::Read { list, seen } => {
                    let transaction = &self.transactions[this];
                    let numbers = &self.lists[*list];
                    if !numbers.starts_with(seen) {
                        return Err(format!(
                            "list {list} was never as in {transaction:?}: {numbers:?}"
                        ));
                    }
                    if !own.get(list).is_none_or(|own| seen.ends_with(own)) {
                        return Err(format!("does not see what it wrote: {transaction:?}"));
                    }
                    if let Some(last) = seen.last() {
                        order.add(before, order.writer(*list, *last), this);
                    }
                    if let Some(next) = numbers.get(seen.len()) {
                        order.add(before, this, order.writer(*list, *next));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The order of versions: that of the lists.
struct Order<'a> {
    lists: &'a [Vec<u64>],
    writers: BTreeMap<(usize, u64), usize>,
}

impl Order<'_> {
    fn writer(&self, list: usize, number: u64) -> usize {
        self.writers[&(list, number)]
    }

    fn add(&self, before: &mut [BTreeSet<usize>], first: usize, then: usize) {
        if first != then {
            before[then].insert(first);
        }
    }

    /// Whether a transaction took place: all of it did, or nothing of what nobody was told of.
    fn is_committed(&self, transaction: &Transaction) -> Result<bool, String> {
        let mut there = BTreeSet::new();
        for step in &transaction.steps {
            if let Step::Append { list, number } = step {
                there.insert(self.lists[*list].contains(number));
            }
        }
        match (there.contains(&true), there.contains(&false), transaction.ended) {
            (true, true, _) => Err(format!("half of it is there: {transaction:?}")),
            (_, true, Some(_)) => Err(format!("it was committed and is gone: {transaction:?}")),
            (_, is_missing, _) => Ok(!is_missing),
        }
    }
}

/// Transactions of which each comes before the next, and the last before the first.
fn circle(before: &[BTreeSet<usize>]) -> Option<Vec<usize>> {
    let mut after = vec![Vec::new(); before.len()];
    for (then, firsts) in before.iter().enumerate() {
        for first in firsts {
            after[*first].push(then);
        }
    }
    // Whoever has nobody left before it can go first.
    let mut waits_for: Vec<usize> = before.iter().map(BTreeSet::len).collect();
    let mut left: BTreeSet<usize> = (0..before.len()).collect();
    let mut next: Vec<usize> = left.iter().copied().filter(|at| waits_for[*at] == 0).collect();
    while let Some(first) = next.pop() {
        left.remove(&first);
        for then in &after[first] {
            waits_for[*then] -= 1;
            if waits_for[*then] == 0 {
                next.push(*then);
            }
        }
    }
    let mut path: Vec<usize> = vec![left.first().copied()?];
    loop {
        let last = *path.last().expect("starts with one");
        let earlier = before[last].intersection(&left).next().copied();
        let earlier = earlier.expect("who is left has somebody left before it");
        if let Some(at) = path.iter().position(|other| *other == earlier) {
            path.drain(..at);
            path.reverse();
            return Some(path);
        }
        path.push(earlier);
    }
}

#[cfg(test)]
mod tests {
    use super::{History, Step, Transaction};

    fn append(list: usize, number: u64) -> Step {
        Step::Append { list, number }
    }

    fn read(list: usize, seen: &[u64]) -> Step {
        Step::Read { list, seen: seen.to_vec() }
    }

    /// Transactions with when they began and ended.
    fn check(lists: &[&[u64]], transactions: &[(u64, u64, &[Step])]) -> Result<(), String> {
        let transactions = transactions.iter().map(|(began, ended, steps)| Transaction {
            began: *began,
            ended: (*ended > 0).then_some(*ended),
            steps: steps.to_vec(),
        });
        let lists = lists.iter().map(|list| list.to_vec()).collect();
        History { transactions: transactions.collect(), lists }.check()
    }

    #[test]
    fn what_can_have_happened_is_accepted() {
        let one: &[Step] = &[append(0, 1), read(0, &[1]), append(1, 1)];
        let two: &[Step] = &[read(1, &[1]), append(0, 2), read(0, &[1, 2])];
        check(&[&[1, 2], &[1]], &[(1, 9, one), (2, 8, two)]).unwrap();
        // One that nobody was told of is there whole or not at all.
        check(&[&[], &[]], &[(1, 0, &[append(0, 1), append(1, 1)])]).unwrap();
        check(&[&[1], &[1]], &[(1, 0, &[append(0, 1), append(1, 1)])]).unwrap();
    }

    #[test]
    fn what_cannot_have_happened_is_found() {
        let found = |lists: &[&[u64]], transactions: &[(u64, u64, &[Step])], part: &str| {
            let told = check(lists, transactions).expect_err(part);
            assert!(told.contains(part), "{told}");
        };
        let circle = "comes before the next";
        // A lost update: the list that both added to.
        let both: [&[Step]; 2] = [&[read(0, &[]), append(0, 1)], &[read(0, &[]), append(0, 2)]];
        found(&[&[1, 2]], &[(1, 9, both[0]), (2, 8, both[1])], circle);
        found(&[&[2]], &[(1, 9, both[0]), (2, 8, both[1])], "committed and is gone");
        // Write skew: each misses what the other one wrote.
        let skew: [&[Step]; 2] = [&[read(0, &[]), append(1, 1)], &[read(1, &[]), append(0, 2)]];
        found(&[&[2], &[1]], &[(1, 9, skew[0]), (2, 8, skew[1])], circle);
        // Half of a transaction is seen.
        let whole: &[Step] = &[append(0, 1), append(1, 1)];
        let half: &[Step] = &[read(0, &[1]), read(1, &[])];
        found(&[&[1], &[1]], &[(1, 9, whole), (2, 8, half)], circle);
        found(&[&[1], &[]], &[(1, 0, whole)], "half of it is there");
        // What is not the last state of a transaction is seen.
        let twice: &[Step] = &[append(0, 1), append(0, 2)];
        found(&[&[1, 2]], &[(1, 9, twice), (2, 8, &[read(0, &[1])])], circle);
        // The past is seen after the present was answered.
        found(&[&[1]], &[(1, 2, &[append(0, 1)]), (3, 4, &[read(0, &[])])], circle);
        // Two readers disagree on the order.
        let apart: &[(u64, u64, &[Step])] = &[
            (1, 9, &[append(0, 1)]),
            (1, 9, &[append(1, 2)]),
            (1, 9, &[read(0, &[1]), read(1, &[])]),
            (1, 9, &[read(0, &[]), read(1, &[2])]),
        ];
        found(&[&[1], &[2]], apart, circle);
        found(&[&[1]], &[(1, 2, &[append(0, 1)]), (1, 2, &[read(0, &[7])])], "was never as");
        found(&[&[7]], &[], "nobody who was answered");
        let blind: &[Step] = &[append(0, 1), read(0, &[])];
        found(&[&[1]], &[(1, 2, blind)], "does not see what it wrote");
    }
}
