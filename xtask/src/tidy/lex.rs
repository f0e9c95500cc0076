//! Splits Rust source into code and comments.
//!
//! Not a parser: it knows only where comments, strings and characters begin and end, which is what the checks
//! need so as not to find a word or a brace where it means nothing.

/// One source text, twice, each as long as the original and with its line breaks in place.
pub(crate) struct Split {
    /// The source with comments and the contents of string and character literals blanked.
    pub(crate) code: String,
    /// The source with everything but comments blanked.
    pub(crate) comments: String,
}

/// Splits `source`. Text that does not lex (an open string) counts as a literal to the end.
pub(crate) fn split(source: &str) -> Split {
    let mut lexer = Lexer { source: source.as_bytes(), at: 0, code: Vec::new(), comments: Vec::new() };
    while lexer.at < lexer.source.len() {
        lexer.step();
    }
    // Bytes outside ASCII were blanked wherever they were cut apart, so both are UTF-8.
    Split {
        code: String::from_utf8_lossy(&lexer.code).into_owned(),
        comments: String::from_utf8_lossy(&lexer.comments).into_owned(),
    }
}

/// The words and punctuation of `code`, which has no comments and no contents of literals.
pub(crate) fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_letter(first) {
            rest.find(|c| !is_letter(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        found.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    found
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Lexer<'a> {
    source: &'a [u8],
    at: usize,
    code: Vec<u8>,
    comments: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Code,
    Comment,
    Literal,
}

impl Lexer<'_> {
    fn step(&mut self) {
        let rest = &self.source[self.at..];
        if rest.starts_with(b"//") {
            let length = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            self.take(length, Part::Comment);
        } else if rest.starts_with(b"/*") {
            self.take(block_comment(rest), Part::Comment);
        } else if rest[0] == b'"' {
            self.literal(quoted(rest, b'"'));
        } else if rest[0] == b'\'' {
            match character(rest) {
                Some(length) => self.literal(length),
                None => self.take(1, Part::Code),
            }
        } else if is_word(rest[0]) {
            self.word();
        } else {
            self.take(1, Part::Code);
        }
    }

    /// An identifier, a number, or the prefix of a raw string: `r`, `br` or `cr`, before any number of `#`.
    fn word(&mut self) {
        let rest = &self.source[self.at..];
        let length = rest.iter().position(|&byte| !is_word(byte)).unwrap_or(rest.len());
        let hashes = rest[length..].iter().take_while(|&&byte| byte == b'#').count();
        let opens = rest.get(length + hashes) == Some(&b'"');
        if !(opens && matches!(&rest[..length], b"r" | b"br" | b"cr")) {
            self.take(length, Part::Code);
            return;
        }
        let body = length + hashes + 1;
        let mut closing = vec![b'"'];
        closing.resize(hashes + 1, b'#');
        let end = rest[body..].windows(closing.len()).position(|window| window == closing);
        self.take(length + hashes, Part::Code);
        self.literal(end.map_or(rest.len(), |at| body + at + closing.len()) - length - hashes);
    }

    /// The delimiters of a literal stay in the code, so that `""` still separates two words. An open one has
    /// no closing delimiter to keep.
    fn literal(&mut self, length: usize) {
        let last = self.source[self.at + length - 1];
        let closing = usize::from(length > 1 && matches!(last, b'"' | b'\'' | b'#'));
        self.take(1, Part::Code);
        self.take(length - 1 - closing, Part::Literal);
        self.take(closing, Part::Code);
    }

    fn take(&mut self, length: usize, part: Part) {
        let end = (self.at + length).min(self.source.len());
        for &byte in &self.source[self.at..end] {
            let keep = |wanted: Part| if part == wanted || byte == b'\n' { byte } else { b' ' };
            self.code.push(keep(Part::Code));
            self.comments.push(keep(Part::Comment));
        }
        self.at = end;
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Length of the block comment that `text` starts with; they nest.
fn block_comment(text: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at.min(text.len())
}

/// Length of the literal that `text` starts with, up to and with the unescaped `quote` that closes it.
fn quoted(text: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Length of the character literal that `text` starts with, or `None` if its quote starts a lifetime.
fn character(text: &[u8]) -> Option<usize> {
    match *text.get(1)? {
        b'\\' => Some(quoted(text, b'\'')),
        first => {
            let width = match first {
                0x00..=0x7f => 1,
                0x80..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xff => 4,
            };
            (text.get(1 + width) == Some(&b'\'')).then_some(width + 2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn comments_leave_the_code_and_strings_leave_both() {
        let split = split("let a = \"// {\"; // tail }\nlet b;");
        assert_eq!(split.code, "let a = \"    \";          \nlet b;");
        assert_eq!(split.comments, "                // tail }\n      ");
    }

    #[test]
    fn block_comments_nest_and_keep_their_line_breaks() {
        let split = split("a /* x /* y */\n z */ b");
        assert_eq!(split.code, "a             \n      b");
    }

    #[test]
    fn a_lifetime_is_code_and_a_character_is_not() {
        assert_eq!(
            split("fn f<'a>(x: &'a str) { '{'; '\\''; '\u{e9}'; b'}' }").code.matches(['{', '}']).count(),
            2
        );
        assert!(split("impl<'a, 'b> X<'a> for Y<'b> {").code.ends_with('{'));
    }

    #[test]
    fn escapes_do_not_close_a_string() {
        assert_eq!(split(r#"f("\"{"); g("\\");"#).code, r#"f("   "); g("  ");"#);
    }

    #[test]
    fn raw_strings_end_at_as_many_hashes_as_they_began_with() {
        assert_eq!(split("r#\"a\"{\"# }").code, "r#\"    # }");
        assert_eq!(split("br##\"\"# {\"## x").code.matches('{').count(), 0);
        assert!(split("let r#fn = r\"\\\"; x").code.ends_with("; x"));
    }

    #[test]
    fn an_open_literal_or_comment_runs_to_the_end() {
        for open in ["\"{", "r#\"{\"", "/* {", "'\\"] {
            let code = split(open).code;
            assert_eq!(code.len(), open.len());
            assert!(!code.contains('{'), "{open}");
        }
    }
}
