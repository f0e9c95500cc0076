//! What a device with flash says of Flexible Data Placement, and how it is enabled and disabled.

mod host;

use host::placement::{
    ENABLE, GET_FEATURES, GET_LOG, SET_FEATURES, add, attach, create, create_from, delete, device,
    fdp_config, flash_config, get_placement, host_at, identify, log, log_of, set_placement, started,
    statistics, u16_at, u32_at, u64_at, update, write,
};
use host::{DATA, Host, config, device as plain_device, sqe};
use unvme_flash::ftl::Isolation;
use unvme_spec::{Sqe, Status};
use unvme_ssd::{FlashConfig, FlashGeometry, Ssd, SsdConfig, SsdError};

const ALL: u32 = 0xffff_ffff;

fn descriptors(page: &[u8]) -> Vec<&[u8]> {
    let mut rest = &page[16..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (descriptor, behind) = rest.split_at(u16_at(rest, 0).into());
        found.push(descriptor);
        rest = behind;
    }
    found
}

#[test]
fn a_device_without_flash_knows_nothing_of_it() {
    let mut host = Host::attach(plain_device(config(4096)));
    host.enable();
    host.create_queue_pair(1, 64);
    let id = identify(&mut host, 1, 0);
    assert_eq!(u32_at(&id, 96) & (1 << 19 | 1 << 4), 0, "CTRATT");
    assert_eq!((u16_at(&id, 256) & 1 << 5, u16_at(&id, 340)), (0, 0), "OACS, ENDGIDMAX");
    for lid in [0x09, 0x20, 0x21, 0x22, 0x23] {
        assert_eq!(log(&mut host, lid, 0, 512), Err(Status::INVALID_LOG_PAGE), "{lid:#x}");
    }
    for (opcode, fid) in
        [(GET_FEATURES, 0x1d), (GET_FEATURES, 0x1e), (SET_FEATURES, 0x1d), (SET_FEATURES, 0x1e)]
    {
        let feature = Sqe { cdw10: fid, cdw11: 1, ..sqe(opcode, 1) };
        assert_eq!(host.admin(feature), Err(Status::INVALID_FIELD));
    }
    for opcode in [0x19, 0x1a] {
        assert_eq!(host.admin_in(Sqe { cdw11: 1, ..sqe(opcode, 1) }, 4096), Err(Status::INVALID_OPCODE));
    }
    for opcode in [0x12, 0x1d] {
        assert_eq!(host.io(Sqe { cdw10: 1, ..sqe(opcode, 1) }), Err(Status::INVALID_OPCODE));
    }
    let no_groups = Sqe { cdw10: 0x19, ..sqe(0x06, 0) };
    assert_eq!(host.admin_in(no_groups, 4096), Err(Status::INVALID_FIELD));
}

#[test]
fn a_device_with_flash_has_one_endurance_group_that_everything_names() {
    let mut host = started(flash_config());
    let id = identify(&mut host, 1, 0);
    assert_eq!(u32_at(&id, 96) & (1 << 19 | 1 << 4), 1 << 19 | 1 << 4, "CTRATT.FDPS and EGS");
    assert_eq!((u16_at(&id, 256) >> 5 & 1, u16_at(&id, 340)), (1, 1), "OACS directives, ENDGIDMAX");
    assert_eq!(u16_at(&identify(&mut host, 0, 1), 102), 1, "ENDGID of the namespace");
    assert_eq!(u16_at(&identify(&mut host, 8, 1), 12), 1, "and of its independent page");
    let list = identify(&mut host, 0x19, 0);
    assert_eq!((u16_at(&list, 0), u16_at(&list, 2)), (1, 1), "one group, number 1");
    let above = host.admin_in(Sqe { cdw10: 0x19, cdw11: 2, ..sqe(0x06, 0) }, 4096).unwrap();
    assert_eq!(above, [0; 4096], "none from number 2 on");

    let supported = log(&mut host, 0x00, 0, 1024).unwrap();
    for lid in [0x09, 0x20, 0x21, 0x22, 0x23] {
        assert_eq!(u32_at(&supported, lid * 4) & 1, 1, "LSUPP of {lid:#x}");
    }
    let effects = log(&mut host, 0x05, 0, 4096).unwrap();
    for opcode in [0x19, 0x1a] {
        assert_eq!(u32_at(&effects, opcode * 4) & 1, 1, "CSUPP of admin command {opcode:#x}");
    }
    for opcode in [0x12, 0x1d] {
        assert_eq!(u32_at(&effects, 1024 + opcode * 4) & 1, 1, "CSUPP of I/O command {opcode:#x}");
    }
    let features = log(&mut host, 0x12, 0, 1024).unwrap();
    assert_eq!(u32_at(&features, 0x1d * 4), 1 | 1 << 23, "feature 1Dh: of an endurance group");
    assert_eq!(u32_at(&features, 0x1e * 4), 1 | 1 << 20, "feature 1Eh: of a namespace");
}

