//! Why a query is refused or stopped, in the service's words and shape.

use sql::Span;
use std::fmt;
use value::{Object, Value};

/// A refused or stopped query.
///
/// [`Error::message`] is the JSON document that the service puts into the message of its answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Content>);

/// What the caller has to do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The query is wrong, or asks for what is not supported.
    Refused,
    /// The deadline passed while the query ran.
    TimedOut,
    /// The query needed more memory than it may use.
    TooLarge,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    kind: ErrorKind,
    code: Code,
    text: String,
    location: Option<(usize, usize)>,
}

/// The service names most errors by text, some by number and some not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Named(&'static str),
    Numbered(u32),
    None,
}

impl Error {
    /// A refusal without a code. Implementations of [`crate::Functions`] use it to report a
    /// function that failed.
    pub fn refused(text: impl Into<String>) -> Error {
        Error::with(ErrorKind::Refused, Code::None, text, None)
    }

    /// A refusal with the service's code, about a part of the query `text`.
    pub(crate) fn at(
        query: &str,
        span: Span,
        code: &'static str,
        text: impl Into<String>,
    ) -> Error {
        let location = Some(span.in_units(query));
        Error::with(ErrorKind::Refused, Code::Named(code), text, location)
    }

    /// A refusal with one of the service's numeric codes, which come without a place.
    pub(crate) fn numbered(code: u32, text: impl Into<String>) -> Error {
        Error::with(ErrorKind::Refused, Code::Numbered(code), text, None)
    }

    /// The end of a query whose time is over. Implementations of [`crate::Functions`] use it to
    /// report a function that did not come to its end.
    pub fn timed_out() -> Error {
        let text = "the query ran longer than its deadline allows";
        Error::with(ErrorKind::TimedOut, Code::None, text, None)
    }

    pub(crate) fn too_large(bytes_max: usize) -> Error {
        let text = format!("the query needs more than {bytes_max} bytes of memory");
        Error::with(ErrorKind::TooLarge, Code::None, text, None)
    }

    fn with(
        kind: ErrorKind,
        code: Code,
        text: impl Into<String>,
        location: Option<(usize, usize)>,
    ) -> Error {
        Error(Box::new(Content { kind, code, text: text.into(), location }))
    }

    /// What the caller has to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The service's code, such as `SC2001`, where the error has one.
    pub fn code(&self) -> Option<&'static str> {
        match self.0.code {
            Code::Named(code) => Some(code),
            Code::Numbered(_) | Code::None => None,
        }
    }

    /// The plain sentence.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The JSON document with code, place and sentence that the service sends as its message.
    pub fn message(&self) -> String {
        let Content { code, text, location, .. } = &*self.0;
        let code = match code {
            Code::None => {
                let errors = Value::Array(vec![Value::from(text.as_str())]);
                return Value::Object(Object::from([("Errors", errors)])).to_text();
            }
            Code::Named(name) => Value::from(*name),
            Code::Numbered(number) => Value::from(*number),
        };
        let mut error = Object::new();
        error.insert("severity", "Error");
        if let Some((start, end)) = location {
            let place = Object::from([("start", Value::from(*start)), ("end", Value::from(*end))]);
            error.insert("location", place);
        }
        error.insert("code", code);
        error.insert("message", text.as_str());
        let errors = Value::Array(vec![Value::Object(error)]);
        Value::Object(Object::from([("errors", errors)])).to_text()
    }
}

impl From<sql::Error> for Error {
    fn from(error: sql::Error) -> Error {
        let location = Some((error.start, error.end));
        Error::with(ErrorKind::Refused, Code::Named(error.code), error.message, location)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl std::error::Error for Error {}

/// Why [`crate::Prepared::run`] ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError<E> {
    /// The query itself.
    Query(Error),
    /// The source of documents.
    Source(E),
}

impl<E> From<Error> for RunError<E> {
    fn from(error: Error) -> RunError<E> {
        RunError::Query(error)
    }
}
