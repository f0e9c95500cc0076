use unvme_spec::fdp::{
    MediaReallocated, PlacementId, ReclaimGroup, Ruhid, Statistics as Log, ruh_statuses, ruh_usages,
};
use unvme_spec::feature::Timestamp;
use unvme_spec::{Lba, Nsid};
use zerocopy::FromBytes;

use super::*;
use crate::show::without_padding;

/// Captured from QEMU 10's device.
const CONFIGS: &[u8] = include_bytes!("../../../../../tests/vectors/log-20-fdp.bin");
const USAGE: &[u8] = include_bytes!("../../../../../tests/vectors/log-21-fdp.bin");
const STATS: &[u8] = include_bytes!("../../../../../tests/vectors/log-22-fdp.bin");
const STATUS: &[u8] = include_bytes!("../../../../../tests/vectors/ruh-status-fdp.bin");

fn text(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("write");
    without_padding(&out)
}

#[test]
fn configurations_print_as_nvme_cli_prints_them() {
    assert_eq!(text(|out| write_configs(out, CONFIGS, true)), include_str!("../nvme-cli/fdp-configs.txt"));
    let plain = text(|out| write_configs(out, CONFIGS, false));
    assert!(plain.starts_with("FDP Attributes: 0x80\nVendor Specific Size: 0\n"), "{plain}");
    assert_eq!(
        serde_json::to_string(&configs(CONFIGS)).expect("JSON"),
        r#"{"n":0,"configs":[{"fdpa":128,"vss":0,"nrg":1,"nruh":8,"maxpids":127,"nnss":256,"runs":16777216,"erutl":0,"ruhs":[{"ruht":1},{"ruht":1},{"ruht":1},{"ruht":1},{"ruht":1},{"ruht":1},{"ruht":1},{"ruht":1}]}]}"#
    );
    let mut two = [&CONFIGS[..112], &CONFIGS[16..112]].concat();
    two[0] = 1;
    let text_of_two = text(|out| write_configs(out, &two, false));
    assert!(text_of_two.starts_with("FDP Configuration[0]\nFDP Attributes: 0x80\n"), "{text_of_two}");
    assert!(text_of_two.contains("\nFDP Configuration[1]\n"), "{text_of_two}");
    // A log that is cut short is shown as far as it goes.
    assert_eq!(text(|out| write_configs(out, &CONFIGS[..100], true)), "");
    assert_eq!(text(|out| write_configs(out, &[], true)), "");
}

#[test]
fn use_and_state_of_handles_print_as_nvme_cli_prints_them() {
    let handles: Vec<RuhUse> = ruh_usages(USAGE).expect("a header").map(|usage| usage.ruha).collect();
    assert_eq!(text(|out| write_usage(out, &handles)), include_str!("../nvme-cli/fdp-usage.txt"));
    let json = serde_json::to_string(&usage(&handles[..2])).expect("JSON");
    assert_eq!(json, r#"{"nruh":2,"ruhus":[{"ruha":1},{"ruha":1}]}"#);
    let handles: Vec<HandleStatus> = ruh_statuses(STATUS)
        .expect("a header")
        .map(|handle| HandleStatus {
            placement: handle.placement_id(),
            ruhid: Ruhid(handle.ruhid),
            blocks_left: handle.ruamw,
            seconds_left: handle.earutr,
        })
        .collect();
    assert_eq!(text(|out| write_status(out, &handles)), include_str!("../nvme-cli/fdp-status.txt"));
    let json = serde_json::to_string(&status(&handles[7..])).expect("JSON");
    assert_eq!(json, r#"{"nruhsd":1,"ruhss":[{"pid":7,"ruhid":7,"earutr":0,"ruamw":32760}]}"#);
}

#[test]
fn statistics_print_as_nvme_cli_prints_them_and_what_follows_from_them() {
    let log = Log::read_from_bytes(STATS).expect("64 bytes");
    let log =
        Statistics { host_bytes: log.hbmw.get(), media_bytes: log.mbmw.get(), erased_bytes: log.mbe.get() };
    let text = text(|out| write_stats(out, &log));
    let ours = "Write Amplification (MBMW / HBMW): 1366.000\n";
    assert_eq!(text, [include_str!("../nvme-cli/fdp-stats.txt"), ours].concat());
    let json = serde_json::to_string(&stats(&log)).expect("JSON");
    assert_eq!(json, r#"{"hbmw":12288,"mbmw":16785408,"mbe":0,"waf":1366.0}"#);
}

#[test]
fn before_the_first_write_there_is_no_write_amplification() {
    let log = Statistics::default();
    assert!(text(|out| write_stats(out, &log)).ends_with("(MBMW / HBMW): nothing was written yet\n"));
    assert_eq!(serde_json::to_string(&stats(&log)).expect("JSON"), r#"{"hbmw":0,"mbmw":0,"mbe":0}"#);
}

#[test]
fn events_show_the_fields_that_their_flags_say_are_valid() {
    let time = Timestamp::new(1_700_000_000_123, 0);
    let bare = Event::new(EventType(0x70), time);
    let full = Event::new(EventType::MEDIA_REALLOCATED, time)
        .with_placement_id(PlacementId(0x4001))
        .with_nsid(Nsid(2))
        .with_location(ReclaimGroup(1), Ruhid(3))
        .with_media_reallocated(MediaReallocated::new(24, Some(Lba(4096))));
    let list = [bare, full];
    assert_eq!(
        text(|out| write_events(out, &list)),
        "Event[0]
  Event Type: 0x70 (Unknown)
  Event Timestamp: 1700000000123 ms

Event[1]
  Event Type: 0x80 (Media Reallocated)
  Event Timestamp: 1700000000123 ms
  Placement Identifier (PID): 0x4001
  Namespace Identifier (NSID): 2
  Number of LBAs Moved (NLBAM): 24
  Logical Block Address (LBA): 0x1000
  Reclaim Group Identifier: 1
  Reclaim Unit Handle Identifier: 3

"
    );
    assert_eq!(
        serde_json::to_string(&events(&list[1..])).expect("JSON"),
        r#"{"n":1,"events":[{"type":128,"name":"Media Reallocated","fdpef":7,"pid":16385,"timestamp":1700000000123,"nsid":2,"nlbam":24,"lba":4096,"rgid":1,"ruhid":3}]}"#
    );
}
