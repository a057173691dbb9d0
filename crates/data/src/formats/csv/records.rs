//! The records of a CSV file (RFC 4180), bounded in lines and bytes. A field in quotes may contain line breaks. A quote
//! that is never closed would swallow the rest of the file, so it is an error of the line that it stands in.

use crate::error::reserve;
use crate::{DataError, Result};
use std::collections::VecDeque;
use std::io::{BufRead, ErrorKind};
use std::path::{Path, PathBuf};

/// The largest number of lines in one record; a record has several when quoted fields contain line breaks.
pub(super) const MAX_LINES: usize = 64;
/// The largest size of one record in bytes, line breaks included.
pub(super) const MAX_BYTES: usize = 1 << 24;

/// The syntax error of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A quote is not closed within [`MAX_LINES`], or not at all.
    Open,
    /// Text between a closing quote and the end of the field.
    Text,
    /// More than [`MAX_BYTES`].
    Long,
    /// Bytes that are not UTF-8.
    Encoding,
}

/// The fields of a record, without quotes and without the spaces around them.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// The number of the record's first line, from 1.
    pub(super) line: u64,
    text: String,
    /// The end of each field in `text`; a field starts at the end of the one before.
    ends: Vec<usize>,
}

impl Fields {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Field `i`, empty past the last.
    pub(super) fn get(&self, i: usize) -> &str {
        let start = i
            .checked_sub(1)
            .map_or(Some(0), |before| self.ends.get(before).copied());
        let field = start
            .zip(self.ends.get(i))
            .and_then(|(start, &end)| self.text.get(start..end));
        field.unwrap_or_default().trim()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|i| self.get(i))
    }
}

/// A line that was read.
#[derive(Clone, Copy)]
struct Line {
    /// The end of the line in `held`, after its line break.
    end: usize,
    /// True if only the start of the line is held, because it is longer than [`MAX_BYTES`].
    cut: bool,
}

/// The state of the parser before the next byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first byte of a field that is not a space.
    Start,
    Plain,
    Quoted,
    /// After a quote in a quoted field: it closes the field, unless a second quote follows.
    Quote,
    /// In the spaces after a quoted field.
    Closed,
}

/// Reads a file record by record. It holds the lines of the current record, so that they can be read again one by one.
pub(super) struct Records<R> {
    path: PathBuf,
    input: R,
    delimiter: u8,
    held: Vec<u8>,
    lines: VecDeque<Line>,
    /// The start of the next record in `held`.
    at: usize,
    /// The number of that record's first line, from 1.
    line: u64,
    /// The number of lines of the record read last; they are dropped when the next one is read.
    taken: usize,
}

impl<R: BufRead> Records<R> {
    pub(super) fn new(path: &Path, input: R, delimiter: u8) -> Result<Self> {
        let mut records = Records {
            path: path.to_path_buf(),
            input,
            delimiter,
            held: Vec::new(),
            lines: VecDeque::new(),
            at: 0,
            line: 1,
            taken: 0,
        };
        // The byte order mark that some programs put in front of UTF-8.
        if records.fill()?.starts_with(b"\xef\xbb\xbf") {
            records.input.consume(3);
        }
        Ok(records)
    }

    /// Reads the next record that is not an empty line; `None` at the end of the file. After a [`Flaw`], reading goes on
    /// with the line after the record's first.
    pub(super) fn read(&mut self, fields: &mut Fields) -> Result<Option<std::result::Result<(), Flaw>>> {
        loop {
            self.give_up();
            if !self.look(0)? {
                return Ok(None);
            }
            self.taken = 1;
            if !matches!(self.held.get(self.at), None | Some(b'\n' | b'\r')) {
                break;
            }
        }
        fields.line = self.line;
        let mut text = std::mem::take(&mut fields.text).into_bytes();
        let outcome = self.split(&mut text, &mut fields.ends)?;
        let lines = match outcome {
            Ok(lines) => {
                self.taken = lines;
                String::from_utf8(text).map_err(|_| Flaw::Encoding)
            }
            Err(flaw) => Err(flaw),
        };
        Ok(Some(lines.map(|text| fields.text = text)))
    }

