//! The documents of a page, cut out of the answer as the server wrote them.
//!
//! Reading a document and writing it again could change its spelling. So the text of each is taken as
//! it is. This does not check that the text is JSON in every detail: it looks at strings and brackets,
//! which is enough to find where a document ends.

/// The texts of the elements of the array that a member of an object is. Nothing if there is none, or
/// what is around it is not JSON.
pub(crate) fn elements<'a>(body: &'a [u8], member: &str) -> Option<Vec<&'a [u8]>> {
    let mut scanner = Scanner { body, at: 0 };
    scanner.expect(b'{')?;
    loop {
        let name = scanner.value()?;
        scanner.expect(b':')?;
        if name.strip_prefix(b"\"")?.strip_suffix(b"\"")? == member.as_bytes() {
            return scanner.array();
        }
        scanner.value()?;
        scanner.expect(b',')?;
    }
}

struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// The next byte that is not white space; it stays where it is.
    fn peek(&mut self) -> Option<u8> {
        while self.body.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.body.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn array(&mut self) -> Option<Vec<&'a [u8]>> {
        self.expect(b'[')?;
        let mut elements = Vec::new();
        if self.peek()? == b']' {
            return Some(elements);
        }
        loop {
            elements.push(self.value()?);
            match self.peek()? {
                b',' => self.at += 1,
                b']' => return Some(elements),
                _ => return None,
            }
        }
    }

    /// The text of a value.
    fn value(&mut self) -> Option<&'a [u8]> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => self.string()?,
            b'{' | b'[' => self.nested()?,
            _ => {
                let is_inside = |byte: &u8| !byte.is_ascii_whitespace() && !b",:]}".contains(byte);
                while self.body.get(self.at).is_some_and(is_inside) {
                    self.at += 1;
                }
            }
        }
        (self.at > start).then(|| &self.body[start..self.at])
    }

    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            match self.body.get(self.at)? {
                b'\\' => self.at += 2,
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                _ => self.at += 1,
            }
        }
    }

    fn nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.body.get(self.at)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: Option<&[&str]>) {
        let found = elements(body.as_bytes(), "Documents");
        let expected: Option<Vec<&[u8]>> =
            expected.map(|texts| texts.iter().map(|text| text.as_bytes()).collect());
        assert_eq!(found, expected, "{body}");
    }

    #[test]
    fn documents_are_cut_out_as_they_are() {
        check(r#"{"_rid":"x","Documents":[],"_count":0}"#, Some(&[]));
        check(r#"{"Documents":[{"a":1.50}]}"#, Some(&[r#"{"a":1.50}"#]));
        check(
            r#" { "_rid" : "D\"[" , "x":[{"Documents":[1]}], "Documents" : [ {"a":"]},{\\\""} ,
               {"b":[{}, [ ]]},7 , "t" ] }"#,
            Some(&[r#"{"a":"]},{\\\""}"#, r#"{"b":[{}, [ ]]}"#, "7", r#""t""#]),
        );
    }

    #[test]
    fn what_has_no_documents_is_told() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"_rid":"x"}"#,
            r#"{"Documents":1}"#,
            r#"{"Documents":[1"#,
            r#"{"Documents":[1 2]}"#,
            r#"{"Documents":[,]}"#,
            r#"{"Documents":[{]"#,
            r#"{"Documents":["\"#,
            r#"{"Documents" [1]}"#,
        ] {
            check(body, None);
        }
    }
}
