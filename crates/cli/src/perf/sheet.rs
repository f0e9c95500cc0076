//! Files of `--job` (TOML), and the sheets of `--sheet`, which are such files.
//!
//! ```toml
//! about = "what this finds out"   # for --explain
//! time = 10                       # at the top: for all phases, below what is typed
//!
//! [[phase]]                       # one after the other
//! name = "mixed"
//! io-size = "4K"                  # in a phase: for it alone, over what is typed
//! matrix = ["depth=1..32"]
//! [[phase.job]]                   # those of a phase at once
//! name = "reader"
//! workload = "randread"
//! [[phase.job]]
//! name = "writer"
//! workload = "write"
//! ```

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;
use toml::{Table, Value};

use super::args::Perf;
use super::matrix::Axis;
use super::settings::Settings;
use crate::exit::usage;
use crate::file;
use crate::report::SteadyFigure;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Rounds of a measurement window (SNIA Solid State Storage Performance Test Specification, 2.1.24).
pub(crate) const WINDOW: usize = 5;
/// Most rounds of a phase.
const ROUNDS_MAX: u32 = 1000;

/// What is known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sheet {
    /// The four figures on a data sheet, in half a minute
    Quick,
    /// How long one command takes: reads and writes at depth 1, and the way up to depth 32
    Latency,
    /// Random reads, writes and mixes at all sizes, after preconditioning (SNIA's IOPS test)
    Iops,
    /// Shares of reads from all to none at several depths
    Mixed,
    /// Random writes from empty until they are steady (SNIA's write saturation)
    SteadyState,
}

impl Sheet {
    /// The file.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Quick => include_str!("sheets/quick.toml"),
            Self::Latency => include_str!("sheets/latency.toml"),
            Self::Iops => include_str!("sheets/iops.toml"),
            Self::Mixed => include_str!("sheets/mixed.toml"),
            Self::SteadyState => include_str!("sheets/steady-state.toml"),
        }
    }
}

/// How a phase is measured until it is steady.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rounds {
    /// At most so many times.
    pub(super) max: u32,
    pub(super) figure: SteadyFigure,
}

/// What is measured before the next of its kind begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Phase {
    pub(super) name: Option<String>,
    pub(super) settings: Settings,
    /// Those that run at once; none where the phase is one itself.
    pub(super) jobs: Vec<(String, Settings)>,
    pub(super) axes: Vec<Axis>,
    pub(super) rounds: Option<Rounds>,
}

/// A whole file.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    pub(super) about: String,
    /// Settings at the top.
    pub(super) top: Settings,
    pub(super) phases: Vec<Phase>,
    verify: bool,
    prefill: Option<bool>,
    virtual_time: bool,
    repeat: Option<u32>,
    interval: Option<f64>,
}

impl File {
    /// The file that was asked for, if one was. Errors: a usage error that names file, phase and key.
    pub(super) fn chosen(args: &Perf) -> Result<Option<Self>> {
        let (text, from) = match (&args.job, args.sheet) {
            (Some(path), _) => (read(path)?, path.display().to_string()),
            (None, Some(sheet)) => (sheet.text().to_owned(), "--sheet".to_owned()),
            (None, None) => return Ok(None),
        };
        let file = Self::parse(&text).map_err(|error| usage(format!("{from}: {error}")))?;
        if !args.matrix.is_empty() {
            return Err(usage(format!(
                "--matrix: {from} says what is swept; write matrix = [...] into a phase"
            )));
        }
        Ok(Some(file))
    }

    /// What was typed, as a file that says no more: one phase, with the axes of `--matrix`; with `--compare`
    /// and several devices these are one, in front.
    pub(super) fn of(args: &Perf) -> Self {
        let mut axes = args.matrix.clone();
        let devices = &args.settings.devices;
        if args.compare && devices.len() > 1 && !axes.iter().any(|axis| axis.name == "device") {
            let alone = |device: &String| {
                let settings = Settings { devices: vec![device.clone()], ..Settings::default() };
                (device.clone(), settings)
            };
            axes.insert(0, Axis { name: "device".to_owned(), values: devices.iter().map(alone).collect() });
        }
        Self { phases: vec![Phase { axes, ..Phase::default() }], ..Self::default() }
    }

