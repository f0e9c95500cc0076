//! Completions of an admin queue on their way to those who wait for them, and the events among them.

use std::collections::VecDeque;

use unvme_spec::Status;

use crate::Event;
use crate::command::Completion;

/// Asynchronous Event Requests kept with the controller at most.
const EVENT_REQUESTS_MAX: u32 = 4;
/// Events nobody has asked for yet; the oldest give way.
const EVENTS_MAX: usize = 64;
/// Marks the token of an Asynchronous Event Request.
const EVENT_TOKEN: u64 = 1 << 63;

#[derive(Default)]
pub(crate) struct Mailbox {
    next_token: u64,
    /// Completions whose waiters have not picked them up yet.
    done: Vec<Completion>,
    /// Tokens nobody waits for any more.
    abandoned: Vec<u64>,
    events: Vec<Event>,
    /// Results of the last events, for those the drive is shared with, and how many there have been in all.
    reported: VecDeque<u64>,
    reported_count: u64,
    event_requests: u32,
    event_requests_max: u32,
}

impl Mailbox {
    /// A token for the next command. It is used up by [`Mailbox::sent`].
    pub(crate) fn token(&self) -> u64 {
        self.next_token
    }

    pub(crate) fn sent(&mut self) {
        self.next_token += 1;
    }

    /// Gives a completion to whom it belongs.
    pub(crate) fn deliver(&mut self, completion: Completion) {
        if completion.token & EVENT_TOKEN != 0 {
            self.event_requests -= 1;
            if completion.status.is_success() {
                self.report(completion.result);
            } else if completion.status != Status::ABORTED_BY_HOST {
                // The controller takes fewer than it said, or none: do not ask again and again.
                tracing::warn!(status = %completion.status, "asynchronous event request");
                self.event_requests_max = self.event_requests;
            }
            return;
        }
        match self.abandoned.iter().position(|token| *token == completion.token) {
            Some(at) => {
                self.abandoned.swap_remove(at);
            }
            None => self.done.push(completion),
        }
    }

    fn report(&mut self, result: u64) {
        if self.events.len() == EVENTS_MAX {
            self.events.remove(0);
        }
        self.events.push(Event::parse(result));
        if self.reported.len() == EVENTS_MAX {
            self.reported.pop_front();
        }
        self.reported.push_back(result);
        self.reported_count += 1;
    }

    /// What became of a command, if it has completed.
    pub(crate) fn take(&mut self, token: u64) -> Option<Completion> {
        let at = self.done.iter().position(|done| done.token == token)?;
        Some(self.done.swap_remove(at))
    }

    /// Says that nobody waits for a command any more.
    pub(crate) fn abandon(&mut self, token: u64) {
        if self.take(token).is_none() {
            self.abandoned.push(token);
        }
    }

    /// Keeps up to `count` Asynchronous Event Requests with the controller from now on.
    pub(crate) fn want_events(&mut self, count: u32) {
        self.event_requests_max = count.min(EVENT_REQUESTS_MAX);
    }

    /// Token of an Asynchronous Event Request that is to be sent; `None` when there are enough.
    pub(crate) fn event_token(&self) -> Option<u64> {
        (self.event_requests < self.event_requests_max).then_some(self.next_token | EVENT_TOKEN)
    }

    pub(crate) fn event_sent(&mut self) {
        self.next_token += 1;
        self.event_requests += 1;
    }

    /// The events that have arrived since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Events reported so far.
    pub(crate) fn events_count(&self) -> u64 {
        self.reported_count
    }

    /// The results of the events from number `first` on, each with its number; those long past are forgotten.
    pub(crate) fn events_since(&self, first: u64) -> Vec<(u64, u64)> {
        let oldest = self.reported_count - self.reported.len() as u64;
        let numbered = (oldest..).zip(self.reported.iter().copied());
        numbered.filter(|(number, _)| *number >= first).collect()
    }
}
