use unvme_guide::SdkConfig;
use unvme_guide::config::SsdType;

use super::machines::*;
use super::tree::Tree;
use crate::{
    AssignOptions, Assignment, Goal, Location, PerCore, QueueSettings, Reach, Relation, Topology, assign,
    configurations, frequency_lines, interrupt_lines, interrupts, located_drives, taskset, unit_lines,
};

fn options(goal: Goal) -> AssignOptions {
    AssignOptions {
        per_core: PerCore::of_guide(goal),
        polls: false,
        queues: 1,
        completing: None,
        completing_many: None,
    }
}

fn topology_of(tree: &Tree) -> Topology {
    Topology::read(&tree.system()).expect("a topology")
}

fn queues(depth: u16) -> QueueSettings {
    QueueSettings { depth, are_synchronous: false }
}

/// Drives 0000:01:00.0 and so on, on these nodes.
fn drives(tree: &Tree, nodes: &[i32]) -> Vec<Location> {
    for (place, node) in nodes.iter().enumerate() {
        tree.drive(&format!("0000:{:02x}:00.0", place + 1), *node, "vfio-pci");
    }
    located_drives(&tree.system()).expect("drives")
}

fn placed(tree: &Tree, nodes: &[i32], options: AssignOptions) -> (Topology, Vec<Location>, Assignment) {
    let devices = drives(tree, nodes);
    let topology = Topology::read(&tree.system()).expect("a topology");
    let assignment = assign(&topology, &devices, options);
    assert_eq!(assignment.devices.len(), devices.len());
    (topology, devices, assignment)
}

fn told(assignment: &Assignment) -> Vec<(String, String)> {
    assignment.devices.iter().map(|own| (own.submit.to_string(), own.complete.to_string())).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(submit, complete)| ((*submit).to_owned(), (*complete).to_owned())).collect()
}

#[test]
fn eight_devices_of_a_xeon_get_the_four_cores_of_the_guide() {
    // The second step of section 7.8.1: masks 1 and 2 for four devices, 4 and 8 for the other four.
    let (_, devices, assignment) = placed(&xeon_e5_2667_v3_two_sockets(), &[0; 8], options(Goal::Throughput));
    let half = |submit, complete| vec![(submit, complete); 4];
    assert_eq!(told(&assignment), pairs(&[half("0", "1"), half("2", "3")].concat()));
    assert_eq!(assignment.notes, [""; 0]);
    let (files, notes) = configurations(&devices, &[SsdType::Kv; 8], &assignment, queues(256));
    assert!(notes.is_empty() && files.len() == 1);
    let (config, warnings) = SdkConfig::parse(&files[0].text, "sdk.json").expect("a configuration");
    assert_eq!(warnings, [""; 0]);
    let masks: Vec<_> = config
        .devices
        .iter()
        .map(|own| (own.dev_id.as_str(), own.core_mask, own.sync_mask, own.cq_thread_mask, own.queue_depth))
        .collect();
    assert_eq!(masks[0], ("0000:01:00.0", 1, 0, 2, 256));
    assert_eq!(masks[7], ("0000:08:00.0", 4, 0, 8, 256));
}

#[test]
fn devices_of_two_sockets_stay_on_their_nodes() {
    let tree = xeon_e5_2667_v3_two_sockets();
    let (topology, _, assignment) = placed(&tree, &[0, 1, 0, 1], options(Goal::Throughput));
    assert_eq!(told(&assignment), pairs(&[("0", "1"), ("8", "9"), ("0", "1"), ("8", "9")]));
    assert_eq!(taskset(&assignment), "taskset -c 0-1,8-9 PROGRAM");
    assert_eq!(
        unit_lines(&topology, &assignment),
        ["CPUAffinity=0-1,8-9", "NUMAPolicy=bind", "NUMAMask=0-1"]
    );
}

#[test]
fn the_tail_of_the_latency_takes_two_devices_a_submitting_core_and_eight_a_completing_one() {
    let (_, _, assignment) = placed(&xeon_e5_2667_v3_two_sockets(), &[0; 8], options(Goal::Latency));
    let two = |submit| vec![(submit, "4"); 2];
    assert_eq!(told(&assignment), pairs(&[two("0"), two("1"), two("2"), two("3")].concat()));
}

