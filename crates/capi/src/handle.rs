//! Handles of open devices: numbers with a generation, so that a stale or invented one is an error and
//! nothing else.

use std::sync::atomic::{AtomicBool, AtomicU16};
use std::sync::{Arc, Mutex, RwLock};

use sdk::lock;
use unvme_guide::config::SsdType;
use unvme_guide::session::{Member, QueueKind, Session};

use crate::abi::MAX_CPU_CORES;
use crate::driver_level::Watch;
use crate::result::{Code, Failure, Result};

/// Handles that can be open at a time: four for each device of the SDK.
const HANDLES_MAX: usize = 256;
/// Where the generation begins in a handle; below is the slot's number from 1.
const GENERATION_SHIFT: u32 = 16;

/// What a handle stands for.
pub(crate) struct Open {
    session: Arc<Session>,
    member: Arc<Member>,
    has_sync: bool,
    has_async: bool,
    takes_lent: bool,
    /// The counts of `kv_nvme_get_current_qd()`, which belong to the program.
    pub(crate) counts: [AtomicU16; MAX_CPU_CORES],
    /// Who is told of asynchronous events.
    pub(crate) events: Mutex<Option<Watch>>,
    /// `unvme_close()` has been called for it, and waits for what is outstanding.
    pub(crate) closing: AtomicBool,
}

impl Open {
    pub(crate) fn new(session: Arc<Session>, member: Arc<Member>) -> Self {
        let has = |kind| member.cpus().into_iter().any(|cpu| member.has_queue(cpu, kind));
        let (has_sync, has_async) = (has(QueueKind::Sync), has(QueueKind::Async));
        // With a cache there is a copy to be made anyway, and answers that need no device.
        let takes_lent = !session.config().cache;
        Self {
            session,
            member,
            has_sync,
            has_async,
            takes_lent,
            counts: [const { AtomicU16::new(0) }; MAX_CPU_CORES],
            events: Mutex::new(None),
            closing: AtomicBool::new(false),
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Whether operations use the program's memory of [`crate::memory`] as it is.
    #[inline]
    pub(crate) fn takes_lent(&self) -> bool {
        self.takes_lent
    }

    /// [`Code::DD_INVALID_QUEUE_TYPE`] when the device has no queue of this kind at all.
    #[inline]
    pub(crate) fn require_queue(&self, kind: QueueKind) -> Result<()> {
        match kind {
            QueueKind::Sync if self.has_sync => Ok(()),
            QueueKind::Async if self.has_async => Ok(()),
            kind => Err(Failure::new(
                Code::DD_INVALID_QUEUE_TYPE,
                format!("{} has no {kind} queue: see core_mask and sync_mask", self.member.name()),
            )),
        }
    }

    /// [`Code::DD_UNSUPPORTED_CMD`] on a device of the other kind.
    pub(crate) fn require(&self, kind: SsdType) -> Result<()> {
        if self.member.ssd_type() == kind {
            return Ok(());
        }
        let wanted = match kind {
            SsdType::Kv => "this is a block device, it has no keys",
            SsdType::Lba => "this is a key-value device, it has no blocks",
        };
        Err(Failure::new(Code::DD_UNSUPPORTED_CMD, wanted))
    }
}

#[derive(Default)]
struct Slot {
    generation: u64,
    open: Option<Arc<Open>>,
}

static SLOTS: [RwLock<Slot>; HANDLES_MAX] =
    [const { RwLock::new(Slot { generation: 0, open: None }) }; HANDLES_MAX];

/// A new handle.
pub(crate) fn insert(open: Open) -> Result<u64> {
    for (index, slot) in SLOTS.iter().enumerate() {
        let mut slot = lock::write(slot);
        if slot.open.is_none() {
            slot.generation += 1;
            slot.open = Some(Arc::new(open));
            return Ok(slot.generation << GENERATION_SHIFT | (index as u64 + 1));
        }
    }
    Err(Failure::new(Code::DD_NO_AVAILABLE_RESOURCE, "256 handles are open; close some"))
}

/// The slot of a handle, and the generation it must have.
fn locate(handle: u64) -> Option<(&'static RwLock<Slot>, u64)> {
    let index = (handle & ((1 << GENERATION_SHIFT) - 1)).checked_sub(1)?;
    Some((SLOTS.get(usize::try_from(index).ok()?)?, handle >> GENERATION_SHIFT))
}

/// What a handle stands for.
#[inline]
pub(crate) fn get(handle: u64) -> Result<Arc<Open>> {
    if let Some((slot, generation)) = locate(handle) {
        let slot = lock::read(slot);
        if slot.generation == generation
            && let Some(open) = &slot.open
        {
            return Ok(Arc::clone(open));
        }
    }
    Err(no_such(handle))
}

#[cold]
fn no_such(handle: u64) -> Failure {
    Failure::new(Code::SDK_INVALID_PARAM, format!("{handle:#x} is not the handle of an open device"))
}

/// Makes a handle void.
pub(crate) fn remove(handle: u64) -> Result<Arc<Open>> {
    if let Some((slot, generation)) = locate(handle) {
        let mut slot = lock::write(slot);
        if slot.generation == generation
            && let Some(open) = slot.open.take()
        {
            return Ok(open);
        }
    }
    Err(no_such(handle))
}

/// Makes all handles to the devices of a session void.
pub(crate) fn remove_all(session: &Arc<Session>) {
    let of_session = |open: &mut Arc<Open>| Arc::ptr_eq(&open.session, session);
    let taken: Vec<_> = SLOTS.iter().filter_map(|slot| lock::write(slot).open.take_if(of_session)).collect();
    // Without a lock: it ends threads that may be in a callback, which may look at handles.
    drop(taken);
}

/// The first device that is open, if any.
pub(crate) fn first_open() -> Option<Arc<Open>> {
    SLOTS.iter().find_map(|slot| lock::read(slot).open.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defect_11_numbers_that_are_no_handles_are_errors() {
        for handle in [0, 1, 2, 0xffff, 0x1_0000, u64::MAX, 0x7fff_dead_beef, (1 << 16) | 257] {
            assert_eq!(
                get(handle).map(|_| ()).map_err(|e| e.code),
                Err(Code::SDK_INVALID_PARAM),
                "{handle:#x}"
            );
            assert!(remove(handle).is_err(), "{handle:#x}");
        }
    }
}
