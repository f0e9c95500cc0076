//! What a device says about itself, its format, and commands that nobody else has a name for.

use unvme::Op;
use unvme::worker::Data;
use unvme_driver::{LogRequest, Payload};
use unvme_spec::admin::{FormatNvm, SecureErase};
use unvme_spec::command::{Changes, CommandSet, Direction};
use unvme_spec::samsung_kv::{self, IterateType};
use unvme_spec::samsung_log::{WafLog, lid};
use unvme_spec::{Nsid, Sqe, Status};

use super::{Medium, Member, OpError, QueueChoice};

/// Bytes of a sector of a device that has pairs instead of blocks.
const SECTOR_BYTES: u32 = 512;
/// The whole of a device, as [`Member::used`] counts it on a key-value device.
const WHOLE: u128 = 10_000;

/// What a raw command ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawOutcome {
    /// What the device said.
    pub status: Status,
    /// Dwords 0 and 1 of the completion.
    pub result: u64,
}

impl Member {
    /// The namespace that is used.
    pub fn nsid(&self) -> Nsid {
        self.medium.nsid()
    }

    /// Size in bytes.
    pub fn total_bytes(&self) -> u64 {
        match &self.medium {
            Medium::Pairs(namespace) => namespace.bytes(),
            Medium::Blocks(namespace) => namespace.blocks() * u64::from(namespace.block_bytes()),
        }
    }

    /// How much of it is used, asked anew: hundredths of a percent, 0 to 10000, of a key-value device; bytes
    /// of a block device.
    ///
    /// # Errors
    /// What the device says.
    pub fn used(&self) -> Result<u64, OpError> {
        let controller = self.device.controller();
        match &self.medium {
            Medium::Pairs(namespace) if namespace.has_standard() => {
                let identify = controller.identify_kv_namespace(namespace.nsid())?;
                Ok(share(identify.nuse, identify.nsze))
            }
            Medium::Pairs(namespace) => {
                let identify = controller.identify_namespace(namespace.nsid())?;
                Ok(share(identify.nuse, identify.nsze))
            }
            Medium::Blocks(namespace) => {
                let identify = controller.identify_namespace(namespace.nsid())?;
                Ok(identify.nuse.saturating_mul(namespace.block_bytes().into()))
            }
        }
    }

    /// Write amplification in tenths: bytes written to the media against those written by the host.
    ///
    /// # Errors
    /// [`OpError::Status`] when the device has no log page CAh.
    pub fn waf_tenths(&self) -> Result<u32, OpError> {
        let request = LogRequest { nsid: self.nsid(), lid: lid::WAF, ..LogRequest::default() };
        let log: WafLog = self.device.controller().get_log_as(request)?;
        Ok(log.waf_tenths)
    }

    /// Bytes of a sector: of a logical block, or 512 on a key-value device.
    pub fn sector_bytes(&self) -> u32 {
        match &self.medium {
            Medium::Pairs(_) => SECTOR_BYTES,
            Medium::Blocks(namespace) => namespace.block_bytes(),
        }
    }

    /// Size in sectors.
    pub fn sectors(&self) -> u64 {
        self.total_bytes() / u64::from(self.sector_bytes())
    }

    /// Reads the beginning of a log page.
    ///
    /// # Errors
    /// [`OpError::Argument`] when `out` is empty or its length no multiple of 4; what the device says: `out`
    /// is unchanged then.
    pub fn log_page(&self, id: u8, out: &mut [u8]) -> Result<(), OpError> {
        if out.is_empty() || !out.len().is_multiple_of(4) {
            let reason = format!("{} bytes of log page {id:#04x}: a multiple of 4 is expected", out.len());
            return Err(OpError::Argument(reason));
        }
        let request = LogRequest { nsid: self.nsid(), lid: id, bytes: out.len(), ..LogRequest::default() };
        let mut log = self.device.controller().get_log(&request);
        if let Err(unvme_driver::Error::Status { status, .. }) = &log
            && status.kind() == Status::INVALID_FIELD
        {
            // Pages of the whole controller take no namespace (Base 5.1.12).
            log = self.device.controller().get_log(&LogRequest { nsid: Nsid::ALL, ..request });
        }
        out.copy_from_slice(&log?);
        Ok(())
    }

