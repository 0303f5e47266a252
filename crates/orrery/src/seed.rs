//! What an account should hold, written in files: databases, containers with their policies,
//! throughput and scripts, and documents.
//!
//! `orrery serve --seed` and `orrery import` read this form, and `orrery export` writes it. It is one
//! JSON file; scripts and documents may stand in files of their own, by paths relative to it. What is
//! in the definition of a container is not judged here but by the server that is to have it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use db::Throughput;
use value::{DEPTH_MAX, Object, ScriptKind, Value};

use crate::account::Place;
use crate::script_folder::{self, KINDS, Script, folder};

/// What is in the files.
#[derive(Debug)]
pub(crate) struct Seed {
    pub(crate) databases: Vec<DatabaseSeed>,
}

#[derive(Debug)]
pub(crate) struct DatabaseSeed {
    /// Where it stands, for messages.
    pub(crate) at: String,
    pub(crate) name: String,
    pub(crate) throughput: Option<Throughput>,
    pub(crate) containers: Vec<ContainerSeed>,
}

#[derive(Debug)]
pub(crate) struct ContainerSeed {
    /// Where it stands, for messages.
    pub(crate) at: String,
    pub(crate) place: Place,
    pub(crate) definition: Object,
    pub(crate) throughput: Option<Throughput>,
    pub(crate) scripts: Vec<Script>,
    pub(crate) documents: Vec<DocumentsSeed>,
}

/// Where documents come from.
#[derive(Debug)]
pub(crate) enum DocumentsSeed {
    /// Each with the place where it stands.
    Inline(Vec<(String, Object)>),
    /// A file with one on each line.
    File(PathBuf),
}

/// What is wrong with a seed, and where.
#[derive(Debug)]
pub(crate) struct SeedError(String);

impl fmt::Display for SeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SeedError {}

type Result<T> = std::result::Result<T, SeedError>;

/// A seed wraps its documents in a few levels.
const SEED_DEPTH_MAX: usize = DEPTH_MAX + 16;

impl Seed {
    /// Reads a seed and the scripts that it names. Files of documents are not looked into.
    pub(crate) fn read(path: &Path) -> Result<Seed> {
        let file = path.display();
        let refuse = |why: String| SeedError(format!("{file}: {why}"));
        let text = fs::read(path).map_err(|error| refuse(error.to_string()))?;
        let seed = Value::parse_with_depth(&text, SEED_DEPTH_MAX).map_err(|error| {
            let (line, column) = line_and_column(&text, error.offset);
            SeedError(format!("{file}:{line}:{column}: {}", error.message))
        })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let reader = Reader { directory };
        let seed = Member { at: String::new(), value: &seed };
        reader.seed(&seed).map_err(|error| refuse(error.0))
    }
}

/// The line and the column, in characters, of a byte; both count from one.
fn line_and_column(text: &[u8], offset: usize) -> (usize, usize) {
    let before = String::from_utf8_lossy(&text[..offset.min(text.len())]);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// A value of the seed and the way to it.
struct Member<'a> {
    at: String,
    value: &'a Value,
}

impl<'a> Member<'a> {
    fn refuse<T>(&self, why: impl fmt::Display) -> Result<T> {
        let at = if self.at.is_empty() { "the whole" } else { &self.at };
        Err(SeedError(format!("{at}: {why}")))
    }

    fn get(&self, name: &str) -> Option<Member<'a>> {
        let value = self.value.get(name)?;
        let dot = if self.at.is_empty() { "" } else { "." };
        Some(Member { at: format!("{}{dot}{name}", self.at), value })
    }

    fn elements(&self) -> Result<Vec<Member<'a>>> {
        let Some(elements) = self.value.as_array() else {
            return self.refuse("must be an array");
        };
        let member = |(index, value)| Member { at: format!("{}[{index}]", self.at), value };
        Ok(elements.iter().enumerate().map(member).collect())
    }

    /// The elements of a member, none if it is not there.
    fn list(&self, name: &str) -> Result<Vec<Member<'a>>> {
        self.get(name).map_or(Ok(Vec::new()), |list| list.elements())
    }

    fn object(&self) -> Result<&'a Object> {
        match self.value.as_object() {
            Some(object) => Ok(object),
            None => self.refuse("must be an object"),
        }
    }

    fn text(&self) -> Result<&'a str> {
        match self.value.as_str() {
            Some(text) => Ok(text),
            None => self.refuse("must be a string"),
        }
    }

    fn name(&self) -> Result<String> {
        match self.get("id") {
            Some(id) => Ok(id.text()?.to_owned()),
            None => self.refuse("needs an 'id'"),
        }
    }

    /// Refuses members that nobody would look at: they are slips.
    fn check_members(&self, known: &[&str]) -> Result<()> {
        if let Some(name) = self.object()?.keys().find(|name| !known.contains(name)) {
            let known = known.join(", ");
            return self.refuse(format!("'{name}' is not known here; known are {known}"));
        }
        Ok(())
    }
}

