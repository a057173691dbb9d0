//! Text from files and file names, escaped and shortened for messages.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::path::Path;

/// The numbers of characters shown of a longer name: from its start and from its end.
const NAME: (usize, usize) = (70, 30);
/// The same numbers for a path, whose end tells more than its start.
const PATH: (usize, usize) = (100, 300);

/// Text that is safe to print: control characters and those that change the direction of text are escaped (`\u{1b}`), and
/// the middle of a long text is replaced by `…`.
#[derive(Debug, Clone)]
pub struct Shown<'a> {
    text: Cow<'a, str>,
    /// The numbers of characters kept at the start and at the end.
    kept: (usize, usize),
}

/// Prepares a name or value from a file, or a message that may contain one, for printing.
pub fn shown(text: &str) -> Shown<'_> {
    Shown {
        text: Cow::Borrowed(text),
        kept: NAME,
    }
}

/// Prepares a path for printing.
pub fn shown_path(path: &Path) -> Shown<'_> {
    Shown {
        text: path.to_string_lossy(),
        kept: PATH,
    }
}

impl<'a> Shown<'a> {
    /// Keeps four times as many characters, for a sentence that quotes a file.
    pub fn sentence(self) -> Self {
        Shown {
            kept: (4 * NAME.0, 4 * NAME.1),
            ..self
        }
    }
}

/// True if a terminal shows this character as a mark or a space of its own. False for control characters, and for the
/// characters of Unicode that break lines, change the direction of text, join characters, or are invisible tags.
pub fn is_printable(c: char) -> bool {
    let hidden = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
    !c.is_control() && !hidden
}

fn write(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for c in text.chars() {
        match c {
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c if is_printable(c) => f.write_char(c)?,
            c => write!(f, "{}", c.escape_unicode())?,
        }
    }
    Ok(())
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = self.kept;
        // The start of the last characters that are kept, if it is after the end of the first ones.
        let end = self
            .text
            .char_indices()
            .nth_back(last.saturating_sub(1))
            .map(|(at, _)| at);
        let start = self.text.char_indices().nth(first).map(|(at, _)| at);
        match (start, end) {
            (Some(start), Some(end)) if start < end => {
                write(f, &self.text[..start])?;
                f.write_char('…')?;
                write(f, &self.text[end..])
            }
            _ => write(f, &self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_plain_stays() {
        for text in ["", "conv1.weight", "C:\\data\\é 漢 🦀", &"x".repeat(100)] {
            assert_eq!(shown(text).to_string(), text);
        }
    }

    #[test]
    fn nothing_reaches_the_terminal() {
        let text = "a\x1b[2Jb\u{9b}c\x07\x7f\n\t\u{202e}d\u{200b}\0";
        let safe = shown(text).to_string();
        assert_eq!(safe, r"a\u{1b}[2Jb\u{9b}c\u{7}\u{7f}\n\t\u{202e}d\u{200b}\u{0}");
        assert!(safe.chars().all(is_printable));
    }

    #[test]
    fn long_text_is_cut_in_the_middle() {
        for count in [101, 102, 5000] {
            let text: String = (0..count).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
            let cut = shown(&text).to_string();
            assert_eq!(cut.chars().count(), 101, "{count}");
            let (head, tail) = cut.split_once('…').unwrap();
            assert!(text.starts_with(head) && text.ends_with(tail));
        }
        // The text is counted and cut in characters, and its length stays bounded when each one is escaped.
        assert!(shown(&"é\x1b".repeat(1 << 20)).to_string().len() < 2000);
        let path = "/folder".repeat(1000) + "/model.safetensors";
        let cut = shown_path(Path::new(&path)).to_string();
        assert!(cut.len() < 500 && cut.ends_with("/model.safetensors"), "{cut}");
        assert!(shown(&"y".repeat(4000)).sentence().to_string().chars().count() == 401);
    }
}
