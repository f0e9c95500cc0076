//! Reaching a device through the process that holds it.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use unvme_bus::vfio_user::Client;
use unvme_bus::{BusError, Function};

use crate::registry::{Note, note};
use crate::{Error, NOTICES, Result};

/// How long a holder is waited for that is opening its device, is giving it back, or has no room for one
/// more. A device that was killed is brought back before anybody can use it.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// When whoever waits is told.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// How long an attempt to open a device may still be repeated.
#[derive(Clone, Debug)]
pub(crate) struct Retries {
    started: Instant,
    has_told: Cell<bool>,
}

impl Retries {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), has_told: Cell::new(false) }
    }

    /// Waits a moment for `what` of the device called `name`; false when it is time to give up.
    pub(crate) fn wait(&self, name: &str, what: &str) -> bool {
        let waited = self.started.elapsed();
        if waited >= TELL_AFTER && !self.has_told.replace(true) {
            tracing::warn!(target: NOTICES, "{name}: waiting: {what}");
        }
        thread::sleep(PAUSE);
        waited < WAIT_MAX
    }
}

/// Who holds a device, and where others reach it.
pub(crate) struct Holder<'a> {
    /// The device.
    pub(crate) name: &'a str,
    /// The process, when its lock file says.
    pub(crate) pid: Option<u32>,
    /// Its lock file.
    pub(crate) lock: &'a Path,
    /// Where it listens.
    pub(crate) socket: &'a Path,
}

/// Attaches to the process that holds a device; `None` when it should be tried again, from the lock on: the
/// holder is starting, or ending, or has no room. Errors: [`Error::InUse`] when the holder does not share the
/// device.
pub(crate) fn attach(holder: &Holder<'_>, retries: &Retries) -> Result<Option<Arc<dyn Function>>> {
    let left = note(holder.lock);
    // One that only serves a device (`unvme serve`) leaves no note: it does not use it itself.
    let is_served = left.is_none() && holder.socket.exists();
    if holder.pid == Some(std::process::id()) && !is_served {
        let reason = "this process has the device open already, and it opens once".to_owned();
        return Err(in_use(holder, reason));
    }
    reach(holder, left, retries)
}

/// As [`attach`], for whoever has had the device open already: the holder may be this process.
#[cfg(feature = "local")]
pub(crate) fn attach_again(holder: &Holder<'_>, retries: &Retries) -> Result<Option<Arc<dyn Function>>> {
    reach(holder, note(holder.lock), retries)
}

fn reach(holder: &Holder<'_>, left: Option<Note>, retries: &Retries) -> Result<Option<Arc<dyn Function>>> {
    let why = match (holder.socket.exists(), left) {
        (true, _) => match Client::connect(holder.socket) {
            Ok(client) => return Ok(Some(client)),
            Err(BusError::Os { source, .. }) if source.kind() == io::ErrorKind::ResourceBusy => {
                "it serves as many clients as it can; one has to leave first".to_owned()
            }
            Err(e) if is_passing(&e) => format!("its server is not there ({e})"),
            Err(e) => return Err(in_use(holder, format!("its server cannot be reached ({e}); stop it"))),
        },
        // What a process has left that was killed says nothing about who has the lock now.
        (false, Some(Note::Alone)) if holder.pid.is_none_or(is_alive) => {
            let reason = "it does not share the device with others; wait for it, or stop it";
            return Err(in_use(holder, reason.to_owned()));
        }
        (false, Some(Note::Shared)) => "it is closing the device".to_owned(),
        (false, _) => "it is opening the device".to_owned(),
    };
    if retries.wait(holder.name, &format!("in use by {}; {why}", crate::error::holder(holder.pid))) {
        return Ok(None);
    }
    Err(in_use(holder, format!("{why}, for {WAIT_MAX:?} now; wait for it, or stop it")))
}

fn in_use(holder: &Holder<'_>, reason: String) -> Error {
    Error::InUse { name: holder.name.to_owned(), pid: holder.pid, reason }
}

/// False for a process that is known to have ended.
fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// True for what a holder that comes or goes looks like.
fn is_passing(error: &BusError) -> bool {
    match error {
        BusError::Gone(_) | BusError::Timeout { .. } => true,
        BusError::Os { source, .. } => matches!(
            Errno::from_io_error(source),
            Some(
                Errno::CONNREFUSED
                    | Errno::NOENT
                    | Errno::AGAIN
                    | Errno::CONNRESET
                    | Errno::NODEV
                    | Errno::PIPE
                    | Errno::NOTCONN
            )
        ),
        _ => false,
    }
}

/// True when a device that was attached to turned out to be on its way out.
pub(crate) fn is_lost(error: &unvme_driver::Error) -> bool {
    matches!(error, unvme_driver::Error::Gone { .. } | unvme_driver::Error::Bus(BusError::Gone(_)))
}
