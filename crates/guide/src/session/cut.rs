//! Parts of values on a device that retrieves whole values only: everything up to the end of the part is
//! asked for.

use unvme::Op;
use unvme::worker::Data;
use unvme_driver::KvKey;
use unvme_spec::samsung_kv;

use super::call::ended;
use super::operation::Work;
use super::{Medium, Member, OpError, Outcome, QueueChoice, Returned};

impl Member {
    /// Whether an operation retrieves from an offset on, which is beyond what the device can do.
    #[inline]
    pub(super) fn must_cut(&self, op: &Op<'_>, data: &Data<'_>) -> bool {
        match (op, &self.medium) {
            // A buffer that is lent may have no room for what is before the offset.
            (Op::Retrieve { offset: 1.., .. }, Medium::Pairs(pairs)) => {
                !pairs.has_vendor() && !matches!(data, Data::Lent(_))
            }
            _ => false,
        }
    }

    /// The operation that gets `bytes` from `offset` on: never of more than a command moves, so that what is
    /// beyond cannot be reached.
    fn uncut<'a>(&self, key: KvKey<'a>, offset: u32, bytes: usize) -> Result<Op<'a>, OpError> {
        if !offset.is_multiple_of(samsung_kv::OFFSET_ALIGNMENT) {
            return Err(OpError::Status(samsung_kv::status::MISALIGNED_VALUE_OFFSET));
        }
        let most = self.pairs()?.standard_value_bytes_max();
        if bytes > most {
            return Err(OpError::Status(samsung_kv::status::INVALID_VALUE_SIZE));
        }
        Ok(Op::retrieve(key, (offset as usize).saturating_add(bytes).min(most)))
    }

    /// [`Member::call`] of a retrieve from an offset on.
    #[cold]
    pub(super) fn retrieve_cut(
        &self,
        queue: QueueChoice,
        op: Op<'_>,
        mut data: Data<'_>,
    ) -> Result<Outcome, Returned> {
        let Op::Retrieve { key, offset, bytes } = op else { return self.call(queue, op, data) };
        let command = self.command(queue, self.uncut(key, offset, bytes)?, &mut Data::None)?;
        let done = self.wait(queue, command, Data::None)?;
        let outcome = ended(Work::RetrieveCut { offset, bytes }.end(done, &self.memory))?;
        if let Data::In(out) = &mut data {
            outcome.copy_data(out);
        }
        Ok(outcome)
    }

    /// [`Member::submit`] of a retrieve from an offset on.
    #[cold]
    pub(super) fn submit_cut(
        &self,
        queue: QueueChoice,
        op: Op<'_>,
        data: Data<'_>,
        token: u64,
    ) -> Result<(), Returned> {
        let Op::Retrieve { key, offset, bytes } = op else { return self.submit(queue, op, data, token) };
        let command = self.command(queue, self.uncut(key, offset, bytes)?, &mut Data::None)?;
        let load = self.load(command, data)?;
        self.send(queue, command, load, token, Work::RetrieveCut { offset, bytes })
    }
}
