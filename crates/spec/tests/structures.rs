//! Data structures against literal bytes from the specification.

use unvme_spec::{
    Cqe, Nsid, Sqe, Status, feature,
    identify::{
        ControllerList, DescriptorIter, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, IoCommandSets,
        LbaFormat, NamespaceCreate, NamespaceIdDescriptor, NamespaceList, text, write_descriptors,
    },
    log_page::{AsyncEvent, ErrorInformation, FirmwareSlot, SmartHealth, error_event, event_type, lid},
    regs, sgl,
    status::StatusCodeType,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// A page of zeroes with `bytes` at `offset`.
fn page(fields: &[(usize, &[u8])]) -> [u8; 4096] {
    let mut page = [0; 4096];
    for (offset, bytes) in fields {
        page[*offset..*offset + bytes.len()].copy_from_slice(bytes);
    }
    page
}

#[test]
fn identify_controller_fields_are_where_the_specification_puts_them() {
    let bytes = page(&[
        (0, &[0x36, 0x1b]),
        (4, b"SERIAL              "),
        (64, b"1.0     "),
        (73, &[0x00, 0x54, 0x52]),
        (77, &[7]),
        (80, &[0x00, 0x00, 0x02, 0x00]),
        (96, &[0x00, 0x80, 0x00, 0x00]),
        (111, &[1]),
        (256, &[0x0e, 0x00, 3, 7, 0x02, 0x26, 63]),
        (266, &[0x57, 0x01, 0x5c, 0x01]),
        (280, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
        (512, &[0x66, 0x44]),
        (516, &[4, 1, 0, 0, 0x5f, 0x01, 1, 0]),
        (525, &[0x07]),
        (536, &[0x01, 0x00, 0x01, 0x00]),
        (768, b"nqn.2014-08.org.nvmexpress:x"),
        (2048, &[0xc4, 0x09]),
        (2052, &[0x10]),
        (3072, &[0xee]),
    ]);
    let controller = IdentifyController::read_from_bytes(&bytes).unwrap();
    assert_eq!(controller.vid, 0x1b36);
    assert_eq!(text::Text::new(&controller.sn).to_string(), "SERIAL");
    assert_eq!(text::Text::new(&controller.fr).to_string(), "1.0");
    assert_eq!((controller.ieee, controller.mdts, controller.ver), ([0x00, 0x54, 0x52], 7, 0x0002_0000));
    assert_eq!((controller.ctratt, controller.cntrltype), (0x8000, 1));
    assert_eq!((controller.oacs, controller.acl_z, controller.aerl_z), (0x000e, 3, 7));
    assert_eq!((controller.frmw, controller.lpa, controller.elpe_z), (0x02, 0x26, 63));
    assert_eq!((controller.wctemp, controller.cctemp), (343, 348));
    assert_eq!(controller.tnvmcap.get(), 0x100f_0e0d_0c0b_0a09_0807_0605_0403_0201);
    assert_eq!((controller.sqes, controller.cqes, controller.nn), (0x66, 0x44, 260));
    assert_eq!((controller.oncs, controller.fuses, controller.vwc), (0x015f, 1, 7));
    assert_eq!(controller.sgls, 0x0001_0001);
    assert_eq!(text::nqn(&controller.subnqn), Some("nqn.2014-08.org.nvmexpress:x"));
    assert_eq!((controller.psd[0].mp, controller.psd[0].enlat, controller.vs[0]), (2500, 16, 0xee));
    assert_eq!(controller.as_bytes(), bytes);
}

#[test]
fn identify_namespace_fields_are_where_the_specification_puts_them() {
    let bytes = page(&[
        (0, &[0, 0, 0x20]),
        (8, &[0, 0, 0x10]),
        (16, &[1]),
        (24, &[0x14, 1, 0x01]),
        (33, &[0x09]),
        (46, &[0x80]),
        (48, &[0, 0, 0, 0, 2]),
        (72, &[0x7f, 0x00]),
        (99, &[1]),
        (104, &[0xaa; 16]),
        (120, &[0xbb; 8]),
        (128, &[0, 0, 9, 2]),
        (132, &[8, 0, 12, 0]),
        (384, &[0xcc]),
    ]);
    let namespace = IdentifyNamespace::read_from_bytes(&bytes).unwrap();
    assert_eq!((namespace.nsze, namespace.ncap, namespace.nuse), (0x20_0000, 0x10_0000, 1));
    assert_eq!((namespace.nsfeat, namespace.nlbaf_z, namespace.dlfeat), (0x14, 1, 9));
    assert_eq!((namespace.noiob, namespace.nvmcap.get(), namespace.nows_z), (0x80, 2 << 32, 127));
    assert_eq!((namespace.nsattr, namespace.nguid, namespace.eui64), (1, [0xaa; 16], [0xbb; 8]));
    assert_eq!((namespace.format().ms, namespace.format().block_bytes()), (8, Some(4096)));
    assert_eq!((namespace.lbaf[0].rp, namespace.lbaf[0].block_bytes()), (2, Some(512)));
    assert_eq!(namespace.vs[0], 0xcc);
}

#[test]
fn the_upper_bits_of_flbas_count_only_above_16_formats() {
    let mut namespace = IdentifyNamespace::new_zeroed();
    namespace.flbas = 0b0110_0011;
    namespace.nlbaf_z = 15;
    assert_eq!(namespace.format_index(), 3);
    namespace.nlbaf_z = 16;
    assert_eq!(namespace.format_index(), 0x33);
    namespace.nlbaf_z = 255;
    namespace.nulbaf = 255;
    namespace.flbas = 0xff;
    assert_eq!(namespace.format_index(), 63);
    assert_eq!(namespace.format().block_bytes(), None);
}

#[test]
fn block_sizes_below_512_bytes_or_absurdly_large_are_no_block_sizes() {
    let format = |lbads| LbaFormat { lbads, ..LbaFormat::default() }.block_bytes();
    assert_eq!([0, 8, 32, 64, 255].map(format), [None; 5]);
    assert_eq!([9, 12, 31].map(format), [Some(512), Some(4096), Some(1 << 31)]);
}

#[test]
fn namespace_creation_data_shares_the_offsets_of_identify_namespace() {
    let mut create = NamespaceCreate::default();
    (create.nsze, create.ncap, create.flbas, create.nmic) = (0x0102, 0x0304, 0x25, 1);
    (create.nvmsetid, create.endgid, create.anagrpid) = (5, 6, 7);
    (create.lbstm, create.nphndls, create.phndl[127]) = (8, 9, 10);
    let expected = page(&[
        (0, &[2, 1]),
        (8, &[4, 3]),
        (26, &[0x25]),
        (30, &[1]),
        (92, &[7]),
        (100, &[5, 0, 6]),
        (384, &[8]),
        (392, &[9]),
        (766, &[10]),
    ]);
    assert_eq!(create.as_bytes(), expected);
    assert_eq!(create.format_index(), 0x15);
}

#[test]
fn namespace_lists_end_at_the_first_zero() {
    let list = NamespaceList::from_ascending([Nsid(1), Nsid(2), Nsid(0x0102_0304)]);
    assert_eq!(list.as_bytes()[..16], [1, 0, 0, 0, 2, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
    assert_eq!(list.iter().collect::<Vec<_>>(), [Nsid(1), Nsid(2), Nsid(0x0102_0304)]);
    let full = NamespaceList::from_ascending((1..5000).map(Nsid));
    assert_eq!(full.iter().count(), 1024);
}

#[test]
fn a_controller_list_that_claims_too_many_entries_is_refused() {
    let list = ControllerList::from_ascending([1, 0x0203]);
    assert_eq!(list.as_bytes()[..8], [2, 0, 1, 0, 3, 2, 0, 0]);
    assert_eq!(list.identifiers(), Some([1, 0x0203].as_slice()));
    let mut bytes = [0; 4096];
    bytes[..2].copy_from_slice(&2047_u16.to_le_bytes());
    assert_eq!(ControllerList::read_from_bytes(&bytes).unwrap().identifiers().map(<[u16]>::len), Some(2047));
    bytes[..2].copy_from_slice(&2048_u16.to_le_bytes());
    assert_eq!(ControllerList::read_from_bytes(&bytes).unwrap().identifiers(), None);
    assert_eq!(ControllerList::from_ascending(0..u16::MAX).count, 2047);
}

#[test]
fn namespace_descriptors_have_these_bytes() {
    let descriptors = [
        NamespaceIdDescriptor::Eui64([1, 2, 3, 4, 5, 6, 7, 8]),
        NamespaceIdDescriptor::Uuid([0x11; 16]),
        NamespaceIdDescriptor::Csi(0),
    ];
    let list = write_descriptors(&descriptors).unwrap();
    let mut expected = vec![1, 8, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 3, 16, 0, 0];
    expected.extend([0x11; 16]);
    expected.extend([4, 1, 0, 0, 0]);
    assert_eq!(list[..expected.len()], expected);
    assert!(list[expected.len()..].iter().all(|&byte| byte == 0));
    assert_eq!(DescriptorIter::new(&list).collect::<Vec<_>>(), descriptors);
}

#[test]
fn hostile_descriptor_lists_end_instead_of_reading_on() {
    let read = |bytes: &'static [u8]| DescriptorIter::new(bytes).collect::<Vec<_>>();
    assert_eq!(read(&[]), []);
    assert_eq!(read(&[3, 16, 0]), []);
    assert_eq!(read(&[3, 16, 0, 0, 1, 2, 3]), []);
    assert_eq!(read(&[1, 0, 0, 0, 4, 1, 0, 0, 2]), []);
    let short_uuid = NamespaceIdDescriptor::Unknown { kind: 3, identifier: &[9, 9] };
    assert_eq!(read(&[3, 2, 0, 0, 9, 9, 4, 1, 0, 0, 2]), [short_uuid, NamespaceIdDescriptor::Csi(2)]);
    assert_eq!(DescriptorIter::new(&[0xff; IDENTIFY_BYTES]).count(), 15);
}

#[test]
fn descriptors_that_do_not_fit_are_not_written() {
    let long = NamespaceIdDescriptor::Unknown { kind: 9, identifier: &[1; 255] };
    assert!(write_descriptors(&[long; 15]).is_some());
    assert!(write_descriptors(&[long; 16]).is_none());
    assert!(
        write_descriptors(&[NamespaceIdDescriptor::Unknown { kind: 9, identifier: &[1; 256] }]).is_none()
    );
    assert!(write_descriptors(&[NamespaceIdDescriptor::Unknown { kind: 9, identifier: &[] }]).is_none());
}

#[test]
fn text_fields_are_padded_with_spaces_and_shown_without_control_characters() {
    let mut field = [0; 8];
    text::write(&mut field, "ab c");
    assert_eq!(&field, b"ab c    ");
    text::write(&mut field, "longer than the field");
    assert_eq!(&field, b"longer t");
    text::write(&mut field, "\u{e9}\n");
    assert_eq!(&field, b"??      ");
    assert_eq!(text::Text::new(b"x\x1b[2J\xff  \0\0").to_string(), "x?[2J?");
    assert_eq!(text::Text::new(b"   \0").to_string(), "");
}

#[test]
fn qualified_names_end_at_the_first_nul() {
    assert_eq!(text::nqn(b"nqn.x\0\0garbage"), Some("nqn.x"));
    assert_eq!(text::nqn(b"full"), Some("full"));
    assert_eq!(text::nqn(b"\xff\0"), None);
    let mut field = [0xaa; 6];
    assert!(!text::write_nqn(&mut field, "sixsix"));
    assert_eq!(field, [0xaa; 6]);
    assert!(text::write_nqn(&mut field, "five5"));
    assert_eq!(&field, b"five5\0");
}

#[test]
fn io_command_set_combinations_are_64_bits_each() {
    let sets = IoCommandSets::read_from_bytes(&page(&[(0, &[1]), (8, &[5])])).unwrap();
    assert_eq!(sets.combinations[..3], [1, 5, 0]);
}

#[test]
fn smart_health_fields_are_where_the_specification_puts_them() {
    let mut smart = SmartHealth::default();
    smart.critical_warning = 2;
    smart.temperature.set(0x0143);
    (smart.available_spare, smart.percentage_used) = (100, 3);
    smart.data_units_read.set(0x0201);
    smart.host_writes.set(0x0403);
    smart.error_log_entries.set(1 << 120);
    smart.temperature_sensors[7] = 0x0605;
    smart.thermal_time[1] = 0x0807;
    let bytes = smart.as_bytes();
    assert_eq!(bytes[..6], [2, 0x43, 0x01, 100, 0, 3]);
    assert_eq!((bytes[32], bytes[33], bytes[80], bytes[81]), (1, 2, 3, 4));
    assert_eq!((bytes[176], bytes[191], bytes[214], bytes[215]), (0, 1, 5, 6));
    assert_eq!((bytes[228], bytes[229]), (7, 8));
    assert_eq!(bytes.iter().filter(|&&byte| byte != 0).count(), 14);
}

#[test]
fn error_information_fields_are_where_the_specification_puts_them() {
    let mut bytes = [0; 64];
    bytes[..16].copy_from_slice(&[9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0x04, 0x40, 0x28, 0x00]);
    bytes[16] = 7;
    bytes[24] = 1;
    bytes[31] = 0x02;
    bytes[63] = 1;
    let entry = ErrorInformation::read_from_bytes(&bytes).unwrap();
    assert_eq!((entry.error_count, entry.sqid, entry.cid), (9, 1, 2));
    assert_eq!(Status::from_raw(entry.status_phase >> 1), Status::INVALID_FIELD.with_more());
    assert_eq!((entry.parameter_location, entry.lba, entry.nsid), (40, 7, 1));
    assert_eq!((entry.opcode, entry.version), (2, 1));
}

#[test]
fn firmware_slots_follow_the_active_slot_byte() {
    let mut slots = FirmwareSlot::default();
    slots.afi = 0x21;
    slots.frs[1] = *b"2.0     ";
    assert_eq!((slots.as_bytes()[0], &slots.as_bytes()[16..24]), (0x21, b"2.0     ".as_slice()));
}

#[test]
fn an_invalid_doorbell_event_has_this_dword() {
    let event =
        AsyncEvent::of(event_type::ERROR, error_event::INVALID_DOORBELL_VALUE, lid::ERROR_INFORMATION);
    assert_eq!(u32::from(event), 0x0001_0100);
    let notice = AsyncEvent::from(0x0004_0002);
    assert_eq!((notice.event_type(), notice.info(), notice.log_page()), (2, 0, 4));
}

#[test]
fn feature_dwords_have_the_specified_fields() {
    let queues = feature::NumberOfQueues::from(0x000f_0007);
    assert_eq!((queues.submission_z(), queues.completion_z()), (7, 15));
    let threshold = feature::TemperatureThreshold::new().with_kelvins(343).with_sensor(2).with_kind(1);
    assert_eq!(u32::from(threshold), 0x0012_0157);
    assert_eq!(u32::from(feature::ErrorRecovery::new().with_deallocated_error(true)), 1 << 16);
    assert_eq!(
        u32::from(feature::InterruptVectorConfiguration::new().with_coalescing_disable(true)),
        1 << 16
    );
    let events = feature::AsyncEventConfiguration::new().with_firmware_activation(true);
    assert_eq!(u32::from(events), 1 << 9);
    assert_eq!(feature::Arbitration::from(0x0403_0205).high_weight_z(), 4);
    assert_eq!(feature::Arbitration::from(0x0403_0205).burst(), 5);
    assert_eq!(u32::from(feature::Capabilities::new().with_changeable(true)), 4);
    assert_eq!(feature::Select::from_raw(6), feature::Select::Reserved(6));
    assert_eq!(feature::fid::name(0x0e), Some("Timestamp"));
}

#[test]
fn a_timestamp_has_48_bits_of_milliseconds() {
    let stamp = feature::Timestamp::new(0xffff_0605_0403_0201, feature::Timestamp::ORIGIN_SET_FEATURES);
    assert_eq!(stamp.as_bytes(), [1, 2, 3, 4, 5, 6, 2, 0]);
    assert_eq!(stamp.milliseconds(), 0x0605_0403_0201);
}

#[test]
fn an_sgl_descriptor_is_the_data_pointer() {
    let descriptor = sgl::Descriptor::last_segment(0x1122_3344_5566_7788, 0x20);
    let bytes = [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x20, 0, 0, 0, 0, 0, 0, 0x30];
    assert_eq!(descriptor.as_bytes(), bytes);
    assert_eq!(descriptor.to_dptr().as_bytes(), bytes);
    assert_eq!(sgl::Descriptor::from_dptr(descriptor.to_dptr()), descriptor);
    assert_eq!((descriptor.kind(), descriptor.sub_type()), (3, 0));
    assert_eq!(sgl::Descriptor::bit_bucket(1).identifier, 0x10);
    let hostile = sgl::Descriptor::from_dptr([!0; 2]);
    assert_eq!((hostile.kind(), hostile.sub_type(), hostile.length), (15, 15, u32::MAX));
    assert_eq!(hostile.to_dptr(), [!0; 2]);
}

#[test]
fn a_completion_entry_carries_phase_and_status_in_its_last_two_bytes() {
    let bytes = [1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 3, 0, 0x34, 0x12, 0x05, 0x80];
    let cqe = Cqe::read_from_bytes(&bytes).unwrap();
    assert_eq!((cqe.dw0, cqe.sq_head, cqe.sq_id, cqe.cid), (1, 5, 3, 0x1234));
    assert!(cqe.phase());
    assert_eq!(cqe.status(), Status::INVALID_FIELD.with_do_not_retry());
    let mut again = Cqe { status_phase: 0, ..cqe };
    again.set_status(Status::INVALID_FIELD.with_do_not_retry(), true);
    assert_eq!(again.as_bytes(), bytes);
}

#[test]
fn psdt_says_how_to_read_the_data_pointer() {
    use unvme_spec::{DataPointerKind, Fuse};
    let mut sqe = Sqe { flags: 0x82, ..Sqe::default() };
    assert_eq!((sqe.data_pointer_kind(), sqe.fuse()), (DataPointerKind::SglMetadata, Fuse::Second));
    sqe.set_sgl();
    sqe.set_fuse(Fuse::First);
    assert_eq!(sqe.flags, 0x41);
}

#[test]
fn statuses_are_shown_by_name_with_their_code() {
    assert_eq!(Status::SUCCESS.to_string(), "Successful Completion (0x000)");
    assert_eq!(Status::INVALID_FIELD.to_string(), "Invalid Field in Command (0x002)");
    assert_eq!(Status::COMPARE_FAILURE.to_string(), "Compare Failure (0x285)");
    assert_eq!(
        Status::INVALID_QUEUE_SIZE.with_do_not_retry().to_string(),
        "Invalid Queue Size (0x102, do not retry)"
    );
    assert_eq!(Status::from_raw(0x7ff).to_string(), "status 0x7ff (0x07ff raw)");
    assert_eq!(Status::from_raw(0x47ff).to_string(), "status 0x7ff (0x47ff raw, do not retry)");
}

#[test]
fn a_status_is_its_type_and_its_code_and_hints_are_not_compared() {
    assert_eq!(Status::COMPARE_FAILURE.raw(), 0x285);
    assert_eq!(Status::COMPARE_FAILURE.code_type(), StatusCodeType::Media);
    assert_eq!(Status::new(5, 1).code_type(), StatusCodeType::Reserved(5));
    assert_eq!(Status::from_raw(0x7fff).kind(), Status::from_raw(0x7ff));
    assert!(Status::from_raw(0x6000).is_success());
    assert!(!Status::INVALID_OPCODE.is_success());
    assert_eq!(Status::from_raw(0xffff).raw(), 0x7fff);
}

#[test]
fn register_fields_have_the_specified_positions() {
    let cap = regs::Cap::from(0x0040_0020_0f01_07ff);
    assert_eq!((cap.mqes_z(), cap.cqr(), cap.to(), cap.dstrd()), (2047, true, 15, 0));
    assert_eq!((cap.css(), cap.mpsmin(), cap.mpsmax()), (1, 0, 4));
    let cc = regs::Cc::new().with_en(true).with_iosqes(6).with_iocqes(4).with_shn(regs::SHN_NORMAL);
    assert_eq!(u32::from(cc), 0x0046_4001);
    let csts = regs::Csts::from(0x0000_001d);
    assert_eq!((csts.rdy(), csts.cfs(), csts.shst(), csts.nssro()), (true, false, 3, true));
    assert_eq!(u32::from(regs::Aqa::new().with_asqs_z(31).with_acqs_z(63)), 0x003f_001f);
    assert_eq!(regs::version_parts(0x0001_0402), (1, 4, 2));
}

#[test]
fn words_of_an_entry_are_its_bytes() {
    let bytes: [u8; 64] = std::array::from_fn(|i| i as u8 + 1);
    let sqe: Sqe = zerocopy::transmute!(bytes);
    assert_eq!(sqe.to_words()[0], 0x0807_0605_0403_0201);
    assert_eq!(sqe.to_words()[7], 0x403f_3e3d_3c3b_3a39);
    assert_eq!(sqe.to_words().map(u64::to_le_bytes).concat(), bytes);
    let bytes: [u8; 16] = std::array::from_fn(|i| 0xf0 - i as u8);
    let cqe: Cqe = zerocopy::transmute!(bytes);
    assert_eq!(cqe.to_words(), [0xe9ea_ebec_edee_eff0, 0xe1e2_e3e4_e5e6_e7e8]);
}