/// The members of a container that are ours.
const OWN: [&str; 6] =
    ["throughput", "scripts", "procedures", "triggers", "functions", "documents"];

/// The members of a container that are the server's to judge.
const DEFINITION: [&str; 18] = [
    "id",
    "partitionKey",
    "indexingPolicy",
    "uniqueKeyPolicy",
    "defaultTtl",
    "ttlPropertyPath",
    "conflictResolutionPolicy",
    "geospatialConfig",
    "computedProperties",
    "vectorEmbeddingPolicy",
    "fullTextPolicy",
    "changeFeedPolicy",
    "analyticalStorageTtl",
    "clientEncryptionPolicy",
    "materializedViewDefinition",
    "allowMaterializedViews",
    "dataMaskingPolicy",
    "createMode",
];

struct Reader<'a> {
    /// What paths are relative to.
    directory: &'a Path,
}

impl Reader<'_> {
    fn seed(&self, seed: &Member<'_>) -> Result<Seed> {
        seed.check_members(&["databases"])?;
        let databases = seed.list("databases")?;
        let databases = databases.iter().map(|database| self.database(database));
        Ok(Seed { databases: databases.collect::<Result<_>>()? })
    }

    fn database(&self, database: &Member<'_>) -> Result<DatabaseSeed> {
        database.check_members(&["id", "throughput", "containers"])?;
        let name = database.name()?;
        let containers = database.list("containers")?;
        let containers = containers.iter().map(|container| self.container(&name, container));
        Ok(DatabaseSeed {
            at: database.at.clone(),
            throughput: throughput(database)?,
            containers: containers.collect::<Result<_>>()?,
            name,
        })
    }

    fn container(&self, database: &str, container: &Member<'_>) -> Result<ContainerSeed> {
        container.check_members(&[&DEFINITION[..], &OWN].concat())?;
        let place = Place { database: database.to_owned(), container: container.name()? };
        let mut definition = container.object()?.clone();
        definition.retain(|name, _| !OWN.contains(&name));
        if let Some(paths) = container.get("partitionKey").and_then(|key| short_key(key.value)) {
            definition.insert("partitionKey", paths);
        }
        let mut scripts = Vec::new();
        if let Some(folder) = container.get("scripts") {
            let directory = self.directory.join(folder.text()?);
            let found = script_folder::read(&directory);
            match found {
                Ok(found) => scripts.extend(found),
                Err(failure) => return folder.refuse(failure),
            }
        }
        for kind in KINDS {
            for script in container.list(folder(kind))? {
                scripts.push(self.script(kind, &script)?);
            }
        }
        Ok(ContainerSeed {
            at: container.at.clone(),
            place,
            definition,
            throughput: throughput(container)?,
            scripts,
            documents: self.documents(container)?,
        })
    }

    /// A script whose text stands here as `body` or in a `file`.
    fn script(&self, kind: ScriptKind, script: &Member<'_>) -> Result<Script> {
        let known: &[&str] = match kind {
            ScriptKind::Trigger => &["id", "body", "file", "triggerType", "triggerOperation"],
            ScriptKind::Procedure | ScriptKind::Function => &["id", "body", "file"],
        };
        script.check_members(known)?;
        let name = script.name()?;
        let mut definition = script.object()?.clone();
        match (script.get("body"), script.get("file")) {
            (Some(_), None) => {}
            (None, Some(file)) => {
                let path = self.directory.join(file.text()?);
                match fs::read_to_string(&path) {
                    Ok(body) => definition.insert("body", body),
                    Err(error) => {
                        return file.refuse(format!("cannot read {}: {error}", path.display()));
                    }
                };
                definition.remove("file");
            }
            _ => return script.refuse("needs its text, either as 'body' or in a 'file'"),
        }
        Ok(Script { kind, name, definition })
    }

    /// Documents, and paths of files that hold them.
    fn documents(&self, container: &Member<'_>) -> Result<Vec<DocumentsSeed>> {
        let mut documents = Vec::new();
        for one in container.list("documents")? {
            if let Some(file) = one.value.as_str() {
                let path = self.directory.join(file);
                if !path.is_file() {
                    return one.refuse(format!("there is no file {}", path.display()));
                }
                documents.push(DocumentsSeed::File(path));
                continue;
            }
            let Some(document) = one.value.as_object() else {
                return one.refuse("must be a document or the path of a file of documents");
            };
            let document = (one.at.clone(), document.clone());
            match documents.last_mut() {
                Some(DocumentsSeed::Inline(inline)) => inline.push(document),
                _ => documents.push(DocumentsSeed::Inline(vec![document])),
            }
        }
        Ok(documents)
    }
}

