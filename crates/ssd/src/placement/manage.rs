//! Placing writes, and I/O Management Receive and Send (Base 7.3, 7.4; NVM 3.2).
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_bus::space::Direction;
use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::Placement;
use unvme_flash::timing::OpList;
use unvme_spec::fdp::{
    Event, EventType, IoManagementReceive, IoManagementSend, PlacementId, ReceiveOperation, ReclaimGroup,
    RuhStatus, RuhStatusHeader, Ruhid, SendOperation, placement_ids,
};
use unvme_spec::feature::Timestamp;
use unvme_spec::{Nsid, Sqe, Status};
use zerocopy::IntoBytes;

use crate::Ssd;
use crate::dptr::DataPointer;
use crate::fdp::{Configuration, Handles};
use crate::namespace::{Blocks, Contents, Namespace};
use crate::queue::SubmissionQueue;
use crate::reply::Reply;
use crate::store::CHUNK_BYTES;

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();

impl Ssd {
    /// Reclaim unit handle and group for a write to byte `offset` of a namespace with `handles`. Errors:
    /// invalid Field for a directive that is not Data Placement. An invalid placement identifier is none: the
    /// write goes to where it would without one, and there is an event.
    #[inline]
    pub(crate) fn place(&self, handles: &Handles, sqe: &Sqe, offset: u64) -> Result<Placement, Status> {
        let placed = handles.place(sqe.directive(), offset / CHUNK_BYTES)?;
        if let Some(id) = placed.invalid {
            self.record_invalid(Nsid(sqe.nsid), id, placed.at);
        }
        Ok(placed.at)
    }

    #[cold]
    fn record_invalid(&self, nsid: Nsid, id: PlacementId, at: Placement) {
        let event = Event::new(EventType::INVALID_PLACEMENT_ID, Timestamp::default());
        let event = event.with_location(ReclaimGroup(at.group), Ruhid(at.handle));
        self.fdp.record(at.handle, event.with_nsid(nsid).with_placement_id(id));
    }

    /// The enabled configuration, for a command to an attached namespace of blocks.
    fn placement_of<'a>(&'a self, sq: &SubmissionQueue, nsid: u32) -> Result<&'a Configuration, Status> {
        if matches!(Nsid(nsid), Nsid::NONE | Nsid::ALL) {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_do_not_retry());
        }
        sq.namespaces.blocks(nsid)?;
        self.fdp.configuration().ok_or(Status::FDP_DISABLED.with_do_not_retry())
    }

    pub(crate) fn io_management_receive(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        receive: IoManagementReceive,
    ) -> Result<Reply, Status> {
        if !self.fdp.has_flash() {
            return Err(Status::INVALID_OPCODE.with_do_not_retry());
        }
        let asked = usize::try_from(receive.bytes()).map_err(|_| INVALID_FIELD)?;
        match receive.operation {
            ReceiveOperation::NoAction => {
                sq.namespaces.blocks(sqe.nsid)?;
                self.send(sq, sqe, &[], asked)
            }
            ReceiveOperation::Reserved(_) => Err(INVALID_FIELD),
            ReceiveOperation::RuhStatus => {
                self.placement_of(sq, sqe.nsid)?;
                let namespace = sq.namespaces.get(Nsid(sqe.nsid)).ok_or(INVALID_FIELD)?;
                let status = self.ruh_status(namespace)?;
                self.send_padded(sq, sqe, &status, asked)
            }
        }
    }

    /// Reclaim Unit Handle Status of a namespace, by placement handle and then by group.
    fn ruh_status(&self, namespace: &Namespace) -> Result<Vec<u8>, Status> {
        let flash = self.media.flash().ok_or(Status::INTERNAL_ERROR)?;
        let Contents::Blocks(Blocks { block_shift, .. }) = &namespace.contents else {
            return Err(INVALID_FIELD);
        };
        let now = self.fdp.latest();
        let pages_left = |at| flash.with(&mut OpList::default(), |ftl, _| ftl.pages_left(at));
        let mut count = 0;
        let mut list = Vec::new();
        for (id, ruhid, at) in namespace.handles.ids() {
            let mut status = RuhStatus::default();
            (status.pid, status.ruhid) = (id.0, ruhid.0);
            status.earutr = self.fdp.seconds_left(at, now);
            status.ruamw = u64::from(pages_left(at)) * (PAGE_BYTES >> block_shift);
            list.extend_from_slice(status.as_bytes());
            count += 1;
        }
        Ok([RuhStatusHeader::new(count).as_bytes(), &list].concat())
    }

    pub(crate) fn io_management_send(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        send: IoManagementSend,
    ) -> Result<(), Status> {
        if !self.fdp.has_flash() {
            return Err(Status::INVALID_OPCODE.with_do_not_retry());
        }
        match send.operation {
            SendOperation::NoAction => sq.namespaces.blocks(sqe.nsid).map(|_| ()),
            SendOperation::Reserved(..) => Err(INVALID_FIELD),
            SendOperation::RuhUpdate { placement_ids } => self.update(sq, sqe, placement_ids),
        }
    }

    /// Reclaim Unit Handle Update: each placement identifier of the list gets an empty reclaim unit. Nothing
    /// is changed when one of them is invalid. One that is there twice has an empty unit the second time,
    /// which may stay.
    fn update(&self, sq: &mut SubmissionQueue, sqe: &Sqe, count: u32) -> Result<(), Status> {
        let configuration = self.placement_of(sq, sqe.nsid)?;
        if count > configuration.placement_ids_max() {
            return Err(INVALID_FIELD);
        }
        let mut list = vec![0; count as usize * size_of::<PlacementId>()];
        let pointer = DataPointer {
            host: &sq.host,
            sqe,
            page_bytes: sq.page_bytes,
            bytes: list.len(),
            direction: Direction::Read,
        };
        pointer.fetch(&mut sq.pieces, &mut list)?;
        let namespace = sq.namespaces.get(Nsid(sqe.nsid)).ok_or(INVALID_FIELD)?;
        let resolved: Option<Vec<(PlacementId, Placement)>> =
            placement_ids(&list).map(|id| Some((id, namespace.handles.resolve(id)?))).collect();
        for (id, at) in resolved.ok_or(INVALID_FIELD)? {
            // Written in part only (Base 5.1.12.1.31.1.1): a full one is closed already.
            if self.close_unit(at, None).is_some() {
                let event = Event::new(EventType::RU_NOT_FULLY_WRITTEN, Timestamp::default())
                    .with_location(ReclaimGroup(at.group), Ruhid(at.handle))
                    .with_nsid(Nsid(sqe.nsid))
                    .with_placement_id(id);
                self.fdp.record(at.handle, event);
            }
        }
        Ok(())
    }
}
