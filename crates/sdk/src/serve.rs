//! Offering a virtual device to other processes, and to other machines.

mod tcp;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use unvme_bus::vfio_user::Server;
use unvme_bus::{Clock, EventFd, Function};
use unvme_ssd::{FaultRule, Ssd};

use crate::local::{self, Opened};
use crate::registry::{PlugWatch, Slot};
use crate::share::more_controllers;
use crate::share::relay::{Pace, relay};
use crate::{DeviceName, Error, Registry, Result};

pub use tcp::{
    AccessUpdates, AnaState, ListenOptions, ServedSubsystem, TCP_THREADS_MAX, TcpServeOptions, serve_tcp,
};

/// Sleep of an idle server that has a client: what the first command after a pause pays at most.
const NAP: Duration = Duration::from_micros(100);
/// Sleep of a server that has no client.
const NAP_ALONE: Duration = Duration::from_millis(5);

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where virtual slots are; `None` means [`Registry::from_environment`].
    pub registry: Option<Registry>,
    /// Where to listen; `None` means the slot's own place, where others who open it by name look.
    pub socket: Option<PathBuf>,
    /// Processor to do the device's work on, and no other.
    pub core: Option<usize>,
    /// How long to look for work without a pause after the last there was; `None` means for ever.
    pub spin: Option<Duration>,
    /// Rules for faults, beside those the device has: they end with the server.
    pub faults: Vec<FaultRule>,
    /// Most bytes of a memory device's data that are taken from the system before anybody is served. What
    /// is touched later takes as long as the system needs for it.
    pub populate_bytes: u64,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            registry: None,
            socket: None,
            core: None,
            spin: Some(Duration::from_millis(50)),
            faults: Vec::new(),
            populate_bytes: 0,
        }
    }
}

/// Serves the device called `name` on a vfio-user socket until `stop` is signalled. The calling thread is the
/// device's processor. `ready` is called once, with the path of the socket, when clients can attach.
///
/// The first client drives the device's first controller; each further one gets a controller of its own, as
/// long as the device has any. When a client goes, in whatever way, its controller is reset and free for the
/// next.
///
/// # Errors
/// [`Error::NotFound`], [`Error::InUse`]; [`Error::Unsupported`] for a name that is no virtual device;
/// [`Error::Argument`] for a core that is not there; [`Error::Driver`] when the socket cannot be used;
/// [`Error::Unplugged`] when the slot is, or has been meanwhile: then all clients have been told, and `stop`
/// is signalled.
pub fn serve(name: &str, options: &ServeOptions, stop: &EventFd, ready: impl FnOnce(&Path)) -> Result<()> {
    let (ssd, slot) = open_local(name, options.registry.as_ref())?;
    ssd.add_passing_faults(options.faults.clone())
        .map_err(|source| Error::Ssd { name: name.to_owned(), source })?;
    populate(name, &ssd, options.populate_bytes);
    let own = slot.as_ref().map(Slot::socket_path);
    let Some(path) = options.socket.clone().or_else(|| own.clone()) else {
        let reason = "a device without a slot has no place of its own; name a socket";
        return Err(Error::Argument(format!("serve {name}: {reason}")));
    };
    let _watch = match &slot {
        Some(slot) => {
            let stop = stop.clone();
            Some(PlugWatch::start(slot, move || stop.signal())?)
        }
        None => None,
    };
    let _link = match &own {
        Some(own) => Link::make(own, &path)?,
        None => None,
    };
    let first: Arc<dyn Function> = Arc::clone(&ssd) as Arc<dyn Function>;
    let failed = |e| Error::driver(format!("serve {name}"), unvme_driver::Error::Bus(e));
    let more = more_controllers(ssd);
    let server = Server::bind_each(&path, Some(Arc::clone(&first)), more).map_err(failed)?;
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        // Before the device's thread is pinned, so that messages are answered on another core.
        let messages = scope.spawn(|| {
            let _ended = SetWhenDropped(&stopped);
            server.run(stop)
        });
        let worked = pin(options.core).map(|()| {
            ready(server.path());
            let pace = Pace { spin: options.spin, nap: NAP, nap_alone: Some(NAP_ALONE) };
            relay(&server, Some(&first), &Clock::wall(), &pace, &stopped);
        });
        if worked.is_err() {
            stop.signal();
        }
        let ended = messages.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        worked.and(ended.map_err(failed))
    })?;
    slot.map_or(Ok(()), |slot| slot.check_plugged())
}

/// Tells the device's thread that the messages' thread has ended, in whatever way.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Takes memory for a device's data from the system; returns how much. That there is none to be had costs
/// time later, and nothing else.
fn populate(name: &str, ssd: &Ssd, bytes_max: u64) -> u64 {
    match ssd.populate(bytes_max) {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::warn!("{name}: {error}; its memory is taken as it is touched");
            0
        }
    }
}

fn open_local(name: &str, registry: Option<&Registry>) -> Result<(Arc<Ssd>, Option<Slot>)> {
    let registry = || registry.cloned().map_or_else(Registry::from_environment, Ok);
    match DeviceName::parse(name)? {
        Some(DeviceName::Memory(device)) => Ok((local::memory(&device)?, None)),
        Some(DeviceName::Address(address)) => {
            let registry = registry()?;
            let slot = registry.find(address).ok_or_else(|| registry.not_found(name))?;
            match local::slot_alone(&slot)? {
                Opened::Here(ssd) => Ok((ssd, Some(slot))),
                Opened::Busy(pid) => {
                    let reason = "it can be served by one process; stop that one first".to_owned();
                    Err(Error::InUse { name: name.into(), pid, reason })
                }
            }
        }
        Some(_) => Err(Error::Unsupported {
            name: name.into(),
            reason: "only virtual devices can be served, and another process serves this one".into(),
        }),
        None => Err(registry()?.not_found(name)),
    }
}

fn pin(core: Option<usize>) -> Result<()> {
    let Some(core) = core else { return Ok(()) };
    let refused = |reason: String| Error::Argument(format!("core {core}: {reason}"));
    if core >= CpuSet::MAX_CPU {
        return Err(refused(format!("cores are numbered 0 to {}", CpuSet::MAX_CPU - 1)));
    }
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).map_err(|e| refused(format!("this process cannot run there ({e})")))
}

/// A symbolic link from a slot's own place to a socket elsewhere, so that those who know the slot find it.
struct Link {
    own: PathBuf,
    target: PathBuf,
}

impl Link {
    /// Links `own`, where nothing is, to `path`, if they differ.
    fn make(own: &Path, path: &Path) -> Result<Option<Self>> {
        if own == path {
            return Ok(None);
        }
        let target = std::path::absolute(path).map_err(|e| Error::file("find", path, e))?;
        std::os::unix::fs::symlink(&target, own).map_err(|e| Error::file("create", own, e))?;
        Ok(Some(Self { own: own.to_owned(), target }))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // When the slot was unplugged and plugged again, it may be another process's by now.
        if std::fs::read_link(&self.own).is_ok_and(|target| target == self.target) {
            // One that stays behind leads nowhere, and the next server removes it.
            let _ = std::fs::remove_file(&self.own);
        }
    }
}
