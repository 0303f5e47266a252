//! Servers and commands as processes, and what they say.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use db::{Clock, SystemClock};
use gateway::{EMULATOR_KEY, Key};
use value::Value;

/// A server that ends with the test.
pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn orrery(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = orrery(&["serve", "--port", "0"]);
        let mut process = command.args(arguments).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.split("https://localhost:").nth(1);
        let port = port.unwrap_or_else(|| panic!("no ready line: {line:?}")).split('/').next();
        Self { port: port.unwrap().parse().unwrap(), process }
    }

    /// A server with five orders of two customers in the container `orders` of the database `shop`.
    /// `note` is not indexed.
    pub(crate) fn with_orders(arguments: &[&str]) -> Self {
        let server = Self::start(arguments);
        server.create_database("shop");
        let container = r#"{"id":"orders","partitionKey":{"paths":["/customer"],"kind":"Hash"},
            "indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/note/?"}]}}"#;
        server.create_container("shop", container);
        for (id, customer, total) in
            [("1", "ada", "12.50"), ("2", "ada", "3"), ("3", "bob", "40"), ("4", "bob", "7")]
        {
            let order = format!(
                r#"{{"id":"{id}","customer":"{customer}","total":{total},"note":"for {customer}"}}"#
            );
            server.create("shop/orders", &format!("[\"{customer}\"]"), &order);
        }
        let order = r#"{"id":"5","customer":"ada","tags":["gift","€"]}"#;
        server.create("shop/orders", "[\"ada\"]", order);
        server
    }

    pub(crate) fn create_database(&self, name: &str) {
        let body = format!(r#"{{"id":"{name}"}}"#);
        self.send("POST", &["dbs"], &[], &body).expect(201);
    }

    pub(crate) fn create_container(&self, database: &str, body: &str) {
        self.send("POST", &["dbs", database, "colls"], &[], body).expect(201);
    }

    /// Creates a document in a container, named `DATABASE/CONTAINER`.
    pub(crate) fn create(&self, place: &str, key: &str, body: &str) {
        self.try_create(place, key, &[], body).expect(201);
    }

    pub(crate) fn try_create(
        &self,
        place: &str,
        key: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let (database, container) = place.split_once('/').unwrap();
        let headers = [&[("x-ms-documentdb-partitionkey", key)], headers].concat();
        self.send("POST", &["dbs", database, "colls", container, "docs"], &headers, body)
    }

    /// Stops the server in order.
    pub(crate) fn stop(mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
    }

    /// Sends a request, signed with the emulator's key.
    pub(crate) fn send(
        &self,
        method: &str,
        segments: &[&str],
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let now = UNIX_EPOCH + Duration::from_millis(SystemClock.now_ms());
        let date = httpdate::fmt_http_date(now);
        let is_list = segments.len() % 2 == 1;
        let (kind, link) = match segments {
            [link @ .., kind] if is_list => (kind, link.join("/")),
            [.., kind, _] => (kind, segments.join("/")),
            _ => panic!("no path"),
        };
        let verb = method.to_lowercase();
        let payload = format!("{verb}\n{kind}\n{link}\n{}\n\n", date.to_lowercase());
        let signature = Key::parse(EMULATOR_KEY).unwrap().sign(payload.as_bytes());
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let path: Vec<String> = segments.iter().map(|segment| encode(segment)).collect();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            stream,
            "{method} /{} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             x-ms-version: 2020-07-15\r\nx-ms-date: {date}\r\n\
             authorization: type=master&ver=1.0&sig={signature}\r\n{headers}\
             content-length: {}\r\n\r\n{body}",
            path.join("/"),
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, body: body.to_owned() }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://localhost:{}/", self.port)
    }

    /// Runs a command against this server.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        Said::by(orrery(arguments).env("ORRERY_ENDPOINT", self.endpoint()))
    }

    /// The rows of a query, one on each line.
    pub(crate) fn rows(&self, place: &str, query: &str) -> String {
        let (database, container) = place.split_once('/').unwrap();
        let said = self.run(&["query", database, container, query]);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{query}");
        said.out
    }
}

/// Percent-encodes what could mean something else in a path.
fn encode(segment: &str) -> String {
    segment.replace('%', "%25").replace(' ', "%20").replace(':', "%3A")
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        Value::parse(self.body.as_bytes()).unwrap_or(Value::Null)
    }
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn by(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// It printed just this, and said nothing else.
    #[track_caller]
    pub(crate) fn prints(self, expected: &str) {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{self:?}");
        assert_eq!(self.out, expected);
    }

    /// It printed just this, and said this about it.
    #[track_caller]
    pub(crate) fn says(self, expected: &str, about: &str) {
        assert_eq!(self.code, 0, "{self:?}");
        assert_eq!((self.out.as_str(), self.err.as_str()), (expected, about));
    }

    #[track_caller]
    pub(crate) fn fails(self, code: i32, part: &str) {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{self:?}");
        assert!(self.err.contains(part), "{}\nlacks: {part}", self.err);
    }

    /// It printed this, and complained about those.
    #[track_caller]
    pub(crate) fn fails_after(self, printed: &str, parts: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (1, printed), "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "{}\nlacks: {part}", self.err);
        }
    }
}
