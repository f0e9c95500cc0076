//! `cargo xtask tidy`: ratchets that keep the tree readable.
//!
//! Looks at every file that git tracks or would track. Size limits have exceptions, one line each with a
//! reason (`xtask/tidy.allow`); an exception that is no longer needed is a problem too, so the list can only
//! shrink.

mod allow;
mod functions;
pub(crate) mod lex;
mod links;
mod safety;
mod text;
mod unused;
mod width;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use allow::Allowed;
use lex::Split;
use unused::Names;

const ALLOW_FILE: &str = "xtask/tidy.allow";
const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const FILE_BYTES_MAX: u64 = 2 << 20;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "types", "misc"];

/// Macros that mark unfinished work or a forgotten probe.
const LEFTOVER_MACROS: &[&str] = &["todo", "unimplemented", "dbg"];

/// Macros that print, and the crates that must leave the terminal to their callers.
const PRINT_MACROS: &[&str] = &["println", "print", "eprintln", "eprint"];
const SILENT: &[&str] = &[
    "crates/spec/src/",
    "crates/bus/src/",
    "crates/flash/src/",
    "crates/driver/src/",
    "crates/ssd/src/",
    "crates/sdk/src/",
    "crates/guide/src/",
    "crates/setup/src/",
];

pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let files = tracked_files(root)?;
    let allow_text = match fs::read_to_string(root.join(ALLOW_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).context(ALLOW_FILE),
    };
    let (mut allowed, mut problems) = Allowed::parse(ALLOW_FILE, &allow_text);
    let mut names = Names::default();
    for path in &files {
        problems.extend(name(path));
        let on_disk = root.join(path);
        let size = fs::metadata(&on_disk).with_context(|| path.clone())?.len();
        if size > FILE_BYTES_MAX {
            problems.push(format!("{path}: {size} bytes; a tracked file has at most {FILE_BYTES_MAX}"));
            continue;
        }
        let bytes = fs::read(&on_disk).with_context(|| path.clone())?;
        // What is not UTF-8 is data: a test vector, a picture.
        let Ok(content) = String::from_utf8(bytes) else { continue };
        problems.extend(text::check(path, &content));
        problems.extend(width::other(path, &content));
        if path.ends_with(".md") {
            problems.extend(links::check(path, &content, &files));
        }
        if path.ends_with(".rs") {
            let split = lex::split(&content);
            problems.extend(rust(path, &content, &split, &mut allowed));
            names.read(path, &content, &split);
        }
    }
    problems.extend(names.unused(&mut allowed));
    problems.extend(allowed.not_needed());
    Ok(problems)
}

