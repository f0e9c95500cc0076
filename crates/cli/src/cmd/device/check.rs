//! `device check`.

use anyhow::Result;
use clap::Args;
use unvme::{CheckedNamespace, Damage, PciAddress, Registry};

use super::find_slot;
use crate::exit::Failed;
use crate::output::{Output, Screen};
use crate::value::Fields;

/// Arguments of `device check`.
#[derive(Debug, Args)]
#[command(after_help = "\
The device must not be in use. What cannot be read is named with its key, where that can be
told, and the exit code is 1; all other pairs can be read. What has been deleted or replaced
since is no loss.")]
pub(crate) struct Check {
    /// PCI address
    #[arg(value_name = "ADDRESS")]
    address: PciAddress,
    #[command(flatten)]
    output: Output,
}

impl Check {
    pub(crate) fn run(self) -> Result<()> {
        let slot = find_slot(&Registry::from_environment()?, self.address)?;
        let checked = unvme::check(&slot)?;
        let lost: usize = checked.iter().map(|namespace| namespace.lost.len()).sum();
        let namespaces: Vec<Fields> = checked.iter().map(json).collect();
        let fields = Fields::new()
            .with("address", self.address.to_string())
            .with("namespaces", namespaces)
            .with("lost", lost as u64);
        Screen::new().show(self.output.output, fields, |out| {
            if checked.is_empty() {
                return writeln!(out, "{}: there are no key-value namespaces", self.address);
            }
            for CheckedNamespace { nsid, pairs, lost } in &checked {
                let what = match lost.len() {
                    0 => "nothing is lost".to_owned(),
                    1 => "1 loss".to_owned(),
                    losses => format!("{losses} losses"),
                };
                writeln!(out, "namespace {nsid}: {pairs} pairs, {what}")?;
                for damage in lost {
                    let name = name_of(damage).map_or(String::new(), |name| format!("{name}: "));
                    writeln!(out, "  offset {:#x}: {name}{}", damage.offset, damage.what)?;
                }
            }
            Ok(())
        })?;
        if lost > 0 {
            return Err(Failed(format!("{}: {lost} of what was stored cannot be read", self.address)).into());
        }
        Ok(())
    }
}

/// Keyspace and key for people: as text where it is text.
fn name_of(damage: &Damage) -> Option<String> {
    let (keyspace, key) = damage.key.as_ref()?;
    let text = std::str::from_utf8(key).ok().filter(|text| text.chars().all(|c| !c.is_control()));
    let key = text.map_or_else(|| hexadecimal(key), |text| format!("\"{text}\""));
    Some(format!("key {key} of keyspace {keyspace}"))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn json(namespace: &CheckedNamespace) -> Fields {
    let lost: Vec<Fields> = namespace
        .lost
        .iter()
        .map(|damage| {
            let fields = Fields::new().with("offset", damage.offset).with("what", damage.what.as_str());
            match &damage.key {
                Some((keyspace, key)) => fields.with("keyspace", *keyspace).with("key", hexadecimal(key)),
                None => fields,
            }
        })
        .collect();
    Fields::new().with("nsid", namespace.nsid.0).with("pairs", namespace.pairs).with("lost", lost)
}
