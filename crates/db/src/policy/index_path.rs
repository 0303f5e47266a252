//! Paths of the indexing policy: `/a/b/?`, `/"first name"/*`, `/items/[]/price/?`,
//! `/items/[]/{name, size/width}/?`.
//!
//! A path is a list of segments and a terminator: `?` means the scalar at this node, `*` the node
//! and everything below it. A tuple path ends in braces that name several scalars of one array
//! element, indexed together. Composite indexes write their paths without a terminator.

use value::DEPTH_MAX;

use super::PolicyError;

/// One step of an index path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// A property of an object.
    Property(String),
    /// Any element of an array, written `[]`.
    AnyElement,
    /// The element of an array at this offset, written `[1]`; only before a tuple.
    Element(u32),
}

/// How much of the node at the end of a path is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terminator {
    /// `/?`: the node itself, when it is a scalar.
    Scalar,
    /// `/*`: the node and everything below it.
    Subtree,
}

/// A path that includes or excludes. The root, `/*`, has no segments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexPath {
    /// The steps from the root of the document.
    pub segments: Vec<Segment>,
    /// The members of a tuple, each a list of property names; empty for an ordinary path.
    pub tuple: Vec<Vec<String>>,
    /// Whether the node or the whole subtree is meant.
    pub terminator: Terminator,
}

impl IndexPath {
    /// Reads a path that must end in a terminator.
    pub(super) fn parse(text: &str) -> Result<IndexPath, PolicyError> {
        // Definitions older than the terminators write the root as a lone slash.
        if text == "/" {
            let terminator = Terminator::Subtree;
            return Ok(IndexPath { segments: Vec::new(), tuple: Vec::new(), terminator });
        }
        Reader::new(text).terminated().map_err(|position| refusal(text, position))
    }

    /// Whether this is `/*`.
    pub fn is_root(&self) -> bool {
        self.segments.is_empty() && self.tuple.is_empty()
    }
}

/// Reads the path of a composite index, which has no terminator.
pub(super) fn parse_unterminated(text: &str) -> Result<Vec<Segment>, PolicyError> {
    Reader::new(text).unterminated().map_err(|position| refusal(text, position))
}

fn refusal(text: &str, position: usize) -> PolicyError {
    PolicyError::new(format!(
        "The indexing path '{text}' could not be accepted, failed near position '{position}'. \
         Please ensure that the path is a valid path. Common errors include invalid characters or \
         absence of quotes around labels."
    ))
}

/// Walks over the characters of a path. Every error is the position at which it cannot go on.
struct Reader {
    characters: Vec<char>,
    position: usize,
}

impl Reader {
    fn new(text: &str) -> Reader {
        Reader { characters: text.chars().collect(), position: 0 }
    }

    fn terminated(mut self) -> Result<IndexPath, usize> {
        let mut segments = Vec::new();
        let mut tuple = Vec::new();
        let mut fixed_element_at = None;
        let terminator = loop {
            self.expect('/')?;
            match self.peek() {
                Some('*') if tuple.is_empty() => break Terminator::Subtree,
                Some('?') if !segments.is_empty() => break Terminator::Scalar,
                Some('{') if tuple_may_follow(&segments) && tuple.is_empty() => {
                    tuple = self.tuple()?;
                }
                _ if !tuple.is_empty() => return Err(self.position),
                _ => {
                    let start = self.position;
                    let segment = self.segment()?;
                    if matches!(segment, Segment::Element(_)) {
                        fixed_element_at.get_or_insert(start);
                    }
                    segments.push(segment);
                }
            }
            self.refuse_too_deep(&segments)?;
        };
        self.position += 1;
        self.expect_end()?;
        match fixed_element_at {
            Some(position) if tuple.is_empty() => Err(position),
            _ => Ok(IndexPath { segments, tuple, terminator }),
        }
    }

    fn unterminated(mut self) -> Result<Vec<Segment>, usize> {
        let mut segments = Vec::new();
        while self.position < self.characters.len() || segments.is_empty() {
            self.expect('/')?;
            let start = self.position;
            let segment = self.segment()?;
            if matches!(segment, Segment::Element(_)) {
                return Err(start);
            }
            segments.push(segment);
            self.refuse_too_deep(&segments)?;
        }
        Ok(segments)
    }

