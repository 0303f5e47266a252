//! Turns a value into bytes that sort as the value does.
//!
//! An index is a run of ordered bytes, so comparing two encodings must give the same answer as
//! comparing the two values: by type first (undefined, null, false, true, number, string, array,
//! object), then by content. An encoding starts with a type byte, never zero.
//!
//! - A number is eight bytes: binary64 with the sign bit flipped, all bits flipped when negative.
//!   -0 becomes 0, because queries cannot tell them apart.
//! - A string escapes the zero byte as `00 FF` and ends with `00 00`, so that a prefix sorts first.
//! - An array is its elements and a zero byte. So is an object, of its members by ascending name,
//!   each a string and a value: equal objects get equal bytes whatever their order.
//!
//! No encoding is a prefix of another, hence tuples are encoded by writing their parts one behind
//! the other.
//!
//! A *term* is what an index keeps of a value: the same bytes, but never long. A string is cut behind
//! [`TERM_STRING_BYTES`] and then ends with `00 01`, which is behind the string that ends there; of an
//! array or object only the type is left. Such a term is *inexact*: it stands for many values, and
//! terms still sort as their values do except that these tie.

use std::cmp::Ordering;
use std::fmt;

use crate::json::DEPTH_LIMIT;
use crate::{Number, Object, Value};

const END: u8 = 0;
/// The type byte of undefined.
pub const UNDEFINED: u8 = 1;
/// The type byte of null.
pub const NULL: u8 = 2;
/// The type byte of false; that of true follows, then those of the other types.
pub const FALSE: u8 = 3;
const TRUE: u8 = 4;
/// The type byte of numbers.
pub const NUMBER: u8 = 5;
/// The type byte of strings.
pub const STRING: u8 = 6;
/// The type byte of arrays: all scalars sort before it.
pub const ARRAY: u8 = 7;
const OBJECT: u8 = 8;
/// What stands behind the last zero byte of a string that was cut.
const CUT: u8 = 1;

/// A string is cut behind so many bytes where it becomes a term.
pub const TERM_STRING_BYTES: usize = 256;

/// Appends the encoding of a value; `None` is undefined.
pub fn encode(value: Option<&Value>, out: &mut Vec<u8>) {
    match value {
        None => out.push(UNDEFINED),
        Some(Value::Null) => out.push(NULL),
        Some(Value::Bool(false)) => out.push(FALSE),
        Some(Value::Bool(true)) => out.push(TRUE),
        Some(Value::Number(number)) => encode_f64(number.as_f64(), out),
        Some(Value::String(text)) => encode_str(text, out),
        Some(Value::Array(elements)) => {
            out.push(ARRAY);
            elements.iter().for_each(|element| encode(Some(element), out));
            out.push(END);
        }
        Some(Value::Object(object)) => encode_object(object, out),
    }
}

fn encode_object(object: &Object, out: &mut Vec<u8>) {
    out.push(OBJECT);
    for (name, value) in object.sorted() {
        encode_str(name, out);
        encode(Some(value), out);
    }
    out.push(END);
}

/// Appends the encoding of a number.
pub fn encode_f64(value: f64, out: &mut Vec<u8>) {
    out.push(NUMBER);
    out.extend_from_slice(&ordered_bits(value).to_be_bytes());
}

/// Appends the encoding of a string.
pub fn encode_str(text: &str, out: &mut Vec<u8>) {
    encode_str_start(text.as_bytes(), out);
    out.extend_from_slice(&[0, 0]);
}

/// Appends what the encodings of all strings that begin so have in common.
pub fn encode_str_start(start: &[u8], out: &mut Vec<u8>) {
    out.push(STRING);
    let mut rest = start;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        out.extend_from_slice(&rest[..=zero]);
        out.push(0xff);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
}

/// Appends the term of a value; `None` is undefined. Says whether it is exact.
pub fn encode_term(value: Option<&Value>, out: &mut Vec<u8>) -> bool {
    match value {
        Some(Value::String(text)) if text.len() > TERM_STRING_BYTES => {
            encode_str_start(&text.as_bytes()[..TERM_STRING_BYTES], out);
            out.extend_from_slice(&[0, CUT]);
            false
        }
        Some(Value::Array(_)) => {
            out.extend_from_slice(&[ARRAY, END]);
            false
        }
        Some(Value::Object(_)) => {
            out.extend_from_slice(&[OBJECT, END]);
            false
        }
        _ => {
            encode(value, out);
            true
        }
    }
}

/// A term at the front of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// How many bytes it takes.
    pub length: usize,
    /// Whether it stands for one value only.
    pub is_exact: bool,
}

