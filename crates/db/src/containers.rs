//! Containers as resources: created, replaced, deleted, and the ranges they are cut into.

use std::sync::Arc;

use storage::{Operation, RangeId, RangeStore, Snapshot, Stop, SubmitError, View};
use value::{
    ContainerRid, DatabaseRid, Epk, EpkRange, Object, PartitionKeyRangeRid, Value, even_split,
};

use crate::catalog::{Catalog, Database};
use crate::container::{Container, Range};
use crate::database::{Db, Edit, check_room, forget_container};
use crate::index::versions::{self, Index};
use crate::meta::{Change, MetaKind};
use crate::offer::Throughput;
use crate::policy;
use crate::resource::{self, Resource};
use crate::row::{RangeHeader, corrupt};
use crate::{Error, Kind, Result, key};

/// The links of a container to its children.
const LINKS: [(&str, &str); 5] = [
    ("_docs", "docs/"),
    ("_sprocs", "sprocs/"),
    ("_triggers", "triggers/"),
    ("_udfs", "udfs/"),
    ("_conflicts", "conflicts/"),
];

/// How many containers may share the throughput of their database.
const SHARED_MAX: usize = 25;

/// How much a container holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Documents, those included that have expired and wait to be removed.
    pub documents: u64,
    /// The sum of their texts.
    pub bytes: u64,
}

/// The partition key ranges of a container, and the etag of this list.
#[derive(Clone, Debug)]
pub struct RangeFeed {
    /// Changes when a range splits or merges.
    pub etag: String,
    /// The ranges as clients see them, in order.
    pub ranges: Vec<Object>,
}

impl<S: RangeStore> Db<S> {
    /// All containers of a database.
    pub fn containers(&self, database: &str) -> Result<Vec<Resource>> {
        let database = self.owner(database)?;
        Ok(database.containers.values().map(|container| container.resource.clone()).collect())
    }

    /// Creates a container with its ranges.
    ///
    /// `allow_missing_key` is for clients of old versions of the protocol, whose containers may do
    /// without a partition key.
    pub async fn create_container(
        &self,
        database: &str,
        body: &Object,
        throughput: Option<Throughput>,
        allow_missing_key: bool,
    ) -> Result<Resource> {
        let name = resource::name_of(body)?;
        let (policies, definition) = policy::check_new(body, allow_missing_key)?;
        let throughput = throughput.map(Throughput::checked).transpose()?;
        let settings = self.lock_settings().await;
        let catalog = self.catalog.load_full();
        let owner = catalog.database(database).cloned().ok_or_else(Error::owner_not_found)?;
        if owner.containers.contains_key(&name) {
            return Err(resource::name_taken());
        }
        check_room(&catalog)?;
        let shared = catalog.offer_of(owner.resource.self_link()).is_some();
        if shared && throughput.is_none() {
            check_shared(&catalog, &owner)?;
        }
        let throughput = throughput.or((!shared).then_some(Throughput::DEFAULT));

        // The numbers are taken in a commit of their own: a crash may waste them, but never lets
        // two ranges have the same one.
        let mut next = settings.clone();
        let rid = ContainerRid::new(owner.rid, next.next_number());
        let count = throughput.map_or(1, |units| units.range_count(self.range_throughput));
        let ranges = new_ranges(&mut next, count);
        let unchanged = Catalog::clone(&catalog);
        let settings = self.publish(settings, next.clone(), unchanged, Change::default()).await?;
        self.create_ranges(rid, &ranges, versions::FIRST).await?;

        let stamp = self.stamp(&mut next);
        let self_link = format!("dbs/{}/colls/{rid}/", owner.rid);
        let mut user = Object::from([("id", Value::from(name.as_str()))]);
        for (member, value) in definition {
            user.insert(member, value);
        }
        let resource = Resource::build(user, rid.to_string(), self_link.clone(), &LINKS, &stamp);
        let index = Index::new(&policies, &resource.body)?;
        let container = Container {
            rid,
            id: name,
            database_id: owner.resource.id.clone(),
            database_rid: owner.rid,
            resource: resource.clone(),
            policies,
            self_link,
            ranges,
            index,
            scripts: Arc::default(),
            changes: Arc::default(),
        };
        let mut catalog = Catalog::clone(&catalog);
        let mut change = Change::default();
        change.put_object(MetaKind::Container, &resource.rid, &stored(&container));
        if let Some(throughput) = throughput {
            throughput.create(&mut next, &mut catalog, &mut change, &resource, &stamp);
        }
        let mut owner = Database::clone(&owner);
        owner.insert_container(Arc::new(container));
        catalog.insert_database(Arc::new(owner));
        self.publish(settings, next, catalog, change).await?;
        Ok(resource)
    }

