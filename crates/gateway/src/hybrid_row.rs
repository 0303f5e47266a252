//! Batches in the binary form of the .NET SDK.
//!
//! .NET writes every batch as a RecordIO stream of HybridRow rows and reads nothing else in a
//! successful answer. A row is `0x81`, a schema number, a byte of presence bits, the fixed fields,
//! the variable fields that are present, and then sparse fields, each with a type code and a path
//! token. The stream opens with a segment row; every record is a header row with length and
//! checksum, followed by the record's own row. We know exactly four schemas and refuse the rest.
//!
//! Lengths come from a stranger: every one is checked against what is left before it is used.

use std::fmt;

/// The first byte of a stream, by which it is told from JSON.
pub const FIRST_BYTE: u8 = 0x81;

const SEGMENT: i32 = 2_147_473_648;
const RECORD: i32 = 2_147_473_649;
const BATCH_OPERATION: i32 = 2_145_473_648;
const BATCH_RESULT: i32 = 2_145_473_649;

/// Type codes of sparse fields.
mod code {
    pub(super) const FALSE: u8 = 0x02;
    pub(super) const TRUE: u8 = 0x03;
    pub(super) const INT32: u8 = 0x07;
    pub(super) const UINT32: u8 = 0x0B;
    pub(super) const FLOAT64: u8 = 0x10;
    pub(super) const UTF8: u8 = 0x14;
}

/// Path tokens of the sparse fields of an operation.
mod token {
    pub(super) const INDEXING_DIRECTIVE: u64 = 8;
    pub(super) const IF_MATCH: u64 = 9;
    pub(super) const IF_NONE_MATCH: u64 = 10;
    pub(super) const TTL_SECONDS: u64 = 11;
    pub(super) const MINIMAL_RETURN: u64 = 12;
    /// From here on a token says how long a path follows in plain text.
    pub(super) const LITERAL: u64 = 13;
    pub(super) const RETRY_AFTER_MS: u8 = 5;
    pub(super) const REQUEST_CHARGE: u8 = 6;
}

/// Why a stream cannot be read.
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

/// One operation of a batch, as the row has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperationRow {
    /// Create 0, patch 1, read 2, delete 4, replace 5, upsert 20.
    pub operation_type: Option<i32>,
    /// 2 is a document.
    pub resource_type: Option<i32>,
    /// The partition key as JSON text; only in bulk.
    pub partition_key: Option<String>,
    /// The id of the document.
    pub id: Option<String>,
    /// The document or the patch.
    pub body: Option<Vec<u8>>,
    /// `Default`, `Include` or `Exclude`.
    pub indexing_directive: Option<String>,
    /// The etag that must match.
    pub if_match: Option<String>,
    /// The etag that must not match.
    pub if_none_match: Option<String>,
    /// The document's time to live.
    pub ttl_seconds: Option<i32>,
    /// Whether the answer leaves out the document.
    pub minimal_return: Option<bool>,
}

/// One result of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultRow {
    /// The status of the operation.
    pub status: i32,
    /// Its sub-status.
    pub substatus: i32,
    /// The etag of the document.
    pub etag: Option<String>,
    /// The document, or the message of an error.
    pub body: Option<Vec<u8>>,
    /// When to try again.
    pub retry_after_ms: Option<u32>,
    /// What it cost.
    pub charge_ru: f64,
}

/// Reads the operations of a batch.
pub fn decode_operations(bytes: &[u8]) -> Result<Vec<OperationRow>, Malformed> {
    let mut reader = Reader { bytes, at: 0 };
    let mut operations = Vec::new();
    let mut seen_segment = false;
    while !reader.is_done() {
        let row_start = reader.at;
        match reader.row_header()? {
            SEGMENT => {
                reader.segment(row_start)?;
                seen_segment = true;
            }
            RECORD if seen_segment => {
                let mut body = reader.record()?;
                operations.push(operation(&mut body)?);
            }
            schema => return Err(reader.error(format!("unexpected row of schema {schema}"))),
        }
    }
    Ok(operations)
}

/// Writes the results of a batch.
pub fn encode_results(results: &[ResultRow]) -> Vec<u8> {
    let mut out = segment_row();
    for result in results {
        write_record(&mut out, &result_row(result));
    }
    out
}

