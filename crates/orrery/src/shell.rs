//! `orrery shell`: asks a server what a person says, statement by statement.
//!
//! A statement that fails is told, and the next one is read. Ctrl-C ends a statement that takes too
//! long. Without a terminal the shell prints nothing but answers, so that it can be scripted.

use std::cell::RefCell;
use std::io::{self, Write};
use std::process::ExitCode;
use std::rc::Rc;

use bytes::Bytes;
use tokio::runtime::Runtime;
use value::{PartitionKey, PartitionKeyDefinition, Value};

use crate::account::{Account, Existing, Invocation, Place, Question, Stored, name_of};
use crate::commands::ShellArguments;
use crate::connection::Failure;
use crate::loader::key_definition;
use crate::prompt::{Names, Prompt, Said};
use crate::query::Asker;
use crate::rows::Format;
use crate::say;
use crate::script::listed;
use crate::script_folder::KINDS;
use crate::statement::{HELP, Statement};

/// More rows than this nobody reads on a terminal.
const ROWS_MAX: u64 = 1_000;

pub(crate) fn run(arguments: &ShellArguments) -> Result<ExitCode, Box<dyn std::error::Error>> {
    // The prompt holds this thread; another one keeps the connection alive meanwhile.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let account = match runtime.block_on(arguments.connection.connect()) {
        Ok(account) => account,
        Err(Failure::Usage(message)) => {
            say(&format!("orrery: {message}"));
            return Ok(ExitCode::from(2));
        }
        Err(failure) => return Err(failure.into()),
    };
    let names = Rc::new(RefCell::new(Names::default()));
    let mut prompt = Prompt::new(names.clone())?;
    let format = if prompt.is_terminal() { Format::Table } else { Format::Ndjson };
    let rows_max = prompt.is_terminal().then_some(ROWS_MAX);
    let mut shell = Shell { account, place: Where::Account, format, rows_max };
    if prompt.is_terminal() {
        say(&format!("connected to {}; \\? lists the commands", shell.account.endpoint()));
        // Without names there is less to complete, that is all.
        names.borrow_mut().0 = runtime.block_on(shell.names()).unwrap_or_default();
    }
    if let Some(place) = &arguments.place {
        runtime.block_on(shell.go_to(Some(place)))?;
    }
    let all_well = shell.converse(&runtime, &mut prompt, &names)?;
    Ok(if all_well || prompt.is_terminal() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where statements look.
enum Where {
    Account,
    Database(String),
    Container(Place, PartitionKeyDefinition),
}

struct Shell {
    account: Account,
    place: Where,
    format: Format,
    /// Bounded where a person reads along.
    rows_max: Option<u64>,
}

impl Shell {
    /// Does what is said until there is no more; says whether all of it went well.
    fn converse(
        &mut self,
        runtime: &Runtime,
        prompt: &mut Prompt,
        names: &RefCell<Names>,
    ) -> Result<bool, String> {
        let mut all_well = true;
        loop {
            let text = match prompt.next(&self.place.to_string())? {
                Said::Statement(text) => text,
                Said::Nothing => continue,
                Said::End => return Ok(all_well),
            };
            let done = match Statement::parse(&text) {
                Ok(Statement::Quit) => return Ok(all_well),
                Ok(statement) => runtime.block_on(self.perform_until_interrupted(statement)),
                Err(why) => Err(Failure::Usage(why)),
            };
            match done {
                Ok(()) => {}
                Err(Failure::Unread) => return Ok(all_well),
                Err(Failure::Usage(why) | Failure::Refused(why)) => {
                    all_well = false;
                    say(&format!("error: {why}"));
                }
            }
            if prompt.is_terminal()
                && text.trim_start().starts_with("ls")
                && let Ok(known) = runtime.block_on(self.names())
            {
                names.borrow_mut().0 = known;
            }
        }
    }

    async fn perform_until_interrupted(&mut self, statement: Statement) -> Result<(), Failure> {
        // Listening takes the signal away from the system, which would end a script by it.
        if self.rows_max.is_none() {
            return self.perform(statement).await;
        }
        let interrupted = tokio::select! {
            done = self.perform(statement) => return done,
            interrupted = tokio::signal::ctrl_c() => interrupted,
        };
        // What is on its way over the connection is not waited for.
        self.account = self.account.another();
        match interrupted {
            Ok(()) => Err(Failure::Refused("interrupted".to_owned())),
            Err(error) => Err(Failure::Refused(format!("signals cannot be heard: {error}"))),
        }
    }

    async fn perform(&mut self, statement: Statement) -> Result<(), Failure> {
        match statement {
            Statement::Nothing | Statement::Quit => Ok(()),
            Statement::Help => print(HELP),
            Statement::Show(format) => {
                self.format = format;
                Ok(())
            }
            Statement::Use(place) => self.go_to(place.as_deref()).await,
            Statement::List(place) => self.list(place.as_deref()).await,
            Statement::Query(text) => {
                let (format, rows_max) = (self.format, self.rows_max);
                let mut asker = self.asker(text)?;
                asker.rows(format, None, rows_max, false).await.map(drop)
            }
            Statement::Explain(text) => self.asker(text)?.explain(None).await,
            Statement::Get { id, key } => self.get(&id, key).await,
            Statement::Put(text) => self.put(text).await,
            Statement::Delete { id, key } => self.delete(&id, key).await,
            Statement::Call { procedure, key, arguments } => {
                self.call(Invocation { procedure, key, arguments, log: true }).await
            }
        }
    }

    /// All databases, and all containers behind theirs.
    async fn names(&mut self) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for database in self.account.databases().await? {
            let Some(database) = name_of(&database).map(str::to_owned) else { continue };
            for container in self.account.containers(&database).await? {
                let container = name_of(&container).unwrap_or_default();
                names.push(format!("{database}.{container}"));
            }
            names.push(database);
        }
        names.sort();
        Ok(names)
    }

    /// Chooses where statements look.
    async fn go_to(&mut self, place: Option<&str>) -> Result<(), Failure> {
        self.place = match place {
            None => Where::Account,
            Some(place) => self.find(place).await?,
        };
        Ok(())
    }

    /// What a name means: a database, a container behind its database, or one of this database.
    async fn find(&mut self, name: &str) -> Result<Where, Failure> {
        let databases = self.account.databases().await?;
        let databases: Vec<&str> = databases.iter().filter_map(|one| name_of(one)).collect();
        if databases.contains(&name) {
            return Ok(Where::Database(name.to_owned()));
        }
        // Names may have dots of their own, so the databases that there are decide.
        let split = databases.iter().find_map(|database| {
            let container = name.strip_prefix(database)?.strip_prefix('.')?;
            Some(((*database).to_owned(), container.to_owned()))
        });
        let (database, container) = match (split, self.database()) {
            (Some(split), _) => split,
            (None, Some(database)) => (database.to_owned(), name.to_owned()),
            (None, None) => {
                let known = match databases.as_slice() {
                    [] => "there are none".to_owned(),
                    known => format!("there are {}", known.join(", ")),
                };
                return Err(Failure::Refused(format!("there is no database '{name}'; {known}")));
            }
        };
        let place = Place { database, container };
        let definition = self.account.container(&place).await?;
        let key = key_definition(&definition).map_err(Failure::Refused)?;
        Ok(Where::Container(place, key))
    }

    fn database(&self) -> Option<&str> {
        match &self.place {
            Where::Account => None,
            Where::Database(database) => Some(database),
            Where::Container(place, _) => Some(&place.database),
        }
    }

    fn container(&self) -> Result<(Place, &PartitionKeyDefinition), Failure> {
        match &self.place {
            Where::Container(place, key) => Ok((place.clone(), key)),
            Where::Account | Where::Database(_) => {
                Err(Failure::Usage("choose a container first: use DATABASE.CONTAINER".to_owned()))
            }
        }
    }

    async fn list(&mut self, place: Option<&str>) -> Result<(), Failure> {
        let found = match place {
            Some(place) => Some(self.find(place).await?),
            None => None,
        };
        let mut lines = String::new();
        match found.as_ref().unwrap_or(&self.place) {
            Where::Account => {
                for database in self.account.databases().await? {
                    lines += &format!("{}\n", name_of(&database).unwrap_or_default());
                }
            }
            Where::Database(database) => {
                for container in self.account.containers(database).await? {
                    lines += &format!("{}\n", name_of(&container).unwrap_or_default());
                }
            }
            Where::Container(place, _) => {
                for kind in KINDS {
                    for script in self.account.scripts(place, kind).await? {
                        lines += &format!("{}\n", listed(kind, &script));
                    }
                }
            }
        }
        print(&lines)
    }

    fn asker(&mut self, text: String) -> Result<Asker<'_>, Failure> {
        let (place, _) = self.container()?;
        let question = Question { place, text, parameters: Vec::new(), key: None };
        Ok(Asker { account: &mut self.account, question })
    }

    /// The key of a document: the one that is given, or its id where that is the key.
    fn key(&self, id: &str, key: Option<PartitionKey>) -> Result<PartitionKey, Failure> {
        let (_, definition) = self.container()?;
        let paths: Vec<String> = definition.paths.iter().map(ToString::to_string).collect();
        match key {
            Some(key) => Ok(key),
            None if paths == ["/id"] => {
                let document = [("id", id)].into();
                Ok(definition.extract(&document))
            }
            None => Err(Failure::Usage(format!(
                "give the partition key too, the value of {}",
                paths.join(", ")
            ))),
        }
    }

    async fn get(&mut self, id: &str, key: Option<PartitionKey>) -> Result<(), Failure> {
        let (place, _) = self.container()?;
        let key = self.key(id, key)?;
        match self.account.document(&place, &key, id).await? {
            Some(document) => print(&format!("{}\n", String::from_utf8_lossy(&document))),
            None => Err(no_document(id, &key)),
        }
    }

    async fn put(&mut self, text: String) -> Result<(), Failure> {
        let (place, definition) = self.container()?;
        let Ok(Value::Object(document)) = Value::parse(text.as_bytes()) else {
            return Err(Failure::Usage("a document is a JSON object".to_owned()));
        };
        let key = definition.extract(&document);
        let stored = self.account.store(&place, &key, Bytes::from(text), Existing::Replace).await?;
        match stored {
            Stored::Created => print("created\n"),
            Stored::Replaced => print("replaced\n"),
            Stored::Conflict => Err(Failure::Refused(
                "another document of its partition has the same unique values".to_owned(),
            )),
            Stored::Moved | Stored::NotNow => {
                Err(Failure::Refused("the server is busy; try again".to_owned()))
            }
            Stored::Refused(why) => Err(Failure::Refused(why)),
        }
    }

    async fn delete(&mut self, id: &str, key: Option<PartitionKey>) -> Result<(), Failure> {
        let (place, _) = self.container()?;
        let key = self.key(id, key)?;
        if self.account.delete(&place, &key, id).await? {
            return print("deleted\n");
        }
        Err(no_document(id, &key))
    }

    async fn call(&mut self, invocation: Invocation) -> Result<(), Failure> {
        let (place, _) = self.container()?;
        let answer = self.account.call(&place, &invocation).await?;
        if let Some(log) = answer.script_log().filter(|log| !log.is_empty()) {
            say(log.trim_end_matches('\n'));
        }
        if answer.body.is_empty() {
            return Ok(());
        }
        print(&format!("{}\n", String::from_utf8_lossy(&answer.body)))
    }
}

impl std::fmt::Display for Where {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Where::Account => f.write_str("orrery"),
            Where::Database(database) => f.write_str(database),
            Where::Container(Place { database, container }, _) => {
                write!(f, "{database}.{container}")
            }
        }
    }
}

fn no_document(id: &str, key: &PartitionKey) -> Failure {
    Failure::Refused(format!("there is no document '{id}' in the partition {key}"))
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
