//! The processes that share slots, and what those of them have left that were killed: slots that nobody has a
//! descriptor for.

use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use unvme_fs::share::has_ended;

use crate::errno::Result;
use crate::slot::{Arena, NAME, SLOTS};

/// Numbers of processes that there is room for; the first place says that there were more.
pub(crate) const PLACES: usize = 4096;

/// A slot that was taken later may be one whose descriptor is not open yet.
pub(crate) const SECONDS_MIN: u64 = 3;

/// Seconds of the monotonic clock.
pub(crate) fn now() -> u64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec as u64
}

/// This process is one of the family.
pub(crate) fn join(family: &[AtomicU32]) {
    add(family, std::process::id());
}

pub(crate) fn add(family: &[AtomicU32], pid: u32) {
    let put = || {
        let start = pid as usize;
        (0..PLACES).map(|step| (start + step) % PLACES).filter(|&at| at != 0).any(|at| {
            let found = family[at].load(Ordering::Relaxed);
            found == pid
                || found == 0
                    && family[at].compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    };
    if !put() {
        remove_gone(family);
        if !put() {
            family[0].store(1, Ordering::Release);
        }
    }
}

fn remove_gone(family: &[AtomicU32]) {
    for place in &family[1..] {
        let pid = place.load(Ordering::Acquire);
        if pid != 0 && has_ended(pid) {
            let _ = place.compare_exchange(pid, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// This process has given everything back.
pub(crate) fn leave(family: &[AtomicU32]) {
    let pid = std::process::id();
    family[1..].iter().filter(|place| place.load(Ordering::Relaxed) == pid).for_each(|place| {
        place.store(0, Ordering::Release);
    });
}

/// What came of a look for slots that nobody has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collected {
    /// There are some, and they are free.
    Freed,
    /// There may be some in a moment.
    TooYoung,
    /// There are none, or it cannot be known: not all of the family can be looked at.
    Nothing,
}

/// Frees the slots that no process of the family has a descriptor for.
pub(crate) fn collect(arena: &Arena) -> Collected {
    if arena.family[0].load(Ordering::Acquire) != 0 {
        return Collected::Nothing;
    }
    let old = now().saturating_sub(SECONDS_MIN);
    let seen: Vec<(u32, u64)> = arena
        .slots
        .iter()
        .map(|slot| (slot.holders.load(Ordering::Acquire), slot.taken.load(Ordering::Acquire)))
        .collect();
    let mut is_held = vec![false; SLOTS];
    remove_gone(arena.family);
    for place in &arena.family[1..] {
        let pid = place.load(Ordering::Acquire);
        if pid != 0 && show_slots(arena, pid, &mut is_held).is_err() && !has_ended(pid) {
            return Collected::Nothing;
        }
    }
    let mut collected = Collected::Nothing;
    for ((slot, (holders, taken)), is_held) in arena.slots.iter().zip(seen).zip(is_held) {
        if holders == 0 || is_held {
            continue;
        }
        if taken > old {
            if collected == Collected::Nothing {
                collected = Collected::TooYoung;
            }
            continue;
        }
        // Whoever has taken it meanwhile has done so later.
        if slot.taken.load(Ordering::Acquire) == taken
            && slot.holders.compare_exchange(holders, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            collected = Collected::Freed;
        }
    }
    collected
}

/// Marks the slots that a process has descriptors for: their offsets are the slots' numbers.
fn show_slots(arena: &Arena, pid: u32, is_held: &mut [bool]) -> std::io::Result<()> {
    let wanted = format!("/memfd:{NAME} (deleted)");
    for name in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let name = name?;
        let Ok(fd) = name.file_name().to_string_lossy().parse::<RawFd>() else { continue };
        // What is not there any more was closed since.
        if !std::fs::read_link(name.path()).is_ok_and(|target| target.as_os_str() == wanted.as_str())
            || !std::fs::metadata(name.path()).is_ok_and(|found| (found.dev(), found.ino()) == arena.identity)
        {
            continue;
        }
        if let Ok(number) = offset_of(pid, fd)
            && let Some(is_held) = is_held.get_mut(number)
        {
            *is_held = true;
        }
    }
    Ok(())
}

fn offset_of(pid: u32, fd: RawFd) -> Result<usize> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).map_err(|_| Errno::BADF)?;
    let offset = text.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok());
    offset.ok_or(Errno::BADF)
}
