//! Bit fields of a controller and of a namespace, as `nvme id-ctrl -H` and `nvme id-ns -H` explain them.

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

/// Bits of a field of a namespace: highest, lowest, and what their values say. A value beyond the texts is
/// reserved.
type Part = (u32, u32, &'static [&'static str]);

/// What a bit of a namespace's capability says when it is not set and when it is.
macro_rules! capability {
    ($what:literal) => {
        &[concat!($what, " Not Supported"), concat!($what, " Supported")]
    };
}

/// Fields of a namespace and their parts, the highest first.
const NAMESPACE: &[(&str, &[Part])] = &[
    (
        "nsfeat",
        &[
            (7, 7, &["NPRG, NPRA and NORS are Not Supported", "NPRG, NPRA and NORS are Supported"]),
            (
                6,
                6,
                &[
                    "Single Atomicity Mode applies to write operations",
                    "Multiple Atomicity Mode applies to write operations",
                ],
            ),
            (
                5,
                4,
                &[
                    "NPWG, NPWA, NPDG, NPDGL, NPDA, and NOWS are Not Supported",
                    "NPWG, NPWA, NPDG, NPDA, and NOWS are Supported",
                    "NPWG, NPWA, NPDGL, NPDAL, and NOWS are Supported",
                    "NPWG, NPWA, NPDG, NPDGL, NPDA, and NOWS are Supported",
                ],
            ),
            (
                3,
                3,
                &[
                    "NGUID and EUI64 fields if non-zero, Reused",
                    "NGUID and EUI64 fields if non-zero, Never Reused",
                ],
            ),
            (2, 2, capability!("Deallocated or Unwritten Logical Block error")),
            (1, 1, &["Namespace uses AWUN, AWUPF, and ACWU", "Namespace uses NAWUN, NAWUPF, and NACWU"]),
            (0, 0, capability!("Thin Provisioning")),
        ],
    ),
    (
        "flbas",
        &[
            (6, 5, &["Most significant 2 bits of Current LBA Format Selected"; 4]),
            (
                4,
                4,
                &[
                    "Metadata Transferred in Separate Contiguous Buffer",
                    "Metadata Transferred at End of Data LBA",
                ],
            ),
            (3, 0, &["Least significant 4 bits of Current LBA Format Selected"; 16]),
        ],
    ),
    (
        "mc",
        &[
            (1, 1, capability!("Metadata Pointer")),
            (0, 0, capability!("Metadata as Part of Extended Data LBA")),
        ],
    ),
    (
        "dpc",
        &[
            (4, 4, capability!("Protection Information Transferred as Last Bytes of Metadata")),
            (3, 3, capability!("Protection Information Transferred as First Bytes of Metadata")),
            (2, 2, capability!("Protection Information Type 3")),
            (1, 1, capability!("Protection Information Type 2")),
            (0, 0, capability!("Protection Information Type 1")),
        ],
    ),
    (
        "dps",
        &[
            (
                3,
                3,
                &[
                    "Protection Information is Transferred as Last Bytes of Metadata",
                    "Protection Information is Transferred as First Bytes of Metadata",
                ],
            ),
            (
                2,
                0,
                &[
                    "Protection Information Disabled",
                    "Protection Information Type 1 Enabled",
                    "Protection Information Type 2 Enabled",
                    "Protection Information Type 3 Enabled",
                ],
            ),
        ],
    ),
    (
        "nmic",
        &[
            (1, 1, &["Namespace is Not a Dispersed Namespace", "Namespace is a Dispersed Namespace"]),
            (0, 0, &["Namespace Multipath Not Capable", "Namespace Multipath Capable"]),
        ],
    ),
    (
        "rescap",
        &[
            (
                7,
                7,
                &[
                    "Ignore Existing Key - Used as defined in revision 1.2.1 or earlier",
                    "Ignore Existing Key - Used as defined in revision 1.3 or later",
                ],
            ),
            (6, 6, capability!("Exclusive Access - All Registrants")),
            (5, 5, capability!("Write Exclusive - All Registrants")),
            (4, 4, capability!("Exclusive Access - Registrants Only")),
            (3, 3, capability!("Write Exclusive - Registrants Only")),
            (2, 2, capability!("Exclusive Access")),
            (1, 1, capability!("Write Exclusive")),
            (0, 0, capability!("Persist Through Power Loss")),
        ],
    ),
    (
        "fpi",
        &[
            (7, 7, capability!("Format Progress Indicator")),
            (6, 0, &["Format Progress Indicator, percent that remain"; 101]),
        ],
    ),
    (
        "dlfeat",
        &[
            (
                4,
                4,
                &[
                    "Guard Field of Deallocated Logical Blocks is set to 0xFFFF",
                    "Guard Field of Deallocated Logical Blocks is set to CRC of The Value Read",
                ],
            ),
            (
                3,
                3,
                &[
                    "Deallocate Bit in the Write Zeroes Command is Not Supported",
                    "Deallocate Bit in the Write Zeroes Command is Supported",
                ],
            ),
            (
                2,
                0,
                &[
                    "Bytes Read From a Deallocated Logical Block and its Metadata are Not Reported",
                    "Bytes Read From a Deallocated Logical Block and its Metadata are 0x00",
                    "Bytes Read From a Deallocated Logical Block and its Metadata are 0xFF",
                ],
            ),
        ],
    ),
    ("nsattr", &[(0, 0, &["Namespace Not Write Protected", "Namespace Write Protected"])]),
];

fn explain_parts(out: &mut dyn Write, parts: &[Part], value: u64) -> io::Result<()> {
    for (high, low, texts) in parts {
        let value = value >> low & ((1 << (high - low + 1)) - 1);
        let text = texts.get(value as usize).copied().unwrap_or("Reserved");
        writeln!(out, "  [{high}:{low}] : {}\t{text}", Value::Hex(value))?;
    }
    writeln!(out)
}

/// Explains the field called `name`, if it is one that is explained.
pub(super) fn explain(out: &mut dyn Write, name: &str, value: &Value) -> io::Result<()> {
    let (Value::Hex(value) | Value::Number(value)) = value else { return Ok(()) };
    if let Some((_, parts)) = NAMESPACE.iter().find(|(field, _)| *field == name) {
        return explain_parts(out, parts, *value);
    }
    let bits = match name {
        "ctratt" => CTRATT,
        "oacs" => OACS,
        _ => return Ok(()),
    };
    for (bit, what) in bits.iter().rev() {
        let set = value >> bit & 1;
        let not = if set == 0 { "Not " } else { "" };
        writeln!(out, "  [{bit}:{bit}] : {}\t{what} {not}Supported", Value::Hex(set))?;
    }
    writeln!(out)
}
