//! The account: the first thing that every client asks for.
//!
//! SDKs call the endpoints that the answer names for everything else, so they must be the ones by
//! which the client came: behind a port mapping or in another container, any fixed address would be
//! wrong.

use hyper::HeaderMap;
use hyper::Uri;
use hyper::header::HOST;
use value::{Object, Value};

use crate::consistency::Consistency;
use crate::listen::Scheme;

/// A region name that every SDK knows.
const REGION: &str = "South Central US";

/// How the service's query engine is set up. .NET hands it to its planner and Java insists that it
/// is there.
const QUERY_ENGINE: &str = concat!(
    r#"{"allowNewKeywords":true,"maxJoinsPerSqlQuery":10,"#,
    r#""maxQueryRequestTimeoutFraction":0.9,"maxSqlQueryInputLength":524288,"#,
    r#""maxUdfRefPerSqlQuery":10,"queryMaxInMemorySortDocumentCount":-1000,"#,
    r#""spatialMaxGeometryPointCount":256,"sqlAllowNonFiniteNumbers":false,"#,
    r#""sqlDisableOptimizationFlags":0,"enableSpatialIndexing":true,"#,
    r#""maxInExpressionItemsCount":2147483647,"maxLogicalAndPerSqlQuery":2147483647,"#,
    r#""maxLogicalOrPerSqlQuery":2147483647,"maxSpatialQueryCells":2147483647,"#,
    r#""sqlAllowAggregateFunctions":true,"sqlAllowGroupByClause":true,"sqlAllowLike":true,"#,
    r#""sqlAllowSubQuery":true,"sqlAllowScalarSubQuery":true,"sqlAllowTop":true,"#,
    r#""clientDisableOptimisticDirectExecution":true}"#,
);

/// The name of the account. For this one the JavaScript SDK stays with the endpoint it was given.
const ID: &str = "localhost";

/// The account document.
pub(crate) fn document(endpoint: &str, consistency: Consistency) -> Object {
    let location = || {
        Value::from(vec![Value::from(Object::from([
            ("name", Value::from(REGION)),
            ("databaseAccountEndpoint", Value::from(endpoint)),
        ]))])
    };
    let replication = |members: [(&'static str, Value); 3]| Value::from(Object::from(members));
    Object::from([
        ("_self", Value::from("")),
        ("id", Value::from(ID)),
        ("_rid", Value::from(ID)),
        ("media", Value::from("//media/")),
        ("addresses", Value::from("//addresses/")),
        ("_dbs", Value::from("//dbs/")),
        ("writableLocations", location()),
        ("readableLocations", location()),
        ("enableMultipleWriteLocations", Value::from(false)),
        ("continuousBackupEnabled", Value::from(false)),
        ("enableNRegionSynchronousCommit", Value::from(false)),
        ("enablePerPartitionFailoverBehavior", Value::from(false)),
        ("disableCrossRegionalHedging", Value::from(false)),
        (
            "userReplicationPolicy",
            replication([
                ("asyncReplication", Value::from(false)),
                ("minReplicaSetSize", Value::from(1)),
                ("maxReplicasetSize", Value::from(4)),
            ]),
        ),
        ("userConsistencyPolicy", Value::from(consistency.policy())),
        (
            "systemReplicationPolicy",
            replication([
                ("minReplicaSetSize", Value::from(1)),
                ("maxReplicasetSize", Value::from(4)),
                ("asyncReplication", Value::from(false)),
            ]),
        ),
        (
            "readPolicy",
            Value::from(Object::from([
                ("primaryReadCoefficient", Value::from(1)),
                ("secondaryReadCoefficient", Value::from(1)),
            ])),
        ),
        ("queryEngineConfiguration", Value::from(QUERY_ENGINE)),
    ])
}

/// The URL by which the client reached us, with a slash at the end. A public host with a port is
/// announced to everybody, because what clients say then went through something that changes it.
pub(crate) fn endpoint(
    scheme: Scheme,
    uri: &Uri,
    headers: &HeaderMap,
    public_host: Option<&str>,
) -> String {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let forwarded =
        header("x-forwarded-proto").filter(|scheme| matches!(*scheme, "http" | "https"));
    let scheme = forwarded.unwrap_or(scheme.as_str());
    // HTTP/2 has the authority in the URI.
    let authority = uri.authority().map(|authority| authority.as_str());
    let host = authority.or_else(|| header(HOST.as_str())).filter(|host| is_host(host));
    let fixed = public_host.filter(|host| split_port(host).1.is_some());
    let host = fixed.or(host).or(public_host).unwrap_or("localhost:8081");
    format!("{scheme}://{host}/")
}

/// The URL under which a server is announced that listens on a port: the host's own port wins.
#[must_use]
pub fn endpoint_of(host: &str, port: u16) -> String {
    match split_port(host) {
        (_, Some(_)) => format!("https://{host}/"),
        (address, None) if address.contains(':') && !address.starts_with('[') => {
            format!("https://[{address}]:{port}/")
        }
        (name, None) => format!("https://{name}:{port}/"),
    }
}

/// A host name, or an address in brackets, and its port if it has one.
pub(crate) fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        // An address of IPv6 has colons of its own.
        Some((name, port)) if name.ends_with(']') || !name.contains(':') => (name, Some(port)),
        _ => (host, None),
    }
}