    pub(crate) async fn create_ranges(
        &self,
        container: ContainerRid,
        ranges: &[Arc<Range>],
        index: u32,
    ) -> Result<()> {
        let ids: Vec<RangeId> = ranges.iter().map(|range| range.storage).collect();
        self.store.create_ranges(&ids).await?;
        let first_rows: Vec<_> = ranges
            .iter()
            .map(|range| {
                let header = RangeHeader::new(container, range.first_rid_ordinal(), index);
                self.store.submit(range.storage, FirstRow(header))
            })
            .collect();
        for first_row in first_rows {
            match first_row.await {
                Ok(_) => {}
                Err(SubmitError::Storage(error)) => return Err(error.into()),
                Err(SubmitError::Refused(never, _)) => match never {},
            }
        }
        Ok(())
    }

    /// Replaces the definition of a container, as far as it may change.
    pub async fn replace_container(
        &self,
        database: &str,
        container: &str,
        body: &Object,
        if_match: Option<&str>,
    ) -> Result<Resource> {
        let mut edit = self.edit(database).await?;
        let current = edit.owner.container(container).cloned().ok_or_else(Error::not_found)?;
        let name = resource::same_name(body, &current.id)?;
        let (policies, definition) = policy::check_replace(body, &current.resource.body)?;
        current.resource.check_match(if_match)?;
        let stamp = self.stamp(&mut edit.next);
        let mut user = Object::from([("id", Value::from(name.as_str()))]);
        for (member, value) in definition {
            user.insert(member, value);
        }
        let resource = Resource::build(
            user,
            current.rid.to_string(),
            current.self_link.clone(),
            &LINKS,
            &stamp,
        );
        let in_use = self.definitions_in_use(&current)?;
        let index = current.index.redefined(&policies, &resource.body, &in_use)?;
        let replaced = Container {
            id: name,
            resource: resource.clone(),
            policies,
            ..current.with_index(index)
        };
        self.change_container(&mut edit, replaced);
        self.save(edit).await?;
        Ok(resource)
    }

    /// Puts a container in the place of the one that it was made from.
    pub(crate) fn change_container(&self, edit: &mut Edit, container: Container) {
        edit.change.put_object(MetaKind::Container, &container.resource.rid, &stored(&container));
        edit.owner.insert_container(Arc::new(container));
    }

    /// Deletes a container with its documents.
    pub async fn delete_container(
        &self,
        database: &str,
        container: &str,
        if_match: Option<&str>,
    ) -> Result<()> {
        let mut edit = self.edit(database).await?;
        let container = edit.owner.container(container).cloned().ok_or_else(Error::not_found)?;
        container.resource.check_match(if_match)?;
        forget_container(&mut edit.catalog, &mut edit.change, &container);
        edit.owner.remove_container(&container.id);
        self.save(edit).await?;
        self.erase_ranges(&container).await
    }

    /// The conflicts of a container: a server that writes in one place has none.
    pub fn conflicts(&self, _container: &Container) -> Vec<Resource> {
        Vec::new()
    }

    /// Refuses a client that remembers an earlier container of the same name.
    pub fn check_intended(&self, container: &Container, rid: &str) -> Result<()> {
        if ContainerRid::parse(rid) == Ok(container.rid) {
            return Ok(());
        }
        Err(Error::new(
            Kind::ContainerRidMismatch,
            format!(
                "the container's resource id is {}, not {rid}: it was created anew",
                container.rid
            ),
        ))
    }

    /// How much a container holds.
    pub fn container_usage(&self, container: &Container) -> Result<Usage> {
        let mut usage = Usage::default();
        for range in &container.ranges {
            let header = self.range_header(range)?;
            usage.documents += header.items;
            usage.bytes += header.bytes;
        }
        Ok(usage)
    }

    /// How much each range of a container holds, as clients ask for it.
    pub fn container_statistics(&self, container: &Container) -> Result<Value> {
        let mut statistics = Vec::new();
        for range in &container.ranges {
            let header = self.range_header(range)?;
            statistics.push(Value::Object(Object::from([
                ("id", Value::from(range.id.as_str())),
                ("sizeInKB", Value::from(header.bytes.div_ceil(1024))),
                ("documentCount", Value::from(header.items)),
                ("sampledDistinctPartitionKeyCount", Value::from(0u64)),
                ("partitionKeys", Value::Array(Vec::new())),
            ])));
        }
        Ok(Value::Array(statistics))
    }

    pub(crate) fn range_header(&self, range: &Range) -> Result<RangeHeader> {
        let row = self.store.snapshot(range.storage)?.get(&key::header())?;
        RangeHeader::decode(&row.ok_or_else(|| corrupt("range without header"))?)
    }

