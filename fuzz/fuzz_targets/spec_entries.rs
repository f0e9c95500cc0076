//! Any 64 bytes are a submission queue entry. Reading one never panics, and writing what was read and reading
//! that again gives the same command: parse loses nothing that the command holds. What follows them is read
//! as a completion, and as what List, Iterate Read and Batch have in their buffers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unvme_spec::samsung_kv::{BatchReader, IterateKeys, IteratePairs, KeyspaceField, Target};
use unvme_spec::{Cqe, Nsid, Sqe, admin, kv, nvm, samsung_kv, sgl};
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

    let command = kv::Command::parse(&sqe);
    assert_eq!(kv::Command::parse(&command.encode(Nsid(sqe.nsid))), command);
    if let Some(key) = kv::Command::key_of(&sqe) {
        assert!(key.as_bytes().is_none_or(|bytes| bytes.len() == usize::from(key.length())));
    }

    let command = samsung_kv::Command::parse(&sqe);
    for field in [KeyspaceField::Cdw3, KeyspaceField::Nsid] {
        let target = Target::parse(&sqe, field);
        let again = command.encode(target, field);
        assert_eq!((samsung_kv::Command::parse(&again), Target::parse(&again, field)), (command, target));
    }

    let listed: usize = kv::ListReader::new(rest).map(<[u8]>::len).sum();
    let iterated: usize = IterateKeys::new(rest).map(<[u8]>::len).sum();
    let paired: usize = IteratePairs::new(rest).map(|pair| pair.key.len() + pair.value.len()).sum();
    assert!(listed <= rest.len() && iterated <= rest.len() && paired <= rest.len());
    if let Some(batch) = BatchReader::new(rest, sqe.cdw11 as u8) {
        for (command, at) in batch.flatten() {
            assert_eq!(&rest[at..at + command.value.len()], command.value);
        }
    }

    assert_eq!(sgl::Descriptor::from_dptr(sqe.dptr).to_dptr(), sqe.dptr);

    if let Ok((mut cqe, _)) = Cqe::read_from_prefix(rest) {
        let (status, phase, raw) = (cqe.status(), cqe.phase(), cqe.status_phase);
        cqe.set_status(status, phase);
        assert_eq!(cqe.status_phase, raw);
        let _ = (status.code_type(), status.name(), status.to_string());
    }
});
