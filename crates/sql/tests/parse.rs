//! What texts parse to, and which are refused, where and how.

use sql::{HEIGHT_MAX, parse, parse_condition};

#[track_caller]
fn check(text: &str, printed: &str) {
    match parse(text) {
        Ok(query) => {
            assert_eq!(query.to_string(), printed);
            assert_eq!(parse(printed).as_ref(), Ok(&query), "printed form of {text}");
        }
        Err(error) => panic!("{text}: {error}"),
    }
}

/// The expected form is `code start..end message`.
#[track_caller]
fn refuse(text: &str, expected: &str) {
    match parse(text) {
        Ok(query) => panic!("{text} was read as {query}"),
        Err(error) => {
            let got = format!("{} {}..{} {}", error.code, error.start, error.end, error.message);
            assert_eq!(got, expected);
        }
    }
}

#[test]
fn precedence_follows_the_table() {
    check("SELECT VALUE NOT c.x = 5", "SELECT VALUE ((NOT c.x) = 5)");
    check("SELECT VALUE NOT c.x IN (1)", "SELECT VALUE ((NOT c.x) IN (1))");
    check("SELECT VALUE 1 | 2 + 3", "SELECT VALUE ((1 | 2) + 3)");
    check("SELECT VALUE a < b < c", "SELECT VALUE ((a < b) < c)");
    check("SELECT VALUE 1 + 2 ?? 3", "SELECT VALUE ((1 + 2) ?? 3)");
    check("SELECT VALUE a ?? b ?? c", "SELECT VALUE (a ?? (b ?? c))");
    check("SELECT VALUE a ? b : c ? d : e", "SELECT VALUE (a ? b : (c ? d : e))");
    check("SELECT VALUE a || b = c", "SELECT VALUE ((a || b) = c)");
    check("SELECT VALUE 1 = 2 & 3 != 4", "SELECT VALUE ((1 = (2 & 3)) != 4)");
    check("SELECT VALUE a OR b AND c", "SELECT VALUE (a OR (b AND c))");
    check("SELECT VALUE -c.a.b", "SELECT VALUE (- c.a.b)");
    check("SELECT VALUE a AND NOT b", "SELECT VALUE (a AND (NOT b))");
}

#[test]
fn between_may_stand_beside_logic() {
    check(
        "SELECT VALUE b = 3 AND a BETWEEN 1 AND 2 AND c",
        "SELECT VALUE (((b = 3) AND (a BETWEEN 1 AND 2)) AND c)",
    );
    refuse(
        "SELECT VALUE 1 IN (1) IN (2)",
        "SC1001 22..24 Syntax error, incorrect syntax near 'IN'.",
    );
}

