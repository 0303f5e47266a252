//! Regular expressions, in the PCRE flavour with look-around and back-references.
//!
//! Such expressions can take exponential time, so every search has a limit of steps; a search that
//! reaches it fails the query, because neither answer would be right. A pattern that is a constant
//! is compiled when the query is bound. An invalid pattern or modifier makes the result undefined.

use crate::Error;
use crate::evaluate::Context;
use fancy_regex::{Captures, Regex, RegexBuilder};
use value::Value;

/// How many times one search may go back.
const BACKTRACKS_MAX: usize = 200_000;

/// How large one compiled pattern may become, in bytes.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// The functions that take a pattern as their second argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegexFunction {
    Match,
    Extract,
    ExtractAll,
    Replace,
    ReplaceAll,
}

impl RegexFunction {
    /// Which argument holds the modifiers, when they are given.
    pub(crate) fn modifiers_at(self) -> usize {
        match self {
            RegexFunction::Match | RegexFunction::Extract | RegexFunction::ExtractAll => 2,
            RegexFunction::Replace | RegexFunction::ReplaceAll => 3,
        }
    }

    /// The value of a call with a compiled pattern; the pattern among the arguments is ignored.
    pub(crate) fn call(
        self,
        regex: &Regex,
        arguments: &[&Value],
        context: &Context<'_>,
    ) -> Result<Option<Value>, Error> {
        let Some(text) = arguments[0].as_str() else { return Ok(None) };
        // One search can take long, whether it finds something or not.
        context.check_deadline()?;
        match self {
            RegexFunction::Match => {
                let found = regex.is_match(text).map_err(|_| too_many_steps())?;
                Ok(Some(Value::Bool(found)))
            }
            RegexFunction::Extract => {
                let found = extract(regex, text, arguments.get(3), 1, context)?;
                Ok(found.and_then(|found| found.into_iter().next()))
            }
            RegexFunction::ExtractAll => {
                let found = extract(regex, text, arguments.get(3), usize::MAX, context)?;
                Ok(found.map(Value::Array))
            }
            RegexFunction::Replace => replace(regex, text, arguments[2], 1, context),
            RegexFunction::ReplaceAll => replace(regex, text, arguments[2], usize::MAX, context),
        }
    }
}

/// Compiles a pattern; `None` when it, or a modifier, is not valid.
pub(crate) fn compile(pattern: &str, modifiers: &str) -> Option<Regex> {
    let mut builder = RegexBuilder::new(pattern);
    builder.backtrack_limit(BACKTRACKS_MAX).delegate_size_limit(COMPILED_BYTES_MAX);
    for modifier in modifiers.chars() {
        match modifier {
            'i' => builder.case_insensitive(true),
            'm' => builder.multi_line(true),
            's' => builder.dot_matches_new_line(true),
            'x' => builder.ignore_whitespace(true),
            _ => return None,
        };
    }
    builder.build().ok()
}

fn too_many_steps() -> Error {
    Error::refused(format!(
        "a regular expression went back more than {BACKTRACKS_MAX} times over one string"
    ))
}

/// Visits the matches from the left, at most `count` of them.
fn each_match(
    regex: &Regex,
    text: &str,
    count: usize,
    context: &Context<'_>,
    mut visit: impl FnMut(&Captures<'_, str>) -> Result<(), Error>,
) -> Result<(), Error> {
    for captures in regex.captures_iter(text).take(count) {
        context.check_deadline()?;
        visit(&captures.map_err(|_| too_many_steps())?)?;
    }
    Ok(())
}

/// The texts of a group in each match; a group that took no part in one is left out.
fn extract(
    regex: &Regex,
    text: &str,
    group: Option<&&Value>,
    count: usize,
    context: &Context<'_>,
) -> Result<Option<Vec<Value>>, Error> {
    let group = match group {
        Some(group) => group.as_i64().and_then(|group| usize::try_from(group).ok()),
        None => Some(0),
    };
    let Some(group) = group.filter(|group| *group < regex.captures_len()) else { return Ok(None) };
    let mut out = Vec::new();
    each_match(regex, text, count, context, |captures| {
        if let Some(found) = captures.get(group) {
            context.charge(size_of::<Value>() + found.as_str().len())?;
            out.push(Value::from(found.as_str()));
        }
        Ok(())
    })?;
    Ok(Some(out))
}

/// Whether the service expands `$1` in a replacement is not known, so a replacement with a dollar
/// is refused: it would be wrong one way or the other.
fn replace(
    regex: &Regex,
    text: &str,
    replacement: &Value,
    count: usize,
    context: &Context<'_>,
) -> Result<Option<Value>, Error> {
    let Some(replacement) = replacement.as_str() else { return Ok(None) };
    if replacement.contains('$') {
        return Err(Error::refused("a replacement with '$' is not supported"));
    }
    let mut out = String::new();
    let mut copied = 0;
    context.charge(text.len())?;
    each_match(regex, text, count, context, |captures| {
        let Some(found) = captures.get(0) else { return Ok(()) };
        context.charge(replacement.len())?;
        out.push_str(&text[copied..found.start()]);
        out.push_str(replacement);
        copied = found.end();
        Ok(())
    })?;
    out.push_str(&text[copied..]);
    Ok(Some(Value::String(out)))
}
