//! Queries that want too much, asked of a server in a process of its own.
//!
//! Each must be answered or refused within the time that a query has, by a status that says whose
//! fault it was, and none may make the server large. Afterwards the server answers as before.

#![expect(clippy::unwrap_used, reason = "a test may stop where a script would")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use gateway::{EMULATOR_KEY, Key};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use value::{Object, Value, write_string};

const CONTAINER: &str = "dbs/d/colls/c";

/// A query has ten seconds; the rest is for machines that are busy with other tests.
const PATIENCE: Duration = Duration::from_secs(100);

/// A query may hold 128 MB, and as many run at once as there are cores; the rest is the server.
const GROWTH_MB_MAX: u64 = 1_024;

struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_orrery"))
            .args(["serve", "--in-memory", "--port", "0", "--log", "error"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("is piped")).read_line(&mut line).unwrap();
        let port = line.split("https://localhost:").nth(1).and_then(|rest| rest.split('/').next());
        let port = port.and_then(|port| port.parse().ok());
        Self { process, port: port.unwrap_or_else(|| panic!("no ready line: {line:?}")) }
    }

    /// The most memory that the server ever held, where the system tells.
    fn peak_mb(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kilobytes / 1_024)
    }

    /// Sends a signed request over a connection of its own; gives status and body.
    async fn post(
        &self,
        kind: &str,
        link: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> (u16, Value) {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let (mut send, driver) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        #[expect(clippy::disallowed_methods, reason = "the server checks dates against its clock")]
        let date = httpdate::fmt_http_date(std::time::SystemTime::now());
        let payload = format!("post\n{kind}\n{link}\n{}\n\n", date.to_lowercase());
        let signature = Key::parse(EMULATOR_KEY).unwrap().sign(payload.as_bytes());
        let signature = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        let mut request = Request::builder()
            .method("POST")
            .uri(format!("/{path}"))
            .header("host", "localhost")
            .header("x-ms-version", "2020-07-15")
            .header("x-ms-date", date)
            .header("authorization", format!("type%3Dmaster%26ver%3D1.0%26sig%3D{signature}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let answer = send.send_request(request).await.expect("the server answers");
        let (head, body) = answer.into_parts();
        let body = body.collect().await.expect("the answer arrives whole").to_bytes();
        (head.status.as_u16(), Value::parse(&body).expect("the answer is JSON"))
    }

    /// Asks a query; its parameters are JSON as it goes into the body.
    async fn query(&self, text: &str, parameters: &str) -> (u16, Value) {
        let mut body = String::from("{\"query\":");
        write_string(text, &mut body);
        body.push_str(&format!(",\"parameters\":[{parameters}]}}"));
        let headers = [
            ("content-type", "application/query+json"),
            ("x-ms-documentdb-isquery", "True"),
            ("x-ms-documentdb-query-enablecrosspartition", "True"),
        ];
        let path = format!("{CONTAINER}/docs");
        let answer = self.post("docs", CONTAINER, &path, &headers, body);
        tokio::time::timeout(PATIENCE, answer).await.expect("a query has an end")
    }

    /// A container whose documents have long arrays and texts.
    async fn fill(&self) {
        let created = self.post("dbs", "", "dbs", &[], r#"{"id":"d"}"#.to_owned()).await;
        assert_eq!(created.0, 201);
        let definition =
            r#"{"id":"c","partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#.to_owned();
        let created = self.post("colls", "dbs/d", "dbs/d/colls", &[], definition).await;
        assert_eq!(created.0, 201);
        for number in 0..5 {
            let id = number.to_string();
            let list = (0..1_000).map(Value::from).collect::<Vec<_>>();
            let document = Object::from([
                ("id", Value::from(id.as_str())),
                ("n", Value::from(number)),
                ("list", Value::from(list)),
                ("text", Value::from("a".repeat(5_000) + "!")),
            ]);
            let key = format!("[\"{id}\"]");
            let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
            let path = format!("{CONTAINER}/docs");
            let body = Value::from(document).to_text();
            assert_eq!(self.post("docs", CONTAINER, &path, &headers, body).await.0, 201);
        }
    }
}

impl Drop for Server {
    /// Also when the test fails: no server may outlive it.
    fn drop(&mut self) {
        self.process.kill().expect("the server runs");
        self.process.wait().expect("the server ends");
    }
}

/// A query, its parameters, and the statuses that are right for it.
struct Case {
    name: &'static str,
    text: String,
    parameters: String,
    statuses: &'static [u16],
}

fn case(name: &'static str, statuses: &'static [u16], text: impl Into<String>) -> Case {
    Case { name, text: text.into(), parameters: String::new(), statuses }
}

fn nested(open: &str, inside: &str, close: &str, depth: usize) -> String {
    format!("SELECT VALUE {}{inside}{} FROM c", open.repeat(depth), close.repeat(depth))
}

fn parameters(count: usize) -> String {
    let one = |number| format!(r#"{{"name":"@p{number}","value":1}}"#);
    (0..count).map(one).collect::<Vec<_>>().join(",")
}

/// What is refused for its text alone.
fn by_text() -> Vec<Case> {
    let blanks = " ".repeat(512 * 1024);
    vec![
        case("text over 512 KB", &[400], format!("SELECT{blanks}VALUE 1 FROM c")),
        case("10,000 parentheses", &[400], nested("(", "1", ")", 10_000)),
        case("10,000 arrays", &[400], nested("[", "1", "]", 10_000)),
        case("10,000 objects", &[400], nested("{a:", "1", "}", 10_000)),
        case("10,000 signs", &[400], nested("- ", "1", "", 10_000)),
        case("10,000 subqueries", &[400], nested("(SELECT VALUE ", "1", ")", 10_000)),
        case("10,000 open brackets", &[400], format!("SELECT VALUE c{}", "[".repeat(10_000))),
        case("10,000 members", &[400], format!("SELECT VALUE c{} FROM c", ".a".repeat(10_000))),
        case("10,000 sums", &[400], format!("SELECT VALUE 1{} FROM c", " + 1".repeat(10_000))),
        case(
            "11 joins",
            &[400],
            format!("SELECT VALUE 1 FROM c{}", " JOIN a IN c.list".repeat(11)),
        ),
        case("an unended comment", &[400], format!("SELECT VALUE 1 /*{}", "*".repeat(400_000))),
        case("an unended text", &[400], format!("SELECT VALUE '{}", "\\\\".repeat(200_000))),
    ]
}

/// What is large and yet answered, or refused for its size.
fn by_size() -> Vec<Case> {
    let numbers: Vec<String> = (0..60_000).map(|number| number.to_string()).collect();
    let aliases: Vec<String> = (0..20_000).map(|number| format!("c.n AS a{number}")).collect();
    let either = vec!["c.n = 1"; 40_000].join(" OR ");
    let names: Vec<String> = (0..40_000).map(|number| format!("@p{number}")).collect();
    let deep =
        format!(r#"{{"name":"@p","value":{}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let in_list = format!("SELECT VALUE c.n FROM c WHERE c.n IN ({})", numbers.join(","));
    let by_parameters = format!("SELECT VALUE c.n FROM c WHERE c.n IN ({})", names.join(","));
    vec![
        case("an IN of 60,000", &[200], in_list),
        case("40,000 alternatives", &[200, 400], format!("SELECT VALUE c.n FROM c WHERE {either}")),
        case("20,000 properties", &[200], format!("SELECT {} FROM c", aliases.join(","))),
        Case {
            name: "40,000 parameters",
            text: by_parameters,
            parameters: parameters(40_000),
            statuses: &[200],
        },
        Case {
            name: "100,000 parameters, over 2 MB",
            text: "SELECT VALUE @p1 FROM c".to_owned(),
            parameters: parameters(100_000),
            statuses: &[400, 413],
        },
        Case {
            name: "a parameter of 100,000 arrays",
            text: "SELECT VALUE @p FROM c".to_owned(),
            parameters: deep,
            statuses: &[400],
        },
        case(
            "text that is 10,000 arrays",
            &[200, 400],
            format!("SELECT VALUE STRINGTOARRAY('{}{}')", "[".repeat(10_000), "]".repeat(10_000)),
        ),
    ]
}

/// Patterns that take for ever elsewhere.
fn by_pattern() -> Vec<Case> {
    let patterns = [
        "^(a|a|aa)+(?=b)$",
        "^(a+)+$",
        "(a*)*b",
        "^(a|aa)+$",
        r"(a+)+\\1b",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        "(?:a?){30}a{30}",
        "a{1000}{1000}",
        "(?=(a+))a*b\\\\1",
    ];
    let mut cases: Vec<Case> = patterns
        .into_iter()
        .map(|pattern| {
            let text = format!("SELECT VALUE REGEXMATCH(c.text, '{pattern}') FROM c");
            case("a regular expression", &[200, 400, 408], text)
        })
        .collect();
    let like = format!("SELECT VALUE c.text LIKE '{}b' FROM c", "%a".repeat(500));
    cases.push(case("a LIKE with 500 wildcards", &[200, 400, 408], like));
    let class = format!("SELECT VALUE c.text LIKE '%[{}]%[^a]!' FROM c", "b".repeat(10_000));
    cases.push(case("a LIKE with a long class", &[200, 400, 408], class));
    cases
}

/// What would be very large if it were made.
fn by_memory() -> Vec<Case> {
    let mut doubled = "SELECT VALUE 'ab'".to_owned();
    let mut listed = "SELECT VALUE [1]".to_owned();
    for _ in 0..40 {
        doubled = format!("SELECT VALUE CONCAT(x, x) FROM ({doubled}) x");
        listed = format!("SELECT VALUE [x, x] FROM ({listed}) x");
    }
    let bomb = "REPLICATE('b', 10000)";
    let replaced =
        format!("SELECT VALUE REPLACE(REPLACE(c.text, 'a', {bomb}), 'b', {bomb}) FROM c");
    let join = "FROM c JOIN a IN c.list JOIN b IN c.list";
    vec![
        case("texts doubled 40 times", &[400], doubled),
        case("arrays doubled 40 times", &[400], listed),
        case("a text of 500 GB", &[400], replaced),
        case(
            "a REPLICATE over its limit",
            &[200],
            "SELECT VALUE REPLICATE(c.text, 1000000) FROM c",
        ),
        case("a million long rows", &[400, 408], format!("SELECT DISTINCT VALUE [a, b, c] {join}")),
        case("a million lists", &[400, 408], format!("SELECT VALUE MAKELIST(c.text) {join}")),
        case("a million groups", &[400, 408], format!("SELECT a, b, c {join} GROUP BY a, b, c")),
    ]
}

/// What would take years.
fn by_time() -> Vec<Case> {
    let list = "IN c.list";
    let five = format!("JOIN a {list} JOIN b {list} JOIN d {list} JOIN e {list} JOIN f {list}");
    let exists = format!(
        "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE a FROM a {list} JOIN b {list} \
         JOIN d {list} JOIN e {list} WHERE a + b + d + e = -1)"
    );
    vec![
        case("a join of 1,000^5 rows", &[408], format!("SELECT VALUE COUNT(1) FROM c {five}")),
        case("a search in 1,000^4 rows", &[408], exists),
    ]
}

async fn check(server: &Server, case: &Case) {
    let (status, body) = server.query(&case.text, &case.parameters).await;
    let about = format!("{}: {}", case.name, case.text.chars().take(100).collect::<String>());
    let said: String = body.to_text().chars().take(400).collect();
    assert!(case.statuses.contains(&status), "{about}\n  {status} {said}");
    if status >= 400 {
        let message = body.get("message").and_then(Value::as_str);
        assert!(message.is_some_and(|message| message.len() > 20), "{about}\n  {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_that_want_too_much_are_refused_in_time() {
    let server = Server::start();
    server.fill().await;
    let before_mb = server.peak_mb();
    for case in by_text().iter().chain(&by_size()).chain(&by_pattern()).chain(&by_memory()) {
        check(&server, case).await;
    }
    // At the same time, since each of them takes as long as a query may.
    let slow = by_time();
    let [first, second] = &slow[..] else { panic!("two queries") };
    tokio::join!(check(&server, first), check(&server, second));

    let (status, body) = server.query("SELECT VALUE COUNT(1) FROM c", "").await;
    assert_eq!(status, 200);
    let rows = body.get("Documents").and_then(Value::as_array).unwrap();
    assert_eq!(rows, [Value::from(5)]);
    match (before_mb, server.peak_mb()) {
        (Some(before), Some(after)) => {
            assert!(after - before < GROWTH_MB_MAX, "from {before} MB to {after} MB");
        }
        _ => eprintln!("not run: the system does not tell how large a process is"),
    }
}
