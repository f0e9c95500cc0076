//! The result as a page: a map of the cores, bars of the placements.

use std::io::{self, Write};

use unvme_advise::{Choice, Judged, Worth};

use super::outcome::{CacheLine, Outcome, on};
use super::text;
use crate::report::experiment::{
    self, Bar, Bars, Card, Experiment, Facts, Figure, Group, Listing, Quantity, Table, TableRow,
};
use crate::report::heat::{HeatCell, HeatMap};
use crate::report::scale::si;

pub(super) fn write(outcome: &Outcome, out: &mut impl Write) -> io::Result<()> {
    experiment::write(&experiment(outcome), outcome, out)
}

fn experiment(outcome: &Outcome) -> Experiment {
    let names: Vec<&str> = outcome.devices.iter().map(|found| found.location.name.as_str()).collect();
    let mut warnings: Vec<String> = outcome
        .skipped
        .iter()
        .map(|skipped| format!("{} was skipped: {}", skipped.name, skipped.reason))
        .collect();
    warnings.extend(outcome.topology.unknown.iter().cloned());
    Experiment {
        kicker: "Where threads and queues go".to_owned(),
        title: names.join(", "),
        result: outcome.sentence(),
        about: vec![
            format!("{}, unvme {}, {}", outcome.topology.model, outcome.tool_version, outcome.started),
            format!(
                "reads of {} bytes: rates at depth {}, latencies at depth {}",
                outcome.io_bytes,
                outcome.depth,
                outcome.depth.min(8)
            ),
        ],
        warnings,
        cards: cards(outcome),
        figures: outcome.choices().map(|(choice, judged)| Figure::Bars(bars(choice, judged))).collect(),
        maps: outcome.cache_line.iter().map(|line| map(outcome, line)).collect(),
        tables: tables(outcome),
        facts: facts(outcome),
        listings: listings(outcome),
        commands: commands(outcome),
    }
}

fn cards(outcome: &Outcome) -> Vec<Card> {
    let mut cards = Vec::new();
    if let Some((cpus, iops)) = outcome.best() {
        cards.push(Card {
            title: "Best rate of one device".to_owned(),
            figure: si(iops),
            unit: "IOPS",
            note: format!("polled on {}", on(&cpus)),
        });
    }
    let Some(advice) = &outcome.advice else { return cards };
    cards.push(Card {
        title: "CPUs".to_owned(),
        figure: advice.assignment.cpus().to_string(),
        unit: "",
        note: format!("for {}", crate::count::count(outcome.devices.len() as u64, "device")),
    });
    let polling = match advice.findings.polling {
        Some(Worth::Times { ratio, .. }) => Some(format!("{:+.0} %", (ratio - 1.0) * 100.0)),
        Some(Worth::None) => Some("-".to_owned()),
        _ => None,
    };
    cards.extend(polling.map(|figure| {
        Card {
            title: "Polling".to_owned(),
            figure,
            unit: "",
            note: match advice.findings.polling {
                Some(Worth::None) => "no difference to the best completion thread",
                _ => "compared with the best completion thread",
            }
            .to_owned(),
        }
    }));
    cards.push(Card {
        title: "Devices on a core".to_owned(),
        figure: advice.per_core.submitting.to_string(),
        unit: "",
        note: if advice.per_core.is_measured { "without loss, measured" } else { "the guide's" }.to_owned(),
    });
    cards
}

fn bars(choice: &Choice, judged: &[Judged]) -> Bars {
    let group = |(own, judged): (&unvme_advise::Alternative, &Judged)| Group {
        name: own.name.clone(),
        bars: vec![Bar { name: "IOPS".to_owned(), colour: 0, value: judged.iops.median }],
    };
    let each = if choice.kind.is_per_device() { " of each device" } else { "" };
    Bars {
        title: choice.title.clone(),
        note: format!("Reads in a second{each}, median; the first is what the others are compared with"),
        quantity: Quantity::PerSecond("IOPS"),
        groups: choice.alternatives.iter().zip(judged).map(group).collect(),
        rule: judged.first().map(|base| base.iops.median),
        is_wide: true,
    }
}

