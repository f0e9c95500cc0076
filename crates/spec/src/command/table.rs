//! The table: a row for each opcode, in the order of the opcodes.
//!
//! A row is opcode, constant, name and word; then direction, length, what it changes, and effects without
//! LBCC; behind a semicolon what else is not as in [`PLAIN`]. Fields of [`Facts`] say what each means.

use super::{Access, Changes, Direction, Facts, Length};
use crate::Fuse;
use crate::identify::csi;
use crate::log_page::command_effects::{ALONE_IN_NAMESPACE, CCC, NCC, NIC};
use crate::log_page::effects_scope::{CONTROLLER, NAMESPACE, SUBSYSTEM};

/// The commands of a set, and where each opcode's row is.
pub(super) struct Table {
    rows: &'static [Facts],
    places: [u8; 256],
}

impl Table {
    const fn new(rows: &'static [Facts]) -> Self {
        let mut places = [u8::MAX; 256];
        let mut at = 0;
        while at < rows.len() {
            places[rows[at].opcode as usize] = at as u8;
            at += 1;
        }
        Self { rows, places }
    }

    #[inline]
    pub(super) fn get(&self, opcode: u8) -> Option<&'static Facts> {
        self.rows.get(usize::from(self.places[usize::from(opcode)]))
    }

    pub(super) const fn rows(&self) -> &'static [Facts] {
        self.rows
    }
}

/// A command that is not about the contents of a namespace, and cannot be fused.
const PLAIN: Facts = Facts {
    opcode: 0,
    name: "",
    word: "",
    direction: Direction::None,
    length: Length::Unstated,
    changes: Changes::Controller,
    access: Access::Other,
    moves_contents: false,
    names_blocks: false,
    has_fua: false,
    fuse: Fuse::Normal,
    makes_queue: false,
    other_effects: 0,
};

macro_rules! commands {
    ($(#[doc = $set_doc:literal] $set:ident {
        $(#[$doc:meta])* $module:ident:
        $($opcode:literal $constant:ident $name:literal $word:literal
            => $direction:ident, $length:ident $(($($number:expr),*))?, $changes:ident, $effects:expr
                $(; $($field:ident: $value:expr),*)?;)*
    })*) => {
        /// Commands whose opcodes mean the same wherever they are sent.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum CommandSet {
            $(#[doc = $set_doc] $set,)*
        }

        impl CommandSet {
            pub(super) fn table(self) -> &'static Table {
                match self {
                    $(Self::$set => {
                        static TABLE: Table = Table::new(&[$(Facts {
                            opcode: $opcode,
                            name: $name,
                            word: $word,
                            direction: Direction::$direction,
                            length: Length::$length $(($($number),*))?,
                            changes: Changes::$changes,
                            other_effects: $effects,
                            $($($field: $value,)*)?
                            ..PLAIN
                        }),*]);
                        &TABLE
                    })*
                }
            }
        }

        $(
            $(#[$doc])*
            pub mod $module {
                $(#[doc = concat!($name, ".")] pub const $constant: u8 = $opcode;)*
            }
        )*
    };
}

impl CommandSet {
    /// The sets of I/O commands.
    pub const IO: [Self; 3] = [Self::Nvm, Self::KeyValue, Self::SamsungKv];

    /// The sets whose commands a namespace of command set `csi` takes. No two of them share an opcode.
    #[inline]
    pub const fn of_csi(csi: u8) -> &'static [Self] {
        match csi {
            csi::NVM => &[Self::Nvm],
            csi::KEY_VALUE => &[Self::KeyValue, Self::SamsungKv],
            _ => &[],
        }
    }
}

