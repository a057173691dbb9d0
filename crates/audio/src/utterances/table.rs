//! Tables of text with named columns.

use super::utterance::{Utterance, text_of};
use crate::{AudioError, Result};
use std::path::{Path, PathBuf};

/// A row and the line where it begins, counted from 1.
pub(super) struct Row {
    pub(super) line: usize,
    pub(super) fields: Vec<String>,
}

/// A table whose first line names the columns. Every row has as many fields.
pub(super) struct Table {
    path: PathBuf,
    columns: Vec<String>,
    rows: Vec<Row>,
}

impl Table {
    /// Reads the table: commas and quotes in a file named `.csv`, otherwise tabs.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = text_of(path)?;
        let commas = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"));
        let rows = if commas { quoted(&text) } else { Ok(tabbed(&text)) };
        let line = |line: usize, reason: String| AudioError::Line {
            path: path.to_path_buf(),
            line,
            reason,
        };
        let mut rows = rows
            .map_err(|at| line(at, "a quote without its end".into()))?
            .into_iter();
        let columns = rows.next().map(|row| row.fields).unwrap_or_default();
        let rows: Vec<Row> = rows.collect();
        if let Some(row) = rows.iter().find(|row| row.fields.len() != columns.len()) {
            let reason = format!("{} columns, expected {}", row.fields.len(), columns.len());
            return Err(line(row.line, reason));
        }
        Ok(Table {
            path: path.to_path_buf(),
            columns: columns.iter().map(|c| c.trim().to_string()).collect(),
            rows,
        })
    }

    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c == name)
    }

    /// A column that has to be there.
    pub(super) fn needed(&self, column: &'static str) -> Result<usize> {
        self.column(column).ok_or_else(|| AudioError::Column {
            path: self.path.clone(),
            column,
            found: self.columns.join(", "),
        })
    }

    /// The path in a row, which may not be empty.
    pub(super) fn path_of<'r>(&self, row: &'r Row, column: usize) -> Result<&'r Path> {
        match row.fields[column].as_str() {
            "" => Err(self.wrong(row, "an empty path".into())),
            path => Ok(Path::new(path)),
        }
    }

    pub(super) fn wrong(&self, row: &Row, reason: String) -> AudioError {
        AudioError::Line {
            path: self.path.clone(),
            line: row.line,
            reason,
        }
    }

    pub(super) fn utterances(
        &self,
        expected: &'static str,
        utterance: impl Fn(&Row) -> Result<Utterance>,
    ) -> Result<Vec<Utterance>> {
        let all: Vec<_> = self.rows.iter().map(utterance).collect::<Result<_>>()?;
        match all.is_empty() {
            false => Ok(all),
            true => Err(AudioError::NoUtterances {
                path: self.path.clone(),
                expected,
            }),
        }
    }
}

/// Rows of a text with tabs, where quotes are characters like others.
fn tabbed(text: &str) -> Vec<Row> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
    lines
        .map(|(i, line)| Row {
            line: i + 1,
            fields: line.split('\t').map(String::from).collect(),
        })
        .collect()
}

/// Rows of a text with commas and quotes, as in RFC 4180; the error is the line of a quote without an end.
fn quoted(text: &str) -> Result<Vec<Row>, usize> {
    let mut rows = Vec::new();
    let mut fields = Vec::new();
    let mut field = String::new();
    let (mut line, mut begun) = (1, 1);
    let mut opened = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\n' {
            line += 1;
        }
        match c {
            '"' if opened.is_some() && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' if opened.is_some() => opened = None,
            '"' if field.is_empty() => opened = Some(line),
            c if opened.is_some() => field.push(c),
            ',' => fields.push(std::mem::take(&mut field)),
            '\r' if matches!(chars.peek(), Some('\n') | None) => {}
            '\n' => {
                end_row(&mut rows, &mut fields, &mut field, begun);
                begun = line;
            }
            c => field.push(c),
        }
    }
    if let Some(at) = opened {
        return Err(at);
    }
    end_row(&mut rows, &mut fields, &mut field, begun);
    Ok(rows)
}

/// Ends a row; an empty line is none.
fn end_row(rows: &mut Vec<Row>, fields: &mut Vec<String>, field: &mut String, line: usize) {
    if fields.is_empty() && field.is_empty() {
        return;
    }
    fields.push(std::mem::take(field));
    let fields = std::mem::take(fields);
    rows.push(Row { line, fields });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(rows: Vec<Row>) -> Vec<(usize, Vec<String>)> {
        rows.into_iter().map(|row| (row.line, row.fields)).collect()
    }

    proptest! {
        /// A table that is written with every field quoted is read as it was.
        #[test]
        fn quoted_fields_are_read(table in prop::collection::vec(prop::collection::vec("[a,\"\n\ré ]{0,5}", 2), 1..5)) {
            let line = |row: &Vec<String>| {
                let quoted: Vec<_> = row.iter().map(|f| format!("\"{}\"", f.replace('"', "\"\""))).collect();
                quoted.join(",")
            };
            let text: Vec<String> = table.iter().map(line).collect();
            let read = fields(quoted(&text.join("\r\n")).unwrap());
            prop_assert_eq!(read.into_iter().map(|(_, row)| row).collect::<Vec<_>>(), table);
        }
    }

    #[test]
    fn lines_are_counted() {
        let rows = fields(quoted("a,b\n\n\"x\ny\",\"z\"\nc,d\n").unwrap());
        let lines: Vec<_> = rows.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 3, 5]);
        assert_eq!(quoted("a\n\"b\n").err(), Some(2));
        let rows = fields(tabbed("a\tb\r\n\n\"c\t\n"));
        assert_eq!(rows[1], (3, vec!["\"c".to_string(), String::new()]));
    }
}
