//! The blocks in which the guide's programs tell how long something took.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::latency::LatencyStat;

/// Characters of the line above and below a block.
const RULE: &str = "======================================================";
/// Bytes of what the blocks call a KB.
const KIB: f64 = 1024.0;

/// The time of day, as the original's `gettimeofday`: time since 1970.
pub(crate) fn now() -> Duration {
    // A clock before 1970 is set wrong; what is told about times is wrong with it, and nothing else.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// What was done, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elapsed<'a> {
    /// Its name.
    pub(crate) what: &'a str,
    /// When it began, since 1970.
    pub(crate) start: Duration,
    /// When it ended, since 1970.
    pub(crate) end: Duration,
    /// Operations; 0 for something that is none.
    pub(crate) count: u64,
    /// Bytes of each operation; 0 for none.
    pub(crate) value_bytes: u64,
    /// Latencies of the operations.
    pub(crate) stat: Option<&'a LatencyStat>,
}

impl<'a> Elapsed<'a> {
    /// Something that began at `start`, ends now, and is no operation.
    pub(crate) fn since(what: &'a str, start: Duration) -> Self {
        Self { what, start, end: now(), count: 0, value_bytes: 0, stat: None }
    }
}

impl fmt::Display for Elapsed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, start, end, count, value_bytes, stat } = *self;
        let elapsed = end.saturating_sub(start);
        let time = |at: Duration| format!("{}s.{}us", at.as_secs(), at.subsec_micros());
        writeln!(f, "{RULE}")?;
        writeln!(f, "{what} start: {} end: {}", time(start), time(end))?;
        writeln!(f, "{what} total elapsed: {}us {:.3}ms", elapsed.as_micros(), elapsed.as_secs_f64() * 1e3)?;
        if count > 0 {
            // An operation that took no time at all on this clock took less than a microsecond.
            let us = elapsed.as_micros().max(1) as f64;
            writeln!(f, "{what} latency: {:.3} us per operation", us / count as f64)?;
            rates(f, what, count as f64 * 1e6 / us, value_bytes)?;
        }
        end_of_block(f, what, stat)
    }
}

/// What several threads did at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cumulative<'a> {
    /// Its name.
    pub(crate) what: &'a str,
    /// Operations per second, of all threads together.
    pub(crate) ops: f64,
    /// Bytes of each operation; 0 for none.
    pub(crate) value_bytes: u64,
    /// Latencies of the operations.
    pub(crate) stat: &'a LatencyStat,
}

impl fmt::Display for Cumulative<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, ops, value_bytes, stat } = *self;
        writeln!(f, "{RULE}")?;
        if ops > 0.0 {
            writeln!(f, "{what} latency: {:.3} us per operation", 1e6 / ops)?;
            rates(f, what, ops, value_bytes)?;
        }
        end_of_block(f, what, Some(stat))
    }
}

fn rates(f: &mut fmt::Formatter<'_>, what: &str, ops: f64, value_bytes: u64) -> fmt::Result {
    writeln!(f, "{what} ops: {ops:.3}")?;
    if value_bytes > 0 {
        writeln!(f, "{what} throughput: {} KB", (ops * value_bytes as f64 / KIB) as u64)?;
    }
    Ok(())
}

fn end_of_block(f: &mut fmt::Formatter<'_>, what: &str, stat: Option<&LatencyStat>) -> fmt::Result {
    if let Some(stat) = stat {
        writeln!(f, "{what} latency QoS: ")?;
        write!(f, "{stat}")?;
    }
    writeln!(f, "{RULE}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Elapsed<'_> = Elapsed {
        what: "kv_sdk_multi_store",
        start: Duration::new(1_511_847_139, 951_541_000),
        end: Duration::new(1_511_847_140, 746_797_000),
        count: 100_000,
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
            Cumulative { what: "kv_store", ops: 250_000.0, value_bytes: 4096, stat: &stat }.to_string();
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
        assert!(text.ends_with("] \n======================================================\n\n\n"), "{text}");
    }
}
