//! `cargo xtask capi`: the C headers, the version script and the library say the same.
//!
//! Every function that a header declares is in the version script and the other way round. Given a shared
//! library as a further argument, what it exports is compared with the version script, too.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

const HEADERS: &str = "crates/capi/include";
const SCRIPT: &str = "crates/capi/unvme.map";
/// The version node that every symbol has.
const VERSION: &str = "UNVME_1.0";

/// Names that programs of the original SDK define themselves: exporting them would take them away from each
/// other.
const FORBIDDEN: &[&str] = &[
    "kv_nvme_store",
    "kv_nvme_store_async",
    "kv_nvme_retrieve",
    "kv_nvme_retrieve_async",
    "mutex",
    "handle",
    "submit_cnt",
    "cb_cnt",
    "threadid",
];

pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut declared = BTreeSet::new();
    for header in headers(&root.join(HEADERS))? {
        let text = fs::read_to_string(&header).with_context(|| header.display().to_string())?;
        declared.extend(functions(&text));
    }
    let script = fs::read_to_string(root.join(SCRIPT)).context(SCRIPT)?;
    let exported = symbols(&script);
    let mut problems = compare("declared in a header", &declared, &format!("in {SCRIPT}"), &exported);
    problems.extend(
        FORBIDDEN
            .iter()
            .filter(|name| exported.contains(**name))
            .map(|name| format!("{name}: programs define this name themselves; it must not be exported")),
    );
    if let Some(library) = env::args().nth(2) {
        let (found, unversioned) = dynamic_symbols(Path::new(&library))?;
        problems.extend(compare(
            &format!("exported by {library}"),
            &found,
            &format!("in {SCRIPT}"),
            &exported,
        ));
        problems.extend(
            unversioned.iter().map(|name| format!("{library}: {name} has not the version {VERSION}")),
        );
    }
    Ok(problems)
}

fn compare(here: &str, a: &BTreeSet<String>, there: &str, b: &BTreeSet<String>) -> Vec<String> {
    let only_a = a.difference(b).map(|name| format!("{name} is {here} and not {there}"));
    let only_b = b.difference(a).map(|name| format!("{name} is {there} and not {here}"));
    only_a.chain(only_b).collect()
}

/// All headers in a folder and below it.
fn headers(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(headers(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "h") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The functions that a header declares; those that it defines are not the library's.
fn functions(header: &str) -> BTreeSet<String> {
    let text = without_directives(&without_comments(header)).replace("extern \"C\" {", "");
    let mut found = BTreeSet::new();
    let mut depth = 0_usize;
    let mut statement = String::new();
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                // What ends here was a body, or is the beginning of a declaration without functions.
                statement.clear();
            }
            ';' if depth == 0 => found.extend(function(&std::mem::take(&mut statement))),
            _ if depth == 0 => statement.push(c),
            _ => {}
        }
    }
    found
}

/// The function that a statement declares: the name before its first bracket.
fn function(statement: &str) -> Option<String> {
    let statement = statement.trim();
    let before = statement.split('(').next().filter(|before| before.len() < statement.len())?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = before.trim_end().rsplit(|c| !is_name(c)).next()?;
    (!name.is_empty() && !statement.starts_with("typedef")).then(|| name.to_owned())
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        out.push(' ');
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    out + rest
}

fn without_directives(text: &str) -> String {
    let mut continued = false;
    let keep = |line: &&str| {
        let skip = continued || line.trim_start().starts_with('#');
        continued = skip && line.ends_with('\\');
        !skip
    };
    text.lines().filter(keep).collect::<Vec<_>>().join("\n")
}

/// The names of a version script.
fn symbols(script: &str) -> BTreeSet<String> {
    let names = script.lines().filter_map(|line| line.trim().strip_suffix(';'));
    names.filter(|name| !name.is_empty() && !name.contains(['*', '}'])).map(str::to_owned).collect()
}

/// What a shared library exports, and what of it has not the right version.
fn dynamic_symbols(library: &Path) -> Result<(BTreeSet<String>, Vec<String>)> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--with-symbol-versions"])
        .arg(library)
        .output()
        .context("running nm")?;
    if !output.status.success() {
        bail!("nm {}: {}", library.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8(output.stdout).context("reading the output of nm")?;
    Ok(versioned(&text))
}

fn versioned(nm: &str) -> (BTreeSet<String>, Vec<String>) {
    let mut found = BTreeSet::new();
    let mut unversioned = Vec::new();
    for symbol in nm.lines().filter_map(|line| line.split_whitespace().nth(2)) {
        let (name, version) = symbol.split_once('@').unwrap_or((symbol, ""));
        // The node itself.
        if name == VERSION {
            continue;
        }
        if version.trim_start_matches('@') != VERSION {
            unversioned.push(name.to_owned());
        }
        found.insert(name.to_owned());
    }
    (found, unversioned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn declarations_are_found_and_nothing_else_is() {
        let header = r#"
            /* void in_a_comment(void); */
            #define CALL(x) \
                also_not(x);
            #ifdef __cplusplus
            extern "C" {
            #endif
            typedef void (*callback)(int);
            typedef struct { void (*member)(); int field; } type;
            enum e { A, B };
            int first(int a,
                      callback b);
            void *second (void);
            static inline int defined_here(int a) { return other(a); }
            unsigned long third(void (*f)(int));
            #ifdef __cplusplus
            }
            #endif
        "#;
        assert_eq!(functions(header), names(&["first", "second", "third"]));
    }

    #[test]
    fn a_version_script_lists_its_names() {
        let script = "UNVME_1.0 {\n    global:\n        a_b;\n        C1;\n    local:\n        *;\n};\n";
        assert_eq!(symbols(script), names(&["a_b", "C1"]));
    }

    #[test]
    fn a_symbol_without_the_version_is_noticed() {
        let nm = "0001 T kv_store@@UNVME_1.0\n0000 A UNVME_1.0\n0002 T stray\n0003 T old@UNVME_0.9\n";
        let (found, unversioned) = versioned(nm);
        assert_eq!(found, names(&["kv_store", "stray", "old"]));
        assert_eq!(unversioned, ["stray", "old"]);
    }

    #[test]
    fn differences_name_the_symbol_and_both_places() {
        let problems = compare("here", &names(&["a", "b"]), "there", &names(&["b", "c"]));
        assert_eq!(problems, ["a is here and not there", "c is there and not here"]);
    }
}
