//! Key Value namespaces beside others: Identify, Namespace Management, Format NVM, features, logs.

mod host;

use host::pairs::{
    EXIST, RETRIEVE, STORE, VENDOR_BATCH, VENDOR_STORE, batch_data, kv_config, kv_device, samsung, standard,
    vendor,
};
use host::{BASE, DATA, Host, MEDIA_BYTES, device, sqe};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{MemoryStore, NamespaceConfig, NamespaceKind, Ssd, SsdConfig, SsdError};

const ALL: u32 = u32::MAX;
const CHUNK: u64 = 2 << 20;

/// Namespace 1 with blocks, 2 with pairs, 16 MiB each and as much to spare.
fn mixed() -> Host {
    let namespaces = vec![
        NamespaceConfig { bytes: Some(16 << 20), kind: NamespaceKind::Blocks(512) },
        NamespaceConfig { bytes: Some(24 << 20), kind: NamespaceKind::KeyValue },
    ];
    let mut host = Host::attach(device(SsdConfig { namespaces, ..kv_config() }));
    host.enable_all();
    host.create_queue_pair(1, 64);
    host
}

fn identify(host: &mut Host, cns: u32, nsid: u32, csi: u32) -> Result<Vec<u8>, Status> {
    host.admin_in(Sqe { cdw10: cns, cdw11: csi << 24, ..sqe(0x06, nsid) }, 4096)
}

fn u32s(page: &[u8]) -> Vec<u32> {
    page.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).take_while(|&n| n != 0).collect()
}

fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
}

fn on(nsid: u32, sqe: Sqe) -> Sqe {
    Sqe { nsid, ..sqe }
}

fn store(host: &mut Host, nsid: u32, key: &[u8], value: &[u8]) -> Result<u64, Status> {
    let store = on(nsid, host.with_value(standard(STORE, key), value));
    host.io(Sqe { cdw10: value.len() as u32, ..store })
}

fn exists(host: &mut Host, nsid: u32, key: &[u8]) -> Result<u64, Status> {
    host.io(on(nsid, standard(EXIST, key)))
}

#[test]
fn identify_namespace_of_the_command_set_says_what_there_is() {
    let mut host = Host::with_pairs();
    let page = identify(&mut host, 0x05, 1, 1).unwrap();
    let size = u64_at(&page, 0);
    assert!(size > MEDIA_BYTES / 2 && size < MEDIA_BYTES, "NSZE {size}");
    assert_eq!(page[24..32], [0, 0, 0, 0, 0x80, 0, 0, 0], "NSFEAT, NKVF, NMIC, RESCAP, FPI, KVFC");
    assert_ne!(page[48..64], [0; 16], "NGUID");
    assert_ne!(page[64..72], [0; 8], "EUI64");
    assert_eq!(
        page[72..88],
        [16, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0],
        "KVKML 16, KVVML 256 MiB, MNKS 0"
    );
    assert_eq!(page[88..3840], [0; 3840 - 88]);
    let before = u64_at(&page, 16);
    host.store(b"key", &[1; 100_000]).unwrap();
    let page = identify(&mut host, 0x05, 1, 1).unwrap();
    let used = u64_at(&page, 16) - before;
    assert!((100_000..110_000).contains(&used), "NUSE grew by {used}");
    host.delete(b"key").unwrap();
    let page = identify(&mut host, 0x05, 1, 1).unwrap();
    assert!(u64_at(&page, 16) - before < 1000, "NUSE after a delete");
}

