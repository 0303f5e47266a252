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
        let mut parser = Parser { text, bytes: text.as_bytes(), offset: 0, depth_left };
        parser.skip_whitespace();
        let value = parser.value()?;
        parser.skip_whitespace();
        if parser.offset < text.len() {
            return Err(parser.error("text after the end of the value"));
        }
        Ok(value)
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
    let mut copied = 0;
    for (offset, byte) in text.bytes().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[copied..offset]);
        copied = offset + 1;
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
    out.push_str(&text[copied..]);
}

const HEX_DIGITS: [char; 16] =
    ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    offset: usize,
    depth_left: usize,
}

impl<'a> Parser<'a> {
    #[cold]
    fn error(&self, message: &str) -> JsonError {
        JsonError { message: message.to_owned(), offset: self.offset }
    }

    #[cold]
    fn unexpected(&self, wanted: &str) -> JsonError {
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

    fn value(&mut self) -> Result<Value, JsonError> {
        match self.peek() {
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => Ok(Value::Number(self.number()?)),
            Some(b'{') => self.nested(Parser::object),
            Some(b'[') => self.nested(Parser::array),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> Result<Value, JsonError> {
        if !self.bytes[self.offset..].starts_with(word.as_bytes()) {
            return Err(self.unexpected("a value"));
        }
        self.offset += word.len();
        Ok(value)
    }

    fn nested(
        &mut self,
        read: fn(&mut Parser<'a>) -> Result<Value, JsonError>,
    ) -> Result<Value, JsonError> {
        if self.depth_left == 0 {
            return Err(self.error("arrays and objects are nested too deeply"));
        }
        self.depth_left -= 1;
        self.offset += 1;
        self.skip_whitespace();
        let value = read(self)?;
        self.depth_left += 1;
        Ok(value)
    }

    /// Behind `[` and whitespace.
    fn array(&mut self) -> Result<Value, JsonError> {
        let mut elements = Vec::new();
        if self.peek() == Some(b']') {
            self.offset += 1;
            return Ok(Value::Array(elements));
        }
        loop {
            elements.push(self.value()?);
            if self.at_end(b']', "',' or ']'")? {
                return Ok(Value::Array(elements));
            }
        }
    }

    /// Behind `{` and whitespace.
    fn object(&mut self) -> Result<Value, JsonError> {
        let mut members = Members::default();
        if self.peek() == Some(b'}') {
            self.offset += 1;
            return Ok(Value::Object(Object::new()));
        }
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
            let value = self.value()?;
            members.insert(name, value);
            if self.at_end(b'}', "',' or '}'")? {
                return Ok(Value::Object(Object::from_distinct(members.members)));
            }
        }
    }

    /// Behind an element: over a comma to the next one, or over the closing character.
    #[inline]
    fn at_end(&mut self, close: u8, wanted: &str) -> Result<bool, JsonError> {
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
    fn string(&mut self) -> Result<String, JsonError> {
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

    fn string_with_escapes(&mut self, start: usize) -> Result<String, JsonError> {
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
    fn escape(&mut self) -> Result<char, JsonError> {
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
    fn unicode_escape(&mut self) -> Result<char, JsonError> {
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

    fn code_unit(&self, offset: usize) -> Result<u32, JsonError> {
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
    fn number(&mut self) -> Result<Number, JsonError> {
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
    fn digits(&mut self, mantissa: &mut u64) -> Result<usize, JsonError> {
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
    fn exponent(&mut self) -> Result<(), JsonError> {
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
    mantissa % 10 != 0 && (fraction <= 6 || mantissa as f64 >= POWERS_OF_TEN[fraction - 6])
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
#[derive(Default)]
struct Members {
    members: Vec<(String, Value)>,
    offsets: HashMap<String, usize>,
}

impl Members {
    #[inline]
    fn insert(&mut self, name: String, value: Value) {
        if self.members.len() < LINEAR_MAX {
            match self.members.iter_mut().find(|(key, _)| *key == name) {
                Some(member) => member.1 = value,
                None => self.members.push((name, value)),
            }
            return;
        }
        self.insert_by_hash(name, value);
    }

    fn insert_by_hash(&mut self, name: String, value: Value) {
        if self.offsets.is_empty() {
            let names = self.members.iter().enumerate();
            self.offsets = names.map(|(at, (key, _))| (key.clone(), at)).collect();
        }
        match self.offsets.get(&name) {
            Some(&offset) => self.members[offset].1 = value,
            None => {
                self.offsets.insert(name.clone(), self.members.len());
                self.members.push((name, value));
            }
        }
    }
}
