//! The stored form of a document: its JSON text behind a table of where its members lie.
//!
//! Reading a document whole is what a database does most, so the text is kept as it will be sent and
//! reading is a copy. It was normalised when it was built: no whitespace, each name once, minimal
//! escapes, system properties last. That makes positions follow from lengths, and the table needs
//! only those: for each member of the top two levels the length of its name and of its value.
//!
//! ```text
//! format byte · checksum u32 · length of the text u32 · text · table
//! table  = entry*
//! entry  = varint(name length << 1 | is object) · varint(value length)
//!          [is object, top level only: varint(bytes of the inner table) · inner table]
//! ```
//!
//! Lengths are those of the text as written, escapes included. The checksum covers text and table:
//! bytes that pass [`Document::decode`] are bytes that [`Document::build`] wrote, so the getters
//! need not doubt the text. They do not trust the table with their lives either: every cut is
//! checked and a wrong one finds nothing.

use std::fmt;

use bytes::Bytes;

use crate::json::{DEPTH_LIMIT, write_escaped, write_string};
use crate::{Object, Value};

/// The members that the server adds to a document and nobody else can set.
pub const SYSTEM_PROPERTIES: [&str; 6] = ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

/// A document as it is stored. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Document(Bytes);

/// What the server adds to a document.
#[derive(Clone, Copy, Debug)]
pub struct SystemProperties<'a> {
    /// The resource id.
    pub rid: &'a str,
    /// The path of resource ids to the document.
    pub self_link: &'a str,
    /// The entity tag, with its quotes.
    pub etag: &'a str,
    /// The second of the last write.
    pub ts: u64,
}

/// Bytes that are no stored document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError(&'static str);

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stored document is malformed: {}", self.0)
    }
}

impl std::error::Error for DocumentError {}

const FORMAT: u8 = 1;
const HEADER: usize = 9;

impl Document {
    /// Puts a document together from what the user sent and what the server adds. System properties
    /// that the user sent are dropped. The caller has checked that the nesting is within
    /// [`DEPTH_MAX`](crate::DEPTH_MAX).
    pub fn build(user: &Object, system: &SystemProperties<'_>) -> Document {
        let mut text = String::with_capacity(1024);
        let mut table = Vec::with_capacity(128);
        text.push('{');
        for (name, value) in user.iter().filter(|(name, _)| !is_system(name)) {
            write_member(name, value, &mut text, &mut table);
        }
        for (name, value) in [
            ("_rid", Value::from(system.rid)),
            ("_self", Value::from(system.self_link)),
            ("_etag", Value::from(system.etag)),
            ("_attachments", Value::from("attachments/")),
            ("_ts", Value::from(system.ts)),
        ] {
            write_member(name, &value, &mut text, &mut table);
        }
        text.push('}');
        Document(assemble(&text, &table))
    }

    /// Takes bytes that [`Document::encoded`] gave. Refuses all others.
    pub fn decode(bytes: Bytes) -> Result<Document, DocumentError> {
        let header = bytes.first_chunk::<HEADER>().ok_or(DocumentError("too short"))?;
        if header[0] != FORMAT {
            return Err(DocumentError("unknown format"));
        }
        let sum = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
        if crc32fast::hash(&bytes[5..]) != sum {
            return Err(DocumentError("checksum does not match"));
        }
        let document = Document(bytes);
        if HEADER + document.text_length() > document.0.len() {
            return Err(DocumentError("text is longer than the bytes"));
        }
        check_table(document.text_bytes(), 0, document.table(), true)?;
        Ok(document)
    }

    /// The bytes to store.
    pub fn encoded(&self) -> &Bytes {
        &self.0
    }

    /// The JSON text.
    pub fn text(&self) -> Bytes {
        self.0.slice(HEADER..HEADER + self.text_length())
    }

    /// The JSON text of a member.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.at(&[name])
    }

    /// The JSON text of what lies at the end of a path down through objects.
    pub fn at(&self, path: &[&str]) -> Option<&str> {
        let (first, rest) = path.split_first()?;
        let member = find(self.text_bytes(), 0, self.table(), first, true)?;
        let Some((second, rest)) = rest.split_first() else {
            return as_str(member.value(self.text_bytes())?);
        };
        let start = member.value_start;
        let member = find(self.text_bytes(), start, member.inner?, second, false)?;
        let value = as_str(member.value(self.text_bytes())?)?;
        rest.iter().try_fold(value, |value, name| skip_to(value, name))
    }

    /// The whole tree.
    pub fn to_value(&self) -> Value {
        Value::parse_with_depth(self.text_bytes(), DEPTH_LIMIT)
            .expect("the checksum vouches for text that was written by build")
    }

    /// The tree without the system properties.
    pub fn to_user_object(&self) -> Object {
        match self.to_value() {
            Value::Object(mut object) => {
                object.retain(|name, _| !is_system(name));
                object
            }
            _ => Object::new(),
        }
    }

    fn text_length(&self) -> usize {
        self.0[5..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
    }

    fn text_bytes(&self) -> &[u8] {
        &self.0[HEADER..HEADER + self.text_length()]
    }

    fn table(&self) -> &[u8] {
        &self.0[HEADER + self.text_length()..]
    }
}

