//! Several processes and one device: whoever holds it lets others use it.
//!
//! The first process that opens a slot, or a drive by its address, holds it: a lock that the kernel gives
//! back however the process ends. Beside the lock it listens on a socket, where others who open the name
//! attach ([`attach`]). Each of them gets a controller of its own: of a slot another controller of the
//! virtual SSD, of a drive one that is shared ([`unvme_driver::Sharing`]).
//!
//! Two threads do that. One answers messages and sleeps while there are none; the other lets the clients'
//! controllers work, and sleeps while there are no clients. The holder's own commands pass through neither.

pub(crate) mod attach;
#[cfg(feature = "local")]
pub(crate) mod guest;
pub(crate) mod place;
pub(crate) mod relay;

use std::fmt;
use std::path::Path;
#[cfg(feature = "local")]
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use unvme_bus::vfio_user::{MakeFunction, Server};
use unvme_bus::{BusError, Clock, EventFd, Function};
use unvme_driver::{Controller, Sharing};

use self::place::DrivePlace;
use self::relay::{Pace, relay};
use crate::registry::{Note, add_note};

/// How the clients' controllers are looked at: for a moment without a pause after the last work there was,
/// then with naps, so that the holder keeps its processors.
const PACE: Pace =
    Pace { spin: Some(Duration::from_micros(200)), nap: Duration::from_micros(100), nap_alone: None };

/// What a process that holds a device can offer to others.
pub(crate) enum Offer {
    /// A slot's device.
    #[cfg(feature = "local")]
    Slot {
        ssd: Arc<unvme_ssd::Ssd>,
        lock: PathBuf,
        socket: PathBuf,
    },
    Drive(DrivePlace),
}

impl Offer {
    /// Lets others use what `controller` drives. A device that cannot be shared is opened all the same:
    /// others are told that it is in use.
    pub(crate) fn start(self, name: &str, controller: &Controller, wanted: bool) -> Held {
        let (lock, socket) = match &self {
            #[cfg(feature = "local")]
            Self::Slot { lock, socket, .. } => (lock.clone(), socket.clone()),
            Self::Drive(place) => (place.lock_path(), place.socket_path()),
        };
        let share = match wanted {
            true => {
                let started = self.make(controller).and_then(|make| {
                    Share::start(&socket, make, controller.clock().clone()).map_err(unvme_driver::Error::Bus)
                });
                told(name, started)
            }
            false => None,
        };
        add_note(&lock, if share.is_some() { Note::Shared } else { Note::Alone });
        let place = match self {
            #[cfg(feature = "local")]
            Self::Slot { .. } => None,
            Self::Drive(place) => Some(place),
        };
        Held { _share: share, place }
    }

    fn make(&self, controller: &Controller) -> Result<Box<MakeFunction>, unvme_driver::Error> {
        match self {
            #[cfg(feature = "local")]
            Self::Slot { ssd, .. } => Ok(more_controllers(Arc::clone(ssd))),
            Self::Drive(_) => {
                let sharing = Sharing::new(controller)?;
                Ok(Box::new(move || match sharing.share() {
                    Ok(function) => Ok(function as Arc<dyn Function>),
                    Err(unvme_driver::Error::Bus(e)) => Err(e),
                    Err(e @ unvme_driver::Error::Gone { .. }) => Err(BusError::Gone(e.to_string())),
                    Err(e) => Err(BusError::Unsupported(e.to_string())),
                }))
            }
        }
    }
}

/// Makes controllers of a virtual SSD for those who attach.
#[cfg(feature = "local")]
pub(crate) fn more_controllers(ssd: Arc<unvme_ssd::Ssd>) -> Box<MakeFunction> {
    Box::new(move || match ssd.add_controller() {
        Ok(controller) => Ok(controller as Arc<dyn Function>),
        Err(e) if ssd.is_gone() => Err(BusError::Gone(e.to_string())),
        Err(e) => Err(BusError::Unsupported(e.to_string())),
    })
}

/// A device that this process holds: others use it for as long as this lives.
#[derive(Debug)]
pub(crate) struct Held {
    /// Ends before the place, and the lock in it, is given back.
    _share: Option<Share>,
    place: Option<DrivePlace>,
}

impl Held {
    /// The place and its lock, for who gives them back only when the drive is free again.
    pub(crate) fn take_place(&mut self) -> Option<DrivePlace> {
        self.place.take()
    }
}

#[cfg(feature = "local")]
impl Held {
    /// Lets others use a slot's device that this process serves in another way.
    pub(crate) fn slot(name: &str, ssd: &Arc<unvme_ssd::Ssd>, slot: &crate::registry::Slot) -> Self {
        let started = Share::start(&slot.socket_path(), more_controllers(Arc::clone(ssd)), Clock::wall());
        let share = told(name, started.map_err(unvme_driver::Error::Bus));
        add_note(&slot.lock_path(), if share.is_some() { Note::Shared } else { Note::Alone });
        Self { _share: share, place: None }
    }
}

/// What has started; a device that cannot be shared is used all the same.
fn told(name: &str, started: Result<Share, unvme_driver::Error>) -> Option<Share> {
    started
        .inspect_err(|e| {
            tracing::info!(device = name, error = %e, "other processes cannot use the device meanwhile");
        })
        .ok()
}

/// The two threads.
struct Share {
    server: Arc<Server>,
    stop: EventFd,
    stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// The process that has the threads: one that was forked off does not.
    pid: u32,
}

impl Share {
    fn start(socket: &Path, make: Box<MakeFunction>, clock: Clock) -> Result<Self, BusError> {
        let server = Arc::new(Server::bind_each(socket, None, make)?);
        let mut share = Self {
            server,
            stop: EventFd::new()?,
            stopped: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
            pid: std::process::id(),
        };
        let (server, stop) = (Arc::clone(&share.server), share.stop.clone());
        share.spawn("unvme-share", move || {
            if let Err(error) = server.run(&stop) {
                tracing::warn!(%error, "the device is not shared any more");
            }
        })?;
        let (server, stopped) = (Arc::clone(&share.server), Arc::clone(&share.stopped));
        share.spawn("unvme-relay", move || relay(&server, None, &clock, &PACE, &stopped))?;
        Ok(share)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), BusError> {
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
        self.threads.push(spawned.map_err(|e| BusError::os(format!("start the thread {name}"), e))?);
        Ok(())
    }
}

impl Drop for Share {
    /// Ends the connections of all clients: they see at once that the device is gone.
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // A child that was forked off: the threads, the socket and the clients are its parent's.
            std::mem::forget((Arc::clone(&self.server), std::mem::take(&mut self.threads)));
            return;
        }
        self.stop.signal();
        self.stopped.store(true, Ordering::Release);
        self.server.changed().signal();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that shares a device has panicked");
            }
        }
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("socket", &self.server.path()).finish_non_exhaustive()
    }
}
