//! A subsystem as it is offered: a device by a name, to hosts that may enter, and how well it is reached at
//! each port.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, RwLock, Weak};

use unvme_bus::lock;

use super::access::Access;
use crate::Ssd;
use crate::association::{AnaState, PortId, Reach};

/// See the module.
pub(super) struct Offer {
    pub(super) nqn: String,
    pub(super) device: Arc<Ssd>,
    pub(super) access: RwLock<Arc<Access>>,
    reaches: Mutex<BTreeMap<PortId, Arc<Reach>>>,
    /// Controllers of its hosts, some of which may be gone.
    controllers: Mutex<Vec<Weak<Ssd>>>,
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").field("nqn", &self.nqn).finish_non_exhaustive()
    }
}

impl Offer {
    pub(super) fn new(nqn: String, device: Arc<Ssd>, access: Access) -> Self {
        Self {
            nqn,
            device,
            access: RwLock::new(Arc::new(access)),
            reaches: Mutex::default(),
            controllers: Mutex::default(),
        }
    }

    pub(super) fn access(&self) -> Arc<Access> {
        Arc::clone(&lock::read(&self.access))
    }

    pub(super) fn set_access(&self, access: Access) {
        *lock::write(&self.access) = Arc::new(access);
    }

    /// How it is reached at a port: well, until somebody says otherwise.
    pub(super) fn reach(&self, port: PortId) -> Arc<Reach> {
        Arc::clone(lock(&self.reaches).entry(port).or_default())
    }

    /// A port has opened.
    pub(super) fn open_port(&self, port: PortId, state: AnaState) {
        lock(&self.reaches).entry(port).or_insert_with(|| Arc::new(Reach::new(state)));
    }

    /// Another state at a port; the hosts there are told.
    pub(super) fn set_ana(&self, port: PortId, state: AnaState) {
        if !self.reach(port).set(state) {
            return;
        }
        for controller in self.controllers() {
            if controller.association.as_ref().is_some_and(|association| association.port() == port) {
                controller.events.ana_changed(controller.wanted_events());
            }
        }
    }

    /// Controllers of its hosts.
    pub(super) fn controllers(&self) -> Vec<Arc<Ssd>> {
        lock(&self.controllers).iter().filter_map(Weak::upgrade).collect()
    }

    /// A host has a controller.
    pub(super) fn enter(&self, controller: &Arc<Ssd>) {
        let mut controllers = lock(&self.controllers);
        controllers.retain(|other| other.strong_count() != 0);
        controllers.push(Arc::downgrade(controller));
    }

    /// The controller with an identifier, if it is a host's.
    pub(super) fn controller(&self, cntlid: u16) -> Option<Arc<Ssd>> {
        self.controllers().into_iter().find(|controller| controller.controller_id() == cntlid)
    }
}
