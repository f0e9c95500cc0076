//! The log file.

use unvme_guide::config::SsdType;
use unvme_guide::session::{QueueChoice, Session};

use crate::rig::{BOTH, Books, config, options, start};
use crate::verbs::Verbs;

const AUTO: QueueChoice = QueueChoice::Auto;

/// What is logged at a level, when an operation succeeds and one fails.
fn lines(level: u8) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("mem:block:64M", SsdType::Lba, BOTH);
    config.log_level = level;
    config.log_file = folder.path().join("sdk.log");
    let path = config.log_file.clone();
    let (session, device, books) = start(config);
    assert_eq!(session.warnings(), &[] as &[String]);
    device.write(AUTO, 0, &[1; 512]).unwrap();
    device.write_async(AUTO, 0, &[1; 512], 0x51).unwrap();
    // Reservation Report, which the device does not have.
    let unknown = unvme::Sqe { opcode: 0x0e, nsid: 1, ..unvme::Sqe::default() };
    assert!(!device.raw_io(AUTO, unknown, &mut [0; 512]).unwrap().status.is_success());
    books.wait_for(1);
    assert!(device.read(AUTO, u64::MAX, &mut [0; 512]).is_err());
    session.close().unwrap();
    match std::fs::read_to_string(path) {
        Ok(text) => text.lines().map(ToOwned::to_owned).collect(),
        Err(_) => Vec::new(),
    }
}

#[test]
fn each_level_logs_what_the_one_below_does_and_more() {
    let count = |lines: &[String], topic: &str| lines.iter().filter(|line| line.contains(topic)).count();
    let logged: Vec<_> = (0..=3).map(lines).collect();
    assert!(logged[0].is_empty(), "{:?}", logged[0]);
    for (level, lines) in logged.iter().enumerate().skip(1) {
        assert!(lines.iter().all(|line| line.contains("mem:block:64M")), "{lines:?}");
        assert!(count(lines, " error ") > 0, "level {level}: {lines:?}");
        assert_eq!(count(lines, " info ") > 0, level >= 2, "level {level}: {lines:?}");
        assert_eq!(count(lines, " io ") > 0, level >= 3, "level {level}: {lines:?}");
    }
    assert_eq!(count(&logged[3], " io "), 2, "{:?}", logged[3]);
    assert_eq!(count(&logged[3], "0x51"), 1, "{:?}", logged[3]);
}

#[test]
fn a_log_file_that_cannot_be_opened_is_a_warning() {
    let mut config = config("mem:block:64M", SsdType::Lba, BOTH);
    config.log_level = 1;
    config.log_file = "/nonexistent/folder/sdk.log".into();
    let session = Session::open(config, options(&Books::default())).unwrap();
    assert_eq!(session.warnings().len(), 1, "{:?}", session.warnings());
    assert!(session.warnings()[0].contains("/nonexistent/folder/sdk.log"), "{:?}", session.warnings());
}
