//! Identify Controller and Identify Namespace, as `nvme id-ctrl` and `nvme id-ns` print them.

mod bits;

use std::io::{self, Write};

use unvme_spec::identify::text::{Text, nqn};
use unvme_spec::identify::{IdentifyController, IdentifyNamespace, PowerStateDescriptor};

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
    controller_fields(data).with("psds", states)
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

/// Text of a fixed-width field, with its padding, as nvme-cli prints it.
fn padded(field: &[u8]) -> String {
    let width = field.len();
    format!("{:width$}", Text::new(field).to_string())
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex = text(bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn power_state(state: &PowerStateDescriptor) -> Fields {
    fields! {
        "max_power": state.mp, "flags": state.flags, "entry_lat": state.enlat, "exit_lat": state.exlat,
        "read_tput": state.rrt, "read_lat": state.rrl, "write_tput": state.rwt, "write_lat": state.rwl,
        "idle_power": state.idlp, "idle_scale": state.ips >> 6, "active_power": state.actp,
        "active_power_work": state.apws & 7, "active_scale": state.apws >> 6,
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

/// Text of a namespace.
pub(crate) fn write_namespace(out: &mut dyn Write, nsid: u32, data: &IdentifyNamespace) -> io::Result<()> {
    writeln!(out, "NVME Identify Namespace {nsid}:")?;
    namespace_fields(data).write_lines(out, NAMESPACE_NAME_WIDTH)?;
    for (index, format) in formats(data).iter().enumerate() {
        let in_use = if index == usize::from(data.format_index()) { "(in use)" } else { "" };
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

/// A namespace for JSON.
pub(crate) fn namespace(data: &IdentifyNamespace) -> Fields {
    let formats: Vec<Fields> =
        formats(data).iter().map(|f| fields! { "ms": f.ms, "ds": f.lbads, "rp": f.rp & 3 }).collect();
    namespace_fields(data).with("lbafs", formats)
}

fn formats(data: &IdentifyNamespace) -> &[unvme_spec::identify::LbaFormat] {
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
