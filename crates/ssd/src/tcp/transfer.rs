//! R2Ts, and the data that they ask for.
//!
//! The data of a command is asked for in parts of at most [`Limits::r2t_bytes_max`](super::Limits), of which
//! so many are outstanding at a time as both sides allow. Each part has a transfer tag of its own. The host
//! may send the data of parts in any order; within a part it goes from the first byte to the last.

use unvme_spec::Status;

use super::Connection;
use super::limits::R2TS_MAX;
use super::reply::Reply;
use crate::fabrics::{DataWanted, SlotId, TRANSPORT_BYTES_PER_ENTRY};

/// The parts that are outstanding, and the commands they belong to.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    /// By transfer tag.
    parts: Vec<Option<Part>>,
    /// Tags that are free.
    free: Vec<u16>,
    /// By slot; entries of commands that want no data are leftovers.
    commands: Vec<Wanting>,
    /// Bytes that were asked for and are not there.
    expected_bytes: u64,
}

/// Data that was asked for by one R2T: bytes of the command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) slot: SlotId,
    pub(super) cid: u16,
    pub(super) start: u32,
    /// The byte that comes next.
    pub(super) next: u32,
    pub(super) end: u32,
}

/// A command that wants data.
#[derive(Clone, Copy, Debug, Default)]
struct Wanting {
    cid: u16,
    bytes: u32,
    /// Bytes that it was asked for, from the first one on.
    asked: u32,
    outstanding: u32,
    /// A part arrived with a wrong digest: the rest of what was asked for is still taken, and thrown away.
    is_damaged: bool,
}

/// What a connection has for a command, with the room that lists have to grow.
const BYTES_PER_COMMAND: usize = {
    let parts = R2TS_MAX as usize * (size_of::<Option<Part>>() + size_of::<u16>());
    parts + size_of::<Wanting>() + 2 * size_of::<Reply>()
};
const _: () = assert!(BYTES_PER_COMMAND <= TRANSPORT_BYTES_PER_ENTRY);

impl Transfers {
    /// Bytes that the host is to send and has not sent.
    pub(super) fn expected_bytes(&self) -> u64 {
        self.expected_bytes
    }

    /// The part that a tag stands for.
    pub(super) fn get(&self, ttag: u16) -> Option<Part> {
        self.parts.get(usize::from(ttag)).copied().flatten()
    }

    /// A command may want data; this is its identifier.
    pub(super) fn expect(&mut self, slot: SlotId, cid: u16) {
        let index = usize::from(slot.0);
        if index >= self.commands.len() {
            self.commands.resize(index.saturating_add(1), Wanting::default());
        }
        if let Some(command) = self.commands.get_mut(index) {
            *command = Wanting { cid, ..Wanting::default() };
        }
    }

    /// Opens the next part of a command, if there is one and it may be outstanding.
    fn open(&mut self, slot: SlotId, bytes_max: u32, outstanding_max: u32) -> Option<(u16, Part)> {
        let command = self.commands.get_mut(usize::from(slot.0))?;
        let left = command.bytes.saturating_sub(command.asked);
        if left == 0 || command.is_damaged || command.outstanding >= outstanding_max {
            return None;
        }
        let tag = match self.free.pop() {
            Some(tag) => tag,
            None => {
                // When all tags are in use, the command goes on when one of its parts is there; each has a
                // first one, since there are more tags than slots.
                let tag = u16::try_from(self.parts.len()).ok()?;
                self.parts.push(None);
                tag
            }
        };
        let start = command.asked;
        command.asked = start.saturating_add(left.min(bytes_max));
        command.outstanding = command.outstanding.saturating_add(1);
        let part = Part { slot, cid: command.cid, start, next: start, end: command.asked };
        self.expected_bytes = self.expected_bytes.saturating_add(u64::from(part.end.saturating_sub(start)));
        *self.parts.get_mut(usize::from(tag))? = Some(part);
        Some((tag, part))
    }

    /// `bytes` more of a part are there. True when that was the last of it.
    fn advance(&mut self, ttag: u16, bytes: u32) -> bool {
        self.expected_bytes = self.expected_bytes.saturating_sub(u64::from(bytes));
        let Some(entry) = self.parts.get_mut(usize::from(ttag)) else { return false };
        let Some(part) = entry else { return false };
        part.next = part.next.saturating_add(bytes);
        if part.next < part.end {
            return false;
        }
        if let Some(command) = self.commands.get_mut(usize::from(part.slot.0)) {
            command.outstanding = command.outstanding.saturating_sub(1);
        }
        *entry = None;
        self.free.push(ttag);
        true
    }
}

impl Connection {
    /// Asks for the data of a command.
    pub(super) fn ask_for(&mut self, wanted: DataWanted) {
        if let Some(command) = self.transfers.commands.get_mut(usize::from(wanted.slot.0)) {
            command.bytes = wanted.bytes;
        }
        self.ask(wanted.slot);
    }

    /// Asks for the data of commands that have memory for it now.
    pub(super) fn ask_for_wanted(&mut self) {
        while let Some(wanted) = self.queue.next_wanted() {
            self.ask_for(wanted);
        }
    }

    fn ask(&mut self, slot: SlotId) {
        let (bytes_max, outstanding_max) = (self.limits.r2t_bytes_max, self.agreed.r2ts_max);
        while let Some((ttag, part)) = self.transfers.open(slot, bytes_max, outstanding_max) {
            self.replies.push_back(Reply::Ready { ttag, part });
        }
    }

    /// The data of a PDU is there.
    pub(super) fn transferred(&mut self, ttag: u16, bytes: usize, is_intact: bool) {
        let Some(Part { slot, .. }) = self.transfers.get(ttag) else { return };
        // A PDU has at most MAXH2CDATA bytes.
        let is_whole = self.transfers.advance(ttag, u32::try_from(bytes).unwrap_or(u32::MAX));
        let Some(command) = self.transfers.commands.get_mut(usize::from(slot.0)) else { return };
        command.is_damaged |= !is_intact;
        let command = *command;
        if !is_whole {
            return;
        }
        self.watch.data.progress();
        if command.outstanding > 0 || (command.asked < command.bytes && !command.is_damaged) {
            return self.ask(slot);
        }
        match command.is_damaged {
            true => self.queue.fail(slot, Status::TRANSIENT_TRANSPORT_ERROR),
            false => {
                self.round.add(command.bytes as usize);
                self.queue.data_arrived(slot);
            }
        }
    }
}
