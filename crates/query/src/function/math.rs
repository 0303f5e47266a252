//! Mathematical functions, in IEEE double arithmetic. Outside its domain a function answers with
//! what is not a number; that is a value, not undefined.

use crate::evaluate::Context;
use std::f64::consts::PI;
use value::Value;

pub(super) fn pi(_: &[&Value]) -> Option<Value> {
    Some(Value::from(PI))
}

pub(super) fn rand(context: &Context<'_>, _: &[&Value]) -> Option<Value> {
    Some(Value::from(context.random()))
}

pub(super) fn cot(number: f64) -> f64 {
    1.0 / number.tan()
}

/// The operations and their order are those of the reference, so that the last digit agrees.
pub(super) fn degrees(number: f64) -> f64 {
    180.0 / PI * number
}

pub(super) fn radians(number: f64) -> f64 {
    PI / 180.0 * number
}

pub(super) fn sign(number: f64) -> f64 {
    if number == 0.0 || number.is_nan() { number } else { number.signum() }
}

pub(super) fn square(number: f64) -> f64 {
    number * number
}

pub(super) fn atn2(arguments: &[&Value]) -> Option<Value> {
    let (y, x) = (arguments[0].as_f64()?, arguments[1].as_f64()?);
    Some(Value::from(y.atan2(x)))
}

pub(super) fn power(arguments: &[&Value]) -> Option<Value> {
    let (base, exponent) = (arguments[0].as_f64()?, arguments[1].as_f64()?);
    Some(Value::from(base.powf(exponent)))
}

pub(super) fn log(arguments: &[&Value]) -> Option<Value> {
    let number = arguments[0].as_f64()?;
    let Some(base) = arguments.get(1) else { return Some(Value::from(number.ln())) };
    let base = base.as_f64()?;
    // The base ten has a function of its own, which is exact where a quotient is not.
    Some(Value::from(if base == 10.0 { number.log10() } else { number.ln() / base.ln() }))
}

pub(super) fn number_bin(arguments: &[&Value]) -> Option<Value> {
    let number = arguments[0].as_f64()?;
    let size = match arguments.get(1) {
        Some(size) => size.as_f64()?,
        None => 1.0,
    };
    if size == 0.0 {
        return None;
    }
    Some(Value::from(round_like(size, (number / size).floor() * size)))
}

/// Rounds a multiple of `unit` to the decimal places of `unit`, so that 3 times 0.1 is 0.3.
fn round_like(unit: f64, number: f64) -> f64 {
    let text = format!("{unit}");
    let Some((_, decimals)) = text.split_once('.') else { return number };
    format!("{number:.*}", decimals.len()).parse().unwrap_or(number)
}