/// Files that are tracked or would be, by their path from `root`, without links and what was deleted.
fn tracked_files(root: &Path) -> Result<BTreeSet<String>> {
    // Git refuses a checkout that belongs to another user unless it is named here; a build in a container has
    // one.
    let safe = format!("safe.directory={}", root.display());
    let output = Command::new("git")
        .args(["-c", &safe, "ls-files", "-co", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .context("running git (tidy asks it which files belong to the tree)")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let is_file = |path: &&str| fs::symlink_metadata(root.join(path)).is_ok_and(|meta| meta.is_file());
    Ok(names.split('\0').filter(|path| !path.is_empty()).filter(is_file).map(str::to_owned).collect())
}

fn name(path: &str) -> Option<String> {
    let part = path.split('/').find(|part| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or(part)))?;
    Some(format!("{path}: `{part}` names no concept; name the file after the one noun it holds"))
}

/// The checks of one Rust source.
fn rust(path: &str, content: &str, split: &Split, allowed: &mut Allowed) -> Vec<String> {
    let mut problems = Vec::new();
    let lines = content.lines().count();
    if let Some(limit) = allowed.exceeded(path, None, lines, FILE_LINES_MAX) {
        problems.push(format!(
            "{path}: {lines} lines, limit {limit}; split it by noun, or give a reason in {ALLOW_FILE}"
        ));
    }
    for function in functions::functions(&split.code) {
        if let Some(limit) = allowed.exceeded(path, Some(function.name), function.lines, FUNCTION_LINES_MAX) {
            problems.push(format!(
                "{path}:{}: fn {} has {} lines, limit {limit}; move arithmetic into leaves, or give a reason in {ALLOW_FILE}",
                function.line, function.name, function.lines
            ));
        }
    }
    for (index, line) in split.code.lines().enumerate() {
        let at = index + 1;
        if let Some(name) = calls_macro(line, LEFTOVER_MACROS) {
            problems.push(format!("{path}:{at}: {name}! is unfinished work; finish it or leave it out"));
        }
        if SILENT.iter().any(|folder| path.starts_with(folder))
            && let Some(name) = calls_macro(line, PRINT_MACROS)
        {
            problems.push(format!("{path}:{at}: {name}! in a library; return the text, or use `tracing`"));
        }
    }
    for (index, line) in split.comments.lines().enumerate() {
        problems.extend(
            text::leftover_word(line).map(|word| format!("{path}:{}: {word} in a comment", index + 1)),
        );
    }
    for (index, line) in content.lines().enumerate() {
        if line.contains('\t') {
            problems.push(format!("{path}:{}: tab; indent with spaces", index + 1));
        }
    }
    problems.extend(safety::check(path, split));
    problems.extend(width::rust(path, content, split));
    problems
}

/// The first of `macros` that `line`, which is code, calls.
fn calls_macro<'a>(line: &str, macros: &[&'a str]) -> Option<&'a str> {
    macros.iter().copied().find(|name| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let alone = before.is_none_or(|c| !(c.is_alphanumeric() || c == '_'));
            alone && line[at + name.len()..].starts_with('!')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::allow::Allowed;
    use super::{lex, name, rust};

    fn problems(path: &str, content: &str) -> Vec<String> {
        rust(path, content, &lex::split(content), &mut Allowed::parse("list", "").0)
    }

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn a_file_of_800_lines_passes_and_one_more_does_not() {
        assert!(problems("a.rs", &"// x\n".repeat(800)).is_empty());
        assert_eq!(
            problems("a.rs", &"// x\n".repeat(801)),
            ["a.rs: 801 lines, limit 800; split it by noun, or give a reason in xtask/tidy.allow"]
        );
    }

    #[test]
    fn a_function_of_70_lines_passes_and_one_more_does_not() {
        assert!(problems("a.rs", &function_of(70)).is_empty());
        let found = problems("a.rs", &function_of(71));
        assert!(found[0].starts_with("a.rs:1: fn long has 71 lines, limit 70"), "{found:?}");
    }

    #[test]
    fn an_exception_raises_the_limit_to_its_number_and_no_further() {
        let (mut allowed, errors) = Allowed::parse("list", "a.rs:long 80 a table of codes\n");
        assert!(errors.is_empty());
        let mut problems = |text: &str| rust("a.rs", text, &lex::split(text), &mut allowed);
        assert!(problems(&function_of(80)).is_empty());
        assert_eq!(problems(&function_of(81)).len(), 1);
        assert!(allowed.not_needed().is_empty());
    }

    #[test]
    fn unfinished_work_is_found_in_code_and_not_in_strings() {
        // Input of the check, not work that is left.
        assert_eq!(problems("a.rs", "fn f() { todo!() }").len(), 1);
        assert_eq!(problems("a.rs", "fn f() { std::unimplemented!(\"x\") }").len(), 1);
        assert_eq!(problems("a.rs", "fn f() { g(dbg!(x)) }").len(), 1);
        assert!(problems("a.rs", "const NAMES: &str = \"todo!\"; fn f() { my_todo!() }").is_empty());
    }

    #[test]
    fn libraries_do_not_print_and_the_command_line_may() {
        assert_eq!(problems("crates/ssd/src/lib.rs", "fn f() { println!(\"x\") }").len(), 1);
        assert_eq!(problems("crates/sdk/src/lib.rs", "fn f() { eprint!(\"x\") }").len(), 1);
        assert!(problems("crates/cli/src/main.rs", "fn f() { println!(\"x\") }").is_empty());
        assert!(problems("crates/ssd/src/lib.rs", "/// println!(\"x\")\nfn f() {}").is_empty());
    }

    #[test]
    fn a_tab_in_a_source_is_a_problem() {
        assert_eq!(problems("a.rs", "fn f() {\n\tg();\n}"), ["a.rs:2: tab; indent with spaces"]);
    }

    #[test]
    fn a_file_or_folder_without_a_concept_in_its_name_is_a_problem() {
        assert!(name("crates/ssd/src/utils.rs").is_some());
        assert!(name("crates/ssd/tests/common/mod.rs").is_some());
        assert!(name("crates/spec/src/status.rs").is_none());
        assert!(name("crates/ssd/src/commonality.rs").is_none());
    }
}
