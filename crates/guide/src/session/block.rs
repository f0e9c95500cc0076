//! Operations on logical blocks.

use unvme_driver::DmaBuf;
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::{Lba, Sqe};

use super::kv::check;
use super::lane::{Command, Data};
use super::member::Target;
use super::operation::{Pending, Work};
use super::{Member, OpError, QueueChoice};
use unvme::{Namespace, WriteOptions};

impl Member {
    pub(super) fn blocks(&self) -> Result<&Namespace, OpError> {
        match &self.target {
            Target::Blocks(namespace) => Ok(namespace),
            Target::Kv(_) => Err(OpError::Unsupported("a key-value device has no logical blocks".into())),
        }
    }

    /// Reads whole blocks from `lba` on into `out`, in one command: at most 2 MiB.
    ///
    /// # Errors
    /// [`OpError::Argument`] when `out` is empty, no whole number of blocks or too long, or blocks are beyond the end;
    /// [`OpError::Unsupported`] on a key-value device; what the device says.
    pub fn read(&self, queue: QueueChoice, lba: u64, out: &mut [u8]) -> Result<(), OpError> {
        let namespace = self.blocks()?;
        let range = range_of(namespace, lba, out.len())?;
        let sqe = namespace.read(range, AccessFlags::default())?;
        let bytes = out.len();
        check(self.exchange(queue, Command::Entry(sqe, bytes), Data::In(out), |_| bytes)?.status)
    }

    /// Writes whole blocks from `lba` on.
    ///
    /// # Errors
    /// As [`Member::read`].
    pub fn write(&self, queue: QueueChoice, lba: u64, data: &[u8]) -> Result<(), OpError> {
        self.write_with(queue, lba, data, WriteOptions::default())
    }

    /// [`Member::write`] with access options, and to where a placement identifier says.
    ///
    /// # Errors
    /// As [`Member::write`]; [`OpError::Argument`] for a placement identifier that the device has not, with those it has.
    pub fn write_with(
        &self,
        queue: QueueChoice,
        lba: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> Result<(), OpError> {
        let sqe = self.write_entry(queue, lba, data.len(), options)?;
        check(self.exchange(queue, Command::Entry(sqe, data.len()), Data::Out(data), |_| 0)?.status)
    }

    /// Tells the device that `blocks` blocks from `lba` on are not needed any more.
    ///
    /// # Errors
    /// As [`Member::read`].
    pub fn deallocate(&self, queue: QueueChoice, lba: u64, blocks: u32) -> Result<(), OpError> {
        let (command, buf) = self.deallocation(lba, blocks)?;
        check(self.call(queue, command, &mut Some(buf))?.status)
    }

    /// Asynchronous [`Member::read`]: `blocks` blocks into a buffer that the handler is given.
    ///
    /// # Errors
    /// As [`Member::read`], of those that are known before the device answers; [`OpError::QueueFull`],
    /// [`OpError::WrongQueue`], [`OpError::Closed`]. The handler is not called then.
    pub fn read_async(&self, queue: QueueChoice, lba: u64, blocks: u32, token: u64) -> Result<(), OpError> {
        let namespace = self.blocks()?;
        let range = BlockRange::new(Lba(lba), blocks);
        let sqe = namespace.read(range, AccessFlags::default())?;
        let bytes = namespace.bytes(range);
        let buf = self.memory.alloc(bytes)?;
        let pending = Pending { token, work: Work::Read { bytes } };
        self.submit(queue, Command::Entry(sqe, bytes), Some(buf), pending)
    }

    /// Asynchronous [`Member::write`]: `data` is copied before this returns.
    ///
    /// # Errors
    /// As [`Member::read_async`].
    pub fn write_async(&self, queue: QueueChoice, lba: u64, data: &[u8], token: u64) -> Result<(), OpError> {
        self.write_async_with(queue, lba, data, WriteOptions::default(), token)
    }

    /// Asynchronous [`Member::write_with`]: `data` is copied before this returns.
    ///
    /// # Errors
    /// As [`Member::read_async`] and [`Member::write_with`].
    pub fn write_async_with(
        &self,
        queue: QueueChoice,
        lba: u64,
        data: &[u8],
        options: WriteOptions,
        token: u64,
    ) -> Result<(), OpError> {
        let sqe = self.write_entry(QueueChoice::Auto, lba, data.len(), options)?;
        let buf = self.memory.filled(data)?;
        let pending = Pending { token, work: Work::Command };
        self.submit(queue, Command::Entry(sqe, data.len()), Some(buf), pending)
    }

    /// Asynchronous [`Member::deallocate`].
    ///
    /// # Errors
    /// As [`Member::read_async`].
    pub fn deallocate_async(
        &self,
        queue: QueueChoice,
        lba: u64,
        blocks: u32,
        token: u64,
    ) -> Result<(), OpError> {
        let (command, buf) = self.deallocation(lba, blocks)?;
        self.submit(queue, command, Some(buf), Pending { token, work: Work::Command })
    }

    /// The entry of a write. `queue` is where the device is asked which placement identifiers it has, the first time.
    fn write_entry(
        &self,
        queue: QueueChoice,
        lba: u64,
        bytes: usize,
        options: WriteOptions,
    ) -> Result<Sqe, OpError> {
        let namespace = self.blocks()?;
        if let Some(placement) = options.placement {
            self.check_placements(queue, &[placement])?;
        }
        Ok(namespace.write(range_of(namespace, lba, bytes)?, options)?)
    }

    fn deallocation(&self, lba: u64, blocks: u32) -> Result<(Command<'static>, DmaBuf), OpError> {
        let namespace = self.blocks()?;
        let buf = self.memory.alloc(size_of::<unvme_spec::nvm::DsmRange>())?;
        let (sqe, payload) = namespace.deallocate(&[BlockRange::new(Lba(lba), blocks)], buf)?;
        Ok((Command::Entry(sqe, payload.bytes), payload.buf))
    }
}

/// The blocks that `bytes` bytes from `lba` on are.
fn range_of(namespace: &Namespace, lba: u64, bytes: usize) -> Result<BlockRange, OpError> {
    // The offset of a first block is never misaligned; one that is too large is beyond the end for the namespace to see.
    let range = namespace.range_of_bytes(0, bytes)?;
    Ok(BlockRange::new(Lba(lba), range.blocks))
}
