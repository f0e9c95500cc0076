//! Drives by address.

use anyhow::Result;
use clap::Args;
use unvme::PciAddress;

use crate::exit::usage;

/// Drives of the PCI bus.
#[derive(Clone, Debug, Args)]
pub(super) struct DriveArgs {
    /// PCI addresses, such as 0000:0b:00.0; also several in one word, with blanks between them
    #[arg(value_name = "BDF")]
    drives: Vec<String>,
}

impl DriveArgs {
    /// The addresses; none when none was named.
    pub(super) fn addresses(&self) -> Result<Vec<PciAddress>> {
        let words = self.drives.iter().flat_map(|word| word.split([' ', ',', '\t', '\n']));
        let addresses = words
            .filter(|word| !word.is_empty())
            .map(|word| word.parse().map_err(|e| usage(format!("`{word}`: {e}"))))
            .collect::<Result<Vec<_>>>()?;
        // An empty word is most likely a shell variable without a value, and must not mean all drives.
        if addresses.is_empty() && !self.drives.is_empty() {
            return Err(usage("a drive's address is empty; name drives, or none at all to mean all"));
        }
        Ok(addresses)
    }
}
