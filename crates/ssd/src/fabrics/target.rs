//! What a server offers: subsystems, the ports where they are reached, and other discovery services.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use unvme_bus::{EventFd, lock};
use unvme_fabric::chap;
use unvme_spec::fabrics::{DISCOVERY_NQN, NQN_BYTES_MAX};

use super::access::Access;
use super::desk::Desk;
use super::memory::MemoryBudget;
use super::port::{PortOptions, Referral};
use super::refusals::Refusals;
use super::subsystem::Offer;
use crate::association::{AnaState, PortId};
use crate::{Ssd, SsdError};

/// Most bytes of an address, as the Discovery log page has it.
const ADDRESS_BYTES_MAX: usize = 255;
/// Most bytes of a service, as the Discovery log page has it.
const SERVICE_BYTES_MAX: usize = 31;

/// DH groups that a target uses unless [`TargetOptions::authentication`] names others, the favourite first. A
/// host that has proven nothing makes the thread that serves its connection raise to a power twice: about 2
/// ms each for ffdhe3072, 14 ms for ffdhe8192. ffdhe6144 and ffdhe8192 are therefore for who asks for them.
pub const DEFAULT_GROUPS: [chap::Group; 4] =
    [chap::Group::Ffdhe3072, chap::Group::Ffdhe4096, chap::Group::Ffdhe2048, chap::Group::Null];

/// How a target is made.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// Most bytes of staging memory, see [`MemoryBudget`].
    pub memory_bytes: u64,
    /// What hosts may authenticate with. Unless told otherwise, all hash functions, and of the groups those
    /// whose arithmetic does not keep the other connections of a thread waiting: see [`DEFAULT_GROUPS`].
    pub authentication: chap::Policy,
    /// Identify Namespace of the NVM Command Set says of a key-value namespace how large it is, in blocks of
    /// 512 bytes, where it is zeroes otherwise: there are hosts that take a namespace without capacity there
    /// for inactive, whatever its command set is, and others that would take this one for blocks.
    pub pairs_in_blocks: bool,
}

impl Default for TargetOptions {
    fn default() -> Self {
        let authentication = chap::Policy { groups: DEFAULT_GROUPS.to_vec(), ..chap::Policy::default() };
        Self { memory_bytes: MemoryBudget::DEFAULT_BYTES, authentication, pairs_in_blocks: false }
    }
}

/// What a server offers.
#[derive(Debug)]
pub struct Target {
    memory: MemoryBudget,
    authentication: chap::Policy,
    pub(super) pairs_in_blocks: bool,
    desk: Desk,
    catalogue: RwLock<Catalogue>,
    is_closed: AtomicBool,
    refusals: Refusals,
    /// Connections that want to hear of a change of the catalogue.
    listeners: Mutex<Vec<(u64, EventFd)>>,
}

/// What the Discovery log page is made of.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    /// Counts changes (GENCTR).
    pub(super) generation: u64,
    pub(super) offers: Vec<Arc<Offer>>,
    pub(super) ports: Vec<PortOptions>,
    pub(super) referrals: Vec<Referral>,
}

impl Target {
    /// Nothing is offered yet.
    pub fn new(options: TargetOptions) -> Arc<Self> {
        Arc::new(Self {
            memory: MemoryBudget::new(options.memory_bytes),
            authentication: options.authentication,
            pairs_in_blocks: options.pairs_in_blocks,
            desk: Desk::default(),
            catalogue: RwLock::default(),
            is_closed: AtomicBool::new(false),
            refusals: Refusals::default(),
            listeners: Mutex::default(),
        })
    }

    /// Offers a device as the subsystem `nqn`, at all ports.
    ///
    /// # Errors
    /// [`SsdError::Config`] when the NQN cannot be one, or is taken.
    pub fn add_subsystem(&self, nqn: &str, device: Arc<Ssd>, access: Access) -> Result<(), SsdError> {
        check_nqn(nqn)?;
        let offer = Arc::new(Offer::new(nqn.to_owned(), device, access));
        self.change(|catalogue| {
            if nqn == DISCOVERY_NQN || catalogue.offers.iter().any(|other| other.nqn == nqn) {
                return Err(refused("nqn", nqn, "a name that no other subsystem has"));
            }
            catalogue.ports.iter().for_each(|port| offer.open_port(port.id, port.ana));
            catalogue.offers.push(offer);
            Ok(())
        })
    }

    /// Opens a port.
    ///
    /// # Errors
    /// [`SsdError::Config`] when the identifier is taken, or the address too long.
    pub fn add_port(&self, port: PortOptions) -> Result<(), SsdError> {
        check_port(&port)?;
        self.change(|catalogue| {
            if catalogue.ports.iter().any(|other| other.id == port.id) {
                return Err(refused("port", &port.id.0.to_string(), "an identifier that no other port has"));
            }
            catalogue.offers.iter().for_each(|offer| offer.open_port(port.id, port.ana));
            catalogue.ports.push(port);
            Ok(())
        })
    }

