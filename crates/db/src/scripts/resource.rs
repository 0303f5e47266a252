//! Procedures, triggers and functions as clients store them.
//!
//! They belong to their container and are kept with it in memory, so that running one reads no disk.
//! Their source is not looked at when it is stored: as in the service, what is wrong with it is told
//! to whoever runs it.

use std::collections::BTreeMap;
use std::sync::Arc;

use storage::RangeStore;
use value::{Object, ScriptKind, ScriptRid, Value};

use crate::container::Container;
use crate::database::{Db, Edit};
use crate::meta::{Change, MetaKind};
use crate::resource::{self, Resource};
use crate::{Error, Kind, Result};

/// The scripts of a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scripts {
    procedures: BTreeMap<String, Arc<Stored>>,
    triggers: BTreeMap<String, Arc<Stored>>,
    functions: BTreeMap<String, Arc<Stored>>,
}

/// One script.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    rid: ScriptRid,
    pub(crate) resource: Resource,
}

impl Stored {
    /// The text of the script.
    pub(crate) fn source(&self) -> &str {
        self.text("body")
    }

    /// A member of the definition.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.resource.body.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

impl Scripts {
    /// The scripts of a kind, by name.
    pub(crate) fn all(&self, kind: ScriptKind) -> &BTreeMap<String, Arc<Stored>> {
        match kind {
            ScriptKind::Procedure => &self.procedures,
            ScriptKind::Trigger => &self.triggers,
            ScriptKind::Function => &self.functions,
        }
    }

    fn all_mut(&mut self, kind: ScriptKind) -> &mut BTreeMap<String, Arc<Stored>> {
        match kind {
            ScriptKind::Procedure => &mut self.procedures,
            ScriptKind::Trigger => &mut self.triggers,
            ScriptKind::Function => &mut self.functions,
        }
    }

    /// The script of a name or resource id.
    pub(crate) fn find(&self, kind: ScriptKind, name: &str) -> Result<&Arc<Stored>> {
        let all = self.all(kind);
        let by_rid = ScriptRid::parse(name).ok();
        let by_rid = by_rid.and_then(|rid| all.values().find(|script| script.rid == rid));
        by_rid.or_else(|| all.get(name)).ok_or_else(Error::not_found)
    }

    /// Adds a script, or puts it in the place of the one of its name.
    pub(crate) fn insert(&mut self, rid: ScriptRid, resource: Resource) {
        let name = resource.id.clone();
        self.all_mut(rid.kind).insert(name, Arc::new(Stored { rid, resource }));
    }

    /// Takes the rows of all scripts out of the meta range.
    pub(crate) fn forget(&self, change: &mut Change) {
        for kind in [ScriptKind::Procedure, ScriptKind::Trigger, ScriptKind::Function] {
            for script in self.all(kind).values() {
                change.delete(MetaKind::Script, &script.resource.rid);
            }
        }
    }
}

impl<S: RangeStore> Db<S> {
    /// All scripts of a kind.
    pub fn scripts(&self, container: &Container, kind: ScriptKind) -> Vec<Resource> {
        let scripts = container.scripts.all(kind).values();
        scripts.map(|script| script.resource.clone()).collect()
    }

    /// One script.
    pub fn script(&self, container: &Container, kind: ScriptKind, name: &str) -> Result<Resource> {
        Ok(container.scripts.find(kind, name)?.resource.clone())
    }

    /// Creates a script.
    pub async fn create_script(
        &self,
        container: &Container,
        kind: ScriptKind,
        body: &Object,
    ) -> Result<Resource> {
        self.put_script(container, kind, Current::None, body, None).await.map(|(script, _)| script)
    }

    /// Replaces a script, whose name may change.
    pub async fn replace_script(
        &self,
        container: &Container,
        kind: ScriptKind,
        name: &str,
        body: &Object,
        if_match: Option<&str>,
    ) -> Result<Resource> {
        let current = Current::Named(name);
        self.put_script(container, kind, current, body, if_match).await.map(|(script, _)| script)
    }

    /// Creates a script, or replaces the one of that name; says whether it was created.
    pub async fn upsert_script(
        &self,
        container: &Container,
        kind: ScriptKind,
        body: &Object,
        if_match: Option<&str>,
    ) -> Result<(Resource, bool)> {
        self.put_script(container, kind, Current::Any, body, if_match).await
    }

