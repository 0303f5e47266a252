//! Patterns of `LIKE`.
//!
//! Every part of a pattern takes exactly one character, except `%`, which takes any run. Such
//! patterns need no general backtracking: when a part fails, only the last `%` has to take one
//! character more, so matching is bounded by the product of both lengths. Both can be long, so the
//! deadline is looked at on the way.

use crate::Error;
use crate::evaluate::Context;

/// How many characters are tried for one step of the query.
const TRIES_PER_STEP: usize = 8;

/// A pattern, read once and matched often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// `%`
    Any,
    /// `_`
    One,
    Literal(char),
    /// `[a-f]` or `[^a-f]`, as inclusive ranges that ascend and do not touch.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

/// What follows the text that a pattern begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The text is the whole.
    Nothing,
    /// Whatever follows matches.
    Anything,
    /// Something is asked of what follows.
    Something,
}

impl Pattern {
    /// Reads a pattern. Every text is one: what has no meaning stands for itself.
    pub(crate) fn parse(text: &str, escape: Option<char>) -> Pattern {
        let characters: Vec<char> = text.chars().collect();
        let last_close = characters.iter().rposition(|found| *found == ']').unwrap_or(0);
        let mut parts = Vec::new();
        let mut offset = 0;
        while let Some(&character) = characters.get(offset) {
            offset += 1;
            let part = if Some(character) == escape && offset < characters.len() {
                offset += 1;
                Part::Literal(characters[offset - 1])
            } else {
                match character {
                    '%' => Part::Any,
                    '_' => Part::One,
                    // Behind the last `]` nothing closes, and looking for it again and again
                    // would take the square of the length.
                    '[' if offset <= last_close => match class(&characters[offset..]) {
                        Some((part, length)) => {
                            offset += length;
                            part
                        }
                        None => Part::Literal('['),
                    },
                    other => Part::Literal(other),
                }
            };
            if part != Part::Any || parts.last() != Some(&Part::Any) {
                parts.push(part);
            }
        }
        Pattern(parts)
    }

    /// The text that everything which matches begins with, and what follows it.
    pub(crate) fn prefix(&self) -> (String, Rest) {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Literal(character) => text.push(*character),
                _ => break,
            }
        }
        let rest = match &self.0[text.chars().count()..] {
            [] => Rest::Nothing,
            [Part::Any] => Rest::Anything,
            _ => Rest::Something,
        };
        (text, rest)
    }

    /// Whether the whole text matches.
    pub(crate) fn matches(&self, text: &str, context: &Context<'_>) -> Result<bool, Error> {
        let parts = &self.0;
        let mut rest = text.chars();
        let mut at = 0;
        // Where to go on when a part fails: after the last `%`, one character further.
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        let mut tries = 0;
        loop {
            tries += 1;
            if tries == TRIES_PER_STEP {
                tries = 0;
                context.step()?;
            }
            if parts.get(at) == Some(&Part::Any) {
                at += 1;
                retry = Some((at, rest.clone()));
                continue;
            }
            let mut ahead = rest.clone();
            match (parts.get(at), ahead.next()) {
                (None, None) => return Ok(true),
                (Some(part), Some(character)) if part.accepts(character) => {
                    at += 1;
                    rest = ahead;
                }
                _ => {
                    let Some((after, from)) = &mut retry else { return Ok(false) };
                    if from.next().is_none() {
                        return Ok(false);
                    }
                    at = *after;
                    rest = from.clone();
                }
            }
        }
    }
}

impl Part {
    fn accepts(&self, character: char) -> bool {
        match self {
            Part::Any => false,
            Part::One => true,
            Part::Literal(literal) => *literal == character,
            Part::Class { negated, ranges } => {
                let at = ranges.partition_point(|(_, high)| *high < character);
                let found = ranges.get(at).is_some_and(|(low, _)| *low <= character);
                found != *negated
            }
        }
    }
}

/// The class that starts after `[`, and how many characters it takes with its `]`. A `]` directly
/// after the bracket belongs to the class; without a closing one there is no class.
fn class(characters: &[char]) -> Option<(Part, usize)> {
    let negated = characters.first() == Some(&'^');
    let start = usize::from(negated);
    let close = start + 1 + characters.get(start + 1..)?.iter().position(|found| *found == ']')?;
    let mut ranges = Vec::new();
    let mut offset = start;
    while offset < close {
        let low = characters[offset];
        if offset + 2 < close && characters[offset + 1] == '-' {
            ranges.push((low, characters[offset + 2]));
            offset += 3;
        } else {
            ranges.push((low, low));
            offset += 1;
        }
    }
    Some((Part::Class { negated, ranges: merged(ranges) }, close + 1))
}

