//! `cargo xtask floors`: who may depend on whom, and what each crate forbids itself.
//!
//! The table is that of `docs/architecture.md`. An edge that is not in it fails the build.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::metadata::{self, Dependency, Kind, Package};
use crate::storeys;
use crate::tidy::lex;

/// One crate's place in the house.
struct Floor {
    package: &'static str,
    may_use: &'static [&'static str],
    /// Crates that its tests may use on top.
    tests_may_use: &'static [&'static str],
    /// Inner attributes that its root file must carry.
    attributes: &'static [(&'static str, &'static str)],
}

const FORBID: (&str, &str) = ("forbid", "unsafe_code");

const FLOORS: &[Floor] = &[
    Floor { package: "unvme-spec", may_use: &[], tests_may_use: &[], attributes: &[("no_std", ""), FORBID] },
    Floor { package: "unvme-bus", may_use: &[], tests_may_use: &[], attributes: &[] },
    Floor {
        package: "unvme-fabric",
        may_use: &["unvme-spec", "unvme-bus"],
        tests_may_use: &[],
        // Not `forbid`: the callbacks of OpenSSL for keys are one module with an opening of its own.
        attributes: &[("deny", "unsafe_code")],
    },
    Floor { package: "unvme-flash", may_use: &["unvme-bus"], tests_may_use: &[], attributes: &[FORBID] },
    Floor {
        package: "unvme-driver",
        may_use: &["unvme-spec", "unvme-bus", "unvme-fabric"],
        tests_may_use: &["unvme-ssd", "unvme-flash"],
        // Not `forbid`: the kernel passthrough is one module with an opening of its own.
        attributes: &[("deny", "unsafe_code")],
    },
    Floor {
        package: "unvme-ssd",
        may_use: &["unvme-spec", "unvme-bus", "unvme-fabric", "unvme-flash"],
        tests_may_use: &["unvme-driver"],
        attributes: &[FORBID],
    },
    Floor {
        package: "unvme",
        may_use: &["unvme-driver", "unvme-fabric", "unvme-bus", "unvme-spec", "unvme-ssd", "unvme-flash"],
        tests_may_use: &[],
        attributes: &[FORBID],
    },
    Floor {
        package: "unvme-guide",
        may_use: &["unvme", "unvme-driver", "unvme-bus", "unvme-spec"],
        tests_may_use: &["unvme-ssd"],
        attributes: &[FORBID],
    },
    Floor {
        package: "unvme-setup",
        may_use: &["unvme", "unvme-bus"],
        tests_may_use: &[],
        attributes: &[FORBID],
    },
    Floor {
        package: "unvme-advise",
        may_use: &["unvme", "unvme-guide", "unvme-setup"],
        tests_may_use: &[],
        attributes: &[FORBID],
    },
    Floor { package: "unvme-fs", may_use: &["unvme"], tests_may_use: &[], attributes: &[FORBID] },
    Floor {
        package: "unvme-capi",
        may_use: &["unvme", "unvme-guide", "unvme-fs"],
        tests_may_use: &[],
        attributes: &[],
    },
    Floor { package: "unvme-preload", may_use: &["unvme", "unvme-fs"], tests_may_use: &[], attributes: &[] },
    Floor {
        package: "unvme-cli",
        may_use: &[
            "unvme",
            "unvme-guide",
            "unvme-setup",
            "unvme-advise",
            "unvme-fs",
            "unvme-ssd",
            "unvme-flash",
            "unvme-spec",
        ],
        tests_may_use: &[],
        attributes: &[FORBID],
    },
    Floor { package: "xtask", may_use: &[], tests_may_use: &[], attributes: &[FORBID] },
];

/// An edge that must stay switchable: (from, to, the one feature that may switch it on).
const BEHIND_FEATURE: &[(&str, &str, &str)] = &[("unvme", "unvme-ssd", "local")];

/// Crates that take nothing from outside but these.
const OUTSIDE_ONLY: &[(&str, &[&str])] = &[("unvme-spec", &["bitfield-struct", "zerocopy"])];

/// Outside crates that only some may use.
const OUTSIDE_USERS: &[(&str, &[&str])] = &[("anyhow", &["unvme-cli", "xtask"])];

pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let metadata = metadata::read(root, &["--no-deps"])?;
    let members: Vec<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let mut problems = Vec::new();
    for package in &metadata.packages {
        problems.extend(edges(package, &members));
        problems.extend(attributes(package)?);
        problems.extend(storeys::check(package)?);
    }
    problems.extend(bus_is_silent_about_its_user(root)?);
    Ok(problems)
}

/// Problems of the edges that start at `package`; `members` are the names of all crates of the workspace.
fn edges(package: &Package, members: &[&str]) -> Vec<String> {
    let from = package.name.as_str();
    let Some(floor) = FLOORS.iter().find(|floor| floor.package == from) else {
        return vec![format!(
            "{from}: has no floor; say in docs/architecture.md what it may use, then add it to FLOORS in \
             xtask/src/floors.rs"
        )];
    };
    let mut problems = Vec::new();
    for dependency in &package.dependencies {
        if members.contains(&dependency.name.as_str()) {
            problems.extend(inner_edge(floor, dependency));
            problems.extend(switched_edge(package, dependency));
        } else {
            problems.extend(outer_edge(from, dependency));
        }
    }
    problems
}

