//! What a write says about where its data goes.

crate::ids::id! {
    /// Placement Identifier: DSPEC of a write whose directive type is Data Placement. Its upper bits are a
    /// [`ReclaimGroup`], the rest a [`PlacementHandle`]; see [`Rgif`].
    PlacementId(u16)
}
crate::ids::id! {
    /// Placement Handle: index into a namespace's list of reclaim unit handles.
    PlacementHandle(u16)
}
crate::ids::id! {
    /// Reclaim Group Identifier: a part of the media that is filled and erased on its own.
    ReclaimGroup(u16)
}
crate::ids::id! {
    /// Reclaim Unit Handle Identifier: index into the handles of an endurance group's FDP configuration.
    Ruhid(u16)
}

/// Reclaim Group Identifier Format: how many of the 16 bits of a [`PlacementId`], from the top, are the
/// reclaim group (Base figure 303). 0 when there is one group.
///
/// A configuration's attributes hold it in 4 bits, so there it is 15 at most; 16, a placement identifier
/// without a handle, is the end of what the definition allows and is exact all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rgif(u8);

impl Rgif {
    /// A format of `bits` bits; `None` when that is more than the 16 there are.
    pub const fn new(bits: u8) -> Option<Self> {
        if bits <= 16 { Some(Self(bits)) } else { None }
    }

    /// The smallest format whose identifiers can tell `groups` reclaim groups apart; `None` above 65536.
    pub const fn for_groups(groups: u32) -> Option<Self> {
        match groups {
            0 | 1 => Some(Self(0)),
            2..=0x1_0000 => Some(Self(groups.wrapping_sub(1).ilog2().saturating_add(1) as u8)),
            _ => None,
        }
    }

    /// Bits of the reclaim group, 0 to 16.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Bits of the placement handle, 0 to 16.
    const fn handle_bits(self) -> u32 {
        16_u32.saturating_sub(self.0 as u32)
    }

    /// Reclaim group and placement handle of `id`.
    #[inline]
    pub const fn split(self, id: PlacementId) -> (ReclaimGroup, PlacementHandle) {
        // In 32 bits no shift of up to 16 overflows.
        let shift = self.handle_bits();
        let group = id.0 as u32 >> shift;
        let handle = id.0 as u32 & !(u32::MAX << shift);
        (ReclaimGroup(group as u16), PlacementHandle(handle as u16))
    }

    /// The identifier of `handle` in `group`; `None` when one of them has more bits than the format has for
    /// it.
    #[inline]
    pub const fn join(self, group: ReclaimGroup, handle: PlacementHandle) -> Option<PlacementId> {
        let shift = self.handle_bits();
        let fits = group.0 as u32 >> self.0 == 0 && handle.0 as u32 >> shift == 0;
        if fits { Some(PlacementId(((group.0 as u32) << shift | handle.0 as u32) as u16)) } else { None }
    }
}
