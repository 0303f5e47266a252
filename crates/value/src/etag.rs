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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shape() {
        let etag = Etag::new(0xd986, 0x700, 0x5f3c_0a00);
        assert_eq!(etag.as_str(), "\"0000d986-0000-0000-0700-00005f3c0a00\"");
    }

    #[test]
    fn conditions() {
        let etag = Etag::from_text("\"a-b\"");
        for header in ["\"a-b\"", "a-b", "*", " \"a-b\" "] {
            assert!(etag.matches(header), "{header}");
        }
        for header in ["", "\"*\"", "\"A-B\"", "a", "\"\"", "\"a-b"] {
            assert!(!etag.matches(header), "{header}");
        }
        assert_eq!(Etag::from_text("a-b"), etag);
    }

    proptest! {
        #[test]
        fn distinct_writes_have_distinct_tags(
            left: (u64, u32), right: (u64, u32), ts: u64,
        ) {
            let tag = |(lsn, ordinal): (u64, u32)| Etag::new(lsn, ordinal, ts);
            prop_assert_eq!(left == right, tag(left) == tag(right));
            prop_assert_ne!(tag(left), tag((left.0, left.1 ^ (1 << (ts % 32)))));
        }
    }
}
