//! Partition keys: the values by which documents belong together, and where they hash to.
//!
//! A key has one component per path of the container's definition; a key with fewer is a prefix,
//! which hierarchical containers can route. The hash of a key, its [`Epk`], is computed by clients
//! too and must agree bit by bit: version 2 is a 128-bit hash with the top two bits cleared, version
//! 1 is a 32-bit hash written as a number, followed by the key itself in a form that sorts.

use std::cmp::Ordering;
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};

use crate::order::ordered_bits;
use crate::{Epk, JsonError, Object, Path, Value, murmur3_x64_128, murmur3_x86_32, order};

/// One value of a partition key. Numbers are compared by value; -0 is 0.
#[derive(Clone, Debug)]
pub enum Component {
    /// The document has nothing at the path.
    Undefined,
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string.
    String(String),
}

impl Component {
    /// The component that a value at a path is. Arrays and objects are none.
    pub fn from_value(value: Option<&Value>) -> Option<Component> {
        match value {
            None => Some(Component::Undefined),
            Some(Value::Null) => Some(Component::Null),
            Some(Value::Bool(flag)) => Some(Component::Bool(*flag)),
            Some(Value::Number(number)) => Some(Component::Number(positive_zero(number.as_f64()))),
            Some(Value::String(text)) => Some(Component::String(text.clone())),
            Some(Value::Array(_) | Value::Object(_)) => None,
        }
    }

    /// The value that a document has at the path; undefined is `None`.
    pub fn to_value(&self) -> Option<Value> {
        match self {
            Component::Undefined => None,
            Component::Null => Some(Value::Null),
            Component::Bool(flag) => Some(Value::Bool(*flag)),
            Component::Number(number) => Some(Value::from(*number)),
            Component::String(text) => Some(Value::from(text.as_str())),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Component::Undefined => 0,
            Component::Null => 1,
            Component::Bool(false) => 2,
            Component::Bool(true) => 3,
            Component::Number(_) => 4,
            Component::String(_) => 5,
        }
    }
}

/// The order of the query language, which is also that of the encodings.
impl Ord for Component {
    fn cmp(&self, other: &Component) -> Ordering {
        match (self, other) {
            (Component::Number(left), Component::Number(right)) => {
                ordered_bits(*left).cmp(&ordered_bits(*right))
            }
            (Component::String(left), Component::String(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Component {
    fn partial_cmp(&self, other: &Component) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Component {
    fn eq(&self, other: &Component) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Component {}

impl Hash for Component {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rank().hash(state);
        match self {
            Component::Number(number) => ordered_bits(*number).hash(state),
            Component::String(text) => text.hash(state),
            _ => {}
        }
    }
}

/// The key of a logical partition, or a prefix of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey(pub Vec<Component>);

/// Why a text or bytes are no partition key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionKeyError(pub String);

impl fmt::Display for PartitionKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PartitionKeyError {}

impl From<JsonError> for PartitionKeyError {
    fn from(error: JsonError) -> PartitionKeyError {
        PartitionKeyError(format!("partition key is not JSON: {error}"))
    }
}

impl PartitionKey {
    /// Reads the form that requests carry: a JSON array of scalars, where `{}` is undefined. `[]`
    /// has no components.
    pub fn parse_header(text: &str) -> Result<PartitionKey, PartitionKeyError> {
        let Value::Array(elements) = Value::parse_with_depth(text.as_bytes(), 2)? else {
            return Err(PartitionKeyError("partition key must be a JSON array".to_owned()));
        };
        elements.iter().map(component_of_header).collect::<Result<_, _>>().map(PartitionKey)
    }

    /// Appends bytes that sort as the key does and end where it ends.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for component in &self.0 {
            match component {
                Component::Number(number) => order::encode_f64(*number, out),
                Component::String(text) => order::encode_str(text, out),
                _ => order::encode(component.to_value().as_ref(), out),
            }
        }
        out.push(0);
    }

    /// Reads what [`PartitionKey::encode`] wrote, and says how many bytes it took.
    pub fn decode(bytes: &[u8]) -> Result<(PartitionKey, usize), PartitionKeyError> {
        let malformed = || PartitionKeyError("encoded partition key is malformed".to_owned());
        let mut components = Vec::new();
        let mut offset = 0;
        while *bytes.get(offset).ok_or_else(malformed)? != 0 {
            let (value, length) = order::decode(&bytes[offset..]).map_err(|_| malformed())?;
            components.push(Component::from_value(value.as_ref()).ok_or_else(malformed)?);
            offset += length;
        }
        Ok((PartitionKey(components), offset + 1))
    }
}

fn component_of_header(element: &Value) -> Result<Component, PartitionKeyError> {
    match element {
        Value::Object(object) if object.is_empty() => Ok(Component::Undefined),
        _ => Component::from_value(Some(element)).ok_or_else(|| {
            PartitionKeyError("partition key cannot hold an array or an object".to_owned())
        }),
    }
}

/// The form that requests carry, in ASCII, because it travels in a header.
impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (position, component) in self.0.iter().enumerate() {
            if position > 0 {
                f.write_char(',')?;
            }
            match component.to_value() {
                None => f.write_str("{}")?,
                Some(value) => write_ascii(&value.to_text(), f)?,
            }
        }
        f.write_char(']')
    }
}

/// Writes JSON text with all that is not ASCII escaped; that can only be inside strings.
fn write_ascii(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for character in text.chars() {
        if character.is_ascii() && character != '\u{7f}' {
            f.write_char(character)?;
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(f, "\\u{unit:04x}")?;
        }
    }
    Ok(())
}

/// How a container's keys are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartitionKind {
    /// One hash over all components.
    Hash,
    /// One hash per component, so that a prefix of the key is a range.
    MultiHash,
    /// The components themselves, in order; containers of old.
    Range,
}

/// What a container's documents are partitioned by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionKeyDefinition {
    /// Where the components are found in a document.
    pub paths: Vec<Path>,
    /// How they are spread.
    pub kind: PartitionKind,
    /// The version of the hash, 1 or 2.
    pub version: u8,
    /// A container that was made without a key; the path is the service's own.
    pub system_key: bool,
}

