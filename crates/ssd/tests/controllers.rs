//! Several controllers of one device: identifiers, attached namespaces, events, features, resets, coming and
//! going.

mod host;

use std::sync::Arc;

use host::blocks::{READ, SOURCE, WRITE};
use host::placement::identify;
use host::{BASE, DATA, Host, config, device, sqe};
use unvme_bus::{Dma, Function};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{CONTROLLERS_MAX, NamespaceConfig, Ssd, SsdConfig};

const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;
const NSSR: u64 = 0x20;
const CSTS_RDY: u32 = 1;
const CSTS_CFS: u32 = 1 << 1;
const CSTS_NSSRO: u32 = 1 << 4;
const INVALID_FIELD: Result<u64, Status> = Err(Status::INVALID_FIELD);

/// Enabled, with I/O queue pair 1.
fn host_at(ssd: Arc<Ssd>) -> Host {
    let mut host = Host::attach(ssd);
    host.enable();
    host.create_queue_pair(1, 64);
    host
}

/// `count` controllers of a device with two namespaces of 512-byte blocks and room for more.
fn hosts(count: usize) -> Vec<Host> {
    let namespaces = vec![NamespaceConfig { bytes: Some(4 << 20), ..NamespaceConfig::blocks(512) }; 2];
    let first = device(SsdConfig { namespaces, ..config(512) });
    let others: Vec<_> = (1..count).map(|_| first.add_controller().expect("a controller")).collect();
    [first].into_iter().chain(others).map(host_at).collect()
}

fn send(host: &mut Host, mut sqe: Sqe, data: &[u8]) -> Result<u64, Status> {
    host.memory.fill(DATA, 4096, 0);
    host.memory.write(DATA, data);
    host.set_prps(&mut sqe, DATA, 4096);
    host.admin(sqe)
}

fn attachment(host: &mut Host, nsid: u32, select: u32, identifiers: &[u16]) -> Result<u64, Status> {
    let list = [identifiers.len() as u16].into_iter().chain(identifiers.iter().copied());
    let data: Vec<u8> = list.flat_map(u16::to_le_bytes).collect();
    send(host, Sqe { cdw10: select, ..sqe(0x15, nsid) }, &data)
}

fn attach(host: &mut Host, nsid: u32, identifiers: &[u16]) -> Result<u64, Status> {
    attachment(host, nsid, 0, identifiers)
}

fn detach(host: &mut Host, nsid: u32, identifiers: &[u16]) -> Result<u64, Status> {
    attachment(host, nsid, 1, identifiers)
}

/// Creates a namespace of `blocks` blocks of 512 bytes with NMIC as given.
fn create(host: &mut Host, blocks: u64, nmic: u8) -> Result<u64, Status> {
    let mut data = [0; 31];
    data[0..8].copy_from_slice(&blocks.to_le_bytes());
    data[8..16].copy_from_slice(&blocks.to_le_bytes());
    data[30] = nmic;
    send(host, sqe(0x0d, 0), &data)
}

fn numbers(page: &[u8], bytes: usize) -> Vec<u32> {
    let number = |entry: &[u8]| entry.iter().rev().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
    page.chunks_exact(bytes).map(number).collect()
}

/// Controller list of Identify with CNS 12h or 13h, from CNTID `first` on.
fn listed(host: &mut Host, cns: u32, nsid: u32, first: u32) -> Vec<u32> {
    let page = identify(host, first << 16 | cns, nsid);
    let entries = numbers(&page, 2);
    entries[1..=entries[0] as usize].to_vec()
}

fn active(host: &mut Host) -> Vec<u32> {
    numbers(&identify(host, 0x02, 0), 4).into_iter().take_while(|&nsid| nsid != 0).collect()
}

/// Changed Attached Namespace List, which reading empties.
fn changed(host: &mut Host) -> Vec<u32> {
    let page = host.admin_in(Sqe { cdw10: 0x03ff_0004, ..sqe(0x02, 0) }, 4096).expect("log page 04h");
    numbers(&page, 4).into_iter().take_while(|&nsid| nsid != 0).collect()
}

