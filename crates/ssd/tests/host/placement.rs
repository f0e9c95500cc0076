//! Flexible Data Placement as a host sees it: literal bytes in, bytes out. Data is at [`DATA`].

use std::sync::Arc;

use unvme_flash::ftl::Isolation;
use unvme_spec::{Sqe, Status};
use unvme_ssd::{FlashConfig, FlashGeometry, MemoryStore, Ssd, SsdConfig};

use super::{DATA, Host, MEDIA_BYTES, sqe};

pub const GET_LOG: u8 = 0x02;
pub const SET_FEATURES: u8 = 0x09;
pub const GET_FEATURES: u8 = 0x0a;
pub const NAMESPACE_MANAGEMENT: u8 = 0x0d;
pub const IO_MANAGEMENT_RECEIVE: u8 = 0x12;
pub const IO_MANAGEMENT_SEND: u8 = 0x1d;

/// No event has been recorded.
pub const NO_EVENTS: [u8; 0] = [];
/// CDW12 of feature 1Dh: FDPE, and the index of the configuration.
pub const ENABLE: u32 = 1;
/// CDW10 bit 31 of Set Features.
pub const SAVE: u32 = 1 << 31;
/// Bytes of a reclaim unit of the devices made here, and its pages.
pub const UNIT_BYTES: u64 = 256 << 10;
pub const UNIT_PAGES: u64 = UNIT_BYTES / 4096;

/// 64 MiB in units of 256 KiB, 28 % overprovisioning, eight handles, one namespace with 4 KiB blocks over all
/// of it.
pub fn flash_config() -> SsdConfig {
    let geometry =
        FlashGeometry { unit_bytes: UNIT_BYTES, groups: 1, handles: vec![Isolation::Initially; 8] };
    let flash = FlashConfig { geometry, overprovisioning: 0.28, ..FlashConfig::default() };
    SsdConfig { flash: Some(flash), ..SsdConfig::block(MEDIA_BYTES, 4096) }
}

/// The same with FDP enabled from the first day: the namespace has all eight handles.
pub fn fdp_config(index: u8) -> SsdConfig {
    SsdConfig { fdp: Some(index), ..flash_config() }
}

pub fn device(config: SsdConfig) -> Arc<Ssd> {
    let store = MemoryStore::new(config.store_bytes().expect("a geometry")).expect("memory for the media");
    Ssd::new(config, Box::new(store)).expect("a device")
}

/// A device that keeps no data: only where it would be.
pub fn null_device(config: SsdConfig) -> Arc<Ssd> {
    let store = MemoryStore::null(config.store_bytes().expect("a geometry"));
    Ssd::new(config, Box::new(store)).expect("a device")
}

/// A host with I/O queue pair 1 at a device.
pub fn host_at(ssd: Arc<Ssd>) -> Host {
    let mut host = Host::attach(ssd);
    host.enable();
    host.create_queue_pair(1, 64);
    host
}

pub fn started(config: SsdConfig) -> Host {
    host_at(device(config))
}

pub fn identify(host: &mut Host, cns: u32, nsid: u32) -> Vec<u8> {
    host.admin_in(Sqe { cdw10: cns, ..sqe(0x06, nsid) }, 4096).expect("Identify")
}

/// Get Log Page of endurance group 1 with a Log Specific Parameter.
pub fn log(host: &mut Host, lid: u32, lsp: u32, bytes: usize) -> Result<Vec<u8>, Status> {
    log_of(host, lid, lsp, 1, bytes)
}

pub fn log_of(host: &mut Host, lid: u32, lsp: u32, group: u32, bytes: usize) -> Result<Vec<u8>, Status> {
    let numdl = (bytes as u32 / 4 - 1) << 16;
    host.admin_in(Sqe { cdw10: numdl | lsp << 8 | lid, cdw11: group << 16, ..sqe(GET_LOG, 0) }, bytes)
}

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().unwrap())
}

