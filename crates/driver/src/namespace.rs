//! A namespace of the NVM Command Set: its size, and commands that are checked before they are sent.

use unvme_spec::directive::Directive;
use unvme_spec::fdp::{
    IoManagementReceive, IoManagementSend, PlacementId, ReceiveOperation, RuhStatus, RuhStatusHeader,
    SendOperation,
};
use unvme_spec::identify::{NvmControllerIdentify, cns, csi};
use unvme_spec::nvm::{AccessFlags, BLOCKS_PER_COMMAND_MAX, BlockRange, Command, DsmRange};
use unvme_spec::{Fuse, Lba, Nsid, Sqe, Status, admin};
use zerocopy::IntoBytes;

use crate::{Controller, DmaBuf, Error, Payload};

/// Most ranges of one Dataset Management command: NR is a zero-based 8-bit field.
pub const DSM_RANGES_MAX: usize = 256;

/// How a write is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Access options.
    pub flags: AccessFlags,
    /// Where the data shall go, on a namespace with Flexible Data Placement: the write carries the Data
    /// Placement directive. `None` leaves it to the controller, which takes the namespace's first placement
    /// handle.
    pub placement: Option<PlacementId>,
}

impl WriteOptions {
    /// A write to `placement`, and nothing else.
    pub const fn placed(placement: PlacementId) -> Self {
        Self {
            flags: AccessFlags { force_unit_access: false, limited_retry: false, protection_info: 0 },
            placement: Some(placement),
        }
    }
}

impl From<AccessFlags> for WriteOptions {
    #[inline(always)]
    fn from(flags: AccessFlags) -> Self {
        Self { flags, placement: None }
    }
}

/// What the driver knows of a namespace. A value: it does not follow a format or a resize; open it again
/// after one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    nsid: Nsid,
    csi: u8,
    block_bytes: u32,
    block_shift: u32,
    blocks: u64,
    transfer_blocks_max: u32,
    limits: Limits,
}

/// Most blocks of the commands that move no data to the host (NVM 4.1.5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    verify: u32,
    write_zeroes: u32,
    write_uncorrectable: u32,
}

impl Controller {
    /// Identifiers of the active namespaces with blocks, those that [`Namespace::open`] opens, ascending.
    /// Errors: as [`Controller::active_namespaces`].
    pub fn block_namespaces(&self) -> Result<Vec<Nsid>, Error> {
        self.command_set_namespaces(csi::NVM)
    }
}

impl Namespace {
    /// Reads what there is to know about an active namespace. Errors: [`Error::Unsupported`] when the
    /// namespace is not active, not of the NVM Command Set, or formatted with metadata; [`Error::Status`] and
    /// those of [`Controller::admin`].
    pub fn open(controller: &Controller, nsid: Nsid) -> Result<Self, Error> {
        let set = controller.namespace_command_set(nsid)?;
        if set != csi::NVM {
            return Err(Error::Unsupported(format!(
                "namespace {nsid} has command set {set:#04x}, not the NVM Command Set"
            )));
        }
        let identify = controller.identify_namespace(nsid)?;
        let format = identify.format();
        let Some(block_bytes) = format.block_bytes() else {
            return Err(Error::Unsupported(format!("namespace {nsid} is not active")));
        };
        if identify.nsze == 0 {
            return Err(Error::Unsupported(format!("namespace {nsid} is not active")));
        }
        if format.ms != 0 {
            return Err(Error::Unsupported(format!(
                "namespace {nsid} has {} bytes of metadata per block; format it without",
                format.ms
            )));
        }
        let transfer_blocks = (controller.transfer_bytes_max() / block_bytes as usize) as u64;
        let page_bytes = 4096u64 << controller.capabilities().mpsmin();
        Ok(Self {
            nsid,
            csi: set,
            block_bytes,
            block_shift: block_bytes.trailing_zeros(),
            blocks: identify.nsze,
            transfer_blocks_max: transfer_blocks.min(BLOCKS_PER_COMMAND_MAX.into()) as u32,
            limits: Limits::read(controller, page_bytes / u64::from(block_bytes).min(page_bytes))?,
        })
    }

    /// Namespace identifier.
    pub fn nsid(&self) -> Nsid {
        self.nsid
    }

    /// Command set, see [`unvme_spec::identify::csi`].
    pub fn command_set(&self) -> u8 {
        self.csi
    }

    /// Bytes of a logical block, a power of two.
    #[inline]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Size in logical blocks.
    #[inline]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Most blocks one command can transfer.
    #[inline]
    pub fn transfer_blocks_max(&self) -> u32 {
        self.transfer_blocks_max
    }

    /// Most blocks one Write Zeroes command takes.
    pub fn write_zeroes_blocks_max(&self) -> u32 {
        self.limits.write_zeroes
    }

    /// Most blocks one Write Uncorrectable command takes.
    pub fn write_uncorrectable_blocks_max(&self) -> u32 {
        self.limits.write_uncorrectable
    }

    /// Most blocks one Verify command takes.
    pub fn verify_blocks_max(&self) -> u32 {
        self.limits.verify
    }

