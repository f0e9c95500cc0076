//! Namespace Management and Attachment, Format NVM.

mod host;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use host::{BASE, DATA, Host, MEDIA_BYTES, config, device, device_on, sqe};
use unvme_bus::{Function, Region};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{MemoryStore, NamespaceConfig, NamespaceKind, SsdConfig, SsdError, Store};

const ALL: u32 = 0xffff_ffff;

/// What the host says of a namespace to create, at the offsets of the specification.
#[derive(Clone)]
struct Create([u8; 4096]);

impl Create {
    fn blocks(nsze: u64, flbas: u8) -> Self {
        let mut data = [0; 4096];
        data[0..8].copy_from_slice(&nsze.to_le_bytes());
        data[8..16].copy_from_slice(&nsze.to_le_bytes());
        data[26] = flbas;
        Self(data)
    }

    fn with(mut self, at: usize, byte: u8) -> Self {
        self.0[at] = byte;
        self
    }
}

fn send(host: &mut Host, mut sqe: Sqe, data: &[u8]) -> Result<u64, Status> {
    host.memory.write(DATA, data);
    host.set_prps(&mut sqe, DATA, data.len());
    host.admin(sqe)
}

fn create(host: &mut Host, create: Create) -> Result<u64, Status> {
    send(host, sqe(0x0d, 0), &create.0)
}

fn delete(host: &mut Host, nsid: u32) -> Result<u64, Status> {
    host.admin(Sqe { cdw10: 1, ..sqe(0x0d, nsid) })
}

fn attachment(host: &mut Host, nsid: u32, select: u32, list: &[u16]) -> Result<u64, Status> {
    let mut data = vec![0; 4096];
    for (bytes, number) in data.chunks_exact_mut(2).zip(list) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    send(host, Sqe { cdw10: select, ..sqe(0x15, nsid) }, &data)
}

fn attach(host: &mut Host, nsid: u32) -> Result<u64, Status> {
    attachment(host, nsid, 0, &[1, 0])
}

fn detach(host: &mut Host, nsid: u32) -> Result<u64, Status> {
    attachment(host, nsid, 1, &[1, 0])
}

fn format(host: &mut Host, nsid: u32, cdw10: u32) -> Result<u64, Status> {
    host.admin(Sqe { cdw10, ..sqe(0x80, nsid) })
}

fn identify(host: &mut Host, cns: u32, nsid: u32) -> Vec<u8> {
    host.admin_in(Sqe { cdw10: cns, ..sqe(0x06, nsid) }, 4096).expect("Identify")
}

fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().unwrap())
}

fn size_of(host: &mut Host, nsid: u32) -> u64 {
    u64_at(&identify(host, 0x00, nsid), 0)
}

fn unallocated(host: &mut Host) -> u64 {
    u64_at(&identify(host, 0x01, 0), 296)
}

/// Changed Attached Namespace List log page, which it empties.
fn changed(host: &mut Host) -> Vec<u32> {
    let page = host.admin_in(Sqe { cdw10: 0x03ff_0004, ..sqe(0x02, 0) }, 4096).expect("Get Log Page");
    let words = page.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap()));
    words.take_while(|&nsid| nsid != 0).collect()
}

/// Writes or reads one block whose bytes are all `value`.
fn write(host: &mut Host, nsid: u32, block: u32, value: u8) -> Result<u64, Status> {
    host.memory.fill(DATA, 4096, value);
    let mut sqe = Sqe { cdw10: block, ..sqe(0x01, nsid) };
    sqe.dptr = [BASE + DATA as u64, 0];
    host.io(sqe)
}

fn read(host: &mut Host, nsid: u32, block: u32) -> Result<u8, Status> {
    host.memory.fill(DATA, 4096, 0xee);
    let mut sqe = Sqe { cdw10: block, ..sqe(0x02, nsid) };
    sqe.dptr = [BASE + DATA as u64, 0];
    host.io(sqe)?;
    let data = host.bytes(DATA, 512);
    assert!(data.iter().all(|&byte| byte == data[0]), "a block with different bytes");
    Ok(data[0])
}

