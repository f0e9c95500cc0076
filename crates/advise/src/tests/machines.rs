//! Machines with published topologies, numbered as their kernels number them.

use super::tree::Tree;

/// The guide's own for Figures 31 and 32: two Xeon E5-2667 v3 of 8 cores with Hyper-Threading. CPUs 0-7 are
/// the first threads of socket 0, 8-15 of socket 1, then come the second threads in the same order.
pub(super) fn xeon_e5_2667_v3_two_sockets() -> Tree {
    let tree = Tree::new();
    tree.cpus(32, |cpu| [cpu / 8 % 2, cpu % 8, cpu / 8 % 2], &["0-7,16-23", "8-15,24-31"]);
    tree
}

/// The guide's for Figures 10 to 13: two EPYC 7451 of 24 cores with SMT, four nodes a socket, and an L3 for
/// every three cores.
pub(super) fn epyc_7451_two_sockets() -> Tree {
    let tree = Tree::new();
    let core = |cpu: u32| cpu % 48;
    let l3: Vec<String> =
        (0..16).map(|l3| format!("{}-{},{}-{}", 3 * l3, 3 * l3 + 2, 3 * l3 + 48, 3 * l3 + 50)).collect();
    let l3: Vec<&str> = l3.iter().map(String::as_str).collect();
    tree.cpus(96, |cpu| [core(cpu) / 24, core(cpu), core(cpu) / 6], &l3);
    tree
}

/// EPYC 9124: 16 cores with SMT in four complexes with an L3 each, one node (NPS1).
pub(super) fn epyc_9124() -> Tree {
    let tree = Tree::new();
    let l3 = ["0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"];
    tree.cpus(32, |cpu| [0, cpu % 16, 0], &l3);
    tree
}

/// Four Xeon Gold 6248 of 20 cores with Hyper-Threading.
pub(super) fn xeon_gold_6248_four_sockets() -> Tree {
    let tree = Tree::new();
    let l3 = ["0-19,80-99", "20-39,100-119", "40-59,120-139", "60-79,140-159"];
    tree.cpus(160, |cpu| [cpu % 80 / 20, cpu % 20, cpu % 80 / 20], &l3);
    tree
}

/// Core i9-12900K: 8 performance cores with two threads each (CPUs 0-15), 8 efficient ones (16-23), one L3.
pub(super) fn core_i9_12900k() -> Tree {
    let tree = Tree::new();
    let core = |cpu: u32| if cpu < 16 { cpu / 2 } else { cpu - 8 };
    tree.cpus(24, |cpu| [0, core(cpu), 0], &["0-23"]);
    tree.file("/sys/devices/cpu_core/cpus", "0-15\n");
    tree.file("/sys/devices/cpu_atom/cpus", "16-23\n");
    tree
}

/// Ampere Altra Q80-30: 80 cores without SMT, one node; its system level cache is not listed.
pub(super) fn ampere_altra() -> Tree {
    let tree = Tree::new();
    tree.cpus(80, |cpu| [0, cpu, 0], &[]);
    tree
}

/// Two Kunpeng 920 of 64 cores: two nodes a socket, an L3 for each node.
pub(super) fn kunpeng_920_two_sockets() -> Tree {
    let tree = Tree::new();
    tree.cpus(128, |cpu| [cpu / 64, cpu % 64, cpu / 32], &["0-31", "32-63", "64-95", "96-127"]);
    tree
}

/// RK3588: four Cortex-A55 (CPUs 0-3) and four Cortex-A76 (4-7), one L3, no nodes.
pub(super) fn rk3588() -> Tree {
    let tree = Tree::new();
    tree.cpus(8, |cpu| [0, cpu, 0], &["0-7"]);
    tree.remove("/sys/devices/system/node");
    for cpu in 0..8 {
        let capacity = if cpu < 4 { 530 } else { 1024 };
        tree.file(&format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity"), &format!("{capacity}\n"));
    }
    tree
}
