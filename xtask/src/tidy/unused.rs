//! Finds public items of the libraries that nobody uses.
//!
//! The compiler knows what is private and unused. Of what is `pub` in a library it must assume that another
//! crate uses it; here all crates are at hand. An item counts as used when its name occurs in code, or
//! between the braces of a text to be formatted, at a place that defines nothing of that name:
//!
//! - in any crate's sources, examples and benches, and in the fuzz targets;
//! - in tests, in examples of doc comments and in a `pub use` only when the item is for programs outside of
//!   this tree: it belongs to a crate of [`FOR_PROGRAMS`], or it or its type is named by a `pub use` of one.
//!
//! Constants of `spec` are exempt, as a table of the specification's codes is whole or wrong. So is the C
//! ABI: a linker uses it. Names are compared, not paths: of two items with one name, one that is used keeps
//! the other.

use std::collections::{BTreeMap, BTreeSet};

use super::allow::Allowed;
use super::lex::{Split, tokens};

/// Crates that programs outside of this tree are written against.
const FOR_PROGRAMS: &[&str] = &["sdk", "guide", "setup"];
/// Crates whose public functions no Rust program calls.
const NOT_LIBRARIES: &[&str] = &["cli", "capi"];
/// Words before the name of an item.
const KINDS: &[&str] = &["fn", "struct", "enum", "const", "static", "type", "trait", "union"];
/// Words between `pub` and those; the quotes are those of a calling convention.
const QUALIFIERS: &[&str] = &["const", "unsafe", "async", "extern", "\""];

struct Item {
    library: String,
    place: (String, usize),
    kind: String,
    name: String,
    /// The type whose method or constant it is.
    owner: Option<String>,
}

/// What was seen of the tree so far.
#[derive(Default)]
pub(super) struct Names {
    items: Vec<Item>,
    /// How often a name was used in code that ships, in tests and examples of documentation, and in what a
    /// library hands on.
    shipped: BTreeMap<String, usize>,
    tested: BTreeMap<String, usize>,
    /// What the crates for programs hand on.
    exported: BTreeSet<String>,
}

/// Where a text counts.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Shipped,
    Tested,
}

impl Names {
    /// Takes the names of a file.
    pub(super) fn read(&mut self, path: &str, content: &str, split: &Split) {
        let parts: Vec<&str> = path.split('/').collect();
        if parts[0] == "xtask" {
            return;
        }
        let is_test = parts.iter().any(|part| matches!(*part, "tests" | "tests.rs"));
        let library = match parts[..] {
            ["crates", name, "src", ..] if !is_test && !NOT_LIBRARIES.contains(&name) => Some(name),
            _ => None,
        };
        let mut file =
            File { path, code: &split.code, tokens: tokens(&split.code), library, at: 0, owners: Vec::new() };
        file.read(self, if is_test { Part::Tested } else { Part::Shipped });
        for name in captured(content, split) {
            *self.shipped.entry(name.to_owned()).or_default() += 1;
        }
        for name in examples(&split.comments) {
            *self.tested.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Items that nobody uses and that `allowed` does not list.
    pub(super) fn unused(&self, allowed: &mut Allowed) -> Vec<String> {
        let mut problems = Vec::new();
        for item in &self.items {
            let is_exported = |name: &String| self.exported.contains(name);
            let is_for_programs = FOR_PROGRAMS.contains(&item.library.as_str())
                || is_exported(&item.name)
                || item.owner.as_ref().is_some_and(is_exported);
            let is_used = self.shipped.contains_key(&item.name)
                || (is_for_programs && (is_exported(&item.name) || self.tested.contains_key(&item.name)));
            let is_code = item.library == "spec" && item.kind == "const";
            let (path, line) = &item.place;
            if !is_used && !is_code && !allowed.unused(path, &item.name) {
                let by = if is_for_programs {
                    "nobody, not even a test, uses it"
                } else {
                    "only tests use it, if anybody"
                };
                problems.push(format!("{path}:{line}: pub {} {}: {by}; remove it", item.kind, item.name));
            }
        }
        problems
    }
}

struct File<'a> {
    path: &'a str,
    code: &'a str,
    tokens: Vec<&'a str>,
    /// The library whose items are in the file.
    library: Option<&'a str>,
    at: usize,
    /// Open braces; of those of an `impl`, the type.
    owners: Vec<Option<&'a str>>,
}

impl<'a> File<'a> {
    fn token(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).copied().unwrap_or_default()
    }

