//! Append points: the open units of handles and of reclaim's destinations.

use super::config::{FtlConfig, Isolation};
use super::layer::Placement;
use super::stats::StreamStats;
use super::units::Units;

/// The unit that a stream writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenUnit {
    /// Its number. It can be of another group than the stream is, when that held nothing but valid data.
    pub unit: u32,
    /// Pages programmed, and pages that can still be (RUAMW).
    pub written: u32,
    /// Pages that can still be programmed.
    pub left: u32,
    /// [`FtlStats::host_pages`](super::FtlStats::host_pages) when it was opened.
    pub opened_at: u64,
}

/// A stream: a handle in a group, or a destination of reclaim in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// The handle whose data it takes; `None` for the destination that initially isolated handles share.
    pub handle: Option<u16>,
    /// Reclaim group.
    pub group: u16,
    /// It takes data that reclaim moves, not what hosts write.
    pub is_destination: bool,
    /// It takes data that is moved to even out wear.
    pub is_levelling: bool,
    /// Its open unit; `None` before the first write, and between two units.
    pub open: Option<OpenUnit>,
    /// What has been counted for it.
    pub stats: StreamStats,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) unit: Option<u32>,
    pub(super) next: u32,
    pub(super) left: u32,
    /// Group of the open unit.
    pub(super) group: u16,
    /// It has had a unit: room for the next one is kept available.
    pub(super) is_active: bool,
    pub(super) opened_at: u64,
    pub(super) stats: StreamStats,
}

pub(super) struct Streams {
    /// Hosts', `handle * groups + group`; behind them destinations: the shared one, then those of
    /// persistently isolated handles, each by group; behind them as many for what wear levelling moves, if
    /// there is any.
    pub(super) all: Box<[Stream]>,
    groups: u16,
    handles: u16,
    unit_pages: u32,
    /// Destination of each handle's data, as a row of `all`.
    destination_of: Box<[u16]>,
    /// Handle of each destination, by row behind those of handles.
    handle_of: Box<[Option<u16>]>,
}

impl Streams {
    pub(super) fn new(config: &FtlConfig) -> Self {
        let handles = config.handles.len() as u16;
        let mut handle_of = Vec::new();
        if config.handles.contains(&Isolation::Initially) {
            handle_of.push(None);
        }
        let destination = |(handle, isolation): (u16, &Isolation)| match isolation {
            Isolation::Initially => handles,
            Isolation::Persistently => {
                handle_of.push(Some(handle));
                handles + handle_of.len() as u16 - 1
            }
        };
        let destination_of = (0..).zip(&config.handles).map(destination).collect();
        let stream = Stream {
            unit: None,
            next: 0,
            left: 0,
            group: 0,
            is_active: false,
            opened_at: 0,
            stats: StreamStats::default(),
        };
        let rows = config.handles.len() + config.destinations() as usize;
        Self {
            all: vec![stream; rows * usize::from(config.groups)].into(),
            groups: config.groups,
            handles,
            unit_pages: config.unit_pages,
            destination_of,
            handle_of: handle_of.into(),
        }
    }

    #[inline]
    pub(super) fn of(&self, at: Placement) -> usize {
        usize::from(at.handle) * usize::from(self.groups) + usize::from(at.group)
    }

    /// Group that a stream belongs to.
    pub(super) fn home_of(&self, index: usize) -> u16 {
        (index % usize::from(self.groups)) as u16
    }

    pub(super) fn is_destination(&self, index: usize) -> bool {
        index / usize::from(self.groups) >= usize::from(self.handles)
    }

    /// Handle whose data a stream takes.
    pub(super) fn handle(&self, index: usize) -> Option<u16> {
        let row = (index / usize::from(self.groups)) as u16;
        match row.checked_sub(self.handles) {
            None => Some(row),
            Some(row) => self.handle_of[usize::from(row) % self.handle_of.len()],
        }
    }

    /// Where reclaim moves data to that a stream has written, from a unit of `group`.
    #[inline]
    pub(super) fn destination_of(&self, source: usize, group: u16, is_levelling: bool) -> usize {
        let (row, handles) = (source / usize::from(self.groups), usize::from(self.handles));
        let row = match self.destination_of.get(row) {
            Some(&row) => row.into(),
            None => handles + (row - handles) % self.handle_of.len(),
        };
        let row = if is_levelling { row + self.handle_of.len() } else { row };
        row * usize::from(self.groups) + usize::from(group)
    }

    /// It takes what wear levelling moves.
    pub(super) fn is_levelling(&self, index: usize) -> bool {
        index / usize::from(self.groups) >= usize::from(self.handles) + self.handle_of.len()
    }

    pub(super) fn info(&self, index: usize) -> StreamInfo {
        let stream = &self.all[index];
        let written = self.unit_pages - stream.left;
        let open = |unit| OpenUnit { unit, written, left: stream.left, opened_at: stream.opened_at };
        StreamInfo {
            handle: self.handle(index),
            group: self.home_of(index),
            is_destination: self.is_destination(index),
            is_levelling: self.is_levelling(index),
            open: stream.unit.map(open),
            stats: stream.stats,
        }
    }

    /// All streams together.
    pub(super) fn sum(&self) -> StreamStats {
        self.all.iter().fold(StreamStats::default(), |sum, stream| sum + stream.stats)
    }

    /// A stream goes on writing in a unit, of which `written` pages are.
    pub(super) fn attach(&mut self, index: usize, unit: u32, written: u32, units: &mut Units) {
        let (group, home) = (units.group_of(unit), self.home_of(index));
        let stream = &mut self.all[index];
        stream.unit = Some(unit);
        stream.next = units.first_page(unit) + written;
        stream.left = self.unit_pages - written;
        stream.group = group;
        let pages = i64::from(self.unit_pages);
        if !std::mem::replace(&mut stream.is_active, true) {
            units.group(home).room -= pages;
        }
        if group != home {
            units.group(group).room -= pages;
        }
    }

    /// A stream's unit is closed. Returns it and how many of its pages are written; `None` when there is
    /// none.
    pub(super) fn detach(&mut self, index: usize, units: &mut Units) -> Option<(u32, u32)> {
        let home = self.home_of(index);
        let stream = &mut self.all[index];
        let unit = stream.unit.take()?;
        let left = std::mem::take(&mut stream.left);
        let group = stream.group;
        let given_back = if group == home { 0 } else { self.unit_pages };
        units.group(group).room += i64::from(given_back) - i64::from(left);
        Some((unit, self.unit_pages - left))
    }

    /// Pages written of an open unit.
    pub(super) fn written(&self, index: usize) -> u32 {
        self.unit_pages - self.all[index].left
    }

    /// Units that a group keeps available: for its own append points, for those that are guests, and one.
    pub(super) fn kept(&self, group: u16) -> i64 {
        let count = |(index, stream): (usize, &Stream)| {
            let home = self.home_of(index);
            let is_guest = stream.unit.is_some() && stream.group == group && home != group;
            i64::from(stream.is_active && home == group) + i64::from(is_guest)
        };
        1 + self.all.iter().enumerate().map(count).sum::<i64>()
    }

    /// Pages that can still be programmed in a group's open units.
    pub(super) fn left_in(&self, group: u16) -> i64 {
        self.all
            .iter()
            .filter(|stream| stream.unit.is_some() && stream.group == group)
            .map(|s| i64::from(s.left))
            .sum()
    }
}
