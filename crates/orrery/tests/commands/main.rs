//! The commands that ask a server, each as a process against a server that is one too.

#![expect(clippy::unwrap_used, reason = "a test may stop where a script would")]

mod process;
mod query;
mod range;
mod script;
mod seed;
mod shell;
mod transfer;
