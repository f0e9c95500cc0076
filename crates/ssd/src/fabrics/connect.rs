//! Connect: a new association, or another queue of one (Base 6.3).
//!
//! What is wrong with it is said as the specification has it: which parameter, in the entry or in the data.
//! A host for which another one has to give way is answered once that one has gone.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use unvme_bus::lock;
use unvme_fabric::chap;
use unvme_spec::Status;
use unvme_spec::fabrics::{
    CNTLID_DYNAMIC, Connect, ConnectData, Connected, DISCOVERY_NQN, InvalidParameter, nqn, status,
};
use unvme_spec::regs::Csts;
use unvme_spec::samsung_kv::KEY_CAPSULE_BYTES;
use zerocopy::FromBytes;

use super::device::DeviceQueue;
use super::discovery::{self, Discovery};
use super::guest::{Guest, origin};
use super::places::Newcomer;
use super::queue::{At, FabricsQueue, QueueState, TRANSPORT_BYTES_PER_ENTRY};
use super::refusals::Refused;
use super::slots::SLOT_BYTES;
use super::staging::CAPSULES_BYTES;
use super::subsystem::Offer;
use crate::Ssd;
use crate::association::{Association, AssociationParts, EndReason, Proof};
use crate::queue::{CQE_BYTES, SQE_BYTES};

/// Bytes of Connect's data.
pub(super) const DATA_BYTES: u32 = size_of::<ConnectData>() as u32;
/// Most entries of an admin queue: AQA has 12 bits for their number, and one is kept free.
const ADMIN_ENTRIES_MAX: u32 = 4095;

/// Bytes of a controller, beside its queues.
const CONTROLLER_BYTES: u64 = 64 << 10;
/// Commands of a queue whose host still has to prove who it is: they follow each other.
const UNPROVEN_COMMANDS: u16 = 32;
/// What is wrong with a queue that is too large.
const LARGE_QUEUE: &str = "it wants a larger queue than there is";
const NO_MEMORY: &str = "there is no memory for its queue";
/// How long a Connect waits for another host to leave, in nanoseconds: its connections are told at once.
const GIVING_WAY_NS: u64 = 5_000_000_000;
/// How often it looks, in nanoseconds.
const LOOK_AGAIN_NS: u64 = 1_000_000;

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

/// Why a host does not get what it wants: status, dword 0 of the completion, and the words for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: Status,
    pub(super) dword: u32,
    why: &'static str,
}

impl Refusal {
    const fn plain(status: Status, why: &'static str) -> Self {
        Self { status, dword: 0, why }
    }

    const fn of_entry(offset: u16, why: &'static str) -> Self {
        Self::parameter(InvalidParameter { in_data: false, offset }, why)
    }

    const fn of_data(offset: u16, why: &'static str) -> Self {
        Self::parameter(InvalidParameter { in_data: true, offset }, why)
    }

    const fn parameter(parameter: InvalidParameter, why: &'static str) -> Self {
        let status = status::CONNECT_INVALID_PARAMETERS.with_do_not_retry();
        Self { status, dword: parameter.to_dword(), why }
    }

    const fn host(why: &'static str) -> Self {
        let dword = InvalidParameter { in_data: true, offset: in_data::HOSTNQN }.to_dword();
        Self { status: status::CONNECT_INVALID_HOST.with_do_not_retry(), dword, why }
    }
}

/// Why a Connect is not answered with success.
enum Unmet {
    Refused(Refusal),
    /// Somebody has been told to make room.
    Later,
}

impl From<Refusal> for Unmet {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A Connect that waits for another host to leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connecting {
    slot: u16,
    connect: Connect,
    /// `None` until the clock is seen.
    since: Option<u64>,
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
    pub(super) fn connect(&mut self, at: u16, connect: Connect) {
        match self.try_connect(at, connect) {
            Ok(connected) => self.executed(at, Ok(connected.to_dword().into()), 0),
            Err(Unmet::Later) => self.connecting = Some(Connecting { slot: at, connect, since: None }),
            Err(Unmet::Refused(refusal)) => self.refuse_connect(at, connect, refusal),
        }
    }

