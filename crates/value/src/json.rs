//! JSON text to [`Value`] and back.
//!
//! The parser is strict (RFC 8259, nothing more) and ours, because no library at hand keeps the
//! spelling of numbers, resolves duplicate names as JavaScript does and bounds the nesting at once.
//! It descends recursively; the depth limit is what bounds its stack. The text is checked to be
//! UTF-8 once, in front, so that what follows looks at bytes and cuts strings at ASCII characters.

use std::collections::HashMap;
use std::fmt;

use crate::object::LINEAR_MAX;
use crate::{DEPTH_MAX, Number, Object, Value};

/// Beyond this no caller may ask for, so that no caller can lose its stack.
pub(crate) const DEPTH_LIMIT: usize = 1024;

/// Why a text is not JSON, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// What is wrong, lowercase, without a full stop.
    pub message: String,
    /// The byte it is wrong at.
    pub offset: usize,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at byte {}", self.message, self.offset)
    }
}

impl std::error::Error for JsonError {}

impl Value {
    /// Reads one JSON text. A little more nesting than a document may have is accepted, because
    /// requests wrap documents in envelopes.
    pub fn parse(text: &[u8]) -> Result<Value, JsonError> {
        Value::parse_with_depth(text, DEPTH_MAX + 16)
    }

    /// Reads one JSON text of at most `depth_max` levels of arrays and objects (and never more than
    /// 1,024, which is what the stack is sure to hold).
    pub fn parse_with_depth(text: &[u8], depth_max: usize) -> Result<Value, JsonError> {
        let text = std::str::from_utf8(text).map_err(|error| JsonError {
            message: "text is not UTF-8".to_owned(),
            offset: error.valid_up_to(),
        })?;
        let depth_left = depth_max.min(DEPTH_LIMIT);
        let bytes = text.as_bytes();
        Parser { text, bytes, offset: 0, depth_left }.document().map_err(|error| *error)
    }

    /// Appends the JSON text, without whitespace.
    pub fn write(&self, out: &mut String) {
        match self {
            Value::Null => out.push_str("null"),
            Value::Bool(true) => out.push_str("true"),
            Value::Bool(false) => out.push_str("false"),
            Value::Number(number) => number.write(out),
            Value::String(text) => write_string(text, out),
            Value::Array(elements) => write_array(elements, out),
            Value::Object(object) => write_object(object, out),
        }
    }
}

fn write_array(elements: &[Value], out: &mut String) {
    out.push('[');
    for (position, element) in elements.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        element.write(out);
    }
    out.push(']');
}

fn write_object(object: &Object, out: &mut String) {
    out.push('{');
    for (position, (name, value)) in object.iter().enumerate() {
        if position > 0 {
            out.push(',');
        }
        write_string(name, out);
        out.push(':');
        value.write(out);
    }
    out.push('}');
}

/// Appends a JSON string with its quotes, escaping only what must be: quotes, backslashes and
/// control characters.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    write_escaped(text, out);
    out.push('"');
}

/// The inside of a JSON string.
pub(crate) fn write_escaped(text: &str, out: &mut String) {
    let bytes = text.as_bytes();
    let mut copied = 0;
    loop {
        let stop = plain_end(bytes, copied);
        out.push_str(&text[copied..stop]);
        let Some(&byte) = bytes.get(stop) else {
            return;
        };
        copied = stop + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            _ => {
                out.push_str("\\u00");
                out.push(HEX_DIGITS[usize::from(byte >> 4)]);
                out.push(HEX_DIGITS[usize::from(byte & 15)]);
            }
        }
    }
}

const HEX_DIGITS: [char; 16] =
    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    offset: usize,
    depth_left: usize,
}

/// Boxed, because a result as wide as an error costs more to pass than most values to parse. For the
/// same reason values are written into the slot they will live in.
type Parsed<T> = Result<T, Box<JsonError>>;

