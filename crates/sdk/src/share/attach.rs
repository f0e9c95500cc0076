//! Reaching a device through the process that holds it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use unvme_bus::vfio_user::Client;
use unvme_bus::{BusError, Function};

use crate::registry::{Note, note};
use crate::{Error, Result};

/// How long a holder that is about to share its device, or about to give it back, is waited for.
const RETRY_FOR: Duration = Duration::from_secs(3);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// How long an attempt to open a device may still be repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retries(Instant);

impl Retries {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// Waits a moment; false when it is time to give up.
    pub(crate) fn wait(&self) -> bool {
        let left = self.0.elapsed() < RETRY_FOR;
        if left {
            thread::sleep(PAUSE);
        }
        left
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
/// holder is starting, or ending. Errors: [`Error::InUse`] when the holder does not share the device, or not
/// with one more.
pub(crate) fn attach(holder: &Holder<'_>, retries: &Retries) -> Result<Option<Arc<dyn Function>>> {
    let in_use = |reason: String| Error::InUse { name: holder.name.to_owned(), pid: holder.pid, reason };
    let left = note(holder.lock);
    // One that only serves a device (`unvme serve`) leaves no note: it does not use it itself.
    let is_served = left.is_none() && holder.socket.exists();
    if holder.pid == Some(std::process::id()) && !is_served {
        return Err(in_use("this process has the device open already, and it opens once".to_owned()));
    }
    let why = if holder.socket.exists() {
        match Client::connect(holder.socket) {
            Ok(client) => return Ok(Some(client)),
            Err(BusError::Os { source, .. }) if source.kind() == io::ErrorKind::ResourceBusy => {
                return Err(in_use("it serves as many clients as it can; wait for one to leave".to_owned()));
            }
            Err(e) if !is_passing(&e) => {
                return Err(in_use(format!("its server cannot be reached ({e}); stop it")));
            }
            Err(e) => format!("its server cannot be reached ({e}); stop it"),
        }
    } else {
        let reason = "it does not share the device with others; wait for it, or stop it".to_owned();
        if left == Some(Note::Alone) {
            return Err(in_use(reason));
        }
        reason
    };
    if retries.wait() { Ok(None) } else { Err(in_use(why)) }
}

/// True for what a holder that comes or goes looks like.
fn is_passing(error: &BusError) -> bool {
    match error {
        BusError::Gone(_) | BusError::Timeout { .. } => true,
        BusError::Os { source, .. } => matches!(
            Errno::from_io_error(source),
            Some(Errno::CONNREFUSED | Errno::NOENT | Errno::AGAIN | Errno::CONNRESET | Errno::NODEV)
        ),
        _ => false,
    }
}

/// True when a device that was attached to turned out to be on its way out.
pub(crate) fn is_lost(error: &unvme_driver::Error) -> bool {
    matches!(error, unvme_driver::Error::Gone { .. } | unvme_driver::Error::Bus(BusError::Gone(_)))
}
