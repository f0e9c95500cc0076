//! What a shell is told when somebody presses Tab: commands and options as clap knows them, devices as they
//! are at that moment.

use std::ffi::OsStr;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::CompleteEnv;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::Shells;
use unvme::Registry;
use unvme::fabrics::{KnownTarget, KnownTargets};

use crate::exit::usage;

/// Variable with the shell's name, by which its script asks the program itself.
const VARIABLE: &str = "COMPLETE";
/// Our name.
const PROGRAM: &str = "unvme";
/// Beginnings of names whose rest nobody can know.
const BEGINNINGS: [&str; 5] = ["mem:block:", "mem:kv:", "kernel:/dev/", "vfio-user:", "tcp:"];

/// Answers a shell that asks about the words of `command`, and ends the program then.
pub(crate) fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// The script that has a shell ask.
pub(crate) fn script(shell: &str) -> Result<Vec<u8>> {
    let shells = Shells::builtins();
    let Some(completer) = shells.completer(shell) else {
        let names: Vec<&str> = shells.names().collect();
        return Err(usage(format!("{shell}: expected one of {}", names.join(", "))));
    };
    let mut script = Vec::new();
    if shell == "bash" {
        // Addresses have colons, at which bash would break the word.
        script.extend(b"COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n");
    }
    completer
        .write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)
        .context("write the completion script")?;
    Ok(script)
}

/// Names of devices that begin with what is there already.
pub(crate) fn devices(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = slots(current);
    let begin = current.to_string_lossy();
    if let Ok(registry) = Registry::from_environment()
        && let Ok(known) = KnownTargets::load(&registry)
    {
        let names = known.targets.iter().filter_map(KnownTarget::name).map(|name| name.to_string());
        found.extend(names.filter(|name| name.starts_with(&*begin)).map(CompletionCandidate::new));
    }
    found.extend(BEGINNINGS.iter().filter(|name| name.starts_with(&*begin)).map(CompletionCandidate::new));
    found
}

/// Addresses of virtual devices that begin with what is there already.
pub(crate) fn slots(current: &OsStr) -> Vec<CompletionCandidate> {
    let begin = current.to_string_lossy();
    let slots = Registry::from_environment().and_then(|registry| registry.list()).unwrap_or_default();
    let names = slots.iter().map(|slot| slot.address.to_string());
    names.filter(|name| name.starts_with(&*begin)).map(CompletionCandidate::new).collect()
}
