//! JSON in the binary form that .NET and Rust clients send.
//!
//! The Rust SDK sends every document so. A value is one marker byte and what follows from it: small
//! integers and well-known names are the marker alone, strings may be packed or refer to an earlier
//! one, arrays and objects say how many bytes they take. We only read it, and answer in text, which
//! every client accepts.
//!
//! The bytes are turned into JSON text, which then goes the way of every other body: so depth,
//! duplicate names and the rest are judged in one place. A reference can repeat a long string many
//! times, so the text is bounded.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use value::{DEPTH_MAX, Number, Value, write_string};

/// The first byte of binary JSON.
pub const FIRST_BYTE: u8 = 0x80;

/// More than any document may have, as text.
const TEXT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Envelopes wrap documents, as in [`Value::parse`].
const NESTING_MAX: usize = DEPTH_MAX + 16;

/// Why bytes are not binary JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// What was found.
    pub message: String,
    /// Where, in bytes from the start.
    pub offset: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at byte {}", self.message, self.offset)
    }
}

impl std::error::Error for Malformed {}

/// Reads a value.
pub fn decode(bytes: &[u8]) -> Result<Value, Malformed> {
    let mut reader = Reader { bytes, at: 0, text: String::with_capacity(bytes.len() * 2) };
    if reader.byte()? != FIRST_BYTE {
        return Err(reader.error("binary JSON starts with 0x80"));
    }
    reader.value(0)?;
    if reader.at != bytes.len() {
        return Err(reader.error("there is more after the value"));
    }
    Value::parse(reader.text.as_bytes())
        .map_err(|error| Malformed { message: error.message, offset: bytes.len() })
}

/// The names that have a marker of their own, from `0x20` on.
const SYSTEM_STRINGS: [&str; 32] = [
    "$s",
    "$t",
    "$v",
    "_attachments",
    "_etag",
    "_rid",
    "_self",
    "_ts",
    "attachments/",
    "coordinates",
    "geometry",
    "GeometryCollection",
    "id",
    "url",
    "Value",
    "label",
    "LineString",
    "link",
    "MultiLineString",
    "MultiPoint",
    "MultiPolygon",
    "name",
    "Name",
    "Type",
    "Point",
    "Polygon",
    "properties",
    "type",
    "value",
    "Feature",
    "FeatureCollection",
    "_id",
];

/// The characters of strings packed two to a byte.
const LOWER_HEX: &[u8; 16] = b"0123456789abcdef";
const UPPER_HEX: &[u8; 16] = b"0123456789ABCDEF";
const DATE_TIME: &[u8; 16] = b" 0123456789:-.TZ";

/// How many bytes a length takes.
#[derive(Clone, Copy)]
enum Width {
    One,
    Two,
    Four,
}

/// How a container says where it ends.
#[derive(Clone, Copy)]
enum Extent {
    /// After so many members.
    Members(usize),
    /// After so many bytes.
    Bytes(Width),
    /// After so many bytes, which are also so many members.
    Counted(Width),
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    text: String,
}

