//! Identify Controller and Identify Namespace, as `nvme id-ctrl` and `nvme id-ns` print them.

mod bits;

use std::io::{self, Write};

use unvme_spec::identify::text::{Text, nqn};
use unvme_spec::identify::{IdentifyController, IdentifyNamespace, LbaFormat, PowerStateDescriptor};

use super::descriptors::uuid;
use super::hex::text;
use crate::value::{Fields, Value, fields, hex};

/// Columns of a name in the text of a controller.
const CONTROLLER_NAME_WIDTH: usize = 10;
/// Columns of a name in the guide's text of a controller.
const GUIDE_NAME_WIDTH: usize = 9;
/// Columns of a name in the text of a namespace.
const NAMESPACE_NAME_WIDTH: usize = 8;

/// Text of a controller; `explain` takes its capabilities apart.
pub(crate) fn write_controller(
    out: &mut dyn Write,
    data: &IdentifyController,
    explain: bool,
) -> io::Result<()> {
    writeln!(out, "NVME Identify Controller:")?;
    for field in controller_text_fields(data) {
        let line = Fields(vec![field]);
        line.write_lines(out, CONTROLLER_NAME_WIDTH)?;
        for (name, value) in line.0.iter().filter(|_| explain) {
            bits::explain(out, name, value)?;
        }
    }
    for (index, state) in power_states(data).enumerate() {
        write_power_state(out, index, state)?;
    }
    Ok(())
}

/// Text of a controller as the guide has it: `ctrlid`, and narrower columns.
pub(crate) fn write_guide_controller(out: &mut dyn Write, data: &IdentifyController) -> io::Result<()> {
    writeln!(out, "NVME Identify Controller:")?;
    let mut fields = controller_text_fields(data);
    if let Some((name, _)) = fields.iter_mut().find(|(name, _)| name == "cntlid") {
        *name = "ctrlid".into();
    }
    Fields(fields).write_lines(out, GUIDE_NAME_WIDTH)?;
    power_states(data).enumerate().try_for_each(|(index, state)| write_power_state(out, index, state))
}

/// A controller's fields for text: the OUI reads as it is registered, hexadecimal and the most significant
/// byte first.
fn controller_text_fields(data: &IdentifyController) -> Vec<(String, Value)> {
    let mut fields = controller_fields(data).0;
    if let Some((_, value)) = fields.iter_mut().find(|(name, _)| name == "ieee") {
        let [low, middle, high] = data.ieee;
        *value = Value::Text(format!("{high:02x}{middle:02x}{low:02x}"));
    }
    fields
}

/// A controller for JSON.
pub(crate) fn controller(data: &IdentifyController) -> Fields {
    let states: Vec<Fields> = power_states(data).map(power_state).collect();
    let mut fields = controller_fields(data);
    fields.0.extend(later_fields(data).0);
    fields.with("psds", states)
}

fn power_states(data: &IdentifyController) -> impl Iterator<Item = &PowerStateDescriptor> {
    data.psd.iter().take(usize::from(data.npss_z) + 1)
}

fn controller_fields(c: &IdentifyController) -> Fields {
    let [low, middle, high] = c.ieee;
    fields! {
        "vid": hex(c.vid), "ssvid": hex(c.ssvid), "sn": padded(&c.sn), "mn": padded(&c.mn),
        "fr": padded(&c.fr), "rab": c.rab, "ieee": u32::from_le_bytes([low, middle, high, 0]),
        "cmic": hex(c.cmic), "mdts": c.mdts, "cntlid": c.cntlid, "ver": hex(c.ver), "rtd3r": c.rtd3r,
        "rtd3e": c.rtd3e, "oaes": hex(c.oaes), "ctratt": hex(c.ctratt), "rrls": hex(c.rrls),
        "cntrltype": c.cntrltype, "fguid": uuid(&c.fguid), "crdt1": c.crdt1, "crdt2": c.crdt2,
        "crdt3": c.crdt3, "nvmsr": c.nvmsr, "vwci": c.vwci, "mec": c.mec,
        // Bytes 256 to 511: admin command set attributes.
        "oacs": hex(c.oacs), "acl": c.acl_z, "aerl": c.aerl_z, "frmw": hex(c.frmw), "lpa": hex(c.lpa),
        "elpe": c.elpe_z, "npss": c.npss_z, "avscc": hex(c.avscc), "apsta": hex(c.apsta), "wctemp": c.wctemp,
        "cctemp": c.cctemp, "mtfa": c.mtfa, "hmpre": c.hmpre, "hmmin": c.hmmin, "tnvmcap": c.tnvmcap.get(),
        "unvmcap": c.unvmcap.get(), "rpmbs": hex(c.rpmbs), "edstt": c.edstt, "dsto": c.dsto, "fwug": c.fwug,
        "kas": c.kas, "hctma": hex(c.hctma), "mntmt": c.mntmt, "mxtmt": c.mxtmt, "sanicap": hex(c.sanicap),
        "hmminds": c.hmminds, "hmmaxd": c.hmmaxd, "nsetidmax": c.nsetidmax, "endgidmax": c.endgidmax,
        "anatt": c.anatt, "anacap": c.anacap, "anagrpmax": c.anagrpmax, "nanagrpid": c.nanagrpid,
        "pels": c.pels, "domainid": c.domainid, "megcap": c.megcap.get(),
        // Bytes 512 to 2047: NVM command set and Fabrics attributes.
        "sqes": hex(c.sqes), "cqes": hex(c.cqes), "maxcmd": c.maxcmd, "nn": c.nn, "oncs": hex(c.oncs),
        "fuses": hex(c.fuses), "fna": hex(c.fna), "vwc": hex(c.vwc), "awun": c.awun_z, "awupf": c.awupf_z,
        "icsvscc": c.icsvscc, "nwpc": c.nwpc, "acwu": c.acwu_z, "ocfs": hex(c.cdfs), "sgls": hex(c.sgls),
        "mnan": c.mnan, "maxdna": c.maxdna.get(), "maxcna": c.maxcna,
        "subnqn": nqn(&c.subnqn).unwrap_or("").escape_default().to_string(), "ioccsz": c.ioccsz,
        "iorcsz": c.iorcsz, "icdoff": c.icdoff, "fcatt": hex(c.fcatt), "msdbd": c.msdbd, "ofcs": c.ofcs,
    }
}