/// Finds the end of the term at the front. With `is_inverted`, all its bytes are inverted, as they
/// are where the greatest comes first.
pub fn measure_term(bytes: &[u8], is_inverted: bool) -> Result<Term, OrderError> {
    let mask = if is_inverted { 0xff } else { 0 };
    let at = |offset: usize| match bytes.get(offset) {
        Some(byte) => Ok(byte ^ mask),
        None => Err(OrderError { offset }),
    };
    let (length, is_exact) = match at(0)? {
        UNDEFINED..=TRUE => (1, true),
        NUMBER => {
            at(8)?;
            (9, true)
        }
        STRING => {
            let mut offset = 1;
            loop {
                match at(offset)? {
                    0 => match at(offset + 1)? {
                        END => break (offset + 2, true),
                        CUT => break (offset + 2, false),
                        0xff => offset += 2,
                        _ => return Err(OrderError { offset }),
                    },
                    _ => offset += 1,
                }
            }
        }
        ARRAY | OBJECT if at(1)? == END => (2, false),
        _ => return Err(OrderError { offset: 0 }),
    };
    Ok(Term { length, is_exact })
}

const SIGN: u64 = 1 << 63;

/// Bits that compare as the numbers do. The two zeros are one, and so are all NaNs, above infinity.
pub(crate) fn ordered_bits(value: f64) -> u64 {
    let value = if value == 0.0 { 0.0 } else { value };
    let bits = if value.is_nan() { f64::NAN.to_bits() & !SIGN } else { value.to_bits() };
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

fn from_ordered_bits(bits: u64) -> f64 {
    f64::from_bits(if bits & SIGN == 0 { !bits } else { bits & !SIGN })
}

/// Bytes that [`encode`] did not write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderError {
    /// The byte that does not fit.
    pub offset: usize,
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ordered encoding is malformed at byte {}", self.offset)
    }
}

impl std::error::Error for OrderError {}

/// Reads the value at the front, and says how many bytes it took. Equal to what was encoded, but
/// for the spelling of numbers and the order of an object's members.
pub fn decode(bytes: &[u8]) -> Result<(Option<Value>, usize), OrderError> {
    let mut decoder = Decoder { bytes, offset: 0, depth_left: DEPTH_LIMIT };
    let value = decoder.value()?;
    Ok((value, decoder.offset))
}

struct Decoder<'a> {
    bytes: &'a [u8],
    offset: usize,
    depth_left: usize,
}

impl Decoder<'_> {
    fn malformed(&self) -> OrderError {
        OrderError { offset: self.offset }
    }

    fn value(&mut self) -> Result<Option<Value>, OrderError> {
        let kind = *self.bytes.get(self.offset).ok_or_else(|| self.malformed())?;
        if !(UNDEFINED..=OBJECT).contains(&kind) {
            return Err(self.malformed());
        }
        self.offset += 1;
        Ok(Some(match kind {
            UNDEFINED => return Ok(None),
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            NUMBER => Value::Number(self.number()?),
            STRING => Value::String(self.string()?),
            _ => self.nested(kind)?,
        }))
    }

    fn nested(&mut self, kind: u8) -> Result<Value, OrderError> {
        self.depth_left = self.depth_left.checked_sub(1).ok_or_else(|| self.malformed())?;
        let value = match kind {
            ARRAY => self.array()?,
            _ => self.object()?,
        };
        self.depth_left += 1;
        Ok(value)
    }

    fn number(&mut self) -> Result<Number, OrderError> {
        let bytes = self.bytes[self.offset..].first_chunk().ok_or_else(|| self.malformed())?;
        self.offset += bytes.len();
        Ok(Number::from(from_ordered_bits(u64::from_be_bytes(*bytes))))
    }

    fn string(&mut self) -> Result<String, OrderError> {
        let start = self.offset;
        let mut text = Vec::new();
        loop {
            match (self.bytes.get(self.offset), self.bytes.get(self.offset + 1)) {
                (Some(0), Some(0)) => break,
                (Some(0), Some(0xff)) => {
                    text.push(0);
                    self.offset += 2;
                }
                (Some(0) | None, _) => return Err(self.malformed()),
                (Some(&byte), _) => {
                    text.push(byte);
                    self.offset += 1;
                }
            }
        }
        self.offset += 2;
        String::from_utf8(text).map_err(|_| OrderError { offset: start })
    }

    fn array(&mut self) -> Result<Value, OrderError> {
        let mut elements = Vec::new();
        while !self.take_end() {
            elements.push(self.value()?.ok_or_else(|| self.malformed())?);
        }
        Ok(Value::Array(elements))
    }

    fn object(&mut self) -> Result<Value, OrderError> {
        let mut members: Vec<(String, Value)> = Vec::new();
        while !self.take_end() {
            if self.bytes.get(self.offset) != Some(&STRING) {
                return Err(self.malformed());
            }
            self.offset += 1;
            let name = self.string()?;
            // Ascending names, as they were written, are also distinct names.
            if members.last().is_some_and(|(previous, _)| *previous >= name) {
                return Err(self.malformed());
            }
            let value = self.value()?.ok_or_else(|| self.malformed())?;
            members.push((name, value));
        }
        Ok(Value::Object(Object::from_distinct(members)))
    }

    fn take_end(&mut self) -> bool {
        let at_end = self.bytes.get(self.offset) == Some(&END);
        self.offset += usize::from(at_end);
        at_end
    }
}

