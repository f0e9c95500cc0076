//! The processes that share slots, and what those of them have left that were killed: slots that nobody has a
//! descriptor for.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};

use unvme_fs::share::has_ended;

use crate::slot::{Arena, NAME, SLOTS, of_mark};

/// Numbers of processes that there is space for, behind two places: [`IS_PARTIAL`] and [`NAMESPACE`].
pub(crate) const PLACES: usize = 4096;

/// This place is not 0 when some processes are not listed, or cannot be looked at.
const IS_PARTIAL: usize = 0;
/// This place has the PID namespace that the numbers are of, by its inode number.
const NAMESPACE: usize = 1;
const FIRST: usize = 2;

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

/// Whether this process is of the namespace of the others. In another one, its number is not its own to them.
fn is_of_namespace(family: &[AtomicU32]) -> bool {
    let own = rustix::fs::stat("/proc/self/ns/pid").ok().and_then(|found| u32::try_from(found.st_ino).ok());
    own.is_some_and(|own| {
        match family[NAMESPACE].compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(theirs) => theirs == own,
        }
    })
}

pub(crate) fn add(family: &[AtomicU32], pid: u32) {
    if !is_of_namespace(family) {
        family[IS_PARTIAL].store(1, Ordering::Release);
        return;
    }
    let put = || {
        let start = pid as usize;
        (0..PLACES).map(|step| (start + step) % PLACES).filter(|&at| at >= FIRST).any(|at| {
            let found = family[at].load(Ordering::Relaxed);
            found == pid
                || found == 0
                    && family[at].compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    };
    if !put() {
        remove_gone(family);
        if !put() {
            family[IS_PARTIAL].store(1, Ordering::Release);
        }
    }
}

fn remove_gone(family: &[AtomicU32]) {
    for place in &family[FIRST..] {
        let pid = place.load(Ordering::Acquire);
        if pid != 0 && has_ended(pid) {
            let _ = place.compare_exchange(pid, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// This process has given everything back.
pub(crate) fn leave(family: &[AtomicU32]) {
    let pid = std::process::id();
    family[FIRST..].iter().filter(|place| place.load(Ordering::Relaxed) == pid).for_each(|place| {
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
    if arena.family[IS_PARTIAL].load(Ordering::Acquire) != 0 {
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
    for place in &arena.family[FIRST..] {
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

/// Notes the slots that a process has descriptors for.
fn show_slots(arena: &Arena, pid: u32, is_held: &mut [bool]) -> std::io::Result<()> {
    let wanted = format!("/memfd:{NAME} (deleted)");
    for name in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let name = name?;
        // What is not there any more was closed since.
        if !std::fs::read_link(name.path()).is_ok_and(|target| target.as_os_str() == wanted.as_str()) {
            continue;
        }
        if let Ok(found) = std::fs::metadata(name.path())
            && let Some(number) = of_mark(arena, found.dev(), found.ino())
        {
            is_held[number as usize] = true;
        }
    }
    Ok(())
}
