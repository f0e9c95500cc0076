//! Memory for functions that address it physically.
//!
//! Nothing translates what such a function accesses, so a buffer has to be contiguous in physical memory and
//! stay where it is. Huge pages of the system's pool are both. A buffer within one is contiguous by itself;
//! for a longer one, more pages than needed are taken, sorted by where they are, and those that follow each
//! other are mapped in that order.

use std::fs;
use std::path::Path;

use crate::mem::HUGE_PAGE_BYTES;
use crate::{BusError, Dma, Region};

/// Where the kernel counts huge pages of [`HUGE_PAGE_BYTES`].
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
/// What [`BusError::Setup`] recommends.
const MORE_PAGES: &str =
    "run `unvme setup config`, or as root `echo 512 > /proc/sys/vm/nr_hugepages` for 1 GiB of them";

/// Zeroed memory of `bytes`, a multiple of [`HUGE_PAGE_BYTES`], and its physical address.
pub(super) fn memory(device: &dyn Dma, name: &str, bytes: usize) -> Result<(Region, u64), BusError> {
    let pages = bytes.div_ceil(HUGE_PAGE_BYTES);
    let mut taken = pages;
    let mut longest = 0;
    loop {
        let Some(memory) = Region::shared_huge(name, taken.saturating_mul(HUGE_PAGE_BYTES)) else {
            return Err(if longest == 0 { too_few(pages) } else { too_scattered(pages, longest) });
        };
        // A page is somewhere only after it has been touched.
        memory.fill(0, memory.len(), 0);
        let places = places(device, &memory)?;
        if let [(iova, _)] = places[..] {
            return Ok((memory, iova));
        }
        match run(&places, pages) {
            Ok(run) => {
                let offsets: Vec<usize> = run.iter().map(|(_, offset)| *offset).collect();
                let iova = run.first().map_or(0, |(iova, _)| *iova);
                return Ok((memory.gather(&offsets)?, iova));
            }
            Err(length) => longest = longest.max(length),
        }
        drop(memory);
        let free = count("free_hugepages").unwrap_or(0);
        if free <= taken {
            return Err(too_scattered(pages, longest));
        }
        taken = taken.saturating_mul(2).min(free);
    }
}

/// Physical address and offset of each huge page, in ascending order of addresses.
fn places(device: &dyn Dma, memory: &Region) -> Result<Vec<(u64, usize)>, BusError> {
    let mut places = Vec::with_capacity(memory.len() / HUGE_PAGE_BYTES);
    for offset in (0..memory.len()).step_by(HUGE_PAGE_BYTES) {
        places.push((device.dma_address(&memory.slice(offset, HUGE_PAGE_BYTES))?, offset));
    }
    places.sort_unstable();
    Ok(places)
}

/// The first `pages` of the sorted `places` that follow each other, or how many the longest run has.
fn run(places: &[(u64, usize)], pages: usize) -> Result<&[(u64, usize)], usize> {
    let mut longest = 0;
    for run in places.chunk_by(|a, b| a.0.checked_add(HUGE_PAGE_BYTES as u64) == Some(b.0)) {
        match run.get(..pages) {
            Some(run) => return Ok(run),
            None => longest = longest.max(run.len()),
        }
    }
    Err(longest)
}

/// A number of pages the kernel counts; `None` when it has no such pool.
fn count(file: &str) -> Option<usize> {
    fs::read_to_string(Path::new(POOL).join(file)).ok()?.trim().parse().ok()
}

fn too_few(pages: usize) -> BusError {
    let Some((free, all)) = count("free_hugepages").zip(count("nr_hugepages")) else {
        return BusError::setup(
            "the kernel has no huge pages of 2 MiB, which a function without an IOMMU needs",
            "use an IOMMU and vfio-pci",
        );
    };
    let problem = format!(
        "{pages} free huge pages of 2 MiB are needed for memory that a function without an IOMMU can reach, and \
         {free} of {all} are free"
    );
    BusError::setup(problem, MORE_PAGES)
}

fn too_scattered(pages: usize, longest: usize) -> BusError {
    let problem = format!(
        "a buffer of {} MiB for a function without an IOMMU needs {pages} huge pages that follow each other in \
         physical memory, and at most {longest} of those that are free do",
        pages * 2
    );
    let remedy = "use transfers of at most 2 MiB and queues of at most 512 commands, or reserve the pages when the system \
                  starts (`hugepages=512` on the kernel's command line)";
    BusError::setup(problem, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 2 << 20;

    #[test]
    fn a_run_is_found_in_pages_that_came_in_any_order() {
        let places = [(PAGE, 5), (3 * PAGE, 4), (4 * PAGE, 0), (5 * PAGE, 2), (9 * PAGE, 1)];
        assert_eq!(run(&places, 1), Ok(&places[..1]));
        assert_eq!(run(&places, 2), Ok(&places[1..3]));
        assert_eq!(run(&places, 3), Ok(&places[1..4]));
        assert_eq!(run(&places, 4), Err(3));
        assert_eq!(run(&[], 1), Err(0));
    }

    #[test]
    fn pages_that_do_not_follow_each_other_are_counted_in_the_error() {
        let text = too_scattered(4, 1).to_string();
        assert!(text.contains("8 MiB") && text.contains("at most 1 of those"), "{text}");
    }
}
