//! Logical blocks: units, limits, and which queue an operation takes.

use unvme::Status;
use unvme_guide::Placement;
use unvme_guide::config::SsdType;
use unvme_guide::session::{KvKey as Key, OpError, QueueChoice, QueueKind, StoreOptions};

use crate::rig::{BOTH, Masks, POLLED, blocks, config, start};
use crate::verbs::Verbs;

const AUTO: QueueChoice = QueueChoice::Auto;

#[test]
fn what_is_written_is_read_blocking_and_asynchronously() {
    let (session, device, books) = blocks(BOTH);
    device.write(AUTO, 8, &[0x5a; 4096]).unwrap();
    device.write_async(AUTO, 16, &[0xa5; 1024], 7).unwrap();
    books.wait_for(1);
    assert_eq!(books.take(7).status, Status::SUCCESS);
    let mut data = [0; 1024];
    device.read(AUTO, 16, &mut data).unwrap();
    assert_eq!(data, [0xa5; 1024]);
    device.read_async(AUTO, 8, 8, 9).unwrap();
    books.wait_for(1);
    let outcome = books.take(9);
    let mut data = [0; 5000];
    assert_eq!(outcome.copy_data(&mut data), 4096);
    assert_eq!(data[..4096], [0x5a; 4096]);
    assert_eq!(data[4096..], [0; 904]);
    session.close().unwrap();
}

#[test]
fn deallocation_counts_blocks_blocking_and_asynchronously() {
    let (_session, device, books) = blocks(BOTH);
    device.write(AUTO, 0, &[1; 4096]).unwrap();
    device.deallocate(AUTO, 1, 2).unwrap();
    device.deallocate_async(AUTO, 5, 1, 1).unwrap();
    books.wait_for(1);
    let ended = books.take(1);
    assert_eq!(ended.status, Status::SUCCESS);
    assert!(ended.data.is_none(), "the list of ranges is the session's own");
    let mut data = [0; 4096];
    device.read(AUTO, 0, &mut data).unwrap();
    let blocks: Vec<u8> = data.chunks(512).map(|block| block[0]).collect();
    assert_eq!(blocks, [1, 0, 0, 1, 1, 0, 1, 1]);
    assert!(data.chunks(512).all(|block| block.iter().all(|byte| *byte == block[0])));
}

#[test]
fn a_length_that_is_no_whole_number_of_blocks_is_an_error() {
    let (_session, device, books) = blocks(BOTH);
    for bytes in [0, 1, 511, 513, (2 << 20) + 512] {
        let mut data = vec![0; bytes];
        assert!(matches!(device.read(AUTO, 0, &mut data), Err(OpError::Argument(_))), "{bytes}");
        assert!(matches!(device.write(AUTO, 0, &data), Err(OpError::Argument(_))), "{bytes}");
        assert!(matches!(device.write_async(AUTO, 0, &data, 1), Err(OpError::Argument(_))), "{bytes}");
    }
    let last = device.sectors() - 1;
    for (lba, blocks) in [(last, 2), (last + 1, 1), (u64::MAX, 1), (u64::MAX / 512 + 1, 1), (0, 0), (0, 4097)]
    {
        assert!(
            matches!(device.read_async(AUTO, lba, blocks, 1), Err(OpError::Argument(_))),
            "{lba} {blocks}"
        );
        let mut data = vec![0; blocks as usize * 512];
        assert!(matches!(device.read(AUTO, lba, &mut data), Err(OpError::Argument(_))), "{lba} {blocks}");
    }
    device.read(AUTO, last, &mut [0; 512]).unwrap();
    assert_eq!(books.len(), 0);
}

#[test]
fn a_block_device_has_no_pairs() {
    let (_session, device, _) = blocks(BOTH);
    let key = Key { keyspace: 0, bytes: b"0123" };
    assert!(matches!(device.exist(AUTO, key), Err(OpError::Unsupported(_))));
    assert!(matches!(
        device.store_async(AUTO, key, &[1], StoreOptions::default(), 1),
        Err(OpError::Unsupported(_))
    ));
    assert!(matches!(device.iterate_info(), Err(OpError::Unsupported(_))));
    assert!(matches!(device.iterate_close(AUTO, 1), Err(OpError::Unsupported(_))));
}

#[test]
fn a_block_device_is_no_key_value_device() {
    let error = unvme_guide::session::Session::open(
        config("mem:block:64M", SsdType::Kv, BOTH),
        crate::rig::options(&crate::rig::Books::default()),
    );
    assert!(matches!(error, Err(unvme::Error::Unsupported { .. })), "{error:?}");
}

#[test]
fn a_queue_that_is_asked_for_must_be_there_and_of_the_right_kind() {
    let (_session, device, books) = blocks(BOTH);
    assert_eq!(device.cpus(), [0, 1]);
    assert_eq!(device.queue_kind(0), Some(QueueKind::Sync));
    assert_eq!(device.queue_kind(1), Some(QueueKind::Async));
    assert_eq!(device.queue_kind(2), None);
    assert_eq!(device.queue_kind(64), None);
    let mut data = [0; 512];
    device.read(QueueChoice::Cpu(0), 0, &mut data).unwrap();
    for cpu in [1, 2, 63, 64, u32::MAX] {
        assert!(
            matches!(device.read(QueueChoice::Cpu(cpu), 0, &mut data), Err(OpError::WrongQueue { .. })),
            "{cpu}"
        );
    }
    device.read_async(QueueChoice::Cpu(1), 0, 1, 1).unwrap();
    for cpu in [0, 2, 63, 64, u32::MAX] {
        assert!(
            matches!(device.read_async(QueueChoice::Cpu(cpu), 0, 1, 2), Err(OpError::WrongQueue { .. })),
            "{cpu}"
        );
    }
    books.wait_for(1);
    assert_eq!(books.take(1).status, Status::SUCCESS);
}

