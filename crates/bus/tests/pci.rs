//! What the bus says about functions, on faked kernels.

mod machine;

use std::fs;

use machine::{Machine, write};
use unvme_bus::pci::CLASS_NVM_EXPRESS;
use unvme_bus::{BusError, PciBus};

fn addresses(bus: &PciBus, class: Option<u32>) -> Vec<String> {
    bus.functions(class).expect("listed").iter().map(|function| function.address.to_string()).collect()
}

#[test]
fn a_function_is_described_as_the_kernel_shows_it() {
    let machine = Machine::new();
    machine.add("0000:01:00.0").bind("0000:01:00.0", "nvme").group("0000:01:00.0", 7);
    machine.set("0000:01:00.0", "numa_node", "1\n");
    let function = machine.find("0000:01:00.0");
    assert_eq!((function.vendor, function.device, function.class), (0x1b36, 0x0010, 0x01_0802));
    assert_eq!(function.driver.as_deref(), Some("nvme"));
    assert_eq!((function.numa_node, function.iommu_group), (Some(1), Some(7)));
    assert_eq!(function.bar_bytes, [16384, 0, 0, 0, 0, 0]);
    assert_eq!(function.group_node(), Some(machine.dev().join("vfio/7")));
}

#[test]
fn a_function_without_driver_group_and_node_has_none() {
    let machine = Machine::new();
    machine.add("0000:01:00.0");
    let function = machine.find("0000:01:00.0");
    assert_eq!((function.driver, function.numa_node, function.iommu_group), (None, None, None));
}

#[test]
fn functions_come_in_the_order_of_their_addresses_and_by_class() {
    let machine = Machine::new();
    machine.add("0000:0a:00.0").add("0000:02:00.0").add("0001:00:00.0").add("0000:02:00.1");
    machine.set("0000:02:00.1", "class", "0x030000\n");
    assert_eq!(
        addresses(&machine.bus(), None),
        ["0000:02:00.0", "0000:02:00.1", "0000:0a:00.0", "0001:00:00.0"]
    );
    assert_eq!(
        addresses(&machine.bus(), Some(CLASS_NVM_EXPRESS)),
        ["0000:02:00.0", "0000:0a:00.0", "0001:00:00.0"]
    );
}

#[test]
fn a_machine_without_pci_has_no_functions() {
    let folder = tempfile::tempdir().expect("a folder");
    let bus = PciBus::at(folder.path());
    assert_eq!(addresses(&bus, None), Vec::<String>::new());
    assert!(bus.find("0000:01:00.0".parse().expect("an address")).expect("no error").is_none());
    assert!(!bus.has_iommu());
}

#[test]
fn entries_that_vanish_or_make_no_sense_are_left_out_of_the_list() {
    let machine = Machine::new();
    machine.add("0000:01:00.0").add("0000:02:00.0").add("0000:03:00.0").add("0000:04:00.0");
    fs::remove_file(machine.folder("0000:02:00.0").join("vendor")).expect("removed");
    machine.set("0000:03:00.0", "class", "a class\n");
    machine.set("0000:04:00.0", "resource", "0x00 what 0x00\n");
    fs::create_dir(machine.folder("not an address")).expect("a folder");
    assert_eq!(addresses(&machine.bus(), None), ["0000:01:00.0"]);
}

#[test]
fn nonsense_is_an_error_that_names_the_file() {
    for (file, text) in [
        ("vendor", "8086"),
        ("vendor", "0x18086"),
        ("vendor", ""),
        ("device", "0x"),
        ("class", "0x1ffffffff"),
        ("numa_node", "one"),
        ("resource", "0x10 0x0f 0x200\n"),
        ("resource", "0x0 0xffffffffffffffff 0x200\n"),
        ("resource", "0x1\n"),
    ] {
        let machine = Machine::new();
        machine.add("0000:01:00.0").set("0000:01:00.0", file, text);
        match machine.bus().find("0000:01:00.0".parse().expect("an address")) {
            Err(BusError::Protocol(text)) => assert!(text.contains(file), "{text}"),
            other => panic!("{file} {text:?}: {other:?}"),
        }
    }
}

#[test]
fn a_group_lists_its_other_functions_and_who_keeps_it() {
    let machine = Machine::new();
    for address in ["0000:00:01.0", "0000:01:00.0", "0000:01:00.1", "0000:01:00.2", "0000:01:00.3"] {
        machine.add(address).group(address, 3);
    }
    machine.set("0000:00:01.0", "class", "0x060400\n").bind("0000:00:01.0", "pcieport");
    machine.bind("0000:01:00.0", "vfio-pci").bind("0000:01:00.1", "xhci_hcd");
    machine.bind("0000:01:00.2", "pci-stub");
    let others = machine.find("0000:01:00.0").group_others().expect("listed");
    let shown: Vec<_> = others.iter().map(|other| (other.address.to_string(), other.holds_group())).collect();
    assert_eq!(
        shown,
        [
            ("0000:00:01.0".to_owned(), false),
            ("0000:01:00.1".to_owned(), true),
            ("0000:01:00.2".to_owned(), false),
            ("0000:01:00.3".to_owned(), false),
        ]
    );
}

#[test]
fn a_group_is_translated_unless_the_kernel_says_that_it_is_not() {
    let machine = Machine::new();
    machine.add("0000:01:00.0").add("0000:02:00.0").group("0000:01:00.0", 3);
    assert!(!machine.find("0000:02:00.0").is_translated());
    assert!(machine.find("0000:01:00.0").is_translated());
    let kind = machine.sys().join("kernel/iommu_groups/3/type");
    write(&kind, "DMA-FQ\n");
    assert!(machine.find("0000:01:00.0").is_translated());
    write(&kind, "identity\n");
    assert!(!machine.find("0000:01:00.0").is_translated());
}
