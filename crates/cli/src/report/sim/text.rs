//! The tables that the terminal gets.

use crate::count::count;
use std::io::{self, Write};

use super::super::scale::{bytes, micros, thousands};
use super::model::{Row, Simulation, percent};

/// Writes everything. Errors: what `out` returns.
pub(crate) fn write(simulation: &Simulation, out: &mut impl Write) -> io::Result<()> {
    heading(simulation, out)?;
    writeln!(out)?;
    amplification(simulation, out)?;
    writeln!(out)?;
    handles(simulation, out)?;
    latencies(simulation, out)?;
    notes(simulation, out)?;
    clocks(simulation, out)
}

fn heading(simulation: &Simulation, out: &mut impl Write) -> io::Result<()> {
    let device = &simulation.device;
    writeln!(out, "Workload  {}", simulation.workload.title)?;
    for line in wrapped(&simulation.workload.parameters.iter().map(shown).collect::<Vec<_>>()) {
        writeln!(out, "          {line}")?;
    }
    let begun = if simulation.workload.prefilled { "with every page in use written once" } else { "empty" };
    writeln!(out, "          the device is {begun} at first")?;
    writeln!(
        out,
        "Device    {} of flash in {} reclaim units of {}, {} exported; {}, {}",
        bytes(device.physical_bytes),
        device.units,
        bytes(device.unit_bytes),
        bytes(device.exported_bytes),
        super::groups(device),
        device.policy
    )?;
    writeln!(
        out,
        "          overprovisioning {} % as sold; {}",
        percent_2(device.overprovisioning),
        effective(simulation)
    )?;
    if device.timing != "none" {
        writeln!(out, "          timing {}", device.timing)?;
    }
    Ok(())
}

/// What the reserve leaves of the overprovisioning, with FDP and without.
fn effective(simulation: &Simulation) -> String {
    let mut seen = Vec::new();
    for row in &simulation.rows {
        let fdp = if row.fdp { "with FDP" } else { "without FDP" };
        let text = format!(
            "{} % after a reserve of {} {fdp}",
            percent_2(row.overprovisioning_effective),
            count(row.reserve_units, "unit")
        );
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen.join(", ")
}

fn amplification(simulation: &Simulation, out: &mut impl Write) -> io::Result<()> {
    let theory = simulation.rows.iter().any(|row| row.theory.is_some());
    let published = simulation.rows.iter().any(|row| row.published.is_some());
    write!(
        out,
        "{:>6} {:>7} {:<4} {:<71} {:>8}",
        "util", "mapped", "FDP", "  WAF in each twelfth of the run", "plateau"
    )?;
    write!(
        out,
        "{}{}",
        if theory { "        theory" } else { "" },
        if published { "  published" } else { "" }
    )?;
    writeln!(out)?;
    for row in &simulation.rows {
        write!(out, "{:>5}% {:>6}% {:<4}", percent(row.util), row.mapped(), on_off(row))?;
        for waf in &row.twelfths {
            write!(out, " {waf:>5.2}")?;
        }
        write!(out, " {:>8.3}", row.plateau)?;
        if theory {
            write!(out, " {:>13}", super::theory(row))?;
        }
        if let Some(published) = &row.published {
            write!(out, "  {}", published.value)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn handles(simulation: &Simulation, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:>6} {:>7} {:<4} {:>6} {:<24} {:>15} {:>15} {:>12}",
        "util", "mapped", "FDP", "handle", "stream", "host pages", "moved pages", "erased units"
    )?;
    for row in &simulation.rows {
        for handle in &row.handles {
            writeln!(
                out,
                "{:>5}% {:>6}% {:<4} {:>6} {:<24} {:>15} {:>15} {:>12}",
                percent(row.util),
                row.mapped(),
                on_off(row),
                super::number_of(handle),
                handle.stream,
                thousands(handle.host_pages as f64),
                thousands(handle.moved_pages as f64),
                thousands(handle.erased_units as f64)
            )?;
        }
    }
    Ok(())
}

fn latencies(simulation: &Simulation, out: &mut impl Write) -> io::Result<()> {
    let mut rows = simulation.rows.iter().filter_map(|row| Some((row, row.latency?))).peekable();
    if let Some((_, latency)) = rows.peek() {
        writeln!(out, "\nLatency of writes of 4 KiB at depth {}, in virtual time", latency.depth)?;
        let [average, p50, p99, p999, p9999, max] = ["average", "p50", "p99", "p99.9", "p99.99", "max"];
        writeln!(
            out,
            "{:>6} {:>7} {:<4} {:>10} {average:>10} {p50:>10} {p99:>10} {p999:>10} {p9999:>10} {max:>10}",
            "util", "mapped", "FDP", "lasts"
        )?;
    }
    for (row, latency) in rows {
        let lasts = row.samples.last().and_then(|last| last.seconds).map_or_else(String::new, super::span);
        write!(out, "{:>5}% {:>6}% {:<4} {lasts:>10}", percent(row.util), row.mapped(), on_off(row))?;
        for us in [
            latency.mean_us,
            latency.p50_us,
            latency.p99_us,
            latency.p99_9_us,
            latency.p99_99_us,
            latency.max_us,
        ] {
            write!(out, " {:>10}", micros(us))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn notes(simulation: &Simulation, out: &mut impl Write) -> io::Result<()> {
    let notes = super::notes(simulation);
    if !notes.is_empty() {
        writeln!(out)?;
    }
    notes.iter().try_for_each(|note| writeln!(out, "{note}"))
}

fn clocks(simulation: &Simulation, out: &mut impl Write) -> io::Result<()> {
    let timed: Vec<_> = simulation.rows.iter().filter_map(|row| Some((row, row.clock?))).collect();
    if timed.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:>6} {:>7} {:<4} {:>9} {:>22} {:>22}",
        "util", "mapped", "FDP", "seconds", "programmed pages/s", "host pages/s"
    )?;
    for (row, clock) in timed {
        writeln!(
            out,
            "{:>5}% {:>6}% {:<4} {:>9.2} {:>22} {:>22}",
            percent(row.util),
            row.mapped(),
            on_off(row),
            clock.seconds,
            thousands(clock.media_pages_per_second),
            thousands(clock.host_pages_per_second)
        )?;
    }
    Ok(())
}

fn on_off(row: &Row) -> &'static str {
    if row.fdp { "on" } else { "off" }
}

/// A share in percent with two digits.
fn percent_2(share: f64) -> String {
    super::super::scale::trimmed(&format!("{:.2}", share * 100.0))
}

fn shown(parameter: &super::model::Parameter) -> String {
    format!("{} {}", parameter.name, parameter.value)
}

/// Parts in lines of a width that terminals have.
fn wrapped(parts: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + part.chars().count() < 98 => {
                line.push_str("; ");
                line.push_str(part);
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}
