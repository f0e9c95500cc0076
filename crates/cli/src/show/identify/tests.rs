use unvme_spec::identify::{IdentifyController, IdentifyNamespace};
use zerocopy::FromBytes;

use super::*;
use crate::show::without_padding;

const CONTROLLER: &[u8; 4096] = include_bytes!("../../../../../tests/vectors/identify-cns01.bin");
const NAMESPACE: &[u8; 4096] = include_bytes!("../../../../../tests/vectors/identify-cns00-nsid2.bin");

fn json(fields: &Fields) -> serde_json::Value {
    serde_json::to_value(fields).expect("json")
}

fn parse(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("json")
}

/// Every key of `expected` is there with its value, those of its structures as well: later versions of
/// nvme-cli have more.
#[track_caller]
fn assert_has(found: &serde_json::Value, expected: &serde_json::Value) {
    match (found, expected) {
        (serde_json::Value::Object(found), serde_json::Value::Object(expected)) => {
            for (key, value) in expected {
                assert_has(found.get(key).unwrap_or_else(|| panic!("{key} is missing")), value);
            }
        }
        (serde_json::Value::Array(found), serde_json::Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len());
            found.iter().zip(expected).for_each(|(found, expected)| assert_has(found, expected));
        }
        _ => assert_eq!(found, expected),
    }
}

#[test]
fn a_controller_prints_as_nvme_cli_prints_it() {
    let mut bytes = *CONTROLLER;
    // What QEMU leaves empty: a capacity, AVSCC's neighbour NPSS, and a second, non-operational power state.
    bytes[280..296].copy_from_slice(&(1u128 << 40).to_le_bytes());
    bytes[262..264].copy_from_slice(&[3, 1]);
    bytes[2080..2103].copy_from_slice(&[
        0x2c, 0x01, 0x00, 0x03, 0x10, 0x27, 0x00, 0x00, 0x40, 0x9c, 0x00, 0x00, 0x01, 0x02, 0x03, 0x04, 0x50,
        0x00, 0x40, 0x00, 0x64, 0x00, 0x82,
    ]);
    let data = IdentifyController::read_from_bytes(&bytes).expect("4096 bytes");
    let mut text = Vec::new();
    write_controller(&mut text, &data, false).expect("write");
    assert_eq!(without_padding(&text), include_str!("../nvme-cli/id-ctrl.txt"));
}

#[test]
fn a_controller_has_the_json_keys_and_values_of_nvme_cli() {
    let data = IdentifyController::read_from_bytes(CONTROLLER).expect("4096 bytes");
    assert_has(&json(&controller(&data)), &parse(include_str!("../../../../../tests/vectors/id-ctrl.json")));
}

#[test]
fn a_namespace_prints_as_nvme_cli_prints_it() {
    let data = IdentifyNamespace::read_from_bytes(NAMESPACE).expect("4096 bytes");
    let mut text = Vec::new();
    write_namespace(&mut text, 2, &data, false).expect("write");
    // The one line whose name nvme-cli does not pad.
    let expected = include_str!("../nvme-cli/id-ns.txt").replace("nsattr\t:", "nsattr  :");
    assert_eq!(without_padding(&text), expected);
}

#[test]
fn a_namespace_has_the_json_keys_and_values_of_nvme_cli() {
    let data = IdentifyNamespace::read_from_bytes(NAMESPACE).expect("4096 bytes");
    assert_has(&json(&namespace(&data)), &parse(include_str!("../../../../../tests/vectors/id-ns-2.json")));
}

#[test]
fn counts_beyond_the_tables_do_not_panic() {
    let controller_data = IdentifyController::read_from_bytes(&[0xff; 4096]).expect("4096 bytes");
    let namespace_data = IdentifyNamespace::read_from_bytes(&[0xff; 4096]).expect("4096 bytes");
    let mut text = Vec::new();
    write_controller(&mut text, &controller_data, false).expect("write");
    write_namespace(&mut text, 1, &namespace_data, false).expect("write");
    let count = |needle: &str| String::from_utf8_lossy(&text).matches(needle).count();
    assert_eq!((count("\nps "), count("\nlbaf ")), (32, 64));
}

#[test]
fn capabilities_are_explained_as_nvme_cli_does() {
    let bytes = include_bytes!("../../../../../tests/vectors/identify-cns01-fdp.bin");
    let data = IdentifyController::read_from_bytes(bytes).expect("4096 bytes");
    let mut out = Vec::new();
    write_controller(&mut out, &data, true).expect("write");
    let text = without_padding(&out);
    for part in include_str!("../nvme-cli/id-ctrl-fdp.txt").split_inclusive("\n\n") {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}
