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

use std::collections::BTreeMap;
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

/// Which parts of a document are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parts {
    /// The whole of it.
    Whole,
    /// Some members, and of these perhaps only some members.
    Members(BTreeMap<String, Parts>),
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

    /// The tree with the wanted parts alone, made without looking at the others. What is no object
    /// has no members and is left out where members of it are wanted. The order of the members is
    /// kept.
    pub fn select(&self, parts: &Parts) -> Value {
        match parts {
            Parts::Whole => self.to_value(),
            Parts::Members(wanted) => {
                Value::Object(select(self.text_bytes(), 0, self.table(), true, &Wanted::of(wanted)))
            }
        }
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

/// Takes a number off the front. Most are one byte, and scans live from reading them.
#[inline]
fn read_varint(bytes: &mut &[u8]) -> Option<usize> {
    if let Some((&byte, rest)) = bytes.split_first()
        && byte < 0x80
    {
        *bytes = rest;
        return Some(usize::from(byte));
    }
    read_long_varint(bytes)
}

fn read_long_varint(bytes: &mut &[u8]) -> Option<usize> {
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
#[inline]
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

/// Wanted members, and what is needed to pass over others quickly.
struct Wanted<'a> {
    members: &'a BTreeMap<String, Parts>,
    /// A bit for each length that a wanted name has in the text.
    lengths: u64,
}

impl Wanted<'_> {
    fn of(members: &BTreeMap<String, Parts>) -> Wanted<'_> {
        let mut lengths = 0;
        for name in members.keys() {
            // A name with escapes is longer in the text; all lengths will do for those few.
            lengths |= if is_plain(name) { length_bit(name.len()) } else { u64::MAX };
        }
        Wanted { members, lengths }
    }

    /// The wanted member of a name, as it stands in the text.
    #[inline]
    fn get(&self, name: &[u8]) -> Option<(&str, &Parts)> {
        if self.lengths & length_bit(name.len()) == 0 {
            return None;
        }
        let is_wanted = |wanted: &str| match is_plain(wanted) {
            true => wanted.as_bytes() == name,
            false => escaped(wanted).as_bytes() == name,
        };
        let mut members = self.members.iter().map(|(wanted, parts)| (wanted.as_str(), parts));
        members.find(|(wanted, _)| is_wanted(wanted))
    }
}

fn length_bit(length: usize) -> u64 {
    1 << length.min(63)
}

/// Whether a name stands in the text as it is.
fn is_plain(name: &str) -> bool {
    !name.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\')
}

fn escaped(name: &str) -> String {
    let mut text = String::new();
    write_escaped(name, &mut text);
    text
}

/// The wanted members of the object that opens at `start`.
fn select(
    text: &[u8],
    start: usize,
    mut table: &[u8],
    is_top: bool,
    wanted: &Wanted<'_>,
) -> Object {
    let mut members = Vec::with_capacity(wanted.members.len());
    let mut before = start;
    while members.len() < wanted.members.len() && !table.is_empty() {
        let Some(member) = read_member(&mut table, before, is_top) else { break };
        before = member.end();
        let Some(name) = member.name(text) else { break };
        let Some((name, parts)) = wanted.get(name) else { continue };
        let selected = match (parts, member.inner) {
            (Parts::Members(wanted), Some(inner)) => Some(Value::Object(select(
                text,
                member.value_start,
                inner,
                false,
                &Wanted::of(wanted),
            ))),
            _ => member.value(text).and_then(|text| select_text(text, parts)),
        };
        if let Some(value) = selected {
            members.push((name.to_owned(), value));
        }
    }
    Object::from_distinct(members)
}

/// The wanted parts of a value that has no table.
fn select_text(text: &[u8], parts: &Parts) -> Option<Value> {
    let Parts::Members(wanted) = parts else {
        return Value::parse_with_depth(text, DEPTH_LIMIT).ok();
    };
    if text.first() != Some(&b'{') {
        return None;
    }
    let wanted = Wanted::of(wanted);
    let mut members = Vec::with_capacity(wanted.members.len());
    let mut before = 0;
    while text.get(before + 1) == Some(&b'"') {
        let name_end = skip_string(text, before + 1)?;
        let value_end = skip_value(text, name_end + 1)?;
        if let Some((name, parts)) = wanted.get(text.get(before + 2..name_end - 1)?)
            && let Some(value) = select_text(text.get(name_end + 1..value_end)?, parts)
        {
            members.push((name.to_owned(), value));
        }
        before = value_end;
    }
    Some(Value::Object(Object::from_distinct(members)))
}