/// Reads one operation; the reader holds exactly its row.
fn operation(reader: &mut Reader<'_>) -> Result<OperationRow, Malformed> {
    let schema = reader.row_header()?;
    if schema != BATCH_OPERATION {
        return Err(reader.error(format!("a record of schema {schema} is no batch operation")));
    }
    let presence = reader.byte()?;
    let present = |bit: u8| presence & (1 << bit) != 0;
    // The space of fixed fields is there whether they are present or not.
    let operation_type = reader.int32()?;
    let resource_type = reader.int32()?;
    let mut row = OperationRow {
        operation_type: present(0).then_some(operation_type),
        resource_type: present(1).then_some(resource_type),
        ..OperationRow::default()
    };
    if present(2) {
        row.partition_key = Some(reader.text()?);
    }
    if present(3) {
        reader.counted()?;
    }
    if present(4) {
        row.id = Some(reader.text()?);
    }
    if present(5) {
        reader.counted()?;
    }
    if present(6) {
        row.body = Some(reader.counted()?.to_vec());
    }
    while !reader.is_done() {
        sparse_field(reader, &mut row)?;
    }
    Ok(row)
}

fn sparse_field(reader: &mut Reader<'_>, row: &mut OperationRow) -> Result<(), Malformed> {
    let code = reader.byte()?;
    let path = reader.varuint()?;
    if path >= token::LITERAL {
        reader.take_count(path - token::LITERAL)?;
    }
    match (path, code) {
        (token::INDEXING_DIRECTIVE, code::UTF8) => row.indexing_directive = Some(reader.text()?),
        (token::IF_MATCH, code::UTF8) => row.if_match = Some(reader.text()?),
        (token::IF_NONE_MATCH, code::UTF8) => row.if_none_match = Some(reader.text()?),
        (token::TTL_SECONDS, code::INT32) => row.ttl_seconds = Some(reader.int32()?),
        (token::MINIMAL_RETURN, code::TRUE) => row.minimal_return = Some(true),
        (token::MINIMAL_RETURN, code::FALSE) => row.minimal_return = Some(false),
        // A field of a later schema: its type tells how long it is, its meaning is not ours.
        (_, code::TRUE | code::FALSE) => {}
        (_, code::INT32 | code::UINT32) => {
            reader.take(4)?;
        }
        (_, code::FLOAT64) => {
            reader.take(8)?;
        }
        (_, code::UTF8) => {
            reader.counted()?;
        }
        _ => return Err(reader.error(format!("field {path} has unknown type {code:#04x}"))),
    }
    Ok(())
}

/// Bytes, and how far they are read.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn is_done(&self) -> bool {
        self.at >= self.bytes.len()
    }

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

    fn take_count(&mut self, count: u64) -> Result<&'a [u8], Malformed> {
        let count = usize::try_from(count).map_err(|_| self.error("a length is out of range"))?;
        self.take(count)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn word(&mut self) -> Result<[u8; 4], Malformed> {
        let mut word = [0; 4];
        word.copy_from_slice(self.take(4)?);
        Ok(word)
    }

    fn int32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_le_bytes(self.word()?))
    }

    /// Seven bits a byte, the low ones first; the top bit says that more follow.
    fn varuint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.error("a number has too many bytes"))
    }

    fn counted(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.varuint()?;
        self.take_count(count)
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.counted()?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.error("text is not UTF-8"))?;
        Ok(text.to_owned())
    }

    fn row_header(&mut self) -> Result<i32, Malformed> {
        let version = self.byte()?;
        if version != FIRST_BYTE {
            return Err(self.error(format!("a row starts with {version:#04x} instead of 0x81")));
        }
        self.int32()
    }

    /// Skips a segment row, which only says how long it is.
    fn segment(&mut self, row_start: usize) -> Result<(), Malformed> {
        let presence = self.byte()?;
        let length = self.int32()?;
        if presence & 1 == 0 {
            return Ok(());
        }
        let read = self.at - row_start;
        let rest = usize::try_from(length).ok().and_then(|length| length.checked_sub(read));
        let rest = rest.ok_or_else(|| self.error(format!("a segment row of {length} bytes")))?;
        self.take(rest)?;
        Ok(())
    }

    /// Reads a record header and gives its body, whose checksum is right.
    fn record(&mut self) -> Result<Reader<'a>, Malformed> {
        let length = self.int32()?;
        let length = usize::try_from(length)
            .map_err(|_| self.error(format!("a record of {length} bytes")))?;
        let checksum = u32::from_le_bytes(self.word()?);
        let start = self.at;
        let body = self.take(length)?;
        if crc32fast::hash(body) != checksum {
            return Err(Malformed {
                message: "a record's checksum is wrong".into(),
                offset: start,
            });
        }
        // Offsets in messages count from the start of the stream.
        Ok(Reader { bytes: &self.bytes[..start + length], at: start })
    }
}

