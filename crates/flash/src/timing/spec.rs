//! A model as it is typed: a preset, and what is different from it.

use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::config::{TimingConfig, TimingModel};
use super::preset::PRESETS;
use crate::PAGE_BYTES;

/// A preset with parameters of its own: `tlc`, `tlc,dies=64,prog=700us`. Displays what is to be typed for it.
/// A colon separates as a comma does, for names of devices, where the comma is taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct TimingSpec {
    preset: &'static str,
    config: TimingConfig,
}

impl Default for TimingSpec {
    fn default() -> Self {
        Self { preset: PRESETS[0], config: TimingConfig::None }
    }
}

/// What a parameter's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Count,
    /// MB/s.
    Rate,
    /// Nanoseconds.
    Time,
    /// Pages of 4 KiB, typed in bytes.
    Bytes,
}

/// A parameter: its name, what it is, least and most, and where it is.
struct Key {
    name: &'static str,
    unit: Unit,
    range: (u64, u64),
    get: fn(&TimingModel) -> u64,
    set: fn(&mut TimingModel, u64),
}

/// A field of an integer type: values are in range, and so fit.
macro_rules! key {
    ($name:literal, $unit:ident, $least:expr, $most:expr, $field:ident: $kind:ty) => {
        Key {
            name: $name,
            unit: Unit::$unit,
            range: ($least, $most),
            get: |model| model.$field.into(),
            set: |model, value| model.$field = value as $kind,
        }
    };
}

const SECOND: u64 = 1_000_000_000;

/// All parameters but `read` and `dies`, which are made of several numbers.
const KEYS: [Key; 20] = [
    key!("link-read", Rate, 1, 1_000_000, link_read_mb_s: u32),
    key!("link-write", Rate, 1, 1_000_000, link_write_mb_s: u32),
    key!("cores", Count, 1, 64, firmware_cores: u8),
    key!("command", Time, 0, SECOND, firmware_command_ns: u32),
    key!("fixed", Time, 0, SECOND, firmware_fixed_ns: u32),
    key!("channels", Count, 1, 256, channels: u16),
    key!("channel", Rate, 1, 1_000_000, channel_mb_s: u32),
    key!("slice", Time, 256, 1_000_000, slice_ns: u32),
    key!("planes", Count, 1, 16, planes: u8),
    key!("page", Bytes, 1, 64, plane_pages: u8),
    key!("bits", Count, 1, 4, cell_bits: u8),
    key!("prog", Time, 0, SECOND, program_ns: u32),
    key!("erase", Time, 0, SECOND, erase_ns: u32),
    key!("block", Bytes, 1, 1 << 20, block_pages: u32),
    key!("prog-suspend", Time, 0, SECOND, program_suspend_ns: u32),
    key!("erase-suspend", Time, 0, SECOND, erase_suspend_ns: u32),
    key!("resume", Time, 0, SECOND, resume_ns: u32),
    key!("suspends", Count, 0, 65_535, suspends_max: u16),
    key!("buffer-fixed", Time, 0, SECOND, buffer_fixed_ns: u32),
    key!("buffer-page", Time, 0, SECOND, buffer_page_ns: u32),
];
const BUFFER: Key = key!("buffer", Bytes, 0, 1 << 20, buffer_pages: u32);

impl TimingSpec {
    /// The model, or none.
    pub const fn config(&self) -> &TimingConfig {
        &self.config
    }

    /// True when completions are posted at once.
    pub const fn is_none(&self) -> bool {
        self.config.is_none()
    }

    /// What is to be typed for it where commas separate something else: `tlc:dies=64:prog=700us`.
    pub fn in_name(&self) -> String {
        self.to_string().replace(',', ":")
    }

    /// True for the name of a parameter.
    pub fn has_parameter(name: &str) -> bool {
        KEYS.iter().chain([&BUFFER, &DIES, &READ]).any(|key| key.name == name)
    }

