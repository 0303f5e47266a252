//! What is wrong with a query text, in the service's words.

use crate::Span;
use std::fmt;

/// A refused query text: the service's code, its message and the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The service's code, such as `SC1001`.
    pub code: &'static str,
    /// The message, in the service's wording where that is known.
    pub message: String,
    /// Where the offending text starts, in UTF-16 units from the beginning of the query.
    pub start: usize,
    /// Where the offending text ends, exclusive.
    pub end: usize,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} at {}..{}: {}", self.code, self.start, self.end, self.message)
    }
}

impl std::error::Error for Error {}

impl Error {
    /// An error about the bytes `start..end` of `text`.
    pub(crate) fn at(
        text: &str,
        start: usize,
        end: usize,
        code: &'static str,
        message: String,
    ) -> Error {
        let (start, end) = Span { start, end }.in_units(text);
        Error { code, message, start, end }
    }
}