/// Finds a member in the object that opens at `start`.
fn find<'a>(
    text: &[u8],
    start: usize,
    mut table: &'a [u8],
    name: &str,
    is_top: bool,
) -> Option<Member<'a>> {
    let text_of_name;
    let wanted = match is_plain(name) {
        true => name,
        false => {
            text_of_name = escaped(name);
            &text_of_name
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

    /// Parts with the ends of these paths.
    fn parts(paths: &[Vec<String>]) -> Parts {
        fn mark(parts: &mut Parts, path: &[String]) {
            let Parts::Members(members) = parts else { return };
            match path.split_first() {
                None => *parts = Parts::Whole,
                Some((name, rest)) => {
                    let empty = || Parts::Members(BTreeMap::new());
                    mark(members.entry(name.clone()).or_insert_with(empty), rest);
                }
            }
        }
        let mut parts = Parts::Members(BTreeMap::new());
        paths.iter().for_each(|path| mark(&mut parts, path));
        parts
    }

    /// The wanted parts of a tree, by looking at all of it.
    fn prune(value: &Value, parts: &Parts) -> Option<Value> {
        let Parts::Members(wanted) = parts else { return Some(value.clone()) };
        let mut kept = Object::new();
        for (name, value) in value.as_object()? {
            if let Some(value) = wanted.get(name).and_then(|parts| prune(value, parts)) {
                kept.insert(name, value);
            }
        }
        Some(Value::Object(kept))
    }

    #[test]
    fn selection() {
        let document = build(
            r#"{"id":"a","o":{"x":[1,{"y":"},"}],"e":{},"d":{"q\"":"\\\"","z":{"k":1e2,"l":0}}},"\n":0}"#,
        );
        let check = |paths: &[&[&str]], expected: &str| {
            let owned = |path: &&[&str]| path.iter().map(|name| (*name).to_owned()).collect();
            let paths: Vec<Vec<String>> = paths.iter().map(owned).collect();
            assert_eq!(document.select(&parts(&paths)).to_text(), expected);
        };
        check(&[], "{}");
        check(&[&["id"]], r#"{"id":"a"}"#);
        check(&[&["\n"], &["id"]], r#"{"id":"a","\n":0}"#);
        check(&[&["o", "x"]], r#"{"o":{"x":[1,{"y":"},"}]}}"#);
        check(&[&["o", "d", "q\""]], r#"{"o":{"d":{"q\"":"\\\""}}}"#);
        check(&[&["o", "d", "z", "k"], &["o", "e"]], r#"{"o":{"e":{},"d":{"z":{"k":1e2}}}}"#);
        check(&[&["o", "e", "k"], &["o", "x", "y"], &["id", "z"], &["none"]], r#"{"o":{"e":{}}}"#);
        check(&[&["_ts"]], r#"{"_ts":1600000000}"#);
        assert_eq!(document.select(&Parts::Whole).to_text(), document.to_value().to_text());
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
        fn selections_are_those_of_the_tree(
            user in samples::object(),
            wanted in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
            other in samples::text(),
        ) {
            let document = Document::build(&user, &SYSTEM);
            let tree = document.to_value();
            let mut all = vec![vec![other.clone()]];
            paths(&tree, &[], &mut all);
            let below: Vec<_> =
                all.iter().map(|path| [&path[..], std::slice::from_ref(&other)].concat()).collect();
            all.extend(below);
            let wanted: Vec<_> = wanted.iter().map(|at| all[at.index(all.len())].clone()).collect();
            let parts = parts(&wanted);
            let expected = prune(&tree, &parts).map(|value| value.to_text());
            prop_assert_eq!(Some(document.select(&parts).to_text()), expected);
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
                let _ = document.select(&parts(&[vec!["a".to_owned(), "b".to_owned()]]));
                let _ = document.text();
            }
        }

        #[test]
        fn answers_any_bytes(text in "[{}\":,a]{0,20}", table: Vec<u8>, cut: prop::sample::Index) {
            let whole = assemble(&text, &table);
            for bytes in [whole.clone(), whole.slice(..cut.index(whole.len()))] {
                if let Ok(document) = Document::decode(bytes) {
                    let _ = document.at(&["a", "a", "a"]);
                    let _ = document.select(&parts(&[vec!["a".to_owned(); 3]]));
                }
            }
        }
    }
}
