//! Associations that end and begin anew at moments that are hard to get right.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use unvme_driver::{ClaimKind, CompletionMode, Controller, ControllerOptions, Error, Payload, QueueOptions};
use unvme_spec::{Nsid, Status};

use crate::target::{Capsule, Next, Scripted, identify};
use crate::{PATIENCE, all, next, options, queue, read, write};

#[test]
fn data_that_was_arriving_when_the_connection_was_lost_is_forgotten() {
    let target = Scripted::start(|peer, capsule| {
        if peer.qid > 0 && capsule.opcode() == 0x92 {
            let answer = peer.data(capsule.cid(), 12, 0, &vec![0x11; capsule.bytes() as usize]);
            peer.send(&answer[..answer.len() - 1000]);
            return Next::Done;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = controller.create_queue(&options(1)).expect("queue");
    let buf = controller.alloc(1 << 20).expect("a buffer");
    queue.submit(crate::sqe(0x92, 5), Some(Payload::whole(buf)), 5).expect("submit");
    queue.ring().expect("ring");
    let _ = queue.wait(Duration::from_millis(300));
    target.cut(true);
    assert_eq!(next(&mut queue).0.status, Status::ABORTED_BY_HOST);
    read(&controller, &mut queue, 6, 512);
    assert!(!queue.wait(Duration::from_millis(50)).expect("it waits for the target"));
    target.come_back();
    let (completion, _) = next(&mut queue);
    assert_eq!((completion.status, all(&completion)), (Status::SUCCESS, Some(6 ^ 0xa5)));
}

#[test]
fn who_sleeps_on_the_event_is_waked_when_there_is_room_for_a_long_write() {
    let target = Scripted::start(|peer, capsule| {
        if peer.qid > 0 && capsule.opcode() == 1 {
            let ask = peer.r2t(capsule.cid(), 1, 0, capsule.bytes());
            peer.send(&ask);
            std::thread::sleep(Duration::from_millis(300));
            let mut got = 0;
            while got < capsule.bytes() as usize {
                let Ok((_, data)) = peer.pdu() else { return Next::Close };
                got += data.len();
            }
            let answer = peer.response(capsule.cid(), 0, 0);
            peer.send(&answer);
            return Next::Done;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = controller
        .create_queue(&QueueOptions { mode: CompletionMode::Interrupt, ..options(4) })
        .expect("queue");
    let event = queue.interrupt().cloned().expect("event");
    write(&controller, &mut queue, 1, 64 << 20);
    loop {
        event.drain();
        if let Some(completion) = queue.poll(1).next() {
            assert_eq!(completion.status, Status::SUCCESS);
            return;
        }
        if !event.wait(PATIENCE).expect("wait") {
            panic!("nothing woke the sleeper");
        }
    }
}

#[test]
fn the_event_rests_after_a_reconnection() {
    let target = Scripted::start(|_, _| Next::Honest);
    let controller = target.open();
    let mut queue = controller
        .create_queue(&QueueOptions { mode: CompletionMode::Interrupt, ..options(4) })
        .expect("queue");
    target.cut(false);
    read(&controller, &mut queue, 1, 512);
    let (c, _) = next(&mut queue);
    assert!(c.status.is_success());
    let event = queue.interrupt().cloned().expect("event");
    event.drain();
    assert!(queue.poll(1).next().is_none());
    assert!(!event.wait(Duration::from_millis(200)).expect("wait"), "readable with nothing there");
}

#[test]
fn a_write_that_has_failed_and_is_not_taken_ends_in_time() {
    let target = Scripted::start(|peer, capsule| {
        if peer.association == 1 && peer.qid > 0 && capsule.opcode() == 1 {
            let ask = peer.r2t(capsule.cid(), 1, 0, capsule.bytes());
            peer.send(&ask);
            std::thread::sleep(Duration::from_millis(300));
            let answer = peer.response(capsule.cid(), 0x80, 0);
            peer.send(&answer);
            std::thread::sleep(Duration::from_secs(6));
            return Next::Close;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = controller
        .create_queue(&QueueOptions {
            command_timeout: Duration::from_millis(100),
            abort_grace: Duration::from_millis(1000),
            ..options(4)
        })
        .expect("a queue");
    write(&controller, &mut queue, 1, 64 << 20);
    let started = Instant::now();
    loop {
        if queue.poll(1).next().is_some() {
            assert!(started.elapsed() < PATIENCE);
            return;
        }
        let _ = queue.wait(Duration::from_millis(100));
        assert!(started.elapsed() < PATIENCE, "never ends");
    }
}

#[test]
fn a_target_that_lets_no_queue_in_is_asked_less_and_less_often_and_given_up() {
    let target = Scripted::start(|peer, capsule| {
        if peer.association > 1 && peer.qid > 0
            || (peer.qid > 0
                && capsule.opcode() == 0x7f
                && peer.association == 0
                && GO.load(Ordering::SeqCst) > 0)
        {
            return Next::Close;
        }
        Next::Honest
    });
    static GO: AtomicU32 = AtomicU32::new(0);
    let mut t = target.target();
    t.reconnect.give_up_after = Duration::from_millis(500);
    let controller = Controller::open_tcp(t, ControllerOptions::default()).expect("open");
    let mut queue = queue(&controller);
    GO.store(1, Ordering::SeqCst);
    target.cut(false);
    read(&controller, &mut queue, 1, 512);
    let started = Instant::now();
    let mut ended = None;
    while started.elapsed() < PATIENCE && ended.is_none() {
        ended = queue.poll(1).next();
        let _ = queue.wait(Duration::from_millis(100));
    }
    assert_eq!(ended.map(|completion| completion.status), Some(Status::ABORTED_BY_HOST));
    assert!(target.associations() < 60, "{} associations", target.associations());
}

#[test]
fn data_of_no_bytes_ends_the_connection() {
    let target = Scripted::start(|peer, capsule| {
        if peer.association == 1 && peer.qid > 0 && capsule.opcode() == 2 {
            let one = peer.data(capsule.cid(), 0, 0, &[]);
            let many = one.repeat(100_000);
            let started = Instant::now();
            while started.elapsed() < Duration::from_secs(6) {
                peer.send(&many);
            }
            return Next::Close;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = queue(&controller);
    read(&controller, &mut queue, 1, 64 << 10);
    let started = Instant::now();
    let _ = queue.wait(Duration::from_millis(200));
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn a_queue_whose_controller_has_gone_meanwhile_is_connected_to_the_next() {
    static BAD: AtomicU32 = AtomicU32::new(0);
    let target = Scripted::start(|peer, capsule| {
        if peer.qid > 0 && capsule.opcode() == 0x7f && BAD.load(Ordering::SeqCst) > 0 {
            BAD.fetch_sub(1, Ordering::SeqCst);
            // Connect Invalid Parameters: in data, byte 16.
            let answer = peer.response(capsule.cid(), 0x182, 16 | 1 << 16);
            peer.send(&answer);
            return Next::Close;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = queue(&controller);
    BAD.store(1, Ordering::SeqCst);
    target.cut(false);
    read(&controller, &mut queue, 1, 512);
    let (completion, errors) = next(&mut queue);
    assert!(completion.status.is_success() && errors.is_empty(), "{errors:?}");
}

#[test]
fn who_lets_go_of_a_lost_controller_makes_no_association() {
    let target = Scripted::start(|_, _| Next::Honest);
    let controller = target.open();
    target.cut(false);
    std::thread::sleep(Duration::from_millis(50));
    drop(controller);
    assert_eq!(target.associations(), 1);
}

#[test]
fn an_identify_that_succeeds_without_data_is_an_error() {
    let target = Scripted::start(|peer, capsule| {
        if peer.qid == 0 && capsule.opcode() == 6 && capsule.dword(10) == 0 {
            let answer = peer.response(capsule.cid(), 0, 0);
            peer.send(&answer);
            return Next::Done;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut buf = controller.alloc(4096).expect("buf");
    buf.fill(0x77);
    drop(buf);
    assert!(controller.identify_namespace(Nsid(1)).is_err());
}

#[test]
fn who_lets_go_of_a_silent_controller_waits_for_a_short_time() {
    let target = Scripted::start(|peer, capsule| {
        if peer.association == 1
            && capsule.opcode() == 0x7f
            && capsule.sqe[4] == 0
            && capsule.dword(11) == 0x14
            && capsule.dword(12) & 0xc000 != 0
        {
            return Next::Done;
        }
        Next::Honest
    });
    let controller = target.open();
    let started = Instant::now();
    drop(controller);
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn who_lets_go_of_a_lost_controller_does_not_wait_for_a_silent_target() {
    let target = Scripted::start(|peer, capsule| {
        if peer.association == 0 && GO.load(Ordering::SeqCst) > 0 && capsule.opcode() == 0x7f {
            return Next::Done;
        }
        Next::Honest
    });
    static GO: AtomicU32 = AtomicU32::new(0);
    let controller = target.open();
    GO.store(1, Ordering::SeqCst);
    target.cut(false);
    std::thread::sleep(Duration::from_millis(50));
    let started = Instant::now();
    drop(controller);
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn a_queue_is_polled_while_another_one_reconnects() {
    let target = Scripted::start(|peer, capsule| {
        if peer.association == 0 && GO.load(Ordering::SeqCst) > 0 && capsule.opcode() == 0x7f {
            return Next::Done;
        }
        Next::Honest
    });
    static GO: AtomicU32 = AtomicU32::new(0);
    let controller = target.open();
    let mut a = queue(&controller);
    let mut b = queue(&controller);
    GO.store(1, Ordering::SeqCst);
    target.cut(false);
    std::thread::sleep(Duration::from_millis(50));
    let t = std::thread::spawn(move || {
        let _ = a.wait(Duration::from_millis(10));
        for _ in 0..200 {
            let _ = a.poll(1).next();
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    read(&controller, &mut b, 1, 512);
    let mut worst = Duration::ZERO;
    for _ in 0..200 {
        let one = Instant::now();
        let _ = b.poll(1).next();
        worst = worst.max(one.elapsed());
    }
    t.join().unwrap();
    assert!(worst < PATIENCE);
}

#[test]
fn a_queue_that_is_made_while_the_association_is_lost_gets_it_back() {
    let target = Scripted::start(|_, _| Next::Honest);
    let controller = target.open();
    target.cut(false);
    std::thread::sleep(Duration::from_millis(50));
    let _ = controller.poll_events();
    controller.create_queue(&options(4)).expect("a queue");
    assert_eq!(target.associations(), 2, "a queue of a controller that is gone");
}

#[test]
fn data_of_no_bytes_for_a_short_read_ends_the_connection() {
    let target = Scripted::start(|peer, capsule| {
        if peer.association == 1 && peer.qid > 0 && capsule.opcode() == 2 {
            let one = peer.data(capsule.cid(), 0, 0, &[]);
            let many = one.repeat(400_000);
            let started = Instant::now();
            while started.elapsed() < Duration::from_secs(6) {
                peer.send(&many);
            }
            return Next::Close;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = queue(&controller);
    read(&controller, &mut queue, 1, 512);
    let started = Instant::now();
    let _ = queue.wait(Duration::from_millis(200));
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn an_admin_command_whose_caller_was_told_that_it_failed_is_never_sent() {
    static FORMATS: AtomicU32 = AtomicU32::new(0);
    let target = Scripted::start(|peer, capsule| {
        if peer.qid == 0 && capsule.opcode() == 0x80 {
            FORMATS.fetch_add(1, Ordering::SeqCst);
        }
        Next::Honest
    });
    let options = ControllerOptions { admin_timeout: Duration::from_secs(2), ..ControllerOptions::default() };
    let controller = Controller::open_tcp(target.target(), options).expect("open");
    target.cut(true);
    std::thread::sleep(Duration::from_millis(50));
    let _ = controller.poll_events();
    let r = controller.admin(crate::sqe(0x80, 0), None);
    assert!(r.is_err());
    target.come_back();
    let started = Instant::now();
    while target.associations() < 2 && started.elapsed() < PATIENCE {
        let _ = controller.keep_alive();
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = controller.identify_controller();
    assert_eq!(FORMATS.load(Ordering::SeqCst), 0, "sent after its caller was told that it had not been");
}

#[test]
fn resets_at_once_never_disable_the_controller_that_the_first_one_made() {
    static DISABLED: AtomicU32 = AtomicU32::new(0);
    let target = Scripted::start(|peer, capsule| {
        if peer.qid == 0
            && capsule.opcode() == 0x7f
            && capsule.sqe[4] == 0
            && capsule.dword(11) == 0x14
            && capsule.dword(12) & 1 == 0
        {
            DISABLED.fetch_max(peer.association, Ordering::SeqCst);
        }
        Next::Honest
    });
    let controller = target.open();
    for round in 0..400 {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let controller = controller.clone();
                std::thread::spawn(move || {
                    let _ = controller.reset();
                })
            })
            .collect();
        for t in threads {
            t.join().unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
        let (now, disabled) = (target.associations(), DISABLED.load(Ordering::SeqCst));
        assert!(disabled < now, "round {round}: association {now} was disabled");
    }
}

/// Property Get of CSTS, and Property Set of CC.
fn property(capsule: &Capsule, is_set: bool) -> bool {
    let (fctype, offset) = if is_set { (0, 0x14) } else { (4, 0x1c) };
    capsule.opcode() == 0x7f && capsule.sqe[4] == fctype && capsule.dword(11) == offset
}

#[test]
fn who_lets_go_of_a_controller_waits_until_it_has_shut_down() {
    static LOOKS: AtomicU32 = AtomicU32::new(0);
    let target = Scripted::start(|peer, capsule| {
        if property(capsule, true) && capsule.dword(12) & 0xc000 == 0x4000 {
            LOOKS.store(1, Ordering::SeqCst);
        }
        if property(capsule, false) && LOOKS.load(Ordering::SeqCst) > 0 {
            // SHST: in progress, and complete at the third look.
            let looks = LOOKS.fetch_add(1, Ordering::SeqCst);
            let answer = peer.response(capsule.cid(), 0, if looks < 3 { 0x05 } else { 0x09 });
            peer.send(&answer);
            return Next::Done;
        }
        Next::Honest
    });
    drop(target.open());
    assert_eq!(LOOKS.load(Ordering::SeqCst), 4);
}

#[test]
fn an_opcode_of_a_vendor_is_not_sent_again_whatever_another_command_set_means_by_it() {
    for opcode in [0x06, 0x14, 0x90, 0xb3] {
        let target = Scripted::start(move |peer, capsule| {
            let is_it = peer.qid > 0 && capsule.opcode() == opcode;
            if is_it { Next::Close } else { Next::Honest }
        });
        let controller = target.open();
        let mut queue = queue(&controller);
        queue.submit(crate::sqe(opcode, 1), None, 1).expect("submit");
        queue.ring().expect("ring");
        assert_eq!(next(&mut queue).0.status, Status::ABORTED_BY_HOST);
    }
}

#[test]
fn another_device_at_the_same_address_is_not_taken_for_the_one_there_was() {
    let target = Scripted::start(|peer, capsule| {
        if peer.association == 2 && capsule.opcode() == 6 && capsule.dword(10) == 1 {
            let mut identify = vec![0; 4096];
            identify[4..8].copy_from_slice(b"SN-2");
            let mut answer = peer.data(capsule.cid(), 4, 0, &identify);
            answer.extend_from_slice(&peer.response(capsule.cid(), 0, 0));
            peer.send(&answer);
            return Next::Done;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = queue(&controller);
    target.cut(false);
    read(&controller, &mut queue, 1, 512);
    assert_eq!(next(&mut queue).0.status, Status::ABORTED_BY_HOST);
    let gone = queue.submit(crate::sqe(2, 9), None, 9).expect_err("gone");
    assert!(gone.error.to_string().contains("another device answers"), "{gone}");
}

#[test]
fn without_time_to_reconnect_a_lost_target_is_given_up_at_once() {
    let target = Scripted::start(|_, _| Next::Honest);
    let mut options = target.target();
    options.reconnect.give_up_after = Duration::ZERO;
    let controller = Controller::open_tcp(options, ControllerOptions::default()).expect("open");
    let mut queue = queue(&controller);
    target.cut(false);
    read(&controller, &mut queue, 1, 512);
    assert_eq!(next(&mut queue).0.status, Status::ABORTED_BY_HOST);
    assert!(matches!(queue.wait(Duration::ZERO), Err(Error::Gone { .. })));
    assert_eq!(target.associations(), 1);
    controller.reset().expect("a reset tries once more");
    read(&controller, &mut queue, 2, 512);
    assert!(next(&mut queue).0.status.is_success());
}

#[test]
fn requests_for_events_are_sent_again_after_a_reconnection() {
    static REQUESTS: AtomicU32 = AtomicU32::new(0);
    let target = Scripted::start(|peer, capsule| {
        if peer.association == 2 && capsule.opcode() == 0x0c {
            REQUESTS.fetch_add(1, Ordering::SeqCst);
        }
        Next::Honest
    });
    let controller = target.open();
    target.cut(false);
    controller.identify_controller().expect("it comes back");
    // The target has answered Identify, and reads what came behind it when it comes to that.
    let started = Instant::now();
    while REQUESTS.load(Ordering::SeqCst) == 0 {
        assert!(started.elapsed() < PATIENCE, "no request has come");
        std::thread::yield_now();
    }
    assert_eq!((target.associations(), REQUESTS.load(Ordering::SeqCst)), (2, 1));
}

#[test]
fn queues_of_several_threads_outlive_a_lost_connection() {
    let target = Scripted::start(|_, _| Next::Honest);
    let controller = target.open();
    std::thread::scope(|scope| {
        for mut queue in [queue(&controller), queue(&controller), queue(&controller)] {
            let controller = &controller;
            scope.spawn(move || {
                for block in 0..200 {
                    read(controller, &mut queue, block, 4096);
                    let (completion, errors) = next(&mut queue);
                    assert!(completion.status.is_success() && errors.is_empty(), "{errors:?}");
                    assert_eq!(all(&completion), Some(block as u8 ^ 0xa5));
                }
            });
        }
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(20));
            target.cut(false);
        }
    });
}

#[test]
fn a_claim_is_made_again_once_the_target_has_seen_the_end_of_the_association_that_had_it() {
    static CLAIMS: AtomicU32 = AtomicU32::new(0);
    let target = Scripted::start(|peer, capsule| {
        match (peer.qid, capsule.opcode()) {
            (0, 0x06) if capsule.dword(10) as u8 == 1 => {
                let mut data = identify(1);
                data[3072..3086].copy_from_slice(b"unvme claims 1");
                let mut answer = peer.data(capsule.cid(), 4, 0, &data);
                answer.extend_from_slice(&peer.response(capsule.cid(), 0, 0));
                peer.send(&answer);
            }
            // Claim Send: Reservation Conflict for the second and the third one.
            (0, 0xc5) => {
                let refused = (1..3).contains(&CLAIMS.fetch_add(1, Ordering::SeqCst));
                let answer = peer.response(capsule.cid(), if refused { 0x83 } else { 0 }, 0);
                peer.send(&answer);
            }
            _ => return Next::Honest,
        }
        Next::Done
    });
    let controller = target.open();
    assert!(controller.claim(Nsid(1), ClaimKind::Alone, "this test").expect("claimed"));
    let mut queue = queue(&controller);
    target.cut(false);
    write(&controller, &mut queue, 1, 512);
    let (completion, _) = next(&mut queue);
    assert_eq!(completion.status, Status::SUCCESS);
    assert_eq!(CLAIMS.load(Ordering::SeqCst), 4, "it does not go on without its claim");
}