/// Compares two values, `None` being undefined. The same order as that of the encodings.
pub fn compare(left: Option<&Value>, right: Option<&Value>) -> Ordering {
    match (left, right) {
        (Some(Value::Number(left)), Some(Value::Number(right))) => {
            ordered_bits(left.as_f64()).cmp(&ordered_bits(right.as_f64()))
        }
        (Some(Value::String(left)), Some(Value::String(right))) => left.cmp(right),
        (Some(Value::Array(left)), Some(Value::Array(right))) => compare_arrays(left, right),
        (Some(Value::Object(left)), Some(Value::Object(right))) => compare_objects(left, right),
        _ => type_rank(left).cmp(&type_rank(right)),
    }
}

fn compare_arrays(left: &[Value], right: &[Value]) -> Ordering {
    for (left, right) in left.iter().zip(right) {
        let ordering = compare(Some(left), Some(right));
        if ordering.is_ne() {
            return ordering;
        }
    }
    left.len().cmp(&right.len())
}

fn compare_objects(left: &Object, right: &Object) -> Ordering {
    let (left, right) = (left.sorted(), right.sorted());
    for ((left_name, left_value), (right_name, right_value)) in left.iter().zip(&right) {
        let ordering = left_name.cmp(right_name);
        let ordering = ordering.then_with(|| compare(Some(left_value), Some(right_value)));
        if ordering.is_ne() {
            return ordering;
        }
    }
    left.len().cmp(&right.len())
}

