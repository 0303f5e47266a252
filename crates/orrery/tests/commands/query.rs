//! `orrery query` against a server: rows in their forms, pages, explanations, and what is said when
//! there is no answer.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use crate::process::{Said, Server, orrery};

impl Server {
    /// Asks the orders.
    fn query(&self, text: &str, options: &[&str]) -> Said {
        let mut command =
            orrery(&["query", "--endpoint", &self.endpoint(), "shop", "orders", text]);
        Said::by(command.args(options))
    }
}

#[test]
fn rows_come_in_the_form_that_is_asked_for() {
    let server = Server::with_orders(&["--in-memory"]);
    let text = "SELECT c.id, c.total FROM c WHERE c.customer = 'ada' ORDER BY c.id";
    server
        .query(text, &[])
        .prints("{\"id\":\"1\",\"total\":12.50}\n{\"id\":\"2\",\"total\":3}\n{\"id\":\"5\"}\n");
    server.query(text, &["--format", "json"]).prints(
        "[\n{\"id\":\"1\",\"total\":12.50},\n{\"id\":\"2\",\"total\":3},\n{\"id\":\"5\"}\n]\n",
    );
    server
        .query(text, &["--format", "table"])
        .prints("id  total\n--  -----\n1   12.50\n2       3\n5\n");
    server.query("SELECT VALUE c.tags FROM c", &[]).prints("[\"gift\",\"€\"]\n");
    server.query("SELECT * FROM c WHERE false", &[]).prints("");
    server.query("SELECT * FROM c WHERE false", &["--format", "json"]).prints("[]\n");
}

#[test]
fn parameters_and_the_partition_key_are_sent() {
    let server = Server::with_orders(&["--in-memory"]);
    let text = "SELECT VALUE c.id FROM c WHERE c.total < @most AND NOT ARRAY_CONTAINS(@not, c.id)";
    let options = ["--parameter", "@most=10", "--parameter", "@not=[\"9\",\"2\"]"];
    server.query(text, &options).prints("\"4\"\n");
    let key = ["--partition-key", "\"bob\""];
    server.query("SELECT VALUE COUNT(1) FROM c", &key).prints("2\n");
    let nobody = ["--partition-key", "[\"zoë\"]"];
    server.query("SELECT VALUE COUNT(1) FROM c", &nobody).prints("0\n");
}

#[test]
fn pages_are_followed_and_rows_are_limited() {
    let server = Server::with_orders(&["--in-memory"]);
    let text = "SELECT VALUE c.id FROM c ORDER BY c.id";
    for size in ["1", "2", "5", "1000"] {
        let rows = "\"1\"\n\"2\"\n\"3\"\n\"4\"\n\"5\"\n";
        server.query(text, &["--page-size", size]).prints(rows);
        server.query(text, &["--page-size", size, "--max-rows", "9"]).prints(rows);
    }
    let some = server.query(text, &["--page-size", "2", "--max-rows", "3", "--format", "json"]);
    assert_eq!((some.code, some.out.as_str()), (0, "[\n\"1\",\n\"2\",\n\"3\"\n]\n"));
    assert_eq!(some.err, "stopped after 3 rows; there may be more\n");
}

#[test]
fn what_an_answer_cost_is_told_on_standard_error() {
    let server = Server::with_orders(&["--in-memory"]);
    let text = "SELECT VALUE c.id FROM c WHERE c.total > 3 AND c.note = 'for bob'";
    let said = server.query(text, &["--metrics", "--page-size", "1"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.out.lines().count(), 2, "{said:?}");
    let lines: Vec<&str> = said.err.lines().collect();
    assert!(
        lines[0].starts_with("2 rows in ") && lines[0].ends_with(" request units"),
        "{lines:?}"
    );
    assert!(!lines[0].contains(" 0.00 "), "{lines:?}");
    assert!(lines[1].contains(" documents read ("), "{lines:?}");
    assert!(lines[1].ends_with(" ms on the server"), "{lines:?}");
    let missing = "not indexed: /note/?, (/note ASC, /total ASC)";
    assert_eq!(lines[2..], ["indexed: /total/?", missing]);
}

#[test]
fn explanations_are_for_people_or_for_programs() {
    let server = Server::with_orders(&["--in-memory"]);
    let text = "SELECT * FROM c WHERE CONTAINS(c.note, 'x') AND c.note > 'f' AND c.total = @t";
    let options = ["--parameter", "@t=7", "--explain"];
    let said = server.query(text, &options);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    for line in [
        "condition   /note > \"f\" and /total = 7",
        "order       none asked for",
        "scope       5 documents in 1 range",
        "indexed     /total/?",
        "unindexed   /note/?",
    ] {
        assert!(said.out.lines().any(|found| found == line), "{line}\n{}", said.out);
    }
    assert!(said.out.starts_with("access      "), "{}", said.out);
    assert!(said.out.contains("\nadvice      QA1002: CONTAINS "), "{}", said.out);

    let said = server.query(text, &[&options[..], &["--format", "json"]].concat());
    let explanation = value::Value::parse(said.out.as_bytes()).unwrap();
    assert!(explanation.get("access").is_some(), "{said:?}");
    server.query("SELECT * FORM c", &["--explain"]).fails(1, "SC1001");
}

#[test]
fn queries_that_are_refused_show_where() {
    let server = Server::with_orders(&["--in-memory"]);
    server.query("SELECT * FORM c", &[]).fails(
        1,
        "orrery: the query is refused (SC1001): Syntax error, incorrect syntax near 'FORM'.\n  \
         SELECT * FORM c\n           ^^^^\n",
    );
    server.query("SELECT 'ö𝄞',\n  nothing.x\nFROM c", &[]).fails(1, "  nothing.x\n    ^^^^^^^\n");
    server.query("SELECT c.id FROM c ORDER BY c.note", &[]).fails(1, "order-by item is excluded");
}

#[test]
fn what_is_missing_is_named() {
    let server = Server::with_orders(&["--in-memory"]);
    let endpoint = server.endpoint();
    let ask = |database: &str, container: &str| {
        let words = ["query", "--endpoint", &endpoint, database, container, "SELECT * FROM c"];
        Said::by(&mut orrery(&words))
    };
    ask("shop", "ordres").fails(1, "there is no container 'ordres' in database 'shop'");
    ask("a b/ö", "orders").fails(1, "there is no database 'a b/ö' at http://localhost:");
}

#[test]
fn keys_are_given_or_read_from_a_file() {
    let key = "S".repeat(85) + "Q==";
    let other = "T".repeat(85) + "Q==";
    let server = Server::start(&["--in-memory", "--key", &key]);
    let ask = |options: &[&str]| server.query("SELECT * FROM c", options);
    ask(&[]).fails(1, "the server does not accept the key");
    ask(&["--key", &other]).fails(1, "--key-file");
    ask(&["--key", &key]).fails(1, "there is no database 'shop'");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, format!("{key}\n")).unwrap();
    ask(&["--key-file", file.to_str().unwrap()]).fails(1, "there is no database 'shop'");
    // A wrong key is a mistake in the command, and is not repeated.
    let said = ask(&["--key", "nearlyright!"]);
    assert!(!said.err.contains("nearly"), "{said:?}");
    said.fails(2, "--key: an account key must be base64");
    ask(&["--key-file", "no-such-file"]).fails(2, "cannot read no-such-file");
}

