//! What a person can say to the shell.

use value::{PartitionKey, Value};

use crate::commands;
use crate::rows::Format;

/// The words that commands start with; a query starts with `SELECT`.
pub(crate) const COMMANDS: [&str; 13] = [
    "use", "ls", "get", "put", "delete", "call", "explain", "SELECT", "\\json", "\\table", "\\?",
    "help", "exit",
];

pub(crate) const HELP: &str = "\
SELECT … ;                  ask a query; it ends with ';' or an empty line
explain SELECT … ;          tell how the query would be answered
use DATABASE[.CONTAINER]    choose where commands look; alone: leave it
ls [DATABASE[.CONTAINER]]   list databases, the containers of one, or the scripts of a container
get ID [KEY]                show a document; KEY is its partition key in JSON, as in \"ada\" or [\"a\",1]
put DOCUMENT                create or replace a document
delete ID [KEY]             delete a document
call PROCEDURE KEY [JSON…]  call a procedure with arguments
\\json, \\table               how rows look
\\?, help                    this list
\\q, exit, quit              leave
Names with spaces and the like stand in quotes. KEY can be left out where it is the id.
";

/// One thing that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Statement {
    Nothing,
    Use(Option<String>),
    List(Option<String>),
    Get { id: String, key: Option<PartitionKey> },
    Put(String),
    Delete { id: String, key: Option<PartitionKey> },
    Call { procedure: String, key: PartitionKey, arguments: Vec<Value> },
    Query(String),
    Explain(String),
    Show(Format),
    Help,
    Quit,
}

/// Whether a text that may go on over several lines is whole. `last` is the line that came last.
pub(crate) fn is_whole(text: &str, last: &str) -> bool {
    let (word, rest) = first_word(text);
    let goes_on = match word.to_ascii_lowercase().as_str() {
        "select" | "explain" => true,
        // A document is whole when it is.
        "put" => Value::parse(rest.as_bytes()).is_err(),
        _ => false,
    };
    !goes_on || last.trim().is_empty() || last.trim_end().ends_with(';')
}

impl Statement {
    pub(crate) fn parse(text: &str) -> Result<Statement, String> {
        let text = text.trim().trim_end_matches(';').trim_end();
        let (word, rest) = first_word(text);
        let place = || if rest.is_empty() { Ok(None) } else { name(rest).map(Some) };
        Ok(match word.to_ascii_lowercase().as_str() {
            "" => Statement::Nothing,
            "select" => Statement::Query(text.to_owned()),
            "explain" if rest.is_empty() => return Err("explain what? give a query".to_owned()),
            "explain" => Statement::Explain(rest.to_owned()),
            "use" => Statement::Use(place()?),
            "ls" => Statement::List(place()?),
            "get" => {
                let (id, key) = address(rest)?;
                Statement::Get { id, key }
            }
            "delete" => {
                let (id, key) = address(rest)?;
                Statement::Delete { id, key }
            }
            "put" => {
                commands::json(rest)?;
                Statement::Put(rest.to_owned())
            }
            "call" => call(rest)?,
            "\\json" => Statement::Show(Format::Ndjson),
            "\\table" => Statement::Show(Format::Table),
            "\\?" | "\\h" | "help" => Statement::Help,
            "\\q" | "exit" | "quit" => Statement::Quit,
            _ => return Err(format!("'{word}' is no command; \\? lists them")),
        })
    }
}

/// The first word and what follows it.
fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    match text.find(|c: char| c.is_whitespace()) {
        Some(end) => (&text[..end], text[end..].trim_start()),
        None => (text, ""),
    }
}

/// A name alone.
fn name(text: &str) -> Result<String, String> {
    match first_name(text)? {
        (name, "") => Ok(name),
        (_, rest) => {
            Err(format!("'{rest}' is too much; a name with spaces stands in quotes: \"{text}\""))
        }
    }
}

/// A name in quotes or without, and what follows it.
fn first_name(text: &str) -> Result<(String, &str), String> {
    if !text.starts_with('"') {
        let (name, rest) = first_word(text);
        return Ok((name.to_owned(), rest));
    }
    let end = json_end(text);
    match Value::parse(&text.as_bytes()[..end]) {
        Ok(Value::String(name)) => Ok((name, text[end..].trim_start())),
        _ => Err(format!("the quotes do not end: {text}")),
    }
}

