//! Flexible Data Placement through the SDK: what the device has, where writes go, and what a mistake is
//! answered with.
#![cfg(feature = "local")]

use unvme::fdp::{
    EventSource, EventType, NamespaceKind, NewNamespace, PlacementHandle, PlacementId, RuhType, RuhUse, Ruhid,
};
use unvme::{
    AccessFlags, BlockRange, Device, Error, Lba, Nsid, Op, OpenOptions, QueueOptions, Status, WriteOptions,
    open,
};

const BLOCK: usize = 4096;
const UNIT_BLOCKS: u64 = 256;

fn device() -> Device {
    open("mem:block:64M,block=4096,fdp,handles=4,ru=1M", &OpenOptions::default()).expect("a device with FDP")
}

fn ids(list: &[u16]) -> Vec<PlacementId> {
    list.iter().copied().map(PlacementId).collect()
}

fn message(error: Error) -> String {
    error.to_string()
}

#[test]
fn a_device_says_what_it_has_and_what_is_enabled() {
    let device = device();
    let fdp = device.fdp().unwrap();
    let configurations = fdp.configurations().unwrap();
    assert!(configurations[0].valid);
    assert_eq!(configurations[0].handles, [RuhType::INITIALLY_ISOLATED; 4]);
    assert_eq!((configurations[0].unit_bytes, configurations[0].groups), (1 << 20, 1));
    let state = fdp.state().unwrap();
    assert_eq!((state.enabled, state.configuration, fdp.group()), (true, 0, 1));
    assert_eq!(fdp.usage().unwrap(), [RuhUse::HOST_SPECIFIED; 4]);
    let mut block = device.block(Nsid(1)).unwrap();
    assert_eq!(block.placements().unwrap(), ids(&[0, 1, 2, 3]));
    assert_eq!(
        message(device.fdp_of(2).unwrap_err()).split_once(": ").unwrap().1,
        "there is no endurance group 2; the device has 1 to 1"
    );
}

#[test]
fn writes_go_where_they_are_told_and_come_back_from_there() {
    let device = device();
    let mut block = device.block(Nsid(1)).unwrap();
    let fdp = device.fdp().unwrap();
    let before = fdp.statistics().unwrap();
    // Longer than one command: all pieces go to one place.
    let data: Vec<u8> = (0..100 * BLOCK).map(|at| (at / 64) as u8).collect();
    block.write_with(7, &data, WriteOptions::placed(PlacementId(2))).unwrap();
    block.write_with(200, &data[..BLOCK], AccessFlags::FUA).unwrap();
    block.write_at(201, &data[..BLOCK]).unwrap();
    let mut back = vec![0; data.len()];
    block.read_at(7, &mut back).unwrap();
    assert!(back == data, "the data is another");
    let left: Vec<u64> = block.handles().unwrap().iter().map(|handle| handle.blocks_left).collect();
    assert_eq!(left, [UNIT_BLOCKS - 2, UNIT_BLOCKS, UNIT_BLOCKS - 100, UNIT_BLOCKS]);
    let after = fdp.statistics().unwrap();
    assert_eq!(after.host_bytes - before.host_bytes, 102 * BLOCK as u128);
    assert_eq!(after.write_amplification_since(&before), Some(1.0));
    assert_eq!(after.write_amplification_since(&after), None);

    let mut queue = block.queue(&QueueOptions::default()).unwrap();
    let buf = queue.alloc(BLOCK).unwrap();
    let range = BlockRange::new(Lba(0), 1);
    let placed = Op::Write(range, WriteOptions::placed(PlacementId(3)));
    queue.submit(placed, Some(buf), 1).unwrap();
    while queue.outstanding() > 0 {
        queue.wait(std::time::Duration::from_secs(10)).unwrap();
        assert!(queue.poll(8).all(|completion| completion.status.is_success()));
    }
    assert_eq!(block.handles().unwrap()[3].blocks_left, UNIT_BLOCKS - 1);
}

#[test]
fn an_update_is_recorded_when_that_was_asked_for() {
    let device = device();
    let fdp = device.fdp().unwrap();
    let mut block = device.block(Nsid(1)).unwrap();
    let handle = PlacementHandle(1);
    fdp.set_events(Nsid(1), handle, &[EventType::RU_NOT_FULLY_WRITTEN], true).unwrap();
    let types = fdp.event_types(Nsid(1), handle).unwrap();
    assert!(types.contains(&(EventType::RU_NOT_FULLY_WRITTEN, true)));
    block.write_with(0, &[1; BLOCK], WriteOptions::placed(PlacementId(1))).unwrap();
    block.update_handles(&ids(&[1])).unwrap();
    assert_eq!(block.handles().unwrap()[1].blocks_left, UNIT_BLOCKS);
    let events = fdp.events(EventSource::Host).unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].placement_id(), Some(PlacementId(1)));
    fdp.set_events(Nsid(1), handle, &[EventType::RU_NOT_FULLY_WRITTEN], false).unwrap();
    assert!(fdp.event_types(Nsid(1), handle).unwrap().contains(&(EventType::RU_NOT_FULLY_WRITTEN, false)));
}