#[test]
fn literals_keep_their_value() {
    check("SELECT VALUE 0x1F", "SELECT VALUE 31");
    check("SELECT VALUE [.5, 1., 2.5E-2]", "SELECT VALUE [0.5, 1, 0.025]");
    check("SELECT VALUE -9223372036854775808", "SELECT VALUE -9223372036854775808");
    check("SELECT VALUE 9223372036854775807", "SELECT VALUE 9223372036854775807");
    check("SELECT VALUE 1 -2", "SELECT VALUE (1 - 2)");
    check("SELECT VALUE - 2", "SELECT VALUE (- 2)");
    check("SELECT VALUE -1[0]", "SELECT VALUE (- (1)[0])");
    check(r"SELECT VALUE 'a\'b\u00e9\ud83d\ude00\/'", r#"SELECT VALUE "a'bé😀/""#);
    check("SELECT VALUE 'a\"b'", r#"SELECT VALUE "a\"b""#);
    check("SELECT TRUE, Null", "SELECT true, null");
}

/// `OFFSET` and `LIMIT` take no exponent, which is how a large number would be written otherwise.
#[test]
fn counts_beyond_all_integers_are_printed_as_they_are_read() {
    for count in ["9223372036854775807", "18446744073709551616", &format!("1{}", "0".repeat(22))] {
        let text = format!("SELECT * FROM c OFFSET {count} LIMIT {count}");
        check(&text, &text);
    }
    check("SELECT TOP 1e30 * FROM c", "SELECT TOP 1e+30 * FROM c");
}

#[test]
fn comments_and_layout_are_skipped() {
    check("select -- all\n * /* of\nit */ from c", "SELECT * FROM c");
    refuse("SELECT 1 /* open", "SC1010 9..16 Syntax error, invalid token '/* open'.");
}

#[test]
fn clauses_come_in_order() {
    check(
        "SELECT DISTINCT TOP @n c.a x, c.b AS 'y z' FROM root c JOIN t IN c.tags \
         JOIN (SELECT VALUE 1) s WHERE t = 1 GROUP BY c.a, c.b ORDER BY c.a DESC, c.b \
         OFFSET 1 LIMIT @l",
        "SELECT DISTINCT TOP @n c.a AS x, c.b AS \"y z\" FROM root AS c JOIN t IN c.tags \
         JOIN (SELECT VALUE 1) AS s WHERE (t = 1) GROUP BY c.a, c.b ORDER BY c.a DESC, c.b \
         OFFSET 1 LIMIT @l",
    );
    refuse(
        "SELECT * FROM c ORDER BY c.a WHERE true",
        "SC1001 29..34 Syntax error, incorrect syntax near 'WHERE'.",
    );
    check(
        "SELECT VALUE kv FROM c JOIN kv IN OBJECTTOARRAY(c.x)",
        "SELECT VALUE kv FROM c JOIN kv IN OBJECTTOARRAY(c.x)",
    );
    check(
        "SELECT VALUE (LET x = 1 + c.a IN x * 2) FROM c",
        "SELECT VALUE (LET x = (1 + c.a) IN (x * 2)) FROM c",
    );
    check("SELECT VALUE LEFT (c.a, 1) FROM c", "SELECT VALUE LEFT(c.a, 1) FROM c");
    check("SELECT c.rank FROM c ORDER BY rank", "SELECT c.rank FROM c ORDER BY rank");
}

#[test]
fn reserved_words_are_no_names() {
    refuse("SELECT c.value FROM c", "SC1001 9..14 Syntax error, incorrect syntax near 'value'.");
    refuse("SELECT * FROM c;", "SC1010 15..16 Syntax error, invalid token ';'.");
    check("SELECT c[\"value\"] FROM c", "SELECT c[\"value\"] FROM c");
}

#[test]
fn errors_tell_where() {
    refuse("SELECT * FROM c WHERE", "SC1001 16..21 Syntax error, incorrect syntax near 'WHERE'.");
    refuse("", "SC1001 0..0 Syntax error, incorrect syntax near ''.");
    refuse("SELECT 'abc", "SC1010 7..11 Syntax error, invalid token ''abc'.");
    refuse("SELECT '\\q'", "SC1010 7..11 Syntax error, invalid token ''\\q''.");
    refuse("SELECT '\\ud800'", "SC1010 7..15 Syntax error, invalid token ''\\ud800''.");
    refuse("SELECT 1e999", "SC1010 7..12 Syntax error, invalid token '1e999'.");
    // Positions count UTF-16 units, as clients do: the face is two.
    refuse("SELECT '😀' FROM", "SC1001 12..16 Syntax error, incorrect syntax near 'FROM'.");
    refuse("SELECT TOP -1 * FROM c", "SC1001 11..12 Syntax error, incorrect syntax near '-'.");
    refuse(
        "SELECT * FROM c OFFSET 1.5 LIMIT 1",
        "SC1001 23..26 Syntax error, incorrect syntax near '1.5'.",
    );
}

#[test]
fn conditions_are_a_source_and_a_predicate() {
    let condition = parse_condition("from c where c.a = 1 AND c.b > 2").unwrap();
    assert_eq!(condition.to_string(), "FROM c WHERE ((c.a = 1) AND (c.b > 2))");
    assert_eq!(parse_condition("c.a = 1").unwrap_err().code, "SC1001");
    assert_eq!(parse_condition("FROM c WHERE c.a = 1 ORDER BY c.a").unwrap_err().code, "SC1001");
}

/// Hostile texts give an answer, not a dead process; a thread with a small stack proves it.
#[test]
fn deep_and_long_texts_are_bounded() {
    let run = || {
        let refused = |text: String| {
            let error = parse(&text).unwrap_err();
            assert_eq!(error.code, "SC1001", "{}", error.message);
        };
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("{a:", "}"),
            ("- ", ""),
            ("NOT ", ""),
            ("ABS(", ")"),
            ("(SELECT VALUE ", ")"),
            ("1 ?? ", ""),
            ("1 ? ", " : 2"),
            ("c[", "]"),
        ] {
            refused(format!("SELECT VALUE {}1{}", open.repeat(10_000), close.repeat(10_000)));
            refused(format!("SELECT VALUE {}", open.repeat(10_000)));
        }
        refused(format!("SELECT VALUE 1{}", " + 1".repeat(100_000)));
        refused(format!("SELECT VALUE c{}", ".a".repeat(100_000)));
        refused(format!("SELECT {}", " ".repeat(600_000)));
        refused(format!("SELECT * FROM {}", "(SELECT * FROM ".repeat(10_000)));

        // Long conditions of programs are wide, not deep.
        let wide = format!("SELECT VALUE c.a = 0{}", " OR c.a = 1".repeat(20_000));
        let query = parse(&wide).unwrap();
        assert_eq!(parse(&query.to_string()).as_ref(), Ok(&query));

        // The highest tree that is read can be printed, read again, copied and dropped.
        let highest = format!("SELECT VALUE {}1", "- ".repeat(HEIGHT_MAX - 1));
        let query = parse(&highest).unwrap();
        assert_eq!(parse(&query.to_string()).as_ref(), Ok(&query.clone()));
    };
    let thread = std::thread::Builder::new().stack_size(1536 * 1024).spawn(run);
    thread.unwrap().join().unwrap();
}
