use unvme_driver::{DataPointers, DmaBuf, Error, Payload, QueueOptions};
use unvme_spec::nvm::{AccessFlags, BlockRange, Command};
use unvme_spec::{Lba, Nsid, Status, admin};
use unvme_ssd::SsdConfig;

use crate::model::Random;
use crate::rig::{Transport, block_queue, filled, next, run, small};

const BLOCK: usize = 512;

fn range(start: u64, blocks: u32) -> BlockRange {
    BlockRange::new(Lba(start), blocks)
}

pub(crate) fn random_commands_leave_what_a_model_has(transport: Transport) {
    const BLOCKS: u64 = 8192;
    let rig = transport(small());
    let (controller, mut queue, namespace) = block_queue(&rig, &QueueOptions::default());
    let mut random = Random::seeded();
    let mut model = vec![0u8; BLOCKS as usize * BLOCK];
    for step in 0..600 {
        let longest = if random.below(8) == 0 { 700 } else { 24 };
        let blocks = 1 + random.below(longest) as u32;
        let start = random.below(BLOCKS - u64::from(blocks) + 1);
        let range = range(start, blocks);
        let bytes = namespace.bytes(range);
        let place = start as usize * BLOCK..start as usize * BLOCK + bytes;
        let flags = if random.below(4) == 0 { AccessFlags::FUA } else { AccessFlags::default() };
        let what = random.below(8);
        let (sqe, payload) = match what {
            0 | 1 => {
                let data = random.bytes(bytes);
                model[place.clone()].copy_from_slice(&data);
                (namespace.write(range, flags).unwrap(), Some(Payload::whole(filled(&controller, &data))))
            }
            2..=4 => {
                let buf = controller.alloc(bytes).unwrap();
                (namespace.read(range, flags).unwrap(), Some(Payload::whole(buf)))
            }
            5 => {
                let buf = filled(&controller, &model[place.clone()]);
                (namespace.compare(range, flags).unwrap(), Some(Payload::whole(buf)))
            }
            6 => {
                model[place.clone()].fill(0);
                if random.below(2) == 0 {
                    (namespace.write_zeroes(range, flags, random.below(2) == 0).unwrap(), None)
                } else {
                    let mut buf = controller.alloc(4096).unwrap();
                    let (sqe, bytes) = namespace.deallocate(&[range], &mut buf).unwrap();
                    (sqe, Some(Payload { buf, bytes }))
                }
            }
            _ if random.below(2) == 0 => (namespace.verify(range, flags).unwrap(), None),
            _ => (namespace.flush(), None),
        };
        let completion = run(&mut queue, sqe, payload);
        assert_eq!(completion.status, Status::SUCCESS, "step {step}, command {what}, {range:?}");
        if (2..=4).contains(&what) {
            assert!(completion.buf.unwrap().to_vec() == model[place], "step {step}: {range:?} differs");
        }
    }
}

pub(crate) fn every_length_up_to_the_limit_comes_back_as_it_was_written(transport: Transport) {
    let rig = transport(small());
    // Over a network data has no addresses.
    let data_pointers = if rig.is_on_network() { DataPointers::Sgl } else { DataPointers::Prp };
    let options = QueueOptions { data_pointers, ..QueueOptions::default() };
    let (controller, mut queue, namespace) = block_queue(&rig, &options);
    let mut random = Random::seeded();
    assert_eq!(namespace.transfer_blocks_max(), 4096);
    // Around one page, two pages (no list), a list, and the longest transfer.
    for blocks in [1, 7, 8, 9, 15, 16, 17, 24, 25, 255, 256, 1000, 4095, 4096] {
        let range = range(5, blocks);
        let data = random.bytes(namespace.bytes(range));
        let write = namespace.write(range, AccessFlags::default()).unwrap();
        let written = run(&mut queue, write, Some(Payload::whole(filled(&controller, &data))));
        assert_eq!(written.status, Status::SUCCESS, "write {blocks} blocks");
        let mut buf = written.buf.unwrap();
        buf.fill(0xa5);
        let read = namespace.read(range, AccessFlags::default()).unwrap();
        let completion = run(&mut queue, read, Some(Payload::whole(buf)));
        assert_eq!(completion.status, Status::SUCCESS, "read {blocks} blocks");
        assert!(completion.buf.unwrap().to_vec() == data, "{blocks} blocks differ");
    }
}

