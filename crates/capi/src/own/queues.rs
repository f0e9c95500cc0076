//! Queues: submit and poll, by one thread.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::time::Duration;

use sdk::handle::QueuePriority;
use sdk::{CompletionMode, DEPTH_MAX, QueueOptions, Status, VendorCommands, lock};

use crate::boundary::{call, call_often, quietly};
use crate::handle;
use crate::queue::{Command, Flags, Queue, Verb, Wanted};
use crate::result::{Code, Failure, Result};

const DEPTH: u32 = 128;

/// The queues that are open, by address: what is closed is one of them, and is closed once.
static OPEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// `unvme_queue_options`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Options {
    size: usize,
    depth: u32,
    nsid: u32,
    command_ms: u32,
    completion: u8,
    commands: u8,
    priority: u8,
    reserved: u8,
}

const _: () = assert!(size_of::<Options>() == 24);

/// `unvme_queue_info`.
#[repr(C)]
struct Info {
    size: usize,
    nsid: u32,
    depth: u32,
    ssd_type: i32,
    block_bytes: u32,
    bytes: u64,
    transfer_bytes_max: u64,
    value_bytes_max: u64,
    key_length_min: u16,
    key_length_max: u16,
    completion: u8,
    reserved: [u8; 3],
}

const _: () = assert!(size_of::<Info>() == 56 && std::mem::offset_of!(Info, completion) == 52);

/// `unvme_command`.
#[repr(C)]
pub(super) struct RawCommand {
    pub(super) verb: u8,
    pub(super) keyspace: u8,
    pub(super) flags: u16,
    pub(super) placement: u16,
    pub(super) key_length: u16,
    pub(super) lba: u64,
    pub(super) length: u64,
    pub(super) key: *const u8,
    pub(super) data: *mut u8,
    pub(super) token: u64,
}

const _: () = assert!(size_of::<RawCommand>() == 48);

/// `unvme_completion`.
#[repr(C)]
pub(super) struct RawCompletion {
    token: u64,
    value_bytes: u64,
    result: i32,
    status: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<RawCompletion>() == 24);

impl RawCompletion {
    /// Of a command without a value.
    pub(super) fn new(token: u64, code: Code, status: Status) -> Self {
        Self { token, value_bytes: 0, result: code.0, status: status.raw(), reserved: 0 }
    }
}

fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(Code::SDK_INVALID_PARAM, text.into())
}

/// # Safety
/// `options` is null or points to what its first field says it has.
unsafe fn wanted(options: *const Options) -> Result<Wanted> {
    let none = Wanted {
        nsid: 0,
        queue: QueueOptions { depth: DEPTH as u16, ..QueueOptions::default() },
        vendor: VendorCommands::Detect,
    };
    if options.is_null() {
        return Ok(none);
    }
    if !options.is_aligned() {
        return Err(invalid("the unvme_queue_options are not aligned"));
    }
    // SAFETY: the caller's promise: the first field is there in every version of the structure.
    let size = unsafe { (&raw const (*options).size).read() };
    if size != size_of::<Options>() {
        return Err(invalid(format!(
            "unvme_queue_options.size: expected {}, not {size}",
            size_of::<Options>()
        )));
    }
    // SAFETY: the caller's promise: it has the size it says it has. All its fields are numbers.
    let options = unsafe { options.read() };
    let depth = if options.depth == 0 { DEPTH } else { options.depth };
    if depth > DEPTH_MAX.into() {
        return Err(invalid(format!("unvme_queue_options.depth: 1 to {DEPTH_MAX}, not {depth}")));
    }
    let mode = match options.completion {
        0 => CompletionMode::Poll,
        1 => CompletionMode::Interrupt,
        2 => CompletionMode::Hybrid,
        other => return Err(invalid(format!("unvme_queue_options.completion: 0 to 2, not {other}"))),
    };
    let vendor = match options.commands {
        0 => VendorCommands::Detect,
        1 => VendorCommands::Never,
        2 => VendorCommands::Only,
        other => return Err(invalid(format!("unvme_queue_options.commands: 0 to 2, not {other}"))),
    };
    let priority = match options.priority {
        0 => None,
        class @ 1..=4 => Some(QueuePriority::from_raw(class - 1)),
        other => return Err(invalid(format!("unvme_queue_options.priority: 0 to 4, not {other}"))),
    };
    if options.reserved != 0 {
        return Err(invalid("unvme_queue_options.reserved is not 0"));
    }
    let mut queue = QueueOptions { depth: depth as u16, mode, priority, ..QueueOptions::default() };
    if options.command_ms != 0 {
        queue.command_timeout = Duration::from_millis(options.command_ms.into());
    }
    Ok(Wanted { nsid: options.nsid, queue, vendor })
}

