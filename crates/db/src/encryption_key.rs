//! Client encryption keys. The server stores and echoes them: encryption happens in the client.

use std::sync::Arc;

use storage::RangeStore;
use value::{ClientEncryptionKeyRid, Object};

use crate::catalog::EncryptionKey;
use crate::database::Db;
use crate::meta::MetaKind;
use crate::resource::{self, Resource};
use crate::{Error, Result};

const REQUIRED: [&str; 3] = ["encryptionAlgorithm", "wrappedDataEncryptionKey", "keyWrapMetadata"];

impl<S: RangeStore> Db<S> {
    /// All client encryption keys of a database.
    pub fn encryption_keys(&self, database: &str) -> Result<Vec<Resource>> {
        let database = self.owner(database)?;
        Ok(database.encryption_keys.values().map(|key| key.resource.clone()).collect())
    }

    /// One client encryption key.
    pub fn encryption_key(&self, database: &str, key: &str) -> Result<Resource> {
        Ok(self.owner(database)?.encryption_key(key)?.resource.clone())
    }

    /// Creates a client encryption key.
    pub async fn create_encryption_key(&self, database: &str, body: &Object) -> Result<Resource> {
        self.put_encryption_key(database, None, body, None).await
    }

    /// Replaces a client encryption key, such as after its wrapping key was rotated.
    pub async fn replace_encryption_key(
        &self,
        database: &str,
        key: &str,
        body: &Object,
        if_match: Option<&str>,
    ) -> Result<Resource> {
        self.put_encryption_key(database, Some(key), body, if_match).await
    }

    async fn put_encryption_key(
        &self,
        database: &str,
        current: Option<&str>,
        body: &Object,
        if_match: Option<&str>,
    ) -> Result<Resource> {
        let name = resource::name_of(body)?;
        let missing: String =
            REQUIRED.iter().filter(|m| !body.contains(m)).map(|m| format!("{m}; ")).collect();
        if !missing.is_empty() {
            return Err(Error::bad_request(format!(
                "The input content is invalid because the required properties - '{missing}' - are missing"
            )));
        }
        let mut edit = self.edit(database).await?;
        let owner = &edit.owner;
        let rid = match current {
            Some(current) => {
                let current = owner.encryption_key(current)?;
                resource::same_name(body, &current.resource.id)?;
                current.resource.check_match(if_match)?;
                current.rid
            }
            None if owner.encryption_keys.contains_key(&name) => {
                return Err(resource::name_taken());
            }
            None => ClientEncryptionKeyRid::new(owner.rid, u64::from(edit.next.next_number())),
        };
        let stamp = self.stamp(&mut edit.next);
        let resource = Resource::build(
            resource::user_members(body),
            rid.to_string(),
            format!("dbs/{}/clientencryptionkeys/{rid}/", edit.owner.rid),
            &[],
            &stamp,
        );
        edit.change.put_object(MetaKind::EncryptionKey, &resource.rid, &resource.body);
        let key = EncryptionKey { rid, resource: resource.clone() };
        edit.owner.encryption_keys.insert(name, Arc::new(key));
        self.save(edit).await?;
        Ok(resource)
    }

    /// Deletes a client encryption key.
    pub async fn delete_encryption_key(
        &self,
        database: &str,
        key: &str,
        if_match: Option<&str>,
    ) -> Result<()> {
        let mut edit = self.edit(database).await?;
        let key = edit.owner.encryption_key(key)?.clone();
        key.resource.check_match(if_match)?;
        edit.change.delete(MetaKind::EncryptionKey, &key.resource.rid);
        edit.owner.encryption_keys.remove(&key.resource.id);
        self.save(edit).await
    }
}