pub(crate) fn is_system(name: &str) -> bool {
    name.starts_with('_') && SYSTEM_PROPERTIES.contains(&name)
}

fn as_str(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn assemble(text: &str, table: &[u8]) -> Bytes {
    let length = u32::try_from(text.len()).expect("documents are far below 4 GiB");
    let mut bytes = Vec::with_capacity(HEADER + text.len() + table.len());
    bytes.extend_from_slice(&[FORMAT, 0, 0, 0, 0]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(table);
    let sum = crc32fast::hash(&bytes[5..]);
    bytes[1..5].copy_from_slice(&sum.to_le_bytes());
    Bytes::from(bytes)
}

/// Writes a member of the top level and its entry.
fn write_member(name: &str, value: &Value, text: &mut String, table: &mut Vec<u8>) {
    let name_length = write_name(name, text);
    let start = text.len();
    let Value::Object(object) = value else {
        value.write(text);
        write_varint(name_length << 1, table);
        write_varint(text.len() - start, table);
        return;
    };
    let mut inner = Vec::new();
    text.push('{');
    for (name, value) in object.iter() {
        let name_length = write_name(name, text);
        let start = text.len();
        value.write(text);
        write_varint(name_length << 1, &mut inner);
        write_varint(text.len() - start, &mut inner);
    }
    text.push('}');
    write_varint(name_length << 1 | 1, table);
    write_varint(text.len() - start, table);
    write_varint(inner.len(), table);
    table.extend_from_slice(&inner);
}

/// Writes comma, name and colon; gives the length of the name without its quotes.
fn write_name(name: &str, text: &mut String) -> usize {
    if !text.ends_with('{') {
        text.push(',');
    }
    let start = text.len();
    write_string(name, text);
    let length = text.len() - start - 2;
    text.push(':');
    length
}

fn write_varint(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number off the front.
fn read_varint(bytes: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// An entry of the table, with the positions that follow from it.
struct Member<'a> {
    name_start: usize,
    name_length: usize,
    value_start: usize,
    value_length: usize,
    /// The table of the value, where it is an object of the top level.
    inner: Option<&'a [u8]>,
}

impl Member<'_> {
    fn name<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        text.get(self.name_start..)?.get(..self.name_length)
    }

    fn value<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        text.get(self.value_start..)?.get(..self.value_length)
    }

    fn end(&self) -> usize {
        self.value_start + self.value_length
    }
}

/// Reads an entry off the front of a table. `before` is the position of the brace or comma before
/// the member.
fn read_member<'a>(table: &mut &'a [u8], before: usize, is_top: bool) -> Option<Member<'a>> {
    let tagged = read_varint(table)?;
    let value_length = read_varint(table)?;
    let name_length = tagged >> 1;
    let name_start = before + 2;
    let value_start = name_start + name_length + 2;
    let mut inner = None;
    if tagged & 1 == 1 && is_top {
        let length = read_varint(table)?;
        let (inside, rest) = table.split_at_checked(length)?;
        *table = rest;
        inner = Some(inside);
    }
    Some(Member { name_start, name_length, value_start, value_length, inner })
}

/// Finds a member in the object that opens at `start`.
fn find<'a>(
    text: &[u8],
    start: usize,
    mut table: &'a [u8],
    name: &str,
    is_top: bool,
) -> Option<Member<'a>> {
    let mut escaped = String::new();
    let wanted = match name.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        false => name,
        true => {
            write_escaped(name, &mut escaped);
            &escaped
        }
    };
    let mut before = start;
    while !table.is_empty() {
        let member = read_member(&mut table, before, is_top)?;
        if member.name_length == wanted.len() && member.name(text)? == wanted.as_bytes() {
            return Some(member);
        }
        before = member.end();
    }
    None
}

