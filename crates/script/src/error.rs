//! Why a script failed, in the service's words.

use std::fmt;

use value::{Object, Value};

/// A failed script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    kind: ErrorKind,
    text: String,
}

/// What happened to the script, and with it what the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The source is not JavaScript, or not a function.
    Compile,
    /// What the client sent as parameters is not a list of them.
    Parameters,
    /// The script threw, aborted, or used up its memory or stack; with the number that it gave its
    /// error, if any.
    Thrown {
        /// `number` of the error, which becomes the sub-status.
        number: Option<u32>,
    },
    /// The function is asynchronous and waits for something that cannot happen any more.
    Unsettled,
    /// The deadline passed.
    TimedOut,
    /// The host wanted the script to end: see [`crate::HostError::Stop`]. The host knows why.
    Stopped,
    /// The engine could not be set up within the memory that it may use.
    Engine,
}

/// The sub-status of a script that cannot be compiled, as the service numbers it.
const SCRIPT_COMPILE_ERROR: u32 = 65535;

impl ScriptError {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> ScriptError {
        ScriptError { kind, text: text.into() }
    }

    pub(crate) fn timed_out() -> ScriptError {
        // The spelling is the service's.
        let text = "The requested operation exceeded maximum alloted time. \
                    Learn more: https://aka.ms/cosmosdb-tsg-service-request-timeout";
        ScriptError::new(ErrorKind::TimedOut, text)
    }

    /// What happened.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The status that the client gets.
    pub fn status(&self) -> u16 {
        match self.kind {
            ErrorKind::Compile
            | ErrorKind::Parameters
            | ErrorKind::Thrown { .. }
            | ErrorKind::Unsettled => 400,
            ErrorKind::TimedOut => 408,
            ErrorKind::Stopped | ErrorKind::Engine => 500,
        }
    }

    /// The sub-status that the client gets.
    pub fn sub_status(&self) -> Option<u32> {
        match self.kind {
            ErrorKind::Compile => Some(SCRIPT_COMPILE_ERROR),
            ErrorKind::Thrown { number } => number,
            _ => None,
        }
    }

    /// The plain text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The JSON document that the service puts into the message of its answer.
    pub fn message(&self) -> String {
        wrapped(&self.text)
    }
}

/// `{"Errors":[text]}`
pub(crate) fn wrapped(text: &str) -> String {
    let errors = Value::Array(vec![Value::from(text)]);
    Value::Object(Object::from([("Errors", errors)])).to_text()
}

impl fmt::Display for ScriptError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl std::error::Error for ScriptError {}
