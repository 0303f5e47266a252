//! The values that every other crate speaks: JSON, its order, its paths, and the names of things.
//!
//! Nothing here knows that a value will be stored, queried or sent. Everything is synchronous, pure
//! and safe to call with bytes from a stranger: functions answer or refuse, they do not panic, and
//! their stack and memory are bounded by the length of what they are given.

mod document;
mod epk;
mod etag;
mod json;
mod murmur;
mod number;
mod object;
pub mod order;
mod partition_key;
mod patch;
mod path;
mod rid;
#[cfg(test)]
mod samples;
mod tree;

pub use document::{Document, DocumentError, Parts, SYSTEM_PROPERTIES, SystemProperties};
pub use epk::{Epk, EpkError, EpkRange, even_split};
pub use etag::Etag;
pub use json::{JsonError, write_string};
pub use murmur::{murmur3_x64_128, murmur3_x86_32};
pub use number::Number;
pub use object::Object;
pub use order::{OrderError, compare, decode, encode, encode_f64, encode_str};
pub use partition_key::{
    Component, PartitionKey, PartitionKeyDefinition, PartitionKeyError, PartitionKind,
};
pub use patch::{Patch, PatchError, PatchKind, PatchOperation, Pointer};
pub use path::{Path, PathError};
pub use rid::{
    ClientEncryptionKeyRid, ConflictRid, ContainerRid, DatabaseRid, DocumentRid, OfferRid,
    PartitionKeyRangeRid, PermissionRid, Rid, RidError, ScriptKind, ScriptRid, UserRid,
};
pub use tree::{DEPTH_MAX, Value};