#[test]
fn each_identify_speaks_of_its_own_command_set() {
    let mut host = mixed();
    assert_eq!(identify(&mut host, 0x00, 2, 0).unwrap(), [0; 4096], "Identify Namespace of pairs");
    assert_ne!(identify(&mut host, 0x00, 1, 0).unwrap(), [0; 4096]);
    for (nsid, csi) in [(1, 1), (2, 0)] {
        assert_eq!(identify(&mut host, 0x05, nsid, csi).err(), Some(Status::INVALID_IO_COMMAND_SET));
        assert_eq!(identify(&mut host, 0x1b, nsid, csi).err(), Some(Status::INVALID_IO_COMMAND_SET));
    }
    for cns in [0x05, 0x06, 0x1b] {
        assert_eq!(
            identify(&mut host, cns, 1, 2).err(),
            Some(Status::INVALID_IO_COMMAND_SET),
            "CNS {cns:#x}"
        );
    }
    for cns in [0x07, 0x1a] {
        assert_eq!(u32s(&identify(&mut host, cns, 0, 0).unwrap()), [1], "CNS {cns:#x}");
        assert_eq!(u32s(&identify(&mut host, cns, 0, 1).unwrap()), [2], "CNS {cns:#x}");
        assert_eq!(identify(&mut host, cns, 0, 2).err(), Some(Status::INVALID_FIELD), "CNS {cns:#x}");
    }
    assert_eq!(u32s(&identify(&mut host, 0x02, 0, 0).unwrap()), [1, 2]);
    assert_eq!(identify(&mut host, 0x06, 0, 1).unwrap()[..8], [0x00, 0x03, 0x01, 0x00, 0, 0, 0, 0], "VER");
    // All formats alike, and of one format.
    for (cns, nsid) in [(0x05, ALL), (0x0a, 0)] {
        let page = identify(&mut host, cns, nsid, 1).unwrap();
        assert_eq!((page[25], &page[72..80]), (0, &[16, 0, 0, 0, 0, 0, 0, 0x10][..]), "CNS {cns:#x}");
        assert_eq!(page[..8], [0; 8]);
    }
    let second = Sqe { cdw10: 0x0a, cdw11: 1 << 24 | 1, ..sqe(0x06, 0) };
    assert_eq!(host.admin(second), Err(Status::INVALID_FIELD));
    assert_eq!(identify(&mut host, 0x1b, 2, 1).unwrap()[72], 16);
    assert_eq!(identify(&mut host, 0x05, 3, 1).unwrap(), [0; 4096], "a namespace that is not there");
}

#[test]
fn a_namespace_tells_its_command_set_and_that_it_is_ready() {
    let mut host = mixed();
    for (nsid, csi) in [(1, 0), (2, 1)] {
        let page = identify(&mut host, 0x03, nsid, 0).unwrap();
        // EUI64, NGUID, then NIDT 4, NIDL 1.
        assert_eq!(page[32..37], [4, 1, 0, 0, csi], "namespace {nsid}");
        let page = identify(&mut host, 0x08, nsid, 0).unwrap();
        assert_eq!(page[14] & 1, 1, "NSTAT.NRDY");
    }
    let sets = identify(&mut host, 0x1c, 0xffff, 0).unwrap();
    assert_eq!([u64_at(&sets, 0), u64_at(&sets, 8), u64_at(&sets, 16), u64_at(&sets, 24)], [3, 1, 2, 0]);
    assert_eq!(host.read64(0x00) >> 37 & 0xff, 0x41, "CAP.CSS: NVM, and all by profile");
}

#[test]
fn without_all_command_sets_selected_only_blocks_are_there() {
    let mut host = mixed();
    store(&mut host, 2, b"key", b"value").unwrap();
    host.disable();
    host.enable();
    host.create_queue_pair(1, 64);
    assert_eq!(u32s(&identify(&mut host, 0x02, 0, 0).unwrap()), [1]);
    assert_eq!(u32s(&identify(&mut host, 0x07, 0, 1).unwrap()), [0; 0]);
    assert_eq!(u32s(&identify(&mut host, 0x10, 0, 0).unwrap()), [1, 2], "allocated all the same");
    assert_eq!(identify(&mut host, 0x03, 2, 0).err(), Some(Status::INVALID_FIELD));
    assert_eq!(identify(&mut host, 0x08, 2, 0).unwrap(), [0; 4096]);
    for opcode in [EXIST, RETRIEVE, STORE, 0x00] {
        let refused = host.io(on(2, standard(opcode, b"key"))).unwrap_err();
        assert!(matches!(refused, Status::INVALID_FIELD | Status::INVALID_OPCODE), "{opcode:#x}: {refused}");
    }
    assert_eq!(host.io(on(2, samsung(&host, VENDOR_STORE, 0, b"keys"))), Err(Status::INVALID_OPCODE));
    host.disable();
    host.enable_all();
    host.create_queue_pair(1, 64);
    assert_eq!(exists(&mut host, 2, b"key"), Ok(0));
}

