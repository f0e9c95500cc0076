//! Noticing that a slot is being unplugged.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::io::Errno;
use unvme_bus::EventFd;

use super::Slot;
use crate::{Error, Result};

/// How often a slot is looked at where the system has no watches left (fs.inotify.max_user_instances).
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Bytes for changes that are read at once: room for one with a name of any length.
const CHANGES_BYTES: usize = 4096;

/// Watches a slot that this process holds, until dropped.
#[derive(Debug)]
pub(crate) struct PlugWatch {
    stop: EventFd,
    /// The process that has the thread: one that was forked off does not, but it has the event.
    pid: u32,
}

impl PlugWatch {
    /// Calls `unplug` once, on a thread of its own, when the slot is unplugged, also when it has been
    /// already. Errors: [`Error::Io`] when there is no thread to be had.
    pub(crate) fn start(slot: &Slot, unplug: impl FnOnce() + Send + 'static) -> Result<Self> {
        let failed = |source| Error::Io { what: format!("watch {}", slot.address), source };
        let stop = EventFd::new().map_err(|e| failed(io::Error::other(e)))?;
        let changes = changes_in(slot);
        let watching = {
            let (slot, stop) = (slot.clone(), stop.clone());
            move || {
                // Looked at after the changes are listened to: none is missed between the two.
                while !slot.is_unplugged() {
                    if is_over(&stop, changes.as_ref()) {
                        return;
                    }
                }
                unplug();
            }
        };
        thread::Builder::new().name("unvme-unplug".to_owned()).spawn(watching).map_err(failed)?;
        Ok(Self { stop, pid: std::process::id() })
    }
}

impl Drop for PlugWatch {
    /// Nobody waits for the thread, which may be the one that drops this.
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            self.stop.signal();
        }
    }
}

/// Files that appear in the slot's folder; `None` when the system has no watches left.
fn changes_in(slot: &Slot) -> Option<OwnedFd> {
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let watched = inotify::init(flags).and_then(|fd| {
        inotify::add_watch(&fd, slot.folder(), inotify::WatchFlags::CREATE)?;
        Ok(fd)
    });
    watched.inspect_err(|e| tracing::debug!(error = %e, slot = %slot.address, "watch the slot's folder")).ok()
}

/// Waits until there is reason to look at the slot again; true when nobody needs to any more.
fn is_over(stop: &EventFd, changes: Option<&OwnedFd>) -> bool {
    let mut ready = vec![PollFd::new(stop, PollFlags::IN)];
    ready.extend(changes.map(|changes| PollFd::new(changes, PollFlags::IN)));
    let limit = changes.is_none().then_some(LOOK_INTERVAL);
    match poll(&mut ready, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(e) => {
            tracing::warn!(error = %e, "wait for a slot to be unplugged");
            thread::sleep(Duration::from_nanos(LOOK_INTERVAL.tv_nsec.unsigned_abs()));
        }
    }
    if ready.first().is_some_and(|stop| stop.revents().contains(PollFlags::IN)) {
        return true;
    }
    if let Some(changes) = changes {
        // What has changed is of no interest, only that something has.
        let mut room = [MaybeUninit::uninit(); CHANGES_BYTES];
        let mut reader = inotify::Reader::new(changes, &mut room);
        while reader.next().is_ok() {}
    }
    false
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use crate::registry::{BlockBytes, DeviceSpec};
    use crate::{Registry, Size};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn slot() -> (tempfile::TempDir, Registry, Slot) {
        let folder = tempfile::tempdir().expect("temporary folder");
        let registry = Registry::at(folder.path().join("home"));
        let spec = DeviceSpec::block(Size(4 << 20), BlockBytes::B512, "S1");
        let slot = registry.create("01:00.0".parse().expect("address"), &spec).expect("create");
        (folder, registry, slot)
    }

    #[test]
    fn a_watch_tells_once_that_its_slot_is_unplugged() {
        let (_folder, registry, slot) = slot();
        let (tell, told) = mpsc::channel();
        let _watch = PlugWatch::start(&slot, move || tell.send(()).expect("told")).expect("watch");
        std::fs::write(slot.folder().join("state.json"), "{}").expect("write");
        assert_eq!(told.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
        registry.unplug(slot.address).expect("unplug");
        told.recv_timeout(PATIENCE).expect("told");
        assert_eq!(
            told.recv_timeout(PATIENCE),
            Err(mpsc::RecvTimeoutError::Disconnected),
            "its thread has ended"
        );
    }

    #[test]
    fn a_slot_that_was_unplugged_before_the_watch_began_is_told_of_too() {
        let (_folder, registry, slot) = slot();
        registry.unplug(slot.address).expect("unplug");
        let (tell, told) = mpsc::channel();
        let _watch = PlugWatch::start(&slot, move || tell.send(()).expect("told")).expect("watch");
        told.recv_timeout(PATIENCE).expect("told");
    }

    #[test]
    fn a_watch_that_is_dropped_ends_its_thread_and_tells_nothing() {
        let (_folder, registry, slot) = slot();
        let (tell, told) = mpsc::channel::<()>();
        let watch = PlugWatch::start(&slot, move || tell.send(()).expect("told")).expect("watch");
        drop(watch);
        assert_eq!(told.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
        registry.unplug(slot.address).expect("unplug");
    }

    #[test]
    fn without_watches_the_slot_is_looked_at_every_now_and_then() {
        let stop = EventFd::new().expect("event");
        assert!(!is_over(&stop, None), "time to look");
        stop.signal();
        assert!(is_over(&stop, None));
    }
}
