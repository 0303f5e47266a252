//! Date and time.
//!
//! A moment is a number of ticks: units of 100 ns since 1970, in UTC, in the years 1 to 9999 of the
//! Gregorian calendar. In queries it is a string, and only the documented forms are dates; anything
//! else makes the functions undefined, as does a result outside those years.

use crate::evaluate::Context;
use value::{Number, Value};

const TICKS_PER_MICROSECOND: i64 = 10;
const TICKS_PER_MILLISECOND: i64 = 10_000;
const TICKS_PER_SECOND: i64 = 10_000_000;
const TICKS_PER_MINUTE: i64 = 60 * TICKS_PER_SECOND;
const TICKS_PER_HOUR: i64 = 60 * TICKS_PER_MINUTE;
const TICKS_PER_DAY: i64 = 24 * TICKS_PER_HOUR;
const NANOSECONDS_PER_TICK: i64 = 100;

/// The first year that the origin of `DATETIMEBIN` may lie in.
const BIN_ORIGIN_YEAR_MIN: i64 = 1601;

// ---- the calendar ----

/// A date of the calendar and the ticks since its midnight.
#[derive(Clone, Copy)]
struct Civil {
    year: i64,
    month: i64,
    day: i64,
    ticks: i64,
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Civil {
    /// Days are counted in eras of 400 years that start on the first of March, which puts the
    /// leap day at the end of the year.
    fn from_ticks(ticks: i64) -> Civil {
        let days = ticks.div_euclid(TICKS_PER_DAY) + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        Civil {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day: day_of_year - (153 * shifted_month + 2) / 5 + 1,
            ticks: ticks.rem_euclid(TICKS_PER_DAY),
        }
    }

    /// The ticks of a valid date; `None` outside the years 1 to 9999 or for no date at all.
    fn to_ticks(self) -> Option<i64> {
        let Civil { year, month, day, ticks } = self;
        let valid = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day)
            && (0..TICKS_PER_DAY).contains(&ticks);
        if !valid {
            return None;
        }
        let year = year - i64::from(month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let shifted_month = (month + 9) % 12;
        let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        Some((era * 146_097 + day_of_era - 719_468) * TICKS_PER_DAY + ticks)
    }

    /// The date so many months later; the day stays, or becomes the last of a shorter month.
    fn plus_months(self, months: i64) -> Option<Civil> {
        let month = (self.year * 12 + self.month - 1).checked_add(months)?;
        let (year, month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
        (1..=9999).contains(&year).then(|| Civil {
            year,
            month,
            day: self.day.min(days_in_month(year, month)),
            ticks: self.ticks,
        })
    }
}

/// Whether ticks lie within the years that a date can have.
fn in_range(ticks: i64) -> Option<i64> {
    // 0001-01-01 and 9999-12-31, at midnight.
    const FIRST: i64 = -62_135_596_800 * TICKS_PER_SECOND;
    const LAST: i64 = 253_402_300_800 * TICKS_PER_SECOND - 1;
    (FIRST..=LAST).contains(&ticks).then_some(ticks)
}

// ---- strings ----

/// The moment that a string names: `YYYY-MM-DD`, or that, `T` or a space, `hh:mm:ss` and up to
/// seven digits of a fraction; either with or without `Z`.
pub(super) fn parse(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let bytes = text.as_bytes();
    let number = |start: usize, length: usize| {
        let digits = bytes.get(start..start + length)?;
        digits
            .iter()
            .all(u8::is_ascii_digit)
            .then(|| digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
    };
    let separators = |found: &[(usize, u8)]| {
        found.iter().all(|(offset, separator)| bytes.get(*offset) == Some(separator))
    };
    if !separators(&[(4, b'-'), (7, b'-')]) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    if bytes.len() == 10 {
        return Civil { year, month, day, ticks: 0 }.to_ticks();
    }
    if !matches!(bytes.get(10), Some(b'T' | b' ')) || !separators(&[(13, b':'), (16, b':')]) {
        return None;
    }
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = match bytes.len() {
        19 => 0,
        length @ 21..=27 if bytes[19] == b'.' => {
            let digits = length - 20;
            number(20, digits)? * 10i64.pow(7 - u32::try_from(digits).ok()?)
        }
        _ => return None,
    };
    let ticks =
        hour * TICKS_PER_HOUR + minute * TICKS_PER_MINUTE + second * TICKS_PER_SECOND + fraction;
    Civil { year, month, day, ticks }.to_ticks()
}

/// A moment as queries return it, always with seven digits of a fraction.
fn write(ticks: i64) -> Option<Value> {
    let Civil { year, month, day, ticks } = Civil::from_ticks(in_range(ticks)?);
    let (hour, minute) = (ticks / TICKS_PER_HOUR, ticks / TICKS_PER_MINUTE % 60);
    let (second, fraction) = (ticks / TICKS_PER_SECOND % 60, ticks % TICKS_PER_SECOND);
    Some(Value::String(format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:07}Z"
    )))
}

fn moment(value: &Value) -> Option<i64> {
    parse(value.as_str()?)
}

// ---- parts ----

/// A part of a date that can be asked for, added or counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

impl Part {
    fn named(value: &Value) -> Option<Part> {
        Some(match value.as_str()? {
            "year" | "yyyy" | "yy" => Part::Year,
            "month" | "mm" | "m" => Part::Month,
            "day" | "dd" | "d" => Part::Day,
            "hour" | "hh" => Part::Hour,
            "minute" | "mi" | "n" => Part::Minute,
            "second" | "ss" | "s" => Part::Second,
            "millisecond" | "ms" => Part::Millisecond,
            "microsecond" | "mcs" => Part::Microsecond,
            "nanosecond" | "ns" => Part::Nanosecond,
            _ => return None,
        })
    }