fn row_header(schema: i32) -> Vec<u8> {
    let mut row = vec![FIRST_BYTE];
    row.extend(schema.to_le_bytes());
    row
}

fn segment_row() -> Vec<u8> {
    let mut row = row_header(SEGMENT);
    row.push(1);
    // Its own length: five bytes of header, one of presence bits, four for this number.
    row.extend(10_i32.to_le_bytes());
    row
}

fn write_record(out: &mut Vec<u8>, body: &[u8]) {
    let length = i32::try_from(body.len()).expect("a result is smaller than the 4 MB of an answer");
    out.extend(row_header(RECORD));
    out.extend(length.to_le_bytes());
    out.extend(crc32fast::hash(body).to_le_bytes());
    out.extend(body);
}

fn result_row(result: &ResultRow) -> Vec<u8> {
    let mut row = row_header(BATCH_RESULT);
    let bit = |present: bool, bit: u8| u8::from(present) << bit;
    row.push(0b11 | bit(result.etag.is_some(), 2) | bit(result.body.is_some(), 3));
    row.extend(result.status.to_le_bytes());
    row.extend(result.substatus.to_le_bytes());
    if let Some(etag) = &result.etag {
        write_counted(&mut row, etag.as_bytes());
    }
    if let Some(body) = &result.body {
        write_counted(&mut row, body);
    }
    if let Some(retry_after_ms) = result.retry_after_ms {
        row.extend([code::UINT32, token::RETRY_AFTER_MS]);
        row.extend(retry_after_ms.to_le_bytes());
    }
    row.extend([code::FLOAT64, token::REQUEST_CHARGE]);
    row.extend(result.charge_ru.to_le_bytes());
    row
}

