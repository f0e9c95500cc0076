//! What stands in the way of taking a function over, on faked kernels: each error names it and says what
//! helps.

mod machine;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use machine::{Machine, write};
use unvme_bus::BusError;
use unvme_bus::uio::UioFunction;
use unvme_bus::vfio::VfioFunction;

const DRIVE: &str = "0000:01:00.0";

fn vfio_error(machine: &Machine) -> BusError {
    match VfioFunction::open(&machine.find(DRIVE)) {
        Ok(function) => panic!("opened {function:?}"),
        Err(e) => e,
    }
}

fn uio_error(machine: &Machine) -> BusError {
    match UioFunction::open(&machine.find(DRIVE)) {
        Ok(function) => panic!("opened {function:?}"),
        Err(e) => e,
    }
}

/// The problem and the remedy of an error, which has both.
#[track_caller]
fn setup(e: &BusError) -> (&str, &str) {
    match e {
        BusError::Setup { problem, remedy } => (problem, remedy),
        other => panic!("{other}"),
    }
}

#[test]
fn vfio_names_the_driver_that_has_the_function() {
    let machine = Machine::new();
    machine.add(DRIVE);
    let e = vfio_error(&machine);
    assert_eq!(
        setup(&e),
        (
            "0000:01:00.0 is bound to no driver, and vfio-pci is expected",
            "run `unvme setup config 0000:01:00.0`"
        )
    );
    machine.bind(DRIVE, "ahci");
    let e = vfio_error(&machine);
    assert_eq!(setup(&e).0, "0000:01:00.0 is bound to the driver `ahci`, and vfio-pci is expected");
}

#[test]
fn vfio_without_an_iommu_group_says_how_to_get_one() {
    let machine = Machine::new();
    machine.add(DRIVE).bind(DRIVE, "vfio-pci");
    let e = vfio_error(&machine);
    let (problem, remedy) = setup(&e);
    assert_eq!(problem, "0000:01:00.0 is in no IOMMU group");
    assert!(remedy.contains("intel_iommu=on") && remedy.contains("uio_pci_generic"), "{remedy}");
    fs::create_dir_all(machine.sys().join("class/iommu/dmar0")).expect("a folder");
    let e = vfio_error(&machine);
    assert!(setup(&e).1.starts_with("the IOMMU of this machine does not reach it"), "{e}");
}

#[test]
fn vfio_that_is_not_loaded_names_the_module() {
    let machine = Machine::new();
    machine.add(DRIVE).bind(DRIVE, "vfio-pci").group(DRIVE, 7);
    let e = vfio_error(&machine);
    let (problem, remedy) = setup(&e);
    assert!(problem.contains("vfio/vfio") && remedy.contains("modprobe vfio-pci"), "{e}");
}

#[test]
fn a_container_that_is_none_is_an_error() {
    let machine = Machine::new();
    machine.add(DRIVE).bind(DRIVE, "vfio-pci").group(DRIVE, 7);
    write(&machine.dev().join("vfio/vfio"), "");
    let e = vfio_error(&machine);
    assert!(e.to_string().contains("VFIO_GET_API_VERSION"), "{e}");
}

#[test]
fn files_that_may_not_be_opened_name_the_permission() {
    let machine = Machine::new();
    machine.add(DRIVE).bind(DRIVE, "vfio-pci").group(DRIVE, 7);
    let node = machine.dev().join("vfio/vfio");
    write(&node, "");
    fs::set_permissions(&node, fs::Permissions::from_mode(0o000)).expect("permissions");
    if fs::File::open(&node).is_ok() {
        // Root may open everything: the guest's checks try this as another user.
        return;
    }
    let e = vfio_error(&machine);
    let (problem, remedy) = setup(&e);
    assert!(problem.contains("no permission") && remedy.contains("chmod 666"), "{e}");
}

#[test]
fn uio_names_the_driver_that_has_the_function() {
    let machine = Machine::new();
    machine.add(DRIVE).bind(DRIVE, "vfio-pci");
    let e = uio_error(&machine);
    assert_eq!(
        setup(&e),
        (
            "0000:01:00.0 is bound to the driver `vfio-pci`, and uio_pci_generic is expected",
            "run `unvme setup config --driver uio_pci_generic 0000:01:00.0`"
        )
    );
}

#[test]
fn uio_behind_a_translating_iommu_is_refused() {
    let machine = Machine::new();
    machine.add(DRIVE).bind(DRIVE, "uio_pci_generic").group(DRIVE, 7);
    write(&machine.sys().join("kernel/iommu_groups/7/type"), "DMA\n");
    let e = uio_error(&machine);
    let (problem, remedy) = setup(&e);
    assert!(problem.contains("every access would fault") && remedy.contains("vfio-pci"), "{e}");
    write(&machine.sys().join("kernel/iommu_groups/7/type"), "identity\n");
    let e = uio_error(&machine);
    assert!(setup(&e).0.contains("uio_pci_generic has made no device of it"), "{e}");
}

#[test]
fn uio_that_somebody_else_uses_is_busy() {
    let machine = Machine::new();
    machine.add(DRIVE).bind(DRIVE, "uio_pci_generic");
    fs::create_dir_all(machine.folder(DRIVE).join("uio/uio4")).expect("a folder");
    let node = machine.dev().join("uio4");
    write(&node, "");
    let other = fs::File::open(&node).expect("open");
    other.lock().expect("locked");
    let e = uio_error(&machine);
    let (problem, remedy) = setup(&e);
    assert!(problem.starts_with("0000:01:00.0 is in use") && remedy.contains("fuser -v"), "{e}");
}

#[test]
fn a_function_that_vanishes_while_it_is_opened_is_an_error() {
    let machine = Machine::new();
    machine.add(DRIVE).bind(DRIVE, "uio_pci_generic");
    fs::create_dir_all(machine.folder(DRIVE).join("uio/uio4")).expect("a folder");
    write(&machine.dev().join("uio4"), "");
    let function = machine.find(DRIVE);
    fs::remove_dir_all(machine.folder(DRIVE)).expect("removed");
    symlink("nowhere", machine.folder(DRIVE)).expect("a link");
    assert!(UioFunction::open(&function).is_err());
    assert!(machine.bus().find(function.address).expect("no error").is_none());
}
