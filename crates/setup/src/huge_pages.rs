//! Huge pages of 2 MiB: how many there are, and reserving more.

use super::System;

/// Bytes of the huge pages that setup knows.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

const KIND: &str = "hugepages-2048kB";

/// Huge pages of a NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HugePages {
    /// The node; `None` for the whole machine, where the kernel knows no nodes.
    pub node: Option<u32>,
    /// Reserved, in pages of [`HUGE_PAGE_BYTES`].
    pub total: u64,
    /// Those of them that nobody uses.
    pub free: u64,
}

/// Huge pages by node; none where the kernel has none of this size.
pub fn huge_pages(system: &System) -> Vec<HugePages> {
    let nodes: Vec<u32> = system
        .names("/sys/devices/system/node")
        .iter()
        .filter_map(|name| name.strip_prefix("node")?.parse().ok())
        .collect();
    let places: Vec<Option<u32>> =
        if nodes.is_empty() { vec![None] } else { nodes.into_iter().map(Some).collect() };
    let count = |node| {
        let folder = folder(node);
        let total = system.number(&format!("{folder}/nr_hugepages"))?;
        let free = system.number(&format!("{folder}/free_hugepages")).unwrap_or(0);
        Some(HugePages { node, total, free })
    };
    places.into_iter().filter_map(count).collect()
}

/// The file with the number of pages of a node, or of the machine.
pub(super) fn count_file(node: Option<u32>) -> String {
    format!("{}/nr_hugepages", folder(node))
}

fn folder(node: Option<u32>) -> String {
    match node {
        Some(node) => format!("/sys/devices/system/node/node{node}/hugepages/{KIND}"),
        None => format!("/sys/kernel/mm/hugepages/{KIND}"),
    }
}
