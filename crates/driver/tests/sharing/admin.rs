//! What clients and holder see of each other.

use std::collections::BTreeSet;

use unvme_bus::function::DmaAddressing;
use unvme_bus::{Dma, DmaAccess, Region};
use unvme_driver::{Error, QueueOptions, SHARES_MAX};
use unvme_spec::admin::{Command, QueuePriority, SetFeatures, opcode};
use unvme_spec::feature::{Arbitration, fid};
use unvme_spec::{Cid, Qid, Sqe, Status};

use crate::rig::{Rig, block_queue, read, write};

#[test]
fn a_client_reads_what_the_holder_wrote_and_the_other_way_round() {
    let rig = Rig::in_one_thread();
    let (mut own, _) = block_queue(&rig.holder, &QueueOptions::default());
    let client = rig.client();
    let (mut queue, _) = block_queue(&client, &QueueOptions::default());
    write(&rig.holder, &mut own, 0, 0x11, 4096);
    assert_eq!(read(&client, &mut queue, 0, 4096), [0x11; 4096]);
    // Long enough for a PRP list, which is in the client's memory too.
    write(&client, &mut queue, 100, 0x22, 128 << 10);
    assert!(read(&rig.holder, &mut own, 100, 128 << 10).iter().all(|&byte| byte == 0x22));
}

#[test]
fn queue_identifiers_are_those_of_the_drive_and_nobody_gets_one_twice() {
    let rig = Rig::in_one_thread();
    let clients: Vec<_> = (0..3).map(|_| rig.client()).collect();
    let mut ids = BTreeSet::new();
    let mut queues = Vec::new();
    for _ in 0..4 {
        for controller in clients.iter().chain([&rig.holder]) {
            let queue = controller.create_queue(&QueueOptions::default()).expect("a queue");
            assert!(ids.insert(queue.id()), "{:?} twice", queue.id());
            queues.push(queue);
        }
    }
    assert_eq!(ids, (1..=16).map(Qid).collect());
    queues.clear();
    let again = clients[1].create_queue(&QueueOptions::default()).expect("identifiers are free again");
    assert_eq!(again.id(), Qid(1));
}

#[test]
fn when_all_queues_of_the_drive_are_in_use_a_client_is_told_so() {
    let rig = Rig::in_one_thread();
    let client = rig.client();
    let options = QueueOptions { depth: 4, ..QueueOptions::default() };
    let most = rig.holder.queues_max();
    assert_eq!(client.queues_max(), most, "the client knows of all");
    let mut taken: Vec<_> =
        (1..most).map(|_| rig.holder.create_queue(&options).expect("the holder's")).collect();
    let last = client.create_queue(&options).expect("one is left");
    assert!(matches!(client.create_queue(&options), Err(Error::Exhausted(_))));
    drop((last, taken.pop()));
    let both = [client.create_queue(&options), client.create_queue(&options)];
    assert!(both.iter().all(Result::is_ok));
}

#[test]
fn a_client_that_goes_leaves_nothing_on_the_drive() {
    let rig = Rig::in_one_thread();
    let (mut own, _) = block_queue(&rig.holder, &QueueOptions::default());
    for round in 0..100u8 {
        let client = rig.client();
        let mut queues: Vec<_> = (0..3).map(|_| block_queue(&client, &QueueOptions::default()).0).collect();
        assert_eq!(queues.iter().map(unvme_driver::Queue::id).collect::<Vec<_>>(), [Qid(2), Qid(3), Qid(4)]);
        write(&client, &mut queues[0], 8, round, 512);
        if round % 2 == 0 {
            // Without a word: the function goes while its queues are there and have commands.
            let function = client.function().unwrap().clone();
            function.reset().expect("reset");
        }
        drop((queues, client));
        assert_eq!(read(&rig.holder, &mut own, 8, 512), [round; 512]);
    }
    assert_eq!(rig.holder.epoch(), 1, "the drive was never reset for it");
}

