//! What of a layer outlives the process, and a layer made from it.

use super::config::{FtlConfig, FtlError};
use super::layer::Ftl;
use super::stats::{FtlStats, StreamStats};
use super::units::{NOBODY, State};
use super::wear::Levelling;

/// State of a unit in an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnitState {
    /// Erased, or never written.
    #[default]
    Free,
    /// The open unit of its stream, which goes on behind what is written.
    Open,
    /// Written, and not to be written any further until it is erased.
    Closed,
    /// Closed because a program has failed: it is emptied first, and bad from then on.
    Failing,
    /// Never written again.
    Bad,
}

/// A unit in an image. Its valid pages are what the mapping says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitImage {
    /// Times it was erased.
    pub erased: u32,
    /// What it is used for.
    pub state: UnitState,
    /// Pages programmed since it was erased, those whose program has failed included.
    pub written: u32,
    /// Stream that writes or has written it ([`Opened::stream`](super::Opened::stream)); of no meaning when
    /// it is free.
    pub stream: u16,
    /// [`FtlStats::host_pages`] when it was closed, or opened if it is open.
    pub since: u64,
}

/// What a layer is restored from, beside its mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// All units, by number.
    pub units: Vec<UnitImage>,
    /// What has been counted. `mapped_pages` is of no meaning: the mapping says it.
    pub stats: FtlStats,
    /// What has been counted for each stream, by number: their sums are those of `stats`.
    pub streams: Vec<StreamStats>,
}

fn refuse<T>(message: String) -> Result<T, FtlError> {
    Err(FtlError::Image(message))
}

impl Ftl {
    /// The layer that an image and a mapping of (logical, physical) pages describe, in any order. A unit that
    /// was being emptied is one that is closed; everything else goes on where it was.
    ///
    /// Counters go on from those of the image, whether or not they are up to date with the units: the sum
    /// check counts from here. Errors: [`FtlError::Image`] naming the unit or page that cannot be true:
    /// numbers out of range, a page that is mapped twice or was never programmed, two open units of a stream.
    /// What [`Ftl::new`] returns.
    pub fn restore(
        config: FtlConfig,
        image: &Image,
        mapping: impl IntoIterator<Item = (u32, u32)>,
    ) -> Result<Self, FtlError> {
        let mut ftl = Self::new(config)?;
        if image.units.len() != ftl.config.units as usize {
            return refuse(format!("{} units, expected {}", image.units.len(), ftl.config.units));
        }
        ftl.restore_stats(image)?;
        for (number, unit) in (0..).zip(&image.units) {
            ftl.check_unit(number, unit)?;
        }
        ftl.restore_mapping(&image.units, mapping)?;
        ftl.units.forget_free();
        for (number, unit) in (0..).zip(&image.units) {
            ftl.restore_unit(number, unit)?;
        }
        ftl.levelling = Levelling::new(&ftl.config, &ftl.units);
        ftl.begin_sums();
        Ok(ftl)
    }

    /// All of the layer but its mapping.
    pub fn image(&self) -> Image {
        Image {
            units: (0..self.config.units).map(|unit| self.unit(unit)).collect(),
            stats: self.stats,
            streams: self.streams.all.iter().map(|stream| stream.stats).collect(),
        }
    }

    /// A unit below [`FtlConfig::units`], as in an image.
    pub fn unit(&self, number: u32) -> UnitImage {
        let unit = &self.units.units[number as usize];
        let (state, since) = match unit.state {
            State::Free => (UnitState::Free, 0),
            State::Open => (UnitState::Open, self.streams.all[usize::from(unit.stream)].opened_at),
            State::Closed | State::Victim if unit.is_failing => (UnitState::Failing, unit.closed_at),
            State::Closed | State::Victim => (UnitState::Closed, unit.closed_at),
            State::Bad => (UnitState::Bad, 0),
        };
        let written = match unit.state {
            State::Open => self.streams.written(unit.stream.into()),
            _ => unit.written,
        };
        UnitImage { erased: unit.erased, state, written, stream: unit.stream, since }
    }

