//! Identify Controller and Identify Namespace, as `nvme id-ctrl` and `nvme id-ns` print them.

mod bits;

use std::io::{self, Write};

use unvme_spec::identify::text::{Text, nqn};
use unvme_spec::identify::{IdentifyController, IdentifyNamespace, PowerStateDescriptor};

use super::hex;
use crate::value::{Fields, Value};

/// Columns of a name in the text of a controller.
const CONTROLLER_NAME_WIDTH: usize = 10;
/// Columns of a name in the text of a namespace.
const NAMESPACE_NAME_WIDTH: usize = 8;

/// Text of a controller; `explain` takes its capabilities apart.
pub(crate) fn write_controller(
    out: &mut dyn Write,
    data: &IdentifyController,
    explain: bool,
) -> io::Result<()> {
    writeln!(out, "NVME Identify Controller:")?;
    let mut fields = controller_fields(data);
    // In text the OUI reads as it is registered: hexadecimal, most significant byte first.
    for (name, value) in &mut fields.0 {
        if name == "ieee" {
            let [low, middle, high] = data.ieee;
            *value = Value::Text(format!("{high:02x}{middle:02x}{low:02x}"));
        }
    }
    for field in fields.0 {
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
    let fields = Fields::new()
        .hex("vid", c.vid)
        .hex("ssvid", c.ssvid)
        .with("sn", padded(&c.sn))
        .with("mn", padded(&c.mn))
        .with("fr", padded(&c.fr))
        .with("rab", c.rab)
        .with("ieee", u32::from_le_bytes([low, middle, high, 0]))
        .hex("cmic", c.cmic)
        .with("mdts", c.mdts)
        .with("cntlid", c.cntlid)
        .hex("ver", c.ver)
        .with("rtd3r", c.rtd3r)
        .with("rtd3e", c.rtd3e)
        .hex("oaes", c.oaes)
        .hex("ctratt", c.ctratt)
        .hex("rrls", c.rrls)
        .with("cntrltype", c.cntrltype)
        .with("fguid", uuid(&c.fguid))
        .with("crdt1", c.crdt1)
        .with("crdt2", c.crdt2)
        .with("crdt3", c.crdt3)
        .with("nvmsr", c.nvmsr)
        .with("vwci", c.vwci)
        .with("mec", c.mec);
    controller_nvm_fields(controller_admin_fields(fields, c), c)
}

/// Bytes 256 to 511: admin command set attributes.
fn controller_admin_fields(fields: Fields, c: &IdentifyController) -> Fields {
    fields
        .hex("oacs", c.oacs)
        .with("acl", c.acl_z)
        .with("aerl", c.aerl_z)
        .hex("frmw", c.frmw)
        .hex("lpa", c.lpa)
        .with("elpe", c.elpe_z)
        .with("npss", c.npss_z)
        .hex("avscc", c.avscc)
        .hex("apsta", c.apsta)
        .with("wctemp", c.wctemp)
        .with("cctemp", c.cctemp)
        .with("mtfa", c.mtfa)
        .with("hmpre", c.hmpre)
        .with("hmmin", c.hmmin)
        .with("tnvmcap", c.tnvmcap.get())
        .with("unvmcap", c.unvmcap.get())
        .hex("rpmbs", c.rpmbs)
        .with("edstt", c.edstt)
        .with("dsto", c.dsto)
        .with("fwug", c.fwug)
        .with("kas", c.kas)
        .hex("hctma", c.hctma)
        .with("mntmt", c.mntmt)
        .with("mxtmt", c.mxtmt)
        .hex("sanicap", c.sanicap)
        .with("hmminds", c.hmminds)
        .with("hmmaxd", c.hmmaxd)
        .with("nsetidmax", c.nsetidmax)
        .with("endgidmax", c.endgidmax)
        .with("anatt", c.anatt)
        .with("anacap", c.anacap)
        .with("anagrpmax", c.anagrpmax)
        .with("nanagrpid", c.nanagrpid)
        .with("pels", c.pels)
        .with("domainid", c.domainid)
        .with("megcap", c.megcap.get())
}

/// Bytes 512 to 2047: NVM command set and Fabrics attributes.
fn controller_nvm_fields(fields: Fields, c: &IdentifyController) -> Fields {
    fields
        .hex("sqes", c.sqes)
        .hex("cqes", c.cqes)
        .with("maxcmd", c.maxcmd)
        .with("nn", c.nn)
        .hex("oncs", c.oncs)
        .hex("fuses", c.fuses)
        .hex("fna", c.fna)
        .hex("vwc", c.vwc)
        .with("awun", c.awun_z)
        .with("awupf", c.awupf_z)
        .with("icsvscc", c.icsvscc)
        .with("nwpc", c.nwpc)
        .with("acwu", c.acwu_z)
        .hex("ocfs", c.cdfs)
        .hex("sgls", c.sgls)
        .with("mnan", c.mnan)
        .with("maxdna", c.maxdna.get())
        .with("maxcna", c.maxcna)
        .with("subnqn", nqn(&c.subnqn).unwrap_or("").escape_default().to_string())
        .with("ioccsz", c.ioccsz)
        .with("iorcsz", c.iorcsz)
        .with("icdoff", c.icdoff)
        .hex("fcatt", c.fcatt)
        .with("msdbd", c.msdbd)
        .with("ofcs", c.ofcs)
}

/// Text of a fixed-width field, with its padding, as nvme-cli prints it.
fn padded(field: &[u8]) -> String {
    let width = field.len();
    format!("{:width$}", Text::new(field).to_string())
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex = hex::text(bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn power_state(state: &PowerStateDescriptor) -> Fields {
    Fields::new()
        .with("max_power", state.mp)
        .with("flags", state.flags)
        .with("entry_lat", state.enlat)
        .with("exit_lat", state.exlat)
        .with("read_tput", state.rrt)
        .with("read_lat", state.rrl)
        .with("write_tput", state.rwt)
        .with("write_lat", state.rwl)
        .with("idle_power", state.idlp)
        .with("idle_scale", state.ips >> 6)
        .with("active_power", state.actp)
        .with("active_power_work", state.apws & 7)
        .with("active_scale", state.apws >> 6)
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
    let formats: Vec<Fields> = formats(data)
        .iter()
        .map(|f| Fields::new().with("ms", f.ms).with("ds", f.lbads).with("rp", f.rp & 3))
        .collect();
    namespace_fields(data).with("lbafs", formats)
}

fn formats(data: &IdentifyNamespace) -> &[unvme_spec::identify::LbaFormat] {
    // The count comes from the device and may exceed the table.
    let count = usize::from(data.nlbaf_z) + 1 + usize::from(data.nulbaf);
    data.lbaf.get(..count).unwrap_or(&data.lbaf)
}

fn namespace_fields(n: &IdentifyNamespace) -> Fields {
    Fields::new()
        .hex("nsze", n.nsze)
        .hex("ncap", n.ncap)
        .hex("nuse", n.nuse)
        .hex("nsfeat", n.nsfeat)
        .with("nlbaf", n.nlbaf_z)
        .hex("flbas", n.flbas)
        .hex("mc", n.mc)
        .hex("dpc", n.dpc)
        .hex("dps", n.dps)
        .hex("nmic", n.nmic)
        .hex("rescap", n.rescap)
        .hex("fpi", n.fpi)
        .with("dlfeat", n.dlfeat)
        .with("nawun", n.nawun_z)
        .with("nawupf", n.nawupf_z)
        .with("nacwu", n.nacwu_z)
        .with("nabsn", n.nabsn_z)
        .with("nabo", n.nabo)
        .with("nabspf", n.nabspf_z)
        .with("noiob", n.noiob)
        .with("nvmcap", n.nvmcap.get())
        .with("npwg", n.npwg_z)
        .with("npwa", n.npwa_z)
        .with("npdg", n.npdg_z)
        .with("npda", n.npda_z)
        .with("nows", n.nows_z)
        .with("mssrl", n.mssrl)
        .with("mcl", n.mcl)
        .with("msrc", n.msrc_z)
        .with("nulbaf", n.nulbaf)
        .with("anagrpid", n.anagrpid)
        .hex("nsattr", n.nsattr)
        .with("nvmsetid", n.nvmsetid)
        .with("endgid", n.endgid)
        .with("nguid", hex::text(&n.nguid))
        .with("eui64", hex::text(&n.eui64))
}

#[cfg(test)]
mod tests;
