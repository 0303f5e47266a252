//! How writes of several regions that contradict each other would be settled.
//!
//! There is one region, so nothing ever conflicts; the policy is kept because clients read it back.

use value::{Object, Path, Value};

use super::{PolicyError, member};

/// The way conflicts are settled, fixed when the container is created.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// The write with the largest value at this path wins.
    LastWriterWins(Path),
    /// A stored procedure decides, or the application.
    Custom,
}

/// The conflict resolution policy.
#[derive(Clone, Debug, PartialEq)]
pub struct ConflictResolution {
    /// How conflicts are settled.
    pub resolution: Resolution,
    /// The stored procedure of custom resolution; it may be exchanged later.
    pub procedure: Option<String>,
}

const DEFAULT_PATH: &str = "/_ts";

/// Checks and completes `conflictResolutionPolicy`.
pub(super) fn check(body: &Object) -> Result<(ConflictResolution, Value), PolicyError> {
    let empty = Object::new();
    let policy = member::object(body, "conflictResolutionPolicy")?.unwrap_or(&empty);
    let mode = member::string(policy, "mode")?.unwrap_or("LastWriterWins");
    let path = given(policy, "conflictResolutionPath")?;
    let procedure = given(policy, "conflictResolutionProcedure")?;
    match mode.to_ascii_lowercase().as_str() {
        "lastwriterwins" => last_writer_wins(path, procedure),
        "custom" => custom(path, procedure),
        _ => Err(PolicyError::invalid_input(format!("unknown conflict resolution mode '{mode}'"))),
    }
}

/// Refuses a replace that settles conflicts in another way.
pub(super) fn check_unchanged(
    old: &ConflictResolution,
    new: &ConflictResolution,
) -> Result<(), PolicyError> {
    if old.resolution != new.resolution {
        return Err(PolicyError::new(
            "The conflict resolution policy cannot be changed: its mode and path are fixed when \
             the container is created.",
        ));
    }
    Ok(())
}

/// The service shows members that do not apply as empty strings, so they also come back as such.
fn given<'a>(policy: &'a Object, name: &str) -> Result<Option<&'a str>, PolicyError> {
    Ok(member::string(policy, name)?.filter(|text| !text.is_empty()))
}

fn last_writer_wins(
    path: Option<&str>,
    procedure: Option<&str>,
) -> Result<(ConflictResolution, Value), PolicyError> {
    if procedure.is_some() {
        return Err(PolicyError::new(
            "'conflictResolutionProcedure' is only for the conflict resolution mode 'Custom'.",
        ));
    }
    let text = path.unwrap_or(DEFAULT_PATH);
    let path = Path::parse(text).map_err(|error| {
        PolicyError::new(format!(
            "The conflict resolution path '{text}' could not be accepted, failed near position \
             '{}'.",
            error.position
        ))
    })?;
    let resolution = Resolution::LastWriterWins(path);
    Ok((ConflictResolution { resolution, procedure: None }, stored("LastWriterWins", text, "")))
}

fn custom(
    path: Option<&str>,
    procedure: Option<&str>,
) -> Result<(ConflictResolution, Value), PolicyError> {
    if path.is_some() {
        return Err(PolicyError::new(
            "'conflictResolutionPath' is only for the conflict resolution mode 'LastWriterWins'.",
        ));
    }
    let json = stored("Custom", "", procedure.unwrap_or_default());
    let procedure = procedure.map(str::to_owned);
    Ok((ConflictResolution { resolution: Resolution::Custom, procedure }, json))
}

fn stored(mode: &str, path: &str, procedure: &str) -> Value {
    Object::from([
        ("mode", mode),
        ("conflictResolutionPath", path),
        ("conflictResolutionProcedure", procedure),
    ])
    .into()
}
