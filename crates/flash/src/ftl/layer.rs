//! The layer itself: writing, deallocating, opening and closing units. What makes room is in `reclaim`.

use super::check::Sums;
use super::config::{FtlConfig, FtlError};
use super::map::Map;
use super::nand::{Nand, Opened, Origin};
use super::reclaim::Victim;
use super::stats::{FtlStats, StreamStats};
use super::streams::{OpenUnit, StreamInfo, Streams};
use super::units::Units;
use super::victim::Chooser;
use super::wear::Levelling;

/// Where a host wants its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Reclaim unit handle.
    pub handle: u16,
    /// Reclaim group.
    pub group: u16,
}

/// A flash translation layer. See the module.
pub struct Ftl {
    pub(super) config: FtlConfig,
    pub(super) map: Map,
    /// Logical page that was programmed into each physical page last.
    pub(super) owners: Box<[u32]>,
    pub(super) units: Units,
    pub(super) streams: Streams,
    /// By group.
    pub(super) victims: Box<[Option<Victim>]>,
    pub(super) chooser: Chooser,
    pub(super) levelling: Levelling,
    pub(super) stats: FtlStats,
    pub(super) sums: Sums,
}

impl Ftl {
    /// An empty layer. Errors: what [`FtlConfig::check`] finds, or [`FtlError::Memory`].
    pub fn new(config: FtlConfig) -> Result<Self, FtlError> {
        config.check()?;
        let units = Units::new(&config);
        Ok(Self {
            map: Map::new(config.logical_pages).map_err(|_| FtlError::Memory)?,
            owners: vec![0; config.units as usize * config.unit_pages as usize].into(),
            levelling: Levelling::new(&config, &units),
            units,
            streams: Streams::new(&config),
            victims: vec![None; config.groups.into()].into(),
            chooser: Chooser::new(config.policy, config.seed, config.groups),
            stats: FtlStats::default(),
            sums: Sums::default(),
            config,
        })
    }

    /// What the layer is made of.
    pub fn config(&self) -> &FtlConfig {
        &self.config
    }

    /// The map, to be read without the layer.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Uses a map that others read already, and empties it. Nothing is mapped in the layer yet.
    pub fn adopt_map(&mut self, map: Map) {
        map.clear();
        self.map = map;
    }

    /// What has been counted.
    pub fn stats(&self) -> &FtlStats {
        &self.stats
    }

    /// What has been counted for a handle, all groups together.
    pub fn handle_stats(&self, handle: u16) -> StreamStats {
        let of_group = |group| self.streams.all[self.streams.of(Placement { handle, group })].stats;
        (0..self.config.groups).map(of_group).fold(StreamStats::default(), |sum, stats| sum + stats)
    }

    /// Number of streams: one for each handle and group, and one for each destination of reclaim and group.
    pub fn streams(&self) -> u16 {
        self.streams.all.len() as u16
    }

    /// A stream below [`Ftl::streams`]. The counters of all of them add up to those of [`Ftl::stats`].
    pub fn stream(&self, stream: u16) -> StreamInfo {
        self.streams.info(stream.into())
    }

    /// The open unit of a handle and group; `None` before the first write, and between two units.
    pub fn open_unit(&self, at: Placement) -> Option<OpenUnit> {
        self.streams.info(self.streams.of(at)).open
    }

    /// Pages that can still be written to the open unit of a handle and group (RUAMW).
    pub fn pages_left(&self, at: Placement) -> u32 {
        self.open_unit(at).map_or(self.config.unit_pages, |open| open.left)
    }

    /// Writes a logical page below `logical_pages`, at a handle and a group that exist. Returns the physical
    /// page that was programmed; in units of a few pages reclaim may already have moved it on, as the map
    /// says. Errors: [`FtlError::WornOut`] when there is no unit left to write to; nothing is changed for the
    /// host.
    #[inline]
    pub fn write(&mut self, lpn: u32, at: Placement, nand: &mut impl Nand) -> Result<u32, FtlError> {
        let index = self.streams.of(at);
        let ppn = loop {
            if self.streams.all[index].left == 0 {
                self.open(index, nand)?;
            }
            let stream = &mut self.streams.all[index];
            let ppn = stream.next;
            stream.next += 1;
            stream.left -= 1;
            if nand.program(ppn, lpn, Origin::Host).is_ok() {
                break ppn;
            }
            self.fail(index, 1, nand);
        };
        self.owners[ppn as usize] = lpn;
        match self.map.get(lpn) {
            Some(old) => self.units.invalidate(self.units.of(old)),
            None => self.stats.mapped_pages += 1,
        }
        self.map.set(lpn, Some(ppn));
        self.stats.host_pages += 1;
        let stream = &mut self.streams.all[index];
        stream.stats.host_pages += 1;
        self.units.buckets.add_valid(self.units.of(ppn), 1);
        let group = stream.group;
        let is_full = stream.left == 0;
        let room = &mut self.units.groups[usize::from(group)].room;
        *room -= 1;
        let is_short = *room < 0;
        if is_full {
            self.close_unit(index, nand);
        }
        if is_short {
            self.pay(group, nand);
        }
        Ok(ppn)
    }

