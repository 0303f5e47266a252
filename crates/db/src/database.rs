//! The database server as a whole: opening it, and databases within it.

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use ring::hmac;
use storage::{Committed, META_RANGE, RangeStore, Snapshot, SubmitError};
use tokio::sync::{Mutex, OwnedMutexGuard};
use value::{DatabaseRid, Etag, Object};

use crate::catalog::{Catalog, Database, User};
use crate::clock::{Clock, Ids};
use crate::container::{Container, Range};
use crate::meta::{self, Change, MetaKind, Settings};
use crate::meter::SharedMeters;
use crate::offer::{RangeThroughput, Throughput};
use crate::resource::{self, Resource, Stamp};
use crate::row::RangeHeader;
use crate::scripts::Executor;
use crate::{Error, Kind, Result, key};

/// The database server over a store of ranges.
///
/// Requests read the catalog through an atomic pointer. Changes of metadata wait for each other on
/// the settings; documents never do.
pub struct Db<S: RangeStore> {
    pub(crate) store: Arc<S>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Arc<ArcSwap<Catalog>>,
    pub(crate) settings: Arc<Mutex<Settings>>,
    pub(crate) signing: hmac::Key,
    pub(crate) executor: Executor,
    pub(crate) shared_meters: SharedMeters,
    pub(crate) range_throughput: RangeThroughput,
    /// Ranges are cut anew one after the other.
    pub(crate) recutting: Mutex<()>,
    /// Ranges that were replaced and that somebody may still be reading.
    pub(crate) retired: std::sync::Mutex<Vec<Arc<Range>>>,
}

/// How many databases and containers the service allows in an account.
const CATALOG_MAX: usize = 500;
/// The links of a database to its children.
const LINKS: [(&str, &str); 2] = [("_colls", "colls/"), ("_users", "users/")];

impl<S: RangeStore> Db<S> {
    /// Opens what the store holds; an empty store becomes an empty account.
    pub async fn open(store: Arc<S>, clock: Arc<dyn Clock>, ids: &dyn Ids) -> Result<Arc<Self>> {
        Self::open_with(store, clock, ids, RangeThroughput::default()).await
    }

    /// Opens what the store holds, with ranges of another throughput than the service's.
    pub async fn open_with(
        store: Arc<S>,
        clock: Arc<dyn Clock>,
        ids: &dyn Ids,
        range_throughput: RangeThroughput,
    ) -> Result<Arc<Self>> {
        if !store.ranges().iter().any(|(range, _)| *range == META_RANGE) {
            store.create_ranges(&[META_RANGE]).await?;
        }
        let snapshot = store.snapshot(META_RANGE)?;
        let settings = match snapshot.get(&meta::key(MetaKind::Settings, ""))? {
            Some(row) => Settings::decode(&row)?,
            None => first_settings(store.as_ref(), ids).await?,
        };
        let signing = hmac::Key::new(hmac::HMAC_SHA256, &settings.secret);
        let catalog = crate::load::catalog(&snapshot)?;
        for container in catalog.containers() {
            for range in &container.ranges {
                let snapshot = store.snapshot(range.storage)?;
                let header = snapshot.get(&key::header())?;
                let header = header.ok_or_else(|| crate::row::corrupt("range without header"))?;
                let header = RangeHeader::decode(&header)?;
                range.script_numbers.go_on_from(header.next_script_ordinal);
                if header.purges > 0 {
                    range.purges.began(snapshot.lsn());
                }
            }
        }
        let db = Arc::new(Self {
            store,
            clock,
            catalog: Arc::new(ArcSwap::from_pointee(catalog)),
            settings: Arc::new(Mutex::new(settings)),
            signing,
            executor: Executor::new(),
            shared_meters: SharedMeters::default(),
            range_throughput,
            recutting: Mutex::default(),
            retired: std::sync::Mutex::default(),
        });
        db.erase_leftovers(&snapshot).await?;
        Ok(db)
    }

    /// Stops in order, so that the next opening is fast.
    pub async fn close(&self) -> Result<()> {
        Ok(self.store.close().await?)
    }

    /// Refuses when the storage has failed: nothing is served until it is opened again, not even what
    /// is still in memory.
    pub fn check_open(&self) -> Result<()> {
        self.store.snapshot(META_RANGE)?;
        Ok(())
    }

    /// The clock that everything here goes by.
    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// Erases ranges whose container is gone or never came to be: a crash came between.
    async fn erase_leftovers(&self, meta: &S::Snapshot) -> Result<()> {
        let mut done = Change::default();
        for (name, _) in meta::rows(meta, MetaKind::Erase)? {
            done.delete(MetaKind::Erase, &name);
        }
        let catalog = self.catalog.load_full();
        let known = |range| {
            range == META_RANGE
                || catalog.containers().any(|c| c.ranges.iter().any(|r| r.storage == range))
        };
        let leftovers = self.store.ranges().into_iter().map(|(range, _)| range);
        for range in leftovers.filter(|range| !known(*range)) {
            tracing::info!(range = range.0, "erasing the rows of a container that is gone");
            self.store.erase(range).await?;
        }
        self.commit_meta(done).await
    }

