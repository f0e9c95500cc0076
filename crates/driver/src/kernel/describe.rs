//! Admin commands of a block device or file: answered from what the kernel says. What it does not say is
//! zero, which is "not reported" in Identify, and a status where a number would be needed.

use unvme_spec::admin::{Command, Identify};
use unvme_spec::identify::{
    IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, NamespaceIdDescriptor, NamespaceList, cns, csi,
    oncs, text, vwc, write_descriptors,
};
use unvme_spec::regs::VERSION_2_0;
use unvme_spec::{Nsid, Sqe, Status};
use zerocopy::IntoBytes;

use super::block::BlockFile;

/// The one namespace.
pub(super) const NSID: Nsid = Nsid(1);
/// NSATTR: the namespace is write protected.
const WRITE_PROTECTED: u8 = 1 << 0;
/// CNTRLTYPE: an I/O controller.
const IO_CONTROLLER: u8 = 1;
/// SQES and CQES: 64 and 16 bytes, required and at most.
const ENTRY_SIZES: (u8, u8) = (0x66, 0x44);

/// What an admin command returns, or the status it fails with.
pub(super) fn answer(file: &BlockFile, sqe: &Sqe) -> Result<Vec<u8>, Status> {
    match Command::parse(sqe) {
        Command::Identify(command) => identify(file, &command),
        Command::GetLogPage(_) => Err(Status::INVALID_LOG_PAGE.with_do_not_retry()),
        Command::GetFeatures(_) | Command::SetFeatures(_) => Err(Status::INVALID_FIELD.with_do_not_retry()),
        _ => Err(Status::INVALID_OPCODE.with_do_not_retry()),
    }
}

fn identify(file: &BlockFile, command: &Identify) -> Result<Vec<u8>, Status> {
    let of_the_namespace = || match command.nsid {
        NSID => Ok(()),
        _ => Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_do_not_retry()),
    };
    let of_blocks = || match command.csi {
        csi::NVM => Ok(()),
        _ => Err(Status::INVALID_FIELD.with_do_not_retry()),
    };
    match command.cns {
        cns::CONTROLLER => Ok(controller(file).as_bytes().to_vec()),
        cns::NAMESPACE => of_the_namespace().map(|()| namespace(file).as_bytes().to_vec()),
        cns::ACTIVE_NAMESPACES => Ok(list(command.nsid).as_bytes().to_vec()),
        cns::COMMAND_SET_ACTIVE_NAMESPACES => of_blocks().map(|()| list(command.nsid).as_bytes().to_vec()),
        cns::NAMESPACE_DESCRIPTORS => {
            of_the_namespace()?;
            let written = write_descriptors(&[NamespaceIdDescriptor::Csi(csi::NVM)]);
            written.map(|bytes| bytes.to_vec()).ok_or(Status::INTERNAL_ERROR)
        }
        // Of the NVM Command Set: no limits are stated, nothing is added.
        cns::COMMAND_SET_CONTROLLER => of_blocks().map(|()| vec![0; IDENTIFY_BYTES]),
        cns::COMMAND_SET_NAMESPACE => {
            of_the_namespace()?;
            of_blocks().map(|()| vec![0; IDENTIFY_BYTES])
        }
        _ => Err(Status::INVALID_FIELD.with_do_not_retry()),
    }
}

fn controller(file: &BlockFile) -> IdentifyController {
    let mut identify = IdentifyController::default();
    identify.ver = VERSION_2_0;
    identify.cntrltype = IO_CONTROLLER;
    (identify.sqes, identify.cqes) = ENTRY_SIZES;
    identify.nn = NSID.0;
    identify.oncs = oncs::COMPARE | oncs::DATASET_MANAGEMENT | oncs::WRITE_ZEROES | oncs::VERIFY;
    identify.vwc = vwc::PRESENT | vwc::FLUSH_ALL_SUPPORTED;
    text::write(&mut identify.sn, &file.serial);
    text::write(&mut identify.mn, &file.model);
    text::write(&mut identify.fr, &file.firmware);
    identify
}

fn namespace(file: &BlockFile) -> IdentifyNamespace {
    let mut identify = IdentifyNamespace::default();
    identify.nsze = file.blocks;
    identify.ncap = file.blocks;
    identify.nuse = file.blocks;
    identify.nsattr = if file.read_only.is_some() { WRITE_PROTECTED } else { 0 };
    identify.lbaf[0].lbads = file.block_shift() as u8;
    identify
}

/// The namespaces above `after`.
fn list(after: Nsid) -> NamespaceList {
    NamespaceList::from_ascending(Some(NSID).filter(|nsid| *nsid > after))
}

#[cfg(test)]
mod tests {
    use unvme_spec::admin;

    use super::*;

    fn file() -> BlockFile {
        BlockFile::of(std::fs::File::open("/dev/null").unwrap(), 77)
    }

    fn ask(cns: u8, nsid: u32) -> Result<Vec<u8>, Status> {
        let command = Identify { cns, nsid: Nsid(nsid), ..Identify::default() };
        answer(&file(), &Command::Identify(command).encode())
    }

    #[test]
    fn identify_returns_what_the_kernel_said_at_the_places_of_the_specification() {
        let data = ask(0x00, 1).unwrap();
        assert_eq!(data.len(), 4096);
        assert_eq!(data[0..8], [77, 0, 0, 0, 0, 0, 0, 0], "NSZE");
        assert_eq!(data[130], 9, "LBADS of format 0");
        let data = ask(0x01, 0).unwrap();
        assert_eq!(data[516..520], [1, 0, 0, 0], "NN");
        assert_eq!(data[520..522], [0x8d, 0], "ONCS: Compare, Dataset Management, Write Zeroes, Verify");
        assert_eq!(ask(0x02, 0).unwrap()[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(ask(0x02, 1).unwrap()[..8], [0; 8]);
        assert_eq!(ask(0x03, 1).unwrap()[..8], [4, 1, 0, 0, 0, 0, 0, 0], "CSI 00h and the end");
    }

    #[test]
    fn what_the_kernel_does_not_say_is_a_status_and_no_number() {
        let kind = |command: Command| answer(&file(), &command.encode()).unwrap_err().kind();
        assert_eq!(ask(0x00, 2).unwrap_err().kind(), Status::INVALID_NAMESPACE_OR_FORMAT);
        assert_eq!(ask(0x1c, 0).unwrap_err().kind(), Status::INVALID_FIELD);
        let health = admin::GetLogPage { lid: 2, dwords: 128, ..Default::default() };
        assert_eq!(kind(Command::GetLogPage(health)), Status::INVALID_LOG_PAGE);
        assert_eq!(kind(Command::FormatNvm(admin::FormatNvm::default())), Status::INVALID_OPCODE);
    }
}
