//! What a host does to the device, a page at a time.

/// One page that is written or deallocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Op {
    pub(super) lpn: u32,
    /// Which of the workload's streams it belongs to: its reclaim unit handle when FDP is on.
    pub(super) stream: u16,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Trim,
}

impl Op {
    pub(super) const fn write(lpn: u32, stream: u16) -> Self {
        Self { lpn, stream, kind: Kind::Write }
    }

    pub(super) const fn trim(lpn: u32) -> Self {
        Self { lpn, stream: 0, kind: Kind::Trim }
    }
}
