//! The text of a configuration as a tree that keeps places and spelling.
//!
//! JSON with comments, as lenient as the guide's printed samples need and no more: a comma may be missing or
//! trail, quotes may be typographic, a value may be a bare word (`00FF`), and an array that was closed too
//! early goes on when an object follows it where a key should be.
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// Objects and arrays that can be within each other; a configuration has three.
const DEPTH_MAX: u32 = 8;

/// What is wrong at a place of the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Byte offset.
    pub(super) at: usize,
    /// The key it concerns, or the last one before it.
    pub(super) key: Option<String>,
    /// What is wrong and what was expected.
    pub(super) reason: String,
}

/// A value and where it starts.
#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) at: usize,
    pub(super) value: Value<'a>,
}

#[derive(Debug)]
pub(super) enum Value<'a> {
    /// In quotes.
    Text(String),
    /// Not in quotes, as it is spelled: a number, a bare mask, a constant.
    Word(&'a str),
    Object(Vec<Member<'a>>),
    Array(Vec<Node<'a>>),
}

impl Value<'_> {
    /// What a message calls it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Text(text) => format!("\"{}\"", shortened(text)),
            Self::Word(word) => format!("`{}`", shortened(word)),
            Self::Object(_) => "an object".into(),
            Self::Array(_) => "an array".into(),
        }
    }
}

/// Enough of a text for a message.
pub(super) fn shortened(text: &str) -> String {
    const SHOWN_CHARS: usize = 40;
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

/// A key with its value, and where the key starts.
#[derive(Debug)]
pub(super) struct Member<'a> {
    pub(super) at: usize,
    pub(super) key: String,
    pub(super) node: Node<'a>,
}

/// Reads a text that is one object.
pub(super) fn parse(text: &str) -> Result<Node<'_>, Fault> {
    let mut reader = Reader { text, rest: text, key: None };
    reader.blank()?;
    if reader.peek() != Some('{') {
        return Err(reader.fault(format!("expected `{{`, {}", reader.found())));
    }
    let root = reader.value(0)?;
    reader.blank()?;
    match reader.peek() {
        None => Ok(root),
        Some(_) => Err(reader.fault(format!("expected nothing after the last `}}`, {}", reader.found()))),
    }
}

/// Line, and column in bytes, both from 1.
pub(super) fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
    let line = before.matches('\n').count().saturating_add(1);
    (line, before.len().saturating_sub(line_start).saturating_add(1))
}

fn is_quote(c: char) -> bool {
    c == '"' || is_typographic_quote(c)
}

fn is_typographic_quote(c: char) -> bool {
    matches!(c, '\u{201c}'..='\u{201f}')
}

/// White space, also what text that was copied from a printed page has in its place.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{feff}' | '\u{200b}')
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.')
}

fn ends_in_array(members: &[Member<'_>]) -> bool {
    members.last().is_some_and(|member| matches!(member.node.value, Value::Array(_)))
}

struct Reader<'a> {
    text: &'a str,
    /// What was not read yet: a tail of `text`.
    rest: &'a str,
    /// The last key.
    key: Option<String>,
}

impl<'a> Reader<'a> {
    fn at(&self) -> usize {
        self.text.len().saturating_sub(self.rest.len())
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    fn fault(&self, reason: impl Into<String>) -> Fault {
        self.fault_at(self.at(), reason)
    }

    fn fault_at(&self, at: usize, reason: impl Into<String>) -> Fault {
        Fault { at, key: self.key.clone(), reason: reason.into() }
    }

    /// What is at this place, for a message.
    fn found(&self) -> String {
        match self.peek() {
            None => "and the file ends".into(),
            Some(c) if is_quote(c) => "found a string".into(),
            Some(c) if is_word(c) => format!("found `{}`", shortened(self.word_ahead())),
            Some(c) => format!("found `{}`", c.escape_debug()),
        }
    }

    /// Skips white space and comments.
    fn blank(&mut self) -> Result<(), Fault> {
        loop {
            self.rest = self.rest.trim_start_matches(is_blank);
            if let Some(comment) = self.rest.strip_prefix("//") {
                self.rest = comment.find('\n').and_then(|end| comment.get(end..)).unwrap_or("");
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                let Some((_, rest)) = comment.split_once("*/") else {
                    return Err(self.fault("the comment is not closed; expected `*/`"));
                };
                self.rest = rest;
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self, depth: u32) -> Result<Node<'a>, Fault> {
        let at = self.at();
        let depth = depth.saturating_add(1);
        let value = match self.peek() {
            Some('{' | '[') if depth > DEPTH_MAX => {
                return Err(self.fault(format!("more than {DEPTH_MAX} objects and arrays within each other")));
            }
            Some('{') => Value::Object(self.object(depth)?),
            Some('[') => Value::Array(self.array(depth)?),
            Some(c) if is_quote(c) => Value::Text(self.string()?),
            Some(c) if is_word(c) => Value::Word(self.word()?),
            Some('\'') => return Err(self.fault("a string is in double quotes")),
            _ => return Err(self.fault(format!("expected a value, {}", self.found()))),
        };
        Ok(Node { at, value })
    }

    fn object(&mut self, depth: u32) -> Result<Vec<Member<'a>>, Fault> {
        let open = self.at();
        self.next();
        let mut members: Vec<Member<'a>> = Vec::new();
        loop {
            self.blank()?;
            match self.peek() {
                Some('}') => {
                    self.next();
                    return Ok(members);
                }
                Some(c) if is_quote(c) => members.push(self.member(depth)?),
                Some('{') if ends_in_array(&members) => {
                    let element = self.value(depth)?;
                    if let Some(Value::Array(elements)) = members.last_mut().map(|m| &mut m.node.value) {
                        elements.push(element);
                    }
                }
                None => {
                    let (line, column) = place(self.text, open);
                    let reason =
                        format!("the file ends, and the `{{` of line {line}, column {column} is not closed");
                    return Err(self.fault(reason));
                }
                Some(c) if is_word(c) => return Err(self.word_for_key()),
                Some(_) => return Err(self.fault(format!("expected a key or `}}`, {}", self.found()))),
            }
            self.separator()?;
        }
    }

    fn member(&mut self, depth: u32) -> Result<Member<'a>, Fault> {
        let at = self.at();
        let key = self.string()?;
        self.key = Some(shortened(&key));
        self.blank()?;
        if self.peek() != Some(':') {
            return Err(self.fault(format!("expected `:` after the key, {}", self.found())));
        }
        self.next();
        self.blank()?;
        Ok(Member { at, key, node: self.value(depth)? })
    }