#[test]
fn a_device_without_synchronous_queues_runs_blocking_operations_all_the_same() {
    for masks in [POLLED, Masks(1, 0, 1, 8)] {
        let (_session, device, books) = blocks(masks);
        device.write_async(AUTO, 0, &[3; 512], 1).unwrap();
        device.write(AUTO, 1, &[4; 512]).unwrap();
        let mut data = [0; 512];
        device.read(AUTO, 1, &mut data).unwrap();
        assert_eq!(data, [4; 512]);
        // A blocking operation does not call the handler for others.
        if masks.2 == 0 {
            assert_eq!(books.len(), 0);
            assert_eq!(device.unfinished(), 1);
            assert_eq!(device.process_completions(Some(1)), 0);
            assert_eq!(device.process_completions(Some(0)), 1);
            assert_eq!(device.process_completions(None), 0);
        }
        books.wait_for(1);
        assert_eq!(books.take(1).status, Status::SUCCESS);
    }
}

#[test]
fn a_device_without_asynchronous_queues_runs_asynchronous_operations_all_the_same() {
    let (session, device, books) = blocks(Masks(1, 1, 0, 8));
    device.write_async(AUTO, 0, &[3; 512], 1).unwrap();
    while device.process_completions(None) == 0 {}
    assert_eq!(books.take(1).status, Status::SUCCESS);
    device.write_async(AUTO, 0, &[3; 512], 2).unwrap();
    session.close().unwrap();
    assert_eq!(books.take(2).status, Status::SUCCESS);
}

#[test]
fn a_device_that_was_given_no_masks_has_queues_of_both_kinds() {
    let (session, device, books) = start(config("mem:block:64M", SsdType::Lba, Masks(0, 0, 0, 0)));
    device.write(AUTO, 0, &[1; 512]).unwrap();
    device.read_async(AUTO, 0, 1, 1).unwrap();
    books.wait_for(1);
    let placed = &session.config().devices[0];
    assert_ne!(placed.core_mask, 0);
    assert_ne!(placed.cq_thread_mask, 0);
    assert_eq!(placed.queue_depth, 32);
    // On a single CPU both kinds are on it, which the masks cannot say.
    if Placement::for_this_process(&session.config().devices).cpus.len() > 1 {
        assert_ne!(placed.core_mask, placed.sync_mask);
    }
    assert_eq!(device.queue_depth(), 32);
}

#[test]
fn a_device_says_how_large_it_is_and_how_much_of_it_is_used() {
    let (_session, device, _) = blocks(BOTH);
    assert_eq!((device.sector_bytes(), device.sectors(), device.total_bytes()), (512, 131_072, 64 << 20));
    let before = device.used().unwrap();
    device.write(AUTO, 0, &vec![7; 2 << 20]).unwrap();
    assert_eq!(device.used().unwrap() - before, 2 << 20);
    device.format(true).unwrap();
    assert_eq!(device.used().unwrap(), 0);
    let mut data = [1; 512];
    device.read(AUTO, 0, &mut data).unwrap();
    assert_eq!(data, [0; 512]);
}

#[test]
fn a_log_page_that_is_not_there_leaves_the_buffer_as_it_is() {
    let (_session, device, _) = blocks(BOTH);
    let mut smart = [0xee; 512];
    device.log_page(0x02, &mut smart).unwrap();
    // Composite temperature in Kelvin, bytes 2:1: above the freezing point of water.
    assert!(u16::from_le_bytes([smart[1], smart[2]]) > 273, "{:?}", &smart[..4]);
    let mut data = [0xee; 512];
    assert!(matches!(device.log_page(0xc5, &mut data), Err(OpError::Status(_))));
    assert_eq!(data, [0xee; 512]);
    for bytes in [0, 1, 510] {
        assert!(matches!(device.log_page(0x02, &mut data[..bytes]), Err(OpError::Argument(_))), "{bytes}");
    }
}

#[test]
fn a_raw_command_moves_data_the_way_its_opcode_says() {
    let (_session, device, _) = blocks(BOTH);
    // Identify Controller: opcode 06h, CNS 01h. The model number is at byte 24.
    let mut data = vec![0; 4096];
    let identify = unvme::Sqe { opcode: 0x06, cdw10: 1, ..unvme::Sqe::default() };
    let outcome = device.raw_admin(identify, &mut data).unwrap();
    assert_eq!(outcome.status, Status::SUCCESS);
    assert!(device.device().identity().model.starts_with(std::str::from_utf8(&data[24..28]).unwrap()));
    // Write 01h and Read 02h of block 3; the number of blocks is zero-based.
    let write = unvme::Sqe { opcode: 0x01, nsid: 1, cdw10: 3, cdw12: 0, ..unvme::Sqe::default() };
    let mut data = [0x77; 512];
    assert_eq!(device.raw_io(AUTO, write, &mut data).unwrap().status, Status::SUCCESS);
    let read = unvme::Sqe { opcode: 0x02, ..write };
    let mut data = [0; 512];
    assert_eq!(device.raw_io(AUTO, read, &mut data).unwrap().status, Status::SUCCESS);
    assert_eq!(data, [0x77; 512]);
    let unknown = unvme::Sqe { opcode: 0x7f, nsid: 1, ..unvme::Sqe::default() };
    assert_eq!(device.raw_io(AUTO, unknown, &mut []).unwrap().status.kind(), Status::INVALID_OPCODE);
}
