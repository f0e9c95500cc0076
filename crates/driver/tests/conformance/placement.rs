//! Flexible Data Placement: writes that say where their data goes, and what the device tells of it.

use unvme_driver::{
    Controller, Error, FdpEventSource, Namespace, Payload, Queue, QueueOptions, WriteOptions,
};
use unvme_flash::ftl::Isolation;
use unvme_spec::directive::dtype;
use unvme_spec::fdp::{
    EventType, PlacementHandle, PlacementId, ReclaimGroup, Rgif, RuhStatus, RuhType, RuhUse, Ruhid,
    ruh_status_count, ruh_statuses,
};
use unvme_spec::feature::FlexibleDataPlacement;
use unvme_spec::identify::{NamespaceCreate, csi};
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::{Lba, Nsid, Sqe, Status};
use unvme_ssd::{FlashConfig, FlashGeometry, SsdConfig};

use crate::rig::{MEDIA_BYTES, Rig, Transport, block_queue, filled, run, small};

const BLOCK: usize = 4096;
const UNIT_BLOCKS: u64 = 64;
const GROUP: u16 = 1;

/// Four handles, units of 64 blocks of 4 KiB, FDP enabled with configuration `index`.
fn placed(index: u8) -> SsdConfig {
    let geometry = FlashGeometry {
        unit_bytes: UNIT_BLOCKS * BLOCK as u64,
        groups: 1,
        handles: vec![Isolation::Initially; 4],
    };
    let flash = FlashConfig { geometry, overprovisioning: 0.5, ..FlashConfig::default() };
    SsdConfig { flash: Some(flash), fdp: Some(index), ..SsdConfig::block(MEDIA_BYTES, BLOCK as u32) }
}

fn range(start: u64, blocks: u32) -> BlockRange {
    BlockRange::new(Lba(start), blocks)
}

fn connect(rig: &Rig) -> (Controller, Queue, Namespace) {
    block_queue(rig, &QueueOptions::default())
}

/// Writes `blocks` blocks from `start` on.
fn write(
    (controller, queue, namespace): &mut (Controller, Queue, Namespace),
    start: u64,
    blocks: u32,
    options: WriteOptions,
) -> Status {
    let sqe = namespace.write(range(start, blocks), options).expect("a write");
    let data = filled(controller, &vec![start as u8; blocks as usize * BLOCK]);
    run(queue, sqe, Some(Payload::whole(data))).status
}

fn status(
    (controller, queue, namespace): &mut (Controller, Queue, Namespace),
) -> Result<Vec<RuhStatus>, Status> {
    let buf = controller.alloc(Namespace::ruh_status_bytes(64)).unwrap();
    let (sqe, payload) = namespace.ruh_status(buf).unwrap();
    let completion = run(queue, sqe, Some(payload));
    if !completion.status.is_success() {
        return Err(completion.status.kind());
    }
    let data = completion.buf.unwrap().to_vec();
    let all: Vec<_> = ruh_statuses(&data).unwrap().collect();
    assert_eq!(ruh_status_count(&data), Some(all.len() as u16));
    Ok(all)
}

/// Blocks left of each placement identifier.
fn left(host: &mut (Controller, Queue, Namespace)) -> Vec<u64> {
    status(host).expect("reclaim unit handle status").iter().map(|handle| handle.ruamw).collect()
}

fn update(
    (controller, queue, namespace): &mut (Controller, Queue, Namespace),
    placements: &[PlacementId],
) -> Status {
    let (sqe, payload) = namespace.ruh_update(placements, controller.alloc(BLOCK).unwrap()).unwrap();
    run(queue, sqe, Some(payload)).status.kind()
}

pub(crate) fn a_placed_write_carries_its_directive_and_a_plain_one_none(transport: Transport) {
    let rig = transport(small());
    let (controller, _queue, namespace) = connect(&rig);
    // What nvme-cli puts there for `--dir-type=2 --dir-spec=3` (tests/vectors/fdp.hex, fdp-write-handle-3).
    let sqe = namespace.write(range(8, 8), WriteOptions::placed(PlacementId(3))).unwrap();
    let expected =
        Sqe { opcode: 0x01, nsid: 1, cdw10: 8, cdw12: 0x0020_0007, cdw13: 0x0003_0000, ..Sqe::default() };
    assert_eq!(sqe, expected);
    let through = WriteOptions { flags: AccessFlags::FUA, placement: Some(PlacementId(0xffff)) };
    let sqe = namespace.write(range(0, 1), through).unwrap();
    assert_eq!((sqe.cdw12, sqe.cdw13), (0x4020_0000, 0xffff_0000));
    for plain in [WriteOptions::default(), AccessFlags::default().into()] {
        let sqe = namespace.write(range(8, 8), plain).unwrap();
        assert_eq!((sqe.cdw12, sqe.cdw13), (7, 0));
    }

    let (sqe, payload) = namespace.ruh_status(controller.alloc(16).unwrap()).unwrap();
    assert_eq!((sqe.opcode, sqe.nsid, sqe.cdw10, sqe.cdw11, payload.bytes), (0x12, 1, 1, 3, 16));
    let list = [PlacementId(3), PlacementId(0x8001)];
    let (sqe, payload) = namespace.ruh_update(&list, controller.alloc(4).unwrap()).unwrap();
    assert_eq!((sqe.opcode, sqe.nsid, sqe.cdw10, sqe.cdw11), (0x1d, 1, 0x0001_0001, 0));
    assert_eq!((payload.bytes, payload.buf.to_vec()), (4, vec![3, 0, 1, 0x80]));
}

