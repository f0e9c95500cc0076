use std::sync::atomic::Ordering;

use unvme_driver::{
    CompletionMode, Controller, ControllerOptions, Error, Namespace, Payload, Queue, QueueOptions,
};
use unvme_spec::admin::QueuePriority;
use unvme_spec::feature::Arbitration;
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::{Lba, Nsid, Qid, Status, admin};

use crate::rig::{PATIENCE, Transport, block_queue, filled, run, small};

fn depth(depth: u16) -> QueueOptions {
    QueueOptions { depth, ..QueueOptions::default() }
}

/// Keeps a queue full with reads of blocks that hold their own number; every token comes back exactly once,
/// with the data of its block.
fn read_all(controller: &Controller, queue: &mut Queue, namespace: &Namespace, commands: u64) {
    let blocks = 64;
    let mut bufs: Vec<_> = (0..queue.capacity()).map(|_| controller.alloc(512).unwrap()).collect();
    let mut seen = vec![false; commands as usize];
    let mut submitted = 0;
    let mut completed = 0;
    while completed < commands {
        while submitted < commands
            && let Some(buf) = bufs.pop()
        {
            let range = BlockRange::new(Lba(submitted % blocks), 1);
            let read = namespace.read(range, AccessFlags::default()).unwrap();
            queue.submit(read, Some(Payload::whole(buf)), submitted).unwrap();
            submitted += 1;
        }
        assert!(queue.wait(PATIENCE).unwrap(), "{completed} of {commands} completed, no more");
        for completion in queue.poll(17) {
            assert_eq!(completion.status, Status::SUCCESS);
            let buf = completion.buf.unwrap();
            assert_eq!(buf.to_vec(), [(completion.token % blocks) as u8; 512]);
            assert!(!std::mem::replace(&mut seen[completion.token as usize], true), "a token came twice");
            bufs.push(buf);
            completed += 1;
        }
    }
    assert_eq!(queue.outstanding(), 0);
}

fn number_blocks(controller: &Controller, queue: &mut Queue, namespace: &Namespace) {
    let data: Vec<u8> = (0..64u8).flat_map(|block| [block; 512]).collect();
    let write = namespace.write(BlockRange::new(Lba(0), 64), AccessFlags::default()).unwrap();
    let status = run(queue, write, Some(Payload::whole(filled(controller, &data)))).status;
    assert_eq!(status, Status::SUCCESS);
}

pub(crate) fn a_queue_survives_many_laps(transport: Transport) {
    let rig = transport(small());
    for queue_depth in [1, 2, 3, 31, 32] {
        let (controller, mut queue, namespace) = block_queue(&rig, &depth(queue_depth));
        number_blocks(&controller, &mut queue, &namespace);
        // Far more than 16 uses of each slot: the count of reuse in command identifiers wraps, too.
        read_all(&controller, &mut queue, &namespace, u64::from(queue_depth) * 50 + 7);
    }
}

pub(crate) fn a_full_queue_gives_the_buffer_back_and_goes_on(transport: Transport) {
    let rig = transport(small());
    let (controller, mut queue, namespace) = block_queue(&rig, &depth(4));
    for token in 0..4 {
        queue.submit(namespace.flush(), None, token).unwrap();
    }
    assert_eq!((queue.outstanding(), queue.capacity()), (4, 4));
    let read = namespace.read(BlockRange::new(Lba(0), 1), AccessFlags::default()).unwrap();
    let buf = filled(&controller, &[9; 512]);
    let rejected = queue.submit(read, Some(Payload::whole(buf)), 4).unwrap_err();
    assert!(matches!(rejected.error, Error::Full { capacity: 4 }), "{rejected}");
    let buf = rejected.buf.expect("the buffer comes back");
    assert_eq!(buf.to_vec(), [9; 512]);
    assert!(queue.wait(PATIENCE).unwrap());
    // Which one comes first is the device's affair.
    let mut tokens: Vec<u64> = queue.poll(1).map(|completion| completion.token).collect();
    assert_eq!(tokens.len(), 1);
    queue.submit(read, Some(Payload::whole(buf)), 4).unwrap();
    while queue.outstanding() > 0 {
        assert!(queue.wait(PATIENCE).unwrap());
        tokens.extend(queue.poll(usize::MAX).map(|completion| completion.token));
    }
    tokens.sort_unstable();
    assert_eq!(tokens, [0, 1, 2, 3, 4]);
}

