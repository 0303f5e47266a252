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

    /// Where the key lies in the space of version-2 hashes.
    fn position(&self) -> u128 {
        let mut bytes = [0; 16];
        let given = &self.0[..self.0.len().min(16)];
        bytes[..given.len()].copy_from_slice(given);
        u128::from_be_bytes(bytes).min(u128::MAX >> 2)
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

    /// A key that cuts the range into two of even width, as [`even_split`] measures it; nothing where
    /// the range is too narrow.
    pub fn middle(&self) -> Option<Epk> {
        let middle = self.min.position() + self.width() / 2;
        let middle = Epk(middle.to_be_bytes().to_vec());
        (self.min < middle && middle < self.max).then_some(middle)
    }

    /// How much of the space of version-2 hashes lies inside.
    pub fn width(&self) -> u128 {
        self.max.position().saturating_sub(self.min.position())
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn epk(text: &str) -> Epk {
        Epk::parse(text).unwrap()
    }

    fn range(min: &str, max: &str) -> EpkRange {
        EpkRange { min: epk(min), max: epk(max) }
    }

    #[test]
    fn text() {
        assert_eq!(epk("0a1BfF").to_string(), "0A1BFF");
        assert_eq!(Epk::MIN.to_string(), "");
        assert_eq!(Epk::max().to_string(), "FF");
        for text in ["0", "0G", "0x", "é", "+1", " 1"] {
            assert!(Epk::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges() {
        let lower = range("", "1F");
        let upper = range("1F", "FF");
        assert!(lower.contains(&epk("")) && lower.contains(&epk("1EFF")));
        assert!(!lower.contains(&epk("1F")) && upper.contains(&epk("1F")));
        assert!(!lower.intersects(&upper));
        assert!(EpkRange::full().intersects(&upper));
        assert_eq!(range("05", "30").intersect(&upper), Some(range("1F", "30")));
        assert!(range("05", "05").is_empty());
    }

    #[test]
    fn splits() {
        assert_eq!(even_split(1), [EpkRange::full()]);
        let half = "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF";
        assert_eq!(even_split(2), [range("", half), range(half, "FF")]);
        assert_eq!(even_split(5)[0].max, epk("0CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC"));
    }

    proptest! {
        #[test]
        fn a_split_covers_everything_once(count in 1..200usize, hash in any::<u128>()) {
            let ranges = even_split(count);
            prop_assert_eq!(ranges.len(), count);
            prop_assert_eq!(&ranges[0].min, &Epk::MIN);
            prop_assert_eq!(&ranges[count - 1].max, &Epk::max());
            for pair in ranges.windows(2) {
                prop_assert_eq!(&pair[0].max, &pair[1].min);
            }
            let epk = Epk::from_bytes((hash >> 2).to_be_bytes());
            prop_assert_eq!(ranges.iter().filter(|range| range.contains(&epk)).count(), 1);
        }

        #[test]
        fn text_sorts_as_the_bytes(left: Vec<u8>, right: Vec<u8>) {
            let (left, right) = (Epk::from_bytes(left), Epk::from_bytes(right));
            prop_assert_eq!(left.cmp(&right), left.to_string().cmp(&right.to_string()));
            prop_assert_eq!(Epk::parse(&left.to_string()), Ok(left));
        }
    }
}
