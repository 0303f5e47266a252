//! What can go wrong, and the one table of what the protocol calls it.
//!
//! Kinds follow what the caller does about an error, not where it arose. Status and sub-status
//! numbers also stand in batch results and in scripts, so the table is here and not in the gateway.

use std::fmt;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $status:literal, $substatus:literal, $code:literal;)+) => {
        /// The kinds of errors, sorted by status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind { $($(#[doc = $doc])+ $name,)+ }

        impl Kind {
            /// The HTTP status.
            pub fn status(self) -> u16 {
                match self { $(Kind::$name => $status,)+ }
            }

            /// The sub-status, 0 where the protocol has none.
            pub fn substatus(self) -> u32 {
                match self { $(Kind::$name => $substatus,)+ }
            }

            /// The protocol's name of the status.
            pub fn code(self) -> &'static str {
                match self { $(Kind::$name => $code,)+ }
            }
        }
    };
}

kinds! {
    /// The request is malformed or breaks a rule.
    BadRequest = 400, 0, "BadRequest";
    /// The document's partition key is not the one given with the request.
    PartitionKeyMismatch = 400, 1001, "BadRequest";
    /// A query that the server cannot answer as a whole; the client should ask for a plan.
    CrossPartitionQuery = 400, 1004, "BadRequest";
    /// The container was deleted and created again since the client looked.
    ContainerRidMismatch = 400, 1024, "BadRequest";
    /// A transaction across partitions cannot be read.
    TransactionMalformed = 400, 5405, "BadRequest";
    /// A transaction across partitions has too many operations.
    TransactionTooLong = 400, 5407, "BadRequest";
    /// A transaction across partitions has no token by which it could be known again.
    TransactionTokenMissing = 400, 5408, "BadRequest";
    /// A transaction across partitions has an operation that it cannot have.
    TransactionInvalid = 400, 5410, "BadRequest";
    /// The source of a script is not JavaScript, or not a function.
    ScriptCompile = 400, 65535, "BadRequest";
    /// The signature does not fit.
    Unauthorized = 401, 0, "Unauthorized";
    /// There is no authorization at all.
    AuthorizationMissing = 401, 5000, "Unauthorized";
    /// The authorization cannot be read.
    AuthorizationMalformed = 401, 5001, "Unauthorized";
    /// The caller is known and may not do this.
    Forbidden = 403, 0, "Forbidden";
    /// A logical partition has reached its size limit.
    PartitionFull = 403, 1014, "Forbidden";
    /// An AAD token cannot authorise control operations.
    ControlByAad = 403, 5300, "Forbidden";
    /// The thing addressed does not exist.
    NotFound = 404, 0, "NotFound";
    /// The session token is ahead of this server.
    SessionNotAvailable = 404, 1002, "NotFound";
    /// The database or container of the thing addressed does not exist.
    OwnerNotFound = 404, 1003, "NotFound";
    /// The path exists, the verb does not.
    MethodNotAllowed = 405, 0, "MethodNotAllowed";
    /// The work took longer than a request may.
    Timeout = 408, 0, "RequestTimeout";
    /// The name or id is taken.
    Conflict = 409, 0, "Conflict";
    /// A unique key is taken.
    UniqueConflict = 409, 3301, "Conflict";
    /// The partition key range named by the client no longer exists.
    RangeGone = 410, 1002, "Gone";
    /// The etag does not match.
    PreconditionFailed = 412, 0, "PreconditionFailed";
    /// The condition of a patch does not hold.
    PatchConditionFailed = 412, 1110, "PreconditionFailed";
    /// A document or request is over the size limit.
    TooLarge = 413, 0, "RequestEntityTooLarge";
    /// The answer of a batch would be over the size limit.
    BatchResponseTooLarge = 413, 3402, "RequestEntityTooLarge";
    /// A transaction writes more than one commit holds.
    TransactionTooLarge = 413, 3401, "RequestEntityTooLarge";
    /// Not attempted, or rolled back, because another operation of the batch failed.
    FailedDependency = 424, 0, "FailedDependency";
    /// The server has more work waiting than it can take.
    TooManyRequests = 429, 3200, "TooManyRequests";
    /// More scripts are waiting than the server can take.
    TooManyScripts = 429, 3084, "TooManyRequests";
    /// A transaction lost a race too often.
    RetryWith = 449, 0, "RetryWith";
    /// Prepared, and rolled back with the transaction across partitions that it was part of.
    RolledBack = 453, 5415, "DtcOperationRolledBack";
    /// A fault of the server.
    Internal = 500, 0, "InternalServerError";
    /// The server cannot serve until somebody looks after it.
    Unavailable = 503, 0, "ServiceUnavailable";
}

/// An error: its kind, and a message for the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// What the caller should make of it.
    pub kind: Kind,
    /// What was wrong, with the value.
    pub message: String,
    /// The number that a script gave its error, which clients see as the sub-status.
    pub number: Option<u32>,
    /// How long the client should wait, where that is known.
    pub wait_ms: Option<u64>,
}

impl Error {
    /// An error of any kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), number: None, wait_ms: None }
    }

    /// The sub-status: the script's number, or that of the kind; 0 for none.
    pub fn substatus(&self) -> u32 {
        self.number.unwrap_or_else(|| self.kind.substatus())
    }

    /// The request breaks a rule.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Kind::BadRequest, message)
    }

    /// The thing addressed does not exist.
    pub fn not_found() -> Self {
        Self::new(Kind::NotFound, NOT_FOUND)
    }

    /// The database or container of the thing addressed does not exist.
    pub fn owner_not_found() -> Self {
        Self::new(Kind::OwnerNotFound, NOT_FOUND)
    }

    /// The etag does not match.
    pub fn precondition_failed() -> Self {
        Self::new(
            Kind::PreconditionFailed,
            "One of the specified pre-condition is not met. Learn more: \
             https://aka.ms/CosmosDB/sql/errors/precondition-failed",
        )
    }

    /// How long the client should wait before it tries again, where waiting helps.
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self.kind {
            Kind::TooManyRequests | Kind::TooManyScripts => Some(self.wait_ms.unwrap_or(20)),
            _ => None,
        }
    }
}

/// The service's words for everything that does not exist.
const NOT_FOUND: &str = "Resource Not Found. Learn more: https://aka.ms/cosmosdb-tsg-not-found";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Self {
        match error {
            storage::Error::Busy => Error::new(
                Kind::TooManyRequests,
                "Request rate is large: more writes are waiting than the server can take. \
                 No changes were made. Please retry this request later.",
            ),
            // The container was deleted while the request was under way.
            storage::Error::NoRange(_) => Error::not_found(),
            storage::Error::Sealed(_) => {
                Error::new(Kind::RangeGone, "the partition key range is gone")
            }
            storage::Error::Conflict => {
                Error::new(Kind::RetryWith, "the transaction conflicts with another one")
            }
            storage::Error::TooLarge => Error::new(Kind::TooLarge, "Request size is too large"),
            other => {
                tracing::error!(error = %other, "storage failed");
                Error::new(Kind::Unavailable, format!("storage is not available: {other}"))
            }
        }
    }
}

impl From<crate::policy::PolicyError> for Error {
    fn from(error: crate::policy::PolicyError) -> Self {
        Error::bad_request(error.message)
    }
}

impl From<value::PatchError> for Error {
    fn from(error: value::PatchError) -> Self {
        Error::bad_request(error.0)
    }
}
