//! The result for the terminal.

use std::io::{self, Write};

use unvme_advise::measure::{Completing, Placed};
use unvme_advise::statistics::Spread;
use unvme_advise::{Choice, Cpus, Judged, Location, Reach, Relation, Topology, Worth};

use super::outcome::{Advice, CacheLine, Outcome, on, worth};
use crate::columns::{Rule, write_rows, write_table};
use crate::count::count;
use crate::report::scale::si;

/// CPUs of a matrix that fit a terminal.
const MATRIX_MAX: usize = 16;

pub(super) fn write(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    machine(outcome, out)?;
    devices(outcome, out)?;
    if let Some(line) = &outcome.cache_line {
        cache_line(&outcome.topology, line, out)?;
    }
    if !outcome.judged.is_empty() {
        let low = outcome.depth.min(8);
        writeln!(
            out,
            "\nReads of {} bytes: rates at depth {}, latencies at depth {low}",
            outcome.io_bytes, outcome.depth
        )?;
    }
    for (choice, judged) in outcome.choices() {
        write_choice(choice, judged, out)?;
    }
    if outcome.noise.is_none() && !outcome.interrupted {
        tables(outcome, out)?;
    }
    if !outcome.plan.missing.is_empty() {
        writeln!(out, "\nNot measured on this machine")?;
        for missing in &outcome.plan.missing {
            writeln!(out, "  {}: {}", missing.what, missing.why)?;
        }
    }
    match &outcome.advice {
        Some(advice) => write_advice(outcome, advice, out),
        None => Ok(()),
    }
}

/// A layout in words.
pub(super) fn layout(layout: &[Placed]) -> String {
    let one = |placed: &Placed| match placed.complete {
        Completing::Polled => format!("CPU {}", placed.submit),
        Completing::Thread(cpu) => format!("CPU {} and {cpu}", placed.submit),
    };
    let devices = layout.iter().map(one).collect::<Vec<_>>();
    devices.join(", ")
}

/// Lines about CPUs, caches and nodes.
pub(super) fn about(topology: &Topology) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut line = |name: &str, text: String| lines.push((name.to_owned(), text));
    let online = topology.cpus.len();
    let sockets = match topology.packages() {
        0 => String::new(),
        packages => format!(" in {}", count(packages as u64, "socket")),
    };
    line("CPUs", format!("{online} online, {}{sockets}", count(topology.cores() as u64, "core")));
    if topology.usable.len() < online {
        line("usable", format!("{} (affinity or cpuset of this process)", topology.usable));
    }
    if !topology.offline.is_empty() {
        line("offline", topology.offline.to_string());
    }
    if !topology.isolated.is_empty() {
        line("isolated", topology.isolated.to_string());
        let outside = topology.isolated.difference(&topology.usable);
        if !outside.is_empty() {
            let text =
                format!("{outside} are not used: run `taskset -c {outside} unvme advise` to have them used");
            line("isolated", text);
        }
    }
    if let Some(quota) = topology.quota {
        line("cgroup", format!("{quota:.1} CPUs' worth of time"));
    }
    let slow: Cpus =
        topology.cpus.iter().filter(|c| c.capacity.is_some_and(|c| c < 1024)).map(|c| c.number).collect();
    if !slow.is_empty() {
        line("slower", format!("{slow}"));
    }
    for (governor, cpus) in &topology.governors {
        line("cpufreq", format!("governor {governor} on {}", on(cpus)));
    }
    let domains = topology.l3_domains();
    let shown = |domains: &[&Cpus]| domains.iter().map(|own| own.to_string()).collect::<Vec<_>>().join(" | ");
    match domains.len() {
        0 => line("L3", "none is listed".to_owned()),
        n => line("L3", format!("{}: {}", count(n as u64, "domain"), shown(&domains))),
    }
    if topology.nodes.is_empty() {
        line("NUMA", "one memory for all".to_owned());
    }
    for node in &topology.nodes {
        let pages = match node.huge_pages {
            0 => "no huge pages".to_owned(),
            total => format!("{} of {total} huge pages free", node.huge_pages_free),
        };
        line(&format!("node {}", node.number), format!("CPUs {}, {pages}", node.cpus));
    }
    lines
}

fn machine(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let topology = &outcome.topology;
    let model = if topology.model.is_empty() { "Processor of unknown model" } else { &topology.model };
    writeln!(out, "{model}")?;
    let rows: Vec<[String; 2]> = about(topology).into_iter().map(|(name, text)| [name, text]).collect();
    for [name, text] in rows {
        writeln!(out, "  {name:<9} {text}")?;
    }
    for unknown in &topology.unknown {
        writeln!(out, "  note: {unknown}")?;
    }
    Ok(())
}

