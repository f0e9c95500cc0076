//! Placement handles of namespaces: which reclaim unit handles they get, share, and lose.

mod host;

use host::placement::{
    ENABLE, add, attach, create, create_from, delete, event_types, fdp_config, flash_config, log,
    set_all_events, set_placement, started, statuses, write,
};
use host::{Host, sqe};
use unvme_flash::ftl::Isolation;
use unvme_spec::{Sqe, Status};
use unvme_ssd::{FlashConfig, FlashGeometry, NamespaceConfig, NamespaceKind, SsdConfig};

const ALL: u32 = 0xffff_ffff;
const LIST: Status = Status::INVALID_PLACEMENT_HANDLE_LIST;

/// A device without namespaces on which FDP is enabled.
fn empty() -> Host {
    let mut host = started(SsdConfig { namespaces: Vec::new(), ..flash_config() });
    assert_eq!(set_placement(&mut host, ENABLE), Ok(0));
    host
}

/// Log page 21h: 0 unused, 1 host specified, 2 controller specified.
fn usage(host: &mut Host) -> Vec<u8> {
    let page = log(host, 0x21, 0, 8 + 8 * 8).unwrap();
    assert_eq!(page[..8], [8, 0, 0, 0, 0, 0, 0, 0]);
    page[8..].chunks(8).map(|entry| entry[0]).collect()
}

fn handles(host: &mut Host, nsid: u32) -> Vec<(u16, u16)> {
    statuses(host, nsid).iter().map(|status| (status.pid, status.ruhid)).collect()
}

fn format(host: &mut Host, nsid: u32, lbaf: u32) -> Result<u64, Status> {
    host.admin(Sqe { cdw10: lbaf, ..sqe(0x80, nsid) })
}

#[test]
fn a_namespace_has_the_handles_of_its_list_in_its_order() {
    let mut host = empty();
    assert_eq!(usage(&mut host), [0; 8]);
    let nsid = add(&mut host, 1024, &[5, 0, 7]);
    assert_eq!(handles(&mut host, nsid), [(0, 5), (1, 0), (2, 7)]);
    assert_eq!(usage(&mut host), [1, 0, 0, 0, 0, 1, 0, 1]);
    let other = add(&mut host, 1024, &[7, 1]);
    assert_eq!(handles(&mut host, other), [(0, 7), (1, 1)]);
    assert_eq!(usage(&mut host), [1, 1, 0, 0, 0, 1, 0, 1]);
    assert_eq!(delete(&mut host, nsid), Ok(0));
    assert_eq!(usage(&mut host), [0, 1, 0, 0, 0, 0, 0, 1], "what the other one uses is still used");
}