/// A command for one block.
fn transfer(host: &Host, opcode: u8, nsid: u32, block: u32, offset: usize) -> Sqe {
    let mut sqe = Sqe { cdw10: block, ..sqe(opcode, nsid) };
    host.set_prps(&mut sqe, offset, 512);
    sqe
}

fn write(host: &mut Host, nsid: u32, block: u32, byte: u8) -> Result<u64, Status> {
    host.memory.fill(SOURCE, 512, byte);
    host.io(transfer(host, WRITE, nsid, block, SOURCE))
}

fn read(host: &mut Host, nsid: u32, block: u32) -> Result<u8, Status> {
    host.memory.fill(DATA, 512, 0xee);
    host.io(transfer(host, READ, nsid, block, DATA))?;
    let data = host.bytes(DATA, 512);
    assert!(data.iter().all(|&byte| byte == data[0]), "a block with different bytes");
    Ok(data[0])
}

/// Asks for events of every kind that there is, with one Asynchronous Event Request.
fn listen(host: &mut Host) {
    assert_eq!(host.admin(Sqe { cdw10: 0x0b, cdw11: 0x31f, ..sqe(0x09, 0) }), Ok(0));
    host.push(0, sqe(0x0c, 0));
    host.ring(0);
    host.advance();
    assert!(host.peek(0).is_none(), "there has been no event");
}

/// The event that has been reported.
fn event(host: &mut Host) -> Option<u64> {
    host.advance();
    host.poll(0).map(|cqe| cqe.result())
}

#[test]
fn controllers_have_identifiers_of_their_own_and_see_the_same_data() {
    let mut hosts = hosts(3);
    for (number, host) in (0u8..).zip(&mut hosts) {
        let page = identify(host, 0x01, 0);
        assert_eq!((page[76], &page[78..80]), (2, &[number, 0][..]), "CMIC, CNTLID");
        assert_eq!(host.ssd.controller_id(), u16::from(number));
        assert_eq!(listed(host, 0x13, 0, 0), [0, 1, 2]);
        assert_eq!(listed(host, 0x13, 0, 1), [1, 2]);
        assert_eq!(listed(host, 0x12, 2, 0), [0, 1, 2]);
        assert_eq!(active(host), [1, 2]);
        assert_eq!(identify(host, 0x00, 1)[30], 1, "NMIC");
        assert_eq!(identify(host, 0x08, 1)[1], 1, "NMIC of the independent data structure");
        // Identify I/O Command Set of each, by its identifier.
        assert_eq!(identify(host, 2 << 16 | 0x1c, 0)[0], 3);
        assert_eq!(
            host.admin_in(Sqe { cdw10: 3 << 16 | 0x1c, ..sqe(0x06, 0) }, 4096),
            Err(Status::INVALID_FIELD)
        );
    }
    let [a, b, c] = &mut hosts[..] else { unreachable!() };
    assert_eq!(identify(a, 0x01, 0)[768..1024], identify(c, 0x01, 0)[768..1024], "one subsystem");
    assert_eq!(write(a, 1, 7, 0x5a), Ok(0));
    assert_eq!((read(b, 1, 7), read(c, 1, 7)), (Ok(0x5a), Ok(0x5a)));
}

#[test]
fn a_device_that_always_had_one_controller_says_so() {
    let mut host = host_at(device(config(512)));
    assert_eq!(identify(&mut host, 0x01, 0)[76..80], [0, 9, 0, 0], "CMIC, MDTS, CNTLID");
    assert_eq!((identify(&mut host, 0x00, 1)[30], listed(&mut host, 0x13, 0, 0)), (0, vec![0]));
    drop(host.ssd.add_controller().unwrap());
    // Hosts may have met meanwhile.
    assert_eq!((identify(&mut host, 0x01, 0)[76], identify(&mut host, 0x00, 1)[30]), (2, 1));
    assert_eq!(listed(&mut host, 0x13, 0, 0), [0]);
}

