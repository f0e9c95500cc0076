//! Command capsules: what is asked for, where its data will be, and whether it runs at once.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_spec::auth::MESSAGE_BYTES_MAX;
use unvme_spec::command::{Direction, is_vendor_specific};
use unvme_spec::fabrics::{Command, status};
use unvme_spec::sgl::Descriptor;
use unvme_spec::{Fuse, Sqe, Status, admin, samsung_kv};

use super::device::DeviceQueue;
use super::discovery::DISCOVERY_BYTES_MAX;
use super::queue::{At, Begun, DataWanted, Executed, FabricsQueue, Fatal, QueueState, SlotId};
use super::slots::{Slot, Stage};
use super::staging::{Buffer, LINE_BYTES_MAX, Pool, Terms};
use super::transfer::Transfer;

const SEQUENCE_ERROR: Status = Status::COMMAND_SEQUENCE_ERROR.with_do_not_retry();
const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();
/// Most bytes of data that the commands of a queue have whose host has not proven yet who it is.
const UNPROVEN_BYTES_MAX: u32 = 2 * MESSAGE_BYTES_MAX;
/// Most bytes of one half of a fused pair: a Compare and Write is of one logical block (ACWU), and no
/// namespace has larger ones.
const FUSED_BYTES_MAX: u32 = 64 << 10;

impl FabricsQueue {
    /// Takes a command capsule. The command runs in [`FabricsQueue::poll`].
    #[inline]
    pub fn begin(&mut self, sqe: &Sqe) -> Begun {
        match self.state {
            QueueState::Open | QueueState::Connected => {}
            QueueState::Disconnected | QueueState::Ended(_) => return Begun::Fatal(Fatal::Ended),
        }
        // A host that has to say who it is, and asks for other things, is not kept alive by that.
        self.is_heard |= !self.must_authenticate;
        let transfer = match self.check(sqe) {
            Ok(transfer) => transfer,
            Err(status) => return self.refuse(sqe, status),
        };
        self.is_heard = true;
        if self.entries == 0 {
            // Until Connect has said how many there are, there is room for that one.
            self.slots.grow(1);
        }
        let slot = Slot {
            sqe: *sqe,
            stage: Stage::Filling,
            bytes: transfer.bytes,
            key_bytes: transfer.key_bytes,
            is_write: transfer.way == Direction::ToController,
            is_request: self.is_request(sqe),
            ..Slot::default()
        };
        if self.slots.is_full() {
            return Begun::Fatal(Fatal::TooManyCommands);
        }
        let capsule = match transfer.capsule_bytes() {
            0 => None,
            _ => match self.capsule_buffer(transfer) {
                Some(buffer) => Some(buffer),
                None => return Begun::Full,
            },
        };
        let Some(at) = self.slots.take(slot) else { return Begun::Fatal(Fatal::TooManyCommands) };
        self.pair_up(at);
        if let Some(buffer) = capsule {
            return self.await_capsule(at, transfer, buffer);
        }
        if transfer.bytes == 0 {
            self.run(at);
            return Begun::Run(SlotId(at));
        }
        self.find_memory(at, transfer.bytes, transfer.way)
    }

    /// Memory for what a command has in its capsule.
    #[inline]
    fn capsule_buffer(&mut self, transfer: Transfer) -> Option<Buffer> {
        let is_key_alone = transfer.capsule_bytes() == transfer.key_bytes;
        match is_key_alone {
            true => self.pool.take_for_key(),
            false => self.pool.take_for_capsule(transfer.capsule_bytes(), self.target.memory()),
        }
    }

    #[inline]
    fn await_capsule(&mut self, at: u16, transfer: Transfer, buffer: Buffer) -> Begun {
        if let Some(slot) = self.slots.get_mut(at) {
            // A key whose data comes otherwise has memory of its own: that of the data may have to be waited
            // for.
            if transfer.in_capsule || transfer.bytes == 0 {
                slot.buffer = Some(buffer);
            } else {
                slot.key_buffer = Some(buffer);
            }
        }
        let bytes = transfer.capsule_bytes();
        Begun::NeedsData(DataWanted { slot: SlotId(at), bytes, in_capsule: true })
    }

