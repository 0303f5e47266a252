//! Paths: what a URL addresses.
//!
//! Duplicate, leading and trailing slashes mean nothing; SDKs send all of them. A path is split
//! first and then percent-decoded once, segment by segment, so that an encoded slash stays part of
//! an id; a plus sign is a plus sign. Every segment that names something may be a name or a resource
//! id: which one it is, the database finds out.
//!
//! The same path also says what a client signs, in up to three spellings: see [`Subject`].

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use db::{Error, Kind, Result};
use percent_encoding::percent_decode_str;
use value::ScriptKind;

/// A path, understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// What is addressed.
    pub target: Target,
    /// What a client signs for it.
    pub subject: Subject,
}

/// The things that can be addressed.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// The account: `/`.
    Account,
    /// A page for whoever runs the server.
    Operator(Page),
    /// All databases.
    Databases,
    /// One database.
    Database(String),
    /// Something in a database.
    InDatabase(String, DatabaseTarget),
    /// A container, or something in it.
    InContainer(ContainerPath, ContainerTarget),
    /// All offers.
    Offers,
    /// One offer.
    Offer(String),
    /// Transactions across partitions and containers.
    Transactions,
}

/// Things in a database, apart from what is in its containers.
#[derive(Clone, Debug, PartialEq)]
pub enum DatabaseTarget {
    /// All containers.
    Containers,
    /// All users.
    Users,
    /// One user.
    User(String),
    /// All permissions of a user.
    Permissions(String),
    /// One permission of a user.
    Permission(String, String),
    /// All client encryption keys.
    EncryptionKeys,
    /// One client encryption key.
    EncryptionKey(String),
}

/// Which container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerPath {
    /// Name or resource id of its database.
    pub database: String,
    /// Name or resource id of the container.
    pub container: String,
}

/// A container, or something in it.
#[derive(Clone, Debug, PartialEq)]
pub enum ContainerTarget {
    /// The container itself.
    Itself,
    /// All documents.
    Documents,
    /// One document.
    Document(String),
    /// All scripts of a kind.
    Scripts(ScriptKind),
    /// One script of a kind.
    Script(ScriptKind, String),
    /// All conflicts.
    Conflicts,
    /// One conflict.
    Conflict(String),
    /// The partition key ranges.
    Ranges,
    /// The operation that deletes a whole logical partition.
    DeletePartition,
}

/// Pages for whoever runs the server; none needs a signature and none shows a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The process is there.
    Alive,
    /// Requests can be served.
    Ready,
    /// The state in a few words of JSON.
    Status,
    /// Figures for Prometheus.
    Metrics,
    /// The certificate of our authority.
    Certificate,
    /// A page for people.
    Explorer,
}

/// What a client signs besides verb and date.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subject {
    /// The resource type, as the signature spells it.
    pub resource_type: &'static str,
    /// The link, percent-decoded.
    decoded: String,
    /// The link as it came, where that differs.
    raw: Option<String>,
    /// The last resource id, lower-cased, where the link can be one of resource ids.
    rid: Option<String>,
}

impl Subject {
    /// The spellings of the link that may have been signed, the usual one first.
    pub(crate) fn links(&self) -> impl Iterator<Item = &str> {
        [Some(self.decoded.as_str()), self.raw.as_deref(), self.rid.as_deref()]
            .into_iter()
            .flatten()
    }

    /// The link of the first segments of a path.
    fn new(resource_type: &'static str, raw: &[&str], decoded: &[Cow<'_, str>]) -> Self {
        let raw_link = raw.join("/");
        let decoded_link = decoded.join("/");
        let is_rid = |last: &&Cow<'_, str>| can_be_rid(resource_type, last);
        let rid = decoded.last().filter(is_rid).map(|last| last.to_lowercase());
        Self {
            resource_type,
            raw: (raw_link != decoded_link).then_some(raw_link),
            decoded: decoded_link,
            rid,
        }
    }
}