#[test]
fn a_client_that_resets_its_controller_ends_its_own_commands_only() {
    let rig = Rig::in_one_thread();
    let (mut own, _) = block_queue(&rig.holder, &QueueOptions::default());
    let client = rig.client();
    let (mut queue, _) = block_queue(&client, &QueueOptions::default());
    write(&client, &mut queue, 0, 7, 512);
    client.reset().expect("reset");
    assert_eq!(client.epoch(), 2);
    assert_eq!(rig.holder.epoch(), 1);
    assert_eq!(read(&client, &mut queue, 0, 512), [7; 512], "its queue is there again");
    assert_eq!(queue.id(), Qid(2));
    assert_eq!(read(&rig.holder, &mut own, 0, 512), [7; 512]);
}

#[test]
fn when_the_holder_resets_the_drive_its_clients_are_gone() {
    let rig = Rig::in_one_thread();
    let client = rig.client();
    let (mut queue, _) = block_queue(&client, &QueueOptions::default());
    rig.holder.reset().expect("reset");
    assert!(client.function().unwrap().is_gone());
    let identify = client.identify_controller().map(|_| ());
    assert!(matches!(identify, Err(Error::Gone { .. })), "{identify:?}");
    assert!(queue.wait(std::time::Duration::from_secs(1)).is_err() || queue.outstanding() == 0);
    let next = rig.client();
    let (mut queue_of_next, _) = block_queue(&next, &QueueOptions::default());
    write(&next, &mut queue_of_next, 0, 9, 512);
}

#[test]
fn the_drive_arbitrates_between_the_queues_of_all() {
    let rig = Rig::in_one_thread();
    let client = rig.client();
    let of = |class| QueueOptions { depth: 8, priority: Some(class), ..QueueOptions::default() };
    assert!(rig.holder.is_weighted() && client.is_weighted());
    let (mut low, _) = block_queue(&rig.holder, &of(QueuePriority::Low));
    let (mut high, _) = block_queue(&client, &of(QueuePriority::High));
    let (mut plain, _) = block_queue(&client, &QueueOptions::default());
    for (controller, queue) in [(&rig.holder, &mut low), (&client, &mut high), (&client, &mut plain)] {
        write(controller, queue, 8, 0x17, 512);
        assert_eq!(read(controller, queue, 8, 512), [0x17; 512]);
    }
    // What one sets all have, and the holder has it again after a reset.
    let weights = Arbitration::from_bits(0x0705_0102);
    client.set_arbitration(weights).expect("set");
    assert_eq!(rig.holder.arbitration().expect("get"), weights);
    rig.holder.reset().expect("reset");
    assert_eq!(rig.holder.arbitration().expect("get"), weights);
    // A client that is reset alone changes nothing.
    let client = rig.client();
    client.set_arbitration(Arbitration::from_bits(0x0101_0102)).expect("set");
    rig.holder.set_arbitration(weights).expect("set");
    client.reset().expect("reset");
    assert_eq!(client.arbitration().expect("get"), weights);
}