pub(crate) fn the_smallest_and_the_largest_queue_work(transport: Transport) {
    let rig = transport(small());
    let (controller, mut queue, namespace) = block_queue(&rig, &depth(4095));
    number_blocks(&controller, &mut queue, &namespace);
    read_all(&controller, &mut queue, &namespace, 9000);
    drop(queue);
    let mut queue = controller.create_queue(&depth(1)).unwrap();
    read_all(&controller, &mut queue, &namespace, 40);
    for bad in [0, 4096, u16::MAX] {
        let error = controller.create_queue(&depth(bad)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
}

pub(crate) fn many_queues_serve_many_threads(transport: Transport) {
    let rig = transport(small());
    let (controller, mut first, namespace) = block_queue(&rig, &depth(8));
    number_blocks(&controller, &mut first, &namespace);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut queue = controller.create_queue(&depth(8)).unwrap();
                read_all(&controller, &mut queue, &namespace, 500);
            });
        }
        // Admin commands from two threads at the same time.
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(controller.active_namespaces().unwrap(), [Nsid(1)]);
                }
            });
        }
    });
    read_all(&controller, &mut first, &namespace, 100);
}

pub(crate) fn queue_identifiers_are_used_again(transport: Transport) {
    let rig = transport(small());
    let controller = rig.open();
    let make = || controller.create_queue(&depth(8)).unwrap();
    let (first, second, third) = (make(), make(), make());
    assert_eq!([first.id(), second.id(), third.id()], [Qid(1), Qid(2), Qid(3)]);
    drop(second);
    assert_eq!(make().id(), Qid(2));
    drop(third);
    drop(first);
    for _ in 0..100 {
        assert_eq!(make().id(), Qid(1));
    }
}

pub(crate) fn queues_are_of_classes_or_an_error_says_why_not(transport: Transport) {
    let rig = transport(small());
    let of = |class| QueueOptions { priority: Some(class), ..depth(8) };
    let refused = |controller: &Controller, why: &str| {
        assert!(!controller.is_weighted());
        let error = controller.create_queue(&of(QueuePriority::High)).unwrap_err().to_string();
        assert!(error.contains("needs weighted round robin") && error.contains(why), "{error}");
        // Nothing is lost with it.
        assert_eq!(controller.create_queue(&depth(8)).unwrap().id(), Qid(1));
    };
    let controller = rig.open();
    if !rig.has_function() {
        return refused(&controller, if rig.is_on_network() { "network" } else { "kernel" });
    }
    assert!(controller.is_weighted());
    let alike = Arbitration::from_bits(0x0505_0502);
    controller.set_arbitration(alike).unwrap();
    let mut plain = controller.create_queue(&depth(8)).unwrap();
    assert_eq!(controller.arbitration().unwrap(), alike);
    let classes = [QueuePriority::Urgent, QueuePriority::High, QueuePriority::Medium, QueuePriority::Low];
    let mut queues = classes.map(|class| controller.create_queue(&of(class)).unwrap());
    // They differ from now on, and the burst is as it was.
    let differing = Arbitration::from_bits(0x0f03_0002);
    assert_eq!(controller.arbitration().unwrap(), differing);
    let namespace = Namespace::open(&controller, Nsid(1)).unwrap();
    number_blocks(&controller, &mut plain, &namespace);
    std::thread::scope(|scope| {
        for queue in queues.iter_mut().chain([&mut plain]) {
            scope.spawn(|| read_all(&controller, queue, &namespace, 300));
        }
    });
    // Weights that somebody has chosen stay, over a reset as well, after which the queues are what they were.
    let chosen = Arbitration::from_bits(0x0201_0003);
    controller.set_arbitration(chosen).unwrap();
    controller.reset().unwrap();
    let low = controller.create_queue(&of(QueuePriority::Low)).unwrap();
    assert_eq!(controller.arbitration().unwrap(), chosen);
    for queue in queues.iter_mut().chain([&mut plain]) {
        read_all(&controller, queue, &namespace, 50);
    }
    drop((queues, plain, low, controller));
    let rig = transport(small());
    let without = ControllerOptions { weighted_round_robin: false, ..rig.options() };
    refused(&rig.try_open(without).unwrap(), "opened without it");
}

