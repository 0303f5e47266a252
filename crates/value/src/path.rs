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
                Some('"') => quoted(&characters, position)?,
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
    let mut name = String::new();
    let mut position = start + 1;
    loop {
        match characters.get(position) {
            Some('"') => return Ok((name, position + 1)),
            Some('\\') => match characters.get(position + 1) {
                Some(character @ ('"' | '\\')) => {
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
