//! Where the shell's statements come from: a person at a terminal, with history and completion, or
//! lines of standard input.

use std::cell::RefCell;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::rc::Rc;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use crate::statement::{COMMANDS, is_whole};

/// The words of the query language that are completed.
const KEYWORDS: [&str; 38] = [
    "ABS",
    "AND",
    "ARRAY_CONTAINS",
    "ARRAY_LENGTH",
    "AS",
    "ASC",
    "AVG",
    "BETWEEN",
    "BY",
    "CONTAINS",
    "COUNT",
    "DESC",
    "DISTINCT",
    "ENDSWITH",
    "EXISTS",
    "FROM",
    "GROUP",
    "IN",
    "IS_DEFINED",
    "IS_NULL",
    "JOIN",
    "LENGTH",
    "LIKE",
    "LIMIT",
    "LOWER",
    "MAX",
    "MIN",
    "NOT",
    "OFFSET",
    "OR",
    "ORDER",
    "SELECT",
    "STARTSWITH",
    "SUM",
    "TOP",
    "UPPER",
    "VALUE",
    "WHERE",
];

/// The names that can be completed: databases, and containers behind their database.
#[derive(Debug, Default)]
pub(crate) struct Names(pub(crate) Vec<String>);

/// Gives statements, one after the other.
pub(crate) enum Prompt {
    Terminal(Box<Terminal>),
    Lines,
}

/// A terminal with a person at it.
pub(crate) struct Terminal {
    editor: Editor<Completing, FileHistory>,
    history: Option<PathBuf>,
}

/// What the person, or the end of the input, asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Statement(String),
    /// The line is taken back.
    Nothing,
    End,
}

impl Prompt {
    /// A prompt for whoever is there.
    pub(crate) fn new(names: Rc<RefCell<Names>>) -> Result<Self, String> {
        if !io::stdin().is_terminal() {
            return Ok(Prompt::Lines);
        }
        let refuse = |error: ReadlineError| format!("the terminal cannot be used: {error}");
        let config = Config::builder().completion_type(CompletionType::List).build();
        let mut editor = Editor::with_config(config).map_err(refuse)?;
        editor.set_helper(Some(Completing(names)));
        let history = history_file(&|name| std::env::var_os(name).map(PathBuf::from));
        if let Some(path) = &history {
            // There is none before the first time.
            let _ = editor.load_history(path);
        }
        Ok(Prompt::Terminal(Box::new(Terminal { editor, history })))
    }

    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self, Prompt::Terminal(_))
    }

    /// Reads the next statement, over as many lines as it has.
    pub(crate) fn next(&mut self, place: &str) -> Result<Said, String> {
        let mut text = String::new();
        loop {
            let prompt = match text.is_empty() {
                true => format!("{place}> "),
                false => format!("{:>1$}> ", "…", place.chars().count()),
            };
            let line = match self.line(&prompt)? {
                Line::Text(line) => line,
                Line::Interrupted => return Ok(Said::Nothing),
                Line::End if text.is_empty() => return Ok(Said::End),
                Line::End => break,
            };
            text.push_str(&line);
            if is_whole(&text, &line) {
                break;
            }
            text.push('\n');
        }
        if let Prompt::Terminal(terminal) = self {
            terminal.remember(text.trim_end());
        }
        Ok(Said::Statement(text))
    }

    fn line(&mut self, prompt: &str) -> Result<Line, String> {
        match self {
            Prompt::Lines => {
                let mut line = String::new();
                match io::stdin().read_line(&mut line) {
                    Ok(0) => Ok(Line::End),
                    Ok(_) => Ok(Line::Text(line.trim_end_matches(['\n', '\r']).to_owned())),
                    Err(error) => Err(format!("cannot read the input: {error}")),
                }
            }
            Prompt::Terminal(terminal) => match terminal.editor.readline(prompt) {
                Ok(line) => Ok(Line::Text(line)),
                Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
                Err(ReadlineError::Eof) => Ok(Line::End),
                Err(error) => Err(format!("cannot read the input: {error}")),
            },
        }
    }
}

