//! Connections that are lost, and what becomes of the commands on them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use unvme_driver::{Controller, ControllerOptions, Error, Payload, QueueOptions, Reconnect};
use unvme_spec::{Fuse, Sqe, Status};

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

/// A target that keeps the I/O commands of its first association until `count` have come, then closes; later
/// ones succeed, and so does Verify (0Ch) at once. Every other command is noted with its data and its
/// association.
fn forgets(count: usize) -> (Scripted, Seen) {
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    let target = Scripted::start(move |peer, capsule| {
        if peer.qid == 0 || capsule.opcode() == 0x7f {
            return Next::Honest;
        }
        if capsule.opcode() == 0x0c {
            let answer = peer.response(capsule.cid(), 0, 0);
            peer.send(&answer);
            return Next::Done;
        }
        // Bits 1:0 of the opcode: data for the controller.
        let brings_data = capsule.opcode() & 3 == 1;
        let data = if brings_data { peer.fetch(capsule).unwrap_or_default() } else { Vec::new() };
        let mut seen = noted.lock().unwrap();
        seen.push((peer.association, capsule.opcode(), capsule.dword(10), data));
        match peer.association {
            1 if seen.len() == count => Next::Close,
            1 => Next::Done,
            _ => {
                let answer = peer.response(capsule.cid(), 0, 0);
                peer.send(&answer);
                Next::Done
            }
        }
    });
    (target, seen)
}

/// Association, opcode, dword 10 and data of each command.
type Seen = Arc<Mutex<Vec<(u32, u8, u32, Vec<u8>)>>>;

#[test]
fn writes_are_sent_again_with_their_data_in_the_order_of_their_submission() {
    let (target, seen) = forgets(6);
    let controller = target.open();
    let mut queue = queue(&controller);
    for token in 30..33 {
        // Freed in the order of their submission, and used again in reverse: the order of the slots is not
        // that of the commands.
        queue.submit(crate::sqe(0x0c, token), None, token.into()).expect("submit");
    }
    queue.ring().expect("ring");
    for _ in 0..3 {
        assert!(next(&mut queue).0.status.is_success());
    }
    for block in [9, 3, 7] {
        write(&controller, &mut queue, block, 512);
    }
    // Write Zeroes, Flush.
    for opcode in [0x08, 0x00] {
        queue.submit(crate::sqe(opcode, 20), None, 20).expect("submit");
    }
    // The last one: its data is asked for.
    write(&controller, &mut queue, 1, 64 << 10);
    for _ in 0..6 {
        let (completion, errors) = next(&mut queue);
        assert!(completion.status.is_success() && errors.is_empty(), "{completion:?}, {errors:?}");
        if completion.token < 20 {
            assert_eq!(all(&completion), Some(completion.token as u8), "the buffer comes back as it was");
        }
    }
    let seen = seen.lock().unwrap();
    let (first, second) = seen.split_at(6);
    assert!(first.iter().all(|it| it.0 == 1) && second.iter().all(|it| it.0 == 2));
    let commands = |of: &[(u32, u8, u32, Vec<u8>)]| of.iter().map(|it| (it.1, it.2)).collect::<Vec<_>>();
    assert_eq!(commands(second), [(1, 9), (1, 3), (1, 7), (8, 20), (0, 20), (1, 1)]);
    for (_, _, block, data) in second.iter().filter(|it| it.1 == 1) {
        let bytes = if *block == 1 { 64 << 10 } else { 512 };
        assert!(data.len() == bytes && data.iter().all(|byte| *byte == *block as u8), "block {block}");
    }
}

#[test]
fn what_cannot_be_executed_twice_ends_when_the_connection_is_lost() {
    let (target, seen) = forgets(7);
    let controller = target.open();
    let mut queue = queue(&controller);
    // Compare and Write, fused: bits 9:8 of the first dword.
    for (opcode, fuse) in [(0x05, 1), (0x01, 2)] {
        let mut sqe = crate::sqe(opcode, 4);
        sqe.set_fuse(if fuse == 1 { Fuse::First } else { Fuse::Second });
        let payload = Payload::whole(controller.alloc(512).expect("a buffer"));
        queue.submit(sqe, Some(payload), 4).expect("submit");
    }
    // Copy, Delete of a key, Append, a store that must not find the key, and one of a raw entry.
    for (opcode, option) in [(0x19, 0), (0x10, 0), (0x83, 0), (0x01, 2), (0x81, 2)] {
        let sqe = Sqe { cdw11: option << 8 | 4, ..crate::sqe(opcode, 5) };
        let payload = (opcode & 3 == 1).then(|| Payload::whole(controller.alloc(512).expect("a buffer")));
        queue.submit(sqe, payload, 5).expect("submit");
    }
    queue.ring().expect("ring");
    for _ in 0..7 {
        assert_eq!(next(&mut queue).0.status, Status::ABORTED_BY_HOST);
    }
    write(&controller, &mut queue, 6, 512);
    assert!(next(&mut queue).0.status.is_success());
    let again: Vec<_> = seen.lock().unwrap().iter().filter(|it| it.0 > 1).map(|it| it.2).collect();
    assert_eq!(again, [6], "only what came later");
}

#[test]
fn a_command_is_sent_again_for_as_long_as_the_target_comes_back_up_to_a_limit() {
    let target = Scripted::start(|peer, capsule| {
        let closes = peer.qid > 0 && capsule.opcode() == 1 && peer.association <= 8;
        if closes { Next::Close } else { Next::Honest }
    });
    let controller = target.open();
    let mut queue = queue(&controller);
    write(&controller, &mut queue, 5, 512);
    assert!(next(&mut queue).0.status.is_success(), "eight times");
    assert_eq!(target.associations(), 9);
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
    let payload = Some(Payload::whole(buf));
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
