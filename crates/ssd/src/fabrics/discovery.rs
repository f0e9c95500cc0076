//! The discovery controller: which subsystems there are for a host, and where (Base 3.1.3.3).

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use unvme_bus::EventFd;
use unvme_spec::admin::{self, GetFeatures, GetLogPage, SetFeatures};
use unvme_spec::fabrics::{
    CNTLID_DYNAMIC, DISCOVERY_NQN, DiscoveryHeader, DiscoveryRecord, nqn_bytes, sectype, subtype, treq,
    trtype,
};
use unvme_spec::feature::{AsyncEventConfiguration, Select, fid};
use unvme_spec::identify::{IdentifyController, cns, lpa, oaes, sgls, text};
use unvme_spec::log_page::{AsyncEvent, event_type, lid, notice_event};
use unvme_spec::regs::{self, Cap, Cc, Csts, SHN_NONE, SHST_COMPLETE, SHST_NORMAL, offset};
use unvme_spec::{Sqe, Status};
use zerocopy::IntoBytes;

use super::port::{AddressFamily, PortOptions, Referral};
use super::queue::{At, FabricsQueue};
use super::target::{Catalogue, Target};
use crate::association::{KEEP_ALIVE_UNIT_MS, PortId, Proof};

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();
const TOO_SHORT: Status = Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry();
/// Bytes of what Identify says.
const IDENTIFY_BYTES: u32 = size_of::<IdentifyController>() as u32;
/// Asynchronous Event Requests that can be outstanding, zero-based.
const AERL_Z: u8 = 3;
/// Most bytes of data of one command, and of all commands of a queue at a time; the others wait. Any host may
/// connect, and as many of them as a server takes leave memory for those that are known.
pub(super) const DISCOVERY_BYTES_MAX: u32 = PAGE_BYTES << MDTS;
/// MDTS: the above as a power of two of pages.
const MDTS: u8 = 5;
/// CAP.MPSMIN is 0.
const PAGE_BYTES: u32 = 4096;
/// A host that does not use the keep alive timer is done with after this long without a command (Base
/// 3.1.3.3).
const ACTIVITY_TIMEOUT_MS: u32 = 120_000;
/// CNTRLTYPE of a discovery controller.
const CNTRLTYPE_DISCOVERY: u8 = 2;
/// Entries of admin queues as the log page advises (ASQSZ). Discovery controllers have no larger ones.
pub(super) const ADMIN_ENTRIES: u16 = 128;
/// EFLAGS: the entry's discovery service can be connected to for good.
const PERSISTENT: u16 = 1 << 1;

/// The discovery controller of one host.
#[derive(Debug)]
pub(super) struct Discovery {
    pub(super) hostnqn: String,
    /// What the host has proven by the time it can ask for anything.
    proof: Proof,
    cntlid: u16,
    cc: Cc,
    csts: Csts,
    keep_alive_ms: u32,
    last_seen: u64,
    events: AsyncEventConfiguration,
    /// Slots of Asynchronous Event Requests, oldest first.
    requests: VecDeque<u16>,
    /// Generation of the catalogue that the host has been told of.
    told: u64,
    /// The host has been told of a change and has not read the log page since.
    is_masked: bool,
    listener: Option<u64>,
}

impl Discovery {
    pub(super) fn new(
        hostnqn: &str,
        proof: Proof,
        keep_alive_ms: u32,
        target: &Target,
        wake: Option<EventFd>,
    ) -> Self {
        // Identifiers of discovery controllers are a name for messages.
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let mut discovery = Self {
            hostnqn: hostnqn.to_owned(),
            proof,
            cntlid: NEXT.fetch_add(1, Ordering::Relaxed) % 0xfff0,
            cc: Cc::new(),
            csts: Csts::new(),
            keep_alive_ms: 0,
            last_seen: 0,
            events: AsyncEventConfiguration::new(),
            requests: VecDeque::new(),
            told: target.catalogue().generation,
            is_masked: false,
            listener: wake.map(|wake| target.listen(wake)),
        };
        discovery.set_keep_alive(keep_alive_ms);
        discovery
    }

    pub(super) fn cntlid(&self) -> u16 {
        self.cntlid
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.csts.rdy()
    }

    pub(super) fn seen(&mut self, now: u64) {
        self.last_seen = now;
    }

