//! Connections that are lost, and what becomes of the commands on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use unvme_driver::{Controller, ControllerOptions, Error, QueueOptions, Reconnect};
use unvme_spec::Status;

use crate::target::{Next, Scripted};
use crate::{PATIENCE, all, next, options, queue, read, write};

/// A target that closes the connection over the first command with `opcode`.
fn closes_over(opcode: u8) -> Scripted {
    Scripted::start(move |peer, capsule| {
        if peer.qid > 0 && peer.association == 1 && capsule.opcode() == opcode {
            Next::Close
        } else {
            Next::Honest
        }
    })
}

#[test]
fn a_read_is_sent_again_when_the_connection_is_lost() {
    let target = closes_over(2);
    let controller = target.open();
    let mut queue = queue(&controller);
    read(&controller, &mut queue, 5, 4096);
    let (completion, errors) = next(&mut queue);
    assert!(completion.status.is_success() && errors.is_empty(), "{errors:?}");
    assert_eq!((all(&completion), completion.token), (Some(5 ^ 0xa5), 5));
    assert_eq!((target.associations(), controller.epoch()), (2, 2));
}

#[test]
fn a_write_that_may_have_been_executed_is_not_sent_again() {
    let target = closes_over(1);
    let controller = target.open();
    let mut queue = queue(&controller);
    write(&controller, &mut queue, 5, 4096);
    let (completion, errors) = next(&mut queue);
    assert_eq!((completion.status, errors.len()), (Status::ABORTED_BY_HOST, 0));
    assert_eq!(all(&completion), Some(5), "the buffer comes back as it was");
    write(&controller, &mut queue, 6, 4096);
    assert!(next(&mut queue).0.status.is_success());
}