    /// Bytes of `range`.
    #[inline(always)]
    pub fn bytes(&self, range: BlockRange) -> usize {
        (range.blocks as usize) << self.block_shift
    }

    /// The blocks of `bytes` bytes at byte `offset` of the namespace. Errors: [`Error::InvalidArgument`] when
    /// either is not a multiple of the block size, or there are more than 65536 blocks.
    #[inline]
    pub fn range_of_bytes(&self, offset: u64, bytes: usize) -> Result<BlockRange, Error> {
        let mask = u64::from(self.block_bytes) - 1;
        let blocks = bytes as u64 >> self.block_shift;
        if (offset | bytes as u64) & mask != 0 || blocks > u64::from(BLOCKS_PER_COMMAND_MAX) {
            return Err(self.misaligned(offset, bytes));
        }
        Ok(BlockRange::new(Lba(offset >> self.block_shift), blocks as u32))
    }

    #[cold]
    fn misaligned(&self, offset: u64, bytes: usize) -> Error {
        Error::InvalidArgument(format!(
            "{bytes} bytes at {offset}: whole blocks of {} bytes are expected, at most {BLOCKS_PER_COMMAND_MAX}",
            self.block_bytes
        ))
    }

    #[inline(always)]
    fn check(&self, range: BlockRange, blocks_max: u32) -> Result<(), Error> {
        let fits = range.end().is_some_and(|end| end <= self.blocks);
        if fits && range.blocks > 0 && range.blocks <= blocks_max {
            return Ok(());
        }
        Err(self.refuse(range, blocks_max))
    }

    #[cold]
    fn refuse(&self, range: BlockRange, blocks_max: u32) -> Error {
        Error::InvalidArgument(format!(
            "{} blocks from block {} of namespace {}: it has {} blocks, and this command takes 1 to {blocks_max}",
            range.blocks, range.start, self.nsid, self.blocks
        ))
    }

    /// Read. Errors: [`Error::InvalidArgument`] when the blocks are not all there, or are too many for one
    /// transfer.
    #[inline(always)]
    pub fn read(&self, range: BlockRange, flags: AccessFlags) -> Result<Sqe, Error> {
        self.check(range, self.transfer_blocks_max)?;
        Ok(Command::Read(range, flags).encode(self.nsid))
    }

    /// Write, with [`AccessFlags`] or [`WriteOptions`].
    ///
    /// Whether the namespace has the placement identifier is not looked at: a controller takes its first
    /// placement handle for one that it has not, and records an event. [`Namespace::ruh_status`] tells which
    /// there are. Errors: as [`Namespace::read`].
    #[inline(always)]
    pub fn write(&self, range: BlockRange, options: impl Into<WriteOptions>) -> Result<Sqe, Error> {
        let options = options.into();
        self.check(range, self.transfer_blocks_max)?;
        let mut sqe = Command::Write(range, options.flags).encode(self.nsid);
        if let Some(placement) = options.placement {
            sqe.set_directive(Directive::placement(placement));
        }
        Ok(sqe)
    }

    /// Compare with the buffer; a difference is [`Status::COMPARE_FAILURE`]. Errors: as [`Namespace::read`].
    pub fn compare(&self, range: BlockRange, flags: AccessFlags) -> Result<Sqe, Error> {
        self.check(range, self.transfer_blocks_max)?;
        Ok(Command::Compare(range, flags).encode(self.nsid))
    }

    /// Fused Compare and Write (Base 3.4.2): submit both, in this order and with nothing in between, then
    /// ring. They complete one by one. Errors: as [`Namespace::read`].
    pub fn compare_and_write(&self, range: BlockRange, flags: AccessFlags) -> Result<[Sqe; 2], Error> {
        let (mut compare, mut write) = (self.compare(range, flags)?, self.write(range, flags)?);
        compare.set_fuse(Fuse::First);
        write.set_fuse(Fuse::Second);
        Ok([compare, write])
    }

    /// Flush: everything written before is on the media.
    pub fn flush(&self) -> Sqe {
        Command::Flush.encode(self.nsid)
    }

    /// Verify: the blocks can be read. Errors: [`Error::InvalidArgument`] when the blocks are not all there,
    /// or are more than the controller takes.
    pub fn verify(&self, range: BlockRange, flags: AccessFlags) -> Result<Sqe, Error> {
        self.check(range, self.limits.verify)?;
        Ok(Command::Verify(range, flags).encode(self.nsid))
    }

    /// Write Zeroes; with `deallocate` the controller should give the blocks back. Errors: as
    /// [`Namespace::verify`].
    pub fn write_zeroes(
        &self,
        range: BlockRange,
        flags: AccessFlags,
        deallocate: bool,
    ) -> Result<Sqe, Error> {
        self.check(range, self.limits.write_zeroes)?;
        Ok(Command::WriteZeroes { range, flags, deallocate }.encode(self.nsid))
    }

    /// Write Uncorrectable: reading the blocks fails until they are written. Errors: as
    /// [`Namespace::verify`].
    pub fn write_uncorrectable(&self, range: BlockRange) -> Result<Sqe, Error> {
        self.check(range, self.limits.write_uncorrectable)?;
        Ok(Command::WriteUncorrectable(range).encode(self.nsid))
    }