    /// Makes the next record start at the second line of the record read last, even if that record was well-formed.
    pub(super) fn only_first_line(&mut self) {
        self.taken = self.taken.min(1);
    }

    /// Splits the record at `at` into fields; returns the number of its lines.
    fn split(&mut self, text: &mut Vec<u8>, ends: &mut Vec<usize>) -> Result<std::result::Result<usize, Flaw>> {
        text.clear();
        ends.clear();
        let (mut state, mut start, mut lines) = (State::Start, self.at, 0);
        loop {
            if lines == MAX_LINES || !self.look(lines)? {
                return Ok(Err(Flaw::Open));
            }
            let Line { end, cut } = self.lines[lines];
            if cut || end - self.at > MAX_BYTES {
                return Ok(Err(Flaw::Long));
            }
            reserve(text, end - start, "a line")?;
            for &byte in &self.held[start..end] {
                state = match (state, byte) {
                    (State::Quoted, b'"') => State::Quote,
                    (State::Quoted, _) => {
                        text.push(byte);
                        State::Quoted
                    }
                    (State::Quote, b'"') => {
                        text.push(byte);
                        State::Quoted
                    }
                    (_, _) if byte == self.delimiter => {
                        ends.push(text.len());
                        State::Start
                    }
                    // Outside quotes these bytes occur only at the end of a line.
                    (_, b'\n' | b'\r') => state,
                    (State::Start, b' ' | b'\t') => State::Start,
                    (State::Start, b'"') => State::Quoted,
                    (State::Start | State::Plain, _) => {
                        text.push(byte);
                        State::Plain
                    }
                    (State::Quote | State::Closed, b' ' | b'\t') => State::Closed,
                    (State::Quote | State::Closed, _) => return Ok(Err(Flaw::Text)),
                };
            }
            (start, lines) = (end, lines + 1);
            if state != State::Quoted {
                ends.push(text.len());
                return Ok(Ok(lines));
            }
        }
    }

    /// Drops the lines of the record read last.
    fn give_up(&mut self) {
        for line in self.lines.drain(..self.taken) {
            self.at = line.end;
        }
        self.line += self.taken as u64;
        self.taken = 0;
        // The rest moves to the front once more than half is dropped, so each byte is moved at most once on average.
        if self.at > self.held.len() / 2 {
            self.held.drain(..self.at);
            self.lines.iter_mut().for_each(|line| line.end -= self.at);
            self.at = 0;
        }
    }

