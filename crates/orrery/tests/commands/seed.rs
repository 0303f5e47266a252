//! `orrery serve --seed`: what the server starts with, and that it keeps its hands off what is there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Said, Server, orrery};

const SEED: &str = r#"{
  "databases": [
    {
      "id": "shop",
      "containers": [
        {
          "id": "orders",
          "partitionKey": "/customer",
          "indexingPolicy": {"excludedPaths": [{"path": "/note/?"}], "includedPaths": [{"path": "/*"}]},
          "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/number"]}]},
          "throughput": 20000,
          "procedures": [{"id": "hello", "body": "function () { __.response.setBody('hello'); }"}],
          "functions": [{"id": "tax", "file": "scripts/tax.js"}],
          "documents": [
            {"id": "1", "customer": "ada", "number": 1, "total": 12.50},
            "orders.ndjson"
          ]
        },
        {"id": "books", "partitionKey": ["/publisher", "/authorId"], "scripts": "bookshop"}
      ]
    },
    {"id": "empty", "throughput": {"autoscale": 4000}}
  ]
}"#;

fn folder() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("seed.json", SEED);
    write("scripts/tax.js", "function (total) { return total / 5; }");
    write("bookshop/triggers/t.js", "// trigger: post all\nfunction () {}");
    let line =
        |n: u32| format!(r#"{{"id":"n{n}","customer":"customer {}","number":{n}}}"#, n % 7) + "\n";
    write("orders.ndjson", &(10..310).map(line).collect::<String>());
    directory
}

fn seed_in(directory: &Path) -> String {
    directory.join("seed.json").to_str().unwrap().to_owned()
}

/// Starts a server that is not to get to its ready line.
fn refused(seed: &Path, options: &[&str]) -> Said {
    let mut command = orrery(&["serve", "--port", "0", "--seed", seed.to_str().unwrap()]);
    Said::by(command.args(options))
}

