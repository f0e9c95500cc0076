//! What the controller supports, as log pages list it: commands, features, log pages (Base 5.1.12.1).

use unvme_spec::admin::opcode;
use unvme_spec::command::{CommandSet, Facts};
use unvme_spec::feature::fid;
use unvme_spec::log_page::{
    CommandsSupported, SupportedLogPages, command_effects, effects_scope, lid, lid_support,
};
use unvme_spec::nvm;

use super::{placement_logs, vendor_logs};
use crate::features::capabilities;

/// Log pages that [`super::logs`] knows, whatever namespaces a device can have.
const LOG_PAGES: [u8; 8] = [
    lid::SUPPORTED_LOG_PAGES,
    lid::ERROR_INFORMATION,
    lid::SMART_HEALTH,
    lid::FIRMWARE_SLOT,
    lid::CHANGED_NAMESPACES,
    lid::COMMANDS_SUPPORTED,
    lid::FEATURES_SUPPORTED,
    lid::NVME_MI_COMMANDS_SUPPORTED,
];

/// Admin commands that [`super`] executes for every host; queues are made and deleted in host memory alone.
const ADMIN: [u8; 15] = [
    opcode::DELETE_IO_SQ,
    opcode::CREATE_IO_SQ,
    opcode::GET_LOG_PAGE,
    opcode::DELETE_IO_CQ,
    opcode::CREATE_IO_CQ,
    opcode::IDENTIFY,
    opcode::ABORT,
    opcode::SET_FEATURES,
    opcode::GET_FEATURES,
    opcode::ASYNC_EVENT_REQUEST,
    opcode::NAMESPACE_MANAGEMENT,
    opcode::FIRMWARE_COMMIT,
    opcode::FIRMWARE_DOWNLOAD,
    opcode::NAMESPACE_ATTACHMENT,
    opcode::FORMAT_NVM,
];

/// FSUPP of Feature Identifiers Supported and Effects: the feature is supported.
const FSUPP: u32 = 1 << 0;

/// Which log pages a device has beside those that each of them has.
#[derive(Clone, Copy)]
pub(super) struct LogPageKinds {
    /// Those of the vendor's.
    pub(super) vendor: bool,
    /// Those of an endurance group: it has flash.
    pub(super) flash: bool,
    /// Asymmetric Namespace Access: the host is reached over a network.
    pub(super) remote: bool,
}

/// Identifiers of the log pages of a device.
pub(super) fn log_page_ids(kinds: LogPageKinds) -> impl Iterator<Item = u8> {
    let flash = placement_logs::PAGES.into_iter().filter(move |_| kinds.flash);
    let remote = [lid::ANA].into_iter().filter(move |_| kinds.remote);
    LOG_PAGES
        .into_iter()
        .chain(remote)
        .chain(flash)
        .chain(vendor_logs::PAGES.into_iter().filter(move |_| kinds.vendor))
}

/// Supported Log Pages (00h).
pub(super) fn log_pages(kinds: LogPageKinds) -> SupportedLogPages {
    let mut log = SupportedLogPages::default();
    for page in log_page_ids(kinds) {
        log.pages[usize::from(page)] = lid_support::LSUPP;
    }
    log
}

/// Which commands a device has beside those that each of them has.
#[derive(Clone, Copy)]
pub(super) struct CommandKinds {
    /// The vendor's for pairs.
    pub(super) vendor: bool,
    /// The vendor's that manage faults.
    pub(super) faults: bool,
    /// Those of data placement: it has flash.
    pub(super) flash: bool,
    /// The host is reached over a network.
    pub(super) remote: bool,
}

/// Commands Supported and Effects (05h): the admin commands and those of a command set. Of pairs, where it
/// says logical blocks, pairs are meant.
pub(super) fn commands(csi: u8, kinds: CommandKinds) -> CommandsSupported {
    let admin: &[_] = &[CommandSet::Admin, CommandSet::Fault, CommandSet::Claim];
    let mut log = CommandsSupported::default();
    for (table, sets) in [(&mut log.admin, admin), (&mut log.io, CommandSet::of_csi(csi))] {
        for set in sets {
            for facts in set.commands().iter().filter(|facts| kinds.have(*set, facts)) {
                table[usize::from(facts.opcode)] = command_effects::CSUPP | facts.effects();
            }
        }
    }
    log
}

impl CommandKinds {
    fn have(self, set: CommandSet, facts: &Facts) -> bool {
        match (set, facts.opcode) {
            (CommandSet::Admin, opcode::KEEP_ALIVE) => self.remote,
            (CommandSet::Admin, opcode::DIRECTIVE_SEND | opcode::DIRECTIVE_RECEIVE) => self.flash,
            (CommandSet::Admin, opcode) => ADMIN.contains(&opcode) && !(self.remote && facts.makes_queue),
            (CommandSet::Nvm, nvm::opcode::IO_MANAGEMENT_RECEIVE | nvm::opcode::IO_MANAGEMENT_SEND) => {
                self.flash
            }
            (CommandSet::SamsungKv, _) => self.vendor,
            (CommandSet::Fault, _) => self.faults,
            _ => true,
        }
    }
}

/// Feature Identifiers Supported and Effects (12h): an entry per feature.
pub(super) fn features(has_flash: bool) -> [u32; 256] {
    std::array::from_fn(|fid| {
        capabilities(fid as u8, has_flash).map_or(0, |capabilities| {
            let scope = match capabilities.namespace_specific() {
                true => effects_scope::NAMESPACE,
                false if fid as u8 == fid::FLEXIBLE_DATA_PLACEMENT => effects_scope::ENDURANCE_GROUP,
                false => effects_scope::CONTROLLER,
            };
            FSUPP | scope
        })
    })
}