    /// When the host is done with, unless something is heard before.
    pub(super) fn expires(&self) -> u64 {
        let milliseconds = match self.keep_alive_ms {
            0 => ACTIVITY_TIMEOUT_MS,
            milliseconds => milliseconds,
        };
        self.last_seen.saturating_add(u64::from(milliseconds) * 1_000_000)
    }

    fn set_keep_alive(&mut self, milliseconds: u32) {
        self.keep_alive_ms = milliseconds.checked_next_multiple_of(KEEP_ALIVE_UNIT_MS).unwrap_or(u32::MAX);
    }

    pub(super) fn close(&mut self, target: &Target) {
        if let Some(listener) = self.listener.take() {
            target.ignore(listener);
        }
    }

    /// A property; zero for one that it does not have.
    pub(super) fn property(&self, at: u64) -> u64 {
        match at {
            offset::CAP => {
                Cap::new().with_mqes_z(ADMIN_ENTRIES - 1).with_cqr(true).with_to(1).with_css(1).into_bits()
            }
            offset::VS => regs::VERSION_2_0.into(),
            offset::CC => self.cc.into_bits().into(),
            offset::CSTS => self.csts.into_bits().into(),
            _ => 0,
        }
    }

    /// CC is all that can be set: a discovery controller cannot reset its subsystem. Returns the commands
    /// that a reset has aborted.
    pub(super) fn set_property(&mut self, at: u64, value: u32) -> VecDeque<u16> {
        let mut aborted = VecDeque::new();
        if at != offset::CC {
            return aborted;
        }
        let new = Cc::from_bits(value);
        if self.cc.en() && !new.en() {
            aborted = std::mem::take(&mut self.requests);
            self.events = AsyncEventConfiguration::new();
            self.is_masked = false;
        }
        self.cc = new;
        self.csts.set_rdy(new.en());
        self.csts.set_shst(if new.shn() == SHN_NONE { SHST_NORMAL } else { SHST_COMPLETE });
        aborted
    }

    fn identify(&self) -> IdentifyController {
        let mut id = IdentifyController::default();
        id.cntlid = self.cntlid;
        id.ver = regs::VERSION_2_0;
        id.mdts = MDTS;
        id.oaes = oaes::DISCOVERY_LOG_CHANGE;
        id.cntrltype = CNTRLTYPE_DISCOVERY;
        id.aerl_z = AERL_Z;
        id.lpa = lpa::EXTENDED_DATA;
        id.kas = (KEEP_ALIVE_UNIT_MS / 100) as u16;
        id.maxcmd = ADMIN_ENTRIES;
        id.sgls = sgls::SUPPORTED | sgls::LONGER_THAN_DATA | sgls::OFFSET | sgls::TRANSPORT;
        text::write(&mut id.sn, "unvme");
        text::write(&mut id.mn, "unvme discovery controller");
        text::write(&mut id.fr, env!("CARGO_PKG_VERSION"));
        let fits = text::write_nqn(&mut id.subnqn, DISCOVERY_NQN);
        debug_assert!(fits, "the name of the discovery service has 37 characters");
        id
    }

    fn set_features(&mut self, set: SetFeatures) -> Result<u64, Status> {
        if set.save {
            return Err(Status::FEATURE_NOT_SAVEABLE.with_do_not_retry());
        }
        match set.fid {
            fid::KEEP_ALIVE_TIMER => self.set_keep_alive(set.cdw11),
            fid::ASYNC_EVENT_CONFIGURATION => {
                let new = AsyncEventConfiguration::from_bits(set.cdw11);
                self.events = AsyncEventConfiguration::new().with_discovery_log(new.discovery_log());
            }
            _ => return Err(INVALID_FIELD),
        }
        Ok(0)
    }

    fn get_features(&self, get: GetFeatures) -> Result<u64, Status> {
        let (current, default) = match get.fid {
            fid::KEEP_ALIVE_TIMER => (self.keep_alive_ms, 0),
            fid::ASYNC_EVENT_CONFIGURATION => (self.events.into_bits(), 0),
            _ => return Err(INVALID_FIELD),
        };
        match get.select {
            Select::Current => Ok(current.into()),
            Select::Default | Select::Saved => Ok(default),
            // Changeable.
            Select::SupportedCapabilities => Ok(1 << 2),
            Select::Reserved(_) => Err(INVALID_FIELD),
        }
    }
}