fn inner_edge(floor: &Floor, dependency: &Dependency) -> Option<String> {
    let (from, to) = (floor.package, dependency.name.as_str());
    let is_test = dependency.kind == Some(Kind::Dev);
    if floor.may_use.contains(&to) || (is_test && floor.tests_may_use.contains(&to)) {
        return None;
    }
    let rule = match floor.may_use {
        [] => "no other crate of this workspace".to_owned(),
        some => some.join(", "),
    };
    let advice = if floor.tests_may_use.contains(&to) {
        "move it to [dev-dependencies]: only tests may see it".to_owned()
    } else {
        format!("drop the dependency, or move what {from} needs from it to a floor that both may use")
    };
    let section = if is_test { " (dev)" } else { "" };
    Some(format!("{from} -> {to}{section}: not allowed; {from} may use {rule}; {advice}"))
}

/// An edge of `BEHIND_FEATURE` must be optional, and only its feature may name it.
fn switched_edge(package: &Package, dependency: &Dependency) -> Vec<String> {
    let from = package.name.as_str();
    let to = dependency.name.as_str();
    let Some((.., feature)) = BEHIND_FEATURE.iter().find(|(f, t, _)| (*f, *t) == (from, to)) else {
        return Vec::new();
    };
    if dependency.kind == Some(Kind::Dev) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    if !dependency.optional {
        problems.push(format!(
            "{from} -> {to}: must be `optional = true`; {from} works without it when the feature `{feature}` is off"
        ));
    }
    for (name, enables) in &package.features {
        let mentions = |entry: &String| entry.trim_start_matches("dep:").split(['/', '?']).next() == Some(to);
        if name != feature && enables.iter().any(mentions) {
            problems.push(format!("{from} -> {to}: feature `{name}` switches it on; only `{feature}` may"));
        }
    }
    problems
}

fn outer_edge(from: &str, dependency: &Dependency) -> Option<String> {
    let to = dependency.name.as_str();
    if dependency.kind == Some(Kind::Dev) {
        return None;
    }
    if let Some((_, only)) = OUTSIDE_ONLY.iter().find(|(package, _)| *package == from)
        && !only.contains(&to)
    {
        return Some(format!(
            "{from} -> {to}: not allowed; from outside, {from} may use only {}",
            only.join(", ")
        ));
    }
    if let Some((_, users)) = OUTSIDE_USERS.iter().find(|(outside, _)| *outside == to)
        && !users.contains(&from)
    {
        return Some(format!(
            "{from} -> {to}: only {} may use {to}; a library gives its caller an error enum",
            users.join(", ")
        ));
    }
    None
}

/// The inner attributes that the root file of `package` must carry.
fn attributes(package: &Package) -> Result<Vec<String>> {
    let Some(floor) = FLOORS.iter().find(|floor| floor.package == package.name) else {
        return Ok(Vec::new());
    };
    if floor.attributes.is_empty() {
        return Ok(Vec::new());
    }
    let path = package.root_file()?;
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(floor
        .attributes
        .iter()
        .filter(|(name, argument)| !carries(&text, name, argument))
        .map(|(name, argument)| {
            let list = if argument.is_empty() { String::new() } else { format!("({argument})") };
            format!("{}: its root file must say `#![{name}{list}]`", package.name)
        })
        .collect())
}

/// Whether `text` has the inner attribute `#![name]`, or `#![name(.., argument, ..)]` when there is an
/// argument. What `deny` is asked for, `forbid` gives too.
fn carries(text: &str, name: &str, argument: &str) -> bool {
    let code: String = lex::split(text).code.split_whitespace().collect();
    if argument.is_empty() {
        return code.contains(&format!("#![{name}]"));
    }
    let names: &[&str] = if name == "deny" { &["deny", "forbid"] } else { &[name] };
    names.iter().any(|name| {
        code.match_indices(&format!("#![{name}(")).any(|(at, opening)| {
            let list = code[at + opening.len()..].split(')').next().unwrap_or_default();
            list.split(',').any(|item| item == argument)
        })
    })
}

/// `bus` carries any PCI function, so the protocol above it is not even mentioned there.
fn bus_is_silent_about_its_user(root: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let mut folders = vec![root.join("crates/bus/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            for (index, line) in text.lines().enumerate() {
                if names_the_protocol(line) {
                    problems.push(format!(
                        "{}:{}: bus knows PCI and nothing above it; reword, or move this to driver or ssd",
                        path.strip_prefix(root).unwrap_or(&path).display(),
                        index + 1
                    ));
                }
            }
        }
    }
    Ok(problems)
}

fn names_the_protocol(line: &str) -> bool {
    // The project's own name contains the word.
    line.to_lowercase().replace("unvme", "").contains("nvme")
}

#[cfg(test)]
mod tests {
    use super::{carries, edges, names_the_protocol};
    use crate::metadata::Package;

