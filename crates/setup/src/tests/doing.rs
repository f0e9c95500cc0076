//! What is done, and undone.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::tree::Tree;
use crate::{ConfigOptions, Driver, Owner, ResetOptions, plan_config, plan_reset};

const ADDRESS: &str = "0000:0b:00.0";

fn options() -> ConfigOptions {
    ConfigOptions { addresses: vec![ADDRESS.parse().expect("address")], ..ConfigOptions::default() }
}

fn driver(tree: &Tree) -> Option<String> {
    let link = fs::read_link(tree.path("/sys/bus/pci/devices/0000:0b:00.0/driver")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

fn plain() -> Tree {
    let tree = Tree::new();
    tree.drive(ADDRESS, 0, Some(7));
    tree
}

const OVERRIDE: &str = "/sys/bus/pci/devices/0000:0b:00.0/driver_override";
const PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const LIMITS: &str = "/etc/security/limits.d/unvme.conf";

#[test]
fn a_drive_is_bound_given_to_a_user_and_brought_back() {
    let tree = plain();
    tree.kernel(ADDRESS, &[]);
    tree.file("/dev/vfio/7", "");
    let before = fs::metadata(tree.path("/dev/vfio/7")).expect("node");
    let owner = Some(Owner::User(before.uid().to_string()));
    let options = ConfigOptions { owner, limits: Some("alice".into()), huge_pages: Some(4), ..options() };
    let plan = plan_config(&tree.system(), &options).expect("plan");
    assert_eq!(plan.execute(&tree.system()).expect("config"), [] as [&str; 0]);
    assert_eq!(driver(&tree).as_deref(), Some("vfio-pci"));
    assert_eq!(tree.text(OVERRIDE), "vfio-pci\n");
    assert_eq!(tree.text(PAGES), "4\n");
    assert_eq!(tree.text(LIMITS), "alice - memlock unlimited\n");

    let reset = ResetOptions { huge_pages: Some(0), ..ResetOptions::default() };
    let plan = plan_reset(&tree.system(), &reset).expect("plan");
    plan.execute(&tree.system()).expect("reset");
    assert_eq!(driver(&tree).as_deref(), Some("nvme"));
    assert_eq!((tree.text(OVERRIDE), tree.text(PAGES)), ("\n".into(), "0\n".into()));
}

#[test]
fn when_a_later_step_fails_everything_is_undone_and_the_state_told() {
    let tree = plain();
    tree.kernel(ADDRESS, &[]);
    tree.file(LIMITS, "bob - memlock 64");
    // A folder in the place of the file that the last step writes to: it cannot even be read.
    let options = ConfigOptions { limits: Some("alice".into()), huge_pages: Some(4), ..options() };
    let plan = plan_config(&tree.system(), &options).expect("plan");
    fs::remove_file(tree.path(LIMITS)).expect("remove");
    tree.folder(LIMITS);
    let e = plan.execute(&tree.system()).expect_err("limits").to_string();
    assert!(e.contains("limits.d/unvme.conf"), "{e}");
    assert!(e.ends_with("; 0000:0b:00.0 is bound to nvme again"), "{e}");
    assert_eq!(driver(&tree).as_deref(), Some("nvme"));
    assert_eq!((tree.text(OVERRIDE), tree.text(PAGES)), ("\n".into(), "0\n".into()));
}

#[test]
fn a_drive_that_the_new_driver_does_not_take_goes_back() {
    let tree = plain();
    tree.kernel(ADDRESS, &["uio_pci_generic"]);
    tree.file("/sys/kernel/iommu_groups/7/type", "identity\n");
    let options = ConfigOptions { driver: Some(Driver::UioPciGeneric), ..options() };
    let plan = plan_config(&tree.system(), &options).expect("plan");
    let e = plan.execute(&tree.system()).expect_err("refusing").to_string();
    assert_eq!(
        e,
        "0000:0b:00.0: the kernel did not bind it to uio_pci_generic; its log says why: dmesg | tail; \
         0000:0b:00.0 is bound to nvme again"
    );
    assert_eq!(driver(&tree).as_deref(), Some("nvme"));
}

#[test]
fn a_drive_that_is_removed_meanwhile_is_told_about() {
    let tree = plain();
    let plan = plan_config(&tree.system(), &options()).expect("plan");
    fs::remove_dir_all(tree.path("/sys/bus/pci/devices/0000:0b:00.0")).expect("remove");
    let e = plan.execute(&tree.system()).expect_err("gone").to_string();
    assert!(e.starts_with("0000:0b:00.0: the drive is no longer there; "), "{e}");
}

#[test]
fn a_namespace_that_has_come_since_the_drive_was_looked_at_stops_it() {
    let tree = plain();
    let plan = plan_config(&tree.system(), &options()).expect("plan");
    tree.folder("/sys/bus/pci/devices/0000:0b:00.0/nvme/nvme0/nvme0n2");
    tree.block("nvme0n2", 9);
    let e = plan.execute(&tree.system()).expect_err("another disk").to_string();
    assert_eq!(e, "0000:0b:00.0: its block devices are not those that were looked at; run the command again");
    assert_eq!(driver(&tree).as_deref(), Some("nvme"));
    assert_eq!(tree.text(OVERRIDE), "(null)\n");
}

#[test]
fn the_limit_of_a_user_is_added_once_to_those_of_others() {
    let tree = plain();
    tree.link("/sys/bus/pci/devices/0000:0b:00.0/driver", "../../drivers/vfio-pci");
    tree.file(LIMITS, "bob - memlock 64");
    let options = ConfigOptions { limits: Some("alice".into()), ..options() };
    for _ in 0..2 {
        plan_config(&tree.system(), &options).expect("plan").execute(&tree.system()).expect("limits");
    }
    assert_eq!(tree.text(LIMITS), "bob - memlock 64\nalice - memlock unlimited\n");
}