    /// Looks whether a Connect that waits has its place by now. Returns how much was done.
    #[cold]
    pub(super) fn connect_again(&mut self) -> usize {
        let Some(Connecting { slot, connect, since }) = self.connecting.take() else { return 0 };
        let since = since.unwrap_or(self.now);
        self.connect(slot, connect);
        let Some(waiting) = &mut self.connecting else { return 1 };
        waiting.since = Some(since);
        if self.now.saturating_sub(since) < GIVING_WAY_NS {
            return 0;
        }
        self.connecting = None;
        let late = Refusal::plain(status::CONTROLLER_BUSY, "the host that was to make room has not left");
        self.refuse_connect(slot, connect, late);
        1
    }

    /// When a Connect that waits is looked at again.
    pub(super) fn connect_again_at(&self) -> Option<u64> {
        self.connecting.map(|_| self.now.saturating_add(LOOK_AGAIN_NS))
    }

    fn refuse_connect(&mut self, at: u16, connect: Connect, Refusal { status, dword, why }: Refusal) {
        tracing::debug!(
            peer = self.peer.address,
            qid = connect.qid.0,
            status = status::name(status),
            parameter = format_args!("{dword:#x}"),
            "Connect was refused"
        );
        self.tell_refused(at, why);
        self.executed(at, Err(status), 0);
        if let Some(executed) = self.executed.back_mut() {
            executed.result = dword.into();
        }
    }

    /// Connect's data; `None` when there is none.
    fn connect_data(&self, at: u16) -> Option<ConnectData> {
        let mut bytes = [0; DATA_BYTES as usize];
        let staging = self.slots.get(at).and_then(|slot| self.pool.staging(slot.buffer?, slot.bytes))?;
        staging.region.read(staging.offset, &mut bytes);
        ConnectData::read_from_bytes(&bytes).ok()
    }

    /// Says in the log who was refused, and why.
    #[cold]
    fn tell_refused(&self, at: u16, why: &'static str) {
        let data = self.connect_data(at);
        let named = |name: fn(&ConnectData) -> &[u8; 256]| data.as_ref().and_then(|it| nqn(name(it)));
        let (host, subsystem) = (named(|data| &data.hostnqn), named(|data| &data.subnqn));
        self.target.refusals().tell(&Refused { peer: &self.peer.address, host, subsystem, why: &why });
    }

    fn try_connect(&mut self, at: u16, connect: Connect) -> Result<Connected, Unmet> {
        let none = Refusal::plain(Status::INTERNAL_ERROR, "its Connect has no data");
        let data = &self.connect_data(at).ok_or(none)?;
        if connect.record_format != 0 {
            let status = status::INCOMPATIBLE_FORMAT.with_do_not_retry();
            return Err(Refusal::plain(status, "its Connect has a format that is not known").into());
        }
        let no_name = "a name in its Connect is no NQN";
        let subnqn = nqn(&data.subnqn).ok_or(Refusal::of_data(in_data::SUBNQN, no_name))?;
        let hostnqn = match data.hostnqn {
            // A host that says no name is none of those that are listed; where any may enter, it does.
            [0, ..] => "",
            ref named => nqn(named).ok_or(Refusal::of_data(in_data::HOSTNQN, no_name))?,
        };
        if data.hostid == [0; 16] {
            return Err(Refusal::of_data(in_data::HOSTID, "its host identifier is all zeroes").into());
        }
        let is_other = |tls: &super::TlsPeer| tls.hostnqn != hostnqn || tls.subnqn != subnqn;
        if self.peer.tls.as_ref().is_some_and(is_other) {
            return Err(Refusal::host("its TLS key is that of another host, or for another subsystem").into());
        }
        if connect.sqsize_z == 0 {
            return Err(Refusal::of_entry(in_entry::SQSIZE, "it wants a queue of one entry").into());
        }
        if self.target.is_closed() {
            return Err(Refusal::plain(status::CONTROLLER_BUSY, "the server ends").into());
        }
        let wish = Wish { connect, data, hostnqn, subnqn };
        if subnqn == DISCOVERY_NQN {
            return Ok(self.connect_discovery(&wish)?);
        }
        let unknown = Refusal::of_data(in_data::SUBNQN, "there is no such subsystem here");
        let offer = self.target.offer(subnqn).ok_or(unknown)?;
        let terms = offer.access().terms(hostnqn, self.peer.tls.as_ref()).map_err(Refusal::host)?;
        match connect.qid.0 {
            0 => self.connect_admin(offer, &wish, terms),
            _ => self.connect_io(&offer, &wish),
        }
    }

