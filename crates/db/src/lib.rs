//! Databases, containers, documents: the only place where values, queries and storage meet.
//!
//! In reading order: [`Db`] is the whole; [`Container`] is where documents live; `write` is the one
//! path by which a document changes; `documents` and `read` are what requests ask for; `key` and
//! `row` are the format on disk. Nothing here knows headers, URLs or JSON envelopes.

mod access;
mod answer;
mod catalog;
mod change_feed;
mod charge;
mod clock;
mod container;
mod containers;
mod continuation;
mod database;
mod document;
mod documents;
mod dtc;
mod encryption_key;
mod error;
mod explain;
mod gate;
mod index;
mod key;
mod load;
mod meta;
mod meter;
mod offer;
mod permission;
mod plan;
pub mod policy;
mod precondition;
mod ration;
mod read;
mod recut;
mod resource;
mod routing;
mod row;
mod scan;
mod scripts;
mod session;
mod stats;
mod sweep;
mod transaction;
mod turns;
mod unique;
mod user;
mod verify;
mod walk;
mod write;

pub use catalog::{Database, User};
pub use change_feed::event::ChangeKind;
pub use change_feed::read::{
    Change, ChangeMode, ChangePage, ChangeRequest, ChangeStart, ChangeVersion, PreviousVersion,
};
pub use charge::Charge;
pub use clock::{Clock, CountingIds, Ids, ManualClock, SystemClock, SystemIds};
pub use container::Container;
pub use containers::{RangeFeed, Usage};
pub use database::Db;
pub use document::{ID_BYTES_MAX, SIZE_MAX};
pub use documents::{
    BatchOperation, BatchOutcome, Failure, FeedPage, OperationResult, Outcome, Page,
};
pub use dtc::{DistributedOperation, DistributedOutcome, DistributedResult};
pub use error::{Error, Kind, Result};
pub use explain::IndexUse;
pub use index::Pace;
pub use offer::{Migrate, RangeThroughput, Throughput};
pub use permission::{Access, Grant, What, is_document_rid};
pub use plan::{PlanRequest, ResumeFilter};
pub use query::Features;
pub use ration::Effort;
pub use read::QueryText;
pub use recut::Recut;
pub use resource::Resource;
pub use scan::Scope;
pub use scripts::{Call, Called, Triggered, Triggers};
pub use session::{Position, Session};
pub use stats::Stats;
pub use sweep::Swept;
pub use verify::Verified;
pub use write::{Address, Conditions, Write};
