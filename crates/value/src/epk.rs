//! Effective partition keys: where a logical partition lies in its container.
//!
//! A partition key is hashed to a string of bytes; a container's partitions are spread over the
//! interval from the empty string to `FF`, and that interval is cut into ranges. Clients write the
//! bytes as upper-case hexadecimal text, whose order is the order of the bytes.

use std::fmt;

/// An effective partition key, or a bound between two.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epk(Vec<u8>);

impl Epk {
    /// The lower bound of everything, `""`.
    pub const MIN: Epk = Epk(Vec::new());

    /// The upper bound of everything, `"FF"`.
    pub fn max() -> Epk {
        Epk(vec![0xff])
    }

    /// The key of these bytes.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Epk {
        Epk(bytes.into())
    }

    /// The bytes; they sort as the key does.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads hexadecimal text, in either case.
    pub fn parse(text: &str) -> Result<Epk, EpkError> {
        let malformed = || EpkError(text.chars().take(100).collect());
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if !rest.is_empty() {
            return Err(malformed());
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let byte = |pair: &[u8; 2]| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
        pairs.iter().map(byte).collect::<Option<Vec<u8>>>().map(Epk).ok_or_else(malformed)
    }

    /// The first bound behind this key and everything that it is a prefix of.
    pub fn after_prefix(&self) -> Epk {
        let mut bytes = self.0.clone();
        bytes.push(0xff);
        Epk(bytes)
    }
}

impl fmt::Display for Epk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

/// A text that is no effective partition key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpkError(String);

impl fmt::Display for EpkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "effective partition key must be pairs of hexadecimal digits: {:?}", self.0)
    }
}

impl std::error::Error for EpkError {}

/// The keys from `min` on and below `max`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EpkRange {
    /// The first key inside.
    pub min: Epk,
    /// The first key outside.
    pub max: Epk,
}

impl EpkRange {
    /// All keys.
    pub fn full() -> EpkRange {
        EpkRange { min: Epk::MIN, max: Epk::max() }
    }

    /// Does the key lie inside?
    pub fn contains(&self, epk: &Epk) -> bool {
        self.min <= *epk && *epk < self.max
    }

    /// Is there no key inside?
    pub fn is_empty(&self) -> bool {
        self.min >= self.max
    }

    /// Is there a key inside both?
    pub fn intersects(&self, other: &EpkRange) -> bool {
        self.intersect(other).is_some()
    }

    /// The keys inside both, if there are any.
    pub fn intersect(&self, other: &EpkRange) -> Option<EpkRange> {
        let min = self.min.clone().max(other.min.clone());
        let max = self.max.clone().min(other.max.clone());
        (min < max).then_some(EpkRange { min, max })
    }
}

/// Cuts the space of version-2 hashes, whose top two bits are clear, into `count` ranges of even
/// width. Together they cover everything: the first begins at `""`, the last ends at `"FF"`.
pub fn even_split(count: usize) -> Vec<EpkRange> {
    let width = (u128::MAX >> 2) / count.max(1) as u128;
    let bound = |position: usize| match position {
        0 => Epk::MIN,
        _ if position >= count => Epk::max(),
        _ => Epk((width * position as u128).to_be_bytes().to_vec()),
    };
    (0..count.max(1)).map(|at| EpkRange { min: bound(at), max: bound(at + 1) }).collect()
}