/// Fields that nvme-cli has had since specification 2.1: JSON has them, the text stays as narrow as it was.
fn later_fields(c: &IdentifyController) -> Fields {
    fields! {
        "bpcap": c.bpcap, "nssl": c.nssl, "plsi": c.plsi, "crcap": c.crcap, "kpioc": c.kpioc,
        "mptfawr": c.mptfawr, "tmpthha": c.tmpthha, "cqt": c.cqt, "oaqd": c.oaqd, "rhiri": c.rhiri,
        "hirt": c.hirt, "cmmrtd": c.cmmrtd, "nmmrtd": c.nmmrtd, "minmrtg": c.minmrtg,
        "maxmrtg": c.maxmrtg, "trattr": c.trattr, "mcudmq": c.mcudmq, "mnsudmq": c.mnsudmq,
        "mcmr": c.mcmr, "nmcmr": c.nmcmr, "mcdqpc": c.mcdqpc,
    }
}

/// Text of a fixed-width field, with its padding, as nvme-cli prints it.
fn padded(field: &[u8]) -> String {
    let width = field.len();
    format!("{:width$}", Text::new(field).to_string())
}

fn power_state(state: &PowerStateDescriptor) -> Fields {
    fields! {
        "max_power": state.mp, "flags": state.flags, "max_power_scale": state.flags & 1,
        "non-operational_state": state.flags >> 1 & 1, "entry_lat": state.enlat, "exit_lat": state.exlat,
        "read_tput": state.rrt, "read_lat": state.rrl, "write_tput": state.rwt, "write_lat": state.rwl,
        "idle_power": state.idlp, "idle_scale": state.ips >> 6, "active_power": state.actp,
        "active_power_work": state.apws & 7, "active_scale": state.apws >> 6,
        "emerg_power_fail_recover_time": state.epfrt,
        "emerg_power_fail_recover_scale": state.epfrts_fqvts & 0xf,
        "force_quiesce_vault_time": state.fqvt, "force_quiesce_vault_scale": state.epfrts_fqvts >> 4,
        "emerg_power_fail_vault_time": state.epfvt, "emerg_power_fail_vault_scale": state.epfvts & 0xf,
    }
}

fn write_power_state(out: &mut dyn Write, index: usize, state: &PowerStateDescriptor) -> io::Result<()> {
    // Bit 0: the power is in units of 0.1 mW instead of 10 mW.
    let max_power = match state.flags & 1 {
        0 => format!("{}.{:02}W", state.mp / 100, state.mp % 100),
        _ => format!("{}.{:04}W", state.mp / 10_000, state.mp % 10_000),
    };
    let kind = if state.flags & 2 == 0 { "operational" } else { "non-operational" };
    let workload = match state.apws & 7 {
        0 => "-".to_owned(),
        1 => "1MiB 32 RW, 30s idle".to_owned(),
        2 => "80K 128KiB SW".to_owned(),
        other => other.to_string(),
    };
    writeln!(
        out,
        "ps {index:6} : mp:{max_power} {kind} enlat:{} exlat:{} rrt:{} rrl:{}",
        state.enlat, state.exlat, state.rrt, state.rrl
    )?;
    writeln!(
        out,
        "            rwt:{} rwl:{} idle_power:{} active_power:{}",
        state.rwt,
        state.rwl,
        scaled_power(state.idlp, state.ips >> 6),
        scaled_power(state.actp, state.apws >> 6)
    )?;
    writeln!(out, "            active_power_workload:{workload}")
}

