//! Flexible Data Placement of a block device.

use unvme::Op;
use unvme::worker::Data;
use unvme_driver::Namespace;
use unvme_spec::fdp::{PlacementId, ruh_status_count};

use super::{Medium, Member, OpError, QueueChoice};
use unvme::fdp::{HandleStatus, missing_placement, statuses_of};

impl Member {
    /// Where each placement identifier of the device writes now.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] on a key-value device; [`OpError::Status`], with
    /// [`unvme_spec::Status::FDP_DISABLED`] when the device has none; as [`Member::call`].
    pub fn handles(&self, queue: QueueChoice) -> Result<Vec<HandleStatus>, OpError> {
        let handles = ruh_status_count(&self.ruh_status(queue, 0)?).unwrap_or(0);
        Ok(statuses_of(&self.ruh_status(queue, handles)?))
    }

    fn ruh_status(&self, queue: QueueChoice, handles: u16) -> Result<Vec<u8>, OpError> {
        let namespace = self.blocks()?;
        let buf = self.memory.alloc(Namespace::ruh_status_bytes(handles))?;
        let (sqe, payload) = namespace.ruh_status(buf)?;
        let outcome = self.call(queue, Op::Entry(&sqe, payload.bytes), Data::Lent(payload.buf))?;
        Ok(outcome.data.map(|buf| buf.to_vec()).unwrap_or_default())
    }

    /// What is written to `placements` from now on goes to empty reclaim units.
    ///
    /// # Errors
    /// [`OpError::Argument`] for an empty list, or a placement identifier that the device has not, with those
    /// it has; as [`Member::handles`].
    pub fn update_handles(&self, queue: QueueChoice, placements: &[PlacementId]) -> Result<(), OpError> {
        self.check_placements(queue, placements)?;
        let buf = self.memory.alloc((placements.len() * 2).next_multiple_of(4))?;
        let (sqe, payload) = self.blocks()?.ruh_update(placements, buf)?;
        self.call(queue, Op::Entry(&sqe, payload.bytes), Data::Lent(payload.buf))?;
        Ok(())
    }

    fn blocks(&self) -> Result<&Namespace, OpError> {
        match &self.medium {
            Medium::Blocks(namespace) => Ok(namespace),
            Medium::Pairs(_) => Err(OpError::Unsupported("a key-value device has no logical blocks".into())),
        }
    }

    /// Checks that the device has each of `placements`; it is asked once which it has.
    pub(super) fn check_placements(
        &self,
        queue: QueueChoice,
        placements: &[PlacementId],
    ) -> Result<(), OpError> {
        let there = match self.placements.get() {
            Some(there) => there,
            None => {
                let mut there: Vec<_> = self.handles(queue)?.iter().map(|handle| handle.placement).collect();
                there.sort_unstable();
                self.placements.get_or_init(|| there)
            }
        };
        missing_placement(there, placements).map_or(Ok(()), |reason| Err(OpError::Argument(reason)))
    }
}
