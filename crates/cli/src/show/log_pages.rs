//! Log pages about what a controller can do and how its namespaces are reached, as nvme-cli prints them.

use std::io::{self, Write};

use unvme_spec::command::CommandSet;
use unvme_spec::log_page::{
    AnaGroup, AnaHeader, CommandsSupported, EnduranceGroup, SupportedLogPages, command_effects,
    effects_scope, lid, lid_support,
};
use zerocopy::FromBytes;

use crate::value::{Fields, Value, fields};

/// Effects of the commands of an I/O command set, and of admin commands.
pub(crate) struct Effects {
    pub(crate) csi: u8,
    pub(crate) log: CommandsSupported,
}

/// Commands that are supported: opcode, name, effects.
type Supported = Vec<(usize, &'static str, u32)>;

impl Effects {
    fn supported(entries: &[u32; 256], name: impl Fn(u8) -> Option<&'static str>) -> Supported {
        let rows = (0..=u8::MAX).zip(entries).filter(|(_, effects)| **effects & command_effects::CSUPP != 0);
        rows.map(|(opcode, effects)| (opcode.into(), name(opcode).unwrap_or("Unknown"), *effects)).collect()
    }

    fn admin(&self) -> Supported {
        Self::supported(&self.log.admin, |opcode| CommandSet::Admin.facts(opcode).map(|facts| facts.name))
    }

    fn io(&self) -> Supported {
        let name = |opcode| unvme_spec::command::io(self.csi, opcode).map(|facts| facts.name);
        Self::supported(&self.log.io, name)
    }

    fn json(&self) -> Fields {
        let set = |prefix: &str, rows: Supported| {
            rows.into_iter().fold(Fields::new(), |fields, (opcode, name, effects)| {
                fields.with(format!("{prefix}_{opcode} ({name})"), effects)
            })
        };
        fields! {
            "command_set_identifier": self.csi, "admin_cmd_set": set("ACS", self.admin()),
            "io_cmd_set": set("IOCS", self.io()),
        }
    }
}

/// Commands Supported and Effects logs for JSON.
pub(crate) fn effects(logs: &[Effects]) -> Value {
    Value::List(logs.iter().map(|log| Value::Fields(log.json())).collect())
}

fn command_set_name(csi: u8) -> String {
    match csi {
        0 => "NVM Command Set".to_owned(),
        1 => "KV Command Set".to_owned(),
        2 => "ZNS Command Set".to_owned(),
        other => format!("Command Set {other:#x}"),
    }
}

/// Text of Commands Supported and Effects logs; `explain` takes the effects apart.
pub(crate) fn write_effects(out: &mut dyn Write, logs: &[Effects], explain: bool) -> io::Result<()> {
    let mut section = |title: &str, prefix: &str, rows: Supported| {
        writeln!(out, "{title}")?;
        for (opcode, name, effects) in rows {
            write!(out, "{:10}[{name:40}] {effects:08x}", format!("{prefix}{opcode}"))?;
            if explain {
                write!(out, "{}", explained(effects))?;
            }
            writeln!(out)?;
        }
        writeln!(out)
    };
    for (index, log) in logs.iter().enumerate() {
        if index == 0 {
            section("Admin Command Set", "ACS", log.admin())?;
        }
        section(&command_set_name(log.csi), "IOCS", log.io())?;
    }
    Ok(())
}

/// Effects bit by bit: `+` for one that is set.
fn explained(effects: u32) -> String {
    let bits = [
        ("CSUPP", command_effects::CSUPP),
        ("LBCC", command_effects::LBCC),
        ("NCC", command_effects::NCC),
        ("NIC", command_effects::NIC),
        ("CCC", command_effects::CCC),
        ("USS", command_effects::UUID_SELECTION),
    ];
    let sign = |bit: u32| if effects & bit != 0 { '+' } else { '-' };
    let mut text: String = bits.iter().map(|(name, bit)| format!("  {name}{}", sign(*bit))).collect();
    text += match effects >> command_effects::CSE_SHIFT & command_effects::CSE_MASK {
        0 => "  No command restriction",
        1 => "  No other command for same namespace",
        2 => "  No other command for any namespace",
        _ => "  Reserved CSE",
    };
    let scopes = [
        (effects_scope::NAMESPACE, "  Namespace scope"),
        (effects_scope::CONTROLLER, "  Controller scope"),
        (effects_scope::ENDURANCE_GROUP, "  Endurance Group scope"),
        (effects_scope::SUBSYSTEM, "  NVM Subsystem scope"),
    ];
    text + scopes.iter().find(|(bit, _)| effects & bit != 0).map_or("", |(_, name)| name)
}

/// Pages that are supported: identifier, name, entry.
fn supported_pages(log: &SupportedLogPages) -> impl Iterator<Item = (u8, &'static str, u32)> {
    let rows = (0..=u8::MAX).zip(log.pages).filter(|(_, entry)| entry & lid_support::LSUPP != 0);
    rows.map(|(id, entry)| (id, lid::name(id).unwrap_or("Unknown"), entry))
}

/// A Supported Log Pages log for JSON.
pub(crate) fn pages(log: &SupportedLogPages) -> Fields {
    // The blank is nvme-cli's.
    let entry = |(id, _, entry)| Fields::new().with(format!("lid_{id:#x} "), entry);
    fields! { "supported_logs": supported_pages(log).map(entry).collect::<Vec<_>>() }
}

/// Text of a Supported Log Pages log; `explain` adds what is said of each.
pub(crate) fn write_pages(
    out: &mut dyn Write,
    device: &str,
    log: &SupportedLogPages,
    explain: bool,
) -> io::Result<()> {
    writeln!(out, "Support Log Pages Details for {device}:")?;
    for (id, name, entry) in supported_pages(log) {
        writeln!(out, "LID {} - {name}", Value::Hex(id.into()))?;
        if explain {
            let not = if entry & lid_support::IOS == 0 { "not " } else { "" };
            writeln!(out, "  LSUPP is supported")?;
            writeln!(out, "  IOS is {not}supported")?;
        }
    }
    Ok(())
}

/// An Endurance Group log for JSON.
pub(crate) fn endurance(log: &EnduranceGroup) -> Fields {
    fields! {
        "critical_warning": log.critical_warning, "endurance_group_features": log.features,
        "avl_spare": log.available_spare, "avl_spare_threshold": log.available_spare_threshold,
        "percent_used": log.percentage_used, "domain_identifier": log.domain.get(),
        "endurance_estimate": log.endurance_estimate.get(), "data_units_read": log.data_units_read.get(),
        "data_units_written": log.data_units_written.get(),
        "media_units_written": log.media_units_written.get(), "host_read_cmds": log.host_reads.get(),
        "host_write_cmds": log.host_writes.get(), "media_data_integrity_err": log.media_errors.get(),
        "num_err_info_log_entries": log.error_log_entries.get(),
        "total_end_grp_cap": log.total_capacity.get(), "unalloc_end_grp_cap": log.unallocated_capacity.get(),
    }
}

/// Text of an Endurance Group log.
pub(crate) fn write_endurance(
    out: &mut dyn Write,
    device: &str,
    group: u16,
    log: &EnduranceGroup,
) -> io::Result<()> {
    writeln!(out, "Endurance Group Log for NVME device:{device} Group ID:{group:x}")?;
    for (name, value) in endurance(log).0 {
        // Names are padded to a tab stop that the longest go beyond.
        let tabs = "\t".repeat(3usize.saturating_sub(name.len() / 8).max(usize::from(name.len() < 24)));
        let percent = if name == "percent_used" { "%" } else { "" };
        writeln!(out, "{name}{tabs}: {value}{percent}")?;
    }
    Ok(())
}

/// An ANA group of the log: its descriptor and its namespaces.
pub(crate) struct Group {
    descriptor: AnaGroup,
    namespaces: Vec<u32>,
}

/// Takes an Asymmetric Namespace Access log apart; `None` for one that is shorter than it says.
pub(crate) fn ana_groups(bytes: &[u8]) -> Option<(AnaHeader, Vec<Group>)> {
    let (header, mut rest) = AnaHeader::read_from_prefix(bytes).ok()?;
    let mut groups = Vec::new();
    for _ in 0..header.groups.get() {
        let (descriptor, behind) = AnaGroup::read_from_prefix(rest).ok()?;
        let bytes = usize::try_from(descriptor.namespaces.get()).ok()?.checked_mul(4)?;
        let (list, behind) = behind.split_at_checked(bytes)?;
        let numbers = list.chunks_exact(4).filter_map(|nsid| nsid.try_into().ok().map(u32::from_le_bytes));
        groups.push(Group { descriptor, namespaces: numbers.collect() });
        rest = behind;
    }
    Some((header, groups))
}

fn ana_state(state: u8) -> &'static str {
    match state & 0xf {
        0x1 => "optimized",
        0x2 => "non-optimized",
        0x3 => "inaccessible",
        0x4 => "persistent-loss",
        0xf => "change",
        _ => "invalid state",
    }
}