impl PartitionKeyDefinition {
    /// The key of a document: what lies at each path, undefined where nothing does.
    ///
    /// An array or object at the path counts as nothing: the SDKs send the undefined key for such a
    /// document, and the service takes it.
    pub fn extract(&self, document: &Object) -> PartitionKey {
        let component = |path: &Path| {
            Component::from_value(path.resolve(document)).unwrap_or(Component::Undefined)
        };
        PartitionKey(self.paths.iter().map(component).collect())
    }

    /// Where a key hashes to. A prefix of a hierarchical key gives the prefix of its hashes; the
    /// empty key is the undefined partition of a system-key container and the minimum elsewhere.
    pub fn epk(&self, key: &PartitionKey) -> Epk {
        if key.0.is_empty() && self.system_key {
            return self.hash(&[Component::Undefined]);
        }
        self.hash(&key.0)
    }

    /// All that lies below a key or a prefix of one: from the first bound on, below the second.
    pub fn prefix_range(&self, key: &PartitionKey) -> (Epk, Epk) {
        let min = self.epk(key);
        let max = min.after_prefix();
        (min, max)
    }

    fn hash(&self, components: &[Component]) -> Epk {
        if components.is_empty() {
            return Epk::MIN;
        }
        Epk::from_bytes(match (self.kind, self.version) {
            (PartitionKind::Range, _) => comparable_form(components),
            (PartitionKind::MultiHash, _) => {
                components.chunks(1).flat_map(hash_version_2).collect()
            }
            (PartitionKind::Hash, 1) => hash_version_1(components),
            (PartitionKind::Hash, _) => hash_version_2(components).to_vec(),
        })
    }
}

fn hash_version_2(components: &[Component]) -> [u8; 16] {
    let mut bytes = Vec::new();
    components.iter().for_each(|component| write_hashed(component, 0xff, &mut bytes));
    let mut hash = murmur3_x64_128(&bytes, 0);
    hash.reverse();
    hash[0] &= 0x3f;
    hash
}