enum Line {
    Text(String),
    Interrupted,
    End,
}

impl Terminal {
    fn remember(&mut self, statement: &str) {
        if statement.is_empty() {
            return;
        }
        // Losing the history is no reason to stop.
        let _ = self.editor.add_history_entry(statement);
        if let Some(path) = &self.history {
            if let Some(folder) = path.parent() {
                let _ = std::fs::create_dir_all(folder);
            }
            let _ = self.editor.save_history(path);
        }
    }
}

/// Where the history is kept: `ORRERY_HISTORY`, or where the system keeps such things.
fn history_file(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let state = || {
        variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local").join("state")))
    };
    variable("ORRERY_HISTORY").or_else(|| Some(state()?.join("orrery").join("history")))
}

/// Completes words.
struct Completing(Rc<RefCell<Names>>);

impl Completer for Completing {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(complete(&line[..position], &self.0.borrow()))
    }
}

impl Hinter for Completing {
    type Hint = String;
}
impl Highlighter for Completing {}
impl Validator for Completing {}
impl Helper for Completing {}

/// Where the word at the end of a line starts, and what it may become: a command at the beginning, a
/// database or container behind `use` and `ls`, else a word of the query language.
fn complete(line: &str, names: &Names) -> (usize, Vec<String>) {
    let is_boundary = |c: char| c.is_whitespace() || c == '(' || c == ',';
    let start = line
        .rfind(is_boundary)
        .map_or(0, |at| at + line[at..].chars().next().map_or(1, char::len_utf8));
    let word = &line[start..];
    let before = line[..start].trim();
    let begins = |candidate: &str| {
        candidate.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
    };
    let found: Vec<String> = match before.to_ascii_lowercase().as_str() {
        "" => COMMANDS.iter().filter(|one| begins(one)).map(|one| format!("{one} ")).collect(),
        "use" | "ls" => names.0.iter().filter(|one| one.starts_with(word)).cloned().collect(),
        _ if word.is_empty() => Vec::new(),
        _ => KEYWORDS.iter().filter(|one| begins(one)).map(|one| (*one).to_owned()).collect(),
    };
    (start, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, start: usize, expected: &[&str]) {
        let names = Names(["shop", "shop.orders", "shop.öl", "other"].map(str::to_owned).to_vec());
        let (found_start, found) = complete(line, &names);
        assert_eq!(
            (found_start, found),
            (start, expected.iter().map(|s| (*s).to_owned()).collect())
        );
    }

    #[test]
    fn words_are_completed() {
        check("u", 0, &["use "]);
        check("ex", 0, &["explain ", "exit "]);
        check("\\t", 0, &["\\table "]);
        check("sel", 0, &["SELECT "]);
        check("use sh", 4, &["shop", "shop.orders", "shop.öl"]);
        check("ls shop.o", 3, &["shop.orders"]);
        check("use shop.ö", 4, &["shop.öl"]);
        check("SELECT * FROM c WHERE arr", 22, &["ARRAY_CONTAINS", "ARRAY_LENGTH"]);
        check("SELECT ABS(len", 11, &["LENGTH"]);
        check("SELECT ", 7, &[]);
        check("SELECT ö", 7, &[]);
    }

    #[test]
    fn the_history_has_its_place() {
        let check = |set: &[(&str, &str)], expected: Option<&str>| {
            let variable = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, path)| PathBuf::from(path))
            };
            assert_eq!(history_file(&variable), expected.map(PathBuf::from));
        };
        check(&[("ORRERY_HISTORY", "/h"), ("HOME", "/u")], Some("/h"));
        check(&[("XDG_STATE_HOME", "/s"), ("HOME", "/u")], Some("/s/orrery/history"));
        check(&[("HOME", "/u")], Some("/u/.local/state/orrery/history"));
        check(&[], None);
    }
}
