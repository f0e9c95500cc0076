//! Admin commands, typed. Each waits for its completion; an error status is [`Error::Status`].
//!
//! Errors not stated are those of [`Controller::admin`].

use unvme_spec::admin::{self, AttachmentOperation, Command, NamespaceOperation};
use unvme_spec::feature::fid;
use unvme_spec::identify::{
    ControllerList, DescriptorIter, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, NamespaceCreate,
    NamespaceIdDescriptor, NamespaceList, cns, csi,
};
use unvme_spec::{Cid, Nsid, Qid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use crate::command::{Completion, Payload, command_name};
use crate::{Controller, Error};

/// A log page, or a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    /// Namespace, for pages with a scope of one; otherwise [`Nsid::NONE`] or [`Nsid::ALL`].
    pub nsid: Nsid,
    /// Log page identifier, see [`unvme_spec::log_page::lid`].
    pub lid: u8,
    /// Log specific parameter, 7 bits.
    pub lsp: u8,
    /// Log specific identifier.
    pub lsi: u16,
    /// Command set identifier.
    pub csi: u8,
    /// First byte, a multiple of 4.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: usize,
    /// Leave the asynchronous event that belongs to the page as it is.
    pub retain_async_event: bool,
}

/// What Get Features returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureValue {
    /// Dword 0 of the completion.
    pub value: u32,
    /// The data structure, for features that have one.
    pub data: Vec<u8>,
}

impl Controller {
    /// Sends a command whose success is the only good status.
    fn succeed(&self, sqe: Sqe, payload: Option<Payload>) -> Result<Completion, Error> {
        let completion = self.admin(sqe, payload)?;
        Error::check(|| command_name(&sqe), completion.status)?;
        Ok(completion)
    }

    /// Sends any admin command that returns `bytes` of data, a vendor's for instance. Success is the only
    /// good status. Errors: [`Error::Status`].
    pub fn admin_receive(&self, sqe: Sqe, bytes: usize) -> Result<(Completion, Vec<u8>), Error> {
        let mut completion = self.succeed(sqe, Some(Payload::whole(self.alloc(bytes)?)))?;
        let data = completion.buf.take().map(|buf| buf.to_vec()).unwrap_or_default();
        Ok((completion, data))
    }

    /// Sends any admin command with data for the controller, or with none. Success is the only good status.
    /// Errors: [`Error::Status`].
    pub fn admin_send(&self, sqe: Sqe, data: &[u8]) -> Result<Completion, Error> {
        if data.is_empty() {
            return self.succeed(sqe, None);
        }
        let mut buf = self.alloc(data.len())?;
        buf.write(0, data);
        self.succeed(sqe, Some(Payload::whole(buf)))
    }

    /// Identify: 4096 bytes. Errors: [`Error::Status`].
    pub fn identify(&self, command: admin::Identify) -> Result<Vec<u8>, Error> {
        Ok(self.admin_receive(Command::Identify(command).encode(), IDENTIFY_BYTES)?.1)
    }

    /// Identify, as a structure of [`unvme_spec::identify`]. Errors: [`Error::Status`];
    /// [`Error::InvalidArgument`] when `T` is not 4096 bytes.
    pub fn identify_as<T: FromBytes>(&self, command: admin::Identify) -> Result<T, Error> {
        T::read_from_bytes(&self.identify(command)?).map_err(|_| {
            Error::InvalidArgument(format!(
                "a structure of {} bytes: Identify returns {IDENTIFY_BYTES}",
                size_of::<T>()
            ))
        })
    }

    /// Identify Controller (CNS 01h), read anew. Errors: [`Error::Status`].
    pub fn identify_controller(&self) -> Result<IdentifyController, Error> {
        self.identify_as(admin::Identify { cns: cns::CONTROLLER, ..Default::default() })
    }

    /// Identify Namespace of the NVM Command Set (CNS 00h). Errors: [`Error::Status`].
    pub fn identify_namespace(&self, nsid: Nsid) -> Result<IdentifyNamespace, Error> {
        self.identify_as(admin::Identify { nsid, cns: cns::NAMESPACE, ..Default::default() })
    }

