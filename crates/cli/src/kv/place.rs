//! Which device, namespace and keyspace a command is about, and keys as they are typed and shown.

use std::fmt::Write;

use anyhow::Result;
use clap::Args;
use unvme::{Device, Kv, Nsid};
use unvme_spec::identify::csi;

use crate::exit::usage;
use crate::numbers;
use crate::target::{DeviceArg, Force};
use crate::value::{Fields, fields};

/// The keyspace a command is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    #[command(flatten)]
    pub(crate) device: DeviceArg,
    /// Namespace; may be left out when only one for keys and values is attached
    #[arg(short, long, value_name = "NSID", value_parser = numbers::u32)]
    namespace_id: Option<u32>,
    /// Keyspace, 0 or 1; keyspaces have their own keys
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = numbers::u8)]
    keyspace: u8,
}

impl Place {
    pub(crate) fn open(&self) -> Result<Kv> {
        self.open_asking(|_| Ok(()))
    }

    /// To change pairs: `what` says what would happen to those of a device that is not virtual.
    pub(crate) fn open_to_change(&self, force: Force, what: &str) -> Result<Kv> {
        self.open_asking(|device| force.confirm(device, what))
    }

    fn open_asking(&self, ask: impl FnOnce(&Device) -> Result<()>) -> Result<Kv> {
        let device = self.device.open()?;
        ask(&device)?;
        let nsid = choose(&device, self.namespace_id.map(Nsid))?;
        Ok(device.kv(nsid)?.keyspace(self.keyspace)?)
    }
}

/// The namespace that was named, or the only one for keys and values.
pub(crate) fn choose(device: &Device, named: Option<Nsid>) -> Result<Nsid> {
    if let Some(nsid) = named {
        return Ok(nsid);
    }
    let name = device.name();
    let all = device.all_namespaces()?;
    let fitting: Vec<Nsid> =
        all.iter().filter(|entry| entry.command_set == csi::KEY_VALUE).map(|entry| entry.nsid).collect();
    match fitting.as_slice() {
        [only] => Ok(*only),
        [] => Err(usage(format!(
            "{name}: no namespace for keys and values is attached; make a device with one by \
             `unvme device create --type kv`"
        ))),
        several => {
            let list: Vec<String> = several.iter().map(ToString::to_string).collect();
            let list = list.join(", ");
            Err(usage(format!(
                "{name}: namespaces for keys and values are {list}; choose one with --namespace-id"
            )))
        }
    }
}

/// A key as it is typed.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeyArg {
    /// Key
    #[arg(value_name = "KEY")]
    key: String,
    /// The key is hexadecimal, two digits for each byte
    #[arg(short = 'x', long)]
    key_hex: bool,
}

impl KeyArg {
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        bytes_of(&self.key, self.key_hex)
    }
}

/// Bytes of a text, or of hexadecimal digits.
pub(crate) fn bytes_of(text: &str, is_hex: bool) -> Result<Vec<u8>> {
    if !is_hex {
        return Ok(text.as_bytes().to_vec());
    }
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |&[high, low]: &[u8; 2]| Some((digit(high)? << 4 | digit(low)?) as u8);
    let bytes = pairs.iter().map(byte).collect::<Option<Vec<u8>>>().filter(|_| rest.is_empty());
    bytes.ok_or_else(|| {
        usage(format!("{text}: expected two hexadecimal digits for each byte, such as 00ff7e"))
    })
}

/// A key as a line shows it: what cannot be printed is escaped, so that a key does not control a terminal.
pub(crate) fn shown(key: &[u8]) -> String {
    let mut out = String::new();
    for chunk in key.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => out.push_str("\\\\"),
                _ if character.is_control() => {
                    character.to_string().bytes().for_each(|byte| escape(&mut out, byte))
                }
                _ => out.push(character),
            }
        }
        chunk.invalid().iter().for_each(|&byte| escape(&mut out, byte));
    }
    out
}

fn escape(out: &mut String, byte: u8) {
    // Writing to a string does not fail.
    let _ = write!(out, "\\x{byte:02x}");
}

/// A key in JSON: as text when it is one, and always as hexadecimal digits.
pub(crate) fn key_fields(key: &[u8]) -> Fields {
    fields! { "key": std::str::from_utf8(key).ok(), "key_hex": crate::show::hex::text(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_text_or_hexadecimal() {
        assert_eq!(bytes_of("00ff7E", false).expect("text"), b"00ff7E");
        assert_eq!(bytes_of("00ff7E", true).expect("digits"), [0, 0xff, 0x7e]);
        assert_eq!(bytes_of("0x0102", true).expect("digits"), [1, 2]);
        assert!(bytes_of("", true).expect("no digits").is_empty());
        for text in ["0", "0g", "00 1", "+1", "\u{e9}\u{e9}"] {
            let message = bytes_of(text, true).expect_err(text).to_string();
            assert!(message.contains("two hexadecimal digits"), "{message}");
        }
    }

    #[test]
    fn a_key_does_not_control_a_terminal() {
        assert_eq!(shown(b"user:1"), "user:1");
        assert_eq!(shown("\u{e9}\u{1b}[2J\\\n".as_bytes()), "\u{e9}\\x1b[2J\\\\\\x0a");
        assert_eq!(shown(b"\xff\0a"), "\\xff\\x00a");
    }
}