commands! {
    /// Admin commands (Base 5), without a vendor's.
    Admin {
        /// Opcodes of the admin commands (Base figure 141).
        admin:
        0x00 DELETE_IO_SQ "Delete I/O Submission Queue" "delete-sq"
            => None, Unstated, Controller, CONTROLLER; makes_queue: true;
        0x01 CREATE_IO_SQ "Create I/O Submission Queue" "create-sq"
            => ToController, Unstated, Controller, CONTROLLER; makes_queue: true;
        0x02 GET_LOG_PAGE "Get Log Page" "get-log"
            => ToHost, dwords_at(16, true), Nothing, CONTROLLER;
        0x04 DELETE_IO_CQ "Delete I/O Completion Queue" "delete-cq"
            => None, Unstated, Controller, CONTROLLER; makes_queue: true;
        0x05 CREATE_IO_CQ "Create I/O Completion Queue" "create-cq"
            => ToController, Unstated, Controller, CONTROLLER; makes_queue: true;
        0x06 IDENTIFY "Identify" "identify"
            => ToHost, Fixed(4096), Nothing, CONTROLLER;
        0x08 ABORT "Abort" "abort"
            => None, Unstated, Controller, CONTROLLER;
        0x09 SET_FEATURES "Set Features" "set-feature"
            => ToController, Unstated, Controller, CONTROLLER;
        0x0a GET_FEATURES "Get Features" "get-feature"
            => ToHost, Unstated, Nothing, CONTROLLER;
        0x0c ASYNC_EVENT_REQUEST "Asynchronous Event Request" "async-event"
            => None, Unstated, Controller, CONTROLLER;
        0x0d NAMESPACE_MANAGEMENT "Namespace Management" "ns-mgmt"
            => ToController, Unstated, Media, SUBSYSTEM | NIC;
        0x10 FIRMWARE_COMMIT "Firmware Commit" "fw-commit"
            => None, Unstated, Controller, SUBSYSTEM | CCC;
        0x11 FIRMWARE_DOWNLOAD "Firmware Image Download" "fw-download"
            => ToController, dwords_at(0, true), Controller, SUBSYSTEM;
        0x14 DEVICE_SELF_TEST "Device Self-test" ""
            => None, Unstated, Controller, CONTROLLER;
        0x15 NAMESPACE_ATTACHMENT "Namespace Attachment" "ns-attach"
            => ToController, Fixed(4096), Controller, NAMESPACE | NIC;
        0x18 KEEP_ALIVE "Keep Alive" ""
            => None, Unstated, Controller, CONTROLLER;
        0x19 DIRECTIVE_SEND "Directive Send" ""
            => ToController, dwords_at(0, true), Controller, NAMESPACE;
        0x1a DIRECTIVE_RECEIVE "Directive Receive" ""
            => ToHost, dwords_at(0, true), Controller, NAMESPACE;
        0x1c VIRTUALIZATION_MANAGEMENT "Virtualization Management" ""
            => None, Unstated, Controller, SUBSYSTEM;
        0x1d NVME_MI_SEND "NVMe-MI Send" ""
            => ToController, Unstated, Controller, SUBSYSTEM;
        0x1e NVME_MI_RECEIVE "NVMe-MI Receive" ""
            => ToHost, Unstated, Controller, SUBSYSTEM;
        0x20 CAPACITY_MANAGEMENT "Capacity Management" ""
            => None, Unstated, Media, SUBSYSTEM | NIC;
        0x24 LOCKDOWN "Lockdown" ""
            => None, Unstated, Controller, SUBSYSTEM;
        0x7c DOORBELL_BUFFER_CONFIG "Doorbell Buffer Config" ""
            => None, Unstated, Controller, CONTROLLER;
        0x7f FABRICS "Fabrics" ""
            => Both, Unstated, Controller, CONTROLLER;
        0x80 FORMAT_NVM "Format NVM" "format"
            => None, Unstated, Media, NAMESPACE | NCC | ALONE_IN_NAMESPACE;
        0x81 SECURITY_SEND "Security Send" ""
            => ToController, bytes_at(32), Controller, SUBSYSTEM;
        0x82 SECURITY_RECEIVE "Security Receive" ""
            => ToHost, bytes_at(32), Controller, SUBSYSTEM;
        0x84 SANITIZE "Sanitize" ""
            => None, Unstated, Media, SUBSYSTEM;
        0x86 GET_LBA_STATUS "Get LBA Status" ""
            => ToHost, dwords_at(64, true), Controller, NAMESPACE;
    }
    /// Fabrics commands, by FCTYPE instead of by opcode (Base 6).
    Fabrics {
        /// Fabrics command types: FCTYPE, byte 4 of the entry (Base figure 531).
        fabrics:
        0x00 PROPERTY_SET "Property Set" ""
            => None, Unstated, Controller, 0;
        0x01 CONNECT "Connect" ""
            => ToController, Fixed(1024), Controller, 0;
        0x04 PROPERTY_GET "Property Get" ""
            => None, Unstated, Nothing, 0;
        0x05 AUTHENTICATION_SEND "Authentication Send" ""
            => ToController, bytes_at(32), Controller, 0;
        0x06 AUTHENTICATION_RECEIVE "Authentication Receive" ""
            => ToHost, bytes_at(32), Controller, 0;
        0x08 DISCONNECT "Disconnect" ""
            => None, Unstated, Controller, 0;
    }
    /// The NVM Command Set, with the I/O commands that all sets have (Base 7).
    Nvm {
        /// Opcodes of the NVM Command Set (NVM 3), and of the I/O commands that all command sets have (Base
        /// 7).
        nvm:
        0x00 FLUSH "Flush" "flush"
            => None, Unstated, Controller, 0; access: Access::Flush;
        0x01 WRITE "Write" "write"
            => ToController, Blocks, Media, 0; access: Access::Write, moves_contents: true, names_blocks: true,
                has_fua: true, fuse: Fuse::Second;
        0x02 READ "Read" "read"
            => ToHost, Blocks, Nothing, 0; access: Access::Read, moves_contents: true, names_blocks: true;
        0x04 WRITE_UNCORRECTABLE "Write Uncorrectable" "write-uncor"
            => None, Unstated, Media, 0; names_blocks: true;
        0x05 COMPARE "Compare" "compare"
            => ToController, Blocks, Nothing, 0; moves_contents: true, names_blocks: true, fuse: Fuse::First;
        0x08 WRITE_ZEROES "Write Zeroes" "write-zeroes"
            => None, Unstated, Media, 0; names_blocks: true, has_fua: true;
        0x09 DATASET_MANAGEMENT "Dataset Management" "dsm"
            => ToController, entries_at(0, 8, 16), MediaByFields, 0;
        0x0c VERIFY "Verify" "verify"
            => None, Unstated, Nothing, 0; names_blocks: true;
        0x12 IO_MANAGEMENT_RECEIVE "I/O Management Receive" "io-mgmt-recv"
            => ToHost, dwords_at(32, true), Controller, 0;
        0x1d IO_MANAGEMENT_SEND "I/O Management Send" "io-mgmt-send"
            => ToController, entries_at(16, 16, 2), Controller, 0;
    }
    /// The Key Value Command Set.
    KeyValue {
        /// Opcodes of the Key Value Command Set (Key Value 3).
        kv:
        0x00 FLUSH "Flush" "flush"
            => None, Unstated, Controller, 0; access: Access::Flush;
        0x01 STORE "Store" "store"
            => ToController, bytes_at(0), Media, 0; access: Access::Write, moves_contents: true;
        0x02 RETRIEVE "Retrieve" "retrieve"
            => ToHost, bytes_at(0), Nothing, 0; access: Access::Read, moves_contents: true;
        0x06 LIST "List" "list"
            => ToHost, bytes_at(0), Nothing, 0; access: Access::Read;
        0x10 DELETE "Delete" "delete"
            => None, Unstated, Media, 0;
        0x14 EXIST "Exist" "exist"
            => None, Unstated, Nothing, 0;
    }
    /// The vendor commands of Samsung's KV SSDs, see [`crate::samsung_kv`].
    SamsungKv {
        /// Opcodes of the vendor's I/O commands.
        samsung_kv:
        0x81 STORE "KV Store" "store"
            => ToController, Value, Media, 0; access: Access::Write, moves_contents: true;
        0x83 APPEND "KV Append" "append"
            => ToController, Value, Media, 0; access: Access::Write, moves_contents: true;
        0x85 BATCH "KV Batch" "batch"
            => ToController, dwords_at(0, false), Media, 0; access: Access::Write;
        0x90 RETRIEVE "KV Retrieve" "retrieve"
            => ToHost, dwords_at(0, false), Nothing, 0; access: Access::Read, moves_contents: true;
        0xa1 DELETE "KV Delete" "delete"
            => None, Unstated, Media, 0;
        0xb1 ITERATE_REQUEST "KV Iterate Request" "iterate-request"
            => None, Unstated, MediaByFields, 0;
        0xb2 ITERATE_READ "KV Iterate Read" "iterate-read"
            => ToHost, dwords_at(0, false), Controller, 0; access: Access::Read;
        0xb3 EXIST "KV Exist" "exist"
            => None, Unstated, Nothing, 0;
    }
    /// The vendor's admin commands of an `unvme` device, see [`crate::fault`].
    Fault {
        /// Opcodes of the vendor's admin commands that manage faults.
        fault:
        0xc1 SEND "Fault Send" ""
            => ToController, bytes_at(0), Controller, CONTROLLER;
        0xc2 RECEIVE "Fault Receive" ""
            => ToHost, bytes_at(0), Nothing, CONTROLLER;
    }
    /// The vendor's admin commands of an `unvme` device that claim namespaces, see [`crate::claim`].
    Claim {
        /// Opcodes of the vendor's admin commands that claim namespaces.
        claim:
        0xc5 SEND "Claim Send" ""
            => ToController, bytes_at(0), Controller, CONTROLLER;
        0xc6 RECEIVE "Claim Receive" ""
            => ToHost, bytes_at(0), Nothing, CONTROLLER;
    }
}
