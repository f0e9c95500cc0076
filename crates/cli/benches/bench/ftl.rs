//! The flash translation layer under the recipes of `unvme sim`.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cores;
use crate::pairs::{Effort, median};
use crate::row::{Better, Row};

pub(crate) const RECIPE_A: &str = "ftl.recipe_a";
pub(crate) const RECIPE_B: &str = "ftl.recipe_b";
pub(crate) const SIM_RATE: &str = "ftl.sim_rate";

/// Runs of the rate, whose median counts.
const RUNS: usize = 5;

/// Write amplification of a full device under the cache's traffic with FDP; the note has it without.
pub(crate) fn recipe_a(effort: &Effort) -> Result<Row> {
    let size: &[&str] = if effort.smoke { &["--size", "512M", "--writes", "3"] } else { &[] };
    let found = sim(&[&["--recipe", "cachelib", "--util", "50,100", "--fdp", "both"], size].concat())?;
    let [half, half_fdp, full, value] = [0, 1, 2, 3].map(|row| number(&found["rows"][row]["plateau"]));
    let note = format!(
        "no FDP: {:.3} at 50 % (1.15 to 1.35), {:.3} at 100 % (3.0 to 3.7) of the device; FDP at 50 % {:.3}; plateau of 20 device writes",
        half?, full?, half_fdp?
    );
    Ok(Row { id: RECIPE_A, value: value?, unit: "x", target: 1.05, better: Better::Lower, note })
}

/// Write amplification of a device that is 80 % full under a tree's traffic with FDP; the note has it
/// without.
pub(crate) fn recipe_b(effort: &Effort) -> Result<Row> {
    let size: &[&str] =
        if effort.smoke { &["--size", "512M", "--file-size", "64K", "--writes", "3"] } else { &[] };
    let found = sim(&[&["--recipe", "rocksdb", "--util", "80", "--fdp", "both"], size].concat())?;
    let [off, value] = [0, 1].map(|row| number(&found["rows"][row]["plateau"]));
    let note =
        format!("no FDP: {:.3} (1.4 to 1.8); 18 % overprovisioning, plateau of 20 device writes", off?);
    Ok(Row { id: RECIPE_B, value: value?, unit: "x", target: 1.02, better: Better::Lower, note })
}

/// Pages programmed per second, the host's and those that reclaim moves, on one core.
pub(crate) fn sim_rate(effort: &Effort) -> Result<Row> {
    let (size, writes) = if effort.smoke { ("512M", "1") } else { ("8G", "8") };
    let args = [
        "--recipe",
        "cachelib",
        "--fdp",
        "off",
        "--threads",
        "1",
        "--clock",
        "--size",
        size,
        "--writes",
        writes,
    ];
    cores::on_first(|core| {
        let runs = if effort.smoke { 1 } else { RUNS };
        let rates: Vec<(f64, f64)> = (0..runs)
            .map(|_| {
                let found = sim(&args)?;
                let clock = &found["rows"][0]["clock"];
                Ok((number(&clock["media_pages_per_second"])?, number(&clock["host_pages_per_second"])?))
            })
            .collect::<Result<_>>()?;
        let (media, host) =
            (median(rates.iter().map(|rate| rate.0)), median(rates.iter().map(|rate| rate.1)));
        let note = format!(
            "pages programmed, by the host and by reclaim; {:.1} M/s by the host; cache recipe without FDP, device of {size} \
             full, {writes} device writes, median of {runs} runs on core {core}",
            host / 1e6
        );
        Ok(Row { id: SIM_RATE, value: media / 1e6, unit: "M/s", target: 15.0, better: Better::Higher, note })
    })
}

fn sim(args: &[&str]) -> Result<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unvme"));
    let output = command.arg("sim").args(args).args(["-o", "json"]).output().context("run unvme sim")?;
    ensure!(output.status.success(), "unvme sim: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("read what unvme sim prints")
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("{value} is no number"))
}
