//! Conditions as a person reads them.

use crate::access::{Condition, Indexed, PathSegment, ScalarKind, Span};
use std::fmt::{self, Display, Formatter, Write};
use std::ops::Bound;

/// How many values of a list are shown.
const SHOWN_MAX: usize = 10;

/// A path with slashes, elements as `[]`: `/tags/[]/name`.
impl Display for Indexed {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Indexed::Path(path) | Indexed::Shapes(path) => write_path(path, out),
            Indexed::Computed(name) => write!(out, "computed({name})"),
        }
    }
}

impl Display for ScalarKind {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ScalarKind::Null => "null",
            ScalarKind::Boolean => "boolean",
            ScalarKind::Number => "number",
            ScalarKind::String => "string",
        })
    }
}

/// What must hold, as a sentence: `/a = 1 and (/b > 2 or /c is defined)`.
impl Display for Condition {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Anything => out.write_str("anything"),
            Condition::Nothing => out.write_str("nothing"),
            Condition::Holds { path, spans } => write_spans(path, spans, out),
            Condition::Defined(names) => {
                write_names(names, out)?;
                out.write_str(" is defined")
            }
            Condition::Undefined(names) => {
                write_names(names, out)?;
                out.write_str(" is undefined")
            }
            Condition::Near { path, shape, distance } => {
                write_path(path, out)?;
                if *distance == 0.0 {
                    write!(out, " meets {shape}")
                } else {
                    write!(out, " within {distance} of {shape}")
                }
            }
            Condition::All(conditions) => write_joined(conditions, " and ", out),
            Condition::Any(conditions) => write_joined(conditions, " or ", out),
        }
    }
}

fn write_joined(conditions: &[Condition], word: &str, out: &mut Formatter<'_>) -> fmt::Result {
    for (position, condition) in conditions.iter().enumerate() {
        if position > 0 {
            out.write_str(word)?;
        }
        match condition {
            Condition::All(_) | Condition::Any(_) => write!(out, "({condition})")?,
            _ => write!(out, "{condition}")?,
        }
    }
    Ok(())
}

fn write_path(path: &[PathSegment], out: &mut Formatter<'_>) -> fmt::Result {
    for segment in path {
        match segment {
            PathSegment::Property(name) => write_name(name, out)?,
            PathSegment::Element => out.write_str("/[]")?,
        }
    }
    if path.is_empty() { out.write_char('/') } else { Ok(()) }
}

fn write_names(names: &[String], out: &mut Formatter<'_>) -> fmt::Result {
    names.iter().try_for_each(|name| write_name(name, out))
}

/// A name as it is, or in quotes where it could be mistaken for something else.
fn write_name(name: &str, out: &mut Formatter<'_>) -> fmt::Result {
    let is_plain = !name.is_empty()
        && name.chars().all(|character| character.is_alphanumeric() || "_-$".contains(character));
    match is_plain {
        true => write!(out, "/{name}"),
        false => write!(out, "/{name:?}"),
    }
}

fn write_spans(path: &Indexed, spans: &[Span], out: &mut Formatter<'_>) -> fmt::Result {
    if let [span] = spans {
        return write_span(path, span, out);
    }
    write!(out, "{path} in (")?;
    for (position, span) in spans.iter().take(SHOWN_MAX).enumerate() {
        if position > 0 {
            out.write_str(", ")?;
        }
        match span {
            Span::Exactly(value) => write!(out, "{value}")?,
            span => write_span(&"…", span, out)?,
        }
    }
    if spans.len() > SHOWN_MAX {
        write!(out, ", and {} more", spans.len() - SHOWN_MAX)?;
    }
    out.write_char(')')
}

/// A span, as said of a subject.
fn write_span(subject: &dyn Display, span: &Span, out: &mut Formatter<'_>) -> fmt::Result {
    match span {
        Span::Exactly(value) => write!(out, "{subject} = {value}"),
        Span::Prefix(prefix) => write!(out, "{subject} begins with {prefix:?}"),
        Span::Kind(kind) => write!(out, "{subject} is a {kind}"),
        Span::Between { low: Bound::Unbounded, high } => {
            let (sign, value) = parts(high, "<", "<=");
            write!(out, "{subject} {sign} {value}")
        }
        Span::Between { low, high: Bound::Unbounded } => {
            let (sign, value) = parts(low, ">", ">=");
            write!(out, "{subject} {sign} {value}")
        }
        Span::Between { low, high } => {
            let (low_sign, low) = parts(low, "<", "<=");
            let (high_sign, high) = parts(high, "<", "<=");
            write!(out, "{low} {low_sign} {subject} {high_sign} {high}")
        }
    }
}

fn parts<'b>(
    bound: &'b Bound<value::Value>,
    open: &'static str,
    closed: &'static str,
) -> (&'static str, &'b dyn Display) {
    match bound {
        Bound::Excluded(value) => (open, value),
        Bound::Included(value) => (closed, value),
        Bound::Unbounded => (open, &"…"),
    }
}
