//! Connect: a new association, or another queue of one (Base 6.3).
//!
//! What is wrong with it is said as the specification has it: which parameter, in the entry or in the data.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use unvme_bus::lock;
use unvme_fabric::chap;
use unvme_spec::fabrics::{
    CNTLID_DYNAMIC, Connect, ConnectData, Connected, DISCOVERY_NQN, InvalidParameter, nqn, status,
};
use unvme_spec::regs::Csts;
use unvme_spec::{Sqe, Status};
use zerocopy::FromBytes;

use super::device::DeviceQueue;
use super::discovery::{self, Discovery};
use super::queue::{At, FabricsQueue, QueueState};
use super::subsystem::Offer;
use crate::Ssd;
use crate::association::{Association, AssociationParts};

/// Bytes of Connect's data.
pub(super) const DATA_BYTES: u32 = size_of::<ConnectData>() as u32;
/// Most entries of an admin queue: AQA has 12 bits for their number, and one is kept free.
const ADMIN_ENTRIES_MAX: u32 = 4095;

/// Byte offsets of parameters in the entry (Base figure 545).
mod in_entry {
    pub(super) const QID: u16 = 42;
    pub(super) const SQSIZE: u16 = 44;
}

/// Byte offsets of parameters in the data (Base figure 546).
mod in_data {
    pub(super) const HOSTID: u16 = 0;
    pub(super) const CNTLID: u16 = 16;
    pub(super) const SUBNQN: u16 = 256;
    pub(super) const HOSTNQN: u16 = 512;
}

/// Why a host does not get what it wants: status, and dword 0 of the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: Status,
    pub(super) dword: u32,
}

impl Refusal {
    const fn plain(status: Status) -> Self {
        Self { status, dword: 0 }
    }

    const fn of_entry(offset: u16) -> Self {
        Self::parameter(InvalidParameter { in_data: false, offset })
    }

    const fn of_data(offset: u16) -> Self {
        Self::parameter(InvalidParameter { in_data: true, offset })
    }

    const fn parameter(parameter: InvalidParameter) -> Self {
        let status = status::CONNECT_INVALID_PARAMETERS.with_do_not_retry();
        Self { status, dword: parameter.to_dword() }
    }

    const fn host() -> Self {
        let dword = InvalidParameter { in_data: true, offset: in_data::HOSTNQN }.to_dword();
        Self { status: status::CONNECT_INVALID_HOST.with_do_not_retry(), dword }
    }
}

/// Who wants what.
struct Wish<'a> {
    connect: Connect,
    data: &'a ConnectData,
    hostnqn: &'a str,
    subnqn: &'a str,
}

impl FabricsQueue {
    /// Connect's data is there.
    pub(super) fn connect(&mut self, at: u16, sqe: &Sqe, connect: Connect) {
        let answer = self.try_connect(at, connect);
        match answer {
            Ok(connected) => self.executed(at, Ok(connected.to_dword().into()), 0),
            Err(Refusal { status, dword }) => {
                tracing::warn!(
                    peer = self.peer.address,
                    qid = connect.qid.0,
                    cid = sqe.cid,
                    status = status::name(status),
                    parameter = format_args!("{dword:#x}"),
                    "Connect was refused"
                );
                self.executed(at, Err(status), 0);
                if let Some(executed) = self.executed.back_mut() {
                    executed.result = dword.into();
                }
            }
        }
    }

