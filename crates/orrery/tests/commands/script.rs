//! `orrery script` with the example of the repository: the folder becomes procedures, triggers and
//! functions of a real server, and they do what their comments say.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Said, Server};

const PLACE: [&str; 4] = ["--database", "shop", "--container", "books"];

fn bookshop() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bookshop")
}

/// A server with the author Ada and one whose document is broken.
fn shop() -> Server {
    let server = Server::start(&["--in-memory"]);
    server.create_database("shop");
    let container = r#"{"id":"books","partitionKey":{"paths":["/authorId"],"kind":"Hash"}}"#;
    server.create_container("shop", container);
    let ada = r#"{"id":"ada","authorId":"ada","type":"author","firstName":"Ada","lastName":"Lovelace","countOfBooks":0}"#;
    server.create("shop/books", "[\"ada\"]", ada);
    server.create("shop/books", "[\"bob\"]", r#"{"id":"bob","authorId":"bob","type":"author"}"#);
    server
}

impl Server {
    fn push(&self, directory: &Path, options: &[&str]) -> Said {
        let words = ["script", "push", directory.to_str().unwrap()];
        self.run(&[&words[..], &PLACE, options].concat())
    }

    fn call(&self, name: &str, key: &str, rest: &[&str]) -> Said {
        let words = ["script", "call", name, "--partition-key", key];
        self.run(&[&words[..], &PLACE, rest].concat())
    }

    fn list(&self) -> String {
        let said = self.run(&[&["script", "list"][..], &PLACE].concat());
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
        said.out
    }

    fn count_of_books(&self, author: &str) -> String {
        let count = format!("SELECT VALUE c.countOfBooks FROM c WHERE c.id = '{author}'");
        self.rows("shop/books", &count)
    }

    fn books(&self) -> String {
        self.rows("shop/books", "SELECT VALUE c.id FROM c WHERE c.type = 'book' ORDER BY c.id")
    }
}

const ALL: &str = "procedure  publishBook\n\
                   trigger    authorExists  pre create\n\
                   trigger    countBook  post create\n\
                   function   initials\n";

#[test]
fn the_example_is_pushed_and_called() {
    let server = shop();
    server.push(&bookshop(), &[]).says(
        "created procedure publishBook\ncreated trigger authorExists\n\
         created trigger countBook\ncreated function initials\n",
        "4 scripts, 4 changed\n",
    );
    assert_eq!(server.list(), ALL);

    let book = r#"{"id":"notes","authorId":"ada","name":"Notes"}"#;
    let said = server.call("publishBook", "\"ada\"", &[book, "--log"]);
    assert_eq!((said.code, said.err.as_str()), (0, "created notes\ncounted 1\n"), "{said:?}");
    assert!(
        said.out.starts_with(r#"{"type":"book","id":"notes","authorId":"ada","name":"Notes","#)
    );
    assert!(said.out.ends_with("}\n"), "{}", said.out);
    assert_eq!(
        (server.books(), server.count_of_books("ada")),
        ("\"notes\"\n".into(), "1\n".into())
    );
    let initials = "SELECT VALUE udf.initials(c.firstName, c.lastName) FROM c WHERE c.id = 'ada'";
    assert_eq!(server.rows("shop/books", initials), "\"AL\"\n");
}

/// The book is created before the author turns out to be broken; nothing of it is left.
#[test]
fn a_failure_in_the_middle_leaves_nothing() {
    let server = shop();
    server.push(&bookshop(), &[]);
    let book = r#"{"id":"notes","authorId":"bob"}"#;
    server.call("publishBook", "\"bob\"", &[book]).fails(1, "the author bob has no count of books");
    assert_eq!((server.books(), server.count_of_books("bob")), (String::new(), String::new()));
    let book = r#"{"id":"notes","authorId":"zoe"}"#;
    server.call("publishBook", "\"zoe\"", &[book]).fails(1, "there is no author zoe");
    // The author's own document is in the way of the book.
    let book = r#"{"id":"ada","authorId":"ada"}"#;
    server.call("publishBook", "\"ada\"", &[book]).fails(1, "orrery: the server refuses: ");
    assert_eq!((server.books(), server.count_of_books("ada")), (String::new(), "0\n".into()));
}

#[test]
fn the_triggers_of_the_example_guard_and_count() {
    let server = shop();
    server.push(&bookshop(), &[]);
    let both = [
        ("x-ms-documentdb-pre-trigger-include", "authorExists"),
        ("x-ms-documentdb-post-trigger-include", "countBook"),
    ];
    let book = r#"{"id":"notes","authorId":"ada","type":"book"}"#;
    server.try_create("shop/books", "[\"ada\"]", &both, book).expect(201);
    assert_eq!(
        (server.books(), server.count_of_books("ada")),
        ("\"notes\"\n".into(), "1\n".into())
    );
    let stray = r#"{"id":"stray","authorId":"zoe","type":"book"}"#;
    let refused = server.try_create("shop/books", "[\"zoe\"]", &both, stray);
    assert!(refused.body.contains("there is no author zoe"), "{}", refused.body);
    refused.expect(400);
    assert_eq!(server.books(), "\"notes\"\n");
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

#[test]
fn what_is_unchanged_stays_and_what_is_not_in_the_folder_goes_only_when_asked() {
    let server = shop();
    server.push(&bookshop(), &[]);
    let all = "unchanged procedure publishBook\nunchanged trigger authorExists\n\
               unchanged trigger countBook\nunchanged function initials\n";
    server.push(&bookshop(), &["--prune"]).says(all, "4 scripts, nothing to change\n");

    let other = folder(&[
        ("procedures/hello.js", "function () {}"),
        ("functions/initials.js", "function () { return 'x'; }"),
        ("triggers/countBook.js", "// trigger: post delete\nfunction () {}"),
    ]);
    let planned = "would create procedure hello\nwould replace trigger countBook\n\
                   would replace function initials\nwould delete procedure publishBook\n\
                   would delete trigger authorExists\n";
    let options = ["--prune", "--dry-run"];
    server.push(other.path(), &options).says(planned, "5 scripts, 5 would change\n");
    assert_eq!(server.list(), ALL, "a dry run does nothing");

    server.push(other.path(), &[]).says(
        "created procedure hello\nreplaced trigger countBook\nreplaced function initials\n",
        "3 scripts, 3 changed\n",
    );
    let both = ALL.replace("procedure  p", "procedure  hello\nprocedure  p");
    assert_eq!(server.list(), both.replace("post create", "post delete"));

    server.push(other.path(), &["--prune"]).says(
        "unchanged procedure hello\nunchanged trigger countBook\nunchanged function initials\n\
         deleted procedure publishBook\ndeleted trigger authorExists\n",
        "5 scripts, 2 changed\n",
    );
    let left = "procedure  hello\ntrigger    countBook  post delete\nfunction   initials\n";
    assert_eq!(server.list(), left);
}

#[test]
fn what_cannot_be_pushed_or_called_is_told() {
    let server = shop();
    server.push(Path::new("no-such-folder"), &[]).fails(2, "no-such-folder is not a folder");
    server.push(folder(&[]).path(), &["--prune"]).fails(2, "there are no scripts in");
    let stray = folder(&[("publish.js", "function () {}")]);
    server.push(stray.path(), &[]).fails(2, "publish.js is not in one of the folders");
    let silent = folder(&[("triggers/t.js", "function () {}")]);
    server.push(silent.path(), &[]).fails(2, "'// trigger: pre create'");
    let empty = folder(&[("procedures/empty.js", "")]);
    server.push(empty.path(), &[]).fails(1, "procedure empty: the server refuses: ");

    let nowhere = ["--database", "shop", "--container", "bokos"];
    let push = ["script", "push", bookshop().to_str().unwrap()].map(str::to_owned);
    let push: Vec<&str> = push.iter().map(String::as_str).chain(nowhere).collect();
    server.run(&push).fails(1, "there is no container 'bokos' in database 'shop'");
    server.call("publish", "\"ada\"", &[]).fails(1, "no procedure 'publish'");
    server.call("publish", "ada", &[]).fails(2, "a string needs its quotes");
    server.call("publish", "\"ada\"", &["{"]).fails(2, "it is not JSON");
    server.push(&bookshop(), &[]);
    server.call("publish", "\"ada\"", &[]).fails(1, "; it has publishBook");
}

#[test]
fn procedures_get_their_arguments_and_print_what_they_return() {
    let server = shop();
    let scripts = folder(&[
        ("procedures/echo.js", "function () { __.response.setBody([].slice.call(arguments)); }"),
        ("procedures/nothing.js", "function () { console.log('ö'); }"),
    ]);
    server.push(scripts.path(), &[]);
    server.call("echo", "1", &["-1", "\"a\"", "[{}]"]).prints("[-1,\"a\",[{}]]\n");
    server.call("nothing", "null", &[]).prints("");
    server.call("nothing", "null", &["--log"]).says("", "ö\n");
}
