//! What the controller supports, as log pages list it: commands, features, log pages (Base 5.1.12.1).

use unvme_spec::admin::opcode;
use unvme_spec::feature::fid;
use unvme_spec::log_page::{CommandsSupported, SupportedLogPages, command_effects, lid, lid_support};
use unvme_spec::{fault, kv, nvm, samsung_kv};

use super::{features, placement_logs, vendor_logs};

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

/// Scope of a command or feature: bits 31:20 of its entry, at most one of them set (Base figures 211 and 256).
mod scope {
    pub(super) const NAMESPACE: u32 = 1 << 20;
    pub(super) const CONTROLLER: u32 = 1 << 21;
    pub(super) const ENDURANCE_GROUP: u32 = 1 << 23;
    pub(super) const SUBSYSTEM: u32 = 1 << 25;
}

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
        put(&mut log.pages, page, lid_support::LSUPP);
    }
    log
}

/// Commands Supported and Effects (05h) without I/O commands.
fn admin_commands(has_flash: bool) -> CommandsSupported {
    use command_effects::{CCC, CSE_SHIFT, LBCC, NCC, NIC};
    /// CSE: no other command for the same namespace meanwhile.
    const ALONE_IN_NAMESPACE: u32 = 1 << CSE_SHIFT;

    let mut log = CommandsSupported::default();
    for (opcode, effects) in [
        (opcode::DELETE_IO_SQ, scope::CONTROLLER),
        (opcode::CREATE_IO_SQ, scope::CONTROLLER),
        (opcode::GET_LOG_PAGE, scope::CONTROLLER),
        (opcode::DELETE_IO_CQ, scope::CONTROLLER),
        (opcode::CREATE_IO_CQ, scope::CONTROLLER),
        (opcode::IDENTIFY, scope::CONTROLLER),
        (opcode::ABORT, scope::CONTROLLER),
        (opcode::SET_FEATURES, scope::CONTROLLER),
        (opcode::GET_FEATURES, scope::CONTROLLER),
        (opcode::ASYNC_EVENT_REQUEST, scope::CONTROLLER),
        (opcode::NAMESPACE_MANAGEMENT, scope::SUBSYSTEM | LBCC | NIC),
        (opcode::FIRMWARE_COMMIT, scope::SUBSYSTEM | CCC),
        (opcode::FIRMWARE_DOWNLOAD, scope::SUBSYSTEM),
        (opcode::NAMESPACE_ATTACHMENT, scope::NAMESPACE | NIC),
        (opcode::FORMAT_NVM, scope::NAMESPACE | LBCC | NCC | ALONE_IN_NAMESPACE),
    ] {
        put(&mut log.admin, opcode, command_effects::CSUPP | effects);
    }
    let directives = [opcode::DIRECTIVE_SEND, opcode::DIRECTIVE_RECEIVE];
    for opcode in directives.into_iter().filter(|_| has_flash) {
        put(&mut log.admin, opcode, command_effects::CSUPP | scope::NAMESPACE);
    }
    log
}

/// Commands Supported and Effects (05h) of the admin commands and the NVM command set.
pub(super) fn commands(has_flash: bool) -> CommandsSupported {
    use command_effects::LBCC;
    let mut log = admin_commands(has_flash);
    for (opcode, effects) in [
        (nvm::opcode::FLUSH, 0),
        (nvm::opcode::WRITE, LBCC),
        (nvm::opcode::READ, 0),
        (nvm::opcode::WRITE_UNCORRECTABLE, LBCC),
        (nvm::opcode::COMPARE, 0),
        (nvm::opcode::WRITE_ZEROES, LBCC),
        (nvm::opcode::DATASET_MANAGEMENT, LBCC),
        (nvm::opcode::VERIFY, 0),
    ] {
        // Without a scope, which is optional: Linux calls any other bit of an I/O command an unusual effect.
        put(&mut log.io, opcode, command_effects::CSUPP | effects);
    }
    let management = [nvm::opcode::IO_MANAGEMENT_RECEIVE, nvm::opcode::IO_MANAGEMENT_SEND];
    for opcode in management.into_iter().filter(|_| has_flash) {
        put(&mut log.io, opcode, command_effects::CSUPP);
    }
    log
}

/// Commands Supported and Effects (05h) of the admin commands, the Key Value command set and, on a device that has them,
/// the vendor's commands. Where it says logical blocks, pairs are meant.
pub(super) fn key_value_commands(vendor: bool, has_flash: bool) -> CommandsSupported {
    use command_effects::LBCC;
    use samsung_kv::opcode as samsung;
    let mut log = admin_commands(has_flash);
    for (opcode, effects) in [
        (kv::opcode::FLUSH, 0),
        (kv::opcode::STORE, LBCC),
        (kv::opcode::RETRIEVE, 0),
        (kv::opcode::LIST, 0),
        (kv::opcode::DELETE, LBCC),
        (kv::opcode::EXIST, 0),
    ] {
        put(&mut log.io, opcode, command_effects::CSUPP | effects);
    }
    let vendors = [
        (samsung::STORE, LBCC),
        (samsung::APPEND, LBCC),
        (samsung::BATCH, LBCC),
        (samsung::RETRIEVE, 0),
        (samsung::DELETE, LBCC),
        (samsung::ITERATE_REQUEST, LBCC),
        (samsung::ITERATE_READ, 0),
        (samsung::EXIST, 0),
    ];
    for (opcode, effects) in vendors.into_iter().filter(|_| vendor) {
        put(&mut log.io, opcode, command_effects::CSUPP | effects);
    }
    log
}

/// A list of commands, with those of a host that is reached over a network in place of those that make queues.
pub(super) fn over_network(mut log: CommandsSupported, is_remote: bool) -> CommandsSupported {
    if is_remote {
        for opcode in [opcode::CREATE_IO_SQ, opcode::CREATE_IO_CQ, opcode::DELETE_IO_SQ, opcode::DELETE_IO_CQ]
        {
            put(&mut log.admin, opcode, 0);
        }
        put(&mut log.admin, opcode::KEEP_ALIVE, command_effects::CSUPP | scope::CONTROLLER);
    }
    log
}

/// A list of commands, with those that manage faults on a device that has them.
pub(super) fn with_fault_commands(mut log: CommandsSupported, offered: bool) -> CommandsSupported {
    for opcode in [fault::SEND, fault::RECEIVE].into_iter().filter(|_| offered) {
        put(&mut log.admin, opcode, command_effects::CSUPP | scope::CONTROLLER);
    }
    log
}

/// Feature Identifiers Supported and Effects (12h): an entry per feature.
pub(super) fn features(has_flash: bool) -> [u32; 256] {
    std::array::from_fn(|fid| {
        features::capabilities(fid as u8, has_flash).map_or(0, |capabilities| {
            let scope = match capabilities.namespace_specific() {
                true => scope::NAMESPACE,
                false if fid as u8 == fid::FLEXIBLE_DATA_PLACEMENT => scope::ENDURANCE_GROUP,
                false => scope::CONTROLLER,
            };
            FSUPP | scope
        })
    })
}

fn put(table: &mut [u32; 256], index: u8, value: u32) {
    table[usize::from(index)] = value;
}
