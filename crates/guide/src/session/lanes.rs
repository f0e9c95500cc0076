//! The lanes of a device, and which of them an operation takes.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::lane::Lane;
use super::{OpError, QueueChoice, QueueKind};
use crate::placement::CPUS_MAX;

/// CPUs that can have a lane; beyond, a CPU counts as one without.
const CPUS: usize = CPUS_MAX as usize;
/// In place of an index: the CPU has no lane.
const NONE: u16 = u16::MAX;

/// The lanes of a device.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Box<[Lane]>,
    /// By kind.
    of_kind: [Group; 2],
}

/// The lanes of one kind.
#[derive(Debug)]
struct Group {
    /// Index of the lane of each CPU, or [`NONE`].
    by_cpu: [u16; CPUS],
    members: Box<[u16]>,
    /// Whose turn it is.
    turn: AtomicUsize,
}

impl Group {
    fn of(kind: QueueKind, lanes: &[Lane]) -> Self {
        let mut by_cpu = [NONE; CPUS];
        let mut members = Vec::new();
        for (index, lane) in lanes.iter().enumerate().filter(|(_, lane)| lane.kind == kind) {
            // At most two lanes for each of 64 CPUs.
            by_cpu[lane.cpu as usize % CPUS] = index as u16;
            members.push(index as u16);
        }
        Self { by_cpu, members: members.into(), turn: AtomicUsize::new(0) }
    }
}

impl Lanes {
    /// `lanes` are on CPUs that a mask can name, at most one of each kind on each.
    pub(super) fn new(lanes: Vec<Lane>) -> Self {
        let of_kind = [QueueKind::Sync, QueueKind::Async].map(|kind| Group::of(kind, &lanes));
        Self { lanes: lanes.into(), of_kind }
    }

    pub(super) fn all(&self) -> &[Lane] {
        &self.lanes
    }

    pub(super) fn get(&self, index: usize) -> &Lane {
        &self.lanes[index]
    }

    fn group(&self, kind: QueueKind) -> &Group {
        &self.of_kind[usize::from(kind == QueueKind::Async)]
    }

    /// The lane of a CPU.
    #[inline]
    pub(super) fn on_cpu(&self, cpu: u32, kind: QueueKind) -> Option<&Lane> {
        let index = *self.group(kind).by_cpu.get(cpu as usize)?;
        self.lanes.get(usize::from(index))
    }

    /// The lanes an operation of this kind may take, the best one first: those of its kind, that of the caller's CPU in
    /// front; where the device has none of the kind, those of the other.
    ///
    /// # Errors
    /// [`OpError::WrongQueue`] when a CPU was asked for that has no such lane.
    #[inline]
    pub(super) fn candidates(&self, choice: QueueChoice, kind: QueueKind) -> Result<Candidates<'_>, OpError> {
        if let QueueChoice::Cpu(cpu) = choice {
            let lane = self.on_cpu(cpu, kind).ok_or(OpError::WrongQueue { cpu, wanted: kind })?;
            return Ok(Candidates { first: lane, rest: self, others: &[], start: 0 });
        }
        let mut group = self.group(kind);
        if group.members.is_empty() {
            let other = if kind == QueueKind::Sync { QueueKind::Async } else { QueueKind::Sync };
            group = self.group(other);
        }
        let (first, start) = if let [only] = *group.members {
            (only, 0)
        } else {
            let own = group.by_cpu.get(rustix::thread::sched_getcpu()).copied().unwrap_or(NONE);
            if own == NONE {
                let turn = group.turn.fetch_add(1, Ordering::Relaxed) % group.members.len().max(1);
                (group.members.get(turn).copied().unwrap_or(NONE), turn)
            } else {
                (own, 0)
            }
        };
        let first = self.lanes.get(usize::from(first)).ok_or(OpError::Closed)?;
        Ok(Candidates { first, rest: self, others: &group.members, start })
    }
}

/// Lanes that an operation may take.
pub(super) struct Candidates<'a> {
    /// The best one.
    pub(super) first: &'a Lane,
    rest: &'a Lanes,
    others: &'a [u16],
    start: usize,
}

impl<'a> Candidates<'a> {
    /// All of them; the best one may occur again.
    pub(super) fn all(&self) -> impl Iterator<Item = &'a Lane> {
        let (lanes, others, start) = (self.rest, self.others, self.start);
        let rotated =
            (0..others.len()).map(move |index| lanes.get(others[(start + index) % others.len()].into()));
        std::iter::once(self.first).chain(rotated)
    }
}
