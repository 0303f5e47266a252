//! Runs the JavaScript of stored procedures, triggers and user-defined functions.
//!
//! A script has no network, no files and no modules, and its clock and its chance are the caller's:
//! given the same documents it does the same thing. The caller relies on that to run a script again
//! when its transaction loses a race. Everything that a script asks of the database goes through
//! [`Host`], after the turn of the script that asked for it; documents cross as JSON text.
//!
//! - S1: every run of a procedure or trigger has a runtime of its own, thrown away afterwards.
//! - S2: whatever the script does, it ends: by [`Pace::Over`], by the memory or the stack it may
//!   use, or because nothing is left to do.
//! - S3: a failed run says so; whether what the host did counts is up to the caller, who drops it.
//!
//! The engine looks at the clock when a function is called or a loop turns, and then only every ten
//! thousandth time; inside a built-in function it does not look at all. The sandbox therefore asks
//! before built-in functions that can take long. It cannot stand in front of operators: a loop that
//! does nothing but spread a giant object, compare giant strings, walk a prototype chain of thousands
//! or multiply giant integers sees its deadline ten thousand turns late. What such a turn can cost is
//! bounded by the memory limit alone, so whoever waits for a script should not wait for ever.

mod engine;
mod error;
mod functions;
mod host;
mod limits;
mod link;
mod own;
mod run;

pub use error::{ErrorKind, ScriptError};
pub use functions::Functions;
pub use host::{Container, Host, HostError, Page, Query, Read};
pub use limits::{Limits, Pace, Surroundings};
pub use link::Link;
pub use run::{
    Outcome, Procedure, Script, Trigger, TriggerKind, TriggerOutcome, run_procedure, run_trigger,
    system_procedure,
};
