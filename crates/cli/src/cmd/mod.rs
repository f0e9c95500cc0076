//! The commands.

pub(crate) mod attach;
pub(crate) mod compare;
pub(crate) mod create_ns;
pub(crate) mod device;
pub(crate) mod discover;
pub(crate) mod dsm;
pub(crate) mod feature;
pub(crate) mod firmware;
pub(crate) mod flush;
pub(crate) mod format;
pub(crate) mod generate;
pub(crate) mod get_log;
pub(crate) mod identify;
pub(crate) mod key;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod read;
pub(crate) mod reset;
pub(crate) mod serve;
pub(crate) mod write;
pub(crate) mod write_zeroes;

mod transfer;