#[test]
fn blocks_and_pairs_on_one_controller_do_not_disturb_each_other() {
    let mut host = mixed();
    let read = Sqe { cdw10: 5, ..host.with_buffer(sqe(0x02, 1), 512) };
    let write = Sqe { cdw10: 5, ..host.with_value(sqe(0x01, 1), &[0x5a; 512]) };
    assert_eq!(host.io(write), Ok(0));
    for n in 0..100u8 {
        store(&mut host, 2, &[n], &[n; 5000]).unwrap();
    }
    assert_eq!(host.io(read), Ok(0));
    assert_eq!(host.bytes(DATA, 512), [0x5a; 512]);
    let retrieve = on(2, host.with_buffer(standard(RETRIEVE, &[7]), 5000));
    assert_eq!(host.io(Sqe { cdw10: 5000, ..retrieve }), Ok(5000));
    assert_eq!(host.bytes(DATA, 5000), [7; 5000]);
    // Opcodes that one command set has and the other has not.
    assert_eq!(host.io(on(1, standard(0x14, b"key"))), Err(Status::INVALID_OPCODE));
    assert_eq!(host.io(on(2, standard(0x09, b"key"))), Err(Status::INVALID_OPCODE));
    assert_eq!(host.io(on(1, samsung(&host, VENDOR_STORE, 0, b"keys"))), Err(Status::INVALID_OPCODE));
    // Several commands of both in one turn.
    for n in 0..20u8 {
        let exist = on(2, standard(EXIST, &[n]));
        host.push(1, exist);
        host.push(1, Sqe { cdw10: n.into(), ..host.with_buffer(sqe(0x02, 1), 512) });
    }
    host.ring(1);
    while host.advance() > 0 {}
    for _ in 0..40 {
        assert!(host.poll(1).unwrap().status().is_success());
    }
}

fn create(host: &mut Host, bytes: u64, csi: u32) -> Result<u64, Status> {
    let mut data = [0; 4096];
    data[..8].copy_from_slice(&bytes.to_le_bytes());
    host.memory.write(DATA, &data);
    let mut command = Sqe { cdw11: csi << 24, ..sqe(0x0d, 0) };
    host.set_prps(&mut command, DATA, 4096);
    host.admin(command)
}

fn attach(host: &mut Host, nsid: u32, detach: u32) -> Result<u64, Status> {
    let mut list = [0; 4096];
    list[0] = 1;
    host.memory.write(DATA, &list);
    let mut command = Sqe { cdw10: detach, ..sqe(0x15, nsid) };
    host.set_prps(&mut command, DATA, 4096);
    host.admin(command)
}

fn unallocated(host: &mut Host) -> u64 {
    u64_at(&identify(host, 0x01, 0, 0).unwrap(), 296)
}