#[test]
fn there_are_128_controllers_at_most_and_the_smallest_free_identifier_is_the_next() {
    let first = device(config(512));
    let mut others: Vec<_> = (1..CONTROLLERS_MAX).map(|_| first.add_controller().unwrap()).collect();
    let identifiers: Vec<u16> = others.iter().map(|other| other.controller_id()).collect();
    assert_eq!(identifiers, (1..128).collect::<Vec<u16>>());
    let refused = first.add_controller().err().expect("no more than 128").to_string();
    assert_eq!(
        refused,
        "controllers: one more is not possible; expected at most 128 at a time; close another"
    );
    others.remove(8);
    others.remove(2);
    assert_eq!(first.add_controller().map(|other| other.controller_id()).ok(), Some(3));
    drop(first);
    // The first one's identifier is nobody else's.
    let last = others.pop().unwrap();
    let [a, b] = [last.add_controller().unwrap(), last.add_controller().unwrap()];
    assert_eq!((a.controller_id(), b.controller_id()), (3, 9));
    assert!(last.add_controller().is_err());
}

#[test]
fn namespaces_are_attached_to_each_controller_on_its_own() {
    let mut hosts = hosts(3);
    let [a, b, c] = &mut hosts[..] else { unreachable!() };
    assert_eq!(detach(b, 1, &[0, 2]), Ok(0));
    assert_eq!((active(a), active(b), active(c)), (vec![2], vec![1, 2], vec![2]));
    assert_eq!(
        (write(a, 1, 0, 1), write(b, 1, 0, 1), write(c, 1, 0, 1)),
        (INVALID_FIELD, Ok(0), INVALID_FIELD)
    );
    assert_eq!(listed(a, 0x12, 1, 0), [1]);
    assert_eq!(detach(a, 1, &[1, 2]), Err(Status::NAMESPACE_NOT_ATTACHED));
    assert_eq!(attach(a, 1, &[0, 1]), Err(Status::NAMESPACE_ALREADY_ATTACHED));
    for wrong in [&[3][..], &[2, 0], &[0, 0], &[], &[0xffff]] {
        assert_eq!(attach(a, 1, wrong), Err(Status::CONTROLLER_LIST_INVALID), "{wrong:?}");
    }
    assert_eq!(listed(c, 0x12, 1, 0), [1], "what was refused has changed nothing");
    assert_eq!(attach(c, 1, &[0]), Ok(0));
    assert_eq!(read(a, 1, 0), Ok(1));
    // A new controller is like the first.
    assert_eq!(detach(c, 2, &[0]), Ok(0));
    let mut d = host_at(c.ssd.add_controller().unwrap());
    assert_eq!((active(&mut d), d.ssd.controller_id()), (vec![1], 3));
    assert_eq!(listed(a, 0x12, 1, 0), [0, 1, 3]);
    drop(d);
    assert_eq!(listed(a, 0x12, 1, 0), [0, 1]);
    assert_eq!(attach(a, 1, &[3]), Err(Status::CONTROLLER_LIST_INVALID));
    // Identifier 3 comes again and finds nothing of what was.
    assert_eq!((attach(a, 2, &[0]), detach(a, 1, &[0])), (Ok(0), Ok(0)));
    let mut d = host_at(c.ssd.add_controller().unwrap());
    assert_eq!(active(&mut d), [2]);
}

