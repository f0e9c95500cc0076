//! What configurations a device offers (log page 20h, Base 5.1.12.1.28).
//!
//! All of them share the physical pages of the device and the pages that hosts see. Their order never
//! changes: a host may remember an index.
//!
//! | index | reclaim unit handles | reclaim units | |
//! |---|---|---|---|
//! | 0 | initially isolated | as configured | |
//! | 1 | persistently isolated | as configured | |
//! | 2 | the first half initially, the rest persistently isolated | as configured | |
//! | 3 | initially isolated | a quarter | |
//! | 4 | initially isolated | four times as large | |
//! | 5 | initially isolated | as configured | open for a day at most |
//! | 6 | initially isolated | as configured | in four times as many reclaim groups |

use unvme_flash::ftl::{FtlConfig, FtlError, Isolation};
use unvme_spec::fdp::{
    Configuration as Layout, ConfigurationDescriptor, ConfigurationsHeader, Fdpa, RUH_MAX, Rgif,
    RuhDescriptor, RuhType, write_configurations,
};

use crate::SsdConfig;
use crate::flash::{FlashConfig, FlashGeometry};
use crate::limits::NAMESPACES_MAX;

/// Seconds a reclaim unit may stay open in the configuration that has a limit: blocks that are written in
/// part lose charge.
const TIME_LIMIT_S: u32 = 24 * 60 * 60;
/// How much smaller and larger the other reclaim units are, and how many more groups there are.
const FACTOR: u16 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    /// How it divides the flash.
    pub(crate) geometry: FlashGeometry,
    /// Estimated Reclaim Unit Time Limit in seconds; 0 when there is none.
    pub(crate) time_limit_s: u32,
    /// There is room for it on the device.
    pub(crate) is_valid: bool,
}

/// The configurations of a device that hosts see `capacity` bytes of.
pub(crate) fn offered(flash: &FlashConfig, capacity: u64) -> Vec<Configuration> {
    use Isolation::{Initially, Persistently};
    let base = &flash.geometry;
    let count = base.handles.len();
    let half = count.div_ceil(2);
    let mixed = (0..count).map(|handle| if handle < half { Initially } else { Persistently }).collect();
    let initially = FlashGeometry { handles: vec![Initially; count], ..base.clone() };
    let persistently = FlashGeometry { handles: vec![Persistently; count], ..base.clone() };
    let with_units = |unit_bytes| FlashGeometry { unit_bytes, ..initially.clone() };
    let factor = u64::from(FACTOR);
    let groups = base.groups.saturating_mul(FACTOR);
    let offer = |geometry: FlashGeometry, time_limit_s| Configuration {
        is_valid: flash.ftl_with(capacity, &geometry).is_ok() && can_be_named(&geometry),
        geometry,
        time_limit_s,
    };
    vec![
        offer(initially.clone(), 0),
        offer(persistently, 0),
        offer(FlashGeometry { handles: mixed, ..base.clone() }, 0),
        offer(with_units(base.unit_bytes / factor), 0),
        offer(with_units(base.unit_bytes.saturating_mul(factor)), 0),
        offer(initially.clone(), TIME_LIMIT_S),
        offer(FlashGeometry { groups, ..initially }, 0),
    ]
}

/// Every handle and group has a placement identifier, and a namespace with all of them a status that counts
/// them.
fn can_be_named(geometry: &FlashGeometry) -> bool {
    let handles = geometry.handles.len();
    let bits = Rgif::for_groups(geometry.groups.into()).map_or(16, |rgif| u32::from(rgif.bits()));
    handles <= RUH_MAX
        && handles <= 1 << (16 - bits)
        && handles * usize::from(geometry.groups) <= usize::from(u16::MAX)
}

/// The geometry of a new device: with configuration `fdp` enabled, or with FDP disabled. `None` when there is
/// no such configuration, or no room for it.
fn geometry_when_new(flash: &FlashConfig, capacity: u64, fdp: Option<u8>) -> Option<FlashGeometry> {
    match fdp {
        None => Some(flash.geometry.clone()),
        Some(index) => offered(flash, capacity)
            .into_iter()
            .nth(index.into())
            .filter(|chosen| chosen.is_valid)
            .map(|chosen| chosen.geometry),
    }
}

impl SsdConfig {
    /// The translation layer of such a device on its first day, with the configuration enabled that
    /// [`SsdConfig::fdp`] names. `None` without flash. Errors: [`FtlError::Config`] naming what is
    /// impossible, and what works.
    pub fn ftl(&self) -> Result<Option<FtlConfig>, FtlError> {
        let Some(flash) = &self.flash else { return Ok(None) };
        let geometry = geometry_when_new(flash, self.bytes, self.fdp).ok_or_else(|| {
            let value = self.fdp.map_or_else(String::new, |index| index.to_string());
            FtlError::Config { key: "fdp", value, expected: "a configuration of log page 20h".into() }
        })?;
        flash.ftl_with(self.bytes, &geometry).map(Some)
    }
}

impl Configuration {
    /// How many bits of a placement identifier are the reclaim group.
    pub(crate) fn rgif(&self) -> Rgif {
        // There are fewer groups than a 16-bit number can tell apart.
        Rgif::for_groups(self.geometry.groups.into()).unwrap_or_default()
    }

    /// Reclaim unit handles.
    pub(crate) fn handles(&self) -> u16 {
        self.geometry.handles.len() as u16
    }

    /// Placement identifiers a namespace can have, and the most an update can list.
    pub(crate) fn placement_ids_max(&self) -> u32 {
        (u32::from(self.geometry.groups) * u32::from(self.handles())).clamp(1, 1 << 16)
    }

    fn descriptor(&self) -> ConfigurationDescriptor {
        let mut descriptor = ConfigurationDescriptor::default();
        descriptor.fdpa = Fdpa::new()
            .with_rgif(self.rgif().bits())
            .with_volatile_write_cache(true)
            .with_valid(self.is_valid);
        descriptor.nrg = self.geometry.groups.into();
        descriptor.maxpids_z = (self.placement_ids_max() - 1) as u16;
        descriptor.nnss = NAMESPACES_MAX;
        descriptor.runs = self.geometry.unit_bytes;
        descriptor.erutl = self.time_limit_s;
        descriptor
    }
}

/// Log page 20h; `None` when it cannot be written down, which the bounds of a configuration rule out.
pub(crate) fn log_page(configurations: &[Configuration]) -> Option<Vec<u8>> {
    let handles: Vec<Vec<RuhDescriptor>> = configurations
        .iter()
        .map(|configuration| {
            configuration
                .geometry
                .handles
                .iter()
                .map(|&handle| RuhDescriptor::new(ruh_type(handle)))
                .collect()
        })
        .collect();
    let layouts: Vec<Layout<'_>> = configurations
        .iter()
        .zip(&handles)
        .map(|(configuration, handles)| Layout { descriptor: configuration.descriptor(), handles })
        .collect();
    let bytes = layouts.iter().try_fold(size_of::<ConfigurationsHeader>(), |sum, layout| {
        layout.bytes().map(|bytes| sum + usize::from(bytes))
    })?;
    let mut page = vec![0; bytes];
    write_configurations(&layouts, &mut page)?;
    Some(page)
}

fn ruh_type(isolation: Isolation) -> RuhType {
    match isolation {
        Isolation::Initially => RuhType::INITIALLY_ISOLATED,
        Isolation::Persistently => RuhType::PERSISTENTLY_ISOLATED,
    }
}
