//! Continuation tokens: where a feed or query goes on.
//!
//! A token holds the place of the last document that was looked at, so it means the same on every
//! engine, after a restart and after a split. It is signed: a token that was changed, or that
//! belongs to another container or query, is refused instead of giving a wrong page.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::{digest, hmac};
use value::ContainerRid;

use crate::{Error, Result};

/// Where to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The last document that was looked at.
    pub(crate) place: Vec<u8>,
    /// How many of its rows the client already has; all of them when nothing is left of it.
    pub(crate) rows_taken: Option<u32>,
}

/// What a token belongs to.
pub(crate) struct Subject<'a> {
    pub(crate) container: ContainerRid,
    /// The query text and parameters; empty for a feed.
    pub(crate) query: &'a str,
}

const VERSION: u8 = 1;
const TAG: usize = 16;

impl Cursor {
    pub(crate) fn sign(&self, key: &hmac::Key, subject: &Subject<'_>) -> String {
        let mut token = vec![0; TAG];
        token.push(VERSION);
        token.extend_from_slice(&self.rows_taken.map_or(0, |rows| rows + 1).to_be_bytes());
        token.extend_from_slice(&self.place);
        let tag = tag(key, subject, &token[TAG..]);
        token[..TAG].copy_from_slice(&tag.as_ref()[..TAG]);
        BASE64.encode(token)
    }

    pub(crate) fn verify(text: &str, key: &hmac::Key, subject: &Subject<'_>) -> Result<Self> {
        let invalid = || {
            Error::bad_request(
                "the continuation token is invalid: it was changed, or it belongs to another \
                 container or query",
            )
        };
        let token = BASE64.decode(text).map_err(|_| invalid())?;
        if token.len() < TAG + 5 || token[TAG] != VERSION {
            return Err(invalid());
        }
        let expected = tag(key, subject, &token[TAG..]);
        if !constant_time_eq(&expected.as_ref()[..TAG], &token[..TAG]) {
            return Err(invalid());
        }
        let rows = token[TAG + 1..TAG + 5].try_into().map_err(|_| invalid())?;
        let rows = u32::from_be_bytes(rows);
        Ok(Self { place: token[TAG + 5..].to_vec(), rows_taken: rows.checked_sub(1) })
    }
}

fn tag(key: &hmac::Key, subject: &Subject<'_>, payload: &[u8]) -> hmac::Tag {
    let query = digest::digest(&digest::SHA256, subject.query.as_bytes());
    let mut context = hmac::Context::with_key(key);
    context.update(b"continuation");
    context.update(subject.container.to_string().as_bytes());
    context.update(query.as_ref());
    context.update(payload);
    context.sign()
}

/// Compares without telling by its time where two texts differ.
fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use value::DatabaseRid;

    use super::*;

    #[test]
    fn tokens_are_bound_to_their_container_and_query() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"secret");
        let container = ContainerRid::new(DatabaseRid(1), 2);
        let subject = Subject { container, query: "SELECT * FROM c" };
        let cursor = Cursor { place: b"place".to_vec(), rows_taken: Some(3) };
        let token = cursor.sign(&key, &subject);
        assert_eq!(Cursor::verify(&token, &key, &subject), Ok(cursor));

        let other_query = Subject { container, query: "SELECT 1" };
        assert!(Cursor::verify(&token, &key, &other_query).is_err());
        let container = ContainerRid::new(DatabaseRid(1), 3);
        let other_container = Subject { container, query: "SELECT * FROM c" };
        assert!(Cursor::verify(&token, &key, &other_container).is_err());
        for at in 0..token.len() {
            let mut tampered = token.clone().into_bytes();
            tampered[at] = if tampered[at] == b'A' { b'B' } else { b'A' };
            let tampered = String::from_utf8(tampered).unwrap();
            assert!(Cursor::verify(&tampered, &key, &subject).is_err(), "byte {at}");
        }
        for junk in ["", "x", "!!!!", "AAAA", "{\"token\":1}"] {
            assert!(Cursor::verify(junk, &key, &subject).is_err(), "{junk}");
        }
    }
}
