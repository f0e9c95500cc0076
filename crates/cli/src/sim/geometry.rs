//! From what was typed about the device to a configuration of the flash translation layer.

use anyhow::Result;
use unvme::registry::{Overprovisioning, UNIT_MAX, UNIT_MIN};
use unvme_flash::PAGE_BYTES;
use unvme_flash::ftl::{FtlConfig, Isolation};

use super::args::{IsolationKind, Sim};
use crate::exit::usage;

/// Units of a device whose units were not given a size: with fewer of them write amplification depends on
/// their number.
const UNITS: u64 = 1024;
/// Most flash: what 31-bit page numbers reach, rounded down.
const SIZE_MAX: u64 = 4 << 40;

/// The flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) units: u32,
    pub(super) unit_pages: u32,
}

impl Geometry {
    /// The flash that was asked for, or else of `default_size`. Errors: a usage error that names the option
    /// and says what works.
    pub(super) fn new(args: &Sim, default_size: u64) -> Result<Self> {
        let size = args.size.unwrap_or(default_size);
        let refuse = |option: &str, value: u64, expected: String| {
            Err(usage(format!("{option}: {value} bytes are not possible, expected {expected}")))
        };
        let unit = match args.ru_size {
            Some(unit) if !(UNIT_MIN.0..=UNIT_MAX.0).contains(&unit) || !unit.is_multiple_of(PAGE_BYTES) => {
                return refuse("--ru-size", unit, format!("a multiple of 4K from {UNIT_MIN} to {UNIT_MAX}"));
            }
            Some(unit) => unit,
            None => (size / UNITS).next_multiple_of(PAGE_BYTES).clamp(UNIT_MIN.0, UNIT_MAX.0),
        };
        if size < unit || size >= SIZE_MAX {
            return refuse("--size", size, format!("at least one reclaim unit of {unit}, and less than 4T"));
        }
        let step = unit * u64::from(args.groups);
        if !size.is_multiple_of(step) {
            let below = (size / step * step).max(step);
            let expected = format!(
                "a multiple of {step}, the reclaim unit times the {} reclaim groups, such as {below}",
                args.groups
            );
            return refuse("--size", size, expected);
        }
        // Below 4 TiB, and units of 64 KiB at least: both fit.
        Ok(Self { units: (size / unit) as u32, unit_pages: (unit / PAGE_BYTES) as u32 })
    }

    pub(super) fn pages(self) -> u64 {
        u64::from(self.units) * u64::from(self.unit_pages)
    }

    /// The translation layer, for so many handles. Errors: a usage error; when there is too little
    /// overprovisioning it says how much is enough.
    pub(super) fn layer(self, args: &Sim, handles: u16) -> Result<FtlConfig> {
        let config = self.with(args, handles, args.op.ratio());
        let Err(error) = config.check() else { return Ok(config) };
        let first = args.op.millionths() / 1_000 + 1;
        let last = Overprovisioning::MAX.millionths() / 1_000;
        let works = (first..=last).map(|tenth| f64::from(tenth) / 1e3);
        let least = works.into_iter().find(|&op| self.with(args, handles, op).check().is_ok());
        Err(usage(match least {
            Some(op) => format!(
                "--op: {} is too little for {} reclaim units of which {} are open or free at any time; the least that works is {:.1}%",
                args.op,
                self.units,
                config.reserve_units(),
                op * 100.0
            ),
            None if self.units <= config.needed_units() => format!(
                "--size: {} reclaim units are too few, {} are open or free at any time; make the flash larger or --ru-size smaller",
                self.units,
                config.reserve_units()
            ),
            None => error.to_string(),
        }))
    }

    fn with(self, args: &Sim, handles: u16, overprovisioning: f64) -> FtlConfig {
        let logical = FtlConfig::logical_pages_of(self.units, self.unit_pages, overprovisioning);
        let isolation = match args.isolation {
            IsolationKind::Initially => Isolation::Initially,
            IsolationKind::Persistently => Isolation::Persistently,
        };
        FtlConfig {
            groups: args.groups,
            handles: vec![isolation; handles.into()],
            policy: args.policy,
            seed: args.seed,
            ..FtlConfig::simple(logical, self.units, self.unit_pages)
        }
    }
}
