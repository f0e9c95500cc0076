//! The device on a flash translation layer: logical blocks are written out of place, into reclaim units.
//!
//! [`Ftl`] decides where each page goes; this is what it decides about: data, a **record** beside each
//! physical page that says whose data it is, and what recovery needs. Where everything lies is drawn in
//! `layout`; the format is described in `docs/disk-format.md`, and why it is so in
//! `docs/decisions/0007-out-of-place-data.md`.
//!
//! **Reading** takes no lock: the map is read, the page is copied, and it is looked at whether the unit has
//! been opened anew meanwhile (`grains`). **Writing** takes one lock, a page at a time. A page is written
//! whole, to a place where nothing valid is, before the map says so: readers see it whole or not at all.
//!
//! | file | concept |
//! |---|---|
//! | `config`, `layout` | what the flash is made of, and where its parts lie on the store |
//! | `path` | commands: reading, writing, deallocating |
//! | `chip` | the [`Nand`](unvme_flash::ftl::Nand): what programming, moving and erasing do to the store |
//! | `lost` | pages whose data is lost for good |
//! | `grains` | how a reader notices that a unit is written anew |
//! | `record`, `journal`, `checkpoint`, `superblock` | what is on the media beside data |
//! | `flips` | undoing a flipped bit or two in it |
//! | `sync` | what a flush covers, and when a freed unit may be written again |
//! | `watch` | what the layer does, as notes for who wants to know |
//! | `recovery`, `room`, `check` | the way back from the media, and looking at it offline |
//! | `power` | the simulated power cut |

mod check;
mod checkpoint;
mod chip;
mod config;
mod flips;
mod grains;
mod journal;
mod layout;
mod lost;
mod path;
mod power;
mod record;
mod recovery;
mod room;
mod superblock;
mod sync;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unvme_bus::{Region, lock};
use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::{Ftl, FtlConfig, FtlStats, Map, Placement, StreamStats, Wear};
use unvme_flash::timing::OpList;
use unvme_spec::Status;

use crate::SsdError;

use crate::store::{Backing, CHUNK_BYTES};

pub use check::FlashDamage;
pub use config::{FlashConfig, FlashGeometry, UNIT_BYTES_MIN};
pub(crate) use watch::{Note, Shape, Watch};

use chip::{Books, Chip, Source};
use grains::Grains;
use layout::Layout;
use lost::LostPages;
use power::Power;
use superblock::Superblock;

/// Logical pages of a chunk.
const CHUNK_PAGES: u32 = (CHUNK_BYTES / PAGE_BYTES) as u32;
/// Pages that background reclaim moves at a time, with the lock held.
const RECLAIM_PAGES: u32 = 16;

/// A translation layer over a store. Any thread may call anything.
pub(crate) struct Flash {
    config: FlashConfig,
    backing: Arc<Backing>,
    layout: Layout,
    /// Shared with the layer in `inner`, to be read without its lock.
    map: Map,
    grains: Grains,
    power: Power,
    /// Where Flexible Data Placement is told what the layer does.
    watch: Watch,
    lost: LostPages,
    /// What was found to be damaged at opening.
    noticed: Mutex<Vec<FlashDamage>>,
    /// What recovery needs is written.
    persists: bool,
    /// A unit was opened since background reclaim has looked the last time.
    is_behind: AtomicBool,
    /// Bytes of the pages that hosts have written a part of, without those parts.
    padded_bytes: AtomicU64,
    /// Operations that pairs were charged with, where a timing is configured. Locked before `inner`.
    charged: Mutex<OpList>,
    inner: Mutex<Inner>,
}

/// What writing changes.
struct Inner {
    ftl: Ftl,
    books: Books,
}

/// Numbers of a device's flash, and the sums that have to agree.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FlashStats {
    /// What the layer has counted over the life of the device.
    pub ftl: FtlStats,
    /// Of the pages hosts have written, bytes they have not: of a page that is written in part, the rest is
    /// copied.
    pub padded_bytes: u64,
    /// For each reclaim unit handle, all groups together.
    pub handles: Vec<StreamStats>,
    /// Geometry and policies.
    pub config: FtlConfig,
    /// How worn the units are.
    pub wear: Wear,
    /// Nothing can be written any more.
    pub is_read_only: bool,
    /// Share of the endurance that is used, in percent, as the average of all units; beyond 100 when units
    /// last longer. 0 without an endurance.
    pub used_percent: u64,
    /// Share of the units beyond what the logical pages need that is not bad, in percent.
    pub spare_percent: u8,
}

