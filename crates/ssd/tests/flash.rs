//! Logical blocks on a translation layer, at the queue.

mod host;

use host::blocks::{COMPARE, DATASET_MANAGEMENT, READ, SOURCE, WRITE, WRITE_ZEROES, access, transfer};
use host::random::Random;
use host::{DATA, Host, device_on, sqe};
use unvme_spec::Status;
use unvme_ssd::{FileStore, FlashConfig, FlashGeometry, MemoryStore, NamespaceConfig, SsdConfig, Store};

const BYTES: u64 = 4 << 20;

fn config(block_bytes: u32, flash: FlashConfig) -> SsdConfig {
    SsdConfig {
        namespaces: vec![NamespaceConfig::blocks(block_bytes)],
        flash: Some(flash),
        ..SsdConfig::block(BYTES, block_bytes)
    }
}

fn small() -> FlashConfig {
    let geometry = FlashGeometry { unit_bytes: 64 << 10, ..FlashGeometry::default() };
    FlashConfig { geometry, overprovisioning: 0.28, ..FlashConfig::default() }
}

fn started(config: SsdConfig, store: impl FnOnce(u64) -> Box<dyn Store>) -> Host {
    let store = store(config.store_bytes().unwrap());
    let mut host = Host::attach(device_on(config, store));
    host.enable();
    host.create_queue_pair(1, 64);
    host
}

fn in_memory(bytes: u64) -> Box<dyn Store> {
    Box::new(MemoryStore::new(bytes).unwrap())
}

#[test]
fn blocks_behave_like_an_array_of_bytes() {
    let mut host = started(config(512, small()), in_memory);
    let mut model = vec![0u8; BYTES as usize];
    let mut random = Random::from_environment();
    for _ in 0..4000 {
        let blocks = 1 + random.below(40);
        let lba = random.below(BYTES / 512 - blocks);
        let (start, bytes) = (lba as usize * 512, blocks as usize * 512);
        let range = start..start + bytes;
        match random.below(10) {
            0 => {
                assert_eq!(host.io(access(WRITE_ZEROES, lba, blocks as u32)), Ok(0));
                model[range].fill(0);
            }
            1 => {
                let list = [0u32.to_le_bytes(), (blocks as u32).to_le_bytes()].concat();
                host.memory.write(SOURCE, &[&list[..], &lba.to_le_bytes()].concat());
                let mut command = sqe(DATASET_MANAGEMENT, 1);
                command.cdw11 = 1 << 2;
                host.set_prps(&mut command, SOURCE, 16);
                assert_eq!(host.io(command), Ok(0));
                model[range].fill(0);
            }
            2 => {
                let offset = SOURCE + random.below(1024) as usize * 4;
                host.memory.write(offset, &model[range]);
                let compare = transfer(&host, COMPARE, lba, blocks as u32, offset, bytes);
                assert_eq!(host.io(compare), Ok(0));
            }
            3 | 4 => {
                let offset = DATA + random.below(1024) as usize * 4;
                let read = transfer(&host, READ, lba, blocks as u32, offset, bytes);
                assert_eq!(host.io(read), Ok(0));
                assert!(host.bytes(offset, bytes) == model[range], "block {lba}, {blocks} of them");
            }
            _ => {
                let data = vec![random.next() as u8 | 1; bytes];
                let offset = SOURCE + random.below(1024) as usize * 4;
                host.memory.write(offset, &data);
                let write = transfer(&host, WRITE, lba, blocks as u32, offset, bytes);
                assert_eq!(host.io(write), Ok(0));
                model[range].copy_from_slice(&data);
            }
        }
    }
    let stats = host.ssd.ftl_stats().unwrap().ftl;
    assert!(stats.reclaim_pages > 0 && stats.erased_units > 0, "{stats:?}");
    assert_eq!(host.ssd.check_flash(), []);
}

/// Writes pages at random until one fails; returns how many were written, and the status.
fn write_pages(host: &mut Host, random: &mut Random, most: u32) -> (u32, Result<u64, Status>) {
    for done in 0..most {
        let lba = random.below(BYTES / 4096);
        host.memory.write(SOURCE, &[lba.to_le_bytes(), u64::from(done).to_le_bytes()].concat().repeat(256));
        let outcome = host.io(transfer(host, WRITE, lba, 1, SOURCE, 4096));
        if outcome.is_err() {
            return (done, outcome);
        }
    }
    (most, Ok(0))
}

#[test]
fn worn_out_flash_takes_no_more_writes_and_is_still_read() {
    let flash = FlashConfig { endurance: Some(5), ..small() };
    let mut host = started(config(4096, flash), in_memory);
    let (done, outcome) = write_pages(&mut host, &mut Random::new(5), 50_000);
    assert_eq!(outcome, Err(Status::WRITE_TO_READ_ONLY_RANGE), "after {done} pages");
    for lba in 0..BYTES / 4096 {
        assert_eq!(host.io(transfer(&host, READ, lba, 1, DATA, 4096)), Ok(0));
        let page = host.bytes(DATA, 4096);
        assert!(page == [0; 4096] || page[..8] == lba.to_le_bytes(), "page {lba}");
    }
    assert!(host.ssd.ftl_stats().unwrap().is_read_only);
}