/// The ranges in ascending order, those that touch made one. One that is written backwards holds
/// nothing.
fn merged(mut ranges: Vec<(char, char)>) -> Vec<(char, char)> {
    ranges.retain(|(low, high)| low <= high);
    ranges.sort_unstable();
    ranges.dedup_by(|(low, high), (_, before)| {
        let touches = u32::from(*low) <= u32::from(*before) + 1;
        if touches {
            *before = (*before).max(*high);
        }
        touches
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Options};
    use std::sync::atomic::AtomicU64;

    #[track_caller]
    fn check(text: &str, pattern: &str, escape: Option<char>, expected: bool) {
        let options = Options::new(0, 0, Limits::memory(1 << 20));
        let random = AtomicU64::new(0);
        let context = Context::new(&options, &random);
        let found = Pattern::parse(pattern, escape).matches(text, &context);
        assert_eq!(found.expect("there is no deadline"), expected, "{text} {pattern}");
    }

    #[test]
    fn patterns_match_whole_texts() {
        check("abc", "abc", None, true);
        check("abc", "ab", None, false);
        check("abc", "a%", None, true);
        check("abc", "%c", None, true);
        check("abc", "%b%", None, true);
        check("", "%", None, true);
        check("", "_", None, false);
        check("aXbXc", "a%X_", None, true);
        check("a\nb", "a%b", None, true);
        check("ab", "a.", None, false);
        check("été", "_t_", None, true);
    }

    #[test]
    fn classes_take_one_character() {
        check("b", "[a-c]", None, true);
        check("d", "[a-c]", None, false);
        check("d", "[^a-c]", None, true);
        check("50%", "50[%]", None, true);
        check("50x", "50[%]", None, false);
        check("[a", "[[]a", None, true);
        check("a]", "a]", None, true);
        check("[x", "[x", None, true);
        check("-", "[a-]", None, true);
        check("b", "[c-a]", None, false);
        check("b", "[^c-a]", None, true);
        check("[[[", "[[[", None, true);
        check("x][[", "[x]][[", None, true);
    }

    #[test]
    fn the_ranges_of_a_class_are_merged() {
        let merges = |ranges: &[(char, char)], expected: &[(char, char)]| {
            assert_eq!(merged(ranges.to_vec()), expected);
        };
        merges(&[], &[]);
        merges(&[('z', 'a')], &[]);
        merges(&[('c', 'c'), ('a', 'a'), ('b', 'b')], &[('a', 'c')]);
        merges(&[('a', 'z'), ('c', 'd'), ('e', 'e')], &[('a', 'z')]);
        merges(&[('x', 'y'), ('a', 'c'), ('b', 'f')], &[('a', 'f'), ('x', 'y')]);
        for character in 'a'..='z' {
            let found = "bdfghz".contains(character);
            check(&character.to_string(), "[zf-hdb]", None, found);
            check(&character.to_string(), "[^zf-hdb]", None, !found);
        }
    }

    /// A class as long as a query may be is looked up, and brackets that nothing closes are not
    /// looked for again and again.
    #[test]
    fn long_classes_take_no_time() {
        let class: String = ('\u{4e00}'..).step_by(2).take(10_000).collect();
        let pattern = format!("%[{}]b", class.repeat(10));
        check(&"\u{4e00}".repeat(20_000), &pattern, None, false);
        check(&"\u{4e01}".repeat(20_000), &pattern, None, false);
        let brackets = "[".repeat(200_000);
        check(&brackets, &brackets, None, true);
    }

    #[test]
    fn the_escape_quotes_the_next_character() {
        check("50%", "50!%", Some('!'), true);
        check("50x", "50!%", Some('!'), false);
        check("a!", "a!!", Some('!'), true);
    }

    #[test]
    fn prefixes_are_told_with_what_follows() {
        let check = |pattern: &str, text: &str, rest: Rest| {
            let expected = (text.to_owned(), rest);
            assert_eq!(Pattern::parse(pattern, Some('!')).prefix(), expected, "{pattern}");
        };
        check("abc", "abc", Rest::Nothing);
        check("ab%", "ab", Rest::Anything);
        check("ab%%", "ab", Rest::Anything);
        check("ab%c", "ab", Rest::Something);
        check("é!%_", "é%", Rest::Something);
        check("[a]b", "", Rest::Something);
        check("%", "", Rest::Anything);
    }

    /// Many wildcards over a long text take time in proportion to both, not exponential time.
    #[test]
    fn hostile_patterns_end() {
        let text = "a".repeat(5_000);
        check(&text, &format!("{}b", "%a".repeat(500)), None, false);
    }
}
