//! I/O handles: several ways to one device, each with policies of its own.
// UNSAFETY: functions that C calls, with the pointers it passes.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;
use std::time::Duration;

use sdk::handle::{Chooser, Completed, Handle, HandleOptions, Policies, Queueing, Request, RequestKind};
use sdk::{Error, Nsid, Status, lock};

use super::queues::{RawCommand, RawCompletion};
use crate::boundary::{call, call_often, quietly};
use crate::handle;
use crate::queue::Verb;
use crate::result::{Code, Failure, Result};

/// Those that are open, by address: what is closed is one of them, and is closed once.
static OPEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// `unvme_io_chooser`.
type Choose = unsafe extern "C" fn(*mut c_void, c_int, u64, u32) -> usize;

/// `unvme_io_options`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Options {
    size: usize,
    nsid: u32,
    reserved: u32,
    first_block: u64,
    blocks: u64,
    policies: *const c_char,
    choose_queue: Option<Choose>,
    arg: *mut c_void,
}

const _: () = assert!(size_of::<Options>() == 56);

/// `unvme_io_info`.
#[repr(C)]
struct Info {
    size: usize,
    nsid: u32,
    block_bytes: u32,
    first_block: u64,
    blocks: u64,
    cache_hits: u64,
    cache_misses: u64,
    cached_bytes: u64,
    dirty_bytes: u64,
}

const _: () = assert!(size_of::<Info>() == 64);

/// Bytes of a cached page.
const PAGE: u64 = 4096;

/// A function of the program's that chooses a queue.
struct Choosing {
    choose: Choose,
    arg: *mut c_void,
}

// SAFETY: unvme.h asks for a function and an argument that any thread may use.
unsafe impl Send for Choosing {}
// SAFETY: as above.
unsafe impl Sync for Choosing {}

impl Choosing {
    fn ask(&self, request: &Request) -> usize {
        let verb = match request.kind {
            RequestKind::Read => Verb::Read,
            RequestKind::Write => Verb::Write,
            RequestKind::Flush => Verb::Flush,
            RequestKind::Discard => Verb::Deallocate,
        };
        // SAFETY: the program's function, with the argument that it wants; what unvme.h says of both.
        unsafe { (self.choose)(self.arg, verb as c_int, request.lba, request.blocks) }
    }
}

/// What the program's memory is for.
#[derive(Clone, Copy)]
struct Asked {
    token: u64,
    /// Where what was read goes; null for all that reads nothing.
    to: *mut u8,
    bytes: usize,
}

// SAFETY: it is the memory of a command, which unvme.h says nobody else uses until it is polled.
unsafe impl Send for Asked {}

/// What a program calls an `unvme_io`.
pub(super) struct Io {
    handle: Handle,
    queue: Option<Queueing>,
    /// Commands that were submitted and not polled, by the token of the handle, and the places that are free.
    asked: Mutex<(Vec<Option<Asked>>, Vec<usize>)>,
    /// Completions that there was no room for.
    ended: Mutex<Vec<Completed>>,
}

fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(Code::SDK_INVALID_PARAM, text.into())
}

fn refused(error: &Error) -> Failure {
    let code = match error {
        Error::Argument(_) => Code::DD_INVALID_PARAM,
        Error::Unsupported { .. } => Code::DD_UNSUPPORTED_CMD,
        _ => Code::IO,
    };
    let status = error.status().unwrap_or(Status::SUCCESS);
    Failure { status, ..Failure::new(code, error.to_string()) }
}

/// # Safety
/// `text` is null or ends with a NUL.
unsafe fn policies(text: *const c_char, chosen: Option<&Queueing>) -> Result<Policies> {
    if text.is_null() {
        return Ok(with_queue(Policies::default(), chosen));
    }
    // SAFETY: the caller's promise, and it is not null.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|_| invalid("the policies are not UTF-8"))?;
    if let Some(word) = text.split(',').find(|word| word.starts_with("queue=")).filter(|_| chosen.is_some()) {
        return Err(invalid(format!("`{word}`: a function chooses the queue of this handle")));
    }
    let policies = text.parse().map_err(|e: sdk::handle::NotAPolicy| invalid(e.to_string()))?;
    Ok(with_queue(policies, chosen))
}

/// With the queue that a function of the program's chooses, if one does.
fn with_queue(policies: Policies, chosen: Option<&Queueing>) -> Policies {
    let queue = chosen.cloned().unwrap_or_else(|| policies.queue.clone());
    Policies { queue, ..policies }
}