/// An ANA log for JSON.
pub(crate) fn ana(device: &str, header: &AnaHeader, groups: &[Group]) -> Fields {
    let groups: Vec<Fields> = groups
        .iter()
        .map(|Group { descriptor, namespaces }| {
            let list: Vec<Fields> = namespaces.iter().map(|nsid| fields! { "nsid": *nsid }).collect();
            fields! {
                "grpid": descriptor.group.get(), "nnsids": descriptor.namespaces.get(),
                "chgcnt": descriptor.change_count.get(), "state": ana_state(descriptor.state), "NSIDS": list,
            }
        })
        .collect();
    fields! {
        "Asymmetric Namespace Access Log for NVMe device": device,
        "chgcnt": header.change_count.get(), "ngrps": header.groups.get(), "ANA DESC LIST": groups,
    }
}

/// Text of an ANA log.
pub(crate) fn write_ana(
    out: &mut dyn Write,
    device: &str,
    header: &AnaHeader,
    groups: &[Group],
) -> io::Result<()> {
    writeln!(out, "Asymmetric Namespace Access Log for NVMe device: {device}")?;
    writeln!(out, "ANA LOG HEADER :-")?;
    writeln!(out, "chgcnt\t:\t{}", header.change_count.get())?;
    writeln!(out, "ngrps\t:\t{}", header.groups.get())?;
    writeln!(out, "ANA Log Desc :-")?;
    for Group { descriptor, namespaces } in groups {
        writeln!(out, "grpid\t:\t{}", descriptor.group.get())?;
        writeln!(out, "nnsids\t:\t{}", descriptor.namespaces.get())?;
        writeln!(out, "chgcnt\t:\t{}", descriptor.change_count.get())?;
        writeln!(out, "state\t:\t{}", ana_state(descriptor.state))?;
        namespaces.iter().try_for_each(|nsid| writeln!(out, "\tnsid\t:\t{nsid}"))?;
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ana_log_that_is_cut_is_none() {
        let mut log = vec![7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        let mut group = vec![0; 32];
        group[0] = 1;
        group[4] = 2;
        group[16] = 2;
        log.extend(group);
        log.extend([1, 0, 0, 0, 9, 0, 0, 0]);
        let (header, groups) = ana_groups(&log).expect("a log");
        let mut text = Vec::new();
        write_ana(&mut text, "nvme0", &header, &groups).expect("write");
        let text = String::from_utf8_lossy(&text);
        assert!(text.ends_with("state\t:\tnon-optimized\n\tnsid\t:\t1\n\tnsid\t:\t9\n\n"), "{text}");
        for length in 0..log.len() {
            assert!(ana_groups(&log[..length]).is_none(), "{length} bytes");
        }
        log[20..24].fill(0xff);
        assert!(ana_groups(&log).is_none(), "more namespaces than a log can have");
    }

    #[test]
    fn endurance_names_end_at_the_tab_stop_of_nvme_cli() {
        let log = EnduranceGroup::read_from_bytes(&[0; 512]).expect("512 bytes");
        let mut text = Vec::new();
        write_endurance(&mut text, "nvme0", 1, &log).expect("write");
        let text = String::from_utf8_lossy(&text);
        for line in [
            "critical_warning\t: 0\n",
            "endurance_group_features: 0\n",
            "avl_spare\t\t: 0\n",
            "percent_used\t\t: 0%\n",
            "media_data_integrity_err: 0\n",
            "host_write_cmds\t\t: 0\n",
            "total_end_grp_cap\t: 0\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in {text}");
        }
    }

    #[test]
    fn effects_are_explained_bit_by_bit() {
        assert_eq!(
            explained(0x0013_0003),
            "  CSUPP+  LBCC+  NCC-  NIC-  CCC-  USS-  Reserved CSE  Namespace scope"
        );
    }
}
