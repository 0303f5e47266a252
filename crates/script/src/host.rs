//! What a script asks of the database.
//!
//! All calls happen between the turns of the script, on the thread that runs it, in the order in
//! which the script made them. A host gathers the writes in a transaction; the caller commits it
//! when the run succeeds and drops it otherwise. To run a script again, give it a fresh host and the
//! same [`crate::Surroundings`].

use crate::Link;
use crate::error::wrapped;

/// The container that a script belongs to, as the script sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The link made of resource ids, with a slash at its end.
    pub self_link: String,
    /// The link made of names, without a slash at its end.
    pub alt_link: String,
    /// The paths of the partition key, as lists of names.
    pub partition_key: Vec<Vec<String>>,
    /// What the container holds, in the form of the quota header.
    pub quota_used: String,
    /// What the container may hold, in the form of the quota header.
    pub quota_max: String,
}

/// The database, as far as a script may touch it: the documents of one logical partition.
pub trait Host {
    /// The container of the script. Asked once, at the start.
    fn container(&self) -> Container;

    /// Reads a document. The transaction's own writes are seen.
    fn read(&mut self, link: Link<'_>, if_none_match: Option<&str>) -> Result<Read, HostError>;

    /// Answers a page of a query, or of all documents of the partition.
    fn query(&mut self, query: Query<'_>) -> Result<Page, HostError>;

    /// Creates a document, and answers it as stored.
    fn create(&mut self, body: &str) -> Result<String, HostError>;

    /// Creates or replaces a document; answers whether it was created, and the document as stored.
    fn upsert(&mut self, body: &str, if_match: Option<&str>) -> Result<(bool, String), HostError>;

    /// Replaces a document, and answers it as stored.
    fn replace(
        &mut self,
        link: Link<'_>,
        body: &str,
        if_match: Option<&str>,
    ) -> Result<String, HostError>;

    /// Deletes a document.
    fn delete(&mut self, link: Link<'_>, if_match: Option<&str>) -> Result<(), HostError>;

    /// Patches a document with `{"operations": […], "condition": …}`, and answers it as stored.
    fn patch(
        &mut self,
        link: Link<'_>,
        patch: &str,
        if_match: Option<&str>,
    ) -> Result<String, HostError>;
}

/// The answer to [`Host::read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The document as stored.
    Document(String),
    /// The document has the etag that the script named.
    NotModified,
}

/// What [`Host::query`] is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// `{"query": …, "parameters": […]}`; none for all documents.
    pub body: Option<&'a str>,
    /// How many rows the page may have at most; none leaves it to the host.
    pub rows_max: Option<u32>,
    /// What an earlier page gave to go on with.
    pub continuation: Option<&'a str>,
}

/// A page of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The rows, each a JSON text.
    pub rows: Vec<String>,
    /// Where the next page starts; none at the end.
    pub continuation: Option<String>,
}

/// Why the host does not do what the script asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostError {
    /// The script is told, in its callback, and may go on.
    Refused {
        /// The status, which becomes the number of the error.
        status: u16,
        /// The message: a JSON document, as a client would get it.
        message: String,
    },
    /// The script ends here, as the transaction cannot go on: it lost a race, or the storage failed.
    /// The host remembers why; the run answers [`crate::ErrorKind::Stopped`].
    Stop,
}

impl HostError {
    /// A refusal in plain words, or in those of a JSON document that says it already.
    pub fn refused(status: u16, text: &str) -> HostError {
        let message = if text.starts_with('{') { text.to_owned() } else { wrapped(text) };
        HostError::Refused { status, message }
    }
}
