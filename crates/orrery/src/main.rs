//! The `orrery` command: choices (which engine, which port) are made here, once.

mod account;
mod client;
mod commands;
mod config;
mod connection;
mod explanation;
mod export;
mod feed;
mod import;
mod loader;
mod logging;
mod progress;
mod prompt;
mod query;
mod range;
mod refusal;
mod resume;
mod rows;
mod script;
mod script_folder;
mod seed;
mod serve;
mod shell;
mod statement;
mod trust;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Serve(arguments) => serve::run(*arguments),
        Command::Query(arguments) => query::run(*arguments),
        Command::Export(arguments) => export::run(*arguments),
        Command::Import(arguments) => import::run(*arguments),
        Command::Script(command) => script::run(command),
        Command::Shell(arguments) => shell::run(&arguments),
        Command::Range(command) => range::run(command),
        Command::Verify(arguments) => verify::run(&arguments),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            say(&format!("orrery: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Tells the person at the terminal; what programs read goes to standard output instead.
#[expect(clippy::print_stderr, reason = "a command speaks to its user")]
fn say(text: &str) {
    eprintln!("{text}");
}