    /// A path deeper than any document is a mistake, and an unbounded one would make the tree of
    /// rules as deep as the client likes.
    fn refuse_too_deep(&self, segments: &[Segment]) -> Result<(), usize> {
        if segments.len() > DEPTH_MAX { Err(self.position) } else { Ok(()) }
    }

    fn segment(&mut self) -> Result<Segment, usize> {
        match self.peek() {
            Some('[') => self.element(),
            _ => self.name().map(Segment::Property),
        }
    }

    fn element(&mut self) -> Result<Segment, usize> {
        self.expect('[')?;
        let start = self.position;
        while self.peek().is_some_and(|character| character.is_ascii_digit()) {
            self.position += 1;
        }
        let digits: String = self.characters[start..self.position].iter().collect();
        self.expect(']')?;
        if digits.is_empty() {
            return Ok(Segment::AnyElement);
        }
        digits.parse().map(Segment::Element).map_err(|_| start)
    }

    fn name(&mut self) -> Result<String, usize> {
        match self.peek() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote),
            _ => self.unquoted(),
        }
    }

    fn unquoted(&mut self) -> Result<String, usize> {
        let start = self.position;
        while self.peek().is_some_and(|character| character.is_alphanumeric() || character == '_') {
            self.position += 1;
        }
        if self.position == start {
            return Err(start);
        }
        Ok(self.characters[start..self.position].iter().collect())
    }

    fn quoted(&mut self, quote: char) -> Result<String, usize> {
        self.expect(quote)?;
        let mut name = String::new();
        while let Some(character) = self.peek() {
            self.position += 1;
            if character == quote {
                return Ok(name);
            }
            if character != '\\' {
                name.push(character);
                continue;
            }
            match self.peek() {
                Some(escaped) if escaped == quote || escaped == '\\' => name.push(escaped),
                _ => return Err(self.position - 1),
            }
            self.position += 1;
        }
        Err(self.position)
    }

    fn tuple(&mut self) -> Result<Vec<Vec<String>>, usize> {
        self.expect('{')?;
        let mut members = Vec::new();
        loop {
            self.skip_spaces();
            let start = self.position;
            let member = self.tuple_member()?;
            if members.contains(&member) {
                return Err(start);
            }
            members.push(member);
            self.skip_spaces();
            match self.peek() {
                Some(',') if members.len() < DEPTH_MAX => self.position += 1,
                Some('}') => {
                    self.position += 1;
                    return Ok(members);
                }
                _ => return Err(self.position),
            }
        }
    }

    /// A member has no leading slash: `b/c`.
    fn tuple_member(&mut self) -> Result<Vec<String>, usize> {
        let mut names = vec![self.name()?];
        while self.peek() == Some('/') && names.len() < DEPTH_MAX {
            self.position += 1;
            names.push(self.name()?);
        }
        Ok(names)
    }

    fn skip_spaces(&mut self) {
        while self.peek() == Some(' ') {
            self.position += 1;
        }
    }

    fn peek(&self) -> Option<char> {
        self.characters.get(self.position).copied()
    }

    fn expect(&mut self, character: char) -> Result<(), usize> {
        if self.peek() != Some(character) {
            return Err(self.position);
        }
        self.position += 1;
        Ok(())
    }

    fn expect_end(&self) -> Result<(), usize> {
        if self.position < self.characters.len() { Err(self.position) } else { Ok(()) }
    }
}

