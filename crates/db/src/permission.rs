//! Permissions, and the tokens that carry them.
//!
//! A token says what it allows and until when, signed with the account's secret: checking one needs
//! no look at the catalog, and, as in the service, deleting a permission does not take back tokens
//! that were handed out. Names are resolved to resource ids when a token is made, so that a token
//! for a container that is gone opens nothing in its successor.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::hmac;
use storage::RangeStore;
use value::{ContainerRid, DocumentRid, Object, PartitionKey, PermissionRid, Value};

use crate::catalog::{Catalog, Permission, User};
use crate::container::Container;
use crate::database::Db;
use crate::meta::MetaKind;
use crate::resource::{self, Resource};
use crate::write::Address;
use crate::{Error, Kind, Result};

/// How long tokens are good for, in seconds.
const TOKEN_DEFAULT_S: u64 = 3_600;
const TOKEN_MIN_S: u64 = 10;
const TOKEN_MAX_S: u64 = 86_400;

/// What a token allows.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    all: bool,
    /// Nothing where the permission names what does not exist.
    container: Option<ContainerRid>,
    /// One document only: by resource id or by id.
    document: Option<String>,
    key: Option<PartitionKey>,
}

/// What somebody with a token wants to do.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    /// The container that the request is about.
    pub container: &'a Container,
    /// Whether the request changes something.
    pub write: bool,
    /// What of the container it touches.
    pub what: What<'a>,
    /// The partition key of the request.
    pub key: Option<&'a PartitionKey>,
}

/// What of a container a request touches.
#[derive(Clone, Debug)]
pub enum What<'a> {
    /// The container itself, or its list of ranges.
    Container,
    /// One document.
    Document(&'a Address),
    /// Documents in general: a feed, a query, a create, a batch.
    Documents,
}

impl Grant {
    /// Whether the token allows this.
    pub fn allows(&self, access: &Access<'_>) -> bool {
        if Some(access.container.rid) != self.container || (access.write && !self.all) {
            return false;
        }
        let key_fits = match &self.key {
            None => true,
            // What the token is good for is known only if the request says which partition it wants.
            Some(key) => access.key == Some(key),
        };
        match (&access.what, &self.document) {
            // Nobody changes a container with a token.
            (What::Container, _) => !access.write,
            (_, None) => key_fits,
            (What::Document(Address::Id(id)), Some(document)) => id == document && key_fits,
            (What::Document(Address::Rid(rid)), Some(document)) => rid == document && key_fits,
            (What::Documents, Some(_)) => false,
        }
    }
}

impl<S: RangeStore> Db<S> {
    /// All permissions of a user, each with a new token.
    pub fn permissions(
        &self,
        database: &str,
        user: &str,
        token_seconds: Option<u64>,
    ) -> Result<Vec<Resource>> {
        let seconds = token_lifetime(token_seconds)?;
        let catalog = self.catalog.load();
        let database = catalog.database(database).ok_or_else(Error::owner_not_found)?;
        let user = database.user(user).ok_or_else(Error::owner_not_found)?;
        let permissions = user.permissions.values();
        Ok(permissions.map(|p| self.with_token(&catalog, p, seconds)).collect())
    }

    /// One permission, with a new token.
    pub fn permission(
        &self,
        database: &str,
        user: &str,
        permission: &str,
        token_seconds: Option<u64>,
    ) -> Result<Resource> {
        let seconds = token_lifetime(token_seconds)?;
        let catalog = self.catalog.load();
        let database = catalog.database(database).ok_or_else(Error::owner_not_found)?;
        let user = database.user(user).ok_or_else(Error::owner_not_found)?;
        Ok(self.with_token(&catalog, user.permission(permission)?, seconds))
    }

    /// Creates a permission.
    pub async fn create_permission(
        &self,
        database: &str,
        user: &str,
        body: &Object,
        token_seconds: Option<u64>,
    ) -> Result<Resource> {
        self.put_permission(database, user, None, body, None, token_seconds).await
    }

    /// Replaces a permission, whose name may change.
    pub async fn replace_permission(
        &self,
        database: &str,
        user: &str,
        permission: &str,
        body: &Object,
        if_match: Option<&str>,
        token_seconds: Option<u64>,
    ) -> Result<Resource> {
        self.put_permission(database, user, Some(permission), body, if_match, token_seconds).await
    }