/// Strings count only up to here in version 1, in characters as clients count them.
const VERSION_1_CHARACTERS: usize = 100;

fn hash_version_1(components: &[Component]) -> Vec<u8> {
    let components: Vec<Component> = components.iter().map(truncated).collect();
    let mut bytes = Vec::new();
    components.iter().for_each(|component| write_hashed(component, 0x00, &mut bytes));
    let hash = murmur3_x86_32(&bytes, 0);
    let mut epk = Vec::new();
    write_comparable(&Component::Number(f64::from(hash)), &mut epk);
    epk.extend(comparable_form(&components));
    epk
}

fn truncated(component: &Component) -> Component {
    match component {
        Component::String(text) => {
            // Clients count UTF-16 code units, as their strings are made of those.
            let mut units = 0;
            let fits = |character: &char| {
                units += character.len_utf16();
                units <= VERSION_1_CHARACTERS
            };
            Component::String(text.chars().take_while(fits).collect())
        }
        _ => component.clone(),
    }
}

/// The bytes that are hashed.
fn write_hashed(component: &Component, string_suffix: u8, out: &mut Vec<u8>) {
    match component {
        Component::Undefined => out.push(0),
        Component::Null => out.push(1),
        Component::Bool(false) => out.push(2),
        Component::Bool(true) => out.push(3),
        Component::Number(number) => {
            out.push(5);
            out.extend_from_slice(&positive_zero(*number).to_le_bytes());
        }
        Component::String(text) => {
            out.push(8);
            out.extend_from_slice(text.as_bytes());
            out.push(string_suffix);
        }
    }
}

fn comparable_form(components: &[Component]) -> Vec<u8> {
    let mut bytes = Vec::new();
    components.iter().for_each(|component| write_comparable(component, &mut bytes));
    bytes
}

/// The form of version 1 that sorts as the component does.
fn write_comparable(component: &Component, out: &mut Vec<u8>) {
    match component {
        Component::Number(number) => {
            out.push(5);
            write_comparable_number(positive_zero(*number), out);
        }
        Component::String(text) => {
            out.push(8);
            write_comparable_string(text.as_bytes(), out);
        }
        _ => write_hashed(component, 0, out),
    }
}

/// Bits that sort, cut into a byte and then groups of seven; the low bit of each says whether more
/// follow, and zeros at the end are left out.
fn write_comparable_number(number: f64, out: &mut Vec<u8>) {
    const SIGN: u64 = 1 << 63;
    let bits = number.to_bits();
    let mut payload = if bits < SIGN { bits ^ SIGN } else { (!bits).wrapping_add(1) };
    out.push((payload >> 56) as u8);
    payload <<= 8;
    while payload != 0 {
        let group = (payload >> 56) as u8 & 0xfe;
        payload <<= 7;
        out.push(group | u8::from(payload != 0));
    }
}

fn write_comparable_string(text: &[u8], out: &mut Vec<u8>) {
    const BYTES_MAX: usize = 101;
    let is_short = text.len() < BYTES_MAX;
    let significant = &text[..text.len().min(BYTES_MAX)];
    out.extend(significant.iter().map(|byte| byte.saturating_add(1)));
    if is_short {
        out.push(0);
    }
}

