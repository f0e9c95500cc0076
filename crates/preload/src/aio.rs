//! POSIX asynchronous I/O. The C library has threads that read and write by calls of its own, which nobody
//! takes the place of; so on our files it is done at once, and has ended when the call returns, as POSIX
//! allows. What came of it stands where the C library itself writes it, so `aio_error`, `aio_return`,
//! `aio_suspend` and `aio_cancel` are its own.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, offset_of, size_of};
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{off_t, size_t, ssize_t};
use rustix::io::Errno;

use crate::{data, errno, gate, table};

/// How an end is told: `struct sigevent`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Event {
    value: *mut c_void,
    signal: c_int,
    notify: c_int,
    run: Option<Run>,
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
    use super::{Block, Event, c_int, c_void};

    functions! {
        fn pthread_create(
            out: *mut libc::pthread_t,
            how: *const libc::pthread_attr_t,
            run: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
            argument: *mut c_void,
        ) -> c_int;
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

/// What a thread runs that tells of an end.
type Run = extern "C-unwind" fn(*mut c_void);

/// A thread that tells of an end: what it runs, and with what.
struct Told(Run, *mut c_void);

unsafe extern "C-unwind" fn tell(told: *mut c_void) -> *mut c_void {
    // What is run may end the thread.
    let Told(run, value) = *Box::from_raw(told.cast::<Told>());
    let mut none = MaybeUninit::uninit();
    libc::sigemptyset(none.as_mut_ptr());
    libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    run(value);
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
            let told = Box::into_raw(Box::new(Told(run, event.value))).cast();
            let mut thread = MaybeUninit::uninit();
            let mut own = MaybeUninit::uninit();
            let attributes = if event.attributes.is_null() {
                libc::pthread_attr_init(own.as_mut_ptr());
                libc::pthread_attr_setdetachstate(own.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
                own.as_ptr()
            } else {
                event.attributes
            };
            if behind::pthread_create(thread.as_mut_ptr(), attributes, tell, told) != 0 {
                drop(Box::from_raw(told.cast::<Told>()));
            }
        }
        _ => {}
    }
}

/// Somebody who looks at the request finds this, and may have freed it before this returns.
unsafe fn end(block: *mut Block, result: ssize_t, error: c_int) {
    (*block).result = result;
    AtomicI32::from_ptr(&raw mut (*block).error).store(error, Ordering::Release);
}

/// What came of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Well,
    /// It has ended with an error.
    Badly,
    /// It was not taken.
    Refused,
}

/// Does what a request asks for; `None` is nothing that there is. What came of it is in the request, which is
/// not touched any more; whoever is to be told is not told yet.
unsafe fn carry_out(block: *mut Block, work: Option<Work>) -> (Came, Event) {
    let Block { fd, priority, buf, count, event, offset, .. } = *block;
    if matches!(work, Some(Work::Read | Work::Write)) && !(0..=PRIORITY_MAX).contains(&priority) {
        end(block, -1, Errno::INVAL.raw_os_error());
        return (Came::Refused, event);
    }
    let result = match work {
        Some(Work::Read) => data::pread64(fd, buf, count, offset),
        Some(Work::Write) => data::pwrite64(fd, buf, count, offset),
        Some(Work::Sync) => data::fsync(fd) as ssize_t,
        Some(Work::DataSync) => data::fdatasync(fd) as ssize_t,
        None => {
            errno::put(Errno::INVAL.raw_os_error());
            -1
        }
    };
    let error = if result < 0 { errno::last().raw_os_error() } else { 0 };
    end(block, result, error);
    (if result < 0 { Came::Badly } else { Came::Well }, event)
}

/// A request by itself.
unsafe fn one(block: *mut Block, work: Work) -> c_int {
    let before = errno::get();
    let (came, event) = carry_out(block, Some(work));
    if came == Came::Refused {
        errno::set(Errno::INVAL);
        return -1;
    }
    notify(&event);
    errno::put(before);
    0
}

unsafe fn is_ours(block: *mut Block) -> bool {
    !block.is_null() && table::is_ours((*block).fd)
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
    let before = errno::get();
    let (mut others, mut told, mut is_refused, mut is_bad) = (Vec::new(), Vec::new(), false, false);
    // Nobody is canceled between two of them.
    let inside = gate::enter();
    for &block in given.iter().filter(|block| !block.is_null()) {
        let work = match (*block).operation {
            libc::LIO_NOP => continue,
            _ if !is_ours(block) => {
                others.push(block);
                continue;
            }
            libc::LIO_READ => Some(Work::Read),
            libc::LIO_WRITE => Some(Work::Write),
            _ => None,
        };
        let (came, event) = carry_out(block, work);
        match came {
            Came::Refused => is_refused = true,
            _ => told.push(event),
        }
        is_bad |= came != Came::Well;
    }
    drop(inside);
    let is_none_taken = told.is_empty() && others.is_empty();
    // From here on nothing of what was given is looked at: whoever is told may free it.
    told.iter().for_each(|event| notify(event));
    drop(told);
    let mut result = 0;
    if !others.is_empty() {
        // Who waits may be canceled: there is nothing here to be dropped then.
        let others = Box::into_raw(others.into_boxed_slice());
        result = behind::lio_listio(mode, others.cast(), others.len() as c_int, event);
        drop(Box::from_raw(others));
    } else if mode == libc::LIO_NOWAIT && !event.is_null() {
        notify(&*event);
    }
    if result < 0 {
        return result;
    }
    if is_refused && (mode == libc::LIO_NOWAIT || is_none_taken) {
        errno::set(Errno::INVAL);
        return -1;
    }
    if is_bad && mode == libc::LIO_WAIT {
        errno::set(Errno::IO);
        return -1;
    }
    errno::put(before);
    0
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