#[test]
fn each_client_has_addresses_of_its_own_and_is_refused_others() {
    let rig = Rig::in_one_thread();
    let functions: Vec<_> = (0..SHARES_MAX).map(|_| rig.sharing.share().expect("a place")).collect();
    let refused = rig.sharing.share().map(|_| ());
    assert!(matches!(refused, Err(Error::Exhausted(_))), "{refused:?}");
    let mut windows: Vec<_> = functions
        .iter()
        .map(|function| match function.dma_addressing() {
            DmaAddressing::Chosen(window) => (window.start, window.end),
            DmaAddressing::Physical => panic!("addresses are chosen"),
        })
        .collect();
    windows.sort_unstable();
    assert!(windows.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{windows:x?}");
    assert!(windows.iter().all(|(start, end)| end - start >= 1 << 30), "{windows:x?}");

    let page = Region::shared("client", 4096).expect("memory");
    let (start, end) = (windows[0].0, windows[0].1);
    let first = functions.iter().find(|f| f.dma_addressing() == DmaAddressing::Chosen(start..end));
    let first = first.expect("whose it is");
    for iova in [0, 1 << 32, start - 4096, end, end - 2048, u64::MAX - 4095] {
        let refused = first.dma_map(iova, &page, DmaAccess::READ_WRITE).expect_err("outside");
        assert!(refused.to_string().contains("outside the addresses"), "{refused}");
    }
    first.dma_map(start, &page, DmaAccess::READ_WRITE).expect("its own");
    assert!(first.dma_map(start, &page, DmaAccess::READ_WRITE).is_err(), "twice");
    first.dma_unmap(start, 4096).expect("unmap");
}

#[test]
fn features_that_others_rely_on_are_not_changed_by_a_client() {
    let rig = Rig::in_one_thread();
    let client = rig.client();
    for fid in [fid::INTERRUPT_COALESCING, fid::HOST_MEMORY_BUFFER, fid::KEEP_ALIVE_TIMER] {
        let command = Command::SetFeatures(SetFeatures { fid, cdw11: 1, ..SetFeatures::default() });
        let completion = client.admin(command.encode(), None).expect("answered");
        assert_eq!(completion.status.kind(), Status::FEATURE_NOT_CHANGEABLE, "{fid:#x}");
    }
    let profile = SetFeatures { fid: fid::IO_COMMAND_SET_PROFILE, cdw11: 77, ..SetFeatures::default() };
    let completion = client.admin(Command::SetFeatures(profile).encode(), None).expect("answered");
    assert_eq!(completion.status.kind(), Status::FEATURE_NOT_CHANGEABLE);
    for opcode in [opcode::DOORBELL_BUFFER_CONFIG, opcode::VIRTUALIZATION_MANAGEMENT] {
        let completion = client.admin(Sqe { opcode, ..Sqe::default() }, None).expect("answered");
        assert_eq!(completion.status.kind(), Status::INVALID_OPCODE, "{opcode:#x}");
    }
}

#[test]
fn an_abort_reaches_the_clients_own_queues_only() {
    let rig = Rig::in_one_thread();
    let (own, _) = block_queue(&rig.holder, &QueueOptions::default());
    let client = rig.client();
    for sqid in [Qid::ADMIN, own.id(), Qid(60)] {
        let completion =
            client.admin(Command::Abort { sqid, cid: Cid(0x1000) }.encode(), None).expect("answered");
        assert_eq!((completion.status, completion.result), (Status::SUCCESS, 1), "not aborted: {sqid}");
    }
}

#[test]
fn the_queues_of_others_cannot_be_deleted() {
    let rig = Rig::in_one_thread();
    let (mut own, _) = block_queue(&rig.holder, &QueueOptions::default());
    let client = rig.client();
    for command in [Command::DeleteIoSq { qid: own.id() }, Command::DeleteIoCq { qid: own.id() }] {
        let completion = client.admin(command.encode(), None).expect("answered");
        assert_eq!(completion.status.kind(), Status::INVALID_QUEUE_IDENTIFIER);
    }
    write(&rig.holder, &mut own, 0, 1, 512);
}

#[test]
fn an_event_of_the_drive_reaches_the_holder_and_every_client() {
    let rig = Rig::in_one_thread();
    let clients = [rig.client(), rig.client()];
    // A temperature threshold below the temperature is a critical warning.
    let cold = SetFeatures { fid: fid::TEMPERATURE_THRESHOLD, cdw11: 1, ..SetFeatures::default() };
    let completion = clients[0].admin(Command::SetFeatures(cold).encode(), None).expect("answered");
    assert!(completion.status.is_success(), "{}", completion.status);
    for controller in clients.iter().chain([&rig.holder]) {
        let seen = (0..1000).any(|_| {
            rig.clock.advance(std::time::Duration::from_millis(1));
            for client in &clients {
                client.function().unwrap().advance(None, &rig.clock);
            }
            !controller.poll_events().expect("events").is_empty()
        });
        assert!(seen, "an event");
    }
}