    fn connect_discovery(&mut self, wish: &Wish<'_>) -> Result<Connected, Refusal> {
        check_admin(wish, discovery::ADMIN_ENTRIES.into())?;
        let entries = wish.connect.sqsize_z.saturating_add(1);
        if !self.target.memory().take_fixed(queue_bytes(entries, false), self.pool.purse()) {
            return Err(Refusal::plain(status::CONTROLLER_BUSY, NO_MEMORY));
        }
        self.settle(wish, entries);
        // Who claims a name that has a key proves it here as well: what is shown depends on it.
        let keys = self.target.keys_of(wish.hostnqn);
        let tls = self.peer.tls.as_ref().and_then(|tls| tls.key.clone());
        let proof = Proof { keys: keys.clone(), tls };
        let keep_alive_ms = wish.connect.keep_alive_ms;
        let discovery = Discovery::new(wish.hostnqn, proof, keep_alive_ms, &self.target, self.wake.clone());
        let cntlid = discovery.cntlid();
        self.at = At::Discovery(Box::new(discovery));
        let must_authenticate = self.demand_proof(keys, wish);
        Ok(Connected { cntlid, must_authenticate, ..Connected::default() })
    }

    fn connect_admin(
        &mut self,
        offer: Arc<Offer>,
        wish: &Wish<'_>,
        proof: Proof,
    ) -> Result<Connected, Unmet> {
        check_admin(wish, ADMIN_ENTRIES_MAX)?;
        let access = offer.access();
        let (origin, guest) = (origin(&self.peer.address), self.guest(wish.hostnqn));
        let is_unproven = proof.keys.is_some();
        let newcomer = Newcomer { origin: &origin, guest: &guest, is_unproven };
        let busy =
            Refusal::plain(status::CONTROLLER_BUSY, "all controllers are taken, or there is no memory");
        let association = Arc::new(Association::new(AssociationParts {
            subnqn: offer.nqn.clone(),
            port: self.port,
            reach: offer.reach(self.port),
            hostnqn: wish.hostnqn.to_owned(),
            hostid: wish.data.hostid,
            proof,
            pairs_in_blocks: self.target.pairs_in_blocks,
            space: Arc::clone(self.pool.space()),
            keep_alive_ms: wish.connect.keep_alive_ms,
            queues: usize::from(offer.device.config.io_queues) + 1,
        }));
        self.charge_to(&guest, is_unproven);
        let ssd = {
            let mut places = offer.places();
            let ssd = match offer.device.add_remote_controller(Arc::clone(&association)) {
                Ok(ssd) => ssd,
                Err(_) if !offer.device.faults.is_gone() && places.make_room(&newcomer) => {
                    return Err(Unmet::Later);
                }
                Err(error) => {
                    tracing::debug!(subsystem = offer.nqn, %error, "there is no controller for a host");
                    return Err(busy.into());
                }
            };
            if is_unproven {
                places.limit_unproven(&newcomer);
            } else if access.asks_for_proof() && !places.admit(&guest) {
                return Err(busy.into());
            }
            places.enter(&newcomer, &ssd);
            ssd
        };
        let cntlid = ssd.controller_id();
        ssd.events.wake_by(self.wake.clone());
        // Whoever has changed the rules since the first look has not seen this controller.
        if !offer.access().is_met(&association.hostnqn, &association.proof) {
            return Err(Refusal::host("it may not enter any more").into());
        }
        let resets = association.resets();
        let keys = association.proof.keys.clone();
        self.open(ssd, association, wish, resets, is_unproven, busy)?;
        let must_authenticate = self.demand_proof(keys, wish);
        tracing::info!(
            peer = self.peer.address,
            host = wish.hostnqn,
            subsystem = offer.nqn,
            cntlid,
            "a host has connected"
        );
        Ok(Connected { cntlid, must_authenticate, ..Connected::default() })
    }