    /// Formats the namespace as it is formatted, and waits for it. `erase_user_data` is SES 1 (User Data
    /// Erase), otherwise
    /// 0. What the cache had of the device is dropped.
    ///
    /// # Errors
    /// What the device says.
    pub fn format(&self, erase_user_data: bool) -> Result<(), OpError> {
        let secure_erase = if erase_user_data { SecureErase::UserData } else { SecureErase::None };
        let controller = self.device.controller();
        let lbaf = match &self.medium {
            Medium::Pairs(namespace) if namespace.has_standard() => {
                controller.identify_kv_namespace(namespace.nsid())?.kvfc & 0xf
            }
            _ => controller.identify_namespace(self.nsid())?.flbas & 0xf,
        };
        let format = FormatNvm { nsid: self.nsid(), lbaf, secure_erase, ..FormatNvm::default() };
        Ok(self.memory.sweeping(|| controller.format(format))?)
    }

    /// Sends any admin command and waits for it. Which way `data` goes is in bits 1:0 of the opcode; there is
    /// none when it is empty.
    ///
    /// # Errors
    /// [`OpError::Driver`] when the device does not answer; a status is not an error here.
    pub fn raw_admin(&self, sqe: Sqe, data: &mut [u8]) -> Result<RawOutcome, OpError> {
        let controller = self.device.controller();
        let direction = Direction::by_opcode(&sqe);
        let mut payload = None;
        if !data.is_empty() {
            let mut buf = controller.alloc(data.len())?;
            if direction.is_to_controller() {
                buf.write(0, data);
            }
            payload = Some(Payload::whole(buf));
        }
        let facts = CommandSet::Admin.facts(sqe.opcode);
        let completion = if facts.is_some_and(|facts| facts.changes == Changes::Nothing) {
            controller.admin(sqe, payload)?
        } else {
            self.memory.sweeping(|| controller.admin(sqe, payload))?
        };
        if let Some(buf) = completion.buf.filter(|_| direction.is_to_host()) {
            buf.read(0, data);
        }
        Ok(RawOutcome { status: completion.status, result: completion.result })
    }

    /// As [`Member::raw_admin`], on an I/O queue.
    ///
    /// # Errors
    /// [`OpError::SlabExhausted`], [`OpError::WrongQueue`], [`OpError::Closed`], [`OpError::Driver`]; a
    /// status is not an error here.
    pub fn raw_io(&self, queue: QueueChoice, sqe: Sqe, data: &mut [u8]) -> Result<RawOutcome, OpError> {
        let direction = Direction::by_opcode(&sqe);
        let out = if direction.is_to_controller() { Data::Out(data) } else { Data::None };
        let command = self.command(queue, Op::Entry(&sqe, data.len()), &mut Data::None)?;
        let load = self.load(command, out)?;
        let lent = load.buf.map_or(Data::None, Data::Lent);
        let call = || self.wait(queue, command, lent);
        // Nobody knows what a raw command does to which pairs. An iterator that deletes goes on doing it.
        let completion = match samsung_kv::Command::parse(&sqe) {
            samsung_kv::Command::IterateOpen { kind: Ok(IterateType::KeyDelete), .. } => {
                self.memory.sweeping_on(call)?
            }
            samsung_kv::Command::IterateClose { iterator } => {
                let completion = self.memory.sweeping(call)?;
                if completion.status.is_success() {
                    self.memory.closed_iterator(iterator);
                }
                completion
            }
            _ => self.memory.sweeping(call)?,
        };
        if let Some(buf) = completion.buf.filter(|_| direction.is_to_host()) {
            buf.read(0, data);
        }
        Ok(RawOutcome { status: completion.status, result: completion.result })
    }
}

/// `part` of `whole` in hundredths of a percent, rounded.
fn share(part: u64, whole: u64) -> u64 {
    let (part, whole) = (u128::from(part), u128::from(whole));
    // At most 10000, unless the device says that it has more in use than it is large.
    part.saturating_mul(WHOLE).saturating_add(whole / 2).checked_div(whole).unwrap_or(0) as u64
}