/// HBMW, MBMW and MBE of log page 22h.
pub fn statistics(host: &mut Host) -> [u128; 3] {
    let page = log(host, 0x22, 0, 64).expect("log page 22h");
    [0, 16, 32].map(|at| u128_at(&page, at))
}

/// The events of log page 23h, 64 bytes each: host events, or the controller's.
pub fn events(host: &mut Host, hosts: bool) -> Vec<Vec<u8>> {
    let page = log(host, 0x23, hosts.into(), 4096).expect("log page 23h");
    let count = u32_at(&page, 0) as usize;
    assert_eq!(page[4..64], [0; 60]);
    page[64..].chunks(64).take(count).map(<[u8]>::to_vec).collect()
}

/// Types of the events of log page 23h.
pub fn event_types(host: &mut Host, hosts: bool) -> Vec<u8> {
    events(host, hosts).iter().map(|event| event[0]).collect()
}

/// Set Features of feature 1Dh for endurance group 1.
pub fn set_placement(host: &mut Host, cdw12: u32) -> Result<u64, Status> {
    host.admin(Sqe { cdw10: SAVE | 0x1d, cdw11: 1, cdw12, ..sqe(SET_FEATURES, 0) })
}

/// Get Features of feature 1Dh; `select` 0 current, 1 default, 2 saved, 3 capabilities.
pub fn get_placement(host: &mut Host, select: u32) -> Result<u64, Status> {
    host.admin(Sqe { cdw10: select << 8 | 0x1d, cdw11: 1, ..sqe(GET_FEATURES, 0) })
}

/// Set Features of feature 1Eh: whether events of `types` are recorded for a placement handle.
pub fn set_events(
    host: &mut Host,
    nsid: u32,
    handle: u32,
    types: &[u8],
    enable: bool,
) -> Result<u64, Status> {
    let cdw11 = (types.len() as u32) << 16 | handle;
    let mut set = Sqe { cdw10: 0x1e, cdw11, cdw12: enable.into(), ..sqe(SET_FEATURES, nsid) };
    host.memory.write(DATA, types);
    host.set_prps(&mut set, DATA, types.len());
    host.admin(set)
}

/// Records all events of a placement handle.
pub fn set_all_events(host: &mut Host, nsid: u32, handle: u32) {
    assert_eq!(set_events(host, nsid, handle, &[0, 1, 2, 3, 0x80, 0x81], true), Ok(0));
}

/// Namespace Management: creates a namespace of `nsze` blocks with placement handles. FLBAS 0 has blocks of
/// 512 bytes, 1 of 4096.
pub fn create(host: &mut Host, nsze: u64, flbas: u8, list: &[u16]) -> Result<u64, Status> {
    let mut data = [0; 4096];
    data[0..8].copy_from_slice(&nsze.to_le_bytes());
    data[8..16].copy_from_slice(&nsze.to_le_bytes());
    data[26] = flbas;
    data[392..394].copy_from_slice(&(list.len() as u16).to_le_bytes());
    for (at, ruh) in data[512..].chunks_exact_mut(2).zip(list) {
        at.copy_from_slice(&ruh.to_le_bytes());
    }
    create_from(host, &data)
}

pub fn create_from(host: &mut Host, data: &[u8; 4096]) -> Result<u64, Status> {
    let mut manage = sqe(NAMESPACE_MANAGEMENT, 0);
    host.memory.write(DATA, data);
    host.set_prps(&mut manage, DATA, 4096);
    host.admin(manage)
}

pub fn delete(host: &mut Host, nsid: u32) -> Result<u64, Status> {
    host.admin(Sqe { cdw10: 1, ..sqe(NAMESPACE_MANAGEMENT, nsid) })
}

pub fn attach(host: &mut Host, nsid: u32) -> Result<u64, Status> {
    let mut attachment = sqe(0x15, nsid);
    host.memory.fill(DATA, 4096, 0);
    // One controller: 0.
    host.memory.write(DATA, &[1]);
    host.set_prps(&mut attachment, DATA, 4096);
    host.admin(attachment)
}

