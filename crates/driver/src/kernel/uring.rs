//! An io_uring with a slot for each command: the memory of what the kernel works on belongs to its slot until
//! the kernel has said that it is done.
// UNSAFETY: the kernel is handed addresses of memory that it reads and writes later. A slot owns the buffers
// of its operation from before the entry is pushed until its completion has been seen, and leaks them when
// none comes.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::types::{Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use unvme_bus::{AddressSpace, DmaBuf, EventFd};
use unvme_spec::{Cid, Sqe};

use super::errno;
use super::fixed::FixedBuffers;
use super::wire;
use crate::Error;

/// End of the list of free slots.
const NONE: u32 = u32::MAX;
/// User data of what belongs to no slot: cancellations.
const NOBODY: u64 = u64::MAX;
/// Places for files that are registered.
const FILES_MAX: u32 = 1024;

/// How a ring is made.
pub(super) struct UringOptions {
    /// Slots.
    pub(super) depth: u16,
    /// The device's poll queues are used, and looked at by whoever waits (IORING_SETUP_IOPOLL).
    pub(super) polls_device: bool,
    /// Completions wait until their submitter makes a system call or is interrupted anyway
    /// (IORING_SETUP_COOP_TASKRUN): less disturbance for a thread that looks all the time, a late answer for
    /// one that sleeps elsewhere.
    pub(super) cooperative: bool,
}

/// Which of a slot's buffers an operation moves data from or to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The caller's.
    Payload,
    /// The slot's own, see [`Uring::lend`].
    Scratch,
}

/// What the kernel is asked to do, on registered file `file`.
pub(super) enum Operation<'a> {
    /// An NVMe command with `bytes` bytes of the payload.
    Command { file: u32, kind: wire::CommandKind, sqe: &'a Sqe, bytes: u32, timeout: Duration },
    /// Reads from `offset` of the file.
    Read { file: u32, offset: u64, place: Place, skip: usize, bytes: usize },
    /// Writes the payload at `offset` of the file; with `sync` it is on the media then.
    Write { file: u32, offset: u64, skip: usize, bytes: usize, sync: bool },
    /// Everything written is on the media.
    Sync { file: u32 },
    /// fallocate(2).
    Allocate { file: u32, mode: i32, offset: u64, bytes: u64 },
    /// Discard of a block device.
    Discard { file: u32, offset: u64, bytes: u64 },
}

struct Slot {
    token: u64,
    buf: Option<DmaBuf>,
    scratch: Option<DmaBuf>,
    /// Next free slot.
    next: u32,
    /// Counts operations: completions of earlier ones are recognised.
    generation: u32,
    /// The kernel has an operation of it.
    in_flight: bool,
    taken: bool,
    /// Kept by [`crate::watch`]; 0 when it has not seen the command yet.
    deadline: u64,
}

/// An operation that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reaped {
    pub(super) index: u32,
    /// What the operation returned, or a negative errno.
    pub(super) res: i32,
    /// The first extra word: the result of an NVMe command.
    pub(super) result: u64,
}

pub(super) struct Uring {
    ring: IoUring<Entry128, cqueue::Entry32>,
    slots: Box<[Slot]>,
    /// First free slot. Last in, first out: the slot used last is the one in the cache.
    free: u32,
    taken: u32,
    /// Entries the kernel has not been told about.
    unsent: u32,
    in_flight: u32,
    buffers: FixedBuffers,
    polls_device: bool,
}

impl Uring {
    pub(super) fn new(memory: &Arc<AddressSpace>, options: &UringOptions) -> Result<Self, Error> {
        let mut builder = IoUring::builder();
        builder.setup_submit_all().dontfork();
        if options.polls_device {
            builder.setup_iopoll();
        } else if options.cooperative {
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }
        let ring = builder.build(options.depth.into()).map_err(|e| ring_error(&e))?;
        ring.submitter().register_files_sparse(FILES_MAX).map_err(|e| ring_error(&e))?;
        let depth = u32::from(options.depth);
        let slots = (0..depth)
            .map(|index| Slot {
                token: 0,
                buf: None,
                scratch: None,
                next: if index + 1 == depth { NONE } else { index + 1 },
                generation: 0,
                in_flight: false,
                taken: false,
                deadline: 0,
            })
            .collect();
        Ok(Self {
            buffers: FixedBuffers::new(&ring, Arc::clone(memory)),
            ring,
            slots,
            free: 0,
            taken: 0,
            unsent: 0,
            in_flight: 0,
            polls_device: options.polls_device,
        })
    }

    /// Registers `file` as number `index`.
    pub(super) fn register_file(&self, index: u32, file: BorrowedFd<'_>) -> Result<(), Error> {
        if index >= FILES_MAX {
            return Err(Error::Exhausted(format!("a queue reaches {FILES_MAX} namespaces, and no more")));
        }
        match self.ring.submitter().register_files_update(index, &[file.as_raw_fd()]) {
            Ok(_) => Ok(()),
            Err(e) => Err(ring_error(&e)),
        }
    }

