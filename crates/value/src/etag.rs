//! Entity tags: the opaque version of a resource, by which clients notice that somebody else wrote.

use std::fmt;

/// An entity tag, with the quotes that belong to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Etag(String);

impl Etag {
    /// The tag of what commit `lsn` wrote at place `ordinal`, at second `ts`. Shaped like a GUID, as
    /// clients know it. No two pairs of commit and place share a tag.
    pub fn new(lsn: u64, ordinal: u32, ts: u64) -> Etag {
        let low = lsn as u32;
        let middle = (lsn >> 32) as u16;
        let high = (lsn >> 48) as u16;
        let place = ordinal as u16;
        let rest = u64::from(ordinal >> 16) << 32 | u64::from(ts as u32);
        Etag(format!("\"{low:08x}-{middle:04x}-{high:04x}-{place:04x}-{rest:012x}\""))
    }

    /// A tag that was stored, with or without its quotes.
    pub fn from_text(text: &str) -> Etag {
        Etag(format!("\"{}\"", unquoted(text)))
    }

    /// The tag with its quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Does a condition of a request name this tag? `*` names any; quotes may be missing.
    pub fn matches(&self, header: &str) -> bool {
        let header = header.trim();
        header == "*" || unquoted(header) == unquoted(&self.0)
    }
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
