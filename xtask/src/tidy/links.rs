//! Relative links of Markdown files lead to files of the tree.

use std::collections::BTreeSet;

/// Links in the Markdown file `path` that lead to nothing in `files`.
pub(super) fn check(path: &str, content: &str, files: &BTreeSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut fenced = false;
    for (index, line) in content.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") || start.starts_with("~~~") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        for target in targets(&without_code(line)) {
            if !leads_somewhere(path, &target, files) {
                problems.push(format!("{path}:{}: link to `{target}`, which is not in the tree", index + 1));
            }
        }
    }
    problems
}

/// `line` with its `code spans` blanked.
fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let last = parts.len() - 1;
    // A last opening tick that nothing closes is an ordinary character.
    parts.iter().enumerate().map(|(i, part)| if i % 2 == 0 || i == last { *part } else { "" }).collect()
}

/// The targets of `[text](target "title")`, `![alt](target)` and `[name]: target` in one line.
fn targets(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, opening) in line.match_indices("](") {
        let rest = &line[at + opening.len()..];
        let mut depth = 1;
        let end = rest.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        found.extend(end.map(|end| first_word(&rest[..end])));
    }
    if line.starts_with('[')
        && let Some((name, target)) = line.split_once("]:")
        && !name.starts_with("[^")
        && !name.contains(']')
    {
        found.push(first_word(target));
    }
    found
}

/// A target without its title and its angle brackets.
fn first_word(text: &str) -> String {
    let text = text.trim();
    match text.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((target, _)) => target.to_owned(),
        None => text.split_whitespace().next().unwrap_or_default().to_owned(),
    }
}

fn leads_somewhere(from: &str, target: &str, files: &BTreeSet<String>) -> bool {
    let path = target.split('#').next().unwrap_or_default();
    if path.contains("://") || path.starts_with("mailto:") {
        return true;
    }
    if path.is_empty() {
        // `#section` stays in this file; `()` leads nowhere.
        return target.starts_with('#');
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if path.starts_with('/') {
        parts.clear();
    }
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return false;
                }
            }
            part => parts.push(part),
        }
    }
    let wanted = parts.join("/").replace("%20", " ");
    let folder = format!("{wanted}/");
    wanted.is_empty() || files.contains(&wanted) || files.iter().any(|file| file.starts_with(&folder))
}

#[cfg(test)]
mod tests {
    use super::check;

    fn problems(content: &str) -> Vec<String> {
        let files = ["README.md", "docs/testing.md", "docs/decisions/0001.md", "docs/a b.png"];
        check("docs/testing.md", content, &files.map(str::to_owned).into())
    }

    #[test]
    fn links_to_files_folders_sections_and_the_web_pass() {
        for good in [
            "[a](testing.md) and [b](../README.md#top)",
            "[a](decisions)",
            "[a](decisions/0001.md \"Title\")",
            "[a](/docs/testing.md)",
            "![a](<a b.png>) ![b](a%20b.png)",
            "[a](#section) [b](https://example.org/x.md) [c](mailto:a@example.org)",
            "[name]: ../README.md",
            "[^1]: a footnote",
        ] {
            assert_eq!(problems(good), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn a_link_to_nothing_names_its_line_and_target() {
        assert_eq!(
            problems("one\n[a](gone.md#x)"),
            ["docs/testing.md:2: link to `gone.md#x`, which is not in the tree"]
        );
        for bad in ["[a](../gone)", "[a](../../README.md)", "[a]()", "[name]: gone.md", "![a](a_(b).png)"] {
            assert_eq!(problems(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn code_is_not_searched_for_links() {
        assert!(problems("`[a](gone.md)` and\n```\n[b](gone.md)\n```").is_empty());
        assert_eq!(problems("a ` tick and [a](gone.md)").len(), 1);
    }
}