    fn read(&mut self, names: &mut Names, part: Part) {
        let mut test_end = 0;
        let mut implemented = None;
        while self.at < self.tokens.len() {
            let token = self.token(0);
            if self.at >= test_end && self.is_test_attribute() {
                test_end = self.item_end();
            }
            let part = if self.at < test_end { Part::Tested } else { part };
            match token {
                "{" => self.owners.push(implemented.take()),
                "}" => drop(self.owners.pop()),
                "impl" if self.begins_item() => implemented = self.implemented(),
                "pub" if part == Part::Shipped && self.token(1) == "use" => {
                    self.hand_on(names);
                    continue;
                }
                "pub" if part == Part::Shipped => self.public_item(names),
                _ if KINDS.contains(&token) && self.defines() => self.at += 1,
                _ if is_name(token) => {
                    let uses = if part == Part::Shipped { &mut names.shipped } else { &mut names.tested };
                    *uses.entry(token.to_owned()).or_default() += 1;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Whether the name behind this word is defined by it: `&'static str` and `*const T` define nothing.
    fn defines(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).copied().unwrap_or_default();
        is_name(self.token(1)) && !KINDS.contains(&self.token(1)) && !matches!(before, "'" | "*" | "raw")
    }

    fn is_test_attribute(&self) -> bool {
        self.tokens[self.at..].starts_with(&["#", "[", "cfg", "(", "test", ")", "]"])
    }

    /// Where the item ends that the attribute here is for.
    fn item_end(&self) -> usize {
        let mut depth = 0usize;
        for (at, token) in self.tokens.iter().enumerate().skip(self.at) {
            match *token {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" => depth = depth.saturating_sub(1),
                "}" => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return at + 1;
                    }
                }
                ";" if depth == 0 => return at + 1,
                _ => {}
            }
        }
        self.tokens.len()
    }

    /// Whether an `impl` here is a block, and not the type of an argument or a result.
    fn begins_item(&self) -> bool {
        let before = self.at.checked_sub(1).map(|at| self.tokens[at]);
        before.is_none_or(|before| matches!(before, "}" | "{" | ";" | "]" | "unsafe"))
    }

    /// The type of the `impl` here; `None` for that of a trait, whose items are as public as the trait.
    fn implemented(&self) -> Option<&'a str> {
        let (mut angles, mut name) = (0usize, None);
        let head = &self.tokens[self.at + 1..];
        for (at, token) in head.iter().enumerate() {
            match *token {
                "<" => angles += 1,
                ">" if at == 0 || head[at - 1] != "-" => angles = angles.saturating_sub(1),
                "for" if angles == 0 => return None,
                "{" | "where" => break,
                word if angles == 0 && is_name(word) => name = Some(word),
                _ => {}
            }
        }
        name
    }

    /// Reads `pub use ..;`: exported by a crate for programs, and no use when another crate hands it on.
    fn hand_on(&mut self, names: &mut Names) {
        let for_programs = self.library.is_some_and(|library| FOR_PROGRAMS.contains(&library));
        while self.at < self.tokens.len() && self.token(0) != ";" {
            if for_programs {
                names.exported.insert(self.token(0).to_owned());
            }
            self.at += 1;
        }
    }

    /// Notes what the `pub` here makes public, unless it is for this crate only.
    fn public_item(&self, names: &mut Names) {
        let Some(library) = self.library else { return };
        let mut ahead = 1;
        while QUALIFIERS.contains(&self.token(ahead))
            && !is_constant(self.token(ahead), self.token(ahead + 1))
        {
            ahead += 1;
        }
        let (kind, name) = (self.token(ahead), self.token(ahead + 1));
        if !KINDS.contains(&kind) || !is_name(name) {
            return;
        }
        let offset = self.token(0).as_ptr().addr() - self.code.as_ptr().addr();
        let line = 1 + self.code[..offset].matches('\n').count();
        names.items.push(Item {
            library: library.to_owned(),
            place: (self.path.to_owned(), line),
            kind: kind.to_owned(),
            name: name.to_owned(),
            owner: self.owners.iter().rev().find_map(|owner| *owner).map(str::to_owned),
        });
    }
}

