//! Formatting of numbers and tables, and output to the terminal.

use crate::error::{Error, Result};
use kiln_files::is_printable;
use kiln_train::Values;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

/// The first error of writing to standard output, if there was one.
static LOST: OnceLock<String> = OnceLock::new();

/// Writes a line to standard output and flushes it. If that fails the work goes on, because the weights of a long run are worth
/// more than its log, but the program ends with an error ([`check_written`]).
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    written(writeln!(out, "{}", plain(text)).and_then(|()| out.flush()));
}

/// Writes a part of a line to standard output, as [`line()`].
pub(crate) fn text(text: &str) {
    let mut out = std::io::stdout().lock();
    written(write!(out, "{}", plain(text)).and_then(|()| out.flush()));
}

/// Writes a JSON value as a line, as [`line()`]. Control characters are escaped, also those above ASCII, which serde_json does
/// not escape.
pub(crate) fn json(value: &Value) {
    let text = value.to_string();
    let mut escaped = String::new();
    for c in text.chars() {
        match is_printable(c) {
            true => escaped.push(c),
            false => {
                let mut units = [0; 2];
                c.encode_utf16(&mut units).iter().for_each(|unit| {
                    // Writing to a string cannot fail.
                    let _ = write!(escaped, "\\u{unit:04x}");
                });
            }
        }
    }
    line(&escaped);
}

/// True if a text has no control characters but line breaks, and none that a terminal would not show.
pub(crate) fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || is_printable(c))
}

/// The text with control characters escaped, except line breaks.
fn plain(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::new();
    for c in text.chars() {
        match c == '\n' || is_printable(c) {
            true => escaped.push(c),
            false => escaped.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(escaped)
}

/// Keeps the first error of writing to standard output. A closed pipe is no error: its reader has read enough.
pub(crate) fn written(result: std::io::Result<()>) {
    if let Err(error) = result
        && error.kind() != ErrorKind::BrokenPipe
    {
        LOST.get_or_init(|| error.to_string());
    }
}

/// Checks that all of standard output was written.
///
/// # Errors
/// A line was lost.
pub(crate) fn check_written() -> Result<()> {
    match LOST.get() {
        Some(error) => Err(Error::failure(format!("cannot write to standard output: {error}"))),
        None => Ok(()),
    }
}

/// Writes an error to standard error.
pub(crate) fn report(error: &dyn std::fmt::Display) -> std::io::Result<()> {
    writeln!(std::io::stderr(), "{}", plain(error.to_string().trim_end()))
}

/// Reports an error of one of several files; returns the exit code.
pub(crate) fn passed_over(error: &Error) -> u8 {
    // If standard error cannot be written, there is no place to report that.
    let _ = report(error);
    error.code
}

/// Writes a warning to standard error.
pub(crate) fn warn(warning: &impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "warning: {}", plain(&warning.to_string()));
}

/// A whole number with thousands separated by commas.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate per second: a whole number, or one decimal below 10.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second < 10.0 {
        true => format!("{per_second:.1}"),
        false => thousands(per_second as u64),
    }
}

/// A number with its noun: `1 epoch`, `2 epochs`.
pub(crate) fn counted(n: u64, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {what}{plural}", thousands(n))
}

/// The shortest text that reads back as the same number: `0.001`, `1e30`, `2`.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:?}");
    text.strip_suffix(".0").unwrap_or(&text).to_string()
}

/// A size in bytes with a binary unit.
pub(crate) fn bytes(n: u64) -> String {
    scaled(n as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// An energy in joules, watt hours or kilowatt hours.
pub(crate) fn energy(joules: f64) -> String {
    match joules {
        j if j < 3600.0 => format!("{j:.0} J"),
        j if j < 3.6e6 => format!("{:.1} Wh", j / 3600.0),
        j => format!("{:.2} kWh", j / 3.6e6),
    }
}

/// The energy of an epoch, or of a run, by its readings: `412 J, 35 J more in validation`; `None` if it was not measured.
pub(crate) fn energy_of(machine: &Values) -> Option<String> {
    let (train, valid) = (machine.get("joules")?, machine.get("valid_joules"));
    let valid = valid.map(|valid| format!(", {} more in validation", energy(*valid)));
    Some(format!("{}{}", energy(*train), valid.unwrap_or_default()))
}

/// A number of operations with a decimal unit.
pub(crate) fn operations(n: u64) -> String {
    scaled(n as f64, 1000.0, &["", "k", "M", "G", "T"])
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let text = match unit {
        0 => format!("{value:.0} {}", units[0]),
        _ => format!("{value:.1} {}", units[unit]),
    };
    text.trim_end().to_string()
}

/// A share as a percentage with two decimals.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Rows in aligned columns, the first column to the left and the others to the right, with a rule below the header.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &[String]| {
        let mut text = String::new();
        for (i, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            match i {
                0 => text.extend([cell.as_str(), pad.as_str()]),
                _ => text.extend(["  ", pad.as_str(), cell.as_str()]),
            }
        }
        text.trim_end().to_string()
    };
    let titles: Vec<String> = header.iter().map(|h| h.to_string()).collect();
    let rule = "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1));
    let mut lines = vec![line(&titles), rule];
    lines.extend(rows.iter().map(|r| line(r)));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [0, 999, 1000, 1234567].map(thousands),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [0, 1023, 1536, 3 << 20].map(bytes),
            ["0 B", "1023 B", "1.5 KiB", "3.0 MiB"]
        );
        assert_eq!(
            [0.4, 3599.0, 5400.0, 1.8e7].map(energy),
            ["0 J", "3599 J", "1.5 Wh", "5.00 kWh"]
        );
        let mut used = Values::new();
        assert_eq!(energy_of(&used), None);
        used.insert("joules".to_string(), 412.0);
        assert_eq!(energy_of(&used).as_deref(), Some("412 J"));
        used.insert("valid_joules".to_string(), 35.0);
        assert_eq!(energy_of(&used).as_deref(), Some("412 J, 35 J more in validation"));
        assert_eq!([12, 16_800_000].map(operations), ["12", "16.8 M"]);
        assert_eq!(
            [0, 1, 1000].map(|n| counted(n, "epoch")),
            ["0 epochs", "1 epoch", "1,000 epochs"]
        );
        assert_eq!(
            [1e30, 1e-3, 2.0, 0.0, 1e-7].map(number),
            ["1e30", "0.001", "2", "0", "1e-7"]
        );
        assert_eq!(percent(0.97649), "97.65 %");
        assert_eq!([0.04, 9.94, 10.9, 1234.5].map(rate), ["0.0", "9.9", "10", "1,234"]);
    }

    #[test]
    fn nothing_is_obeyed() {
        assert_eq!(plain("a\u{1b}[2J\n\u{9b}b"), "a\\u{1b}[2J\n\\u{9b}b");
        assert!(is_plain("loss 0.5 \n é") && !is_plain("\r"));
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["conv1".into(), "7".into()], vec!["x".into(), "1,000".into()]];
        assert_eq!(
            table(&["layer", "n"], &rows),
            "layer      n\n------------\nconv1      7\nx      1,000"
        );
    }
}