    /// Memory of the queue is on the account of its host from now on, unless others could say its name.
    fn charge_to(&mut self, guest: &Guest, is_unproven: bool) {
        if !is_unproven {
            self.target.memory().move_to(self.pool.purse(), guest);
        }
    }

    /// Who the host is, as far as it is known before it has proven anything but its TLS key.
    fn guest(&self, hostnqn: &str) -> Guest {
        match &self.peer.tls {
            Some(_) => Guest::Proven(hostnqn.to_owned()),
            None => Guest::Named { origin: origin(&self.peer.address), hostnqn: hostnqn.to_owned() },
        }
    }

    fn connect_io(&mut self, offer: &Offer, wish: &Wish<'_>) -> Result<Connected, Unmet> {
        let unknown = Refusal::of_data(in_data::CNTLID, "there is no such controller, or not any more");
        let cntlid = wish.data.cntlid.get();
        let ssd = offer.controller(cntlid).ok_or(unknown)?;
        let association = Arc::clone(ssd.association.as_ref().ok_or(unknown)?);
        if association.hostnqn != wish.hostnqn {
            return Err(Refusal::of_data(in_data::HOSTNQN, "the controller is another host's").into());
        }
        if association.hostid != wish.data.hostid {
            return Err(Refusal::of_data(in_data::HOSTID, "the controller is another host's").into());
        }
        let Connect { qid, sqsize_z, .. } = wish.connect;
        if qid.0 > ssd.config.io_queues {
            return Err(Refusal::of_entry(in_entry::QID, "there are not so many queues").into());
        }
        if u32::from(sqsize_z) >= ssd.config.queue_entries {
            return Err(Refusal::of_entry(in_entry::SQSIZE, LARGE_QUEUE).into());
        }
        let status = Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry();
        let sequence = Refusal::plain(status, "the queue is taken, or its controller is not enabled");
        // Before the look at RDY: a reset after that is noticed at the first turn.
        let resets = association.resets();
        if association.ended().is_some() || !is_ready(&ssd) {
            return Err(sequence.into());
        }
        if !association.take_seat(qid.0, self.wake.clone()) {
            let is_leaving = association.claim_seat(qid.0);
            return Err(if is_leaving { Unmet::Later } else { sequence.into() });
        }
        let keys = association.proof.keys.clone();
        let is_unproven = keys.is_some();
        let guest = self.guest(wish.hostnqn);
        self.charge_to(&guest, is_unproven);
        let opened =
            self.open(Arc::clone(&ssd), Arc::clone(&association), wish, resets, is_unproven, sequence);
        opened.inspect_err(|_| association.leave_seat(qid.0))?;
        // A reset meanwhile has removed the queues it knew of, or this one is told at its first turn.
        let must_authenticate = self.demand_proof(keys, wish);
        Ok(Connected { cntlid, must_authenticate, ..Connected::default() })
    }

    /// Lets the queue do nothing until the host has proven who it is, if it has to.
    fn demand_proof(&mut self, keys: Option<chap::Keys>, wish: &Wish<'_>) -> bool {
        let Some(keys) = keys else { return false };
        let names = chap::Names { host: wish.hostnqn.to_owned(), subsystem: wish.subnqn.to_owned() };
        let controller = chap::Controller::new(names, keys, self.target.authentication().clone());
        self.authentication = Some(Box::new(controller));
        self.must_authenticate = true;
        if let At::Device(device) = &self.at {
            device.association.set_unproven(device.qid, true);
        }
        true
    }