pub(crate) fn sgl_and_prp_queues_see_the_same_data(transport: Transport) {
    let rig = transport(small());
    let prp = QueueOptions { data_pointers: DataPointers::Prp, ..QueueOptions::default() };
    let sgl = QueueOptions { data_pointers: DataPointers::Sgl, ..QueueOptions::default() };
    let (controller, mut prp, namespace) = block_queue(&rig, &prp);
    let mut sgl = controller.create_queue(&sgl).unwrap();
    let mut auto = controller.create_queue(&QueueOptions::default()).unwrap();
    let mut random = Random::seeded();
    for blocks in [1, 8, 16, 17, 400] {
        let range = range(100, blocks);
        let data = random.bytes(namespace.bytes(range));
        let write = namespace.write(range, AccessFlags::default()).unwrap();
        let written = run(&mut sgl, write, Some(Payload::whole(filled(&controller, &data))));
        assert_eq!(written.status, Status::SUCCESS);
        for queue in [&mut prp, &mut sgl, &mut auto] {
            let read = namespace.read(range, AccessFlags::default()).unwrap();
            let buf = controller.alloc(data.len()).unwrap();
            let completion = run(queue, read, Some(Payload::whole(buf)));
            assert_eq!(completion.status, Status::SUCCESS);
            assert!(completion.buf.unwrap().to_vec() == data, "{blocks} blocks differ");
        }
    }
}

pub(crate) fn a_transfer_beyond_its_buffer_or_the_limit_is_refused_with_the_buffer(transport: Transport) {
    let rig = transport(small());
    let (controller, mut queue, namespace) = block_queue(&rig, &QueueOptions::default());
    let read = namespace.read(range(0, 8), AccessFlags::default()).unwrap();
    let buf = controller.alloc(512).unwrap();
    let rejected = queue.submit(read, Some(Payload { buf, bytes: 4096 }), 1).unwrap_err();
    assert!(matches!(rejected.error, Error::InvalidArgument(_)), "{rejected}");
    assert_eq!(rejected.buf.unwrap().len(), 512);
    let buf = controller.alloc((2 << 20) + 4096).unwrap();
    let rejected = queue.submit(read, Some(Payload::whole(buf)), 1).unwrap_err();
    assert!(rejected.to_string().contains("limit of 2097152 bytes"), "{rejected}");
    assert_eq!(queue.outstanding(), 0);
    assert_eq!(run(&mut queue, namespace.flush(), None).status, Status::SUCCESS);
}

pub(crate) fn a_buffer_of_another_controller_is_refused_and_comes_back(transport: Transport) {
    let (rig, other_rig) = (transport(small()), transport(small()));
    let (controller, mut queue, namespace) = block_queue(&rig, &QueueOptions::default());
    let other = other_rig.open();
    // A victim in the memory of this controller, at the address the other one knows its buffer by.
    let (mut victims, mut strangers) = (Vec::new(), Vec::new());
    let (victim, stranger) = loop {
        victims.push(filled(&controller, &[7; 512]));
        strangers.push(filled(&other, &[9; 512]));
        let address = |buf: &DmaBuf| strangers.iter().position(|stranger| stranger.iova() == buf.iova());
        if let Some((at, stranger_at)) =
            victims.iter().enumerate().find_map(|(at, victim)| Some((at, address(victim)?)))
        {
            break (victims.swap_remove(at), strangers.swap_remove(stranger_at));
        }
    };
    let read = namespace.read(range(0, 1), AccessFlags::default()).unwrap();
    let rejected = queue.submit(read, Some(Payload::whole(stranger)), 1).unwrap_err();
    assert!(matches!(rejected.error, Error::InvalidArgument(_)), "{rejected}");
    assert!(rejected.to_string().contains("belongs to another controller"), "{rejected}");
    let stranger = rejected.buf.expect("the buffer comes back");
    assert_eq!((stranger.pool(), stranger.to_vec()), (other.pool().id(), vec![9; 512]));
    assert_eq!((queue.outstanding(), victim.to_vec()), (0, vec![7; 512]));

    let sqe = admin::Command::Identify(admin::Identify { cns: 1, ..Default::default() }).encode();
    let error = controller.admin(sqe, Some(Payload::whole(stranger))).unwrap_err();
    assert!(error.to_string().contains("belongs to another controller"), "{error}");
    assert_eq!(run(&mut queue, read, Some(Payload::whole(victim))).status, Status::SUCCESS);
}

