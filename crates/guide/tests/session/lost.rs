//! A device that stops answering.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use unvme::{ControllerOptions, Function, Status, open_function};
use unvme_guide::config::{SdkConfig, SsdType};
use unvme_guide::session::{Finished, OpError, QueueChoice, Session, SessionOptions};

use crate::mortal::Mortal;
use crate::rig::{BOTH, Books, Masks, POLLED, config, options};
use crate::verbs::Verbs;

const AUTO: QueueChoice = QueueChoice::Auto;

/// A session on such a device, whose commands may take a second.
fn mortal(masks: Masks) -> (Arc<Mortal>, Session, Books) {
    mortal_with(config("mortal", SsdType::Lba, masks))
}

fn mortal_with(config: SdkConfig) -> (Arc<Mortal>, Session, Books) {
    let function = Mortal::new();
    let controller =
        ControllerOptions { admin_timeout: Duration::from_secs(1), ..ControllerOptions::default() };
    let device = open_function("mortal", Arc::clone(&function) as Arc<dyn Function>, &controller).unwrap();
    let books = Books::default();
    let mut options = options(&books);
    options.command_timeout = Duration::from_secs(1);
    options.abort_grace = Duration::from_secs(1);
    let session = Session::with_devices(config, vec![device], options).unwrap();
    (function, session, books)
}

/// What is outstanding when the device stops comes back with an error, once each; after that nothing is
/// taken.
fn loses(masks: Masks, kill: fn(&Mortal)) {
    let (function, session, books) = mortal(masks);
    let device = &session.members()[0];
    device.write(AUTO, 0, &[1; 512]).unwrap();
    function.silence();
    for token in 0..6 {
        device.write_async(AUTO, token, &[1; 512], token).unwrap();
    }
    kill(&function);
    let started = Instant::now();
    std::thread::scope(|scope| {
        // A blocking operation in flight with them.
        scope.spawn(|| {
            let answer = device.write(AUTO, 0, &[2; 512]);
            assert!(
                matches!(answer, Err(OpError::Status(Status::ABORTED_BY_HOST) | OpError::Driver(_))),
                "{answer:?}"
            );
        });
        while books.len() < 6 {
            assert!(started.elapsed() < Duration::from_secs(60), "{} have ended", books.len());
            device.process_completions(None);
        }
    });
    for token in 0..6 {
        assert_eq!(books.take(token).status, Status::ABORTED_BY_HOST, "token {token}");
    }
    let started = Instant::now();
    for _ in 0..10 {
        assert!(matches!(device.write_async(AUTO, 0, &[1; 512], 9), Err(OpError::Driver(_))));
        assert!(matches!(device.read(AUTO, 0, &mut [0; 512]), Err(OpError::Driver(_))));
    }
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    session.close().unwrap();
    assert_eq!(books.len(), 0);
}

#[test]
fn the_log_says_why_an_operation_was_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sdk.log");
    let mut config = config("mortal", SsdType::Lba, BOTH);
    (config.log_level, config.log_file) = (1, path.clone());
    let (function, session, books) = mortal_with(config);
    let device = &session.members()[0];
    function.silence();
    device.write_async(AUTO, 0, &[1; 512], 1).unwrap();
    books.wait_for(1);
    let why = device.device().controller().ended_by().expect("the host has ended it");
    session.close().unwrap();
    let log = std::fs::read_to_string(path).unwrap();
    let line = format!("operation 0x1: {}: {why}", Status::ABORTED_BY_HOST);
    assert!(log.contains(&line), "{line}\n{log}");
}

#[test]
fn a_device_that_stops_answering_ends_what_is_outstanding_with_errors() {
    for masks in [BOTH, POLLED, Masks(3, 1, 3, 8)] {
        loses(masks, Mortal::silence);
    }
}

#[test]
fn a_device_that_is_pulled_out_ends_what_is_outstanding_with_errors() {
    for masks in [BOTH, POLLED, Masks(3, 1, 3, 8)] {
        loses(masks, Mortal::pull);
    }
}

#[test]
fn a_session_that_its_handler_drops_ends_what_the_device_has_at_once() {
    let function = Mortal::new();
    let controller =
        ControllerOptions { admin_timeout: Duration::from_secs(1), ..ControllerOptions::default() };
    let device = open_function("mortal", Arc::clone(&function) as Arc<dyn Function>, &controller).unwrap();
    let session: Arc<Mutex<Option<Session>>> = Arc::default();
    let books = Books::default();
    let handler = {
        let (session, books) = (Arc::clone(&session), books.clone());
        move |finished: Finished| {
            if finished.token == 0 {
                let taken = session.lock().unwrap().take().unwrap();
                function.silence();
                for token in 1..6 {
                    taken.members()[0].write_async(AUTO, token, &[1; 512], token).unwrap();
                }
                drop(taken);
            }
            books.note(finished);
        }
    };
    // Commands may take 30 s here; nobody waits for that.
    let options = SessionOptions::new(Arc::new(handler));
    let opened =
        Session::with_devices(config("mortal", SsdType::Lba, POLLED), vec![device], options).unwrap();
    let device = Arc::clone(&opened.members()[0]);
    *session.lock().unwrap() = Some(opened);
    device.write_async(AUTO, 0, &[1; 512], 0).unwrap();
    let started = Instant::now();
    device.process_completions(None);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    assert_eq!(books.take(0).status, Status::SUCCESS);
    for token in 1..6 {
        assert_eq!(books.take(token).status, Status::ABORTED_BY_HOST, "token {token}");
    }
    assert_eq!(books.len(), 0);
}

#[test]
fn closing_a_session_whose_device_does_not_answer_ends_and_gives_each_token_back_once() {
    for masks in [BOTH, POLLED] {
        let (function, session, books) = mortal(masks);
        let device = &session.members()[0];
        function.silence();
        for token in 0..8 {
            device.write_async(AUTO, token, &[1; 512], token).unwrap();
        }
        let started = Instant::now();
        session.close().unwrap();
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
        for token in 0..8 {
            assert_eq!(books.take(token).status, Status::ABORTED_BY_HOST);
        }
        assert_eq!(books.len(), 0);
    }
}