#[test]
fn a_namespace_is_created_attached_used_detached_and_deleted() {
    let mut host = mixed();
    assert_eq!(unallocated(&mut host), MEDIA_BYTES - (40 << 20));
    for bytes in [0, 4096, (16 << 20) - 1] {
        assert_eq!(create(&mut host, bytes, 1), Err(Status::INVALID_FIELD), "{bytes} bytes");
    }
    assert_eq!(create(&mut host, 26 << 20, 1), Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY));
    assert_eq!(create(&mut host, 16 << 20, 2), Err(Status::IO_COMMAND_SET_UNSUPPORTED));
    assert_eq!(create(&mut host, (16 << 20) + 1, 1), Ok(3));
    assert_eq!(unallocated(&mut host), MEDIA_BYTES - (40 << 20) - 9 * CHUNK);
    assert_eq!(u32s(&identify(&mut host, 0x1a, 0, 1).unwrap()), [2, 3]);
    assert_eq!(exists(&mut host, 3, b"key"), Err(Status::INVALID_OPCODE), "not attached");
    assert_eq!(attach(&mut host, 3, 0), Ok(0));
    assert_eq!(store(&mut host, 3, b"key", b"value"), Ok(0));
    assert_eq!(exists(&mut host, 2, b"key"), Err(Status::KEY_NOT_FOUND));
    assert_eq!(attach(&mut host, 3, 1), Ok(0));
    assert_eq!(attach(&mut host, 3, 0), Ok(0));
    assert_eq!(exists(&mut host, 3, b"key"), Ok(0), "still there");
    assert_eq!(host.admin(Sqe { cdw10: 1, ..sqe(0x0d, 3) }), Ok(0));
    assert_eq!(unallocated(&mut host), MEDIA_BYTES - (40 << 20));
    // What is created in its place is empty.
    assert_eq!(create(&mut host, 16 << 20, 1), Ok(3));
    attach(&mut host, 3, 0).unwrap();
    assert_eq!(exists(&mut host, 3, b"key"), Err(Status::KEY_NOT_FOUND));
    assert_eq!(host.admin(Sqe { cdw10: 1, ..sqe(0x0d, ALL) }), Ok(0));
    assert_eq!(unallocated(&mut host), MEDIA_BYTES);
}

#[test]
fn a_new_namespace_does_not_have_the_settings_of_a_deleted_one() {
    let mut host = mixed();
    let get = Sqe { cdw10: 0x20, ..sqe(0x0a, 2) };
    host.admin(Sqe { cdw10: 1 << 31 | 0x20, cdw11: 1, ..sqe(0x09, 2) }).unwrap();
    assert_eq!(host.admin(get), Ok(1));
    host.admin(Sqe { cdw10: 1, ..sqe(0x0d, 2) }).unwrap();
    assert_eq!(create(&mut host, 16 << 20, 1), Ok(2));
    attach(&mut host, 2, 0).unwrap();
    assert_eq!(host.admin(get), Ok(0), "EDNEK");
    assert_eq!(host.io(on(2, standard(0x10, b"none"))), Ok(0));
}

#[test]
fn pairs_cannot_be_attached_while_their_command_set_is_not_enabled() {
    let mut host = mixed();
    attach(&mut host, 2, 1).unwrap();
    let profile = |index| Sqe { cdw10: 0x19, cdw11: index, ..sqe(0x09, 0) };
    assert_eq!(
        host.admin(profile(2)),
        Err(Status::IO_COMMAND_SET_COMBINATION_REJECTED),
        "blocks are attached"
    );
    assert_eq!(host.admin(profile(1)), Ok(0));
    assert_eq!(attach(&mut host, 2, 0), Err(Status::IO_COMMAND_SET_NOT_ENABLED));
    assert_eq!(host.admin(profile(0)), Ok(0));
    assert_eq!(attach(&mut host, 2, 0), Ok(0));
    assert_eq!(
        host.admin(profile(1)),
        Err(Status::IO_COMMAND_SET_COMBINATION_REJECTED),
        "pairs are attached"
    );
}

