//! A folder of scripts: how files become procedures, triggers and functions.
//!
//! `procedures/NAME.js`, `functions/NAME.js` and `triggers/NAME.js` hold one function each, and the
//! file without its ending is the name. A trigger says in its first line when it runs:
//! `// trigger: pre create`. What is in a file is what is stored, to the last byte.

use std::fs;
use std::path::{Path, PathBuf};

use value::{Object, ScriptKind, Value};

use crate::connection::Failure;

/// The kinds of scripts, in the order in which they are told.
pub(crate) const KINDS: [ScriptKind; 3] =
    [ScriptKind::Procedure, ScriptKind::Trigger, ScriptKind::Function];

/// A script as it is defined.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Script {
    pub(crate) kind: ScriptKind,
    pub(crate) name: String,
    pub(crate) definition: Object,
}

/// What a script of a kind is called.
pub(crate) fn word(kind: ScriptKind) -> &'static str {
    match kind {
        ScriptKind::Procedure => "procedure",
        ScriptKind::Trigger => "trigger",
        ScriptKind::Function => "function",
    }
}

/// The folder in which scripts of a kind are.
pub(crate) fn folder(kind: ScriptKind) -> &'static str {
    match kind {
        ScriptKind::Procedure => "procedures",
        ScriptKind::Trigger => "triggers",
        ScriptKind::Function => "functions",
    }
}

/// Reads a folder. One without scripts is refused: it is the wrong one.
pub(crate) fn read(directory: &Path) -> Result<Vec<Script>, Failure> {
    if !directory.is_dir() {
        return Err(Failure::Usage(format!("{} is not a folder", directory.display())));
    }
    if let Some(stray) = files(directory)?.first() {
        return Err(Failure::Usage(format!(
            "{} is not in one of the folders 'procedures', 'triggers' and 'functions', which say \
             what a script is",
            stray.display()
        )));
    }
    let mut scripts = Vec::new();
    for kind in KINDS {
        let directory = directory.join(folder(kind));
        if directory.is_dir() {
            for path in files(&directory)? {
                scripts.push(script(kind, &path)?);
            }
        }
    }
    if scripts.is_empty() {
        return Err(Failure::Usage(format!(
            "there are no scripts in {}: they are files such as procedures/NAME.js, \
             triggers/NAME.js and functions/NAME.js",
            directory.display()
        )));
    }
    Ok(scripts)
}

/// The files of a folder that are scripts, by name.
fn files(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let refuse = |error: std::io::Error| {
        Failure::Usage(format!("cannot read {}: {error}", directory.display()))
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(refuse)? {
        let path = entry.map_err(refuse)?.path();
        if path.extension().is_some_and(|extension| extension == "js") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn script(kind: ScriptKind, path: &Path) -> Result<Script, Failure> {
    let refuse = |why: String| Failure::Usage(format!("{}: {why}", path.display()));
    let name = path.file_stem().and_then(|stem| stem.to_str());
    let name = name.ok_or_else(|| refuse("its name is not UTF-8".to_owned()))?.to_owned();
    let body = fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let mut definition = Object::from([("id", name.as_str())]);
    if kind == ScriptKind::Trigger {
        let (when, operation) = occasion(&body).map_err(refuse)?;
        definition.insert("triggerType", when);
        definition.insert("triggerOperation", operation);
    }
    definition.insert("body", body);
    Ok(Script { kind, name, definition })
}

const TYPES: [&str; 2] = ["Pre", "Post"];
const OPERATIONS: [&str; 6] = ["All", "Create", "Replace", "Update", "Upsert", "Delete"];

/// When a trigger runs, by its first line.
fn occasion(body: &str) -> Result<(&'static str, &'static str), String> {
    let known = |words: &[&'static str], word: &str| {
        words.iter().copied().find(|known| known.eq_ignore_ascii_case(word))
    };
    let line = body.lines().next().unwrap_or_default().trim();
    let said =
        line.strip_prefix("//").map(str::trim).and_then(|line| line.strip_prefix("trigger:"));
    let words: Vec<&str> = said.unwrap_or_default().split_whitespace().collect();
    if let [when, operation] = words[..]
        && let (Some(when), Some(operation)) = (known(&TYPES, when), known(&OPERATIONS, operation))
    {
        return Ok((when, operation));
    }
    Err("its first line must say when the trigger runs, such as '// trigger: pre create': 'pre' or \
         'post', and 'all', 'create', 'replace', 'update', 'upsert' or 'delete'"
        .to_owned())
}

impl Script {
    /// Whether the server has it just so.
    pub(crate) fn is_same(&self, stored: &Object) -> bool {
        let text =
            |of: &Object, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
        let same = |name: &str| text(&self.definition, name) == text(stored, name);
        // The words come back as whoever stored the trigger spelled them.
        let alike = |name: &str| {
            let lower = |of: &Object| text(of, name).map(|word| word.to_ascii_lowercase());
            lower(&self.definition) == lower(stored)
        };
        same("body") && alike("triggerType") && alike("triggerOperation")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: Option<(&str, &str)>) {
        assert_eq!(occasion(body).ok(), expected, "{body}");
    }

    #[test]
    fn triggers_say_when_they_run() {
        check("// trigger: pre create\nfunction () {}", Some(("Pre", "Create")));
        check("//trigger:POST   all\r\nfunction () {}", Some(("Post", "All")));
        for body in [
            "",
            "function () {}",
            "\n// trigger: pre create",
            "// trigger: pre",
            "// trigger: create pre",
            "// trigger: pre create delete",
            "// trigger: during all",
        ] {
            check(body, None);
        }
    }

    #[test]
    fn folders_that_are_not_of_scripts_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |part: &str| match read(directory.path()) {
            Err(Failure::Usage(message)) => assert!(message.contains(part), "{message}"),
            other => panic!("{other:?}"),
        };
        refused("there are no scripts");
        fs::create_dir(directory.path().join("triggers")).unwrap();
        fs::write(directory.path().join("triggers/README.md"), "text").unwrap();
        refused("there are no scripts");
        fs::write(directory.path().join("triggers/t.js"), "function () {}").unwrap();
        refused("t.js: its first line must say when");
        fs::write(directory.path().join("triggers/t.js"), "// trigger: pre all").unwrap();
        assert_eq!(read(directory.path()).unwrap().len(), 1);
        fs::write(directory.path().join("p.js"), "function () {}").unwrap();
        refused("p.js is not in one of the folders");
    }
}