/// Where a device is, in words.
pub(super) fn place(location: &Location) -> String {
    let mut parts = Vec::new();
    parts.push(match location.reach {
        Reach::InProcess => "in this process".to_owned(),
        Reach::Slot => "a virtual slot, in this process".to_owned(),
        Reach::Process => "served by another process".to_owned(),
        Reach::Network => "on the network".to_owned(),
        _ => location
            .driver
            .clone()
            .map_or_else(|| "no driver".to_owned(), |driver| format!("driver {driver}")),
    });
    match (location.node, &location.address) {
        (Some(node), _) => parts.push(format!("node {node}")),
        (None, Some(_)) => parts.push("node not known".to_owned()),
        (None, None) => {}
    }
    if !location.interrupts.is_empty() {
        parts.push(count(location.interrupts.len() as u64, "interrupt"));
    }
    parts.join(", ")
}

fn devices(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nDevices")?;
    for found in &outcome.devices {
        writeln!(out, "  {}: {}", found.location.name, place(&found.location))?;
    }
    for skipped in &outcome.skipped {
        writeln!(out, "  {}: skipped: {}", skipped.name, skipped.reason)?;
    }
    for note in &outcome.notes {
        writeln!(out, "  note: {note}")?;
    }
    for drive in &outcome.drives_of_machine {
        writeln!(out, "  {} (not measured; name it to have it measured): {}", drive.name, place(drive))?;
    }
    Ok(())
}

fn cache_line(topology: &Topology, line: &CacheLine, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nRound trip of a cache line between CPUs, ns (median of 5){}", cut(topology, line))?;
    if line.cpus.len() <= MATRIX_MAX {
        let names: Vec<String> = line.cpus.iter().map(ToString::to_string).collect();
        let headers: Vec<&str> = std::iter::once("CPU").chain(names.iter().map(String::as_str)).collect();
        let row = |(cpu, row): (&u32, &Vec<Option<Spread>>)| {
            let shown =
                row.iter().map(|cell| cell.map_or_else(|| "-".to_owned(), |ns| format!("{:.0}", ns.median)));
            std::iter::once(cpu.to_string()).chain(shown).collect::<Vec<_>>()
        };
        let rows: Vec<Vec<String>> = line.cpus.iter().zip(&line.round_trip_ns).map(row).collect();
        let rows: Vec<&[String]> = rows.iter().map(Vec::as_slice).collect();
        return write_rows(out, &headers, Rule::None, &rows);
    }
    let rows: Vec<[String; 3]> = by_class(topology, line)
        .into_iter()
        .map(|(class, spread)| {
            let range = format!("{:.0} to {:.0}", spread.min, spread.max);
            [class.name().to_owned(), format!("{:.0}", spread.median), range]
        })
        .collect();
    write_table(out, &["Class", "ns", "Least to greatest"], Rule::Dashes, &rows)
}

/// Says that not all usable CPUs are in it.
pub(super) fn cut(topology: &Topology, line: &CacheLine) -> String {
    match topology.usable.len() > line.cpus.len() {
        true => format!(", of the first {} of {} CPUs", line.cpus.len(), topology.usable.len()),
        false => String::new(),
    }
}

/// Round trips by class of the pairs.
pub(super) fn by_class(topology: &Topology, line: &CacheLine) -> Vec<(Relation, Spread)> {
    let mut found = Vec::new();
    for class in Relation::ALL.into_iter().chain([Relation::Unknown]) {
        let mut figures = Vec::new();
        for (one, row) in line.cpus.iter().zip(&line.round_trip_ns) {
            for (other, cell) in line.cpus.iter().zip(row) {
                if one < other && topology.relation(*one, *other) == class {
                    figures.extend(cell.map(|ns| ns.median));
                }
            }
        }
        found.extend(Spread::of(&figures).map(|spread| (class, spread)));
    }
    found
}

pub(super) const CHOICE_HEADERS: [&str; 6] =
    ["Placement", "IOPS", "Least to greatest", "p99 us, low depth", "p99.99 us", "Worth"];

/// A row of a choice.
pub(super) fn row(name: &str, own: &Judged) -> [String; 6] {
    let us =
        |spread: &Option<Spread>| spread.map_or_else(|| "-".to_owned(), |us| format!("{:.1}", us.median));
    [
        name.to_owned(),
        si(own.iops.median),
        format!("{} to {}", si(own.iops.min), si(own.iops.max)),
        us(&own.p99_us),
        us(&own.p9999_us),
        worth(&own.worth),
    ]
}

fn write_choice(choice: &Choice, judged: &[Judged], out: &mut dyn Write) -> io::Result<()> {
    let each = if choice.kind.is_per_device() { " (IOPS of each device)" } else { "" };
    writeln!(out, "\n{}{each}", choice.title)?;
    let rows = choice.alternatives.iter().zip(judged).map(|(own, judged)| row(&own.name, judged));
    write_table(out, &CHOICE_HEADERS, Rule::Dashes, &rows.collect::<Vec<_>>())
}

