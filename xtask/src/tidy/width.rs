//! How wide comments and prose may be: a paragraph is read by eyes that have to find the next line.

use super::lex::Split;

/// Columns of a line that is a comment and nothing else, its indentation included.
const COMMENT_COLUMNS_MAX: usize = 110;
/// Columns of a line of Markdown.
const PROSE_COLUMNS_MAX: usize = 130;

/// Comment lines of the Rust source `path` that are too wide.
pub(super) fn rust(path: &str, content: &str, split: &Split) -> Vec<String> {
    let is_comment = split.code.lines().zip(split.comments.lines());
    let is_comment = is_comment.map(|(code, comment)| code.trim().is_empty() && !comment.trim().is_empty());
    too_wide(path, content.lines().zip(is_comment), COMMENT_COLUMNS_MAX)
}

/// The same of a source in another language, or of prose; which it is, the name of the file says.
pub(super) fn other(path: &str, content: &str) -> Vec<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let lines = content.lines();
    if path.ends_with(".md") {
        let mut is_fenced = false;
        let is_prose = lines.map(|line| {
            let text = line.trim_start();
            is_fenced ^= text.starts_with("```");
            // Tables and the targets of links cannot be wrapped.
            (line, !is_fenced && !text.starts_with('|') && !line.contains("]("))
        });
        too_wide(path, is_prose, PROSE_COLUMNS_MAX)
    } else if path.ends_with(".c") || path.ends_with(".h") {
        let marks = ["//", "/*", "* ", "*/"];
        let is_comment =
            lines.map(|line| (line, marks.iter().any(|mark| line.trim_start().starts_with(mark))));
        too_wide(path, is_comment, COMMENT_COLUMNS_MAX)
    } else if path.ends_with(".sh") || name.starts_with("Makefile") {
        too_wide(path, lines.map(|line| (line, line.trim_start().starts_with('#'))), COMMENT_COLUMNS_MAX)
    } else {
        Vec::new()
    }
}

/// Problems of lines that count, by their number of characters.
fn too_wide<'a>(path: &str, lines: impl Iterator<Item = (&'a str, bool)>, most: usize) -> Vec<String> {
    let mut problems = Vec::new();
    for (index, (line, counts)) in lines.enumerate() {
        let columns = line.chars().count();
        if counts && columns > most {
            problems
                .push(format!("{path}:{}: {columns} columns, limit {most}; wrap the paragraph", index + 1));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::lex;
    use super::{other, rust};

    fn problems(content: &str) -> Vec<String> {
        rust("a.rs", content, &lex::split(content))
    }

    #[test]
    fn a_comment_of_110_columns_passes_and_one_more_does_not() {
        let comment = |columns: usize| format!("    /// {}\nfn f() {{}}\n", "x".repeat(columns - 8));
        assert!(problems(&comment(110)).is_empty());
        assert_eq!(problems(&comment(111)), ["a.rs:1: 111 columns, limit 110; wrap the paragraph"]);
        assert!(problems(&format!("// {}", "\u{b5}".repeat(107))).is_empty(), "characters, not bytes");
    }

    #[test]
    fn code_strings_and_what_stands_behind_code_are_left_to_the_formatter() {
        let wide = "x".repeat(120);
        assert!(problems(&format!("let a = \"\n// {wide}\n\";")).is_empty());
        assert!(problems(&format!("f(); // {wide}")).is_empty());
        assert_eq!(problems(&format!("/*\n{wide}\n*/")).len(), 1);
    }

    #[test]
    fn other_languages_are_known_by_their_names() {
        let wide = "x".repeat(120);
        for (path, mark) in [("a.c", " * "), ("a.h", "/* "), ("a.sh", "# "), ("b/Makefile", "# ")] {
            assert_eq!(other(path, &format!("{mark}{wide}")).len(), 1, "{path}");
            assert!(other(path, &wide).is_empty(), "{path}");
        }
        assert!(other("a.c", &format!("*p = {wide};")).is_empty());
        assert!(other("a.json", &format!("# {wide}")).is_empty());
    }

    #[test]
    fn prose_has_130_columns_but_for_tables_links_and_fences() {
        let wide = "x".repeat(131);
        assert_eq!(other("a.md", &wide).len(), 1);
        assert!(other("a.md", &"x".repeat(130)).is_empty());
        for exempt in [format!("| {wide} |"), format!("[a]({wide})"), format!("```\n{wide}\n```")] {
            assert!(other("a.md", &exempt).is_empty(), "{exempt}");
        }
    }
}
