//! Session tokens: how far a client has seen each range.
//!
//! A token is `{range}:{version}#{lsn}` for each range, joined by commas. The version is the number
//! of the container: some clients file tokens under the container's name and send those of a
//! container that was deleted to its successor, which must not take them for its own. There are no
//! regions. The vector form with regions, the version -1 and the old form without version are read
//! as well. A token of another version, or of a range that this container does not have, is ignored.

use crate::{Error, Kind, Result};

/// Where a request was served: the range, and its version then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The partition key range, as clients name it.
    pub range: String,
    /// Which container of this name it belongs to.
    pub version: u32,
    /// The version of the range that the answer shows.
    pub lsn: u64,
    /// The version at which the document was last written, where there is one document.
    pub document_lsn: Option<u64>,
}

impl Position {
    /// The session token that a client gets for this position.
    pub fn token(&self) -> String {
        format!("{}:{}#{}", self.range, self.version, self.lsn)
    }
}

/// What a client says it has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session(Vec<Seen>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    range: String,
    /// Nothing where the token does not tell one container from another.
    version: Option<i64>,
    lsn: u64,
}

impl Session {
    /// Reads a session token.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = || {
            Error::bad_request(format!("the session token '{text}' is invalid: expected '0:-1#12'"))
        };
        let mut ranges = Vec::new();
        for entry in text.split(',') {
            let (range, token) = entry.trim().split_once(':').ok_or_else(invalid)?;
            if range.is_empty() {
                return Err(invalid());
            }
            let mut parts = token.split('#');
            let first = parts.next().ok_or_else(invalid)?;
            let (version, lsn) = match parts.next() {
                None => (None, first),
                Some(lsn) => {
                    let version = first.parse::<i64>().map_err(|_| invalid())?;
                    (Some(version).filter(|version| *version >= 0), lsn)
                }
            };
            for region in parts {
                let (region, local) = region.split_once('=').ok_or_else(invalid)?;
                region.parse::<u64>().map_err(|_| invalid())?;
                local.parse::<i64>().map_err(|_| invalid())?;
            }
            let lsn = lsn.parse::<i64>().map_err(|_| invalid())?;
            let lsn = u64::try_from(lsn).unwrap_or(0);
            ranges.push(Seen { range: range.to_owned(), version, lsn });
        }
        Ok(Self(ranges))
    }

    /// Refuses to serve a range that is behind what the client has seen.
    pub(crate) fn check(&self, at: &Position) -> Result<()> {
        let ours = |seen: &&Seen| {
            seen.range == at.range && seen.version.is_none_or(|v| v == i64::from(at.version))
        };
        match self.0.iter().filter(ours).map(|seen| seen.lsn).max() {
            Some(seen) if seen > at.lsn => Err(Error::new(
                Kind::SessionNotAvailable,
                "The read session is not available for the input session token.",
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(range: &str, lsn: u64) -> Position {
        Position { range: range.to_owned(), version: 7, lsn, document_lsn: None }
    }

    #[test]
    fn tokens_of_all_forms_are_read() {
        for (text, range, lsn) in [
            ("0:7#12", "0", 12),
            ("0:-1#12", "0", 12),
            ("0:7#42#1=42#2=40", "0", 42),
            ("1:12", "1", 12),
            ("0:-1#3,1:7#4", "1", 4),
            ("0:-1#-1", "0", 0),
        ] {
            let session = Session::parse(text).unwrap();
            assert_eq!(session.check(&at(range, lsn)), Ok(()), "{text}");
            if lsn > 0 {
                let behind = session.check(&at(range, lsn - 1)).unwrap_err();
                assert_eq!(behind.kind, Kind::SessionNotAvailable, "{text}");
            }
        }
        assert_eq!(at("3", 12).token(), "3:7#12");
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "0", "0:", ":1", "0:x#1", "0:-1#x", "0:-1#1#2", "0:-1#1#a=1", "0:1,"] {
            let error = Session::parse(text).unwrap_err();
            assert_eq!(error.kind, Kind::BadRequest, "{text}");
        }
    }

    #[test]
    fn tokens_of_other_ranges_and_containers_are_ignored() {
        let session = Session::parse("7:-1#9,0:6#9,0:8#9").unwrap();
        assert_eq!(session.check(&at("0", 1)), Ok(()));
    }
}