#[test]
fn configurations_differ_in_isolation_and_size_of_units_and_groups() {
    let mut host = started(flash_config());
    let header = log(&mut host, 0x20, 0, 16).unwrap();
    let page = log(&mut host, 0x20, 0, u32_at(&header, 4) as usize).unwrap();
    assert_eq!((u16_at(&page, 0), page[2]), (6, 0), "seven, zero-based; version 0");
    let descriptors = descriptors(&page);
    assert_eq!(descriptors.len(), 7);
    // Size, attributes (valid, write cache, RGIF), NRG, NRUH, MAXPIDS, NNSS, RUNS, ERUTL.
    let expected = [
        (0x90, 1, 7, 256 << 10, 0),
        (0x90, 1, 7, 256 << 10, 0),
        (0x90, 1, 7, 256 << 10, 0),
        (0x90, 1, 7, 64 << 10, 0),
        (0x90, 1, 7, 1 << 20, 0),
        (0x90, 1, 7, 256 << 10, 86400),
        (0x92, 4, 31, 256 << 10, 0),
    ];
    for (index, (descriptor, (attributes, groups, pids_z, runs, limit))) in
        descriptors.iter().zip(expected).enumerate()
    {
        assert_eq!(descriptor.len(), 64 + 8 * 4, "descriptor {index}");
        assert_eq!(descriptor[2], attributes, "attributes of {index}");
        assert_eq!((u32_at(descriptor, 4), u16_at(descriptor, 8)), (groups, 8));
        assert_eq!((u16_at(descriptor, 10), u32_at(descriptor, 12)), (pids_z, 128));
        assert_eq!(
            (u64_at(descriptor, 16), u32_at(descriptor, 24)),
            (runs, limit),
            "RUNS and ERUTL of {index}"
        );
        assert_eq!(descriptor[28..64], [0; 36]);
    }
    let types =
        |index: usize| descriptors[index][64..].chunks(4).map(|ruh| u32_at(ruh, 0)).collect::<Vec<_>>();
    assert_eq!([types(0), types(1), types(2)], [vec![1; 8], vec![2; 8], vec![1, 1, 1, 1, 2, 2, 2, 2]]);
}

#[test]
fn what_there_is_no_room_for_is_listed_as_not_valid_and_cannot_be_enabled() {
    // Units of 64 KiB cannot be smaller, and with units of 4 MiB the reserve has no room.
    let geometry = FlashGeometry { unit_bytes: 64 << 10, groups: 1, handles: vec![Isolation::Initially; 64] };
    let flash = FlashConfig { geometry, overprovisioning: 0.10, ..FlashConfig::default() };
    let mut host = started(SsdConfig { flash: Some(flash), namespaces: Vec::new(), ..flash_config() });
    let header = log(&mut host, 0x20, 0, 16).unwrap();
    let page = log(&mut host, 0x20, 0, u32_at(&header, 4) as usize).unwrap();
    let valid: Vec<bool> = descriptors(&page).iter().map(|descriptor| descriptor[2] & 0x80 != 0).collect();
    assert_eq!(valid, [true, false, true, false, false, true, false]);
    for (index, valid) in (0..).zip(valid) {
        let expected = if valid { Ok(0) } else { Err(Status::INVALID_FIELD) };
        assert_eq!(set_placement(&mut host, index << 8 | ENABLE), expected, "configuration {index}");
    }
}