pub(crate) fn placement_commands_that_make_no_sense_are_refused_before_they_are_sent(transport: Transport) {
    let rig = transport(small());
    let (controller, _queue, namespace) = connect(&rig);
    let buf = |bytes| controller.alloc(bytes).unwrap();
    assert!(matches!(namespace.ruh_status(buf(15)), Err(Error::InvalidArgument(_))));
    assert!(matches!(namespace.ruh_update(&[], buf(16)), Err(Error::InvalidArgument(_))));
    assert!(matches!(namespace.ruh_update(&[PlacementId(0); 3], buf(5)), Err(Error::InvalidArgument(_))));
    assert!(namespace.ruh_update(&[PlacementId(0); 65536], buf(131_072)).is_ok());
    let error = namespace.ruh_update(&[PlacementId(0); 65537], buf(1 << 20)).unwrap_err().to_string();
    assert!(error.contains("65537 placement identifiers"), "{error}");
    for types in [vec![], vec![EventType::INVALID_PLACEMENT_ID; 256]] {
        let refused = controller.set_fdp_events(Nsid(1), PlacementHandle(0), &types, true);
        assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{} types", types.len());
    }
    let outside = namespace.write(range(namespace.blocks(), 1), WriteOptions::placed(PlacementId(0)));
    assert!(matches!(outside, Err(Error::InvalidArgument(_))));
}

pub(crate) fn a_device_without_flash_answers_with_statuses(transport: Transport) {
    let rig = transport(small());
    let mut host = connect(&rig);
    assert_eq!(status(&mut host), Err(Status::INVALID_OPCODE));
    assert_eq!(update(&mut host, &[PlacementId(0)]), Status::INVALID_OPCODE);
    let refused = host.0.fdp_configurations(GROUP).unwrap_err();
    assert_eq!(refused.status().map(Status::kind), Some(Status::INVALID_LOG_PAGE));
    let refused = host.0.directives(Nsid(1)).unwrap_err();
    assert_eq!(refused.status().map(Status::kind), Some(Status::INVALID_OPCODE));
    // DTYPE and DSPEC mean nothing where no directive is enabled.
    let data = filled(&host.0, &[1; 512]);
    let sqe = host.2.write(range(0, 1), WriteOptions::placed(PlacementId(3))).unwrap();
    assert_eq!(run(&mut host.1, sqe, Some(Payload::whole(data))).status, Status::SUCCESS);
}

pub(crate) fn placed_writes_fill_the_reclaim_unit_of_their_handle(transport: Transport) {
    let rig = transport(placed(0));
    let mut host = connect(&rig);
    let handles = status(&mut host).unwrap();
    let listed: Vec<_> = handles.iter().map(|handle| (handle.pid, handle.ruhid)).collect();
    assert_eq!(listed, [(0, 0), (1, 1), (2, 2), (3, 3)]);
    assert_eq!(left(&mut host), [UNIT_BLOCKS; 4]);
    assert_eq!(host.0.fdp_ruh_usage(GROUP).unwrap(), [RuhUse::HOST_SPECIFIED; 4]);

    let before = host.0.fdp_statistics(GROUP).unwrap();
    assert_eq!(write(&mut host, 0, 5, WriteOptions::placed(PlacementId(2))), Status::SUCCESS);
    assert_eq!(write(&mut host, 8, 1, WriteOptions::default()), Status::SUCCESS);
    assert_eq!(left(&mut host), [UNIT_BLOCKS - 1, UNIT_BLOCKS, UNIT_BLOCKS - 5, UNIT_BLOCKS]);
    let after = host.0.fdp_statistics(GROUP).unwrap();
    assert_eq!(after.hbmw.get() - before.hbmw.get(), 6 * BLOCK as u128);
    assert_eq!(after.mbmw.get() - before.mbmw.get(), 6 * BLOCK as u128);

    // What was written somewhere is read from there.
    let read = host.2.read(range(4, 1), AccessFlags::default()).unwrap();
    let buf = host.0.alloc(BLOCK).unwrap();
    let completion = run(&mut host.1, read, Some(Payload::whole(buf)));
    assert_eq!(completion.buf.unwrap().to_vec(), [0; BLOCK]);
}

