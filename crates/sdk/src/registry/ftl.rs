//! What a virtual device is made of below its logical blocks: the flash translation layer and its reclaim
//! units.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use unvme_flash::ftl::VictimPolicy;

use crate::Size;

/// A reclaim unit is a multiple of this: one page.
pub const UNIT_STEP: Size = Size(4 << 10);
/// Smallest reclaim unit.
pub const UNIT_MIN: Size = Size(64 << 10);
/// Largest reclaim unit.
pub const UNIT_MAX: Size = Size(16 << 30);
/// Reclaim unit of a large device that was not given one. Smaller devices have smaller ones, see
/// [`FtlSpec::new`].
pub const UNIT_DEFAULT: Size = Size(8 << 20);
/// Reclaim units that a device gets at least when their size is not given: with fewer of them, write
/// amplification depends on their number.
const UNITS_WANTED: u64 = 1024;
/// Reclaim groups that a device can have.
pub const GROUPS_MAX: u16 = 64;
/// Reclaim unit handles that a device can have: what a namespace's list of placement handles can name.
pub const HANDLES_MAX: u16 = 128;

/// Which flash translation layer a device has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FtlKind {
    /// One that maps pages of 4 KiB.
    #[default]
    Page,
}

impl FtlKind {
    /// Its name in `device.json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
        }
    }
}

/// Physical capacity beyond what hosts see, as a share of what hosts see. Parses `18%`, `7.5%` and `0.18`;
/// exact to a millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Overprovisioning(u32);

impl Overprovisioning {
    /// 18 %, what drives for servers have.
    pub const DEFAULT: Self = Self(180_000);
    /// The least, 0.1 %.
    pub const MIN: Self = Self(1_000);
    /// The most, 400 %.
    pub const MAX: Self = Self(4_000_000);

    /// The share in millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }

    /// The share as a number, such as 0.18.
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / 1e6
    }
}

impl Default for Overprovisioning {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TryFrom<f64> for Overprovisioning {
    type Error = String;

    fn try_from(ratio: f64) -> Result<Self, String> {
        let millionths = (ratio * 1e6).round();
        let (min, max) = (f64::from(Self::MIN.0), f64::from(Self::MAX.0));
        if (min..=max).contains(&millionths) {
            // In range, and whole: the conversion is exact.
            return Ok(Self(millionths as u32));
        }
        Err(format!("overprovisioning is 0.1% to 400% (0.001 to 4), not {ratio}"))
    }
}

impl From<Overprovisioning> for f64 {
    fn from(share: Overprovisioning) -> Self {
        share.ratio()
    }
}

impl FromStr for Overprovisioning {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, divisor) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
        let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        match number.parse::<f64>() {
            Ok(number) if plain => Self::try_from(number / divisor)
                .map_err(|_| format!("overprovisioning is 0.1% to 400% (0.001 to 4), not {text}")),
            _ => Err(format!("`{text}` is no share, expected one such as 18% or 0.18")),
        }
    }
}

impl fmt::Display for Overprovisioning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000, self.0 % 10_000);
        let fraction = format!("{rest:04}");
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        f.pad(&format!("{whole}{point}{fraction}%"))
    }
}

/// The flash translation layer of a virtual device, and the flash below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FtlSpec {
    /// Which one.
    #[serde(rename = "type", default)]
    pub kind: FtlKind,
    /// Physical capacity beyond what hosts see.
    #[serde(default)]
    pub overprovisioning: Overprovisioning,
    /// Bytes of a reclaim unit: [`UNIT_MIN`] to [`UNIT_MAX`] in steps of [`UNIT_STEP`].
    pub unit_bytes: u64,
    /// Reclaim groups, 1 to [`GROUPS_MAX`].
    #[serde(default = "groups_default")]
    pub groups: u16,
    /// Reclaim unit handles, 1 to [`HANDLES_MAX`].
    #[serde(default = "handles_default")]
    pub handles: u16,
    /// Which reclaim unit is reclaimed next.
    #[serde(default)]
    pub policy: VictimPolicy,
    /// Index of the FDP configuration that is enabled when the device is new; `None` leaves FDP disabled.
    /// Hosts change it with the feature Flexible Data Placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fdp: Option<u8>,
}

