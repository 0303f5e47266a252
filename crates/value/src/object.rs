//! A JSON object: members in the order they were inserted, each name once.
//!
//! Documents are small and mostly read once, so members lie in a vector and are found by looking at
//! each. What builds an object from many members at once goes through [`Object::from_iter`] or the
//! parser, which find duplicates by hash beyond a handful, so that hostile input stays linear.

use std::collections::HashMap;

use crate::Value;

/// From this many members on, duplicates are found by hash.
pub(crate) const LINEAR_MAX: usize = 16;

/// The members of a JSON object, in order. A name occurs once.
#[derive(Clone, Debug, Default)]
pub struct Object {
    members: Vec<(String, Value)>,
}

impl Object {
    /// An object without members.
    pub const fn new() -> Object {
        Object { members: Vec::new() }
    }

    /// The caller vouches that no name occurs twice.
    pub(crate) fn from_distinct(members: Vec<(String, Value)>) -> Object {
        Object { members }
    }

    /// The member of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The member of this name, to change it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.members.iter_mut().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Sets a member: in its place when the name is there, at the end when not. Gives what was there.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        let name = name.into();
        let value = value.into();
        match self.get_mut(&name) {
            Some(old) => Some(std::mem::replace(old, value)),
            None => {
                self.members.push((name, value));
                None
            }
        }
    }

    /// Takes a member out; those behind it move up.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let offset = self.members.iter().position(|(key, _)| key == name)?;
        Some(self.members.remove(offset).1)
    }

    /// Is there a member of this name?
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The members, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> + ExactSizeIterator {
        self.members.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The members, in order, with values that can be changed.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&str, &mut Value)> {
        self.members.iter_mut().map(|(name, value)| (name.as_str(), value))
    }

    /// The names, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        self.members.iter().map(|(name, _)| name.as_str())
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Are there no members?
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Keeps the members for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &Value) -> bool) {
        self.members.retain(|(name, value)| keep(name, value));
    }

    /// The levels of arrays and objects, this one included.
    pub fn depth(&self) -> usize {
        1 + self.members.iter().map(|(_, value)| value.depth()).max().unwrap_or(0)
    }

    /// The members by ascending name (by bytes), as equality and order need them.
    pub(crate) fn sorted(&self) -> Vec<(&str, &Value)> {
        let mut members: Vec<_> = self.iter().collect();
        members.sort_unstable_by_key(|(name, _)| *name);
        members
    }
}

/// The order of the members does not matter.
impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        if self.len() != other.len() {
            return false;
        }
        if self.keys().eq(other.keys()) {
            return self.iter().zip(other.iter()).all(|((_, left), (_, right))| left == right);
        }
        if self.len() <= LINEAR_MAX {
            return self.iter().all(|(name, value)| other.get(name) == Some(value));
        }
        self.sorted() == other.sorted()
    }
}

impl<K: Into<String>, V: Into<Value>, const N: usize> From<[(K, V); N]> for Object {
    fn from(members: [(K, V); N]) -> Object {
        members.into_iter().collect()
    }
}

/// A name that comes again replaces the value at its first place.
impl<K: Into<String>, V: Into<Value>> FromIterator<(K, V)> for Object {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(members: I) -> Object {
        let mut object = Object::new();
        let mut offsets: HashMap<String, usize> = HashMap::new();
        for (name, value) in members {
            let name = name.into();
            if object.len() < LINEAR_MAX {
                object.insert(name, value);
                continue;
            }
            if offsets.is_empty() {
                offsets = object.keys().enumerate().map(|(at, key)| (key.to_owned(), at)).collect();
            }
            match offsets.get(&name) {
                Some(&offset) => object.members[offset].1 = value.into(),
                None => {
                    offsets.insert(name.clone(), object.len());
                    object.members.push((name, value.into()));
                }
            }
        }
        object
    }
}

impl IntoIterator for Object {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.members.into_iter()
    }
}

impl<'a> IntoIterator for &'a Object {
    type Item = (&'a str, &'a Value);
    type IntoIter = std::iter::Map<
        std::slice::Iter<'a, (String, Value)>,
        fn(&'a (String, Value)) -> (&'a str, &'a Value),
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.members.iter().map(|(name, value)| (name.as_str(), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(object: &Object) -> Vec<&str> {
        object.keys().collect()
    }

    #[test]
    fn keeps_the_order_of_insertion() {
        let mut object = Object::from([("b", 1), ("a", 2), ("b", 3)]);
        assert_eq!(names(&object), ["b", "a"]);
        assert_eq!(object.get("b"), Some(&Value::from(3)));
        assert_eq!(object.insert("b", 4), Some(Value::from(3)));
        assert_eq!(object.insert("c", 5), None);
        assert_eq!(names(&object), ["b", "a", "c"]);
        assert_eq!(object.remove("a"), Some(Value::from(2)));
        assert_eq!(object.remove("a"), None);
        object.retain(|name, _| name != "b");
        assert_eq!(names(&object), ["c"]);
    }

    #[test]
    fn equality_ignores_order() {
        let count = 100;
        let up: Object = (0..count).map(|at| (at.to_string(), at)).collect();
        let down: Object = (0..count).rev().map(|at| (at.to_string(), at)).collect();
        assert_eq!(up, down);
        assert_eq!(Object::from([("a", 1), ("b", 2)]), Object::from([("b", 2), ("a", 1)]));
        assert_ne!(Object::from([("a", 1), ("b", 2)]), Object::from([("b", 1), ("a", 2)]));
        assert_ne!(Object::from([("a", 1)]), Object::from([("b", 1)]));
    }

    #[test]
    fn many_members_with_duplicates() {
        let object: Object = (0..1000).map(|at: i32| ((at % 100).to_string(), at)).collect();
        assert_eq!(object.len(), 100);
        assert_eq!(object.get("7"), Some(&Value::from(907)));
        assert_eq!(object.keys().nth(7), Some("7"));
    }
}
