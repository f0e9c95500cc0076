//! What key-value devices return: Identify Namespace of the command set, and the log pages of Samsung's KV
//! SSDs.

use std::io::{self, Write};

use unvme_spec::identify::{KvFormat, KvNamespaceIdentify};
use unvme_spec::samsung_kv::IterateType;
use unvme_spec::samsung_log::{
    CommandCounts, ExtendedSmartLog, IteratorEntry, IteratorLog, Limits, ValueSizes, WafLog,
};

use super::hex::text;
use crate::value::{Fields, fields, hex};

/// Columns of a name in the text of a namespace.
const NAMESPACE_NAME_WIDTH: usize = 8;
/// Columns of a name in the text of a log.
const LOG_NAME_WIDTH: usize = 24;

/// Text of a namespace.
pub(crate) fn write_namespace(out: &mut dyn Write, nsid: u32, data: &KvNamespaceIdentify) -> io::Result<()> {
    writeln!(out, "NVME Identify Namespace {nsid} (key value):")?;
    namespace_fields(data).write_lines(out, NAMESPACE_NAME_WIDTH)?;
    for (index, format) in formats(data).iter().enumerate() {
        let in_use = if index == usize::from(data.kvfc & 0xf) { "(in use)" } else { "" };
        let KvFormat { kvkml, kvvml, mnks, afo, .. } = format;
        writeln!(out, "kvf {index:3} : kvkml:{kvkml} kvvml:{kvvml} mnks:{mnks} rp:{} {in_use}", afo & 3)?;
    }
    Ok(())
}

/// A namespace for JSON.
pub(crate) fn namespace(data: &KvNamespaceIdentify) -> Fields {
    let formats: Vec<Fields> = formats(data)
        .iter()
        .map(|f| {
            fields! { "kvkml": f.kvkml, "kvvml": f.kvvml, "mnks": f.mnks, "rp": f.afo & 3 }
        })
        .collect();
    namespace_fields(data).with("kvfs", formats)
}

fn formats(data: &KvNamespaceIdentify) -> &[KvFormat] {
    // The count comes from the device and may exceed the table.
    data.kvf.get(..usize::from(data.nkvf_z) + 1).unwrap_or(&data.kvf)
}

fn namespace_fields(n: &KvNamespaceIdentify) -> Fields {
    fields! {
        "nsze": hex(n.nsze), "nuse": hex(n.nuse), "nsfeat": hex(n.nsfeat), "nkvf": n.nkvf_z,
        "nmic": hex(n.nmic), "rescap": hex(n.rescap), "fpi": hex(n.fpi), "kvfc": hex(n.kvfc), "novg": n.novg,
        "anagrpid": n.anagrpid, "nsattr": hex(n.nsattr), "nvmsetid": n.nvmsetid, "endgid": n.endgid,
        "nguid": text(&n.nguid), "eui64": text(&n.eui64),
    }
}

/// Log page C0h.
pub(crate) fn extended_smart(log: &ExtendedSmartLog) -> Fields {
    let counts = |fields: Fields, name: &str, counts: CommandCounts, sizes: Option<ValueSizes>| {
        let fields = fields
            .with(format!("{name}_submitted"), counts.submitted)
            .with(format!("{name}_succeeded"), counts.succeeded)
            .with(format!("{name}_failed"), counts.failed);
        match sizes {
            Some(ValueSizes { max, min, average }) => fields
                .with(format!("{name}_value_max"), max)
                .with(format!("{name}_value_min"), min)
                .with(format!("{name}_value_avg"), average),
            None => fields,
        }
    };
    let limits = |fields: Fields, name: &str, Limits { max, min, alignment }: Limits| {
        fields
            .with(format!("{name}_max"), max)
            .with(format!("{name}_min"), min)
            .with(format!("{name}_alignment"), alignment)
    };
    let fields = counts(Fields::new(), "retrieve", log.retrieve, Some(log.retrieve_sizes));
    let fields = counts(fields, "store", log.store, Some(log.store_sizes));
    let fields = counts(fields, "append", log.append, Some(log.append_sizes));
    let fields = counts(fields, "delete", log.delete, None);
    let fields = limits(limits(fields, "key", log.key), "value", log.value);
    fields.with("waf", tenths(log.waf_tenths))
}

/// Log page CAh.
pub(crate) fn waf(log: &WafLog) -> Fields {
    fields! { "waf": tenths(log.waf_tenths) }
}

fn tenths(value: u32) -> String {
    format!("{}.{}", value / 10, value % 10)
}

/// Log page D0h.
pub(crate) fn iterators(log: &IteratorLog) -> Fields {
    let entry = |entry: &IteratorEntry| {
        fields! {
            "id": entry.id, "status": if entry.status == 0 { "closed" } else { "open" },
            "type": type_name(entry.kind), "keyspace": entry.keyspace,
            "prefix": hex(u32::from_be_bytes(entry.prefix)),
            "bitmask": hex(u32::from_be_bytes(entry.bitmask)), "eof": entry.is_eof,
        }
    };
    let entries: Vec<Fields> = log.iterators.iter().map(entry).collect();
    fields! { "iterators": entries }
}

fn type_name(kind: u8) -> String {
    match IterateType::from_number(kind) {
        Some(IterateType::Key) => "key".to_owned(),
        Some(IterateType::KeyValue) => "key and value".to_owned(),
        Some(IterateType::KeyDelete) => "key with delete".to_owned(),
        None => kind.to_string(),
    }
}

/// Text of log page C0h or CAh.
pub(crate) fn write_log(out: &mut dyn Write, title: &str, device: &str, fields: &Fields) -> io::Result<()> {
    writeln!(out, "{title} for device:{device}")?;
    fields.write_lines(out, LOG_NAME_WIDTH)
}

/// Text of log page D0h: the iterators that are open.
pub(crate) fn write_iterators(out: &mut dyn Write, device: &str, log: &IteratorLog) -> io::Result<()> {
    writeln!(out, "Iterators of device:{device}")?;
    let mut open = log.iterators.iter().filter(|entry| entry.status != 0).peekable();
    if open.peek().is_none() {
        return writeln!(out, "none is open");
    }
    for entry in open {
        writeln!(
            out,
            "iterator {:2} : keyspace:{} prefix:{:#010x} bitmask:{:#010x} type:{} {}",
            entry.id,
            entry.keyspace,
            u32::from_be_bytes(entry.prefix),
            u32::from_be_bytes(entry.bitmask),
            type_name(entry.kind),
            if entry.is_eof == 0 { "" } else { "(at the end)" }
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