    /// Reads a file. Errors: what is wrong with it, in words.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let table: Table = text.parse().map_err(|error| no_toml(text, &error))?;
        let mut file = Self::default();
        for (key, value) in &table {
            match (key.as_str(), value) {
                ("about", Value::String(about)) => file.about.clone_from(about),
                ("verify", Value::Boolean(on)) => file.verify = *on,
                ("prefill", Value::Boolean(on)) => file.prefill = Some(*on),
                ("virtual-time", Value::Boolean(on)) => file.virtual_time = *on,
                ("repeat", Value::Integer(count)) => file.repeat = Some(times(*count, "repeat")?),
                ("interval", value) => file.interval = Some(super::args::interval(&plain(key, value)?)?),
                ("phase", Value::Array(phases)) => file.phases = list(phases, "phase", phase)?,
                ("about" | "verify" | "prefill" | "virtual-time" | "repeat" | "phase", _) => {
                    return Err(wrong_kind(key));
                }
                _ => set(&mut file.top, key, value)?,
            }
        }
        if file.phases.is_empty() {
            return Err(
                "no [[phase]]; expected at least one, such as one with workload = \"randread\"".to_owned()
            );
        }
        Ok(file)
    }

    /// Does what the top of the file says of all of the session, below what was typed.
    pub(super) fn apply(&self, args: &mut Perf) {
        args.verify |= self.verify;
        args.virtual_time |= self.virtual_time;
        args.repeat = args.repeat.or(self.repeat);
        args.interval = args.interval.or(self.interval);
        if let (Some(prefill), false) = (self.prefill, args.prefill || args.no_prefill) {
            (args.prefill, args.no_prefill) = (prefill, !prefill);
        }
    }
}

fn read(path: &Path) -> Result<String> {
    let bytes = file::read(path, FILE_BYTES_MAX, "a job file")?;
    String::from_utf8(bytes)
        .map_err(|_| usage(format!("{}: expected TOML, and it is no text", path.display())))
}