impl<'a> Reader<'a> {
    fn error(&self, message: impl Into<String>) -> Malformed {
        Malformed { message: message.into(), offset: self.at }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.error(format!("{count} bytes expected, fewer left")))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut fixed = [0; N];
        fixed.copy_from_slice(self.take(N)?);
        Ok(fixed)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.fixed::<1>()?[0])
    }

    fn length(&mut self, width: Width) -> Result<usize, Malformed> {
        Ok(match width {
            Width::One => usize::from(self.byte()?),
            Width::Two => usize::from(u16::from_le_bytes(self.fixed()?)),
            Width::Four => u32::from_le_bytes(self.fixed()?) as usize,
        })
    }

    fn value(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth > NESTING_MAX {
            return Err(self.error(format!("nested deeper than {NESTING_MAX} levels")));
        }
        if self.text.len() > TEXT_BYTES_MAX {
            return Err(self.error("the value is too large as text"));
        }
        let marker = self.byte()?;
        if let Some((is_object, extent)) = container(marker) {
            return if is_object { self.object(extent, depth) } else { self.array(extent, depth) };
        }
        match marker {
            0xD0 => self.text.push_str("null"),
            0xD1 => self.text.push_str("false"),
            0xD2 => self.text.push_str("true"),
            0xF0 => self.number_array(Width::One)?,
            0xF1 => self.number_array(Width::Two)?,
            _ => match self.number(marker)? {
                Some(number) => self.text.push_str(&number.text()),
                None => self.string(marker)?,
            },
        }
        Ok(())
    }

    fn array(&mut self, extent: Extent, depth: usize) -> Result<(), Malformed> {
        self.text.push('[');
        self.members(extent, |reader| reader.value(depth + 1))?;
        self.text.push(']');
        Ok(())
    }

    fn object(&mut self, extent: Extent, depth: usize) -> Result<(), Malformed> {
        self.text.push('{');
        self.members(extent, |reader| {
            let marker = reader.byte()?;
            reader.string(marker)?;
            reader.text.push(':');
            reader.value(depth + 1)
        })?;
        self.text.push('}');
        Ok(())
    }

    /// Reads members until the container ends, which must be exactly between two of them.
    fn members(
        &mut self,
        extent: Extent,
        mut member: impl FnMut(&mut Self) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let (end, count) = match extent {
            Extent::Members(count) => (None, Some(count)),
            Extent::Bytes(width) => {
                let length = self.length(width)?;
                (Some(self.at.saturating_add(length)), None)
            }
            Extent::Counted(width) => {
                let (length, count) = (self.length(width)?, self.length(width)?);
                (Some(self.at.saturating_add(length)), Some(count))
            }
        };
        let mut read = 0;
        while end.is_some_and(|end| self.at < end) || (end.is_none() && Some(read) < count) {
            if read > 0 {
                self.text.push(',');
            }
            member(self)?;
            read += 1;
        }
        if end.is_some_and(|end| self.at != end) || count.is_some_and(|count| count != read) {
            return Err(self.error("a container does not end where it says"));
        }
        Ok(())
    }

    /// A number, if the marker is one's.
    fn number(&mut self, marker: u8) -> Result<Option<Number>, Malformed> {
        let number = match marker {
            0x00..=0x1F => Number::from(u32::from(marker)),
            0xC7 => Number::from(u64::from_le_bytes(self.fixed()?)),
            0xC8 | 0xD7 => Number::from(u32::from(self.byte()?)),
            0xD8 => Number::from(i32::from(i8::from_le_bytes(self.fixed()?))),
            0xC9 | 0xD9 => Number::from(i32::from(i16::from_le_bytes(self.fixed()?))),
            0xCA | 0xDA => Number::from(i32::from_le_bytes(self.fixed()?)),
            0xCB | 0xDB => Number::from(i64::from_le_bytes(self.fixed()?)),
            0xDC => Number::from(u32::from_le_bytes(self.fixed()?)),
            0xCC | 0xCE => self.float(f64::from_le_bytes)?,
            0xCD => self.float(|bytes: [u8; 4]| f64::from(f32::from_le_bytes(bytes)))?,
            _ => return Ok(None),
        };
        Ok(Some(number))
    }

    fn float<const N: usize>(&mut self, read: fn([u8; N]) -> f64) -> Result<Number, Malformed> {
        let float = read(self.fixed()?);
        if !float.is_finite() {
            return Err(self.error("a number is not finite"));
        }
        Ok(Number::from(float))
    }

    /// An array of numbers of one type, which is said once.
    fn number_array(&mut self, width: Width) -> Result<(), Malformed> {
        let marker = self.byte()?;
        if marker < 0x20 {
            return Err(self.error("numbers of an array need a type of their own"));
        }
        let count = self.length(width)?;
        self.text.push('[');
        for at in 0..count {
            if at > 0 {
                self.text.push(',');
            }
            let number = self.number(marker)?;
            let number =
                number.ok_or_else(|| self.error("an array of numbers of no number type"))?;
            self.text.push_str(&number.text());
        }
        self.text.push(']');
        Ok(())
    }

    fn string(&mut self, marker: u8) -> Result<(), Malformed> {
        let target = match marker {
            0xC3 => Some(usize::from(self.byte()?)),
            0xC4 => Some(self.length(Width::Two)?),
            0xC5 => {
                let [low, middle, high] = self.fixed()?;
                Some(u32::from_le_bytes([low, middle, high, 0]) as usize)
            }
            0xC6 => Some(self.length(Width::Four)?),
            _ => None,
        };
        let Some(target) = target else { return self.plain_string(marker) };
        // A reference leads back to a string that is none itself, so it ends.
        let after = self.at;
        if target == 0 || target >= after {
            return Err(self.error("a string refers to one that does not come before it"));
        }
        self.at = target;
        let marker = self.byte()?;
        self.plain_string(marker)?;
        self.at = after;
        Ok(())
    }

    fn plain_string(&mut self, marker: u8) -> Result<(), Malformed> {
        match marker {
            0x20..=0x3F => self.write(SYSTEM_STRINGS[usize::from(marker - 0x20)]),
            0x40..=0x67 => {
                return Err(self.error("a string from a dictionary that was not sent"));
            }
            0x71 => self.base64(Width::One, false)?,
            0x72 => self.base64(Width::Two, false)?,
            0x73 => self.base64(Width::One, true)?,
            0x74 => self.base64(Width::Two, true)?,
            0x75 => self.guid(LOWER_HEX, "")?,
            0x76 => self.guid(UPPER_HEX, "")?,
            0x77 => self.guid(LOWER_HEX, "\"")?,
            0x78 => self.by_table(LOWER_HEX)?,
            0x79 => self.by_table(UPPER_HEX)?,
            0x7A => self.by_table(DATE_TIME)?,
            0x7B => self.packed(4, Width::One)?,
            0x7C => self.packed(5, Width::One)?,
            0x7D => self.packed(6, Width::One)?,
            0x7E => self.packed(7, Width::One)?,
            0x7F => self.packed(7, Width::Two)?,
            0x80..=0xBF => self.utf8(usize::from(marker & 0x7F))?,
            0xC0 => self.counted(Width::One)?,
            0xC1 => self.counted(Width::Two)?,
            0xC2 => self.counted(Width::Four)?,
            _ => return Err(self.error(format!("the marker {marker:#04x} is not served here"))),
        }
        Ok(())
    }

    fn write(&mut self, text: &str) {
        write_string(text, &mut self.text);
    }

    fn counted(&mut self, width: Width) -> Result<(), Malformed> {
        let length = self.length(width)?;
        self.utf8(length)
    }

    fn utf8(&mut self, length: usize) -> Result<(), Malformed> {
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.error("a string is not UTF-8"))?;
        self.write(text);
        Ok(())
    }

    /// Four characters for every three bytes; then how many are padding, or, with all bits turned,
    /// how many are left out.
    fn base64(&mut self, width: Width, url_safe: bool) -> Result<(), Malformed> {
        let groups = self.length(width)?;
        let padding = self.byte()?;
        let omitted = padding & 0x80 != 0;
        let padding = usize::from(if omitted { !padding } else { padding });
        let length = (groups * 3).checked_sub(padding).filter(|_| padding <= 2);
        let length = length.ok_or_else(|| self.error("a base64 string with too much padding"))?;
        let bytes = self.take(length)?;
        let text = if url_safe { URL_SAFE.encode(bytes) } else { STANDARD.encode(bytes) };
        self.write(if omitted { text.trim_end_matches('=') } else { &text });
        Ok(())
    }

    fn guid(&mut self, digits: &[u8; 16], quote: &str) -> Result<(), Malformed> {
        let bytes = self.fixed::<16>()?;
        let hex = nibbles(&bytes, 32, digits);
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        self.write(&format!("{quote}{}{quote}", parts.join("-")));
        Ok(())
    }

    /// Two characters to a byte, the low half first.
    fn by_table(&mut self, table: &[u8; 16]) -> Result<(), Malformed> {
        let count = self.length(Width::One)?;
        let bytes = self.take(count.div_ceil(2))?;
        let text = nibbles(bytes, count, table);
        self.write(&text);
        Ok(())
    }

    /// Characters of a few bits each, the low bits first; below seven bits they count from a base.
    fn packed(&mut self, bits: usize, width: Width) -> Result<(), Malformed> {
        let count = self.length(width)?;
        let base = if bits < 7 { self.byte()? } else { 0 };
        let bytes = self.take((count * bits).div_ceil(8))?;
        let mut text = String::with_capacity(count);
        for at in 0..count {
            let (byte, shift) = (at * bits / 8, at * bits % 8);
            let pair = u16::from_le_bytes([bytes[byte], bytes.get(byte + 1).copied().unwrap_or(0)]);
            let offset = (pair >> shift) as u8 & ((1 << bits) - 1);
            let character = base.checked_add(offset).filter(u8::is_ascii);
            text.push(char::from(
                character.ok_or_else(|| self.error("a packed string is not ASCII"))?,
            ));
        }
        self.write(&text);
        Ok(())
    }
}

