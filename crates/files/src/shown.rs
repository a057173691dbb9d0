//! Text from a file, or a file's name, as a message may show it.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::path::Path;

/// Characters of a name that are shown: the first and the last of a longer one.
const NAME: (usize, usize) = (70, 30);
/// The same of a path, whose end says more than its start.
const PATH: (usize, usize) = (100, 300);

/// Text that cannot steer a terminal, hide what follows it or fill the screen: control characters and those that turn the
/// direction of text are escaped (`\u{1b}`), and the middle of what is long is left out (`…`).
#[derive(Debug, Clone)]
pub struct Shown<'a> {
    text: Cow<'a, str>,
    /// How many characters of the start and of the end are kept.
    kept: (usize, usize),
}

/// A name or a value from a file, or a message that may hold one.
pub fn shown(text: &str) -> Shown<'_> {
    Shown {
        text: Cow::Borrowed(text),
        kept: NAME,
    }
}

/// A path.
pub fn shown_path(path: &Path) -> Shown<'_> {
    Shown {
        text: path.to_string_lossy(),
        kept: PATH,
    }
}

impl<'a> Shown<'a> {
    /// Keeps four times as much: for a sentence that quotes a file.
    pub fn sentence(self) -> Self {
        Shown {
            kept: (4 * NAME.0, 4 * NAME.1),
            ..self
        }
    }
}

/// Whether a terminal shows this character as a mark or a space of its own. Control characters do not, nor do those that
/// Unicode has for line breaks, for turning text around, for joining it, and for tags that are never seen.
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
        // Where the last characters start, if that is behind the first ones.
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
        // Counted in characters, cut between them, and bounded where each is escaped.
        assert!(shown(&"é\x1b".repeat(1 << 20)).to_string().len() < 2000);
        let path = "/folder".repeat(1000) + "/model.safetensors";
        let cut = shown_path(Path::new(&path)).to_string();
        assert!(cut.len() < 500 && cut.ends_with("/model.safetensors"), "{cut}");
        assert!(shown(&"y".repeat(4000)).sentence().to_string().chars().count() == 401);
    }
}
