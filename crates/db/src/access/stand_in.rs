//! Chooses where entries stand for documents.
//!
//! Entries that tell all that a query looks at stand for their documents: those that satisfy the
//! condition, or, where there is none, all of an index that every document has. Entries that tell what the
//! filter looks at are asked before their documents. The entry at the end of an index tells the least or
//! the greatest. Whether entries tell enough of most documents, and whether few pass, is learned from a
//! sample of the documents themselves.

use query::{Condition, Indexed, OrderBy, PathSegment, ScalarKind, Span, Touched};
use storage::Snapshot;
use value::{Object, Value};

use super::choose::{
    COUNT_ALWAYS, Choice, Chooser, Extent, LOOKUP_COST, PAGE_ALWAYS, Resolved, parts_of,
    property_names,
};
use super::cover::{Cover, Sieve};
use super::lookup::{Branch, fingerprint};
use super::ordered::Along;
use crate::continuation::EntryProgress;
use crate::index::entry::SINGLE;
use crate::index::shape::NodeKind;
use crate::read::refused;
use crate::scan::Start;
use crate::{Error, Result};

/// So many documents are asked to learn of how many something is true.
const SAMPLE: u64 = 64;
/// The number of a branch that stands for no part of the condition, but for the filter itself.
const SIEVED: u16 = u16::MAX;

impl<'r, P: Snapshot> Chooser<'r, P> {
    /// What makes documents of the entries of some branches, if they tell all that is looked at.
    pub(crate) fn cover(&self, branches: &[Branch]) -> Option<Cover> {
        let [branch] = branches else { return None };
        // A document that several entries lead to is told by the others.
        let touched = self.touched.filter(|_| !branch.repeats())?;
        Cover::of(self.reading, &branch.paths, &branch.layout, touched)
    }

    /// The same for a walk along an index.
    pub(super) fn covering(&self, mut along: Along) -> Along {
        let paths: Vec<Indexed> = along.paths.iter().map(|(what, _)| what.clone()).collect();
        let touched = self.touched;
        along.cover =
            touched.and_then(|touched| Cover::of(self.reading, &paths, &along.layout, touched));
        along
    }

