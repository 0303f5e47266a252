//! How far a long command got, kept in a small file so that it can go on after an interruption.
//!
//! The file is JSON: what the work is about, and a mark for each part of it. It is replaced as a
//! whole, at most once a second, so it may be a little behind but is never torn. Going on from a mark
//! does again what was done since, which does no harm: documents are replaced by themselves, and
//! files are cut to the length in the mark.

use std::fs;
use std::path::{Path, PathBuf};

use db::{Clock, SystemClock};
use value::{Object, Value};

use crate::connection::Failure;

const SAVE_EVERY_MS: u64 = 1_000;

/// How far the work is.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    about: Object,
    marks: Object,
    saved_ms: u64,
    is_ended: bool,
}

impl Drop for State {
    /// What fails goes on where it failed. Whoever is killed goes on a little before.
    fn drop(&mut self) {
        if !self.is_ended {
            let _ = self.save();
        }
    }
}

impl State {
    /// The state of work that has just begun.
    pub(crate) fn begin(path: PathBuf, about: Object) -> Result<Self, Failure> {
        let mut state = Self { path, about, marks: Object::new(), saved_ms: 0, is_ended: false };
        state.save()?;
        Ok(state)
    }

    /// The state of work that was interrupted. It must be about the same.
    pub(crate) fn resume(path: PathBuf, about: &Object) -> Result<Self, Failure> {
        let refuse = |why: &str| Failure::Refused(format!("{}: {why}", path.display()));
        let text = fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Failure::Usage("there is nothing to resume; leave out --resume".to_owned())
            }
            _ => refuse(&error.to_string()),
        })?;
        let Ok(Value::Object(mut state)) = Value::parse(&text) else {
            return Err(refuse("it is damaged; delete it and start anew"));
        };
        let (Some(Value::Object(was)), Some(Value::Object(marks))) =
            (state.remove("about"), state.remove("marks"))
        else {
            return Err(refuse("it is damaged; delete it and start anew"));
        };
        if was != *about {
            return Err(refuse(&format!(
                "what was interrupted is another command, about {}; repeat that one with --resume, \
                 or start anew without",
                Value::from(was).to_text()
            )));
        }
        Ok(Self { path, about: was, marks, saved_ms: 0, is_ended: false })
    }

    /// The mark of a part of the work, if it has got to one.
    pub(crate) fn mark(&self, part: &str) -> Option<&Value> {
        self.marks.get(part)
    }

    /// Sets a mark, and saves it if it is time to.
    pub(crate) fn set(&mut self, part: &str, mark: Value) -> Result<(), Failure> {
        self.marks.insert(part, mark);
        if SystemClock.now_ms().saturating_sub(self.saved_ms) >= SAVE_EVERY_MS {
            self.save()?;
        }
        Ok(())
    }

    fn save(&mut self) -> Result<(), Failure> {
        let state = Object::from([
            ("about", Value::from(self.about.clone())),
            ("marks", Value::from(self.marks.clone())),
        ]);
        let next = self.path.with_extension("new");
        let saved = fs::write(&next, Value::from(state).to_text() + "\n")
            .and_then(|()| fs::rename(&next, &self.path));
        saved.map_err(|error| cannot_write(&self.path, &error))?;
        self.saved_ms = SystemClock.now_ms();
        Ok(())
    }

    /// Forgets the state: the work is done.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        self.is_ended = true;
        fs::remove_file(&self.path).map_err(|error| cannot_write(&self.path, &error))
    }
}

/// A file that cannot be written.
pub(crate) fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Refused(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_on_from_its_marks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let about = Object::from([("database", "shop")]);
        let mut state = State::begin(path.clone(), about.clone()).unwrap();
        state.set("a", Value::from(1)).unwrap();
        state.set("a", Value::from(2)).unwrap();
        state.save().unwrap();
        let state = State::resume(path.clone(), &about).unwrap();
        assert_eq!(state.mark("a"), Some(&Value::from(2)));
        assert_eq!(state.mark("b"), None);
        let other = State::resume(path.clone(), &Object::from([("database", "x")])).unwrap_err();
        assert!(other.to_string().contains("another command"), "{other}");
        state.end().unwrap();
        let gone = State::resume(path.clone(), &about).unwrap_err();
        assert!(gone.to_string().contains("nothing to resume"), "{gone}");
        fs::write(&path, "{").unwrap();
        let torn = State::resume(path, &about).unwrap_err();
        assert!(torn.to_string().contains("damaged"), "{torn}");
    }
}
