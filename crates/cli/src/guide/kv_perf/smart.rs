//! The log page of the extended SMART information, read again and again while a test runs.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use unvme::lock;
use unvme_guide::session::Member;
use unvme_spec::samsung_log::lid;

const PAGE_BYTES: usize = 1024;
/// Pause between two reads.
const PERIOD: Duration = Duration::from_secs(1);
/// Bytes in a line of the dump.
const COLUMNS: usize = 16;

/// Counters: name, first byte, bytes. The original calls the sizes of what was stored and appended by the
/// names of the limits.
const COUNTERS: [(&str, usize, usize); 37] = [
    ("nRetrieve_TotalSubmissionCommandCount", 512, 8),
    ("nRetrieve_TotalSucceededCompletionCommandCount", 520, 8),
    ("nRetrieve_TotalFailedCompletionCommandCount", 528, 8),
    ("nStore_TotalSubmissionCommandCount", 536, 8),
    ("nStore_TotalSucceededCompletionCommandCount", 544, 8),
    ("nStore_TotalFailedCompletionCommandCount", 552, 8),
    ("nAppend_TotalSubmissionCommandCount", 560, 8),
    ("nAppend_TotalSucceededCompletionCommandCount", 568, 8),
    ("nAppend_TotalFailedCompletionCommandCount", 576, 8),
    ("nDelete_TotalSubmissionCommandCount", 584, 8),
    ("nDelete_TotalSucceededCompletionCommandCount", 592, 8),
    ("nDelete_TotalFailedCompletionCommandCount", 600, 8),
    ("nRetrieveMaxValueSize", 728, 4),
    ("nRetrieveMinValueSize", 732, 4),
    ("nRetrieveAvgValueSize", 736, 4),
    ("nStoreMaxValueSize_CommandSpec", 740, 4),
    ("nStoreMinValueSize_CommandSpec", 744, 4),
    ("nStoreAvgValueSize", 748, 4),
    ("nAppendMaxValueSize_CommandSpec", 752, 4),
    ("nAppendMinValueSize_CommandSpec", 756, 4),
    ("nAppendAvgValueSize", 760, 4),
    ("nMaxKeySize_Spec", 824, 4),
    ("nMinKeySize_Spec", 828, 4),
    ("nKey_Alignment_Spec", 832, 4),
    ("nMaxValueSize_Spec", 836, 4),
    ("nMinValueSize_Spec", 840, 4),
    ("nValue_Alignment_Spec", 844, 4),
    ("nRetrieveMaxValueSize_CommandSpec", 848, 4),
    ("nRetrieveMinValueSize_CommandSpec", 852, 4),
    ("nRetrieveValue_Alignment_CommandSpec", 856, 4),
    ("nStoreMaxValueSize_CommandSpec", 860, 4),
    ("nStoreMinValueSize_CommandSpec", 864, 4),
    ("nStoreValue_Alignment_CommandSpec", 868, 4),
    ("nAppendMaxValueSize_CommandSpec", 872, 4),
    ("nAppendMinValueSize_CommandSpec", 876, 4),
    ("nAppendValue_Alignment_CommandSpec", 880, 4),
    ("WAF", 944, 4),
];

/// The counters of a page, with the lines around them.
fn counters(page: &[u8; PAGE_BYTES]) -> String {
    let mut out = "============ Extended S.M.A.R.T. Information ============\n".to_owned();
    for (name, at, bytes) in COUNTERS {
        let number =
            page[at..at + bytes].iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
        // Writing to a string does not fail.
        let _ = writeln!(out, "    {name}: {number}");
    }
    out + "=========================================================\n"
}

/// All bytes of a page.
fn dump(page: &[u8; PAGE_BYTES]) -> String {
    let line = |(row, bytes): (usize, &[u8])| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x} ")).collect();
        format!("{:04x}: {hex}\n", row * COLUMNS)
    };
    page.chunks(COLUMNS).enumerate().map(line).collect()
}

/// Whether reading is to end.
#[derive(Debug, Default)]
pub(super) struct Stop {
    stopped: Mutex<bool>,
    told: Condvar,
}

impl Stop {
    /// Ends it, within the read that is under way.
    pub(super) fn stop(&self) {
        *lock(&self.stopped) = true;
        self.told.notify_all();
    }

    /// True when reading is to end; waits a while before it says that it is not.
    fn is_told_within(&self, limit: Duration) -> bool {
        *lock::wait_while(&self.told, lock(&self.stopped), limit, |stopped| !*stopped)
    }
}

/// Reads the page of a device, at once and then each second until `stop`; `text` says whether anybody reads
/// what is printed, `alone` that nothing else is done, so that the counters are what it is about. Returns how
/// often the page was read.
pub(super) fn watch(member: &Member, stop: &Stop, text: bool, alone: bool) -> io::Result<u64> {
    let mut read = 0;
    loop {
        let mut page = [0; PAGE_BYTES];
        match member.log_page(lid::EXTENDED_SMART, &mut page) {
            Ok(()) => read += 1,
            Err(error) => {
                writeln!(io::stderr(), "kv_perf: {}: log page c0h: {error}", member.name())?;
            }
        }
        if text {
            let mut out = io::stdout().lock();
            if read > 0 {
                let counters = if alone { counters(&page) } else { String::new() };
                write!(out, "{counters}{}", dump(&page))?;
            }
            writeln!(out, "nr_send_log_page = {read}")?;
            out.flush()?;
        }
        if alone || stop.is_told_within(PERIOD) {
            return Ok(read);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_little_endian_at_their_places() {
        let mut page = [0; PAGE_BYTES];
        page[536..544].copy_from_slice(&[1, 2, 0, 0, 0, 0, 0, 1]);
        page[944..948].copy_from_slice(&[12, 0, 0, 0]);
        page[740..744].copy_from_slice(&[0, 16, 0, 0]);
        page[860..864].copy_from_slice(&[0, 0, 32, 0]);
        let text = counters(&page);
        assert!(text.starts_with(
            "============ Extended S.M.A.R.T. Information ============\n    nRetrieve_TotalSubmissionCommandCount: 0\n"
        ));
        assert!(text.contains("    nStore_TotalSubmissionCommandCount: 72057594037928449\n"), "{text}");
        let sizes: Vec<&str> =
            text.lines().filter(|line| line.contains("nStoreMaxValueSize_CommandSpec")).collect();
        let expected = [4096, 2 << 20].map(|bytes| format!("    nStoreMaxValueSize_CommandSpec: {bytes}"));
        assert_eq!(sizes, expected, "what was stored, and what can be");
        assert!(text.contains("    WAF: 12\n") && text.ends_with("=\n"), "{text}");
    }

    #[test]
    fn a_dump_has_sixteen_bytes_in_a_line() {
        let mut page = [0; PAGE_BYTES];
        page[17] = 0xab;
        let text = dump(&page);
        assert_eq!(text.lines().nth(1), Some("0010: 00 ab 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "));
        assert_eq!((text.lines().count(), text.lines().last().map(|line| &line[..5])), (64, Some("03f0:")));
    }

    #[test]
    fn being_told_to_stop_does_not_wait() {
        let stop = Stop::default();
        assert!(!stop.is_told_within(Duration::from_millis(1)));
        stop.stop();
        assert!(stop.is_told_within(Duration::from_secs(3600)));
    }
}
