//! Consistency levels: what the account promises, and what a request may ask for.
//!
//! A server that commits in order on one machine keeps the strongest promise whatever it says. The
//! level is announced all the same, because clients act on it: they keep session tokens or not.

use value::{Object, Value};

/// What reads are promised to see, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub enum Consistency {
    Strong,
    BoundedStaleness,
    Session,
    ConsistentPrefix,
    Eventual,
}

impl Consistency {
    /// All levels.
    pub const ALL: [Consistency; 5] = [
        Consistency::Strong,
        Consistency::BoundedStaleness,
        Consistency::Session,
        Consistency::ConsistentPrefix,
        Consistency::Eventual,
    ];

    /// The level of a name, in any letter case.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }

    /// Its name, as the protocol spells it.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::Strong => "Strong",
            Consistency::BoundedStaleness => "BoundedStaleness",
            Consistency::Session => "Session",
            Consistency::ConsistentPrefix => "ConsistentPrefix",
            Consistency::Eventual => "Eventual",
        }
    }

    /// How an account announces it.
    pub(crate) fn policy(self) -> Object {
        let mut policy = Object::from([("defaultConsistencyLevel", Value::from(self.name()))]);
        if self == Consistency::BoundedStaleness {
            // The least that the service allows with one region.
            policy.insert("maxStalenessPrefix", 10);
            policy.insert("maxIntervalInSeconds", 5);
        }
        policy
    }
}
