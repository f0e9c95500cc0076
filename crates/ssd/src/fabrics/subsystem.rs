//! A subsystem as it is offered: a device by a name, to hosts that may enter, and how well it is reached at
//! each port.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use unvme_bus::lock;

use super::access::Access;
use super::places::Places;
use crate::Ssd;
use crate::association::{AnaState, Association, EndReason, PortId, Reach};

/// See the module.
pub(super) struct Offer {
    pub(super) nqn: String,
    pub(super) device: Arc<Ssd>,
    pub(super) access: RwLock<Arc<Access>>,
    reaches: Mutex<BTreeMap<PortId, Arc<Reach>>>,
    places: Mutex<Places>,
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
            places: Mutex::default(),
        }
    }

    pub(super) fn access(&self) -> Arc<Access> {
        Arc::clone(&lock::read(&self.access))
    }

    /// Another list of hosts: whoever is connected and would not be let in now has to go.
    pub(super) fn set_access(&self, access: Access) {
        let access = Arc::new(access);
        *lock::write(&self.access) = Arc::clone(&access);
        // Whoever connects meanwhile asks again once it is among the controllers.
        for controller in self.controllers() {
            let Some(association) = &controller.association else { continue };
            if association.ended().is_none() && !access.is_met(&association.hostnqn, &association.proof) {
                self.send_away(association, EndReason::Revoked);
            }
        }
    }

    /// It is not offered any more: all of its hosts have to go.
    pub(super) fn close(&self) {
        for controller in self.controllers() {
            if let Some(association) = &controller.association {
                self.send_away(association, EndReason::DeviceGone);
            }
        }
    }

    fn send_away(&self, association: &Association, reason: EndReason) {
        let host = association.hostnqn.escape_debug();
        tracing::warn!(%host, subsystem = self.nqn, %reason, "a host is disconnected");
        association.end(reason);
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
        self.places().controllers().collect()
    }

    /// Who has a controller.
    pub(super) fn places(&self) -> MutexGuard<'_, Places> {
        lock(&self.places)
    }

    /// The controller with an identifier, if it is a host's.
    pub(super) fn controller(&self, cntlid: u16) -> Option<Arc<Ssd>> {
        self.controllers().into_iter().find(|controller| controller.controller_id() == cntlid)
    }
}
