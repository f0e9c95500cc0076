//! The placement handles of a namespace, and where they put a write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use unvme_flash::ftl::Placement;
use unvme_spec::Status;
use unvme_spec::directive::{Directive, dtype};
use unvme_spec::fdp::{PlacementHandle, PlacementId, ReclaimGroup, Rgif, Ruhid};

use super::Configuration;

/// Who chose the reclaim unit handles of a namespace (log page 21h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChosenBy {
    /// The host, with a list.
    Host,
    /// The controller, because there was no list.
    Controller,
}

/// The placement handles of a namespace: which reclaim unit handle each of them stands for.
///
/// All versions of a namespace share it; only whether the directive is enabled changes.
#[derive(Debug)]
pub(crate) struct Handles {
    /// Reclaim unit handle by placement handle, at least one.
    ruhs: Box<[u16]>,
    chosen_by: ChosenBy,
    rgif: Rgif,
    /// Reclaim groups.
    groups: u16,
    /// The Data Placement directive is enabled for the namespace.
    directive: AtomicBool,
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) at: Placement,
    /// The placement identifier the host gave, when it is invalid: the controller has chosen `at` itself.
    pub(crate) invalid: Option<PlacementId>,
}

impl Handles {
    /// Of a namespace on a device without FDP, or where it is disabled: everything goes to handle 0 of
    /// `groups` groups, and no directive is enabled.
    pub(crate) fn conventional(groups: u16) -> Arc<Self> {
        Arc::new(Self {
            ruhs: [0].into(),
            chosen_by: ChosenBy::Controller,
            rgif: Rgif::default(),
            groups: groups.max(1),
            directive: AtomicBool::new(false),
        })
    }

    /// Of a namespace in an enabled configuration, all of whose reclaim unit handles exist.
    pub(crate) fn new(
        ruhs: Box<[u16]>,
        chosen_by: ChosenBy,
        configuration: &Configuration,
        directive: bool,
    ) -> Arc<Self> {
        debug_assert!(!ruhs.is_empty(), "a namespace has at least one placement handle");
        Arc::new(Self {
            ruhs,
            chosen_by,
            rgif: configuration.rgif(),
            groups: configuration.geometry.groups,
            directive: AtomicBool::new(directive),
        })
    }

    /// Reclaim unit handle by placement handle.
    pub(crate) fn ruhs(&self) -> &[u16] {
        &self.ruhs
    }

    pub(crate) fn chosen_by(&self) -> ChosenBy {
        self.chosen_by
    }

    /// The Data Placement directive is enabled.
    pub(crate) fn is_directive_enabled(&self) -> bool {
        self.directive.load(Ordering::Relaxed)
    }

    pub(crate) fn enable_directive(&self, enable: bool) {
        self.directive.store(enable, Ordering::Relaxed);
    }

    /// Where a write with `directive` goes. Without a placement identifier it is placement handle 0 and a
    /// group the controller chooses: `spread`, which is the same whenever the same blocks are written, says
    /// which. So data that nobody places fills all groups evenly.
    ///
    /// While no directive is enabled for the namespace, DTYPE and DSPEC mean nothing (Base 8.1.8). Errors:
    /// invalid Field for a directive type other than Data Placement.
    #[inline]
    pub(crate) fn place(&self, directive: Directive, spread: u64) -> Result<Placed, Status> {
        if directive.dtype == dtype::IDENTIFY || !self.is_directive_enabled() {
            return Ok(Placed { at: self.default_place(spread), invalid: None });
        }
        let id = directive.placement_id().ok_or(Status::INVALID_FIELD.with_do_not_retry())?;
        Ok(match self.resolve(id) {
            Some(at) => Placed { at, invalid: None },
            None => Placed { at: self.default_place(spread), invalid: Some(id) },
        })
    }

    /// Reclaim unit handle and group a placement identifier stands for; `None` when it is invalid.
    #[inline]
    pub(crate) fn resolve(&self, id: PlacementId) -> Option<Placement> {
        let (group, handle) = self.rgif.split(id);
        let &ruh = self.ruhs.get(usize::from(handle.0))?;
        (group.0 < self.groups).then_some(Placement { handle: ruh, group: group.0 })
    }

    #[inline]
    fn default_place(&self, spread: u64) -> Placement {
        let handle = self.ruhs.first().copied().unwrap_or(0);
        let group = if self.groups == 1 { 0 } else { (spread % u64::from(self.groups)) as u16 };
        Placement { handle, group }
    }

    /// The placement identifier under which this namespace knows a reclaim unit handle; `None` when it does
    /// not.
    pub(crate) fn id_of(&self, at: Placement) -> Option<PlacementId> {
        let handle = self.ruhs.iter().position(|&ruh| ruh == at.handle)?;
        self.rgif.join(ReclaimGroup(at.group), PlacementHandle(handle as u16))
    }

    /// Every placement identifier with its place, by placement handle and then by group.
    pub(crate) fn ids(&self) -> impl Iterator<Item = (PlacementId, Ruhid, Placement)> + '_ {
        self.ruhs.iter().enumerate().flat_map(move |(handle, &ruh)| {
            (0..self.groups).filter_map(move |group| {
                let id = self.rgif.join(ReclaimGroup(group), PlacementHandle(handle as u16))?;
                Some((id, Ruhid(ruh), Placement { handle: ruh, group }))
            })
        })
    }
}
