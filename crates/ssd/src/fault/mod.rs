//! Faults by script: rules that say which commands fail, and how.
//!
//! | module | concept |
//! |---|---|
//! | `rule`, `opcode` | what a rule says, and the bounds of every value in it |
//! | `text`, `object`, `write` | rules as JSON |
//! | `word` | values of one word, in JSON as in options |
//! | `state` | the rules of a device, their counters, and what they have done to it |
//! | `judge` | from a command and the rules to what happens to the command |
//! | `power` | whether the device is there and has power, and what programs of media set off |
//!
//! What they say is done by [`inject`](crate::inject).
//!
//! A device without rules pays one load per command. One with rules looks at them under a lock, command by
//! command; the order in which the device takes commands from several queues is not decided here, so what is
//! to be the same twice keeps to one queue.
//!
//! The vendor's two commands that manage rules are exempt from rules, and so are the two halves of a fused
//! pair.

mod error;
pub(crate) mod judge;
mod object;
mod opcode;
mod power;
mod rule;
mod state;
mod text;
mod word;
mod write;

#[cfg(test)]
mod tests;

pub use error::FaultError;
pub use opcode::FaultOpcode;
pub use rule::{
    CorruptData, Corruption, FAULT_DELAY_MAX, FAULT_FLIPS_MAX, FAULT_KEY_BYTES_MAX, FaultAction, FaultDelay,
    FaultKey, FaultMatch, FaultRule, Flips, LbaRange, WrongCompletion,
};
pub use state::FaultReport;
pub(crate) use state::{Faults, SavedFault};
pub use text::parse_faults;
pub use word::{parse_fault_event, parse_fault_hex, parse_fault_key, parse_fault_status};

/// Most rules a device has at a time.
pub const FAULTS_MAX: usize = 64;
/// Most bytes of text with rules.
pub const FAULT_TEXT_BYTES_MAX: usize = unvme_spec::fault::TEXT_BYTES_MAX as usize;
