//! The account's keys.
//!
//! Two keys may read and write, two may only read; two of each kind so that one can be replaced
//! while the other is in use. A key is prepared for signing once, when it is configured, and never
//! shown: its `Debug` form says nothing.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// The key that every emulator of the service is known by. It protects nothing.
pub const EMULATOR_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// One account key.
#[derive(Clone)]
pub struct Key {
    signing: hmac::Key,
    /// What the emulator's test tokens carry instead of a signature: the text of the key itself.
    text: String,
}

/// Why a text is not an account key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidKey(pub String);

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidKey {}

/// Shorter keys could be guessed.
const KEY_BYTES_MIN: usize = 16;

impl Key {
    /// Reads a key from its base64 text.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        // The text of a refused key does not go into the message: it may be almost right.
        let text = text.trim();
        let bytes = STANDARD
            .decode(text)
            .map_err(|_| InvalidKey("an account key must be base64 text".into()))?;
        if bytes.len() < KEY_BYTES_MIN {
            return Err(InvalidKey(format!(
                "an account key must have at least {KEY_BYTES_MIN} bytes (the service's have 64): \
                 this one has {}",
                bytes.len()
            )));
        }
        Ok(Self { signing: hmac::Key::new(hmac::HMAC_SHA256, &bytes), text: text.to_owned() })
    }

    /// Whether this key made the signature of the payload; takes the same time either way.
    pub fn signed(&self, payload: &[u8], signature: &[u8]) -> bool {
        hmac::verify(&self.signing, payload, signature).is_ok()
    }

    /// The signature of a payload, as clients make it.
    pub fn sign(&self, payload: &[u8]) -> String {
        STANDARD.encode(hmac::sign(&self.signing, payload))
    }

    /// Whether the text is this key's; takes the same time either way.
    pub(crate) fn is(&self, text: &[u8]) -> bool {
        // Comparing two signatures made with the same key compares the texts without telling how
        // much of them was equal.
        self.signed(text, hmac::sign(&self.signing, self.text.as_bytes()).as_ref())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// All keys of the account.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Reads and writes.
    pub primary: Key,
    /// Reads and writes.
    pub secondary: Option<Key>,
    /// Only reads.
    pub primary_read_only: Option<Key>,
    /// Only reads.
    pub secondary_read_only: Option<Key>,
}

impl Keys {
    /// An account with one key.
    pub fn single(primary: Key) -> Self {
        Self { primary, secondary: None, primary_read_only: None, secondary_read_only: None }
    }

    /// The keys that may write.
    pub(crate) fn read_write(&self) -> impl Iterator<Item = &Key> {
        [Some(&self.primary), self.secondary.as_ref()].into_iter().flatten()
    }

    /// The keys that may only read.
    pub(crate) fn read_only(&self) -> impl Iterator<Item = &Key> {
        [self.primary_read_only.as_ref(), self.secondary_read_only.as_ref()].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_cannot_sign_are_refused() {
        assert!(Key::parse("not base64!").is_err());
        assert!(Key::parse("").is_err());
        assert!(Key::parse("c2hvcnQ=").unwrap_err().0.contains("at least 16 bytes"));
        assert!(Key::parse(EMULATOR_KEY).is_ok());
    }

    #[test]
    fn a_key_does_not_show_itself() {
        let keys = Keys::single(Key::parse(EMULATOR_KEY).unwrap());
        assert!(!format!("{keys:?}").contains("C2y6"));
    }

    #[test]
    fn a_key_knows_its_own_text() {
        let key = Key::parse(EMULATOR_KEY).unwrap();
        assert!(key.is(EMULATOR_KEY.as_bytes()));
        assert!(!key.is(b"C2y6"));
    }
}
