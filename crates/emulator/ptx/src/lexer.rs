//! Tokens. Words keep their dots (`mad.lo.s32`, `%tid.x`, `.shared::cta`), so an opcode is one token.

use crate::syntax::{Result, error};

/// One token, borrowed from the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// An opcode, a directive, a name or a register.
    Word(&'a str),
    /// Anything that starts with a digit.
    Number(&'a str),
    /// A quoted string, without its quotes.
    Text(&'a str),
    /// One character of punctuation.
    Mark(u8),
    /// The end of the text.
    End,
}

/// Reads tokens from `text[at..end]`.
#[derive(Clone, Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    end: usize,
    line: u32,
    peeked: Option<(Token<'a>, u32, usize)>,
}

fn starts_word(c: u8) -> bool {
    c.is_ascii_alphabetic() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

fn in_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

impl<'a> Lexer<'a> {
    /// A lexer over a part of the text whose first line has the number `line`.
    pub(crate) fn new(text: &'a str, start: usize, end: usize, line: u32) -> Self {
        Self {
            text,
            at: start,
            end,
            line,
            peeked: None,
        }
    }

    fn skip_space(&mut self) {
        let bytes = self.text.as_bytes();
        while self.at < self.end {
            match bytes[self.at] {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b'/' if bytes.get(self.at + 1) == Some(&b'/') => {
                    while self.at < self.end && bytes[self.at] != b'\n' {
                        self.at += 1;
                    }
                }
                b'/' if bytes.get(self.at + 1) == Some(&b'*') => {
                    self.at += 2;
                    while self.at < self.end && !bytes[self.at..self.end].starts_with(b"*/") {
                        self.line += u32::from(bytes[self.at] == b'\n');
                        self.at += 1;
                    }
                    self.at = (self.at + 2).min(self.end);
                }
                c if c.is_ascii_whitespace() || c == 0 => self.at += 1,
                _ => break,
            }
        }
    }

    fn scan(&mut self) -> Result<Token<'a>> {
        self.skip_space();
        let bytes = self.text.as_bytes();
        if self.at >= self.end {
            return Ok(Token::End);
        }
        let start = self.at;
        let c = bytes[start];
        if starts_word(c) || c.is_ascii_digit() {
            let word = starts_word(c);
            while self.at < self.end {
                let c = bytes[self.at];
                // Directives may stand together: `.reg.b16`.
                if c == b'.' && self.at > start && bytes[start] == b'.' {
                    break;
                }
                if in_word(c) {
                    self.at += 1;
                } else if word && bytes[self.at..self.end].starts_with(b"::") {
                    self.at += 2;
                } else {
                    break;
                }
            }
            let text = &self.text[start..self.at];
            return Ok(if word { Token::Word(text) } else { Token::Number(text) });
        }
        if c == b'"' {
            let length = bytes[start + 1..self.end].iter().position(|&c| c == b'"');
            let Some(length) = length else {
                return error(self.line, "a string without its closing quote");
            };
            self.at = start + length + 2;
            return Ok(Token::Text(&self.text[start + 1..start + 1 + length]));
        }
        if !c.is_ascii() {
            return error(self.line, "a character that is not ASCII");
        }
        self.at += 1;
        Ok(Token::Mark(c))
    }

    /// Takes the next token.
    pub(crate) fn next(&mut self) -> Result<Token<'a>> {
        match self.peeked.take() {
            Some((token, line, at)) => {
                self.line = line;
                self.at = at;
                Ok(token)
            }
            None => self.scan(),
        }
    }

    /// Looks at the next token.
    pub(crate) fn peek(&mut self) -> Result<Token<'a>> {
        if let Some((token, ..)) = self.peeked {
            return Ok(token);
        }
        let (line, at) = (self.line, self.at);
        let token = self.scan()?;
        self.peeked = Some((token, self.line, self.at));
        (self.line, self.at) = (line, at);
        Ok(token)
    }

    /// The line of the token that was taken last.
    pub(crate) fn line(&self) -> u32 {
        self.line
    }

    /// Takes the next token if it is `mark`.
    pub(crate) fn take(&mut self, mark: u8) -> Result<bool> {
        let found = self.peek()? == Token::Mark(mark);
        if found {
            self.next()?;
        }
        Ok(found)
    }

    /// Takes `mark`, or complains.
    pub(crate) fn expect(&mut self, mark: u8) -> Result<()> {
        match self.next()? {
            Token::Mark(found) if found == mark => Ok(()),
            found => error(self.line, format!("expected `{}`, found {found:?}", mark as char)),
        }
    }

    /// Takes a word, or complains.
    pub(crate) fn word(&mut self) -> Result<&'a str> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            found => error(self.line, format!("expected a name, found {found:?}")),
        }
    }

    /// Takes an integer with an optional minus sign, or complains.
    pub(crate) fn integer(&mut self) -> Result<i128> {
        let negative = self.take(b'-')?;
        match self.next()? {
            Token::Number(text) => match parse_integer(text) {
                Some(value) => Ok(if negative { -value } else { value }),
                None => error(self.line, format!("expected an integer, found `{text}`")),
            },
            Token::Word(WARP_SIZE) => Ok(32),
            found => error(self.line, format!("expected an integer, found {found:?}")),
        }
    }

    /// After a `{` was taken: skips to the matching `}`, takes it, and returns the span between them and its first line.
    pub(crate) fn skip_block(&mut self) -> Result<(usize, usize, u32)> {
        let (start, line) = (self.at, self.line);
        let mut depth = 1;
        loop {
            match self.next()? {
                Token::Mark(b'{') => depth += 1,
                Token::Mark(b'}') => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok((start, self.at - 1, line));
                    }
                }
                Token::End => return error(line, "a block without its closing brace"),
                _ => {}
            }
        }
    }
}

/// The constant that stands for the lanes of a warp.
pub(super) const WARP_SIZE: &str = "WARP_SZ";

/// An integer literal: decimal, `0x`, `0b` or octal, with an optional `U`.
pub(crate) fn parse_integer(text: &str) -> Option<i128> {
    let text = text.strip_suffix(['U', 'u']).unwrap_or(text);
    if let Some(digits) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        i128::from_str_radix(digits, 16).ok()
    } else if let Some(digits) = text.strip_prefix("0b").or(text.strip_prefix("0B")) {
        i128::from_str_radix(digits, 2).ok()
    } else if text.len() > 1 && text.starts_with('0') && text.bytes().all(|c| c.is_ascii_digit()) {
        i128::from_str_radix(text, 8).ok()
    } else {
        text.parse().ok()
    }
}

/// A floating-point literal: `0f` with 8 hexadecimal digits, `0d` with 16, or a decimal number with a point.
pub(crate) fn parse_float_bits(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    if text.len() == 10 && bytes[0] == b'0' && matches!(bytes[1], b'f' | b'F') {
        return u32::from_str_radix(&text[2..], 16)
            .ok()
            .map(|bits| f64::from(f32::from_bits(bits)));
    }
    if text.len() == 18 && bytes[0] == b'0' && matches!(bytes[1], b'd' | b'D') {
        return u64::from_str_radix(&text[2..], 16).ok().map(f64::from_bits);
    }
    if text.contains('.') { text.parse().ok() } else { None }
}