impl Flash {
    /// The flash on a store: what is there, or new when there is none yet. Errors: [`SsdError::State`] when
    /// what is on the store is not this device's or damaged beyond use, or what the store reports.
    pub(crate) fn open(config: &FlashConfig, capacity: u64, backing: Arc<Backing>) -> Result<Self, SsdError> {
        let layout = config.layout(capacity)?;
        let persists = backing.store().persists() && backing.memory().is_some();
        let opened = match backing.memory() {
            Some(memory) if persists => recovery::open(config, capacity, &layout, memory, &backing)?,
            _ => {
                recovery::Opened::empty(Superblock::new(config.geometry.clone()), config.ftl(capacity)?, &[])?
            }
        };
        let recovery::Opened { ftl, books, lost, noticed } = opened;
        let flash = Self {
            config: config.clone(),
            map: ftl.map().clone(),
            grains: Grains::new(layout.physical_pages)?,
            power: Power::default(),
            watch: Watch::default(),
            lost: LostPages::new(lost),
            noticed: Mutex::new(noticed),
            persists,
            is_behind: AtomicBool::new(true),
            padded_bytes: AtomicU64::new(0),
            layout,
            backing,
            charged: Mutex::default(),
            inner: Mutex::new(Inner { ftl, books }),
        };
        Ok(flash)
    }

    /// What the layer does, as notes.
    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// How the physical bytes are divided now.
    pub(crate) fn geometry(&self) -> FlashGeometry {
        lock(&self.inner).books.superblock.geometry.clone()
    }

    /// Configuration of the layer as it is now.
    pub(crate) fn ftl_config(&self) -> FtlConfig {
        lock(&self.inner).ftl.config().clone()
    }

    /// Makes the layer anew with another geometry over the same physical bytes. All data is gone; wear stays,
    /// as the average of the units that each new one is made of. No namespace exists, and no command is under
    /// way. Errors: [`SsdError::Flash`] when the geometry is impossible, and what the store reports; the old
    /// geometry stays then.
    pub(crate) fn reconfigure(&self, geometry: &FlashGeometry) -> Result<(), SsdError> {
        let config = self.config.ftl_with(self.capacity(), geometry)?;
        let config = if self.persists { FlashConfig::pooled(config) } else { config };
        let mut inner = lock(&self.inner);
        let erased = spread(&inner.books.erased(), inner.ftl.config(), &config);
        let superblock = inner.books.superblock.next(geometry.clone());
        let mut opened = recovery::Opened::empty(superblock, config, &erased)?;
        // Nobody reads, so it does not matter that the map is emptied first.
        opened.ftl.adopt_map(self.map.clone());
        if let (true, Some(memory)) = (self.persists, self.backing.memory()) {
            opened.books.superblock.write(memory, &self.layout, &self.backing)?;
            self.discard_all();
        }
        *inner = Inner { ftl: opened.ftl, books: opened.books };
        drop(inner);
        self.restore_padded_bytes(0);
        self.grains.touch(0..self.layout.physical_pages);
        if self.persists {
            self.close().map_err(|_| recovery::unwritable(self.backing.store()))
        } else {
            Ok(())
        }
    }

    /// True when what it holds, and counts, outlives the process.
    pub(crate) fn persists(&self) -> bool {
        self.persists
    }

    /// [`FlashStats::padded_bytes`], without a lock.
    pub(crate) fn padded_bytes(&self) -> u64 {
        self.padded_bytes.load(Ordering::Relaxed)
    }