    pub(crate) async fn commit_meta(&self, change: Change) -> Result<()> {
        settled(self.store.submit(META_RANGE, change).await)
    }

    /// Waits for other changes of the catalog to be done.
    pub(crate) async fn lock_settings(&self) -> OwnedMutexGuard<Settings> {
        self.settings.clone().lock_owned().await
    }

    /// Stores a change of the catalog and makes it visible.
    ///
    /// A request is dropped when its client leaves, but what it submitted is stored all the same, and
    /// what is stored must show. So this runs to its end by itself, and the next change waits for it.
    pub(crate) async fn publish(
        &self,
        mut current: OwnedMutexGuard<Settings>,
        next: Settings,
        catalog: Catalog,
        mut change: Change,
    ) -> Result<OwnedMutexGuard<Settings>> {
        change.put(MetaKind::Settings, "", next.encode());
        let submitted = self.store.submit(META_RANGE, change);
        let visible = self.catalog.clone();
        let publishing = tokio::spawn(async move {
            settled(submitted.await)?;
            *current = next;
            visible.store(Arc::new(catalog));
            Ok(current)
        });
        publishing.await.map_err(stopping)?
    }

    /// Starts a change of one database; nothing else changes in the catalog until it is done.
    pub(crate) async fn edit(&self, database: &str) -> Result<Edit> {
        let settings = self.lock_settings().await;
        let catalog = Catalog::clone(&self.catalog.load());
        let owner = catalog.database(database).ok_or_else(Error::owner_not_found)?;
        let owner = Database::clone(owner);
        let next = settings.clone();
        Ok(Edit { owner, next, change: Change::default(), catalog, settings })
    }

    /// Stores a change of one database and makes it visible.
    pub(crate) async fn save(&self, edit: Edit) -> Result<()> {
        let Edit { owner, next, change, mut catalog, settings } = edit;
        catalog.insert_database(Arc::new(owner));
        self.publish(settings, next, catalog, change).await?;
        Ok(())
    }

    /// The stamp of the change that is being made.
    pub(crate) fn stamp(&self, next: &mut Settings) -> Stamp {
        next.version += 1;
        let ts = self.clock.now_s();
        Stamp { etag: Etag::new(next.version, 0, ts), ts }
    }

    /// The database of a name or resource id.
    pub fn database(&self, name: &str) -> Result<Arc<Database>> {
        self.catalog.load().database(name).cloned().ok_or_else(Error::not_found)
    }

    /// The database that owns what is addressed.
    pub(crate) fn owner(&self, name: &str) -> Result<Arc<Database>> {
        self.catalog.load().database(name).cloned().ok_or_else(Error::owner_not_found)
    }

    /// The container of a name or resource id.
    pub fn container(&self, database: &str, container: &str) -> Result<Arc<Container>> {
        let catalog = self.catalog.load();
        let database = catalog.database(database).ok_or_else(Error::owner_not_found)?;
        database.container(container).cloned().ok_or_else(Error::not_found)
    }

    /// The user of a name or resource id.
    pub fn user(&self, database: &str, user: &str) -> Result<Arc<User>> {
        self.owner(database)?.user(user).cloned().ok_or_else(Error::not_found)
    }

    /// All databases.
    pub fn databases(&self) -> Vec<Resource> {
        self.catalog.load().databases.values().map(|d| d.resource.clone()).collect()
    }

    /// Creates a database, with shared throughput if there is any.
    pub async fn create_database(
        &self,
        body: &Object,
        throughput: Option<Throughput>,
    ) -> Result<Resource> {
        let name = resource::name_of(body)?;
        let throughput = throughput.map(Throughput::checked).transpose()?;
        let settings = self.lock_settings().await;
        let mut catalog = Catalog::clone(&self.catalog.load());
        if catalog.databases.contains_key(&name) {
            return Err(resource::name_taken());
        }
        check_room(&catalog)?;
        let mut next = settings.clone();
        let rid = DatabaseRid(next.next_number());
        let stamp = self.stamp(&mut next);
        let resource = Resource::build(
            Object::from([("id", value::Value::from(name))]),
            rid.to_string(),
            format!("dbs/{rid}/"),
            &LINKS,
            &stamp,
        );
        let mut change = Change::default();
        change.put_object(MetaKind::Database, &resource.rid, &resource.body);
        if let Some(throughput) = throughput {
            throughput.create(&mut next, &mut catalog, &mut change, &resource, &stamp);
        }
        catalog.insert_database(Arc::new(Database::new(rid, resource.clone())));
        self.publish(settings, next, catalog, change).await?;
        Ok(resource)
    }