    /// Memory for a command's data that is not in its capsule, or a place among those that wait for it.
    #[inline]
    fn find_memory(&mut self, at: u16, bytes: u32, way: Direction) -> Begun {
        let is_second = self.slots.get(at).is_some_and(Slot::is_second_half);
        let buffer = if is_second {
            // Its first half has memory already, or is in the line: neither is to wait for the other.
            match self.pool.take(bytes, self.target.memory(), Terms::Urgent) {
                Some(buffer) => Some(buffer),
                None => return self.refuse_second_half(at),
            }
        } else if self.waiting.is_empty() && self.may_hold(bytes) {
            self.pool.take(bytes, self.target.memory(), Terms::Turn(None))
        } else {
            // Behind those who wait already, though there may be memory for it: they would wait for ever.
            None
        };
        let Some(buffer) = buffer else {
            if let Some(slot) = self.slots.get_mut(at) {
                slot.stage = Stage::Waiting(None);
            }
            self.waiting.push_back(at);
            return Begun::Waits(SlotId(at));
        };
        if let Some(slot) = self.slots.get_mut(at) {
            slot.buffer = Some(buffer);
        }
        if way == Direction::ToHost {
            self.run(at);
            return Begun::Run(SlotId(at));
        }
        self.hold(at);
        Begun::NeedsData(DataWanted { slot: SlotId(at), bytes, in_capsule: false })
    }

    /// There is no memory for the second half of a pair: there is no pair, which the first half is told of.
    #[cold]
    fn refuse_second_half(&mut self, at: u16) -> Begun {
        let Some(second) = self.slots.free(at) else { return Begun::Fatal(Fatal::NoMemory) };
        if let Some(first) = second.partner {
            self.leave_alone(first);
        }
        Begun::Refused(self.completion(second.sqe.cid, Status::ABORTED_MISSING_FUSED, 0))
    }

    /// A half of a pair whose other half is not to be.
    fn leave_alone(&mut self, at: u16) {
        let Some(slot) = self.slots.get_mut(at) else { return };
        slot.partner = None;
        if slot.stage == Stage::Paired {
            self.execute(at);
        }
    }

    /// All data that a command has wanted is in its memory. It runs, unless it was its key and its data is
    /// still to come.
    #[inline]
    pub fn data_arrived(&mut self, slot: SlotId) {
        let filling = self.slots.get(slot.0).filter(|slot| slot.stage == Stage::Filling);
        match filling {
            Some(Slot { buffer: Some(_), .. }) => self.run(slot.0),
            Some(&Slot { key_buffer: Some(_), bytes, is_write, .. }) => {
                let way = if is_write { Direction::ToController } else { Direction::ToHost };
                if let Begun::NeedsData(_) = self.find_memory(slot.0, bytes, way) {
                    self.wanted.push_back(slot.0);
                }
            }
            _ => debug_assert!(false, "slot {} wants no data", slot.0),
        }
    }

    /// A command's data has not arrived as it was sent, or not at all: it ends with `status` and is not
    /// executed.
    #[cold]
    pub fn fail(&mut self, slot: SlotId, status: Status) {
        let Some(failed) = self.slots.get_mut(slot.0).filter(|slot| slot.stage == Stage::Filling) else {
            return;
        };
        failed.stage = Stage::Running;
        failed.hold = 0;
        let partner = failed.partner.take();
        if self.first_half == Some(slot.0) {
            self.first_half = None;
        }
        if let Some(partner) = partner {
            self.leave_alone(partner);
        }
        self.executed(slot.0, Err(status), 0);
    }

    #[cold]
    fn refuse(&mut self, sqe: &Sqe, status: Status) -> Begun {
        tracing::debug!(
            peer = self.peer.address,
            queue = self.queue_id(),
            opcode = sqe.opcode,
            cid = sqe.cid,
            %status,
            "a command was refused"
        );
        // A fused pair of which one half is refused is none.
        self.part_first_half();
        Begun::Refused(self.completion(sqe.cid, status, 0))
    }

    /// What can be said of a command before it has data.
    #[inline]
    fn check(&self, sqe: &Sqe) -> Result<Transfer, Status> {
        let is_fabrics = sqe.opcode == admin::opcode::FABRICS;
        let device = match &self.at {
            At::Device(device) => device,
            At::Unconnected => return check_first(sqe),
            At::Discovery(discovery) => {
                let transfer = Transfer::parse(sqe, true)?;
                self.check_cid(sqe)?;
                if is_fabrics {
                    self.check_fabrics(sqe, transfer)?;
                } else if self.must_authenticate {
                    return Err(status::AUTHENTICATION_REQUIRED);
                } else if !discovery.is_enabled() {
                    return Err(SEQUENCE_ERROR);
                }
                return self.check_size(transfer, DISCOVERY_BYTES_MAX.into());
            }
        };
        let is_admin = device.qid == 0;
        if is_fabrics && !is_admin {
            self.check_fabrics_kind(sqe)?;
        }
        let is_vendor = !is_admin && is_vendor_specific(sqe.opcode, false) && device.ssd.config.vendor_kv;
        let transfer = if is_vendor { Transfer::parse_pairs(sqe) } else { Transfer::parse(sqe, is_admin) }?;
        self.check_cid(sqe)?;
        if is_fabrics {
            self.check_fabrics(sqe, transfer)?;
        } else {
            if self.must_authenticate {
                return Err(status::AUTHENTICATION_REQUIRED);
            }
            if device.is_disabled() {
                return Err(SEQUENCE_ERROR);
            }
            if !is_admin {
                check_reach(device)?;
                check_halves(sqe, transfer)?;
            }
        }
        self.check_size(transfer, device.ssd.transfer_bytes_max)
    }

