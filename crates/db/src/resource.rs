//! Resources other than documents: their names, system properties and stamps.

use std::sync::Arc;

use value::{Etag, Object, Value};

use crate::{Error, Kind, Result};

/// A database, container, user, permission, offer or encryption key as clients see it.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The name that the client chose.
    pub id: String,
    /// The resource id that the server chose.
    pub rid: String,
    /// The etag, with its quotes.
    pub etag: String,
    /// The whole resource, system properties included.
    pub body: Arc<Object>,
}

/// When a resource was last written.
#[derive(Clone, Debug)]
pub(crate) struct Stamp {
    pub(crate) etag: Etag,
    pub(crate) ts: u64,
}

impl Resource {
    /// Completes what a client defined: its own members first, then the system properties.
    ///
    /// `links` are the relative paths of the children, such as `_colls`.
    pub(crate) fn build(
        user: Object,
        rid: String,
        self_link: String,
        links: &[(&str, &str)],
        stamp: &Stamp,
    ) -> Self {
        let id = user.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut body = user;
        body.insert("_rid", rid.as_str());
        body.insert("_self", self_link);
        body.insert("_etag", stamp.etag.as_str());
        for (name, path) in links {
            body.insert(*name, *path);
        }
        body.insert("_ts", Value::from(stamp.ts));
        Self { id, rid, etag: stamp.etag.to_string(), body: Arc::new(body) }
    }

    /// A resource as it was stored.
    pub(crate) fn load(body: Object) -> Result<Self> {
        let text = |name: &str| {
            let text = body.get(name).and_then(Value::as_str).map(str::to_owned);
            text.ok_or_else(|| crate::row::corrupt(&format!("resource without {name}")))
        };
        Ok(Self { id: text("id")?, rid: text("_rid")?, etag: text("_etag")?, body: Arc::new(body) })
    }

    /// The rid form of the link, with its slash at the end.
    pub fn self_link(&self) -> &str {
        self.body.get("_self").and_then(Value::as_str).unwrap_or_default()
    }

    /// Refuses when the client expects another version.
    pub(crate) fn check_match(&self, if_match: Option<&str>) -> Result<()> {
        match if_match {
            Some(wanted) if !Etag::from_text(&self.etag).matches(wanted) => {
                Err(Error::precondition_failed())
            }
            _ => Ok(()),
        }
    }

    /// Whether the client already has this version.
    pub fn is_unmodified(&self, if_none_match: Option<&str>) -> bool {
        if_none_match.is_some_and(|known| Etag::from_text(&self.etag).matches(known))
    }
}

/// The members of a body that a client may define: everything but system properties.
pub(crate) fn user_members(body: &Object) -> Object {
    let mut user = body.clone();
    user.retain(|name, _| !name.starts_with('_'));
    user
}

/// The limit for names of databases, containers, users and the like.
const NAME_CHARS_MAX: usize = 255;

/// The name in a body, checked.
pub(crate) fn name_of(body: &Object) -> Result<String> {
    let name = match body.get("id") {
        None => {
            return Err(Error::bad_request(
                "The input content is invalid because the required properties - 'id; ' - are missing",
            ));
        }
        Some(Value::String(name)) => name,
        Some(other) => {
            return Err(Error::bad_request(format!(
                "One of the specified inputs is invalid: 'id' must be a string, not {other}"
            )));
        }
    };
    let wrong = if name.is_empty() {
        "must not be empty"
    } else if name.chars().count() > NAME_CHARS_MAX {
        "is too long. Ensure to provide a unique non-empty string less than '255' characters."
    } else if name.contains(['/', '\\', '?', '#']) {
        "must not contain '/', '\\', '?' or '#'"
    } else if name.ends_with([' ', '\n', '\t', '\r']) {
        "must not end with white space"
    } else if name.chars().any(char::is_control) {
        "must not contain control characters"
    } else {
        return Ok(name.clone());
    };
    let shown: String = name.chars().take(64).collect();
    Err(Error::bad_request(format!(
        "One of the specified inputs is invalid: the name '{shown}' {wrong}"
    )))
}

/// The name in the body of a replace, which must be the one addressed.
pub(crate) fn same_name(body: &Object, current: &str) -> Result<String> {
    let name = name_of(body)?;
    if name != current {
        return Err(Error::bad_request(format!(
            "the id cannot be changed: it is '{current}', the body says '{name}'"
        )));
    }
    Ok(name)
}

pub(crate) fn name_taken() -> Error {
    Error::new(Kind::Conflict, "Resource with specified id or name already exists.")
}