/// Watts of a power in the unit that `scale` names: 1 is 0.1 mW, 2 is 10 mW, anything else is not reported.
fn scaled_power(power: u16, scale: u8) -> String {
    match scale {
        1 => format!("{}.{:04}W", power / 10_000, power % 10_000),
        2 => format!("{}.{:02}W", power / 100, power % 100),
        _ => "-".to_owned(),
    }
}

/// Text of a namespace; `explain` takes its features and capabilities apart.
pub(crate) fn write_namespace(
    out: &mut dyn Write,
    nsid: u32,
    data: &IdentifyNamespace,
    explain: bool,
) -> io::Result<()> {
    writeln!(out, "NVME Identify Namespace {nsid}:")?;
    for field in namespace_fields(data).0 {
        let line = Fields(vec![field]);
        line.write_lines(out, NAMESPACE_NAME_WIDTH)?;
        for (name, value) in line.0.iter().filter(|_| explain) {
            bits::explain(out, name, value)?;
        }
    }
    for (index, format) in formats(data).iter().enumerate() {
        let in_use = if index == usize::from(data.format_index()) { "(in use)" } else { "" };
        if explain {
            write_format(out, index, format, in_use)?;
            continue;
        }
        writeln!(
            out,
            "lbaf {index:2} : ms:{:<3} lbads:{:<2} rp:{} {in_use}",
            format.ms,
            format.lbads,
            format.rp & 3
        )?;
    }
    Ok(())
}

fn write_format(out: &mut dyn Write, index: usize, format: &LbaFormat, in_use: &str) -> io::Result<()> {
    let performance = ["Best", "Better", "Good", "Degraded"][usize::from(format.rp & 3)];
    writeln!(
        out,
        "LBA Format {index:2} : Metadata Size: {:<3} bytes - Data Size: {:2} bytes - Relative Performance: {} \
         {performance} {in_use}",
        format.ms,
        format.block_bytes().unwrap_or(0),
        Value::Hex((format.rp & 3).into()),
    )
}

/// A namespace for JSON.
pub(crate) fn namespace(data: &IdentifyNamespace) -> Fields {
    let formats: Vec<Fields> =
        formats(data).iter().map(|f| fields! { "ms": f.ms, "ds": f.lbads, "rp": f.rp & 3 }).collect();
    let vendor: Vec<u8> = match data.vs.iter().rposition(|&byte| byte != 0) {
        Some(last) => data.vs[..=last].to_vec(),
        None => Vec::new(),
    };
    namespace_fields(data)
        .with("kpios", data.kpios)
        .with("kpiodaag", data.kpiodaag_z)
        .with("lbafs", formats)
        .with("vs", vendor)
}

fn formats(data: &IdentifyNamespace) -> &[LbaFormat] {
    // The count comes from the device and may exceed the table.
    let count = usize::from(data.nlbaf_z) + 1 + usize::from(data.nulbaf);
    data.lbaf.get(..count).unwrap_or(&data.lbaf)
}

fn namespace_fields(n: &IdentifyNamespace) -> Fields {
    fields! {
        "nsze": hex(n.nsze), "ncap": hex(n.ncap), "nuse": hex(n.nuse), "nsfeat": hex(n.nsfeat),
        "nlbaf": n.nlbaf_z, "flbas": hex(n.flbas), "mc": hex(n.mc), "dpc": hex(n.dpc), "dps": hex(n.dps),
        "nmic": hex(n.nmic), "rescap": hex(n.rescap), "fpi": hex(n.fpi), "dlfeat": n.dlfeat,
        "nawun": n.nawun_z, "nawupf": n.nawupf_z, "nacwu": n.nacwu_z, "nabsn": n.nabsn_z, "nabo": n.nabo,
        "nabspf": n.nabspf_z, "noiob": n.noiob, "nvmcap": n.nvmcap.get(), "npwg": n.npwg_z, "npwa": n.npwa_z,
        "npdg": n.npdg_z, "npda": n.npda_z, "nows": n.nows_z, "mssrl": n.mssrl, "mcl": n.mcl,
        "msrc": n.msrc_z, "nulbaf": n.nulbaf, "anagrpid": n.anagrpid, "nsattr": hex(n.nsattr),
        "nvmsetid": n.nvmsetid, "endgid": n.endgid, "nguid": text(&n.nguid), "eui64": text(&n.eui64),
    }
}

#[cfg(test)]
mod tests;