#[test]
fn a_group_is_not_larger_than_the_cores_behind_one_l3() {
    // Four cores: three submit, two devices each, and the fourth completes.
    let (_, _, assignment) = placed(&epyc_9124(), &[0; 8], options(Goal::Latency));
    let all =
        [("0", "3"), ("0", "3"), ("1", "3"), ("1", "3"), ("2", "3"), ("2", "3"), ("4", "5"), ("4", "5")];
    assert_eq!(told(&assignment), pairs(&all));
    assert_eq!(assignment.notes, [""; 0]);
    // Three cores.
    let (_, _, assignment) = placed(&epyc_7451_two_sockets(), &[0; 6], options(Goal::Latency));
    let all = [("0", "2"), ("0", "2"), ("1", "2"), ("1", "2"), ("3", "4"), ("3", "4")];
    assert_eq!(told(&assignment), pairs(&all));
}

#[test]
fn pairs_of_cores_never_straddle_two_l3s_of_an_epyc() {
    // An L3 has three cores: the second pair does not take the third one.
    let (_, _, assignment) = placed(&epyc_7451_two_sockets(), &[0; 8], options(Goal::Throughput));
    assert_eq!(told(&assignment)[3..5], pairs(&[("0", "1"), ("3", "4")]));
    assert!(assignment.devices.iter().all(|own| own.relation == Some(Relation::SameL3)));
    let (_, _, assignment) = placed(&epyc_7451_two_sockets(), &[1, 5], options(Goal::Throughput));
    assert_eq!(told(&assignment), pairs(&[("6", "7"), ("30", "31")]));
    let one = AssignOptions {
        per_core: PerCore { submitting: 1, completing: 1, is_measured: true },
        ..options(Goal::Throughput)
    };
    let (_, _, assignment) = placed(&epyc_9124(), &[0; 6], one);
    assert_eq!(
        told(&assignment),
        pairs(&[("0", "1"), ("2", "3"), ("4", "5"), ("6", "7"), ("8", "9"), ("10", "11")])
    );
}

#[test]
fn more_devices_than_cores_share_pairs_and_stay_on_their_node() {
    let one = AssignOptions {
        per_core: PerCore { submitting: 1, completing: 1, is_measured: true },
        ..options(Goal::Throughput)
    };
    let (topology, _, assignment) = placed(&epyc_7451_two_sockets(), &[0; 12], one);
    for own in &assignment.devices {
        let cpus = own.submit.iter().chain(own.complete.iter());
        assert!(cpus.into_iter().all(|cpu| topology.cpu(cpu).and_then(|cpu| cpu.node) == Some(0)), "{own:?}");
    }
}

#[test]
fn a_measured_place_of_the_completion_thread_goes_before_the_rules() {
    for (relation, pair) in [
        (Relation::SameCpu, ("0", "0")),
        (Relation::Sibling, ("0", "16")),
        (Relation::SameL3, ("0", "1")),
        (Relation::OtherL3, ("0", "4")),
    ] {
        let options = AssignOptions { completing: Some(relation), ..options(Goal::Throughput) };
        let (_, _, assignment) = placed(&epyc_9124(), &[0], options);
        assert_eq!(told(&assignment), pairs(&[pair]), "{relation}");
        assert_eq!(assignment.notes, [""; 0], "{relation}");
    }
}

