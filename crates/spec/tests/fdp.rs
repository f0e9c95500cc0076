//! Flexible Data Placement and directives: against what QEMU's controller answered and nvme-cli sent
//! (`tests/vectors` at the root), and against literal bytes from the specification.

use std::{fs, path::PathBuf};

use unvme_spec::{
    Lba, Nsid, Sqe, admin,
    directive::{self, Directive, DirectiveSet, EnableDirective, IdentifyParameters, dtype},
    fdp::{
        self, Configuration, ConfigurationDescriptor, Configurations, ConfigurationsHeader, Event,
        EventFlags, EventSupport, EventType, EventsHeader, Fdpa, IoManagementReceive, IoManagementSend,
        MediaReallocated, PlacementHandle, PlacementId, ReceiveOperation, ReclaimGroup, Rgif, RuhDescriptor,
        RuhStatus, RuhStatusHeader, RuhType, RuhUse, Ruhid, SendOperation, Statistics,
    },
    feature::{FdpEvents, FdpEventsEnable, FlexibleDataPlacement, Timestamp},
    identify::{IdentifyController, IdentifyNamespace, KvNamespaceCreate, NamespaceCreate, ctratt, oacs},
    log_page::EnduranceGroup,
    nvm::{self, AccessFlags, BlockRange},
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

fn bytes(name: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "tests", "vectors", name].iter().collect();
    fs::read(path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The entry of the captured command `name`.
fn captured(name: &str) -> Sqe {
    let text = String::from_utf8(bytes("fdp.hex")).unwrap();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
    let sqe = line.split_whitespace().nth(2).unwrap();
    let sqe: Vec<u8> =
        (0..sqe.len()).step_by(2).map(|at| u8::from_str_radix(&sqe[at..at + 2], 16).unwrap()).collect();
    Sqe::read_from_bytes(&sqe).unwrap()
}

/// What a captured entry would be had we built it: the queue and nvme-cli fill the rest.
#[track_caller]
fn assert_built(mut built: Sqe, captured: &Sqe) {
    (built.flags, built.cid, built.mptr, built.dptr) =
        (captured.flags, captured.cid, captured.mptr, captured.dptr);
    assert_eq!(built.as_bytes(), captured.as_bytes());
}

#[test]
fn placement_writes_of_nvme_cli_are_ours_byte_for_byte() {
    for (handle, lba) in [(0, 0), (3, 8), (7, 16)] {
        let sqe = captured(&format!("fdp-write-handle-{handle}"));
        assert_eq!(sqe.directive(), Directive { dtype: 2, dspec: handle });
        assert_eq!(sqe.directive().placement_id(), Some(PlacementId(handle)));
        let write = nvm::Command::Write(BlockRange::new(Lba(lba), 8), AccessFlags::default());
        assert_eq!(nvm::Command::parse(&sqe), write, "the directive does not disturb the rest");
        let mut built = write.encode(Nsid(1));
        built.set_directive(Directive::placement(PlacementId(handle)));
        assert_built(built, &sqe);
    }
}

#[test]
fn io_management_of_nvme_cli_is_ours_byte_for_byte() {
    let sqe = captured("fdp-ruh-status");
    let receive = IoManagementReceive { operation: ReceiveOperation::RuhStatus, specific: 0, dwords: 4 };
    assert_eq!(nvm::Command::parse(&sqe), nvm::Command::IoManagementReceive(receive));
    assert_eq!(receive.bytes(), 16);
    assert_built(nvm::Command::IoManagementReceive(receive).encode(Nsid(1)), &sqe);

    let sqe = captured("fdp-ruh-update");
    let send = IoManagementSend { operation: SendOperation::RuhUpdate { placement_ids: 1 } };
    assert_eq!(nvm::Command::parse(&sqe), nvm::Command::IoManagementSend(send));
    assert_built(nvm::Command::IoManagementSend(send).encode(Nsid(1)), &sqe);
}

#[test]
fn fdp_logs_are_asked_for_with_the_endurance_group_in_lsi() {
    for (name, lid, dwords) in [("fdp-configs", 0x20, 4), ("fdp-usage", 0x21, 2), ("fdp-stats", 0x22, 16)] {
        let sqe = captured(name);
        let log = admin::GetLogPage { lid, dwords, lsi: 1, ..Default::default() };
        assert_eq!(admin::Command::parse(&sqe), admin::Command::GetLogPage(log), "{name}");
        assert_built(admin::Command::GetLogPage(log).encode(), &sqe);
    }
}

#[test]
fn identify_data_says_that_fdp_is_there() {
    let id = IdentifyController::read_from_bytes(&bytes("identify-cns01-fdp.bin")).unwrap();
    let expected = ctratt::ENDURANCE_GROUPS | ctratt::EXTENDED_LBA_FORMATS | ctratt::FLEXIBLE_DATA_PLACEMENT;
    assert_eq!((id.ctratt, expected), (0x0008_8010, 0x0008_8010));
    assert_ne!(id.oacs & oacs::DIRECTIVES, 0);
    assert_eq!(id.endgidmax, 1);
    let id = IdentifyNamespace::read_from_bytes(&bytes("identify-cns00-nsid1-fdp.bin")).unwrap();
    assert_eq!(id.endgid, 1);
}

#[test]
fn the_configuration_of_qemu_decodes() {
    let log = bytes("log-20-fdp.bin");
    let mut configurations = Configurations::new(&log).unwrap();
    assert_eq!(configurations.left(), 1);
    let Configuration { descriptor, handles } = configurations.next().unwrap();
    assert_eq!(configurations.next(), None);
    assert_eq!((descriptor.dsze, descriptor.fdpa, descriptor.vss), (0x60, Fdpa::new().with_valid(true), 0));
    assert_eq!((descriptor.nrg, descriptor.nruh, descriptor.maxpids_z), (1, 8, 127));
    assert_eq!((descriptor.nnss, descriptor.runs, descriptor.erutl), (256, 16 << 20, 0));
    assert_eq!(handles, [RuhDescriptor::new(RuhType::INITIALLY_ISOLATED); 8]);

    // Writing what was read gives the same bytes.
    let mut written = [0xa5; 512];
    let length = fdp::write_configurations(&[Configuration { descriptor, handles }], &mut written).unwrap();
    assert_eq!(length, 0x70);
    assert_eq!(written[..length], log[..length]);
}

/// Two configurations from the specification's tables: 2 groups (RGIF 1) of 3 handles with a vendor specific
/// byte, and 1 group of 1 handle.
const TWO_CONFIGURATIONS: [u8; 176] = {
    let mut log = [0; 176];
    (log[0], log[4]) = (1, 176);
    // DSZE 88 (64 + 3 x 4 + 12), FDPA valid and RGIF 1, VSS 12, NRG 2, NRUH 3, MAXPIDS 6.
    (log[16], log[18], log[19], log[20], log[24], log[26]) = (88, 0x81, 12, 2, 3, 5);
    // NNSS 0, RUNS 1 MiB, ERUTL 3600.
    (log[34], log[40], log[41]) = (0x10, 0x10, 0x0e);
    (log[80], log[84], log[88]) = (1, 2, 0xc0);
    // DSZE 72, not valid but with a volatile write cache, NRG 1, NRUH 1.
    (log[104], log[106], log[108], log[112]) = (72, 0x10, 1, 1);
    log[168] = 2;
    log
};

#[test]
fn configurations_are_as_long_as_they_say() {
    let all: Vec<_> = Configurations::new(&TWO_CONFIGURATIONS).unwrap().collect();
    let [first, second] = all[..] else { panic!("not two: {all:?}") };
    let d = first.descriptor;
    assert_eq!((d.fdpa.valid(), d.fdpa.rgif(), d.fdpa.volatile_write_cache()), (true, 1, false));
    assert_eq!((d.vss, d.nrg, d.nruh, d.maxpids_z, d.runs, d.erutl), (12, 2, 3, 5, 1 << 20, 3600));
    let types: Vec<_> = first.handles.iter().map(|handle| handle.ruht).collect();
    assert_eq!(types, [RuhType::INITIALLY_ISOLATED, RuhType::PERSISTENTLY_ISOLATED, RuhType(0xc0)]);
    let d = second.descriptor;
    assert_eq!((d.fdpa.valid(), d.fdpa.volatile_write_cache(), d.nrg, d.nruh), (false, true, 1, 1));
    assert_eq!(second.handles, [RuhDescriptor::new(RuhType::PERSISTENTLY_ISOLATED)]);
}

#[test]
fn configurations_that_are_cut_short_or_contradict_themselves_end_the_list() {
    assert!(Configurations::new(&TWO_CONFIGURATIONS[..15]).is_none(), "no whole header");
    for length in 16..TWO_CONFIGURATIONS.len() {
        let read = Configurations::new(&TWO_CONFIGURATIONS[..length]).unwrap().count();
        assert_eq!(read, usize::from(length >= 104), "of {length} bytes");
    }
    // A size that leaves no room for the descriptor itself, or for its handles.
    for dsze in [0, 63, 64 + 11] {
        let mut log = TWO_CONFIGURATIONS;
        log[16] = dsze;
        assert_eq!(Configurations::new(&log).unwrap().count(), 0, "DSZE {dsze}");
    }
    // More handles than the whole page.
    let mut log = TWO_CONFIGURATIONS;
    (log[24], log[25]) = (0xff, 0xff);
    assert_eq!(Configurations::new(&log).unwrap().count(), 0);
    // 65536 configurations announced: as many as there are bytes for. Zeroes are none.
    let mut log = [0; 4096];
    log[..176].copy_from_slice(&TWO_CONFIGURATIONS);
    (log[0], log[1]) = (0xff, 0xff);
    assert_eq!(Configurations::new(&log).unwrap().count(), 2);
}

#[test]
fn written_configurations_are_padded_to_eight_bytes_and_sized_by_their_handles() {
    let handles = [RuhDescriptor::new(RuhType::PERSISTENTLY_ISOLATED); 3];
    let mut descriptor = ConfigurationDescriptor::default();
    (descriptor.nruh, descriptor.dsze, descriptor.vss) = (99, 7, 5);
    let one = Configuration { descriptor, handles: &handles };
    let mut log = [0xa5; 512];
    assert_eq!(fdp::write_configurations(&[one, one], &mut log), Some(176));
    assert_eq!(log[..8], [1, 0, 0, 0, 176, 0, 0, 0]);
    assert_eq!(log[16..20], [80, 0, 0, 0]);
    assert_eq!(log[24], 3);
    assert_eq!(log[80..96], [2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(log[96..100], [80, 0, 0, 0]);
    assert_eq!(log[176], 0xa5, "nothing is written behind the page");
    assert_eq!(fdp::write_configurations(&[one, one], &mut log[..175]), None);
    assert_eq!(fdp::write_configurations(&[], &mut log), None);
    assert_eq!(fdp::write_configurations(&[one], &mut log[..8]), None);
}

#[test]
fn the_handle_usage_of_qemu_decodes() {
    let log = bytes("log-21-fdp.bin");
    let used: Vec<_> = fdp::ruh_usages(&log).unwrap().map(|usage| usage.ruha).collect();
    assert_eq!(used, [RuhUse::HOST_SPECIFIED; 8]);
    assert_eq!(fdp::ruh_usages(&log[..31]).unwrap().count(), 2, "what is not whole is not read");
    assert!(fdp::ruh_usages(&log[..7]).is_none());
    let mine =
        [3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
    let used: Vec<_> = fdp::ruh_usages(&mine).unwrap().map(|usage| usage.ruha).collect();
    assert_eq!(used, [RuhUse::CONTROLLER_SPECIFIED, RuhUse::UNUSED, RuhUse(7)]);
    assert_eq!(format!("{used:?}"), "[Controller Specified, Unused, attribute 0x07]");
}

#[test]
fn statistics_are_three_counters_of_128_bits() {
    let qemu = Statistics::read_from_bytes(&bytes("log-22-fdp.bin")).unwrap();
    assert_eq!((qemu.hbmw.get(), qemu.mbmw.get(), qemu.mbe.get()), (12288, 16_785_408, 0));
    let mut log = [0; 64];
    (log[15], log[16], log[47]) = (0x80, 0x01, 0x40);
    let wide = Statistics::read_from_bytes(&log).unwrap();
    assert_eq!((wide.hbmw.get(), wide.mbmw.get(), wide.mbe.get()), (1 << 127, 1, 1 << 126));
}

#[test]
fn the_event_log_of_qemu_is_empty_and_other_sizes_are_safe() {
    let log = bytes("log-23-fdp.bin");
    assert_eq!(fdp::events(&log).unwrap().count(), 0);
    assert!(fdp::events(&log[..63]).is_none());
    let mut log = [0; 64 + 3 * 64 + 63];
    log[..4].fill(0xff);
    assert_eq!(fdp::events(&log).unwrap().count(), 3, "as many as the bytes hold");
    log[..4].copy_from_slice(&[2, 0, 0, 0]);
    assert_eq!(fdp::events(&log).unwrap().count(), 2, "as many as the header says");
}

#[test]
fn an_event_has_these_64_bytes() {
    let mut expected = [0; 64];
    expected[..4].copy_from_slice(&[0x03, 0x07, 0x34, 0x12]);
    expected[4..12].copy_from_slice(&[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x02, 0]);
    expected[12..16].copy_from_slice(&[0x04, 0x03, 0x02, 0x01]);
    expected[32..36].copy_from_slice(&[0x22, 0x11, 0x21, 0x43]);
    let event = Event::new(EventType::INVALID_PLACEMENT_ID, Timestamp::new(0x3344_5566_7788, 2))
        .with_placement_id(PlacementId(0x1234))
        .with_nsid(Nsid(0x0102_0304))
        .with_location(ReclaimGroup(0x1122), Ruhid(0x4321));
    assert_eq!(event.as_bytes(), expected);
    let mut log = [0; 128];
    log[0] = 1;
    log[64..].copy_from_slice(&expected);
    let read: Vec<_> = fdp::events(&log).unwrap().collect();
    assert_eq!(read, [event]);
    assert_eq!(read[0].placement_id(), Some(PlacementId(0x1234)));
    assert_eq!(read[0].namespace(), Some(Nsid(0x0102_0304)));
    assert_eq!(read[0].location(), Some((ReclaimGroup(0x1122), Ruhid(0x4321))));
    assert_eq!(read[0].timestamp.milliseconds(), 0x3344_5566_7788);
    assert_eq!(read[0].media_reallocated(), None, "another type");
}

#[test]
fn fields_of_an_event_whose_flag_is_clear_say_nothing() {
    let mut bytes = [0xff; 64];
    bytes[1] = 0;
    let event = Event::read_from_bytes(&bytes).unwrap();
    assert_eq!((event.placement_id(), event.namespace(), event.location()), (None, None, None));
    for (bit, expected) in [(0, (true, false, false)), (1, (false, true, false)), (2, (false, false, true))] {
        let flags = EventFlags::from_bits(1 << bit);
        assert_eq!((flags.placement_id(), flags.nsid(), flags.location()), expected);
    }
}

#[test]
fn a_media_reallocated_event_says_what_was_moved() {
    let mut bytes = [0; 64];
    bytes[0] = 0x80;
    bytes[16..28].copy_from_slice(&[1, 0, 0x10, 0x02, 8, 7, 6, 5, 4, 3, 2, 1]);
    let event = Event::read_from_bytes(&bytes).unwrap();
    let moved = MediaReallocated::new(0x0210, Some(Lba(0x0102_0304_0506_0708)));
    assert_eq!(event.media_reallocated(), Some(moved));
    assert_eq!((moved.moved(), moved.first()), (0x0210, Some(Lba(0x0102_0304_0506_0708))));
    let built = Event::new(EventType::MEDIA_REALLOCATED, Timestamp::default()).with_media_reallocated(moved);
    assert_eq!(built.as_bytes(), bytes);
    bytes[16] = 0;
    let event = Event::read_from_bytes(&bytes).unwrap();
    assert_eq!(event.media_reallocated().unwrap().first(), None, "LBAV is clear");
}

#[test]
fn event_types_are_named_and_belong_to_the_host_or_the_controller() {
    let named: Vec<_> = EventType::NAMED.iter().map(|event| (event.0, event.is_host())).collect();
    let expected = [(0, true), (1, true), (2, true), (3, true), (0x80, false), (0x81, false)];
    assert_eq!(named, expected);
    assert!(EventType::NAMED.iter().all(|event| event.name().is_some()));
    assert_eq!(format!("{:?}", EventType(0x70)), "event 0x70");
    assert_eq!(format!("{:?}", EventType::MEDIA_REALLOCATED), "Media Reallocated");
}

#[test]
fn the_handle_status_of_qemu_decodes() {
    let status = bytes("ruh-status-fdp.bin");
    let handles: Vec<_> = fdp::ruh_statuses(&status).unwrap().collect();
    assert_eq!(handles.len(), 8);
    for (index, handle) in (0..).zip(&handles) {
        let left = if index == 0 || index == 7 { 0x7ff8 } else { 0x8000 };
        assert_eq!((handle.placement_id(), handle.ruhid), (PlacementId(index), index));
        assert_eq!((handle.earutr, handle.ruamw), (0, left));
    }
    assert_eq!(fdp::ruh_statuses(&status[..16 + 63]).unwrap().count(), 1);
    assert!(fdp::ruh_statuses(&status[..15]).is_none());
    // What was read is what is written.
    assert_eq!(RuhStatusHeader::new(8).as_bytes(), &status[..16]);
    assert_eq!(fdp::ruh_status_count(&status[..16]), Some(8), "whatever follows");
    assert_eq!(fdp::ruh_status_count(&status[..15]), None);
    assert_eq!(handles[7].as_bytes(), &status[16 + 7 * 32..16 + 8 * 32]);
    let mut full = [0xff; 32];
    full[..8].copy_from_slice(&[1, 0, 2, 0, 3, 0, 0, 0]);
    let handle = RuhStatus::read_from_bytes(&full).unwrap();
    assert_eq!((handle.pid, handle.ruhid, handle.earutr, handle.ruamw), (1, 2, 3, u64::MAX));
}

#[test]
fn a_handle_update_lists_placement_identifiers_of_two_bytes() {
    let list: Vec<_> = fdp::placement_ids(&[1, 0, 0xff, 0xff, 0x34, 0x12, 9]).collect();
    assert_eq!(list, [PlacementId(1), PlacementId(0xffff), PlacementId(0x1234)]);
    let most = IoManagementSend { operation: SendOperation::RuhUpdate { placement_ids: 65536 } };
    let sqe = nvm::Command::IoManagementSend(most).encode(Nsid(1));
    assert_eq!((sqe.opcode, sqe.cdw10), (0x1d, 0xffff_0001));
    assert_eq!(nvm::Command::parse(&sqe), nvm::Command::IoManagementSend(most));
}

#[test]
fn a_placement_identifier_is_a_group_in_its_upper_bits_and_a_handle() {
    let cases = [
        // RGIF, identifier, group, handle.
        (0, 0x0000, 0, 0),
        (0, 0xffff, 0, 0xffff),
        (1, 0x8003, 1, 0x0003),
        (1, 0x7fff, 0, 0x7fff),
        (4, 0xa123, 0xa, 0x123),
        (15, 0xffff, 0x7fff, 1),
        (15, 0xfffe, 0x7fff, 0),
        (16, 0xffff, 0xffff, 0),
        (16, 0x0001, 1, 0),
    ];
    for (bits, id, group, handle) in cases {
        let format = Rgif::new(bits).unwrap();
        let (group, handle) = (ReclaimGroup(group), PlacementHandle(handle));
        assert_eq!(format.split(PlacementId(id)), (group, handle), "RGIF {bits}, identifier {id:#06x}");
        assert_eq!(format.join(group, handle), Some(PlacementId(id)), "RGIF {bits}");
    }
    assert_eq!(Rgif::new(17), None);
}

#[test]
fn every_placement_identifier_survives_every_format() {
    for bits in 0..=16 {
        let format = Rgif::new(bits).unwrap();
        for id in 0..=u16::MAX {
            let (group, handle) = format.split(PlacementId(id));
            assert_eq!(format.join(group, handle), Some(PlacementId(id)), "RGIF {bits}");
        }
    }
}

#[test]
fn a_group_or_handle_that_has_no_room_is_not_joined() {
    let joined =
        |bits, group, handle| Rgif::new(bits).unwrap().join(ReclaimGroup(group), PlacementHandle(handle));
    assert_eq!(joined(0, 1, 0), None);
    assert_eq!(joined(1, 2, 0), None);
    assert_eq!(joined(1, 0, 0x8000), None);
    assert_eq!(joined(16, 0, 1), None);
    assert_eq!(joined(15, 0x8000, 0), None);
    assert_eq!(joined(15, 0, 2), None);
}

#[test]
fn the_format_is_as_long_as_the_groups_need() {
    let cases = [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (256, 8), (257, 9), (32768, 15), (65536, 16)];
    for (groups, bits) in cases {
        assert_eq!(Rgif::for_groups(groups).map(Rgif::bits), Some(bits), "{groups} groups");
    }
    assert_eq!(Rgif::for_groups(65537), None);
}

#[test]
fn a_directive_has_its_place_in_the_entry_and_leaves_the_rest() {
    let mut sqe = Sqe { cdw12: 0xffff_ffff, cdw13: 0xffff_ffff, ..Sqe::default() };
    assert_eq!(sqe.directive(), Directive { dtype: 0xf, dspec: 0xffff });
    sqe.set_directive(Directive { dtype: 2, dspec: 0x1234 });
    assert_eq!((sqe.cdw12, sqe.cdw13), (0xff2f_ffff, 0x1234_ffff));
    sqe.set_directive(Directive::default());
    assert_eq!((sqe.cdw12, sqe.cdw13), (0xff0f_ffff, 0x0000_ffff));
    assert_eq!(Directive { dtype: dtype::STREAMS, dspec: 3 }.placement_id(), None);
    assert_eq!(Sqe::default().directive().placement_id(), None, "a write without a directive");
}

#[test]
fn directive_commands_put_each_field_where_the_specification_says() {
    let receive = admin::DirectiveReceive {
        nsid: Nsid(3),
        dwords: 1024,
        operation: directive::identify_operation::RETURN_PARAMETERS,
        dtype: dtype::IDENTIFY,
        dspec: 0xabcd,
        cdw12: 0x1122_3344,
    };
    let sqe = admin::Command::DirectiveReceive(receive).encode();
    assert_eq!((sqe.opcode, sqe.nsid), (0x1a, 3));
    assert_eq!((sqe.cdw10, sqe.cdw11, sqe.cdw12), (0x3ff, 0xabcd_0001, 0x1122_3344));
    assert_eq!(admin::Command::parse(&sqe), admin::Command::DirectiveReceive(receive));
    assert_eq!(receive.bytes(), 4096);

    let enable = EnableDirective::new().with_enable(true).with_target(dtype::DATA_PLACEMENT);
    let send = admin::DirectiveSend {
        nsid: Nsid(3),
        dwords: 1,
        operation: directive::identify_operation::ENABLE_DIRECTIVE,
        cdw12: enable.into(),
        ..Default::default()
    };
    let sqe = admin::Command::DirectiveSend(send).encode();
    assert_eq!((sqe.opcode, sqe.cdw10, sqe.cdw11, sqe.cdw12), (0x19, 0, 1, 0x0000_0201));
    assert_eq!(admin::Command::parse(&sqe), admin::Command::DirectiveSend(send));
}

#[test]
fn the_identify_directive_lists_directives_as_bits() {
    let mut expected = [0; 4096];
    (expected[0], expected[32], expected[64], expected[95]) = (0b101, 0b001, 0b100, 0x80);
    let parameters = IdentifyParameters::read_from_bytes(&expected).unwrap();
    assert!(parameters.supported.contains(dtype::DATA_PLACEMENT));
    assert!(!parameters.supported.contains(dtype::STREAMS));
    assert_eq!(parameters.persistent, DirectiveSet::of(&[dtype::DATA_PLACEMENT, 255]));
    let mut built = IdentifyParameters::new_zeroed();
    built.supported = DirectiveSet::of(&[dtype::IDENTIFY, dtype::DATA_PLACEMENT]);
    built.enabled = DirectiveSet::of(&[dtype::IDENTIFY]);
    built.persistent = DirectiveSet::of(&[dtype::DATA_PLACEMENT, 255]);
    assert_eq!(built.as_bytes(), expected);
}

#[test]
fn features_of_fdp_have_the_specified_fields() {
    let value = FlexibleDataPlacement::from(0x0000_0301);
    assert_eq!((value.enabled(), value.configuration()), (true, 3));
    assert_eq!(u32::from(FlexibleDataPlacement::new().with_configuration(0xff)), 0xff00);
    let events = FdpEvents::new().with_placement_handle(0x1234).with_event_types(6);
    assert_eq!(u32::from(events), 0x0006_1234);
    assert_eq!(u32::from(FdpEventsEnable::new().with_enabled(true)), 1);
    let listed = <[EventSupport]>::ref_from_bytes(&[0x00, 1, 0x80, 0xfe]).unwrap();
    assert_eq!(listed[0], EventSupport::new(EventType::RU_NOT_FULLY_WRITTEN, true));
    assert_eq!((listed[1].event_type, listed[1].enabled()), (EventType::MEDIA_REALLOCATED, false));
}

#[test]
fn namespace_creation_data_lists_reclaim_unit_handles() {
    let mut bytes = [0; 4096];
    (bytes[102], bytes[392], bytes[512], bytes[514], bytes[767]) = (1, 128, 5, 7, 0x80);
    let create = NamespaceCreate::read_from_bytes(&bytes).unwrap();
    assert_eq!((create.endgid, create.nphndls), (1, 128));
    assert_eq!((create.phndl[0], create.phndl[1], create.phndl[127]), (5, 7, 0x8000));
    assert_eq!(create.phndl.len(), fdp::RUH_MAX);
}

#[test]
fn a_namespace_for_pairs_lists_them_at_the_same_place() {
    let mut bytes = [0; 4096];
    (bytes[7], bytes[46], bytes[392], bytes[512], bytes[766]) = (1, 1, 2, 5, 9);
    let pairs = KvNamespaceCreate::read_from_bytes(&bytes).unwrap();
    assert_eq!((pairs.nsze, pairs.endgid, pairs.nphndls), (1 << 56, 1, 2));
    assert_eq!((pairs.phndl[0], pairs.phndl[127]), (5, 9));
    assert_eq!(NamespaceCreate::from(pairs).as_bytes(), bytes);
}

#[test]
fn headers_have_these_bytes() {
    assert_eq!(EventsHeader::new(63).as_bytes()[..5], [63, 0, 0, 0, 0]);
    assert_eq!(fdp::RuhUsageHeader::new(0x0102).as_bytes(), [2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(fdp::RuhUsage::new(RuhUse::HOST_SPECIFIED).as_bytes(), [1, 0, 0, 0, 0, 0, 0, 0]);
    let mut header = ConfigurationsHeader::default();
    (header.n_z, header.size) = (2, 0x0102_0304);
    assert_eq!(header.as_bytes()[..8], [2, 0, 0, 0, 4, 3, 2, 1]);
}

#[test]
fn endurance_group_fields_are_where_the_specification_puts_them() {
    let mut bytes = [0; 512];
    (bytes[0], bytes[3], bytes[4], bytes[5], bytes[6]) = (1, 100, 10, 250, 7);
    for (index, offset) in (32..192).step_by(16).enumerate() {
        bytes[offset] = index as u8 + 1;
    }
    let log = EnduranceGroup::read_from_bytes(&bytes).unwrap();
    assert_eq!((log.critical_warning, log.available_spare, log.available_spare_threshold), (1, 100, 10));
    assert_eq!((log.percentage_used, log.domain.get()), (250, 7));
    let counters = [
        log.endurance_estimate,
        log.data_units_read,
        log.data_units_written,
        log.media_units_written,
        log.host_reads,
        log.host_writes,
        log.media_errors,
        log.error_log_entries,
        log.total_capacity,
        log.unallocated_capacity,
    ];
    assert_eq!(counters.map(|counter| counter.get()), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
}