#[test]
fn format_empties_a_namespace_and_leaves_others_alone() {
    let mut host = mixed();
    for (nsid, ses) in [(2, 0), (2, 1), (ALL, 1)] {
        for n in 0..50u8 {
            store(&mut host, 2, &[n], &[n; 20_000]).unwrap();
        }
        let format = Sqe { cdw10: ses << 9, ..sqe(0x80, nsid) };
        assert_eq!(host.admin(format), Ok(0));
        let page = identify(&mut host, 0x05, 2, 1).unwrap();
        assert_eq!(u64_at(&page, 16), 0, "NUSE");
        for n in 0..50u8 {
            assert_eq!(exists(&mut host, 2, &[n]), Err(Status::KEY_NOT_FOUND));
        }
        // The store that was there has gone and does not write to the media any more.
        for n in 0..200u8 {
            store(&mut host, 2, &[n, 1], &[n; 20_000]).unwrap();
        }
        for n in 0..200u8 {
            let retrieve = on(2, host.with_buffer(standard(RETRIEVE, &[n, 1]), 20_000));
            assert_eq!(host.io(Sqe { cdw10: 20_000, ..retrieve }), Ok(20_000));
            assert_eq!(host.bytes(DATA, 20_000), vec![n; 20_000]);
        }
        host.admin(Sqe { cdw10: 0, ..sqe(0x80, 2) }).unwrap();
    }
    // The formats of blocks are not those of pairs; cryptographic erase is not supported.
    assert_eq!(host.admin(Sqe { cdw10: 1, ..sqe(0x80, 2) }), Err(Status::INVALID_FORMAT));
    assert_eq!(host.admin(Sqe { cdw10: 1, ..sqe(0x80, ALL) }), Err(Status::INVALID_FORMAT));
    assert_eq!(host.admin(Sqe { cdw10: 1, ..sqe(0x80, 1) }), Ok(0));
    assert_eq!(host.admin(Sqe { cdw10: 2 << 9, ..sqe(0x80, 2) }), Err(Status::INVALID_FIELD));
    assert_eq!(host.admin(Sqe { cdw10: 1 << 4, ..sqe(0x80, 2) }), Err(Status::INVALID_FORMAT));
}

#[test]
fn a_device_that_keeps_no_data_has_no_pairs() {
    let refused = Ssd::new(kv_config(), Box::new(MemoryStore::null(MEDIA_BYTES))).err();
    assert!(
        matches!(&refused, Some(SsdError::Config { expected, .. }) if expected.contains("keeps data")),
        "{refused:?}"
    );
    let null = Ssd::new(host::config(512), Box::new(MemoryStore::null(MEDIA_BYTES))).unwrap();
    let mut host = Host::attach(null);
    host.enable_all();
    assert_eq!(create(&mut host, 16 << 20, 1), Err(Status::IO_COMMAND_SET_UNSUPPORTED));
    assert_eq!(u64_at(&identify(&mut host, 0x1c, 0xffff, 0).unwrap(), 0), 1);
    assert_eq!(identify(&mut host, 0x06, 0, 1).err(), Some(Status::INVALID_IO_COMMAND_SET));
    assert_eq!(host.admin(Sqe { cdw10: 127 << 16 | 0xc0, ..sqe(0x02, 0) }), Err(Status::INVALID_LOG_PAGE));
}

#[test]
fn a_namespace_too_small_for_pairs_is_refused_when_the_device_is_made() {
    let small = NamespaceConfig { bytes: Some(14 << 20), kind: NamespaceKind::KeyValue };
    let config = SsdConfig { namespaces: vec![small], ..kv_config() };
    let refused = Ssd::new(config, Box::new(MemoryStore::new(MEDIA_BYTES).unwrap())).err();
    assert!(matches!(&refused, Some(SsdError::Config { key: "namespaces", .. })), "{refused:?}");
}

#[test]
fn features_of_one_command_set_are_not_for_namespaces_of_the_other() {
    let mut host = mixed();
    for (fid, right, wrong) in [(0x05, 1, 2), (0x20, 2, 1)] {
        assert_eq!(host.admin(Sqe { cdw10: fid, ..sqe(0x0a, right) }), Ok(0));
        assert_eq!(host.admin(Sqe { cdw10: fid, ..sqe(0x0a, wrong) }), Err(Status::INVALID_FIELD));
        assert_eq!(host.admin(Sqe { cdw10: fid, ..sqe(0x09, wrong) }), Err(Status::INVALID_FIELD));
        assert_eq!(host.admin(Sqe { cdw10: fid, ..sqe(0x09, ALL) }), Ok(0));
    }
}

