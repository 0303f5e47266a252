//! What must be true of the document that is there before a write may go on.

use value::{Etag, Value};

use crate::row::Item;
use crate::write::Conditions;
use crate::{Error, Kind, Result};

/// What a write expects of the document that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Nothing may be there.
    Create,
    /// Anything goes.
    Upsert,
    /// Something must be there.
    Change,
}

pub(crate) fn check(intent: Intent, conditions: &Conditions, before: Option<&Item>) -> Result<()> {
    match (intent, before) {
        (Intent::Create, Some(_)) => Err(id_taken()),
        // `If-Match` does not bind where there is nothing to match, as the service has it.
        (Intent::Create | Intent::Upsert, None) => Ok(()),
        (Intent::Change, None) => Err(Error::not_found()),
        (Intent::Upsert | Intent::Change, Some(before)) => {
            let etag = etag_of(before);
            let wanted = conditions.if_match.as_deref();
            let unwanted = conditions.if_none_match.as_deref();
            if wanted.is_some_and(|wanted| !etag.matches(wanted))
                || unwanted.is_some_and(|unwanted| etag.matches(unwanted))
            {
                return Err(Error::precondition_failed());
            }
            Ok(())
        }
    }
}

pub(crate) fn id_taken() -> Error {
    Error::new(Kind::Conflict, "Resource with specified id, name, or unique index already exists.")
}

/// The etag of a stored document; it is made of what its header holds, or stands in the document.
pub(crate) fn etag_of(item: &Item) -> Etag {
    if item.header.keeps_etag {
        let text = item.document.field("_etag").map(|text| Value::parse(text.as_bytes()));
        if let Some(Ok(Value::String(text))) = text {
            return Etag::from_text(&text);
        }
    }
    Etag::new(item.header.lsn, item.header.commit_ordinal, item.header.ts)
}