/// Whether a text can stand as host and port in a URL; anything else is not echoed.
fn is_host(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 255
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_host_with_a_port_is_announced_to_everybody() {
        let announced = |public_host| {
            let headers = HeaderMap::from_iter([(HOST, "localhost:9999".parse().unwrap())]);
            endpoint(Scheme::Https, &"/".parse().unwrap(), &headers, Some(public_host))
        };
        assert_eq!(announced("127.0.0.1:8081"), "https://127.0.0.1:8081/");
        assert_eq!(announced("[::1]:8081"), "https://[::1]:8081/");
        assert_eq!(announced("127.0.0.1"), "https://localhost:9999/");
        assert_eq!(announced("[::1]"), "https://localhost:9999/");
        assert_eq!(announced("::1"), "https://localhost:9999/");
    }

    #[test]
    fn a_server_is_announced_with_the_port_of_its_host_or_its_own() {
        assert_eq!(endpoint_of("localhost", 8081), "https://localhost:8081/");
        assert_eq!(endpoint_of("db.test:443", 8081), "https://db.test:443/");
        assert_eq!(endpoint_of("::1", 8081), "https://[::1]:8081/");
        assert_eq!(endpoint_of("[::1]", 8081), "https://[::1]:8081/");
    }

    #[test]
    fn the_endpoint_is_the_one_the_client_used() {
        let check = |scheme, uri: &str, headers: &[(&'static str, &str)], expected: &str| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, value.parse().unwrap());
            }
            assert_eq!(endpoint(scheme, &uri.parse().unwrap(), &map, Some("db.test")), expected);
        };
        check(Scheme::Http, "/", &[("host", "localhost:9999")], "http://localhost:9999/");
        check(Scheme::Https, "/", &[("host", "[::1]:8081")], "https://[::1]:8081/");
        check(Scheme::Https, "https://x:1/", &[], "https://x:1/");
        check(
            Scheme::Http,
            "/",
            &[("host", "db.example"), ("x-forwarded-proto", "https")],
            "https://db.example/",
        );
        check(Scheme::Http, "/", &[], "http://db.test/");
        check(Scheme::Http, "/", &[("host", "evil\"}/x")], "http://db.test/");
    }

    #[test]
    fn the_account_has_what_sdks_insist_on() {
        let account = document("https://127.0.0.1:8081/", Consistency::Session);
        for name in ["_self", "id", "_rid", "writableLocations", "queryEngineConfiguration"] {
            assert!(account.contains(name), "{name}");
        }
        assert_eq!(account.get("id"), Some(&Value::from("localhost")));
        let inner = account.get("queryEngineConfiguration").and_then(Value::as_str).unwrap();
        assert!(Value::parse(inner.as_bytes()).is_ok());
        let endpoint = account.get("readableLocations").unwrap().as_array().unwrap()[0]
            .get("databaseAccountEndpoint");
        assert_eq!(endpoint, Some(&Value::from("https://127.0.0.1:8081/")));
    }
}