    /// The length of the part: in months, in ticks, or less than a tick.
    fn length(self) -> Length {
        match self {
            Part::Year => Length::Months(12),
            Part::Month => Length::Months(1),
            Part::Day => Length::Ticks(TICKS_PER_DAY),
            Part::Hour => Length::Ticks(TICKS_PER_HOUR),
            Part::Minute => Length::Ticks(TICKS_PER_MINUTE),
            Part::Second => Length::Ticks(TICKS_PER_SECOND),
            Part::Millisecond => Length::Ticks(TICKS_PER_MILLISECOND),
            Part::Microsecond => Length::Ticks(TICKS_PER_MICROSECOND),
            Part::Nanosecond => Length::Nanosecond,
        }
    }
}

enum Length {
    Months(i64),
    Ticks(i64),
    Nanosecond,
}

/// The moment so many parts later.
fn plus(ticks: i64, part: Part, count: i64) -> Option<i64> {
    match part.length() {
        Length::Months(months) => {
            Civil::from_ticks(ticks).plus_months(count.checked_mul(months)?)?.to_ticks()
        }
        Length::Ticks(length) => in_range(ticks.checked_add(count.checked_mul(length)?)?),
        Length::Nanosecond => in_range(ticks.checked_add(count / NANOSECONDS_PER_TICK)?),
    }
}

fn part_of(ticks: i64, part: Part) -> i64 {
    let civil = Civil::from_ticks(ticks);
    match part {
        Part::Year => civil.year,
        Part::Month => civil.month,
        Part::Day => civil.day,
        Part::Hour => civil.ticks / TICKS_PER_HOUR,
        Part::Minute => civil.ticks / TICKS_PER_MINUTE % 60,
        Part::Second => civil.ticks / TICKS_PER_SECOND % 60,
        Part::Millisecond => civil.ticks % TICKS_PER_SECOND / TICKS_PER_MILLISECOND,
        Part::Microsecond => civil.ticks % TICKS_PER_SECOND / TICKS_PER_MICROSECOND,
        Part::Nanosecond => civil.ticks % TICKS_PER_SECOND * NANOSECONDS_PER_TICK,
    }
}

// ---- functions ----

fn integer(number: i64) -> Value {
    Value::Number(Number::from(number))
}

pub(super) fn add(arguments: &[&Value]) -> Option<Value> {
    let part = Part::named(arguments[0])?;
    let count = arguments[1].as_i64()?;
    write(plus(moment(arguments[2])?, part, count)?)
}

/// How many boundaries of the part lie between two moments.
pub(super) fn diff(arguments: &[&Value]) -> Option<Value> {
    let part = Part::named(arguments[0])?;
    let (start, end) = (moment(arguments[1])?, moment(arguments[2])?);
    let boundaries = |ticks: i64| match part.length() {
        Length::Months(months) => {
            let civil = Civil::from_ticks(ticks);
            (civil.year * 12 + civil.month - 1).div_euclid(months)
        }
        Length::Ticks(length) => ticks.div_euclid(length),
        Length::Nanosecond => ticks,
    };
    let count = boundaries(end) - boundaries(start);
    Some(integer(match part {
        Part::Nanosecond => count.checked_mul(NANOSECONDS_PER_TICK)?,
        _ => count,
    }))
}

pub(super) fn bin(arguments: &[&Value]) -> Option<Value> {
    let ticks = moment(arguments[0])?;
    let part = Part::named(arguments[1])?;
    let size = match arguments.get(2) {
        Some(size) => size.as_i64().filter(|size| *size > 0)?,
        None => 1,
    };
    let origin = match arguments.get(3) {
        Some(origin) => moment(origin)?,
        None => 0,
    };
    if Civil::from_ticks(origin).year < BIN_ORIGIN_YEAR_MIN {
        return None;
    }
    match part.length() {
        Length::Months(months) => write(bin_months(ticks, origin, size.checked_mul(months)?)?),
        Length::Ticks(length) => {
            let width = size.checked_mul(length)?;
            write(origin + (ticks - origin).div_euclid(width).checked_mul(width)?)
        }
        Length::Nanosecond => {
            let since = i128::from(ticks - origin) * i128::from(NANOSECONDS_PER_TICK);
            let size = i128::from(size);
            let bins = since.div_euclid(size) * size / i128::from(NANOSECONDS_PER_TICK);
            write(origin + i64::try_from(bins).ok()?)
        }
    }
}

/// The start of the bin of so many months, counted from the origin, that holds a moment.
fn bin_months(ticks: i64, origin: i64, width: i64) -> Option<i64> {
    let (date, start) = (Civil::from_ticks(ticks), Civil::from_ticks(origin));
    let apart = (date.year - start.year) * 12 + date.month - start.month;
    let bins = apart.div_euclid(width);
    let candidate = start.plus_months(bins.checked_mul(width)?)?.to_ticks()?;
    // The month agrees but the day or the time may still lie before the origin's.
    if candidate <= ticks {
        return Some(candidate);
    }
    start.plus_months((bins - 1).checked_mul(width)?)?.to_ticks()
}

pub(super) fn part(arguments: &[&Value]) -> Option<Value> {
    let part = Part::named(arguments[0])?;
    Some(integer(part_of(moment(arguments[1])?, part)))
}

pub(super) fn year(arguments: &[&Value]) -> Option<Value> {
    Some(integer(part_of(moment(arguments[0])?, Part::Year)))
}

pub(super) fn month(arguments: &[&Value]) -> Option<Value> {
    Some(integer(part_of(moment(arguments[0])?, Part::Month)))
}

pub(super) fn day(arguments: &[&Value]) -> Option<Value> {
    Some(integer(part_of(moment(arguments[0])?, Part::Day)))
}

pub(super) fn from_parts(arguments: &[&Value]) -> Option<Value> {
    let mut parts = [0, 1, 1, 0, 0, 0, 0];
    for (part, argument) in parts.iter_mut().zip(arguments) {
        *part = argument.as_i64()?;
    }
    let [year, month, day, hour, minute, second, fraction] = parts;
    let valid = (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..60).contains(&second)
        && (0..TICKS_PER_SECOND).contains(&fraction);
    if !valid {
        return None;
    }
    let ticks =
        hour * TICKS_PER_HOUR + minute * TICKS_PER_MINUTE + second * TICKS_PER_SECOND + fraction;
    write(Civil { year, month, day, ticks }.to_ticks()?)
}

pub(super) fn to_ticks(arguments: &[&Value]) -> Option<Value> {
    moment(arguments[0]).map(integer)
}

pub(super) fn to_timestamp(arguments: &[&Value]) -> Option<Value> {
    moment(arguments[0]).map(|ticks| integer(ticks.div_euclid(TICKS_PER_MILLISECOND)))
}

pub(super) fn from_ticks(arguments: &[&Value]) -> Option<Value> {
    write(arguments[0].as_i64()?)
}

pub(super) fn from_timestamp(arguments: &[&Value]) -> Option<Value> {
    write(arguments[0].as_i64()?.checked_mul(TICKS_PER_MILLISECOND)?)
}

pub(super) fn current(context: &Context<'_>, _: &[&Value]) -> Option<Value> {
    write(context.now_ticks())
}

pub(super) fn current_ticks(context: &Context<'_>, _: &[&Value]) -> Option<Value> {
    Some(integer(context.now_ticks()))
}

pub(super) fn current_timestamp(context: &Context<'_>, _: &[&Value]) -> Option<Value> {
    Some(integer(context.now_ticks().div_euclid(TICKS_PER_MILLISECOND)))
}

pub(super) fn now(context: &Context<'_>, arguments: &[&Value]) -> Option<Value> {
    match arguments {
        [] => write(context.now_ticks()),
        [part, count] => write(plus(context.now_ticks(), Part::named(part)?, count.as_i64()?)?),
        _ => None,
    }
}

pub(super) fn ago(context: &Context<'_>, arguments: &[&Value]) -> Option<Value> {
    let part = Part::named(arguments[0])?;
    write(plus(context.now_ticks(), part, arguments[1].as_i64()?.checked_neg()?)?)
}

pub(super) fn format(arguments: &[&Value]) -> Option<Value> {
    let ticks = moment(arguments[0])?;
    let mut rest = arguments[1].as_str()?;
    let mut out = String::new();
    while let Some(first) = rest.chars().next() {
        let run = rest.chars().take_while(|next| *next == first).count();
        let field = match (first, run) {
            ('y', 4..) => Some((4, Part::Year)),
            ('M', 2..) => Some((2, Part::Month)),
            ('d', 2..) => Some((2, Part::Day)),
            ('H', 2..) => Some((2, Part::Hour)),
            ('m', 2..) => Some((2, Part::Minute)),
            ('s', 2..) => Some((2, Part::Second)),
            _ => None,
        };
        let taken = if let Some((width, part)) = field {
            out.push_str(&format!("{:0width$}", part_of(ticks, part)));
            width
        } else if matches!(first, 'f' | 'F') {
            let width = run.min(7);
            let fraction = format!("{:07}", ticks.rem_euclid(TICKS_PER_SECOND));
            let digits = &fraction[..width];
            out.push_str(if first == 'F' { digits.trim_end_matches('0') } else { digits });
            width
        } else if first == '\\' && rest.len() > 1 {
            rest = &rest[1..];
            let literal = rest.chars().next()?;
            out.push(literal);
            literal.len_utf8()
        } else {
            out.push(first);
            first.len_utf8()
        };
        rest = &rest[taken..];
    }
    Some(Value::String(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let written = parse(text).and_then(write);
        assert_eq!(written.as_ref().and_then(Value::as_str), expected, "{text}");
    }

    #[test]
    fn only_the_documented_forms_are_dates() {
        check("2022-03-04", Some("2022-03-04T00:00:00.0000000Z"));
        check("2022-03-04Z", Some("2022-03-04T00:00:00.0000000Z"));
        check("2022-03-04 05:06:07", Some("2022-03-04T05:06:07.0000000Z"));
        check("2022-03-04T05:06:07.1Z", Some("2022-03-04T05:06:07.1000000Z"));
        check("0001-01-01", Some("0001-01-01T00:00:00.0000000Z"));
        check("9999-12-31T23:59:59.9999999Z", Some("9999-12-31T23:59:59.9999999Z"));
        check("2022-03-04T05:06:07.12345678Z", None);
        check("2022-03-04T05:06Z", None);
        check("2022-03-04T05:06:07+02:00", None);
        check("2022-3-4", None);
        check("2022-02-30", None);
        check("2022-03-04T24:00:00Z", None);
        check("2022-03-04T05:06:07.", None);
        check("été-03-04", None);
    }

    #[test]
    fn the_calendar_is_its_own_inverse() {
        let mut days = 0;
        for year in [1, 4, 100, 400, 1600, 1899, 1900, 1969, 1970, 2000, 2024, 9999] {
            for month in 1..=12 {
                for day in 1..=days_in_month(year, month) {
                    let ticks = Civil { year, month, day, ticks: 5 }.to_ticks().unwrap();
                    let back = Civil::from_ticks(ticks);
                    assert_eq!(
                        (back.year, back.month, back.day, back.ticks),
                        (year, month, day, 5)
                    );
                    days += 1;
                }
            }
        }
        assert_eq!(days, 12 * 365 + 5);
    }

    #[test]
    fn formats_have_fields_and_literals() {
        let formatted = |layout: &str| {
            let moment = Value::from("2024-10-09T04:05:06.1200000Z");
            format(&[&moment, &Value::from(layout)]).unwrap()
        };
        assert_eq!(formatted("yyyy-MM-dd"), Value::from("2024-10-09"));
        assert_eq!(formatted("HH:mm:ss.fffffff"), Value::from("04:05:06.1200000"));
        assert_eq!(formatted("ss.FFFFFFF"), Value::from("06.12"));
        assert_eq!(formatted("yyyy\\yMMé"), Value::from("2024y10é"));
    }
}
