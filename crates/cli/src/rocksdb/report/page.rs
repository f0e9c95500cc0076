//! Results as a page: what is drawn of them, and in what words.

use super::output::{ABOUT, TICKERS};
use super::results::{Latency, Phase, Results, Side};
use super::table::{base, figures, ratio_of};
use crate::count::count;
use crate::report::experiment::{
    Bar, Bars, Card, Curve, Curves, Experiment, Facts, Figure, Group, Quantity, Table, TableRow,
};
use crate::report::scale::{bytes, micros, si};

/// Phases that have a card.
const CARDS: usize = 6;

/// Where the axis of percentiles ends.
const SHARE_MAX: f64 = 0.999_999;

/// The page of some results.
pub(super) fn experiment(results: &Results) -> Experiment {
    let mut figures = vec![Figure::Bars(rates(results))];
    figures.extend(ratios(results).map(Figure::Bars));
    let mut curves: Vec<Curves> = Vec::new();
    for name in results.phases() {
        curves.extend(series(results, name));
        curves.extend(percentiles(results, name));
    }
    // Two beside each other: the last one has nothing beside it.
    if curves.len() % 2 == 1
        && let Some(last) = curves.last_mut()
    {
        last.is_wide = true;
    }
    figures.extend(curves.into_iter().map(Figure::Curves));
    figures.extend(hits(results).map(Figure::Bars));
    let mut tables = vec![results_table(results)];
    tables.extend(file_system_table(results));
    tables.extend(rocksdb_table(results));
    let names: Vec<&str> = results.sides.iter().map(|side| side.name.as_str()).collect();
    Experiment {
        kicker: "RocksDB report".to_owned(),
        title: names.join(" beside "),
        result: sentence(results),
        about: about(results),
        warnings: warnings(results),
        cards: cards(results),
        figures,
        listings: Vec::new(),
        maps: Vec::new(),
        tables,
        facts: results.sides.iter().filter_map(facts).collect(),
        commands: commands(results),
    }
}

/// The result in a sentence.
pub(super) fn sentence(results: &Results) -> String {
    let names = results.phases();
    let Some(base) = base(results) else {
        let rate = |name: &&str| {
            let (_, _, phase) = *results.of(name).first()?;
            Some(format!("{name} {} ops/s", si(phase.ops_per_second)))
        };
        let rates: Vec<String> = names.iter().take(CARDS).filter_map(rate).collect();
        return rates.join(", ");
    };
    let first = results.sides.first();
    let of = |side: &Side| -> Vec<f64> {
        side.phases.iter().filter_map(|phase| ratio_of(results, &side.name, phase)).collect()
    };
    let (name, ratios) = first.map_or(("", Vec::new()), |side| (side.name.as_str(), of(side)));
    if ratios.is_empty() {
        return format!("{name} and {base} have no phase in common.");
    }
    let faster = ratios.iter().filter(|ratio| **ratio > 1.0).count();
    let (least, most) =
        ratios.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), at| (least.min(*at), most.max(*at)));
    format!(
        "{name} is faster than {base} in {faster} of {}: {least:.2} to {most:.2} times its operations per second.",
        count(ratios.len(), "phase")
    )
}

fn about(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(phase) = results.sides.first().and_then(|side| side.phases.first()) {
        let of = |name: &str| phase.about.get(name).filter(|value| !value.is_empty());
        let parts =
            [of("RocksDB").map(|it| format!("RocksDB {it}")), of("CPU").cloned(), of("Date").cloned()];
        lines.push(parts.into_iter().flatten().collect::<Vec<String>>().join(" · "));
        let of = |name: &str| of(name).map(|value| format!("{}: {value}", name.to_lowercase()));
        lines.push(
            ["Keys", "Values", "Entries"].into_iter().filter_map(of).collect::<Vec<String>>().join(" · "),
        );
    }
    lines.push(format!("unvme {}", results.tool_version));
    lines.retain(|line| !line.is_empty());
    lines
}

/// Keys that were looked for and are not there.
fn warnings(results: &Results) -> Vec<String> {
    let phases = results.sides.iter().flat_map(|side| side.phases.iter().map(move |phase| (side, phase)));
    let missing = phases.filter_map(|(side, phase)| {
        let (found, all) = phase.found.filter(|(found, all)| found < all)?;
        let (side, phase) = (&side.name, &phase.name);
        Some(format!("{side}, {phase}: {found} of {all} keys that a thread looked for were found."))
    });
    missing.collect()
}

