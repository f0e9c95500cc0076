//! A device's view of host memory.

use crate::mem::PAGE_BYTES;
use crate::published::{Published, Reader};
use crate::{BusError, Dma, DmaAccess, Region};

/// Most ranges one device can have mapped at a time.
pub const MAPPINGS_MAX: usize = 65_536;

#[derive(Clone, Debug)]
struct Entry {
    iova: u64,
    /// One past the last byte; a mapping never wraps around.
    end: u64,
    region: Region,
    access: DmaAccess,
}

/// A snapshot of what is mapped, in ascending order. Regions found in it stay mapped in this process for as
/// long as the snapshot lives.
#[derive(Clone, Debug, Default)]
pub struct Mappings {
    entries: Vec<Entry>,
}

/// Direction of a device's access to host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The device reads host memory.
    Read,
    /// The device writes host memory.
    Write,
}

/// A piece of a mapped range: which range, where in it, and how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    range: usize,
    /// Offset within the range's region.
    pub offset: usize,
    /// Bytes in one piece, at least one when any are wanted.
    pub bytes: usize,
}

impl Mappings {
    /// Where `iova` is, and how many of the `bytes` wanted are there in one piece. `None` when the address is
    /// not mapped for that direction.
    #[inline]
    pub fn find(&self, iova: u64, bytes: usize, direction: Direction) -> Option<Place> {
        let range = match self.entries.len() {
            1 => 0,
            _ => self.entries.partition_point(|e| e.iova <= iova).checked_sub(1)?,
        };
        let entry = self.entries.get(range)?;
        let allowed = match direction {
            Direction::Read => entry.access.read,
            Direction::Write => entry.access.write,
        };
        if iova < entry.iova || iova >= entry.end || !allowed {
            return None;
        }
        let available = usize::try_from(entry.end - iova).unwrap_or(usize::MAX);
        Some(Place { range, offset: (iova - entry.iova) as usize, bytes: bytes.min(available) })
    }

    /// The region a place is in. Panics: when the place comes from another snapshot that had more ranges.
    #[inline]
    pub fn region(&self, place: Place) -> &Region {
        &self.entries[place.range].region
    }

    /// Region and offset of `iova`, when all `bytes` are there in one piece.
    #[inline]
    pub fn resolve(&self, iova: u64, bytes: usize, direction: Direction) -> Option<(&Region, usize)> {
        let place = self.find(iova, bytes, direction)?;
        (place.bytes == bytes).then(|| (self.region(place), place.offset))
    }

    /// Whether any of the memory [is lost](Region::is_lost).
    pub fn is_lost(&self) -> bool {
        self.entries.iter().any(|entry| entry.region.is_lost())
    }

    /// Number of mapped ranges.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Host memory a device may reach: I/O virtual address to [`Region`]. Reading needs no lock.
#[derive(Debug, Default)]
pub struct AddressSpace(Published<Mappings>);

/// A reader's snapshot of an [`AddressSpace`].
pub type View = Reader<Mappings>;

impl AddressSpace {
    /// An address space with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// The mappings as they are now.
    pub fn view(&self) -> View {
        self.0.reader()
    }

    /// Brings a snapshot up to date, for one load when nothing has changed; true when it has changed.
    #[inline]
    pub fn refresh(&self, view: &mut View) -> bool {
        self.0.refresh(view)
    }

    /// Adds a range. Errors: [`BusError::Dma`] when it is empty, not page aligned, wraps around, overlaps
    /// another one, or is one too many.
    pub fn map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        let length = region.len() as u64;
        let refuse = |reason| BusError::Dma { iova, length, reason };
        if !iova.is_multiple_of(PAGE_BYTES as u64) || !length.is_multiple_of(PAGE_BYTES as u64) {
            return Err(refuse("not page aligned"));
        }
        if length == 0 {
            return Err(refuse("is empty"));
        }
        let end = iova.checked_add(length).ok_or_else(|| refuse("wraps around the address space"))?;
        self.0.update(|current| {
            if current.entries.len() >= MAPPINGS_MAX {
                return Err(refuse("too many ranges are mapped"));
            }
            let at = current.entries.partition_point(|e| e.iova < iova);
            let before = at.checked_sub(1).and_then(|i| current.entries.get(i));
            let after = current.entries.get(at);
            if before.is_some_and(|e| e.end > iova) || after.is_some_and(|e| e.iova < end) {
                return Err(refuse("overlaps a range that is mapped already"));
            }
            let mut entries = current.entries.clone();
            entries.insert(at, Entry { iova, end, region: region.clone(), access });
            Ok((Mappings { entries }, ()))
        })
    }

    /// Removes the ranges within `iova..iova + length`. Snapshots taken before still reach them: the device
    /// must be made to drop those before the host is told that the range is gone. Errors: [`BusError::Dma`]
    /// when nothing is mapped there or a range would be cut in two.
    pub fn unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        let refuse = |reason| BusError::Dma { iova, length, reason };
        let end = iova.checked_add(length).ok_or_else(|| refuse("wraps around the address space"))?;
        self.0.update(|current| {
            if current.entries.iter().any(|e| e.iova < end && e.end > iova && (e.iova < iova || e.end > end))
            {
                return Err(refuse("cuts a mapped range in two"));
            }
            let mut entries = current.entries.clone();
            entries.retain(|e| e.iova >= end || e.end <= iova);
            if entries.len() == current.entries.len() {
                return Err(refuse("nothing is mapped there"));
            }
            Ok((Mappings { entries }, ()))
        })
    }
}

impl Dma for AddressSpace {
    fn dma_map(&self, iova: u64, region: &Region, access: DmaAccess) -> Result<(), BusError> {
        self.map(iova, region, access)
    }

    fn dma_unmap(&self, iova: u64, length: u64) -> Result<(), BusError> {
        self.unmap(iova, length)
    }
}
