//! The vendor's Batch command: its data is put together by hand from the open host code's description of it.

mod host;

use host::blocks::SOURCE;
use host::pairs::{BatchPart, VENDOR_BATCH, batch_data, vendor};
use host::{Host, sqe};
use unvme_spec::{Cqe, Sqe, Status};

fn execute(host: &mut Host, count: u32, data: &[u8]) -> Cqe {
    let batch = host.with_value(sqe(VENDOR_BATCH, 1), data);
    host.execute(1, Sqe { cdw10: data.len().div_ceil(4) as u32, cdw11: count, ..batch })
}

fn batch(host: &mut Host, commands: &[BatchPart<'_>]) -> (Status, u64) {
    let cqe = execute(host, commands.len() as u32, &batch_data(commands));
    (cqe.status().kind(), cqe.result())
}

#[test]
fn eight_commands_are_executed_in_order() {
    let mut host = Host::with_pairs();
    let large = host::blocks::pattern(1, 8192);
    let done = batch(
        &mut host,
        &[
            (0x81, 0, 0, b"key1", b"one"),
            (0x81, 1, 0, b"key1", b"elsewhere"),
            (0x81, 0, 0, b"key2", &large),
            (0x81, 0, 0, b"key1", b"replaced"),
            (0xa1, 0, 0, b"key2", b""),
            (0x81, 0, 1, b"compressed", &[7; 4096]),
            (0x81, 0, 0, &[9; 255], b""),
            (0x81, 0, 0, b"key3", &large),
        ],
    );
    assert_eq!(done, (Status::SUCCESS, 0));
    assert_eq!(host.vendor_value(0, b"key1"), Ok(b"replaced".to_vec()));
    assert_eq!(host.vendor_value(1, b"key1"), Ok(b"elsewhere".to_vec()));
    assert_eq!(host.vendor_exist(0, b"key2"), Err(vendor(0x10)));
    assert_eq!(host.vendor_value(0, b"compressed"), Ok(vec![7; 4096]));
    assert_eq!(host.vendor_value(0, &[9; 255]), Ok(vec![]));
    assert!(host.vendor_value(0, b"key3") == Ok(large));
}

#[test]
fn each_command_has_a_result_of_its_own_and_the_first_failure_is_the_status() {
    let mut host = Host::with_pairs();
    host.vendor_store(0x81, 0, b"there", b"v", 0).unwrap();
    let results = batch(
        &mut host,
        &[
            (0x81, 0, 2, b"there", b"x"),  // idempotent, and the key exists: 9
            (0x81, 0, 8, b"absent", b"x"), // update only, and it does not: A
            (0x81, 2, 0, b"keys", b"x"),   // no such keyspace: 5
            (0x81, 0, 0, b"key", b"x"),    // three bytes: 2
            (0x90, 0, 0, b"keys", b""),    // Retrieve: 3
            (0x81, 0, 16, b"keys", b"x"),  // no such option: 4
            (0xa1, 0, 1, b"absent", b""),  // checked, and the key does not exist: 6
            (0x81, 0, 0, b"last", b"stored"),
        ],
    );
    assert_eq!(results, (vendor(0x80), 0x0643_25a9));
    assert_eq!(host.vendor_value(0, b"there"), Ok(b"v".to_vec()));
    assert_eq!(host.vendor_value(0, b"last"), Ok(b"stored".to_vec()));
    assert_eq!(host.vendor_exist(0, b"keys"), Err(vendor(0x10)));
    assert_eq!(batch(&mut host, &[(0xa0, 0, 2, b"keys", b"")]), (vendor(0x04), 0x4));
    assert_eq!(batch(&mut host, &[(0xa0, 0, 1, b"last", b"")]), (Status::SUCCESS, 0));
}

#[test]
fn a_batch_that_is_not_whole_fails_before_anything_is_executed() {
    let mut host = Host::with_pairs();
    let good = batch_data(&[(0x81, 0, 0, b"key1", b"one"), (0x81, 0, 0, b"key2", b"two")]);
    for count in [0, 9, 255] {
        assert_eq!(
            execute(&mut host, count, &good).status().kind(),
            Status::INVALID_FIELD,
            "{count} commands"
        );
    }
    // Cut off within the second command, within the head, and with a value longer than the data.
    let mut long = good.clone();
    long[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
    for data in [&good[..832], &good[..508], &good[..0], &long[..]] {
        assert_eq!(execute(&mut host, 2, data).status().kind(), vendor(0x01), "{} bytes", data.len());
    }
    assert_eq!(host.vendor_exist(0, b"key1"), Err(vendor(0x10)));
    let huge = Sqe { cdw10: 524_289, cdw11: 1, ..sqe(VENDOR_BATCH, 1) };
    assert_eq!(host.io(huge), Err(vendor(0x01)));
    let nowhere = Sqe { dptr: [0x10_0000_0000, 0], cdw10: 160, cdw11: 1, ..sqe(VENDOR_BATCH, 1) };
    assert_eq!(host.io(nowhere), Err(Status::DATA_TRANSFER_ERROR));
}

#[test]
fn the_data_of_a_batch_may_start_anywhere_in_a_page() {
    let mut host = Host::with_pairs();
    let value = host::blocks::pattern(3, 9000);
    let data = batch_data(&[(0x81, 0, 0, b"key1", &value), (0x81, 0, 0, b"key2", &value[..100])]);
    host.memory.write(SOURCE + 3000, &data);
    let mut batch = sqe(VENDOR_BATCH, 1);
    host.set_prps(&mut batch, SOURCE + 3000, data.len());
    assert_eq!(host.io(Sqe { cdw10: (data.len() / 4) as u32, cdw11: 2, ..batch }), Ok(0));
    assert!(host.vendor_value(0, b"key1") == Ok(value.clone()));
    assert!(host.vendor_value(0, b"key2") == Ok(value[..100].to_vec()));
}