fn cards(results: &Results) -> Vec<Card> {
    let card = |name: &str| {
        let (_, side, phase) = *results.of(name).first()?;
        let rate = si(phase.ops_per_second);
        let tail = phase.latency.as_ref().map(|latency| format!("P99 {}", micros(latency.p99_us)));
        let ratio = ratio_of(results, &side.name, phase);
        let ratio = ratio.zip(base(results)).map(|(ratio, base)| format!("{ratio:.2} times {base}"));
        let note: Vec<String> = [tail, ratio].into_iter().flatten().collect();
        Some(Card { title: name.to_owned(), figure: rate, unit: "ops/s", note: note.join(", ") })
    };
    results.phases().into_iter().take(CARDS).filter_map(card).collect()
}

/// A group for each phase, with a bar for each side that has a figure.
fn bars(results: &Results, about: (&str, &str, Quantity), of: impl Fn(&Side, &Phase) -> Option<f64>) -> Bars {
    let group = |name: &str| {
        let own = results.of(name).into_iter();
        let bar = |(colour, side, phase): (usize, &Side, &Phase)| {
            Some(Bar { name: side.name.clone(), colour, value: of(side, phase)? })
        };
        Group { name: name.to_owned(), bars: own.filter_map(bar).collect() }
    };
    let mut groups: Vec<Group> = results.phases().into_iter().map(group).collect();
    groups.retain(|group| !group.bars.is_empty());
    let (title, note, quantity) = about;
    Bars { title: title.to_owned(), note: note.to_owned(), quantity, groups, rule: None, is_wide: true }
}

fn rates(results: &Results) -> Bars {
    let about =
        ("Throughput by phase", "Operations per second, all threads together", Quantity::PerSecond("ops/s"));
    bars(results, about, |_, phase| Some(phase.ops_per_second))
}

fn ratios(results: &Results) -> Option<Bars> {
    let base = base(results)?;
    let note = format!("Operations per second, to those of {base}");
    let about = ("Ratio by phase", note.as_str(), Quantity::Number("Ratio"));
    let mut ratios = bars(results, about, |side, phase| ratio_of(results, &side.name, phase));
    ratios.rule = Some(1.0);
    (!ratios.groups.is_empty()).then_some(ratios)
}

/// How much of what was asked for the page cache of the file system had.
fn hits(results: &Results) -> Option<Bars> {
    let about = (
        "Hits of the page cache by phase",
        "Pages that unvme's file system had in its cache, of those that were asked for",
        Quantity::Percent("Hits"),
    );
    let hits = bars(results, about, |_, phase| hits_of(phase));
    (!hits.groups.is_empty()).then_some(hits)
}

fn hits_of(phase: &Phase) -> Option<f64> {
    let of = |name: &str| phase.file_system.get(name).map(|count| *count as f64);
    let (hits, misses) = (of("cache_hits")?, of("cache_misses")?);
    (hits + misses > 0.0).then(|| 100.0 * hits / (hits + misses))
}

/// Curves of all sides that have some of a phase.
fn curves(
    results: &Results,
    name: &str,
    about: (&str, &str, Quantity, Quantity),
    of: impl Fn(&Phase) -> Vec<(f64, f64)>,
) -> Option<Curves> {
    let own = results.of(name).into_iter().map(|(colour, side, phase)| Curve {
        name: side.name.clone(),
        colour,
        is_dashed: false,
        points: of(phase),
    });
    let curves: Vec<Curve> = own.filter(|curve| !curve.points.is_empty()).collect();
    let (title, note, x, y) = about;
    let title = format!("{name}: {title}");
    (!curves.is_empty()).then(|| Curves { title, note: note.to_owned(), x, y, curves, is_wide: false })
}

fn series(results: &Results, name: &str) -> Option<Curves> {
    let phases = || results.sides.iter().flat_map(|side| &side.phases);
    if phases().all(|phase| phase.series.len() < 2) {
        return None;
    }
    let rate = Quantity::PerSecond("ops/s");
    let about = ("throughput over time", "Operations per second in each interval", Quantity::Seconds, rate);
    curves(results, name, about, |phase| {
        phase.series.iter().map(|at| (at.second, at.ops_per_second)).collect()
    })
}

fn percentiles(results: &Results, name: &str) -> Option<Curves> {
    let about =
        ("latency", "What so many of the operations took at most", Quantity::Percentile, Quantity::Micros);
    curves(results, name, about, |phase| phase.latency.as_ref().map(cumulative).unwrap_or_default())
}

/// Latency against the share of operations that took at most as long.
fn cumulative(latency: &Latency) -> Vec<(f64, f64)> {
    let all = latency.buckets.iter().fold(0_u64, |sum, bucket| sum.saturating_add(bucket.count));
    let total = all.max(1) as f64;
    let mut below = 0_u64;
    let mut points = Vec::new();
    for bucket in latency.buckets.iter().filter(|bucket| bucket.count > 0) {
        below = below.saturating_add(bucket.count);
        // The slowest of n is the percentile of half of it: 100 % has no place on an axis of nines.
        let share = (below as f64 / total).min(1.0 - 0.5 / total);
        if share > SHARE_MAX {
            break;
        }
        let most = if latency.max_us > 0.0 { latency.max_us } else { bucket.to_us };
        points.push((share * 100.0, bucket.to_us.min(most).max(1e-3)));
    }
    points
}

