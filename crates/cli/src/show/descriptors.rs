//! Namespace Identification Descriptors, as `nvme ns-descs` prints them.

use std::io::{self, Write};

use unvme_spec::identify::{DescriptorIter, NamespaceIdDescriptor, nidt};

use super::hex::text;
use crate::value::{Fields, fields};

/// Bytes of a descriptor before its identifier.
const HEADER_BYTES: usize = 4;

/// A descriptor as it is shown.
pub(crate) struct Descriptor {
    /// Byte of the list that it begins at.
    location: usize,
    kind: u8,
    bytes: usize,
    name: &'static str,
    value: String,
}

/// The descriptors of a list.
pub(crate) fn read(list: &[u8]) -> Vec<Descriptor> {
    let mut location = 0;
    DescriptorIter::new(list)
        .map(|descriptor| {
            let (kind, bytes, name, value) = match descriptor {
                NamespaceIdDescriptor::Eui64(id) => (nidt::EUI64, 8, "eui64", text(&id)),
                NamespaceIdDescriptor::Nguid(id) => (nidt::NGUID, 16, "nguid", text(&id)),
                NamespaceIdDescriptor::Uuid(id) => (nidt::UUID, 16, "uuid", uuid(&id)),
                NamespaceIdDescriptor::Csi(csi) => (nidt::CSI, 1, "csi", csi.to_string()),
                NamespaceIdDescriptor::Unknown { kind, identifier } => {
                    (kind, identifier.len(), "unknown", text(identifier))
                }
            };
            let shown = Descriptor { location, kind, bytes, name, value };
            location += HEADER_BYTES + bytes;
            shown
        })
        .collect()
}

/// A UUID with its dashes.
pub(crate) fn uuid(bytes: &[u8; 16]) -> String {
    let hex = text(bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Descriptors for JSON.
pub(crate) fn json(list: &[Descriptor]) -> Fields {
    let entry = |descriptor: &Descriptor| {
        let Descriptor { location, kind, bytes, name, value } = descriptor;
        fields! { "loc": *location as u64, "nidt": *kind, "nidl": *bytes as u64, "Type": *name }
            .with(*name, value.as_str())
    };
    fields! { "ns-descs": list.iter().map(entry).collect::<Vec<_>>() }
}

/// Text of descriptors.
pub(crate) fn write(out: &mut dyn Write, nsid: u32, list: &[Descriptor]) -> io::Result<()> {
    writeln!(out, "NVME Namespace Identification Descriptors NS {nsid}:")?;
    list.iter().try_for_each(|descriptor| writeln!(out, "{:8}: {}", descriptor.name, descriptor.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_print_as_nvme_cli_prints_them() {
        let mut list = vec![1, 8, 0, 0, 0x52, 0x54, 0, 0xdc, 5, 0xf6, 0, 1, 4, 1, 0, 0, 1];
        list.resize(4096, 0);
        let found = read(&list);
        let mut out = Vec::new();
        write(&mut out, 1, &found).expect("write");
        assert_eq!(
            String::from_utf8_lossy(&out),
            "NVME Namespace Identification Descriptors NS 1:\neui64   : 525400dc05f60001\ncsi     : 1\n"
        );
        let json = serde_json::to_value(json(&found)).expect("json");
        let expected = serde_json::json!({ "ns-descs": [
            { "loc": 0, "nidt": 1, "nidl": 8, "Type": "eui64", "eui64": "525400dc05f60001" },
            { "loc": 12, "nidt": 4, "nidl": 1, "Type": "csi", "csi": "1" },
        ] });
        assert_eq!(json, expected);
        assert!(read(&[0; 4096]).is_empty());
        assert_eq!(read(&[0xff; 4096]).len(), 4096 / 259);
    }
}