/// Goes through a table and sees that each entry meets the punctuation it must.
fn check_table(
    text: &[u8],
    start: usize,
    mut table: &[u8],
    is_top: bool,
) -> Result<usize, DocumentError> {
    let wrong = DocumentError("table does not fit the text");
    let mut before = start;
    let mut opening = b'{';
    while !table.is_empty() {
        let member = read_member(&mut table, before, is_top).ok_or(wrong.clone())?;
        let name_end = member.name_start + member.name_length;
        let fits = text.get(before) == Some(&opening)
            && text.get(before + 1) == Some(&b'"')
            && text.get(name_end..name_end + 2) == Some(b"\":")
            && member.value(text).is_some();
        if !fits {
            return Err(wrong);
        }
        if let Some(inner) = member.inner {
            let end = check_table(text, member.value_start, inner, false)?;
            if end != member.end() {
                return Err(wrong);
            }
        }
        before = member.end();
        opening = b',';
    }
    let close = if opening == b'{' { before + 1 } else { before };
    let opens = opening == b',' || text.get(before) == Some(&b'{');
    let is_closed = opens && text.get(close) == Some(&b'}');
    if !is_closed || (is_top && close + 1 != text.len()) {
        return Err(wrong);
    }
    Ok(close + 1)
}

/// The member of an object in normalised text, found by skipping.
fn skip_to<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let mut wanted = String::with_capacity(name.len() + 2);
    write_string(name, &mut wanted);
    let bytes = object.as_bytes();
    let mut before = 0;
    if bytes.first() != Some(&b'{') || bytes.get(1) == Some(&b'}') {
        return None;
    }
    loop {
        let name_end = skip_value(bytes, before + 1)?;
        let value_end = skip_value(bytes, name_end + 1)?;
        if object.get(before + 1..name_end)? == wanted {
            return object.get(name_end + 1..value_end);
        }
        if bytes.get(value_end) != Some(&b',') {
            return None;
        }
        before = value_end;
    }
}

/// The position behind a value of normalised text.
fn skip_value(bytes: &[u8], start: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut offset = start;
    loop {
        match bytes.get(offset)? {
            b'"' => offset = skip_string(bytes, offset)?,
            b'{' | b'[' => {
                depth += 1;
                offset += 1;
                continue;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                offset += 1;
            }
            b',' | b':' if depth > 0 => {
                offset += 1;
                continue;
            }
            b',' | b':' => return None,
            _ => offset += scalar_length(&bytes[offset..]),
        }
        if depth == 0 {
            return Some(offset);
        }
    }
}

fn scalar_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| matches!(byte, b',' | b'}' | b']')).unwrap_or(bytes.len())
}

