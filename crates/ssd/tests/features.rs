//! Get and Set Features through the admin queue.

mod host;

use std::time::Duration;

use host::{DATA, Host, attached, config, device, sqe};
use unvme_spec::{Sqe, Status};
use unvme_ssd::{NamespaceConfig, NamespaceKind, SsdConfig};

const CURRENT: u32 = 0;
const DEFAULT: u32 = 1;
const SAVED: u32 = 2;
const CAPABILITIES: u32 = 3;
const SAVE: u32 = 1 << 31;

fn get(fid: u32, select: u32, cdw11: u32) -> Sqe {
    Sqe { cdw10: select << 8 | fid, cdw11, ..sqe(0x0a, 0) }
}

fn set(fid: u32, cdw11: u32) -> Sqe {
    Sqe { cdw10: fid, cdw11, ..sqe(0x09, 0) }
}

/// Current, default and saved value.
fn values(host: &mut Host, fid: u32, cdw11: u32) -> [u64; 3] {
    [CURRENT, DEFAULT, SAVED].map(|select| host.admin(get(fid, select, cdw11)).unwrap())
}

fn reset(host: &mut Host) {
    host.disable();
    host.enable();
}

#[test]
fn every_feature_says_what_can_be_done_with_it_and_the_others_are_invalid_fields() {
    let mut host = Host::started(512);
    // Bit 0 saveable, bit 1 namespace specific, bit 2 changeable.
    let supported = [
        (0x01, 0b101),
        (0x02, 0b100),
        (0x04, 0b101),
        (0x05, 0b111),
        (0x06, 0b101),
        (0x07, 0b100),
        (0x08, 0b101),
        (0x09, 0b101),
        (0x0a, 0b101),
        (0x0b, 0b101),
        (0x0e, 0b100),
        (0x0f, 0b000),
        (0x16, 0b100),
        (0x19, 0b100),
        (0x20, 0b111),
    ];
    for fid in 0..=0xff {
        let expected = supported.iter().find(|(f, _)| *f == fid);
        let answer = host.admin(get(fid, CAPABILITIES, 0));
        assert_eq!(answer, expected.map(|(_, bits)| *bits).ok_or(Status::INVALID_FIELD), "feature {fid:#x}");
        if expected.is_none() {
            assert_eq!(host.admin(get(fid, CURRENT, 0)), Err(Status::INVALID_FIELD), "feature {fid:#x}");
            assert_eq!(host.admin(set(fid, 0)), Err(Status::INVALID_FIELD), "feature {fid:#x}");
        }
        for select in 4..=7 {
            assert_eq!(host.admin(get(fid, select, 0)), Err(Status::INVALID_FIELD), "feature {fid:#x}");
        }
    }
}

#[test]
fn features_start_with_their_defaults() {
    let mut host = Host::started(512);
    for (fid, cdw11, expected) in [
        (0x01, 0, 0x0f03_0007),
        (0x02, 0, 0),
        (0x04, 0, 343),
        (0x04, 1 << 20, 1 << 20),
        (0x05, 0, 0),
        (0x06, 0, 1),
        (0x07, 0, 63 << 16 | 63),
        (0x08, 0, 0),
        (0x09, 0, 0),
        (0x09, 5, 5),
        (0x0a, 0, 0),
        (0x0b, 0, 0),
        (0x0f, 0, 0),
        (0x19, 0, 0),
    ] {
        assert_eq!(values(&mut host, fid, cdw11), [expected; 3], "feature {fid:#x}");
    }
}

#[test]
fn a_value_lasts_until_the_reset_and_a_saved_one_for_ever() {
    for (fid, value, cdw11, default) in [
        (0x01, 0x0302_0105, 0, 0x0f03_0007),
        (0x04, 330, 0, 343),
        (0x06, 0, 0, 1),
        (0x08, 0x0a07, 0, 0),
        (0x09, 0x1_0000, 0, 0),
        (0x0a, 1, 0, 0),
        (0x0b, 0x31f, 0, 0),
    ] {
        let ssd = device(config(512));
        let mut host = Host::attach(ssd.clone());
        host.enable();
        assert_eq!(host.admin(set(fid, value)), Ok(0), "feature {fid:#x}");
        let new = u64::from(value);
        assert_eq!(values(&mut host, fid, cdw11), [new, default, default], "feature {fid:#x}");
        reset(&mut host);
        assert_eq!(values(&mut host, fid, cdw11), [default; 3], "feature {fid:#x}");
        assert_eq!(host.admin(set(fid | SAVE, value)), Ok(0), "feature {fid:#x}");
        reset(&mut host);
        assert_eq!(values(&mut host, fid, cdw11), [new, default, new], "feature {fid:#x}");
    }
}

