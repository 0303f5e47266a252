//! What clients can do with the rows of several ranges, by the names under which they announce it.

use super::{Distinct, Merge, QueryPlan};
use crate::Error;

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Something that a client can do, or that a plan needs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Feature { $($(#[$doc])* $name,)+ }

        impl Feature {
            const ALL: &[Feature] = &[$(Feature::$name),+];

            /// The name under which clients announce it.
            pub fn name(self) -> &'static str {
                match self { $(Feature::$name => stringify!($name),)+ }
            }
        }
    };
}

features! {
    /// Merges one aggregate that is selected as a bare value.
    Aggregate,
    /// Removes duplicates.
    Distinct,
    /// Merges groups.
    GroupBy,
    /// Merges several aggregates.
    MultipleAggregates,
    /// Merges by several sort keys.
    MultipleOrderBy,
    /// Skips and limits.
    OffsetAndLimit,
    /// Merges by one sort key.
    OrderBy,
    /// Limits.
    Top,
    /// Merges aggregates that are members of a row.
    NonValueAggregate,
    /// Counts distinct rows.
    DCount,
    /// Merges lists and sets.
    ListAndSetAggregate,
    /// Merges conditional counts.
    CountIf,
}

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u32);

impl Features {
    /// All features.
    pub fn all() -> Features {
        Feature::ALL.iter().copied().collect()
    }

    /// Reads a list of names between commas. Names that no plan needs are passed over: clients
    /// announce features of newer services, too.
    pub fn parse(list: &str) -> Features {
        let known = |name: &str| {
            Feature::ALL.iter().find(|feature| feature.name().eq_ignore_ascii_case(name.trim()))
        };
        list.split(',').filter_map(known).copied().collect()
    }

    /// Whether a feature is in the set.
    pub fn contains(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u32) != 0
    }

    /// The refusal that names the features which are here and not announced, if there are any.
    pub(super) fn missing_from(self, announced: Features) -> Option<Error> {
        let missing =
            |feature: &&Feature| self.contains(**feature) && !announced.contains(**feature);
        let mut text = String::new();
        for feature in Feature::ALL.iter().filter(missing) {
            let name = feature.name();
            text.push_str(&format!(
                "\nQuery contained {name}, which the calling client does not support."
            ));
        }
        (!text.is_empty()).then(|| {
            Error::refused(format!(
                "Query contains 1 or more unsupported features. Upgrade your SDK to a version \
                 that does support the requested features:{text}"
            ))
        })
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<T: IntoIterator<Item = Feature>>(features: T) -> Features {
        Features(features.into_iter().fold(0, |set, feature| set | 1 << feature as u32))
    }
}

impl QueryPlan {
    /// What the client must be able to do.
    pub(super) fn needs(&self) -> Features {
        let merges: Vec<Merge> = match self.aggregates.is_empty() {
            false => self.aggregates.clone(),
            true => self.members.iter().filter_map(|(_, merge)| *merge).collect(),
        };
        let is_bare = !self.aggregates.is_empty();
        let needed = [
            (is_bare, Feature::Aggregate),
            (!is_bare && !merges.is_empty(), Feature::NonValueAggregate),
            (merges.len() > 1, Feature::MultipleAggregates),
            (merges.contains(&Merge::CountIf), Feature::CountIf),
            (
                merges.iter().any(|merge| matches!(merge, Merge::MakeList | Merge::MakeSet)),
                Feature::ListAndSetAggregate,
            ),
            (self.distinct != Distinct::None, Feature::Distinct),
            (self.distinct_count.is_some(), Feature::DCount),
            (!self.group_by.is_empty(), Feature::GroupBy),
            (self.order_by.len() == 1, Feature::OrderBy),
            (self.order_by.len() > 1, Feature::MultipleOrderBy),
            (self.offset.is_some() || self.limit.is_some(), Feature::OffsetAndLimit),
            (self.top.is_some(), Feature::Top),
        ];
        needed.into_iter().filter(|(is_needed, _)| *is_needed).map(|(_, feature)| feature).collect()
    }
}