/// A row for each phase of each side.
fn rows(results: &Results, cells: impl Fn(&Side, &Phase) -> Option<Vec<String>>) -> Vec<TableRow> {
    let several = results.sides.len() > 1;
    let mut rows = Vec::new();
    for name in results.phases() {
        let mut starts_group = several && !rows.is_empty();
        for (_, side, phase) in results.of(name) {
            let Some(own) = cells(side, phase) else { continue };
            let head = if several { format!("{name}, {}", side.name) } else { name.to_owned() };
            rows.push(TableRow { head, cells: own, starts_group });
            starts_group = false;
        }
    }
    rows
}

fn results_table(results: &Results) -> Table {
    let mut columns = vec![
        "Phase",
        "Benchmark",
        "ops/s",
        "MB/s",
        "µs/op",
        "P50",
        "P99",
        "P99.9",
        "P99.99",
        "Max",
        "Operations",
    ];
    let several = results.sides.len() > 1;
    columns.extend(several.then_some("Ratio"));
    let rows = rows(results, |side, phase| {
        let mut cells = vec![phase.benchmark.clone()];
        cells.extend(figures(phase));
        cells.push(phase.operations.map_or_else(|| "-".to_owned(), |operations| operations.to_string()));
        cells.extend(several.then(|| {
            let ratio = ratio_of(results, &side.name, phase);
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
        }));
        Some(cells)
    });
    Table { title: "Results".to_owned(), note: "latencies are those of --histogram", columns, rows }
}

/// Writes a count.
type Show = fn(u64) -> String;

/// Counters of the file system, and how they are written.
const COUNTERS: [(&str, &str, Show); 9] = [
    ("opened", "Files opened", plain),
    ("reads", "Reads", plain),
    ("read_bytes", "Read", bytes),
    ("async_reads", "Async reads", plain),
    ("batched_reads", "Batched reads", plain),
    ("writes", "Writes", plain),
    ("written_bytes", "Written", bytes),
    ("syncs", "Syncs", plain),
    ("cache_written_back", "Pages written back", plain),
];

fn plain(count: u64) -> String {
    count.to_string()
}

fn file_system_table(results: &Results) -> Option<Table> {
    let mut columns = vec!["Phase"];
    columns.extend(COUNTERS.iter().map(|(_, title, _)| *title));
    columns.push("Cache hits");
    let rows = rows(results, |_, phase| {
        let show = |(name, _, show): &(&str, &str, Show)| {
            phase.file_system.get(*name).map_or_else(|| "-".to_owned(), |count| show(*count))
        };
        let mut cells: Vec<String> = COUNTERS.iter().map(show).collect();
        cells.push(hits_of(phase).map_or_else(|| "-".to_owned(), |share| format!("{share:.1} %")));
        (!phase.file_system.is_empty()).then_some(cells)
    });
    let title = "What the file system did".to_owned();
    (!rows.is_empty()).then_some(Table { title, note: "counted by unvme", columns, rows })
}

fn rocksdb_table(results: &Results) -> Option<Table> {
    let titles = [
        "Keys and values written",
        "read",
        "Log",
        "Log syncs",
        "Flushed",
        "Compaction read",
        "Compaction written",
        "Stalled",
    ];
    let columns = std::iter::once("Phase").chain(titles).collect();
    let show = |name: &str, count: u64| match name {
        "rocksdb.stall.micros" => micros(count as f64),
        "rocksdb.wal.synced" => plain(count),
        _ => bytes(count),
    };
    let rows = rows(results, |_, phase| {
        let cell =
            |name: &&str| phase.rocksdb.get(*name).map_or_else(|| "-".to_owned(), |it| show(name, *it));
        (!phase.rocksdb.is_empty()).then(|| TICKERS.iter().map(cell).collect())
    });
    let title = "What RocksDB did".to_owned();
    (!rows.is_empty()).then_some(Table { title, note: "of --statistics", columns, rows })
}

/// What db_bench says of the first phase of a side; the others say the same but for the time.
fn facts(side: &Side) -> Option<Facts> {
    let first = side.phases.first()?;
    let term = |name: &&str| Some(((*name).to_owned(), first.about.get(*name)?.clone()));
    let terms: Vec<(String, String)> = ABOUT.iter().filter_map(term).collect();
    (!terms.is_empty()).then(|| Facts { title: side.name.clone(), terms })
}

fn commands(results: &Results) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for phase in results.sides.iter().flat_map(|side| &side.phases) {
        if let Some(command) = phase.command.as_ref().filter(|command| !commands.contains(command)) {
            commands.push(command.clone());
        }
    }
    commands
}
