//! Wrong beginnings.

use std::io::Write;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use unvme_driver::{Controller, ControllerOptions, Error, TcpDigests};

use crate::target::{Next, Scripted, ic_resp};
use crate::{all, next, queue, read, write};

/// What opening a target says whose ICResp is `greeting`.
fn refused(greeting: Vec<u8>) -> Error {
    let target = Scripted::greeting(greeting, |_, _| Next::Honest);
    Controller::open_tcp(target.target(), ControllerOptions::default()).expect_err("not a target")
}

#[test]
fn an_icresp_that_makes_no_sense_is_refused() {
    let with = |at: usize, value: u8| {
        let mut bytes = ic_resp();
        bytes[at] = value;
        bytes
    };
    // Type, HLEN, PFV, CPDA, digests that were not asked for, MAXH2CDATA too small and no multiple of 4.
    for (at, value) in [(0, 5), (2, 127), (8, 1), (10, 32), (11, 1), (11, 2), (13, 0), (12, 2)] {
        let error = refused(with(at, value));
        assert!(matches!(error, Error::Protocol(_)), "byte {at} = {value}: {error}");
    }
}

#[test]
fn a_terminate_request_in_place_of_an_icresp_is_an_error_with_its_reason() {
    let mut bytes = vec![0; 24];
    bytes[..10].copy_from_slice(&[3, 0, 24, 0, 24, 0, 0, 0, 6, 0]);
    let error = refused(bytes);
    assert!(error.to_string().contains("Unsupported Parameter"), "{error}");
}

#[test]
fn somebody_who_speaks_something_else_is_told_so() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut target = Scripted::start(|_, _| Next::Honest).target();
    target.port = listener.local_addr().expect("bound").port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a host");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").expect("sent");
    });
    let error = Controller::open_tcp(target, ControllerOptions::default()).expect_err("no target");
    assert!(matches!(error, Error::Protocol(_) | Error::Unreachable(_)), "{error}");
    server.join().expect("the server");
}

#[test]
fn a_port_nobody_listens_at_and_a_peer_that_says_nothing_are_errors_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut target = Scripted::start(|_, _| Next::Honest).target();
    target.port = listener.local_addr().expect("bound").port();
    let started = Instant::now();
    let error = Controller::open_tcp(target.clone(), ControllerOptions::default()).expect_err("silent");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(60));
    drop(listener);
    let error = Controller::open_tcp(target, ControllerOptions::default()).expect_err("nobody");
    assert!(matches!(error, Error::Unreachable(_)), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[test]
fn connect_that_is_refused_says_what_is_wrong() {
    // Connect Invalid Host; Connect Invalid Parameters for the subsystem NQN.
    for (status, result, word) in [(0x184, 0, "does not let"), (0x182, 0x1_0100, "no such subsystem")] {
        let target = Scripted::start(move |peer, capsule| {
            if capsule.opcode() == 0x7f && capsule.sqe[4] == 1 {
                let answer = peer.response(capsule.cid(), status, result);
                peer.send(&answer);
                return Next::Done;
            }
            Next::Honest
        });
        let error = Controller::open_tcp(target.target(), ControllerOptions::default()).expect_err("refused");
        assert!(matches!(error, Error::Denied(_)), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_target_that_needs_flow_control_gets_it() {
    let target = Scripted::start(|peer, capsule| {
        // CATTR, byte 46, bit 2.
        if capsule.opcode() == 0x7f && capsule.sqe[4] == 1 && capsule.sqe[46] & 4 != 0 {
            let answer = peer.response(capsule.cid(), 0x182, 46);
            peer.send(&answer);
            return Next::Done;
        }
        Next::Honest
    });
    let controller = target.open();
    let mut queue = queue(&controller);
    read(&controller, &mut queue, 1, 512);
    assert!(next(&mut queue).0.status.is_success());
}

#[test]
fn a_queue_that_is_connected_to_another_controller_is_refused() {
    let target = Scripted::start(|peer, capsule| {
        if capsule.opcode() == 0x7f && capsule.sqe[4] == 1 && peer.qid > 0 {
            let answer = peer.response(capsule.cid(), 0, 77);
            peer.send(&answer);
            return Next::Done;
        }
        Next::Honest
    });
    let controller = target.open();
    let error = controller.create_queue(&crate::options(4)).expect_err("controller 77");
    assert!(matches!(error, Error::Protocol(_)), "{error}");
}

#[test]
fn digests_of_both_kinds_are_sent_and_checked() {
    let mut greeting = ic_resp();
    greeting[11] = 3;
    // Data for the controller starts at multiples of 128 bytes.
    greeting[10] = 31;
    let target = Scripted::greeting(greeting, |peer, capsule| {
        if peer.qid > 0 && capsule.opcode() == 2 && capsule.dword(10) == 66 {
            let mut answer = peer.data(capsule.cid(), 12, 0, &[66; 512]);
            answer[100] ^= 1;
            peer.send(&answer);
            return Next::Done;
        }
        if peer.qid > 0 && peer.association == 1 && capsule.opcode() == 2 && capsule.dword(10) == 99 {
            let mut answer = peer.response(capsule.cid(), 0, 0);
            answer[24] ^= 1;
            peer.send(&answer);
            return Next::Done;
        }
        Next::Honest
    });
    let mut options = target.target();
    options.digests = TcpDigests { header: true, data: true };
    let controller = Controller::open_tcp(options, ControllerOptions::default()).expect("open");
    let mut queue = queue(&controller);
    for (block, bytes) in [512, 4096, 100_000].into_iter().enumerate() {
        write(&controller, &mut queue, block as u32, bytes);
        assert!(next(&mut queue).0.status.is_success());
        read(&controller, &mut queue, block as u32, bytes);
        assert_eq!(all(&next(&mut queue).0), Some(block as u8 ^ 0xa5));
    }
    read(&controller, &mut queue, 66, 512);
    let (completion, errors) = next(&mut queue);
    assert_eq!(completion.status, unvme_spec::Status::TRANSIENT_TRANSPORT_ERROR);
    assert!(errors.is_empty(), "the connection is fine");
    // A header digest that is wrong ends the connection; the read is sent again.
    read(&controller, &mut queue, 99, 512);
    let (completion, errors) = next(&mut queue);
    assert!(completion.status.is_success() && errors.is_empty(), "{errors:?}");
    assert_eq!(target.associations(), 2);
}