    async fn put_script(
        &self,
        container: &Container,
        kind: ScriptKind,
        current: Current<'_>,
        body: &Object,
        if_match: Option<&str>,
    ) -> Result<(Resource, bool)> {
        let name = resource::name_of(body)?;
        let definition = definition(kind, body)?;
        let (mut edit, container) = self.edit_container(container).await?;
        let scripts = &container.scripts;
        let current = match current {
            Current::None => None,
            Current::Any => scripts.all(kind).get(&name).cloned(),
            Current::Named(current) => Some(scripts.find(kind, current)?.clone()),
        };
        let taken = scripts.all(kind).get(&name);
        let same = |taken: &Arc<Stored>| current.as_ref().is_some_and(|c| c.rid == taken.rid);
        if taken.is_some_and(|taken| !same(taken)) {
            return Err(resource::name_taken());
        }
        let rid = match &current {
            Some(current) => {
                current.resource.check_match(if_match)?;
                current.rid
            }
            None => {
                check_room(scripts, kind)?;
                let number = u64::from(edit.next.next_number());
                ScriptRid::new(container.rid, kind, number)
            }
        };
        let stamp = self.stamp(&mut edit.next);
        let self_link = format!("{}{}/{rid}/", container.self_link, segment(kind));
        let resource = Resource::build(definition, rid.to_string(), self_link, &[], &stamp);
        edit.change.put_object(MetaKind::Script, &resource.rid, &resource.body);
        let mut scripts = Scripts::clone(scripts);
        if let Some(current) = &current {
            scripts.all_mut(kind).remove(&current.resource.id);
        }
        scripts.insert(rid, resource.clone());
        self.save_scripts(edit, &container, scripts).await?;
        Ok((resource, current.is_none()))
    }

    /// Deletes a script.
    pub async fn delete_script(
        &self,
        container: &Container,
        kind: ScriptKind,
        name: &str,
        if_match: Option<&str>,
    ) -> Result<()> {
        let (mut edit, container) = self.edit_container(container).await?;
        let mut scripts = Scripts::clone(&container.scripts);
        let script = scripts.find(kind, name)?.clone();
        script.resource.check_match(if_match)?;
        edit.change.delete(MetaKind::Script, &script.resource.rid);
        scripts.all_mut(kind).remove(&script.resource.id);
        self.save_scripts(edit, &container, scripts).await
    }

    /// Starts a change of a container's scripts: the container is the one that is there by then.
    async fn edit_container(&self, container: &Container) -> Result<(Edit, Arc<Container>)> {
        let edit = self.edit(&container.database_id).await?;
        let now = edit.owner.container(&container.id).cloned();
        let now = now.filter(|now| now.rid == container.rid).ok_or_else(Error::owner_not_found)?;
        Ok((edit, now))
    }

    async fn save_scripts(
        &self,
        mut edit: Edit,
        container: &Container,
        scripts: Scripts,
    ) -> Result<()> {
        let changed = Container { scripts: Arc::new(scripts), ..container.same() };
        edit.owner.insert_container(Arc::new(changed));
        self.save(edit).await
    }
}

/// Which script a new definition replaces.
enum Current<'a> {
    /// None: it must be new.
    None,
    /// The one of the same name, if there is one.
    Any,
    /// The one of a name or resource id, which must be there.
    Named(&'a str),
}

/// The part of a script's link that says what it is.
fn segment(kind: ScriptKind) -> &'static str {
    match kind {
        ScriptKind::Procedure => "sprocs",
        ScriptKind::Trigger => "triggers",
        ScriptKind::Function => "udfs",
    }
}

/// How many scripts of a kind the service allows in a container.
fn check_room(scripts: &Scripts, kind: ScriptKind) -> Result<()> {
    let (count_max, what) = match kind {
        ScriptKind::Procedure => (100, "stored procedures"),
        ScriptKind::Trigger => (25, "triggers"),
        ScriptKind::Function => (50, "user-defined functions"),
    };
    if scripts.all(kind).len() >= count_max {
        let message = format!("the container already has {count_max} {what}, which is the limit");
        return Err(Error::new(Kind::Forbidden, message));
    }
    Ok(())
}

const TYPES: [&str; 2] = ["Pre", "Post"];
const OPERATIONS: [&str; 6] = ["All", "Create", "Update", "Delete", "Replace", "Upsert"];

/// What a client defines of a script, checked.
fn definition(kind: ScriptKind, body: &Object) -> Result<Object> {
    let required: &[&str] = match kind {
        ScriptKind::Trigger => &["body", "triggerType", "triggerOperation"],
        ScriptKind::Procedure | ScriptKind::Function => &["body"],
    };
    let is_missing = |name: &&&str| body.get(name).is_none_or(Value::is_null);
    let missing: String = required.iter().filter(is_missing).map(|n| format!("{n}; ")).collect();
    if !missing.is_empty() {
        return Err(Error::bad_request(format!(
            "The input content is invalid because the required properties - '{missing}' - are missing"
        )));
    }
    match body.get("body").and_then(Value::as_str) {
        None => return Err(Error::bad_request("the 'body' of a script must be its text")),
        Some(text) if text.trim().is_empty() => {
            return Err(Error::bad_request("Encountered exception while compiling Javascript."));
        }
        Some(_) => {}
    }
    if kind == ScriptKind::Trigger {
        check_word(body, "triggerType", &TYPES)?;
        check_word(body, "triggerOperation", &OPERATIONS)?;
    }
    Ok(resource::user_members(body))
}

/// SDKs write these words in different letter cases, and expect them back as they wrote them.
fn check_word(body: &Object, name: &str, words: &[&str]) -> Result<()> {
    let found = body.get(name).unwrap_or(&Value::Null);
    let is_known = |text: &str| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    if found.as_str().is_some_and(is_known) {
        return Ok(());
    }
    let words = words.join(", ");
    Err(Error::bad_request(format!("'{name}' must be one of {words}, not {found}")))
}
