//! `setup status`.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use unvme_setup::{self as setup, DriveStatus, System, Use};

use super::outcome::{pages_json, pages_line};
use crate::columns::{Rule, write_table};
use crate::output::Output;
use crate::value::{Fields, fields};

/// Arguments of `setup status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Needs no permission; what this user may not look at is said. A line below the table for each
thing that is missing to use the drives from here, with the command that grants it.

Example: unvme setup status -o json")]
pub(crate) struct Status {
    #[command(flatten)]
    output: Output,
}

const HEADERS: [&str; 5] = ["BDF", "Numa Node", "Driver name", "Device name", "In use by"];

impl Status {
    pub(crate) fn run(self) -> Result<()> {
        let status = setup::status(&System::from_environment())?;
        self.output.output.show(json(&status), |out| write(out, &status))
    }
}

fn write(out: &mut dyn Write, status: &setup::Status) -> io::Result<()> {
    if status.drives.is_empty() {
        writeln!(out, "no NVMe devices on the PCI bus")?;
    } else {
        writeln!(out, "NVMe devices\n")?;
        write_table(out, &HEADERS, Rule::None, &status.drives.iter().map(cells).collect::<Vec<_>>())?;
    }
    writeln!(out)?;
    let iommu = if status.has_iommu { "on" } else { "off" };
    writeln!(out, "IOMMU: {iommu}")?;
    for pages in &status.huge_pages {
        writeln!(out, "{}", pages_line(pages))?;
    }
    let limit = status.memlock_bytes.map_or("unlimited".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    writeln!(out, "locked memory (ulimit -l): {limit}")?;
    for missing in &status.missing {
        writeln!(out, "missing: {}\n  {}", missing.what, missing.command)?;
    }
    for drive in &status.drives {
        for unseen in &drive.unseen {
            writeln!(out, "not seen: {}: {unseen}; sudo unvme setup status", drive.drive.function.address)?;
        }
    }
    Ok(())
}

fn cells(status: &DriveStatus) -> [String; 5] {
    let drive = &status.drive;
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    [
        drive.function.address.to_string(),
        drive.function.numa_node.map_or("-".to_owned(), |node| node.to_string()),
        drive.driver().unwrap_or("-").to_owned(),
        or_dash(device_names(status).join(" ")),
        or_dash(status.uses.iter().map(Use::brief).collect::<Vec<_>>().join(", ")),
    ]
}

/// The controller, its namespaces, and nodes of drivers for user space.
fn device_names(status: &DriveStatus) -> Vec<String> {
    let nodes = status.drive.nodes();
    let names = nodes.iter().filter_map(|node| node.strip_prefix("/dev/"));
    let is_partition = |name: &str| {
        status.drive.namespaces.iter().any(|namespace| namespace.partitions.iter().any(|p| p == name))
    };
    names
        .filter(|name| !is_partition(name) && !name.starts_with("vfio/devices/"))
        .map(str::to_owned)
        .collect()
}

fn json(status: &setup::Status) -> Fields {
    let missing = status.missing.iter().map(|missing| {
        fields! { "what": missing.what.as_str(), "command": missing.command.as_str() }
    });
    fields! {
        "drives": status.drives.iter().map(drive_json).collect::<Vec<_>>(), "iommu": status.has_iommu,
        "huge_pages": status.huge_pages.iter().map(pages_json).collect::<Vec<_>>(),
        "memlock_bytes": status.memlock_bytes, "user": status.user.as_str(),
        "missing": missing.collect::<Vec<_>>(),
    }
}

fn drive_json(status: &DriveStatus) -> Fields {
    let function = &status.drive.function;
    fields! {
        "address": function.address.to_string(), "numa_node": function.numa_node,
        "driver": function.driver.as_deref(), "iommu_group": function.iommu_group,
        "nodes": status.drive.nodes(),
        "in_use_by": status.uses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "unseen": status.unseen.clone(),
    }
}
