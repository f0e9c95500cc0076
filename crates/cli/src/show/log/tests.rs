use zerocopy::FromBytes;

use super::*;
use crate::show::without_padding;

const SMART: &[u8; 512] = include_bytes!("../../../../../tests/vectors/log-02.bin");

/// The log that `nvme-cli/smart-log.*` were printed from: QEMU's, with sensors and counters it leaves empty.
fn smart_log() -> SmartHealth {
    let mut bytes = *SMART;
    bytes[3] = 100;
    bytes[32..48].copy_from_slice(&123_456_789u128.to_le_bytes());
    bytes[48..64].copy_from_slice(&7u128.to_le_bytes());
    bytes[200..204].copy_from_slice(&[0x36, 0x01, 0x37, 0x01]);
    SmartHealth::read_from_bytes(&bytes).expect("512 bytes")
}

fn error_log() -> ErrorInformation {
    let mut bytes = [0; 64];
    bytes[..28].copy_from_slice(&[
        5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0x03, 0x10, 0x03, 0x85, 0x28, 0, 0x89, 0x67, 0x45, 0x23, 1, 0, 0, 0, 1,
        0, 0, 0,
    ]);
    bytes[32..34].copy_from_slice(&[0xbc, 0x0a]);
    ErrorInformation::read_from_bytes(&bytes).expect("64 bytes")
}

fn text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("write");
    without_padding(&out)
}

fn json(fields: &Fields) -> serde_json::Value {
    serde_json::to_value(fields).expect("json")
}

fn parse(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("json")
}

#[test]
fn a_smart_log_prints_as_nvme_cli_prints_it() {
    let log = smart_log();
    assert_eq!(
        text(|out| write_smart(out, "nvme0", u32::MAX, &log, false)),
        include_str!("../nvme-cli/smart-log.txt")
    );
    assert_eq!(json(&smart(&log)), parse(include_str!("../nvme-cli/smart-log.json")));
}

#[test]
fn an_error_log_prints_as_nvme_cli_prints_it() {
    let log = [error_log()];
    // nvme-cli follows the name of a status with a sentence about it.
    let expected = include_str!("../nvme-cli/error-log.txt")
        .replace(": The read data could not be recovered from the media", "");
    assert_eq!(text(|out| write_errors(out, "nvme0", &log)), expected);
    assert_eq!(json(&errors(&log)), parse(include_str!("../nvme-cli/error-log.json")));
}

#[test]
fn a_firmware_log_names_the_slots_that_hold_an_image() {
    let mut log = FirmwareSlot::default();
    log.afi = 0x21;
    log.frs[0] = *b"1.0     ";
    log.frs[6] = *b"2.0\x1b[2J ";
    assert_eq!(
        text(|out| write_firmware(out, "0000:02:00.0", &log)),
        "Firmware Log for device:0000:02:00.0\nafi  : 0x21\n\
         frs1 : 0x2020202020302e31 (1.0)\nfrs7 : 0x204a325b1b302e32 (2.0?[2J)\n"
    );
    assert_eq!(
        json(&firmware("d", &log)),
        serde_json::json!({"d": {
            "Active Firmware Slot (afi)": 33,
            "Firmware Rev Slot 1": "2314885530819505713 (1.0)",
            "Firmware Rev Slot 7": "2326727524369837618 (2.0?[2J)",
        }})
    );
}