/// What a program calls a queue.
///
/// # Safety
/// `queue` is null or of `unvme_queue_open()`, not closed, and no other thread uses it meanwhile.
#[inline]
unsafe fn of<'a>(queue: *mut Queue) -> Result<&'a mut Queue> {
    // SAFETY: the caller's promise.
    unsafe { queue.as_mut() }.ok_or_else(|| invalid("the queue is NULL"))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_queue_open(number: u64, options: *const c_void, queue: *mut *mut Queue) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        if queue.is_null() || !queue.is_aligned() {
            return Err(invalid("the place for the queue is NULL or not aligned"));
        }
        // SAFETY: what unvme.h asks for.
        let wanted = unsafe { wanted(options.cast()) }?;
        let opened = Box::into_raw(Box::new(Queue::open(&open, &wanted)?));
        lock(&OPEN).insert(opened as usize);
        // SAFETY: what unvme.h asks for; it is neither null nor misaligned.
        unsafe { queue.write(opened) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_queue_close(queue: *mut Queue) -> c_int {
    call(|| {
        if !lock(&OPEN).remove(&(queue as usize)) {
            return Err(invalid(format!("{queue:p} is not an open queue")));
        }
        // SAFETY: it was in the set, so it is of `unvme_queue_open()`, and this is the only time; nobody else
        // uses it, which unvme.h asks for.
        drop(unsafe { Box::from_raw(queue) });
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_queue_info_get(queue: *mut Queue, info: *mut Info) -> c_int {
    call(|| {
        // SAFETY: what unvme.h asks for.
        let queue = unsafe { of(queue) }?;
        if info.is_null() || !info.is_aligned() {
            return Err(invalid("the place for the result is NULL or not aligned"));
        }
        // SAFETY: what unvme.h asks for: the first field is there in every version of the structure.
        let size = unsafe { (&raw const (*info).size).read() };
        if size != size_of::<Info>() {
            return Err(invalid(format!(
                "unvme_queue_info.size: expected {}, not {size}",
                size_of::<Info>()
            )));
        }
        let about = queue.about();
        let found = Info {
            size,
            nsid: about.nsid,
            depth: about.depth as u32,
            ssd_type: i32::from(!about.is_pairs),
            block_bytes: about.block_bytes,
            bytes: about.bytes,
            transfer_bytes_max: about.transfer_bytes_max,
            value_bytes_max: about.value_bytes_max,
            key_length_min: about.key_lengths.0 as u16,
            key_length_max: about.key_lengths.1 as u16,
            completion: match about.mode {
                CompletionMode::Poll => 0,
                CompletionMode::Interrupt => 1,
                CompletionMode::Hybrid => 2,
            },
            reserved: [0; 3],
        };
        // SAFETY: what unvme.h asks for; it is neither null nor misaligned, and has this size.
        unsafe { info.write(found) };
        Ok(())
    })
}

/// What a program's command says.
///
/// # Safety
/// `key` has `key_length` bytes, or is null, for as long as the result is used.
#[inline]
unsafe fn command<'a>(raw: &RawCommand) -> Result<Command<'a>> {
    let Some(&verb) = Verb::ALL.get(usize::from(raw.verb)) else {
        return Err(invalid(format!("unvme_command.verb: 0 to {}, not {}", Verb::ALL.len() - 1, raw.verb)));
    };
    if raw.flags & !Flags::ALL != 0 {
        return Err(invalid(format!("unvme_command.flags: {:#x} has bits without a meaning", raw.flags)));
    }
    if verb.moves() && raw.length > 0 && raw.data.is_null() {
        return Err(invalid("unvme_command.data is NULL, and there are bytes to move"));
    }
    let key = if raw.key_length == 0 {
        &[]
    } else if raw.key.is_null() {
        return Err(invalid("unvme_command.key is NULL, and has a length"));
    } else {
        // SAFETY: the caller's promise, and it is not null.
        unsafe { std::slice::from_raw_parts(raw.key, raw.key_length.into()) }
    };
    let length = usize::try_from(raw.length).map_err(|_| invalid("unvme_command.length is too long"))?;
    Ok(Command {
        verb,
        keyspace: raw.keyspace,
        flags: Flags(raw.flags),
        placement: raw.placement,
        lba: raw.lba,
        length,
        key,
        data: raw.data,
        token: raw.token,
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_queue_submit(queue: *mut Queue, raw: *const RawCommand) -> c_int {
    call_often(|| {
        // SAFETY: what unvme.h asks for.
        let queue = unsafe { of(queue) }?;
        if raw.is_null() || !raw.is_aligned() {
            return Err(invalid("the command is NULL or not aligned"));
        }
        // SAFETY: what unvme.h asks for; it is neither null nor misaligned.
        let raw = unsafe { &*raw };
        let (is_read, is_write) = (raw.verb == Verb::Read as u8, raw.verb == Verb::Write as u8);
        if (is_read || is_write)
            && raw.flags == 0
            && !raw.data.is_null()
            && let Some(taken) = queue.submit_usual(is_read, raw.lba, raw.length, raw.data, raw.token)
        {
            return taken;
        }
        // SAFETY: what unvme.h asks for; its key is used here alone.
        let command = unsafe { command(raw) }?;
        // SAFETY: what unvme.h asks of the data.
        unsafe { queue.submit(&command) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_queue_ring(queue: *mut Queue) -> c_int {
    // SAFETY: what unvme.h asks for.
    call_often(|| unsafe { of(queue) }?.ring())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_queue_poll(
    queue: *mut Queue,
    completions: *mut RawCompletion,
    max: usize,
    count: *mut usize,
) -> c_int {
    call_often(|| {
        // SAFETY: what unvme.h asks for.
        let queue = unsafe { of(queue) }?;
        if count.is_null() || max > 0 && (completions.is_null() || !completions.is_aligned()) {
            return Err(invalid("the place for completions or for their number is NULL or not aligned"));
        }
        let found = queue.poll(max, |at, finished| {
            let completion = RawCompletion {
                token: finished.token,
                value_bytes: finished.value_bytes,
                result: finished.code.0,
                status: finished.status.raw(),
                reserved: 0,
            };
            // SAFETY: what unvme.h asks for: there is room for `max`, and `at` is less.
            unsafe { completions.add(at).write(completion) };
        });
        // SAFETY: what unvme.h asks for, and it is not null.
        unsafe { count.write(found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_queue_wait(queue: *mut Queue, timeout_ms: u32) -> c_int {
    // SAFETY: what unvme.h asks for.
    call(|| unsafe { of(queue) }?.wait(Duration::from_millis(timeout_ms.into())))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_queue_outstanding(queue: *mut Queue) -> usize {
    // SAFETY: what unvme.h asks for.
    quietly(0, || unsafe { of(queue) }.map_or(0, |queue| queue.outstanding()))
}