#[test]
fn namespaces_without_a_list_share_a_handle_that_nobody_can_name() {
    let mut host = empty();
    let named = add(&mut host, 1024, &[0, 2]);
    let (first, second) = (add(&mut host, 1024, &[]), add(&mut host, 1024, &[]));
    assert_eq!([first, second].map(|nsid| handles(&mut host, nsid)), [vec![(0, 7)], vec![(0, 7)]]);
    assert_eq!(usage(&mut host), [1, 0, 1, 0, 0, 0, 0, 2]);
    assert_eq!(create(&mut host, 1024, 1, &[3, 7]), Err(LIST), "handle 7 is the controller's");
    // A handle that hosts have named is none the controller can choose.
    for nsid in [first, second, named] {
        assert_eq!(delete(&mut host, nsid), Ok(0));
    }
    let all = add(&mut host, 1024, &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(create(&mut host, 1024, 1, &[]), Err(LIST));
    assert_eq!(delete(&mut host, all), Ok(0));
    assert_eq!(create(&mut host, 1024, 1, &[]), Ok(1));
}

#[test]
fn lists_that_cannot_be_are_refused_and_leave_nothing_behind() {
    let mut host = empty();
    for list in [&[8][..], &[0, 0], &[0xffff], &[0, 1, 2, 3, 4, 5, 6, 7, 0], &[1, 2, 1]] {
        assert_eq!(create(&mut host, 1024, 1, list), Err(LIST), "{list:?}");
    }
    let mut data = [0; 4096];
    data[0] = 16;
    data[8] = 16;
    data[26] = 1;
    for count in [9u16, 128, 129, 0xffff] {
        data[392..394].copy_from_slice(&count.to_le_bytes());
        assert_eq!(create_from(&mut host, &data), Err(LIST), "{count} handles");
    }
    assert_eq!(usage(&mut host), [0; 8]);
    let list = host.admin_in(Sqe { cdw10: 0x10, ..sqe(0x06, 0) }, 4096).unwrap();
    assert_eq!(list, [0; 4096], "no namespace is allocated");
}

#[test]
fn namespaces_that_share_a_handle_have_the_same_blocks() {
    let mut host = empty();
    let nsid = add(&mut host, 1024, &[0, 1]);
    assert_eq!(create(&mut host, 1024, 0, &[1, 2]), Err(Status::INVALID_FORMAT));
    let other = add(&mut host, 1024, &[1, 2]);
    assert_eq!(format(&mut host, nsid, 0), Err(Status::INVALID_FORMAT), "one of the two");
    assert_eq!(format(&mut host, nsid, 1), Ok(0), "as it is");
    assert_eq!(format(&mut host, ALL, 0), Ok(0), "both together");
    assert_eq!(handles(&mut host, nsid), [(0, 0), (1, 1)], "a format keeps the handles");
    assert_eq!(create(&mut host, 1024, 1, &[2]), Err(Status::INVALID_FORMAT));
    assert_eq!(delete(&mut host, other), Ok(0));
    assert_eq!(format(&mut host, nsid, 1), Ok(0), "it shares nothing any more");
    let third = create(&mut host, 4096, 0, &[2]).unwrap() as u32;
    assert_eq!(attach(&mut host, third), Ok(0));
    let (a, b) =
        (host::placement::blocks_left(&mut host, nsid, 0), host::placement::blocks_left(&mut host, third, 0));
    assert_eq!((a, b), (64, 512), "units of 256 KiB in blocks of 4096 and of 512 bytes");
}

#[test]
fn namespaces_that_share_a_handle_write_to_one_unit_and_share_its_events() {
    let mut host = empty();
    let (first, second) = (add(&mut host, 1024, &[3]), add(&mut host, 1024, &[4, 3]));
    write(&mut host, first, 0, 0);
    write(&mut host, second, 0, 1);
    assert_eq!(host::placement::blocks_left(&mut host, first, 0), 62);
    assert_eq!(host::placement::blocks_left(&mut host, second, 1), 62);
    assert_eq!(host::placement::blocks_left(&mut host, second, 0), 64);
    // What is recorded is a property of the reclaim unit handle: set through one namespace, it holds for the
    // other.
    set_all_events(&mut host, second, 1);
    assert_eq!(host::placement::update(&mut host, first, &[0]), Ok(0));
    assert_eq!(event_types(&mut host, true), [0]);
    assert_eq!(host::placement::blocks_left(&mut host, second, 1), 64);
}

#[test]
fn the_namespaces_of_the_first_day_share_what_there_is() {
    let blocks = |bytes, block| NamespaceConfig { bytes: Some(bytes), kind: NamespaceKind::Blocks(block) };
    let namespaces = vec![blocks(8 << 20, 4096), blocks(8 << 20, 512), blocks(8 << 20, 4096)];
    let mut host = started(SsdConfig { namespaces, ..fdp_config(0) });
    let seven: Vec<(u16, u16)> = (0..7).map(|handle| (handle, handle)).collect();
    assert_eq!(handles(&mut host, 1), seven);
    assert_eq!(handles(&mut host, 2), [(0, 7)], "other blocks: the controller's handle");
    assert_eq!(handles(&mut host, 3), seven);
    assert_eq!(usage(&mut host), [1, 1, 1, 1, 1, 1, 1, 2]);
}

#[test]
fn pairs_have_a_handle_too() {
    let namespaces = vec![
        NamespaceConfig { bytes: Some(32 << 20), kind: NamespaceKind::KeyValue },
        NamespaceConfig { bytes: Some(32 << 20), kind: NamespaceKind::Blocks(4096) },
    ];
    let mut host = started(SsdConfig { namespaces, ..fdp_config(0) });
    assert_eq!(usage(&mut host), [1, 1, 1, 1, 1, 1, 1, 2]);
    assert_eq!(handles(&mut host, 2).len(), 7);
    assert_eq!(delete(&mut host, 1), Ok(0));
    assert_eq!(usage(&mut host), [1, 1, 1, 1, 1, 1, 1, 0]);
}

#[test]
fn a_device_with_one_handle_has_one_for_everybody() {
    let geometry = FlashGeometry { unit_bytes: 256 << 10, groups: 1, handles: vec![Isolation::Initially] };
    let flash = FlashConfig { geometry, overprovisioning: 0.28, ..FlashConfig::default() };
    let mut host = started(SsdConfig { flash: Some(flash), ..fdp_config(0) });
    assert_eq!(handles(&mut host, 1), [(0, 0)]);
}
