//! Partial updates: a short list of operations, applied to a copy of a document, all or nothing.
//!
//! Operations and their paths are those of JSON Patch (RFC 6902) with the service's changes: `set`
//! and `incr` exist, `test` and `copy` do not, and `add` overwrites a member that is there. What
//! names a document or its partition cannot be patched. Messages are the service's, in which
//! operations are counted from 1.

use std::fmt;

use crate::document::is_system;
use crate::{DEPTH_MAX, Number, Object, Path, Value};

/// How many operations a patch may have.
const OPERATIONS_MAX: usize = 10;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// Sets a member, inserts an element.
    Add,
    /// Sets a member, overwrites an element.
    Set,
    /// Overwrites what is there.
    Replace,
    /// Takes out what is there.
    Remove,
    /// Adds to a number.
    Increment,
    /// Takes out what is at one path and adds it at another.
    Move,
}

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub struct PatchOperation {
    /// What it does.
    pub kind: PatchKind,
    /// Where.
    pub path: Pointer,
    /// From where a move takes.
    pub from: Option<Pointer>,
    /// The value of all but remove and move.
    pub value: Option<Value>,
}

/// A JSON Pointer (RFC 6901) with at least one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    segments: Vec<String>,
}

impl Pointer {
    /// Reads a pointer: `/a/0/b~1c`. The whole document has none.
    pub fn parse(text: &str) -> Option<Pointer> {
        let rest = text.strip_prefix('/').filter(|rest| !rest.is_empty())?;
        let segments = rest.split('/').map(unescape).collect::<Option<_>>()?;
        Some(Pointer { text: text.to_owned(), segments })
    }

    /// The names and positions along the way, unescaped.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    fn last(&self) -> &str {
        self.segments.last().expect("a pointer has a segment")
    }

    fn is_within(&self, other: &Pointer) -> bool {
        self.segments.starts_with(&other.segments)
    }
}

fn unescape(segment: &str) -> Option<String> {
    let mut parts = segment.split('~');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (character, rest) = match part.as_bytes().first()? {
            b'0' => ('~', &part[1..]),
            b'1' => ('/', &part[1..]),
            _ => return None,
        };
        name.push(character);
        name.push_str(rest);
    }
    Some(name)
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A partial update.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// The operations, one to ten.
    pub operations: Vec<PatchOperation>,
    /// The condition on the document as it is, in the query language.
    pub condition: Option<String>,
}

/// Why a patch is refused, in the service's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchError(pub String);

impl PatchError {
    fn syntax() -> PatchError {
        PatchError("Invalid patch request: check syntax of patch specification.".to_owned())
    }

    fn protected(name: &str) -> PatchError {
        PatchError(format!("Invalid patch request: Cannot patch system property {name}."))
    }
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PatchError {}

impl Patch {
    /// Reads a patch: an object with operations and perhaps a condition, or the bare operations.
    pub fn parse(body: &Value) -> Result<Patch, PatchError> {
        let (operations, condition) = match body {
            Value::Array(operations) => (operations.as_slice(), None),
            _ => {
                let operations = body.get("operations").and_then(Value::as_array);
                let condition = body.get("condition").filter(|condition| !condition.is_null());
                (operations.ok_or_else(PatchError::syntax)?, condition)
            }
        };
        if operations.len() > OPERATIONS_MAX {
            return Err(PatchError(format!(
                "The number of patch operations can't exceed {OPERATIONS_MAX}."
            )));
        }
        if operations.is_empty() || condition.is_some_and(|condition| condition.as_str().is_none())
        {
            return Err(PatchError::syntax());
        }
        let operations = operations.iter().map(operation).collect::<Option<_>>();
        let condition = condition.and_then(Value::as_str).map(str::to_owned);
        Ok(Patch { operations: operations.ok_or_else(PatchError::syntax)?, condition })
    }

