//! Partial updates: a short list of operations, applied to a copy of a document, all or nothing.

use std::fmt;

use crate::{Object, Path, Value};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// Sets a member, inserts an element.
    Add,
    /// Sets a member, overwrites an element.
    Set,
    /// Overwrites what is there.
    Replace,
    /// Takes out what is there.
    Remove,
    /// Adds to a number.
    Increment,
    /// Takes out what is at one path and adds it at another.
    Move,
}

/// One operation. Paths are lists of unescaped segments.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchOperation {
    /// What it does.
    pub kind: PatchKind,
    /// Where, as a JSON Pointer.
    pub path: String,
    /// From where a move takes, as a JSON Pointer.
    pub from: Option<String>,
    /// The value of all but remove and move.
    pub value: Option<Value>,
}

/// A partial update.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// The operations, one to ten.
    pub operations: Vec<PatchOperation>,
    /// The condition on the document as it is, in the query language.
    pub condition: Option<String>,
}

/// Why a patch is refused, in the service's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchError(pub String);

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PatchError {}

impl Patch {
    /// Reads a patch: an object with operations and perhaps a condition, or the bare operations.
    pub fn parse(_body: &Value) -> Result<Patch, PatchError> {
        Err(PatchError("patch is not supported yet".to_owned()))
    }

    /// Applies all operations to a copy.
    pub fn apply(
        &self,
        _document: &Object,
        _partition_paths: &[Path],
    ) -> Result<Object, PatchError> {
        Err(PatchError("patch is not supported yet".to_owned()))
    }
}
