//! `orrery range`: a container of a real server is cut anew, and nobody loses anything.

use crate::process::{Said, Server};

const PLACE: [&str; 4] = ["--database", "d", "--container", "c"];

impl Server {
    fn range(&self, words: &[&str]) -> Said {
        self.run(&[&["range"][..], words, &PLACE].concat())
    }
}

fn ids(said: &Said) -> Vec<&str> {
    said.out.lines().map(|line| line.split_whitespace().next().unwrap_or_default()).collect()
}

#[test]
fn ranges_are_listed_split_and_merged() {
    let server = Server::start(&["--in-memory"]);
    server.create_database("d");
    server.create_container("d", r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash"}}"#);
    for number in 0..20 {
        let document = format!(r#"{{"id":"{number}","pk":"{number}"}}"#);
        server.create("d/c", &format!(r#"["{number}"]"#), &document);
    }
    let all = |server: &Server| server.rows("d/c", "SELECT VALUE c.id FROM c ORDER BY c.id");
    let before = all(&server);
    assert_eq!(ids(&server.range(&["list"])), ["0"]);

    let split = server.range(&["split", "0"]);
    assert_eq!((split.code, split.out.as_str()), (0, "1\n2\n"), "{split:?}");
    assert_eq!(all(&server), before);
    let listed = server.range(&["list"]);
    assert_eq!(ids(&listed), ["1", "2"]);
    assert!(listed.out.contains("1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"), "{listed:?}");
    assert!(listed.out.lines().all(|line| line.ends_with("from 0")), "{listed:?}");

    let split = server.range(&["split", "2", "--at", "30"]);
    assert_eq!((split.code, split.out.as_str()), (0, "3\n4\n"), "{split:?}");
    let merged = server.range(&["merge", "3", "1"]);
    assert_eq!((merged.code, merged.out.as_str()), (0, "5\n"), "{merged:?}");
    assert_eq!(all(&server), before);

    for (words, told) in [
        (&["split", "0"][..], "does not exist"),
        (&["split", "5", "--at", "3F"], "cannot be split at '3F'"),
        (&["split", "5", "--at", "x"], "hexadecimal"),
        (&["merge", "5", "5"], "do not lie side by side"),
    ] {
        let said = server.range(words);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains(told), "{words:?}: {said:?}");
    }
}
