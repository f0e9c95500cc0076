//! Floors inside a crate: which of its modules may need which.

use anyhow::Result;

use crate::metadata::Package;
use crate::modules::{self, Files};

/// The modules of a crate by storeys, the lowest first: a module may need those of its own storey and of
/// lower ones.
struct House {
    package: &'static str,
    storeys: &'static [&'static [&'static str]],
}

const HOUSES: &[House] = &[
    House {
        package: "unvme-driver",
        storeys: &[
            &["error"],
            &["claim", "event", "numbers", "limits", "options", "repeat"],
            &["command"],
            &["base", "bring_up", "mailbox", "watch"],
            &["wait"],
            &["pcie", "kernel", "tcp"],
            &["fabrics"],
            &["queue"],
            &["controller"],
            &["admin", "arbitration", "claims"],
            &["fdp", "kv", "namespace", "share"],
        ],
    },
    House {
        package: "unvme-ssd",
        storeys: &[
            // What depends on nothing else of the device.
            &[
                "arbiter",
                "association",
                "controllers",
                "dptr",
                "events",
                "firmware",
                "held",
                "hex",
                "identity",
                "reply",
            ],
            &["claims", "interrupts", "limits", "pci"],
            &["error_log", "fault"],
            &["error"],
            // Bytes, and what is on them.
            &["store"],
            &["flash"],
            &["config"],
            &["fdp", "features", "media"],
            &["kv"],
            &["namespace", "smart"],
            &["queue", "saved"],
            // A controller, and what it shares with others.
            &["ssd", "subsystem"],
            // What is done with them.
            &["admin", "due", "nvm", "pairs", "placement", "removal"],
            &["inject"],
            &["engine"],
            &["turns"],
            // Over a network.
            &["fabrics"],
            &["tcp"],
        ],
    },
];

/// The arrows of `package` that run up, when its modules have storeys.
pub(crate) fn check(package: &Package) -> Result<Vec<String>> {
    match HOUSES.iter().find(|house| house.package == package.name) {
        Some(house) => Ok(rising(house, &modules::read(&package.root_file()?)?)),
        None => Ok(Vec::new()),
    }
}

/// Arrows that run up, and modules that have no storey.
fn rising(house: &House, files: &Files) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, needs) in files.names.iter().zip(&files.needs) {
        let Some(module) = module_of(name) else { continue };
        let Some(own) = house.storey(module) else {
            problems.push(format!(
                "{}: {name}: module `{module}` has no storey; add it to HOUSES in xtask/src/storeys.rs",
                house.package
            ));
            continue;
        };
        let above =
            |to: &&String| module_of(to).and_then(|module| house.storey(module)).is_some_and(|to| to > own);
        problems.extend(needs.iter().map(|to| &files.names[*to]).filter(above).map(|to| {
            format!(
                "{}: {name} -> {to}: runs up; hand in what it needs, or move that to a storey both may use",
                house.package
            )
        }));
    }
    problems
}

impl House {
    fn storey(&self, module: &str) -> Option<usize> {
        self.storeys.iter().position(|modules| modules.contains(&module))
    }
}

/// The module of the crate's root that a file belongs to; `None` for the root file itself.
fn module_of(name: &str) -> Option<&str> {
    let module = name.split('/').next()?;
    let module = module.strip_suffix(".rs").unwrap_or(module);
    (!matches!(module, "lib" | "main")).then_some(module)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{House, rising};
    use crate::modules::Files;

    const HOUSE: House = House { package: "x", storeys: &[&["low", "beside"], &["high"]] };

    fn problems(from: &str, to: &str) -> Vec<String> {
        let needs = vec![BTreeSet::from([1]), BTreeSet::new()];
        rising(&HOUSE, &Files { names: vec![from.to_owned(), to.to_owned()], needs })
    }

    #[test]
    fn arrows_run_down_or_along_a_storey() {
        assert!(problems("high/mod.rs", "low.rs").is_empty());
        assert!(problems("low.rs", "beside/inner.rs").is_empty());
        assert!(problems("lib.rs", "high.rs").is_empty());
    }

    #[test]
    fn an_arrow_that_runs_up_names_both_files() {
        let found = problems("low/inner.rs", "high.rs");
        assert!(found[0].starts_with("x: low/inner.rs -> high.rs: runs up"), "{found:?}");
    }

    #[test]
    fn a_module_without_a_storey_is_a_problem() {
        assert!(problems("new.rs", "low.rs")[0].contains("`new` has no storey"));
    }
}
