//! Any 64 bytes are a submission queue entry. Reading one never panics, and writing what was read and reading that
//! again gives the same command: parse loses nothing that the command holds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unvme_spec::{Cqe, Nsid, Sqe, admin, nvm, sgl};
use zerocopy::FromBytes;

fuzz_target!(|data: &[u8]| {
    let Ok((sqe, rest)) = Sqe::read_from_prefix(data) else { return };

    let command = nvm::Command::parse(&sqe);
    assert_eq!(nvm::Command::parse(&command.encode(Nsid(sqe.nsid))), command);
    if let nvm::Command::Read(range, _) | nvm::Command::Write(range, _) = command {
        assert!((1..=nvm::BLOCKS_PER_COMMAND_MAX).contains(&range.blocks));
        // The end of a range that leaves 64 bits is `None`; it must not wrap to a small number.
        assert!(range.end().is_none_or(|end| end > range.start.0));
    }

    let command = admin::Command::parse(&sqe);
    assert_eq!(admin::Command::parse(&command.encode()), command);

    assert_eq!(sgl::Descriptor::from_dptr(sqe.dptr).to_dptr(), sqe.dptr);

    if let Ok((mut cqe, _)) = Cqe::read_from_prefix(rest) {
        let (status, phase, raw) = (cqe.status(), cqe.phase(), cqe.status_phase);
        cqe.set_status(status, phase);
        assert_eq!(cqe.status_phase, raw);
        let _ = (status.code_type(), status.name(), status.to_string());
    }
});
