//! How commands and completions travel, with a target that keeps to the rules.

use std::time::Duration;

use unvme_driver::{CompletionMode, DataPointers, Error, QueueOptions};

use crate::target::{Next, Scripted};
use crate::{all, next, options, read};

#[test]
fn what_a_capsule_says_is_what_the_specification_says() {
    let target = Scripted::start(|peer, capsule| {
        if peer.qid > 0 && matches!(capsule.opcode(), 1 | 2) {
            // PSDT 01b; an SGL of one descriptor: in-capsule data is a Data Block with an offset (01h), other
            // data a Transport SGL Data Block (5Ah).
            assert_eq!(capsule.sqe[1], 0x40);
            let identifier = if capsule.opcode() == 1 && capsule.bytes() <= 4096 { 0x01 } else { 0x5a };
            assert_eq!(capsule.sqe[24..32], [0; 8]);
            assert_eq!(capsule.sqe[36..40], [0, 0, 0, identifier]);
            assert_eq!(capsule.data.len() as u32, if identifier == 1 { capsule.bytes() } else { 0 });
        }
        if capsule.opcode() == 0x7f && capsule.sqe[4] == 1 {
            // Connect: 1024 bytes of data, queue, SQSIZE, no flow control.
            assert_eq!((capsule.data.len(), capsule.sqe[39]), (1024, 0x01));
            let (qid, entries_z) = (peer.qid, capsule.dword(11) as u16);
            assert_eq!(entries_z, if qid == 0 { 31 } else { 16 });
            assert_eq!(capsule.sqe[46] & 4, 4);
            let cntlid = u16::from_le_bytes([capsule.data[16], capsule.data[17]]);
            assert_eq!(cntlid, if qid == 0 { 0xffff } else { 1 });
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = controller.create_queue(&options(16)).expect("a queue");
    for bytes in [512, 4096, 8192] {
        crate::write(&controller, &mut queue, 1, bytes);
        assert!(next(&mut queue).0.status.is_success());
        read(&controller, &mut queue, 1, bytes);
        assert!(next(&mut queue).0.status.is_success());
    }
}

#[test]
fn a_sleeper_wakes_up_in_every_mode() {
    let target = Scripted::start(|peer, capsule| {
        if peer.qid > 0 && capsule.opcode() == 2 {
            std::thread::sleep(Duration::from_millis(20));
        }
        Next::Honest
    });
    let controller = target.open();
    for mode in [CompletionMode::Poll, CompletionMode::Interrupt, CompletionMode::Hybrid] {
        let mut queue = controller.create_queue(&QueueOptions { mode, ..options(8) }).expect("a queue");
        assert_eq!(queue.interrupt().is_some(), mode != CompletionMode::Poll);
        read(&controller, &mut queue, 3, 512);
        if let Some(event) = queue.interrupt().cloned() {
            assert!(event.wait(Duration::from_secs(10)).expect("waited"), "the completion wakes it");
        }
        assert!(queue.wait(Duration::from_secs(10)).expect("wait"));
        let completion = queue.poll(8).next().expect("wait has seen it");
        assert_eq!(all(&completion), Some(3 ^ 0xa5));
        assert!(!queue.wait(Duration::from_secs(10)).expect("nothing is outstanding"));
    }
}

#[test]
fn what_a_queue_cannot_be_is_refused() {
    let target = Scripted::start(|_, _| Next::Honest);
    let controller = target.open();
    for depth in [0, 128] {
        let error = controller.create_queue(&options(depth)).expect_err("1 to 127");
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
    let prp = QueueOptions { data_pointers: DataPointers::Prp, ..options(4) };
    assert!(matches!(controller.create_queue(&prp), Err(Error::Unsupported(_))));
    let all: Vec<_> = (0..4).map(|_| controller.create_queue(&options(4)).expect("a queue")).collect();
    assert!(matches!(controller.create_queue(&options(4)), Err(Error::Exhausted(_))));
    drop(all);
    controller.create_queue(&options(4)).expect("identifiers are free again");
}
