//! `orrery export` and `orrery import`: what comes out of one server is what the other one gets.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::process::{Said, Server, orrery};

const CONTAINER: &str = r#"{"id":"orders","partitionKey":{"paths":["/customer"],"kind":"Hash","version":2},
    "indexingPolicy":{"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/note/?"}],
                      "compositeIndexes":[[{"path":"/a"},{"path":"/b","order":"descending"}]]},
    "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/number"]}]},"defaultTtl":-1}"#;

/// A server with a database of three containers: one of two ranges with scripts and documents of many
/// kinds, one with a key of several levels, and one that is empty.
fn shop() -> Server {
    let server = Server::start(&["--in-memory"]);
    server.create_database("shop");
    let throughput = [("x-ms-offer-throughput", "12000")];
    server.send("POST", &["dbs", "shop", "colls"], &throughput, CONTAINER).expect(201);
    let people = r#"{"id":"people: all","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash","version":2}}"#;
    server.create_container("shop", people);
    let autoscale = [("x-ms-cosmos-offer-autopilot-settings", r#"{"maxThroughput":2000}"#)];
    let empty = r#"{"id":"empty","partitionKey":{"paths":["/id"],"kind":"Hash"}}"#;
    server.send("POST", &["dbs", "shop", "colls"], &autoscale, empty).expect(201);
    for (kind, body) in [
        ("sprocs", r#"{"id":"p.1","body":"function () { return '\u00f6\n'; }"}"#),
        ("udfs", r#"{"id":"f","body":"function (x) { return x; }"}"#),
        (
            "triggers",
            r#"{"id":"t","body":"function () {}","triggerType":"pre","triggerOperation":"All"}"#,
        ),
    ] {
        server.send("POST", &["dbs", "shop", "colls", "orders", kind], &[], body).expect(201);
    }
    for number in 0..40 {
        let key = format!("[\"customer {number}\"]");
        let body = format!(
            r#"{{"z":1.50e1,"id":"o {number}","customer":"customer {number}","number":{number},"text":"\u00e9\n€","_own":[{{}},[]]}}"#
        );
        server.create("shop/orders", &key, &body);
    }
    server.create("shop/orders", "[{}]", r#"{"id":"no key"}"#);
    server.create("shop/orders", "[null]", r#"{"id":"null","customer":null,"ttl":1000000}"#);
    server.create("shop/people: all", "[\"x\",2]", r#"{"id":"1","a":"x","b":2}"#);
    server.create("shop/people: all", "[\"x\",{}]", r#"{"id":"1","a":"x"}"#);
    server
}

/// All files of a folder with their texts.
fn files(directory: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

fn export(server: &Server, directory: &Path, options: &[&str]) -> Said {
    let words = ["export", "--database", "shop", directory.to_str().unwrap()];
    server.run(&[&words[..], options].concat())
}

fn import(server: &Server, input: &Path, options: &[&str]) -> Said {
    server.run(&[&["import", input.to_str().unwrap()][..], options].concat())
}

#[track_caller]
fn succeeds(said: &Said) {
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
}

#[test]
fn another_account_gets_the_same_model() {
    let (here, there) = (shop(), Server::start(&["--in-memory"]));
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("first"), directory.path().join("second"));
    let said = export(&here, &first, &["--strip-system"]);
    succeeds(&said);
    assert!(said.err.contains("shop/orders: 42 documents\n"), "{}", said.err);
    assert!(said.err.contains("3 containers and 44 documents in "), "{}", said.err);
    let said = import(&there, &first, &[]);
    succeeds(&said);
    let last = "1 database and 3 containers created, 3 scripts changed, 44 documents created and 0 \
                replaced\n";
    assert!(said.err.ends_with(last), "{}", said.err);
    succeeds(&export(&there, &second, &["--strip-system"]));
    let (first_files, second_files) = (files(&first), files(&second));
    assert_eq!(first_files, second_files);
    let names: Vec<&str> = first_files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "empty/documents.ndjson",
            "export.json",
            "orders/documents-0.ndjson",
            "orders/documents-1.ndjson",
            "orders/functions/f.js",
            "orders/procedures/p.1.js",
            "orders/triggers/t.js",
            "people_ all/documents.ndjson",
        ]
    );
    // A second import of the same changes nothing but etags and times.
    let said = import(&there, &first, &[]);
    let last = "0 databases and 0 containers created, 0 scripts changed, 0 documents created and 44 \
                replaced\n";
    assert!(said.err.ends_with(last), "{}", said.err);
    let third = directory.path().join("third");
    succeeds(&export(&there, &third, &["--strip-system"]));
    assert_eq!(files(&third), first_files);
    // It is a seed as well.
    let seed = first.join("export.json");
    let seeded = Server::start(&["--in-memory", "--seed", seed.to_str().unwrap()]);
    let fourth = directory.path().join("fourth");
    succeeds(&export(&seeded, &fourth, &["--strip-system"]));
    assert_eq!(files(&fourth), first_files);
}

#[test]
fn documents_come_out_byte_for_byte() {
    let server = shop();
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    succeeds(&export(&server, &out, &["--container", "orders"]));
    let mut lines: Vec<String> = Vec::new();
    for (name, text) in files(&out) {
        if name.ends_with(".ndjson") {
            lines.extend(text.lines().map(str::to_owned));
        }
    }
    assert_eq!(lines.len(), 42);
    for number in 0..40 {
        let key = format!("[\"customer {number}\"]");
        let path = ["dbs", "shop", "colls", "orders", "docs", &format!("o {number}")];
        let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
        let read = server.send("GET", &path, &headers, "");
        assert!(lines.contains(&read.body), "{}", read.body);
    }
    // The same to standard output, and from there to another account, with the system properties.
    let words = ["export", "--database", "shop", "--container", "orders", "-"];
    let said = server.run(&words);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let mut printed: Vec<&str> = said.out.lines().collect();
    printed.sort_unstable();
    lines.sort_unstable();
    assert_eq!(printed, lines);

    let there = Server::start(&["--in-memory"]);
    there.create_database("other");
    there.create_container(
        "other",
        r#"{"id":"c","partitionKey":{"paths":["/customer"],"kind":"Hash"}}"#,
    );
    let mut command = orrery(&["import", "--database", "other", "--container", "c", "-"]);
    command.env("ORRERY_ENDPOINT", there.endpoint()).stdin(Stdio::piped());
    let mut importing = command.spawn().unwrap();
    importing.stdin.take().unwrap().write_all(said.out.as_bytes()).unwrap();
    let output = importing.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{err}");
    assert_eq!(err, "42 documents created and 0 replaced\n");
    let words = ["export", "--database", "other", "--container", "c", "--strip-system", "-"];
    let (mut copied, mut original) = (there.run(&words).out, String::new());
    let words = ["export", "--database", "shop", "--container", "orders", "--strip-system", "-"];
    original.push_str(&server.run(&words).out);
    let sorted = |text: &mut String| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    assert_eq!(sorted(&mut copied), sorted(&mut original));
}

#[test]
fn parts_and_other_names_can_be_asked_for() {
    let (here, there) = (shop(), Server::start(&["--in-memory"]));
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    succeeds(&export(&here, &out, &[]));
    let options = ["--database", "copy", "--container", "people: all"];
    succeeds(&import(&there, &out, &options));
    assert_eq!(there.rows("copy/people: all", "SELECT VALUE COUNT(1) FROM c"), "2\n");
    there.run(&["query", "copy", "orders", "SELECT * FROM c"]).fails(1, "no container 'orders'");
    import(&there, &out, &["--container", "none"]).fails(2, "no container 'none' to import");
    // A container with another key is not the same container.
    there.create_database("shop");
    let other = r#"{"id":"orders","partitionKey":{"paths":["/x"],"kind":"Hash"}}"#;
    there.create_container("shop", other);
    let said = import(&there, &out, &[]);
    assert!(said.err.contains("with another partition key; delete it"), "{}", said.err);
    assert_eq!(said.code, 1);
}

#[test]
fn what_cannot_be_exported_or_imported_is_told() {
    let server = shop();
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    export(&server, &out, &["--container", "none"])
        .fails(1, "no container 'none' in database 'shop'");
    export(&server, &out, &["--resume"]).fails(2, "there is nothing to resume");
    succeeds(&export(&server, &out, &[]));
    export(&server, &out, &[]).fails(2, "is not empty; name a new folder");
    let nowhere = directory.path().join("x");
    let words = ["export", "--database", "none", nowhere.to_str().unwrap()];
    server.run(&words).fails(1, "there is no database 'none'");
    server.run(&["export", "--database", "shop", "-"]).fails(2, "name it with --container");
    import(&server, &out, &["--resume"]).fails(2, "there is nothing to resume");
    import(&server, &directory.path().join("none"), &[]).fails(2, "none: ");
    let lines = directory.path().join("lines.ndjson");
    fs::write(&lines, "{\"id\":\"1\",\"customer\":\"a\"}\n{\"id\":2}\n").unwrap();
    import(&server, &lines, &[]).fails(2, "name it with --database and --container");
    let place = ["--database", "shop", "--container", "orders"];
    let said = import(&server, &lines, &place);
    assert!(said.err.contains("lines.ndjson:2: a document needs an 'id'"), "{}", said.err);
    assert_eq!(said.code, 1);
    // A document that the server refuses is named too.
    fs::write(&lines, "{\"id\":\"1\",\"customer\":\"a\"}\n{\"id\":\"\",\"customer\":\"a\"}\n")
        .unwrap();
    let said = import(&server, &lines, &place);
    assert!(said.err.contains("lines.ndjson:2: "), "{}", said.err);
    assert_eq!(said.code, 1);
}

/// A way to a server that breaks after so many bytes in one direction.
struct Way {
    port: u16,
    /// Bytes that still go through, from the client and from the server.
    left: Arc<[AtomicI64; 2]>,
}

impl Way {
    fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let left = Arc::new([AtomicI64::new(i64::MAX), AtomicI64::new(i64::MAX)]);
        let (budget, behind) = (left.clone(), server.port);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let server = TcpStream::connect(("127.0.0.1", behind)).unwrap();
                for direction in 0..2 {
                    let (from, to) = match direction {
                        0 => (client.try_clone().unwrap(), server.try_clone().unwrap()),
                        _ => (server.try_clone().unwrap(), client.try_clone().unwrap()),
                    };
                    let budget = budget.clone();
                    std::thread::spawn(move || carry(from, to, &budget[direction]));
                }
            }
        });
        Self { port, left }
    }

    /// Lets so many bytes through; says how many went since the last time.
    fn allow(&self, from_client: i64, from_server: i64) {
        self.left[0].store(from_client, Ordering::SeqCst);
        self.left[1].store(from_server, Ordering::SeqCst);
    }

    /// How many of the bytes that are allowed were not used.
    fn left(&self, direction: usize) -> i64 {
        self.left[direction].load(Ordering::SeqCst)
    }

    fn run(&self, arguments: &[&str]) -> Said {
        let endpoint = format!("http://127.0.0.1:{}/", self.port);
        Said::by(orrery(arguments).env("ORRERY_ENDPOINT", endpoint))
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, left: &AtomicI64) {
    let mut buffer = [0; 8192];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if left.fetch_sub(length as i64, Ordering::SeqCst) < length as i64
            || to.write_all(&buffer[..length]).is_err()
        {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Lines with documents, about a kilobyte each.
fn many(count: usize) -> String {
    let line = |n| {
        format!(r#"{{"id":"{n}","customer":"c{}","filler":"{}"}}"#, n % 50, "x".repeat(900)) + "\n"
    };
    (0..count).map(line).collect()
}

const MB: i64 = 1 << 20;

#[test]
fn an_interrupted_import_and_export_go_on() {
    let server = Server::start(&["--in-memory"]);
    server.create_database("shop");
    server.create_container(
        "shop",
        r#"{"id":"orders","partitionKey":{"paths":["/customer"],"kind":"Hash"}}"#,
    );
    let directory = tempfile::tempdir().unwrap();
    let lines = directory.path().join("lines.ndjson");
    fs::write(&lines, many(4_000)).unwrap();
    let way = Way::to(&server);
    let words = ["import", lines.to_str().unwrap(), "--database", "shop", "--container", "orders"];
    way.allow(2 * MB, 100 * MB);
    let said = way.run(&words);
    assert_eq!(said.code, 1, "{said:?}");
    let count = || server.rows("shop/orders", "SELECT VALUE COUNT(1) FROM c");
    let some: u32 = count().trim().parse().unwrap();
    assert!((500..4_000).contains(&some), "{some}");

    way.allow(100 * MB, 100 * MB);
    let said = way.run(&[&words[..], &["--resume"]].concat());
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(count(), "4000\n");
    let sent = 100 * MB - way.left(0);
    assert!(sent < 3 * MB, "all of it was sent again: {sent}");
    way.run(&[&words[..], &["--resume"]].concat()).fails(2, "nothing to resume");

    let out = directory.path().join("out");
    let words = ["export", "--database", "shop", "--strip-system", out.to_str().unwrap()];
    way.allow(100 * MB, 2 * MB + MB / 2);
    let said = way.run(&words);
    assert_eq!(said.code, 1, "{said:?}");
    // It is not complete, and nobody takes it for that.
    way.allow(100 * MB, 100 * MB);
    way.run(&["import", out.to_str().unwrap()]).fails(2, "is not complete");
    way.run(&words).fails(2, "was interrupted: go on with --resume");
    let documents = out.join("orders/documents.ndjson");
    let so_far = fs::read_to_string(&documents).unwrap().lines().count();
    assert!((1_000..4_000).contains(&so_far), "{so_far}");
    // What was written behind the mark is cut off.
    let mut file = fs::OpenOptions::new().append(true).open(&documents).unwrap();
    file.write_all(b"{\"id\":\"to").unwrap();
    way.allow(100 * MB, 100 * MB);
    let said = way.run(&[&words[..], &["--resume"]].concat());
    assert_eq!(said.code, 0, "{said:?}");
    let read = 100 * MB - way.left(1);
    assert!(read < 4 * MB, "all of it was read again: {read}");
    let text = fs::read_to_string(&documents).unwrap();
    let mut found: Vec<&str> = text.lines().collect();
    found.sort_unstable();
    let all = many(4_000);
    let mut expected: Vec<&str> = all.lines().collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert!(!out.join("export-state.json").exists());
}

/// The ranges that an export has begun with need not be there when it goes on.
#[test]
fn an_export_goes_on_after_its_range_was_split() {
    let server = Server::start(&["--in-memory"]);
    server.create_database("shop");
    let container = r#"{"id":"orders","partitionKey":{"paths":["/customer"],"kind":"Hash"}}"#;
    server.create_container("shop", container);
    let directory = tempfile::tempdir().unwrap();
    let lines = directory.path().join("lines.ndjson");
    fs::write(&lines, many(3_000)).unwrap();
    let place = ["--database", "shop", "--container", "orders"];
    succeeds(&import(&server, &lines, &place));

    let way = Way::to(&server);
    let out = directory.path().join("out");
    let words = ["export", "--database", "shop", "--strip-system", out.to_str().unwrap()];
    way.allow(100 * MB, 3 * MB / 2);
    let said = way.run(&words);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(out.join("orders/documents.ndjson").exists());
    let split = server.run(&[&["range", "split", "0"][..], &place].concat());
    assert_eq!(split.code, 0, "{split:?}");
    way.allow(100 * MB, 100 * MB);
    let said = way.run(&[&words[..], &["--resume"]].concat());
    assert_eq!(said.code, 0, "{said:?}");

    let files = files(&out);
    let documents = files.iter().filter(|(name, _)| name.ends_with(".ndjson"));
    let mut found: Vec<&str> = documents.clone().flat_map(|(_, text)| text.lines()).collect();
    found.sort_unstable();
    let all = many(3_000);
    let mut expected: Vec<&str> = all.lines().collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    // Nothing is left of the range that is gone, and the two are what an import reads.
    assert_eq!(documents.count(), 2, "{:?}", files.keys());
    let there = Server::start(&["--in-memory"]);
    succeeds(&import(&there, &out, &[]));
    assert_eq!(there.rows("shop/orders", "SELECT VALUE COUNT(1) FROM c"), "3000\n");
}
