//! Controller registers, as `nvme show-regs` and `nvme get-property` print them.

use unvme_spec::regs::{self, Aqa, Cap, Cc, Crto, Csts, offset, version_parts};

use crate::value::{Fields, Value, fields};

/// A register: its name in text, its name in JSON where that is another one, where it is, its bytes.
pub(crate) struct Register {
    pub(crate) name: &'static str,
    pub(crate) json: &'static str,
    pub(crate) title: &'static str,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    /// It is a property as well: a controller on the network has it.
    pub(crate) is_property: bool,
}

const fn register(name: &'static str, title: &'static str, offset: u64, bytes: usize) -> Register {
    Register { name, json: name, title, offset, bytes, is_property: false }
}

const fn property(name: &'static str, title: &'static str, offset: u64, bytes: usize) -> Register {
    Register { is_property: true, ..register(name, title, offset, bytes) }
}

/// All that `show-regs` prints, in its order (Base figure 35).
pub(crate) const REGISTERS: &[Register] = &[
    property("cap", "Controller Capabilities", offset::CAP, 8),
    Register { json: "vs", ..property("version", "Version", offset::VS, 4) },
    register("intms", "Interrupt Mask Set", offset::INTMS, 4),
    register("intmc", "Interrupt Mask Clear", offset::INTMC, 4),
    property("cc", "Controller Configuration", offset::CC, 4),
    property("csts", "Controller Status", offset::CSTS, 4),
    property("nssr", "NVM Subsystem Reset", offset::NSSR, 4),
    property("crto", "Controller Ready Timeouts", offset::CRTO, 4),
    register("aqa", "Admin Queue Attributes", offset::AQA, 4),
    register("asq", "Admin Submission Queue Base Address", offset::ASQ, 8),
    register("acq", "Admin Completion Queue Base Address", offset::ACQ, 8),
    register("cmbloc", "Controller Memory Buffer Location", offset::CMBLOC, 4),
    register("cmbsz", "Controller Memory Buffer Size", offset::CMBSZ, 4),
    register("bpinfo", "Boot Partition Information", 0x40, 4),
    register("bprsel", "Boot Partition Read Select", 0x44, 4),
    register("bpmbl", "Boot Partition Memory Buffer Location", 0x48, 8),
    register("cmbmsc", "Controller Memory Buffer Memory Space Control", 0x50, 8),
    register("cmbsts", "Controller Memory Buffer Status", 0x58, 4),
    register("pmrcap", "Persistent Memory Region Capabilities", 0xe00, 4),
    register("pmrctl", "Persistent Memory Region Control", 0xe04, 4),
    register("pmrsts", "Persistent Memory Region Status", 0xe08, 4),
    register("pmrebs", "Persistent Memory Region Elasticity Buffer Size", 0xe0c, 4),
    register("pmrswtp", "Persistent Memory Region Sustained Write Throughput", 0xe10, 4),
    register("pmrmscl", "Persistent Memory Region Memory Space Control Lower", 0xe14, 4),
    register("pmrmscu", "Persistent Memory Region Memory Space Control Upper", 0xe18, 4),
];

/// What a register says, field by field; nothing for one that is a number.
pub(crate) fn explain(register: &Register, value: u64) -> Fields {
    match register.offset {
        offset::CAP => capabilities(Cap::from_bits(value)),
        offset::VS => {
            let (major, minor, tertiary) = version_parts(value as u32);
            fields! { "NVMe specification": format!("{major}.{minor}.{tertiary}") }
        }
        offset::CC => configuration(Cc::from_bits(value as u32)),
        offset::CSTS => status(Csts::from_bits(value as u32)),
        offset::NSSR => fields! { "NVM Subsystem Reset Control (NSSRC)": value },
        offset::AQA => {
            let aqa = Aqa::from_bits(value as u32);
            fields! {
                "Admin Completion Queue Size (ACQS)": count(u32::from(aqa.acqs_z()) + 1, "entries"),
                "Admin Submission Queue Size (ASQS)": count(u32::from(aqa.asqs_z()) + 1, "entries"),
            }
        }
        offset::CRTO => {
            let crto = Crto::from_bits(value as u32);
            fields! {
                "Controller Ready Independent of Media Timeout (CRIMT)": half_seconds(crto.crimt()),
                "Controller Ready With Media Timeout (CRWMT)": half_seconds(crto.crwmt()),
            }
        }
        _ => Fields::new(),
    }
}

fn count(number: u32, what: &str) -> String {
    format!("{number} {what}")
}

fn half_seconds(units: u16) -> String {
    format!("{} ms", u32::from(units) * 500)
}

fn yes(flag: bool) -> &'static str {
    if flag { "Yes" } else { "No" }
}

/// Size of a memory page, from its power over 4 KiB.
fn page(power: u8) -> String {
    format!("{} bytes", 1u64 << (12 + u32::from(power)))
}