    /// Identifiers of the active namespaces, ascending (CNS 02h). Errors: [`Error::Status`];
    /// [`Error::Protocol`] for a list that does not ascend.
    pub fn active_namespaces(&self) -> Result<Vec<Nsid>, Error> {
        self.namespace_list(admin::Identify { cns: cns::ACTIVE_NAMESPACES, ..Default::default() })
    }

    /// Identifiers of the namespaces that exist in the subsystem, attached or not, ascending (CNS 10h).
    /// Errors: as [`Controller::active_namespaces`].
    pub fn allocated_namespaces(&self) -> Result<Vec<Nsid>, Error> {
        self.namespace_list(admin::Identify { cns: cns::ALLOCATED_NAMESPACES, ..Default::default() })
    }

    /// Identifiers of the active namespaces of one I/O command set, ascending (CNS 07h). A controller that
    /// does not know this list, such as Linux 6.12's target, is asked namespace by namespace. Errors: as
    /// [`Controller::active_namespaces`].
    pub fn command_set_namespaces(&self, csi: u8) -> Result<Vec<Nsid>, Error> {
        let cns = cns::COMMAND_SET_ACTIVE_NAMESPACES;
        match self.namespace_list(admin::Identify { cns, csi, ..Default::default() }) {
            Err(Error::Status { status, .. }) if status.kind() == Status::INVALID_FIELD => {}
            other => return other,
        }
        let mut of_the_set = Vec::new();
        for nsid in self.active_namespaces()? {
            if self.namespace_command_set(nsid)? == csi {
                of_the_set.push(nsid);
            }
        }
        Ok(of_the_set)
    }

    /// Reads a namespace list to its end: each command returns the identifiers above the one it names.
    fn namespace_list(&self, mut command: admin::Identify) -> Result<Vec<Nsid>, Error> {
        let mut all = Vec::new();
        loop {
            let list: NamespaceList = self.identify_as(command)?;
            let before = all.len();
            for nsid in list.iter() {
                if nsid <= command.nsid {
                    return Err(Error::Protocol(format!(
                        "namespace list: {nsid} after {}, where identifiers ascend",
                        command.nsid
                    )));
                }
                command.nsid = nsid;
                all.push(nsid);
            }
            if all.len() - before < NamespaceList::CAPACITY {
                return Ok(all);
            }
        }
    }

    /// Namespace Identification Descriptors (CNS 03h), to be read with [`DescriptorIter`]. Errors:
    /// [`Error::Status`].
    fn namespace_descriptors(&self, nsid: Nsid) -> Result<Vec<u8>, Error> {
        self.identify(admin::Identify { nsid, cns: cns::NAMESPACE_DESCRIPTORS, ..Default::default() })
    }

    /// Command set of a namespace, see [`unvme_spec::identify::csi`]. A controller that does not say, because
    /// it is older than the descriptor, has the NVM Command Set alone. Errors: [`Error::Status`].
    pub fn namespace_command_set(&self, nsid: Nsid) -> Result<u8, Error> {
        let bytes = match self.namespace_descriptors(nsid) {
            Err(Error::Status { status, .. }) if status.kind() == Status::INVALID_FIELD => {
                return Ok(csi::NVM);
            }
            other => other?,
        };
        let found = DescriptorIter::new(&bytes).find_map(|descriptor| match descriptor {
            NamespaceIdDescriptor::Csi(csi) => Some(csi),
            _ => None,
        });
        Ok(found.unwrap_or(csi::NVM))
    }

    /// Identifiers of the subsystem's controllers (CNS 13h), or of those a namespace is attached to (CNS
    /// 12h). Errors: [`Error::Status`]; [`Error::Protocol`] for a list that claims more entries than it has.
    pub fn controllers(&self, nsid: Option<Nsid>) -> Result<Vec<u16>, Error> {
        let list: ControllerList = self.identify_as(admin::Identify {
            nsid: nsid.unwrap_or(Nsid::NONE),
            cns: if nsid.is_some() { cns::ATTACHED_CONTROLLERS } else { cns::CONTROLLERS },
            ..Default::default()
        })?;
        let identifiers = list
            .identifiers()
            .ok_or_else(|| Error::Protocol(format!("controller list with a count of {}", list.count)))?;
        Ok(identifiers.to_vec())
    }

