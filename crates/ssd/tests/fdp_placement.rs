//! Where writes go: directives, placement identifiers, and I/O Management.

mod host;

use host::placement::{
    ENABLE, NO_EVENTS, add, blocks_left, delete, event_types, events, fdp_config, flash_config, receive,
    set_all_events, set_placement, started, statuses, u16_at, u32_at, update, write, write_with,
};
use host::{DATA, Host, sqe};
use unvme_spec::{Sqe, Status};
use unvme_ssd::SsdConfig;

/// Directive Send of the Identify directive: enables or disables a type for a namespace.
fn enable_directive(host: &mut Host, nsid: u32, target: u32, enable: bool) -> Result<u64, Status> {
    host.admin(Sqe { cdw11: 1, cdw12: target << 8 | u32::from(enable), ..sqe(0x19, nsid) })
}

/// First byte of the sets of supported, enabled and persistent directives.
fn directives(host: &mut Host, nsid: u32) -> Result<[u8; 3], Status> {
    let parameters = host.admin_in(Sqe { cdw10: 1023, cdw11: 1, ..sqe(0x1a, nsid) }, 4096)?;
    for (at, byte) in parameters.iter().enumerate() {
        assert!([0, 32, 64].contains(&at) || *byte == 0, "byte {at}");
    }
    Ok([0, 32, 64].map(|at| parameters[at]))
}

#[test]
fn the_data_placement_directive_is_enabled_until_a_host_disables_it() {
    let mut host = started(fdp_config(0));
    assert_eq!(directives(&mut host, 1), Ok([0b101, 0b101, 0b100]));
    write(&mut host, 1, 0, 3);
    assert_eq!(blocks_left(&mut host, 1, 3), 63);
    assert_eq!(enable_directive(&mut host, 1, 2, false), Ok(0));
    assert_eq!(directives(&mut host, 1), Ok([0b101, 0b001, 0b100]));
    // Type and identifier mean nothing now, whatever they are.
    for (dtype, dspec) in [(2, 3), (2, 0xffff), (1, 1), (0xf, 7)] {
        assert_eq!(write_with(&mut host, 1, 0, 1, dtype, dspec), Ok(0));
    }
    assert_eq!([0, 3].map(|pid| blocks_left(&mut host, 1, pid)), [60, 63]);
    assert_eq!(enable_directive(&mut host, 1, 2, true), Ok(0));
    write(&mut host, 1, 0, 3);
    assert_eq!(blocks_left(&mut host, 1, 3), 62);
}

