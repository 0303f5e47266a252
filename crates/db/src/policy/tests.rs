//! Whole definitions: what is completed, what is refused, what may be replaced.

use proptest::prelude::*;
use value::{Object, PartitionKind, Value};

use super::*;

fn object(text: &str) -> Object {
    match Value::parse(text.as_bytes()) {
        Ok(Value::Object(object)) => object,
        other => panic!("not an object: {text}: {other:?}"),
    }
}

/// A definition with an ordinary key and these further members.
fn with_key(members: &str) -> Object {
    let key = r#""partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}"#;
    let separator = if members.is_empty() { "" } else { "," };
    object(&format!(r#"{{"id":"c",{key}{separator}{members}}}"#))
}

fn outcome(result: Result<(Policies, Object), PolicyError>, name: &str) -> String {
    match result {
        Ok((_, stored)) => match stored.get(name) {
            Some(value) => value.to_text(),
            None => "absent".to_owned(),
        },
        Err(error) => format!("400 {}", error.message),
    }
}

/// Compares one member of the completed definition, or the start of a refusal after `400 `.
fn check_member(body: &Object, name: &str, expected: &str) {
    let found = outcome(check_new(body, false), name);
    let matches =
        if expected.starts_with("400 ") { found.starts_with(expected) } else { found == expected };
    assert!(matches, "{body:?}\n   found {found}\nexpected {expected}");
}

fn check(members: &str, name: &str, expected: &str) {
    check_member(&with_key(members), name, expected);
}

fn check_indexing(policy: &str, expected: &str) {
    check(&format!(r#""indexingPolicy":{policy}"#), "indexingPolicy", expected);
}

const INVALID: &str = "400 One of the specified inputs is invalid";

#[test]
fn members_are_completed_in_the_order_of_the_service() {
    let (_, stored) = check_new(&with_key(r#""unknown":1,"_rid":"x""#), false).unwrap();
    let expected = concat!(
        r#"{"indexingPolicy":{"indexingMode":"consistent","automatic":true,"#,
        r#""includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]},"#,
        r#""partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"#,
        r#""conflictResolutionPolicy":{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","#,
        r#""conflictResolutionProcedure":""},"geospatialConfig":{"type":"Geography"}}"#,
    );
    assert_eq!(Value::from(stored).to_text(), expected);
}

#[test]
fn null_is_absent() {
    let nulls = r#""indexingPolicy":null,"defaultTtl":null,"uniqueKeyPolicy":null,
        "conflictResolutionPolicy":null,"geospatialConfig":null,"computedProperties":null,
        "vectorEmbeddingPolicy":null,"fullTextPolicy":null,"changeFeedPolicy":null,
        "analyticalStorageTtl":null,"clientEncryptionPolicy":null,"ttlPropertyPath":null"#;
    let plain = check_new(&with_key(""), false).unwrap();
    assert_eq!(check_new(&with_key(nulls), false).unwrap(), plain);
}

#[test]
fn unserved_features_are_refused_by_name() {
    for name in ["ttlPropertyPath", "materializedViewDefinition", "globalSecondaryIndexDefinition"]
    {
        check(&format!(r#""{name}":"x""#), name, &format!("400 '{name}' is not served yet"));
    }
}

#[test]
fn partition_keys() {
    fn check(key: &str, expected: &str) {
        check_member(&object(&format!(r#"{{"partitionKey":{key}}}"#)), "partitionKey", expected);
    }
    check(r#"{"paths":["/a"]}"#, r#"{"paths":["/a"],"kind":"Hash"}"#);
    check(r#"{"paths":["/a"],"version":null}"#, r#"{"paths":["/a"],"kind":"Hash"}"#);
    check(r#"{"paths":["/a"],"version":1}"#, r#"{"paths":["/a"],"kind":"Hash","version":1}"#);
    check(
        r#"{"paths":["/a"],"kind":"Hash","version":"V2"}"#,
        r#"{"paths":["/a"],"kind":"Hash","version":2}"#,
    );
    check(
        r#"{"kind":"Hash","version":2,"paths":["/a/\"b c\""],"x":1,"systemKey":false}"#,
        r#"{"paths":["/a/\"b c\""],"kind":"Hash","version":2}"#,
    );
    check(
        r#"{"paths":["/a","/b","/c"],"kind":"MultiHash","version":2}"#,
        r#"{"paths":["/a","/b","/c"],"kind":"MultiHash","version":2}"#,
    );
    check(
        r#"{"paths":["/_partitionKey"],"kind":"Hash","version":2,"systemKey":true}"#,
        r#"{"paths":["/_partitionKey"],"kind":"Hash","version":2,"systemKey":true}"#,
    );
    check(r#"{"paths":["/a"],"systemKey":true}"#, INVALID);
    let too_many = "400 Too many partition key paths";
    check(r#"{"paths":["/a","/b"],"kind":"Hash","version":2}"#, too_many);
    check(r#"{"paths":["/a","/b","/c","/d"],"kind":"MultiHash","version":2}"#, too_many);
    check(r#"{"paths":["/a","/b"],"kind":"MultiHash"}"#, "400 A partition key of kind 'MultiHash'");
    check(r#"{"paths":["/a","/a"],"kind":"MultiHash","version":2}"#, "400 The partition key path");
    check(r#"{"paths":[]}"#, "400 The partition key definition has no paths");
    check(r#"{"kind":"Hash"}"#, "400 The partition key definition has no paths");
    check(r#"{"paths":["/a"],"version":3}"#, INVALID);
    check(r#"{"paths":["/a"],"kind":"Tree"}"#, INVALID);
    check(r#"{"paths":["/a"],"kind":"Range"}"#, "400 The partition kind 'Range' is not served");
    check(r#"{"paths":"/a"}"#, INVALID);
    check(r#"{"paths":[1]}"#, INVALID);
    check(r#""/a""#, INVALID);
    check("null", "400 The partition key definition is missing");
    check(
        r#"{"paths":["pk"]}"#,
        "400 The partition key component definition path 'pk' could not be accepted, failed near \
         position '0'. Partition key paths must contain only valid characters and not contain a \
         trailing slash or wildcard character.",
    );
    for (path, position) in [("/a/", 3), ("/a/*", 3), ("/a/[]", 3), ("/", 1), ("", 0)] {
        check(
            &format!(r#"{{"paths":["{path}"]}}"#),
            &format!(
                "400 The partition key component definition path '{path}' could not be accepted, \
                 failed near position '{position}'."
            ),
        );
    }
}

#[test]
fn a_missing_key_is_for_old_clients() {
    let body = object(r#"{"id":"c"}"#);
    assert!(check_new(&body, false).is_err());
    let (policies, stored) = check_new(&body, true).unwrap();
    assert!(policies.partition_key.system_key);
    assert_eq!(policies.partition_key.kind, PartitionKind::Hash);
    assert_eq!(
        stored.get("partitionKey").unwrap().to_text(),
        r#"{"paths":["/_partitionKey"],"kind":"Hash","version":2,"systemKey":true}"#
    );
}

#[test]
fn indexing_policies_are_completed() {
    const DEFAULT: &str = r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}"#;
    check_indexing("{}", DEFAULT);
    check_indexing(r#"{"indexingMode":"Consistent","other":1}"#, DEFAULT);
    check_indexing(r#"{"includedPaths":[],"excludedPaths":[]}"#, DEFAULT);
    check_indexing(r#"{"automatic":false}"#, DEFAULT);
    // Old definitions: the root is a slash and each path lists its index kinds.
    check_indexing(
        r#"{"includedPaths":[{"path":"/","indexes":[{"kind":"Hash","dataType":"Number","precision":2}]}]}"#,
        DEFAULT,
    );
    check_indexing(
        r#"{"indexingMode":"lazy","automatic":false}"#,
        r#"{"indexingMode":"lazy","automatic":false,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}"#,
    );
    check_indexing(
        r#"{"indexingMode":"None","automatic":false,"includedPaths":[{"path":"/*"}]}"#,
        r#"{"indexingMode":"none","automatic":false,"includedPaths":[],"excludedPaths":[]}"#,
    );
    check_indexing(
        r#"{"excludedPaths":[{"path":"/*"}]}"#,
        r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[],"excludedPaths":[{"path":"/*"},{"path":"/\"_etag\"/?"}]}"#,
    );
    check_indexing(
        r#"{"excludedPaths":[{"path":"/a/*"}]}"#,
        r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/a/*"},{"path":"/\"_etag\"/?"}]}"#,
    );
    check_indexing(
        r#"{"includedPaths":[{"path":"/*"},{"path":"/_etag/?"}]}"#,
        r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"},{"path":"/_etag/?"}],"excludedPaths":[]}"#,
    );
    check_indexing(
        r#"{"includedPaths":[{"path":"/*"},{"path":"/a/[]/{b, c}/?"}],"excludedPaths":[{"path":"/_etag/*"}]}"#,
        r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"},{"path":"/a/[]/{b, c}/?"}],"excludedPaths":[{"path":"/_etag/*"}]}"#,
    );
}

#[test]
fn indexing_policies_are_refused() {
    let root_missing = "400 The special mandatory indexing path \"/\" is not provided in any of \
                        the path type sets. Please provide this path in one of the sets.";
    check_indexing(r#"{"includedPaths":[{"path":"/a/?"}]}"#, root_missing);
    check_indexing(r#"{"includedPaths":[],"excludedPaths":[{"path":"/a/*"}]}"#, root_missing);
    check_indexing(
        r#"{"includedPaths":[{"path":"/expiration"}]}"#,
        "400 The indexing path '/expiration' could not be accepted, failed near position '11'. \
         Please ensure that the path is a valid path. Common errors include invalid characters or \
         absence of quotes around labels.",
    );
    let twice = "400 The indexing path '/a/?' is specified more than once";
    check_indexing(
        r#"{"includedPaths":[{"path":"/*"},{"path":"/a/?"}],"excludedPaths":[{"path":"/a/?"}]}"#,
        twice,
    );
    // Another spelling is the same path.
    check_indexing(
        r#"{"includedPaths":[{"path":"/*"},{"path":"/\"a\"/?"},{"path":"/a/?"}]}"#,
        twice,
    );
    check_indexing(
        r#"{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/*"}]}"#,
        "400 The indexing path '/*' is specified more than once",
    );
    check_indexing(
        r#"{"excludedPaths":[{"path":"/a/[]/{b}/?"}]}"#,
        "400 The tuple path '/a/[]/{b}/?' cannot be excluded",
    );
    check_indexing(r#"{"indexingMode":"none","automatic":true}"#, "400 'automatic' cannot be true");
    check_indexing(
        r#"{"indexingMode":"none","compositeIndexes":[[{"path":"/a"},{"path":"/b"}]]}"#,
        "400 The indexing mode cannot be 'none'",
    );
    check_indexing(r#"{"indexingMode":"eager"}"#, INVALID);
    check_indexing(r#"{"indexingMode":1}"#, INVALID);
    check_indexing(r#"{"automatic":"yes"}"#, INVALID);
    check_indexing(r#"{"includedPaths":{}}"#, INVALID);
    check_indexing(r#"{"includedPaths":["/*"]}"#, INVALID);
    check_indexing(r#"{"includedPaths":[{}]}"#, INVALID);
    check_indexing("[]", INVALID);
    check(
        r#""indexingPolicy":{"indexingMode":"none","automatic":false},"defaultTtl":5"#,
        "indexingPolicy",
        "400 Indexing mode value cannot be 'none' when 'defaultTtl' is specified in the collection",
    );
}

#[test]
fn path_lists_are_bounded() {
    let list = |count: usize| {
        let paths: Vec<String> =
            (1..count).map(|number| format!(r#"{{"path":"/p{number}/?"}}"#)).collect();
        let policy = format!(r#"{{"includedPaths":[{{"path":"/*"}},{}]}}"#, paths.join(","));
        check_new(&with_key(&format!(r#""indexingPolicy":{policy}"#)), false)
    };
    assert!(list(1_500).is_ok());
    assert!(list(1_501).is_err());
}

#[test]
fn composite_indexes() {
    fn check_list(list: &str, expected: &str) {
        let body = with_key(&format!(r#""indexingPolicy":{{"compositeIndexes":{list}}}"#));
        let found = match check_new(&body, false) {
            Ok((_, stored)) => {
                stored.get("indexingPolicy").unwrap().get("compositeIndexes").unwrap().to_text()
            }
            Err(error) => format!("400 {}", error.message),
        };
        assert!(found.starts_with(expected), "{list}\n   found {found}\nexpected {expected}");
    }
    check_list(
        r#"[[{"path":"/a","order":"Descending"},{"path":"/b/[]/c"}]]"#,
        r#"[[{"path":"/a","order":"descending"},{"path":"/b/[]/c","order":"ascending"}]]"#,
    );
    check_list("[]", "[]");
    check_list(r#"[[{"path":"/a"}]]"#, "400 A composite index must have between 2 and 8 paths");
    check_list(r#"[[{"path":"/a"},{"path":"/a"}]]"#, "400 The path '/a' is specified more than");
    check_list(r#"[[{"path":"/a/*"},{"path":"/b"}]]"#, "400 The indexing path '/a/*' could not");
    check_list(r#"[[{"path":"/a"},{"path":"/b","order":"up"}]]"#, INVALID);
    check_list(r#"[{"path":"/a"}]"#, INVALID);
    let nine = [r#"{"path":"/a"}"#; 9].join(",");
    check_list(&format!("[[{nine}]]"), "400 A composite index must have between 2 and 8 paths");
    let pair = |number| format!(r#"[{{"path":"/a{number}"}},{{"path":"/b"}}]"#);
    let pairs: Vec<String> = (0..51).map(pair).collect();
    check_list(&format!("[{}]", pairs[..50].join(",")), "[[");
    check_list(&format!("[{}]", pairs.join(",")), "400 The composite indexes have more than");
}

#[test]
fn spatial_indexes() {
    fn check_list(kind: &str, list: &str, expected: &str) {
        let body = with_key(&format!(
            r#""geospatialConfig":{{"type":"{kind}"}},"indexingPolicy":{{"spatialIndexes":{list}}}"#
        ));
        let found = match check_new(&body, false) {
            Ok((_, stored)) => {
                stored.get("indexingPolicy").unwrap().get("spatialIndexes").unwrap().to_text()
            }
            Err(error) => format!("400 {}", error.message),
        };
        assert!(found.starts_with(expected), "{list}\n   found {found}\nexpected {expected}");
    }
    let plain = r#"[{"path":"/a/*","types":["Point","MultiPolygon"]}]"#;
    check_list("Geography", plain, plain);
    check_list(
        "Geometry",
        plain,
        "400 Required parameter 'boundingBox' for 'Geometry' collection is missing in spatial path \
         '/a/*'",
    );
    let boxed = |sides: &str| {
        format!(r#"[{{"path":"/'a b'/?","types":["Polygon"],"boundingBox":{{{sides}}}}}]"#)
    };
    let good = boxed(r#""xmin":-10,"ymin":0.5,"xmax":10,"ymax":20"#);
    check_list("Geometry", &good, &good);
    check_list(
        "Geography",
        &good,
        "400 Incorrect parameter 'boundingBox' specified for 'Geography' collection",
    );
    check_list(
        "Geometry",
        &boxed(r#""xmin":0,"ymin":0,"xmax":0,"ymax":1"#),
        "400 The value of parameter 'xmax' must be greater than the value of parameter 'xmin' in \
         'boundingBox' for spatial path",
    );
    check_list(
        "Geometry",
        &boxed(r#""xmin":0,"ymin":2,"xmax":1,"ymax":1"#),
        "400 The value of parameter 'ymax' must be greater than the value of parameter 'ymin'",
    );
    check_list("Geometry", &boxed(r#""xmin":0"#), "400 Required parameter 'ymin'");
    check_list(
        "Geography",
        r#"[{"path":"/a/*","types":[]}]"#,
        "400 The spatial data types array cannot be empty. Assign at least one spatial type for \
         the 'types' array for the path '/a/*'.",
    );
    check_list("Geography", r#"[{"path":"/a/*","types":["Cube"]}]"#, INVALID);
    check_list("Geography", r#"[{"path":"/a","types":["Point"]}]"#, "400 The indexing path '/a'");
    check_list("Geography", r#"[{"path":"/*","types":["Point"]}]"#, "400 The path '/*' cannot");
    check_list("Flat", "[]", INVALID);
}

#[test]
fn times_to_live() {
    let check_ttl = |ttl: &str, expected: &str| {
        check(&format!(r#""defaultTtl":{ttl}"#), "defaultTtl", expected);
    };
    for ttl in ["-1", "1", "2147483647"] {
        check_ttl(ttl, ttl);
    }
    check_ttl("10.0", "10");
    check_ttl("null", "absent");
    for ttl in ["0", "-2", "2147483648", "1.5", "1e300"] {
        check_ttl(ttl, "400 The input ttl '");
    }
    check_ttl("\"10\"", INVALID);
    let check_analytical = |ttl: &str, expected: &str| {
        check(&format!(r#""analyticalStorageTtl":{ttl}"#), "analyticalStorageTtl", expected);
    };
    check_analytical("-1", "-1");
    check_analytical("0", "0");
    check_analytical("-10", INVALID);
    let check_feed = |policy: &str, expected: &str| {
        check(&format!(r#""changeFeedPolicy":{policy}"#), "changeFeedPolicy", expected);
    };
    check_feed(r#"{"retentionDuration":5}"#, r#"{"retentionDuration":5}"#);
    check_feed("{}", "{}");
    check_feed(r#"{"retentionDuration":-5}"#, INVALID);
    check_feed(r#"{"retentionDuration":"5"}"#, INVALID);
    let check_images = |policy: &str, expected: &str| {
        let name = "previousImageRetentionPolicy";
        check(&format!(r#""{name}":{policy}"#), name, expected);
    };
    let all = r#"{"supportedFeatures":{"allVersionsAndDeletes":{"mode":3}}}"#;
    check_images(all, all);
    check_images(r#"{"mode":3}"#, all);
    check_images("{}", "{}");
    check_images(r#"{"supportedFeatures":{"containerCopy":{"mode":0}}}"#, "{}");
    check_images(
        r#"{"supportedFeatures":{"containerCopy":{"mode":2}}}"#,
        "400 previous images for",
    );
    check_images(
        r#"{"supportedFeatures":{"allVersionsAndDeletes":{"mode":1,"includedPaths":["/a"]}}}"#,
        "400 'includedPaths' of",
    );
    for mode in ["-1", "4", "1.5", "\"1\""] {
        check_images(&format!(r#"{{"mode":{mode}}}"#), INVALID);
    }
}

#[test]
fn off_is_none_in_the_typed_form() {
    let members = r#""changeFeedPolicy":{"retentionDuration":0},"analyticalStorageTtl":0"#;
    let (policies, _) = check_new(&with_key(members), false).unwrap();
    assert_eq!(policies.change_feed_retention_minutes, None);
    assert_eq!(policies.analytical_ttl, None);
}

#[test]
fn unique_keys() {
    fn check_keys(keys: &str, expected: &str) {
        let found = outcome(
            check_new(&with_key(&format!(r#""uniqueKeyPolicy":{{"uniqueKeys":{keys}}}"#)), false),
            "uniqueKeyPolicy",
        );
        assert!(found.starts_with(expected), "{keys}\n   found {found}\nexpected {expected}");
    }
    check_keys("[]", r#"{"uniqueKeys":[]}"#);
    check_keys(
        r#"[{"paths":["/email"],"x":1},{"paths":["/a/b","/pk"]}]"#,
        r#"{"uniqueKeys":[{"paths":["/email"]},{"paths":["/a/b","/pk"]}]}"#,
    );
    check_keys(r#"[{"paths":[]}]"#, "400 A unique key must have at least one path");
    check_keys(r#"[{"paths":["/a","/\"a\""]}]"#, "400 A unique key names the same path");
    check_keys(
        r#"[{"paths":["/a","/b"]},{"paths":["/b","/a"]}]"#,
        "400 The unique key on /b, /a is defined more than once",
    );
    check_keys(r#"[{"paths":["/_ts"]}]"#, "400 The unique key path '/_ts' is a system property");
    check_keys(r#"[{"paths":["/a/*"]}]"#, "400 The unique key path '/a/*' could not be accepted");
    check_keys(r#"[{"paths":["/a/[]/b"]}]"#, "400 The unique key path '/a/[]/b' could not");
    check_keys("{}", INVALID);
    let key = |number: usize| format!(r#"{{"paths":["/p{number}"]}}"#);
    let keys: Vec<String> = (0..11).map(key).collect();
    check_keys(&format!("[{}]", keys[..10].join(",")), "{");
    check_keys(&format!("[{}]", keys.join(",")), "400 The unique key policy has 11 unique keys");
    let paths: Vec<String> = (0..17).map(|number| format!(r#""/p{number}""#)).collect();
    check_keys(&format!(r#"[{{"paths":[{}]}}]"#, paths[..16].join(",")), "{");
    check_keys(&format!(r#"[{{"paths":[{}]}}]"#, paths.join(",")), "400 A unique key has 17 paths");
}

#[test]
fn computed_properties() {
    fn check_list(list: &str, expected: &str) {
        check(&format!(r#""computedProperties":{list}"#), "computedProperties", expected);
    }
    let good = r#"[{"name":"cp_lower","query":"SELECT VALUE LOWER(c.name) FROM c"}]"#;
    check_list(good, good);
    check_list("[]", "absent");
    check_list(
        r#"[{"name":"a","query":"SELECT VALUE c.a FROM c"},{"name":"a","query":"SELECT VALUE c.b FROM c"}]"#,
        "400 Computed property name 'a' cannot be used in multiple definitions.",
    );
    check_list(
        r#"[{"query":"SELECT VALUE c.a FROM c"}]"#,
        "400 Computed property 'name' is either empty or unspecified.",
    );
    check_list(
        r#"[{"name":"a","query":""}]"#,
        "400 Computed property 'query' is either empty or unspecified.",
    );
    check_list(
        r#"[{"name":"_ts","query":"SELECT VALUE c.a FROM c"}]"#,
        "400 The system property name '_ts' cannot be used as a computed property name.",
    );
    check_list(r#"{"name":"a","query":"SELECT VALUE c.a FROM c"}"#, INVALID);
    check_list("\"a\"", INVALID);
    let many: Vec<String> = (0..21)
        .map(|number| format!(r#"{{"name":"a{number}","query":"SELECT VALUE c.a FROM c"}}"#))
        .collect();
    check_list(&format!("[{}]", many.join(",")), "400 21 computed properties are defined");
    check(
        r#""computedProperties":[{"name":"a","query":"SELECT VALUE c.a FROM c"}],"indexingPolicy":{"spatialIndexes":[{"path":"/a/*","types":["Point"]}]}"#,
        "computedProperties",
        "400 Computed property 'a' at index (0) has a spatial index. Remove the spatial index on \
         this path.",
    );
}

#[test]
fn conflict_resolution() {
    fn check_policy(policy: &str, expected: &str) {
        check(
            &format!(r#""conflictResolutionPolicy":{policy}"#),
            "conflictResolutionPolicy",
            expected,
        );
    }
    check_policy(
        r#"{"mode":"lastWriterWins","conflictResolutionPath":"/a/b"}"#,
        r#"{"mode":"LastWriterWins","conflictResolutionPath":"/a/b","conflictResolutionProcedure":""}"#,
    );
    check_policy(
        r#"{"mode":"Custom","conflictResolutionProcedure":"dbs/d/colls/c/sprocs/s"}"#,
        r#"{"mode":"Custom","conflictResolutionPath":"","conflictResolutionProcedure":"dbs/d/colls/c/sprocs/s"}"#,
    );
    check_policy(r#"{"mode":"Vote"}"#, INVALID);
    check_policy(r#"{"conflictResolutionPath":"a"}"#, "400 The conflict resolution path 'a'");
    check_policy(r#"{"mode":"Custom","conflictResolutionPath":"/a"}"#, "400 'conflictResolutionPa");
    check_policy(r#"{"conflictResolutionProcedure":"x"}"#, "400 'conflictResolutionProcedure'");
}

#[test]
fn computed_properties_are_no_keys() {
    fn check_beside(members: &str, name: &str, role: &str) {
        let body = format!(
            r#""computedProperties":[{{"name":"{name}","query":"SELECT VALUE 1 FROM c"}}],{members}"#
        );
        let expected =
            format!("400 Computed property '{name}' at index (0) cannot be used as a {role} path.");
        check(&body, "computedProperties", &expected);
    }
    check_beside(r#""x":1"#, "pk", "partition key");
    check_beside(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a/b"]}]}"#, "a", "unique key");
    check_beside(r#""vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v"}]}"#, "v", "vector");
}

#[test]
fn queries_of_computed_properties() {
    fn check_query(query: &str, expected: &str) {
        let entries = vec![
            Value::from(Object::from([("name", "cp"), ("query", query)])),
            Object::from([("name", "other"), ("query", "SELECT VALUE c.x FROM c")]).into(),
        ];
        let mut body = with_key("");
        body.insert("computedProperties", entries);
        let found = match check_new(&body, false) {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.message,
        };
        let matches = if expected == "ok" { found == "ok" } else { found.contains(expected) };
        assert!(matches, "{query}\n   found {found}\nexpected {expected}");
    }
    check_query("SELECT VALUE LOWER(c.name) FROM c", "ok");
    check_query("select value r.a[\"b\"][0] ?? 1 from root r", "ok");
    check_query("SELECT VALUE {\"a\": [x.a, -x.b], \"b\": x.c IN (1, 2)} FROM c AS x", "ok");
    check_query("SELECT VALUE c.a BETWEEN 1 AND 2 ? c.b LIKE 'x%' : NOT c.c FROM c", "ok");
    check_query("SELECT VALUE c.cp FROM c", "ok");
    check_query("SELECT VALUE c.a.other FROM c", "ok");
    check_query(
        "SELECT LOWER(c.name) FROM c",
        "Required VALUE expression missing from computed property query \
         'SELECT LOWER(c.name) FROM c' at index (0).",
    );
    check_query("SELECT * FROM c", "Required VALUE expression missing");
    check_query(
        "SELECT LOWER(c.name) FROM r",
        r#"Computed property at index (0) has a malformed query: 'SELECT LOWER(c.name) FROM r' Error details: '{"errors":[{"severity":"Error","code":2001,"message":"Identifier 'c' could not be resolved."}]}'"#,
    );
    check_query("SELECT VALUE c.a FROM c AS x", "Identifier 'c' could not be resolved.");
    check_query("SELECT VALUE", r#"Error details: '{"errors":[{"severity":"Error","location":"#);
    check_query("SELECT VALUE 1", "exactly one source");
    check_query("SELECT VALUE x FROM c JOIN x IN c.a", "exactly one source");
    check_query("SELECT VALUE x FROM x IN c.a", "FROM must name the document itself");
    check_query("SELECT VALUE a FROM c.a", "FROM must name the document itself");
    check_query("SELECT VALUE c.a FROM c WHERE c.a > 1", "WHERE is not allowed");
    check_query("SELECT VALUE c.a FROM c ORDER BY c.a", "ORDER BY is not allowed");
    check_query("SELECT VALUE c.a FROM c GROUP BY c.a", "GROUP BY is not allowed");
    check_query("SELECT TOP 1 VALUE c.a FROM c", "TOP is not allowed");
    check_query("SELECT DISTINCT VALUE c.a FROM c", "DISTINCT is not allowed");
    check_query("SELECT VALUE c.a FROM c OFFSET 0 LIMIT 1", "OFFSET LIMIT is not allowed");
    check_query("SELECT VALUE 1 + (SELECT VALUE 1) FROM c", "a subquery is not allowed");
    check_query("SELECT VALUE EXISTS(SELECT VALUE 1) FROM c", "a subquery is not allowed");
    check_query("SELECT VALUE udf.f(c.a) FROM c", "the user-defined function 'f' is not allowed");
    for call in
        ["COUNT(c.a)", "max(c.a)", "Rand()", "GetCurrentDateTime()", "ST_DISTANCE(c.a, c.b)"]
    {
        let expected = format!("the function '{}' is not", call.split('(').next().unwrap());
        check_query(&format!("SELECT VALUE {{\"a\": {call}}} FROM c"), &expected);
    }
    check_query("SELECT VALUE c.other FROM c", "'other' is itself a computed property");
    check_query("SELECT VALUE c[\"other\"] FROM c", "'other' is itself a computed property");
    check_query("SELECT VALUE @p FROM c", "the parameter @p has no value");
}

/// Two embeddings, of 256 and 550 dimensions, and these indexes.
fn with_vectors(indexes: &str) -> Object {
    with_key(&format!(
        r#""vectorEmbeddingPolicy":{{"vectorEmbeddings":[
            {{"path":"/v1","dataType":"float32","dimensions":256,"distanceFunction":"euclidean"}},
            {{"path":"/v2","dataType":"int8","dimensions":550,"distanceFunction":"dotproduct"}}]}},
            "indexingPolicy":{{"vectorIndexes":{indexes}}}"#
    ))
}

#[test]
fn vector_indexes() {
    fn check_list(list: &str, expected: &str) {
        let found = match check_new(&with_vectors(list), false) {
            Ok((_, stored)) => {
                stored.get("indexingPolicy").unwrap().get("vectorIndexes").unwrap().to_text()
            }
            Err(error) => format!("400 {}", error.message),
        };
        assert!(found.starts_with(expected), "{list}\n   found {found}\nexpected {expected}");
    }
    let good = r#"[{"path":"/v1","type":"flat"},{"path":"/v2","type":"diskANN","quantizerType":"product","quantizationByteSize":8,"vectorIndexShardKey":["/country/city"],"indexingSearchListSize":50,"x":1}]"#;
    check_list(good, good);
    check_list(
        r#"[{"path":"/v1","type":"notFlat"}]"#,
        "400 The Vector Indexing Policy's Index Type::notFlat is invalid",
    );
    check_list(
        r#"[{"path":"/v3","type":"flat"}]"#,
        "400 The Vector Indexing Policy's path::/v3 not matching in Embedding's path.",
    );
    check_list(
        r#"[{"path":"/v1","type":"quantizedFlat","quantizationByteSize":0}]"#,
        "400 The Vector Indexing Policy parameter QuantizationByteSize value :: 0 is out of range. \
         The allowed range is between 1 and 256.",
    );
    check_list(
        r#"[{"path":"/v2","type":"quantizedFlat","quantizationByteSize":513}]"#,
        "400 The Vector Indexing Policy parameter QuantizationByteSize value :: 513 is out of \
         range. The allowed range is between 1 and 512.",
    );
    check_list(
        r#"[{"path":"/v1","type":"diskANN","indexingSearchListSize":5}]"#,
        "400 The Vector Indexing Policy parameter IndexingSearchListSize value :: 5 is out of \
         range. The allowed range is between 25 and 500.",
    );
    check_list(
        r#"[{"path":"/v2","type":"diskANN","vectorIndexShardKey":["country"]}]"#,
        "400 The Vector Indexing Policy has an invalid Shard Path: country.",
    );
    check_list(
        r#"[{"path":"/v2","type":"diskANN","vectorIndexShardKey":["/a","/b","/c"]}]"#,
        "400 The number of shard paths defined in the Vector Indexing Policy: 3 exceeds the \
         maximum: 1.",
    );
    check_list(r#"[{"path":"/v2","type":"diskANN","vectorIndexShardKey":"/country"}]"#, INVALID);
    check_list(r#"[{"path":"/v1","type":"diskANN","quantizationByteSize":"8"}]"#, INVALID);
    check_list(
        r#"[{"path":"/v2","type":"flat"}]"#,
        "400 The Vector Indexing Policy has Index Type::flat for path::/v2",
    );
    check_list(
        r#"[{"path":"/v1","type":"flat","quantizationByteSize":8}]"#,
        "400 The Vector Indexing Policy parameter quantizationByteSize is not supported",
    );
    check_list(
        r#"[{"path":"/v1","type":"flat"},{"path":"/v1","type":"flat"}]"#,
        "400 The Vector Indexing Policy has the path::/v1 more than once",
    );
    check(
        r#""indexingPolicy":{"vectorIndexes":[{"path":"/v1","type":"flat"}]}"#,
        "indexingPolicy",
        "400 The Vector Indexing Policy's path::/v1 not matching in Embedding's path.",
    );
}

#[test]
fn vector_embeddings() {
    fn check_entry(entry: &str, expected: &str) {
        let policy = format!(r#"{{"vectorEmbeddings":[{entry}]}}"#);
        let expected = if expected == "same" { &policy } else { expected };
        check(&format!(r#""vectorEmbeddingPolicy":{policy}"#), "vectorEmbeddingPolicy", expected);
    }
    for data_type in ["float32", "float16", "int8", "uint8"] {
        check_entry(&format!(r#"{{"path":"/v","dataType":"{data_type}"}}"#), "same");
    }
    check_entry(r#"{"path":"/v","x":{"y":1}}"#, "same");
    check_entry(
        r#"{"path":"/v","dataType":"float33"}"#,
        "400 The Vector Embedding Policy has an invalid DataType",
    );
    check_entry(
        r#"{"path":"/v","dimensions":8000}"#,
        "400 The Vector Embedding Policy has Dimensions:8000 which is more than the maximum \
         supported value",
    );
    check_entry(
        r#"{"path":"/v","dimensions":-1}"#,
        "400 The Vector Embedding Policy has Dimensions:-1",
    );
    check_entry(r#"{"path":"/v","dimensions":0}"#, "400 The Vector Embedding Policy has Dimen");
    check_entry(r#"{"path":"/v","dimensions":"8"}"#, INVALID);
    check_entry(
        r#"{"path":"/v","distanceFunction":"handMeasured"}"#,
        "400 The Vector Embedding Policy has an invalid DistanceFunction:handMeasured",
    );
    check_entry(r#"{"path":"/v/*"}"#, "400 The Vector Embedding Policy has an invalid Path:/v/*");
    check_entry(r#"{"dimensions":8}"#, "400 The Vector Embedding Policy has an invalid Path:");
    check_entry(r#"{"path":"/v"},{"path":"/v"}"#, "400 The Vector Embedding Policy has the Path");
    check_entry(r#"{"path":"/v","embeddingSource":{}}"#, "400 'embeddingSource' is not served yet");
}

#[test]
fn full_text_policies() {
    fn check_policy(policy: &str, expected: &str) {
        let expected = if expected == "same" { policy } else { expected };
        check(&format!(r#""fullTextPolicy":{policy}"#), "fullTextPolicy", expected);
    }
    check_policy(r#"{"defaultLanguage":"en-US"}"#, "same");
    check_policy(r#"{"defaultLanguage":"de-DE","fullTextPaths":[]}"#, "same");
    check_policy(r#"{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/a"}]}"#, "same");
    check_policy(
        r#"{"defaultLanguage":"en-US","fullTextPaths":[{"path":"abstract"}]}"#,
        "400 The Full Text Policy contains an invalid Path: abstract",
    );
    check_policy(
        r#"{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/a/*"}]}"#,
        "400 The Full Text Policy contains an invalid Path: /a/*",
    );
    let language = "400 The Full Text Policy contains an unsupported language";
    check_policy(r#"{"defaultLanguage":"spa-SPA"}"#, language);
    check_policy(r#"{"defaultLanguage":"en-us"}"#, language);
    check_policy(
        r#"{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/a","language":"spa-SPA"}]}"#,
        language,
    );
    check_policy(r#"{"defaultSpec":{}}"#, "400 'defaultSpec' of the full-text policy");

    let check_indexes = |list: &str, expected: &str| {
        check(
            &format!(
                r#""fullTextPolicy":{{"fullTextPaths":[{{"path":"/a","language":"pt-BR"}}]}},"indexingPolicy":{{"fullTextIndexes":{list}}}"#
            ),
            "indexingPolicy",
            expected,
        );
    };
    check_indexes(
        r#"[{"path":"/a"}]"#,
        r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}],"fullTextIndexes":[{"path":"/a"}]}"#,
    );
    check_indexes(r#"[{"path":"/b"}]"#, "400 The Full Text Indexing Policy's path::/b not match");
    check_indexes(r#"[{"path":"a"}]"#, "400 The Full Text Indexing Policy contains an invalid");
    check_indexes(r#"[{"not_path":"a"}]"#, INVALID);
}

#[test]
fn client_encryption() {
    fn check_policy(version: i64, path: &str, kind: &str, expected: &str) {
        let policy = format!(
            r#"{{"includedPaths":[{{"path":"{path}","clientEncryptionKeyId":"k","encryptionType":"{kind}","encryptionAlgorithm":"AEAD_AES_256_CBC_HMAC_SHA256"}}],"policyFormatVersion":{version}}}"#
        );
        let expected = if expected == "same" { &policy } else { expected };
        check(&format!(r#""clientEncryptionPolicy":{policy}"#), "clientEncryptionPolicy", expected);
    }
    check_policy(1, "/x", "Deterministic", "same");
    check_policy(1, "/x", "Randomized", "same");
    check_policy(2, "/pk", "Deterministic", "same");
    check_policy(2, "/id", "Deterministic", "same");
    let refused = "400 The client encryption policy is invalid: ";
    check_policy(1, "/pk", "Deterministic", refused);
    check_policy(2, "/id", "Randomized", refused);
    check_policy(3, "/x", "Randomized", refused);
    check_policy(1, "/x/y", "Randomized", refused);
    check_policy(1, "x", "Randomized", refused);
    check_policy(1, "/x", "Plain", refused);
}

/// Replaces one definition by another and shows the refusal, or `ok`.
fn replace(old: &Object, new: &Object) -> String {
    let (_, stored) = check_new(old, false).unwrap();
    match check_replace(new, &stored) {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.message,
    }
}

#[test]
fn what_may_be_replaced() {
    let rich = with_key(
        r#""defaultTtl":5,"computedProperties":[{"name":"a","query":"SELECT VALUE c.x FROM c"}],
        "indexingPolicy":{"excludedPaths":[{"path":"/*"}]},"geospatialConfig":{"type":"Geometry"},
        "fullTextPolicy":{"defaultLanguage":"en-US"},"changeFeedPolicy":{"retentionDuration":5}"#,
    );
    assert_eq!(replace(&with_key(""), &rich), "ok");
    // What is left out is removed.
    let (_, stored) = check_new(&rich, false).unwrap();
    let plain = check_new(&with_key(""), false).unwrap();
    assert_eq!(check_replace(&with_key(""), &stored).unwrap(), plain);
}

#[test]
fn the_partition_key_is_fixed() {
    let old = with_key("");
    let changed = "Document collection partition key cannot be changed.";
    let key = |key: &str| object(&format!(r#"{{"id":"c","partitionKey":{key}}}"#));
    assert_eq!(replace(&old, &key(r#"{"paths":["/pk"]}"#)), "ok");
    assert_eq!(replace(&old, &key(r#"{"paths":["/\"pk\""],"version":2}"#)), "ok");
    assert_eq!(replace(&old, &key(r#"{"paths":["/other"],"kind":"Hash","version":2}"#)), changed);
    assert_eq!(replace(&old, &key(r#"{"paths":["/pk"],"version":1}"#)), changed);
    let multi = r#"{"paths":["/pk"],"kind":"MultiHash","version":2}"#;
    assert_eq!(replace(&old, &key(multi)), changed);
    assert!(replace(&old, &key("null")).starts_with("The partition key definition is missing"));

    let (policies, stored) = check_new(&object(r#"{"id":"c"}"#), true).unwrap();
    let replaced = check_replace(&object(r#"{"id":"c","defaultTtl":5}"#), &stored).unwrap().0;
    assert_eq!(replaced.partition_key, policies.partition_key);
    assert_eq!(check_replace(&old, &stored).unwrap_err().message, changed);
}

#[test]
fn unique_keys_are_fixed() {
    let keyed = with_key(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a"]}]}"#);
    let other = with_key(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/b"]}]}"#);
    let empty = with_key(r#""uniqueKeyPolicy":{"uniqueKeys":[]}"#);
    let changed = "The unique index cannot be modified. To change the unique index, remove the \
                   collection and re-create a new one.";
    assert_eq!(replace(&keyed, &keyed), "ok");
    assert_eq!(replace(&empty, &with_key("")), "ok");
    assert_eq!(replace(&keyed, &other), changed);
    assert_eq!(replace(&keyed, &with_key("")), changed);
    assert_eq!(replace(&with_key(""), &keyed), changed);
}

#[test]
fn conflict_resolution_is_fixed_but_for_the_procedure() {
    let custom = |procedure: &str| {
        with_key(&format!(
            r#""conflictResolutionPolicy":{{"mode":"Custom","conflictResolutionProcedure":"{procedure}"}}"#
        ))
    };
    assert_eq!(replace(&custom("a"), &custom("b")), "ok");
    assert!(replace(&custom("a"), &with_key("")).starts_with("The conflict resolution policy"));
}

#[test]
fn vectors_may_be_added_and_removed_but_not_edited() {
    let flat = r#"[{"path":"/v1","type":"flat"}]"#;
    assert_eq!(replace(&with_vectors(flat), &with_vectors("[]")), "ok");
    assert_eq!(replace(&with_vectors("[]"), &with_vectors(flat)), "ok");
    assert_eq!(replace(&with_key(""), &with_vectors(flat)), "ok");
    assert_eq!(replace(&with_vectors(flat), &with_key("")), "ok");
    assert_eq!(
        replace(&with_vectors(flat), &with_vectors(r#"[{"path":"/v1","type":"quantizedFlat"}]"#)),
        "Paths in existing vector indexing policy cannot be modified in Collection Replace"
    );
    let edited = with_key(
        r#""vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v1","dataType":"float32",
            "dimensions":384,"distanceFunction":"euclidean"}]},
            "indexingPolicy":{"vectorIndexes":[{"path":"/v1","type":"flat"}]}"#,
    );
    assert_eq!(
        replace(&with_vectors(flat), &edited),
        "Paths in existing embedding policy cannot be modified in Collection Replace"
    );
    assert_eq!(
        replace(
            &with_vectors(flat),
            &with_key(&format!(r#""indexingPolicy":{{"vectorIndexes":{flat}}}"#))
        ),
        "The Vector Indexing Policy's path::/v1 not matching in Embedding's path."
    );
}

/// A request of two megabytes holds this many; searching a list for each would take long.
#[test]
fn many_vectors_are_looked_up() {
    let entries = |member: &str| {
        let entry = |number: usize| format!(r#"{{"path":"/v{number}",{member}}}"#);
        (0..20_000).map(entry).collect::<Vec<_>>().join(",")
    };
    let embeddings = entries(r#""dimensions":8"#);
    let indexes = entries(r#""type":"flat""#);
    let body = with_key(&format!(
        r#""vectorEmbeddingPolicy":{{"vectorEmbeddings":[{embeddings}]}},"indexingPolicy":{{"vectorIndexes":[{indexes}]}}"#
    ));
    assert_eq!(replace(&body, &body), "ok");
}

#[test]
fn encryption_is_fixed() {
    let encrypted = with_key(r#""clientEncryptionPolicy":{"includedPaths":[]}"#);
    assert_eq!(replace(&encrypted, &encrypted), "ok");
    let changed = "The client encryption policy cannot be changed.";
    assert_eq!(replace(&encrypted, &with_key("")), changed);
    assert_eq!(replace(&with_key(""), &encrypted), changed);
}

fn indexing(policy: &str) -> IndexingPolicy {
    let body = with_key(&format!(r#""indexingPolicy":{policy}"#));
    check_new(&body, false).unwrap().0.indexing
}

fn steps(path: &str) -> Vec<Step<'_>> {
    let step = |part| if part == "[]" { Step::Element } else { Step::Property(part) };
    path.split('.').map(step).collect()
}

#[test]
fn the_longest_path_decides() {
    let policy = indexing(
        r#"{"includedPaths":[{"path":"/*"},{"path":"/a/b/?"},{"path":"/c/d/*"},{"path":"/t/[]/{x, y}/?"}],
            "excludedPaths":[{"path":"/a/*"},{"path":"/a/b/*"},{"path":"/c/*"},{"path":"/l/[]/x/?"},{"path":"/id/?"},{"path":"/t/*"}]}"#,
    );
    let cases = [
        ("z", true),
        ("a", false),
        ("a.x", false),
        ("a.b", true),
        ("a.b.c", false),
        ("c", false),
        ("c.d", true),
        ("c.d.e.[].f", true),
        ("l.[].x", false),
        ("l.[].x.y", true),
        ("l.[]", true),
        ("l.x", true),
        ("_etag", false),
        ("_etag.x", true),
        // Always indexed, also when excluded.
        ("id", true),
        ("_ts", true),
        ("x.id", true),
        // A tuple decides nothing about single values.
        ("t.[].x", false),
    ];
    for (path, expected) in cases {
        assert_eq!(policy.decides(&steps(path)), expected, "{path}");
    }
    assert!(!indexing(r#"{"indexingMode":"none"}"#).decides(&steps("id")));
}

#[test]
fn computed_properties_need_a_path_of_their_own() {
    let policy = indexing(r#"{"includedPaths":[{"path":"/*"},{"path":"/a/?"},{"path":"/b/*"}]}"#);
    assert!(policy.decides_computed("a"));
    assert!(policy.decides_computed("b"));
    assert!(!policy.decides_computed("c"));
}

#[test]
fn indexed_terms_are_counted() {
    fn check(policy: &str, document: &str, expected: usize) {
        assert_eq!(indexing(policy).indexed_term_count(&object(document)), expected, "{policy}");
    }
    let document =
        r#"{"id":"x","a":1,"b":{"c":true,"d":[1,2,{"e":null}]},"f":[],"_etag":"e","_ts":5}"#;
    check("{}", document, 7);
    check(r#"{"excludedPaths":[{"path":"/*"}]}"#, document, 2);
    check(
        r#"{"includedPaths":[{"path":"/b/d/[]/?"}],"excludedPaths":[{"path":"/*"}]}"#,
        document,
        4,
    );
    check(r#"{"excludedPaths":[{"path":"/b/d/*"}]}"#, document, 4);
    check(r#"{"indexingMode":"none"}"#, document, 0);
}

// ---- properties ---------------------------------------------------------------------------------

fn path_text() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        4 => "[a-c]".prop_map(|name| name),
        1 => Just("\"a b\"".to_owned()),
        1 => Just("[]".to_owned()),
    ];
    (prop::collection::vec(segment, 1..4), prop_oneof![Just("?"), Just("*")])
        .prop_map(|(segments, terminator)| format!("/{}/{terminator}", segments.join("/")))
}

fn path_list() -> impl Strategy<Value = Value> {
    let entry = |text: String| Value::from(Object::from([("path", text)]));
    let list = (any::<bool>(), prop::collection::vec(path_text(), 0..4));
    list.prop_map(move |(root, mut texts)| {
        if root {
            texts.push("/*".to_owned());
        }
        texts.into_iter().map(entry).collect::<Vec<_>>().into()
    })
}

/// Any JSON, to be put where a policy is expected.
fn anything() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..600).prop_map(Value::from),
        prop_oneof!["/[a-c]", "[a-zA-Z/*?]{0,6}"].prop_map(Value::from),
    ];
    let names = prop_oneof![
        Just("path"),
        Just("paths"),
        Just("types"),
        Just("kind"),
        Just("name"),
        Just("query"),
        Just("includedPaths"),
        Just("compositeIndexes"),
        Just("uniqueKeys"),
        Just("vectorEmbeddings"),
        Just("fullTextPaths"),
    ];
    scalar.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..4)
                .prop_map(|members| Value::from(members.into_iter().collect::<Object>())),
        ]
    })
}

const MEMBERS: [&str; 11] = [
    "partitionKey",
    "indexingPolicy",
    "defaultTtl",
    "uniqueKeyPolicy",
    "conflictResolutionPolicy",
    "geospatialConfig",
    "computedProperties",
    "vectorEmbeddingPolicy",
    "fullTextPolicy",
    "changeFeedPolicy",
    "clientEncryptionPolicy",
];

/// P1, for a definition that was accepted.
fn assert_fixed_point(body: &Object) {
    let Ok((policies, stored)) = check_new(body, true) else { return };
    assert_eq!(load(&stored).as_ref(), Ok(&policies));
    assert_eq!(check_new(&stored, false), Ok((policies.clone(), stored.clone())));
    assert_eq!(check_replace(&stored, &stored), Ok((policies, stored)));
}

/// Every path of up to this many steps over a few names.
fn all_paths(steps_max: usize) -> Vec<Vec<Step<'static>>> {
    let steps = [Step::Property("a"), Step::Property("b"), Step::Property("c"), Step::Element];
    let mut paths: Vec<Vec<Step<'static>>> = vec![Vec::new()];
    for _ in 0..steps_max {
        let longer = |path: &Vec<Step<'static>>| {
            let path = path.clone();
            steps.iter().map(move |step| [path.as_slice(), &[*step]].concat())
        };
        let longer: Vec<_> = paths.iter().flat_map(longer).collect();
        paths.extend(longer);
    }
    paths.retain(|path| !path.is_empty());
    paths
}

/// Documents whose names are those of the generated paths.
fn documents() -> impl Strategy<Value = Value> {
    fn object(member: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
        let name = prop::sample::select(vec!["a", "b", "c", "a b", "id"]);
        prop::collection::vec((name, member), 0..4)
            .prop_map(|members| Value::from(members.into_iter().collect::<Object>()))
    }
    let scalar = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from)];
    object(scalar.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from), object(inner)]
    }))
}

fn for_each_leaf<'a>(
    value: &'a Value,
    path: &mut Vec<Step<'a>>,
    visit: &mut impl FnMut(&[Step<'a>]),
) {
    match value {
        Value::Array(elements) => {
            for element in elements {
                path.push(Step::Element);
                for_each_leaf(element, path, visit);
                path.pop();
            }
        }
        Value::Object(object) => {
            for (name, member) in object.iter() {
                path.push(Step::Property(name));
                for_each_leaf(member, path, visit);
                path.pop();
            }
        }
        _ => visit(path),
    }
}

/// What the precedence rule says, without a tree: the longest match, `/?` before `/*`.
fn decide_by_list(policy: &IndexingPolicy, path: &[Step<'_>]) -> bool {
    let matches = |rule: &IndexPath| {
        let same = rule.segments.iter().zip(path).all(|(segment, step)| match (segment, step) {
            (Segment::Property(name), Step::Property(other)) => name == other,
            (Segment::AnyElement, Step::Element) => true,
            _ => false,
        });
        same && match rule.terminator {
            Terminator::Scalar => rule.segments.len() == path.len(),
            Terminator::Subtree => rule.segments.len() <= path.len(),
        }
    };
    let rank = |rule: &IndexPath| (rule.segments.len(), rule.terminator == Terminator::Scalar);
    let included = policy.included.iter().filter(|rule| matches(rule)).map(rank).max();
    let excluded = policy.excluded.iter().filter(|rule| matches(rule)).map(rank).max();
    included > excluded
}

proptest! {
    #[test]
    fn accepted_indexing_policies_are_fixed_points(
        included in path_list(),
        excluded in path_list(),
        composite in prop::collection::vec("/[a-d]", 2..4),
    ) {
        let composite: Vec<Value> =
            composite.into_iter().map(|text| Object::from([("path", text)]).into()).collect();
        let policy = Object::from([
            ("includedPaths", included),
            ("excludedPaths", excluded),
            ("compositeIndexes", vec![Value::from(composite)].into()),
        ]);
        let mut body = with_key("");
        body.insert("indexingPolicy", policy);
        assert_fixed_point(&body);
    }

    #[test]
    fn any_json_is_refused_or_a_fixed_point(
        values in prop::collection::vec((prop::sample::select(&MEMBERS[..]), anything()), 1..4),
    ) {
        let mut body = with_key("");
        for (name, value) in values {
            body.insert(name, value);
        }
        assert_fixed_point(&body);
    }

    #[test]
    fn the_tree_of_rules_decides_as_the_list_does(
        included in path_list(),
        excluded in path_list(),
        document in documents(),
    ) {
        let mut body = with_key("");
        let policy = Object::from([("includedPaths", included), ("excludedPaths", excluded)]);
        body.insert("indexingPolicy", policy);
        if let Ok((policies, _)) = check_new(&body, false) {
            let policy = policies.indexing;
            for path in all_paths(3) {
                prop_assert_eq!(policy.decides(&path), decide_by_list(&policy, &path));
            }
            let mut count = 0;
            for_each_leaf(&document, &mut Vec::new(), &mut |path| {
                count += usize::from(policy.decides(path));
            });
            prop_assert_eq!(policy.indexed_term_count(document.as_object().unwrap()), count);
        }
    }
}