    /// Identifiers of commands that have not been answered are different. Asynchronous Event Requests are
    /// compared with each other alone when another command comes: SPDK's host counts them apart.
    #[inline]
    fn check_cid(&self, sqe: &Sqe) -> Result<(), Status> {
        let is_taken = self.slots.find(sqe.cid).is_some()
            || (self.is_request(sqe) && self.slots.find_request(sqe.cid).is_some());
        if is_taken { Err(Status::COMMAND_ID_CONFLICT.with_do_not_retry()) } else { Ok(()) }
    }

    /// Whether it is an Asynchronous Event Request: on an I/O queue the opcode is another command's.
    #[inline]
    fn is_request(&self, sqe: &Sqe) -> bool {
        sqe.opcode == admin::opcode::ASYNC_EVENT_REQUEST && self.queue_id() == Some(0)
    }

    /// A command that could never have memory is refused, rather than left waiting.
    #[inline]
    fn check_size(&self, transfer: Transfer, bytes_max: u64) -> Result<Transfer, Status> {
        let bytes = u64::from(transfer.bytes);
        let is_too_large =
            bytes > bytes_max || (bytes > 4096 && Pool::cost(transfer.bytes) > self.budget().command_limit());
        if is_too_large { Err(INVALID_FIELD) } else { Ok(transfer) }
    }

    /// Whether the queue may have memory for another command's data: a connection has no more at a time than
    /// its host fills or empties in good time. What anybody can reach, who is known to nobody, has little, so
    /// that it does not keep others from theirs.
    #[inline]
    pub(super) fn may_hold(&self, bytes: u32) -> bool {
        let sum = self.pool.in_use() + Pool::buffer_bytes(bytes);
        match &self.at {
            _ if self.must_authenticate => sum <= UNPROVEN_BYTES_MAX.into(),
            At::Discovery(_) => sum <= DISCOVERY_BYTES_MAX.into(),
            _ => sum <= LINE_BYTES_MAX || self.pool.in_use() <= LINE_BYTES_MAX / 8,
        }
    }

    /// Of the Fabrics commands, I/O queues have Authentication Send and Receive and Disconnect (Base 6). Any
    /// other, a second Connect included, is an opcode that they do not have, whatever its data pointer says.
    fn check_fabrics_kind(&self, sqe: &Sqe) -> Result<(), Status> {
        match Command::parse(sqe) {
            Command::AuthenticationSend(_) | Command::AuthenticationReceive(_) => Ok(()),
            _ if self.must_authenticate => Err(status::AUTHENTICATION_REQUIRED),
            Command::Disconnect { .. } => Ok(()),
            _ => Err(Status::INVALID_OPCODE.with_do_not_retry()),
        }
    }

    /// Fabrics commands are for some kinds of queues, and some have to wait for authentication.
    fn check_fabrics(&self, sqe: &Sqe, transfer: Transfer) -> Result<(), Status> {
        let is_admin = self.queue_id() == Some(0);
        let command = Command::parse(sqe);
        let is_about_who =
            matches!(command, Command::AuthenticationSend(_) | Command::AuthenticationReceive(_));
        if self.must_authenticate && !is_about_who {
            return Err(status::AUTHENTICATION_REQUIRED);
        }
        match command {
            Command::Connect(_) => Err(SEQUENCE_ERROR),
            Command::PropertyGet(_) | Command::PropertySet(_) => Ok(()),
            Command::Disconnect { .. } if is_admin => Err(status::INVALID_QUEUE_TYPE.with_do_not_retry()),
            Command::Disconnect { .. } => Ok(()),
            Command::AuthenticationSend(command) | Command::AuthenticationReceive(command) => {
                // Nobody knows who asks: no more memory than there are messages for, and no message beyond
                // it.
                let fits = command.bytes <= transfer.bytes && transfer.bytes <= MESSAGE_BYTES_MAX;
                if fits { Ok(()) } else { Err(INVALID_FIELD) }
            }
            _ => Err(Status::INVALID_OPCODE.with_do_not_retry()),
        }
    }

    /// A first half of a fused pair waits for the command behind it, which is its second half or none.
    #[inline]
    fn pair_up(&mut self, at: u16) {
        let Some(slot) = self.slots.get(at) else { return };
        let fuse = slot.sqe.fuse();
        if fuse == Fuse::Normal && self.first_half.is_none() {
            return;
        }
        self.pair_up_fused(at, fuse);
    }

