//! The one value type of the server.
//!
//! A [`Value`] is what JSON text says, no more: members keep their order and numbers their spelling,
//! so that a document comes back as it was sent. "Undefined" is not a value; where the query language
//! needs it, it is the `None` of an `Option<Value>`.

use std::fmt;

use crate::{Number, Object};

/// How many levels of arrays and objects a document may have.
pub const DEPTH_MAX: usize = 128;

/// A JSON value. Equality is that of the query language: the order of an object's members and the
/// spelling of a number do not matter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, with the spelling it came with.
    Number(Number),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object, its members in the order they were inserted.
    Object(Object),
}

impl Value {
    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value of a number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(number.as_f64()),
            _ => None,
        }
    }

    /// The value of a number that is an exact 64-bit integer.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    /// The value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The elements of an array, to change them.
    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Value::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The object, if it is one.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The object, if it is one, to change it.
    pub fn as_object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Is this `null`?
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The member of an object; nothing for other values.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object()?.get(name)
    }

    /// The levels of arrays and objects: 0 for a scalar, 1 for `{}`, 2 for `[[]]`.
    pub fn depth(&self) -> usize {
        match self {
            Value::Array(elements) => 1 + elements.iter().map(Value::depth).max().unwrap_or(0),
            Value::Object(object) => object.depth(),
            _ => 0,
        }
    }

    /// The JSON text, without whitespace.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Bool(flag)
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Value {
        Value::Number(number)
    }
}

impl From<Vec<Value>> for Value {
    fn from(elements: Vec<Value>) -> Value {
        Value::Array(elements)
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Value {
        Value::Object(object)
    }
}

macro_rules! value_from_number {
    ($($native:ty),*) => {
        $(impl From<$native> for Value {
            fn from(number: $native) -> Value {
                Value::Number(Number::from(number))
            }
        })*
    };
}

value_from_number!(f64, i64, u64, i32, u32, usize);
