//! Parts of values on a device that retrieves whole values only: everything up to the end of the part is asked for.

use unvme_spec::samsung_kv;

use super::kv::check;
use super::lane::Command;
use super::operation::{Pending, Work, cut};
use super::{Key, Member, OpError, QueueChoice, Retrieved};

impl Member {
    /// Whether a retrieve from `offset` on is beyond what the device can do.
    #[inline]
    pub(super) fn must_cut(&self, offset: u32) -> bool {
        offset != 0 && self.pairs().is_ok_and(|pairs| !pairs.has_vendor())
    }

    /// What has to be asked for, in bytes, to get `bytes` from `offset` on: never more than a command moves, so that
    /// what is beyond cannot be reached.
    fn bytes_to_ask(&self, offset: u32, bytes: usize) -> Result<usize, OpError> {
        if !offset.is_multiple_of(samsung_kv::OFFSET_ALIGNMENT) {
            return Err(OpError::Status(samsung_kv::status::MISALIGNED_VALUE_OFFSET));
        }
        if bytes > samsung_kv::VALUE_BYTES_MAX as usize {
            return Err(OpError::Status(samsung_kv::status::INVALID_VALUE_SIZE));
        }
        let most = self.pairs()?.standard_value_bytes_max().min(samsung_kv::VALUE_BYTES_MAX as usize);
        Ok((offset as usize).saturating_add(bytes).min(most))
    }

    /// [`Member::retrieve`] from an offset on.
    #[cold]
    pub(super) fn retrieve_cut(
        &self,
        queue: QueueChoice,
        key: Key<'_>,
        offset: u32,
        out: &mut [u8],
    ) -> Result<Retrieved, OpError> {
        let asked = self.bytes_to_ask(offset, out.len())?;
        let command = self.retrieve_command(key, 0, asked)?;
        let mut buf = Some(self.memory.alloc(asked)?);
        let completion = self.call(queue, Command::Kv(command), &mut buf)?;
        check(completion.status)?;
        let value_bytes = cut(completion.result, offset).map_err(OpError::Status)?;
        let copied = out.len().min(asked.saturating_sub(offset as usize)).min(value_bytes as usize);
        if let Some(buf) = completion.buf.filter(|_| copied > 0) {
            buf.read(offset as usize, &mut out[..copied]);
        }
        Ok(Retrieved { copied, value_bytes })
    }

    /// [`Member::retrieve_async`] from an offset on.
    #[cold]
    pub(super) fn retrieve_cut_async(
        &self,
        queue: QueueChoice,
        key: Key<'_>,
        offset: u32,
        bytes: usize,
        token: u64,
    ) -> Result<(), OpError> {
        let asked = self.bytes_to_ask(offset, bytes)?;
        let command = self.retrieve_command(key, 0, asked)?;
        let buf = self.memory.alloc(asked)?;
        let work = Work::RetrieveCut { offset, bytes };
        self.submit(queue, Command::Kv(command), Some(buf), Pending { token, work })
    }
}