    /// Has the kernel signal `event` for each completion.
    pub(super) fn register_event(&self, event: &EventFd) -> Result<(), Error> {
        use std::os::fd::AsFd;
        let fd = event.as_fd().as_raw_fd();
        self.ring.submitter().register_eventfd(fd).map_err(|e| ring_error(&e))
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Slots in use.
    #[inline]
    pub(super) fn taken(&self) -> usize {
        self.taken as usize
    }

    /// Operations the kernel has, or will have with the next [`Uring::send`].
    #[inline]
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Takes a slot for a command; gives the buffer back when there is none.
    #[inline]
    pub(super) fn take(&mut self, buf: Option<DmaBuf>, token: u64) -> Result<u32, Option<DmaBuf>> {
        let index = self.free;
        let Some(slot) = self.slots.get_mut(index as usize) else { return Err(buf) };
        self.free = slot.next;
        slot.token = token;
        slot.buf = buf;
        slot.deadline = 0;
        slot.taken = true;
        self.taken += 1;
        Ok(index)
    }

    /// A buffer of its own for a slot, for as long as its command takes.
    pub(super) fn lend(&mut self, index: u32, scratch: DmaBuf) {
        let slot = &mut self.slots[index as usize];
        assert!(!slot.in_flight, "the kernel may be using the buffer that would be replaced");
        slot.scratch = Some(scratch);
    }

    /// The slot's buffers, of the caller and its own.
    pub(super) fn buffers(&self, index: u32) -> (Option<&DmaBuf>, Option<&DmaBuf>) {
        let slot = &self.slots[index as usize];
        (slot.buf.as_ref(), slot.scratch.as_ref())
    }

    /// Writes the entry of an operation of slot `index`, which has none in flight. The kernel is told by
    /// [`Uring::send`].
    ///
    /// # Errors
    /// What kept the kernel from making room in a full submission queue.
    ///
    /// # Panics
    /// For an operation beyond the slot's buffers.
    #[inline]
    pub(super) fn start(&mut self, index: u32, operation: &Operation<'_>) -> Result<(), Error> {
        let slot = &self.slots[index as usize];
        assert!(slot.taken && !slot.in_flight, "a slot has one operation at a time");
        let entry = match *operation {
            Operation::Command { file, kind, sqe, bytes, timeout } => {
                let (address, fixed) = self.address(index, Place::Payload, 0, bytes as usize);
                wire::command(file, kind, sqe, wire::Data { address, bytes, fixed }, timeout)
            }
            Operation::Read { file, offset, place, skip, bytes } => {
                let (address, fixed) = self.address(index, place, skip, bytes);
                wire::read(file, offset, wire::Data { address, bytes: bytes as u32, fixed })
            }
            Operation::Write { file, offset, skip, bytes, sync } => {
                let (address, fixed) = self.address(index, Place::Payload, skip, bytes);
                wire::write(file, offset, wire::Data { address, bytes: bytes as u32, fixed }, sync)
            }
            Operation::Sync { file } => {
                opcode::Fsync::new(Fixed(file)).flags(FsyncFlags::DATASYNC).build().into()
            }
            Operation::Allocate { file, mode, offset, bytes } => {
                opcode::Fallocate::new(Fixed(file), bytes).offset(offset).mode(mode).build().into()
            }
            Operation::Discard { file, offset, bytes } => wire::discard(file, offset, bytes),
        };
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let entry = entry.user_data(u64::from(slot.generation) << 32 | u64::from(index));
        self.push(&entry)?;
        self.slots[index as usize].in_flight = true;
        self.in_flight += 1;
        Ok(())
    }

    /// Where bytes of a slot's buffer are, and the number they are registered under.
    #[inline]
    fn address(&mut self, index: u32, place: Place, skip: usize, bytes: usize) -> (u64, Option<u16>) {
        let slot = &self.slots[index as usize];
        let buf = match place {
            Place::Payload => slot.buf.as_ref(),
            Place::Scratch => slot.scratch.as_ref(),
        };
        let Some(buf) = buf.filter(|_| bytes > 0) else {
            assert!(bytes == 0, "an operation that moves data has a buffer");
            return (0, None);
        };
        // The region can be longer than the buffer: vendor commands move whole dwords.
        let room = buf.region().len();
        assert!(skip <= room && bytes <= room - skip, "{bytes} bytes at {skip} of a buffer of {room}");
        let fixed = self.buffers.number(&self.ring, buf.iova());
        (buf.region().as_ptr() as u64 + skip as u64, fixed)
    }

    #[inline]
    fn push(&mut self, entry: &Entry128) -> Result<(), Error> {
        if self.ring.submission().is_full() {
            self.send()?;
        }
        // SAFETY: the entry names memory of its slot's buffers only, whose length was checked; they stay
        // where they are until `finish`, which wants the operation's completion to have been seen, or are
        // leaked.
        if unsafe { self.ring.submission().push(entry) }.is_err() {
            return Err(ring_error(&io::Error::from_raw_os_error(libc::EBUSY)));
        }
        self.unsent += 1;
        Ok(())
    }

    /// Tells the kernel about the entries written since the last call.
    #[inline]
    pub(super) fn send(&mut self) -> Result<(), Error> {
        let mut rounds = 0;
        while self.unsent > 0 {
            match self.ring.submit() {
                Ok(count) => self.unsent = self.unsent.saturating_sub(count as u32),
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                // Memory is short, or completions wait to be taken: the entries stay where they are.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => return Ok(()),
                Err(e) => return Err(enter_error(&e)),
            }
            rounds += 1;
            if rounds > SEND_ROUNDS_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Lets the kernel put completions into the ring where that takes a call: with the device's poll queues,
    /// and when it says that some wait. Sends what has not been sent, too.
    #[inline]
    pub(super) fn look(&mut self) -> Result<(), Error> {
        if self.unsent > 0 {
            return self.send();
        }
        if self.in_flight > 0 && (self.polls_device || self.ring.submission().taskrun()) {
            match self.ring.submit() {
                Ok(_) => {}
                Err(e) if is_passing(&e) => {}
                Err(e) => return Err(enter_error(&e)),
            }
        }
        Ok(())
    }

    /// Sleeps in the kernel until a completion is there, or `limit` has passed.
    pub(super) fn sleep(&mut self, limit: Duration) -> Result<(), Error> {
        if self.polls_device {
            // Nothing wakes a sleeper there, and the kernel would look for as long as it takes.
            std::thread::sleep(limit.min(NAP));
            return self.look();
        }
        let limit = Timespec::from(limit);
        let args = SubmitArgs::new().timespec(&limit);
        match self.ring.submitter().submit_with_args(1, &args) {
            Ok(count) => {
                self.unsent = self.unsent.saturating_sub(count as u32);
                Ok(())
            }
            Err(e) if e.raw_os_error() == Some(libc::ETIME) => {
                // What was submitted before the time passed is not told.
                self.unsent = self.ring.submission().len() as u32;
                Ok(())
            }
            Err(e) if is_passing(&e) => Ok(()),
            Err(e) => Err(enter_error(&e)),
        }
    }

    /// Takes the next completion out of the ring. Those of operations that were given up are dropped.
    #[inline]
    pub(super) fn reap(&mut self) -> Option<Reaped> {
        loop {
            let entry = self.ring.completion().next()?;
            let (index, generation) = (entry.user_data() as u32, (entry.user_data() >> 32) as u32);
            let slot = self.slots.get_mut(index as usize).filter(|_| entry.user_data() != NOBODY);
            match slot {
                Some(slot) if slot.in_flight && slot.generation == generation => {
                    slot.in_flight = false;
                    self.in_flight -= 1;
                    return Some(Reaped { index, res: entry.result(), result: entry.big_cqe()[0] });
                }
                _ => tracing::debug!(user_data = entry.user_data(), "a completion that nobody waits for"),
            }
        }
    }

    /// Frees a slot whose operation has ended; token and buffer of its command.
    #[inline]
    pub(super) fn finish(&mut self, index: u32) -> (u64, Option<DmaBuf>) {
        let slot = &mut self.slots[index as usize];
        assert!(slot.taken && !slot.in_flight, "the kernel may still use the buffer");
        let (token, buf) = (slot.token, slot.buf.take());
        slot.scratch = None;
        slot.taken = false;
        slot.next = self.free;
        self.free = index;
        self.taken -= 1;
        (token, buf)
    }

    /// Gives an operation up whose completion does not come: its buffers are leaked, as the kernel may still
    /// write them.
    pub(super) fn give_up(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if slot.in_flight {
            slot.in_flight = false;
            slot.generation = slot.generation.wrapping_add(1);
            std::mem::forget((slot.buf.take(), slot.scratch.take()));
            self.in_flight -= 1;
        }
    }

    /// Asks the kernel to end the operation of a slot; its completion says whether it did.
    pub(super) fn cancel(&mut self, index: u32) -> Result<(), Error> {
        let user_data = u64::from(self.slots[index as usize].generation) << 32 | u64::from(index);
        let entry: Entry128 = opcode::AsyncCancel::new(user_data).build().user_data(NOBODY).into();
        self.push(&entry)?;
        self.send()
    }

    /// The slots whose operation the kernel has, each with its deadline, which starts at 0.
    pub(super) fn deadlines(&mut self) -> impl Iterator<Item = (Cid, &mut u64)> {
        let indexed = self.slots.iter_mut().enumerate();
        indexed
            .filter(|(_, slot)| slot.in_flight)
            .map(|(index, slot)| (Cid(index as u16), &mut slot.deadline))
    }
}

/// Between two looks at a device that is polled, by those who are not in a hurry.
const NAP: Duration = Duration::from_millis(1);
/// Calls in a row that make no headway before the rest is left to the next one.
const SEND_ROUNDS_MAX: u32 = 64;

impl Drop for Uring {
    fn drop(&mut self) {
        for index in 0..self.slots.len() as u32 {
            self.give_up(index);
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME))
}

fn ring_error(error: &io::Error) -> Error {
    errno::explain_ring(error.raw_os_error().unwrap_or(libc::EIO))
}

fn enter_error(error: &io::Error) -> Error {
    let source = io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO));
    Error::Bus(unvme_bus::BusError::os("io_uring_enter", source))
}