    fn array(&mut self, depth: u32) -> Result<Vec<Node<'a>>, Fault> {
        let open = self.at();
        self.next();
        let mut elements = Vec::new();
        loop {
            self.blank()?;
            match self.peek() {
                Some(']') => {
                    self.next();
                    return Ok(elements);
                }
                None => {
                    let (line, column) = place(self.text, open);
                    let reason =
                        format!("the file ends, and the `[` of line {line}, column {column} is not closed");
                    return Err(self.fault(reason));
                }
                Some('}' | ',' | ':') => {
                    return Err(self.fault(format!("expected a value or `]`, {}", self.found())));
                }
                Some(_) => elements.push(self.value(depth)?),
            }
            self.separator()?;
        }
    }

    /// A comma, or none: the guide's samples leave some out.
    fn separator(&mut self) -> Result<(), Fault> {
        self.blank()?;
        if self.peek() == Some(',') {
            self.next();
        }
        Ok(())
    }

    fn word_ahead(&self) -> &'a str {
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        self.rest.get(..end).unwrap_or("")
    }

    fn word(&mut self) -> Result<&'a str, Fault> {
        let word = self.word_ahead();
        if word.bytes().all(|b| b == b'.') {
            return Err(self.word_for_key());
        }
        self.rest = self.rest.get(word.len()..).unwrap_or("");
        Ok(word)
    }

    /// The fault of a bare word where a key should be.
    fn word_for_key(&self) -> Fault {
        let word = self.word_ahead();
        if word.bytes().all(|b| b == b'.') {
            return self.fault(format!("`{word}` stands for something left out; write it out or delete it"));
        }
        self.fault(format!("expected a key in double quotes, found `{}`", shortened(word)))
    }

    fn string(&mut self) -> Result<String, Fault> {
        let open = self.at();
        let typographic = self.next().is_some_and(is_typographic_quote);
        let mut text = String::new();
        loop {
            let at = self.at();
            match self.next() {
                None | Some('\n' | '\r') => {
                    return Err(self.fault_at(open, "the string is not closed on its line"));
                }
                Some('"') => return Ok(text),
                Some(c) if typographic && is_typographic_quote(c) => return Ok(text),
                Some('\\') => text.push(self.escape(at)?),
                Some(c) if c < ' ' => {
                    let code = u32::from(c);
                    let reason = format!("a control character in a string; write it as \\u{code:04x}");
                    return Err(self.fault_at(at, reason));
                }
                Some(c) => text.push(c),
            }
        }
    }

    /// What follows the backslash at `at`.
    fn escape(&mut self, at: usize) -> Result<char, Fault> {
        let wrong = "expected one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX";
        Ok(match self.next() {
            Some(c @ ('"' | '\\' | '/')) => c,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => return self.unicode_escape().ok_or_else(|| self.fault_at(at, wrong)),
            _ => return Err(self.fault_at(at, wrong)),
        })
    }

    /// The digits after `\u`, and the second half of a surrogate pair.
    fn unicode_escape(&mut self) -> Option<char> {
        let first = self.four_digits()?;
        if let Some(c) = char::from_u32(first.into()) {
            return Some(c);
        }
        self.rest = self.rest.strip_prefix("\\u")?;
        let pair = [first, self.four_digits()?];
        char::decode_utf16(pair).next()?.ok()
    }

    fn four_digits(&mut self) -> Option<u16> {
        let (digits, rest) = self.rest.split_at_checked(4)?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        self.rest = rest;
        u16::from_str_radix(digits, 16).ok()
    }
}

#[cfg(test)]
#[path = "syntax_tests.rs"]
mod tests;