    /// Names another discovery service.
    ///
    /// # Errors
    /// [`SsdError::Config`] when its NQN or address is too long.
    pub fn add_referral(&self, referral: Referral) -> Result<(), SsdError> {
        check_port(&referral.port)?;
        if !referral.nqn.is_empty() {
            check_nqn(&referral.nqn)?;
        }
        self.change(|catalogue| {
            catalogue.referrals.push(referral);
            Ok(())
        })
    }

    /// Another state of a subsystem at a port, or of all subsystems there; hosts are told.
    pub fn set_ana(&self, port: PortId, nqn: Option<&str>, state: AnaState) {
        let offers = self.catalogue().offers.clone();
        for offer in offers.iter().filter(|offer| nqn.is_none_or(|nqn| offer.nqn == nqn)) {
            offer.set_ana(port, state);
        }
    }

    /// Another list of hosts: those that would not be let in by it, or not by what they have proven, are
    /// disconnected; the others notice nothing. The discovery log changes. False when there is no such
    /// subsystem.
    pub fn set_access(&self, nqn: &str, access: Access) -> bool {
        let Some(offer) = self.offer(nqn) else { return false };
        offer.set_access(access);
        self.changed(|_| ());
        true
    }

    /// A subsystem is not offered any more, and its hosts are disconnected; the others notice nothing but a
    /// change of the discovery log. False when there is none of that name.
    pub fn remove_subsystem(&self, nqn: &str) -> bool {
        let Some(offer) = self.offer(nqn) else { return false };
        self.changed(|catalogue| catalogue.offers.retain(|other| other.nqn != nqn));
        offer.close();
        true
    }

    /// Whether hosts have to use TLS at all ports, as the Discovery log page says it.
    pub fn set_secure(&self, is_secure: bool) {
        self.changed(|catalogue| catalogue.ports.iter_mut().for_each(|port| port.is_secure = is_secure));
    }

    /// No host can connect any more; those that are connected stay.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Staging memory of all queues.
    pub fn memory(&self) -> &MemoryBudget {
        &self.memory
    }

    /// Where hosts are told of that were refused.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub(super) fn authentication(&self) -> &chap::Policy {
        &self.authentication
    }

    /// Where proofs of hosts are worked on.
    pub(super) fn desk(&self) -> &Desk {
        &self.desk
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    pub(super) fn catalogue(&self) -> RwLockReadGuard<'_, Catalogue> {
        lock::read(&self.catalogue)
    }

    fn catalogue_mut(&self) -> RwLockWriteGuard<'_, Catalogue> {
        lock::write(&self.catalogue)
    }

    pub(super) fn offer(&self, nqn: &str) -> Option<Arc<Offer>> {
        self.catalogue().offers.iter().find(|offer| offer.nqn == nqn).cloned()
    }

    /// The keys for authentication that a host has in the first subsystem that names any for it: what it
    /// proves to the discovery service.
    pub(super) fn keys_of(&self, hostnqn: &str) -> Option<chap::Keys> {
        let catalogue = self.catalogue();
        catalogue.offers.iter().find_map(|offer| offer.access().host(hostnqn)?.keys.clone())
    }

    /// Changes the catalogue, unless that is refused, and tells who listens.
    fn change(&self, change: impl FnOnce(&mut Catalogue) -> Result<(), SsdError>) -> Result<(), SsdError> {
        {
            let mut catalogue = self.catalogue_mut();
            change(&mut catalogue)?;
            catalogue.generation += 1;
        }
        lock(&self.listeners).iter().for_each(|(_, wake)| wake.signal());
        Ok(())
    }

    /// As [`Target::change`], for what nothing is wrong with.
    fn changed(&self, change: impl FnOnce(&mut Catalogue)) {
        let done: Result<(), SsdError> = self.change(|catalogue| {
            change(catalogue);
            Ok(())
        });
        debug_assert!(done.is_ok(), "nothing is refused");
    }

    /// A connection wants to be woken up when the catalogue changes, until it says otherwise with the number
    /// it gets.
    pub(super) fn listen(&self, wake: EventFd) -> u64 {
        let mut listeners = lock(&self.listeners);
        let number = listeners.last().map_or(0, |(last, _)| last + 1);
        listeners.push((number, wake));
        number
    }

    pub(super) fn ignore(&self, number: u64) {
        lock(&self.listeners).retain(|(listener, _)| *listener != number);
    }
}

fn refused(key: &'static str, value: &str, expected: &str) -> SsdError {
    SsdError::Config { key, value: value.to_owned(), expected: expected.to_owned() }
}

/// Names of subsystems start with "nqn." (Base 4.7).
fn check_nqn(nqn: &str) -> Result<(), SsdError> {
    let is_name = nqn.starts_with("nqn.") && nqn.len() <= NQN_BYTES_MAX && !nqn.contains('\0');
    if is_name { Ok(()) } else { Err(refused("nqn", nqn, "\"nqn.\" and more, at most 223 bytes")) }
}

fn check_port(port: &PortOptions) -> Result<(), SsdError> {
    if port.address.len() > ADDRESS_BYTES_MAX {
        return Err(refused("address", &port.address, "at most 255 bytes"));
    }
    if port.service.len() > SERVICE_BYTES_MAX {
        return Err(refused("service", &port.service, "at most 31 bytes"));
    }
    Ok(())
}