/// A device without namespaces, with I/O queue pair 1.
fn empty() -> Host {
    let mut host = Host::attach(device(SsdConfig { namespaces: Vec::new(), ..config(512) }));
    host.enable();
    host.create_queue_pair(1, 64);
    host
}

#[test]
fn a_namespace_lives_from_creation_to_deletion() {
    let mut host = empty();
    assert_eq!(unallocated(&mut host), MEDIA_BYTES);
    assert_eq!(create(&mut host, Create::blocks(8192, 0)), Ok(1));
    assert_eq!(unallocated(&mut host), MEDIA_BYTES - (4 << 20));
    assert_eq!(identify(&mut host, 0x10, 0)[..4], [1, 0, 0, 0], "allocated");
    assert_eq!(identify(&mut host, 0x02, 0)[..4], [0; 4], "not active");
    assert_eq!(u64_at(&identify(&mut host, 0x11, 1), 0), 8192);
    assert_eq!(identify(&mut host, 0x12, 1)[..2], [0, 0], "attached to no controller");
    assert_eq!(write(&mut host, 1, 0, 7), Err(Status::INVALID_FIELD));

    assert_eq!(attach(&mut host, 1), Ok(0));
    assert_eq!(attach(&mut host, 1), Err(Status::NAMESPACE_ALREADY_ATTACHED));
    assert_eq!(identify(&mut host, 0x02, 0)[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(write(&mut host, 1, 8191, 7), Ok(0));
    assert_eq!(write(&mut host, 1, 8192, 7), Err(Status::LBA_OUT_OF_RANGE));

    assert_eq!(detach(&mut host, 1), Ok(0));
    assert_eq!(detach(&mut host, 1), Err(Status::NAMESPACE_NOT_ATTACHED));
    assert_eq!(read(&mut host, 1, 8191), Err(Status::INVALID_FIELD));
    assert_eq!(attach(&mut host, 1), Ok(0));
    assert_eq!(read(&mut host, 1, 8191), Ok(7), "detaching keeps the data");

    assert_eq!(delete(&mut host, 1), Ok(0));
    assert_eq!(unallocated(&mut host), MEDIA_BYTES);
    assert_eq!(identify(&mut host, 0x10, 0)[..4], [0; 4]);
    assert_eq!(read(&mut host, 1, 0), Err(Status::INVALID_FIELD));
    assert_eq!(delete(&mut host, 1), Err(Status::INVALID_FIELD));
}

#[test]
fn a_new_namespace_never_shows_the_data_of_a_deleted_one() {
    let mut host = empty();
    for value in [1, 2] {
        create(&mut host, Create::blocks(MEDIA_BYTES / 512, 0)).unwrap();
        attach(&mut host, 1).unwrap();
        for block in [0, 4095, 4096, 131_071] {
            assert_eq!(read(&mut host, 1, block), Ok(0), "block {block} before it is written");
            write(&mut host, 1, block, value).unwrap();
        }
        delete(&mut host, 1).unwrap();
    }
}

#[test]
fn each_namespace_gets_identifiers_of_its_own_even_after_a_deletion() {
    let mut host = empty();
    let mut seen = Vec::new();
    for _ in 0..3 {
        create(&mut host, Create::blocks(8, 0)).unwrap();
        seen.push(identify(&mut host, 0x11, 1)[104..128].to_vec());
        delete(&mut host, 1).unwrap();
    }
    seen.dedup();
    assert_eq!(seen.len(), 3);
}

#[test]
fn what_cannot_be_created_gets_the_status_the_specification_names() {
    let mut host = empty();
    let good = Create::blocks(8, 0);
    let blocks = MEDIA_BYTES / 512;
    for (bad, status) in [
        (Create::blocks(0, 0), Status::INVALID_FIELD),
        (good.clone().with(8, 9), Status::INVALID_FIELD),
        (good.clone().with(8, 7), Status::THIN_PROVISIONING_UNSUPPORTED),
        (Create::blocks(8, 2), Status::INVALID_FORMAT),
        (Create::blocks(8, 0x20), Status::INVALID_FORMAT),
        (Create::blocks(8, 0x10), Status::INVALID_FORMAT),
        (good.clone().with(29, 1), Status::INVALID_FORMAT),
        (good.clone().with(30, 2), Status::INVALID_FIELD),
        (good.clone().with(92, 1), Status::INVALID_FIELD),
        (good.clone().with(100, 1), Status::INVALID_FIELD),
        (good.clone().with(102, 1), Status::INVALID_FIELD),
        (good.clone().with(384, 1), Status::INVALID_FIELD),
        (good.clone().with(392, 1), Status::INVALID_FIELD),
        (Create::blocks(blocks + 1, 0), Status::NAMESPACE_INSUFFICIENT_CAPACITY),
        (Create::blocks(blocks / 8 + 1, 1), Status::NAMESPACE_INSUFFICIENT_CAPACITY),
        (Create::blocks(u64::MAX, 1), Status::NAMESPACE_INSUFFICIENT_CAPACITY),
    ] {
        assert_eq!(create(&mut host, bad), Err(status));
    }
    for (cdw10, cdw11, status) in
        [(0, 2 << 24, Status::IO_COMMAND_SET_UNSUPPORTED), (2, 0, Status::INVALID_FIELD)]
    {
        assert_eq!(send(&mut host, Sqe { cdw10, cdw11, ..sqe(0x0d, 0) }, &good.0), Err(status));
    }
    assert_eq!(identify(&mut host, 0x10, 0)[..4], [0; 4], "nothing was created");
    assert_eq!(unallocated(&mut host), MEDIA_BYTES);
    assert_eq!(create(&mut host, Create::blocks(blocks, 0)), Ok(1), "all of the device");
    assert_eq!(create(&mut host, good), Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY));
}

#[test]
fn identifiers_run_out_after_128_namespaces_and_the_lowest_free_one_is_next() {
    let bytes = 512 << 20;
    let mut host = Host::attach(device(SsdConfig { bytes, namespaces: Vec::new(), ..config(512) }));
    host.enable();
    for nsid in 1..=128 {
        assert_eq!(create(&mut host, Create::blocks(1, 0)), Ok(nsid));
    }
    assert_eq!(create(&mut host, Create::blocks(1, 0)), Err(Status::NAMESPACE_IDENTIFIER_UNAVAILABLE));
    delete(&mut host, 5).unwrap();
    delete(&mut host, 70).unwrap();
    assert_eq!(create(&mut host, Create::blocks(1, 0)), Ok(5));
    assert_eq!(delete(&mut host, ALL), Ok(0));
    assert_eq!(unallocated(&mut host), bytes);
}

#[test]
fn a_controller_list_names_this_controller_and_nothing_else() {
    let mut host = empty();
    create(&mut host, Create::blocks(8, 0)).unwrap();
    for list in [&[0u16][..], &[1, 1], &[2, 0, 0], &[2, 0, 1], &[2048, 0], &[0xffff, 0]] {
        assert_eq!(attachment(&mut host, 1, 0, list), Err(Status::CONTROLLER_LIST_INVALID), "{list:?}");
    }
    assert_eq!(attachment(&mut host, 1, 2, &[1, 0]), Err(Status::INVALID_FIELD));
    assert_eq!(attach(&mut host, 2), Err(Status::INVALID_FIELD));
    for nsid in [0, 129, ALL] {
        assert_eq!(attach(&mut host, nsid), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
        if nsid != ALL {
            assert_eq!(delete(&mut host, nsid), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
        }
    }
    assert_eq!(attach(&mut host, 1), Ok(0));
}

#[test]
fn format_changes_the_block_size_keeps_the_bytes_and_zeroes_the_data() {
    let mut host = Host::with_queues(512);
    let blocks = MEDIA_BYTES / 512;
    write(&mut host, 1, 0, 7).unwrap();
    assert_eq!(u64_at(&identify(&mut host, 0x00, 1), 16), 4096, "NUSE");
    assert_eq!(format(&mut host, 1, 1), Ok(0));
    let page = identify(&mut host, 0x00, 1);
    assert_eq!((u64_at(&page, 0), u64_at(&page, 8), u64_at(&page, 16)), (blocks / 8, blocks / 8, 0));
    assert_eq!(page[26], 1, "FLBAS");
    assert_eq!(read(&mut host, 1, 0), Ok(0));
    assert_eq!(read(&mut host, 1, (blocks / 8) as u32), Err(Status::LBA_OUT_OF_RANGE));
    write(&mut host, 1, 3, 9).unwrap();
    assert_eq!(format(&mut host, 1, 0x200), Ok(0), "SES 1, format 0");
    assert_eq!(size_of(&mut host, 1), blocks);
    assert_eq!(read(&mut host, 1, 24), Ok(0));
}

#[test]
fn a_size_that_is_not_whole_in_the_new_format_is_rounded_up_into_the_chunk() {
    let mut host = empty();
    create(&mut host, Create::blocks(9, 0)).unwrap();
    attach(&mut host, 1).unwrap();
    format(&mut host, 1, 1).unwrap();
    assert_eq!(size_of(&mut host, 1), 2);
    assert_eq!(write(&mut host, 1, 1, 3), Ok(0));
    format(&mut host, 1, 0).unwrap();
    assert_eq!(size_of(&mut host, 1), 16);
}

#[test]
fn format_clears_the_marks_of_write_uncorrectable() {
    let mut host = Host::with_queues(512);
    host.io(Sqe { cdw10: 5, ..sqe(0x04, 1) }).unwrap();
    assert_eq!(read(&mut host, 1, 5), Err(Status::UNRECOVERED_READ_ERROR));
    format(&mut host, 1, 0).unwrap();
    assert_eq!(read(&mut host, 1, 5), Ok(0));
}

#[test]
fn format_without_a_namespace_formats_the_attached_ones_alone() {
    let namespaces = vec![NamespaceConfig { bytes: Some(4 << 20), kind: NamespaceKind::Blocks(512) }; 3];
    let mut host = Host::attach(device(SsdConfig { namespaces, ..config(512) }));
    host.enable();
    host.create_queue_pair(1, 64);
    for nsid in 1..=3 {
        write(&mut host, nsid, 0, nsid as u8).unwrap();
    }
    detach(&mut host, 2).unwrap();
    format(&mut host, ALL, 1).unwrap();
    attach(&mut host, 2).unwrap();
    assert_eq!([1, 2, 3].map(|nsid| size_of(&mut host, nsid)), [1024, 8192, 1024]);
    assert_eq!([1, 2, 3].map(|nsid| read(&mut host, nsid, 0)), [Ok(0), Ok(2), Ok(0)]);
    detach(&mut host, 2).unwrap();
    assert_eq!(format(&mut host, 2, 1), Ok(0), "by its own identifier a detached one is formatted too");
    assert_eq!(u64_at(&identify(&mut host, 0x11, 2), 0), 1024);
}

#[test]
fn what_cannot_be_formatted_gets_the_status_the_specification_names_and_keeps_its_data() {
    let mut host = Host::with_queues(512);
    write(&mut host, 1, 0, 7).unwrap();
    for (cdw10, status) in [
        (2, Status::INVALID_FORMAT),
        (0x1000, Status::INVALID_FORMAT),
        (0x10, Status::INVALID_FORMAT),
        (0x20, Status::INVALID_FORMAT),
        (0x400, Status::INVALID_FIELD),
        (0x600, Status::INVALID_FIELD),
    ] {
        assert_eq!(format(&mut host, 1, cdw10), Err(status), "{cdw10:#x}");
        assert_eq!(format(&mut host, ALL, cdw10), Err(status), "{cdw10:#x}");
    }
    assert_eq!(format(&mut host, 2, 0), Err(Status::INVALID_FIELD));
    assert_eq!(format(&mut host, 0, 0), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    assert_eq!(format(&mut host, 129, 0), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    assert_eq!(read(&mut host, 1, 0), Ok(7));
}

/// A store in memory that fails on demand.
struct Unreliable {
    store: MemoryStore,
    saves: Arc<AtomicBool>,
    releases: Arc<AtomicBool>,
}

impl Unreliable {
    fn check(works: &AtomicBool) -> Result<(), SsdError> {
        let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = SsdError::File { path: "store".into(), what: "write", source };
        if works.load(Ordering::Relaxed) { Ok(()) } else { Err(error) }
    }
}

impl Store for Unreliable {
    fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    fn memory(&self) -> Option<&Region> {
        self.store.memory()
    }

    fn holds_data(&self, chunk: u64) -> bool {
        self.store.holds_data(chunk)
    }

    fn reserve(&self, chunk: u64) -> Result<(), SsdError> {
        self.store.reserve(chunk)
    }

    fn release(&self, chunk: u64) -> Result<(), SsdError> {
        Self::check(&self.releases)?;
        self.store.release(chunk)
    }

    fn sync(&self) -> Result<(), SsdError> {
        self.store.sync()
    }

    fn load_state(&self) -> Result<Option<Vec<u8>>, SsdError> {
        self.store.load_state()
    }

    fn save_state(&self, state: &[u8]) -> Result<(), SsdError> {
        Self::check(&self.saves)?;
        self.store.save_state(state)
    }
}

#[test]
fn what_the_store_does_not_take_has_not_happened() {
    let (saves, releases) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
    let store = MemoryStore::new(MEDIA_BYTES).unwrap();
    let store = Unreliable { store, saves: Arc::clone(&saves), releases: Arc::clone(&releases) };
    let namespaces = vec![NamespaceConfig { bytes: Some(4 << 20), kind: NamespaceKind::Blocks(512) }];
    let mut host = Host::attach(device_on(SsdConfig { namespaces, ..config(512) }, Box::new(store)));
    host.enable();
    host.create_queue_pair(1, 64);
    write(&mut host, 1, 0, 7).unwrap();

    saves.store(false, Ordering::Relaxed);
    assert_eq!(create(&mut host, Create::blocks(8, 0)), Err(Status::INTERNAL_ERROR));
    assert_eq!(detach(&mut host, 1), Err(Status::INTERNAL_ERROR));
    assert_eq!(identify(&mut host, 0x10, 0)[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(&mut host, 1, 0), Ok(7), "still attached");
    // Arbitration, to be saved: the value that is said to be saved is the default.
    assert_eq!(
        host.admin(Sqe { cdw10: 1 << 31 | 0x01, cdw11: 3, ..sqe(0x09, 0) }),
        Err(Status::INTERNAL_ERROR)
    );
    assert_eq!(host.admin(Sqe { cdw10: 2 << 8 | 0x01, ..sqe(0x0a, 0) }), Ok(0x0f03_0007));
    assert_eq!(format(&mut host, 1, 1), Err(Status::INTERNAL_ERROR));
    assert_eq!(delete(&mut host, 1), Err(Status::INTERNAL_ERROR));
    assert_eq!((size_of(&mut host, 1), read(&mut host, 1, 0)), (8192, Ok(0)), "as it was, and erased");

    saves.store(true, Ordering::Relaxed);
    releases.store(false, Ordering::Relaxed);
    write(&mut host, 1, 0, 8).unwrap();
    assert_eq!(delete(&mut host, 1), Err(Status::INTERNAL_ERROR));
    assert_eq!(format(&mut host, 1, 1), Err(Status::INTERNAL_ERROR));
    assert_eq!(read(&mut host, 1, 0), Ok(8), "open to commands again");
    releases.store(true, Ordering::Relaxed);
    assert_eq!(delete(&mut host, 1), Ok(0));
    assert_eq!(create(&mut host, Create::blocks(8192, 0)), Ok(1));
    attach(&mut host, 1).unwrap();
    assert_eq!(read(&mut host, 1, 0), Ok(0));
}

#[test]
fn changes_to_active_namespaces_are_listed() {
    let mut host = empty();
    for _ in 0..3 {
        create(&mut host, Create::blocks(8, 0)).unwrap();
    }
    assert_eq!(changed(&mut host), Vec::<u32>::new(), "creating a namespace attaches it to nobody");
    attach(&mut host, 3).unwrap();
    attach(&mut host, 1).unwrap();
    assert_eq!(changed(&mut host), [1, 3]);
    format(&mut host, 1, 0).unwrap();
    assert_eq!(changed(&mut host), Vec::<u32>::new(), "formatted as before");
    format(&mut host, 1, 1).unwrap();
    assert_eq!(changed(&mut host), [1]);
    delete(&mut host, 2).unwrap();
    assert_eq!(changed(&mut host), Vec::<u32>::new(), "was not active");
    delete(&mut host, 3).unwrap();
    assert_eq!(changed(&mut host), [3]);
    detach(&mut host, 1).unwrap();
    assert_eq!(changed(&mut host), [1]);
}

/// Ends the other thread also when an assertion fails.
struct StopsAtEnd<'a>(&'a AtomicBool);

impl Drop for StopsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Half a chunk of the media, in blocks of 512 bytes.
const HALF_CHUNK: u32 = 2048;

#[test]
fn writes_that_race_with_a_deletion_leave_nothing_behind() {
    let mut host = empty();
    host.create_queue_pair(2, 64);
    let everything = || Create::blocks(MEDIA_BYTES / 512, 0);
    let stop = AtomicBool::new(false);
    let (ssd, clock) = (host.ssd.clone(), host.clock.clone());
    std::thread::scope(|scope| {
        let stop = &stop;
        let _stops = StopsAtEnd(stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                ssd.advance(Some(2), &clock);
            }
        });
        for round in 0..20 {
            assert_eq!(create(&mut host, everything()), Ok(1));
            attach(&mut host, 1).unwrap();
            // A mebibyte into each chunk, which takes long enough for the deletion to come in the middle.
            host.memory.fill(DATA, 1 << 20, 0xab);
            for chunk in 0..32 {
                let mut write = Sqe { cdw10: chunk * 2 * HALF_CHUNK, cdw12: HALF_CHUNK - 1, ..sqe(0x01, 1) };
                host.set_prps(&mut write, DATA, 1 << 20);
                host.push(2, write);
            }
            host.ring(2);
            while host.peek(2).is_none() {
                std::hint::spin_loop();
            }
            assert_eq!(delete(&mut host, 1), Ok(0));
            let mut left = 32;
            while left > 0 {
                let Some(cqe) = host.poll(2) else { continue };
                let status = cqe.status().kind();
                let expected = [Status::SUCCESS, Status::FORMAT_IN_PROGRESS, Status::INVALID_FIELD];
                assert!(expected.contains(&status), "round {round}: {status}");
                left -= 1;
            }
            // What came too late would be seen once the chunk has space again.
            assert_eq!(create(&mut host, everything()), Ok(1));
            attach(&mut host, 1).unwrap();
            for chunk in 0..32 {
                write(&mut host, 1, (2 * chunk + 1) * HALF_CHUNK, 1).unwrap();
                for block in [0, HALF_CHUNK - 1] {
                    assert_eq!(
                        read(&mut host, 1, 2 * chunk * HALF_CHUNK + block),
                        Ok(0),
                        "round {round}, {chunk}"
                    );
                }
            }
            delete(&mut host, 1).unwrap();
        }
    });
}