#[test]
fn tags_say_which_page_was_read() {
    let mut host = started(config(4096, small()), |bytes| Box::new(MemoryStore::tags(bytes).unwrap()));
    assert_eq!(write_pages(&mut host, &mut Random::new(6), 8000), (8000, Ok(0)));
    let mut found = 0;
    for lba in 0..BYTES / 4096 {
        assert_eq!(host.io(transfer(&host, READ, lba, 1, DATA, 4096)), Ok(0));
        let page = host.bytes(DATA, 4096);
        if page != [0; 4096] {
            assert_eq!(page, lba.to_le_bytes().repeat(512), "page {lba}");
            found += 1;
        }
    }
    assert!(found > 900, "{found}");
    assert!(host.ssd.ftl_stats().unwrap().ftl.reclaim_pages > 0);
}

#[test]
fn a_terabyte_of_tags_takes_the_memory_of_what_is_written() {
    let geometry = FlashGeometry { unit_bytes: 1 << 30, ..FlashGeometry::default() };
    let flash = FlashConfig { geometry, ..FlashConfig::default() };
    let config = SsdConfig { flash: Some(flash), ..SsdConfig::block(1 << 40, 4096) };
    let mut host = started(config, |bytes| Box::new(MemoryStore::tags(bytes).unwrap()));
    for lba in [0, 1 << 20, (1 << 28) - 1u64] {
        host.memory.write(SOURCE, &lba.to_le_bytes().repeat(512));
        assert_eq!(host.io(transfer(&host, WRITE, lba, 1, SOURCE, 4096)), Ok(0));
        assert_eq!(host.io(transfer(&host, READ, lba, 1, DATA, 4096)), Ok(0));
        assert_eq!(host.bytes(DATA, 4096), lba.to_le_bytes().repeat(512));
    }
}

#[test]
fn a_device_that_keeps_no_data_still_counts_what_flash_would_do() {
    let mut host = started(config(4096, small()), |bytes| Box::new(MemoryStore::null(bytes)));
    assert_eq!(write_pages(&mut host, &mut Random::new(8), 8000), (8000, Ok(0)));
    let stats = host.ssd.ftl_stats().unwrap().ftl;
    assert_eq!(stats.host_pages, 8000);
    assert!(stats.reclaim_pages > 0);
}

#[test]
fn a_unit_that_is_open_when_the_device_ends_is_written_further_when_it_is_there_again() {
    // Units of several chunks: of the open one some have no data yet.
    let geometry = FlashGeometry { unit_bytes: 8 << 20, ..FlashGeometry::default() };
    let flash = FlashConfig { geometry, overprovisioning: 16.0, ..FlashConfig::default() };
    let folder = tempfile::tempdir().unwrap();
    let file = |bytes| -> Box<dyn Store> { Box::new(FileStore::open(folder.path(), bytes).unwrap()) };
    let page = |lba: u64, round: u64| [lba.to_le_bytes(), round.to_le_bytes()].concat().repeat(256);
    for round in 0..4 {
        let mut host = started(config(4096, flash.clone()), file);
        for lba in 0..400 {
            if round > 0 {
                assert_eq!(host.io(transfer(&host, READ, lba, 1, DATA, 4096)), Ok(0));
                assert_eq!(host.bytes(DATA, 4096), page(lba, round - 1), "page {lba}, round {round}");
            }
            host.memory.write(SOURCE, &page(lba, round));
            assert_eq!(host.io(transfer(&host, WRITE, lba, 1, SOURCE, 4096)), Ok(0));
        }
        assert_eq!(host.ssd.check_flash(), [], "round {round}");
    }
}

#[test]
fn a_store_of_another_size_and_an_impossible_geometry_are_told() {
    let error = |config: SsdConfig, store: u64| {
        let store = Box::new(MemoryStore::new(store).unwrap());
        unvme_ssd::Ssd::new(config, store).err().expect("an error").to_string()
    };
    let plain = config(4096, small());
    let bytes = plain.store_bytes().unwrap();
    let message = error(plain.clone(), bytes - (2 << 20));
    assert!(message.contains(&format!("expected a store of {bytes} bytes")), "{message}");
    let tight = FlashConfig { overprovisioning: 0.01, ..small() };
    let message = error(config(4096, tight), bytes);
    assert!(message.contains("flash: units: 65 is not possible, expected at least"), "{message}");
    let odd = FlashGeometry { unit_bytes: 70_000, ..FlashGeometry::default() };
    let message = error(config(4096, FlashConfig { geometry: odd, ..small() }), bytes);
    assert!(message.contains("unit_bytes: 70000 is not possible"), "{message}");
}