    /// Parses a file: `preset=tlc`, then a parameter on each line; `#` begins a comment. Errors: a sentence
    /// that names the line or the parameter, and what was expected.
    pub fn from_lines(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let plain: String = line.chars().filter(|letter| !letter.is_whitespace()).collect();
            match (plain.strip_prefix("preset="), parts.is_empty()) {
                _ if plain.is_empty() => {}
                (Some(preset), true) => parts.push(preset.to_owned()),
                (None, true) => {
                    return Err(format!("expected preset=tlc or another one first, not `{plain}`"));
                }
                _ => parts.push(plain),
            }
        }
        parts.join(",").parse()
    }

    fn model_of(preset: &str) -> Option<TimingModel> {
        TimingConfig::preset(preset).ok().and_then(|config| config.model().cloned())
    }
}

/// The buffer keeps its programs for every die when there are others.
fn scaled_buffer(preset: &TimingModel, model: &TimingModel) -> u32 {
    let all = |model: &TimingModel| u64::from(model.dies()) * u64::from(model.program_pages());
    (u64::from(preset.buffer_pages) * all(model) / all(preset)).min(1 << 20) as u32
}

impl FromStr for TimingSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split([',', ':']);
        let name = parts.next().unwrap_or_default();
        let preset = PRESETS.into_iter().find(|preset| *preset == name);
        let preset = preset.ok_or_else(|| format!("expected {}, not `{name}`", PRESETS.join(", ")))?;
        let Some(base) = Self::model_of(preset) else {
            return match parts.next() {
                None => Ok(Self::default()),
                Some(part) => Err(format!("`{part}`: without a model there are no parameters")),
            };
        };
        let (mut model, mut dies, mut seen) = (base.clone(), None, Vec::new());
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            if seen.contains(&key) {
                return Err(format!("{key}: given twice"));
            }
            seen.push(key);
            match KEYS.iter().chain([&BUFFER]).find(|known| known.name == key) {
                Some(known) => (known.set)(&mut model, known.parse(value)?),
                None if key == "dies" => dies = Some(DIES.parse(value)?),
                None if key == "read" => set_reads(&mut model, value)?,
                None => {
                    let names: Vec<&str> = KEYS.iter().map(|known| known.name).collect();
                    let names = names.join(", ");
                    return Err(format!("`{key}` is no parameter; expected {names}, buffer, dies or read"));
                }
            }
        }
        if let Some(dies) = dies {
            let channels = u64::from(model.channels);
            if !dies.is_multiple_of(channels) || !(1..=256).contains(&(dies / channels)) {
                let most = channels * 256;
                return Err(format!(
                    "dies: {dies} are not possible; expected a multiple of the {channels} channels, up to {most}"
                ));
            }
            model.dies_per_channel = (dies / channels) as u16;
        }
        if !seen.contains(&"buffer") {
            model.buffer_pages = scaled_buffer(&base, &model);
        }
        let config = TimingConfig::Model(model);
        config.check().map_err(|error| error.to_string())?;
        Ok(Self { preset, config })
    }
}

const DIES: Key = Key {
    name: "dies",
    unit: Unit::Count,
    range: (1, 65_536),
    get: |model| model.dies().into(),
    set: |_, _| (),
};
const READ: Key = Key {
    name: "read",
    unit: Unit::Time,
    range: (0, SECOND),
    get: |model| model.read_ns[0].into(),
    set: |_, _| (),
};

/// One time for all flash pages of a word line, or one for each of them.
fn set_reads(model: &mut TimingModel, value: &str) -> Result<(), String> {
    let times: Vec<u64> = value.split('/').map(|time| READ.parse(time)).collect::<Result<_, _>>()?;
    match times.as_slice() {
        &[all] => model.read_ns = [all as u32; 4],
        some if some.len() <= 4 => {
            model.read_ns = std::array::from_fn(|cell| some.get(cell).copied().unwrap_or_default() as u32);
        }
        _ => {
            return Err(format!(
                "read: expected one time, or up to four with slashes between, not `{value}`"
            ));
        }
    }
    Ok(())
}