#[test]
fn directive_commands_refuse_what_is_not_there() {
    let mut host = started(fdp_config(0));
    let invalid_field = Err(Status::INVALID_FIELD);
    assert_eq!(enable_directive(&mut host, 1, 1, true), invalid_field, "streams");
    assert_eq!(enable_directive(&mut host, 1, 0, false), invalid_field, "the Identify directive itself");
    assert_eq!(enable_directive(&mut host, 2, 2, true), invalid_field, "no such namespace");
    assert_eq!(enable_directive(&mut host, 0xffff_ffff, 2, true), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    assert_eq!(directives(&mut host, 0xffff_ffff), Ok([0b101, 0b101, 0b100]));
    assert_eq!(directives(&mut host, 7), Err(Status::INVALID_FIELD));
    assert_eq!(directives(&mut host, 0), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    for (opcode, cdw11) in [(0x19, 0x201), (0x1a, 0x201), (0x19, 2), (0x1a, 2), (0x19, 0x101), (0x1a, 0x101)]
    {
        let command = Sqe { cdw10: 1023, cdw11, cdw12: 0x201, ..sqe(opcode, 1) };
        assert_eq!(host.admin_in(command, 4096), Err(Status::INVALID_FIELD), "{opcode:#x} {cdw11:#x}");
    }
    let short = host.admin_in(Sqe { cdw10: 0, cdw11: 1, ..sqe(0x1a, 1) }, 8).unwrap();
    assert_eq!(short, [0b101, 0, 0, 0, 0xee, 0xee, 0xee, 0xee], "one dword");
    assert_eq!(delete(&mut host, 1), Ok(0));
    assert_eq!(set_placement(&mut host, 0), Ok(0));
    let nsid = add(&mut host, 1024, &[]);
    assert_eq!(directives(&mut host, nsid), Ok([0b101, 0b001, 0b100]));
    assert_eq!(enable_directive(&mut host, nsid, 2, true), Err(Status::FDP_DISABLED));
    assert_eq!(
        write_with(&mut host, nsid, 0, 1, 2, 5),
        Ok(0),
        "the directive is not enabled: it means nothing"
    );
}

#[test]
fn other_directive_types_are_refused_while_data_placement_is_enabled() {
    let mut host = started(fdp_config(0));
    for dtype in [1, 3, 0xf] {
        assert_eq!(write_with(&mut host, 1, 0, 1, dtype, 1), Err(Status::INVALID_FIELD), "DTYPE {dtype}");
    }
    assert_eq!(write_with(&mut host, 1, 0, 1, 0, 5), Ok(0), "without a directive DSPEC means nothing");
    assert_eq!([0, 5].map(|pid| blocks_left(&mut host, 1, pid)), [63, 64]);
}

#[test]
fn an_invalid_identifier_is_an_event_and_the_write_goes_to_handle_0() {
    let mut host = started(SsdConfig { namespaces: Vec::new(), ..flash_config() });
    assert_eq!(set_placement(&mut host, ENABLE), Ok(0));
    let nsid = add(&mut host, 1024, &[6, 2]);
    host.memory.fill(DATA, 4096, 0x5a);
    assert_eq!(write_with(&mut host, nsid, 9, 1, 2, 2), Ok(0), "nobody records it");
    assert_eq!(event_types(&mut host, true), NO_EVENTS);
    set_all_events(&mut host, nsid, 0);
    for pid in [2, 8, 0x8000, 0xffff] {
        host.memory.fill(DATA, 4096, 0xa5);
        assert_eq!(write_with(&mut host, nsid, 9, 1, 2, pid), Ok(0));
    }
    let expected: Vec<(u8, u8, u16, u32, u16, u16)> =
        [2, 8, 0x8000, 0xffff].map(|pid| (3, 0b111, pid, nsid, 0, 6)).to_vec();
    let seen: Vec<_> = events(&mut host, true)
        .iter()
        .map(|event| {
            (event[0], event[1], u16_at(event, 2), u32_at(event, 12), u16_at(event, 32), u16_at(event, 34))
        })
        .collect();
    assert_eq!(seen, expected, "type, flags, identifier as given, namespace, group and handle chosen");
    assert_eq!(event_types(&mut host, false), NO_EVENTS);
    assert_eq!([0, 1].map(|pid| blocks_left(&mut host, nsid, pid)), [59, 64]);
    host.memory.fill(DATA, 4096, 0);
    let mut read = Sqe { cdw10: 9, ..sqe(0x02, nsid) };
    host.set_prps(&mut read, DATA, 4096);
    assert_eq!(host.io(read), Ok(0));
    assert_eq!(host.bytes(DATA, 4096), [0xa5; 4096], "what was written is there");
}

#[test]
fn the_upper_bits_of_an_identifier_are_the_reclaim_group() {
    // Configuration 6: four groups, so RGIF is 2 and a handle has 14 bits.
    let mut host = started(fdp_config(6));
    let all = statuses(&mut host, 1);
    let expected: Vec<(u16, u16)> =
        (0..8).flat_map(|handle| (0..4).map(move |group| (group << 14 | handle, handle))).collect();
    assert_eq!(all.iter().map(|status| (status.pid, status.ruhid)).collect::<Vec<_>>(), expected);
    write(&mut host, 1, 0, 0x8003);
    assert_eq!([0x8003, 0x4003, 3].map(|pid| blocks_left(&mut host, 1, pid)), [63, 64, 64]);
    // The highest bit of a handle must not be taken for one of the group, nor the other way round.
    set_all_events(&mut host, 1, 0);
    for pid in [0x2000, 0x3fff, 0xe000] {
        assert_eq!(write_with(&mut host, 1, 0, 1, 2, pid), Ok(0));
    }
    assert_eq!(event_types(&mut host, true), [3; 3]);
    write(&mut host, 1, 0, 0xc007);
    assert_eq!(event_types(&mut host, true), [3; 3], "the last handle of the last group is one");
}

#[test]
fn a_group_that_is_not_there_is_invalid_though_there_are_bits_for_it() {
    let mut config = fdp_config(0);
    config.flash.as_mut().unwrap().geometry.groups = 3;
    let mut host = started(config);
    set_all_events(&mut host, 1, 0);
    // Two bits are the group: 0 to 2 exist.
    assert_eq!(write_with(&mut host, 1, 0, 1, 2, 2 << 14), Ok(0));
    assert_eq!(event_types(&mut host, true), NO_EVENTS);
    assert_eq!(write_with(&mut host, 1, 0, 1, 2, 3 << 14), Ok(0));
    assert_eq!(event_types(&mut host, true), [3]);
    assert_eq!(update(&mut host, 1, &[3 << 14]), Err(Status::INVALID_FIELD));
}

#[test]
fn what_nobody_places_fills_all_groups() {
    let mut host = started(fdp_config(6));
    // Two chunks of 2 MiB for each group.
    for chunk in 0..8 {
        assert_eq!(write_with(&mut host, 1, chunk * 512, 1, 0, 0), Ok(0));
    }
    let left: Vec<u64> = [0, 0x4000, 0x8000, 0xc000].map(|pid| blocks_left(&mut host, 1, pid)).to_vec();
    assert_eq!(left, [62; 4]);
}

#[test]
fn an_update_closes_units_that_were_written_and_takes_a_full_list() {
    let mut host = started(fdp_config(0));
    set_all_events(&mut host, 1, 0);
    for pid in [0, 1, 2] {
        write(&mut host, 1, pid.into(), pid);
    }
    // As many as there are handles: MAXPIDS is 7, zero-based.
    assert_eq!(update(&mut host, 1, &[0, 1, 2, 3, 4, 5, 6, 7]), Ok(0));
    assert!(statuses(&mut host, 1).iter().all(|status| status.blocks == 64));
    let seen = events(&mut host, true);
    let [event] = &seen[..] else { panic!("{seen:?}: only handle 0 records") };
    assert_eq!((event[0], event[1], u16_at(event, 2), u32_at(event, 12)), (0, 0b111, 0, 1));
    assert_eq!((u16_at(event, 32), u16_at(event, 34)), (0, 0), "reclaim group and handle");
    // An empty unit stays; named twice it has one the second time.
    write(&mut host, 1, 0, 0);
    assert_eq!(update(&mut host, 1, &[0, 0, 4]), Ok(0));
    assert_eq!(event_types(&mut host, true), [0, 0]);
    // A unit that is full was closed when it was filled.
    assert_eq!(write_with(&mut host, 1, 0, 64, 2, 0), Ok(0));
    assert_eq!(update(&mut host, 1, &[0]), Ok(0));
    assert_eq!(event_types(&mut host, true), [0, 0]);
}

#[test]
fn updates_that_cannot_be_are_refused_and_change_nothing() {
    let mut host = started(fdp_config(0));
    set_all_events(&mut host, 1, 0);
    write(&mut host, 1, 0, 0);
    for list in [&[0, 8][..], &[0, 0xffff], &[0, 0x4000], &[0, 1, 2, 3, 4, 5, 6, 7, 0]] {
        assert_eq!(update(&mut host, 1, list), Err(Status::INVALID_FIELD), "{list:?}");
    }
    assert_eq!(update(&mut host, 0, &[0]), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    assert_eq!(update(&mut host, 0xffff_ffff, &[0]), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    assert_eq!(update(&mut host, 5, &[0]), Err(Status::INVALID_FIELD));
    let reserved = Sqe { cdw10: 2, dptr: [host::BASE + DATA as u64, 0], ..sqe(0x1d, 1) };
    assert_eq!(host.io(reserved), Err(Status::INVALID_FIELD), "management operation 2");
    assert_eq!(host.io(Sqe { cdw10: 0, ..reserved }), Ok(0), "no action");
    let most = Sqe { cdw10: 0xffff << 16 | 1, ..reserved };
    assert_eq!(host.io(most), Err(Status::INVALID_FIELD), "65536 identifiers");
    let nowhere = Sqe { cdw10: 1, dptr: [0xdead_0000, 0], ..reserved };
    assert_eq!(host.io(nowhere), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(blocks_left(&mut host, 1, 0), 63);
    assert_eq!(event_types(&mut host, true), NO_EVENTS);
}

#[test]
fn the_status_of_handles_is_cut_short_or_followed_by_zeroes() {
    let mut host = started(fdp_config(0));
    let whole = 16 + 8 * 32;
    let long = receive(&mut host, 1, 1, 8192).unwrap();
    assert_eq!(u16_at(&long, 14), 8);
    assert!(long[whole..].iter().all(|&byte| byte == 0));
    for bytes in [4, 16, 20, 48, whole] {
        assert_eq!(receive(&mut host, 1, 1, bytes).unwrap(), long[..bytes]);
    }
    assert_eq!(receive(&mut host, 1, 2, 16), Err(Status::INVALID_FIELD), "a reserved operation");
    assert_eq!(receive(&mut host, 1, 0, 16).unwrap(), [0xee; 16], "no action");
    assert_eq!(receive(&mut host, 0, 1, 16), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    assert_eq!(receive(&mut host, 0xffff_ffff, 1, 16), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
    assert_eq!(receive(&mut host, 9, 1, 16), Err(Status::INVALID_FIELD));
    // NUMD FFFFFFFFh: 16 GiB.
    let mut huge = Sqe { cdw10: 1, cdw11: u32::MAX, ..sqe(0x12, 1) };
    host.set_prps(&mut huge, DATA, 4096);
    assert_eq!(host.io(huge), Err(Status::INVALID_FIELD));
    let mut plain = started(flash_config());
    assert_eq!(receive(&mut plain, 1, 1, 16), Err(Status::FDP_DISABLED));
}