    #[cold]
    fn pair_up_fused(&mut self, at: u16, fuse: Fuse) {
        if self.queue_id() == Some(0) {
            // Admin commands are never fused: the controller says so.
            return;
        }
        match self.first_half {
            Some(first) if fuse == Fuse::Second => {
                self.first_half = None;
                for (slot, partner) in [(first, at), (at, first)] {
                    if let Some(slot) = self.slots.get_mut(slot) {
                        slot.partner = Some(partner);
                    }
                }
            }
            _ => {
                self.part_first_half();
                if fuse == Fuse::First {
                    self.first_half = Some(at);
                    self.first_half_since = None;
                }
            }
        }
    }

    /// The first half of a pair stays alone.
    pub(super) fn part_first_half(&mut self) {
        if let Some(first) = self.first_half.take()
            && self.slots.get(first).is_some_and(|slot| slot.stage == Stage::Paired)
        {
            self.execute(first);
        }
    }

    /// A command has all that it needs.
    #[inline]
    pub(super) fn run(&mut self, at: u16) {
        let Some(slot) = self.slots.get_mut(at) else { return };
        slot.hold = 0;
        let is_fused = slot.partner.is_some() || self.first_half == Some(at);
        if !is_fused {
            return self.execute(at);
        }
        let partner = slot.partner;
        if let Some(slot) = self.slots.get_mut(at) {
            slot.stage = Stage::Paired;
        }
        let Some(partner) = partner else { return };
        let stage = self.slots.get(partner).map(|slot| slot.stage);
        let is_first = self.slots.get(at).is_some_and(|slot| slot.sqe.fuse() == Fuse::First);
        match stage {
            // The controller finds the pair next to each other.
            Some(Stage::Paired) => {
                let (first, second) = if is_first { (at, partner) } else { (partner, at) };
                self.execute(first);
                self.execute(second);
            }
            Some(_) => {}
            None => self.execute(at),
        }
    }

    /// Hands a command to whoever executes it.
    #[inline]
    fn execute(&mut self, at: u16) {
        let Some(slot) = self.slots.get_mut(at) else { return };
        slot.stage = Stage::Running;
        if slot.sqe.opcode == admin::opcode::FABRICS {
            return self.execute_fabrics(at);
        }
        let device = match &mut self.at {
            At::Device(device) => device,
            At::Discovery(_) => return self.execute_discovery(at),
            // Nothing but Connect begins there.
            At::Unconnected => return,
        };
        let mut sqe = slot.sqe;
        sqe.set_sgl();
        sqe.dptr = [0; 2];
        if let Some(key) = slot.key_memory() {
            // The controller knows it as one in host memory.
            samsung_kv::set_key_prp(&mut sqe, [self.pool.iova(key).unwrap_or_default(), 0]);
        }
        if let Some(buffer) = slot.buffer.filter(|_| slot.bytes > 0) {
            let iova = self.pool.iova(buffer).unwrap_or_default() + u64::from(slot.before_data());
            sqe.dptr = Descriptor::data_block(iova, slot.bytes).to_dptr();
        }
        device.push(&sqe, slot.is_request);
    }

    /// A command has been executed here.
    pub(super) fn executed(&mut self, slot: u16, answer: Result<u64, Status>, bytes: u32) {
        let (status, result) = match answer {
            Ok(result) => (Status::SUCCESS, result),
            Err(status) => (status, 0),
        };
        self.executed.push_back(Executed { slot, status, result, bytes });
    }
}

/// The first command of a queue is Connect.
fn check_first(sqe: &Sqe) -> Result<Transfer, Status> {
    let transfer = Transfer::parse(sqe, true)?;
    let is_connect =
        sqe.opcode == admin::opcode::FABRICS && matches!(Command::parse(sqe), Command::Connect(_));
    if !is_connect {
        return Err(SEQUENCE_ERROR);
    }
    match transfer.bytes {
        super::connect::DATA_BYTES => Ok(transfer),
        _ => Err(Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry()),
    }
}

/// Half a pair may wait long for the other half: with little memory alone.
#[inline]
fn check_halves(sqe: &Sqe, transfer: Transfer) -> Result<(), Status> {
    if sqe.fuse() != Fuse::Normal && transfer.bytes > FUSED_BYTES_MAX {
        return Err(Status::ATOMIC_WRITE_UNIT_EXCEEDED.with_do_not_retry());
    }
    Ok(())
}

/// An I/O command where the namespaces can be reached.
#[inline]
fn check_reach(device: &DeviceQueue) -> Result<(), Status> {
    device.association.reach.state().refusal().map_or(Ok(()), Err)
}