/// Whether a segment is base64 of a length that a resource id has: three bytes for an offer, where
/// nothing else can stand, and more for everything else.
fn can_be_rid(resource_type: &str, segment: &str) -> bool {
    let Ok(bytes) = STANDARD.decode(segment.replace('-', "/")) else { return false };
    match bytes.len() {
        3 => resource_type == "offers",
        length => matches!(length, 4 | 8 | 12 | 16 | 20),
    }
}

/// More segments than the longest path has.
const SEGMENTS_MAX: usize = 8;

/// Understands a path.
pub fn route(path: &str) -> Result<Route> {
    let raw: Vec<&str> =
        path.split('/').filter(|part| !part.is_empty()).take(SEGMENTS_MAX + 1).collect();
    let mut decoded = Vec::with_capacity(raw.len());
    for segment in &raw {
        let text = percent_decode_str(segment).decode_utf8().map_err(|_| {
            Error::bad_request(format!("the path is not UTF-8 after URL-decoding: '{path}'"))
        })?;
        decoded.push(text);
    }
    let names: Vec<&str> = decoded.iter().map(AsRef::as_ref).collect();
    let (target, resource_type, link_length) = target(&names)
        .ok_or_else(|| Error::new(Kind::NotFound, format!("there is nothing at '{path}'")))?;
    let subject = Subject::new(resource_type, &raw[..link_length], &decoded[..link_length]);
    Ok(Route { target, subject })
}

/// The target of a path, its resource type, and how many segments its link has.
fn target(segments: &[&str]) -> Option<(Target, &'static str, usize)> {
    // Feeds are signed with the link of their owner, single things with their own.
    let found = match segments {
        [] => (Target::Account, "", 0),
        ["dbs"] => (Target::Databases, "dbs", 0),
        ["dbs", database] => (Target::Database((*database).into()), "dbs", 2),
        ["dbs", database, "colls", container, rest @ ..] => {
            let (target, resource_type, more) = container_target(rest)?;
            let path =
                ContainerPath { database: (*database).into(), container: (*container).into() };
            (Target::InContainer(path, target), resource_type, 4 + more)
        }
        ["dbs", database, rest @ ..] => {
            let (target, resource_type, more) = database_target(rest)?;
            (Target::InDatabase((*database).into(), target), resource_type, 2 + more)
        }
        ["offers"] => (Target::Offers, "offers", 0),
        ["offers", rid] => (Target::Offer((*rid).into()), "offers", 2),
        ["operations", "dtc"] => (Target::Transactions, "distributedtransactionbatch", 0),
        other => (Target::Operator(page(other)?), "", 0),
    };
    Some(found)
}

fn database_target(segments: &[&str]) -> Option<(DatabaseTarget, &'static str, usize)> {
    let found = match segments {
        ["colls"] => (DatabaseTarget::Containers, "colls", 0),
        ["users"] => (DatabaseTarget::Users, "users", 0),
        ["users", user] => (DatabaseTarget::User((*user).into()), "users", 2),
        ["users", user, "permissions"] => {
            (DatabaseTarget::Permissions((*user).into()), "permissions", 2)
        }
        ["users", user, "permissions", permission] => {
            let target = DatabaseTarget::Permission((*user).into(), (*permission).into());
            (target, "permissions", 4)
        }
        ["clientencryptionkeys"] => (DatabaseTarget::EncryptionKeys, "clientencryptionkeys", 0),
        ["clientencryptionkeys", key] => {
            (DatabaseTarget::EncryptionKey((*key).into()), "clientencryptionkeys", 2)
        }
        _ => return None,
    };
    Some(found)
}