fn map(outcome: &Outcome, line: &CacheLine) -> HeatMap {
    let cells = |(one, row): (&u32, &Vec<Option<unvme_advise::statistics::Spread>>)| {
        let cell = |(other, spread): (&u32, &Option<unvme_advise::statistics::Spread>)| {
            spread.map(|ns| HeatCell {
                figure: ns.median,
                tip: format!("CPUs {one} and {other}\n{:.0} ns ({:.0} to {:.0})", ns.median, ns.min, ns.max),
            })
        };
        (format!("CPU {one}"), line.cpus.iter().zip(row).map(cell).collect())
    };
    HeatMap {
        title: format!("Round trip of a cache line between CPUs, ns{}", text::cut(&outcome.topology, line)),
        corner: String::new(),
        columns: line.cpus.iter().map(ToString::to_string).collect(),
        rows: line.cpus.iter().zip(&line.round_trip_ns).map(cells).collect(),
        show: |ns| format!("{ns:.0}"),
    }
}

fn tables(outcome: &Outcome) -> Vec<Table> {
    let mut tables: Vec<Table> = outcome
        .choices()
        .map(|(choice, judged)| {
            let rows = choice.alternatives.iter().zip(judged).map(|(own, judged)| {
                let [head, cells @ ..] = text::row(&own.name, judged);
                TableRow { head, cells: cells.to_vec(), starts_group: false }
            });
            Table {
                title: choice.title.clone(),
                note: if choice.kind.is_per_device() { "IOPS of each device" } else { "" },
                columns: text::CHOICE_HEADERS.to_vec(),
                rows: rows.collect(),
            }
        })
        .collect();
    if outcome.noise.is_some() || outcome.interrupted {
        return tables;
    }
    for own in &outcome.plan.tables {
        // A table of the page has its columns by name of this program: those of a sweep are in the first row.
        let head =
            |cells: Vec<String>, head: &str| TableRow { head: head.to_owned(), cells, starts_group: false };
        let mut rows = vec![head(own.columns.clone(), "")];
        rows.extend(own.rows.iter().map(|(name, cells)| {
            head(cells.iter().map(|cell| text::shown(outcome.cell(cell))).collect(), name)
        }));
        let columns = std::iter::once("").chain(own.columns.iter().map(|_| "")).collect();
        tables.push(Table { title: own.title.clone(), note: "median (least to greatest)", columns, rows });
    }
    tables
}

fn facts(outcome: &Outcome) -> Vec<Facts> {
    let mut facts = vec![Facts { title: "Machine".to_owned(), terms: text::about(&outcome.topology) }];
    let device =
        |found: &super::outcome::DeviceFound| (found.location.name.clone(), text::place(&found.location));
    facts.push(Facts { title: "Devices".to_owned(), terms: outcome.devices.iter().map(device).collect() });
    if !outcome.plan.missing.is_empty() {
        let missing = outcome.plan.missing.iter().map(|own| (own.what.clone(), own.why.clone()));
        facts.push(Facts { title: "Not measured on this machine".to_owned(), terms: missing.collect() });
    }
    let noted = outcome.notes.iter().chain(outcome.advice.iter().flat_map(|advice| &advice.notes));
    let notes: Vec<(String, String)> =
        (1..).zip(noted).map(|(at, note): (u32, _)| (at.to_string(), note.clone())).collect();
    if !notes.is_empty() {
        facts.push(Facts { title: "Notes".to_owned(), terms: notes });
    }
    if let Some(advice) = &outcome.advice {
        let own = advice.assignment.devices.iter().map(|own| {
            let complete = match own.relation {
                Some(relation) => format!("completes on {} ({relation})", own.complete),
                None => "polled by the same threads".to_owned(),
            };
            let name = outcome.devices[own.device].location.name.clone();
            (name, format!("submits on {}, {complete}", on(&own.submit)))
        });
        facts.push(Facts { title: "CPUs of each device".to_owned(), terms: own.collect() });
    }
    facts
}

fn listings(outcome: &Outcome) -> Vec<Listing> {
    let Some(advice) = &outcome.advice else { return Vec::new() };
    let mut listings: Vec<Listing> = advice
        .configurations
        .iter()
        .map(|own| Listing { title: text::configuration(advice).to_owned(), text: own.text.clone() })
        .collect();
    let mut list = |title: &str, lines: &[String]| {
        if !lines.is_empty() {
            listings.push(Listing { title: title.to_owned(), text: lines.join("\n") });
        }
    };
    list("A program on these CPUs", std::slice::from_ref(&advice.taskset));
    list("A service on these CPUs", &advice.unit);
    list("Frequency", &advice.frequency);
    list("Interrupts", &advice.interrupts);
    listings
}

fn commands(outcome: &Outcome) -> Vec<String> {
    std::iter::once(outcome.command_line.join(" ")).chain(outcome.best_command()).collect()
}
