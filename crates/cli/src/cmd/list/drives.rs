//! Drives of the machine, as the kernel describes them. Nothing is opened.

use std::io::{self, Write};

use unvme::Error;
use unvme_setup::{Drive, Driver, Evidence, KernelNamespace, System, Use, drives};

use super::{Blocks, Row};
use crate::columns::{Rule, write_table};
use crate::value::{Fields, Value, fields};

/// What there is.
#[derive(Default)]
pub(super) struct Listed {
    /// Namespaces that the kernel's driver offers.
    pub(super) namespaces: Vec<Row>,
    /// NVMe functions.
    pub(super) functions: Vec<Line>,
}

/// One NVMe function.
pub(super) struct Line {
    address: String,
    numa_node: Option<u32>,
    driver: Option<String>,
    uses: Vec<Use>,
    open_as: OpenAs,
}

/// How a drive is opened.
enum OpenAs {
    /// By these names.
    Names(Vec<String>),
    /// It has to be set up first, by this command.
    After(String),
}

const HEADERS: [&str; 5] = ["BDF Address", "Numa Node", "Driver", "In use by", "Open as"];

/// Looks at the PCI bus.
pub(super) fn list() -> Result<Listed, Error> {
    let system = System::from_environment();
    let found = drives(&system)?;
    if found.is_empty() {
        return Ok(Listed::default());
    }
    let evidence = Evidence::gather(&system);
    let namespaces = found.iter().flat_map(|drive| drive.namespaces.iter().map(|n| row(drive, n))).collect();
    let functions = found.iter().map(|drive| Line::new(drive, evidence.uses(drive))).collect();
    Ok(Listed { namespaces, functions })
}

fn row(drive: &Drive, namespace: &KernelNamespace) -> Row {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
    let blocks = namespace.has_blocks.then(|| Blocks {
        count: namespace.bytes.checked_div(namespace.block_bytes.into()).unwrap_or(0),
        bytes: namespace.block_bytes,
        metadata_bytes: None,
    });
    Row {
        address: drive.function.address.to_string(),
        name: kernel_name(namespace),
        serial: text(&drive.serial),
        model: text(&drive.model),
        nsid: namespace.nsid.unwrap_or(0),
        used_bytes: None,
        bytes: namespace.bytes.into(),
        // Without blocks it may hold pairs, or what neither the kernel nor we know.
        kind: if namespace.has_blocks { "LBA" } else { "-" },
        blocks,
        firmware: text(&drive.firmware),
    }
}

/// The name by which a namespace of the kernel's is opened: for passthrough, where it can be.
fn kernel_name(namespace: &KernelNamespace) -> String {
    format!("kernel:/dev/{}", namespace.generic.as_ref().unwrap_or(&namespace.name))
}

impl Line {
    fn new(drive: &Drive, uses: Vec<Use>) -> Self {
        let address = drive.function.address.to_string();
        let driver = drive.driver();
        let is = |known: Driver| driver == Some(known.name());
        let open_as = if is(Driver::VfioPci) || is(Driver::UioPciGeneric) {
            OpenAs::Names(vec![address.clone()])
        } else if let Some(controller) = &drive.controller {
            match drive.namespaces.as_slice() {
                [] => OpenAs::Names(vec![format!("kernel:/dev/{controller}")]),
                namespaces => OpenAs::Names(namespaces.iter().map(kernel_name).collect()),
            }
        } else {
            OpenAs::After(format!("unvme setup config {address}"))
        };
        Self {
            address,
            numa_node: drive.function.numa_node,
            driver: driver.map(str::to_owned),
            uses,
            open_as,
        }
    }

    fn cells(&self) -> [String; 5] {
        let dash = || "-".to_owned();
        let uses: Vec<String> = self.uses.iter().map(Use::brief).collect();
        [
            self.address.clone(),
            self.numa_node.map_or_else(dash, |node| node.to_string()),
            self.driver.clone().unwrap_or_else(dash),
            if uses.is_empty() { dash() } else { uses.join(", ") },
            match &self.open_as {
                OpenAs::Names(names) => names.join(" "),
                OpenAs::After(command) => format!("(after {command})"),
            },
        ]
    }

    /// For programs.
    pub(super) fn json(&self) -> Fields {
        let list = |texts: Vec<String>| Value::List(texts.into_iter().map(Value::from).collect());
        let fields = fields! {
            "Address": self.address.as_str(), "NumaNode": self.numa_node, "Driver": self.driver.as_deref(),
            "InUseBy": list(self.uses.iter().map(ToString::to_string).collect()),
        };
        match &self.open_as {
            OpenAs::Names(names) => fields.with("OpenAs", list(names.clone())),
            OpenAs::After(command) => fields.with("SetUpBy", command.as_str()),
        }
    }
}

/// The table of functions, if there are any.
pub(super) fn write(out: &mut dyn Write, lines: &[Line]) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    write_table(out, &HEADERS, Rule::Dashes, &lines.iter().map(Line::cells).collect::<Vec<_>>())
}