impl Parser<'_> {
    #[cold]
    fn error(&self, message: &str) -> Box<JsonError> {
        Box::new(JsonError { message: message.to_owned(), offset: self.offset })
    }

    #[cold]
    fn unexpected(&self, wanted: &str) -> Box<JsonError> {
        match self.text.get(self.offset..).and_then(|rest| rest.chars().next()) {
            None => self.error(&format!("text ends where {wanted} should be")),
            Some(found) => self.error(&format!("expected {wanted}, found {found:?}")),
        }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.offset).copied()
    }

    #[inline]
    fn skip_whitespace(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.offset += 1;
        }
    }

    fn document(&mut self) -> Parsed<Value> {
        let mut value = Value::Null;
        self.skip_whitespace();
        self.value(&mut value)?;
        self.skip_whitespace();
        if self.offset < self.text.len() {
            return Err(self.error("text after the end of the value"));
        }
        Ok(value)
    }

    fn value(&mut self, slot: &mut Value) -> Parsed<()> {
        match self.peek() {
            Some(b'"') => *slot = Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => *slot = Value::Number(self.number()?),
            Some(b'{') => {
                self.descend()?;
                *slot = Value::Object(self.object()?);
                self.depth_left += 1;
            }
            Some(b'[') => {
                self.descend()?;
                *slot = Value::Array(self.array()?);
                self.depth_left += 1;
            }
            Some(b't') => {
                self.literal("true")?;
                *slot = Value::Bool(true);
            }
            Some(b'f') => {
                self.literal("false")?;
                *slot = Value::Bool(false);
            }
            Some(b'n') => {
                self.literal("null")?;
                *slot = Value::Null;
            }
            _ => return Err(self.unexpected("a value")),
        }
        Ok(())
    }

    fn literal(&mut self, word: &str) -> Parsed<()> {
        if !self.bytes[self.offset..].starts_with(word.as_bytes()) {
            return Err(self.unexpected("a value"));
        }
        self.offset += word.len();
        Ok(())
    }

    /// Over an opening bracket or brace.
    fn descend(&mut self) -> Parsed<()> {
        if self.depth_left == 0 {
            return Err(self.error("arrays and objects are nested too deeply"));
        }
        self.depth_left -= 1;
        self.offset += 1;
        self.skip_whitespace();
        Ok(())
    }

    /// Behind `[` and whitespace.
    fn array(&mut self) -> Parsed<Vec<Value>> {
        let mut elements = Vec::new();
        if self.peek() == Some(b']') {
            self.offset += 1;
            return Ok(elements);
        }
        loop {
            self.value(elements.push_mut(Value::Null))?;
            if self.at_end(b']', "',' or ']'")? {
                return Ok(elements);
            }
        }
    }

    /// Behind `{` and whitespace.
    fn object(&mut self) -> Parsed<Object> {
        if self.peek() == Some(b'}') {
            self.offset += 1;
            return Ok(Object::new());
        }
        let mut members = Members { members: Vec::with_capacity(8), offsets: None };
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a name in quotes"));
            }
            let name = self.string()?;
            self.skip_whitespace();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("':'"));
            }
            self.offset += 1;
            self.skip_whitespace();
            self.value(members.slot(name))?;
            if self.at_end(b'}', "',' or '}'")? {
                return Ok(Object::from_distinct(members.members));
            }
        }
    }

    /// Behind an element: over a comma to the next one, or over the closing character.
    #[inline]
    fn at_end(&mut self, close: u8, wanted: &str) -> Parsed<bool> {
        self.skip_whitespace();
        match self.peek() {
            Some(b',') => {
                self.offset += 1;
                self.skip_whitespace();
                Ok(false)
            }
            Some(byte) if byte == close => {
                self.offset += 1;
                Ok(true)
            }
            _ => Err(self.unexpected(wanted)),
        }
    }

    /// At the opening quote.
    fn string(&mut self) -> Parsed<String> {
        self.offset += 1;
        let start = self.offset;
        self.offset = plain_end(self.bytes, start);
        if self.peek() == Some(b'"') {
            let text = &self.text[start..self.offset];
            self.offset += 1;
            return Ok(text.to_owned());
        }
        self.string_with_escapes(start)
    }

    fn string_with_escapes(&mut self, start: usize) -> Parsed<String> {
        let mut string = self.text[start..self.offset].to_owned();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.offset += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
                Some(byte) if byte < b' ' => {
                    return Err(self.error("control character in a string, escape it"));
                }
                Some(_) => {
                    let start = self.offset;
                    self.offset = plain_end(self.bytes, start);
                    string.push_str(&self.text[start..self.offset]);
                }
                None => return Err(self.error("text ends inside a string")),
            }
        }
    }

    /// At a backslash.
    fn escape(&mut self) -> Parsed<char> {
        let character = match self.bytes.get(self.offset + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.error("unknown escape in a string")),
        };
        self.offset += 2;
        Ok(character)
    }

    /// At `\uXXXX`; takes the second half of a surrogate pair along.
    fn unicode_escape(&mut self) -> Parsed<char> {
        let first = self.code_unit(self.offset)?;
        let (code, length) = match first {
            0xd800..=0xdbff => {
                let second = self.code_unit(self.offset + 6).unwrap_or(0);
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(self.error("lone surrogate in a string"));
                }
                (0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), 12)
            }
            code => (code, 6),
        };
        let character =
            char::from_u32(code).ok_or_else(|| self.error("lone surrogate in a string"))?;
        self.offset += length;
        Ok(character)
    }

    fn code_unit(&self, offset: usize) -> Parsed<u32> {
        let malformed = || self.error("\\u must be followed by four hexadecimal digits");
        let escape = self.bytes.get(offset..offset + 6).ok_or_else(malformed)?;
        if !escape.starts_with(b"\\u") {
            return Err(malformed());
        }
        escape[2..].iter().try_fold(0, |code, digit| {
            let digit = char::from(*digit).to_digit(16).ok_or_else(malformed)?;
            Ok(code << 4 | digit)
        })
    }

    /// At a minus sign or a digit.
    fn number(&mut self) -> Parsed<Number> {
        let start = self.offset;
        let negative = self.peek() == Some(b'-');
        if negative {
            self.offset += 1;
        }
        // The digits without the point; exact as long as there are at most 19 of them.
        let mut mantissa: u64 = 0;
        let whole = self.digits(&mut mantissa)?;
        if whole > 1 && self.bytes[self.offset - whole] == b'0' {
            self.offset -= whole;
            return Err(self.error("number with a leading zero"));
        }
        let mut fraction = 0;
        if self.peek() == Some(b'.') {
            self.offset += 1;
            fraction = self.digits(&mut mantissa)?;
        }
        let has_exponent = matches!(self.peek(), Some(b'e' | b'E'));
        if has_exponent {
            self.exponent()?;
        }
        let text = &self.text[start..self.offset];
        // Decimals of up to 15 digits are told apart by binary64, so the shortest text that reads
        // back as the value is this one, and one exact division gives the value.
        let is_short = !has_exponent && whole + fraction <= 15;
        if is_short && is_canonical(mantissa, fraction, negative) {
            let magnitude = mantissa as f64 / POWERS_OF_TEN[fraction];
            return Ok(Number::canonical(if negative { -magnitude } else { magnitude }));
        }
        let value: f64 = text.parse().expect("a JSON number is a Rust number");
        if value.is_infinite() {
            self.offset = start;
            return Err(self.error("number is too large"));
        }
        Ok(Number::spelled(value, text))
    }

    /// Reads at least one digit, gives their count.
    #[inline]
    fn digits(&mut self, mantissa: &mut u64) -> Parsed<usize> {
        let start = self.offset;
        while let Some(byte @ b'0'..=b'9') = self.peek() {
            *mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
            self.offset += 1;
        }
        if self.offset == start {
            return Err(self.unexpected("a digit"));
        }
        Ok(self.offset - start)
    }

    /// At `e` or `E`.
    fn exponent(&mut self) -> Parsed<()> {
        self.offset += 1;
        if let Some(b'+' | b'-') = self.peek() {
            self.offset += 1;
        }
        self.digits(&mut 0)?;
        Ok(())
    }
}

