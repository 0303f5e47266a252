//! A JSON number: what it is worth, and how it was written.
//!
//! All arithmetic and comparison is on binary64, as the service does it. The spelling is kept only
//! where it differs from the canonical one, so that `1.0` and `9007199254740993` come back as they
//! were sent and the common number costs no allocation.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// A number. Equality is by value: `1`, `1.0` and `1e0` are equal, and so are `0` and `-0`.
#[derive(Clone, Debug)]
pub struct Number {
    value: f64,
    /// How it was written, where that is not what [`write_canonical`] gives, or where neighbouring
    /// integers have the same value and only the text tells which one was meant.
    spelling: Option<Box<str>>,
}

impl Number {
    /// For the parser: a valid JSON number whose spelling is known to be canonical.
    pub(crate) fn canonical(value: f64) -> Number {
        Number { value, spelling: None }
    }

    /// For the parser: a valid JSON number that may be spelled in any way.
    pub(crate) fn spelled(value: f64, text: &str) -> Number {
        let mut canonical = String::new();
        write_canonical(value, &mut canonical);
        let is_plain = canonical == text && value.abs() <= TWO_POW_53 as f64;
        Number { value, spelling: if is_plain { None } else { Some(text.into()) } }
    }

    /// The value as binary64.
    pub fn as_f64(&self) -> f64 {
        self.value
    }

    /// The value, if it is an integer of 64 bits. Digits beyond the precision of binary64 count
    /// when the number was spelled with them: `9007199254740993` is that, not `…992`.
    pub fn as_i64(&self) -> Option<i64> {
        if let Some(integer) = self.spelling.as_ref().and_then(|text| text.parse().ok()) {
            return Some(integer);
        }
        let in_range = self.value >= -TWO_POW_63 && self.value < TWO_POW_63;
        (in_range && self.value.fract() == 0.0).then_some(self.value as i64)
    }

    /// The spelling: as it was written, else the canonical one.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.spelling {
            Some(text) => Cow::Borrowed(text),
            None => {
                let mut text = String::new();
                write_canonical(self.value, &mut text);
                Cow::Owned(text)
            }
        }
    }

    /// Whether the value alone tells how the number was written, so that it may be forgotten.
    pub fn is_plain(&self) -> bool {
        let is_negative_zero = self.value == 0.0 && self.value.is_sign_negative();
        self.spelling.is_none() && self.value.abs() <= TWO_POW_53 as f64 && !is_negative_zero
    }

    /// Appends the JSON text. JSON has no word for what is not finite; like the service's own
    /// writer we say it as a string.
    pub(crate) fn write(&self, out: &mut String) {
        match &self.spelling {
            Some(text) => out.push_str(text),
            None if self.value.is_finite() => write_canonical(self.value, out),
            None => {
                out.push('"');
                write_canonical(self.value, out);
                out.push('"');
            }
        }
    }
}