fn capabilities(cap: Cap) -> Fields {
    let sets = [(0, "NVM"), (6, "one or more I/O command sets"), (7, "admin only")];
    let sets: Vec<&str> =
        sets.iter().filter(|(bit, _)| cap.css() >> bit & 1 == 1).map(|(_, name)| *name).collect();
    let arbitration = [(0, "weighted round robin"), (1, "vendor specific")];
    let mut mechanisms = vec!["round robin"];
    mechanisms.extend(arbitration.iter().filter(|(bit, _)| cap.ams() >> bit & 1 == 1).map(|(_, name)| *name));
    let modes = match cap.crms() {
        0 => "none stated",
        1 => "with media",
        2 => "independent of media",
        _ => "with media, independent of media",
    };
    fields! {
        "Controller Ready Modes Supported (CRMS)": modes,
        "NVM Subsystem Shutdown Supported (NSSS)": yes(cap.nsss()),
        "Controller Memory Buffer Supported (CMBS)": yes(cap.cmbs()),
        "Persistent Memory Region Supported (PMRS)": yes(cap.pmrs()),
        "Memory Page Size Maximum (MPSMAX)": page(cap.mpsmax()),
        "Memory Page Size Minimum (MPSMIN)": page(cap.mpsmin()),
        "Controller Power Scope (CPS)": ["not reported", "controller", "domain", "NVM subsystem"]
            .get(usize::from(cap.cps())).copied().unwrap_or("reserved"),
        "Boot Partition Support (BPS)": yes(cap.bps()),
        "Command Sets Supported (CSS)": sets.join(", "),
        "NVM Subsystem Reset Supported (NSSRS)": yes(cap.nssrs()),
        "Doorbell Stride (DSTRD)": format!("{} bytes", 4u32 << cap.dstrd()),
        "Timeout (TO)": half_seconds(cap.to().into()),
        "Arbitration Mechanism Supported (AMS)": mechanisms.join(", "),
        "Contiguous Queues Required (CQR)": yes(cap.cqr()),
        "Maximum Queue Entries Supported (MQES)": u32::from(cap.mqes_z()) + 1,
    }
}

fn configuration(cc: Cc) -> Fields {
    let sets = match cc.css() {
        regs::CSS_NVM => "NVM",
        regs::CSS_ALL => "all supported I/O command sets",
        regs::CSS_ADMIN_ONLY => "admin only",
        _ => "reserved",
    };
    let shutdown = match cc.shn() {
        regs::SHN_NONE => "no notification",
        regs::SHN_NORMAL => "normal shutdown",
        regs::SHN_ABRUPT => "abrupt shutdown",
        _ => "reserved",
    };
    let arbitration = match cc.ams() {
        0 => "round robin",
        1 => "weighted round robin with urgent priority class",
        7 => "vendor specific",
        _ => "reserved",
    };
    fields! {
        "Controller Ready Independent of Media Enable (CRIME)": yes(cc.crime()),
        "I/O Completion Queue Entry Size (IOCQES)": format!("{} bytes", 1u32 << cc.iocqes()),
        "I/O Submission Queue Entry Size (IOSQES)": format!("{} bytes", 1u32 << cc.iosqes()),
        "Shutdown Notification (SHN)": shutdown,
        "Arbitration Mechanism Selected (AMS)": arbitration,
        "Memory Page Size (MPS)": page(cc.mps()),
        "I/O Command Set Selected (CSS)": sets,
        "Enable (EN)": yes(cc.en()),
    }
}

fn status(csts: Csts) -> Fields {
    let shutdown = match csts.shst() {
        regs::SHST_NORMAL => "normal operation",
        regs::SHST_IN_PROGRESS => "shutdown in progress",
        regs::SHST_COMPLETE => "shutdown complete",
        _ => "reserved",
    };
    fields! {
        "Shutdown Type (ST)": if csts.st() { "NVM subsystem" } else { "controller" },
        "Processing Paused (PP)": yes(csts.pp()),
        "NVM Subsystem Reset Occurred (NSSRO)": yes(csts.nssro()),
        "Shutdown Status (SHST)": shutdown,
        "Controller Fatal Status (CFS)": yes(csts.cfs()),
        "Ready (RDY)": yes(csts.rdy()),
    }
}

/// A value as text: hexadecimal without a prefix.
pub(crate) fn text(value: u64) -> String {
    format!("{value:x}")
}

/// Registers for JSON.
pub(crate) fn json(values: &[(&Register, u64)]) -> Fields {
    let named = values.iter().map(|(register, value)| (register.json.to_owned(), Value::Number(*value)));
    Fields(named.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_taken_apart() {
        let find = |name| REGISTERS.iter().find(|register| register.name == name).expect("a register");
        let line = |name, value, what: &str| {
            let fields = explain(find(name), value);
            fields.0.into_iter().find(|(field, _)| field.contains(what)).map(|(_, value)| value.to_string())
        };
        assert_eq!(line("version", 0x0002_0100, "specification").as_deref(), Some("2.1.0"));
        assert_eq!(line("cap", 0x0030_0020_0a00_0fff, "MQES").as_deref(), Some("4096"));
        assert_eq!(line("cap", 0x0a00_0fff, "(TO)").as_deref(), Some("5000 ms"));
        assert_eq!(line("cc", 0x0046_0001, "IOSQES").as_deref(), Some("64 bytes"));
        assert_eq!(line("cc", 0x0046_0001, "(EN)").as_deref(), Some("Yes"));
        assert_eq!(line("csts", 0b1001, "SHST").as_deref(), Some("shutdown complete"));
        assert_eq!(line("aqa", 0x001f_000f, "ACQS").as_deref(), Some("32 entries"));
        assert_eq!(line("asq", 0x1000, ""), None, "an address explains itself");
        // All ones, as a device that is gone reads.
        for register in REGISTERS {
            explain(register, u64::MAX);
        }
    }
}