const POWERS_OF_TEN: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Is a number of at most 15 digits without an exponent spelled as JavaScript would? It must not end
/// in a zero behind the point, nor be so small that JavaScript would use an exponent.
#[inline]
fn is_canonical(mantissa: u64, fraction: usize, negative: bool) -> bool {
    if fraction == 0 {
        return !(negative && mantissa == 0);
    }
    !mantissa.is_multiple_of(10)
        && (fraction <= 6 || mantissa as f64 >= POWERS_OF_TEN[fraction - 6])
}

/// Where the run of characters that stand for themselves in a string ends: at a quote, a backslash,
/// a control character or the end of the text. Looks at eight bytes at a time.
#[inline]
fn plain_end(bytes: &[u8], start: usize) -> usize {
    let mut offset = start;
    while let Some(chunk) = bytes[offset..].first_chunk::<8>() {
        let stops = stop_bits(u64::from_le_bytes(*chunk));
        if stops != 0 {
            return offset + stops.trailing_zeros() as usize / 8;
        }
        offset += 8;
    }
    while let Some(&byte) = bytes.get(offset) {
        if byte < b' ' || byte == b'"' || byte == b'\\' {
            break;
        }
        offset += 1;
    }
    offset
}

/// Sets the top bit of each byte that is a quote, a backslash or a control character. Bits above the
/// lowest one set may be wrong (a borrow runs upwards), the lowest is always right.
#[inline]
fn stop_bits(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let below_space = word.wrapping_sub(ONES * b' ' as u64) & !word;
    let is_quote = quote.wrapping_sub(ONES) & !quote;
    let is_backslash = backslash.wrapping_sub(ONES) & !backslash;
    (below_space | is_quote | is_backslash) & HIGHS
}

