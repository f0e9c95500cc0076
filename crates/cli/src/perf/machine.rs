//! The computer and the time of a run, for the report.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::report::Machine;

use super::cores;

/// Bytes of memory that can be had without swapping, if the kernel says so.
pub(crate) fn memory_available() -> Option<u64> {
    let meminfo = text("/proc/meminfo");
    let kibibytes = field(&meminfo, "MemAvailable")?.strip_suffix("kB")?;
    kibibytes.trim().parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// What the kernel says about this computer; what it does not say is left empty or 0.
pub(crate) fn machine() -> Machine {
    let cpuinfo = text("/proc/cpuinfo");
    let meminfo = text("/proc/meminfo");
    let kibibytes = |key: &str| {
        let value = field(&meminfo, key).and_then(|value| value.strip_suffix("kB"));
        value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0) << 10
    };
    // Arm has no name of the model, but the numbers of who made which part.
    let model = field(&cpuinfo, "model name").or_else(|| field(&cpuinfo, "CPU part")).unwrap_or("");
    Machine {
        cpu_model: model.to_owned(),
        cores: cores::available().map_or(0, |cores| cores.len() as u32),
        memory_bytes: kibibytes("MemTotal"),
        kernel: format!(
            "{} {}",
            text("/proc/sys/kernel/ostype").trim(),
            text("/proc/sys/kernel/osrelease").trim()
        ),
        hugepages_bytes: kibibytes("Hugetlb"),
    }
}

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first `key : value` line.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim_end() == key).then(|| value.trim())
    })
}

/// Now, RFC 3339 in UTC.
pub(crate) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(since.as_secs())
}

pub(crate) fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Year, month and day that is `days` after 1970-01-01 in the Gregorian calendar.
fn date(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    while days >= days_of_year(year) {
        days -= days_of_year(year);
        year += 1;
    }
    let february = days_of_year(year) - 337;
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

fn days_of_year(year: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if leap { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_763_634_847, "2025-11-20T10:34:07Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "model\t\t: 85\nmodel name\t: A: B\n";
        assert_eq!((field(text, "model name"), field(text, "name")), (Some("A: B"), None));
    }
}
