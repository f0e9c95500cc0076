//! POSIX asynchronous I/O. The C library has threads that read and write by calls of its own, which nobody
//! takes the place of; so on our files it is done at once, and has ended when the call returns, as POSIX
//! allows. What came of it stands where the C library itself writes it, so `aio_error`, `aio_return`,
//! `aio_suspend` and `aio_cancel` are its own.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, offset_of, size_of};

use libc::{off_t, size_t, ssize_t};
use rustix::io::Errno;

use crate::{data, errno, table};

/// How an end is told: `struct sigevent`.
#[repr(C)]
pub(crate) struct Event {
    value: *mut c_void,
    signal: c_int,
    notify: c_int,
    run: Option<extern "C" fn(*mut c_void)>,
    attributes: *const libc::pthread_attr_t,
    _reserved: [u64; 4],
}

/// A request: `struct aiocb` as the GNU C library has it where pointers have 64 bits.
#[repr(C)]
pub(crate) struct Block {
    fd: c_int,
    operation: c_int,
    priority: c_int,
    buf: *mut c_void,
    count: size_t,
    event: Event,
    _next: *mut c_void,
    _priority: [c_int; 2],
    error: c_int,
    result: ssize_t,
    offset: off_t,
    _reserved: [u8; 32],
}

const _: () = {
    assert!(size_of::<Block>() == size_of::<libc::aiocb>());
    assert!(offset_of!(Block, offset) == offset_of!(libc::aiocb, aio_offset));
    assert!(offset_of!(Block, event) == offset_of!(libc::aiocb, aio_sigevent));
    assert!(size_of::<Event>() == size_of::<libc::sigevent>());
};

/// `siginfo_t` of a signal that was queued.
#[repr(C)]
struct Queued {
    signal: c_int,
    error: c_int,
    code: c_int,
    _gap: c_int,
    process: c_int,
    user: u32,
    value: *mut c_void,
    _rest: [u64; 12],
}

const _: () = assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>());

/// Largest `aio_reqprio`.
const PRIORITY_MAX: c_int = 20;

/// The C library's own.
mod behind {
    use super::{Block, Event, c_int};

    functions! {
        fn aio_read(block: *mut Block) -> c_int;
        fn aio_write(block: *mut Block) -> c_int;
        fn aio_fsync(operation: c_int, block: *mut Block) -> c_int;
        fn lio_listio(mode: c_int, blocks: *const *mut Block, count: c_int, event: *const Event) -> c_int;
    }
}

/// What is done with a descriptor that is ours.
#[derive(Clone, Copy)]
enum Work {
    Read,
    Write,
    Sync,
    DataSync,
}

/// A thread that tells of an end: what it runs, and with what.
struct Told(extern "C" fn(*mut c_void), *mut c_void);

extern "C" fn tell(told: *mut c_void) -> *mut c_void {
    // SAFETY: `notify` has made it for this thread.
    let told = unsafe { Box::from_raw(told.cast::<Told>()) };
    (told.0)(told.1);
    std::ptr::null_mut()
}