pub(crate) fn an_update_goes_on_with_an_empty_unit_and_is_recorded(transport: Transport) {
    let rig = transport(placed(0));
    let mut host = connect(&rig);
    let handle = PlacementHandle(1);
    let types = host.0.fdp_event_types(Nsid(1), handle).unwrap();
    assert!(types.iter().any(|entry| entry.event_type == EventType::RU_NOT_FULLY_WRITTEN));
    host.0.set_fdp_events(Nsid(1), handle, &[EventType::RU_NOT_FULLY_WRITTEN], true).unwrap();
    let types = host.0.fdp_event_types(Nsid(1), handle).unwrap();
    let enabled: Vec<_> =
        types.iter().filter(|entry| entry.enabled()).map(|entry| entry.event_type).collect();
    assert_eq!(enabled, [EventType::RU_NOT_FULLY_WRITTEN]);

    assert_eq!(write(&mut host, 0, 3, WriteOptions::placed(PlacementId(1))), Status::SUCCESS);
    assert_eq!(left(&mut host)[1], UNIT_BLOCKS - 3);
    assert_eq!(update(&mut host, &[PlacementId(1)]), Status::SUCCESS);
    assert_eq!(left(&mut host), [UNIT_BLOCKS; 4]);
    let events = host.0.fdp_events(GROUP, FdpEventSource::Host).unwrap();
    let [event] = events[..] else { panic!("not one event: {events:?}") };
    assert_eq!(event.event_type, EventType::RU_NOT_FULLY_WRITTEN);
    assert_eq!((event.placement_id(), event.namespace()), (Some(PlacementId(1)), Some(Nsid(1))));
    assert_eq!(event.location(), Some((ReclaimGroup(0), Ruhid(1))));
    assert_eq!(host.0.fdp_events(GROUP, FdpEventSource::Controller).unwrap(), []);

    // One identifier the namespace has not: none of the list is updated.
    assert_eq!(write(&mut host, 0, 1, WriteOptions::placed(PlacementId(0))), Status::SUCCESS);
    assert_eq!(update(&mut host, &[PlacementId(0), PlacementId(4)]), Status::INVALID_FIELD);
    assert_eq!(left(&mut host)[0], UNIT_BLOCKS - 1);
}

pub(crate) fn a_write_to_a_placement_there_is_not_succeeds_and_is_recorded(transport: Transport) {
    let rig = transport(placed(0));
    let mut host = connect(&rig);
    // The event is of the handle that gets the data: that of a write without a placement identifier.
    let handle = PlacementHandle(0);
    host.0.set_fdp_events(Nsid(1), handle, &[EventType::INVALID_PLACEMENT_ID], true).unwrap();
    assert_eq!(write(&mut host, 0, 2, WriteOptions::placed(PlacementId(9))), Status::SUCCESS);
    assert_eq!(left(&mut host), [UNIT_BLOCKS - 2, UNIT_BLOCKS, UNIT_BLOCKS, UNIT_BLOCKS]);
    let events = host.0.fdp_events(GROUP, FdpEventSource::Host).unwrap();
    let [event] = events[..] else { panic!("not one event: {events:?}") };
    assert_eq!(event.event_type, EventType::INVALID_PLACEMENT_ID);
    assert_eq!((event.placement_id(), event.namespace()), (Some(PlacementId(9)), Some(Nsid(1))));
    // Streams are not what this namespace has been told.
    let mut sqe = host.2.write(range(0, 1), WriteOptions::default()).unwrap();
    sqe.set_directive(unvme_spec::directive::Directive { dtype: dtype::STREAMS, dspec: 1 });
    let data = Payload::whole(filled(&host.0, &[1; BLOCK]));
    assert_eq!(run(&mut host.1, sqe, Some(data)).status.kind(), Status::INVALID_FIELD);
}

fn create(controller: &Controller, handles: &[u16]) -> Result<Nsid, Status> {
    let mut request = NamespaceCreate::default();
    (request.nsze, request.ncap, request.nphndls) = (1024, 1024, handles.len() as u16);
    request.phndl[..handles.len()].copy_from_slice(handles);
    let formats = controller.identify_namespace(Nsid::ALL).unwrap();
    request.flbas =
        formats.lbaf.iter().position(|format| format.block_bytes() == Some(BLOCK as u32)).unwrap() as u8;
    controller.create_namespace(&request, csi::NVM).map_err(|e| e.status().expect("a status").kind())
}

