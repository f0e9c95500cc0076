use unvme_driver::{
    Controller, ControllerOptions, Error, EventKind, LogRequest, Namespace, Payload, QueueOptions,
};
use unvme_spec::admin::{CommitAction, FirmwareCommit, FormatNvm, GetFeatures, SetFeatures};
use unvme_spec::feature::{Select, TIMESTAMP_MS_MAX, TemperatureThreshold, Timestamp, fid};
use unvme_spec::identify::{NamespaceCreate, csi};
use unvme_spec::log_page::lid;
use unvme_spec::nvm::{AccessFlags, BlockRange};
use unvme_spec::{Lba, Nsid, Sqe, Status, admin};
use unvme_ssd::{NamespaceConfig, NamespaceKind};
use zerocopy::{FromZeros, IntoBytes};

use crate::rig::{MEDIA_BYTES, Transport, block_queue, events, filled, run, small};

pub(crate) fn namespaces_are_listed_described_and_identified(transport: Transport) {
    let mut config = small();
    config.namespaces = vec![
        NamespaceConfig { bytes: Some(4 << 20), kind: NamespaceKind::Blocks(512) },
        NamespaceConfig { bytes: Some(8 << 20), kind: NamespaceKind::Blocks(4096) },
    ];
    let rig = transport(config);
    let controller = rig.open();
    assert_eq!(controller.active_namespaces().unwrap(), [Nsid(1), Nsid(2)]);
    assert_eq!(controller.allocated_namespaces().unwrap(), [Nsid(1), Nsid(2)]);
    assert_eq!(controller.command_set_namespaces(csi::NVM).unwrap(), [Nsid(1), Nsid(2)]);
    assert_eq!(controller.namespace_command_set(Nsid(2)).unwrap(), csi::NVM);
    let first = Namespace::open(&controller, Nsid(1)).unwrap();
    assert_eq!((first.block_bytes(), first.blocks()), (512, 8192));
    let second = Namespace::open(&controller, Nsid(2)).unwrap();
    assert_eq!((second.block_bytes(), second.blocks()), (4096, 2048));
    let error = Namespace::open(&controller, Nsid(3)).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_) | Error::Status { .. }), "{error}");
    let own = controller.identify_controller().unwrap().cntlid;
    assert!(controller.controllers(None).unwrap().contains(&own));
    let mut attached = controller.controllers(Some(Nsid(1))).unwrap();
    if rig.is_on_network() {
        // Besides that of its PCI function.
        attached.retain(|controller| *controller != 0);
    }
    assert_eq!(attached, [own]);
}

pub(crate) fn a_long_log_is_read_in_pieces_that_fit_together(transport: Transport) {
    let rig = transport(small());
    let options = ControllerOptions { transfer_bytes_max: 1000, ..rig.options() };
    let pieces = Controller::open(rig.function.clone(), options).unwrap_err();
    assert!(matches!(pieces, Error::InvalidArgument(_)), "{pieces}");
    // Commands Supported and Effects, 4 bytes per opcode, by commands that transfer one page each.
    let options = ControllerOptions { transfer_bytes_max: 4096, ..rig.options() };
    let controller = Controller::open(rig.function.clone(), options).unwrap();
    assert_eq!(controller.transfer_bytes_max(), 4096);
    let request = LogRequest { lid: lid::COMMANDS_SUPPORTED, bytes: 4096, ..LogRequest::default() };
    let whole = controller.get_log(&request).unwrap();
    // Admin opcode 06h, Identify: supported (bit 0).
    assert_eq!(whole[0x06 * 4] & 1, 1);
    let mut pieces = Vec::new();
    for (offset, bytes) in [(0, 1024), (1024, 4), (1028, 3068)] {
        pieces.extend(controller.get_log(&LogRequest { offset, bytes, ..request }).unwrap());
    }
    assert!(pieces == whole);
    // More than one transfer: all pieces but the last leave the asynchronous event of the page alone. The log
    // may be shorter than that, which is the device's business.
    let _ = controller.get_log(&LogRequest { lid: lid::ERROR_INFORMATION, bytes: 6001, ..request });
    let sent: Vec<_> = (rig.saboteur.admin_commands().into_iter())
        .filter_map(|command| match command {
            admin::Command::GetLogPage(get) if get.lid == lid::ERROR_INFORMATION => {
                Some((get.offset, get.dwords, get.retain_async_event))
            }
            _ => None,
        })
        .collect();
    assert_eq!(sent, [(0, 1024, true), (4096, 477, false)]);
    // An odd length is cut off after whole dwords were read.
    assert_eq!(controller.get_log(&LogRequest { bytes: 13, ..request }).unwrap(), whole[..13]);
    for bad in [LogRequest { offset: 2, ..request }, LogRequest { bytes: 0, ..request }] {
        assert!(matches!(controller.get_log(&bad), Err(Error::InvalidArgument(_))));
    }
    let unknown = LogRequest { lid: 0xdf, bytes: 4, ..LogRequest::default() };
    let error = controller.get_log(&unknown).unwrap_err();
    assert_eq!(error.status().map(Status::kind), Some(Status::INVALID_LOG_PAGE));
}

