//! Where writes go on a device with Flexible Data Placement: what is to be together by how long it lives.

use unvme::Block;
use unvme::fdp::PlacementId;

use crate::error::{Error, Result};

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Data, with the hint of their file: values of `F_SET_RW_HINT`.
    Data(u8),
    Journal,
    Metadata,
}

/// Which placement handle is for what: an index into the handles that the namespace has, in ascending order
/// of their identifiers. One that there is not stands for the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementTable {
    /// Data without a hint: `RWH_WRITE_LIFE_NOT_SET` and `RWH_WRITE_LIFE_NONE`.
    pub none: u16,
    /// `RWH_WRITE_LIFE_SHORT`.
    pub short: u16,
    /// `RWH_WRITE_LIFE_MEDIUM`.
    pub medium: u16,
    /// `RWH_WRITE_LIFE_LONG`.
    pub long: u16,
    /// `RWH_WRITE_LIFE_EXTREME`.
    pub extreme: u16,
    /// The journal, which is written again and again.
    pub journal: u16,
    /// Metadata in their places.
    pub metadata: u16,
}

impl Default for PlacementTable {
    fn default() -> Self {
        Self { none: 0, short: 1, medium: 2, long: 3, extreme: 4, journal: 5, metadata: 6 }
    }
}

/// How a file system places what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The device decides.
    Off,
    /// By a table, where the device has placement handles.
    Table(PlacementTable),
}

impl Default for Placement {
    fn default() -> Self {
        Self::Table(PlacementTable::default())
    }
}

/// The placement of each class of writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Placements {
    hints: [Option<PlacementId>; 6],
    journal: Option<PlacementId>,
    metadata: Option<PlacementId>,
}

impl Placements {
    /// Looks the handles up.
    ///
    /// # Errors
    /// [`Error::Device`]. A namespace without handles is none.
    pub(crate) fn find(block: &Block, placement: Placement) -> Result<Self> {
        let Placement::Table(table) = placement else { return Ok(Self::default()) };
        let handles = match block.clone().placements() {
            Ok(handles) => handles,
            Err(unvme::Error::Unsupported { .. } | unvme::Error::Device { .. }) => return Ok(Self::default()),
            Err(e) => return Err(Error::from(e)),
        };
        let Some(last) = handles.last().copied() else { return Ok(Self::default()) };
        let at = |index: u16| Some(handles.get(usize::from(index)).copied().unwrap_or(last));
        Ok(Self {
            hints: [table.none, table.none, table.short, table.medium, table.long, table.extreme].map(at),
            journal: at(table.journal),
            metadata: at(table.metadata),
        })
    }

    #[inline]
    pub(crate) fn of(&self, class: Class) -> Option<PlacementId> {
        match class {
            Class::Data(hint) => self.hints.get(usize::from(hint)).copied().flatten(),
            Class::Journal => self.journal,
            Class::Metadata => self.metadata,
        }
    }
}