impl FabricsQueue {
    /// Executes a command of a discovery controller.
    #[cold]
    pub(super) fn execute_discovery(&mut self, at: u16) {
        let Some(slot) = self.slots.get(at) else { return };
        let sqe: Sqe = slot.sqe;
        let room = if slot.is_write { 0 } else { slot.bytes };
        let mut sent = 0;
        let answer = match admin::Command::parse(&sqe) {
            admin::Command::AsyncEventRequest => match &mut self.at {
                At::Discovery(discovery) if discovery.requests.len() <= usize::from(AERL_Z) => {
                    discovery.requests.push_back(at);
                    return;
                }
                _ => Err(Status::AER_LIMIT_EXCEEDED),
            },
            admin::Command::Abort { sqid, cid } => Ok(self.abort_request(sqid.0, cid.0)),
            admin::Command::Identify(identify) => match (identify.cns, &self.at) {
                (cns::CONTROLLER, At::Discovery(_)) if room < IDENTIFY_BYTES => Err(TOO_SHORT),
                (cns::CONTROLLER, At::Discovery(discovery)) => {
                    sent = IDENTIFY_BYTES;
                    let page = discovery.identify();
                    self.fill(at, page.as_bytes());
                    Ok(0)
                }
                _ => Err(INVALID_FIELD),
            },
            admin::Command::GetLogPage(get) if u64::from(room) < get.bytes() => Err(TOO_SHORT),
            admin::Command::GetLogPage(get) => {
                sent = get.bytes() as u32;
                self.discovery_log(at, get)
            }
            admin::Command::SetFeatures(set) => self.discovery(|discovery| discovery.set_features(set)),
            admin::Command::GetFeatures(get) => self.discovery(|discovery| discovery.get_features(get)),
            admin::Command::KeepAlive => Ok(0),
            _ => Err(Status::INVALID_OPCODE.with_do_not_retry()),
        };
        self.executed(at, answer, sent.min(room));
    }

    fn discovery<T>(&mut self, f: impl FnOnce(&mut Discovery) -> Result<T, Status>) -> Result<T, Status> {
        match &mut self.at {
            At::Discovery(discovery) => f(discovery),
            _ => Err(Status::INTERNAL_ERROR),
        }
    }

    /// Writes a command's data: as much of it as there is room for, and zeroes behind it.
    fn fill(&mut self, at: u16, data: &[u8]) {
        let Some(slot) = self.slots.get(at) else { return };
        let Some(staging) = slot.buffer.and_then(|buffer| self.pool.staging(buffer, slot.bytes)) else {
            return;
        };
        staging.region.fill(staging.offset, staging.bytes, 0);
        staging.region.write(staging.offset, data.get(..staging.bytes).unwrap_or(data));
    }

    /// Ends an Asynchronous Event Request; bit 0 of the result says that nothing was aborted.
    fn abort_request(&mut self, sqid: u16, cid: u16) -> u64 {
        let Some(at) = self.slots.find_request(cid).filter(|_| sqid == 0) else { return 1 };
        let was_there = self.discovery(|discovery| {
            let place = discovery.requests.iter().position(|&request| request == at);
            Ok(place.and_then(|place| discovery.requests.remove(place)).is_some())
        });
        if was_there != Ok(true) {
            return 1;
        }
        self.executed(at, Err(Status::ABORT_REQUESTED), 0);
        0
    }

    fn discovery_log(&mut self, at: u16, get: GetLogPage) -> Result<u64, Status> {
        if get.lid != lid::DISCOVERY {
            return Err(Status::INVALID_LOG_PAGE.with_do_not_retry());
        }
        if get.offset_is_index || !get.offset.is_multiple_of(4) {
            return Err(INVALID_FIELD);
        }
        let target = Arc::clone(&self.target);
        let catalogue = target.catalogue();
        let reached = Reached { port: self.port, address: self.peer.local.parse().ok() };
        let page = self
            .discovery(|discovery| Ok(log_page(&catalogue, &discovery.hostnqn, &discovery.proof, reached)))?;
        let generation = catalogue.generation;
        drop(catalogue);
        let offset = usize::try_from(get.offset).unwrap_or(usize::MAX);
        let rest = page.get(offset..).ok_or(INVALID_FIELD)?;
        let wanted = usize::try_from(get.bytes()).unwrap_or(usize::MAX);
        self.fill(at, rest.get(..wanted).unwrap_or(rest));
        self.discovery(|discovery| {
            if !get.retain_async_event {
                discovery.is_masked = false;
                discovery.told = generation;
            }
            Ok(0)
        })
    }

