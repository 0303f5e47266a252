//! What makes a document: its id, its own time to live, its size, and the form it is stored in.

use value::{Document, DocumentRid, Etag, Object, SystemProperties, Value};

use crate::container::Container;
use crate::row::{Item, ItemHeader};
use crate::{Error, Kind, Result};

/// The service's limit for a document and for a request: 2 MB.
pub const SIZE_MAX: usize = 2 * 1024 * 1024;
/// The limit for the id of a document.
pub const ID_BYTES_MAX: usize = 1_023;

/// The object and id of a body that a client sent.
pub(crate) fn object_and_id(body: Value) -> Result<(Object, String)> {
    let Value::Object(object) = body else {
        return Err(Error::bad_request("the document body must be a JSON object"));
    };
    if object.depth() > value::DEPTH_MAX {
        return Err(Error::bad_request(format!(
            "the document is nested more than {} levels deep",
            value::DEPTH_MAX
        )));
    }
    let id = id_of(&object)?.to_owned();
    Ok((object, id))
}

/// The id of a document, checked.
pub(crate) fn id_of(object: &Object) -> Result<&str> {
    let id = match object.get("id") {
        None => {
            return Err(Error::bad_request(
                "The input content is invalid because the required properties - 'id; ' - are missing",
            ));
        }
        Some(Value::String(id)) => id,
        Some(other) => {
            return Err(Error::bad_request(format!(
                "One of the specified inputs is invalid: 'id' must be a string, not {other}"
            )));
        }
    };
    check_id(id)?;
    Ok(id)
}

/// Any text will do, as in the service: what a URL cannot carry is the clients' concern, and their
/// SDKs refuse it by rules of their own.
fn check_id(id: &str) -> Result<()> {
    let wrong = if id.is_empty() {
        "must not be empty"
    } else if id.len() > ID_BYTES_MAX {
        "is longer than 1023 bytes. Ensure to provide a unique non-empty string less than '1024' characters."
    } else {
        return Ok(());
    };
    let shown: String = id.chars().take(64).collect();
    Err(Error::bad_request(format!(
        "One of the specified inputs is invalid: the id '{shown}' {wrong}"
    )))
}

/// The document's own time to live: 0 where it has none.
///
/// Where the container has no time to live, `ttl` is ordinary data and may be anything.
pub(crate) fn ttl_of(object: &Object, enabled: bool) -> Result<i32> {
    let Some(ttl) = object.get("ttl") else { return Ok(0) };
    let seconds = ttl.as_i64().and_then(|ttl| i32::try_from(ttl).ok());
    match seconds {
        Some(seconds) if seconds == -1 || seconds > 0 => Ok(seconds),
        _ if !enabled => Ok(0),
        _ => Err(Error::bad_request(format!(
            "The input ttl '{}' is invalid. Ensure to provide a nonzero positive integer less than \
             or equal to '2147483647', or '-1' which means never expire.",
            ttl.as_str().map_or_else(|| ttl.to_text(), str::to_owned)
        ))),
    }
}

/// Where and when a version of a document is written.
pub(crate) struct Moment {
    pub(crate) lsn: u64,
    pub(crate) commit_ordinal: u32,
    pub(crate) ts: u64,
    pub(crate) rid_ordinal: u64,
    /// The number by which a script knows what it writes, before there is an lsn.
    pub(crate) script_number: Option<u64>,
}

/// The etag of what a script writes. No lsn ever has the highest bit, and no two writes of scripts in
/// a range have the same number, so no other version of the document has this etag.
fn script_etag(number: u64, ts: u64) -> Etag {
    Etag::new(1 << 63 | number, 0, ts)
}

/// Builds what is stored.
pub(crate) fn build(container: &Container, user: &Object, moment: &Moment) -> Result<Item> {
    let enabled = container.policies.default_ttl.is_some();
    let ttl = ttl_of(user, enabled)?;
    let etag = match moment.script_number {
        Some(number) => script_etag(number, moment.ts),
        None => Etag::new(moment.lsn, moment.commit_ordinal, moment.ts),
    };
    let rid = DocumentRid::new(container.rid, moment.rid_ordinal).to_string();
    let self_link = format!("{}docs/{rid}/", container.self_link);
    let document = Document::build(
        user,
        &SystemProperties { rid: &rid, self_link: &self_link, etag: etag.as_str(), ts: moment.ts },
    );
    if document.text().len() > SIZE_MAX {
        return Err(Error::new(Kind::TooLarge, "Request size is too large"));
    }
    let terms = container.policies.indexing.indexed_term_count(user);
    let header = ItemHeader {
        lsn: moment.lsn,
        commit_ordinal: moment.commit_ordinal,
        ts: moment.ts,
        rid_ordinal: moment.rid_ordinal,
        ttl,
        terms: u32::try_from(terms).unwrap_or(u32::MAX),
        queued: enabled && ttl >= 0,
        keeps_etag: moment.script_number.is_some(),
    };
    Ok(Item { header, document })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Value {
        Value::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn ids_are_checked() {
        let long = format!("{{\"id\":\"{}\"}}", "é".repeat(512));
        for (text, part) in [
            ("[]", "must be a JSON object"),
            ("{}", "required properties - 'id; '"),
            (r#"{"id":1}"#, "must be a string"),
            (r#"{"id":null}"#, "must be a string"),
            (r#"{"id":""}"#, "must not be empty"),
            (&long, "longer than 1023 bytes"),
        ] {
            let error = object_and_id(body(text)).unwrap_err();
            assert!(error.message.contains(part), "{text}: {error}");
        }
        let longest = format!("{{\"id\":\"{}x\"}}", "é".repeat(511));
        let strange = [r#"{"id":"a?b#c d"}"#, r#"{"id":"日本"}"#, r#"{"id":"/\\\n "}"#, &longest];
        for text in strange {
            object_and_id(body(text)).unwrap();
        }
    }

    #[test]
    fn time_to_live_is_checked_only_where_it_works() {
        let check = |text: &str, enabled| ttl_of(body(text).as_object().unwrap(), enabled);
        assert_eq!(check("{}", true), Ok(0));
        assert_eq!(check(r#"{"ttl":-1}"#, true), Ok(-1));
        assert_eq!(check(r#"{"ttl":2147483647}"#, true), Ok(i32::MAX));
        for (text, shown) in [
            (r#"{"ttl":0}"#, "'0'"),
            (r#"{"ttl":null}"#, "'null'"),
            (r#"{"ttl":-10}"#, "'-10'"),
            (r#"{"ttl":2147483648}"#, "'2147483648'"),
            (r#"{"ttl":1.5}"#, "'1.5'"),
            (r#"{"ttl":"5"}"#, "'5'"),
        ] {
            assert!(check(text, true).unwrap_err().message.contains(shown), "{text}");
            assert_eq!(check(text, false), Ok(0));
        }
    }
}