fn log(host: &mut Host, lid: u32, bytes: u32) -> Vec<u8> {
    host.admin_in(Sqe { cdw10: (bytes / 4 - 1) << 16 | lid, ..sqe(0x02, 0) }, bytes as usize).unwrap()
}

#[test]
fn the_extended_smart_log_counts_what_was_done() {
    let mut host = Host::with_pairs();
    host.store(b"keys", &[1; 100]).unwrap();
    host.vendor_store(VENDOR_STORE, 0, b"more", &[1; 300], 0).unwrap();
    host.store_with(b"keys", &[1; 50], 2).unwrap_err();
    host.vendor_store(0x83, 0, b"keys", &[1; 7], 0).unwrap();
    host.value(b"keys").unwrap();
    host.vendor_value(0, b"none").unwrap_err();
    host.delete(b"keys").unwrap();
    host.vendor_delete(0, b"none", 1).unwrap_err();
    let page = log(&mut host, 0xc0, 1024);
    let counts = |at: usize| [0, 8, 16].map(|offset| u64_at(&page, at + offset));
    assert_eq!(counts(512), [2, 1, 1], "retrieve");
    assert_eq!(counts(536), [3, 2, 1], "store");
    assert_eq!(counts(560), [1, 1, 0], "append");
    assert_eq!(counts(584), [2, 1, 1], "delete");
    let u32_at = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
    assert_eq!([728, 732, 736].map(u32_at), [107, 107, 107], "retrieved: largest, smallest, average");
    assert_eq!([740, 744, 748].map(u32_at), [300, 100, 200], "stored");
    assert_eq!([824, 828, 832, 836, 840].map(u32_at), [255, 4, 1, 2 << 20, 0], "limits");
    assert!(u32_at(944) >= 10, "write amplification in tenths");
    let waf = log(&mut host, 0xca, 512);
    assert_eq!(waf[256..260], page[944..948]);
    // SMART counts them as reads and writes.
    let smart = log(&mut host, 0x02, 512);
    assert_eq!((u64_at(&smart, 64), u64_at(&smart, 80)), (1, 3), "host reads and writes");
}

#[test]
fn what_is_supported_is_listed() {
    let mut host = Host::with_pairs();
    let effects = Sqe { cdw10: 1023 << 16 | 0x05, cdw14: 1 << 24, ..sqe(0x02, 0) };
    let page = host.admin_in(effects, 4096).unwrap();
    let io: Vec<u8> = (0..=255u8).filter(|&opcode| page[1024 + usize::from(opcode) * 4] & 1 == 1).collect();
    assert_eq!(io, [0x00, 0x01, 0x02, 0x06, 0x10, 0x14, 0x81, 0x83, 0x85, 0x90, 0xa1, 0xb1, 0xb2, 0xb3]);
    assert_eq!(page[0x80 * 4] & 1, 1, "Format NVM");
    let pages = log(&mut host, 0x00, 1024);
    for lid in [0x02, 0xc0, 0xca, 0xd0] {
        assert_eq!(pages[lid * 4] & 1, 1, "log page {lid:#x}");
    }
}

#[test]
fn a_device_without_the_vendors_commands_does_not_have_its_log_pages() {
    let mut host = Host::attach(device(SsdConfig { vendor_kv: false, ..kv_config() }));
    host.enable_all();
    host.create_queue_pair(1, 64);
    let pages = log(&mut host, 0x00, 1024);
    for lid in [0xc0, 0xca, 0xd0] {
        assert_eq!(pages[lid as usize * 4] & 1, 0, "log page {lid:#x}");
        assert_eq!(host.admin(Sqe { cdw10: 127 << 16 | lid, ..sqe(0x02, 0) }), Err(Status::new(1, 0x09)));
    }
    assert_eq!(host.vendor_exist(0, b"none"), Err(Status::new(0, 0x01)), "Invalid Command Opcode");
    assert_eq!(host.exist(b"none"), Err(Status::new(0, 0x87)));
}