    /// Tells the host of a change that it has asked to hear of. Returns how many requests were answered.
    pub(super) fn drive_discovery(&mut self) -> usize {
        let generation = self.target.catalogue().generation;
        let request = self.discovery(|discovery| {
            let is_news = discovery.events.discovery_log() && generation != discovery.told;
            if !is_news || discovery.is_masked {
                return Ok(None);
            }
            let request = discovery.requests.pop_front();
            discovery.is_masked = request.is_some();
            Ok(request)
        });
        let Ok(Some(request)) = request else { return 0 };
        let event = AsyncEvent::of(event_type::NOTICE, notice_event::DISCOVERY_LOG_CHANGE, lid::DISCOVERY);
        self.executed(request, Ok(event.into_bits().into()), 0);
        1
    }
}

/// Where a host has reached the target.
#[derive(Clone, Copy)]
struct Reached {
    port: PortId,
    /// `None` when nobody knows.
    address: Option<IpAddr>,
}

/// The whole Discovery log page, as a host sees it that has proven so much.
fn log_page(catalogue: &Catalogue, hostnqn: &str, proof: &Proof, reached: Reached) -> Vec<u8> {
    let mut records = Vec::new();
    for port in &catalogue.ports {
        let Some(address) = address_of(port, reached) else { continue };
        let admitting = catalogue.offers.iter().filter(|offer| offer.access().is_met(hostnqn, proof));
        records.extend(admitting.filter_map(|offer| record(port, &address, subtype::NVM, &offer.nqn)));
        records.extend(record(port, &address, subtype::CURRENT_DISCOVERY, DISCOVERY_NQN));
    }
    for referral in &catalogue.referrals {
        let nqn = if referral.nqn.is_empty() { DISCOVERY_NQN } else { &referral.nqn };
        let Referral { port, .. } = referral;
        records.extend(record(port, &(port.family, port.address.clone()), subtype::REFERRAL, nqn));
    }
    let mut header = DiscoveryHeader::default();
    header.genctr = catalogue.generation.into();
    header.numrec = (records.len() as u64).into();
    let mut page = header.as_bytes().to_vec();
    records.iter().for_each(|record| page.extend_from_slice(record.as_bytes()));
    page
}

/// Where a host finds a port. One that is open at all addresses is found where the host has reached the
/// target; `None` when that is an address of the other family, unless it is that port which the host has
/// reached there.
fn address_of(port: &PortOptions, reached: Reached) -> Option<(AddressFamily, String)> {
    let family = match (port.address.as_str(), reached.address) {
        ("0.0.0.0", Some(_)) => AddressFamily::Ipv4,
        ("::", Some(_)) => AddressFamily::Ipv6,
        _ => return Some((port.family, port.address.clone())),
    };
    let address = reached.address?;
    let here = if address.is_ipv4() { AddressFamily::Ipv4 } else { AddressFamily::Ipv6 };
    (here == family || port.id == reached.port).then(|| (here, address.to_string()))
}

fn record(
    port: &PortOptions,
    (family, address): &(AddressFamily, String),
    kind: u8,
    nqn: &str,
) -> Option<DiscoveryRecord> {
    let mut record = DiscoveryRecord::default();
    record.trtype = trtype::TCP;
    record.adrfam = family.code();
    record.subtype = kind;
    record.treq = treq::DISABLE_SQ_FLOW_CONTROL
        | if port.is_secure { treq::SECURE_CHANNEL_REQUIRED } else { treq::SECURE_CHANNEL_NOT_REQUIRED };
    record.portid = port.id.0.into();
    record.cntlid = CNTLID_DYNAMIC.into();
    record.asqsz = ADMIN_ENTRIES.into();
    if kind != subtype::NVM {
        record.eflags = PERSISTENT.into();
    }
    record.subnqn = nqn_bytes(nqn)?;
    text::write(&mut record.traddr, address);
    text::write(&mut record.trsvcid, &port.service);
    let [first, ..] = &mut record.tsas;
    *first = if port.is_secure { sectype::TLS_1_3 } else { sectype::NONE };
    Some(record)
}