#[test]
fn saved_features_survive_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let store = unvme_ssd::FileStore::open(folder.path(), host::MEDIA_BYTES).unwrap();
        let mut host = Host::attach(host::device_on(config(512), Box::new(store)));
        host.enable();
        host
    };
    let mut host = open();
    assert_eq!(host.admin(set(0x06 | SAVE, 0)), Ok(0));
    assert_eq!(host.admin(set(0x04 | SAVE, 1 << 20 | 280)), Ok(0));
    assert_eq!(host.admin(Sqe { nsid: 1, ..set(0x05 | SAVE, 20) }), Ok(0));
    assert_eq!(host.admin(set(0x01, 3)), Ok(0));
    drop(host);
    let mut host = open();
    assert_eq!(values(&mut host, 0x06, 0), [0, 1, 0]);
    assert_eq!(values(&mut host, 0x04, 1 << 20), [1 << 20 | 280, 1 << 20, 1 << 20 | 280]);
    assert_eq!(host.admin(Sqe { nsid: 1, ..get(0x05, SAVED, 0) }), Ok(20));
    assert_eq!(values(&mut host, 0x01, 0), [0x0f03_0007; 3], "was not saved");
}

#[test]
fn what_cannot_be_saved_changed_or_set_for_one_namespace_is_refused() {
    let mut host = Host::started(512);
    for fid in [0x02, 0x07, 0x0e, 0x0f, 0x16, 0x19] {
        assert_eq!(host.admin(set(fid | SAVE, 0)), Err(Status::FEATURE_NOT_SAVEABLE), "feature {fid:#x}");
    }
    assert_eq!(host.admin(set(0x0f, 1000)), Err(Status::FEATURE_NOT_CHANGEABLE));
    for fid in [0x01, 0x02, 0x04, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0e, 0x16, 0x19] {
        let one = Sqe { nsid: 1, ..set(fid, 0) };
        assert_eq!(host.admin(one), Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC), "feature {fid:#x}");
    }
    assert_eq!(host.admin(Sqe { nsid: 0xffff_ffff, ..set(0x06, 1) }), Ok(0));
}

#[test]
fn values_out_of_range_are_refused_and_change_nothing() {
    let mut host = Host::started(512);
    for (fid, value, expected) in [
        (0x02, 1, Status::INVALID_FIELD),
        (0x02, 31, Status::INVALID_FIELD),
        // Sensor 1 is not there, nor are threshold kinds 2 and 3.
        (0x04, 1 << 16 | 300, Status::INVALID_FIELD),
        (0x04, 8 << 16 | 300, Status::INVALID_FIELD),
        (0x04, 2 << 20 | 300, Status::INVALID_FIELD),
        (0x04, 3 << 20 | 300, Status::INVALID_FIELD),
        (0x07, 0x0000_ffff, Status::INVALID_FIELD),
        (0x07, 0xffff_0000, Status::INVALID_FIELD),
        (0x09, 65, Status::INVALID_FIELD),
        (0x09, 0xffff, Status::INVALID_FIELD),
        // A vector no completion queue uses.
        (0x09, 3, Status::INVALID_FIELD),
        // Telemetry notices are not offered.
        (0x0b, 1 << 10, Status::INVALID_FIELD),
        (0x0b, 1 << 31, Status::INVALID_FIELD),
        // Combination 2 is the Key Value command set alone, and there is a namespace with blocks; there is no
        // combination 3.
        (0x19, 2, Status::IO_COMMAND_SET_COMBINATION_REJECTED),
        (0x19, 3, Status::IO_COMMAND_SET_COMBINATION_REJECTED),
        (0x19, 0x1ff, Status::IO_COMMAND_SET_COMBINATION_REJECTED),
    ] {
        assert_eq!(host.admin(set(fid, value)), Err(expected), "feature {fid:#x}, value {value:#x}");
    }
    for (fid, default) in [(0x02, 0), (0x04, 343), (0x09, 0), (0x0b, 0), (0x19, 0)] {
        assert_eq!(values(&mut host, fid, 0), [default; 3], "feature {fid:#x}");
    }
    assert_eq!(
        host.admin(get(0x04, CURRENT, 15 << 16)),
        Err(Status::INVALID_FIELD),
        "all sensors have no one value"
    );
    assert_eq!(host.admin(get(0x09, CURRENT, 65)), Err(Status::INVALID_FIELD));
}

#[test]
fn a_threshold_for_all_sensors_is_one_for_the_composite_temperature() {
    let mut host = Host::started(512);
    assert_eq!(host.admin(set(0x04, 15 << 16 | 350)), Ok(0));
    assert_eq!(host.admin(get(0x04, CURRENT, 0)), Ok(350));
}