fn nibbles(bytes: &[u8], count: usize, table: &[u8; 16]) -> String {
    let halves = bytes.iter().flat_map(|byte| [byte & 0x0f, byte >> 4]);
    halves.take(count).map(|half| char::from(table[usize::from(half)])).collect()
}

/// Whether a marker opens an object or an array, and how that ends.
fn container(marker: u8) -> Option<(bool, Extent)> {
    let (is_object, form) = match marker {
        0xE0..=0xE7 => (false, marker - 0xE0),
        0xE8..=0xEF => (true, marker - 0xE8),
        _ => return None,
    };
    let extent = match form {
        0 | 1 => Extent::Members(usize::from(form)),
        2 => Extent::Bytes(Width::One),
        3 => Extent::Bytes(Width::Two),
        4 => Extent::Bytes(Width::Four),
        5 => Extent::Counted(Width::One),
        6 => Extent::Counted(Width::Two),
        _ => Extent::Counted(Width::Four),
    };
    Some((is_object, extent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(text: &str) -> Vec<u8> {
        text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    }

    fn check(bytes: &str, expected: &str) {
        let found = match decode(&hex(bytes)) {
            Ok(value) => value.to_text(),
            Err(error) => format!("! {}", error.message),
        };
        assert_eq!(found, expected, "{bytes}");
    }

    #[test]
    fn scalars_are_read() {
        check("80 D0", "null");
        check("80 D1", "false");
        check("80 D2", "true");
        check("80 00", "0");
        check("80 1F", "31");
        check("80 C8 C8", "200");
        check("80 C9 18 FC", "-1000");
        check("80 CA 70 11 01 00", "70000");
        check("80 CB 00 0E FA D5 FE FF FF FF", "-5000000000");
        check("80 CC 00 00 00 00 00 00 0C 40", "3.5");
        check("80 D8 FB", "-5");
        check("80 DC FE FF FF FF", "4294967294");
        check("80 CD 00 00 C0 3F", "1.5");
        check("80 CC 00 00 00 00 00 00 F0 7F", "! a number is not finite");
    }

    #[test]
    fn strings_are_read_in_all_their_forms() {
        check("80 2C", "\"id\"");
        check("80 3F", "\"_id\"");
        check("80 80", "\"\"");
        check("80 82 68 69", "\"hi\"");
        check("80 C0 05 68 65 6C 6C 6F", "\"hello\"");
        check("80 C1 02 00 68 69", "\"hi\"");
        check("80 C2 02 00 00 00 68 69", "\"hi\"");
        check(
            "80 75 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F",
            "\"00102030-4050-6070-8090-a0b0c0d0e0f0\"",
        );
        check(
            "80 77 00 00 84 21 00 00 20 00 00 00 A6 F7 9A A8 00 00",
            r#""\"00004812-0000-0200-0000-6a7fa98a0000\"""#,
        );
        check("80 71 01 00 66 6F 6F", "\"Zm9v\"");
        check("80 71 01 01 66 6F", "\"Zm8=\"");
        check("80 71 01 FD 41", "\"QQ\"");
        check("80 72 02 00 00 66 6F 6F 62 61 72", "\"Zm9vYmFy\"");
        check("80 73 01 00 FB FF FE", "\"-__-\"");
        check("80 78 04 A1 B2", "\"1a2b\"");
        check("80 79 01 0F", "\"F\"");
        check("80 7A 07 13 53 1C 02", "\"2024-01\"");
        check("80 7B 04 30 10 32", "\"0123\"");
        check("80 7C 03 61 20 08", "\"abc\"");
        check("80 7D 04 61 40 20 0C", "\"abcd\"");
        check("80 7E 02 C8 34", "\"Hi\"");
        check("80 7F 02 00 C8 34", "\"Hi\"");
    }

    #[test]
    fn containers_are_read_in_all_their_forms() {
        check("80 E0", "[]");
        check("80 E8", "{}");
        check("80 E1 D2", "[true]");
        check("80 E9 2C D2", "{\"id\":true}");
        check("80 E2 03 00 01 D0", "[0,1,null]");
        check("80 E5 03 03 00 01 D0", "[0,1,null]");
        check("80 E6 03 00 03 00 00 01 D0", "[0,1,null]");
        check("80 E7 03 00 00 00 03 00 00 00 00 01 D0", "[0,1,null]");
        check("80 E5 00 00", "[]");
        check("80 ED 00 00", "{}");
        check("80 EA 04 2C 00 3B 01", r#"{"id":0,"type":1}"#);
        check("80 ED 04 02 2C 00 3B 01", r#"{"id":0,"type":1}"#);
        check("80 EF 04 00 00 00 02 00 00 00 2C 00 3B 01", r#"{"id":0,"type":1}"#);
        check("80 E2 05 E1 00 E9 2C 01", r#"[[0],{"id":1}]"#);
        check("80 F0 DA 03 01 00 00 00 02 00 00 00 03 00 00 00", "[1,2,3]");
        check("80 F1 D9 03 00 FF FF 00 00 E8 03", "[-1,0,1000]");
        check("80 F0 DA 00", "[]");
    }

    #[test]
    fn references_lead_back_to_a_string() {
        check("80 E2 05 82 68 69 C3 03", r#"["hi","hi"]"#);
        check("80 E2 06 82 68 69 C4 03 00", r#"["hi","hi"]"#);
        check("80 E2 07 82 68 69 C5 03 00 00", r#"["hi","hi"]"#);
        check("80 E2 08 82 68 69 C6 03 00 00 00", r#"["hi","hi"]"#);
        check("80 C3 01", "! the marker 0xc3 is not served here");
        check("80 C3 09", "! a string refers to one that does not come before it");
    }

    #[test]
    fn broken_bytes_are_refused() {
        check("81", "! binary JSON starts with 0x80");
        check("80", "! 1 bytes expected, fewer left");
        check("80 D0 D0", "! there is more after the value");
        check("80 82 68", "! 2 bytes expected, fewer left");
        check("80 81 FF", "! a string is not UTF-8");
        check("80 E2 02 00 CB", "! 8 bytes expected, fewer left");
        check("80 E2 02 C8 01 00", "! there is more after the value");
        check("80 E5 02 03 00 01", "! a container does not end where it says");
        check("80 E2 01 C8 01", "! a container does not end where it says");
        check("80 40", "! a string from a dictionary that was not sent");
        check("80 E9 00 00", "! the marker 0x00 is not served here");
        check("80 F0 00 FF", "! numbers of an array need a type of their own");
        check("80 71 01 03 41", "! a base64 string with too much padding");
        check("80 CF 00 00", "! the marker 0xcf is not served here");
        let deep = [vec![0x80], vec![0xE1; 100_000]].concat();
        assert!(decode(&deep).unwrap_err().message.contains("nested deeper"));
    }

    #[test]
    fn references_cannot_fill_the_memory() {
        let long = 60_000_usize;
        let mut items = vec![0xC1];
        items.extend(u16::try_from(long).unwrap().to_le_bytes());
        items.resize(items.len() + long, b'a');
        for _ in 0..100_000 {
            items.extend([0xC3, 6]);
        }
        let mut bytes = vec![0x80, 0xE4];
        bytes.extend(u32::try_from(items.len()).unwrap().to_le_bytes());
        bytes.extend(items);
        assert!(decode(&bytes).unwrap_err().message.contains("too large"));
    }

    proptest! {
        #[test]
        fn junk_never_panics(mut junk in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&junk);
            junk.insert(0, FIRST_BYTE);
            let _ = decode(&junk);
        }
    }
}