pub(crate) fn fdp_is_enabled_without_namespaces_and_they_are_created_with_handles(transport: Transport) {
    let rig = transport(placed(0));
    let controller = rig.open();
    let configurations = controller.fdp_configurations(GROUP).unwrap();
    assert!(configurations.len() >= 2);
    assert!(configurations[0].handles.iter().all(|handle| handle.ruht == RuhType::INITIALLY_ISOLATED));
    assert!(configurations[1].handles.iter().all(|handle| handle.ruht == RuhType::PERSISTENTLY_ISOLATED));
    assert_eq!(configurations[0].descriptor.runs, UNIT_BLOCKS * BLOCK as u64);
    let enabled = FlexibleDataPlacement::new().with_enabled(true);
    assert_eq!(controller.fdp(GROUP).unwrap(), enabled);

    let disabled = FlexibleDataPlacement::new();
    let refused = |value| controller.set_fdp(GROUP, value).unwrap_err().status().map(Status::kind);
    assert_eq!(refused(disabled), Some(Status::COMMAND_SEQUENCE_ERROR), "there is a namespace");
    controller.delete_namespace(Nsid(1)).unwrap();
    assert_eq!(refused(enabled.with_configuration(0xff)), Some(Status::INVALID_FIELD));
    controller.set_fdp(GROUP, disabled).unwrap();
    let gone = controller.fdp_statistics(GROUP).unwrap_err();
    assert_eq!(gone.status().map(Status::kind), Some(Status::FDP_DISABLED));
    let gone = controller.fdp_events(GROUP, FdpEventSource::Host).unwrap_err();
    assert_eq!(gone.status().map(Status::kind), Some(Status::FDP_DISABLED));

    controller.set_fdp(GROUP, enabled.with_configuration(1)).unwrap();
    assert_eq!(controller.fdp(GROUP).unwrap(), enabled.with_configuration(1));
    assert_eq!(create(&controller, &[4]), Err(Status::INVALID_PLACEMENT_HANDLE_LIST), "there are four");
    assert_eq!(create(&controller, &[1, 1]), Err(Status::INVALID_PLACEMENT_HANDLE_LIST), "twice");
    let nsid = create(&controller, &[3, 1]).unwrap();
    let own = controller.identify_controller().unwrap().cntlid;
    controller.attach_namespace(nsid, &[own]).unwrap();
    use RuhUse as Use;
    let usage = controller.fdp_ruh_usage(GROUP).unwrap();
    assert_eq!(usage, [Use::UNUSED, Use::HOST_SPECIFIED, Use::UNUSED, Use::HOST_SPECIFIED]);

    let queue = controller.create_queue(&QueueOptions::default()).unwrap();
    let namespace = Namespace::open(&controller, nsid).unwrap();
    let mut host = (controller, queue, namespace);
    let listed: Vec<_> = status(&mut host).unwrap().iter().map(|handle| (handle.pid, handle.ruhid)).collect();
    assert_eq!(listed, [(0, 3), (1, 1)], "placement handle 0 is reclaim unit handle 3");
    let directives = host.0.directives(nsid).unwrap();
    assert!(directives.supported.contains(dtype::DATA_PLACEMENT));
    assert!(directives.enabled.contains(dtype::DATA_PLACEMENT));
    assert!(!directives.supported.contains(dtype::STREAMS));
}

pub(crate) fn a_placement_identifier_names_a_reclaim_group_and_a_handle(transport: Transport) {
    // Configuration 6: four reclaim groups.
    let rig = transport(placed(6));
    let mut host = connect(&rig);
    let descriptor = host.0.fdp_configurations(GROUP).unwrap()[6].descriptor;
    assert_eq!((descriptor.nrg, descriptor.fdpa.rgif(), descriptor.nruh), (4, 2, 4));
    let format = Rgif::new(2).unwrap();
    let id = format.join(ReclaimGroup(2), PlacementHandle(1)).unwrap();
    assert_eq!(id, PlacementId(0x8001));
    assert_eq!(write(&mut host, 0, 7, WriteOptions::placed(id)), Status::SUCCESS);
    let handles = status(&mut host).unwrap();
    assert_eq!(handles.len(), 16);
    for handle in handles {
        let written = if handle.placement_id() == id { 7 } else { 0 };
        assert_eq!(handle.ruamw, UNIT_BLOCKS - written, "placement identifier {:#06x}", handle.pid);
        assert_eq!(handle.ruhid, format.split(handle.placement_id()).1.0);
    }
    // Group 3 is the last one; a handle beyond the list is none in any group.
    assert_eq!(update(&mut host, &[PlacementId(0xc003)]), Status::SUCCESS);
    assert_eq!(update(&mut host, &[PlacementId(0xc004)]), Status::INVALID_FIELD);
}
