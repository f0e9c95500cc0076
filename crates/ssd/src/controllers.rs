//! Identifiers of the controllers of a device, and sets of them.

/// Most controllers that a device has at a time.
pub const CONTROLLERS_MAX: usize = 128;

/// Identifier of the first controller of a device. No other one gets it, not even when that one has gone.
pub(crate) const FIRST_CONTROLLER: u16 = 0;

/// Controllers, a bit for each by its identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ControllerSet(u128);

const _: () = assert!(CONTROLLERS_MAX <= u128::BITS as usize);

impl ControllerSet {
    /// One controller, whose identifier is below [`CONTROLLERS_MAX`].
    pub(crate) const fn only(cntlid: u16) -> Self {
        Self(1 << cntlid)
    }

    /// The controller a device has when it is made.
    pub(crate) const fn first() -> Self {
        Self::only(FIRST_CONTROLLER)
    }

    #[inline(always)]
    pub(crate) const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) const fn contains(self, cntlid: u16) -> bool {
        (cntlid as usize) < CONTROLLERS_MAX && self.intersects(Self::only(cntlid))
    }

    pub(crate) const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Identifiers in ascending order.
    pub(crate) fn iter(self) -> impl Iterator<Item = u16> {
        (0..CONTROLLERS_MAX as u16).filter(move |&cntlid| self.contains(cntlid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_controllers_is_a_set_of_small_numbers() {
        let set = ControllerSet::only(0).with(ControllerSet::only(127));
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 127]);
        assert!(set.contains(127) && !set.contains(1) && !set.contains(128) && !set.contains(0xffff));
        assert_eq!((set.count(), set.without(ControllerSet::first())), (2, ControllerSet::only(127)));
        assert!(ControllerSet::only(127).is_within(set) && !set.is_within(ControllerSet::only(127)));
        assert!(!ControllerSet::default().contains(0) && !set.intersects(ControllerSet::only(3)));
    }
}
