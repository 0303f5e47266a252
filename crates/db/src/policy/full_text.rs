//! Full text: which paths hold text to be searched by words, in which language, and which of them
//! have an index.

use std::collections::HashSet;

use value::{Object, Path, Value};

use super::{PolicyError, member};

/// A language whose words can be searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `en-US`
    English,
    /// `de-DE`
    German,
    /// `es-ES`
    Spanish,
    /// `fr-FR`
    French,
    /// `it-IT`
    Italian,
    /// `pt-PT`
    Portuguese,
    /// `pt-BR`
    BrazilianPortuguese,
}

const LANGUAGES: [(&str, Language); 7] = [
    ("en-US", Language::English),
    ("de-DE", Language::German),
    ("es-ES", Language::Spanish),
    ("fr-FR", Language::French),
    ("it-IT", Language::Italian),
    ("pt-PT", Language::Portuguese),
    ("pt-BR", Language::BrazilianPortuguese),
];

/// Members of the preview that change how text is cut into words.
const PREVIEW: [&str; 7] = [
    "defaultSpec",
    "package",
    "tokenizer",
    "filters",
    "stopWordListKind",
    "addStopWords",
    "removeStopWords",
];

/// A path that holds text.
#[derive(Clone, Debug, PartialEq)]
pub struct FullTextPath {
    /// Where the text is.
    pub path: Path,
    /// Its language.
    pub language: Language,
}

/// The full-text policy of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct FullTextPolicy {
    /// The language of paths that name none.
    pub default_language: Language,
    /// The paths that hold text.
    pub paths: Vec<FullTextPath>,
}

/// Checks `fullTextPolicy`, which is stored as it was sent.
pub(super) fn check(body: &Object) -> Result<(Option<FullTextPolicy>, Option<Value>), PolicyError> {
    let Some(policy) = member::object(body, "fullTextPolicy")? else { return Ok((None, None)) };
    refuse_preview(policy)?;
    let default_language = match member::string(policy, "defaultLanguage")? {
        Some(text) => language(text)?,
        None => Language::English,
    };
    let mut paths = Vec::new();
    let mut seen = HashSet::new();
    for element in member::array(policy, "fullTextPaths")?.unwrap_or_default() {
        let entry = member::element(element, "fullTextPaths")?;
        refuse_preview(entry)?;
        let text = member::string(entry, "path")?.unwrap_or_default();
        let path = Path::parse(text).map_err(|_| {
            PolicyError::new(format!("The Full Text Policy contains an invalid Path: {text}"))
        })?;
        if !seen.insert(path.clone()) {
            return Err(PolicyError::new(format!(
                "The Full Text Policy contains a duplicate Path: {text}"
            )));
        }
        let language = match member::string(entry, "language")? {
            Some(text) => language(text)?,
            None => default_language,
        };
        paths.push(FullTextPath { path, language });
    }
    let json = policy.clone().into();
    Ok((Some(FullTextPolicy { default_language, paths }), Some(json)))
}

/// Checks `fullTextIndexes` of the indexing policy.
pub(super) fn check_indexes(
    indexing: &Object,
    policy: Option<&FullTextPolicy>,
) -> Result<(Vec<Path>, Option<Value>), PolicyError> {
    let Some(elements) = member::array(indexing, "fullTextIndexes")? else {
        return Ok((Vec::new(), None));
    };
    let known: HashSet<&Path> =
        policy.iter().flat_map(|policy| &policy.paths).map(|entry| &entry.path).collect();
    let mut paths = Vec::new();
    let mut seen = HashSet::new();
    let mut stored = Vec::new();
    for element in elements {
        let entry = member::element(element, "fullTextIndexes")?;
        let text = member::required_string(entry, "path")?;
        let path = Path::parse(text).map_err(|_| {
            PolicyError::new(format!(
                "The Full Text Indexing Policy contains an invalid Path: {text}"
            ))
        })?;
        if !known.contains(&path) {
            return Err(PolicyError::new(format!(
                "The Full Text Indexing Policy's path::{text} not matching in Full Text Policy's \
                 path."
            )));
        }
        if !seen.insert(path.clone()) {
            return Err(PolicyError::new(format!(
                "The Full Text Indexing Policy contains a duplicate Path: {text}"
            )));
        }
        paths.push(path);
        stored.push(Value::from(Object::from([("path", text)])));
    }
    Ok((paths, Some(stored.into())))
}

fn language(text: &str) -> Result<Language, PolicyError> {
    let known = LANGUAGES.iter().find(|(name, _)| *name == text);
    known.map(|(_, language)| *language).ok_or_else(|| {
        let names: Vec<&str> = LANGUAGES.iter().map(|(name, _)| *name).collect();
        PolicyError::new(format!(
            "The Full Text Policy contains an unsupported language {text}. Supported languages \
             are: {}",
            names.join(", ")
        ))
    })
}

fn refuse_preview(owner: &Object) -> Result<(), PolicyError> {
    for name in PREVIEW {
        if member::present(owner, name).is_some() {
            return Err(PolicyError::new(format!(
                "'{name}' of the full-text policy is not served yet"
            )));
        }
    }
    Ok(())
}