fn type_rank(value: Option<&Value>) -> u8 {
    match value {
        None => UNDEFINED,
        Some(Value::Null) => NULL,
        Some(Value::Bool(false)) => FALSE,
        Some(Value::Bool(true)) => TRUE,
        Some(Value::Number(_)) => NUMBER,
        Some(Value::String(_)) => STRING,
        Some(Value::Array(_)) => ARRAY,
        Some(Value::Object(_)) => OBJECT,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples;

    fn bytes(value: Option<&Value>) -> Vec<u8> {
        let mut out = Vec::new();
        encode(value, &mut out);
        out
    }

    /// Ascending, by types and inside of them.
    #[test]
    fn order_of_values() {
        let texts = [
            "null",
            "false",
            "true",
            "-1e300",
            "-1",
            "-5e-324",
            "0",
            "5e-324",
            "1",
            "1.5",
            "1e300",
            r#""""#,
            r#""\u0000""#,
            r#""\u0000a""#,
            r#""\u0001""#,
            r#""10""#,
            r#""9""#,
            r#""Z""#,
            r#""a""#,
            r#""a\u0000""#,
            r#""aa""#,
            r#""é""#,
            r#""😀""#,
            "[]",
            "[null]",
            "[null,1]",
            "[[]]",
            "{}",
            r#"{"a":1}"#,
            r#"{"a":1,"b":1}"#,
            r#"{"a":2}"#,
            r#"{"b":null}"#,
        ];
        let values = texts.map(|text| Value::parse(text.as_bytes()).unwrap());
        let mut ascending: Vec<Option<&Value>> = vec![None];
        ascending.extend(values.iter().map(Some));
        for pair in ascending.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert!(bytes(pair[0]) < bytes(pair[1]), "{pair:?}");
        }
    }

    #[test]
    fn equal_values_have_equal_bytes() {
        for (left, right) in [
            ("0", "-0"),
            ("1", "1.0"),
            ("9007199254740993", "9007199254740992"),
            (r#"{"a":1,"b":[{}]}"#, r#"{"b":[{}],"a":1.0}"#),
        ] {
            let left = Value::parse(left.as_bytes()).unwrap();
            let right = Value::parse(right.as_bytes()).unwrap();
            assert_eq!(compare(Some(&left), Some(&right)), Ordering::Equal);
            assert_eq!(bytes(Some(&left)), bytes(Some(&right)));
        }
    }

    #[test]
    fn nan_and_infinities_have_a_place() {
        let ascending = [f64::NEG_INFINITY, f64::MIN, f64::MAX, f64::INFINITY, f64::NAN];
        for pair in ascending.windows(2) {
            assert!(ordered_bits(pair[0]) < ordered_bits(pair[1]));
        }
        assert_eq!(ordered_bits(f64::NAN), ordered_bits(-f64::NAN));
    }

    #[test]
    fn deep_bytes_are_refused() {
        assert!(decode(&[ARRAY; 1 << 20]).is_err());
    }

    /// Values with strings around the length at which terms are cut.
    fn long() -> impl Strategy<Value = Option<Value>> {
        let text = ("[a\u{0}]{0,3}", 250..260usize, "[ab\u{0}\u{1}é]{0,4}");
        let text = text.prop_map(|(start, length, end)| {
            let filled = start + &"x".repeat(length);
            Some(Value::from(filled[..length].to_owned() + &end))
        });
        prop_oneof![maybe(), text]
    }

    fn maybe() -> impl Strategy<Value = Option<Value>> {
        prop::option::weighted(0.9, samples::value())
    }

    proptest! {
        #[test]
        fn bytes_sort_as_values(left in maybe(), right in maybe()) {
            let ordering = compare(left.as_ref(), right.as_ref());
            prop_assert_eq!(bytes(left.as_ref()).cmp(&bytes(right.as_ref())), ordering);
            prop_assert_eq!(ordering.is_eq(), left == right);
            prop_assert_eq!(compare(right.as_ref(), left.as_ref()), ordering.reverse());
        }

        /// Tuples are their parts one behind the other.
        #[test]
        fn tuples_sort_part_by_part(left in [maybe(), maybe()], right in [maybe(), maybe()]) {
            let tuple = |parts: &[Option<Value>; 2]| {
                parts.iter().flat_map(|part| bytes(part.as_ref())).collect::<Vec<u8>>()
            };
            let ordering = compare(left[0].as_ref(), right[0].as_ref())
                .then(compare(left[1].as_ref(), right[1].as_ref()));
            prop_assert_eq!(tuple(&left).cmp(&tuple(&right)), ordering);
        }

        #[test]
        fn decodes_what_it_encodes(value in maybe(), tail: Vec<u8>) {
            let mut encoded = bytes(value.as_ref());
            let length = encoded.len();
            encoded.extend(tail);
            prop_assert_eq!(decode(&encoded), Ok((value, length)));
        }

        /// Terms keep the order of values, and their ends are found whatever follows.
        #[test]
        fn terms_sort_as_values(left in long(), right in long(), tail: Vec<u8>) {
            let term = |value: &Option<Value>| {
                let mut out = Vec::new();
                let is_exact = encode_term(value.as_ref(), &mut out);
                (out, is_exact)
            };
            let ((left_term, left_exact), (right_term, right_exact)) = (term(&left), term(&right));
            let ordering = compare(left.as_ref(), right.as_ref());
            if left_exact || right_exact || left_term != right_term {
                prop_assert_eq!(left_term.cmp(&right_term), ordering);
            }
            for inverted in [false, true] {
                let mut bytes = left_term.clone();
                if inverted {
                    bytes.iter_mut().for_each(|byte| *byte = !*byte);
                }
                bytes.extend(&tail);
                let expected = Term { length: left_term.len(), is_exact: left_exact };
                prop_assert_eq!(measure_term(&bytes, inverted), Ok(expected));
            }
        }

        #[test]
        fn measures_any_bytes(bytes in prop::collection::vec(prop_oneof![0..9u8, any::<u8>()], 0..40)) {
            if let Ok(term) = measure_term(&bytes, false) {
                prop_assert!(term.length <= bytes.len());
            }
        }

        #[test]
        fn answers_any_bytes(bytes in prop::collection::vec(prop_oneof![0..9u8, any::<u8>()], 0..40)) {
            if let Ok((value, length)) = decode(&bytes) {
                prop_assert!(length <= bytes.len());
                let mut again = Vec::new();
                encode(value.as_ref(), &mut again);
                let (same, _) = decode(&again).unwrap();
                prop_assert!(compare(same.as_ref(), value.as_ref()).is_eq());
            }
        }
    }
}