#[test]
fn certificates_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::with_orders(&["--data", data.to_str().unwrap()]);
    let text = "SELECT VALUE COUNT(1) FROM c";
    for host in ["localhost", "127.0.0.1"] {
        let endpoint = format!("https://{host}:{}/", server.port);
        let ask = |options: &[&str]| {
            let mut command = orrery(&["query", "--endpoint", &endpoint, "shop", "orders", text]);
            Said::by(command.args(options))
        };
        ask(&[]).fails(1, "is not trusted: ");
        ask(&["--insecure"]).prints("5\n");
        ask(&["--ca", data.join("tls/ca.pem").to_str().unwrap()]).prints("5\n");
        ask(&["--ca", "no-such-file"]).fails(2, "cannot read no-such-file");
        let empty = data.join("tls/ca.key");
        ask(&["--ca", empty.to_str().unwrap()]).fails(2, "no certificate in PEM form");
    }
    server.query(text, &["--insecure"]).fails(2, "about certificates");
    assert!(Path::new(&data).is_dir());
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let endpoint = format!("http://127.0.0.1:{port}");
    let mut command = orrery(&["query", "--endpoint", &endpoint, "a", "b", "SELECT * FROM c"]);
    Said::by(&mut command).fails(1, "start a server with 'orrery serve'");
}

#[test]
fn something_else_that_listens_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let other = std::thread::spawn(move || {
        for answer in
            [&b"220 mail.example.org\r\n"[..], b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"]
        {
            let (mut stream, _) = listener.accept().unwrap();
            // The request is read to its end, or closing would cut the answer off.
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                let mut part = [0; 1024];
                let length = stream.read(&mut part).unwrap();
                assert_ne!(length, 0, "the request ended early");
                request.extend_from_slice(&part[..length]);
            }
            stream.write_all(answer).unwrap();
        }
    });
    let words = ["query", "--endpoint", &endpoint, "a", "b", "SELECT * FROM c"];
    Said::by(&mut orrery(&words)).fails(1, "does not answer as a server should");
    Said::by(orrery(&words).arg("--explain")).fails(1, "another server than Orrery");
    other.join().unwrap();
}

#[test]
fn a_command_that_makes_no_sense_is_refused() {
    let ask = |options: &[&str]| {
        let mut command = orrery(&["query", "a", "b", "SELECT * FROM c"]);
        Said::by(command.args(options))
    };
    ask(&["--parameter", "a=1"]).fails(2, "starts with '@'");
    ask(&["--parameter", "@a=ada"]).fails(2, "a string needs its quotes");
    ask(&["--partition-key", "ada"]).fails(2, "a string needs its quotes");
    ask(&["--endpoint", "localhost:8081"]).fails(2, "http://");
    ask(&["--page-size", "0"]).fails(2, "--page-size");
    ask(&["--max-rows", "0"]).fails(2, "--max-rows");
    ask(&["--explain", "--metrics"]).fails(2, "cannot be used with");
    ask(&["--insecure", "--ca", "x"]).fails(2, "cannot be used with");
    Said::by(&mut orrery(&["query", "a", "b"])).fails(2, "QUERY");
}

#[test]
fn a_reader_that_has_had_enough_ends_the_query_quietly() {
    let server = Server::with_orders(&["--in-memory"]);
    let mut command = orrery(&["query", "--endpoint", &server.endpoint(), "shop", "orders"]);
    let mut asking = command.args(["SELECT * FROM c", "--page-size", "1"]).spawn().unwrap();
    drop(asking.stdout.take());
    let mut err = String::new();
    asking.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(asking.wait().unwrap().success());
    assert_eq!(err, "");
}