    /// The host has proven who it is: it is not one of many any more who claim to be.
    pub(super) fn host_is_proven(&mut self) {
        if !std::mem::take(&mut self.must_authenticate) {
            return;
        }
        let At::Device(device) = &self.at else { return };
        device.association.set_unproven(device.qid, false);
        let guest = Guest::Proven(device.association.hostnqn.clone());
        let commands = self.entries as u16;
        let has_keys = device.qid != 0 && device.ssd.config.vendor_kv;
        let paid = queue_bytes(commands.min(UNPROVEN_COMMANDS), has_keys);
        self.target.memory().move_to(self.pool.purse(), &guest);
        let rest = queue_bytes(commands, has_keys) - paid;
        if !self.target.memory().take_fixed(rest, self.pool.purse()) {
            tracing::warn!(peer = self.peer.address, host = self.host(), "there is no memory for a queue");
            return self.end(EndReason::GaveWay);
        }
        self.slots.grow(commands);
        if device.qid != 0 {
            return;
        }
        let offer = self.target.offer(device.association.subnqn());
        let is_admitted = offer.is_none_or(|offer| offer.places().prove(device.ssd.controller_id(), guest));
        if !is_admitted {
            tracing::warn!(peer = self.peer.address, host = self.host(), "there is no controller for a host");
            self.end(EndReason::GaveWay);
        }
    }

    /// The queue is one of a controller from now on.
    fn open(
        &mut self,
        ssd: Arc<Ssd>,
        association: Arc<Association>,
        wish: &Wish<'_>,
        resets: u32,
        is_unproven: bool,
        otherwise: Refusal,
    ) -> Result<(), Refusal> {
        let (qid, commands) = (wish.connect.qid.0, wish.connect.sqsize_z.saturating_add(1));
        let has_keys = qid != 0 && ssd.config.vendor_kv;
        let paid = if is_unproven { commands.min(UNPROVEN_COMMANDS) } else { commands };
        let bytes = queue_bytes(paid, has_keys) + if qid == 0 { CONTROLLER_BYTES } else { 0 };
        if !self.target.memory().take_fixed(bytes, self.pool.purse()) {
            tracing::debug!(
                peer = self.peer.address,
                host = wish.hostnqn,
                bytes,
                "there is no memory for a queue"
            );
            return Err(Refusal::plain(status::CONTROLLER_BUSY, NO_MEMORY));
        }
        if qid == 0 {
            association.take_seat(0, self.wake.clone());
        }
        let queue =
            DeviceQueue::new(ssd, association, qid, commands, resets, &mut self.pool).ok_or(otherwise)?;
        self.settle(wish, paid);
        self.at = At::Device(Box::new(queue));
        Ok(())
    }

    /// What Connect says of the queue itself, which has paid for so many commands.
    fn settle(&mut self, wish: &Wish<'_>, commands: u16) {
        let Connect { sqsize_z, attributes, .. } = wish.connect;
        self.entries = u32::from(sqsize_z) + 1;
        self.slots.grow(commands);
        self.has_no_flow_control = attributes & Connect::DISABLE_SQ_FLOW_CONTROL != 0;
        self.state = QueueState::Connected;
    }
}

/// Bytes that a queue for so many commands is made of: its rings, what is known of each command, the keys
/// that come in capsules, and capsules with data.
fn queue_bytes(commands: u16, has_keys: bool) -> u64 {
    let key_bytes = if has_keys { KEY_CAPSULE_BYTES as usize } else { 0 };
    let each = SQE_BYTES + CQE_BYTES + SLOT_BYTES + TRANSPORT_BYTES_PER_ENTRY + key_bytes;
    CAPSULES_BYTES + u64::from(commands) * each as u64
}

fn check_admin(wish: &Wish<'_>, entries_max: u32) -> Result<(), Refusal> {
    if wish.connect.qid.0 != 0 {
        return Err(Refusal::of_entry(in_entry::QID, "a discovery controller has an admin queue alone"));
    }
    if u32::from(wish.connect.sqsize_z) >= entries_max {
        return Err(Refusal::of_entry(in_entry::SQSIZE, LARGE_QUEUE));
    }
    // Controllers are made for hosts: none can be asked for (dynamic controller model).
    if wish.data.cntlid.get() != CNTLID_DYNAMIC {
        return Err(Refusal::of_data(in_data::CNTLID, "it asks for a controller, and they are made anew"));
    }
    Ok(())
}

/// CSTS.RDY.
fn is_ready(ssd: &Ssd) -> bool {
    let csts: Csts = lock(&ssd.registers).csts;
    csts.rdy()
}

const _: () = assert!(DATA_BYTES == 1024);
