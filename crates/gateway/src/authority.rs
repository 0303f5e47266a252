//! What a caller may do.
//!
//! Keys open the account, or let it be read; AAD tokens open documents and let the rest be read;
//! resource tokens open one container, or a part of it, as the permission says that they were made
//! from.

use db::{Access, Container, Db, Error, Grant, Kind, Result, What};
use hyper::http::request::Parts;
use storage::RangeStore;

use crate::auth::Caller;
use crate::documents;
use crate::request::{Action, Options};
use crate::router::{ContainerPath, ContainerTarget, Target};

/// Who is asking, verified.
#[derive(Clone, Debug)]
pub(crate) enum Authority {
    /// May do everything.
    Owner,
    /// May read everything.
    Reader,
    /// May do everything with documents, and read the rest.
    Directory,
    /// May do what a permission says.
    Token(Grant),
    /// Has shown nothing, and may see what anybody may see.
    Anybody,
}

impl Authority {
    /// Verifies what only the database can: resource tokens.
    pub(crate) fn verify<S: RangeStore>(db: &Db<S>, caller: Caller) -> Result<Self> {
        Ok(match caller {
            Caller::Owner => Authority::Owner,
            Caller::Reader => Authority::Reader,
            Caller::Directory => Authority::Directory,
            Caller::Bearer(token) => Authority::Token(db.verify_token(&token)?),
        })
    }

    /// Refuses what can be refused without looking at the database.
    pub(crate) fn check(&self, target: &Target, action: Action, head: &Parts) -> Result<()> {
        let allowed = match self {
            Authority::Owner => true,
            Authority::Reader => action.is_read(),
            Authority::Directory => {
                if action.is_read() || action == Action::Execute || is_about_documents(target) {
                    return Ok(());
                }
                return Err(Error::new(
                    Kind::ControlByAad,
                    format!(
                        "The given request [{} {}] cannot be authorized by AAD token in data \
                         plane.",
                        head.method,
                        head.uri.path()
                    ),
                ));
            }
            Authority::Token(_) => matches!(target, Target::Account | Target::InContainer(..)),
            Authority::Anybody => matches!(target, Target::Account | Target::Operator(_)),
        };
        if allowed { Ok(()) } else { Err(insufficient()) }
    }

    /// Refuses what a permission does not allow for a container.
    pub(crate) fn check_container(
        &self,
        container: &Container,
        path: &ContainerPath,
        target: &ContainerTarget,
        action: Action,
        options: &Options,
    ) -> Result<()> {
        let Authority::Token(grant) = self else { return Ok(()) };
        let address = match target {
            ContainerTarget::Document(id) => Some(documents::address(container, path, id)),
            _ => None,
        };
        let what = match (target, &address) {
            // Where a container is cut is up to whoever runs the server.
            (ContainerTarget::Ranges, _) if !action.is_read() => return Err(insufficient()),
            (ContainerTarget::Itself | ContainerTarget::Ranges, _) => What::Container,
            (_, Some(address)) => What::Document(address),
            _ => What::Documents,
        };
        let (write, key) = (!action.is_read(), options.key.as_ref());
        if grant.allows(&Access { container, write, what, key }) {
            Ok(())
        } else {
            Err(insufficient())
        }
    }
}

fn is_about_documents(target: &Target) -> bool {
    use ContainerTarget::{Conflict, Conflicts, DeletePartition, Document, Documents};
    matches!(
        target,
        Target::Transactions
            | Target::InContainer(
                _,
                Documents | Document(_) | DeletePartition | Conflicts | Conflict(_)
            )
    )
}

fn insufficient() -> Error {
    Error::new(
        Kind::Forbidden,
        "Insufficient permissions provided in the authorization header for the corresponding \
         request. Please retry with another authorization header.",
    )
}
