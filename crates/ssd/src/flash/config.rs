//! What a device's flash is made of.

use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::{FtlConfig, FtlError, Isolation, VictimPolicy};

use super::layout::Layout;
use crate::SsdError;
use crate::store::CHUNK_BYTES;

/// Smallest reclaim unit of a device.
pub const UNIT_BYTES_MIN: u64 = 64 << 10;

/// Bytes of free units that one sync is to make ready, if the overprovisioning allows.
const POOL_BYTES: u64 = 8 << 20;
/// At most this part of the units that are neither needed for data nor in the reserve are kept free for it.
const POOL_SHARE: u32 = 8;

/// A translation layer and real flash below a device's logical blocks: data is written out of place, in
/// reclaim units.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashConfig {
    /// Reclaim units, groups and handles.
    pub geometry: FlashGeometry,
    /// Overprovisioning as sold: physical bytes / bytes hosts see - 1. Exact to a millionth.
    pub overprovisioning: f64,
    /// Which unit is reclaimed next.
    pub policy: VictimPolicy,
    /// Difference between the most and the least erased unit beyond which cold data is moved; `None` for no
    /// wear levelling.
    pub wear_spread_max: Option<u32>,
    /// Erasures after which a unit is bad; `None` for no end.
    pub endurance: Option<u32>,
    /// Seed of everything random.
    pub seed: u64,
}

/// The part of a flash configuration that Flexible Data Placement changes: how the physical bytes are
/// divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlashGeometry {
    /// Bytes of a reclaim unit: a multiple of 4 KiB, at least [`UNIT_BYTES_MIN`].
    pub unit_bytes: u64,
    /// Reclaim groups.
    pub groups: u16,
    /// Reclaim unit handles, and how each keeps its data apart.
    pub handles: Vec<Isolation>,
}

impl Default for FlashGeometry {
    /// Units of 8 MiB, one group, one handle.
    fn default() -> Self {
        Self { unit_bytes: 8 << 20, groups: 1, handles: vec![Isolation::Initially] }
    }
}

impl Default for FlashConfig {
    /// The default geometry with 18 % of overprovisioning, greedy, without wear.
    fn default() -> Self {
        Self {
            geometry: FlashGeometry::default(),
            overprovisioning: 0.18,
            policy: VictimPolicy::Greedy,
            wear_spread_max: None,
            endurance: None,
            seed: 1,
        }
    }
}

impl FlashConfig {
    /// The translation layer of a device that hosts see `capacity` bytes of: physical pages are so many that
    /// overprovisioning is at least what was asked for, in whole units and as many of them in each group.
    /// Errors: [`FtlError::Config`] naming what is impossible, and what works.
    pub fn ftl(&self, capacity: u64) -> Result<FtlConfig, FtlError> {
        let unit_bytes = self.geometry.unit_bytes;
        let pages = self.pages_wanted(capacity)?;
        let unit_pages = u64::from(unit_pages(unit_bytes)?);
        let groups = u64::from(self.geometry.groups.max(1));
        let units = pages.div_ceil(unit_pages).next_multiple_of(groups);
        let units = u32::try_from(units).map_err(|_| too_large(capacity))?;
        self.ftl_of(capacity, &self.geometry, units)
    }

    /// The layer with another geometry over the same physical pages: whole units of what there is. Errors: as
    /// [`FlashConfig::ftl`].
    pub fn ftl_with(&self, capacity: u64, geometry: &FlashGeometry) -> Result<FtlConfig, FtlError> {
        let own = self.ftl(capacity)?;
        if *geometry == self.geometry {
            return Ok(own);
        }
        let pages = u64::from(own.units) * u64::from(own.unit_pages);
        let groups = u32::from(geometry.groups.max(1));
        let units = (pages / u64::from(unit_pages(geometry.unit_bytes)?)) as u32;
        self.ftl_of(capacity, geometry, units / groups * groups)
    }

    fn ftl_of(&self, capacity: u64, geometry: &FlashGeometry, units: u32) -> Result<FtlConfig, FtlError> {
        let logical_pages = u32::try_from(capacity / PAGE_BYTES).map_err(|_| too_large(capacity))?;
        let config = FtlConfig {
            groups: geometry.groups,
            handles: geometry.handles.clone(),
            policy: self.policy,
            wear_spread_max: self.wear_spread_max,
            endurance: self.endurance,
            seed: self.seed,
            ..FtlConfig::simple(logical_pages, units, unit_pages(geometry.unit_bytes)?)
        };
        config.check()?;
        Ok(config)
    }

    /// The same layer on a store that has to be synced before a unit that was freed is written again, as
    /// files have to be: some units more are kept free, so that one sync makes many of them ready. Units of
    /// more than 8 MiB need none.
    pub fn pooled(layer: FtlConfig) -> FtlConfig {
        let wanted = POOL_BYTES / (u64::from(layer.unit_pages) * PAGE_BYTES);
        let spare = layer.units.saturating_sub(layer.needed_units()) / POOL_SHARE;
        FtlConfig { pool_units: spare.min(wanted as u32), ..layer }
    }

    /// Logical pages and overprovisioning, in physical pages.
    fn pages_wanted(&self, capacity: u64) -> Result<u64, FtlError> {
        if !(0.0..=16.0).contains(&self.overprovisioning) {
            return Err(FtlError::Config {
                key: "overprovisioning",
                value: self.overprovisioning.to_string(),
                expected: "a ratio from 0 to 16".into(),
            });
        }
        // In millionths: 0.07 as a binary fraction must not cost a unit.
        let millionths = 1_000_000 + (self.overprovisioning * 1e6).round() as u128;
        let pages = (u128::from(capacity / PAGE_BYTES) * millionths).div_ceil(1_000_000);
        u64::try_from(pages).map_err(|_| too_large(capacity))
    }

    /// Where everything lies on the store of a device that hosts see `capacity` bytes of.
    pub(super) fn layout(&self, capacity: u64) -> Result<Layout, FtlError> {
        let ftl = self.ftl(capacity)?;
        Ok(Layout::new(capacity, ftl.logical_pages, u64::from(ftl.units) * u64::from(ftl.unit_pages)))
    }

    /// Bytes of the store below such a device, a multiple of [`CHUNK_BYTES`].
    pub(crate) fn store_bytes(&self, capacity: u64) -> Result<u64, SsdError> {
        let layout = self.layout(capacity)?;
        debug_assert!(layout.store_bytes.is_multiple_of(CHUNK_BYTES));
        Ok(layout.store_bytes)
    }
}

fn unit_pages(unit_bytes: u64) -> Result<u32, FtlError> {
    if unit_bytes < UNIT_BYTES_MIN || !unit_bytes.is_multiple_of(PAGE_BYTES) || unit_bytes > 1 << 42 {
        return Err(FtlError::Config {
            key: "unit_bytes",
            value: unit_bytes.to_string(),
            expected: "a multiple of 4096 from 64 KiB to 4 TiB".into(),
        });
    }
    Ok((unit_bytes / PAGE_BYTES) as u32)
}

fn too_large(capacity: u64) -> FtlError {
    FtlError::Config {
        key: "bytes",
        value: capacity.to_string(),
        expected: "fewer pages than a translation layer can map, 2^31".into(),
    }
}
