//! HTML that cannot be written unescaped: only literals of this program reach the page as they are.

use std::fmt::{self, Display, Write};

/// A growing piece of HTML or SVG.
#[derive(Debug, Default)]
pub(super) struct Markup {
    html: String,
}

/// Attributes of an element; the values are escaped when written.
pub(super) type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

impl Markup {
    /// Appends a literal as it is.
    pub(super) fn raw(&mut self, literal: &'static str) {
        self.html.push_str(literal);
    }

    /// Appends text.
    pub(super) fn text(&mut self, text: impl Display) {
        // Writing to a String cannot fail, and neither can the numbers and strings that are passed here.
        let _ = write!(Escape(&mut self.html), "{text}");
    }

    /// Appends a start tag.
    pub(super) fn open(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.html.push('<');
        self.html.push_str(name);
        for (key, value) in attributes {
            self.html.push(' ');
            self.html.push_str(key);
            self.html.push_str("=\"");
            self.text(value);
            self.html.push('"');
        }
        self.html.push('>');
    }

    /// Appends an end tag.
    pub(super) fn close(&mut self, name: &'static str) {
        self.html.push_str("</");
        self.html.push_str(name);
        self.html.push('>');
    }

    /// Appends an element that holds nothing but text.
    pub(super) fn element(&mut self, name: &'static str, attributes: Attributes<'_>, text: impl Display) {
        self.open(name, attributes);
        self.text(text);
        self.close(name);
    }

    /// Appends JSON as data that the page's script finds by `id`. `<` is written as its escape: nothing in it
    /// can end the element, and as no writer of JSON escapes that character, what is read back by undoing it
    /// is the very text.
    pub(super) fn json(&mut self, id: &'static str, json: &str) {
        self.open("script", &[("type", &"application/json"), ("id", &id)]);
        self.html.push_str(&json.replace('<', "\\u003c"));
        self.close("script");
    }

    /// The finished piece.
    pub(super) fn finish(self) -> String {
        self.html
    }
}

/// Escapes for element content and for attributes in double or single quotes alike. Control characters, which
/// a device is free to put into its model number and a parser may reject or a viewer obey, become U+FFFD.
struct Escape<'a>(&'a mut String);

impl Write for Escape<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' => self.0.push('\n'),
                other if is_unprintable(other) => self.0.push(char::REPLACEMENT_CHARACTER),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

/// Control characters, and the invisible ones that reverse the direction of the text around them.
pub(super) fn is_unprintable(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}
