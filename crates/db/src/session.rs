//! Session tokens: how far a client has seen each range.
//!
//! A token is `{range}:{version}#{lsn}` for each range, joined by commas. We always write version
//! -1 and no regions, which every SDK understands, and read the vector form with regions and the
//! old form without version as well. A token of a range that this container does not have is
//! ignored: it comes from before a split or from another life of the container.

use std::fmt;

use crate::{Error, Kind, Result};

/// Where a request was served: the range, and its version then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The partition key range, as clients name it.
    pub range: String,
    /// The version of the range that the answer shows.
    pub lsn: u64,
    /// The version at which the document was last written, where there is one document.
    pub document_lsn: Option<u64>,
}

impl Position {
    /// The session token that a client gets for this position.
    pub fn token(&self) -> String {
        format!("{}:-1#{}", self.range, self.lsn)
    }
}

/// What a client says it has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session(Vec<(String, u64)>);

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
            let lsn = match parts.next() {
                None => first,
                Some(lsn) => {
                    first.parse::<i64>().map_err(|_| invalid())?;
                    lsn
                }
            };
            for region in parts {
                let (region, local) = region.split_once('=').ok_or_else(invalid)?;
                region.parse::<u64>().map_err(|_| invalid())?;
                local.parse::<i64>().map_err(|_| invalid())?;
            }
            let lsn = lsn.parse::<i64>().map_err(|_| invalid())?;
            ranges.push((range.to_owned(), u64::try_from(lsn).unwrap_or(0)));
        }
        Ok(Self(ranges))
    }

    /// Refuses to serve a range that is behind what the client has seen.
    pub fn check(&self, range: &str, lsn: u64) -> Result<()> {
        let seen = self.0.iter().filter(|(id, _)| id == range).map(|(_, lsn)| *lsn).max();
        match seen {
            Some(seen) if seen > lsn => Err(Error::new(
                Kind::SessionNotAvailable,
                "The read session is not available for the input session token.",
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (range, lsn)) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            write!(f, "{range}:-1#{lsn}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_all_forms_are_read() {
        for (text, expected) in [
            ("0:-1#12", "0:-1#12"),
            ("0:0#42#1=42#2=40", "0:-1#42"),
            ("1:12", "1:-1#12"),
            ("0:-1#3,1:-1#4", "0:-1#3,1:-1#4"),
            ("0:-1#-1", "0:-1#0"),
        ] {
            assert_eq!(Session::parse(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "0", "0:", ":1", "0:x#1", "0:-1#x", "0:-1#1#2", "0:-1#1#a=1", "0:1,"] {
            let error = Session::parse(text).unwrap_err();
            assert_eq!(error.kind, Kind::BadRequest, "{text}");
        }
    }

    #[test]
    fn a_session_ahead_of_the_server_is_refused() {
        let session = Session::parse("0:-1#5,7:-1#9").unwrap();
        assert_eq!(session.check("0", 5), Ok(()));
        assert_eq!(session.check("0", 4).unwrap_err().kind, Kind::SessionNotAvailable);
        assert_eq!(session.check("1", 0), Ok(()));
    }
}
