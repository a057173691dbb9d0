//! A Rust file with comments and strings separated from code: enough of a lexer for rules about words.

use crate::workspace::File;

/// A Rust file as two texts with the same lines: one with everything but code replaced by spaces, one with everything but
/// comments.
pub(super) struct Source {
    pub(super) path: String,
    /// The code: comments, strings and character literals are spaces.
    pub(super) code: String,
    /// The comments: everything else is spaces.
    pub(super) comments: String,
}

impl Source {
    pub(super) fn new(file: &File) -> Self {
        let (code, comments) = split(&file.text);
        Source {
            path: file.path.clone(),
            code,
            comments,
        }
    }

    /// The crate's folder below `crates`, else the first folder: `nn` for `crates/nn/src/lib.rs`, `emulator/ptx` for
    /// `crates/emulator/ptx/src/lib.rs`.
    pub(super) fn krate(&self) -> &str {
        let path = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        let parts = if path.starts_with("emulator/") { 2 } else { 1 };
        let end = path.match_indices('/').nth(parts - 1);
        end.map_or(path, |(at, _)| &path[..at])
    }

    /// `path:line` of a byte of the code.
    pub(super) fn place(&self, at: usize) -> String {
        format!("{}:{}", self.path, 1 + self.code[..at].matches('\n').count())
    }

    /// Every word of the code, with its offset.
    pub(super) fn all_words(&self) -> impl Iterator<Item = (usize, &str)> {
        let split = self.code.split(|c: char| !c.is_alphanumeric() && c != '_');
        // The pieces are slices of the code, so the distance of their addresses is the offset.
        let start = self.code.as_ptr() as usize;
        split
            .filter(|word| !word.is_empty())
            .map(move |word| (word.as_ptr() as usize - start, word))
    }

    /// The offsets of `word` in the code as a whole word.
    pub(super) fn words(&self, word: &str) -> Vec<usize> {
        self.all_words().filter(|(_, w)| *w == word).map(|(at, _)| at).collect()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// The code and the comments of `text`, each with the rest replaced by spaces.
fn split(text: &str) -> (String, String) {
    let (mut code, mut comments) = (String::with_capacity(text.len()), String::with_capacity(text.len()));
    let mut rest = text;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let (kind, len) = token(rest, first, before);
        let (now, after) = rest.split_at(len);
        for c in now.chars() {
            let keep = |kept: Kind| if kind == kept || c == '\n' { c } else { ' ' };
            code.push(keep(Kind::Code));
            comments.push(keep(Kind::Comment));
        }
        before = now.chars().next_back().unwrap_or(' ');
        rest = after;
    }
    (code, comments)
}

/// The kind and length of the first token of `rest`; `before` is the character before it.
fn token(rest: &str, first: char, before: char) -> (Kind, usize) {
    let to = |end: Option<usize>| end.unwrap_or(rest.len());
    if rest.starts_with("//") {
        return (Kind::Comment, to(rest.find('\n')));
    }
    if rest.starts_with("/*") {
        return (Kind::Comment, block_comment(rest));
    }
    if first == '"' {
        return (Kind::Literal, quoted(rest, '"'));
    }
    if first == '\'' {
        // A character literal, unless it is a lifetime or a label, which have no closing quote after one character.
        let mut next = rest[1..].chars();
        let (one, two) = (next.next(), next.next());
        let character = one == Some('\\') || two == Some('\'');
        return if character {
            (Kind::Literal, quoted(rest, '\''))
        } else {
            (Kind::Code, 1)
        };
    }
    let word = |c: char| c.is_alphanumeric() || c == '_';
    if !word(before) && (first == 'r' || rest.starts_with("br") || rest.starts_with("cr")) {
        let hashes = rest.trim_start_matches(['b', 'c', 'r']);
        let n = hashes.len() - hashes.trim_start_matches('#').len();
        let prefix = rest.len() - hashes.len();
        if prefix <= 2 && hashes[n..].starts_with('"') {
            let open = prefix + n + 1;
            let close = format!("\"{}", "#".repeat(n));
            return (
                Kind::Literal,
                to(rest[open..].find(&close).map(|at| open + at + close.len())),
            );
        }
    }
    (Kind::Code, first.len_utf8())
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_and_strings_are_not_code() {
        let text = "let a = \"unsafe \\\" unsafe\"; // unsafe\n/* unsafe /* unsafe */ unsafe */ let b = r#\"unsafe \" \"#;\n\
                    let c = '\"'; let d: &'static str = \"unsafe\"; let e = '\\''; unsafe { f() }";
        let source = Source::new(&File {
            path: "crates/nn/src/lib.rs".into(),
            text: text.into(),
        });
        let found: Vec<_> = source.words("unsafe").iter().map(|&at| source.place(at)).collect();
        assert_eq!(found, ["crates/nn/src/lib.rs:3"]);
        assert_eq!(source.comments.matches("unsafe").count(), 4);
        assert_eq!(source.krate(), "nn");
    }

    #[test]
    fn a_word_is_not_its_part() {
        let source = Source::new(&File {
            path: "xtask/src/main.rs".into(),
            text: "fn unsafe_op() { not_unsafe(); }".into(),
        });
        assert!(source.words("unsafe").is_empty());
        assert_eq!(source.krate(), "xtask");
    }

    #[test]
    fn a_crate_in_a_folder_of_several_has_both_names() {
        let source = Source::new(&File {
            path: "crates/emulator/ptx/src/lib.rs".into(),
            text: String::new(),
        });
        assert_eq!(source.krate(), "emulator/ptx");
    }
}
