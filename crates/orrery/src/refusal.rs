//! What a server's refusal means to the person who asked.
//!
//! An error on the wire is JSON inside of text inside of JSON. Here it becomes a sentence, with the
//! place in the query where that is known, and with what can be done.

use value::Value;

use crate::client::Answer;

/// One thing that the server finds wrong.
#[derive(Debug, PartialEq, Eq)]
struct Complaint {
    code: Option<String>,
    message: String,
    /// From where to where in the query, in UTF-16 units.
    place: Option<(usize, usize)>,
}

/// The longest text of a server that is repeated.
const SHOWN_MAX: usize = 2_000;

/// Says why the server refused a query. Whoever knows what a missing database or container is called
/// says that instead.
pub(crate) fn describe(answer: &Answer, query: &str) -> String {
    let complaints = complaints(&answer.body);
    let messages: Vec<&str> = complaints.iter().map(|one| one.message.as_str()).collect();
    let message = messages.join("; ");
    match answer.status {
        400 => complaints.iter().map(|one| one.about(query)).collect::<Vec<_>>().join("\n"),
        401 => "the server does not accept the key; give the account's own with --key or \
                --key-file"
            .to_owned(),
        403 => format!("the server refuses: {message}"),
        408 => {
            format!("the query took too long: {message}; ask for less, or index what it filters")
        }
        429 | 503 => format!("the server is busy: {message}; try again in a moment"),
        status => format!("the server answers {status}: {message}"),
    }
}

/// Says why the server refused anything but a query.
pub(crate) fn sentence(answer: &Answer) -> String {
    match answer.status {
        400 => {
            let complaints = complaints(&answer.body);
            let messages: Vec<&str> = complaints.iter().map(|one| one.message.as_str()).collect();
            format!("the server refuses: {}", messages.join("; "))
        }
        _ => describe(answer, ""),
    }
}

impl Complaint {
    /// The sentence, and the place below the part of the query that it is about.
    fn about(&self, query: &str) -> String {
        let code = self.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
        let sentence = format!("the query is refused{code}: {}", self.message);
        match self.place.and_then(|place| pointer(query, place)) {
            Some(pointer) => format!("{sentence}\n{pointer}"),
            None => sentence,
        }
    }
}

/// The complaints in the body of an error: `{"code":…,"message":"Message: {…}\r\nActivityId: …"}`,
/// where the inner JSON has a list `errors` of objects or `Errors` of texts. Whatever looks different
/// is one complaint as it is.
fn complaints(body: &[u8]) -> Vec<Complaint> {
    let whole = |text: &str| Complaint { code: None, message: shown(text), place: None };
    let parsed = Value::parse(body).ok();
    let Some(told) = parsed.as_ref().and_then(|body| body.get("message")?.as_str()) else {
        return vec![whole(&String::from_utf8_lossy(body))];
    };
    let told = told.strip_prefix("Message: ").unwrap_or(told);
    let told = told.split("\r\n").next().unwrap_or(told);
    let nested = Value::parse(told.as_bytes()).ok();
    let list = nested.as_ref().and_then(|nested| nested.get("errors").or(nested.get("Errors")));
    match list.and_then(Value::as_array) {
        Some(list) if !list.is_empty() => list.iter().map(complaint).collect(),
        _ => vec![whole(told)],
    }
}

fn complaint(error: &Value) -> Complaint {
    if let Some(text) = error.as_str() {
        return Complaint { code: None, message: shown(text), place: None };
    }
    let message =
        error.get("message").and_then(Value::as_str).map_or_else(|| error.to_text(), shown);
    let code = error.get("code").map(|code| match code.as_str() {
        Some(code) => shown(code),
        None => code.to_text(),
    });
    let bound = |name: &str| {
        let bound = error.get("location")?.get(name)?.as_i64()?;
        usize::try_from(bound).ok()
    };
    Complaint { code, message, place: bound("start").zip(bound("end")) }
}

/// A text of the server as it may go to a terminal.
fn shown(text: &str) -> String {
    let mut plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut shown: String = plain.by_ref().take(SHOWN_MAX).collect();
    if plain.next().is_some() {
        shown.push('…');
    }
    shown
}

/// The line of the query that a place starts in, and marks below the place. A place at the very end
/// is what is missing there. Nothing if there is no such place.
fn pointer(query: &str, (start, end): (usize, usize)) -> Option<String> {
    let (mut line, mut marks) = (String::new(), String::new());
    let mut units = 0;
    let mut is_found = false;
    for character in query.chars() {
        let at = units;
        units += character.len_utf16();
        if character == '\n' {
            if is_found || (at..units).contains(&start) {
                is_found = true;
                break;
            }
            (line, marks) = (String::new(), String::new());
            continue;
        }
        is_found |= at == start;
        // A tab would be as wide as the terminal likes, and control characters do what they like.
        line.push(if character.is_control() { ' ' } else { character });
        marks.push(if at >= start && (at < end || at == start) { '^' } else { ' ' });
    }
    if !is_found && start != units {
        return None;
    }
    if !marks.contains('^') {
        marks.push('^');
    }
    Some(format!("  {line}\n  {}", marks.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, place: (usize, usize), expected: Option<&str>) {
        assert_eq!(pointer(query, place).as_deref(), expected, "{query:?} {place:?}");
    }

    #[test]
    fn places_are_pointed_at() {
        check("SELECT * FORM c", (9, 13), Some("  SELECT * FORM c\n           ^^^^"));
        check("SELECT", (6, 6), Some("  SELECT\n        ^"));
        check("SELECT", (6, 9), Some("  SELECT\n        ^"));
        check("SELECT", (0, 0), Some("  SELECT\n  ^"));
        check("SELECT", (7, 8), None);
        check("", (0, 0), Some("  \n  ^"));
        // Counted in UTF-16 units: the treble clef takes two.
        check("'𝄞' x y", (5, 6), Some("  '𝄞' x y\n      ^"));
        check("a\n\tb c\nd", (3, 4), Some("   b c\n   ^"));
        check("a\nbb\nc", (2, 6), Some("  bb\n  ^^"));
        check("a\nb", (1, 2), Some("  a\n   ^"));
    }

    #[test]
    fn bodies_of_errors_are_understood() {
        let one = |code: Option<&str>, message: &str, place| {
            vec![Complaint { code: code.map(str::to_owned), message: message.to_owned(), place }]
        };
        let nested = r#"{"code":"BadRequest","message":"Message: {\"errors\":[{\"severity\":\"Error\",\"location\":{\"start\":9,\"end\":13},\"code\":\"SC1001\",\"message\":\"Syntax error\"}]}\r\nActivityId: x"}"#;
        assert_eq!(
            complaints(nested.as_bytes()),
            one(Some("SC1001"), "Syntax error", Some((9, 13)))
        );
        let numbered = r#"{"message":"{\"errors\":[{\"code\":2206,\"message\":\"m\"}]}"}"#;
        assert_eq!(complaints(numbered.as_bytes()), one(Some("2206"), "m", None));
        let plain =
            r#"{"code":"NotFound","message":"Message: {\"Errors\":[\"gone\"]}\r\nActivityId: x"}"#;
        assert_eq!(complaints(plain.as_bytes()), one(None, "gone", None));
        let free = br#"{"code":"X","message":"no such thing\u001b[2J"}"#;
        assert_eq!(complaints(free), one(None, "no such thing [2J", None));
        assert_eq!(complaints(b"<html>"), one(None, "<html>", None));
        assert_eq!(complaints(b""), one(None, "", None));
    }
}
