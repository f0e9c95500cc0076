//! Commands by name: nvme-cli's words where it has them.

use std::fmt;
use std::str::FromStr;

use unvme_spec::{admin, kv, nvm, samsung_kv};

/// A name and what it stands for; of two command sets that have such a command, both.
#[derive(Debug)]
struct Named {
    name: &'static str,
    admin: bool,
    opcodes: &'static [u8],
}

const fn io(name: &'static str, opcodes: &'static [u8]) -> Named {
    Named { name, admin: false, opcodes }
}

const fn admin(name: &'static str, opcodes: &'static [u8]) -> Named {
    Named { name, admin: true, opcodes }
}

static NAMES: [Named; 34] = [
    io("flush", &[nvm::opcode::FLUSH]),
    io("write", &[nvm::opcode::WRITE]),
    io("read", &[nvm::opcode::READ]),
    io("write-uncor", &[nvm::opcode::WRITE_UNCORRECTABLE]),
    io("compare", &[nvm::opcode::COMPARE]),
    io("write-zeroes", &[nvm::opcode::WRITE_ZEROES]),
    io("dsm", &[nvm::opcode::DATASET_MANAGEMENT]),
    io("verify", &[nvm::opcode::VERIFY]),
    io("io-mgmt-recv", &[0x12]),
    io("io-mgmt-send", &[0x1d]),
    io("store", &[kv::opcode::STORE, samsung_kv::opcode::STORE]),
    io("retrieve", &[kv::opcode::RETRIEVE, samsung_kv::opcode::RETRIEVE]),
    io("list", &[kv::opcode::LIST]),
    io("delete", &[kv::opcode::DELETE, samsung_kv::opcode::DELETE]),
    io("exist", &[kv::opcode::EXIST, samsung_kv::opcode::EXIST]),
    io("append", &[samsung_kv::opcode::APPEND]),
    io("batch", &[samsung_kv::opcode::BATCH]),
    io("iterate-request", &[samsung_kv::opcode::ITERATE_REQUEST]),
    io("iterate-read", &[samsung_kv::opcode::ITERATE_READ]),
    admin("delete-sq", &[admin::opcode::DELETE_IO_SQ]),
    admin("create-sq", &[admin::opcode::CREATE_IO_SQ]),
    admin("get-log", &[admin::opcode::GET_LOG_PAGE]),
    admin("delete-cq", &[admin::opcode::DELETE_IO_CQ]),
    admin("create-cq", &[admin::opcode::CREATE_IO_CQ]),
    admin("identify", &[admin::opcode::IDENTIFY]),
    admin("abort", &[admin::opcode::ABORT]),
    admin("set-feature", &[admin::opcode::SET_FEATURES]),
    admin("get-feature", &[admin::opcode::GET_FEATURES]),
    admin("async-event", &[admin::opcode::ASYNC_EVENT_REQUEST]),
    admin("ns-mgmt", &[admin::opcode::NAMESPACE_MANAGEMENT]),
    admin("fw-commit", &[admin::opcode::FIRMWARE_COMMIT]),
    admin("fw-download", &[admin::opcode::FIRMWARE_DOWNLOAD]),
    admin("ns-attach", &[admin::opcode::NAMESPACE_ATTACHMENT]),
    admin("format", &[admin::opcode::FORMAT_NVM]),
];

/// An opcode, or the name of one: `write`, `0x02`, `admin:0x06`.
#[derive(Clone, Copy, Debug)]
pub struct FaultOpcode(Repr);

#[derive(Clone, Copy, Debug)]
enum Repr {
    Named(&'static Named),
    Number { admin: bool, opcode: u8 },
}

impl FaultOpcode {
    /// An I/O command.
    pub const fn io(opcode: u8) -> Self {
        Self(Repr::Number { admin: false, opcode })
    }

    /// An admin command.
    pub const fn admin(opcode: u8) -> Self {
        Self(Repr::Number { admin: true, opcode })
    }

    /// True for an admin command.
    pub const fn is_admin(&self) -> bool {
        match self.0 {
            Repr::Named(named) => named.admin,
            Repr::Number { admin, .. } => admin,
        }
    }

    /// Whether this is the opcode of a command; whether that is an admin command has been asked.
    pub(super) fn matches(&self, opcode: u8) -> bool {
        match self.0 {
            Repr::Named(named) => named.opcodes.contains(&opcode),
            Repr::Number { opcode: only, .. } => only == opcode,
        }
    }
}

impl PartialEq for FaultOpcode {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for FaultOpcode {}

impl fmt::Display for FaultOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Repr::Named(named) => f.pad(named.name),
            Repr::Number { admin: true, opcode } => f.pad(&format!("admin:{opcode:#04x}")),
            Repr::Number { admin: false, opcode } => f.pad(&format!("{opcode:#04x}")),
        }
    }
}

impl FromStr for FaultOpcode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(named) = NAMES.iter().find(|named| named.name == text) {
            return Ok(Self(Repr::Named(named)));
        }
        let (admin, number) = match text.strip_prefix("admin:") {
            Some(number) => (true, number),
            None => (false, text),
        };
        match super::word::number(number).map(u8::try_from) {
            Some(Ok(opcode)) => Ok(Self(Repr::Number { admin, opcode })),
            _ => {
                let names: Vec<&str> = NAMES.iter().map(|named| named.name).collect();
                let names = names.join(", ");
                Err(format!("expected a number up to 255, such as 0x02 or admin:0x06, or one of {names}"))
            }
        }
    }
}