/// A number of request units per second, or `{"autoscale": N}`.
fn throughput(of: &Member<'_>) -> Result<Option<Throughput>> {
    let Some(throughput) = of.get("throughput") else { return Ok(None) };
    if let Some(units) = throughput.value.as_i64() {
        return Ok(Some(Throughput::Manual(units)));
    }
    let number = |name: &str| throughput.value.get(name).and_then(Value::as_i64);
    match number("autoscale") {
        Some(max) => {
            throughput.check_members(&["autoscale", "incrementPercent"])?;
            let increment_percent = number("incrementPercent");
            Ok(Some(Throughput::Autoscale { max, increment_percent }))
        }
        None => throughput.refuse("must be a number or {\"autoscale\": NUMBER}"),
    }
}

/// How throughput is written.
pub(crate) fn throughput_value(throughput: Throughput) -> Value {
    match throughput {
        Throughput::Manual(units) => Value::from(units),
        Throughput::Autoscale { max, increment_percent } => {
            let mut autoscale = Object::from([("autoscale", Value::from(max))]);
            if let Some(percent) = increment_percent {
                autoscale.insert("incrementPercent", Value::from(percent));
            }
            Value::from(autoscale)
        }
    }
}

/// The whole of a partition key that is given by its path, or its paths, alone.
fn short_key(key: &Value) -> Option<Value> {
    let (paths, kind) = match key {
        Value::String(_) => (vec![key.clone()], "Hash"),
        Value::Array(paths) if paths.len() == 1 => (paths.clone(), "Hash"),
        Value::Array(paths) => (paths.clone(), "MultiHash"),
        _ => return None,
    };
    let mut whole = Object::from([("paths", Value::from(paths))]);
    whole.insert("kind", kind);
    whole.insert("version", 2);
    Some(Value::from(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Seed> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("seed.json");
        fs::write(directory.path().join("f.js"), "function () {}").unwrap();
        fs::write(directory.path().join("d.ndjson"), "").unwrap();
        fs::write(&path, text).unwrap();
        Seed::read(&path)
    }

    #[track_caller]
    fn refused(text: &str, part: &str) {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}\n{error}\nlacks: {part}");
    }

    /// A seed with one container that has these members too.
    fn container(members: &str) -> String {
        let key = r#""id":"c","partitionKey":"/pk""#;
        format!(r#"{{"databases":[{{"id":"d","containers":[{{{key},{members}}}]}}]}}"#)
    }

    #[test]
    fn a_seed_is_read() {
        let text = container(
            r#""defaultTtl":5,"throughput":{"autoscale":1000},
               "procedures":[{"id":"p","body":"function () {}"}],
               "triggers":[{"id":"t","file":"f.js","triggerType":"Pre","triggerOperation":"All"}],
               "documents":[{"id":"1"},{"id":"2"},"d.ndjson",{"id":"3"}]"#,
        );
        let seed = read(&text).unwrap();
        let container = &seed.databases[0].containers[0];
        assert_eq!(container.place.container, "c");
        assert_eq!(
            Value::from(container.definition.clone()).to_text(),
            r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":5}"#
        );
        let autoscale = Throughput::Autoscale { max: 1000, increment_percent: None };
        assert_eq!(container.throughput, Some(autoscale));
        assert_eq!(throughput_value(autoscale).to_text(), r#"{"autoscale":1000}"#);
        let bodies = container.scripts.iter().map(|script| script.definition.get("body"));
        assert!(bodies.eq([Some(&Value::from("function () {}")); 2]));
        let [DocumentsSeed::Inline(first), DocumentsSeed::File(_), DocumentsSeed::Inline(last)] =
            &container.documents[..]
        else {
            panic!("{:?}", container.documents);
        };
        assert_eq!((first.len(), last.len()), (2, 1));
        assert_eq!(last[0].0, "databases[0].containers[0].documents[3]");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        refused("{\n  \"databases\": [}", "seed.json:2:17: ");
        refused("[]", "the whole: must be an object");
        refused(r#"{"database":[]}"#, "'database' is not known here; known are databases");
        refused(r#"{"databases":{}}"#, "databases: must be an array");
        refused(r#"{"databases":[{"id":"d"},{}]}"#, "databases[1]: needs an 'id'");
        refused(r#"{"databases":[{"id":1}]}"#, "databases[0].id: must be a string");
        let at = "databases[0].containers[0]";
        refused(&container(r#""documnets":[]"#), "'documnets' is not known");
        refused(&container(r#""throughput":"x""#), &format!("{at}.throughput: must be a number"));
        refused(
            &container(r#""documents":[1]"#),
            &format!("{at}.documents[0]: must be a document"),
        );
        refused(&container(r#""documents":["no"]"#), "there is no file ");
        refused(&container(r#""procedures":[{"id":"p"}]"#), &format!("{at}.procedures[0]: needs"));
        refused(&container(r#""functions":[{"id":"p","file":"no.js"}]"#), "cannot read ");
        refused(&container(r#""scripts":"no""#), "is not a folder");
    }
}
