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
    rfc3339(since.as_secs() as i64)
}

/// A moment in UTC: seconds since 1970, or before.
pub(crate) fn rfc3339(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Year, month and day that is `days` after 1970-01-01 in the Gregorian calendar (Howard Hinnant's
/// `civil_from_days`): years begin in March, so that a leap day is the last one.
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
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
