//! Which documents the change feed of all versions shows as they were before.
//!
//! The policy names features of the service that may ask for it; here there is one. Older clients put
//! the mode beside the features instead of under one of them. Where nothing is said, deletes show what
//! is gone and replaces do not show what was: so the tests of the SDKs for .NET, Java and Rust have it.

use value::{Object, Value};

use super::{PolicyError, member};

/// Of which changes the document before is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousImages {
    /// Of those that leave another document: replace, patch, and upsert where there was one.
    pub of_replaced: bool,
    /// Of those that leave none: delete, and the end of its time to live.
    pub of_deleted: bool,
}

/// The bits of a mode, by the protocol.
const REPLACES: i64 = 1;
const DELETES: i64 = 2;

pub(super) fn check(body: &Object) -> Result<(PreviousImages, Option<Value>), PolicyError> {
    let silent = PreviousImages { of_replaced: false, of_deleted: true };
    let Some(policy) = member::object(body, "previousImageRetentionPolicy")? else {
        return Ok((silent, None));
    };
    let mut asked = mode(policy)?;
    if let Some(features) = member::object(policy, "supportedFeatures")? {
        for name in features.keys() {
            let Some(feature) = member::object(features, name)? else { continue };
            let mode = mode(feature)?;
            if name == "allVersionsAndDeletes" {
                refuse_paths(feature)?;
                asked = mode.or(asked);
            } else if mode.is_some_and(|mode| mode != 0) {
                return Err(PolicyError::new(format!(
                    "previous images for '{name}' are not served yet"
                )));
            }
        }
    }
    let Some(asked) = asked else { return Ok((silent, Some(Object::new().into()))) };
    let images =
        PreviousImages { of_replaced: asked & REPLACES != 0, of_deleted: asked & DELETES != 0 };
    let feature = Object::from([("mode", Value::from(asked))]);
    let features = Object::from([("allVersionsAndDeletes", Value::from(feature))]);
    let stored = Object::from([("supportedFeatures", Value::from(features))]);
    Ok((images, Some(stored.into())))
}

fn mode(owner: &Object) -> Result<Option<i64>, PolicyError> {
    let Some(mode) = member::number(owner, "mode")? else { return Ok(None) };
    let known = mode.as_i64().filter(|mode| (0..=REPLACES | DELETES).contains(mode));
    known.map(Some).ok_or_else(|| {
        PolicyError::invalid_input(format!(
            "the 'mode' of 'previousImageRetentionPolicy' must be 0, 1, 2 or 3, not {}",
            mode.text()
        ))
    })
}

/// Images are whole here.
fn refuse_paths(feature: &Object) -> Result<(), PolicyError> {
    match member::array(feature, "includedPaths")? {
        None | Some([]) => Ok(()),
        Some(_) => Err(PolicyError::new(
            "'includedPaths' of 'previousImageRetentionPolicy' is not served yet: previous images \
             are whole",
        )),
    }
}