    const MEMBERS: &[&str] = &[
        "unvme-spec",
        "unvme-bus",
        "unvme-driver",
        "unvme-flash",
        "unvme-ssd",
        "unvme",
        "unvme-fs",
        "unvme-cli",
        "unvme-new",
    ];

    /// The problems of a crate `from` with one dependency, written as `cargo metadata` writes it.
    fn problems(from: &str, dependency: &str, features: &str) -> Vec<String> {
        let text = format!(
            r#"{{"id":"x","name":"{from}","version":"0.1.0","license":null,"manifest_path":"/nowhere/Cargo.toml",
                "dependencies":[{dependency}],"features":{features}}}"#
        );
        let package: Package = serde_json::from_str(&text).expect("the test writes valid metadata");
        edges(&package, MEMBERS)
    }

    fn normal(from: &str, to: &str) -> Vec<String> {
        problems(from, &format!(r#"{{"name":"{to}","kind":null}}"#), "{}")
    }

    fn dev(from: &str, to: &str) -> Vec<String> {
        problems(from, &format!(r#"{{"name":"{to}","kind":"dev"}}"#), "{}")
    }

    #[test]
    fn the_edges_of_the_table_are_allowed() {
        for (from, to) in [
            ("unvme-driver", "unvme-spec"),
            ("unvme-ssd", "unvme-bus"),
            ("unvme-ssd", "unvme-flash"),
            ("unvme", "unvme-driver"),
            ("unvme-fs", "unvme"),
            ("unvme-cli", "unvme-ssd"),
            ("unvme-cli", "unvme-flash"),
        ] {
            assert_eq!(normal(from, to), Vec::<String>::new());
        }
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_names_the_edge_the_rule_and_the_way_out() {
        let found = normal("unvme-bus", "unvme-spec");
        assert_eq!(
            found,
            [
                "unvme-bus -> unvme-spec: not allowed; unvme-bus may use no other crate of this workspace; drop the \
              dependency, or move what unvme-bus needs from it to a floor that both may use"
            ]
        );
        assert_eq!(normal("unvme-fs", "unvme-driver").len(), 1);
        assert_eq!(problems("unvme-bus", r#"{"name":"unvme-spec","kind":"build"}"#, "{}").len(), 1);
    }

    #[test]
    fn driver_and_ssd_meet_in_tests_only() {
        assert!(dev("unvme-driver", "unvme-ssd").is_empty());
        assert!(dev("unvme-ssd", "unvme-driver").is_empty());
        assert!(normal("unvme-driver", "unvme-ssd")[0].contains("[dev-dependencies]"));
        assert_eq!(normal("unvme-ssd", "unvme-driver").len(), 1);
        assert_eq!(dev("unvme-bus", "unvme-ssd").len(), 1, "no other test may cross the floors");
    }

    #[test]
    fn the_sdk_sees_the_ssd_only_behind_its_feature() {
        let optional = r#"{"name":"unvme-ssd","kind":null,"optional":true}"#;
        assert!(problems("unvme", optional, r#"{"default":["local"],"local":["dep:unvme-ssd"]}"#).is_empty());
        assert_eq!(problems("unvme", optional, r#"{"default":["dep:unvme-ssd"]}"#).len(), 1);
        assert_eq!(problems("unvme", optional, r#"{"default":["unvme-ssd/fast"]}"#).len(), 1);
        assert_eq!(normal("unvme", "unvme-ssd").len(), 1);
    }

    #[test]
    fn a_crate_without_a_floor_is_an_error() {
        let found = normal("unvme-new", "unvme-spec");
        assert!(found[0].starts_with("unvme-new: has no floor"), "{found:?}");
    }

    #[test]
    fn spec_takes_nothing_else_from_outside_and_libraries_no_catch_all_error() {
        assert!(normal("unvme-spec", "zerocopy").is_empty());
        assert_eq!(normal("unvme-spec", "serde").len(), 1);
        assert!(dev("unvme-spec", "serde").is_empty());
        assert!(normal("unvme-cli", "anyhow").is_empty());
        assert_eq!(normal("unvme-ssd", "anyhow").len(), 1);
    }

    #[test]
    fn an_attribute_counts_in_code_and_not_in_a_comment() {
        assert!(carries("//! Doc\n#![no_std]\n", "no_std", ""));
        assert!(carries("#![forbid(missing_docs, unsafe_code)]", "forbid", "unsafe_code"));
        assert!(carries("#![forbid(unsafe_code)]", "deny", "unsafe_code"));
        assert!(!carries("// #![forbid(unsafe_code)]", "forbid", "unsafe_code"));
        assert!(!carries("#![deny(unsafe_code)]", "forbid", "unsafe_code"));
        assert!(!carries(
            "#![forbid(unsafe_op_in_unsafe_fn)] fn f() { g(unsafe_code) }",
            "forbid",
            "unsafe_code"
        ));
    }

    #[test]
    fn the_project_name_is_not_the_protocol_name() {
        assert!(!names_the_protocol("use unvme_bus::mem; // UNVME"));
        assert!(names_the_protocol("/// An NVMe doorbell"));
        assert!(names_the_protocol("use unvme_bus::nvme;"));
    }
}