/// What is wrong with the form of a file, and in which line.
fn no_toml(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', ", ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}

fn wrong_kind(key: &str) -> String {
    let expected = match key {
        "about" | "name" | "steady" => "a string, in quotes",
        "verify" | "prefill" | "virtual-time" => "true or false",
        "repeat" | "rounds" => "a whole number",
        "matrix" => "a list of strings, such as [\"depth=1..32\"]",
        _ => "tables, such as [[phase]]",
    };
    format!("{key}: expected {expected}")
}

fn times(count: i64, key: &str) -> Result<u32, String> {
    u32::try_from(count)
        .ok()
        .filter(|count| (1..=ROUNDS_MAX).contains(count))
        .ok_or_else(|| format!("{key}: expected a number from 1 to {ROUNDS_MAX}, found {count}"))
}

/// The elements of a list of tables; an error says in which it is.
fn list<T>(values: &[Value], what: &str, read: fn(&Table) -> Result<T, String>) -> Result<Vec<T>, String> {
    let one = |(place, value): (usize, &Value)| {
        let table = value.as_table().ok_or_else(|| wrong_kind(what))?;
        let name =
            table.get("name").and_then(Value::as_str).map_or_else(String::new, |name| format!(" `{name}`"));
        read(table).map_err(|error| format!("{what} {place}{name}: {error}"))
    };
    (1..).zip(values).map(one).collect()
}

fn phase(table: &Table) -> Result<Phase, String> {
    let mut phase = Phase::default();
    let (mut rounds, mut steady) = (None, None);
    for (key, value) in table {
        match (key.as_str(), value) {
            ("name", Value::String(name)) => phase.name = Some(name.clone()),
            ("matrix", Value::Array(axes)) => {
                let axis =
                    |value: &Value| value.as_str().ok_or_else(|| wrong_kind("matrix"))?.parse::<Axis>();
                phase.axes = axes.iter().map(axis).collect::<Result<_, _>>()?;
            }
            ("rounds", Value::Integer(count)) => rounds = Some(times(*count, "rounds")?),
            ("steady", Value::String(figure)) => {
                let known = SteadyFigure::from_str(figure, false);
                steady = Some(known.map_err(|_| "steady: expected iops, throughput or latency".to_owned())?);
            }
            ("job", Value::Array(jobs)) => phase.jobs = list(jobs, "job", job)?,
            ("name" | "matrix" | "rounds" | "steady" | "job", _) => return Err(wrong_kind(key)),
            _ => set(&mut phase.settings, key, value)?,
        }
    }
    phase.rounds = match (rounds, steady) {
        (Some(max), figure) if max as usize >= WINDOW => {
            Some(Rounds { max, figure: figure.unwrap_or(SteadyFigure::Iops) })
        }
        (Some(_), _) => {
            return Err(format!("rounds: expected at least {WINDOW}, which are looked at together"));
        }
        (None, Some(_)) => return Err("steady: expected rounds with it, such as rounds = 25".to_owned()),
        (None, None) => None,
    };
    Ok(phase)
}

fn job(table: &Table) -> Result<(String, Settings), String> {
    let (mut name, mut settings) = (None, Settings::default());
    for (key, value) in table {
        match (key.as_str(), value) {
            ("name", Value::String(text)) => name = Some(text.clone()),
            ("name", _) => return Err(wrong_kind(key)),
            _ => set(&mut settings, key, value)?,
        }
    }
    Ok((name.ok_or("name: expected one, by which its figures go")?, settings))
}

fn set(settings: &mut Settings, key: &str, value: &Value) -> Result<(), String> {
    // A list of devices is one for each; a list of anything else is written with commas.
    let one = match (key, value) {
        ("device", Value::Array(devices)) => {
            let mut all = Settings::default();
            for device in devices {
                all.devices.extend(Settings::one(key, &plain(key, device)?)?.devices);
            }
            all
        }
        (_, Value::Array(values)) => {
            let values: Result<Vec<String>, String> = values.iter().map(|value| plain(key, value)).collect();
            Settings::one(key, &values?.join(","))?
        }
        _ => Settings::one(key, &plain(key, value)?)?,
    };
    *settings = one.over(settings);
    Ok(())
}

fn plain(key: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        _ => Err(format!("{key}: expected a string or a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_its_phases_and_jobs_do() {
        let file = File::parse(
            "about = \"x\"\ndevice = [\"mem:block:1G,fdp\"]\ntime = 0.5\nverify = true\n[[phase]]\nname = \"one\"\n\
             workload = \"rw\"\nfdp-pid = [0, 2]\nmatrix = [\"depth=1..4\"]\n[[phase]]\nrounds = 5\nsteady = \
             \"latency\"\n[[phase.job]]\nname = \"a\"\ndepth = 1\n[[phase.job]]\nname = \"b\"\n",
        )
        .expect("a file");
        assert_eq!((file.top.time(), file.verify, file.phases.len()), (Some(0.5), true, 2));
        assert_eq!(file.phases[0].axes[0].values.len(), 3);
        assert_eq!(file.phases[0].settings.fdp_pid.as_ref().map(|list| list.0.len()), Some(2));
        assert_eq!(file.phases[1].rounds, Some(Rounds { max: 5, figure: SteadyFigure::Latency }));
        let names: Vec<&str> = file.phases[1].jobs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, expected) in [
            ("", "no [[phase]]"),
            ("\nx", "line 2: "),
            ("depht = 1\n[[phase]]", "`depht` is not a setting"),
            ("[[phase]]\nname = \"a\"\ndepth = 0", "phase 1 `a`: invalid value '0' for '--depth <COUNT>'"),
            ("[[phase]]\nname = 1", "phase 1: name: expected a string"),
            ("[[phase]]\n[[phase]]\nmatrix = \"depth=1\"", "phase 2: matrix: expected a list of strings"),
            ("[[phase]]\nrounds = 4", "phase 1: rounds: expected at least 5"),
            ("[[phase]]\nsteady = \"iops\"", "phase 1: steady: expected rounds with it"),
            (
                "[[phase]]\nrounds = 5\nsteady = \"x\"",
                "phase 1: steady: expected iops, throughput or latency",
            ),
            ("[[phase]]\n[[phase.job]]\ndepth = 1", "phase 1: job 1: name: expected one"),
            ("phase = 1", "phase: expected tables"),
            ("verify = 1\n[[phase]]", "verify: expected true or false"),
            ("[[phase]]\ntime = true", "phase 1: time: expected a string or a number"),
        ] {
            let error = File::parse(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn sheets_are_files() {
        for sheet in Sheet::value_variants() {
            let file = File::parse(sheet.text()).unwrap_or_else(|error| panic!("{sheet:?}: {error}"));
            assert!(!file.about.is_empty(), "{sheet:?}");
        }
    }
}
