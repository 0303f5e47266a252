//! The built-in functions: their names, how many arguments they take, and where they are.
//!
//! Most functions are strict: an undefined argument makes the result undefined before the function
//! is asked, and an argument of the wrong type makes it answer undefined itself. The table below is
//! the whole list; a name that is not in it is refused when the query is bound.

mod array;
mod convert;
mod datetime;
mod integer;
mod math;
pub(crate) mod regex;
pub(crate) mod spatial;
mod text;
mod types;

use crate::Error;
use crate::evaluate::Context;
use regex::RegexFunction;
use value::Value;

/// A built-in function.
#[derive(Debug)]
pub(crate) struct Function {
    /// The name, in upper case.
    pub(crate) name: &'static str,
    /// Other spellings of the name.
    aliases: &'static [&'static str],
    arguments_min: usize,
    arguments_max: usize,
    pub(crate) body: Body,
}

/// The answer of a function that can be stopped; `None` is undefined.
type Found = Result<Option<Value>, Error>;

/// How a function gets its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// A number to a number.
    Number(fn(f64) -> f64),
    /// Only asked when all arguments are defined.
    Strict(fn(&[&Value]) -> Option<Value>),
    /// Like `Strict`, for functions whose result may be much larger than their arguments, or that
    /// take long, or that depend on the container.
    Contextual(fn(&Context<'_>, &[&Value]) -> Result<Option<Value>, Error>),
    /// Like `Strict`, for functions of time and chance.
    Clocked(fn(&Context<'_>, &[&Value]) -> Option<Value>),
    /// Sees undefined arguments.
    Loose(fn(&[Option<&Value>]) -> Option<Value>),
    /// Like `Loose`, for functions that compare much with much and have to mind the deadline.
    Searching(fn(&Context<'_>, &[Option<&Value>]) -> Found),
    /// A function with a pattern, which is compiled once when it is a constant.
    Regex(RegexFunction),
    /// `IIF`, of which only the chosen branch is evaluated.
    Iif,
    /// `CHOOSE`, of which only the chosen item is evaluated.
    Choose,
}

/// Any number of arguments.
const ANY: usize = usize::MAX;

/// The function of that name, whatever its case.
pub(crate) fn named(name: &str) -> Option<&'static Function> {
    let is_called = |spelling: &str| spelling.eq_ignore_ascii_case(name);
    FUNCTIONS.iter().find(|function| {
        is_called(function.name) || function.aliases.iter().any(|alias| is_called(alias))
    })
}

/// Whether a name is a function of the language that is not there yet.
pub(crate) fn is_unsupported(name: &str) -> bool {
    UNSUPPORTED.iter().any(|unsupported| unsupported.eq_ignore_ascii_case(name))
        || is_rank_function(name)
}

/// Whether a name is a scoring function of `ORDER BY RANK`.
pub(crate) fn is_rank_function(name: &str) -> bool {
    ["VECTORDISTANCE", "FULLTEXTSCORE", "RRF"].iter().any(|rank| rank.eq_ignore_ascii_case(name))
}

impl Function {
    /// How many arguments were expected, in the service's words, when `count` is not right.
    pub(crate) fn mismatch(&self, count: usize) -> Option<String> {
        let Function { arguments_min, arguments_max, .. } = *self;
        if (arguments_min..=arguments_max).contains(&count) {
            return None;
        }
        Some(match arguments_max {
            ANY => format!("at least {arguments_min}"),
            _ if arguments_min == arguments_max => format!("{arguments_min}"),
            _ => format!("{arguments_min} to {arguments_max}"),
        })
    }
}

const fn function(
    name: &'static str,
    aliases: &'static [&'static str],
    arguments_min: usize,
    arguments_max: usize,
    body: Body,
) -> Function {
    Function { name, aliases, arguments_min, arguments_max, body }
}

const fn number(name: &'static str, body: fn(f64) -> f64) -> Function {
    function(name, &[], 1, 1, Body::Number(body))
}

const fn strict(
    name: &'static str,
    arguments_min: usize,
    arguments_max: usize,
    body: fn(&[&Value]) -> Option<Value>,
) -> Function {
    function(name, &[], arguments_min, arguments_max, Body::Strict(body))
}

const fn loose(
    name: &'static str,
    arguments_min: usize,
    arguments_max: usize,
    body: fn(&[Option<&Value>]) -> Option<Value>,
) -> Function {
    function(name, &[], arguments_min, arguments_max, Body::Loose(body))
}

const fn searching(
    name: &'static str,
    arguments_min: usize,
    arguments_max: usize,
    body: fn(&Context<'_>, &[Option<&Value>]) -> Found,
) -> Function {
    function(name, &[], arguments_min, arguments_max, Body::Searching(body))
}

const fn clocked(
    name: &'static str,
    arguments_min: usize,
    arguments_max: usize,
    body: fn(&Context<'_>, &[&Value]) -> Option<Value>,
) -> Function {
    function(name, &[], arguments_min, arguments_max, Body::Clocked(body))
}

const fn contextual(
    name: &'static str,
    arguments_min: usize,
    arguments_max: usize,
    body: fn(&Context<'_>, &[&Value]) -> Result<Option<Value>, Error>,
) -> Function {
    function(name, &[], arguments_min, arguments_max, Body::Contextual(body))
}

impl Function {
    const fn also(self, aliases: &'static [&'static str]) -> Function {
        function(self.name, aliases, self.arguments_min, self.arguments_max, self.body)
    }
}

/// Functions of the language that are refused until they are there.
static UNSUPPORTED: &[&str] = &[
    "FULLTEXTCONTAINS",
    "FULLTEXTCONTAINSALL",
    "FULLTEXTCONTAINSANY",
    "FULLTEXT_CONTAINS",
    "FULLTEXT_CONTAINS_ALL",
    "FULLTEXT_CONTAINS_ANY",
    "_FULLTEXTSCORE",
    "_FULLTEXTWORDCOUNT",
    "_VECTORSCORE",
];

static FUNCTIONS: &[Function] = &[
    // Conditional.
    function("IIF", &[], 3, 3, Body::Iif),
    function("CHOOSE", &[], 2, ANY, Body::Choose),
    // Type checks.
    loose("IS_ARRAY", 1, 1, types::is_array),
    loose("IS_BOOL", 1, 1, types::is_bool).also(&["IS_BOOLEAN"]),
    loose("IS_DATETIME", 1, 1, types::is_datetime),
    loose("IS_DEFINED", 1, 1, types::is_defined),
    loose("IS_FINITE_NUMBER", 1, 1, types::is_finite_number),
    loose("IS_INTEGER", 1, 1, types::is_integer),
    loose("IS_NULL", 1, 1, types::is_null),
    loose("IS_NUMBER", 1, 1, types::is_number),
    loose("IS_OBJECT", 1, 1, types::is_object),
    loose("IS_PRIMITIVE", 1, 1, types::is_primitive),
    loose("IS_STRING", 1, 1, types::is_string),
    // Mathematics.
    number("ABS", f64::abs),
    number("ACOS", f64::acos),
    number("ASIN", f64::asin),
    number("ATAN", f64::atan),
    strict("ATN2", 2, 2, math::atn2),
    number("CEILING", f64::ceil),
    number("COS", f64::cos),
    number("COT", math::cot),
    number("DEGREES", math::degrees),
    number("EXP", f64::exp),
    number("FLOOR", f64::floor),
    strict("LOG", 1, 2, math::log),
    number("LOG10", f64::log10),
    strict("NUMBERBIN", 1, 2, math::number_bin),
    strict("PI", 0, 0, math::pi),
    strict("POWER", 2, 2, math::power),
    number("RADIANS", math::radians),
    clocked("RAND", 0, 0, math::rand),
    number("ROUND", f64::round),
    number("SIGN", math::sign),
    number("SIN", f64::sin),
    number("SQRT", f64::sqrt),
    number("SQUARE", math::square),
    number("TAN", f64::tan),
    number("TRUNC", f64::trunc),
    // Integers of 64 bits.
    strict("INTADD", 2, 2, integer::add),
    strict("INTSUB", 2, 2, integer::subtract),
    strict("INTMUL", 2, 2, integer::multiply).also(&["INTMULTIPLY"]),
    strict("INTDIV", 2, 2, integer::divide),
    strict("INTMOD", 2, 2, integer::modulo),
    strict("INTBITAND", 2, 2, integer::bit_and),
    strict("INTBITOR", 2, 2, integer::bit_or),
    strict("INTBITXOR", 2, 2, integer::bit_xor),
    strict("INTBITLEFTSHIFT", 2, 2, integer::shift_left),
    strict("INTBITRIGHTSHIFT", 2, 2, integer::shift_right),
    strict("INTBITNOT", 1, 1, integer::bit_not),
    // Strings.
    contextual("CONCAT", 2, ANY, text::concat),
    strict("CONTAINS", 2, 3, text::contains),
    searching("CONTAINS_ALL_CI", 2, ANY, text::contains_all_ignoring_case),
    searching("CONTAINS_ALL_CS", 2, ANY, text::contains_all),
    searching("CONTAINS_ANY_CI", 2, ANY, text::contains_any_ignoring_case),
    searching("CONTAINS_ANY_CS", 2, ANY, text::contains_any),
    strict("ENDSWITH", 2, 3, text::ends_with),
    strict("INDEX_OF", 2, 3, text::index_of),
    strict("LASTINDEXOF", 2, 3, text::last_index_of).also(&["LAST_INDEX_OF"]),
    strict("LASTSUBSTRINGAFTER", 2, 2, text::last_substring_after),
    strict("LASTSUBSTRINGBEFORE", 2, 2, text::last_substring_before),
    strict("LEFT", 2, 2, text::left),
    strict("LENGTH", 1, 1, text::length),
    strict("LOWER", 1, 1, text::lower),
    strict("LTRIM", 1, 2, text::trim_start),
    function("REGEXEXTRACT", &[], 2, 4, Body::Regex(RegexFunction::Extract)),
    function("REGEXEXTRACTALL", &[], 2, 4, Body::Regex(RegexFunction::ExtractAll)),
    function("REGEXMATCH", &[], 2, 3, Body::Regex(RegexFunction::Match)),
    function("REGEXREPLACE", &[], 3, 4, Body::Regex(RegexFunction::Replace)),
    function("REGEXREPLACEALL", &[], 3, 4, Body::Regex(RegexFunction::ReplaceAll)),
    contextual("REPLACE", 3, 3, text::replace),
    strict("REPLICATE", 2, 2, text::replicate),
    strict("REVERSE", 1, 1, text::reverse),
    strict("RIGHT", 2, 2, text::right),
    strict("RTRIM", 1, 2, text::trim_end),
    strict("STARTSWITH", 2, 3, text::starts_with),
    strict("STRINGEQUALS", 2, 3, text::string_equals).also(&["STRING_EQUALS"]),
    contextual("STRINGJOIN", 2, 2, text::string_join).also(&["STRING_JOIN"]),
    strict("STRINGSPLIT", 2, 2, text::string_split).also(&["STRING_SPLIT"]),
    strict("SUBSTRING", 3, 3, text::substring),
    strict("SUBSTRINGAFTER", 2, 2, text::substring_after),
    strict("SUBSTRINGBEFORE", 2, 2, text::substring_before),
    strict("TRIM", 1, 2, text::trim),
    strict("UPPER", 1, 1, text::upper),
    // Conversion.
    strict("STRINGTOARRAY", 1, 1, convert::string_to_array).also(&["STRING_TO_ARRAY"]),
    strict("STRINGTOBOOLEAN", 1, 1, convert::string_to_boolean).also(&["STRING_TO_BOOLEAN"]),
    strict("STRINGTONULL", 1, 1, convert::string_to_null).also(&["STRING_TO_NULL"]),
    strict("STRINGTONUMBER", 1, 1, convert::string_to_number).also(&["STRING_TO_NUMBER"]),
    strict("STRINGTOOBJECT", 1, 1, convert::string_to_object).also(&["STRING_TO_OBJECT"]),
    strict("TOSTRING", 1, 1, convert::to_string).also(&["TO_STRING"]),
    // Arrays, sets and objects.
    strict("ARRAY_AVG", 1, 1, array::average),
    contextual("ARRAY_CONCAT", 2, ANY, array::concat),
    searching("ARRAY_CONTAINS", 2, 3, array::contains),
    searching("ARRAY_CONTAINS_ALL", 2, ANY, array::contains_all),
    searching("ARRAY_CONTAINS_ANY", 2, ANY, array::contains_any),
    strict("ARRAY_LENGTH", 1, 1, array::length),
    strict("ARRAY_MAX", 1, 1, array::max),
    strict("ARRAY_MEDIAN", 1, 1, array::median),
    strict("ARRAY_MIN", 1, 1, array::min),
    strict("ARRAY_SLICE", 2, 3, array::slice),
    strict("ARRAY_SUM", 1, 1, array::sum),
    strict("DOCUMENTID", 1, 1, array::document_id),
    strict("OBJECTTOARRAY", 1, 3, array::object_to_array).also(&["OBJECT_TO_ARRAY"]),
    strict("SETDIFFERENCE", 2, 2, array::set_difference).also(&["SET_DIFFERENCE"]),
    strict("SETEQUAL", 2, 2, array::set_equal).also(&["SET_EQUAL"]),
    strict("SETINTERSECT", 2, 2, array::set_intersect).also(&["SET_INTERSECT"]),
    strict("SETUNION", 2, 2, array::set_union).also(&["SET_UNION"]),
    // Spatial.
    contextual("ST_AREA", 1, 1, spatial::area),
    contextual("ST_DISTANCE", 2, 2, spatial::distance),
    contextual("ST_INTERSECTS", 2, 2, spatial::intersects),
    contextual("ST_ISVALID", 1, 1, spatial::is_valid),
    contextual("ST_ISVALIDDETAILED", 1, 1, spatial::is_valid_detailed),
    contextual("ST_WITHIN", 2, 2, spatial::within),
    // Date and time.
    clocked("AGO", 2, 2, datetime::ago),
    strict("DATETIMEADD", 3, 3, datetime::add),
    strict("DATETIMEBIN", 2, 4, datetime::bin),
    strict("DATETIMEDIFF", 3, 3, datetime::diff),
    strict("DATETIMEFORMAT", 2, 2, datetime::format),
    strict("DATETIMEFROMPARTS", 3, 7, datetime::from_parts),
    strict("DATETIMEPART", 2, 2, datetime::part),
    strict("DATETIMETOTICKS", 1, 1, datetime::to_ticks),
    strict("DATETIMETOTIMESTAMP", 1, 1, datetime::to_timestamp),
    strict("DAY", 1, 1, datetime::day),
    clocked("GETCURRENTDATETIME", 0, 0, datetime::current),
    clocked("GETCURRENTDATETIMESTATIC", 0, 0, datetime::current),
    clocked("GETCURRENTTICKS", 0, 0, datetime::current_ticks),
    clocked("GETCURRENTTICKSSTATIC", 0, 0, datetime::current_ticks),
    clocked("GETCURRENTTIMESTAMP", 0, 0, datetime::current_timestamp),
    clocked("GETCURRENTTIMESTAMPSTATIC", 0, 0, datetime::current_timestamp),
    strict("MONTH", 1, 1, datetime::month),
    clocked("NOW", 0, 2, datetime::now),
    strict("TICKSTODATETIME", 1, 1, datetime::from_ticks),
    strict("TIMESTAMPTODATETIME", 1, 1, datetime::from_timestamp),
    strict("YEAR", 1, 1, datetime::year),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_listed_once() {
        let mut spellings: Vec<&str> = FUNCTIONS
            .iter()
            .flat_map(|function| std::iter::once(function.name).chain(function.aliases.to_vec()))
            .chain(UNSUPPORTED.iter().copied())
            .collect();
        let count = spellings.len();
        spellings.sort_unstable();
        spellings.dedup();
        assert_eq!(spellings.len(), count);
    }

    #[test]
    fn argument_counts_are_told_as_the_service_tells_them() {
        let told = |name: &str, count| named(name).unwrap().mismatch(count);
        assert_eq!(told("abs", 1), None);
        assert_eq!(told("abs", 2), Some("1".to_owned()));
        assert_eq!(told("StartsWith", 4), Some("2 to 3".to_owned()));
        assert_eq!(told("concat", 1), Some("at least 2".to_owned()));
    }
}
