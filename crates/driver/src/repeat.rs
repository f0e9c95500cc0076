//! Which I/O commands may be executed twice.

use unvme_spec::command::{self, Changes};
use unvme_spec::fdp::ReceiveOperation;
use unvme_spec::identify::csi;
use unvme_spec::samsung_kv::{delete_option, store_option};
use unvme_spec::{Fuse, Sqe, kv, nvm, samsung_kv};

/// True when a command that may have been executed leaves and answers, executed again, what it would have the
/// first time: it changes nothing, or writes the same data again without looking at what was there.
///
/// An opcode that means one thing among blocks and another among pairs has to be so in either.
pub(crate) fn may_repeat(sqe: &Sqe) -> bool {
    // Half of a fused pair is nothing.
    let mut readings = [csi::NVM, csi::KEY_VALUE].into_iter().filter_map(|csi| repeats(csi, sqe)).peekable();
    sqe.fuse() == Fuse::Normal && readings.peek().is_some() && readings.all(|repeats| repeats)
}

/// As [`may_repeat`], for a command that is known to be one of the command set `csi`.
pub(crate) fn may_repeat_in(csi: u8, sqe: &Sqe) -> bool {
    sqe.fuse() == Fuse::Normal && repeats(csi, sqe).unwrap_or(false)
}

/// The same for one command set; `None` for a command that it does not have.
fn repeats(csi: u8, sqe: &Sqe) -> Option<bool> {
    let facts = command::io(csi, sqe.opcode)?;
    if facts.changes == Changes::Nothing {
        return Some(true);
    }
    Some(match csi {
        csi::NVM => blocks_repeat(sqe),
        _ => pairs_repeat(sqe),
    })
}

fn blocks_repeat(sqe: &Sqe) -> bool {
    match sqe.opcode {
        nvm::opcode::FLUSH
        | nvm::opcode::WRITE
        | nvm::opcode::WRITE_ZEROES
        | nvm::opcode::WRITE_UNCORRECTABLE
        | nvm::opcode::DATASET_MANAGEMENT => true,
        // Of its operations, those of a vendor may change something.
        nvm::opcode::IO_MANAGEMENT_RECEIVE => matches!(
            nvm::Command::parse(sqe),
            nvm::Command::IoManagementReceive(receive) if receive.operation == ReceiveOperation::RuhStatus
        ),
        _ => false,
    }
}

fn pairs_repeat(sqe: &Sqe) -> bool {
    match kv::Command::parse(sqe) {
        kv::Command::Flush => return true,
        kv::Command::Store { options, .. } => return !options.must_exist && !options.must_not_exist,
        _ => {}
    }
    match samsung_kv::Command::parse(sqe) {
        samsung_kv::Command::Store { option, .. } => {
            option & (store_option::IDEMPOTENT | store_option::UPDATE_ONLY) == 0
        }
        // Without the option the answer is the same whether the key was there or not.
        samsung_kv::Command::Delete { option, .. } => option & delete_option::CHECK_EXISTENCE == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(opcode: u8, option: u8) -> Sqe {
        Sqe { opcode, cdw11: u32::from(option) << 8 | 4, ..Sqe::default() }
    }

    #[test]
    fn what_reads_and_what_writes_the_same_again_may_be_repeated() {
        for opcode in [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0c, 0x14, 0x81, 0x90, 0xa1, 0xb3] {
            assert!(may_repeat(&entry(opcode, 0)), "{opcode:#04x}");
        }
        // Reclaim Unit Handle Status.
        assert!(may_repeat(&Sqe { opcode: 0x12, cdw10: 1, ..Sqe::default() }));
    }

    #[test]
    fn what_looks_at_what_was_there_or_adds_to_it_may_not() {
        // Delete answers whether the key was there; append, batch, iterators; what nobody knows.
        for opcode in [0x10, 0x83, 0x85, 0xb1, 0xb2, 0x12, 0x1d, 0x0d, 0xff] {
            assert!(!may_repeat(&entry(opcode, 0)), "{opcode:#04x}");
        }
        for (opcode, option) in [(0x01, 1), (0x01, 2), (0x81, 2), (0x81, 8), (0xa1, 1)] {
            assert!(!may_repeat(&entry(opcode, option)), "{opcode:#04x} with option {option}");
        }
        let mut fused = entry(0x05, 0);
        fused.set_fuse(Fuse::First);
        assert!(!may_repeat(&fused));
    }
}