/// Whether `word` makes a constant of `next`: `const` also stands before `fn`.
fn is_constant(word: &str, next: &str) -> bool {
    word == "const" && !KINDS.contains(&next) && !QUALIFIERS.contains(&next)
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names between braces of literals: `"{NAME}"` and `"{name:?}"`.
fn captured<'a>(content: &'a str, split: &'a Split) -> impl Iterator<Item = &'a str> {
    let is_literal = |at: &usize| {
        split.code.as_bytes().get(*at) == Some(&b' ') && split.comments.as_bytes().get(*at) == Some(&b' ')
    };
    content.match_indices('{').map(|(at, _)| at).filter(is_literal).filter_map(|at| {
        let rest = &content[at + 1..];
        let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
        (is_name(rest) && rest[length..].starts_with(['}', ':'])).then(|| &rest[..length])
    })
}

/// Words of the examples in doc comments.
fn examples(comments: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_example = false;
    for line in comments.lines() {
        let line = line.trim_start();
        let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_example = false;
            continue;
        };
        if text.trim_start().starts_with("```") {
            is_example = !is_example;
        } else if is_example {
            found.extend(tokens(text).into_iter().filter(|token| is_name(token)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::lex;
    use super::{Allowed, Names};

    /// Problems of a tree of files.
    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let mut names = Names::default();
        for (path, content) in files {
            names.read(path, content, &lex::split(content));
        }
        names.unused(&mut Allowed::parse("list", "").0)
    }

    const SSD: &str = "crates/ssd/src/lib.rs";

    #[test]
    fn a_public_item_of_a_library_that_nobody_names_is_a_problem() {
        assert_eq!(
            problems(&[(SSD, "fn a() {}\n/// Doc of alone.\npub const fn alone() { \"alone\" }")]),
            ["crates/ssd/src/lib.rs:3: pub fn alone: only tests use it, if anybody; remove it"]
        );
        for kind in ["const A: u8 = 1;", "static A: u8 = 1;", "type A = u8;", "struct A;", "trait A {}"] {
            assert_eq!(problems(&[(SSD, &format!("pub {kind}"))]).len(), 1, "{kind}");
        }
        assert_eq!(problems(&[(SSD, "pub unsafe extern \"C\" fn a() {} pub async fn b() {}")]).len(), 2);
    }

    #[test]
    fn one_use_in_anything_that_ships_is_enough() {
        let item = (SSD, "pub fn used() {}");
        for (path, content) in [
            (SSD, "pub fn used() {}\nfn f() { used() }"),
            ("crates/cli/src/main.rs", "fn main() { x.used() }"),
            ("crates/sdk/examples/a.rs", "fn main() { map(used) }"),
            ("crates/cli/benches/b.rs", "fn main() { ssd::used() }"),
            ("fuzz/fuzz_targets/c.rs", "fn main() { used() }"),
            ("crates/cli/src/main.rs", "fn main() { format!(\"{used}\") }"),
        ] {
            assert!(problems(&[item, (path, content)]).is_empty(), "{path}: {content}");
        }
    }

    #[test]
    fn another_definition_a_comment_and_a_string_are_no_use() {
        let content = "pub fn a() {} struct S; impl S { fn a() {} }\n// a\nconst B: &str = \"a\";";
        assert_eq!(problems(&[(SSD, content)]).len(), 1);
        assert!(
            problems(&[(SSD, "pub struct T; fn f(x: *const T) {}")]).is_empty(),
            "a pointer is no definition"
        );
        assert!(problems(&[(SSD, "pub struct T; fn f(x: &'static T) {}")]).is_empty(), "nor is a lifetime");
    }

    #[test]
    fn tests_use_only_what_is_for_programs() {
        for test in [
            ("crates/ssd/tests/t.rs", "fn t() { a() }"),
            ("crates/ssd/src/b/tests.rs", "fn t() { a() }"),
            ("crates/ssd/src/b.rs", "#[cfg(test)]\nmod tests { fn t() { a() } }"),
            ("crates/ssd/src/b.rs", "/// ```\n/// a();\n/// ```\nfn b() {}"),
            ("crates/ssd/src/b.rs", "pub use c::a;"),
            ("xtask/src/main.rs", "fn main() { a() }"),
        ] {
            assert_eq!(problems(&[(SSD, "pub fn a() {}"), test]).len(), 1, "{test:?}");
            let is_enough = !test.1.starts_with("pub use") && !test.0.starts_with("xtask");
            let found = problems(&[("crates/sdk/src/lib.rs", "pub fn a() {}"), test]);
            assert_eq!(found.is_empty(), is_enough, "{test:?}");
        }
    }

    #[test]
    fn what_the_crates_for_programs_hand_on_is_for_programs_with_its_methods() {
        let sdk = ("crates/sdk/src/lib.rs", "pub use unvme_driver::Queue;");
        let queue = (
            "crates/driver/src/queue.rs",
            "pub struct Queue<T>;\nimpl<T: Fn() -> u8> Queue<T> { pub fn a() {} }",
        );
        let test = ("crates/driver/tests/t.rs", "fn t() { q.a() }");
        assert!(problems(&[sdk, queue, test]).is_empty());
        assert_eq!(
            problems(&[sdk, queue]),
            ["crates/driver/src/queue.rs:2: pub fn a: nobody, not even a test, uses it; remove it"]
        );
        assert_eq!(problems(&[queue, test]).len(), 1);
    }

    #[test]
    fn codes_of_the_specification_and_functions_for_c_are_exempt() {
        assert!(problems(&[("crates/spec/src/status.rs", "pub const GONE: u8 = 1;")]).is_empty());
        assert_eq!(problems(&[("crates/spec/src/status.rs", "pub fn gone() {}")]).len(), 1);
        assert!(problems(&[("crates/capi/src/lib.rs", "pub extern \"C\" fn gone() {}")]).is_empty());
    }

    #[test]
    fn an_exception_keeps_an_item_and_is_itself_kept_only_while_it_is_needed() {
        let (mut allowed, errors) =
            Allowed::parse("list", "crates/ssd/src/lib.rs:a unused test rigs need it\n");
        assert!(errors.is_empty());
        let mut names = Names::default();
        names.read(SSD, "pub fn a() {}", &lex::split("pub fn a() {}"));
        assert!(names.unused(&mut allowed).is_empty());
        assert!(allowed.not_needed().is_empty());
        assert_eq!(Names::default().unused(&mut allowed), Vec::<String>::new());
    }
}
