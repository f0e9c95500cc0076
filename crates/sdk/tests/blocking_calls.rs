//! The calls that wait, against a model: a vector of bytes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use unvme::registry::{BlockBytes, DeviceSpec};
use unvme::{
    AccessFlags, Block, BlockRange, Device, Error, EventFd, Lba, Nsid, Op, OpenOptions, QueueOptions,
    Registry, ServeOptions, Size, Status, open, serve,
};

const BLOCKS: u64 = 4096;

fn device(name: &str) -> Device {
    open(name, &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn block(device: &Device) -> Block {
    device.block(Nsid(1)).unwrap_or_else(|e| panic!("{e}"))
}

/// Something to do to a range of blocks.
#[derive(Clone, Debug)]
enum Step {
    Read(u64, u64),
    Write(u64, u64, u8),
    WriteThrough(u64, u64, u8),
    Zero(u64, u64, bool),
    Deallocate(Vec<(u64, u64)>),
    Compare(u64, u64, bool),
    Verify(u64, u64),
    Flush,
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    // Mostly short, sometimes longer than any one command takes.
    (0..BLOCKS, prop_oneof![4 => 1..64u64, 1 => 1..BLOCKS])
        .prop_map(|(start, blocks)| (start, blocks.min(BLOCKS - start)))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => range().prop_map(|(s, n)| Step::Read(s, n)),
        4 => (range(), any::<u8>()).prop_map(|((s, n), v)| Step::Write(s, n, v)),
        1 => (range(), any::<u8>()).prop_map(|((s, n), v)| Step::WriteThrough(s, n, v)),
        1 => (range(), any::<bool>()).prop_map(|((s, n), d)| Step::Zero(s, n, d)),
        1 => prop::collection::vec(range(), 1..300).prop_map(Step::Deallocate),
        2 => (range(), any::<bool>()).prop_map(|((s, n), equal)| Step::Compare(s, n, equal)),
        1 => range().prop_map(|(s, n)| Step::Verify(s, n)),
        1 => Just(Step::Flush),
    ]
}

/// A buffer that differs from byte to byte and from `value` to `value`.
fn bytes(value: u8, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ value).collect()
}

