//! The modules of a crate, and which file needs which: what `use` declarations and paths in the code name.
//!
//! Not a compiler: names are followed through modules, imports and re-exports, and a call of a method names
//! nobody. Tests are left out, in a file of their own or at the end of one. A re-export alone is no need: who
//! uses the name needs the file that has it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::tidy::lex;

/// Re-exports followed for one name before it counts as found where the search is.
const HOPS_MAX: usize = 16;

/// The files of a crate, and the arrows between them.
pub(crate) struct Files {
    /// By the path from the crate's `src`.
    pub(crate) names: Vec<String>,
    /// From each file to those it needs, never to itself.
    pub(crate) needs: Vec<BTreeSet<usize>>,
}

#[derive(Default)]
struct Module {
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names that `use` brings in, with what they stand for.
    imports: BTreeMap<String, Vec<String>>,
    /// Modules all names of which are brought in.
    globs: Vec<Vec<String>>,
    /// Names of items.
    items: BTreeSet<String>,
    /// Paths that this module's code names, re-exports left out.
    paths: Vec<Vec<String>>,
}

struct Tree<'a> {
    /// Text of the file at a path; `None` when there is none.
    load: &'a dyn Fn(&Path) -> Result<Option<String>>,
    source: PathBuf,
    files: Vec<String>,
    modules: Vec<Module>,
}

/// Where a path leads.
enum Place {
    Module(usize),
    /// An item of this module.
    Item(usize),
}

/// Reads the crate whose root file, `lib.rs` or `main.rs`, is at `root`.
pub(crate) fn read(root: &Path) -> Result<Files> {
    read_with(root, &|path| match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    })
}

fn read_with(root: &Path, load: &dyn Fn(&Path) -> Result<Option<String>>) -> Result<Files> {
    let source = root.parent().context("a root file lies in a folder")?;
    let mut tree =
        Tree { load, source: source.to_path_buf(), files: Vec::new(), modules: vec![Module::default()] };
    let text = load(root)?.with_context(|| format!("there is no {}", root.display()))?;
    tree.file(root.strip_prefix(source)?, &text, source, 0)?;
    let mut needs = vec![BTreeSet::new(); tree.files.len()];
    for (index, module) in tree.modules.iter().enumerate() {
        for path in &module.paths {
            if let Some(Place::Module(to) | Place::Item(to)) = tree.resolve(index, path, 0) {
                let to = tree.modules[to].file;
                if to != module.file {
                    needs[module.file].insert(to);
                }
            }
        }
    }
    Ok(Files { names: tree.files, needs })
}

