//! Cuts query text into tokens, one at a time.
//!
//! A token is a kind and a range of bytes; what a string or a number means is read from the text
//! when the parser wants it. The lexer is a position in the text and cheap to copy, which is how
//! the parser looks ahead.

use crate::Error;
use value::Number;

/// A token: its kind and the bytes it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The kinds of token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A name that is no keyword.
    Identifier,
    Keyword(Keyword),
    String,
    Number,
    /// `@name`
    Parameter,
    /// An operator or a bracket, as it is written.
    Symbol(&'static str),
    End,
}

macro_rules! keywords {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// The reserved words, whatever their case. Several stand in no production; they are
        /// reserved so that nothing can be called like them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Keyword { $($name),* }

        fn keyword(word: &str) -> Option<Keyword> {
            const ALL: &[(&str, Keyword)] = &[$(($text, Keyword::$name)),*];
            ALL.iter().find(|(text, _)| text.eq_ignore_ascii_case(word)).map(|(_, keyword)| *keyword)
        }
    };
}

keywords! {
    And = "AND", Array = "ARRAY", As = "AS", Asc = "ASC", Between = "BETWEEN", By = "BY",
    Case = "CASE", Cast = "CAST", Convert = "CONVERT", Cross = "CROSS", Desc = "DESC",
    Distinct = "DISTINCT", Else = "ELSE", End = "END", Escape = "ESCAPE", Exists = "EXISTS",
    False = "FALSE", For = "FOR", From = "FROM", Group = "GROUP", Having = "HAVING",
    Inner = "INNER", Insert = "INSERT", Into = "INTO", In = "IN", Is = "IS", Join = "JOIN",
    Left = "LEFT", Like = "LIKE", Limit = "LIMIT", Not = "NOT", Null = "NULL",
    Offset = "OFFSET", On = "ON", Order = "ORDER", Or = "OR", Outer = "OUTER", Over = "OVER",
    Right = "RIGHT", Select = "SELECT", Set = "SET", Then = "THEN", Top = "TOP", True = "TRUE",
    Undefined = "UNDEFINED", Udf = "UDF", Update = "UPDATE", Value = "VALUE", When = "WHEN",
    Where = "WHERE", With = "WITH",
}

/// Whether a word is reserved and so cannot be a name.
pub(crate) fn is_reserved(word: &str) -> bool {
    keyword(word).is_some()
}

/// Longest first, so that `>>>` is not read as `>>` and `>`.
const SYMBOLS: &[&str] = &[
    ">>>", "<<", ">>", "<=", ">=", "<>", "!=", "||", "??", "(", ")", "[", "]", "{", "}", ".", ",",
    ":", "?", "|", "^", "&", "~", "+", "-", "*", "/", "%", "=", "<", ">",
];