    /// Creates a permission, or replaces the one of that name; says whether it was created.
    pub async fn upsert_permission(
        &self,
        database: &str,
        user: &str,
        body: &Object,
        token_seconds: Option<u64>,
    ) -> Result<(Resource, bool)> {
        let name = resource::name_of(body)?;
        let exists = self.owner(database)?.user(user).is_some_and(|u| u.permission(&name).is_ok());
        let current = exists.then_some(name.as_str());
        let resource =
            self.put_permission(database, user, current, body, None, token_seconds).await?;
        Ok((resource, !exists))
    }

    async fn put_permission(
        &self,
        database: &str,
        user: &str,
        current: Option<&str>,
        body: &Object,
        if_match: Option<&str>,
        token_seconds: Option<u64>,
    ) -> Result<Resource> {
        let seconds = token_lifetime(token_seconds)?;
        let name = resource::name_of(body)?;
        let definition = definition(body)?;
        let mut edit = self.edit(database).await?;
        let user = edit.owner.user(user).cloned().ok_or_else(Error::owner_not_found)?;
        let current = current.map(|name| user.permission(name).cloned()).transpose()?;
        scope(&edit.catalog, &definition)?;
        let same = |other: &Arc<Permission>| {
            current.as_ref().is_some_and(|current| current.rid == other.rid)
        };
        for other in user.permissions.values().filter(|other| !same(other)) {
            if other.resource.id == name
                || other.resource.body.get("resource") == definition.get("resource")
                    && other.resource.body.get("resourcePartitionKey")
                        == definition.get("resourcePartitionKey")
            {
                return Err(resource::name_taken());
            }
        }
        let rid = match &current {
            Some(current) => {
                current.resource.check_match(if_match)?;
                current.rid
            }
            None => PermissionRid::new(user.rid, u64::from(edit.next.next_number())),
        };
        let stamp = self.stamp(&mut edit.next);
        let self_link = format!("{}permissions/{rid}/", user.resource.self_link());
        let resource = Resource::build(definition, rid.to_string(), self_link, &[], &stamp);
        edit.change.put_object(MetaKind::Permission, &resource.rid, &resource.body);
        let permission = Arc::new(Permission { rid, resource });
        let mut user = User::clone(&user);
        if let Some(current) = current {
            user.permissions.remove(&current.resource.id);
        }
        user.permissions.insert(name, permission.clone());
        edit.owner.users.insert(user.resource.id.clone(), Arc::new(user));
        let answer = self.with_token(&edit.catalog, &permission, seconds);
        self.save(edit).await?;
        Ok(answer)
    }

    /// Deletes a permission.
    pub async fn delete_permission(
        &self,
        database: &str,
        user: &str,
        permission: &str,
        if_match: Option<&str>,
    ) -> Result<()> {
        let mut edit = self.edit(database).await?;
        let user = edit.owner.user(user).cloned().ok_or_else(Error::owner_not_found)?;
        let permission = user.permission(permission)?.clone();
        permission.resource.check_match(if_match)?;
        edit.change.delete(MetaKind::Permission, &permission.resource.rid);
        let mut user = User::clone(&user);
        user.permissions.remove(&permission.resource.id);
        edit.owner.users.insert(user.resource.id.clone(), Arc::new(user));
        self.save(edit).await
    }

    /// The permission as clients get it: with a new token.
    fn with_token(&self, catalog: &Catalog, permission: &Permission, seconds: u64) -> Resource {
        let mut resource = permission.resource.clone();
        if let Ok(mut payload) = scope(catalog, &resource.body) {
            payload.insert("until", Value::from(self.clock.now_s() + seconds));
            payload.insert("for", resource.rid.as_str());
            let payload = Value::Object(payload).to_text();
            let tag = hmac::sign(&self.signing, payload.as_bytes());
            let token = format!(
                "type=resource&ver=1&sig={};{};",
                BASE64.encode(tag.as_ref()),
                BASE64.encode(payload)
            );
            let mut body = Object::clone(&resource.body);
            body.insert("_token", token);
            resource.body = Arc::new(body);
        }
        resource
    }