    fn try_connect(&mut self, at: u16, connect: Connect) -> Result<Connected, Refusal> {
        let mut bytes = [0; DATA_BYTES as usize];
        let slot = self.slots.get(at).and_then(|slot| self.pool.staging(slot.buffer?, slot.bytes));
        let staging = slot.ok_or(Refusal::plain(Status::INTERNAL_ERROR))?;
        staging.region.read(staging.offset, &mut bytes);
        let data = ConnectData::ref_from_bytes(&bytes).map_err(|_| Refusal::plain(Status::INTERNAL_ERROR))?;
        if connect.record_format != 0 {
            return Err(Refusal::plain(status::INCOMPATIBLE_FORMAT.with_do_not_retry()));
        }
        let subnqn = nqn(&data.subnqn).ok_or(Refusal::of_data(in_data::SUBNQN))?;
        let hostnqn = nqn(&data.hostnqn).ok_or(Refusal::of_data(in_data::HOSTNQN))?;
        if data.hostid == [0; 16] {
            return Err(Refusal::of_data(in_data::HOSTID));
        }
        let is_other = |tls: &super::TlsPeer| tls.hostnqn != hostnqn || tls.subnqn != subnqn;
        if self.peer.tls.as_ref().is_some_and(is_other) {
            // The key is another host's, or for something else.
            return Err(Refusal::host());
        }
        if connect.sqsize_z == 0 {
            return Err(Refusal::of_entry(in_entry::SQSIZE));
        }
        if self.target.is_closed() {
            return Err(Refusal::plain(status::CONTROLLER_BUSY));
        }
        let wish = Wish { connect, data, hostnqn, subnqn };
        if subnqn == DISCOVERY_NQN {
            return self.connect_discovery(&wish);
        }
        let offer = self.target.offer(subnqn).ok_or(Refusal::of_data(in_data::SUBNQN))?;
        let access = offer.access();
        let comes_bare =
            self.peer.tls.is_none() && access.host(hostnqn).is_some_and(|host| host.requires_tls);
        if comes_bare || !access.admits(hostnqn) {
            return Err(Refusal::host());
        }
        match connect.qid.0 {
            0 => self.connect_admin(offer, &wish),
            _ => self.connect_io(&offer, &wish),
        }
    }

    fn connect_discovery(&mut self, wish: &Wish<'_>) -> Result<Connected, Refusal> {
        check_admin(wish, discovery::ADMIN_ENTRIES.into())?;
        self.settle(wish);
        let discovery =
            Discovery::new(wish.hostnqn, wish.connect.keep_alive_ms, &self.target, self.wake.clone());
        let cntlid = discovery.cntlid();
        self.at = At::Discovery(Box::new(discovery));
        Ok(Connected { cntlid, ..Connected::default() })
    }

    fn connect_admin(&mut self, offer: Arc<Offer>, wish: &Wish<'_>) -> Result<Connected, Refusal> {
        check_admin(wish, ADMIN_ENTRIES_MAX)?;
        let association = Arc::new(Association::new(AssociationParts {
            subnqn: offer.nqn.clone(),
            port: self.port,
            reach: offer.reach(self.port),
            hostnqn: wish.hostnqn.to_owned(),
            hostid: wish.data.hostid,
            space: Arc::clone(self.pool.space()),
            keep_alive_ms: wish.connect.keep_alive_ms,
            queues: usize::from(offer.device.config.io_queues) + 1,
        }));
        let busy = Refusal::plain(status::CONTROLLER_BUSY);
        let ssd = offer.device.add_remote_controller(Arc::clone(&association)).map_err(|error| {
            tracing::warn!(subsystem = offer.nqn, host = wish.hostnqn, %error, "there is no controller for a host");
            busy
        })?;
        let cntlid = ssd.controller_id();
        ssd.events.wake_by(self.wake.clone());
        offer.enter(&ssd);
        let resets = association.resets();
        self.open(ssd, association, wish, resets, busy)?;
        let must_authenticate = self.demand_proof(&offer, wish);
        tracing::info!(
            peer = self.peer.address,
            host = wish.hostnqn,
            subsystem = offer.nqn,
            cntlid,
            "a host has connected"
        );
        Ok(Connected { cntlid, must_authenticate, ..Connected::default() })
    }

