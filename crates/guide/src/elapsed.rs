//! The blocks in which the guide tells how long something took.

use std::fmt::{self, Display};
use std::time::{SystemTime, UNIX_EPOCH};

/// Characters of the line above and below a block.
const RULE: &str = "======================================================";
/// Bytes of what the blocks call a KB.
const KIB: f64 = 1024.0;

/// A time of day, as `gettimeofday` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOfDay {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Microseconds on top.
    pub micros: i64,
}

impl TimeOfDay {
    /// Now.
    pub fn now() -> Self {
        // A clock before 1970 is set wrong; what is told about times is wrong with it, and nothing else.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { seconds: now.as_secs() as i64, micros: now.subsec_micros().into() }
    }

    /// Microseconds from this time to another, at least 0.
    pub fn micros_until(self, end: Self) -> u64 {
        let micros = |time: Self| i128::from(time.seconds) * 1_000_000 + i128::from(time.micros);
        u64::try_from(micros(end) - micros(self)).unwrap_or(0)
    }
}

impl Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s.{}us", self.seconds, self.micros)
    }
}

/// What was done, and when.
#[derive(Clone, Copy)]
pub struct Elapsed<'a> {
    /// Its name.
    pub what: &'a str,
    /// When it began.
    pub start: TimeOfDay,
    /// When it ended.
    pub end: TimeOfDay,
    /// Operations; 0 for something that is none.
    pub count: u64,
    /// Microseconds that all operations together are told to have taken at the least.
    pub least_us: u64,
    /// Bytes of each operation; 0 for none.
    pub value_bytes: u64,
    /// Latencies of the operations.
    pub stat: Option<&'a dyn Display>,
}

impl<'a> Elapsed<'a> {
    /// Something that began at `start`, ends now, and is no operation. Operations that took no time at all on
    /// this clock took less than a microsecond.
    pub fn since(what: &'a str, start: TimeOfDay) -> Self {
        Self { what, start, end: TimeOfDay::now(), count: 0, least_us: 1, value_bytes: 0, stat: None }
    }
}

impl Display for Elapsed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, start, end, count, least_us, value_bytes, stat } = *self;
        let us = start.micros_until(end);
        writeln!(f, "{RULE}")?;
        writeln!(f, "{what} start: {start} end: {end}")?;
        writeln!(f, "{what} total elapsed: {us}us {:.3}ms", us as f64 / 1e3)?;
        if count > 0 {
            let latency_us = us.max(least_us) as f64 / count as f64;
            rates(f, what, latency_us, count as f64 * 1e6 / us.max(1) as f64, value_bytes)?;
        }
        end_of_block(f, what, stat)?;
        write!(f, "\n\n")
    }
}

/// What several threads did at the same time.
#[derive(Clone, Copy)]
pub struct Cumulative<'a> {
    /// Its name.
    pub what: &'a str,
    /// Operations per second, of all threads together.
    pub ops: f64,
    /// Bytes of each operation; 0 for none.
    pub value_bytes: u64,
    /// Latencies of the operations.
    pub stat: Option<&'a dyn Display>,
}

impl Display for Cumulative<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, ops, value_bytes, stat } = *self;
        writeln!(f, "{RULE}")?;
        if ops > 0.0 {
            rates(f, what, 1e6 / ops, ops, value_bytes)?;
        }
        end_of_block(f, what, stat)
    }
}

fn rates(f: &mut fmt::Formatter<'_>, what: &str, latency_us: f64, ops: f64, value_bytes: u64) -> fmt::Result {
    writeln!(f, "{what} latency: {latency_us:.3} us per operation")?;
    writeln!(f, "{what} ops: {ops:.3}")?;
    if value_bytes > 0 {
        writeln!(f, "{what} throughput: {} KB", (ops * value_bytes as f64 / KIB) as u64)?;
    }
    Ok(())
}

fn end_of_block(f: &mut fmt::Formatter<'_>, what: &str, stat: Option<&dyn Display>) -> fmt::Result {
    if let Some(stat) = stat {
        write!(f, "{what} latency QoS: \n{stat}")?;
    }
    writeln!(f, "{RULE}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::latency::LatencyStat;

    const SAMPLE: Elapsed<'_> = Elapsed {
        what: "kv_sdk_multi_store",
        start: TimeOfDay { seconds: 1_511_847_139, micros: 951_541 },
        end: TimeOfDay { seconds: 1_511_847_140, micros: 746_797 },
        count: 100_000,
        least_us: 1,
        value_bytes: 4096,
        stat: None,
    };

    #[test]
    fn the_guides_sample_is_printed_as_there() {
        assert_eq!(
            SAMPLE.to_string(),
            "======================================================\n\
             kv_sdk_multi_store start: 1511847139s.951541us end: 1511847140s.746797us\n\
             kv_sdk_multi_store total elapsed: 795256us 795.256ms\n\
             kv_sdk_multi_store latency: 7.953 us per operation\n\
             kv_sdk_multi_store ops: 125745.672\n\
             kv_sdk_multi_store throughput: 502982 KB\n\
             ======================================================\n\n\n"
        );
    }

    #[test]
    fn what_is_no_operation_has_no_rate() {
        let elapsed = Elapsed { what: "kv_sdk_init", count: 0, value_bytes: 0, ..SAMPLE };
        assert_eq!(
            elapsed.to_string(),
            "======================================================\n\
             kv_sdk_init start: 1511847139s.951541us end: 1511847140s.746797us\n\
             kv_sdk_init total elapsed: 795256us 795.256ms\n\
             ======================================================\n\n\n"
        );
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_give_negative_times() {
        let elapsed = Elapsed { start: SAMPLE.end, end: SAMPLE.start, ..SAMPLE }.to_string();
        assert!(elapsed.contains("kv_sdk_multi_store total elapsed: 0us 0.000ms\n"), "{elapsed}");
    }

    #[test]
    fn threads_are_told_by_the_sum_of_their_rates() {
        let mut stat = LatencyStat::default();
        stat.add(Duration::from_micros(10));
        stat.add(Duration::from_micros(20));
        let text =
            Cumulative { what: "kv_store", ops: 250_000.0, value_bytes: 4096, stat: Some(&stat) }.to_string();
        assert!(
            text.starts_with(
                "======================================================\n\
                 kv_store latency: 4.000 us per operation\n\
                 kv_store ops: 250000.000\n\
                 kv_store throughput: 1000000 KB\n\
                 kv_store latency QoS: \n\
                 \x20    lat(usec): min=10, max=20, mean=15.000\n"
            ),
            "{text}"
        );
        assert!(text.ends_with("] \n======================================================\n"), "{text}");
    }
}
