//! The flash of a virtual device: how it is asked for, and what that means.

use std::io::{self, Write};

use anyhow::Result;
use clap::{Args, ValueEnum};
use unvme::registry::{DeviceSpec, FtlSpec, MediaKind, Overprovisioning, TimingSpec, VictimPolicy};
use unvme::{Error, Size, ftl_geometry};
use unvme_flash::ftl::{FtlConfig, Isolation, theory};
use unvme_ssd::FlashConfig;

use super::NAME_WIDTH;
use crate::count::count;
use crate::exit::usage;
use crate::timing::timing;
use crate::value::{Fields, Value, fields};

/// Flash translation layers that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ftl {
    /// None: logical blocks are where they are
    None,
    /// One that maps pages of 4 KiB
    Page,
}

/// Options of the flash.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flash")]
pub(super) struct FlashArgs {
    /// Flash translation layer; page when another option of the flash is there, else none
    #[arg(long, value_name = "FTL")]
    ftl: Option<Ftl>,
    /// Overprovisioning: physical capacity beyond what hosts see, such as 18% or 0.18 [default: 18%]
    #[arg(long, value_name = "SHARE")]
    op: Option<Overprovisioning>,
    /// Size of a reclaim unit; 8M when left out, less on devices below 8G
    #[arg(long, value_name = "SIZE")]
    ru_size: Option<Size>,
    /// Reclaim groups [default: 1]
    #[arg(long, value_name = "COUNT")]
    groups: Option<u16>,
    /// Reclaim unit handles [default: 8]
    #[arg(long, value_name = "COUNT")]
    handles: Option<u16>,
    /// Which reclaim unit is reclaimed next: greedy, cost-benefit, fifo, d-choice or d-choice:NUMBER
    /// [default: greedy]
    #[arg(long, value_name = "POLICY")]
    policy: Option<VictimPolicy>,
    /// Enable Flexible Data Placement, with this configuration of `unvme fdp configs`, 0 when left out
    #[arg(long, value_name = "INDEX", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    fdp: Option<u8>,
    /// How long the flash takes: none, dram, optane, tlc or qlc, with parameters such as
    /// tlc,dies=64,prog=700us, or @FILE with a line for each
    #[arg(long, value_name = "TIMING", default_value = "none", value_parser = timing)]
    pub(super) timing: TimingSpec,
}

impl FlashArgs {
    /// The translation layer that was asked for, on a device of `capacity`.
    pub(super) fn ftl(&self, capacity: Size) -> Result<Option<FtlSpec>> {
        let Self { op, ru_size, groups, handles, policy, fdp, .. } = self;
        let asked = [op.is_some(), ru_size.is_some(), groups.is_some(), handles.is_some(), policy.is_some()];
        let asked = asked.contains(&true) || fdp.is_some();
        match self.ftl {
            Some(Ftl::None) if asked => {
                return Err(usage(
                    "--ftl none: the other options ask for a translation layer, expected page",
                ));
            }
            Some(Ftl::None) => return Ok(None),
            None if !asked => return Ok(None),
            _ => {}
        }
        let mut spec = FtlSpec::new(capacity);
        spec.overprovisioning = op.unwrap_or(spec.overprovisioning);
        spec.unit_bytes = ru_size.map_or(spec.unit_bytes, |size| size.0);
        spec.groups = groups.unwrap_or(spec.groups);
        spec.handles = handles.unwrap_or(spec.handles);
        spec.policy = policy.unwrap_or(spec.policy);
        spec.fdp = *fdp;
        Ok(Some(spec))
    }
}

/// The translation layer as the device runs it.
fn layer(ftl: &FtlSpec, spec: &DeviceSpec) -> Result<FtlConfig, String> {
    let config = ftl_geometry(ftl, Size(spec.capacity_bytes))?;
    Ok(if spec.media == MediaKind::File { FlashConfig::pooled(config) } else { config })
}

/// What a translation layer is and means, for JSON.
pub(super) fn fields(ftl: &FtlSpec, spec: &DeviceSpec) -> Result<Fields, Error> {
    let config = layer(ftl, spec).map_err(|e| Error::Argument(format!("`ftl`: {e}")))?;
    let effective = config.effective_overprovisioning();
    Ok(fields! {
        "type": ftl.kind.name(), "overprovisioning": Value::Ratio(ftl.overprovisioning.ratio()),
        "units": config.units, "unit_bytes": ftl.unit_bytes,
        "physical_bytes": u64::from(config.units) * ftl.unit_bytes, "groups": ftl.groups,
        "handles": ftl.handles, "policy": ftl.policy.to_string(), "reserve_units": config.reserve_units(),
        "pool_units": config.pool_units,
        "effective_overprovisioning": Value::Ratio(effective),
        "uniform_write_amplification": Value::Ratio(theory::write_amplification(effective)),
        "fdp_configuration": ftl.fdp,
    })
}

/// What a translation layer is and means, for people.
pub(super) fn write(out: &mut dyn Write, spec: &DeviceSpec) -> io::Result<()> {
    let Some(ftl) = &spec.ftl else { return Ok(()) };
    let capacity = Size(spec.capacity_bytes);
    let mut line = |name: &str, text: String| writeln!(out, "{name:NAME_WIDTH$}: {text}");
    let config = match layer(ftl, spec) {
        Ok(config) => config,
        Err(reason) => return line("flash", reason),
    };
    let (units, unit, reserve) = (config.units, Size(ftl.unit_bytes), config.reserve_units());
    let groups = count(u32::from(ftl.groups), "group");
    line(
        "flash",
        format!(
            "{units} reclaim units of {unit} in {groups}: {:.1}% beyond the {capacity} that hosts see; {}",
            config.overprovisioning() * 100.0,
            ftl.policy
        ),
    )?;
    line("reserve", format!("{} in use at any time: {}", count(reserve, "unit"), reserved(&config)))?;
    if config.pool_units > 0 {
        let more = count(config.pool_units, "unit");
        line("pool", format!("{more} more kept free, so that one sync of the file makes several ready"))?;
    }
    let effective = config.effective_overprovisioning();
    line(
        "reclaim",
        format!(
            "{:.1}% left to work with; random writes to all of it are written {:.2} times in theory",
            effective * 100.0,
            theory::write_amplification(effective)
        ),
    )?;
    match ftl.fdp {
        Some(index) => line("fdp", format!("enabled when new, configuration {index}")),
        None => line("fdp", "disabled when new".into()),
    }
}

/// What the units of the reserve are for.
fn reserved(config: &FtlConfig) -> String {
    let open = config.handles.len() as u32;
    let own = config.handles.iter().filter(|&&handle| handle == Isolation::Persistently).count() as u32;
    // Initially isolated handles share a destination of reclaim.
    let destinations = own + u32::from(own < open);
    let free = (config.reserve_units() / u32::from(config.groups)).saturating_sub(open + destinations);
    let each = match config.groups {
        1 => String::new(),
        groups => format!(" in each of {groups} groups"),
    };
    format!("{open} open for handles, {destinations} for what reclaim moves, {free} free{each}")
}
