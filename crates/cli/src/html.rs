//! HTML that is also XML: every element is closed, and every text is escaped.

use kiln_files::is_printable;
use std::fmt::{Display, Write as _};

/// Elements that have no end tag in HTML.
const VOID: [&str; 2] = ["meta", "img"];

/// An element with what is inside of it.
pub(crate) struct Tag {
    name: &'static str,
    attributes: String,
    inside: String,
}

/// The text with the characters of markup escaped, and those that no page shows.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c == '\n' || is_printable(c) => out.push(c),
            c => out.extend(c.escape_unicode()),
        }
    }
    out
}

/// An element without attributes and without contents.
pub(crate) fn tag(name: &'static str) -> Tag {
    Tag {
        name,
        attributes: String::new(),
        inside: String::new(),
    }
}

impl Tag {
    /// Adds an attribute.
    pub(crate) fn attr(mut self, name: &str, value: impl Display) -> Self {
        // Writing to a string cannot fail.
        let _ = write!(self.attributes, " {name}=\"{}\"", escaped(&value.to_string()));
        self
    }

    /// Adds the attribute `class`.
    pub(crate) fn class(self, name: &str) -> Self {
        self.attr("class", name)
    }

    /// Adds text.
    pub(crate) fn text(mut self, text: impl Display) -> Self {
        self.inside += &escaped(&text.to_string());
        self
    }

    /// Adds an element.
    pub(crate) fn with(mut self, inner: Tag) -> Self {
        self.inside += &inner.to_string();
        self
    }

    /// Adds elements.
    pub(crate) fn each(self, inner: impl IntoIterator<Item = Tag>) -> Self {
        inner.into_iter().fold(self, Tag::with)
    }
}

impl Display for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tag {
            name,
            attributes,
            inside,
        } = self;
        match VOID.contains(name) {
            true => write!(f, "<{name}{attributes}/>"),
            false => write!(f, "<{name}{attributes}>{inside}</{name}>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let made = tag("p").attr("title", "a\"b").text("x < y & \u{1b}").with(tag("i"));
        assert_eq!(
            made.to_string(),
            "<p title=\"a&quot;b\">x &lt; y &amp; \\u{1b}<i></i></p>"
        );
        assert_eq!(tag("img").attr("alt", "").to_string(), "<img alt=\"\"/>");
    }
}