/// # Safety
/// `options` is null or points to what its first field says it has.
unsafe fn wanted(options: *const Options) -> Result<Option<Options>> {
    if options.is_null() {
        return Ok(None);
    }
    if !options.is_aligned() {
        return Err(invalid("the unvme_io_options are not aligned"));
    }
    // SAFETY: the caller's promise: the first field is there in every version of the structure.
    let size = unsafe { (&raw const (*options).size).read() };
    if size != size_of::<Options>() {
        return Err(invalid(format!("unvme_io_options.size: expected {}, not {size}", size_of::<Options>())));
    }
    // SAFETY: the caller's promise: it has the size it says it has; any bits are values of its fields.
    let options = unsafe { options.read() };
    if options.reserved != 0 {
        return Err(invalid("unvme_io_options.reserved is not 0"));
    }
    Ok(Some(options))
}

/// # Safety
/// `io` is null or of `unvme_io_open()`, and not closed.
#[inline]
unsafe fn of<'a>(io: *mut Io) -> Result<&'a Io> {
    // SAFETY: the caller's promise.
    unsafe { io.as_ref() }.ok_or_else(|| invalid("the I/O handle is NULL"))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_io_open(number: u64, options: *const c_void, io: *mut *mut Io) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        if io.is_null() || !io.is_aligned() {
            return Err(invalid("the place for the I/O handle is NULL or not aligned"));
        }
        let member = open.member();
        let mut made = HandleOptions::default();
        let (mut nsid, mut queue) = (member.nsid(), None);
        // SAFETY: what unvme.h asks for.
        if let Some(options) = unsafe { wanted(options.cast()) }? {
            if let Some(choose) = options.choose_queue {
                let choosing = Choosing { choose, arg: options.arg };
                queue = Some(Queueing::Chosen(Chooser::new(move |request| choosing.ask(request))));
            }
            // SAFETY: what unvme.h asks for.
            made.policies = unsafe { policies(options.policies, queue.as_ref()) }?;
            if options.nsid != 0 {
                nsid = Nsid(options.nsid);
            }
            if options.first_block != 0 || options.blocks != 0 {
                let all = member.device().block(nsid).map_err(|e| refused(&e))?.blocks();
                let end = match options.blocks {
                    0 => all,
                    // Beyond all there is: it is refused with what there is.
                    blocks => options.first_block.saturating_add(blocks),
                };
                made.blocks = Some(options.first_block..end);
            }
        }
        let handle = member.device().handle(nsid, &made).map_err(|e| refused(&e))?;
        let opened =
            Box::into_raw(Box::new(Io { handle, queue, asked: Mutex::default(), ended: Mutex::default() }));
        lock(&OPEN).insert(opened as usize);
        // SAFETY: what unvme.h asks for; it is neither null nor misaligned.
        unsafe { io.write(opened) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_io_close(io: *mut Io) -> c_int {
    call(|| {
        if !lock(&OPEN).remove(&(io as usize)) {
            return Err(invalid(format!("{io:p} is not an open I/O handle")));
        }
        // SAFETY: it was in the set, so it is of `unvme_io_open()`, and this is the only time; nobody else
        // uses it, which unvme.h asks for.
        let io = unsafe { Box::from_raw(io) };
        io.handle.close().map_err(|e| refused(&e))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_io_set(io: *mut Io, text: *const c_char) -> c_int {
    call(|| {
        // SAFETY: what unvme.h asks for.
        let io = unsafe { of(io) }?;
        // SAFETY: what unvme.h asks for.
        let policies = unsafe { policies(text, io.queue.as_ref()) }?;
        io.handle.set(&policies).map_err(|e| refused(&e))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_io_get(io: *mut Io, text: *mut c_char, size: usize, length: *mut usize) -> c_int {
    call(|| {
        // SAFETY: what unvme.h asks for.
        let shown = unsafe { of(io) }?.handle.policies().to_string();
        if size > 0 && text.is_null() {
            return Err(invalid("the place for the text is NULL"));
        }
        let copied = shown.len().min(size.saturating_sub(1));
        if size > 0 {
            // SAFETY: what unvme.h asks for: there is room for `size`, and what is copied is no more with its
            // end.
            unsafe {
                text.cast::<u8>().copy_from_nonoverlapping(shown.as_ptr(), copied);
                text.add(copied).write(0);
            }
        }
        if !length.is_null() {
            // SAFETY: what unvme.h asks for, and it is not null.
            unsafe { length.write(shown.len()) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_io_info_get(io: *mut Io, info: *mut Info) -> c_int {
    call(|| {
        // SAFETY: what unvme.h asks for.
        let handle = &unsafe { of(io) }?.handle;
        if info.is_null() || !info.is_aligned() {
            return Err(invalid("the place for the result is NULL or not aligned"));
        }
        // SAFETY: what unvme.h asks for: the first field is there in every version of the structure.
        let size = unsafe { (&raw const (*info).size).read() };
        if size != size_of::<Info>() {
            return Err(invalid(format!("unvme_io_info.size: expected {}, not {size}", size_of::<Info>())));
        }
        let cache = handle.statistics().cache;
        let found = Info {
            size,
            nsid: handle.nsid().0,
            block_bytes: handle.block_bytes(),
            first_block: handle.partition().start,
            blocks: handle.blocks(),
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            cached_bytes: cache.pages * PAGE,
            dirty_bytes: cache.dirty * PAGE,
        };
        // SAFETY: what unvme.h asks for; it is neither null nor misaligned, and has this size.
        unsafe { info.write(found) };
        Ok(())
    })
}

/// How many bytes so many blocks are. More than the handle has are refused here, before anybody looks at that
/// much memory.
fn bytes_of(handle: &Handle, blocks: u64) -> Result<usize> {
    let bytes = blocks.checked_mul(handle.block_bytes().into()).filter(|_| blocks <= handle.blocks());
    bytes.and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(|| {
        let all = handle.blocks();
        Failure::new(Code::DD_INVALID_PARAM, format!("{blocks} blocks of a handle: it has {all} blocks"))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_io_read(io: *mut Io, lba: u64, blocks: u64, buf: *mut c_void) -> c_int {
    call_often(|| {
        // SAFETY: what unvme.h asks for.
        let handle = &unsafe { of(io) }?.handle;
        // SAFETY: what unvme.h asks for.
        let buf = unsafe { super::blocks::buffer(buf, bytes_of(handle, blocks)?) }?;
        handle.read(lba, buf).map_err(|e| refused(&e))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_io_write(io: *mut Io, lba: u64, blocks: u64, buf: *const c_void) -> c_int {
    call_often(|| {
        // SAFETY: what unvme.h asks for.
        let handle = &unsafe { of(io) }?.handle;
        // SAFETY: what unvme.h asks for; it is only read.
        let buf = unsafe { super::blocks::buffer(buf.cast_mut(), bytes_of(handle, blocks)?) }?;
        handle.write(lba, buf).map_err(|e| refused(&e))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_io_flush(io: *mut Io) -> c_int {
    // SAFETY: what unvme.h asks for.
    call(|| unsafe { of(io) }?.handle.flush().map_err(|e| refused(&e)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_io_deallocate(io: *mut Io, lba: u64, blocks: u64) -> c_int {
    // SAFETY: what unvme.h asks for.
    call(|| unsafe { of(io) }?.handle.discard(lba, blocks).map_err(|e| refused(&e)))
}

impl Io {
    fn submit(&self, raw: &RawCommand) -> Result<()> {
        let kind = match Verb::ALL.get(usize::from(raw.verb)) {
            Some(Verb::Read) => RequestKind::Read,
            Some(Verb::Write) => RequestKind::Write,
            Some(Verb::Flush) => RequestKind::Flush,
            Some(Verb::Deallocate) => RequestKind::Discard,
            _ => {
                return Err(invalid(format!(
                    "unvme_command.verb: READ, WRITE, DEALLOCATE or FLUSH, not {}",
                    raw.verb
                )));
            }
        };
        if raw.flags != 0 || raw.placement != 0 || raw.key_length != 0 || raw.keyspace != 0 {
            return Err(invalid(
                "unvme_command: flags, placement, keyspace and key_length are 0 on an I/O handle",
            ));
        }
        let (block, moves) = (u64::from(self.handle.block_bytes()), kind_moves(kind));
        if !raw.length.is_multiple_of(block) {
            return Err(invalid(format!("unvme_command.length: a multiple of {block}, not {}", raw.length)));
        }
        let blocks =
            u32::try_from(raw.length / block).map_err(|_| invalid("unvme_command.length is too long"))?;
        let bytes = if moves { bytes_of(&self.handle, blocks.into())? } else { 0 };
        if bytes > 0 && raw.data.is_null() {
            return Err(invalid("unvme_command.data is NULL, and there are bytes to move"));
        }
        let mut buf = None;
        if bytes > 0 {
            let mut copy = self.handle.alloc(bytes).map_err(|e| refused(&e))?;
            if kind == RequestKind::Write {
                // SAFETY: what unvme.h asks for: the data has so many bytes, and it is not null.
                copy.write(0, unsafe { std::slice::from_raw_parts(raw.data, bytes) });
            }
            buf = Some(copy);
        }
        let to = if kind == RequestKind::Read { raw.data } else { std::ptr::null_mut() };
        let place = {
            let mut asked = lock(&self.asked);
            let (places, free) = &mut *asked;
            let place = free.pop().unwrap_or_else(|| {
                places.push(None);
                places.len() - 1
            });
            places[place] = Some(Asked { token: raw.token, to, bytes });
            place
        };
        let request = Request { kind, lba: raw.lba, blocks };
        self.handle.submit(request, buf, place as u64).map_err(|not| {
            self.take(place as u64);
            match not.is_full {
                true => Failure::new(Code::DD_NO_AVAILABLE_RESOURCE, not.error.to_string()),
                false => refused(&not.error),
            }
        })
    }

    /// Commands that were submitted and not polled, wherever they are on their way.
    fn outstanding(&self) -> usize {
        let (places, free) = &*lock(&self.asked);
        places.len() - free.len()
    }

    fn take(&self, token: u64) -> Option<Asked> {
        let mut asked = lock(&self.asked);
        let (places, free) = &mut *asked;
        let found = places.get_mut(token as usize)?.take()?;
        free.push(token as usize);
        Some(found)
    }

    /// Up to `max` commands that are over.
    fn poll(&self, max: usize, mut each: impl FnMut(usize, RawCompletion)) -> usize {
        let mut ended = lock(&self.ended);
        if ended.len() < max {
            self.handle.poll(&mut ended);
        }
        let count = ended.len().min(max);
        for (at, done) in ended.drain(..count).enumerate() {
            let Some(asked) = self.take(done.token) else { continue };
            if let (Some(buf), true, false) = (&done.buf, done.status.is_success(), asked.to.is_null()) {
                // SAFETY: what unvme.h asks for: the data of a read has so many bytes until it is polled.
                buf.read(0, unsafe { std::slice::from_raw_parts_mut(asked.to, asked.bytes) });
            }
            let result = if done.status.is_success() { Code::SUCCESS } else { Code::IO };
            each(at, RawCompletion::new(asked.token, result, done.status));
        }
        count
    }
}

fn kind_moves(kind: RequestKind) -> bool {
    matches!(kind, RequestKind::Read | RequestKind::Write)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_io_submit(io: *mut Io, raw: *const RawCommand) -> c_int {
    call_often(|| {
        // SAFETY: what unvme.h asks for.
        let io = unsafe { of(io) }?;
        if raw.is_null() || !raw.is_aligned() {
            return Err(invalid("the command is NULL or not aligned"));
        }
        // SAFETY: what unvme.h asks for; it is neither null nor misaligned.
        io.submit(unsafe { &*raw })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_io_poll(
    io: *mut Io,
    completions: *mut RawCompletion,
    max: usize,
    count: *mut usize,
) -> c_int {
    call_often(|| {
        // SAFETY: what unvme.h asks for.
        let io = unsafe { of(io) }?;
        if count.is_null() || max > 0 && (completions.is_null() || !completions.is_aligned()) {
            return Err(invalid("the place for completions or for their number is NULL or not aligned"));
        }
        // SAFETY: what unvme.h asks for: there is room for `max`, and `at` is less.
        let found = io.poll(max, |at, completion| unsafe { completions.add(at).write(completion) });
        // SAFETY: what unvme.h asks for, and it is not null.
        unsafe { count.write(found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_io_wait(io: *mut Io, timeout_ms: u32) -> c_int {
    call_often(|| {
        // SAFETY: what unvme.h asks for.
        let io = unsafe { of(io) }?;
        let mut ended = Vec::new();
        if lock(&io.ended).is_empty() {
            io.handle.wait(&mut ended, Duration::from_millis(timeout_ms.into()));
            lock(&io.ended).append(&mut ended);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unvme_io_outstanding(io: *mut Io) -> usize {
    quietly(0, || {
        // SAFETY: what unvme.h asks for.
        unsafe { of(io) }.map_or(0, Io::outstanding)
    })
}

#[unsafe(no_mangle)]
extern "C" fn unvme_io_window_set(number: u64, bytes: u64) -> c_int {
    call(|| {
        handle::get(number)?.member().device().set_handle_window(bytes);
        Ok(())
    })
}
