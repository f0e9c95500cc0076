//! Hot-plug of virtual slots: unplugging one takes its device away from whoever has it open, plugging it
//! brings it back.
//!
//! A slot is unplugged when its folder holds the file `unplugged`. Whoever opens a slot looks for it after
//! taking the slot's lock, and whoever unplugs one makes it before looking at the lock: either the opener
//! sees it, or the holder is found. The holder watches the folder ([`super::watch`]), takes its device away
//! from all hosts, saves it and gives the lock back; that is what whoever unplugs waits for. Holder and
//! handles of the device may live on after that: they reach nothing.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::{Registry, Slot, lock};
use crate::{Error, PciAddress, Result};

const UNPLUGGED_FILE: &str = "unplugged";
/// How long a holder may take to give a slot back: it saves what the device has not saved.
const UNPLUG_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked whether it has.
const UNPLUG_PAUSE: Duration = Duration::from_millis(2);

/// What came of unplugging or plugging a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugged {
    /// It was done.
    Changed,
    /// The slot was so already.
    Already,
}

impl Registry {
    /// Unplugs a slot: its device is taken away from whoever has it open, and cannot be opened until it is
    /// plugged again. It keeps its data: all that was acknowledged. Returns when no process has it any more.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::InUse`] when a process has it and does not give it back, one that is
    /// stopped for example: then the slot stays plugged; [`Error::Io`].
    pub fn unplug(&self, address: PciAddress) -> Result<Plugged> {
        self.unplug_within(address, UNPLUG_LIMIT)
    }

    pub(super) fn unplug_within(&self, address: PciAddress, limit: Duration) -> Result<Plugged> {
        let slot = self.existing(address)?;
        let path = slot.unplugged_path();
        let made = match File::create_new(&path) {
            Ok(_) => true,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => false,
            Err(e) => return Err(self.vanished(&slot).unwrap_or_else(|| Error::file("create", &path, e))),
        };
        match slot.wait_until_free(limit) {
            // Also where an earlier call was killed before the holder was done.
            Ok(waited) => Ok(if made || waited { Plugged::Changed } else { Plugged::Already }),
            Err(e) => {
                if made {
                    // Nothing has been unplugged. Should the removal fail, the next call takes over.
                    let _ = fs::remove_file(&path);
                }
                Err(e)
            }
        }
    }

    /// Plugs a slot that was unplugged: it can be opened again.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Io`].
    pub fn plug(&self, address: PciAddress) -> Result<Plugged> {
        let slot = self.existing(address)?;
        let path = slot.unplugged_path();
        match fs::remove_file(&path) {
            Ok(()) => Ok(Plugged::Changed),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Plugged::Already),
            Err(e) => Err(Error::file("remove", &path, e)),
        }
    }

    fn existing(&self, address: PciAddress) -> Result<Slot> {
        self.find(address).ok_or_else(|| self.not_found(&address.to_string()))
    }

    /// The error for a slot that somebody has removed meanwhile.
    fn vanished(&self, slot: &Slot) -> Option<Error> {
        self.existing(slot.address).err()
    }
}

impl Slot {
    /// True when the slot is unplugged: it cannot be opened.
    pub fn is_unplugged(&self) -> bool {
        self.unplugged_path().exists()
    }

    /// The error for opening a slot that is unplugged; nothing when it is plugged. Errors:
    /// [`Error::Unplugged`].
    pub(crate) fn check_plugged(&self) -> Result<()> {
        if self.is_unplugged() { Err(Error::Unplugged { name: self.address.to_string() }) } else { Ok(()) }
    }

    fn unplugged_path(&self) -> PathBuf {
        self.folder().join(UNPLUGGED_FILE)
    }

    /// Waits until nobody holds the slot; true when somebody did.
    fn wait_until_free(&self, limit: Duration) -> Result<bool> {
        let started = Instant::now();
        let mut waited = false;
        while let Some(pid) = lock::probe(&self.lock_path())? {
            let in_use = |reason| Err(Error::InUse { name: self.address.to_string(), pid, reason });
            if !self.is_unplugged() {
                return in_use("it was plugged again before that process gave it back".to_owned());
            }
            if started.elapsed() >= limit {
                return in_use(format!(
                    "it has not given the device back within {limit:?}; end it, then unplug"
                ));
            }
            waited = true;
            thread::sleep(UNPLUG_PAUSE);
        }
        Ok(waited)
    }
}
