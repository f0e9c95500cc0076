//! `cargo xtask licences`: what is linked into a shipped crate must be usable from GPLv2 programs.
//!
//! Development dependencies and build tools are not linked and are free to carry any licence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

use crate::metadata::{self, Metadata, Package};
use crate::spdx;

/// Licences that a GPLv2 program may take in. Apache-2.0 alone is missing on purpose: its patent clause adds a
/// restriction that GPLv2 does not allow.
const USABLE: &[&str] = &[
    "0BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Workspace members that are tools of this tree and are never shipped.
const NOT_SHIPPED: &[&str] = &["xtask"];

pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    // Only the platform that is built on: the others would have to be downloaded first.
    let platform = host_platform()?;
    let metadata = metadata::read(root, &["--filter-platform", &platform])?;
    judge(&metadata)
}

fn judge(metadata: &Metadata) -> Result<Vec<String>> {
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
    let mut problems = Vec::new();
    for (id, parent) in linked(metadata, &packages)? {
        let package = packages.get(id).with_context(|| format!("no package for {id}"))?;
        let via =
            parent.and_then(|id| packages.get(id)).map_or(String::new(), |p| format!(", used by {}", p.name));
        let who = format!("{} {}{via}", package.name, package.version);
        let Some(licence) = &package.license else {
            problems.push(format!("{who}: states no licence; replace it or ask its authors"));
            continue;
        };
        match spdx::satisfied(licence, &|name| USABLE.contains(&name)) {
            Ok(true) => {}
            Ok(false) => problems.push(format!(
                "{who}: `{licence}` leaves GPLv2 programs no way to link it; replace it, or make it a dev-dependency"
            )),
            Err(why) => problems.push(format!("{who}: licence `{licence}`: {why}")),
        }
    }
    Ok(problems)
}

/// Everything reachable from a shipped member over normal edges, each with the package that brought it in.
fn linked<'a>(
    metadata: &'a Metadata,
    packages: &BTreeMap<&'a str, &'a Package>,
) -> Result<BTreeMap<&'a str, Option<&'a str>>> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata has no dependency graph")?;
    let nodes: BTreeMap<&str, _> = resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let shipped = |id: &&str| packages.get(id).is_some_and(|p| !NOT_SHIPPED.contains(&p.name.as_str()));
    let mut waiting: Vec<(&str, Option<&str>)> =
        metadata.workspace_members.iter().map(String::as_str).filter(shipped).map(|id| (id, None)).collect();
    let members: BTreeSet<&str> = waiting.iter().map(|(id, _)| *id).collect();
    let mut found = BTreeMap::new();
    while let Some((id, parent)) = waiting.pop() {
        if found.contains_key(id) || (parent.is_some() && members.contains(id)) {
            continue;
        }
        found.insert(id, parent);
        let node = nodes.get(id).with_context(|| format!("{id} is not in the dependency graph"))?;
        let normal = node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(metadata::DepKind::is_normal));
        waiting.extend(normal.map(|dep| (dep.pkg.as_str(), Some(id))));
    }
    Ok(found)
}

fn host_platform() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = std::process::Command::new(rustc).arg("-vV").output().context("running rustc -vV")?;
    let text = String::from_utf8(output.stdout).context("reading the output of rustc -vV")?;
    let host =
        text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::judge;

    /// A member `unvme` with a normal edge to `inner`, which has an edge of `kind` to `outer`.
    fn problems(inner: &str, outer: &str, kind: &str) -> Vec<String> {
        let package = |name: &str, licence: &str| {
            format!(
                r#"{{"id":"{name}","name":"{name}","version":"1.0.0","license":{licence},
                    "manifest_path":"/nowhere/Cargo.toml","dependencies":[]}}"#
            )
        };
        let text = format!(
            r#"{{"packages":[{},{},{}],"workspace_members":["unvme"],"resolve":{{"nodes":[
                {{"id":"unvme","deps":[{{"pkg":"inner","dep_kinds":[{{"kind":null}}]}}]}},
                {{"id":"inner","deps":[{{"pkg":"outer","dep_kinds":[{{"kind":{kind}}}]}}]}},
                {{"id":"outer","deps":[]}}]}}}}"#,
            package("unvme", r#""MIT OR Apache-2.0""#),
            package("inner", inner),
            package("outer", outer),
        );
        judge(&serde_json::from_str(&text).expect("the test writes valid metadata"))
            .expect("the graph is whole")
    }

    #[test]
    fn a_licence_with_a_usable_branch_passes() {
        assert!(
            problems(r#""MIT""#, r#""Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT""#, "null")
                .is_empty()
        );
    }

    #[test]
    fn apache_alone_is_refused_wherever_in_the_graph_it_is_linked() {
        let found = problems(r#""MIT""#, r#""Apache-2.0""#, "null");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("outer 1.0.0, used by inner: `Apache-2.0`"), "{}", found[0]);
    }

    #[test]
    fn what_only_tests_or_builds_use_may_carry_any_licence() {
        assert!(problems(r#""MIT""#, r#""Apache-2.0""#, r#""dev""#).is_empty());
        assert!(problems(r#""MIT""#, r#""GPL-3.0-only""#, r#""build""#).is_empty());
    }

    #[test]
    fn a_missing_or_unreadable_licence_is_refused() {
        assert_eq!(problems("null", r#""MIT""#, "null").len(), 1);
        assert_eq!(problems(r#""MIT OR""#, r#""MIT""#, "null").len(), 1);
    }
}