#[test]
fn a_server_starts_with_its_seed() {
    let folder = folder();
    let server = Server::start(&["--in-memory", "--seed", &seed_in(folder.path())]);
    let count = "SELECT VALUE COUNT(1) FROM c";
    assert_eq!(server.rows("shop/orders", count), "301\n");
    let one = "SELECT VALUE {t: c.total, x: udf.tax(c.total)} FROM c WHERE c.id = '1'";
    assert_eq!(server.rows("shop/orders", one), "{\"t\":12.50,\"x\":2.5}\n");
    let call = ["script", "call", "hello", "--partition-key", "1"];
    let place = ["--database", "shop", "--container", "orders"];
    server.run(&[&call[..], &place].concat()).prints("\"hello\"\n");
    let place = ["--database", "shop", "--container", "books"];
    let list = server.run(&[&["script", "list"][..], &place].concat());
    list.prints("trigger    t  post all\n");
    let ranges = server.send("GET", &["dbs", "shop", "colls", "orders", "pkranges"], &[], "");
    assert_eq!(ranges.expect(200).get("_count").unwrap().as_i64(), Some(2));
    let books = server.send("GET", &["dbs", "shop", "colls", "books"], &[], "").expect(200);
    let key = books.get("partitionKey").unwrap().to_text();
    assert!(key.contains(r#""paths":["/publisher","/authorId"],"kind":"MultiHash""#), "{key}");
    let offers = server.send("GET", &["offers"], &[], "").expect(200).to_text();
    assert!(offers.contains(r#""maxThroughput":4000"#), "{offers}");
}

#[test]
fn what_is_there_is_left_alone() {
    let folder = folder();
    let data = folder.path().join("data");
    let arguments =
        ["--data", data.to_str().unwrap(), "--seed", &seed_in(folder.path())].map(str::to_owned);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let all = "SELECT * FROM c ORDER BY c.id";
    let server = Server::start(&arguments);
    let changed = r#"{"id":"1","customer":"ada","number":1,"total":99}"#;
    let upsert = [("x-ms-documentdb-is-upsert", "True")];
    server.try_create("shop/orders", "[\"ada\"]", &upsert, changed).expect(200);
    let before = server.rows("shop/orders", all);
    assert_eq!(before.lines().count(), 301);
    server.stop();

    let server = Server::start(&arguments);
    assert_eq!(server.rows("shop/orders", all), before);
    server.stop();

    // What the seed has more is added, also to containers that are there.
    let path = folder.path().join("orders.ndjson");
    let more = fs::read_to_string(&path).unwrap() + r#"{"id":"more","customer":"ada"}"#;
    fs::write(&path, more).unwrap();
    let server = Server::start(&arguments);
    let after = server.rows("shop/orders", all);
    assert_eq!(after.lines().count(), 302);
    let first: Vec<&str> = before.lines().collect();
    assert!(first.iter().all(|line| after.contains(line)));
}

#[test]
fn a_bad_seed_stops_the_start_with_its_place() {
    let folder = folder();
    let seed: PathBuf = folder.path().join("seed.json");
    let check = |text: &str, part: &str| {
        fs::write(&seed, text).unwrap();
        refused(&seed, &["--in-memory"]).fails(1, part);
    };
    check("{\n \"databases\": [\n}", "seed.json:3:1: ");
    check(&SEED.replace("\"documents\"", "\"docs\""), "containers[0]: 'docs' is not known");
    let key = "databases[0].containers[0]: the server refuses: ";
    check(&SEED.replace("\"/customer\"", "\"customer\""), key);
    check(&SEED.replace("20000", "20001"), key);
    check(&SEED.replace("\"1\"", "1"), "databases[0].containers[0].documents[0]: a document needs");
    check(&SEED.replace("orders.ndjson", "none.ndjson"), "documents[1]: there is no file ");
    let at = "containers[0]: procedure hello: the server refuses: ";
    check(&SEED.replace("function () { __.response.setBody('hello'); }", ""), at);
    refused(&folder.path().join("none.json"), &["--in-memory"]).fails(1, "none.json: ");
    fs::write(&seed, SEED).unwrap();
    let lines = "{\"id\":\"a\",\"customer\":\"x\"}\n\n[]\n";
    fs::write(folder.path().join("orders.ndjson"), lines).unwrap();
    refused(&seed, &["--in-memory"]).fails(1, "orders.ndjson:3: a document is a JSON object");
    fs::write(folder.path().join("orders.ndjson"), "{\"id\":\"a\" \"x\"}").unwrap();
    refused(&seed, &["--in-memory"]).fails(1, "orders.ndjson:1: ");
}

/// A document that is in the way by its unique values is not the document of the seed.
#[test]
fn a_conflict_of_unique_keys_is_no_document_that_is_there() {
    let folder = folder();
    let line = "{\"id\":\"other\",\"customer\":\"ada\",\"number\":1}\n";
    fs::write(folder.path().join("orders.ndjson"), line).unwrap();
    let seed = folder.path().join("seed.json");
    refused(&seed, &["--in-memory"]).fails(1, "orders.ndjson:1: another document of its partition");
}

/// A start that is refused leaves the directory in order, and the next one goes on.
#[test]
fn a_seed_that_failed_is_mended_and_sown_again() {
    let folder = folder();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let path = folder.path().join("orders.ndjson");
    let good = fs::read_to_string(&path).unwrap();
    fs::write(&path, good.clone() + "{").unwrap();
    let seed = folder.path().join("seed.json");
    refused(&seed, &["--data", data]).fails(1, "orders.ndjson:301: ");
    fs::write(&path, good).unwrap();
    let server = Server::start(&["--data", data, "--seed", seed.to_str().unwrap()]);
    assert_eq!(server.rows("shop/orders", "SELECT VALUE COUNT(1) FROM c"), "301\n");
}