#[test]
fn a_connection_lost_amid_data_gives_no_half_read_buffer_back() {
    let target = Scripted::start(|peer, capsule| {
        if peer.qid > 0 && peer.association == 1 && capsule.opcode() == 2 {
            let answer = peer.data(capsule.cid(), 12, 0, &vec![0x11; capsule.bytes() as usize]);
            peer.send(&answer[..answer.len() / 2]);
            return Next::Close;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = queue(&controller);
    for bytes in [4096, 1 << 20] {
        read(&controller, &mut queue, 5, bytes);
        let (completion, _) = next(&mut queue);
        assert!(completion.status.is_success());
        assert_eq!(all(&completion), Some(5 ^ 0xa5));
    }
}

#[test]
fn commands_are_held_while_there_is_no_connection_and_sent_when_it_is_back() {
    let target = Scripted::start(|_, _| Next::Honest);
    let controller = target.open();
    let mut queue = controller.create_queue(&options(4)).expect("a queue");
    target.cut(true);
    let started = Instant::now();
    while controller.keep_alive().is_ok_and(|wait| wait == Duration::MAX) {
        // It notices when somebody looks.
        let _ = controller.poll_events();
        assert!(started.elapsed() < PATIENCE, "the loss is not noticed");
    }
    for block in 0..4 {
        write(&controller, &mut queue, block, 512);
    }
    let buf = controller.alloc(512).expect("a buffer");
    let payload = Some(unvme_driver::Payload::whole(buf));
    let full = queue.submit(crate::sqe(1, 9), payload, 9).expect_err("four are held");
    assert!(matches!(full.error, Error::Full { capacity: 4 }) && full.buf.is_some());
    assert!(!queue.wait(Duration::from_millis(30)).expect("nothing is wrong yet"));
    target.come_back();
    for _ in 0..4 {
        let (completion, errors) = next(&mut queue);
        assert!(completion.status.is_success() && errors.is_empty(), "{errors:?}");
    }
}

#[test]
fn a_target_that_does_not_come_back_is_given_up_in_time() {
    let target = Scripted::start(|_, capsule| if capsule.opcode() == 1 { Next::Done } else { Next::Honest });
    let mut options = target.target();
    options.reconnect = Reconnect { give_up_after: Duration::from_millis(200), ..options.reconnect };
    let controller = Controller::open_tcp(options, ControllerOptions::default()).expect("open");
    let mut queue = queue(&controller);
    write(&controller, &mut queue, 1, 512);
    target.cut(true);
    read(&controller, &mut queue, 2, 512);
    let started = Instant::now();
    for _ in 0..2 {
        let (completion, _) = next(&mut queue);
        assert_eq!(completion.status, Status::ABORTED_BY_HOST);
        assert!(completion.buf.is_some());
    }
    assert!(started.elapsed() < PATIENCE);
    let gone = queue.submit(crate::sqe(2, 9), None, 9).expect_err("gone");
    assert!(matches!(gone.error, Error::Gone { .. }), "{gone}");
    assert!(matches!(queue.wait(Duration::ZERO), Err(Error::Gone { .. })));
    assert!(matches!(controller.identify_controller(), Err(Error::Gone { .. })));
    assert!(matches!(controller.keep_alive(), Err(Error::Gone { .. })));
    target.come_back();
    controller.reset().expect("a reset tries once more");
    read(&controller, &mut queue, 3, 512);
    assert!(next(&mut queue).0.status.is_success());
}

#[test]
fn a_queue_that_is_not_granted_any_more_is_gone_and_the_others_are_not() {
    let target = Scripted::start(|_, _| Next::Honest);
    let controller = target.open();
    let (mut first, mut second) = (queue(&controller), queue(&controller));
    target.grant(1);
    target.cut(false);
    read(&controller, &mut second, 2, 512);
    let (completion, _) = next(&mut second);
    assert_eq!(completion.status, Status::ABORTED_BY_HOST);
    let gone = second.submit(crate::sqe(2, 9), None, 9).expect_err("gone");
    assert!(gone.to_string().contains("grants 1 I/O queues"), "{gone}");
    read(&controller, &mut first, 3, 512);
    assert!(next(&mut first).0.status.is_success());
}

#[test]
fn a_lost_admin_connection_takes_the_queues_with_it_and_identify_is_sent_again() {
    let target = Scripted::start(|peer, capsule| {
        // Identify of a namespace, which bring-up does not ask for.
        let is_it = peer.association == 1 && capsule.opcode() == 6 && capsule.dword(10) == 0;
        if is_it { Next::Close } else { Next::Honest }
    });
    let controller = target.open();
    let mut queue = queue(&controller);
    controller.identify_namespace(unvme_spec::Nsid(1)).expect("the second time");
    assert_eq!(target.associations(), 2);
    read(&controller, &mut queue, 3, 512);
    assert!(next(&mut queue).0.status.is_success());
}

#[test]
fn a_reset_ends_everything_that_is_outstanding() {
    let target = Scripted::start(|peer, capsule| {
        if peer.association == 1 && peer.qid > 0 && capsule.opcode() == 2 { Next::Done } else { Next::Honest }
    });
    let controller = target.open();
    let mut queue = queue(&controller);
    read(&controller, &mut queue, 1, 512);
    controller.reset().expect("reset");
    assert_eq!(next(&mut queue).0.status, Status::ABORTED_BY_HOST);
    read(&controller, &mut queue, 2, 512);
    assert!(next(&mut queue).0.status.is_success());
}

#[test]
fn a_command_without_an_answer_is_aborted_and_then_the_association_is_made_anew() {
    let aborts = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&aborts);
    let target = Scripted::start(move |peer, capsule| {
        if peer.qid == 0 && capsule.opcode() == 8 {
            seen.fetch_add(1, Ordering::SeqCst);
        }
        if peer.association == 1 && peer.qid > 0 && capsule.opcode() == 2 { Next::Done } else { Next::Honest }
    });
    let controller = target.open();
    let mut queue = controller
        .create_queue(&QueueOptions {
            command_timeout: Duration::from_secs(1),
            abort_grace: Duration::from_secs(1),
            ..options(4)
        })
        .expect("a queue");
    read(&controller, &mut queue, 1, 512);
    let (completion, errors) = next(&mut queue);
    assert_eq!(completion.status, Status::ABORTED_BY_HOST);
    assert!(matches!(errors[..], [Error::Timeout { .. }]) || errors.is_empty(), "{errors:?}");
    assert_eq!(aborts.load(Ordering::SeqCst), 1);
    assert_eq!(target.associations(), 2);
}

#[test]
fn a_target_that_answers_no_keep_alive_is_lost() {
    let target = Scripted::start(|peer, capsule| {
        if peer.association == 1 && capsule.opcode() == 0x18 { Next::Done } else { Next::Honest }
    });
    let mut silent = target.target();
    silent.keep_alive = Duration::from_secs(1);
    let controller = Controller::open_tcp(silent, ControllerOptions::default()).expect("open");
    let started = Instant::now();
    while target.associations() == 1 {
        let wait = controller.keep_alive().expect("not given up");
        assert!(wait <= Duration::from_secs(1));
        std::thread::sleep(wait);
        assert!(started.elapsed() < PATIENCE, "the silence is not noticed");
    }
    assert!(started.elapsed() >= Duration::from_secs(1));
}