#[test]
fn a_private_namespace_is_attached_to_one_controller_at_a_time() {
    let mut hosts = hosts(2);
    let [a, b] = &mut hosts[..] else { unreachable!() };
    assert_eq!(create(a, 4096, 0), Ok(3));
    assert_eq!(create(a, 4096, 1), Ok(4));
    assert_eq!(create(a, 4096, 2), INVALID_FIELD);
    assert_eq!(attach(a, 3, &[0, 1]), Err(Status::NAMESPACE_IS_PRIVATE));
    assert_eq!(attach(a, 3, &[1]), Ok(0));
    assert_eq!(attach(a, 3, &[0]), Err(Status::NAMESPACE_IS_PRIVATE));
    assert_eq!(attach(a, 4, &[0, 1]), Ok(0));
    assert_eq!((active(a), active(b)), (vec![1, 2, 4], vec![1, 2, 3, 4]));
    assert_eq!((identify(b, 0x00, 3)[30], identify(b, 0x00, 4)[30]), (0, 1));
    assert_eq!((detach(b, 3, &[1]), attach(b, 3, &[0])), (Ok(0), Ok(0)));
    // Whoever comes later does not get it.
    let mut c = host_at(a.ssd.add_controller().unwrap());
    assert_eq!((active(a), active(&mut c)), (vec![1, 2, 3, 4], vec![1, 2, 4]));
    // Its controller is gone: it is nobody's, and can be attached to another one.
    assert_eq!((detach(a, 3, &[0]), attach(a, 3, &[2])), (Ok(0), Ok(0)));
    drop(c);
    assert_eq!((listed(a, 0x12, 3, 0), attach(a, 3, &[1])), (vec![], Ok(0)));
}

#[test]
fn hosts_hear_of_changes_that_others_make_to_their_namespaces() {
    let mut hosts = hosts(3);
    let [a, b, c] = &mut hosts[..] else { unreachable!() };
    listen(b);
    listen(c);
    // Type notice, namespace attributes, log page 04h.
    const CHANGED: Option<u64> = Some(0x0004_0002);
    assert_eq!(detach(a, 1, &[1]), Ok(0));
    assert_eq!((event(b), event(c)), (CHANGED, None));
    assert_eq!((changed(b), changed(c)), (vec![1], vec![]));
    // Another block size is news for those who see the namespace.
    assert_eq!(a.admin(Sqe { cdw10: 1, ..sqe(0x80, 1) }), Ok(0));
    assert_eq!((event(c), changed(c), changed(b), changed(a)), (CHANGED, vec![1], vec![], vec![1]));
    b.push(0, sqe(0x0c, 0));
    c.push(0, sqe(0x0c, 0));
    b.ring(0);
    c.ring(0);
    // Deletion: of all namespaces, two of which one has and the other has not.
    assert_eq!(a.admin(Sqe { cdw10: 1, ..sqe(0x0d, 0xffff_ffff) }), Ok(0));
    assert_eq!((event(b), event(c)), (CHANGED, CHANGED));
    assert_eq!((changed(b), changed(c), changed(a)), (vec![2], vec![1, 2], vec![1, 2]));
    assert_eq!((active(a), active(b), active(c)), (vec![], vec![], vec![]));
}

#[test]
fn firmware_is_of_the_subsystem_and_a_download_of_a_controller() {
    let mut hosts = hosts(2);
    let [a, b] = &mut hosts[..] else { unreachable!() };
    listen(b);
    let image = unvme_ssd::firmware_image("2.0", &[7; 100]);
    let download = Sqe { cdw10: image.len() as u32 / 4 - 1, ..sqe(0x11, 0) };
    assert_eq!(send(a, download, &image), Ok(0));
    // Replace and activate immediately: whoever has not downloaded anything has nothing to commit.
    let commit = |action: u32| Sqe { cdw10: action << 3 | 2, ..sqe(0x10, 0) };
    assert_eq!(b.admin(commit(1)), Err(Status::INVALID_FIRMWARE_IMAGE));
    assert_eq!(a.admin(commit(3)), Ok(0));
    assert_eq!(event(b), Some(0x0003_0102), "firmware activation starting");
    assert_eq!(
        [identify(a, 0x01, 0), identify(b, 0x01, 0)].map(|page| page[64..72].to_vec()),
        [b"2.0     "; 2]
    );
    // A reset of one activates what waits for it, and discards nobody else's download.
    assert_eq!(send(b, download, &image), Ok(0));
    a.disable();
    a.enable();
    assert_eq!(b.admin(commit(1)), Ok(0));
}

