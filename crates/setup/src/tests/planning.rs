//! What is decided, and what is refused.

use std::fs;

use super::tree::Tree;
use super::uses::{CASES, mount};
use crate::{ConfigOptions, Driver, Outcome, Owner, ResetOptions, Step, drives, plan_config, plan_reset};
use unvme::{Error, PciAddress};

const ADDRESS: &str = "0000:0b:00.0";

fn options(addresses: &[&str]) -> ConfigOptions {
    ConfigOptions { addresses: addresses.iter().map(|a| address(a)).collect(), ..ConfigOptions::default() }
}

fn address(text: &str) -> PciAddress {
    text.parse().expect(text)
}

fn commands(tree: &Tree, options: &ConfigOptions) -> Vec<String> {
    let plan = plan_config(&tree.system(), options).unwrap_or_else(|e| panic!("{e}"));
    plan.steps.iter().flat_map(Step::commands).collect()
}

fn refused(tree: &Tree, options: &ConfigOptions) -> String {
    match plan_config(&tree.system(), options) {
        Ok(plan) => panic!("{:?}", plan.steps),
        Err(e) => e.to_string(),
    }
}

/// A machine with one unused drive, in an IOMMU group of its own.
fn plain() -> Tree {
    let tree = Tree::new();
    tree.drive(ADDRESS, 0, Some(7));
    tree
}

#[test]
fn an_unused_drive_behind_an_iommu_goes_to_vfio_and_needs_no_huge_pages() {
    let steps = commands(&plain(), &options(&[ADDRESS]));
    assert_eq!(
        steps,
        [
            "echo vfio-pci > /sys/bus/pci/devices/0000:0b:00.0/driver_override",
            "echo 0000:0b:00.0 > /sys/bus/pci/devices/0000:0b:00.0/driver/unbind",
            "echo 0000:0b:00.0 > /sys/bus/pci/drivers_probe",
        ]
    );
    let owner = Some(Owner::User("alice".into()));
    let all =
        ConfigOptions { owner, limits: Some("alice".into()), huge_pages: Some(8), ..options(&[ADDRESS]) };
    let steps = commands(&plain(), &all);
    let pages = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    assert_eq!(steps[0], format!("[ \"$(cat {pages})\" -ge 8 ] || echo 8 > {pages}"));
    assert_eq!(steps[4], "chown alice /dev/vfio/7");
    assert_eq!(steps[5], "echo 'alice - memlock unlimited' >> /etc/security/limits.d/unvme.conf");
    assert_eq!(steps.len(), 6);
}

