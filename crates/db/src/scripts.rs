//! Scripts: procedures, triggers and functions, as resources and at work.
//!
//! In reading order: [`resource`] is what clients store; [`execute`] runs procedures and [`trigger`]
//! writes with triggers, each as one transaction; [`transaction`] says what that is; [`host`] and
//! [`query`] answer what scripts ask of it; [`executor`] is where they run; [`functions`] are for
//! queries.

mod execute;
mod executor;
mod functions;
mod host;
mod query;
mod resource;
mod transaction;
mod trigger;

use script::{ErrorKind, ScriptError};

use crate::{Error, Kind};

pub(crate) use execute::SCRIPT_MS;
pub use execute::{Call, Called};
pub(crate) use executor::Executor;
pub(crate) use functions::functions;
pub(crate) use resource::Scripts;
pub use trigger::{Triggered, Triggers};

/// The error of a script in the database's terms. `stopped` is what ended it from outside.
fn failure(error: &ScriptError, stopped: Option<Error>) -> Error {
    let kind = match error.kind() {
        ErrorKind::Stopped => {
            return stopped.unwrap_or_else(|| Error::new(Kind::Internal, error.text()));
        }
        ErrorKind::Compile => Kind::ScriptCompile,
        ErrorKind::Parameters | ErrorKind::Thrown { .. } | ErrorKind::Unsettled => Kind::BadRequest,
        ErrorKind::TimedOut => Kind::Timeout,
        ErrorKind::Engine => Kind::Internal,
    };
    Error { number: error.sub_status(), ..Error::new(kind, error.message()) }
}