    /// Applies all operations to a copy of the document. Refuses what would touch the id, a system
    /// property or a partition key, and what would nest the document too deeply.
    pub fn apply(&self, document: &Object, partition_paths: &[Path]) -> Result<Object, PatchError> {
        for operation in &self.operations {
            check_unprotected(&operation.path, partition_paths)?;
            operation.from.iter().try_for_each(|from| check_unprotected(from, partition_paths))?;
        }
        let mut root = Value::Object(document.clone());
        for (position, operation) in self.operations.iter().enumerate() {
            let in_operation =
                |what: String| PatchError(format!("For Operation({}): {what}", position + 1));
            apply_one(&mut root, operation).map_err(in_operation)?;
            if root.depth() > DEPTH_MAX {
                return Err(in_operation(format!(
                    "The document would have more than {DEPTH_MAX} levels of arrays and objects."
                )));
            }
        }
        match root {
            Value::Object(object) => Ok(object),
            _ => Err(PatchError::syntax()),
        }
    }
}

fn operation(operation: &Value) -> Option<PatchOperation> {
    let kind = match operation.get("op")?.as_str()? {
        "add" => PatchKind::Add,
        "set" => PatchKind::Set,
        "replace" => PatchKind::Replace,
        "remove" => PatchKind::Remove,
        // Some old clients write the word out.
        "incr" | "increment" => PatchKind::Increment,
        "move" => PatchKind::Move,
        _ => return None,
    };
    let path = Pointer::parse(operation.get("path")?.as_str()?)?;
    let mut from = None;
    let mut value = None;
    match kind {
        PatchKind::Remove => {}
        PatchKind::Move => {
            let source = Pointer::parse(operation.get("from")?.as_str()?)?;
            if path.is_within(&source) && path.segments != source.segments {
                return None;
            }
            from = Some(source);
        }
        PatchKind::Increment => {
            value = Some(operation.get("value").filter(|value| value.as_f64().is_some())?.clone());
        }
        PatchKind::Add | PatchKind::Set | PatchKind::Replace => {
            value = Some(operation.get("value")?.clone());
        }
    }
    Some(PatchOperation { kind, path, from, value })
}

/// A path is protected when it leads to, through or above what names the document.
fn check_unprotected(pointer: &Pointer, partition_paths: &[Path]) -> Result<(), PatchError> {
    let first = &pointer.segments[0];
    if first == "id" || is_system(first) {
        return Err(PatchError::protected(first));
    }
    for path in partition_paths {
        let key = path.segments();
        if key.starts_with(&pointer.segments) || pointer.segments.starts_with(key) {
            return Err(PatchError::protected(&key.join("/")));
        }
    }
    Ok(())
}

/// Errors of a single operation; the caller says which.
type Applied = Result<(), String>;

fn apply_one(root: &mut Value, operation: &PatchOperation) -> Applied {
    let path = &operation.path;
    let value = || operation.value.clone().ok_or_else(|| "value is missing".to_owned());
    match operation.kind {
        PatchKind::Add => put(root, path, value()?, &PUT_BY_ADD),
        PatchKind::Set => put(root, path, value()?, &PUT_BY_SET),
        PatchKind::Replace => {
            *target(root, path).ok_or_else(|| absent(path, "replaced"))?? = value()?;
            Ok(())
        }
        PatchKind::Remove => take(root, path).map(drop),
        PatchKind::Increment => increment(root, path, value()?),
        PatchKind::Move => {
            let from = operation.from.as_ref().ok_or_else(|| "from is missing".to_owned())?;
            if from == path {
                // Stays where it is, but must be there.
                return target(root, path).ok_or_else(|| absent(path, "removed"))?.map(|_| ());
            }
            let moved = take(root, from)?;
            put(root, path, moved, &PUT_BY_MOVE)
        }
    }
}

/// How the operations that put a value somewhere differ.
struct Put {
    /// What the message about a missing parent calls the operation.
    name: &'static str,
    overwrites_elements: bool,
}

const PUT_BY_ADD: Put = Put { name: "Add", overwrites_elements: false };
const PUT_BY_SET: Put = Put { name: "Given", overwrites_elements: true };
const PUT_BY_MOVE: Put = Put { name: "Given", overwrites_elements: false };

fn put(root: &mut Value, path: &Pointer, value: Value, how: &Put) -> Applied {
    match parent(root, path).map_err(|beyond| no_parent(how.name, &beyond))? {
        Node::Object(object) => {
            object.insert(path.last(), value);
        }
        Node::Array(elements) => {
            let length = elements.len();
            let at = if path.last() == "-" { length } else { position(path.last(), length)? };
            if at < length && how.overwrites_elements {
                elements[at] = value;
            } else {
                elements.insert(at, value);
            }
        }
    }
    Ok(())
}

fn take(root: &mut Value, path: &Pointer) -> Result<Value, String> {
    match parent(root, path).map_err(|_| absent(path, "removed"))? {
        Node::Object(object) => object.remove(path.last()).ok_or_else(|| absent(path, "removed")),
        Node::Array(elements) => {
            let at = element(path.last(), elements.len())?;
            Ok(elements.remove(at))
        }
    }
}

fn increment(root: &mut Value, path: &Pointer, by: Value) -> Applied {
    let Node::Object(object) = parent(root, path).map_err(|beyond| no_parent("Given", &beyond))?
    else {
        let number = target(root, path).ok_or_else(|| absent(path, "replaced"))??;
        return add(number, &by, path);
    };
    match object.get_mut(path.last()) {
        Some(number) => add(number, &by, path),
        None => {
            object.insert(path.last(), by);
            Ok(())
        }
    }
}

/// Integers of 64 bits are added exactly, all else as binary64.
fn add(target: &mut Value, by: &Value, path: &Pointer) -> Applied {
    let not_a_number = || format!("Node({path}) is not a number.");
    let (Value::Number(old), Value::Number(by)) = (&*target, by) else {
        return Err(not_a_number());
    };
    let exact = old.as_i64().zip(by.as_i64()).and_then(|(old, by)| old.checked_add(by));
    let sum = exact.map_or_else(|| Number::from(old.as_f64() + by.as_f64()), Number::from);
    if !sum.as_f64().is_finite() {
        return Err(not_a_number());
    }
    *target = Value::Number(sum);
    Ok(())
}

/// What can have children.
enum Node<'a> {
    Object(&'a mut Object),
    Array(&'a mut Vec<Value>),
}

/// What the last segment is looked up in; else the part of the path that leads nowhere.
fn parent<'a>(root: &'a mut Value, path: &Pointer) -> Result<Node<'a>, String> {
    let (_, above) = path.segments.split_last().expect("a pointer has a segment");
    let mut node = root;
    for (depth, segment) in above.iter().enumerate() {
        node = child(node, segment).ok_or_else(|| above[..=depth].join("/"))?;
    }
    match node {
        Value::Object(object) => Ok(Node::Object(object)),
        Value::Array(elements) => Ok(Node::Array(elements)),
        _ => Err(above.join("/")),
    }
}

