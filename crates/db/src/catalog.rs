//! All resources but documents, in memory.
//!
//! The catalog is small (the service allows 500 databases and containers), is read by every request
//! and changes rarely. A change builds a new catalog, stores its rows in the meta range and then
//! swaps the pointer: requests never wait for one another here.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use value::{ClientEncryptionKeyRid, ContainerRid, DatabaseRid, OfferRid, PermissionRid, UserRid};

use crate::container::Container;
use crate::resource::Resource;
use crate::{Error, Result};

/// Every resource of the account but documents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) databases: BTreeMap<String, Arc<Database>>,
    database_names: HashMap<DatabaseRid, String>,
    pub(crate) offers: BTreeMap<OfferRid, Arc<Resource>>,
}

/// A database with what belongs to it.
#[derive(Clone, Debug)]
pub struct Database {
    /// The resource id.
    pub rid: DatabaseRid,
    /// What clients see.
    pub resource: Resource,
    pub(crate) containers: BTreeMap<String, Arc<Container>>,
    container_names: HashMap<ContainerRid, String>,
    pub(crate) users: BTreeMap<String, Arc<User>>,
    pub(crate) encryption_keys: BTreeMap<String, Arc<EncryptionKey>>,
}

/// A user of a database with its permissions.
#[derive(Clone, Debug)]
pub struct User {
    /// The resource id.
    pub rid: UserRid,
    /// What clients see.
    pub resource: Resource,
    pub(crate) permissions: BTreeMap<String, Arc<Permission>>,
}

/// A permission of a user.
#[derive(Clone, Debug)]
pub(crate) struct Permission {
    pub(crate) rid: PermissionRid,
    /// Without a token: that is made anew for every answer.
    pub(crate) resource: Resource,
}

/// A key that clients encrypt with; stored and handed out as it came.
#[derive(Clone, Debug)]
pub(crate) struct EncryptionKey {
    pub(crate) rid: ClientEncryptionKeyRid,
    pub(crate) resource: Resource,
}

impl Catalog {
    /// The database of a name or resource id.
    pub(crate) fn database(&self, name: &str) -> Option<&Arc<Database>> {
        let by_rid = DatabaseRid::parse(name).ok().and_then(|rid| self.database_names.get(&rid));
        self.databases.get(by_rid.map_or(name, String::as_str))
    }

    pub(crate) fn insert_database(&mut self, database: Arc<Database>) {
        self.database_names.insert(database.rid, database.resource.id.clone());
        self.databases.insert(database.resource.id.clone(), database);
    }

    pub(crate) fn remove_database(&mut self, id: &str) {
        if let Some(database) = self.databases.remove(id) {
            self.database_names.remove(&database.rid);
        }
    }

    /// The offer of a database or container, by its `_self`.
    pub(crate) fn offer_of(&self, self_link: &str) -> Option<(OfferRid, &Arc<Resource>)> {
        let of = |offer: &Resource| {
            offer.body.get("resource").and_then(value::Value::as_str) == Some(self_link)
        };
        self.offers.iter().find(|(_, offer)| of(offer)).map(|(rid, offer)| (*rid, offer))
    }

    /// How many databases and containers there are; the service limits their sum.
    pub(crate) fn size(&self) -> usize {
        self.databases.values().map(|database| 1 + database.containers.len()).sum()
    }

    /// The container of a resource id.
    pub(crate) fn container_of(&self, rid: ContainerRid) -> Option<&Arc<Container>> {
        let database = self.databases.get(self.database_names.get(&rid.database)?)?;
        database.containers.get(database.container_names.get(&rid)?)
    }

    pub(crate) fn containers(&self) -> impl Iterator<Item = &Arc<Container>> {
        self.databases.values().flat_map(|database| database.containers.values())
    }
}

impl Database {
    pub(crate) fn new(rid: DatabaseRid, resource: Resource) -> Self {
        Self {
            rid,
            resource,
            containers: BTreeMap::new(),
            container_names: HashMap::new(),
            users: BTreeMap::new(),
            encryption_keys: BTreeMap::new(),
        }
    }

    /// The container of a name or resource id.
    pub(crate) fn container(&self, name: &str) -> Option<&Arc<Container>> {
        let by_rid = ContainerRid::parse(name).ok().and_then(|rid| self.container_names.get(&rid));
        self.containers.get(by_rid.map_or(name, String::as_str))
    }

    pub(crate) fn insert_container(&mut self, container: Arc<Container>) {
        self.container_names.insert(container.rid, container.id.clone());
        self.containers.insert(container.id.clone(), container);
    }

    pub(crate) fn remove_container(&mut self, id: &str) {
        if let Some(container) = self.containers.remove(id) {
            self.container_names.remove(&container.rid);
        }
    }

    /// The user of a name or resource id.
    pub(crate) fn user(&self, name: &str) -> Option<&Arc<User>> {
        let by_rid = UserRid::parse(name).ok();
        let by_rid = by_rid.and_then(|rid| self.users.values().find(|user| user.rid == rid));
        by_rid.or_else(|| self.users.get(name))
    }

    /// The encryption key of a name or resource id.
    pub(crate) fn encryption_key(&self, name: &str) -> Result<&Arc<EncryptionKey>> {
        let by_rid = ClientEncryptionKeyRid::parse(name).ok();
        let by_rid =
            by_rid.and_then(|rid| self.encryption_keys.values().find(|key| key.rid == rid));
        by_rid.or_else(|| self.encryption_keys.get(name)).ok_or_else(Error::not_found)
    }
}

impl User {
    /// The permission of a name or resource id.
    pub(crate) fn permission(&self, name: &str) -> Result<&Arc<Permission>> {
        let by_rid = PermissionRid::parse(name).ok();
        let by_rid = by_rid
            .and_then(|rid| self.permissions.values().find(|permission| permission.rid == rid));
        by_rid.or_else(|| self.permissions.get(name)).ok_or_else(Error::not_found)
    }
}