    /// Goes on counting [`FlashStats::padded_bytes`] from what was saved.
    pub(crate) fn restore_padded_bytes(&self, bytes: u64) {
        self.padded_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Gives back the space of everything but superblocks: with another secret it means nothing any more.
    fn discard_all(&self) {
        let Layout { pages, superblocks: [superblocks, _], journal, store_bytes, .. } = self.layout;
        let chunks = |from, to| from / CHUNK_BYTES..to / CHUNK_BYTES;
        if let Err(error) =
            self.backing.release(chunks(pages, superblocks).chain(chunks(journal, store_bytes)))
        {
            tracing::warn!(%error, "the space of the old geometry could not be given back");
        }
    }

    fn capacity(&self) -> u64 {
        u64::from(self.layout.logical_pages) * PAGE_BYTES
    }

    /// What has been counted, and how worn the flash is.
    pub(crate) fn stats(&self) -> FlashStats {
        let inner = lock(&self.inner);
        let config = inner.ftl.config().clone();
        let wear = inner.ftl.wear();
        let average = inner.books.average_erased();
        FlashStats {
            ftl: *inner.ftl.stats(),
            padded_bytes: self.padded_bytes(),
            handles: (0..config.handles.len() as u16).map(|handle| inner.ftl.handle_stats(handle)).collect(),
            used_percent: config.endurance.map_or(0, |endurance| average * 100 / u64::from(endurance.max(1))),
            spare_percent: (100 * wear.spare_units)
                .checked_div(wear.spare_units_max)
                .map_or(100, |p| p as u8),
            is_read_only: inner.ftl.is_read_only(),
            wear,
            config,
        }
    }

    /// Looks at the layer, or changes it: for what Flexible Data Placement asks beside reading and writing.
    pub(crate) fn with<T>(&self, ops: &mut OpList, act: impl FnOnce(&mut Ftl, &mut Chip<'_>) -> T) -> T {
        let mut inner = lock(&self.inner);
        let Inner { ftl, books } = &mut *inner;
        act(ftl, &mut Chip::new(self, books, Source::Nothing, ops))
    }

    /// Reclaims ahead of need, in a bounded step, unless somebody writes. True when there is more to do.
    pub(crate) fn maintain(&self, ops: &mut OpList) -> bool {
        if !self.is_behind.load(Ordering::Relaxed) {
            return false;
        }
        let Ok(mut inner) = self.inner.try_lock() else { return false };
        let Inner { ftl, books } = &mut *inner;
        if self.power.is_off() {
            return false;
        }
        self.is_behind.store(false, Ordering::Relaxed);
        let groups = ftl.config().groups;
        let mut chip = Chip::new(self, books, Source::Nothing, ops);
        let mut more = false;
        for group in 0..groups {
            more |= ftl.reclaim(group, RECLAIM_PAGES, &mut chip);
        }
        if more {
            self.is_behind.store(true, Ordering::Relaxed);
        }
        more
    }

    /// True when a page of a chunk of what hosts see is mapped.
    pub(crate) fn is_mapped(&self, chunk: u64) -> bool {
        let first = chunk * u64::from(CHUNK_PAGES);
        let end = (first + u64::from(CHUNK_PAGES)).min(self.layout.logical_pages.into());
        (first..end).any(|lpn| self.map.get(lpn as u32).is_some())
    }

    /// Deallocates a chunk of what hosts see. No command may be under way on it. True when there was anything
    /// in it: then [`Flash::sync_released`] has to follow before anybody else is given it. Errors: when the
    /// store fails.
    pub(crate) fn release(&self, chunk: u64) -> Result<bool, SsdError> {
        let was_mapped = self.is_mapped(chunk);
        let first = (chunk * u64::from(CHUNK_PAGES)) as u32;
        let pages = CHUNK_PAGES.min(self.layout.logical_pages.saturating_sub(first));
        self.trim(first, pages).map_err(|_| recovery::unwritable(self.backing.store()))?;
        lock(&self.inner).books.set_elsewhere(first, false);
        Ok(was_mapped)
    }

    /// Chunks that were released stay so when the power goes: in another namespace, what was in them would be
    /// its data, and of pairs not even that. Errors: when the store fails.
    pub(crate) fn sync_released(&self) -> Result<(), SsdError> {
        self.sync().map_err(|_| recovery::unwritable(self.backing.store()))
    }

    /// Charges the layer for pages that pairs have written in their own place: `bytes` at `offset` of the
    /// store's identity area. They are programmed, moved and erased like others, but for their data. Errors:
    /// as for a write of blocks.
    pub(crate) fn charge(&self, offset: u64, bytes: u64, at: Placement) -> Result<(), Status> {
        let mut ops = lock(&self.charged);
        let pages = offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES);
        let mut inner = lock(&self.inner);
        for lpn in pages {
            inner.books.set_elsewhere(lpn as u32, true);
            self.program(&mut inner, lpn as u32, at, Source::Nothing, &mut ops)?;
        }
        Ok(())
    }

    /// From now on what pairs are charged with is noted, for [`Flash::take_charged`].
    pub(crate) fn note_charges(&self) {
        *lock(&self.charged) = OpList::new(true);
    }

    /// Takes the operations that pairs have been charged with.
    pub(crate) fn take_charged(&self, ops: &mut OpList) {
        ops.append(&mut lock(&self.charged));
    }

    /// Pairs have erased `bytes` at `offset` of the identity area: whole pages. Errors: when the store fails.
    pub(crate) fn discharge(&self, offset: u64, bytes: u64) -> Result<(), Status> {
        self.trim((offset / PAGE_BYTES) as u32, (bytes / PAGE_BYTES) as u32)
    }

    fn memory(&self) -> Option<&Region> {
        self.backing.memory()
    }
}

/// Erasures of the units of a new geometry, from those of the old one over the same pages.
fn spread(erased: &[u32], old: &FtlConfig, new: &FtlConfig) -> Vec<u32> {
    let (from, to) = (u64::from(old.unit_pages), u64::from(new.unit_pages));
    let average = |unit: u64| {
        let units = unit * to / from..((unit + 1) * to).div_ceil(from);
        let covered = units.clone().filter_map(|unit| erased.get(unit as usize));
        let (count, sum) = covered.fold((0, 0), |(count, sum), &erased| (count + 1, sum + u64::from(erased)));
        sum.div_ceil(count.max(1)) as u32
    };
    (0..u64::from(new.units)).map(average).collect()
}