#[test]
fn a_placement_there_is_not_is_refused_with_those_there_are() {
    let device = device();
    let mut block = device.block(Nsid(1)).unwrap();
    let error = block.write_with(0, &[0; BLOCK], WriteOptions::placed(PlacementId(4))).unwrap_err();
    assert!(matches!(error, Error::Argument(_)), "{error}");
    let text = message(error);
    assert!(text.ends_with("there is no placement identifier 4; the namespace has 4: 0 to 3"), "{text}");
    assert!(matches!(block.update_handles(&ids(&[0, 9])), Err(Error::Argument(_))));
    assert!(matches!(block.update_handles(&[]), Err(Error::Argument(_))));
    assert!(block.check_placements(&ids(&[3, 0, 3])).is_ok());
}

#[test]
fn a_device_without_placement_says_how_to_get_one_that_has() {
    let device = open("mem:block:16M", &OpenOptions::default()).unwrap();
    let error = device.fdp().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(message(error).contains("mem:block:SIZE,fdp"));
    let mut block = device.block(Nsid(1)).unwrap();
    let error = block.write_with(0, &[0; 4096], WriteOptions::placed(PlacementId(0))).unwrap_err();
    assert_eq!(error.status().map(Status::kind), Some(Status::INVALID_OPCODE));
    assert!(message(error).contains("no Flexible Data Placement"));
}

#[test]
fn fdp_changes_only_without_namespaces_and_they_are_created_with_handles() {
    let device = device();
    let fdp = device.fdp().unwrap();
    let error = fdp.disable().unwrap_err();
    assert_eq!(error.status().map(Status::kind), Some(Status::COMMAND_SEQUENCE_ERROR));
    assert!(message(error).contains("delete those of endurance group 1; the device has namespaces 1"));
    let error = message(fdp.enable(99).unwrap_err());
    assert!(error.contains("there is no FDP configuration 99; endurance group 1 has "), "{error}");

    device.admin(|controller| controller.delete_namespace(Nsid(1))).unwrap();
    fdp.disable().unwrap();
    assert!(!fdp.state().unwrap().enabled);
    let error = fdp.statistics().unwrap_err();
    assert_eq!(error.status().map(Status::kind), Some(Status::FDP_DISABLED));
    assert!(message(error).contains("enable FDP with one of its configurations"));

    fdp.enable(1).unwrap();
    assert_eq!(fdp.state().unwrap().configuration, 1);
    let mut new = NewNamespace::blocks(16 << 20, 4096);
    new.handles = vec![Ruhid(9)];
    let error = device.create_namespace(&new).unwrap_err();
    assert_eq!(error.status().map(Status::kind), Some(Status::INVALID_PLACEMENT_HANDLE_LIST));
    assert!(message(error).contains("the endurance group has 4 reclaim unit handles"));
    new.handles = vec![Ruhid(2), Ruhid(0)];
    let nsid = device.create_namespace(&new).unwrap();
    let handles = device.block(nsid).unwrap().handles().unwrap();
    let handles: Vec<_> = handles.iter().map(|handle| (handle.placement.0, handle.ruhid.0)).collect();
    assert_eq!(handles, [(0, 2), (1, 0)]);
    let usage = fdp.usage().unwrap();
    assert_eq!((usage[0], usage[1]), (RuhUse::HOST_SPECIFIED, RuhUse::UNUSED));
}

#[test]
fn a_namespace_that_cannot_be_is_refused_before_the_device_is_asked() {
    let device = device();
    let many = NewNamespace { handles: vec![Ruhid(0); 129], ..NewNamespace::blocks(1 << 20, 4096) };
    assert!(message(device.create_namespace(&many).unwrap_err()).contains("128 at most"));
    let odd = NewNamespace::blocks(4097, 4096);
    assert!(message(device.create_namespace(&odd).unwrap_err()).contains("whole blocks"));
    let format = NewNamespace {
        kind: NamespaceKind::Blocks { block_bytes: 1000 },
        ..NewNamespace::blocks(1 << 20, 4096)
    };
    assert!(
        message(device.create_namespace(&format).unwrap_err()).contains("the device has blocks of 512, 4096")
    );
}
