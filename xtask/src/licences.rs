//! `cargo xtask licences`: what is linked into a shipped crate must be usable from GPLv2 programs.
//!
//! Development dependencies and build tools are not linked and are free to carry any licence. One crate is
//! let through behind a feature, and then the C library, which is what GPLv2 programs link, must do without
//! that feature.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::metadata::{self, Metadata, Package};
use crate::spdx;

/// Licences that a GPLv2 program may take in. Apache-2.0 alone is missing on purpose: its patent clause adds
/// a restriction that GPLv2 does not allow.
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

/// An edge to a crate whose licence is let through, because the crate is optional.
struct Optional {
    from: &'static str,
    to: &'static str,
    /// The one feature of `from` that may switch it on.
    feature: &'static str,
}

/// See docs/decisions/0009-tls-by-openssl.md.
const OPTIONAL: &[Optional] = &[Optional { from: "unvme-fabric", to: "openssl", feature: "tls" }];

/// What GPLv2 programs link: nothing of `OPTIONAL` is in it.
const C_LIBRARY: &str = "unvme-capi";

/// Workspace members that are tools of this tree and are never shipped.
const NOT_SHIPPED: &[&str] = &["xtask"];

pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    // Only the platform that is built on: the others would have to be downloaded first.
    let platform = host_platform()?;
    let metadata = metadata::read(root, &["--filter-platform", &platform])?;
    let mut problems = judge(&metadata)?;
    problems.extend(of_the_c_library(&linked_by(root, C_LIBRARY)?));
    Ok(problems)
}