    /// Reads until more than `count` lines are held; false if the file ends before.
    fn look(&mut self, count: usize) -> Result<bool> {
        while self.lines.len() <= count {
            if !self.read_line()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads one line into `held`, with its line break: a line feed, a carriage return or both. False at the end of the file.
    fn read_line(&mut self) -> Result<bool> {
        let (start, mut cut) = (self.held.len(), false);
        loop {
            let (n, found) = {
                let chunk = self.fill()?;
                let found = chunk.iter().position(|&b| b == b'\n' || b == b'\r');
                (found.unwrap_or(chunk.len()), found.map(|i| chunk[i]))
            };
            if n == 0 && found.is_none() {
                if start == self.held.len() {
                    return Ok(false);
                }
                break;
            }
            let kept = n.min(MAX_BYTES.saturating_sub(self.held.len() - start));
            cut |= kept < n;
            reserve(&mut self.held, kept + 2, "a line")?;
            let chunk = self.input.fill_buf().map_err(DataError::io(&self.path, "read"))?;
            self.held.extend_from_slice(&chunk[..kept]);
            self.held.extend(found);
            self.input.consume(n + usize::from(found.is_some()));
            if found == Some(b'\r') && self.fill()?.first() == Some(&b'\n') {
                self.held.push(b'\n');
                self.input.consume(1);
            }
            if found.is_some() {
                break;
            }
        }
        let end = self.held.len();
        self.lines.push_back(Line { end, cut });
        Ok(true)
    }

    /// The buffered bytes that come next in the file; empty at its end.
    fn fill(&mut self) -> Result<&[u8]> {
        loop {
            match self.input.fill_buf() {
                Ok(_) => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(DataError::io(&self.path, "read")(e)),
            }
        }
        // The buffer is filled, so this returns it without reading the file again.
        self.input.fill_buf().map_err(DataError::io(&self.path, "read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every record: the number of its first line, and its fields or its flaw.
    fn all(text: &[u8]) -> Vec<(u64, std::result::Result<Vec<String>, Flaw>)> {
        let mut records = Records::new(Path::new("x.csv"), text, b',').unwrap();
        let (mut fields, mut found) = (Fields::default(), Vec::new());
        while let Some(outcome) = records.read(&mut fields).unwrap() {
            let read = outcome.map(|()| fields.iter().map(str::to_string).collect());
            found.push((fields.line, read));
        }
        found
    }

    fn ok(line: u64, fields: &[&str]) -> (u64, std::result::Result<Vec<String>, Flaw>) {
        (line, Ok(fields.iter().map(|f| f.to_string()).collect()))
    }

    #[test]
    fn fields_are_split_as_the_format_says() {
        assert_eq!(
            all(b"\xef\xbb\xbfa, b ,\r\n\n\"c,\"\"d\"\"\n e\" , \"f\" \n1\r2,\n,"),
            [
                ok(1, &["a", "b", ""]),
                ok(3, &["c,\"d\"\n e", "f"]),
                ok(5, &["1"]),
                ok(6, &["2", ""]),
                ok(7, &["", ""]),
            ]
        );
        // A quote in the middle of a field is a character.
        assert_eq!(all(b"5\" nail,x"), [ok(1, &["5\" nail", "x"])]);
        assert_eq!(all(b"\"\",\"\"\"\"\r\n"), [ok(1, &["", "\""])]);
        assert!(all(b"").is_empty() && all(b"\n\r\n\r").is_empty());
    }

    #[test]
    fn a_flaw_costs_one_line() {
        // A quote that is never closed; then one that is closed by the quote that opens the next line's label.
        let lines = "1,cat\n".repeat(100);
        let mut found = all(format!("1,\"cat\n{lines}").as_bytes());
        assert_eq!(found.remove(0), (1, Err(Flaw::Open)));
        assert_eq!(found.len(), 100);
        assert!(found.iter().all(|(_, read)| read.is_ok()));
        assert_eq!(found[99].0, 101);
        assert_eq!(
            all(b"1,\"cat\n2,\"dog\"\n"),
            [(1, Err(Flaw::Text)), ok(2, &["2", "dog"])]
        );
        assert_eq!(all(b"\"a\" b\nc"), [(1, Err(Flaw::Text)), ok(2, &["c"])]);
        assert_eq!(all(b"a\n\"b"), [ok(1, &["a"]), (2, Err(Flaw::Open))]);
        assert_eq!(all(b"\xff,1\n2"), [(1, Err(Flaw::Encoding)), ok(2, &["2"])]);
    }

    #[test]
    fn records_are_bounded() {
        let fits = format!("\"{}\"\nnext\n", "\n".repeat(MAX_LINES - 1));
        assert_eq!(all(fits.as_bytes())[1], ok(MAX_LINES as u64 + 1, &["next"]));
        let over = format!("\"{}\"\n", "x\n".repeat(MAX_LINES));
        assert_eq!(all(over.as_bytes())[0], (1, Err(Flaw::Open)));
        let long = [&vec![b'x'; MAX_BYTES + 1][..], b"\nnext"].concat();
        assert_eq!(all(&long), [(1, Err(Flaw::Long)), ok(2, &["next"])]);
    }

    /// The text that is held does not grow with the file.
    #[test]
    fn lines_are_given_up() {
        let text = "\"open\n1,2\n".repeat(10_000);
        let mut records = Records::new(Path::new("x.csv"), text.as_bytes(), b',').unwrap();
        let mut fields = Fields::default();
        while records.read(&mut fields).unwrap().is_some() {
            assert!(records.held.len() < 64 * MAX_LINES, "{}", records.held.len());
        }
    }
}