impl FtlSpec {
    /// A translation layer with the defaults for a device of `capacity`: 18 % of overprovisioning, one group,
    /// eight handles, and reclaim units of [`UNIT_DEFAULT`], or smaller so that there are about a thousand of
    /// them.
    pub fn new(capacity: Size) -> Self {
        let wanted = (capacity.0 / UNITS_WANTED).max(1);
        let unit_bytes = (1_u64 << wanted.ilog2()).clamp(UNIT_MIN.0, UNIT_DEFAULT.0);
        Self {
            kind: FtlKind::Page,
            overprovisioning: Overprovisioning::DEFAULT,
            unit_bytes,
            groups: groups_default(),
            handles: handles_default(),
            policy: VictimPolicy::Greedy,
            fdp: None,
        }
    }

    /// Checks everything for a device of `capacity_bytes`. Errors: what is wrong, and what would work.
    pub(super) fn check(&self, capacity_bytes: u64) -> Result<(), String> {
        self.check_bounds()?;
        #[cfg(feature = "local")]
        crate::flash::ftl_geometry(self, Size(capacity_bytes))?;
        #[cfg(not(feature = "local"))]
        let _ = capacity_bytes; // Who has no virtual SSD cannot open what does not fit.
        Ok(())
    }

    /// Bounds of each value by itself.
    fn check_bounds(&self) -> Result<(), String> {
        let unit = Size(self.unit_bytes);
        if !(UNIT_MIN..=UNIT_MAX).contains(&unit) || !unit.0.is_multiple_of(UNIT_STEP.0) {
            return Err(format!(
                "a reclaim unit (unit_bytes) has {UNIT_MIN} to {UNIT_MAX} in steps of {UNIT_STEP}, not {unit}"
            ));
        }
        if !(1..=GROUPS_MAX).contains(&self.groups) {
            return Err(format!(
                "a device has 1 to {GROUPS_MAX} reclaim groups (groups), not {}",
                self.groups
            ));
        }
        if !(1..=HANDLES_MAX).contains(&self.handles) {
            let handles = self.handles;
            return Err(format!(
                "a device has 1 to {HANDLES_MAX} reclaim unit handles (handles), not {handles}"
            ));
        }
        Ok(())
    }
}

const fn groups_default() -> u16 {
    1
}

const fn handles_default() -> u16 {
    8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_parse_and_display_exactly() {
        for (text, millionths, shown) in [
            ("18%", 180_000, "18%"),
            ("0.18", 180_000, "18%"),
            ("7.5%", 75_000, "7.5%"),
            ("0.1%", 1_000, "0.1%"),
            ("12.3456%", 123_456, "12.3456%"),
            ("28.05%", 280_500, "28.05%"),
            ("100%", 1_000_000, "100%"),
            ("4", 4_000_000, "400%"),
        ] {
            let share: Overprovisioning = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!((share.millionths(), share.to_string().as_str()), (millionths, shown), "{text}");
            assert_eq!(shown.parse(), Ok(share));
        }
        for text in ["", "%", "-1%", "+1%", "1e3%", "inf", "nan", "ten", "18 %", "1.2.3"] {
            let error = text.parse::<Overprovisioning>().expect_err(text);
            assert!(error.contains("is no share, expected one such as 18% or 0.18"), "{text}: {error}");
        }
        for text in ["0", "0%", "0.01%", "400.1%", "18"] {
            let error = text.parse::<Overprovisioning>().expect_err(text);
            assert!(error.ends_with(&format!("is 0.1% to 400% (0.001 to 4), not {text}")), "{text}: {error}");
        }
    }

    #[test]
    fn every_name_is_that_of_its_value() {
        for name in ["greedy", "cost-benefit", "fifo", "d-choice:1", "d-choice:255"] {
            let policy: VictimPolicy = name.parse().expect(name);
            assert_eq!(
                (policy.to_string().as_str(), serde_json::to_value(policy).expect("JSON")),
                (name, name.into())
            );
        }
        assert_eq!("d-choice".parse(), Ok(VictimPolicy::DChoice(8)));
        for name in ["lru", "", "d-choice:", "d-choice:0", "d-choice:256", "d-choice:x", "Greedy"] {
            let error = name.parse::<VictimPolicy>().expect_err(name);
            assert!(error.starts_with("expected greedy, cost-benefit, fifo, d-choice"), "{name}: {error}");
            assert!(error.ends_with(&format!("not `{name}`")), "{name}: {error}");
        }
    }

    #[test]
    fn small_devices_get_small_reclaim_units() {
        for (capacity, unit) in
            [("2M", "64K"), ("64M", "64K"), ("1G", "1M"), ("1536M", "1M"), ("8G", "8M"), ("1T", "8M")]
        {
            let size: Size = capacity.parse().expect("a size");
            assert_eq!(Size(FtlSpec::new(size).unit_bytes).to_string(), unit, "{capacity}");
        }
    }
}
