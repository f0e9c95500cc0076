//! Asynchronous events: what a controller reports on its own (Base 5.1.2).

use unvme_spec::log_page::{AsyncEvent, event_type};

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// An error that belongs to no command; the information is one of [`unvme_spec::log_page::error_event`].
    Error,
    /// Health; the information is one of [`unvme_spec::log_page::smart_event`].
    Smart,
    /// A notice; the information is one of [`unvme_spec::log_page::notice_event`].
    Notice,
    /// An immediate event.
    Immediate,
    /// Specific to an I/O command set.
    IoCommandSet,
    /// Specific to the vendor.
    Vendor,
    /// A type this crate does not know.
    Other(u8),
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub kind: EventKind,
    /// What happened.
    pub info: u8,
    /// Log page that says more. Reading it lets the controller report events of this kind again.
    pub log_page: u8,
    /// Event specific parameter: dword 1 of the completion.
    pub parameter: u32,
}

impl Event {
    /// From the result of a completed Asynchronous Event Request.
    pub(crate) fn parse(result: u64) -> Self {
        let event = AsyncEvent::from_bits(result as u32);
        let kind = match event.event_type() {
            event_type::ERROR => EventKind::Error,
            event_type::SMART => EventKind::Smart,
            event_type::NOTICE => EventKind::Notice,
            event_type::IMMEDIATE => EventKind::Immediate,
            event_type::IO_COMMAND_SET => EventKind::IoCommandSet,
            event_type::VENDOR => EventKind::Vendor,
            other => EventKind::Other(other),
        };
        Self { kind, info: event.info(), log_page: event.log_page(), parameter: (result >> 32) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_attribute_notice_names_log_page_4() {
        // Base figures 149 and 152: type 2h in bits 2:0, information 00h in bits 15:8, log page 04h in bits
        // 23:16.
        let event = Event::parse(0x0004_0002);
        assert_eq!(event, Event { kind: EventKind::Notice, info: 0, log_page: 4, parameter: 0 });
    }

    #[test]
    fn an_unknown_type_is_a_value() {
        assert_eq!(
            Event::parse(0x7_00aa_1205),
            Event { kind: EventKind::Other(5), info: 0x12, log_page: 0xaa, parameter: 7 }
        );
    }
}