/// A position in a query text.
#[derive(Clone, Copy)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, offset: 0 }
    }

    /// The next token; `End` for ever once the text is used up.
    pub(crate) fn next(&mut self) -> Result<Token, Box<Error>> {
        self.skip_layout()?;
        let start = self.offset;
        let rest = &self.text.as_bytes()[start..];
        let kind = match rest.first() {
            None => TokenKind::End,
            Some(b'\'' | b'"') => self.string()?,
            Some(b'@') => self.parameter()?,
            Some(byte) if byte.is_ascii_digit() => self.number()?,
            Some(b'.') if rest.get(1).is_some_and(u8::is_ascii_digit) => self.number()?,
            Some(byte) if byte.is_ascii_alphabetic() || *byte == b'_' => self.word(),
            Some(_) => self.symbol()?,
        };
        Ok(Token { kind, start, end: self.offset })
    }

    fn skip_layout(&mut self) -> Result<(), Box<Error>> {
        loop {
            let rest = &self.text[self.offset..];
            let trimmed = rest.trim_start_matches([' ', '\t', '\r', '\n']);
            self.offset += rest.len() - trimmed.len();
            if trimmed.starts_with("--") {
                self.offset += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if let Some(comment) = trimmed.strip_prefix("/*") {
                let Some(length) = comment.find("*/") else {
                    return Err(self.invalid(self.offset, self.text.len()));
                };
                self.offset += length + 4;
            } else {
                return Ok(());
            }
        }
    }

    fn word(&mut self) -> TokenKind {
        let word = self.take_while(is_name_byte);
        keyword(word).map_or(TokenKind::Identifier, TokenKind::Keyword)
    }

    fn parameter(&mut self) -> Result<TokenKind, Box<Error>> {
        let start = self.offset;
        self.offset += 1;
        let name = self.take_while(is_name_byte);
        if name.is_empty() || name.as_bytes()[0].is_ascii_digit() {
            return Err(self.invalid(start, self.offset));
        }
        Ok(TokenKind::Parameter)
    }

    fn string(&mut self) -> Result<TokenKind, Box<Error>> {
        let start = self.offset;
        let bytes = self.text.as_bytes();
        let quote = bytes[start];
        let mut offset = start + 1;
        while offset < bytes.len() {
            match bytes[offset] {
                b'\\' => offset += 2,
                byte if byte == quote => {
                    self.offset = offset + 1;
                    return Ok(TokenKind::String);
                }
                _ => offset += 1,
            }
        }
        Err(self.invalid(start, self.text.len()))
    }

    fn number(&mut self) -> Result<TokenKind, Box<Error>> {
        let start = self.offset;
        let rest = &self.text.as_bytes()[start..];
        if rest[0] == b'0' && matches!(rest.get(1), Some(b'x' | b'X')) {
            self.offset += 2;
            if self.take_while(|byte| byte.is_ascii_hexdigit()).is_empty() {
                return Err(self.invalid(start, self.offset));
            }
        } else {
            self.decimal();
        }
        // `1a` is neither a number nor a name.
        let tail = self.take_while(is_name_byte);
        if tail.is_empty() { Ok(TokenKind::Number) } else { Err(self.invalid(start, self.offset)) }
    }

    fn decimal(&mut self) {
        self.take_while(|byte| byte.is_ascii_digit());
        if self.text[self.offset..].starts_with('.') {
            self.offset += 1;
            self.take_while(|byte| byte.is_ascii_digit());
        }
        let rest = &self.text.as_bytes()[self.offset..];
        if matches!(rest.first(), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(1), Some(b'+' | b'-')));
            if rest.get(1 + sign).is_some_and(u8::is_ascii_digit) {
                self.offset += 1 + sign;
                self.take_while(|byte| byte.is_ascii_digit());
            }
        }
    }

    fn symbol(&mut self) -> Result<TokenKind, Box<Error>> {
        let rest = &self.text[self.offset..];
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            self.offset += symbol.len();
            return Ok(TokenKind::Symbol(symbol));
        }
        let length = rest.chars().next().map_or(0, char::len_utf8);
        Err(self.invalid(self.offset, self.offset + length))
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a str {
        let start = self.offset;
        let bytes = self.text.as_bytes();
        while self.offset < bytes.len() && accept(bytes[self.offset]) {
            self.offset += 1;
        }
        &self.text[start..self.offset]
    }

    fn invalid(&self, start: usize, end: usize) -> Box<Error> {
        invalid_token(self.text, start, end)
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The error for text that is no token; long text is cut short in the message.
pub(crate) fn invalid_token(text: &str, start: usize, end: usize) -> Box<Error> {
    let message = format!("Syntax error, invalid token '{}'.", excerpt(&text[start..end]));
    Box::new(Error::at(text, start, end, "SC1010", message))
}

/// At most the first hundred characters, so that an error never echoes a whole query.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(100).collect()
}

/// The content of a string token, without its quotes and with its escapes resolved.
pub(crate) fn string_value(text: &str, token: Token) -> Result<String, Box<Error>> {
    let invalid = || invalid_token(text, token.start, token.end);
    let inner = &text[token.start + 1..token.end - 1];
    if !inner.contains('\\') {
        return Ok(inner.to_owned());
    }
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(offset) = rest.find('\\') {
        out.push_str(&rest[..offset]);
        let escape = rest[offset + 1..].chars().next().ok_or_else(invalid)?;
        rest = &rest[offset + 1 + escape.len_utf8()..];
        out.push(match escape {
            '\'' | '"' | '\\' | '/' => escape,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => unicode_escape(&mut rest).ok_or_else(invalid)?,
            _ => return Err(invalid()),
        });
    }
    out.push_str(rest);
    Ok(out)
}

/// The character of a `\u` escape whose digits come next in `rest`, or of a surrogate pair.
fn unicode_escape(rest: &mut &str) -> Option<char> {
    let first = four_digits(rest)?;
    if !(0xD800..0xE000).contains(&first) {
        return char::from_u32(first);
    }
    *rest = rest.strip_prefix("\\u")?;
    let second = four_digits(rest)?;
    let pair = [u16::try_from(first).ok()?, u16::try_from(second).ok()?];
    // A lone or reversed surrogate is no character: no JSON string could hold it.
    char::decode_utf16(pair).next()?.ok()
}

fn four_digits(rest: &mut &str) -> Option<u32> {
    let digits = rest.get(..4)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    *rest = &rest[4..];
    u32::from_str_radix(digits, 16).ok()
}

/// The value of a number token, with the minus sign that stood directly before it.
///
/// Integers are kept exactly as far as 64 bits reach, because the integer functions see all of
/// them. A literal beyond the range of a double is refused rather than turned into infinity.
pub(crate) fn number_value(text: &str, token: Token, negative: bool) -> Result<Number, Box<Error>> {
    let digits = &text[token.start..token.end];
    let magnitude = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None => digits.parse::<u64>().ok(),
    };
    if let Some(magnitude) = magnitude {
        let signed = i64::try_from(i128::from(magnitude) * if negative { -1 } else { 1 });
        match signed {
            // A negative zero is a double, not an integer.
            Ok(0) if negative => return Ok(Number::from(-0.0)),
            Ok(signed) => return Ok(Number::from(signed)),
            Err(_) if !negative => return Ok(Number::from(magnitude)),
            Err(_) => {}
        }
    }
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() => {
            Ok(Number::from(if negative { -number } else { number }))
        }
        _ => Err(invalid_token(text, token.start, token.end)),
    }
}