impl Key {
    fn parse(&self, text: &str) -> Result<u64, String> {
        let value = match self.unit {
            Unit::Count => number(text, 1),
            Unit::Rate => number(text.strip_suffix("MB/s").unwrap_or(text), 1),
            Unit::Time => time(text),
            Unit::Bytes => bytes(text),
        };
        let (least, most) = self.range;
        value.filter(|value| (least..=most).contains(value)).ok_or_else(|| {
            let (least, most) = (self.show(least), self.show(most));
            let step = if self.unit == Unit::Bytes { " in steps of 4K" } else { "" };
            format!("{}: expected {least} to {most}{step}, not `{text}`", self.name)
        })
    }

    fn show(&self, value: u64) -> String {
        match self.unit {
            Unit::Count => value.to_string(),
            Unit::Rate => format!("{value}MB/s"),
            Unit::Time => show_time(value),
            Unit::Bytes if value.is_multiple_of(256) && value > 0 => format!("{}M", value / 256),
            Unit::Bytes => format!("{}K", value * (PAGE_BYTES >> 10)),
        }
    }
}

/// Digits, times `factor`.
fn number(text: &str, factor: u64) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u64>().ok().filter(|_| digits)?.checked_mul(factor)
}

fn time(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let units = [("ns", 1), ("us", 1000), ("ms", 1_000_000), ("s", SECOND)];
    let (number_of, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))?;
    let (whole, rest) = number_of.split_once('.').unwrap_or((number_of, ""));
    // A fraction is exact to the nanosecond, or refused.
    let digits =
        u32::try_from(rest.len()).ok().filter(|digits| 10_u64.checked_pow(*digits) <= Some(factor))?;
    let part = if rest.is_empty() { 0 } else { number(rest, factor / 10_u64.pow(digits))? };
    number(whole, factor)?.checked_add(part)
}

fn show_time(ns: u64) -> String {
    match ns {
        _ if ns > 0 && ns.is_multiple_of(SECOND) => format!("{}s", ns / SECOND),
        _ if ns > 0 && ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        _ if ns > 0 && ns.is_multiple_of(1000) => format!("{}us", ns / 1000),
        _ => format!("{ns}ns"),
    }
}

fn bytes(text: &str) -> Option<u64> {
    let (digits, factor) = match text.split_at_checked(text.len().saturating_sub(1))? {
        (digits, "K") => (digits, 1 << 10),
        (digits, "M") => (digits, 1 << 20),
        (digits, "G") => (digits, 1 << 30),
        _ => (text, 1),
    };
    number(digits, factor).filter(|bytes| bytes.is_multiple_of(PAGE_BYTES)).map(|bytes| bytes / PAGE_BYTES)
}