/// A namespace of `nsze` blocks of 4 KiB with placement handles, attached.
pub fn add(host: &mut Host, nsze: u64, list: &[u16]) -> u32 {
    let nsid = create(host, nsze, 1, list).expect("a namespace") as u32;
    assert_eq!(attach(host, nsid), Ok(0));
    nsid
}

/// A write of `blocks` blocks of 4 KiB with DTYPE and DSPEC as given.
pub fn write_with(
    host: &mut Host,
    nsid: u32,
    lba: u64,
    blocks: u32,
    dtype: u32,
    dspec: u32,
) -> Result<u64, Status> {
    let mut write = sqe(0x01, nsid);
    (write.cdw10, write.cdw11) = (lba as u32, (lba >> 32) as u32);
    (write.cdw12, write.cdw13) = (dtype << 20 | (blocks - 1), dspec << 16);
    host.set_prps(&mut write, DATA, blocks as usize * 4096);
    host.io(write)
}

/// A write of one block of 4 KiB with a placement identifier.
pub fn write(host: &mut Host, nsid: u32, lba: u64, pid: u16) {
    assert_eq!(write_with(host, nsid, lba, 1, 2, pid.into()), Ok(0));
}

/// Deallocates blocks.
pub fn deallocate(host: &mut Host, nsid: u32, lba: u64, blocks: u32) {
    let range = [0u32.to_le_bytes(), blocks.to_le_bytes()].concat();
    host.memory.write(DATA, &[range, lba.to_le_bytes().to_vec()].concat());
    let mut dsm = Sqe { cdw11: 1 << 2, ..sqe(0x09, nsid) };
    host.set_prps(&mut dsm, DATA, 16);
    assert_eq!(host.io(dsm), Ok(0));
}

/// I/O Management Receive of `bytes` with a management operation.
pub fn receive(host: &mut Host, nsid: u32, operation: u32, bytes: usize) -> Result<Vec<u8>, Status> {
    host.memory.fill(DATA, bytes + 16, 0xee);
    let mut receive =
        Sqe { cdw10: operation, cdw11: bytes as u32 / 4 - 1, ..sqe(IO_MANAGEMENT_RECEIVE, nsid) };
    host.set_prps(&mut receive, DATA, bytes);
    host.io(receive)?;
    assert_eq!(host.bytes(DATA + bytes, 16), [0xee; 16], "nothing is written beyond what was asked for");
    Ok(host.bytes(DATA, bytes))
}

/// A descriptor of the Reclaim Unit Handle Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleStatus {
    pub pid: u16,
    pub ruhid: u16,
    pub seconds: u32,
    pub blocks: u64,
}

pub fn statuses(host: &mut Host, nsid: u32) -> Vec<HandleStatus> {
    let page = receive(host, nsid, 1, 4096).expect("Reclaim Unit Handle Status");
    assert_eq!(page[..14], [0; 14]);
    let read = |entry: &[u8]| HandleStatus {
        pid: u16_at(entry, 0),
        ruhid: u16_at(entry, 2),
        seconds: u32_at(entry, 4),
        blocks: u64_at(entry, 8),
    };
    page[16..].chunks(32).take(u16_at(&page, 14).into()).map(read).collect()
}

/// Blocks that still fit in the reclaim unit of a placement identifier.
pub fn blocks_left(host: &mut Host, nsid: u32, pid: u16) -> u64 {
    statuses(host, nsid).iter().find(|status| status.pid == pid).expect("the identifier").blocks
}

/// I/O Management Send, Reclaim Unit Handle Update.
pub fn update(host: &mut Host, nsid: u32, pids: &[u16]) -> Result<u64, Status> {
    let list: Vec<u8> = pids.iter().flat_map(|pid| pid.to_le_bytes()).collect();
    host.memory.write(DATA, &list);
    let mut send = Sqe { cdw10: (pids.len() as u32 - 1) << 16 | 1, ..sqe(IO_MANAGEMENT_SEND, nsid) };
    host.set_prps(&mut send, DATA, list.len());
    host.io(send)
}
