//! FDP Events, log page 23h (Base 5.1.12.1.31), and how feature 1Eh lists which are recorded.

use bitfield_struct::bitfield;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout,
    little_endian::{U16, U32, U64},
};

use super::{PlacementId, Ruhid};
use crate::{Lba, Nsid, feature::Timestamp};

/// Events the log page holds at most; the oldest are dropped for new ones.
pub const EVENTS_MAX: usize = 63;

/// Log Specific Parameter of log page 23h: bit 0 chooses host events rather than controller events.
pub const fn lsp_host_events(host: bool) -> u8 {
    host as u8
}

/// Header of the log page: 64 bytes, followed by the events, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct EventsHeader {
    /// Number of FDP Events, at most [`EVENTS_MAX`].
    pub n: u32,
    _reserved4: [u8; 60],
}

layout!(EventsHeader, 64, { n: 0 });

impl EventsHeader {
    /// A header of `n` events.
    pub const fn new(n: u32) -> Self {
        Self { n, _reserved4: [0; 60] }
    }
}

open_codes! {
    /// FDP Event Type. 00h to 7Fh are host events, which tell what a host did; 80h to FFh are controller
    /// events.
    #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
    #[repr(transparent)]
    pub struct EventType(u8), "event" {
        /// A reclaim unit handle left a reclaim unit that was not fully written.
        RU_NOT_FULLY_WRITTEN = 0x00, "Reclaim Unit Not Fully Written To Capacity";
        /// A reclaim unit was open for longer than its time limit.
        RU_TIME_LIMIT_EXCEEDED = 0x01, "Reclaim Unit Time Limit Exceeded";
        /// A controller level reset made reclaim unit handles reference other reclaim units.
        RESET_MODIFIED_RUHS = 0x02, "Controller Level Reset Modified Reclaim Unit Handles";
        /// A write had a placement identifier that is not valid.
        INVALID_PLACEMENT_ID = 0x03, "Invalid Placement Identifier";
        /// The controller moved data on the media; see [`MediaReallocated`].
        MEDIA_REALLOCATED = 0x80, "Media Reallocated";
        /// The controller made a reclaim unit handle reference another reclaim unit before the host had
        /// filled it.
        RUH_IMPLICITLY_MODIFIED = 0x81, "Implicitly Modified Reclaim Unit Handle";
    }
}

impl EventType {
    /// Every type the specification names, in increasing order.
    pub const NAMED: [Self; 6] = [
        Self::RU_NOT_FULLY_WRITTEN,
        Self::RU_TIME_LIMIT_EXCEEDED,
        Self::RESET_MODIFIED_RUHS,
        Self::INVALID_PLACEMENT_ID,
        Self::MEDIA_REALLOCATED,
        Self::RUH_IMPLICITLY_MODIFIED,
    ];

    /// It tells what a host did, rather than the controller.
    pub const fn is_host(self) -> bool {
        self.0 < 0x80
    }
}

/// FDP Event Flags: which fields of an event mean something.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct EventFlags {
    /// PIV: the placement identifier.
    pub placement_id: bool,
    /// NSIDV: the namespace.
    pub nsid: bool,
    /// LV: reclaim group and reclaim unit handle.
    pub location: bool,
    #[bits(5)]
    __: u8,
}

/// FDP Event: 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Event {
    /// FDP Event Type.
    pub event_type: EventType,
    /// Which of the fields below mean something.
    pub flags: EventFlags,
    /// Placement Identifier, when `flags` says so.
    pub pid: U16,
    /// When it happened, as the Timestamp feature counts.
    pub timestamp: Timestamp,
    /// Namespace Identifier, when `flags` says so.
    pub nsid: U32,
    /// Event Type Specific; see [`Event::media_reallocated`].
    pub specific: [u8; 16],
    /// Reclaim Group Identifier, when `flags` says so.
    pub rgid: U16,
    /// Reclaim Unit Handle Identifier, when `flags` says so.
    pub ruhid: U16,
    _reserved36: [u8; 4],
    /// Vendor Specific.
    pub vs: [u8; 24],
}

layout!(Event, 64, { flags: 1, pid: 2, timestamp: 4, nsid: 12, specific: 16, rgid: 32, ruhid: 34, vs: 40 });

impl Event {
    /// An event of `event_type` at `timestamp` that says nothing else.
    pub fn new(event_type: EventType, timestamp: Timestamp) -> Self {
        Self { event_type, timestamp, ..Self::default() }
    }