fn write_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = bytes.len();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> =
            text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    #[test]
    fn results_are_written_as_the_worked_example() {
        let result = ResultRow {
            status: 201,
            substatus: 0,
            etag: Some("\"e1\"".into()),
            body: Some(br#"{"id":"1"}"#.to_vec()),
            retry_after_ms: None,
            charge_ru: 5.0,
        };
        let expected = hex(concat!(
            "81f0d8ff7f 01 0a000000 ",
            "81f1d8ff7f 28000000 d501da5d ",
            "817154e17f 0f c9000000 00000000 04 22653122 0a 7b226964223a2231227d ",
            "10 06 0000000000001440",
        ));
        assert_eq!(encode_results(&[result]), expected);
    }

    #[test]
    fn absent_fields_of_a_result_take_no_space() {
        let result = ResultRow {
            status: 429,
            substatus: 3200,
            retry_after_ms: Some(20),
            charge_ru: 0.0,
            ..ResultRow::default()
        };
        let row = hex("817154e17f 03 ad010000 800c0000 0b 05 14000000 10 06 0000000000000000");
        assert!(encode_results(&[result]).ends_with(&row));
    }

    fn stream(rows: &[Vec<u8>]) -> Vec<u8> {
        let mut out = segment_row();
        for row in rows {
            write_record(&mut out, row);
        }
        out
    }

    /// Writes a row as the SDK does.
    fn operation_row(operation: &OperationRow) -> Vec<u8> {
        let bit = |present: bool, bit: u8| u8::from(present) << bit;
        let mut row = row_header(BATCH_OPERATION);
        row.push(
            bit(operation.operation_type.is_some(), 0)
                | bit(operation.resource_type.is_some(), 1)
                | bit(operation.partition_key.is_some(), 2)
                | bit(operation.id.is_some(), 4)
                | bit(operation.body.is_some(), 6),
        );
        row.extend(operation.operation_type.unwrap_or(0).to_le_bytes());
        row.extend(operation.resource_type.unwrap_or(0).to_le_bytes());
        for text in [&operation.partition_key, &operation.id].into_iter().flatten() {
            write_counted(&mut row, text.as_bytes());
        }
        if let Some(body) = &operation.body {
            write_counted(&mut row, body);
        }
        for (token, text) in [
            (token::INDEXING_DIRECTIVE, &operation.indexing_directive),
            (token::IF_MATCH, &operation.if_match),
            (token::IF_NONE_MATCH, &operation.if_none_match),
        ] {
            if let Some(text) = text {
                row.extend([code::UTF8, token as u8]);
                write_counted(&mut row, text.as_bytes());
            }
        }
        if let Some(ttl) = operation.ttl_seconds {
            row.extend([code::INT32, token::TTL_SECONDS as u8]);
            row.extend(ttl.to_le_bytes());
        }
        if let Some(minimal) = operation.minimal_return {
            let code = if minimal { code::TRUE } else { code::FALSE };
            row.extend([code, token::MINIMAL_RETURN as u8]);
        }
        row
    }

    #[test]
    fn an_operation_is_read_from_bytes() {
        // A create with body {"id":"1"}, key ["a"], If-Match "e", ttl 60, minimal return.
        let row = hex(concat!(
            "817054e17f 47 00000000 02000000 05 5b2261225d 0a 7b226964223a2231227d ",
            "14 09 03 226522 07 0b 3c000000 03 0c",
        ));
        let operations = decode_operations(&stream(&[row])).unwrap();
        let expected = OperationRow {
            operation_type: Some(0),
            resource_type: Some(2),
            partition_key: Some("[\"a\"]".into()),
            body: Some(br#"{"id":"1"}"#.to_vec()),
            if_match: Some("\"e\"".into()),
            ttl_seconds: Some(60),
            minimal_return: Some(true),
            ..OperationRow::default()
        };
        assert_eq!(operations, [expected]);
    }

    #[test]
    fn fields_of_later_schemas_are_skipped() {
        // Token 15 is a literal path of two bytes; token 7 an unsigned number we do not know.
        let row = hex("817054e17f 03 02000000 02000000 14 0f 6162 01 78 0b 07 01020304");
        let operations = decode_operations(&stream(&[row])).unwrap();
        assert_eq!(operations[0].operation_type, Some(2));
    }

    fn check_refused(bytes: &[u8], expected: &str) {
        let error = decode_operations(bytes).unwrap_err();
        assert!(error.message.contains(expected), "{error}");
    }

    #[test]
    fn broken_streams_are_refused() {
        let row = operation_row(&OperationRow { operation_type: Some(0), ..Default::default() });
        let mut flipped = stream(std::slice::from_ref(&row));
        let last = flipped.len() - 1;
        flipped[last] ^= 1;
        check_refused(&flipped, "checksum");
        check_refused(&stream(&[row])[10..], "unexpected row");
        check_refused(b"[]", "instead of 0x81");
        check_refused(&hex("81f0d8ff7f 01 03000000"), "segment row of 3 bytes");
        check_refused(&hex("81f0d8ff7f 01 ffffffff"), "segment row of -1 bytes");
        check_refused(&hex("81f0d8ff7f 01 0a000000 81f1d8ff7f ffffff7f 00000000"), "fewer left");
        check_refused(&stream(&[hex("817154e17f")]), "no batch operation");
        let long = hex("817054e17f 10 00000000 02000000 ffffffffff01");
        check_refused(&stream(&[long]), "too many bytes");
        let invalid = hex("817054e17f 10 00000000 02000000 01 ff");
        check_refused(&stream(&[invalid]), "not UTF-8");
        let unknown = hex("817054e17f 00 00000000 02000000 33 07");
        check_refused(&stream(&[unknown]), "unknown type");
    }

    prop_compose! {
        fn any_operation()(
            operation_type in any::<Option<i32>>(),
            resource_type in any::<Option<i32>>(),
            texts in proptest::array::uniform5(proptest::option::of(".{0,200}")),
            body in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20_000)),
            ttl_seconds in any::<Option<i32>>(),
            minimal_return in any::<Option<bool>>(),
        ) -> OperationRow {
            let [partition_key, id, indexing_directive, if_match, if_none_match] = texts;
            OperationRow {
                operation_type, resource_type, partition_key, id, body, indexing_directive,
                if_match, if_none_match, ttl_seconds, minimal_return,
            }
        }
    }

    proptest! {
        #[test]
        fn operations_survive_the_trip(
            operations in proptest::collection::vec(any_operation(), 0..5)
        ) {
            let rows: Vec<Vec<u8>> = operations.iter().map(operation_row).collect();
            prop_assert_eq!(decode_operations(&stream(&rows)).unwrap(), operations);
        }

        #[test]
        fn junk_never_panics(junk in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_operations(&junk);
            let _ = decode_operations(&stream(&[junk]));
        }

        #[test]
        fn a_flipped_bit_never_panics(operation in any_operation(), at in any::<usize>()) {
            let mut row = operation_row(&operation);
            let at = at % (row.len() * 8);
            row[at / 8] ^= 1 << (at % 8);
            let _ = decode_operations(&stream(&[row]));
        }
    }
}
