//! Every unsafe block says why it is sound, in a comment that touches it.

use super::lex::Split;

/// Unsafe blocks and unsafe impls in `split` without a `SAFETY:` comment.
pub(super) fn check(path: &str, split: &Split) -> Vec<String> {
    let code: Vec<&str> = split.code.lines().collect();
    let comments: Vec<&str> = split.comments.lines().collect();
    let mut problems = Vec::new();
    for (at, keyword) in split.code.match_indices("unsafe") {
        let end = at + keyword.len();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if split.code[..at].ends_with(is_word) || split.code[end..].starts_with(is_word) {
            continue;
        }
        let next = split.code[end..].trim_start();
        if !next.starts_with('{') && !next.starts_with("impl") {
            continue;
        }
        let line = split.code[..at].bytes().filter(|&byte| byte == b'\n').count();
        if !explained(&code, &comments, line) {
            problems
                .push(format!("{path}:{}: unsafe without a `// SAFETY:` comment directly above", line + 1));
        }
    }
    problems
}

/// Whether line `line` (from 0), or the comment right above the statement it belongs to, says `SAFETY:`.
fn explained(code: &[&str], comments: &[&str], line: usize) -> bool {
    if comments[line].contains("SAFETY:") {
        return true;
    }
    for above in (0..line).rev() {
        let text = code[above].trim();
        if text.is_empty() {
            // A comment line, which may be one of several, or an empty line, which ends the search.
            if comments[above].contains("SAFETY:") {
                return true;
            }
            if comments[above].trim().is_empty() {
                return false;
            }
        } else if text.ends_with([';', '{', '}', ',']) {
            return false;
        }
        // Otherwise an attribute, or the beginning of the same statement: `let x =`.
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::lex;
    use super::check;

    fn lines(source: &str) -> Vec<String> {
        check("a.rs", &lex::split(source))
            .into_iter()
            .map(|p| p.split(": ").next().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_block_with_its_reason_right_above_or_beside_passes() {
        assert!(lines("// SAFETY: it is.\nunsafe { f() }").is_empty());
        assert!(lines("// SAFETY: it is, for a reason\n// of two lines.\nunsafe { f() }").is_empty());
        assert!(lines("// SAFETY: it is.\nlet x =\n    unsafe { f() };").is_empty());
        assert!(lines("// SAFETY: it is.\n#[inline]\nunsafe impl Send for X {}").is_empty());
        assert!(lines("let x = /* SAFETY: it is. */ unsafe { f() };").is_empty());
    }

    #[test]
    fn a_block_without_a_reason_or_with_one_for_another_statement_fails() {
        assert_eq!(lines("fn f() {\n    unsafe { g() }\n}"), ["a.rs:2"]);
        assert_eq!(lines("// SAFETY: of this one.\nunsafe { f() };\nunsafe { g() };"), ["a.rs:3"]);
        assert_eq!(lines("// SAFETY: too far away.\n\nunsafe { f() }"), ["a.rs:3"]);
        assert_eq!(lines("// It is safe.\nunsafe { f() }"), ["a.rs:2"]);
        assert_eq!(lines("unsafe impl Send for X {}"), ["a.rs:1"]);
    }

    #[test]
    fn the_word_elsewhere_is_not_a_block() {
        assert!(
            lines("#![forbid(unsafe_code)]\n// unsafe { }\nlet x = \"unsafe {\";\nunsafe fn f() {}")
                .is_empty()
        );
    }
}