    /// Get Log Page, in as many commands as the transfer limit asks for. With more than one, all but the last
    /// retain the page's asynchronous event. Errors: [`Error::Status`]; [`Error::InvalidArgument`] for an
    /// offset that is not a multiple of 4 or no bytes at all.
    pub fn get_log(&self, request: &LogRequest) -> Result<Vec<u8>, Error> {
        if !request.offset.is_multiple_of(4) || request.bytes == 0 {
            return Err(Error::InvalidArgument(format!(
                "{} bytes of log page {:#04x} from {}: at least one byte from a multiple of 4 is expected",
                request.bytes, request.lid, request.offset
            )));
        }
        let piece_max = self.transfer_bytes_max() & !3;
        let mut log = Vec::new();
        while log.len() < request.bytes {
            let left = request.bytes - log.len();
            let bytes = left.next_multiple_of(4).min(piece_max);
            let command = admin::GetLogPage {
                nsid: request.nsid,
                lid: request.lid,
                lsp: request.lsp,
                retain_async_event: request.retain_async_event || left > bytes,
                dwords: bytes as u64 / 4,
                lsi: request.lsi,
                offset: request.offset + log.len() as u64,
                csi: request.csi,
                ..Default::default()
            };
            log.extend(self.admin_receive(Command::GetLogPage(command).encode(), bytes)?.1);
        }
        log.truncate(request.bytes);
        Ok(log)
    }

    /// Get Log Page into a structure of its own; `bytes` of the request is not looked at. Errors: as
    /// [`Controller::get_log`].
    pub fn get_log_as<T: FromBytes>(&self, request: LogRequest) -> Result<T, Error> {
        let log = self.get_log(&LogRequest { bytes: size_of::<T>(), ..request })?;
        T::read_from_bytes(&log)
            .map_err(|_| Error::Protocol(format!("log page {:#04x}: its size", request.lid)))
    }

    /// Get Features. `data_bytes` is the size of the feature's data structure, 0 when it has none. Errors:
    /// [`Error::Status`].
    pub fn get_feature(&self, command: admin::GetFeatures, data_bytes: usize) -> Result<FeatureValue, Error> {
        let sqe = Command::GetFeatures(command).encode();
        let (completion, data) = if data_bytes == 0 {
            (self.succeed(sqe, None)?, Vec::new())
        } else {
            self.admin_receive(sqe, data_bytes)?
        };
        Ok(FeatureValue { value: completion.result as u32, data })
    }

    /// Set Features, with the feature's data structure if it has one. Returns dword 0 of the completion.
    /// Errors: [`Error::Status`].
    pub fn set_feature(&self, command: admin::SetFeatures, data: &[u8]) -> Result<u32, Error> {
        let sqe = Command::SetFeatures(command).encode();
        let result = self.admin_send(sqe, data)?.result as u32;
        if command.fid == fid::ARBITRATION {
            self.note_arbitration(command.cdw11);
        }
        Ok(result)
    }

    /// Format NVM: destroys all data of the namespace. Errors: [`Error::Status`].
    pub fn format(&self, command: admin::FormatNvm) -> Result<(), Error> {
        self.succeed(Command::FormatNvm(command).encode(), None)?;
        Ok(())
    }