#[test]
fn features_of_controllers_are_set_for_one_and_those_of_namespaces_for_all() {
    let mut hosts = hosts(2);
    let [a, b] = &mut hosts[..] else { unreachable!() };
    let get = |host: &mut Host, fid: u32, nsid: u32| host.admin(Sqe { cdw10: fid, ..sqe(0x0a, nsid) });
    let set = |host: &mut Host, fid: u32, nsid: u32, value: u32| {
        host.admin(Sqe { cdw10: fid, cdw11: value, ..sqe(0x09, nsid) })
    };
    for (fid, default, value) in [(0x01, 0x0f03_0007, 2), (0x06, 1, 0), (0x08, 0, 0x0102), (0x0b, 0, 0x100)] {
        assert_eq!(set(b, fid, 0, value as u32), Ok(0));
        assert_eq!((get(a, fid, 0), get(b, fid, 0)), (Ok(default), Ok(value)), "feature {fid:#x}");
    }
    // Error Recovery has a value for each namespace.
    assert_eq!((set(b, 0x05, 1, 9), get(a, 0x05, 1), get(a, 0x05, 2)), (Ok(0), Ok(9), Ok(0)));
    a.disable();
    a.enable();
    assert_eq!((get(a, 0x05, 1), get(b, 0x01, 0)), (Ok(9), Ok(2)), "another one's reset changes neither");
    a.disable();
    b.disable();
    b.enable();
    assert_eq!((get(b, 0x05, 1), get(b, 0x01, 0)), (Ok(0), Ok(0x0f03_0007)), "no other one was enabled");
}

#[test]
fn a_reset_is_of_one_controller_and_a_subsystem_reset_of_all() {
    let mut hosts = hosts(3);
    let [a, b, c] = &mut hosts[..] else { unreachable!() };
    let ready = |hosts: [&Host; 3]| hosts.map(|host| host.read32(CSTS) & CSTS_RDY);
    a.disable();
    assert_eq!(ready([a, b, c]), [0, 1, 1]);
    assert_eq!((write(b, 1, 0, 3), read(c, 1, 0)), (Ok(0), Ok(3)));
    b.ssd.reset().unwrap();
    assert_eq!(ready([a, b, c]), [0, 0, 1]);
    assert_eq!((read(c, 1, 0), b.read32(CC)), (Ok(3), 0));
    a.enable();
    // "NVMe", by one whose neighbours are at work.
    c.push(1, transfer(c, READ, 1, 0, DATA));
    c.ring(1);
    a.write32(NSSR, 0x4e56_4d65);
    for host in [&*a, b, c] {
        assert_eq!(host.read32(CSTS), CSTS_NSSRO);
        assert_eq!((host.read32(CC), host.advance()), (0, 0));
    }
    assert!(c.peek(1).is_none(), "what was outstanding is not answered");
    for host in [a, b, c] {
        host.enable();
        host.create_queue_pair(1, 64);
        assert_eq!(read(host, 1, 0), Ok(3));
    }
}

#[test]
fn a_rule_that_makes_a_controller_fail_leaves_the_others_alone_and_is_counted_once() {
    let mut hosts = hosts(2);
    let [a, b] = &mut hosts[..] else { unreachable!() };
    let rule = r#"{ "match": { "opcode": "write", "lba": "100", "count": 1 }, "act": { "fatal": true } }"#;
    let rules = unvme_ssd::parse_faults(rule).expect("a rule");
    assert_eq!(a.ssd.add_passing_faults(rules).unwrap(), [1]);
    b.push(1, transfer(b, WRITE, 1, 100, SOURCE));
    b.ring(1);
    b.advance();
    assert_eq!((a.read32(CSTS) & CSTS_CFS, b.read32(CSTS) & CSTS_CFS), (0, CSTS_CFS));
    assert_eq!(write(a, 1, 100, 1), Ok(0));
    assert_eq!((a.ssd.faults()[0].hits, b.ssd.faults()[0].hits), (1, 1));
    b.disable();
    b.enable();
    b.create_queue_pair(1, 64);
    assert_eq!((b.read32(CSTS) & CSTS_CFS, read(b, 1, 100)), (0, Ok(1)));
}