#[test]
fn polled_queues_get_cores_of_their_own() {
    let polls = AssignOptions {
        per_core: PerCore { submitting: 1, completing: 1, is_measured: true },
        polls: true,
        queues: 2,
        completing: None,
        completing_many: None,
    };
    let (_, devices, assignment) = placed(&epyc_9124(), &[0, 0, 0], polls);
    assert_eq!(told(&assignment), pairs(&[("0-1", ""), ("2-3", ""), ("4-5", "")]));
    let (files, _) = configurations(&devices, &[SsdType::Lba; 3], &assignment, queues(64));
    let (config, _) = SdkConfig::parse(&files[0].text, "sdk.json").expect("a configuration");
    assert_eq!((config.devices[1].core_mask, config.devices[1].cq_thread_mask), (0xc, 0));
    let synchronous = QueueSettings { depth: 64, are_synchronous: true };
    let (files, _) = configurations(&devices, &[SsdType::Lba; 3], &assignment, synchronous);
    let (config, warnings) = SdkConfig::parse(&files[0].text, "sdk.json").expect("a configuration");
    assert_eq!((config.devices[2].core_mask, config.devices[2].sync_mask), (0x30, 0x30));
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn several_queues_of_a_device_have_pairs_of_their_own_as_far_as_there_are_cores() {
    let per_core = PerCore { submitting: 1, completing: 1, is_measured: true };
    let options = |queues, completing| AssignOptions {
        per_core,
        polls: false,
        queues,
        completing: None,
        completing_many: completing,
    };
    let (_, _, own) = placed(&epyc_9124(), &[0, 0], options(2, Some(Relation::SameCpu)));
    assert_eq!(told(&own), pairs(&[("0-1", "0-1"), ("2-3", "2-3")]));
    let (_, _, own) = placed(&epyc_9124(), &[0, 0], options(2, Some(Relation::SameL3)));
    assert_eq!(told(&own), pairs(&[("0,2", "1,3"), ("4,6", "5,7")]));
    // 16 cores: four queues of each of 8 devices are more than there are.
    let (_, _, own) = placed(&epyc_9124(), &[0; 8], options(4, Some(Relation::SameCpu)));
    assert_eq!(told(&own)[..2], pairs(&[("0-1", "0-1"), ("2-3", "2-3")]));
    let two = || {
        let tree = Tree::new();
        tree.cpus(2, |cpu| [0, cpu, 0], &["0-1"]);
        tree
    };
    let (_, _, own) = placed(&two(), &[0], options(2, Some(Relation::SameCpu)));
    assert_eq!(told(&own), pairs(&[("0-1", "0-1")]));
    let (_, _, own) = placed(&two(), &[0; 3], options(2, Some(Relation::SameCpu)));
    // One queue each is left: a completing core of its own, as for one queue.
    assert_eq!(told(&own), pairs(&[("0", "1"), ("0", "1"), ("0", "1")]));
}

#[test]
fn fast_cores_come_first_and_siblings_last() {
    let one = AssignOptions {
        per_core: PerCore { submitting: 1, completing: 1, is_measured: true },
        ..options(Goal::Throughput)
    };
    let (_, _, assignment) = placed(&core_i9_12900k(), &[0; 2], one);
    assert_eq!(told(&assignment), pairs(&[("0", "2"), ("4", "6")]));
    let (_, _, assignment) = placed(&rk3588(), &[-1; 2], one);
    assert_eq!(told(&assignment), pairs(&[("4", "5"), ("6", "7")]));
    let (_, _, assignment) = placed(&ampere_altra(), &[0; 2], one);
    assert_eq!(told(&assignment), pairs(&[("0", "1"), ("2", "3")]));
    let (_, _, assignment) = placed(&kunpeng_920_two_sockets(), &[1], one);
    assert_eq!(told(&assignment), pairs(&[("32", "33")]));
}

#[test]
fn isolated_siblings_of_a_core_are_a_pair() {
    let tree = epyc_9124();
    tree.file("/sys/devices/system/cpu/isolated", "3,19\n");
    let (_, _, assignment) = placed(&tree, &[0], options(Goal::Throughput));
    assert_eq!(told(&assignment), pairs(&[("3", "19")]));
    assert!(assignment.notes[0].contains("\"SMT sibling\""), "{:?}", assignment.notes);
}

#[test]
fn isolated_cpus_are_taken_first() {
    let tree = epyc_9124();
    tree.file("/sys/devices/system/cpu/isolated", "12-15\n");
    let (_, _, assignment) = placed(&tree, &[0], options(Goal::Throughput));
    assert_eq!(told(&assignment), pairs(&[("12", "13")]));
}

#[test]
fn what_a_machine_or_a_process_does_not_have_is_told() {
    // CPUs of the other node alone.
    let tree = xeon_e5_2667_v3_two_sockets();
    tree.file("/proc/self/status", "Cpus_allowed_list:\t0-7\n");
    let (_, _, assignment) = placed(&tree, &[1], options(Goal::Throughput));
    assert_eq!(told(&assignment), pairs(&[("0", "1")]));
    assert!(
        assignment.notes[0].contains("on node 1, and this process may run on none of its CPUs 8-15,24-31"),
        "{:?}",
        assignment.notes
    );
    // One CPU.
    let tree = xeon_e5_2667_v3_two_sockets();
    tree.file("/proc/self/status", "Cpus_allowed_list:\t3\n");
    let (_, _, assignment) = placed(&tree, &[0, 0], options(Goal::Throughput));
    assert_eq!(told(&assignment), pairs(&[("3", "3"), ("3", "3")]));
    assert!(assignment.notes[0].contains("one CPU submits and completes"), "{:?}", assignment.notes);
    // The two threads of one core.
    let tree = xeon_e5_2667_v3_two_sockets();
    tree.file("/proc/self/status", "Cpus_allowed_list:\t3,19\n");
    let (_, _, assignment) = placed(&tree, &[0], options(Goal::Throughput));
    assert_eq!(told(&assignment), pairs(&[("3", "19")]));
    assert!(assignment.notes[0].contains("\"SMT sibling\""), "{:?}", assignment.notes);
    // Beyond what masks can name.
    let (_, devices, assignment) = placed(&xeon_gold_6248_four_sockets(), &[3, 2], options(Goal::Throughput));
    assert_eq!(told(&assignment), pairs(&[("60", "61"), ("40", "41")]));
    let (files, notes) = configurations(&devices, &[SsdType::Lba; 2], &assignment, queues(128));
    assert!(notes.is_empty() && files[0].text.contains("\"core_mask\": \"1000000000000000\""), "{files:?}");
    let (_, _, assignment) = placed(&kunpeng_920_two_sockets(), &[3], options(Goal::Throughput));
    assert!(assignment.notes[0].contains("masks name CPUs 0 to 63, and its CPUs are 96-127"));
    // A node that nothing is known of, and a quota.
    let tree = xeon_e5_2667_v3_two_sockets();
    tree.file("/proc/self/cgroup", "0::/\n");
    tree.file("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    let (_, _, assignment) = placed(&tree, &[-1], options(Goal::Throughput));
    assert!(assignment.notes[0].contains("the firmware does not say which node"), "{:?}", assignment.notes);
    assert!(assignment.notes[1].contains("1.0 CPUs' worth of time, and these are 2 CPUs"));
}

#[test]
fn names_that_no_file_can_hold_are_told_and_kinds_have_files_of_their_own() {
    let tree = epyc_9124();
    let topology = Topology::read(&tree.system()).expect("a topology");
    let long = "vfio-user:/run/a-directory-with-a-long-name/nvme.sock";
    let devices = ["mem:block:1G", "mem:kv:1G", long].map(|name| Location::nowhere(name, Reach::InProcess));
    let assignment = assign(&topology, &devices, options(Goal::Throughput));
    let kinds = [SsdType::Lba, SsdType::Kv, SsdType::Lba];
    let (files, notes) = configurations(&devices, &kinds, &assignment, queues(32));
    let found: Vec<SsdType> = files.iter().map(|file| file.ssd_type).collect();
    assert_eq!(found, [SsdType::Lba, SsdType::Kv]);
    assert!(notes.len() == 1 && notes[0].starts_with(long), "{notes:?}");
    for file in files {
        SdkConfig::parse(&file.text, "sdk.json").expect("a configuration");
    }
}

#[test]
fn cpus_that_no_mask_can_name_are_given_and_told() {
    let tree = xeon_gold_6248_four_sockets();
    tree.file("/proc/self/status", "Cpus_allowed_list:\t80-99\n");
    let (_, devices, assignment) = placed(&tree, &[0], options(Goal::Throughput));
    assert_eq!(told(&assignment), pairs(&[("80", "81")]));
    let (files, notes) = configurations(&devices, &[SsdType::Lba], &assignment, queues(32));
    assert!(files.is_empty() && notes[0].contains("beyond 63, which no mask can name"), "{notes:?}");
}

#[test]
fn a_service_is_not_bound_to_a_node_without_memory() {
    let tree = xeon_e5_2667_v3_two_sockets();
    tree.file("/sys/devices/system/node/has_memory", "0\n");
    let (topology, _, assignment) = placed(&tree, &[0, 1], options(Goal::Throughput));
    assert_eq!(unit_lines(&topology, &assignment), ["CPUAffinity=0-1,8-9"]);
}

#[test]
fn a_node_of_memory_alone_is_told() {
    let tree = xeon_e5_2667_v3_two_sockets();
    tree.file("/sys/devices/system/node/node2/cpulist", "\n");
    let (_, _, assignment) = placed(&tree, &[2], options(Goal::Throughput));
    assert!(assignment.notes[0].contains("that node has memory and no CPU"), "{:?}", assignment.notes);
}

#[test]
fn more_devices_than_a_file_has_are_told() {
    let tree = epyc_9124();
    let devices: Vec<Location> =
        (0..66).map(|at| Location::nowhere(&format!("mem:block:{}M", at + 1), Reach::InProcess)).collect();
    let topology = topology_of(&tree);
    let assignment = assign(&topology, &devices, options(Goal::Throughput));
    let (files, notes) = configurations(&devices, &[SsdType::Lba; 66], &assignment, queues(32));
    assert_eq!((files.len(), notes.len()), (1, 2));
    assert!(notes[1].starts_with("mem:block:66M: a configuration file has 64 devices"), "{notes:?}");
}

#[test]
fn the_nearest_node_takes_the_place_of_one_without_usable_cpus() {
    let tree = epyc_7451_two_sockets();
    // Node 0 is in the other socket, node 6 in the same one as node 5.
    tree.file("/proc/self/status", "Cpus_allowed_list:\t0-5,36-41\n");
    let (_, _, assignment) = placed(&tree, &[5], options(Goal::Throughput));
    assert_eq!(told(&assignment), pairs(&[("36", "37")]));
}

#[test]
fn cpus_whose_frequency_varies_are_told() {
    let tree = epyc_9124();
    assert_eq!(
        frequency_lines(&topology_of(&tree), &placed(&tree, &[0], options(Goal::Throughput)).2),
        [""; 0]
    );
    for (cpu, governor) in [(0, "powersave"), (1, "performance"), (2, "powersave")] {
        tree.file(
            &format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"),
            &format!("{governor}\n"),
        );
    }
    let assignment = assign(&topology_of(&tree), &[], options(Goal::Throughput));
    assert_eq!(frequency_lines(&topology_of(&tree), &assignment), [""; 0]);
    let devices = located_drives(&tree.system()).expect("drives");
    let assignment = assign(&topology_of(&tree), &devices, options(Goal::Throughput));
    assert_eq!(
        frequency_lines(&topology_of(&tree), &assignment),
        ["cpupower -c 0 frequency-set -g performance"]
    );
}

#[test]
fn interrupts_go_to_the_completing_cpu_and_others_off_it() {
    let tree = epyc_9124();
    tree.file(
        "/proc/interrupts",
        "     CPU0 CPU1\n 30: 1 0 PCI-MSI 1-edge vfio-msix[0](0000:01:00.0)\n 40: 7 0 PCI-MSI 2-edge eth0-rx-0\n \
         41: 0 0 PCI-MSI 3-edge idle\n",
    );
    for (irq, cpus) in [(30, "5"), (40, "0-31"), (41, "0-31")] {
        tree.file(&format!("/proc/irq/{irq}/smp_affinity_list"), cpus);
    }
    tree.file("/sys/bus/pci/devices/0000:01:00.0/msi_irqs/30", "");
    let (topology, devices, assignment) = placed(&tree, &[0], options(Goal::Throughput));
    let all = interrupts(&tree.system()).expect("interrupts");
    let (commands, notes) = interrupt_lines(&topology, &devices, &all, &assignment);
    assert_eq!(
        commands,
        [
            "echo 1 > /proc/irq/30/smp_affinity_list   # vfio-msix[0](0000:01:00.0)",
            "echo 2-31 > /proc/irq/40/smp_affinity_list   # eth0-rx-0",
        ]
    );
    assert!(notes.len() == 1 && notes[0].contains("EIO"), "{notes:?}");
    // They may go to CPUs that this process may not use.
    tree.file("/proc/self/status", "Cpus_allowed_list:\t0-1\n");
    let topology = topology_of(&tree);
    let (commands, _) = interrupt_lines(&topology, &devices, &all, &assignment);
    assert_eq!(commands[1], "echo 2-31 > /proc/irq/40/smp_affinity_list   # eth0-rx-0");
}

#[test]
fn queues_of_the_kernel_are_not_moved() {
    let tree = epyc_9124();
    tree.drive("0000:01:00.0", 0, "nvme");
    let lines = "    CPU0 CPU1\n 30: 1 0 PCI-MSI 0-edge nvme0q0\n 31: 1 0 PCI-MSI 1-edge nvme0q1\n";
    tree.file("/proc/interrupts", lines);
    tree.file("/proc/irq/31/effective_affinity_list", "4");
    for irq in [30, 31] {
        tree.file(&format!("/sys/bus/pci/devices/0000:01:00.0/msi_irqs/{irq}"), "");
    }
    let system = tree.system();
    let (devices, topology) =
        (located_drives(&system).expect("drives"), Topology::read(&system).expect("CPUs"));
    let assignment = assign(&topology, &devices, options(Goal::Throughput));
    let all = interrupts(&system).expect("interrupts");
    let (commands, notes) = interrupt_lines(&topology, &devices, &all, &assignment);
    assert_eq!(commands, ["echo 1 > /proc/irq/30/smp_affinity_list   # nvme0q0"]);
    assert!(notes[0].contains("none runs on CPUs 0, whose completions come from another CPU"), "{notes:?}");
}
