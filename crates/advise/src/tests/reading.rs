use unvme_setup::System;

use super::machines::*;
use super::tree::Tree;
use crate::{Cpus, Reach, Relation, Topology, interrupts, locate, located_drives};

fn topology(tree: &Tree) -> Topology {
    Topology::read(&tree.system()).expect("a topology")
}

#[test]
fn cpus_relate_as_their_machine_is_built() {
    use Relation::{OtherL3, OtherNode, OtherSocket, SameCpu, SameL3, SameNode, Sibling};
    for (name, tree, pairs) in [
        (
            "Xeon, two sockets",
            xeon_e5_2667_v3_two_sockets(),
            &[(0, 0, SameCpu), (0, 16, Sibling), (0, 1, SameL3), (0, 23, SameL3), (0, 8, OtherSocket)][..],
        ),
        (
            "EPYC 7451, two sockets",
            epyc_7451_two_sockets(),
            &[(0, 48, Sibling), (0, 2, SameL3), (0, 3, OtherL3), (0, 6, OtherNode), (0, 24, OtherSocket)],
        ),
        ("EPYC 9124", epyc_9124(), &[(0, 16, Sibling), (0, 3, SameL3), (0, 4, OtherL3), (0, 31, OtherL3)]),
        ("Xeon, four sockets", xeon_gold_6248_four_sockets(), &[(20, 100, Sibling), (20, 40, OtherSocket)]),
        ("hybrid", core_i9_12900k(), &[(0, 1, Sibling), (0, 2, SameL3), (0, 16, SameL3)]),
        ("Arm without an L3", ampere_altra(), &[(0, 1, SameNode), (0, 79, SameNode)]),
        (
            "Arm, two sockets",
            kunpeng_920_two_sockets(),
            &[(0, 31, SameL3), (0, 32, OtherNode), (0, 64, OtherSocket)],
        ),
        ("big and little cores", rk3588(), &[(0, 4, SameL3)]),
    ] {
        let topology = topology(&tree);
        for &(one, other, relation) in pairs {
            assert_eq!(topology.relation(one, other), relation, "{name}: {one} and {other}");
            assert_eq!(topology.relation(other, one), relation, "{name}: {other} and {one}");
        }
        assert_eq!(topology.unknown, [""; 0], "{name}");
    }
}

#[test]
fn a_machine_is_counted() {
    let epyc = topology(&epyc_7451_two_sockets());
    let counts = (epyc.cpus.len(), epyc.cores(), epyc.packages(), epyc.nodes.len(), epyc.l3_domains().len());
    assert_eq!(counts, (96, 48, 2, 8, 16));
    assert_eq!((epyc.distance(0, 0), epyc.distance(0, 1), epyc.distance(0, 4)), (10, 16, 32));
    assert_eq!((epyc.nodes[0].huge_pages, epyc.nodes[0].huge_pages_free), (512, 500));
    let hybrid = topology(&core_i9_12900k());
    let slow: Cpus =
        hybrid.cpus.iter().filter(|cpu| cpu.capacity < Some(1024)).map(|cpu| cpu.number).collect();
    assert_eq!(slow.to_string(), "16-23");
}

#[test]
fn offline_isolated_and_forbidden_cpus_are_left_out() {
    let tree = epyc_9124();
    tree.file("/sys/devices/system/cpu/online", "0-2,4-31\n");
    tree.file("/sys/devices/system/cpu/isolated", "8-9\n");
    tree.file("/proc/self/status", "Name:\tcat\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0\n");
    // A CPU that is offline has no topology.
    tree.remove("/sys/devices/system/cpu/cpu3/topology");
    tree.remove("/sys/devices/system/cpu/cpu3/cache");
    let found = topology(&tree);
    assert_eq!((found.offline.to_string(), found.usable.to_string()), ("3".to_owned(), "0-2,4-7".to_owned()));
    assert_eq!(found.isolated.to_string(), "8-9");
    assert_eq!(found.cpu(0).expect("CPU 0").l3.as_ref().expect("an L3").to_string(), "0-2,16-19");
    assert_eq!(found.cpu(3), None);
    assert_eq!(found.relation(0, 3), Relation::Unknown);
}

