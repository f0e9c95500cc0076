//! What is outstanding: a slot for each command, and one for each piece of a command that is cut.

use sdk::{DmaBuf, Status};

use crate::queue::memory::Memory;
use crate::result::Code;

/// Ends the list of free slots.
const NONE: u32 = u32::MAX;

/// Where the data of a command or a piece is.
#[derive(Clone, Copy)]
pub(super) struct Data {
    /// A copy is to be made of what was read, to here; null: none.
    pub(super) copy_to: *mut u8,
    /// Bytes of it.
    pub(super) bytes: usize,
    /// The buffer is a part of the program's memory, and not one of the queue's own.
    pub(super) is_lent: bool,
}

impl Data {
    /// None.
    pub(super) const NONE: Self = Self { copy_to: std::ptr::null_mut(), bytes: 0, is_lent: false };
}

/// What is special about a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    /// A key that is not there is what was wanted.
    Forgiving,
    /// Its result is the size of the value.
    Retrieve,
}

struct Slot {
    /// The program's.
    token: u64,
    data: Data,
    /// The slot of the command that this is a piece of; of a command, the slot itself.
    command: u32,
    /// What it waits for: its own completion, or those of its pieces.
    left: u32,
    /// First status that is not success.
    status: Status,
    /// Why a piece was not even submitted.
    code: Code,
    kind: Kind,
    next: u32,
}

/// A command that has ended.
pub(crate) struct Finished {
    pub(crate) token: u64,
    /// Of a Retrieve, bytes of the whole value.
    pub(crate) value_bytes: u64,
    pub(crate) code: Code,
    pub(crate) status: Status,
}

/// Slots of a queue.
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: u32,
}

impl Slots {
    /// For so many commands, and as many pieces.
    pub(super) fn new(depth: usize) -> Self {
        let count = 2 * depth as u32;
        let slot = |index| Slot {
            token: 0,
            data: Data::NONE,
            command: index,
            left: 0,
            status: Status::SUCCESS,
            code: Code::SUCCESS,
            kind: Kind::Plain,
            next: if index + 1 < count { index + 1 } else { NONE },
        };
        Self { slots: (0..count).map(slot).collect(), free: if depth == 0 { NONE } else { 0 } }
    }

    /// Commands that can be outstanding.
    #[inline]
    pub(super) fn depth(&self) -> usize {
        self.slots.len() / 2
    }

    /// A slot for a command.
    #[inline(always)]
    pub(super) fn take(&mut self, token: u64, data: Data, kind: Kind) -> u64 {
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        self.free = slot.next;
        (slot.token, slot.data, slot.command, slot.left) = (token, data, index, 1);
        (slot.status, slot.code, slot.kind) = (Status::SUCCESS, Code::SUCCESS, kind);
        index.into()
    }

    /// A slot for a piece of a command, which ends after it. The command's own slot waits for
    /// [`Slots::all_submitted`].
    pub(super) fn take_piece(&mut self, command: u64, data: Data) -> u64 {
        let index = self.take(0, data, Kind::Plain);
        self.slots[index as usize].command = command as u32;
        self.slots[command as usize].left += 1;
        index
    }

    /// A command fails with this, unless a piece has failed before.
    pub(super) fn fail(&mut self, command: u64, code: Code) {
        self.slots[command as usize].code = code;
    }

    /// No more pieces follow; the command, when it has ended with that.
    pub(super) fn all_submitted(&mut self, command: u64) -> Option<Finished> {
        self.less(command as u32, 0)
    }

    /// The buffer goes where it belongs, with a copy of what was read to where that is wanted.
    #[inline(always)]
    fn put_away(data: Data, is_success: bool, buf: Option<DmaBuf>, memory: &mut Memory) {
        let Some(buf) = buf else { return };
        if data.is_lent {
            memory.park(buf);
        } else {
            memory.take_bounce(buf, if is_success { data.copy_to } else { std::ptr::null_mut() }, data.bytes);
        }
    }

    /// What the device says of a slot, `result` being dword 0 of a command for pairs; the command, when it
    /// has ended with that.
    #[inline(always)]
    pub(super) fn finish(
        &mut self,
        index: u64,
        status: Status,
        result: u32,
        buf: Option<DmaBuf>,
        memory: &mut Memory,
    ) -> Option<Finished> {
        let slot = &self.slots[index as usize];
        let (command, mut data) = (slot.command, slot.data);
        let value_bytes = if slot.kind == Kind::Retrieve && status.is_success() { result } else { 0 };
        if slot.kind == Kind::Retrieve {
            // What is behind the value is not the program's.
            data.bytes = data.bytes.min(value_bytes as usize);
        }
        Self::put_away(data, status.is_success(), buf, memory);
        if u64::from(command) != index {
            self.release(index as u32);
        }
        let slot = &mut self.slots[command as usize];
        if !status.is_success() && slot.status.is_success() {
            slot.status = status;
        }
        self.less(command, value_bytes)
    }

    #[inline(always)]
    fn less(&mut self, command: u32, value_bytes: u32) -> Option<Finished> {
        let slot = &mut self.slots[command as usize];
        slot.left -= 1;
        if slot.left > 0 {
            return None;
        }
        let code = match Code::of_status(slot.status) {
            Code::SUCCESS => slot.code,
            Code::NOT_EXIST_KEY if slot.kind == Kind::Forgiving => Code::SUCCESS,
            code => code,
        };
        let finished =
            Finished { token: slot.token, value_bytes: value_bytes.into(), code, status: slot.status };
        self.release(command);
        Some(finished)
    }

    /// Gives a slot back whose command or piece was not taken.
    #[cold]
    pub(super) fn give_up(&mut self, index: u64, buf: Option<DmaBuf>, memory: &mut Memory) {
        let slot = &self.slots[index as usize];
        let command = slot.command;
        Self::put_away(slot.data, false, buf, memory);
        if u64::from(command) != index {
            self.slots[command as usize].left -= 1;
        }
        self.release(index as u32);
    }

    #[inline(always)]
    fn release(&mut self, index: u32) {
        self.slots[index as usize].next = self.free;
        self.free = index;
    }
}