/// An id, and the partition key if there is one.
fn address(text: &str) -> Result<(String, Option<PartitionKey>), String> {
    if text.is_empty() {
        return Err("which document? give its ID and its partition key".to_owned());
    }
    let (id, rest) = first_name(text)?;
    let key = (!rest.is_empty()).then(|| commands::partition_key(rest)).transpose();
    Ok((id, key.map_err(|why| format!("the partition key: {why}"))?))
}

fn call(text: &str) -> Result<Statement, String> {
    let (procedure, rest) = first_name(text)?;
    let mut values = Vec::new();
    let mut rest = rest;
    while !rest.is_empty() {
        let end = json_end(rest);
        values.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    let Some((key, arguments)) = values.split_first() else {
        return Err("call PROCEDURE KEY [JSON…]: it runs in the partition of a key".to_owned());
    };
    let key = commands::partition_key(key).map_err(|why| format!("the partition key: {why}"))?;
    let arguments = arguments.iter().map(|text| commands::json(text)).collect::<Result<_, _>>()?;
    Ok(Statement::Call { procedure, key, arguments })
}

/// Where the JSON value at the start of a text ends, as far as strings and brackets tell.
fn json_end(text: &str) -> usize {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => {
                in_string = !in_string;
                if !in_string && depth == 0 {
                    return at + 1;
                }
            }
            _ if in_string => {}
            '{' | '[' => depth += 1,
            '}' | ']' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ if depth == 0 && character.is_whitespace() => return at,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Statement) {
        assert_eq!(Statement::parse(text), Ok(expected), "{text}");
    }

    #[track_caller]
    fn refused(text: &str, part: &str) {
        let why = Statement::parse(text).unwrap_err();
        assert!(why.contains(part), "{text}: {why}");
    }

    fn key(text: &str) -> PartitionKey {
        commands::partition_key(text).unwrap()
    }

    #[test]
    fn statements_are_understood() {
        check("", Statement::Nothing);
        check(" ; ", Statement::Nothing);
        check("select *\nfrom c ;", Statement::Query("select *\nfrom c".to_owned()));
        check("EXPLAIN SELECT 1;", Statement::Explain("SELECT 1".to_owned()));
        check("use", Statement::Use(None));
        check("use shop.orders", Statement::Use(Some("shop.orders".to_owned())));
        check("ls \"a b\"", Statement::List(Some("a b".to_owned())));
        check("get 1", Statement::Get { id: "1".to_owned(), key: None });
        check(
            "get \"a \\\" b\" [\"x\", 1]",
            Statement::Get { id: "a \" b".to_owned(), key: Some(key("[\"x\",1]")) },
        );
        check("delete a null", Statement::Delete { id: "a".to_owned(), key: Some(key("null")) });
        check("put {\"id\": \"1\"};", Statement::Put("{\"id\": \"1\"}".to_owned()));
        let arguments = vec![Value::from(1), Value::from("a b"), Value::from(vec![])];
        let procedure = "p".to_owned();
        let call = Statement::Call { procedure, key: key("\"x y\""), arguments };
        check("call p \"x y\" 1 \"a b\" [ ]", call);
        check("\\table", Statement::Show(Format::Table));
        check("\\?", Statement::Help);
        check("quit", Statement::Quit);
    }

    #[test]
    fn what_is_not_understood_is_told() {
        refused("drop x", "'drop' is no command");
        refused("use a b", "stands in quotes: \"a b\"");
        refused("ls \"a", "the quotes do not end");
        refused("get", "which document?");
        refused("get 1 ada", "a string needs its quotes");
        refused("put {", "it is not JSON");
        refused("call p", "call PROCEDURE KEY");
        refused("call p 1 x", "it is not JSON");
        refused("explain", "give a query");
    }

    #[test]
    fn queries_and_documents_go_on_over_lines() {
        let check = |lines: &[&str], expected: bool| {
            assert_eq!(is_whole(&lines.join("\n"), lines[lines.len() - 1]), expected, "{lines:?}");
        };
        check(&["ls"], true);
        check(&[""], true);
        check(&["SELECT *"], false);
        check(&["SELECT *", "FROM c;"], true);
        check(&["SELECT *", "  "], true);
        check(&["put {\"id\":"], false);
        check(&["put {\"id\":", "\"1\"}"], true);
        check(&["put {\"id\":", ""], true);
        check(&["explain SELECT 1 ; "], true);
    }
}
