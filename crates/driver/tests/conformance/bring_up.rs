use std::sync::atomic::Ordering;

use unvme_bus::{DmaAccess, Region};
use unvme_driver::{Controller, ControllerOptions, Error, Namespace, Payload, QueueOptions};
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::regs::version_parts;
use unvme_spec::{Lba, Nsid, Status};

use crate::rig::{Rig, Transport, block_queue, filled, run, small};

pub(crate) fn a_controller_comes_up_and_says_who_it_is(transport: Transport) {
    let rig = transport(small());
    let controller = rig.open();
    let identify = controller.identify_controller().unwrap();
    assert_eq!(&identify.sn, b"UNVME0000000001     ");
    assert_eq!(&identify.mn[..17], b"unvme virtual SSD");
    assert_eq!(version_parts(controller.version()).0, 2);
    assert_eq!(controller.epoch(), 1);
    assert_eq!(controller.queues_max(), 64);
    assert_eq!(controller.queue_depth_max(), 4095);
    assert_eq!(controller.transfer_bytes_max(), 2 << 20);
}

pub(crate) fn a_function_of_another_class_is_refused(transport: Transport) {
    let rig = transport(small());
    rig.saboteur.disguise.store(true, Ordering::Relaxed);
    let error = Controller::open(rig.function.clone(), rig.options()).unwrap_err();
    assert_eq!(error.to_string(), "the function has class code 020000, an NVMe controller has 010802");
}

pub(crate) fn a_controller_that_is_dropped_can_be_opened_again(transport: Transport) {
    let rig = transport(small());
    for round in 0..3u8 {
        let (controller, mut queue, namespace) = block_queue(&rig, &QueueOptions::default());
        let range = BlockRange::new(Lba(0), 1);
        let read = namespace.read(range, Default::default()).unwrap();
        let buf = controller.alloc(512).unwrap();
        let completion = run(&mut queue, read, Some(Payload::whole(buf)));
        // Shutdown keeps what was written by the one before.
        assert_eq!(completion.buf.unwrap().to_vec(), [round; 512]);
        let write = namespace.write(range, AccessFlags::default()).unwrap();
        let status =
            run(&mut queue, write, Some(Payload::whole(filled(&controller, &[round + 1; 512])))).status;
        assert_eq!(status, Status::SUCCESS);
    }
}

pub(crate) fn a_reset_controller_says_who_it_is(transport: Transport) {
    let rig = transport(small());
    let controller = rig.open();
    let before = controller.identify_controller().unwrap();
    for epoch in 2..5 {
        controller.reset().unwrap();
        assert_eq!(controller.epoch(), epoch);
        assert_eq!(controller.identify_controller().unwrap(), before);
    }
}

pub(crate) fn a_subsystem_reset_brings_the_controller_back(transport: Transport) {
    let rig = transport(small());
    let (controller, mut queue, namespace) = block_queue(&rig, &QueueOptions::default());
    if !controller.capabilities().nssrs() {
        let error = controller.subsystem_reset().unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
        return;
    }
    controller.subsystem_reset().unwrap();
    assert_eq!(run(&mut queue, namespace.flush(), None).status, Status::SUCCESS);
    assert_eq!(Namespace::open(&controller, Nsid(1)).unwrap(), namespace);
}

pub(crate) fn the_last_handle_announces_a_shutdown(transport: Transport) {
    let rig = transport(small());
    let (controller, queue, _namespace) = block_queue(&rig, &QueueOptions::default());
    let clone = controller.clone();
    drop(controller);
    drop(clone);
    assert!(!rig.saboteur.shutdown_seen.load(Ordering::Relaxed), "the queue is still there");
    drop(queue);
    assert!(rig.saboteur.shutdown_seen.load(Ordering::Relaxed));
    // Disabled: CC.EN and CSTS.RDY, bit 0 of their bytes.
    for register in [0x14, 0x1c] {
        let mut bytes = [0xff; 4];
        rig.function.bar_read(0, register, &mut bytes).unwrap();
        assert_eq!(bytes[0] & 1, 0, "register {register:#x}");
    }
}

pub(crate) fn options_out_of_range_are_refused(transport: Transport) {
    let rig = transport(small());
    for (transfer_bytes_max, io_queues) in [(4095, 64), (1 << 31, 64), (4096, 0)] {
        let options = ControllerOptions { transfer_bytes_max, io_queues, ..rig.options() };
        let error = rig.try_open(options).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
    let options = ControllerOptions { transfer_bytes_max: 4096, io_queues: 1, ..rig.options() };
    let controller = rig.try_open(options).unwrap();
    assert_eq!((controller.queues_max(), controller.transfer_bytes_max()), (1, 4096));
}

#[test]
fn a_controller_that_was_left_enabled_reaches_no_memory_before_it_has_been_disabled() {
    let rig = Rig::in_process(small());
    let rings = Region::shared("rings", 8192).unwrap();
    rig.function.dma_map(0x7_0000_0000, &rings, DmaAccess::READ_WRITE).unwrap();
    // What a killed process leaves: AQA, ASQ, ACQ, and CC with entries of 64 and 16 bytes and EN.
    rig.function.config_write(4, &[0x02, 0x00]).unwrap();
    rig.function.bar_write(0, 0x24, &0x001f_001fu32.to_le_bytes()).unwrap();
    rig.function.bar_write(0, 0x28, &0x7_0000_0000u64.to_le_bytes()).unwrap();
    rig.function.bar_write(0, 0x30, &0x7_0000_1000u64.to_le_bytes()).unwrap();
    rig.function.bar_write(0, 0x14, &0x0046_0001u32.to_le_bytes()).unwrap();
    rig.function.advance(None, &rig.clock);
    let mut csts = [0; 4];
    rig.function.bar_read(0, 0x1c, &mut csts).unwrap();
    assert_eq!(csts[0] & 1, 1, "CSTS.RDY");
    let controller = rig.open();
    controller.identify_controller().unwrap();
    assert!(!rig.saboteur.mastered_early.load(Ordering::Relaxed));
    let mut command = [0; 2];
    rig.function.config_read(4, &mut command).unwrap();
    assert_eq!(command[0] & 0x06, 0x06, "memory space and bus master");
}

#[test]
fn an_admin_command_does_not_wait_for_a_controller_that_somebody_else_has_reset() {
    let rig = Rig::in_process(small());
    let controller = rig.open();
    rig.function.reset().unwrap();
    let started = rig.clock.now();
    let error = controller.identify_controller().unwrap_err();
    assert_eq!(error.to_string(), "Identify: somebody else has reset the controller");
    // The limit is 60 seconds.
    assert!(rig.clock.now() - started < 2_000_000_000, "{} ns", rig.clock.now() - started);
    assert_eq!(controller.epoch(), 2, "it has been brought up again");
    controller.identify_controller().unwrap();
}
