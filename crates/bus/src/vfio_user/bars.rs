//! The BARs a server exports: layout, shared windows, and access by message.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use crate::mem::PAGE_BYTES;
use crate::{BarLayout, BusError, Function, Region, Window};

use super::wire::BARS;

/// Layouts of a function's BARs, checked once.
#[derive(Debug)]
pub(crate) struct Bars([Option<Bar>; BARS]);

#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) layout: BarLayout,
    /// Offset of the BAR's first byte in the object all its windows are part of.
    pub(crate) base: u64,
}

impl Bars {
    /// Asks a function for its BARs. Errors: [`BusError::Unsupported`] when a window cannot be described to a
    /// client: the protocol has one descriptor per BAR and finds a window at the BAR's base plus the window's
    /// offset in it.
    pub(crate) fn of(function: &dyn Function) -> Result<Self, BusError> {
        let mut bars = [const { None }; BARS];
        for (index, bar) in bars.iter_mut().enumerate() {
            *bar = function.bar(index)?.map(|layout| Bar::new(index, layout)).transpose()?;
        }
        Ok(Self(bars))
    }

    /// The BAR with this region index.
    pub(crate) fn get(&self, region: u32) -> Option<&Bar> {
        self.0.get(usize::try_from(region).ok()?)?.as_ref()
    }
}

impl Bar {
    fn new(index: usize, layout: BarLayout) -> Result<Self, BusError> {
        let refuse = |window: &Window, reason: &str| {
            Err(BusError::Unsupported(format!(
                "BAR {index}, window at {:#x}: {reason}; it cannot be shared over vfio-user",
                window.offset
            )))
        };
        let mut base = None;
        let mut end = 0;
        for window in &layout.windows {
            let length = window.region.len() as u64;
            let page = PAGE_BYTES as u64;
            if !window.offset.is_multiple_of(page) || !length.is_multiple_of(page) || window.offset < end {
                return refuse(window, "windows are whole pages in ascending order");
            }
            end = window.offset.saturating_add(length);
            if end > layout.bytes {
                return refuse(window, "it reaches beyond the BAR");
            }
            let Some((fd, offset)) = window.region.backing() else {
                return refuse(window, "its memory is private to this process");
            };
            let Some(start) = offset.checked_sub(window.offset) else {
                return refuse(
                    window,
                    "its memory must lie at least as far into its descriptor as it lies in the BAR",
                );
            };
            let stat = rustix::fs::fstat(fd.as_fd()).map_err(|e| BusError::os("inspect shared memory", e))?;
            let place = (start, stat.st_dev, stat.st_ino);
            if *base.get_or_insert(place) != place {
                return refuse(window, "all windows of a BAR must be laid out alike in one descriptor");
            }
        }
        Ok(Self { layout, base: base.map_or(0, |(start, ..)| start) })
    }

    /// The next part of an access that lies either in one window or in none: the window and the offset in it,
    /// and the number of bytes, which is at least one when `bytes` is.
    fn piece(&self, offset: u64, bytes: usize) -> (Option<(&Region, usize)>, usize) {
        let mut limit = u64::MAX;
        for window in &self.layout.windows {
            let within = offset.checked_sub(window.offset);
            if let Some(skip) = within.filter(|&skip| skip < window.region.len() as u64) {
                let skip = usize::try_from(skip).unwrap_or(usize::MAX);
                return (Some((&window.region, skip)), bytes.min(window.region.len().saturating_sub(skip)));
            }
            if within.is_none() {
                limit = window.offset.saturating_sub(offset);
                break;
            }
        }
        (None, bytes.min(usize::try_from(limit).unwrap_or(usize::MAX)))
    }

    /// Reads registers and shared windows. Errors: as [`Function::bar_read`], [`BusError::OutOfRange`] beyond
    /// the BAR.
    pub(crate) fn read(
        &self,
        function: &dyn Function,
        index: usize,
        at: u64,
        out: &mut [u8],
    ) -> Result<(), BusError> {
        self.check(at, out.len())?;
        let (mut at, mut out) = (at, out);
        while !out.is_empty() {
            let (place, bytes) = self.piece(at, out.len());
            let (now, later) = out.split_at_mut_checked(bytes).unwrap_or_default();
            match place {
                Some((region, offset)) => load(region, offset, now),
                None => function.bar_read(index, at, now)?,
            }
            at = at.saturating_add(bytes as u64);
            out = later;
        }
        Ok(())
    }

    /// Writes registers and shared windows. Errors: as [`Function::bar_write`], [`BusError::OutOfRange`]
    /// beyond the BAR.
    pub(crate) fn write(
        &self,
        function: &dyn Function,
        index: usize,
        at: u64,
        data: &[u8],
    ) -> Result<(), BusError> {
        self.check(at, data.len())?;
        let (mut at, mut data) = (at, data);
        while !data.is_empty() {
            let (place, bytes) = self.piece(at, data.len());
            let (now, later) = data.split_at_checked(bytes).unwrap_or_default();
            match place {
                Some((region, offset)) => store(region, offset, now),
                None => function.bar_write(index, at, now)?,
            }
            at = at.saturating_add(bytes as u64);
            data = later;
        }
        Ok(())
    }

    fn check(&self, offset: u64, bytes: usize) -> Result<(), BusError> {
        BusError::check_range("a BAR", offset, bytes, self.layout.bytes)
    }
}

/// What the client would see with a load of its own: one 32-bit access where it fits, bytes otherwise.
fn load(region: &Region, offset: usize, out: &mut [u8]) {
    match <&mut [u8; 4]>::try_from(&mut *out) {
        Ok(word) if offset.is_multiple_of(4) => {
            *word = region.load_u32(offset, Ordering::Acquire).to_le_bytes();
        }
        _ => region.read(offset, out),
    }
}

/// What the client would do with a store of its own; see [`load`].
fn store(region: &Region, offset: usize, data: &[u8]) {
    match <[u8; 4]>::try_from(data) {
        // Release: pairs with the device's Acquire load of a doorbell, as a store by the client would.
        Ok(word) if offset.is_multiple_of(4) => {
            region.store_u32(offset, u32::from_le_bytes(word), Ordering::Release);
        }
        _ => region.write(offset, data),
    }
}