#[test]
fn the_number_of_queues_is_what_there_is_until_queues_exist() {
    let mut host = attached(SsdConfig { io_queues: 5, ..config(512) });
    host.enable();
    for asked in [0, 1 << 16 | 3, 63 << 16 | 63, 0xfffe_fffe] {
        assert_eq!(host.admin(set(0x07, asked)), Ok(4 << 16 | 4), "asked for {asked:#x}");
    }
    assert_eq!(values(&mut host, 0x07, 0), [4 << 16 | 4; 3]);
    host.create_cq(5, 2).unwrap();
    assert_eq!(host.admin(set(0x07, 0)), Err(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(host.create_cq(6, 2), Err(Status::INVALID_QUEUE_IDENTIFIER));
}

#[test]
fn error_recovery_is_kept_per_namespace() {
    let half = Some(host::MEDIA_BYTES / 2);
    let namespace = NamespaceConfig { bytes: half, kind: NamespaceKind::Blocks(512) };
    let mut host = attached(SsdConfig { namespaces: vec![namespace; 2], ..config(512) });
    host.enable();
    let time_limit = |nsid| Sqe { nsid, ..get(0x05, CURRENT, 0) };
    assert_eq!(host.admin(Sqe { nsid: 2, ..set(0x05, 30) }), Ok(0));
    assert_eq!([0, 1, 2].map(|nsid| host.admin(time_limit(nsid))), [Ok(0), Ok(0), Ok(30)]);
    assert_eq!(host.admin(Sqe { nsid: 0xffff_ffff, ..set(0x05, 40) }), Ok(0));
    assert_eq!([1, 2].map(|nsid| host.admin(time_limit(nsid))), [Ok(40), Ok(40)]);
    for (nsid, expected) in [
        (0, Status::INVALID_NAMESPACE_OR_FORMAT),
        (3, Status::INVALID_FIELD),
        (129, Status::INVALID_NAMESPACE_OR_FORMAT),
    ] {
        assert_eq!(host.admin(Sqe { nsid, ..set(0x05, 1) }), Err(expected), "namespace {nsid}");
    }
    assert_eq!(host.admin(time_limit(0xffff_ffff)), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    // DULBE is not offered by any namespace.
    assert_eq!(host.admin(Sqe { nsid: 1, ..set(0x05, 1 << 16) }), Err(Status::INVALID_FIELD));
}

#[test]
fn the_timestamp_counts_on_from_what_the_host_said() {
    let mut host = Host::started(512);
    assert_eq!(host.admin_in(get(0x0e, CURRENT, 0), 8), Ok(vec![0; 8]));
    host.clock.advance(Duration::from_millis(7));
    assert_eq!(host.admin_in(get(0x0e, CURRENT, 0), 8), Ok(vec![7, 0, 0, 0, 0, 0, 0, 0]));
    // 2 January 2026, 03:04:05.678 UTC. The attributes a host sends mean nothing.
    host.memory.write(DATA, &[0x2e, 0x8f, 0xa9, 0x7c, 0x9b, 0x01, 0xff, 0xff]);
    let mut sqe = set(0x0e, 0);
    host.set_prps(&mut sqe, DATA, 8);
    assert_eq!(host.admin(sqe), Ok(0));
    host.clock.advance(Duration::from_millis(0x1_0003));
    let now = host.admin_in(get(0x0e, CURRENT, 0), 8);
    assert_eq!(now, Ok(vec![0x31, 0x8f, 0xaa, 0x7c, 0x9b, 0x01, 0b0010, 0]), "origin: Set Features");
    assert_eq!(host.admin_in(get(0x0e, DEFAULT, 0), 8), Ok(vec![0; 8]));
    reset(&mut host);
    assert_eq!(host.admin_in(get(0x0e, CURRENT, 0), 8), Ok(vec![0; 8]), "a reset starts it again");
}

#[test]
fn host_behavior_support_is_what_the_host_wrote() {
    let mut host = Host::started(512);
    let mut behavior = vec![0u8; 512];
    (behavior[0], behavior[2]) = (1, 1);
    host.memory.write(DATA, &behavior);
    let mut sqe = set(0x16, 0);
    host.set_prps(&mut sqe, DATA, 512);
    assert_eq!(host.admin(sqe), Ok(0));
    assert_eq!(host.admin_in(get(0x16, CURRENT, 0), 512), Ok(behavior.clone()));
    host.memory.write(DATA, &[2]);
    assert_eq!(host.admin(sqe), Err(Status::INVALID_FIELD), "ACRE is 0 or 1");
    assert_eq!(host.admin_in(get(0x16, CURRENT, 0), 512), Ok(behavior));
    reset(&mut host);
    assert_eq!(host.admin_in(get(0x16, CURRENT, 0), 512), Ok(vec![0; 512]));
}

#[test]
fn data_of_features_that_cannot_be_reached_is_an_error() {
    let mut host = Host::started(512);
    for (fid, prp1, expected) in [
        (0x0e, 0x10, Status::DATA_TRANSFER_ERROR),
        (0x16, 0x1000, Status::DATA_TRANSFER_ERROR),
        (0x0e, host::BASE + 2, Status::PRP_OFFSET_INVALID),
    ] {
        let dptr = [prp1, 0];
        assert_eq!(host.admin(Sqe { dptr, ..get(fid, CURRENT, 0) }), Err(expected), "feature {fid:#x}");
        assert_eq!(host.admin(Sqe { dptr, ..set(fid, 0) }), Err(expected), "feature {fid:#x}");
    }
}