    /// Looks at all documents or, for a page, first at their entries. Where many documents pass, looking
    /// these up costs more than a scan.
    pub(super) fn scan(&self, extent: Extent) -> Result<Choice<'r>> {
        let found = if extent == Extent::Page { self.sieved()? } else { None };
        let Some((branch, sieve)) = found else { return Ok(Choice::Scan) };
        if !self.insists && !self.is_rare()? {
            return Ok(Choice::Scan);
        }
        let (branches, also) = (vec![branch], Vec::new());
        let sieve = Some(sieve);
        Ok(Choice::Lookup { branches, also, entries: None, counted: None, cover: None, sieve })
    }

    /// Whether few documents pass the filter, of many.
    fn is_rare(&self) -> Result<bool> {
        let touched = self.prepared.filter_touched();
        Ok(self.scanned()? > PAGE_ALWAYS
            && self.are_few(touched, |document| self.prepared.passes(document).map_err(refused))?)
    }

    /// Whether entries tell enough of most documents: where many have to be looked up after all, because
    /// their numbers are written otherwise, a scan is cheaper.
    pub(super) fn is_told(&self, cover: Option<&Cover>, found: &Resolved) -> Result<bool> {
        let is_short = found.entries.is_some_and(|entries| entries as u64 <= COUNT_ALWAYS);
        let (Some(cover), Some(touched)) = (cover, self.touched) else { return Ok(false) };
        Ok(is_short || self.are_few(touched, |document| Ok(!cover.tells(document)))?)
    }

    /// Whether something is true of few documents. Some are asked; they come in the order of hashes, so
    /// they are as good as any others.
    fn are_few(&self, touched: &Touched, is_one: impl Fn(&Value) -> Result<bool>) -> Result<bool> {
        let (mut asked, mut found) = (0, 0);
        let mut scan = self.reading.scan(Start::Beginning);
        while asked < SAMPLE
            && let Some(visited) = scan.next()?
        {
            found += u64::from(is_one(&visited.item.document.select(touched))?);
            asked += 1;
        }
        Ok(found * 2 * LOOKUP_COST < asked)
    }

    /// An index whose entries tell whether a document passes the filter, for every document that can.
    fn sieved(&self) -> Result<Option<(Branch, Sieve<'r>)>> {
        if !self.prepared.sifts() || !self.is_everywhere(|_| false) {
            return Ok(None);
        }
        let leaves = leaves(self.prepared.filter_touched());
        for names in &leaves {
            let Some((branch, sieve)) = self.sieve(names) else { continue };
            let Some(others) = self.others(names)? else { continue };
            let mut kinds = others.0.iter().flatten().map(|(_, kind)| *kind);
            // Documents that lack the path have no entry. They all are as an empty one to the filter,
            // if that looks at nothing else.
            let is_out = || {
                let nothing = Value::Object(Object::new());
                Ok::<_, Error>(
                    leaves.len() == 1 && !self.prepared.passes(&nothing).map_err(refused)?,
                )
            };
            let is_told = match (kinds.next(), kinds.any(|kind| kind.is_some())) {
                (None, _) => true,
                (Some(None), false) => is_out()?,
                _ => false,
            };
            if is_told {
                return Ok(Some((branch, sieve)));
            }
        }
        Ok(None)
    }

    /// All entries of the index over a path, if they tell what the filter looks at.
    fn sieve(&self, names: &[String]) -> Option<(Branch, Sieve<'r>)> {
        let what = indexed(names);
        let branch = Branch::whole(SIEVED, self.serves(&what)?, vec![what], SINGLE.to_vec());
        let touched = self.prepared.filter_touched();
        let cover = Cover::of(self.reading, &branch.paths, &branch.layout, touched)?;
        Some((branch, Sieve { cover, prepared: self.prepared }))
    }

    /// The lookup by which an earlier page asked entries.
    pub(crate) fn sieved_again(&self, entry: &EntryProgress) -> Option<(Branch, Sieve<'r>)> {
        if entry.branches != [SIEVED] || !self.prepared.sifts() {
            return None;
        }
        let leaves = leaves(self.prepared.filter_touched());
        let mut found = leaves.iter().filter_map(|names| self.sieve(names));
        let is_it = |(branch, _): &(Branch, Sieve<'r>)| {
            fingerprint(std::slice::from_ref(branch)) == entry.indexes
        };
        found.find(is_it)
    }

    /// An index whose entries tell what is looked at of every document there is.
    pub(super) fn all_covered(&self) -> Result<Option<Branch>> {
        let (Some(touched), true) = (self.touched, self.is_everywhere(|_| false)) else {
            return Ok(None);
        };
        for one in self.composites() {
            let branch = Branch::whole(0, one.id, one.paths.clone(), one.components.clone());
            if self.cover(std::slice::from_ref(&branch)).is_some() {
                return Ok(Some(branch));
            }
        }
        let everywhere = vec!["id".to_owned()];
        for names in leaves(touched).into_iter().chain([everywhere]) {
            let what = indexed(&names);
            let Some(id) = self.serves(&what) else { continue };
            let branch = Branch::whole(0, id, vec![what], SINGLE.to_vec());
            if self.cover(std::slice::from_ref(&branch)).is_some() && self.is_scalar(&names)? {
                return Ok(Some(branch));
            }
        }
        Ok(None)
    }

    /// Whether every document has a scalar at a path.
    fn is_scalar(&self, names: &[String]) -> Result<bool> {
        if names == ["_ts"] {
            return Ok(true);
        }
        Ok(self.others(names)?.is_some_and(|others| others.0.iter().all(Vec::is_empty)))
    }

    /// The index along which the first entry leads to the document with the least or the greatest
    /// value, of all that satisfy a condition; `None` when that is not known.
    pub(crate) fn along_extreme(
        &self,
        by: &OrderBy,
        condition: &Condition,
    ) -> Result<Option<Along>> {
        let Some(what) = &by.key else { return Ok(None) };
        let mut parts = parts_of(condition).to_vec();
        let is_about =
            |part: &Condition| matches!(part, Condition::Holds { path, .. } if path == what);
        if !parts.iter().any(is_about) {
            let Indexed::Path(path) = what else { return Ok(None) };
            let Some(names) = property_names(path) else { return Ok(None) };
            // Arrays and objects spoil the answer, so it must be known that there are none.
            let is_node = |(_, kind): &(_, Option<NodeKind>)| kind.is_some();
            let may_have_nodes = names != ["_ts"]
                && self.others(&names)?.is_none_or(|others| others.0.iter().flatten().any(is_node));
            if may_have_nodes {
                return Ok(None);
            }
            let kinds = [ScalarKind::Boolean, ScalarKind::Number, ScalarKind::String];
            let spans = kinds.map(Span::Kind).into_iter();
            let spans = std::iter::once(Span::Exactly(Value::Null)).chain(spans).collect();
            parts.push(Condition::Holds { path: what.clone(), spans });
        }
        let along = self.along(std::slice::from_ref(by), &Condition::All(parts))?;
        Ok(along.filter(|along| along.is_covered && along.is_straight))
    }
}

/// The index over the scalars at the end of some names.
fn indexed(names: &[String]) -> Indexed {
    Indexed::Path(names.iter().cloned().map(PathSegment::Property).collect())
}

/// The places that are looked at, as far down as names lead.
fn leaves(touched: &Touched) -> Vec<Vec<String>> {
    fn add(touched: &Touched, at: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
        let Touched::Members(members) = touched else { return out.push(at.clone()) };
        for (name, below) in members {
            at.push(name.clone());
            add(below, at, out);
            at.pop();
        }
    }
    let mut leaves = Vec::new();
    add(touched, &mut Vec::new(), &mut leaves);
    leaves
}
