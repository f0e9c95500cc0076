//! The log file.

use std::path::Path;

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

/// What is warned of when an error was logged to `path`.
fn warnings_of(path: &Path) -> Vec<String> {
    let mut config = config("mem:block:64M", SsdType::Lba, BOTH);
    (config.log_level, config.log_file) = (2, path.to_owned());
    let session = Session::open(config, options(&Books::default())).unwrap();
    session.warnings().to_vec()
}

#[test]
fn a_symbolic_link_of_somebody_else_or_to_a_file_of_somebody_else_is_not_followed() {
    const SOMEBODY: u32 = 12_345;
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    std::fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let length = || std::fs::metadata(&file).unwrap().len();
    assert_eq!(warnings_of(&link), [""; 0]);
    let before = length();
    assert!(before > 0, "one's own link is followed");
    // Root alone can give files away.
    if std::os::unix::fs::lchown(&link, Some(SOMEBODY), None).is_err() {
        return;
    }
    let refused = |part: &str| {
        let warnings = warnings_of(&link);
        assert!(warnings.len() == 1 && warnings[0].contains(part), "{warnings:?}");
        assert_eq!(length(), before);
    };
    refused("link: it is a symbolic link of user 12345, and is not followed; nothing is logged");
    std::os::unix::fs::lchown(&link, Some(0), None).unwrap();
    std::os::unix::fs::chown(&file, Some(SOMEBODY), None).unwrap();
    refused("it is a symbolic link to a file of user 12345, and is not followed");
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