impl fmt::Display for TimingSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.preset)?;
        let (Some(model), Some(base)) = (self.config.model(), Self::model_of(self.preset)) else {
            return Ok(());
        };
        for key in &KEYS {
            let value = (key.get)(model);
            if value != (key.get)(&base) {
                write!(f, ",{}={}", key.name, key.show(value))?;
            }
        }
        if model.dies_per_channel != base.dies_per_channel {
            write!(f, ",dies={}", model.dies())?;
        }
        if model.read_ns != base.read_ns {
            let times = model.read_ns.map(|ns| show_time(ns.into()));
            write!(
                f,
                ",read={}",
                if times.iter().all(|time| *time == times[0]) { times[0].clone() } else { times.join("/") }
            )?;
        }
        if model.buffer_pages != scaled_buffer(&base, model) {
            write!(f, ",buffer={}", BUFFER.show(model.buffer_pages.into()))?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for TimingSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl From<TimingSpec> for String {
    fn from(spec: TimingSpec) -> Self {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TimingSpec, String> {
        text.parse()
    }

    #[test]
    fn a_preset_with_parameters_is_that_preset_but_for_them() {
        let tlc = TimingSpec::model_of("tlc").unwrap();
        let spec = parse("tlc,dies=64,prog=700us,erase=3.5ms,read=40us/50us/60us,page=8K,link-read=7000MB/s")
            .unwrap();
        let expected = TimingModel {
            dies_per_channel: 8,
            program_ns: 700_000,
            erase_ns: 3_500_000,
            read_ns: [40_000, 50_000, 60_000, 0],
            plane_pages: 2,
            link_read_mb_s: 7000,
            // Two programs of half the size for twice the dies.
            buffer_pages: tlc.buffer_pages,
            ..tlc
        };
        assert_eq!(spec.config().model(), Some(&expected));
        let text = "tlc,link-read=7000MB/s,page=8K,prog=700us,erase=3500us,dies=64,read=40us/50us/60us/0ns";
        assert_eq!(spec.to_string(), text);
        assert_eq!(parse(text).unwrap(), spec);
        assert_eq!(String::from(spec.clone()), text);
        assert_eq!(spec.in_name(), text.replace(',', ":"));
        assert_eq!(parse(&spec.in_name()).unwrap(), spec);
        let lines = "# a drive\n\npreset = tlc\n dies = 64 # all\nprog=700us\nerase=3500us\nread=40us/50us/60us\npage=8K\nlink-read=7000";
        assert_eq!(TimingSpec::from_lines(lines).unwrap(), spec);
        for name in PRESETS {
            assert_eq!(parse(name).unwrap().to_string(), name);
            assert_eq!(parse(name).unwrap().config(), &TimingConfig::preset(name).unwrap());
        }
    }

    #[test]
    fn every_parameter_is_taken_at_both_ends_of_its_range_and_beyond_them_refused_by_name() {
        for key in KEYS.iter().chain([&BUFFER, &READ]) {
            let (least, most) = key.range;
            // What a program takes has to fit in the buffer.
            let more = if key.name == "buffer" { "" } else { ",buffer=4096M" };
            let base = if key.name == "buffer" { "optane" } else { "tlc" };
            for value in [least, most] {
                let text = format!("{base},{}={}{more}", key.name, key.show(value));
                let spec = parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!((key.get)(spec.config().model().unwrap()), value, "{text}");
                assert_eq!(parse(&spec.to_string()).unwrap(), spec, "{text}");
            }
            for value in least.checked_sub(1).into_iter().chain([most + 1]) {
                let text = format!("{base},{}={}{more}", key.name, key.show(value));
                let error = parse(&text).unwrap_err();
                let expected = format!("{}: expected {} to {}", key.name, key.show(least), key.show(most));
                assert!(error.starts_with(&expected), "{text}: {error}");
            }
        }
        assert!(parse("tlc,dies=8").is_ok() && parse("tlc,dies=2048").is_ok());
        for dies in ["0", "4", "12", "2056"] {
            assert!(parse(&format!("tlc,dies={dies}")).unwrap_err().starts_with("dies: "), "{dies}");
        }
    }

    #[test]
    fn what_cannot_be_is_named_with_what_was_expected() {
        for (text, part) in [
            ("mlc", "expected none, dram, optane, tlc, qlc, not `mlc`"),
            ("none,prog=1us", "`prog=1us`: without a model there are no parameters"),
            ("tlc,foo=1", "`foo` is no parameter; expected link-read, "),
            ("tlc,prog", "prog: expected 0ns to 1s, not ``"),
            ("tlc,prog=561", "prog: expected 0ns to 1s, not `561`"),
            ("tlc,prog=0.5ns", "not `0.5ns`"),
            ("tlc,prog=-1us", "not `-1us`"),
            ("tlc,prog=1us,prog=2us", "prog: given twice"),
            ("tlc,page=6K", "page: expected 4K to 256K in steps of 4K, not `6K`"),
            ("tlc,read=1us/1us/1us/1us/1us", "read: expected one time, or up to four"),
            ("tlc,buffer=4K", "timing.buffer_pages: 1 is not possible"),
            ("", "expected none, dram"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(TimingSpec::from_lines("prog=1us").unwrap_err().contains("expected preset=tlc"));
        assert!(TimingSpec::from_lines("").is_err());
    }
}