#[test]
fn without_an_iommu_it_is_uio_with_the_huge_pages_of_the_guide() {
    let tree = Tree::new();
    tree.drive(ADDRESS, 0, None);
    let steps = commands(&tree, &options(&[]));
    assert!(
        steps[0].ends_with(" || echo 1024 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"),
        "{}",
        steps[0]
    );
    assert_eq!(steps[1], "echo uio_pci_generic > /sys/bus/pci/devices/0000:0b:00.0/driver_override");
    let e = refused(&tree, &ConfigOptions { driver: Some(Driver::VfioPci), ..options(&[ADDRESS]) });
    assert!(e.starts_with("0000:0b:00.0: vfio-pci needs an IOMMU") && e.contains("intel_iommu=on"), "{e}");
    let owner = Some(Owner::User("alice".into()));
    let e = refused(&tree, &ConfigOptions { owner, ..options(&[ADDRESS]) });
    assert!(e.contains("uio_pci_generic cannot be given to a user"), "{e}");
    tree.file("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    let e = refused(&tree, &options(&[ADDRESS]));
    assert!(e.contains("locked down"), "{e}");
}

#[test]
fn behind_an_iommu_that_translates_uio_is_refused_and_behind_one_that_passes_through_not() {
    let tree = plain();
    let uio = ConfigOptions { driver: Some(Driver::UioPciGeneric), ..options(&[ADDRESS]) };
    let e = refused(&tree, &uio);
    assert!(e.contains("behind an IOMMU that translates") && e.contains("iommu=pt"), "{e}");
    tree.file("/sys/kernel/iommu_groups/7/type", "identity\n");
    assert!(commands(&tree, &uio)[1].starts_with("echo uio_pci_generic > "));
    // Chosen by itself only when vfio-pci cannot be had.
    assert!(commands(&tree, &options(&[]))[0].starts_with("echo vfio-pci > "));
    fs::remove_dir(tree.path("/sys/bus/pci/drivers/vfio-pci")).expect("driver");
    assert!(commands(&tree, &options(&[]))[1].starts_with("echo uio_pci_generic > "));
}

#[test]
fn modules_are_loaded_and_a_kernel_without_them_is_told_about() {
    let tree = plain();
    fs::remove_dir(tree.path("/sys/bus/pci/drivers/vfio-pci")).expect("driver");
    let e = refused(&tree, &options(&[ADDRESS]));
    assert!(e.contains("the kernel 6.1.0-test has no driver vfio-pci"), "{e}");
    assert!(e.contains("linux-modules-extra-6.1.0-test"), "{e}");
    tree.file("/lib/modules/6.1.0-test/modules.dep", "kernel/drivers/vfio/pci/vfio-pci.ko.xz: kernel/x.ko\n");
    assert_eq!(commands(&tree, &options(&[ADDRESS]))[0], "modprobe vfio-pci");
}

#[test]
fn a_drive_that_is_in_use_is_never_taken() {
    for (name, prepare, parts) in CASES {
        let tree = plain();
        prepare(&tree);
        let e = refused(&tree, &options(&[ADDRESS]));
        for part in [&["0000:0b:00.0: in use: "], parts].concat() {
            assert!(e.contains(part), "{name}: `{part}` is not in: {e}");
        }
        // When it was not named, it is left alone, and the other drive taken.
        tree.drive("0000:0c:00.0", 1, Some(8));
        let plan = plan_config(&tree.system(), &options(&[])).expect(name);
        assert!(matches!(plan.decisions[0].outcome, Outcome::Left { .. }), "{name}");
        assert_eq!(plan.steps.len(), 1, "{name}: {:?}", plan.steps);
        assert!(plan.steps[0].commands()[0].contains("0000:0c:00.0"), "{name}");
    }
}

#[test]
fn with_several_controllers_in_a_subsystem_its_namespace_counts_for_each() {
    let tree = plain();
    tree.function("0000:0c:00.0", "0x010802", Some("nvme"), Some(8));
    tree.folder("/sys/bus/pci/devices/0000:0c:00.0/nvme/nvme1/nvme0c1n1");
    mount(&tree, "259:1", "/data", "ext4", "/dev/nvme0n1p1", "");
    for address in [ADDRESS, "0000:0c:00.0"] {
        let e = refused(&tree, &options(&[address]));
        assert!(e.contains("nvme0n1p1 is mounted at /data"), "{e}");
    }
}

#[test]
fn a_namespace_without_blocks_is_no_reason_to_refuse() {
    let tree = plain();
    tree.file("/sys/class/block/nvme0n1/hidden", "1\n");
    fs::remove_file(tree.path("/dev/nvme0n1")).expect("node");
    assert_eq!(commands(&tree, &options(&[ADDRESS])).len(), 3);
    let drive = &drives(&tree.system()).expect("drives")[0];
    assert_eq!(drive.nodes(), ["/dev/nvme0", "/dev/ng0n1"]);
}

#[test]
fn what_cannot_be_looked_at_is_refused_but_for_a_dry_run() {
    let tree = plain();
    fs::remove_file(tree.path("/dev/nvme0n1")).expect("node");
    let e = refused(&tree, &options(&[ADDRESS]));
    assert!(e.contains("whether it is in use is not known: /dev/nvme0n1 cannot be looked at"), "{e}");
    let dry = ConfigOptions { dry_run: true, ..options(&[ADDRESS]) };
    let plan = plan_config(&tree.system(), &dry).expect("plan");
    assert_eq!(plan.decisions[0].unseen.len(), 1);
    assert_eq!(plan.steps.len(), 1);
    // One that has become shorter while it was read, too.
    let tree = plain();
    fs::OpenOptions::new()
        .write(true)
        .open(tree.path("/dev/nvme0n1p2"))
        .expect("node")
        .set_len(8192)
        .expect("size");
    let e = refused(&tree, &options(&[ADDRESS]));
    assert!(e.contains("/dev/nvme0n1p2 cannot be looked at"), "{e}");
}

#[test]
fn a_group_goes_as_a_whole_and_bridges_do_not_count() {
    let tree = plain();
    tree.function("0000:0a:00.0", "0x060400", Some("pcieport"), Some(7));
    assert_eq!(commands(&tree, &options(&[ADDRESS])).len(), 3);
    tree.function("0000:0b:00.1", "0x020000", Some("e1000e"), Some(7));
    let e = refused(&tree, &options(&[ADDRESS]));
    assert!(e.contains("the kernel drives others of its IOMMU group 7: 0000:0b:00.1 (e1000e)"), "{e}");
    // Two drives of a group go together, not one without the other.
    let tree = plain();
    tree.drive("0000:0c:00.0", 1, Some(7));
    let e = refused(&tree, &options(&[ADDRESS]));
    assert!(e.contains("0000:0c:00.0 (nvme)"), "{e}");
    assert_eq!(commands(&tree, &options(&[ADDRESS, "0000:0c:00.0"])).len(), 6);
    mount(&tree, "259:17", "/data", "ext4", "/dev/nvme1n1p1", "");
    let e = refused(&tree, &options(&[]));
    assert!(e.contains("all NVMe functions were left alone"), "{e}");
}

#[test]
fn what_is_set_up_stays_and_what_is_open_is_not_taken_from_its_process() {
    let tree = Tree::new();
    tree.function(ADDRESS, "0x010802", Some("vfio-pci"), Some(7));
    tree.process(42, "fio", &["/dev/vfio/7"]);
    let plan = plan_config(&tree.system(), &options(&[ADDRESS])).expect("plan");
    assert_eq!((plan.decisions[0].outcome.clone(), plan.steps.len()), (Outcome::Already, 0));
    let reset = ResetOptions { addresses: vec![address(ADDRESS)], ..ResetOptions::default() };
    let e = plan_reset(&tree.system(), &reset).expect_err("open").to_string();
    assert!(e.contains("in use: /dev/vfio/7 is open in process 42 (fio)"), "{e}");
    let e = refused(&tree, &ConfigOptions { driver: Some(Driver::Nvme), ..options(&[ADDRESS]) });
    assert!(e.contains("process 42"), "{e}");
}

#[test]
fn reset_takes_only_what_user_space_has() {
    let tree = plain();
    tree.function("0000:0c:00.0", "0x010802", Some("vfio-pci"), Some(8));
    tree.function("0000:0d:00.0", "0x010802", None, None);
    tree.file("/sys/bus/pci/devices/0000:0d:00.0/driver_override", "uio_pci_generic\n");
    tree.function("0000:0e:00.0", "0x010802", None, None);
    tree.function("0000:0f:00.0", "0x010802", Some("pciback"), None);
    let options = ResetOptions { huge_pages: Some(0), ..ResetOptions::default() };
    let plan = plan_reset(&tree.system(), &options).expect("plan");
    assert_eq!(
        plan.steps.iter().flat_map(Step::commands).collect::<Vec<_>>(),
        [
            "echo > /sys/bus/pci/devices/0000:0c:00.0/driver_override",
            "echo 0000:0c:00.0 > /sys/bus/pci/devices/0000:0c:00.0/driver/unbind",
            "echo 0000:0c:00.0 > /sys/bus/pci/drivers_probe",
            "echo > /sys/bus/pci/devices/0000:0d:00.0/driver_override",
            "echo 0000:0d:00.0 > /sys/bus/pci/drivers_probe",
            "echo 0 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        ]
    );
}

#[test]
fn names_that_are_not_there_are_told_from_those_that_are() {
    let tree = plain();
    let e = plan_config(&tree.system(), &options(&["0000:99:00.0"])).expect_err("no such drive");
    assert!(matches!(e, Error::NotFound { .. }), "{e:?}");
    assert!(e.to_string().contains("NVMe functions on the PCI bus are 0000:0b:00.0"), "{e}");
    tree.function("0000:00:1f.2", "0x010601", Some("ahci"), None);
    let e = refused(&tree, &options(&["0000:00:1f.2"]));
    assert!(e.contains("no NVMe controller: its class is 0x010601"), "{e}");
    tree.function("0000:0f:00.0", "0x010802", Some("pciback"), None);
    let e = refused(&tree, &options(&["0000:0f:00.0"]));
    assert!(e.contains("its driver is pciback"), "{e}");
    let owner = Some(Owner::Group("disk".into()));
    let e = refused(&tree, &ConfigOptions { owner, ..options(&[ADDRESS]) });
    assert!(e.contains("there is no group `disk` in /etc/group"), "{e}");
    let e = refused(&Tree::new(), &options(&[]));
    assert!(e.starts_with("there is no NVMe function on the PCI bus"), "{e}");
}

#[test]
fn nonsense_in_files_of_the_kernel_harms_nobody() {
    let tree = plain();
    tree.folder("/sys/power");
    for file in [
        "/proc/swaps",
        "/proc/self/mountinfo",
        "/sys/power/resume",
        "/sys/class/block/nvme0n1/queue/logical_block_size",
        "/sys/class/block/nvme0n1/nsid",
        "/sys/class/block/nvme0n1p1/dev",
        "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
        "/etc/passwd",
    ] {
        fs::write(tree.path(file), b"\xff\xfe - \n\0\n: :\n-1\n").expect(file);
    }
    assert_eq!(commands(&tree, &options(&[ADDRESS])).len(), 3);
    let status = crate::status(&tree.system()).expect("status");
    assert_eq!(status.drives[0].uses, []);
    // A drive whose description makes no sense is no drive.
    tree.file("/sys/bus/pci/devices/0000:0b:00.0/class", "nonsense");
    assert_eq!(drives(&tree.system()).expect("drives").len(), 0);
    tree.file("/sys/bus/pci/devices/0000:0b:00.0/class", "0x010802");
    // One that vanishes while it is read has no controller any more.
    fs::remove_dir_all(tree.path("/sys/bus/pci/devices/0000:0b:00.0/nvme")).expect("nvme");
    assert_eq!(drives(&tree.system()).expect("drives")[0].controller, None);
}
