//! How well a subsystem is reached at a port.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use unvme_spec::Status;

/// Identifier of a port (PORTID).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// Asymmetric Namespace Access state of a subsystem's namespaces at a port (Base 8.1.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnaState {
    /// Optimized.
    #[default]
    Optimized,
    /// Non-optimized: it works, another port is better.
    NonOptimized,
    /// Inaccessible: I/O commands fail, another port works.
    Inaccessible,
    /// Persistent Loss: I/O commands fail for good.
    PersistentLoss,
    /// Change: the state is about to be another one.
    Change,
}

impl AnaState {
    /// ANA state in the log page (Base figure 219); zero is no state there, and stands for the first one in
    /// memory.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Optimized => 0x01,
            Self::NonOptimized => 0x02,
            Self::Inaccessible => 0x03,
            Self::PersistentLoss => 0x04,
            Self::Change => 0x0f,
        }
    }

    #[inline]
    pub(crate) const fn of(code: u8) -> Self {
        match code {
            0x02 => Self::NonOptimized,
            0x03 => Self::Inaccessible,
            0x04 => Self::PersistentLoss,
            0x0f => Self::Change,
            _ => Self::Optimized,
        }
    }

    /// What I/O commands are answered with; `None` when they are executed.
    #[inline]
    pub(crate) const fn refusal(self) -> Option<Status> {
        match self {
            Self::Optimized | Self::NonOptimized => None,
            Self::Inaccessible => Some(Status::ANA_INACCESSIBLE),
            Self::PersistentLoss => Some(Status::ANA_PERSISTENT_LOSS),
            Self::Change => Some(Status::ANA_TRANSITION),
        }
    }
}

/// ANA state of a subsystem's namespaces at a port.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    state: AtomicU8,
    changes: AtomicU64,
}

impl Reach {
    pub(crate) fn new(state: AnaState) -> Self {
        Self { state: AtomicU8::new(state.code()), changes: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn state(&self) -> AnaState {
        AnaState::of(self.state.load(Ordering::Relaxed))
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Sets the state; true when it is another one.
    pub(crate) fn set(&self, state: AnaState) -> bool {
        let is_new = self.state.swap(state.code(), Ordering::Relaxed) != state.code();
        if is_new {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        is_new
    }
}