/// The members read so far. Looks at each for a duplicate while they are few, asks a hash beyond.
struct Members {
    members: Vec<(String, Value)>,
    offsets: Option<HashMap<String, usize>>,
}

impl Members {
    /// Where the value of this name goes: behind the others, or over the value it had before.
    #[inline]
    fn slot(&mut self, name: String) -> &mut Value {
        let known = if self.members.len() < LINEAR_MAX {
            self.members.iter().position(|(key, _)| *key == name)
        } else {
            self.position_by_hash(&name)
        };
        match known {
            Some(offset) => &mut self.members[offset].1,
            None => &mut self.members.push_mut((name, Value::Null)).1,
        }
    }

    /// Where this name is; notes where it will be, when it is not there.
    fn position_by_hash(&mut self, name: &str) -> Option<usize> {
        let offsets = self.offsets.get_or_insert_with(|| {
            let names = self.members.iter().enumerate();
            names.map(|(at, (key, _))| (key.clone(), at)).collect()
        });
        let known = offsets.get(name).copied();
        if known.is_none() {
            offsets.insert(name.to_owned(), self.members.len());
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(Value::parse(text.as_bytes()).unwrap().to_text(), expected, "{text}");
    }

    #[track_caller]
    fn check_error(text: impl AsRef<[u8]>, expected: &str) {
        let error = Value::parse(text.as_ref()).expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn numbers_keep_their_spelling() {
        for text in [
            "0",
            "-0",
            "-0.0",
            "1.0",
            "1E2",
            "1e2",
            "1e+2",
            "100",
            "-1",
            "0.5",
            "0.10",
            "0.000001",
            "0.0000001",
            "1e-7",
            "123456789012345",
            "1234567890123456",
            "12345678901234567890.5",
            "0.123456789012345678",
            "9007199254740993",
            "18446744073709551615",
            "18446744073709551616",
            "-9223372036854775809",
            "1e-400",
            "1.7976931348623157e308",
        ] {
            check(text, text);
        }
    }

    #[test]
    fn numbers_have_the_right_value() {
        for (text, expected) in [
            ("-0", -0.0),
            ("0.1", 0.1),
            ("0.3", 0.3),
            ("123456789.012345", 123456789.012345),
            ("9007199254740993", 9007199254740992.0),
            ("1e-400", 0.0),
            ("2.2250738585072011e-308", 2.225073858507201e-308),
            ("179769313486231570000e288", f64::MAX),
        ] {
            let value = Value::parse(text.as_bytes()).unwrap().as_f64().unwrap();
            assert_eq!(value.to_bits(), expected.to_bits(), "{text}");
        }
    }

    #[test]
    fn duplicate_names_keep_the_first_place_and_the_last_value() {
        check(r#"{"a":1,"b":2,"a":3}"#, r#"{"a":3,"b":2}"#);
        check(r#"{"a":1,"\u0061":2}"#, r#"{"a":2}"#);
        let many: Vec<String> = (0..100).map(|at| format!(r#""{}":{at}"#, at % 40)).collect();
        let kept: Vec<String> = (0..40)
            .map(|at| format!(r#""{at}":{}"#, if at < 20 { at + 80 } else { at + 40 }))
            .collect();
        check(&format!("{{{}}}", many.join(",")), &format!("{{{}}}", kept.join(",")));
    }

    #[test]
    fn strings() {
        check(r#""\u0041\n\/\"\\\b\f\r\t""#, r#""A\n/\"\\\b\f\r\t""#);
        check(r#""\u0000\u001f\u007f""#, "\"\\u0000\\u001f\u{7f}\"");
        check(r#""\ud83d\ude00 é""#, r#""😀 é""#);
        check(r#""\uFFFF""#, "\"\u{ffff}\"");
        check(
            r#""a long string without any escapes, and é""#,
            r#""a long string without any escapes, and é""#,
        );
        check(
            r#""a long string, then\nan escape and more text""#,
            r#""a long string, then\nan escape and more text""#,
        );
    }

    #[test]
    fn whitespace() {
        check(
            " \t\r\n{ \"a\" : [ 1 , { } , [ ] ] , \"b\" : true }\n",
            r#"{"a":[1,{},[]],"b":true}"#,
        );
    }

    #[test]
    fn errors() {
        check_error("", "text ends where a value should be, at byte 0");
        check_error(" ", "text ends where a value should be, at byte 1");
        check_error("\u{feff}1", "expected a value, found '\\u{feff}', at byte 0");
        check_error("1 1", "text after the end of the value, at byte 2");
        check_error("01", "number with a leading zero, at byte 0");
        check_error("-01", "number with a leading zero, at byte 1");
        check_error("NaN", "expected a value, found 'N', at byte 0");
        check_error("-Infinity", "expected a digit, found 'I', at byte 1");
        check_error("nul", "expected a value, found 'n', at byte 0");
        check_error("+1", "expected a value, found '+', at byte 0");
        check_error("1.", "text ends where a digit should be, at byte 2");
        check_error(".1", "expected a value, found '.', at byte 0");
        check_error("1e", "text ends where a digit should be, at byte 2");
        check_error("[1e400]", "number is too large, at byte 1");
        check_error("-1e400", "number is too large, at byte 0");
        check_error("[1,2,]", "expected a value, found ']', at byte 5");
        check_error("[1 2]", "expected ',' or ']', found '2', at byte 3");
        check_error("[1", "text ends where ',' or ']' should be, at byte 2");
        check_error(r#"{"a":1,}"#, "expected a name in quotes, found '}', at byte 7");
        check_error(r#"{"a" 1}"#, "expected ':', found '1', at byte 5");
        check_error("{a:1}", "expected a name in quotes, found 'a', at byte 1");
        check_error("'a'", "expected a value, found '\\'', at byte 0");
        check_error("\"a\tb\"", "control character in a string, escape it, at byte 2");
        check_error("\"a", "text ends inside a string, at byte 2");
        check_error(r#""\x""#, "unknown escape in a string, at byte 1");
        check_error(r#""\"#, "unknown escape in a string, at byte 1");
        check_error(r#""\u12g4""#, "\\u must be followed by four hexadecimal digits, at byte 1");
        check_error(r#""\u12"#, "\\u must be followed by four hexadecimal digits, at byte 1");
        check_error(r#""\ud800""#, "lone surrogate in a string, at byte 1");
        check_error(r#""\ud800\u0041""#, "lone surrogate in a string, at byte 1");
        check_error(r#""\ud800x""#, "lone surrogate in a string, at byte 1");
        check_error(r#""\udc00""#, "lone surrogate in a string, at byte 1");
        check_error(b"\"a\xff\"", "text is not UTF-8, at byte 2");
        check_error(b"\"\xed\xa0\x80\"", "text is not UTF-8, at byte 1");
    }

    #[test]
    fn nesting() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let deepest = DEPTH_MAX + 16;
        assert_eq!(Value::parse(nested(deepest).as_bytes()).unwrap().depth(), deepest);
        let message = format!("arrays and objects are nested too deeply, at byte {deepest}");
        check_error(nested(deepest + 1), &message);
        assert!(Value::parse_with_depth(nested(2).as_bytes(), 1).is_err());
        assert!(Value::parse_with_depth(b"1", 0).is_ok());
        // Siblings do not add up.
        assert!(Value::parse_with_depth(b"[[],[],{\"a\":[]}]", 3).is_ok());
        let hostile = "[{\"a\":".repeat(1 << 20);
        assert!(Value::parse_with_depth(hostile.as_bytes(), usize::MAX).is_err());
        let longest = nested(DEPTH_LIMIT);
        assert!(Value::parse_with_depth(longest.as_bytes(), usize::MAX).is_ok());
    }

    /// Exact at every place in the eight bytes and at the end of the text.
    #[test]
    fn stops_are_found_everywhere() {
        for stop in (0..0x20).chain([b'"', b'\\']) {
            for place in 0..20 {
                for neighbour in [b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xff] {
                    let mut bytes = vec![neighbour; 20];
                    assert_eq!(plain_end(&bytes, 0), 20);
                    bytes[place] = stop;
                    assert_eq!(plain_end(&bytes, 0), place, "{stop:#x} {place} {neighbour:#x}");
                }
            }
        }
    }

    fn same_text(left: &Value, right: &Value) -> bool {
        left.to_text() == right.to_text()
    }

    proptest! {
        #[test]
        fn parses_what_it_prints(value in samples::value()) {
            let parsed = Value::parse(value.to_text().as_bytes()).unwrap();
            prop_assert_eq!(&parsed, &value);
            prop_assert!(same_text(&parsed, &value));
        }

        /// The short way to a number gives what the long way gives.
        #[test]
        fn any_decimal_keeps_value_and_spelling(text in "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?") {
            let Value::Number(number) = Value::parse(text.as_bytes()).unwrap() else {
                panic!("{text} is a number");
            };
            prop_assert_eq!(number.text(), &text[..]);
            let value: f64 = text.parse().unwrap();
            prop_assert_eq!(number.as_f64().to_bits(), value.to_bits());
            let canonical = Number::from(value);
            if canonical.text() == text && value.abs() < 9e15 {
                prop_assert!(matches!(number.text(), std::borrow::Cow::Owned(_)), "kept {}", text);
            }
        }

        #[test]
        fn answers_any_bytes(bytes: Vec<u8>) {
            if let Err(error) = Value::parse(&bytes) {
                prop_assert!(error.offset <= bytes.len());
            }
        }

        /// Texts that are nearly right.
        #[test]
        fn answers_damaged_text(value in samples::value(), place: prop::sample::Index, byte: u8) {
            let mut bytes = value.to_text().into_bytes();
            let place = place.index(bytes.len());
            bytes[place] = byte;
            if let Ok(value) = Value::parse(&bytes) {
                prop_assert_eq!(Value::parse(value.to_text().as_bytes()), Ok(value));
            }
        }
    }
}