    /// Logical pages that are mapped, and where, in order.
    pub fn mapping(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.config.logical_pages).filter_map(|lpn| self.map.get(lpn).map(|ppn| (lpn, ppn)))
    }

    fn restore_stats(&mut self, image: &Image) -> Result<(), FtlError> {
        let count = self.streams.all.len();
        if image.streams.len() != count {
            return refuse(format!("counters of {} streams, expected {count}", image.streams.len()));
        }
        for (stream, stats) in self.streams.all.iter_mut().zip(&image.streams) {
            stream.stats = *stats;
        }
        let mapped_pages = 0;
        self.stats = FtlStats { mapped_pages, ..image.stats };
        let sum = self.streams.sum();
        let stats = &self.stats;
        let sums = [
            ("host pages", sum.host_pages, stats.host_pages),
            ("moved pages", sum.moved_pages, stats.reclaim_pages),
            ("received pages", sum.received_pages, stats.reclaim_pages),
            ("erased units", sum.erased_units, stats.erased_units),
        ];
        match sums.into_iter().find(|(_, streams, all)| streams != all) {
            Some((what, streams, all)) => {
                refuse(format!("{all} {what}, but {streams} of all streams together"))
            }
            None => Ok(()),
        }
    }

    fn check_unit(&self, number: u32, unit: &UnitImage) -> Result<(), FtlError> {
        let pages = self.config.unit_pages;
        if unit.written > pages {
            return refuse(format!("unit {number} with {} of {pages} pages written", unit.written));
        }
        match unit.state {
            UnitState::Free if unit.written > 0 => {
                refuse(format!("unit {number} is free, but {} of its pages are written", unit.written))
            }
            UnitState::Free | UnitState::Bad => Ok(()),
            _ if usize::from(unit.stream) >= self.streams.all.len() => {
                refuse(format!("unit {number} of stream {}, of {}", unit.stream, self.streams.all.len()))
            }
            _ => Ok(()),
        }
    }

    fn restore_mapping(
        &mut self,
        units: &[UnitImage],
        mapping: impl IntoIterator<Item = (u32, u32)>,
    ) -> Result<(), FtlError> {
        // Owners of a new layer say nothing yet: this is what tells a physical page that two logical pages
        // claim.
        self.owners.fill(NOBODY);
        for (lpn, ppn) in mapping {
            if lpn >= self.config.logical_pages {
                return refuse(format!("logical page {lpn}, of {}", self.config.logical_pages));
            }
            if ppn as usize >= self.owners.len() {
                return refuse(format!(
                    "logical page {lpn} in physical page {ppn}, of {}",
                    self.owners.len()
                ));
            }
            if let Some(other) = self.map.get(lpn) {
                return refuse(format!("logical page {lpn} in physical pages {other} and {ppn}"));
            }
            let owner = self.owners[ppn as usize];
            if owner != NOBODY {
                return refuse(format!("physical page {ppn} of logical pages {owner} and {lpn}"));
            }
            let unit = self.units.of(ppn);
            let image = &units[unit as usize];
            if image.state == UnitState::Bad || ppn - self.units.first_page(unit) >= image.written {
                return refuse(format!(
                    "logical page {lpn} in physical page {ppn}, but {} pages of unit {unit}, which is {:?}, are written",
                    image.written, image.state
                ));
            }
            self.owners[ppn as usize] = lpn;
            self.map.set(lpn, Some(ppn));
            self.units.buckets.add_valid(unit, 1);
            self.stats.mapped_pages += 1;
        }
        self.owners.iter_mut().filter(|owner| **owner == NOBODY).for_each(|owner| *owner = 0);
        Ok(())
    }

    fn restore_unit(&mut self, number: u32, image: &UnitImage) -> Result<(), FtlError> {
        let since = image.since.min(self.stats.host_pages);
        let entry = self.units.at(number);
        // What the factory found bad stays bad, but what is in it is moved away first.
        let is_bad = entry.state == State::Bad || image.state == UnitState::Bad;
        entry.erased = image.erased;
        entry.stream = image.stream;
        match image.state {
            UnitState::Free | UnitState::Bad => {
                self.units.put_erased(number, is_bad);
            }
            UnitState::Open if !is_bad && image.written < self.config.unit_pages => {
                let stream = usize::from(image.stream);
                if let Some(other) = self.streams.all[stream].unit {
                    return refuse(format!("units {other} and {number} are both open for stream {stream}"));
                }
                entry.state = State::Open;
                let group = self.units.group_of(number);
                self.units.group(group).room += i64::from(self.config.unit_pages - image.written);
                self.streams.attach(stream, number, image.written, &mut self.units);
                self.streams.all[stream].opened_at = since;
            }
            UnitState::Open | UnitState::Closed | UnitState::Failing => {
                let is_failing = is_bad || image.state == UnitState::Failing;
                self.units.close(number, image.written, since, is_failing);
            }
        }
        Ok(())
    }
}