    /// Deallocates a logical page. True when it was mapped.
    pub fn trim(&mut self, lpn: u32) -> bool {
        let Some(old) = self.map.get(lpn) else { return false };
        self.map.set(lpn, None);
        self.units.invalidate(self.units.of(old));
        self.stats.mapped_pages -= 1;
        self.stats.trimmed_pages += 1;
        true
    }

    /// Closes the open unit of a handle and group, full or not: the next write goes to another one. Returns
    /// how many of its pages had been written; `None` when there was none.
    pub fn close(&mut self, at: Placement, nand: &mut impl Nand) -> Option<u32> {
        let index = self.streams.of(at);
        self.streams.all[index].unit?;
        let written = self.streams.written(index);
        self.close_unit(index, nand);
        Some(written)
    }

    /// The last program of a stream has failed: its unit is closed, to be emptied before all others and never
    /// written again. `programs` of the stream have not been taken from the group's room yet.
    #[cold]
    pub(super) fn fail(&mut self, index: usize, programs: u32, nand: &mut impl Nand) {
        self.stats.failed_pages += 1;
        let group = self.streams.all[index].group;
        self.units.group(group).room -= i64::from(programs);
        if let Some((unit, written)) = self.streams.detach(index, &mut self.units) {
            self.levelling.discount(self.units.at(unit).erased);
            self.units.close(unit, written, self.stats.host_pages, true);
            nand.close(unit, written);
        }
    }

    #[cold]
    pub(super) fn close_unit(&mut self, index: usize, nand: &mut impl Nand) {
        if let Some((unit, written)) = self.streams.detach(index, &mut self.units) {
            self.units.close(unit, written, self.stats.host_pages, false);
            nand.close(unit, written);
        }
    }

    /// Opens a unit for a stream that has none. Returns the stream to write to: another one than `index` only
    /// when data has to be moved and nothing but the rest of other streams' units is left.
    #[cold]
    pub(super) fn open(&mut self, index: usize, nand: &mut impl Nand) -> Result<usize, FtlError> {
        let home = self.streams.home_of(index);
        let is_destination = self.streams.is_destination(index);
        let group = match is_destination {
            true => match self.group_with_free(home, 1) {
                Some(group) => group,
                None => return self.any_open().ok_or(FtlError::WornOut),
            },
            false if self.is_read_only() => return Err(FtlError::WornOut),
            false => self.make_free(home, nand)?,
        };
        let is_most_worn = self.streams.is_levelling(index);
        let unit = self
            .units
            .open(group, index as u16, is_most_worn, |unit| nand.is_ready(unit))
            .ok_or(FtlError::WornOut)?;
        if !nand.admit(unit) {
            self.units.put_back(unit);
            return Err(FtlError::Refused);
        }
        self.streams.attach(index, unit, 0, &mut self.units);
        self.streams.all[index].opened_at = self.stats.host_pages;
        let handle = self.streams.handle(index);
        nand.open(Opened { unit, group, handle, is_destination, stream: index as u16 });
        Ok(index)
    }

    /// A group with so many free units: `home`, or the one with most of them.
    pub(super) fn group_with_free(&self, home: u16, units: usize) -> Option<u16> {
        let free = |group: &u16| self.units.groups[usize::from(*group)].free.len();
        let most = || (0..self.config.groups).max_by_key(free).filter(|group| free(group) >= units);
        Some(home).filter(|group| free(group) >= units).or_else(most)
    }

    /// A stream with room in its open unit. Where isolation and saving the data exclude each other, the data
    /// is saved.
    fn any_open(&self) -> Option<usize> {
        self.streams.all.iter().position(|stream| stream.left > 0)
    }
}