/// Names of everything that is linked into one member when it is built alone, with the features it asks for
/// itself. `cargo metadata` cannot tell: it joins the features that any member asks for.
fn linked_by(root: &Path, member: &str) -> Result<Vec<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["tree", "--package", member, "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let output =
        Command::new(cargo).args(arguments).current_dir(root).output().context("running cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8(output.stdout).context("reading the output of cargo tree")?;
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

fn of_the_c_library(linked: &[String]) -> Vec<String> {
    let found = OPTIONAL.iter().filter(|it| linked.iter().any(|name| name == it.to));
    found
        .map(|it| {
            format!(
                "{C_LIBRARY} -> {}: GPLv2 programs link the C library; build it without the feature `{}` of {}",
                it.to, it.feature, it.from
            )
        })
        .collect()
}

fn judge(metadata: &Metadata) -> Result<Vec<String>> {
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
    let mut problems = Vec::new();
    for (id, parents) in linked(metadata, &packages)? {
        let package = packages.get(id).with_context(|| format!("no package for {id}"))?;
        let parents = parents.iter().filter_map(|id| packages.get(id));
        // Edges that are let through, and the others: one of those is enough for the licence to count.
        let (mut is_let_through, mut other) = (false, None);
        for parent in parents {
            let is_edge = |it: &&Optional| (it.from, it.to) == (&*parent.name, &*package.name);
            match OPTIONAL.iter().find(is_edge) {
                Some(optional) => {
                    is_let_through = true;
                    problems.extend(switched(optional, parent));
                }
                None => other = other.or(Some(parent)),
            }
        }
        if is_let_through && other.is_none() {
            continue;
        }
        let via = other.map_or(String::new(), |p| format!(", used by {}", p.name));
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

/// What keeps an edge of `OPTIONAL` from being switched by its feature alone.
fn switched(optional: &Optional, from: &Package) -> Option<String> {
    let Optional { from: name, to, feature } = optional;
    let is_optional = from.dependencies.iter().all(|it| it.name != *to || it.optional);
    let mentions = |entry: &String| entry.trim_start_matches("dep:").split(['/', '?']).next() == Some(*to);
    let is_alone = from.features.iter().all(|(it, enables)| {
        let enables_feature = enables.iter().any(|entry| entry == feature);
        it == feature || !(enables.iter().any(mentions) || enables_feature)
    });
    (!is_optional || !is_alone).then(|| {
        format!(
            "{name} -> {to}: must be `optional = true`, and only the feature `{feature}`, which no other feature \
             enables, may switch it on"
        )
    })
}

/// Everything reachable from a shipped member over normal edges, each with all packages that bring it in.
fn linked<'a>(
    metadata: &'a Metadata,
    packages: &BTreeMap<&'a str, &'a Package>,
) -> Result<BTreeMap<&'a str, BTreeSet<&'a str>>> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata has no dependency graph")?;
    let nodes: BTreeMap<&str, _> = resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let shipped = |id: &&str| packages.get(id).is_some_and(|p| !NOT_SHIPPED.contains(&p.name.as_str()));
    let mut waiting: Vec<(&str, Option<&str>)> =
        metadata.workspace_members.iter().map(String::as_str).filter(shipped).map(|id| (id, None)).collect();
    let members: BTreeSet<&str> = waiting.iter().map(|(id, _)| *id).collect();
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    while let Some((id, parent)) = waiting.pop() {
        if parent.is_some() && members.contains(id) {
            continue;
        }
        let is_known = found.contains_key(id);
        found.entry(id).or_default().extend(parent);
        if is_known {
            continue;
        }
        let node = nodes.get(id).with_context(|| format!("{id} is not in the dependency graph"))?;
        let normal = node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(metadata::DepKind::is_normal));
        waiting.extend(normal.map(|dep| (dep.pkg.as_str(), Some(id))));
    }
    Ok(found)
}

fn host_platform() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("running rustc -vV")?;
    let text = String::from_utf8(output.stdout).context("reading the output of rustc -vV")?;
    let host =
        text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{judge, of_the_c_library};

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

    /// Problems of `unvme-fabric` with an edge to the crate `openssl`, written as `cargo metadata` writes it.
    fn with_openssl(used_by: &str, optional: bool, features: &str) -> Vec<String> {
        let text = format!(
            r#"{{"packages":[
                {{"id":"a","name":"{used_by}","version":"1.0.0","license":"MIT","manifest_path":"/nowhere/Cargo.toml",
                  "dependencies":[{{"name":"openssl","kind":null,"optional":{optional}}}],"features":{features}}},
                {{"id":"b","name":"openssl","version":"1.0.0","license":"Apache-2.0",
                  "manifest_path":"/nowhere/Cargo.toml","dependencies":[]}}],
                "workspace_members":["a"],"resolve":{{"nodes":[
                {{"id":"a","deps":[{{"pkg":"b","dep_kinds":[{{"kind":null}}]}}]}},{{"id":"b","deps":[]}}]}}}}"#
        );
        judge(&serde_json::from_str(&text).expect("the test writes valid metadata"))
            .expect("the graph is whole")
    }

    #[test]
    fn openssl_is_let_through_behind_its_feature_and_nowhere_else() {
        const SWITCHED: &str = r#"{"tls":["dep:openssl"]}"#;
        assert_eq!(with_openssl("unvme-fabric", true, SWITCHED), Vec::<String>::new());
        assert_eq!(with_openssl("unvme-fabric", false, SWITCHED).len(), 1);
        assert_eq!(with_openssl("unvme-fabric", true, r#"{"default":["dep:openssl"]}"#).len(), 1);
        assert_eq!(
            with_openssl("unvme-fabric", true, r#"{"default":["tls"],"tls":["dep:openssl"]}"#).len(),
            1
        );
        let found = with_openssl("unvme-driver", true, SWITCHED);
        assert!(found[0].starts_with("openssl 1.0.0, used by unvme-driver: `Apache-2.0`"), "{found:?}");
    }

    #[test]
    fn openssl_that_two_crates_link_is_let_through_for_neither_reason() {
        let package = |id: &str, name: &str, licence: &str, depends: bool| {
            let (on, features) = match depends {
                true => (r#"{"name":"openssl","kind":null,"optional":true}"#, r#"{"tls":["dep:openssl"]}"#),
                false => ("", "{}"),
            };
            format!(
                r#"{{"id":"{id}","name":"{name}","version":"1.0.0","license":"{licence}",
                    "manifest_path":"/nowhere/Cargo.toml","dependencies":[{on}],"features":{features}}}"#
            )
        };
        let node =
            |id: &str| format!(r#"{{"id":"{id}","deps":[{{"pkg":"c","dep_kinds":[{{"kind":null}}]}}]}}"#);
        // Whichever of the two edges is found first.
        for members in [r#""a","b""#, r#""b","a""#] {
            let text = format!(
                r#"{{"packages":[{},{},{}],"workspace_members":[{members}],
                    "resolve":{{"nodes":[{},{},{{"id":"c","deps":[]}}]}}}}"#,
                package("a", "unvme-fabric", "MIT", true),
                package("b", "unvme-driver", "MIT", true),
                package("c", "openssl", "Apache-2.0", false),
                node("a"),
                node("b"),
            );
            let found =
                judge(&serde_json::from_str(&text).expect("valid metadata")).expect("the graph is whole");
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("openssl 1.0.0, used by unvme-driver: `Apache-2.0`"), "{found:?}");
        }
    }

    #[test]
    fn the_c_library_goes_without_it() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(of_the_c_library(&names(&["unvme-capi", "unvme", "unvme-fabric", "sha2"])).is_empty());
        let found = of_the_c_library(&names(&["unvme-capi", "unvme-fabric", "openssl"]));
        assert!(found[0].starts_with("unvme-capi -> openssl: GPLv2 programs link"), "{found:?}");
    }
}