impl Tree<'_> {
    /// Reads the file of `module`, whose children lie in `folder`, and those of its children.
    fn file(&mut self, name: &Path, text: &str, folder: &Path, module: usize) -> Result<()> {
        self.modules[module].file = self.files.len();
        self.files.push(name.display().to_string());
        let code = lex::split(text).code;
        let tokens = lex::tokens(&code);
        let mut children = Vec::new();
        self.body(&tokens, &mut 0, module, &mut children);
        for child in children {
            let name = self.modules[child.parent].children.iter().find(|(_, index)| **index == child.module);
            let name = name.map(|(name, _)| name.clone()).unwrap_or_default();
            let inner =
                child.within.iter().fold(folder.to_path_buf(), |folder, part| folder.join(part)).join(&name);
            let candidates = [inner.with_extension("rs"), inner.join("mod.rs")];
            let mut found = None;
            for path in candidates {
                if let Some(text) = (self.load)(&path)? {
                    found = Some((path, text));
                    break;
                }
            }
            let Some((path, text)) = found else { bail!("module {name} has no file {}", inner.display()) };
            self.file(path.strip_prefix(&self.source)?, &text, &inner, child.module)?;
        }
        Ok(())
    }

    fn child(&mut self, parent: usize, name: &str) -> usize {
        let index = self.modules.len();
        let file = self.modules[parent].file;
        self.modules.push(Module { file, parent: Some(parent), ..Module::default() });
        self.modules[parent].children.insert(name.to_owned(), index);
        index
    }

    /// Reads tokens up to the brace that closes the module, or to the end.
    fn body(&mut self, tokens: &[&str], at: &mut usize, module: usize, files: &mut Vec<ChildFile>) {
        let mut depth = 0usize;
        let mut is_test = false;
        while let Some(&token) = tokens.get(*at) {
            *at += 1;
            match token {
                "{" => depth += 1,
                "}" if depth == 0 => return,
                "}" => depth -= 1,
                "#" => {
                    let attribute = attribute(tokens, at);
                    is_test |= attribute == ["cfg", "(", "test", ")"];
                    continue;
                }
                "pub" => {
                    if tokens.get(*at) == Some(&"(") {
                        skip(tokens, at, "(", ")");
                    }
                    if tokens.get(*at) != Some(&"use") {
                        continue;
                    }
                    *at += 1;
                    self.import(tokens, at, module, false);
                }
                "use" => self.import(tokens, at, module, !is_test),
                "mod" => self.declared(tokens, at, (module, is_test), files),
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" => {
                    if let Some(name) = tokens.get(*at).filter(|name| is_name(name)) {
                        self.modules[module].items.insert((*name).to_owned());
                    }
                }
                _ if is_name(token) => self.path(tokens, at, module),
                _ => {}
            }
            is_test = false;
        }
    }

    /// `mod name;`, `mod name { .. }`, or `mod name: u8 { .. }` in a macro.
    fn declared(
        &mut self,
        tokens: &[&str],
        at: &mut usize,
        place: (usize, bool),
        files: &mut Vec<ChildFile>,
    ) {
        let (module, is_test) = place;
        // In a macro the name is a variable: what it makes is in the macro's file.
        let Some(&name) = tokens.get(*at).filter(|name| is_name(name)) else { return };
        *at += 1;
        if tokens.get(*at) == Some(&":") {
            // A table in a macro, whose codes have this type.
            *at += tokens[*at..].iter().take_while(|token| **token != "{").count();
        }
        let is_inline = tokens.get(*at) == Some(&"{");
        if is_test {
            if is_inline {
                skip(tokens, at, "{", "}");
            }
            return;
        }
        let child = self.child(module, name);
        if is_inline {
            *at += 1;
            let before = files.len();
            self.body(tokens, at, child, files);
            files[before..].iter_mut().for_each(|file| file.within.insert(0, name.to_owned()));
        } else {
            files.push(ChildFile { parent: module, module: child, within: Vec::new() });
        }
    }

    /// The tree after `use`, up to its semicolon.
    fn import(&mut self, tokens: &[&str], at: &mut usize, module: usize, is_need: bool) {
        let start = *at;
        while tokens.get(*at).is_some_and(|token| *token != ";") {
            *at += 1;
        }
        let mut leaves = Vec::new();
        leaves_of(&tokens[start..*at], &mut 0, &[], &mut leaves);
        for (path, name) in leaves {
            let Some(last) = path.last() else { continue };
            if is_need {
                self.modules[module].paths.push(path.clone());
            }
            if last == "*" {
                self.modules[module].globs.push(path[..path.len() - 1].to_vec());
            } else if name != "_" {
                self.modules[module].imports.insert(name, path);
            }
        }
    }

    /// A path in the code, the first name of which has been read.
    fn path(&mut self, tokens: &[&str], at: &mut usize, module: usize) {
        let mut path = vec![tokens[*at - 1].to_owned()];
        while tokens.get(*at) == Some(&"::") && tokens.get(*at + 1).is_some_and(|token| is_name(token)) {
            path.push(tokens[*at + 1].to_owned());
            *at += 2;
        }
        if path.len() > 1 {
            self.modules[module].paths.push(path);
        }
    }

    /// Where `path` leads from `module`; `None` when it leaves the crate, or starts with a name of the
    /// function it is in.
    fn resolve(&self, module: usize, path: &[String], hops: usize) -> Option<Place> {
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => 0,
            "self" => module,
            "super" => self.modules[module].parent?,
            name => return self.walk(self.known(module, name, hops)?, rest, hops),
        };
        self.walk(Place::Module(start), rest, hops)
    }

    fn walk(&self, mut place: Place, rest: &[String], hops: usize) -> Option<Place> {
        for name in rest {
            let Place::Module(module) = place else { return Some(place) };
            place = match name.as_str() {
                "super" => Place::Module(self.modules[module].parent?),
                "self" | "*" => Place::Module(module),
                name => self.known(module, name, hops).unwrap_or(Place::Item(module)),
            };
        }
        Some(place)
    }

    /// What `name` is in `module`, when the module says so.
    fn known(&self, module: usize, name: &str, hops: usize) -> Option<Place> {
        let here = &self.modules[module];
        if let Some(child) = here.children.get(name) {
            return Some(Place::Module(*child));
        }
        if here.items.contains(name) {
            return Some(Place::Item(module));
        }
        if hops == HOPS_MAX {
            return None;
        }
        if let Some(path) = here.imports.get(name) {
            // `use name;` stands for itself, and a name that an import of the same name hides is not of this
            // crate.
            return self.resolve(module, path, hops + 1).filter(|_| path[0] != name);
        }
        here.globs.iter().find_map(|glob| match self.resolve(module, glob, hops + 1)? {
            Place::Module(from) => self.known(from, name, hops + 1),
            Place::Item(_) => None,
        })
    }
}

