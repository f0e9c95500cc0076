//! The end of a session.

use std::sync::{Arc, Mutex, OnceLock};

use unvme_guide::config::SsdType;
use unvme_guide::session::{OpError, QueueChoice, Session, SessionOptions};

use crate::rig::{BOTH, Books, Masks, POLLED, blocks, config};
use crate::verbs::Verbs;

const AUTO: QueueChoice = QueueChoice::Auto;

#[test]
fn closing_waits_for_what_is_outstanding_and_nothing_is_taken_afterwards() {
    for masks in [BOTH, POLLED] {
        let (session, device, books) = blocks(masks);
        for token in 0..8 {
            device.write_async(AUTO, token, &[1; 512], token).unwrap();
        }
        session.close().unwrap();
        books.assert_all_succeeded(0..8);
        assert!(matches!(device.write_async(AUTO, 0, &[1; 512], 9), Err(OpError::Closed)));
        assert!(matches!(device.write(AUTO, 0, &[1; 512]), Err(OpError::Closed)));
        assert_eq!(device.process_completions(None), 0);
        session.close().unwrap();
        assert_eq!(books.len(), 8);
    }
}

#[test]
fn dropping_a_session_closes_it() {
    let (session, device, books) = blocks(POLLED);
    device.write_async(AUTO, 0, &[1; 512], 1).unwrap();
    drop(session);
    books.assert_all_succeeded([1].into_iter());
    assert!(matches!(device.read(AUTO, 0, &mut [0; 512]), Err(OpError::Closed)));
}

#[test]
fn closing_in_a_handler_is_an_error_and_no_deadlock() {
    for masks in [BOTH, POLLED] {
        let session: Arc<OnceLock<Session>> = Arc::default();
        let answers = Arc::new(Mutex::new(Vec::new()));
        let books = Books::default();
        let handler = {
            let (session, answers, books) = (Arc::clone(&session), Arc::clone(&answers), books.clone());
            move |finished| {
                let answer = session.get().unwrap().close();
                answers.lock().unwrap().push(matches!(answer, Err(OpError::Reentered)));
                books.note(finished);
            }
        };
        let config = config("mem:block:64M", SsdType::Lba, masks);
        let opened = Session::open(config, SessionOptions::new(Arc::new(handler))).unwrap();
        session.set(opened).unwrap();
        let session = session.get().unwrap();
        session.members()[0].write_async(AUTO, 0, &[1; 512], 1).unwrap();
        session.close().unwrap();
        assert_eq!(*answers.lock().unwrap(), [true]);
        books.assert_all_succeeded([1].into_iter());
    }
}

#[test]
fn a_session_can_be_dropped_by_its_own_handler() {
    for masks in [BOTH, POLLED] {
        let session: Arc<Mutex<Option<Session>>> = Arc::default();
        let books = Books::default();
        let handler = {
            let (session, books) = (Arc::clone(&session), books.clone());
            move |finished| {
                // Not in one statement: what is still outstanding ends within the drop, and its handler takes
                // the lock.
                let taken = session.lock().unwrap().take();
                drop(taken);
                books.note(finished);
            }
        };
        let config = config("mem:block:64M", SsdType::Lba, masks);
        let opened = Session::open(config, SessionOptions::new(Arc::new(handler))).unwrap();
        let device = Arc::clone(&opened.members()[0]);
        *session.lock().unwrap() = Some(opened);
        for token in 0..4 {
            // The first that ends closes the session: from then on nothing is taken.
            match device.write_async(AUTO, token, &[1; 512], token) {
                Ok(()) => {}
                Err(OpError::Closed) => books.note(closed(token)),
                Err(e) => panic!("{e}"),
            }
        }
        while books.len() < 4 {
            device.process_completions(None);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(books.len(), 4);
    }
}

fn closed(token: u64) -> unvme_guide::session::Finished {
    let outcome = unvme_guide::session::Outcome {
        status: unvme::Status::ABORTED_BY_HOST,
        result: 0,
        value_bytes: 0,
        data_bytes: 0,
        data: None,
    };
    unvme_guide::session::Finished { member: 0, token, outcome }
}

#[test]
fn threads_that_submit_while_the_session_closes_get_each_token_back_or_an_error() {
    for round in 0..20 {
        let masks = if round % 2 == 0 { BOTH } else { Masks(3, 1, 3, 4) };
        let (session, device, books) = blocks(masks);
        let taken = std::thread::scope(|scope| {
            let submitters: Vec<_> = (0..4u64)
                .map(|thread| {
                    let device = &device;
                    scope.spawn(move || {
                        let mut taken = Vec::new();
                        for token in (thread..).step_by(4) {
                            let answer = if token % 3 == 0 {
                                device.write(AUTO, token % 1000, &[1; 512]).map(|()| false)
                            } else {
                                device.write_async(AUTO, token % 1000, &[1; 512], token).map(|()| true)
                            };
                            match answer {
                                Ok(true) => taken.push(token),
                                Ok(false) => {}
                                Err(OpError::Closed) => break,
                                Err(e) => panic!("{e}"),
                            }
                        }
                        taken
                    })
                })
                .collect();
            std::thread::sleep(std::time::Duration::from_millis(2));
            session.close().unwrap();
            submitters.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<u64>>()
        });
        books.assert_all_succeeded(taken.into_iter());
    }
}
