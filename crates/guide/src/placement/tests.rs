use super::*;

fn simple(count: usize) -> Vec<DeviceConfig> {
    (0..count).map(|n| DeviceConfig::new(format!("0000:{n:02x}:00.0"))).collect()
}

fn machine(cpus: u32) -> CpuSet {
    (0..cpus).map(CpuSet::one).collect()
}

fn placed(sync: u64, asynchronous: u64, cq: u64) -> PlacedDevice {
    PlacedDevice { sync_cpus: CpuSet(sync), async_cpus: CpuSet(asynchronous), cq_cpus: CpuSet(cq), depth: 32 }
}

fn masked(core_mask: u64, sync_mask: u64, cq_thread_mask: u64) -> DeviceConfig {
    DeviceConfig {
        core_mask,
        sync_mask,
        cq_thread_mask,
        queue_depth: 64,
        ..DeviceConfig::new("0000:02:00.0")
    }
}

#[test]
fn cpus_are_split_in_quarters_down_to_one_cpu() {
    for (cpus, expected) in [
        (1, placed(0b1, 0b1, 0b1)),
        (2, placed(0b01, 0b10, 0b10)),
        (3, placed(0b001, 0b010, 0b100)),
        (4, placed(0b0001, 0b0110, 0b1000)),
        (8, placed(0b0000_0111, 0b0011_1000, 0b0100_0000)),
        (64, placed(0xff_ffff, 0xffff_ff00_0000, 1 << 48)),
    ] {
        let placement = Placement::of(&simple(1), machine(cpus), 0);
        assert_eq!(placement.devices, [expected], "{cpus} CPUs");
        assert_eq!(placement.warnings, [""; 0]);
    }
}

#[test]
fn a_completion_cpu_serves_four_devices_and_then_the_next_takes_over() {
    let cq = |turn| -> Vec<u64> {
        Placement::of(&simple(10), machine(8), turn).devices.iter().map(|device| device.cq_cpus.0).collect()
    };
    assert_eq!(cq(0), [64, 64, 64, 64, 128, 128, 128, 128, 64, 64]);
    assert_eq!(cq(1), [128, 128, 128, 128, 64, 64, 64, 64, 128, 128]);
    assert_eq!(cq(usize::MAX), [128, 128, 128, 128, 64, 64, 64, 64, 128, 128]);
}

#[test]
fn every_machine_places_every_number_of_devices() {
    for cpus in 1..=64 {
        let all = machine(cpus);
        for count in 1..=64 {
            for turn in [0, 1, 4711] {
                let placement = Placement::of(&simple(count), all, turn);
                assert_eq!(placement.devices.len(), count);
                assert_eq!(placement, Placement::of(&simple(count), all, turn));
                for device in &placement.devices {
                    let PlacedDevice { sync_cpus, async_cpus, cq_cpus, depth } = *device;
                    assert!(!sync_cpus.is_empty() && !async_cpus.is_empty(), "{cpus} CPUs: {device:?}");
                    assert_eq!((cq_cpus.len(), depth), (1, 32), "{cpus} CPUs: {device:?}");
                    assert_eq!(device.queue_cpus().union(cq_cpus).difference(all), CpuSet::EMPTY);
                    assert_eq!(sync_cpus.intersection(async_cpus).is_empty(), cpus > 1);
                    assert_eq!(device.queue_cpus().intersection(cq_cpus).is_empty(), cpus > 2);
                }
            }
        }
    }
}

#[test]
fn cpus_need_not_start_at_zero_nor_be_adjacent() {
    let placement = Placement::of(&simple(1), CpuSet(0b1010_1010), 0);
    assert_eq!(placement.devices, [placed(0b10, 0b10_1000, 0b1000_0000)]);
    let none = Placement::of(&simple(1), CpuSet::EMPTY, 3);
    assert_eq!((none.cpus, none.devices.as_slice()), (CpuSet(1), [placed(1, 1, 1)].as_slice()));
}

#[test]
fn masks_are_followed() {
    let devices = [masked(0xf, 0b101, 0b10_0000), masked(1, 1, 0)];
    let placement = Placement::of(&devices, machine(8), 5);
    let depth = 64;
    assert_eq!(
        placement.devices,
        [
            PlacedDevice { depth, ..placed(0b101, 0b1010, 0b10_0000) },
            PlacedDevice { depth, ..placed(1, 0, 0) },
        ]
    );
    assert_eq!(placement.warnings, [""; 0]);
}

#[test]
fn a_device_without_masks_does_not_count_those_that_have_them() {
    let mut devices = simple(5);
    devices.insert(0, masked(1, 1, 0));
    let cq: Vec<u64> =
        Placement::of(&devices, machine(8), 0).devices.iter().map(|device| device.cq_cpus.0).collect();
    assert_eq!(cq, [0, 64, 64, 64, 64, 128]);
}

#[test]
fn masks_beyond_the_machine_keep_their_queues_and_are_told() {
    let placement = Placement::of(&[masked(0x101, 0x3, 0xc)], machine(2), 0);
    assert_eq!(placement.devices, [PlacedDevice { depth: 64, ..placed(0x1, 0x100, 0xc) }]);
    assert_eq!(
        placement.warnings,
        [
            "0000:02:00.0: `sync_mask` names CPUs that `core_mask` lacks (1); ignored",
            "0000:02:00.0: `core_mask` names CPUs that this process does not have (8; it has 0-1); \
             their queues run on any CPU",
            "0000:02:00.0: `cq_thread_mask` names CPUs that this process does not have (2-3; it has 0-1); \
             their completion threads run on any CPU",
        ]
    );
    assert!(placement.can_pin(1) && !placement.can_pin(8) && !placement.can_pin(64));
}

#[test]
fn the_masks_chosen_are_written_into_the_configuration() {
    let mut config = SdkConfig {
        devices: vec![masked(0x3, 0x6, 0x8), DeviceConfig::new("mem:kv:1G")],
        ..Default::default()
    };
    let placement = Placement::of(&config.devices, machine(8), 1);
    placement.write_to(&mut config);
    let masks: Vec<_> = config.devices.iter().map(|d| (d.core_mask, d.sync_mask, d.cq_thread_mask)).collect();
    assert_eq!(masks, [(0x3, 0x2, 0x8), (0x3f, 0x7, 0x80)]);
    assert_eq!(Placement::of(&config.devices, machine(8), 0).devices, placement.devices);
}

#[test]
fn this_process_can_be_placed() {
    let placement = Placement::for_this_process(&simple(1));
    assert_eq!(placement.cpus, CpuSet::of_process());
    assert!(placement.devices[0].cq_cpus.iter().all(|cpu| placement.can_pin(cpu)));
}
