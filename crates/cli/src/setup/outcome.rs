//! What becomes of which drive: done, or only shown.

use std::io::{self, Write};

use anyhow::Result;
use unvme_setup::{Decision, HugePages, Outcome, Plan, Step, System, huge_pages};

use crate::output::Format;
use crate::value::{Fields, fields};

/// Does what a plan says and shows what became of each drive; or in a dry run shows the commands that would
/// do it.
pub(super) fn carry_out(system: &System, plan: &Plan, dry_run: bool, format: Format) -> Result<()> {
    let remarks = if dry_run { Vec::new() } else { plan.execute(system)? };
    let about_pages = plan.steps.iter().any(|step| matches!(step, Step::HugePages { .. }));
    let pages = if about_pages && !dry_run { huge_pages(system) } else { Vec::new() };
    let mut json = fields! {
        "drives": plan.decisions.iter().map(decision_json).collect::<Vec<_>>(), "dry_run": dry_run,
        "commands": plan.steps.iter().flat_map(Step::commands).collect::<Vec<_>>(),
    };
    if about_pages && !dry_run {
        json = json.with("huge_pages", pages.iter().map(pages_json).collect::<Vec<_>>());
    }
    let json = json.with("remarks", remarks.clone());
    format.show(json, |out| match dry_run {
        true => write_commands(out, plan),
        false => write_outcome(out, plan, &pages),
    })?;
    for remark in remarks {
        writeln!(io::stderr(), "unvme: {remark}")?;
    }
    Ok(())
}

/// `0000:0b:00.0 (144d a808): nvme -> uio_pci_generic`, as the guide's script prints it, and why.
fn line(decision: &Decision) -> String {
    let function = &decision.drive.function;
    let from = function.driver.as_deref().unwrap_or("-");
    let name = format!("{} ({:04x} {:04x})", function.address, function.vendor, function.device);
    match &decision.outcome {
        Outcome::Bind { to, why } if why.is_empty() => format!("{name}: {from} -> {to}"),
        Outcome::Bind { to, why } => format!("{name}: {from} -> {to} ({why})"),
        Outcome::Already => format!("{name}: {from} already"),
        Outcome::Left { why } => format!("{name}: {from}, left alone: {why}"),
        _ => name,
    }
}

/// The plan as a shell script.
fn write_commands(out: &mut dyn Write, plan: &Plan) -> io::Result<()> {
    for decision in &plan.decisions {
        writeln!(out, "# {}", line(decision))?;
        for unseen in &decision.unseen {
            writeln!(out, "# {}: {unseen}; with sudo it is", decision.drive.function.address)?;
        }
    }
    for command in plan.steps.iter().flat_map(Step::commands) {
        writeln!(out, "{command}")?;
    }
    Ok(())
}

fn write_outcome(out: &mut dyn Write, plan: &Plan, pages: &[HugePages]) -> io::Result<()> {
    if plan.decisions.is_empty() {
        writeln!(out, "no drive is bound to vfio-pci or uio_pci_generic")?;
    }
    for decision in &plan.decisions {
        writeln!(out, "{}", line(decision))?;
    }
    for step in &plan.steps {
        match step {
            Step::Give { nodes, owner, address } => {
                let nodes = if nodes.is_empty() { "its device nodes".to_owned() } else { nodes.join(", ") };
                writeln!(out, "{address}: {nodes} given to {}", owner_text(owner))?;
            }
            Step::Limits { user } => writeln!(out, "{user} may lock any memory from the next login on")?,
            _ => {}
        }
    }
    pages.iter().try_for_each(|pages| writeln!(out, "{}", pages_line(pages)))
}

fn owner_text(owner: &unvme_setup::Owner) -> String {
    match owner {
        unvme_setup::Owner::User(name) => format!("user {name}"),
        unvme_setup::Owner::Group(name) => format!("group {name}"),
    }
}

/// Huge pages of a node in words.
pub(super) fn pages_line(pages: &HugePages) -> String {
    let place = pages.node.map_or_else(String::new, |node| format!(" on NUMA node {node}"));
    format!("huge pages of 2 MiB{place}: {}, {} free", pages.total, pages.free)
}

/// Huge pages of a node for programs.
pub(super) fn pages_json(pages: &HugePages) -> Fields {
    fields! { "total": pages.total, "free": pages.free, "numa_node": pages.node }
}

fn decision_json(decision: &Decision) -> Fields {
    let function = &decision.drive.function;
    let from = function.driver.as_deref();
    let (outcome, to, why) = match &decision.outcome {
        Outcome::Bind { to, why } => ("bound", Some(to.name()), why.as_str()),
        Outcome::Already => ("already", from, ""),
        Outcome::Left { why } => ("left", from, why.as_str()),
        _ => ("", None, ""),
    };
    fields! {
        "address": function.address.to_string(), "vendor": function.vendor, "device": function.device,
        "from": from, "outcome": outcome, "driver": to, "why": Some(why).filter(|why| !why.is_empty()),
        "unseen": Some(decision.unseen.clone()).filter(|unseen| !unseen.is_empty()),
    }
}
