//! From the description of a flash translation layer to the layer.

use unvme_flash::ftl::{FtlConfig, FtlError, Isolation};
use unvme_ssd::{FlashConfig, FlashGeometry, SsdConfig, UNIT_BYTES_MIN};

use crate::Size;
use crate::registry::{FtlSpec, Overprovisioning, UNIT_MIN};

const _: () = assert!(UNIT_MIN.0 == UNIT_BYTES_MIN);

/// Steps in which the least overprovisioning that works is told, in millionths: 0.1 %.
const SHARE_STEP: usize = 1_000;

/// The virtual SSD's side of a description.
pub(crate) fn flash_config(ftl: &FtlSpec) -> FlashConfig {
    FlashConfig {
        geometry: FlashGeometry {
            unit_bytes: ftl.unit_bytes,
            groups: ftl.groups,
            handles: vec![Isolation::Initially; ftl.handles.into()],
        },
        overprovisioning: ftl.overprovisioning.ratio(),
        policy: ftl.policy,
        ..FlashConfig::default()
    }
}

/// The translation layer of a new device that hosts see `capacity` of: its units, its reserve and what both
/// leave.
///
/// # Errors
/// What is impossible about it, and the least or most that works.
pub fn ftl_geometry(ftl: &FtlSpec, capacity: Size) -> Result<FtlConfig, String> {
    match layer(ftl, capacity) {
        Ok(config) => Ok(config),
        // A configuration of FDP that is there may not fit, too.
        Err(e @ FtlError::Config { key: "units" | "fdp", .. }) => {
            Err(too_small(ftl, capacity).unwrap_or_else(|| e.to_string()))
        }
        Err(e) => Err(e.to_string()),
    }
}

fn layer(ftl: &FtlSpec, capacity: Size) -> Result<FtlConfig, FtlError> {
    let flash = flash_config(ftl);
    let without_fdp = flash.ftl(capacity.0)?;
    let config = SsdConfig { flash: Some(flash), fdp: ftl.fdp, ..SsdConfig::block(capacity.0, 4096) };
    Ok(config.ftl()?.unwrap_or(without_fdp))
}

/// That there are too few units, the least overprovisioning and the largest unit that work instead; `None`
/// when neither does.
fn too_small(ftl: &FtlSpec, capacity: Size) -> Option<String> {
    let works = |ftl: &FtlSpec| layer(ftl, capacity).is_ok();
    let asked = ftl.overprovisioning.millionths();
    let shares = asked.next_multiple_of(SHARE_STEP as u32)..=Overprovisioning::MAX.millionths();
    let share = shares
        .step_by(SHARE_STEP)
        .filter_map(|millionths| Overprovisioning::try_from(f64::from(millionths) / 1e6).ok())
        .find(|&overprovisioning| works(&FtlSpec { overprovisioning, ..*ftl }));
    let unit = std::iter::successors(Some(1_u64 << ftl.unit_bytes.ilog2()), |unit| Some(unit / 2))
        .take_while(|&unit| unit >= UNIT_MIN.0)
        .find(|&unit_bytes| works(&FtlSpec { unit_bytes, ..*ftl }));
    let mut remedies: Vec<String> = Vec::new();
    remedies.extend(share.map(|share| format!("overprovisioning of at least {share}")));
    remedies.extend(unit.map(|unit| format!("reclaim units of at most {}", Size(unit))));
    if remedies.is_empty() {
        return None;
    }
    remedies.push("fewer handles or groups".into());
    let counted = |count: u16, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (handles, groups) = (ftl.handles, ftl.groups);
    Some(format!(
        "{} of {capacity} in reclaim units of {} is too little for the units that are open or free at any time with {} and {}; expected {}",
        ftl.overprovisioning,
        Size(ftl.unit_bytes),
        counted(handles, "handle"),
        counted(groups, "group"),
        remedies.join(", or "),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(unit: u64, share: &str, groups: u16, handles: u16) -> FtlSpec {
        let overprovisioning = share.parse().expect("a share");
        let unit_bytes = unit;
        FtlSpec { overprovisioning, unit_bytes, groups, handles, fdp: Some(0), ..FtlSpec::new(Size(1 << 30)) }
    }

    #[test]
    fn physical_units_hold_what_hosts_see_and_the_overprovisioning() {
        let config = ftl_geometry(&spec(8 << 20, "18%", 1, 8), Size(8 << 30)).expect("possible");
        // 1024 units of logical pages, and 18 % of them: 184.32.
        assert_eq!((config.logical_pages, config.unit_pages, config.units), (2_097_152, 2048, 1209));
        assert_eq!(config.handles.len(), 8);
        let config = ftl_geometry(&spec(8 << 20, "18%", 4, 8), Size(8 << 30)).expect("possible");
        assert_eq!(config.units, 1212, "the groups have as many units each");
        let off = FtlSpec { fdp: None, ..spec(8 << 20, "18%", 1, 8) };
        assert_eq!(ftl_geometry(&off, Size(8 << 30)).expect("possible").handles.len(), 8);
    }

    #[test]
    fn too_little_overprovisioning_names_the_least_that_works() {
        // 8 of 8 MiB for 64 MiB, and 18 % of them: 10 units, of which 8 + 1 + 2 are open or free.
        let message = ftl_geometry(&spec(8 << 20, "18%", 1, 8), Size(64 << 20)).expect_err("too small");
        assert_eq!(
            message,
            "18% of 64M in reclaim units of 8M is too little for the units that are open or free at any time with 8 handles and 1 group; expected overprovisioning of at least 137.6%, or reclaim units of at most 1M, or fewer handles or groups"
        );
        ftl_geometry(&spec(8 << 20, "137.6%", 1, 8), Size(64 << 20)).expect("the least that works");
        ftl_geometry(&spec(8 << 20, "137.5%", 1, 8), Size(64 << 20)).expect_err("a little less");
        ftl_geometry(&spec(1 << 20, "18%", 1, 8), Size(64 << 20)).expect("the largest that works");
        ftl_geometry(&spec(2 << 20, "18%", 1, 8), Size(64 << 20)).expect_err("twice that");
    }

    #[test]
    fn a_configuration_that_does_not_fit_names_the_least_that_works() {
        // Persistently isolated: 8 + 8 + 2 units are open or free, 18 % of 64 MiB in units of 1 MiB are 12.
        let isolated = FtlSpec { fdp: Some(1), ..spec(1 << 20, "18%", 1, 8) };
        let message = ftl_geometry(&isolated, Size(64 << 20)).expect_err("too small");
        assert!(
            message.contains("expected overprovisioning of at least 28.2%, or reclaim units of at most 512K"),
            "{message}"
        );
        let none = FtlSpec { fdp: Some(99), ..isolated };
        let message = ftl_geometry(&none, Size(64 << 20)).expect_err("no such configuration");
        assert!(message.starts_with("fdp: 99 is not possible"), "{message}");
    }

    #[test]
    fn what_no_overprovisioning_helps_says_so() {
        let message = ftl_geometry(&spec(64 << 10, "18%", 64, 128), Size(2 << 20)).expect_err("too small");
        assert!(message.starts_with("units: 64 is not possible, expected at least "), "{message}");
        let message = ftl_geometry(&spec(8 << 20, "18%", 1, 8), Size(8 << 40)).expect_err("too large");
        assert!(message.contains("at most 2147483646 pages"), "{message}");
    }
}