    /// Firmware Image Download of a whole image, in pieces of the controller's update granularity. Errors:
    /// [`Error::Status`]; [`Error::InvalidArgument`] for an image that is empty, not whole dwords, or beyond
    /// 16 GiB.
    pub fn firmware_download(&self, image: &[u8]) -> Result<(), Error> {
        if image.is_empty() || !image.len().is_multiple_of(4) || u32::try_from(image.len() / 4).is_err() {
            return Err(Error::InvalidArgument(format!(
                "a firmware image of {} bytes: a multiple of 4, and at least 4, is expected",
                image.len()
            )));
        }
        let (transfer_bytes_max, granule_bytes) = (self.transfer_bytes_max(), self.firmware_piece_bytes());
        let granules = (transfer_bytes_max / granule_bytes).max(1);
        let piece_bytes = (granules * granule_bytes).min(transfer_bytes_max);
        for (index, piece) in image.chunks(piece_bytes).enumerate() {
            let command = admin::FirmwareDownload {
                dwords: piece.len() as u64 / 4,
                offset_dwords: (index * piece_bytes / 4) as u32,
            };
            self.admin_send(Command::FirmwareDownload(command).encode(), piece)?;
        }
        Ok(())
    }

    /// Firmware Commit. Returns success, or which reset the activation still needs. Errors: [`Error::Status`]
    /// for every other status.
    pub fn firmware_commit(&self, command: admin::FirmwareCommit) -> Result<Status, Error> {
        let sqe = Command::FirmwareCommit(command).encode();
        let status = self.admin(sqe, None)?.status;
        match status.kind() {
            Status::SUCCESS
            | Status::FIRMWARE_NEEDS_CONVENTIONAL_RESET
            | Status::FIRMWARE_NEEDS_SUBSYSTEM_RESET
            | Status::FIRMWARE_NEEDS_CONTROLLER_RESET => Ok(status),
            _ => Err(Error::Status { what: command_name(&sqe), status }),
        }
    }

    /// Creates a namespace of the command set `csi`; it has to be attached before it can be used. Errors:
    /// [`Error::Status`].
    pub fn create_namespace(&self, request: &NamespaceCreate, csi: u8) -> Result<Nsid, Error> {
        let operation = NamespaceOperation::Create;
        let command = admin::NamespaceManagement { nsid: Nsid::NONE, operation, csi };
        let completion =
            self.admin_send(Command::NamespaceManagement(command).encode(), request.as_bytes())?;
        Ok(Nsid(completion.result as u32))
    }

    /// Deletes a namespace, or all of them with [`Nsid::ALL`], and their data. Errors: [`Error::Status`].
    pub fn delete_namespace(&self, nsid: Nsid) -> Result<(), Error> {
        let command = admin::NamespaceManagement { nsid, operation: NamespaceOperation::Delete, csi: 0 };
        self.succeed(Command::NamespaceManagement(command).encode(), None)?;
        Ok(())
    }

    /// Attaches a namespace to controllers. Errors: [`Error::Status`]; [`Error::InvalidArgument`] for more
    /// controllers than a list holds.
    pub fn attach_namespace(&self, nsid: Nsid, controllers: &[u16]) -> Result<(), Error> {
        self.attachment(nsid, AttachmentOperation::Attach, controllers)
    }

    /// Detaches a namespace from controllers. Errors: as [`Controller::attach_namespace`].
    pub fn detach_namespace(&self, nsid: Nsid, controllers: &[u16]) -> Result<(), Error> {
        self.attachment(nsid, AttachmentOperation::Detach, controllers)
    }

    fn attachment(
        &self,
        nsid: Nsid,
        operation: AttachmentOperation,
        controllers: &[u16],
    ) -> Result<(), Error> {
        if controllers.len() > ControllerList::CAPACITY {
            return Err(Error::InvalidArgument(format!(
                "{} controllers: a list holds {}",
                controllers.len(),
                ControllerList::CAPACITY
            )));
        }
        let list = ControllerList::from_ascending(controllers.iter().copied());
        let command = admin::NamespaceAttachment { nsid, operation };
        self.admin_send(Command::NamespaceAttachment(command).encode(), list.as_bytes())?;
        Ok(())
    }

    /// Abort. True when the command was aborted before the controller started on it or while it could still
    /// stop. Errors: [`Error::Status`].
    pub fn abort(&self, sqid: Qid, cid: Cid) -> Result<bool, Error> {
        let completion = self.succeed(Command::Abort { sqid, cid }.encode(), None)?;
        // Dword 0 bit 0: 0 aborted, 1 not aborted (Base 5.1.1.1).
        Ok(completion.result & 1 == 0)
    }
}
