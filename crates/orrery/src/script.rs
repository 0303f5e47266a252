//! `orrery script`: brings scripts to a container, lists and calls them.

use std::io::{self, Write};
use std::process::ExitCode;

use value::{Object, ScriptKind, Value};

use crate::account::{Account, Invocation, Place, name_of};
use crate::commands::{
    ScriptCallArguments, ScriptCommand, ScriptListArguments, ScriptPushArguments,
};
use crate::connection::{self, Failure};
use crate::explanation::count;
use crate::say;
use crate::script_folder::{self, KINDS, Script, word};

pub(crate) fn run(command: ScriptCommand) -> Result<ExitCode, Box<dyn std::error::Error>> {
    connection::run(async {
        match command {
            ScriptCommand::Push(arguments) => push(*arguments).await,
            ScriptCommand::Call(arguments) => call(*arguments).await,
            ScriptCommand::List(arguments) => list(*arguments).await,
        }
    })
}

/// What becomes of one script.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Create(Script),
    Replace(Script),
    Keep(Script),
    Delete(ScriptKind, String),
}

async fn push(arguments: ScriptPushArguments) -> Result<(), Failure> {
    let scripts = script_folder::read(&arguments.directory)?;
    let place = arguments.place.place();
    let mut account = arguments.connection.connect().await?;
    let steps = steps(&mut account, &place, scripts, arguments.prune).await?;
    let mut out = io::stdout().lock();
    let mut changes = 0;
    for step in &steps {
        if !arguments.dry_run {
            take(&mut account, &place, step).await?;
        }
        changes += u32::from(!matches!(step, Step::Keep(_)));
        writeln!(out, "{}", told(step, arguments.dry_run))?;
    }
    out.flush()?;
    let scripts = count(steps.len() as u64, "script");
    say(&match (changes, arguments.dry_run) {
        (0, _) => format!("{scripts}, nothing to change"),
        (changes, false) => format!("{scripts}, {changes} changed"),
        (changes, true) => format!("{scripts}, {changes} would change"),
    });
    Ok(())
}

/// What has to be done for the container to have the scripts.
async fn steps(
    account: &mut Account,
    place: &Place,
    scripts: Vec<Script>,
    prune: bool,
) -> Result<Vec<Step>, Failure> {
    let (mut steps, mut deleted) = (Vec::new(), Vec::new());
    let mut scripts = scripts.into_iter().peekable();
    for kind in KINDS {
        let stored = account.scripts(place, kind).await?;
        let mut pushed = Vec::new();
        while let Some(script) = scripts.next_if(|script| script.kind == kind) {
            pushed.push(script.name.clone());
            let found = stored.iter().find(|one| name_of(one) == Some(&script.name));
            steps.push(match found {
                None => Step::Create(script),
                Some(found) if script.is_same(found) => Step::Keep(script),
                Some(_) => Step::Replace(script),
            });
        }
        let names = stored.iter().filter_map(|one| name_of(one)).map(str::to_owned);
        let extra = names.filter(|name| !pushed.contains(name));
        deleted.extend(extra.map(|name| Step::Delete(kind, name)));
    }
    if prune {
        steps.extend(deleted);
    }
    Ok(steps)
}

async fn take(account: &mut Account, place: &Place, step: &Step) -> Result<(), Failure> {
    let (kind, name, taken) = match step {
        Step::Keep(_) => return Ok(()),
        Step::Create(script) => {
            let created = account.create_script(place, script.kind, &script.definition).await;
            let taken = created.and_then(|is_new| {
                let taken = "somebody else has created one of this name just now; push again";
                if is_new { Ok(()) } else { Err(Failure::Refused(taken.to_owned())) }
            });
            (script.kind, &script.name, taken)
        }
        Step::Replace(script) => {
            let (kind, name) = (script.kind, &script.name);
            let replaced = account.replace_script(place, kind, name, &script.definition).await;
            (kind, name, replaced)
        }
        Step::Delete(kind, name) => (*kind, name, account.delete_script(place, *kind, name).await),
    };
    taken.map_err(|failure| failure.at(&format!("{} {name}", word(kind))))
}

fn told(step: &Step, dry_run: bool) -> String {
    let (done, planned, kind, name) = match step {
        Step::Create(script) => ("created", "would create", script.kind, &script.name),
        Step::Replace(script) => ("replaced", "would replace", script.kind, &script.name),
        Step::Keep(script) => ("unchanged", "unchanged", script.kind, &script.name),
        Step::Delete(kind, name) => ("deleted", "would delete", *kind, name),
    };
    format!("{} {} {name}", if dry_run { planned } else { done }, word(kind))
}

async fn call(arguments: ScriptCallArguments) -> Result<(), Failure> {
    let place = arguments.place.place();
    let mut account = arguments.connection.connect().await?;
    let invocation = Invocation {
        procedure: arguments.name,
        key: arguments.partition_key,
        arguments: arguments.arguments,
        log: arguments.log,
    };
    let answer = account.call(&place, &invocation).await?;
    if let Some(log) = answer.script_log().filter(|_| arguments.log) {
        say(log.trim_end_matches('\n'));
    }
    let mut out = io::stdout().lock();
    if !answer.body.is_empty() {
        out.write_all(&answer.body)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

async fn list(arguments: ScriptListArguments) -> Result<(), Failure> {
    let place = arguments.place.place();
    let mut account = arguments.connection.connect().await?;
    let mut out = io::stdout().lock();
    for kind in KINDS {
        for script in account.scripts(&place, kind).await? {
            writeln!(out, "{}", listed(kind, &script))?;
        }
    }
    Ok(out.flush()?)
}

/// A line about a script: its kind, its name, and when it runs if it is a trigger.
pub(crate) fn listed(kind: ScriptKind, script: &Object) -> String {
    let text = |name: &str| script.get(name).and_then(Value::as_str).unwrap_or_default();
    let occasion = match kind {
        ScriptKind::Trigger => {
            format!("  {} {}", text("triggerType"), text("triggerOperation")).to_lowercase()
        }
        ScriptKind::Procedure | ScriptKind::Function => String::new(),
    };
    format!("{:<9}  {}{occasion}", word(kind), text("id"))
}