fn positive_zero(number: f64) -> f64 {
    if number == 0.0 { 0.0 } else { number }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{EpkRange, samples};

    fn definition(paths: &[&str], kind: PartitionKind, version: u8) -> PartitionKeyDefinition {
        let paths = paths.iter().map(|path| Path::parse(path).unwrap()).collect();
        PartitionKeyDefinition { paths, kind, version, system_key: false }
    }

    fn key(header: &str) -> PartitionKey {
        PartitionKey::parse_header(header).unwrap()
    }

    fn epk(header: &str, kind: PartitionKind, version: u8) -> String {
        definition(&["/pk"], kind, version).epk(&key(header)).to_string()
    }

    /// The vectors that clients are tested with.
    #[test]
    fn golden_hashes() {
        for (header, version_2, version_1) in [
            (
                r#"["redmond"]"#,
                "22E342F38A486A088463DFF7838A5963",
                "05C1EFE313830C087366656E706F6500",
            ),
            (r#"[""]"#, "32E9366E637A71B4E710384B2F4970A0", "05C1CF33970FF80800"),
            (r#"["aa"]"#, "05033626483AE80D00E44FBD35362B19", "05C1C7B7270FE008626200"),
            ("[null]", "378867E4430E67857ACE5C908374FE16", "05C1ED45D7475601"),
            ("[true]", "0E711127C5B5A8E4726AC6DD306A3E59", "05C1D7C5A903D803"),
            ("[false]", "2FE1BE91E90A3439635E0E9E37361EF2", "05C1DB857D857C02"),
            ("[{}]", "11622DAA78F835834610ABE56EFF5CB5", "05C1D529E345DC00"),
            ("[5]", "19C08621B135968252FB34B4CF66F811", "05C1D9C1C5517C05C014"),
            ("[5.5]", "0E2EE47829D1AF775EEFB6540FD1D0ED", "05C1D7A771716C05C016"),
            (
                "[12313.1221]",
                "27E7ECA8F2EE3E53424DE8D5220631C6",
                "05C1ED154D592E05C0C90723F50FC925D8",
            ),
            ("[123456789]", "1F56D2538088EBA82CCF988F36E16760", "05C1D9E1A5311C05C19DB7CD8B40"),
        ] {
            assert_eq!(epk(header, PartitionKind::Hash, 2), version_2, "{header}");
            assert_eq!(epk(header, PartitionKind::Hash, 1), version_1, "{header}");
        }
        assert_eq!(
            epk(r#"["partitionKey"]"#, PartitionKind::Hash, 1),
            "05C1E1B3D9CD2608716273756A756A706F4C667A00"
        );
        assert_eq!(
            epk(r#"["redmond",50,5.5,true,false,null,"",12313.1221]"#, PartitionKind::Hash, 2),
            "1A5E512F591E980E07A6D8AD5BD5AB2F"
        );
        assert_eq!(
            epk(r#"["tenant1","user1"]"#, PartitionKind::MultiHash, 2),
            "0DAE0B8467B011E957BC0B8B0DEB5ACA236A5BE3329A7AD57D4B998E8602BD7B"
        );
    }

    #[test]
    fn the_empty_key() {
        assert_eq!(epk("[]", PartitionKind::Hash, 2), "");
        let mut system = definition(&["/_partitionKey"], PartitionKind::Hash, 2);
        system.system_key = true;
        assert_eq!(system.epk(&key("[]")), system.epk(&key("[{}]")));
    }

    #[test]
    fn negative_zero_is_zero() {
        for version in [1, 2] {
            assert_eq!(
                epk("[-0]", PartitionKind::Hash, version),
                epk("[0]", PartitionKind::Hash, version)
            );
        }
        let zero = PartitionKey(vec![Component::Number(0.0)]);
        let negative = PartitionKey(vec![Component::Number(-0.0)]);
        assert_eq!(zero, negative);
        let definition = definition(&["/pk"], PartitionKind::Hash, 2);
        assert_eq!(definition.epk(&zero), definition.epk(&negative));
    }

    #[test]
    fn version_1_sees_the_first_hundred_characters() {
        let long = |length: usize, last: char| format!(r#"["{}{last}"]"#, "x".repeat(length - 1));
        let hash = |header: String| epk(&header, PartitionKind::Hash, 1);
        assert_eq!(hash(long(101, 'a')), hash(long(101, 'b')));
        assert_ne!(hash(long(100, 'a')), hash(long(100, 'b')));
        // A hundred characters can be more than a hundred bytes: those are cut at 101, unterminated.
        let wide = format!(r#"["{}"]"#, "é".repeat(100));
        assert!(!hash(wide).ends_with("00"));
        assert!(hash(long(100, 'a')).ends_with("6200"));
    }

    #[test]
    fn headers() {
        for (text, expected) in [
            (r#"["a"]"#, r#"["a"]"#),
            ("[ 1.50 ]", "[1.5]"),
            ("[true, null]", "[true,null]"),
            ("[{}]", "[{}]"),
            ("[]", "[]"),
            (r#"["\u00e9","\ud83d\ude00","\u007f\n"]"#, r#"["\u00e9","\ud83d\ude00","\u007f\n"]"#),
            (r#"["é"]"#, r#"["\u00e9"]"#),
        ] {
            assert_eq!(key(text).to_string(), expected);
        }
        for text in ["", "1", "{}", "[[]]", "[{\"a\":1}]", "[\"a\"", "[1e400]", "[[[[[[[["] {
            assert!(PartitionKey::parse_header(text).is_err(), "{text}");
        }
    }

    #[test]
    fn extraction() {
        let definition = definition(&["/a/b", "/c"], PartitionKind::MultiHash, 2);
        let extract = |text: &str| {
            let document = Value::parse(text.as_bytes()).unwrap();
            definition.extract(document.as_object().unwrap()).to_string()
        };
        assert_eq!(extract(r#"{"a":{"b":1},"c":"x"}"#), r#"[1,"x"]"#);
        assert_eq!(extract(r#"{"a":{"b":null}}"#), "[null,{}]");
        assert_eq!(extract(r#"{"a":[{"b":1}],"c":false}"#), "[{},false]");
        assert_eq!(extract("{}"), "[{},{}]");
        assert_eq!(extract(r#"{"c":{}}"#), "[{},{}]");
        assert_eq!(extract(r#"{"a":{"b":[]},"c":1}"#), "[{},1]");
    }

    #[test]
    fn a_prefix_is_a_range() {
        let definition = definition(&["/a", "/b"], PartitionKind::MultiHash, 2);
        let (min, max) = definition.prefix_range(&key(r#"["tenant1"]"#));
        assert_eq!(min.to_string(), "0DAE0B8467B011E957BC0B8B0DEB5ACA");
        assert_eq!(max.to_string(), "0DAE0B8467B011E957BC0B8B0DEB5ACAFF");
        let range = EpkRange { min, max };
        assert!(range.contains(&definition.epk(&key(r#"["tenant1","user1"]"#))));
        assert!(range.contains(&definition.epk(&key(r#"["tenant1",{}]"#))));
        assert!(!range.contains(&definition.epk(&key(r#"["tenant2","user1"]"#))));
    }

    fn component() -> impl Strategy<Value = Component> {
        prop_oneof![
            Just(Component::Undefined),
            Just(Component::Null),
            any::<bool>().prop_map(Component::Bool),
            samples::number().prop_map(|number| Component::Number(number.as_f64())),
            samples::text().prop_map(Component::String),
        ]
    }

    fn any_key() -> impl Strategy<Value = PartitionKey> {
        prop::collection::vec(component(), 0..4).prop_map(PartitionKey)
    }

    fn bytes(key: &PartitionKey) -> Vec<u8> {
        let mut out = Vec::new();
        key.encode(&mut out);
        out
    }

    proptest! {
        #[test]
        fn bytes_sort_as_keys(left in any_key(), right in any_key()) {
            prop_assert_eq!(bytes(&left).cmp(&bytes(&right)), left.cmp(&right));
        }

        #[test]
        fn keys_come_back(key in any_key(), tail: Vec<u8>) {
            let mut encoded = bytes(&key);
            let length = encoded.len();
            encoded.extend(tail);
            prop_assert_eq!(PartitionKey::decode(&encoded), Ok((key.clone(), length)));
            let header = key.to_string();
            prop_assert!(header.is_ascii());
            prop_assert_eq!(PartitionKey::parse_header(&header), Ok(key));
        }

        #[test]
        fn answers_any_bytes(bytes: Vec<u8>, header: String) {
            let _ = PartitionKey::decode(&bytes);
            let _ = PartitionKey::parse_header(&header);
        }

        /// The number form of version 1 sorts as the numbers do.
        #[test]
        fn comparable_numbers_sort(left in samples::number(), right in samples::number()) {
            let form = |number: f64| comparable_form(&[Component::Number(number)]);
            let ordering = left.as_f64().partial_cmp(&right.as_f64()).unwrap();
            prop_assert_eq!(form(left.as_f64()).cmp(&form(right.as_f64())), ordering);
        }
    }
}
