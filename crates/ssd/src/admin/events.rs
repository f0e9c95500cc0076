//! Asynchronous Event Request and Abort (Base 5.1.2, 5.1.1).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use unvme_bus::{EventFd, lock};
use unvme_spec::identify::NamespaceList;
use unvme_spec::log_page::{
    AsyncEvent, critical_warning, error_event, event_type, lid, notice_event, smart_event,
};
use unvme_spec::{Cid, Nsid, Qid, Status};

use super::identify::AERL_Z;
use super::{Admin, Answer};
use crate::Ssd;
use crate::subsystem::ControllerSet;

/// Asynchronous Event Requests a host may have outstanding.
const ASYNC_EVENT_REQUESTS_MAX: usize = AERL_Z as usize + 1;

/// Types an event can have.
const EVENT_TYPES: usize = 8;

/// Requests that wait for events, and events that wait for requests.
#[derive(Default)]
pub(crate) struct Events {
    /// There is something to complete; lets the engine ask without taking the lock.
    ready: AtomicBool,
    state: Mutex<State>,
    /// Signalled when there is, where nobody looks by himself.
    wake: Mutex<Option<EventFd>>,
}

#[derive(Default)]
struct State {
    /// Command identifiers of outstanding requests, oldest first; at most [`ASYNC_EVENT_REQUESTS_MAX`].
    requests: VecDeque<u16>,
    /// Command identifiers of requests that Abort has ended.
    aborted: VecDeque<u16>,
    /// Events not reported yet, oldest first, each at most once.
    pending: Vec<AsyncEvent>,
    /// Log page that has to be read before another event of the type is reported.
    masked: [Option<u8>; EVENT_TYPES],
    /// Namespaces that have changed since the host read log page 04h.
    changed: BTreeSet<Nsid>,
}

impl State {
    fn mask_of(&mut self, event: AsyncEvent) -> Option<&mut Option<u8>> {
        self.masked.get_mut(usize::from(event.event_type()))
    }

    /// The first event that may be reported.
    fn reportable(&self) -> Option<usize> {
        self.pending.iter().position(|event| {
            self.masked.get(usize::from(event.event_type())).is_some_and(|mask| mask.is_none())
        })
    }

    fn is_ready(&self) -> bool {
        !self.aborted.is_empty() || (!self.requests.is_empty() && self.reportable().is_some())
    }

    fn next(&mut self) -> Option<(u16, Status, u64)> {
        if let Some(cid) = self.aborted.pop_front() {
            return Some((cid, Status::ABORT_REQUESTED, 0));
        }
        let at = self.reportable()?;
        let cid = self.requests.pop_front()?;
        let event = self.pending.remove(at);
        if let Some(mask) = self.mask_of(event) {
            *mask = Some(event.log_page());
        }
        Some((cid, Status::SUCCESS, event.into_bits().into()))
    }
}

impl Events {
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = lock(&self.state);
        let result = change(&mut state);
        // Under the lock, so that the last change has the last word.
        let was_ready = self.ready.swap(state.is_ready(), Ordering::AcqRel);
        if !was_ready && state.is_ready() {
            drop(state);
            if let Some(wake) = &*lock(&self.wake) {
                wake.signal();
            }
        }
        result
    }

    pub(super) fn wake_by(&self, wake: Option<EventFd>) {
        *lock(&self.wake) = wake;
    }

    /// A controller level reset ends all requests without completions and forgets all events.
    pub(super) fn reset(&self) {
        self.change(|state| *state = State::default());
    }

    pub(super) fn raise(&self, event: AsyncEvent) {
        self.change(|state| {
            if !state.pending.contains(&event) {
                state.pending.push(event);
            }
        });
    }

    /// The host has read a log page and did not ask to retain its event: the event is cleared, and the next one of
    /// its type is reported again. Reading the list of changed namespaces empties it.
    pub(super) fn clear(&self, log_page: u8) {
        self.change(|state| {
            if log_page == lid::CHANGED_NAMESPACES {
                state.changed.clear();
            }
            state.pending.retain(|event| event.log_page() != log_page);
            for mask in state.masked.iter_mut().filter(|mask| **mask == Some(log_page)) {
                *mask = None;
            }
        });
    }

    /// The Changed Attached Namespace List.
    pub(super) fn changed_namespaces(&self) -> NamespaceList {
        NamespaceList::from_ascending(lock(&self.state).changed.iter().copied())
    }
}

impl Admin {
    /// A namespace's Identify data, or whether it is attached, has changed.
    pub(crate) fn namespace_changed(&self, nsid: Nsid) {
        let enabled = lock(&self.features).async_events().namespace_attributes();
        self.events.change(|state| state.changed.insert(nsid));
        if enabled {
            self.events.raise(notice(notice_event::NAMESPACE_ATTRIBUTES, lid::CHANGED_NAMESPACES));
        }
    }