pub(crate) fn features_are_read_and_written(transport: Transport) {
    let rig = transport(small());
    let controller = rig.open();
    let get = |select| {
        let command = GetFeatures { fid: fid::TEMPERATURE_THRESHOLD, select, ..GetFeatures::default() };
        TemperatureThreshold::from_bits(controller.get_feature(command, 0).unwrap().value).kelvins()
    };
    let default = get(Select::Default);
    assert_eq!(get(Select::Current), default);
    let value = TemperatureThreshold::new().with_kelvins(400).into_bits();
    let set = SetFeatures { fid: fid::TEMPERATURE_THRESHOLD, cdw11: value, ..SetFeatures::default() };
    controller.set_feature(set, &[]).unwrap();
    assert_eq!(get(Select::Current), 400);
    assert_eq!(get(Select::Default), default);

    let set = SetFeatures { fid: fid::TIMESTAMP, ..SetFeatures::default() };
    let then = 1_700_000_000_000;
    controller.set_feature(set, Timestamp::new(then, 0).as_bytes()).unwrap();
    let command = GetFeatures { fid: fid::TIMESTAMP, ..GetFeatures::default() };
    let data = controller.get_feature(command, 8).unwrap().data;
    let now = u64::from_le_bytes(data.try_into().unwrap()) & TIMESTAMP_MS_MAX;
    assert!((then..then + 3_600_000).contains(&now), "{now}");

    let unknown = GetFeatures { fid: 0xbf, ..GetFeatures::default() };
    let error = controller.get_feature(unknown, 0).unwrap_err();
    assert_eq!(error.status().map(Status::kind), Some(Status::INVALID_FIELD));
}

pub(crate) fn an_unknown_command_returns_its_status_whole(transport: Transport) {
    let rig = transport(small());
    let controller = rig.open();
    let completion = controller.admin(Sqe { opcode: 0xff, ..Sqe::default() }, None).unwrap();
    assert_eq!(completion.status.kind(), Status::INVALID_OPCODE);
    assert!(completion.status.do_not_retry());
    // A buffer larger than the driver transfers never reaches the device.
    let buf = controller.alloc((2 << 20) + 1).unwrap();
    let error =
        controller.admin(Sqe { opcode: 0xff, ..Sqe::default() }, Some(Payload::whole(buf))).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
}

pub(crate) fn a_namespace_is_created_attached_and_deleted(transport: Transport) {
    let mut config = small();
    config.namespaces = vec![NamespaceConfig { bytes: Some(4 << 20), kind: NamespaceKind::Blocks(512) }];
    let rig = transport(config);
    let (controller, mut queue, _namespace) = block_queue(&rig, &QueueOptions::default());
    let mut request = NamespaceCreate::new_zeroed();
    (request.nsze, request.ncap) = (16384, 16384);
    let nsid = controller.create_namespace(&request, csi::NVM).unwrap();
    assert_eq!(controller.allocated_namespaces().unwrap(), [Nsid(1), nsid]);
    assert_eq!(controller.active_namespaces().unwrap(), [Nsid(1)]);
    let own = controller.identify_controller().unwrap().cntlid;
    controller.attach_namespace(nsid, &[own]).unwrap();
    assert_eq!(controller.active_namespaces().unwrap(), [Nsid(1), nsid]);
    let namespace = Namespace::open(&controller, nsid).unwrap();
    assert_eq!(namespace.blocks(), 16384);
    let write = namespace.write(BlockRange::new(Lba(16383), 1), AccessFlags::default()).unwrap();
    let payload = Payload::whole(filled(&controller, &vec![5; namespace.block_bytes() as usize]));
    assert_eq!(run(&mut queue, write, Some(payload)).status, Status::SUCCESS);
    controller.detach_namespace(nsid, &[own]).unwrap();
    assert_eq!(run(&mut queue, namespace.flush(), None).status.kind(), Status::INVALID_FIELD);
    controller.delete_namespace(nsid).unwrap();
    assert_eq!(controller.allocated_namespaces().unwrap(), [Nsid(1)]);
    // More than the device has.
    (request.nsze, request.ncap) = (MEDIA_BYTES, MEDIA_BYTES);
    let error = controller.create_namespace(&request, csi::NVM).unwrap_err();
    assert_eq!(error.status().map(Status::kind), Some(Status::NAMESPACE_INSUFFICIENT_CAPACITY));
}