    /// What a token allows, if it is ours and still good.
    ///
    /// `signature` is the part after `sig=`.
    pub fn verify_token(&self, signature: &str) -> Result<Grant> {
        let malformed = || {
            Error::new(
                Kind::Unauthorized,
                "The input authorization token can't serve the request: the resource token is \
                 malformed or was not made by this account.",
            )
        };
        let mut parts = signature.splitn(3, ';');
        let tag = BASE64.decode(parts.next().unwrap_or_default()).map_err(|_| malformed())?;
        let payload = BASE64.decode(parts.next().unwrap_or_default()).map_err(|_| malformed())?;
        if parts.next() != Some("") {
            return Err(malformed());
        }
        hmac::verify(&self.signing, &payload, &tag).map_err(|_| malformed())?;
        let payload = Value::parse(&payload).map_err(|_| malformed())?;
        let until = payload.get("until").and_then(Value::as_i64).ok_or_else(malformed)?;
        let now = self.clock.now_s();
        if u64::try_from(until).unwrap_or(0) <= now {
            return Err(Error::new(
                Kind::Forbidden,
                format!(
                    "The authorization token is not valid at the current time. Please create \
                     another token and retry (token expiry time: {until}, current server time: \
                     {now}, in seconds since 1970)."
                ),
            ));
        }
        let text = |name: &str| payload.get(name).and_then(Value::as_str);
        let container = text("container").and_then(|rid| ContainerRid::parse(rid).ok());
        let key = text("key").map(PartitionKey::parse_header).transpose();
        Ok(Grant {
            all: text("mode").is_some_and(|mode| mode.eq_ignore_ascii_case("All")),
            container,
            document: text("document").map(str::to_owned),
            key: key.map_err(|_| malformed())?,
        })
    }
}

fn token_lifetime(seconds: Option<u64>) -> Result<u64> {
    let seconds = seconds.unwrap_or(TOKEN_DEFAULT_S);
    if (TOKEN_MIN_S..=TOKEN_MAX_S).contains(&seconds) {
        return Ok(seconds);
    }
    Err(Error::bad_request(format!(
        "the lifetime of a resource token must be between {TOKEN_MIN_S} and {TOKEN_MAX_S} seconds, \
         not {seconds}"
    )))
}

/// What a client defines of a permission, checked.
fn definition(body: &Object) -> Result<Object> {
    let missing: String = ["permissionMode", "resource"]
        .iter()
        .filter(|member| !body.contains(member))
        .map(|member| format!("{member}; "))
        .collect();
    if !missing.is_empty() {
        return Err(Error::bad_request(format!(
            "The input content is invalid because the required properties - '{missing}' - are missing"
        )));
    }
    let mode = body.get("permissionMode").and_then(Value::as_str).unwrap_or_default();
    if !["All", "Read"].iter().any(|known| known.eq_ignore_ascii_case(mode)) {
        return Err(Error::bad_request(format!(
            "permissionMode must be \"All\" or \"Read\", not {}",
            body.get("permissionMode").unwrap_or(&Value::Null)
        )));
    }
    let resource = body.get("resource").and_then(Value::as_str);
    let resource = resource.ok_or_else(|| Error::bad_request("'resource' must be a link"))?;
    let mut definition = Object::from([
        ("id", body.get("id").cloned().unwrap_or(Value::Null)),
        ("permissionMode", Value::from(mode)),
        ("resource", Value::from(resource)),
    ]);
    if let Some(key) = body.get("resourcePartitionKey").filter(|key| !key.is_null()) {
        PartitionKey::parse_header(&key.to_text()).map_err(|error| {
            Error::bad_request(format!("'resourcePartitionKey' is not a partition key: {error}"))
        })?;
        definition.insert("resourcePartitionKey", key.clone());
    }
    Ok(definition)
}

/// What a token of this permission says.
///
/// A permission may name what does not exist, as in the service; its token opens nothing.
fn scope(catalog: &Catalog, definition: &Object) -> Result<Object> {
    let link = definition.get("resource").and_then(Value::as_str).unwrap_or_default();
    let segments: Vec<&str> = link.trim_matches('/').split('/').collect();
    let (database, container, rest) = match segments.as_slice() {
        ["dbs", database, "colls", container, rest @ ..] => (database, container, rest),
        _ => {
            return Err(Error::bad_request(format!(
                "the resource of a permission must be a container or document, such as \
                 'dbs/x/colls/y': '{link}'"
            )));
        }
    };
    let document = match rest {
        [] => None,
        ["docs", document] => Some(*document),
        _ => {
            return Err(Error::bad_request(format!(
                "permissions are served for containers and documents, not for '{link}'"
            )));
        }
    };
    let mode = definition.get("permissionMode").cloned().unwrap_or(Value::from("Read"));
    let mut scope = Object::from([("mode", mode)]);
    if let Some(container) = catalog.database(database).and_then(|d| d.container(container)) {
        scope.insert("container", container.rid.to_string());
    }
    if let Some(document) = document {
        scope.insert("document", document);
    }
    if let Some(key) = definition.get("resourcePartitionKey") {
        scope.insert("key", key.to_text());
    }
    Ok(scope)
}

/// Whether a text is the resource id of a document.
pub fn is_document_rid(text: &str) -> bool {
    DocumentRid::parse(text).is_ok()
}