fn tables(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    for table in &outcome.plan.tables {
        writeln!(out, "\n{}", table.title)?;
        let headers: Vec<&str> =
            std::iter::once("").chain(table.columns.iter().map(String::as_str)).collect();
        let rows: Vec<Vec<String>> = table
            .rows
            .iter()
            .map(|(name, cells)| {
                let cells = cells.iter().map(|cell| shown(outcome.cell(cell)));
                std::iter::once(name.clone()).chain(cells).collect()
            })
            .collect();
        let rows: Vec<&[String]> = rows.iter().map(Vec::as_slice).collect();
        write_rows(out, &headers, Rule::Dashes, &rows)?;
    }
    Ok(())
}

/// A figure of a table with its spread.
pub(super) fn shown(spread: Option<Spread>) -> String {
    match spread {
        Some(spread) => format!("{:.0} ({:.0} to {:.0})", spread.median, spread.min, spread.max),
        None => "-".to_owned(),
    }
}

/// What was found out about completion and devices on a core, in sentences.
pub(super) fn findings(outcome: &Outcome, advice: &Advice) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some((cpus, iops)), Some(command)) = (outcome.best(), outcome.best_command()) {
        lines.push(format!("Best rate of one device: {} IOPS, polled on {}: {command}", si(iops), on(&cpus)));
    }
    let found = &advice.findings;
    let queues = if advice.polls { found.queues_polled } else { found.queues_apart };
    let completing = if queues > 1 { found.completing_many } else { found.completing };
    if outcome.is_measured {
        lines.push(format!("Queues of a device with nearly its highest rate: {queues} (measured)"));
    }
    if let Some(relation) = completing.filter(|_| !advice.polls) {
        lines.push(format!("Best CPU of a completion thread: {relation} (measured)"));
    }
    match found.polling {
        Some(Worth::Times { ratio, .. }) if ratio > 1.0 => lines.push(format!(
            "A thread that polls its own queue completes {:.0} % more than with a completion thread: --poll",
            (ratio - 1.0) * 100.0
        )),
        Some(Worth::Times { ratio, .. }) => lines.push(format!(
            "A completion thread on a CPU of its own completes {:.0} % more than a thread that polls",
            (1.0 / ratio.max(1e-9) - 1.0) * 100.0
        )),
        Some(Worth::None) => {
            lines.push("Polling and the best completion thread: no difference on this machine".to_owned());
        }
        _ => {}
    }
    let per_core = advice.per_core;
    let source = if per_core.is_measured { "measured" } else { "the guide's figures, not measured here" };
    lines.push(match advice.polls {
        true => format!("Devices on a CPU that polls: {} ({source})", per_core.submitting),
        false => format!(
            "Devices on a submitting CPU: {}, on a completing one: {} ({source})",
            per_core.submitting, per_core.completing
        ),
    });
    lines
}

/// What a configuration is for.
pub(super) fn configuration(advice: &Advice) -> &'static str {
    match (advice.polls, advice.is_synchronous) {
        (_, true) => "Configuration for calls that wait: kv_perf, sdk_perf, the C library",
        (true, false) => {
            "Configuration for kv_perf, sdk_perf_async, and programs that call kv_process_completion"
        }
        (false, false) => {
            "Configuration for kv_perf, sdk_perf_async and the C library; for calls that wait: --sync"
        }
    }
}

fn write_advice(outcome: &Outcome, advice: &Advice, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nAdvice")?;
    for line in findings(outcome, advice) {
        writeln!(out, "  {line}")?;
    }
    for own in &advice.assignment.devices {
        let found = &outcome.devices[own.device];
        let complete = match own.relation {
            Some(relation) => format!("complete on {} ({relation})", own.complete),
            None => "the same threads poll".to_owned(),
        };
        writeln!(out, "  {}: submit on {}, {complete}", found.location.name, on(&own.submit))?;
    }
    for note in &advice.notes {
        writeln!(out, "  note: {note}")?;
    }
    for own in &advice.configurations {
        writeln!(out, "\n{} (--config FILE writes it)", configuration(advice))?;
        write!(out, "{}", own.text)?;
    }
    writeln!(out, "\nA program on these CPUs\n  {}", advice.taskset)?;
    writeln!(out, "A service on these CPUs")?;
    advice.unit.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    if !advice.frequency.is_empty() {
        writeln!(out, "Frequency")?;
        advice.frequency.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    if !advice.interrupts.is_empty() {
        writeln!(out, "Interrupts")?;
        advice.interrupts.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    Ok(())
}