    /// Deletes a database with everything in it.
    pub async fn delete_database(&self, name: &str, if_match: Option<&str>) -> Result<()> {
        let settings = self.lock_settings().await;
        let mut catalog = Catalog::clone(&self.catalog.load());
        let database = catalog.database(name).cloned().ok_or_else(Error::not_found)?;
        database.resource.check_match(if_match)?;
        let mut change = Change::default();
        change.delete(MetaKind::Database, &database.resource.rid);
        crate::offer::remove(&mut catalog, &mut change, database.resource.self_link());
        for container in database.containers.values() {
            forget_container(&mut catalog, &mut change, container);
        }
        for user in database.users.values() {
            change.delete(MetaKind::User, &user.resource.rid);
            for permission in user.permissions.values() {
                change.delete(MetaKind::Permission, &permission.resource.rid);
            }
        }
        for encryption_key in database.encryption_keys.values() {
            change.delete(MetaKind::EncryptionKey, &encryption_key.resource.rid);
        }
        catalog.remove_database(&database.resource.id);
        let next = settings.clone();
        self.publish(settings, next, catalog, change).await?;
        for container in database.containers.values() {
            self.erase_ranges(container).await?;
        }
        Ok(())
    }

    /// Erases the ranges of a container that is gone from the catalog; to the end, also when the
    /// client leaves.
    pub(crate) async fn erase_ranges(&self, container: &Container) -> Result<()> {
        let store = self.store.clone();
        let ranges: Vec<_> = container.ranges.iter().map(|range| range.storage).collect();
        let erasing = tokio::spawn(async move {
            let mut done = Change::default();
            for range in ranges {
                store.erase(range).await?;
                done.delete(MetaKind::Erase, &range.0.to_string());
            }
            settled(store.submit(META_RANGE, done).await)
        });
        erasing.await.map_err(stopping)?
    }
}

/// A change of one database that is being made: what it will be, and the rows that say so.
pub(crate) struct Edit {
    pub(crate) owner: Database,
    pub(crate) next: Settings,
    pub(crate) change: Change,
    pub(crate) catalog: Catalog,
    settings: OwnedMutexGuard<Settings>,
}

/// A task of ours ended before its time.
pub(crate) fn stopping(_: tokio::task::JoinError) -> Error {
    Error::new(Kind::Unavailable, "the server is stopping")
}

/// Takes a container out of the rows; its ranges are erased after the commit, or after a crash.
pub(crate) fn forget_container(catalog: &mut Catalog, change: &mut Change, container: &Container) {
    change.delete(MetaKind::Container, &container.resource.rid);
    container.scripts.forget(change);
    crate::offer::remove(catalog, change, &container.self_link);
    for range in &container.ranges {
        change.put(MetaKind::Erase, &range.storage.0.to_string(), Bytes::new());
    }
}

pub(crate) fn check_room(catalog: &Catalog) -> Result<()> {
    if catalog.size() >= CATALOG_MAX {
        return Err(Error::new(
            Kind::Forbidden,
            format!(
                "the account already has {CATALOG_MAX} databases and containers, which is the limit"
            ),
        ));
    }
    Ok(())
}

impl Settings {
    /// The next number for a database, container, user, permission or encryption key.
    pub(crate) fn next_number(&mut self) -> u32 {
        self.last_number = (self.last_number + 1) & 0x7FFF_FFFF;
        if self.last_number == 0 {
            self.last_number = 1;
        }
        self.last_number
    }
}

/// The settings of a new account.
///
/// Numbers start anywhere: a client that remembers resource ids and sessions of an account that was
/// thrown away must not take this one for it.
async fn first_settings<S: RangeStore>(store: &S, ids: &dyn Ids) -> Result<Settings> {
    let mut secret = vec![0; 32];
    ids.fill(&mut secret);
    let mut number = [0; 4];
    ids.fill(&mut number);
    let mut offer = [0; 4];
    ids.fill(&mut offer);
    let settings = Settings {
        version: 0,
        last_number: u32::from_be_bytes(number) & 0x3FFF_FFFF,
        last_offer: u32::from_be_bytes(offer) & 0x3F_FFFF,
        last_range: META_RANGE.0,
        secret,
    };
    let mut change = Change::default();
    change.put(MetaKind::Settings, "", settings.encode());
    settled(store.submit(META_RANGE, change).await)?;
    Ok(settings)
}

/// What became of a change of metadata, which is never refused.
fn settled(result: Result<Committed<()>, SubmitError<Infallible>>) -> Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(SubmitError::Storage(error)) => Err(error.into()),
        Err(SubmitError::Refused(never, _)) => match never {},
    }
}
