//! `cargo xtask circles`: files of a crate that need each other.
//!
//! A circle is a set of files each of which needs every other, directly or by way of others: none of them can
//! be read, tested or moved alone. The largest of each crate is printed.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use crate::metadata;
use crate::modules::{self, Files};

/// Most files in one circle.
const CIRCLE_FILES_MAX: usize = 20;

pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in &metadata::read(root, &["--no-deps"])?.packages {
        let files = modules::read(&package.root_file()?)?;
        let circle = largest_circle(&files);
        print(&package.name, &files, &circle);
        if circle.len() > CIRCLE_FILES_MAX {
            problems.push(format!(
                "{}: {} files need each other, at most {CIRCLE_FILES_MAX} may; turn an arrow round, or move what \
                 both sides need below them",
                package.name,
                circle.len()
            ));
        }
    }
    Ok(problems)
}

#[expect(clippy::print_stdout, reason = "the figures are what the word is asked for")]
fn print(package: &str, files: &Files, circle: &[usize]) {
    let mut line = format!("{package}: {} files, {} in the largest circle", files.names.len(), circle.len());
    if !circle.is_empty() {
        let names: Vec<&str> = circle.iter().map(|file| files.names[*file].as_str()).collect();
        let _ = write!(line, ": {}", names.join(" "));
    }
    println!("{line}");
}

/// The largest set of files that need each other; empty when there is none.
fn largest_circle(files: &Files) -> Vec<usize> {
    let reach: Vec<Vec<bool>> = (0..files.names.len()).map(|from| reached(files, from)).collect();
    (0..files.names.len())
        .map(|file| {
            (0..files.names.len())
                .filter(|other| reach[file][*other] && reach[*other][file])
                .collect::<Vec<_>>()
        })
        .max_by_key(Vec::len)
        .unwrap_or_default()
}

/// By file: whether a walk along arrows from `from` comes by.
fn reached(files: &Files, from: usize) -> Vec<bool> {
    let mut seen = vec![false; files.names.len()];
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for &next in &files.needs[file] {
            if !std::mem::replace(&mut seen[next], true) {
                open.push(next);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::largest_circle;
    use crate::modules::Files;

    fn files(needs: &[&[usize]]) -> Files {
        Files {
            names: (0..needs.len()).map(|file| format!("{file}.rs")).collect(),
            needs: needs.iter().map(|to| BTreeSet::from_iter(to.iter().copied())).collect(),
        }
    }

    #[test]
    fn arrows_in_one_direction_make_no_circle() {
        assert!(largest_circle(&files(&[&[1, 2], &[2], &[]])).is_empty());
    }

    #[test]
    fn the_largest_circle_is_found_also_by_way_of_others() {
        assert_eq!(largest_circle(&files(&[&[1], &[0], &[3], &[4], &[2, 0]])), [2, 3, 4]);
    }
}
