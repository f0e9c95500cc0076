//! The order in which CPUs are given to the threads of a device.

use std::cmp::Reverse;

use crate::cpus::Cpus;
use crate::relation::Relation;
use crate::topology::{Cpu, Topology};

/// Relations between a submitting and a completing CPU, the best one first: a core of its own behind the same
/// L3, and a CPU that two threads share only where there is no other.
const PREFERENCE: [Relation; 8] = [
    Relation::SameL3,
    Relation::SameNode,
    Relation::Sibling,
    Relation::OtherL3,
    Relation::Unknown,
    Relation::OtherNode,
    Relation::OtherSocket,
    Relation::SameCpu,
];

/// The usable CPUs for a device on `node`, the best one first: those of its node, isolated ones, one of each
/// core before their SMT siblings, fast cores before efficient ones, then by L3 and number.
pub fn order(topology: &Topology, node: Option<u32>) -> Vec<u32> {
    let mut cpus: Vec<u32> = topology.usable.iter().collect();
    cpus.sort_by_key(|&number| {
        let Some(cpu) = topology.cpu(number) else { return (u32::MAX, true, 0, Reverse(0), 0, number) };
        let distance = node.zip(cpu.node).map_or(0, |(from, to)| topology.distance(from, to));
        let siblings = siblings(topology, cpu);
        let sibling = siblings.iter().position(|one| one == number).unwrap_or(siblings.len());
        let l3 = cpu.l3.as_ref().and_then(Cpus::first).unwrap_or(0);
        let is_isolated = topology.isolated.contains(number);
        (distance, !is_isolated, sibling, Reverse(cpu.capacity.unwrap_or(0)), l3, number)
    });
    cpus
}

/// The rank of a relation by the rules, 0 for the best one.
pub(crate) fn rank(relation: Relation) -> usize {
    PREFERENCE.iter().position(|one| *one == relation).unwrap_or(PREFERENCE.len())
}

/// The best of `among` for the completion thread of a queue that `submit` submits to; `None` of no CPUs.
pub fn completing_cpu(topology: &Topology, submit: u32, among: &[u32]) -> Option<u32> {
    among.iter().copied().min_by_key(|&cpu| rank(topology.relation(submit, cpu)))
}

/// The CPUs of a core that threads are given: its isolated ones, or all usable ones where none is isolated.
fn siblings(topology: &Topology, cpu: &Cpu) -> Cpus {
    let usable = cpu.core.intersection(&topology.usable);
    let isolated = usable.intersection(&topology.isolated);
    if isolated.is_empty() { usable } else { isolated }
}

/// The first CPU of the core of `cpu` that threads are given.
pub(crate) fn first_of_core(topology: &Topology, cpu: u32) -> Option<u32> {
    siblings(topology, topology.cpu(cpu)?).first()
}
