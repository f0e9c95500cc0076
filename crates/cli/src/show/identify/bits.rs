//! Bit fields of a controller, bit by bit, as `nvme id-ctrl -H` explains them.

use std::io::{self, Write};

use crate::value::Value;

/// Bits of CTRATT, from bit 0 on.
const CTRATT: &[(u32, &str)] = &[
    (0, "128-bit Host Identifier"),
    (1, "Non-Operational Power State Permissive"),
    (2, "NVM Sets"),
    (3, "Read Recovery Levels"),
    (4, "Endurance Groups"),
    (5, "Predictable Latency Mode"),
    (6, "Traffic Based Keep Alive"),
    (7, "Namespace Granularity"),
    (8, "SQ Associations"),
    (9, "UUID List"),
    (10, "Multi Domain Subsystem"),
    (11, "Fixed Capacity Management"),
    (12, "Variable Capacity Management"),
    (13, "Delete Endurance Group"),
    (14, "Delete NVM Set"),
    (15, "Extended LBA Formats"),
    (19, "Flexible Data Placement"),
];

/// Bits of OACS, from bit 0 on.
const OACS: &[(u32, &str)] = &[
    (0, "Security Send and Receive"),
    (1, "Format NVM"),
    (2, "FW Commit and Download"),
    (3, "NS Management and Attachment"),
    (4, "Device Self-test"),
    (5, "Directives"),
    (6, "NVMe-MI Send and Receive"),
    (7, "Virtualization Management"),
    (8, "Doorbell Buffer Config"),
    (9, "Get LBA Status Capability"),
    (10, "Lockdown Command and Feature"),
];

/// Explains the field called `name`, if it is one that is explained.
pub(super) fn explain(out: &mut dyn Write, name: &str, value: &Value) -> io::Result<()> {
    let bits = match name {
        "ctratt" => CTRATT,
        "oacs" => OACS,
        _ => return Ok(()),
    };
    let Value::Hex(value) = value else { return Ok(()) };
    for (bit, what) in bits.iter().rev() {
        let set = value >> bit & 1;
        let not = if set == 0 { "Not " } else { "" };
        writeln!(out, "  [{bit}:{bit}] : {}\t{what} {not}Supported", Value::Hex(set))?;
    }
    writeln!(out)
}
