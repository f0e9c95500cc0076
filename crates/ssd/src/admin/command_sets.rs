//! Which I/O command sets there are, and which are enabled (Base 3.1.3.5, 5.1.13.2.21, 5.1.25.1.17).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_bus::lock;
use unvme_spec::Status;
use unvme_spec::feature::{IoCommandSetProfile, fid};
use unvme_spec::identify::csi;
use unvme_spec::regs::CSS_ALL;

use crate::Ssd;
use crate::namespace::Contents;

/// What a host that has chosen nothing gets.
const NVM: u64 = 1 << csi::NVM;

impl Ssd {
    /// Combinations of command sets that can be enabled together, a bit per command set. The first one, which
    /// is in force until the host chooses another, is all there is.
    pub(super) fn command_set_combinations(&self) -> Vec<u64> {
        let alone =
            Contents::COMMAND_SETS.into_iter().filter(|csi| self.has_command_set(*csi)).map(|csi| 1 << csi);
        let all = alone.clone().fold(0, |all, set| all | set);
        std::iter::once(all).chain(alone.filter(|set| *set != all)).collect()
    }

    /// True when the device has a command set, enabled or not.
    pub(super) fn has_command_set(&self, csi: u8) -> bool {
        Contents::COMMAND_SETS.contains(&csi) && (csi != csi::KEY_VALUE || self.holds_pairs())
    }

    /// True when the host has enabled a command set: by CC.CSS, and by the profile that it has chosen.
    pub(super) fn is_enabled(&self, csi: u8) -> bool {
        let enabled = match lock(&self.configuration).css() {
            CSS_ALL => {
                let profile = lock(&self.features).value(fid::IO_COMMAND_SET_PROFILE, 0);
                let index = usize::from(IoCommandSetProfile::from_bits(profile).index());
                self.command_set_combinations().get(index).copied().unwrap_or(NVM)
            }
            _ => NVM,
        };
        enabled & 1 << csi != 0
    }

    /// Checks that a profile exists and includes the command sets of all attached namespaces.
    pub(super) fn check_profile(&self, value: u32) -> Result<(), Status> {
        let rejected = Status::IO_COMMAND_SET_COMBINATION_REJECTED.with_do_not_retry();
        let index = usize::from(IoCommandSetProfile::from_bits(value).index());
        let combination = self.command_set_combinations().get(index).copied().ok_or(rejected)?;
        let table = self.namespaces.get();
        let needed = table
            .iter()
            .filter(|namespace| table.is_attached(namespace))
            .fold(0, |needed, namespace| needed | 1 << namespace.csi());
        if needed & !combination == 0 { Ok(()) } else { Err(rejected) }
    }
}