fn skip_string(bytes: &[u8], start: usize) -> Option<usize> {
    let mut offset = start + 1;
    loop {
        match bytes.get(offset)? {
            b'"' => return Some(offset + 1),
            b'\\' => offset += 2,
            _ => offset += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples;

    const SYSTEM: SystemProperties<'_> = SystemProperties {
        rid: "tLRRAKmCwMICAAAAAAAAAA==",
        self_link: "dbs/tLRRAA==/colls/tLRRAKmCwMI=/docs/tLRRAKmCwMICAAAAAAAAAA==/",
        etag: "\"0000d986-0000-0700-0000-5f3c0a000000\"",
        ts: 1_600_000_000,
    };

    fn build(text: &str) -> Document {
        let value = Value::parse(text.as_bytes()).unwrap();
        Document::build(value.as_object().unwrap(), &SYSTEM)
    }

    #[test]
    fn text() {
        let document = build(r#"{ "id" : "a", "_ts": 5, "_lsn": 6, "_own": 1.0, "_rid": {} }"#);
        let expected = concat!(
            r#"{"id":"a","_own":1.0,"_rid":"tLRRAKmCwMICAAAAAAAAAA==","#,
            r#""_self":"dbs/tLRRAA==/colls/tLRRAKmCwMI=/docs/tLRRAKmCwMICAAAAAAAAAA==/","#,
            r#""_etag":"\"0000d986-0000-0700-0000-5f3c0a000000\"","#,
            r#""_attachments":"attachments/","_ts":1600000000}"#
        );
        assert_eq!(document.text(), expected);
        assert_eq!(document.to_value().to_text(), expected);
        let user = Value::from(document.to_user_object());
        assert_eq!(user.to_text(), r#"{"id":"a","_own":1.0}"#);
    }

    #[test]
    fn fields() {
        let document = build(
            r#"{"id":"a","o":{"x":[1,{"y":"},"}],"e":{},"d":{"q\"":"\\\"","z":{"k":1e2}}},"\n":0,"n":{}}"#,
        );
        assert_eq!(document.field("id"), Some(r#""a""#));
        assert_eq!(document.field("\n"), Some("0"));
        assert_eq!(document.field("\\n"), None);
        assert_eq!(document.field("n"), Some("{}"));
        assert_eq!(document.field("_ts"), Some("1600000000"));
        assert_eq!(document.field("x"), None);
        assert_eq!(document.at(&["o", "x"]), Some(r#"[1,{"y":"},"}]"#));
        assert_eq!(document.at(&["o", "d", "q\""]), Some(r#""\\\"""#));
        assert_eq!(document.at(&["o", "d", "z", "k"]), Some("1e2"));
        assert_eq!(document.at(&["o", "e", "k"]), None);
        assert_eq!(document.at(&["o", "x", "y"]), None);
        assert_eq!(document.at(&["id", "a"]), None);
        assert_eq!(document.at(&["n", "a"]), None);
        assert_eq!(document.at(&[]), None);
    }

    #[test]
    fn long_values() {
        let long = "x".repeat(100_000);
        let document = build(&format!(r#"{{"a":{{"b":"{long}","c":1}},"d":2}}"#));
        assert_eq!(document.at(&["a", "b"]).map(str::len), Some(100_002));
        assert_eq!(document.at(&["a", "c"]), Some("1"));
        assert_eq!(document.field("d"), Some("2"));
    }

    #[test]
    fn the_table_is_small() {
        let members: Vec<String> =
            (0..40).map(|at| format!(r#""name{at:02}":"{at:020}""#)).collect();
        let document = build(&format!("{{{}}}", members.join(",")));
        assert!(document.table().len() * 10 < document.text().len());
    }

    /// Where a path leads in the tree.
    fn resolve<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
        path.iter().try_fold(value, |value, name| value.get(name))
    }

    /// All paths through objects.
    fn paths(value: &Value, above: &[String], out: &mut Vec<Vec<String>>) {
        for (name, value) in value.as_object().into_iter().flatten() {
            let path = [above, &[name.to_owned()]].concat();
            paths(value, &path, out);
            out.push(path);
        }
    }

    /// Bytes whose checksum is right, so that what lies behind it is tried.
    fn sealed(mut bytes: Vec<u8>) -> Bytes {
        let sum = crc32fast::hash(&bytes[5..]);
        bytes[1..5].copy_from_slice(&sum.to_le_bytes());
        Bytes::from(bytes)
    }

    proptest! {
        #[test]
        fn what_is_built_comes_back(mut user in samples::object()) {
            let document = Document::build(&user, &SYSTEM);
            let decoded = Document::decode(document.encoded().clone()).unwrap();
            prop_assert_eq!(decoded.text(), document.text());
            user.retain(|name, _| !is_system(name));
            prop_assert_eq!(
                Value::from(decoded.to_user_object()).to_text(),
                Value::from(user).to_text()
            );
        }

        #[test]
        fn fields_are_those_of_the_tree(user in samples::object(), other in samples::text()) {
            let document = Document::build(&user, &SYSTEM);
            let tree = document.to_value();
            let mut all = vec![vec![other.clone()]];
            paths(&tree, &[], &mut all);
            for path in all {
                for path in [path.clone(), [&path[..], std::slice::from_ref(&other)].concat()] {
                    let names: Vec<&str> = path.iter().map(String::as_str).collect();
                    let expected = resolve(&tree, &path).map(Value::to_text);
                    prop_assert_eq!(document.at(&names), expected.as_deref());
                }
            }
        }

        #[test]
        fn damaged_bytes_are_refused(user in samples::object(), place: prop::sample::Index, bit in 0..8) {
            let mut bytes = Document::build(&user, &SYSTEM).encoded().to_vec();
            let place = place.index(bytes.len());
            bytes[place] ^= 1u8 << bit;
            prop_assert!(Document::decode(Bytes::from(bytes.clone())).is_err());
            // With a checksum that fits, what is accepted can at least be looked at.
            if let Ok(document) = Document::decode(sealed(bytes)) {
                let _ = document.field("a");
                let _ = document.at(&["a", "b", "c"]);
                let _ = document.text();
            }
        }

        #[test]
        fn answers_any_bytes(text in "[{}\":,a]{0,20}", table: Vec<u8>, cut: prop::sample::Index) {
            let whole = assemble(&text, &table);
            for bytes in [whole.clone(), whole.slice(..cut.index(whole.len()))] {
                if let Ok(document) = Document::decode(bytes) {
                    let _ = document.at(&["a", "a", "a"]);
                }
            }
        }
    }
}
