//! Asynchronous events.
// UNSAFETY: a function that C calls, and the program's function that is called for it.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sdk::{Event, EventKind, lock};
use unvme_guide::session::Member;

use crate::boundary::{call, quietly};
use crate::handle;
use crate::result::{Code, Failure};
use crate::session::in_callback;

/// How often the events that have arrived are looked at.
const INTERVAL: Duration = Duration::from_millis(20);

type Callback = unsafe extern "C" fn(*mut c_void, c_uint, c_uint);

/// A program's callback and its argument, on their way to the thread that calls it.
struct Target {
    callback: Callback,
    argument: *mut c_void,
}

// SAFETY: the argument is only handed to the callback, which kvnvme.h says is called by a thread of the
// library.
unsafe impl Send for Target {}

/// A thread that tells a program of a device's events, until it is dropped.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn start(member: Arc<Member>, target: Target) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("unvme-events".into()).spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                quietly((), || deliver(&member, &target));
                thread::park_timeout(INTERVAL);
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Pairs with the load of the thread's loop.
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        // A callback may be what drops this.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

fn deliver(member: &Member, target: &Target) {
    // A device that cannot be asked has no events; its operations fail on their own.
    for event in member.device().controller().poll_events().unwrap_or_default() {
        // SAFETY: a function of the type that kvnvme.h declares, with the argument that belongs to it.
        in_callback(|| unsafe { (target.callback)(target.argument, dword0(&event), 0) });
    }
}

/// Dword 0 of the completion that reported an event (Base 5.1.2): type, information, log page.
fn dword0(event: &Event) -> u32 {
    let kind = match event.kind {
        EventKind::Error => 0,
        EventKind::Smart => 1,
        EventKind::Notice => 2,
        EventKind::Immediate => 3,
        EventKind::IoCommandSet => 6,
        EventKind::Vendor => 7,
        EventKind::Other(other) => u32::from(other),
        _ => 7,
    };
    kind | u32::from(event.info) << 8 | u32::from(event.log_page) << 16
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kv_nvme_register_aer_callback(
    number: u64,
    aer_cb_fn: Option<Callback>,
    aer_cb_arg: *mut c_void,
) -> c_int {
    call(|| {
        let open = handle::get(number)?;
        let watch = aer_cb_fn
            .map(|callback| {
                Watch::start(Arc::clone(open.member()), Target { callback, argument: aer_cb_arg })
            })
            .transpose()
            .map_err(|e| Failure::new(Code::DD_NO_AVAILABLE_RESOURCE, format!("start a thread: {e}")))?;
        let before = std::mem::replace(&mut *lock(&open.events), watch);
        // Without the lock: it waits for a callback that may register another.
        drop(before);
        Ok(())
    })
}
