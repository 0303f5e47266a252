//! `ARCHITECTURE.md` tells the truth: the crates use one another as its table says, and every file
//! and name that it mentions exists.

#![expect(clippy::unwrap_used, reason = "a test may stop where a script would")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words in code style of a text.
fn code_spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The table of crates: each with the crates that it may use.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = read("ARCHITECTURE.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let name = code_spans(cells[0])[0].to_owned();
        (name, code_spans(cells[1]).into_iter().map(str::to_owned).collect())
    })
    .collect()
}

#[test]
fn crates_use_one_another_as_the_table_says() {
    let table = table();
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let manifest = read(format!("crates/{name}/Cargo.toml"));
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        let used = dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
        let used: BTreeSet<String> =
            used.filter(|used| table.contains_key(*used)).map(str::to_owned).collect();
        found.insert(name, used);
    }
    assert_eq!(found, table);
}

#[test]
fn every_name_exists() {
    let text = read("ARCHITECTURE.md");
    let mut sources = String::new();
    for name in table().keys() {
        collect(&root().join("crates").join(name).join("src"), &mut sources);
    }
    for span in code_spans(&text) {
        if span.contains('/') {
            assert!(root().join(span).exists(), "{span} does not exist");
        } else if span.starts_with(char::is_uppercase) {
            let known = ["struct", "enum", "trait", "type"];
            let known = known.iter().any(|kind| {
                let declaration = format!("{kind} {span}");
                sources.match_indices(&declaration).any(|(at, _)| {
                    let next = sources[at + declaration.len()..].chars().next();
                    next.is_none_or(|next| !next.is_alphanumeric() && next != '_')
                })
            });
            assert!(known, "{span} is not a type of any crate");
        }
    }
}

fn collect(directory: &Path, sources: &mut String) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}