#[test]
fn errors_are_logged_with_their_command_set_and_answers_are_not() {
    let mut host = Host::with_pairs();
    host.exist(b"none").unwrap_err();
    host.vendor_exist(0, b"none").unwrap_err();
    host.store(b"key", b"v").unwrap();
    host.store_with(b"key", b"v", 2).unwrap_err();
    assert_eq!(log(&mut host, 0x01, 64)[..8], [0; 8], "nothing went wrong");
    host.store_with(b"key", b"v", 3).unwrap_err();
    let entry = log(&mut host, 0x01, 64);
    assert_eq!((u64_at(&entry, 0), u64_at(&entry, 16)), (1, 0), "the first, and no LBA");
    assert_eq!((entry[8], entry[30], entry[31]), (1, 1, STORE), "queue, command set, opcode");
    // Statuses that come with a result: the end of an iteration is an answer, a command that failed in a
    // batch is not.
    host.iterate_open(0, *b"none", !0, 0x04).unwrap();
    assert_eq!(host.iterate_read(1).0, vendor(0x93));
    assert_eq!(u64_at(&log(&mut host, 0x01, 64), 0), 1, "still the first");
    let data = batch_data(&[(0x81, 9, 0, b"keys", b"v")]);
    let batch = host.with_value(sqe(VENDOR_BATCH, 1), &data);
    let batch = Sqe { cdw10: (data.len() / 4) as u32, cdw11: 1, ..batch };
    assert_eq!(host.io(batch), Err(vendor(0x05)));
    let entry = log(&mut host, 0x01, 64);
    assert_eq!((u64_at(&entry, 0), entry[31]), (2, VENDOR_BATCH));
    let iterators = Sqe { cdw10: 127 << 16 | 0xd0, ..sqe(0x02, 5) };
    assert_eq!(host.admin(iterators), Err(Status::INVALID_FIELD), "a namespace that is not there");
}

#[test]
fn a_full_namespace_says_so_and_space_comes_back_when_pairs_are_deleted() {
    let mut host = Host::with_pairs();
    let mut stored = 0u32;
    let full = loop {
        match host.store(&stored.to_be_bytes(), &[stored as u8; 60_000]) {
            Ok(_) => stored += 1,
            Err(status) => break status,
        }
        assert!(stored < 2000, "more than there is");
    };
    assert_eq!(full, Status::CAPACITY_EXCEEDED);
    assert_eq!(host.vendor_store(VENDOR_STORE, 0, b"keys", &[1; 60_000], 0), Err(vendor(0x12)));
    assert!(stored > 700, "{stored} values of 60000 bytes");
    assert_eq!(host.value(&(stored - 1).to_be_bytes()), Ok(vec![(stored - 1) as u8; 60_000]));
    for n in 0..stored {
        host.delete(&n.to_be_bytes()).unwrap();
    }
    for n in 0..stored / 2 {
        while host.advance() > 0 {}
        host.store(&n.to_be_bytes(), &[7; 60_000]).unwrap();
    }
}

#[test]
fn sgls_describe_values_too() {
    let mut host = Host::attach(kv_device());
    host.enable_all();
    host.create_queue_pair(1, 8);
    let value = host::blocks::pattern(4, 10_000);
    host.memory.write(DATA, &value);
    // One data block descriptor in the entry: PSDT 01b, type 0h.
    let sgl = |sqe: Sqe, bytes: u64| Sqe {
        flags: 0x40,
        dptr: [BASE + DATA as u64, bytes],
        cdw10: bytes as u32,
        ..sqe
    };
    assert_eq!(host.io(sgl(standard(STORE, b"key"), 10_000)), Ok(0));
    assert!(host.value(b"key").unwrap() == value);
    host.memory.fill(DATA, 10_000, 0);
    assert_eq!(host.io(sgl(standard(RETRIEVE, b"key"), 10_000)), Ok(10_000));
    assert!(host.bytes(DATA, 10_000) == value);
}