/// A module in a file of its own.
struct ChildFile {
    parent: usize,
    module: usize,
    /// Modules of the parent's file that it is declared in.
    within: Vec<String>,
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The tokens between the brackets of the attribute whose `#` has been read.
fn attribute<'a, 'b>(tokens: &'b [&'a str], at: &mut usize) -> &'b [&'a str] {
    if tokens.get(*at) == Some(&"!") {
        *at += 1;
    }
    let start = *at;
    skip(tokens, at, "[", "]");
    tokens.get(start + 1..*at - 1).unwrap_or_default()
}

/// Passes over everything up to the bracket that closes the one at `at`.
fn skip(tokens: &[&str], at: &mut usize, open: &str, close: &str) {
    let mut depth = 0usize;
    while let Some(&token) = tokens.get(*at) {
        *at += 1;
        if token == open {
            depth += 1;
        } else if token == close {
            depth = depth.saturating_sub(1);
        }
        if depth == 0 {
            return;
        }
    }
}

/// The paths of a `use` tree, each with the name it is known by.
fn leaves_of(tokens: &[&str], at: &mut usize, prefix: &[String], leaves: &mut Vec<(Vec<String>, String)>) {
    let mut path = prefix.to_vec();
    let mut name = None;
    while let Some(&token) = tokens.get(*at) {
        match token {
            "{" => {
                *at += 1;
                while tokens.get(*at).is_some_and(|token| *token != "}") {
                    leaves_of(tokens, at, &path, leaves);
                    if tokens.get(*at) == Some(&",") {
                        *at += 1;
                    }
                }
                *at += 1;
                return;
            }
            "," | "}" => break,
            "as" => {
                name = tokens.get(*at + 1).map(|name| (*name).to_owned());
                *at += 1;
            }
            "::" => {}
            // `{self, X}`: the module itself.
            "self" if path.len() == prefix.len() && !prefix.is_empty() => {}
            part => path.push(part.to_owned()),
        }
        *at += 1;
    }
    if let Some(last) = path.last().cloned() {
        leaves.push((path, name.unwrap_or(last)));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Files, read_with};

    /// The arrows between `files`, the first of which is the root: each as `from -> to`.
    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let load = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new("src").join(name) == path);
            Ok(found.map(|(_, text)| (*text).to_owned()))
        };
        let Files { names, needs } =
            read_with(&Path::new("src").join(files[0].0), &load).expect("all files are there");
        let arrow = |from: usize, to: &usize| format!("{} -> {}", names[from], names[*to]);
        (0..names.len()).flat_map(|from| needs[from].iter().map(move |to| arrow(from, to))).collect()
    }

    #[test]
    fn an_import_and_a_path_in_the_code_are_arrows() {
        assert_eq!(
            arrows(&[
                ("lib.rs", "mod a; mod b; mod c;"),
                ("a.rs", "use crate::b::{B, other as name}; use std::fmt;"),
                ("b.rs", "fn f() -> super::c::C { crate::c::make(fmt::Error) }"),
                ("c.rs", ""),
            ]),
            ["a.rs -> b.rs", "b.rs -> c.rs"]
        );
    }

    #[test]
    fn a_re_export_is_no_arrow_and_leads_to_who_has_the_name() {
        assert_eq!(
            arrows(&[
                ("lib.rs", "mod a; mod b; pub use a::A;"),
                ("a/mod.rs", "mod deep; mod all; pub(crate) use deep::A; pub(crate) use self::all::*;"),
                ("a/deep.rs", "struct A;"),
                ("a/all.rs", "struct Other;"),
                ("b.rs", "use crate::A; use super::a::Other; fn f() { crate::a::Other }"),
            ]),
            ["b.rs -> a/deep.rs", "b.rs -> a/all.rs"]
        );
    }

    #[test]
    fn a_child_needs_its_parent_only_for_what_the_parent_has_itself() {
        let parent = "mod child; use child::Child; struct Own;";
        let files =
            |child| arrows(&[("lib.rs", "mod parent;"), ("parent.rs", parent), ("parent/child.rs", child)]);
        assert_eq!(
            files("use super::Own;"),
            ["parent.rs -> parent/child.rs", "parent/child.rs -> parent.rs"]
        );
        assert_eq!(files("fn f() { super::Child }"), ["parent.rs -> parent/child.rs"]);
    }

    #[test]
    fn tests_comments_and_literals_name_nobody() {
        assert_eq!(
            arrows(&[
                ("lib.rs", "mod a; mod b;"),
                (
                    "a.rs",
                    "// use crate::b::B;\nconst T: &str = \"crate::b::B\"; #[cfg(test)] mod tests { use crate::b; }"
                ),
                (
                    "b.rs",
                    "#[cfg(test)] mod tests; #[cfg(test)] use crate::a::X; #[cfg(unix)] mod inner { use super::super::a; }"
                ),
            ]),
            ["b.rs -> a.rs"]
        );
    }
}
