//! What a discovery service knows: log page 70h (Base 5.1.12.3.1).

use unvme_bus::{AddressSpace, Clock, DmaPool};
use unvme_spec::fabrics::{DISCOVERY_NQN, DiscoveryHeader, DiscoveryRecord, nqn};
use unvme_spec::log_page::lid;
use unvme_spec::{Nsid, admin};
use zerocopy::FromBytes;

use std::sync::Arc;

use super::admin::ADMIN_DEPTH;
use super::associate::enable_discovery;
use super::connect::{Connection, Role};
use crate::Error;
use crate::tcp::TcpTarget;

/// Records of one log page at most.
pub(super) const RECORDS_MAX: u64 = 4096;
/// Records of one Get Log Page.
const RECORDS_AT_ONCE: u64 = 4;
const RECORD_BYTES: usize = size_of::<DiscoveryRecord>();
const HEADER_BYTES: usize = size_of::<DiscoveryHeader>();
/// The page is read anew so many times at most, when it changes meanwhile.
const READS_MAX: usize = 8;

/// A subsystem that a discovery service knows, at one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// Transport, see [`unvme_spec::fabrics::trtype`].
    pub transport: u8,
    /// Address family, see [`unvme_spec::fabrics::adrfam`].
    pub address_family: u8,
    /// Kind of subsystem, see [`unvme_spec::fabrics::subtype`]: one with namespaces, or a discovery service.
    pub kind: u8,
    /// Transport requirements, see [`unvme_spec::fabrics::treq`].
    pub requirements: u8,
    /// Port of the subsystem.
    pub port_id: u16,
    /// Controller to connect to, or one of [`unvme_spec::fabrics::CNTLID_DYNAMIC`] and
    /// [`unvme_spec::fabrics::CNTLID_STATIC`].
    pub cntlid: u16,
    /// Most entries of the admin queue.
    pub admin_entries_max: u16,
    /// EFLAGS.
    pub flags: u16,
    /// Address, for TCP a name or an IP address.
    pub address: String,
    /// Transport service, for TCP a port number.
    pub service: String,
    /// NQN of the subsystem.
    pub nqn: String,
    /// Security, for TCP one of [`unvme_spec::fabrics::sectype`].
    pub security: u8,
}

/// Asks the discovery service at `target` which subsystems there are. A `target.nqn` other than
/// [`DISCOVERY_NQN`] is that of a particular service. Referrals are entries like the others, which the caller
/// follows. Errors: [`Error::Unreachable`], [`Error::Denied`], [`Error::Timeout`], [`Error::Protocol`] for a
/// page that makes no sense or does not stand still, [`Error::Status`].
pub fn discover(target: &TcpTarget) -> Result<Vec<DiscoveryEntry>, Error> {
    target.check()?;
    let mut target = target.clone();
    // It is over before the first Keep Alive would be due.
    target.keep_alive = std::time::Duration::ZERO;
    let pool = DmaPool::new(Arc::new(AddressSpace::new()));
    let mut connection = Connection::open(&target, &pool, Role::admin(ADMIN_DEPTH + 1))?;
    enable_discovery(&mut connection, &Clock::wall())?;
    for _ in 0..READS_MAX {
        if let Some(entries) = read(&mut connection)? {
            return Ok(entries);
        }
    }
    Err(Error::Protocol(format!(
        "{}: the log page of {DISCOVERY_NQN} changes faster than it can be read",
        target.shown()
    )))
}

/// The whole page; `None` when it has changed while it was read.
fn read(connection: &mut Connection) -> Result<Option<Vec<DiscoveryEntry>>, Error> {
    let first = header(connection)?;
    if first.recfmt.get() != 0 {
        return Err(Error::Unsupported(format!("a discovery log page of format {}", first.recfmt.get())));
    }
    let records = first.numrec.get();
    if records > RECORDS_MAX {
        return Err(Error::Protocol(format!("a discovery log page of {records} records")));
    }
    let mut entries = Vec::new();
    let mut at = 0;
    while at < records {
        let count = RECORDS_AT_ONCE.min(records - at) as usize;
        let offset = HEADER_BYTES as u64 + at * RECORD_BYTES as u64;
        let bytes = page(connection, offset, count * RECORD_BYTES)?;
        let (some, _) = <[DiscoveryRecord]>::ref_from_prefix_with_elems(&bytes, count)
            .map_err(|_| Error::Protocol("a discovery log page that is too short".to_owned()))?;
        entries.extend(some.iter().map(entry));
        at += count as u64;
    }
    let last = header(connection)?;
    Ok((last.genctr == first.genctr && last.numrec == first.numrec).then_some(entries))
}

fn header(connection: &mut Connection) -> Result<DiscoveryHeader, Error> {
    let bytes = page(connection, 0, HEADER_BYTES)?;
    DiscoveryHeader::read_from_bytes(&bytes)
        .map_err(|_| Error::Protocol("a discovery log page that is too short".to_owned()))
}

fn page(connection: &mut Connection, offset: u64, bytes: usize) -> Result<Vec<u8>, Error> {
    let command = admin::GetLogPage {
        nsid: Nsid::NONE,
        lid: lid::DISCOVERY,
        offset,
        dwords: (bytes / 4) as u64,
        ..admin::GetLogPage::default()
    };
    let sqe = admin::Command::GetLogPage(command).encode();
    connection.read("Get Log Page (Discovery)", sqe, bytes)
}

fn entry(record: &DiscoveryRecord) -> DiscoveryEntry {
    DiscoveryEntry {
        transport: record.trtype,
        address_family: record.adrfam,
        kind: record.subtype,
        requirements: record.treq,
        port_id: record.portid.get(),
        cntlid: record.cntlid.get(),
        admin_entries_max: record.asqsz.get(),
        flags: record.eflags.get(),
        address: text(&record.traddr),
        service: text(&record.trsvcid),
        nqn: nqn(&record.subnqn).unwrap_or_default().to_owned(),
        security: record.tsas[0],
    }
}

/// ASCII, padded with blanks or zeroes.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}