/// Tells of an end in the way that was asked for.
unsafe fn notify(event: &Event) {
    match event.notify {
        libc::SIGEV_SIGNAL => {
            let process = libc::getpid();
            let info = Queued {
                signal: event.signal,
                error: 0,
                code: libc::SI_ASYNCIO,
                _gap: 0,
                process,
                user: libc::getuid(),
                value: event.value,
                _rest: [0; 12],
            };
            libc::syscall(libc::SYS_rt_sigqueueinfo, process, event.signal, &raw const info);
        }
        libc::SIGEV_THREAD => {
            let Some(run) = event.run else { return };
            let told = Box::into_raw(Box::new(Told(run, event.value)));
            let mut thread = MaybeUninit::uninit();
            let mut own = MaybeUninit::uninit();
            let attributes = if event.attributes.is_null() {
                libc::pthread_attr_init(own.as_mut_ptr());
                libc::pthread_attr_setdetachstate(own.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
                own.as_ptr()
            } else {
                event.attributes
            };
            if libc::pthread_create(thread.as_mut_ptr(), attributes, tell, told.cast()) != 0 {
                drop(Box::from_raw(told));
            }
        }
        _ => {}
    }
}

/// Does what a request asks for. Returns whether it went well; what came of it is in the request.
unsafe fn carry_out(block: *mut Block, work: Work) -> bool {
    let Block { fd, buf, count, offset, .. } = *block;
    let before = errno::get();
    let result = match work {
        Work::Read => data::pread64(fd, buf, count, offset),
        Work::Write => data::pwrite64(fd, buf, count, offset),
        Work::Sync => data::fsync(fd) as ssize_t,
        Work::DataSync => data::fdatasync(fd) as ssize_t,
    };
    (*block).error = if result < 0 { errno::last().raw_os_error() } else { 0 };
    (*block).result = result;
    errno::put(before);
    result >= 0
}

/// A request by itself.
unsafe fn one(block: *mut Block, work: Work) -> c_int {
    if !(0..=PRIORITY_MAX).contains(&(*block).priority) {
        (*block).error = Errno::INVAL.raw_os_error();
        (*block).result = -1;
        errno::set(Errno::INVAL);
        return -1;
    }
    carry_out(block, work);
    notify(&(*block).event);
    0
}

unsafe fn is_ours(block: *mut Block) -> bool {
    !block.is_null() && table::get((*block).fd).is_some()
}

unsafe fn list(mode: c_int, blocks: *const *mut Block, count: c_int, event: *const Event) -> c_int {
    let is_known = mode == libc::LIO_WAIT || mode == libc::LIO_NOWAIT;
    let given = match usize::try_from(count) {
        Ok(count) if is_known && !blocks.is_null() => std::slice::from_raw_parts(blocks, count),
        _ => &[],
    };
    if !given.iter().any(|&block| is_ours(block)) {
        return behind::lio_listio(mode, blocks, count, event);
    }
    let (mut others, mut is_well) = (Vec::new(), true);
    for &block in given.iter().filter(|block| !block.is_null()) {
        match (*block).operation {
            libc::LIO_NOP => {}
            _ if !is_ours(block) => others.push(block),
            libc::LIO_READ => is_well &= one(block, Work::Read) == 0 && (*block).error == 0,
            libc::LIO_WRITE => is_well &= one(block, Work::Write) == 0 && (*block).error == 0,
            _ => {
                (*block).error = Errno::INVAL.raw_os_error();
                (*block).result = -1;
                is_well = false;
            }
        }
    }
    if !others.is_empty() {
        let result = behind::lio_listio(mode, others.as_ptr(), others.len() as c_int, event);
        if result < 0 {
            return result;
        }
    } else if mode == libc::LIO_NOWAIT && !event.is_null() {
        notify(&*event);
    }
    if is_well {
        return 0;
    }
    errno::set(Errno::IO);
    -1
}

exported! {
    fn aio_read(block: *mut Block) -> c_int {
        if is_ours(block) { one(block, Work::Read) } else { behind::aio_read(block) }
    }

    fn aio_read64(block: *mut Block) -> c_int {
        aio_read(block)
    }

    fn aio_write(block: *mut Block) -> c_int {
        if is_ours(block) { one(block, Work::Write) } else { behind::aio_write(block) }
    }

    fn aio_write64(block: *mut Block) -> c_int {
        aio_write(block)
    }

    fn aio_fsync(operation: c_int, block: *mut Block) -> c_int {
        let work = match operation {
            libc::O_SYNC => Work::Sync,
            libc::O_DSYNC => Work::DataSync,
            _ => return behind::aio_fsync(operation, block),
        };
        if is_ours(block) { one(block, work) } else { behind::aio_fsync(operation, block) }
    }

    fn aio_fsync64(operation: c_int, block: *mut Block) -> c_int {
        aio_fsync(operation, block)
    }

    fn lio_listio(mode: c_int, blocks: *const *mut Block, count: c_int, event: *const Event) -> c_int {
        list(mode, blocks, count, event)
    }

    fn lio_listio64(mode: c_int, blocks: *const *mut Block, count: c_int, event: *const Event) -> c_int {
        list(mode, blocks, count, event)
    }
}
