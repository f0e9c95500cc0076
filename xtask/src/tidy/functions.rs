//! Finds functions and how many lines they span.

/// One function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    /// Line of its `fn`, counted from 1.
    pub(crate) line: usize,
    /// Lines from its `fn` to its closing brace, both included.
    pub(crate) lines: usize,
}

/// The functions in `code`, which has no comments and no literal contents ([`super::lex::split`]).
pub(crate) fn functions(code: &str) -> Vec<Function<'_>> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn") {
        let alone = !code[..at].ends_with(is_word) && code[at + 2..].starts_with(char::is_whitespace);
        let after = code[at + 2..].trim_start();
        let name_length = after.find(|c| !is_word(c)).unwrap_or(after.len());
        // `fn (` would be a pointer type, which has no name; `r#` is part of a raw one.
        if !alone || name_length == 0 || code[..at].ends_with("r#") {
            continue;
        }
        let start = code.len() - after.len();
        let Some(end) = body_end(code, start + name_length) else { continue };
        let line = 1 + newlines(&code[..at]);
        found.push(Function {
            name: &code[start..start + name_length],
            line,
            lines: 1 + newlines(&code[at..end]),
        });
    }
    found
}

/// Where the body of the function whose signature goes on at `from` ends; `None` if it has no body.
fn body_end(code: &str, from: usize) -> Option<usize> {
    let mut inside = 0usize;
    let mut braces = 0usize;
    for (offset, byte) in code[from..].bytes().enumerate() {
        match byte {
            b'(' | b'[' => inside += 1,
            b')' | b']' => inside = inside.saturating_sub(1),
            b';' if inside == 0 && braces == 0 => return None,
            // A brace inside brackets of the signature is a constant: `[u8; { N + 1 }]`.
            b'{' if braces > 0 || inside == 0 => braces += 1,
            b'}' if braces > 0 => {
                braces -= 1;
                if braces == 0 {
                    return Some(from + offset);
                }
            }
            _ => {}
        }
    }
    None
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|&byte| byte == b'\n').count()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::super::lex;
    use super::functions;

    fn spans(source: &str) -> Vec<(String, usize, usize)> {
        let split = lex::split(source);
        functions(&split.code).into_iter().map(|f| (f.name.to_owned(), f.line, f.lines)).collect()
    }

    #[test]
    fn a_function_spans_from_its_keyword_to_its_closing_brace() {
        assert_eq!(spans("\n/// Doc.\npub fn one() {\n    let x = 1;\n}\n"), [("one".to_owned(), 3, 3)]);
        assert_eq!(spans("fn a() {} fn b() {}"), [("a".to_owned(), 1, 1), ("b".to_owned(), 1, 1)]);
    }

    #[test]
    fn braces_in_strings_characters_and_comments_do_not_count() {
        let source = "fn f<'a>(x: &'a str) {\n    // }\n    let y = \"}\\\"}\";\n    let z = '}';\n    r#\"}\"#;\n}\n}";
        assert_eq!(spans(source), [("f".to_owned(), 1, 6)]);
    }

    #[test]
    fn nested_functions_count_in_both() {
        let source = "fn outer() {\n    fn inner() {\n    }\n    match x { _ => {} }\n}";
        assert_eq!(spans(source), [("outer".to_owned(), 1, 5), ("inner".to_owned(), 2, 2)]);
    }

    #[test]
    fn declarations_and_pointer_types_have_no_body() {
        assert_eq!(
            spans("trait T { fn a(&self); fn b(x: [u8; 4]); }\ntype F = fn(u8) -> u8;\nlet often = 1;"),
            []
        );
        assert_eq!(spans("struct S { f: fn (u8), r#fn: u8 }"), []);
    }

    #[test]
    fn a_constant_in_the_signature_is_not_the_body() {
        assert_eq!(spans("fn f(a: [u8; { 1 + 1 }])\n{\n    a;\n}"), [("f".to_owned(), 1, 4)]);
    }

    #[test]
    fn an_unclosed_body_is_left_to_the_compiler() {
        assert_eq!(spans("fn f() {"), []);
    }
}