fn container_target(segments: &[&str]) -> Option<(ContainerTarget, &'static str, usize)> {
    use ContainerTarget::{
        Conflict, Conflicts, DeletePartition, Document, Documents, Itself, Ranges, Script, Scripts,
    };
    let found = match segments {
        [] => (Itself, "colls", 0),
        ["docs"] => (Documents, "docs", 0),
        ["docs", id] => (Document((*id).into()), "docs", 2),
        ["sprocs"] => (Scripts(ScriptKind::Procedure), "sprocs", 0),
        ["sprocs", id] => (Script(ScriptKind::Procedure, (*id).into()), "sprocs", 2),
        ["triggers"] => (Scripts(ScriptKind::Trigger), "triggers", 0),
        ["triggers", id] => (Script(ScriptKind::Trigger, (*id).into()), "triggers", 2),
        ["udfs"] => (Scripts(ScriptKind::Function), "udfs", 0),
        ["udfs", id] => (Script(ScriptKind::Function, (*id).into()), "udfs", 2),
        ["conflicts"] => (Conflicts, "conflicts", 0),
        ["conflicts", id] => (Conflict((*id).into()), "conflicts", 2),
        ["pkranges"] => (Ranges, "pkranges", 0),
        // Signed as the container it empties.
        ["operations", "partitionkeydelete"] => (DeletePartition, "colls", 0),
        _ => return None,
    };
    Some(found)
}

fn page(segments: &[&str]) -> Option<Page> {
    let page = match segments {
        ["alive"] => Page::Alive,
        ["ready"] => Page::Ready,
        ["status"] => Page::Status,
        ["metrics"] => Page::Metrics,
        ["_explorer", "emulator.pem"] => Page::Certificate,
        ["_explorer"] | ["_explorer", "index.html"] => Page::Explorer,
        _ => return None,
    };
    Some(page)
}

impl ContainerTarget {
    /// Whether requests to it use the throughput of the container.
    pub(crate) fn is_about_documents(&self) -> bool {
        use ContainerTarget::{DeletePartition, Document, Documents, Script};
        matches!(self, Documents | Document(_) | DeletePartition | Script(ScriptKind::Procedure, _))
    }
}

impl Target {
    /// Whether it is one document, or all of them.
    pub(crate) fn is_document(&self) -> bool {
        use ContainerTarget::{Document, Documents};
        matches!(self, Target::InContainer(_, Documents | Document(_)))
    }

    /// Refuses the documents that the cloud service's classic gateway does not find by their URL.
    ///
    /// That gateway decodes a path more than once before it checks the signature, and takes what
    /// stands there then for the end of a segment or of the path; so it sees another link than the
    /// client has signed. Control characters it does not let in at all.
    pub(crate) fn check_id(&self) -> Result<()> {
        let Target::InContainer(_, ContainerTarget::Document(id)) = self else { return Ok(()) };
        if id.contains(char::is_control) {
            return Err(Error::bad_request(
                "The request URL is invalid: with --strict-ids no document is found by an id with \
                 control characters",
            ));
        }
        if id.contains(['/', '\\', '#']) || id.ends_with(' ') || has_percent_escape(id) {
            return Err(Error::new(
                Kind::Unauthorized,
                format!(
                    "The input authorization token can't serve the request: with --strict-ids no \
                     document is found by the URL of the id '{id}'"
                ),
            ));
        }
        Ok(())
    }

    /// A word for the kind of thing, for the figures.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Target::Account => "account",
            Target::Operator(_) => "operator",
            Target::Databases | Target::Database(_) => "database",
            Target::InDatabase(_, target) => match target {
                DatabaseTarget::Containers => "container",
                DatabaseTarget::Users | DatabaseTarget::User(_) => "user",
                DatabaseTarget::Permissions(_) | DatabaseTarget::Permission(..) => "permission",
                DatabaseTarget::EncryptionKeys | DatabaseTarget::EncryptionKey(_) => {
                    "encryption_key"
                }
            },
            Target::InContainer(_, target) => match target {
                ContainerTarget::Itself => "container",
                ContainerTarget::Documents
                | ContainerTarget::Document(_)
                | ContainerTarget::DeletePartition => "document",
                ContainerTarget::Scripts(_) | ContainerTarget::Script(..) => "script",
                ContainerTarget::Conflicts | ContainerTarget::Conflict(_) => "conflict",
                ContainerTarget::Ranges => "range",
            },
            Target::Offers | Target::Offer(_) => "offer",
            Target::Transactions => "transaction",
        }
    }
}