fn child<'a>(node: &'a mut Value, segment: &str) -> Option<&'a mut Value> {
    match node {
        Value::Object(object) => object.get_mut(segment),
        Value::Array(elements) => elements.get_mut(number(segment)?),
        _ => None,
    }
}

/// What is at a path: nothing, a value, or a position outside of an array.
fn target<'a>(root: &'a mut Value, path: &Pointer) -> Option<Result<&'a mut Value, String>> {
    match parent(root, path).ok()? {
        Node::Object(object) => object.get_mut(path.last()).map(Ok),
        Node::Array(elements) => {
            Some(element(path.last(), elements.len()).map(|at| &mut elements[at]))
        }
    }
}

/// A position in an array or right behind it.
fn position(segment: &str, length: usize) -> Result<usize, String> {
    number(segment).filter(|at| *at <= length).ok_or_else(|| out_of_bounds(segment))
}

/// A position in an array.
fn element(segment: &str, length: usize) -> Result<usize, String> {
    number(segment).filter(|at| *at < length).ok_or_else(|| out_of_bounds(segment))
}

/// Digits without a leading zero.
fn number(segment: &str) -> Option<usize> {
    let is_plain = segment.bytes().all(|byte| byte.is_ascii_digit())
        && (segment == "0" || !segment.starts_with('0'));
    segment.parse().ok().filter(|_| is_plain)
}

fn out_of_bounds(segment: &str) -> String {
    format!("Index({segment}) to operate on is out of array bounds.")
}

fn absent(path: &Pointer, what: &str) -> String {
    let note = match what {
        "removed" => " Note: it might also have been removed earlier in the transaction.",
        _ => "",
    };
    format!("Node({path}) to be {what} is absent.{note}")
}