#[test]
fn the_whole_way_from_a_conventional_device_to_another_configuration() {
    let mut host = started(flash_config());
    assert_eq!(get_placement(&mut host, 0), Ok(0));
    assert_eq!(get_placement(&mut host, 3), Ok(0b101), "changeable and saveable, not of a namespace");
    for lid in [0x21, 0x22, 0x23] {
        assert_eq!(log(&mut host, lid, 0, 64), Err(Status::FDP_DISABLED), "{lid:#x}");
    }
    assert_eq!(update(&mut host, 1, &[0]), Err(Status::FDP_DISABLED));
    assert_eq!(create(&mut host, 16, 1, &[0]), Err(Status::FDP_DISABLED), "a list while FDP is disabled");
    // Data written before FDP is enabled counts for SMART and not for the configuration.
    write(&mut host, 1, 0, 0);
    assert_eq!(set_placement(&mut host, 2 << 8 | ENABLE), Err(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(set_placement(&mut host, 0), Ok(0), "disabled it is: nothing changes");
    assert_eq!(delete(&mut host, 1), Ok(0));
    assert_eq!(set_placement(&mut host, 2 << 8 | ENABLE), Ok(0));
    assert_eq!([0, 1, 2].map(|select| get_placement(&mut host, select)), [Ok(0x201), Ok(0), Ok(0x201)]);
    assert_eq!(statistics(&mut host), [0; 3]);

    let nsid = add(&mut host, 1024, &[7, 0]);
    write(&mut host, nsid, 0, 1);
    assert_eq!(statistics(&mut host), [4096, 4096, 0]);
    assert_eq!(set_placement(&mut host, ENABLE), Err(Status::COMMAND_SEQUENCE_ERROR), "another one");
    assert_eq!(set_placement(&mut host, 0), Err(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(set_placement(&mut host, 2 << 8 | ENABLE), Ok(0), "the same one");
    assert_eq!(statistics(&mut host), [4096, 4096, 0], "which changes nothing");
    assert_eq!(delete(&mut host, ALL), Ok(0));
    assert_eq!(set_placement(&mut host, 0), Ok(0));
    assert_eq!(get_placement(&mut host, 0), Ok(0));
    let nsid = add(&mut host, 1024, &[]);
    write(&mut host, nsid, 0, 3);
    assert_eq!(log(&mut host, 0x22, 0, 64), Err(Status::FDP_DISABLED));
    // 12 KiB hosts have written in all, in billions of bytes rounded up.
    let group = log(&mut host, 0x09, 0, 512).unwrap();
    assert_eq!((group[3], group[4], group[5]), (100, 10, 0), "spare, threshold, used");
    assert_eq!((group[64], group[80]), (1, 1), "data and media units written");
    assert_eq!(u64_at(&group, 112), 3, "host write commands");
}

#[test]
fn enabling_refuses_what_cannot_be() {
    let mut host = started(SsdConfig { namespaces: Vec::new(), ..flash_config() });
    let set = |cdw10, cdw11, cdw12| Sqe { cdw10, cdw11, cdw12, ..sqe(SET_FEATURES, 0) };
    let save = 1 << 31 | 0x1d;
    for (refused, why) in [
        (set(save, 0, 1), "no endurance group"),
        (set(save, 2, 1), "another endurance group"),
        (set(save, 1, 7 << 8 | 1), "a configuration behind the last"),
        (set(save, 1, 0xff << 8 | 1), "the last index there can be"),
        (set(0x1d, 1, 1), "a change that is not saved"),
    ] {
        assert_eq!(host.admin(refused), Err(Status::INVALID_FIELD), "{why}");
    }
    assert_eq!(host.admin(Sqe { nsid: 1, ..set(save, 1, 1) }), Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC));
    let get = |cdw11| Sqe { cdw10: 0x1d, cdw11, ..sqe(GET_FEATURES, 0) };
    assert_eq!([0, 2, 3].map(|group| host.admin(get(group))), [Err(Status::INVALID_FIELD); 3]);
    assert_eq!(get_placement(&mut host, 0), Ok(0));
    assert_eq!(set_placement(&mut host, ENABLE), Ok(0));
    for lid in [0x09, 0x20, 0x21, 0x22, 0x23] {
        for group in [0, 2, 0xffff] {
            assert_eq!(
                log_of(&mut host, lid, 0, group, 64),
                Err(Status::INVALID_FIELD),
                "{lid:#x} of group {group}"
            );
        }
        // The namespace does not matter.
        let numdl = 15 << 16;
        let any = Sqe { cdw10: numdl | lid, cdw11: 1 << 16, ..sqe(GET_LOG, 77) };
        assert!(host.admin_in(any, 64).is_ok(), "{lid:#x} of namespace 77");
    }
}

#[test]
fn a_namespace_may_name_the_endurance_group_and_no_other() {
    let mut host = started(SsdConfig { namespaces: Vec::new(), ..flash_config() });
    let mut data = [0; 4096];
    data[..16].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    data[26] = 1;
    data[102] = 1;
    assert_eq!(create_from(&mut host, &data), Ok(1));
    data[102] = 2;
    assert_eq!(create_from(&mut host, &data), Err(Status::INVALID_FIELD));
    (data[102], data[100]) = (1, 1);
    assert_eq!(create_from(&mut host, &data), Err(Status::INVALID_FIELD), "an NVM Set");
    data[100] = 0;
    data[392..394].copy_from_slice(&129u16.to_le_bytes());
    assert_eq!(create_from(&mut host, &data), Err(Status::FDP_DISABLED));
    assert_eq!(delete(&mut host, 1), Ok(0));
    assert_eq!(set_placement(&mut host, ENABLE), Ok(0));
    assert_eq!(
        create_from(&mut host, &data),
        Err(Status::INVALID_PLACEMENT_HANDLE_LIST),
        "more than the page has"
    );
    assert_eq!(attach(&mut host, 1), Err(Status::INVALID_FIELD), "nothing was created");
}

#[test]
fn fdp_is_enabled_on_the_first_day_where_that_is_configured() {
    let mut host = host_at(device(fdp_config(4)));
    assert_eq!(get_placement(&mut host, 0), Ok(0x401));
    assert_eq!(host.ssd.ftl_stats().unwrap().config.unit_pages, 256, "units of 1 MiB");
    assert_eq!(host::placement::statuses(&mut host, 1).len(), 8, "the namespace has all handles");
    let refused = |config: SsdConfig| {
        let store = unvme_ssd::MemoryStore::new(config.store_bytes().unwrap()).unwrap();
        Ssd::new(config, Box::new(store)).map(|_| ()).unwrap_err()
    };
    let message = refused(fdp_config(7)).to_string();
    assert!(message.contains("fdp: 7 is not possible"), "{message}");
    let plain = SsdConfig { fdp: Some(0), ..SsdConfig::block(64 << 20, 4096) };
    assert!(matches!(refused(plain), SsdError::Config { key: "fdp", .. }));
    host.memory.fill(DATA, 4096, 0);
}
