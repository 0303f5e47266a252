//! Integer functions: 64 bits, two's complement, wrapping around.
//!
//! An argument that is not an integer of that size makes the result undefined; so do division by
//! zero and shifts by less than 0 or more than 63 bits.

use value::{Number, Value};

fn both(arguments: &[&Value], apply: fn(i64, i64) -> Option<i64>) -> Option<Value> {
    let (left, right) = (arguments[0].as_i64()?, arguments[1].as_i64()?);
    apply(left, right).map(|number| Value::Number(Number::from(number)))
}

pub(super) fn add(arguments: &[&Value]) -> Option<Value> {
    both(arguments, |left, right| Some(left.wrapping_add(right)))
}

pub(super) fn subtract(arguments: &[&Value]) -> Option<Value> {
    both(arguments, |left, right| Some(left.wrapping_sub(right)))
}

pub(super) fn multiply(arguments: &[&Value]) -> Option<Value> {
    both(arguments, |left, right| Some(left.wrapping_mul(right)))
}

pub(super) fn divide(arguments: &[&Value]) -> Option<Value> {
    both(arguments, |left, right| (right != 0).then(|| left.wrapping_div(right)))
}

pub(super) fn modulo(arguments: &[&Value]) -> Option<Value> {
    both(arguments, |left, right| (right != 0).then(|| left.wrapping_rem(right)))
}

pub(super) fn bit_and(arguments: &[&Value]) -> Option<Value> {
    both(arguments, |left, right| Some(left & right))
}

pub(super) fn bit_or(arguments: &[&Value]) -> Option<Value> {
    both(arguments, |left, right| Some(left | right))
}

pub(super) fn bit_xor(arguments: &[&Value]) -> Option<Value> {
    both(arguments, |left, right| Some(left ^ right))
}

pub(super) fn shift_left(arguments: &[&Value]) -> Option<Value> {
    both(arguments, |left, right| left.checked_shl(u32::try_from(right).ok()?))
}

pub(super) fn shift_right(arguments: &[&Value]) -> Option<Value> {
    both(arguments, |left, right| left.checked_shr(u32::try_from(right).ok()?))
}

pub(super) fn bit_not(arguments: &[&Value]) -> Option<Value> {
    arguments[0].as_i64().map(|number| Value::Number(Number::from(!number)))
}