fn no_parent(operation: &str, beyond: &str) -> String {
    format!(
        "{operation} Operation can only create a child object of an existing node(array or object) \
         and cannot create path recursively, no path found beyond: '{beyond}'. \
         Learn more: https://aka.ms/cosmosdbpatchdocs"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples;

    fn apply(document: &str, operations: &str) -> Result<String, String> {
        let document = Value::parse(document.as_bytes()).unwrap();
        let keys = [Path::parse("/pk").unwrap(), Path::parse("/deep/key").unwrap()];
        Patch::parse(&Value::parse(operations.as_bytes()).unwrap())
            .and_then(|patch| patch.apply(document.as_object().unwrap(), &keys))
            .map(|object| Value::from(object).to_text())
            .map_err(|error| error.0)
    }

    #[track_caller]
    fn check(document: &str, operations: &str, expected: &str) {
        assert_eq!(apply(document, operations).as_deref(), Ok(expected), "{operations}");
    }

    #[track_caller]
    fn check_error(document: &str, operations: &str, expected: &str) {
        let error = apply(document, operations).expect_err(operations);
        assert!(error.starts_with(expected), "{operations}: {error}");
    }

    #[test]
    fn add() {
        check(r#"{"a":1}"#, r#"[{"op":"add","path":"/b","value":null}]"#, r#"{"a":1,"b":null}"#);
        check(r#"{"a":1,"b":2}"#, r#"[{"op":"add","path":"/a","value":3}]"#, r#"{"a":3,"b":2}"#);
        check(r#"{"a":[1,2]}"#, r#"[{"op":"add","path":"/a/1","value":9}]"#, r#"{"a":[1,9,2]}"#);
        check(r#"{"a":[1,2]}"#, r#"[{"op":"add","path":"/a/2","value":9}]"#, r#"{"a":[1,2,9]}"#);
        check(r#"{"a":[1,2]}"#, r#"[{"op":"add","path":"/a/-","value":9}]"#, r#"{"a":[1,2,9]}"#);
        let past = r#"[{"op":"add","path":"/a/3","value":9}]"#;
        let bounds = "For Operation(1): Index(3) to operate on is out of array bounds.";
        check_error(r#"{"a":[1,2]}"#, past, bounds);
        check_error(
            "{}",
            r#"[{"op":"add","path":"/nonExistentParent/Child","value":"bar"}]"#,
            "For Operation(1): Add Operation can only create a child object of an existing \
             node(array or object) and cannot create path recursively, no path found beyond: \
             'nonExistentParent'. Learn more: ",
        );
        check_error(
            r#"{"a":"text"}"#,
            r#"[{"op":"add","path":"/a/b","value":1}]"#,
            "For Operation(1): Add Operation can only create a child object",
        );
    }

    #[test]
    fn set() {
        check("{}", r#"[{"op":"set","path":"/b","value":1}]"#, r#"{"b":1}"#);
        check(r#"{"a":1}"#, r#"[{"op":"set","path":"/a","value":{}}]"#, r#"{"a":{}}"#);
        check(r#"{"a":[1,2]}"#, r#"[{"op":"set","path":"/a/1","value":9}]"#, r#"{"a":[1,9]}"#);
        check(r#"{"a":[1,2]}"#, r#"[{"op":"set","path":"/a/2","value":9}]"#, r#"{"a":[1,2,9]}"#);
        check(r#"{"a":[1,2]}"#, r#"[{"op":"set","path":"/a/-","value":9}]"#, r#"{"a":[1,2,9]}"#);
        let past = r#"[{"op":"set","path":"/a/3","value":9}]"#;
        check_error(r#"{"a":[1,2]}"#, past, "For Operation(1): Index(3)");
        let orphan = r#"[{"op":"set","path":"/x/y","value":9}]"#;
        check_error("{}", orphan, "For Operation(1): Given Operation can only create a child");
    }

    #[test]
    fn replace() {
        check(
            r#"{"a":1,"b":2}"#,
            r#"[{"op":"replace","path":"/a","value":3}]"#,
            r#"{"a":3,"b":2}"#,
        );
        check(r#"{"a":[1,2]}"#, r#"[{"op":"replace","path":"/a/0","value":3}]"#, r#"{"a":[3,2]}"#);
        for path in ["/b", "/b/c", "/a/b/c"] {
            let patch = format!(r#"[{{"op":"replace","path":"{path}","value":3}}]"#);
            let expected = format!("For Operation(1): Node({path}) to be replaced is absent.");
            check_error(r#"{"a":{}}"#, &patch, &expected);
        }
        for segment in ["1", "2", "-", "x", "01"] {
            let patch = format!(r#"[{{"op":"replace","path":"/a/{segment}","value":3}}]"#);
            let expected = format!("For Operation(1): Index({segment}) to operate on is out");
            check_error(r#"{"a":[0]}"#, &patch, &expected);
        }
    }

    #[test]
    fn remove() {
        check(r#"{"a":1,"b":2,"c":3}"#, r#"[{"op":"remove","path":"/b"}]"#, r#"{"a":1,"c":3}"#);
        check(r#"{"a":[1,2,3]}"#, r#"[{"op":"remove","path":"/a/0"}]"#, r#"{"a":[2,3]}"#);
        let patch = r#"[{"op":"remove","path":"/a/3"}]"#;
        check_error(r#"{"a":[1,2,3]}"#, patch, "For Operation(1): Index(3) to operate on");
        check_error(
            r#"{"a":1}"#,
            r#"[{"op":"remove","path":"/a"},{"op":"remove","path":"/a"}]"#,
            "For Operation(2): Node(/a) to be removed is absent. Note: it might also have been \
             removed earlier in the transaction.",
        );
    }

    #[test]
    fn increment() {
        check("{}", r#"[{"op":"incr","path":"/a","value":5}]"#, r#"{"a":5}"#);
        check(r#"{"a":1}"#, r#"[{"op":"incr","path":"/a","value":-5}]"#, r#"{"a":-4}"#);
        check(r#"{"a":1.5}"#, r#"[{"op":"increment","path":"/a","value":1}]"#, r#"{"a":2.5}"#);
        check(r#"{"a":[5]}"#, r#"[{"op":"incr","path":"/a/0","value":13}]"#, r#"{"a":[18]}"#);
        let beyond_doubles = r#"{"a":9007199254740993}"#;
        let patch = r#"[{"op":"incr","path":"/a","value":2}]"#;
        check(beyond_doubles, patch, r#"{"a":9007199254740995}"#);
        let largest = r#"{"a":9223372036854775807}"#;
        check(largest, patch, r#"{"a":9223372036854776000}"#);
        check_error(r#"{"a":"1"}"#, patch, "For Operation(1): Node(/a) is not a number.");
        let much = r#"[{"op":"incr","path":"/a","value":1e308}]"#;
        check_error(r#"{"a":1.7e308}"#, much, "For Operation(1): Node(/a) is not a number.");
        let past = r#"[{"op":"incr","path":"/a/1","value":1}]"#;
        check_error(r#"{"a":[5]}"#, past, "For Operation(1): Index(1) to operate on is out");
        check_error(r#"{"b":1}"#, past, "For Operation(1): Given Operation can only create");
    }

    #[test]
    fn move_() {
        let patch = r#"[{"op":"move","from":"/a/b","path":"/c"}]"#;
        check(r#"{"a":{"b":1}}"#, patch, r#"{"a":{},"c":1}"#);
        check(r#"{"c":0,"a":{"b":1}}"#, patch, r#"{"c":1,"a":{}}"#);
        check_error(r#"{"a":1}"#, patch, "For Operation(1): Node(/a/b) to be removed is absent");
        let within = r#"[{"op":"move","from":"/a/0","path":"/a/2"}]"#;
        check(r#"{"a":[1,2,3]}"#, within, r#"{"a":[2,3,1]}"#);
        let still = r#"[{"op":"move","from":"/a","path":"/a"}]"#;
        check(r#"{"a":1,"b":2}"#, still, r#"{"a":1,"b":2}"#);
        check_error(r#"{"b":2}"#, still, "For Operation(1): Node(/a) to be removed is absent");
        let up = r#"[{"op":"move","from":"/a/b","path":"/a"}]"#;
        check(r#"{"a":{"b":1}}"#, up, r#"{"a":1}"#);
        let down = r#"[{"op":"move","from":"/a","path":"/a/b"}]"#;
        check_error(r#"{"a":{}}"#, down, "Invalid patch request: check syntax");
    }

    #[test]
    fn pointers() {
        let document = r#"{"a/b":{"~":1,"0":2,"":3}}"#;
        let set = |path| format!(r#"[{{"op":"replace","path":"{path}","value":9}}]"#);
        check(document, &set("/a~1b/~0"), r#"{"a/b":{"~":9,"0":2,"":3}}"#);
        check(document, &set("/a~1b/0"), r#"{"a/b":{"~":1,"0":9,"":3}}"#);
        check(document, &set("/a~1b/"), r#"{"a/b":{"~":1,"0":2,"":9}}"#);
        for path in ["", "/", "a", "/a~", "/a~2"] {
            check_error(document, &set(path), "Invalid patch request: check syntax");
        }
    }

    #[test]
    fn refused_requests() {
        let syntax = "Invalid patch request: check syntax of patch specification.";
        for patch in [
            "{}",
            "[]",
            "1",
            r#"{"operations":[]}"#,
            r#"{"operations":{}}"#,
            r#"{"operations":[{"op":"remove","path":"/a"}],"condition":1}"#,
            "[1]",
            r#"[{"op":"copy","from":"/a","path":"/b"}]"#,
            r#"[{"op":"test","path":"/b","value":1}]"#,
            r#"[{"op":"add","path":"/b"}]"#,
            r#"[{"op":"add","path":1,"value":1}]"#,
            r#"[{"op":"incr","path":"/b","value":"1"}]"#,
            r#"[{"op":"move","path":"/b"}]"#,
            r#"[{"path":"/b","value":1}]"#,
        ] {
            check_error("{}", patch, syntax);
        }
        let eleven = [r#"{"op":"set","path":"/a","value":1}"#; 11].join(",");
        let too_many = "The number of patch operations can't exceed 10.";
        check_error("{}", &format!("[{eleven}]"), too_many);
    }

    #[test]
    fn protected_properties() {
        for (path, name) in [
            ("/id", "id"),
            ("/_ts", "_ts"),
            ("/_etag/x", "_etag"),
            ("/_self", "_self"),
            ("/pk", "pk"),
            ("/pk/below", "pk"),
            ("/deep", "deep/key"),
            ("/deep/key", "deep/key"),
        ] {
            let expected = format!("Invalid patch request: Cannot patch system property {name}.");
            let set = format!(r#"[{{"op":"set","path":"{path}","value":1}}]"#);
            check_error(r#"{"deep":{}}"#, &set, &expected);
            let take = format!(r#"[{{"op":"move","from":"{path}","path":"/other"}}]"#);
            check_error(r#"{"deep":{}}"#, &take, &expected);
        }
        let beside = r#"[{"op":"set","path":"/deep/other","value":1}]"#;
        check(r#"{"deep":{}}"#, beside, r#"{"deep":{"other":1}}"#);
        check("{}", r#"[{"op":"set","path":"/ttl","value":1}]"#, r#"{"ttl":1}"#);
    }

    #[test]
    fn conditions() {
        let body =
            r#"{"condition":"from c where c.a = 1","operations":[{"op":"remove","path":"/a"}]}"#;
        let patch = Patch::parse(&Value::parse(body.as_bytes()).unwrap()).unwrap();
        assert_eq!(patch.condition.as_deref(), Some("from c where c.a = 1"));
        assert_eq!(patch.operations.len(), 1);
    }

    #[test]
    fn nesting_stays_bounded() {
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let down = format!("/a{}", "/0".repeat(99));
        let patch = format!(
            r#"[{{"op":"set","path":"/a","value":{deep}}},{{"op":"add","path":"{down}/0","value":{deep}}}]"#
        );
        check_error("{}", &patch, "For Operation(2): The document would have more than 128");
    }

    fn operations() -> impl Strategy<Value = Vec<(String, String, Value)>> {
        let kind =
            prop_oneof![Just("add"), Just("set"), Just("replace"), Just("incr"), Just("remove")];
        let path = "/[abc](/[ab0-2-]){0,2}";
        prop::collection::vec((kind.prop_map(str::to_owned), path, samples::value()), 1..5)
    }

    proptest! {
        /// The document is untouched, and a patch does what its operations do one after the other.
        #[test]
        fn is_its_operations_in_order(document in samples::object(), operations in operations()) {
            let operations: Vec<Value> = operations
                .into_iter()
                .map(|(op, path, value)| {
                    let members = [("op", Value::from(op)), ("path", path.into()), ("value", value)];
                    Value::Object(Object::from(members))
                })
                .collect();
            let before = document.clone();
            let Ok(whole) = Patch::parse(&Value::Array(operations.clone())) else {
                return Ok(());
            };
            let at_once = whole.apply(&document, &[]);
            prop_assert_eq!(&document, &before);
            let mut stepwise = Ok(document);
            for operation in operations {
                let step = Patch::parse(&Value::Array(vec![operation])).unwrap();
                stepwise = stepwise.and_then(|document| step.apply(&document, &[]));
            }
            prop_assert_eq!(at_once.ok(), stepwise.ok());
        }
    }
}