    fn connect_io(&mut self, offer: &Offer, wish: &Wish<'_>) -> Result<Connected, Refusal> {
        let unknown = Refusal::of_data(in_data::CNTLID);
        let cntlid = wish.data.cntlid.get();
        let ssd = offer.controller(cntlid).ok_or(unknown)?;
        let association = Arc::clone(ssd.association.as_ref().ok_or(unknown)?);
        if association.hostnqn != wish.hostnqn {
            return Err(Refusal::of_data(in_data::HOSTNQN));
        }
        if association.hostid != wish.data.hostid {
            return Err(Refusal::of_data(in_data::HOSTID));
        }
        let Connect { qid, sqsize_z, .. } = wish.connect;
        if qid.0 > ssd.config.io_queues {
            return Err(Refusal::of_entry(in_entry::QID));
        }
        if u32::from(sqsize_z) >= ssd.config.queue_entries {
            return Err(Refusal::of_entry(in_entry::SQSIZE));
        }
        let sequence = Refusal::plain(Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry());
        // Before the look at RDY: a reset after that is noticed at the first turn.
        let resets = association.resets();
        if association.ended().is_some()
            || !is_ready(&ssd)
            || !association.take_seat(qid.0, self.wake.clone())
        {
            return Err(sequence);
        }
        let opened = self.open(Arc::clone(&ssd), Arc::clone(&association), wish, resets, sequence);
        opened.inspect_err(|_| association.leave_seat(qid.0))?;
        // A reset meanwhile has removed the queues it knew of, or this one is told at its first turn.
        let must_authenticate = self.demand_proof(offer, wish);
        Ok(Connected { cntlid, must_authenticate, ..Connected::default() })
    }

    /// Lets the queue do nothing until the host has proven who it is, if it has to.
    fn demand_proof(&mut self, offer: &Offer, wish: &Wish<'_>) -> bool {
        let access = offer.access();
        let Some(keys) = access.host(wish.hostnqn).and_then(|host| host.keys.clone()) else { return false };
        let names = chap::Names { host: wish.hostnqn.to_owned(), subsystem: wish.subnqn.to_owned() };
        let controller = chap::Controller::new(names, keys, self.target.authentication().clone());
        self.authentication = Some(Box::new(controller));
        self.must_authenticate = true;
        true
    }

    /// The queue is one of a controller from now on.
    fn open(
        &mut self,
        ssd: Arc<Ssd>,
        association: Arc<Association>,
        wish: &Wish<'_>,
        resets: u32,
        otherwise: Refusal,
    ) -> Result<(), Refusal> {
        let (qid, commands) = (wish.connect.qid.0, wish.connect.sqsize_z.saturating_add(1));
        if qid == 0 {
            association.take_seat(0, self.wake.clone());
        }
        let queue =
            DeviceQueue::new(ssd, association, qid, commands, resets, &mut self.pool).ok_or(otherwise)?;
        self.settle(wish);
        self.at = At::Device(Box::new(queue));
        Ok(())
    }

    /// What Connect says of the queue itself.
    fn settle(&mut self, wish: &Wish<'_>) {
        let Connect { sqsize_z, attributes, .. } = wish.connect;
        self.entries = u32::from(sqsize_z) + 1;
        self.slots.grow(sqsize_z.saturating_add(1));
        self.has_no_flow_control = attributes & Connect::DISABLE_SQ_FLOW_CONTROL != 0;
        self.state = QueueState::Connected;
    }
}

fn check_admin(wish: &Wish<'_>, entries_max: u32) -> Result<(), Refusal> {
    if wish.connect.qid.0 != 0 {
        return Err(Refusal::of_entry(in_entry::QID));
    }
    if u32::from(wish.connect.sqsize_z) >= entries_max {
        return Err(Refusal::of_entry(in_entry::SQSIZE));
    }
    // Controllers are made for hosts: none can be asked for (dynamic controller model).
    if wish.data.cntlid.get() != CNTLID_DYNAMIC {
        return Err(Refusal::of_data(in_data::CNTLID));
    }
    Ok(())
}

/// CSTS.RDY.
fn is_ready(ssd: &Ssd) -> bool {
    let csts: Csts = lock(&ssd.registers).csts;
    csts.rdy()
}

const _: () = assert!(DATA_BYTES == 1024);
