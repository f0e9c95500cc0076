//! The devices that a target serves, each as a subsystem.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use unvme_bus::EventFd;
use unvme_ssd::Ssd;

use super::TcpServeOptions;
use crate::local;
use crate::name::check_nqn;
use crate::registry::{PlugWatch, Slot};
use crate::serve::{open_local, populate};
use crate::share::Held;
use crate::{DeviceName, Error, Result};

/// A device and the name it has as a subsystem.
pub(super) struct Served {
    /// First: others are sent away before the device is closed.
    _held: Option<Held>,
    _watch: Option<PlugWatch>,
    pub(super) name: String,
    pub(super) nqn: String,
    pub(super) ssd: Arc<Ssd>,
    slot: Option<Slot>,
    is_unplugged: Arc<AtomicBool>,
}

impl Served {
    /// The slot was unplugged: what is left of the device answers nothing any more.
    pub(super) fn is_unplugged(&self) -> bool {
        self.is_unplugged.load(Ordering::Acquire)
    }

    /// The name that it is plugged by.
    pub(super) fn address(&self) -> String {
        self.slot.as_ref().map_or_else(|| self.name.clone(), |slot| slot.address.to_string())
    }
}

/// Opens the devices. Slots stay open to other processes of this machine by their names; `news` is signalled
/// when one is unplugged.
pub(super) fn open(names: &[String], options: &TcpServeOptions, news: &EventFd) -> Result<Vec<Served>> {
    if names.is_empty() {
        return Err(Error::Argument("serve: name a device".to_owned()));
    }
    if !options.nqns.is_empty() && options.nqns.len() != names.len() {
        return Err(Error::Argument(format!(
            "serve: {} NQNs for {} devices; name one for each, in their order, or none",
            options.nqns.len(),
            names.len()
        )));
    }
    let mut served: Vec<Served> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let device = open_one(name, options, options.nqns.get(index), news)?;
        if let Some(other) = served.iter().find(|other| other.nqn == device.nqn) {
            return Err(Error::Argument(format!(
                "serve: {} and {name} would both be {}; name them by --nqn",
                other.name, device.nqn
            )));
        }
        served.push(device);
    }
    let mut left = options.populate_bytes;
    for device in &served {
        left -= populate(&device.name, &device.ssd, left);
    }
    Ok(served)
}

fn open_one(name: &str, options: &TcpServeOptions, nqn: Option<&String>, news: &EventFd) -> Result<Served> {
    let registry = options.registry.as_ref();
    let (ssd, slot) = match DeviceName::parse(name)? {
        // Hosts take devices of one serial number for one device.
        Some(DeviceName::Memory(device)) => (local::memory_for_others(&device)?, None),
        _ => open_local(name, registry)?,
    };
    let failed = |source| Error::Ssd { name: name.to_owned(), source };
    ssd.add_passing_faults(options.faults.clone()).map_err(failed)?;
    let nqn = match nqn {
        Some(nqn) => check_nqn(nqn).map(|()| nqn.clone()).map_err(Error::Argument)?,
        None => ssd.subsystem_nqn(),
    };
    let is_unplugged = Arc::new(AtomicBool::new(false));
    let watch = match &slot {
        Some(slot) => {
            let (news, is_unplugged) = (news.clone(), Arc::clone(&is_unplugged));
            let tell = move || {
                is_unplugged.store(true, Ordering::Release);
                news.signal();
            };
            Some(PlugWatch::start(slot, tell)?)
        }
        None => None,
    };
    let held = slot.as_ref().map(|slot| Held::slot(name, &ssd, slot));
    Ok(Served { _held: held, _watch: watch, name: name.to_owned(), nqn, ssd, slot, is_unplugged })
}