const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_POW_53: i64 = 1 << 53;

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.value == other.value
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Number {
        Number::canonical(value)
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Number {
        if (-TWO_POW_53..=TWO_POW_53).contains(&value) {
            return Number::canonical(value as f64);
        }
        Number::spelled(value as f64, &value.to_string())
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Number {
        if value <= TWO_POW_53 as u64 {
            return Number::canonical(value as f64);
        }
        Number::spelled(value as f64, &value.to_string())
    }
}

impl From<i32> for Number {
    fn from(value: i32) -> Number {
        Number::canonical(value.into())
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Number {
        Number::canonical(value.into())
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Number {
        Number::from(value as u64)
    }
}

/// Appends what JavaScript's `Number.prototype.toString` gives, except that `-0` keeps its sign.
fn write_canonical(value: f64, out: &mut String) {
    if value.is_nan() {
        out.push_str("NaN");
        return;
    }
    if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
        return;
    }
    if value == 0.0 {
        out.push_str(if value.is_sign_negative() { "-0" } else { "0" });
        return;
    }
    if value < 0.0 {
        out.push('-');
    }
    let magnitude = value.abs();
    if magnitude <= TWO_POW_53 as f64 && magnitude.fract() == 0.0 {
        write_digits(magnitude as u64, 1, out);
    } else if !write_short_decimal(magnitude, out) {
        write_shortest(magnitude, out);
    }
}

/// Writes a number with at most four decimals, as most are. Decimals of up to 15 digits are told
/// apart by binary64, so one that reads back as the value is the shortest that does.
fn write_short_decimal(magnitude: f64, out: &mut String) -> bool {
    for (places, power) in [(1, 10), (2, 100), (3, 1_000), (4, 10_000)] {
        let scaled = (magnitude * f64::from(power)).round();
        if scaled >= 1e15 {
            return false;
        }
        if scaled / f64::from(power) == magnitude {
            let (scaled, power) = (scaled as u64, power as u64);
            write_digits(scaled / power, 1, out);
            out.push('.');
            write_digits(scaled % power, places, out);
            return true;
        }
    }
    false
}

/// Writes at least `width` digits.
fn write_digits(mut number: u64, width: usize, out: &mut String) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    while number > 0 {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    start = start.min(digits.len() - width);
    out.push_str(std::str::from_utf8(&digits[start..]).expect("digits are ASCII"));
}

/// Lays out the shortest digits that read back as `value` the way ECMAScript does: plain from 1e-6
/// to below 1e21, with an exponent outside.
fn write_shortest(magnitude: f64, out: &mut String) {
    let scientific = format!("{magnitude:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("LowerExp writes an exponent");
    let exponent: i32 = exponent.parse().expect("LowerExp writes a decimal exponent");
    let digits: String = mantissa.chars().filter(|digit| *digit != '.').collect();
    let count = digits.len() as i32;
    // The decimal point stands behind this many digits.
    let point = exponent + 1;
    if (count..=21).contains(&point) {
        out.push_str(&digits);
        push_zeros((point - count) as usize, out);
    } else if (1..=21).contains(&point) {
        let (whole, fraction) = digits.split_at(point as usize);
        out.push_str(whole);
        out.push('.');
        out.push_str(fraction);
    } else if (-5..=0).contains(&point) {
        out.push_str("0.");
        push_zeros(-point as usize, out);
        out.push_str(&digits);
    } else {
        out.push_str(mantissa);
        write!(out, "e{exponent:+}").expect("writing to a string cannot fail");
    }
}

fn push_zeros(count: usize, out: &mut String) {
    out.extend(std::iter::repeat_n('0', count));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a JavaScript engine prints for these.
    #[test]
    fn canonical_spelling() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (100.0, "100"),
            (-1.5, "-1.5"),
            (0.5, "0.5"),
            (0.1, "0.1"),
            (1e-6, "0.000001"),
            (1.5e-6, "0.0000015"),
            (1e-7, "1e-7"),
            (1.5e-7, "1.5e-7"),
            (5e-324, "5e-324"),
            (1e20, "100000000000000000000"),
            (1.2345e20, "123450000000000000000"),
            (1e21, "1e+21"),
            (1.2345e25, "1.2345e+25"),
            (f64::MAX, "1.7976931348623157e+308"),
            (9007199254740992.0, "9007199254740992"),
            (1.8446744073709552e19, "18446744073709552000"),
            (123456789.125, "123456789.125"),
            (-123456789012345680.0, "-123456789012345680"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(Number::from(value).text(), expected);
        }
    }

    #[test]
    fn integers() {
        assert_eq!(Number::from(i64::MAX).text(), "9223372036854775807");
        assert_eq!(Number::from(i64::MAX).as_i64(), Some(i64::MAX));
        assert_eq!(Number::from(u64::MAX).text(), "18446744073709551615");
        assert_eq!(Number::from(u64::MAX).as_i64(), None);
        assert_eq!(Number::from(1.0).as_i64(), Some(1));
        assert_eq!(Number::from(-0.0).as_i64(), Some(0));
        assert_eq!(Number::from(1.5).as_i64(), None);
        assert_eq!(Number::from(f64::NAN).as_i64(), None);
        assert_eq!(Number::from(9.3e18).as_i64(), None);
        assert_eq!(Number::from(-9223372036854775808.0).as_i64(), Some(i64::MIN));
    }

    proptest! {
        #[test]
        fn spelling_reads_back(value in any::<f64>()) {
            prop_assume!(value.is_finite());
            let text = Number::from(value).text().into_owned();
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
        }

        #[test]
        fn integers_are_exact(value: i64) {
            let number = Number::from(value);
            prop_assert_eq!(number.text(), value.to_string());
            prop_assert_eq!(number.as_i64(), Some(value));
            prop_assert_eq!(number.as_f64(), value as f64);
        }
    }
}