pub(crate) fn commands_beyond_the_namespace_are_refused_before_they_are_sent(transport: Transport) {
    let rig = transport(small());
    let (_controller, _queue, namespace) = block_queue(&rig, &QueueOptions::default());
    let flags = AccessFlags::default();
    let end = namespace.blocks();
    namespace.read(range(end - 1, 1), flags).unwrap();
    for bad in [range(end, 1), range(end - 1, 2), range(u64::MAX, 1), range(0, 0), range(0, 4097)] {
        for refused in
            [namespace.read(bad, flags), namespace.write(bad, flags), namespace.compare(bad, flags)]
        {
            assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{bad:?}");
        }
    }
    let error = namespace.write_zeroes(range(end, 1), flags, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "1 blocks from block {end} of namespace 1: it has {end} blocks, and this command takes 1 to 65536"
        )
    );
    assert_eq!(namespace.range_of_bytes(1024, 4096).unwrap(), range(2, 8));
    for (offset, bytes) in [(1, 512), (512, 511), (0, 65537 * 512)] {
        assert!(namespace.range_of_bytes(offset, bytes).is_err(), "{bytes} bytes at {offset}");
    }
}

pub(crate) fn an_error_status_reaches_the_caller_whole(transport: Transport) {
    let rig = transport(small());
    let (controller, mut queue, namespace) = block_queue(&rig, &QueueOptions::default());
    // Past the driver's own check.
    let sqe = Command::Read(range(namespace.blocks(), 1), AccessFlags::default()).encode(Nsid(1));
    let completion = run(&mut queue, sqe, Some(Payload::whole(controller.alloc(512).unwrap())));
    assert_eq!(completion.status.kind(), Status::LBA_OUT_OF_RANGE);
    assert!(completion.status.do_not_retry(), "{}", completion.status);
    assert_eq!(completion.buf.unwrap().len(), 512);
    let sqe = Command::Flush.encode(Nsid(1000));
    assert_eq!(run(&mut queue, sqe, None).status.kind(), Status::INVALID_NAMESPACE_OR_FORMAT);
    let write = namespace.write_uncorrectable(range(9, 1)).unwrap();
    assert_eq!(run(&mut queue, write, None).status, Status::SUCCESS);
    let read = namespace.read(range(8, 4), AccessFlags::default()).unwrap();
    let completion = run(&mut queue, read, Some(Payload::whole(controller.alloc(2048).unwrap())));
    assert_eq!(completion.status.kind(), Status::UNRECOVERED_READ_ERROR);
}

pub(crate) fn a_fused_compare_and_write_writes_only_after_an_equal_compare(transport: Transport) {
    let rig = transport(SsdConfig::block(8 << 20, 4096));
    let (controller, mut queue, namespace) = block_queue(&rig, &QueueOptions::default());
    let one = range(3, 1);
    let mut try_swap = |from: u8, to: u8| {
        let [compare, write] = namespace.compare_and_write(one, AccessFlags::default()).unwrap();
        for (token, sqe, fill) in [(1, compare, from), (2, write, to)] {
            let buf = filled(&controller, &[fill; 4096]);
            queue.submit(sqe, Some(Payload::whole(buf)), token).unwrap();
        }
        let (first, second) = (next(&mut queue), next(&mut queue));
        assert_eq!((first.token, second.token), (1, 2));
        (first.status.kind(), second.status.kind())
    };
    assert_eq!(try_swap(0, 1), (Status::SUCCESS, Status::SUCCESS));
    assert_eq!(try_swap(0, 2), (Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED));
    assert_eq!(try_swap(1, 3), (Status::SUCCESS, Status::SUCCESS));
    let read = namespace.read(one, AccessFlags::default()).unwrap();
    let completion = run(&mut queue, read, Some(Payload::whole(controller.alloc(4096).unwrap())));
    assert_eq!(completion.buf.unwrap().to_vec(), [3; 4096]);
}