    /// The same event, of a write with placement identifier `pid`.
    #[must_use]
    pub const fn with_placement_id(mut self, pid: PlacementId) -> Self {
        self.flags = self.flags.with_placement_id(true);
        self.pid = U16::new(pid.0);
        self
    }

    /// The same event, of namespace `nsid`.
    #[must_use]
    pub const fn with_nsid(mut self, nsid: Nsid) -> Self {
        self.flags = self.flags.with_nsid(true);
        self.nsid = U32::new(nsid.0);
        self
    }

    /// The same event, of reclaim unit handle `ruhid` in `group`.
    #[must_use]
    pub const fn with_location(mut self, group: super::ReclaimGroup, ruhid: Ruhid) -> Self {
        self.flags = self.flags.with_location(true);
        self.rgid = U16::new(group.0);
        self.ruhid = U16::new(ruhid.0);
        self
    }

    /// The same event, with what a Media Reallocated event says.
    #[must_use]
    pub fn with_media_reallocated(mut self, moved: MediaReallocated) -> Self {
        self.specific = zerocopy::transmute!(moved);
        self
    }

    /// Placement identifier, when the event has one.
    pub fn placement_id(&self) -> Option<PlacementId> {
        self.flags.placement_id().then_some(PlacementId(self.pid.get()))
    }

    /// Namespace, when the event has one.
    pub fn namespace(&self) -> Option<Nsid> {
        self.flags.nsid().then_some(Nsid(self.nsid.get()))
    }

    /// Reclaim group and reclaim unit handle, when the event has them.
    pub fn location(&self) -> Option<(super::ReclaimGroup, Ruhid)> {
        self.flags.location().then_some((super::ReclaimGroup(self.rgid.get()), Ruhid(self.ruhid.get())))
    }

    /// What a Media Reallocated event says beside; `None` for other types.
    pub fn media_reallocated(&self) -> Option<MediaReallocated> {
        (self.event_type == EventType::MEDIA_REALLOCATED).then(|| zerocopy::transmute!(self.specific))
    }
}

/// Event Type Specific bytes of a Media Reallocated event: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MediaReallocated {
    /// Bit 0, LBAV: `lba` is valid.
    flags: u8,
    _reserved1: u8,
    /// Number of LBAs Moved.
    nlbam: U16,
    /// First logical block, when bit 0 of the flags is set.
    lba: U64,
    _reserved12: [u8; 4],
}

layout!(MediaReallocated, 16, { nlbam: 2, lba: 4 });

impl MediaReallocated {
    /// `moved` logical blocks were moved, of which the first one is `first` if it is known.
    pub const fn new(moved: u16, first: Option<Lba>) -> Self {
        let (flags, lba) = match first {
            Some(first) => (1, first.0),
            None => (0, 0),
        };
        Self { flags, _reserved1: 0, nlbam: U16::new(moved), lba: U64::new(lba), _reserved12: [0; 4] }
    }

    /// Logical blocks that were moved.
    pub const fn moved(&self) -> u16 {
        self.nlbam.get()
    }

    /// The first of them, when the event says which.
    pub const fn first(&self) -> Option<Lba> {
        if self.flags & 1 != 0 { Some(Lba(self.lba.get())) } else { None }
    }
}

/// The events of log page 23h in `bytes`: as many as the header says and the bytes hold. `None` when they are
/// too short for the header.
pub fn events(bytes: &[u8]) -> Option<impl Iterator<Item = Event> + '_> {
    let (header, rest) = EventsHeader::read_from_prefix(bytes).ok()?;
    Some(super::entries(rest, usize::try_from(header.n).unwrap_or(usize::MAX)))
}

/// Supported FDP Event Descriptor: 2 bytes, as Get Features of feature 1Eh lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct EventSupport {
    /// FDP Event Type.
    pub event_type: EventType,
    /// FDP Event Type Attributes: bit 0 enabled.
    attributes: u8,
}

layout!(EventSupport, 2, { attributes: 1 });

impl EventSupport {
    /// Bytes of the list's room for every value an event type can have.
    pub const LIST_BYTES_MAX: usize = 2 * 255;

    /// A type that is supported, and recorded if `enabled`.
    pub const fn new(event_type: EventType, enabled: bool) -> Self {
        Self { event_type, attributes: enabled as u8 }
    }

    /// Events of the type are recorded.
    pub const fn enabled(&self) -> bool {
        self.attributes & 1 != 0
    }
}