#[test]
fn memory_of_one_controllers_host_is_out_of_reach_for_another() {
    let mut hosts = hosts(2);
    let [a, b] = &mut hosts[..] else { unreachable!() };
    assert_eq!(write(a, 1, 0, 9), Ok(0));
    // Both hosts use the same addresses; what one takes back the other keeps.
    a.ssd.dma_unmap(BASE, host::MEMORY_BYTES as u64).unwrap();
    assert_eq!(read(b, 1, 0), Ok(9));
    assert_ne!(a.bytes(DATA, 512), [9; 512]);
    a.push(1, transfer(a, READ, 1, 0, DATA));
    a.ring(1);
    assert_eq!((a.advance(), b.advance()), (0, 0), "each one's own queues");
}

#[test]
fn the_device_is_closed_with_its_last_controller_and_goes_on_before() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let store = unvme_ssd::FileStore::open(folder.path(), host::MEDIA_BYTES).unwrap();
        host::device_on(config(512), Box::new(store))
    };
    let first = open();
    let mut other = host_at(first.add_controller().unwrap());
    let mut host = host_at(first.clone());
    assert_eq!(write(&mut host, 1, 0, 0x77), Ok(0));
    host.push(1, transfer(&host, READ, 1, 0, DATA));
    host.ring(1);
    drop((host, first));
    let saved = || std::fs::read_to_string(folder.path().join("state.json")).unwrap();
    assert!(saved().contains("\"shut_down\": false"));
    assert_eq!(read(&mut other, 1, 0), Ok(0x77));
    // The counters of the one that is gone are the device's.
    let smart = other.admin_in(Sqe { cdw10: 0x7f_0002, ..sqe(0x02, 0xffff_ffff) }, 512).unwrap();
    assert_eq!((smart[80], smart[64]), (1, 1), "one write and one read");
    drop(other);
    assert!(saved().contains("\"shut_down\": true"));
    let mut host = host_at(open());
    assert_eq!((read(&mut host, 1, 0), host.ssd.controller_id()), (Ok(0x77), 0));
}

#[test]
fn controllers_that_come_and_go_leave_nothing_behind() {
    let mut host = host_at(device(SsdConfig { io_queues: 2, ..config(512) }));
    let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let memory = unvme_bus::Region::anonymous(1 << 20).unwrap();
    let round = |host: &mut Host, uses_it: bool| {
        let other = host.ssd.add_controller().unwrap();
        assert_eq!(other.controller_id(), 1);
        if uses_it {
            // Dropped with commands outstanding, in the admin queue and in an I/O queue.
            let mut other = host_at(other);
            listen(&mut other);
            other.push(1, transfer(&other, READ, 1, 0, DATA));
            other.ring(1);
        } else {
            other.dma_map(BASE, &memory, unvme_bus::DmaAccess::READ_WRITE).unwrap();
        }
        assert_eq!(write(host, 1, 0, 1), Ok(0));
    };
    (0..50).for_each(|number| round(&mut host, number % 2 == 0));
    let before = (open_files(), mappings());
    (0..10_000).for_each(|number| round(&mut host, number % 100 == 0));
    let after = (open_files(), mappings());
    // Tests of this file run beside each other: a few of theirs may be open.
    assert!(after.0 < before.0 + 200 && after.1 < before.1 + 200, "{before:?} before, {after:?} after");
    assert_eq!(listed(&mut host, 0x13, 0, 0), [0]);
}
