//! Users of a database, who hold permissions.

use std::sync::Arc;

use storage::RangeStore;
use value::{Object, UserRid, Value};

use crate::catalog::User;
use crate::database::Db;
use crate::meta::MetaKind;
use crate::resource::{self, Resource};
use crate::{Error, Result};

impl<S: RangeStore> Db<S> {
    /// All users of a database.
    pub fn users(&self, database: &str) -> Result<Vec<Resource>> {
        Ok(self.owner(database)?.users.values().map(|user| user.resource.clone()).collect())
    }

    /// Creates a user.
    pub async fn create_user(&self, database: &str, body: &Object) -> Result<Resource> {
        self.put_user(database, None, body, None).await
    }

    /// Replaces a user, whose name may change.
    pub async fn replace_user(
        &self,
        database: &str,
        user: &str,
        body: &Object,
        if_match: Option<&str>,
    ) -> Result<Resource> {
        self.put_user(database, Some(user), body, if_match).await
    }

    /// Creates a user, or replaces the one of that name; says whether it was created.
    pub async fn upsert_user(&self, database: &str, body: &Object) -> Result<(Resource, bool)> {
        let name = resource::name_of(body)?;
        let exists = self.owner(database)?.users.contains_key(&name);
        let current = exists.then_some(name.as_str());
        Ok((self.put_user(database, current, body, None).await?, !exists))
    }

    async fn put_user(
        &self,
        database: &str,
        current: Option<&str>,
        body: &Object,
        if_match: Option<&str>,
    ) -> Result<Resource> {
        let name = resource::name_of(body)?;
        let mut edit = self.edit(database).await?;
        let owner = &edit.owner;
        let current = match current {
            Some(current) => Some(owner.user(current).cloned().ok_or_else(Error::not_found)?),
            None => None,
        };
        let current_name = current.as_ref().map(|user| user.resource.id.as_str());
        if owner.users.contains_key(&name) && current_name != Some(&name) {
            return Err(resource::name_taken());
        }
        if let Some(current) = &current {
            current.resource.check_match(if_match)?;
        }
        let rid = match &current {
            Some(current) => current.rid,
            None => UserRid::new(owner.rid, edit.next.next_number()),
        };
        let stamp = self.stamp(&mut edit.next);
        let resource = Resource::build(
            Object::from([("id", Value::from(name.as_str()))]),
            rid.to_string(),
            format!("dbs/{}/users/{rid}/", edit.owner.rid),
            &[("_permissions", "permissions/")],
            &stamp,
        );
        edit.change.put_object(MetaKind::User, &resource.rid, &resource.body);
        let permissions = current.as_ref().map(|user| user.permissions.clone());
        let user =
            User { rid, resource: resource.clone(), permissions: permissions.unwrap_or_default() };
        if let Some(current) = current {
            edit.owner.users.remove(&current.resource.id);
        }
        edit.owner.users.insert(name, Arc::new(user));
        self.save(edit).await?;
        Ok(resource)
    }

    /// Deletes a user with its permissions. Tokens that were handed out live on until they expire.
    pub async fn delete_user(
        &self,
        database: &str,
        user: &str,
        if_match: Option<&str>,
    ) -> Result<()> {
        let mut edit = self.edit(database).await?;
        let user = edit.owner.user(user).cloned().ok_or_else(Error::not_found)?;
        user.resource.check_match(if_match)?;
        edit.change.delete(MetaKind::User, &user.resource.rid);
        for permission in user.permissions.values() {
            edit.change.delete(MetaKind::Permission, &permission.resource.rid);
        }
        edit.owner.users.remove(&user.resource.id);
        self.save(edit).await
    }
}
