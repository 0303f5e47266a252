//! `orrery range`: lists the ranges of a container, splits and merges them.

use std::io::{self, Write};
use std::process::ExitCode;

use value::{Object, Value};

use crate::commands::{RangeCommand, RangeListArguments, RangeMergeArguments, RangeSplitArguments};
use crate::connection::{self, Failure};

pub(crate) fn run(command: RangeCommand) -> Result<ExitCode, Box<dyn std::error::Error>> {
    connection::run(async {
        match command {
            RangeCommand::List(arguments) => list(*arguments).await,
            RangeCommand::Split(arguments) => split(*arguments).await,
            RangeCommand::Merge(arguments) => merge(*arguments).await,
        }
    })
}

async fn list(arguments: RangeListArguments) -> Result<(), Failure> {
    let mut account = arguments.connection.connect().await?;
    let ranges = account.range_resources(&arguments.place.place()).await?;
    let mut out = io::stdout().lock();
    for range in &ranges {
        writeln!(out, "{}", listed(range))?;
    }
    Ok(out.flush()?)
}

/// A line about a range.
fn listed(range: &Object) -> String {
    let text = |name: &str| range.get(name).and_then(Value::as_str).unwrap_or_default();
    let lsn = range.get("_lsn").and_then(Value::as_i64).unwrap_or_default();
    let parents = range.get("parents").and_then(Value::as_array).unwrap_or_default();
    let parents: Vec<&str> = parents.iter().filter_map(Value::as_str).collect();
    let from =
        if parents.is_empty() { String::new() } else { format!("  from {}", parents.join(", ")) };
    let (min, max) = (text("minInclusive"), text("maxExclusive"));
    let min = if min.is_empty() { "00" } else { min };
    format!("{:<4}  {min:<32}  {max:<32}  version {lsn}{from}", text("id"))
}

async fn split(arguments: RangeSplitArguments) -> Result<(), Failure> {
    let mut what = Object::from([("split", Value::from(arguments.range.as_str()))]);
    if let Some(at) = arguments.at {
        what.insert("at", at);
    }
    let mut account = arguments.connection.connect().await?;
    let new = account.recut(&arguments.place.place(), &what).await?;
    tell(&new)
}

async fn merge(arguments: RangeMergeArguments) -> Result<(), Failure> {
    let ranges = vec![Value::from(arguments.range), Value::from(arguments.other)];
    let what = Object::from([("merge", Value::Array(ranges))]);
    let mut account = arguments.connection.connect().await?;
    let new = account.recut(&arguments.place.place(), &what).await?;
    tell(&new)
}

/// Prints the ids of the ranges that have taken over.
fn tell(new: &[String]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    for id in new {
        writeln!(out, "{id}")?;
    }
    Ok(out.flush()?)
}