    /// The partition key ranges of a container.
    pub fn partition_key_ranges(&self, container: &Container) -> Result<RangeFeed> {
        let ts = container.resource.body.get("_ts").cloned().unwrap_or(Value::Null);
        let fraction = 1.0 / container.ranges.len() as f64;
        let mut ranges = Vec::new();
        for range in &container.ranges {
            let rid = PartitionKeyRangeRid::new(container.rid, range.number + 2).to_string();
            let parents = range.parents.iter().map(|id| Value::from(id.as_str()));
            ranges.push(Object::from([
                ("_rid", Value::from(rid.as_str())),
                ("id", Value::from(range.id.as_str())),
                ("_etag", Value::from(container.resource.etag.as_str())),
                ("minInclusive", Value::from(range.epk.min.to_string())),
                ("maxExclusive", Value::from(range.epk.max.to_string())),
                ("ridPrefix", Value::from(range.number)),
                ("_self", Value::from(format!("{}pkranges/{rid}/", container.self_link))),
                ("throughputFraction", Value::from(fraction)),
                ("status", Value::from("online")),
                ("parents", Value::Array(parents.collect())),
                ("ownedArchivalPKRangeIds", Value::Array(Vec::new())),
                ("_ts", ts.clone()),
                ("_lsn", Value::from(self.store.snapshot(range.storage)?.lsn())),
            ]));
        }
        let newest = container.ranges.iter().map(|range| range.number).max().unwrap_or(0);
        Ok(RangeFeed { etag: format!("\"{}\"", newest + 1), ranges })
    }
}

/// Writes the header of a new range.
struct FirstRow(RangeHeader);

impl Operation for FirstRow {
    type Output = ();
    type Refusal = std::convert::Infallible;

    fn run(&mut self, view: &mut dyn View) -> Result<(), Stop<Self::Refusal>> {
        view.put(&key::header(), self.0.encode());
        Ok(())
    }
}

fn new_ranges(next: &mut crate::meta::Settings, count: usize) -> Vec<Arc<Range>> {
    let slices = even_split(count).into_iter().enumerate();
    let ranges = slices.map(|(number, epk)| {
        next.last_range += 1;
        Arc::new(Range::new(number as u64, RangeId(next.last_range), epk, Vec::new()))
    });
    ranges.collect()
}

fn check_shared(catalog: &Catalog, owner: &Database) -> Result<()> {
    let dedicated = |container: &Container| catalog.offer_of(&container.self_link).is_some();
    let sharing = owner.containers.values().filter(|container| !dedicated(container)).count();
    if sharing >= SHARED_MAX {
        return Err(Error::bad_request(format!(
            "the database already has {SHARED_MAX} containers that share its throughput, which is \
             the limit; give the container throughput of its own"
        )));
    }
    Ok(())
}

/// What is stored of a container: the resource, where its ranges are, and what they may be indexed by.
fn stored(container: &Container) -> Object {
    let ranges = container.ranges.iter().map(|range| {
        let parents = range.parents.iter().map(|id| Value::from(id.as_str()));
        Value::Object(Object::from([
            ("number", Value::from(range.number)),
            ("storage", Value::from(range.storage.0)),
            ("min", Value::from(range.epk.min.to_string())),
            ("max", Value::from(range.epk.max.to_string())),
            ("parents", Value::Array(parents.collect())),
        ]))
    });
    Object::from([
        ("resource", Value::Object(Object::clone(&container.resource.body))),
        ("ranges", Value::Array(ranges.collect())),
        ("index", container.index.stored()),
    ])
}

/// Reads what was stored of a container: its database, and how to make it once that is known.
pub(crate) fn load(
    stored: &Object,
) -> Result<(DatabaseRid, impl FnOnce(&Database) -> Result<Container> + use<>)> {
    let resource = stored.get("resource").and_then(Value::as_object).cloned();
    let resource = Resource::load(resource.ok_or_else(|| corrupt("container"))?)?;
    let rid = ContainerRid::parse(&resource.rid).map_err(|_| corrupt("container"))?;
    let ranges = stored.get("ranges").and_then(Value::as_array).unwrap_or_default();
    let ranges = ranges.iter().map(load_range).collect::<Result<Vec<_>>>()?;
    if ranges.is_empty() {
        return Err(corrupt("container without ranges"));
    }
    let index = stored.get("index").cloned();
    let make = move |database: &Database| {
        let policies = policy::load(&resource.body)?;
        let index = Index::load(index.as_ref(), &policies, &resource.body)?;
        Ok(Container {
            rid,
            id: resource.id.clone(),
            database_id: database.resource.id.clone(),
            database_rid: database.rid,
            policies,
            self_link: resource.self_link().to_owned(),
            resource,
            ranges,
            index,
            scripts: Arc::default(),
            changes: Arc::default(),
        })
    };
    Ok((rid.database, make))
}

fn load_range(stored: &Value) -> Result<Arc<Range>> {
    let number = |name: &str| {
        let number = stored.get(name).and_then(Value::as_i64);
        number.and_then(|n| u64::try_from(n).ok()).ok_or_else(|| corrupt("range"))
    };
    let bound = |name: &str| {
        let bound = stored.get(name).and_then(Value::as_str).map(Epk::parse);
        bound.and_then(std::result::Result::ok).ok_or_else(|| corrupt("range"))
    };
    let parents = stored.get("parents").and_then(Value::as_array).unwrap_or_default();
    let parents = parents.iter().filter_map(Value::as_str).map(str::to_owned);
    let storage = RangeId(number("storage")?);
    let epk = EpkRange { min: bound("min")?, max: bound("max")? };
    Ok(Arc::new(Range::new(number("number")?, storage, epk, parents.collect())))
}