fn has_percent_escape(text: &str) -> bool {
    text.as_bytes().windows(3).any(|bytes| {
        bytes[0] == b'%' && bytes[1].is_ascii_hexdigit() && bytes[2].is_ascii_hexdigit()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(path: &str, expected: &str) {
        let found = match route(path) {
            Ok(route) => {
                let links: Vec<&str> = route.subject.links().collect();
                format!("{:?} {} {links:?}", route.target, route.subject.resource_type)
            }
            Err(error) => format!("{}", error.kind.status()),
        };
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn paths_are_understood() {
        check("/", r#"Account  [""]"#);
        check("", r#"Account  [""]"#);
        check("//dbs//", r#"Databases dbs [""]"#);
        check("/dbs/ToDo/", r#"Database("ToDo") dbs ["dbs/ToDo"]"#);
        check("/dbs/d/colls", r#"InDatabase("d", Containers) colls ["dbs/d"]"#);
        check("/dbs/d/users/u", r#"InDatabase("d", User("u")) users ["dbs/d/users/u"]"#);
        check(
            "/dbs/d/users/u/permissions",
            r#"InDatabase("d", Permissions("u")) permissions ["dbs/d/users/u"]"#,
        );
        check(
            "/dbs/d/users/u/permissions/p",
            r#"InDatabase("d", Permission("u", "p")) permissions ["dbs/d/users/u/permissions/p"]"#,
        );
        check(
            "/dbs/d/colls/c/docs/a%2Fb+c",
            concat!(
                r#"InContainer(ContainerPath { database: "d", container: "c" }, "#,
                r#"Document("a/b+c")) docs ["dbs/d/colls/c/docs/a/b+c", "#,
                r#""dbs/d/colls/c/docs/a%2Fb+c"]"#
            ),
        );
        check(
            "/dbs/d/colls/c/operations/partitionkeydelete",
            concat!(
                r#"InContainer(ContainerPath { database: "d", container: "c" }, "#,
                r#"DeletePartition) colls ["dbs/d/colls/c"]"#
            ),
        );
        check("/offers/Xl9v/", r#"Offer("Xl9v") offers ["offers/Xl9v", "xl9v"]"#);
        check("/operations/dtc", r#"Transactions distributedtransactionbatch [""]"#);
        check("/_explorer/emulator.pem", r#"Operator(Certificate)  [""]"#);
    }

    #[test]
    fn ids_are_decoded_exactly_once() {
        let id = |path: &str| match route(path).unwrap().target {
            Target::InContainer(_, ContainerTarget::Document(id)) => id,
            other => panic!("{other:?}"),
        };
        assert_eq!(id("/dbs/d/colls/c/docs/%2520"), "%20");
        assert_eq!(id("/dbs/d/colls/c/docs/100%"), "100%");
        assert_eq!(id("/dbs/d/colls/c/docs/%E2%82%AC"), "€");
    }

    #[test]
    fn other_paths_are_refused() {
        check("/nothing", "404");
        check("/dbs/d/tables", "404");
        check("/dbs/d/colls/c/docs/i/attachments", "404");
        check("/addresses/", "404");
        check("/operations/other", "404");
        check("/dbs/%ff", "400");
        check("/a/b/c/d/e/f/g/h/i/j/k/l", "404");
    }

    proptest! {
        #[test]
        fn no_path_panics(path in ".*") {
            let _ = route(&path);
        }

        #[test]
        fn slashes_mean_nothing(names in proptest::collection::vec("[a-z%]{1,8}", 0..6)) {
            let plain = route(&format!("/{}", names.join("/"))).map_err(|error| error.kind);
            let doubled = route(&format!("//{}//", names.join("//"))).map_err(|error| error.kind);
            prop_assert_eq!(plain, doubled);
        }
    }
}