    /// Dataset Management, Deallocate: writes the ranges into `buf`, which goes with the command, and returns
    /// how many bytes of it the command transfers. Errors: [`Error::InvalidArgument`] for no ranges, more
    /// than [`DSM_RANGES_MAX`] or than `buf` holds, or a range that is not all there.
    pub fn deallocate(&self, ranges: &[BlockRange], buf: &mut DmaBuf) -> Result<(Sqe, usize), Error> {
        let bytes = size_of_val(ranges) / size_of::<BlockRange>() * size_of::<DsmRange>();
        if ranges.is_empty() || ranges.len() > DSM_RANGES_MAX || bytes > buf.len() {
            return Err(Error::InvalidArgument(format!(
                "{} ranges in a buffer of {} bytes: 1 to {DSM_RANGES_MAX} ranges of 16 bytes are possible",
                ranges.len(),
                buf.len()
            )));
        }
        for (index, range) in ranges.iter().enumerate() {
            self.check(*range, u32::MAX)?;
            let entry = DsmRange { attributes: 0, blocks: range.blocks, start: range.start.0 };
            buf.write(index * size_of::<DsmRange>(), entry.as_bytes());
        }
        let command = Command::DatasetManagement { ranges: ranges.len() as u32, deallocate: true, hints: 0 };
        Ok((command.encode(self.nsid), bytes))
    }

    /// I/O Management Receive, Reclaim Unit Handle Status: fills `buf` with as many handles as fit, to be
    /// read with [`unvme_spec::fdp::ruh_statuses`]. [`Namespace::ruh_status_bytes`] says how large it has to
    /// be. Errors: [`Error::InvalidArgument`] for a buffer without room for the header; it is dropped then.
    pub fn ruh_status(&self, buf: DmaBuf) -> Result<(Sqe, Payload), Error> {
        let bytes = buf.len() & !3;
        if bytes < size_of::<RuhStatusHeader>() {
            return Err(Error::InvalidArgument(format!(
                "reclaim unit handle status in a buffer of {} bytes: {} or more are expected",
                buf.len(),
                size_of::<RuhStatusHeader>()
            )));
        }
        let operation = ReceiveOperation::RuhStatus;
        let command = IoManagementReceive { operation, specific: 0, dwords: bytes as u64 / 4 };
        Ok((Command::IoManagementReceive(command).encode(self.nsid), Payload { buf, bytes }))
    }

    /// Bytes of the status of `handles` reclaim unit handles.
    pub const fn ruh_status_bytes(handles: u16) -> usize {
        size_of::<RuhStatusHeader>() + handles as usize * size_of::<RuhStatus>()
    }

    /// I/O Management Send, Reclaim Unit Handle Update: each of `placements` goes on with an empty reclaim
    /// unit. Writes the list into `buf`, which goes with the command. Errors: [`Error::InvalidArgument`] for
    /// an empty list, or one of more than 65536 or than `buf` holds; the buffer is dropped then.
    pub fn ruh_update(&self, placements: &[PlacementId], mut buf: DmaBuf) -> Result<(Sqe, Payload), Error> {
        let bytes = placements.len() * size_of::<u16>();
        if placements.is_empty() || placements.len() > 1 << 16 || bytes > buf.len() {
            return Err(Error::InvalidArgument(format!(
                "{} placement identifiers in a buffer of {} bytes: 1 to 65536 of 2 bytes are possible",
                placements.len(),
                buf.len()
            )));
        }
        let list: Vec<u8> = placements.iter().flat_map(|placement| placement.0.to_le_bytes()).collect();
        buf.write(0, &list);
        let operation = SendOperation::RuhUpdate { placement_ids: placements.len() as u32 };
        let sqe = Command::IoManagementSend(IoManagementSend { operation }).encode(self.nsid);
        Ok((sqe, Payload { buf, bytes }))
    }
}

impl Limits {
    /// Limits are powers of two of the controller's smallest page; 0 is none.
    fn read(controller: &Controller, page_blocks: u64) -> Result<Self, Error> {
        let command =
            admin::Identify { cns: cns::COMMAND_SET_CONTROLLER, csi: csi::NVM, ..Default::default() };
        let identify: NvmControllerIdentify = match controller.identify_as(command) {
            // Older than the data structure: no limits are stated.
            Err(Error::Status { status, .. }) if status.kind() == Status::INVALID_FIELD => Default::default(),
            other => other?,
        };
        let blocks = |power: u8| match power {
            0 => BLOCKS_PER_COMMAND_MAX,
            _ => page_blocks
                .checked_shl(power.into())
                .filter(|blocks| *blocks > 0)
                .map_or(BLOCKS_PER_COMMAND_MAX, |blocks| blocks.min(BLOCKS_PER_COMMAND_MAX.into()) as u32),
        };
        Ok(Self {
            verify: blocks(identify.vsl),
            write_zeroes: blocks(identify.wzsl),
            write_uncorrectable: blocks(identify.wusl),
        })
    }
}