pub(crate) fn a_format_changes_the_block_size(transport: Transport) {
    let rig = transport(small());
    let (controller, mut queue, namespace) = block_queue(&rig, &QueueOptions::default());
    let write = namespace.write(BlockRange::new(Lba(0), 8), AccessFlags::default()).unwrap();
    run(&mut queue, write, Some(Payload::whole(filled(&controller, &[1; 4096]))));
    let identify = controller.identify_namespace(Nsid(1)).unwrap();
    let lbaf = identify.lbaf.iter().position(|format| format.block_bytes() == Some(4096)).unwrap() as u8;
    controller.format(FormatNvm { nsid: Nsid(1), lbaf, ..FormatNvm::default() }).unwrap();
    let namespace = Namespace::open(&controller, Nsid(1)).unwrap();
    assert_eq!(namespace.block_bytes(), 4096);
    let read = namespace.read(BlockRange::new(Lba(0), 1), AccessFlags::default()).unwrap();
    let completion = run(&mut queue, read, Some(Payload::whole(controller.alloc(4096).unwrap())));
    assert_eq!(completion.buf.unwrap().to_vec(), [0; 4096]);
    let error = controller.format(FormatNvm { nsid: Nsid(1), lbaf: 60, ..FormatNvm::default() }).unwrap_err();
    assert_eq!(error.status().map(Status::kind), Some(Status::INVALID_FORMAT));
}

pub(crate) fn firmware_is_downloaded_in_pieces_and_activated_by_a_reset(transport: Transport) {
    let mut config = small();
    config.transfer_bytes_max = Some(8192);
    let rig = transport(config);
    let controller = rig.open();
    // Not an image at all, but several pieces of it.
    controller.firmware_download(&[0x5a; 40_000]).unwrap();
    let commit =
        FirmwareCommit { action: CommitAction::ReplaceAndActivateAtReset, slot: 2, boot_partition: false };
    let error = controller.firmware_commit(commit).unwrap_err();
    assert_eq!(error.status().map(Status::kind), Some(Status::INVALID_FIRMWARE_IMAGE));
    for bad in [&[][..], &[1, 2, 3][..]] {
        assert!(matches!(controller.firmware_download(bad), Err(Error::InvalidArgument(_))));
    }
}

pub(crate) fn an_event_arrives_once_and_is_armed_again(transport: Transport) {
    let rig = transport(small());
    let controller = rig.open();
    assert_eq!(controller.poll_events().unwrap(), []);
    for round in 0..6 {
        // A threshold below the temperature of the device is crossed at once.
        let value = TemperatureThreshold::new().with_kelvins(1).into_bits();
        let set = SetFeatures { fid: fid::TEMPERATURE_THRESHOLD, cdw11: value, ..SetFeatures::default() };
        controller.set_feature(set, &[]).unwrap();
        let events = events(&rig, &controller);
        let [event] = events[..] else { panic!("round {round}: {events:?}") };
        assert_eq!((event.kind, event.log_page), (EventKind::Smart, lid::SMART_HEALTH));
        // Held back until the log page has been read.
        controller.set_feature(set, &[]).unwrap();
        assert_eq!(controller.poll_events().unwrap(), [], "round {round}");
        let value = TemperatureThreshold::new().with_kelvins(400).into_bits();
        controller.set_feature(SetFeatures { cdw11: value, ..set }, &[]).unwrap();
        let smart = LogRequest { nsid: Nsid::ALL, lid: lid::SMART_HEALTH, bytes: 512, ..Default::default() };
        controller.get_log(&smart).unwrap();
    }
}