/// A tuple stands directly behind the only `[]` of its path.
fn tuple_may_follow(segments: &[Segment]) -> bool {
    let arrays = segments.iter().filter(|segment| **segment == Segment::AnyElement).count();
    arrays == 1 && segments.last() == Some(&Segment::AnyElement)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A compact spelling of what was understood, or the position of the failure.
    fn describe(text: &str) -> String {
        match Reader::new(text).terminated() {
            Err(position) => format!("fails at {position}"),
            Ok(path) => {
                let mut out: Vec<String> = path.segments.iter().map(spell).collect();
                out.extend(path.tuple.iter().map(|member| format!("({})", member.join("."))));
                out.push(format!("{:?}", path.terminator));
                out.join(" ")
            }
        }
    }

    fn spell(segment: &Segment) -> String {
        match segment {
            Segment::Property(name) => format!("<{name}>"),
            Segment::AnyElement => "[]".to_owned(),
            Segment::Element(offset) => format!("[{offset}]"),
        }
    }

    fn check(text: &str, expected: &str) {
        assert_eq!(describe(text), expected, "{text}");
    }

    #[test]
    fn terminated_paths() {
        check("/*", "Subtree");
        check("/a/?", "<a> Scalar");
        check("/a/*", "<a> Subtree");
        check("/a/b_1/?", "<a> <b_1> Scalar");
        check("/größe/?", "<größe> Scalar");
        check("/\"_etag\"/?", "<_etag> Scalar");
        check("/\"first name\"/\"a/b\"/*", "<first name> <a/b> Subtree");
        check(r#"/"a\"b\\c"/?"#, r#"<a"b\c> Scalar"#);
        check("/'a\"b'/?", "<a\"b> Scalar");
        check("/a/[]/b/?", "<a> [] <b> Scalar");
        check("/a/[]/?", "<a> [] Scalar");
        check("/a/[]/[]/*", "<a> [] [] Subtree");
    }

    #[test]
    fn tuples() {
        check("/a/[]/{b, c/d}/?", "<a> [] (b) (c.d) Scalar");
        check("/a/[1]/[]/{b}/?", "<a> [1] [] (b) Scalar");
        check("/a/[]/{ \"x y\" ,b }/?", "<a> [] (x y) (b) Scalar");
        check("/a/{b, c}/?", "fails at 3");
        check("/a/[]/b/[]/{c}/?", "fails at 11");
        check("/a/[]/{b}/*", "fails at 10");
        check("/a/[]/{b}/c/?", "fails at 10");
        check("/a/[]/{/b}/?", "fails at 7");
        check("/a/[]/{b, b}/?", "fails at 10");
        check("/a/[]/{b, []}/?", "fails at 10");
        check("/a/[]/{}/?", "fails at 7");
        check("/a/[]/{b", "fails at 8");
        check("/a/[1]/b/?", "fails at 3");
    }

    #[test]
    fn refused_paths() {
        check("", "fails at 0");
        check("a/?", "fails at 0");
        // The service reports the end of the text for a missing terminator.
        check("/expiration", "fails at 11");
        check("/a/", "fails at 3");
        check("//?", "fails at 1");
        check("/?", "fails at 1");
        check("/a-b/?", "fails at 2");
        check("/a/*/b/?", "fails at 4");
        check("/a/?/b", "fails at 4");
        check("/\"a/?", "fails at 5");
        check("/\"a\\n\"/?", "fails at 3");
        check("/a/[x]/?", "fails at 4");
        check("/a/[99999999999]/[]/{b}/?", "fails at 4");
        check("/a /?", "fails at 2");
    }

    #[test]
    fn depth_is_bounded() {
        assert!(IndexPath::parse(&format!("{}/?", "/a".repeat(DEPTH_MAX))).is_ok());
        assert!(IndexPath::parse(&format!("{}/?", "/a".repeat(DEPTH_MAX + 1))).is_err());
        assert!(IndexPath::parse(&"/a".repeat(500_000)).is_err());
        assert!(parse_unterminated(&"/a".repeat(500_000)).is_err());
    }

    #[test]
    fn unterminated_paths() {
        assert_eq!(
            parse_unterminated("/a/[]/\"b c\"").unwrap(),
            [Segment::Property("a".into()), Segment::AnyElement, Segment::Property("b c".into())]
        );
        for text in ["", "/", "a", "/a/", "/a/?", "/a/*", "/*", "/a/[1]"] {
            assert!(parse_unterminated(text).is_err(), "{text}");
        }
    }
}