pub(crate) fn queues_and_vectors_run_out_with_an_error_that_says_so(transport: Transport) {
    let mut config = small();
    config.io_queues = 3;
    let rig = transport(config);
    let controller = rig.open();
    assert_eq!(controller.queues_max(), 3);
    let interrupt = QueueOptions { mode: CompletionMode::Interrupt, ..depth(8) };
    let queues: Vec<_> = (0..3).map(|_| controller.create_queue(&interrupt).unwrap()).collect();
    let error = controller.create_queue(&depth(8)).unwrap_err();
    assert_eq!(error.to_string(), "all 3 I/O queue pairs of the controller are in use");
    drop(queues);
    controller.create_queue(&interrupt).unwrap();
    drop(controller);
    if rig.is_remote() {
        // The number of vectors was asked for when the client attached.
        return;
    }
    rig.saboteur.vectors_max.store(2, Ordering::Relaxed);
    let controller = rig.open();
    let first = controller.create_queue(&interrupt).unwrap();
    let error = controller.create_queue(&interrupt).unwrap_err();
    assert_eq!(
        error.to_string(),
        "all 2 interrupt vectors of the function are in use; a queue in poll mode needs none"
    );
    controller.create_queue(&depth(8)).unwrap();
    drop(first);
    controller.create_queue(&interrupt).unwrap();
}

pub(crate) fn the_device_refuses_to_delete_a_completion_queue_in_use(transport: Transport) {
    let rig = transport(small());
    let (controller, mut queue, namespace) = block_queue(&rig, &depth(8));
    let delete = |command: admin::Command| controller.admin(command.encode(), None).unwrap().status.kind();
    let qid = queue.id();
    assert_eq!(delete(admin::Command::DeleteIoCq { qid }), Status::INVALID_QUEUE_DELETION);
    assert_eq!(delete(admin::Command::DeleteIoSq { qid: Qid(9) }), Status::INVALID_QUEUE_IDENTIFIER);
    assert_eq!(run(&mut queue, namespace.flush(), None).status, Status::SUCCESS);
    // Behind the queue's back; dropping it afterwards is no error.
    assert_eq!(delete(admin::Command::DeleteIoSq { qid }), Status::SUCCESS);
    assert_eq!(delete(admin::Command::DeleteIoCq { qid }), Status::SUCCESS);
    drop(queue);
    assert_eq!(controller.create_queue(&depth(8)).unwrap().id(), qid);
}

pub(crate) fn dropping_a_queue_with_commands_outstanding_ends_them(transport: Transport) {
    let rig = transport(small());
    let (controller, mut queue, namespace) = block_queue(&rig, &depth(64));
    for token in 0..64 {
        let read = namespace.read(BlockRange::new(Lba(token), 8), AccessFlags::default()).unwrap();
        let buf = controller.alloc(4096).unwrap();
        queue.submit(read, Some(Payload::whole(buf)), token).unwrap();
    }
    queue.ring().unwrap();
    drop(queue);
    let mut queue = controller.create_queue(&depth(64)).unwrap();
    assert_eq!(run(&mut queue, namespace.flush(), None).status, Status::SUCCESS);
    assert_eq!(controller.epoch(), 1, "no reset was needed");
}
