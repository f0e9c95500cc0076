//! Requests of a host for asynchronous events, and events that wait for requests (Base 5.1.2).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use unvme_bus::{EventFd, lock};
use unvme_spec::feature::AsyncEventConfiguration;
use unvme_spec::identify::NamespaceList;
use unvme_spec::log_page::{AsyncEvent, critical_warning, event_type, lid, notice_event, smart_event};
use unvme_spec::{Nsid, Status};

use crate::reply::Reply;

/// Asynchronous Event Requests that can be outstanding, zero-based.
pub(crate) const AERL_Z: u8 = 3;
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

    fn next(&mut self) -> Option<(u16, Reply)> {
        if let Some(cid) = self.aborted.pop_front() {
            return Some((cid, Reply::from(Status::ABORT_REQUESTED).of_event()));
        }
        let at = self.reportable()?;
        let cid = self.requests.pop_front()?;
        let event = self.pending.remove(at);
        if let Some(mask) = self.mask_of(event) {
            *mask = Some(event.log_page());
        }
        Some((cid, Reply::of(event.into_bits().into()).of_event()))
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

    pub(crate) fn wake_by(&self, wake: Option<EventFd>) {
        *lock(&self.wake) = wake;
    }

    /// A controller level reset ends all requests without completions and forgets all events.
    pub(crate) fn reset(&self) {
        self.change(|state| *state = State::default());
    }

    pub(crate) fn raise(&self, event: AsyncEvent) {
        self.change(|state| {
            if !state.pending.contains(&event) {
                state.pending.push(event);
            }
        });
    }

    /// The host has read a log page and did not ask to retain its event: the event is cleared, and the next
    /// one of its type is reported again. Reading the list of changed namespaces empties it.
    pub(crate) fn clear(&self, log_page: u8) {
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
    pub(crate) fn changed_namespaces(&self) -> NamespaceList {
        NamespaceList::from_ascending(lock(&self.state).changed.iter().copied())
    }

    /// A namespace's Identify data, or whether it is attached, has changed. `wanted` is what the host wants
    /// to hear of.
    pub(crate) fn namespace_changed(&self, nsid: Nsid, wanted: AsyncEventConfiguration) {
        self.change(|state| state.changed.insert(nsid));
        if wanted.namespace_attributes() {
            self.raise(notice(notice_event::NAMESPACE_ATTRIBUTES, lid::CHANGED_NAMESPACES));
        }
    }

    /// The media has become read only: an event about reliability (Base figure 150).
    pub(crate) fn media_is_read_only(&self, wanted: AsyncEventConfiguration) {
        if wanted.smart_critical_warnings() & critical_warning::READ_ONLY != 0 {
            self.raise(AsyncEvent::of(event_type::SMART, smart_event::RELIABILITY, lid::SMART_HEALTH));
        }
    }

    /// Firmware is about to be activated; commands may pause.
    pub(crate) fn firmware_activation_starting(&self, wanted: AsyncEventConfiguration) {
        if wanted.firmware_activation() {
            self.raise(notice(notice_event::FIRMWARE_ACTIVATION, lid::FIRMWARE_SLOT));
        }
    }

    /// The port of the host reaches the namespaces in another way than before.
    pub(crate) fn ana_changed(&self, wanted: AsyncEventConfiguration) {
        if wanted.ana_change() {
            self.raise(notice(notice_event::ANA_CHANGE, lid::ANA));
        }
    }

    /// Critical warnings that the host wants to hear of have appeared.
    pub(crate) fn critical_warnings_raised(&self, warnings: u8) {
        if warnings & critical_warning::TEMPERATURE != 0 {
            self.raise(AsyncEvent::of(event_type::SMART, smart_event::TEMPERATURE, lid::SMART_HEALTH));
        }
    }

    /// A request waits for an event; false when there are as many as there may be.
    pub(crate) fn request(&self, cid: u16) -> bool {
        self.change(|state| {
            let has_room = state.requests.len() < ASYNC_EVENT_REQUESTS_MAX;
            if has_room {
                state.requests.push_back(cid);
            }
            has_room
        })
    }

    /// Ends a request that waits as aborted; false when there is none.
    pub(crate) fn abort(&self, cid: u16) -> bool {
        self.change(|state| {
            let at = state.requests.iter().position(|&waiting| waiting == cid);
            let request = at.and_then(|at| state.requests.remove(at));
            state.aborted.extend(request);
            request.is_some()
        })
    }

    /// True when a request can be completed.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// The next request to complete: command identifier and answer. Asked after every turn of the admin
    /// queue.
    #[inline]
    pub(crate) fn next(&self) -> Option<(u16, Reply)> {
        if self.is_ready() { self.change(State::next) } else { None }
    }
}

fn notice(info: u8, log_page: u8) -> AsyncEvent {
    AsyncEvent::of(event_type::NOTICE, info, log_page)
}
