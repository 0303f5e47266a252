//! Reads the catalog from the meta range when the server starts.

use std::collections::HashMap;
use std::sync::Arc;

use storage::Snapshot;
use value::{
    ClientEncryptionKeyRid, ContainerRid, DatabaseRid, OfferRid, PermissionRid, ScriptRid, UserRid,
};

use crate::Result;
use crate::catalog::{Catalog, Database, EncryptionKey, Permission, User};
use crate::containers;
use crate::meta::{self, MetaKind};
use crate::resource::Resource;
use crate::row::corrupt;
use crate::scripts::Scripts;

/// The catalog as it was last stored. Parents come before children, so one pass is enough.
pub(crate) fn catalog(meta: &impl Snapshot) -> Result<Catalog> {
    let mut catalog = Catalog::default();
    let mut databases = Vec::new();
    for (_, row) in meta::rows(meta, MetaKind::Database)? {
        let resource = Resource::load(meta::object(&row)?)?;
        let rid = DatabaseRid::parse(&resource.rid).map_err(|_| corrupt("database"))?;
        databases.push(Database::new(rid, resource));
    }
    let mut scripts = scripts(meta)?;
    for (_, row) in meta::rows(meta, MetaKind::Container)? {
        let (owner, load) = containers::load(&meta::object(&row)?)?;
        let database = databases.iter_mut().find(|database| database.rid == owner);
        let database = database.ok_or_else(|| corrupt("container without database"))?;
        let mut container = load(database)?;
        container.scripts = Arc::new(scripts.remove(&container.rid).unwrap_or_default());
        database.insert_container(Arc::new(container));
    }
    if !scripts.is_empty() {
        return Err(corrupt("script without container"));
    }
    let mut users = Vec::new();
    for (_, row) in meta::rows(meta, MetaKind::User)? {
        let resource = Resource::load(meta::object(&row)?)?;
        let rid = UserRid::parse(&resource.rid).map_err(|_| corrupt("user"))?;
        users.push(User { rid, resource, permissions: Default::default() });
    }
    for (_, row) in meta::rows(meta, MetaKind::Permission)? {
        let resource = Resource::load(meta::object(&row)?)?;
        let rid = PermissionRid::parse(&resource.rid).map_err(|_| corrupt("permission"))?;
        let user = users.iter_mut().find(|user| user.rid == rid.user);
        let user = user.ok_or_else(|| corrupt("permission without user"))?;
        user.permissions.insert(resource.id.clone(), Arc::new(Permission { rid, resource }));
    }
    for user in users {
        let owner = user.rid.database;
        let database = databases.iter_mut().find(|database| database.rid == owner);
        let database = database.ok_or_else(|| corrupt("user without database"))?;
        database.users.insert(user.resource.id.clone(), Arc::new(user));
    }
    for (_, row) in meta::rows(meta, MetaKind::EncryptionKey)? {
        let resource = Resource::load(meta::object(&row)?)?;
        let rid = ClientEncryptionKeyRid::parse(&resource.rid)
            .map_err(|_| corrupt("client encryption key"))?;
        let database = databases.iter_mut().find(|database| database.rid == rid.database);
        let database = database.ok_or_else(|| corrupt("encryption key without database"))?;
        let key = EncryptionKey { rid, resource };
        database.encryption_keys.insert(key.resource.id.clone(), Arc::new(key));
    }
    for database in databases {
        catalog.insert_database(Arc::new(database));
    }
    for (_, row) in meta::rows(meta, MetaKind::Offer)? {
        let resource = Resource::load(meta::object(&row)?)?;
        let rid = OfferRid::parse(&resource.rid).map_err(|_| corrupt("offer"))?;
        catalog.offers.insert(rid, Arc::new(resource));
    }
    Ok(catalog)
}

/// The scripts of all containers.
fn scripts(meta: &impl Snapshot) -> Result<HashMap<ContainerRid, Scripts>> {
    let mut scripts: HashMap<_, Scripts> = HashMap::new();
    for (_, row) in meta::rows(meta, MetaKind::Script)? {
        let resource = Resource::load(meta::object(&row)?)?;
        let rid = ScriptRid::parse(&resource.rid).map_err(|_| corrupt("script"))?;
        scripts.entry(rid.container).or_default().insert(rid, resource);
    }
    Ok(scripts)
}