fn apply(block: &mut Block, model: &mut [u8], step: &Step) -> Result<(), TestCaseError> {
    let size = block.block_bytes() as usize;
    let place = |start: u64, blocks: u64| start as usize * size..(start + blocks) as usize * size;
    let failed = |e: Error| TestCaseError::fail(e.to_string());
    match step {
        Step::Read(start, blocks) => {
            let mut out = vec![0xaa; *blocks as usize * size];
            block.read_at(*start, &mut out).map_err(failed)?;
            prop_assert!(out == model[place(*start, *blocks)], "{step:?}");
        }
        Step::Write(start, blocks, value) => {
            let data = bytes(*value, *blocks as usize * size);
            block.write_at(*start, &data).map_err(failed)?;
            model[place(*start, *blocks)].copy_from_slice(&data);
        }
        Step::WriteThrough(start, blocks, value) => {
            let data = bytes(*value, *blocks as usize * size);
            block.write_through_at(*start, &data).map_err(failed)?;
            model[place(*start, *blocks)].copy_from_slice(&data);
        }
        Step::Zero(start, blocks, deallocate) => {
            block.write_zeroes(*start, *blocks, *deallocate).map_err(failed)?;
            model[place(*start, *blocks)].fill(0);
        }
        Step::Deallocate(ranges) => {
            block.deallocate(ranges).map_err(failed)?;
            // The device says in DLFEAT that deallocated blocks read as zeroes.
            ranges.iter().for_each(|(start, blocks)| model[place(*start, *blocks)].fill(0));
        }
        Step::Compare(start, blocks, equal) => {
            let mut data = model[place(*start, *blocks)].to_vec();
            if *equal {
                block.compare(*start, &data).map_err(failed)?;
            } else {
                let last = data.len() - 1;
                data[last] ^= 0x80;
                let status = block.compare(*start, &data).err().and_then(|e| e.status());
                prop_assert_eq!(status.map(Status::kind), Some(Status::COMPARE_FAILURE));
            }
        }
        Step::Verify(start, blocks) => block.verify(*start, *blocks).map_err(failed)?,
        Step::Flush => block.flush().map_err(failed)?,
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_namespace_behaves_like_a_vector_of_bytes(
        name in prop_oneof![Just("mem:block:2M"), Just("mem:block:16M,block=4096")],
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let device = device(name);
        let mut block = block(&device);
        prop_assert_eq!(block.blocks(), BLOCKS);
        let mut model = vec![0; block.bytes() as usize];
        for step in &steps {
            apply(&mut block, &mut model, step)?;
        }
        let mut all = vec![0xaa; model.len()];
        block.read_at(0, &mut all).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert!(all == model);
    }
}

#[test]
fn the_callers_mistakes_are_told_and_touch_nothing() {
    let device = device("mem:block:2M");
    let mut block = block(&device);
    block.write_at(0, &bytes(1, 4096)).expect("write");
    let refused = |e: Result<(), Error>, part: &str| match e {
        Err(Error::Argument(message)) => assert!(message.contains(part), "{message}"),
        other => panic!("{other:?}"),
    };
    refused(block.write_at(0, &[0; 700]), "write 700 bytes: whole blocks of 512 bytes are expected");
    refused(
        block.write_at(4095, &[0; 1024]),
        "write 2 blocks from block 4095: the namespace has 4096 blocks",
    );
    refused(block.read_at(u64::MAX, &mut [0; 512]), "the namespace has 4096 blocks");
    refused(block.write_zeroes(0, 0, false), "write zeroes to 0 blocks");
    refused(block.write_zeroes(1, u64::MAX, false), "the namespace has 4096 blocks");
    refused(block.verify(4096, 1), "verify 1 blocks from block 4096");
    refused(block.deallocate(&[(0, 8), (4090, 8)]), "deallocate 8 blocks from block 4090");
    block.read_at(4096, &mut []).expect("nothing is at the end, as with any slice");
    block.deallocate(&[]).expect("no ranges, nothing to do");
    let mut data = vec![0; 4096];
    block.read_at(0, &mut data).expect("read");
    assert_eq!(data, bytes(1, 4096));
    match device.block(Nsid(7)) {
        Err(Error::Argument(message)) => {
            assert_eq!(message, "mem:block:2M: there is no namespace 7; attached namespaces are 1");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_blocks_that_failed_are_named_and_the_next_call_works() {
    let device = device("mem:block:16M");
    let mut block = block(&device);
    let mut queue = block.queue(&QueueOptions::default()).expect("queue");
    // 20000 is in the 40th piece of 512 blocks: several commands are behind it.
    queue.submit(Op::WriteUncorrectable(BlockRange::new(Lba(20_000), 1)), None, 1).expect("submit");
    while queue.outstanding() > 0 {
        queue.wait(Duration::from_secs(10)).expect("wait");
        queue.poll(1).for_each(|completion| assert!(completion.status.is_success()));
    }
    let mut data = vec![0; 16 << 20];
    match block.read_at(0, &mut data) {
        Err(Error::Device { what, status }) => {
            assert_eq!(what, "mem:block:16M namespace 1: read 512 blocks from block 19968");
            assert_eq!(status.kind(), Status::UNRECOVERED_READ_ERROR);
        }
        other => panic!("{other:?}"),
    }
    block.write_at(20_000, &[1; 512]).expect("write");
    block.read_at(0, &mut data).expect("read");
    assert_eq!(data[20_000 * 512..][..512], [1; 512]);
}

#[test]
fn buffers_come_back_with_their_completions() {
    let device = device("mem:block:2M");
    let mut queue = block(&device).queue(&QueueOptions { depth: 4, ..Default::default() }).expect("queue");
    let range = BlockRange::new(Lba(8), 8);
    for token in 0..4 {
        let mut buf = queue.alloc(4096).expect("buffer");
        buf.fill(token as u8 + 1);
        queue.write(BlockRange::new(Lba(token * 8), 8), buf, token).expect("submit");
    }
    let spare = queue.alloc(4096).expect("buffer");
    let rejected = queue.read(range, spare, 9).expect_err("the queue is full");
    assert!(matches!(rejected.error, unvme::DriverError::Full { capacity: 4 }));
    let mut spare = rejected.buf.expect("the buffer comes back");
    queue.ring().expect("ring");
    let mut tokens = Vec::new();
    while tokens.len() < 4 {
        queue.wait(Duration::from_secs(10)).expect("wait");
        tokens.extend(queue.poll(16).map(|completion| {
            assert!(completion.status.is_success() && completion.buf.is_some());
            completion.token
        }));
    }
    tokens.sort_unstable();
    assert_eq!(tokens, [0, 1, 2, 3]);
    spare.fill(0);
    queue.submit(Op::Read(range, AccessFlags::default()), Some(spare), 5).expect("submit");
    assert!(queue.wait(Duration::from_secs(10)).expect("wait"));
    let read = queue.poll(1).next().expect("completion").buf.expect("buffer");
    assert_eq!(read.to_vec(), [2; 4096]);

    let rejected = queue.submit(Op::Read(range, AccessFlags::default()), None, 6).expect_err("no buffer");
    assert!(rejected.to_string().contains("moves 4096 bytes and came without a buffer"), "{rejected}");
    let rejected = queue.read(BlockRange::new(Lba(4095), 2), read, 7).expect_err("beyond the end");
    assert!(rejected.buf.is_some());
}

#[test]
fn a_slot_is_shared_by_serving_it_and_locked_while_it_is_open() {
    let home = tempfile::tempdir().expect("temporary folder");
    let registry = Registry::at(home.path());
    let spec = DeviceSpec::block(Size(16 << 20), BlockBytes::B4096, "S1");
    registry.create("01:00.0".parse().expect("address"), &spec).expect("create");
    let options = OpenOptions { registry: Some(registry.clone()), ..Default::default() };
    let first = open("01:00.0", &options).expect("open");
    assert_eq!((first.name(), first.identity().serial.as_str()), ("0000:01:00.0", "S1"));
    assert!(
        matches!(open("01:00.0", &options), Err(Error::InUse { pid, .. }) if pid == Some(std::process::id()))
    );
    let mut kept = block(&first);
    drop(first);
    kept.write_at(0, &bytes(3, 8192)).expect("what was made from a device keeps it open");
    assert!(matches!(open("01:00.0", &options), Err(Error::InUse { .. })));
    drop(kept);

    let stop = EventFd::new().expect("eventfd");
    let ready = AtomicBool::new(false);
    let serving = ServeOptions { registry: Some(registry), ..Default::default() };
    thread::scope(|scope| {
        let server =
            scope.spawn(|| serve("01:00.0", &serving, &stop, |_| ready.store(true, Ordering::Release)));
        while !ready.load(Ordering::Acquire) && !server.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        let device = open("01:00.0", &options).expect("attach");
        assert_eq!(device.transport(), unvme::Transport::VfioUser);
        assert!(device.is_virtual());
        let mut data = vec![0; 8192];
        block(&device).read_at(0, &mut data).expect("read");
        assert_eq!(data, bytes(3, 8192));
        drop(device);
        stop.signal();
        server.join().expect("join").expect("serve");
    });
    assert_eq!(open("01:00.0", &options).expect("open").transport(), unvme::Transport::InProcess);
}