    fn media_is_read_only(&self) {
        if lock(&self.features).async_events().smart_critical_warnings() & critical_warning::READ_ONLY != 0 {
            let event = AsyncEvent::of(event_type::SMART, smart_event::RELIABILITY, lid::SMART_HEALTH);
            self.events.raise(event);
        }
    }

    fn firmware_activation_starting(&self) {
        if lock(&self.features).async_events().firmware_activation() {
            self.events.raise(notice(notice_event::FIRMWARE_ACTIVATION, lid::FIRMWARE_SLOT));
        }
    }

    /// Critical warnings that the host wants to hear of have appeared.
    pub(super) fn critical_warnings_raised(&self, warnings: u8) {
        if warnings & critical_warning::TEMPERATURE != 0 {
            self.events.raise(AsyncEvent::of(event_type::SMART, smart_event::TEMPERATURE, lid::SMART_HEALTH));
        }
    }
}

pub(super) fn notice(info: u8, log_page: u8) -> AsyncEvent {
    AsyncEvent::of(event_type::NOTICE, info, log_page)
}

impl Ssd {
    /// A namespace's Identify data, or whether it is attached, has changed for some controllers.
    pub(super) fn namespace_changed_for(&self, controllers: ControllerSet, nsid: Nsid) {
        for controller in self.subsystem.controllers() {
            if controllers.contains(controller.cntlid) {
                controller.admin.namespace_changed(nsid);
            }
        }
    }

    /// A rule reports an event to all hosts, whatever they have asked to hear of.
    pub(crate) fn report(&self, event: AsyncEvent) {
        for controller in self.subsystem.controllers() {
            controller.admin.events.raise(event);
        }
    }

    /// The media has become read only: an event about reliability, for hosts that want to hear of it (Base figure 150).
    pub(crate) fn media_is_read_only(&self) {
        for controller in self.subsystem.controllers() {
            controller.admin.media_is_read_only();
        }
    }

    /// Firmware is about to be activated without a reset; commands may pause.
    pub(super) fn firmware_activation_starting(&self) {
        for controller in self.subsystem.controllers() {
            controller.admin.firmware_activation_starting();
        }
    }

    /// Firmware is activated by a reset of this controller, which all others have not asked for.
    pub(super) fn firmware_activated_by_reset(&self) {
        for controller in self.subsystem.controllers() {
            if controller.cntlid != self.cntlid && !controller.is_stopped() {
                controller.admin.firmware_activation_starting();
            }
        }
    }

    /// The host wrote the doorbell of a queue that does not exist.
    #[cold]
    pub(crate) fn invalid_doorbell_register(&self) {
        self.doorbell_error(error_event::INVALID_DOORBELL_REGISTER);
    }

    /// The host wrote a doorbell value beyond the end of the queue.
    #[cold]
    pub(crate) fn invalid_doorbell_value(&self) {
        self.doorbell_error(error_event::INVALID_DOORBELL_VALUE);
    }

    fn doorbell_error(&self, info: u8) {
        lock(&self.subsystem.admin.errors).record_doorbell();
        self.admin.events.raise(AsyncEvent::of(event_type::ERROR, info, lid::ERROR_INFORMATION));
    }

    pub(super) fn async_event_request(&self, cid: u16) -> Answer {
        self.admin.events.change(|state| {
            if state.requests.len() >= ASYNC_EVENT_REQUESTS_MAX {
                return Answer::Now(Err(Status::AER_LIMIT_EXCEEDED));
            }
            state.requests.push_back(cid);
            Answer::Later
        })
    }

    /// Aborts an outstanding Asynchronous Event Request, or a command that has been executed and would be answered
    /// later. Every other command has been answered by the time an Abort is executed, or waits in a queue of the host's
    /// memory where it cannot be reached: bit 0 of the result says that it was not aborted.
    pub(super) fn abort(&self, sqid: Qid, cid: Cid) -> Result<u64, Status> {
        let is_request = sqid == Qid::ADMIN
            && self.admin.events.change(|state| {
                let at = state.requests.iter().position(|&waiting| waiting == cid.0);
                let request = at.and_then(|at| state.requests.remove(at));
                state.aborted.extend(request);
                request.is_some()
            });
        let aborted = is_request || self.abort_held(sqid, cid);
        Ok(u64::from(!aborted))
    }

    /// True when an Asynchronous Event Request can be completed.
    #[inline]
    pub(crate) fn has_admin_completions(&self) -> bool {
        self.admin.events.ready.load(Ordering::Acquire)
    }

    /// The next request to complete: command identifier, status and dword 0. Asked after every turn of the admin
    /// queue.
    #[inline]
    pub(crate) fn next_admin_completion(&self) -> Option<(u16, Status, u64)> {
        let events = &self.admin.events;
        if !events.ready.load(Ordering::Acquire) {
            return None;
        }
        events.change(State::next)
    }
}
