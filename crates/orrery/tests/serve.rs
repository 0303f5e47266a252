//! The server as a process: its ready line, its ways to stop, and what it refuses.

#![expect(clippy::unwrap_used, reason = "a test may stop where a script would")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

fn orrery(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery"));
    command.args(arguments).env_clear().stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a server and gives it with its first line.
fn start(arguments: &[&str]) -> (Child, BufReader<impl Read + use<>>, String) {
    let mut server = orrery(arguments).spawn().unwrap();
    let mut output = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    (server, output, line)
}

fn port(line: &str) -> u16 {
    let port = line.split("https://localhost:").nth(1).and_then(|rest| rest.split('/').next());
    port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("no ready line: {line:?}"))
}

fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost:{port}\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn signal(server: &Child, name: &str) {
    let status = Command::new("kill").args([name, &server.id().to_string()]).status().unwrap();
    assert!(status.success());
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_ready_line_has_endpoint_and_connection_string() {
    let (server, _, line) = start(&["serve", "--in-memory", "--port", "0"]);
    let port = port(&line);
    let connection = format!("AccountEndpoint=https://localhost:{port}/;AccountKey=C2y6yDjf5/");
    assert!(line.contains(&connection), "{line}");
    for path in ["/alive", "/ready", "/status", "/metrics", "/", "/_explorer/index.html"] {
        let answer = get(port, path);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
    assert!(get(port, "/_explorer/emulator.pem").contains("BEGIN CERTIFICATE"));
    assert!(get(port, "/").contains(&format!("http://localhost:{port}/")));
    signal(&server, "-INT");
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_server_that_is_told_to_stop_leaves_a_directory_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let (server, _, line) = start(&["serve", "--port", "0", "--data", data]);
    port(&line);

    // The directory belongs to one server at a time.
    let second = orrery(&["serve", "--port", "0", "--data", data]).output().unwrap();
    assert!(!second.status.success());
    assert!(
        said(&second).contains("in use") || said(&second).contains("lock"),
        "{}",
        said(&second)
    );

    signal(&server, "-TERM");
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let verified = orrery(&["verify", "--data", data]).output().unwrap();
    assert!(verified.status.success(), "{}", said(&verified));
    assert!(said(&verified).contains("0 problems"), "{}", said(&verified));
}

#[test]
fn a_key_of_ones_own_is_never_printed() {
    let key = "S".repeat(85) + "Q==";
    let (server, mut output, line) =
        start(&["serve", "--in-memory", "--port", "0", "--key", &key, "--log", "trace"]);
    get(port(&line), "/");
    signal(&server, "-TERM");
    let mut rest = line;
    output.read_to_string(&mut rest).unwrap();
    rest.push_str(&said(&server.wait_with_output().unwrap()));
    assert!(rest.contains("AccountKey=<your key>;"), "{rest}");
    assert!(!rest.contains("SSSS"), "{rest}");
}

#[test]
fn what_makes_no_sense_is_refused_with_advice() {
    for (arguments, part) in [
        (&["serve", "--listen", "0.0.0.0", "--in-memory"][..], "--allow-emulator-key"),
        (&["serve", "--key", "short", "--in-memory"], "--key"),
        (&["serve", "--log", "[[", "--in-memory"], "--log"),
        (
            &["serve", "--listen", "203.0.113.7", "--allow-emulator-key", "--in-memory"],
            "cannot listen",
        ),
        (&["verify", "--data", "no-such-directory"], "not a data directory"),
    ] {
        let output = orrery(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(said(&output).contains(part), "{arguments:?}: {}", said(&output));
    }
}
