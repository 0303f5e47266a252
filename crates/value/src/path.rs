//! Paths of container policies: `/customer`, `/address/"zip code"`.
//!
//! This is the narrow grammar of partition keys and unique keys: names only, no wildcard, no array
//! element. A name of letters, digits and underscores stands as it is, any other is quoted, with
//! `\"` and `\\` inside the quotes.

use std::fmt;

use crate::{Object, Value};

/// A path down through objects. Has at least one segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    segments: Vec<String>,
}

/// A text that is no path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathError {
    /// The character (counted from 0) at which the path cannot go on.
    pub position: usize,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path is malformed near position {}", self.position)
    }
}

impl std::error::Error for PathError {}

impl Path {
    /// Reads a path.
    pub fn parse(text: &str) -> Result<Path, PathError> {
        let characters: Vec<char> = text.chars().collect();
        let mut segments = Vec::new();
        let mut position = 0;
        while position < characters.len() || segments.is_empty() {
            if characters.get(position) != Some(&'/') {
                return Err(PathError { position });
            }
            position += 1;
            let (segment, end) = match characters.get(position) {
                Some('"' | '\'') => quoted(&characters, position)?,
                _ => unquoted(&characters, position)?,
            };
            segments.push(segment);
            position = end;
        }
        Ok(Path { segments })
    }

    /// The names along the path.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// What the path leads to. Only objects are descended into.
    pub fn resolve<'a>(&self, object: &'a Object) -> Option<&'a Value> {
        let (first, rest) = self.segments.split_first()?;
        rest.iter().try_fold(object.get(first)?, |value, segment| value.get(segment))
    }
}

/// From the first character of a name to the one behind it.
fn unquoted(characters: &[char], start: usize) -> Result<(String, usize), PathError> {
    let name: String =
        characters[start..].iter().take_while(|character| is_name_character(**character)).collect();
    if name.is_empty() {
        return Err(PathError { position: start });
    }
    let end = start + name.chars().count();
    Ok((name, end))
}

/// From the opening quote to the character behind the closing one.
fn quoted(characters: &[char], start: usize) -> Result<(String, usize), PathError> {
    let quote = characters[start];
    let mut name = String::new();
    let mut position = start + 1;
    loop {
        match characters.get(position) {
            Some(character) if *character == quote => return Ok((name, position + 1)),
            Some('\\') => match characters.get(position + 1) {
                Some(character @ ('"' | '\'' | '\\')) => {
                    name.push(*character);
                    position += 2;
                }
                _ => return Err(PathError { position }),
            },
            Some(character) => {
                name.push(*character);
                position += 1;
            }
            None => return Err(PathError { position }),
        }
    }
}

fn is_name_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            if !segment.is_empty() && segment.chars().all(is_name_character) {
                write!(f, "/{segment}")?;
            } else {
                write!(f, "/\"{}\"", segment.replace('\\', "\\\\").replace('"', "\\\""))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&[&str], usize>) {
        let parsed = Path::parse(text);
        let segments = parsed
            .as_ref()
            .map(|path| path.segments().iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(
            segments.as_deref().map_err(|error| error.position),
            expected.as_ref().map(|segments| &segments[..]).map_err(|position| *position),
            "{text}"
        );
    }

    #[test]
    fn grammar() {
        check("/a", Ok(&["a"]));
        check("/a/b_1/Ä", Ok(&["a", "b_1", "Ä"]));
        check(r#"/"my-prop"/child"#, Ok(&["my-prop", "child"]));
        check(r#"/"a/b"/"say \"x\"""#, Ok(&["a/b", "say \"x\""]));
        check(r#"/"back\\slash""#, Ok(&["back\\slash"]));
        check("", Err(0));
        check("a", Err(0));
        check("/", Err(1));
        check("/a/", Err(3));
        check("//a", Err(1));
        check("/a-b", Err(2));
        check("/a/*", Err(3));
        check("/a/?", Err(3));
        check("/a/[]", Err(3));
        check("/a[0]", Err(2));
        check("/a b", Err(2));
        check(r#"/"a"#, Err(3));
        check(r#"/"a"b"#, Err(4));
        check(r#"/"a\n""#, Err(3));
    }

    #[test]
    fn resolve() {
        let document = Value::parse(br#"{"a":{"b":1,"c":null},"d":[{"b":2}]}"#).unwrap();
        let at = |text: &str| {
            Path::parse(text).unwrap().resolve(document.as_object().unwrap()).map(Value::to_text)
        };
        assert_eq!(at("/a/b").as_deref(), Some("1"));
        assert_eq!(at("/a/c").as_deref(), Some("null"));
        assert_eq!(at("/a/x"), None);
        assert_eq!(at("/a/b/c"), None);
        assert_eq!(at("/d/0"), None);
        assert_eq!(at("/d/b"), None);
    }

    proptest! {
        #[test]
        fn prints_what_it_reads(text in r#"(/([a-c_]{1,2}|"([a-c/*]|\\"|\\\\){0,3}")){1,3}"#) {
            let path = Path::parse(&text).unwrap();
            prop_assert_eq!(Path::parse(&path.to_string()), Ok(path));
        }

        #[test]
        fn answers_any_text(text in r#"[/a"\\*\[\]é ]{0,8}"#) {
            if let Err(error) = Path::parse(&text) {
                prop_assert!(error.position <= text.chars().count());
            }
        }
    }
}
