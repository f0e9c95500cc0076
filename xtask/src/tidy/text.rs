//! Checks of any text: words, emoji, white space.

/// Words that mark unfinished work. In halves, so that this file passes its own check.
const LEFTOVERS: &[&str] =
    &[concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X"), concat!("HA", "CK")];

/// Paths that exist on one machine only.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/fa", "rm/"), concat!("../sha", "red"), concat!("/ro", "ot/")];

/// Words that belong to a chat and not to a tree.
const CHAT: &[&str] = &[
    concat!("assis", "tant"),
    concat!("assis", "tants"),
    concat!("clau", "de"),
    concat!("chat", "gpt"),
    concat!("as an", " ai"),
];

/// Texts that others wrote and that stay byte for byte: white space at the end of a line is theirs.
fn is_foreign(path: &str) -> bool {
    path.split('/').any(|part| part == "vectors" || part == "seeds") || path.starts_with("LICENSE-")
}

/// Problems of the text file `path`.
pub(super) fn check(path: &str, content: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let foreign = is_foreign(path);
    // Not `lines`, which would take the carriage returns away.
    for (index, line) in content.split('\n').enumerate() {
        let mut problem = |what: String| problems.push(format!("{path}:{}: {what}", index + 1));
        if !foreign && line.ends_with([' ', '\t', '\r']) {
            problem("white space at the end of the line".to_owned());
        }
        if let Some(c) = line.chars().find(|&c| is_emoji(c)) {
            problem(format!("emoji U+{:04X}; say it in words", u32::from(c)));
        }
        if let Some(found) = MACHINE_PATHS.iter().find(|part| line.contains(**part)) {
            problem(format!("`{found}` exists on one machine only"));
        }
        let lower = line.to_lowercase();
        if let Some(found) = CHAT.iter().find(|word| has_word(&lower, word)) {
            problem(format!("`{found}` does not belong in the tree"));
        }
        // Of Rust only the comments are looked at, where a pattern of a file name cannot be meant.
        if !foreign && !path.ends_with(".rs") {
            problems.extend(leftover_word(line).map(|word| format!("{path}:{}: {word}", index + 1)));
        }
    }
    problems
}

/// A word in `line` that marks unfinished work.
pub(super) fn leftover_word(line: &str) -> Option<&'static str> {
    LEFTOVERS.iter().copied().find(|word| has_word(line, word))
}

/// Whether `word` is in `line` with no letter or digit on either side.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        [before, after].into_iter().flatten().all(|c| !(c.is_alphanumeric() || c == '_'))
    })
}

/// Characters that are shown as pictures, and the marks that turn others into pictures.
fn is_emoji(c: char) -> bool {
    matches!(u32::from(c),
        0x1F000..=0x1FAFF
        | 0x2600..=0x27BF
        | 0x231A..=0x231B
        | 0x23E9..=0x23FA
        | 0x2B05..=0x2B07
        | 0x2B1B..=0x2B1C
        | 0x2B50
        | 0x2B55
        | 0x3030
        | 0x303D
        | 0x3297
        | 0x3299
        | 0x200D
        | 0x20E3
        | 0xFE0F)
}

#[cfg(test)]
mod tests {
    use super::{CHAT, LEFTOVERS, MACHINE_PATHS, check};

    #[test]
    fn plain_text_passes() {
        assert!(
            check("README.md", "A line, an arrow \u{2192}, a box \u{2500}, 5 \u{b5}s.\n\nOf work / rest.\n")
                .is_empty()
        );
    }

    #[test]
    fn white_space_at_the_end_of_a_line_is_a_problem_except_in_foreign_files() {
        assert_eq!(check("a.md", "one\ntwo \n"), ["a.md:2: white space at the end of the line"]);
        assert_eq!(check("a.sh", "one\r\n").len(), 1);
        assert!(check("tests/vectors/id.txt", "captured \n").is_empty());
    }

    #[test]
    fn an_emoji_is_a_problem_everywhere() {
        for emoji in ["\u{1F680}", "\u{2705}", "\u{26A0}\u{FE0F}", "\u{2B50}"] {
            assert_eq!(check("tests/vectors/id.txt", emoji).len(), 1, "{emoji}");
        }
    }

    #[test]
    fn each_forbidden_path_and_word_is_found() {
        for path in MACHINE_PATHS {
            assert_eq!(check("a.rs", &format!("see {path}x")).len(), 1, "{path}");
        }
        for word in CHAT {
            assert_eq!(check("a.rs", &format!("// The {}.", word.to_uppercase())).len(), 1, "{word}");
            assert!(check("a.rs", &format!("x{word}y")).is_empty(), "part of another word: {word}");
        }
    }

    #[test]
    fn marks_of_unfinished_work_are_found_as_whole_words() {
        for word in LEFTOVERS {
            assert_eq!(check("a.sh", &format!("# {word}: later")).len(), 1, "{word}");
            assert!(check("a.sh", &format!("mktemp a.{word}{word}")).is_empty(), "{word}");
        }
    }
}
