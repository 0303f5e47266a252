//! `orrery shell` without a terminal: the same statements, read from standard input.

use std::io::Write;
use std::process::Stdio;

use crate::process::{Said, Server, orrery};

impl Server {
    /// Says this to a shell that starts here.
    fn say_at(&self, place: &[&str], input: &str) -> Said {
        let mut command = orrery(&[&["shell"][..], place].concat());
        command.env("ORRERY_ENDPOINT", self.endpoint()).stdin(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = shell.wait_with_output().unwrap();
        Said {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn say(&self, input: &str) -> Said {
        self.say_at(&["shop.orders"], input)
    }
}

#[test]
fn queries_end_with_a_semicolon_or_an_empty_line() {
    let server = Server::with_orders(&["--in-memory"]);
    server.say("SELECT VALUE c.id FROM c WHERE c.id < '3' ORDER BY c.id;").prints("\"1\"\n\"2\"\n");
    let lines = "SELECT VALUE COUNT(1)\n  FROM c\n\nselect value 'a'\n;\n\n;\nSELECT VALUE 'b'";
    server.say(lines).prints("5\n\"a\"\n\"b\"\n");
    let table = "\\table\nSELECT c.id, c.total FROM c WHERE c.customer = 'bob' ORDER BY c.id;";
    server.say(table).prints("id  total\n--  -----\n3      40\n4       7\n");
    server.say("\\table\n\\json\nSELECT VALUE 1;").prints("1\n");
    let said = server.say("explain SELECT * FROM c WHERE c.total = 7;\n");
    assert!(said.out.starts_with("access      "), "{said:?}");
    assert!(said.out.contains("\nindexed     /total/?\n"), "{said:?}");
}

#[test]
fn documents_are_put_shown_and_deleted() {
    let server = Server::with_orders(&["--in-memory"]);
    let said = server.say("get 5 \"ada\"\n");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert!(said.out.starts_with(r#"{"id":"5","customer":"ada","tags":["gift","€"],"_rid":"#));
    server
        .say(
            "put {\"id\":\"a b\",\n\n  \"customer\": null}\nput {\"id\":\"5\",\"customer\":\"ada\"};\n\
             put {\"id\":\"a b\",\n  \"customer\": null}\n\
             SELECT VALUE c.id FROM c WHERE IS_NULL(c.customer);\n\
             delete \"a b\" null\nSELECT VALUE COUNT(1) FROM c\n",
        )
        .fails_after("replaced\ncreated\n\"a b\"\ndeleted\n5\n", &["error: it is not JSON"]);
    let said = server.say("get 5 \"bob\"\ndelete 5 \"bob\"\nget 5\n");
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(
        lines,
        [
            "error: there is no document '5' in the partition [\"bob\"]",
            "error: there is no document '5' in the partition [\"bob\"]",
            "error: give the partition key too, the value of /customer",
        ]
    );
}

#[test]
fn the_key_may_be_left_out_where_it_is_the_id() {
    let server = Server::start(&["--in-memory"]);
    server.create_database("a.b");
    server
        .create_container("a.b", r#"{"id":"c.d","partitionKey":{"paths":["/id"],"kind":"Hash"}}"#);
    server
        .say_at(
            &[],
            "use a.b.c.d\nput {\"id\":\"x\"}\nput {\"id\":\"x\"}\ndelete x\nSELECT VALUE 1 FROM c;",
        )
        .prints("created\nreplaced\ndeleted\n");
}

#[test]
fn places_are_chosen_and_listed() {
    let server = Server::with_orders(&["--in-memory"]);
    server.create_database("other one");
    let container = r#"{"id":"books","partitionKey":{"paths":["/id"],"kind":"Hash"}}"#;
    server.create_container("shop", container);
    let function = r#"{"id":"tax","body":"function (x) { return x / 5; }"}"#;
    let path = ["dbs", "shop", "colls", "orders", "udfs"];
    server.send("POST", &path, &[], function).expect(201);
    let all = "other one\nshop\n";
    server
        .say_at(&[], "ls\nuse shop\nls\nuse orders\nls\nls \"other one\"\nuse\nls")
        .prints(&format!("{all}books\norders\nfunction   tax\n{all}"));
    server
        .say("ls shop\nSELECT VALUE udf.tax(c.total) FROM c WHERE c.id = '3';")
        .prints("books\norders\n8\n");
    let said = server
        .say_at(&[], "use shop.none\nuse none\nSELECT 1;\nuse shop.books\nSELECT VALUE 1 FROM c;");
    assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(
        lines,
        [
            "error: there is no container 'none' in database 'shop'",
            "error: there is no database 'none'; there are other one, shop",
            "error: choose a container first: use DATABASE.CONTAINER",
        ]
    );
    server.say_at(&["none"], "ls").fails(1, "orrery: there is no database 'none'");
}

#[test]
fn procedures_are_called() {
    let server = Server::with_orders(&["--in-memory"]);
    let body = "function () { console.log('ran'); __.response.setBody([].slice.call(arguments)); }";
    let procedure = format!(r#"{{"id":"echo","body":"{body}"}}"#);
    let path = ["dbs", "shop", "colls", "orders", "sprocs"];
    server.send("POST", &path, &[], &procedure).expect(201);
    let said = server.say("call echo \"ada\" 1 [2, {}] \"a b\"\n");
    said.says("[1,[2,{}],\"a b\"]\n", "ran\n");
    let said = server.say("call ecko \"ada\"\ncall echo ada\n");
    assert!(said.err.contains("error: there is no procedure 'ecko'"), "{said:?}");
    assert!(said.err.contains("error: the partition key: it is not JSON"), "{said:?}");
}

#[test]
fn a_mistake_does_not_end_the_shell() {
    let server = Server::with_orders(&["--in-memory"]);
    server
        .say("SELECT * FORM c;\ndrop\nput 5\nSELECT VALUE 1;\nexit\nSELECT VALUE 2;\n")
        .fails_after(
            "1\n",
            &["^^^^", "error: 'drop' is no command; \\? lists them", "JSON object"],
        );
    let said = server.say("\\?");
    assert!(said.out.contains("use DATABASE[.CONTAINER]"), "{said:?}");
    server.say("").prints("");
    let mut command = orrery(&["shell", "--endpoint", "http://127.0.0.1:1/"]);
    Said::by(&mut command).fails(1, "cannot connect");
}