#[test]
fn a_quota_is_the_least_of_all_cgroups_above() {
    let tree = epyc_9124();
    tree.file("/proc/self/cgroup", "0::/a/b\n");
    tree.file("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    assert_eq!(topology(&tree).quota, None);
    tree.file("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    assert_eq!(topology(&tree).quota, Some(1.5));
    tree.file("/proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n");
    tree.file("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "200000\n");
    tree.file("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_eq!(topology(&tree).quota, Some(2.0));
    tree.file("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
    assert_eq!(topology(&tree).quota, None);
}

#[test]
fn a_file_that_says_something_else_is_an_error_that_names_it() {
    for (path, text) in [
        ("/sys/devices/system/cpu/online", "all"),
        ("/sys/devices/system/cpu/cpu5/cache/index3/shared_cpu_list", "0-"),
        ("/sys/devices/system/cpu/cpu5/topology/physical_package_id", "first"),
        ("/sys/devices/system/node/node0/cpulist", "0-99999"),
        ("/sys/devices/system/node/node0/distance", "10 far"),
        ("/proc/self/cgroup", "nonsense"),
        ("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "garbage"),
        ("/sys/devices/system/cpu/cpu5/cache/index3/level", "three"),
        ("/sys/devices/system/cpu/cpu5/topology/physical_package_id", "99999999999"),
        ("/sys/devices/system/cpu/cpu5/cache/index3/shared_cpu_list", "8-11"),
    ] {
        let tree = epyc_9124();
        tree.file(path, text);
        let error = Topology::read(&tree.system()).expect_err(path).to_string();
        assert!(error.contains(path), "{path}: {error}");
        assert!(error.contains(text.split(' ').next_back().expect("a word")), "{path}: {error}");
    }
    let tree = epyc_9124();
    tree.remove("/sys/devices/system/cpu/isolated");
    std::fs::create_dir(tree.path("/sys/devices/system/cpu/isolated")).expect("a directory");
    let error = Topology::read(&tree.system()).expect_err("a directory is no file").to_string();
    assert!(error.contains("cpu/isolated"), "{error}");
    tree.remove("/sys/devices/system/cpu/isolated");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        tree.path("/sys/devices/system/cpu/isolated"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("a FIFO");
    let error = Topology::read(&tree.system()).expect_err("a FIFO is no file").to_string();
    assert!(error.contains("it is no file"), "{error}");
}

#[test]
fn a_quota_that_is_none_is_an_error() {
    for text in ["nan 100000", "-5 100000", "100000 0", "100000"] {
        let tree = epyc_9124();
        tree.file("/proc/self/cgroup", "0::/\n");
        tree.file("/sys/fs/cgroup/cpu.max", text);
        let error = Topology::read(&tree.system()).expect_err(text).to_string();
        assert!(error.contains("cpu.max"), "{text}: {error}");
    }
}

#[test]
fn nodes_go_before_an_l3_that_spans_them() {
    let tree = Tree::new();
    tree.cpus(4, |cpu| [0, cpu, cpu / 2], &["0-3"]);
    let found = topology(&tree);
    assert_eq!((found.relation(0, 1), found.relation(0, 2)), (Relation::SameL3, Relation::OtherNode));
}

#[test]
fn a_copy_without_cpus_is_refused_and_one_without_topology_says_so() {
    let tree = Tree::new();
    let error = Topology::read(&tree.system()).expect_err("no CPUs").to_string();
    assert!(error.contains("/sys/devices/system/cpu/online is missing"), "{error}");
    tree.file("/sys/devices/system/cpu/online", "0-1\n");
    let found = topology(&tree);
    assert_eq!((found.usable.len(), found.nodes.len(), found.unknown.len()), (2, 0, 1));
    assert_eq!(found.relation(0, 1), Relation::Unknown);
    // In a container without /sys the CPUs are those of the process.
    let bare = Tree::new();
    bare.file("/proc/self/status", "Cpus_allowed_list:\t0,2\n");
    let found = topology(&bare);
    assert_eq!((found.usable.to_string(), found.unknown.len()), ("0,2".to_owned(), 1));
    let none = epyc_9124();
    none.file("/proc/self/status", "Cpus_allowed_list:\t40\n");
    let error = Topology::read(&none.system()).expect_err("no CPU of ours").to_string();
    assert!(error.contains("may run on none of the CPUs 0-31"), "{error}");
}

#[test]
fn a_copy_of_sys_alone_is_enough() {
    let tree = epyc_9124();
    let found = Topology::read(&System::at_sys(tree.root().join("sys"))).expect("a topology");
    assert_eq!(found.l3_domains().len(), 4);
}

#[test]
fn this_machine_is_read() {
    let found = Topology::read(&System::live()).expect("this machine");
    assert!(!found.usable.is_empty());
    assert!(found.usable.iter().all(|cpu| found.cpu(cpu).is_some()));
}

#[test]
fn drives_are_where_the_bus_says() {
    let tree = xeon_e5_2667_v3_two_sockets();
    tree.drive("0000:05:00.0", 1, "vfio-pci");
    tree.drive("0000:02:00.0", -1, "nvme");
    tree.file("/sys/bus/pci/devices/0000:02:00.0/nvme/nvme0/serial", "S1\n");
    tree.file("/sys/bus/pci/devices/0000:02:00.0/nvme/nvme0/nvme0n1/size", "0\n");
    tree.file("/sys/bus/pci/devices/0000:02:00.0/msi_irqs/30", "");
    tree.file("/sys/bus/pci/devices/0000:02:00.0/msi_irqs/31", "");
    tree.file(
        "/proc/interrupts",
        "           CPU0       CPU1       \n \
         30:         12          0   PCI-MSI 1048576-edge      nvme0q0\n \
         31:          3          5   PCI-MSI 1048577-edge      nvme0q1\n \
         40:          1          1   PCI-MSI 524288-edge      eth0\n\
         NMI:          0          0   Non-maskable interrupts\n",
    );
    tree.file("/proc/irq/31/smp_affinity_list", "0-3\n");
    tree.file("/proc/irq/31/effective_affinity_list", "2\n");
    let system = tree.system();
    let all = interrupts(&system).expect("interrupts");
    let told: Vec<(u32, &str, Option<u64>)> =
        all.iter().map(|one| (one.number, one.name.as_str(), one.count)).collect();
    assert_eq!(told, [(30, "nvme0q0", Some(12)), (31, "nvme0q1", Some(8)), (40, "eth0", Some(2))]);
    assert_eq!((all[0].is_managed(), all[1].is_managed(), all[2].is_managed()), (false, true, false));
    assert_eq!(all[1].cpus().map(ToString::to_string).as_deref(), Some("2"));
    let drives = located_drives(&system).expect("drives");
    assert_eq!(drives.len(), 2);
    assert_eq!((drives[0].node, drives[0].reach, drives[0].interrupts.len()), (None, Reach::Kernel, 2));
    assert_eq!((drives[1].node, drives[1].reach), (Some(1), Reach::UserSpace));
    let kernel = locate(&system, "kernel:/dev/nvme0").expect("a drive of the kernel's");
    assert_eq!(kernel.address.as_deref(), Some("0000:02:00.0"));
    assert_eq!(locate(&system, "0000:05:00.0").expect("a drive").node, Some(1));
    assert_eq!(locate(&system, "mem:block:1G").expect("memory").reach, Reach::InProcess);
    assert!(locate(&system, "mem:tape:1G").is_err());
}
